//! Limits on calls, the circuit breaker and the repetition guard.

use super::*;

fn with_grep() -> Vec<AgentDef> {
    vec![agent("assistant").tool(ToolDef::new("grep")).tool(ToolDef::new("ls"))]
}

fn grep(pattern: usize) -> Value {
    calls([("grep", json!({"pattern": pattern}))])
}

fn last(rig: &Rig) -> String {
    rig.tool_messages().pop().unwrap()
}

/// SUP-27: after three failures of a tool in a row the next call of it is refused, another tool's is not; a success begins
/// anew; the turn's end resets it.
#[test]
fn a_tool_that_failed_three_times_in_a_row_is_refused_until_the_turn_ends() {
    let mut rig = Rig::start(of_supyagent(), with_grep(), "go");
    let fail = |rig: &mut Rig, i: usize| {
        rig.answer("assistant", grep(i)).fail("grep", "no such file");
        assert_eq!(last(rig), r#"{"ok": false, "error": "no such file"}"#);
    };
    fail(&mut rig, 0);
    fail(&mut rig, 1);
    rig.answer("assistant", grep(2)).answer("grep", json!("found"));
    for i in 3..6 {
        fail(&mut rig, i);
    }
    rig.answer("assistant", grep(6));
    let told: Value = serde_json::from_str(&last(&rig)).unwrap();
    assert_eq!(told["error_type"], "circuit_breaker");
    assert_eq!(told["error"], "Tool 'grep' has failed 3 times consecutively. Please try a different approach or tool.");
    assert_eq!(rig.awaited(), ["assistant"], "it was not carried out");
    rig.answer("assistant", calls([("ls", json!({}))])).answer("ls", json!("a b"));
    assert_eq!(last(&rig), "a b");
    rig.answer("assistant", says("I give up"));
    rig.with(|it, out| assert!(it.say("try again", out)));
    rig.answer("assistant", grep(7)).answer("grep", json!("found"));
    assert_eq!(last(&rig), "found", "a new turn begins with nothing counted");
}

/// SUP-27: the fourth call of a turn with the same tool and arguments is refused, three are not; other arguments are
/// another call, and a new turn begins with nothing counted.
#[test]
fn the_same_call_four_times_is_a_repetition() {
    let mut rig = Rig::start(of_supyagent(), with_grep(), "go");
    let both = |a: Value, b: Value| json!({"tool_calls": [{"name": "grep", "args": {"a": a, "b": b}}]});
    let swapped = json!({"tool_calls": [{"name": "grep", "args": "{\"b\": 2, \"a\": 1}"}]});
    for answer in [both(json!(1), json!(2)), swapped, both(json!(1), json!(2))] {
        rig.answer("assistant", answer).answer("grep", json!("same"));
        assert_eq!(last(&rig), "same");
    }
    rig.answer("assistant", both(json!(1), json!(3))).answer("grep", json!("other"));
    rig.answer("assistant", both(json!(1), json!(2)));
    let told: Value = serde_json::from_str(&last(&rig)).unwrap();
    assert_eq!(told["error_type"], "repetition_detected");
    assert_eq!(told["ok"], false);
    assert_eq!(rig.awaited(), ["assistant"], "it was not carried out");
    rig.answer("assistant", says("enough"));
    rig.with(|it, out| assert!(it.say("again", out)));
    rig.answer("assistant", both(json!(1), json!(2)));
    assert_eq!(rig.awaited(), ["grep"]);
}

/// SUP-31: the call beyond the limit of a turn is not carried out and is told so, and the turn ends with the text so far.
#[test]
fn the_call_beyond_the_limit_of_a_turn_ends_it_with_the_text_so_far() {
    let mut agents = with_grep();
    agents[0].limits.per_turn = Some(2);
    let mut rig = Rig::start(of_supyagent(), agents, "go");
    let thinking = json!({"content": "I look first.", "tool_calls": [{"name": "grep", "args": {"pattern": 0}}]});
    rig.answer("assistant", thinking).answer("grep", json!("x"));
    rig.answer("assistant", calls([("grep", json!({"pattern": 1})), ("ls", json!({}))]));
    assert_eq!(rig.awaited(), ["grep"], "the second call is within the limit, the third is not");
    rig.answer("grep", json!("y"));
    let outcome = rig.outcome();
    assert!(outcome.ok);
    assert_eq!(outcome.result, "I look first.");
    let told = tool_texts(&outcome.messages);
    assert_eq!(told[..2], ["x", "y"]);
    assert_eq!(told[2], r#"{"ok": false, "error": "Maximum tool calls per turn (2) reached.", "error_type": "limit"}"#);
    rig.with(|it, out| assert!(it.say("go on", out)));
    rig.answer("assistant", grep(1));
    assert_eq!(rig.awaited(), ["grep"], "the limit is one of the turn");
}

/// SUP-31: the total holds over turns.
#[test]
fn the_limit_on_all_calls_holds_over_turns() {
    let mut agents = with_grep();
    agents[0].limits.total = Some(3);
    let mut rig = Rig::start(of_supyagent(), agents, "go");
    for i in 0..2 {
        rig.answer("assistant", grep(i)).answer("grep", json!("x"));
    }
    rig.answer("assistant", says("two"));
    rig.with(|it, out| assert!(it.say("go on", out)));
    rig.answer("assistant", grep(3)).answer("grep", json!("third"));
    assert_eq!(last(&rig), "third");
    rig.answer("assistant", json!({"content": "a fourth", "tool_calls": [{"name": "ls"}]}));
    let outcome = rig.outcome();
    assert_eq!(outcome.result, "a fourth");
    assert!(last(&rig).contains("Maximum total tool calls (3) reached."));
    assert!(rig.calls.is_empty());
}

#[test]
fn there_is_always_a_bound() {
    let mut rules = of_supyagent();
    (rules.repetitions, rules.limit.max) = (None, 7);
    let mut rig = Rig::start(rules, with_grep(), "go");
    rig.play(|call| Ok(if who(call) == "grep" { json!("x") } else { grep(1) }));
    assert_eq!(rig.asked.iter().filter(|call| who(call) == "assistant").count(), 7);
    assert!(rig.outcome().ok);
}

/// What holds for agents alone holds here too: arguments are judged by the schema of their tool. How many calls an answer may have
/// says the spec alone.
#[test]
fn calls_that_do_not_fit_are_not_made_and_many_that_do_are() {
    let schema = json!({ "type": "object", "properties": { "at": { "type": "integer" } } });
    let look = ToolDef { parameters: schema, ..ToolDef::new("look") };
    let mut rig = Rig::start(of_supyagent(), vec![agent("assistant").tool(look)], "go");
    rig.answer(
        "assistant",
        calls([("look", json!({ "at": "x" })), ("look", json!([1])), ("look", json!({ "at": 1 }))]),
    );
    assert_eq!(rig.awaited(), ["look"]);
    rig.answer("look", json!("a tree"));
    let told = rig.tool_messages();
    assert_eq!(
        told,
        [
            r#"{"ok": false, "error": "Invalid tool arguments: /at: expected integer, found string"}"#,
            r#"{"ok": false, "error": "Invalid JSON in tool arguments"}"#,
            "a tree"
        ]
    );
    let many: Vec<Value> = (0..70).map(|at| json!({ "name": "look", "args": { "at": at + 10 } })).collect();
    rig.answer("assistant", json!({ "tool_calls": many }));
    rig.play(|call| Ok(if who(call) == "look" { json!("x") } else { says("done") }));
    // Only the limits of the spec bound how many.
    assert_eq!(rig.asked.iter().filter(|call| who(call) == "look").count(), 1 + 70);
}

/// A person is asked about calls that can be made, and about no others.
#[test]
fn nobody_is_asked_about_a_call_that_cannot_be_made() {
    let tools = vec!["look".to_owned(), "lost".to_owned()];
    let gate = StandingPolicy::new("gate", PolicyRule::ToolApproval { tools, message: "?".into() });
    let rules = AgentRules { policies: vec![gate], ..of_supyagent() };
    let look = ToolDef { parameters: json!({ "required": ["at"] }), ..ToolDef::new("look") };
    let mut rig = Rig::start(rules, vec![agent("assistant").tool(look)], "go");
    rig.answer("assistant", calls([("lost", json!({})), ("look", json!({})), ("look", json!({ "at": 1 }))]));
    assert_eq!(rig.it.human_needed().len(), 1, "{:?}", rig.it.human_needed());
    let key = rig.it.human_needed()[0].key.clone();
    rig.with(|it, out| it.human(&key, HumanAnswer { approved: true, feedback: String::new() }, out).unwrap());
    assert_eq!(rig.awaited(), ["look"]);
}
