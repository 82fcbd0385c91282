//! What open runs below a run have spent: its account hears of it when they end, and holds it for them until then.
//!
//! Invariant: an account is shown with that in it wherever one run is shown, so that a budget and the sum of the calls say the
//! same (tables of many runs show what each has heard of);
//! what a run below cannot say now counts as nothing. It reads, and changes nothing of a run.

use bosun_engine::*;
use serde_json::{Value, json};

use super::below::below;
use crate::agent::AGENT;
use crate::api::people::ask;
use crate::backend::Backend;
use crate::supervisor::PLAN_RUN;
use crate::supervisor::run::SUPERVISOR;

/// What is counted, and by which names: an agent counts its model calls as steps.
const COUNTED: [(&str, &[&str]); 4] = [
    ("tokens", &["tokens"]),
    ("cost_micros", &["cost_micros"]),
    ("calls", &["calls", "steps"]),
    ("unpriced_calls", &["unpriced_calls"]),
];

/// What a run answers to `budget`, as [`whole`] makes it; nothing where it cannot say.
pub(crate) async fn budget_of(backend: &dyn Backend, target: &Target) -> Value {
    whole(backend, target, ask(backend, target, "budget").await).await
}

/// The budget of a supervisor with what open runs below it have spent: it is spent, and no more held for them nor left.
pub(crate) async fn whole(backend: &dyn Backend, target: &Target, mut budget: Value) -> Value {
    if !budget["lent"].is_object() {
        // An agent has those below it in its own sum.
        return budget;
    }
    let Ok(runs) = below(backend, target.clone(), |workflow_type| workflow_type.as_str() != AGENT).await else {
        return budget;
    };
    let mut sums = [0_u64; COUNTED.len()];
    let counts = |run: &str| [AGENT, SUPERVISOR, PLAN_RUN].contains(&run);
    for run in runs.runs.iter().skip(1).filter(|run| run.open && counts(run.workflow_type.as_str())) {
        let answer = ask(backend, &run.target, "budget").await;
        for (sum, (key, names)) in sums.iter_mut().zip(COUNTED) {
            *sum = sum.saturating_add(counted(&answer, key, names));
        }
    }
    for (more, (key, _)) in sums.into_iter().zip(COUNTED).filter(|(more, _)| *more > 0) {
        put_in(&mut budget, key, more);
    }
    budget
}

/// What one run below has spent of something.
fn counted(answer: &Value, key: &str, names: &[&str]) -> u64 {
    let found =
        names.iter().find_map(|name| answer["spent"][*name].as_u64().or_else(|| answer[*name].as_u64())).unwrap_or(0);
    // A run below counts as one call from its start on.
    if key == "calls" { found.saturating_sub(1) } else { found }
}

fn put_in(budget: &mut Value, key: &str, more: u64) {
    budget["below"][key] = json!(more);
    budget["spent"][key] = json!(budget["spent"][key].as_u64().unwrap_or(0).saturating_add(more));
    for part in ["lent", "left"] {
        if let Some(amount) = budget[part][key].as_u64() {
            budget[part][key] = json!(amount.saturating_sub(more));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As the account has it when the run below ends: the call that asked for it is one of those that it made.
    #[test]
    fn the_call_that_began_a_run_is_not_counted_twice() {
        let agent = json!({ "spent": { "steps": 3, "tokens": 20 } });
        let run = json!({ "spent": { "calls": 0 } });
        assert_eq!(
            (counted(&agent, "calls", &["calls", "steps"]), counted(&run, "calls", &["calls", "steps"])),
            (2, 0)
        );
        assert_eq!(counted(&agent, "tokens", &["tokens"]), 20);
    }

    #[test]
    fn what_runs_below_have_spent_is_spent_and_no_more_held() {
        let mut budget = json!({ "spent": { "tokens": 5 }, "lent": { "tokens": 40, "cost_micros": null },
            "left": { "tokens": 95, "cost_micros": null } });
        put_in(&mut budget, "tokens", 30);
        put_in(&mut budget, "cost_micros", 7);
        let wanted = json!({ "spent": { "tokens": 35, "cost_micros": 7 }, "lent": { "tokens": 10, "cost_micros": null },
            "left": { "tokens": 65, "cost_micros": null }, "below": { "tokens": 30, "cost_micros": 7 } });
        assert_eq!(budget, wanted);
    }
}
