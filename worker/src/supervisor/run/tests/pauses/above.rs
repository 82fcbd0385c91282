//! The runs over the one that pauses, each with a sibling beside it, and what the first of them shows.
//!
//! Invariant: a level knows nothing of what pauses below it; its sibling is called once, and what follows the run below
//! begins when that has ended. Nothing here depends on the kind of the pause but its name.

use serde_json::{Value, json};

use super::{Beside, Cell};

/// What the first run shows of the pause: the kind of what it waits for, and, where one asks, the task.
pub(super) struct Asks {
    pub(super) kind: &'static str,
    pub(super) task: Option<&'static str>,
    /// A part of what it says, where another question may be open in the same run.
    pub(super) what: Option<&'static str>,
    /// It is over at this time.
    pub(super) over: &'static str,
}

/// The spec of the first run: so many levels over the one that pauses.
pub(super) fn over(cell: Cell, leaf: Value) -> Value {
    (0..cell.depth).rev().fold(leaf, |below, level| {
        json!({
            "kind": "supervisor", "name": format!("level{level}"), "preset": "shannon-dag",
            "objective": format!("Level {level}"), "failure": { "tries": 1, "on_subtask_error": "skip" },
            "agents": [{ "name": "worker", "timeout": "2h" }, { "name": "below", "via": { "supervisor": { "spec": below } } }],
        })
    })
}

pub(super) fn world(cell: Cell) -> Vec<Value> {
    let mut rules = Vec::new();
    for level in 0..cell.depth {
        let next = if level + 1 == cell.depth { "The leaf".to_owned() } else { format!("Level {}", level + 1) };
        let tasks = json!([
            { "id": format!("n{level}"), "agent": "below", "goal": next },
            { "id": format!("s{level}"), "agent": "worker", "goal": "Beside", "required": false },
            { "id": format!("a{level}"), "agent": "worker", "goal": "After", "deps": [format!("n{level}")] },
            { "id": format!("h{level}"), "agent": "worker", "goal": "Hold" },
        ]);
        rules.push(json!({ "on": "plan", "contains": format!("Level {level}"), "say": { "tasks": tasks } }));
        rules.push(json!({ "on": "execute_worker", "task": format!("h{level}"), "after": "25m",
            "say": { "result": "held", "confidence": 0.9 } }));
        rules.extend(sibling(cell.beside, &format!("s{level}")));
    }
    rules.push(
        json!({ "on": "execute_worker", "after": "1s", "say": { "result": "{{task}} is done", "confidence": 0.9 } }),
    );
    rules.push(json!({ "on": "synthesize", "say": "put together" }));
    rules
}

/// What a sibling does.
pub(super) fn sibling(beside: Beside, task: &str) -> Vec<Value> {
    let rule = |more: Value| {
        let mut rule = json!({ "on": "execute_worker", "task": task });
        rule.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        rule
    };
    let done = json!({ "result": "done", "confidence": 0.9 });
    match beside {
        Beside::Runs => vec![rule(json!({ "after": "20m", "say": done }))],
        Beside::Waits => vec![
            rule(json!({ "attempt": 1, "say": { "interrupt": { "question": "And this?" } } })),
            rule(json!({ "after": "1s", "say": done })),
        ],
        Beside::Failed => vec![rule(json!({ "fail": { "message": "broken", "retryable": false } }))],
        Beside::Done => vec![rule(json!({ "after": "1s", "say": done }))],
    }
}

/// Siblings that ask are answered half an hour later, wherever they are.
pub(super) fn people(cell: Cell) -> Vec<Value> {
    let answer = |level| json!({ "when": { "question": format!("s{level}") }, "after": "30m", "do": "answer", "answer": true, "by": "bob" });
    if cell.beside == Beside::Waits { (0..cell.depth).map(answer).collect() } else { Vec::new() }
}

/// Whatever happens below, siblings are called as often as they would be without it.
pub(super) fn calls(cell: Cell) -> Vec<Value> {
    let times = if cell.beside == Beside::Waits { 2 } else { 1 };
    let of = |level: usize| {
        [
            json!({ "execute_worker": format!("s{level}"), "times": times }),
            json!({ "execute_worker": format!("h{level}"), "times": 1 }),
            json!({ "execute_worker": format!("a{level}"), "times": { "at_most": 1 } }),
        ]
    };
    (0..cell.depth).flat_map(of).collect()
}

/// What the first run waits for while the pause lasts, and afterwards.
pub(super) fn looks(cell: Cell, asks: &Asks) -> Value {
    let mut entry = json!({ "kind": asks.kind });
    if let Some(task) = asks.task {
        entry["task"] = task.into();
    }
    if let Some(what) = asks.what {
        entry["what"] = json!({ "contains": what });
    }
    if cell.depth > 0 {
        entry["run"] = json!({ "exists": true });
    }
    let siblings = if cell.beside == Beside::Waits { cell.depth } else { 0 };
    let shows = |is: Value| json!([{ "query": "waiting", "is": is }]);
    let over = if siblings > 0 {
        json!([
            { "query": "waiting", "not": { "contains": entry } },
            { "query": "waiting", "length": { "at_least": siblings } },
        ])
    } else {
        json!([{ "query": "waiting", "not": { "contains": entry } }])
    };
    let mut looks = json!({ "3m": shows(json!({ "contains": entry })) });
    looks[asks.over] = over;
    looks
}
