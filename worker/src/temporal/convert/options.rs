//! What limits and guides activities and children, as a cluster takes it.
//!
//! Invariant: an option that is not given stays absent, so that the cluster's own defaults count, which are Temporal's and
//! hence ours. The rest of a fairness weight below a thousandth is not there in ours either.

use std::time::Duration;

use bosun_engine::*;
use temporalio_common::protos::coresdk::child_workflow as child;
use temporalio_common::protos::coresdk::workflow_commands::StartChildWorkflowExecution;
use temporalio_common::protos::temporal::api::common::v1 as common;
use temporalio_common::protos::temporal::api::enums::v1 as enums;

use super::payload::{attributes_out, memo_out, period_in, period_out};

pub(in crate::temporal) fn retry_out(policy: &RetryPolicy) -> common::RetryPolicy {
    // A cluster has no failure for a lost worker: nothing that it could try again is left.
    let attempts = if policy.is_for_lost_workers() { 1 } else { policy.maximum_attempts };
    common::RetryPolicy {
        initial_interval: Some(period_out(policy.initial_interval)),
        backoff_coefficient: f64::from(policy.backoff_coefficient_permille) / 1_000.0,
        maximum_interval: policy.maximum_interval.map(period_out),
        maximum_attempts: i32::try_from(attempts).unwrap_or(i32::MAX),
        non_retryable_error_types: policy.non_retryable_error_types.clone(),
    }
}

pub(in crate::temporal) fn retry_in(policy: common::RetryPolicy) -> RetryPolicy {
    let first = RetryPolicy::default();
    let permille = (policy.backoff_coefficient * 1_000.0).round();
    RetryPolicy {
        initial_interval: period_in(policy.initial_interval).unwrap_or(first.initial_interval),
        backoff_coefficient_permille: if permille >= 1_000.0 {
            permille as u32
        } else {
            first.backoff_coefficient_permille
        },
        maximum_interval: period_in(policy.maximum_interval),
        maximum_attempts: u32::try_from(policy.maximum_attempts).unwrap_or(0),
        non_retryable_error_types: policy.non_retryable_error_types,
    }
}

pub(in crate::temporal) fn priority_out(priority: &Priority) -> common::Priority {
    common::Priority {
        priority_key: i32::from(priority.priority_key),
        fairness_key: priority.fairness_key.clone().unwrap_or_default(),
        fairness_weight: priority.fairness_weight.0 as f32 / 1_000.0,
    }
}

/// Nothing where the cluster says nothing, or something that ours cannot be.
pub(in crate::temporal) fn priority_in(priority: Option<common::Priority>) -> Option<Priority> {
    let priority = priority.filter(|priority| *priority != common::Priority::default())?;
    let own = Priority::of(u8::try_from(priority.priority_key).ok().filter(|key| *key > 0).unwrap_or(3));
    let own = if priority.fairness_key.is_empty() { own } else { own.fair(priority.fairness_key) };
    let weight = (priority.fairness_weight * 1_000.0).round();
    let own = if weight >= 1.0 { own.with_weight(FairnessWeight(weight as u32)) } else { own };
    own.check().is_ok().then_some(own)
}

pub(in crate::temporal) fn reuse_out(policy: IdReusePolicy) -> enums::WorkflowIdReusePolicy {
    match policy {
        IdReusePolicy::AllowDuplicate => enums::WorkflowIdReusePolicy::AllowDuplicate,
        IdReusePolicy::AllowDuplicateFailedOnly => enums::WorkflowIdReusePolicy::AllowDuplicateFailedOnly,
        IdReusePolicy::RejectDuplicate => enums::WorkflowIdReusePolicy::RejectDuplicate,
    }
}

/// Fills in what the options of a child say; the parent's queue where they name none.
pub(in crate::temporal) fn child_options(
    options: &ChildWorkflowOptions,
    queue_of_parent: &str,
    start: StartChildWorkflowExecution,
) -> StartChildWorkflowExecution {
    let period = |period: Option<Duration>| period.map(period_out);
    let close = match options.parent_close_policy {
        ParentClosePolicy::Terminate => child::ParentClosePolicy::Terminate,
        ParentClosePolicy::Abandon => child::ParentClosePolicy::Abandon,
        ParentClosePolicy::RequestCancel => child::ParentClosePolicy::RequestCancel,
    };
    let cancellation = match options.cancellation {
        CancellationType::TryCancel => child::ChildWorkflowCancellationType::TryCancel,
        CancellationType::WaitCancellationCompleted => child::ChildWorkflowCancellationType::WaitCancellationCompleted,
        CancellationType::Abandon => child::ChildWorkflowCancellationType::Abandon,
        CancellationType::WaitCancellationRequested => child::ChildWorkflowCancellationType::WaitCancellationRequested,
    };
    StartChildWorkflowExecution {
        task_queue: options.task_queue.as_ref().map_or_else(|| queue_of_parent.to_owned(), ToString::to_string),
        workflow_execution_timeout: period(options.execution_timeout),
        workflow_run_timeout: period(options.run_timeout),
        retry_policy: options.retry_policy.as_ref().map(retry_out),
        parent_close_policy: close.into(),
        cancellation_type: cancellation.into(),
        workflow_id_reuse_policy: reuse_out(options.id_reuse_policy).into(),
        memo: memo_out(&options.memo),
        search_attributes: attributes_out(&options.search_attributes),
        priority: options.priority.as_ref().map(priority_out),
        ..start
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_retry_policy_comes_back_as_it_was() {
        let policy = RetryPolicy {
            initial_interval: Duration::from_millis(250),
            backoff_coefficient_permille: 1_500,
            maximum_interval: Some(Duration::from_secs(9)),
            maximum_attempts: 4,
            non_retryable_error_types: vec!["BadCard".into()],
        };
        assert_eq!(retry_in(retry_out(&policy)), policy);
        assert_eq!(retry_in(common::RetryPolicy::default()), RetryPolicy::default());
    }
}
