//! The runs over the one that pauses, each with a sibling beside it, and what the first of them shows.
//!
//! Invariant: a level knows nothing of what pauses below it; its sibling is called once, and what follows the run below
//! begins when that has ended. Nothing here depends on the kind of the pause but its name.

use serde_json::{Value, json};

use super::leaf::with;
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

/// Where a run below stands in the one above it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Above {
    /// It works on a task of a plan.
    Plan,
    /// It speaks in a chat: one speaker after the other, so that nobody works beside it.
    Chat,
    /// A lead delegates to it.
    Delegation,
    /// The manager of a crew gives it work.
    Crew,
}

pub(super) const ABOVE: [Above; 4] = [Above::Plan, Above::Chat, Above::Delegation, Above::Crew];

impl Above {
    /// The first run is of the family that the cell says, each one below it of the next.
    fn of(cell: Cell, level: usize) -> Above {
        ABOVE[(cell.above as usize + level) % ABOVE.len()]
    }

    /// A speaker or a task of a crew that fails ends the run, as their rows say, and no speaker asks a person: there they
    /// just answer.
    fn beside(self, cell: Cell) -> Beside {
        match (self, cell.beside) {
            (Above::Chat, Beside::Failed | Beside::Waits) | (Above::Crew, Beside::Failed) => Beside::Done,
            (_, beside) => beside,
        }
    }

    fn spec(self, level: usize, below: &Value) -> Value {
        let name = |letter: &str| format!("{letter}{level}");
        let below = json!({ "name": name("n"), "timeout": "2h", "via": { "supervisor": { "spec": below } } });
        let works = |letter: &str| json!({ "name": name(letter), "timeout": "2h" });
        let all = json!([below, works("s"), works("h"), works("a")]);
        let base =
            json!({ "kind": "supervisor", "name": format!("level{level}"), "objective": format!("Level {level}") });
        let own = match self {
            Above::Plan => json!({ "preset": "shannon-dag", "agents": all,
                "failure": { "tries": 1, "on_subtask_error": "skip" } }),
            Above::Chat => json!({ "preset": "autogen-groupchat", "agents": [below, works("s"), works("a")],
                "speaker": { "method": "round_robin" }, "loop": { "max_rounds": 4 } }),
            Above::Delegation => {
                let lead = json!({ "name": name("lead"), "timeout": "4h", "delegates": [name("n"), name("s"), name("h"), name("a")] });
                let agents: Vec<Value> = [lead].into_iter().chain(all.as_array().unwrap().iter().cloned()).collect();
                json!({ "preset": "cuga-conversational", "agents": agents, "delegation": { "timeout": "2h" } })
            }
            Above::Crew => {
                let task = |id: usize, goal: &str, beside: bool| {
                    json!({ "task_id": id, "capability": "any",
                    "sub_task_objective": format!("Crew {level}: {goal}"), "parameters": { "async_execution": beside } })
                };
                let tasks = json!([
                    task(1, "below", true),
                    task(2, "beside", true),
                    task(3, "hold", true),
                    task(4, "after", false)
                ]);
                json!({ "preset": "crewai-hierarchical", "manager_llm": "m", "agents": all, "delegation": { "timeout": "2h" },
                    "seed_plan": { "plan": { "objective": format!("Level {level}"), "tasks": tasks } } })
            }
        };
        with(base, own)
    }

    /// Who gives the work away at a level, and to whom.
    fn world(self, level: usize, goal: &str, next: &str) -> Vec<Value> {
        let name = |letter: &str| format!("{letter}{level}");
        match self {
            Above::Plan => {
                let tasks = json!([
                    { "id": name("n"), "agent": name("n"), "goal": next },
                    { "id": name("s"), "agent": name("s"), "goal": "Beside", "required": false },
                    { "id": name("a"), "agent": name("a"), "goal": "After", "deps": [name("n")] },
                    { "id": name("h"), "agent": name("h"), "goal": "Hold" },
                ]);
                vec![json!({ "on": "plan", "contains": goal, "say": { "tasks": tasks } })]
            }
            Above::Chat => Vec::new(),
            Above::Delegation => {
                let to = |letter: &str, task: &str| json!({ "name": format!("delegate_to_{letter}{level}"), "args": { "task": task } });
                let lead = json!({ "on": "execute_worker", "agent": name("lead") });
                let beside = json!([to("n", next), to("s", "Beside"), to("h", "Hold")]);
                vec![
                    with(lead.clone(), json!({ "round": 1, "say": { "tool_calls": beside } })),
                    with(lead.clone(), json!({ "round": 2, "say": { "tool_calls": [to("a", "After")] } })),
                    with(lead, json!({ "say": format!("Level {level} is done.") })),
                ]
            }
            Above::Crew => {
                let gives = |work: &str, letter: &str, task: &str| {
                    let rule = json!({ "on": "execute_worker", "agent": "Crew Manager", "contains": format!("Crew {level}: {work}") });
                    let call = json!([{ "name": "Delegate work to coworker",
                        "args": { "task": task, "context": "none", "coworker": name(letter) } }]);
                    [
                        with(rule.clone(), json!({ "round": 1, "say": { "tool_calls": call } })),
                        with(rule, json!({ "say": format!("{} is done.", name(letter)) })),
                    ]
                };
                // The last one has what the others said before it.
                [("after", "a", "After"), ("below", "n", next), ("beside", "s", "Beside"), ("hold", "h", "Hold")]
                    .into_iter()
                    .flat_map(|(work, letter, task)| gives(work, letter, task))
                    .collect()
            }
        }
    }
}

/// What a run is asked for: its name, or what a chat above it talks about.
pub(super) fn goal(cell: Cell, level: usize) -> String {
    match level.checked_sub(1) {
        Some(above) if Above::of(cell, above) == Above::Chat => goal(cell, above),
        _ if level == cell.depth => "The leaf".to_owned(),
        _ => format!("Level {level}"),
    }
}

/// The spec of the first run: so many levels over the one that pauses.
pub(super) fn over(cell: Cell, leaf: Value) -> Value {
    (0..cell.depth).rev().fold(leaf, |below, level| Above::of(cell, level).spec(level, &below))
}

pub(super) fn world(cell: Cell) -> Vec<Value> {
    let mut rules = Vec::new();
    for level in 0..cell.depth {
        let above = Above::of(cell, level);
        rules.extend(above.world(level, &goal(cell, level), &goal(cell, level + 1)));
        rules.push(json!({ "on": "execute_worker", "agent": format!("h{level}"), "after": "25m",
            "say": { "result": "held", "confidence": 0.9 } }));
        let first = if above == Above::Plan { "attempt" } else { "round" };
        rules.extend(sibling(above.beside(cell), &json!({ "agent": format!("s{level}") }), first));
    }
    rules.push(json!({ "on": "execute_worker", "after": "1s", "say": { "result": "done", "confidence": 0.9 } }));
    rules.push(json!({ "on": "synthesize", "say": "put together" }));
    rules
}

/// What a sibling does; its first call is known by that key.
pub(super) fn sibling(beside: Beside, who: &Value, first: &str) -> Vec<Value> {
    let rule = |more: Value| with(with(json!({ "on": "execute_worker" }), who.clone()), more);
    let done = json!({ "result": "done", "confidence": 0.9 });
    match beside {
        Beside::Runs => vec![rule(json!({ "after": "20m", "say": done }))],
        Beside::Waits => vec![
            rule(json!({ first: 1, "say": { "interrupt": { "question": "And this?" } } })),
            rule(json!({ "after": "1s", "say": done })),
        ],
        Beside::Failed => vec![rule(json!({ "fail": { "message": "broken", "retryable": false } }))],
        Beside::Done => vec![rule(json!({ "after": "1s", "say": done }))],
    }
}

/// Siblings that ask are answered half an hour later, wherever they are.
pub(super) fn people(cell: Cell) -> Vec<Value> {
    let answer = |level| json!({ "when": { "question": format!("s{level}") }, "after": "30m", "do": "answer", "answer": true, "by": "bob" });
    waiting(cell).map(answer).collect()
}

/// Whatever happens below, siblings are called as often as they would be without it. In a chat they come after it, or not
/// at all where it failed.
pub(super) fn calls(cell: Cell, clean: bool) -> Vec<Value> {
    let of = |level: usize| {
        let above = Above::of(cell, level);
        let times = if above.beside(cell) == Beside::Waits { 2 } else { 1 };
        let turn = |times: usize| if clean { json!(times) } else { json!({ "at_most": times }) };
        let call = |letter: &str, times: Value| json!({ "on": "execute_worker", "agent": format!("{letter}{level}"), "times": times });
        match above {
            Above::Chat => vec![call("s", turn(times)), call("a", turn(1))],
            _ => vec![call("s", json!(times)), call("h", json!(1)), call("a", json!({ "at_most": 1 }))],
        }
    };
    (0..cell.depth).flat_map(of).collect()
}

/// The levels whose sibling waits for a person too.
fn waiting(cell: Cell) -> impl Iterator<Item = usize> {
    (0..cell.depth).filter(move |level| Above::of(cell, *level).beside(cell) == Beside::Waits)
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
    let siblings = waiting(cell).count();
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
