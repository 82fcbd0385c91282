//! Rules from a spec.

use super::*;
use crate::supervisor::spec;

/// AGC-01: an empty section `speaker` is AutoGen's group chat; the rounds come from `loop`.
#[test]
fn an_empty_section_is_the_default_chat() {
    let speaker: spec::Speaker = serde_json::from_value(json!({})).unwrap();
    let run_loop: spec::Loop =
        serde_json::from_value(json!({ "max_rounds": 10, "count": "messages_with_opening" })).unwrap();
    assert_eq!(ChatRules::from_spec(&speaker, &spec::Handoff::default(), &run_loop), ChatRules::default());
    let unbounded = ChatRules::from_spec(&speaker, &spec::Handoff::default(), &spec::Loop::default());
    assert_eq!((unbounded.max_round, unbounded.count), (10, RoundCount::Turns));
}

#[test]
fn what_a_spec_says_is_what_the_chat_does() {
    let speaker: spec::Speaker = serde_json::from_value(json!({
        "team": "selector", "method": "Round_Robin", "retries": 5, "fallback": "previous",
        "transitions": { "alice": ["bob"] }, "transitions_type": "disallowed", "termination": null, "admin": "boss",
        "func_call_filter": false, "send_introductions": true, "manual_tries": 1, "selector_function": true,
        "candidate_function": true, "on_error": "retry", "ledger": { "max_stalls": 1, "json_retries": 2 },
    }))
    .unwrap();
    let rules = ChatRules::from_spec(&speaker, &spec::Handoff::default(), &spec::Loop::default());
    let edges = [("alice".to_owned(), vec!["bob".to_owned()])].into();
    let expected = ChatRules {
        speaker_selection_method: SpeakerMethod::RoundRobin,
        max_retries_for_selecting_speaker: 5,
        allow_repeat_speaker: None,
        allowed_or_disallowed_speaker_transitions: Some(edges),
        speaker_transitions_type: Some(TransitionsType::Disallowed),
        termination: None,
        admin_name: "boss".to_owned(),
        send_introductions: true,
        manual_tries: 1,
        selector_function: true,
        candidate_function: true,
        on_speaker_error: OnSpeakerError::Retry,
        max_stalls: 1,
        max_json_retries: 2,
        ..ChatRules::selector()
    };
    assert_eq!(rules, expected);
    let agent: spec::Agent =
        serde_json::from_value(json!({ "name": "alice", "description": "d", "tools": [{ "name": "search" }] }))
            .unwrap();
    let (name, description) = ("alice".to_owned(), "d".to_owned());
    assert_eq!(ChatAgent::from(&agent), ChatAgent { name, description, functions: vec!["search".to_owned()] });
}

/// AGC-21: whom a hand-over leads outside to is the spec's to say; a swarm has `user` unless it does.
#[test]
fn a_spec_says_which_handoff_ends_the_run() {
    let of = |team: &str, termination: Option<&str>| {
        let speaker: spec::Speaker = serde_json::from_value(json!({ "team": team })).unwrap();
        let handoff = spec::Handoff { termination: termination.map(str::to_owned), ..spec::Handoff::default() };
        ChatRules::from_spec(&speaker, &handoff, &spec::Loop::default())
    };
    assert_eq!(of("swarm", None).termination_handoff.as_deref(), Some("user"));
    assert_eq!(of("group_chat", None).termination_handoff, None);
    assert_eq!(of("selector", Some("desk")).termination_handoff.as_deref(), Some("desk"));
    let mut world = world(of("swarm", Some("desk")), &["alice", "bob"], "user", "task");
    world.answer(json!({ "handoff": "desk", "content": "yours" }));
    let outcome = world.chat.outcome().unwrap();
    assert_eq!((outcome.stop, outcome.reason.as_str()), (Stop::Handoff, "Handed over to desk."));
}

#[test]
fn one_manual_try_is_one() {
    let mut chat = world(ChatRules { manual_tries: 1, ..method("manual") }, &["alice", "bob"], "alice", "go");
    chat.human(json!("x"));
    assert_eq!(chat.speakers(), ["bob"]);
}
