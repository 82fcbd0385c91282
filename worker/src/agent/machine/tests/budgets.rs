//! Budgets that are used up: ask, stop, degrade; time; money that nobody named.

use super::*;
use crate::agent::ledger::{Amount, Resource, TopUp};
use crate::agent::spec::{Price, Share};

fn endless(limits: Value) -> Stage {
    let more = json!({ "tools": [look(json!({}))], "limits": limits, "max_output_tokens": 100,
        "price": { "input": 1_000_000, "output": 1_000_000 } });
    let mut n = 0;
    let model: ModelFunction = Box::new(move |_| {
        n += 1;
        Ok(says("", &[("look", json!({ "at": n }))]))
    });
    Stage::new(spec(more), model, echo())
}

#[test]
fn every_limit_halts_the_agent_and_a_top_up_goes_on() {
    let table = [
        (json!({ "max_steps": 3 }), Resource::Steps, TopUp { calls: Some(2), ..TopUp::default() }),
        (json!({ "max_tool_calls": 3 }), Resource::ToolCalls, TopUp { calls: Some(2), ..TopUp::default() }),
        (json!({ "max_tokens": 250 }), Resource::Tokens, TopUp { tokens: Some(200), ..TopUp::default() }),
        (json!({ "max_cost_micros": 400 }), Resource::Cost, TopUp { cost_micros: Some(200), ..TopUp::default() }),
    ];
    for (limits, resource, more) in table {
        let mut stage = endless(limits.clone());
        stage.play();
        assert_eq!(stage.agent.halt(), Some(&Halt::Budget { resource }), "{limits}");
        let before = stage.asked.len();
        stage.handle(AgentEvent::Resume);
        assert_eq!(stage.asked.len(), before, "only a top-up goes on");
        stage.handle(AgentEvent::TopUp(TopUp::default()));
        assert_eq!(stage.agent.halt(), Some(&Halt::Budget { resource }), "nothing was added: {limits}");
        stage.handle(AgentEvent::TopUp(more));
        stage.play();
        assert!(stage.asked.len() > before, "{limits}");
        assert_eq!(stage.agent.halt(), Some(&Halt::Budget { resource }), "{limits}");
    }
}

/// An endless agent that was lent so many tokens by the run that it belongs to.
fn sharing(tokens: u64, limits: Value) -> Stage {
    let mut stage = endless(json!({}));
    let mut own = limits;
    own["share"] = json!({ "tokens": tokens });
    let limits = serde_json::from_value(own).unwrap();
    let spec = AgentSpec { report_to: Some("run".to_owned()), limits, ..stage.agent.spec().clone() };
    let model = std::mem::replace(&mut stage.model, script(vec![says("", &[])]));
    Stage::new(spec, model, echo())
}

/// G41: an agent whose share is too short for a whole call asks for more and begins nothing until it is answered; as
/// the last of it, it spends what is left, and ends.
#[test]
fn a_share_is_asked_for_and_the_last_of_it_is_used_up() {
    let mut stage = sharing(180, json!({}));
    stage.play();
    let Some(Halt::Share { resource: Resource::Tokens, wanted }) = stage.agent.halt().cloned() else {
        panic!("{:?}", stage.agent.halt())
    };
    assert!((1..180).contains(&wanted), "what is missing to a whole call, not a call: {wanted}");
    assert!(stage.model_calls().iter().all(|call| call.max_tokens == 100), "no answer is cut short");
    assert_eq!(stage.agent.query("parked", stage.now).unwrap()["parked"], false, "people cannot help");
    let before = stage.asked.len();
    for nothing in [AgentEvent::Resume, AgentEvent::TopUp(TopUp { tokens: Some(1_000), ..TopUp::default() })] {
        stage.handle(nothing);
        assert_eq!(stage.asked.len(), before, "only the run lends");
    }
    let lent = |tokens: u64, last: bool| {
        AgentEvent::Lent(Lent { more: Share { tokens: Some(tokens), cost_micros: None }, calls: None, last })
    };
    stage.handle(lent(wanted, false));
    stage.play();
    assert!(stage.asked.len() > before && matches!(stage.agent.halt(), Some(Halt::Share { .. })));
    stage.handle(lent(0, true));
    stage.play();
    assert!(stage.agent.is_over());
    let output = stage.agent.output();
    assert_eq!(output.stop, AgentStopReason::Budget { resource: Resource::Tokens, lent: true });
    assert!(output.spent.tokens <= 180 + wanted, "{output:?}");
    assert!(stage.model_calls().last().unwrap().max_tokens < 100, "the last calls take what there is");
}

/// A limit of the agent's own is its own business, however much it was lent.
#[test]
fn a_share_does_not_raise_a_limit() {
    let mut stage = sharing(5_000, json!({ "max_tokens": 250 }));
    stage.play();
    assert_eq!(stage.agent.halt(), Some(&Halt::Budget { resource: Resource::Tokens }));
    let mut stage = sharing(150, json!({ "max_tokens": 250 }));
    stage.play();
    let Some(Halt::Share { wanted, .. }) = stage.agent.halt() else { panic!("{:?}", stage.agent.halt()) };
    assert!(*wanted <= 100, "no more than its limit lets it have: {wanted}");
}

/// Whom a worker calls has a part of its share, which nobody can add to: it ends there and asks no person.
#[test]
fn an_agent_below_ends_with_its_part_of_a_share() {
    let limits = json!({ "share": { "tokens": 4_000, "cost_micros": 9_000 } });
    let more = json!({ "report_to": "run", "limits": limits, "max_output_tokens": 100,
        "tools": [{ "name": "ask", "does": { "agent": {} } }] });
    let model = script(vec![says("", &[("ask", json!({ "task": "go" }))]), says("done", &[])]);
    let mut stage = Stage::new(spec(more), model, echo());
    stage.play();
    let below = stage.asked.iter().find_map(|ask| match ask {
        AgentRequest::Child { spec, .. } => Some(spec.limits.clone()),
        _ => None,
    });
    let below = below.expect("an agent is called");
    assert_eq!((below.share, below.stops_at), (None, vec![Resource::Tokens, Resource::Cost]));
    assert!(below.max_tokens.is_some_and(|tokens| tokens <= 2_000) && below.max_cost_micros.is_some());
}

/// Where the run's money is limited, an agent makes no other call after one of unknown price: it waits for leave of the run,
/// or ends, as the run wants it; and whom it calls ends too.
#[test]
fn a_call_of_unknown_price_is_the_last_before_the_run_gives_leave() {
    let unpriced = |limits: Value| {
        let mut stage = sharing(100_000, limits);
        let mut inner = std::mem::replace(&mut stage.model, script(vec![says("", &[])]));
        stage.model = Box::new(move |call| inner(call).map(|answer| ModelAnswer { cost_micros: None, ..answer }));
        let spec = AgentSpec { price: None, ..stage.agent.spec().clone() };
        let mut stage = Stage::new(spec, stage.model, echo());
        stage.play();
        stage
    };
    let mut stage = unpriced(json!({ "needs_prices": true, "max_steps": 5 }));
    assert_eq!(stage.agent.halt(), Some(&Halt::Share { resource: Resource::Unpriced, wanted: 1 }));
    assert_eq!((stage.model_calls().len(), stage.agent.output().unknown.unpriced_calls), (1, 1));
    stage.handle(AgentEvent::Lent(Lent { more: Share::default(), calls: None, last: false }));
    stage.play();
    assert_eq!(stage.agent.halt(), Some(&Halt::Budget { resource: Resource::Steps }), "leave is given once");
    let stage = unpriced(json!({ "needs_prices": true, "stops_at": ["unpriced"] }));
    assert_eq!(stage.agent.output().stop, AgentStopReason::Budget { resource: Resource::Unpriced, lent: false });
    assert_eq!(stage.model_calls().len(), 1);

    let more = json!({ "report_to": "run", "limits": { "needs_prices": true },
        "tools": [{ "name": "ask", "does": { "agent": {} } }] });
    let model = script(vec![says("", &[("ask", json!({ "task": "go" }))]), says("done", &[])]);
    let mut stage = Stage::new(spec(more), model, echo());
    stage.play();
    assert_eq!(below(&stage).limits.stops_at, vec![Resource::Unpriced]);
}

/// The last of the money is not the last of the tokens.
#[test]
fn what_is_the_last_is_said_of_each() {
    let mut stage = sharing(180, json!({}));
    stage.play();
    assert!(matches!(stage.agent.halt(), Some(Halt::Share { resource: Resource::Tokens, .. })));
    let money = Share { cost_micros: Some(1), tokens: None };
    stage.handle(AgentEvent::Lent(Lent { more: money, calls: None, last: true }));
    stage.play();
    assert!(matches!(stage.agent.halt(), Some(Halt::Share { .. })), "it asks for tokens again");
}

/// Who has no supervisor has nobody to ask.
#[test]
fn a_share_without_a_supervisor_is_the_last() {
    let mut stage = sharing(180, json!({}));
    let spec = AgentSpec { report_to: None, ..stage.agent.spec().clone() };
    let model = std::mem::replace(&mut stage.model, script(vec![says("", &[])]));
    let mut stage = Stage::new(spec, model, echo());
    assert_eq!(stage.output().stop, AgentStopReason::Budget { resource: Resource::Tokens, lent: true });
    // A limit of its own that ends it is not the run's.
    let mut stage = sharing(5_000, json!({ "max_tokens": 250, "on_exhausted": "stop" }));
    assert_eq!(stage.output().stop, AgentStopReason::Budget { resource: Resource::Tokens, lent: false });
}

#[test]
fn with_stop_the_agent_ends_with_what_there_is() {
    let mut stage = endless(json!({ "max_steps": 3, "on_exhausted": "stop" }));
    let output = stage.output();
    assert_eq!(output.stop, AgentStopReason::Budget { resource: Resource::Steps, lent: false });
    assert_eq!(output.spent.steps, 3);
}

#[test]
fn with_degrade_a_cheaper_model_goes_on_and_then_the_agent_stops() {
    let cheap = json!({ "model": "small", "price": { "input": 1, "output": 1 }, "at_permille": 500 });
    let mut stage = endless(json!({ "max_cost_micros": 600, "on_exhausted": "degrade", "degrade": cheap }));
    let output = stage.output();
    let models: Vec<&str> = stage.model_calls().iter().map(|call| call.model.as_str()).collect();
    assert_eq!((models[0], models.last()), ("big", Some(&"small")));
    assert!(models.is_sorted(), "it never goes back: {models:?}");
    assert!(matches!(output.stop, AgentStopReason::Budget { .. }), "{output:?}");
    assert!(output.by_model.contains_key("small"));
}

#[test]
fn a_call_gets_no_more_tokens_than_are_left() {
    let mut stage = endless(json!({ "max_tokens": 180 }));
    stage.play();
    let most: Vec<u32> = stage.model_calls().iter().map(|call| call.max_tokens).collect();
    assert!(most[0] == 100 && most.last().unwrap() < &100, "{most:?}");
}

#[test]
fn money_that_nobody_named_halts_an_agent_whose_money_is_limited() {
    let unpriced = |limits: Value| {
        let mut stage = endless(limits);
        let mut inner = std::mem::replace(&mut stage.model, script(vec![says("", &[])]));
        stage.model = Box::new(move |call| {
            // Neither money nor tokens, by which it would be reckoned.
            let mut answer = ModelAnswer { cost_micros: None, ..inner(call)? };
            answer.response.usage = Usage::default();
            Ok(answer)
        });
        stage.play();
        stage
    };
    let mut stage = unpriced(json!({ "max_cost_micros": 100_000, "max_steps": 5 }));
    assert_eq!(stage.agent.halt(), Some(&Halt::Budget { resource: Resource::Unpriced }));
    assert_eq!(stage.agent.output().unknown.unpriced_calls, 1);
    stage.handle(AgentEvent::TopUp(TopUp { allow_unpriced: true, ..TopUp::default() }));
    stage.play();
    assert_eq!(stage.agent.halt(), Some(&Halt::Budget { resource: Resource::Steps }));
    let stage = unpriced(json!({ "max_steps": 5 }));
    assert_eq!(stage.agent.halt(), Some(&Halt::Budget { resource: Resource::Steps }), "no money is limited");
}

/// The price that a spec names counts where a call reports none (guide, models).
#[test]
fn a_call_that_reports_no_money_costs_what_the_spec_says() {
    let price = json!({ "input": 3_000_000, "output": 15_000_000 });
    let more = json!({ "price": price, "tools": [look(json!({}))], "limits": { "max_steps": 2 } });
    let calls = [1, 2].map(|n| ModelAnswer { cost_micros: None, ..says("", &[("look", json!({ "at": n }))]) });
    let mut stage = Stage::new(spec(more), script(calls.to_vec()), echo());
    stage.play();
    assert_eq!(stage.agent.halt(), Some(&Halt::Budget { resource: Resource::Steps }));
    assert_eq!(stage.agent.output().spent.cost_micros, 210);
}

#[test]
fn time_ends_an_agent_and_waiting_for_people_takes_none() {
    let more =
        json!({ "tools": [look(json!({ "approval": true }))], "limits": { "wall_ms": 1_000, "on_exhausted": "stop" } });
    let model = script(vec![says("", &[("look", json!({}))]), says("done", &[])]);
    let mut stage = Stage::new(spec(more), model, echo());
    stage.play();
    let asked = stage.state()["approvals"][0].clone();
    stage.now = stage.now.plus(Duration::from_secs(86_400));
    stage.handle(AgentEvent::WallFired);
    assert!(!stage.agent.is_over(), "a person is waited for");
    let text = |name: &str| asked[name].as_str().unwrap().to_owned();
    stage.handle(AgentEvent::Approval(ToolApprovalResponse {
        id: text("id"),
        hash: text("hash"),
        approved: true,
        reason: String::new(),
        by: String::new(),
        arguments: None,
    }));
    let Some(AgentRequest::WallTimer { at }) =
        stage.asked.iter().rev().find(|ask| matches!(ask, AgentRequest::WallTimer { .. }))
    else {
        panic!("the time runs again")
    };
    stage.now = *at;
    stage.handle(AgentEvent::WallFired);
    let output = stage.output();
    assert_eq!(output.stop, AgentStopReason::Budget { resource: Resource::Wall, lent: false });
    assert_eq!(output.spent.tool_calls, 1, "what was under way was ended and counted");
}

/// G41: when the time of the run above is over, the call that is under way ends and is paid, and nothing begins, not even for
/// people to be asked.
#[test]
fn the_time_of_the_run_lets_what_is_under_way_end_and_begins_nothing() {
    let mut stage = endless(json!({ "wall_ms": 1_000, "wall_of_run": true }));
    let within = |ask: &AgentRequest| matches!(ask, AgentRequest::Model { call, .. } if call.within_ms == Some(1_000));
    assert!(stage.asked.iter().any(within), "it is not tried again later than that: {:?}", stage.asked);
    stage.now = stage.now.plus(Duration::from_secs(2));
    stage.handle(AgentEvent::WallFired);
    assert!(!stage.agent.is_over(), "a call is under way");
    stage.play();
    let output = stage.output();
    assert_eq!(output.stop, AgentStopReason::Budget { resource: Resource::Wall, lent: true });
    assert_eq!((stage.model_calls().len(), output.spent.steps, output.spent.tool_calls), (1, 1, 0));
}

#[test]
fn with_ask_time_that_ran_out_is_asked_for_before_the_next_thing_begins() {
    let mut stage = endless(json!({ "wall_ms": 1_000 }));
    stage.now = stage.now.plus(Duration::from_secs(2));
    stage.handle(AgentEvent::WallFired);
    stage.play();
    assert_eq!(stage.agent.halt(), Some(&Halt::Budget { resource: Resource::Wall }));
    assert_eq!(stage.model_calls().len(), 1);
    stage.now = stage.now.plus(Duration::from_secs(3_600));
    stage.handle(AgentEvent::TopUp(TopUp { wall_ms: Some(5_000), ..TopUp::default() }));
    assert_eq!(stage.agent.halt(), None);
    assert_eq!(stage.agent.query("budget", stage.now).unwrap()["wall_left_ms"], 5_000);
}

#[test]
fn what_a_lost_agent_spent_is_all_that_it_had() {
    let more = json!({ "tools": [{ "name": "ask", "does": { "agent": {} } }], "limits": { "max_tokens": 10_000, "max_steps": 9 } });
    let model = script(vec![
        says("", &[("ask", json!({ "task": "t", "max_tokens": 700, "max_steps": 2 }))]),
        says("done", &[]),
    ]);
    let mut stage = Stage::new(spec(more), model, echo());
    stage.answer(0);
    let key = stage.open.iter().find_map(|ask| match ask {
        AgentRequest::Child { key, .. } => Some(*key),
        _ => None,
    });
    stage.open.clear();
    let fault = Fault::new(FaultClass::Lost, "terminated");
    stage.handle(AgentEvent::Child { key: key.unwrap(), origin: 9, result: Err(fault), output: None });
    let output = stage.output();
    assert_eq!((output.spent.tokens, output.spent.steps), (730, 4));
    assert_eq!((output.unknown.estimated_calls, output.unknown.unpriced_calls), (1, 1), "nobody says what it cost");
}

/// A stream that was cut, again and again, may have been paid for each time; a key that was refused costs nothing.
#[test]
fn a_call_that_failed_is_spent_as_it_was_held_unless_it_was_refused() {
    for (charged, priced) in [(true, true), (true, false), (false, true)] {
        let mut failed = false;
        let model: ModelFunction = Box::new(move |_| match std::mem::replace(&mut failed, true) {
            false => Err(Fault { charged, ..Fault::new(FaultClass::NeedsHuman, "the stream was cut") }),
            true => Ok(says("done", &[])),
        });
        let price = if priced { json!({ "input": 1_000_000, "output": 1_000_000 }) } else { json!(null) };
        let mut stage = Stage::new(spec(json!({ "price": price, "max_output_tokens": 100 })), model, echo());
        let held = stage.agent.ledger().held();
        stage.play();
        let spent = stage.agent.ledger().spent();
        let lost = if priced { held } else { Amount { cost_micros: 0, ..held } };
        assert_eq!(spent, if charged { lost } else { Default::default() });
        stage.handle(AgentEvent::Resume);
        let output = stage.output();
        let (tally, unknown) = (output.by_model["big"], output.unknown);
        assert_eq!((tally.calls, tally.tokens), (output.spent.steps, output.spent.tokens), "told by model as well");
        assert_eq!((tally.cost_micros, tally.unpriced_calls), (output.spent.cost_micros, unknown.unpriced_calls));
        assert_eq!(unknown.unpriced_calls, u64::from(charged && !priced));
        assert_eq!(unknown.estimated_calls, u64::from(charged));
    }
}

/// G41: attempts that were cut before there was an answer, or none, are spent as they were held, and are no steps of their own.
#[test]
fn an_attempt_that_was_cut_counts() {
    for (answered, priced) in [(true, true), (true, false), (false, true)] {
        let mut first = true;
        let model: ModelFunction = Box::new(move |_| match (std::mem::take(&mut first), answered) {
            (true, true) => Ok(ModelAnswer { cut: 2, ..says("done", &[]) }),
            (true, false) => Err(Fault { cut: 2, ..Fault::new(FaultClass::NeedsHuman, "a refused key") }),
            (false, _) => Ok(says("done", &[])),
        });
        let price = if priced { json!({ "input": 1_000_000, "output": 1_000_000 }) } else { json!(null) };
        let mut stage = Stage::new(spec(json!({ "price": price, "max_output_tokens": 100 })), model, echo());
        let held = stage.agent.ledger().held();
        stage.play();
        if !answered {
            assert_eq!(stage.agent.ledger().spent().tokens, 2 * held.tokens);
            stage.handle(AgentEvent::Resume);
            stage.play();
        }
        let output = stage.output();
        let (tally, unknown) = (output.by_model["big"], output.unknown);
        assert_eq!((output.spent.steps, tally.calls), (1, 3));
        assert_eq!(output.spent.tokens, 2 * held.tokens + 15);
        assert_eq!(output.spent.cost_micros, if priced { 2 * held.cost_micros } else { 0 } + 15);
        assert_eq!((unknown.estimated_calls, unknown.unpriced_calls), (2, if priced { 0 } else { 2 }));
        assert_eq!((tally.tokens, tally.cost_micros), (output.spent.tokens, output.spent.cost_micros));
    }
}

/// Providers are sent the tools with a call for a summary as well.
#[test]
fn a_call_for_a_summary_holds_what_its_tools_take() {
    let more = json!({ "tools": [look(json!({ "description": "d".repeat(4_000) }))], "max_output_tokens": 100,
        "limits": { "context_tokens": 1_500 } });
    let mut at = 0;
    let model: ModelFunction = Box::new(move |_| {
        at += 1;
        Ok(says(&"x".repeat(300), &[("look", json!({ "at": at }))]))
    });
    let mut stage = Stage::new(spec(more), model, echo());
    let sums_up =
        |ask: &AgentRequest| matches!(ask, AgentRequest::Model { call, .. } if call.purpose == CallPurpose::Summary);
    for _ in 0..40 {
        if stage.open.iter().any(sums_up) {
            break;
        }
        stage.answer(0);
    }
    assert!(stage.open.iter().any(sums_up), "{}", stage.state());
    assert!(stage.agent.ledger().held().tokens > 1_100, "{:?}", stage.agent.ledger().held());
}

fn below(stage: &Stage) -> &AgentSpec {
    let child = |ask: &AgentRequest| matches!(ask, AgentRequest::Child { .. });
    match stage.asked.iter().rfind(|ask| child(ask)) {
        Some(AgentRequest::Child { spec, .. }) => spec,
        _ => panic!("{}", stage.state()),
    }
}

/// What the budget forbids the caller, no delegation gives back.
#[test]
fn a_degraded_agent_delegates_with_the_cheaper_model() {
    for named in [json!({}), json!({ "model": "dear" })] {
        let more = json!({ "tools": [{ "name": "ask", "does": { "agent": named } }], "limits": { "max_tokens": 20_000,
            "on_exhausted": "degrade", "degrade": { "model": "small", "at_permille": 0, "price": { "input": 1, "output": 2 } } } });
        let model = script(vec![says("", &[("ask", json!({ "task": "t" }))]), says("done", &[])]);
        let mut stage = Stage::new(spec(more), model, echo());
        stage.answer(0);
        let below = below(&stage);
        assert_eq!((below.model.as_str(), below.price), ("small", Some(Price { input: 1, output: 2 })));
    }
}

#[test]
fn calls_of_unknown_price_that_were_allowed_are_allowed_below() {
    for allow_unpriced in [true, false] {
        let more = json!({ "tools": [{ "name": "ask", "does": { "agent": {} } }] });
        let model = script(vec![says("", &[("ask", json!({ "task": "t" }))]), says("done", &[])]);
        let mut stage = Stage::new(spec(more), model, echo());
        stage.handle(AgentEvent::TopUp(TopUp { allow_unpriced, ..TopUp::default() }));
        stage.answer(0);
        assert_eq!(below(&stage).limits.allow_unpriced, allow_unpriced);
    }
}
