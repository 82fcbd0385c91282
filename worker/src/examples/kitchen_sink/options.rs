//! The steps with many options: activities and children.
//!
//! Invariant: as for programs: no unknown key, and names are checked when the program is read.

use std::time::Duration;

use bosun_engine::{
    ActivityOptions, ActivityType, CancellationType, ChildWorkflowOptions, ParentClosePolicy, Priority, RetryPolicy,
    TaskQueue, WorkflowType,
};
use serde_json::Value;

use super::KITCHEN_SINK;
use super::program::{Op, Read};
use crate::priority::PrioritySaid;
use crate::supervisor::fields::Fields;

pub(super) fn activity(path: &str, argument: &Value) -> Read<Op> {
    let fields = Fields::read(
        argument,
        path,
        &[
            "type",
            "input",
            "as",
            "start_to_close",
            "schedule_to_close",
            "schedule_to_start",
            "heartbeat",
            "task_queue",
            "summary",
            "cancellation",
            "retry",
            "priority",
        ],
    )?;
    let schedule_to_close = fields.duration("schedule_to_close")?;
    let default = schedule_to_close.is_none().then_some(Duration::from_secs(30));
    let options = ActivityOptions {
        task_queue: optional_id(&fields, "task_queue", |text| TaskQueue::new(text))?,
        schedule_to_close,
        schedule_to_start: fields.duration("schedule_to_start")?,
        start_to_close: fields.duration("start_to_close")?.or(default),
        heartbeat: fields.duration("heartbeat")?,
        retry_policy: fields.value("retry").map(|value| retry(&fields.path_of("retry"), value)).transpose()?,
        cancellation: cancellation(&fields)?,
        summary: fields.text("summary")?,
        priority: priority(&fields)?,
    };
    Ok(Op::Activity {
        activity_type: id(&fields, "type", |text| ActivityType::new(text))?,
        input: fields.value("input").cloned().unwrap_or_default(),
        options: Box::new(options),
        save: fields.text("as")?,
    })
}

fn priority(fields: &Fields<'_>) -> Read<Option<Priority>> {
    let read = |value: &Value| {
        let said = serde_json::from_value::<PrioritySaid>(value.clone());
        said.map(|said| said.0).map_err(|why| fields.error("priority", why.to_string()))
    };
    fields.value("priority").map(read).transpose()
}

fn retry(path: &str, value: &Value) -> Read<RetryPolicy> {
    let known = ["maximum_attempts", "initial_interval", "maximum_interval", "coefficient_permille", "non_retryable"];
    let fields = Fields::read(value, path, &known)?;
    let small = |key: &str, default: u32| {
        let number = fields.natural(key)?.map_or(Ok(default), u32::try_from);
        number.map_err(|_| fields.error(key, "the number is too large"))
    };
    let default = RetryPolicy::default();
    Ok(RetryPolicy {
        initial_interval: fields.duration("initial_interval")?.unwrap_or(default.initial_interval),
        backoff_coefficient_permille: small("coefficient_permille", default.backoff_coefficient_permille)?,
        maximum_interval: fields.duration("maximum_interval")?,
        maximum_attempts: small("maximum_attempts", default.maximum_attempts)?,
        non_retryable_error_types: fields.one_or_more_texts("non_retryable")?,
    })
}

pub(super) fn child(path: &str, argument: &Value) -> Read<Op> {
    let known = ["type", "id", "input", "as", "close_policy", "cancellation", "wait", "priority"];
    let fields = Fields::read(argument, path, &known)?;
    let parent_close_policy = match fields.text("close_policy")?.as_deref() {
        None | Some("terminate") => ParentClosePolicy::Terminate,
        Some("abandon") => ParentClosePolicy::Abandon,
        Some("request_cancel") => ParentClosePolicy::RequestCancel,
        Some(_) => return Err(fields.error("close_policy", "expected terminate, abandon or request_cancel")),
    };
    let options = ChildWorkflowOptions {
        parent_close_policy,
        cancellation: cancellation(&fields)?,
        priority: priority(&fields)?,
        ..Default::default()
    };
    let workflow_type = optional_id(&fields, "type", |text| WorkflowType::new(text))?;
    Ok(Op::Child {
        workflow_type: workflow_type.unwrap_or_else(|| KITCHEN_SINK.into()),
        id: fields.text("id")?.map(Value::String),
        input: fields.value("input").cloned().unwrap_or_default(),
        options: Box::new(options),
        wait: fields.boolean("wait")?.unwrap_or(true),
        save: fields.text("as")?,
    })
}

fn cancellation(fields: &Fields<'_>) -> Read<CancellationType> {
    Ok(match fields.text("cancellation")?.as_deref() {
        None | Some("try") => CancellationType::TryCancel,
        Some("wait") => CancellationType::WaitCancellationCompleted,
        Some("abandon") => CancellationType::Abandon,
        Some(_) => return Err(fields.error("cancellation", "expected try, wait or abandon")),
    })
}

pub(super) fn optional_id<T, E: ToString>(
    fields: &Fields<'_>,
    key: &str,
    make: impl Fn(&str) -> Result<T, E>,
) -> Read<Option<T>> {
    let text = fields.text(key)?;
    text.map(|text| make(&text).map_err(|why| fields.error(key, why.to_string()))).transpose()
}

pub(super) fn id<T, E: ToString>(fields: &Fields<'_>, key: &str, make: impl Fn(&str) -> Result<T, E>) -> Read<T> {
    fields.required(key, optional_id(fields, key, make)?)
}
