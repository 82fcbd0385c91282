//! Keys of agents, roles, policies and tasks that a kind of run does not look at: refused with their place, one by one.

use crate::supervisor::spec::read_spec;

/// Where the spec is refused; `read` if it is not.
fn refused_at(text: &str) -> String {
    match read_spec("s.yaml", &format!("objective: x\n{text}")) {
        Ok(_) => "read".to_owned(),
        Err(why) => why.at,
    }
}

#[track_caller]
fn check(cases: &[(&str, &str)]) {
    for (text, at) in cases {
        assert_eq!(refused_at(text), *at, "{text}");
    }
}

/// CRW-09, CRW-10, CRW-11: what a task of a plan may say is carried out by a crew, or refused.
#[test]
fn a_crew_passes_no_key_of_a_task_over() {
    let first = "{ task_id: 1, sub_task_objective: a, capability: any }";
    let at = |key: &str| format!("seed_plan.plan.tasks[1].{key}");
    for (keys, key) in [
        ("status: completed", "status"),
        ("status: cancelled", "status"),
        ("attempt_count: 1", "attempt_count"),
        ("max_attempts: 1", "max_attempts"),
        ("compensation: call it back", "compensation"),
        ("time_scope: { from: now }", "time_scope"),
        ("metadata: { why: so }", "metadata"),
        ("overall_objective: another", "overall_objective"),
        ("action: send_email", "action"),
        ("risk: critical", "risk"),
        ("parameters: { async: true }", "parameters.async"),
        ("parameters: { guardrails: w }", "parameters.guardrails"),
        ("parameters: { human_input: 1 }", "parameters.human_input"),
    ] {
        let second = format!("{{ task_id: 2, sub_task_objective: b, capability: any, {keys} }}");
        let plan = format!("seed_plan: {{ plan: {{ objective: x, tasks: [{first}, {second}] }} }}");
        let crew = format!("preset: crewai-hierarchical\nmanager_llm: m\nagents: [{{ name: w }}]\n{plan}");
        assert_eq!(refused_at(&crew), at(key), "{keys}");
    }
    for keys in [
        "requires_approval: true, action: send_email, risk: critical, required: true",
        "sub_task_dependencies: [1], when: { '1': { contains: a } }",
        "is_final: true, max_attempts: 3, status: pending",
        "parameters: { expected_output: b, guardrail: w, guardrail_max_retries: 1, human_input: true }",
    ] {
        let second = format!("{{ task_id: 2, sub_task_objective: b, capability: any, {keys} }}");
        let plan = format!("seed_plan: {{ plan: {{ objective: x, tasks: [{first}, {second}] }} }}");
        let crew = format!("preset: crewai-hierarchical\nmanager_llm: m\nagents: [{{ name: w }}]\n{plan}");
        assert_eq!(refused_at(&crew), "read", "{keys}");
    }
    let last = "{ task_id: 2, sub_task_objective: b, capability: any }";
    let final_first = first.replace("capability", "is_final: true, capability");
    let crew = format!(
        "preset: crewai-hierarchical\nmanager_llm: m\nagents: [{{ name: w }}]\nseed_plan: {{ plan: {{ objective: x, tasks: \
         [{final_first}, {last}] }} }}"
    );
    assert_eq!(refused_at(&crew), "seed_plan.plan.tasks[0].is_final");
}

/// CRW-01, SUP-33: of a manager's entry each key holds, or is refused.
#[test]
fn a_manager_has_no_key_that_nobody_reads() {
    let crew = |manager: &str| format!("preset: crewai-hierarchical\nagents: [{{ name: w }}]\n{manager}");
    for (manager, at) in [
        ("manager_agent: { name: boss, limits: { per_turn: 2, total: 9 } }", "read"),
        ("manager_agent: { name: boss }\nmanager_llm: m", "manager_llm"),
        ("manager_agent: { name: boss, delegates: [w] }", "manager_agent.delegates"),
        ("manager_agent: { name: boss, memory_scope: call }", "manager_agent.memory_scope"),
        ("manager_agent: { name: boss, callable: true }", "manager_agent.callable"),
        ("manager_agent: { name: boss, required_parameters: [x] }", "manager_agent.required_parameters"),
    ] {
        assert_eq!(refused_at(&crew(manager)), at, "{manager}");
    }
}

/// Nobody is named for a job that the family never asks for.
#[test]
fn a_role_that_nobody_asks_is_refused() {
    let two = "agents: [{ name: a }, { name: b }]";
    let of = |preset: &str, rest: &str| format!("preset: {preset}\n{two}\n{rest}");
    let crew = |rest: &str| of("crewai-hierarchical", &format!("manager_llm: m\n{rest}"));
    for (text, at) in [
        (of("autogen-groupchat", "reviewer: { model: m }"), "reviewer"),
        (of("autogen-groupchat", "planner: { model: m }"), "planner"),
        (of("autogen-groupchat", "synthesizer: { model: m }"), "synthesizer"),
        (of("autogen-groupchat", "supervisor: { model: m }"), "read"),
        (of("autogen-groupchat", "supervisor: { model: m }\nspeaker: { method: round_robin }"), "supervisor"),
        (of("autogen-groupchat", "services: { review: { model: m } }"), "services.review"),
        (
            of("autogen-groupchat", "services: { authorize_team_action: { model: m } }"),
            "services.authorize_team_action",
        ),
        (of("autogen-groupchat", "services: { notify_for_approval: { model: m } }"), "services.notify_for_approval"),
        (
            of(
                "autogen-groupchat",
                "services: { notify_for_approval: { model: m } }\nhitl: { mode: human_in_command }",
            ),
            "read",
        ),
        (of("autogen-groupchat-swarm", "supervisor: { model: m }"), "supervisor"),
        (
            of(
                "autogen-groupchat-magentic",
                "planner: { model: m }\nsynthesizer: { model: m }\nsupervisor: { model: m }",
            ),
            "read",
        ),
        (of("autogen-groupchat-magentic", "reviewer: { model: m }"), "reviewer"),
        (of("autogen-groupchat", "memory: { session: s }"), "memory.session"),
        (of("supyagent-delegation", "reviewer: { model: m }"), "reviewer"),
        (of("supyagent-delegation", "advisor: { model: m }"), "advisor"),
        (of("swarm-handoff", "supervisor: { model: m }"), "supervisor"),
        (of("swarm-handoff", "synthesizer: { model: m }"), "synthesizer"),
        (
            of(
                "swarm-handoff",
                "synthesizer: { model: m }\npolicies: [{ type: output_formatter, name: f, instructions: short }]",
            ),
            "read",
        ),
        (of("langgraph-supervisor", "services: { plan: { model: m } }"), "services.plan"),
        (crew("reviewer: { model: m }"), "reviewer"),
        (crew("reviewer: { model: m }\nreview: { scope: task }"), "read"),
        (crew("reviewer: { model: m }\nreview: { scope: iteration }"), "reviewer"),
        (crew("review: { scope: iteration }"), "review.scope"),
        (crew("review: { scope: task }"), "review.scope"),
    ] {
        assert_eq!(refused_at(&text), at, "{text}");
    }
}

/// SUP-04: whoever is listed can be asked, and what stands in an entry is looked at.
#[test]
fn a_key_of_an_agent_that_nobody_reads_is_refused() {
    check(&[
        (
            "preset: supyagent-delegation\nagents: [{ name: a, delegates: [f] }, { name: f, callable: true }]",
            "agents[0].delegates",
        ),
        ("preset: supyagent-delegation\nagents: [{ name: a, tools: [f] }, { name: f, callable: true }]", "read"),
        (
            "preset: langgraph-supervisor\nagents: [{ name: a, delegates: [f] }, { name: f, callable: true }]",
            "agents[0].delegates",
        ),
        ("preset: supyagent-delegation\nagents: [{ name: a, memory_scope: call }]", "agents[0].memory_scope"),
        (
            "preset: crewai-hierarchical\nmanager_llm: m\nagents: [{ name: a, delegates: [b] }, { name: b }]",
            "agents[0].delegates",
        ),
        ("preset: autogen-groupchat\nagents: [{ name: a, callable: true }, { name: b }]", "agents[0].callable"),
        (
            "preset: autogen-groupchat\nagents: [{ name: a, required_parameters: [x] }, { name: b }]",
            "agents[0].required_parameters",
        ),
        (
            "preset: autogen-groupchat\nspeaker: { transitions_type: allowed }\nagents: [{ name: a }, { name: b }]",
            "speaker.transitions_type",
        ),
        ("preset: swarm-handoff\nhandoff: { parallel: true }\nagents: [{ name: a }, { name: b }]", "handoff.parallel"),
        ("preset: langgraph-supervisor\nhandoff: { parallel: true }\nagents: [{ name: a }, { name: b }]", "read"),
        (
            "preset: crewai-hierarchical\nmanager_llm: m\nhandoff: { execute_tools: false }\nagents: [{ name: a }]",
            "handoff.execute_tools",
        ),
    ]);
}

/// AGC-14, SWM-06, CRW-12: a run goes on from what a run of its kind has left.
#[test]
fn what_a_run_goes_on_from_is_of_its_kind() {
    let two = "agents: [{ name: a }, { name: b }]";
    let said = "messages: [{ role: user, content: one }]";
    for (preset, resume, at) in [
        ("autogen-groupchat", "messages: [{ name: a, content: one }]", "read"),
        ("autogen-groupchat", "agent: a", "resume.agent"),
        ("autogen-groupchat", "context_variables: { a: 1 }", "resume.context_variables"),
        ("autogen-groupchat", "charged_thread: 2", "resume.charged_thread"),
        ("autogen-groupchat", "from: '1'", "resume.from"),
        ("swarm-handoff", said, "read"),
        ("swarm-handoff", "outputs: [{ task: '1', text: one }]", "resume.outputs"),
        ("swarm-handoff", "lineage: [run]", "resume.lineage"),
        ("swarm-handoff", "after: '1'", "resume.after"),
        ("crewai-hierarchical", "outputs: [{ task: '1', text: one }]", "read"),
        ("crewai-hierarchical", said, "resume.messages"),
        ("crewai-hierarchical", "message: two", "resume.message"),
        ("crewai-hierarchical", "agent: a", "resume.agent"),
        ("crewai-hierarchical", "context_variables: { a: 1 }", "resume.context_variables"),
    ] {
        let manager = if preset == "crewai-hierarchical" { "\nmanager_llm: m" } else { "" };
        let text = format!("preset: {preset}\n{two}{manager}\nresume: {{ {resume} }}");
        assert_eq!(refused_at(&text), at, "{text}");
    }
}

/// CUG-39: a policy about a tool names one; where a plan may have tools of its own, it warns.
#[test]
fn a_policy_names_a_tool_that_there_is() {
    let of = |preset: &str, tool: &str| {
        format!(
            "preset: {preset}\nagents: [{{ name: a, tools: [pay], delegates: [b] }}, {{ name: b }}]\npolicies: [{{ type: \
             tool_approval, name: p, tools: [{tool}], message: m }}]"
        )
    };
    for (preset, tool, at) in [
        ("swarm-handoff", "pay", "read"),
        ("swarm-handoff", "transfer_to_b", "read"),
        ("swarm-handoff", "payy", "policies[0].tools"),
        ("supyagent-delegation", "delegate_to_b", "read"),
        ("supyagent-delegation", "spawn_agent", "read"),
        ("supyagent-delegation", "sleep", "read"),
        ("supyagent-delegation", "delegate_to_c", "policies[0].tools"),
        ("cuga-conversational", "payy", "read"),
    ] {
        assert_eq!(refused_at(&of(preset, tool)), at, "{preset} {tool}");
    }
    let read = read_spec("s.yaml", &format!("objective: x\n{}", of("cuga-conversational", "payy"))).unwrap();
    assert!(read.warnings.iter().any(|text| text.contains("did you mean `pay`?")), "{:?}", read.warnings);
}
