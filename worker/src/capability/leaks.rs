//! The last look at what an activity gives: no secret that the worker knows of enters a history (G31).
//!
//! Invariant: results, failures with their details and causes, and what a canceled attempt says are scrubbed, whatever
//! capability they come from, in the spellings of [`super::scrub`]. Inputs are not: they are the caller's own words.

use bosun_engine::{ActivityError, ActivityFuture, ActivityTask, Failure, FailureKind, Interceptor, Payload};

use super::environment;
use super::scrub::Scrubber;

/// Around every attempt of a worker.
pub(crate) struct Leaks;

impl Interceptor for Leaks {
    fn activity(&self, _: &ActivityTask, next: ActivityFuture) -> ActivityFuture {
        Box::pin(async move {
            let ended = next.await;
            // Asked for afterwards: the attempt may have read a secret that nobody knew of before.
            let scrubber = environment::scrubber();
            if scrubber.is_empty() {
                return ended;
            }
            match ended {
                Ok(result) => Ok(payload(&scrubber, result)),
                Err(ActivityError::Failure(why)) => Err(ActivityError::Failure(failure(&scrubber, why))),
                Err(ActivityError::Canceled(details)) => {
                    Err(ActivityError::Canceled(details.map(|details| payload(&scrubber, details))))
                }
                Err(ActivityError::WillCompleteLater) => Err(ActivityError::WillCompleteLater),
            }
        })
    }
}

fn payload(scrubber: &Scrubber, mut payload: Payload) -> Payload {
    if scrubber.finds(&payload.data) {
        payload.data = scrubber.bytes(payload.data.to_vec(), false).into();
    }
    payload
}

fn failure(scrubber: &Scrubber, mut failure: Failure) -> Failure {
    failure.message = scrubber.text(&failure.message);
    if let FailureKind::Application { details: Some(details), .. } | FailureKind::Canceled { details: Some(details) } =
        &mut failure.kind
    {
        *details = payload(scrubber, std::mem::take(details));
    }
    failure.cause = failure.cause.map(|cause| Box::new(self::failure(scrubber, *cause)));
    failure
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_of_a_result_or_a_failure_holds_a_secret() {
        const KEY: &str = "sk-canary-\"7f3a\"";
        let mut scrubber = Scrubber::default();
        scrubber.add(KEY, 8);
        let hidden = |text: &str| !text.contains("canary") && !text.contains("7f3a");
        let result = Payload::encode(&serde_json::json!({ "stdout": format!("it is {KEY}!"), "n": 1 })).unwrap();
        let scrubbed = payload(&scrubber, result);
        let value = scrubbed.to_json();
        assert!(hidden(value["stdout"].as_str().unwrap()) && value["n"] == 1, "{value}");
        let details = Payload::encode(&KEY).unwrap();
        let inner = Failure::application("Inner", format!("found {KEY}"));
        let mut outer = Failure::application("Outer", "outside").with_details(details);
        outer.cause = Some(Box::new(inner));
        assert!(hidden(&format!("{:?}", failure(&scrubber, outer))));
        let clean = Payload::raw_json("{\"a\": 1}");
        assert_eq!(payload(&scrubber, clean.clone()), clean);
    }
}
