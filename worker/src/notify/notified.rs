//! Who was told of a run, when, and what is still under way.
//!
//! Invariant: it is what the notifications say of themselves; one that cannot say it now is left out. It changes nothing.

use bosun_engine::*;
use serde_json::Value;

use super::rules::run::{DESCRIBE, NOTIFICATION, OF_RUN};
use crate::backend::Backend;
use crate::inbox::{self, target_of};

/// The newest ones that are shown.
const SHOWN: usize = 20;

/// The notifications of a run, the newest first. What still waits to be told of a request that nobody waits for any more is not
/// needed: it will find that out itself when its time comes.
pub(crate) async fn of_run(backend: &dyn Backend, info: &RunInfo) -> Vec<Value> {
    let mut all = told_of(backend, info.run_id).await;
    let waits = |one: &Value| one["state"] == "waiting" && one["asked"].is_string();
    if !all.iter().any(waits) {
        return all;
    }
    let open = if info.status.is_open() {
        // A run that cannot be asked now still waits, as far as anybody knows.
        let Ok(open) = inbox::requests(backend, &target_of(info), &info.workflow_type).await else { return all };
        open
    } else {
        Vec::new()
    };
    for one in all.iter_mut().filter(|one| waits(one)) {
        if !open.iter().any(|request| is_of(one, request.id())) {
            one["state"] = "moot".into();
        }
    }
    all
}

/// What they say of themselves.
pub(crate) async fn told_of(backend: &dyn Backend, run_id: RunId) -> Vec<Value> {
    let query = format!("WorkflowType = '{NOTIFICATION}' AND {OF_RUN} = '{run_id}'");
    let found = backend.list(ListRequest { query, limit: SHOWN }).await.unwrap_or_default();
    let mut all = Vec::new();
    for one in found.iter().filter(|one| one.workflow_type.as_str() == NOTIFICATION) {
        if let Ok(shown) = backend.query(target_of(one), QueryName::of(DESCRIBE), Payload::null()).await {
            all.push(shown.to_json());
        }
    }
    all
}

/// Whether it told of the request with this id.
pub(crate) fn is_of(one: &Value, request: &str) -> bool {
    one["asked"] == request
}

/// One of them with its moments as `at` writes them.
pub(crate) fn with_moments(one: &Value, at: impl Fn(Timestamp) -> Value) -> Value {
    let mut one = one.clone();
    for name in ["made_at", "at", "next_attempt_at"] {
        if let Some(micros) = one[name].as_i64() {
            one[name] = at(Timestamp(micros));
        }
    }
    one
}

/// One of them for people. `at` shows a moment.
pub(crate) fn in_words(one: &Value, at: impl Fn(Timestamp) -> String) -> String {
    let text = |name: &str| one[name].as_str().unwrap_or_default();
    let moment = |name: &str| one[name].as_i64().map(|micros| at(Timestamp(micros)));
    let last = one["last"].as_str().map_or_else(String::new, |last| format!(" ({last})"));
    // Each reminder follows a delivery.
    let before = match one["reminder"].as_u64().unwrap_or(0) {
        0 => String::new(),
        1 => "delivered, ".to_owned(),
        times => format!("delivered {times} times, "),
    };
    let what = match text("state") {
        "delivered" => format!("delivered {}", moment("at").unwrap_or_default()),
        "moot" => format!("{before}not needed any more"),
        "waiting" if !before.is_empty() => {
            format!("{before}next reminder {}", moment("next_attempt_at").unwrap_or_default())
        }
        "given_up" => format!("given up {}", moment("at").unwrap_or_default()),
        "waiting" => format!("next attempt {}", moment("next_attempt_at").unwrap_or_default()),
        other => other.to_owned(),
    };
    format!("{} of {}: {what}{last}", text("channel"), text("kind"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_was_delivered_is_said_to_be() {
        let of = |state: &str, reminder: u32| {
            let one = json!({ "channel": "ops", "kind": "approval", "state": state, "reminder": reminder,
                "next_attempt_at": 5, "last": "HTTP 200" });
            in_words(&one, |_| "in 12s".to_owned())
        };
        assert_eq!(of("waiting", 0), "ops of approval: next attempt in 12s (HTTP 200)");
        assert_eq!(of("waiting", 1), "ops of approval: delivered, next reminder in 12s (HTTP 200)");
        assert_eq!(of("moot", 3), "ops of approval: delivered 3 times, not needed any more (HTTP 200)");
    }
}
