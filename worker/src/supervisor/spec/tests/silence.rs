//! What a spec says holds, or is refused with its path: nothing is passed over in silence.

use serde_json::{Value, json};

use crate::supervisor::core::key::MemoryKey;
use crate::supervisor::outbox::{Call, Purpose};
use crate::supervisor::spec::{
    Family, Files, HitlMode, Preset, SupervisorSpec, UnreadFile, Via, read_spec, read_spec_with,
};

const AGENTS: &str = "\nagents: [{ name: a }, { name: b }]";

fn refused_at(text: &str) -> String {
    match read_spec("s.yaml", &format!("{text}{AGENTS}")) {
        Ok(_) => "nowhere".to_owned(),
        Err(why) => why.at,
    }
}

fn read(text: &str) -> SupervisorSpec {
    read_spec("s.yaml", &format!("{text}{AGENTS}")).unwrap_or_else(|why| panic!("{why}")).spec
}

/// A section of another family, or a key that nothing in this kind of run looks at.
#[test]
fn what_has_no_effect_is_refused_with_its_path() {
    for (text, at) in [
        ("preset: flow-supervisor\nspeaker: { retries: 2 }", "speaker"),
        ("preset: flow-supervisor\nspeaker: { retries: 5 }", "speaker.retries"),
        ("preset: shannon-dag\nsteps: [{ agent: a, task: t }]", "steps"),
        ("preset: autogen-groupchat\nteam: { max_size: 3 }", "team.max_size"),
        ("preset: autogen-groupchat\nfailure: { tries: 3 }", "failure.tries"),
        ("preset: supyagent-delegation\ndependencies: { on_failure: skip }", "dependencies.on_failure"),
        ("preset: supyagent-delegation\nbudget: { tokens: 9, degrade: {} }", "budget.degrade"),
        ("preset: autogen-groupchat\nbudget: { tool_calls: 9 }", "budget.tool_calls"),
        ("preset: flow-supervisor\nloop: { max_rounds: 4 }", "loop.max_rounds"),
        ("preset: flow-supervisor\nplanning: { force: true }", "planning.force"),
        ("preset: flow-supervisor\nrouting: { supervisor_above: 9 }", "routing.supervisor_above"),
        ("preset: flow-supervisor\npolicies: [{ type: tool_guide, name: n, tools: [t], guide: g }]", "policies"),
        ("preset: shannon-dag\nresume: { message: m }", "resume"),
        ("preset: flow-coordinator\nhitl: { enabled: false, mode: human_in_command }", "hitl.mode"),
        ("preset: flow-coordinator\ntrust: { enabled: false, level: novice }", "trust.level"),
        ("preset: flow-coordinator\nhitl: { mode: human_in_command }\ntrust: { level: expert }", "trust.level"),
        (
            "preset: flow-supervisor\nplanning: { policies: { allowed_agents: [c] } }",
            "planning.policies.allowed_agents",
        ),
        ("preset: autogen-groupchat\nauthority: [finish]", "authority"),
        ("preset: supyagent-delegation\nauthority: [delegate]", "authority"),
        ("preset: autogen-groupchat\nhitl: { approval: { timeout: 5m } }", "hitl.approval"),
        ("preset: swarm-handoff\ntrust: { enabled: true }", "trust.enabled"),
        ("preset: swarm-handoff\nhitl: { plan_policy: { complexity: 0.5 } }", "hitl.plan_policy"),
        ("preset: langgraph-supervisor\nhitl: { triggers: { confidence: 0.5 } }", "hitl.triggers.confidence"),
        ("preset: autogen-groupchat\nhitl: { triggers: { action_cost: 2.0 } }", "hitl.triggers.action_cost"),
        ("preset: cuga-conversational\nhitl: { triggers: { out_of_scope: false } }", "hitl.triggers.out_of_scope"),
        ("preset: autogen-groupchat-swarm\nhitl: { gates: [before] }", "hitl.gates"),
        ("preset: supyagent-delegation\nhitl: { order: book_code }", "hitl.order"),
        (
            "preset: supyagent-delegation\nhitl: { mode: human_on_the_loop, exceptions: [confidence] }",
            "hitl.exceptions",
        ),
        ("preset: autogen-groupchat\nhitl: { mode: human_in_command, notify_only: [sensitive] }", "hitl.notify_only"),
        (
            "preset: swarm-handoff\nhitl: { triggers: { consecutive_failures: 2 } }",
            "hitl.triggers.consecutive_failures",
        ),
        (
            "preset: swarm-handoff\nhitl: { mode: human_in_command, notify_only: [consecutive_failures] }",
            "hitl.notify_only",
        ),
        (
            "preset: swarm-handoff\ntrust: { level: novice, rules: { to_expert: { tasks: 9, success: 0.9, days: 0, incident_days: 0 } } }",
            "trust.rules",
        ),
    ] {
        assert_eq!(refused_at(text), at, "{text}");
    }
}

/// A key that another value of the same spec, or the preset itself, leaves without effect.
#[test]
fn what_another_value_leaves_without_effect_is_refused_with_its_path() {
    for (text, at) in [
        ("preset: autogen-groupchat\nplanning: { mode: llm }", "planning.mode"),
        ("preset: autogen-groupchat\ndispatch: { selection: agent }", "dispatch.selection"),
        ("preset: flow-supervisor\ndispatch: { selection: speaker }", "dispatch.selection"),
        ("preset: autogen-groupchat-swarm\nspeaker: { func_call_filter: true }", "speaker.func_call_filter"),
        ("preset: autogen-groupchat-magentic\nspeaker: { fallback: next }", "speaker.fallback"),
        ("preset: autogen-groupchat-magentic\nloop: { count: messages }", "loop.count"),
        ("preset: autogen-groupchat\nspeaker: { ledger: { max_stalls: 5 } }", "speaker.ledger"),
        ("preset: autogen-groupchat\nspeaker: { selector_function: true }", "speaker.selector_function"),
        ("preset: flow-coordinator\nplanning: { replan: true }", "planning.replan"),
        ("preset: flow-coordinator\nloop: { max_iterations: 2 }", "loop.max_iterations"),
        ("preset: flow-supervisor\nloop: { max_steps: 2 }", "loop.max_steps"),
        ("preset: flow-plan-and-execute\ndispatch: { max_concurrency: 2 }", "dispatch.max_concurrency"),
        ("preset: flow-coordinator\nreview: { reject_status: ready }", "review.reject_status"),
        ("preset: flow-supervisor\nauthority: [finish]", "authority"),
        ("preset: pydantask-llm\nauthority: [select, finish, recruit]", "authority"),
        ("preset: cuga-structured\nauthority: [select, finish]", "authority"),
        ("preset: shannon-simple\ndependencies: { on_failure: skip }", "dependencies.on_failure"),
        ("preset: shannon-simple\nsynthesis: { dedupe: false }", "synthesis.dedupe"),
        ("preset: pydantask-llm\nbudget: { on_exhausted: synthesize }", "budget.on_exhausted"),
        ("preset: autogen-groupchat\nbudget: { tokens: 9, on_exhausted: synthesize }", "budget.on_exhausted"),
        ("preset: flow-supervisor\nbudget: { tokens: 9, allow_unpriced: true }", "budget.allow_unpriced"),
        (
            "preset: crewai-hierarchical\nmanager_llm: m\nbudget: { tokens: 9, on_exhausted: synthesize }",
            "budget.on_exhausted",
        ),
        ("preset: flow-supervisor\ndispatch: { selection: controller }", "dispatch.selection"),
        ("preset: swarm-handoff\nloop: { max_steps: 9 }", "loop.max_steps"),
        ("preset: swarm-handoff\nloop: { count: messages_with_opening }", "loop.count"),
        (
            "preset: crewai-hierarchical\nmanager_llm: m\ndelegation: { on_timeout: background }",
            "delegation.on_timeout",
        ),
        ("preset: shannon-supervisor\nteam: { policy: nobody }", "team.policy"),
        ("preset: flow-supervisor\nloop: { no_progress: 5 }", "loop.no_progress"),
        ("preset: flow-supervisor\nplanning: { strategy: parallel }", "planning.strategy"),
        ("preset: flow-coordinator\nreview: { include_accepted: true }", "review.include_accepted"),
        ("preset: flow-coordinator\nfailure: { count_recruits: true }", "failure.count_recruits"),
        ("preset: flow-coordinator\nplanning: { approval: { timeout: 5m } }", "planning.approval.timeout"),
        ("preset: flow-coordinator\nsynthesis: { tries: 5 }", "synthesis.tries"),
        ("preset: flow-supervisor-per-task\nfailure: { on_subtask_error: fail_task, tries: 7 }", "failure.tries"),
    ] {
        assert_eq!(refused_at(text), at, "{text}");
    }
    for text in [
        "preset: pydantask-llm\nauthority: [select, finish]",
        "preset: flow-supervisor\ndispatch: { selection: supervisor }\nauthority: [finish]",
        "preset: cuga-structured\nauthority: [finish]",
        "authority: [select, add, finish]",
        "preset: flow-plan-and-execute\nplanning: { replan: true }\nloop: { max_iterations: 2 }",
        "preset: flow-supervisor\nbudget: { on_exhausted: stop }",
        "preset: shannon-supervisor\nteam: { policy: a }",
        "preset: flow-supervisor-per-task\nfailure: { on_subtask_error: retry, tries: 7 }",
    ] {
        read(text);
    }
}

/// A job that nobody asks anybody to do with these values is refused, and taken where another value turns it on: whatever
/// the preset is called.
#[test]
fn a_job_of_a_plan_that_nobody_asks_for_is_refused_with_its_path() {
    const BY: &str = "{ agent: b }";
    let nobody = |preset: &str, jobs: &[&str]| {
        for job in jobs {
            let said = match job.strip_prefix("services.") {
                Some(name) => format!("services: {{ {name}: {BY} }}"),
                None => format!("{job}: {BY}"),
            };
            assert_eq!(refused_at(&format!("preset: {preset}\n{said}{}", seed(preset))), *job, "{preset}");
        }
    };
    let fixed = "services.notify_for_approval";
    for preset in ["shannon-dag", "map-reduce", "flow-coordinator", "flow-plan-and-execute"] {
        nobody(preset, &["reviewer", "services.review", "services.emit_progress", "services.authorize_team_action"]);
    }
    nobody(
        "shannon-simple",
        &["reviewer", "planner", "supervisor", "synthesizer", "advisor", "services.compensate", fixed],
    );
    nobody(
        "plan-run",
        &["reviewer", "planner", "supervisor", "synthesizer", "advisor", "services.fetch_memory", fixed],
    );
    nobody("cuga-structured", &["reviewer", "advisor", "services.emit_progress", "services.record_decomposition"]);
    nobody("cuga-conversational", &["reviewer", "planner", "synthesizer", "advisor", "services.decide"]);
    nobody("shannon-dag", &["supervisor", "advisor", "services.record_decomposition"]);
    nobody("shannon-supervisor", &["reviewer", "services.review", "services.emit_progress", "supervisor"]);
    nobody("flow-coordinator", &["supervisor", "services.synthesize"]);
    nobody("pydantask-fixed", &["planner", "synthesizer"]);
    for (preset, said) in [
        ("shannon-dag", "reviewer: BY\nreview: { scope: task }"),
        ("shannon-dag", "supervisor: BY\nplanning: { replan: true, evaluator: true }"),
        ("map-reduce", "supervisor: BY\ndispatch: { selection: supervisor }"),
        ("flow-coordinator", "synthesizer: BY\nsynthesis: { mode: synthesizer }"),
        ("flow-coordinator", "planner: BY\nservices: { compensate: BY, log_approval_result: BY }"),
        ("shannon-dag", "advisor: BY\nmemory: { session: s, advisor: true }"),
        ("shannon-supervisor", "advisor: BY\nmemory: { session: s }\nservices: { record_decomposition: BY }"),
        ("shannon-supervisor", "services: { authorize_team_action: BY }"),
        ("plan-run", "reviewer: BY\nreview: { scope: task }"),
        ("plan-run", "services: { notify_for_approval: BY }\nhitl: { mode: human_in_command }"),
        ("pydantask-fixed", "planner: BY\nplanning: { approval: { required: true } }"),
        ("cuga-structured", "planner: BY\nsupervisor: BY\nsynthesizer: BY\nreviewer: BY\nreview: { scope: task }"),
        ("cuga-conversational", "supervisor: BY"),
        ("flow-supervisor", "planner: BY\nreviewer: BY\nsynthesizer: BY"),
        ("pydantask-llm", "supervisor: BY\nreviewer: BY"),
    ] {
        read(&format!("preset: {preset}\n{}{}", said.replace("BY", BY), seed(preset)));
    }
}

/// The plan that a preset does nothing without.
fn seed(preset: &str) -> &'static str {
    match preset {
        "plan-run" | "pydantask-fixed" => {
            "\nseed_plan: { directory: /tmp, plan: { objective: o, tasks: [{ task_id: 1, sub_task_objective: x, capability: a }] } }"
        }
        _ => "",
    }
}

/// What says more of something that the spec leaves switched off.
#[test]
fn what_is_said_of_something_that_is_off_is_refused_with_its_path() {
    const RULE: &str = "rules: { to_expert: { tasks: 9, success: 0.9, days: 0, incident_days: 0 } }";
    for (text, at) in [
        ("preset: shannon-dag\nmemory: { advisor: true }", "memory.advisor"),
        ("preset: shannon-dag\nmemory: { session: s }", "memory.session"),
        ("preset: shannon-dag\nmemory: { record: true }", "memory.record"),
        ("preset: shannon-dag\nmemory: { session: s, record: true, similar_above: 0.5 }", "memory.similar_above"),
        ("preset: flow-coordinator\nhitl: { notify_only: [confidence] }", "hitl.notify_only"),
        ("preset: flow-coordinator\ntrust: { enabled: true }", "trust.enabled"),
        (&format!("preset: flow-coordinator\ntrust: {{ {RULE} }}"), "trust.rules"),
        (&format!("preset: flow-coordinator\nhitl: {{ mode: human_in_command }}\ntrust: {{ {RULE} }}"), "trust.rules"),
        ("preset: shannon-dag\nbudget: { degrade: {} }", "budget.degrade"),
    ] {
        assert_eq!(refused_at(text), at, "{text}");
    }
    for text in [
        "preset: shannon-dag\nmemory: { session: s, advisor: true, similar_above: 0.5 }",
        "preset: shannon-dag\nmemory: { session: s, record: true }",
        "preset: shannon-supervisor\nmemory: { session: s, advisor: false }",
        "preset: flow-coordinator\nhitl: { mode: human_in_command, notify_only: [confidence] }",
        "preset: flow-coordinator\ntrust: { enabled: false }",
        "memory: { advisor: false, record: false }\ntrust: { enabled: false }\nhitl: { enabled: false }",
        &format!("preset: flow-coordinator\ntrust: {{ level: novice, {RULE} }}"),
        "preset: shannon-dag\nbudget: { tokens: 9000, degrade: {} }",
    ] {
        read(text);
    }
}

/// What a preset means and a key says too holds without the preset, or is refused with its path where nothing looks at it
/// (LGS-01, SWM-01, CRW-01, CUG-37, FSP-05).
#[test]
fn ways_of_behaving_are_keys_and_none_is_idle() {
    for (text, at) in [
        ("handoff: { control: return }", "handoff.control"),
        ("preset: flow-supervisor\nhandoff: { control: return }", "handoff.control"),
        ("preset: cuga-conversational\nhandoff: { control: switch }", "handoff.control"),
        ("preset: autogen-groupchat-swarm\nhandoff: { control: switch }", "handoff.control"),
        ("dispatch: { selection: speaker }\nhandoff: { control: switch }\nspeaker: { retries: 5 }", "speaker.retries"),
        ("dispatch: { selection: agent }\nhandoff: { prefix: to_ }", "handoff.prefix"),
        ("dispatch: { selection: agent }\nhandoff: { control: switch, back_messages: false }", "handoff.back_messages"),
        ("dispatch: { selection: agent }\nhandoff: { control: return }\nmanager_llm: m", "manager_llm"),
        ("delegation: { protocol: variables }", "delegation.protocol"),
        ("preset: shannon-dag\ndelegation: { protocol: coworkers }", "delegation.protocol"),
        ("preset: swarm-handoff\ndelegation: { protocol: coworkers }", "delegation.protocol"),
        ("preset: cuga-structured\ndelegation: { protocol: coworkers }", "delegation.protocol"),
        ("dispatch: { selection: agent }\ndelegation: { protocol: coworkers }", "manager_llm"),
        ("dispatch: { selection: agent }\nmanager_llm: m\ndelegation: { protocol: processes }", "manager_llm"),
        ("dispatch: { selection: agent }\ndelegation: { protocol: variables, breaker: 5 }", "delegation.breaker"),
        ("manager_llm: m", "manager_llm"),
        ("planning: { replan: false, evaluator: true }", "planning.evaluator"),
        ("preset: shannon-dag\nplanning: { evaluator: true }", "planning.evaluator"),
        ("preset: cuga-structured\nplanning: { evaluator: true }", "planning.evaluator"),
        ("preset: autogen-groupchat\nplanning: { evaluator: true }", "planning.evaluator"),
        ("preset: flow-plan-and-execute\nplanning: { replan: true, evaluator: false }", "planning.replan"),
        ("planning: { evaluator: true }", "planning.evaluator"),
        ("preset: pydantask-llm\nplanning: { replan: true, evaluator: true }", "planning.evaluator"),
        ("preset: map-reduce\nreview: { criteria: [short] }", "review.criteria"),
        ("preset: shannon-dag\nreview: { accept_below_score: 0.5 }", "review.accept_below_score"),
        ("preset: evaluator-optimizer\nreviewer: false", "review.scope"),
        ("preset: evaluator-optimizer\nreview: { scope: none }", "review.scope"),
        ("routing: { entry: true }", "routing.entry"),
        ("preset: map-reduce\nrouting: { entry: true }", "routing.entry"),
        ("preset: pydantask-llm\nrouting: { enabled: true }", "routing.enabled"),
        ("preset: shannon-dag\nteam: { assign_roles: true }", "team.assign_roles"),
        ("preset: autogen-groupchat\nteam: { enabled: true }", "team.enabled"),
        ("preset: swarm-handoff\nprogress: { words: crew_ai }", "progress.words"),
        ("preset: supyagent-delegation\nloop: { checkpoints: execution }", "loop.checkpoints"),
        (
            "preset: crewai-hierarchical\nmanager_llm: m\nfailure: { errors_are_attempts: true }",
            "failure.errors_are_attempts",
        ),
        ("preset: map-reduce\nreview: { required: true }", "review.scope"),
        (
            "preset: map-reduce\nplanning: { by_request: { conversation: cuga-conversational, plan: cuga-structured } }",
            "planning.by_request",
        ),
        (
            "preset: map-reduce\nplanning: { by_request: { conversation: shannon-dag, plan: map-reduce } }",
            "planning.by_request.conversation",
        ),
        (
            "preset: cuga-conversational\nplanning: { by_request: { conversation: cuga-conversational, plan: swarm-handoff } }",
            "planning.by_request.plan",
        ),
    ] {
        assert_eq!(refused_at(text), at, "{text}");
    }
    for text in [
        "dispatch: { selection: agent }\nhandoff: { control: return, history: full_history }",
        "dispatch: { selection: agent }\nhandoff: { control: switch, prefix: to_ }",
        "preset: langgraph-supervisor\nhandoff: { control: switch }",
        "dispatch: { selection: agent }\ndelegation: { protocol: variables, timeout: 5s }",
        "preset: supyagent-delegation\ndelegation: { protocol: variables }",
        "dispatch: { selection: agent }\nmanager_llm: m",
        "dispatch: { selection: one }\nplanning: { evaluator: true }\nloop: { max_iterations: 2 }",
        "preset: flow-coordinator\nplanning: { replan: true, evaluator: true }",
    ] {
        read(text);
    }
}

/// A run that was recorded before these keys were there reads and writes its spec as it did.
#[test]
fn what_a_preset_means_is_not_written() {
    for preset in Preset::ALL {
        let spec = serde_json::to_value(preset.values()).unwrap();
        for key in [
            "/handoff/control",
            "/delegation/protocol",
            "/planning/evaluator",
            "/planning/on_empty",
            "/planning/by_request",
            "/synthesis/of_nothing",
            "/progress/words",
            "/progress/team",
            "/team/enabled",
            "/team/assign_roles",
            "/loop/checkpoints",
            "/dispatch/require_agents",
            "/review/required",
            "/failure/errors_are_attempts",
        ] {
            assert_eq!(spec.pointer(key), None, "{preset} {key}");
        }
    }
}

/// FSS-02: a goal is the objective, whatever the preset; both at once is one too many.
#[test]
fn an_input_may_call_the_objective_a_goal() {
    let none: Files<'_> = &|name| Err(UnreadFile(name.to_owned()));
    let read = |head: &str, input: Value| read_spec_with("s.yaml", &format!("{head}{AGENTS}"), &input, none);
    for head in ["preset: flow-supervisor", "preset: shannon-dag", "preset: swarm-handoff", "name: mine"] {
        assert_eq!(read(head, json!({ "goal": "Tide" })).unwrap().spec.objective, "Tide", "{head}");
        let both = read(head, json!({ "goal": "Tide", "objective": "Ebb" })).unwrap_err();
        assert_eq!(both.at, "goal", "{head}");
    }
}

/// SHH-05, SHT-01: who says how people are asked, or whom the run trusts, is heard in every preset.
#[test]
fn what_a_spec_says_of_people_holds() {
    let commanded = read("preset: flow-coordinator\nhitl: { mode: human_in_command }");
    assert!(commanded.hitl.enabled && commanded.hitl.mode == HitlMode::HumanInCommand && !commanded.trust.enabled);
    let novice = read("preset: flow-coordinator\ntrust: { level: novice }");
    assert!(novice.hitl.enabled && novice.trust.enabled);
    for preset in Preset::ALL.into_iter().filter(|preset| preset.family() != Family::Graph) {
        let more = if preset == Preset::CrewaiHierarchical { "\nmanager_llm: m" } else { "" };
        for said in
            ["hitl: { mode: human_in_command }", "trust: { level: novice }", "hitl: { triggers: { sensitive: [a] } }"]
        {
            let spec = read(&format!("preset: {preset}\n{said}{more}"));
            assert!(spec.hitl.enabled, "{preset}: {said}");
        }
    }
    // How long an approval waits says nothing of whether people are asked.
    assert!(!read("preset: flow-coordinator\nhitl: { approval: { timeout: 5m } }").hitl.enabled);
}

/// A top-level `via` is for those who say nothing; a service is done as the service says, whomever it is about.
#[test]
fn a_via_that_stands_by_itself_stays() {
    let spec = read_spec(
        "s.yaml",
        "preset: shannon-dag\nvia: { activity: all }\nplanner: { via: scripted }\n\
         services: { compensate: { via: { activity: undo } } }\n\
         agents: [{ name: a, via: scripted }, { name: b }, { name: c, via: { activity: own } }]",
    );
    let spec = spec.unwrap().spec;
    let via = |purpose, agent: &str| spec.via(&Call::new(MemoryKey::Advise, purpose, Value::Null).agent(agent)).clone();
    assert_eq!(via(Purpose::ExecuteWorker, "a"), Via::Scripted);
    assert_eq!(via(Purpose::ExecuteWorker, "b"), Via::Activity("all".into()));
    assert_eq!(via(Purpose::Compensate, "c"), Via::Activity("undo".into()), "not by whom the task was done");
    assert_eq!(spec.via(&Call::new(MemoryKey::Advise, Purpose::Plan, json!({}))), &Via::Scripted);
}
