//! The client of a simulated world: signals, cancel requests, updates and queries.
//!
//! Invariant: a request is repeated under its id until it is answered, over crashes; what was answered is never lost, and
//! counts once (G1, G13). A query changes nothing (G19).

use bosun_engine::*;

use super::finding::Violation;
use super::world::{InputOutcome, Sent, World};

/// What the client does.
impl World<'_> {
    /// A request that the client repeats until it is answered; what was answered is never lost (G1, G13).
    fn send(&mut self, input: Input) -> Result<(), Violation> {
        self.sent.push(Sent { input: input.clone(), answer: None });
        self.try_send(self.sent.len() - 1)
    }

    fn try_send(&mut self, at: usize) -> Result<(), Violation> {
        let (Some(run_id), Some(sent)) = (self.main_run(), self.sent.get(at)) else { return Ok(()) };
        let input = sent.input.clone();
        let answer = match self.input(run_id, input)? {
            InputOutcome::Accepted { .. } => Some(Ok(())),
            InputOutcome::Refused(why) => {
                validator_looks_only(&self.sent[at].input, &why)?;
                Some(Err(why))
            }
            // The restart sends it again by itself.
            InputOutcome::Crashed => return Ok(()),
        };
        self.sent[at].answer = answer;
        Ok(())
    }

    /// After a restart, what was not answered is sent again under the same request id.
    pub(super) fn resend(&mut self) -> Result<(), Violation> {
        for at in 0..self.sent.len() {
            if self.sent[at].answer.is_none() {
                self.rare.hit("request repeated after a crash");
                self.try_send(at)?;
            }
        }
        Ok(())
    }

    fn request_id(&self) -> RequestId {
        RequestId::of(format!("client-{}", self.sent.len()))
    }

    pub(super) fn signal(&mut self, pick: u16) -> Result<(), Violation> {
        if self.plan.signals.is_empty() {
            return Ok(());
        }
        let (name, input) = self.plan.signals[usize::from(pick) % self.plan.signals.len()].clone();
        let request_id = Some(self.request_id());
        self.send(Input::Signal(WorkflowExecutionSignaled { name, input, identity: None, request_id }))
    }

    pub(super) fn cancel(&mut self) -> Result<(), Violation> {
        let request_id = Some(self.request_id());
        self.send(Input::RequestCancel { reason: "simulated".into(), identity: None, request_id })
    }

    pub(super) fn update(&mut self, pick: u16) -> Result<(), Violation> {
        if self.plan.updates.is_empty() {
            return Ok(());
        }
        let (name, input) = self.plan.updates[usize::from(pick) % self.plan.updates.len()].clone();
        let update_id = UpdateId::of(format!("update-{}", self.sent.len()));
        self.send(Input::Update { update_id, name, input, identity: None })
    }

    /// The last request again: it must change nothing.
    pub(super) fn repeat(&mut self) -> Result<(), Violation> {
        let Some((run_id, sent)) = self.main_run().zip(self.sent.last().cloned()) else { return Ok(()) };
        // An update is known in its own run only, as in Temporal.
        if !matches!(sent.answer, Some(Ok(()))) || matches!(sent.input, Input::Update { .. }) {
            return Ok(());
        }
        match self.input(run_id, sent.input)? {
            InputOutcome::Accepted { events } if events > 0 => {
                Err(Violation::Guarantee { id: "G13", why: "a repeated request was carried out again".into() })
            }
            InputOutcome::Accepted { .. } | InputOutcome::Refused(_) | InputOutcome::Crashed => {
                self.rare.hit("repeated request recognised");
                Ok(())
            }
        }
    }

    /// A query changes nothing, not even in a way that only shows later.
    pub(super) fn query(&mut self, pick: u16) -> Result<(), Violation> {
        let (Some(run_id), false) = (self.main_run(), self.plan.queries.is_empty()) else { return Ok(()) };
        let (name, input) = self.plan.queries[usize::from(pick) % self.plan.queries.len()].clone();
        let mut execution = self.load(run_id)?;
        let before = execution.state_json();
        let answer = execution.query(&name, &input);
        let after = execution.state_json();
        if let Some(run) = self.runs.get_mut(&run_id) {
            run.execution = Some(execution);
        }
        self.doubts.calls()?;
        match answer {
            Err(Rejection::Query(QueryError::Mutated { name, what })) => {
                Err(Violation::QueryMutates { query: name, what })
            }
            Err(Rejection::Query(QueryError::Unknown { name, known })) => {
                let why = format!(
                    "the workflow does not answer the query {name}; it answers: {}",
                    if known.is_empty() { "none".to_owned() } else { known.join(", ") }
                );
                Err(Violation::Setup { why })
            }
            _ if before != after => Err(Violation::QueryMutates { query: name, what: "its state".into() }),
            _ => {
                self.rare.hit("query answered");
                Ok(())
            }
        }
    }
}

/// What the engine refuses because the validator changed something is no refusal of the code.
fn validator_looks_only(input: &Input, refused: &Rejection) -> Result<(), Violation> {
    match (input, refused) {
        (Input::Update { name, .. }, Rejection::UpdateRefused { failure, .. })
            if failure.type_name() == FAILURE_VALIDATOR_MUTATED =>
        {
            Err(Violation::ValidatorMutates { update: name.clone(), what: failure.message.clone() })
        }
        _ => Ok(()),
    }
}
