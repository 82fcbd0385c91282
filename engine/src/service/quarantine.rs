//! Quarantine: which runs have ended worker processes, how often, and which are therefore held (G23).
//!
//! Invariant: a run is held after the second death that is its doing, or the third that may be; no code of a held run
//! runs until somebody releases it or another build comes. The table is a small file, written durably when it changes,
//! which is only after deaths. It holds nobody for a process that was merely killed between two turns.
//!
//! What is whose doing: an abort names its thread, so other runs are not counted. A kill names nobody: it counts against
//! a turn that was under way, not against attempts (those may run for hours), until the run gets on.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::marks::{Death, Mark, Marks};
use crate::vocabulary::*;

const FILE: &str = "quarantine.json";
/// Held after so many deaths that are its doing.
const CERTAIN_MAX: u32 = 2;
/// Held after so many deaths in all.
const DEATHS_MAX: u32 = 3;
/// How a death is told of that shows nothing but the signal.
const KILLED: &str = "a kill";
/// Deaths that are further apart are not one story.
const STORY: Duration = Duration::from_secs(3_600);

/// Who ended a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Suspect {
    Turn(RunId),
    /// What is started, for a run that is not in the log.
    Start(RunId),
    Activity(RunId, Seq),
}

impl Suspect {
    fn of(mark: Mark) -> Suspect {
        match mark {
            Mark::Turn(run) => Suspect::Turn(run),
            Mark::Start(what) => Suspect::Start(what),
            Mark::Attempt(token) => Suspect::Activity(token.run_id, token.seq),
        }
    }
    fn run(self) -> Option<RunId> {
        match self {
            Suspect::Turn(run) | Suspect::Activity(run, _) => Some(run),
            Suspect::Start(_) => None,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct QuarantineEntry {
    who: Suspect,
    /// Deaths that are its doing.
    certain: u32,
    /// Deaths that may be.
    unknown: u32,
    last_at: Timestamp,
    last: String,
    held: bool,
}

#[derive(Debug, Default, Serialize, Deserialize)]
struct QuarantineTable {
    version: u32,
    /// What was held under one build is tried once more under another.
    build: u64,
    entries: Vec<QuarantineEntry>,
}

/// See the module.
pub(super) struct Quarantine {
    path: PathBuf,
    build: BuildId,
    look: bool,
    pub(super) marks: Arc<Marks>,
    entries: Mutex<BTreeMap<Suspect, QuarantineEntry>>,
    any: AtomicBool,
}

impl Quarantine {
    /// Reads the table and counts the deaths that the marks tell of. `is_open` says whether a run may still run. Whoever
    /// only looks counts for itself, and writes nothing.
    pub(super) fn open(
        directory: &Path,
        build: BuildId,
        now: Timestamp,
        look: bool,
        is_open: impl Fn(RunId) -> bool,
    ) -> io::Result<Self> {
        let path = directory.join(FILE);
        let (marks, found) = if look { Marks::look(directory)? } else { Marks::open(directory)? };
        let table = read(&path)?;
        let mut changed = table.build != build.0 && !table.entries.is_empty();
        let mut entries: BTreeMap<Suspect, QuarantineEntry> =
            table.entries.into_iter().map(|entry| (entry.who, entry)).collect();
        if changed {
            tracing::info!(runs = entries.len(), "another build: what was held for ending workers is tried once more");
            entries.values_mut().for_each(forgive);
        }
        for (mark, death) in found {
            changed |= count(&mut entries, mark, death, now);
        }
        let before = entries.len();
        entries.retain(|who, _| who.run().is_none_or(&is_open));
        changed |= entries.len() != before;
        let any = AtomicBool::new(!entries.is_empty());
        let quarantine = Quarantine { path, build, look, marks, entries: Mutex::new(entries), any };
        if look {
            return Ok(quarantine);
        }
        // Until the table tells of them, the marks do.
        if !changed || unless_full(quarantine.write(&quarantine.lock()))? {
            unless_full(quarantine.marks.clear_found())?;
        }
        Ok(quarantine)
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Suspect, QuarantineEntry>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The runs whose code must not run, and why. A `visit` of a command leaves those alone that may have ended a process;
    /// one kill -9 in the middle of a turn is no more than the owner's, and no reason to refuse him.
    pub(super) fn held(&self, visit: bool) -> Vec<(RunId, String)> {
        let held = |entry: &QuarantineEntry| {
            let run = entry.who.run()?;
            let why = match (entry.held, visit) {
                (true, _) => why(entry),
                (false, true) if entry.certain == 0 && entry.unknown == 1 && entry.last == KILLED => return None,
                (false, true) => format!("{}; it is left to a worker: `bosun worker run`", told(entry)),
                (false, false) => return None,
            };
            Some((run, why))
        };
        self.lock().values().filter_map(held).collect()
    }

    /// The runs that are held for what the worker did, when the last death was found, and why.
    pub(super) fn holds(&self) -> Vec<(RunId, Timestamp, String)> {
        let holds = |entry: &QuarantineEntry| {
            let run = entry.who.run().filter(|_| entry.held)?;
            Some((run, entry.last_at, why(entry)))
        };
        self.lock().values().filter_map(holds).collect()
    }

    /// When the last death was found for which nothing like this may be started, and why, if so.
    pub(super) fn start_refused(&self, what: RunId) -> Option<(Timestamp, String)> {
        if !self.any.load(Ordering::Acquire) {
            return None;
        }
        self.lock().get(&Suspect::Start(what)).filter(|entry| entry.held).map(|entry| (entry.last_at, why(entry)))
    }

    /// A run began held because starts like it end workers: it stays so in the next process.
    pub(super) fn hold(&self, run: RunId, because_of: RunId) {
        let mut entries = self.lock();
        if let Some(entry) = entries.get(&Suspect::Start(because_of)).cloned() {
            entries.insert(Suspect::Turn(run), QuarantineEntry { who: Suspect::Turn(run), ..entry });
            self.keep(&entries);
        }
    }

    /// A turn has ended. If the run got on, the kills that happened to meet it are forgotten.
    pub(super) fn ended(&self, who: Suspect, got_on: bool) {
        if !self.any.load(Ordering::Acquire) {
            return;
        }
        let mut entries = self.lock();
        let Some(entry) = entries.get_mut(&who).filter(|entry| !entry.held && got_on) else { return };
        match who {
            Suspect::Turn(_) if entry.certain > 0 => {
                if entry.unknown == 0 {
                    return;
                }
                entry.unknown = 0;
            }
            Suspect::Turn(_) | Suspect::Start(_) | Suspect::Activity(..) => drop(entries.remove(&who)),
        }
        self.keep(&entries);
    }

    /// The owner wants it tried again: one more death holds it again.
    pub(super) fn release(&self, run: RunId) {
        let mut entries = self.lock();
        let mut changed = false;
        for entry in entries.values_mut().filter(|entry| entry.who.run() == Some(run)) {
            forgive(entry);
            changed = true;
        }
        if changed {
            self.keep(&entries);
        }
    }

    fn keep(&self, entries: &BTreeMap<Suspect, QuarantineEntry>) {
        self.any.store(!entries.is_empty(), Ordering::Release);
        if let Err(error) = self.write(entries) {
            tracing::warn!(%error, "the table of runs that ended workers cannot be written");
        }
    }

    fn write(&self, entries: &BTreeMap<Suspect, QuarantineEntry>) -> io::Result<()> {
        if self.look {
            return Ok(());
        }
        let table = QuarantineTable { version: 1, build: self.build.0, entries: entries.values().cloned().collect() };
        let fresh = self.path.with_extension("json.new");
        let mut file = crate::log::private_file(&fresh)?;
        file.write_all(&serde_json::to_vec_pretty(&table)?)?;
        file.sync_all()?;
        fs::rename(&fresh, &self.path)?;
        self.path.parent().map_or(Ok(()), |directory| File::open(directory)?.sync_all())
    }
}

/// A full disk is no reason not to start: a death that is counted again is the smaller harm. False: it is full.
fn unless_full(written: io::Result<()>) -> io::Result<bool> {
    match written {
        Err(why) if matches!(why.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded) => {
            tracing::warn!(%why, "the disk is full: what the worker before was doing cannot be noted");
            Ok(false)
        }
        done => done.map(|()| true),
    }
}

/// A table that cannot be read costs deaths that are counted again, and nothing else.
fn read(path: &Path) -> io::Result<QuarantineTable> {
    match fs::read(path) {
        Ok(bytes) => Ok(serde_json::from_slice(&bytes).unwrap_or_else(|error| {
            tracing::warn!(%error, file = %path.display(), "the table of held runs cannot be read; it begins anew");
            QuarantineTable::default()
        })),
        Err(why) if why.kind() == io::ErrorKind::NotFound => Ok(QuarantineTable::default()),
        Err(why) => Err(why),
    }
}

/// One death less than it takes.
fn forgive(entry: &mut QuarantineEntry) {
    (entry.certain, entry.unknown, entry.held) = (CERTAIN_MAX - 1, 0, false);
}

/// Counts one death against whoever was at work. Says whether it did.
fn count(entries: &mut BTreeMap<Suspect, QuarantineEntry>, mark: Mark, death: Death, now: Timestamp) -> bool {
    let is_attempt = matches!(mark, Mark::Attempt(_));
    let certain = match death {
        Death::Aborted { by_this } if !by_this => return false,
        Death::Aborted { .. } => true,
        Death::OutOfMemory => !is_attempt,
        Death::AbortedElsewhere => false,
        Death::Killed if is_attempt => return false,
        Death::Killed => false,
    };
    let who = Suspect::of(mark);
    let fresh = QuarantineEntry { who, certain: 0, unknown: 0, last_at: now, last: String::new(), held: false };
    let entry = entries.entry(who).or_insert(fresh);
    if !entry.held && now.since(entry.last_at) > STORY {
        (entry.certain, entry.unknown) = (0, 0);
    }
    if certain {
        entry.certain += 1;
    } else {
        entry.unknown += 1;
    }
    entry.last_at = now;
    entry.last = match death {
        Death::Aborted { .. } => "a stack overflow, a failed allocation or an abort",
        Death::AbortedElsewhere => "an abort on another thread",
        Death::OutOfMemory => "a kill for want of memory",
        Death::Killed => KILLED,
    }
    .to_owned();
    entry.held |= entry.certain >= CERTAIN_MAX || entry.certain + entry.unknown >= DEATHS_MAX;
    let (suspect, held) = (format!("{who:?}"), entry.held);
    tracing::error!(%suspect, held, why = %told(entry), "the worker before died while this was under way");
    true
}

fn told(entry: &QuarantineEntry) -> String {
    let deaths = entry.certain + entry.unknown;
    let times = if deaths == 1 { "once".to_owned() } else { format!("{deaths} times") };
    let what = match entry.who {
        Suspect::Turn(_) => "its workflow code".to_owned(),
        Suspect::Start(_) => "the first turn of a run like this".to_owned(),
        Suspect::Activity(_, seq) => format!("its activity {seq}"),
    };
    format!(
        "{what} was running when the worker process died, {times} (last by {}, found at {})",
        entry.last, entry.last_at
    )
}

fn why(entry: &QuarantineEntry) -> String {
    format!("quarantined: {}; `bosun unpause` lets it try once more, `bosun terminate` ends it", told(entry))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::activity::TaskToken;

    const RUN: RunId = RunId([7; 16]);
    const ATTEMPT: Mark = Mark::Attempt(TaskToken { run_id: RUN, seq: Seq(3), attempt: Attempt(1) });
    const MINE: Death = Death::Aborted { by_this: true };

    fn deaths(mark: Mark, deaths: &[Death]) -> Vec<bool> {
        let mut entries = BTreeMap::new();
        let held = |(i, death): (usize, &Death)| {
            count(&mut entries, mark, *death, Timestamp::from_millis(i as i64));
            entries.values().any(|entry: &QuarantineEntry| entry.held)
        };
        deaths.iter().enumerate().map(held).collect()
    }

    #[test]
    fn the_second_death_that_is_its_doing_holds_a_run_and_the_third_that_may_be() {
        let turn = Mark::Turn(RUN);
        assert_eq!(deaths(turn, &[MINE, MINE]), [false, true]);
        assert_eq!(deaths(turn, &[Death::OutOfMemory, Death::OutOfMemory]), [false, true]);
        assert_eq!(deaths(turn, &[Death::Killed, Death::Killed, Death::Killed]), [false, false, true]);
        assert_eq!(deaths(turn, &[Death::Aborted { by_this: false }; 5]), [false; 5], "another run's doing");
        assert_eq!(deaths(ATTEMPT, &[MINE, MINE]), [false, true]);
        assert_eq!(deaths(ATTEMPT, &[Death::Killed; 9]), [false; 9], "attempts may run for hours");
        assert_eq!(deaths(ATTEMPT, &[Death::AbortedElsewhere; 3]), [false, false, true]);
    }

    #[test]
    fn the_table_outlives_the_process_and_a_release_gives_one_more_try() {
        let dir = tempfile::tempdir().unwrap();
        let open = |build| Quarantine::open(dir.path(), BuildId(build), Timestamp::ZERO, false, |_| true).unwrap();
        let die = |build, death: u32| {
            let quarantine = open(build);
            let slot = quarantine.marks.slot().unwrap();
            slot.begin(Mark::Turn(RUN));
            slot.end();
            slot.write_only(Mark::Turn(RUN));
            let note = File::options().write(true).open(dir.path().join("marks")).unwrap();
            std::os::unix::fs::FileExt::write_all_at(&note, &death.to_le_bytes(), 48).unwrap();
            std::mem::forget(slot);
        };
        die(1, 1);
        assert_eq!(open(1).held(false), []);
        assert_eq!(open(1).held(true).len(), 1, "a visit leaves it alone");
        die(1, 1);
        let held = open(1).held(false);
        assert!(held[0].1.contains("2 times") && held[0].1.contains("unpause"), "{held:?}");
        open(1).release(RUN);
        assert_eq!(open(1).held(false), []);
        die(1, 1);
        assert_eq!(open(1).held(false).len(), 1, "one more death is enough");
        assert_eq!(open(2).held(false), [], "another build tries it once more");
        let gone = Quarantine::open(dir.path(), BuildId(2), Timestamp::ZERO, false, |_| false).unwrap();
        assert_eq!((gone.held(true), gone.any.load(Ordering::Acquire)), (vec![], false));
    }

    /// A kill that meets a turn by chance is forgotten when the run gets on; an abort is not.
    #[test]
    fn a_run_that_gets_on_is_not_held_for_kills() {
        let dir = tempfile::tempdir().unwrap();
        let quarantine = Quarantine::open(dir.path(), BuildId(1), Timestamp::ZERO, false, |_| true).unwrap();
        let die = |death| {
            let mut entries = quarantine.lock();
            count(&mut entries, Mark::Turn(RUN), death, Timestamp::ZERO);
            quarantine.keep(&entries);
        };
        for _ in 0..5 {
            die(Death::Killed);
            assert_eq!(quarantine.held(true), [], "one kill is the owner's: a visit works");
            die(Death::Killed);
            assert_eq!(quarantine.held(true).len(), 1);
            quarantine.ended(Suspect::Turn(RUN), true);
        }
        assert_eq!(quarantine.held(false), []);
        die(MINE);
        quarantine.ended(Suspect::Turn(RUN), true);
        die(MINE);
        assert_eq!(quarantine.held(false).len(), 1);
    }
}
