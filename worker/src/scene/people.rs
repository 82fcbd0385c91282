//! What people and programs do to a run: when, and what.
//!
//! ```yaml
//! - { at: 5s, do: signal, name: send, input: { … } }
//! - { when: { approval: publish }, after: 1m, do: approve, by: ann, comment: fine }
//! ```
//!
//! Invariant: each happens once; an approval, a question or a version of a plan is answered by one of them only, whatever
//! else people do because of it. How they reach the run is in `acts`: here is what is written.

use std::time::Duration;

use serde_json::Value;

use super::expect::CallExpect;
use super::file::moment;
use super::matcher::{Matcher, WORDS};
use super::names::or_near;
use super::never::status_slip;
use super::rule::id;
use crate::agent::workflow::SIGNAL_APPROVAL;
use crate::supervisor::FieldError;
use crate::supervisor::fields::Fields;
use crate::supervisor::outbox::Purpose;

pub(super) const KEYS: [&str; 24] = [
    "at", "when", "after", "do", "by", "to", "which", "name", "input", "comment", "feedback", "action", "answer",
    "state", "message", "tasks", "reason", "timeout", "task", "result", "version", "shown", "answers", "refused",
];

/// The keys of a condition, beside what is said of the answer of a query.
pub(super) const WHEN: [&str; 13] = [
    "approval",
    "question",
    "interrupt",
    "plan",
    "task",
    "status",
    "query",
    "input",
    "path",
    "call",
    "agent",
    "tool",
    "attempt",
];

/// What can be done.
pub(crate) const DOINGS: [&str; 22] = [
    "signal",
    "update",
    "approve",
    "reject",
    "modify",
    "answer",
    "approve_plan",
    "reject_plan",
    "feedback",
    "revise_plan",
    "revise",
    "pause",
    "resume",
    "cancel",
    "terminate",
    "takeover",
    "release",
    "complete",
    "cancel_task",
    "kill",
    "restart",
    "plan_feedback",
];

/// Signals and updates that answer what a run asks.
const ANSWERS: [&str; 9] = [
    "approval_response_v1",
    "interrupt_resume_v1",
    "human_input_v1",
    SIGNAL_APPROVAL,
    "respond_approval",
    "respond_interrupt",
    "approve_plan",
    "plan_feedback",
    "revise_plan",
];

/// What stands beside an act, besides what stands beside every one.
const ALWAYS: [&str; 7] = ["at", "when", "after", "do", "by", "to", "refused"];

fn keys_of(act: &str) -> &'static [&'static str] {
    match act {
        "signal" => &["name", "input"],
        "update" => &["name", "input", "answers"],
        "approve" => &["comment", "feedback", "which", "shown", "answers"],
        "reject" => &["comment", "reason", "feedback", "which", "shown", "answers"],
        "modify" => &["action", "comment", "feedback", "which", "shown", "answers"],
        "answer" => &["answer", "state", "which", "shown", "answers"],
        "approve_plan" => &["comment", "version", "shown", "answers"],
        "reject_plan" => &["comment", "reason", "feedback", "message", "version", "shown", "answers"],
        "feedback" | "plan_feedback" => &["feedback", "message", "version", "answers"],
        "revise" | "revise_plan" => &["tasks", "version", "answers"],
        "pause" | "resume" | "takeover" | "release" => &["reason", "timeout"],
        "complete" => &["task", "result", "answers"],
        "cancel_task" => &["task", "reason", "answers"],
        "cancel" | "terminate" => &["reason"],
        _ => &[],
    }
}

/// One act, and when it happens.
#[derive(Debug, Clone)]
pub(crate) struct TimedAct {
    pub(crate) path: String,
    pub(crate) when: When,
    /// How long after the condition is true.
    pub(crate) after: Duration,
    pub(crate) by: String,
    /// The run that it is sent to: `root`, or the name of a spec; whoever asks, if it says nothing.
    pub(crate) to: Option<String>,
    /// The request that is answered, also one that is over: not that of the condition, nor the oldest.
    pub(crate) which: Option<String>,
    pub(crate) act: String,
    /// Everything that stands beside it.
    pub(crate) with: Value,
    /// What an update must answer.
    pub(crate) answers: Option<Matcher>,
    /// Why an update must be refused.
    pub(crate) refused: Option<Matcher>,
}

#[derive(Debug, Clone)]
pub(crate) enum When {
    At(Duration),
    /// An approval is asked for whose id, action, task or scope this is.
    Approval(Option<String>),
    Question(Option<String>),
    /// A plan is up for review; of this version, if one is named.
    Plan(Option<u64>),
    Query {
        query: String,
        input: Value,
        at: String,
        is: Matcher,
    },
    /// A call like this is under way.
    Call(Box<CallExpect>),
}

impl TimedAct {
    pub(crate) fn read(path: &str, value: &Value) -> Result<TimedAct, FieldError> {
        let fields = Fields::read(value, path, &KEYS)?;
        let when = match (fields.value("at"), fields.value("when")) {
            (Some(at), None) => When::At(moment(&fields.path_of("at"), at)?),
            (None, Some(when)) => When::read(&fields.path_of("when"), when)?,
            (Some(_), Some(_)) => return Err(fields.error("when", "give either `at` or `when`, not both")),
            (None, None) => return Err(fields.error("when", "required key `when` is missing (or `at`)")),
        };
        let act = fields.required_text("do")?;
        if !DOINGS.contains(&act.as_str()) {
            let hint = or_near(&act, &DOINGS);
            return Err(fields.error("do", format!("nobody can `{act}`{hint}; there are: {}", DOINGS.join(", "))));
        }
        let known: Vec<&str> = ALWAYS.iter().chain(keys_of(&act)).copied().collect();
        if let Some(key) =
            value.as_object().into_iter().flatten().map(|(key, _)| key).find(|key| !known.contains(&key.as_str()))
        {
            return Err(fields.error(key, format!("says nothing of `{act}`, which takes {}", known.join(", "))));
        }
        if matches!(act.as_str(), "signal" | "update") {
            fields.required_text("name")?;
        }
        let after = fields.value("after").map(|after| moment(&fields.path_of("after"), after)).transpose()?;
        let matcher = |key: &str| fields.value(key).map(|one| Matcher::read(&fields.path_of(key), one)).transpose();
        let refused = match fields.value("refused") {
            Some(Value::Bool(true)) => Some(Matcher::Exists(true)),
            Some(part @ Value::String(_)) => Some(Matcher::word(&fields.path_of("refused"), "contains", part)?),
            _ => matcher("refused")?,
        };
        Ok(TimedAct {
            path: path.to_owned(),
            when,
            after: after.unwrap_or_default(),
            by: fields.text("by")?.unwrap_or_else(|| "somebody".to_owned()),
            to: fields.text("to")?,
            which: id(&fields, "which")?,
            act,
            with: value.clone(),
            answers: matcher("answers")?,
            refused,
        })
    }

    /// Whether something is said of a plan.
    pub(crate) fn is_of_plan(&self) -> bool {
        keys_of(&self.act).contains(&"version")
    }

    /// Whether it answers what its condition is about. Anything else leaves that to another act.
    pub(super) fn is_answer(&self) -> bool {
        match self.act.as_str() {
            "signal" | "update" => self.with["name"].as_str().is_some_and(|name| ANSWERS.contains(&name)),
            act => keys_of(act).contains(&"shown") || self.is_of_plan(),
        }
    }

    /// Whether it is sent as an update, which says what becomes of it; otherwise as a signal.
    pub(crate) fn wants_word(&self) -> bool {
        self.answers.is_some() || self.refused.is_some()
    }

    /// `people[0] (ann: approve)`.
    pub(crate) fn shown(&self) -> String {
        format!("{} ({}: {})", self.path, self.by, self.act)
    }
}

impl When {
    // long: one branch a condition.
    fn read(path: &str, value: &Value) -> Result<When, FieldError> {
        let known: Vec<&str> = WHEN.into_iter().chain(WORDS).collect();
        let fields = Fields::read(value, path, &known)?;
        let named = |key: &str| Ok::<_, FieldError>(id(&fields, key)?.filter(|name| name != "any"));
        let words = || {
            let map = value.as_object().into_iter().flatten();
            map.filter(|(key, _)| WORDS.contains(&key.as_str())).map(|(key, value)| (key.clone(), value.clone()))
        };
        if fields.has("approval") {
            return named("approval").map(When::Approval);
        }
        for key in ["question", "interrupt"] {
            if fields.has(key) {
                return named(key).map(When::Question);
            }
        }
        if let Some(plan) = fields.value("plan") {
            return match plan {
                Value::String(word) if matches!(word.as_str(), "proposed" | "any" | "reviewing") => {
                    Ok(When::Plan(None))
                }
                Value::Number(version) => Ok(When::Plan(version.as_u64())),
                other => Err(fields.error("plan", format!("expected `proposed` or a version, found {other}"))),
            };
        }
        if let Some(on) = fields.text("call")? {
            let purposes: Vec<&str> = Purpose::ALL.iter().map(|purpose| purpose.as_str()).collect();
            let hint = or_near(&on, &purposes);
            if !purposes.contains(&on.as_str()) && !hint.is_empty() {
                return Err(fields.error("call", format!("there is no call `{on}`{hint}")));
            }
            let mut call = serde_json::json!({ "on": on });
            for key in ["task", "agent", "tool", "attempt"] {
                if let Some(value) = fields.value(key) {
                    call[key] = value.clone();
                }
            }
            return CallExpect::read(path, &call).map(|call| When::Call(Box::new(call)));
        }
        if let Some(query) = fields.text("query")? {
            let is = Matcher::read(path, &Value::Object(words().collect()))?;
            let (input, at) =
                (fields.value("input").cloned().unwrap_or_default(), fields.text("path")?.unwrap_or_default());
            return Ok(When::Query { query, input, at, is });
        }
        match id(&fields, "task")? {
            Some(task) => {
                let status = fields.required("status", fields.value("status"))?;
                status_slip(&fields.path_of("status"), status)?;
                let is = Matcher::read(&fields.path_of("status"), status)?;
                Ok(When::Query { query: "plan".into(), input: Value::Null, at: format!("tasks.{task}.status"), is })
            }
            None => Err(FieldError::at(path, "names no condition: approval, question, plan, task, call or query")),
        }
    }
}
