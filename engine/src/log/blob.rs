//! Blobs: large payloads in files of their own, named by the blake3 hash of their bytes.
//!
//! Invariant: a blob is durable (file and directory entry) before the group that names it is written, and its name
//! proves its content, so a damaged one is never taken for the payload. The same bytes are stored once. Who refers to a
//! blob, and when it may go, is known to the journal, not here.

use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use super::error::StorageError;
use super::files::sync_dir;
use super::private;
use super::room::Room;
use crate::vocabulary::{hex, unhex};

/// The name of a blob: the blake3 hash of its bytes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct BlobHash(pub [u8; 32]);

impl BlobHash {
    /// The hash of these bytes.
    pub fn of(bytes: &[u8]) -> Self {
        BlobHash(*blake3::hash(bytes).as_bytes())
    }
}

impl std::fmt::Display for BlobHash {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&hex(&self.0))
    }
}

impl std::fmt::Debug for BlobHash {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&hex(&self.0[..8]))
    }
}

/// Blobs under `<root>/ab/abcdef…`, one directory per first byte.
#[derive(Debug)]
pub(crate) struct BlobFiles {
    root: PathBuf,
    /// Directories whose entries this process knows to be durable. A killed process may have left a file whose
    /// directory was never synced.
    synced: Mutex<[bool; 256]>,
    room: Option<Arc<Room>>,
}

impl BlobFiles {
    pub(crate) fn open(root: PathBuf) -> Self {
        BlobFiles { root, synced: Mutex::new([false; 256]), room: None }
    }
    /// Asks for room before it writes.
    pub(crate) fn with_room(self, room: Arc<Room>) -> Self {
        BlobFiles { room: Some(room), ..self }
    }
    pub(crate) fn path(&self, hash: &BlobHash) -> PathBuf {
        self.root.join(hex(&hash.0[..1])).join(hash.to_string())
    }
    pub(crate) fn put(&self, hash: &BlobHash, bytes: &[u8]) -> Result<(), StorageError> {
        match &self.room {
            Some(room) => room.make(|| self.put_once(hash, bytes)),
            None => self.put_once(hash, bytes),
        }
    }
    fn put_once(&self, hash: &BlobHash, bytes: &[u8]) -> Result<(), StorageError> {
        let path = self.path(hash);
        let Some(dir) = path.parent() else {
            return Err(StorageError::corrupt("blob directory", path, "it has no parent"));
        };
        // One writer at a time: the journal commits from one thread, and the temporary name is fixed by the hash.
        let mut synced = self.synced.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let known = &mut synced[usize::from(hash.0[0])];
        // What is there may be damaged: only the same bytes are it.
        if fs::read(&path).is_ok_and(|found| found == bytes) {
            if !*known {
                File::open(&path).and_then(|f| f.sync_all()).map_err(|why| StorageError::io("fsync", &path, &why))?;
                self.sync_entry(dir)?;
                *known = true;
            }
            return Ok(());
        }
        private::make_dir(dir).map_err(|why| before_a_change("create", dir, &why))?;
        let temporary = dir.join(format!("{hash}.new"));
        let written = self
            .write_durably(&temporary, bytes)
            .and_then(|()| fs::rename(&temporary, &path).map_err(|why| before_a_change("rename", &temporary, &why)));
        if let Err(why) = written {
            // Best effort: the half-written file is of no use, and `blobs` does not list it.
            let _ = fs::remove_file(&temporary);
            return Err(why);
        }
        sync_dir(dir)?;
        if !*known {
            self.sync_entry(dir)?;
            *known = true;
        }
        Ok(())
    }
    fn write_durably(&self, path: &Path, bytes: &[u8]) -> Result<(), StorageError> {
        let mut file = private::create(path).map_err(|why| before_a_change("create", path, &why))?;
        if let Some(room) = &self.room {
            room.claim(&file, path, 0, bytes.len() as u64)?;
        }
        file.write_all(bytes).map_err(|why| before_a_change("write", path, &why))?;
        file.sync_all().map_err(|why| StorageError::io("fsync", path, &why))
    }
    /// Makes the directory's own entry durable, and what a former process may have left in it.
    fn sync_entry(&self, dir: &Path) -> Result<(), StorageError> {
        sync_dir(dir)?;
        sync_dir(&self.root)
    }
    pub(crate) fn get(&self, hash: &BlobHash) -> Result<Option<Vec<u8>>, StorageError> {
        let path = self.path(hash);
        match private::patiently(|| fs::read(&path)) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(why) if why.kind() == ErrorKind::NotFound => Ok(None),
            Err(why) => Err(StorageError::io("read", &path, &why)),
        }
    }
    pub(crate) fn list(&self, first_byte: u8) -> Result<Vec<BlobHash>, StorageError> {
        let dir = self.root.join(hex(&[first_byte]));
        let entries = match fs::read_dir(&dir) {
            Ok(entries) => entries,
            Err(why) if why.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            Err(why) => return Err(StorageError::io("list", &dir, &why)),
        };
        let mut found = Vec::new();
        for entry in entries {
            let entry = entry.map_err(|why| StorageError::io("list", &dir, &why))?;
            let hash = entry.file_name().to_str().and_then(unhex).and_then(|bytes| <[u8; 32]>::try_from(bytes).ok());
            found.extend(hash.map(BlobHash));
        }
        found.sort();
        Ok(found)
    }
    pub(crate) fn remove(&self, hash: &BlobHash) -> Result<(), StorageError> {
        let path = self.path(hash);
        match fs::remove_file(&path) {
            Err(why) if why.kind() != ErrorKind::NotFound => Err(StorageError::io("remove", &path, &why)),
            _ => Ok(()),
        }
    }
}

/// Until it is synced and has its name, nothing knows of a blob.
fn before_a_change(op: &'static str, path: &Path, why: &std::io::Error) -> StorageError {
    StorageError::io(op, path, why).before_a_change()
}
