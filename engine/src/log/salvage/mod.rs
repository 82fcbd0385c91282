//! Salvage: what is whole in a damaged data directory goes to a new one; the damaged one is only read.
//!
//! 1. `find` looks at every byte of every file for groups, archive segments and index entries that prove themselves by
//!    their CRC, wherever they lie: most groups are in the database twice or more.
//! 2. `chain` picks, from the tail anchor down, the groups that continue each other, and says which are lost.
//!    `proven` puts lost deletions back where the chain proves them; `archive` picks the segments, by the sum that the log recorded.
//! 3. `runs` puts the turns of each run together. One of which a turn is lost, or may be, keeps what comes before it and
//!    is held in the new directory, with the reason; one that was over stays so where the turn that ended it is whole; every
//!    other run is there to its last turn.
//! 4. `write` makes the new directory: an instance of its own, with its own chain.
//!
//! A block that cannot be read is damage like any other.
//!
//! Invariant: no run comes back with less history than it had unless it is held, and the source stays as it is. What
//! cannot be helped is said: a run of which nothing is left but its id stands in the list of the new directory, and nowhere else;
//! those of which not even that is left are counted.

mod archive;
mod chain;
mod find;
mod index;
mod proven;
mod runs;
mod write;

use std::path::{Path, PathBuf};

use super::anchor::AnchorFile;
use super::epoch::{EpochFile, StoreOrigin, StoreStanding};
use super::error::StorageError;
use super::files::DataDir;
use super::{look, swap};
use crate::vocabulary::{GroupSeq, RunId};

/// How many damaged copies an isolation leaves beside each other.
pub const COPIES_MAX: usize = 3;

/// What was saved, and what was not.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SalvageReport {
    /// The id of the new directory.
    pub instance: [u8; 16],
    /// Commit groups that were copied whole.
    pub groups: u64,
    /// Commit groups that cannot be read.
    pub groups_lost: Vec<GroupSeq>,
    /// Runs that are there to their last turn.
    pub runs_whole: u64,
    /// Runs that are held, and why.
    pub held: Vec<(RunId, String)>,
    /// Runs of which nothing is left but their name.
    pub runs_lost: Vec<RunId>,
    /// How many runs the index counted of which not even the name is left: at least so many.
    pub runs_unnamed: u64,
    /// Blobs that were copied.
    pub blobs: u64,
    /// What is damaged in the source, by file.
    pub damage: Vec<String>,
}

/// See the module. The new directory gets this id, or a random one.
pub fn salvage(source: &Path, target: &Path, instance: Option<[u8; 16]>) -> Result<SalvageReport, StorageError> {
    swap::is_free(target)?;
    swap::is_outside(source, target)?;
    let from = DataDir::new(source);
    let _lock = from.hold_settled()?;
    let found = analyse(&from)?;
    // Cut short it is no store: one that lacks its list of held runs would let them go on without what they have lost.
    swap::arrive(&DataDir::new(target), |incoming| save(&from, incoming, instance, &found))
}

/// What a salvage would save and hold, without one.
pub fn assess(source: &Path) -> Result<SalvageReport, StorageError> {
    let from = DataDir::new(source);
    let _lock = from.hold_settled()?;
    let found = analyse(&from)?;
    Ok(found.tell([0; 16]))
}

/// A salvage in place: what is whole takes the place of what is damaged, which goes to a directory beside it, as it is.
/// Nothing of the damaged files is touched before the whole copy stands. Answers where they are.
///
/// Where an epoch is kept, a directory that is older than it is refused. Of damage that comes again and again a few copies
/// are kept, and no more: each takes the room of a whole store, and what damages the directory goes on.
pub fn isolate(dir: &Path, epoch: Option<&EpochFile>) -> Result<(SalvageReport, PathBuf), StorageError> {
    let from = DataDir::new(dir);
    let _lock = from.lock()?;
    if swap::is_under_way(&from) {
        swap::finish(&from)?;
    }
    let copies = swap::aside(&from, "damaged").len();
    if copies >= COPIES_MAX {
        return Err(StorageError::IsolatedTooOften { dir: dir.to_owned(), copies });
    }
    swap::is_movable(&from)?;
    let _database = swap::hold_database(&from)?;
    swap::clear(&from)?;
    let mut found = analyse(&from)?;
    if found.damage.is_empty() && found.chosen.lost.is_empty() {
        // Whoever isolates a directory was refused it: an entry of what is no longer needed, say.
        let db = from.sled().join("db");
        found
            .damage
            .push(format!("{}: entries are missing or old; all that counts was found whole elsewhere", db.display()));
    }
    if let Some(epoch) = epoch {
        epoch.check_outside(dir)?;
        let group = |seq: GroupSeq| Ok(found.chosen.groups.get(&seq.0).cloned());
        let StoreOrigin { instance, last } = found.origin;
        epoch.check(&StoreStanding { root: dir, instance, origin: from.origin(), last, group: &group })?;
    }
    let report = save(&from, &swap::incoming(&from), None, &found).inspect_err(|_| {
        // Half a copy is of no use, and takes room.
        let _ = swap::clear(&from);
    })?;
    swap::swap(&from, "damaged").map(|aside| (report, aside))
}

/// The damaged copies that isolations have left in a directory: each takes the room of a store, until the owner moves it away.
pub fn damaged_copies(dir: &Path) -> Vec<PathBuf> {
    let mut copies = swap::aside(&DataDir::new(dir), "damaged");
    copies.sort();
    copies
}

struct Analysed {
    chosen: chain::ChosenGroups,
    saved: runs::SavedRuns,
    damage: Vec<String>,
    origin: StoreOrigin,
}

// long: one look after the other, each at what the one before has left
fn analyse(from: &DataDir) -> Result<Analysed, StorageError> {
    let mut damage = Vec::new();
    let known = from.instance();
    let anchor = match &known {
        Ok(instance) => AnchorFile::read(&from.anchor(), *instance),
        Err(_) => AnchorFile::read_any(&from.anchor()).map(|(_, anchor)| anchor),
    };
    let owner = match &known {
        Ok(instance) => *instance,
        Err(why) => {
            why.clone().or_damage(&mut damage)?;
            AnchorFile::read_any(&from.anchor())?.0
        }
    };
    let is_known = known.is_ok() && anchor.is_ok();
    let anchor = match anchor {
        Ok(anchor) => Some(anchor),
        Err(why) => why.or_damage(&mut damage).map(|()| None)?,
    };
    let mut found = find::find(from, owner, anchor.map_or(GroupSeq(0), |anchor| anchor.last), &mut damage)?;
    // Where two files say whose directory it is.
    let foreign = if is_known { found.leave_out_foreign() } else { 0 };
    if foreign > 0 {
        damage.push(format!("{}: {foreign} groups of another directory are left out", from.sled().display()));
    }
    if let Err(why) = look::check_conf(&from.sled().join("conf")) {
        damage.push(why.to_string());
    }
    let mut chosen = chain::choose(&found, anchor);
    let (lost, broken_ahead) = (chosen.lost.clone(), &found.broken_ahead);
    proven::find_deletions(&found, &mut chosen);
    // Of former laps there are more, which count for nothing.
    for (path, at) in lost.iter().filter_map(|seq| broken_ahead.get(&seq.0)) {
        damage.push(format!("{}: at byte {at}: the record there is not whole", path.display()));
    }
    let mut saved = runs::put_together(&found, &chosen, from);
    if let Some(why) = saved.not_permitted.take() {
        return Err(why);
    }
    if !saved.archive_adds_up && chosen.archives.is_some() {
        let db = from.sled().join("db");
        damage.push(format!("{}: the archived turns do not add up to what the log recorded", db.display()));
    }
    damage.append(&mut saved.blob_damage);
    // What was found whole elsewhere is damage all the same.
    if damage.is_empty()
        && let Some(why) = why_refused(from)
    {
        damage.push(why.to_string());
    }
    // Nothing that is read alone is damaged, and still something is missing: an index names it, or the log did.
    let hit = saved.hit_by_gaps;
    if damage.len() == saved.lost_blobs.len() && chosen.lost.is_empty() && hit > 0 {
        let db = from.sled().join("db");
        damage.push(format!("{}: groups are missing that hold turns of {hit} runs", db.display()));
    }
    match held_before(from) {
        Ok(held) => saved.hold_before(&held),
        // Any of them may have been held, and would go on without what it has lost.
        Err(why) => {
            why.or_damage(&mut damage)?;
            saved.hold_open("the list of held runs is damaged, and this one may have been held");
        }
    }
    let last = chosen.last.max(anchor.map_or(GroupSeq(0), |anchor| anchor.last));
    Ok(Analysed { chosen, saved, damage, origin: StoreOrigin { instance: owner, last } })
}

/// How often something is read of which a read fails: what is not read counts as lost for ever.
const READS: u32 = 3;

/// Reads, and again where that fails.
fn tried_again<T, E>(read: impl Fn() -> Result<T, E>) -> Result<T, E> {
    (1..READS).fold(read(), |found, _| found.or_else(|_| read()))
}

/// The runs that an earlier salvage held. A list that `bosun.format` names is there.
fn held_before(dir: &DataDir) -> Result<Vec<(RunId, String)>, StorageError> {
    let held = tried_again(|| dir.read_held())?;
    if held.is_empty() && tried_again(|| dir.names_held())? {
        return Err(StorageError::corrupt("list of held runs", dir.held_list(), "it is missing"));
    }
    Ok(held)
}

/// Why nobody opens the directory.
fn why_refused(dir: &DataDir) -> Option<StorageError> {
    let format = dir.identify().transpose()?;
    format.and_then(|format| look::look(dir, format)).err()
}

fn save(
    from: &DataDir,
    target: &Path,
    instance: Option<[u8; 16]>,
    found: &Analysed,
) -> Result<SalvageReport, StorageError> {
    let instance = instance.unwrap_or_else(|| *uuid::Uuid::now_v7().as_bytes());
    let mut report = found.tell(instance);
    write::write(from, target, found, &mut report)?;
    Ok(report)
}

impl Analysed {
    fn tell(&self, instance: [u8; 16]) -> SalvageReport {
        let saved = &self.saved;
        let held = saved.runs.iter().filter_map(|(run, state)| Some((*run, state.held.clone()?)));
        SalvageReport {
            instance,
            groups: self.chosen.groups.len() as u64,
            groups_lost: self.chosen.lost.clone(),
            runs_whole: saved.runs.values().filter(|run| run.held.is_none()).count() as u64,
            held: held.collect(),
            runs_lost: saved.nothing_left.iter().copied().collect(),
            runs_unnamed: saved.unnamed,
            blobs: 0,
            damage: self.damage.clone(),
        }
    }
}
