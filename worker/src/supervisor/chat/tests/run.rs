//! Group chats as runs: from a spec, through the workflow and the driver, with scripted agents.

use std::sync::Arc;

use bosun_engine::workflow::WorkflowRegistry;
use bosun_engine::{ActivityRegistry, CloseOutcome};

use super::*;
use crate::capability::{self, CapabilityConfig};
use crate::stage::{Cue, Played, Stage};
use crate::supervisor::run::{SUPERVISOR, SupervisorOutput, register};

async fn play(preset: &str, changes: Value, script: Value) -> Played {
    play_with(preset, changes, script, vec![]).await
}

async fn play_with(preset: &str, changes: Value, script: Value, cues: Vec<Cue>) -> Played {
    play_in(json!({}), preset, changes, script, cues).await
}

/// Plays a run that was started in that context.
async fn play_in(context: Value, preset: &str, changes: Value, script: Value, cues: Vec<Cue>) -> Played {
    let mut spec = json!({
        "kind": "supervisor", "name": "chat", "preset": preset, "objective": "find the answer", "script": script,
        "agents": [{ "name": "alice" }, { "name": "bob" }, { "name": "carol" }],
    });
    for (section, keys) in changes.as_object().unwrap() {
        spec[section] = keys.clone();
    }
    let mut activities = ActivityRegistry::new();
    capability::register(&mut activities, &CapabilityConfig::default()).unwrap();
    let stage = Arc::new(Stage { workflows: register(WorkflowRegistry::new()), activities });
    let spec = crate::supervisor::spec::read_spec("spec.yaml", &spec.to_string()).unwrap_or_else(|why| panic!("{why}"));
    let input = json!({ "resolved": spec.spec.resolve().unwrap(), "context": context });
    stage.play(SUPERVISOR, input, cues).await
}

#[track_caller]
fn output(played: &Played) -> SupervisorOutput {
    match &played.outcome {
        CloseOutcome::Completed(result) => result.decode().unwrap(),
        other => panic!("expected a completed run, got {other:?}"),
    }
}

fn contents(output: &SupervisorOutput) -> Vec<(String, String)> {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let messages = output.details["messages"].as_array().unwrap();
    messages.iter().map(|message| (text(&message["from"]), text(&message["content"]))).collect()
}

fn says(purpose: &str, say: Value) -> Value {
    json!({ "on": purpose, "say": say })
}

/// AGC-02: a run of the preset is a chat of ten messages with the objective as the opening.
#[tokio::test]
async fn a_group_chat_runs_to_its_rounds() {
    let script = json!([says("decide", json!("I choose bob")), says("execute_worker", json!("hm from {{agent}}"))]);
    let output = output(&play("autogen-groupchat", json!({}), script).await);
    let messages = contents(&output);
    assert_eq!(messages.len(), 10);
    assert_eq!(messages[0], ("Admin".to_owned(), "find the answer".to_owned()));
    assert!(messages[1..].iter().all(|message| *message == ("bob".to_owned(), "hm from bob".to_owned())));
    assert_eq!((output.status.as_str(), output.final_result), ("completed", Some(json!("hm from bob"))));
}

/// AGC-16: random speakers need no rule for who speaks, and are the same in every play of the run.
#[tokio::test]
async fn random_speakers_are_the_same_in_every_play() {
    let random = || json!({ "speaker": { "method": "random" } });
    let script = || json!([says("execute_worker", json!("hm from {{agent}}"))]);
    let one = output(&play("autogen-groupchat", random(), script()).await);
    let two = output(&play("autogen-groupchat", random(), script()).await);
    assert_eq!(contents(&one), contents(&two));
    let speakers: std::collections::BTreeSet<String> = contents(&one).into_iter().map(|(from, _)| from).collect();
    assert!(speakers.len() > 2, "{speakers:?}");
}

/// AGC-18: facts, plan, progress, speaker and final answer, through the jobs of the run.
#[tokio::test]
async fn magentic_one_runs_to_its_answer() {
    let ledger = |done: bool| {
        json!({ "is_request_satisfied": done, "is_in_loop": false, "is_progress_being_made": true,
                "next_speaker": "carol", "instruction": "look it up" })
    };
    let script = json!([
        says("plan", json!("what is known, what to do")),
        { "on": "decide", "round": 1, "say": ledger(false) },
        says("decide", ledger(true)),
        says("execute_worker", json!("it is 42")),
        says("synthesize", json!("42")),
    ]);
    let output = output(&play("autogen-magentic", json!({}), script).await);
    assert_eq!(output.final_result, Some(json!("42")));
    let speakers: Vec<String> = contents(&output).into_iter().map(|(from, _)| from).collect();
    let orchestrator = "MagenticOneOrchestrator";
    assert_eq!(speakers, ["Admin", orchestrator, orchestrator, "carol", orchestrator]);
}

/// AGC-21: a swarm follows its hand-overs and ends when it hands over to the user.
#[tokio::test]
async fn a_swarm_runs_until_it_hands_over_to_the_user() {
    let script = json!([
        { "on": "execute_worker", "agent": "alice", "say": { "handoff": "carol" } },
        { "on": "execute_worker", "agent": "carol", "say": { "content": "which one?", "handoff": "user" } },
    ]);
    let output = output(&play("autogen-swarm", json!({}), script).await);
    let speakers: Vec<String> = contents(&output).into_iter().map(|(from, _)| from).collect();
    assert_eq!(speakers, ["Admin", "alice", "carol"]);
    assert_eq!((output.status.as_str(), &output.details["stop"]), ("completed", &json!("handoff")));
}

/// AGC-21: whom a hand-over leads outside to is the spec's to say.
#[tokio::test]
async fn a_swarm_ends_where_its_spec_says() {
    let script = json!([{ "on": "execute_worker", "say": { "content": "over to you", "handoff": "desk" } }]);
    let desk = json!({ "handoff": { "termination": "desk" } });
    let output = output(&play("autogen-swarm", desk, script).await);
    assert_eq!((output.status.as_str(), &output.details["stop"]), ("completed", &json!("handoff")));
    assert_eq!(contents(&output).len(), 2);
}

/// AGC-14: a run on the messages of a chat that had ended goes on: the text that ended it is taken out of the last one,
/// and ends this run when it is said again.
#[tokio::test]
async fn a_run_goes_on_from_a_chat_that_had_ended() {
    let earlier = json!([{ "name": "alice", "content": "Cats" }, { "name": "bob", "content": "Felix. TERMINATE" }]);
    let script = json!([
        { "on": "execute_worker", "agent": "carol", "say": "or Tom?" },
        { "on": "execute_worker", "agent": "alice", "say": "Tom. TERMINATE" },
        { "on": "execute_worker", "say": "too late" },
    ]);
    let in_order = json!({ "speaker": { "method": "round_robin" } });
    let context = json!({ "more": { "messages": earlier } });
    let output = output(&play_in(context, "autogen-groupchat", in_order, script, vec![]).await);
    let said: Vec<String> = contents(&output).into_iter().map(|(_, content)| content).collect();
    assert_eq!(said, ["Felix. ", "or Tom?", "Tom. TERMINATE"]);
    assert_eq!(output.details["stop"], "termination");
}

/// AGC-13: a person is asked who speaks, each time by an interrupt of its own; three invalid answers leave it to the list.
#[tokio::test]
async fn a_person_is_asked_who_speaks() {
    let manual =
        json!({ "speaker": { "method": "manual" }, "loop": { "max_rounds": 3, "count": "messages_with_opening" } });
    let answer = |text: &str| Cue::Signal("human_input_v1", json!(text));
    // A message first: the run looks after every event at what people are to be asked. Bob speaks before the next
    // question; invalid answers are asked again at once.
    let message = json!({ "From": "x", "To": "y", "Role": "", "Content": "z" });
    let cues = vec![
        Cue::Signal("mailbox_v1", message),
        Cue::Query("pending_interrupts"),
        answer("2"),
        Cue::Step,
        answer("x"),
        answer("9"),
        Cue::Query("pending_interrupts"),
        answer("0"),
    ];
    let script = json!([says("execute_worker", json!("hm from {{agent}}"))]);
    let played = play_with("autogen-groupchat", manual, script, cues).await;
    let speakers: Vec<String> = contents(&output(&played)).into_iter().map(|(from, _)| from).collect();
    assert_eq!(speakers, ["Admin", "bob", "carol"]);
    for (asked, attempt) in played.queries.iter().zip([1, 3]) {
        let text = asked.to_string();
        assert!(text.contains("1: alice\\n2: bob\\n3: carol"), "{text}");
        assert!(text.contains(&format!("\"attempt\":{attempt}")), "{text}");
    }
}

/// AGC-17: a participant that fails stops the team with its error.
#[tokio::test]
async fn a_failing_participant_fails_the_run() {
    let script = json!([says("decide", json!("bob")), { "on": "execute_worker", "fail": "division by zero" }]);
    let played = play("autogen-selector", json!({}), script).await;
    let CloseOutcome::Failed(failure) = &played.outcome else { panic!("{:?}", played.outcome) };
    assert!(failure.to_string().contains("division by zero"), "{failure}");
}
