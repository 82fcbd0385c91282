//! How files and directories of a store are made and opened: for their owner alone, and patiently.
//!
//! Invariant: what is made here is readable by its owner only, also where the directory was there before and its mode
//! says otherwise. Too few file handles are no failure of the storage: whoever needs one waits for it, since the
//! process gives handles back as its connections and commands end. What is in the files is not known here.

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::time::{Duration, Instant};

/// Bits of a mode that are others' business.
const OTHERS: u32 = 0o077;
/// What a worker makes in its directory: these names, and those with something behind a dot or a dash.
const OWN: [&str; 22] = [
    "anchor",
    "bosun",
    "compacted",
    "damaged",
    "groups",
    "held",
    "incoming",
    "keys",
    "log",
    "marks",
    "payloads",
    "processes",
    "quarantine",
    "reserve",
    "seen-time",
    "store",
    "swapping",
    "token",
    "tokens",
    "values",
    "wal",
    "worker",
];

/// Whether a worker makes an entry of this name in its directory.
pub(crate) fn is_own(name: &str) -> bool {
    let is = |own: &str| name.strip_prefix(own).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '-']));
    OWN.into_iter().any(is)
}

/// How long a file handle is waited for.
const PATIENCE: Duration = Duration::from_secs(30);

/// Opens, waiting for a file handle if there is none.
pub(crate) fn open(path: &Path, options: &OpenOptions) -> io::Result<File> {
    patiently(|| options.open(path))
}

/// Does what needs a file handle, again and again while there is none.
pub(crate) fn patiently<T>(mut work: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    let began = Instant::now();
    loop {
        match work() {
            Err(why) if is_out_of_handles(&why) && began.elapsed() < PATIENCE => {
                if began.elapsed() < Duration::from_millis(30) {
                    tracing::warn!(%why, "no file handle is free; waiting for one");
                }
                std::thread::sleep(Duration::from_millis(20));
            }
            done => return done,
        }
    }
}

fn is_out_of_handles(why: &io::Error) -> bool {
    let out = [rustix::io::Errno::MFILE, rustix::io::Errno::NFILE].map(rustix::io::Errno::raw_os_error);
    why.raw_os_error().is_some_and(|code| out.contains(&code))
}

/// A file that begins empty.
pub(crate) fn create(path: &Path) -> io::Result<File> {
    open(path, OpenOptions::new().read(true).write(true).create(true).truncate(true).mode(0o600))
}

/// A directory with all above it that are missing.
pub(crate) fn make_dir(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// Takes from others what they may do with a store. Where the mode of the root says that nobody else gets in, only what
/// sled makes is looked at. What belongs to somebody else stays, with a warning.
pub(crate) fn tighten(root: &Path, log: &Path) {
    let is_open = fs::metadata(root).is_ok_and(|found| found.permissions().mode() & OTHERS != 0);
    let tightened = match is_open {
        // The root last: its mode then says that everything below was seen to.
        true => tighten_store(root).and_then(|()| close_to_others(root)),
        false => tighten_tree(log),
    };
    if let Err(why) = tightened {
        tracing::warn!(%why, directory = %root.display(), "others may read what is stored: the mode cannot be changed");
    }
}

/// What of a directory is the store's; the rest is its owner's business.
fn tighten_store(root: &Path) -> io::Result<()> {
    for entry in fs::read_dir(root)? {
        let entry = entry?;
        let name = entry.file_name();
        let name = name.to_string_lossy();
        if is_own(&name) {
            tighten_tree(&entry.path())?;
        }
    }
    Ok(())
}

fn tighten_tree(path: &Path) -> io::Result<()> {
    let found = match fs::symlink_metadata(path) {
        Ok(found) => found,
        // It was removed meanwhile.
        Err(why) if why.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(why) => return Err(why),
    };
    if found.is_symlink() {
        return Ok(());
    }
    if found.is_dir() {
        for entry in fs::read_dir(path)? {
            tighten_tree(&entry?.path())?;
        }
    }
    close_to_others(path)
}

fn close_to_others(path: &Path) -> io::Result<()> {
    let mode = fs::metadata(path)?.permissions().mode();
    if mode & OTHERS == 0 { Ok(()) } else { fs::set_permissions(path, Permissions::from_mode(mode & 0o7700)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    /// A directory that was there before, open to everybody, is nobody else's any more; what is executable stays so.
    #[test]
    fn what_was_open_to_others_is_not_any_more() {
        let home = tempfile::tempdir().unwrap();
        let root = home.path().join("data");
        let (log, file) = (root.join("log"), root.join("log/db"));
        let [tool, token, theirs] = ["log/tool", "tokens.json", "notes.txt"].map(|name| root.join(name));
        let [keys, processes] = ["keys.json", "processes"].map(|name| root.join(name));
        fs::create_dir_all(&log).unwrap();
        fs::create_dir(&processes).unwrap();
        let (dirs, files) = ([(&root, 0o755), (&log, 0o775), (&processes, 0o755)], [(&file, 0o644), (&tool, 0o755)]);
        let beside = [(&token, 0o644), (&keys, 0o644), (&theirs, 0o644)];
        let open: Vec<(&std::path::PathBuf, u32)> = dirs.into_iter().chain(files).chain(beside).collect();
        for (path, open) in open.clone() {
            if !path.exists() {
                fs::write(path, "x").unwrap();
            }
            fs::set_permissions(path, Permissions::from_mode(open)).unwrap();
        }
        tighten(&root, &log);
        let modes: Vec<u32> = open.iter().map(|(path, _)| mode(path)).collect();
        assert_eq!(
            modes,
            [0o700, 0o700, 0o700, 0o600, 0o700, 0o600, 0o600, 0o644],
            "what is not the store's stays as it is"
        );
        // What sled makes later in a root that is closed.
        fs::set_permissions(&file, Permissions::from_mode(0o644)).unwrap();
        tighten(&root, &log);
        assert_eq!(mode(&file), 0o600);
    }

    #[test]
    fn a_handle_is_waited_for() {
        let mut tries = 0;
        let done = patiently(|| {
            tries += 1;
            if tries < 3 { Err(io::Error::from_raw_os_error(24)) } else { Ok(tries) }
        });
        assert_eq!(done.unwrap(), 3);
        let other = patiently(|| Err::<(), _>(io::Error::from_raw_os_error(5)));
        assert_eq!(other.unwrap_err().raw_os_error(), Some(5));
    }
}
