//! Which verbs are tools, with which of their options, and how the arguments of a call become a command line.
//!
//! Invariant: only what stands in the table is offered, option by option: none names a file, a program or another worker. A value
//! goes behind its own option, or behind `--`, so that no text is taken for an option; an input is always JSON, so that none
//! is taken for the name of a file. What an option means is said by the grammar of the command line itself. Only who is offered the
//! decisions of people sends a message that is one, and nobody starts the worker's own workflows, which would send it for them.

#![cfg_attr(not(feature = "mcp"), allow(dead_code, reason = "the server alone calls what is listed"))]

use clap::{ArgAction, CommandFactory};
use serde_json::{Map, Value, json};

use super::super::args::Cli;
use super::ServeArgs;
use crate::agent::workflow::SIGNAL_TOP_UP;
use crate::supervisor::core::control;
use crate::supervisor::people::signature::{OF_RUNS, is_answer};

/// What a tool does to the world.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Does {
    Looks,
    Changes,
    Decides,
}

/// A tool: its name, its verb, its options by the names of the grammar, and what it does.
type Row = (&'static str, &'static [&'static str], &'static [&'static str], Does);

#[rustfmt::skip]
const TOOLS: &[Row] = &[
    ("workflow_list", &["workflow", "list"], &["query", "limit"], Does::Looks),
    ("workflow_count", &["workflow", "count"], &["query"], Does::Looks),
    ("workflow_describe", &["workflow", "describe"], &["id"], Does::Looks),
    ("workflow_show", &["workflow", "show"], &["id"], Does::Looks),
    ("workflow_result", &["workflow", "result"], &["id", "timeout"], Does::Looks),
    ("workflow_query", &["workflow", "query"], &["workflow_id", "name", "input"], Does::Looks),
    ("workflow_cost", &["workflow", "cost"], &["id"], Does::Looks),
    ("activity_list", &["activity", "list"], &["id"], Does::Looks),
    ("agent_list", &["agent", "list"], &["id"], Does::Looks),
    ("plan_show", &["plan", "show"], &["id"], Does::Looks),
    ("approval_list", &["approval", "list"], &["id"], Does::Looks),
    ("approval_show", &["approval", "show"], &["id", "run"], Does::Looks),
    ("schedule_list", &["schedule", "list"], &[], Does::Looks),
    ("schedule_describe", &["schedule", "describe"], &["id"], Does::Looks),
    ("batch_list", &["batch", "list"], &[], Does::Looks),
    ("batch_describe", &["batch", "describe"], &["id"], Does::Looks),
    ("queue_list", &["queue", "list"], &[], Does::Looks),
    ("queue_describe", &["queue", "describe"], &["name"], Does::Looks),
    ("worker_describe", &["worker", "describe"], &[], Does::Looks),
    ("store_info", &["store", "info"], &[], Does::Looks),
    ("explain", &["explain"], &["code"], Does::Looks),
    ("workflow_start", &["workflow", "start"], &["workflow_type", "workflow_id", "input", "task_queue", "summary", "request_id", "priority"], Does::Changes),
    ("workflow_signal", &["workflow", "signal"], &["workflow_id", "name", "input"], Does::Changes),
    ("workflow_update", &["workflow", "update"], &["workflow_id", "name", "input"], Does::Changes),
    ("workflow_cancel", &["workflow", "cancel"], &["workflow_id", "reason"], Does::Changes),
    ("workflow_terminate", &["workflow", "terminate"], &["workflow_id", "reason"], Does::Changes),
    ("workflow_pause", &["workflow", "pause"], &["workflow_id", "reason"], Does::Changes),
    ("workflow_resume", &["workflow", "resume"], &["workflow_id", "reason"], Does::Changes),
    ("schedule_trigger", &["schedule", "trigger"], &["id"], Does::Changes),
    ("approval_approve", &["approval", "approve"], &["id", "run", "comment"], Does::Decides),
    ("approval_reject", &["approval", "reject"], &["id", "run", "comment", "feedback"], Does::Decides),
    ("approval_answer", &["approval", "answer"], &["id", "run", "answer"], Does::Decides),
];

/// One tool, as it is offered.
#[derive(Debug, Clone)]
pub(super) struct Tool {
    pub(super) name: &'static str,
    pub(super) about: String,
    pub(super) schema: Map<String, Value>,
    pub(super) changes: bool,
    /// Whether it may answer what people are asked.
    decides: bool,
    verb: &'static [&'static str],
    options: Vec<ToolOption>,
}

#[derive(Debug, Clone)]
struct ToolOption {
    /// As it is documented.
    name: &'static str,
    /// Taken for the same.
    also: Option<&'static str>,
    /// `None`: it stands by its place.
    flag: Option<String>,
    place: usize,
    is_switch: bool,
}

/// What the names of the worker's own workflows begin with: a batch, for example, sends signals to other runs.
const INTERNAL: &str = "bosun.";

/// Messages after which people are not asked, or something else is done when they do not answer in time; and those that do
/// what a person was asked for without an answer: more budget, a task done by hand, another plan.
const OF_PEOPLE: [&str; 7] = [
    "set_hitl_mode",
    "set_policy",
    SIGNAL_TOP_UP,
    control::TAKEOVER,
    control::RELEASE,
    "complete_task_manually",
    "revise_plan",
];

/// What the ids of the worker's own runs begin with that no tool touches: each has verbs that say what they do to it.
const OWN_RUNS: [&str; 3] = [crate::schedule::ID_PREFIX, crate::batch::ID_PREFIX, crate::notify::ID_PREFIX];

/// What names a run is called the same in all tools, and is known by the other name of it too.
fn name_of(verb: &[&str], option: &'static str) -> (&'static str, Option<&'static str>) {
    match (verb, option) {
        (["workflow", "start"], _) => (option, None),
        (["workflow" | "activity" | "agent" | "plan", _] | ["approval", "list"], "id" | "workflow_id") => {
            ("workflow_id", Some("id"))
        }
        _ => (option, None),
    }
}

/// Any JSON, which is handed on as JSON.
fn is_json(option: &str) -> bool {
    matches!(option, "input" | "answer")
}

/// The tools that are offered, each described by the grammar of its verb.
pub(super) fn offered(args: &ServeArgs) -> Vec<Tool> {
    let grammar = Cli::command();
    let rows = TOOLS.iter().filter(|(_, _, _, does)| match does {
        Does::Looks => true,
        Does::Changes => args.changes,
        Does::Decides => args.approvals,
    });
    rows.filter_map(|row| tool(&grammar, row, args.approvals)).collect()
}

fn tool(grammar: &clap::Command, (name, verb, options, does): &Row, decides: bool) -> Option<Tool> {
    let command = verb.iter().try_fold(grammar, |command, word| command.find_subcommand(word))?;
    let about = command.get_about().map(ToString::to_string).unwrap_or_default();
    let (mut properties, mut required, mut found) = (Map::new(), Vec::new(), Vec::new());
    for option in *options {
        let arg = command.get_arguments().find(|arg| arg.get_id() == *option)?;
        let help = arg.get_help().map(ToString::to_string).unwrap_or_default();
        let is_switch = matches!(arg.get_action(), ArgAction::SetTrue);
        let mut schema = match (is_json(option), is_switch) {
            (true, _) => json!({}),
            (_, true) => json!({ "type": "boolean" }),
            _ => json!({ "type": ["string", "number"] }),
        };
        if !help.is_empty() {
            schema["description"] = if is_json(option) { "Any JSON".into() } else { help.into() };
        }
        let (name, also) = name_of(verb, option);
        properties.insert(name.to_owned(), schema);
        // What names a run is needed, where one option of two would do for people.
        let needed = arg.is_required_set() || (*option == "id" && *verb != ["approval", "list"]);
        if needed || matches!(*option, "workflow_type" | "name") || (*option == "workflow_id" && verb[1] != "start") {
            required.push(name);
        }
        let flag = arg.get_long().map(|long| format!("--{long}"));
        let place = arg.get_index().unwrap_or_default();
        found.push(ToolOption { name, also, flag, place, is_switch });
    }
    let schema =
        json!({ "type": "object", "properties": properties, "required": required, "additionalProperties": false });
    let Value::Object(schema) = schema else { return None };
    Some(Tool { name, about, schema, changes: *does != Does::Looks, decides, verb, options: found })
}

impl Tool {
    /// Refuses what this tool is not for, whatever the role of its token.
    fn may(&self, given: &Map<String, Value>) -> Result<(), String> {
        let text = |option: &str| given.get(option).and_then(Value::as_str).unwrap_or_default();
        match self.verb {
            ["workflow", "signal" | "update"] => {
                let name = text("name");
                if OF_RUNS.contains(&name) {
                    return Err(format!("{name}: only runs send it, to each other"));
                }
                if !self.decides && (is_answer(name) || OF_PEOPLE.contains(&name)) {
                    return Err(format!("{name}: it decides what is for people to decide: serve with --approvals"));
                }
            }
            ["workflow", "start"] => {
                let name = text("workflow_type");
                if name.starts_with(INTERNAL) {
                    return Err(format!(
                        "{name}: workflows {INTERNAL}* are the worker's own, and are not started by a tool"
                    ));
                }
            }
            _ => {}
        }
        let own = OWN_RUNS.iter().any(|prefix| text("workflow_id").starts_with(prefix));
        if self.changes && own {
            return Err(format!(
                "{}: it is a run of the worker's own: people change it with its own verbs, such as `bosun schedule pause`",
                text("workflow_id")
            ));
        }
        Ok(())
    }

    /// The words of the verb for these arguments.
    ///
    /// # Errors
    /// An argument that is not offered, is missing, or has a value of another kind, by its name.
    pub(super) fn words(&self, mut given: Map<String, Value>) -> Result<Vec<String>, String> {
        for option in &self.options {
            if let Some(value) = option.also.and_then(|also| given.remove(also))
                && given.insert(option.name.to_owned(), value).is_some()
            {
                return Err(format!("{}: the run is named twice", option.name));
            }
        }
        let needed = self.schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str);
        if let Some(missing) = needed.into_iter().find(|name| given.get(*name).is_none_or(Value::is_null)) {
            return Err(format!("{missing}: it is needed"));
        }
        self.may(&given)?;
        let mut words: Vec<String> = self.verb.iter().map(|word| (*word).to_owned()).collect();
        let mut by_place = Vec::new();
        for option in &self.options {
            let Some(value) = given.remove(option.name).filter(|value| !value.is_null()) else { continue };
            let text = match value {
                value if is_json(option.name) => value.to_string(),
                Value::Bool(truth) if option.is_switch => {
                    if truth {
                        words.extend(option.flag.clone());
                    }
                    continue;
                }
                Value::String(text) => text,
                Value::Number(number) => number.to_string(),
                _ => return Err(format!("{}: a text or a number is wanted", option.name)),
            };
            match &option.flag {
                Some(flag) => words.push(format!("{flag}={text}")),
                None => by_place.push((option.place, text)),
            }
        }
        if let Some(unknown) = given.keys().next() {
            return Err(format!("{unknown}: this tool has no such argument"));
        }
        by_place.sort_unstable();
        if !by_place.is_empty() {
            words.push("--".to_owned());
            words.extend(by_place.into_iter().map(|(_, text)| text));
        }
        Ok(words)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all() -> Vec<Tool> {
        offered(&ServeArgs { changes: true, approvals: true })
    }

    fn words(tool: &str, given: Value) -> Result<String, String> {
        let Value::Object(given) = given else { panic!("{given}") };
        let tools = all();
        let tool = tools.iter().find(|one| one.name == tool).unwrap();
        tool.words(given).map(|words| words.join(" "))
    }

    #[test]
    fn every_tool_is_a_verb_that_says_what_it_does() {
        let tools = all();
        assert_eq!(tools.len(), TOOLS.len(), "each row names a verb and options of it");
        for tool in &tools {
            assert!(!tool.about.is_empty(), "{}", tool.name);
        }
        assert!(offered(&ServeArgs::default()).iter().all(|tool| !tool.changes));
    }

    #[test]
    fn only_who_decides_sends_an_answer_and_nobody_starts_what_is_the_workers() {
        let tools = offered(&ServeArgs { changes: true, approvals: false });
        let refused = |tools: &[Tool], tool: &str, given: Value| {
            let Value::Object(given) = given else { panic!("{given}") };
            tools.iter().find(|one| one.name == tool).unwrap().words(given).err()
        };
        for tool in ["workflow_signal", "workflow_update"] {
            let answers = ["respond_approval", "approve_plan", "respond_interrupt", "approval_response_v1"];
            for name in answers.into_iter().chain(OF_PEOPLE) {
                let given = || json!({ "workflow_id": "a", "name": name });
                assert!(refused(&tools, tool, given()).unwrap().contains("serve with --approvals"), "{tool} {name}");
                assert_eq!(refused(&all(), tool, given()), None, "{tool} {name}");
            }
            assert_eq!(refused(&tools, tool, json!({ "workflow_id": "a", "name": "pause_v1" })), None);
            for name in OF_RUNS {
                assert!(refused(&all(), tool, json!({ "workflow_id": "a", "name": name })).is_some(), "{tool} {name}");
            }
        }
        for name in [crate::batch::BATCH, crate::schedule::SCHEDULE, "bosun.else"] {
            assert!(refused(&all(), "workflow_start", json!({ "workflow_type": name })).unwrap().contains(name));
        }
    }

    /// The id alone does not say which run waits, after a reset or a fork.
    #[test]
    fn a_decision_names_the_run_that_waits() {
        for (tool, more) in [("approve", json!({})), ("reject", json!({})), ("answer", json!({ "answer": 1 }))] {
            let mut given = json!({ "id": "r/ap-1", "run": "q" });
            given.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            let told = words(&format!("approval_{tool}"), given).unwrap();
            assert!(told.contains("--run=q"), "{told}");
        }
        assert_eq!(words("approval_show", json!({ "id": "a", "run": "q" })).unwrap(), "approval show --run=q -- a");
    }

    #[test]
    fn no_argument_becomes_an_option_or_the_name_of_a_file() {
        let start = json!({ "workflow_type": "--data=/etc", "input": "@/etc/passwd", "priority": 1 });
        let told = words("workflow_start", start).unwrap();
        assert_eq!(told, "workflow start --type=--data=/etc --input=\"@/etc/passwd\" --priority=1");
        assert_eq!(words("workflow_describe", json!({ "id": "--yes" })).unwrap(), "workflow describe -- --yes");
        assert!(words("workflow_describe", json!({})).unwrap_err().contains("workflow_id: it is needed"));
        assert!(words("workflow_list", json!({ "data": "/" })).unwrap_err().contains("no such argument"));
        assert!(words("workflow_list", json!({ "query": ["a"] })).unwrap_err().contains("query"));
    }
    /// Whoever has learned one name of a run from one tool uses it in the next.
    #[test]
    fn a_run_is_named_the_same_in_all_tools() {
        for tool in all() {
            let properties = tool.schema["properties"].as_object().unwrap();
            let of_run = tool.name.starts_with("workflow_") && !tool.name.ends_with("_list");
            let named =
                ["workflow_start", "workflow_count"].contains(&tool.name) || properties.contains_key("workflow_id");
            assert!(!of_run || named, "{}", tool.name);
            assert!(!tool.name.starts_with("workflow_") || !properties.contains_key("id"), "{}", tool.name);
        }
        for name in ["id", "workflow_id"] {
            assert_eq!(words("workflow_show", json!({ name: "a" })).unwrap(), "workflow show -- a");
            let query = words("workflow_query", json!({ name: "a", "name": "q" })).unwrap();
            assert_eq!(query, "workflow query --workflow-id=a --name=q");
            assert_eq!(words("workflow_cancel", json!({ name: "a" })).unwrap(), "workflow cancel --workflow-id=a");
        }
        assert!(words("workflow_show", json!({ "id": "a", "workflow_id": "b" })).unwrap_err().contains("twice"));
        assert_eq!(words("schedule_describe", json!({ "id": "n" })).unwrap(), "schedule describe -- n");
        assert_eq!(words("batch_describe", json!({ "id": "b" })).unwrap(), "batch describe -- b");
    }

    #[test]
    fn no_tool_ends_or_changes_a_run_of_the_worker() {
        for tool in ["workflow_cancel", "workflow_terminate", "workflow_pause", "workflow_signal", "workflow_update"] {
            for (id, name) in [("schedule:n", "id"), ("batch:b", "workflow_id"), ("notify:x", "workflow_id")] {
                let told = words(tool, json!({ name: id, "name": "x" })).unwrap_err();
                assert!(told.contains("worker's own"), "{tool} {id}: {told}");
            }
        }
        assert!(words("workflow_describe", json!({ "workflow_id": "schedule:n" })).is_ok());
    }
}
