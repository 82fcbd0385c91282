//! Leaves that are held as a whole: a plan under review, a takeover, a spent budget, a model without its key.
//!
//! Invariant: what was under way when the run was held ends, and counts when it goes on; what is next begins only then.

use serde_json::{Value, json};

use super::above::Asks;
use super::leaf::{Leaf, graph, with};
use super::{Answer, Cell, Door};

pub(super) fn plan_review(cell: Cell) -> Leaf {
    let mut leaf = graph(
        cell,
        json!({}),
        json!({ "planning": { "approval": { "required": true, "timeout": "10m" } } }),
        Vec::new(),
    );
    let to = if cell.door == Door::Root { "root" } else { "leaf" };
    let act = |more: Value| with(json!({ "by": "ann", "to": to }), more);
    let up = json!({ "when": { "plan": 1 }, "after": "5m" });
    let acts = match cell.answer {
        Answer::Approve => vec![act(with(up, json!({ "do": "approve_plan" })))],
        Answer::Reject => vec![act(with(up, json!({ "do": "reject_plan", "comment": "too dear" })))],
        Answer::Edit => {
            let tasks = json!([{ "id": "t", "agent": "worker", "goal": "Publish the draft" },
                { "id": "s", "agent": "worker", "goal": "Beside", "required": false },
                { "id": "a", "agent": "worker", "goal": "After", "deps": ["t"] }, { "id": "hold", "agent": "worker", "goal": "Hold" }]);
            let revised =
                json!({ "when": { "plan": 1 }, "after": "200s", "do": "revise_plan", "tasks": tasks, "version": 1 });
            vec![act(revised), act(json!({ "when": { "plan": 2 }, "after": "100s", "do": "approve_plan" }))]
        }
        Answer::Late => vec![act(
            json!({ "when": { "plan": 1 }, "after": "12m", "do": "approve_plan", "version": 1, "refused": true }),
        )],
        Answer::Twice => vec![
            act(with(up, json!({ "do": "approve_plan" }))),
            act(json!({ "at": "6m", "do": "reject_plan", "version": 1, "refused": "already" })),
        ],
        Answer::Stale => vec![
            act(json!({ "at": "4m", "do": "approve_plan", "version": 7, "refused": "latest version" })),
            act(with(up, json!({ "do": "approve_plan" }))),
        ],
        Answer::Wrong => vec![
            // The run above has no plan up, and the run itself has no run below it that has one.
            match cell.depth {
                0 => json!({ "at": "4m", "do": "update", "name": "approve_plan", "to": "leaf", "refused": "no plan",
                    "input": { "version": 1, "approver": "eve", "of": "another-run" } }),
                _ => json!({ "at": "4m", "do": "update", "name": "approve_plan", "to": "level0", "refused": "no plan",
                    "input": { "version": 1, "approver": "eve" } }),
            },
            act(with(up, json!({ "do": "approve_plan" }))),
        ],
    };
    leaf.people.extend(acts);
    let done = !matches!(cell.answer, Answer::Reject | Answer::Late);
    if !done {
        (leaf.calls, leaf.people) = (Vec::new(), leaf.people.split_off(leaf.people.len() - 1));
        leaf.outcome = Some(json!({ "exists": true }));
    }
    leaf.calls.push(json!({ "execute_worker": "t", "times": u8::from(done) }));
    leaf.calls.push(json!({ "execute_worker": "a", "times": u8::from(done) }));
    leaf.asks =
        Asks { kind: "plan", task: None, what: None, over: if cell.answer == Answer::Late { "11m" } else { "330s" } };
    leaf
}

/// What a person does about a run that is held, by the right verb and by another.
fn held(cell: Cell, verb: &str, other: &str) -> Vec<Value> {
    let to = if cell.door == Door::Root { "root" } else { "leaf" };
    let act = |at: &str, verb: &str| json!({ "at": at, "do": verb, "to": to, "by": "ann" });
    match cell.answer {
        Answer::Reject => {
            vec![json!({ "at": "5m", "do": "cancel", "to": "leaf", "by": "ann", "reason": "not any more" })]
        }
        Answer::Twice => vec![act("5m", verb), act("6m", verb)],
        Answer::Wrong => vec![act("4m", other), act("5m", verb)],
        _ => vec![act("5m", verb)],
    }
}

pub(super) fn takeover(cell: Cell) -> Leaf {
    let slow =
        json!({ "on": "execute_worker", "task": "t", "after": "1m", "say": { "result": "done", "confidence": 0.9 } });
    let mut leaf = graph(cell, json!({}), json!({}), vec![slow]);
    leaf.people.push(json!({ "at": "30s", "do": "takeover", "to": "leaf", "by": "ann", "timeout": "10m" }));
    match cell.answer {
        Answer::Edit => {
            leaf.people.push(
                json!({ "at": "4m", "do": "complete", "task": "a", "result": "by hand", "to": "leaf", "by": "ann" }),
            );
            leaf.people.extend(held(cell, "release", "resume"));
        }
        Answer::Late => {
            leaf.people.push(json!({ "at": "12m", "do": "release", "to": "leaf", "by": "ann", "refused": true }));
        }
        _ => leaf.people.extend(held(cell, "release", "resume")),
    }
    let ended = matches!(cell.answer, Answer::Reject | Answer::Late);
    // What was under way is done; what follows waits for the person.
    leaf.calls.push(json!({ "execute_worker": "t", "times": 1 }));
    leaf.calls.push(json!({ "execute_worker": "a", "times": u8::from(!ended && cell.answer != Answer::Edit) }));
    leaf.notes = vec![json!({ "kind": "HumanTookOver", "times": 1 })];
    if ended {
        not_to_its_end(&mut leaf);
    }
    leaf.asks = Asks {
        kind: "takeover",
        task: None,
        what: None,
        over: if cell.answer == Answer::Late { "11m" } else { "330s" },
    };
    leaf
}

/// It was cancelled: its sibling may not have come to its end, and nobody answers it.
fn not_to_its_end(leaf: &mut Leaf) {
    leaf.outcome = Some(json!({ "exists": true }));
    leaf.order_counts = true;
    leaf.calls.remove(0);
    leaf.people.retain(|act| act["by"] != "bob");
}

pub(super) fn budget(cell: Cell) -> Leaf {
    let dear = json!({ "on": "execute_worker", "task": "t", "after": "1s", "say": { "result": "done", "confidence": 0.9, "tokens": 10 } });
    let mut leaf = graph(cell, json!({}), json!({ "budget": { "tokens": 10, "on_exhausted": "ask" } }), vec![dear]);
    // What else is under way must end before it can be known that nothing else gives anything back.
    for rule in &mut leaf.world {
        if rule["task"] == "hold" || rule["task"] == "s" && rule["after"].is_string() {
            rule["after"] = "1s".into();
        }
    }
    let more = |at: &str| json!({ "at": at, "do": "signal", "name": "budget_top_up_v1", "input": { "tokens": 1000 }, "to": "leaf", "by": "ann" });
    match cell.answer {
        Answer::Reject => {}
        // Resumed with nothing more it asks again.
        Answer::Edit => {
            leaf.people.extend([json!({ "at": "4m", "do": "resume", "to": "leaf", "by": "ann" }), more("290s")])
        }
        _ => leaf.people.push(more("290s")),
    }
    leaf.people.extend(held(cell, "resume", "release"));
    leaf.calls.push(json!({ "execute_worker": "t", "times": 1 }));
    leaf.calls.push(json!({ "execute_worker": "a", "times": u8::from(cell.answer != Answer::Reject) }));
    if cell.answer == Answer::Reject {
        not_to_its_end(&mut leaf);
    }
    leaf.asks = Asks { kind: "pause", task: None, what: None, over: "330s" };
    leaf
}

pub(super) fn key(cell: Cell) -> Leaf {
    let clerk = json!({ "name": "clerk", "model": "gpt", "via": { "model": {} } });
    let spec = json!({ "agents": [{ "name": "worker", "timeout": "2h" }, clerk] });
    let world = vec![
        json!({ "on": "model", "before": "4m", "fail": { "message": "the key OPENAI_API_KEY is not set", "needs_person": true } }),
        json!({ "on": "model", "say": { "result": "done", "confidence": 0.9 } }),
    ];
    let mut leaf = graph(cell, json!({ "agent": "clerk" }), spec, world);
    leaf.people.extend(held(cell, "resume", "release"));
    leaf.calls.push(json!({ "on": "model", "times": if cell.answer == Answer::Reject { 1 } else { 2 } }));
    leaf.calls.push(json!({ "execute_worker": "a", "times": u8::from(cell.answer != Answer::Reject) }));
    if cell.answer == Answer::Reject {
        not_to_its_end(&mut leaf);
    }
    leaf.asks = Asks { kind: "pause", task: None, what: None, over: "330s" };
    leaf
}
