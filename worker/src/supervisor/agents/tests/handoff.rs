//! Hand-offs that come back, as LangGraph's supervisor does them.

use super::*;

fn team() -> Vec<AgentDef> {
    vec![agent("supervisor").handoffs(&["Research Expert", "math"]), agent("Research Expert"), agent("math")]
}

fn transfer(to: &str) -> Value {
    calls([(&*format!("transfer_to_{to}"), json!({}))])
}

/// Role, name and text of each message.
fn lines(messages: &[Message]) -> Vec<(MessageRole, &str, &str)> {
    messages.iter().map(|message| (message.role, message.name.as_deref().unwrap_or_default(), message.text())).collect()
}

/// LGS-01, LGS-02: supervisor, agent, supervisor; it ends by answering without a hand-off. The pair of messages of a
/// hand-off and of its way back have their names and texts, with the name in lower case and blanks as `_`.
#[test]
fn a_supervisor_hands_over_gets_control_back_and_ends_by_answering() {
    let mut rig = Rig::start(of_langgraph(), team(), "who is it?");
    assert_eq!(tools_of(rig.pending("supervisor")), ["transfer_to_research_expert", "transfer_to_math"]);
    rig.answer("supervisor", transfer("research_expert"));
    let told = sent(rig.pending("Research Expert"));
    assert_eq!(told.last().map(Message::text), Some("Successfully transferred to Research Expert"));
    rig.answer("Research Expert", says("it is Ada"));
    use MessageRole::{Assistant, Tool, User};
    let told = sent(rig.pending("supervisor"));
    assert_eq!(
        lines(&told),
        [
            (User, "", "who is it?"),
            (Assistant, "supervisor", ""),
            (Tool, "transfer_to_research_expert", "Successfully transferred to Research Expert"),
            (Assistant, "Research Expert", "it is Ada"),
            (Assistant, "Research Expert", "Transferring back to supervisor"),
            (Tool, "transfer_back_to_supervisor", "Successfully transferred back to supervisor"),
        ]
    );
    assert_eq!(told[4].tool_calls[0].name, "transfer_back_to_supervisor");
    assert_eq!(Some(&told[4].tool_calls[0].id), told[5].tool_call_id.as_ref());
    rig.answer("supervisor", transfer("math")).answer("math", says("42"));
    rig.answer("supervisor", says("Ada, 42"));
    assert!(rig.outcome().ok && rig.outcome().result == "Ada, 42");
}

/// LGS-02: the prefix is configurable.
#[test]
fn the_prefix_of_a_hand_off_is_configurable() {
    let mut rules = of_langgraph();
    rules.handoff.prefix = "delegate_to_".to_owned();
    rules.delegation.kind = DelegationProtocol::Coworkers;
    let mut rig = Rig::start(rules, team(), "go");
    assert_eq!(tools_of(rig.pending("supervisor")), ["delegate_to_research_expert", "delegate_to_math"]);
    rig.answer("supervisor", calls([("delegate_to_math", json!({}))])).answer("math", says("42"));
    assert!(rig.it.messages().iter().any(|message| message.name.as_deref() == Some("delegate_back_to_supervisor")));
}

/// LGS-03: `last_message` by default, the last two if the last is a tool's; `full_history` keeps all; anything else is an
/// error.
#[test]
fn what_is_kept_of_an_agent_depends_on_the_output_mode() {
    let play = |mode: OutputMode| {
        let mut agents = team();
        agents[2] = agent("math").tool(ToolDef::new("add"));
        let mut rules = of_langgraph();
        rules.handoff.history = mode;
        let mut rig = Rig::start(rules, agents, "go");
        rig.answer("supervisor", transfer("math"));
        rig.answer("math", calls([("add", json!({"a": 1}))])).answer("add", json!(3)).answer("math", says("it is 3"));
        let texts: Vec<String> = rig.it.messages()[3..].iter().map(|message| message.text().to_owned()).collect();
        texts[..texts.len() - 2].to_vec()
    };
    assert_eq!(play(OutputMode::LastMessage), ["it is 3"]);
    assert_eq!(play(OutputMode::FullHistory), ["", "3", "it is 3"]);
    assert_eq!(of_langgraph().handoff.history, OutputMode::LastMessage);
    let call = ToolCall { id: "c".to_owned(), name: "add".to_owned(), args: json!({}) };
    let asked = Message { tool_calls: vec![call.clone()], ..Message::assistant("math", "") };
    let ends_with_tool = [Message::assistant("math", "first"), asked, Message::tool(&call, "3")];
    assert_eq!(output_messages(OutputMode::LastMessage, &ends_with_tool), ends_with_tool[1..]);
    assert_eq!(output_messages(OutputMode::LastMessage, &ends_with_tool[..1]), ends_with_tool[..1]);
    assert!(output_messages(OutputMode::LastMessage, &[]).is_empty());
    assert!(serde_json::from_value::<HandoffRules>(json!({"history": "everything"})).is_err());
}

/// LGS-04: an agent without name, two with one name, and hand-off tools that leave an agent out.
#[test]
fn agents_need_names_and_hand_off_tools_for_all() {
    let rules = AgentRules::langgraph;
    let error = refused(rules(), vec![agent("a"), agent(" ")]).to_string();
    assert_eq!(error, "Please specify a name for every agent: agent 1 has none.");
    let error = refused(rules(), vec![agent("a"), agent("a")]).to_string();
    assert_eq!(error, "Agent with name 'a' already exists. Agent names must be unique.");
    let custom = |to: &str| ToolDef { handoff_to: Some(to.to_owned()), ..ToolDef::new(&format!("ask_{to}")) };
    let supervisor = agent("s").handoffs(&["a", "b", "c"]).tool(custom("b"));
    let others = [agent("a"), agent("b"), agent("c")];
    let error = refused(rules(), [vec![supervisor], others.to_vec()].concat()).to_string();
    assert!(error.contains("Missing handoff tools for agents 'a, c'."), "{error}");
    let all = agent("s").handoffs(&["a", "b", "c"]).tool(custom("a")).tool(custom("b")).tool(custom("c"));
    let mut rig = Rig::start(rules(), [vec![all], others.to_vec()].concat(), "go");
    assert_eq!(tools_of(rig.pending("s")), ["ask_a", "ask_b", "ask_c"]);
    rig.answer("s", calls([("ask_b", json!({}))]));
    assert_eq!(rig.awaited(), ["b"]);
}

/// LGS-05: one hand-off at a time by default; in parallel they fan out, each agent sees only its own call, and the
/// supervisor goes on when all are back, with their messages in call order.
#[test]
fn parallel_hand_offs_fan_out_and_all_return_before_the_supervisor_goes_on() {
    let both = calls([("transfer_to_research_expert", json!({})), ("transfer_to_math", json!({}))]);
    let mut rig = Rig::start(of_langgraph(), team(), "go");
    assert_eq!(rig.pending("supervisor").context["parallel_tool_calls"], false);
    rig.answer("supervisor", both.clone());
    assert_eq!(rig.awaited(), ["Research Expert"], "one at a time");

    let rules = AgentRules { parallel_tool_calls: true, ..of_langgraph() };
    let mut rig = Rig::start(rules, team(), "go");
    rig.answer("supervisor", both);
    assert_eq!(rig.awaited(), ["Research Expert", "math"]);
    for (name, tool) in [("Research Expert", "transfer_to_research_expert"), ("math", "transfer_to_math")] {
        let told = sent(rig.pending(name));
        let calls: Vec<&ToolCall> = told.iter().flat_map(|message| &message.tool_calls).collect();
        assert_eq!(calls.iter().map(|call| call.name.as_str()).collect::<Vec<_>>(), [tool]);
        assert_eq!(told.last().and_then(|message| message.name.as_deref()), Some(tool));
    }
    rig.answer("math", says("42"));
    assert_eq!(rig.awaited(), ["Research Expert"], "the supervisor waits for all");
    rig.answer("Research Expert", says("Ada"));
    let texts: Vec<String> = rig.it.messages()[2..].iter().map(|message| message.text().to_owned()).collect();
    assert_eq!(
        texts,
        [
            "Successfully transferred to Research Expert",
            "Successfully transferred to math",
            "Ada",
            "Transferring back to supervisor",
            "Successfully transferred back to supervisor",
            "42",
            "Transferring back to supervisor",
            "Successfully transferred back to supervisor",
        ]
    );
}

/// LGS-06: without hand-off messages neither pair is in the history, for nobody.
#[test]
fn the_pairs_of_messages_can_be_hidden() {
    let mut rules = of_langgraph();
    rules.handoff.messages = false;
    let mut rig = Rig::start(rules, team(), "go");
    rig.answer("supervisor", transfer("math"));
    assert_eq!(lines(&sent(rig.pending("math"))), [(MessageRole::User, "", "go")]);
    rig.answer("math", says("42"));
    assert_eq!(
        lines(&sent(rig.pending("supervisor"))),
        [(MessageRole::User, "", "go"), (MessageRole::Assistant, "math", "42")]
    );
}

/// LGS-07: the last message of an agent goes to the user word for word; an agent that said nothing is told with the names
/// of those that did.
#[test]
fn an_agents_message_is_forwarded_word_for_word() {
    let mut rules = of_langgraph();
    rules.handoff.forward = true;
    let mut rig = Rig::start(rules, team(), "go");
    assert!(tools_of(rig.pending("supervisor")).contains(&"forward_message".to_owned()));
    rig.answer("supervisor", transfer("math")).answer("math", says("it is  42\n\nexactly"));
    rig.answer("supervisor", calls([("forward_message", json!({"from_agent": "poet"}))]));
    let told = "Could not find message from source agent poet. Found names: supervisor, math";
    assert_eq!(rig.tool_messages().last().map(String::as_str), Some(told));
    rig.answer("supervisor", calls([("forward_message", json!({"from_agent": "Math"}))]));
    let outcome = rig.outcome();
    assert_eq!(outcome.result, "it is  42\n\nexactly");
    let last = outcome.messages.last().unwrap();
    assert_eq!((last.name.as_deref(), last.text()), (Some("supervisor"), "it is  42\n\nexactly"));
}

/// LGS-08: a supervisor is an agent of another one, and a loop between them ends at the step limit.
#[test]
fn supervisors_nest_and_a_step_limit_ends_their_loops() {
    let agents = || vec![agent("top").handoffs(&["lead"]), agent("lead").handoffs(&["math"]), agent("math")];
    let mut rig = Rig::start(of_langgraph(), agents(), "go");
    rig.answer("top", transfer("lead")).answer("lead", transfer("math")).answer("math", says("42"));
    rig.answer("lead", says("it is 42"));
    assert!(rig.it.messages().iter().any(|message| message.text() == "Transferring back to top"));
    rig.answer("top", says("42"));
    assert!(rig.outcome().ok);

    let mut rig = Rig::start(of_langgraph(), agents(), "go");
    rig.play(|call| Ok(if who(call) == "top" { transfer("lead") } else { says("you go on") }));
    let outcome = rig.outcome();
    assert!(!outcome.ok);
    let text = "Recursion limit of 25 reached without hitting a stop condition.";
    assert!(outcome.error.as_deref().unwrap().starts_with(text), "{outcome:?}");
    assert!(rig.asked.len() <= 25);
}

#[test]
fn an_agent_that_fails_gives_control_back_with_its_error() {
    let mut rig = Rig::start(of_langgraph(), team(), "go");
    rig.answer("supervisor", transfer("math")).fail("math", "overloaded");
    let texts: Vec<&str> = rig.it.messages().iter().map(Message::text).collect();
    assert!(texts.contains(&"Error: overloaded"));
    assert_eq!(rig.awaited(), ["supervisor"]);
}
