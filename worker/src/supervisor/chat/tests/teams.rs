//! The teams of AutoGen's main line: selector, swarm, Magentic-One.

use super::*;

const ABC: [&str; 3] = ["alice", "bob", "carol"];

fn hint(world: &World) -> &str {
    world.last_call().context["hint"].as_str().unwrap()
}

/// AGC-17: three attempts, no repeated speaker by default, and the fallback is the previous speaker, or the first
/// participant when nobody has spoken.
#[test]
fn a_selector_team_has_three_attempts_and_falls_back_to_the_previous_speaker() {
    let mut world = world(ChatRules::selector(), &ABC, "user", "go");
    world.answer(json!("?")).answer(json!("alice and bob"));
    assert!(hint(&world).contains("more than one"));
    world.answer(json!("?"));
    assert_eq!((world.speakers(), world.selections().len()), (vec!["alice"], 3), "the first participant");
    world.answer(json!("hi"));
    assert_eq!(world.last_call().context["candidates"], json!(["bob", "carol"]));
    world.answer(json!("carol")).answer(json!("hello"));
    assert_eq!(world.last_call().context["candidates"], json!(["alice", "bob"]));
    world.answer(json!("?")).answer(json!("?")).answer(json!("?"));
    assert_eq!(world.speakers(), ["alice", "carol", "carol"], "the previous speaker");
    let repeat = ChatRules { allow_repeat_speaker: Some(AllowRepeat::Everybody(true)), ..ChatRules::selector() };
    let mut repeat = super::world(repeat, &ABC, "user", "go");
    repeat.answer(json!("bob")).answer(json!("x")).answer(json!("bob"));
    assert_eq!(repeat.speakers(), ["bob", "bob"]);
}

/// AGC-20: a model that keeps naming the one that may not repeat is told so, and after 3 attempts gets it.
#[test]
fn the_previous_speaker_is_used_after_three_attempts_although_repeats_are_off() {
    let mut world = world(ChatRules::selector(), &ABC, "user", "go");
    world.answer(json!("bob")).answer(json!("x"));
    for attempt in 1..=3 {
        assert_eq!(world.last_call().attempt, attempt);
        assert_eq!(world.last_call().purpose, Purpose::Decide);
        if attempt > 1 {
            assert!(hint(&world).starts_with("Repeated speaker is not allowed"), "{}", hint(&world));
        }
        world.answer(json!("bob"));
    }
    assert_eq!(world.speakers(), ["bob", "bob"]);
    // Two attempts and a good third one: the good one counts.
    let mut other = super::world(ChatRules::selector(), &ABC, "user", "go");
    other.answer(json!("bob")).answer(json!("x"));
    other.answer(json!("bob")).answer(json!("bob")).answer(json!("alice"));
    assert_eq!(other.speakers(), ["bob", "alice"]);
}

/// AGC-17: a candidate function names who is chosen from: not nobody, and only participants.
#[test]
fn a_candidate_function_must_name_participants() {
    let rules = || ChatRules { candidate_function: true, ..ChatRules::selector() };
    for (answer, error) in [
        (json!([]), "Candidate function must return a non-empty list of participant names."),
        (json!(null), "Candidate function must return a non-empty list of participant names."),
        (
            json!(["bob", "zoe"]),
            "Candidate function returned invalid participant names: ['bob', 'zoe']. \
             Expected one of: ['alice', 'bob', 'carol'].",
        ),
    ] {
        let mut world = world(rules(), &ABC, "user", "go");
        assert_eq!(world.last_call().context["method"], "candidates");
        world.answer(answer);
        let outcome = world.chat.outcome().unwrap();
        assert_eq!((outcome.ok, outcome.error.as_deref()), (false, Some(error)));
    }
    let mut two = world(rules(), &ABC, "user", "go");
    two.answer(json!(["carol", "bob"]));
    assert_eq!(two.last_call().context["candidates"], json!(["carol", "bob"]));
    two.answer(json!("alice"));
    assert!(two.speakers().is_empty(), "alice is no candidate");
    two.answer(json!("bob"));
    assert_eq!(two.speakers(), ["bob"]);
    let mut one = world(rules(), &ABC, "user", "go");
    one.answer(json!(["carol"]));
    assert_eq!((one.speakers(), one.selections().len()), (vec!["carol"], 1), "one candidate is not asked about");
}

/// AGC-17: a selector function goes before the model; naming nobody leaves it to the model, a stranger is an error.
#[test]
fn a_selector_function_goes_before_the_model() {
    let rules = || ChatRules { selector_function: true, ..ChatRules::selector() };
    let mut chat = world(rules(), &ABC, "user", "go");
    chat.answer(json!("carol")).answer(json!("x"));
    assert_eq!(chat.speakers(), ["carol"]);
    chat.answer(json!(null));
    assert_eq!(chat.last_call().context["method"], "auto");
    let mut stranger = world(rules(), &ABC, "user", "go");
    stranger.answer(json!("zoe"));
    assert_eq!(
        stranger.chat.outcome().unwrap().error.as_deref(),
        Some("Selector function returned an invalid speaker name: zoe. Expected one of: ['alice', 'bob', 'carol'].")
    );
}

/// AGC-17: turns are counted without the task; their end has its text and is no error.
#[test]
fn the_maximum_number_of_turns_ends_a_team() {
    for turns in 1..=5 {
        let mut world = world(ChatRules { max_round: turns, ..ChatRules::selector() }, &["alice", "bob"], "user", "go");
        let outcome = world.run(|call| match call.purpose {
            Purpose::Decide => json!("alice"),
            _ => json!("x"),
        });
        assert_eq!(outcome.messages.len(), 1 + turns as usize);
        assert_eq!((outcome.ok, outcome.reason), (true, format!("Maximum number of turns {turns} reached.")));
    }
    let few = refused(ChatRules::selector(), agents(&["alice"]));
    assert_eq!(few, "A team of this kind needs at least 2 participants.");
}

/// AGC-17: a participant's error stops the team with it.
#[test]
fn an_error_of_a_participant_stops_the_team() {
    let mut world = world(ChatRules::selector(), &ABC, "user", "go");
    world.answer(json!("bob")).answer_with(Err(CallFailure::error("division by zero")));
    let outcome = world.chat.outcome().unwrap();
    assert_eq!((outcome.ok, outcome.stop), (false, Stop::Error));
    assert_eq!(outcome.reason, "An error occurred in the group chat.");
    assert_eq!(outcome.error.as_deref(), Some("division by zero"));
    assert_eq!(outcome.messages.len(), 1);
}

/// AGC-17: participants see nothing of a pause: no ask, no note, and the same conversation afterwards.
fn swarm(max_round: u32) -> ChatRules {
    ChatRules { max_round, ..ChatRules::swarm() }
}

/// AGC-21: a run stops at max_turns; later runs, with a task or without, go on from the current speaker.
#[test]
fn a_swarm_goes_on_from_the_current_speaker() {
    let mut world = world(swarm(1), &["second", "first", "third"], "user", "task");
    let contents = |world: &World| -> Vec<String> {
        world.chat.outcome().unwrap().messages.into_iter().map(|message| message.content).collect()
    };
    world.answer(json!({ "handoff": "third" }));
    assert_eq!(contents(&world), ["task", "Transferred to third."]);
    assert_eq!(world.chat.outcome().unwrap().reason, "Maximum number of turns 1 reached.");
    world.chat.go_on_with(vec![ChatMessage::new("user", "new task")], &mut world.out).unwrap();
    world.collect();
    world.answer(json!({ "handoff": { "target": "first" } }));
    assert_eq!(contents(&world), ["new task", "Transferred to first."]);
    world.chat.go_on_with(Vec::new(), &mut world.out).unwrap();
    world.collect();
    assert_eq!(world.chat.go_on_with(Vec::new(), &mut world.out), Err(ChatError::NotEnded));
    world.answer(json!({ "handoff": "second", "content": "yours" }));
    assert_eq!(contents(&world), ["yours"]);
    assert_eq!(world.speakers(), ["second", "third", "first"]);
    assert_eq!(world.said().len(), 5, "the history is kept");
}

/// AGC-21: a hand-over to the outside ends the run; a later run goes on with the one who made it.
#[test]
fn a_handoff_to_the_outside_ends_the_run() {
    let rules = ChatRules { termination_handoff: Some("user".to_owned()), ..swarm(10) };
    let mut world = world(rules, &ABC, "user", "task");
    world.answer(json!({ "handoff": "bob" })).answer(json!({ "handoff": "user", "content": "which one?" }));
    let outcome = world.chat.outcome().unwrap();
    assert_eq!((outcome.ok, outcome.stop, outcome.messages.len()), (true, Stop::Handoff, 3));
    world.chat.go_on_with(Vec::new(), &mut world.out).unwrap();
    world.collect();
    assert_eq!(world.speakers(), ["alice", "bob", "bob"]);
    // Without a hand-over the speaker goes on; one to a stranger is an error.
    world.answer(json!("thinking"));
    assert_eq!(world.speakers(), ["alice", "bob", "bob", "bob"]);
    world.answer(json!({ "handoff": "zoe" }));
    assert_eq!(
        world.chat.outcome().unwrap().error.as_deref(),
        Some("The selected speaker in the handoff message is not a participant.")
    );
}

/// AGC-21: the hand-over carries the other tool calls of the same response, with their results, to the next speaker.
#[test]
fn a_handoff_carries_the_other_tool_calls() {
    let mut world = world(swarm(10), &["agent1", "agent2"], "user", "task");
    world.answer(json!({
        "content": null,
        "tool_calls": [
            { "id": "1", "name": "tool1", "arguments": {}, "result": "one" },
            { "id": "2", "type": "function", "function": { "name": "tool2", "arguments": "{}" }, "result": "two" },
            { "id": "3", "name": "handoff_to_agent2", "arguments": {} },
        ],
    }));
    assert_eq!(world.speakers(), ["agent1", "agent2"]);
    let message = &world.chat.messages()[1];
    assert_eq!((message.handoff.as_deref(), message.content.as_str()), (Some("agent2"), "Transferred to agent2."));
    assert!(message.tool_calls.is_empty());
    let context = &world.last_call().context["messages"][1]["context"];
    let seen: Vec<(&Value, &Value)> =
        context.as_array().unwrap().iter().map(|call| (&call["name"], &call["result"])).collect();
    assert_eq!(seen, [(&json!("tool1"), &json!("one")), (&json!("tool2"), &json!("two"))]);
    assert_eq!(world.answer(json!("Hello")).answer(json!("TERMINATE")).chat.outcome().unwrap().stop, Stop::Termination);
}

fn ledger(satisfied: bool, in_loop: bool, progress: bool, next: &str) -> Value {
    let entry = |answer: Value| json!({ "reason": "because", "answer": answer });
    json!({
        "is_request_satisfied": entry(json!(satisfied)),
        "is_in_loop": entry(json!(in_loop)),
        "is_progress_being_made": entry(json!(progress)),
        "next_speaker": entry(json!(next)),
        "instruction_or_question": entry(json!(format!("{next}, go on"))),
    })
}

fn step(world: &World) -> &str {
    world.last_call().context["step"].as_str().unwrap_or("speak")
}

fn magentic() -> World {
    let mut world = world(ChatRules::magentic(), &ABC, "user", "find the answer");
    assert_eq!((step(&world), world.last_call().purpose), ("facts", Purpose::Plan));
    world.answer(json!("FACTS"));
    assert_eq!((step(&world), world.last_call().purpose), ("plan", Purpose::Plan));
    assert!(world.last_call().prompt.contains("FACTS"));
    world.answer(json!({ "content": "PLAN" }));
    assert_eq!((step(&world), world.last_call().purpose), ("progress_ledger", Purpose::Decide));
    world
}

/// AGC-18: facts, plan, ledger broadcast, progress ledger, instruction, speaker, final answer.
#[test]
fn magentic_one_goes_from_the_ledgers_to_the_final_answer() {
    let mut world = magentic();
    let (from, told) = world.said()[1];
    assert_eq!(from, "MagenticOneOrchestrator");
    for part in ["find the answer", "FACTS", "PLAN", "bob: does what bob does"] {
        assert!(told.contains(part), "{part}");
    }
    world.answer(json!(ledger(false, false, true, "bob").to_string()));
    assert_eq!(world.speakers(), ["bob"]);
    assert_eq!(world.said()[2], ("MagenticOneOrchestrator", "bob, go on"));
    let heard = world.last_call().context["messages"].as_array().unwrap().len();
    assert_eq!(heard, 2, "the ledger and the instruction; the task is in the ledger");
    world.answer(json!("it is 42"));
    // Answers without reasons are read as well.
    world.answer(json!({
        "is_request_satisfied": true, "is_in_loop": false, "is_progress_being_made": true,
        "next_speaker": "nobody", "instruction": "none",
    }));
    assert_eq!((step(&world), world.last_call().purpose), ("final_answer", Purpose::Synthesize));
    world.answer(json!("42"));
    let outcome = world.chat.outcome().unwrap();
    assert_eq!((outcome.ok, outcome.stop), (true, Stop::Answered));
    assert_eq!(world.said().last(), Some(&("MagenticOneOrchestrator", "42")));
    assert_eq!(outcome.messages.len(), 5, "task, ledger, instruction, reply, answer");
}

/// AGC-18: a loop or no progress is one stall, progress takes one back (never below none), three replan.
#[test]
fn three_stalls_make_new_facts_and_a_new_plan() {
    let mut world = magentic();
    let rounds = [
        (ledger(false, false, true, "bob"), 0),
        (ledger(false, true, true, "bob"), 1),
        (ledger(false, false, true, "bob"), 0),
        (ledger(false, true, false, "bob"), 1),
        (ledger(false, false, false, "bob"), 2),
        (ledger(false, false, true, "bob"), 1),
        (ledger(false, true, true, "bob"), 2),
    ];
    for (answer, stalls) in rounds {
        assert_eq!(step(&world), "progress_ledger");
        world.answer(answer);
        assert_eq!(world.chat.view(false).stalls, stalls);
        assert_eq!(step(&world), "speak");
        world.answer(json!("hm"));
    }
    let before = world.said().len();
    world.answer(ledger(false, false, false, "bob"));
    assert_eq!(step(&world), "facts_update", "the third stall");
    assert_eq!(world.said().len(), before, "no instruction is given");
    world.answer(json!("NEW FACTS"));
    assert_eq!(step(&world), "plan_update");
    world.answer(json!("NEW PLAN"));
    assert_eq!(step(&world), "progress_ledger");
    let view = world.chat.view(false);
    assert_eq!((view.facts.as_str(), view.plan.as_str(), view.stalls), ("NEW FACTS", "NEW PLAN", 0));
    let heard = world.last_call().context["messages"].as_array().unwrap();
    assert_eq!(heard.len(), 1, "agents start afresh with the new ledger");
    assert!(heard[0]["content"].as_str().unwrap().contains("NEW PLAN"));
    assert_eq!(world.said().len(), before + 1, "the record keeps everything");
}

/// AGC-18: twenty rounds, then the final answer is given all the same.
#[test]
fn the_final_answer_is_given_after_twenty_rounds() {
    let mut world = magentic();
    let outcome = world.run(|call| match call.context["step"].as_str() {
        Some("progress_ledger") => ledger(false, false, true, "carol"),
        Some("final_answer") => json!("as far as we came"),
        _ => json!("still at it"),
    });
    let ledgers = world.calls.iter().filter(|call| call.context["step"] == "progress_ledger").count();
    assert_eq!((ledgers, world.speakers().len()), (20, 20));
    assert_eq!((outcome.ok, outcome.stop, outcome.reason.as_str()), (false, Stop::Answered, "Max rounds reached."));
    assert_eq!(world.said().last().unwrap().1, "as far as we came");
}

/// AGC-18: a progress ledger that cannot be read is asked for 10 times, then the chat fails.
#[test]
fn a_progress_ledger_is_asked_for_ten_times() {
    let mut missing = ledger(false, false, true, "bob");
    missing.as_object_mut().unwrap().remove("is_in_loop");
    let wrong = [
        json!("no JSON"),
        json!("{\"is_request_satisfied\": "),
        missing,
        ledger(false, false, true, "zoe"),
        json!({ "is_request_satisfied": "no" }),
        json!(format!("{} and more", ledger(false, false, true, "bob"))),
    ];
    let mut world = magentic();
    for tries in 1..=10 {
        assert_eq!((step(&world), world.last_call().attempt), ("progress_ledger", tries));
        world.answer(wrong[tries as usize % wrong.len()].clone());
    }
    let outcome = world.chat.outcome().unwrap();
    let error = "Failed to parse ledger information after multiple retries.";
    assert_eq!((outcome.ok, outcome.error.as_deref()), (false, Some(error)));
    assert!(world.speakers().is_empty());
    // The tenth try still counts, and tries are no rounds.
    let mut tenth = magentic();
    (1..10).for_each(|_| _ = tenth.answer(json!("no JSON")));
    tenth.answer(ledger(false, false, true, "alice"));
    assert_eq!((tenth.speakers(), tenth.chat.view(false).round), (vec!["alice"], 1));
}

#[test]
fn words_of_a_human_before_the_plan_are_part_of_the_task() {
    let mut world = world(ChatRules::magentic(), &ABC, "user", "find it");
    world.answer(json!("FACTS"));
    world.chat.say("by noon", &mut world.out).unwrap();
    world.collect();
    assert_eq!((step(&world), &world.last_call().context["task"]), ("facts", &json!("find it by noon")));
    world.answer(json!("F")).answer(json!("P")).answer(ledger(false, false, true, "bob"));
    world.chat.say("faster", &mut world.out).unwrap();
    world.collect();
    assert_eq!(step(&world), "progress_ledger", "later words are for the next round");
    assert_eq!(world.last_call().context["task"], "find it by noon");
    // A later run with a task plans anew, one without goes on.
    world.answer(ledger(true, false, true, "bob")).answer(json!("42"));
    world.chat.go_on_with(vec![ChatMessage::new("user", "and then?")], &mut world.out).unwrap();
    world.collect();
    assert_eq!((step(&world), &world.last_call().context["task"]), ("facts", &json!("and then?")));
}

#[test]
fn a_team_of_one_needs_no_next_speaker() {
    let mut world = world(ChatRules::magentic(), &["solo"], "user", "go");
    world.answer(json!("F")).answer(json!("P"));
    let mut answer = ledger(false, false, true, "?");
    answer.as_object_mut().unwrap().remove("next_speaker");
    world.answer(answer);
    assert_eq!(world.speakers(), ["solo"]);
}
