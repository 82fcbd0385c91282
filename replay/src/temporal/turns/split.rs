//! Asks the code which of the events of a workflow task made it ask for what.
//!
//! Invariant: what history holds is never left out. What the code asks for and history holds stands after the event that made it
//! ask, under the number that the code knows; what the cluster dropped because it was undone in the same task is written down,
//! since the code asks for it again. From the first task on that does not fit, nothing is split any more.

use std::collections::BTreeSet;
use std::time::Duration;

use bosun_engine::workflow::{JobTable, WorkflowRegistry, job_of, markers_of};
use bosun_engine::*;

use super::events::Numbering;
use super::{Task, in_order};

/// No timer of a cluster is shorter.
const SHORTEST_TIMER: Duration = Duration::from_millis(1);

pub(super) struct Splitter {
    driver: Option<Box<dyn Driver>>,
    table: JobTable,
    own_type: WorkflowType,
    visible: RunId,
    history: HistorySize,
}

impl Splitter {
    /// Nothing, where the code of the run is not there.
    pub(super) fn new(code: &WorkflowRegistry, started: &WorkflowExecutionStarted, run: RunId) -> Option<Self> {
        let driver = code.create(started, run).ok()?;
        let own_type = started.workflow_type.clone();
        let (table, history) = (JobTable::default(), HistorySize::default());
        Some(Splitter { driver: Some(driver), table, own_type, visible: run, history })
    }

    /// Puts what the code asked for behind what made it ask.
    pub(super) fn split(&mut self, task: &mut Task, numbering: &mut Numbering) {
        if self.driver.is_none() {
            return;
        }
        in_order(&mut task.told);
        let mut left: Vec<(u64, EventKind)> = std::mem::take(&mut task.asked);
        let told = task.told.len();
        for index in 0..told {
            let Some(produced) = self.tell(&task.told[index], task.at, &left) else { break };
            let undone = undone_at_once(&produced, &left, task.at);
            for command in produced {
                let found = left.iter().position(|(_, held)| is_of(&command, held, task.at));
                match found {
                    Some(at) => {
                        let (id, held) = left.remove(at);
                        if let Some(seq) = seq_of(&command) {
                            numbering.renumber(id, seq);
                        }
                        let event = written(command, held, &self.own_type);
                        self.apply(&event);
                        task.told[index].push(event);
                    }
                    None if seq_of(&command).is_some_and(|seq| undone.contains(&seq)) => {
                        let event = command.into_event(&self.own_type, self.visible);
                        self.apply(&event);
                        task.told[index].push(event);
                    }
                    // History does not hold it: replay will say so.
                    None => self.driver = None,
                }
                if self.driver.is_none() {
                    break;
                }
            }
        }
        if !left.is_empty() {
            self.driver = None;
        }
        task.asked = left;
    }

    fn apply(&mut self, event: &EventKind) {
        self.count(event);
        self.table.apply(event);
    }

    fn count(&mut self, event: &EventKind) {
        self.history.events += 1;
        self.history.bytes += event.size();
    }

    /// Tells the code one event, and gives what it asks for.
    fn tell(&mut self, told: &[EventKind], at: Timestamp, held: &[(u64, EventKind)]) -> Option<Vec<Command>> {
        let (event, before) = told.split_last()?;
        before.iter().for_each(|event| self.apply(event));
        self.count(event);
        if let EventKind::WorkflowExecutionForked { run_id, .. } = event {
            self.visible = *run_id;
            self.driver.as_mut()?.forked(*run_id);
            return Some(Vec::new());
        }
        if matches!(event, EventKind::WorkflowExecutionStarted(_)) {
            self.table.apply(event);
        }
        let job = job_of(event, &self.table)?;
        let markers = markers_of(held.iter().map(|(_, event)| event));
        let activation = Activation { at, run_id: self.visible, history: self.history, job, markers };
        let driver = self.driver.as_mut()?;
        let commands = driver.activate(activation);
        if driver.defect().is_some() || driver.overrun().is_some() {
            self.driver = None;
            return None;
        }
        self.table.apply(event);
        Some(commands)
    }
}

/// The number under which the code knows what a command is about.
fn seq_of(command: &Command) -> Option<Seq> {
    match command {
        Command::ScheduleActivity { seq, .. }
        | Command::RequestCancelActivity { seq }
        | Command::StartTimer { seq, .. }
        | Command::CancelTimer { seq }
        | Command::StartChildWorkflow { seq, .. }
        | Command::CancelChildWorkflow { seq, .. }
        | Command::SignalExternalWorkflow { seq, .. }
        | Command::RequestCancelExternalWorkflow { seq, .. } => Some(*seq),
        _ => None,
    }
}

/// Timers and activities that are asked for and canceled in one answer: a cluster holds neither.
fn undone_at_once(produced: &[Command], held: &[(u64, EventKind)], at: Timestamp) -> BTreeSet<Seq> {
    let holds = |command: &Command| held.iter().any(|(_, event)| is_of(command, event, at));
    let begun = produced.iter().filter(|command| {
        matches!(
            command,
            Command::StartTimer { .. } | Command::ScheduleActivity { .. } | Command::StartChildWorkflow { .. }
        ) && !holds(command)
    });
    let begun: Vec<Seq> = begun.filter_map(seq_of).collect();
    let canceled = produced.iter().filter_map(|command| match command {
        Command::CancelTimer { seq }
        | Command::RequestCancelActivity { seq }
        | Command::CancelChildWorkflow { seq, .. } => Some(*seq),
        _ => None,
    });
    canceled.filter(|seq| begun.contains(seq)).collect()
}

/// Whether an event holds what a command asks for.
// long: one arm a command.
fn is_of(command: &Command, event: &EventKind, at: Timestamp) -> bool {
    use EventKind as E;
    match (command, event) {
        (Command::ScheduleActivity { activity_type, input, .. }, E::ActivityTaskScheduled(held)) => {
            held.activity_type == *activity_type && held.input == *input
        }
        (Command::RequestCancelActivity { seq }, E::ActivityTaskCancelRequested { seq: held })
        | (Command::CancelTimer { seq }, E::TimerCanceled { seq: held }) => seq == held,
        (Command::StartTimer { fire_at, .. }, E::TimerStarted { fire_at: held, .. }) => {
            at.plus(fire_at.since(at).max(SHORTEST_TIMER)) == *held
        }
        (
            Command::StartChildWorkflow { workflow_id, workflow_type, input, .. },
            E::StartChildWorkflowExecutionInitiated(held),
        ) => held.workflow_id == *workflow_id && held.workflow_type == *workflow_type && held.input == *input,
        (Command::CancelChildWorkflow { seq, .. }, E::ChildWorkflowExecutionCancelRequested { seq: held, .. }) => {
            seq == held
        }
        (
            Command::SignalExternalWorkflow { target, name, input, .. },
            E::SignalExternalWorkflowExecutionInitiated(held),
        ) => held.target == *target && held.name == *name && held.input == *input,
        (
            Command::RequestCancelExternalWorkflow { target, .. },
            E::RequestCancelExternalWorkflowExecutionInitiated { target: held, .. },
        ) => target == held,
        (Command::RecordMarker(marker), E::MarkerRecorded(held)) => match (marker, held) {
            (Marker::SideEffect { seq, value }, Marker::SideEffect { seq: held, value: recorded }) => {
                seq == held && value == recorded
            }
            (Marker::Patch { id, .. }, Marker::Patch { id: held, .. }) => id == held,
            _ => false,
        },
        (Command::UpsertSearchAttributes { attributes }, E::UpsertWorkflowSearchAttributes { attributes: held }) => {
            attributes == held
        }
        (Command::ModifyMemo { memo }, E::WorkflowPropertiesModified { memo: held }) => memo == held,
        (Command::CompleteUpdate { update_id, .. }, E::WorkflowExecutionUpdateCompleted { update_id: held, .. }) => {
            update_id == held
        }
        (Command::CompleteWorkflow { result, .. }, E::WorkflowExecutionCompleted { result: held, .. }) => {
            result == held
        }
        (Command::FailWorkflow { .. }, E::WorkflowExecutionFailed { .. })
        | (Command::CancelWorkflow { .. }, E::WorkflowExecutionCanceled { .. }) => true,
        (Command::ContinueAsNew { input, .. }, E::WorkflowExecutionContinuedAsNew(held)) => held.input == *input,
        _ => false,
    }
}

/// The event as we would have written it, with what only the cluster knows.
fn written(command: Command, held: EventKind, own_type: &WorkflowType) -> EventKind {
    match held {
        // How a failed run goes on is the cluster's decision.
        EventKind::WorkflowExecutionFailed { failure, new_run, retry_state, .. } => {
            let unhandled_signals = match command {
                Command::FailWorkflow { unhandled_signals, .. } => unhandled_signals,
                _ => Vec::new(),
            };
            EventKind::WorkflowExecutionFailed { failure, new_run, retry_state, unhandled_signals }
        }
        EventKind::WorkflowExecutionContinuedAsNew(next) => command.into_event(own_type, next.new_run),
        _ => command.into_event(own_type, RunId([0; 16])),
    }
}
