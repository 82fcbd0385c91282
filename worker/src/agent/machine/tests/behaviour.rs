//! What an agent does: calls and results, repair, loops, compaction, approvals, delegation, pauses and ends.

use super::*;

#[test]
fn an_agent_calls_tools_until_it_has_an_answer() {
    let tools = json!({ "tools": [look(json!({}))] });
    let model =
        script(vec![says("", &[("look", json!({ "at": 1 })), ("look", json!({ "at": 2 }))]), says("done", &[])]);
    let mut stage = Stage::new(spec(tools), model, echo());
    let output = stage.output();
    assert_eq!((output.stop, output.text.as_str()), (AgentStopReason::Completed, "done"));
    assert_eq!((output.spent.steps, output.spent.tool_calls), (2, 2));
    assert_eq!((output.spent.tokens, output.spent.cost_micros), (30, 30));
    let calls = stage.model_calls();
    assert_eq!((calls[0].after, &calls[0].items), (None, &vec![TranscriptItem::System, TranscriptItem::Task]));
    assert_eq!((calls[1].after, &calls[1].items), (Some(1), &vec![TranscriptItem::Given(2), TranscriptItem::Given(3)]));
}

#[test]
fn results_stand_in_the_order_of_the_calls_whatever_ends_first() {
    let tools = json!({ "tools": [look(json!({}))], "limits": { "fan_out": 2 } });
    let calls: Vec<(&str, Value)> = (0..4).map(|n| ("look", json!({ "at": n }))).collect();
    let mut stage = Stage::new(spec(tools), script(vec![says("", &calls), says("done", &[])]), echo());
    stage.answer(0);
    assert_eq!(stage.tools().len(), 2, "only as many as may fan out");
    stage.answer(1); // the second ends first
    assert_eq!(stage.tools().len(), 3);
    stage.answer(1);
    stage.answer(1);
    assert_eq!(stage.model_calls().len(), 1, "the first is still under way");
    stage.answer(0);
    assert_eq!(stage.model_calls()[1].items, [5, 2, 3, 4].map(TranscriptItem::Given));
    assert_eq!(stage.output().stop, AgentStopReason::Completed);
}

#[test]
fn an_answer_that_does_not_conform_is_sent_back_and_counted() {
    let schema = json!({ "schema": { "name": "n", "schema": { "type": "object", "required": ["n"] } } });
    let model = script(vec![says("no JSON", &[]), says("{}", &[]), says("{\"n\":1}", &[])]);
    let mut stage = Stage::new(spec(schema.clone()), model, echo());
    let output = stage.output();
    assert_eq!((output.stop, output.value), (AgentStopReason::Completed, Some(json!({ "n": 1 }))));
    assert_eq!(output.spent.steps, 3);
    assert!(stage.told()[0].contains("/n: it is missing"), "{:?}", stage.told());

    let mut stage = Stage::new(spec(schema), script(vec![says("never", &[])]), echo());
    let output = stage.output();
    assert!(matches!(output.stop, AgentStopReason::InvalidOutput { .. }), "{output:?}");
    assert_eq!(output.spent.steps, 3, "the answer and two repairs");
}

#[test]
fn what_the_activity_found_wrong_is_sent_back() {
    let mut wrong = says("{\"n\":1}", &[]);
    wrong.problems = vec!["/n: too small".into()];
    let mut right = says("{\"n\":2}", &[]);
    right.value = Some(json!({ "n": 2 }));
    let schema = json!({ "schema": { "name": "n", "schema": { "pattern": "beyond our own words" } } });
    let mut stage = Stage::new(spec(schema), script(vec![wrong, right]), echo());
    assert_eq!(stage.output().value, Some(json!({ "n": 2 })));
    assert!(stage.told()[0].contains("/n: too small"));
}

#[test]
fn a_loop_is_refused_and_then_ended() {
    let tools = json!({ "tools": [look(json!({}))] });
    let again = says("", &[("look", json!({ "at": 1 }))]);
    let mut stage = Stage::new(spec(tools), script(vec![again]), echo());
    let output = stage.output();
    assert_eq!(output.stop, AgentStopReason::Loop);
    assert_eq!(stage.tools().len(), 2, "the third is refused");
    assert_eq!(output.spent.steps, 5);
    assert!(stage.told()[0].starts_with("Refused: this very call"), "{:?}", stage.told());
}

#[test]
fn members_in_another_order_are_the_same_call_and_watching_is_no_loop() {
    let tool = json!({ "name": "look", "parameters": { "type": "object" }, "does": { "activity": { "activity_type": "look" } } });
    let (one, other) =
        (says("", &[("look", json!({ "a": 1, "b": 2 }))]), says("", &[("look", json!({ "b": 2, "a": 1 }))]));
    let model = script(vec![one.clone(), other.clone(), one, says("done", &[])]);
    let mut stage = Stage::new(spec(json!({ "tools": [tool] })), model, echo());
    stage.play();
    assert_eq!(stage.tools().len(), 2);

    let watching = json!({ "tools": [look(json!({ "repeatable": true }))] });
    let mut answers = vec![says("", &[("look", json!({}))]); 9];
    answers.push(says("done", &[]));
    let mut stage = Stage::new(spec(watching), script(answers), echo());
    assert_eq!((stage.output().stop, stage.tools().len()), (AgentStopReason::Completed, 9));
}

#[test]
fn a_long_conversation_is_summed_up_in_a_call_of_its_own() {
    let more = json!({ "tools": [look(json!({}))], "limits": { "context_tokens": 700, "max_steps": 20 } });
    let mut answers: Vec<ModelAnswer> =
        (0..6).map(|n| says(&"x".repeat(400), &[("look", json!({ "at": n }))])).collect();
    answers.push(says("done", &[]));
    let mut left = VecDeque::from(answers);
    let model: ModelFunction = Box::new(move |call| match call.purpose {
        CallPurpose::Summary => Ok(says("in short", &[])),
        CallPurpose::Answer => Ok(left.pop_front().unwrap()),
    });
    let tool: ToolFunction = Box::new(|_, _| Ok(json!("y".repeat(200))));
    let mut stage = Stage::new(spec(more), model, tool);
    let output = stage.output();
    assert_eq!(output.stop, AgentStopReason::Completed);
    assert!(output.compactions > 0);
    let calls = stage.model_calls();
    let summed = calls.iter().position(|call| call.purpose == CallPurpose::Summary).unwrap();
    let after = calls[summed + 1];
    assert_eq!(after.after, None, "the conversation is said anew");
    assert!(
        matches!(after.items[..3], [TranscriptItem::System, TranscriptItem::Task, TranscriptItem::Summary(_)]),
        "{:?}",
        after.items
    );
    assert!(matches!(after.items[3], TranscriptItem::Response(_)), "no result without its call: {:?}", after.items);
    assert_eq!(output.spent.steps, calls.len() as u64, "summaries are counted too");
}

/// A stage whose summaries are these, one after the other, and whose answers call tools until six are given.
fn summed_up_by(summaries: Vec<ModelAnswer>) -> Stage {
    let more = json!({ "tools": [look(json!({}))], "max_output_tokens": 9_000,
        "limits": { "context_tokens": 700, "max_steps": 20 } });
    let (mut summaries, mut said) = (script(summaries), 0);
    let model: ModelFunction = Box::new(move |call| match call.purpose {
        CallPurpose::Summary => summaries(call),
        CallPurpose::Answer => {
            said += 1;
            Ok(if said > 6 { says("done", &[]) } else { says(&"x".repeat(400), &[("look", json!({ "at": said }))]) })
        }
    });
    Stage::new(spec(more), model, Box::new(|_, _| Ok(json!("y".repeat(200)))))
}

fn ended(content: &str, stop: ModelStop) -> ModelAnswer {
    let mut answer = says(content, &[]);
    answer.response.stop = stop;
    answer
}

#[test]
fn what_is_no_summary_replaces_nothing_and_is_asked_for_again() {
    let cut = ended("in sho", ModelStop::Length);
    for wrong in [ended("No.", ModelStop::Refusal), cut.clone(), says(" \n", &[])] {
        let mut stage = summed_up_by(vec![wrong, says("in short", &[])]);
        assert_eq!(stage.output().stop, AgentStopReason::Completed);
        let calls = stage.model_calls();
        let first = calls.iter().position(|call| call.purpose == CallPurpose::Summary).unwrap();
        assert_eq!(calls[first + 1].purpose, CallPurpose::Summary, "it is asked for again");
        assert_eq!(calls[first].items, calls[first + 1].items, "nothing of the conversation is lost");
        assert!(matches!(calls[first + 2].items[2], TranscriptItem::Summary(_)), "{:?}", calls[first + 2]);
    }
    let mut stage = summed_up_by(vec![cut, says("in short", &[])]);
    stage.play();
    let most: Vec<u32> = stage.model_calls().iter().map(|call| call.max_tokens).collect();
    assert!(most.windows(2).any(|two| two == [2_048, 4_096]), "one that was cut may be longer: {most:?}");
}

#[test]
fn people_are_asked_when_there_is_no_summary_again_and_again() {
    let refused = ended("No.", ModelStop::Refusal);
    let mut stage = summed_up_by(vec![refused.clone(), refused.clone(), refused, says("in short", &[])]);
    stage.play();
    let Some(Halt::NeedsHuman { why }) = stage.agent.halt() else { panic!("{}", stage.state()) };
    assert_eq!(why, "the conversation is too long, and the model refused to sum it up");
    let paid = stage.model_calls().iter().filter(|call| call.purpose == CallPurpose::Summary).count();
    assert_eq!(paid, 3, "it is not asked for for ever");
    stage.handle(AgentEvent::Resume);
    assert_eq!(stage.output().stop, AgentStopReason::Completed);
}

#[test]
fn a_conversation_that_cannot_be_shortened_ends_the_agent() {
    let more = json!({ "task": "long ".repeat(4_000), "limits": { "context_tokens": 1_000 } });
    let mut stage = Stage::new(spec(more), script(vec![says("done", &[])]), echo());
    assert_eq!(stage.output().stop, AgentStopReason::ContextExceeded);
    assert!(stage.model_calls().is_empty());

    // The summary of the summary would be as long, and asked for until the steps are used up.
    let mut stage = summed_up_by(vec![says(&"z".repeat(4_000), &[])]);
    let output = stage.output();
    assert_eq!(output.stop, AgentStopReason::ContextExceeded);
    assert!(output.compactions <= 3, "{:?}", stage.model_calls());
}

fn approving() -> Stage {
    let tools = json!({ "tools": [look(json!({ "approval": true }))] });
    let model = script(vec![says("", &[("look", json!({ "at": 1 }))]), says("done", &[])]);
    let mut stage = Stage::new(spec(tools), model, echo());
    stage.play();
    stage
}

fn response(asked: &Value, approved: bool) -> ToolApprovalResponse {
    let text = |name: &str| asked[name].as_str().unwrap().to_owned();
    let (id, hash) = (text("id"), text("hash"));
    ToolApprovalResponse { id, hash, approved, reason: "because".into(), by: "eve".into(), arguments: None }
}

#[test]
fn a_call_waits_for_a_person_and_for_the_very_arguments() {
    let mut stage = approving();
    assert!(stage.tools().is_empty());
    let asked = stage.state()["approvals"][0].clone();
    let good = response(&asked, true);
    let other = call_hash("look", &json!({ "at": 2 })).to_hex().to_string();
    for void in [
        ToolApprovalResponse { id: "a999".into(), ..good.clone() },
        ToolApprovalResponse { hash: other, ..good.clone() },
        ToolApprovalResponse { hash: String::new(), ..good.clone() },
        ToolApprovalResponse { arguments: Some(json!({ "at": 2 })), ..good.clone() },
    ] {
        stage.handle(AgentEvent::Approval(void));
        stage.play();
        assert!(stage.tools().is_empty(), "{}", stage.state());
    }
    stage.handle(AgentEvent::Approval(ToolApprovalResponse { arguments: Some(json!({ "at": 1 })), ..good.clone() }));
    stage.handle(AgentEvent::Approval(good));
    assert_eq!(stage.tools(), [("look", &json!({ "at": 1 }))]);
    assert_eq!(stage.output().stop, AgentStopReason::Completed);
}

#[test]
fn what_a_person_refuses_is_told_to_the_model() {
    let mut stage = approving();
    let asked = stage.state()["approvals"][0].clone();
    stage.handle(AgentEvent::Approval(response(&asked, false)));
    assert_eq!(stage.output().stop, AgentStopReason::Completed);
    assert!(stage.tools().is_empty());
    assert_eq!(stage.told(), ["Refused: a person said no. because"]);
}

#[test]
fn an_approval_is_used_once() {
    let tools = json!({ "tools": [look(json!({ "approval": true }))], "limits": { "loop_repeats": 0 } });
    let mut stage = Stage::new(spec(tools), script(vec![says("", &[("look", json!({ "at": 1 }))])]), echo());
    stage.play();
    let first = response(&stage.state()["approvals"][0].clone(), true);
    for _ in 0..3 {
        stage.handle(AgentEvent::Approval(first.clone()));
        stage.play();
    }
    assert_eq!(stage.tools().len(), 1, "the same call again is asked for again");
    assert_ne!(stage.state()["approvals"][0]["id"], json!(first.id));
}

#[test]
fn an_agent_that_is_called_gets_a_part_of_what_the_caller_has() {
    let more = json!({
        "tools": [look(json!({ "approval": true })), { "name": "ask", "does": { "agent": { "system": "Help." } } }],
        "limits": { "max_steps": 9, "max_tokens": 1_000_000, "depth": 1, "wall_ms": 60_000 },
    });
    let request = json!({ "task": "a part", "tools": ["look", "rm"], "max_steps": 100, "max_tokens": 500 });
    let model = script(vec![says("", &[("ask", request)]), says("done", &[])]);
    let mut stage = Stage::new(spec(more), model, echo());
    stage.answer(0);
    let below = stage.asked.iter().find_map(|ask| match ask {
        AgentRequest::Child { spec, .. } => Some(spec.clone()),
        _ => None,
    });
    let below = below.unwrap();
    let names: Vec<&str> = below.tools.iter().map(|tool| tool.name.as_str()).collect();
    assert_eq!((names, below.tools[0].approval), (vec!["look"], true));
    assert_eq!((below.limits.max_steps, below.limits.max_tokens, below.depth), (Some(8), Some(500), 1));
    assert!(below.limits.wall_ms.unwrap() <= 60_000);
    assert_eq!(stage.agent.ledger().remaining().tokens, Some(999_485), "the lease is held");
    let output = stage.output();
    assert_eq!(output.stop, AgentStopReason::Completed);
    assert_eq!((output.spent.steps, output.spent.tokens), (3, 45), "what is left of the lease came back");
}

#[test]
fn agents_do_not_delegate_deeper_than_allowed() {
    let more =
        json!({ "tools": [{ "name": "ask", "does": { "agent": {} } }], "limits": { "depth": 1, "loop_repeats": 0 } });
    let model = script(vec![says("", &[("ask", json!({ "task": "deeper" }))])]);
    let mut stage = Stage::new(spec(more), model, echo());
    stage.play();
    let depths: Vec<u32> = stage
        .asked
        .iter()
        .filter_map(|ask| match ask {
            AgentRequest::Child { spec, .. } => Some(spec.depth),
            _ => None,
        })
        .collect();
    assert!(!depths.is_empty() && depths.iter().all(|depth| *depth == 1), "{depths:?}");
}

#[test]
fn a_model_that_needs_somebody_halts_the_agent_until_it_is_resumed() {
    let mut broken = 2;
    let model: ModelFunction = Box::new(move |_| {
        broken -= 1;
        match broken {
            1 => Err(Fault::new(FaultClass::NeedsHuman, "no credit")),
            _ => Ok(says("done", &[])),
        }
    });
    let mut stage = Stage::new(spec(json!({})), model, echo());
    stage.play();
    assert_eq!(stage.agent.halt(), Some(&Halt::NeedsHuman { why: "no credit".into() }));
    assert_eq!(stage.state()["phase"], "halted");
    stage.handle(AgentEvent::TopUp(Default::default()));
    assert!(stage.agent.halt().is_some(), "money is not what is missing");
    stage.handle(AgentEvent::Resume);
    let output = stage.output();
    assert_eq!((output.stop, output.spent.steps), (AgentStopReason::Completed, 1));
}

#[test]
fn a_fatal_error_a_refusal_and_a_cut_end_the_agent() {
    let fatal: ModelFunction = Box::new(|_| Err(Fault::new(FaultClass::Fatal, "no such model")));
    let mut stage = Stage::new(spec(json!({})), fatal, echo());
    assert_eq!(stage.output().stop, AgentStopReason::Failed { message: "no such model".into() });
    for (stop, ended) in [(ModelStop::Refusal, AgentStopReason::Refused), (ModelStop::Length, AgentStopReason::Length)]
    {
        let mut answer = says("so", &[]);
        answer.response.stop = stop;
        let mut stage = Stage::new(spec(json!({})), script(vec![answer]), echo());
        assert_eq!((stage.output().stop, stage.output().text.as_str()), (ended, "so"));
    }
}

#[test]
fn a_canceled_agent_is_over_when_all_has_ended() {
    let tools = json!({ "tools": [look(json!({}))] });
    let calls = [("look", json!({ "at": 1 })), ("look", json!({ "at": 2 }))];
    let mut stage = Stage::new(spec(tools), script(vec![says("", &calls)]), echo());
    stage.answer(0);
    stage.handle(AgentEvent::Cancel { reason: "enough".into() });
    assert!(!stage.agent.is_over());
    let output = stage.output();
    assert_eq!(output.stop, AgentStopReason::Canceled { reason: "enough".into() });
    assert_eq!(output.spent.tool_calls, 2, "what was begun is counted");
}

#[test]
fn what_failed_or_was_lost_is_told_to_the_model() {
    let tools = json!({ "tools": [look(json!({}))] });
    let calls = [("look", json!({ "at": 1 })), ("look", json!({ "at": 2 }))];
    let tool: ToolFunction = Box::new(|_, input| {
        let class = if input["at"] == 1 { FaultClass::Lost } else { FaultClass::Fatal };
        Err(Fault::new(class, "why"))
    });
    let mut stage = Stage::new(spec(tools), script(vec![says("", &calls), says("done", &[])]), tool);
    stage.output();
    assert_eq!(stage.told(), ["Nobody knows whether this happened: why", "Failed: why"]);
}

#[test]
fn what_is_told_of_refusals_and_failures_is_as_short_as_a_result() {
    let tools = json!({ "tools": [look(json!({})), look(json!({ "name": "pay", "approval": true }))],
        "limits": { "result_bytes": 40 } });
    let long = "long ".repeat(1_000);
    let calls = [("look", json!({ "at": 1 })), ("look", json!({ (long.as_str()): 1 })), ("pay", json!({ "at": 2 }))];
    let failure = long.clone();
    let tool: ToolFunction = Box::new(move |_, _| Err(Fault::new(FaultClass::Fatal, failure.clone())));
    let mut stage = Stage::new(spec(tools), script(vec![says("", &calls), says("done", &[])]), tool);
    stage.play();
    let asked = stage.state()["approvals"][0].clone();
    stage.handle(AgentEvent::Approval(ToolApprovalResponse { reason: long, ..response(&asked, false) }));
    assert_eq!(stage.output().stop, AgentStopReason::Completed);
    let told = stage.told();
    assert_eq!(told.len(), 3, "{told:?}");
    for text in told {
        assert!(text.len() < 80 && text.ends_with("more bytes were cut off]"), "{text}");
    }
    assert!(stage.state().to_string().len() < 2_000, "what is shown is as short");
}

/// A provider that cannot read so long a conversation: its older part is summed up, and the agent goes on. What it cannot
/// read as a summary either is halved, as long as there is less to try.
#[test]
fn a_conversation_that_the_model_cannot_read_is_summed_up() {
    let too_long = || Err(Fault::new(FaultClass::TooLong, "maximum context length is 100 tokens"));
    let tools = json!({ "tools": [look(json!({}))] });
    for refused_summaries in [0, 1] {
        let (mut asked, mut left) = (0, refused_summaries);
        let model: ModelFunction = Box::new(move |call| {
            asked += 1;
            match (call.purpose, asked) {
                (CallPurpose::Answer, 1..=4) => Ok(says("", &[("look", json!({ "at": asked }))])),
                (CallPurpose::Answer, 5) => too_long(),
                (CallPurpose::Summary, _) if left > 0 => {
                    left -= 1;
                    too_long()
                }
                (CallPurpose::Summary, _) => Ok(says("so far", &[])),
                (CallPurpose::Answer, _) => Ok(says("done", &[])),
            }
        });
        let long: ToolFunction = Box::new(|_, _| Ok(json!("word ".repeat(400))));
        let mut stage = Stage::new(spec(tools.clone()), model, long);
        let output = stage.output();
        assert_eq!((&output.stop, output.text.as_str()), (&AgentStopReason::Completed, "done"), "{refused_summaries}");
        assert!(output.compactions >= 1, "{output:?}");
        let summaries = stage.model_calls().iter().filter(|call| call.purpose == CallPurpose::Summary).count();
        assert!(summaries as u64 > refused_summaries, "{summaries}");
    }
    let mut stage = Stage::new(spec(json!({})), Box::new(move |_| too_long()), echo());
    assert_eq!(stage.output().stop, AgentStopReason::ContextExceeded, "there is nothing to sum up");
}
