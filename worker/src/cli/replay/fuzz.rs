//! `replay fuzz`: many simulated lives of one workflow type, with made-up results and every fault, each doubted.
//!
//! Invariant: nothing is executed outside the simulation; the same seed and program give the same lives. A failure is told
//! with the smallest life that shows it, its seed, and the command that repeats it; exit code 20. Where no life got anywhere,
//! that is said, and it is no pass.

use std::path::PathBuf;

use bosun_engine::{ActivityType, Payload, Rejection, WorkflowType};
use bosun_replay::determinism::{DeterminismTest, Failed, Report};
use bosun_replay::simulate::{Doubts, LifePlan, Versions, Violation, case_text, live};
use clap::Args;
use serde_json::{Value, json};

use super::Bench;
use crate::cli::error::{CliError, printable};
use crate::cli::exit::Exit;
use crate::cli::explain::Code;
use crate::cli::list::shell_word;
use crate::cli::output::TextStyle;

#[derive(Debug, Args)]
pub struct FuzzArgs {
    /// The workflow type, as this program registers it.
    #[arg(value_name = "TYPE")]
    workflow_type: String,
    /// How many lives to try.
    #[arg(long, value_name = "N", default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(1..))]
    runs: u32,
    /// The seed of the search: the same number tries the same lives.
    #[arg(long, value_name = "S", default_value_t = 1)]
    seed: u64,
    /// Try only the life of this seed, which a failure has printed.
    #[arg(long, value_name = "SEED", value_parser = parse_seed, conflicts_with = "case")]
    only: Option<u64>,
    /// The input of the workflow: JSON, @FILE or -; without it, any JSON.
    #[arg(short, long, value_name = "JSON|@FILE|-")]
    input: Option<String>,
    /// The result of activities of this type; without it, any JSON. May be given several times.
    #[arg(long, value_name = "TYPE=JSON", value_parser = parse_result, conflicts_with = "case")]
    result: Vec<(ActivityType, Payload)>,
    /// The most steps that a life may have.
    #[arg(long, value_name = "N", default_value_t = 30)]
    steps: usize,
    /// Try the life that this case file describes, instead of drawing lives.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["input", "runs", "seed"])]
    case: Option<PathBuf>,
    /// Write the smallest life that fails to this file, which must not exist.
    #[arg(long, value_name = "FILE", conflicts_with = "case")]
    keep: Option<PathBuf>,
}

fn parse_seed(text: &str) -> Result<u64, String> {
    let parsed = match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => text.parse(),
    };
    parsed.map_err(|why| format!("{why}: a seed is a number, or 0x and hexadecimal digits"))
}

fn parse_result(text: &str) -> Result<(ActivityType, Payload), String> {
    let (name, json) = text.split_once('=').ok_or("expected TYPE=JSON, such as charge=95")?;
    let name = ActivityType::new(name).map_err(|why| why.to_string())?;
    let value: Value = serde_json::from_str(json).map_err(|why| format!("{why}: expected JSON after the `=`"))?;
    Ok((name, Payload::encode(&value).map_err(|why| why.to_string())?))
}

pub(super) async fn fuzz(bench: &mut Bench<'_>, args: FuzzArgs) -> Result<Exit, CliError> {
    let workflow_type = WorkflowType::new(&args.workflow_type)?;
    if !bench.workflows.contains(&workflow_type) {
        let known = bench.workflows.types().map(ToString::to_string).collect();
        return Err(Rejection::UnknownWorkflowType { workflow_type, known }.into());
    }
    if let Some(case) = &args.case {
        return fuzz_case(bench, case, &workflow_type).await;
    }
    let input = args.input.as_deref().map(|text| crate::cli::input::payload(Some(text), &[])).transpose()?;
    let workflows = bench.workflows.clone();
    let (seed, runs, steps, only, results) = (args.seed, args.runs, args.steps, args.only, args.result.clone());
    let searched = tokio::task::spawn_blocking(move || {
        let test = DeterminismTest::fuzz(workflows, workflow_type.as_str(), input, seed).lives(runs).steps(steps);
        let test = results.into_iter().fold(test, |test, (name, result)| test.activity_gives(name, result));
        only.into_iter().fold(test, DeterminismTest::only).check()
    });
    let searched = searched.await.map_err(|why| CliError::new(Code::Failed, "the search panicked").cause(why))?;
    match searched {
        Ok(report) if report.got_somewhere == 0 && args.only.is_none() => Ok(nowhere(bench, &report, &args)),
        Ok(report) => {
            passed(bench, &report);
            Ok(Exit::Ok)
        }
        Err(failed) => {
            if let Some(path) = &args.keep {
                keep(path, &failed)?;
            }
            tell(bench, &failed, &args);
            Ok(Exit::NonDeterminism)
        }
    }
}

/// Lives the one plan of a file.
async fn fuzz_case(
    bench: &mut Bench<'_>,
    path: &std::path::Path,
    workflow_type: &WorkflowType,
) -> Result<Exit, CliError> {
    let bad = |why: String| CliError::new(Code::BadInput, format!("the case {}: {why}", path.display()));
    let text = crate::cli::read_short(path).map_err(|why| bad(why.to_string()))?;
    let plan: LifePlan = text.parse().map_err(|why: bosun_replay::simulate::CaseError| bad(why.to_string()))?;
    if plan.workflow_type != *workflow_type {
        return Err(bad(format!("it is about the workflow type {}", plan.workflow_type)));
    }
    let versions = Versions::of(bench.workflows.clone());
    let lived = tokio::task::spawn_blocking(move || live(&plan, &versions, &Doubts::default(), &[]));
    let lived = lived.await.map_err(|why| CliError::new(Code::Failed, "the life panicked").cause(why))?;
    match lived {
        Ok(life) => {
            bench.screen.object("replay.fuzz", json!({ "ok": true, "commits": life.commits }));
            bench.screen.line(format!("{}: nothing is wrong ({} commits)", path.display(), life.commits));
            Ok(Exit::Ok)
        }
        Err(finding) => {
            bench.screen.object("replay.fuzz", wrong(&finding));
            bench.screen.block(&bench.screen.paint(TextStyle::Red, &printable(&finding.to_string())));
            Ok(Exit::NonDeterminism)
        }
    }
}

fn keep(path: &std::path::Path, failed: &Failed) -> Result<(), CliError> {
    let text = case_text(&failed.plan, &format!("found: {}", failed.kind()));
    let written = std::fs::OpenOptions::new().write(true).create_new(true).open(path);
    let written = written.and_then(|mut file| std::io::Write::write_all(&mut file, text.as_bytes()));
    written.map_err(|why| CliError::new(Code::BadInput, format!("cannot write {}", path.display())).cause(why))
}

fn passed(bench: &mut Bench<'_>, report: &Report) {
    bench.screen.object(
        "replay.fuzz",
        json!({
            "ok": true, "lives": report.lives, "commits": report.commits, "events": report.events, "ends": report.ends,
            "rare": report.rare, "trip_wires": report.trip_wires,
        }),
    );
    bench.screen.line(format!("nothing is wrong: {report}"));
    // Lives that all end early say little of what comes after.
    if !report.ends.contains_key("Completed") {
        bench.screen.note("no life completed: results are made up, and code that cannot read them fails; `--result TYPE=JSON` says what an activity gives");
        if let Some(failure) = &report.failure {
            bench.screen.field("failure", failure);
        }
    }
    if !report.trip_wires {
        let why = "forbidden calls are only noticed by their effects here; `bosun_replay::trip_wires!()` in a test \
                   names them at the call";
        bench.screen.note(why);
    }
}

/// Every life failed or ended in its first turn: what comes after has not been tried, and nothing can be said of it.
fn nowhere(bench: &mut Bench<'_>, report: &Report, args: &FuzzArgs) -> Exit {
    let failure = report.failure.as_deref();
    bench.screen.object(
        "replay.fuzz",
        json!({
            "ok": false, "kind": "nowhere", "lives": report.lives, "ends": report.ends, "failure": failure,
            "finding": "no life got anywhere: each failed or ended in its first turn",
        }),
    );
    let head = format!("no life of {} got anywhere: nothing is known of its code", args.workflow_type);
    let head = bench.screen.paint(TextStyle::Red, &printable(&head));
    bench.screen.block(&head);
    bench.screen.line(format!("each failed or ended in its first turn: {report}"));
    if let Some(failure) = failure {
        bench.screen.field("failure", failure);
    }
    let why = match args.input {
        None => "any JSON was drawn as its input: give one that it takes",
        Some(_) => "see that the input is one that it takes; results are made up",
    };
    bench.screen.line(why.to_owned());
    bench.screen.next(&format!("bosun replay fuzz {} --input JSON", shell_word(&args.workflow_type)));
    Exit::Error
}

fn wrong(finding: &Violation) -> Value {
    json!({ "ok": false, "kind": finding.kind(), "finding": finding.to_string() })
}

fn tell(bench: &mut Bench<'_>, failed: &Failed, args: &FuzzArgs) {
    let mut again = format!("bosun replay fuzz {}", shell_word(&args.workflow_type));
    if let Some(input) = &args.input {
        again = format!("{again} --input {}", shell_word(input));
    }
    for (name, result) in &args.result {
        let given = format!("{name}={}", result.to_json());
        again = format!("{again} --result {}", shell_word(&given));
    }
    if args.steps != 30 {
        again = format!("{again} --steps {}", args.steps);
    }
    if let Some(seed) = failed.seed {
        again = format!("{again} --only {seed:#x}");
    }
    let mut object = wrong(&failed.finding);
    object["plan"] = failed.plan.to_string().into();
    object["after"] = failed.after.into();
    object["seed"] = failed.seed.map(|seed| format!("{seed:#x}")).into();
    object["again"] = again.as_str().into();
    bench.screen.object("replay.fuzz", object);
    let head = printable(&format!("{} is wrong after {} lives", args.workflow_type, failed.after));
    let head = bench.screen.paint(TextStyle::Red, &head);
    bench.screen.block(&head);
    bench.screen.block(&printable(&failed.finding.to_string()));
    bench.screen.block(&format!("\nthe smallest life that shows it:\n{}", printable(&failed.plan.to_string())));
    bench.screen.next(&again);
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::time::Duration;

    use bosun_engine::workflow::{WfContext, WorkflowRegistry};
    use bosun_engine::{ActivityOptions, Failure};

    use crate::cli::exit::Exit;
    use crate::cli::tests::{Ran, program, run_with};
    use crate::fake::{Fake, FakeOpener};

    fn code() -> WorkflowRegistry {
        let options = || ActivityOptions::start_to_close(Duration::from_secs(10));
        let good = move |ctx: WfContext, input: serde_json::Value| async move {
            let done: serde_json::Value = ctx.activity("work", &input, options()).await?;
            ctx.signal_channel::<serde_json::Value>("go").recv().await?;
            Ok::<_, Failure>(done)
        };
        static RUNS: AtomicU32 = AtomicU32::new(0);
        let bad = move |ctx: WfContext, _: serde_json::Value| async move {
            let number = RUNS.fetch_add(1, Ordering::Relaxed);
            ctx.activity::<serde_json::Value>("work", &number, options()).await
        };
        let typed = |_: WfContext, input: u8| async move { Ok::<_, Failure>(input) };
        let brews = move |ctx: WfContext, (): ()| async move {
            let degrees: [[u8; 1]; 1] = ctx.activity("boil", &(), options()).await?;
            Ok::<_, Failure>(degrees)
        };
        let known = WorkflowRegistry::new().workflow("good", good).workflow("bad", bad);
        known.workflow("typed", typed).workflow("brews", brews)
    }

    async fn ran(line: &str) -> Ran {
        let data = tempfile::tempdir().unwrap();
        let (program, opener) = program(FakeOpener { workflows: code(), ..FakeOpener::new(Fake::new()) });
        run_with(&program, &opener, data.path(), line).await
    }

    /// A clean workflow of unknown types passes; a signal it waits for is found and sent.
    #[tokio::test]
    async fn a_clean_workflow_passes_without_its_types() {
        let ran = ran("replay fuzz good --runs 60 -o json").await;
        assert_eq!(ran.exit, Exit::Ok, "{}", ran.stderr);
        let answer = ran.json();
        assert_eq!((&answer["ok"], &answer["lives"]), (&true.into(), &60.into()));
        assert!(answer["ends"]["Completed"].as_u64() > Some(0), "{answer}");
    }

    /// Lives that all end in their first turn, as the input that is drawn does not decode, are no pass.
    #[tokio::test]
    async fn lives_that_get_nowhere_are_no_pass() {
        let told = ran("replay fuzz typed --runs 20").await;
        assert_eq!(told.exit.number(), 1, "{}", told.stdout);
        assert!(!told.stdout.contains("nothing is wrong"), "{}", told.stdout);
        assert!(told.stdout.contains("got anywhere") && told.stdout.contains("failure  "), "{}", told.stdout);
        assert!(told.stdout.contains("next: bosun ") && told.stdout.contains(" --input "), "{}", told.stdout);
        assert_eq!(ran("replay fuzz typed --runs 20 -o json").await.json()["ok"], false);
    }

    /// Where made-up results are none that the code can read, no life completes: that is said, and the way to say results.
    #[tokio::test]
    async fn results_that_the_code_reads_can_be_said() {
        let made_up = ran("replay fuzz brews --runs 40 --input null").await;
        assert!(
            made_up.stderr.contains("no life completed") && made_up.stderr.contains("--result"),
            "{}",
            made_up.stderr
        );
        let said = ran("replay fuzz brews --runs 40 --input null --result boil=[[95]]").await;
        assert_eq!(said.exit, Exit::Ok, "{}", said.stderr);
        assert!(said.stdout.contains("Completed") && !said.stderr.contains("no life completed"), "{}", said.stdout);
        assert!(super::parse_result("boil").unwrap_err().contains("TYPE=JSON"));
    }

    /// What is wrong is named and made small; its seed and its case find it again.
    #[tokio::test]
    async fn a_workflow_that_counts_its_runs_is_found_out_and_can_be_repeated() {
        let folder = tempfile::tempdir().unwrap();
        let case = folder.path().join("bad.case");
        let found = ran(&format!("replay fuzz bad --keep {} -o json", case.display())).await;
        assert_eq!(found.exit, Exit::NonDeterminism, "{}", found.stderr);
        let answer = found.json();
        assert_eq!(answer["kind"], "replay-mismatch");
        let again = answer["again"].as_str().unwrap().strip_prefix("bosun ").unwrap();
        assert!(again.contains("--only 0x"), "{again}");
        assert_eq!(ran(again).await.exit, Exit::NonDeterminism);
        let again = ran(&format!("replay fuzz bad --case {}", case.display())).await;
        assert_eq!(again.exit, Exit::NonDeterminism);
        assert!(again.stdout.contains("replay-mismatch"), "{}", again.stdout);
    }

    #[tokio::test]
    async fn a_type_that_is_not_there_is_named() {
        let ran = ran("replay fuzz ugly").await;
        assert!(ran.stderr.contains("ugly") && ran.stderr.contains("bad, brews, good, typed"), "{}", ran.stderr);
    }
}
