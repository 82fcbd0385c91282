//! Asks the code which of the events of a workflow task made it ask for what.
//!
//! Invariant: what history holds is never left out. What the code asks for and history holds stands after the event that made it
//! ask, under the number that the code knows; what the cluster dropped because it was undone in the same task is written down,
//! since the code asks for it again. From the first task on that does not fit, nothing is split any more.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use bosun_engine::workflow::{JobTable, WorkflowRegistry, job_of, markers_of};
use bosun_engine::*;

use super::Task;
use super::events::Numbering;

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

    /// Puts what the code asked for behind what made it ask. What a cluster told in the same task after the code had ended
    /// the run is not told any more: signals of it are named where the run ends, as those that nobody has taken.
    pub(super) fn split(&mut self, task: &mut Task, numbering: &mut Numbering) {
        if self.driver.is_none() {
            return;
        }
        let mut left: Vec<(u64, EventKind)> = std::mem::take(&mut task.asked);
        let mut produced: Vec<Vec<Command>> = Vec::new();
        for told in &task.told {
            let moment = (task.at, task.size);
            let Some(commands) = self.tell(told, moment, &left, &numbering.side_effects) else { break };
            let ends = commands.iter().any(Command::closes);
            produced.push(commands);
            if ends {
                break;
            }
        }
        let undone = undone_at_once(produced.iter().flatten(), &left);
        let mut ended_in = None;
        'told: for (index, (told, commands)) in task.told.iter_mut().zip(produced).enumerate() {
            for command in commands {
                let number = seq_of(&command);
                if number.is_some_and(|seq| undone.contains(&seq)) {
                    told.push(command.into_event(&self.own_type, self.visible));
                    continue;
                }
                let found = left.iter().position(|(_, held)| is_of(&command, held, task.at));
                let found = found.map(|at| left.remove(at)).or_else(|| later(&command, numbering));
                let Some((id, held)) = found else {
                    // History does not hold it: replay will say so.
                    self.driver = None;
                    break 'told;
                };
                if let Some(seq) = number {
                    numbering.renumber(id, seq);
                }
                ended_in = ended_in.or(command.closes().then_some(index));
                told.push(written(command, held, &self.own_type));
            }
        }
        if !left.is_empty() {
            self.driver = None;
        }
        task.asked = left;
        if let Some(index) = ended_in {
            untaken(task.told.drain(index + 1..).flatten().collect(), &mut task.told[index]);
        }
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
    fn tell(
        &mut self,
        told: &[EventKind],
        (at, size): (Timestamp, Option<HistorySize>),
        held: &[(u64, EventKind)],
        known: &Arc<BTreeMap<Seq, Payload>>,
    ) -> Option<Vec<Command>> {
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
        let mut markers = markers_of(held.iter().map(|(_, event)| event));
        // Who follows a run does not know what is still to come.
        if let Markers::Recorded { side_effects, .. } = &mut markers
            && side_effects.keys().all(|seq| known.contains_key(seq))
        {
            *side_effects = known.clone();
        }
        let activation = Activation { at, run_id: self.visible, history: size.unwrap_or(self.history), job, markers };
        let driver = self.driver.as_mut()?;
        let commands = driver.activate(activation);
        if driver.defect().is_some() || driver.overrun().is_some() {
            self.driver = None;
            return None;
        }
        self.table.apply(event);
        for command in &commands {
            self.apply(&command.clone().into_event(&self.own_type, self.visible));
        }
        Some(commands)
    }
}

/// The event of a side effect that a later task brought: the worker had the value, and the cluster not yet.
fn later(command: &Command, numbering: &mut Numbering) -> Option<(u64, EventKind)> {
    let Command::RecordMarker(Marker::SideEffect { seq, value }) = command else { return None };
    let found = numbering.place(*seq)?;
    matches!(&found.1, EventKind::MarkerRecorded(Marker::SideEffect { value: held, .. }) if held == value)
        .then_some(found)
}

/// Names signals that came after the end in the event that ends the run; the next run gets those of one that continues.
fn untaken(told_late: Vec<EventKind>, told: &mut [EventKind]) {
    use EventKind as E;
    let signals = told_late.into_iter().filter_map(|event| match event {
        E::WorkflowExecutionSignaled(signal) => Some(signal),
        _ => None,
    });
    match told.iter_mut().find(|event| event.closes().is_some()) {
        Some(
            E::WorkflowExecutionCompleted { unhandled_signals, .. }
            | E::WorkflowExecutionFailed { unhandled_signals, .. }
            | E::WorkflowExecutionCanceled { unhandled_signals, .. },
        ) => unhandled_signals.extend(signals.map(|signal| signal.name)),
        Some(E::WorkflowExecutionContinuedAsNew(next)) => next.unconsumed_signals.extend(signals),
        _ => {}
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

/// What is asked for and canceled in one task: a cluster holds neither. An export of ours holds both.
fn undone_at_once<'a>(produced: impl Iterator<Item = &'a Command> + Clone, held: &[(u64, EventKind)]) -> BTreeSet<Seq> {
    let held_begun: BTreeSet<Seq> = held.iter().filter_map(|(_, event)| begun_by(event)).collect();
    let held_undone: BTreeSet<Seq> = held.iter().filter_map(|(_, event)| canceled_by(event)).collect();
    let begun = produced.clone().filter_map(|command| match command {
        Command::StartTimer { seq, .. }
        | Command::ScheduleActivity { seq, .. }
        | Command::StartChildWorkflow { seq, .. } => Some(*seq),
        _ => None,
    });
    let begun: BTreeSet<Seq> = begun.collect();
    let canceled = produced.filter_map(|command| match command {
        Command::CancelTimer { seq }
        | Command::RequestCancelActivity { seq }
        | Command::CancelChildWorkflow { seq, .. } => Some(*seq),
        _ => None,
    });
    let is_held = |seq: &Seq| held_begun.contains(seq) && held_undone.contains(seq);
    canceled.filter(|seq| begun.contains(seq) && !is_held(seq)).collect()
}

fn begun_by(event: &EventKind) -> Option<Seq> {
    match event {
        EventKind::TimerStarted { seq, .. } => Some(*seq),
        EventKind::ActivityTaskScheduled(task) => Some(task.seq),
        EventKind::StartChildWorkflowExecutionInitiated(child) => Some(child.seq),
        _ => None,
    }
}

fn canceled_by(event: &EventKind) -> Option<Seq> {
    match event {
        EventKind::TimerCanceled { seq }
        | EventKind::ActivityTaskCancelRequested { seq }
        | EventKind::ChildWorkflowExecutionCancelRequested { seq, .. } => Some(*seq),
        _ => None,
    }
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
