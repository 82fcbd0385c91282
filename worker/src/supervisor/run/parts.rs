//! The parts of a run beside its carrier, and the gates they are for the graph: people, team, memory, progress.
//!
//! Invariant: each part decides about its own matter only; here they are asked in one order (topics, recruits, people),
//! and told what has ended. Nothing here moves a task.

use std::collections::BTreeMap;

use bosun_engine::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::progress::Progress;
use crate::supervisor::graph::{Gates, Moment, Reply, Start, Take};
use crate::supervisor::memory::SessionMemoryPart;
use crate::supervisor::model::{Risk, Task, TaskId, TaskPlan};
use crate::supervisor::outbox::Outbox;
use crate::supervisor::people::approval::{ApprovalId, Approvals};
use crate::supervisor::people::autonomy::Autonomy;
use crate::supervisor::people::control::Control;
use crate::supervisor::people::escalation::Escalations;
use crate::supervisor::people::interrupts::Interrupts;
use crate::supervisor::people::plan_review::PlanReview;
use crate::supervisor::spec::{PlanApproval, RiskLevel, SupervisorSpec};
use crate::supervisor::task::TaskStatus;
use crate::supervisor::team::{Teamwork, agent_of};

/// Everything beside the carrier.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Parts {
    pub(super) approvals: Approvals,
    pub(super) escalations: Escalations,
    pub(super) interrupts: Interrupts,
    pub(super) control: Control,
    pub(super) autonomy: Autonomy,
    pub(super) review: Option<PlanReview>,
    pub(super) team: Teamwork,
    pub(super) memory: SessionMemoryPart,
    pub(super) progress: Progress,
    pub(super) plan_approval: PlanApproval,
    pub(super) human_review: bool,
    /// Which escalation an approval answers.
    pub(super) escalated: BTreeMap<ApprovalId, String>,
}

impl Parts {
    pub(super) fn new(spec: &SupervisorSpec, run: &str, base_depth: u32, now: Timestamp) -> Self {
        Parts {
            approvals: Approvals::new(spec.hitl.approval.clone()),
            escalations: Escalations::new(spec.hitl.clone()),
            interrupts: Interrupts::default(),
            control: Control::default(),
            autonomy: Autonomy::new(&spec.hitl, &spec.trust, now),
            review: None,
            team: Teamwork::new(spec, run, base_depth),
            memory: SessionMemoryPart::new(spec.memory.clone()),
            progress: Progress::new(spec.progress.messages),
            plan_approval: spec.planning.approval.clone(),
            human_review: spec.review.human,
            escalated: BTreeMap::new(),
        }
    }
}

pub(super) fn level(risk: Risk) -> RiskLevel {
    match risk {
        Risk::Low => RiskLevel::Low,
        Risk::Medium => RiskLevel::Medium,
        Risk::High => RiskLevel::High,
        Risk::Critical => RiskLevel::Critical,
    }
}

impl Gates for Parts {
    fn held(&self) -> Option<String> {
        self.control.why_held().map(str::to_owned)
    }

    fn plan_needs_approval(&mut self, plan: &TaskPlan, complexity_bp: Option<u32>, out: &mut Outbox) -> bool {
        self.plan_gate(plan, complexity_bp, out)
    }

    fn plan_failed(&mut self, why: &str, out: &mut Outbox) -> bool {
        self.regeneration_failed(why, out)
    }

    fn unmatched(&mut self, task: &TaskId, wanted: &str, out: &mut Outbox) {
        self.escalations.out_of_scope(task.clone(), wanted, out);
    }

    fn strategy(&self, planned: &str) -> String {
        self.memory.strategy_over(planned)
    }

    fn may_start(&mut self, task: &Task, out: &mut Outbox) -> Start {
        match self.team.may_start(task, out) {
            Start::Go => self.start_gate(task, out),
            other => other,
        }
    }

    fn may_take(&mut self, task: &Task, reply: &Reply, out: &mut Outbox) -> Take {
        for message in &reply.send {
            self.team.sent(&agent_of(task), message, out);
        }
        self.team.result_seen(&task.id, &reply.result, &reply.recruit, out);
        self.result_gate(task, reply, out)
    }

    fn context(&mut self, task: &Task, out: &mut Outbox) -> Map<String, Value> {
        self.team.context(task, out)
    }

    fn ended(&mut self, task: &Task, out: &mut Outbox) {
        let success = task.status == TaskStatus::Completed;
        let tried = success || task.status == TaskStatus::Failed || task.tries > 0;
        if tried && !matches!(task.status, TaskStatus::Cancelled) {
            self.escalations.task_ended(success);
            self.autonomy.task_ended(success, out);
        }
        self.team.ended(task, out);
        self.interrupts.task_ended(&task.id, out);
        self.approvals.void(Some(&task.id), "the task is over", out);
    }

    fn moment(&mut self, moment: Moment<'_>, plan: &TaskPlan, out: &mut Outbox) {
        match moment {
            Moment::Decomposed => self.team.announced(plan, out),
            _ => self.team.planned(plan),
        }
        self.progress.moment(&moment, plan, out);
    }

    fn busy(&self) -> Option<String> {
        self.team.busy()
    }

    fn more_results(&self) -> Vec<(String, Value)> {
        self.team.more_results()
    }

    fn synthesizing(&mut self, out: &mut Outbox) {
        let _ = out;
        self.team.synthesizing();
    }
}
