//! Kitchen-sink programs made from a seed: any mix of steps, nested, that ends by itself.
//!
//! Invariant: a seed always gives the same program; no program waits for something that does not come.

use serde_json::{Value, json};

/// A small generator (splitmix64), so that no other version of a crate can change the programs.
struct Seed(u64);

impl Seed {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % limit
    }
}

/// The steps of a seed.
pub(super) fn program(seed: u64) -> Value {
    let mut seed = Seed(seed);
    let mut steps = some(&mut seed, 2, 5);
    steps.push(json!({ "return": { "a": "$a", "b": "$b", "n": "$n" } }));
    json!({ "steps": steps, "vars": { "a": seed.below(100), "who": "ada" } })
}

/// The steps of a seed for the state machine.
pub(super) fn machine_program(seed: u64) -> Value {
    let mut seed = Seed(seed ^ 0x5eed);
    let count = 3 + seed.below(8);
    (0..count).map(|place| machine_step(&mut seed, place)).collect()
}

fn machine_step(seed: &mut Seed, place: u64) -> Value {
    let n = seed.below(1_000);
    match seed.below(8) {
        0 | 1 => json!({ "activity": { "name": "echo", "input": { "n": n }, "attempts": 1 } }),
        2 => {
            let input = json!({ "times": n % 3, "value": n });
            json!({ "activity": { "name": "fail_n_times", "input": input, "attempts": 4 } })
        }
        3 => json!({ "timer": { "seconds": n } }),
        4 => json!({ "side_effect": { "value": n } }),
        5 => json!({ "random": null }),
        6 => json!({ "patch": { "id": format!("p{n}") } }),
        _ => {
            let id = format!("machine-inner-{}-{place}", seed.0 % 100_000);
            json!({ "child": { "id": id, "steps": [{ "timer": { "seconds": n } }, { "note": { "text": "x" } }] } })
        }
    }
}

fn some(seed: &mut Seed, depth: u32, most: u64) -> Vec<Value> {
    let count = 1 + seed.below(most);
    (0..count).map(|_| step(seed, depth)).collect()
}

// long: one arm a kind of step.
fn step(seed: &mut Seed, depth: u32) -> Value {
    let kinds = if depth == 0 { 13 } else { 21 };
    let n = seed.below(1_000);
    match seed.below(kinds) {
        0 | 1 => json!({ "activity": { "type": "echo", "input": { "n": n, "a": "$a" }, "as": "b" } }),
        2 => {
            let fails = json!({ "times": seed.below(3), "value": n });
            json!({ "activity": { "type": "fail_n_times", "input": fails, "as": "a", "retry": { "maximum_attempts": 4 } } })
        }
        3 => json!({ "timer": format!("{}s", 1 + n) }),
        4 => json!({ "timer": { "for": format!("{}m", 1 + n % 60), "summary": format!("pause {n}") } }),
        5 => json!({ "side_effect": { "value": { "n": n }, "as": "n" } }),
        6 => json!({ "random": "n" }),
        7 => json!({ "uuid": "b" }),
        8 => json!({ "now": "n" }),
        9 => json!({ "set": { "a": n, "b": ["$a", "$who"] } }),
        10 => json!({ "upsert": { "n": n, "tags": ["x", format!("t{}", n % 5)], "on": n.is_multiple_of(2) } }),
        11 => json!({ "memo": { "note": { "n": n } } }),
        12 => json!({ "wait_signal": { "name": "never", "as": "n", "timeout": format!("{}s", 1 + n % 30) } }),
        13 | 14 => {
            let branches: Vec<Value> = (0..2 + seed.below(2)).map(|_| some(seed, depth - 1, 2).into()).collect();
            json!({ "parallel": branches })
        }
        15 => {
            let branches: Vec<Value> = (0..2).map(|_| some(seed, depth - 1, 2).into()).collect();
            json!({ "race": { "branches": branches, "as": "n" } })
        }
        16 => json!({ "loop": { "times": 1 + n % 3, "as": "n", "steps": some(seed, depth - 1, 2) } }),
        17 => {
            let mut steps = some(seed, depth - 1, 2);
            steps.push(json!({ "fail": { "type": "Oops", "message": "as asked" } }));
            json!({ "try": { "steps": steps, "catch": some(seed, depth - 1, 2), "as": "why", "always": [{ "set": { "b": n } }] } })
        }
        18 => json!({ "patch": { "id": format!("p{n}"), "new": some(seed, depth - 1, 2), "old": [] } }),
        19 => {
            let undo = json!([{ "activity": { "type": "echo", "input": { "undo": n } } }]);
            let saga = json!([
                { "do": some(seed, depth - 1, 2), "undo": undo },
                { "do": [{ "fail": { "type": "Planned" } }], "undo": [] }
            ]);
            json!({ "try": { "steps": [{ "saga": saga }], "catch": [], "as": "why" } })
        }
        _ => {
            let steps = some(seed, depth - 1, 2);
            json!({ "child": { "input": { "steps": steps, "vars": { "a": n } }, "as": "b" } })
        }
    }
}
