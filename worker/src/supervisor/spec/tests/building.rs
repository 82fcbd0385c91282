//! Specs written in Rust, and the bytes and hash of resolved ones.

use proptest::prelude::*;
use serde_json::{Value, json};

use crate::supervisor::outbox::Purpose;
use crate::supervisor::plan::SeedPlan;
use crate::supervisor::spec::{
    Agent, Authority, Model, Preset, ResolvedSpec, Role, ScriptRule, Span, SupervisorSpec, SynthesisMode, Tool,
    TriggerOrder, read_spec,
};

fn built() -> SupervisorSpec {
    SupervisorSpec::preset(Preset::ShannonSupervisor)
        .name("market")
        .objective("Analyse the market")
        .agent(Agent::new("ann").role("researcher").model("m1").timeout(Span::from_secs(60)))
        .hitl(|hitl| hitl.order = TriggerOrder::BookCode)
        .failure(|failure| failure.threshold_bp = Some(2_000))
        .script(ScriptRule::on(Purpose::Synthesize).say(json!("done")))
        .build()
        .unwrap()
}

#[test]
fn a_built_spec_is_the_one_that_is_written() {
    let text = "
        preset: shannon-supervisor
        name: market
        objective: Analyse the market
        agents: [{ name: ann, role: researcher, model: m1, timeout: 60s }]
        hitl: { order: book_code }
        failure: { threshold_bp: 2000 }
        script: [{ on: synthesize, say: done }]";
    let written = read_spec("s", text).unwrap();
    assert_eq!(written.spec, built());
    assert_eq!(written.resolve().unwrap(), built().resolve().unwrap());
}

#[test]
fn a_builder_has_the_checks_of_a_file() {
    let why = SupervisorSpec::preset(Preset::FlowSupervisor).name("r").build().unwrap_err();
    assert_eq!(
        why.to_string(),
        "Invalid supervisor spec. agents: [supervisor] \"r\" requires either worker or workers"
    );
    let why = SupervisorSpec::builder().agent(Agent::new("a")).agent(Agent::new("a")).build().unwrap_err();
    assert_eq!(why.at, "agents[1].name");
    let why = SupervisorSpec::builder().dispatch(|dispatch| dispatch.max_concurrency = Some(0)).build().unwrap_err();
    assert_eq!(why.at, "dispatch.max_concurrency");
}

#[test]
fn every_part_can_be_built() {
    let plan: SeedPlan = serde_json::from_value(json!({
        "objective": "o",
        "tasks": [{ "task_id": 1, "overall_objective": "o", "sub_task_objective": "a", "capability": "c" }],
    }))
    .unwrap();
    let plan = crate::supervisor::Plan::from_seed(plan).unwrap();
    let role = |agent: &str| Role { agent: Some(agent.into()), ..Role::default() };
    let tool = Tool { description: "finds".into(), ..Tool::new("search") };
    let spec = SupervisorSpec::preset(Preset::PydantaskFixed)
        .seed_plan(&plan)
        .authority([Authority::Select, Authority::Finish])
        .agent(Agent::new("ann").capability("c").description("d").system_prompt("p").tool(tool))
        .agent(Agent::new("bob"))
        .planner(role("ann"))
        .supervisor(Role { model: Some(Model::new("m")), ..Role::default() })
        .reviewer(role("bob"))
        .synthesizer(role("bob"))
        .planning(|planning| planning.approval.required = true)
        .synthesis(|synthesis| synthesis.mode = SynthesisMode::Synthesizer)
        .run_loop(|bounds| bounds.max_steps = 5)
        .build()
        .unwrap();
    let resolved = spec.resolve().unwrap();
    assert_eq!((resolved.spec.objective.as_str(), spec.run_loop.max_steps), ("o", 5));
    assert!(resolved.spec.plan().unwrap().unwrap().final_task().is_some());
    assert_eq!(spec.role(Purpose::Plan).unwrap().agent.as_deref(), Some("ann"));
    assert_eq!(spec.role(Purpose::Decide).unwrap().model.as_ref().unwrap().name, "m");
    assert_eq!(spec.role(Purpose::Advise), None);
    assert_eq!(spec.agent_for("c").unwrap().name, "ann");
    let crew = SupervisorSpec::preset(Preset::CrewaiHierarchical).manager_llm("m").agent(Agent::new("ann")).build();
    assert_eq!(crew.unwrap().manager_llm.as_deref(), Some("m"));
}

#[test]
fn a_run_needs_an_objective() {
    let file = read_spec("s.yaml", "preset: shannon-simple").unwrap();
    let why = file.resolve().unwrap_err().to_string();
    assert_eq!(why, "Invalid supervisor spec at 's.yaml'. objective: required key `objective` is missing");
    let mut file = file;
    file.spec.objective = "given at the start".into();
    assert_eq!(file.resolve().unwrap().spec.objective, "given at the start");
}

/// The hash is that of the values: neither order nor spelling of a file matters, every value does.
#[test]
fn the_hash_names_the_values() {
    let hash = |text: &str| read_spec("s", text).unwrap().resolve().unwrap().hash;
    let one = hash("objective: o\nhitl: { triggers: { confidence: 0.60 }, approval: { timeout: 1800s } }");
    assert_eq!(one, hash("hitl: { approval: { timeout: 30m }, triggers: { confidence: 0.6 } }\nobjective: o"));
    assert_eq!(one, hash("objective: o"), "the defaults are values too");
    assert_ne!(one, hash("objective: o\nhitl: { triggers: { confidence: 0.61 } }"));
    assert_ne!(one, hash("objective: p"));
    assert_eq!(one.len(), 64);
}

#[test]
fn a_resolved_spec_survives_its_own_json_and_shows_when_it_was_changed() {
    let resolved = built().resolve().unwrap();
    let mut value = serde_json::to_value(&resolved).unwrap();
    let back: ResolvedSpec = serde_json::from_value(value.clone()).unwrap();
    assert_eq!((&back, back.is_intact()), (&resolved, true));
    assert_eq!(back.spec.resolve().unwrap(), resolved, "resolving again changes nothing");
    value["spec"]["team"]["max_size"] = json!(11);
    assert!(!serde_json::from_value::<ResolvedSpec>(value).unwrap().is_intact());
}

#[test]
fn canonical_bytes_have_sorted_keys() {
    fn sorted(value: &Value) -> bool {
        match value {
            Value::Object(map) => map.keys().is_sorted() && map.values().all(sorted),
            Value::Array(list) => list.iter().all(sorted),
            _ => true,
        }
    }
    let text = built().resolve().unwrap().canonical().unwrap();
    assert!(sorted(&serde_json::from_str(&text).unwrap()));
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        (-2.0..2.0f64).prop_map(Value::from),
        "[a-z_{}.0-9]{0,12}".prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 24, 4, |inner| {
        let keys = prop_oneof![
            proptest::sample::select(vec![
                "agents",
                "name",
                "hitl",
                "triggers",
                "script",
                "on",
                "say",
                "fail",
                "seed_plan",
                "plan",
                "via",
                "reviewer",
                "trust",
                "rules",
                "supervisor",
                "mode",
                "preset",
                "services",
                "model",
                "tools",
            ])
            .prop_map(str::to_owned),
            "[a-z]{1,6}",
        ];
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            proptest::collection::vec((keys, inner), 0..5)
                .prop_map(|entries| Value::Object(entries.into_iter().collect())),
        ]
    })
}

proptest! {
    /// Whatever a file holds, it is a spec that can be hashed or an error that names the file.
    #[test]
    fn reading_never_panics(value in any_json()) {
        match read_spec("s.yaml", &value.to_string()) {
            Ok(file) => prop_assert!(file.resolve().is_ok() || file.spec.objective.trim().is_empty()),
            Err(why) => prop_assert!(why.to_string().starts_with("Invalid supervisor spec at 's.yaml'. ")),
        }
    }
}
