//! Scenes of scenes: what each way finds, and what a bad scene is told.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use bosun_engine::workflow::{WfContext, WorkflowRegistry};
use bosun_engine::{ActivityOptions, Failure};
use futures_util::future::{Either, select};
use serde_json::{Value, json};

use super::expect::{CALL, note_kinds};
use super::file::Scene;
use super::ways::{Choice, Played, Way, play};

fn options() -> ActivityOptions {
    ActivityOptions { start_to_close: Some(Duration::from_secs(60)), ..ActivityOptions::default() }
}

fn workflows() -> WorkflowRegistry {
    static STARTED: AtomicU32 = AtomicU32::new(0);
    WorkflowRegistry::new()
        .workflow("greet", |cx: WfContext, name: String| async move {
            let said: Value = cx.activity("say", &json!({ "name": name }), options()).await?;
            Ok::<_, Failure>(said)
        })
        .workflow("first", |cx: WfContext, (): ()| async move {
            let a = std::pin::pin!(cx.activity("a", &(), options()));
            let b = std::pin::pin!(cx.activity("b", &(), options()));
            let first: Value = match select(a, b).await {
                Either::Left((first, _)) => first?,
                Either::Right((first, _)) => first?,
            };
            Ok::<_, Failure>(first)
        })
        .workflow("moody", |cx: WfContext, (): ()| async move {
            // What a workflow must not do: it depends on something outside of it.
            let number = STARTED.fetch_add(1, Ordering::SeqCst);
            let said: Value = cx.activity("say", &json!({ "number": number }), options()).await?;
            Ok::<_, Failure>(said)
        })
}

fn read(text: &str) -> Result<Scene, String> {
    Scene::read("scene.yaml", text, &|name| Err(format!("there is no {name}"))).map_err(|why| why.to_string())
}

fn played(text: &str) -> Played {
    play(&read(text).unwrap(), &workflows(), &Choice::default())
}

#[track_caller]
fn fails(text: &str, way: impl Fn(&Way) -> bool, at: &str, seen: &str) {
    let played = played(text);
    let first = played.failures.first().unwrap_or_else(|| panic!("it passes: {played:?}"));
    assert!(way(&first.way), "it fails {}", first.way);
    assert_eq!(first.at, at);
    assert!(first.seen.contains(seen), "seen: {}", first.seen);
}

#[test]
fn a_workflow_of_a_program_is_tested_with_its_own_activities() {
    let played = played(
        "
scene: ann is greeted
workflow: greet
input: ann
world: [{ on: say, with: { name: ann }, after: 2s, say: hello ann }]
expect: { outcome: completed, result: hello ann, takes: 2s, calls: [{ say: any, times: 1, with: { name: ann } }] }
",
    );
    assert!(played.failures.is_empty(), "{played:?}");
    assert_eq!((played.crashes, played.orders), (2, 1));
}

#[test]
fn nobody_answers_who_was_not_told_to() {
    let text = "
scene: nobody answers
workflow: greet
input: bob
world: [{ on: say, with: { name: ann }, say: hello ann }]
";
    fails(text, |way| *way == Way::Straight, "world", "no rule fits");
}

#[test]
fn another_order_that_ends_otherwise_is_found_unless_it_must_decide() {
    let text = "
scene: who is first wins
workflow: first
world: [{ on: a, after: 1s, say: a }, { on: b, after: 2s, say: b }]
expect: { result: a }
";
    fails(text, |way| matches!(way, Way::Permute(_)), "expect.result", "\"b\"");
    let text = text.replace("expect: { result: a }", "");
    fails(&text, |way| matches!(way, Way::Permute(_)), "all scenes", "\"b\"");
    assert!(played(&format!("{text}order: matters\n")).failures.is_empty());
}

#[test]
fn code_that_does_not_fit_its_own_history_is_found() {
    let text = "{ scene: a moody workflow, workflow: moody, world: [{ on: say, say: well }] }";
    fails(text, |way| *way == Way::Replay, "all scenes", "non-deterministic");
}

#[test]
fn an_act_that_never_comes_to_pass_and_one_that_is_refused_fail_the_scene() {
    let text = "
scene: nobody asks
workflow: greet
input: ann
world: [{ on: say, say: hello }]
people: [{ when: { approval: publish }, do: approve }]
";
    fails(text, |way| *way == Way::Straight, "people[0]", "never came to that");
    let late = text.replace("when: { approval: publish }, do: approve", "at: 1s, do: update, name: x, input: {}");
    fails(&late, |way| *way == Way::Straight, "people[0]", "never came to that");
    let text = text.replace("{ on: say, say: hello }", "{ on: say, after: 3s, say: hello }");
    let update = "at: 1s, do: update, name: x, input: {}";
    let early = text.replace("when: { approval: publish }, do: approve", update);
    fails(&early, |way| *way == Way::Straight, "people[0]", "refused");
    let known = early.replace(update, "at: 1s, do: update, name: x, input: {}, refused: true");
    assert!(played(&known).failures.is_empty());
}

#[test]
fn what_is_wrong_with_a_scene_is_told_with_its_place_and_the_nearest_name() {
    let bad = |text: &str| read(text).map(|_| ()).unwrap_err();
    let told = [
        ("{ workflow: greet }", "scene.yaml: scene: required key `scene` is missing"),
        ("{ scene: a, workflow: greet, wurld: [] }", "wurld: unknown key `wurld`"),
        (
            "{ scene: a, workflow: greet, world: [{ on: excute_worker, say: x }] }",
            "world[0].on: unknown purpose `excute_worker` (did you mean `execute_worker`?)",
        ),
        ("{ scene: a, workflow: greet, world: [{ on: plan }] }", "world[0].say: a rule needs an answer"),
        (
            "{ scene: a, workflow: greet, people: [{ at: 1s, do: aprove }] }",
            "people[0].do: nobody can `aprove` (did you mean `approve`?)",
        ),
        (
            "{ scene: a, workflow: greet, expect: { outcome: completd } }",
            "expect.outcome: unknown outcome `completd` (did you mean `completed`?)",
        ),
        (
            "{ scene: a, workflow: greet, expect: { notes: [{ kind: AprovalDecided }] } }",
            "expect.notes[0].kind: unknown note `AprovalDecided` (did you mean `ApprovalDecided`?)",
        ),
        (
            "{ scene: a, workflow: greet, expect: { calls: [{ excute_worker: x }] } }",
            "expect.calls[0].excute_worker: unknown key `excute_worker` (did you mean `execute_worker`?)",
        ),
        (
            "{ scene: a, workflow: greet, expect: { at: { soon: { query: plan, is: 1 } } } }",
            "expect.at.soon: expected a time",
        ),
        (
            "{ scene: a, spec: { kind: supervisor, preset: flow-supervisor, objective: x, agents: [{ name: a, capabilty: x }] } }",
            "spec.agents[0].capabilty: unknown key `capabilty` (did you mean `capability`?)",
        ),
    ];
    for (text, expected) in told {
        let why = bad(text);
        assert!(why.contains(expected), "{text}\n  {why}\n  {expected}");
    }
}

#[test]
fn the_schema_names_every_key_and_is_as_it_is_committed() {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/supervisors/scene.schema.json");
    if std::env::var_os("BOSUN_WRITE_FIXTURES").is_some() {
        std::fs::write(&path, super::schema_text()).unwrap();
    }
    let committed = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(committed == super::schema_text(), "renew it: BOSUN_WRITE_FIXTURES=1 cargo test -p bosun-worker schema");
    let schema = super::schema();
    assert!(jsonschema::meta::is_valid(&schema));
    for (of, keys) in
        [("Rule", &super::rule::KEYS[..]), ("Act", &super::people::KEYS), ("Expect", &super::expect::KEYS)]
    {
        let known = schema["$defs"][of]["properties"].as_object().unwrap();
        assert!(keys.iter().all(|key| known.contains_key(*key)) && known.len() == keys.len(), "{of}");
    }
    assert!(note_kinds().len() > 60 && CALL.contains(&"times"));
}
