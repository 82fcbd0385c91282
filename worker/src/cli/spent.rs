//! A wait for more budget, in words and with the command that gives it: what the run told when it paused is not what stands
//! now, and a placeholder cannot be pasted.
//!
//! Invariant: only entries of a pause for want of budget are changed, and by what the run says of its budget now; one that
//! cannot be asked stays as it was told. The command gives as much again as was allowed, beyond what is overspent.

use bosun_engine::*;
use serde_json::{Value, json};

use super::budget::dollars;
use super::list::run_word;
use super::spent_below::whole;
use crate::backend::Backend;
use crate::supervisor::spec::Money;
use crate::top_up::MoreBudget;

/// The command that gives more; whoever reads it reads the kind of the wait off it.
pub(crate) const TOP_UP: &str = "bosun budget top-up ";

/// The entries of a query `waiting` (or of `progress`), as the budgets of the runs that they are about stand now.
pub(crate) async fn as_it_stands(backend: &dyn Backend, namespace: &Namespace, entries: &mut [Value]) {
    for entry in entries {
        let told_command = entry["answer"].as_str().is_some_and(|answer| answer.starts_with(TOP_UP));
        if entry["kind"] != "pause" || !(entry["whom"] == "budget" || told_command) {
            continue;
        }
        let Some(id) = entry["run"].as_str().or(entry["id"].as_str()).map(str::to_owned) else { continue };
        let Ok(workflow_id) = WorkflowId::new(&id) else { continue };
        let target = Target { namespace: namespace.clone(), ..Target::workflow(workflow_id) };
        let Ok(budget) = backend.query(target.clone(), QueryName::of("budget"), Payload::null()).await else {
            continue;
        };
        let budget = whole(backend, &target, budget.to_json()).await;
        let now = if told_command { of_agent(&id, &budget) } else { of_supervisor(&id, &budget) };
        if let Some((what, answer)) = now {
            (entry["whom"], entry["what"], entry["answer"]) = ("a person".into(), what.into(), answer.into());
        }
    }
}

/// What a supervisor that its budget has paused waits for, and the command.
fn of_supervisor(id: &str, budget: &Value) -> Option<(String, String)> {
    let wants_leave = budget["wants_leave"] == true;
    if budget["used_up"].is_null() && !wants_leave && was_raised(budget) {
        let what = "to be resumed: its budget was spent, and has been raised since".to_owned();
        return Some((what, format!("bosun resume {}", run_word(id))));
    }
    // Nothing has to be used up: what is left may be too little for what comes next.
    let limited = [("tokens", "tokens"), ("cost_micros", "cost"), ("calls", "calls")];
    let scarce = limited.into_iter().find(|(key, _)| budget["allowed"][key].is_u64()).map(|(_, word)| word);
    let used_up = budget["used_up"].as_str().or(wants_leave.then_some("unpriced")).or(scarce)?;
    let of = |key: &str| CountedSum {
        allowed: budget["allowed"][key].as_u64(),
        spent: budget["spent"][key].as_u64().unwrap_or_default(),
        held: budget["lent"][key].as_u64().unwrap_or_default(),
    };
    let (what, flag) = match used_up {
        "calls" => counted(of("calls"), "calls"),
        "tokens" => counted(of("tokens"), "tokens"),
        "cost" => cost(of("cost_micros")),
        "unpriced" => unpriced(),
        _ => return None,
    }?;
    Some((what, format!("{TOP_UP}{} {flag}", run_word(id))))
}

/// Whether people have given it more than its spec says.
fn was_raised(budget: &Value) -> bool {
    let cost = serde_json::from_value::<Money>(budget["limits"]["cost"].clone()).ok().map(Money::as_micros);
    let more = |key: &str, limit: Option<u64>| budget["allowed"][key].as_u64() > limit;
    let limits = &budget["limits"];
    more("tokens", limits["tokens"].as_u64())
        || more("calls", limits["llm_calls"].as_u64())
        || more("cost_micros", cost)
        || (budget["allowed"]["unpriced"] == true && limits["allow_unpriced"] != true)
}

/// What an agent that has halted for its own budget waits for, and the command.
pub(crate) fn of_agent(id: &str, budget: &Value) -> Option<(String, String)> {
    let of = |cap: &str| CountedSum {
        allowed: budget["caps"][cap].as_u64(),
        spent: budget["spent"][cap].as_u64().unwrap_or_default(),
        held: 0,
    };
    let (what, flag) = match budget["halted"]["budget"]["resource"].as_str()? {
        "steps" => counted(of("steps"), "calls"),
        "tool_calls" => counted(of("tool_calls"), "calls"),
        "tokens" => counted(of("tokens"), "tokens"),
        "cost" => cost(of("cost_micros")),
        "wall" => Some(("more time: its wall time is used up".to_owned(), "--wall 10m".to_owned())),
        "unpriced" => unpriced(),
        _ => None,
    }?;
    Some((what, format!("{TOP_UP}{} {flag}", run_word(id))))
}

/// What an agent waits for whose supervisor has no share of the run's budget free for it now.
pub(crate) fn share(halted: &Value) -> Option<String> {
    let share = &halted["share"];
    let wanted = share["wanted"].as_u64()?;
    let what = match share["resource"].as_str()? {
        "cost" => dollars(wanted),
        "tokens" => format!("{wanted} tokens"),
        "unpriced" => return Some("leave of the run to go on with calls whose price is not known".to_owned()),
        other => format!("{wanted} {}", other.replace('_', " ")),
    };
    Some(format!("its share of the run's budget: {what}, when others give back what they do not need"))
}

type Told = Option<(String, String)>;

/// What may be spent of one thing, what is, and what runs below have in hand.
struct CountedSum {
    allowed: Option<u64>,
    spent: u64,
    held: u64,
}

impl CountedSum {
    /// As much again as was allowed, beyond what more than that is gone already: with less it would stand still again at once.
    fn offered(&self, allowed: u64) -> u64 {
        let gone = self.spent.saturating_add(self.held);
        allowed.max(1).saturating_add(gone.saturating_sub(allowed))
    }

    fn told(&self, allowed: u64, amount: fn(u64) -> String, of: &str) -> String {
        let held = if self.held == 0 {
            String::new()
        } else {
            format!(", {} more are held for runs below", amount(self.held))
        };
        let (spent, allowed) = (amount(self.spent), amount(allowed));
        format!("more budget: {spent} of {allowed}{of} are spent{held}, and what comes next needs more")
    }
}

fn counted(sum: CountedSum, of: &str) -> Told {
    let allowed = sum.allowed?;
    Some((
        sum.told(allowed, |amount| amount.to_string(), &format!(" {of}")),
        format!("--{of} {}", sum.offered(allowed)),
    ))
}

fn unpriced() -> Told {
    let what = "a model whose price is not known to be allowed: its budget is one of money".to_owned();
    Some((what, "--allow-unpriced".to_owned()))
}

fn cost(sum: CountedSum) -> Told {
    let allowed = sum.allowed?;
    let flag = format!("--cost {}", dollars(sum.offered(allowed)).trim_start_matches('$'));
    Some((sum.told(allowed, dollars, ""), flag))
}

/// Whether what is used up of a supervisor's budget stays so with this much more of it.
pub(crate) fn stays_used_up(budget: &Value, more: &MoreBudget) -> bool {
    let (key, added) = match budget["used_up"].as_str() {
        Some("calls") => ("calls", more.calls),
        Some("tokens") => ("tokens", more.tokens),
        Some("cost") => ("cost_micros", more.cost_micros),
        Some("unpriced") => return !more.allow_unpriced,
        _ => return false,
    };
    let of = |part: &str| budget[part][key].as_u64().unwrap_or_default();
    of("spent").saturating_add(of("lent")) >= of("allowed").saturating_add(added.unwrap_or_default())
}

/// Whether its own budget is what pauses a supervisor, by what it answers to `waiting`.
pub(crate) fn pauses(entries: &Value) -> bool {
    let own = |one: &Value| one["kind"] == json!("pause") && one["whom"] == json!("budget") && one["run"].is_null();
    entries.as_array().into_iter().flatten().any(own)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is offered lets the run go on: what was overspent is no longer lacking with it.
    #[test]
    fn the_command_gives_what_is_overspent_too() {
        let budget = json!({ "used_up": "cost", "allowed": { "cost_micros": 5_000, "tokens": 100 },
            "spent": { "cost_micros": 10_000, "tokens": 350 }, "lent": { "cost_micros": 0 } });
        let (_, command) = of_supervisor("bud2", &budget).unwrap();
        assert_eq!(command, "bosun budget top-up bud2 --cost 0.010000");
        let give = |cost_micros| MoreBudget { cost_micros, ..MoreBudget::default() };
        assert!(stays_used_up(&budget, &give(Some(5_000))) && stays_used_up(&budget, &give(None)));
        assert!(!stays_used_up(&budget, &give(Some(10_000))));
        let tokens = json!({ "halted": { "budget": { "resource": "tokens" } }, "caps": { "tokens": 100 }, "spent": { "tokens": 350 } });
        let (_, command) = of_agent("-ann", &tokens).unwrap();
        assert_eq!(command, "bosun budget top-up -w=-ann --tokens 350");
    }
}
