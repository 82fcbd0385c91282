//! What a run costs, and what it may: `cost`, `budget show`, `budget top-up`.
//!
//! Invariant: figures are the agents' own queries and the answers in the histories of who asks models itself, added up over
//! the runs below; a price that is not known is said to be
//! unknown and never counted as 0. What gives a run more is its own signal, kept also while no worker runs.

use std::time::Duration;

use bosun_engine::*;
use clap::{Args, Subcommand, ValueEnum};
use serde_json::{Value, json};

use super::args::RunOf;
use super::below::below;
use super::bill::{ModelTotal, RunBill};
use super::budget_text;
use super::context::Context;
use super::error::CliError;
use super::exit::Exit;
use super::list::run_word;
use super::resolve::run_of;
use super::spent_below::whole;
use super::supervise::ask;
use super::time_format::parse_duration;
use crate::agent::AGENT;
use crate::supervisor::run::SUPERVISOR;
use crate::top_up::{MoreBudget, NoTopUp, ToppedUp};

#[derive(Debug, Subcommand)]
pub enum BudgetVerb {
    /// Show how much of a run's budget is spent, reserved and left.
    Show {
        #[command(flatten)]
        run: RunOf,
    },
    /// Give a supervisor or an agent more budget. A run that was paused because its budget was spent goes on; if an agent's own
    /// budget paused it, `bosun resume` it as well.
    TopUp(TopUpArgs),
}

#[derive(Debug, Args)]
pub struct CostArgs {
    #[command(flatten)]
    pub run: RunOf,
    /// What to add up costs by.
    #[arg(long, value_name = "WHAT", default_value = "model")]
    pub group_by: CostGroup,
}

/// What costs are added up by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum CostGroup {
    /// The models that were asked.
    Model,
    /// The runs that asked them: the run itself, and those below it.
    Run,
    /// The agents that asked them, each with all of its runs; what a supervisor asked for itself is its own.
    Agent,
}

#[derive(Debug, Args)]
pub struct TopUpArgs {
    #[command(flatten)]
    pub run: RunOf,
    /// How many tokens to add.
    #[arg(long, value_name = "N", value_parser = more, allow_negative_numbers = true)]
    pub tokens: Option<u64>,
    /// How many dollars to add, for example 0.50.
    #[arg(long, value_name = "USD", value_parser = micros, allow_negative_numbers = true)]
    pub cost: Option<u64>,
    /// How many calls of models and tools to add.
    #[arg(long, value_name = "N", value_parser = more, allow_negative_numbers = true)]
    pub calls: Option<u64>,
    /// How much time to add, for example 30m.
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    pub wall: Option<Duration>,
    /// Allow calls whose price is not known.
    #[arg(long)]
    pub allow_unpriced: bool,
}

/// What a budget gets more of: nothing is taken away again.
fn more(text: &str) -> Result<u64, String> {
    match text.parse() {
        Ok(0) => Err("a top-up adds at least 1".to_owned()),
        Ok(number) => Ok(number),
        Err(_) if text.starts_with('-') => {
            Err("a top-up adds, and takes nothing away: expected a whole number".to_owned())
        }
        Err(_) => Err("expected a whole number".to_owned()),
    }
}

/// Dollars with at most six decimals, as millionths.
pub(crate) fn micros(text: &str) -> Result<u64, String> {
    let (whole, part) = text.split_once('.').unwrap_or((text, "0"));
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if !digits(whole) || !digits(part) || part.len() > 6 {
        return Err("expected dollars such as 2 or 0.50, with at most six decimals".to_owned());
    }
    let whole = whole.parse::<u64>().ok().and_then(|whole| whole.checked_mul(1_000_000));
    let part = format!("{part:0<6}").parse::<u64>().ok();
    whole.zip(part).and_then(|(whole, part)| whole.checked_add(part)).ok_or_else(|| "too much money".to_owned())
}

pub(super) fn dollars(micros: u64) -> String {
    format!("${}.{:06}", micros / 1_000_000, micros % 1_000_000)
}

pub(super) async fn cost(cx: &mut Context, args: CostArgs) -> Result<Exit, CliError> {
    let target = run_of(cx, &args.run).await?;
    let runs = below(&*cx.backend, target.clone(), |workflow_type| workflow_type.as_str() != AGENT).await?;
    let mut bill = RunBill { cut: runs.cut, ..RunBill::default() };
    for run in &runs.runs {
        let (before, _) = bill.totals();
        match run.workflow_type.as_str() {
            AGENT => bill.agent(cx, &run.target).await?,
            _ => bill.steps(cx, run).await?,
        }
        let more = bill.totals().0.less(&before);
        bill.of_run(cx, run, more).await;
    }
    if runs.runs.first().is_some_and(|run| run.workflow_type.as_str() == SUPERVISOR) {
        let budget = ask(cx, &target, "budget", &Value::Null).await?;
        let spent = whole(&*cx.backend, &target, budget).await["spent"].take();
        let of = |key: &str| spent[key].as_u64().unwrap_or_default();
        bill.unpriced = bill.unpriced.max(of("unpriced_calls"));
        bill.account = Some(ModelTotal { calls: of("calls"), tokens: of("tokens"), cost_micros: of("cost_micros") });
    }
    show_cost(cx, &target, &bill, args.group_by);
    Ok(Exit::Ok)
}

fn show_cost(cx: &mut Context, target: &Target, bill: &RunBill, by: CostGroup) {
    let RunBill { models, unpriced, cut, .. } = bill;
    let (by_models, all) = bill.totals();
    let others = all.less(&by_models);
    let by_model: serde_json::Map<String, Value> =
        models.iter().map(|(model, sum)| (model.clone(), sum.json())).collect();
    let of_run = |(id, sum): &(WorkflowId, ModelTotal)| {
        let mut told = sum.json();
        told["workflow_id"] = id.as_str().into();
        told
    };
    let by_run: Vec<Value> = bill.runs.iter().map(of_run).collect();
    let by_agent: serde_json::Map<String, Value> =
        bill.agents.iter().map(|(name, sum)| (name.clone(), sum.json())).collect();
    let ModelTotal { calls, tokens, cost_micros } = &all;
    cx.screen.object(
        "workflow.cost",
        json!({ "workflow_id": target.workflow_id, "calls": calls, "tokens": tokens, "cost_micros": cost_micros,
            "unpriced_calls": unpriced, "by_model": by_model, "by_run": by_run, "by_agent": by_agent, "others": others.json(), "incomplete": cut }),
    );
    if *calls == 0 {
        let what = if bill.account.is_some() { "nothing" } else { "no model" };
        cx.screen.line(format!("{what} was called: 0 calls, 0 tokens, {}", dollars(*cost_micros)));
        return;
    }
    match by {
        CostGroup::Model => models.iter().for_each(|(model, sum)| cx.screen.line(sum.line(model))),
        CostGroup::Run => {
            let asked = bill.runs.iter().filter(|(_, sum)| sum.calls > 0);
            asked.for_each(|(id, sum)| cx.screen.line(sum.line(id.as_str())));
        }
        CostGroup::Agent => {
            let asked = bill.agents.iter().filter(|(_, sum)| sum.calls > 0);
            asked.for_each(|(name, sum)| cx.screen.line(sum.line(name)));
        }
    }
    if !others.is_nothing() {
        cx.screen.line(others.line("no model (scripts, programs)"));
    }
    let unknown = if *unpriced > 0 { format!(", and {unpriced} calls of unknown price") } else { String::new() };
    cx.screen.line(format!("in all {calls} calls, {tokens} tokens, {}{unknown}", dollars(*cost_micros)));
    if *cut {
        cx.screen.line("incomplete: there are more runs below than were looked at".to_owned());
    }
}

pub(super) async fn budget(cx: &mut Context, verb: BudgetVerb) -> Result<Exit, CliError> {
    match verb {
        BudgetVerb::Show { run } => {
            let target = run_of(cx, &run).await?;
            let budget = ask(cx, &target, "budget", &Value::Null).await?;
            let budget = whole(&*cx.backend, &target, budget).await;
            cx.screen.object("budget.show", json!({ "workflow_id": target.workflow_id, "budget": budget }));
            budget_text::show(&mut cx.screen, &budget)?;
            Ok(Exit::Ok)
        }
        BudgetVerb::TopUp(args) => top_up(cx, args).await,
    }
}

/// Why nothing was given, in the words of the command line.
fn refused(why: NoTopUp) -> CliError {
    const BELOW: &str = "`bosun list` shows the agents below a supervisor, by its run id";
    match why {
        NoTopUp::Nothing => {
            CliError::usage("say what there is more of: --tokens, --cost, --calls, --wall or --allow-unpriced")
        }
        NoTopUp::ForAgents => CliError::usage(
            "a supervisor is given --tokens, --cost, --calls and --allow-unpriced; --wall is for agents",
        ),
        why @ NoTopUp::HasNone(_) => CliError::usage(why.to_string()).help(BELOW),
        NoTopUp::NotLimited(ref id, _) => {
            let help = format!("`bosun budget show {}` shows what it has a budget of", run_word(id.as_str()));
            CliError::usage(why.to_string()).help(help)
        }
        NoTopUp::Call(why) => why.into(),
    }
}

async fn top_up(cx: &mut Context, args: TopUpArgs) -> Result<Exit, CliError> {
    let target = run_of(cx, &args.run).await?;
    let wall_ms = args.wall.map(|wall| u64::try_from(wall.as_millis()).unwrap_or(u64::MAX));
    let TopUpArgs { tokens, cost: cost_micros, calls, allow_unpriced, .. } = args;
    let more = MoreBudget { tokens, cost_micros, calls, wall_ms, allow_unpriced };
    let done = crate::top_up::top_up(&*cx.backend, &target, &more, (Some(&cx.identity), None)).await;
    let ToppedUp { info, resumed, too_little } = done.map_err(refused)?;
    let told = json!({ "workflow_id": target.workflow_id, "more": more.told(), "resumed": resumed });
    cx.screen.object("budget.top_up", told);
    let and = match (resumed, too_little) {
        (true, false) => ", and goes on",
        (true, true) => ", and is tried again: what is spent is still all that it may",
        (false, _) => "",
    };
    cx.screen.line(format!("{} has more{and}", target.workflow_id));
    match info.parent {
        Some(parent) if info.workflow_type.as_str() == AGENT => {
            cx.screen.next(&format!("bosun resume {}", run_word(parent.workflow_id.as_str())));
        }
        _ => cx.screen.next(&format!("bosun result {}", run_word(target.workflow_id.as_str()))),
    }
    Ok(Exit::Ok)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dollars_are_read_and_written_exactly() {
        for (text, expected) in [("2", 2_000_000), ("0.50", 500_000), ("0.000001", 1), ("12.345678", 12_345_678)] {
            assert_eq!(micros(text), Ok(expected), "{text}");
        }
        for bad in ["", ".5", "1.", "-1", "1e3", "0.0000001", "1,5", "99999999999999999999"] {
            assert!(micros(bad).is_err(), "{bad}");
        }
        assert_eq!(dollars(1_000_001), "$1.000001");
    }
}
