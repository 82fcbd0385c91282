//! The names of the arguments of queries and of the tools of a plan.
//!
//! Invariant: an argument that is missing or unknown is refused by its name before anything is looked at; what has one
//! argument takes it alone too. What the values mean is read where they are used.

use bosun_engine::Failure;
use serde_json::Value;

use super::refusal::ArgumentFault;
use super::signals::refusal;
use crate::supervisor::fields::similar;

/// What something takes.
struct Takes {
    name: &'static str,
    required: &'static [&'static str],
    optional: &'static [&'static str],
}

const fn takes(name: &'static str, required: &'static [&'static str], optional: &'static [&'static str]) -> Takes {
    Takes { name, required, optional }
}

/// Every other query takes nothing.
const QUERIES: [Takes; 11] = [
    takes("check_process", &["process_id"], &[]),
    takes("findTeamAgentsByRole", &["role"], &[]),
    takes("getMailbox", &[], &["agent", "since", "window"]),
    takes("get_depth", &["id"], &[]),
    takes("get_instance", &["id"], &[]),
    takes("get_process_output", &["process_id"], &["tail"]),
    takes("get_task", &["task_id"], &[]),
    takes("list_children", &["parent"], &[]),
    takes("list_processes", &[], &["include_completed"]),
    takes("native_view", &[], &["preset"]),
    takes("view_qa_report", &["task_id"], &[]),
];
const WHY: Takes = takes("why_not_running", &["task_id"], &[]);

/// Tools that people use as updates; the other updates are read strictly by their types.
const UPDATES: [Takes; 4] = [
    takes("cancel_task", &["task_id"], &["reason"]),
    takes("kill_process", &["process_id"], &[]),
    takes("mark_final_task", &["task_id"], &["reason"]),
    takes("update_task_status", &["task_id", "status"], &["reason"]),
];

/// Refuses what a query does not take, or lacks.
pub(super) fn of_query(name: &str, value: &Value) -> Result<(), Failure> {
    let known = QUERIES.iter().chain([&WHY]).find(|takes| takes.name == name);
    let nothing = takes("", &[], &[]);
    check(&format!("the query {name}"), known.unwrap_or(&nothing), value)
        .map_err(|why| refusal("BadArguments", why.to_string()))
}

/// Refuses what an update does not take, or lacks.
pub(super) fn of_update(name: &str, value: &Value) -> Result<(), ArgumentFault> {
    match UPDATES.iter().find(|takes| takes.name == name) {
        Some(known) => check(&format!("the update {name}"), known, value),
        None => Ok(()),
    }
}

fn check(what: &str, known: &Takes, value: &Value) -> Result<(), ArgumentFault> {
    let what = what.to_owned();
    let names: Vec<&'static str> = known.required.iter().chain(known.optional).copied().collect();
    let takes = if names.is_empty() { "takes no arguments".to_owned() } else { format!("takes {}", names.join(", ")) };
    let map = match value {
        Value::Null => None,
        Value::Object(map) => Some(map),
        // Alone it is the one there is.
        Value::String(_) | Value::Number(_) if names.len() == 1 || known.required.len() == 1 => return Ok(()),
        other => return Err(ArgumentFault::Given { what, takes, given: other.to_string() }),
    };
    if let Some(unknown) = map.into_iter().flat_map(|map| map.keys()).find(|key| !names.contains(&key.as_str())) {
        let near = similar(unknown, &names);
        return Err(ArgumentFault::Unknown { what, unknown: unknown.clone(), near, takes });
    }
    let given = |key: &&&str| map.is_some_and(|map| map.get(**key).is_some_and(|value| !value.is_null()));
    match known.required.iter().find(|key| !given(key)) {
        Some(missing) => Err(ArgumentFault::Missing { what, missing }),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn arguments_that_are_unknown_or_missing_are_named() {
        let said = |name: &str, value: Value| of_query(name, &value).map_or_else(|why| why.message, |()| String::new());
        assert_eq!(said("get_task", json!({ "task_id": "t1" })), "");
        assert_eq!(said("get_task", json!("t1")), "");
        assert_eq!(said("report", json!({})), "");
        assert_eq!(said("get_task", json!({})), "the query get_task needs the argument `task_id`");
        assert_eq!(
            said("get_task", json!({ "task": "t1" })),
            "the query get_task has no argument `task` (did you mean `task_id`?); it takes task_id"
        );
        assert_eq!(said("report", json!({ "x": 1 })), "the query report has no argument `x`; it takes no arguments");
        assert_eq!(said("report", json!(3)), "the query report takes no arguments; it was given 3");
        assert_eq!(
            of_update("update_task_status", &json!({ "task_id": 1 })).unwrap_err().to_string(),
            "the update update_task_status needs the argument `status`"
        );
        assert_eq!(
            of_update("cancel_task", &json!({ "task_id": 1, "status": "done" })).unwrap_err().to_string(),
            "the update cancel_task has no argument `status`; it takes task_id, reason"
        );
    }
}
