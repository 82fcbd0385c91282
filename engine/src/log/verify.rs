//! Verification: reads everything and says what is wrong, where (G6, E38).
//!
//! Invariant: what `verify` finds sound, every reader can read; each finding names its class, the file, and the group
//! and run where known. It changes nothing, runs beside commits, and judges the log up to where it stood at the start.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use super::archive::Segment;
use super::blob::BlobHash;
use super::chain::{ChainHash, SetHash};
use super::group::{Group, Record, Trimmed};
use super::journal::Journal;
use super::shelf::unseal;
use super::stored::{blob_of, read_blob};
use super::{DamagedPart, Log, ScanFrom, Shelf, StorageError};
use crate::vocabulary::{EventId, GroupSeq, Payload, RunId, Turn};

/// What kind of damage a finding is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum FindingClass {
    /// A commit group is missing, unreadable or not the one that was written.
    Group,
    /// The groups do not form one chain.
    Chain,
    /// The turns of a run do not follow each other.
    History,
    /// An archive segment is missing, unreadable or foreign.
    Archive,
    /// A payload blob is missing or has other content.
    Blob,
    /// A payload cannot be decoded: wrong or missing key.
    Payload,
    /// The anchor does not fit the log.
    Anchor,
    /// The index does not say what the log says. It can be rebuilt.
    Index,
    /// A part of a file that nothing needs which counts: what is there twice, or the header of a file.
    File,
}

impl FindingClass {
    /// Whether all that counts is there without it, so that a copy is whole.
    pub(crate) fn is_of_no_copy(self) -> bool {
        matches!(self, FindingClass::Index | FindingClass::File)
    }
}

/// Something that is wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// What kind of damage.
    pub class: FindingClass,
    /// Where to look.
    pub file: PathBuf,
    /// The commit group, if the damage is in one.
    pub group: Option<GroupSeq>,
    /// The run that is hurt, if it is known.
    pub run: Option<RunId>,
    /// The byte in the group, or in the file, where known.
    pub offset: Option<u64>,
    /// What was expected and what was found.
    pub detail: String,
}

/// What was read and what was found.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct VerifyReport {
    /// Commit groups read.
    pub groups: u64,
    /// Turns read, of the log and of the archive.
    pub turns: u64,
    /// Runs whose history was followed.
    pub runs: u64,
    /// Archive segments read.
    pub segments: u64,
    /// Blobs read and hashed.
    pub blobs: u64,
    /// All that is wrong, in the order in which it was found.
    pub findings: Vec<Finding>,
}

impl VerifyReport {
    /// Whether nothing was found.
    pub fn is_sound(&self) -> bool {
        self.findings.is_empty()
    }
}

impl Journal {
    /// Reads the whole store. Maintenance waits meanwhile, commits do not.
    pub fn verify(&self) -> VerifyReport {
        let _maintenance = self.maintenance();
        let (tail, trimmed) = {
            let writer = self.writer();
            (writer.tail(), self.index().trimmed)
        };
        let mut check = Verification {
            journal: self,
            medium: &*self.medium,
            trimmed,
            last: tail.last,
            runs: BTreeMap::new(),
            deleted: BTreeSet::new(),
            blobs: BTreeMap::new(),
            broken: BTreeSet::new(),
            report: VerifyReport::default(),
        };
        check.deletions();
        check.archive();
        check.groups();
        check.anchor();
        check.index();
        check.blobs();
        check.shelves();
        check.files();
        check.report.runs = check.runs.len() as u64;
        check.report
    }
}

struct Verification<'a> {
    journal: &'a Journal,
    medium: &'a dyn Log,
    trimmed: Trimmed,
    last: GroupSeq,
    /// The next event and the number of turns of each run, as the log says.
    runs: BTreeMap<RunId, (EventId, u64)>,
    deleted: BTreeSet<RunId>,
    /// The blobs referred to, each with one of the runs that do.
    blobs: BTreeMap<BlobHash, RunId>,
    /// Runs with a finding already: what follows from it is not reported again.
    broken: BTreeSet<RunId>,
    report: VerifyReport,
}

impl Verification<'_> {
    fn finding(&mut self, class: FindingClass, group: Option<GroupSeq>, run: Option<RunId>, detail: String) {
        self.broken.extend(run);
        let file = self.medium.location();
        self.report.findings.push(Finding { class, file, group, run, offset: None, detail });
    }
    fn error(&mut self, class: FindingClass, why: StorageError) {
        let (file, group, run, offset) = match &why {
            StorageError::Corrupt { file, group, run, detail, .. } => (file.clone(), *group, *run, offset_in(detail)),
            _ => (self.medium.location(), None, None, None),
        };
        self.broken.extend(run);
        self.report.findings.push(Finding { class, file, group, run, offset, detail: why.to_string() });
    }

    /// Which runs were deleted while their turns are still in the log.
    fn deletions(&mut self) {
        self.deleted.extend(self.journal.index().removed.keys());
        match self.medium.shelf_scan(Shelf::Deleted, &[], ScanFrom::First, usize::MAX) {
            Ok(entries) => {
                let runs = entries.into_iter().filter_map(|(key, _)| key.try_into().ok()).map(RunId);
                self.deleted.extend(runs);
            }
            Err(why) => self.error(FindingClass::Index, why),
        }
    }

    fn archive(&mut self) {
        let (mut sum, mut after, mut whole) = (SetHash::default(), None::<Vec<u8>>, true);
        loop {
            let from = after.as_deref().map_or(ScanFrom::First, ScanFrom::After);
            let page = match self.medium.shelf_keys(Shelf::Archive, &[], from, 32) {
                Ok(page) => page,
                Err(why) => return self.error(FindingClass::Archive, why),
            };
            for key in &page {
                match self.segment(key) {
                    Ok(hash) => sum = hash.map_or(sum, |hash| sum.plus(hash)),
                    Err(why) => {
                        whole = false;
                        self.error(FindingClass::Archive, why);
                    }
                }
            }
            match page.into_iter().next_back() {
                Some(key) => after = Some(key),
                None => break,
            }
        }
        // What is damaged has been told; the rest cannot add up.
        if whole && sum != self.trimmed.archives {
            let detail = "the segments do not add up to what the log recorded: some are missing, stale or foreign";
            self.finding(FindingClass::Archive, None, None, detail.into());
        }
    }

    /// Checks a segment and folds it; nothing if it does not count.
    fn segment(&mut self, key: &[u8]) -> Result<Option<SetHash>, StorageError> {
        let file = self.medium.location();
        let run = key.get(..16).and_then(|run| run.try_into().ok()).map(RunId);
        if run.is_some_and(|run| self.deleted.contains(&run)) {
            // On its way out; it counts no more.
            return Ok(None);
        }
        let named = |why: StorageError| run.into_iter().fold(why, StorageError::of_run);
        let Some(value) = self.medium.shelf_get(Shelf::Archive, key).map_err(named)? else { return Ok(None) };
        let segment = Segment::parse(key, unseal(self.medium, Shelf::Archive, key, &value).map_err(named)?, &file)?;
        if segment.through > self.trimmed.through {
            return Ok(None);
        }
        self.report.segments += 1;
        for (_, turn) in segment.turns(&file)? {
            self.turn(None, turn);
        }
        Ok(Some(SetHash::of(key, &value)))
    }

    fn groups(&mut self) {
        let file = self.medium.location();
        let mut chain: Option<ChainHash> = Some(self.trimmed.chain);
        for seq in self.trimmed.through.0 + 1..=self.last.0 {
            let seq = GroupSeq(seq);
            self.report.groups += 1;
            let group = match self.journal.group(seq, &file) {
                Ok(group) => group,
                Err(why) => {
                    self.error(FindingClass::Group, why);
                    chain = None;
                    continue;
                }
            };
            if chain.is_some_and(|chain| chain != group.previous()) {
                let detail = "it does not continue the chain of the group before";
                self.finding(FindingClass::Chain, Some(seq), None, detail.into());
            }
            chain = Some(group.chain());
            self.records(seq, &group);
        }
    }

    fn records(&mut self, seq: GroupSeq, group: &Group) {
        match group.records(&self.medium.location()) {
            Ok(records) => {
                for (_, record) in records {
                    match record {
                        Record::Turn(turn) => self.turn(Some(seq), turn),
                        Record::Deleted(_) | Record::Trimmed(_) => {}
                    }
                }
            }
            Err(why) => self.error(FindingClass::Group, why),
        }
    }

    fn turn(&mut self, group: Option<GroupSeq>, mut turn: Turn) {
        self.report.turns += 1;
        let run = turn.run;
        if self.deleted.contains(&run) {
            return;
        }
        let (next, turns) = self.runs.get(&run).copied().unwrap_or((EventId(1), 0));
        if turn.first_event != next && self.broken.insert(run) {
            let detail = format!("event {} follows event {next}", turn.first_event);
            self.finding(FindingClass::History, group, Some(run), detail);
        }
        self.runs.insert(run, (turn.next_event(), turns + 1));
        turn.payloads_mut(&mut |_, payload| self.blobs.extend(blob_of(payload).map(|hash| (hash, run))));
        match self.journal.options.plain(self.medium, turn) {
            // Missing and damaged blobs are found below, once each.
            Ok(_) | Err(StorageError::Corrupt { what: "payload blob", .. }) => {}
            Err(why) => {
                self.finding(FindingClass::Payload, group, Some(run), why.to_string());
            }
        }
    }

    fn anchor(&mut self) {
        match self.medium.anchor() {
            Ok(Some(anchor)) if anchor.last > self.last && anchor.last > self.journal.writer().last => {
                let detail = format!("it names group {}, the log ends at {}", anchor.last, self.last);
                self.finding(FindingClass::Anchor, Some(anchor.last), None, detail);
            }
            Ok(_) => {}
            Err(why) => self.error(FindingClass::Anchor, why),
        }
    }

    /// Every run of the log is known, and no other; at least as far as the log stood.
    fn index(&mut self) {
        for (run, (next, turns)) in self.runs.clone() {
            if self.broken.contains(&run) {
                continue;
            }
            match self.journal.state(run) {
                Ok(Some(state)) if state.next_event >= next && state.turns >= turns => {}
                Ok(Some(state)) => {
                    let detail = format!("it knows {} turns up to event {}", state.turns, state.next_event);
                    self.finding(
                        FindingClass::Index,
                        None,
                        Some(run),
                        format!("{detail}; the log has {turns} up to {next}"),
                    );
                }
                Ok(None) => self.finding(FindingClass::Index, None, Some(run), "it does not know the run".into()),
                Err(why) => self.error(FindingClass::Index, why),
            }
        }
        let mut known: BTreeSet<RunId> = BTreeSet::new();
        known.extend(self.journal.index().runs().filter(|(_, s)| s.through <= self.last).map(|(run, _)| *run));
        match self.medium.shelf_scan(Shelf::Closed, &[], ScanFrom::First, usize::MAX) {
            Ok(entries) => known.extend(entries.into_iter().filter_map(|(key, _)| key.try_into().ok()).map(RunId)),
            Err(why) => self.error(FindingClass::Index, why),
        }
        for run in known {
            if !self.runs.contains_key(&run) && !self.deleted.contains(&run) && !self.broken.contains(&run) {
                let detail = "the index knows the run, but its history is neither in the log nor in the archive";
                self.finding(FindingClass::History, None, Some(run), detail.into());
            }
        }
    }

    /// What the index keeps beside what it says of runs, each entry by its own CRC.
    fn shelves(&mut self) {
        // A reader that found it damaged has made another one, in memory.
        if let Some(detail) = self.journal.index_damage.as_ref().filter(|_| self.medium.is_read_only()) {
            let detail = format!("{detail}; it is made anew when a worker starts, from the log and the archive");
            self.finding(FindingClass::Index, None, None, detail);
        }
        for shelf in Shelf::ALL.into_iter().filter(|shelf| *shelf != Shelf::Archive) {
            let mut after: Option<Vec<u8>> = None;
            loop {
                let from = after.as_deref().map_or(ScanFrom::First, ScanFrom::After);
                let page = match self.medium.shelf_keys(shelf, &[], from, 256) {
                    Ok(page) => page,
                    Err(why) => {
                        self.error(FindingClass::Index, why);
                        break;
                    }
                };
                for key in &page {
                    let value = self.medium.shelf_get(shelf, key);
                    let whole = value.and_then(|value| {
                        value.map_or(Ok(()), |value| unseal(self.medium, shelf, key, &value).map(drop))
                    });
                    whole.unwrap_or_else(|why| self.error(FindingClass::Index, why));
                }
                match page.into_iter().next_back() {
                    Some(key) => after = Some(key),
                    None => break,
                }
            }
        }
    }

    fn files(&mut self) {
        for DamagedPart { file, offset, detail } in self.medium.check_files() {
            let class = FindingClass::File;
            self.report.findings.push(Finding { class, file, group: None, run: None, offset, detail });
        }
    }

    fn blobs(&mut self) {
        for (hash, run) in self.blobs.clone() {
            self.report.blobs += 1;
            let reference = [hash.0.as_slice(), &[0; 8]].concat();
            let reference = Payload { encoding: crate::vocabulary::ENCODING_BLOB.into(), data: reference.into() };
            if let Err(why) = read_blob(self.medium, &reference) {
                self.error(FindingClass::Blob, why.of_run(run));
            }
        }
    }
}

/// The byte a message of [`Group`] names.
fn offset_in(detail: &str) -> Option<u64> {
    detail.strip_prefix("at byte ")?.split(':').next()?.parse().ok()
}
