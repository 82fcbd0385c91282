//! The conversational supervisor: todos, variables, budget, memory and policies.

use super::*;

fn supervisor() -> Vec<AgentDef> {
    vec![
        agent("supervisor").delegates(&["crm-agent", "mail"]).tool(ToolDef::new("search")),
        agent("crm-agent"),
        agent("mail"),
    ]
}

fn todos(list: Value) -> Value {
    calls([("create_update_todos", json!({"todos": list}))])
}

/// CUG-08, CUG-10: a conversational or single-agent task runs on the conversational loop: the model chooses, notes its
/// todos, and nothing of a structured plan is asked for.
#[test]
fn a_single_agent_task_runs_on_the_conversational_loop_with_todos() {
    let mut rig = Rig::start(of_cuga(), vec![agent("helper")], "write a mail");
    assert_eq!(tools_of(rig.pending("helper")), ["create_update_todos"]);
    rig.answer("helper", todos(json!([{"text": "write", "status": "pending"}])));
    rig.answer("helper", says("written"));
    assert!(rig.outcome().ok);
    assert!(rig.asked.iter().all(|call| call.purpose == crate::supervisor::outbox::Purpose::ExecuteWorker));
    let mut rig = Rig::start(of_cuga(), supervisor(), "hello");
    rig.answer("supervisor", says("hi"));
    assert_eq!(rig.outcome().result, "hi");
    assert_eq!(rig.asked.len(), 1);
}

/// CUG-17: the list is `{text, status: pending/completed}` and nothing else, replaced as a whole; a bad one changes
/// nothing; it is told to the model with its next call.
#[test]
fn todos_are_texts_that_are_pending_or_completed() {
    let mut rig = Rig::start(of_cuga(), supervisor(), "go");
    rig.answer("supervisor", todos(json!([{"text": "a", "status": "pending"}, {"text": "b", "status": "completed"}])));
    assert_eq!(rig.tool_messages(), ["Todos updated:\n- [ ] a\n- [x] b"]);
    assert_eq!(rig.pending("supervisor").context["instructions"], "Todos:\n- [ ] a\n- [x] b");
    let bad = [
        (json!([{"text": "a", "status": "in_progress"}]), "in_progress"),
        (json!([{"text": "a"}]), "status"),
        (json!([{"text": "a", "status": "pending", "agent": "x"}]), "agent"),
        (json!("a"), "todos"),
        (json!(vec![json!({"text": "a", "status": "pending"}); TODOS_MAX + 1]), "101 entries"),
    ];
    for (list, why) in bad {
        rig.answer("supervisor", todos(list));
        let told = rig.tool_messages().pop().unwrap();
        assert!(told.starts_with("Error: Invalid todos") && told.contains(why), "{told}");
        assert_eq!(rig.it.view(false).todos.len(), 2, "nothing changed");
    }
    rig.answer("supervisor", todos(json!([{"text": "a", "status": "completed"}])));
    let kept = rig.it.view(false).todos;
    assert_eq!(kept, [Todo { text: "a".to_owned(), status: TodoStatus::Completed }]);
}

/// CUG-34: 50 steps by default; the text names the limit.
#[test]
fn the_step_limit_has_its_text() {
    let endless = |max: Option<u32>| {
        let mut rules = of_cuga();
        rules.limit.max = max.unwrap_or(rules.limit.max);
        let mut rig = Rig::start(rules, supervisor(), "go");
        rig.play(|_| Ok(todos(json!([]))));
        (rig.outcome().error.clone(), rig.asked.len())
    };
    let text = |n: usize| {
        format!(
            "Maximum step limit ({n}) reached. The task has exceeded the allowed number of execution cycles. Please \
             simplify your request or break it into smaller tasks."
        )
    };
    assert_eq!(endless(Some(2)), (Some(text(2)), 2));
    assert_eq!(endless(None), (Some(text(50)), 50));
}

fn search(i: usize) -> Value {
    calls([("search", json!({"q": i}))])
}

/// CUG-35: the budget of tool calls carries over steps; a call beyond it is not made; then tools are withheld for one
/// last answer, and the turn ends. 256 by default.
#[test]
fn when_the_tool_budget_is_spent_one_last_answer_without_tools_ends_the_turn() {
    let mut rules = of_cuga();
    assert_eq!(rules.budget.per_task, Some(256));
    rules.budget.per_task = Some(3);
    let mut rig = Rig::start(rules, supervisor(), "go");
    rig.answer("supervisor", search(0)).answer("search", json!("x"));
    rig.answer("supervisor", search(1)).answer("search", json!("x"));
    assert!(!tools_of(rig.pending("supervisor")).is_empty(), "one call is left");
    rig.answer("supervisor", calls([("search", json!({"q": 2})), ("search", json!({"q": 3}))]));
    assert_eq!(rig.awaited(), ["search"], "the fourth is not made");
    rig.answer("search", json!("x"));
    assert!(rig.tool_messages()[3].contains("Tool call budget (3) is used up"));
    let last = rig.pending("supervisor").clone();
    assert!(tools_of(&last).is_empty());
    assert_eq!(last.context["last_word"], true);
    // Whatever it tries now, this is the end.
    rig.answer("supervisor", json!({"content": "what I found", "tool_calls": [{"name": "search", "args": {}}]}));
    assert_eq!(rig.outcome().result, "what I found");
    assert!(rig.outcome().ok && rig.calls.is_empty());
    assert_eq!(rig.it.view(false).charged_task, 3);
    assert_eq!(rig.noted(NoteKind::BudgetExhausted).len(), 1);
}

/// CUG-35: delegations and tools nobody registered are charged as well; plain functions and the list of todos are not.
#[test]
fn every_tool_is_charged_but_plain_functions_are_not() {
    let mut agents = supervisor();
    agents[0] = agents[0].clone().tool(ToolDef { plain: true, ..ToolDef::new("double") });
    let mut rig = Rig::start(of_cuga(), agents, "go");
    let charged = |rig: &Rig| rig.it.view(false).charged_task;
    rig.answer("supervisor", calls([("double", json!({"x": 2}))])).answer("double", json!(4));
    rig.answer("supervisor", todos(json!([])));
    assert_eq!(charged(&rig), 0);
    rig.answer("supervisor", search(0)).answer("search", json!("x"));
    assert_eq!(charged(&rig), 1);
    rig.answer("supervisor", delegate("mail", "send")).answer("mail", says("sent"));
    assert_eq!(charged(&rig), 2);
    rig.answer("supervisor", calls([("brand_new_tool", json!({}))]));
    assert_eq!(charged(&rig), 3);
}

/// CUG-35: the ceiling of the conversation holds over tasks and counts what earlier runs used.
#[test]
fn the_ceiling_of_a_conversation_holds_over_tasks() {
    let mut rules = of_cuga();
    rules.budget = ToolBudget { per_task: Some(1000), per_thread: Some(50) };
    let input = AgentInput { task: Some("go".to_owned()), charged_thread: 48, ..AgentInput::default() };
    let mut rig = Rig::build(|out| AgentLoop::start(rules, supervisor(), input, out)).unwrap();
    rig.answer("supervisor", search(0)).answer("search", json!("x")).answer("supervisor", says("one"));
    rig.with(|it, out| assert!(it.say("more", out)));
    assert_eq!((rig.it.view(false).charged_task, rig.it.view(false).charged_thread), (0, 49));
    rig.answer("supervisor", search(1)).answer("search", json!("x"));
    assert!(tools_of(rig.pending("supervisor")).is_empty(), "the ceiling is reached, not the budget");
    rig.answer("supervisor", says("two"));
    assert_eq!(rig.it.view(false).charged_thread, 50);
    rig.with(|it, out| assert!(it.say("even more", out)));
    assert!(tools_of(rig.pending("supervisor")).is_empty());
}

/// CUG-36: a delegate tool's name has `_` for what is no word character; the agent is still the real one; two names that
/// become one are refused.
#[test]
fn a_delegate_tool_is_named_by_word_characters_only() {
    let mut rig = Rig::start(of_cuga(), supervisor(), "go");
    assert_eq!(tools_of(rig.pending("supervisor"))[1..3], ["delegate_to_crm_agent", "delegate_to_mail"]);
    rig.answer("supervisor", delegate("crm_agent", "look"));
    assert_eq!(rig.awaited(), ["crm-agent"]);
    assert_eq!(sanitized("a.b c/d-é_1"), "a_b_c_d_é_1");
    let agents = vec![agent("s").delegates(&["crm-agent", "crm agent"]), agent("crm-agent"), agent("crm agent")];
    let error = refused(of_cuga(), agents).to_string();
    assert_eq!(error, "agents 'crm-agent' and 'crm agent' have the same tool name 'delegate_to_crm_agent'");
}

/// CUG-37: variables go along: those that are named, all if none are; and they come back.
#[test]
fn variables_go_along_with_a_delegation_and_come_back() {
    let input = AgentInput {
        task: Some("go".to_owned()),
        context_variables: [("account".to_owned(), json!({"id": 7})), ("note".to_owned(), json!("vip"))].into(),
        ..AgentInput::default()
    };
    let mut rig = Rig::build(|out| AgentLoop::start(of_cuga(), supervisor(), input, out)).unwrap();
    let told = |rig: &Rig| sent(rig.pending("mail"))[0].text().to_owned();
    let send = |variables: Value| calls([("delegate_to_mail", json!({"task": "send", "variables": variables}))]);
    let cases = [
        (send(json!(["note"])), "send\n\nVariables:\n- note: \"vip\""),
        (send(json!([])), "send"),
        (send(json!(["unknown"])), "send"),
        (delegate("mail", "send"), "send\n\nVariables:\n- account: {\"id\": 7}\n- note: \"vip\""),
    ];
    for (answer, text) in cases {
        rig.answer("supervisor", answer);
        assert!(told(&rig).ends_with(text), "{}", told(&rig));
        if text == "send" {
            assert!(!told(&rig).contains("Variables"));
        }
        // A conversation is remembered; each case begins afresh here.
        let key = rig.pending("mail").key.clone();
        rig.reply_to(&key, Err(CallFailure::error("not now")));
    }
    rig.answer("supervisor", delegate("mail", "send"));
    rig.answer("mail", json!({"content": "sent", "context_variables": {"message_id": 99, "note": "seen"}}));
    rig.answer("supervisor", says("done"));
    let variables = json!(rig.outcome().context_variables);
    assert_eq!(variables, json!({"account": {"id": 7}, "message_id": 99, "note": "seen"}));
}

/// CUG-38: a child remembers its conversation, or nothing; its id depends on tenant, user, supervisor, conversation and
/// agent.
#[test]
fn a_child_remembers_its_conversation_or_nothing() {
    let remembered = |scope: Option<MemoryScope>| {
        let mut agents = supervisor();
        agents[2].memory_scope = scope;
        let mut rig = Rig::start(of_cuga(), agents, "go");
        rig.answer("supervisor", delegate("mail", "one")).answer("mail", says("first"));
        rig.answer("supervisor", delegate("mail", "two"));
        sent(rig.pending("mail")).iter().map(|message| message.text().to_owned()).collect::<Vec<String>>()
    };
    assert_eq!(remembered(None), ["one", "first", "two"], "conversation is the default");
    assert_eq!(remembered(Some(MemoryScope::Conversation)), ["one", "first", "two"]);
    assert_eq!(remembered(Some(MemoryScope::Call)), ["two"]);
    let thread =
        Thread { tenant: "t".to_owned(), user: "u".to_owned(), supervisor: "s".to_owned(), thread: "c".to_owned() };
    let id = child_id(&thread, "mail", None);
    assert_eq!(id, child_id(&thread.clone(), "mail", None), "stable");
    let other = |change: fn(&mut Thread)| {
        let mut other = thread.clone();
        change(&mut other);
        child_id(&other, "mail", None)
    };
    let others = [
        other(|thread| thread.tenant = "x".to_owned()),
        other(|thread| thread.user = "x".to_owned()),
        other(|thread| thread.supervisor = "x".to_owned()),
        other(|thread| thread.thread = "x".to_owned()),
        child_id(&thread, "crm", None),
        child_id(&thread, "mail", Some(1)),
        child_id(&thread, "mail", Some(2)),
    ];
    assert!(others.iter().all(|other| *other != id));
    assert_ne!(others[5], others[6], "each call has its own");
}

/// CUG-38: two calls of one child at the same time are made one after the other; calls that share nothing are not.
#[test]
fn concurrent_calls_of_one_child_are_serialized() {
    let two = || calls([("delegate_to_mail", json!({"task": "one"})), ("delegate_to_mail", json!({"task": "two"}))]);
    let mut rig = Rig::start(of_cuga(), supervisor(), "go");
    rig.answer("supervisor", two());
    assert_eq!(rig.awaited(), ["mail"]);
    rig.answer("mail", says("first"));
    let told: Vec<String> = sent(rig.pending("mail")).iter().map(|message| message.text().to_owned()).collect();
    assert_eq!(told, ["one", "first", "two"]);
    rig.answer("mail", says("second"));
    assert_eq!(rig.tool_messages(), ["first", "second"]);
    let mut agents = supervisor();
    agents[2].memory_scope = Some(MemoryScope::Call);
    let mut rig = Rig::start(of_cuga(), agents, "go");
    rig.answer("supervisor", two());
    assert_eq!(rig.awaited(), ["mail", "mail"]);
}

#[test]
fn a_child_that_times_out_while_it_waits_for_its_memory_does_not_begin_later() {
    let mut rig = Rig::start(of_cuga(), supervisor(), "go");
    rig.answer(
        "supervisor",
        calls([
            ("delegate_to_mail", json!({"task": "one", "timeout": 600})),
            ("delegate_to_mail", json!({"task": "two"})),
        ]),
    );
    rig.after(Duration::from_secs(300));
    rig.answer("mail", says("first"));
    assert_eq!(rig.awaited(), ["supervisor"]);
    assert_eq!(rig.tool_messages(), ["first", "Error: Delegation timeout - child took too long"]);
}

fn policy(name: &str, rule: Value) -> StandingPolicy {
    StandingPolicy::new(name, serde_json::from_value(rule).unwrap())
}

fn with_policies(policies: Vec<StandingPolicy>) -> AgentRules {
    AgentRules { policies, ..of_cuga() }
}

/// CUG-39: an intent guard blocks before anything is asked; ids carry the type.
#[test]
fn an_intent_guard_blocks_before_any_delegation() {
    let guard = policy("No deletes", json!({"type": "intent_guard", "triggers": ["Delete all"], "response": "No."}));
    assert_eq!(guard.id, "intent_guard_no_deletes");
    let mut rig = Rig::start(with_policies(vec![guard.clone()]), supervisor(), "please DELETE ALL accounts");
    let outcome = rig.outcome();
    assert!(outcome.policy_blocked && outcome.selected_agents.is_empty());
    assert_eq!(outcome.result, "No.");
    assert!(rig.asked.is_empty());
    rig.with(|it, out| assert!(it.say("then list them", out)));
    rig.answer("supervisor", says("a, b"));
    assert!(!rig.outcome().policy_blocked);
    for id in ["no_deletes", "intent_guard", "intent_guard_", "playbook_x"] {
        let named = StandingPolicy { id: id.to_owned(), ..guard.clone() };
        let error = refused(with_policies(vec![named]), supervisor()).to_string();
        assert_eq!(error, format!("policy id '{id}' must begin with its type 'intent_guard'"));
    }
}

#[test]
fn a_policy_with_an_unknown_key_is_refused() {
    let good = json!({"id": "tool_guide_x", "name": "x", "type": "tool_guide", "tools": ["a"], "guide": "b"});
    let read: StandingPolicy = serde_json::from_value(good.clone()).unwrap();
    assert_eq!(serde_json::to_value(&read).unwrap(), good);
    let mut bad = good;
    bad["colour"] = json!("red");
    assert!(serde_json::from_value::<StandingPolicy>(bad).unwrap_err().to_string().contains("colour"));
}

/// CUG-39: a playbook gives guidance, and an order of delegations that is kept to.
#[test]
fn a_playbook_guides_and_orders_delegations() {
    let playbook = policy(
        "onboarding",
        json!({"type": "playbook", "triggers": ["onboard"],
        "guidance": "First the CRM, then a mail.", "delegations": ["crm-agent", "mail"]}),
    );
    let mut rig = Rig::start(with_policies(vec![playbook.clone()]), supervisor(), "Onboard Ada");
    assert_eq!(rig.pending("supervisor").context["instructions"], "First the CRM, then a mail.");
    rig.answer("supervisor", delegate("mail", "welcome"));
    assert_eq!(
        rig.tool_messages(),
        ["Error: The playbook wants 'crm-agent' before 'mail'. Delegate to 'crm-agent' first."]
    );
    rig.answer("supervisor", delegate("crm_agent", "add")).answer("crm-agent", says("added"));
    rig.answer("supervisor", delegate("mail", "welcome")).answer("mail", says("sent"));
    rig.answer("supervisor", says("done"));
    assert_eq!(rig.outcome().selected_agents, ["crm-agent", "mail"]);
    let mut rig = Rig::start(with_policies(vec![playbook]), supervisor(), "write to Ada");
    assert_eq!(rig.pending("supervisor").context["instructions"], "");
    rig.answer("supervisor", delegate("mail", "welcome"));
    assert_eq!(rig.awaited(), ["mail"]);
}

/// CUG-39: a tool guide is in the description of its tools.
#[test]
fn a_tool_guide_is_in_the_description_of_its_tool() {
    let guide = policy("search", json!({"type": "tool_guide", "tools": ["search"], "guide": "At most ten hits."}));
    let rig = Rig::start(with_policies(vec![guide]), supervisor(), "go");
    let tools = rig.pending("supervisor").context["tools"].clone();
    assert_eq!(tools[0]["description"], "At most ten hits.");
    assert!(!tools[1]["description"].as_str().unwrap().contains("ten hits"));
}

/// CUG-39: a tool that needs approval pauses with policy, message and the full code; approved it is made, denied the task
/// is cancelled.
#[test]
fn a_tool_that_needs_approval_waits_for_a_person() {
    let gate = policy("crm", json!({"type": "tool_approval", "tools": ["delegate_to_crm_agent"], "message": "Sure?"}));
    let begin = || {
        let mut rig = Rig::start(with_policies(vec![gate.clone()]), supervisor(), "go");
        rig.answer("supervisor", delegate("crm_agent", "drop table"));
        assert!(rig.calls.is_empty(), "it waits");
        let needed = rig.it.human_needed().remove(0);
        assert_eq!(needed.kind, HumanKind::ToolApproval { policy: "crm".to_owned() });
        assert_eq!(needed.message, "Sure?");
        assert_eq!(needed.about, r#"delegate_to_crm_agent({"task": "drop table"})"#);
        (rig, needed.key)
    };
    let (mut rig, key) = begin();
    rig.with(|it, out| it.human(&key, HumanAnswer { approved: true, feedback: String::new() }, out).unwrap());
    assert_eq!(rig.awaited(), ["crm-agent"]);
    rig.answer("crm-agent", says("dropped")).answer("supervisor", says("done"));
    assert!(rig.outcome().ok);
    let (mut rig, key) = begin();
    rig.with(|it, out| it.human(&key, HumanAnswer { approved: false, feedback: String::new() }, out).unwrap());
    let outcome = rig.outcome();
    assert!(!outcome.ok && outcome.error.as_deref().unwrap().contains("cancelled"));
    assert!(outcome.selected_agents.is_empty() && rig.calls.is_empty());
}

/// CUG-39: the final answer takes the form of the formatter: a template, or one more call.
#[test]
fn an_output_formatter_gives_the_final_answer_its_form() {
    let template = policy("frame", json!({"type": "output_formatter", "template": "## Answer\n{{answer}}"}));
    let mut rig = Rig::start(with_policies(vec![template.clone()]), supervisor(), "go");
    rig.answer("supervisor", says("42"));
    assert_eq!(rig.outcome().result, "## Answer\n42");
    let call = policy("short", json!({"type": "output_formatter", "instructions": "One line."}));
    let mut rig = Rig::start(with_policies(vec![template, call]), supervisor(), "go");
    rig.answer("supervisor", says("42"));
    assert!(rig.it.outcome().is_none());
    assert_eq!(rig.pending("synthesize").prompt, "One line.\n\n## Answer\n42");
    let mut failed = Rig {
        it: rig.it.clone(),
        awaited: rig.awaited.clone(),
        calls: rig.calls.clone(),
        ..Rig::start(of_cuga(), supervisor(), "")
    };
    rig.answer("synthesize", json!("It is 42."));
    assert_eq!(rig.outcome().result, "It is 42.");
    failed.fail("synthesize", "overloaded");
    assert_eq!(failed.outcome().result, "## Answer\n42", "the answer is there, with or without its form");
}

/// CUG-41: a delegation has 300 s.
#[test]
fn a_delegation_has_three_hundred_seconds() {
    let mut rig = Rig::start(of_cuga(), supervisor(), "go");
    rig.answer("supervisor", delegate("mail", "send"));
    rig.after(Duration::from_secs(299));
    assert_eq!(rig.awaited(), ["mail"], "a healthy agent is not cut off after 30 s");
    rig.after(Duration::from_secs(1));
    assert_eq!(rig.tool_messages(), ["Error: Delegation timeout - child took too long"]);
}

/// CUG-41: a first answer that claims a result by a placeholder is asked for once more, and only once; one that asks for
/// something, or comes later, is not.
#[test]
fn a_first_answer_with_unfilled_placeholders_is_asked_for_once_more() {
    let mut rig = Rig::start(of_cuga(), supervisor(), "what is the total?");
    rig.answer("supervisor", says("The total is **{total}**, the owner: {owner}"));
    let told = sent(rig.pending("supervisor"));
    assert_eq!(told.last().and_then(|message| message.tag), Some(Tag::Correction));
    assert!(told.last().unwrap().text().contains("{total}, {owner}"));
    rig.answer("supervisor", says("The total is {total}"));
    assert_eq!(rig.outcome().result, "The total is {total}", "one retry, no more");
    for fine in [
        "The total is 42",
        "The total is {total}; please tell me the account",
        "Which account is {account}?",
        "Use the template {name}",
        "The total is {{total}}",
        "I cannot say: {total}",
        "{total}",
        "The set is {1, 2}",
    ] {
        let mut rig = Rig::start(of_cuga(), supervisor(), "go");
        rig.answer("supervisor", says(fine));
        assert_eq!(rig.outcome().result, fine);
    }
    let mut rig = Rig::start(of_cuga(), supervisor(), "go");
    rig.answer("supervisor", search(0)).answer("search", json!("x"));
    rig.answer("supervisor", says("The total is {total}"));
    assert!(rig.it.outcome().is_some(), "the second answer is no first turn");
}
