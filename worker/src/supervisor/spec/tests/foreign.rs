//! Files of other systems load unchanged.

use std::path::Path;

use serde_json::{Value, json};

use crate::supervisor::spec::{Preset, SpecFile, SupervisorMode, UnreadFile, Via, read_spec, read_spec_with};

fn fixture(name: &str) -> Result<String, UnreadFile> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/supervisors/foreign").join(name);
    std::fs::read_to_string(path).map_err(|why| UnreadFile(why.to_string()))
}

fn cuga(text: &str) -> SpecFile {
    read_spec("c.yaml", text).unwrap_or_else(|why| panic!("{why}"))
}

/// SUP-01: supyagent's agent files, as they stand in its documentation.
#[test]
fn supyagent_agents_load_unchanged() {
    let text = "preset: supyagent-delegation\nobjective: o\nagents:\n- { file: planner.yaml }\n- { file: coder.yaml, timeout: 60s }";
    let file = read_spec_with("s.yaml", text, &Value::Null, &fixture).unwrap();
    assert_eq!(file.warnings, Vec::<String>::new());
    let planner = serde_json::to_value(&file.spec.agents[0]).unwrap();
    assert_eq!(planner["name"], "planner");
    assert_eq!(
        planner["description"],
        "Deep introspective planner that analyzes, plans, and orchestrates complex tasks"
    );
    assert_eq!(planner["type"], "interactive");
    assert_eq!(
        planner["model"],
        json!({ "name": "anthropic/claude-sonnet-4-5-20250929", "settings": { "temperature": 0.7 } })
    );
    assert!(planner["system_prompt"].as_str().unwrap().starts_with("You are a deep-thinking Planning Agent."));
    assert_eq!(planner["delegates"], json!(["coder"]));
    assert_eq!(planner["limits"], json!({ "per_turn": 20, "total": 100 }));
    assert_eq!(planner["will_create_tools"], false);
    let coder = serde_json::to_value(&file.spec.agents[1]).unwrap();
    assert_eq!((&coder["type"], &coder["will_create_tools"]), (&json!("execution"), &json!(true)));
    assert_eq!((&coder["limits"], &coder["delegates"]), (&json!({ "per_turn": 50, "total": null }), &json!([])));
    assert_eq!(coder["timeout"], "1m", "what stands beside the file wins");
    for kind in ["interactive", "execution", "daemon"] {
        read_spec("s", &format!("agents: [{{ name: a, type: {kind} }}]")).unwrap();
    }
    let why = read_spec("s", "agents: [{ name: a, type: demon }]").unwrap_err().to_string();
    assert!(
        why.contains("agents[0].type: unknown value `demon` (did you mean `daemon`?); known values: interactive, execution, daemon"),
        "{why}"
    );
}

#[test]
fn a_bad_agent_file_is_named_with_its_place() {
    let read = |text: &'static str| {
        let files = move |_: &str| Ok(text.to_owned());
        read_spec_with("s.yaml", "agents: [{ file: x.yaml }]", &Value::Null, &files).unwrap_err().to_string()
    };
    let start = "Invalid supervisor spec at 's.yaml'. agents[0].file: 'x.yaml': ";
    let end = "\nat s.yaml:1:12";
    assert_eq!(read("description: d"), format!("{start}name: required key `name` is missing{end}"));
    assert_eq!(read("[a]"), format!("{start}the document: expected a mapping, found a list{end}"));
    let unknown = read("name: a\ntemper: bad");
    assert!(unknown.contains("agents[0].temper: unknown key `temper`"), "{unknown}");
}

/// CUG-16, CUG-33, CUG-38, CUG-40: a supervisor file of CUGA's: legacy mode, agents inside, elsewhere and imported; what
/// has no name or no endpoint is left out with a warning.
#[test]
fn cuga_files_load_unchanged() {
    let file = cuga(&fixture("cuga.yaml").unwrap());
    let spec = &file.spec;
    assert_eq!(spec.preset, Some(Preset::CugaStructured));
    assert_eq!(spec.planning.supervisor_mode, SupervisorMode::PlanUpfront, "`delegation` is the old word");
    assert_eq!(serde_json::to_value(spec.planning.strategy).unwrap(), "parallel");
    assert!(spec.planning.approval.required);
    assert_eq!(spec.supervisor.as_ref().unwrap().system_prompt, "Ask the agents; do not guess.");
    let names: Vec<&str> = spec.agents.iter().map(|agent| agent.name.as_str()).collect();
    assert_eq!(names, ["crm", "billing", "travel"]);
    let crm = serde_json::to_value(&spec.agents[0]).unwrap();
    assert_eq!((&crm["system_prompt"], &crm["memory_scope"]), (&json!("Be brief."), &json!("call")));
    assert_eq!(crm["model"], json!({ "name": "gpt-4o", "settings": { "provider": "openai", "temperature": 0 } }));
    let billing = serde_json::to_value(&spec.agents[1]).unwrap();
    assert_eq!(billing["timeout"], "30s", "the default of an agent elsewhere");
    let headers = json!({ "Authorization": { "env": "BILLING_TOKEN", "prefix": "Bearer " } });
    assert_eq!(billing["via"], json!({ "http": { "url": "http://localhost:9999", "headers": headers } }));
    assert_eq!(spec.agents[2].via, Some(Via::Activity("examples.travel.agents.travel_agent".into())));
    let left_out = |key: &str, name: &str| {
        format!(
            "agents[0].{key}: {name} is left out: nobody here carries it out; a spec of Bosun grants tools to a model in `via: {{ model: {{ tools }} }}`"
        )
    };
    assert_eq!(file.warnings[..2], [left_out("apps", "crm_app"), left_out("mcp_servers", "crm_server")]);
    assert_eq!(
        file.warnings[2..],
        [
            "agents[3]: an agent without a name is left out",
            "agents[4].a2a_protocol: an agent without an endpoint is left out",
            "agents[0].memory_scope: unknown memory scope `forever`; `call` is used",
        ]
    );
}

/// CUG-16, CUG-17, CUG-33: todos are the default; each mode is read, an unknown one is refused where it stands.
#[test]
fn modes_of_cuga_files() {
    let plain = cuga("supervisor: {}\nagents: [{ name: a }]").spec;
    assert_eq!(plain.preset, Some(Preset::CugaConversational));
    assert_eq!(serde_json::to_value(plain.planning.mode).unwrap(), "todos");
    assert_eq!(plain.planning.supervisor_mode, SupervisorMode::Conversational);
    for mode in ["none", "todos", "agents"] {
        let spec = cuga(&format!("supervisor: {{ planning_mode: {mode} }}\nagents: [{{ name: a }}]")).spec;
        assert_eq!(serde_json::to_value(spec.planning.mode).unwrap(), mode);
    }
    for (mode, expected) in
        [("conversational", "conversational"), ("plan_upfront", "plan_upfront"), ("delegation", "plan_upfront")]
    {
        let spec = cuga(&format!("supervisor: {{ mode: {mode} }}\nagents: [{{ name: a }}]")).spec;
        assert_eq!(serde_json::to_value(spec.planning.supervisor_mode).unwrap(), expected);
    }
    for (key, value) in [("planning_mode", "agent"), ("mode", "chatty"), ("strategy", "random")] {
        let why =
            read_spec("c.yaml", &format!("supervisor: {{ {key}: {value} }}\nagents: [{{ name: a }}]")).unwrap_err();
        assert_eq!(why.at, format!("supervisor.{key}"));
        assert!(why.why.starts_with(&format!("unknown value `{value}`; known values: ")), "{why}");
    }
}

/// CUG-40: stored sub-agents, and import paths.
#[test]
fn stored_agents_and_import_paths() {
    let file = cuga(
        "supervisor:\n  subAgents:\n  - { kind: internal, ref: crm }\n  - { kind: internal }\n  \
         - { kind: a2a, name: far, endpoint: \"http://h:1\", timeout: 5 }\n  - { kind: a2a, name: lost }\n  - { kind: other }",
    );
    let names: Vec<&str> = file.spec.agents.iter().map(|agent| agent.name.as_str()).collect();
    assert_eq!(names, ["crm", "far"]);
    assert_eq!(file.spec.agents[1].timeout.unwrap().as_secs(), 5);
    assert_eq!(file.warnings.len(), 3, "{:?}", file.warnings);
    for bad in ["agent", "a..b", "1a.b", "a.b c", ""] {
        let why =
            read_spec("c", &format!("supervisor: {{}}\nagents: [{{ name: a, import_from: \"{bad}\" }}]")).unwrap_err();
        assert_eq!(why.at, "agents[0].import_from", "{bad}");
    }
}

/// A file of supyagent is one whatever else its own program reads of it, and what is wrong with it is told in its words.
#[test]
fn a_file_of_supyagent_is_told_in_its_own_words() {
    for (rest, at, why) in [
        ("supervisor: { on_timeout: kill }", "supervisor", "`delegation: { timeout, on_timeout, background_max }`"),
        ("limits: { max_tool_calls_per_turn: many }", "limits.max_tool_calls_per_turn", "expected a whole number"),
        ("limits: { max_total_tool_call: 9 }", "limits.max_total_tool_call", "did you mean `max_total_tool_calls`?"),
    ] {
        let text = format!("name: coder\nsystem_prompt: You write code.\ndelegates: []\n{rest}");
        let refused = read_spec("coder.yaml", &text).unwrap_err();
        assert_eq!(refused.at, at, "{refused}");
        assert!(refused.to_string().contains(why), "{refused}");
    }
}
