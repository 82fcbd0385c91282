//! What plan files promise, row by row, with real commands: claims, attempts, rules, feedback, slots, cancellation.

use bosun_engine::{ActivityType, Command, Failure, FailureKind};

use super::*;
use crate::supervisor::core::retry::DELIVERIES_MAX;
use crate::supervisor::plan_yaml::read_plan;
use crate::supervisor::task::TaskStatus;

fn plan(tasks: &[String]) -> String {
    format!("objective: all\ntasks:\n{}", tasks.concat())
}

/// A task in flow style whose command is this line of a shell.
fn task(id: u32, dependencies: &str, line: &str, parameters: &str) -> String {
    format!(
        "- {{task_id: {id}, sub_task_objective: t{id}, capability: process, sub_task_dependencies: {dependencies}, \
         parameters: {{argv: [sh, -c, '{line}']{parameters}}}}}\n"
    )
}

async fn run(tasks: &[String], cues: Vec<Cue>) -> Played {
    play(&plan(tasks), tempfile::tempdir().unwrap().path(), cues).await
}

/// The report of a run, whatever its end was.
#[track_caller]
fn report(played: &Played) -> PlanRunOutput {
    let details = match &played.outcome {
        bosun_engine::CloseOutcome::Completed(result) => result,
        bosun_engine::CloseOutcome::Canceled(Some(details)) => details,
        bosun_engine::CloseOutcome::Failed(failure) => match &failure.kind {
            FailureKind::Application { details: Some(details), .. } => details,
            other => panic!("{other:?}"),
        },
        other => panic!("{other:?}"),
    };
    details.decode().unwrap()
}

/// What the activities were given, in the order in which they were asked for.
fn inputs(played: &Played) -> Vec<Value> {
    let input = |command: &Command| match command {
        Command::ScheduleActivity { input, .. } => input.decode::<Value>().ok(),
        _ => None,
    };
    played.commands.iter().filter_map(input).collect()
}

fn statuses(output: &PlanRunOutput) -> Vec<TaskStatus> {
    output.tasks.iter().map(|task| task.status).collect()
}

/// PDT-13, PDT-15: a task starts once, when all its dependencies are completed.
#[tokio::test]
async fn tasks_start_when_all_their_dependencies_are_completed() {
    let tasks = [
        task(1, "[]", "true", ""),
        task(2, "[]", "true", ""),
        task(3, "[1, 2]", "true", ""),
        task(4, "[3]", "true", ""),
    ];
    let played = run(&tasks, vec![Cue::Query("status_board")]).await;
    assert_eq!(scheduled(&played), ["task-1-attempt-1", "task-2-attempt-1", "task-3-attempt-1", "task-4-attempt-1"]);
    let board = played.queries[0].as_str().unwrap();
    assert!(board.contains("[3] pending attempt 0/3: t3 - waiting on deps [1 (running), 2 (running)]"), "{board}");
    assert_eq!(output(&played).status, PlanRunStatus::Completed);
}

/// PDT-17: tasks that are ready together run together, up to the limit, lowest id first.
#[tokio::test]
async fn concurrency_is_bounded_and_lower_ids_go_first() {
    let tasks = [3, 1, 5, 2, 4].map(|id| task(id, "[]", "true", ""));
    let dir = tempfile::tempdir().unwrap();
    let mut given = input(&plan(&tasks), dir.path());
    given["max_concurrent_tasks"] = 2.into();
    let played = stage().play(PLAN_RUN, given, vec![Cue::Query("progress")]).await;
    let order: Vec<String> = (1..=5).map(|id| format!("task-{id}-attempt-1")).collect();
    assert_eq!(scheduled(&played), order);
    let rows = played.queries[0]["tasks"].as_array().unwrap();
    let running: Vec<u64> =
        rows.iter().filter(|row| row["status"] == "running").filter_map(|row| row["task_id"].as_u64()).collect();
    assert_eq!(running, [1, 2]);
}

/// PDT-16, PDT-22: a result clears the error; a passed review completes the task.
#[tokio::test]
async fn a_result_that_passes_review_completes_the_task() {
    let line = "if [ $N = 1 ]; then exit 1; fi; echo ok";
    let played = run(
        &[task(1, "[]", line, ", env: {N: \"{{attempt}}\"}, success_codes: [0], review: {contains_all: ok}")],
        vec![],
    )
    .await;
    let task = output(&played).tasks.remove(0);
    assert_eq!((task.status, task.attempt, task.error_msg), (TaskStatus::Completed, 2, None));
    assert_eq!(task.task_feedback.map(|said| said.passed), Some(true));
}

/// PDT-21, PDT-24: a rejection counts, appends its feedback to the objective, and the next attempt hears it.
#[tokio::test]
async fn a_rejected_result_is_revised_with_the_feedback() {
    let parameters =
        ", env: {F: \"{{feedback}}\", N: \"{{attempt}}\", O: \"{{task.objective}}\"}, review: {contains_all: [a, b]}";
    let line = "case $N in 1) echo a;; 2) echo b;; *) echo ab;; esac";
    let beside = task(2, "[1]", "true", "");
    let played = run(
        &[task(1, "[]", line, parameters), beside],
        vec![Cue::Until("progress", |view| view["tasks"][0]["status"] == "completed")],
    )
    .await;
    let env: Vec<Value> = inputs(&played).into_iter().map(|input| input["env"].clone()).collect();
    let first = "t1\n\nPrevious attempt failed review; feedback: the output lacks \"b\"";
    let second = format!("{first}\n\nPrevious attempt failed review; feedback: the output lacks \"a\"");
    assert_eq!(env[0], json!({ "F": "", "N": "1", "O": "t1" }));
    assert_eq!(env[1], json!({ "F": "the output lacks \"b\"", "N": "2", "O": first }));
    assert_eq!(env[2], json!({ "F": "the output lacks \"a\"", "N": "3", "O": second }), "feedback is cumulative");
    let task = output(&played).tasks.remove(0);
    assert_eq!((task.status, task.attempt, task.title.as_str()), (TaskStatus::Completed, 3, "t1"));
}

/// PDT-23: the last rejection fails the task with the exact text. FAILED does not cascade (PDT-20).
#[tokio::test]
async fn the_last_rejection_fails_the_task_and_dependents_wait() {
    let tasks = [
        task(1, "[]", "echo no", ", review: {contains_all: never}"),
        task(2, "[1]", "true", ""),
        task(3, "[]", "echo fine", ""),
        task(4, "[2]", "true", ""),
    ];
    let output = report(&run(&tasks, vec![]).await);
    use TaskStatus::{Completed, Failed, Pending};
    assert_eq!((output.status, statuses(&output)), (PlanRunStatus::Failed, vec![Failed, Pending, Completed, Pending]));
    assert_eq!(
        output.errors,
        [
            "Task 1 is failed: Max retries reached (3/3).",
            "Task 2 is pending: waiting on deps [1 (failed)]",
            "Task 4 is pending: waiting on deps [2 (pending)]"
        ]
    );
}

/// PDT-26: an error consumes an attempt, is never reviewed, and is the feedback of the next attempt.
#[tokio::test]
async fn errors_consume_attempts_but_no_review() {
    let parameters = ", env: {F: \"{{feedback}}\"}, review: {contains_all: ok}";
    let played = run(&[task(1, "[]", "echo broken >&2; exit 1", parameters)], vec![]).await;
    let heard: Vec<String> =
        inputs(&played).iter().map(|input| input["env"]["F"].as_str().unwrap().to_owned()).collect();
    assert_eq!((heard.len(), heard[0].as_str()), (3, ""));
    assert!(heard[1].starts_with("ProcessExit: ") && heard[1] == heard[2], "{heard:?}");
    let output = report(&played);
    let expected = format!("Max retries reached (3/3). Last error: {}", heard[1]);
    assert_eq!((output.status, output.tasks[0].error_msg.as_deref()), (PlanRunStatus::Failed, Some(expected.as_str())));
    assert_eq!(output.tasks[0].task_feedback, None);
}

/// A rejection and then an error: what counts is what was wrong last, and both count.
#[tokio::test]
async fn feedback_is_of_the_attempt_before() {
    let parameters = ", env: {F: \"{{feedback}}\", N: \"{{attempt}}\"}, review: {contains_all: ok}";
    let line = "case $N in 1) echo no;; 2) exit 7;; *) echo ok;; esac";
    let played = run(&[task(1, "[]", line, parameters)], vec![]).await;
    let heard = inputs(&played);
    assert_eq!(heard[1]["env"]["F"], "the output lacks \"ok\"");
    assert!(heard[2]["env"]["F"].as_str().unwrap().starts_with("ProcessExit: "), "{}", heard[2]["env"]["F"]);
    assert_eq!(output(&played).tasks[0].attempt, 3);
}

#[tokio::test]
async fn an_error_that_cannot_pass_fails_the_task_at_once() {
    let yaml = "objective: o\ntasks: [{task_id: 1, sub_task_objective: t, capability: process, parameters: {argv: [/no/such/command]}}]";
    let output = report(&play(yaml, tempfile::tempdir().unwrap().path(), vec![]).await);
    let task = &output.tasks[0];
    let why = task.error_msg.as_deref().unwrap();
    assert_eq!((output.status, task.attempt), (PlanRunStatus::Failed, 1));
    assert!(why.starts_with("ProcessSpawn: "), "{why}");
}

/// §5.2, PDT-51: a lost worker costs no attempt, and not for ever.
#[tokio::test]
async fn a_lost_worker_costs_no_attempt() {
    let mut stage: Stage = std::sync::Arc::into_inner(stage()).unwrap();
    let lost = ActivityType::of("lost");
    stage.activities.register(lost, |_cx, _input: Value| async {
        let gone = Failure { message: "gone".into(), kind: FailureKind::WorkerLost, cause: None };
        Err::<Value, bosun_engine::ActivityError>(gone.into())
    });
    let yaml = "objective: o\ntasks: [{task_id: 1, sub_task_objective: t, capability: activity, max_attempts: 1, \
                parameters: {type: lost, input: \"{{attempt}}\"}}]";
    let dir = tempfile::tempdir().unwrap();
    let played = std::sync::Arc::new(stage).play(PLAN_RUN, input(yaml, dir.path()), vec![]).await;
    let given = inputs(&played);
    assert_eq!(given.len() as u32, DELIVERIES_MAX + 1);
    assert!(given.iter().all(|input| *input == json!(1)), "{given:?}");
    let output = report(&played);
    assert_eq!((output.tasks[0].attempt, output.tasks[0].status), (1, TaskStatus::Failed), "it is at fault itself");
}

#[tokio::test]
async fn results_of_dependencies_reach_argv_and_stdin() {
    let second = "- {task_id: 2, sub_task_objective: t, capability: process, sub_task_dependencies: [1], parameters: \
                  {argv: [cat, '-', '<{{task.1.line}}>', '{{task.1.exit_code}}'], stdin_from: 1, cwd: sub, timeout: 5s, \
                  success_codes: any}}\n";
    let played = run(&[task(1, "[]", "mkdir sub; echo out put", ""), second.to_owned()], vec![]).await;
    let Some(Command::ScheduleActivity { activity_type, options, input, .. }) =
        played.commands.iter().filter(|command| matches!(command, Command::ScheduleActivity { .. })).nth(1)
    else {
        panic!("{:?}", played.commands)
    };
    assert_eq!(activity_type.as_str(), "process");
    assert_eq!(options.start_to_close, Some(std::time::Duration::from_secs(20)));
    assert_eq!(options.summary.as_deref(), Some("task-2-attempt-1: t"));
    let given: crate::capability::process::ProcessInput = input.decode().unwrap();
    assert_eq!(given.argv, ["cat", "-", "<out put>", "0"]);
    assert_eq!((given.stdin.as_deref(), given.timeout_ms), (Some("out put\n"), Some(5_000)));
    assert!(given.jail.is_some() && given.cwd == Some("sub".into()));
    assert_eq!(output(&played).final_result.unwrap().output["stdout"], "out put\n");
}

#[tokio::test]
async fn a_placeholder_without_a_value_fails_the_task_by_name() {
    let second = "- {task_id: 2, sub_task_objective: t, capability: process, sub_task_dependencies: [1], \
                  parameters: {argv: [echo, '{{task.1.files.x.size}}']}}\n";
    let played = run(&[task(1, "[]", "true", ""), second.to_owned()], vec![]).await;
    let output = report(&played);
    assert_eq!(output.tasks[1].error_msg.as_deref(), Some("the result of task 1 has no `files.x.size`"));
    assert_eq!((output.tasks[1].attempt, inputs(&played).len()), (1, 1), "nothing was started, once");
}

/// PDT-10: the final one; else the highest with a text, as people read it.
#[tokio::test]
async fn the_final_result_is_chosen_in_order() {
    let chosen = async |lines: [&str; 3]| {
        let tasks = [1, 2, 3].map(|id| task(id, "[]", lines[id as usize - 1], ""));
        report(&run(&tasks, vec![]).await).final_result.map(|found| found.task_id.0)
    };
    assert_eq!(chosen(["echo a", "echo b", "true"]).await, Some(3), "the final one, though it is empty");
    assert_eq!(chosen(["echo a", "echo b", "exit 1"]).await, Some(2), "the highest with a text");
    assert_eq!(chosen(["echo a", "true", "exit 1"]).await, Some(1), "the only one with a text");
    assert_eq!(chosen(["exit 1", "exit 1", "exit 1"]).await, None);
}

#[tokio::test]
async fn a_failed_side_task_makes_the_run_partial() {
    let output = output(&run(&[task(1, "[]", "exit 1", ""), task(2, "[]", "echo final", "")], vec![]).await);
    assert_eq!((output.status, output.errors.len()), (PlanRunStatus::Partial, 1));
    assert_eq!(output.final_result.unwrap().output["stdout"], "final\n");
}

/// PDT-20, PDT-52: cancelling a task cancels those that wait for it, and theirs; it changes nothing that is over.
#[tokio::test]
async fn a_cancelled_task_takes_its_dependents_along() {
    let tasks = [
        task(1, "[]", "sleep 600", ""),
        task(2, "[1]", "true", ""),
        task(3, "[2]", "true", ""),
        task(4, "[]", "true", ""),
    ];
    let cancel = |value: Value| Cue::Signal(SIGNAL_CANCEL_TASK, value);
    let cues = vec![
        cancel(json!({ "task_id": 9 })),
        cancel(json!({ "task_id": 1 })),
        cancel(json!({ "task_id": 1, "reason": "again" })),
    ];
    let output = output(&run(&tasks, cues).await);
    assert_eq!(
        output.errors,
        [
            "Task 1 is cancelled: Task 1 cancelled. Reason: by signal",
            "Task 2 is cancelled: Upstream dependency Task 1 was cancelled.",
            "Task 3 is cancelled: Upstream dependency Task 2 was cancelled."
        ]
    );
}

/// What the core does for every run, a plan run has too: it stands still when it is paused, and goes on.
#[tokio::test]
async fn a_plan_run_can_be_paused() {
    let tasks = [task(1, "[]", "true", ""), task(2, "[1]", "true", "")];
    let cues = vec![
        Cue::Signal("pause_v1", json!({ "reason": "wait" })),
        Cue::Step,
        Cue::Query("progress"),
        Cue::Query("control_state_v1"),
        Cue::Signal("resume_v1", json!({})),
    ];
    let played = run(&tasks, cues).await;
    assert_eq!(played.queries[0]["tasks"][1]["attempt"], 0, "{}", played.queries[0]);
    assert!(played.queries[1].to_string().contains("paused"), "{}", played.queries[1]);
    assert_eq!(output(&played).status, PlanRunStatus::Completed);
}

#[tokio::test]
async fn the_report_shows_every_task_and_what_was_sent_back() {
    let first = "if [ $N = 1 ]; then echo one; else echo \"one|\"; echo two; fi";
    let tasks = [
        task(1, "[]", first, ", env: {N: \"{{attempt}}\"}, review: {min_lines: 2}"),
        "- {task_id: 2, sub_task_objective: t2, capability: process, sub_task_dependencies: [1], parameters: {argv: [/no/such]}}\n"
            .to_owned(),
        task(3, "[1]", "echo the end", ""),
    ];
    let report = output(&run(&tasks, vec![]).await).report;
    let why = report.lines().find_map(|line| line.strip_prefix("- Task 2, attempt 1: ")).unwrap().to_owned();
    let expected = format!(
        "\
# all

partial - 2 of 3 tasks completed in 0.0 s.

| Task | | Status | Attempts | Time | Result |
|---|---|---|---|---|---|
| 1 | t1 | completed | 2/3 | 0.0 s | one\\| |
| 2 | t2 | failed | 1/3 | 0.0 s | {why} |
| 3 | t3 | completed | 1/3 | 0.0 s | the end |

## Attempts that were not accepted

- Task 1, attempt 1: the output has 1 lines, at least 2 are needed
- Task 2, attempt 1: {why}

## Result of task 3

the end
"
    );
    assert_eq!(report, expected);
}

/// What a plan to run must not have, each with its place.
#[test]
fn work_that_cannot_be_run_is_refused_when_the_run_begins() {
    let why = |capability: &str, parameters: &str| {
        let task =
            format!("- {{task_id: 1, sub_task_objective: t, capability: {capability}, parameters: {{{parameters}}}}}");
        let plan = read_plan("p", &format!("objective: o\ntasks:\n{task}"), true).unwrap();
        work::check(&plan, &|_| false).unwrap_err().to_string()
    };
    let cases = [
        ("magic", "", "task 1.capability: Unknown capability: 'magic'; known: process, http, compose, activity"),
        ("process", "", "task 1.parameters.argv: required key `argv` is missing"),
        ("process", "argv: []", "task 1.parameters.argv: argv is empty; its first entry must name the command"),
        ("process", "argv: [a, 1]", "task 1.parameters.argv[1]: expected a text, found a number"),
        ("process", "argv: a b", "task 1.parameters.argv: expected a list, found a text"),
        (
            "process",
            "argv: [a], cwd: ../x",
            "task 1.parameters.cwd: \"../x\" must be a path inside the plan's directory",
        ),
        ("process", "argv: [a], env: {A: 1}", "task 1.parameters.env.A: expected a text, found a number"),
        (
            "process",
            "argv: [a], stdin: x, stdin_from: 2",
            "task 1.parameters.stdin_from: either stdin or stdin_from, not both",
        ),
        (
            "process",
            "argv: [a], stdin_from: 2",
            "task 1.parameters.stdin_from: task 2 is not in the sub_task_dependencies of task 1",
        ),
        (
            "process",
            "argv: [a], timeout: 5d",
            "task 1.parameters.timeout: expected a duration longer than zero, such as 500ms, 30s, 5m or 1h, found \"5d\"",
        ),
        (
            "process",
            "argv: ['{{x}}']",
            "task 1.parameters.argv[0]: unknown placeholder {{x}}; known: attempt, feedback, objective, task.objective, task.<id>.<field>",
        ),
        ("http", "url: 'http://x', body: a, json: {}", "task 1.parameters.json: either body or json, not both"),
        (
            "compose",
            "title: t, sections: [{heading: h}]",
            "task 1.parameters.sections[0].text: required key `text` is missing",
        ),
        (
            "compose",
            "title: t, out: /etc/x",
            "task 1.parameters.out: \"/etc/x\" must be a path inside the plan's directory",
        ),
        ("activity", "input: 1", "task 1.parameters.type: required key `type` is missing"),
    ];
    for (capability, parameters, expected) in cases {
        assert_eq!(why(capability, parameters), expected);
    }
}
