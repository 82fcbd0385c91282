//! The command line from its arguments to its output and exit code, with a fake backend.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bosun_engine::*;
use clap::{CommandFactory, Parser};
use serde_json::Value;

use super::output::captured::Output;
use super::*;
use crate::api::tests::rejections;
use crate::api::{HttpClient, Token, WorkerFile};
use crate::backend::{Backend, EngineHealth};
use crate::fake::{Fake, FakeOpener, RUN, event, run_info};

pub(super) struct Ran {
    pub(super) exit: Exit,
    pub(super) calls: Vec<String>,
    pub(super) stdout: String,
    pub(super) stderr: String,
}

impl Ran {
    pub(super) fn json(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|why| panic!("{why}: {}", self.stdout))
    }
}

pub(super) fn program(opener: FakeOpener) -> (Program, Arc<FakeOpener>) {
    let opener = Arc::new(opener);
    (Program { opener: opener.clone(), plans: Some(load_plan), face: Default::default() }, opener)
}

/// A plan file for tests: `status` decides how it will look.
fn load_plan(request: &PlanRequest) -> Result<PlanFile, String> {
    let path = request.path.as_path();
    let text = std::fs::read_to_string(path).map_err(|why| why.to_string())?;
    if text.starts_with("bad") {
        return Err(format!("Invalid workflow YAML at '{}'. tasks is missing", path.display()));
    }
    let input = Payload::encode(&text).map_err(|why| why.to_string())?;
    Ok(PlanFile { name: "audit".into(), workflow_type: "plan-run".into(), input, notes: Vec::new(), refused: None })
}

/// Runs a command line; in its calls and output the caller is `me@here`.
pub(super) async fn run_with(program: &Program, opener: &FakeOpener, data: &Path, line: &str) -> Ran {
    let ran = run_line(program, data, line).await;
    let me = context::identity().to_string();
    // Every list stays in its namespace.
    let plain = |call: &String| {
        let call = call.replace(" AND Namespace IN ('default')", "").replace("Namespace IN ('default')", "");
        call.replace(&me, "me@here")
    };
    let calls = opener.engine.backend.calls().iter().map(plain).collect();
    Ran { calls, ..ran }
}

/// Runs a command line, whatever engine is behind it. `~` in a word stands for a space.
pub(super) async fn run_line(program: &Program, data: &Path, line: &str) -> Ran {
    let words = line.split_whitespace().map(|word| word.replace('~', " "));
    let cli = Cli::try_parse_from(["bosun".to_owned()].into_iter().chain(words)).unwrap_or_else(|why| panic!("{why}"));
    let cli = Cli { global: args::Global { data: data.to_owned(), ..cli.global }, ..cli };
    let (mut screen, output): (Screen, Output) = Screen::captured();
    screen.format = cli.global.output;
    screen.fields = cli.global.fields.clone();
    let exit = match run(program, cli, &config::Loaded::default(), &mut screen).await {
        Ok(exit) => exit,
        Err(error) => {
            screen.error(&error);
            error.code.exit()
        }
    };
    Ran { exit, calls: Vec::new(), stdout: output.stdout(), stderr: output.stderr() }
}

async fn ran(fake: Fake, line: &str) -> Ran {
    let (program, opener) = program(FakeOpener::new(fake));
    let data = tempfile::tempdir().unwrap();
    run_with(&program, &opener, data.path(), line).await
}

#[test]
fn the_grammar_is_consistent() {
    Cli::command().debug_assert();
}

/// What has no help, and whose help is a riddle.
fn riddles(path: &str, command: &clap::Command, found: &mut Vec<String>) {
    let text = |said: Option<&clap::builder::StyledStr>| said.map(ToString::to_string).unwrap_or_default();
    let mut judge = |what: String, said: String| {
        let riddle = said.is_empty() || RIDDLES.iter().any(|riddle| said.contains(riddle));
        if riddle {
            found.push(format!("{path} {what}: {said:?}"));
        }
    };
    judge(String::new(), text(command.get_about()));
    for arg in command.get_arguments().filter(|arg| !arg.is_hide_set()) {
        judge(arg.get_id().to_string(), text(arg.get_help()));
    }
    for verb in command.get_subcommands().filter(|verb| !verb.is_hide_set()) {
        riddles(&format!("{path} {}", verb.get_name()), verb, found);
    }
}

/// Turns of phrase that were in help once, and that nobody understood at first reading.
const RIDDLES: [&str; 6] = ["who answers it", "told of", "is none", "Of a cluster:", "as can be", "how-manieth"];

#[test]
fn help_says_what_every_verb_and_option_is() {
    let mut found = Vec::new();
    riddles("bosun", &Cli::command(), &mut found);
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn the_noun_may_be_left_out_and_nothing_else() {
    for verb in Cli::command().find_subcommand("workflow").unwrap().get_subcommands() {
        let direct = Cli::command().find_subcommand(verb.get_name()).map(|verb| verb.get_name().to_owned());
        assert_eq!(direct.as_deref(), Some(verb.get_name()));
    }
    assert!(Cli::try_parse_from(["bosun", "ls"]).is_ok());
    for guess in ["lis", "desc", "sto", "work"] {
        assert!(Cli::try_parse_from(["bosun", guess]).is_err(), "{guess} is no verb");
    }
}

/// One word lets a held supervisor or agent go on: first the engine tries its code again, then the run's own signal ends its
/// own pause. One that is not held is only sent the signal, and any other run only the engine's word.
#[tokio::test]
async fn resume_of_a_held_supervisor_lifts_the_hold_and_its_own_pause() {
    async fn told(workflow_type: &str, held: bool) -> Vec<String> {
        let mut fake = Fake::new();
        fake.runs = vec![RunInfo { workflow_type: workflow_type.into(), ..run_info("s1", WorkflowStatus::Running) }];
        if held {
            fake.described = |found| found.held = Some("error[BOSUN0102]: workflow code panicked".into());
        }
        let ran = ran(fake, "resume -w s1 --reason mended").await;
        assert_eq!(ran.exit, Exit::Ok, "{}{}", ran.stdout, ran.stderr);
        let changes = |call: &String| call.starts_with("unpause") || call.starts_with("signal");
        ran.calls.into_iter().filter(changes).collect()
    }
    let (lifted, own) = (
        r#"unpause s1 "mended" by me@here"#,
        r#"signal s1 resume_v1 json:{"reason":"mended","requested_by":"me@here"}"#,
    );
    for workflow_type in [crate::supervisor::run::SUPERVISOR, crate::agent::AGENT] {
        assert_eq!(told(workflow_type, true).await, [lifted, own], "{workflow_type}");
        assert_eq!(told(workflow_type, false).await, [own], "{workflow_type}");
    }
    assert_eq!(told("order", true).await, [lifted]);
}

/// What each verb asks of the engine.
#[tokio::test]
async fn every_verb_makes_its_call() {
    let token = TaskToken { run_id: RUN, seq: Seq(3), attempt: Attempt(1) };
    let vectors = [
        ("start order -w o1 n=7 who=Ada", r#"start order o1 json:{"n":7,"who":"Ada"} Fail"#.to_owned()),
        ("start --type order -w o1 --input [1]", "start order o1 json:[1] Fail".into()),
        (
            "start order -w o1 --id-conflict-policy terminate-existing",
            "start order o1 json:null TerminateExisting".into(),
        ),
        ("workflow run order -w o1", "start order o1 json:null UseExisting".into()),
        ("execute order -w o1", "start order o1 json:null Fail".into()),
        ("signal-with-start order -w o1 --signal-name go", "signal_with_start o1 go".into()),
        ("signal-with-start order -w o1 --signal-name go --request-id r1", "signal_with_start o1 go r1".into()),
        (
            "list --query RunId~IS~NULL --limit 3",
            r#"list "(RunId IS NULL AND WorkflowType != 'bosun.notification')" 4"#.into(),
        ),
        ("list --query RunId~IS~NULL --limit 3 --all", r#"list "RunId IS NULL" 4"#.into()),
        ("count -q HistoryLength=1", r#"count "(HistoryLength = 1 AND WorkflowType != 'bosun.notification')""#.into()),
        ("count -q HistoryLength=1 -a", r#"count "HistoryLength = 1""#.into()),
        ("signal -w o1 approve by=Ada", r#"signal o1 approve json:{"by":"Ada"}"#.into()),
        ("signal -w o1 --name approve by=Ada", r#"signal o1 approve json:{"by":"Ada"}"#.into()),
        ("query -w o1 board", "query o1 board json:null".into()),
        ("budget show -w o1", "query o1 budget json:null".into()),
        ("update -w o1 set --update-id u1 n=1", "update o1 u1 set Completed".into()),
        ("update -w o1 set --update-id u1 --wait accepted", "update o1 u1 set Accepted".into()),
        ("cancel -w o1 --reason enough", "cancel o1 \"enough\" by me@here".into()),
        ("terminate -w o1 -y", "terminate o1 \"\" by me@here".into()),
        ("pause -w o1", "pause o1 \"\" by me@here".into()),
        ("resume -w o1", "unpause o1 \"\" by me@here".into()),
        ("unpause -w o1", "unpause o1 \"\" by me@here".into()),
        ("delete -w o1 -y", "delete o1".into()),
        ("activity pause -w o1 a1", "pause_activity o1 a1 \"\" by me@here".into()),
        ("activity unpause -w o1 a1 --reason ok", "unpause_activity o1 a1 \"ok\" by me@here".into()),
        ("activity complete TOKEN n=1", r#"complete_activity 3 Complete(json:{"n":1})"#.into()),
        ("activity heartbeat TOKEN", "complete_activity 3 Heartbeat(None)".into()),
        ("activity cancel TOKEN --input 1", "complete_activity 3 Cancel(Some(json:1))".into()),
        ("store verify", "verify".into()),
        ("store info", "store_info".into()),
        ("store backup /tmp/b", "backup /tmp/b".into()),
        ("show -w order-7 --from 2", "history order-7 2 1000".into()),
        (
            "fork order-7 --at 4 --id f --set-result review#2=good --set-failure 9=no --set-signal go=[1]",
            r#"fork order-7 to f at Some(4) [Outcome { of: Name { name: "review", nth: Some(2) }, outcome: Ok(json:"good") }, "#
                .to_owned()
                + r#"Outcome { of: Event(EventId(9)), outcome: Err("#
                + &format!("{:?}", Failure::application("SetByFork", "no"))
                + r#") }, Signal { name: SignalName("go"), nth: None, input: json:[1] }]"#,
        ),
        ("fork order-7 --id f --set-input {}", "fork order-7 to f at None [Input(json:{})]".into()),
        ("result -w order-7 --no-follow-runs", "result order-7 false".into()),
        ("describe -w order-7", "describe order-7".into()),
    ];
    for (line, call) in vectors {
        let ran = ran(Fake::new(), &line.replace("TOKEN", &token.to_string())).await;
        assert_eq!(ran.exit, Exit::Ok, "{line}: {}", ran.stderr);
        assert!(ran.calls.contains(&call), "{line}: {:?}", ran.calls);
    }
    let failed = ran(Fake::new(), &format!("activity fail {token} --message no --type Declined --non-retryable")).await;
    let told = |call: &String| call.contains("Declined") && call.contains("non_retryable: true");
    assert!(failed.calls.iter().any(told), "{:?}", failed.calls);
}

#[tokio::test]
async fn ids_resolve_by_place_beginning_and_run() {
    let fake = || {
        let mut fake = Fake::new();
        let ids = ["order-9", "order-8", "invoice-1", "order"];
        fake.runs = ids.iter().map(|id| run_info(id, WorkflowStatus::Running)).collect();
        fake
    };
    let paused = |ran: &Ran| ran.calls.iter().find(|call| call.starts_with("pause")).cloned().unwrap_or_default();
    for (id, found) in [
        ("latest", "pause order-9/0707 \"\" by me@here"),
        ("@1", "pause order-9/0707 \"\" by me@here"),
        ("@3", "pause invoice-1/0707 \"\" by me@here"),
        ("order-8", "pause order-8 \"\" by me@here"),
        ("order", "pause order \"\" by me@here"),
        ("inv", "pause invoice-1 \"\" by me@here"),
        (&RUN.to_string(), "pause order-9/0707 \"\" by me@here"),
    ] {
        let ran = ran(fake(), &format!("pause {id}")).await;
        assert_eq!(paused(&ran), found, "{id}: {}", ran.stderr);
    }
    let exact = ran(fake(), "pause -w latest").await;
    assert_eq!(paused(&exact), "pause latest \"\" by me@here", "-w takes no shortcuts");
    for (id, message) in [
        ("ord", "error[BOSUN0004]: \"ord\" is the beginning of 3 workflow ids\n  cause: order, order-8, order-9"),
        ("nothing", "error[BOSUN0003]: no workflow execution nothing\n"),
        ("@5", "error[BOSUN0003]: @5: there are only 4 workflow executions\n"),
    ] {
        let ran = ran(fake(), &format!("pause {id}")).await;
        assert_eq!(ran.exit.number(), 30, "{id}");
        assert!(ran.stderr.starts_with(message), "{id}: {}", ran.stderr);
        assert_eq!(paused(&ran), "");
    }
}

/// What goes on in a new run, as a schedule does by itself, was not started last by that.
#[tokio::test]
async fn the_newest_is_what_somebody_started_last() {
    let fake = || {
        let mut fake = Fake::new();
        let run = |id: &str, run: u8, first: u8, at: i64| RunInfo {
            run_id: RunId([run; 16]),
            first_run: RunId([first; 16]),
            started_at: Timestamp(at),
            ..run_info(id, WorkflowStatus::Running)
        };
        // The newest run first, as a list has them; the first run of `kept` was deleted.
        fake.runs = vec![
            run("loop", 6, 1, 600),
            run("kept", 5, 9, 500),
            run("loop", 4, 1, 400),
            run("order", 3, 3, 300),
            run("older", 2, 2, 200),
            run("loop", 1, 1, 100),
        ];
        fake
    };
    for (id, found) in [("latest", "order/0303"), ("@2", "older/0202"), ("@3", "loop/0606"), ("@4", "kept/0505")] {
        let ran = ran(fake(), &format!("pause {id}")).await;
        let paused = ran.calls.iter().find(|call| call.starts_with("pause")).cloned().unwrap_or_default();
        assert!(paused.starts_with(&format!("pause {found}")), "{id}: {paused} {}", ran.stderr);
    }
    let ran = ran(fake(), "pause @5").await;
    assert!(ran.stderr.contains("there are only 4 workflow executions"), "{}", ran.stderr);
}

#[tokio::test]
async fn waiting_ends_with_the_code_of_the_outcome() {
    for (outcome, exit, stdout, stderr) in [
        (CloseOutcome::Completed(Payload::raw_json("\"fine\"")), 0, "fine\n", ""),
        (
            CloseOutcome::Failed(Failure::application("Declined", "no funds")),
            10,
            "",
            "order-7 Failed: Declined: no funds\n",
        ),
        (CloseOutcome::TimedOut(WorkflowTimeout::Run), 11, "", "order-7 TimedOut: the run timeout ran out\n"),
        (CloseOutcome::Canceled(None), 12, "", "order-7 Canceled: canceled\n"),
        (CloseOutcome::Terminated { reason: "enough".into() }, 13, "", "order-7 Terminated: terminated: enough\n"),
    ] {
        let fake = Fake::new();
        *fake.outcome.lock().unwrap() = Some(outcome);
        let ran = ran(fake, "result order-7").await;
        assert_eq!((ran.exit.number(), ran.stdout.as_str()), (exit, stdout));
        assert!(ran.stderr.ends_with(stderr), "{}", ran.stderr);
    }
    let fake = Fake::new();
    *fake.outcome.lock().unwrap() = None;
    let open = ran(fake, "result order-7").await;
    assert_eq!(open.exit.number(), 1);
    assert!(
        open.stderr.contains("error[BOSUN0030]: order-7 has not closed yet\n  cause: no worker runs"),
        "{}",
        open.stderr
    );
}

#[tokio::test]
async fn every_rejection_has_its_exit_code() {
    let codes = [30, 1, 32, 32, 1, 32, 30, 1, 1, 1, 1, 1, 1, 2, 20, 20, 31, 74, 1, 21, 1, 30, 1, 20];
    for (rejection, code) in rejections().into_iter().zip(codes) {
        let ran = ran(Fake::rejecting(rejection.clone()), "signal -w order-7 go").await;
        assert_eq!(ran.exit.number(), code, "{rejection}");
        assert!(ran.stderr.starts_with("error[BOSUN00"), "{}", ran.stderr);
        assert_eq!(ran.stdout, "");
    }
    assert_eq!(rejections().len(), codes.len());
}

#[tokio::test]
async fn usage_errors_are_exit_code_2() {
    let (program, _) = program(FakeOpener::new(Fake::new()));
    let exit = |line: &str| super::main(&program, line.split(' ').map(OsString::from));
    let exit_of = |line: &'static str| std::thread::scope(|scope| scope.spawn(|| exit(line)).join().unwrap().number());
    assert_eq!(exit_of("bosun nonsense"), 2);
    assert_eq!(exit_of("bosun describe"), 2);
    assert_eq!(exit_of("bosun list --limit 1001"), 2);
    assert_eq!(exit_of("bosun list --limit 0"), 2);
    assert_eq!(exit_of("bosun explain BOSUN9999 -o none"), 2);
    assert_eq!(exit_of("bosun version -o none"), 0);
    assert_eq!(ran(Fake::new(), "start order --input nonsense").await.exit.number(), 2);
    assert_eq!(ran(Fake::new(), "signal order-7").await.exit.number(), 2);
    assert_eq!(ran(Fake::new(), "activity complete nonsense").await.exit.number(), 2);
    assert_eq!(ran(Fake::new(), "show order-7 --follow -o json").await.exit.number(), 2);
}

#[tokio::test]
async fn what_cannot_be_undone_is_not_done_without_a_yes() {
    for verb in ["terminate", "delete"] {
        let ran = ran(Fake::new(), &format!("{verb} order-7 --no-input")).await;
        assert_eq!(ran.exit.number(), 32);
        assert!(ran.stderr.starts_with("error[BOSUN0033]: "), "{}", ran.stderr);
        assert!(!ran.calls.iter().any(|call| call.starts_with(verb)), "{:?}", ran.calls);
    }
}

#[tokio::test]
async fn text_output_is_a_table_and_says_what_is_next() {
    let list = ran(Fake::new(), "list").await;
    let expected = "\
WORKFLOW ID  WORKFLOW TYPE  STATUS   STARTED AT  CLOSED AT  RUN ID                                SUMMARY
order-7      order          Running  1m 40s ago  -          07070707-0707-0707-0707-070707070707  
next: bosun describe order-7
";
    assert_eq!(list.stdout, expected);
    let list = ran(Fake::new(), "list --fields status,workflow_id").await;
    assert!(list.stdout.starts_with("STATUS   WORKFLOW ID\nRunning  order-7\n"), "{}", list.stdout);
    let show = ran(Fake::new(), "show order-7 --reverse").await;
    let expected = "\
ID  AT          TYPE          DETAILS
2   1m 39s ago  TimerFired    seq=1
1   1m 39s ago  TimerStarted  seq=1 fire_at=1970-01-01T00:15:01.000000Z
next: bosun describe order-7
";
    assert_eq!(show.stdout, expected);
    let describe = ran(Fake::new(), "describe order-7").await;
    assert!(describe.stdout.contains("waits for      signal approve\nnext: bosun show --follow order-7\n"));
    let started = ran(Fake::new(), "start order -w o1").await;
    assert_eq!(started.stdout, format!("started o1 (run {RUN})\nnext: bosun result o1\n"));
    assert_eq!(started.stderr, "no worker runs: it goes on when one does (`bosun worker run`)\n");
}

/// The documented objects. A change here is a change of a contract: add keys, never take one away.
#[tokio::test]
async fn json_output_has_documented_schemas() {
    let check = async |line: &str, expected: &str| {
        // On the heap: a debug build keeps room on the stack for each of the calls below.
        let ran = Box::pin(ran(Fake::new(), &format!("{line} -o json"))).await;
        let found = ran.json().to_string();
        assert_eq!(found, expected, "{line}");
        assert_eq!(ran.exit, Exit::Ok);
    };
    const ORDER: &str = r#"{"workflow_id":"order-7","run_id":"07070707-0707-0707-0707-070707070707","workflow_type":"order","status":"Running","started_at":"1970-01-01T00:15:00.000000Z","closed_at":null,"task_queue":"default","namespace":"default","attempt":1,"history_events":3,"history_bytes":250,"first_run_id":"07070707-0707-0707-0707-070707070707","continued_from":null,"next_run_id":null,"parent_workflow_id":null,"memo":{},"search_attributes":{},"summary":null,"details":null,"build":"0000000000000001"}"#;
    check("list", &format!(r#"{{"schema":"bosun.workflow.list/1","workflows":[{ORDER}]}}"#)).await;
    check("count", r#"{"schema":"bosun.workflow.count/1","count":1}"#).await;
    check(
        "describe order-7",
        &format!(
            r#"{{"schema":"bosun.workflow.describe/1","workflow":{ORDER},"pending_activities":[],"pending_timers":[],"pending_children":[],"pending_updates":[],"starts_at":null,"inbox":0,"held":null,"awaiting":[{{"what":"signal approve","location":null}}],"cancel_requested":false,"warnings":[],"outcome":null,"waiting":[],"stuck":[],"notified":[]}}"#
        ),
    )
    .await;
    check(
        "start order -w o1",
        r#"{"schema":"bosun.workflow.start/1","workflow_id":"o1","run_id":"07070707-0707-0707-0707-070707070707","newly_started":true}"#,
    )
    .await;
    let result = r#"{"schema":"bosun.workflow.result/1","workflow_id":"order-7","run_id":"07070707-0707-0707-0707-070707070707","status":"Completed","result":{"paid":true},"exit":0}"#;
    check("result order-7", result).await;
    check("execute order -w order-7", result).await;
    check(
        "show -w order-7 --type timerfired",
        r#"{"schema":"bosun.workflow.show/1","workflow_id":"order-7","run_id":null,"events":[{"id":2,"at":"1970-01-01T00:15:00.000002Z","type":"TimerFired","attributes":{"seq":1},"build":"0000000000000001"}]}"#,
    )
    .await;
    check("signal order-7 go", r#"{"schema":"bosun.workflow.signal/1","workflow_id":"order-7","signal":"go"}"#).await;
    check(
        "query order-7 board",
        r#"{"schema":"bosun.workflow.query/1","workflow_id":"order-7","query":"board","result":"fine"}"#,
    )
    .await;
    check(
        "update order-7 set --update-id u1",
        r#"{"schema":"bosun.workflow.update/1","workflow_id":"order-7","update":"set","update_id":"u1","state":"completed","result":42,"failure":null}"#,
    )
    .await;
    check(
        "cancel order-7 --reason x",
        r#"{"schema":"bosun.workflow.cancel/1","workflow_id":"order-7","run_id":null,"reason":"x"}"#,
    )
    .await;
    check("store verify", r#"{"schema":"bosun.store.verify/1","groups":3,"findings":[]}"#).await;
    let features = if cfg!(feature = "mcp") { r#"["mcp"]"# } else { "[]" };
    let build = bosun_engine::workflow::WorkflowRegistry::new().build_id();
    check(
        "version",
        &format!(
            r#"{{"schema":"bosun.version/1","version":"0.1.0","build_id":"{build}","features":{features},"workflow_types":["order"]}}"#
        ),
    )
    .await;
    check("list --fields status", r#"{"schema":"bosun.workflow.list/1","workflows":[{"status":"Running"}]}"#).await;
    let error = ran(Fake::new(), "describe nothing -o json").await;
    assert_eq!(error.stdout, "");
    assert_eq!(
        error.stderr,
        "{\"schema\":\"bosun.error/1\",\"code\":\"BOSUN0003\",\"message\":\"no workflow execution nothing\",\"cause\":null,\"help\":\"`bosun list` shows the newest runs\",\"exit\":30}\n"
    );
}

#[tokio::test]
async fn followed_events_are_json_lines() {
    let show = ran(Fake::new(), "show order-7 --follow -o jsonl --limit 1").await;
    assert_eq!(
        show.stdout,
        "{\"schema\":\"bosun.workflow.event/1\",\"id\":1,\"at\":\"1970-01-01T00:15:00.000001Z\",\"type\":\"TimerStarted\",\"attributes\":{\"seq\":1,\"fire_at\":901000000,\"summary\":null},\"build\":\"0000000000000001\"}\n"
    );
    let list = ran(Fake::new(), "list -o jsonl --fields workflow_id").await;
    assert_eq!(list.stdout, "{\"schema\":\"bosun.workflow.list/1\",\"workflow_id\":\"order-7\"}\n");
    assert_eq!(ran(Fake::new(), "list -o none").await.stdout, "");
}

#[tokio::test]
async fn long_histories_come_in_pages() {
    let mut fake = Fake::new();
    fake.events = (1..=2_500).map(|id| event(id, EventKind::TimerFired { seq: Seq(id) })).collect();
    let show = ran(fake, "show -w order-7 -o jsonl").await;
    assert_eq!(show.stdout.lines().count(), 2_500);
    let pages: Vec<_> = show.calls.iter().filter(|call| call.starts_with("history")).collect();
    assert_eq!(pages, ["history order-7 1 1000", "history order-7 1001 1000", "history order-7 2001 1000"]);
}

fn plan_file(text: &str) -> (tempfile::TempDir, String) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("audit.yaml");
    std::fs::write(&path, text).unwrap();
    let path = path.display().to_string();
    (dir, path)
}

#[tokio::test]
async fn a_plan_goes_on_with_the_same_run_and_ends_with_its_report() {
    let (_dir, path) = plan_file("objective: x");
    let output = Payload::raw_json(r##"{"status":"completed","report":"# Report\nall well\n"}"##);
    let fake = || {
        let fake = Fake::new();
        *fake.outcome.lock().unwrap() = Some(CloseOutcome::Completed(output.clone()));
        fake
    };
    let first = ran(fake(), &format!("run {path}")).await;
    assert_eq!((first.exit, first.stdout.as_str()), (Exit::Ok, "# Report\nall well\n"), "{}", first.stderr);
    let start = |ran: &Ran| ran.calls.iter().find(|call| call.starts_with("start")).cloned();
    let started = start(&first).unwrap();
    assert!(started.starts_with("start plan-run plan-audit-") && started.ends_with("UseExisting"), "{started}");
    let again = ran(fake(), &format!("run {path}")).await;
    assert_eq!(start(&again), Some(started.clone()), "the same file is the same run");

    // Once completed, it is reported and not started.
    let id = started.split(' ').nth(2).unwrap();
    let completed = || {
        let mut fake = fake();
        fake.runs = vec![run_info(id, WorkflowStatus::Completed)];
        fake
    };
    let reported = ran(completed(), &format!("run {path}")).await;
    assert_eq!((start(&reported), reported.stdout.as_str()), (None, "# Report\nall well\n"));
    assert!(reported.stderr.contains("has completed already; --again runs it again"));
    let anew = ran(completed(), &format!("run {path} --again")).await;
    assert!(start(&anew).is_some());
}

#[tokio::test]
async fn a_plan_that_did_not_succeed_is_exit_code_10() {
    let (_dir, path) = plan_file("objective: x");
    let fake = Fake::new();
    let output = Payload::raw_json(r#"{"status":"failed","report":"task 2 failed"}"#);
    let failure = Failure::application("PlanFailed", "no").with_details(output);
    *fake.outcome.lock().unwrap() = Some(CloseOutcome::Failed(failure));
    let failed = ran(fake, &format!("run {path}")).await;
    assert_eq!((failed.exit.number(), failed.stdout.as_str()), (10, "task 2 failed\n"));
    let (_dir, path) = plan_file("bad");
    let bad = ran(Fake::new(), &format!("run {path}")).await;
    assert_eq!(bad.exit.number(), 2);
    assert!(bad.stderr.starts_with("error[BOSUN0032]: Invalid workflow YAML at '"), "{}", bad.stderr);
    assert_eq!(bad.calls, Vec::<String>::new());
}

// ---- finding the engine

#[tokio::test]
async fn only_verbs_that_start_something_make_a_data_directory() {
    let (program, opener) = program(FakeOpener::new(Fake::new()));
    let parent = tempfile::tempdir().unwrap();
    let data = parent.path().join("a/b");
    let list = run_with(&program, &opener, &data, "list").await;
    assert_eq!(list.exit.number(), 30);
    assert!(list.stderr.starts_with("error[BOSUN0038]: there is no store at "), "{}", list.stderr);
    assert!(!data.exists());
    assert_eq!(run_with(&program, &opener, &data, "start order").await.exit, Exit::Ok);
    use std::os::unix::fs::PermissionsExt;
    assert_eq!(std::fs::metadata(&data).unwrap().permissions().mode() & 0o777, 0o700);
}

fn worker_file(data: &Path, pid: u32, address: &str) {
    let token_file = data.join("token");
    Token::read_or_create(&token_file).unwrap();
    let (version, started_at) = ("0".to_owned(), String::new());
    WorkerFile { pid, address: address.into(), token_file, version, started_at, of_a_run: false, directory: None }
        .write(data)
        .unwrap();
}

#[tokio::test]
async fn a_worker_file_that_nobody_stands_behind_is_not_believed() {
    let (program, opener) = program(FakeOpener::new(Fake::new()));
    let data = tempfile::tempdir().unwrap();
    // A dead process, and a living one that does not serve.
    for pid in [0, std::process::id()] {
        worker_file(data.path(), pid, "http://127.0.0.1:1");
        assert_eq!(run_with(&program, &opener, data.path(), "count").await.exit, Exit::Ok);
    }
}

#[tokio::test]
async fn a_directory_held_for_a_moment_is_waited_for_and_one_held_for_long_is_exit_code_31() {
    let (program, opener) = program(FakeOpener::new(Fake::new()));
    let data = tempfile::tempdir().unwrap();
    *opener.locked.lock().unwrap() = 3;
    assert_eq!(run_with(&program, &opener, data.path(), "count").await.exit, Exit::Ok);

    *opener.locked.lock().unwrap() = usize::MAX;
    let began = Instant::now();
    let locked = run_with(&program, &opener, data.path(), "count").await;
    assert_eq!(locked.exit.number(), 31);
    assert!(locked.stderr.starts_with("error[BOSUN0007]: another process holds "), "{}", locked.stderr);
    assert!(began.elapsed() < Duration::from_secs(60));
    worker_file(data.path(), std::process::id(), "http://127.0.0.1:1");
    let silent = run_with(&program, &opener, data.path(), "count").await;
    assert_eq!(silent.exit.number(), 31);
    assert!(silent.stderr.contains("lives, but nobody answers at http://127.0.0.1:1"), "{}", silent.stderr);
}

/// G27 and G04: the whole life of a worker process, with a fake engine: it serves, it is found, it drains on SIGTERM, it
/// leaves when its log fails. One test, since signals go to the whole process.
#[tokio::test(flavor = "multi_thread")]
async fn a_worker_serves_until_it_is_told_to_stop_or_its_log_fails() {
    let data = tempfile::tempdir().unwrap();
    let path = data.path().to_owned();
    let (drained, served_calls) = worker_life(&path, |_| {
        rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::TERM).unwrap();
    })
    .await;
    assert_eq!(drained, Exit::Ok);
    let counted = "count \"WorkflowType != 'bosun.notification' AND Namespace IN ('default')\"".to_owned();
    assert!(served_calls.contains(&counted), "the client was attached: {served_calls:?}");
    let (failed, _) = worker_life(&path, |opener| {
        *opener.engine.backend.health.lock().unwrap() = EngineHealth::StorageFailed { why: "EIO".into() };
        opener.engine.failed.send_replace(true);
    })
    .await;
    assert_eq!(failed.number(), 74);
}

async fn worker_life(data: &Path, end: impl FnOnce(&FakeOpener)) -> (Exit, Vec<String>) {
    let (program, opener) = program(FakeOpener::new(Fake::new()));
    let (path, worker) = (data.to_owned(), opener.clone());
    let running = tokio::spawn(async move { run_with(&program, &worker, &path, "worker run -o json").await });
    let file = tokio::time::timeout(Duration::from_secs(60), async {
        loop {
            match WorkerFile::read(data) {
                Some(file) => break file,
                None => tokio::time::sleep(Duration::from_millis(10)).await,
            }
        }
    });
    let file = file.await.unwrap();
    assert_eq!(file.pid, std::process::id());
    // A client whose own engine would say no: only the attached way can answer.
    let (client, closed) = super::tests::program(FakeOpener::new(Fake::rejecting(Rejection::ShuttingDown)));
    let count = run_with(&client, &closed, data, "count").await;
    assert_eq!((count.exit, count.stdout.as_str()), (Exit::Ok, "1\n"), "{}", count.stderr);
    let named = run_with(&client, &closed, data, &format!("count --address {}", file.address)).await;
    assert_eq!((named.exit, named.stdout.as_str()), (Exit::Ok, "1\n"), "{}", named.stderr);
    end(&opener);
    let http = HttpClient::new(&file.address, Token::read(&file.token_file).unwrap(), "token").unwrap();
    let failing = *opener.engine.failed.borrow();
    if failing {
        let health = http.health().await.unwrap();
        assert_eq!(
            health,
            EngineHealth::StorageFailed { why: "EIO".into() },
            "the failure shows before the process leaves"
        );
    }
    let ended = tokio::time::timeout(Duration::from_secs(60), running).await.unwrap().unwrap();
    assert!(ended.json()["address"].as_str().is_some_and(|address| address == file.address));
    assert_eq!(WorkerFile::read(data), None, "the file is taken away");
    assert_eq!(*opener.engine.drained.borrow(), !failing);
    (ended.exit, opener.engine.backend.calls())
}

/// The commands of one line of a shell, as far as a guide needs it: words in quotes, what `;`, `|` and `&` separate, comments.
fn commands_of(line: &str) -> Vec<Vec<String>> {
    let (mut all, mut words, mut word, mut within) = (Vec::new(), Vec::new(), None::<String>, None);
    let mut chars = line.chars().peekable();
    while let Some(c) = chars.next() {
        match (within, c) {
            (Some(quote), c) if c == quote => within = None,
            (Some(_), c) => word.get_or_insert_default().push(c),
            // What another command prints is one word.
            (None, '$') if chars.peek() == Some(&'(') => {
                chars.by_ref().take_while(|c| *c != ')').for_each(drop);
                word.get_or_insert_default().push_str("printed");
            }
            (None, '\'' | '"') => {
                within = Some(c);
                word.get_or_insert_default();
            }
            (None, '#') if word.is_none() => break,
            (None, ';' | '|' | '&' | '>') => {
                words.extend(word.take());
                all.push(std::mem::take(&mut words));
            }
            (None, c) if c.is_whitespace() => words.extend(word.take()),
            (None, c) => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    all.push(words);
    // Variables stand before the program.
    let program = |words: Vec<String>| words.into_iter().skip_while(|word| word.contains('=')).collect::<Vec<_>>();
    all.into_iter().map(program).filter(|words| words.first().is_some_and(|first| first == "bosun")).collect()
}

/// Every command that the guide or the README prints is one of this program, with these options.
#[test]
fn every_command_of_the_guide_is_one() {
    let readme = ("README", include_str!("../../../README.md"));
    let pages = crate::guide::CHAPTERS.iter().map(|chapter| (chapter.name, chapter.text)).chain([readme]);
    let mut seen = 0;
    for (page, text) in pages {
        for block in text.split("\n```").skip(1).step_by(2) {
            let Some((kind, body)) = block.split_once('\n') else { continue };
            if !["console", "sh"].contains(&kind) {
                continue;
            }
            let typed = body.lines().any(|line| line.starts_with("$ "));
            let body = body.replace("\\\n", " ");
            for line in body.lines() {
                let Some(line) = (if typed { line.strip_prefix("$ ") } else { Some(line) }) else { continue };
                for words in commands_of(line) {
                    seen += 1;
                    if let Err(why) = Cli::try_parse_from(&words)
                        && !matches!(
                            why.kind(),
                            clap::error::ErrorKind::DisplayHelp | clap::error::ErrorKind::DisplayVersion
                        )
                    {
                        panic!("{page}: {line}\n{why}");
                    }
                }
            }
        }
    }
    assert!(seen > 100, "{seen} commands");
}
