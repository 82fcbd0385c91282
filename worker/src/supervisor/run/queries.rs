//! Queries: what people and programs may ask a run, at any time (supervisors.md §5.7).
//!
//! Invariant: answers are copies made from the state; asking changes nothing and writes no event.

use std::collections::{BTreeMap, BTreeSet};

use bosun_engine::{Failure, Payload};
use serde::Deserialize;
use serde_json::{Value, json};

use super::signals::refusal;
use super::{SupervisorRun, arguments, value_of};
use crate::supervisor::core::call_context::parts_of;
use crate::supervisor::core::key::GraphKey;
use crate::supervisor::core::plan_control::NoPlan;
use crate::supervisor::core::strategy::TaskReport;
use crate::supervisor::graph::WhyNotRunning;
use crate::supervisor::model::{Task, TaskId};
use crate::supervisor::native::{Attributes, System, native_view};
use crate::supervisor::outbox::Outbox;
use crate::supervisor::people::below::WaitKind;
use crate::supervisor::people::plan_review::ReviewStatus;
use crate::supervisor::people::takeover::{PlanStepView, TakeoverContext};
use crate::supervisor::spec::SupervisorSpec;
use crate::supervisor::task::TaskStatus;

/// Why a run returned that is still open (FSS-36).
const PARKED: &str = "parked-for-review";

pub(super) const QUERIES: [&str; 39] = [
    "budget",
    "check_process",
    "control_state_v1",
    "deadlock_report",
    "digest",
    "escalations",
    "findTeamAgentsByRole",
    "getMailbox",
    "get_depth",
    "get_instance",
    "get_plan",
    "get_process_output",
    "get_task",
    "listTeamAgents",
    "list_active",
    "list_children",
    "list_processes",
    "mailbox_counts",
    "native_view",
    "notes",
    "parked",
    "pending_approvals",
    "pending_interrupts",
    "plan_review",
    "plan_review_state",
    "progress",
    "progress_messages",
    "registry",
    "registry_stats",
    "report",
    "resume_point",
    "spec",
    "status_board",
    "takeover_context",
    "team_roster",
    "trust_level",
    "view_qa_report",
    "waiting",
    "why_not_running",
];

impl SupervisorRun {
    pub(super) fn answer_query(&self, name: &str, input: &Payload) -> Result<Payload, Failure> {
        let value = value_of(input)?;
        if QUERIES.contains(&name) {
            arguments::of_query(name, &value)?;
        }
        let answer = match self.query_value(name, &value) {
            Some(answer) => answer?,
            None => return Err(refusal("UnknownQuery", format!("a supervisor has no query {name}"))),
        };
        Ok(Payload::encode(&answer)?)
    }

    fn query_value(&self, name: &str, value: &Value) -> Option<Result<Value, Failure>> {
        let parts = &self.parts;
        Some(Ok(match name {
            "spec" => json!(self.resolved),
            "notes" => json!({ "noted": self.noted, "last": self.notes }),
            "report" => json!(self.output_now()),
            "digest" => self.strategy.view(self.parts.control.is_held(), &|key| self.calls.holds_word_for(key)),
            "progress" => self.progress_view(),
            "control_state_v1" => parts.control.view(),
            "takeover_context" => json!(self.takeover_context()),
            "pending_approvals" => parts.approvals.view(),
            "pending_interrupts" => parts.interrupts.view(),
            "escalations" => parts.escalations.view(),
            "plan_review" | "plan_review_state" => {
                parts.review.as_ref().map(|review| review.view()).unwrap_or_default()
            }
            "trust_level" => parts.autonomy.view(self.now),
            "progress_messages" => json!(parts.progress.messages()),
            "budget" => self.budget(),
            "parked" => self.parked(),
            "waiting" => json!(self.waiting()),
            "resume_point" => self.strategy.resume_point(&self.run),
            "list_processes" | "check_process" | "get_process_output" => {
                return Some(
                    self.strategy.process_query(name, value).map_err(|why| refusal("UnknownProcess", why.to_string())),
                );
            }
            _ => {
                return parts.team.query(name, value, self.now).map(Ok).or_else(|| self.plan_query(name, value));
            }
        }))
    }

    fn plan_query(&self, name: &str, value: &Value) -> Option<Result<Value, Failure>> {
        if ![
            "get_plan",
            "status_board",
            "get_task",
            "view_qa_report",
            "why_not_running",
            "deadlock_report",
            "native_view",
        ]
        .contains(&name)
        {
            return None;
        }
        let Some(plan) = self.strategy.plan() else { return Some(self.without_plan(name, value)) };
        let task = || {
            let id = named_task(value);
            let found = TaskId::new(id.clone()).ok().and_then(|id| plan.get(&id));
            found.ok_or_else(|| refusal("UnknownTask", format!("No task with id {id}.")))
        };
        Some(match name {
            "get_plan" => Ok(json!(plan)),
            "status_board" => Ok(self.strategy.status_board()),
            "get_task" => task().map(|task| json!(task)),
            "view_qa_report" => task().map(|task| match task.feedback.last() {
                Some(last) => json!(last),
                None => format!("No QA feedback found for task {}.", task.id).into(),
            }),
            "why_not_running" => task().map(|task| self.why_not_running(&task.id)),
            "deadlock_report" => Ok(json!(self.strategy.deadlock_report())),
            _ => self.native_view(value),
        })
    }

    /// The same of a run that has no plan: of the tasks of a crew, if it is one.
    fn without_plan(&self, name: &str, value: &Value) -> Result<Value, Failure> {
        match name {
            "status_board" if !self.reported().is_empty() => {
                let tasks = self.reported();
                let line = |task: &TaskReport| json!({ "task_id": task.task_id, "status": task.status, "objective": task.title, "error": task.error });
                Ok(tasks.iter().map(line).collect())
            }
            "get_plan" | "status_board" => {
                Ok(self.strategy.view(self.parts.control.is_held(), &|key| self.calls.holds_word_for(key)))
            }
            "deadlock_report" => Ok(Value::Null),
            "native_view" => self.native_view(value),
            _ => {
                let (id, tasks) = (named_task(value), self.reported());
                let no_plan = || refusal("NoPlan", NoPlan::NoTasks.to_string());
                let found = tasks.iter().find(|task| task.task_id.as_str() == id);
                match found {
                    None if tasks.is_empty() => Err(no_plan()),
                    None => Err(refusal("UnknownTask", format!("No task with id {id}."))),
                    Some(task) if name == "get_task" => Ok(json!(task)),
                    Some(task) if name == "view_qa_report" => {
                        Ok(format!("No QA feedback found for task {}.", task.task_id).into())
                    }
                    Some(task) => Ok(json!(WhyNotRunning {
                        task: task.task_id.clone(),
                        status: task.status,
                        reasons: self.why_listed_waits(task, &tasks),
                    })),
                }
            }
        }
    }

    /// The tasks as the report tells them. One that waits for an approval of its start has not begun.
    fn reported(&self) -> Vec<TaskReport> {
        let mut tasks = self.strategy.findings(&self.account.balance()).tasks;
        let asked: BTreeSet<&TaskId> =
            self.parts.approvals.pending().filter_map(|asked| asked.task_id.as_ref()).collect();
        for task in tasks.iter_mut().filter(|task| task.status == TaskStatus::Running && asked.contains(&task.task_id))
        {
            task.status = TaskStatus::AwaitingApproval;
            task.attempts = task.attempts.saturating_sub(1);
        }
        tasks
    }

    /// Why a task of a list is not done, in the order in which that would have to be lifted.
    fn why_listed_waits(&self, task: &TaskReport, tasks: &[TaskReport]) -> Vec<String> {
        let mut reasons: Vec<String> = task.error.iter().cloned().collect();
        if task.status.is_terminal() {
            return reasons;
        }
        reasons.extend(self.parts.control.held_because());
        if task.status == TaskStatus::AwaitingApproval {
            reasons.push("waits for an approval".to_owned());
        }
        let before =
            tasks.iter().take_while(|other| other.task_id != task.task_id && task.status == TaskStatus::Pending);
        let open = before.filter(|other| !other.status.is_terminal());
        reasons.extend(open.map(|other| format!("waits for task {} ({})", other.task_id, other.status)));
        reasons
    }

    /// Asked on a copy: the gates answer as they would, and leave no trace.
    fn why_not_running(&self, id: &TaskId) -> Value {
        // What is put off while the run goes on waits for its part of the budget.
        if self.calls.is_put_off(id) && !self.parts.control.is_held() && !self.parts.border_closes() {
            let reason = format!(
                "waits until runs below give back what they were lent of the budget: `bosun budget show {}`",
                self.id
            );
            return json!({ "task": id, "status": "running", "reasons": [reason] });
        }
        let mut parts = self.parts.clone();
        let budget = self.account.balance();
        let mut out = Outbox::new(self.run.clone(), self.now)
            .with_budget(budget)
            .with_held(self.parts.control.is_held())
            .with_awaited(self.awaited.clone());
        self.strategy.why_not_running(id, &mut parts, &mut out)
    }

    /// The tasks in the words of a system: the run's own, or the one that is named.
    fn native_view(&self, value: &Value) -> Result<Value, Failure> {
        let spec = &self.resolved.spec;
        #[derive(Deserialize)]
        struct InWordsOf {
            preset: String,
        }
        let named = match value {
            Value::String(preset) => Some(preset.clone()),
            value => parts_of::<Option<InWordsOf>>(value).map(|of| of.preset),
        };
        let (own, words) = (spec.preset.map(|preset| preset.name().to_owned()), spec.words());
        let in_own_words = named.is_none() && own.is_some();
        let system = match &named {
            None => words,
            Some(name) => System::named(name)
                .or_else(|| SupervisorSpec::words_of(name))
                .ok_or_else(|| refusal("UnknownSystem", unknown_system(name)))?,
        };
        let name = named.or(own).unwrap_or_else(|| words.as_str().to_owned());
        let plan = self.strategy.plan().ok_or_else(|| refusal("NoPlan", NoPlan::NoTasks.to_string()))?;
        let tasks = plan.in_order();
        let shown = tasks.iter().map(|task| (task.id.clone(), task.status, Attributes::default()));
        let mut rows = native_view(system, shown);
        // In its own words, a run calls what was sent back as its spec does (§4.1 no. 1).
        if in_own_words {
            let sent_back = system.spelled(self.resolved.spec.review.reject_status.as_str());
            let those = rows.iter_mut().filter(|row| row.status == TaskStatus::NeedsRevision && row.native.is_some());
            those.for_each(|row| row.native = Some(sent_back.clone()));
        }
        Ok(json!({ "system": name, "tasks": rows }))
    }

    /// Whether nothing goes on before a person says something, and what they are asked, here and below (FSS-36).
    fn parked(&self) -> Value {
        let parts = &self.parts;
        let approvals = parts.approvals.pending().map(|request| format!("approval {}", request.id));
        let interrupts = parts.interrupts.pending().map(|interrupt| format!("interrupt {}", interrupt.id));
        let review = parts.review.as_ref().filter(|review| review.status() == ReviewStatus::Reviewing);
        let review = review.map(|review| format!("plan version {}", review.version()));
        let held = parts.control.held_because().map(|why| format!("`bosun resume` or `release`: {why}"));
        let below = parts.below.waiting(|child| self.calls.has_child(child)).map(|(_, one)| one.named());
        let waits: Vec<String> = approvals.chain(interrupts).chain(review).chain(held).chain(below).collect();
        let retries = self.calls.waits_for_time();
        // Who holds a run holds its children.
        let held = !parts.control.is_running() && self.calls.only_children() && !retries && !waits.is_empty();
        let parked = self.stands_still() || (held && !self.strategy.phase().is_terminal());
        json!({
            "parked": parked, "reason": parked.then_some(PARKED), "waits": waits,
            "exit": parked && self.resolved.spec.review.park_exit,
        })
    }

    fn budget(&self) -> Value {
        self.account.view(json!(self.resolved.spec.budget), &self.awaited)
    }

    pub(super) fn takeover_context(&self) -> TakeoverContext {
        if let Some(child) = self.calls.child(&GraphKey::Routed.into()) {
            return self.takeover_of_request(&child.workflow_id);
        }
        let meanwhile: BTreeMap<TaskId, Option<Value>> =
            self.calls.held_answers().filter_map(|(key, answer)| self.strategy.ended_meanwhile(key, answer)).collect();
        let step = |task: &&Task| PlanStepView {
            id: task.id.clone(),
            objective: task.goal.clone(),
            status: task.status,
            has_ended: meanwhile.contains_key(&task.id),
            result: meanwhile.get(&task.id).cloned().flatten().or_else(|| task.result.clone()),
            error: task.error.as_ref().map(|error| error.message.clone()),
        };
        // A crew has a list of tasks, and no plan that could be changed.
        let listed = |task: TaskReport| PlanStepView {
            id: task.task_id,
            objective: task.title,
            status: task.status,
            has_ended: false,
            result: task.brief.map(Value::from),
            error: task.error,
        };
        let steps: Vec<PlanStepView> = match self.strategy.plan() {
            Some(plan) => plan.in_order().iter().map(step).collect(),
            None => self.reported().into_iter().map(listed).collect(),
        };
        let context = TakeoverContext::of(&steps);
        match self.strategy.plan() {
            Some(_) => context,
            None => TakeoverContext { suggested_next_action: self.next_without_plan(), ..context },
        }
    }

    /// The same where the request was handed on: how far its tasks are, the run below knows (SHN-67).
    fn takeover_of_request(&self, child: &str) -> TakeoverContext {
        let step = |(id, goal): &(TaskId, String)| PlanStepView {
            id: id.clone(),
            objective: goal.clone(),
            status: TaskStatus::Running,
            has_ended: false,
            result: None,
            error: None,
        };
        let steps: Vec<PlanStepView> = self.parts.handed_tasks.iter().map(step).collect();
        let suggested_next_action = format!(
            "Release the run or cancel it: its request was handed on, and `bosun plan show {child}` shows how far that is"
        );
        TakeoverContext { suggested_next_action, ..TakeoverContext::of(&steps) }
    }

    /// What a person does next where no tasks are planned: what is asked of them comes first, then who is at work.
    fn next_without_plan(&self) -> String {
        let held = |kind| matches!(kind, WaitKind::Pause | WaitKind::Takeover);
        if let Some(asked) = self.waiting().into_iter().find(|one| !held(one.kind)) {
            return format!("Give {}: `{}`", asked.what, asked.answer);
        }
        let rows = self.strategy.rows();
        #[derive(Deserialize)]
        struct Row {
            status: String,
            title: String,
        }
        let row = |row: &Value| parts_of::<Option<Row>>(row).filter(|row| row.status == "running");
        let at_work = rows.iter().rev().find_map(row);
        match at_work {
            Some(Row { title, .. }) => format!("Release the run or cancel it: at work is {title}"),
            None => "Release the run or cancel it".to_owned(),
        }
    }
}

fn unknown_system(name: &str) -> String {
    let known = System::ALL.map(System::as_str).join(", ");
    format!("there is no system named {name}; known are {known}, and the name of each preset")
}

/// The id of a task, by name or as it is.
fn named_task(value: &Value) -> String {
    #[derive(Deserialize)]
    struct Named {
        task_id: Value,
    }
    match parts_of::<Option<Named>>(value).map_or_else(|| value.clone(), |named| named.task_id) {
        Value::String(text) => text,
        Value::Null => String::new(),
        other => other.to_string(),
    }
}
