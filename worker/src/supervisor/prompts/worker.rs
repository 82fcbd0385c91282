//! What a worker is told: its role, its task, what earlier tasks gave, and what was wrong the last time.
//!
//! Invariant: feedback stands in the prompt of the task it is for and in no other (PDT-46, FSS-05); whatever else the run
//! tells the worker (messages, memory) is shown too, by name.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::text::{Prompt, bullets, entries, shown};
use crate::supervisor::team::roles::role_prompt;

/// Above the messages to a run below.
const MAIL: &str = "messages to you";
const TASK: &str = "You carry out one task of a larger plan.";

/// The data of one attempt.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct WorkerTurn {
    pub id: Value,
    pub goal: String,
    /// The run's; a task of a seed plan may have its own (PDT-53).
    pub objective: String,
    pub overall_objective: String,
    pub role: Option<String>,
    pub attempt: u32,
    pub iteration: u32,
    pub dependency_results: Map<String, Value>,
    pub previous_results: Map<String, Value>,
    /// What a reviewer rejected the last attempt with, and what a person wants.
    pub feedback: Option<String>,
    pub supervisor_feedback: Option<String>,
    pub parameters: Map<String, Value>,
    pub tools: Vec<String>,
    /// What the worker wrote down before it ran out of context (PDT-48).
    pub notes: Option<String>,
    pub tool_call_limit: Option<u32>,
    // Names of who does it: for whoever carries out the call, not for the model.
    agent: Value,
    capability: Value,
    /// Everything else the run gave along.
    #[serde(flatten)]
    pub rest: Map<String, Value>,
}

impl WorkerTurn {
    /// A person may say what they want before anybody has begun.
    fn feedback_heading(&self) -> &'static str {
        if self.attempt == 1 { "what is wanted of you" } else { "feedback on your last attempt" }
    }

    pub fn text(&self) -> String {
        let opening = match self.role.as_deref().filter(|role| !role.is_empty()) {
            // The role goes first: it is who the model is to be (SHN-41).
            Some(role) => format!("{} {TASK}", role_prompt(role)),
            None => TASK.to_owned(),
        };
        let objective = if self.overall_objective.is_empty() { &self.objective } else { &self.overall_objective };
        let earlier = self.previous_results.iter().filter(|(id, _)| !self.dependency_results.contains_key(*id));
        let parameters = self.parameters.iter().filter(|(name, _)| *name != "supervisor_feedback");
        let limit = self.tool_call_limit.map(|limit| {
            format!("You may call tools {limit} times. Keep your context small: read what you need, and no more.")
        });
        let resumed = self.notes.as_ref().map(|notes| {
            format!("You ran out of context before. Go on from your own notes, and finish in few steps:\n{notes}")
        });
        Prompt::new(&opening)
            .section("overall objective", objective)
            .section(&format!("your task ({})", shown(&self.id)), &self.goal)
            .section("parameters", &entries(parameters))
            .section("results of the tasks it depends on", &results(self.dependency_results.iter()))
            .section("results of earlier tasks", &results(earlier))
            .section(self.feedback_heading(), self.feedback.as_deref().unwrap_or_default())
            .section("feedback of the supervisor", self.supervisor_feedback.as_deref().unwrap_or_default())
            .section("suggested tools", &bullets(&self.tools))
            .section("given along", &entries(&self.rest))
            .section("budget", limit.as_deref().unwrap_or_default())
            .section("your notes", resumed.as_deref().unwrap_or_default())
            .section("output", "Answer with the result of this task only. Say plainly what you could not do, and why.")
            .text()
    }

    /// What a run below is asked, with the messages to whoever works there.
    pub fn with_mail(&self, objective: &str) -> String {
        let mail = self.mail();
        if mail.is_empty() { objective.to_owned() } else { Prompt::new(objective).section(MAIL, &mail).text() }
    }

    /// The messages to whoever works here, each with who sent it.
    fn mail(&self) -> String {
        let text = |message: &Value, name: &str| message.get(name).and_then(Value::as_str).map(str::to_owned);
        let line = |message: &Value| Some(format!("{}: {}", text(message, "From")?, text(message, "Content")?));
        bullets(self.rest.get("messages").and_then(Value::as_array).into_iter().flatten().filter_map(line))
    }

    /// The task as a run of its own is asked it: with what came before it and what was wrong with it, and nothing about how one
    /// call is to answer. The goal alone, where there is no more.
    pub fn as_objective(&self) -> String {
        // CUG-37: what the supervisor of a plan passes on.
        let variables = self.rest.get("variables").and_then(Value::as_object);
        let earlier = self.previous_results.iter().filter(|(id, _)| !self.dependency_results.contains_key(*id));
        Prompt::new(&self.goal)
            .section("results of the tasks it depends on", &results(self.dependency_results.iter()))
            .section("results of earlier tasks", &results(earlier))
            .section("variables", &entries(variables.into_iter().flatten()))
            .section(MAIL, &self.mail())
            .section(self.feedback_heading(), self.feedback.as_deref().unwrap_or_default())
            .section("feedback of the supervisor", self.supervisor_feedback.as_deref().unwrap_or_default())
            .section("your notes", self.notes.as_deref().unwrap_or_default())
            .text()
    }
}

/// What a model that works may say of its work beside the result, where the run has a use for it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ReplyForm {
    /// How sure it is of its result.
    pub confidence: bool,
    /// What its result proposes to do (SHH-18), and what it must ask a person (LGI-01).
    pub people: bool,
    /// Whom it may ask one question (PDT-49).
    pub colleagues: Vec<String>,
    /// Notes of a worker that runs out of context (PDT-48).
    pub overflow: bool,
    /// Whom it may ask for (SHN-26).
    pub recruits: bool,
}

impl ReplyForm {
    pub fn text(&self) -> String {
        let line = |said: bool, form: &str| said.then(|| form.to_owned());
        let colleagues = self.colleagues.join(", ");
        let forms = [
            line(true, "{\"success\": false, \"reason\": text}: you could not do the task."),
            line(
                self.confidence,
                "{\"result\": text or JSON, \"confidence\": 0 to 1}: the result, and how sure you are that it is right.",
            ),
            line(self.people, "{\"result\": text or JSON, \"action\": text}: the result proposes to do this, such as publish."),
            line(self.people, "{\"interrupt\": {\"question\": text}}: only a person can say how you go on."),
            (!self.colleagues.is_empty()).then(|| {
                format!("{{\"consult\": {{\"capability\": one of {colleagues}, \"question\": text}}}}: you need one answer first.")
            }),
            line(self.overflow, "{\"overflow\": text}: you have no room to finish; you go on from these notes."),
            line(
                self.recruits,
                "{\"result\": text or JSON, \"recruit\": [{\"description\": text, \"role\": text}]}: the result, and what \
                 somebody else must do as well.",
            ),
        ];
        format!(
            "Answer with the result itself. Only where there is more to say, answer with one JSON object and nothing else; \
             its keys may stand together:\n{}",
            bullets(forms.into_iter().flatten())
        )
    }
}

/// In the order they are given: the order of the plan.
fn results<'a>(results: impl Iterator<Item = (&'a String, &'a Value)>) -> String {
    bullets(results.map(|(id, result)| format!("task {id}: {}", shown(result))))
}

/// One bounded question of a running worker to another capability (PDT-49).
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Consultation {
    pub question: String,
    pub for_task: Value,
    pub max_tokens: Option<u32>,
}

impl Consultation {
    pub fn text(&self) -> String {
        let limit = self.max_tokens.map(|limit| format!(", in at most {limit} tokens")).unwrap_or_default();
        Prompt::new("A colleague asks you one question. You have no tools.")
            .section(&format!("question (for task {})", shown(&self.for_task)), &self.question)
            .section("output", &format!("Answer from what you know{limit}; say so if you do not know."))
            .text()
    }
}
