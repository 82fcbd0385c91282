//! Scenes of scenes: what each way finds, and what a bad scene is told.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use bosun_engine::workflow::{WfContext, WorkflowRegistry};
use bosun_engine::{ActivityOptions, Failure};
use futures_util::future::{Either, select};
use serde_json::{Value, json};

use super::expect::{CALL, note_kinds};
use super::file::Scene;
use super::ways::{Choice, SceneResult, Way, play};

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

/// Files beside the scenes: a spec in a folder, what it names, and a plan that is none.
const FILES: [(&str, &str); 4] = [
    (
        "below/outer.yaml",
        "{ preset: flow-plan-and-execute, objective: o, agents: [{ name: team, via: { supervisor: { file: inner.yaml } } }] }",
    ),
    ("below/inner.yaml", "{ preset: flow-plan-and-execute, objective: i, agents: [{ name: ann }] }"),
    ("bad.yaml", "{ objective: o, tasks: [{ task_id: 1, id: 2 }] }"),
    (
        "plan.yaml",
        "{ objective: o, tasks: [{ task_id: 1, sub_task_objective: o, overall_objective: o, capability: process, parameters: { argv: [ls], cwd: in } }] }",
    ),
];

fn read(text: &str) -> Result<Scene, String> {
    let file = |name: &str| FILES.iter().find(|(known, _)| *known == name).map(|(_, text)| (*text).to_owned());
    let files = |name: &str| file(name).ok_or_else(|| format!("there is no {name}"));
    Scene::read("scene.yaml", text, &files).map_err(|why| why.to_string())
}

fn played(text: &str) -> SceneResult {
    let workflows = crate::supervisor::register(crate::supervisor::run::register(workflows()));
    play(&read(text).unwrap(), &workflows, &Choice::default())
}

#[track_caller]
fn passes(text: &str) {
    let played = played(text);
    let failures: Vec<_> = played.failures.iter().map(|one| (&one.way, &one.at, &one.expected, &one.seen)).collect();
    assert!(failures.is_empty(), "{text}\n{failures:#?}");
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
expect: { outcome: completed }
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
    let text = text.replace("expect: { result: a }", "expect: { outcome: completed }");
    fails(&text, |way| matches!(way, Way::Permute(_)), "all scenes", "\"b\"");
    assert!(played(&format!("{text}order: matters\n")).failures.is_empty());
}

#[test]
fn code_that_does_not_fit_its_own_history_is_found() {
    let text =
        "{ scene: a moody workflow, workflow: moody, world: [{ on: say, say: well }], expect: { outcome: completed } }";
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
expect: { outcome: completed }
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

/// PDT-40: what must not be read is refused in the words of `bosun run`, with its place; what is read is no refusal.
#[test]
fn a_spec_or_a_plan_that_must_not_be_read_is_refused() {
    let of = |spec: &str, refused: &str| format!("{{ scene: a, spec: {spec}, refused: {refused} }}");
    passes(&of("bad.yaml", "\"Invalid workflow YAML at 'bad.yaml'. tasks[0].id\""));
    passes(&of(
        "bad.yaml",
        "{ path: 'tasks[0].id', problem: { matches: '^unknown key `id`' }, text: { contains: known keys } }",
    ));
    let spec = "{ kind: supervisor, preset: flow-supervisor, objective: o, agents: [{ name: a }, { name: a }] }";
    let text = "Invalid supervisor spec at 'spec'. agents[1].name: agent names must be unique; `a` is given twice";
    passes(&of(spec, &format!("{{ equals: {text:?} }}")));
    passes(&of(spec, "{ path: 'agents[1].name' }"));
    fails(&of(spec, "{ path: 'agents[0].name' }"), |way| *way == Way::Straight, "refused.path", "agents[1].name");
    fails(&of(spec, "nonsense"), |way| *way == Way::Straight, "refused.text", "agents[1].name");
    let good = "{ preset: flow-supervisor, objective: o, agents: [{ name: a }] }";
    fails(&of(good, "agents"), |way| *way == Way::Straight, "refused", "it is read");
}

/// A plan runs in an absolute directory that is the same everywhere; a spec's own files lie beside the spec.
#[test]
fn files_that_a_scene_names() {
    passes(
        "
scene: a plan
spec: plan.yaml
world: [{ on: process, with: { jail: /scene, cwd: in }, say: { exit_code: 0, stdout: x, stderr: '' } }]
expect: { outcome: completed, calls: [{ process: any, times: 1 }] }
",
    );
    passes(
        "
scene: a spec below, and one below that
spec: below/outer.yaml
world:
  - { on: plan, say: { tasks: [{ id: t, goal: g }] } }
  - { on: execute_worker, agent: ann, say: done }
  - { on: synthesize, say: all }
expect: { outcome: completed, success: true }
",
    );
}

/// The world is no answer by itself: work that names nobody finds nobody where no rule is for anybody.
#[test]
fn nobody_answers_for_everybody() {
    let text = "
scene: two could do it
spec: { preset: flow-plan-and-execute, objective: o, agents: [{ name: ann }, { name: bob }] }
world:
  - { on: plan, say: { tasks: [{ id: t, goal: g }] } }
  - { on: execute_worker, agent: ann, say: done }
  - { on: synthesize, say: all }
expect: { outcome: failed, error: { contains: '2 could do it: ann, bob' }, calls: [{ execute_worker: any, times: 0 }], prompts: [{ to: plan, contains: o }] }
";
    passes(text);
    let anybody = text.replace("agent: ann, say", "say");
    fails(&anybody, |way| *way == Way::Straight, "expect.outcome", "completed");
}

/// What is not there, parts of lists, and keys that some notes of a kind have.
#[test]
fn what_is_absent_and_what_is_a_part() {
    let text = |expect: &str| {
        format!(
            "
scene: greeted
workflow: greet
input: ann
world: [{{ on: say, say: {{ name: ann, list: [{{ a: 1, b: 2 }}, {{ a: 3 }}] }} }}]
expect: {{ {expect} }}
"
        )
    };
    passes(&text("result: { name: ann, age: null, list: { contains: { a: 1 } }, size: { exists: false } }"));
    passes(&text("result: { list: { contains: [{ a: 3, b: { exists: false } }, { b: { at_least: 2 } }] } }"));
    passes(&text("report: { result: { not: { list: { contains: { a: 1, b: 3 } } } } }"));
    let all = |way: &Way| *way == Way::Straight;
    fails(&text("result: { nmae: ann }"), all, "expect.result", "did you mean `name`?");
    fails(&text("result: { name: null }"), all, "expect.result", "ann");
    fails(&text("result: { list: { contains: { a: 1, b: 3 } } }"), all, "expect.result", "[{");
    let notes = |expect: &str| {
        format!(
            "
scene: of notes
spec: {{ preset: flow-plan-and-execute, objective: o, agents: [{{ name: ann }}] }}
world:
  - {{ on: plan, say: {{ tasks: [{{ id: t, goal: g }}] }} }}
  - {{ on: execute_worker, say: done }}
  - {{ on: synthesize, say: all }}
expect: {{ {expect} }}
"
        )
    };
    passes(&notes("notes: [{ kind: TaskStatusChanged, wordless: x, times: 0 }], report: { tasks: { u: null } }"));
    passes(&notes("queries: [{ query: plan, path: tasks.u, exists: false }]"));
    fails(
        &notes("notes: [{ kind: TaskStatusChanged, tsk: t, times: 0 }]"),
        all,
        "expect.notes[0]",
        "did you mean `task`?",
    );
    fails(&notes("notes: [{ kind: TaskStatusChanged, wordless: x }]"), all, "expect.notes[0]", "0 times");
    fails(&notes("report: { tasks: { t: { exists: false } } }"), all, "expect.report.tasks.t", "completed");
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
        ("{ scene: a, workflow: greet }", "scene.yaml: expect: a scene that expects nothing would always pass"),
        ("{ scene: a, workflow: greet, expect: {} }", "expect: a scene that expects nothing would always pass"),
        ("{ scene: a, workflow: greet, refused: x }", "workflow: only a spec or a plan is refused"),
        ("{ scene: a, spec: x.yaml, refused: x, expect: {} }", "expect: nothing runs in a scene that is `refused`"),
        ("{ scene: a, spec: x.yaml, refused: { text: x, at: y } }", "refused.at: unknown key `at`"),
        ("{ scene: a, spec: absent.yaml, refused: x }", "spec: there is no absent.yaml"),
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
