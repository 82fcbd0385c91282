//! How the next speaker is found.

use std::collections::BTreeMap;

use super::*;

const ABC: [&str; 3] = ["alice", "bob", "carol"];

fn with_functions(functions: &[(&str, &[&str])]) -> Vec<ChatAgent> {
    let agent = |(name, functions): &(&str, &[&str])| ChatAgent {
        name: (*name).to_owned(),
        functions: functions.iter().map(|f| (*f).to_owned()).collect(),
        ..ChatAgent::default()
    };
    functions.iter().map(agent).collect()
}

fn transitions(kind: TransitionsType, edges: &[(&str, &[&str])]) -> ChatRules {
    let edges = edges.iter().map(|(from, to)| ((*from).to_owned(), to.iter().map(|name| (*name).to_owned()).collect()));
    ChatRules {
        allowed_or_disallowed_speaker_transitions: Some(edges.collect::<BTreeMap<_, _>>()),
        speaker_transitions_type: Some(kind),
        ..round_robin()
    }
}

/// AGC-04: the four methods are known in any case; anything else is refused by name.
#[test]
fn a_method_is_known_in_any_case_and_others_are_refused() {
    for known in ["auto", "AUTO", "Manual", "RANDOM", "Round_Robin", "round_robin", "function"] {
        assert!(World::start(method(known), agents(&ABC), "user", "go").is_ok(), "{known}");
    }
    for unknown in ["", "robin", "automatic", "round robin"] {
        assert_eq!(
            SpeakerMethod::read(unknown).unwrap_err().to_string(),
            format!(
                "GroupChat speaker_selection_method is set to '{unknown}'. \
                 It should be one of ['auto', 'manual', 'random', 'round_robin'] (case insensitive)."
            )
        );
    }
}

/// AGC-04: round robin goes around the list, from the one after the last speaker.
#[test]
fn round_robin_goes_around_the_list() {
    let mut chat = world(round_robin(), &ABC, "bob", "go");
    chat.run(says_name);
    assert_eq!(chat.speakers(), ["carol", "alice", "bob", "carol", "alice", "bob", "carol", "alice", "bob"]);
    assert_eq!(world(round_robin(), &ABC, "user", "go").speakers(), ["alice"], "a stranger is before the first");
    assert!(chat.selections().is_empty());
}

/// AGC-04: a function returns an agent, a method or none (which ends the chat without an error).
#[test]
fn a_function_returns_an_agent_a_method_or_none() {
    let mut world = world(method("function"), &ABC, "user", "go");
    assert_eq!(world.last_call().context["method"], "function");
    assert_eq!(world.last_call().context["candidates"], json!(ABC));
    world.answer(json!({ "name": "carol" })).answer(json!("one"));
    world.answer(json!("bob")).answer(json!("two"));
    world.answer(json!("ROUND_ROBIN"));
    assert_eq!(world.speakers(), ["carol", "bob", "carol"]);
    world.answer(json!("three")).answer(json!("auto"));
    assert_eq!(world.last_call().context["method"], "auto");
    world.answer(json!("alice")).answer(json!("four")).answer(json!(null));
    let outcome = world.chat.outcome().unwrap();
    assert_eq!((outcome.ok, outcome.stop, outcome.error), (true, Stop::NoEligibleSpeaker, None));
    assert_eq!(outcome.messages.len(), 5);
}

/// AGC-04: what a function returns else is an error that says so.
#[test]
fn a_function_that_returns_nonsense_ends_the_chat_with_an_error() {
    for (answer, error) in [
        (json!({ "name": "zoe" }), "Custom speaker selection function returned an agent zoe not in the group chat."),
        (json!("zoe"), "GroupChat speaker_selection_method is set to 'zoe'. It should be one of ['auto', "),
        (json!(3), "The answer of the speaker selection function cannot be read: name: expected a text, found 3"),
    ] {
        let mut world = world(method("function"), &ABC, "user", "go");
        world.answer(answer);
        let outcome = world.chat.outcome().unwrap();
        assert!(!outcome.ok);
        assert!(outcome.error.as_deref().unwrap().starts_with(error), "{:?}", outcome.error);
    }
}

/// AGC-06: one mentioned name wins at once, whatever stands around it.
#[test]
fn exactly_one_mentioned_name_wins() {
    let mut world = world(method("auto"), &ABC, "user", "go");
    let call = world.last_call();
    assert_eq!((call.purpose, call.attempt), (Purpose::Decide, 1));
    assert_eq!((&call.context["attempts"], &call.context["hint"]), (&json!(3), &json!(null)));
    assert!(call.prompt.contains("['alice', 'bob', 'carol']"), "{}", call.prompt);
    assert!(call.prompt.contains("user: go"), "{}", call.prompt);
    world.answer(json!("I think **carol**, and carol alone."));
    assert_eq!(world.speakers(), ["carol"]);
}

/// AGC-06: several names and none get different hints; after 1 + 2 attempts the next agent in list order speaks.
#[test]
fn attempts_are_used_up_and_the_next_in_the_list_speaks() {
    let mut chat = world(method("auto"), &ABC, "bob", "go");
    chat.answer(json!("alice or carol"));
    let several = chat.last_call().context["hint"].as_str().unwrap().to_owned();
    assert!(several.contains("more than one"), "{several}");
    assert!(chat.last_call().prompt.ends_with(&several));
    chat.answer(json!("the best one"));
    let none = chat.last_call().context["hint"].as_str().unwrap().to_owned();
    assert!(none.contains("no speaker") && none.contains("['alice', 'bob', 'carol']"), "{none}");
    assert_ne!(several, none);
    assert_eq!(chat.selections().iter().map(|call| call.attempt).collect::<Vec<_>>(), [1, 2, 3]);
    assert!(chat.speakers().is_empty());
    chat.answer(json!(""));
    assert_eq!((chat.speakers(), chat.selections().len()), (vec!["carol"], 3), "carol comes after bob");
    // The last attempt still counts, and no retries mean one attempt.
    let mut last = world(method("auto"), &ABC, "bob", "go");
    last.answer(json!("?")).answer(json!("?")).answer(json!({ "name": "alice" }));
    assert_eq!(last.speakers(), ["alice"]);
    let once = ChatRules { max_retries_for_selecting_speaker: 0, ..method("auto") };
    let mut once = world(once, &ABC, "carol", "go");
    once.answer(json!("?"));
    assert_eq!((once.speakers(), once.selections().len()), (vec!["alice"], 1), "around the end of the list");
}

/// AGC-07: names are matched in their own case, as whole words, and an underscore is a space is an escaped underscore.
#[test]
fn names_are_matched_as_whole_words() {
    for (text, found) in [
        ("alice", &["alice"][..]),
        ("Alice", &[]),
        ("ALICE", &[]),
        ("alice.", &["alice"]),
        ("(alice)", &["alice"]),
        ("alice's turn", &["alice"]),
        ("malice", &[]),
        ("alice2", &[]),
        ("alice_", &[]),
        ("éalice", &[]),
        ("alice, then bob", &["alice", "bob"]),
        ("bob bob bob", &["bob"]),
        ("Story_writer", &["Story_writer"]),
        ("Story writer", &["Story_writer"]),
        (r"Story\_writer", &["Story_writer"]),
        ("story_writer", &[]),
        ("Story-writer", &[]),
        ("Story  writer", &[]),
        ("Storywriter", &[]),
        ("Story_writers", &[]),
        ("next: Story\nwriter", &[]),
        ("**Story writer**", &["Story_writer"]),
        ("", &[]),
    ] {
        assert_eq!(mentioned(text, ["alice", "bob", "Story_writer"]), found, "{text:?}");
    }
    assert_eq!(mentioned("a+b", ["a+b", "a"]), ["a+b", "a"], "names are texts, not patterns");
    assert!(mentioned("anything", [""]).is_empty());
}

/// AGC-08: one eligible agent speaks without anybody being asked, by every method.
#[test]
fn a_single_candidate_is_not_asked_about() {
    for name in ["auto", "manual", "random", "round_robin"] {
        let rules = ChatRules { allow_repeat_speaker: Some(AllowRepeat::Everybody(false)), ..method(name) };
        let mut world = world(rules, &["alice", "bob"], "alice", "go");
        assert!(world.chat.human_needed().is_none());
        world.run(says_name);
        assert_eq!(world.speakers()[..4], ["bob", "alice", "bob", "alice"], "{name}");
        assert!(world.selections().is_empty(), "{name}");
    }
}

/// AGC-01: a list names those that may repeat.
#[test]
fn only_the_listed_agents_may_repeat() {
    let allow_repeat_speaker = Some(AllowRepeat::Only(vec!["bob".to_owned()]));
    let rules = || ChatRules { allow_repeat_speaker: allow_repeat_speaker.clone(), ..method("auto") };
    let candidates = |from| world(rules(), &ABC, from, "go").last_call().context["candidates"].clone();
    assert_eq!(candidates("bob"), json!(ABC));
    assert_eq!(candidates("alice"), json!(["bob", "carol"]));
    let unknown = ChatRules { allow_repeat_speaker: Some(AllowRepeat::Only(vec!["zoe".to_owned()])), ..round_robin() };
    assert!(refused(unknown, agents(&ABC)).contains("'zoe'"));
}

/// AGC-09: only allowed transitions are taken, or only those that are not disallowed.
#[test]
fn transitions_are_held() {
    let mut chain = world(
        ChatRules {
            speaker_selection_method: SpeakerMethod::Auto,
            ..transitions(TransitionsType::Allowed, &[("alice", &["bob"]), ("bob", &["alice", "carol"])])
        },
        &ABC,
        "alice",
        "go",
    );
    assert_eq!(chain.speakers(), ["bob"]);
    chain.answer(json!("x"));
    assert_eq!(chain.last_call().context["candidates"], json!(["alice", "carol"]));
    chain.answer(json!("bob")); // names nobody of the candidates
    assert!(chain.last_call().context["hint"].as_str().unwrap().contains("no speaker"));
    let disallowed = transitions(TransitionsType::Disallowed, &[("alice", &["alice", "carol"])]);
    let mut world = world(ChatRules { max_round: 4, ..disallowed }, &ABC, "alice", "go");
    world.run(says_name);
    assert_eq!(world.speakers(), ["bob", "carol", "alice"], "who is not named may be followed by all");
}

/// AGC-09: a last speaker without outgoing edges ends the chat, and that is no error.
#[test]
fn a_speaker_without_outgoing_edges_ends_the_chat() {
    for edges in [&[("alice", &["bob"][..])][..], &[("alice", &["bob"]), ("bob", &[])]] {
        let mut world = world(transitions(TransitionsType::Allowed, edges), &ABC, "alice", "go");
        world.answer(json!("the end"));
        let outcome = world.chat.outcome().unwrap();
        assert_eq!((outcome.ok, outcome.stop, outcome.error), (true, Stop::NoEligibleSpeaker, None));
        assert_eq!(world.said(), [("alice", "go"), ("bob", "the end")]);
    }
    // Whoever is not in the chat may be followed by all.
    assert_eq!(
        world(transitions(TransitionsType::Allowed, &[("bob", &["alice"])]), &ABC, "user", "go").speakers(),
        ["alice"]
    );
}

/// AGC-09: transitions exclude the rule of repetition, need their type, and name agents of the chat.
#[test]
fn transitions_are_checked() {
    let good = || transitions(TransitionsType::Allowed, &[("alice", &["bob"])]);
    for (rules, why) in [
        (
            ChatRules { allow_repeat_speaker: Some(AllowRepeat::Everybody(true)), ..good() },
            "Don't provide both allowed_or_disallowed_speaker_transitions and allow_repeat_speaker in group chat. \
             Please set one of them to None.",
        ),
        (
            ChatRules { speaker_transitions_type: None, ..good() },
            "GroupChat allowed_or_disallowed_speaker_transitions is not None, but speaker_transitions_type is None. \
             Please set speaker_transitions_type to either 'allowed' or 'disallowed'.",
        ),
        (
            transitions(TransitionsType::Allowed, &[("zoe", &["bob"])]),
            "transitions: no agent of the group chat is named 'zoe'.",
        ),
        (
            transitions(TransitionsType::Allowed, &[("bob", &["zoe"])]),
            "transitions: no agent of the group chat is named 'zoe'.",
        ),
        (
            transitions(TransitionsType::Allowed, &[("bob", &[])]),
            "The transitions lead from nobody to nobody: there must be at least one edge.",
        ),
    ] {
        assert_eq!(refused(rules, agents(&ABC)), why);
    }
    assert!(World::start(good(), agents(&ABC), "alice", "go").is_ok());
}

/// AGC-10: after a suggested function only those speak that can run all of it; one such agent needs no choice.
#[test]
fn a_function_is_run_by_one_who_can() {
    let team = || with_functions(&[("alice", &[]), ("bob", &["search"]), ("carol", &["search", "pay"])]);
    let suggest = |rules: ChatRules, answer: Value| {
        let mut world = World::start(rules, team(), "carol", "go").unwrap();
        world.answer(answer);
        world
    };
    let call = json!({ "content": null, "function_call": { "name": "pay", "arguments": "{}" } });
    assert_eq!(suggest(round_robin(), call.clone()).speakers(), ["alice", "carol"]);
    let tools = json!({ "tool_calls": [
        { "id": "1", "type": "function", "function": { "name": "search", "arguments": "{}" } },
        { "id": "2", "type": "function", "function": { "name": "pay", "arguments": "{}" } },
    ] });
    assert_eq!(suggest(round_robin(), tools).speakers(), ["alice", "carol"]);
    let search = json!({ "function_call": { "name": "search" } });
    assert_eq!(suggest(round_robin(), search.clone()).speakers(), ["alice", "bob"]);
    let mut auto = World::start(method("auto"), team(), "carol", "go").unwrap();
    auto.answer(json!("alice")).answer(search);
    assert_eq!(auto.last_call().context["candidates"], json!(["bob", "carol"]));
    // Tools of other kinds run elsewhere, and without the filter nobody is left out.
    let retrieval = json!({ "tool_calls": [{ "type": "retrieval", "name": "pay" }] });
    assert_eq!(suggest(round_robin(), retrieval).speakers(), ["alice", "bob"]);
    let unfiltered = ChatRules { func_call_filter: false, ..round_robin() };
    assert_eq!(suggest(unfiltered, call).speakers(), ["alice", "bob"]);
}

/// AGC-10: nobody can run it: an error that names the function.
#[test]
fn a_function_nobody_can_run_is_an_error_that_names_it() {
    let mut world =
        World::start(round_robin(), with_functions(&[("alice", &[]), ("bob", &["search"])]), "user", "go").unwrap();
    world.answer(json!({ "function_call": { "name": "pay" }, "tool_calls": [{ "name": "ship" }] }));
    let outcome = world.chat.outcome().unwrap();
    assert!(!outcome.ok);
    assert_eq!(
        outcome.error.as_deref(),
        Some("No agent can execute the function pay, ship. Please check the function_map of the agents.")
    );
    assert_eq!(outcome.messages.len(), 2, "the suggestion is kept");
}

/// AGC-13: after three invalid answers of a human the next agent in the list speaks; each ask has its own id.
#[test]
fn three_invalid_answers_of_a_human_fall_to_the_next_agent() {
    let mut world = world(method("manual"), &ABC, "alice", "go");
    let asked = world.chat.human_needed().unwrap();
    assert_eq!(asked.candidates, ABC);
    assert!(asked.prompt.contains("1: alice\n2: bob\n3: carol\n"), "{}", asked.prompt);
    world.human(json!("7"));
    let again = world.chat.human_needed().unwrap();
    assert_ne!(asked.id, again.id);
    assert!(again.prompt.starts_with("Invalid input. Please enter a number between 1 and 3.\n"));
    world.human(json!("zero"));
    assert!(world.speakers().is_empty());
    world.human(json!(0));
    assert_eq!(world.speakers(), ["bob"]);
    assert!(world.chat.human_needed().is_none());
    assert!(world.selections().is_empty(), "no model is asked");
}

/// AGC-13: a valid answer within three tries counts; nothing or `q` leaves it to the list; an old id is refused.
#[test]
fn a_human_chooses_by_number_or_name() {
    for (answers, speaker) in [
        (vec![json!("3")], "carol"),
        (vec![json!(1)], "alice"),
        (vec![json!("carol")], "carol"),
        (vec![json!("x"), json!("4"), json!(" 3 ")], "carol"),
        (vec![json!("")], "bob"),
        (vec![json!("q")], "bob"),
        (vec![json!("-1"), json!("q")], "bob"),
    ] {
        let mut world = world(method("manual"), &ABC, "alice", "go");
        answers.iter().for_each(|answer| _ = world.human(answer.clone()));
        assert_eq!(world.speakers(), [speaker], "{answers:?}");
    }
    let mut world = world(method("manual"), &ABC, "alice", "go");
    let old = world.chat.human_needed().unwrap().id;
    world.human(json!("x"));
    let before = world.chat.clone();
    assert_eq!(world.chat.human(old, &json!("3"), &mut world.out), Err(ChatError::NotAsked(old)));
    assert_eq!(world.chat, before);
}

/// AGC-16: chance is a recorded answer to a call whose seed comes from the run and the turn.
#[test]
fn chance_is_seeded_and_recorded() {
    let play = |run: &str| {
        let mut out = Outbox::new(run, Timestamp::default());
        let opening = vec![ChatMessage::new("user", "go")];
        let chat = GroupChat::start(method("random"), agents(&ABC), opening, &mut out).unwrap();
        let mut world = World::of(chat, out);
        world.run(|call| match call.purpose {
            Purpose::Decide => {
                assert_eq!(call.context["method"], "random");
                json!(draw(call.context["seed"].as_str().unwrap(), &ABC).unwrap())
            }
            _ => json!("x"),
        });
        let seeds: Vec<Value> = world.selections().iter().map(|call| call.context["seed"].clone()).collect();
        (seeds, world.speakers().join(" "))
    };
    let (seeds, speakers) = play("run-1");
    assert_eq!(play("run-1"), (seeds.clone(), speakers.clone()), "the same run draws the same");
    assert_ne!(play("run-2").0, seeds);
    let distinct: std::collections::BTreeSet<String> = seeds.iter().map(Value::to_string).collect();
    assert_eq!((seeds.len(), distinct.len()), (9, 9), "each turn has its own seed");
    assert!(ABC.iter().all(|name| speakers.contains(name)), "{speakers}");
    // Chance names nobody else, and needs nobody: without a proper answer the seed itself decides.
    for answer in [Ok(json!("zoe")), Ok(json!(null)), Err(CallFailure::error("nobody draws here"))] {
        let mut world = world(method("random"), &ABC, "alice", "go");
        let seed = world.last_call().context["seed"].as_str().unwrap().to_owned();
        world.answer_with(answer);
        assert_eq!(world.speakers(), [draw(&seed, &ABC).unwrap()]);
    }
    assert_eq!(draw("seed", &[]), None);
}

#[test]
fn a_decision_is_noted_with_the_hash_of_its_prompt() {
    let mut out = outbox();
    let opening = vec![ChatMessage::new("user", "go")];
    let mut chat = GroupChat::start(method("auto"), agents(&ABC), opening, &mut out).unwrap();
    let (asks, notes) = out.take();
    let [Ask::Call(call)] = asks.as_slice() else { panic!("{asks:?}") };
    let requested = notes.iter().find(|note| note.kind == NoteKind::DecisionRequested).unwrap();
    assert_eq!(requested.data["prompt_hash"], crate::supervisor::prompts::prompt_hash(&call.prompt));
    chat.answered(call.key.clone().try_into().unwrap(), Ok(json!("bob")), &mut out);
    let kinds: Vec<NoteKind> = out.notes().iter().map(|note| note.kind).collect();
    assert_eq!(kinds, [NoteKind::DecisionRecorded, NoteKind::SpeakerSelected]);
}

#[test]
fn a_failed_selection_ends_the_chat_with_its_error() {
    let mut world = world(method("auto"), &ABC, "user", "go");
    world.answer_with(Err(CallFailure::error("no model")));
    let outcome = world.chat.outcome().unwrap();
    assert_eq!((outcome.ok, outcome.error.as_deref()), (false, Some("no model")));
}
