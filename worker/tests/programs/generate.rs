//! Arbitrary programs of the kitchen sink.
//!
//! Invariant: a program ends, or waits for a signal: loops are short, nested loops shorter, and a program that goes on as a
//! new run gives that run a program that does not. Every program is valid.

use proptest::collection::vec;
use proptest::prelude::*;
use serde_json::{Value, json};

/// Values that activities give, and signals bring.
pub(crate) fn values() -> impl Strategy<Value = Value> + Clone {
    prop_oneof![Just(json!(1)), Just(json!("x")), Just(json!({ "id": 7, "ok": true })), Just(Value::Null)]
}

/// A program of steps at most four levels deep. Which kinds of steps it has is drawn first (swarm).
pub(crate) fn arb_program() -> BoxedStrategy<Value> {
    let kinds = any::<u32>().no_shrink();
    kinds
        .prop_flat_map(|kinds| {
            let again = (steps(kinds, 2), prop::bool::weighted(0.3));
            (steps(kinds, 3), again).prop_map(|(mut steps, (next, goes_on))| {
                if goes_on {
                    steps.push(json!({ "continue_as_new": { "steps": next, "vars": { "x": "$x" } } }));
                }
                json!({ "vars": { "x": 0 }, "steps": steps })
            })
        })
        .boxed()
}

fn steps(kinds: u32, depth: u32) -> BoxedStrategy<Vec<Value>> {
    vec(step(kinds, depth), 1..4).boxed()
}

fn name() -> impl Strategy<Value = &'static str> + Clone {
    prop_oneof![Just("x"), Just("y")]
}

fn duration() -> impl Strategy<Value = &'static str> + Clone {
    prop_oneof![Just("1ms"), Just("1s"), Just("5s"), Just("1h")]
}

fn activity() -> BoxedStrategy<Value> {
    let kind = prop_oneof![Just("a"), Just("b"), Just("c")];
    let cancellation = prop_oneof![Just("try"), Just("wait"), Just("abandon")];
    (kind, name(), 1_u32..4, cancellation)
        .prop_map(|(kind, name, attempts, cancellation)| {
            json!({ "activity": { "type": kind, "input": { "x": "$x" }, "as": name, "start_to_close": "10s",
                    "heartbeat": "5s", "cancellation": cancellation,
                    "retry": { "maximum_attempts": attempts } } })
        })
        .boxed()
}

/// Steps without steps inside.
fn leaf(kinds: u32) -> BoxedStrategy<Value> {
    let mut all: Vec<(u32, BoxedStrategy<Value>)> = vec![(6, activity())];
    let mut add = |bit: u32, weight: u32, step: BoxedStrategy<Value>| {
        if kinds & (1 << bit) != 0 {
            all.push((weight, step));
        }
    };
    add(0, 3, duration().prop_map(|after| json!({ "timer": after })).boxed());
    let limit = prop_oneof![3 => Just(Some("30s")), 1 => Just(None)];
    add(
        1,
        3,
        (name(), limit)
            .prop_map(|(name, limit)| match limit {
                Some(limit) => json!({ "wait_signal": { "name": "go", "as": name, "timeout": limit } }),
                None => json!({ "wait_signal": { "name": "go", "as": name } }),
            })
            .boxed(),
    );
    add(2, 1, name().prop_map(|name| json!({ "drain_signals": { "name": "go", "as": name } })).boxed());
    add(3, 2, name().prop_map(|name| json!({ "side_effect": { "value": "$y", "as": name } })).boxed());
    add(4, 1, name().prop_map(|name| json!({ "random": name })).boxed());
    add(5, 1, name().prop_map(|name| json!({ "uuid": name })).boxed());
    add(6, 1, name().prop_map(|name| json!({ "now": name })).boxed());
    add(7, 1, Just(json!({ "upsert": { "Stage": "s", "Count": 3 } })).boxed());
    add(8, 1, Just(json!({ "memo": { "note": "$x" } })).boxed());
    add(9, 1, (name(), values()).prop_map(|(name, value)| json!({ "set": { name: value } })).boxed());
    add(10, 1, Just(json!({ "fail": { "type": "Bad", "message": "$x" } })).boxed());
    add(11, 1, Just(json!({ "return": "$x" })).boxed());
    add(12, 1, Just(json!({ "signal": { "workflow_id": "other", "name": "go", "input": "$x" } })).boxed());
    add(13, 1, Just(json!({ "cancel_workflow": { "workflow_id": "other", "reason": "r" } })).boxed());
    proptest::strategy::Union::new_weighted(all).boxed()
}

fn step(kinds: u32, depth: u32) -> BoxedStrategy<Value> {
    if depth == 0 {
        return leaf(kinds);
    }
    // Made once and shared: strategies of strategies would be thousands.
    let (inside, leaf) = (steps(kinds, depth - 1), leaf(kinds));
    let inside = || inside.clone();
    let leaf = |_: u32| leaf.clone();
    let mut all: Vec<(u32, BoxedStrategy<Value>)> = vec![(8, leaf(kinds))];
    let mut add = |bit: u32, weight: u32, step: BoxedStrategy<Value>| {
        if kinds & (1 << bit) != 0 {
            all.push((weight, step));
        }
    };
    add(16, 2, vec(inside(), 1..4).prop_map(|branches| json!({ "parallel": branches })).boxed());
    add(
        17,
        2,
        (vec(inside(), 1..3), name()).prop_map(|(b, name)| json!({ "race": { "branches": b, "as": name } })).boxed(),
    );
    let short = (1_u32..6, vec(leaf(kinds), 1..3)).prop_map(|(times, steps)| (times, steps));
    let nested = (1_u32..3, inside());
    add(
        18,
        2,
        prop_oneof![short, nested]
            .prop_map(|(times, steps)| json!({ "loop": { "times": times, "as": "i", "steps": steps } }))
            .boxed(),
    );
    add(
        19,
        1,
        (inside(), inside())
            .prop_map(|(a, b)| json!({ "if": { "var": "x", "equals": 1, "then": a, "else": b } }))
            .boxed(),
    );
    add(
        20,
        2,
        (inside(), inside(), vec(leaf(kinds), 0..2))
            .prop_map(|(steps, catch, always)| json!({ "try": { "steps": steps, "catch": catch, "as": "e", "always": always } }))
            .boxed(),
    );
    let pair = (inside(), vec(leaf(kinds), 1..3)).prop_map(|(act, undo)| json!({ "do": act, "undo": undo }));
    add(21, 2, vec(pair, 1..3).prop_map(|pairs| json!({ "saga": pairs })).boxed());
    let id = prop_oneof![Just("p1"), Just("p2")];
    add(
        22,
        2,
        (id, inside(), inside())
            .prop_map(|(id, new, old)| json!({ "patch": { "id": id, "new": new, "old": old } }))
            .boxed(),
    );
    let policy = prop_oneof![Just("terminate"), Just("abandon"), Just("request_cancel")];
    add(
        23,
        3,
        (inside(), policy, any::<bool>(), any::<bool>())
            .prop_map(|(steps, policy, wait, known)| {
                let input = json!({ "steps": steps });
                let (kind, input) = if known { ("kitchen-sink", input) } else { ("elsewhere", Value::Null) };
                json!({ "child": { "type": kind, "input": input, "as": "c", "close_policy": policy, "wait": wait } })
            })
            .boxed(),
    );
    proptest::strategy::Union::new_weighted(all).boxed()
}
