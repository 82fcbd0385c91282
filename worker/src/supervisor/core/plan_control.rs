//! What people, the team and decided approvals do to a plan of tasks: the only way a run may reach into one.
//!
//! Invariant: the run says what was decided, and to which task; what becomes of the plan is the plan's to say, by its own table.
//! A family without a plan answers [`NoPlan`] (`Strategy::plan_control`), so that nobody asks which family a run is of.

use serde_json::{Map, Value};

use super::strategy::{Continuation, StrategyRefusal};
use crate::supervisor::model::{PlannedTask, TaskId, TaskPlan};
use crate::supervisor::outbox::Outbox;
use crate::supervisor::task::Actor;

/// What is wanted of a plan is wanted of a run that has none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NoPlan {
    #[error("this kind of run has no plan of tasks")]
    NoTasks,
    /// It has tasks, and they are no plan.
    #[error(
        "its tasks are done by its agents, one after the other as they are listed: nobody does one by hand or changes the list"
    )]
    Listed,
}

/// See the module. `G` is what holds a strategy back before a step.
pub trait PlanControl<G: ?Sized> {
    fn plan(&self) -> &TaskPlan;

    /// A person has approved that a task may start, or that what its result proposes may be done; `feedback` is what whoever
    /// does it should know (SHH-12).
    fn approved(&mut self, task: &TaskId, action: &str, feedback: Option<String>, gates: &mut G, out: &mut Outbox);
    /// A task is done again, told what the person wants (SHH-12, SHH-19); `action` is what they want done instead.
    fn sent_back(&mut self, task: &TaskId, feedback: &str, action: Option<&str>, gates: &mut G, out: &mut Outbox);
    /// Somebody said no to an optional task, or nobody anything in time (SHH-10).
    fn rejected(&mut self, task: &TaskId, reason: &str, by: Actor, gates: &mut G, out: &mut Outbox);
    /// The same of what is required: the run has failed with it. No task: it was the plan.
    fn required_rejected(&mut self, task: Option<&TaskId>, why: String, by: Actor, gates: &mut G, out: &mut Outbox);
    /// All questions of a task are answered (LGI-01).
    fn answered_by_person(&mut self, task: &TaskId, answers: Continuation, gates: &mut G, out: &mut Outbox);
    /// Nobody answered a task in time (LGI-07).
    fn unanswered(&mut self, task: &TaskId, why: &str, gates: &mut G, out: &mut Outbox);
    /// A person has done the task (SHN-68).
    fn complete_manually(
        &mut self,
        task: &TaskId,
        result: Value,
        gates: &mut G,
        out: &mut Outbox,
    ) -> Result<(), StrategyRefusal>;
    /// One task is not needed any more; what waits for it follows by the run's policy. One that is over stays as it is.
    fn cancel_task(&mut self, task: &TaskId, reason: &str, by: Actor, gates: &mut G, out: &mut Outbox);

    /// The plan that people were shown is approved (CUG-31).
    fn plan_approved(&mut self, gates: &mut G, out: &mut Outbox);
    /// People want another plan: whoever made this one is told of the conversation about it (SHH-21).
    fn ask_plan_again(&mut self, conversation: &Value, definitive: bool, out: &mut Outbox);
    /// A person replaces what is left of the plan; gives what was named and stays as it is, and why.
    fn revise(
        &mut self,
        tasks: Vec<PlannedTask>,
        gates: &mut G,
        out: &mut Outbox,
    ) -> Result<Vec<String>, StrategyRefusal>;
    /// A tool of the plan in a person's hands.
    fn changed_by_person(
        &mut self,
        tool: &str,
        args: &Map<String, Value>,
        gates: &mut G,
        out: &mut Outbox,
    ) -> Result<Value, StrategyRefusal>;
    /// Words of a person, for the next decision.
    fn told(&mut self, text: &str);

    /// A recruit has failed, which may count (§4.2 no. 21).
    fn recruit_failed(&mut self, gates: &mut G, out: &mut Outbox);
    /// Nobody has said anything of the plan in time: the run fails.
    fn review_timed_out(&mut self, error: String, gates: &mut G, out: &mut Outbox);
    /// A person has denied what the run was to do (CUG-32).
    fn deny(&mut self, answer: String, gates: &mut G, out: &mut Outbox);
}
