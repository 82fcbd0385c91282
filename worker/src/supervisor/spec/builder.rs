//! Specs written in Rust: a preset, what differs from it, and the same checks as for a file.
//!
//! Invariant: what is built passes the checks of a file. It adds no defaults of its own.

use serde_json::Value;

use super::agent::{Agent, Role};
use super::check;
use super::error::InvalidSpec;
use super::preset::Preset;
use super::script::ScriptRule;
use super::sections::{
    Budget, Compensation, Delegation, Dependencies, Dispatch, Failure, Handoff, Hitl, Loop, Mailbox, Memory, Planning,
    Progress, Review, Routing, RunLimits, Speaker, Synthesis, Team, Trust,
};
use super::whole::{Authority, SeedPlanSource, SupervisorSpec};
use crate::supervisor::plan::Plan;

/// A spec that is being written.
#[derive(Debug, Clone)]
pub struct SpecBuilder {
    spec: SupervisorSpec,
    /// Whether it was said what whoever decides may do.
    authority_said: bool,
}

impl SupervisorSpec {
    /// Begins with the values of a preset.
    pub fn preset(preset: Preset) -> SpecBuilder {
        SpecBuilder { spec: preset.values(), authority_said: false }
    }
    /// Begins with the defaults of every section.
    pub fn builder() -> SpecBuilder {
        SpecBuilder { spec: SupervisorSpec::default(), authority_said: false }
    }
}

/// Each section is changed in place: `.hitl(|hitl| hitl.order = TriggerOrder::BookCode)`.
macro_rules! sections {
    ($($(#[$doc:meta])* $name:ident => $field:ident: $section:ty),* $(,)?) => {
        impl SpecBuilder {
            $(
            /// Changes the section of this name.
            $(#[$doc])*
            #[must_use]
            pub fn $name<R>(mut self, change: impl FnOnce(&mut $section) -> R) -> Self {
                change(&mut self.spec.$field);
                self
            })*
        }
    };
}

sections! {
    planning => planning: Planning,
    dispatch => dispatch: Dispatch,
    dependencies => dependencies: Dependencies,
    review => review: Review,
    /// `loop` is a word of the language.
    run_loop => run_loop: Loop,
    failure => failure: Failure,
    team => team: Team,
    mailbox => mailbox: Mailbox,
    delegation => delegation: Delegation,
    speaker => speaker: Speaker,
    handoff => handoff: Handoff,
    hitl => hitl: Hitl,
    trust => trust: Trust,
    memory => memory: Memory,
    routing => routing: Routing,
    synthesis => synthesis: Synthesis,
    budget => budget: Budget,
    limits => limits: RunLimits,
    progress => progress: Progress,
    compensation => compensation: Compensation,
}

impl SpecBuilder {
    /// What people call the run.
    #[must_use]
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.spec.name = name.into();
        self
    }
    /// What the run is to reach.
    #[must_use]
    pub fn objective(mut self, text: impl Into<String>) -> Self {
        self.spec.objective = text.into();
        self
    }
    /// Adds an agent.
    #[must_use]
    pub fn agent(mut self, agent: Agent) -> Self {
        self.spec.agents.push(agent);
        self
    }
    /// What the supervisor may do; nothing else.
    #[must_use]
    pub fn authority(mut self, actions: impl IntoIterator<Item = Authority>) -> Self {
        self.spec.authority = actions.into_iter().collect();
        self.authority_said = true;
        self
    }
    /// The plan a run begins with. Its last task is final if none is marked.
    #[must_use]
    pub fn seed_plan(mut self, plan: &Plan) -> Self {
        let plan = serde_json::to_value(plan).ok().and_then(|value| match value {
            Value::Object(map) => Some(map),
            _ => None,
        });
        self.spec.seed_plan = Some(SeedPlanSource { plan, ..SeedPlanSource::default() });
        self
    }
    /// Who plans.
    #[must_use]
    pub fn planner(mut self, role: Role) -> Self {
        self.spec.planner = Some(role);
        self
    }
    /// Who decides.
    #[must_use]
    pub fn supervisor(mut self, role: Role) -> Self {
        self.spec.supervisor = Some(role);
        self
    }
    /// Who reviews results.
    #[must_use]
    pub fn reviewer(mut self, role: Role) -> Self {
        self.spec.reviewer = Some(role);
        self
    }
    /// Who puts the results together.
    #[must_use]
    pub fn synthesizer(mut self, role: Role) -> Self {
        self.spec.synthesizer = Some(role);
        self
    }
    /// The model of a crew's manager.
    #[must_use]
    pub fn manager_llm(mut self, model: impl Into<String>) -> Self {
        self.spec.manager_llm = Some(model.into());
        self
    }
    /// The agent that manages a crew.
    #[must_use]
    pub fn manager_agent(mut self, agent: Agent) -> Self {
        self.spec.manager_agent = Some(agent);
        self
    }
    /// Adds a scripted answer; the first rule that fits answers.
    #[must_use]
    pub fn script(mut self, rule: ScriptRule) -> Self {
        self.spec.script.0.push(rule);
        self
    }
    /// The spec, if it can be run but for an objective, which a run may bring itself.
    pub fn build(mut self) -> Result<SupervisorSpec, InvalidSpec> {
        if !self.authority_said {
            self.spec.let_whoever_decides_choose();
        }
        check::check(&self.spec, true).map_err(|why| InvalidSpec::of("", why))?;
        Ok(self.spec)
    }
}
