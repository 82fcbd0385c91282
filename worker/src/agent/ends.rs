//! What the ends of activities and children mean to an agent: an answer, or a fault of a class.
//!
//! Invariant: what may have happened is never said not to have; what may have been charged is charged. Pure.

use bosun_engine::{Failure, FailureKind, Payload};

use super::machine::{AgentOutput, Fault, FaultClass, ModelAnswer};
use crate::capability::in_time::OUT_OF_TIME;
use crate::capability::mcp::{MCP_LOST, MCP_TIMEOUT};
use crate::capability::model::{Cost, MODEL_FATAL, MODEL_NEEDS_HUMAN, MODEL_RETRY, ModelError, ModelOutput, code};

/// Errors of our own, of calls that were not made.
const NEVER_SENT: [&str; 12] = [
    code::SCHEMA,
    code::PACED,
    code::TURN,
    code::SECRET,
    code::NOT_ALLOWED,
    code::CASSETTE_MISS,
    code::CASSETTE,
    code::UNKNOWN_PROVIDER,
    code::CONFIGURATION,
    code::SCRIPT,
    code::REFUSED_ADDRESS,
    code::UNREACHABLE,
];

/// What a model has answered.
pub(super) fn model_answer(payload: Payload) -> Result<ModelAnswer, Fault> {
    // It has been given, and so has to be paid for, whatever it says.
    let unread = |why| Fault { charged: true, ..Fault::new(FaultClass::Fatal, format!("the model's answer: {why}")) };
    let output: ModelOutput = payload.decode().map_err(unread)?;
    let ModelOutput { response, value, problems, cost, cut, estimated: _ } = output;
    let cost_micros = match cost {
        Cost::Micros(micros) => Some(micros),
        Cost::Unpriced(_) => None,
    };
    Ok(ModelAnswer { response, value, problems, cost_micros, cut })
}

/// Why it has not, and whether that costs.
pub(super) fn model_fault(failure: Failure) -> Fault {
    let root = failure.root();
    let fault = |class| Fault { cut: cut_before(root), ..Fault::new(class, root.message.clone()) };
    match &root.kind {
        FailureKind::Application { failure_type, details, .. } => match failure_type.as_str() {
            MODEL_FATAL => {
                let class = if is_too_long(details.as_ref()) { FaultClass::TooLong } else { FaultClass::Fatal };
                Fault { charged: may_be_charged(details.as_ref()), ..fault(class) }
            }
            MODEL_NEEDS_HUMAN => Fault { charged: may_be_charged(details.as_ref()), ..fault(FaultClass::NeedsHuman) },
            // Retries are used up. Those before the last are counted by themselves.
            MODEL_RETRY if details.is_some() => {
                Fault { charged: may_be_charged(details.as_ref()), ..fault(FaultClass::NeedsHuman) }
            }
            OUT_OF_TIME => fault(FaultClass::OutOfTime),
            _ => Fault { charged: true, ..fault(FaultClass::NeedsHuman) },
        },
        FailureKind::Canceled { .. } => fault(FaultClass::Canceled),
        FailureKind::Timeout { .. }
        | FailureKind::WorkerLost
        | FailureKind::Terminated
        | FailureKind::Activity { .. }
        | FailureKind::ChildWorkflow { .. } => fault(FaultClass::Lost),
    }
}

/// Whether a call of a model that has failed may have to be paid for.
pub(crate) fn may_be_paid(failure: &Failure) -> bool {
    model_fault(failure.clone()).charged
}

/// Whether an attempt that has failed, and that another one follows, may have been answered: nobody heard the answer to its
/// end, and no refusal either. A worker that was killed meanwhile is the usual case.
pub(super) fn was_cut(failure: &Failure) -> bool {
    let root = failure.root();
    match &root.kind {
        FailureKind::Timeout { .. } | FailureKind::WorkerLost => true,
        FailureKind::Application { failure_type, details, .. } if failure_type == MODEL_RETRY => {
            let error: Option<ModelError> = details.as_ref().and_then(|details| details.decode().ok());
            error.is_some_and(|error| {
                let unsent = error.code.as_deref().is_some_and(|code| NEVER_SENT.contains(&code));
                !unsent && error.status.is_none_or(|status| status < 400)
            })
        }
        FailureKind::Application { .. }
        | FailureKind::Canceled { .. }
        | FailureKind::Terminated
        | FailureKind::Activity { .. }
        | FailureKind::ChildWorkflow { .. } => false,
    }
}

/// In the details of a failure: how many attempts before it were cut.
const CUT: &str = "cut";

/// Says so in a failure that follows on attempts that were cut.
pub(crate) fn with_cut(mut failure: Failure, cut: u32) -> Failure {
    if let FailureKind::Application { details: Some(details), .. } = &mut failure.kind {
        let mut value = details.to_json();
        if let Some(fields) = value.as_object_mut() {
            fields.insert(CUT.to_owned(), cut.into());
            *details = Payload::encode(&value).unwrap_or_else(|_| details.clone());
        }
    }
    failure
}

/// How many attempts before this failure were cut.
pub(crate) fn cut_before(failure: &Failure) -> u32 {
    let FailureKind::Application { details: Some(details), .. } = &failure.kind else { return 0 };
    details.to_json()[CUT].as_u64().and_then(|cut| u32::try_from(cut).ok()).unwrap_or(0)
}

fn is_too_long(details: Option<&Payload>) -> bool {
    let error: Option<ModelError> = details.and_then(|details| details.decode().ok());
    error.and_then(|error| error.code).is_some_and(|code| code == code::CONTEXT_LENGTH)
}

/// Nothing is paid for what a provider refused, or what was never sent. Without details it was refused.
fn may_be_charged(details: Option<&Payload>) -> bool {
    let error: Option<ModelError> = details.and_then(|details| details.decode().ok());
    error.is_some_and(|error| {
        let refused = error.status.is_some_and(|status| status >= 400);
        let unsent = error.code.as_deref().is_some_and(|code| NEVER_SENT.contains(&code));
        !refused && !unsent
    })
}

/// Why a tool has no result, and whether it may have acted.
pub(super) fn tool_fault(failure: Failure) -> Fault {
    let root = failure.root();
    let class = match &root.kind {
        FailureKind::Application { failure_type, .. } if [MCP_LOST, MCP_TIMEOUT].contains(&failure_type.as_str()) => {
            FaultClass::Lost
        }
        FailureKind::Application { .. } => FaultClass::Fatal,
        FailureKind::Canceled { .. } | FailureKind::Terminated => FaultClass::Canceled,
        FailureKind::Timeout { .. }
        | FailureKind::WorkerLost
        | FailureKind::Activity { .. }
        | FailureKind::ChildWorkflow { .. } => FaultClass::Lost,
    };
    Fault::new(class, format!("{}: {}", failure.type_name(), root.message))
}

/// What an agent that failed or was canceled says of itself.
pub(crate) fn output_in(failure: &Failure) -> Option<AgentOutput> {
    failure.details().and_then(|details| details.decode().ok()).or_else(|| output_in(failure.cause.as_deref()?))
}

#[cfg(test)]
mod tests {
    use bosun_engine::Timestamp;

    use super::*;
    use crate::capability::in_time::begins;
    use crate::capability::model::ErrorClass;

    fn failure(failure_type: &str, status: Option<u16>, code: &str) -> Failure {
        let class = ErrorClass::NeedsHuman;
        let error = ModelError { class, status, code: Some(code.to_owned()), message: "why".to_owned() };
        Failure::application(failure_type, "why").with_details(Payload::encode(&error).unwrap())
    }

    fn failed(failure_type: &str, status: Option<u16>, code: &str) -> Fault {
        model_fault(failure(failure_type, status, code))
    }

    /// G41: an attempt counts if it may have been answered and nobody heard it; one that was refused does not.
    #[test]
    fn an_attempt_that_was_cut_is_told_from_one_that_was_refused() {
        let lost = Failure { kind: FailureKind::WorkerLost, ..Failure::application("x", "why") };
        assert!(was_cut(&lost));
        for (status, code, cut) in [
            (None, code::CUT, true),
            (None, code::TRANSPORT, true),
            (Some(200), code::MALFORMED, true),
            (Some(200), "overloaded_error", true),
            (Some(429), "rate_limit_exceeded", false),
            (Some(529), "overloaded_error", false),
            (None, code::UNREACHABLE, false),
            (None, code::PACED, false),
            (None, code::TURN, false),
        ] {
            assert_eq!(was_cut(&failure(MODEL_RETRY, status, code)), cut, "{code}");
        }
        assert!(!was_cut(&failure(MODEL_FATAL, None, code::CUT)) && !was_cut(&Failure::application("Other", "why")));
        let last = with_cut(failure(MODEL_NEEDS_HUMAN, Some(401), "invalid_api_key"), 2);
        let fault = model_fault(last);
        assert_eq!(
            (fault.cut, fault.charged),
            (2, false),
            "what was refused last is free, and what was cut before is not"
        );
    }

    /// What was not made any more costs nothing, and what was cut before it does.
    #[test]
    fn a_call_that_came_too_late_is_free() {
        let late = begins(Some(1), Timestamp::ZERO, Timestamp::from_millis(1)).unwrap_err();
        let fault = model_fault(with_cut(late.clone(), 2));
        assert_eq!((fault.class, fault.charged, fault.cut), (FaultClass::OutOfTime, false, 2));
        assert!(!may_be_paid(&late));
    }

    #[test]
    fn only_what_was_refused_or_never_sent_is_free() {
        for (failure_type, status, code, class, charged) in [
            (MODEL_NEEDS_HUMAN, Some(401), "invalid_api_key", FaultClass::NeedsHuman, false),
            (MODEL_NEEDS_HUMAN, None, code::SECRET, FaultClass::NeedsHuman, false),
            (MODEL_FATAL, Some(404), "model_not_found", FaultClass::Fatal, false),
            (MODEL_FATAL, Some(400), code::CONTEXT_LENGTH, FaultClass::TooLong, false),
            (MODEL_FATAL, None, code::NOT_ALLOWED, FaultClass::Fatal, false),
            (MODEL_FATAL, None, code::SCHEMA, FaultClass::Fatal, false),
            (MODEL_FATAL, None, code::TOO_LARGE, FaultClass::Fatal, true),
            (MODEL_RETRY, None, code::CUT, FaultClass::NeedsHuman, true),
            (MODEL_RETRY, None, code::TRANSPORT, FaultClass::NeedsHuman, true),
            (MODEL_RETRY, Some(500), "server_error", FaultClass::NeedsHuman, false),
            (MODEL_RETRY, Some(200), "overloaded_error", FaultClass::NeedsHuman, true),
            (MODEL_RETRY, None, code::UNREACHABLE, FaultClass::NeedsHuman, false),
            (MODEL_RETRY, Some(429), "rate_limit_exceeded", FaultClass::NeedsHuman, false),
        ] {
            let fault = failed(failure_type, status, code);
            assert_eq!((fault.class, fault.charged), (class, charged), "{failure_type} {code}");
        }
        let lost = Failure { kind: FailureKind::WorkerLost, ..Failure::application("x", "why") };
        assert!(model_fault(lost).charged);
        let unread = model_answer(Payload::encode("no answer").unwrap()).unwrap_err();
        assert!(unread.charged, "it was given, although nobody can read it");
    }
}
