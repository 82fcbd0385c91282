//! What a call becomes when models play a run, and what their answers are worth: the pure functions, without a run.

use std::time::Duration;

use bosun_engine::{ActivityType, Attempt, Failure, Payload};
use serde_json::{Value, json};

use crate::agent::AgentOutput;
use crate::agent::ends::with_cut;
use crate::agent::ledger::{Amount, Resource, Tally, UnknownUsage};
use crate::agent::machine::AgentStopReason;
use crate::agent::spec::AgentSpec;
use crate::capability::http::{HTTP, HTTP_TIMEOUT};
use crate::supervisor::core::asker::AnswerForm;
use crate::supervisor::core::key::{Key, key};
use crate::supervisor::graph::{Graph, GraphRules};
use crate::supervisor::model::TaskPlan;
use crate::supervisor::outbox::{Call, ChildKind, ChildTask, Purpose};
use crate::supervisor::run::child_end::ChildEnd;
use crate::supervisor::run::children::{ChildBudget, FromAbove};
use crate::supervisor::run::work::{Carried, answer_of, carried, is_of_service, options_of};
use crate::supervisor::run::{children, model, spending};
use crate::supervisor::spec::{SupervisorSpec, Via, read_spec};

const AGENTS: &str = "agents: [{ name: ann, timeout: 90s }]";

fn spec(more: &str) -> SupervisorSpec {
    let via = "via: { model: { provider: mock, name: m-1, limits: { wall_ms: 600000, max_tool_calls: 4 }, price: { input: 3, output: 9 }, tools: [ { name: now, description: the time, parameters: { type: object }, does: { activity: { activity_type: clock } } } ] } }";
    let text = format!("kind: supervisor\nname: played\npreset: shannon-supervisor\nobjective: o\n{via}\n{more}\n");
    read_spec("played.yaml", &text).unwrap_or_else(|why| panic!("{why}")).spec
}

/// Whoever asks: a plan of tasks.
fn plan() -> Graph {
    Graph::new(GraphRules::default(), TaskPlan::new("o"))
}

fn work(context: Value) -> Call {
    Call::new(key::<Key>("execute/t1/1"), Purpose::ExecuteWorker, context)
}

#[track_caller]
fn agent(spec: &SupervisorSpec, call: &Call) -> AgentSpec {
    match carried(spec, call, 0, &plan()) {
        Carried::Agent { spec } => *spec,
        other => panic!("{other:?}"),
    }
}

/// A task whose capability is in the box stays that when models play the rest, and what it gives is taken as it is.
#[test]
fn what_is_in_the_box_is_not_played_by_a_model() {
    let spec = spec("");
    for name in ["process", "http", "compose"] {
        let call = work(json!({ "capability": name, "parameters": { "argv": ["true"] } }));
        let Carried::Activity { activity_type, .. } = carried(&spec, &call, 0, &plan()) else { panic!("{name}") };
        assert_eq!(activity_type.as_str(), name);
        let gave = json!({ "exit_code": 0, "stdout": "out", "json": { "a": 1 } });
        assert_eq!(answer_of(&spec, &call, gave.clone(), &plan()).unwrap(), gave);
    }
    let call = work(json!({ "capability": "activity", "parameters": { "type": "add", "input": [1, 2] } }));
    let Carried::Activity { activity_type, input, .. } = carried(&spec, &call, 0, &plan()) else { panic!() };
    assert_eq!((activity_type.as_str(), input), ("add", json!([1, 2])));
    assert_eq!(answer_of(&spec, &call, json!(3), &plan()).unwrap(), json!(3));
    // Nobody in the box is called so: a model does it.
    agent(&spec, &work(json!({ "capability": "writing" })));
}

/// A service says when it may be asked again, with one key, and what of it cannot pass. Who takes all its time has failed, and of
/// others only a lost worker is tried again.
#[test]
fn a_service_is_asked_again_when_it_says_so() {
    let policy = |kind: &'static str| {
        let options = options_of(&ActivityType::of(kind), "s", Duration::from_secs(9));
        options.retry_policy.expect("every call has one")
    };
    let busy = Failure::application("Http429", "busy").retry_after(Duration::from_secs(7));
    assert_eq!(policy(HTTP).next(Attempt(1), &busy), Ok(Duration::from_secs(7)));
    for failure in [busy.clone().non_retryable(), Failure::application(HTTP_TIMEOUT, "late")] {
        assert!(policy(HTTP).next(Attempt(1), &failure).is_err(), "{failure:?}");
    }
    assert!(policy(HTTP).next(Attempt(5), &busy).is_err() && policy("process").is_for_lost_workers());
    let by_service = spec("agents: [{ name: ann, via: { http: { url: https://ann.example/ask } } }]");
    let call = work(json!({})).agent("ann");
    assert!(is_of_service(&by_service, &call) && !is_of_service(&spec(AGENTS), &call));
    assert!(is_of_service(&spec(""), &work(json!({ "capability": "http" }))));
}

/// The children of a run that models play are played by them too.
#[test]
fn children_are_played_as_their_parent_is() {
    let parent = spec(AGENTS);
    for kind in [ChildKind::SimpleTask, ChildKind::Dag] {
        let task = ChildTask { query: "q".to_owned(), ..ChildTask::default() };
        let input = children::spec_of(&parent, kind, task, 0, ChildBudget::default(), FromAbove::default()).unwrap();
        let child: SupervisorSpec = serde_json::from_value(input["resolved"]["spec"].clone()).unwrap();
        assert_eq!(child.via, parent.via, "{kind:?}");
    }
}

/// The tool of an agent is a function: no model makes up what it gives. A program that carries out the agent does.
#[test]
fn a_function_of_an_agent_is_no_model() {
    let call = work(json!({ "tool": "lookup", "args": {} })).agent("ann");
    assert_eq!(spec(AGENTS).via(&call), &Via::Scripted);
    let own = spec("agents: [{ name: ann, via: { model: { name: m-2 } } }]");
    assert_eq!(own.via(&call), &Via::Scripted);
    let program = spec("agents: [{ name: ann, via: { activity: hands } }]");
    assert_eq!(program.via(&call), &Via::Activity("hands".to_owned()));
    let Carried::Later { input, .. } = carried(&own, &call, 0, &plan()) else { panic!() };
    assert!(input["answer"]["fail"].as_str().is_some_and(|why| why.contains("script")), "{input}");
}

/// What the agent's `timeout` and the call itself allow holds for the model too, and only ever makes less of a limit.
#[test]
fn the_limits_of_a_call_hold_for_its_agent() {
    let spec = spec(AGENTS);
    let plain = agent(&spec, &work(json!({})));
    assert_eq!((plain.limits.wall_ms, plain.limits.max_tool_calls), (Some(600_000), Some(4)));
    assert_eq!(plain.price.map(|price| (price.input, price.output)), Some((3, 9)));
    assert_eq!(plain.tools.len(), 1);
    let timed = agent(&spec, &work(json!({ "tool_call_limit": 3, "max_tokens": 200 })).agent("ann"));
    assert_eq!((timed.limits.wall_ms, timed.limits.max_tool_calls), (Some(90_000), Some(3)));
    assert_eq!(
        (timed.limits.stops_at, plain.limits.stops_at.len()),
        (vec![Resource::Wall], 0),
        "nobody is asked for time"
    );
    assert_eq!((timed.max_output_tokens, timed.call_timeout_ms), (200, Some(90_000)));
    let more =
        work(json!({ "tool_call_limit": 50, "max_tokens": 4_000_000_000_u64 })).timeout(Duration::from_secs(3_600));
    let more = agent(&spec, &more);
    assert_eq!((more.limits.wall_ms, more.limits.max_tool_calls), (Some(600_000), Some(4)));
    assert_eq!(more.max_output_tokens, plain.max_output_tokens);
    // PDT-49: a question among workers is answered without tools.
    assert!(agent(&spec, &work(json!({ "question": "q", "tools": [] }))).tools.is_empty());
}

/// G41: an attempt that was cut may have been paid for: it counts as the one that was heard.
#[test]
fn a_step_pays_for_its_attempts_that_were_cut() {
    let spec = spec("");
    let paid = |result: Result<Value, Failure>| {
        let result = result.map(|value| Payload::encode(&value).unwrap());
        spending::of_model(&spec, &work(json!({})), &result).map(|spent| (spent.calls, spent.tokens, spent.cost_micros))
    };
    let said =
        json!({ "said": { "content": "x" }, "stop": "end", "usage": { "input": 30, "output": 4 }, "model": "m" });
    let answer = |cut: u32| json!({ "response": said, "cost": { "micros": 500 }, "cut": cut });
    assert_eq!(paid(Ok(answer(0))), Some((1, 34, 500)));
    assert_eq!(paid(Ok(answer(2))), Some((3, 102, 1_500)));
    let error = json!({ "class": "needs_human", "status": 401, "code": "invalid_api_key", "message": "why" });
    let refused = Failure::application("ModelNeedsHuman", "why").with_details(Payload::encode(&error).unwrap());
    assert_eq!(paid(Err(refused.clone())), None);
    assert_eq!(paid(Err(with_cut(refused, 2))), Some((3, 0, 0)));
}

fn output(stop: AgentStopReason, value: Option<Value>) -> AgentOutput {
    AgentOutput {
        name: "w".to_owned(),
        stop,
        text: "said".to_owned(),
        value,
        spent: Amount { tokens: 70, cost_micros: 2_500_000, ..Amount::default() },
        unknown: UnknownUsage::default(),
        by_model: [("m-1".to_owned(), Tally::default())].into(),
        compactions: 0,
        refusals: 0,
    }
}

/// What an agent spent counts for its attempt also when it stopped half-way.
#[test]
fn a_worker_that_stopped_is_paid_for() {
    let stopped = output(AgentStopReason::Budget { resource: Resource::Tokens, lent: false }, None);
    let answer = model::given(AnswerForm::Reply, stopped.clone()).unwrap();
    assert_eq!((&answer["success"], &answer["tokens"], &answer["cost_usd"]), (&json!(false), &json!(70), &json!(2.5)));
    assert!(answer["reason"].as_str().is_some_and(|why| why.contains("tokens")), "{answer}");
    let done = output(AgentStopReason::Completed, None);
    let told = model::given(AnswerForm::Reply, done.clone()).unwrap();
    assert_eq!((&told["result"], &told["success"], &told["cost_usd"]), (&json!("said"), &json!(true), &json!(2.5)));
    let unpriced = AgentOutput { unknown: UnknownUsage { unpriced_calls: 1, ..UnknownUsage::default() }, ..done };
    let unpriced = model::given(AnswerForm::Reply, unpriced).unwrap();
    assert_eq!(unpriced["cost_usd"], Value::Null, "what nobody knows is not 0");
    // A plan is exactly what the planner reads; its cost is charged beside it.
    let plan = output(AgentStopReason::Completed, Some(json!({ "tasks": [] })));
    let ended = Ok(Payload::encode(&plan).unwrap());
    let spent = ChildEnd::of(&ended).spent(None);
    assert_eq!((spent.tokens, spent.cost_micros), (70, 2_500_000));
    assert_eq!(model::given(AnswerForm::Plain, plan).unwrap(), json!({ "tasks": [] }));
    assert!(model::given(AnswerForm::Plain, stopped).is_err());
    let cut = output(AgentStopReason::Length, None);
    let why = model::given(AnswerForm::Plain, cut).unwrap_err();
    assert_eq!(why.message, "the agent stopped: length");
}
