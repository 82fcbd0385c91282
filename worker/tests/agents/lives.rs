//! Arbitrary lives of agents under the determinism kit: answers in any order, lost, late and doubled; crashes at every
//! boundary of a commit; signals, forged and true, at any moment.

use std::collections::{BTreeMap, BTreeSet};

use bosun_engine::workflow::WorkflowRegistry;
use bosun_engine::{ActivityOutcome, EventKind, Failure, Payload};
use bosun_replay::determinism::{DeterminismTest, Report, armed};
use bosun_replay::simulate::RunView;
use bosun_worker::agent::machine::{AgentMachine, call_hash};
use bosun_worker::agent::{AGENT, AGENT_MODEL, register};
use serde_json::{Value, json};

/// Lives that fit into the time that all tests have. `BOSUN_CASES` tries more.
const LIVES: u32 = 600;

fn spec(limits: Value) -> Value {
    json!({
        "name": "ann", "provider": "p", "model": "big", "system": "s", "task": "t", "max_output_tokens": 100,
        "limits": limits,
        "tools": [
            { "name": "look", "parameters": { "type": "object" }, "does": { "activity": { "activity_type": "look" } } },
            { "name": "pay", "approval": true, "parameters": { "type": "object" },
              "does": { "activity": { "activity_type": "pay" } } },
            { "name": "ask", "does": { "agent": { "tools": ["look", "pay"] } } },
        ],
    })
}

fn pay() -> Value {
    json!({ "cents": 5 })
}

/// A function of the call: mostly tools, sometimes what it may not, at times the end.
fn model(input: &Payload) -> ActivityOutcome {
    let call = input.to_json();
    let n = call["key"].as_u64().unwrap_or_default();
    if n % 11 == 10 {
        return ActivityOutcome::Failed(Failure::application("ModelFatal", "no such model").non_retryable());
    }
    let calls = match n % 7 {
        1 => {
            json!([{ "id": "a", "name": "look", "arguments": { "n": n } }, { "id": "b", "name": "pay", "arguments": pay() }])
        }
        2 | 3 => {
            json!([{ "id": "a", "name": "look", "arguments": { "n": n } }, { "id": "b", "name": "rm", "arguments": {} },
            { "id": "c", "name": "look", "arguments": { "n": n + 1 } }])
        }
        4 => json!([{ "id": "a", "name": "ask", "arguments": { "task": "t", "max_steps": 2 } }]),
        5 => json!([{ "id": "a", "name": "look", "arguments": "no object" }]),
        _ => json!([]),
    };
    let said = json!({ "content": format!("words {n}"), "tool_calls": calls });
    let usage = json!({ "input": 10 + n, "output": 5 });
    let response = json!({ "said": said, "stop": "end", "usage": usage, "model": "big" });
    ActivityOutcome::Completed(Payload::encode(&json!({ "response": response, "cost": { "micros": n } })).unwrap())
}

fn kit() -> DeterminismTest {
    assert!(armed());
    let inputs = vec![
        spec(json!({})),
        spec(json!({ "max_steps": 3, "max_tokens": 2_000 })),
        spec(json!({ "max_steps": 4, "on_exhausted": "stop", "fan_out": 1 })),
        spec(json!({ "context_tokens": 220, "wall_ms": 60_000 })),
        spec(json!({ "wall_ms": 60_000, "on_exhausted": "stop", "loop_repeats": 2 })),
    ];
    let hash = call_hash("pay", &pay()).to_hex().to_string();
    let other = call_hash("pay", &json!({ "cents": 6 })).to_hex().to_string();
    let approvals: Vec<Value> = (1..12)
        .flat_map(|id| [(id, &hash, true), (id, &hash, false), (id, &other, true)])
        .map(|(id, hash, approved)| json!({ "id": format!("a{id}"), "hash": hash, "approved": approved }))
        .chain([json!({ "approved": true }), json!("yes")])
        .collect();
    DeterminismTest::new(register(WorkflowRegistry::new()), AGENT)
        .input(proptest::sample::select(inputs))
        .activity_answers(AGENT_MODEL, model)
        .activity_answers("look", |input| ActivityOutcome::Completed(input.clone()))
        .activity_answers("pay", |input| ActivityOutcome::Completed(input.clone()))
        .signal("approval_response_v1", proptest::sample::select(approvals))
        .signal(
            "budget_top_up_v1",
            proptest::sample::select(vec![json!({ "calls": 2, "tokens": 500 }), json!({ "wall_ms": 1 })]),
        )
        .signal("resume_v1", proptest::sample::select(vec![json!({})]))
        .signal("pause_v1", proptest::sample::select(vec![json!({ "reason": "lunch" }), json!("now")]))
        .query("cost", &json!(null))
        .query("budget", &json!(null))
        .query("approvals", &json!(null))
        .query("state", &json!(null))
        .query("parked", &json!(null))
        .invariant("the machine is whole", whole)
        .invariant("what is paid for was agreed to", agreed)
        .invariant("the ledger is what the history says", exact)
        .invariant("what is told is in the history", told)
        .invariant("nothing begins while it is paused", paused)
        .lives(LIVES)
        .steps(90)
        .on_all_cores()
        .without_case_files()
}

fn agent(run: &RunView<'_>) -> Result<Option<AgentMachine>, String> {
    let Some(state) = run.state() else { return Ok(None) };
    serde_json::from_value(state["agent"].clone()).map(Some).map_err(|why| why.to_string())
}

fn whole(run: &RunView<'_>) -> Result<(), String> {
    let Some(agent) = agent(run)? else { return Ok(()) };
    agent.check()?;
    match run.outcome().is_some() && !agent.is_over() {
        true => Err("the run is closed and the agent is not over".to_owned()),
        false => Ok(()),
    }
}

/// Of each agreement one payment at most.
fn agreed(run: &RunView<'_>) -> Result<(), String> {
    let hash = call_hash("pay", &pay()).to_hex().to_string();
    let mut agreed = BTreeSet::new();
    for event in run.events() {
        match event {
            EventKind::WorkflowExecutionSignaled(signal) if signal.name.as_str() == "approval_response_v1" => {
                let input = signal.input.to_json();
                if input["approved"] == true && input["hash"] == json!(hash) {
                    agreed.insert(input["id"].to_string());
                }
            }
            EventKind::ActivityTaskScheduled(task)
                if task.activity_type.as_str() == "pay" && task.input.to_json() != pay() =>
            {
                return Err(format!("{:?} is paid", task.input));
            }
            _ => {}
        }
    }
    let paid = run.scheduled("pay").len();
    if paid > agreed.len() { Err(format!("{paid} payments, {} agreements", agreed.len())) } else { Ok(()) }
}

/// What is asked for stands behind the event that it follows from.
fn paused(run: &RunView<'_>) -> Result<(), String> {
    let mut paused = false;
    for event in run.events() {
        match event {
            EventKind::WorkflowExecutionSignaled(signal) => match signal.name.as_str() {
                "pause_v1" => paused = true,
                "resume_v1" => paused = false,
                _ => {}
            },
            EventKind::ActivityTaskScheduled(_) | EventKind::StartChildWorkflowExecutionInitiated(_) if paused => {
                return Err(format!("{} while it is paused", event.name()));
            }
            _ => {}
        }
    }
    Ok(())
}

/// Counted again from the events alone: tools that ended, and answers of models with what they say they cost.
fn exact(run: &RunView<'_>) -> Result<(), String> {
    let Some(agent) = agent(run)? else { return Ok(()) };
    let (mut kinds, mut tools, mut cost, mut children) = (BTreeMap::new(), 0, 0, false);
    for event in run.events() {
        match event {
            EventKind::ActivityTaskScheduled(task) => {
                kinds.insert(task.seq, task.activity_type.as_str() == AGENT_MODEL);
            }
            EventKind::ActivityTaskCompleted { seq, result, .. } if kinds.get(seq) == Some(&true) => {
                cost += result.to_json()["cost"]["micros"].as_u64().unwrap_or_default();
            }
            EventKind::ActivityTaskCompleted { seq, .. }
            | EventKind::ActivityTaskFailed { seq, .. }
            | EventKind::ActivityTaskTimedOut { seq, .. }
            | EventKind::ActivityTaskCanceled { seq, .. }
                if kinds.get(seq) == Some(&false) =>
            {
                tools += 1;
            }
            EventKind::StartChildWorkflowExecutionInitiated(_) => children = true,
            _ => {}
        }
    }
    let spent = agent.ledger().spent();
    // A canceled tool is heard of before the history has its end; agents below have histories of their own.
    if children || agent.is_over() {
        return Ok(());
    }
    // A call that was lost counts as it was estimated; the history cannot say what it cost.
    let guessed = agent.ledger().unknown().estimated_calls > 0;
    match spent.tool_calls == tools && (spent.cost_micros == cost || guessed && spent.cost_micros > cost) {
        true => Ok(()),
        false => Err(format!("{spent:?} is spent, the history says {tools} tools and {cost} micro-dollars")),
    }
}

/// Every call of the model can be made into a request from the history alone.
fn told(run: &RunView<'_>) -> Result<(), String> {
    let mut conversation = bosun_worker::agent::resolve::Conversation::default();
    let mut calls = Vec::new();
    for (n, kind) in run.events().enumerate() {
        if let EventKind::ActivityTaskScheduled(task) = kind
            && task.activity_type.as_str() == AGENT_MODEL
        {
            calls.push(task.seq.0);
        }
        conversation.hear(bosun_engine::EventId(n as u64 + 1), kind);
    }
    for call in calls {
        conversation.request(call).map_err(|why| why.to_string())?;
    }
    Ok(())
}

/// G21, G41.
#[test]
fn agents_keep_their_promises() {
    tell(&kit().run());
}

/// Prints past the capture of the test runner, so that figures are seen when nothing is wrong.
fn tell(report: &Report) {
    use std::io::Write;
    for end in ["Completed", "Failed", "Canceled"] {
        assert!(report.lives < u64::from(LIVES) || report.ends.contains_key(end), "no life is {end}: {report}");
    }
    assert!(report.lives < u64::from(LIVES) || report.rare.contains_key("attempt lost"), "{report}");
    // Figures that cannot be printed change nothing.
    let _ = writeln!(std::io::stderr(), "agents: {report}");
}
