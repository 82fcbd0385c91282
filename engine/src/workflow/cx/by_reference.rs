//! What a state machine asks for by references (`crate::reference`).
//!
//! Invariant: each is the request by name of the same words, with the types checked by the compiler; it adds no command of
//! its own.

use std::panic::Location;

use serde::Serialize;

use super::Cx;
use crate::reference::{Activity, Workflow};
use crate::vocabulary::*;

impl Cx<'_> {
    /// Schedules an activity by its reference, with the limits of the reference. The number is the one under which
    /// [`WorkflowEvent::ActivityResolved`] tells of its end; [`Activity::result`] reads that.
    ///
    /// [`WorkflowEvent::ActivityResolved`]: crate::workflow::WorkflowEvent::ActivityResolved
    #[track_caller]
    pub fn call<I: Serialize, O>(&mut self, activity: Activity<I, O>, input: &I) -> Seq {
        self.schedule_activity(activity.activity_type(), input, activity.into_options())
    }
    /// Asks for a child workflow by its reference. The number is the one under which [`WorkflowEvent::ChildResolved`]
    /// tells of its end; [`Workflow::result`] reads that.
    ///
    /// [`WorkflowEvent::ChildResolved`]: crate::workflow::WorkflowEvent::ChildResolved
    #[track_caller]
    pub fn child<I: Serialize, O>(
        &mut self,
        workflow: Workflow<I, O>,
        workflow_id: impl IntoWorkflowId,
        input: &I,
    ) -> Seq {
        self.start_child(workflow.workflow_type(), workflow_id, input, ChildWorkflowOptions::default())
    }
    /// As [`Self::child`], with options.
    #[track_caller]
    pub fn child_with<I: Serialize, O>(
        &mut self,
        workflow: Workflow<I, O>,
        workflow_id: impl IntoWorkflowId,
        input: &I,
        options: ChildWorkflowOptions,
    ) -> Seq {
        self.start_child(workflow.workflow_type(), workflow_id, input, options)
    }
    /// Goes on in a new run of the same workflow id, by a reference; deferred signals go along:
    /// `cx.continue_as(Self::WORKFLOW, &self.balance)`.
    #[track_caller]
    pub fn continue_as<I: Serialize, O>(&mut self, workflow: Workflow<I, O>, input: &I) {
        let workflow_type = Some(workflow.workflow_type());
        self.next_run(Location::caller(), workflow_type, input, ContinueAsNewOptions::default());
    }
}
