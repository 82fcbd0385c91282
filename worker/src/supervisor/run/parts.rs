//! The parts of a run beside its carrier, and the gates they are for the graph: people, team, memory, progress.
//!
//! Invariant: each part decides about its own matter only; here they are asked in one order (topics, recruits, people),
//! and told what has ended. Nothing here moves a task.

use std::collections::BTreeMap;

use bosun_engine::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::progress::Progress;
use crate::supervisor::graph::{Gates, Moment, Reply, Start, Take};
use crate::supervisor::memory::SessionMemoryPart;
use crate::supervisor::model::{Risk, Task, TaskId, TaskPlan};
use crate::supervisor::outbox::Outbox;
use crate::supervisor::people::approval::{Approvals, Clearance, OnReject, Proposal, Scope};
use crate::supervisor::people::autonomy::Autonomy;
use crate::supervisor::people::control::Control;
use crate::supervisor::people::escalation::{Escalations, Observed};
use crate::supervisor::people::interrupts::{Interrupts, Question};
use crate::supervisor::people::plan_review::{PlanReview, ReviewStatus};
use crate::supervisor::spec::{Gate, Money, PlanApproval, Preset, Ratio, RiskLevel, SupervisorSpec};
use crate::supervisor::task::TaskStatus;
use crate::supervisor::team::events::TeamEvent;
use crate::supervisor::team::mailbox::Mailbox;
use crate::supervisor::team::recruit::Team;
use crate::supervisor::team::registry::Registry;
use crate::supervisor::team::roles;
use crate::supervisor::team::topics::{TopicState, Topics};

/// Everything beside the carrier.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Parts {
    pub(super) approvals: Approvals,
    pub(super) escalations: Escalations,
    pub(super) interrupts: Interrupts,
    pub(super) control: Control,
    pub(super) autonomy: Autonomy,
    pub(super) review: Option<PlanReview>,
    pub(super) mailbox: Mailbox,
    pub(super) team: Team,
    pub(super) registry: Registry,
    pub(super) topics: Topics,
    pub(super) memory: SessionMemoryPart,
    pub(super) progress: Progress,
    /// Who is at work on which task, by the registry's id.
    instances: BTreeMap<TaskId, String>,
    plan_approval: PlanApproval,
    human_review: bool,
    /// Whether this kind of run has a team at all (SHD-07).
    pub(super) has_team: bool,
    topics_planned: u64,
    started: usize,
    warned: BTreeMap<TaskId, Vec<String>>,
}

impl Parts {
    pub(super) fn new(spec: &SupervisorSpec, run: &str, base_depth: u32, now: Timestamp) -> Self {
        let alone = [Preset::ShannonDag, Preset::ShannonSimple];
        Parts {
            approvals: Approvals::new(spec.hitl.approval.clone()),
            escalations: Escalations::new(spec.hitl.clone()),
            interrupts: Interrupts::default(),
            control: Control::default(),
            autonomy: Autonomy::new(&spec.hitl, &spec.trust, now),
            review: None,
            mailbox: Mailbox::new(spec.mailbox.clone()),
            team: Team::new(spec.team.clone()),
            registry: Registry::new(run, base_depth, spec.delegation.max_depth),
            topics: Topics::new(spec.dependencies.topics.clone()),
            memory: SessionMemoryPart::new(spec.memory.clone()),
            progress: Progress::new(spec.progress.messages),
            instances: BTreeMap::new(),
            plan_approval: spec.planning.approval.clone(),
            human_review: spec.review.human,
            has_team: spec.preset.is_none_or(|preset| !alone.contains(&preset)),
            topics_planned: 0,
            started: 0,
            warned: BTreeMap::new(),
        }
    }

    /// Who carries a task out, as the team knows them.
    pub(super) fn agent_of(task: &Task) -> String {
        let named = task.agent.as_deref().or(task.capability.as_deref()).filter(|name| !name.is_empty());
        named.map_or_else(|| format!("agent-{}", task.id), str::to_owned)
    }

    fn plan_topics(&mut self, plan: &TaskPlan) {
        if self.topics_planned < plan.version {
            self.topics_planned = plan.version;
            for task in plan.tasks.values().filter(|task| !task.status.is_terminal() && !task.produces.is_empty()) {
                self.topics.plan(&task.id, &task.produces);
            }
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
        if let TopicState::Wait = self.topics.begin(&task.id, &Parts::agent_of(task), &task.consumes, out) {
            return Start::Wait(format!("waits for topics: {}", self.topics.waiting_for(&task.id).join(", ")));
        }
        let joins = self.team.joins(&task.dependencies());
        if !joins.is_empty() {
            return Start::Wait(format!("waits for recruits: {}", joins.join(", ")));
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
            let from = Parts::agent_of(task);
            let mut message = message.clone();
            if let Value::Object(fields) = &mut message {
                fields.entry("From").or_insert_with(|| from.into());
            }
            // A refusal is noted by the mailbox.
            let _ = self.mailbox.received(&message, out);
        }
        if self.has_team {
            let mut seen = reply.result.clone();
            if let (Value::Object(map), false) = (&mut seen, reply.recruit.is_empty()) {
                map.insert("recruit".into(), Value::Array(reply.recruit.clone()));
            } else if !reply.recruit.is_empty() {
                seen = json!({ "recruit": reply.recruit });
            }
            self.team.result_seen(&task.id, &seen, out);
        }
        if let Some(payload) = &reply.interrupt {
            let timeout = payload.get("timeout").and_then(|span| serde_json::from_value(span.clone()).ok());
            let question = Question { timeout, ..Question::new(task.id.clone(), payload.clone()) };
            let _ = self.interrupts.raise(question, out);
            return Take::NeedsApproval;
        }
        self.result_gate(task, reply, out)
    }

    fn context(&mut self, task: &Task, out: &mut Outbox) -> Map<String, Value> {
        let mut more = Map::new();
        let agent = Parts::agent_of(task);
        if let Some(role) = task.role.as_deref().filter(|_| self.has_team) {
            if self.team.directory.started(&agent, role, &task.id) {
                let _ = roles::assign(&mut self.mailbox, &agent, role, out);
                TeamEvent::RoleAssigned { agent: agent.clone(), role: role.to_owned() }.emit(out);
            }
            more.insert("role_prompt".into(), roles::role_prompt(role).into());
        } else if self.has_team {
            self.team.directory.started(&agent, roles::GENERALIST, &task.id);
        }
        let unread = self.mailbox.unread(&agent);
        if let Some(last) = unread.last() {
            let through = last.seq;
            let read: Vec<&_> = unread.iter().filter(|message| message.draft.content != roles::ROLE_ASSIGNED).collect();
            if !read.is_empty() {
                more.insert("messages".into(), json!(read));
            }
            self.mailbox.mark_read(&agent, through);
        }
        if let Ok(instance) = self.registry.register(&agent, None, out) {
            self.instances.insert(task.id.clone(), instance);
        }
        if let Some(missing) = self.warned.remove(&task.id) {
            more.insert("missing_topics".into(), json!(missing));
        }
        more
    }

    fn ended(&mut self, task: &Task, out: &mut Outbox) {
        let success = task.status == TaskStatus::Completed;
        let tried = success || task.status == TaskStatus::Failed || task.tries > 0;
        if tried && !matches!(task.status, TaskStatus::Cancelled) {
            self.escalations.task_ended(success);
            self.autonomy.task_ended(success, out);
        }
        self.topics.ended(&task.id, &task.produces, success);
        self.team.directory.ended(&Parts::agent_of(task), Some(&task.id), success);
        if let Some(instance) = self.instances.remove(&task.id) {
            let _ = match success {
                true => self.registry.mark_completed(&instance, out),
                false => self.registry.mark_failed(&instance, out),
            };
        }
        self.interrupts.task_ended(&task.id, out);
        self.approvals.void(Some(&task.id), "the task is over", out);
    }

    fn moment(&mut self, moment: Moment<'_>, plan: &TaskPlan, out: &mut Outbox) {
        self.plan_topics(plan);
        if let (Moment::Started(task), true) = (&moment, self.has_team) {
            self.started += 1;
            let agent = Parts::agent_of(task);
            TeamEvent::Progress { agent, step: task.position as usize + 1, of: plan.tasks.len() }.emit(out);
        }
        if let (Moment::Decomposed, true) = (&moment, self.has_team) {
            TeamEvent::Status { agents: plan.tasks.len() }.emit(out);
        }
        self.progress.moment(&moment, plan, out);
    }

    fn busy(&self) -> Option<String> {
        let recruits = self.team.recruits_alive();
        (recruits > 0).then(|| format!("{recruits} recruits are at work"))
    }

    fn more_results(&self) -> Vec<(String, Value)> {
        let good = self.team.results().into_iter().filter(|result| result.success);
        let result = |value: Value| value.get("result").or_else(|| value.get("final_result")).cloned().unwrap_or(value);
        good.map(|recruit| (recruit.agent_id, result(recruit.response))).collect()
    }

    fn synthesizing(&mut self, out: &mut Outbox) {
        let _ = out;
        self.team.synthesizing();
    }
}
