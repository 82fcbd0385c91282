//! The ledger of a run: what its code asked for in this activation, and the counters that carry over to the next.
//!
//! Invariant: command numbers, random values and the answers of `patched` depend on the run id, the order of the calls
//! and history alone. After a closing command nothing is entered any more. The ledger runs no user code.

use std::collections::{BTreeMap, BTreeSet};
use std::panic::Location;
use std::sync::OnceLock;

use serde::{Deserialize, Serialize};

use super::panic::{leave, leave_if_abandoned};
use crate::vocabulary::*;

/// Where in user code something was asked for.
pub(crate) type CodePlace = &'static Location<'static>;

/// What one activation may ask for. The largest fan-outs that make sense are far below.
const COMMANDS_MAX: usize = 50_000;
/// The payloads of these commands together.
const COMMAND_BYTES_MAX: usize = 64 * 1024 * 1024;

static REQUEST_HOOK: OnceLock<fn()> = OnceLock::new();

/// Calls this from now on, on the thread of the workflow code, each time that code asks for something: for test kits that
/// want to know which functions led there. The first hook of a process stays.
pub fn on_every_request(hook: fn()) {
    REQUEST_HOOK.get_or_init(|| hook);
}

/// What must be the same after a restore as after a full replay; part of every snapshot.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct LedgerCounters {
    seq: u64,
    random: u64,
    /// The first answer for a change holds for the whole run.
    patches: BTreeMap<PatchId, bool>,
    cancel_reason: Option<String>,
    closed: bool,
    /// How many activities the code has asked for, if they are counted by themselves; see [`IdNumbering`].
    activities: Option<u64>,
}

impl LedgerCounters {
    fn count_activity(&mut self) -> Option<u64> {
        let count = self.activities.as_mut()?;
        *count += 1;
        Some(*count)
    }
}

#[derive(Debug)]
pub(crate) struct CommandLedger {
    run_id: RunId,
    at: Timestamp,
    history: HistorySize,
    payload_max: usize,
    markers: Markers,
    counters: LedgerCounters,
    commands: Vec<Command>,
    /// The last number that was given before this activation.
    began: Seq,
    /// What was asked for in this activation and taken back in it.
    withdrawn: BTreeSet<Seq>,
    /// `None` for commands that the driver adds by itself.
    places: Vec<Option<CodePlace>>,
    /// The first thing the code asked for that cannot be; it fails the run when the code returns.
    fault: Option<Failure>,
    bytes: usize,
    /// What the code asked for beyond what a turn may hold.
    overrun: Option<String>,
    /// The first thing in this activation that only other code can put right.
    defect: Option<WorkflowDefect>,
}

/// What a side effect has to do.
pub(crate) enum SideEffect {
    /// Run it and enter its value.
    Run(Seq),
    /// History holds its value.
    Recorded(Payload),
    /// The activation is in history and holds no such side effect: the code has diverged and cannot go on.
    Diverged,
}

impl CommandLedger {
    pub(crate) fn new(run_id: RunId, numbering: Option<IdNumbering>) -> Self {
        let activities = numbering.map(|IdNumbering::ByKind| 0);
        Self::restored(run_id, LedgerCounters { activities, ..LedgerCounters::default() })
    }
    pub(crate) fn restored(run_id: RunId, counters: LedgerCounters) -> Self {
        CommandLedger {
            run_id,
            at: Timestamp::ZERO,
            history: HistorySize::default(),
            payload_max: usize::MAX,
            markers: Markers::Fresh,
            began: Seq(counters.seq),
            withdrawn: BTreeSet::new(),
            counters,
            commands: Vec::new(),
            places: Vec::new(),
            fault: None,
            bytes: 0,
            overrun: None,
            defect: None,
        }
    }

    /// Opens the page of one activation and hands its job back.
    pub(crate) fn begin(&mut self, activation: Activation) -> Job {
        let Activation { at, run_id, history, job, markers } = activation;
        self.run_id = run_id;
        self.at = at;
        self.history = history;
        self.markers = markers;
        self.commands.clear();
        self.places.clear();
        self.withdrawn.clear();
        self.began = Seq(self.counters.seq);
        self.bytes = 0;
        self.defect = None;
        if let Job::CancelWorkflow { reason } = &job {
            self.counters.cancel_reason.get_or_insert_with(|| reason.clone());
        }
        job
    }
    /// A forked run begins to be itself.
    pub(crate) fn forked(&mut self, run_id: RunId) {
        self.run_id = run_id;
    }
    /// Closes the page.
    pub(crate) fn finish(&mut self) -> Vec<Command> {
        self.markers = Markers::Fresh;
        let commands = std::mem::take(&mut self.commands);
        let withdrawn = std::mem::take(&mut self.withdrawn);
        if withdrawn.is_empty() {
            return commands;
        }
        let is_kept = |command: &Command| command.begins().is_none_or(|seq| !withdrawn.contains(&seq));
        let places = std::mem::take(&mut self.places);
        let kept = commands.into_iter().zip(places).filter(|(command, _)| is_kept(command));
        let (commands, places) = kept.unzip();
        self.places = places;
        commands
    }

    pub(crate) fn run_id(&self) -> RunId {
        self.run_id
    }
    pub(crate) fn now(&self) -> Timestamp {
        self.at
    }
    /// Whether this activation is in history already; false between activations.
    pub(crate) fn is_replaying(&self) -> bool {
        self.markers.is_replay()
    }
    pub(crate) fn history(&self) -> HistorySize {
        self.history
    }
    pub(crate) fn payload_max(&self) -> usize {
        self.payload_max
    }
    pub(crate) fn takes_payloads_of(&mut self, bytes_max: usize) {
        self.payload_max = bytes_max;
    }
    pub(crate) fn counters(&self) -> &LedgerCounters {
        &self.counters
    }
    pub(crate) fn is_closed(&self) -> bool {
        self.counters.closed
    }
    pub(crate) fn cancel_reason(&self) -> Option<&str> {
        self.counters.cancel_reason.as_deref()
    }
    pub(crate) fn location(&self, index: usize) -> Option<CodeLocation> {
        self.places.get(index).copied().flatten().map(CodeLocation::from)
    }

    /// Enters a command. What is asked after the run has closed is not entered.
    pub(crate) fn ask(&mut self, place: impl Into<Option<CodePlace>>, command: Command) {
        leave_if_abandoned();
        if self.counters.closed || self.overrun.is_some() {
            return;
        }
        self.bytes += command.payload_bytes();
        if self.commands.len() >= COMMANDS_MAX {
            return self.overrun(format!("more than {COMMANDS_MAX} commands"));
        }
        if self.bytes > COMMAND_BYTES_MAX {
            return self.overrun(format!("commands with more than {} MiB of payloads", COMMAND_BYTES_MAX >> 20));
        }
        self.counters.closed = command.closes();
        self.commands.push(command);
        self.places.push(place.into());
        if let Some(hook) = REQUEST_HOOK.get() {
            hook();
        }
    }
    /// The code asks for more than a turn may hold, and goes no further.
    pub(crate) fn overrun(&mut self, what: String) {
        self.overrun.get_or_insert(what);
        self.commands = Vec::new();
        leave();
    }
    pub(crate) fn overran(&self) -> Option<&str> {
        self.overrun.as_deref()
    }
    /// Only other code can put this right. The first one counts.
    pub(crate) fn note_defect(&mut self, defect: WorkflowDefect) {
        self.defect.get_or_insert(defect);
    }
    /// As [`Self::note_defect`], if this is what the code gives up with when it could not read or write a payload itself.
    pub(crate) fn note_failure(&mut self, failure: &Failure) {
        if failure.is_of_a_payload() && PayloadError::is_of_writing(&failure.message) {
            self.note_defect(WorkflowDefect::Unencodable { why: failure.message.clone() });
        } else if failure.is_of_a_payload() {
            let what = "a payload that the code handles".to_owned();
            self.note_defect(WorkflowDefect::Undecodable { what, why: failure.message.clone() });
        }
    }
    pub(crate) fn defect(&self) -> Option<&WorkflowDefect> {
        self.defect.as_ref()
    }
    pub(crate) fn next_seq(&mut self) -> Seq {
        leave_if_abandoned();
        self.counters.seq += 1;
        Seq(self.counters.seq)
    }
    /// The id of the activity that the code asks for under this number.
    pub(crate) fn activity_id(&mut self, seq: Seq) -> ActivityId {
        ActivityId::of(self.counters.count_activity().unwrap_or(seq.0).to_string())
    }
    /// Takes back an activity or a child that was asked for under this number, if that was in this activation and the run
    /// works so: it is as if the code had never asked. It counts among what a turn may hold all the same.
    pub(crate) fn withdraw(&mut self, seq: Seq) -> bool {
        let may = self.counters.activities.is_some() && seq > self.began;
        may && self.withdrawn.insert(seq)
    }
    /// Remembers that the code asked for something that cannot be. Only the first one counts.
    pub(crate) fn fault(&mut self, failure: Failure) {
        self.fault.get_or_insert(failure);
    }
    pub(crate) fn take_fault(&mut self) -> Option<Failure> {
        self.fault.take()
    }

    /// 32 bytes that look random and are the same on every replay.
    pub(crate) fn random(&mut self) -> [u8; 32] {
        leave_if_abandoned();
        self.counters.random += 1;
        let mut hasher = blake3::Hasher::new();
        hasher.update(b"bosun random").update(&self.run_id.0).update(&self.counters.random.to_be_bytes());
        *hasher.finalize().as_bytes()
    }
    pub(crate) fn random_u64(&mut self) -> u64 {
        let mut bytes = [0; 8];
        bytes.copy_from_slice(&self.random()[..8]);
        u64::from_be_bytes(bytes)
    }
    pub(crate) fn uuid(&mut self) -> uuid::Uuid {
        let mut bytes = [0; 16];
        bytes.copy_from_slice(&self.random()[..16]);
        uuid::Builder::from_random_bytes(bytes).into_uuid()
    }

    /// Whether the new branch of a change is taken: always when fresh, in replay only if history says so.
    pub(crate) fn patched(&mut self, place: CodePlace, id: PatchId, deprecated: bool) -> bool {
        if let Some(answer) = self.counters.patches.get(&id) {
            return *answer;
        }
        let answer = match &self.markers {
            Markers::Fresh | Markers::Again { .. } | Markers::InOrder { .. } => true,
            Markers::Recorded { patches, .. } => patches.contains(&id),
        };
        self.counters.patches.insert(id.clone(), answer);
        if answer {
            self.ask(place, Command::RecordMarker(Marker::Patch { id, deprecated }));
        }
        answer
    }
    /// The answer `patched` would give, without entering anything.
    pub(crate) fn patch_answer(&self, id: &PatchId) -> bool {
        self.counters.patches.get(id).copied().unwrap_or(false)
    }

    pub(crate) fn side_effect(&mut self, place: CodePlace) -> SideEffect {
        let seq = self.next_seq();
        // A cluster records it through an activity.
        self.counters.count_activity();
        let recorded = match &mut self.markers {
            Markers::InOrder { side_effects } => side_effects.pop_front(),
            Markers::Fresh => return SideEffect::Run(seq),
            Markers::Again { side_effects } => match side_effects.get(&seq) {
                Some(value) => Some(value.clone()),
                None => return SideEffect::Run(seq),
            },
            Markers::Recorded { side_effects, .. } => side_effects.get(&seq).cloned(),
        };
        let value = recorded.clone().unwrap_or_default();
        self.ask(place, Command::RecordMarker(Marker::SideEffect { seq, value }));
        recorded.map_or(SideEffect::Diverged, SideEffect::Recorded)
    }
    /// A value of the code's own: wherever it is not in history, it is what the code says.
    pub(crate) fn note(&mut self, place: CodePlace, value: Payload) -> SideEffect {
        match &mut self.markers {
            Markers::Recorded { .. } => return self.side_effect(place),
            // It stands among those that are given in order, and is not given.
            Markers::InOrder { side_effects } => drop(side_effects.pop_front()),
            Markers::Fresh | Markers::Again { .. } => {}
        }
        let seq = self.next_seq();
        self.counters.count_activity();
        self.side_effect_ran(place, seq, value);
        SideEffect::Run(seq)
    }
    pub(crate) fn side_effect_ran(&mut self, place: CodePlace, seq: Seq, value: Payload) {
        self.ask(place, Command::RecordMarker(Marker::SideEffect { seq, value }));
    }
}
