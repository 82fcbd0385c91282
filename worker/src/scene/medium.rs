//! Where the log of a scene lies: in memory, or in a directory of its own.
//!
//! Invariant: what a kill leaves is a copy, so that the life that goes on is not disturbed; a directory goes away with its
//! medium. It reads nothing of the log.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bosun_engine::DataDirectory;
use bosun_engine::log::MemoryLog;

/// See the module.
#[derive(Clone)]
pub(crate) enum Medium {
    Memory(Arc<MemoryLog>),
    Disk(Arc<Folder>),
}

/// A directory that is removed at the end.
pub(crate) struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        // What cannot be removed is for the system to clear: it lies among temporary files.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

impl Folder {
    fn fresh() -> std::io::Result<Folder> {
        static MADE: AtomicUsize = AtomicUsize::new(0);
        let number = MADE.fetch_add(1, Ordering::SeqCst);
        let path = std::env::temp_dir().join(format!("bosun-scene-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&path)?;
        Ok(Folder(path))
    }
}

impl Medium {
    pub(crate) fn fresh(disk: bool) -> std::io::Result<Medium> {
        match disk {
            false => Ok(Medium::Memory(Arc::new(MemoryLog::new([7; 16])))),
            true => Folder::fresh().map(|folder| Medium::Disk(Arc::new(folder))),
        }
    }

    pub(crate) fn data(&self) -> DataDirectory {
        match self {
            Medium::Memory(log) => DataDirectory::Log(log.clone()),
            Medium::Disk(folder) => DataDirectory::Path(folder.0.clone()),
        }
    }

    /// What kill -9 at this moment leaves.
    pub(crate) fn killed(&self) -> std::io::Result<Medium> {
        match self {
            Medium::Memory(log) => Ok(Medium::Memory(Arc::new(log.kill()))),
            Medium::Disk(folder) => {
                let left = Folder::fresh()?;
                copy(&folder.0, &left.0)?;
                Ok(Medium::Disk(Arc::new(left)))
            }
        }
    }
}

fn copy(from: &Path, to: &Path) -> std::io::Result<()> {
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            std::fs::create_dir_all(&target)?;
            copy(&entry.path(), &target)?;
        } else {
            std::fs::copy(entry.path(), &target)?;
        }
    }
    Ok(())
}
