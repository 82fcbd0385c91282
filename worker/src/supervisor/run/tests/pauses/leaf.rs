//! The run that pauses: what it is, what the world says to it, and what a person does about it.
//!
//! ```text
//!   0s asked     3m looked at     4m stale, wrong     5m answered     6m answered again     10m its time is over     12m late
//! ```
//!
//! Invariant: a leaf is the same spec at every depth; how often its work is called depends on the answer that counts and on
//! nothing else. Beside what pauses it has a sibling, and a task that keeps it open for 25 minutes.

use serde_json::{Value, json};

use super::above::{Asks, goal, sibling};
use super::held::{budget, key, plan_review, takeover};
use super::{Answer, Beside, Cell, Door, Kind};

pub(super) struct Leaf {
    pub(super) spec: Value,
    pub(super) world: Vec<Value>,
    pub(super) people: Vec<Value>,
    pub(super) calls: Vec<Value>,
    pub(super) notes: Vec<Value>,
    /// Where it is not that of a run that did what it had to.
    pub(super) outcome: Option<Value>,
    /// It is cut while others are at work: which of them has ended by then decides.
    pub(super) order_counts: bool,
    pub(super) asks: Asks,
}

/// An id of a run that there is not.
const NOBODYS: &str = "019b0000-0000-7000-8000-000000000000";

pub(super) fn of(cell: Cell) -> Leaf {
    match cell.kind {
        Kind::Approval => approval(cell),
        Kind::Interrupt => interrupt(cell),
        Kind::Question => question(cell),
        Kind::Policy => policy(cell),
        Kind::Tool => tool(cell),
        Kind::PlanReview => plan_review(cell),
        Kind::Takeover => takeover(cell),
        Kind::Budget => budget(cell),
        Kind::Key => key(cell),
    }
}

pub(super) fn with(mut value: Value, more: Value) -> Value {
    if let (Value::Object(own), Value::Object(more)) = (&mut value, more) {
        own.extend(more);
    }
    value
}

/// A plan of four: what pauses, its sibling, what follows, and what keeps the run open.
pub(super) fn graph(cell: Cell, task: Value, spec: Value, world: Vec<Value>) -> Leaf {
    let base = json!({
        "kind": "supervisor", "name": "leaf", "preset": "shannon-dag", "objective": "The leaf",
        "failure": { "tries": 2, "on_subtask_error": "skip" }, "agents": [{ "name": "worker", "timeout": "2h" }],
    });
    let task = with(json!({ "id": "t", "agent": "worker", "goal": "Publish", "required": false }), task);
    let tasks = json!([
        task,
        { "id": "s", "agent": "worker", "goal": "Beside", "required": false },
        { "id": "a", "agent": "worker", "goal": "After", "deps": ["t"] },
        { "id": "hold", "agent": "worker", "goal": "Hold" },
    ]);
    let mut rules = vec![
        json!({ "on": "plan", "contains": goal(cell, cell.depth), "say": { "tasks": tasks } }),
        json!({ "on": "execute_worker", "task": "hold", "after": "25m", "say": { "result": "held", "confidence": 0.9 } }),
        json!({ "on": "execute_worker", "task": "a", "after": "2m", "say": { "result": "done", "confidence": 0.9 } }),
    ];
    rules.extend(world);
    rules.extend(sibling(cell.beside, &json!({ "task": "s" }), "attempt"));
    let waits = cell.beside == Beside::Waits;
    let mut people = Vec::new();
    if waits {
        people
            .push(json!({ "when": { "question": "s" }, "after": "30m", "do": "answer", "answer": true, "by": "bob" }));
    }
    let calls = vec![
        json!({ "execute_worker": "s", "times": if waits { 2 } else { 1 } }),
        json!({ "execute_worker": "hold", "times": 1 }),
    ];
    let asks = Asks { kind: "approval", task: Some("t"), what: None, over: "330s" };
    Leaf {
        spec: with(base, spec),
        world: rules,
        people,
        calls,
        notes: Vec::new(),
        outcome: None,
        order_counts: false,
        asks,
    }
}

/// How a person answers what has an id.
struct Words {
    when: Value,
    right: Value,
    opposite: Value,
    wrong: Value,
    twice: &'static str,
    late: &'static str,
    stale: &'static str,
}

/// What the person does, in order.
fn acts(cell: Cell, words: Words) -> Vec<Value> {
    let Words { when, right, opposite, wrong, twice, late, stale } = words;
    let sent = |mut act: Value| {
        act["by"] = "ann".into();
        if cell.door == Door::Root {
            act["to"] = "root".into();
        }
        act
    };
    let named = |act: Value| with(act, json!({ "which": "t" }));
    let answered = || sent(with(right.clone(), json!({ "when": when, "after": "5m" })));
    match cell.answer {
        Answer::Approve | Answer::Reject | Answer::Edit => vec![answered()],
        Answer::Late => vec![sent(with(named(right), json!({ "at": "12m", "refused": late })))],
        Answer::Twice => vec![
            with(answered(), json!({ "answers": { "exists": true } })),
            sent(with(named(opposite), json!({ "at": "6m", "refused": twice }))),
        ],
        Answer::Stale => {
            let other = json!({ "at": "4m", "shown": "what was shown before", "refused": stale });
            vec![sent(with(named(right.clone()), other)), answered()]
        }
        Answer::Wrong => vec![with(wrong, json!({ "at": "4m" })), answered()],
    }
}

fn approval(cell: Cell) -> Leaf {
    let right = match cell.answer {
        Answer::Reject => json!({ "do": "reject", "comment": "too early" }),
        Answer::Edit => json!({ "do": "modify", "action": "publish the draft" }),
        _ => json!({ "do": "approve" }),
    };
    let nobodys = json!({ "approval_id": format!("{NOBODYS}/ap-1"), "approved": true, "approver": "eve" });
    let words = Words {
        when: json!({ "approval": "t" }),
        right,
        opposite: json!({ "do": "reject" }),
        wrong: json!({ "do": "update", "name": "respond_approval", "input": nobodys, "to": "leaf",
            "refused": "no approval of that id" }),
        twice: "decided already",
        late: "deadline of the approval has passed",
        stale: "another version of what was shown",
    };
    let task = json!({ "action": "publish", "requires_approval": true });
    let mut leaf = graph(cell, task, json!({ "hitl": { "approval": { "timeout": "10m" } } }), Vec::new());
    leaf.people.extend(acts(cell, words));
    let done = !matches!(cell.answer, Answer::Reject | Answer::Late);
    leaf.calls.push(json!({ "execute_worker": "t", "times": u8::from(done) }));
    leaf.calls.push(json!({ "execute_worker": "a", "times": if done { json!(1) } else { json!({ "at_most": 1 }) } }));
    leaf.notes = vec![
        json!({ "kind": "ApprovalRequested", "times": 1 }),
        json!({ "kind": "ApprovalDecided", "approved": done, "times": 1 }),
    ];
    leaf.asks.over = if cell.answer == Answer::Late { "11m" } else { "330s" };
    leaf
}

fn words_of_question(when: Value, right: Value, opposite: Value) -> Words {
    Words {
        when,
        right,
        opposite,
        wrong: json!({ "do": "update", "name": "respond_interrupt", "to": "leaf",
            "input": { "interrupt_id": format!("{NOBODYS}/in-1"), "resume": true }, "refused": "No interrupt with id" }),
        twice: "answered already",
        late: "was not answered in time",
        stale: "another version of what was shown",
    }
}

fn interrupt(cell: Cell) -> Leaf {
    let right = match cell.answer {
        Answer::Reject => json!({ "do": "answer", "answer": false }),
        Answer::Edit => json!({ "do": "answer", "answer": true, "state": { "cents": 5 } }),
        _ => json!({ "do": "answer", "answer": true }),
    };
    let words = words_of_question(json!({ "question": "t" }), right, json!({ "do": "answer", "answer": false }));
    let question = json!({ "on": "execute_worker", "task": "t", "attempt": 1,
        "say": { "interrupt": { "question": "Pay?", "timeout": "10m" } } });
    let mut leaf = graph(cell, json!({}), json!({}), vec![question]);
    leaf.asks = Asks {
        kind: "question",
        task: Some("t"),
        what: None,
        over: if cell.answer == Answer::Late { "11m" } else { "330s" },
    };
    leaf.people.extend(acts(cell, words));
    // Nobody goes on with an answer that did not come.
    let late = cell.answer == Answer::Late;
    leaf.calls.push(json!({ "execute_worker": "t", "times": if late { 1 } else { 2 } }));
    leaf.calls.push(json!({ "execute_worker": "a", "times": if late { json!({ "at_most": 1 }) } else { json!(1) } }));
    leaf.notes = vec![
        json!({ "kind": "InterruptRaised", "task": "t", "times": 1 }),
        json!({ "kind": "InterruptAnswered", "task": "t", "times": 1 }),
    ];
    leaf
}

/// A conversation in which two agents work at the same time, one of whom pauses.
fn conversation(cell: Cell, spec: Value, world: Vec<Value>) -> Leaf {
    let base = json!({
        "kind": "supervisor", "name": "leaf", "preset": "cuga-conversational", "objective": "The leaf",
        "delegation": { "timeout": "2h" },
        "agents": [
            { "name": "lead", "delegates": ["t", "s"], "timeout": "2h" },
            { "name": "t", "timeout": "2h", "tools": [{ "name": "pay" }] }, { "name": "s", "timeout": "2h" },
        ],
    });
    let both = json!([{ "name": "delegate_to_t", "args": { "task": "Ask" } }, { "name": "delegate_to_s", "args": { "task": "Beside" } }]);
    let mut rules = vec![
        json!({ "on": "execute_worker", "agent": "lead", "round": 1, "say": { "tool_calls": both } }),
        json!({ "on": "execute_worker", "agent": "lead", "after": "10m", "say": "All is done." }),
    ];
    rules.extend(world);
    let (s, question) =
        (json!({ "on": "execute_worker", "agent": "s" }), json!({ "interrupt": { "question": "And this?" } }));
    rules.extend(match cell.beside {
        Beside::Runs => vec![with(s, json!({ "after": "20m", "say": "done" }))],
        Beside::Waits => {
            vec![with(s.clone(), json!({ "round": 1, "say": question })), with(s, json!({ "say": "done" }))]
        }
        Beside::Failed => vec![with(s, json!({ "fail": { "message": "broken", "retryable": false } }))],
        Beside::Done => vec![with(s, json!({ "after": "1s", "say": "done" }))],
    });
    let waits = cell.beside == Beside::Waits;
    // Where a policy's question has a time, every question of the run has it.
    let timed = (cell.kind, cell.answer) == (Kind::Policy, Answer::Late);
    let bob = json!({ "when": { "question": "s" }, "after": if timed { "8m" } else { "30m" }, "do": "answer", "answer": "yes", "by": "bob" });
    let people = if waits { vec![bob] } else { Vec::new() };
    let calls = vec![json!({ "execute_worker": "s", "times": if waits { 2 } else { 1 } })];
    let asks = Asks {
        kind: "question",
        task: None,
        what: None,
        over: if cell.answer == Answer::Late { "11m" } else { "330s" },
    };
    Leaf {
        spec: with(base, spec),
        world: rules,
        people,
        calls,
        notes: Vec::new(),
        outcome: None,
        order_counts: false,
        asks,
    }
}

fn question(cell: Cell) -> Leaf {
    let right = match cell.answer {
        Answer::Reject => json!({ "do": "answer", "answer": "no" }),
        Answer::Edit => json!({ "do": "answer", "answer": "yes, but to Bergen" }),
        _ => json!({ "do": "answer", "answer": "yes" }),
    };
    let words = words_of_question(json!({ "question": "t" }), right, json!({ "do": "answer", "answer": "no" }));
    let asks = json!({ "interrupt": { "question": "To Oslo?", "timeout": "10m" } });
    let t = |more: Value| with(json!({ "on": "execute_worker", "agent": "t" }), more);
    let mut leaf =
        conversation(cell, json!({}), vec![t(json!({ "round": 1, "say": asks })), t(json!({ "say": "I go." }))]);
    leaf.people.extend(acts(cell, words));
    leaf.calls.push(json!({ "execute_worker": "t", "times": if cell.answer == Answer::Late { 1 } else { 2 } }));
    leaf.calls.push(json!({ "execute_worker": "lead", "times": 2 }));
    leaf.asks.what = Some("To Oslo?");
    leaf
}

fn policy(cell: Cell) -> Leaf {
    let answer = |approved: bool| json!({ "do": "answer", "answer": { "approved": approved } });
    let no = json!({ "do": "answer", "answer": { "approved": false, "feedback": "less" } });
    let right = match cell.answer {
        Answer::Reject => answer(false),
        Answer::Edit => no,
        _ => answer(true),
    };
    let words = words_of_question(json!({ "question": "t" }), right, answer(false));
    let t = |more: Value| with(json!({ "on": "execute_worker", "agent": "t" }), more);
    let world = vec![
        t(json!({ "with": { "tool": "pay" }, "say": "paid" })),
        t(json!({ "round": 1, "say": { "tool_calls": [{ "name": "pay", "args": { "cents": 5 } }] } })),
        t(json!({ "say": "It is paid." })),
    ];
    let mut rule =
        json!({ "policies": [{ "type": "tool_approval", "name": "Bank", "tools": ["pay"], "message": "Sure?" }] });
    if cell.answer == Answer::Late {
        rule["hitl"] = json!({ "questions": { "timeout": "10m" } });
    }
    let mut leaf = conversation(cell, rule, world);
    leaf.people.extend(acts(cell, words));
    let done = !matches!(cell.answer, Answer::Reject | Answer::Edit | Answer::Late);
    leaf.calls.push(json!({ "on": "execute_worker", "with": { "tool": "pay" }, "times": u8::from(done) }));
    leaf.outcome = (!done).then(|| json!({ "exists": true }));
    leaf.asks.what = Some("pay");
    leaf
}

/// An agent that is a run of its own, below the leaf.
fn tool(cell: Cell) -> Leaf {
    let right = match cell.answer {
        Answer::Reject => json!({ "do": "reject", "comment": "too dear" }),
        _ => json!({ "do": "approve" }),
    };
    let grant = json!({ "name": "pay", "approval": true, "attempts": 3, "parameters": { "type": "object" },
        "does": { "activity": { "activity_type": "bank" } } });
    let clerk = json!({ "name": "clerk", "model": "gpt", "via": { "model": { "tools": [grant] } } });
    let spec = json!({ "agents": [{ "name": "worker", "timeout": "2h" }, clerk] });
    let world = vec![
        json!({ "on": "bank", "say": { "paid": 5 } }),
        json!({ "on": "model", "contains": "a person said no", "after": "5m", "say": { "result": "It is not paid.", "confidence": 0.9 } }),
        json!({ "on": "model", "contains": "paid", "after": "5m", "say": { "result": "It was paid.", "confidence": 0.9 } }),
        json!({ "on": "model", "say": { "tool_calls": [{ "name": "pay", "args": { "cents": 5 } }] } }),
    ];
    let mut leaf = graph(cell, json!({ "agent": "clerk", "goal": "Settle" }), spec, world);
    let nobodys = json!({ "approval_id": format!("{NOBODYS}/a1"), "approved": true, "approver": "eve" });
    let words = Words {
        when: json!({ "approval": "pay" }),
        right,
        opposite: json!({ "do": "reject" }),
        wrong: json!({ "do": "update", "name": "respond_approval", "input": nobodys, "to": "leaf",
            "refused": "no approval of that id" }),
        twice: "decided already",
        late: "",
        stale: "another version of what was shown",
    };
    // An agent hears signals only: what it makes of them is seen in its calls; a run above it gives its word.
    let to_agent = |mut act: Value| {
        if let Some(own) = act.as_object_mut().filter(|own| !own.contains_key("to")) {
            own.remove("refused");
            own.remove("answers");
        }
        act
    };
    let acts = acts(cell, words).into_iter().map(|mut act| {
        if act["which"] == "t" {
            act["which"] = "pay".into();
        }
        to_agent(act)
    });
    leaf.people.extend(acts);
    leaf.calls.push(json!({ "on": "bank", "times": u8::from(cell.answer != Answer::Reject) }));
    leaf.calls.push(json!({ "on": "model", "times": 2 }));
    leaf.asks = Asks { kind: "tool", task: None, what: None, over: "330s" };
    leaf
}
