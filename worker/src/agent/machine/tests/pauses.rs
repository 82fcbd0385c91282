//! An agent that stands still: pauses, halts, and what of both is told.

use super::*;
use crate::agent::ledger::{Resource, TopUp};

fn pause(stage: &mut Stage) {
    stage.handle(AgentEvent::Pause { reason: "lunch".into() });
}

/// Whatever comes in while it is paused is kept; what would follow from it begins at the resume.
#[test]
fn a_paused_agent_takes_in_what_ends_and_begins_nothing() {
    let tools = json!({ "tools": [look(json!({}))], "limits": { "fan_out": 1 } });
    let calls = [("look", json!({ "at": 1 })), ("look", json!({ "at": 2 }))];
    let mut stage = Stage::new(spec(tools), script(vec![says("", &calls), says("done", &[])]), echo());
    pause(&mut stage);
    stage.answer(0);
    assert!(stage.tools().is_empty(), "the model has answered, and no tool is called");
    assert_eq!((&stage.state()["phase"], &stage.state()["paused"]), (&json!("paused"), &json!("lunch")));
    stage.handle(AgentEvent::Resume);
    assert_eq!(stage.tools().len(), 1);
    pause(&mut stage);
    stage.answer(0);
    assert_eq!((stage.tools().len(), stage.model_calls().len()), (1, 1), "the second call waits");
    stage.handle(AgentEvent::Resume);
    pause(&mut stage);
    stage.answer(0);
    assert_eq!(stage.model_calls().len(), 1, "all results are there, and the model is not asked");
    stage.handle(AgentEvent::Resume);
    let output = stage.output();
    assert_eq!((output.stop, output.spent.steps, output.spent.tool_calls), (AgentStopReason::Completed, 2, 2));
}

#[test]
fn an_approval_and_a_top_up_count_and_begin_nothing_while_it_is_paused() {
    let tools = json!({ "tools": [look(json!({ "approval": true }))], "limits": { "max_steps": 1 } });
    let model = script(vec![says("", &[("look", json!({ "at": 1 }))]), says("done", &[])]);
    let mut stage = Stage::new(spec(tools), model, echo());
    stage.play();
    pause(&mut stage);
    let asked = stage.state()["approvals"][0].clone();
    let text = |name: &str| asked[name].as_str().unwrap().to_owned();
    let (id, hash) = (text("id"), text("hash"));
    let (reason, by) = (String::new(), String::new());
    stage.handle(AgentEvent::Approval(ToolApprovalResponse { id, hash, approved: true, reason, by, arguments: None }));
    assert!(stage.tools().is_empty());
    stage.handle(AgentEvent::Resume);
    stage.play();
    assert_eq!(stage.agent.halt(), Some(&Halt::Budget { resource: Resource::Steps }));
    pause(&mut stage);
    stage.handle(AgentEvent::TopUp(TopUp { calls: Some(5), ..TopUp::default() }));
    assert_eq!((stage.agent.halt(), stage.model_calls().len()), (None, 1), "the halt is lifted, the pause is not");
    stage.handle(AgentEvent::Resume);
    assert_eq!(stage.output().stop, AgentStopReason::Completed);
}

#[test]
fn a_pause_takes_no_time_and_a_cancellation_ends_it() {
    let more = json!({ "limits": { "wall_ms": 1_000, "on_exhausted": "stop" } });
    let mut stage = Stage::new(spec(more), script(vec![says("", &[("none", json!({}))])]), echo());
    pause(&mut stage);
    stage.answer(0);
    stage.now = stage.now.plus(Duration::from_secs(3_600));
    stage.handle(AgentEvent::WallFired);
    assert!(!stage.agent.is_over(), "nothing is under way, and people are waited for");
    stage.handle(AgentEvent::Cancel { reason: "enough".into() });
    assert_eq!(stage.output().stop, AgentStopReason::Canceled { reason: "enough".into() });
}

#[test]
fn what_waits_for_people_says_that_it_is_parked_and_for_what() {
    let parked = |stage: &Stage| stage.agent.query("parked", stage.now).unwrap();
    let tools = json!({ "tools": [look(json!({ "approval": true }))], "limits": { "max_steps": 1 } });
    let model = script(vec![says("", &[("look", json!({ "at": 1 }))])]);
    let mut stage = Stage::new(spec(tools), model, echo());
    pause(&mut stage);
    assert_eq!(parked(&stage)["parked"], false, "a call is under way");
    stage.answer(0);
    assert_eq!(parked(&stage)["waits"], json!(["a resume: it is paused (lunch)"]));
    stage.handle(AgentEvent::Resume);
    let waits = parked(&stage);
    assert_eq!(waits["parked"], true);
    assert!(waits["waits"][0].as_str().unwrap().starts_with("the approval \"a"), "{waits}");
    stage.handle(AgentEvent::Cancel { reason: "enough".into() });
    assert_eq!(parked(&stage)["parked"], false, "it is over");
}

/// A top-up that is too small ends one halt and begins the next in the same moment.
#[test]
fn a_halt_that_follows_on_a_halt_is_another_one() {
    let mut stage = Stage::new(spec(json!({ "limits": { "max_steps": 0 } })), script(vec![says("done", &[])]), echo());
    assert_eq!(stage.agent.halts(), 1);
    stage.handle(AgentEvent::TopUp(TopUp { tokens: Some(1), ..TopUp::default() }));
    assert_eq!((stage.agent.halt(), stage.agent.halts()), (Some(&Halt::Budget { resource: Resource::Steps }), 2));
    stage.handle(AgentEvent::Resume);
    assert_eq!(stage.agent.halts(), 2, "it is the same halt still");
}

/// What people said before it began counts before its first call: a pause stops that one too, whatever came before it.
#[test]
fn a_pause_from_before_the_first_call_stops_it() {
    let pause = || AgentEvent::Pause { reason: "wait".into() };
    let begun = |heard| AgentMachine::start_after(spec(json!({})), Timestamp(0), heard).unwrap();
    assert_eq!(begun(vec![]).1.len(), 1, "the first call");
    let (mut agent, asks) = begun(vec![pause(), AgentEvent::Resume, pause()]);
    assert_eq!(asks, []);
    assert_eq!(agent.handle(AgentEvent::Resume, Timestamp(1)).len(), 1);
    assert_eq!(begun(vec![pause(), AgentEvent::Resume]).1.len(), 1);
}
