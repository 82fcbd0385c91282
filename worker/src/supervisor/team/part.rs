//! The team's parts of one run, together: what a run asks of them, and whom it gives answers, timers and signals.
//!
//! Invariant: the run knows one thing, not five: a task starts only if this lets it, and is told here when it has; an
//! agent is registered and has its role before its first call. Whatever does not belong here is passed over
//! (`None`, `false`), so the run may offer everything to every part.
//!
//! Long: one way in for all parts of the team.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::directory::MemberStatus;
use super::events::TeamEvent;
use super::mailbox::{InvalidMessage, MailboxMessage, Mailboxes, SIGNAL_MAILBOX, SUPERVISOR};
use super::recruit::{RecruitResult, Roster, SIGNAL_RECRUIT, SIGNAL_RETIRE, TeamOutcome};
use super::registry::Registry;
use super::roles::{GENERALIST, ROLE_ASSIGNED, assign};
use super::topics::{TopicRegistry, TopicState};
use super::wanted::ForTeam;
use crate::supervisor::core::key::TeamKey;
use crate::supervisor::core::verdict::Start;
use crate::supervisor::journal::NoteKind;
use crate::supervisor::model::{Task, TaskId, TaskPlan};
use crate::supervisor::outbox::{Answer, Ask, Outbox};
use crate::supervisor::spec::SupervisorSpec;
use crate::supervisor::task::TaskStatus;

/// Why a run of one execution, or of a plain graph, takes no message and no recruit (SHD-07).
const NO_TEAM: &str = "this kind of run has no team and no mailbox";

/// What a signal, an answer or a timer came to.
#[derive(Debug, Clone, PartialEq)]
pub enum Heard {
    /// It is settled here; the run may look again at what can start.
    Settled,
    /// It was refused, for this reason; noted already.
    Refused(String),
    /// An agent has left: these tasks of the plan are to be cancelled.
    Retired { agent_id: String, tasks: Vec<TaskId> },
    /// A recruit has ended.
    Recruit { agent_id: String, succeeded: bool },
}

/// What is kept of a task while its agent works.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Assignment {
    agent: String,
    instance: Option<String>,
    /// The last message shown, by the name it was sent to.
    shown: BTreeMap<String, u64>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Teamwork {
    /// Whether there is a team at all: a graph or a simple task has none (SHD-07).
    managed: bool,
    /// Whether an agent without a role of its own is told that it has that of the run, or is a generalist (SHN-40).
    roles: bool,
    /// The role that the run was given from above.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    given_role: Option<String>,
    /// The run is a recruit: what its agent wants of the team is for the run above, whose team it is in (SHN-14, SHN-26).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    for_above: Option<ForTeam>,
    /// What its agent is called there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    own_id: Option<String>,
    pub mailbox: Mailboxes,
    pub members: Roster,
    pub topics: TopicRegistry,
    pub registry: Registry,
    root: Option<String>,
    work: BTreeMap<TaskId, Assignment>,
    /// The instances of recruits at work, by agent.
    recruits: BTreeMap<String, String>,
    /// Recruits whose runs have begun: messages to them go there.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    begun: BTreeMap<String, TeamKey>,
    /// The version of the plan that is known here, and how many tasks it has: the `n` of "step i of n".
    version: u64,
    planned: usize,
}

impl Teamwork {
    /// `base_depth` is how deep the run itself stands below others.
    pub fn new(spec: &SupervisorSpec, run: &str, base_depth: u32) -> Self {
        Teamwork {
            managed: spec.has_team(),
            roles: spec.assigns_roles(),
            given_role: None,
            for_above: None,
            own_id: None,
            mailbox: Mailboxes::new(spec.mailbox.clone()),
            members: Roster::new(spec.team.clone()).beside(spec.agents.iter().map(|agent| agent.name.as_str())),
            topics: TopicRegistry::new(spec.dependencies.topics.clone()),
            registry: Registry::new(run, base_depth, spec.delegation.max_depth),
            root: None,
            work: BTreeMap::new(),
            recruits: BTreeMap::new(),
            begun: BTreeMap::new(),
            version: 0,
            planned: 0,
        }
    }

    /// The run was given a role: of agents for whom the plan names none.
    pub fn role_given(&mut self, role: Option<&str>) {
        self.given_role = role.map(str::trim).filter(|role| !role.is_empty()).map(str::to_owned);
    }

    /// The run is a recruit of the one above, by this name; these messages wait for it.
    pub fn is_recruit(&mut self, own_id: &str, mail: &[Value], out: &mut Outbox) {
        (self.for_above, self.own_id) = (Some(ForTeam::default()), Some(own_id.to_owned()));
        // What is no message is noted by the mailbox.
        mail.iter().for_each(|message| drop(self.mailbox.received(message, out)));
    }
    /// The run of a recruit begins: the messages that it takes along.
    pub fn recruit_begins(&mut self, key: &TeamKey, agent: &str) -> Vec<Value> {
        self.begun.insert(agent.to_owned(), key.clone());
        let unread = self.mailbox.unread(agent);
        if let Some(last) = unread.last() {
            self.mailbox.mark_read(agent, last.seq);
        }
        unread.iter().map(|message| json!(message.draft)).collect()
    }
    /// What the run above is to do for its team.
    pub fn for_above(&self) -> ForTeam {
        self.for_above.clone().unwrap_or_default()
    }

    /// The run begins: its own agent is the root of the registry.
    pub fn started(&mut self, name: &str, out: &mut Outbox) {
        if self.root.is_none() {
            self.root = self.registry.register(name, None, out).ok();
        }
    }

    /// The plan as it is now; one that has not changed costs nothing.
    pub fn planned(&mut self, plan: &TaskPlan) {
        if (self.version, self.planned) == (plan.version, plan.tasks.len()) {
            return;
        }
        (self.version, self.planned) = (plan.version, plan.tasks.len());
        for task in plan.tasks.values().filter(|task| !task.status.is_terminal()) {
            self.topics.plan(&task.id, &task.produces);
        }
    }

    /// The plan is about to be carried out: people are told how many work on it.
    pub fn announced(&mut self, plan: &TaskPlan, out: &mut Outbox) {
        self.planned(plan);
        if self.managed {
            TeamEvent::Status { agents: self.planned }.emit(out);
        }
    }

    /// Whether a task that is ready otherwise may start: its agent has not left, those it joins are back, and the
    /// topics it consumes are there (or have been waited for).
    pub fn may_start(&mut self, task: &Task, out: &mut Outbox) -> Start {
        let agent = agent_of(task);
        if self.members.directory.get(&agent).is_some_and(|member| member.status == MemberStatus::Retired) {
            return Start::Refused(format!("{agent} has left the team"));
        }
        // Nobody works who could not be registered (SUP-07, SUP-32).
        if let Err(why) = self.registry.may_register(self.root.as_deref())
            && !self.work.contains_key(&task.id)
        {
            return Start::Refused(why.to_string());
        }
        let joined = self.members.joins(&task.dependencies());
        if !joined.is_empty() {
            return Start::Wait(format!("waits for {}", joined.join(", ")));
        }
        match self.topics.begin(&task.id, &agent, &task.consumes, out) {
            TopicState::Go { .. } => Start::Go,
            TopicState::Wait => {
                Start::Wait(format!("waits for topic {}", self.topics.waiting_for(&task.id).join(", ")))
            }
        }
    }

    /// The task starts now: what its agent is told beyond the task. The agent is in the directory and the registry from
    /// here on, and knows its role.
    pub fn context(&mut self, task: &Task, by: Option<&str>, out: &mut Outbox) -> Map<String, Value> {
        let agent = agent_of(task);
        let of_run = || self.given_role.clone().unwrap_or_else(|| GENERALIST.to_owned());
        let named = task.role.clone().or_else(|| self.roles.then(of_run));
        let role = named.clone().unwrap_or_else(|| GENERALIST.to_owned());
        let again = self.work.contains_key(&task.id);
        self.members.directory.started(&agent, &role, &task.id);
        if !again {
            let instance = self.registry.register(&agent, self.root.as_deref(), out).ok();
            self.work.insert(task.id.clone(), Assignment { agent: agent.clone(), instance, shown: BTreeMap::new() });
            if self.managed {
                self.welcome(task, &agent, named.as_deref(), out);
            }
        }
        let mut context = Map::new();
        if let Some(role) = named.filter(|_| self.managed) {
            context.insert("role".into(), role.as_str().into());
        }
        let messages = self.show_messages(task, [Some(agent.as_str()), by, Some(role.as_str())]);
        if !messages.is_empty() {
            context.insert("messages".into(), messages.into());
        }
        if let TopicState::Go { missing } = self.topics.begin(&task.id, &agent, &task.consumes, out)
            && !missing.is_empty()
        {
            context.insert("missing_topics".into(), json!(missing));
        }
        context
    }

    /// A task has ended for good.
    pub fn ended(&mut self, task: &Task, out: &mut Outbox) {
        let succeeded = task.status == TaskStatus::Completed;
        self.topics.ended(&task.id, &task.produces, succeeded);
        if let Some(work) = self.work.remove(&task.id) {
            self.members.directory.ended(&work.agent, Some(&task.id), succeeded);
            if let Some(instance) = &work.instance {
                self.close_instance(instance, succeeded, out);
            }
            // Who failed leaves its messages to whoever takes its place.
            for (name, through) in work.shown.iter().filter(|_| succeeded) {
                self.mailbox.mark_read(name, *through);
            }
        }
    }

    /// What an answer brings about: the recruits its agent asks for in it, and, of a result, those that rules want.
    pub fn wanted(&mut self, task: &TaskId, result: Option<&Value>, asked: &[Value], out: &mut Outbox) {
        if let Some(above) = self.for_above.as_mut().filter(|_| !self.managed) {
            return above.recruit.extend(asked.iter().cloned());
        }
        if !self.managed {
            for wanted in asked {
                let data = json!({ "signal": SIGNAL_RECRUIT, "task": task, "asked": wanted, "why": NO_TEAM });
                out.note(NoteKind::ActionRefused, data);
            }
            return;
        }
        for outcome in self.members.wanted(task, result, asked, out) {
            self.heard(outcome, out);
        }
    }

    /// A message that an agent sends on the way: to a colleague, or (`workflow_id`) to the mailbox of another run.
    pub fn sent(&mut self, agent: &str, message: &Value, out: &mut Outbox) {
        if let Some(above) = self.for_above.as_mut().filter(|_| !self.managed) {
            return above.send.push(message.clone());
        }
        if !self.managed {
            out.note(NoteKind::ActionRefused, json!({ "signal": SIGNAL_MAILBOX, "from": agent, "why": NO_TEAM }));
            return;
        }
        let mut message = message.clone();
        let mut elsewhere = None;
        if let Value::Object(fields) = &mut message {
            elsewhere = fields.remove("workflow_id").and_then(|id| id.as_str().map(str::to_owned));
            if !fields.contains_key("from") {
                fields.entry("From").or_insert_with(|| agent.into());
            }
        }
        // What is no message is noted by the mailbox.
        let _ = match elsewhere {
            Some(workflow_id) => self.mailbox.send_elsewhere(&workflow_id, &message, out),
            None => self.received(&message, out),
        };
    }

    /// A message comes in. One to a recruit at work goes on to its run, whose next call shows it (SHN-14).
    fn received(&mut self, message: &Value, out: &mut Outbox) -> Result<(), InvalidMessage> {
        let seq = self.mailbox.received(message, out)?;
        let to = ["To", "to"].iter().find_map(|name| message.get(name)?.as_str()).unwrap_or_default();
        if let Some(key) = self.begun.get(to) {
            out.ask(Ask::SignalChild { key: key.clone().into(), signal: SIGNAL_MAILBOX, input: message.clone() });
            self.mailbox.mark_read(to, seq);
        }
        Ok(())
    }

    /// A signal of the team's; `None` if it is another part's.
    pub fn signaled(&mut self, signal: &str, input: &Value, out: &mut Outbox) -> Option<Heard> {
        if !matches!(signal, SIGNAL_MAILBOX | SIGNAL_RECRUIT | SIGNAL_RETIRE) {
            return None;
        }
        // What is for a recruit is passed on by the run above.
        let is_mail = self.for_above.is_some() && signal == SIGNAL_MAILBOX;
        if !self.managed && !is_mail {
            let why = NO_TEAM.to_owned();
            out.note(NoteKind::ActionRefused, json!({ "signal": signal, "why": why }));
            return Some(Heard::Refused(why));
        }
        let heard = match signal {
            SIGNAL_MAILBOX => match self.received(input, out) {
                Ok(_) => return Some(Heard::Settled),
                Err(why) => return Some(Heard::Refused(why.to_string())),
            },
            SIGNAL_RECRUIT => self.members.recruit_signal(input, out),
            _ => self.members.retire_signal(input, out),
        };
        Some(match heard {
            Ok(outcome) => outcome.map_or(Heard::Settled, |outcome| self.heard(outcome, out)),
            Err(why) => Heard::Refused(why.to_string()),
        })
    }

    /// The answer to an ask of the team's, or the end of a child of it.
    pub fn answered(&mut self, key: &TeamKey, mut answer: Answer, out: &mut Outbox) -> Heard {
        let wanted = match key {
            TeamKey::Recruit(_) => ForTeam::taken_from(&mut answer),
            _ => ForTeam::default(),
        };
        let outcome = self.members.answered(key, answer, out);
        if let TeamOutcome::Ended { agent_id, .. } = &outcome {
            wanted.send.iter().for_each(|message| self.sent(agent_id, message, out));
            for outcome in self.members.wanted_by(key, &wanted.recruit, out) {
                self.heard(outcome, out);
            }
        }
        self.heard(outcome, out)
    }

    /// What must be over before the run may put its results together.
    pub fn busy(&self) -> Option<String> {
        match self.members.recruits_alive() {
            0 => None,
            1 => Some("a recruit is at work".to_owned()),
            many => Some(format!("{many} recruits are at work")),
        }
    }

    /// What recruits brought back with success, after the plan's own results.
    pub fn more_results(&self) -> Vec<(String, Value)> {
        let successful = self.members.results().into_iter().filter(|result| result.success);
        successful.map(|RecruitResult { agent_id, response, .. }| (agent_id, plain(response))).collect()
    }

    pub fn synthesizing(&mut self) {
        self.members.synthesizing();
    }

    /// The run has ended or undoes its work: nobody joins or leaves any more.
    pub fn takes_nobody(&mut self, out: &mut Outbox) {
        self.members.takes_nobody(out);
    }

    /// The run has failed: whoever was still at work for it has ended too.
    pub fn given_up(&mut self, out: &mut Outbox) {
        for agent in self.members.given_up(out) {
            self.close_recruit(&agent, false, out);
        }
    }

    /// The run is over: its own agent too.
    pub fn closed(&mut self, succeeded: bool, out: &mut Outbox) {
        self.members.closed(out);
        if let Some(root) = self.root.clone() {
            self.close_instance(&root, succeeded, out);
        }
    }

    /// Brings the registry in line with who comes and goes.
    fn heard(&mut self, outcome: TeamOutcome, out: &mut Outbox) -> Heard {
        match outcome {
            TeamOutcome::Recruited { agent_id, .. } => {
                if let Ok(instance) = self.registry.register(&agent_id, self.root.as_deref(), out) {
                    self.recruits.insert(agent_id, instance);
                }
                Heard::Settled
            }
            TeamOutcome::Ended { agent_id, succeeded } => {
                self.close_recruit(&agent_id, succeeded, out);
                Heard::Recruit { agent_id, succeeded }
            }
            TeamOutcome::Retired { agent_id, tasks } => {
                self.close_recruit(&agent_id, false, out);
                Heard::Retired { agent_id, tasks }
            }
            TeamOutcome::Denied { reason } => Heard::Refused(reason),
            TeamOutcome::Dropped => Heard::Settled,
        }
    }

    fn close_recruit(&mut self, agent_id: &str, succeeded: bool, out: &mut Outbox) {
        self.begun.remove(agent_id);
        if let Some(instance) = self.recruits.remove(agent_id) {
            self.close_instance(&instance, succeeded, out);
        }
    }

    fn close_instance(&mut self, instance: &str, succeeded: bool, out: &mut Outbox) {
        if succeeded {
            self.registry.mark_completed(instance, out);
        } else {
            self.registry.mark_failed(instance, out);
        }
    }

    fn welcome(&mut self, task: &Task, agent: &str, role: Option<&str>, out: &mut Outbox) {
        if let Some(role) = role {
            // The content is short: it is never refused.
            let _ = assign(&mut self.mailbox, agent, role, out);
            TeamEvent::RoleAssigned { agent: agent.to_owned(), role: role.to_owned() }.emit(out);
        }
        if !task.edges.is_empty() {
            TeamEvent::DependencySatisfied { agent: agent.to_owned(), topic: None }.emit(out);
        }
        let step = task.position as usize + 1;
        TeamEvent::Progress { agent: agent.to_owned(), step, of: self.planned.max(step) }.emit(out);
    }

    /// Messages reach an agent by its id, by its name in the spec, by its task, or by its role; a recruit also by its name in
    /// the team that it is in.
    fn show_messages(&mut self, task: &Task, named: [Option<&str>; 3]) -> Vec<Value> {
        let mut names: BTreeSet<String> = named.into_iter().flatten().map(str::to_owned).collect();
        names.extend(self.own_id.clone());
        names.insert(task.id.to_string());
        let mut messages = Vec::new();
        for name in names {
            let unread = self.mailbox.unread(&name);
            if let (Some(last), Some(work)) = (unread.last(), self.work.get_mut(&task.id)) {
                work.shown.insert(name, last.seq);
            }
            messages.extend(unread);
        }
        messages.sort_by_key(|message| message.seq);
        messages.dedup_by_key(|message| message.seq);
        // The role is told in words of its own.
        let role =
            |message: &&MailboxMessage| message.draft.from == SUPERVISOR && message.draft.content == ROLE_ASSIGNED;
        messages.iter().filter(|message| !role(message)).map(|message| json!(message)).collect()
    }
}

/// The id of the agent that works on a task: the agent or the capability that the plan names, or one of its own.
pub fn agent_of(task: &Task) -> String {
    let named = task.agent.as_deref().or(task.capability.as_deref()).filter(|name| !name.is_empty());
    named.map_or_else(|| format!("agent-{}", task.id), str::to_owned)
}

/// A child says its result under `result` or `final_result`; anything else is the result itself.
fn plain(response: Value) -> Value {
    response.get("result").or_else(|| response.get("final_result")).cloned().unwrap_or(response)
}
