//! Reading specs: strictness, places, presets and overrides.

use serde_json::{Value, json};

use crate::supervisor::spec::{Preset, Ratio, Span, SpecFile, SupervisorSpec, UnreadFile, read_spec, read_spec_with};

fn read(text: &str) -> SpecFile {
    read_spec("s.yaml", text).unwrap_or_else(|why| panic!("{why}"))
}

#[track_caller]
fn refused(text: &str) -> String {
    read_spec("s.yaml", text).expect_err("the spec is refused").to_string()
}

#[test]
fn an_empty_spec_has_the_defaults() {
    assert_eq!(read("").spec, SupervisorSpec::default());
    assert_eq!(read("kind: supervisor\nhitl:\n").spec, SupervisorSpec::default());
}

#[test]
fn unknown_keys_are_refused_with_their_place_and_the_likely_key() {
    let why = refused("kind: supervisor\nhitl: { triggers: { confidance: 0.5 } }");
    assert_eq!(
        why,
        "Invalid supervisor spec at 's.yaml'. hitl.triggers.confidance: unknown key `confidance` (did you mean \
         `confidence`?); known keys: confidence, action_cost, sensitive, consecutive_failures, decision_timeout, \
         out_of_scope\nat s.yaml:2:21"
    );
    // What was set from outside does not stand in the file.
    let set = serde_json::json!({ "hitl": { "triggers": { "confidance": 0.5 } } });
    let why =
        read_spec_with("s.yaml", "kind: supervisor\nhitl: { triggers: {} }", &set, &|_| Err(UnreadFile(String::new())));
    assert!(why.unwrap_err().to_string().ends_with("out_of_scope"));
}

#[test]
fn a_file_overrides_its_preset_key_by_key() {
    let text = "preset: shannon-supervisor\nhitl: { triggers: { confidence: 0.5 } }\nfailure: { tries: 4 }";
    let spec = read(text).spec;
    assert_eq!(spec.preset, Some(Preset::ShannonSupervisor));
    assert_eq!(spec.hitl.triggers.confidence, Some(Ratio::from_bp(5_000)));
    assert_eq!(spec.hitl.triggers.decision_timeout, Some(Span::from_mins(5)));
    let mut expected = Preset::ShannonSupervisor.values();
    expected.hitl.triggers.confidence = Some(Ratio::from_bp(5_000));
    expected.failure.tries = 4;
    assert_eq!(spec, expected);
}

#[test]
fn null_takes_a_value_away_and_an_empty_section_changes_nothing() {
    let spec = read("preset: shannon-supervisor\nfailure: { threshold_bp: null }\nteam:\n").spec;
    assert_eq!(spec.failure.threshold_bp, None);
    assert_eq!(spec.team, Preset::ShannonSupervisor.values().team);
}

#[test]
fn every_preset_survives_its_own_json() {
    for preset in Preset::ALL {
        let value: Value = serde_json::to_value(preset.values()).unwrap();
        let back: SupervisorSpec = serde_json::from_value(value.clone()).unwrap();
        assert_eq!(back, preset.values(), "{preset}");
        assert_eq!(value["preset"], json!(preset.name()));
    }
}

/// A model is played by its name, which stands with how it is played or with who is played; without one nobody can be asked.
#[test]
fn a_model_has_a_name() {
    let spec =
        |agent: &str, more: &str| format!("preset: shannon-dag\nobjective: o\nagents: [{{ name: a{agent} }}]\n{more}");
    let nameless = ", via: { model: { provider: p } }";
    assert!(refused(&spec(nameless, "")).contains("agents[0].via.model.name"));
    assert!(refused(&spec("", "via: { model: { provider: p } }")).contains("via.model.name"));
    let role = "planner: { via: { model: { provider: p } } }";
    assert!(refused(&spec("", role)).contains("planner.via.model.name"));
    for good in [
        spec(", model: m, via: { model: { provider: p } }", ""),
        spec("", "via: { model: { name: m } }"),
        spec(", model: m", "via: { model: { provider: p } }"),
        spec("", "planner: { model: m, via: { model: { provider: p } } }"),
    ] {
        assert!(read_spec("s", &good).is_ok(), "{good}");
    }
    let price = spec("", "via: { model: { name: m, price: { input: 1, outpt: 2 } } }");
    assert!(refused(&price).contains("via.model.price"), "{}", refused(&price));
}

/// A budget of tokens, money and calls is kept by every kind of run; ways of thinking step down in plans only.
#[test]
fn every_kind_of_run_keeps_a_budget() {
    let spec = |preset: &str| {
        format!(
            "preset: {preset}\nobjective: o\nagents: [{{ name: a }}, {{ name: b }}]\nbudget: {{ tokens: 5, cost: 1.5, llm_calls: 3 }}"
        )
    };
    for preset in ["shannon-simple", "swarm-handoff", "autogen-groupchat", "supyagent-delegation"] {
        assert_eq!(read_spec("s", &spec(preset)).unwrap().warnings, Vec::<String>::new(), "{preset}");
    }
    let degrades = "preset: swarm-handoff\nobjective: o\nagents: [{ name: a }]\nbudget: { tokens: 5, degrade: {} }";
    assert_eq!(read_spec("s", degrades).unwrap_err().at, "budget.degrade");
}
