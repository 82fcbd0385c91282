//! Code that begins when it has heard the signals that came with its start (E12).
//!
//! ```text
//!   Started (one signal at its start)  ─►  nothing is asked for yet
//!   Signaled                           ─►  the code begins, and finds the signal waiting
//! ```
//!
//! Invariant: each event stays one activation, with the commands that follow it; only when the code begins is another. What
//! else reaches a run before those signals, which no engine sends, lets it begin as it is. The driver inside knows nothing of this.

use std::mem;

use crate::vocabulary::*;

pub(super) struct SignaledStart {
    driver: Box<dyn Driver>,
    /// The start, while signals are missing, and how many.
    waits: Option<(Box<WorkflowExecutionStarted>, u32)>,
    /// How many commands of the last activation an earlier one in it had.
    before: usize,
}

impl SignaledStart {
    /// The driver of a run that this event begins.
    pub(super) fn over(driver: Box<dyn Driver>, started: &WorkflowExecutionStarted) -> Box<dyn Driver> {
        match started.signals_at_start {
            None | Some(0) => driver,
            Some(_) => Box::new(SignaledStart { driver, waits: None, before: 0 }),
        }
    }

    fn begin(&mut self, started: Box<WorkflowExecutionStarted>, of: &Activation) -> Vec<Command> {
        let Activation { at, run_id, history, ref markers, .. } = *of;
        let job = Job::InitializeWorkflow(started);
        self.driver.activate(Activation { at, run_id, history, job, markers: markers.clone() })
    }
}

impl Driver for SignaledStart {
    fn activate(&mut self, activation: Activation) -> Vec<Command> {
        self.before = 0;
        let (mut started, left) = match (&activation.job, mem::take(&mut self.waits)) {
            (Job::InitializeWorkflow(started), None) => {
                self.waits = started.signals_at_start.map(|signals| (started.clone(), signals));
                return Vec::new();
            }
            (_, None) => return self.driver.activate(activation),
            (_, Some(waits)) => waits,
        };
        if let Job::SignalWorkflow(signal) = &activation.job {
            started.carried_signals.push(signal.clone());
            if left > 1 {
                self.waits = Some((started, left - 1));
                return Vec::new();
            }
            return self.begin(started, &activation);
        }
        let mut commands = self.begin(started, &activation);
        if self.driver.overrun().is_none() && self.driver.defect().is_none() {
            self.before = commands.len();
            commands.extend(self.driver.activate(activation));
        }
        commands
    }
    fn overrun(&self) -> Option<String> {
        self.driver.overrun()
    }
    fn defect(&self) -> Option<WorkflowDefect> {
        self.driver.defect()
    }
    fn takes_payloads_of(&mut self, bytes_max: usize) {
        self.driver.takes_payloads_of(bytes_max);
    }
    fn forked(&mut self, run_id: RunId) {
        self.driver.forked(run_id);
    }
    fn validate_update(&mut self, name: &UpdateName, input: &Payload) -> Result<(), Failure> {
        self.driver.validate_update(name, input)
    }
    fn query(&mut self, name: &QueryName, input: &Payload) -> Result<Payload, QueryError> {
        self.driver.query(name, input)
    }
    fn snapshot(&self) -> Option<Vec<u8>> {
        if self.waits.is_some() { None } else { self.driver.snapshot() }
    }
    fn state_json(&self) -> Option<serde_json::Value> {
        self.driver.state_json()
    }
    fn awaiting(&self) -> Vec<Awaited> {
        self.driver.awaiting()
    }
    fn untaken_signals(&self) -> Vec<SignalName> {
        let came = self.waits.iter().flat_map(|(started, _)| &started.carried_signals);
        came.map(|signal| signal.name.clone()).chain(self.driver.untaken_signals()).collect()
    }
    fn command_location(&self, index: usize) -> Option<CodeLocation> {
        self.driver.command_location(index.checked_sub(self.before)?)
    }
}
