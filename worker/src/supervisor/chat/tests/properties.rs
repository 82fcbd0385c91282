//! What holds of every chat, whatever is answered.

use proptest::prelude::*;

use super::*;
use crate::scene::kit::cases;

const NAMES: [&str; 4] = ["a", "b_c", "d", "e"];

fn rules() -> impl Strategy<Value = ChatRules> {
    let method = prop::sample::select(SpeakerMethod::ALL.to_vec());
    let preset = prop::sample::select(vec![0, 1, 2, 3]);
    let edges = prop::option::of(prop::collection::btree_map(name(), prop::collection::vec(name(), 0..4), 1..4));
    let on_error = prop::sample::select(vec![OnSpeakerError::Stop, OnSpeakerError::Skip, OnSpeakerError::Retry]);
    (method, preset, edges, on_error, 1..8u32, any::<(bool, bool, bool)>()).prop_map(
        |(method, preset, edges, on_speaker_error, max_round, (repeat, disallowed, candidates))| {
            let base = match preset {
                0 => ChatRules::default(),
                1 => ChatRules::selector(),
                2 => ChatRules::swarm(),
                _ => ChatRules::magentic(),
            };
            let kind = if disallowed { TransitionsType::Disallowed } else { TransitionsType::Allowed };
            ChatRules {
                speaker_selection_method: method,
                max_round,
                on_speaker_error,
                allow_repeat_speaker: edges.is_none().then_some(AllowRepeat::Everybody(repeat)),
                speaker_transitions_type: edges.is_some().then_some(kind),
                allowed_or_disallowed_speaker_transitions: edges,
                candidate_function: candidates,
                ..base
            }
        },
    )
}

fn name() -> impl Strategy<Value = String> {
    prop::sample::select(NAMES.to_vec()).prop_map(str::to_owned)
}

fn answer() -> impl Strategy<Value = Answer> {
    let ledger = (any::<(bool, bool)>(), name()).prop_map(|((in_loop, progress), next)| {
        json!({ "is_request_satisfied": false, "is_in_loop": in_loop, "is_progress_being_made": progress,
                "next_speaker": next, "instruction": "go" })
    });
    let good = prop_oneof![
        6 => name().prop_map(|name| json!(name)),
        2 => name().prop_map(|name| json!({ "name": name })),
        2 => (name(), name()).prop_map(|(a, b)| json!(format!("{a} or {b}"))),
        2 => Just(json!({ "content": "said" })),
        2 => name().prop_map(|to| json!({ "handoff": to })),
        1 => Just(json!({ "function_call": { "name": "nobody_has_it" } })),
        1 => Just(json!("TERMINATE")),
        1 => Just(json!(null)),
        1 => prop::collection::vec(name(), 0..3).prop_map(|names| json!(names)),
        1 => Just(json!({ "tool_calls": [{}], "content": 3 })),
        4 => ledger,
        1 => "[a-e _\\\\]{0,8}".prop_map(|text| json!(text)),
    ];
    prop_oneof![20 => good.prop_map(Ok), 1 => Just(Err(CallFailure::error("broken")))]
}

proptest! {
    #![proptest_config(cases(400))]

    /// AGC-02, AGC-09, AGC-11: whatever is answered, nothing panics, the rounds are bounded, every message is kept
    /// exactly once and in order, and nobody speaks whom the rules do not let.
    #[test]
    fn any_answers_leave_a_chat_in_order(
        rules in rules(), answers in prop::collection::vec(answer(), 0..150), from in name(),
    ) {
        let mut out = outbox();
        let opening = vec![ChatMessage::new(from.clone(), "go")];
        let Ok(chat) = GroupChat::start(rules.clone(), agents(&NAMES), opening, &mut out) else {
            // Only transitions without an edge, or of agents that are not there, are refused here.
            prop_assert!(rules.allowed_or_disallowed_speaker_transitions.is_some());
            return Ok(());
        };
        let mut world = World::of(chat, out);
        let mut expected = vec![(from, "go".to_owned())];
        for answer in answers {
            if world.chat.is_over() {
                break;
            }
            let stored = serde_json::to_string(&world.chat).unwrap();
            prop_assert_eq!(&serde_json::from_str::<GroupChat>(&stored).unwrap(), &world.chat);
            prop_assert!(world.chat.view(false).waiting.is_some(), "a chat that is not over waits for somebody");
            if world.chat.human_needed().is_some() {
                let said = answer.unwrap_or_default();
                world.human(said);
                continue;
            }
            world.answer_with(answer);
            let new = world.said()[expected.len().min(world.said().len())..].to_vec();
            expected.extend(new.iter().map(|(from, text)| ((*from).to_owned(), (*text).to_owned())));
        }
        let said: Vec<(String, String)> =
            world.said().iter().map(|(from, text)| ((*from).to_owned(), (*text).to_owned())).collect();
        prop_assert_eq!(&said, &expected, "messages are only added");
        for (at, message) in world.chat.messages().iter().enumerate() {
            prop_assert_eq!(message.index as usize, at);
        }
        let keys: std::collections::BTreeSet<_> = world.calls.iter().map(|call| &call.key).collect();
        prop_assert_eq!(keys.len(), world.calls.len(), "a key is used once");
        prop_assert!(world.chat.rounds() <= rules.max_round);
        held_to_transitions(&rules, &world)?;
        if let Some(outcome) = world.chat.outcome() {
            // Out of rounds with the request unsatisfied is no error, and no success (AGC-18).
            prop_assert!(!outcome.ok || outcome.error.is_none());
            prop_assert_eq!(outcome.messages.len(), said.len());
        }
    }
}

/// In a group chat, who follows whom is in the graph, unless a function named the speaker.
fn held_to_transitions(rules: &ChatRules, world: &World) -> Result<(), TestCaseError> {
    if rules.team != ChatTeam::GroupChat || rules.speaker_selection_method == SpeakerMethod::Function {
        return Ok(());
    }
    let spoken: Vec<&str> = world.chat.messages().iter().map(|message| message.from.as_str()).collect();
    if rules.on_speaker_error == OnSpeakerError::Skip {
        return Ok(()); // a lost turn has no message to look at
    }
    for pair in spoken.windows(2) {
        let reachable = rules.reachable(pair[0], world.chat.agents());
        prop_assert!(reachable.iter().any(|agent| agent.name == pair[1]), "{} after {}", pair[1], pair[0]);
    }
    Ok(())
}
