//! The spec of a supervisor run: every section, with every value (supervisors.md §5.6).
//!
//! Invariant: there is one spec for all systems; a preset is nothing but values. It is plain data: reading, checking and
//! resolving are elsewhere.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::agent::{Agent, Role, Via};
use super::preset::Preset;
use super::script::{Script, Scripted, answer_in_order};
use super::sections::{
    Budget, Compensation, Delegation, Dependencies, Dispatch, Failure, Handoff, Hitl, Loop, Mailbox, Memory, Planning,
    Policy, Progress, Resume, Review, Routing, RunLimits, Speaker, Step, Synthesis, Team, Trust,
};
pub use crate::supervisor::model::Authority;
use crate::supervisor::outbox::{Call, Purpose};

/// What a supervisor run is told to do.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(title = "Supervisor spec")]
pub struct SupervisorSpec {
    /// Says that this file is a spec.
    pub kind: Kind,
    /// What the run is called in its report, and what its workflow id begins with.
    pub name: String,
    /// Everything below overrides the preset.
    pub preset: Option<Preset>,
    /// What the run is for.
    pub objective: String,
    /// The plan the run begins with.
    pub seed_plan: Option<SeedPlanSource>,
    /// What the supervisor may do; anything else is refused and told to it.
    pub authority: Vec<Authority>,
    /// Who does the work.
    pub agents: Vec<Agent>,
    /// How agents and the jobs of planning, deciding, reviewing and synthesizing are done that do not say themselves.
    #[serde(skip_serializing_if = "Via::is_scripted")]
    pub via: Via,
    /// Makes the plan; null is the supervisor's own model.
    pub planner: Option<Role>,
    /// Decides: the supervisor, controller, selector or lead.
    pub supervisor: Option<Role>,
    /// In a file also `false`: no review (FSS-32).
    pub reviewer: Option<Role>,
    /// In a file also `false`: the results as they are (FSP-08).
    pub synthesizer: Option<Role>,
    /// Gives advice from earlier runs before the plan is made.
    pub advisor: Option<Role>,
    /// The other activities of a run, by name.
    pub services: BTreeMap<Purpose, Role>,
    /// The model of a manager that is made for the run (CRW-01).
    pub manager_llm: Option<String>,
    /// A manager of your own; in a file also its name alone (CRW-01, CRW-02).
    pub manager_agent: Option<Agent>,
    /// Rules for requests, tools and answers of a conversation.
    pub policies: Vec<Policy>,
    /// A workflow of steps, one after the other, in place of a conversation (SUP-29).
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub steps: Vec<Step>,
    /// Goes on from where another run ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resume: Option<Resume>,
    /// Where the plan comes from, and who approves it.
    pub planning: Planning,
    /// What runs next, and how much at once.
    pub dispatch: Dispatch,
    /// What becomes of tasks whose dependencies do not complete.
    pub dependencies: Dependencies,
    /// Who judges results, and what happens to a rejected one.
    pub review: Review,
    /// How often the run goes round.
    #[serde(rename = "loop")]
    pub run_loop: Loop,
    /// How often a task is tried, and when failures end the run.
    pub failure: Failure,
    /// Who may join the team during the run.
    pub team: Team,
    /// How agents write to each other.
    pub mailbox: Mailbox,
    /// How agents give work to each other.
    pub delegation: Delegation,
    /// Who speaks next in a conversation.
    pub speaker: Speaker,
    /// How agents hand over to each other.
    pub handoff: Handoff,
    /// When people are asked.
    pub hitl: Hitl,
    /// How much the run may do without asking, and how that grows.
    pub trust: Trust,
    /// What is remembered from earlier runs.
    pub memory: Memory,
    /// Which requests need no team.
    pub routing: Routing,
    /// How results become one.
    pub synthesis: Synthesis,
    /// What the run may spend.
    pub budget: Budget,
    /// How long one of its histories may become.
    #[serde(skip_serializing_if = "RunLimits::is_default")]
    pub limits: RunLimits,
    /// What people are told on the way.
    pub progress: Progress,
    /// What is undone when the run is cancelled.
    pub compensation: Compensation,
    /// What scripted agents answer, after their own scripts.
    pub script: Script,
}

impl Default for SupervisorSpec {
    fn default() -> Self {
        SupervisorSpec {
            kind: Kind::Supervisor,
            name: "supervisor".to_owned(),
            preset: None,
            objective: String::new(),
            seed_plan: None,
            authority: Authority::usual(),
            agents: Vec::new(),
            via: Via::Scripted,
            planner: None,
            supervisor: None,
            reviewer: None,
            synthesizer: None,
            advisor: None,
            services: BTreeMap::new(),
            manager_llm: None,
            manager_agent: None,
            policies: Vec::new(),
            steps: Vec::new(),
            resume: None,
            planning: Planning::default(),
            dispatch: Dispatch::default(),
            dependencies: Dependencies::default(),
            review: Review::default(),
            run_loop: Loop::default(),
            failure: Failure::default(),
            team: Team::default(),
            mailbox: Mailbox::default(),
            delegation: Delegation::default(),
            speaker: Speaker::default(),
            handoff: Handoff::default(),
            hitl: Hitl::default(),
            trust: Trust::default(),
            memory: Memory::default(),
            routing: Routing::default(),
            synthesis: Synthesis::default(),
            budget: Budget::default(),
            limits: RunLimits::default(),
            progress: Progress::default(),
            compensation: Compensation::default(),
            script: Script::default(),
        }
    }
}

impl SupervisorSpec {
    /// The agent of this name; the manager of a crew is one.
    pub fn agent(&self, name: &str) -> Option<&Agent> {
        self.agents.iter().chain(&self.manager_agent).find(|agent| agent.name == name)
    }
    /// Where the tasks of the seed plan run, if they are those of a plan file.
    pub fn plan_directory(&self) -> Option<&str> {
        self.seed_plan.as_ref()?.directory.as_deref()
    }
    /// The first agent whose capability it is.
    pub fn agent_for(&self, capability: &str) -> Option<&Agent> {
        self.agents.iter().find(|agent| agent.capability_name() == capability)
    }
    /// Who does a job of the run itself.
    pub fn role(&self, purpose: Purpose) -> Option<&Role> {
        let own = match purpose {
            Purpose::Plan => &self.planner,
            Purpose::Decide => &self.supervisor,
            Purpose::Review => &self.reviewer,
            Purpose::Synthesize => &self.synthesizer,
            Purpose::Advise => &self.advisor,
            _ => &None,
        };
        own.as_ref().or_else(|| self.services.get(&purpose))
    }
    /// The agent that carries out a call: the one it names, by name or capability; for a job of the run itself the one that
    /// plays the role.
    pub fn player(&self, call: &Call) -> Option<&Agent> {
        let named = |name: &str| self.agent(name).or_else(|| self.agent_for(name));
        let role = self.role_of(call).and_then(|role| role.agent.as_deref()).and_then(|name| self.agent(name));
        let called = call.agent.as_deref().and_then(named);
        if is_service(call.purpose) { role.or(called) } else { called.or(role) }
    }
    /// The role that a call belongs to; work is no role.
    pub fn role_of(&self, call: &Call) -> Option<&Role> {
        self.role(call.purpose).filter(|_| call.purpose != Purpose::ExecuteWorker)
    }
    /// How a call is carried out. The tool of an agent is a function: what plays the agent carries it out too, but no model
    /// makes up what it gives.
    pub fn via(&self, call: &Call) -> &Via {
        match self.played_by(call) {
            Via::Model(_) if is_tool(call) => &Via::Scripted,
            via => via,
        }
    }
    fn played_by(&self, call: &Call) -> &Via {
        let role = self.role_of(call).and_then(|role| role.via.as_ref());
        let agent = self.player(call).and_then(|agent| agent.via.as_ref());
        // How a service is done stands where the service stands, whomever it is about.
        let own = if is_service(call.purpose) { role.or(agent) } else { agent.or(role) };
        if let Some(own) = own {
            return own;
        }
        let thinks = matches!(
            call.purpose,
            Purpose::Plan | Purpose::Decide | Purpose::ExecuteWorker | Purpose::Review | Purpose::Synthesize
        );
        // A function is no model, whatever the others are.
        let function = self.player(call).is_some_and(Agent::is_callable);
        if thinks && !function { &self.via } else { &Via::Scripted }
    }
    /// All roles, by where they stand in a file.
    pub fn roles(&self) -> Vec<(String, &Role)> {
        let own = [
            ("planner", &self.planner),
            ("supervisor", &self.supervisor),
            ("reviewer", &self.reviewer),
            ("synthesizer", &self.synthesizer),
            ("advisor", &self.advisor),
        ];
        let own = own.into_iter().filter_map(|(at, role)| Some((at.to_owned(), role.as_ref()?)));
        own.chain(self.services.iter().map(|(purpose, role)| (format!("services.{}", purpose.as_str()), role)))
            .collect()
    }
    /// All agents, the manager among them, by where they stand in a file.
    pub fn all_agents(&self) -> Vec<(String, &Agent)> {
        let agents = self.agents.iter().enumerate().map(|(i, agent)| (format!("agents[{i}]"), agent));
        agents.chain(self.manager_agent.iter().map(|agent| ("manager_agent".to_owned(), agent))).collect()
    }
    /// Whether somebody plays the one who decides.
    pub fn has_decider(&self) -> bool {
        let ruled = self.script.0.iter().any(|rule| rule.on == Purpose::Decide);
        ruled || !self.via.is_scripted() || self.role(Purpose::Decide).is_some()
    }
    /// Whether the spec itself answers the call.
    pub fn has_rule(&self, call: &Call) -> bool {
        let player = self.player(call);
        let (own, name) = (player.map(|agent| &agent.script), player.map(|agent| agent.name.as_str()));
        let job = self.role(call.purpose).map(|role| &role.script);
        own.into_iter().chain(job).chain([&self.script]).any(|script| script.rule(call, name).is_some())
    }
    /// What a scripted agent answers: its own script first, then that of the job, then that of the run.
    pub fn scripted(&self, call: &Call) -> Scripted {
        let player = self.player(call);
        let (own, name) = (player.map(|agent| &agent.script), player.map(|agent| agent.name.as_str()));
        let job = self.role(call.purpose).map(|role| &role.script);
        let (first, second) = if is_service(call.purpose) { (job, own) } else { (own, job) };
        let scripts: Vec<&Script> = first.into_iter().chain(second).chain([&self.script]).collect();
        answer_in_order(&scripts, call, name)
    }
}

/// What a run needs beside thinking and work: done by whoever `services` names, not by whom it is about.
fn is_service(purpose: Purpose) -> bool {
    !matches!(purpose, Purpose::Plan | Purpose::Decide | Purpose::ExecuteWorker | Purpose::Review | Purpose::Synthesize)
}

/// Whether the call is of a tool that an agent has.
fn is_tool(call: &Call) -> bool {
    call.purpose == Purpose::ExecuteWorker && call.context.get("tool").is_some()
}

/// What a spec is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// A supervisor.
    Supervisor,
}

/// The plan a run begins with, in the strict form of plan files; reading resolves a file to its plan.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct SeedPlanSource {
    /// A plan file beside the spec.
    pub file: Option<String>,
    /// The plan itself.
    pub plan: Option<Map<String, Value>>,
    /// The task with the highest id is final if none is marked (PDT-43).
    pub auto_mark_final: bool,
    /// Where the tasks run and what they may not leave; absolute. Its tasks are then those of a plan file: parameters are
    /// checked before anything runs, `{{task.1.stdout}}` stands for what another task gave, an error uses up an attempt and
    /// is told to the next one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub directory: Option<String>,
}

impl Default for SeedPlanSource {
    fn default() -> Self {
        SeedPlanSource { file: None, plan: None, auto_mark_final: true, directory: None }
    }
}

impl Authority {
    /// What makes somebody who decides at all: without it no task is begun and no run ended by a decision.
    pub const CHOOSING: [Authority; 2] = [Authority::Select, Authority::Finish];

    /// What a supervisor that selects tasks may do, by its decisions and their tools (PDT-29).
    pub const SELECTING: [Authority; 8] = [
        Authority::Select,
        Authority::Add,
        Authority::Patch,
        Authority::Cancel,
        Authority::MarkFinal,
        Authority::UpdateStatus,
        Authority::Feedback,
        Authority::Finish,
    ];

    /// What a supervisor may do if nothing else is said.
    pub fn usual() -> Vec<Authority> {
        use Authority::{
            Add, Broadcast, Cancel, Escalate, Feedback, Finish, MarkFinal, Patch, Recruit, Replan, RequestApproval,
            RequestInput, Retire, Select, SendMessage, Synthesize, UpdateStatus,
        };
        vec![
            Select,
            Add,
            Patch,
            Cancel,
            MarkFinal,
            UpdateStatus,
            Feedback,
            Recruit,
            Retire,
            SendMessage,
            Broadcast,
            RequestApproval,
            RequestInput,
            Escalate,
            Replan,
            Synthesize,
            Finish,
        ]
    }
}
