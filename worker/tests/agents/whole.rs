//! Whole runs on the engine.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use bosun_engine::testing::TestEnvironment;
use bosun_engine::workflow::WorkflowRegistry;
use bosun_engine::*;
use bosun_worker::agent::machine::{AgentStopReason, call_hash};
use bosun_worker::agent::{AgentOutput, Conversations, register, register_activities};
use bosun_worker::capability;
use bosun_worker::capability::model::{ChatRequest, Message};
use serde_json::{Value, json};

use super::scenes::{Says, Scene, looks, spec, turn};

fn words(request: &ChatRequest) -> Vec<String> {
    let text = |message: &Message| match message {
        Message::System { content } => format!("system: {content}"),
        Message::User { content } => format!("user: {content}"),
        Message::Assistant(said) => format!("assistant: {} ({} calls)", said.content, said.tool_calls.len()),
        Message::Tool { call_id, name, content, .. } => format!("{name} {call_id}: {content}"),
    };
    request.messages.iter().map(text).collect()
}

/// The history holds each message once; the model sees all of them.
#[tokio::test]
async fn the_model_sees_the_whole_conversation() {
    let scene = Scene::new(|request, _| match turn(request) {
        0 => {
            let look = |at: u32| ("look".to_owned(), json!({ "at": at }));
            Ok(("two".to_owned(), vec![look(1), ("none".to_owned(), json!({})), look(2)]))
        }
        _ => Ok(("done".to_owned(), Vec::new())),
    });
    scene.start("a-1", &spec(json!({}))).await;
    let output = scene.output("a-1").await;
    assert_eq!((output.stop, output.text.as_str(), output.spent.tokens), (AgentStopReason::Completed, "done", 30));
    let requests: Vec<ChatRequest> = scene.log.models.lock().unwrap().values().flatten().cloned().collect();
    assert_eq!(words(&requests[0]), ["system: You look.", "user: Look around."]);
    let whole = [
        "system: You look.",
        "user: Look around.",
        "assistant: two (3 calls)",
        "look c0: seen 1",
        "none c1: Refused: there is no such tool.",
        "look c2: seen 2",
    ];
    assert_eq!(words(&requests[1]), whole);
    assert_eq!(requests[1].tools.len(), 1);
    assert_eq!(scene.query("a-1", "cost").await["by_model"]["big"]["calls"], 2);
    assert_eq!(scene.query("a-1", "budget").await["remaining"]["steps"], 48);
}

/// Whenever the power is cut in a run of fifty model calls, only what was under way is done again. The attempt whose answer
/// nobody heard may have been paid for, so it counts as much as was held for it (G41): the output's limit, and the money of
/// the dearest call so far.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crash_in_a_long_run_repeats_at_most_what_was_under_way() {
    for cut in [1, 7, 23, 49] {
        let gate = std::sync::Arc::new(tokio::sync::Notify::new());
        let crashed = std::sync::Arc::new(AtomicBool::new(false));
        let (reached, lost) = (gate.clone(), crashed.clone());
        let model = move |request: &ChatRequest, attempt: u32| {
            if turn(request) == cut && attempt == 1 {
                reached.notify_one();
                // The answer is lost with the worker, however long that takes to crash.
                while !lost.load(Ordering::Relaxed) {
                    std::thread::sleep(Duration::from_millis(10));
                }
            }
            looks(50)(request, attempt)
        };
        let mut scene = Scene::new(model);
        scene.start("long", &spec(json!({ "limits": { "max_steps": 60 } }))).await;
        let environment = scene.environment.take().unwrap();
        let client = environment.client();
        let waiting = tokio::spawn(async move {
            let wait = ResultRequest { follow_runs: true, timeout: Some(Duration::from_secs(180)) };
            let _ = client.result(&Target::workflow("long".into()), wait).await;
        });
        gate.notified().await;
        scene.environment = Some(environment);
        scene.crash(cut as u64, looks(50));
        crashed.store(true, Ordering::Relaxed);
        waiting.abort();
        let output = scene.output("long").await;
        assert_eq!((output.stop, output.spent.steps, output.spent.tool_calls), (AgentStopReason::Completed, 51, 50));
        assert_eq!(output.spent.cost_micros, 52 * 15, "cut at {cut}");
        let held = output.spent.tokens - 51 * 15;
        assert!((4_096..8_192).contains(&held), "cut at {cut}: {held} tokens");
        assert_eq!(scene.query("long", "cost").await["by_model"]["big"]["calls"], 52, "cut at {cut}");
        let models = scene.log.models.lock().unwrap();
        let again: usize = models.values().map(|attempts| attempts.len() - 1).sum();
        assert_eq!((models.len(), again), (51, 1), "cut at {cut}");
        assert_eq!(scene.log.tools.lock().unwrap().len(), 50, "cut at {cut}");
    }
}

#[tokio::test]
async fn a_model_that_is_busy_is_asked_again_when_it_said() {
    let scene = Scene::new(|_, attempt| match attempt {
        1 | 2 => Err(Failure::application("ModelRetry", "429").retry_after(Duration::from_secs(600))),
        _ => Ok(("done".to_owned(), Vec::new())),
    });
    let began = scene.environment().now();
    scene.start("busy", &spec(json!({}))).await;
    let output = scene.output("busy").await;
    assert_eq!((output.stop, output.spent.steps), (AgentStopReason::Completed, 1));
    assert!(scene.environment().now().since(began) >= Duration::from_secs(1_200), "the delays were waited for");
    assert_eq!(scene.log.models.lock().unwrap().len(), 1, "one activity, three attempts");
}

#[tokio::test]
async fn a_model_without_credit_halts_the_run_until_somebody_resumes_it() {
    let broke = AtomicU32::new(1);
    let scene = Scene::new(move |_, _| match broke.swap(0, Ordering::SeqCst) {
        1 => Err(Failure::application("ModelNeedsHuman", "no credit").non_retryable()),
        _ => Ok(("done".to_owned(), Vec::new())),
    });
    scene.start("broke", &spec(json!({}))).await;
    scene.environment().settle().await;
    let state = scene.query("broke", "state").await;
    assert_eq!(state["halted"]["needs_human"]["why"], "no credit");
    scene.signal("broke", "resume_v1", &json!({})).await;
    assert_eq!(scene.output("broke").await.stop, AgentStopReason::Completed);
}

#[tokio::test]
async fn a_fatal_error_fails_the_run_and_says_what_was_spent() {
    let scene = Scene::new(|request, _| match turn(request) {
        0 => Ok(("look".to_owned(), vec![("look".to_owned(), json!({ "at": 1 }))])),
        _ => Err(Failure::application("ModelFatal", "no such model").non_retryable()),
    });
    scene.start("fatal", &spec(json!({}))).await;
    let CloseOutcome::Failed(failure) = scene.outcome("fatal").await else { panic!("it fails") };
    assert_eq!((failure.type_name(), failure.message.as_str()), ("AgentFailed", "no such model"));
    let FailureKind::Application { details: Some(details), .. } = failure.kind else { panic!("it has details") };
    assert_eq!(details.to_json()["spent"]["tokens"], 15);
}

/// Approvals survive a crash, and count for the exact arguments.
#[tokio::test]
async fn an_approval_is_waited_for_over_a_crash() {
    let tools = json!({ "tools": [{ "name": "look", "approval": true, "parameters": { "type": "object" },
        "does": { "activity": { "activity_type": "look" } } }] });
    let mut scene = Scene::new(looks(1));
    scene.start("careful", &spec(tools)).await;
    scene.environment().settle().await;
    scene.crash(3, looks(1));
    let asked = scene.query("careful", "approvals").await[0].clone();
    assert_eq!((&asked["tool"], &asked["arguments"]), (&json!("look"), &json!({ "at": 0 })));
    let other = call_hash("look", &json!({ "at": 1 })).to_hex().to_string();
    scene
        .signal("careful", "approval_response_v1", &json!({ "id": asked["id"], "hash": other, "approved": true }))
        .await;
    scene.environment().settle().await;
    assert!(scene.log.tools.lock().unwrap().is_empty());
    let good = json!({ "id": asked["id"], "hash": asked["hash"], "approved": true, "by": "ann" });
    scene.signal("careful", "approval_response_v1", &good).await;
    assert_eq!(scene.output("careful").await.stop, AgentStopReason::Completed);
    assert_eq!(*scene.log.tools.lock().unwrap(), [json!({ "at": 0 })]);
}

#[tokio::test]
async fn a_budget_that_is_used_up_waits_for_more() {
    let scene = Scene::new(looks(5));
    scene.start("poor", &spec(json!({ "limits": { "max_steps": 2 } }))).await;
    scene.environment().settle().await;
    assert_eq!(scene.query("poor", "budget").await["halted"]["budget"]["resource"], "steps");
    scene.signal("poor", "budget_top_up_v1", &json!({ "calls": 10 })).await;
    let output = scene.output("poor").await;
    assert_eq!((output.stop, output.spent.steps), (AgentStopReason::Completed, 6));
}

async fn events(scene: &Scene, id: &str) -> Vec<EventKind> {
    let turns = scene.environment().client().turns(&Target::workflow(id.into())).await.unwrap();
    turns.into_iter().flat_map(|turn| turn.events).collect()
}

/// A top-up that is not enough ends one halt and begins another: who shows them is told of both.
#[tokio::test]
async fn every_halt_is_told_to_who_shows_it() {
    let scene = Scene::new(looks(1));
    scene.start("shy", &spec(json!({ "report_to": "boss", "limits": { "max_steps": 1 } }))).await;
    scene.environment().settle().await;
    let told = async || {
        let signal = |event: &EventKind| match event {
            EventKind::SignalExternalWorkflowExecutionInitiated(signal) if signal.name.as_str() == "pause_v1" => {
                Some(signal.input.to_json()["reason"].clone())
            }
            _ => None,
        };
        events(&scene, "shy").await.iter().filter_map(signal).collect::<Vec<Value>>()
    };
    let why = "its budget is used up: \"steps\"";
    assert_eq!(told().await, [why]);
    scene.signal("shy", "resume_v1", &json!({})).await;
    scene.environment().settle().await;
    assert_eq!(told().await.len(), 1, "it is the same halt still");
    scene.signal("shy", "budget_top_up_v1", &json!({ "tokens": 1 })).await;
    scene.environment().settle().await;
    assert_eq!(told().await, [why, why]);
    scene.signal("shy", "budget_top_up_v1", &json!({ "calls": 5 })).await;
    assert_eq!(scene.output("shy").await.stop, AgentStopReason::Completed);
}

/// A supervisor pauses and resumes the agents below it; so does an agent those below it. A crash changes nothing.
#[tokio::test]
async fn a_pause_reaches_the_agents_below_and_survives_a_crash() {
    let mut more = delegating();
    more["tools"][0]["approval"] = json!(true);
    let mut scene = Scene::new(delegates);
    scene.start("boss", &more).await;
    scene.environment().settle().await;
    let below = events(&scene, "boss").await.into_iter().find_map(|event| match event {
        EventKind::StartChildWorkflowExecutionInitiated(child) => Some(child.workflow_id.to_string()),
        _ => None,
    });
    let below = below.expect("the boss delegates");
    scene.signal("boss", "pause_v1", &json!({ "reason": "lunch", "requested_by": "ann", "from_parent": true })).await;
    scene.environment().settle().await;
    scene.crash(5, delegates);
    let asked = scene.query(&below, "approvals").await[0].clone();
    let good = json!({ "id": asked["id"], "hash": asked["hash"], "approved": true });
    scene.signal(&below, "approval_response_v1", &good).await;
    scene.environment().settle().await;
    for id in ["boss", &below] {
        assert_eq!(scene.query(id, "state").await["paused"], "lunch", "{id}");
    }
    assert_eq!(scene.query(&below, "parked").await["waits"], json!(["a resume: it is paused (lunch)"]));
    assert!(scene.log.tools.lock().unwrap().is_empty(), "what was agreed to does not begin");
    scene.signal("boss", "resume_v1", &json!({})).await;
    assert_eq!(scene.output("boss").await.stop, AgentStopReason::Completed);
    assert_eq!(*scene.log.tools.lock().unwrap(), [json!({ "at": 7 })]);
}

fn is_below(request: &ChatRequest) -> bool {
    words(request).iter().any(|text| text == "user: Do a part.")
}

fn delegates(request: &ChatRequest, attempt: u32) -> Says {
    let below = is_below(request);
    match turn(request) {
        0 if below => Ok((String::new(), vec![("look".to_owned(), json!({ "at": 7 }))])),
        0 => {
            let request = json!({ "task": "Do a part.", "tools": ["look"], "max_steps": 5 });
            Ok((String::new(), vec![("ask".to_owned(), request)]))
        }
        _ if below => Ok(("the part".to_owned(), Vec::new())),
        _ => looks(0)(request, attempt),
    }
}

fn delegating() -> Value {
    spec(json!({ "tools": [
        { "name": "look", "parameters": { "type": "object" }, "does": { "activity": { "activity_type": "look" } } },
        { "name": "ask", "does": { "agent": {} } },
    ] }))
}

/// An agent below is a run of its own, whose spending is that of the whole.
#[tokio::test]
async fn an_agent_below_works_on_a_part_of_the_budget() {
    let scene = Scene::new(delegates);
    scene.start("boss", &delegating()).await;
    let output = scene.output("boss").await;
    assert_eq!((output.stop, output.spent.steps, output.spent.tool_calls), (AgentStopReason::Completed, 4, 2));
    assert_eq!(output.by_model["big"].calls, 4);
    let models = scene.log.models.lock().unwrap();
    let last = models
        .values()
        .flatten()
        .find(|request| turn(request) == 1 && words(request).len() == 4 && { words(request)[3].starts_with("ask") });
    assert_eq!(words(last.expect("the boss goes on"))[3], "ask c0: the part");
}

/// What an agent below spent before it was canceled is known above.
#[tokio::test]
async fn a_canceled_agent_cancels_those_below_and_knows_what_they_spent() {
    let scene = Scene::new(|request, attempt| {
        if turn(request) == 1 && is_below(request) {
            return Err(Failure::application("ModelNeedsHuman", "wait").non_retryable());
        }
        delegates(request, attempt)
    });
    scene.start("boss", &delegating()).await;
    scene.environment().settle().await;
    let client = scene.environment().client();
    client.cancel(&Target::workflow("boss".into()), "enough".into(), None, None).await.unwrap();
    let CloseOutcome::Canceled(Some(details)) = scene.outcome("boss").await else { panic!("it is canceled") };
    let details = details.to_json();
    assert_eq!((&details["spent"]["steps"], &details["spent"]["tool_calls"]), (&json!(2), &json!(2)));
    assert_eq!(details["estimated_calls"], 0, "nothing had to be guessed");
}

/// The older half is summed up, in the middle of a run, and the model goes on from the summary.
#[tokio::test]
async fn a_long_conversation_is_summed_up_and_goes_on() {
    let calls = AtomicU32::new(0);
    let scene = Scene::new(move |request, _| {
        if words(request).last().unwrap().contains("Sum up this conversation") {
            return Ok(("what matters".to_owned(), Vec::new()));
        }
        match calls.fetch_add(1, Ordering::SeqCst) {
            n if n < 12 => Ok(("x".repeat(300), vec![("look".to_owned(), json!({ "at": n }))])),
            _ => Ok(("done".to_owned(), Vec::new())),
        }
    });
    scene.start("long", &spec(json!({ "limits": { "context_tokens": 500 } }))).await;
    let output = scene.output("long").await;
    assert_eq!(output.stop, AgentStopReason::Completed);
    assert!(output.compactions >= 2, "{output:?}");
    let models = scene.log.models.lock().unwrap();
    let (_, last) = models.iter().next_back().unwrap();
    let last = words(&last[0]);
    assert!(last[2].ends_with("what matters") && last[3].starts_with("assistant"), "{last:?}");
    for request in models.values().flatten() {
        let words = words(request);
        let orphan = words
            .iter()
            .enumerate()
            .find(|(n, text)| text.starts_with("look") && !words[n - 1].starts_with("assistant"));
        assert_eq!(orphan, None, "a result without its call");
    }
}

/// The time of a call reaches the capability; the activity around it lasts a little longer.
#[tokio::test]
async fn a_model_call_may_take_as_long_as_the_spec_says() {
    for (more, capability, activity) in [
        (json!({}), 300_000, Duration::from_secs(600)),
        (json!({ "call_timeout_ms": 7_000 }), 7_000, Duration::from_secs(22)),
    ] {
        let scene = Scene::new(looks(0));
        scene.start("slow", &spec(more)).await;
        assert_eq!(scene.output("slow").await.stop, AgentStopReason::Completed);
        assert_eq!(*scene.log.timeouts.lock().unwrap(), [capability]);
        let limit = events(&scene, "slow").await.into_iter().find_map(|event| match event {
            EventKind::ActivityTaskScheduled(task) => task.options.start_to_close,
            _ => None,
        });
        assert_eq!(limit, Some(activity));
    }
}

#[tokio::test]
async fn a_spec_that_cannot_be_run_is_refused() {
    let scene = Scene::new(looks(0));
    let twice =
        json!({ "tools": [{ "name": "a", "does": { "agent": {} } }, { "name": "a", "does": { "agent": {} } }] });
    for (n, more) in
        [twice, json!({ "call_timeout_ms": 0 }), json!({ "depth": 3 }), json!({ "limits": { "fan_out": 0 } })]
            .into_iter()
            .enumerate()
    {
        let id = format!("wrong-{n}");
        scene.start(&id, &spec(more)).await;
        let CloseOutcome::Failed(failure) = scene.outcome(&id).await else { panic!("it fails") };
        assert_eq!(failure.type_name(), "InvalidAgent", "{failure}");
    }
}

/// The activity `model` of the box, with the provider that needs no key: data that conforms to the schema.
#[tokio::test]
async fn the_model_in_the_box_answers_an_agent() {
    let conversations = Conversations::default();
    let mut activities = ActivityRegistry::new();
    capability::register(&mut activities, &capability::CapabilityConfig::default()).unwrap();
    register_activities(&mut activities, conversations.clone());
    let environment = TestEnvironment::start(register(WorkflowRegistry::new()), activities).unwrap();
    conversations.attach(std::sync::Arc::new(environment.client()));
    let schema = json!({ "type": "object", "required": ["n"], "additionalProperties": false,
        "properties": { "n": { "type": "integer", "minimum": 3, "maximum": 5 } } });
    let more = json!({ "provider": "schema", "tools": [], "schema": { "name": "n", "schema": schema } });
    let request = StartWorkflow::new("agent".into(), "boxed".into()).input(Payload::encode(&spec(more)).unwrap());
    let client = environment.client();
    client.start(request).await.unwrap();
    let wait = ResultRequest { follow_runs: true, timeout: Some(Duration::from_secs(180)) };
    let result = client.result(&Target::workflow("boxed".into()), wait).await.unwrap().expect("in time");
    let CloseOutcome::Completed(output) = result.outcome else { panic!("{:?}", result.outcome) };
    let output: AgentOutput = output.decode().unwrap();
    assert_eq!(output.stop, AgentStopReason::Completed, "{output:?}");
    assert!((3..=5).contains(&output.value.unwrap()["n"].as_i64().unwrap()));
    assert_eq!((output.spent.cost_micros, output.unknown.unpriced_calls), (0, 0), "it calls nobody");
}
