//! The presets: the systems of the field as values of one spec (supervisors.md §5.6).
//!
//! Invariant: a preset only sets values, a file or a program may override each. Numbers are those of the rows.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

mod chat;
mod defaults;
mod graph;
mod patterns;
mod shannon;

pub(super) use defaults::PresetDefaults;

use super::whole::{SeedPlanSource, SupervisorSpec};
use crate::supervisor::fields::FieldError;
use crate::supervisor::plan::Plan;

/// A known way to supervise.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Preset {
    /// Cycles of a supervisor that selects tasks of a fixed plan, and a critic.
    PydantaskFixed,
    /// The same, where the supervisor makes the plan.
    PydantaskLlm,
    /// The same with a given plan that the supervisor may change.
    PydantaskHybrid,
    /// Flow-state's supervisor: a plan, its work, and one review of each iteration.
    FlowSupervisor,
    /// The same with a review of each task.
    FlowSupervisorPerTask,
    /// Flow-state's plan and execute: step by step, with a look at the plan after each.
    FlowPlanAndExecute,
    /// Flow-state's coordinator: tasks side by side, and a merge of their results.
    FlowCoordinator,
    /// CUGA's conversation with an agent that keeps a list of todos.
    CugaConversational,
    /// CUGA's plan of sub-tasks, each of a named agent, under a controller.
    CugaStructured,
    /// Shannon's supervisor: a team with mailbox, recruits, approvals, trust and a threshold of failures.
    ShannonSupervisor,
    /// Shannon's graph of tasks, without a team.
    ShannonDag,
    /// Shannon's single task, without a plan.
    ShannonSimple,
    /// Supyagent: agents that start other agents as processes.
    SupyagentDelegation,
    /// AutoGen's group chat: one speaker at a time.
    #[serde(rename = "autogen-groupchat")]
    AutogenGroupChat,
    /// AutoGen's group chat where a model selects the speaker.
    #[serde(rename = "autogen-groupchat-selector", alias = "autogen-selector")]
    AutogenSelector,
    /// AutoGen's MagenticOne: an orchestrator with ledgers.
    #[serde(rename = "autogen-groupchat-magentic", alias = "autogen-magentic")]
    AutogenMagentic,
    /// AutoGen's swarm: speakers hand over to each other.
    #[serde(rename = "autogen-groupchat-swarm", alias = "autogen-swarm")]
    AutogenSwarm,
    /// CrewAI's crew: a manager gives tasks to coworkers.
    CrewaiHierarchical,
    /// LangGraph's supervisor: agents hand over and control comes back.
    LanggraphSupervisor,
    /// OpenAI's swarm: agents hand over for good.
    SwarmHandoff,
    /// A draft that is graded and written again: three drafts at most.
    EvaluatorOptimizer,
    /// Items that are worked on side by side, and one result of all.
    MapReduce,
    /// The tasks of a plan file, each judged by its own rules.
    PlanRun,
}

/// The machine that carries a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Family {
    /// Tasks with dependencies.
    Graph,
    /// A conversation with one speaker at a time.
    Chat,
    /// Agents that call tools and each other.
    Agents,
}

impl Preset {
    /// Every preset, in the order of the documentation.
    pub const ALL: [Preset; 23] = [
        Preset::PydantaskFixed,
        Preset::PydantaskLlm,
        Preset::PydantaskHybrid,
        Preset::FlowSupervisor,
        Preset::FlowSupervisorPerTask,
        Preset::FlowPlanAndExecute,
        Preset::FlowCoordinator,
        Preset::CugaConversational,
        Preset::CugaStructured,
        Preset::ShannonSupervisor,
        Preset::ShannonDag,
        Preset::ShannonSimple,
        Preset::SupyagentDelegation,
        Preset::AutogenGroupChat,
        Preset::AutogenSelector,
        Preset::AutogenMagentic,
        Preset::AutogenSwarm,
        Preset::CrewaiHierarchical,
        Preset::LanggraphSupervisor,
        Preset::SwarmHandoff,
        Preset::EvaluatorOptimizer,
        Preset::MapReduce,
        Preset::PlanRun,
    ];

    /// The name of the preset in a spec.
    pub fn name(self) -> &'static str {
        match self {
            Preset::PydantaskFixed => "pydantask-fixed",
            Preset::PydantaskLlm => "pydantask-llm",
            Preset::PydantaskHybrid => "pydantask-hybrid",
            Preset::FlowSupervisor => "flow-supervisor",
            Preset::FlowSupervisorPerTask => "flow-supervisor-per-task",
            Preset::FlowPlanAndExecute => "flow-plan-and-execute",
            Preset::FlowCoordinator => "flow-coordinator",
            Preset::CugaConversational => "cuga-conversational",
            Preset::CugaStructured => "cuga-structured",
            Preset::ShannonSupervisor => "shannon-supervisor",
            Preset::ShannonDag => "shannon-dag",
            Preset::ShannonSimple => "shannon-simple",
            Preset::SupyagentDelegation => "supyagent-delegation",
            Preset::AutogenGroupChat => "autogen-groupchat",
            Preset::AutogenSelector => "autogen-groupchat-selector",
            Preset::AutogenMagentic => "autogen-groupchat-magentic",
            Preset::AutogenSwarm => "autogen-groupchat-swarm",
            Preset::CrewaiHierarchical => "crewai-hierarchical",
            Preset::LanggraphSupervisor => "langgraph-supervisor",
            Preset::SwarmHandoff => "swarm-handoff",
            Preset::EvaluatorOptimizer => "evaluator-optimizer",
            Preset::MapReduce => "map-reduce",
            Preset::PlanRun => "plan-run",
        }
    }

    /// The machine that carries the runs of a preset.
    pub fn family(self) -> Family {
        self.values().family()
    }

    /// What a preset begins with, before it sets anything of its own.
    pub fn base(self) -> SupervisorSpec {
        let mut spec = SupervisorSpec { preset: Some(self), ..SupervisorSpec::default() };
        if !matches!(self, Preset::ShannonSupervisor) {
            alone(&mut spec);
        }
        spec
    }

    /// The preset's values, with neither objective nor agents yet.
    pub fn values(self) -> SupervisorSpec {
        let mut spec = self.base();
        match self {
            Preset::PydantaskFixed => graph::pydantask_fixed(&mut spec),
            Preset::PydantaskLlm => graph::pydantask_llm(&mut spec),
            Preset::PydantaskHybrid => graph::pydantask_hybrid(&mut spec),
            Preset::FlowSupervisor => graph::flow_supervisor(&mut spec),
            Preset::FlowSupervisorPerTask => graph::flow_supervisor_per_task(&mut spec),
            Preset::FlowPlanAndExecute => graph::flow_plan_and_execute(&mut spec),
            Preset::FlowCoordinator => graph::flow_coordinator(&mut spec),
            Preset::CugaStructured => graph::cuga_structured(&mut spec),
            Preset::CugaConversational => graph::cuga_conversational(&mut spec),
            Preset::ShannonSupervisor => shannon::supervisor(&mut spec),
            Preset::ShannonDag => shannon::dag(&mut spec),
            Preset::ShannonSimple => shannon::simple(&mut spec),
            Preset::SupyagentDelegation => chat::supyagent(&mut spec),
            Preset::AutogenGroupChat => chat::group_chat(&mut spec),
            Preset::AutogenSelector => chat::selector(&mut spec),
            Preset::AutogenMagentic => chat::magentic(&mut spec),
            Preset::AutogenSwarm => chat::swarm_team(&mut spec),
            Preset::CrewaiHierarchical => chat::crewai(&mut spec),
            Preset::LanggraphSupervisor => chat::langgraph(&mut spec),
            Preset::SwarmHandoff => chat::swarm(&mut spec),
            Preset::EvaluatorOptimizer => patterns::evaluator_optimizer(&mut spec),
            Preset::MapReduce => patterns::map_reduce(&mut spec),
            Preset::PlanRun => patterns::plan_run(&mut spec),
        }
        spec
    }
}

impl SupervisorSpec {
    /// What carries out a plan file: the values of the preset `plan-run`, whose name runs of plan files do not bear in their
    /// history. The directory is absolute.
    pub(in crate::supervisor) fn of_plan_file(
        plan: &Plan,
        directory: String,
        max_concurrency: u32,
    ) -> Result<SupervisorSpec, FieldError> {
        let name = Preset::PlanRun.name().to_owned();
        let mut spec = SupervisorSpec { name, preset: None, ..Preset::PlanRun.values() };
        // Nothing is synthesized, and what is not read has the value that it has without a preset.
        spec.synthesis.bypass_single = SupervisorSpec::default().synthesis.bypass_single;
        plan.objective().clone_into(&mut spec.objective);
        spec.dispatch.max_concurrency = Some(max_concurrency.max(1));
        let plan: Map<String, Value> = serde_json::to_value(plan)
            .and_then(serde_json::from_value)
            .map_err(|why| FieldError::at("plan", why.to_string()))?;
        // Whether a task is final was said when the file was read.
        let auto_mark_final = false;
        spec.seed_plan =
            Some(SeedPlanSource { file: None, plan: Some(plan), auto_mark_final, directory: Some(directory) });
        Ok(spec)
    }
}

impl std::fmt::Display for Preset {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// What only Shannon's supervisor brings is off elsewhere: its team, escalations, trust, memory and threshold.
fn alone(spec: &mut SupervisorSpec) {
    spec.team.recruit = false;
    spec.hitl.enabled = false;
    spec.trust.enabled = false;
    (spec.memory.advisor, spec.memory.record) = (false, false);
    spec.failure.threshold_bp = None;
    spec.synthesis.bypass_single = false;
}
