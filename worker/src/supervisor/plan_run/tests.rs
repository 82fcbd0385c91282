//! The plan runner through the real driver, with real commands in a directory of its own.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use bosun_engine::{ActivityRegistry, CloseOutcome, Command};

use super::*;
use crate::capability::{self, CapabilityConfig};
use crate::stage::{Cue, Played, Stage};

mod rows;

fn stage() -> Arc<Stage> {
    let mut activities = ActivityRegistry::new();
    capability::register(&mut activities, &CapabilityConfig::default()).unwrap();
    Arc::new(Stage { workflows: register(WorkflowRegistry::new()), activities })
}

fn fixture(name: &str) -> (PathBuf, String) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/plans").join(name);
    let text = std::fs::read_to_string(&path).unwrap_or_else(|why| panic!("{}: {why}", path.display()));
    (path, text)
}

fn input(yaml: &str, directory: &Path) -> Value {
    let input = PlanRunInput::read("p.yaml", yaml, directory.to_str().unwrap()).unwrap_or_else(|why| panic!("{why}"));
    serde_json::to_value(input).unwrap()
}

async fn play(yaml: &str, directory: &Path, cues: Vec<Cue>) -> Played {
    stage().play(PLAN_RUN, input(yaml, directory), cues).await
}

#[track_caller]
fn output(played: &Played) -> PlanRunOutput {
    match &played.outcome {
        CloseOutcome::Completed(result) => result.decode().unwrap(),
        other => panic!("expected a completed run, got {other:?}"),
    }
}

fn scheduled(played: &Played) -> Vec<String> {
    let summary = |command: &Command| match command {
        Command::ScheduleActivity { options, .. } => options.summary.clone(),
        _ => None,
    };
    played.commands.iter().filter_map(summary).map(|text| text.split(':').next().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn the_small_plan_runs_to_its_report() {
    let dir = tempfile::tempdir().unwrap();
    let (_, yaml) = fixture("small.yaml");
    let played = play(&yaml, dir.path(), vec![]).await;
    let output = output(&played);
    assert_eq!(output.status, PlanRunStatus::Completed, "{:#?}", output.errors);
    let attempts: Vec<u32> = output.tasks.iter().map(|task| task.attempt).collect();
    assert_eq!(attempts, [1, 2, 1, 1], "the second task needs the critic's feedback");
    let report = output.final_result.unwrap().output["report"].as_str().unwrap().to_owned();
    assert_eq!(std::fs::read_to_string(dir.path().join("target/small-report.md")).unwrap(), report);
}

/// The main job: the audit of a repository runs on any directory, with git or without.
#[tokio::test]
async fn the_audit_runs_on_a_plain_directory() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(dir.path().join("src")).unwrap();
    let code = "// TODO: better\n#[test]\nfn works() {}\nfn f() { unsafe { g() } }\n";
    std::fs::write(dir.path().join("src/lib.rs"), code).unwrap();
    let (_, yaml) = fixture("audit.yaml");
    let played = play(&yaml, dir.path(), vec![]).await;
    let output = output(&played);
    assert_eq!(output.status, PlanRunStatus::Completed, "{:#?}", output.errors);
    let report = std::fs::read_to_string(dir.path().join("target/audit-report.md")).unwrap();
    for part in ["not a git repository", "no Cargo.lock", "src/lib.rs", "TODO: better", "unsafe { g() }", "works"] {
        assert!(report.contains(part), "{part:?} is not in the report:\n{report}");
    }
    assert!(output.tasks.iter().any(|task| task.attempt == 2), "one task is sent back once");
}

/// The main job on real input: this repository.
#[tokio::test]
async fn the_audit_runs_on_this_repository() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").canonicalize().unwrap();
    let (_, yaml) = fixture("audit.yaml");
    let out = format!("target/audit-of-test-{}.md", std::process::id());
    let played = play(&yaml.replace("target/audit-report.md", &out), &root, vec![]).await;
    let report = std::fs::read_to_string(root.join(&out)).unwrap();
    std::fs::remove_file(root.join(&out)).unwrap();
    assert_eq!(output(&played).status, PlanRunStatus::Completed, "{:#?}", output(&played).errors);
    for part in ["packages: ", "tests: ", "worker/src/capability/process/group.rs", "verdict: look"] {
        assert!(report.contains(part), "{part:?} is not in the report:\n{report}");
    }
}

/// PDT-38 to PDT-42 and the checks of parameters: each bad plan beside its expected text.
#[test]
fn bad_plans_are_refused_with_the_expected_text() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/plans/bad");
    let mut count = 0;
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|extension| extension != "yaml") {
            continue;
        }
        count += 1;
        let name = path.file_name().unwrap().to_str().unwrap();
        let yaml = std::fs::read_to_string(&path).unwrap();
        let why = PlanRunInput::read(name, &yaml, "/").expect_err(name).to_string();
        let expected = std::fs::read_to_string(path.with_extension("expected")).expect(name);
        assert_eq!(why.trim(), expected.trim(), "{name}");
    }
    assert!(count >= 10, "found {count} bad plans");
}

const FLAKY: &str = "
objective: flaky
tasks:
  - task_id: 1
    sub_task_objective: fails once, then works
    capability: process
    parameters: { argv: [sh, -c, 'test -e mark || { touch mark; echo broken >&2; exit 1; }; echo done'] }
  - task_id: 2
    sub_task_objective: never good enough
    capability: process
    max_attempts: 2
    parameters: { argv: [echo, bad], review: { contains_all: good } }
  - task_id: 3
    sub_task_objective: waits for both
    capability: process
    sub_task_dependencies: [1, 2]
    parameters: { argv: [echo, never] }
";

/// PDT-16, PDT-23, PDT-26: through the driver, with real commands.
#[tokio::test]
async fn a_plan_whose_final_task_cannot_run_fails_with_a_report_of_every_task() {
    let dir = tempfile::tempdir().unwrap();
    let played = play(FLAKY, dir.path(), vec![]).await;
    let CloseOutcome::Failed(failure) = &played.outcome else { panic!("{:?}", played.outcome) };
    assert_eq!(failure.type_name(), PLAN_FAILED);
    assert_eq!(
        failure.message,
        "the plan failed: Task 2 is failed: Max retries reached (2/2).; Task 3 is pending: waiting on deps [2 (failed)]"
    );
    let bosun_engine::FailureKind::Application { details: Some(details), .. } = &failure.kind else { panic!() };
    let output: PlanRunOutput = details.decode().unwrap();
    assert_eq!((output.status, output.tasks.len()), (PlanRunStatus::Failed, 3));
    assert!(output.report.contains("| 1 | fails once, then works | completed | 2/3 |"), "{}", output.report);
    assert_eq!(scheduled(&played)[..2], ["task-1-attempt-1", "task-2-attempt-1"]);
    assert_eq!(scheduled(&played).len(), 4);
}

const SLOW: &str = "
objective: slow
tasks:
  - { task_id: 1, sub_task_objective: sleeps, capability: process, parameters: { argv: [sleep, '600'] } }
  - { task_id: 2, sub_task_objective: after, capability: process, sub_task_dependencies: [1], parameters: { argv: ['true'] } }
  - { task_id: 3, sub_task_objective: beside, capability: process, parameters: { argv: ['true'] }, is_final: true }
";

#[tokio::test]
async fn cancelling_the_run_stops_its_commands_and_ends_as_canceled() {
    let dir = tempfile::tempdir().unwrap();
    let started = std::time::Instant::now();
    let played = play(SLOW, dir.path(), vec![Cue::Cancel]).await;
    let CloseOutcome::Canceled(Some(details)) = &played.outcome else { panic!("{:?}", played.outcome) };
    let output: PlanRunOutput = details.decode().unwrap();
    assert_eq!(output.status, PlanRunStatus::Cancelled);
    assert!(started.elapsed() < std::time::Duration::from_secs(120));
}

/// PDT-20, PDT-52: a signal cancels one task and what waits for it; the rest goes on.
#[tokio::test]
async fn a_signal_cancels_one_task() {
    let dir = tempfile::tempdir().unwrap();
    let cues = vec![
        Cue::Query("status_board"),
        Cue::Signal(SIGNAL_CANCEL_TASK, json!({ "task_id": 1, "reason": "too slow" })),
        Cue::Step,
        Cue::Query("progress"),
    ];
    let played = play(SLOW, dir.path(), cues).await;
    let board = "Objective: slow\n[1] running attempt 1/3: sleeps\n\
                 [2] pending attempt 0/3: after - waiting on deps [1 (running)]\n[3] running attempt 1/3: beside (final)\n";
    assert_eq!(played.queries[0], board);
    let progress: crate::supervisor::PlanProgress = serde_json::from_value(played.queries[1].clone()).unwrap();
    assert_eq!((progress.total, progress.tasks.len()), (3, 3));
    let output = output(&played);
    assert_eq!(output.status, PlanRunStatus::Partial);
    assert_eq!(
        output.errors,
        [
            "Task 1 is cancelled: Task 1 cancelled. Reason: too slow",
            "Task 2 is cancelled: Upstream dependency Task 1 was cancelled."
        ]
    );
}

#[tokio::test]
async fn queries_answer_after_the_end() {
    let dir = tempfile::tempdir().unwrap();
    let yaml = "objective: o\ntasks: [{task_id: 1, sub_task_objective: t, capability: process, parameters: {argv: [echo, hi]}}]";
    let cues = vec![Cue::Step, Cue::Query("report"), Cue::Query("get_plan"), Cue::Query("progress")];
    let played = play(yaml, dir.path(), cues).await;
    let [report, plan, progress] = played.queries.as_slice() else { panic!("{:?}", played.queries) };
    assert!(report.as_str().unwrap().starts_with("# o\n"));
    assert_eq!(plan["tasks"][0]["task_id"], 1);
    assert_eq!(progress["tasks"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn an_input_that_is_no_plan_fails_the_run_by_name() {
    let dir = tempfile::tempdir().unwrap();
    let mut relative = input(SLOW, dir.path());
    relative["directory"] = "here".into();
    let mut dangling = input(SLOW, dir.path());
    dangling["plan"]["tasks"][0]["sub_task_dependencies"] = json!([9]);
    for (input, expected) in
        [(relative, "the directory \"here\" is not absolute"), (dangling, "seed_plan task 1 depends on missing task 9")]
    {
        let played = stage().play(PLAN_RUN, input, vec![]).await;
        let CloseOutcome::Failed(failure) = &played.outcome else { panic!("{:?}", played.outcome) };
        assert_eq!((failure.type_name(), failure.message.as_str()), (INVALID_PLAN, expected));
    }
}
