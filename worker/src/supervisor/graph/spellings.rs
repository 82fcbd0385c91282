//! Answers that say one thing under two names, or a text as a number or as nothing.
//!
//! Invariant: a task that says something once is read as it is; what is said twice is said once afterwards, and nothing of it
//! is lost. What cannot be brought together is left for the reader, who refuses it. It reads no task.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::{Map, Value};

use crate::supervisor::model::TaskId;
use crate::supervisor::reading::data_of;

/// The names under which a planner says what is to be done, and what a task waits for; and what a task is called.
const GOAL: [&str; 5] = ["goal", "description", "task", "objective", "sub_task_objective"];
const DEPS: [&str; 4] = ["deps", "dependencies", "depends_on", "sub_task_dependencies"];
const ID: [&str; 2] = ["id", "task_id"];

/// The answer with each task saying each thing once.
pub(super) fn said_once(answer: &Value) -> Cow<'_, Value> {
    // What is no JSON is refused by whoever reads it.
    let Ok(plan) = data_of(answer) else { return Cow::Borrowed(answer) };
    let tasks = || plan.get("tasks")?.as_array()?.iter().map(Value::as_object).collect::<Option<Vec<_>>>();
    let twice = |task: &&Map<String, Value>| [&GOAL[..], &DEPS, &ID].iter().any(|names| of(task, names).len() > 1);
    if !tasks().is_some_and(|tasks| tasks.iter().any(twice)) {
        return Cow::Borrowed(answer);
    }
    let mut plan = plan.into_owned();
    for task in plan["tasks"].as_array_mut().into_iter().flatten().filter_map(Value::as_object_mut) {
        together(task, &GOAL, texts);
        together(task, &DEPS, lists);
        together(task, &ID, same);
    }
    Cow::Owned(plan)
}

/// The names of these that the task uses.
fn of<'n>(task: &Map<String, Value>, names: &[&'n str]) -> Vec<&'n str> {
    names.iter().filter(|name| task.contains_key(**name)).copied().collect()
}

fn together(task: &mut Map<String, Value>, names: &[&str], join: fn(&Value, &Value) -> Option<Value>) {
    let used = of(task, names);
    let Some((first, others)) = used.split_first() else { return };
    for other in others {
        if let Some(both) = join(&task[*first], &task[*other]) {
            task.remove(*other);
            task.insert((*first).to_owned(), both);
        }
    }
}

/// A short text and a longer one: both are for the worker.
fn texts(one: &Value, other: &Value) -> Option<Value> {
    match (one, other) {
        (one, Value::Null) => Some(one.clone()),
        (Value::Null, other) => Some(other.clone()),
        (Value::String(one), Value::String(other)) if one.contains(other.as_str()) => Some(one.as_str().into()),
        (Value::String(one), Value::String(other)) if other.contains(one.as_str()) => Some(other.as_str().into()),
        (Value::String(one), Value::String(other)) => Some(format!("{one}\n{other}").into()),
        _ => None,
    }
}

fn lists(one: &Value, other: &Value) -> Option<Value> {
    match (one, other) {
        (one, Value::Null) => Some(one.clone()),
        (Value::Null, other) => Some(other.clone()),
        (Value::Array(one), Value::Array(other)) => {
            let mut all = one.clone();
            all.extend(other.iter().filter(|entry| !one.contains(entry)).cloned());
            Some(all.into())
        }
        _ => None,
    }
}

fn same(one: &Value, other: &Value) -> Option<Value> {
    (one == other).then(|| one.clone())
}

/// A text; a number names a task as its text does.
pub(super) fn words<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    match Value::deserialize(deserializer)? {
        Value::String(text) => Ok(text),
        Value::Null => Ok(String::new()),
        number @ Value::Number(_) => {
            TaskId::deserialize(&number).map(|id| id.to_string()).map_err(serde::de::Error::custom)
        }
        other => Err(serde::de::Error::custom(format!("expected a text, found {other}"))),
    }
}
