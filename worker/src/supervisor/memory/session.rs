//! The memory of a run's session: fetched before planning, asked for advice, and told of success.
//!
//! ```text
//! no session: ready        fetch -> advise -> ready
//!                            '-> fetch-basic -'-> ready (without memory)
//! ```
//!
//! Invariant: without a session nothing is asked; nothing that fails here fails the run. The advisor is a call, hence
//! recorded; one that fails or answers nonsense is replaced by the pure [`suggest`] on the recorded memory.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::advisor::{Advice, SessionMemory, suggest, warn};
use crate::supervisor::core::key::MemoryKey;
use crate::supervisor::outbox::{Answer, Call, Outbox, Purpose};
use crate::supervisor::reading::read;
use crate::supervisor::spec::{Memory, Ratio};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum MemoryPhase {
    #[default]
    Idle,
    Fetching,
    FetchingBasic,
    Advising,
    Ready,
}

#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct SessionMemoryPart {
    rules: Memory,
    session: String,
    query: String,
    stage: MemoryPhase,
    /// As it was fetched.
    fetched: Option<Value>,
    memory: Option<SessionMemory>,
    advice: Option<Advice>,
    recorded: bool,
}

impl SessionMemoryPart {
    pub fn new(rules: Memory) -> Self {
        SessionMemoryPart { rules, ..SessionMemoryPart::default() }
    }

    /// The run begins. [`SessionMemoryPart::is_ready`] says whether planning may.
    pub fn start(&mut self, session: Option<&str>, query: &str, out: &mut Outbox) {
        if self.stage != MemoryPhase::Idle {
            return;
        }
        (self.session, self.query) = (session.unwrap_or_default().to_owned(), query.to_owned());
        if self.session.is_empty() || !self.rules.advisor {
            self.stage = MemoryPhase::Ready;
            return;
        }
        self.stage = MemoryPhase::Fetching;
        self.fetch(MemoryKey::Fetch, "supervisor", out);
    }

    /// The answer to a call that was asked for here. One that is not waited for changes nothing.
    pub fn answered(&mut self, key: MemoryKey, answer: &Answer, out: &mut Outbox) {
        match (key, self.stage) {
            (MemoryKey::Fetch, MemoryPhase::Fetching) => match remembered(answer) {
                Ok(memory) => self.fetched(answer, memory, out),
                Err(()) => {
                    self.stage = MemoryPhase::FetchingBasic;
                    self.fetch(MemoryKey::FetchBasic, "basic", out);
                }
            },
            (MemoryKey::FetchBasic, MemoryPhase::FetchingBasic) => match remembered(answer) {
                Ok(memory) => self.fetched(answer, memory, out),
                Err(()) => self.stage = MemoryPhase::Ready,
            },
            (MemoryKey::Advise, MemoryPhase::Advising) => self.advised(answer),
            // Fire and forget: whatever becomes of it.
            (MemoryKey::Fetch | MemoryKey::FetchBasic | MemoryKey::Advise | MemoryKey::Record, _) => {}
        }
    }

    pub fn is_ready(&self) -> bool {
        self.stage == MemoryPhase::Ready
    }

    pub fn advice(&self) -> Option<&Advice> {
        self.advice.as_ref()
    }

    /// The strategy to execute a plan with.
    pub fn strategy_over(&self, planned: &str) -> String {
        let above = self.rules.override_above.as_bp();
        self.advice.as_ref().map_or_else(|| planned.to_owned(), |advice| advice.strategy_over(planned, above))
    }

    /// The context with what is remembered and warned of; one that is missing is made.
    pub fn with_memory(&self, context: Option<Value>) -> Value {
        let mut context = match context {
            Some(Value::Object(fields)) => fields,
            _ => Map::new(),
        };
        if let Some(fetched) = &self.fetched {
            context.insert("memory".to_owned(), fetched.clone());
        }
        // SHN-43: the planner hears what is advised, and how much it is worth.
        if let Some(Advice { strategy, confidence_bp, .. }) = &self.advice {
            let advice = json!({ "strategy": strategy, "confidence": Ratio::from_bp(*confidence_bp) });
            context.insert("memory_advice".to_owned(), advice);
        }
        let warnings = self.advice.as_ref().map_or(&[][..], |advice| &advice.warnings);
        if !warnings.is_empty() {
            context.insert("memory_warnings".to_owned(), json!(warnings));
        }
        Value::Object(context)
    }

    /// The run has succeeded with this plan: the session learns it. Once, and nobody waits for it.
    pub fn succeeded(&mut self, strategy: &str, subtasks: &Value, out: &mut Outbox) {
        if self.session.is_empty() || !self.rules.record || self.recorded {
            return;
        }
        self.recorded = true;
        let context = json!({
            "session_id": self.session, "query_pattern": self.query, "strategy": strategy, "subtasks": subtasks,
            "success_rate": 1.0,
        });
        out.call(Call::new(MemoryKey::Record, Purpose::RecordDecomposition, context));
    }

    fn fetch(&self, key: MemoryKey, level: &str, out: &mut Outbox) {
        let context = json!({ "session_id": self.session, "query": self.query, "level": level });
        out.call(Call::new(key, Purpose::FetchMemory, context));
    }

    fn fetched(&mut self, answer: &Answer, memory: Option<SessionMemory>, out: &mut Outbox) {
        let Some(memory) = memory else {
            self.stage = MemoryPhase::Ready;
            return;
        };
        self.fetched = answer.as_ref().ok().cloned();
        self.memory = Some(memory);
        self.stage = MemoryPhase::Advising;
        let context = json!({ "query": self.query, "memory": self.fetched });
        out.call(Call::new(MemoryKey::Advise, Purpose::Advise, context));
    }

    fn advised(&mut self, answer: &Answer) {
        let memory = self.memory.clone().unwrap_or_default();
        let given = answer.as_ref().ok().and_then(|value| read::<Advice>("advice", value).ok());
        let mut advice = given.unwrap_or_else(|| suggest(&self.query, &memory, &self.rules));
        // The warnings are rules, not opinions: no advisor talks them away.
        warn(&self.query, &memory, &self.rules, &mut advice);
        self.advice = Some(advice);
        self.stage = MemoryPhase::Ready;
    }
}

/// What was fetched: nothing, a memory, or an answer that is none.
fn remembered(answer: &Answer) -> Result<Option<SessionMemory>, ()> {
    match answer {
        Ok(Value::Null) => Ok(None),
        Ok(value) => serde_json::from_value(value.clone()).map(Some).map_err(drop),
        Err(_) => Err(()),
    }
}
