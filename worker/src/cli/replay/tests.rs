//! The replay verbs from their arguments to their output and exit code: files and a fake backend, real workflow code.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bosun_engine::workflow::{WfContext, WorkflowRegistry};
use bosun_engine::*;
use bosun_replay::{History, Redaction, to_temporal};

use crate::backend::{Access, OpenEngine};
use crate::cli::Program;
use crate::cli::tests::{Ran, program, run_line, run_with};
use crate::embedded::Registries;
use crate::fake::{Fake, FakeOpener, run_info};

fn ten_seconds() -> ActivityOptions {
    ActivityOptions::start_to_close(Duration::from_secs(10))
}

/// The code that recorded the histories of these tests.
fn old_code() -> WorkflowRegistry {
    WorkflowRegistry::new().version("old").workflow("order", |cx: WfContext, cents: u64| async move {
        let paid: u64 = cx.activity("charge", &cents, ten_seconds()).await?;
        cx.activity::<String>("ship", &paid, ten_seconds()).await
    })
}

/// Waits a while before it ships.
fn slower_code() -> WorkflowRegistry {
    WorkflowRegistry::new().version("slower").workflow("order", |cx: WfContext, cents: u64| async move {
        let paid: u64 = cx.activity("charge", &cents, ten_seconds()).await?;
        cx.timer(Duration::from_secs(30)).await?;
        cx.activity::<String>("ship", &paid, ten_seconds()).await
    })
}

/// Asks for the same things and gives another result.
fn louder_code() -> WorkflowRegistry {
    WorkflowRegistry::new().version("louder").workflow("order", |cx: WfContext, cents: u64| async move {
        let paid: u64 = cx.activity("charge", &cents, ten_seconds()).await?;
        Ok(cx.activity::<String>("ship", &paid, ten_seconds()).await?.to_uppercase())
    })
}

fn open_order(workflow_id: &str) -> HistoryBuilder {
    let mut told = HistoryBuilder::started("order", workflow_id, Payload::raw_json("5"));
    let charge = told.activity_scheduled("charge", Payload::raw_json("5"));
    told.activity_started(charge, 1);
    told.activity_completed(charge, Payload::raw_json("5"));
    told.activity_scheduled("ship", Payload::raw_json("5"));
    told
}

fn closed_order(workflow_id: &str) -> Vec<Turn> {
    let mut told = open_order(workflow_id);
    told.activity_started(Seq(2), 1);
    told.activity_completed(Seq(2), Payload::raw_json("\"sent\""));
    told.completed(Payload::raw_json("\"sent\""));
    told.turns()
}

fn history(workflow_id: &str) -> History {
    History::new(closed_order(workflow_id)).unwrap()
}

fn write(dir: &Path, name: &str, text: &str) -> PathBuf {
    let path = dir.join(name);
    std::fs::write(&path, text).unwrap();
    path
}

async fn ran_on(fake: Fake, code: WorkflowRegistry, line: &str) -> Ran {
    let (program, opener) = program(FakeOpener { workflows: code, ..FakeOpener::new(fake) });
    let data = tempfile::tempdir().unwrap();
    run_with(&program, &opener, data.path(), line).await
}

async fn ran(code: WorkflowRegistry, line: &str) -> Ran {
    ran_on(Fake::new(), code, line).await
}

/// A backend with runs of these histories.
fn recorded(histories: Vec<(&str, WorkflowStatus, Vec<Turn>)>) -> Fake {
    let mut fake = Fake::new();
    fake.runs =
        histories.iter().map(|(id, status, turns)| RunInfo { run_id: turns[0].run, ..run_info(id, *status) }).collect();
    fake.turns = histories.into_iter().map(|(id, _, turns)| (id.to_owned(), turns)).collect();
    fake
}

/// A name that code waits for is in no event: history fits, and the run would wait for ever.
#[tokio::test]
async fn a_signal_that_seems_renamed_is_warned_of_and_passes() {
    let waits = |name: &'static str| {
        WorkflowRegistry::new()
            .workflow("order", move |cx: WfContext, _: u64| async move { cx.signal_channel::<u64>(name).recv().await })
    };
    let mut told = HistoryBuilder::started("order", "o1", Payload::raw_json("5"));
    told.signaled("approve", Payload::raw_json("1"));
    let turns = told.turns();
    let fake = || recorded(vec![("o1", WorkflowStatus::Running, turns.clone())]);
    let renamed = ran_on(fake(), waits("agreed"), "replay check --open").await;
    assert_eq!(renamed.exit.number(), 0, "{}{}", renamed.stdout, renamed.stderr);
    let warned =
        "warning: o1: event 2: the signal `approve` led to nothing, and this code waits for the signal `agreed`";
    assert!(renamed.stdout.contains(warned), "{}", renamed.stdout);
    let object = ran_on(fake(), waits("agreed"), "replay check --open -o json").await.json();
    assert_eq!(object["histories"][0]["warnings"].as_array().map(Vec::len), Some(1), "{object}");
}

#[tokio::test]
async fn a_history_that_fits_passes_and_one_that_does_not_is_exit_code_20() {
    let dir = tempfile::tempdir().unwrap();
    let file = write(dir.path(), "o1.json", &history("o1").to_json());
    let fits = ran(old_code(), &format!("replay check {} --prefixes all", file.display())).await;
    assert_eq!(fits.exit.number(), 0, "{}{}", fits.stdout, fits.stderr);
    let row = format!("ok       o1           order          Completed  8       {}\n", file.display());
    assert!(fits.stdout.contains(&row), "{}", fits.stdout);
    assert!(fits.stdout.contains("1 fit, 0 do not, 0 cannot be read"), "{}", fits.stdout);
    for code in [slower_code(), louder_code(), WorkflowRegistry::new()] {
        let changed = ran(code, &format!("replay check {}", file.display())).await;
        assert_eq!(changed.exit.number(), 20, "{}", changed.stdout);
    }
    let changed = ran(slower_code(), &format!("replay check {} -o json", file.display())).await;
    let object = changed.json();
    assert_eq!(object["schema"], "bosun.replay.check/1");
    assert_eq!(object["do_not_fit"], 1);
    assert_eq!(object["histories"][0]["verdict"], "non_deterministic");
    assert_eq!(object["histories"][0]["card"]["mismatch"]["event_id"], 5);
    let louder = ran(louder_code(), &format!("replay check {} -o json", file.display())).await.json();
    assert_eq!(louder["histories"][0]["verdict"], "other_result");
}

#[tokio::test]
async fn what_cannot_be_read_is_named_and_stops_no_other() {
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), "a-broken.json", "{ \"schema\": \"bosun.history/1\"");
    write(dir.path(), "b-redacted.json", &history("o1").redacted(Redaction::Payloads).to_json());
    let foreign = to_temporal(&history("o1")).to_string().replace("\"order\"", "\"of-others\"");
    write(dir.path(), "c-temporal.json", &foreign);
    write(dir.path(), "d-fits.json", &history("o1").to_json());
    let all = ran(
        old_code(),
        &format!("replay check {}/*.json {}/e-missing.json -o json", dir.path().display(), dir.path().display()),
    )
    .await;
    assert_eq!(all.exit.number(), 21, "{}", all.stdout);
    let object = all.json();
    let verdicts: Vec<&str> =
        object["histories"].as_array().unwrap().iter().map(|row| row["verdict"].as_str().unwrap()).collect();
    assert_eq!(verdicts, ["unreadable", "redacted", "foreign", "ok", "unreadable"]);
    assert!(object["histories"][2]["message"].as_str().unwrap().contains("can be viewed and compared, not replayed"));
    // What does not fit outweighs what cannot be read.
    let mixed = ran(slower_code(), &format!("replay check {}", dir.path().display())).await;
    assert_eq!(mixed.exit.number(), 20, "{}", mixed.stdout);
}

/// A gate that checks nothing must not pass.
#[tokio::test]
async fn a_pattern_or_query_that_finds_nothing_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    for line in
        [format!("replay check {}/*.json", dir.path().display()), format!("replay check {}", dir.path().display())]
    {
        let nothing = ran(old_code(), &line).await;
        assert_eq!(nothing.exit.number(), 30, "{}", nothing.stdout);
        assert!(nothing.stderr.starts_with("error[BOSUN0041]: no file matches "), "{}", nothing.stderr);
    }
    let mut fake = Fake::new();
    fake.runs.clear();
    let nothing = ran_on(fake, old_code(), "replay check --query WorkflowType~=~'order'").await;
    assert_eq!(nothing.exit.number(), 30);
    assert!(nothing.stderr.starts_with("error[BOSUN0041]: no run fits WorkflowType = 'order'"), "{}", nothing.stderr);
    for usage in ["replay check --query nonsense", "replay check --query ORDER~BY~StartTime~ASC"] {
        assert_eq!(ran(old_code(), usage).await.exit.number(), 2, "{usage}");
    }
}

#[tokio::test]
async fn explain_tells_one_run_or_file() {
    let fake = || recorded(vec![("o1", WorkflowStatus::Completed, closed_order("o1"))]);
    let fits = ran_on(fake(), old_code(), "replay explain o1").await;
    assert_eq!((fits.exit.number(), fits.stdout.as_str()), (0, "o1: the code of this program fits its 8 events\n"));
    let card = ran_on(fake(), slower_code(), "replay explain latest").await;
    assert_eq!(card.exit.number(), 20);
    assert!(card.stdout.starts_with("error[BOSUN0101]: workflow code no longer matches history\n"), "{}", card.stdout);
    let missing = ran(old_code(), "replay explain nowhere.json").await;
    assert_eq!(missing.exit.number(), 21);
    assert!(
        missing.stderr.starts_with("error[BOSUN0039]: the file nowhere.json cannot be read\n"),
        "{}",
        missing.stderr
    );
}

#[tokio::test]
async fn build_servers_get_junit_and_no_other_verb_gives_it() {
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), "a-fits.json", &history("o1").to_json());
    write(dir.path(), "b-broken.json", "{");
    let some = ran(slower_code(), &format!("replay check {} -o junit", dir.path().display())).await;
    assert_eq!(some.exit.number(), 20);
    assert!(some.stdout.starts_with(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites tests=\"2\" failures=\"1\" errors=\"1\""
    ));
    assert!(some.stdout.contains(
        "<failure type=\"non_deterministic\" message=\"error[BOSUN0101]: workflow code no longer matches history\">"
    ));
    assert!(some.stdout.contains("suggested patch"), "{}", some.stdout);
    assert_eq!(ran(old_code(), "list -o junit").await.exit.number(), 2);
}

/// What a busy loop in changed code would do to a gate.
#[tokio::test(flavor = "multi_thread")]
async fn code_that_does_not_come_back_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let file = write(dir.path(), "o1.json", &history("o1").to_json());
    let busy = WorkflowRegistry::new().workflow("order", |_: WfContext, _: u64| async move {
        std::thread::sleep(Duration::from_secs(3));
        Ok(())
    });
    let stuck = ran(busy, &format!("replay check {} --timeout 100ms", file.display())).await;
    assert_eq!(stuck.exit.number(), 20);
    assert!(stuck.stdout.contains("the workflow code did not come back in time"), "{}", stuck.stdout);
}

/// A program with this workflow code, on real data directories.
fn real(workflows: WorkflowRegistry) -> (Program, Arc<Registries>) {
    let registries = Arc::new(Registries { workflows, ..Registries::default() });
    (Program { opener: registries.clone(), plans: None, face: Default::default() }, registries)
}

async fn started_by_old_code(data: &Path, workflow_ids: &[&str]) {
    let (_, old) = real(old_code());
    let engine = old.open(data, &Access::Visit { create: true }).await.unwrap();
    for id in workflow_ids {
        let start = StartWorkflow::new("order".into(), WorkflowId::of(id)).input(Payload::raw_json("5"));
        engine.backend().start(start).await.unwrap();
    }
    engine.drain(Duration::ZERO).await;
}

/// E22: the pre-flight before a deploy finds the runs that the new program would hold, and changes nothing.
#[tokio::test(flavor = "multi_thread")]
async fn open_runs_are_checked_before_a_deploy() {
    let data = tempfile::tempdir().unwrap();
    started_by_old_code(data.path(), &["o1", "o2"]).await;
    let (fits, _) = real(slower_code());
    let fits = run_line(&fits, data.path(), "replay check --open").await;
    assert_eq!(fits.exit.number(), 0, "{}{}", fits.stdout, fits.stderr);
    let renamed =
        WorkflowRegistry::new().version("renamed").workflow("order", |cx: WfContext, cents: u64| async move {
            cx.activity::<u64>("bill", &cents, ten_seconds()).await
        });
    let (renamed, _) = real(renamed);
    let held = run_line(&renamed, data.path(), "replay check --open").await;
    assert_eq!(held.exit.number(), 20, "{}{}", held.stdout, held.stderr);
    // Both have the same mistake: one card, which names the other.
    assert_eq!(held.stdout.matches(": non_deterministic\n").count(), 1, "{}", held.stdout);
    assert_eq!(held.stdout.matches("error[BOSUN0101]").count(), 1, "{}", held.stdout);
    let [one, other] = if held.stdout.contains("\no1: non_deterministic\n") { ["o1", "o2"] } else { ["o2", "o1"] };
    let note = format!("note: the same mistake in 2 histories in all; also: {other}\n");
    assert!(held.stdout.contains(&note) && held.stdout.contains(&format!("\n{one}: ")), "{}", held.stdout);
    assert!(held.stdout.contains("+ if ctx.patched(\"charge-became-bill\") {"), "{}", held.stdout);
    let explained = run_line(&renamed, data.path(), "replay explain @1").await;
    assert_eq!(explained.exit.number(), 20, "{}", explained.stderr);
    // Another program has asked; the runs are as the old code left them.
    let (_, old) = real(old_code());
    let engine = old.open(data.path(), &Access::Visit { create: false }).await.unwrap();
    let turns = engine.backend().turns(Target::workflow("o1".into())).await.unwrap();
    assert_eq!((turns.len(), turns[0].build), (1, old_code().build_id()));
    engine.drain(Duration::ZERO).await;
}

/// Fifty runs of one mistake: one card with their number, and every run in the table; another mistake has its own.
#[tokio::test(flavor = "multi_thread")]
async fn equal_cards_are_shown_once_with_the_runs_they_are_of() {
    let data = tempfile::tempdir().unwrap();
    let ids: Vec<String> = (0..50).map(|number| format!("o{number}")).collect();
    started_by_old_code(data.path(), &ids.iter().map(String::as_str).collect::<Vec<_>>()).await;
    let renamed =
        WorkflowRegistry::new().version("renamed").workflow("order", |cx: WfContext, cents: u64| async move {
            cx.activity::<u64>("bill", &cents, ten_seconds()).await
        });
    let (renamed, _) = real(renamed);
    let held = run_line(&renamed, data.path(), "replay check --open").await;
    assert_eq!(held.stdout.matches("error[BOSUN0101]").count(), 1, "{}", held.stdout);
    assert!(held.stdout.contains("note: the same mistake in 50 histories in all; also: "), "{}", held.stdout);
    assert!(held.stdout.contains(", and 39 more\n"), "{}", held.stdout);
    let rows = held.stdout.lines().filter(|line| line.starts_with("non_deterministic ")).count();
    assert_eq!(rows, 50, "{}", held.stdout);
}

/// More runs than one page of a list holds: all are checked.
#[tokio::test(flavor = "multi_thread")]
async fn a_query_checks_every_run_it_finds() {
    let data = tempfile::tempdir().unwrap();
    let ids: Vec<String> = (0..1_234).map(|number| format!("o{number}")).collect();
    started_by_old_code(data.path(), &ids.iter().map(String::as_str).collect::<Vec<_>>()).await;
    let (program, _) = real(old_code());
    let all = run_line(&program, data.path(), "replay check --query WorkflowType~=~'order' -o json").await;
    assert_eq!(all.exit.number(), 0, "{}", all.stderr);
    assert_eq!(all.json()["fit"], 1_234);
    let few = run_line(&program, data.path(), "replay check --open --query WorkflowId~=~'o7' -o json").await.json();
    assert_eq!((&few["fit"], &few["histories"][0]["source"]), (&1.into(), &"o7".into()));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_directory_without_a_store_is_named_and_left_alone() {
    let data = tempfile::tempdir().unwrap();
    let (program, _) = real(old_code());
    let none = run_line(&program, data.path(), "replay check --open").await;
    assert_eq!(none.exit.number(), 30);
    assert!(none.stderr.starts_with("error[BOSUN0038]: there is no store at "), "{}", none.stderr);
    assert_eq!(std::fs::read_dir(data.path()).unwrap().count(), 0);
}

#[tokio::test]
async fn show_tells_a_history_as_a_list_and_at_an_event() {
    let dir = tempfile::tempdir().unwrap();
    let file = write(dir.path(), "o1.json", &history("o1").to_json());
    let file = file.display();
    let list = ran(old_code(), &format!("replay show {file}")).await;
    assert_eq!(list.exit.number(), 0, "{}", list.stderr);
    assert!(
        list.stdout.contains("\n8   2026-01-01T00:00:00.004000Z  WorkflowExecutionCompleted  result=\"sent\"\n"),
        "{}",
        list.stdout
    );
    let at = ran(old_code(), &format!("replay show {file} --at 5")).await;
    let expected = "\
event          5 of 8
type           ActivityTaskScheduled  seq=2 activity_id=2 activity_type=ship input=5 start_to_close=10s cancellation=TryCancel
at             2026-01-01T00:00:00.002000Z
status         Running
asked for at   PLACE
activity       ship Scheduled, attempt 1
waits for      activity 2 ship at PLACE
";
    let place = at.stdout.lines().find_map(|line| line.strip_prefix("asked for at   ")).unwrap().to_owned();
    assert!(place.starts_with("worker/src/cli/replay/tests.rs:"), "{place}");
    assert!(at.stdout.replace(&place, "PLACE").starts_with(expected), "{}", at.stdout);
    let object = ran(old_code(), &format!("replay show {file} --until name:ship --reverse -o json")).await.json();
    assert_eq!((&object["schema"], &object["event"]["id"]), (&"bosun.replay.show.at/1".into(), &7.into()));
    // Code that does not fit, and none at all: the facts are shown.
    let facts = ran(WorkflowRegistry::new(), &format!("replay show {file} --at 5")).await;
    assert!(facts.stdout.contains("activity       ship Scheduled"), "{}", facts.stdout);
    assert!(facts.stderr.starts_with("facts only: "), "{}", facts.stderr);
    let unfit = ran(slower_code(), &format!("replay show {file} --at 5 -o json")).await.json();
    assert_eq!((&unfit["code"]["fits"], &unfit["code"]["mismatch_at"]), (&false.into(), &5.into()));
    for (usage, exit) in
        [("--at 9", 2), ("--at 0", 2), ("--until nonsense", 2), ("--until TimerFired", 1), ("--at 3 --diff 4", 1)]
    {
        assert_eq!(ran(old_code(), &format!("replay show {file} {usage}")).await.exit.number(), exit, "{usage}");
    }
}

#[tokio::test]
async fn an_export_of_temporals_is_shown_with_statistics() {
    let dir = tempfile::tempdir().unwrap();
    let file = write(dir.path(), "t.json", &to_temporal(&history("o1")).to_string());
    let shown = ran(old_code(), &format!("replay show {}", file.display())).await;
    assert_eq!(shown.exit.number(), 0, "{}", shown.stderr);
    assert!(shown.stdout.contains("order: Completed with "), "{}", shown.stdout);
    assert!(shown.stdout.contains("activity charge: 1 scheduled, 1 completed"), "{}", shown.stdout);
    assert_eq!(ran(old_code(), &format!("replay show {} --at 1", file.display())).await.exit.number(), 2);
    // It is replayed too: the code that made it fits, other code does not.
    let explained = ran(old_code(), &format!("replay explain {}", file.display())).await;
    assert_eq!(explained.exit.number(), 0, "{}{}", explained.stdout, explained.stderr);
    let other = ran(slower_code(), &format!("replay explain {}", file.display())).await;
    assert_eq!(other.exit.number(), 20, "{}{}", other.stdout, other.stderr);
}

/// The test that `record` writes, compiled here: `tests/order_7.rs` is what it writes for this run.
mod order_7;

#[tokio::test]
async fn a_recorded_run_is_a_fixture_with_a_test_that_compiles_and_passes() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("new/fixtures");
    let fake = || recorded(vec![("order-7", WorkflowStatus::Completed, closed_order("order-7"))]);
    let line = format!("replay record order-7 --registry super::old_code --out {}", out.display());
    let done = ran_on(fake(), old_code(), &line).await;
    assert_eq!(done.exit.number(), 0, "{}", done.stderr);
    let recorded = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/cli/replay/tests");
    for file in ["order_7.json", "order_7.rs"] {
        let written = std::fs::read_to_string(out.join(file)).unwrap();
        if std::env::var_os("BOSUN_WRITE_FIXTURES").is_some() {
            std::fs::write(recorded.join(file), &written).unwrap();
        }
        assert_eq!(written, std::fs::read_to_string(recorded.join(file)).unwrap(), "{file}");
    }
    let again = ran_on(fake(), old_code(), &line).await;
    assert_eq!(again.exit.number(), 1);
    assert!(again.stderr.contains("is there already"), "{}", again.stderr);
    assert_eq!(ran_on(fake(), old_code(), &format!("{line} --force")).await.exit.number(), 0);
    let redacted = format!("replay record order-7 --redact payloads --out {}", dir.path().join("redacted").display());
    assert_eq!(ran_on(fake(), old_code(), &redacted).await.exit.number(), 0);
    assert!(!dir.path().join("redacted/order_7.rs").exists(), "a redacted history cannot be replayed");
}

/// Verbs that read histories ask for the turns of each side and for nothing else; an id with a slash is a run.
#[tokio::test]
async fn runs_are_compared_whatever_their_ids_look_like() {
    let runs = || {
        let closed = WorkflowStatus::Completed;
        recorded(vec![("order/7", closed, closed_order("order/7")), ("b", closed, closed_order("b"))])
    };
    let ran = ran_on(runs(), old_code(), "diff order/7 b").await;
    assert_eq!(ran.exit.number(), 0, "{}", ran.stderr);
    assert_eq!(ran.calls, ["describe order/7", "turns order/7", "describe b", "turns b"]);
    let missing = ran_on(runs(), old_code(), "replay show fixtures/nothing").await;
    assert_eq!(missing.exit.number(), 30, "{}", missing.stderr);
}

/// A file that is not there is the same error to every verb that reads one; what was taken for a run says how to spell
/// a file of that name.
#[tokio::test]
async fn a_missing_file_is_one_error_everywhere() {
    let verbs = ["diff ./no.json ./no.json", "fork ./no.json --id f", "fork ./no.json --id f --dry-run"];
    let replay = ["replay show ./no.json", "replay explain ./no.json", "replay what-if ./no.json"];
    for line in verbs.into_iter().chain(replay) {
        let ran = ran(old_code(), line).await;
        assert_eq!(ran.exit.number(), 21, "{line}: {}", ran.stderr);
        assert!(ran.stderr.contains("the file ./no.json cannot be read\n  cause: No such file"), "{}", ran.stderr);
    }
    // The tests of a package run in its directory.
    for line in ["replay show src/lib.rs", "diff src/lib.rs o1", "fork src/lib.rs --at 3", "fork src/lib.rs --dry-run"]
    {
        let spelt = ran(old_code(), line).await;
        assert!(spelt.stderr.contains("write ./src/lib.rs to mean the file"), "{line}: {}", spelt.stderr);
    }
}

#[tokio::test]
async fn an_export_is_the_history_and_says_what_was_left_out() {
    let fake = || recorded(vec![("o1", WorkflowStatus::Completed, closed_order("o1"))]);
    let plain = ran_on(fake(), old_code(), "export o1").await;
    assert_eq!(History::from_json(plain.stdout.as_bytes(), &Default::default()).unwrap(), history("o1"));
    let redacted = ran_on(fake(), old_code(), "export o1 --redact texts").await.json();
    assert_eq!(redacted["redaction"], "payloads-and-texts");
    let temporal = ran_on(fake(), old_code(), "workflow export o1 --as temporal").await.json();
    assert_eq!(temporal["events"][0]["eventType"], "EVENT_TYPE_WORKFLOW_EXECUTION_STARTED");
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("o1.json");
    let written = ran_on(fake(), old_code(), &format!("export o1 --out {}", out.display())).await;
    assert_eq!(written.exit.number(), 0, "{}", written.stderr);
    assert_eq!(ran(old_code(), &format!("replay check {}", out.display())).await.exit.number(), 0);
}
