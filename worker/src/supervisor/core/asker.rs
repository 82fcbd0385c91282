//! What a strategy says of its own calls, for whoever carries them out: how an answer is read, in which shape it is wanted,
//! whose tools it may ask for, and whose time it takes.
//!
//! Invariant: calls are carried out and charged by what is said here, and by no knowledge of who asks. What is not said is
//! that of a plain question, whose answer is taken as it is. Nothing here decides.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::supervisor::outbox::{Call, Purpose};

/// How whoever asked reads an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AnswerForm {
    /// As it is.
    Plain,
    /// What a worker gives: its result alone, or a reply that says more of it.
    Reply,
    /// What a participant says in a conversation: a message.
    Message,
    /// One result of all, alone or beside what it cost.
    Result,
}

/// The shape that an answer must have, for models: a name and a JSON Schema. The asker reads every answer that fits it.
#[derive(Debug, Clone, PartialEq)]
pub struct AnswerShape {
    pub name: &'static str,
    pub schema: Value,
}

/// A tool as a model is offered it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ToolOffer {
    pub name: String,
    #[serde(default)]
    pub description: String,
    /// The JSON Schema of its arguments.
    #[serde(default = "no_arguments")]
    pub parameters: Value,
}

fn no_arguments() -> Value {
    json!({ "type": "object" })
}

/// Somebody to hand over to.
#[derive(Debug, Clone, PartialEq)]
pub struct HandOffOffer {
    pub to: String,
    pub tool: ToolOffer,
}

/// Whose time a call takes, where neither it nor whoever is called says how long that is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallTime {
    /// That of any call.
    Usual,
    /// That of a delegation, where one that takes longer has failed (CUG-41).
    Delegation,
    /// Whoever gave the work to an agent below has a deadline of its own for it, in the background none (SUP-22).
    OfGiver,
}

/// See the module.
pub trait Asker {
    fn reads(&self, _purpose: Purpose) -> AnswerForm {
        AnswerForm::Plain
    }
    /// None where a text is wanted.
    fn shape(&self, _call: &Call) -> Option<AnswerShape> {
        None
    }
    /// Whether the run itself carries out the tools that an answer asks for.
    fn runs_tools(&self) -> bool {
        false
    }
    /// Whom an answer to the call may hand over to, each with the tool that does it.
    fn hand_offs(&self, _call: &Call) -> Vec<HandOffOffer> {
        Vec::new()
    }
    fn time(&self, _call: &Call) -> CallTime {
        CallTime::Usual
    }
}
