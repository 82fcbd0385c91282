//! The directory of large payloads of a Temporal cluster, as the command line names it, and what there is to say of it.
//!
//! Invariant: it only looks. A directory that is not there yet is no fault: the first large payload makes it. Without a cluster
//! nothing is kept there: the embedded engine has a place of its own.

use std::path::Path;

use super::args::Global;
use super::worker::bytes_of;
use crate::backend::PayloadStore;
use crate::capability::at_rest;

/// As the official SDKs have it.
pub(super) const ABOVE_DEFAULT: &str = "256KiB";
/// What stands in a message instead is not much shorter.
const ABOVE_MIN: usize = 4 << 10;
/// No cluster takes longer ones.
const ABOVE_MAX: usize = 2 << 20;

/// How long a payload may be that stays in its message.
pub(super) fn parse_above(text: &str) -> Result<usize, String> {
    let bytes = bytes_of(text)?;
    match bytes {
        ABOVE_MIN..=ABOVE_MAX => Ok(bytes),
        _ => Err(format!(
            "{text:?} is not from 4KiB to 2MiB: shorter ones gain nothing, and no cluster takes longer ones"
        )),
    }
}

/// What the command line names, if it names a directory.
pub(super) fn named(global: &Global) -> Option<PayloadStore> {
    let directory = global.payload_store.as_deref()?;
    let directory = std::path::absolute(directory).unwrap_or_else(|_| directory.to_owned());
    Some(PayloadStore { directory, above: global.payload_store_above })
}

/// What a directory is like: `Err`, what is wrong with it.
pub(super) fn told(directory: &Path) -> Result<String, String> {
    let shown = directory.display();
    match std::fs::metadata(directory) {
        Err(why) if why.kind() == std::io::ErrorKind::NotFound => {
            return Ok(format!("{shown} is not there yet: the first large payload makes it"));
        }
        Err(why) => return Err(format!("{shown}: {why}")),
        Ok(about) if !about.is_dir() => return Err(format!("{shown} is a file, and no directory")),
        Ok(_) => {}
    }
    let keys = at_rest::needed(directory).map_err(|why| why.to_string())?;
    let mode = rustix::fs::Access::READ_OK | rustix::fs::Access::WRITE_OK | rustix::fs::Access::EXEC_OK;
    rustix::fs::access(directory, mode).map_err(|why| format!("{shown} cannot be read and written: {why}"))?;
    let encrypted = match keys.len() {
        0 => String::new(),
        _ => format!(", encrypted with {}", keys.join(", ")),
    };
    Ok(format!("{shown}: {}{encrypted}", counted(directory)?))
}

#[cfg(feature = "temporal")]
fn counted(directory: &Path) -> Result<String, String> {
    let count = crate::temporal::count_payloads(directory).map_err(|why| why.to_string())?;
    let begun = match count.begun {
        0 => String::new(),
        begun => format!(", and {begun} that writers which were killed have left"),
    };
    Ok(format!("{} payloads, {} KiB{begun}", count.files, count.bytes.div_ceil(1024)))
}

#[cfg(not(feature = "temporal"))]
fn counted(_: &Path) -> Result<String, String> {
    Ok("this program is built without Temporal clusters, and does not use it".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bound_is_one_that_a_cluster_takes() {
        assert_eq!(parse_above(ABOVE_DEFAULT), Ok(256 << 10));
        assert_eq!(parse_above("2MiB"), Ok(2 << 20));
        for wrong in ["1KiB", "3MiB", "0", "much"] {
            assert!(parse_above(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_file_in_its_place_is_told() {
        let home = tempfile::tempdir().unwrap();
        assert!(told(&home.path().join("none")).unwrap().contains("not there yet"));
        let file = home.path().join("file");
        std::fs::write(&file, "").unwrap();
        assert!(told(&file).unwrap_err().contains("is a file"));
        told(home.path()).unwrap();
    }
}
