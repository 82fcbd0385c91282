//! A plan of tasks in the hands of people and the team, as the run may reach into it.
//!
//! Invariant: it only hands on, to the methods of the plan of the same names.

use serde_json::{Map, Value};

use super::*;
use crate::supervisor::core::plan_control::PlanControl;
use crate::supervisor::core::strategy::{Continuation, StrategyRefusal};

impl<G: Gates> PlanControl<G> for Graph {
    fn plan(&self) -> &TaskPlan {
        Graph::plan(self)
    }

    fn approved(&mut self, task: &TaskId, action: &str, feedback: Option<String>, gates: &mut G, out: &mut Outbox) {
        Graph::approved(self, task, action, feedback, gates, out);
    }
    fn sent_back(&mut self, task: &TaskId, feedback: &str, action: Option<&str>, gates: &mut G, out: &mut Outbox) {
        Graph::sent_back(self, task, feedback, action, gates, out);
    }
    fn rejected(&mut self, task: &TaskId, reason: &str, by: Actor, gates: &mut G, out: &mut Outbox) {
        Graph::rejected(self, task, reason, by, gates, out);
    }
    fn required_rejected(&mut self, task: Option<&TaskId>, why: String, by: Actor, gates: &mut G, out: &mut Outbox) {
        Graph::required_rejected(self, task, why, by, gates, out);
    }
    fn answered_by_person(&mut self, task: &TaskId, answers: Continuation, gates: &mut G, out: &mut Outbox) {
        Graph::answered_by_person(self, task, answers, gates, out);
    }
    fn unanswered(&mut self, task: &TaskId, why: &str, gates: &mut G, out: &mut Outbox) {
        Graph::unanswered(self, task, why, gates, out);
    }
    fn complete_manually(
        &mut self,
        task: &TaskId,
        result: Value,
        gates: &mut G,
        out: &mut Outbox,
    ) -> Result<(), StrategyRefusal> {
        Graph::complete_manually(self, task, result, gates, out).map_err(StrategyRefusal::of)
    }
    fn cancel_task(&mut self, task: &TaskId, reason: &str, by: Actor, gates: &mut G, out: &mut Outbox) {
        Graph::cancel_task(self, task, reason, by, gates, out);
    }

    fn plan_approved(&mut self, gates: &mut G, out: &mut Outbox) {
        Graph::plan_approved(self, gates, out);
    }
    fn ask_plan_again(&mut self, conversation: &Value, definitive: bool, out: &mut Outbox) {
        Graph::ask_plan_again(self, conversation, definitive, out);
    }
    fn revise(
        &mut self,
        tasks: Vec<PlannedTask>,
        gates: &mut G,
        out: &mut Outbox,
    ) -> Result<Vec<String>, StrategyRefusal> {
        Graph::revise(self, tasks, gates, out).map_err(StrategyRefusal::of)
    }
    fn changed_by_person(
        &mut self,
        tool: &str,
        args: &Map<String, Value>,
        gates: &mut G,
        out: &mut Outbox,
    ) -> Result<Value, StrategyRefusal> {
        Graph::changed_by_person(self, tool, args, gates, out).map_err(StrategyRefusal::of)
    }
    fn told(&mut self, text: &str) {
        Graph::told(self, text);
    }

    fn recruit_failed(&mut self, gates: &mut G, out: &mut Outbox) {
        Graph::recruit_failed(self, gates, out);
    }
    fn review_timed_out(&mut self, error: String, gates: &mut G, out: &mut Outbox) {
        self.abort(PLAN_REVIEW_TIMED_OUT, error, Value::Null, gates, out);
    }
    fn deny(&mut self, answer: String, gates: &mut G, out: &mut Outbox) {
        Graph::deny(self, answer, gates, out);
    }
}
