//! The scheduler, event by event: results in, dispatches and statuses out.

use std::fmt::Write as _;

use bosun_engine::{ActivityId, RetryState};
use serde_json::json;

use super::*;
use crate::supervisor::core::retry::DELIVERIES_MAX;
use crate::supervisor::read_plan;
use crate::supervisor::report::PlanRunStatus;

/// A run of a plan with a clock that ticks a second with every step.
struct Run {
    execution: PlanExecution,
    now: Timestamp,
}

impl Run {
    fn of(tasks: &str, max_concurrent_tasks: u32) -> Run {
        let plan = read_plan("p", &format!("objective: all\ntasks:\n{tasks}"), true).unwrap();
        let execution = PlanExecution::new(plan, "/work".into(), max_concurrent_tasks, Timestamp::ZERO).unwrap();
        Run { execution, now: Timestamp::ZERO }
    }
    fn tick(&mut self) -> Timestamp {
        self.now = self.now.plus(std::time::Duration::from_secs(1));
        self.now
    }
    fn claim(&mut self) -> Vec<ScheduleTask> {
        let now = self.tick();
        self.execution.claim(now)
    }
    /// The ids that start now.
    fn starts(&mut self) -> Vec<u32> {
        self.claim().iter().map(|dispatch| dispatch.task.0).collect()
    }
    fn prints(&mut self, id: u32, stdout: &str) {
        let now = self.tick();
        self.execution.ended(TaskNumber(id), Ok(json!({ "exit_code": 0, "stdout": stdout })), now);
    }
    fn fails(&mut self, id: u32, failure: Failure) {
        let now = self.tick();
        let kind = FailureKind::Activity {
            activity_type: "process".into(),
            activity_id: ActivityId::of("1"),
            retry_state: RetryState::NonRetryableFailure,
        };
        let outer = Failure { message: "activity failed".into(), kind, cause: None }.because(failure);
        self.execution.ended(TaskNumber(id), Err(outer), now);
    }
    fn finish(&mut self) -> PlanRunStatus {
        assert!(self.starts().is_empty() && self.execution.is_over());
        let now = self.tick();
        self.execution.finish(now);
        self.execution.status()
    }
    fn statuses(&self) -> String {
        self.execution.tasks.iter().fold(String::new(), |mut text, (id, task)| {
            let _ = write!(text, "{id}:{} ", task.status);
            text
        })
    }
    fn task(&self, id: u32) -> &TaskRun {
        &self.execution.tasks[&TaskNumber(id)]
    }
}

/// A task in flow style whose command is `true`.
fn task(id: u32, dependencies: &str, parameters: &str) -> String {
    format!(
        "- {{task_id: {id}, sub_task_objective: t{id}, capability: process, sub_task_dependencies: {dependencies}, \
         parameters: {{argv: ['true']{parameters}}}}}\n"
    )
}

fn error() -> Failure {
    Failure::application("ProcessExit", "sh exited with code 1")
}

/// PDT-13: a task is runnable exactly when all its dependencies are completed.
#[test]
fn tasks_start_when_all_their_dependencies_are_completed() {
    let mut run =
        Run::of(&[task(1, "[]", ""), task(2, "[]", ""), task(3, "[1, 2]", ""), task(4, "[3]", "")].concat(), 4);
    assert_eq!(run.starts(), [1, 2]);
    assert_eq!(run.statuses(), "1:running 2:running 3:pending 4:pending ");
    run.prints(1, "a");
    assert_eq!(run.starts(), [] as [u32; 0]);
    run.prints(2, "b");
    assert_eq!(run.starts(), [3]);
    run.prints(3, "c");
    assert_eq!(run.starts(), [4]);
    run.prints(4, "d");
    assert_eq!(run.finish(), PlanRunStatus::Completed);
}

/// PDT-15: a claim is a change to running; nothing that runs is dispatched again.
#[test]
fn a_claimed_task_is_not_dispatched_twice() {
    let mut run = Run::of(&task(1, "[]", ""), 4);
    assert_eq!(run.starts(), [1]);
    assert_eq!(run.starts(), [] as [u32; 0]);
    assert_eq!(run.task(1).iteration_history.len(), 1);
}

/// PDT-17: tasks that are ready together run together, up to the limit, lowest id first.
#[test]
fn concurrency_is_bounded_and_lower_ids_go_first() {
    let mut run = Run::of(&[3, 1, 5, 2, 4].map(|id| task(id, "[]", "")).concat(), 2);
    assert_eq!(run.starts(), [1, 2]);
    run.prints(2, "x");
    assert_eq!(run.starts(), [3]);
    run.prints(1, "x");
    run.prints(3, "x");
    assert_eq!(run.starts(), [4, 5]);
}

/// PDT-16, PDT-22: a result clears the error; a passed review completes the task.
#[test]
fn a_result_that_passes_review_completes_the_task() {
    let mut run = Run::of(&task(1, "[]", ", review: {contains_all: ok}"), 4);
    run.starts();
    run.fails(1, error());
    assert_eq!(run.task(1).error_msg.as_deref(), Some("ProcessExit: sh exited with code 1"));
    run.starts();
    run.prints(1, "ok");
    assert_eq!((run.task(1).status, &run.task(1).error_msg), (TaskStatus::Completed, &None));
    assert_eq!(run.task(1).attempt_count, 2);
}

/// PDT-21, PDT-24: a rejection counts, appends its feedback to the objective, and the next attempt hears it.
#[test]
fn a_rejected_result_is_revised_with_the_feedback() {
    let parameters =
        ", env: {F: '{{feedback}}', N: '{{attempt}}', O: '{{task.objective}}'}, review: {contains_all: [a, b]}";
    let mut run = Run::of(&task(1, "[]", parameters), 4);
    let env = |dispatches: Vec<ScheduleTask>| dispatches[0].input["env"].clone();
    assert_eq!(env(run.claim()), json!({ "F": "", "N": "1", "O": "t1" }));
    run.prints(1, "a");
    assert_eq!((run.task(1).status, run.task(1).attempt_count), (TaskStatus::NeedsRevision, 1));
    let objective = "t1\n\nPrevious attempt failed review; feedback: the output lacks \"b\"";
    assert_eq!(run.task(1).sub_task_objective, objective);
    assert_eq!(env(run.claim()), json!({ "F": "the output lacks \"b\"", "N": "2", "O": objective }));
    run.prints(1, "b");
    let objective = format!("{objective}\n\nPrevious attempt failed review; feedback: the output lacks \"a\"");
    assert_eq!(run.task(1).sub_task_objective, objective, "feedback is cumulative");
    run.claim();
    run.prints(1, "ab");
    assert_eq!((run.task(1).status, run.task(1).attempt_count), (TaskStatus::Completed, 3));
    let feedback = run.task(1).iteration_history.iter().map(|record| record.task_feedback.clone().unwrap().passed);
    assert_eq!(feedback.collect::<Vec<_>>(), [false, false, true]);
}

/// PDT-23: the last rejection fails the task with the exact text. FAILED does not cascade (PDT-20).
#[test]
fn the_last_rejection_fails_the_task_and_dependents_wait() {
    let tasks =
        [task(1, "[]", ", review: {contains_all: never}"), task(2, "[1]", ""), task(3, "[]", ""), task(4, "[2]", "")];
    let mut run = Run::of(&tasks.concat(), 4);
    assert_eq!(run.starts(), [1, 3]);
    run.prints(3, "fine");
    for _ in 0..3 {
        run.prints(1, "no");
        run.starts();
    }
    assert_eq!(run.task(1).error_msg.as_deref(), Some("Max retries reached (3/3)."));
    assert_eq!(run.statuses(), "1:failed 2:pending 3:completed 4:pending ");
    assert_eq!(run.finish(), PlanRunStatus::Failed);
    assert_eq!(
        run.execution.errors(),
        [
            "Task 1 is failed: Max retries reached (3/3).",
            "Task 2 is pending: waiting on deps [1 (failed)]",
            "Task 4 is pending: waiting on deps [2 (pending)]"
        ]
    );
}

/// PDT-26: an error consumes an attempt, is never reviewed, and is the feedback of the next attempt.
#[test]
fn errors_consume_attempts_but_no_review() {
    let mut run = Run::of(&task(1, "[]", ", env: {F: '{{feedback}}'}, review: {contains_all: ok}"), 4);
    run.claim();
    run.fails(1, error());
    assert_eq!(run.claim()[0].input["env"]["F"], "ProcessExit: sh exited with code 1");
    run.fails(1, error());
    run.claim();
    run.fails(1, error());
    assert_eq!(run.task(1).status, TaskStatus::Failed);
    let expected = "Max retries reached (3/3). Last error: ProcessExit: sh exited with code 1";
    assert_eq!(run.task(1).error_msg.as_deref(), Some(expected));
    assert!(run.task(1).iteration_history.iter().all(|record| record.task_feedback.is_none()));
    assert_eq!(run.finish(), PlanRunStatus::Failed);
}

#[test]
fn an_error_that_cannot_pass_fails_the_task_at_once() {
    let mut run = Run::of(&task(1, "[]", ""), 4);
    run.starts();
    run.fails(1, Failure::application("ProcessSpawn", "no such command").non_retryable());
    assert_eq!(run.task(1).error_msg.as_deref(), Some("ProcessSpawn: no such command"));
    assert_eq!(run.finish(), PlanRunStatus::Failed);
}

/// §5.2, PDT-51: a lost worker costs no attempt, and not for ever.
#[test]
fn a_lost_worker_costs_no_attempt() {
    let mut run = Run::of(&task(1, "[]", ", env: {N: '{{attempt}}'}"), 4);
    let lost = || Failure { message: "gone".into(), kind: FailureKind::WorkerLost, cause: None };
    for _ in 0..=DELIVERIES_MAX {
        assert_eq!(run.claim()[0].input["env"]["N"], "1");
        assert_eq!((run.task(1).attempt_count, run.task(1).iteration_history.len()), (0, 1));
        run.fails(1, lost());
    }
    assert_eq!(run.task(1).attempt_count, 1, "a task that takes its worker down each time is at fault itself");
}

#[test]
fn results_of_dependencies_reach_argv_and_stdin() {
    let second = "- {task_id: 2, sub_task_objective: t, capability: process, sub_task_dependencies: [1], \
                  parameters: {argv: [echo, '<{{task.1.line}}>', '{{task.1.exit_code}}'], stdin_from: 1, cwd: sub, timeout: 5s}}";
    let mut run = Run::of(&(task(1, "[]", "") + second), 4);
    run.starts();
    run.prints(1, "out put\n");
    let dispatch = run.claim().remove(0);
    assert_eq!(dispatch.activity_type.as_str(), "process");
    assert_eq!(dispatch.options.start_to_close, Some(std::time::Duration::from_secs(20)));
    assert_eq!(dispatch.options.summary.as_deref(), Some("task-2-attempt-1: t"));
    let input: crate::capability::process::ProcessInput = serde_json::from_value(dispatch.input).unwrap();
    assert_eq!(input.argv, ["echo", "<out put>", "0"]);
    assert_eq!((input.stdin.as_deref(), input.timeout_ms), (Some("out put\n"), Some(5_000)));
    assert_eq!((input.jail, input.cwd), (Some("/work".into()), Some("sub".into())));
}

#[test]
fn a_placeholder_without_a_value_fails_the_task_by_name() {
    let second = "- {task_id: 2, sub_task_objective: t, capability: process, sub_task_dependencies: [1], \
                  parameters: {argv: [echo, '{{task.1.files.x.size}}']}}";
    let mut run = Run::of(&(task(1, "[]", "") + second), 4);
    run.starts();
    run.prints(1, "x");
    assert_eq!(run.starts(), [] as [u32; 0]);
    assert_eq!(run.task(2).error_msg.as_deref(), Some("the result of task 1 has no `files.x.size`"));
}

/// PDT-10: final and completed; then with text; then a producer; then the newest.
#[test]
fn the_final_result_is_chosen_in_order() {
    let tasks = [1, 2, 3].map(|id| task(id, "[]", ""));
    let chosen = |outputs: [Option<&str>; 3], order: [u32; 3], last_is_final: bool| {
        let text = format!("objective: o\ntasks:\n{}", tasks.concat());
        let plan = read_plan("p", &text, last_is_final).unwrap();
        let execution = PlanExecution::new(plan, "/".into(), 4, Timestamp::ZERO).unwrap();
        let mut run = Run { execution, now: Timestamp::ZERO };
        run.starts();
        for id in order {
            match outputs[id as usize - 1] {
                Some(text) => run.prints(id, text),
                None => run.fails(id, error().non_retryable()),
            }
        }
        run.execution.final_task().map(|id| id.0)
    };
    assert_eq!(chosen([Some("a"), Some("b"), Some("")], [1, 2, 3], true), Some(3), "the final one, though it is empty");
    assert_eq!(chosen([Some("a"), Some("b"), None], [2, 1, 3], true), Some(2), "the highest with a text");
    assert_eq!(chosen([Some("a"), Some(""), Some("")], [1, 2, 3], false), Some(1), "the only one with a text");
    assert_eq!(chosen([Some(""), Some(" "), Some("")], [3, 2, 1], false), Some(1), "the newest");
    assert_eq!(chosen([None, None, None], [1, 2, 3], true), None);
}

#[test]
fn a_failed_side_task_makes_the_run_partial() {
    let mut run = Run::of(&[task(1, "[]", ""), task(2, "[]", "")].concat(), 4);
    run.starts();
    run.fails(1, error().non_retryable());
    run.prints(2, "final");
    assert_eq!(run.finish(), PlanRunStatus::Partial);
    let output = run.execution.output();
    assert_eq!(output.final_result.unwrap().output["stdout"], "final");
    assert_eq!(output.errors.len(), 1);
}

/// PDT-20: cancelling a task cancels those that wait for it, and theirs.
#[test]
fn a_cancelled_task_takes_its_dependents_along() {
    let tasks = [task(1, "[]", ""), task(2, "[1]", ""), task(3, "[2]", ""), task(4, "[]", "")];
    let mut run = Run::of(&tasks.concat(), 4);
    run.starts();
    let now = run.tick();
    assert_eq!(run.execution.cancel_task(TaskNumber(1), "not needed", now), Some(true));
    assert_eq!(run.execution.cancel_task(TaskNumber(1), "again", now), None);
    assert_eq!(run.execution.cancel_task(TaskNumber(9), "unknown", now), None);
    assert_eq!(run.statuses(), "1:cancelled 2:cancelled 3:cancelled 4:running ");
    assert_eq!(run.task(2).error_msg.as_deref(), Some("Upstream dependency Task 1 was cancelled."));
    assert_eq!(run.task(3).error_msg.as_deref(), Some("Upstream dependency Task 2 was cancelled."));
    // PDT-52: its result comes too late.
    run.prints(1, "late");
    assert_eq!((run.task(1).status, &run.task(1).result), (TaskStatus::Cancelled, &None));
}

#[test]
fn a_cancelled_run_starts_nothing_and_waits_for_what_runs() {
    let mut run = Run::of(&[task(1, "[]", ""), task(2, "[]", ""), task(3, "[1]", "")].concat(), 2);
    run.starts();
    let now = run.tick();
    run.execution.cancel("enough", now);
    assert_eq!(run.statuses(), "1:running 2:running 3:cancelled ");
    run.fails(1, Failure::canceled("stopped"));
    run.prints(2, "just in time");
    assert_eq!(run.finish(), PlanRunStatus::Cancelled);
    assert_eq!(run.statuses(), "1:cancelled 2:completed 3:cancelled ");
}

#[test]
fn the_report_shows_every_task_and_what_was_sent_back() {
    let tasks = [task(1, "[]", ", review: {min_lines: 2}"), task(2, "[1]", ""), task(3, "[1]", "")];
    let mut run = Run::of(&tasks.concat(), 4);
    run.starts();
    run.prints(1, "one");
    run.starts();
    run.prints(1, "one|\ntwo");
    run.starts();
    run.fails(2, error().non_retryable());
    run.prints(3, "the end");
    run.finish();
    let expected = "\
# all

partial - 2 of 3 tasks completed in 9.0 s.

| Task | | Status | Attempts | Time | Result |
|---|---|---|---|---|---|
| 1 | t1 | completed | 2/3 | 3.0 s | one\\| |
| 2 | t2 | failed | 1/3 | 1.0 s | ProcessExit: sh exited with code 1 |
| 3 | t3 | completed | 1/3 | 2.0 s | the end |

## Attempts that were not accepted

- Task 1, attempt 1: the output has 1 lines, at least 2 are needed
- Task 2, attempt 1: ProcessExit: sh exited with code 1

## Result of task 3

the end
";
    assert_eq!(run.execution.report(), expected);
}

#[test]
fn the_state_survives_a_round_trip() {
    let mut run = Run::of(&[task(1, "[]", ", review: {contains_all: x}"), task(2, "[1]", "")].concat(), 4);
    run.starts();
    run.prints(1, "y");
    let json = serde_json::to_string(&run.execution).unwrap();
    assert_eq!(serde_json::from_str::<PlanExecution>(&json).unwrap(), run.execution);
}

/// What a plan to run must not have, each with its place.
#[test]
fn work_that_cannot_be_run_is_refused_when_the_run_begins() {
    let why = |capability: &str, parameters: &str| {
        let task =
            format!("- {{task_id: 1, sub_task_objective: t, capability: {capability}, parameters: {{{parameters}}}}}");
        let plan = read_plan("p", &format!("objective: o\ntasks:\n{task}"), true).unwrap();
        PlanExecution::new(plan, "/".into(), 4, Timestamp::ZERO).unwrap_err().to_string()
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
