//! People in whole runs: the supervisor through the engine's driver, in virtual time, restored from its snapshot after
//! every event.

use std::sync::Arc;

use bosun_engine::workflow::WorkflowRegistry;
use bosun_engine::{ActivityRegistry, CloseOutcome, Command, RunId};
use serde_json::{Value, json};

use crate::capability::{self, CapabilityConfig};
use crate::stage::{Cue, Played, Stage};
use crate::supervisor::run::{SUPERVISOR, register};
use crate::supervisor::spec::read_spec;

/// Two tasks in parallel, then one that needs them: each takes ten seconds.
const PLAN: &str = "
preset: shannon-supervisor
script:
  - on: plan
    say:
      complexity: 0.5
      tasks:
        - { id: A, goal: Size }
        - { id: B, goal: Rivals }
        - { id: C, goal: Report, deps: [A, B] }
  - { on: advise, say: { strategy: parallel, confidence: 0.5 } }
  - { on: fetch_memory, say: { memories: [] } }
  - { on: execute_worker, task: A, say: { result: big, confidence: 0.9 }, after: 10s }
  - { on: execute_worker, task: B, say: { result: few, confidence: 0.9 }, after: 10s }
  - { on: execute_worker, task: C, say: { result: enter, confidence: 0.9 }, after: 10s }
  - { on: compensate, say: { undone: \"{{task}}\" } }
  - { on: synthesize, say: Enter the market. }
";

/// `PLAN` with something else in a line.
fn plan(from: &str, to: &str) -> String {
    assert!(PLAN.contains(from), "{from}");
    PLAN.replace(from, to)
}

async fn play(spec: &str, cues: Vec<Cue>) -> Played {
    let text = format!("kind: supervisor\nname: people\nobjective: Analyse the market\n{spec}");
    let spec = read_spec("people.yaml", &text).unwrap_or_else(|why| panic!("{why}")).spec;
    let mut activities = ActivityRegistry::new();
    capability::register(&mut activities, &CapabilityConfig::default()).unwrap();
    let stage = Arc::new(Stage { workflows: register(WorkflowRegistry::new()), activities });
    stage.play(SUPERVISOR, json!({ "spec": spec }), cues).await
}

fn id(what: &str) -> String {
    format!("{}/{what}", RunId([5; 16]))
}

fn answer(n: u32, approved: bool, more: Value) -> Value {
    let mut answer = json!({ "approval_id": id(&format!("ap-{n}")), "approved": approved, "approver": "ann" });
    answer.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    answer
}

fn respond(n: u32, approved: bool, more: Value) -> Cue {
    Cue::Signal("approval_response_v1", answer(n, approved, more))
}

fn some(value: &Value) -> bool {
    value.as_array().is_some_and(|list| !list.is_empty())
}

/// Goes on until somebody is asked for an approval.
fn asked() -> Cue {
    Cue::Until("pending_approvals", some)
}

/// Goes on until a worker asks something.
fn interrupted() -> Cue {
    Cue::Until("pending_interrupts", some)
}

fn statuses(report: &Value) -> Vec<String> {
    let tasks = report["tasks"].as_array().unwrap();
    tasks
        .iter()
        .map(|task| format!("{}={}", task["task_id"].as_str().unwrap(), task["status"].as_str().unwrap()))
        .collect()
}

#[track_caller]
fn completed(played: &Played) -> Value {
    match &played.outcome {
        CloseOutcome::Completed(output) => output.to_json(),
        other => panic!("expected a completed run, got {other:?}"),
    }
}

#[track_caller]
fn failed(played: &Played) -> String {
    match &played.outcome {
        CloseOutcome::Failed(why) => why.message.clone(),
        other => panic!("expected a failed run, got {other:?}"),
    }
}

#[track_caller]
fn cancelled(played: &Played) -> Value {
    match &played.outcome {
        CloseOutcome::Canceled(Some(output)) => output.to_json(),
        other => panic!("expected a cancelled run, got {other:?}"),
    }
}

/// The keys of the calls, in the order in which they were made.
fn calls(played: &Played, start: &str) -> Vec<String> {
    let key = |command: &Command| match command {
        Command::ScheduleActivity { options, .. } => options.summary.clone(),
        _ => None,
    };
    played.commands.iter().filter_map(key).filter(|key| key.starts_with(start)).collect()
}

fn control(signal: &'static str) -> Cue {
    Cue::Signal(signal, json!({ "reason": "lunch", "requested_by": "ann" }))
}

/// All notes of a kind that the last query `notes` shows.
fn noted(played: &Played, kind: &str) -> Vec<Value> {
    let notes = played.queries.iter().rev().find_map(|answer| answer["last"].as_array()).unwrap();
    notes.iter().filter(|note| note["kind"] == kind).map(|note| note["data"].clone()).collect()
}

/// Nothing, as long as the task is not planned.
fn of_board(board: &Value, task: &str) -> String {
    let line = board.as_array().unwrap().iter().find(|line| line["task_id"] == task);
    line.map_or_else(String::new, |line| line["status"].as_str().unwrap().to_owned())
}

fn running(board: &Value) -> bool {
    board.as_array().is_some_and(|lines| lines.iter().any(|line| line["status"] == "running"))
}

/// SHN-60, SHN-61, SHN-64, SHN-65, SHN-69, SHN-74: what is in flight finishes, nothing starts while paused, resuming goes
/// on; any number of times, with the checkpoint noted and the status shown.
#[tokio::test]
async fn a_paused_run_finishes_what_is_in_flight_and_starts_nothing() {
    let mut cues = vec![Cue::Until("status_board", running), control("pause_v1"), control("pause_v1")];
    // The two workers end while the run is paused; then nothing moves.
    cues.extend([Cue::Step, Cue::Step, Cue::Step, Cue::Step, Cue::Query("status_board"), Cue::Query("progress")]);
    cues.extend([Cue::Query("control_state_v1"), control("resume_v1"), control("pause_v1"), control("resume_v1")]);
    cues.extend([Cue::Query("control_state_v1"), Cue::Query("progress"), Cue::Query("notes")]);
    let played = play(PLAN, cues).await;
    let [board, paused, state, resumed, running, _] = &played.queries[..] else { panic!() };
    assert_eq!(
        ["A", "B", "C"].map(|task| of_board(board, task)),
        ["running", "running", "pending"],
        "kept, not consumed"
    );
    assert_eq!([&paused["control"], &running["control"]], ["PAUSED", "RUNNING"]);
    assert_eq!(
        [&state["is_paused"], &state["pause_reason"], &state["paused_by"]],
        [&json!(true), &json!("lunch"), &json!("ann")]
    );
    assert_eq!([&resumed["is_paused"], &resumed["pause_reason"]], [&json!(false), &Value::Null]);
    let events: Vec<Value> = noted(&played, "Paused").iter().map(|data| data["event"].clone()).collect();
    assert_eq!(events, ["WORKFLOW_PAUSING", "WORKFLOW_PAUSED", "WORKFLOW_PAUSING", "WORKFLOW_PAUSED"]);
    let checkpoint = noted(&played, "Paused")[1]["checkpoint"].as_str().unwrap().to_owned();
    assert!(checkpoint.starts_with("pre_subtask_"), "{checkpoint}");
    assert_eq!(statuses(&completed(&played)), ["A=completed", "B=completed", "C=completed"]);
    assert_eq!(calls(&played, "execute/").len(), 3, "nothing is done twice");
}

/// SHN-62: a cancel ends the run as cancelled, not failed, with the text, also while it is paused.
#[tokio::test]
async fn a_cancelled_run_is_cancelled_and_not_failed() {
    let begin = || Cue::Until("status_board", running);
    let played = play(PLAN, vec![begin(), control("cancel_v1")]).await;
    let report = cancelled(&played);
    assert_eq!([&report["status"], &report["error"]], ["cancelled", "workflow cancelled: lunch"]);
    assert_eq!(statuses(&report), ["A=cancelled", "B=cancelled", "C=cancelled"]);
    assert_eq!(calls(&played, "execute/C").len(), 0);

    let played = play(PLAN, vec![begin(), control("pause_v1"), control("cancel_v1")]).await;
    assert_eq!(cancelled(&played)["error"], "workflow cancelled while paused: lunch");
}

/// SHN-62: what was done is undone in reverse before a cancelled run closes.
#[tokio::test]
async fn a_cancelled_run_is_compensated() {
    let undo = plan("{ id: A, goal: Size }", "{ id: A, goal: Size, compensation: undo A }")
        .replace("{ id: B, goal: Rivals }", "{ id: B, goal: Rivals, deps: [A], compensation: undo B }");
    let second =
        |board: &Value| board.as_array().is_some_and(|lines| lines.len() == 3) && of_board(board, "C") == "running";
    let played = play(&undo, vec![Cue::Until("status_board", second), control("cancel_v1")]).await;
    assert_eq!(cancelled(&played)["error"], "workflow cancelled: lunch");
    assert_eq!(calls(&played, "compensate/"), ["compensate/B", "compensate/A"]);
}

/// SHN-66, SHN-67, SHN-68: a person takes over, sees where it stands, does a task by hand, adds one, and hands back.
#[tokio::test]
async fn a_person_takes_over_and_hands_back() {
    let cues = vec![
        Cue::Update("complete_task_manually", json!({ "task_id": "C", "result": "no" })),
        Cue::Until("status_board", running),
        control("human_takeover_v1"),
        Cue::Query("progress"),
        Cue::Query("takeover_context"),
        Cue::Update("complete_task_manually", json!({ "task_id": "A", "result": "by hand" })),
        Cue::Query("takeover_context"),
        control("human_release_v1"),
    ];
    let played = play(PLAN, cues).await;
    assert!(played.updates[0].as_ref().unwrap_err().message.contains("human_takeover_v1"));
    assert!(played.updates[1].is_ok());
    let [progress, before, after] = &played.queries[..] else { panic!() };
    let handed = &progress["handed"];
    assert_eq!([&handed["status"], &handed["message"]], ["handed_to_human", "Task handed to human for processing"]);
    assert_eq!([&before["total_steps"], &before["pending_tasks"]], [&json!(3), &json!(["A", "B", "C"])]);
    assert_eq!([&after["completed_tasks"], &after["pending_tasks"]], [&json!(["A"]), &json!(["B", "C"])]);
    assert_eq!(after["intermediate_results"], json!({ "A": "by hand" }));
    let report = completed(&played);
    assert_eq!(statuses(&report), ["A=completed", "B=completed", "C=completed"]);
}

/// SHN-68: after a takeover the person may cancel.
#[tokio::test]
async fn a_person_takes_over_and_cancels() {
    let cues = vec![Cue::Until("status_board", running), control("human_takeover_v1"), control("cancel_v1")];
    assert_eq!(cancelled(&play(PLAN, cues).await)["error"], "workflow cancelled: lunch");
}

const PUBLISH: &str = "{ id: C, goal: Report, deps: [A, B], action: publish report, required: true }";

fn publishing() -> String {
    plan("{ id: C, goal: Report, deps: [A, B] }", PUBLISH)
}

/// SHH-07, SHH-08, SHH-13, SHH-18: a sensitive task waits for a person; notified, approved, logged, done once.
#[tokio::test]
async fn a_sensitive_task_waits_for_its_approval() {
    let cues = vec![
        asked(),
        Cue::Query("pending_approvals"),
        Cue::Query("status_board"),
        respond(2, true, json!({})),
        respond(1, true, json!({ "comment": "fine" })),
        respond(1, false, json!({})),
        Cue::Query("notes"),
    ];
    let played = play(&publishing(), cues).await;
    let shown = &played.queries[0][0];
    assert_eq!([&shown["task_id"], &shown["action"], &shown["risk"]], ["C", "publish report", "high"]);
    assert_eq!(shown["reasons"], json!(["Sensitive operation requires approval: publish report"]));
    assert_eq!(of_board(&played.queries[1], "C"), "awaiting_approval");
    let ignored: Vec<Value> = noted(&played, "ApprovalIgnored").iter().map(|data| data["reason"].clone()).collect();
    assert_eq!(ignored, ["unknown", "duplicate"]);
    assert_eq!(statuses(&completed(&played))[2], "C=completed");
    assert_eq!(calls(&played, "execute/C").len(), 1);
    assert_eq!(calls(&played, "approval/").len(), 2, "one notice, one entry in the log");
}

/// SHH-10: rejected and required fails the run with the seed's text; rejected and optional skips the task.
#[tokio::test]
async fn a_rejection_fails_the_run_or_skips_the_task() {
    let no = || vec![asked(), respond(1, false, json!({ "comment": "too early" }))];
    let text = "Required task rejected: Sensitive operation requires approval: publish report (ann: too early)";
    assert_eq!(failed(&play(&publishing(), no()).await), text);
    let optional = publishing().replace(", required: true", "");
    let played = play(&optional, no()).await;
    assert_eq!(statuses(&completed(&played)), ["A=completed", "B=completed", "C=skipped"]);
    assert_eq!(calls(&played, "execute/C").len(), 0);
}

/// SHH-09, SHH-11: nobody answers for half an hour: rejected, or approved where the spec says so; late answers are too late.
#[tokio::test]
async fn an_approval_that_nobody_answers_is_decided_by_time() {
    let text = "Required task rejected: Sensitive operation requires approval: publish report (Approval timeout, \
                auto-rejected)";
    let played = play(&publishing(), vec![]).await;
    assert_eq!(failed(&played), text);
    assert!(played.took.as_secs() >= 30 * 60 + 10 && played.took.as_secs() < 31 * 60, "{:?}", played.took);
    let approve = format!("hitl: {{ approval: {{ timeout: 5m, on_timeout: approve }} }}{}", publishing());
    assert_eq!(statuses(&completed(&play(&approve, vec![]).await))[2], "C=completed");
    let critical = approve.replace("required: true", "required: true, risk: critical");
    assert_eq!(failed(&play(&critical, vec![]).await), text);
}

/// SHH-12: Modify and Retry sends the task back with the feedback; it is asked for again and done once.
#[tokio::test]
async fn modify_and_retry_asks_again() {
    let again = |pending: &Value| pending[0]["id"].as_str().is_some_and(|id| id.ends_with("/ap-2"));
    let cues = vec![
        asked(),
        respond(1, false, json!({ "feedback": "softer words" })),
        Cue::Until("pending_approvals", again),
        respond(2, true, json!({})),
    ];
    let played = play(&publishing(), cues).await;
    assert_eq!(statuses(&completed(&played))[2], "C=completed");
    assert_eq!(calls(&played, "execute/C").len(), 1);
}

/// SHH-12: an approval with another action is an approval: the task starts, and nobody is asked again.
#[tokio::test]
async fn an_approval_with_another_action_starts_the_task() {
    let cues =
        vec![asked(), respond(1, true, json!({ "modified_action": "publish draft" })), Cue::Query("pending_approvals")];
    let played = play(&publishing(), cues).await;
    assert_eq!(statuses(&completed(&played))[2], "C=completed");
    assert_eq!(played.queries, [json!([])]);
}

/// SHH-18, SHH-04: a result that proposes something sensitive waits, and so does one of low confidence; the escalation is
/// resolved by the answer.
#[tokio::test]
async fn a_result_that_must_be_looked_at_waits() {
    for (reply, reason) in [
        ("{ result: enter, confidence: 0.9, action: publish }", "Sensitive operation requires approval: publish"),
        ("{ result: enter, confidence: 0.59 }", "Confidence too low: 0.59 < 0.60"),
        ("{ result: enter, cost: 1.01 }", "Cost exceeds limit: $1.01 > $1.00"),
    ] {
        let spec = plan("task: C, say: { result: enter, confidence: 0.9 }", &format!("task: C, say: {reply}"));
        let cues =
            vec![asked(), Cue::Query("pending_approvals"), respond(1, true, json!({})), Cue::Query("escalations")];
        let played = play(&spec, cues).await;
        assert_eq!(played.queries[0][0]["reasons"][0], reason);
        assert_eq!(played.queries[0][0]["context"]["result"], "enter");
        let escalation = &played.queries[1][0];
        assert_eq!([&escalation["primary"], &escalation["resolution"]], [reason, "approved"]);
        assert_eq!(statuses(&completed(&played))[2], "C=completed");
        assert_eq!(calls(&played, "execute/C").len(), 1, "the work is done once");
    }
    let fine = plan("confidence: 0.9", "confidence: 0.6");
    assert_eq!(
        play(&fine, vec![Cue::Until("status_board", running), Cue::Query("escalations")]).await.queries,
        [json!([])]
    );
}

/// SHH-15: what is for notice only is recorded, and nobody waits.
#[tokio::test]
async fn a_notice_makes_nobody_wait() {
    let spec =
        plan("task: C, say: { result: enter, confidence: 0.9 }", "task: C, say: { result: enter, confidence: 0.1 }");
    let quiet = format!("hitl: {{ notify_only: [confidence] }}{spec}");
    let played = play(&quiet, vec![]).await;
    assert_eq!(statuses(&completed(&played))[2], "C=completed");
    assert!(played.took.as_secs() < 60, "{:?}", played.took);
}

/// SHH-19: a person reviews an ordinary result; suggestions become feedback, and the task is done again.
#[tokio::test]
async fn a_person_reviews_ordinary_results() {
    let spec = format!("review: {{ human: true }}{PLAN}");
    let again = |pending: &Value| pending[0]["id"].as_str().is_some_and(|id| id.ends_with("/ap-3"));
    let both = |pending: &Value| pending.as_array().is_some_and(|list| list.len() == 2);
    let cues = vec![
        Cue::Until("pending_approvals", both),
        respond(1, false, json!({ "feedback": "name the sources" })),
        respond(2, true, json!({})),
        Cue::Until("pending_approvals", again),
        respond(3, true, json!({})),
        Cue::Until("pending_approvals", |pending| pending[0]["id"].as_str().is_some_and(|id| id.ends_with("/ap-4"))),
        respond(4, true, json!({})),
    ];
    let played = play(&spec, cues).await;
    assert_eq!(statuses(&completed(&played)), ["A=completed", "B=completed", "C=completed"]);
    assert_eq!(calls(&played, "execute/A").len() + calls(&played, "execute/B").len(), 3, "one was done again");
}

/// SHH-05, SHT-01: in command every task is asked for; the mode can be set while it runs.
#[tokio::test]
async fn in_command_every_task_is_asked_for_until_the_mode_is_set() {
    let spec = format!("hitl: {{ mode: human_in_command }}{PLAN}");
    let both = |pending: &Value| pending.as_array().is_some_and(|list| list.len() == 2);
    let cues = vec![
        Cue::Update("set_hitl_mode", json!({ "mode": "nobody" })),
        Cue::Until("pending_approvals", both),
        Cue::Query("trust_level"),
        Cue::Update("set_hitl_mode", json!({ "mode": "human_in_the_loop" })),
        respond(1, true, json!({})),
        respond(2, true, json!({})),
        Cue::Until("status_board", |board| of_board(board, "C") == "running"),
        Cue::Query("trust_level"),
    ];
    let played = play(&spec, cues).await;
    assert!(played.updates[0].as_ref().unwrap_err().message.starts_with("invalid hitl mode: mode: "));
    let [novice, later] = &played.queries[..] else { panic!() };
    assert_eq!([&novice["level"], &novice["mode"]], ["novice", "human_in_command"]);
    assert_eq!([&later["mode"], &later["tasks_completed"]], [&json!("human_in_the_loop"), &json!(2)]);
    assert_eq!(statuses(&completed(&played)), ["A=completed", "B=completed", "C=completed"]);
}

/// SHT-05, SHT-06: an incident that is reported takes the level away at once.
#[tokio::test]
async fn an_incident_takes_the_level_away() {
    let cues = vec![
        Cue::Until("status_board", running),
        Cue::Update("report_incident", json!({ "severity": "serious" })),
        Cue::Query("trust_level"),
        asked(),
        respond(1, true, json!({})),
    ];
    let played = play(PLAN, cues).await;
    assert_eq!([&played.queries[0]["level"], &played.queries[0]["mode"]], ["novice", "human_in_command"]);
    assert_eq!(statuses(&completed(&played))[2], "C=completed");
}

/// SHH-14: a plan whose complexity reaches the threshold is approved before anything starts; denied, the run says so.
#[tokio::test]
async fn a_complex_plan_is_approved_first() {
    let complex = plan("complexity: 0.5", "complexity: 0.8");
    let played = play(&complex, vec![asked(), Cue::Query("pending_approvals"), respond(1, true, json!({}))]).await;
    assert_eq!(played.queries[0][0]["reasons"], json!(["Complexity score 0.80 exceeds threshold 0.80"]));
    assert_eq!(statuses(&completed(&played)), ["A=completed", "B=completed", "C=completed"]);
    let played = play(&complex, vec![asked(), respond(1, false, json!({ "comment": "too broad" }))]).await;
    assert_eq!(failed(&played), "approval denied: too broad");
    assert_eq!(calls(&played, "execute/").len(), 0);
}

fn reviewed() -> String {
    format!("planning: {{ approval: {{ required: true }} }}{PLAN}")
}

fn proposed() -> Cue {
    Cue::Until("plan_review", |review| review["status"] == "reviewing")
}

/// CUG-18, CUG-30, CUG-31, CUG-45, SHH-22: the run waits with the structured plan; approved, exactly that is executed and
/// no model is asked for a plan again.
#[tokio::test]
async fn an_approved_plan_is_executed_as_it_was_shown() {
    let cues = vec![
        proposed(),
        Cue::Query("plan_review"),
        Cue::Update("approve_plan", json!({ "version": 7 })),
        Cue::Update("approve_plan", json!({ "version": 1, "approver": "ann" })),
        Cue::Update("approve_plan", json!({ "version": 1, "approver": "bob" })),
        Cue::Update("plan_feedback", json!({ "version": 1, "message": "more" })),
    ];
    let played = play(&reviewed(), cues).await;
    let shown = &played.queries[0];
    assert_eq!([&shown["version"], &shown["plan_approved"]], [&json!(1), &json!(false)]);
    assert_eq!(shown["current_plan"]["tasks"].as_array().unwrap().len(), 3);
    let stale = "Conflict: plan has been updated. Please review the latest version.";
    assert_eq!(played.updates[0].as_ref().unwrap_err().message, stale);
    assert!(played.updates[1].is_ok() && played.updates[2].is_ok(), "{:?}", played.updates);
    assert_eq!(played.updates[3].as_ref().unwrap_err().message, "Review already approved");
    assert_eq!(statuses(&completed(&played)), ["A=completed", "B=completed", "C=completed"]);
    assert_eq!(calls(&played, "plan/").len(), 1);
}

/// CUG-32: denied, the answer says that it was cancelled, and nothing is delegated.
#[tokio::test]
async fn a_denied_plan_delegates_nothing() {
    let deny = json!({ "version": 1, "approved": false, "approver": "ann", "comment": "too dear" });
    let played = play(&reviewed(), vec![proposed(), Cue::Update("approve_plan", deny)]).await;
    let report = cancelled(&played);
    assert_eq!(report["final_result"], "Execution cancelled: the plan was not approved: too dear");
    assert!(report["error"].as_str().unwrap().contains("cancelled"), "{report}");
    assert_eq!(calls(&played, "execute/").len(), 0);
}

/// SHH-21, SHH-23, SHH-26: feedback makes a new version; a planner that fails withdraws it, and the old version stands.
#[tokio::test]
async fn a_plan_is_made_again_until_it_is_approved() {
    let twice = reviewed().replace(
        "  - on: plan\n    say:",
        "  - { on: plan, contains: impossible, fail: no model }\n  - { on: plan, contains: shorter, say: { tasks: [ { id: S, goal: Short } ] } }\n  - { on: execute_worker, task: S, say: short }\n  - on: plan\n    say:",
    );
    let cues = vec![
        proposed(),
        Cue::Update("plan_feedback", json!({ "version": 1, "message": "impossible" })),
        proposed(),
        Cue::Query("plan_review"),
        Cue::Update("plan_feedback", json!({ "version": 1, "message": "shorter" })),
        Cue::Until("plan_review", |review| review["version"] == 2),
        Cue::Query("plan_review"),
        Cue::Update("approve_plan", json!({ "version": 2, "approver": "ann" })),
    ];
    let played = play(&twice, cues).await;
    assert!(played.updates.iter().all(Result::is_ok), "{:?}", played.updates);
    let [withdrawn, second] = &played.queries[..] else { panic!() };
    assert_eq!([&withdrawn["version"], &withdrawn["round"]], [&json!(1), &json!(1)]);
    assert_eq!(withdrawn["rounds"].as_array().unwrap().len(), 1, "the message is gone");
    assert_eq!(second["current_plan"]["tasks"][0]["id"], "S");
    assert_eq!(statuses(&completed(&played)), ["S=completed"]);
}

/// SHH-25: a plan that nobody looks at for 15 minutes fails the run.
#[tokio::test]
async fn a_plan_that_nobody_reviews_times_out() {
    let played = play(&reviewed(), vec![]).await;
    assert_eq!(failed(&played), "research plan review timed out");
    assert!((15 * 60..16 * 60).contains(&played.took.as_secs()), "{:?}", played.took);
}

/// SHH-16: a planner that thinks longer than the limit is escalated, and its plan is taken when it comes.
#[tokio::test]
async fn a_slow_decision_is_escalated() {
    let slow = plan("  - on: plan\n", "  - on: plan\n    after: 6m\n");
    let cues = vec![Cue::Until("escalations", some), Cue::Query("escalations")];
    let played = play(&slow, cues).await;
    assert_eq!(played.queries[0][0]["primary"], "Decision timeout");
    assert_eq!(statuses(&completed(&played)), ["A=completed", "B=completed", "C=completed"]);
}

const ASKS: &str = "  - { on: execute_worker, task: A, attempt: 1, say: { interrupt: How old? }, after: 1s }
  - { on: execute_worker, task: A, attempt: 2, say: { interrupt: Really? }, after: 1s }
  - { on: execute_worker, task: A, say: { result: \"{{context.resume}}\", confidence: 0.9 }, after: 1s }
";

fn asking() -> String {
    PLAN.replace("  - { on: execute_worker, task: A, say: { result: big, confidence: 0.9 }, after: 10s }\n", ASKS)
}

/// LGI-01, LGI-04, LGI-08, LGI-09, LGI-10: a worker asks, is answered, asks again, and ends with all its answers; nothing
/// that was done is done again, and the update of the state is there when it goes on.
#[tokio::test]
async fn a_worker_asks_until_it_is_content() {
    let resume = |n: u32, value: &str, update: Value| {
        Cue::Update(
            "respond_interrupt",
            json!({ "interrupt_id": id(&format!("in-{n}")), "resume": value, "update": update }),
        )
    };
    let second = |pending: &Value| pending[0]["index"] == 2;
    let cues = vec![
        interrupted(),
        Cue::Query("pending_interrupts"),
        resume(1, "13", json!({})),
        resume(1, "14", json!({})),
        Cue::Until("pending_interrupts", second),
        resume(2, "19", json!({ "checked": true })),
        Cue::Until("status_board", |board| of_board(board, "A") == "completed"),
        Cue::Query("takeover_context"),
    ];
    let played = play(&asking(), cues).await;
    assert_eq!(played.queries[0][0]["payload"], "How old?");
    assert!(played.updates[1].as_ref().unwrap_err().message.contains("answered already"));
    let told = &played.queries[1]["intermediate_results"]["A"];
    assert_eq!(*told, json!({ "answers": ["13", "19"], "state": { "checked": true } }));
    completed(&played);
    assert_eq!(calls(&played, "execute/A").len(), 3, "each part once");
    assert_eq!(calls(&played, "execute/B").len(), 1, "work of others is not done again");
}

/// LGI-05: several tasks wait; without an id the answer is refused with LangGraph's text, with one it reaches its own.
#[tokio::test]
async fn several_questions_need_the_id() {
    let spec = PLAN
        .replace("task: A, say: { result: big, confidence: 0.9 }", "task: A, attempt: 1, say: { interrupt: a }")
        .replace("task: B, say: { result: few, confidence: 0.9 }", "task: B, attempt: 1, say: { interrupt: b }")
        .replace(
            "  - { on: compensate",
            "  - { on: execute_worker, say: { result: known, confidence: 0.9 } }\n  - { on: compensate",
        );
    let both = |pending: &Value| pending.as_array().is_some_and(|list| list.len() == 2);
    let cues = vec![
        Cue::Until("pending_interrupts", both),
        Cue::Update("respond_interrupt", json!({ "resume": 1 })),
        Cue::Signal("interrupt_resume_v1", json!({ "interrupt_id": id("in-2"), "resume": 2 })),
        Cue::Query("pending_interrupts"),
        Cue::Signal("interrupt_resume_v1", json!({ "resume": 1 })),
    ];
    let played = play(&spec, cues).await;
    assert_eq!(
        played.updates[0].as_ref().unwrap_err().message,
        "When there are multiple pending interrupts, you must specify the interrupt id when resuming."
    );
    assert_eq!(played.queries[0].as_array().unwrap().len(), 1);
    assert_eq!(statuses(&completed(&played)), ["A=completed", "B=completed", "C=completed"]);
}

/// SHN-62, SHH-11: a run that is cancelled while a person is asked ends at once, and an answer after that changes nothing.
#[tokio::test]
async fn a_run_may_be_cancelled_while_it_waits_for_people() {
    let played = play(&publishing(), vec![asked(), control("cancel_v1")]).await;
    assert_eq!(statuses(&cancelled(&played)), ["A=completed", "B=completed", "C=cancelled"]);
    let played = play(&asking(), vec![interrupted(), control("cancel_v1")]).await;
    assert_eq!(cancelled(&played)["error"], "workflow cancelled: lunch");
}

/// SHH-17: a task whose capability nobody has is a low-priority escalation; the plan is repaired by the supervisor.
#[tokio::test]
async fn a_task_that_nobody_can_do_is_escalated() {
    let spec = "
preset: pydantask-llm
agents: [ { name: ann, capability: research } ]
script:
  - { on: decide, round: 1, say: { reasoning: r, tasks_to_execute: [], tool_calls: [
      { name: add_task, args: { sub_task_objective: paint it, capability: painting } } ] } }
  - { on: decide, say: { reasoning: r, tasks_to_execute: [] } }
";
    let played = play(spec, vec![Cue::Until("escalations", some), Cue::Query("escalations")]).await;
    let escalation = &played.queries[0][0];
    assert_eq!(escalation["primary"], "Out of scope: no registered agent or tool matches 'painting'");
    assert_eq!([&escalation["blocking"], &escalation["reasons"][0]["priority"]], [&json!(false), &json!("low")]);
}

/// LGI-07: a question may wait for so long only; then its default is the answer, or the attempt has failed.
#[tokio::test]
async fn a_question_may_have_a_deadline() {
    let with = |payload: &str| {
        asking()
            .replace("interrupt: How old?", &format!("interrupt: {payload}"))
            .replace("interrupt: Really?", "result: old")
    };
    let played = play(&with("{ question: How old?, timeout: 10m, default: 7 }"), vec![]).await;
    assert_eq!(statuses(&completed(&played))[0], "A=completed");
    assert_eq!(calls(&played, "execute/A").len(), 2);
    assert!(played.took.as_secs() >= 600 && played.took.as_secs() < 700, "{:?}", played.took);

    let cues = vec![Cue::Until("status_board", |board| of_board(board, "A") == "completed"), Cue::Query("notes")];
    let played = play(&with("{ question: How old?, timeout: 10m }"), cues).await;
    completed(&played);
    let failed = noted(&played, "AttemptFailed");
    assert_eq!(failed.iter().map(|data| data["error"].clone()).collect::<Vec<_>>(), ["Interrupt timed out"]);
}

/// SHH-01: what needs a person can be changed while a run goes on; what does not conform is refused.
#[tokio::test]
async fn the_policy_can_be_set_while_it_runs() {
    let cues = vec![
        Cue::Until("status_board", running),
        Cue::Update("set_policy", json!({ "keywords": [] })),
        Cue::Update("set_policy", json!({ "plan_keywords": [] })),
    ];
    let played = play(&publishing().replace(", action: publish report", ", action: share it"), cues).await;
    assert!(played.updates[0].as_ref().unwrap_err().message.starts_with("invalid policy: "));
    assert!(played.updates[1].is_ok());
    assert_eq!(statuses(&completed(&played))[2], "C=completed");
    assert!(played.took.as_secs() < 60, "nobody was asked: {:?}", played.took);
}
