//! Delegation as supyagent does it: who may ask whom, how deep, what is told, and in which order answers are used.

use super::*;
use crate::supervisor::core::key::key;

fn texts(call: &Call) -> String {
    sent(call).iter().map(|message| message.text().to_owned()).collect::<Vec<_>>().join("\n")
}

/// SUP-02: assistant (0) asks planner (1), which asks coder (2); assistant may also ask coder itself.
#[test]
fn an_assistant_asks_a_planner_which_asks_a_coder_and_results_flow_back_up() {
    let mut rig = Rig::start(of_supyagent(), planner_and_coder(), "Build a REST API");
    assert_eq!(tools_of(rig.pending("assistant"))[..2], ["delegate_to_planner", "delegate_to_coder"]);
    rig.answer("assistant", delegate("planner", "plan it"));
    rig.answer("planner", delegate("coder", "step 1"));
    let depths: Vec<(String, u32)> =
        rig.it.sessions_view().into_iter().map(|session| (session.agent, session.depth)).collect();
    assert_eq!(depths, [("assistant".to_owned(), 0), ("planner".to_owned(), 1), ("coder".to_owned(), 2)]);
    rig.answer("coder", says("code"));
    assert_eq!(tool_texts(&sent(rig.pending("planner"))), [r#"{"ok": true, "data": "code"}"#]);
    rig.answer("planner", says("planned and coded"));
    assert_eq!(rig.tool_messages(), [r#"{"ok": true, "data": "planned and coded"}"#]);
    rig.answer("assistant", delegate("coder", "fix line 42"));
    assert_eq!(rig.it.sessions_view().last().map(|session| session.depth), Some(1));
    rig.answer("coder", says("fixed")).answer("assistant", says("done"));
    let outcome = rig.outcome();
    assert!(outcome.ok && outcome.result == "done");
    assert_eq!(outcome.selected_agents, ["planner", "coder"]);
    assert!(rig.it.sessions_view().iter().all(|session| session.status == "completed"));
}

/// SUP-03, SUP-33: the model and the limits of an agent are its own: they are recorded with each execution, and a child
/// without any has none, whatever its parent has.
#[test]
fn each_agent_uses_its_own_model_and_limits() {
    let mut assistant = agent("assistant").delegates(&["planner", "coder"]).tool(ToolDef::new("grep"));
    assistant.model = Some("big".to_owned());
    assistant.limits.per_turn = Some(1);
    let mut planner = agent("planner");
    planner.model = Some("small".to_owned());
    let coder = agent("coder").tool(ToolDef::new("grep"));
    let mut rig = Rig::start(of_supyagent(), vec![assistant, planner, coder], "go");
    assert_eq!(rig.pending("assistant").context["model"], "big");
    rig.answer("assistant", delegate("coder", "search"));
    assert_eq!(rig.pending("coder").context["model"], Value::Null);
    // Three calls in one turn: the parent's limit of one is not the child's.
    for pattern in ["a", "b", "c"] {
        rig.answer("coder", calls([("grep", json!({"pattern": pattern}))])).answer("grep", json!("found"));
    }
    rig.answer("coder", says("found all"));
    assert_eq!(rig.tool_messages(), [r#"{"ok": true, "data": "found all"}"#]);
    let models: Vec<(&Value, &Value)> =
        rig.noted(NoteKind::DecisionRequested).iter().map(|note| (&note["agent"], &note["model"])).collect();
    assert_eq!(models[0], (&json!("assistant"), &json!("big")));
    assert!(models[1..5].iter().all(|(agent, model)| *agent == "coder" && model.is_null()));
    // The parent's own limit still holds for the parent.
    rig.answer("assistant", delegate("planner", "more"));
    assert!(rig.outcome().messages.iter().any(|message| message.text().contains("Maximum tool calls per turn (1)")));
}

/// SUP-04, SUP-34: a tool for each delegate that exists, and `spawn_agent` as soon as there is a delegate; no delegate, no
/// delegation tool at all.
#[test]
fn delegation_tools_follow_from_the_list_of_delegates() {
    let agents = vec![agent("assistant").delegates(&["coder", "ghost"]), agent("coder")];
    let mut rig = Rig::start(of_supyagent(), agents, "go");
    let call = rig.pending("assistant").clone();
    let names = tools_of(&call);
    assert_eq!(names[..2], ["delegate_to_coder", "spawn_agent"], "the ghost has no config, so no tool");
    let tool = |name: &str| {
        let tools = call.context["tools"].as_array().unwrap();
        tools.iter().find(|tool| tool["name"] == name).unwrap()["parameters"].clone()
    };
    let keys = |schema: &Value| schema["properties"].as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    assert_eq!(keys(&tool("delegate_to_coder")), ["task", "context", "mode", "background", "timeout"]);
    assert_eq!(tool("delegate_to_coder")["required"], json!(["task"]));
    assert_eq!(keys(&tool("spawn_agent")), ["agent_type", "task", "background"]);
    rig.answer("assistant", calls([("spawn_agent", json!({"agent_type": "coder", "task": "code"}))]));
    let names = tools_of(rig.pending("coder"));
    assert_eq!(names, ["sleep"], "an empty list of delegates exposes no delegation tool");
    rig.answer("coder", delegate("coder", "myself"));
    let answers = tool_texts(&sent(rig.pending("coder")));
    assert_eq!(answers, [r#"{"ok": false, "error": "Agent 'coder' is not in the delegates list"}"#]);
}

/// A chain of agents, each of which may ask the next.
fn chain(length: usize) -> Vec<AgentDef> {
    (0..length).map(|i| agent(&format!("a{i}")).delegates(&[&format!("a{}", i + 1)])).collect()
}

/// SUP-06: depth 4 may delegate, its child at depth 5 may not and is told so, exactly. The chain goes on from there.
#[test]
fn an_agent_at_depth_five_cannot_delegate_further() {
    let mut rig = Rig::start(of_supyagent(), chain(7), "go");
    for i in 0..5 {
        rig.answer(&format!("a{i}"), delegate(&format!("a{}", i + 1), "deeper"));
    }
    let depths: Vec<u32> = rig.it.sessions_view().iter().map(|session| session.depth).collect();
    assert_eq!(depths, [0, 1, 2, 3, 4, 5]);
    rig.answer("a5", delegate("a6", "too deep"));
    let answers = tool_texts(&sent(rig.pending("a5")));
    assert_eq!(
        answers,
        [r#"{"ok": false, "error": "Maximum delegation depth (5) reached. Cannot delegate further."}"#]
    );
    assert!(rig.asked.iter().all(|call| who(call) != "a6"), "nothing was started");
    for i in (0..6).rev() {
        rig.answer(&format!("a{i}"), says("up"));
    }
    assert!(rig.outcome().ok);
}

/// SUP-09: the depth across processes counts too, and is looked at before a child is started.
#[test]
fn depth_counts_what_the_run_has_behind_it() {
    let mut rules = of_supyagent();
    rules.delegation.base_depth = 4;
    let mut rig = Rig::start(rules.clone(), chain(3), "go");
    rig.answer("a0", delegate("a1", "deeper"));
    assert_eq!(rig.it.sessions_view()[1].depth, 5);
    rig.answer("a1", delegate("a2", "too deep"));
    let answers = tool_texts(&sent(rig.pending("a1")));
    assert_eq!(
        answers,
        [r#"{"ok": false, "error": "Maximum delegation depth (5) reached. Cannot delegate further."}"#]
    );
    rules.delegation.base_depth = 5;
    let mut rig = Rig::start(rules, chain(3), "go");
    rig.answer("a0", delegate("a1", "too deep"));
    assert_eq!(rig.it.sessions_view().len(), 1, "no child was started");
    assert!(rig.tool_messages()[0].contains("Maximum delegation depth (5) reached. Cannot delegate further."));
}

/// SUP-10: A asks B asks A ... ends at the depth limit.
#[test]
fn agents_that_ask_each_other_are_bounded_by_the_depth() {
    let agents = vec![agent("a").delegates(&["b"]), agent("b").delegates(&["a"])];
    let mut rig = Rig::start(of_supyagent(), agents, "go");
    rig.play(|call| {
        let other = if who(call) == "a" { "b" } else { "a" };
        let refused = tool_texts(&sent(call)).iter().any(|text| text.contains("Maximum delegation depth"));
        let answered = !tool_texts(&sent(call)).is_empty();
        Ok(if refused || answered { says("enough") } else { delegate(other, "you do it") })
    });
    let view = rig.it.sessions_view();
    assert_eq!(view.iter().map(|session| session.depth).max(), Some(5));
    assert_eq!(view.len(), 6);
    assert!(rig.outcome().ok);
}

/// SUP-19, SUP-18: every failure is the answer of the call; the parent goes on. A child that failed is marked failed.
#[test]
fn every_failure_of_a_delegation_is_told_to_the_parent() {
    let agents = vec![agent("assistant").delegates(&["coder", "ghost"]), agent("coder")];
    let cases = [
        ("delegate_to_nobody", json!({"task": "x"}), "Agent 'nobody' is not in the delegates list"),
        ("delegate_to_ghost", json!({"task": "x"}), "Delegation to 'ghost' failed: Agent 'ghost' not found"),
        (
            "spawn_agent",
            json!({"agent_type": "nobody", "task": "x"}),
            "Cannot spawn 'nobody' - not in delegates list. Available: coder, ghost",
        ),
        ("delegate_to_coder", json!("{\"task\": "), "Invalid JSON in tool arguments"),
        ("delegate_to_coder", json!([1]), "Invalid JSON in tool arguments"),
        ("frobnicate", json!({}), "Unknown delegation tool: frobnicate"),
    ];
    for (tool, args, error) in cases {
        let mut rig = Rig::start(of_supyagent(), agents.clone(), "go");
        rig.answer("assistant", calls([(tool, args)]));
        assert_eq!(rig.tool_messages(), [format!(r#"{{"ok": false, "error": "{error}"}}"#)], "{tool}");
        assert_eq!(rig.awaited(), ["assistant"], "the parent goes on");
        assert_eq!(rig.it.sessions_view().len(), 1, "nothing was started");
    }
    let mut rig = Rig::start(of_supyagent(), agents, "go");
    rig.answer("assistant", delegate("coder", "code")).fail("coder", "it broke");
    let told = &rig.tool_messages()[0];
    assert!(told.starts_with(r#"{"ok": false, "error": "Delegation to 'coder' failed: it broke. "#), "{told}");
    assert_eq!(rig.it.sessions_view()[1].status, "failed");
    rig.answer("assistant", says("so be it"));
    assert!(rig.outcome().ok);
}

/// SUP-20: the delegates list, then the config, then the depth.
#[test]
fn a_delegation_is_checked_in_one_order() {
    let mut rules = of_supyagent();
    rules.delegation.base_depth = 5;
    let agents = vec![agent("assistant").delegates(&["coder", "ghost"]), agent("coder")];
    let mut rig = Rig::start(rules, agents, "go");
    let all = ["nobody", "ghost", "coder"].map(|name| (format!("delegate_to_{name}"), json!({"task": "x"})));
    let [a, b, c] = all.each_ref().map(|(name, args)| (name.as_str(), args.clone()));
    rig.answer("assistant", calls([a, b, c]));
    let told = rig.tool_messages();
    assert!(told[0].contains("not in the delegates list"), "not in the list comes before not found and depth");
    assert!(told[1].contains("Agent 'ghost' not found"), "not found comes before depth");
    assert!(told[2].contains("Maximum delegation depth (5) reached"));
}

/// SUP-21: six calls in one response run five and then one; answers are appended in call order whoever was first; a single
/// call is just made.
#[test]
fn six_delegations_run_five_at_once_and_are_answered_in_call_order() {
    let mut rig = Rig::start(of_supyagent(), planner_and_coder(), "go");
    let six: Vec<Value> = (0..6)
        .map(|i| json!({"id": format!("c{i}"), "name": "delegate_to_coder", "args": {"task": format!("t{i}")}}))
        .collect();
    rig.answer("assistant", json!({"tool_calls": six}));
    assert_eq!(rig.awaited(), ["coder"; 5]);
    // The last of the five is first.
    let key = rig.calls[4].key.clone();
    rig.reply_to(&key, Ok(says("r4")));
    assert_eq!(rig.awaited().len(), 5, "the sixth has started in its place");
    let order = [5, 3, 0, 2, 1];
    for i in order {
        let key = rig.calls.iter().find(|call| texts(call).ends_with(&format!("t{i}"))).unwrap().key.clone();
        rig.reply_to(&key, Ok(says(&format!("r{i}"))));
    }
    let answers: Vec<String> = (0..6).map(|i| format!(r#"{{"ok": true, "data": "r{i}"}}"#)).collect();
    assert_eq!(rig.tool_messages(), answers);
    let ids: Vec<Option<String>> = rig.it.messages()[2..].iter().map(|message| message.tool_call_id.clone()).collect();
    assert_eq!(ids, (0..6).map(|i| Some(format!("c{i}"))).collect::<Vec<_>>());
    rig.answer("assistant", delegate("coder", "one more"));
    assert_eq!(rig.awaited(), ["coder"]);
}

/// SUP-26: parent and its task always; a summary only above four messages, of the last ten, each cut at 300 characters;
/// facts and shared data only if there are some.
#[test]
fn a_child_is_told_who_calls_and_what_it_needs_and_nothing_else() {
    let long = "x".repeat(301);
    let input = |count: usize| AgentInput {
        messages: (0..count)
            .map(|i| {
                if i % 2 == 0 {
                    Message::user(format!("u{i}"))
                } else {
                    Message::assistant("assistant", format!("s{i}"))
                }
            })
            .chain([Message::system("be brief"), Message::user(&*long)])
            .collect(),
        ..AgentInput::default()
    };
    let start = |input: AgentInput| {
        let rules = of_supyagent();
        Rig::build(|out| AgentLoop::start(rules, planner_and_coder(), input, out)).unwrap()
    };
    // Two messages, the user's and the one that delegates: four in all besides the system's.
    let mut rig = start(input(2));
    rig.answer("assistant", delegate("coder", "write it"));
    let told = texts(rig.pending("coder"));
    assert_eq!(
        told,
        format!(
            "You are being called by the 'assistant' agent.\nParent's current task: {long}\n\n---\n\nYour task:\nwrite it"
        )
    );
    let mut shared = input(3);
    shared.context_variables.insert("repo".to_owned(), json!("bosun"));
    let mut rig = start(shared);
    rig.answer("assistant", calls([("delegate_to_coder", json!({"task": "write it", "context": "use Rust"}))]));
    let told = texts(rig.pending("coder"));
    assert!(told.contains(&format!(
        "\nConversation context:\nUser: u0\nAssistant: s1\nUser: u2\nUser: {}...\n",
        "x".repeat(300)
    )));
    assert!(told.contains("\nRelevant information:\n- use Rust\n"));
    assert!(told.contains("\nShared data:\n- repo: bosun\n"));
    let mut rig = start(input(12));
    rig.answer("assistant", delegate("coder", "write it"));
    let told = texts(rig.pending("coder"));
    assert!(told.contains("\nConversation context:\nUser: u4\nAssistant: s5\n"), "the last ten of fourteen: {told}");
    assert!(!told.contains("s3") && !told.contains("be brief"));
    assert!(!told.contains("Relevant information") && !told.contains("Shared data"));
}

/// SUP-30: a delegation that takes too long, and a model that refuses its key, are failures the parent is told of.
#[test]
fn a_timeout_and_a_refused_key_are_reported_to_the_parent() {
    let mut rules = of_supyagent();
    rules.delegation.on_timeout = OnDelegationTimeout::Fail;
    let mut rig = Rig::start(rules, planner_and_coder(), "go");
    rig.answer("assistant", delegate("coder", "code"));
    rig.after(Duration::from_millis(299_999));
    assert_eq!(rig.awaited(), ["coder"]);
    rig.after(Duration::from_millis(1));
    assert_eq!(rig.tool_messages(), [r#"{"ok": false, "error": "Delegation timeout - child took too long"}"#]);
    assert_eq!(rig.it.sessions_view()[1].status, "failed");
    rig.answer("assistant", delegate("coder", "again")).fail("coder", "401 invalid x-api-key");
    let told = &rig.tool_messages()[1];
    assert!(told.contains(r#""ok": false"#) && told.contains("Delegation to 'coder' failed: 401 invalid x-api-key."));
    assert_eq!(rig.awaited(), ["assistant"]);
}

#[test]
fn an_answer_that_does_not_conform_fails_with_the_name_of_the_field() {
    for (answer, field) in [
        (json!({"content": "x", "mood": "good"}), "mood"),
        (json!({"tool_calls": [{"args": {}}]}), "tool_calls[0]"),
        (json!({"content": 7}), "content"),
        (json!({"tool_calls": [{"name": "a", "colour": 1}]}), "colour"),
        (json!(7), "does not conform"),
    ] {
        let mut rig = Rig::start(of_supyagent(), planner_and_coder(), "go");
        rig.answer("assistant", answer);
        let error = rig.outcome().error.clone().unwrap();
        assert!(error.contains(field), "{error}");
    }
}

#[test]
fn a_cancelled_loop_takes_everything_back_and_hears_nothing_more() {
    let mut rig = Rig::start(of_supyagent(), planner_and_coder(), "go");
    rig.answer(
        "assistant",
        calls([
            ("delegate_to_coder", json!({"task": "a"})),
            ("delegate_to_planner", json!({"task": "b", "background": true})),
            ("sleep", json!({"seconds": 5})),
        ]),
    );
    assert_eq!((rig.calls.len(), rig.timers.len()), (2, 2));
    rig.with(|it, out| it.cancel("not needed", out));
    assert!(rig.calls.is_empty() && rig.timers.is_empty());
    assert_eq!(rig.outcome().error.as_deref(), Some("not needed"));
    assert!(rig.it.sessions_view().iter().all(|session| session.status == "failed"));
    let before = rig.it.clone();
    rig.with(|it, out| it.answered(&key("agents/1.1.1.0/step/1"), Ok(says("late")), out));
    assert_eq!(rig.it, before);
    assert_eq!(rig.noted(NoteKind::AttemptDropped).len(), 1);
}
