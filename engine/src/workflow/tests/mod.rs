//! Tests of both workflow forms against a scripted environment that answers commands with events.
//!
//! Invariant: the environment writes for each command the one event that the run machine writes, and nothing else, so
//! that what passes here is about authoring and drivers alone.

mod async_form;
mod branches;
mod cancellation;
mod concurrency;
mod determinism;
mod machine_form;
mod nondeterminism;
mod patches;

use std::time::Duration;

use serde::Serialize;

use super::*;
use crate::vocabulary::*;

pub(super) const SECOND: Duration = Duration::from_secs(1);

pub(super) fn options() -> ActivityOptions {
    ActivityOptions::start_to_close(SECOND)
}

pub(super) fn json(value: impl Serialize) -> Payload {
    Payload::encode(&value).unwrap()
}

pub(super) fn signal(name: &str, value: impl Serialize) -> WorkflowExecutionSignaled {
    WorkflowExecutionSignaled { name: name.into(), input: json(value), identity: None, request_id: None }
}

/// One run, its history, and what happens to it.
pub(super) struct World {
    pub(super) registry: WorkflowRegistry,
    pub(super) driver: Box<dyn Driver>,
    pub(super) turns: Vec<Turn>,
    pub(super) now: Timestamp,
    run_id: RunId,
    table: JobTable,
    history: HistorySize,
    workflow_type: WorkflowType,
}

pub(super) fn started(workflow_type: &str, input: Payload) -> WorkflowExecutionStarted {
    let request = StartWorkflow::new(workflow_type.into(), WorkflowId::of("test-1")).input(input);
    request.first_event(RunId([7; 16]), Timestamp(0))
}

impl World {
    /// Starts a run; its first turn has happened.
    pub(super) fn start(registry: &WorkflowRegistry, workflow_type: &str, input: impl Serialize) -> World {
        Self::start_with(registry, started(workflow_type, json(input)))
    }

    pub(super) fn start_with(registry: &WorkflowRegistry, started: WorkflowExecutionStarted) -> World {
        let run_id = RunId([7; 16]);
        let mut world = World {
            registry: registry.clone(),
            driver: registry.create(&started, run_id).unwrap(),
            turns: Vec::new(),
            now: Timestamp::from_millis(1_000),
            run_id,
            table: JobTable::default(),
            history: HistorySize::default(),
            workflow_type: started.workflow_type.clone(),
        };
        world.happen(EventKind::WorkflowExecutionStarted(Box::new(started)));
        world
    }

    /// One turn: the event, the activation it causes, and the events of its commands.
    pub(super) fn happen(&mut self, event: EventKind) -> Vec<Command> {
        self.history.events += 1;
        self.history.bytes += event.size();
        let job = job_of(&event, &self.table).expect("an activating event");
        self.table.apply(&event);
        let (at, run_id, history) = (self.now, self.run_id, self.history);
        let commands = self.driver.activate(Activation { at, run_id, history, job, markers: Markers::Fresh });
        let mut events = vec![event];
        for command in &commands {
            let event = command.clone().into_event(&self.workflow_type, RunId([8; 16]));
            self.history.events += 1;
            self.history.bytes += event.size();
            self.table.apply(&event);
            events.push(event);
        }
        self.append(events);
        commands
    }

    /// One turn as it was written before, whatever the code of today would ask for.
    pub(super) fn as_recorded(&mut self, events: Vec<EventKind>) {
        for event in &events {
            self.history.events += 1;
            self.history.bytes += event.size();
            self.table.apply(event);
        }
        self.append(events);
    }
    /// The code comes back by replay.
    #[track_caller]
    pub(super) fn reload(&mut self) {
        match replay(&self.registry, &self.turns) {
            Ok(replayed) => self.driver = replayed.driver,
            Err(why) => panic!("replay: {why}"),
        }
    }

    fn append(&mut self, events: Vec<EventKind>) {
        let first_event = self.turns.last().map_or(EventId(1), Turn::next_event);
        self.turns.push(Turn::of(self.run_id, first_event, self.now, self.registry.build_id(), events));
    }

    pub(super) fn complete(&mut self, seq: u64, result: impl Serialize) -> Vec<Command> {
        self.happen(EventKind::ActivityTaskCompleted { seq: Seq(seq), result: json(result), identity: None })
    }
    pub(super) fn fail(&mut self, seq: u64, failure: Failure) -> Vec<Command> {
        let retry_state = RetryState::MaximumAttemptsReached;
        self.happen(EventKind::ActivityTaskFailed { seq: Seq(seq), failure, retry_state })
    }
    pub(super) fn fire(&mut self, seq: u64) -> Vec<Command> {
        self.happen(EventKind::TimerFired { seq: Seq(seq) })
    }
    pub(super) fn signal(&mut self, name: &str, value: impl Serialize) -> Vec<Command> {
        self.happen(EventKind::WorkflowExecutionSignaled(signal(name, value)))
    }
    pub(super) fn cancel(&mut self) -> Vec<Command> {
        let reason = "enough".to_owned();
        self.happen(EventKind::WorkflowExecutionCancelRequested { reason, identity: None, request_id: None })
    }
    pub(super) fn update(&mut self, id: &str, name: &str, input: impl Serialize) -> Vec<Command> {
        let (update_id, name, input) = (UpdateId::of(id), UpdateName::of(name), json(input));
        self.happen(EventKind::WorkflowExecutionUpdateAccepted { update_id, name, input, identity: None })
    }
    pub(super) fn query(&mut self, name: &str) -> Result<Payload, QueryError> {
        self.driver.query(&QueryName::of(name), &Payload::null())
    }

    /// The command that closed the run, if it is closed.
    pub(super) fn events(&self) -> Vec<EventKind> {
        self.turns.iter().flat_map(|turn| turn.events.iter().cloned()).collect()
    }
    pub(super) fn last(&self) -> EventKind {
        self.events().pop().unwrap()
    }
    #[track_caller]
    pub(super) fn assert_completed(&self, result: impl Serialize) {
        match self.last() {
            EventKind::WorkflowExecutionCompleted { result: found, .. } => assert_eq!(found, json(result)),
            other => panic!("not completed: {other:?}"),
        }
    }
    #[track_caller]
    pub(super) fn failure(&self) -> Failure {
        match self.last() {
            EventKind::WorkflowExecutionFailed { failure, .. } => failure,
            other => panic!("not failed: {other:?}"),
        }
    }

    /// Replays every prefix of the history with new drivers: no mismatch, and the same commands each time.
    #[track_caller]
    pub(super) fn check_replay(&self) -> [u8; 32] {
        let mut digest = [0; 32];
        for end in 1..=self.turns.len() {
            match replay(&self.registry, &self.turns[..end]) {
                Ok(replayed) => digest = replayed.digest,
                Err(why) => panic!("replay of the first {end} turns: {why}"),
            }
        }
        digest
    }

    /// Replays this history with other code.
    pub(super) fn replay_with(&self, registry: &WorkflowRegistry) -> Result<Replayed, ReplayError> {
        replay(registry, &self.turns)
    }
    #[track_caller]
    pub(super) fn mismatch_with(&self, registry: &WorkflowRegistry) -> NonDeterminism {
        match self.replay_with(registry) {
            Ok(_) => panic!("the other code matches history"),
            Err(ReplayError::NonDeterminism(found)) => *found,
            Err(other) => panic!("{other}"),
        }
    }
}

/// The kinds of some commands, for tests of their order.
pub(super) fn kinds(commands: &[Command]) -> Vec<String> {
    commands
        .iter()
        .map(|command| match command {
            Command::ScheduleActivity { seq, activity_type, .. } => format!("{activity_type}#{seq}"),
            Command::RequestCancelActivity { seq } => format!("cancel activity#{seq}"),
            Command::StartTimer { seq, .. } => format!("timer#{seq}"),
            Command::CancelTimer { seq } => format!("cancel timer#{seq}"),
            Command::StartChildWorkflow { seq, workflow_id, .. } => format!("child {workflow_id}#{seq}"),
            Command::CancelChildWorkflow { seq, .. } => format!("cancel child#{seq}"),
            Command::SignalExternalWorkflow { seq, name, .. } => format!("signal {name}#{seq}"),
            Command::RequestCancelExternalWorkflow { seq, .. } => format!("cancel external#{seq}"),
            Command::RecordMarker(Marker::SideEffect { seq, .. }) => format!("side effect#{seq}"),
            Command::RecordMarker(Marker::Patch { id, .. }) => format!("patch {id}"),
            Command::UpsertSearchAttributes { .. } => "attributes".to_owned(),
            Command::ModifyMemo { .. } => "memo".to_owned(),
            Command::CompleteUpdate { update_id, result } => {
                format!("update {update_id} {}", if result.is_ok() { "ok" } else { "failed" })
            }
            Command::CompleteWorkflow { .. } => "complete".to_owned(),
            Command::FailWorkflow { failure, .. } => format!("fail {}", failure.type_name()),
            Command::CancelWorkflow { .. } => "canceled".to_owned(),
            Command::ContinueAsNew { .. } => "continue as new".to_owned(),
        })
        .collect()
}
