//! One start: the workflow `bosun.schedule.action`.
//!
//! ```text
//!   started ──► child is started ──► child has ended ──► tells the schedule, ends
//!                    │ cancel_v1: asks the child to cancel, and waits for its end
//!                    └ terminate_v1: tells the schedule, ends, and the child with it
//! ```
//!
//! Invariant: it ends when its child has, or ends it; the schedule is told exactly once, by a signal that survives the end of
//! this run and reaches the schedule across its continue-as-new. A schedule that is gone is not missed.

use bosun_engine::workflow::{Cx, StateMachine, WorkflowEvent};
use bosun_engine::{
    CancellationType, ChildWorkflowOptions, ExternalTarget, Failure, FieldName, ParentClosePolicy, Payload, QueryName,
    RetryPolicy, RunId, SearchValue, Seq, TaskQueue, Timestamp, WorkflowId, WorkflowType,
};
use serde::{Deserialize, Serialize};

use super::messages::{ActionEnd, Because, Outcome, SIGNAL_CANCEL, SIGNAL_ENDED, SIGNAL_HELLO, SIGNAL_TERMINATE};
use super::spec::ScheduleAction;

/// The workflow type.
pub const SCHEDULE_ACTION: &str = "bosun.schedule.action";
/// Temporal's names of the attributes by which the runs of a schedule are found.
pub const ATTRIBUTE_ID: &str = "TemporalScheduledById";
pub const ATTRIBUTE_TIME: &str = "TemporalScheduledStartTime";

/// What a start is told.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ActionInput {
    /// The workflow that is told the end.
    pub schedule: WorkflowId,
    pub schedule_id: String,
    pub name: String,
    pub nominal: Timestamp,
    pub workflow_id: String,
    pub action: ScheduleAction,
}

/// The workflow.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ScheduledStart {
    input: ActionInput,
    child: Seq,
    run_id: Option<RunId>,
}

impl StateMachine for ScheduledStart {
    const TYPE: &'static str = SCHEDULE_ACTION;
    type Input = ActionInput;
    type Output = ActionEnd;

    fn start(input: ActionInput, cx: &mut Cx<'_>) -> Result<Self, Failure> {
        let invalid =
            |why: bosun_engine::InvalidId| Failure::application("InvalidAction", why.to_string()).non_retryable();
        let workflow_id = WorkflowId::new(&input.workflow_id).map_err(invalid)?;
        let workflow_type = WorkflowType::new(&input.action.workflow_type).map_err(invalid)?;
        let options = options(&input).map_err(invalid)?;
        let child = cx.start_child(workflow_type, workflow_id, &input.action.input, options);
        Ok(ScheduledStart { input, child, run_id: None })
    }

    fn on_event(&mut self, event: WorkflowEvent, cx: &mut Cx<'_>) -> Result<(), Failure> {
        match event {
            WorkflowEvent::ChildStarted { run_id, .. } => self.run_id = Some(run_id),
            WorkflowEvent::ChildResolved { result, .. } => {
                self.end(ActionEnd::of(&self.input.name, &result, self.run_id.is_some()), cx);
            }
            WorkflowEvent::CancelRequested { reason } => cx.cancel_child(self.child, &reason),
            WorkflowEvent::Signal(signal) => match signal.name.as_str() {
                SIGNAL_CANCEL => {
                    let because: Because = signal.input.decode().unwrap_or(Because { reason: String::new() });
                    cx.cancel_child(self.child, &because.reason);
                }
                // The child ends with this run, its parent.
                SIGNAL_TERMINATE => {
                    let (name, message) = (self.input.name.clone(), Some("by its schedule".to_owned()));
                    self.end(ActionEnd { name, outcome: Outcome::Terminated, message }, cx);
                }
                SIGNAL_HELLO => {}
                _ => cx.defer_signal(signal),
            },
            WorkflowEvent::Update { update_id, name, .. } => {
                let why = Failure::application("UnknownUpdate", format!("a start has no update named {name}"));
                cx.complete_update::<()>(update_id, Err(why));
            }
            WorkflowEvent::ActivityResolved { .. }
            | WorkflowEvent::TimerFired { .. }
            | WorkflowEvent::SignalDelivered { .. }
            | WorkflowEvent::CancelDelivered { .. } => {} // it asks for none that it waits for
        }
        Ok(())
    }

    fn queries() -> &'static [&'static str] {
        &["state"]
    }

    fn query(&self, _: &QueryName, _: &Payload) -> Result<Payload, Failure> {
        Ok(Payload::encode(self)?)
    }
}

impl ScheduledStart {
    fn end(&self, end: ActionEnd, cx: &mut Cx<'_>) {
        let to = ExternalTarget { workflow_id: self.input.schedule.clone(), run_id: None };
        cx.signal_external(to, SIGNAL_ENDED, &end);
        cx.complete(&end);
    }
}

fn options(input: &ActionInput) -> Result<ChildWorkflowOptions, bosun_engine::InvalidId> {
    let action = &input.action;
    let attributes = [
        (FieldName::of(ATTRIBUTE_ID), SearchValue::Keyword(input.schedule_id.clone())),
        (FieldName::of(ATTRIBUTE_TIME), SearchValue::Datetime(input.nominal)),
    ];
    Ok(ChildWorkflowOptions {
        task_queue: action.task_queue.as_ref().map(TaskQueue::new).transpose()?,
        execution_timeout: action.execution_timeout,
        run_timeout: action.run_timeout,
        retry_policy: action
            .maximum_attempts
            .map(|maximum_attempts| RetryPolicy { maximum_attempts, ..RetryPolicy::default() }),
        // It is ended by the end of this run, and nothing else ends this run before it.
        parent_close_policy: ParentClosePolicy::Terminate,
        cancellation: CancellationType::WaitCancellationCompleted,
        search_attributes: attributes.into(),
        summary: action.summary.clone(),
        priority: action.priority.as_ref().map(|said| said.0.clone()),
        ..ChildWorkflowOptions::default()
    })
}
