//! Which kind of planning a request gets, and the spec its run follows then (CUG-08 to CUG-13, CUG-33).
//!
//! Structured planning is opted into by `planning.mode: agents` (CUG-17); the request then decides whether it gets a plan
//! of sub-tasks under a controller, or the conversation of a supervisor with its agents.
//!
//! Invariant: the choice is a function of the spec alone, its objective included, and of nothing else; the run notes it.
//! Only values that are still a preset's change with the choice. Specs of other systems choose nothing.

use serde::{Deserialize, Serialize};

use super::agent::Agent;
use super::preset::Family;
use super::sections::{ByRequest, Planning, PlanningMode, Selection};
use super::whole::SupervisorSpec;

/// Which kind of planning a request gets, and why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlanningChoice {
    /// How the run plans.
    pub mode: PlanningMode,
    /// Why, for people.
    pub reason: String,
}

/// The triggers: forced; several agents and a word of sequence; one agent; or what the spec says otherwise.
pub fn choose_planning(planning: &Planning, agents: usize, request: &str) -> PlanningChoice {
    let choice = |mode, reason: String| PlanningChoice { mode, reason };
    if planning.force {
        return choice(PlanningMode::Agents, "forced by the spec".to_owned());
    }
    let cue = planning.triggers.cues.iter().find(|cue| has_cue(request, cue));
    let count = if agents == 1 { "one agent".to_owned() } else { format!("{agents} agents") };
    match (agents >= planning.triggers.min_agents as usize, cue) {
        (true, Some(cue)) => choice(PlanningMode::Agents, format!("{count}, and the request says `{cue}`")),
        (false, None) => choice(PlanningMode::Todos, format!("{count}, one step")),
        (true, None) => choice(planning.otherwise, format!("{count}, and no word of sequence")),
        (false, Some(cue)) => choice(planning.otherwise, format!("{count}, and the request says `{cue}`")),
    }
}

/// Whole words in any case; `N` stands for a number.
fn has_cue(request: &str, cue: &str) -> bool {
    let words = |text: &str| -> Vec<String> {
        let split = text.split(|c: char| !c.is_alphanumeric());
        split.filter(|word| !word.is_empty()).map(str::to_owned).collect()
    };
    let (text, cue) = (words(request), words(cue));
    let fits = |word: &String, wanted: &String| match wanted.as_str() {
        "N" => word.parse::<u64>().is_ok(),
        wanted => word.to_lowercase() == wanted.to_lowercase(),
    };
    !cue.is_empty()
        && text.windows(cue.len()).any(|window| window.iter().zip(&cue).all(|(word, wanted)| fits(word, wanted)))
}

impl SupervisorSpec {
    /// Whether every request gets a conversation.
    pub(super) fn only_talks(&self) -> bool {
        let planning = &self.planning;
        self.family() == Family::Agents
            && matches!(planning.mode, PlanningMode::None | PlanningMode::Todos)
            && !planning.force
            && !planning.is_upfront()
            && self.seed_plan.is_none()
    }

    /// Whether it is a conversation of agents that share variables.
    pub(in crate::supervisor) fn takes_variables(&self) -> bool {
        self.only_talks() && !self.is_crew() && self.steps.is_empty()
    }

    /// Whether no run of it has a plan, whatever is asked for.
    pub(super) fn is_without_plan(&self) -> bool {
        self.family() != Family::Graph && (!self.chooses_planning() || self.only_talks())
    }

    /// The spec that the run follows, with the kind of planning its request gets; none where nothing is chosen.
    pub fn for_request(&self) -> Option<(SupervisorSpec, PlanningChoice)> {
        if !self.chooses_planning() {
            return None;
        }
        let planning = &self.planning;
        let choice = |mode, reason: &str| PlanningChoice { mode, reason: reason.to_owned() };
        let choice = match planning.mode {
            _ if planning.is_upfront() => choice(PlanningMode::Upfront, "the spec wants its plan upfront"),
            _ if planning.force => choose_planning(planning, self.agents.len(), &self.objective),
            mode if self.seed_plan.is_some() => choice(mode, "the spec brings its plan"),
            // Who only hands work on is none of the agents that the work is for.
            PlanningMode::Agents => {
                let workers = self.agents.iter().filter(|agent| agent.delegates.is_empty()).count();
                choose_planning(planning, workers, &self.objective)
            }
            mode => choice(mode, "structured planning is not asked for"),
        };
        let conversational = matches!(choice.mode, PlanningMode::None | PlanningMode::Todos);
        let mut spec = self.turned_into(conversational);
        spec.planning.mode = choice.mode;
        if conversational {
            spec.lead();
        } else if choice.mode == PlanningMode::Upfront {
            spec.unsupervised();
        }
        Some((spec, choice))
    }

    /// The values of the other one of the two presets, where they are still those of this one. Who takes turns in a
    /// conversation is no choice.
    fn turned_into(&self, conversational: bool) -> SupervisorSpec {
        let mut spec = self.clone();
        let between = self.by_request().filter(|_| conversational != (self.family() == Family::Agents));
        let Some(ByRequest { conversation, plan }) = between else { return spec };
        let (from, to) = if conversational { (plan, conversation) } else { (conversation, plan) };
        spec.preset = Some(to);
        let (from, values) = (from.values(), to.values());
        if conversational || spec.dispatch.selection == from.dispatch.selection {
            spec.dispatch.selection = values.dispatch.selection;
        }
        if spec.dependencies.on_failure == from.dependencies.on_failure {
            spec.dependencies.on_failure = values.dependencies.on_failure;
        }
        if spec.synthesis.mode == from.synthesis.mode {
            spec.synthesis.mode = values.synthesis.mode;
        }
        if spec.authority == from.authority {
            spec.authority = values.authority;
        }
        spec
    }

    /// A conversation is led by an agent: the one the spec names or whose delegates it lists, an only agent itself, and
    /// else the supervisor, which becomes one.
    fn lead(&mut self) {
        let led = self.delegation.root.is_some() || self.agents.iter().any(|agent| !agent.delegates.is_empty());
        let role = self.supervisor.clone();
        if led || (self.agents.len() < 2 && role.is_none()) {
            return;
        }
        let named = role.as_ref().and_then(|role| role.agent.clone());
        let name = named.unwrap_or_else(|| "supervisor".to_owned());
        let others: Vec<String> =
            self.agents.iter().map(|agent| agent.name.clone()).filter(|other| *other != name).collect();
        self.delegation.root = Some(name.clone());
        match self.agents.iter_mut().find(|agent| agent.name == name) {
            Some(agent) => agent.delegates = others,
            None => {
                let role = role.unwrap_or_default();
                let mut agent = Agent::new(name).delegates(others).system_prompt(role.system_prompt);
                agent.via = role.via;
                (agent.model, agent.timeout, agent.script) = (role.model, role.timeout, role.script);
                self.agents.insert(0, agent);
            }
        }
    }

    /// A plan that was made upfront is carried out as it is: nobody decides on the way.
    fn unsupervised(&mut self) {
        self.dispatch.selection = Selection::All;
    }
}
