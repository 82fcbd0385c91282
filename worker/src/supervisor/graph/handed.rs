//! What comes back of a request that was handed on as a whole (SHN-01, SHN-02, SHN-34).
//!
//! Invariant: the report of the run that carried it out is this run's: its result, its tasks, and what it says of its
//! success; of one that was cancelled with this run, its tasks. A failure there is one here, and a result is never thrown
//! away. It starts nothing but what a plan of its own would: the synthesis, where recruits of this run brought something too.

use super::*;
use crate::supervisor::core::strategy::{NotDone, TaskReport};
use crate::supervisor::success::Claim;

/// By this name the results of a request that was handed on stand beside those of recruits.
const REQUEST: &str = "request";

/// How the run ended that a request was handed on to.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Handed {
    /// How it calls its end.
    pub phase: Phase,
    pub success: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<Value>,
    /// Why it has no result, or is no success.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// In a word, for programs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// A person has said no to a part of it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub said_no: bool,
    #[serde(default)]
    pub tasks: Vec<TaskReport>,
    #[serde(default)]
    pub not_done: Vec<NotDone>,
}

impl Handed {
    pub(super) fn claim(&self) -> Claim {
        Claim { phase: self.phase, success: self.success }
    }
}

impl Graph {
    /// What was handed on has come back: its result is the run's, together with what recruits gave.
    pub fn handed_back(&mut self, answer: Answer, gates: &mut dyn Gates, out: &mut Outbox) {
        let report = answer.map_err(|why| why.message);
        let report = report.and_then(|report| read::<Handed>("report", &report).map_err(|why| why.to_string()));
        let handed = match report {
            Ok(handed) => handed,
            Err(why) => return self.abort("handed_on_failed", why, Value::Null, gates, out),
        };
        let (result, why) = (handed.result.clone(), handed.why.clone());
        self.handed = Some(handed);
        match result {
            None => {
                let why = why.unwrap_or_else(|| "no result".to_owned());
                self.abort("handed_on_failed", why, Value::Null, gates, out);
            }
            Some(result) if gates.busy().is_none() && gates.more_results().is_empty() => {
                self.end_in_shape(Some(result), gates, out);
            }
            // Recruits are waited for, and heard.
            Some(_) => self.advance(gates, out),
        }
    }

    /// The run that the request was handed on to was cancelled with this one: how far its tasks came.
    pub(super) fn handed_on_is_cut(&mut self, tasks: Vec<TaskReport>) {
        let not_done = NotDone::among(&tasks);
        let (phase, said_no) = (Phase::Failed, false);
        self.handed =
            Some(Handed { phase, success: false, result: None, why: None, code: None, said_no, tasks, not_done });
    }

    /// The result of the request, by its name among those of recruits.
    pub(super) fn handed_result(&self) -> Option<(String, Value)> {
        let result = self.handed.as_ref()?.result.clone()?;
        Some((REQUEST.to_owned(), result))
    }
}
