//! Slips in a scene that would let it pass for nothing: each is refused, or told.

use super::file::Scene;
use super::ways::{Choice, play};

const SPEC: &str = "
scene: a plan of two steps
spec: { kind: supervisor, preset: flow-plan-and-execute, objective: o, agents: [{ name: executor }] }
world:
  - { on: plan, say: { tasks: [{ id: a, goal: one, agent: executor }, { id: b, goal: two, agent: executor, deps: [a] }] } }
  - { on: execute_worker, after: 1s, say: done }
  - { on: synthesize, say: all is done }
";

fn seen(more: &str) -> Result<Vec<(String, String, String)>, String> {
    let none = |name: &str| Err(format!("there is no {name}"));
    let scene = Scene::read("scene.yaml", &format!("{SPEC}{more}\n"), &none).map_err(|why| why.to_string())?;
    let workflows = crate::supervisor::run::register(bosun_engine::workflow::WorkflowRegistry::new());
    let played = play(&scene, &workflows, &Choice { ways: vec!["straight".to_owned()], ..Choice::default() });
    Ok(played.failures.into_iter().map(|one| (one.at, one.expected, one.seen)).collect())
}

/// It is played, and does not pass: here is what it says.
#[track_caller]
fn fails(more: &str, says: &str) {
    let all = seen(more).unwrap();
    let (at, expected, seen) = all.first().unwrap_or_else(|| panic!("it passes: {more}"));
    let told = format!("{at}: expected {expected}, seen {seen}");
    assert!(told.contains(says), "{told}");
}

#[track_caller]
fn refused(more: &str, says: &str) {
    let why = seen(more).unwrap_err();
    assert!(why.contains(says), "{why}");
}

#[test]
fn what_never_is_must_be_something_that_could_be() {
    for none in ["{ event: WorkflowExecutionTerminated }", "{ call: compensate }", "{ execute_worker: a, attempt: 2 }"]
    {
        assert_eq!(seen(&format!("expect: {{ outcome: completed, never: [{none}] }}")), Ok(vec![]), "{none}");
    }
    fails("expect: { never: [{ call: synthesise }] }", "did you mean `synthesize`?");
    fails("expect: { never: [{ call: synthesize }] }", "1 times");
    fails("expect: { never: [{ execute_worker: zebra }] }", "there is no `zebra`: the scene, its spec and its calls");
    fails("expect: { never: [{ foo: bar }] }", "there is no `foo`");
    refused("expect: { never: [{ call: synthesize, task: a, wibble: 3 }] }", "wibble");
    refused("expect: { never: [{ event: ActivityTaskCompletd }] }", "did you mean `ActivityTaskCompleted`?");
}

#[test]
fn a_call_is_named_by_either_word() {
    assert_eq!(seen("expect: { calls: [{ call: synthesize, times: 1 }, { on: plan, times: 1 }] }"), Ok(vec![]));
    fails("expect: { calls: [{ call: synthesize, times: 0 }] }", "1 times");
}

#[test]
fn a_status_that_is_none_is_refused() {
    refused("expect: { report: { tasks: { a: complete } } }", "did you mean `completed`?");
    refused("expect: { report: { tasks: { a: { status: { not: complet } } } } }", "did you mean `completed`?");
    assert_eq!(seen("expect: { report: { tasks: { a: { status: { not: failed } } } } }"), Ok(vec![]));
}

/// A condition that can never come true names what was probably meant.
#[test]
fn a_condition_that_nothing_fulfils_says_why() {
    let when = |when: &str| {
        format!(
            "people: [{{ when: {{ {when} }}, do: pause }}, {{ at: 1h, do: resume }}]\nexpect: {{ outcome: completed }}"
        )
    };
    fails(&when("task: bb, status: running"), "did you mean `b`?");
    fails(&when("query: progres, path: status, equals: x"), "the query progres is refused");
    refused(&when("task: a, status: runing"), "did you mean `running`?");
    refused(&when("call: exceute_worker"), "there is no call `exceute_worker` (did you mean `execute_worker`?)");
}

#[test]
fn what_expects_nothing_is_refused() {
    for (nothing, at) in [
        ("report: {}", "expect.report"),
        ("report: { tasks: {} }", "expect.report.tasks"),
        ("notes: []", "expect.notes"),
        ("never: []", "expect.never"),
        ("calls: []", "expect.calls"),
        ("prompts: []", "expect.prompts"),
        ("queries: []", "expect.queries"),
        ("at: {}", "expect.at"),
        ("at: { 1s: [] }", "expect.at.1s"),
    ] {
        refused(&format!("expect: {{ {nothing} }}"), &format!("{at}: it is empty"));
    }
    refused("expect: { result: { contains: [] } }", "expect.result.contains: it is empty");
}

#[test]
fn what_is_wrong_with_a_context_is_told_of_its_key() {
    let context = |context: &str| format!("context: {context}\nexpect: {{ outcome: completed }}");
    refused(&context("{ depth: x }"), "context.depth: expected a whole number, found string \"x\"");
    refused(&context("{ deep: 1 }"), "unknown field `deep`");
}

#[test]
fn a_fault_after_the_end_is_told() {
    fails(
        "faults: [{ at: 5h, do: kill }]\nexpect: { outcome: completed }",
        "faults[0]: expected the worker is killed at 18000s",
    );
    assert_eq!(seen("faults: [{ at: 1s, do: kill }]\nexpect: { outcome: completed }"), Ok(vec![]));
}

#[test]
fn a_signal_that_says_nothing_is_told() {
    let people = |field: &str| {
        format!(
            "people: [{{ at: 500ms, do: signal, name: cancel_task_v1, input: {{ {field}: b }} }}]\nexpect: {{ success: true }}"
        )
    };
    assert_eq!(seen(&people("task_id")), Ok(vec![]));
    fails(&people("taskid"), "is heard, seen refused: `task_id` names the task to cancel: missing field `task_id`");
    let sent = |name: &str, field: &str| {
        format!(
            "people: [{{ at: 500ms, do: signal, name: {name}, input: {{ {field}: b }} }}]\nexpect: {{ success: true }}"
        )
    };
    fails(&sent("human_input_v1", "mesage"), "people[0]: expected people[0]");
    fails(&sent("approval_response_v1", "aproval_id"), "seen refused: invalid approval response");
    fails(&sent("pause_v1", "reson"), "seen refused: invalid control signal");
    let expected = sent("pause_v1", "reson").replace("success: true", "notes: [{ kind: ActionRefused, times: 1 }]");
    assert_eq!(seen(&expected), Ok(vec![]));
}

#[test]
fn how_long_it_takes_is_told_in_seconds() {
    fails("expect: { takes: 5m }", "expect.takes: expected 300s, seen 2s");
    fails("expect: { takes: { at_most: 1s } }", "expected at most 1s, seen 2s");
}

#[test]
fn the_rules_that_nearly_fit_are_named() {
    let text = "scene: s\nspec: { kind: supervisor, preset: flow-plan-and-execute, objective: o, agents: [{ name: executor }] }\nworld: [{ on: plan, say: { tasks: [{ id: a, goal: one, agent: executor }] } }, { on: execute_worker, task: aa, say: x }]\nexpect: { outcome: completed }";
    let none = |name: &str| Err(format!("there is no {name}"));
    let scene = Scene::read("scene.yaml", text, &none).unwrap();
    let workflows = crate::supervisor::run::register(bosun_engine::workflow::WorkflowRegistry::new());
    let played = play(&scene, &workflows, &Choice::default());
    assert_eq!(played.failures[0].seen, "no rule fits; there are, and want: world[1] { task: aa }");
}

#[test]
fn a_file_that_is_no_scene_is_told_so() {
    let none = |name: &str| Err(format!("there is no {name}"));
    let why = |text: &str| Scene::read("f.yaml", text, &none).unwrap_err().to_string();
    assert!(why("").contains("the file is empty; a scene begins with `scene:"), "{}", why(""));
    assert!(why("kind: supervisor\nobjective: o").contains("this is no scene: run it with `bosun run FILE`"));
}
