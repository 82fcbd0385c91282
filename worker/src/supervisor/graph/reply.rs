//! What a worker says, taken apart.
//!
//! Invariant: a worker may answer anything (FSS-42): only an object with `success: false`, or with an error in place of a
//! result, is a failure; and only an object that asks for something, or that has a `result` and nothing but fields of a reply,
//! is read as a reply with meta data, strictly.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::refusal::NotTaken;
use crate::supervisor::core::account::Spent;
use crate::supervisor::model::{DoubtedResult, SaidBeside, dollars, null_is_absent, share};
use crate::supervisor::outbox::Answer;
use crate::supervisor::reading::{NO_RESULT, Unreadable, read, why_failed};
use crate::supervisor::spec::Span;

/// What a worker said, taken apart.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Reply {
    pub result: Value,
    #[serde(default = "yes")]
    pub success: bool,
    #[serde(default, alias = "error", skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    #[serde(default, deserialize_with = "share")]
    #[schemars(with = "Option<f64>")]
    pub confidence: Option<u32>,
    /// In dollars on the wire, in micros here.
    #[serde(default, deserialize_with = "dollars", alias = "cost_usd")]
    #[schemars(with = "Option<f64>")]
    pub cost: Option<u64>,
    #[serde(default, deserialize_with = "null_is_absent")]
    pub tokens: u64,
    #[serde(default)]
    pub model: Option<String>,
    /// What the result proposes to do (SHH-18): `publish`.
    #[serde(default, alias = "proposed_action")]
    pub action: Option<String>,
    /// People the worker asks for (SHN-26).
    #[serde(default, deserialize_with = "null_is_absent")]
    pub recruit: Vec<Value>,
    /// Messages to others (SHN-14).
    #[serde(default, deserialize_with = "null_is_absent")]
    pub send: Vec<Value>,
    /// A question to a person (LGI-01): the payload.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interrupt: Option<Value>,
    /// What the worker wrote down before it ran out of context (PDT-48).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overflow: Option<String>,
    /// One bounded question to another capability (PDT-49).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub consult: Option<Value>,
    #[serde(default, deserialize_with = "null_is_absent")]
    pub out_of_scope: bool,
    #[serde(default, deserialize_with = "null_is_absent")]
    pub variables: Map<String, Value>,
}

/// What an answer calls its money.
const MONEY: [&str; 3] = ["cost_micros", "cost", "cost_usd"];
/// Fields of an object that is a reply and no plain result.
const META: [&str; 3] = ["interrupt", "overflow", "consult"];
/// All other fields that a reply may have, but for what it cost.
const KNOWN: [&str; 13] = [
    "result",
    "success",
    "reason",
    "error",
    "confidence",
    "tokens",
    "model",
    "action",
    "proposed_action",
    "recruit",
    "send",
    "out_of_scope",
    "variables",
];

fn yes() -> bool {
    true
}

impl Reply {
    /// What is no reply is a result: so is an object with fields that no reply has, whatever they are called (FSS-42).
    pub fn of(value: Value) -> Result<Reply, Unreadable> {
        let Value::Object(map) = &value else { return Ok(Reply { result: value, success: true, ..Reply::default() }) };
        let failed = map.get("success") == Some(&Value::Bool(false));
        if !Reply::is_reply(map) {
            return Ok(Reply { result: value, success: true, ..Reply::default() });
        }
        if failed {
            let reason = why_failed(map).map(str::to_owned);
            // A failure may have any form; what it cost counts where it says so.
            let tokens = map.get("tokens").and_then(Value::as_u64).unwrap_or_default();
            let cost = money_in(map);
            // So does what its worker wants of others (SHN-14, SHN-26).
            let all = |key: &str| map.get(key).and_then(Value::as_array).cloned().unwrap_or_default();
            let (recruit, send) = (all("recruit"), all("send"));
            return Ok(Reply { reason, tokens, cost, recruit, send, success: false, ..Reply::default() });
        }
        let is_silent = !map.contains_key("success") && map.get("result").is_none_or(Value::is_null);
        let mut map = map.clone();
        let micros = map.remove("cost_micros").filter(|micros| !micros.is_null());
        let micros = micros.map(|micros| micros.as_u64().ok_or(micros)).transpose().map_err(|wrong| {
            let (what, at) = ("worker's reply".to_owned(), "cost_micros".to_owned());
            Unreadable::MisfitAt { what, at, why: format!("expected a whole number of 0 or more, found {wrong}") }
        })?;
        map.entry("result").or_insert(Value::Null);
        let mut reply: Reply = read("worker's reply", &Value::Object(map))?;
        reply.cost = micros.or(reply.cost);
        // Who gives an error in place of a result has failed.
        reply.success &=
            !(is_silent && !reply.is_question() && reply.reason.as_ref().is_some_and(|why| !why.trim().is_empty()));
        // A question that names a time is never one that waits for ever (LGI-07).
        let timeout =
            reply.interrupt.as_ref().and_then(|payload| payload.get("timeout")).filter(|time| !time.is_null());
        if let Some(Err(why)) = timeout.map(Span::deserialize) {
            let (what, at) = ("worker's reply".to_owned(), "interrupt.timeout".to_owned());
            return Err(Unreadable::MisfitAt { what, at, why: why.to_string() });
        }
        Ok(reply)
    }

    /// Whether what a worker gave says more than its result. An object with fields that no reply has is a result, unless it asks
    /// for something: what is asked is never lost to a slip of the pen.
    pub fn is_reply(map: &Map<String, Value>) -> bool {
        let failed = map.get("success") == Some(&Value::Bool(false));
        let asks = || META.iter().any(|key| map.contains_key(*key));
        let known = || map.keys().all(|key| KNOWN.contains(&key.as_str()) || MONEY.contains(&key.as_str()));
        failed || asks() || (map.contains_key("result") && known())
    }

    /// Whether an answer that is no work of a task says what it cost, rather than that its data have such names.
    pub fn tells_cost(map: &Map<String, Value>) -> bool {
        Reply::is_reply(map) || map.keys().all(|key| key == "tokens" || MONEY.contains(&&**key))
    }

    /// What it says beside its result.
    pub(super) fn beside(&self) -> SaidBeside {
        let (recruit, send, variables) = (self.recruit.clone(), self.send.clone(), self.variables.clone());
        SaidBeside { recruit, send, variables, out_of_scope: self.out_of_scope, cost_micros: self.cost }
    }

    /// The answer that its worker was not sure of, as it was.
    pub(super) fn of_doubted(doubted: DoubtedResult) -> Reply {
        let DoubtedResult { result, confidence_bp, action, beside, attempt: _ } = doubted;
        let SaidBeside { recruit, send, variables, out_of_scope, cost_micros: cost } = beside;
        let (confidence, success) = (Some(confidence_bp), true);
        Reply { result, confidence, action, success, recruit, send, variables, out_of_scope, cost, ..Reply::default() }
    }

    /// What an answer says that it cost, whoever gave it; it counts as one call. One that took tokens, or says of its money only
    /// that there is some, does not say how much that is.
    pub fn cost_in(map: &Map<String, Value>) -> Spent {
        let number = |key: &str| map.get(key).and_then(Value::as_u64);
        let tokens = number("tokens").unwrap_or_default();
        let known = money_in(map);
        let told = tokens > 0 || MONEY.iter().any(|key| map.contains_key(*key));
        let unpriced_calls = u64::from(known.is_none() && told);
        Spent { tokens, cost_micros: known.unwrap_or_default(), calls: 1, unpriced_calls }
    }

    /// What the result proposes to do, if anything.
    pub fn proposes(&self) -> Option<&str> {
        self.action.as_deref().filter(|action| !action.is_empty())
    }

    /// Why there is no result.
    pub(super) fn why(&self) -> String {
        let said = self.reason.as_ref().filter(|why| !why.trim().is_empty());
        said.cloned().unwrap_or_else(|| NO_RESULT.to_owned())
    }

    /// Whether it asks for something before there is a result.
    pub(super) fn is_question(&self) -> bool {
        self.interrupt.is_some() || self.overflow.is_some() || self.consult.is_some()
    }
}

/// What a worker answered, taken apart.
pub(super) fn reply_of(answer: Answer) -> Result<Reply, NotTaken> {
    Ok(Reply::of(answer?)?)
}

/// The money that an answer says it took, in micros.
fn money_in(map: &Map<String, Value>) -> Option<u64> {
    map.get("cost_micros").and_then(Value::as_u64).or_else(|| dollars_in(map))
}

fn dollars_in(map: &Map<String, Value>) -> Option<u64> {
    ["cost", "cost_usd"].iter().find_map(|key| dollars(map.get(*key)?).ok().flatten())
}
