//! What became of an answer that was sent: the run decides whether it counts, and says so in what it notes.
//!
//! Invariant: it is said to count unless the run, or its history, tells that another one came first. It changes nothing, and
//! waits no longer than [`WAIT`].

use std::time::{Duration, Instant};

use bosun_engine::*;
use serde_json::Value;

use super::{SIGNAL_ANSWER, entries};
use crate::backend::{Backend, CallError};

/// A run that goes on takes what it is told within milliseconds.
const WAIT: Duration = Duration::from_secs(2);
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// Events at the end of a history, among which the answers are that came since the request was seen.
const LOOKED_AT: u64 = 1_000;
/// What of an answer says what it answers.
const NAMES: [&str; 4] = ["approval_id", "interrupt_id", "id", "hash"];

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Became {
    /// The run has taken it.
    Taken,
    /// Something else came first; what, in words.
    Before(String),
    /// The run does not take it, in its own words, and waits for another one.
    Refused(String),
    /// The run has not looked at it yet, because it is paused or held, or busy.
    Waits,
}

/// An answer on its way.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SentAnswer<'a> {
    /// The run that it was sent to.
    pub to: &'a Target,
    pub signal: &'a str,
    pub input: &'a Value,
    /// By which it is known in the history.
    pub key: &'a RequestId,
}

/// A key for an answer that was given none.
pub(crate) fn fresh_key() -> std::io::Result<RequestId> {
    let key = format!("answer-{}", crate::api::token::random_hex(8)?);
    RequestId::new(key).map_err(|why| std::io::Error::other(why.to_string()))
}

impl SentAnswer<'_> {
    /// Waits a moment for the run to take it.
    pub(crate) async fn became(&self, backend: &dyn Backend) -> Became {
        let until = Instant::now() + WAIT;
        loop {
            match self.look(backend).await {
                Ok(Some(became)) => return became,
                Ok(None) | Err(_) if Instant::now() < until => tokio::time::sleep(LOOK_EVERY).await,
                Ok(None) | Err(_) => return Became::Waits,
            }
        }
    }

    /// What can be told now.
    pub(crate) async fn look(&self, backend: &dyn Backend) -> Result<Option<Became>, CallError> {
        let waits = entries(backend, self.to, self.query()).await;
        if !waits.is_ok_and(|waits| waits.iter().all(|one| one["id"] != self.id())) {
            if let Some(why) = self.refused(backend).await {
                return Ok(Some(Became::Refused(why)));
            }
            let found = backend.describe(self.to.clone()).await?;
            let stands = found.info.status == WorkflowStatus::Paused || found.held.is_some();
            return Ok(stands.then_some(Became::Waits));
        }
        let note = noted(backend, self.to, self.id()).await;
        let said = self.answers(backend).await?;
        Ok(Some(self.judged(note.as_ref(), &said)))
    }

    fn judged(&self, note: Option<&Value>, said: &[WorkflowExecutionSignaled]) -> Became {
        let counted = match note {
            Some(note) if note["kind"] == "ApprovalDecided" => {
                let data = &note["data"];
                let fits = |input: &Value| {
                    input["approved"] == data["approved"]
                        && (input["approver"].is_null() || input["approver"] == data["approver"])
                };
                // Only the first that says so: those after it came too late.
                match said.iter().find(|one| fits(&one.input.to_json())) {
                    None if fits(self.input) && said.is_empty() => return Became::Taken,
                    found => found,
                }
            }
            // Those before it may have been none.
            Some(note) if note["kind"] == "InterruptAnswered" && !note["data"]["error"].is_string() => {
                said.iter().find(|one| one.input.to_json()["resume"] == note["data"]["answer"])
            }
            Some(_) => None,
            None => said.first(),
        };
        match (counted, note) {
            (Some(one), _) if one.request_id.as_ref() == Some(self.key) => Became::Taken,
            (_, Some(note)) => Became::Before(in_words(note).unwrap_or_else(|| "it does not wait any more".into())),
            (Some(one), None) => Became::Before(said_in_words(one)),
            (None, None) => Became::Taken,
        }
    }

    /// Why the run has not taken an answer to a question that says what this one does.
    async fn refused(&self, backend: &dyn Backend) -> Option<String> {
        if self.signal != SIGNAL_ANSWER {
            return None;
        }
        let is_this = |note: &Value| {
            let data = &note["data"];
            note["kind"] == "ActionRefused" && data["id"] == self.id() && data["answer"] == self.input["resume"]
        };
        let note = last_note(backend, self.to, is_this).await?;
        note["data"]["why"].as_str().map(str::to_owned)
    }

    /// All answers to the same request, in the order in which the run heard them.
    async fn answers(&self, backend: &dyn Backend) -> Result<Vec<WorkflowExecutionSignaled>, CallError> {
        let events = backend.describe(self.to.clone()).await?.info.history.events;
        let from = EventId(events.saturating_sub(LOOKED_AT).max(1));
        let last = backend.history(self.to.clone(), from, LOOKED_AT as usize + 1).await?;
        let signals = last.into_iter().filter_map(|event| match event.kind {
            EventKind::WorkflowExecutionSignaled(signal) if self.is_answered_by(&signal) => Some(signal),
            _ => None,
        });
        Ok(signals.collect())
    }

    fn is_answered_by(&self, signal: &WorkflowExecutionSignaled) -> bool {
        let input = signal.input.to_json();
        signal.name.as_str() == self.signal && NAMES.iter().all(|name| input[*name] == self.input[*name])
    }

    fn id(&self) -> &str {
        NAMES.iter().find_map(|name| self.input[*name].as_str()).unwrap_or_default()
    }

    fn query(&self) -> &'static str {
        match self.signal {
            SIGNAL_ANSWER => "pending_interrupts",
            _ if self.input["approval_id"].is_string() => "pending_approvals",
            _ => "approvals",
        }
    }
}

/// What a supervisor has noted last of something that waited for a person.
pub(crate) async fn noted(backend: &dyn Backend, run: &Target, id: &str) -> Option<Value> {
    const ENDS: [&str; 3] = ["ApprovalDecided", "ApprovalVoided", "InterruptAnswered"];
    last_note(backend, run, |note| note["data"]["id"] == id && ENDS.iter().any(|kind| note["kind"] == *kind)).await
}

async fn last_note(backend: &dyn Backend, run: &Target, is_it: impl Fn(&Value) -> bool) -> Option<Value> {
    let notes = backend.query(run.clone(), QueryName::of("notes"), Payload::null()).await.ok()?.to_json();
    notes["last"].as_array()?.iter().rev().find(|note| is_it(note)).cloned()
}

/// How something that waited for a person has ended, from what was noted of it.
pub(crate) fn in_words(note: &Value) -> Option<String> {
    let text = |key: &str| note["data"][key].as_str().unwrap_or("somebody").to_owned();
    Some(match note["kind"].as_str()? {
        "ApprovalDecided" if note["data"]["source"] == "timeout" => "its deadline has passed".to_owned(),
        "ApprovalDecided" if note["data"]["approved"] == true => format!("{} has approved it", text("approver")),
        "ApprovalDecided" => format!("{} has rejected it", text("approver")),
        "ApprovalVoided" => format!("it is void, since {}", text("reason")),
        "InterruptAnswered" if note["data"]["error"].is_string() => "its deadline has passed".to_owned(),
        "InterruptAnswered" => "it is answered".to_owned(),
        _ => return None,
    })
}

fn said_in_words(signal: &WorkflowExecutionSignaled) -> String {
    let input = signal.input.to_json();
    let by = input["by"].as_str().or(input["approver"].as_str()).or(signal.identity.as_ref().map(Identity::as_str));
    let by = by.unwrap_or("somebody");
    match input["approved"].as_bool() {
        Some(true) => format!("{by} has approved it"),
        Some(false) => format!("{by} has rejected it"),
        None => format!("{by} has answered it"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn said(key: &str, approved: bool, by: &str) -> WorkflowExecutionSignaled {
        WorkflowExecutionSignaled {
            name: SignalName::of("approval_response_v1"),
            input: Payload::encode(&json!({ "approval_id": "r/ap-1", "approved": approved, "approver": by })).unwrap(),
            identity: None,
            request_id: Some(RequestId::of(key)),
        }
    }

    /// Of several people at once one has decided, and each of the others is told who.
    #[test]
    fn only_the_first_that_decides_is_told_that_it_did() {
        let all = [said("1", true, "ann"), said("2", false, "bob"), said("3", true, "ann")];
        let note =
            json!({ "kind": "ApprovalDecided", "data": { "id": "r/ap-1", "approved": true, "approver": "ann" } });
        let target = Target::workflow(WorkflowId::of("w"));
        let judged = |n: usize, note: Option<&Value>| {
            let (input, key) = (all[n].input.to_json(), all[n].request_id.clone().unwrap());
            let sent = SentAnswer { to: &target, signal: "approval_response_v1", input: &input, key: &key };
            sent.judged(note, &all)
        };
        let before = Became::Before("ann has approved it".into());
        assert_eq!([0, 1, 2].map(|n| judged(n, Some(&note))), [Became::Taken, before.clone(), before.clone()]);
        assert_eq!([0, 1].map(|n| judged(n, None)), [Became::Taken, before]);
        let void = json!({ "kind": "ApprovalVoided", "data": { "id": "r/ap-1", "reason": "the plan is another one" } });
        assert_eq!(judged(0, Some(&void)), Became::Before("it is void, since the plan is another one".into()));
    }

    /// An answer that was none does not come before the one that counts.
    #[test]
    fn an_answer_that_was_refused_is_not_the_one_that_counts() {
        let answer = |key: &str, resume: &str| WorkflowExecutionSignaled {
            name: SignalName::of(SIGNAL_ANSWER),
            input: Payload::encode(&json!({ "interrupt_id": "r/in-1", "resume": resume })).unwrap(),
            identity: None,
            request_id: Some(RequestId::of(key)),
        };
        let all = [answer("1", ""), answer("2", "ok"), answer("3", "ok")];
        let note = json!({ "kind": "InterruptAnswered", "data": { "id": "r/in-1", "answer": "ok" } });
        let target = Target::workflow(WorkflowId::of("w"));
        let judged = |n: usize| {
            let (input, key) = (all[n].input.to_json(), all[n].request_id.clone().unwrap());
            SentAnswer { to: &target, signal: SIGNAL_ANSWER, input: &input, key: &key }.judged(Some(&note), &all)
        };
        assert_eq!(judged(1), Became::Taken);
        assert_eq!(judged(2), Became::Before("it is answered".into()));
    }
}
