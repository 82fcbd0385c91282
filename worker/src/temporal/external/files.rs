//! The directory of large payloads: one file for each content, named by the SHA-256 of what is in it.
//!
//! ```text
//!   DIR/sha256/ab/abcdef…      whole, on the disk, and never changed
//!   DIR/sha256/ab/.abcdef…-…   what a writer has begun; left behind by one that was killed
//! ```
//!
//! Invariant: when a hash is given away, its file and its name are on the disk, also where another process has written it. What is
//! read is what its name says, or an error. A file that is named again counts as new from then on. Nothing is deleted. Files are as
//! open to others as the directory is, also where a writer was killed before it could open them. What is too large to be read
//! is not written.

use std::fs::{self, File, Permissions};
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use bosun_engine::hex;
use ring::digest::{SHA256, digest};

use super::reference::Reference;
use super::{ExternalError, STORED_MAX};
use crate::capability::durable::{make_whole_dir, mend_mode, of_this_writer, write_whole_with_mode};

const FOLDER: &str = "sha256";
/// A directory that nobody has made is for its owner.
const OWN: u32 = 0o700;
/// The largest file. A codec adds something to a payload.
const FILE_MAX: usize = STORED_MAX + 64 * 1024;

#[derive(Debug)]
pub(super) struct PayloadFiles {
    root: PathBuf,
}

/// What is in a directory.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct StoreCount {
    pub files: u64,
    pub bytes: u64,
    /// What writers that were killed have left.
    pub begun: u64,
}

impl PayloadFiles {
    pub(super) fn new(root: PathBuf) -> Self {
        PayloadFiles { root }
    }

    pub(super) fn root(&self) -> &Path {
        &self.root
    }

    /// The file of a hash, whether it is there or not.
    pub(super) fn path(&self, hash: &str) -> PathBuf {
        self.root.join(FOLDER).join(hash.get(..2).unwrap_or_default()).join(hash)
    }

    /// Makes the directory, if it is not there.
    pub(super) fn make(&self) -> Result<(), ExternalError> {
        make_whole_dir(&self.root, OWN).map_err(|why| io_error(&self.root, &why))
    }

    /// Keeps these bytes; their hash, once they are on the disk.
    pub(super) fn put(&self, bytes: &[u8]) -> Result<String, ExternalError> {
        if bytes.len() > FILE_MAX {
            return Err(ExternalError::TooLarge { length: bytes.len(), limit: FILE_MAX });
        }
        let hash = hash_of(bytes);
        let path = self.path(&hash);
        self.make()?;
        self.keep(&path, bytes).map_err(|why| io_error(&path, &why))?;
        Ok(hash)
    }

    fn keep(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        let open_to = fs::metadata(&self.root)?.permissions().mode() & 0o7777;
        let mode = 0o600 | (open_to & 0o044);
        let (folder, all) = (path.parent().unwrap_or(&self.root), self.root.join(FOLDER));
        for made in [&*all, folder] {
            match fs::DirBuilder::new().mode(OWN).create(made) {
                Ok(()) => fs::set_permissions(made, Permissions::from_mode(open_to))?,
                Err(why) if why.kind() == ErrorKind::AlreadyExists => mend_mode(made, open_to)?,
                Err(why) => return Err(why),
            }
        }
        match is_renewed(path, bytes)? {
            true => mend_mode(path, mode)?,
            false => write(folder, path, bytes, mode)?,
        }
        // The names too, also of folders that another process has just made.
        [folder, &*all, &*self.root].into_iter().try_for_each(|folder| File::open(folder)?.sync_all())
    }

    /// What a reference names, checked.
    pub(super) fn get(&self, reference: &Reference) -> Result<Vec<u8>, ExternalError> {
        let path = self.path(&reference.hash);
        let Reference { hash, length, .. } = reference.clone();
        let altered = || ExternalError::Altered { path: path.clone(), hash: hash.clone(), length };
        let file = match File::open(&path) {
            Ok(file) => file,
            Err(why) if matches!(why.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
                return Err(ExternalError::Missing { path });
            }
            Err(why) => return Err(io_error(&path, &why)),
        };
        if length > FILE_MAX as u64 || file.metadata().is_ok_and(|about| about.len() != length) {
            return Err(altered());
        }
        let mut bytes = Vec::new();
        file.take(length + 1).read_to_end(&mut bytes).map_err(|why| io_error(&path, &why))?;
        if bytes.len() as u64 == length && hash_of(&bytes) == hash { Ok(bytes) } else { Err(altered()) }
    }

    pub(super) fn count(&self) -> Result<StoreCount, ExternalError> {
        let mut count = StoreCount::default();
        for folder in entries(&self.root.join(FOLDER))? {
            for file in entries(&folder)? {
                let begun = file.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
                let Ok(about) = fs::metadata(&file) else { continue };
                match begun {
                    true => count.begun += 1,
                    false => (count.files, count.bytes) = (count.files + 1, count.bytes + about.len()),
                }
            }
        }
        Ok(count)
    }
}

fn entries(folder: &Path) -> Result<Vec<PathBuf>, ExternalError> {
    let all = match fs::read_dir(folder) {
        Ok(all) => all,
        Err(why) if matches!(why.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => return Ok(Vec::new()),
        Err(why) => return Err(io_error(folder, &why)),
    };
    all.map(|entry| Ok(entry.map_err(|why| io_error(folder, &why))?.path())).collect()
}

/// Whether the file is there as it has to be. It is new from now on, and on the disk. One that is not so, or another user's, is
/// written again.
fn is_renewed(path: &Path, bytes: &[u8]) -> io::Result<bool> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(why) if matches!(why.kind(), ErrorKind::NotFound | ErrorKind::PermissionDenied) => return Ok(false),
        Err(why) => return Err(why),
    };
    let mut there = Vec::with_capacity(bytes.len());
    (&file).take(bytes.len() as u64 + 1).read_to_end(&mut there)?;
    if there != bytes || file.set_modified(SystemTime::now()).is_err() {
        return Ok(false);
    }
    file.sync_all()?;
    Ok(true)
}

fn write(folder: &Path, path: &Path, bytes: &[u8], mode: u32) -> io::Result<()> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let beside = format!(".{name}-{}", of_this_writer()?);
    write_whole_with_mode(File::open(folder)?, &*name, beside.as_str(), bytes, mode)
}

fn hash_of(bytes: &[u8]) -> String {
    hex(digest(&SHA256, bytes).as_ref())
}

fn io_error(path: &Path, why: &io::Error) -> ExternalError {
    ExternalError::Io { path: path.to_owned(), why: why.to_string() }
}
