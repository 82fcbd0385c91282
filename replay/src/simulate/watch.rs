//! Watches drivers: what each activation asked for, as it happened, on the thread that simulates.
//!
//! Invariant: a watched driver behaves as the one inside. What was seen is kept per thread and taken by whoever
//! simulates there; nothing is kept on other threads.

use std::cell::RefCell;

use bosun_engine::workflow::{ReplayStep, Replayer, WorkflowRegistry};
use bosun_engine::*;
use serde::{Deserialize, Serialize};

use super::callers::RequestStacks;

/// What the code asked for in one activation.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct WatchedActivation {
    pub(crate) run: Option<RunId>,
    pub(crate) commands: Vec<Command>,
    /// Where in the code each was asked for.
    pub(crate) places: Vec<Option<CodeLocation>>,
    /// Through which functions, if that is wanted.
    #[serde(skip)]
    pub(super) stacks: RequestStacks,
}

impl WatchedActivation {
    /// One that is replayed.
    pub(crate) fn of(step: ReplayStep<'_>) -> Self {
        WatchedActivation::asked(step.commands, step.driver)
    }
    /// The last one, also if it does not fit.
    pub(crate) fn last_of(replayer: &mut Replayer<'_>) -> Self {
        let commands = replayer.produced().to_vec();
        replayer.driver().map(|driver| WatchedActivation::asked(&commands, driver)).unwrap_or_default()
    }
    fn asked(commands: &[Command], driver: &dyn Driver) -> Self {
        let places = (0..commands.len()).map(|at| driver.command_location(at)).collect();
        let stacks = LAST_STACKS.with(|last| last.borrow().clone());
        WatchedActivation { run: None, commands: commands.to_vec(), places, stacks }
    }
}

thread_local! {
    /// Of the last activation on this thread.
    static LAST_STACKS: RefCell<RequestStacks> = RefCell::default();
    static SEEN: RefCell<Option<Vec<WatchedActivation>>> = const { RefCell::new(None) };
}

/// The same code, watched.
pub(crate) fn watched(registry: WorkflowRegistry) -> WorkflowRegistry {
    registry.watched(|_, inside| Box::new(WatchedDriver(inside)))
}

/// Begins to keep what is seen on this thread.
pub(crate) fn begin() {
    SEEN.with(|seen| *seen.borrow_mut() = Some(Vec::new()));
}

/// Does something that is not seen, and forgets what was seen before: whoever looks for himself needs no copies.
pub(crate) fn unseen<T>(work: impl FnOnce() -> T) -> T {
    SEEN.with(|seen| *seen.borrow_mut() = None);
    let done = work();
    begin();
    done
}

/// What was seen since the last time.
pub(crate) fn take() -> Vec<WatchedActivation> {
    SEEN.with(|seen| seen.borrow_mut().as_mut().map(std::mem::take).unwrap_or_default())
}

struct WatchedDriver(Box<dyn Driver>);

impl Driver for WatchedDriver {
    fn activate(&mut self, activation: Activation) -> Vec<Command> {
        let run = Some(activation.run_id);
        drop(RequestStacks::take(0));
        let commands = self.0.activate(activation);
        let stacks = RequestStacks::take(commands.len());
        LAST_STACKS.with(|last| last.borrow_mut().clone_from(&stacks));
        SEEN.with(|seen| {
            if let Some(seen) = seen.borrow_mut().as_mut() {
                let places = (0..commands.len()).map(|at| self.0.command_location(at)).collect();
                seen.push(WatchedActivation { run, commands: commands.clone(), places, stacks });
            }
        });
        commands
    }
    fn overrun(&self) -> Option<String> {
        self.0.overrun()
    }
    fn forked(&mut self, run_id: RunId) {
        self.0.forked(run_id);
    }
    fn validate_update(&mut self, name: &UpdateName, input: &Payload) -> Result<(), Failure> {
        self.0.validate_update(name, input)
    }
    fn query(&mut self, name: &QueryName, input: &Payload) -> Result<Payload, QueryError> {
        self.0.query(name, input)
    }
    fn snapshot(&self) -> Option<Vec<u8>> {
        self.0.snapshot()
    }
    fn state_json(&self) -> Option<serde_json::Value> {
        self.0.state_json()
    }
    fn awaiting(&self) -> Vec<Awaited> {
        self.0.awaiting()
    }
    fn untaken_signals(&self) -> Vec<SignalName> {
        self.0.untaken_signals()
    }
    fn command_location(&self, index: usize) -> Option<CodeLocation> {
        self.0.command_location(index)
    }
}
