//! The transition table of an agent: what it waits for, and what each end of a call and each word of people makes of that.

use super::*;
use crate::agent::ledger::{Resource, TopUp};
use crate::transitions::{Event, compare, table};

/// What an agent waits for. What was said is not in it.
fn shown(agent: &AgentMachine) -> String {
    let under_way = agent.flights.values().map(|flight| match flight {
        Flight::Model { summary_of: Some(_), .. } => "a summary",
        Flight::Model { .. } => "the model",
        Flight::Tool { .. } => "a tool",
        Flight::Child { .. } => "an agent",
    });
    let mut waits: Vec<String> = under_way.map(str::to_owned).collect();
    waits.extend(agent.approvals().iter().map(|_| "an approval".to_owned()));
    waits.extend(agent.halt.iter().map(|halt| match halt {
        Halt::Budget { resource } => format!("more {resource:?}"),
        Halt::NeedsHuman { .. } => "a person's help".to_owned(),
        Halt::Share { .. } => "its share".to_owned(),
    }));
    waits.extend(agent.paused.iter().map(|_| "a resume".to_owned()));
    let ended = agent.outcome.as_ref().map(|outcome| match &outcome.stop {
        AgentStopReason::Budget { resource, .. } => format!("over: Budget {resource:?}"),
        AgentStopReason::Failed { .. } => "over: Failed".to_owned(),
        AgentStopReason::Canceled { .. } => "over: Canceled".to_owned(),
        other => format!("over: {other:?}"),
    });
    match (ended, waits.is_empty()) {
        (Some(ended), true) => ended,
        (Some(ended), false) => format!("{ended}, waits for {}", waits.join(" and ")),
        (None, _) => format!("waits for {}", waits.join(" and ")),
    }
}

const NOW: Timestamp = Timestamp(1_000_000);
const LATE: Timestamp = Timestamp(100_000_000);

fn handle(agent: &mut AgentMachine, event: AgentEvent, now: Timestamp) {
    agent.handle(event, now);
    assert_eq!(agent.check(), Ok(()));
}

fn in_flight(agent: &AgentMachine, model: bool) -> Option<FlightKey> {
    let is = |flight: &Flight| matches!(flight, Flight::Model { .. }) == model;
    agent.flights.iter().find(|(_, flight)| is(flight)).map(|(key, _)| *key)
}

fn model<'e>(name: &'e str, result: Result<ModelAnswer, Fault>) -> Event<'e, AgentMachine> {
    let happens = move |agent: &mut AgentMachine| {
        if let Some(key) = in_flight(agent, true) {
            handle(agent, AgentEvent::Model { key, origin: 1, result: result.clone() }, NOW);
        }
    };
    (name, Box::new(happens))
}

fn tool<'e>(name: &'e str, result: Result<Value, Fault>) -> Event<'e, AgentMachine> {
    let happens = move |agent: &mut AgentMachine| {
        if let Some(key) = in_flight(agent, false) {
            handle(agent, AgentEvent::Tool { key, origin: 1, result: result.clone() }, NOW);
        }
    };
    (name, Box::new(happens))
}

fn approval<'e>(name: &'e str, approved: bool, of_this: bool) -> Event<'e, AgentMachine> {
    let happens = move |agent: &mut AgentMachine| {
        let Some(asked) = agent.approvals().into_iter().next() else { return };
        let text = |name: &str| asked[name].as_str().unwrap().to_owned();
        let hash = if of_this { text("hash") } else { "another call".to_owned() };
        let (reason, by) = (String::new(), String::new());
        let response = ToolApprovalResponse { id: text("id"), hash, approved, reason, by, arguments: None };
        handle(agent, AgentEvent::Approval(response), NOW);
    };
    (name, Box::new(happens))
}

fn event<'e>(name: &'e str, event: AgentEvent, now: Timestamp) -> Event<'e, AgentMachine> {
    (name, Box::new(move |agent| handle(agent, event.clone(), now)))
}

/// G34 to G36: calls, budgets, approvals, pauses and the end.
#[test]
fn of_an_agent() {
    let dear = || {
        let mut answer = says("", &[("none", json!({}))]);
        answer.response.usage = Usage { input: Some(900_000), output: Some(200_000), ..Usage::default() };
        answer
    };
    let fault = |class| Err(Fault::new(class, "no"));
    let more = TopUp { tokens: Some(10_000_000), ..TopUp::default() };
    let events = [
        model("the model answers", Ok(says("done", &[]))),
        model("the model calls a tool", Ok(says("", &[("look", json!({ "at": 1 }))]))),
        model("the model calls a gated one", Ok(says("", &[("pay", json!({ "at": 1 }))]))),
        model("the model spends it all", Ok(dear())),
        model("the model needs a person", fault(FaultClass::NeedsHuman)),
        model("the model fails for good", fault(FaultClass::Fatal)),
        tool("the tool answers", Ok(json!("seen"))),
        tool("the tool is lost", Err(Fault::new(FaultClass::Lost, "no"))),
        approval("a person approves", true, true),
        approval("a person rejects", false, true),
        approval("another call is approved", true, false),
        event("topped up", AgentEvent::TopUp(more), NOW),
        event("paused", AgentEvent::Pause { reason: "lunch".into() }, NOW),
        event("resumed", AgentEvent::Resume, NOW),
        event("the time is over", AgentEvent::WallFired, LATE),
        event("cancelled", AgentEvent::Cancel { reason: "enough".into() }, NOW),
    ];
    let mut pay = look(json!({ "approval": true }));
    pay["name"] = "pay".into();
    let limits = json!({ "max_tokens": 1_000_000, "wall_ms": 60_000, "on_exhausted": "ask", "stops_at": ["wall"] });
    let spec = spec(json!({ "tools": [look(json!({})), pay], "limits": limits }));
    let (agent, _) = AgentMachine::start(spec, NOW).unwrap();
    let text = table(agent, &events, shown);
    assert!(text.contains(&format!("{:?}", Resource::Wall)), "{text}");
    compare("src/agent/machine/tests/agent.txt", &text);
}
