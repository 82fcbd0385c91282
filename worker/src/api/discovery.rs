//! `worker.json`: how clients of a data directory find the worker that holds it.
//!
//! Invariant: the file is written whole or not at all, and its presence proves nothing: a reader checks that the
//! process lives and answers. It names the directory that it was written for, so that in a copy of a directory it leads
//! nobody to the worker of the original. Only the worker that wrote it removes it.

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// The contents of `<data>/worker.json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkerFile {
    pub pid: u32,
    /// For example `http://127.0.0.1:41234`.
    pub address: String,
    pub token_file: PathBuf,
    pub version: String,
    /// RFC 3339.
    pub started_at: String,
    /// It is a command that works for one run and leaves with it, no worker.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub of_a_run: bool,
    /// The directory that the worker holds; nothing in files of before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub directory: Option<DirectoryId>,
}

/// Which directory it is, wherever it is mounted or moved: no copy has the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct DirectoryId {
    pub device: u64,
    pub inode: u64,
}

impl DirectoryId {
    /// Nothing: there is no such directory, or it cannot be looked at.
    pub fn of(data: &Path) -> Option<DirectoryId> {
        let about = fs::metadata(data).ok()?;
        Some(DirectoryId { device: about.dev(), inode: about.ino() })
    }
}

impl WorkerFile {
    pub fn path(data: &Path) -> PathBuf {
        data.join("worker.json")
    }
    /// The file of a data directory; `None` when there is none, it makes no sense, or was copied from another directory.
    pub fn read(data: &Path) -> Option<WorkerFile> {
        let path = Self::path(data);
        // A pipe would be waited for.
        if !fs::metadata(&path).ok()?.is_file() {
            return None;
        }
        let file: WorkerFile = serde_json::from_slice(&fs::read(path).ok()?).ok()?;
        (file.directory.is_none() || file.directory == DirectoryId::of(data)).then_some(file)
    }
    pub fn write(&self, data: &Path) -> io::Result<()> {
        let temporary = data.join(format!("worker.json.tmp{}", std::process::id()));
        let mut options = fs::OpenOptions::new();
        let mut file = options.write(true).create(true).truncate(true).mode(0o600).open(&temporary)?;
        file.write_all(&serde_json::to_vec_pretty(self)?)?;
        file.sync_all()?;
        fs::rename(&temporary, Self::path(data))
    }
    /// Removes the file if it still is this one.
    pub fn remove(&self, data: &Path) {
        if WorkerFile::read(data).as_ref() == Some(self) {
            let _ = fs::remove_file(Self::path(data));
        }
    }
    /// Whether the process that wrote the file still exists.
    pub fn process_lives(&self) -> bool {
        let Some(pid) = i32::try_from(self.pid).ok().and_then(rustix::process::Pid::from_raw) else {
            return false;
        };
        match rustix::process::test_kill_process(pid) {
            Ok(()) => !is_zombie(self.pid),
            // It exists and belongs to somebody else.
            Err(why) => why == rustix::io::Errno::PERM,
        }
    }
}

/// Whether it has ended, and only its parent has not looked yet.
fn is_zombie(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(')').is_some_and(|(_, rest)| rest.trim_start().starts_with('Z'))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn file(pid: u32) -> WorkerFile {
        WorkerFile {
            pid,
            address: "http://127.0.0.1:1".into(),
            token_file: "token".into(),
            version: "0.1.0".into(),
            started_at: "2026-11-20T18:00:00Z".into(),
            of_a_run: false,
            directory: None,
        }
    }

    #[test]
    fn a_copy_of_a_directory_has_no_worker() {
        let (dir, copy) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let mine = WorkerFile { directory: DirectoryId::of(dir.path()), ..file(std::process::id()) };
        mine.write(dir.path()).unwrap();
        fs::copy(WorkerFile::path(dir.path()), WorkerFile::path(copy.path())).unwrap();
        assert_eq!(WorkerFile::read(copy.path()), None);
        let moved = copy.path().join("moved");
        fs::rename(dir.path(), &moved).unwrap();
        assert_eq!(WorkerFile::read(&moved), Some(mine));
        fs::create_dir(dir.path()).unwrap();
    }

    #[test]
    fn the_worker_file_is_removed_only_by_its_writer() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(WorkerFile::read(dir.path()), None);
        let (mine, other) = (file(std::process::id()), file(1));
        mine.write(dir.path()).unwrap();
        let mode = fs::metadata(WorkerFile::path(dir.path())).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode, 0o600, "as every file of the directory");
        other.remove(dir.path());
        assert_eq!(WorkerFile::read(dir.path()), Some(mine.clone()));
        mine.remove(dir.path());
        assert_eq!(WorkerFile::read(dir.path()), None);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_half_written_worker_file_is_no_worker_file() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(WorkerFile::path(dir.path()), "{\"pid\": 1").unwrap();
        assert_eq!(WorkerFile::read(dir.path()), None);
    }

    #[test]
    fn a_process_that_ended_does_not_live() {
        assert!(file(std::process::id()).process_lives());
        assert!(!file(0).process_lives());
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let pid = child.id();
        let began = std::time::Instant::now();
        while file(pid).process_lives() {
            assert!(
                began.elapsed() < std::time::Duration::from_secs(30),
                "one that nobody has waited for has ended too"
            );
        }
        child.wait().unwrap();
        assert!(!file(pid).process_lives());
    }
}
