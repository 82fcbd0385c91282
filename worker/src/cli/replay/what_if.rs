//! `replay what-if ID|FILE`: what the code of this program, or another input, would have decided with the recorded
//! outcomes.
//!
//! Invariant: exit 0 means that every decision is the recorded one, 22 that some are not. Nothing is called and nothing is
//! written; what nobody recorded is shown as unknown, never guessed.

use bosun_replay::{Counterfactual, CounterfactualError, Decided, WhatIf, what_if};
use clap::Args;
use serde_json::{Value, json};

use super::Bench;
use super::source::HistoryOf;
use crate::cli::error::{CliError, printable};
use crate::cli::exit::Exit;
use crate::cli::explain::Code;
use crate::cli::input::payload;
use crate::cli::output::{Screen, TextStyle};

#[derive(Debug, Args)]
pub struct WhatIfArgs {
    #[command(flatten)]
    of: HistoryOf,
    /// Give the run another input, for example with another policy: JSON, `@file`, or `-`.
    #[arg(long, value_name = "JSON", allow_hyphen_values = true)]
    set_input: Option<String>,
    /// Show at most this many lines of the comparison.
    #[arg(short, long, value_name = "N")]
    limit: Option<usize>,
}

pub(super) async fn what_if_verb(bench: &mut Bench<'_>, args: WhatIfArgs) -> Result<Exit, CliError> {
    let (name, history) = bench.recorded(&args.of).await?.replayable(&bench.workflows)?;
    let input = args.set_input.as_deref().map(|input| payload(Some(input), &[])).transpose()?;
    let told = what_if(&bench.workflows, &history, &WhatIf { input }).map_err(|why| match why {
        CounterfactualError::Redacted => {
            CliError::new(Code::UnreadableHistory, format!("{name} cannot be replayed against the code")).cause(why)
        }
        CounterfactualError::NoCode(rejection) => rejection.into(),
    })?;
    print(bench.screen, &name, &told, args.limit.unwrap_or(usize::MAX));
    Ok(if told.is_same() { Exit::Ok } else { Exit::Differ })
}

fn print(screen: &mut Screen, name: &str, told: &Counterfactual, limit: usize) {
    let mut object = json!(told);
    object["history"] = json!(name);
    object["is_same"] = Value::Bool(told.is_same());
    if let Some(lines) = object["diff"]["lines"].as_array_mut() {
        lines.truncate(limit);
    }
    screen.object("replay.what-if", object);
    screen.field("history", name);
    let count = |decided: &[Decided]| decided.len();
    let (same, changed, new, gone) = (told.same, count(&told.changed), count(&told.new), count(&told.gone));
    screen.field("decisions", format!("{same} same, {changed} changed, {new} new, {gone} gone"));
    screen.field("the run is", printable(&told.standing()));
    if let Some(first) = &told.first {
        let line = screen.paint(TextStyle::Bold, "first decision that differs:");
        screen.line(line);
        screen.block(&printable(&first.to_string()));
    }
    if let Some(divergence) = &told.diff.divergence {
        screen.line(format!("first difference: {}", divergence.cause));
        for line in told.diff.lines.iter().take(limit) {
            screen.block(&printable(&line.to_string()));
        }
    }
    for one in &told.unknown {
        let then = if one.pending_then { " (its end was not recorded then either)" } else { "" };
        screen.field("unknown", format!("from event {} on: {}{then}", one.event, one.what));
    }
    for one in &told.unused {
        screen.field("not asked for", format!("event {} {}", one.event, one.what));
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use bosun_engine::workflow::{WfContext, WorkflowRegistry};
    use bosun_engine::*;
    use bosun_replay::History;

    use super::*;
    use crate::cli::tests::{program, run_with};
    use crate::fake::{Fake, FakeOpener};

    /// Ships what is paid in full, and asks somebody about the rest. `limit` is the policy.
    fn code() -> WorkflowRegistry {
        WorkflowRegistry::new().workflow("order", |cx: WfContext, limit: u64| async move {
            let options = ActivityOptions::start_to_close(Duration::from_secs(10));
            let paid: u64 = cx.activity("charge", &7, options.clone()).await?;
            let next = if paid >= limit { "ship" } else { "ask" };
            cx.activity::<String>(next, &paid, options).await
        })
    }

    fn recorded() -> History {
        let mut told = HistoryBuilder::started("order", "o-1", Payload::raw_json("5"));
        let charge = told.activity_scheduled("charge", Payload::raw_json("7"));
        told.activity_started(charge, 1).activity_completed(charge, Payload::raw_json("7"));
        let ship = told.activity_scheduled("ship", Payload::raw_json("7"));
        told.activity_started(ship, 1).activity_completed(ship, Payload::raw_json("\"sent\""));
        told.completed(Payload::raw_json("\"sent\""));
        History::new(told.turns()).unwrap()
    }

    /// E38: the verb says where another policy would decide otherwise and what is unknown from there, with its exit code.
    #[tokio::test]
    async fn what_if_says_where_another_policy_decides_otherwise() {
        let data = tempfile::tempdir().unwrap();
        let file = data.path().join("o-1.json");
        std::fs::write(&file, recorded().to_json()).unwrap();
        let (program, opener) = program(FakeOpener { workflows: code(), ..FakeOpener::new(Fake::new()) });
        let line = format!("replay what-if {}", file.display());
        let same = run_with(&program, &opener, data.path(), &line).await;
        assert_eq!(same.exit.number(), 0, "{}", same.stderr);
        let other = run_with(&program, &opener, data.path(), &format!("{line} --set-input 9")).await;
        assert_eq!(other.exit.number(), 22, "{}", other.stderr);
        assert!(other.stdout.contains("decisions      1 same, 0 changed, 1 new, 2 gone"), "{}", other.stdout);
        assert!(other.stdout.contains("from event 5 on: ActivityTaskScheduled ask"), "{}", other.stdout);
        assert!(opener.engine.backend.calls().is_empty(), "nothing was asked of an engine");
        let json = run_with(&program, &opener, data.path(), &format!("{line} --set-input 9 -o json")).await;
        let json: Value = serde_json::from_str(&json.stdout).unwrap();
        assert_eq!((&json["schema"], &json["is_same"]), (&json!("bosun.replay.what-if/1"), &json!(false)));
        assert_eq!(json["new"][0]["what"], json!("ActivityTaskScheduled ask"));
    }
}
