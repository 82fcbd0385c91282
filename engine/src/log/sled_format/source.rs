//! A file that is only read.
//!
//! Invariant: it is opened for reading, read by place, and every failure of a read is told: what could not be read is
//! never taken for what is not there.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use crate::log::StorageError;

#[derive(Debug)]
pub(crate) struct ReadOnlyFile {
    file: File,
    path: PathBuf,
    length: u64,
}

impl ReadOnlyFile {
    pub(crate) fn open(path: &Path) -> Result<ReadOnlyFile, StorageError> {
        let io = |op| move |why: std::io::Error| StorageError::io(op, path, &why);
        // A pipe is not waited for.
        let flags = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
        let file = OpenOptions::new().read(true).custom_flags(flags).open(path).map_err(io("open"))?;
        let about = file.metadata().map_err(io("look at"))?;
        if !about.is_file() {
            return Err(StorageError::corrupt("data directory", path, "it is no file"));
        }
        Ok(ReadOnlyFile { file, path: path.to_owned(), length: about.len() })
    }
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
    pub(crate) fn length(&self) -> u64 {
        self.length
    }
    /// Fills `buffer` with what lies at `at`, less at the end of the file.
    pub(crate) fn read(&self, buffer: &mut Vec<u8>, at: u64, length: usize) -> Result<(), StorageError> {
        let length = length.min(usize::try_from(self.length.saturating_sub(at)).unwrap_or(usize::MAX));
        buffer.resize(length, 0);
        let read = reading().and_then(|()| self.file.read_exact_at(buffer, at));
        read.map_err(|why| StorageError::io("read", &self.path, &why).at_byte(at))
    }
}

/// Bytes that a disk gives or does not give as one.
const BLOCK: usize = 4_096;

impl ReadOnlyFile {
    /// As `read`, with zeros for each block that cannot be read; answers where those are.
    pub(crate) fn read_around(&self, buffer: &mut Vec<u8>, at: u64, length: usize) -> Vec<StorageError> {
        if self.read(buffer, at, length).is_ok() {
            return Vec::new();
        }
        buffer.fill(0);
        let (mut block, mut failed) = (Vec::new(), Vec::new());
        for (into, at) in buffer.chunks_mut(BLOCK).zip((at..).step_by(BLOCK)) {
            match self.read(&mut block, at, into.len()) {
                Ok(()) => into.copy_from_slice(&block),
                Err(why) => failed.push(why),
            }
        }
        failed
    }
}

/// All of a small file.
pub(crate) fn read_whole(path: &Path) -> std::io::Result<Vec<u8>> {
    reading().and_then(|()| std::fs::read(path))
}

/// Where a test makes a read fail.
#[cfg(not(test))]
pub(crate) fn reading() -> std::io::Result<()> {
    Ok(())
}

#[cfg(test)]
pub(crate) use injected::{fail_read, reading, reads};

#[cfg(test)]
mod injected {
    use std::cell::Cell;

    thread_local! {
        static READS: Cell<u64> = const { Cell::new(0) };
        static FAILS: Cell<u64> = const { Cell::new(u64::MAX) };
    }

    pub(crate) fn reading() -> std::io::Result<()> {
        let n = READS.get() + 1;
        READS.set(n);
        if n == FAILS.get() { Err(std::io::Error::from_raw_os_error(5)) } else { Ok(()) }
    }
    /// The n-th read of this thread from now fails, once.
    pub(crate) fn fail_read(n: u64) {
        READS.set(0);
        FAILS.set(n);
    }
    pub(crate) fn reads() -> u64 {
        READS.get()
    }
}
