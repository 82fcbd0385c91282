//! Writing a file so that a crash leaves the old one or the new one, and never a part.
//!
//! Invariant: what has been written when this returns is there after a power cut: the content is synced before it gets its
//! name, and the directory after. Whoever may read the old file, and nobody else, may read the new one. No link is followed.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

use rustix::fs::{AtFlags, FileType, Mode, OFlags};
use rustix::path::Arg;

/// What a file that was not there before allows, as far as the umask lets it.
const MODE_NEW: Mode = Mode::from_raw_mode(0o644);
/// While it is no more than a part, and until it has the mode of the file that it replaces.
const MODE_PRIVATE: Mode = Mode::from_raw_mode(0o600);
/// What is kept of a mode. Bits that lend rights go, as they do whenever a file is written to.
const MODE_KEPT: u32 = 0o777;

/// Puts a file of this content into an open directory, in the place of one that is there. It is written under the name
/// `temporary`, which no other write may use at a time; one that a crash left there is removed, and so it is on an error.
///
/// # Errors
/// What the system says. The old file is as it was then, unless syncing the directory failed.
pub(crate) fn write_whole(
    directory: impl AsFd,
    name: impl Arg + Copy,
    temporary: impl Arg + Copy,
    content: &[u8],
) -> io::Result<()> {
    let directory = directory.as_fd();
    let kept = match rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) if FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile => Some(stat.st_mode & MODE_KEPT),
        _ => None,
    };
    write_as(directory, (name, temporary), content, kept)
}

/// The same, with a mode that is not asked of the file before, nor of the umask.
///
/// # Errors
/// As [`write_whole`].
pub(crate) fn write_whole_with_mode(
    directory: impl AsFd,
    name: impl Arg + Copy,
    temporary: impl Arg + Copy,
    content: &[u8],
    mode: u32,
) -> io::Result<()> {
    write_as(directory.as_fd(), (name, temporary), content, Some(mode))
}

fn write_as(
    directory: BorrowedFd<'_>,
    (name, temporary): (impl Arg + Copy, impl Arg + Copy),
    content: &[u8],
    mode: Option<u32>,
) -> io::Result<()> {
    let _ = rustix::fs::unlinkat(directory, temporary, AtFlags::empty());
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let first = if mode.is_some() { MODE_PRIVATE } else { MODE_NEW };
    let mut file = File::from(rustix::fs::openat(directory, temporary, flags, first)?);
    let placed = file.write_all(content).and_then(|()| {
        if let Some(mode) = mode {
            rustix::fs::fchmod(&file, Mode::from_raw_mode(mode))?;
        }
        sync(&file, "file")?;
        Ok(rustix::fs::renameat(directory, temporary, directory, name)?)
    });
    if placed.is_err() {
        let _ = rustix::fs::unlinkat(directory, temporary, AtFlags::empty());
        return placed;
    }
    sync(directory, "directory")
}

/// Makes a directory with those above it that are missing, each with this mode, so that all of their names are on the disk.
///
/// # Errors
/// What the system says.
#[cfg(any(test, feature = "temporal"))]
pub(crate) fn make_whole_dir(directory: &Path, mode: u32) -> io::Result<()> {
    if directory.is_dir() {
        return Ok(());
    }
    let above = match directory.parent() {
        Some(above) if !above.as_os_str().is_empty() => above,
        Some(_) => Path::new("."),
        None => return Err(io::ErrorKind::NotFound.into()),
    };
    make_whole_dir(above, mode)?;
    match fs::DirBuilder::new().mode(mode).create(directory) {
        Err(why) if why.kind() != io::ErrorKind::AlreadyExists => Err(why),
        // Another process may have made it at this moment, and not be further.
        _ => sync(File::open(above)?, "directory above"),
    }
}

/// Makes a file or a directory of this user's as open as it is to be, where one that was ended before has not.
///
/// # Errors
/// What the system says.
pub(crate) fn mend_mode(path: &Path, mode: u32) -> io::Result<()> {
    let about = fs::metadata(path)?;
    let own = about.uid() == rustix::process::geteuid().as_raw();
    match own && about.permissions().mode() & 0o7777 != mode {
        true => fs::set_permissions(path, Permissions::from_mode(mode)),
        false => Ok(()),
    }
}

/// What makes the name of a file that is begun no other writer's.
///
/// # Errors
/// There are no random numbers.
pub(crate) fn of_this_writer() -> io::Result<String> {
    let mut chance = [0u8; 8];
    ring::rand::SecureRandom::fill(&ring::rand::SystemRandom::new(), &mut chance)
        .map_err(|_| io::Error::other("there are no random numbers"))?;
    Ok(bosun_engine::hex(&chance))
}

/// A directory below the worker's data, for its owner alone.
pub(super) fn private_dir(directory: &Path) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(directory)
}

/// How a file below the worker's data is opened that may be new: for its owner alone.
pub(super) fn private_file() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.create(true).mode(0o600);
    options
}

/// Waits until the disk has it. `what` is for tests, which cannot see a disk.
pub(super) fn sync(fd: impl AsFd, what: &'static str) -> io::Result<()> {
    #[cfg(test)]
    tests::SYNCED.with_borrow_mut(|synced| synced.push(what));
    #[cfg(not(test))]
    let _ = what;
    Ok(rustix::fs::fsync(fd)?)
}

#[cfg(test)]
pub(super) mod tests {
    use std::cell::RefCell;
    use std::os::unix::fs::symlink;

    use super::*;

    thread_local! {
        /// What this thread has synced, in order.
        pub(in crate::capability) static SYNCED: RefCell<Vec<&'static str>> = const { RefCell::new(Vec::new()) };
    }

    fn names(directory: &std::path::Path) -> Vec<String> {
        let name = |entry: io::Result<fs::DirEntry>| entry.unwrap().file_name().into_string().unwrap();
        fs::read_dir(directory).unwrap().map(name).collect()
    }

    #[test]
    fn a_file_is_synced_before_it_has_its_name_and_its_directory_after() {
        let dir = tempfile::tempdir().unwrap();
        SYNCED.take();
        fs::write(dir.path().join(".new"), "left by a crash").unwrap();
        write_whole(File::open(dir.path()).unwrap(), "a", ".new", b"text").unwrap();
        assert_eq!(SYNCED.take(), ["file", "directory"]);
        assert_eq!((fs::read_to_string(dir.path().join("a")).unwrap().as_str(), names(dir.path()).len()), ("text", 1));
    }

    #[test]
    fn a_file_that_is_replaced_keeps_its_mode_but_lends_no_rights() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a");
        for (mode, wanted) in [(0o600, 0o600), (0o755, 0o755), (0o664, 0o664), (0o4711, 0o711)] {
            fs::write(&path, "old").unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            write_whole(File::open(dir.path()).unwrap(), "a", ".new", b"new").unwrap();
            assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o7777, wanted, "{mode:o}");
        }
    }

    #[test]
    fn what_cannot_be_placed_leaves_nothing_beside() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("a")).unwrap();
        assert!(write_whole(File::open(dir.path()).unwrap(), "a", ".new", b"text").is_err());
        assert_eq!(names(dir.path()), ["a"]);
    }

    #[test]
    fn a_link_is_replaced_and_not_followed() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("other"), "other").unwrap();
        symlink("other", dir.path().join("a")).unwrap();
        symlink("other", dir.path().join(".new")).unwrap();
        write_whole(File::open(dir.path()).unwrap(), "a", ".new", b"text").unwrap();
        assert_eq!(fs::read_to_string(dir.path().join("other")).unwrap(), "other");
        assert_eq!(fs::read_to_string(dir.path().join("a")).unwrap(), "text");
    }
    #[test]
    fn a_new_directory_and_those_above_it_are_on_the_disk() {
        let dir = tempfile::tempdir().unwrap();
        let new = dir.path().join("a/b/c");
        SYNCED.take();
        make_whole_dir(&new, 0o750).unwrap();
        assert_eq!(SYNCED.take(), ["directory above"; 3]);
        make_whole_dir(&new, 0o700).unwrap();
        assert_eq!((SYNCED.take().len(), fs::metadata(&new).unwrap().permissions().mode() & 0o777), (0, 0o750));
        mend_mode(&new, 0o770).unwrap();
        assert_eq!(fs::metadata(&new).unwrap().permissions().mode() & 0o777, 0o770);
        fs::write(dir.path().join("file"), "").unwrap();
        assert!(make_whole_dir(&dir.path().join("file/d"), 0o700).is_err());
    }
}
