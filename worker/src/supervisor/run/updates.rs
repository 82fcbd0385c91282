//! Updates: validated, then answered; a refused one leaves no state behind (supervisors.md §5.7).
//!
//! Invariant: the same function decides whether an update is accepted and carries it out, so that what was validated is
//! what happens. Tools of the plan are a person's here: the table still has the last word.

use std::time::Duration;

use bosun_engine::{Failure, Payload};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::parts::RunGates;
use super::refusal::{Refused, WishRefusal};
use super::rules_below::OF_PEOPLE;
use super::signals::{ESCALATE_APPROVAL, EXTEND_APPROVAL, refusal};
use super::{SupervisorRun, arguments, value_of};
use crate::supervisor::model::{PlannedTask, TaskId, TaskPlan};
use crate::supervisor::outbox::Outbox;
use crate::supervisor::people::plan_review::{PlanFeedback, PlanVerdict, ReviewRefusal, ReviewStatus};
use crate::supervisor::reading::read;

pub(super) const UPDATES: [&str; 18] = [
    "add_task",
    "approve_plan",
    "cancel_task",
    "cleanup_agents",
    "complete_task_manually",
    ESCALATE_APPROVAL,
    EXTEND_APPROVAL,
    "kill_process",
    "mark_final_task",
    "patch_task",
    "plan_feedback",
    "report_incident",
    "respond_approval",
    "respond_interrupt",
    "revise_plan",
    "set_hitl_mode",
    "set_policy",
    "update_task_status",
];

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ManualCompletion {
    task_id: TaskId,
    #[serde(default)]
    result: Value,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RevisedPlan {
    version: u64,
    tasks: Vec<PlannedTask>,
}

impl SupervisorRun {
    pub(super) fn update(&mut self, name: &str, input: &Payload, out: &mut Outbox) -> Result<Value, Failure> {
        let value = value_of(input)?;
        arguments::of_update(name, &value).map_err(Refused::from)?;
        match name {
            "add_task" | "patch_task" | "cancel_task" | "mark_final_task" | "update_task_status" => {
                Ok(self.tool(name, &value, out)?)
            }
            "complete_task_manually" => Ok(self.complete_manually(&value, out)?),
            "revise_plan" | "plan_feedback" | "approve_plan" => {
                let below = self.plan_answered_below(name, &value, out);
                Ok(below.unwrap_or_else(|| self.said_of_plan(name, &without_of(&value), out))?)
            }
            "respond_approval" => Ok(self.approval_answered(&value, out)?),
            EXTEND_APPROVAL | ESCALATE_APPROVAL => Ok(self.approval_moved(name, &value, out)?),
            "respond_interrupt" => Ok(self.question_answered(&value, out)?),
            name if OF_PEOPLE.contains(&name) => self.people_rules(name, &value, out),
            "cleanup_agents" => Ok(self.cleanup_agents(&value, out)?),
            "kill_process" => Ok(self.strategy.kill_process(&value, out).map_err(Refused::from)?),
            other => Err(refusal(
                "UnknownUpdate",
                format!("a supervisor has no update named {other}; it has: {}", UPDATES.join(", ")),
            )),
        }
    }

    fn tool(&mut self, name: &str, value: &Value, out: &mut Outbox) -> Result<Value, Refused> {
        let args: Map<String, Value> = read("input", value)?;
        let parts = &mut self.parts;
        let plan = self.strategy.plan_control()?;
        Ok(plan.changed_by_person(name, &args, parts, out)?)
    }

    /// Only while a person has the run (SHN-68).
    fn complete_manually(&mut self, value: &Value, out: &mut Outbox) -> Result<Value, Refused> {
        let ManualCompletion { task_id, result } = read("input", value)?;
        if !self.parts.control.is_human() {
            return Err(WishRefusal::NotTakenOver.into());
        }
        let parts = &mut self.parts;
        let plan = self.strategy.plan_control()?;
        plan.complete_manually(&task_id, result, parts, out)?;
        Ok(json!({ "task_id": task_id, "status": "completed", "origin": "human" }))
    }

    /// What a person says of the plan of this run.
    pub(super) fn said_of_plan(&mut self, name: &str, value: &Value, out: &mut Outbox) -> Result<Value, Refused> {
        match name {
            "revise_plan" => self.revise_plan(value, out),
            "plan_feedback" => self.plan_feedback(value, out),
            _ => self.approve_plan(value, out),
        }
    }

    /// A person replaces what is left of the plan they saw.
    fn revise_plan(&mut self, value: &Value, out: &mut Outbox) -> Result<Value, Refused> {
        let RevisedPlan { version, tasks } = read("input", value)?;
        let parts = &mut self.parts;
        let plan = self.strategy.plan_control()?;
        // What is up for review is called by the version that was shown.
        let latest = |parts: &RunGates, plan: &TaskPlan| match &parts.review {
            Some(review) if review.status() == ReviewStatus::Reviewing => review.version(),
            _ => plan.version,
        };
        let now = latest(parts, plan.plan());
        if version != now {
            let why = format!("Conflict: plan has been updated. Please review the latest version. It is {now}.");
            return Err(Refused { kind: "AnswerStale", why });
        }
        let kept = plan.revise(tasks, parts, out)?;
        let mut answer = json!({ "version": latest(parts, plan.plan()) });
        if !kept.is_empty() {
            answer["kept"] = json!(kept);
        }
        Ok(answer)
    }

    fn plan_feedback(&mut self, value: &Value, out: &mut Outbox) -> Result<Value, Refused> {
        let feedback = PlanFeedback::read(value)?;
        let review = self.parts.review.as_mut().ok_or(WishRefusal::NoReview)?;
        let again = review.feedback(&feedback, out)?;
        let plan = self.strategy.plan_control()?;
        plan.ask_plan_again(&json!(again.conversation), again.definitive, out);
        Ok(json!({ "round": again.round, "status": "regenerating" }))
    }

    fn approve_plan(&mut self, value: &Value, out: &mut Outbox) -> Result<Value, Refused> {
        let verdict = PlanVerdict::read(value)?;
        let reviewed = self.resolved.spec.planning.approval.required;
        // SHH-24: the plan that will be reviewed is still being made.
        let nothing = || match reviewed {
            true => Refused { kind: "Refused", why: ReviewRefusal::NoPlan.to_string() },
            false => WishRefusal::NoReview.into(),
        };
        let review = self.parts.review.as_mut().ok_or_else(nothing)?;
        review.decide(verdict, out)?;
        let view = review.view();
        if review.approved().is_none() {
            self.review_ended(out);
            return Ok(view);
        }
        let parts = &mut self.parts;
        let plan = self.strategy.plan_control()?;
        plan.plan_approved(parts, out);
        Ok(view)
    }

    /// SUP-12: forgets one agent, whatever its status.
    fn cleanup_agent(&mut self, id: &str, out: &mut Outbox) -> Result<Value, Refused> {
        let registry = &mut self.parts.team.registry;
        match registry.cleanup(id, out) {
            true => Ok(json!({ "removed": id, "left": registry.stats() })),
            false => Err(WishRefusal::NoAgent(id.to_owned()).into()),
        }
    }

    /// SUP-13, SUP-14, SUP-16: forgets agents that have ended, and those that are active for longer than so many hours.
    fn cleanup_agents(&mut self, value: &Value, out: &mut Outbox) -> Result<Value, Refused> {
        #[derive(Default, Deserialize)]
        #[serde(deny_unknown_fields, default)]
        struct Cleanup {
            /// Null: only what has ended goes, whatever its age.
            max_age_hours: Option<u64>,
            /// Whether what has ended goes too.
            completed: Option<bool>,
            /// Only this one goes.
            id: Option<String>,
        }
        let empty = json!({});
        let cleanup: Cleanup = read("input", if value.is_null() { &empty } else { value })?;
        if let Some(id) = &cleanup.id {
            return match (cleanup.max_age_hours, cleanup.completed) {
                (None, None) => self.cleanup_agent(id, out),
                _ => Err(WishRefusal::IdAlone.into()),
            };
        }
        let registry = &mut self.parts.team.registry;
        let stale = match cleanup.max_age_hours {
            Some(hours) => registry.prune_stale(Duration::from_secs(hours.saturating_mul(3_600)), out),
            None => 0,
        };
        let completed = if cleanup.completed.unwrap_or(true) { registry.cleanup_completed(out) } else { 0 };
        Ok(json!({ "stale": stale, "completed": completed, "left": registry.stats() }))
    }
}

/// What is said of this run's own plan has no addressee.
pub(super) fn without_of(value: &Value) -> Value {
    let mut value = value.clone();
    if let Value::Object(map) = &mut value {
        map.remove("of");
    }
    value
}
