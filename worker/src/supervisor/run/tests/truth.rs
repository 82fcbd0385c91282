//! What a run reports is what happened: specs as users write them, where a report used to claim more.

use serde_json::{Value, json};

use crate::scene::kit::*;
use crate::supervisor::task::TaskStatus;

/// A spec of a preset with its agents, a plan and more.
fn spec(preset: &str, agents: &str, tasks: &str, more: &str) -> String {
    let direct = if preset == "shannon-supervisor" { "routing: { enabled: false }" } else { "" };
    format!(
        "
kind: supervisor
name: truth
preset: {preset}
{direct}
objective: find out
agents: [{agents}]
planner: {{ script: [ {{ on: plan, say: {{ tasks: [{tasks}] }} }} ] }}
{more}
"
    )
}

const PLANNERS: [&str; 5] =
    ["flow-supervisor", "flow-plan-and-execute", "flow-coordinator", "shannon-supervisor", "shannon-dag"];
/// What every family needs beside its workers.
const RULES: &str = "{ on: review, say: { assessments: [ { taskId: t1, verdict: accepted, feedback: '', score: 1 } ], needsReplanning: false, overallAssessment: good } }, { on: synthesize, say: summed up }";

/// The rest of a spec whose workers are no scripts.
fn rest() -> String {
    format!("script: [ {RULES} ]")
}

fn own(name: &str) -> String {
    format!("{{ name: {name}, via: {{ activity: hands }} }}")
}

/// What agents of the test's own answer.
fn hands() -> Value {
    json!([{ "on": "hands", "say": "done by {{agent}}" }])
}

/// FSS-04: a task that names nobody is done by the agent that is alone in fitting, and by nobody else.
#[test]
fn the_only_agent_does_a_task_that_names_nobody() {
    for preset in PLANNERS {
        for task in ["{ id: t1, goal: look }", "{ id: t1, goal: look, role: generalist }"] {
            let played = SceneText::new(&spec(preset, &own("ann"), task, &rest())).world(hands()).play();
            let report = played.report();
            assert_eq!((&report["status"], &report["success"]), (&json!("completed"), &json!(true)), "{preset}");
            assert_eq!(
                (&report["tasks"][0]["agent"], &report["tasks"][0]["brief"]),
                (&json!("ann"), &json!("done by ann"))
            );
            assert_eq!(report["summary"], "1 of 1 tasks are done");
        }
    }
}

/// A role is matched by what agents say of themselves.
#[test]
fn a_task_of_a_role_is_done_by_the_agent_of_that_role() {
    let agents = "{ name: ann, role: analyst, via: { activity: hands } }, { name: will, role: writer, via: { activity: hands } }";
    for preset in PLANNERS {
        let task = "{ id: t1, goal: look, role: writer }";
        let played = SceneText::new(&spec(preset, agents, task, &rest())).world(hands()).play();
        assert_eq!(played.report()["tasks"][0]["brief"], "done by will", "{preset}");
    }
}

/// CUG-03, SHH-17: a task of somebody who does not exist is done by nobody: the plan is refused, or people are told.
#[test]
fn a_task_of_nobody_is_not_done() {
    let two = format!("{}, {}", own("ann"), own("bob"));
    let cases = [
        ("agent: anne", "there is no agent 'anne'; available: ann, bob"),
        ("capability: cooking", "no agent has the capability 'cooking'; available: ann, bob"),
        ("priority: low", "no agent is named, and 2 could do it: ann, bob"),
    ];
    for preset in PLANNERS.into_iter().chain(["cuga-structured"]) {
        for (asked, why) in cases {
            let more = format!("{}\nplanning: {{ force: true }}", rest());
            let more = if preset == "cuga-structured" { more } else { rest() };
            let played =
                SceneText::new(&spec(preset, &two, &format!("{{ id: t1, goal: look, {asked} }}"), &more)).play();
            let report = played.report();
            assert!(
                !played.calls.iter().any(|call| call.starts_with("execute/")),
                "{preset}, {asked}: {:?}",
                played.calls
            );
            assert_eq!((&report["success"], &report["status"]), (&json!(false), &json!("failed")), "{preset}, {asked}");
            assert!(report.to_string().contains(why), "{preset}, {asked}: {report:#}");
            let escalated = !played.noted("EscalationRaised").is_empty();
            assert_eq!(escalated, preset == "shannon-supervisor", "{preset}, {asked}");
        }
    }
}

/// FSP-04: a step that gives nothing has failed, what depends on it is skipped and says so, the rest goes on.
#[test]
fn a_failed_step_stops_what_depends_on_it() {
    let tasks = "{ id: dump, goal: write }, { id: load, goal: read, deps: [dump] }, { id: check, goal: compare, deps: [load] }, { id: tell, goal: tell }";
    let more = format!(
        "script: [ {RULES}, {{ on: execute_worker, task: dump, say: {{ success: false }} }}, {{ on: execute_worker, say: done }} ]"
    );
    let mut played = SceneText::new(&spec("flow-plan-and-execute", "{ name: ann }", tasks, &more)).play();
    assert_eq!(played.statuses(), "dump=failed load=skipped check=skipped tell=completed");
    let report = played.report();
    assert_eq!((&report["status"], &report["success"]), (&json!("partial"), &json!(false)));
    assert_eq!(report["summary"], "1 of 4 tasks are done; failed: dump; skipped: load, check");
    let error = |place: usize| report["tasks"][place]["error"].clone();
    assert_eq!(error(0), "Task did not produce a result");
    assert_eq!(
        (error(1), error(2)),
        (json!("Skipped: dependency 'dump' failed"), json!("Skipped: dependency 'dump' failed"))
    );
    assert_eq!(played.calls.iter().filter(|call| call.starts_with("execute/")).count(), 2);
    assert_eq!(played.query("report", Value::Null)["summary"], report["summary"]);
}

fn review(assessments: &str, again: bool) -> String {
    format!("{{ assessments: [{assessments}], needsReplanning: {again}, overallAssessment: so }}")
}

/// FSS-40: a task waits for its dependencies of the same iteration, runs in it, and is reviewed with them.
#[test]
fn dependent_tasks_run_in_their_iteration() {
    let tasks = "{ id: a, goal: find }, { id: b, goal: sum up, deps: [a] }";
    let all = "{ taskId: a, verdict: accepted, feedback: '', score: 1 }, { taskId: b, verdict: accepted, feedback: '', score: 1 }";
    let more = format!(
        "reviewer: {{ script: [ {{ on: review, round: 1, say: {} }} ] }}
script: [ {{ on: execute_worker, task: b, say: {{ saw: '{{{{context.dependency_results.a}}}}' }} }}, {{ on: execute_worker, say: found }}, {{ on: synthesize, say: told }} ]",
        review(all, false)
    );
    let played = SceneText::new(&spec("flow-supervisor", "{ name: ann }", tasks, &more)).play();
    assert_eq!(played.calls, ["plan/1", "execute/a/1", "execute/b/1", "review/1", "synthesize/1"]);
    assert_eq!((played.statuses().as_str(), &played.report()["success"]), ("a=completed b=completed", &json!(true)));
    assert_eq!(played.inputs["synthesize/1"]["prompt"].as_str().map(|text| text.contains("saw")), Some(true));
}

/// FSS-40: a task that a new plan leaves out before anybody had tried it is told of, and the run is no success.
#[test]
fn a_task_that_a_new_plan_dropped_untried_is_told_of() {
    let tasks = "{ id: a, goal: find }, { id: b, goal: sum up, deps: [a] }";
    let first = review("{ taskId: a, verdict: accepted, feedback: '', score: 1 }", true);
    let more = format!(
        "dependencies: {{ on_unmet: wait }}
reviewer: {{ script: [ {{ on: review, say: {first} }} ] }}
script: [ {{ on: execute_worker, say: {{ ok: false }} }}, {{ on: synthesize, say: told }} ]"
    );
    let text = spec(
        "flow-supervisor",
        "{ name: ann }",
        &tasks.replace("deps: [a]", "deps: [ { on: a, when: { path: ok, equals: true } } ]"),
        &more,
    )
    .replace("[ { on: plan, say:", "[ { on: plan, round: 2, say: { tasks: [] } }, { on: plan, say:");
    let played = SceneText::new(&text).play();
    let report = played.report();
    assert_eq!(played.statuses(), "a=completed b=cancelled");
    assert_eq!((&report["status"], &report["success"]), (&json!("partial"), &json!(false)));
    assert_eq!(report["tasks"][1]["error"], "a new plan left it out before it ran");
}

/// FSS-42: every accepted result is told, also where two say the same; only Shannon removes duplicates (SHN-48).
#[test]
fn equal_results_are_all_told_except_by_shannon() {
    let tasks = "{ id: a, goal: one }, { id: b, goal: two }, { id: c, goal: three }";
    let more = "script: [ { on: execute_worker, task: c, say: no }, { on: execute_worker, say: yes }, { on: synthesize, say: told } ]";
    let told = |preset: &str| {
        let played = SceneText::new(&spec(preset, "{ name: ann }", tasks, more)).play();
        let prompt = played.inputs["synthesize/1"]["prompt"].as_str().unwrap().to_owned();
        prompt.matches("yes").count()
    };
    assert_eq!((told("flow-plan-and-execute"), told("shannon-dag"), told("shannon-supervisor")), (2, 1, 1));
}

/// FSS-17, FSC-02: the first failure of any worker ends the run, whatever tries are left.
#[test]
fn a_failure_that_ends_the_run_ends_it_at_once() {
    for preset in ["flow-supervisor", "flow-coordinator"] {
        let more = "failure: { on_subtask_error: fail, tries: 3 }\nscript: [ { on: execute_worker, task: b, after: 1m, say: late }, { on: execute_worker, fail: no power } ]";
        let tasks = "{ id: a, goal: one }, { id: b, goal: two }";
        let played = SceneText::new(&spec(preset, "{ name: ann, tries: 5 }", tasks, more)).order_counts().play();
        assert_eq!((played.report()["error"].as_str(), played.took), (Some("no power"), 0), "{preset}");
        // The other one was begun at the same moment, and is taken back.
        assert_eq!(played.calls, ["plan/1", "execute/a/1", "execute/b/1"], "{preset}");
        assert_eq!(played.statuses(), "a=failed b=cancelled", "{preset}");
    }
}

/// FSS-08, FSS-12: a review that does not conform is asked for again, told why; in the end only what it was about has
/// failed, and what was accepted before stays.
#[test]
fn a_bad_review_does_not_cost_what_was_accepted() {
    let tasks = "{ id: a, goal: one }, { id: b, goal: two }";
    let first = review(
        "{ taskId: a, verdict: accepted, feedback: '', score: 1 }, { taskId: b, verdict: needs-revision, feedback: more, score: 0.2 }",
        true,
    );
    let good = review("{ taskId: b, verdict: accepted, feedback: '', score: 1 }", false);
    let run = |last: &str| {
        let more = format!(
            "reviewer: {{ script: [ {{ on: review, round: 1, attempt: 1, say: nonsense }}, {{ on: review, round: 1, say: {first} }}, {last} ] }}
script: [ {{ on: execute_worker, say: done }}, {{ on: synthesize, say: told }} ]"
        );
        SceneText::new(&spec("flow-supervisor", "{ name: ann }", tasks, &more)).play()
    };
    let healed = run(&format!("{{ on: review, say: {good} }}"));
    assert_eq!(
        (healed.statuses().as_str(), &healed.report()["status"]),
        ("a=completed b=completed", &json!("completed"))
    );
    assert!(healed.calls.contains(&"review/1/2".to_owned()), "{:?}", healed.calls);
    let again = healed.inputs["review/1/2"]["prompt"].as_str().unwrap();
    assert!(again.contains("Your last review was not taken: the review is no JSON"), "{again}");
    let broken = run("{ on: review, say: nonsense }");
    assert_eq!(broken.calls.iter().filter(|call| call.starts_with("review/2")).count(), 3);
    let report = broken.report();
    assert_eq!(broken.statuses(), "a=completed b=failed");
    assert_eq!(
        (&report["status"], &report["success"], &report["final_result"]),
        (&json!("partial"), &json!(false), &json!("told"))
    );
}

/// FSS-25: what a reviewer hands upward is an escalation with the reviewer's words, for people and in the report.
#[test]
fn an_escalating_verdict_leaves_its_words() {
    let both = review(
        "{ taskId: a, verdict: accepted, feedback: '', score: 1 }, { taskId: b, verdict: escalate, feedback: this is for the lawyers, score: 0.1 }",
        false,
    );
    let more = format!(
        "reviewer: {{ script: [ {{ on: review, say: {both} }} ] }}\nscript: [ {{ on: execute_worker, say: done }}, {{ on: synthesize, say: told }} ]"
    );
    let tasks = "{ id: a, goal: one }, { id: b, goal: two }";
    let mut played = SceneText::new(&spec("flow-supervisor", "{ name: ann }", tasks, &more)).play();
    let raised = played.noted("EscalationRaised")[0].clone();
    assert_eq!((&raised["task"], &raised["blocking"]), (&json!("b"), &json!(false)));
    assert_eq!(raised["primary"], "The reviewer escalates: this is for the lawyers");
    assert_eq!(played.query("escalations", Value::Null)[0]["primary"], raised["primary"]);
    let report = played.report();
    assert_eq!(
        (&report["tasks"][1]["status"], &report["tasks"][1]["error"]),
        (&json!("escalated"), &json!("this is for the lawyers"))
    );
    assert_eq!((&report["status"], &report["success"]), (&json!("partial"), &json!(false)));
    let per_task = more.replace(&both, "{ verdict: escalate, feedback: this is for the lawyers, score: 0.1 }");
    let played =
        SceneText::new(&spec("flow-supervisor-per-task", "{ name: ann }", "{ id: b, goal: two }", &per_task)).play();
    assert_eq!(played.noted("EscalationRaised")[0]["primary"], raised["primary"]);
}

/// §4.2 no. 14: one iteration is no replanning; with more of them a step of a known name is a step of its own (FSP-06).
#[test]
fn iterations_are_counted_with_the_first_plan() {
    let tasks = "{ id: a, goal: one }, { id: b, goal: two }";
    let more = |iterations: u32| {
        format!(
            "planning: {{ replan: true }}\nloop: {{ max_iterations: {iterations} }}\nscript:
- {{ on: decide, round: 1, say: {{ decision: replan, reason: not enough, tasks: [ {{ id: a, goal: one more }} ] }} }}
- {{ on: decide, say: {{ decision: continue }} }}
- {{ on: execute_worker, say: done }}
- {{ on: synthesize, say: told }}"
        )
    };
    let run =
        |iterations| SceneText::new(&spec("flow-plan-and-execute", "{ name: ann }", tasks, &more(iterations))).play();
    let one = run(1);
    assert_eq!(one.statuses(), "a=completed b=skipped");
    let report = one.report();
    assert_eq!(report["tasks"][1]["error"], "Skipped: max iterations reached");
    assert_eq!((&report["status"], &report["success"]), (&json!("partial"), &json!(false)), "nobody called b needless");
    let two = run(2);
    assert_eq!(two.statuses(), "a=completed b=cancelled a-replan-1=completed");
    let report = two.report();
    assert_eq!((&report["status"], &report["success"]), (&json!("completed"), &json!(true)), "FSP-06: it replaced b");
}

/// FSS-12: accepted work that is planned again is not done again, and that is said.
#[test]
fn accepted_work_that_is_planned_again_is_refused_aloud() {
    let tasks = "{ id: a, goal: one }, { id: b, goal: two }";
    let first = review(
        "{ taskId: a, verdict: accepted, feedback: '', score: 1 }, { taskId: b, verdict: needs-revision, feedback: more, score: 0.2 }",
        true,
    );
    let good = review("{ taskId: b, verdict: accepted, feedback: '', score: 1 }", false);
    let more = format!(
        "reviewer: {{ script: [ {{ on: review, round: 1, say: {first} }}, {{ on: review, say: {good} }} ] }}
script: [ {{ on: execute_worker, say: done }}, {{ on: synthesize, say: told }} ]"
    );
    let played = SceneText::new(&spec("flow-supervisor", "{ name: ann }", tasks, &more)).play();
    assert_eq!(played.calls.iter().filter(|call| call.starts_with("execute/a")).count(), 1);
    let refused = played.noted("ActionRefused");
    assert_eq!((&refused[0]["action"], &refused[0]["task"]), (&json!("replan"), &json!("a")));
    assert_eq!(played.report()["success"], true);
}

/// FSS-21: a synthesis that came right at the second try is no flaw of the run.
#[test]
fn a_retried_synthesis_leaves_a_full_success() {
    let more = "synthesis: { schema: { type: object, required: [text] } }\nscript: [ { on: execute_worker, say: done }, { on: synthesize, attempt: 1, say: [] }, { on: synthesize, say: { text: told } } ]";
    let played = SceneText::new(&spec("flow-plan-and-execute", "{ name: ann }", "{ id: a, goal: one }", more)).play();
    let report = played.report();
    assert_eq!(
        (&report["status"], &report["success"], &report["errors"]),
        (&json!("completed"), &json!(true), &json!([]))
    );
    assert!(played.noted("SynthesisRecorded")[0]["refused"].as_str().is_some_and(|why| why.contains("shape")));
}

fn fixed(more: &str) -> String {
    format!(
        "
kind: supervisor
name: fixed
preset: pydantask-fixed
objective: o
agents: [{{ name: ann, capability: look }}]
seed_plan: {{ plan: {{ objective: o, tasks: [ {{ task_id: 1, sub_task_objective: look, capability: look }}, {{ task_id: 2, sub_task_objective: tell, capability: look, sub_task_dependencies: [1], is_final: true }} ] }} }}
{more}
"
    )
}

/// PDT-10: a run whose final task never ran has no success to tell, whatever result it falls back to.
#[test]
fn a_run_whose_final_task_never_ran_is_no_success() {
    let more = "loop: { max_steps: 1 }\nscript: [ { on: decide, say: { tasks_to_execute: [1] } }, { on: execute_worker, say: seen }, { on: review, say: { passed: true } } ]";
    let report = SceneText::new(&fixed(more)).play().report();
    assert_eq!((&report["status"], &report["success"]), (&json!("partial"), &json!(false)));
    assert_eq!(
        (&report["final_result"], &report["summary"]),
        (&json!("seen"), &json!("1 of 2 tasks are done; ready: 2"))
    );
    let more = "script: [ { on: decide, round: 1, say: { tool_calls: [ { tool: cancel_task, args: { task_id: 1, reason: no } } ] } }, { on: decide, say: {} } ]";
    let report = SceneText::new(&fixed(more)).play().report();
    assert_eq!(
        (&report["success"], &report["status"]),
        (&json!(false), &json!("failed")),
        "all was cancelled: {report:#}"
    );
}

/// §4.1 no. 1, PDT-24: a task that was sent back has the word of the spec on the board and in the run's own language.
#[test]
fn a_task_that_was_sent_back_is_called_as_the_spec_says() {
    for (word, native) in
        [("ready", "READY"), ("rerun", "RERUN"), ("pending", "PENDING"), ("needs_revision", "NEEDS_REVISION")]
    {
        let more = format!(
            "review: {{ reject_status: {word} }}\nscript: [ {{ on: decide, round: 2, after: 1m, say: {{ tasks_to_execute: [1] }} }}, {{ on: decide, round: 1, say: {{ tasks_to_execute: [1] }} }}, {{ on: decide, say: {{}} }}, {{ on: execute_worker, say: seen }}, {{ on: review, attempt: 1, say: {{ passed: false, reasoning: again }} }}, {{ on: review, say: {{ passed: true }} }} ]"
        );
        let mut played = SceneText::new(&fixed(&more)).until(30).order_counts().play();
        assert_eq!(played.query("status_board", Value::Null)[0]["status"], word);
        let own = played.query("native_view", Value::Null);
        assert_eq!(
            (&own["tasks"][0]["native"], &own["tasks"][0]["status"]),
            (&json!(native), &json!(TaskStatus::NeedsRevision))
        );
        assert_eq!(played.query("native_view", json!("flow_supervisor"))["tasks"][0]["native"], "needs-revision");
    }
}

/// `dependencies.on_unmet`: what becomes of a task whose condition on a result does not hold.
#[test]
fn an_unmet_condition_skips_fails_or_waits() {
    let tasks = "{ id: a, goal: one }, { id: b, goal: two, deps: [ { on: a, when: { path: ok, equals: true } } ] }";
    let run = |policy: &str| {
        let more = format!(
            "{policy}\nscript: [ {{ on: execute_worker, say: {{ ok: false }} }}, {{ on: synthesize, say: told }} ]"
        );
        let played = SceneText::new(&spec("flow-plan-and-execute", "{ name: ann }", tasks, &more)).play();
        let report = played.report();
        (played.statuses(), report["status"].as_str().unwrap_or_default().to_owned(), report["success"].clone())
    };
    let ends = |status: &str, success: bool| (format!("a=completed b={status}"), "partial".to_owned(), json!(success));
    assert_eq!(run(""), ends("skipped", true));
    assert_eq!(run("dependencies: { on_unmet: skip }"), ends("skipped", true));
    assert_eq!(run("dependencies: { on_unmet: fail }"), ends("failed", false));
    assert_eq!(run("dependencies: { on_unmet: wait }"), ends("pending", false));
}

/// `loop.on_idle`: a run of whose tasks none may run any more ends, or waits until somebody changes the plan.
#[test]
fn an_idle_run_ends_or_waits_for_people() {
    let tasks = "{ id: a, goal: one }, { id: b, goal: two, deps: [a] }";
    let more = "dependencies: { on_failure: wait }\nscript: [ { on: execute_worker, task: a, fail: no power }, { on: execute_worker, say: done }, { on: synthesize, say: told } ]";
    let run =
        |idle: &str| SceneText::new(&spec("flow-plan-and-execute", "{ name: ann }", tasks, &format!("{more}\n{idle}")));
    assert_eq!(run("loop: { on_idle: complete }").play().statuses(), "a=failed b=pending");
    let mut waits = run("loop: { on_idle: wait }").until(60).play();
    assert!(waits.open);
    let version = waits.query("get_plan", Value::Null)["version"].clone();
    let without_a = json!({ "version": version, "tasks": [ { "id": "b", "goal": "two", "deps": [] } ] });
    let repaired = run("loop: { on_idle: wait }").at(60, Act::Update("revise_plan", without_a)).play();
    assert_eq!((repaired.statuses().as_str(), repaired.took), ("a=failed b=completed", 60));
    let more = "loop: { on_idle: complete }\nscript: [ { on: decide, round: 1, say: { tasks_to_execute: [1] } }, { on: decide, say: { tasks_to_execute: [1] } }, { on: execute_worker, fail: no power } ]";
    let played = SceneText::new(&fixed(more)).play();
    // Three tries, each of them chosen; after the last nobody is asked what to do with a task that cannot run.
    assert_eq!(played.calls.iter().filter(|call| call.starts_with("decide/")).count(), 3);
}

/// `failure.count_crash_as_attempt`: a call that a crash cut off is made again, or is a try like any other.
#[test]
fn a_crash_counts_as_a_try_where_the_spec_says_so() {
    let world = || json!([{ "on": "hands", "after": "10s", "say": "done" }]);
    let more = format!("script: [ {RULES} ]\nfailure: {{ tries: 2, count_crash_as_attempt: true }}");
    let scene = |more: &str| SceneText::new(&spec("shannon-dag", &own("ann"), "{ id: t1, goal: look }", more));
    // A crash that a scene adds by itself would be one more try.
    let played = scene(&more).world(world()).kill(5).in_ways(&["straight", "replay"]);
    assert_eq!(played.statuses(), "t1=completed");
    assert_eq!(played.report()["tasks"][0]["attempts"], 2);
    let once = more.replace("tries: 2", "tries: 1");
    let played = scene(&once).world(world()).kill(5).in_ways(&["straight", "replay"]);
    assert_eq!(played.statuses(), "t1=failed");
}

/// A supervisor below another one that did not do its work has not done it for the one above either.
#[test]
fn a_child_that_was_no_success_is_none_above() {
    let inner = "{ kind: supervisor, name: inner, preset: flow-plan-and-execute, objective: x, agents: [{ name: w }], script: [ { on: plan, say: { tasks: [ { id: i, goal: do }, { id: j, goal: do } ] } }, { on: execute_worker, task: i, fail: no power }, { on: execute_worker, say: done }, { on: synthesize, say: half of it } ] }";
    let agents = format!("{{ name: team, via: {{ supervisor: {{ spec: {inner} }} }} }}");
    let more = format!("script: [ {RULES} ]\nfailure: {{ tries: 1 }}");
    let played = SceneText::new(&spec("shannon-dag", &agents, "{ id: t1, goal: look }", &more)).play();
    let report = played.report();
    assert_eq!((&report["success"], &report["tasks"][0]["status"]), (&json!(false), &json!("failed")), "{report:#}");
    assert_eq!(
        report["tasks"][0]["error"],
        "1 of 2 tasks are done; failed: i (no power); what there is of it: half of it"
    );
}

/// A conversation in which nobody said anything has no result, and is no success.
#[test]
fn a_chat_in_which_nobody_spoke_has_nothing_to_show() {
    let text = "kind: supervisor\nname: c\npreset: autogen-groupchat\nobjective: agree\nagents: [{ name: ann }, { name: bob }]\nspeaker: { method: round_robin, on_error: skip }\nscript: [ { on: execute_worker, fail: no voice } ]";
    let report = SceneText::new(text).play().report();
    assert_eq!(
        (&report["status"], &report["success"], &report["final_result"]),
        (&json!("completed"), &json!(false), &Value::Null)
    );
}
