//! What a scene asks of its worker: queries at times, and whatever a client asks beside it.
//!
//! Invariant: the worker goes on while somebody asks, as far as it can without its timers; time passes only to a moment that
//! the scene asks about, and never past what is next. It changes nothing of a run but by what it sends.

use std::sync::{Arc, Mutex, PoisonError};

use bosun_engine::*;
use serde_json::Value;

use super::judge::query_name;
use super::life::{BEGIN, Life, Stuck, WORKFLOW_ID};

impl Life<'_> {
    /// Asks what the scene wants to know at times before the next moment, or, at the end, all that is left.
    pub(super) fn ask_at_times(&mut self, before: Option<Option<Timestamp>>) -> Result<(), Stuck> {
        loop {
            let Some(asked) = &self.asked else { return Ok(()) };
            let Some((at, query)) = self.scene.expect.queries.get(asked.len()) else { return Ok(()) };
            let at = at.map(|at| BEGIN.plus(at));
            match (before, at) {
                (Some(_), None) => return Ok(()),
                (Some(Some(next)), Some(at)) if at >= next => return Ok(()),
                (_, Some(at)) if !self.outside.is_over() => self.worker.advance_to(at.max(self.now())),
                _ => {}
            }
            let answer = self.query(&query_name(&query.query), query.input.clone());
            self.asked.iter_mut().for_each(|asked| asked.push(answer.clone()));
            self.drain()?;
        }
    }

    /// Asks the first run something.
    pub(crate) fn query(&mut self, name: &str, input: Value) -> Result<Value, String> {
        let target = Target::workflow(WorkflowId::of(WORKFLOW_ID));
        self.query_of(target, name, input)
    }

    pub(super) fn query_of(&mut self, target: Target, name: &str, input: Value) -> Result<Value, String> {
        let name = QueryName::new(name).map_err(|why| why.to_string())?;
        let input = Payload::encode(&input).map_err(|why| why.to_string())?;
        let answer = self.ask(|client| async move { client.query(&target, &name, input).await });
        answer.map(|payload| payload.to_json()).map_err(|why| why.to_string())
    }

    /// What a client does beside the worker, which goes on meanwhile.
    pub(super) fn ask<T, F>(&mut self, request: impl FnOnce(Client) -> F) -> Result<T, Rejection>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, Rejection>> + Send + 'static,
    {
        let slot = Arc::new(Mutex::new(None));
        let (answering, answer) = (request(self.worker.client()), slot.clone());
        self.worker.spawn(async move {
            let answered = answering.await;
            *answer.lock().unwrap_or_else(PoisonError::into_inner) = Some(answered);
        });
        self.worker.tasks();
        for _ in 0..1_000 {
            if let Some(answered) = slot.lock().unwrap_or_else(PoisonError::into_inner).take() {
                return answered;
            }
            if let Err(stuck) = self.drain() {
                // Said by the next one who looks.
                self.stuck = Some(stuck);
            }
            self.worker.tasks();
        }
        Err(Rejection::Held { why: "the worker gives no answer".into() })
    }
}
