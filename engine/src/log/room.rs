//! Room on the disk: what must still be written when it is full has its place already.
//!
//! - `log/db` is allocated ahead of its end, so that no write of sled's ever asks for a block. The length does not change.
//! - Every other write of a group asks for its blocks before it begins ([`Room::claim`]).
//! - Files and directories, whose names take blocks that nobody can ask for, are made with [`Room::make`].
//! - `reserve` is a file whose blocks are given back when there are no others: with them the runs that are under way
//!   get on for a while, and a worker that starts on a full disk gets as far as it can.
//!
//! Invariant: who asks for room and gets none has changed nothing, so a full disk is no failure of the log: ask again
//! when there is space. Where a file system cannot allocate, only the free space is looked at.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::fs::{FallocateFlags, fallocate, statvfs};
use rustix::io::Errno;

use super::error::StorageError;
use super::private;

/// What one commit may take of `log/db` at most: two segments of sled's.
const LEAST_AHEAD: u64 = 1024 * 1024;
/// How far ahead of its end `log/db` is allocated.
const AHEAD: u64 = 2 * LEAST_AHEAD;
/// The reserve, and how little free space counts as a full disk; on a small disk a sixteenth of it.
const RESERVE: u64 = 4 * 1024 * 1024;
/// The shortest write-ahead file.
const LEAST_SEGMENT: u64 = 256 * 1024;
/// How many files more must be possible; on a small disk a sixteenth of all.
const FILES_MIN: u64 = 64;
/// How long the free space is taken to be what it was.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// See the module.
#[derive(Debug)]
pub(crate) struct Room {
    root: PathBuf,
    db: PathBuf,
    reserve: PathBuf,
    state: Mutex<RoomState>,
}

#[derive(Debug, Default)]
struct RoomState {
    /// How long `log/db` was, up to where it was allocated, and how many blocks it had then.
    length: u64,
    allocated: u64,
    blocks: u64,
    looked: Option<Instant>,
    low: bool,
    /// Blocks were refused. A quota is told by nothing else.
    starved: bool,
    /// The reserve is there; nobody has said so yet at first.
    reserved: bool,
}

/// How many files more can be made, if they are few: for long a file system may lack these alone. One that does not count
/// them has plenty.
fn few_files(path: &Path, was_low: bool) -> Option<u64> {
    let found = statvfs(path).ok().filter(|found| found.f_files > 0)?;
    let water = FILES_MIN.min(found.f_files / 16);
    (found.f_favail < if was_low { 2 * water } else { water }).then_some(found.f_favail)
}

/// The free bytes of a file system, and all of them. What cannot be told is plenty.
fn space(path: &Path) -> (u64, u64) {
    statvfs(path).map_or((u64::MAX, u64::MAX), |found| {
        (found.f_bavail.saturating_mul(found.f_frsize), found.f_blocks.saturating_mul(found.f_frsize))
    })
}

impl Room {
    pub(crate) fn new(root: &Path, db: &Path) -> Room {
        let reserve = root.join("reserve");
        Room { root: root.to_owned(), db: db.to_owned(), reserve, state: Mutex::default() }
    }

    fn state(&self) -> MutexGuard<'_, RoomState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn none(path: &Path, bytes: u64) -> StorageError {
        StorageError::NoRoom { path: path.to_owned(), bytes }
    }

    /// Gives back the blocks of the reserve. Says whether there were any.
    fn release(&self, state: &mut RoomState) -> bool {
        state.reserved = false;
        let had_some = fs::metadata(&self.reserve).is_ok_and(|found| found.blocks() > 0);
        if !had_some {
            return false;
        }
        let emptied = OpenOptions::new().write(true).open(&self.reserve).and_then(|file| file.set_len(0));
        match emptied {
            Ok(()) => tracing::warn!(directory = %self.root.display(), "the disk is full: the reserve is used"),
            Err(why) => tracing::warn!(%why, "the disk is full, and the reserve cannot be used"),
        }
        emptied_at_all(&self.reserve)
    }

    /// Before a directory is written to for the first time by this process.
    pub(crate) fn begin(&self) {
        let (free, all) = space(&self.root);
        if free < low_water(all) {
            self.release(&mut self.state());
        }
    }

    /// Allocates, with the reserve if need be. False: there is no room.
    fn allocate(&self, state: &mut RoomState, file: &File, at: u64, bytes: u64) -> bool {
        let allocate = || fallocate(file, FallocateFlags::KEEP_SIZE, at, bytes);
        match allocate() {
            Err(Errno::NOSPC | Errno::DQUOT) => {
                (state.low, state.starved) = (true, true);
                self.release(state) && !matches!(allocate(), Err(Errno::NOSPC | Errno::DQUOT))
            }
            // Where this is not to be had, the write itself says what it lacks.
            Ok(()) | Err(_) => {
                state.starved = false;
                true
            }
        }
    }

    /// Whether so many blocks are still refused. They are given back at once: runs that are under way live on what there is.
    fn is_starved(&self, bytes: u64) -> bool {
        let mut options = OpenOptions::new();
        let options = options.write(true).create(true).truncate(true).mode(0o600);
        let Ok(file) = private::open(&self.reserve, options) else { return true };
        let refused = matches!(fallocate(&file, FallocateFlags::empty(), 0, bytes), Err(Errno::NOSPC | Errno::DQUOT));
        file.set_len(0).is_err() || refused
    }

    /// Room for the bytes that are about to be written at a place of a file.
    pub(crate) fn claim(&self, file: &File, path: &Path, at: u64, bytes: u64) -> Result<(), StorageError> {
        if bytes == 0 || self.allocate(&mut self.state(), file, at, bytes) {
            return Ok(());
        }
        Err(Self::none(path, bytes))
    }

    /// Does what makes files or directories; where it finds no room, once more with the reserve. Only what says
    /// [`StorageError::NoRoom`], and so has changed nothing, is done again.
    pub(crate) fn make<T>(&self, mut work: impl FnMut() -> Result<T, StorageError>) -> Result<T, StorageError> {
        match work() {
            Err(why) if why.is_no_room() => {
                let mut state = self.state();
                (state.low, state.starved) = (true, true);
                let has_some = self.release(&mut state);
                drop(state);
                if has_some { work() } else { Err(why) }
            }
            done => done,
        }
    }

    /// Room for one more group, or one more batch of shelves, in `log/db`.
    pub(crate) fn claim_ahead(&self, file: &File) -> Result<(), StorageError> {
        let look = || file.metadata().map_err(|why| StorageError::io("look at", &self.db, &why));
        let (length, blocks) = look().map(|found| (found.len(), found.blocks()))?;
        let mut state = self.state();
        if length < state.length || blocks < state.blocks {
            // sled gave some of it back, and with it what was ahead; it may have grown again since.
            (state.allocated, state.blocks) = (length, blocks);
        }
        state.length = length;
        state.allocated = state.allocated.max(length);
        if state.allocated >= length + LEAST_AHEAD {
            return Ok(());
        }
        // Less will do, and may be there from an earlier process.
        for ahead in [AHEAD, LEAST_AHEAD] {
            if self.allocate(&mut state, file, length, ahead) {
                (state.allocated, state.blocks) = (length + ahead, look()?.blocks());
                return Ok(());
            }
        }
        Err(Self::none(&self.db, LEAST_AHEAD))
    }

    /// How long each of two files of about this length can be that are to be filled now; nothing: there is no space.
    pub(crate) fn for_segments(&self, bytes: u64) -> Option<u64> {
        let (free, all) = space(&self.root);
        let water = low_water(all);
        let bytes = bytes.min((all / 128).next_multiple_of(4_096)).max(bytes.min(LEAST_SEGMENT));
        (free > 2 * water + 2 * bytes).then_some(bytes)
    }

    /// Why nothing new should be begun, if so; keeps the reserve while there is space for it.
    pub(crate) fn low(&self) -> Option<String> {
        let mut state = self.state();
        if state.looked.is_some_and(|at| at.elapsed() < LOOK_EVERY) && !state.low {
            return None;
        }
        state.looked = Some(Instant::now());
        let (free, all) = space(&self.root);
        let water = low_water(all);
        // Some way above the mark, so that it does not go to and fro.
        let enough = if state.low { 2 * water } else { water };
        // More than the reserve, which would only be taken back from whom it was given to.
        state.starved = state.starved && (free < enough || self.is_starved(3 * water));
        let files = few_files(&self.root, state.low);
        let is_low = free < enough || state.starved || files.is_some();
        let was_low = std::mem::replace(&mut state.low, is_low);
        if !state.low && !state.reserved {
            state.reserved = free >= 3 * water && self.reserve(water);
        }
        if was_low != state.low {
            tracing::warn!(free, low = state.low, directory = %self.root.display(), "the space on the disk");
        }
        let is_left =
            files.map_or_else(|| format!("{free} bytes are free"), |files| format!("{files} files more can be made"));
        state.low.then(|| format!("{is_left} on the file system of {}", self.root.display()))
    }

    /// Makes the reserve, if it is not there yet.
    fn reserve(&self, bytes: u64) -> bool {
        let make = || -> std::io::Result<()> {
            let mut options = OpenOptions::new();
            let file = private::open(&self.reserve, options.write(true).create(true).truncate(false).mode(0o600))?;
            if file.metadata()?.blocks() * 512 < bytes {
                fallocate(&file, FallocateFlags::empty(), 0, bytes)?;
            }
            Ok(())
        };
        make().inspect_err(|why| tracing::debug!(%why, "there is no reserve")).is_ok()
    }

    /// Bytes on the disk that hold nothing.
    pub(crate) fn set_aside(&self) -> u64 {
        let bytes = |path: &Path| fs::metadata(path).map_or((0, 0), |found| (found.blocks() * 512, found.len()));
        let (reserve, _) = bytes(&self.reserve);
        let (db, length) = bytes(&self.db);
        reserve + db.saturating_sub(length)
    }
}

/// What a small file of the owner's may take.
const LENT: u64 = 256 * 1024;

/// Gives back a part of the reserve of a directory, for a small file that its owner must be able to write beside the log. The
/// next start of a worker makes it whole again. False: there is no such part.
pub fn lend_reserve(root: &Path) -> bool {
    let lend = || -> std::io::Result<bool> {
        let file = private::open(&root.join("reserve"), OpenOptions::new().write(true))?;
        let length = file.metadata()?.len();
        if length < LENT {
            return Ok(false);
        }
        tracing::warn!(directory = %root.display(), "the disk is full: a part of the reserve is used");
        file.set_len(length - LENT).and_then(|()| file.sync_all()).map(|()| true)
    };
    lend().unwrap_or(false)
}

fn low_water(all: u64) -> u64 {
    RESERVE.min(all / 16)
}

fn emptied_at_all(reserve: &Path) -> bool {
    fs::metadata(reserve).is_ok_and(|found| found.blocks() == 0)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;

    use super::*;

    const MIB: u64 = 1024 * 1024;

    /// G5: who makes a file finds room in the reserve, once; what may have changed something is not done again.
    #[test]
    fn what_is_made_finds_room_in_the_reserve() {
        let home = tempfile::tempdir().unwrap();
        let room = Room::new(home.path(), &home.path().join("db"));
        assert!(room.reserve(MIB));
        let has_reserve = || !emptied_at_all(&room.reserve);
        let once_free = || if has_reserve() { Err(Room::none(home.path(), 0)) } else { Ok(7) };
        assert!(has_reserve());
        let full = StorageError::Full { op: "fsync", path: "f".into(), message: "full".into() };
        assert_eq!(room.make(|| Err::<(), _>(full.clone())), Err(full.clone()));
        assert!(has_reserve(), "it may have changed something");
        assert_eq!(room.make(once_free), Ok(7));
        assert!(room.make(|| Err::<(), _>(Room::none(home.path(), 0))).unwrap_err().is_no_room());
        assert!(!lend_reserve(home.path()), "there is nothing left to lend");
        assert!(room.reserve(MIB) && lend_reserve(home.path()));
        assert!(std::fs::metadata(&room.reserve).unwrap().blocks() * 512 <= MIB - LENT);
    }

    /// Between two looks the file is cut, which frees what was allocated behind its end, and grows again, longer than it
    /// was.
    #[test]
    fn what_a_cut_gave_back_is_allocated_again() {
        let home = tempfile::tempdir().unwrap();
        let db = home.path().join("db");
        let file = OpenOptions::new().read(true).write(true).create_new(true).open(&db).unwrap();
        let room = Room::new(home.path(), &db);
        let fill = |to: u64| (0..to / MIB).for_each(|n| file.write_all_at(&[7; MIB as usize], n * MIB).unwrap());
        let bytes = || file.metadata().unwrap().blocks() * 512;
        fill(4 * MIB);
        room.claim_ahead(&file).unwrap();
        assert!(bytes() >= 6 * MIB, "this file system allocates nothing ahead: {}", bytes());
        file.set_len(MIB).unwrap();
        fill(5 * MIB);
        assert!(bytes() < 6 * MIB, "the cut freed nothing: {}", bytes());
        room.claim_ahead(&file).unwrap();
        assert!(bytes() >= 5 * MIB + LEAST_AHEAD, "nothing is allocated ahead: {}", bytes());
        // Without a cut nothing is asked for again.
        let before = bytes();
        room.claim_ahead(&file).unwrap();
        assert_eq!(bytes(), before);
    }
}
