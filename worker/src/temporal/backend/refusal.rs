//! What a cluster refuses, as refusals of ours.
//!
//! Invariant: a code of gRPC is read only together with what was asked for. What has no word of ours keeps the cluster's words
//! and its code. That nobody answers is not a refusal.

use bosun_engine::*;
use prost::Message;
use temporalio_client::tonic::{Code, Status};
use temporalio_common::protos::google::rpc;
use temporalio_common::protos::temporal::api::errordetails::v1::QueryFailedFailure;
use temporalio_common::protos::temporal::api::failure::v1::failure::FailureInfo;

use crate::backend::{CallError, PAYLOAD_STORE_CODE, Reply};
use crate::temporal::external::ExternalError;

/// The answer of something that no cluster can do.
pub(super) fn cannot<T: Send + 'static>(what: &str, help: &str) -> Reply<'static, T> {
    let refused = refused(what, help);
    Box::pin(async move { Err(refused) })
}

pub(super) fn refused(what: &str, help: &str) -> CallError {
    let message = format!("a Temporal cluster cannot do this: {what}; {help}");
    CallError::Refused { status: 501, code: "not_on_a_cluster".to_owned(), message }
}

/// A refusal that is about no run.
pub(super) fn call_error(status: &Status) -> CallError {
    let refused = |http: u16, code: &str| CallError::Refused {
        status: http,
        code: code.to_owned(),
        message: status.message().to_owned(),
    };
    match status.code() {
        Code::Unavailable => {
            CallError::Unreachable { address: "the Temporal cluster".to_owned(), why: status.message().to_owned() }
        }
        Code::InvalidArgument => {
            Rejection::Invalid { what: "the cluster".to_owned(), why: status.message().to_owned() }.into()
        }
        Code::ResourceExhausted => refused(429, "resource_exhausted"),
        Code::PermissionDenied | Code::Unauthenticated => refused(403, "forbidden"),
        Code::Unimplemented => refused(501, "not_on_this_cluster"),
        Code::NotFound => refused(404, "not_found"),
        Code::DeadlineExceeded => refused(504, "deadline_exceeded"),
        Code::FailedPrecondition => refused(412, "failed_precondition"),
        _ => refused(500, "cluster"),
    }
}

/// A refusal of a request about a run.
pub(super) fn about(target: &Target, status: &Status) -> CallError {
    match status.code() {
        Code::NotFound => Rejection::NotFound { workflow_id: target.workflow_id.clone(), run_id: target.run_id }.into(),
        _ => call_error(status),
    }
}

/// What a worker of ours said of a query that has no answer, in full.
pub(super) fn query_error(status: &Status) -> Option<QueryError> {
    let details = rpc::Status::decode(status.details()).ok()?.details;
    let failed = details.iter().find_map(|any| QueryFailedFailure::decode(any.value.as_slice()).ok()?.failure)?;
    let Some(FailureInfo::ApplicationFailureInfo(info)) = failed.failure_info else { return None };
    let whole = info.details?.payloads.into_iter().next()?;
    crate::temporal::convert::payload_in(whole).decode().ok()
}

/// A payload that is too large, or cannot be had from where it is kept.
pub(super) fn external_error(target: Option<&Target>, why: &ExternalError) -> CallError {
    match why {
        ExternalError::TooLarge { length, limit } | ExternalError::MessageTooLarge { length, limit } => {
            Rejection::PayloadTooLarge { length: *length, limit: *limit }.into()
        }
        why => {
            let run = match target {
                None => String::new(),
                Some(Target { workflow_id, run_id: Some(run_id), .. }) => {
                    format!("the run {run_id} of {workflow_id}: ")
                }
                Some(Target { workflow_id, .. }) => format!("the run of {workflow_id}: "),
            };
            let (code, message) = (PAYLOAD_STORE_CODE.to_owned(), format!("{run}{why}"));
            CallError::Refused { status: 424, code, message }
        }
    }
}
