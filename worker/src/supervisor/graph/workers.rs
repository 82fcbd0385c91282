//! Who does a task: the one place that finds the agent for it.
//!
//! Invariant: a task that names an agent goes to that agent or fails; a capability or a role is matched with the entries of
//! the agents; a task that names neither goes to the only agent that fits. Nothing is guessed among several, and
//! nobody stands in for an agent that does not exist (FSS-04, CUG-03, SHH-17). It starts nothing.

use serde::{Deserialize, Serialize};

use super::{AgentForbidden, BuiltInReserved, Graph, GraphRules, HUMAN, PlanRefusal, PlannedTask};
use crate::supervisor::model::Task;

/// The role of whoever has none (SHN-40): it asks for nobody in particular.
const GENERALIST: &str = "generalist";

/// What an agent says of itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkerCard {
    pub name: String,
    /// What tasks call it beside its name.
    pub capability: String,
    /// What it is there for; planners are told.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub description: String,
    pub role: Option<String>,
    /// Tools of its own that policies may be about.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tools: Vec<String>,
    /// It plans, decides, reviews or synthesizes, and does no task that does not name it.
    pub has_a_job: bool,
}

/// Who does a task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Who {
    /// An agent as the task calls it, by its name or capability; or a capability in the box.
    Named(String),
    /// The spec answers for work that is nobody's: by `script:` or `via:` of its own.
    Anybody,
    /// Nobody, and why.
    Nobody(String),
}

impl Who {
    pub fn name(self) -> Option<String> {
        match self {
            Who::Named(name) => Some(name),
            Who::Anybody | Who::Nobody(_) => None,
        }
    }
}

/// What a task asks for.
#[derive(Debug, Clone, Copy, Default)]
pub struct WorkerRequirements<'t> {
    pub agent: Option<&'t str>,
    pub capability: Option<&'t str>,
    pub role: Option<&'t str>,
}

impl<'t> WorkerRequirements<'t> {
    pub fn of(task: &'t Task) -> Self {
        WorkerRequirements {
            agent: task.agent.as_deref(),
            capability: task.capability.as_deref(),
            role: task.role.as_deref(),
        }
    }
    pub fn by(task: &'t PlannedTask) -> Self {
        WorkerRequirements {
            agent: task.agent.as_deref(),
            capability: task.capability.as_deref(),
            role: task.role.as_deref(),
        }
    }
    /// Which key of the task decides.
    fn key(self) -> &'static str {
        match self {
            WorkerRequirements { agent: Some(_), .. } => ".agent",
            WorkerRequirements { capability: Some(_), .. } => ".capability",
            WorkerRequirements { role: Some(_), .. } => ".role",
            _ => "",
        }
    }
}

impl GraphRules {
    pub fn who(&self, wanted: WorkerRequirements<'_>) -> Who {
        match wanted {
            WorkerRequirements { agent: Some(agent), .. } => self.named(agent),
            WorkerRequirements { capability: Some(capability), .. } => self.able(capability),
            WorkerRequirements { role, .. } => self.fitting(role.filter(|role| !self.is_anybodys(role))),
        }
    }

    /// Whether a role asks for nobody in particular: nobody's, or that of the run itself, which none of its agents has.
    fn is_anybodys(&self, role: &str) -> bool {
        let of_run = || self.given_role.as_deref() == Some(role);
        role == GENERALIST || (of_run() && self.workers.iter().all(|card| card.role.as_deref() != Some(role)))
    }

    pub(super) fn card(&self, name: &str) -> Option<&WorkerCard> {
        let by_name = self.workers.iter().find(|card| card.name == name);
        by_name.or_else(|| self.workers.iter().find(|card| card.capability == name))
    }

    /// The agent whose work it is, by its own name, however the task asks for it: that is whom policies are about. What is
    /// in the box is no agent, and neither is an answer of the spec's own.
    pub fn agent_for(&self, wanted: WorkerRequirements<'_>) -> Option<String> {
        let name = match self.who(wanted) {
            Who::Named(name) => name,
            Who::Nobody(_) => wanted.agent.or(wanted.capability)?.to_owned(),
            Who::Anybody => return None,
        };
        match self.card(&name) {
            Some(card) => Some(card.name.clone()),
            None if wanted.agent.is_none() && self.is_built_in(&name) => None,
            None => Some(name),
        }
    }

    /// Why the policies of the run keep a task from whoever would do it (CUG-03).
    pub fn forbids(&self, wanted: WorkerRequirements<'_>) -> Option<AgentForbidden> {
        let agent = self.agent_for(wanted).filter(|agent| !self.policies.allows(agent))?;
        Some(AgentForbidden { agent, allowed: self.policies.allowed_agents.clone() })
    }

    /// What a task would use that is only for plans of people, if it would.
    pub(super) fn reserved(&self, wanted: WorkerRequirements<'_>) -> Option<BuiltInReserved> {
        let capability = wanted.capability.filter(|_| wanted.agent.is_none())?;
        let reserved = self.card(capability).is_none() && self.reserved.iter().any(|name| name == capability);
        reserved.then(|| BuiltInReserved { capability: capability.to_owned() })
    }

    pub(super) fn is_built_in(&self, capability: &str) -> bool {
        capability == HUMAN || self.built_in.iter().any(|name| name == capability)
    }

    fn names(&self) -> String {
        self.workers.iter().map(|card| card.name.as_str()).collect::<Vec<_>>().join(", ")
    }

    /// Where no agents are declared, names are those of rules in `script:`.
    fn named(&self, agent: &str) -> Who {
        match self.card(agent) {
            Some(_) => Who::Named(agent.to_owned()),
            None if self.workers.is_empty() => Who::Named(agent.to_owned()),
            None => Who::Nobody(format!("there is no agent '{agent}'; available: {}", self.names())),
        }
    }

    pub(super) fn able(&self, capability: &str) -> Who {
        if self.workers.is_empty() || self.card(capability).is_some() || self.is_built_in(capability) {
            return Who::Named(capability.to_owned());
        }
        let known: Vec<&str> = self.workers.iter().map(|card| card.capability.as_str()).collect();
        Who::Nobody(format!("no agent has the capability '{capability}'; available: {}", known.join(", ")))
    }

    fn fitting(&self, role: Option<&str>) -> Who {
        if let Some(card) = role.and_then(|role| self.workers.iter().find(|card| card.role.as_deref() == Some(role))) {
            return Who::Named(card.name.clone());
        }
        // Who has a role of its own does nothing else; who has none takes any.
        let free = |card: &&WorkerCard| !card.has_a_job && (role.is_none() || card.role.is_none());
        let fitting: Vec<&WorkerCard> = self.workers.iter().filter(free).collect();
        match (fitting.as_slice(), role) {
            ([only], _) => Who::Named(only.name.clone()),
            _ if self.workers.is_empty() || self.answers_anybody => Who::Anybody,
            (several, None) => Who::Nobody(format!(
                "no agent is named, and {} could do it: {}. Name one with `agent`, `capability` or `role`",
                several.len(),
                self.names()
            )),
            (_, Some(role)) => Who::Nobody(format!("no agent has the role '{role}'; available: {}", self.names())),
        }
    }
}

impl Graph {
    pub(super) fn who(&self, task: &Task) -> Who {
        self.rules.who(WorkerRequirements::of(task))
    }

    /// The first task of a model's plan that is only for plans of people: one that uses what is in the box, or that would
    /// give its own parameters to one that does.
    pub(super) fn reserved_task(&self, tasks: &[PlannedTask]) -> Option<PlanRefusal> {
        let of = |task: &PlannedTask| {
            let old = || self.task(task.id.as_ref()?).filter(|old| !old.status.is_terminal());
            let unnamed = task.agent.is_none() && task.capability.is_none() && !task.params.is_empty();
            let changes = || self.rules.reserved(WorkerRequirements::of(old()?));
            self.rules.reserved(WorkerRequirements::by(task)).or_else(|| if unnamed { changes() } else { None })
        };
        tasks.iter().enumerate().find_map(|(place, task)| Some(PlanRefusal::Reserved { place, why: of(task)? }))
    }

    /// The first task of a plan that nobody can do: where, and why.
    pub(super) fn unmatched(&self, tasks: &[PlannedTask]) -> Option<PlanRefusal> {
        tasks.iter().enumerate().find_map(|(place, task)| match self.rules.who(WorkerRequirements::by(task)) {
            Who::Nobody(why) => Some(PlanRefusal::NobodyDoes { place, key: WorkerRequirements::by(task).key(), why }),
            Who::Named(_) | Who::Anybody => None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn card(name: &str, role: Option<&str>) -> WorkerCard {
        WorkerCard {
            name: name.into(),
            capability: format!("can-{name}"),
            description: String::new(),
            role: role.map(str::to_owned),
            tools: Vec::new(),
            has_a_job: name == "boss",
        }
    }

    fn rules(workers: &[WorkerCard]) -> GraphRules {
        GraphRules { workers: workers.to_vec(), built_in: vec!["process".into()], ..GraphRules::default() }
    }

    fn who(rules: &GraphRules, agent: Option<&str>, capability: Option<&str>, role: Option<&str>) -> String {
        match rules.who(WorkerRequirements { agent, capability, role }) {
            Who::Named(name) => name,
            Who::Anybody => "anybody".into(),
            Who::Nobody(why) => why,
        }
    }

    /// CUG-03: a name that nobody has is nobody's; names and capabilities are those that agents declare.
    #[test]
    fn names_and_capabilities_are_matched_exactly() {
        let rules = rules(&[card("ann", None), card("bob", None)]);
        assert_eq!(who(&rules, Some("bob"), None, None), "bob");
        assert_eq!(who(&rules, Some("can-bob"), None, None), "can-bob");
        assert_eq!(who(&rules, Some("bop"), None, None), "there is no agent 'bop'; available: ann, bob");
        assert_eq!(who(&rules, None, Some("can-ann"), None), "can-ann");
        assert_eq!(who(&rules, None, Some("process"), None), "process");
        assert_eq!(who(&rules, None, Some(HUMAN), None), HUMAN);
        assert_eq!(
            who(&rules, None, Some("cook"), None),
            "no agent has the capability 'cook'; available: can-ann, can-bob"
        );
    }

    /// FSS-04: who is alone in fitting does it; among several nobody is guessed.
    #[test]
    fn a_task_that_names_nobody_goes_to_the_only_one_that_fits() {
        let alone = rules(&[card("ann", None), card("boss", None)]);
        assert_eq!(who(&alone, None, None, None), "ann");
        assert_eq!(who(&alone, None, None, Some("analyst")), "ann");
        let two = rules(&[card("ann", Some("analyst")), card("will", Some("writer"))]);
        assert_eq!(who(&two, None, None, Some("writer")), "will");
        assert_eq!(
            who(&two, None, None, Some(GENERALIST)),
            "no agent is named, and 2 could do it: ann, will. Name one with `agent`, `capability` or `role`"
        );
        assert_eq!(who(&two, None, None, Some("cook")), "no agent has the role 'cook'; available: ann, will");
        let scripted = GraphRules { answers_anybody: true, ..two };
        assert_eq!(who(&scripted, None, None, Some("cook")), "anybody");
        assert_eq!(who(&scripted, Some("cook"), None, None), "there is no agent 'cook'; available: ann, will");
    }

    #[test]
    fn without_agents_names_are_those_of_the_script() {
        let none = rules(&[]);
        assert_eq!(who(&none, Some("ann"), None, None), "ann");
        assert_eq!(who(&none, None, Some("cook"), None), "cook");
        assert_eq!(who(&none, None, None, Some("writer")), "anybody");
    }
}
