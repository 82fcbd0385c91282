//! The worker's environment: read once, blanked where others could read it, and the secrets that are known of it
//! (G31).
//!
//! Invariant: after [`take`], neither `/proc/<pid>/environ` nor the environment a child inherits holds a value that is not
//! known to be harmless: the block that the kernel gave the process is overwritten in place, since removing a variable
//! leaves it there. The worker itself asks here. What a secret is worth is kept in memory only, and the process cannot be
//! traced or dumped by others of its user.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::{Mutex, OnceLock, PoisonError};

use super::scrub::Scrubber;

/// Shorter values are words, and would cut holes into every text.
pub(super) const SECRET_LEN_MIN: usize = 8;

/// Read by libraries, or by this program through `clap`, and never a secret.
const HARMLESS: [&str; 23] = [
    "PATH",
    "HOME",
    "LANG",
    "TMPDIR",
    "TERM",
    "TZ",
    "USER",
    "LOGNAME",
    "SHELL",
    "PWD",
    "COLUMNS",
    "LINES",
    "NO_COLOR",
    "CLICOLOR",
    "CLICOLOR_FORCE",
    "COLORTERM",
    "RUST_LOG",
    "RUST_BACKTRACE",
    "RUST_LIB_BACKTRACE",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "CARGO_MANIFEST_DIR",
    "SUPYAGENT_DELEGATION_DEPTH",
];
/// A name that has one of these is that of a secret.
const SECRET_WORDS: [&str; 9] =
    ["KEY", "TOKEN", "SECRET", "PASSWORD", "PASSWD", "PASSPHRASE", "CREDENTIAL", "COOKIE", "AUTH"];

static TAKEN: OnceLock<BTreeMap<OsString, OsString>> = OnceLock::new();
static SECRETS: Mutex<Option<Scrubber>> = Mutex::new(None);

/// Takes the environment over. To be called before the process has a second thread.
pub(crate) fn take() {
    let all: BTreeMap<OsString, OsString> = std::env::vars_os().collect();
    for (name, value) in &all {
        if let (Some(name), Some(value)) = (name.to_str(), value.to_str())
            && is_secret(name)
            && !is_place(value)
        {
            note_secret(value);
        }
    }
    if TAKEN.set(all).is_err() {
        return;
    }
    if let Err(why) = blank() {
        // Not a reason to stop: children inherit nothing of it, and results are scrubbed.
        eprintln!("warning: the keys of this process can be read in /proc: {why}");
    }
    #[cfg(target_os = "linux")]
    if let Err(why) = rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::NotDumpable) {
        eprintln!("warning: this process can be traced by others of its user: {why}");
    }
}

/// A variable of the worker. Where nobody has taken the environment over, that of the process.
pub(crate) fn var_os(name: impl AsRef<OsStr>) -> Option<OsString> {
    match TAKEN.get() {
        Some(all) => all.get(name.as_ref()).cloned(),
        None => std::env::var_os(name),
    }
}

pub(crate) fn var(name: &str) -> Option<String> {
    var_os(name)?.into_string().ok()
}

/// All of it, for a program of the owner's that fetches keys, and for who looks for names that begin alike.
pub(crate) fn all() -> BTreeMap<OsString, OsString> {
    TAKEN.get().cloned().unwrap_or_else(|| std::env::vars_os().collect())
}

/// Something that no result may hold from here on.
pub(crate) fn note_secret(secret: &str) {
    let mut secrets = SECRETS.lock().unwrap_or_else(PoisonError::into_inner);
    secrets.get_or_insert_default().add(secret.trim(), SECRET_LEN_MIN);
}

/// A command was given this variable: what it keeps of it somewhere, another tool finds there.
pub(super) fn note_passed(name: &str, value: &str) {
    if !is_harmless(name) && !is_place(value) {
        note_secret(value);
    }
}

/// Cuts what is known to be secret out of something that is sent elsewhere.
pub(crate) fn scrub(value: &mut serde_json::Value) {
    scrubber().value(value);
}

/// Cuts out what is known to be secret now.
pub(super) fn scrubber() -> Scrubber {
    SECRETS.lock().unwrap_or_else(PoisonError::into_inner).clone().unwrap_or_default()
}

fn is_harmless(name: &str) -> bool {
    let own = name.starts_with("BOSUN_") && (!is_secret(name) || name.ends_with("_FROM") || name.ends_with("_FILE"));
    HARMLESS.contains(&name) || ["LC_", "MIMALLOC_", "_CLAP_"].iter().any(|start| name.starts_with(start)) || own
}

pub(crate) fn is_secret(name: &str) -> bool {
    let name = name.to_ascii_uppercase();
    SECRET_WORDS.iter().any(|word| name.contains(word))
}

/// A place where a secret is, and not the secret.
fn is_place(value: &str) -> bool {
    value.starts_with('/') || ["env:", "file:", "cmd:"].iter().any(|kind| value.starts_with(kind))
}

/// Overwrites the values in the block that the kernel gave this process.
///
/// Through `/proc/self/mem`, so that a wrong place is an error and not a crash. Nobody else uses that memory: Rust copies
/// what it reads of the environment, and C libraries find an empty value where one was blanked.
#[cfg(target_os = "linux")]
fn blank() -> io::Result<()> {
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    let bad = || io::Error::other("/proc/self/stat is not as it should be");
    let mut fields = stat.rsplit_once(')').ok_or_else(bad)?.1.split_ascii_whitespace().skip(47);
    let mut address = || fields.next().and_then(|field| field.parse::<u64>().ok()).filter(|at| *at > 0).ok_or_else(bad);
    let (start, end) = (address()?, address()?);
    let memory = File::options().read(true).write(true).open("/proc/self/mem")?;
    let mut block = vec![0; usize::try_from(end.saturating_sub(start)).map_err(|_| bad())?];
    memory.read_exact_at(&mut block, start)?;
    let mut at = 0;
    for entry in block.split(|byte| *byte == 0) {
        if let Some(name) = entry.iter().position(|byte| *byte == b'=') {
            let harmless = std::str::from_utf8(&entry[..name]).is_ok_and(is_harmless);
            if !harmless {
                let value = &entry[name + 1..];
                memory.write_all_at(&vec![0; value.len()], start + (at + name + 1) as u64)?;
            }
        }
        at += entry.len() + 1;
    }
    block.fill(0);
    Ok(())
}

#[cfg(not(target_os = "linux"))]
fn blank() -> io::Result<()> {
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_harmless_is_named_and_all_else_is_not() {
        for name in ["PATH", "LC_ALL", "BOSUN_STORE", "BOSUN_LLM_API_KEY_FROM", "BOSUN_TOKEN_FILE", "RUST_LOG"] {
            assert!(is_harmless(name), "{name}");
        }
        for name in ["OPENAI_API_KEY", "BOSUN_MY_TOKEN", "DATABASE_URL", "HTTPS_PROXY", "anything"] {
            assert!(!is_harmless(name), "{name}");
        }
        assert!(is_secret("openai_api_key") && !is_secret("PATH"));
        assert!(is_place("/run/secrets/a") && is_place("env:KEY") && !is_place("sk-live-1"));
    }
}
