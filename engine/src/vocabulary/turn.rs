//! Turns: the unit that is appended, atomically. One run's inputs, the commands they caused, and their events.
//!
//! Invariant: `first_event` is the id the run's next event must have; a turn that does not fit is refused by the log
//! (compare-and-set, G11). What the indexes need to know without running any code rides along: the next
//! deadline, and whether the run has work that a restart must look at. Stored as an array: new fields go last.

use std::fmt;

use serde::ser::{SerializeStruct, Serializer};
use serde::{Deserialize, Serialize};

use super::*;

/// What one run decided at one moment: what reached it, what its code asked for, and what indexes need of it.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct Turn {
    /// The run that has decided.
    pub run: RunId,
    /// The id of the first event, or of the next one if there is none in this turn.
    pub first_event: EventId,
    /// The time of the turn, which is the time of all of its events and of the code in it.
    pub at: Timestamp,
    /// The workflow code that has decided it.
    pub build: BuildId,
    /// What has happened, in order.
    pub events: Vec<EventKind>,
    /// Inputs accepted durably while the run is paused or held; they become events later.
    pub inbox_added: Vec<Input>,
    /// How many inputs left the front of the inbox in this turn.
    pub inbox_taken: u32,
    /// What attempts said meanwhile.
    pub heartbeats: Vec<Heartbeat>,
    /// What indexes may know of the run after it.
    pub outlook: Outlook,
    /// Messages to other runs that a closed run knows to have arrived (or to be undeliverable), by the numbers of the
    /// commands that sent them. Kept beside the history, which ends with the closing event. Left out when empty, so that
    /// turns without it are the bytes they always were.
    #[serde(default)]
    pub delivered: Vec<Seq>,
    /// How long the code was told that the history is, where that is not what its events add up to: a cluster counts events of
    /// its own. Left out where it is.
    #[serde(default)]
    pub size_told: Option<HistorySize>,
}

/// What is left out at the end is left out of the array: a turn without it is the bytes it always was.
impl Serialize for Turn {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        const ALWAYS: usize = 9;
        let last = match (&self.size_told, self.delivered.is_empty()) {
            (Some(_), _) => 2,
            (None, false) => 1,
            (None, true) => 0,
        };
        let mut turn = serializer.serialize_struct("Turn", ALWAYS + last)?;
        turn.serialize_field("run", &self.run)?;
        turn.serialize_field("first_event", &self.first_event)?;
        turn.serialize_field("at", &self.at)?;
        turn.serialize_field("build", &self.build)?;
        turn.serialize_field("events", &self.events)?;
        turn.serialize_field("inbox_added", &self.inbox_added)?;
        turn.serialize_field("inbox_taken", &self.inbox_taken)?;
        turn.serialize_field("heartbeats", &self.heartbeats)?;
        turn.serialize_field("outlook", &self.outlook)?;
        if last > 0 {
            turn.serialize_field("delivered", &self.delivered)?;
        }
        if last > 1 {
            turn.serialize_field("size_told", &self.size_told)?;
        }
        turn.end()
    }
}

/// The last thing a running attempt said (E06). Kept beside the history, not in it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Heartbeat {
    /// The activity.
    pub seq: Seq,
    /// Its attempt.
    pub attempt: Attempt,
    /// What it said, for the next attempt.
    pub details: Option<Payload>,
}

/// What is true of the run after the turn, for indexes that know no machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Outlook {
    /// When the run must be woken at the latest.
    pub next_deadline: Option<Timestamp>,
    /// A restart must load the run: activities, children or messages are under way, or its inbox holds inputs. True of a
    /// closed run while messages that it sent have not arrived.
    pub attention: bool,
}

impl Turn {
    /// A turn of nothing but events.
    pub fn of(run: RunId, first_event: EventId, at: Timestamp, build: BuildId, events: Vec<EventKind>) -> Turn {
        Turn {
            run,
            first_event,
            at,
            build,
            events,
            inbox_added: Vec::new(),
            inbox_taken: 0,
            heartbeats: Vec::new(),
            outlook: Outlook::default(),
            delivered: Vec::new(),
            size_told: None,
        }
    }
    /// The id the run's next event will have after this turn.
    pub fn next_event(&self) -> EventId {
        EventId(self.first_event.0 + self.events.len() as u64)
    }
    /// The events with their ids and time.
    pub fn numbered(&self) -> impl Iterator<Item = Event> + '_ {
        self.events.iter().enumerate().map(|(i, kind)| Event {
            id: EventId(self.first_event.0 + i as u64),
            at: self.at,
            build: self.build,
            kind: kind.clone(),
        })
    }
}

/// The states a run shows to the outside.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum WorkflowStatus {
    /// It is open: it works, or waits.
    Running,
    /// It is open, and somebody has paused it.
    Paused,
    /// It has ended with a result.
    Completed,
    /// It has ended in a failure.
    Failed,
    /// It has ended because it was asked to.
    Canceled,
    /// It was ended from outside.
    Terminated,
    /// It goes on as another run of its id.
    ContinuedAsNew,
    /// A limit of the workflow ran out.
    TimedOut,
}

impl WorkflowStatus {
    /// Whether it has not ended.
    pub fn is_open(self) -> bool {
        matches!(self, WorkflowStatus::Running | WorkflowStatus::Paused)
    }
    /// All of them, open ones first.
    pub const ALL: [WorkflowStatus; 8] = [
        WorkflowStatus::Running,
        WorkflowStatus::Paused,
        WorkflowStatus::Completed,
        WorkflowStatus::Failed,
        WorkflowStatus::Canceled,
        WorkflowStatus::Terminated,
        WorkflowStatus::ContinuedAsNew,
        WorkflowStatus::TimedOut,
    ];
}

impl fmt::Display for WorkflowStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            WorkflowStatus::Running => "Running",
            WorkflowStatus::Paused => "Paused",
            WorkflowStatus::Completed => "Completed",
            WorkflowStatus::Failed => "Failed",
            WorkflowStatus::Canceled => "Canceled",
            WorkflowStatus::Terminated => "Terminated",
            WorkflowStatus::ContinuedAsNew => "ContinuedAsNew",
            WorkflowStatus::TimedOut => "TimedOut",
        })
    }
}

/// What lists and `describe` show of a run without running its code. Folded from events; open runs keep it in memory.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunInfo {
    /// Its namespace.
    pub namespace: Namespace,
    /// Its workflow id.
    pub workflow_id: WorkflowId,
    /// Its own id. Ids of runs sort by the time of their start.
    pub run_id: RunId,
    /// Which code it runs.
    pub workflow_type: WorkflowType,
    /// The queue of its activities, unless they name another.
    pub task_queue: TaskQueue,
    /// Whether it is open, or how it ended.
    pub status: WorkflowStatus,
    /// When it was started.
    pub started_at: Timestamp,
    /// When it ended.
    pub closed_at: Option<Timestamp>,
    /// How long its history is.
    pub history: HistorySize,
    /// Which attempt of the workflow it is, from 1.
    pub attempt: Attempt,
    /// The run with which its chain began.
    pub first_run: RunId,
    /// The run before it in the chain.
    pub continued_from: Option<RunId>,
    /// The run after it in the chain.
    pub next_run: Option<RunId>,
    /// The workflow whose child it is.
    pub parent: Option<Parent>,
    /// Notes for people.
    pub memo: Memo,
    /// What lists can look for.
    pub search_attributes: SearchAttributes,
    /// What it is for, in a few words.
    pub summary: Option<String>,
    /// What it is for, in more of them.
    pub details: Option<String>,
    /// The workflow code that has decided its last turn.
    pub build: BuildId,
    /// The request that started it, which starts nothing a second time.
    pub start_request_id: Option<RequestId>,
    /// The run that this one begins with a copy of. Left out where there is nothing; see the start event's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub forked_from: Option<ForkPoint>,
    /// Whether the worker that was asked holds the run now, because its code cannot go on. Of the worker, not of the run: it
    /// is in answers only, and never stored.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub held: bool,
    /// How people hold the run, as its own code said to whoever asked it: the engine does not know. In answers only, and never
    /// stored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hold: Option<Hold>,
}

/// How people hold a run that the engine would go on with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Hold {
    /// It has paused itself: for a person, or because its budget is used up.
    Paused,
    /// A person does its work.
    TakenOver,
}

impl Hold {
    /// In the place of a status.
    pub fn title(self) -> &'static str {
        match self {
            Hold::Paused => "Paused",
            Hold::TakenOver => "Taken over",
        }
    }

    /// For programs.
    pub fn name(self) -> &'static str {
        match self {
            Hold::Paused => "paused",
            Hold::TakenOver => "taken_over",
        }
    }
}

impl RunInfo {
    /// The info of a run that has just started.
    pub fn started(run_id: RunId, at: Timestamp, build: BuildId, started: &WorkflowExecutionStarted) -> Self {
        RunInfo {
            namespace: started.namespace.clone(),
            workflow_id: started.workflow_id.clone(),
            run_id,
            workflow_type: started.workflow_type.clone(),
            task_queue: started.task_queue.clone(),
            status: WorkflowStatus::Running,
            started_at: started.forked_from.as_ref().map_or(at, |from| from.at),
            closed_at: None,
            history: HistorySize::default(),
            attempt: started.attempt,
            first_run: started.first_run,
            continued_from: started.continued_from,
            next_run: None,
            parent: started.parent.clone(),
            memo: started.memo.clone(),
            search_attributes: started.search_attributes.clone(),
            summary: started.summary.clone(),
            details: started.details.clone(),
            build,
            start_request_id: started.request_id.clone(),
            forked_from: started.forked_from.as_ref().map(|from| from.point.clone()),
            held: false,
            hold: None,
        }
    }

    /// Folds one event of the run. Start events are handled by [`RunInfo::started`].
    pub fn apply(&mut self, at: Timestamp, event: &EventKind) {
        if let Some(status) = event.closes() {
            self.status = status;
            self.closed_at = Some(at);
        }
        match event {
            EventKind::WorkflowExecutionPaused { .. } => self.status = WorkflowStatus::Paused,
            EventKind::WorkflowExecutionUnpaused { .. } => self.status = WorkflowStatus::Running,
            EventKind::UpsertWorkflowSearchAttributes { attributes } => {
                for (name, value) in attributes {
                    match value {
                        SearchValue::Unset => self.search_attributes.remove(name),
                        value => self.search_attributes.insert(name.clone(), value.clone()),
                    };
                }
            }
            EventKind::WorkflowPropertiesModified { memo } => {
                self.memo.extend(memo.iter().map(|(name, value)| (name.clone(), value.clone())));
            }
            EventKind::WorkflowExecutionContinuedAsNew(next) => self.next_run = Some(next.new_run),
            EventKind::WorkflowExecutionTerminated { reset: Some(into), .. } => self.next_run = Some(into.run_id),
            EventKind::WorkflowExecutionFailed { new_run, .. }
            | EventKind::WorkflowExecutionTimedOut { new_run, .. } => {
                self.next_run = *new_run;
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// G9: a turn written with an empty `delivered`, as some versions did, reads as one without.
    #[test]
    fn a_turn_with_an_explicit_empty_field_at_its_end_is_the_same_turn() {
        let events = vec![EventKind::TimerFired { seq: Seq(3) }];
        let turn = Turn::of(RunId([7; 16]), EventId(4), Timestamp(5), BuildId(6), events);
        let short = rmp_serde::to_vec(&turn).unwrap();
        // Nine fields in an array; the tenth is an empty array.
        assert_eq!(short[0], 0x99);
        let mut long = short.clone();
        long[0] = 0x9a;
        long.push(0x90);
        for bytes in [&short, &long] {
            assert_eq!(rmp_serde::from_slice::<Turn>(bytes).unwrap(), turn);
        }
        let with = Turn { delivered: vec![Seq(1)], ..turn.clone() };
        assert_eq!(rmp_serde::from_slice::<Turn>(&rmp_serde::to_vec(&with).unwrap()).unwrap(), with);
        let told = Turn { size_told: Some(HistorySize { events: 7, bytes: 900 }), ..turn };
        assert_eq!(rmp_serde::from_slice::<Turn>(&rmp_serde::to_vec(&told).unwrap()).unwrap(), told);
    }
}
