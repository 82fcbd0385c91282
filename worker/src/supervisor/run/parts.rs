//! The parts of a run beside its strategy, and the gates they are for the graph: people, team, memory, progress.
//!
//! Invariant: each part decides about its own matter only; here they are asked in one order (topics, recruits, people),
//! and told what has ended. Nothing here moves a task.

use std::collections::{BTreeMap, BTreeSet};

use bosun_engine::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::border::Border;
use super::gate;
use super::people::HUMAN_REVIEW;
use super::progress::StatusMessages;
use crate::supervisor::core::control::Control;
use crate::supervisor::core::gate::CallGate;
use crate::supervisor::core::key::GraphKey;
use crate::supervisor::core::retry::Tries;
use crate::supervisor::core::verdict::{Start, Take};
use crate::supervisor::graph::{Gates, PlanEvent, Reply};
use crate::supervisor::memory::SessionMemoryPart;
use crate::supervisor::model::{PlannedTask, PlannerOutput, Risk, SkipReason, Task, TaskId, TaskPlan};
use crate::supervisor::outbox::{Ask, ChildKind, ChildTask, Outbox};
use crate::supervisor::people::approval::{ApprovalId, Approvals};
use crate::supervisor::people::autonomy::Autonomy;
use crate::supervisor::people::below::{Above, Below};
use crate::supervisor::people::escalation::{Escalations, PlanShape};
use crate::supervisor::people::interrupts::Interrupts;
use crate::supervisor::people::plan_review::{PlanReview, PlanVerdict, ReviewStatus};
use crate::supervisor::routing::{Route, RoutingInput, is_simple, route};
use crate::supervisor::spec::{Money, PlanApproval, Ratio, Routing, SupervisorSpec};
use crate::supervisor::task::TaskStatus;
use crate::supervisor::team::{Teamwork, agent_of};

/// Everything beside the strategy.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct RunGates {
    pub(super) approvals: Approvals,
    pub(super) escalations: Escalations,
    pub(super) interrupts: Interrupts,
    /// What begins with a call, and waits for people.
    #[serde(default, skip_serializing_if = "CallGate::is_off")]
    pub(super) gate: CallGate,
    /// What the runs below wait for, and what was told of it above.
    #[serde(default)]
    pub(super) below: Below,
    #[serde(default)]
    pub(super) above: Above,
    pub(super) control: Control,
    #[serde(default)]
    pub(super) border: Border,
    pub(super) autonomy: Autonomy,
    pub(super) review: Option<PlanReview>,
    pub(super) team: Teamwork,
    pub(super) memory: SessionMemoryPart,
    pub(super) progress: StatusMessages,
    pub(super) plan_approval: PlanApproval,
    pub(super) human_review: bool,
    /// What is simple enough to be handed on, if anything is (SHN-02).
    routing: Option<Routing>,
    /// The result must have a shape, which a synthesizer gives it.
    shaped: bool,
    objective: String,
    pub(super) handed_on: Option<Route>,
    /// The tasks of what was handed on, with what each is about.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) handed_tasks: Vec<(TaskId, String)>,
    /// Which escalation an approval answers.
    pub(super) escalated: BTreeMap<ApprovalId, String>,
    /// What people have changed of `hitl` since the run began.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub(super) said: Map<String, Value>,
}

impl RunGates {
    pub(super) fn new(spec: &SupervisorSpec, run: &str, base_depth: u32, now: Timestamp) -> Self {
        RunGates {
            approvals: Approvals::new(spec.hitl.approval.clone()),
            escalations: Escalations::new(spec.hitl.clone()),
            interrupts: Interrupts::default(),
            gate: gate::of(spec),
            below: Below::default(),
            above: Above::default(),
            control: Control::default(),
            border: Border::default(),
            autonomy: Autonomy::new(&spec.hitl, &spec.trust, now),
            review: None,
            team: Teamwork::new(spec, run, base_depth),
            memory: SessionMemoryPart::new(spec.memory.clone()),
            progress: StatusMessages::new(spec.progress.messages, &spec.name),
            plan_approval: spec.planning.approval.clone(),
            human_review: spec.review.human,
            routing: spec.hands_on().then(|| spec.routing.clone()),
            shaped: spec.synthesis.schema.is_some(),
            objective: spec.objective.clone(),
            handed_on: None,
            handed_tasks: Vec::new(),
            escalated: BTreeMap::new(),
            said: Map::new(),
        }
    }
}

impl RunGates {
    /// Whether the run only finds out who is to carry its request out.
    pub(super) fn is_router(&self) -> bool {
        self.routing.as_ref().is_some_and(|rules| rules.entry)
    }

    /// Whether people may have to be asked before a task starts, in whatever mode the run is.
    fn is_asked_about(&self, task: &PlannedTask) -> bool {
        let costly = self.escalations.rules().is_costly(task.cost.map(Money::from_micros));
        task.action.is_some() || task.requires_approval || task.risk > Risk::Low || costly
    }

    /// Why people must see this plan, as it came from the planner.
    fn plan_reasons(&self, plan: &PlannerOutput) -> Vec<String> {
        let tools = plan.tasks.iter().flat_map(|task| task.tools.clone()).collect();
        self.reasons_of_plan(PlanShape { complexity: plan.complexity.map(Ratio::from_bp), tools })
    }
}

/// Who a task of a plan is for.
fn worker_of(task: &PlannedTask) -> Option<&String> {
    task.agent.as_ref().or(task.capability.as_ref())
}

/// Whether a plan gives its tasks to more than one, or in more than one role.
fn several_work(plan: &PlannerOutput) -> bool {
    let workers: BTreeSet<_> = plan.tasks.iter().map(|task| (worker_of(task), task.role.as_ref())).collect();
    workers.len() > 1
}

impl RunGates {
    /// Whether people have done all of a plan that they are shown by hand: there is nothing left that they could let begin, and
    /// nobody is asked about it any longer.
    fn is_done_by_hand(&mut self, plan: &TaskPlan, out: &mut Outbox) -> bool {
        let shown = self.review.as_ref().is_none_or(|review| review.status() == ReviewStatus::Reviewing);
        let over = plan.tasks.values().all(|task| task.status.is_terminal());
        if !shown || !over || !plan.tasks.values().any(|task| task.by_human) {
            return false;
        }
        const WHY: &str = "all of the plan was done by hand";
        if let Some(review) = &mut self.review {
            let (version, comment) = (review.version(), Some(WHY.to_owned()));
            let verdict = PlanVerdict { version, approved: true, approver: String::new(), comment, shown: None };
            // Of one that is open nothing is refused.
            let _ = review.decide(verdict, out);
        }
        self.approvals.void(None, WHY, out);
        true
    }
}

impl Gates for RunGates {
    fn held(&self) -> Option<String> {
        self.why_held()
    }

    fn plan_needs_approval(&mut self, plan: &TaskPlan, complexity_bp: Option<u32>, out: &mut Outbox) -> bool {
        !self.is_done_by_hand(plan, out) && self.plan_gate(plan, complexity_bp, out)
    }

    fn plan_failed(&mut self, why: &str, out: &mut Outbox) -> bool {
        self.regeneration_failed(why, out)
    }

    fn unmatched(&mut self, task: &TaskId, wanted: &str, out: &mut Outbox) {
        self.escalations.out_of_scope(task.clone(), wanted, out);
    }

    fn escalated(&mut self, task: &TaskId, words: &str, out: &mut Outbox) {
        self.escalations.handed_up(task.clone(), words, out);
    }

    fn strategy(&self, planned: &str) -> String {
        self.memory.strategy_over(planned)
    }

    /// What needs no team is carried out by a child: a simple request (SHN-02, SHN-05), and in a router whatever its
    /// decomposition says (SHN-01, SHN-04). What people must be asked about stays here.
    fn hands_on(&mut self, plan: &PlannerOutput, is_approved: bool, out: &mut Outbox) -> bool {
        let Some(rules) = &self.routing else { return false };
        let reviewed = self.plan_approval.required || !self.plan_reasons(plan).is_empty();
        if plan.tasks.iter().any(|task| self.is_asked_about(task)) || (reviewed && !is_approved) {
            return false;
        }
        let simple = is_simple(plan, rules);
        let to = match (simple, rules.entry) {
            (true, false) => Route::Dag,
            // One execution has one agent.
            (_, true) => match route(RoutingInput::of(plan), rules) {
                Route::SimpleTask if several_work(plan) => Route::Dag,
                to => to,
            },
            (false, false) => Route::Supervisor,
        };
        let whole = match to {
            Route::Supervisor => return false,
            Route::Dag => !simple,
            Route::SimpleTask => plan.tasks.len() > 1,
        };
        let with_plan = to == Route::Dag && whole;
        // One execution knows nothing of a plan.
        let says_more = |task: &PlannedTask| task.required || task.compensation.is_some();
        if !with_plan && plan.tasks.iter().any(says_more) {
            return false;
        }
        // Only a plan is synthesized below, and what one agent gives has the shape that it has.
        if self.shaped && !with_plan {
            return false;
        }
        let first = plan.tasks.first().filter(|_| !with_plan);
        let task = ChildTask {
            query: first.filter(|_| !whole).map_or(&self.objective, |task| &task.goal).clone(),
            role: first.and_then(|task| task.role.clone()),
            agent: first.and_then(|task| worker_of(task).cloned()),
            // What planning cost is paid here.
            plan: with_plan.then(|| json!(PlannerOutput { tokens: 0, ..plan.clone() })),
            is_planned: !whole,
            ..ChildTask::default()
        };
        self.handed_on = Some(to);
        let named = |task: &PlannedTask| Some((task.id.clone()?, task.goal.clone()));
        self.handed_tasks = plan.tasks.iter().filter_map(named).collect();
        let kind = if to == Route::Dag { ChildKind::Dag } else { ChildKind::SimpleTask };
        out.ask(Ask::StartChild { key: GraphKey::Routed.into(), kind, task });
        true
    }

    fn may_start(&mut self, task: &Task, out: &mut Outbox) -> Start {
        match self.team.may_start(task, out) {
            Start::Go => self.start_gate(task, out),
            other => other,
        }
    }

    fn changed(&mut self, task: &Task, out: &mut Outbox) -> bool {
        let proposal = self.start_of(task);
        !self.approvals.changed(&proposal, out).is_empty()
    }

    fn beside(&mut self, task: &Task, reply: &Reply, out: &mut Outbox) {
        reply.send.iter().for_each(|message| self.team.sent(&agent_of(task), message, out));
        self.team.wanted(&task.id, None, &reply.recruit, out);
    }

    fn takes_nobody(&mut self, out: &mut Outbox) {
        self.team.takes_nobody(out);
    }

    fn may_take(&mut self, task: &Task, reply: &Reply, is_judged: bool, out: &mut Outbox) -> Take {
        for message in &reply.send {
            self.team.sent(&agent_of(task), message, out);
        }
        self.team.wanted(&task.id, Some(&reply.result), &reply.recruit, out);
        self.result_gate(task, reply, is_judged, out)
    }

    fn may_count(&mut self, task: &Task, out: &mut Outbox) -> Take {
        if !self.human_review {
            return Take::Go;
        }
        let reasons = vec![HUMAN_REVIEW.to_owned()];
        let last = !Tries::of_task(task).are_left(task.attempt_count);
        self.ask_about_result(task, task.metadata.proposed_action.as_deref(), reasons, last, out);
        Take::NeedsApproval
    }

    fn context(&mut self, task: &Task, by: Option<&str>, out: &mut Outbox) -> Map<String, Value> {
        let mut context = self.team.context(task, by, out);
        // LGI-10: whatever a person has answered is known in every attempt.
        if self.interrupts.has_answers(&task.id) {
            context.insert("resume".to_owned(), json!(self.interrupts.continuation(&task.id)));
        }
        context
    }

    fn ended(&mut self, task: &Task, out: &mut Outbox) {
        let success = task.status == TaskStatus::Completed;
        let tried = success || task.status == TaskStatus::Failed || task.tries > 0;
        // Whoever said no to a result, or did not pay for the rest, says nothing of who did the work.
        let left_out = matches!(task.skipped, Some(SkipReason::ApprovalRejected | SkipReason::Budget));
        if tried && !left_out && task.status != TaskStatus::Cancelled {
            // Whoever did by hand what they were asked about has answered.
            let is_asked = self.escalations.row().is_some_and(|row| self.is_asked_beside(row, &task.id));
            self.escalations.row_ended(self.autonomy.mode(), task, success, is_asked, out);
            self.autonomy.task_ended(success, out);
        }
        self.team.ended(task, out);
        self.interrupts.task_ended(&task.id, out);
        self.approvals.void(Some(&task.id), "the task is over", out);
    }

    fn moment(&mut self, moment: PlanEvent<'_>, plan: &TaskPlan, out: &mut Outbox) {
        match moment {
            PlanEvent::Decomposed => self.team.announced(plan, out),
            _ => self.team.planned(plan),
        }
        self.progress.moment(&moment, plan, out);
    }

    fn busy(&self) -> Option<String> {
        if self.handed_on.is_some() {
            return Some("the request was handed on to a child".to_owned());
        }
        self.team.busy()
    }

    fn recruits(&self) -> (u32, u32) {
        self.team.members.recruits()
    }

    fn more_results(&self) -> Vec<(String, Value)> {
        self.team.more_results()
    }

    fn synthesizing(&mut self, out: &mut Outbox) {
        let _ = out;
        self.team.synthesizing();
    }
}
