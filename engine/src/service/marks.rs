//! Marks: what is under way on each thread, in a small file that outlives the process (G23).
//!
//! ```text
//!  slot 0: boot · kills for want of memory at the start, of the machine and of the control group · who aborted
//!  slot n: a turn, a start or an attempt
//! ```
//!
//! Invariant: a mark is written before code of a run may run and cleared after, by one `pwrite` each and no fsync: what
//! the kernel holds survives the death of the process, though not that of the machine, whose marks are not believed.
//! A worker that opens the file finds what the one before was at when it died. It judges nobody; `quarantine` does.

use std::cell::Cell;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use super::abort;
use super::budget::kills_of_group;
use crate::activity::TaskToken;
use crate::vocabulary::*;

const FILE: &str = "marks";
const SLOT_BYTES: usize = 64;
/// More things at once than this are not marked. The file is sparse.
const SLOTS_MAX: u32 = 4_096;
/// The bytes of a mark before its checksum.
const MARK_BYTES: usize = 29;
/// Where in slot 0 the handler of SIGABRT writes which slot's thread has aborted.
const ABORTED_AT: u64 = 48;
/// The thread that aborted had no slot.
const NO_SLOT: u32 = u32::MAX;

/// What may end the process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mark {
    /// Code of this run runs, or is dropped.
    Turn(RunId),
    /// The first turn of a run that is not in the log yet, by what is started.
    Start(RunId),
    /// A function of an attempt runs.
    Attempt(TaskToken),
}

impl Mark {
    fn encode(self) -> [u8; MARK_BYTES + 4] {
        let (kind, run, seq, attempt) = match self {
            Mark::Turn(run) => (1, run, 0, 0),
            Mark::Start(what) => (2, what, 0, 0),
            Mark::Attempt(TaskToken { run_id, seq, attempt }) => (3, run_id, seq.0, attempt.0),
        };
        let mut bytes = [0; MARK_BYTES + 4];
        bytes[0] = kind;
        bytes[1..17].copy_from_slice(&run.0);
        bytes[17..25].copy_from_slice(&seq.to_le_bytes());
        bytes[25..29].copy_from_slice(&attempt.to_le_bytes());
        let sum = crc32fast::hash(&bytes[..MARK_BYTES]);
        bytes[MARK_BYTES..].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    fn decode(bytes: &[u8]) -> Option<Mark> {
        let sum = u32::from_le_bytes(bytes.get(MARK_BYTES..MARK_BYTES + 4)?.try_into().ok()?);
        let bytes = &bytes[..MARK_BYTES];
        if crc32fast::hash(bytes) != sum {
            return None;
        }
        let run_id = RunId(bytes[1..17].try_into().ok()?);
        let seq = Seq(u64::from_le_bytes(bytes[17..25].try_into().ok()?));
        let attempt = Attempt(u32::from_le_bytes(bytes[25..29].try_into().ok()?));
        match bytes[0] {
            1 => Some(Mark::Turn(run_id)),
            2 => Some(Mark::Start(run_id)),
            3 => Some(Mark::Attempt(TaskToken { run_id, seq, attempt })),
            _ => None,
        }
    }
}

/// How the worker before died, as far as it can be told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Death {
    /// It aborted on the thread of this mark: a stack overflow, a failed allocation, an abort.
    Aborted { by_this: bool },
    /// It aborted on a thread without a mark.
    AbortedElsewhere,
    /// The kernel killed for want of memory meanwhile.
    OutOfMemory,
    /// Killed from outside, as far as anybody knows.
    Killed,
}

thread_local! {
    /// The slot of what this thread is at; 0: nothing. Const and without a destructor, so that a signal handler may look.
    static CURRENT: Cell<u32> = const { Cell::new(0) };
}

pub(super) struct Marks {
    file: Arc<File>,
    free: Mutex<Free>,
    _handler: Option<abort::AbortHandler>,
}

#[derive(Default)]
struct Free {
    given_back: Vec<u32>,
    used: u32,
}

impl Marks {
    /// Opens the file of a directory and gives what the process before left in it. The marks found are there until
    /// [`Marks::clear_found`], so that a death in between loses none.
    pub(super) fn open(directory: &Path) -> io::Result<(Arc<Self>, Vec<(Mark, Death)>)> {
        let path = directory.join(FILE);
        let fresh = !path.exists();
        let mut options = OpenOptions::new();
        let file = options.read(true).write(true).create(true).truncate(false).mode(0o600).open(&path)?;
        if fresh {
            // Once in the life of a directory: what is created in it is there for good.
            File::open(directory)?.sync_all()?;
        }
        let found = left_behind(&file)?;
        let file = Arc::new(file);
        let note = file.clone();
        let handler = abort::on_abort(move || {
            let slot = CURRENT.with(Cell::get);
            let slot = if slot == 0 { NO_SLOT } else { slot };
            // Nobody is there to hear of an error.
            let _ = note.write_at(&slot.to_le_bytes(), ABORTED_AT);
        });
        let handler = handler.inspect_err(|error| tracing::warn!(%error, "aborts are not told from kills")).ok();
        Ok((Arc::new(Marks { file, free: Mutex::default(), _handler: handler }), found))
    }

    /// As [`Marks::open`], for whoever only looks: what was left behind, and marks of its own that nobody will read.
    pub(super) fn look(directory: &Path) -> io::Result<(Arc<Self>, Vec<(Mark, Death)>)> {
        let found = match File::open(directory.join(FILE)) {
            Ok(file) => left_behind(&file)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            Err(error) => return Err(error),
        };
        let file = OpenOptions::new().write(true).open("/dev/null")?;
        Ok((Arc::new(Marks { file: Arc::new(file), free: Mutex::default(), _handler: None }), found))
    }

    /// What was found is counted: begins a file of this process.
    pub(super) fn clear_found(&self) -> io::Result<()> {
        self.file.set_len(0)?;
        self.file.set_len(SLOT_BYTES as u64 * 64)?;
        self.file.write_all_at(&header(), 0)
    }

    /// A place for one thread or attempt. Without one it goes unmarked.
    pub(super) fn slot(self: &Arc<Self>) -> Option<MarkSlot> {
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        let number = free.given_back.pop().or_else(|| {
            free.used += u32::from(free.used < SLOTS_MAX);
            (free.used < SLOTS_MAX).then_some(free.used)
        })?;
        Some(MarkSlot { number, marks: self.clone() })
    }
}

/// A place for one mark at a time.
pub(super) struct MarkSlot {
    number: u32,
    marks: Arc<Marks>,
}

impl MarkSlot {
    fn write(&self, bytes: &[u8]) {
        // A mark that cannot be written is missed only if the process dies in it.
        let _ = self.marks.file.write_at(bytes, u64::from(self.number) * SLOT_BYTES as u64);
    }
    /// From here on, on this thread.
    pub(super) fn begin(&self, mark: Mark) {
        self.write(&mark.encode());
        CURRENT.with(|current| current.set(self.number));
    }
    pub(super) fn end(&self) {
        CURRENT.with(|current| current.set(0));
        self.write(&[0]);
    }
    /// For something that moves from thread to thread: written once, entered wherever it goes on.
    pub(super) fn write_only(&self, mark: Mark) {
        self.write(&mark.encode());
    }
    pub(super) fn enter(&self) -> impl Drop + use<> {
        struct Entered(u32);
        impl Drop for Entered {
            fn drop(&mut self) {
                CURRENT.with(|current| current.set(self.0));
            }
        }
        Entered(CURRENT.with(|current| current.replace(self.number)))
    }
}

impl Drop for MarkSlot {
    fn drop(&mut self) {
        self.write(&[0]);
        self.marks.free.lock().unwrap_or_else(PoisonError::into_inner).given_back.push(self.number);
    }
}

/// Boot, and how many processes the kernel has killed for want of memory since; then a checksum. The same for the control
/// group, if the kernel counts for it: which one, how many, a checksum.
fn header() -> [u8; SLOT_BYTES] {
    let (mut bytes, kills) = ([0; SLOT_BYTES], MemoryKills::now());
    bytes[..8].copy_from_slice(&boot().to_le_bytes());
    bytes[8..16].copy_from_slice(&kills.machine.to_le_bytes());
    let sum = crc32fast::hash(&bytes[..16]);
    bytes[16..20].copy_from_slice(&sum.to_le_bytes());
    if let Some((group, killed)) = kills.group {
        bytes[20..28].copy_from_slice(&group.to_le_bytes());
        bytes[28..36].copy_from_slice(&killed.to_le_bytes());
        let sum = crc32fast::hash(&bytes[20..36]);
        bytes[36..40].copy_from_slice(&sum.to_le_bytes());
    }
    bytes
}

fn left_behind(file: &File) -> io::Result<Vec<(Mark, Death)>> {
    let mut bytes = Vec::new();
    io::Read::read_to_end(&mut io::Read::take(file, u64::from(SLOTS_MAX) * SLOT_BYTES as u64), &mut bytes)?;
    let number = |at: usize| bytes.get(at..at + 8).and_then(|bytes| bytes.try_into().ok()).map(u64::from_le_bytes);
    let (Some(booted), Some(kills)) = (number(0), number(8)) else { return Ok(Vec::new()) };
    let sum = bytes.get(16..20).and_then(|bytes| bytes.try_into().ok()).map(u32::from_le_bytes);
    if sum != Some(crc32fast::hash(&bytes[..16])) || booted != boot() {
        return Ok(Vec::new());
    }
    let at = ABORTED_AT as usize;
    let aborted = bytes.get(at..at + 4).and_then(|bytes| bytes.try_into().ok()).map_or(0, u32::from_le_bytes);
    let group = number(20).zip(number(28)).filter(|_| {
        let sum = bytes.get(36..40).and_then(|bytes| bytes.try_into().ok()).map(u32::from_le_bytes);
        sum == Some(crc32fast::hash(&bytes[20..36]))
    });
    let out_of_memory = MemoryKills { machine: kills, group }.has_grown_to(MemoryKills::now());
    let marks = bytes.chunks(SLOT_BYTES).enumerate().skip(1);
    Ok(marks
        .filter_map(|(number, bytes)| Some((number, Mark::decode(bytes)?)))
        .map(|(number, mark)| {
            let death = match aborted {
                0 if out_of_memory => Death::OutOfMemory,
                0 => Death::Killed,
                NO_SLOT => Death::AbortedElsewhere,
                slot => Death::Aborted { by_this: slot as usize == number },
            };
            (mark, death)
        })
        .collect())
}

/// Names this boot of the machine; 0 where that cannot be told.
fn boot() -> u64 {
    let id = std::fs::read("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    u64::from(crc32fast::hash(&id)) << 32 | u64::from(crc32fast::hash(&[&id[..], b"bosun"].concat()))
}

/// How many processes the kernel has killed for want of memory.
#[derive(Debug, Clone, Copy)]
struct MemoryKills {
    machine: u64,
    /// Which control group this process is in, and how many of those in it.
    group: Option<(u64, u64)>,
}

impl MemoryKills {
    fn now() -> MemoryKills {
        let group = kills_of_group().and_then(|file| {
            let which = std::fs::metadata(&file).ok()?.ino();
            Some((which, killed_in(&file)?))
        });
        MemoryKills { machine: killed_in(Path::new("/proc/vmstat")).unwrap_or(0), group }
    }

    /// Whether a process that was here was killed since. What the kernel kills elsewhere on the machine is nobody's doing
    /// here; where the group is another one now, or none is counted, the machine's count is all there is.
    fn has_grown_to(self, now: MemoryKills) -> bool {
        match (self.group, now.group) {
            (Some((before, was)), Some((after, is))) if before == after => is > was,
            _ => now.machine > self.machine,
        }
    }
}

/// Of a file with a name and a number on each line.
fn killed_in(file: &Path) -> Option<u64> {
    let counters = std::fs::read_to_string(file).ok()?;
    counters.lines().find_map(|line| line.strip_prefix("oom_kill "))?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(byte: u8) -> TaskToken {
        TaskToken { run_id: RunId([byte; 16]), seq: Seq(7), attempt: Attempt(2) }
    }

    /// A death leaves exactly what was under way; what has ended leaves nothing.
    #[test]
    fn the_next_process_finds_what_was_under_way() {
        let dir = tempfile::tempdir().unwrap();
        let (marks, found) = Marks::open(dir.path()).unwrap();
        assert_eq!(found, []);
        marks.clear_found().unwrap();
        let (turn, ended, attempt) = (marks.slot().unwrap(), marks.slot().unwrap(), marks.slot().unwrap());
        turn.begin(Mark::Turn(RunId([1; 16])));
        ended.begin(Mark::Start(RunId([2; 16])));
        ended.end();
        attempt.write_only(Mark::Attempt(token(3)));
        drop(marks.slot());
        let left = left_behind(&File::open(dir.path().join(FILE)).unwrap()).unwrap();
        let (a, b) = (Mark::Turn(RunId([1; 16])), Mark::Attempt(token(3)));
        assert_eq!(left, [(a, Death::Killed), (b, Death::Killed)]);
        // The handler says which slot it was.
        marks.file.write_all_at(&attempt.number.to_le_bytes(), ABORTED_AT).unwrap();
        let left = left_behind(&File::open(dir.path().join(FILE)).unwrap()).unwrap();
        assert_eq!(left, [(a, Death::Aborted { by_this: false }), (b, Death::Aborted { by_this: true })]);
        drop((turn, ended, attempt, marks));
        assert_eq!(Marks::open(dir.path()).unwrap().1, []);
    }

    /// After a power cut nobody knows what of the file the disk has.
    #[test]
    fn marks_of_another_boot_or_torn_ones_are_not_believed() {
        let dir = tempfile::tempdir().unwrap();
        let (marks, _) = Marks::open(dir.path()).unwrap();
        marks.clear_found().unwrap();
        let slot = marks.slot().unwrap();
        slot.begin(Mark::Turn(RunId([1; 16])));
        let left = || left_behind(&File::open(dir.path().join(FILE)).unwrap()).unwrap();
        assert_eq!(left().len(), 1);
        marks.file.write_all_at(&[9], u64::from(slot.number) * SLOT_BYTES as u64 + 5).unwrap();
        assert_eq!(left(), []);
        slot.begin(Mark::Turn(RunId([1; 16])));
        let mut other = header();
        other[0] ^= 1;
        let sum = crc32fast::hash(&other[..16]);
        other[16..20].copy_from_slice(&sum.to_le_bytes());
        marks.file.write_all_at(&other, 0).unwrap();
        assert_eq!(left(), []);
    }

    /// A machine that is short of memory kills others: a worker that is then killed from outside was not killed for its run.
    #[test]
    fn kills_for_want_of_memory_elsewhere_are_nobodys_doing_here() {
        let kills = |machine, group| MemoryKills { machine, group };
        let grown = |before: MemoryKills, now| before.has_grown_to(now);
        assert!(!grown(kills(3, Some((7, 1))), kills(9, Some((7, 1)))), "others were killed");
        assert!(grown(kills(3, Some((7, 1))), kills(4, Some((7, 2)))));
        assert!(grown(kills(3, Some((7, 1))), kills(4, Some((8, 0)))), "the group was made again");
        assert!(!grown(kills(3, Some((7, 1))), kills(3, Some((8, 0)))));
        assert!(grown(kills(3, None), kills(4, Some((8, 0)))) && !grown(kills(3, None), kills(3, None)));
        let now = MemoryKills::now();
        assert!(!now.has_grown_to(now));
    }
}
