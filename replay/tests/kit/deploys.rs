//! Kinds of change between two versions of a workflow, and what each door says of them: the gate before a deploy (for open
//! runs and for closed ones), the worker that loads a run, and the determinism kit. `deploys.txt` is the table.
//!
//! Invariant: the gate and the worker agree on every beginning of a history. The table is what the doors say, not what they
//! should: `BOSUN_WRITE_TABLE=1` writes it anew, and a change of it is a change of behaviour. A renamed signal of a machine
//! passes the gate of open runs here because this machine ends with its first signal: no open run has had one. Where some
//! came and moved nothing, the gate warns (`warnings.rs`).

use std::fmt::Write;
use std::path::Path;
use std::time::Duration;

use bosun_engine::machine::Execution;
use bosun_engine::workflow::{Cx, StateMachine, WfContext, WorkflowEvent, WorkflowRegistry, join};
use bosun_engine::*;
use bosun_replay::determinism::DeterminismTest;
use bosun_replay::simulate::{Doubts, LifePlan, LifeStep, Versions, live};
use bosun_replay::{History, Prefixes, Verdict, replay_history};
use serde::{Deserialize, Serialize};

fn within(seconds: u64) -> ActivityOptions {
    ActivityOptions::start_to_close(Duration::from_secs(seconds))
}

/// The changes of the async form. One that begins with `from` has that change in its old version.
const CHANGES: [&str; 29] = [
    "nothing",
    "an activity is added at the beginning",
    "an activity is added in the middle",
    "an activity is added at the end",
    "an activity is added behind a version marker",
    "an activity is removed",
    "an activity is renamed",
    "two activities change places",
    "the input of an activity changes its value",
    "the input of an activity changes its type",
    "the result of an activity is read as another type",
    "the timeout of an activity changes",
    "the retry policy of an activity changes",
    "the task queue of an activity changes",
    "the summary of an activity changes",
    "the duration of a timer changes",
    "a timer is added",
    "a timer is removed",
    "two equal timers with labels change places",
    "two equal timers without labels change places",
    "a signal is renamed",
    "a signal is read as another type",
    "a child workflow is added",
    "a child workflow gets another id",
    "the result of the workflow changes",
    "the workflow fails where it completed",
    "the input of the workflow is read as another type",
    "it continues as new where it completed",
    "the workflow type is renamed",
];

// long: one statement for each change.
async fn flow(ctx: WfContext, n: u32, change: &'static str) -> Result<u32, Failure> {
    let is = |name: &str| change == name;
    if is("an activity is added at the beginning") {
        ctx.activity::<u32>("check", &n, within(10)).await?;
    }
    if is("an activity is added behind a version marker") && ctx.patched("check") {
        ctx.activity::<u32>("check", &n, within(10)).await?;
    }
    let first = if is("an activity is renamed") { "book" } else { "reserve" };
    let options = ActivityOptions {
        retry_policy: is("the retry policy of an activity changes").then(RetryPolicy::no_retry),
        task_queue: is("the task queue of an activity changes").then(|| "other".into()),
        summary: is("the summary of an activity changes").then(|| "a word".into()),
        ..within(if is("the timeout of an activity changes") { 20 } else { 10 })
    };
    let (first, second) = if is("two activities change places") { ("reserve-2", first) } else { (first, "reserve-2") };
    match change {
        "an activity is removed" => {}
        "the input of an activity changes its value" => drop(ctx.activity::<u32>(first, &(n + 1), options).await?),
        "the input of an activity changes its type" => drop(ctx.activity::<u32>(first, &[n], options).await?),
        "the result of an activity is read as another type" => {
            drop(ctx.activity::<Vec<String>>(first, &n, options).await?);
        }
        _ => drop(ctx.activity::<u32>(first, &n, options).await?),
    }
    if is("an activity is added in the middle") {
        ctx.activity::<u32>("check", &n, within(10)).await?;
    }
    ctx.activity::<u32>(second, &n, within(10)).await?;
    if !is("a timer is removed") {
        let seconds = if is("the duration of a timer changes") { 60 } else { 30 };
        let timer = |label: &str| match change {
            "two equal timers without labels change places" | "unlabelled" => ctx.timer(Duration::from_secs(seconds)),
            _ => ctx.labelled_timer(Duration::from_secs(seconds), label),
        };
        let (grace, limit) = if change.contains("change places") && change.contains("timers") {
            let limit = timer("limit");
            (timer("grace"), limit)
        } else {
            (timer("grace"), timer("limit"))
        };
        let (grace, limit) = join(grace, limit).await;
        grace?;
        limit?;
    }
    if is("a timer is added") {
        ctx.timer(Duration::from_secs(5)).await?;
    }
    match change {
        "a signal is renamed" => drop(ctx.signal_channel::<u32>("approved").recv().await?),
        "a signal is read as another type" => drop(ctx.signal_channel::<Vec<String>>("approve").recv().await?),
        _ => drop(ctx.signal_channel::<u32>("approve").recv().await?),
    }
    let id = if is("a child workflow gets another id") { "mail-2" } else { "mail" };
    let options = ChildWorkflowOptions::default;
    if is("a child workflow is added") {
        ctx.child_workflow::<u32>("mail", "first-mail", &n, options()).await?;
    }
    ctx.child_workflow::<u32>("mail", id, &n, options()).await?;
    match change {
        "an activity is added at the end" => ctx.activity("check", &n, within(10)).await,
        "the result of the workflow changes" => Ok(n + 1),
        "the workflow fails where it completed" => Err(Failure::application("No", "it must not be")),
        "it continues as new where it completed" => ctx.continue_as_new(&n, ContinueAsNewOptions::default()),
        _ => Ok(n),
    }
}

fn code(change: &'static str) -> WorkflowRegistry {
    let registry = WorkflowRegistry::new().version(change);
    match change {
        "the workflow type is renamed" => registry.workflow("flow-2", |ctx, n: u32| flow(ctx, n, "")),
        "the input of the workflow is read as another type" => {
            registry.workflow("flow", |ctx, input: Vec<u32>| flow(ctx, input.len() as u32, ""))
        }
        _ => registry.workflow("flow", move |ctx, n: u32| flow(ctx, n, change)),
    }
}

fn old_of(change: &str) -> &'static str {
    if change == "two equal timers without labels change places" { "unlabelled" } else { "" }
}

/// The changes of a machine, by number.
const MACHINE_CHANGES: [&str; 9] = [
    "nothing",
    "an activity is added at the beginning",
    "an activity is added behind a version marker",
    "an activity is removed",
    "an activity is renamed",
    "the duration of a timer changes",
    "two equal timers with labels change places",
    "a signal is renamed",
    "the result of the workflow changes",
];

/// The same flow, shorter: an activity, two timers, a signal, the end.
#[derive(Serialize, Deserialize)]
struct Machine<const CHANGE: usize> {
    n: u32,
    timers: u32,
}

impl<const CHANGE: usize> Machine<CHANGE> {
    fn timers(&mut self, cx: &mut Cx<'_>) {
        self.timers = 2;
        let seconds = if CHANGE == 5 { 60 } else { 30 };
        let labels = if CHANGE == 6 { ["limit", "grace"] } else { ["grace", "limit"] };
        for label in labels {
            cx.start_labelled_timer(cx.now().plus(Duration::from_secs(seconds)), label);
        }
    }
}

impl<const CHANGE: usize> StateMachine for Machine<CHANGE> {
    const TYPE: &'static str = "flow";
    type Input = u32;
    type Output = u32;
    fn start(n: u32, cx: &mut Cx<'_>) -> Result<Self, Failure> {
        let mut this = Machine { n, timers: 0 };
        if CHANGE == 1 || (CHANGE == 2 && cx.patched("check")) {
            cx.schedule_activity("check", &n, within(10));
        }
        match CHANGE {
            3 => this.timers(cx),
            4 => drop(cx.schedule_activity("book", &n, within(10))),
            _ => drop(cx.schedule_activity("reserve", &n, within(10))),
        }
        Ok(this)
    }
    fn on_event(&mut self, event: WorkflowEvent, cx: &mut Cx<'_>) -> Result<(), Failure> {
        match event {
            WorkflowEvent::ActivityResolved { .. } if self.timers == 0 => self.timers(cx),
            WorkflowEvent::Signal(signal) => {
                let awaited = if CHANGE == 7 { "approved" } else { "approve" };
                if signal.name.as_str() == awaited {
                    cx.complete(&(self.n + u32::from(CHANGE == 8)));
                }
            }
            _ => {}
        }
        Ok(())
    }
}

fn machine(change: usize) -> WorkflowRegistry {
    let registry = WorkflowRegistry::new().version(MACHINE_CHANGES[change]);
    match change {
        1 => registry.state_machine::<Machine<1>>(),
        2 => registry.state_machine::<Machine<2>>(),
        3 => registry.state_machine::<Machine<3>>(),
        4 => registry.state_machine::<Machine<4>>(),
        5 => registry.state_machine::<Machine<5>>(),
        6 => registry.state_machine::<Machine<6>>(),
        7 => registry.state_machine::<Machine<7>>(),
        8 => registry.state_machine::<Machine<8>>(),
        _ => registry.state_machine::<Machine<0>>(),
    }
}

/// A run of the old version to its end.
fn recorded(old: WorkflowRegistry) -> Vec<Turn> {
    let payload = |n: u32| Payload::encode(&n).unwrap();
    let mut plan = LifePlan::new("flow", payload(7));
    plan.other_results = vec![ActivityOutcome::Completed(payload(1))];
    plan.children.insert("mail".into(), vec![CloseOutcome::Completed(payload(2))]);
    plan.signals = vec![("approve".into(), payload(3))];
    let deliver = LifeStep::Deliver { pick: 0, result: 0 };
    plan.steps = vec![deliver, deliver, LifeStep::Tick { ms: 0 }, LifeStep::Signal { pick: 0 }];
    let life = live(&plan, &Versions::of(old), &Doubts::without_twins(), &[]).unwrap_or_else(|why| panic!("{why}"));
    assert!(matches!(life.outcome, Some(CloseOutcome::Completed(_))), "{:?}", life.outcome);
    life.histories[0].clone()
}

fn verdict(new: &WorkflowRegistry, turns: &[Turn]) -> &'static str {
    let report = replay_history(new, &History::new(turns.to_vec()).unwrap(), Prefixes::None);
    match report.verdict {
        Verdict::Ok if report.warnings.is_empty() => "fits",
        Verdict::Ok => "warns",
        Verdict::NonDeterministic(_) => "refuses",
        Verdict::OtherResult(_) => "other result",
        Verdict::UnknownType { .. } => "unknown type",
        other => panic!("{other}"),
    }
}

/// The verdicts on all beginnings, each with how often it was given.
fn counted(verdicts: impl Iterator<Item = &'static str>) -> String {
    let mut counts: Vec<(&str, u32)> = Vec::new();
    for verdict in verdicts {
        match counts.iter_mut().find(|(known, _)| *known == verdict) {
            Some((_, count)) => *count += 1,
            None => counts.push((verdict, 1)),
        }
    }
    counts.iter().map(|(verdict, count)| format!("{count} {verdict}")).collect::<Vec<_>>().join(", ")
}

/// What the worker does with a run that it loads.
fn loaded(new: &WorkflowRegistry, turns: &[Turn]) -> &'static str {
    match Execution::load(turns, new, new.build_id()) {
        Ok(execution) if execution.held().is_some() => "held",
        Ok(_) => "goes on",
        Err(_) => "refused",
    }
}

fn in_the_kit(old: WorkflowRegistry, new: WorkflowRegistry) -> String {
    let kit = DeterminismTest::new(old, "flow").input(0..9_u32).other_activities_of(0..9_u32);
    let kit = kit.child("mail", 0..9_u32).signal("approve", 0..9_u32).deploys(new).lives(300).steps(20);
    match kit.without_case_files().in_this_process_only().check() {
        Ok(report) if report.warnings.is_empty() => "passes".into(),
        Ok(_) => "warns".into(),
        Err(failed) => failed.kind().into(),
    }
}

trait Results {
    fn other_activities_of(self, range: std::ops::Range<u32>) -> Self;
}

impl Results for DeterminismTest {
    fn other_activities_of(self, range: std::ops::Range<u32>) -> Self {
        ["reserve", "reserve-2", "book", "check"].iter().fold(self, |kit, name| kit.activity(*name, range.clone()))
    }
}

fn row(form: &str, change: &str, old: &WorkflowRegistry, new: &WorkflowRegistry) -> String {
    let turns = recorded(old.clone());
    let open = (1..turns.len()).map(|end| &turns[..end]);
    let gate = counted(open.clone().map(|turns| verdict(new, turns)));
    let worker = counted(open.clone().map(|turns| loaded(new, turns)));
    for turns in open {
        let (gate, worker) = (verdict(new, turns), loaded(new, turns));
        assert_eq!(matches!(gate, "fits" | "warns"), worker == "goes on", "{change}: {gate}, {worker}");
    }
    let closed = verdict(new, &turns);
    format!("{form:<7} {change:<52} {gate:<28} {closed:<13} {worker:<22} {}\n", in_the_kit(old.clone(), new.clone()))
}

#[test]
fn the_table_of_deploys_is_as_it_is_written() {
    let mut table = format!(
        "{:<7} {:<52} {:<28} {:<13} {:<22} {}\n",
        "form", "change", "gate, open runs", "gate, closed", "worker, open runs", "kit"
    );
    for change in CHANGES {
        let _ = write!(table, "{}", row("async", change, &code(old_of(change)), &code(change)));
    }
    for (number, change) in MACHINE_CHANGES.iter().enumerate() {
        let _ = write!(table, "{}", row("machine", change, &machine(0).version("old"), &machine(number)));
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/kit/deploys.txt");
    if std::env::var_os("BOSUN_WRITE_TABLE").is_some() {
        std::fs::write(&path, &table).unwrap();
    }
    let written = std::fs::read_to_string(&path).unwrap();
    assert!(table == written, "the table is now:\n{table}");
}
