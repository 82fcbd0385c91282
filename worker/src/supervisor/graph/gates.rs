//! What stands between a task and its start or its end: the parts of the run that the graph asks (people, team,
//! progress, memory). The budget is none of them: it is asked before every call (`run/asks`), and stands in the outbox.
//!
//! Invariant: the graph asks at the same points whatever the preset; a gate answers from recorded state, and may leave
//! asks of its own (an approval's timer and notice). [`Open`] is the gate of a run without any.

use serde_json::{Map, Value};

use crate::supervisor::core::verdict::{Start, Take};
use crate::supervisor::model::Task;
use crate::supervisor::outbox::Outbox;

/// The moments of a plan that are told (CUG-14).
#[derive(Debug, Clone, PartialEq)]
pub enum PlanEvent<'a> {
    Decomposed,
    Started(&'a Task),
    Completed(&'a Task),
    Failed(&'a Task),
    /// It was skipped or cancelled, for the reason that it carries.
    NotDone(&'a Task),
    Finished,
}

pub trait Gates {
    /// Why nothing may start at all: paused, in human hands.
    fn held(&self) -> Option<String> {
        None
    }
    /// Whether a person must approve the plan before anything of it starts; the request has been made.
    fn plan_needs_approval(
        &mut self,
        plan: &crate::supervisor::model::TaskPlan,
        complexity_bp: Option<u32>,
        out: &mut Outbox,
    ) -> bool {
        let _ = (plan, complexity_bp, out);
        false
    }
    /// The planner gave no plan. `true`: people asked for another one and keep the one they have (SHH-26).
    fn plan_failed(&mut self, why: &str, out: &mut Outbox) -> bool {
        let _ = (why, out);
        false
    }
    /// The strategy to execute a plan with; experience may know better (SHN-43).
    fn strategy(&self, planned: &str) -> String {
        planned.to_owned()
    }
    /// Whether a decomposition this simple is handed on as a whole; who takes it has been asked for. Its end comes back
    /// as [`super::Graph::handed_back`]. `is_approved`: people have seen the plan as it is.
    fn hands_on(&mut self, plan: &super::PlannerOutput, is_approved: bool, out: &mut Outbox) -> bool {
        let _ = (plan, is_approved, out);
        false
    }
    fn may_start(&mut self, task: &Task, out: &mut Outbox) -> Start {
        let _ = (task, out);
        Start::Go
    }
    /// A task that waits for an approval is another one now. Whether people were asked about what it was: that is void.
    fn changed(&mut self, task: &Task, out: &mut Outbox) -> bool {
        let _ = (task, out);
        false
    }
    /// What a worker wants of its team beside work that gave no result of its task: messages and people (SHN-14, SHN-26).
    fn beside(&mut self, task: &Task, reply: &super::Reply, out: &mut Outbox) {
        let _ = (task, reply, out);
    }
    /// The run is cancelled or fails: nobody joins its team any more (SHN-27).
    fn takes_nobody(&mut self, out: &mut Outbox) {
        let _ = out;
    }
    /// Asked with the meta data of the reply before the result counts. `is_judged`: somebody reviews it after that.
    fn may_take(&mut self, task: &Task, reply: &super::Reply, is_judged: bool, out: &mut Outbox) -> Take {
        let _ = (task, reply, is_judged, out);
        Take::Go
    }
    /// The reviewer has accepted a result. Whether a person must see it as well before it counts (SHH-19).
    fn may_count(&mut self, task: &Task, out: &mut Outbox) -> Take {
        let _ = (task, out);
        Take::Go
    }
    /// Nobody who is registered can do the task (SHH-17).
    fn unmatched(&mut self, task: &crate::supervisor::model::TaskId, wanted: &str, out: &mut Outbox) {
        let _ = (task, wanted, out);
    }
    /// A reviewer hands a task upward, in these words (FSS-25).
    fn escalated(&mut self, task: &crate::supervisor::model::TaskId, words: &str, out: &mut Outbox) {
        let _ = (task, words, out);
    }
    /// What the worker is told beyond the task itself: messages, role, memory. `by`: which agent does it, where one does.
    fn context(&mut self, task: &Task, by: Option<&str>, out: &mut Outbox) -> Map<String, Value> {
        let _ = (task, by, out);
        Map::new()
    }
    /// A task has ended for good.
    fn ended(&mut self, task: &Task, out: &mut Outbox) {
        let _ = (task, out);
    }
    fn moment(&mut self, moment: PlanEvent<'_>, plan: &crate::supervisor::model::TaskPlan, out: &mut Outbox) {
        let _ = (moment, plan, out);
    }
    /// What else must be over before the run may end or synthesize: recruits, children.
    fn busy(&self) -> Option<String> {
        None
    }
    /// How many recruits have ended or are at work, and how many of them have failed.
    fn recruits(&self) -> (u32, u32) {
        (0, 0)
    }
    /// Results that are no task's of the plan: recruits. In order.
    fn more_results(&self) -> Vec<(String, Value)> {
        Vec::new()
    }
    /// The run begins to synthesize: from now on no recruits (SHN-27).
    fn synthesizing(&mut self, out: &mut Outbox) {
        let _ = out;
    }
}

/// No gates.
#[derive(Debug)]
pub struct Open;

impl Gates for Open {}
