//! Routes, simple requests, decompositions, and strategies that step down.

use serde_json::{Value, json};

use super::*;
use crate::supervisor::spec::{Degrade, DepsTo, Routing};

fn shape(subtasks: usize, has_dependencies: bool) -> RoutingInput {
    RoutingInput { subtasks, has_dependencies, ..RoutingInput::default() }
}

fn decoded(value: Value) -> PlannerOutput {
    crate::supervisor::reading::read("plan", &value).unwrap()
}

fn task(id: &str) -> Value {
    json!({ "id": id, "description": "d" })
}

fn with(mut task: Value, field: &str, value: Value) -> Value {
    task[field] = value;
    task
}

/// SHN-01, SHN-04: more than five subtasks or any dependency need a supervisor, as do teams that change or talk; three
/// to five are a graph, one or two simple.
#[test]
fn the_router_goes_by_shape() {
    let rules = Routing::default();
    for (subtasks, has_dependencies, to) in [
        (0, false, Route::SimpleTask),
        (1, false, Route::SimpleTask),
        (2, false, Route::SimpleTask),
        (3, false, Route::Dag),
        (5, false, Route::Dag),
        (6, false, Route::Supervisor),
        (2, true, Route::Supervisor),
        (5, true, Route::Supervisor),
        (40, true, Route::Supervisor),
    ] {
        assert_eq!(route(shape(subtasks, has_dependencies), &rules), to, "{subtasks} {has_dependencies}");
    }
    assert_eq!(route(RoutingInput { dynamic: true, ..shape(1, false) }, &rules), Route::Supervisor);
    assert_eq!(route(RoutingInput { communicates: true, ..shape(3, false) }, &rules), Route::Supervisor);
    let talking = decoded(json!({ "subtasks": [with(task("a"), "produces", json!(["x"])), task("b"), task("c")] }));
    assert_eq!(route(RoutingInput::of(&talking), &rules), Route::Supervisor);
    let dependent = decoded(json!({ "subtasks": [task("a"), with(task("b"), "dependencies", json!(["a"]))] }));
    assert_eq!(RoutingInput::of(&dependent), shape(2, true));
}

/// SHN-04: the thresholds are settings.
#[test]
fn the_thresholds_can_be_set() {
    let rules = Routing { supervisor_above: 2, deps_to: DepsTo::Dag, simple_up_to: 0, ..Routing::default() };
    let routes = [(0, false), (1, false), (2, true), (3, false)].map(|(n, deps)| route(shape(n, deps), &rules));
    assert_eq!(routes, [Route::SimpleTask, Route::Dag, Route::Dag, Route::Supervisor]);
}

/// SHN-02: simple is less complex than 0.3 and no subtask, or one that needs no tools; 0.3 is not simple.
#[test]
fn a_simple_request_is_handed_on() {
    let rules = Routing::default();
    let simple = |complexity: f64, subtasks: Value| {
        is_simple(&decoded(json!({ "complexity_score": complexity, "subtasks": subtasks })), &rules)
    };
    let one = || json!([task("a")]);
    let with_tool = json!([with(task("a"), "suggested_tools", json!(["web"]))]);
    for (complexity, subtasks, is) in [
        (0.0, json!([]), true),
        (0.29, json!([]), true),
        (0.3, json!([]), false),
        (0.29, one(), true),
        (0.2999, one(), true),
        (0.3, one(), false),
        (0.1, with_tool, false),
        (0.1, json!([task("a"), task("b")]), false),
    ] {
        assert_eq!(simple(complexity, subtasks.clone()), is, "{complexity} {subtasks}");
    }
    assert!(!is_simple(&decoded(json!({ "subtasks": one() })), &rules), "nobody called it simple");
    // As Shannon's code has it: nothing to do is always simple. One subtask keeps to the rule.
    let zero = Routing { zero_subtasks_simple: true, ..rules };
    let complex = |subtasks: Value| decoded(json!({ "complexity_score": 0.9, "subtasks": subtasks }));
    assert!(is_simple(&complex(json!([])), &zero));
    assert!(!is_simple(&complex(one()), &zero));
}

/// SHN-03: tools, dependencies, topics or parameters, each alone; empty or absent ones do not count.
#[test]
fn a_subtask_needs_tools_by_what_it_names() {
    let needs =
        |field: &str, value: Value| needs_tools(&serde_json::from_value(with(task("a"), field, value)).unwrap());
    for list in ["suggested_tools", "dependencies", "produces", "consumes"] {
        assert!(needs(list, json!(["x"])), "{list}");
        assert!(!needs(list, json!([])), "{list}");
    }
    assert!(needs("tool_parameters", json!({ "q": 1 })));
    assert!(!needs("tool_parameters", json!({})));
    assert!(!needs("role", json!("writer")));
}

/// SHN-73: the checkpoints of the router and of its children by name.
#[test]
fn routes_and_children_have_their_checkpoints() {
    assert_eq!(PRE_ROUTING, "pre_routing");
    let checkpoints = [Route::SimpleTask, Route::Supervisor, Route::Dag].map(Route::checkpoint);
    assert_eq!(checkpoints, ["pre_simple_workflow", "pre_supervisor_workflow", "pre_dag_workflow"]);
    assert_eq!(CHILD_CHECKPOINTS, ["pre_execution", "post_agent", "pre_completion"]);
}

/// FSC-04: parallel without review, sequential dependencies, quality loop.
#[test]
fn flow_work_goes_to_the_system_that_fits() {
    let fitting = [(false, false), (false, true), (true, false), (true, true)].map(|(loops, dependencies)| {
        let system = FlowSystem::fitting(loops, dependencies);
        system.preset()
    });
    assert_eq!(fitting, ["flow-coordinator", "flow-plan-and-execute", "flow-supervisor", "flow-supervisor"]);
}

/// SHN-72: each strategy steps down below its threshold, as far as needed; react never does, nor a run without a budget.
#[test]
fn a_strategy_steps_down_with_the_budget() {
    use ThinkingStrategy::*;
    let rules = Degrade { debate: 6_000, ..Degrade::default() };
    for (strategy, remaining, degraded) in [
        (TreeOfThoughts, 8_000, TreeOfThoughts),
        (TreeOfThoughts, 7_999, ChainOfThought),
        (TreeOfThoughts, 4_000, ChainOfThought),
        (TreeOfThoughts, 3_999, React),
        (ChainOfThought, 4_000, ChainOfThought),
        (ChainOfThought, 3_999, React),
        (Debate, 6_000, Debate),
        (Debate, 5_999, Reflection),
        (Debate, 0, Reflection),
        (Reflection, 0, Reflection),
        (React, 0, React),
    ] {
        assert_eq!(degrade(strategy, Some(remaining), &rules), degraded, "{strategy:?} {remaining}");
        assert_eq!(degrade(strategy, None, &rules), strategy);
    }
    let low = Degrade { tree_of_thoughts: 10, ..Degrade::default() };
    assert_eq!(degrade(TreeOfThoughts, Some(10), &low), TreeOfThoughts);
}
