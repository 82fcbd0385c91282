//! The parts of a run beside its carrier, and the gates they are for the graph: people, team, memory, progress.
//!
//! Invariant: each part decides about its own matter only; here they are asked in one order (topics, recruits, people),
//! and told what has ended. Nothing here moves a task.

use bosun_engine::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::progress::Progress;
use crate::supervisor::graph::{Gates, Moment, Reply, Start, Take};
use crate::supervisor::memory::SessionMemoryPart;
use crate::supervisor::model::{Risk, Task, TaskPlan};
use crate::supervisor::outbox::Outbox;
use crate::supervisor::people::approval::{Approvals, Clearance, OnReject, Proposal, Scope};
use crate::supervisor::people::autonomy::Autonomy;
use crate::supervisor::people::control::Control;
use crate::supervisor::people::escalation::{Escalations, Observed};
use crate::supervisor::people::interrupts::{Interrupts, Question};
use crate::supervisor::people::plan_review::{PlanReview, ReviewStatus};
use crate::supervisor::spec::{Gate, Money, PlanApproval, Ratio, RiskLevel, SupervisorSpec};
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
    plan_approval: PlanApproval,
    human_review: bool,
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
        }
    }

    /// What a person would be asked before the task starts, if they must be.
    fn proposal(&self, task: &Task) -> Option<Proposal> {
        let declared = task.action.as_deref().unwrap_or_default();
        let cost = task.est_cost_micros.map(Money::from_micros);
        let mode = self.autonomy.mode();
        let weighed = self.escalations.before(mode, declared, cost, level(task.risk));
        if weighed.is_none() && !task.requires_approval {
            return None;
        }
        let reasons: Vec<String> = weighed.unwrap_or_default().into_iter().map(|reason| reason.text).collect();
        let sensitive = self.escalations.rules().is_sensitive_plan(declared);
        Some(Proposal {
            task_id: Some(task.id.clone()),
            description: task.goal.clone(),
            risk: if sensitive { level(task.risk).max(RiskLevel::High) } else { level(task.risk) },
            context: json!({ "attempt": task.tries + 1, "role": task.role, "dependencies": task.dependencies() }),
            reasons,
            on_reject: if task.required { OnReject::EndRun } else { OnReject::Skip },
            ..Proposal::new(Scope::Task, declared)
        })
    }

    /// The result of a task goes before a person, if it must.
    fn result_gate(&mut self, task: &Task, reply: &Reply, out: &mut Outbox) -> Take {
        let after = self.escalations.rules().gates.contains(&Gate::After);
        let observed = Observed {
            confidence: reply.confidence.map(Ratio::from_bp),
            proposed_action: reply.action.clone().filter(|_| after),
            cost: reply.cost.map(Money::from_micros),
            out_of_scope: reply.out_of_scope.then(|| task.goal.clone()),
            risk: level(task.risk),
            ..Observed::default()
        };
        let mode = self.autonomy.mode();
        let escalation = self.escalations.weigh(mode, Some(task.id.clone()), observed, out);
        let blocking = escalation.filter(|escalation| escalation.blocking);
        let reasons: Vec<String> = match blocking {
            Some(escalation) => escalation.reasons.iter().map(|reason| reason.text.clone()).collect(),
            None if self.human_review => vec!["Results sent for human review".to_owned()],
            None => return Take::Go,
        };
        let proposal = Proposal {
            task_id: Some(task.id.clone()),
            description: task.goal.clone(),
            risk: level(task.risk),
            context: json!({ "result": task.result, "attempt": task.tries }),
            reasons,
            on_reject: if task.required { OnReject::EndRun } else { OnReject::Skip },
            ..Proposal::new(Scope::Action, reply.action.clone().unwrap_or_default())
        };
        self.approvals.request(proposal, out);
        Take::NeedsApproval
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

    fn plan_needs_approval(&mut self, plan: &TaskPlan, out: &mut Outbox) -> bool {
        if !self.plan_approval.required {
            return false;
        }
        let shown = json!({ "objective": plan.objective, "reasoning": plan.reasoning,
            "tasks": plan.in_order().iter().map(|task| json!({ "id": task.id, "goal": task.goal, "agent": task.agent,
                "role": task.role, "action": task.action, "dependencies": task.dependencies(), "risk": task.risk,
            })).collect::<Vec<_>>() });
        let words = plan.reasoning.clone().unwrap_or_default();
        match &mut self.review {
            Some(review) if review.status() == ReviewStatus::Regenerating => {
                review.regenerated(Ok((words, Some(shown))), out);
            }
            Some(review) => review.replaced(shown, out),
            None => {
                self.review = Some(PlanReview::open(self.plan_approval.clone(), &words, Some(shown), out));
            }
        }
        self.review.as_ref().is_none_or(|review| review.status() != ReviewStatus::Approved)
    }

    fn strategy(&self, planned: &str) -> String {
        self.memory.strategy_over(planned)
    }

    fn may_start(&mut self, task: &Task, out: &mut Outbox) -> Start {
        match self.team.may_start(task, out) {
            Start::Go => {}
            other => return other,
        }
        let Some(proposal) = self.proposal(task) else { return Start::Go };
        match self.approvals.clearance(&proposal) {
            Clearance::Approved { id, .. } => {
                self.approvals.used(&id);
                Start::Go
            }
            Clearance::Pending(_) => Start::NeedsApproval,
            Clearance::NotAsked => {
                self.approvals.request(proposal, out);
                Start::NeedsApproval
            }
        }
    }

    fn may_take(&mut self, task: &Task, reply: &Reply, out: &mut Outbox) -> Take {
        for message in &reply.send {
            self.team.sent(&agent_of(task), message, out);
        }
        self.team.result_seen(&task.id, &reply.result, &reply.recruit, out);
        if let Some(payload) = &reply.interrupt {
            let timeout = payload.get("timeout").and_then(|span| serde_json::from_value(span.clone()).ok());
            let question = Question { timeout, ..Question::new(task.id.clone(), payload.clone()) };
            let _ = self.interrupts.raise(question, out);
            return Take::NeedsApproval;
        }
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
