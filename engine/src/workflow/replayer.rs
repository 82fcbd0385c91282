//! Replays the turns of a run through its code, without a run machine, a clock or an effect.
//!
//! Invariant: the code gets exactly the jobs that history holds, at the times that history holds, and every activation
//! is checked. The same turns give the same digest of commands on every machine and in every build profile (
//! G21). Nothing is executed.

use super::jobs::{JobSources, JobTable, job_of, markers_of};
use super::matcher::{RunIdentity, check_activation};
use super::nondeterminism::NonDeterminism;
use super::registry::WorkflowRegistry;
use crate::vocabulary::*;

/// Why a history cannot be replayed.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum ReplayError {
    /// There is no turn.
    #[error("the history is empty")]
    Empty,
    /// The first event is not the start of a run.
    #[error("the history begins with {found} instead of WorkflowExecutionStarted")]
    NotStarted {
        /// The name of its kind.
        found: &'static str,
    },
    /// Events are missing, or there twice.
    #[error(
        "a turn begins with event {event_id} where event {expected} should follow: events are missing, doubled or out of order"
    )]
    Gap {
        /// The id that should follow.
        expected: EventId,
        /// The id that does.
        event_id: EventId,
    },
    /// The event refers to something that the history does not hold.
    #[error("event {event_id} ({name}) refers to something that the history does not hold")]
    NoJob {
        /// The event.
        event_id: EventId,
        /// The name of its kind.
        name: &'static str,
    },
    /// The registry has no code of the run's type.
    #[error(transparent)]
    UnknownWorkflow(#[from] Rejection),
    /// The code asks for something else than the history holds.
    #[error(transparent)]
    NonDeterminism(#[from] Box<NonDeterminism>),
}

/// A run whose history has been replayed to the end.
pub struct Replayed {
    /// The code as it is after the last event.
    pub driver: Box<dyn Driver>,
    /// How many turns of the code there were.
    pub activations: u64,
    /// How many commands the code asked for in all.
    pub commands: u64,
    /// blake3 over the canonical encoding of all commands, activation by activation.
    pub digest: [u8; 32],
}

/// One activation, for those who watch: the debugger, the timeline.
pub struct ReplayStep<'a> {
    /// The event that the code was told.
    pub event: &'a Event,
    /// What it asked for in answer.
    pub commands: &'a [Command],
    /// The code as it is now: its state and what it waits for.
    pub driver: &'a mut dyn Driver,
}

/// Goes through a history turn by turn.
pub struct Replayer<'a> {
    registry: &'a WorkflowRegistry,
    run: Option<(RunIdentity, Box<dyn Driver>)>,
    /// Whose ids the code sees; another run's for events that a fork has copied.
    visible_run_id: Option<RunId>,
    table: JobTable,
    history: HistorySize,
    /// What the code is told of it in this turn, where that is something else.
    size_told: Option<HistorySize>,
    next_event: EventId,
    activations: u64,
    commands: u64,
    hasher: blake3::Hasher,
    /// Where commands are encoded for the digest, one after the other.
    encoded: Vec<u8>,
    produced: Vec<Command>,
}

/// Replays a whole history.
pub fn replay(registry: &WorkflowRegistry, turns: &[Turn]) -> Result<Replayed, ReplayError> {
    let mut replayer = Replayer::new(registry);
    for turn in turns {
        replayer.turn(turn, &mut |_| {})?;
    }
    replayer.finish()
}

impl<'a> Replayer<'a> {
    /// A replayer that has seen nothing yet.
    pub fn new(registry: &'a WorkflowRegistry) -> Self {
        Replayer {
            registry,
            run: None,
            visible_run_id: None,
            table: JobTable::default(),
            history: HistorySize::default(),
            size_told: None,
            next_event: EventId(1),
            activations: 0,
            commands: 0,
            hasher: blake3::Hasher::new(),
            encoded: Vec::new(),
            produced: Vec::new(),
        }
    }

    /// Replays one turn; `watch` sees every activation after it was checked.
    pub fn turn(&mut self, turn: &Turn, watch: &mut dyn FnMut(ReplayStep<'_>)) -> Result<(), ReplayError> {
        if turn.first_event != self.next_event {
            return Err(ReplayError::Gap { expected: self.next_event, event_id: turn.first_event });
        }
        self.next_event = turn.next_event();
        self.size_told = turn.size_told;
        let events: Vec<Event> = turn.numbered().collect();
        let mut rest = &events[..];
        while let Some((event, after)) = rest.split_first() {
            rest = after;
            self.count(&event.kind);
            // Nobody was there to hear of the request that ended a run before its code began.
            let unheard = self.table.is_before_its_code()
                && matches!(event.kind, EventKind::WorkflowExecutionCancelRequested { .. });
            if unheard || event.kind.origin() != Origin::Activating {
                self.apply(turn.run, event)?;
                continue;
            }
            let end = after.iter().position(|next| next.kind.origin() == Origin::Activating).unwrap_or(after.len());
            self.activate(turn.run, event, &after[..end], watch)?;
        }
        Ok(())
    }

    /// The driver as it stands.
    pub fn driver(&mut self) -> Option<&mut dyn Driver> {
        match &mut self.run {
            Some((_, driver)) => Some(driver.as_mut()),
            None => None,
        }
    }

    /// What the code asked for in the last activation, also in one that did not match.
    pub fn produced(&self) -> &[Command] {
        &self.produced
    }

    /// The driver and the counts. Fails if no turn was given.
    pub fn finish(self) -> Result<Replayed, ReplayError> {
        let (_, driver) = self.run.ok_or(ReplayError::Empty)?;
        let digest = *self.hasher.finalize().as_bytes();
        Ok(Replayed { driver, activations: self.activations, commands: self.commands, digest })
    }

    fn activate(
        &mut self,
        run_id: RunId,
        event: &Event,
        recorded: &[Event],
        watch: &mut dyn FnMut(ReplayStep<'_>),
    ) -> Result<(), ReplayError> {
        // A start must be known before its job is made; ends must not be forgotten before theirs.
        if matches!(event.kind, EventKind::WorkflowExecutionStarted(_)) {
            self.apply(run_id, event)?;
        }
        let job = job_of(&event.kind, &self.table)
            .ok_or(ReplayError::NoJob { event_id: event.id, name: event.kind.name() })?;
        let (identity, driver) = self.run.as_mut().ok_or(ReplayError::NotStarted { found: event.kind.name() })?;
        let markers = markers_of(recorded.iter().map(|event| &event.kind));
        let run_id = self.visible_run_id.unwrap_or(run_id);
        let history = self.size_told.unwrap_or(self.history);
        let activation = Activation { at: event.at, run_id, history, job, markers };
        self.produced = driver.activate(activation);
        let commands = &self.produced;
        check_activation(identity, event, commands, &|index| driver.command_location(index), recorded)
            .map_err(Box::new)?;
        self.activations += 1;
        self.commands += commands.len() as u64;
        for command in commands {
            // Commands are plain data; encoding them cannot fail.
            self.encoded.clear();
            let _ = rmp_serde::encode::write(&mut self.encoded, command);
            self.hasher.update(&(self.encoded.len() as u64).to_be_bytes()).update(&self.encoded);
        }
        self.hasher.update(&u64::MAX.to_be_bytes());
        watch(ReplayStep { event, commands, driver: driver.as_mut() });
        self.table.apply(&event.kind);
        Ok(())
    }

    fn apply(&mut self, run_id: RunId, event: &Event) -> Result<(), ReplayError> {
        self.table.apply(&event.kind);
        match (&event.kind, &mut self.run) {
            (EventKind::WorkflowExecutionStarted(started), None) => {
                let driver = self.registry.create(started, run_id)?;
                let identity = RunIdentity {
                    run_id,
                    workflow_id: started.workflow_id.clone(),
                    workflow_type: started.workflow_type.clone(),
                    current_build: self.registry.build_id(),
                };
                self.run = Some((identity, driver));
                self.visible_run_id = Some(started.original_run(run_id));
                Ok(())
            }
            (EventKind::WorkflowExecutionForked { run_id, .. }, Some((_, driver))) => {
                driver.forked(*run_id);
                self.visible_run_id = Some(*run_id);
                Ok(())
            }
            (_, Some(_)) => Ok(()),
            (other, None) => Err(ReplayError::NotStarted { found: other.name() }),
        }
    }

    /// The size that the run machine counts too, because workflow code can see it.
    fn count(&mut self, event: &EventKind) {
        self.history.events += 1;
        self.history.bytes += event.size();
    }
}
