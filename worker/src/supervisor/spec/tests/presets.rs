//! Every preset against the numbers of the rows.

use serde_json::{Value, json};

use crate::supervisor::spec::{
    Authority, Family, Hitl, HitlMode, Mailbox, PlanningMode, Preset, Requires, ReviewScope, Risk, Span,
    SupervisorSpec, Team, TrustRules, read_spec,
};

fn values(preset: Preset) -> Value {
    serde_json::to_value(preset.values()).unwrap()
}

fn at<'v>(value: &'v Value, path: &str) -> &'v Value {
    value.pointer(&format!("/{}", path.replace('.', "/"))).unwrap_or_else(|| panic!("{path} is not there"))
}

#[track_caller]
fn has(preset: Preset, expected: &[(&str, Value)]) {
    let values = values(preset);
    for (path, expected) in expected {
        assert_eq!(at(&values, path), expected, "{preset}: {path}");
    }
}

/// PDT-03, PDT-06, PDT-17, PDT-27: pydantask's numbers in all three presets; the mode is what distinguishes them.
#[test]
fn pydantask_presets() {
    let modes = [(Preset::PydantaskFixed, "fixed"), (Preset::PydantaskLlm, "llm"), (Preset::PydantaskHybrid, "hybrid")];
    for (preset, mode) in modes {
        has(
            preset,
            &[
                ("planning.mode", json!(mode)),
                ("loop.max_steps", json!(20)),
                ("loop.no_progress", json!(3)),
                ("dispatch.max_concurrency", json!(4)),
                ("dispatch.selection", json!("supervisor")),
                ("review.scope", json!("task")),
                ("review.max_attempts", json!(3)),
                ("review.reject_status", json!("ready")),
                ("dependencies.on_failure", json!("wait")),
                ("dependencies.on_cancelled", json!("cancel")),
                ("dependencies.cancel_running", json!(false)),
                ("failure.on_subtask_error", json!("repair")),
                ("failure.threshold_bp", json!(null)),
                ("synthesis.mode", json!("final_task")),
            ],
        );
    }
    assert_eq!(SupervisorSpec::default().planning.mode, PlanningMode::Llm);
}

/// PDT-29: gating by authority. A fixed plan has no adding, patching or marking; the others have.
#[test]
fn a_fixed_plan_has_no_authority_to_change_tasks() {
    let changing = [Authority::Add, Authority::Patch, Authority::MarkFinal];
    let common =
        [Authority::Select, Authority::Cancel, Authority::UpdateStatus, Authority::Feedback, Authority::Finish];
    let fixed = Preset::PydantaskFixed.values();
    assert_eq!(fixed.authority, common);
    for preset in [Preset::PydantaskLlm, Preset::PydantaskHybrid] {
        let spec = preset.values();
        assert!(common.iter().chain(&changing).all(|action| spec.authority.contains(action)), "{preset}");
        assert!(!spec.authority.contains(&Authority::Recruit));
    }
}

/// FSS-03, FSS-40: maxIterations 3, maxConcurrency 3, onSubTaskError skip, dependencies honoured.
#[test]
fn flow_supervisor_preset() {
    has(
        Preset::FlowSupervisor,
        &[
            ("loop.max_iterations", json!(3)),
            ("dispatch.max_concurrency", json!(3)),
            ("failure.on_subtask_error", json!("skip")),
            ("failure.threshold_bp", json!(null)),
            ("dispatch.selection", json!("all")),
            ("review.scope", json!("iteration")),
            ("review.include_accepted", json!(false)),
            ("dependencies.honour", json!(true)),
            ("synthesis.mode", json!("synthesizer")),
            ("synthesis.bypass_single", json!(false)),
        ],
    );
    let plain = "preset: flow-supervisor\nagents: [{ name: w }]\ndependencies: { honour: false }";
    assert!(!read_spec("s", plain).unwrap().spec.dependencies.honour);
}

/// FSS-30, FSP-05, FSP-09, FSC-01, FSC-02: the other presets of flow-state.
#[test]
fn other_flow_presets() {
    has(
        Preset::FlowSupervisorPerTask,
        &[
            ("review.scope", json!("task")),
            ("review.max_attempts", json!(3)),
            ("dependencies.on_failure", json!("skip")),
            ("failure.errored_is_terminal", json!(true)),
        ],
    );
    has(
        Preset::FlowPlanAndExecute,
        &[
            ("dispatch.selection", json!("one")),
            ("dependencies.requires", json!("completed_or_skipped")),
            ("dependencies.on_failure", json!("skip")),
            ("review.scope", json!("none")),
            ("planning.replan", json!(false)),
            ("loop.max_iterations", json!(3)),
            ("loop.max_steps", json!(1000)),
        ],
    );
    has(
        Preset::FlowCoordinator,
        &[
            ("dispatch.selection", json!("all")),
            ("dispatch.max_concurrency", json!(3)),
            ("loop.max_iterations", json!(1)),
            ("review.scope", json!("none")),
            ("failure.on_subtask_error", json!("skip")),
            ("synthesis.mode", json!("merge")),
        ],
    );
    assert_eq!(Preset::FlowCoordinator.values().dependencies.requires, Requires::Completed);
}

/// CUG-12, CUG-13, CUG-17, CUG-34, CUG-35, CUG-41, CUG-43, CUG-44: CUGA's defaults.
#[test]
fn cuga_presets() {
    for (preset, mode, selection) in
        [(Preset::CugaConversational, "todos", "agent"), (Preset::CugaStructured, "agents", "controller")]
    {
        has(
            preset,
            &[
                ("planning.mode", json!(mode)),
                ("dispatch.selection", json!(selection)),
                ("planning.otherwise", json!("todos")),
                ("planning.force", json!(false)),
                ("planning.triggers.min_agents", json!(2)),
                ("planning.approval.required", json!(false)),
                ("planning.supervisor_mode", json!("conversational")),
                ("planning.strategy", json!("sequential")),
                ("loop.max_steps", json!(50)),
                ("budget.tool_calls", json!(256)),
                ("failure.tries", json!(2)),
                ("progress.messages", json!("append")),
                ("delegation.timeout", json!("5m")),
                ("delegation.corrective_retry", json!(true)),
            ],
        );
    }
    let cues = ["first", "then", "after", "before", "finally", "once", "and then", "followed by", "step N"];
    assert_eq!(at(&values(Preset::CugaStructured), "planning.triggers.cues"), &json!(cues));
}

/// SHN-01, SHN-02, SHN-04, SHN-13, SHN-17, SHN-23, SHN-30, SHN-43, SHN-44, SHN-49: Shannon's numbers.
#[test]
fn shannon_supervisor_preset() {
    has(
        Preset::ShannonSupervisor,
        &[
            ("dispatch.parallelism", json!("dependency")),
            ("dispatch.max_concurrency", json!(null)),
            ("failure.tries", json!(3)),
            ("failure.threshold_bp", json!(5000)),
            ("failure.count_recruits", json!(false)),
            ("failure.on_subtask_error", json!("fail_task")),
            ("team.max_size", json!(10)),
            ("team.recruit", json!(true)),
            ("team.recruit_join", json!("dependents")),
            ("team.late_recruits", json!("refuse")),
            ("team.policy", json!("authorize_team_action")),
            ("mailbox.limit", json!(100)),
            ("mailbox.queue", json!(100)),
            ("mailbox.trim", json!("keep_latter_half")),
            ("mailbox.payload_max", json!(1_048_576)),
            ("mailbox.fetch_window", json!(200)),
            ("mailbox.ttl", json!("48h")),
            ("routing.supervisor_above", json!(5)),
            ("routing.deps_to", json!("supervisor")),
            ("routing.simple_up_to", json!(2)),
            ("routing.simple_below", json!(0.3)),
            ("routing.zero_subtasks_simple", json!(false)),
            ("memory.advisor", json!(true)),
            ("memory.override_above", json!(0.8)),
            ("memory.similar_above", json!(0.8)),
            ("memory.success_above", json!(0.7)),
            ("memory.default_confidence", json!(0.5)),
            ("memory.rate_limit_words", json!(["quickly", "fast", "urgent", "asap", "immediately"])),
            ("dependencies.topics.timeout", json!("6m")),
            ("dependencies.topics.backoff", json!("1s")),
            ("dependencies.topics.backoff_max", json!("30s")),
            ("synthesis.bypass_single", json!(true)),
            ("synthesis.own_result_chars", json!(100)),
            ("compensation.on_cancel", json!(true)),
            ("hitl.enabled", json!(true)),
            ("trust.enabled", json!(true)),
        ],
    );
}

/// SHD-01, SHD-03, SHD-05, SHD-06, SHD-07: the DAG has concurrency 5, runs after failures, and no team; simple is one execution.
#[test]
fn shannon_dag_and_simple_presets() {
    has(
        Preset::ShannonDag,
        &[
            ("dispatch.max_concurrency", json!(5)),
            ("dependencies.on_failure", json!("run")),
            ("failure.tries", json!(3)),
            ("failure.threshold_bp", json!(null)),
            ("team.recruit", json!(false)),
            ("hitl.enabled", json!(false)),
        ],
    );
    assert!(!Preset::ShannonDag.values().authority.contains(&Authority::Recruit));
    assert!(!Preset::ShannonDag.values().authority.contains(&Authority::SendMessage));
    has(
        Preset::ShannonSimple,
        &[
            ("planning.mode", json!("none")),
            ("dispatch.max_concurrency", json!(1)),
            ("synthesis.mode", json!("last_output")),
        ],
    );
    let text = "preset: shannon-dag\nreview: { reflection: {} }";
    let reflection = read_spec("s", text).unwrap().spec.review.reflection.unwrap();
    assert_eq!((reflection.retries, reflection.confidence.as_bp()), (2, 8_000));
}

/// SUP-06, SUP-21, SUP-23, SUP-24, SUP-26, SUP-27, SUP-28: supyagent's limits.
#[test]
fn supyagent_preset() {
    has(
        Preset::SupyagentDelegation,
        &[
            ("delegation.max_depth", json!(5)),
            ("delegation.base_depth", json!(0)),
            ("delegation.parallel", json!(5)),
            ("delegation.background_max", json!(10)),
            ("delegation.timeout", json!("5m")),
            ("delegation.on_timeout", json!("background")),
            ("delegation.wait_max", json!("5m")),
            ("delegation.summary", json!({ "above": 4, "last": 10, "chars": 300 })),
            ("delegation.breaker", json!(3)),
            ("delegation.repetition", json!(4)),
            ("delegation.sleep_max", json!("24h")),
        ],
    );
    assert_eq!(Span::from_secs(86_400), Span::from_hours(24));
}

/// AGC-01, AGC-02, AGC-17, AGC-18: the group chats of AutoGen.
#[test]
fn autogen_presets() {
    has(
        Preset::AutogenGroupChat,
        &[
            ("loop.max_rounds", json!(10)),
            ("loop.count", json!("messages_with_opening")),
            ("speaker.method", json!("auto")),
            ("speaker.allow_repeat", json!(null)),
            ("speaker.func_call_filter", json!(true)),
            ("speaker.admin", json!("Admin")),
            ("speaker.send_introductions", json!(false)),
            ("speaker.retries", json!(2)),
            ("speaker.fallback", json!("next")),
            ("speaker.transitions", json!({})),
            ("dispatch.selection", json!("speaker")),
        ],
    );
    has(
        Preset::AutogenSelector,
        &[
            ("speaker.retries", json!(2)),
            ("speaker.fallback", json!("previous")),
            ("speaker.allow_repeat", json!(false)),
            ("loop.count", json!("turns")),
        ],
    );
    has(
        Preset::AutogenMagentic,
        &[
            ("speaker.team", json!("magentic")),
            ("loop.max_rounds", json!(20)),
            ("speaker.ledger", json!({ "max_stalls": 3, "json_retries": 10 })),
        ],
    );
    has(Preset::AutogenSwarm, &[("speaker.team", json!("swarm"))]);
}

/// CRW-04, CRW-10, LGS-02, LGS-03, LGS-05, LGS-06, LGS-08, SWM-05: managers and hand-offs; Swarm is bounded by 25 messages.
#[test]
fn manager_and_handoff_presets() {
    has(
        Preset::CrewaiHierarchical,
        &[
            ("delegation.scope", json!("assigned")),
            ("synthesis.mode", json!("last_output")),
            ("review.guardrail_retries", json!(3)),
        ],
    );
    has(
        Preset::LanggraphSupervisor,
        &[
            ("handoff.prefix", json!("transfer_to_")),
            ("handoff.history", json!("last_message")),
            ("handoff.messages", json!(true)),
            ("handoff.back_messages", json!(true)),
            ("handoff.parallel", json!(false)),
            ("loop.max_steps", json!(25)),
        ],
    );
    has(
        Preset::SwarmHandoff,
        &[
            ("loop.max_rounds", json!(25)),
            ("loop.count", json!("messages")),
            ("handoff.execute_tools", json!(true)),
            ("synthesis.mode", json!("last_message")),
        ],
    );
}

/// Three drafts at most; five items at a time; a plan file's tasks, four at a time; and nothing that is another system's.
#[test]
fn patterns_are_presets() {
    has(
        Preset::EvaluatorOptimizer,
        &[
            ("planning.mode", json!("none")),
            ("dispatch.max_concurrency", json!(1)),
            ("review.scope", json!("task")),
            ("review.max_attempts", json!(3)),
            ("failure.on_subtask_error", json!("fail_task")),
            ("synthesis.mode", json!("last_output")),
            ("progress.messages", json!("none")),
        ],
    );
    has(
        Preset::MapReduce,
        &[
            ("planning.mode", json!("llm")),
            ("planning.replan", json!(false)),
            ("dispatch.selection", json!("all")),
            ("dispatch.max_concurrency", json!(5)),
            ("dependencies.on_failure", json!("skip")),
            ("review.scope", json!("none")),
            ("failure.on_subtask_error", json!("fail_task")),
            ("synthesis.mode", json!("synthesizer")),
        ],
    );
    has(
        Preset::PlanRun,
        &[
            ("planning.mode", json!("fixed")),
            ("planning.replan", json!(false)),
            ("dispatch.selection", json!("all")),
            ("dispatch.max_concurrency", json!(4)),
            ("dependencies.on_failure", json!("wait")),
            ("dependencies.on_cancelled", json!("cancel")),
            ("review.scope", json!("rules")),
            ("failure.on_subtask_error", json!("repair")),
            ("synthesis.mode", json!("final_task")),
            ("budget.on_exhausted", json!("stop")),
            ("progress.messages", json!("none")),
        ],
    );
    for preset in [Preset::EvaluatorOptimizer, Preset::MapReduce] {
        assert!(
            !preset.values().authority.contains(&Authority::Recruit)
                && !preset.values().authority.contains(&Authority::SendMessage),
            "{preset}"
        );
    }
}

/// SHN-33: the threshold of a file is what it says, in basis points.
#[test]
fn the_failure_threshold_is_read_as_it_is() {
    for (text, bp) in [("5000", 5_000), ("2000", 2_000), ("0", 0), ("10000", 10_000)] {
        let spec = read_spec("s", &format!("failure: {{ threshold_bp: {text} }}")).unwrap().spec;
        assert_eq!(spec.failure.threshold_bp, Some(bp));
    }
}

/// SHH-01, SHH-03, SHH-05, SHH-07, SHH-13, SHH-14, SHH-18, SHH-20: the defaults of escalation and approval.
#[test]
fn people_are_asked_as_the_book_says() {
    let hitl = serde_json::to_value(Hitl::default()).unwrap();
    let expected = json!({
        "enabled": true,
        "mode": "human_in_the_loop",
        "triggers": {
            "confidence": 0.6, "action_cost": 1.0, "sensitive": ["delete", "publish", "pay", "send_email"],
            "consecutive_failures": 3, "decision_timeout": "5m", "out_of_scope": true,
        },
        "plan_keywords": ["publish", "send", "delete", "pay", "share"],
        "plan_policy": { "complexity": 0.8, "dangerous_tools": [] },
        "approval": { "timeout": "30m", "on_timeout": "reject", "critical": "reject" },
        "order": "table",
        "gates": ["before", "after"],
        "exceptions": ["risk_critical", "consecutive_failures"],
        "notify_only": [],
    });
    assert_eq!(hitl, expected);
    let modes = ["human_in_command", "human_in_the_loop", "human_on_the_loop"];
    for (text, mode) in modes.iter().zip([HitlMode::HumanInCommand, HitlMode::HumanInTheLoop, HitlMode::HumanOnTheLoop])
    {
        assert_eq!(read_spec("s", &format!("hitl: {{ mode: {text} }}")).unwrap().spec.hitl.mode, mode);
    }
    let book = read_spec("s", "hitl: { order: book_code, gates: [after], notify_only: [out_of_scope] }").unwrap().spec;
    assert_eq!(serde_json::to_value(book.hitl.order).unwrap(), "book_code");
    assert_eq!((book.hitl.gates.len(), book.hitl.notify_only.len()), (1, 1));
}

/// SHH-06: four levels of risk, in order.
#[test]
fn risks_are_ordered() {
    let levels: Vec<Risk> = serde_json::from_value(json!(["low", "medium", "high", "critical"])).unwrap();
    assert!(levels.is_sorted() && levels.windows(2).all(|pair| pair[0] != pair[1]));
    assert!(serde_json::from_value::<Risk>(json!("severe")).is_err());
}

/// SHT-02, SHT-07: the rules of the code by default; the diagram's 99 % over 90 days by configuration only.
#[test]
fn trust_rules_are_those_of_the_code_unless_configured() {
    let expected = json!({
        "to_proficient": { "tasks": 50, "success": 0.9, "days": 7, "incident_days": 7 },
        "to_expert": { "tasks": 200, "success": 0.98, "days": 30, "incident_days": 30 },
    });
    assert_eq!(serde_json::to_value(TrustRules::default()).unwrap(), expected);
    let named = read_spec("s", "trust: { rules: default }").unwrap().spec;
    assert_eq!(named, SupervisorSpec::default());
    let diagram = "trust: { rules: { to_expert: { success: 0.99, days: 90 } } }";
    let rules = read_spec("s", diagram).unwrap().spec.trust.rules;
    assert_eq!((rules.to_expert.success.as_bp(), rules.to_expert.days), (9_900, 90));
    assert_eq!((rules.to_expert.tasks, rules.to_expert.incident_days), (200, 30));
    assert_eq!(rules.to_proficient, TrustRules::default().to_proficient);
}

/// SHH-21, SHH-25: a plan review has 10 rounds and waits 15 minutes.
#[test]
fn plan_review_defaults() {
    for preset in Preset::ALL {
        let approval = preset.values().planning.approval;
        assert_eq!((approval.max_rounds, approval.timeout, approval.required), (10, Span::from_mins(15), false));
    }
}

/// What only Shannon's supervisor brings is off in every other preset.
#[test]
fn presets_do_not_bring_what_is_not_theirs() {
    for preset in Preset::ALL {
        let spec = preset.values();
        let shannon = preset == Preset::ShannonSupervisor;
        let on = [spec.team.recruit, spec.hitl.enabled, spec.trust.enabled, spec.memory.advisor, spec.routing.enabled];
        assert_eq!(on, [shannon; 5], "{preset}");
        assert_eq!(spec.failure.threshold_bp.is_some(), shannon, "{preset}");
        assert_eq!((spec.team.max_size, spec.mailbox.limit), (Team::default().max_size, Mailbox::default().limit));
        if spec.family() == Family::Chat {
            assert!(spec.run_loop.max_rounds.is_some(), "{preset} is without a bound");
        }
        if spec.family() != Family::Graph {
            assert_eq!(spec.review.scope, ReviewScope::None, "{preset}");
        }
    }
}

#[test]
fn presets_are_found_by_their_names_and_short_names() {
    for preset in Preset::ALL {
        assert_eq!(serde_json::from_value::<Preset>(json!(preset.name())).unwrap(), preset);
        assert_eq!(serde_json::to_value(preset).unwrap(), json!(preset.to_string()));
    }
    let short = ["autogen-selector", "autogen-magentic", "autogen-swarm"];
    let long = [Preset::AutogenSelector, Preset::AutogenMagentic, Preset::AutogenSwarm];
    for (name, preset) in short.iter().zip(long) {
        assert_eq!(serde_json::from_value::<Preset>(json!(name)).unwrap(), preset);
    }
}
