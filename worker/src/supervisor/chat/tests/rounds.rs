//! Rounds, broadcast, ends, interrupts and resumption.

use super::*;

/// AGC-01: the names and defaults are AutoGen's.
#[test]
fn the_defaults_are_those_of_autogen() {
    let rules = ChatRules::default();
    let read: ChatRules = serde_json::from_value(json!({})).unwrap();
    assert_eq!(rules, read);
    assert_eq!(rules.max_round, 10);
    assert_eq!(rules.speaker_selection_method, SpeakerMethod::Auto);
    assert_eq!(rules.allow_repeat_speaker, None);
    assert!(rules.may_repeat("anybody"), "none means everybody");
    assert!(rules.func_call_filter);
    assert_eq!(rules.admin_name, "Admin");
    assert!(!rules.send_introductions);
    assert_eq!(rules.max_retries_for_selecting_speaker, 2);
    assert!(serde_json::from_value::<ChatRules>(json!({ "max_rounds": 3 })).is_err(), "unknown names are refused");
    // A chat starts without messages of its own: the opening is the first one.
    let world = world(round_robin(), &["alice", "bob"], "user", "go");
    assert_eq!(world.said(), [("user", "go")]);
}

/// AGC-02: rounds count the opening; 10 rounds are 10 messages and 9 selections, and the end is no error.
#[test]
fn ten_rounds_are_ten_messages_with_the_opening() {
    let mut world = world(method("auto"), &["alice", "bob", "carol"], "user", "go");
    let outcome = world.run(|call| match call.purpose {
        Purpose::Decide => json!("bob"),
        _ => json!("hm"),
    });
    assert_eq!(outcome.messages.len(), 10);
    assert_eq!(world.selections().len(), 9);
    assert_eq!(world.speakers().len(), 9);
    assert_eq!((outcome.ok, outcome.stop, outcome.error), (true, Stop::MaxRounds, None));
    assert_eq!(outcome.last_speaker.as_deref(), Some("bob"));
}

/// AGC-02: the bound is met at every number of rounds, from one (the opening only) on.
#[test]
fn every_number_of_rounds_is_that_number_of_messages() {
    for max_round in 1..=12 {
        let mut world = world(ChatRules { max_round, ..round_robin() }, &["alice", "bob"], "user", "go");
        let outcome = world.run(says_name);
        assert_eq!(outcome.messages.len(), max_round as usize);
        assert_eq!(world.speakers().len(), max_round as usize - 1);
        assert!(outcome.ok);
    }
    let none = ChatRules { max_round: 0, ..round_robin() };
    assert_eq!(refused(none, agents(&["a", "b"])), "The maximum number of rounds must be greater than 0.");
}

#[test]
fn rounds_are_counted_as_the_rules_say() {
    for (count, messages) in [(RoundCount::MessagesWithOpening, 3), (RoundCount::Turns, 4), (RoundCount::Messages, 4)] {
        let mut world = world(ChatRules { max_round: 3, count, ..round_robin() }, &["alice", "bob"], "user", "go");
        assert_eq!(world.run(says_name).messages.len(), messages, "{count:?}");
    }
}

/// AGC-03: a message goes to all agents but its speaker, and a speaker is shown all that was said.
#[test]
fn a_message_is_broadcast_to_everybody_but_its_speaker() {
    let mut world = world(ChatRules { max_round: 4, ..round_robin() }, &["alice", "bob", "carol"], "alice", "hello");
    assert_eq!(world.speakers(), ["bob"]);
    world.answer(json!("hi alice"));
    assert_eq!(
        world.last_call().context["messages"],
        json!([
            { "role": "user", "name": "alice", "content": "hello" },
            { "role": "user", "name": "bob", "content": "hi alice" },
        ])
    );
    world.answer(json!("hi both"));
    assert_eq!(world.speakers(), ["bob", "carol", "alice"]);
    let heard = &world.last_call().context["messages"];
    assert_eq!(heard[0]["role"], "assistant", "its own words are its own");
    assert_eq!(heard.as_array().unwrap().len(), 3);
}

/// AGC-01: introductions go to the agents, and are no message of the chat.
#[test]
fn introductions_come_first_and_are_not_stored() {
    let rules = ChatRules { send_introductions: true, max_round: 2, ..round_robin() };
    let mut world = world(rules, &["alice", "bob"], "user", "go");
    let heard = world.last_call().context["messages"].clone();
    assert_eq!(heard[0]["name"], "chat_manager");
    let intro = heard[0]["content"].as_str().unwrap();
    assert!(intro.ends_with("alice: does what alice does\nbob: does what bob does"), "{intro}");
    assert_eq!(heard[1]["content"], "go");
    assert_eq!(world.run(says_name).messages.len(), 2);
}

/// AGC-05: fewer than two agents are refused with their number; two are enough.
#[test]
fn a_chat_of_fewer_than_two_is_underpopulated() {
    for names in [&[][..], &["alice"]] {
        assert_eq!(
            refused(round_robin(), agents(names)),
            format!(
                "GroupChat is underpopulated with {} agents. \
                 Please add more agents to the GroupChat or use direct communication instead.",
                names.len()
            )
        );
    }
    assert_eq!(world(round_robin(), &["alice", "bob"], "user", "go").speakers(), ["alice"]);
    assert_eq!(refused(round_robin(), agents(&["a", "a"])), "The participant names must be unique and not empty: 'a'.");
}

/// AGC-11: the message that ends the chat is stored first; nobody is asked after it.
#[test]
fn the_terminating_message_is_the_last_one_and_is_kept() {
    let mut world = world(round_robin(), &["alice", "bob"], "user", "go; say TERMINATE when done");
    world.answer(json!("working"));
    let asked = world.calls.len();
    world.answer(json!("all done. TERMINATE"));
    assert_eq!(world.calls.len(), asked);
    let outcome = world.chat.outcome().unwrap();
    assert_eq!((outcome.ok, outcome.stop), (true, Stop::Termination));
    assert_eq!(world.said().last(), Some(&("bob", "all done. TERMINATE")));
    // Another case is another text, and without a predicate nothing ends but the rounds.
    let mut lower = super::world(ChatRules { max_round: 3, ..round_robin() }, &["alice", "bob"], "user", "go");
    assert_eq!(lower.run(|_| json!("terminate")).stop, Stop::MaxRounds);
    let rules = ChatRules { max_round: 3, termination: None, ..round_robin() };
    assert_eq!(super::world(rules, &["alice", "bob"], "user", "go").run(|_| json!("TERMINATE")).stop, Stop::MaxRounds);
    // The opening itself may be the end.
    let over = super::world(round_robin(), &["alice", "bob"], "user", "TERMINATE");
    assert_eq!((over.chat.outcome().unwrap().stop, over.said().len()), (Stop::Termination, 1));
}

/// AGC-11: no reply ends the chat; an empty text and a function call alone are replies.
#[test]
fn no_reply_ends_the_chat() {
    for none in [json!(null), json!({ "content": null }), json!({ "content": null, "tool_calls": [] })] {
        let mut world = world(round_robin(), &["alice", "bob"], "user", "go");
        world.answer(json!("one")).answer(none);
        let outcome = world.chat.outcome().unwrap();
        assert_eq!((outcome.ok, outcome.stop, outcome.messages.len()), (true, Stop::NoReply, 2));
        assert_eq!(world.calls.len(), 2);
    }
    for some in [json!(""), json!({ "content": "" }), json!({ "content": null, "handoff": "bob" })] {
        let mut world = world(round_robin(), &["alice", "bob"], "user", "go");
        world.answer(some);
        assert!(!world.chat.is_over());
        assert_eq!(world.said().len(), 2);
    }
}

#[test]
fn an_answer_that_is_no_message_is_an_error_that_names_the_field() {
    for (answer, field) in [
        (json!({ "content": 3 }), "content: invalid type"),
        (json!({ "text": "hi" }), "content: missing field"),
        (json!(7), "content: expected a text or an object"),
        (json!({ "tool_calls": [{ "id": "1" }] }), "tool_calls[0]: missing field `function`"),
        (json!({ "function_call": { "arguments": {} } }), "function_call: missing field `name`"),
    ] {
        let mut world = world(round_robin(), &["alice", "bob"], "user", "go");
        world.answer(answer);
        let outcome = world.chat.outcome().unwrap();
        assert_eq!((outcome.ok, outcome.messages.len()), (false, 1));
        let error = outcome.error.unwrap();
        assert!(error.starts_with(&format!("The answer of alice cannot be read: {field}")), "{error}");
    }
}

#[test]
fn a_failed_speaker_stops_is_skipped_or_is_asked_again() {
    let broken = || Err(CallFailure::error("boom"));
    let rules = |on_speaker_error| ChatRules { on_speaker_error, max_round: 4, ..round_robin() };
    let mut stop = world(rules(OnSpeakerError::Stop), &["alice", "bob"], "user", "go");
    stop.answer_with(broken());
    assert_eq!(stop.chat.outcome().unwrap().error.as_deref(), Some("boom"));
    let mut skip = world(rules(OnSpeakerError::Skip), &["alice", "bob"], "user", "go");
    skip.answer_with(broken()).answer_with(broken()).answer_with(broken());
    assert_eq!(skip.speakers(), ["alice", "bob", "alice"]);
    assert_eq!(skip.chat.outcome().unwrap().stop, Stop::MaxRounds, "lost turns are rounds");
    let mut retry = world(rules(OnSpeakerError::Retry), &["alice", "bob"], "user", "go");
    retry.answer_with(broken()).answer_with(broken());
    assert_eq!(retry.speakers(), ["alice", "alice", "alice"]);
    assert_eq!(retry.last_call().attempt, SPEAKER_TRIES);
    retry.answer_with(broken());
    assert_eq!(retry.chat.outcome().unwrap().error.as_deref(), Some("boom"));
}

/// AGC-12: a human interrupt drops what is open and lets the admin speak, if there is one; else it ends the chat.
#[test]
fn an_interrupt_gives_the_word_to_the_admin() {
    let mut chat = world(round_robin(), &["alice", "bob", "Admin"], "user", "go");
    let open = chat.last_call().key.clone();
    chat.chat.interrupt(&mut chat.out).unwrap();
    chat.collect();
    assert_eq!(chat.cancelled, std::slice::from_ref(&open));
    assert_eq!(chat.speakers(), ["alice", "Admin"]);
    // What alice says too late is dropped.
    chat.chat.answered(open.clone().try_into().unwrap(), Ok(json!("late")), &mut chat.out);
    chat.answer(json!("do it so"));
    assert_eq!(chat.said(), [("user", "go"), ("Admin", "do it so")]);
    assert_eq!(chat.speakers(), ["alice", "Admin", "alice"]);

    let mut without = world(round_robin(), &["alice", "bob"], "user", "go");
    without.chat.interrupt(&mut without.out).unwrap();
    without.collect();
    let outcome = without.chat.outcome().unwrap();
    assert_eq!((outcome.ok, outcome.stop, without.cancelled.len()), (false, Stop::Interrupted, 1));
    assert_eq!(without.chat.interrupt(&mut without.out), Err(ChatError::Ended));

    let named = ChatRules { admin_name: "bob".to_owned(), ..method("auto") };
    let mut selecting = world(named, &["alice", "bob"], "user", "go");
    selecting.chat.interrupt(&mut selecting.out).unwrap();
    selecting.collect();
    assert_eq!(selecting.speakers(), ["bob"], "also while a speaker is being selected");
}

/// AGC-12: a human's own words are the admin's message, whether the admin takes part or not; what was open is dropped.
#[test]
fn a_human_may_say_something_at_any_time() {
    for names in [&["alice", "bob", "Admin"][..], &["alice", "bob"]] {
        let mut chat = world(ChatRules { max_round: 4, ..round_robin() }, names, "user", "go");
        let open = chat.last_call().key.clone();
        chat.chat.say("look at page 7", &mut chat.out).unwrap();
        chat.collect();
        assert_eq!(chat.cancelled, std::slice::from_ref(&open));
        chat.chat.answered(open.clone().try_into().unwrap(), Ok(json!("late")), &mut chat.out);
        assert_eq!(chat.said(), [("user", "go"), ("Admin", "look at page 7")]);
        assert_eq!(chat.speakers(), ["alice", "alice"]);
        let outcome = chat.run(says_name);
        assert_eq!(outcome.messages.len(), 4, "the human's words are a round");
        assert_eq!(chat.chat.say("too late", &mut chat.out), Err(ChatError::Ended));
    }
    let mut ends = world(round_robin(), &["alice", "bob"], "user", "go");
    ends.chat.say("TERMINATE", &mut ends.out).unwrap();
    assert_eq!(ends.chat.outcome().unwrap().stop, Stop::Termination);
}

fn history() -> Value {
    json!([
        { "name": "Admin", "role": "user", "content": "plan it" },
        { "name": "alice", "role": "assistant", "content": "planned" },
        { "role": "user", "content": "carry on" },
        { "name": "bob", "content": "done. TERMINATE" },
    ])
}

/// AGC-14: names are checked, history is replayed, the last speaker and message come back, and the termination text can
/// be removed so that the chat goes on.
#[test]
fn a_chat_is_resumed_from_its_messages() {
    for history in [history(), json!(history().to_string())] {
        let mut out = outbox();
        let (chat, resumed) =
            GroupChat::resume(round_robin(), agents(&["alice", "bob"]), &history, Some("TERMINATE"), &mut out).unwrap();
        assert_eq!(resumed.last_speaker, "bob");
        assert_eq!(resumed.last_message.content, "done. ");
        let mut world = World::of(chat, out);
        assert_eq!(
            world.said(),
            [("Admin", "plan it"), ("alice", "planned"), ("chat_manager", "carry on"), ("bob", "done. ")]
        );
        assert_eq!(world.speakers(), ["alice"], "the one after bob");
        assert_eq!(world.last_call().context["messages"].as_array().unwrap().len(), 4);
        // Rounds count from the resumed message.
        let outcome = world.run(says_name);
        assert_eq!(outcome.messages.len(), 10);
        assert_eq!(world.chat.messages().len(), 13);
    }
}

/// AGC-14: without removal the last message ends the chat again; strangers and an empty history are refused.
#[test]
fn a_resumed_chat_is_checked_first() {
    let mut out = outbox();
    let two = || agents(&["alice", "bob"]);
    let (chat, _) = GroupChat::resume(round_robin(), two(), &history(), None, &mut out).unwrap();
    assert_eq!((chat.outcome().unwrap().stop, out.asks().len()), (Stop::Termination, 0));
    let mut out = outbox();
    let stranger = json!([{ "name": "alice", "content": "a" }, { "name": "zoe", "content": "b" }]);
    let refused = GroupChat::resume(round_robin(), two(), &stranger, None, &mut out).unwrap_err();
    assert_eq!(refused.to_string(), "Agent name in message doesn't exist as agent in group chat: zoe");
    for empty in [json!([]), json!("[]")] {
        let refused = GroupChat::resume(round_robin(), two(), &empty, None, &mut out).unwrap_err().to_string();
        assert!(refused.starts_with("Cannot resume group chat as no messages were provided."), "{refused}");
    }
    for broken in [json!("["), json!({ "name": "alice" }), json!([{ "name": 3 }])] {
        assert!(GroupChat::resume(round_robin(), two(), &broken, None, &mut out).is_err());
    }
    assert_eq!((out.asks().len(), out.notes().len()), (0, 0));
}

/// AGC-15: a manager with tools is refused.
#[test]
fn a_manager_with_tools_is_refused() {
    let rules = ChatRules { manager_tools: vec!["search".to_owned()], ..round_robin() };
    assert_eq!(
        refused(rules, agents(&["alice", "bob"])),
        "GroupChatManager is not allowed to make function/tool calls. \
         Please remove the 'functions' or 'tools' config in 'llm_config' you passed in."
    );
}

#[test]
fn a_cancelled_chat_drops_its_ask_and_ends() {
    let mut world = world(round_robin(), &["alice", "bob"], "user", "go");
    let open = world.last_call().key.clone();
    world.chat.cancel("not needed", &mut world.out);
    world.collect();
    assert_eq!(world.cancelled, std::slice::from_ref(&open));
    let outcome = world.chat.outcome().unwrap();
    assert_eq!((outcome.ok, outcome.stop, outcome.reason.as_str()), (false, Stop::Cancelled, "not needed"));
    world.chat.answered(open.clone().try_into().unwrap(), Ok(json!("late")), &mut world.out);
    world.chat.cancel("again", &mut world.out);
    assert_eq!(world.chat.outcome().unwrap(), outcome);
}

#[test]
fn state_survives_a_snapshot_at_every_step() {
    let mut world = world(method("auto"), &["alice", "bob", "carol"], "user", "go");
    while !world.chat.is_over() {
        let stored = serde_json::to_string(&world.chat).unwrap();
        assert_eq!(serde_json::from_str::<GroupChat>(&stored).unwrap(), world.chat);
        let selecting = world.last_call().purpose == Purpose::Decide;
        world.answer(if selecting { json!("carol") } else { json!({ "content": "x" }) });
    }
    assert!(world.chat.outcome().unwrap().ok && !world.chat.is_cut());
}
