//! The plan of a simulated life of the engine: the code, what may be started and said, and the choices.
//!
//! Invariant: a plan decides everything. It runs nothing by itself.

use std::fmt::Write;

use bosun_engine::workflow::WorkflowRegistry;
use bosun_engine::*;

use super::choices::{StepChoices, choices_of};

/// Which faults a life may meet: its profile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FaultProfile {
    /// None: only the order of things is chosen.
    None,
    /// Workers are killed, lose power, or stop in order, and are started again.
    Crashes,
    /// The storage fails, before or after a write, or is full; then another worker takes over.
    Storage,
    /// Threads of shards stand still for a while.
    Stalls,
    /// Everything.
    All,
}

/// See the module.
#[derive(Clone)]
pub struct EnginePlan {
    /// The versions of the code, in the order in which restarts deploy them; each fits histories of those before.
    pub code: Vec<WorkflowRegistry>,
    /// What clients may start: type, workflow id and input. Request ids and policies are chosen.
    pub starts: Vec<StartWorkflow>,
    /// The activity types that the code asks for.
    pub activities: Vec<ActivityType>,
    /// How attempts can end; the first is a success, with which a life comes to rest.
    pub results: Vec<ActivityOutcome>,
    /// Signals that clients send.
    pub signals: Vec<(SignalName, Payload)>,
    /// Updates that clients send.
    pub updates: Vec<(UpdateName, Payload)>,
    /// Queries that clients ask.
    pub queries: Vec<(QueryName, Payload)>,
    /// Which faults there are.
    pub faults: FaultProfile,
    /// The first ones are for how the worker is made, the others for a step each.
    pub choices: Vec<StepChoices>,
}

impl EnginePlan {
    /// A plan without anything to do.
    pub fn new(code: WorkflowRegistry) -> Self {
        EnginePlan {
            code: vec![code],
            starts: Vec::new(),
            activities: Vec::new(),
            results: vec![ActivityOutcome::Completed(Payload::null())],
            signals: Vec::new(),
            updates: Vec::new(),
            queries: Vec::new(),
            faults: FaultProfile::All,
            choices: Vec::new(),
        }
    }
    /// The same plan with the choices of a seed, for so many steps.
    pub fn seeded(mut self, seed: u64, steps: usize) -> Self {
        self.choices = choices_of(seed, steps);
        self
    }
    /// What a reader needs to see of a plan that failed: the starts and the choices.
    pub fn describe(&self) -> String {
        let mut text = String::new();
        for start in &self.starts {
            // Writing to a String cannot fail.
            let _ =
                writeln!(text, "start {} as {} with {}", start.workflow_type, start.workflow_id, start.input.to_json());
        }
        let _ = writeln!(text, "choices {:?}", self.choices);
        text
    }
}
