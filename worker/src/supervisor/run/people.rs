//! Where a run asks people: before a plan, before a task, before a result counts, and when a decision takes too long.
//!
//! Invariant: what starts was approved as it stands now; an approval of something that has changed since is void and is
//! asked for again. An escalation that blocks is resolved by the answer to its approval. Nothing here moves a task.

use bosun_engine::workflow::Cx;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::SupervisorRun;
use super::parts::RunGates;
use crate::supervisor::core::call_context::{of_its_kind, parts_of};
use crate::supervisor::core::key::{BegunFor, Key};
use crate::supervisor::core::question::{OnExpiry, QuestionKey};
use crate::supervisor::core::retry::Tries;
use crate::supervisor::core::verdict::{Start, Take};
use crate::supervisor::graph::{Reply, SUPERVISOR_FEEDBACK};
use crate::supervisor::model::{CancelReason, Task, TaskId, TaskPlan};
use crate::supervisor::outbox::{Call, Outbox, Purpose};
use crate::supervisor::people::approval::{
    ApprovalId, ApprovalRequest, ApprovalScope, Clearance, Closed, Consequence, OnReject, Proposal,
};
use crate::supervisor::people::escalation::{Action, Observed, PlanShape};
use crate::supervisor::people::interrupts::Question;
use crate::supervisor::people::plan_review::{PlanReview, ReviewStatus};
use crate::supervisor::spec::{HitlMode, Money, Ratio, Risk, Span};

/// Why a person sees an ordinary result (SHH-19).
pub(super) const HUMAN_REVIEW: &str = "Results sent for human review";

impl RunGates {
    /// Whether a person must see the plan before anything of it starts (CUG-18, SHH-14). Asks them. A later plan of which
    /// everything was approved already is none that they have not seen.
    pub(super) fn plan_gate(&mut self, plan: &TaskPlan, complexity_bp: Option<u32>, out: &mut Outbox) -> bool {
        let shown = shown_plan(plan);
        if !self.plan_approval.required {
            return self.plan_policy(plan, shown, complexity_bp, out);
        }
        let words = plan.reasoning.clone().unwrap_or_default();
        match &mut self.review {
            Some(review) if review.status() == ReviewStatus::Regenerating => {
                review.regenerated(&words, Some(shown), out);
            }
            Some(review) => match review.approved() {
                Some(approved) if has_been_seen(&approved.plan, &shown, plan) => {}
                Some(_) => review.again(&words, shown, out),
                None => review.replaced(shown, out),
            },
            None => {
                self.review = Some(PlanReview::open(self.plan_approval.clone(), &words, Some(shown), out));
            }
        }
        self.review.as_ref().is_none_or(|review| review.status() != ReviewStatus::Approved)
    }

    /// Why the policy wants people to see a plan of this shape. Who only watches is asked about exceptions, and a plan is
    /// none (SHH-05, SHH-20).
    pub(super) fn reasons_of_plan(&self, shape: PlanShape) -> Vec<String> {
        let rules = self.escalations.rules();
        let asks = rules.enabled && self.autonomy.mode() != HitlMode::HumanOnTheLoop;
        if asks { rules.plan_policy.reasons(&shape) } else { Vec::new() }
    }

    fn plan_policy(&mut self, plan: &TaskPlan, shown: Value, complexity_bp: Option<u32>, out: &mut Outbox) -> bool {
        let tools = to_be_done(plan).flat_map(|task| task.tools.clone()).collect();
        let reasons = self.reasons_of_plan(PlanShape { complexity: complexity_bp.map(Ratio::from_bp), tools });
        let wanted = !reasons.is_empty();
        let proposal = Proposal {
            description: plan.objective.clone(),
            risk: Risk::High,
            context: shown,
            reasons,
            on_reject: OnReject::EndRun,
            ..Proposal::new(ApprovalScope::Plan { version: plan.version }, "execute_decomposition_plan")
        };
        // A plan that was changed is another question, or none.
        self.approvals.changed(&proposal, out);
        if wanted && !matches!(self.approvals.clearance(&proposal, false), Clearance::Pending(_)) {
            self.approvals.request(proposal, out);
        }
        wanted
    }

    /// A plan that people asked for could not be made: what they said is withdrawn (SHH-26). Whether it was such a plan.
    pub(super) fn regeneration_failed(&mut self, why: &str, out: &mut Outbox) -> bool {
        match &mut self.review {
            Some(review) if review.status() == ReviewStatus::Regenerating => {
                review.not_regenerated(why, out);
                true
            }
            Some(_) | None => false,
        }
    }

    /// Whether a person lets the task start as it stands now; asks them if they must be asked.
    pub(super) fn start_gate(&mut self, task: &Task, out: &mut Outbox) -> Start {
        let proposal = self.start_of(task);
        let mode = self.autonomy.mode();
        let row = self.escalations.row_before(mode, task, out);
        // A tool is approved for one use, so each time (CUG-39).
        let again = task.is_tried_again() && task.metadata.tool_approval.is_none();
        match self.approvals.clearance(&proposal, again) {
            Clearance::Approved { id, .. } if row.is_none() => {
                self.approvals.used(&id);
                return Start::Go;
            }
            Clearance::Pending(_) => return Start::NeedsApproval,
            Clearance::Approved { .. } | Clearance::NotAsked => {}
        }
        if row.as_ref().is_some_and(|row| self.is_asked(row)) {
            return Start::Held("a person is asked first about what failed in a row".to_owned());
        }
        let declared = task.action.as_deref().unwrap_or_default();
        let cost = task.est_cost_micros.map(Money::from_micros);
        let weighed = self.escalations.before(mode, declared, cost, proposal.risk);
        if weighed.is_none() && !task.requires_approval && row.is_none() {
            self.escalations.notice_before(Some(&task.id), declared, cost, out);
            return Start::Go;
        }
        let mut reasons: Vec<String> = weighed.into_iter().flatten().map(|reason| reason.text).collect();
        if let Some(of_row) = row.as_ref().and_then(|row| self.escalations.get(row))
            && !reasons.contains(&of_row.primary)
        {
            reasons.push(of_row.primary.clone());
        }
        if let Some(wanted) = &task.metadata.tool_approval {
            reasons.insert(0, format!("{}: {}", wanted.policy_name, wanted.message));
        }
        if reasons.is_empty() && task.requires_approval {
            reasons.push("The plan requires an approval".to_owned());
        }
        if reasons.is_empty() && proposal.risk == Risk::Critical {
            reasons.push("The task is critical".to_owned());
        }
        self.approvals.changed(&proposal, out);
        let approval = self.approvals.request(Proposal { reasons, ..proposal }, out);
        self.escalated.extend(row.map(|row| (approval, row)));
        Start::NeedsApproval
    }

    /// Whether somebody is asked about this escalation.
    pub(super) fn is_asked(&self, escalation: &str) -> bool {
        self.asked_about(escalation).next().is_some()
    }

    /// The same with another task than this one.
    pub(super) fn is_asked_beside(&self, escalation: &str, task: &TaskId) -> bool {
        self.asked_about(escalation).any(|request| request.task_id.as_ref() != Some(task))
    }

    fn asked_about(&self, escalation: &str) -> impl Iterator<Item = &ApprovalRequest> {
        let asked = move |id: &ApprovalId| self.escalated.get(id).is_some_and(|of| of == escalation);
        self.approvals.pending().filter(move |request| asked(&request.id))
    }

    /// What a person is asked about a task: as it is declared, or as a person has changed it.
    pub(super) fn start_of(&self, task: &Task) -> Proposal {
        let declared = task.action.as_deref().unwrap_or_default();
        let changed = task.metadata.approved_action.as_deref();
        let mut context = json!({
            "attempt": task.tries + 1, "role": task.role, "agent": task.agent, "capability": task.capability,
            "parameters": task.params, "dependencies": task.dependencies(),
        });
        let said = task.sent_back_with();
        if !said.is_empty() {
            context["feedback"] = json!(said);
        }
        // CUG-39: approval goes on, denial cancels.
        let by_policy = task.metadata.tool_approval.as_ref();
        if let (Some(wanted), Value::Object(context)) = (by_policy.map(|wanted| json!(wanted)), &mut context) {
            context.extend(wanted.as_object().cloned().unwrap_or_default());
        }
        let on_reject = match by_policy {
            Some(_) => OnReject::Cancel,
            None if task.required => OnReject::EndRun,
            None => OnReject::Skip,
        };
        Proposal {
            task_id: Some(task.id.clone()),
            description: task.goal.clone(),
            risk: self.escalations.rules().mark(declared, task.risk).risk,
            context,
            on_reject,
            ..Proposal::new(ApprovalScope::Task, changed.unwrap_or(declared))
        }
    }

    /// A worker's question is raised; otherwise the result goes before a person, if it must (SHH-18, SHH-19). What somebody
    /// reviews is shown to people when it is accepted.
    pub(super) fn result_gate(&mut self, task: &Task, reply: &Reply, is_judged: bool, out: &mut Outbox) -> Take {
        if let Some(payload) = &reply.interrupt {
            // A run always has an id, so that it can always be asked.
            let _ = self.interrupts.raise(question_of(task.id.clone(), payload), out);
            return Take::NeedsApproval;
        }
        let observed = Observed {
            confidence: reply.confidence.map(Ratio::from_bp),
            proposed_action: reply.proposes().map(str::to_owned),
            cost: reply.cost.map(Money::from_micros),
            out_of_scope: reply.out_of_scope.then(|| task.goal.clone()),
            risk: task.risk,
            ..Observed::default()
        };
        let mode = self.autonomy.mode();
        let held_back = self.is_held_back(task, reply);
        let raised = self.escalations.weigh(mode, Some(task.id.clone()), observed, out);
        let blocking = raised.filter(|escalation| escalation.blocking);
        let (id, reasons): (Option<String>, Vec<String>) = match blocking {
            Some(raised) => {
                (Some(raised.id.clone()), raised.reasons.iter().map(|reason| reason.text.clone()).collect())
            }
            None if self.human_review && !is_judged => (None, vec![HUMAN_REVIEW.to_owned()]),
            None if held_back => (None, Vec::new()),
            None => return Take::Go,
        };
        // A person who let the same result have the same action is not asked again because it failed (SHH-18).
        let proposal = about_result(task, reply.proposes(), Vec::new());
        if task.metadata.action_error.is_some()
            && let Clearance::Approved { .. } = self.approvals.clearance(&proposal, true)
        {
            if let Some(id) = id {
                self.escalations.resolve(&id, "approved", out);
            }
            return Take::Go;
        }
        let last = !Tries::of_task(task).are_left(task.attempt_count + 1);
        let approval = self.ask_about_result(task, reply.proposes(), reasons, last, out);
        if let Some(id) = id {
            self.escalated.insert(approval, id);
        }
        Take::NeedsApproval
    }

    /// Asks a person about a result. `last`: whoever sends it back ends the task.
    pub(super) fn ask_about_result(
        &mut self,
        task: &Task,
        proposes: Option<&str>,
        mut reasons: Vec<String>,
        last: bool,
        out: &mut Outbox,
    ) -> ApprovalId {
        if last {
            let most = task.max_attempts;
            reasons
                .push(format!("Sent back once more, the task has failed: {most} is the most (`review.max_attempts`)"));
        }
        let proposal = about_result(task, proposes, reasons);
        self.approvals.changed(&proposal, out);
        self.approvals.request(proposal, out)
    }

    /// Whether an action that a result proposes is asked for although it is nothing special (SHH-05): who commands is asked
    /// for every action, and what is critical is asked for.
    fn is_held_back(&self, task: &Task, reply: &Reply) -> bool {
        let rules = self.escalations.rules();
        let action = Action { risk: task.risk, ..Action::default() };
        rules.enabled && reply.proposes().is_some() && rules.needs_approval(self.autonomy.mode(), &action)
    }

    /// An approval is decided: the escalation behind it is resolved, and what is used at once is used up.
    pub(super) fn decided(&mut self, closed: &Closed, out: &mut Outbox) {
        if closed.scope != ApprovalScope::Task {
            self.approvals.used(&closed.id);
        }
        let Some(escalation) = self.escalated.remove(&closed.id) else { return };
        let resolution = match &closed.consequence {
            Consequence::Proceed { .. } => "approved",
            Consequence::Retry { .. } => "modify and retry",
            Consequence::Skip { .. } | Consequence::EndRun { .. } | Consequence::Cancel { .. } => "rejected",
        };
        if resolution != "rejected" {
            self.escalations.row_goes_on(&escalation);
        }
        self.escalations.resolve(&escalation, resolution, out);
    }
}

impl SupervisorRun {
    /// The time of a decision runs from its call (SHH-16).
    pub(super) fn decision_called(&mut self, call: &Call, cx: &mut Cx<'_>) {
        if matches!(call.purpose, Purpose::Plan | Purpose::Decide) {
            let mut out = self.outbox(cx.now());
            self.parts.escalations.decision_started(&call.key, &mut out);
            self.ask_all(out, cx);
        }
    }

    /// A decision that is not wanted any more is not slow.
    pub(super) fn decision_over(&mut self, key: &Key, cx: &mut Cx<'_>) {
        let mut out = self.outbox(cx.now());
        self.parts.escalations.decision_ended(key, &mut out);
        self.ask_all(out, cx);
    }

    /// A call that became a run of its own is told what this run is told (SHN-05).
    pub(super) fn register_if_child(&mut self, key: Key, cx: &mut Cx<'_>) {
        if key.begun_for() != BegunFor::Undoing && self.calls.child(&key).is_some() {
            let mut out = self.outbox(cx.now());
            self.parts.control.register(key, &mut out);
            self.ask_all(out, cx);
        }
    }

    /// What a part left between two asks: its notes are recorded as any others.
    pub(super) fn ask_all(&mut self, out: Outbox, cx: &mut Cx<'_>) {
        let (asks, notes) = self.take(out);
        self.note(notes, cx);
        for ask in asks {
            self.ask(ask, cx);
        }
    }
}

/// A question of a worker. Its payload may say how long it waits (`timeout`), and what is taken then (`default`).
pub(super) fn question_of(asker: impl Into<QuestionKey>, payload: &Value) -> Question {
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct Waits {
        #[serde(deserialize_with = "of_its_kind")]
        timeout: Option<Span>,
        #[serde(deserialize_with = "of_its_kind")]
        default: Option<Value>,
    }
    let Waits { timeout, default } = parts_of(payload);
    let on_expiry = default.map_or(OnExpiry::Fail, OnExpiry::Answer);
    Question { timeout, on_expiry, ..Question::new(asker, payload.clone()) }
}

/// The plan as people see it: what decides what will happen, and nothing that changes while they look.
fn shown_plan(plan: &TaskPlan) -> Value {
    let task = |task: &Task| {
        let mut shown = json!({
            "id": task.id, "goal": task.goal, "agent": task.agent, "capability": task.capability, "role": task.role,
            "action": task.action, "dependencies": task.dependencies(), "tools": task.tools, "required": task.required,
            "risk": task.risk, "requires_approval": task.requires_approval, "parameters": own_parameters(task),
        });
        let when = task.edges.iter().filter_map(|edge| Some((edge.on.to_string(), json!(edge.when.as_ref()?))));
        let when: Map<String, Value> = when.collect();
        let when = (!when.is_empty()).then(|| when.into());
        for (key, said) in [("when", when), ("compensation", task.compensation.clone())] {
            said.into_iter().for_each(|said| shown[key] = said);
        }
        shown
    };
    let tasks: Vec<Value> = to_be_done(plan).map(task).collect();
    json!({ "objective": plan.objective, "reasoning": plan.reasoning, "tasks": tasks })
}

/// The same, as far as it is read again.
#[derive(Default, Deserialize)]
struct SeenPlan {
    tasks: Vec<Value>,
}

#[derive(Deserialize)]
struct SeenTask {
    id: TaskId,
}

fn to_be_done(plan: &TaskPlan) -> impl Iterator<Item = &Task> {
    plan.in_order().into_iter().filter(|task| !task.status.is_terminal())
}

/// What the task is given by the plan. A word of the supervisor to whoever does it is no part of that (PDT-46).
fn own_parameters(task: &Task) -> Value {
    let own = task.params.iter().filter(|(name, _)| *name != SUPERVISOR_FEEDBACK);
    own.map(|(name, value)| (name.clone(), value.clone())).collect::<Map<String, Value>>().into()
}

/// Whether people have approved all that is to be done now, each task as it is, and nothing that they approved has been
/// planned away. That a task was done, failed, or was skipped by a rule, makes no other plan.
fn has_been_seen(approved: &Value, shown: &Value, plan: &TaskPlan) -> bool {
    let tasks = |of: &Value| parts_of::<SeenPlan>(of).tasks;
    let approved = tasks(approved);
    let planned_away = |task: &Value| {
        let shown = parts_of::<Option<SeenTask>>(task);
        let found = shown.and_then(|shown| plan.tasks.values().find(|task| task.id == shown.id));
        found.is_some_and(|task| task.cancelled == Some(CancelReason::Superseded))
    };
    tasks(shown).iter().all(|task| approved.contains(task)) && !approved.iter().any(planned_away)
}

/// What a person is asked about the result of a task.
fn about_result(task: &Task, proposes: Option<&str>, reasons: Vec<String>) -> Proposal {
    let mut context = json!({ "result": task.result, "attempt": task.tries });
    let said = task.sent_back_with();
    if !said.is_empty() {
        context["feedback"] = json!(said);
    }
    Proposal {
        task_id: Some(task.id.clone()),
        description: task.goal.clone(),
        risk: if proposes.is_some() { task.risk.max(Risk::High) } else { task.risk },
        context,
        reasons,
        on_reject: if task.required { OnReject::EndRun } else { OnReject::Skip },
        ..Proposal::new(ApprovalScope::Action, proposes.unwrap_or_default())
    }
}
