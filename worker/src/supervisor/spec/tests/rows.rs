//! What a spec must be as a whole, system by system, on both sides of each condition.

use serde_json::{Value, json};

use crate::supervisor::spec::{
    Agent, Limits, PlanningMode, Preset, SpeakerMethod, SupervisorMode, SupervisorSpec, UnreadFile, delegate_tool,
    read_spec, read_spec_with,
};

#[track_caller]
fn good(text: &str) -> SupervisorSpec {
    read_spec("s.yaml", text).unwrap_or_else(|why| panic!("{why}")).spec
}

#[track_caller]
fn refused(text: &str) -> String {
    let why = read_spec("s.yaml", text).expect_err("the spec is refused").to_string();
    let why = why.strip_prefix("Invalid supervisor spec at 's.yaml'. ").expect(&why);
    // Behind it stands the place, which is `yaml::place`'s.
    why.split("\nat s.yaml:").next().unwrap_or_default().to_owned()
}

const PLAN: &str =
    "seed_plan: { plan: { objective: o, tasks: [{ task_id: 1, sub_task_objective: a, capability: c }] } }";

/// PDT-27, PDT-28: three modes; the two that begin with a plan need one, with pydantask's text.
#[test]
fn fixed_and_hybrid_need_a_seed_plan() {
    let text = "planning.mode: seed_plan must be provided when planning_mode is 'fixed' or 'hybrid'";
    for mode in ["fixed", "hybrid"] {
        assert_eq!(refused(&format!("planning: {{ mode: {mode} }}")), text);
        assert_eq!(refused(&format!("preset: pydantask-{mode}")), text);
        let spec = good(&format!("preset: pydantask-{mode}\n{PLAN}"));
        assert!(spec.plan().unwrap().unwrap().final_task().is_some(), "the only task is marked final");
    }
    assert_eq!(good("preset: pydantask-llm").planning.mode, PlanningMode::Llm);
    let built = SupervisorSpec::preset(Preset::PydantaskFixed).objective("o").build().unwrap_err();
    assert_eq!(built.to_string(), format!("Invalid supervisor spec. {text}"));
}

/// PDT-38, PDT-41, PDT-42, PDT-43, PDT-53: a seed plan is held to its own contract, from a file as well; the run's
/// objective is the spec's, and the plan's where the spec has none.
#[test]
fn a_seed_plan_is_checked_wherever_it_comes_from() {
    let file = |text: &'static str| {
        move |name: &str| {
            if name == "plan.yml" { Ok(text.to_owned()) } else { Err(UnreadFile(format!("no file {name}"))) }
        }
    };
    let spec = "preset: pydantask-fixed\nseed_plan: { file: plan.yml, auto_mark_final: false }";
    let good = file("objective: from the plan\ntasks: [{ task_id: 4, sub_task_objective: a, capability: c }]");
    let read = read_spec_with("s.yaml", spec, &Value::Null, &good).unwrap();
    let resolved = read.resolve().unwrap();
    assert_eq!(resolved.spec.objective, "from the plan");
    assert_eq!(resolved.spec.plan().unwrap().unwrap().final_task(), None);
    assert_eq!(resolved.spec.seed_plan.as_ref().unwrap().file, None, "the file is part of the spec now");
    let own = read_spec_with("s.yaml", &format!("{spec}\nobjective: mine"), &Value::Null, &good).unwrap();
    let own = own.resolve().unwrap().spec;
    assert_eq!(own.objective, "mine");
    let task = own.plan().unwrap().unwrap().tasks().next().unwrap().clone();
    assert_eq!(task.overall_objective, "from the plan");

    let twice = file(
        "objective: o\ntasks: [{ task_id: 1, sub_task_objective: a, capability: c, is_final: true }, \
         { task_id: 2, sub_task_objective: b, capability: c, is_final: true }]",
    );
    let why = read_spec_with("s.yaml", spec, &Value::Null, &twice).unwrap_err().to_string();
    assert_eq!(
        why,
        "Invalid supervisor spec at 's.yaml'. seed_plan.file: Invalid workflow YAML at 'plan.yml'. Workflow YAML marks \
         multiple tasks as final: [1, 2]. Mark exactly one task with `is_final: true`.\nat s.yaml:2:14"
    );
    let missing = read_spec("s.yaml", spec).unwrap_err().to_string();
    assert!(
        missing.starts_with("Invalid supervisor spec at 's.yaml'. seed_plan.file: the file `plan.yml`"),
        "{missing}"
    );
    let both = format!("{PLAN}\n").replace("{ plan:", "{ file: plan.yml, plan:");
    assert_eq!(refused(&both), "seed_plan: give either `file` or `plan`, not both");
}

/// CUG-01, CUG-16: the modes; an argument wins over the file, an unknown one is refused in either.
#[test]
fn an_argument_wins_over_the_file() {
    for (text, mode) in [("none", PlanningMode::None), ("todos", PlanningMode::Todos), ("agents", PlanningMode::Agents)]
    {
        assert_eq!(good(&format!("planning: {{ mode: {text} }}")).planning.mode, mode);
    }
    let no_files = |_: &str| Err(UnreadFile(String::new()));
    let file = "preset: cuga-structured\nagents: [{ name: a }]\nplanning: { mode: todos, force: true }";
    let with = |mode: &str| read_spec_with("s", file, &json!({ "planning": { "mode": mode } }), &no_files);
    let spec = with("agents").unwrap().spec;
    assert_eq!((spec.planning.mode, spec.planning.force), (PlanningMode::Agents, true));
    let why = with("agent").unwrap_err().to_string();
    assert!(why.contains("planning.mode: unknown value `agent` (did you mean `agents`?)"), "{why}");
    // The same for a file of CUGA's.
    let theirs = "supervisor: { planning_mode: todos }\nagents: [{ name: a }]";
    let spec = read_spec_with("s", theirs, &json!({ "planning": { "mode": "agents" } }), &no_files).unwrap().spec;
    assert_eq!(spec.planning.mode, PlanningMode::Agents);
}

/// CUG-33: supervisor modes are two; the legacy `delegation` is none of them in a spec of ours.
#[test]
fn supervisor_modes_are_two() {
    assert_eq!(good("").planning.supervisor_mode, SupervisorMode::Conversational);
    let cuga = "preset: cuga-structured\nagents: [{ name: a }]\n";
    let upfront = good(&format!("{cuga}planning: {{ supervisor_mode: plan_upfront }}")).planning;
    assert!(upfront.is_upfront() && upfront.mode == PlanningMode::Agents, "the three words are never merged");
    assert_eq!(
        refused("planning: { supervisor_mode: delegation }"),
        "planning.supervisor_mode: unknown value `delegation`; known values: conversational, plan_upfront"
    );
}

/// CUG-36: what becomes the same tool is refused; the name of the tool is sanitized.
#[test]
fn names_that_become_the_same_tool_are_refused() {
    let tools = ["crm-agent", "crm_agent", "a b.c", "émile", "x1"].map(delegate_tool);
    let expected = ["crm_agent", "crm_agent", "a_b_c", "émile", "x1"].map(|name| format!("delegate_to_{name}"));
    assert_eq!(tools, expected);
    good("agents: [{ name: crm-agent }, { name: crm-agents }]");
    assert_eq!(
        refused("agents: [{ name: crm-agent }, { name: crm agent }]"),
        "agents[1].name: the agents `crm-agent` and `crm agent` would both be the tool `delegate_to_crm_agent`"
    );
}

/// CUG-38: an unknown memory scope is `call`, with a warning; the default is `conversation`.
#[test]
fn an_unknown_memory_scope_is_call_with_a_warning() {
    let agents = "agents: [{ name: a }, { name: b, memory_scope: for_ever }, { name: c, memory_scope: call }]";
    let read = read_spec("s", &format!("preset: cuga-conversational\n{agents}")).unwrap();
    let scopes: Vec<Value> =
        read.spec.agents.iter().map(|agent| serde_json::to_value(agent.memory_scope).unwrap()).collect();
    assert_eq!(scopes, ["conversation", "call", "call"]);
    assert_eq!(read.warnings, ["agents[1].memory_scope: unknown memory scope `for_ever`; `call` is used"]);
}

/// FSS-32: no worker at all is refused in every flow preset, with the name; `reviewer: false` is no review.
#[test]
fn flow_needs_workers_and_may_go_without_a_reviewer() {
    for preset in ["flow-supervisor", "flow-supervisor-per-task", "flow-plan-and-execute", "flow-coordinator"] {
        assert_eq!(
            refused(&format!("preset: {preset}\nname: research")),
            "agents: [supervisor] \"research\" requires either worker or workers"
        );
    }
    let spec = good("preset: flow-supervisor\nagents: [{ name: w }]\nreviewer: false");
    assert_eq!(serde_json::to_value(spec.review.scope).unwrap(), "none");
    assert_eq!(serde_json::to_value(good("synthesizer: false").synthesis.mode).unwrap(), "none");
    good("reviewer: false\nreview: { scope: none }");
}

/// SUP-33: limits and models stand in each agent's own entry; whoever has none has none.
#[test]
fn nothing_is_inherited_between_agents() {
    let spec = good(
        "preset: supyagent-delegation\nagents:\n\
         - { name: parent, model: big, limits: { per_turn: 20, total: 100 }, delegates: [child] }\n\
         - { name: child }",
    );
    let child = spec.agent("child").unwrap();
    assert_eq!((&child.model, child.limits), (&None, Limits { per_turn: None, total: None }));
    assert_eq!(spec.agent("parent").unwrap().limits, Limits { per_turn: Some(20), total: Some(100) });
}

/// SUP-34, SUP-04: an empty list of delegates stays empty; a delegate without an entry is a warning, not an error.
#[test]
fn delegates_are_what_they_are_said_to_be() {
    let text = "preset: supyagent-delegation\nagents: [{ name: a, delegates: [b, c] }, { name: b, delegates: [] }]";
    let read = read_spec("s", text).unwrap();
    assert_eq!(read.spec.agent("b").unwrap().delegates, Vec::<String>::new());
    assert_eq!(read.warnings, ["agents[0].delegates: `c` is not an agent; it becomes no tool"]);
}

/// AGC-04: AutoGen's five ways in any case, anything else with its text.
#[test]
fn speaker_methods_are_read_in_any_case() {
    let chat = |method: &str| {
        format!("preset: autogen-groupchat\nagents: [{{ name: a }}, {{ name: b }}]\nspeaker: {{ method: {method} }}")
    };
    for method in SpeakerMethod::ALL {
        for text in [method.as_str().to_owned(), method.as_str().to_uppercase()] {
            assert_eq!(good(&chat(&text)).speaker.method, method, "{text}");
        }
    }
    assert_eq!(
        refused(&chat("Loudest")),
        "speaker.method: GroupChat speaker_selection_method is set to 'Loudest'. It should be one of ['auto', \
         'manual', 'random', 'round_robin'] (case insensitive)."
    );
}

/// AGC-05: fewer than two agents.
#[test]
fn a_group_chat_needs_two() {
    let chat = |agents: &str| format!("preset: autogen-groupchat\nagents: [{agents}]");
    for (count, agents) in [(0, ""), (1, "{ name: a }")] {
        let text = format!(
            "agents: GroupChat is underpopulated with {count} agents. Please add more agents to the GroupChat or use \
             direct communication instead."
        );
        assert_eq!(refused(&chat(agents)), text);
    }
    good(&chat("{ name: a }, { name: b }"));
}

/// AGC-09: transitions exclude `allow_repeat`, need a type, and name agents only.
#[test]
fn transitions_have_a_type_and_exclude_repeats() {
    let chat = |speaker: &str| {
        format!("preset: autogen-groupchat\nagents: [{{ name: a }}, {{ name: b }}]\nspeaker: {{ {speaker} }}")
    };
    good(&chat("transitions: { a: [b], b: [a] }, transitions_type: disallowed"));
    let both = refused(&chat("transitions: { a: [b] }, transitions_type: allowed, allow_repeat: true"));
    assert!(both.starts_with("speaker.transitions: Don't provide both"), "{both}");
    let none = refused(&chat("transitions: { a: [b] }"));
    assert!(none.starts_with("speaker.transitions_type: GroupChat allowed_or_disallowed"), "{none}");
    let stranger = refused(&chat("transitions: { a: [c] }, transitions_type: allowed"));
    assert_eq!(stranger, "speaker.transitions: `c` is not an agent of the chat");
}

/// CRW-01, CRW-02: a manager or its model; no worker at the same time, and no tools of its own.
#[test]
fn a_hierarchical_crew_needs_a_manager_that_only_manages() {
    let crew = |more: &str| format!("preset: crewai-hierarchical\nagents: [{{ name: a }}]\n{more}");
    let required = "Attribute `manager_llm` or `manager_agent` is required when using hierarchical process.";
    assert_eq!(refused(&crew("")), format!("manager_llm: {required}"));
    good(&crew("manager_llm: gpt-4o"));
    assert_eq!(good(&crew("manager_agent: boss")).manager_agent.unwrap(), Agent::new("boss"));
    assert_eq!(
        refused(&crew("manager_agent: a")),
        "manager_agent: Manager agent should not be included in agents list."
    );
    assert_eq!(
        refused(&crew("manager_agent: { name: boss, tools: [search] }")),
        "manager_agent.tools: Manager agent should not have tools"
    );
    // Another preset has no manager and needs none.
    good("preset: langgraph-supervisor\nagents: [{ name: a }]");
}

/// LGS-04: names are there and unique; custom hand-off tools lead to everybody.
#[test]
fn agents_have_names_and_custom_handoffs_reach_all() {
    assert_eq!(refused("agents: [{ role: r }]"), "agents[0].name: required key `name` is missing");
    assert_eq!(refused("agents: [{ name: ' ' }]"), "agents[0].name: every agent needs a name; this one has none");
    assert_eq!(
        refused("agents: [{ name: a }, { name: a }]"),
        "agents[1].name: agent names must be unique; `a` is given twice"
    );
    let team = |tools: &str| {
        format!("preset: langgraph-supervisor\nagents: [{{ name: a }}, {{ name: b }}]\nhandoff: {{ tools: [{tools}] }}")
    };
    good(&team("a, b"));
    assert!(refused(&team("a")).ends_with("Missing handoff tools for agents '{'b'}'."));
    assert_eq!(refused(&team("a, b, c")), "handoff.tools: `c` is not an agent");
}

/// SUP-08, SUP-09: a run that begins too deep is refused before anything starts; at the limit it may begin.
#[test]
fn a_run_may_not_begin_below_the_deepest_level() {
    let at = |depth: u32| {
        format!("preset: supyagent-delegation\nagents: [{{ name: a }}]\ndelegation: {{ base_depth: {depth} }}")
    };
    assert_eq!(good(&at(5)).delegation.base_depth, 5);
    let text = "Maximum delegation depth (5) exceeded (depth=6). Cannot delegate further.";
    assert_eq!(refused(&at(6)), format!("delegation.base_depth: {text}"));
}

/// FSS-36: park-exit excludes an idle rule, and either alone is good.
#[test]
fn park_exit_excludes_an_idle_rule() {
    good("review: { park_exit: true }");
    for idle in ["wait", "complete"] {
        good(&format!("loop: {{ on_idle: {idle} }}"));
        let why = refused(&format!("review: {{ park_exit: true }}\nloop: {{ on_idle: {idle} }}"));
        assert_eq!(why, "review.park_exit: cannot be combined with `loop.on_idle: wait` or `complete`");
    }
}

/// LGS-08, FSS-23: a supervisor is an agent, its own spec is read as strictly and becomes part of the whole.
#[test]
fn supervisors_nest() {
    let outer = "preset: flow-plan-and-execute\nagents: [{ name: deep, via: { supervisor: { file: inner.yaml } } }]";
    let files = |inner: &'static str| move |_: &str| Ok(inner.to_owned());
    let read = |inner| read_spec_with("s.yaml", outer, &Value::Null, &files(inner));
    let spec = read("preset: flow-supervisor\nname: inner\nagents: [{ name: w }]").unwrap().spec;
    let inner = serde_json::to_value(&spec.agents[0].via).unwrap();
    assert_eq!(inner["supervisor"]["spec"]["loop"]["max_iterations"], 3);
    let why = read("preset: flow-supervisor\nname: inner").unwrap_err().to_string();
    assert_eq!(
        why,
        "Invalid supervisor spec at 's.yaml'. agents[0].via.supervisor.spec.agents: [supervisor] \"inner\" requires \
         either worker or workers\nat s.yaml:2:31"
    );
    let endless = read_spec_with("s.yaml", outer, &Value::Null, &files(outer)).unwrap_err().to_string();
    assert!(endless.contains("supervisors are nested more than 8 deep"), "{endless}");
}

/// Nothing that bounds a run may be zero.
#[test]
fn zero_is_no_bound() {
    let keys = [
        "loop.max_steps",
        "loop.max_iterations",
        "loop.max_rounds",
        "loop.no_progress",
        "dispatch.max_concurrency",
        "review.max_attempts",
        "failure.tries",
        "team.max_size",
        "mailbox.limit",
        "mailbox.queue",
        "delegation.parallel",
        "delegation.background_max",
        "speaker.manual_tries",
        "planning.approval.max_rounds",
        "hitl.triggers.consecutive_failures",
    ];
    for key in keys {
        let value = key.rsplit('.').fold(json!(0), |inner, key| json!({ key: inner }));
        assert_eq!(refused(&value.to_string()), format!("{key}: expected a whole number of 1 or more, found 0"));
        let value = key.rsplit('.').fold(json!(1), |inner, key| json!({ key: inner }));
        // Some bounds are of another kind of run.
        if let Err(why) = read_spec("s", &value.to_string()) {
            assert!(why.why.starts_with("has no effect here"), "{why}");
        }
    }
}
