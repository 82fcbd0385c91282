//! The index: which runs there are and where their turns lie. Derived from the log, kept in memory for open runs.
//!
//! Invariant: the index holds exactly what folding the durable groups in order gives; it is changed only after a group
//! is durable, so no reader sees what a power cut could take back. A closed run stays until the next checkpoint has put
//! it on the shelf; memory grows with open runs, not with history. This module reads and writes no disk.

use std::collections::{BTreeMap, BTreeSet};

use super::blob::BlobHash;
use super::chain::{ChainHash, SetHash};
use super::group::{RecordPlace, Trimmed};
use super::journal::MachineSnapshot;
use super::refs::{Refs, TurnRef};
use crate::vocabulary::{
    EventId, EventKind, GroupSeq, Namespace, Outlook, RunId, RunInfo, TaskQueue, Timestamp, Turn, WorkflowId,
    WorkflowType,
};

/// What is known of one run.
#[derive(Debug, Clone)]
pub(crate) struct RunState {
    pub(crate) info: RunInfo,
    pub(crate) next_event: EventId,
    pub(crate) outlook: Outlook,
    /// The group of its last turn.
    pub(crate) through: GroupSeq,
    /// How many turns it has in all, archived ones included.
    pub(crate) turns: u64,
    pub(crate) refs: Refs,
    /// The hash of the entry in [`super::Shelf::Open`], if there is one.
    pub(crate) saved: Option<SetHash>,
}

/// A deleted run of which a checkpoint has still to remove what is on the shelves.
#[derive(Debug, Clone)]
pub(crate) struct Removed {
    /// The group with the `Deleted` record.
    pub(crate) at: GroupSeq,
    /// Whether [`super::Shelf::Closed`] has it.
    pub(crate) was_closed_on_shelf: bool,
}

/// What the shelves are true at. The first three fields move together at the end of a checkpoint; the others with each
/// of its batches.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize, serde::Deserialize)]
pub(crate) struct Meta {
    pub(crate) at: GroupSeq,
    pub(crate) chain: ChainHash,
    /// The bytes of the groups `trimmed.through + 1 ..= at`.
    pub(crate) log_bytes: u64,
    pub(crate) open: u64,
    pub(crate) open_hash: SetHash,
    pub(crate) closed: u64,
    pub(crate) closed_hash: SetHash,
    pub(crate) trimmed: Trimmed,
    /// False while a rebuild is filling the shelves.
    pub(crate) complete: bool,
}

impl Meta {
    pub(crate) fn origin(chain: ChainHash) -> Self {
        let none = SetHash::default();
        Meta {
            at: GroupSeq(0),
            chain,
            log_bytes: 0,
            open: 0,
            open_hash: none,
            closed: 0,
            closed_hash: none,
            trimmed: Trimmed { through: GroupSeq(0), chain, archives: none },
            complete: true,
        }
    }
}

#[derive(Debug, Default)]
struct InternedNames {
    namespaces: BTreeSet<Namespace>,
    types: BTreeSet<WorkflowType>,
    queues: BTreeSet<TaskQueue>,
}

fn shared<T: Ord + Clone>(known: &mut BTreeSet<T>, name: &mut T) {
    match known.get(name) {
        Some(same) => *name = same.clone(),
        None => {
            known.insert(name.clone());
        }
    }
}

#[derive(Debug)]
pub(crate) struct Index {
    /// Boxed: runs come in the order of their ids, which leaves the nodes of the map half empty.
    runs: BTreeMap<RunId, Box<RunState>>,
    by_id: BTreeSet<(Namespace, WorkflowId, Timestamp, RunId)>,
    by_start: BTreeSet<(Timestamp, RunId)>,
    /// Runs in `runs` that differ from the shelf.
    pub(crate) dirty: BTreeSet<RunId>,
    pub(crate) removed: BTreeMap<RunId, Removed>,
    pub(crate) blob_refs: BTreeSet<(BlobHash, RunId)>,
    pub(crate) snapshots: BTreeMap<RunId, MachineSnapshot>,
    pub(crate) open: u64,
    /// Names that many runs share, kept once.
    names: InternedNames,
    pub(crate) trimmed: Trimmed,
    /// What the last checkpoint wrote.
    pub(crate) meta: Meta,
}

impl Index {
    pub(crate) fn new(meta: Meta) -> Self {
        Index {
            runs: BTreeMap::new(),
            by_id: BTreeSet::new(),
            by_start: BTreeSet::new(),
            dirty: BTreeSet::new(),
            removed: BTreeMap::new(),
            blob_refs: BTreeSet::new(),
            snapshots: BTreeMap::new(),
            open: 0,
            names: InternedNames::default(),
            trimmed: meta.trimmed,
            meta,
        }
    }
    pub(crate) fn get(&self, run: RunId) -> Option<&RunState> {
        self.runs.get(&run).map(Box::as_ref)
    }
    pub(crate) fn get_mut(&mut self, run: RunId) -> Option<&mut RunState> {
        self.runs.get_mut(&run).map(Box::as_mut)
    }
    pub(crate) fn runs(&self) -> impl Iterator<Item = (&RunId, &RunState)> {
        self.runs.iter().map(|(run, state)| (run, state.as_ref()))
    }
    /// Takes in a run as the shelf or the archive knows it.
    pub(crate) fn insert(&mut self, run: RunId, mut state: RunState) {
        self.open += u64::from(state.is_live());
        let info = &mut state.info;
        shared(&mut self.names.namespaces, &mut info.namespace);
        shared(&mut self.names.types, &mut info.workflow_type);
        shared(&mut self.names.queues, &mut info.task_queue);
        self.by_id.insert((info.namespace.clone(), info.workflow_id.clone(), info.started_at, run));
        self.by_start.insert((info.started_at, run));
        self.runs.insert(run, Box::new(state));
    }
    pub(crate) fn remove(&mut self, run: RunId) -> Option<RunState> {
        let state = self.runs.remove(&run)?;
        let info = &state.info;
        self.by_id.remove(&(info.namespace.clone(), info.workflow_id.clone(), info.started_at, run));
        self.by_start.remove(&(info.started_at, run));
        self.open -= u64::from(state.is_live());
        self.dirty.remove(&run);
        Some(*state)
    }
    /// The newest run of a workflow id among those in memory.
    pub(crate) fn latest(&self, namespace: &Namespace, id: &WorkflowId) -> Option<(Timestamp, RunId)> {
        let from = (namespace.clone(), id.clone(), Timestamp(i64::MIN), RunId([0; 16]));
        let to = (namespace.clone(), id.clone(), Timestamp::MAX, RunId([0xff; 16]));
        self.by_id.range(from..=to).next_back().map(|(_, _, at, run)| (*at, *run))
    }
    /// Runs in memory that started before `before` (newest first), at most `limit`.
    pub(crate) fn started_before(&self, before: (Timestamp, RunId), limit: usize) -> Vec<(Timestamp, RunId)> {
        self.by_start.range(..before).rev().take(limit).copied().collect()
    }

    /// Folds a durable turn. The caller has checked that it fits; `length` is its stored size.
    pub(crate) fn apply(&mut self, group: GroupSeq, place: RecordPlace, turn: &Turn) -> Result<(), String> {
        if !self.runs.contains_key(&turn.run) {
            self.insert(turn.run, first_state(turn)?);
        }
        let Some(state) = self.runs.get_mut(&turn.run) else {
            return Err("the run vanished".into());
        };
        if turn.first_event != state.next_event {
            return Err(format!("a turn begins at event {}, expected {}", turn.first_event, state.next_event));
        }
        let was_live = state.is_live();
        state.refs.push(TurnRef {
            ordinal: state.turns,
            first_event: turn.first_event.0,
            events: turn.events.len() as u64,
            group,
            offset: place.offset,
        });
        state.fold(group, place.length.into(), turn);
        self.open -= u64::from(was_live && !state.is_live());
        self.dirty.insert(turn.run);
        Ok(())
    }
}

/// The state before the first turn of a run, which must begin with its start event.
pub(crate) fn first_state(turn: &Turn) -> Result<RunState, String> {
    let Some(EventKind::WorkflowExecutionStarted(started)) = turn.events.first() else {
        return Err("the first turn does not begin with WorkflowExecutionStarted".into());
    };
    Ok(RunState {
        info: RunInfo::started(turn.run, turn.at, turn.build, started),
        next_event: EventId(1),
        outlook: Outlook::default(),
        through: GroupSeq(0),
        turns: 0,
        refs: Refs::default(),
        saved: None,
    })
}

impl RunState {
    /// Whether the run can still get turns: it is open, or messages that it sent at its end have not arrived.
    pub(crate) fn is_live(&self) -> bool {
        self.info.status.is_open() || self.outlook.attention
    }
    /// Folds a turn without remembering where it lies.
    pub(crate) fn fold(&mut self, group: GroupSeq, length: u64, turn: &Turn) {
        for event in &turn.events {
            self.info.apply(turn.at, event);
        }
        self.info.history.events += turn.events.len() as u64;
        self.info.history.bytes += length;
        self.next_event = turn.next_event();
        self.outlook = turn.outlook;
        self.through = group;
        self.turns += 1;
    }
}
