//! Crashes of the log that is written ahead: every acknowledged group is there, and no other.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use super::behind::behind;
use super::{Back, DiskLog, PendingGroup, read};
use crate::log::tests::story::Dice;
use crate::log::*;
use crate::vocabulary::GroupSeq;

/// A database that says what a power cut leaves of it: what was flushed, and a beginning of the rest.
#[derive(Debug)]
struct Fake {
    live: MemoryLog,
    dir: PathBuf,
    id: Mutex<Option<[u8; 16]>>,
    unsynced: Mutex<Vec<(u64, Vec<u8>)>>,
    segment: u64,
    /// There is no room for what says that groups are written ahead.
    unmarked: AtomicBool,
    /// How many bytes it still takes, and how many it has been asked to.
    room: AtomicU64,
    fed: AtomicU64,
}

impl Log for Fake {
    behind!(self, self.live);
    fn append(&self, seq: GroupSeq, value: &[u8], longest: usize) -> Result<(), StorageError> {
        self.unsynced.lock().unwrap().push((seq.0, value.to_vec()));
        self.live.append(seq, value, longest)
    }
    fn sync(&self, tail: Anchor) -> Result<(), StorageError> {
        self.flush()?;
        self.note(tail)
    }
    fn group(&self, seq: GroupSeq) -> Result<Option<Vec<u8>>, StorageError> {
        self.live.group(seq)
    }
    fn bounds(&self) -> Result<Option<(GroupSeq, GroupSeq)>, StorageError> {
        self.live.bounds()
    }
    fn groups_from(
        &self,
        from: GroupSeq,
        visit: &mut dyn FnMut(GroupSeq, Vec<u8>) -> Result<bool, StorageError>,
    ) -> Result<(), StorageError> {
        self.live.groups_from(from, visit)
    }
    fn remove_groups(&self, range: std::ops::RangeInclusive<u64>) -> Result<(), StorageError> {
        self.live.remove_groups(range)
    }
    fn file_of(&self, _seq: GroupSeq) -> PathBuf {
        self.location()
    }
}

impl Back for Fake {
    fn wal_dir(&self) -> PathBuf {
        self.dir.join("wal")
    }
    fn segment_bytes(&self) -> Option<u64> {
        Some(self.segment)
    }
    fn claim(&self) -> Result<(), StorageError> {
        Ok(())
    }
    fn mark(&self, id: Option<[u8; 16]>) -> Result<(), StorageError> {
        if self.unmarked.load(Ordering::Relaxed) {
            return Err(StorageError::NoRoom { path: self.dir.clone(), bytes: 0 });
        }
        *self.id.lock().unwrap() = id;
        Ok(())
    }
    fn note(&self, _tail: Anchor) -> Result<(), StorageError> {
        Ok(())
    }
    fn feed(&self, groups: &[(GroupSeq, Arc<PendingGroup>)], _urgent: &AtomicBool) -> Result<(), StorageError> {
        let bytes = groups.iter().map(|(_, group)| group.value.len() as u64).sum::<u64>();
        self.fed.fetch_add(bytes, Ordering::Relaxed);
        let left = self.room.load(Ordering::Relaxed).checked_sub(bytes);
        let left = left.ok_or_else(|| StorageError::NoRoom { path: self.dir.clone(), bytes })?;
        self.room.store(left, Ordering::Relaxed);
        groups.iter().try_for_each(|(seq, group)| self.append(*seq, &group.value, group.longest))
    }
    fn flush(&self) -> Result<(), StorageError> {
        self.unsynced.lock().unwrap().clear();
        Ok(())
    }
    fn fail(&self) {}
}

impl Fake {
    fn of(live: MemoryLog, dir: &Path, segment: u64) -> Fake {
        let (room, fed) = (AtomicU64::new(u64::MAX), AtomicU64::new(0));
        let (unmarked, dir) = (AtomicBool::new(false), dir.to_owned());
        Fake { live, dir, id: Mutex::default(), unsynced: Mutex::default(), segment, unmarked, room, fed }
    }
}

fn over(live: MemoryLog, dir: &Path, id: Option<[u8; 16]>) -> (Arc<Fake>, DiskLog) {
    let last = live.bounds().unwrap().map_or(GroupSeq(0), |(_, last)| last);
    let ahead = id.map(|id| {
        let found = read(&dir.join("wal"), &id).unwrap().groups;
        found.into_iter().filter(|group| group.seq > last).collect()
    });
    let fake = Arc::new(Fake { id: Mutex::new(id), ..Fake::of(live, dir, 64 * 1024) });
    (fake.clone(), DiskLog::over(fake, ahead).unwrap())
}

/// What a power cut leaves: the database as it was flushed with a beginning of the rest, and the files, in which the
/// write that was under way is torn.
fn crash(fake: &Fake, dice: &mut Dice) -> (MemoryLog, tempfile::TempDir, Option<[u8; 16]>) {
    let live = MemoryLog::new([1; 16]);
    let unsynced = fake.unsynced.lock().unwrap().clone();
    let first = unsynced.first().map_or(u64::MAX, |(seq, _)| *seq);
    fake.live
        .groups_from(GroupSeq(0), &mut |seq, value| {
            if seq.0 < first {
                live.append(seq, &value, 0)?;
            }
            Ok(true)
        })
        .unwrap();
    for (seq, value) in &unsynced[..dice.roll(unsynced.len() as u64 + 1) as usize] {
        live.append(GroupSeq(*seq), value, 0).unwrap();
    }
    let home = tempfile::tempdir().unwrap();
    let id = *fake.id.lock().unwrap();
    if id.is_some() {
        std::fs::create_dir(home.path().join("wal")).unwrap();
        for segment in ["wal/0", "wal/1"] {
            std::fs::copy(fake.dir.join(segment), home.path().join(segment)).unwrap();
        }
    }
    (live, home, id)
}

fn group(seq: u64, dice: &mut Dice) -> Vec<u8> {
    let length = [40, 200, 4_072, 4_073, 9_000, 20_000, 40_000][dice.roll(7) as usize];
    (0..length).map(|i| (i as u64 * 31 + seq * 7) as u8).collect()
}

/// One life after the other, each ended by a crash or a close, over many laps of the files.
fn lives(seed: u64) -> Result<(), String> {
    let mut dice = Dice(seed * 0x9e37_79b9 + 1);
    let mut told: Vec<Vec<u8>> = Vec::new();
    let (mut live, mut home, mut id) = (MemoryLog::new([1; 16]), tempfile::tempdir().unwrap(), None);
    for life in 0..6 {
        let (fake, log) = over(live, home.path(), id);
        let all = |log: &DiskLog| {
            let mut found = Vec::new();
            log.groups_from(GroupSeq(0), &mut |seq, value| {
                found.push((seq.0, value));
                Ok(true)
            })
            .unwrap();
            found
        };
        let expected: Vec<(u64, Vec<u8>)> = (1..).zip(told.clone()).collect();
        if all(&log) != expected {
            let found: Vec<u64> = all(&log).into_iter().map(|(seq, _)| seq).collect();
            return Err(format!("seed {seed}, life {life}: {} groups were told, {found:?} are there", told.len()));
        }
        // As a journal that has found everything whole.
        log.begin().unwrap();
        for _ in 0..dice.roll(60) {
            let seq = told.len() as u64 + 1;
            let value = group(seq, &mut dice);
            let tail = Anchor { last: GroupSeq(seq), chain: ChainHash([0; 32]) };
            log.commit(GroupSeq(seq), &value, 10, tail).unwrap();
            told.push(value);
            assert_eq!(log.group(GroupSeq(seq)).unwrap().as_ref(), told.last());
            assert_eq!(log.bounds().unwrap(), Some((GroupSeq(1), GroupSeq(seq))));
            if dice.roll(20) == 0 {
                log.sync(tail).unwrap();
            }
        }
        if dice.roll(4) == 0 {
            drop(log);
            assert!(!home.path().join("wal").exists());
            (live, _, id) = crash(&fake, &mut dice);
            assert_eq!(id, None);
        } else {
            let copy;
            (live, copy, id) = crash(&fake, &mut dice);
            drop(log);
            home = copy;
        }
    }
    Ok(())
}

/// G1, G2: see the module.
#[test]
fn a_crash_at_any_time_leaves_every_acknowledged_group() {
    let wrong: Vec<String> = (1..=40).filter_map(|seed| lives(seed).err()).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// G5: what cannot be marked as written ahead goes to the database itself, also behind files of a former process.
#[test]
fn a_disk_that_is_full_at_the_first_write_ends_nothing() {
    let home = tempfile::tempdir().unwrap();
    let tail = |seq: u64| Anchor { last: GroupSeq(seq), chain: ChainHash([0; 32]) };
    let (fake, log) = over(MemoryLog::new([1; 16]), home.path(), None);
    fake.unmarked.store(true, Ordering::Relaxed);
    log.commit(GroupSeq(1), b"one", 3, tail(1)).unwrap();
    assert_eq!(fake.live.bounds().unwrap(), Some((GroupSeq(1), GroupSeq(1))));
    assert!(!home.path().join("wal").exists(), "nothing relies on it");
    fake.unmarked.store(false, Ordering::Relaxed);
    log.commit(GroupSeq(2), b"two", 3, tail(2)).unwrap();
    let id = *fake.id.lock().unwrap();
    assert!(id.is_some(), "there is room, and it is written ahead again");
    // A process dies there, and the next one begins on a full disk.
    std::mem::forget(log);
    let live = MemoryLog::new([1; 16]);
    live.append(GroupSeq(1), b"one", 3).unwrap();
    let (fake, log) = over(live, home.path(), id);
    fake.unmarked.store(true, Ordering::Relaxed);
    for seq in 3..=4 {
        log.commit(GroupSeq(seq), b"more", 4, tail(seq)).unwrap();
    }
    assert_eq!(fake.live.bounds().unwrap(), Some((GroupSeq(1), GroupSeq(4))));
    fake.unmarked.store(false, Ordering::Relaxed);
    log.commit(GroupSeq(5), b"five", 4, tail(5)).unwrap();
    assert_eq!(log.bounds().unwrap(), Some((GroupSeq(1), GroupSeq(5))));
}

/// G5: what found room is not written again when there is more, and what did not is told.
#[test]
fn a_feed_goes_on_where_there_was_no_room_left() {
    const GROUP: u64 = 600_000;
    let home = tempfile::tempdir().unwrap();
    let fake = Arc::new(Fake::of(MemoryLog::new([1; 16]), home.path(), 16 << 20));
    let log = DiskLog::over(fake.clone(), None).unwrap();
    let tail = |seq: u64| Anchor { last: GroupSeq(seq), chain: ChainHash([0; 32]) };
    for seq in 1..=6 {
        log.commit(GroupSeq(seq), &vec![seq as u8; GROUP as usize], 10, tail(seq)).unwrap();
    }
    // Two pieces of two groups each, and no third one.
    fake.room.store(4 * GROUP + 10, Ordering::Relaxed);
    for _ in 0..3 {
        assert!(log.sync(tail(6)).unwrap_err().is_no_room());
        assert_eq!(fake.live.bounds().unwrap(), Some((GroupSeq(1), GroupSeq(4))));
        assert_eq!(log.bounds().unwrap(), Some((GroupSeq(1), GroupSeq(6))), "what waits is there");
    }
    assert_eq!(fake.fed.load(Ordering::Relaxed), 4 * GROUP + 3 * 2 * GROUP, "only the last piece is tried again");
    fake.room.store(2 * GROUP, Ordering::Relaxed);
    log.sync(tail(6)).unwrap();
    assert_eq!(fake.live.bounds().unwrap(), Some((GroupSeq(1), GroupSeq(6))));
}

/// Readers beside the feeder miss nothing.
#[test]
fn groups_are_read_whole_while_they_are_fed() {
    let home = tempfile::tempdir().unwrap();
    let options =
        SledOptions { instance: Some([1; 16]), cache_bytes: 4 << 20, wal_bytes: 64 * 1024, ..SledOptions::default() };
    let log = Arc::new(DiskLog::open_opaque(home.path(), options).unwrap());
    let done = Arc::new(AtomicU64::new(0));
    let reader = std::thread::spawn({
        let (log, done) = (log.clone(), done.clone());
        move || {
            let mut last = 0;
            while last < 600 {
                let told = done.load(Ordering::Acquire);
                let mut next = 1;
                log.groups_from(GroupSeq(1), &mut |seq, value| {
                    assert_eq!((seq.0, value[0]), (next, seq.0 as u8));
                    next += 1;
                    Ok(true)
                })
                .unwrap();
                assert!(next > told, "{next} after {told}");
                if told > 0 {
                    assert!(log.group(GroupSeq(told)).unwrap().is_some());
                    assert!(log.bounds().unwrap().is_some_and(|(first, last)| first.0 == 1 && last.0 >= told));
                }
                last = told;
            }
        }
    });
    for seq in 1..=600u64 {
        let tail = Anchor { last: GroupSeq(seq), chain: ChainHash([0; 32]) };
        log.commit(GroupSeq(seq), &vec![seq as u8; 100 + seq as usize * 7], 10, tail).unwrap();
        done.store(seq, Ordering::Release);
    }
    reader.join().unwrap();
}
