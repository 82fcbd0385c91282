//! What a planner is told: at first to take the goal apart, later to plan anew only what needs revision (FSS-20).
//!
//! Invariant: the second form lists the tasks to be revised with their feedback and nothing that was accepted as work to
//! do. A replaced planner gets the same data.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::text::{Prompt, bullets, entries, shown};
use crate::supervisor::model::TaskId;

/// The data of one planning.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct PlannerTurn {
    pub goal: String,
    /// From 1; a later one plans anew.
    pub iteration: u32,
    pub tasks: Vec<PlannedView>,
    pub needs_revision: Vec<PlannedView>,
    pub overall_assessment: Option<String>,
    /// The new plan takes the place of all that is left of the old one (FSP-06).
    pub replaces_rest: bool,
    /// The agents a task may name.
    pub agents: Vec<String>,
    /// What they are there for, of those that say so (CUG-02).
    pub agent_cards: Vec<AgentCard>,
    /// How playbooks want such a request to be met (CUG-39).
    pub guidance: Vec<String>,
    /// All of it is delegated before the first answer (CUG-33).
    pub upfront: bool,
    /// What the last plan asked for and did not get, and why.
    pub refused: Vec<String>,
    /// What the run was given for planning: history, memory, and people's feedback on the last plan.
    pub given: Value,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct AgentCard {
    pub name: String,
    pub capability: String,
    pub description: String,
    pub role: Option<String>,
    pub guide: String,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PlannedView {
    pub id: TaskId,
    #[serde(default)]
    pub goal: String,
    #[serde(default)]
    pub status: String,
    #[serde(default)]
    pub feedback: Option<String>,
    /// What went wrong with it, or why it is not done.
    #[serde(default)]
    pub error: Option<String>,
}

const FIRST: &str = "\
Take the goal apart into tasks that agents can do, as few as it needs.
- Each task has a stable id, and a goal that is complete in itself: its agent sees no more of the plan.
- Tasks that do not need each other's results do not depend on each other: they run at the same time.
- Give a task the agent that fits it best, if agents are listed, and no other.";

const UPFRONT: &str = "\
Take the goal apart into delegations to agents, as few as it needs. All of them are made now: nobody plans again later.
- Each delegation names its agent, and a task that is complete in itself: the agent sees no more of the plan.
- \"sequential\": each waits for the one before it and is told its result. \"parallel\": all begin at once.
- \"variables\" are the names of what an agent is to be given along; leave them out if there is nothing to give.";

const LATER: &str = "\
Plan anew only the tasks listed under \"needs revision\".
- Keep the id of a task, or name the old one in \"revises\", so that its feedback is not lost.
- Let every new goal take up the feedback.
- What is completed or escalated is kept as it is: do not plan it again.
- An empty list of tasks ends the work.";

const REST: &str = "\
Plan anew what is left to do.
- Your tasks take the place of those listed under \"left to do\": name each of them again that is still needed.
- What is over is kept as it is: do not plan it again, and give new work an id of its own.
- An empty list of tasks ends the work: what is left is not done.";

const OUTPUT: &str = "\
Answer with JSON only:
{\"tasks\": [{\"id\": text, \"goal\": text, \"deps\": [ids], \"priority\": \"high\" or \"medium\" or \"low\", \
\"agent\": name, \"revises\": id}], \"reasoning\": text}
Only id and goal are required.";

const UPFRONT_OUTPUT: &str = "\
Answer with JSON only:
{\"strategy\": \"sequential\" or \"parallel\", \"delegations\": [{\"agent_name\": name, \"task\": text, \
\"variables\": [names]}], \"reasoning\": text}
Only the delegations are required.";

/// What else a model may say of a plan, beside what every planner is told.
pub(super) const MORE: &str = "\
A task may also have, where it matters: \"role\" and \"capability\" (who is to do it), \"produces\" and \"consumes\" (lists of \
topics that tasks hand each other), \"tools\" (names), \"params\" (an object), \"action\" (what it does in the world, such as \
publish), \"risk\" (\"low\", \"medium\", \"high\" or \"critical\"), \"required\" (true: without it the goal is not reached), \
\"requires_approval\" (true: a person is asked first), \"is_final\" (true: its result is the answer). Beside the tasks you may \
say \"complexity\" (0 to 1) and \"agent_types\" (the role of each task, in their order).";

impl PlannerTurn {
    pub fn text(&self) -> String {
        let (given, feedback) = self.given();
        let instruction = match (self.upfront, self.iteration > 1) {
            (true, _) => UPFRONT,
            (false, true) if self.replaces_rest => REST,
            (false, true) => LATER,
            (false, false) => FIRST,
        };
        let prompt = Prompt::new("You plan the work of a team of agents.")
            .section("goal", &self.goal)
            .section("agents", &bullets(self.agents.iter().map(|name| self.agent_line(name))));
        let prompt = match self.iteration > 1 {
            false => prompt.section("last plan", &bullets(self.tasks.iter().map(PlannedView::line))),
            true => {
                let kept =
                    self.tasks.iter().filter(|task| !self.needs_revision.iter().any(|other| other.id == task.id));
                let again = if self.replaces_rest { "left to do" } else { "needs revision" };
                prompt
                    .section(again, &bullets(self.needs_revision.iter().map(PlannedView::line)))
                    .section("kept as it is", &bullets(kept.map(PlannedView::line)))
                    .section("assessment of the last round", self.overall_assessment.as_deref().unwrap_or_default())
            }
        };
        prompt
            .section("refused in the last plan", &bullets(&self.refused))
            .section("guidance", &bullets(&self.guidance))
            .section("given along", &given)
            .section("feedback on the last plan", &feedback)
            .section("instruction", instruction)
            .section("output", if self.upfront { UPFRONT_OUTPUT } else { OUTPUT })
            .text()
    }

    /// A name, and what is known of whom it names.
    fn agent_line(&self, name: &str) -> String {
        let Some(card) = self.agent_cards.iter().find(|card| card.name == name) else { return name.to_owned() };
        let role = card.role.as_ref().map(|role| format!(" ({role})")).unwrap_or_default();
        let about = if card.description.is_empty() { String::new() } else { format!(": {}", card.description) };
        let can = if card.capability == card.name || card.capability.is_empty() {
            String::new()
        } else {
            format!("\ncapability: {}", card.capability)
        };
        let guide = if card.guide.is_empty() { String::new() } else { format!("\n{}", card.guide) };
        format!("{name}{role}{about}{can}{guide}")
    }

    /// What was given along, and apart from it what people said of the last plan (SHH-21).
    fn given(&self) -> (String, String) {
        let Value::Object(given) = &self.given else { return (shown(&self.given), String::new()) };
        let feedback = given.get("feedback").map(shown).unwrap_or_default();
        let rest: Map<String, Value> =
            given.iter().filter(|(name, _)| *name != "feedback").map(|(k, v)| (k.clone(), v.clone())).collect();
        (entries(&rest), feedback)
    }
}

impl PlannedView {
    fn line(&self) -> String {
        let mut line = format!("{} [{}]: {}", self.id, self.status, self.goal);
        if let Some(feedback) = &self.feedback {
            line.push_str(&format!("\nfeedback: {feedback}"));
        }
        if let Some(error) = &self.error {
            line.push_str(&format!("\nerror: {error}"));
        }
        line
    }
}
