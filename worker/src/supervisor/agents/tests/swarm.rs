//! Hand-offs for good, as OpenAI's Swarm does them.

use super::*;

fn triage() -> Vec<AgentDef> {
    let mut sales = agent("sales").tool(ToolDef::new("quote"));
    sales.instructions = "Sell to {{user}}.".to_owned();
    vec![
        agent("triage").tool(ToolDef::new("to_sales")).tool(ToolDef::new("to_support")).tool(ToolDef::new("look_up")),
        sales,
        agent("support"),
    ]
}

fn call(tool: &str) -> Value {
    calls([(tool, json!({}))])
}

/// SWM-01, SWM-07: a function that returns an agent switches to it; the tool message names it; the next turn has the new
/// agent's instructions and tools and the whole history. The same by an action of the answer, and by a tool's result.
#[test]
fn a_function_that_returns_an_agent_switches_the_active_agent() {
    let returned = [json!({"agent": "sales"}), json!({"assistant": "sales"})];
    for result in returned {
        let mut rig = Rig::start(of_swarm(), triage(), "I want to buy");
        rig.answer("triage", call("to_sales")).answer("to_sales", result);
        assert_eq!(rig.tool_messages(), [r#"{"assistant": "sales"}"#]);
        let next = rig.pending("sales").clone();
        assert_eq!(tools_of(&next), ["quote"]);
        assert!(next.context["instructions"].as_str().unwrap().starts_with("Sell to "));
        assert_eq!(sent(&next).len(), 3, "the history is kept");
        assert_eq!(rig.it.view(false).active_agent.as_deref(), Some("sales"));
    }
    let mut agents = triage();
    agents[0] = agent("triage").handoffs(&["sales", "support"]);
    for answer in [json!({"handoff": "sales"}), json!({"handoff": {"to": "sales"}}), call("transfer_to_sales")] {
        let mut rig = Rig::start(of_swarm(), agents.clone(), "I want to buy");
        rig.answer("triage", answer);
        assert_eq!(rig.tool_messages(), [r#"{"assistant": "sales"}"#]);
        assert_eq!(rig.awaited(), ["sales"]);
    }
}

/// SWM-02: of several hand-offs in one response the last is used, whichever came first; all tool messages are recorded.
#[test]
fn of_several_hand_offs_the_last_is_used() {
    for first in ["to_sales", "to_support"] {
        let mut rig = Rig::start(of_swarm(), triage(), "go");
        rig.answer("triage", calls([("to_sales", json!({})), ("look_up", json!({})), ("to_support", json!({}))]));
        let agent_of = |tool: &str| json!({"agent": tool.trim_start_matches("to_")});
        let second = if first == "to_sales" { "to_support" } else { "to_sales" };
        rig.answer(first, agent_of(first)).answer(second, agent_of(second)).answer("look_up", json!("known"));
        assert_eq!(rig.tool_messages(), [r#"{"assistant": "sales"}"#, "known", r#"{"assistant": "support"}"#]);
        assert_eq!(rig.awaited(), ["support"]);
    }
}

/// SWM-03: an unknown function is told and the loop continues.
#[test]
fn an_unknown_function_is_told_and_the_loop_continues() {
    let mut rig = Rig::start(of_swarm(), triage(), "go");
    rig.answer("triage", call("refund"));
    assert_eq!(rig.tool_messages(), ["Error: Tool refund not found."]);
    assert_eq!(rig.awaited(), ["triage"]);
    rig.answer("triage", call("look_up")).fail("look_up", "database is down");
    assert_eq!(rig.tool_messages()[1], "Error: database is down");
    assert_eq!(rig.awaited(), ["triage"]);
}

/// SWM-04: a function may return a value, an agent and variables; variables are merged in call order and are given to
/// functions, but no model sees them.
#[test]
fn functions_may_return_variables_that_models_do_not_see() {
    let input = AgentInput {
        task: Some("go".to_owned()),
        context_variables: [("user".to_owned(), json!("ada")), ("tier".to_owned(), json!(1))].into(),
        ..AgentInput::default()
    };
    let given = input.clone();
    let mut rig = Rig::build(|out| AgentLoop::start(of_swarm(), triage(), input, out)).unwrap();
    assert!(!rig.pending("triage").context.to_string().contains("ada"));
    assert!(!rig.pending("triage").prompt.contains("ada"));
    rig.answer("triage", calls([("look_up", json!({})), ("to_sales", json!({}))]));
    assert_eq!(rig.pending("look_up").context["context_variables"], json!({"tier": 1, "user": "ada"}));
    rig.answer("to_sales", json!({"value": "off you go", "agent": "sales", "context_variables": {"tier": 3}}));
    rig.answer("look_up", json!({"value": {"rows": 2}, "context_variables": {"tier": 2, "seen": "s3cret"}}));
    assert_eq!(rig.tool_messages(), [r#"{"rows": 2}"#, "off you go"]);
    let next = rig.pending("sales").clone();
    assert_eq!(next.context["instructions"], "Sell to ada.", "instructions may be made of variables");
    assert!(!next.context.to_string().contains("s3cret") && !next.prompt.contains("s3cret"));
    rig.answer("sales", says("sold"));
    let variables = &rig.outcome().context_variables;
    assert_eq!(json!(variables), json!({"seen": "s3cret", "tier": 3, "user": "ada"}), "the later call wins");
    assert_eq!(given.context_variables.len(), 2);
    // An object of another shape is a value like any other; an agent nobody knows is an error.
    let mut rig = Rig::start(of_swarm(), triage(), "go");
    rig.answer("triage", call("look_up")).answer("look_up", json!({"agent": "sales", "phone": 1}));
    rig.answer("triage", call("look_up")).answer("look_up", json!({"agent": "nobody"}));
    assert_eq!(rig.tool_messages(), [r#"{"agent": "sales", "phone": 1}"#, "Error: Agent 'nobody' not found"]);
    assert_eq!(rig.awaited(), ["triage"]);
}

/// SWM-04: instructions are filled in once: a value that looks like a variable stays as it is.
#[test]
fn the_value_of_a_variable_is_not_filled_in_again() {
    let mut agents = triage();
    agents[0].instructions = "Help {{name}}, {{{name}}}, {{nobody}} of tier {{tier}}.".to_owned();
    let input = AgentInput {
        task: Some("go".to_owned()),
        context_variables: [("name".to_owned(), json!("{{tier}}")), ("tier".to_owned(), json!(1))].into(),
        ..AgentInput::default()
    };
    let rig = Rig::build(|out| AgentLoop::start(of_swarm(), agents, input, out)).unwrap();
    let filled = "Help {{tier}}, {{{tier}}}, {{nobody}} of tier 1.";
    assert_eq!(rig.pending("triage").context["instructions"], filled);
}

/// SWM-05: it ends without tool calls, with calls that are not to be executed, or when enough messages were added: those
/// of tools count too. 25 unless told otherwise.
#[test]
fn the_loop_ends_without_calls_unexecuted_or_after_enough_messages() {
    let mut rig = Rig::start(of_swarm(), triage(), "go");
    rig.answer("triage", says("hello"));
    assert_eq!(rig.outcome().messages.len(), 1);

    let rules = AgentRules { execute_tools: false, ..of_swarm() };
    let mut rig = Rig::start(rules, triage(), "go");
    rig.answer("triage", call("look_up"));
    let outcome = rig.outcome();
    assert!(outcome.ok && rig.calls.is_empty());
    assert_eq!(outcome.messages[0].tool_calls[0].name, "look_up");
    assert_eq!(outcome.messages.len(), 1);

    let endless = |max: Option<u32>| {
        let mut rules = of_swarm();
        rules.limit.max = max.unwrap_or(rules.limit.max);
        let mut rig = Rig::start(rules, triage(), "go");
        rig.play(|asked| Ok(if who(asked) == "look_up" { json!("x") } else { call("look_up") }));
        assert!(rig.outcome().ok);
        (rig.outcome().messages.len(), rig.asked.iter().filter(|asked| who(asked) == "triage").count())
    };
    assert_eq!(endless(Some(3)), (4, 2), "two messages are below three, four are not");
    assert_eq!(endless(Some(4)), (4, 2));
    assert_eq!(endless(Some(5)), (6, 3));
    assert_eq!(endless(None), (26, 13), "25 by default");
}

/// SWM-06: messages, agent and variables of an outcome continue in the next run; the input is not changed.
#[test]
fn an_outcome_can_be_continued_in_the_next_run() {
    let mut rig = Rig::start(of_swarm(), triage(), "I want to buy");
    rig.answer("triage", call("to_sales"));
    rig.answer("to_sales", json!({"agent": "sales", "context_variables": {"user": "ada"}}));
    rig.answer("sales", says("what?"));
    let first = rig.outcome().clone();
    assert_eq!(first.active_agent, "sales");
    assert_eq!(first.messages.len(), 3, "only what was added");
    let mut messages = vec![Message::user("I want to buy")];
    messages.extend(first.messages.clone());
    let next = AgentInput {
        agent: Some(first.active_agent.clone()),
        messages: messages.clone(),
        task: Some("a boat".to_owned()),
        context_variables: first.context_variables.clone(),
        ..AgentInput::default()
    };
    let kept = next.clone();
    let mut rig = Rig::build(|out| AgentLoop::start(of_swarm(), triage(), next.clone(), out)).unwrap();
    assert_eq!(rig.awaited(), ["sales"]);
    let told = sent(rig.pending("sales"));
    assert_eq!(told[..4], messages[..]);
    assert_eq!(told[4].text(), "a boat");
    assert_eq!(rig.pending("sales").context["instructions"], "Sell to ada.");
    rig.answer("sales", says("sold"));
    assert_eq!(rig.outcome().messages.len(), 1);
    assert_eq!(next, kept);
}
