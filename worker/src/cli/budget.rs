//! What a run costs, and what it may: `cost`, `budget show`, `budget top-up`.
//!
//! Invariant: figures are the agents' own queries and the answers in the histories of who asks models itself, added up over
//! the runs below; a price that is not known is said to be
//! unknown and never counted as 0. What gives a run more is its own signal, kept also while no worker runs.

use std::collections::BTreeMap;
use std::time::Duration;

use bosun_engine::*;
use clap::{Args, Subcommand, ValueEnum};
use futures_util::StreamExt;
use serde_json::{Value, json};

use super::args::RunOf;
use super::below::{ChildRun, below};
use super::budget_text;
use super::context::Context;
use super::error::CliError;
use super::exit::Exit;
use super::explain::Code;
use super::list::run_word;
use super::resolve::run_of;
use super::spent_below::whole;
use super::supervise::ask;
use super::time_format::parse_duration;
use crate::agent::AGENT;
use crate::capability::model::{MODEL, ModelOutput};
use crate::supervisor::PLAN_RUN;
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

/// Calls of one model.
#[derive(Debug, Default)]
struct ModelTotal {
    calls: u64,
    tokens: u64,
    cost_micros: u64,
}

/// All that was counted of a run and those below it.
#[derive(Debug, Default)]
struct RunBill {
    models: BTreeMap<String, ModelTotal>,
    /// In the order in which the runs were looked at: a run before those below it.
    runs: Vec<(WorkflowId, ModelTotal)>,
    /// By the name of who asked: an agent's, or the type of a run that asked for itself.
    agents: BTreeMap<String, ModelTotal>,
    /// What the account of a supervisor says that it spent, with all below it: what `budget show` shows.
    account: Option<ModelTotal>,
    /// Calls of which nobody knows what they cost, whoever made them.
    unpriced: u64,
    /// There are more runs below than were looked at.
    cut: bool,
}

impl RunBill {
    fn add(&mut self, model: &str, sum: ModelTotal) {
        self.models.entry(model.to_owned()).or_default().add(&sum);
    }

    /// What a run of an agent has asked belongs to the agent; of another run each call says for whom it was.
    async fn of_run(&mut self, cx: &Context, run: &ChildRun, more: ModelTotal) {
        if run.workflow_type.as_str() == AGENT {
            let state = ask(cx, &run.target, "state", &Value::Null).await.unwrap_or_default();
            let name = state["name"].as_str().unwrap_or(AGENT);
            self.agents.entry(name.to_owned()).or_default().add(&more);
        }
        self.runs.push((run.target.workflow_id.clone(), more));
    }

    /// An agent counts what those below it spent.
    async fn agent(&mut self, cx: &Context, target: &Target) -> Result<(), CliError> {
        let spent = ask(cx, target, "cost", &Value::Null).await?;
        self.unpriced += spent["unpriced_calls"].as_u64().unwrap_or_default();
        for (model, tally) in spent["by_model"].as_object().into_iter().flatten() {
            let of = |key: &str| tally[key].as_u64().unwrap_or_default();
            self.add(model, ModelTotal { calls: of("calls"), tokens: of("tokens"), cost_micros: of("cost_micros") });
        }
        Ok(())
    }

    /// A run that asks models itself has their answers in its history.
    async fn steps(&mut self, cx: &Context, run: &ChildRun) -> Result<(), CliError> {
        let mut events = cx.backend.events(run.target.clone(), EventId(1), false);
        let mut asked = BTreeMap::new();
        while let Some(event) = events.next().await {
            match event?.kind {
                EventKind::ActivityTaskScheduled(task) if task.activity_type.as_str() == MODEL => {
                    let who = asker(run, task.options.summary.as_deref().unwrap_or_default());
                    asked.insert(task.seq, who);
                }
                EventKind::ActivityTaskCompleted { seq, result, .. } => {
                    let Some(who) = asked.remove(&seq) else { continue };
                    let read =
                        |why| CliError::new(Code::Failed, format!("the answer of model call {}", seq.0)).cause(why);
                    self.step(&result.decode().map_err(read)?, who);
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn step(&mut self, output: &ModelOutput, who: String) {
        let (calls, tokens, micros) = output.paid();
        if micros.is_none() {
            self.unpriced += calls;
        }
        let sum = ModelTotal { calls, tokens, cost_micros: micros.unwrap_or(0) };
        self.agents.entry(who).or_default().add(&sum);
        self.add(&output.response.model, sum);
    }
}

/// For whom a run has asked a model: a supervisor labels a call with its agent (`execute/t1/1 (clerk)`), if it has one.
fn asker(run: &ChildRun, label: &str) -> String {
    let agent = label.strip_suffix(')').and_then(|label| label.rsplit_once(" ("));
    let of = agent.filter(|_| [SUPERVISOR, PLAN_RUN].contains(&run.workflow_type.as_str()));
    of.map_or_else(|| run.workflow_type.to_string(), |(_, agent)| agent.to_owned())
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

impl RunBill {
    /// What models were paid, and what all that was called costs: an account knows also of what is no model.
    fn totals(&self) -> (ModelTotal, ModelTotal) {
        let sum = |of: fn(&ModelTotal) -> u64| self.models.values().map(of).sum::<u64>();
        let models = ModelTotal {
            calls: sum(|one| one.calls),
            tokens: sum(|one| one.tokens),
            cost_micros: sum(|one| one.cost_micros),
        };
        let known = |of: fn(&ModelTotal) -> u64| self.account.as_ref().map_or(0, of).max(of(&models));
        let all = ModelTotal {
            calls: known(|one| one.calls),
            tokens: known(|one| one.tokens),
            cost_micros: known(|one| one.cost_micros),
        };
        (models, all)
    }
}

impl ModelTotal {
    fn json(&self) -> Value {
        json!({ "calls": self.calls, "tokens": self.tokens, "cost_micros": self.cost_micros })
    }
    fn add(&mut self, more: &ModelTotal) {
        (self.calls, self.tokens) = (self.calls + more.calls, self.tokens + more.tokens);
        self.cost_micros += more.cost_micros;
    }
    fn less(&self, part: &ModelTotal) -> ModelTotal {
        ModelTotal {
            calls: self.calls - part.calls,
            tokens: self.tokens - part.tokens,
            cost_micros: self.cost_micros - part.cost_micros,
        }
    }
    fn line(&self, of: &str) -> String {
        let ModelTotal { calls, tokens, cost_micros } = self;
        format!("{of:<32} {calls:>6} calls {tokens:>10} tokens  {}", dollars(*cost_micros))
    }
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
    if others.calls + others.tokens + others.cost_micros > 0 {
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
