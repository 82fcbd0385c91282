//! A history of a Temporal cluster as turns of ours, for all that reads and replays turns.
//!
//! ```text
//!   events told to the code ──┐                        ┌─► told, asked, asked │ told, asked │ …   one turn
//!   one workflow task         ├─► with the code: split ┤
//!   events the code asked for ┘     without: all after the last
//! ```
//!
//! Invariant: a workflow task is one turn, at the time of its start, which is what the code saw; the order of what it was told is
//! that of Temporal's core. A cluster does not say which of several events made the code ask for what: the code itself says,
//! as long as it fits, and where it does not, replay finds the difference. What the code was not told yet is left out.

mod events;
mod read;
mod split;
mod start;
#[cfg(test)]
mod tests;

use bosun_engine::workflow::WorkflowRegistry;
use bosun_engine::*;
use serde_json::Value;

use super::{TemporalEvent, TemporalHistory};
use events::{Imported, Numbering};
use read::*;
use split::Splitter;
use start::{forked_from, reset, reset_here, started};

/// Why a history of a cluster has no turns.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ImportError {
    /// It begins with something else, or in the middle.
    #[error("the history begins with {found}, not with WorkflowExecutionStarted")]
    NotStarted {
        /// The type of its first event.
        found: String,
    },
    /// The start says nothing that a run can be made of.
    #[error("the start of the run cannot be read: its {field} is missing or not usable")]
    BadStart {
        /// Which part.
        field: &'static str,
    },
    /// An event refers to nothing, or lacks what makes it one.
    #[error("event {id} ({name}) cannot be read")]
    BadEvent {
        /// Its number.
        id: u64,
        /// Its type.
        name: String,
    },
    /// The code would be told something that is not in the history.
    #[error(
        "a payload of event {id} ({name}) is kept outside of the history; name the run itself (--temporal, --payload-store) and \
         not a file of Temporal's, or its `bosun export`"
    )]
    KeptElsewhere {
        /// Its number.
        id: u64,
        /// Its type.
        name: String,
    },
}

/// Whether all that the event tells is in it.
fn is_whole(event: &TemporalEvent) -> Result<(), ImportError> {
    match event.attributes.values().any(is_reference) {
        true => Err(ImportError::KeptElsewhere { id: event.id, name: event.event_type.clone() }),
        false => Ok(()),
    }
}

/// One workflow task: what the code was told, and what it asked for.
pub(super) struct Task {
    at: Timestamp,
    build: BuildId,
    /// How long the cluster said that the history is.
    size: Option<HistorySize>,
    /// With what goes before each in the history.
    told: Vec<Vec<EventKind>>,
    asked: Vec<(u64, EventKind)>,
    /// Nothing comes to it any more, and it stands in the order of the code.
    settled: bool,
}

/// Makes turns of a history event by event, for who follows a run.
pub struct TurnReader {
    run: RunId,
    began_at: Timestamp,
    started: WorkflowExecutionStarted,
    next: EventId,
    tasks: Tasks,
    splitter: Option<Splitter>,
}

/// The tasks of a run, as its events tell.
struct Tasks {
    numbering: Numbering,
    tasks: Vec<Task>,
    waiting: Vec<Vec<EventKind>>,
    started: Option<TaskStart>,
    ended: Option<(Timestamp, EventKind)>,
    /// A task in which the code was told nothing yet: what it accepts is told in it. What else it asks for is of the task before,
    /// by a worker that was slow to record a side effect.
    untold: Option<(TaskStart, BuildId)>,
    workflow_id: WorkflowId,
}

/// What a worker is told with each task.
#[derive(Clone, Copy, Default)]
struct TaskStart {
    at: Timestamp,
    /// Nothing in an export of ours: there the events that the code saw are counted.
    size: Option<HistorySize>,
}

impl TemporalHistory {
    /// The history as turns. With `code`, what the code asked for stands after what made it ask; without, or where the code
    /// does not fit, it stands at the end of its workflow task.
    ///
    /// # Errors
    /// It is not the history of a whole run, or an event of it cannot be read.
    pub fn turns(&self, namespace: &Namespace, code: Option<&WorkflowRegistry>) -> Result<Vec<Turn>, ImportError> {
        let mut reader = TurnReader::new(self.events(), namespace, code)?;
        reader.tasks.numbering = Numbering::of(self.events());
        for event in self.events().iter().skip(1) {
            reader.event(event)?;
        }
        let alone = reader.start_alone();
        Ok(alone.into_iter().chain(reader.turns()).collect())
    }
}

impl TurnReader {
    /// A reader that has taken the first of these events, and knows of the others whether the run was reset. For `code` see
    /// [`TemporalHistory::turns`].
    ///
    /// # Errors
    /// It is not the start of a run, or lacks what makes it one.
    pub fn new(
        begin: &[TemporalEvent],
        namespace: &Namespace,
        code: Option<&WorkflowRegistry>,
    ) -> Result<Self, ImportError> {
        let first = match begin {
            [first, ..] if first.event_type == "WorkflowExecutionStarted" && first.id == 1 => first,
            other => {
                let found = other.first().map_or_else(|| "nothing".to_owned(), |event| event.event_type.clone());
                return Err(ImportError::NotStarted { found });
            }
        };
        let (original, mut started) = started(first, namespace)?;
        let mut run = original;
        for event in begin {
            if let Some((new_run, base)) = reset(event) {
                let at = event.at.unwrap_or_default();
                (run, started.forked_from) = (new_run, Some(Box::new(forked_from(base, at, &started))));
            }
        }
        let splitter = code.and_then(|code| Splitter::new(code, &started, original));
        if splitter.is_some() {
            begin.iter().try_for_each(is_whole)?;
        }
        let tasks = Tasks {
            numbering: Numbering::default(),
            tasks: Vec::new(),
            waiting: vec![vec![EventKind::WorkflowExecutionStarted(Box::new(started.clone()))]],
            started: None,
            ended: None,
            untold: None,
            workflow_id: started.workflow_id.clone(),
        };
        let began_at = first.at.unwrap_or_default();
        Ok(TurnReader { run, began_at, started, next: EventId(1), tasks, splitter })
    }

    /// Takes the next event.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn event(&mut self, event: &TemporalEvent) -> Result<(), ImportError> {
        if self.splitter.is_some() {
            is_whole(event)?;
        }
        let accepts = self.tasks.untold.is_some() && event.event_type == "WorkflowExecutionUpdateAccepted";
        if accepts || !is_of_a_task(&event.event_type) {
            self.tasks.settle(self.splitter.as_mut());
        }
        self.tasks.event(event)
    }

    /// The start, while nobody has worked on the run: the code has not been told it.
    pub fn start_alone(&self) -> Option<Turn> {
        let unworked = self.next == EventId(1) && self.tasks.tasks.is_empty();
        unworked.then(|| {
            let started = WorkflowExecutionStarted { start_at: Some(self.began_at), ..self.started.clone() };
            let event = EventKind::WorkflowExecutionStarted(Box::new(started));
            Turn::of(self.run, EventId(1), self.began_at, BuildId(0), vec![event])
        })
    }

    /// The turns that have come since the last call. Call it where a workflow task has all of its events: a cluster writes
    /// them at once.
    pub fn turns(&mut self) -> Vec<Turn> {
        self.tasks.settle(self.splitter.as_mut());
        let unworked = self.start_alone().is_some();
        let mut turns = Vec::new();
        for task in self.tasks.tasks.drain(..).filter(|task| !(task.told.is_empty() && task.asked.is_empty())) {
            let (at, build, size_told) = (task.at, task.build, task.size);
            let events = task.into_events(self.next);
            let turn = Turn { size_told, ..Turn::of(self.run, self.next, at, build, events) };
            self.next = turn.next_event();
            turns.push(turn);
        }
        if let Some((at, ended)) = self.tasks.ended.take() {
            let next = if unworked { EventId(2) } else { self.next };
            turns.push(Turn::of(self.run, next, at, BuildId(0), vec![ended]));
        }
        turns
    }
}

impl Task {
    /// `first`: the number of its first event.
    fn into_events(self, first: EventId) -> Vec<EventKind> {
        let asked = by_number(self.asked.into_iter().map(|(_, asked)| asked).collect());
        let mut events: Vec<EventKind> = self.told.into_iter().flatten().chain(asked).collect();
        for (event, id) in events.iter_mut().zip(first.0..) {
            match event {
                // When the next attempt came is not kept.
                EventKind::ActivityTaskAttemptFailed { next_attempt_at, .. } => *next_attempt_at = self.at,
                EventKind::WorkflowExecutionForked { from, .. } => from.event = EventId(id - 1),
                _ => {}
            }
        }
        events
    }
}

impl Tasks {
    /// The last task has all of its events: what comes next may refer to what it asked for, by the numbers of the code.
    fn settle(&mut self, splitter: Option<&mut Splitter>) {
        let Some(task) = self.tasks.last_mut().filter(|task| !task.settled) else { return };
        task.settled = true;
        in_order(&mut task.told);
        if let Some(splitter) = splitter {
            splitter.split(task, &mut self.numbering);
        }
    }

    fn event(&mut self, event: &TemporalEvent) -> Result<(), ImportError> {
        match event.event_type.as_str() {
            "WorkflowTaskStarted" => self.started = Some(task_start(event)),
            "WorkflowTaskFailed" | "WorkflowTaskTimedOut" => {
                self.started = None;
                if let Some((new_run, base)) = reset(event) {
                    self.waiting.push(vec![reset_here(new_run, base, &self.workflow_id)]);
                }
            }
            "WorkflowTaskCompleted" => {
                let version = |field| object(&event.attributes, field).map(|version| text(version, "buildId"));
                // A version of a deployment, or a build by itself.
                let builds = [version("deploymentVersion"), version("workerVersion")];
                let build = builds.into_iter().flatten().find_map(|build| u64::from_str_radix(build, 16).ok());
                let unseen = || TaskStart { at: event.at.unwrap_or_default(), size: None };
                let start = self.started.take().unwrap_or_else(unseen);
                let told = std::mem::take(&mut self.waiting);
                match told.is_empty() && !self.tasks.is_empty() {
                    true => self.untold = Some((start, BuildId(build.unwrap_or(0)))),
                    false => self.begin(start, BuildId(build.unwrap_or(0)), told),
                }
            }
            _ => self.other(event)?,
        }
        Ok(())
    }

    fn begin(&mut self, start: TaskStart, build: BuildId, told: Vec<Vec<EventKind>>) {
        let TaskStart { at, size } = start;
        self.numbering.at = at;
        self.tasks.push(Task { at, build, size, told, asked: Vec::new(), settled: false });
    }

    fn other(&mut self, event: &TemporalEvent) -> Result<(), ImportError> {
        let unreadable = || ImportError::BadEvent { id: event.id, name: event.event_type.clone() };
        match self.numbering.import(event) {
            None if event.event_type == "MarkerRecorded" => {}
            None => return Err(unreadable()),
            Some(Imported::Nothing) => {}
            Some(Imported::Ended(ended)) => self.ended = Some((event.at.unwrap_or_default(), ended)),
            Some(Imported::Asked(asked)) => {
                self.untold = None;
                let task = self.tasks.last_mut().ok_or_else(unreadable)?;
                task.asked.push((event.id, asked));
            }
            // An update is accepted as the task completes, and was told in it.
            Some(Imported::Told(told)) if event.event_type == "WorkflowExecutionUpdateAccepted" => {
                match (self.untold.take(), self.tasks.last_mut()) {
                    (Some((start, build)), _) => self.begin(start, build, vec![told]),
                    (None, Some(task)) => task.told.push(told),
                    (None, None) => return Err(unreadable()),
                }
            }
            Some(Imported::Told(told)) => self.waiting.push(told),
        }
        Ok(())
    }
}

/// The size as Temporal's core tells it: the number of the event with which the task starts, and what the cluster says there.
fn task_start(event: &TemporalEvent) -> TaskStart {
    let bytes = number(&event.attributes, "historySizeBytes");
    let suggested = event.attributes.get("suggestContinueAsNew").and_then(Value::as_bool).unwrap_or(false);
    let size = (bytes > 0 || suggested).then(|| HistorySize::of_cluster(event.id, bytes, suggested));
    TaskStart { at: event.at.unwrap_or_default(), size }
}

/// Whether an event may come before a workflow task has all of its events: what is written as it completes (a command, or an
/// update that the code has accepted), and what the code is not told.
fn is_of_a_task(event_type: &str) -> bool {
    matches!(
        event_type,
        "WorkflowTaskScheduled"
            | "WorkflowTaskStarted"
            | "WorkflowTaskCompleted"
            | "ActivityTaskStarted"
            | "ActivityTaskScheduled"
            | "ActivityTaskCancelRequested"
            | "TimerStarted"
            | "TimerCanceled"
            | "StartChildWorkflowExecutionInitiated"
            | "SignalExternalWorkflowExecutionInitiated"
            | "RequestCancelExternalWorkflowExecutionInitiated"
            | "MarkerRecorded"
            | "UpsertWorkflowSearchAttributes"
            | "WorkflowPropertiesModified"
            | "WorkflowExecutionUpdateAccepted"
            | "WorkflowExecutionUpdateCompleted"
            | "WorkflowExecutionCompleted"
            | "WorkflowExecutionFailed"
            | "WorkflowExecutionCanceled"
            | "WorkflowExecutionContinuedAsNew"
    )
}

/// Side effects come later in the history than they were asked for: what has a number stands in the order of the numbers.
fn by_number(mut asked: Vec<EventKind>) -> Vec<EventKind> {
    let number = |event: &EventKind| match event {
        EventKind::ActivityTaskScheduled(task) => Some(task.seq),
        EventKind::TimerStarted { seq, .. }
        | EventKind::RequestCancelExternalWorkflowExecutionInitiated { seq, .. }
        | EventKind::MarkerRecorded(Marker::SideEffect { seq, .. }) => Some(*seq),
        EventKind::StartChildWorkflowExecutionInitiated(child) => Some(child.seq),
        EventKind::SignalExternalWorkflowExecutionInitiated(signal) => Some(signal.seq),
        _ => None,
    };
    let places: Vec<usize> = (0..asked.len()).filter(|at| number(&asked[*at]).is_some()).collect();
    let mut numbered: Vec<EventKind> = places.iter().map(|at| asked[*at].clone()).collect();
    numbered.sort_by_key(number);
    places.into_iter().zip(numbered).for_each(|(at, event)| asked[at] = event);
    asked
}

/// What the code is told of a task, in the order of Temporal's core: the start, a reset, signals and updates, all else.
fn in_order(told: &mut [Vec<EventKind>]) {
    told.sort_by_key(|told| match told.last() {
        Some(EventKind::WorkflowExecutionStarted(_)) => 0,
        Some(EventKind::WorkflowExecutionForked { .. }) => 2,
        Some(EventKind::WorkflowExecutionSignaled(_) | EventKind::WorkflowExecutionUpdateAccepted { .. }) => 3,
        _ => 4,
    });
}
