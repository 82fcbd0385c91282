//! What a call becomes: an activity of an agent's own kind, a scripted answer, or a capability that is built in.
//!
//! Invariant: one call is one activity, once; the workflow counts tries, the activity layer has one. A scripted answer
//! takes its time as a timer of the run, so that it takes it once, however often the process dies.

use std::time::Duration;

use bosun_engine::{ActivityOptions, ActivityType, CancellationType, RetryPolicy};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::refusal::{AnswerUnusable, CarryRefusal};
use crate::agent::AgentSpec;
use crate::agent::shown::steady;
use crate::capability::http::{HTTP, HTTP_TIMEOUT};
use crate::capability::model::ModelInput;
use crate::capability::process::PROCESS;
use crate::supervisor::chat::draw;
use crate::supervisor::core::asker::{Asker, CallTime};
use crate::supervisor::core::call_context::{CallContext, TaskContext};
use crate::supervisor::core::key::Key;
use crate::supervisor::core::retry::DELIVERIES_MAX;
use crate::supervisor::model::TaskId;
use crate::supervisor::outbox::{Call, Purpose};
use crate::supervisor::spec::{OnDelegationTimeout, Span, SupervisorSpec, Via};
use crate::supervisor::team::registry::DEPTH_VARIABLE;

/// Capabilities that tasks may name without an agent.
pub(super) const BUILT_IN: [&str; 5] = ["process", "http", "compose", "activity", "human"];
/// How long a call may take whose agent says nothing.
pub(super) const TIMEOUT: Duration = Duration::from_secs(600);
/// How often a service is asked that is busy, or whose answer breaks off.
const TRIES: u32 = 5;
const A_DAY: Duration = Duration::from_secs(24 * 3_600);

/// How a call is carried out.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Carried {
    Activity {
        activity_type: ActivityType,
        input: Value,
        timeout: Duration,
    },
    /// A scripted answer, after this time.
    Later {
        after: Duration,
        input: Value,
    },
    /// A supervisor of its own.
    Child {
        spec: Value,
    },
    /// One call of a model.
    Model {
        input: Box<ModelInput>,
        timeout: Duration,
    },
    /// A model with all that it needs to answer, as a run of its own.
    Agent {
        spec: Box<AgentSpec>,
    },
    /// It cannot be: why.
    Impossible(CarryRefusal),
}

/// How long a call may take, where somebody has said.
pub(super) fn time_of(spec: &SupervisorSpec, call: &Call, asker: &dyn Asker) -> Option<Duration> {
    own_time_of(spec, call).or(is_delegation(spec, call, asker).then_some(spec.delegation.timeout.duration()))
}

/// How long a call may take by its own word, or by that of whoever does it.
pub(super) fn own_time_of(spec: &SupervisorSpec, call: &Call) -> Option<Duration> {
    let own = spec.player(call).and_then(|agent| agent.timeout).or(spec.role_of(call).and_then(|role| role.timeout));
    call.timeout.or(own.map(Span::duration))
}

/// A delegation is ended by its own deadline, and in the background by nothing (SUP-22): the call only has to end some day.
fn usual_time(spec: &SupervisorSpec, call: &Call, depth: u32, asker: &dyn Asker) -> Duration {
    let own = CallContext::of(call).depth.unwrap_or_default();
    let below = own > u64::from(depth.max(spec.delegation.base_depth));
    if below && asker.time(call) == CallTime::OfGiver { A_DAY } else { TIMEOUT }
}

/// What is said of a call that nobody answered in its time: how long that was, and the key that says so.
pub(super) fn too_slow(spec: &SupervisorSpec, call: &Call, depth: u32, asker: &dyn Asker) -> String {
    let time = time_of(spec, call, asker).unwrap_or_else(|| usual_time(spec, call, depth, asker));
    let span = Span::from_ms(u64::try_from(time.as_millis()).unwrap_or(u64::MAX));
    let agent = spec.player(call);
    let own = call.timeout.is_some() || agent.is_some_and(|agent| agent.timeout.is_some());
    let of_role = spec.role_of(call).is_some_and(|role| role.timeout.is_some());
    let key = match agent.map(|agent| agent.name.as_str()).or(call.agent.as_deref()) {
        _ if !own && !of_role && is_delegation(spec, call, asker) => "`delegation.timeout`".to_owned(),
        Some(name) if own || !of_role => format!("`timeout` of the agent {name}"),
        _ => format!("`timeout` of whoever is asked to `{}`", call.purpose.as_str()),
    };
    format!("no answer within {span} ({key})")
}

/// Whether whoever takes longer than a delegation may has failed.
fn is_delegation(spec: &SupervisorSpec, call: &Call, asker: &dyn Asker) -> bool {
    asker.time(call) == CallTime::Delegation && spec.delegation.on_timeout == OnDelegationTimeout::Fail
}

/// What a call becomes by the spec and by who asks, in a run that is so deep below the first.
pub(super) fn carried(spec: &SupervisorSpec, call: &Call, depth: u32, asker: &dyn Asker) -> Carried {
    let timeout = time_of(spec, call, asker).unwrap_or_else(|| usual_time(spec, call, depth, asker));
    let input = json!(call);
    if let Some(name) = built_in_of(spec, call) {
        return built_in(name, call, timeout);
    }
    if let Some(input) = by_chance(spec, call) {
        return Carried::Later { after: Duration::ZERO, input };
    }
    match spec.via(call) {
        Via::Scripted => scripted(spec, call),
        Via::Activity(name) => match ActivityType::new(name) {
            Ok(activity_type) => Carried::Activity { activity_type, input, timeout },
            Err(why) => Carried::Impossible(why.into()),
        },
        Via::Process(process) => {
            let mut env = process.env.clone();
            // How deep the agent is that the program plays: what it starts itself counts from there (SUP-08).
            let own = CallContext::of(call).depth.unwrap_or(u64::from(depth) + 1);
            env.entry(DEPTH_VARIABLE.to_owned()).or_insert_with(|| own.to_string());
            let input = json!({
                "argv": process.argv, "cwd": process.cwd, "env": env, "env_allow": process.env_allow,
                "stdin": input.to_string(), "timeout_ms": u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX),
            });
            Carried::Activity { activity_type: PROCESS.into(), input, timeout: timeout + Duration::from_secs(15) }
        }
        Via::Http(http) => {
            let input = json!({
                "method": "POST", "url": http.url, "headers": http.headers, "json": input,
                "timeout_ms": u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX),
            });
            Carried::Activity { activity_type: HTTP.into(), input, timeout: timeout + Duration::from_secs(15) }
        }
        Via::Model(model) => super::model::carried(spec, call, model, asker),
        Via::Supervisor(nested) => match &nested.spec {
            Some(spec) => Carried::Child { spec: Value::Object(spec.clone()) },
            None => Carried::Impossible(CarryRefusal::NoNestedSpec),
        },
    }
}

/// The capability of a task that is built in, if the task is no agent's.
fn built_in_of(spec: &SupervisorSpec, call: &Call) -> Option<&'static str> {
    let name = CallContext::of(call).capability?;
    let work = call.purpose == Purpose::ExecuteWorker && spec.player(call).is_none();
    // A person is no activity.
    BUILT_IN.into_iter().find(|built_in| *built_in == name).filter(|name| work && *name != "human")
}

/// An activity of a program of the user's own, as a task names it.
#[derive(Deserialize)]
struct NamedActivity {
    #[serde(rename = "type")]
    activity_type: String,
    #[serde(default)]
    input: Value,
}

/// A task whose capability is built in is that: its parameters are the activity's input, with `{{context...}}` filled.
fn built_in(name: &str, call: &Call, timeout: Duration) -> Carried {
    let parameters = TaskContext::of(call).parameters.unwrap_or_else(|| json!({}));
    let mut input = crate::supervisor::spec::fill(&parameters, call);
    let activity_type = match name {
        "process" => ActivityType::of(PROCESS),
        "http" => ActivityType::of(HTTP),
        "compose" => ActivityType::of(crate::capability::compose::COMPOSE),
        _ => {
            let Ok(named) = serde_json::from_value::<NamedActivity>(input) else {
                return Carried::Impossible(CarryRefusal::NoActivity);
            };
            input = named.input;
            match ActivityType::new(named.activity_type) {
                Ok(activity_type) => activity_type,
                Err(why) => return Carried::Impossible(why.into()),
            }
        }
    };
    if let (Value::Object(map), "process" | "http") = (&mut input, name) {
        let ms = u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX);
        map.entry("timeout_ms").or_insert(ms.into());
    }
    Carried::Activity { activity_type, input, timeout: timeout + Duration::from_secs(15) }
}

/// The answer is a function of the script and the call; the activity only says it, and is recorded as any other.
fn scripted(spec: &SupervisorSpec, call: &Call) -> Carried {
    let scripted = spec.scripted(call);
    let answer = match scripted.result {
        Ok(value) => json!({ "say": value }),
        Err(why) => json!({ "fail": why.message }),
    };
    Carried::Later { after: scripted.after.duration(), input: json!(said(call, answer)) }
}

/// AGC-16: nobody draws for a chat whose speakers are random: the seed says who it is, and that is recorded as an answer.
fn by_chance(spec: &SupervisorSpec, call: &Call) -> Option<Value> {
    if call.purpose != Purpose::Decide || spec.has_rule(call) {
        return None;
    }
    let CallContext { method, seed, candidates, .. } = CallContext::of(call);
    let (method, seed) = (method.filter(|method| method == "random")?, seed?);
    let candidates = candidates?;
    let names: Vec<&str> = candidates.iter().map(String::as_str).collect();
    let drawn = draw(&seed, &names)?;
    let said = ScriptedAsk {
        context: Some(SpeakerDraw { method, seed, candidates: &candidates }),
        ..said(call, json!({ "say": drawn }))
    };
    Some(json!(said))
}

/// What the activity of scripted answers is given.
#[derive(Serialize)]
struct ScriptedAsk<'c> {
    key: &'c Key,
    purpose: Purpose,
    #[serde(skip_serializing_if = "Option::is_none")]
    agent: Option<&'c str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    task: Option<&'c TaskId>,
    attempt: u32,
    round: u32,
    prompt: &'c str,
    answer: Value,
    #[serde(skip_serializing_if = "Option::is_none")]
    context: Option<SpeakerDraw<'c>>,
}

/// From what was drawn.
#[derive(Serialize)]
struct SpeakerDraw<'c> {
    method: String,
    seed: String,
    candidates: &'c [String],
}

fn said(call: &Call, answer: Value) -> ScriptedAsk<'_> {
    ScriptedAsk {
        key: &call.key,
        purpose: call.purpose,
        agent: call.agent.as_deref(),
        task: call.task.as_ref(),
        attempt: call.attempt,
        round: call.round,
        prompt: &call.prompt,
        answer,
        context: None,
    }
}

/// The options of every call: whoever asked says whether it is tried again. One of which nobody knows the end, since its worker
/// was lost, is delivered again as what it was: the same attempt, with the same idempotency key (§5.2).
pub(super) fn options(summary: &str, timeout: Duration) -> ActivityOptions {
    ActivityOptions {
        start_to_close: Some(timeout),
        retry_policy: Some(RetryPolicy::for_lost_workers(1 + DELIVERIES_MAX)),
        cancellation: CancellationType::TryCancel,
        summary: Some(summary.to_owned()),
        ..ActivityOptions::default()
    }
}

/// The same for an activity of this type. A service says itself which of its failures may pass, and when it may be asked again:
/// that is one attempt of whoever asked, with one key. Who took all the time of the call has failed.
pub(super) fn options_of(activity_type: &ActivityType, summary: &str, timeout: Duration) -> ActivityOptions {
    let options = options(summary, timeout);
    if activity_type.as_str() != HTTP {
        return options;
    }
    let policy =
        RetryPolicy { non_retryable_error_types: vec![HTTP_TIMEOUT.to_owned()], ..RetryPolicy::attempts(TRIES) };
    ActivityOptions { retry_policy: Some(policy), ..options }
}

/// Whether the engine delivers a call again by itself: one of [`options`] or [`options_of`].
pub(super) fn is_delivered_again(policy: &RetryPolicy) -> bool {
    policy.is_for_lost_workers() || policy.non_retryable_error_types.iter().any(|name| name == HTTP_TIMEOUT)
}

/// Whether a service is asked: what it says that cannot pass is the end.
pub(super) fn is_of_service(spec: &SupervisorSpec, call: &Call) -> bool {
    match built_in_of(spec, call) {
        Some(built_in) => built_in == "http",
        None => matches!(spec.via(call), Via::Http(_)),
    }
}

/// What a program printed, and how it ended.
#[derive(Default, Deserialize)]
#[serde(default)]
struct ProgramOutput {
    exit_code: Option<i64>,
    stdout: String,
    stderr: String,
    /// One of both streams is cut.
    truncated: bool,
    stdout_bytes: u64,
}

impl ProgramOutput {
    fn is_cut(&self) -> bool {
        self.truncated && self.stdout_bytes > self.stdout.len() as u64
    }
}

/// What a service sent.
#[derive(Default, Deserialize)]
#[serde(default)]
struct ServiceResponse {
    json: Option<Value>,
    body: String,
}

/// The answer in what a capability gave: what a program printed, what a service sent.
pub(super) fn answer_of(
    spec: &SupervisorSpec,
    call: &Call,
    value: Value,
    asker: &dyn Asker,
) -> Result<Value, AnswerUnusable> {
    if let Some(name) = built_in_of(spec, call) {
        // Prompts are made of it: two equal runs ask a model the same. The history has the whole.
        return Ok(steady(name, value));
    }
    match spec.via(call) {
        Via::Process(_) => {
            let printed: ProgramOutput = serde_json::from_value(value).unwrap_or_default();
            let out = printed.stdout.trim();
            match printed.exit_code {
                Some(0) | None if printed.is_cut() => {
                    Err(AnswerUnusable::TooLong { bytes: printed.stdout_bytes, most: printed.stdout.len() })
                }
                Some(0) | None => Ok(serde_json::from_str(out).unwrap_or_else(|_| out.into())),
                Some(code) => Err(AnswerUnusable::Program { code, said: printed.stderr.trim().to_owned() }),
            }
        }
        Via::Http(_) => {
            let sent: ServiceResponse = serde_json::from_value(value).unwrap_or_default();
            let text = sent.body.trim();
            // An answer in form is one whatever its service calls it, as that of a program is: it may say that it failed.
            let data = || serde_json::from_str(text).ok().filter(|data: &Value| data.is_object() || data.is_array());
            Ok(sent.json.filter(|json| !json.is_null()).or_else(data).unwrap_or_else(|| text.into()))
        }
        Via::Model(_) => super::model::said(spec, &serde_json::from_value(value)?, call, asker),
        Via::Scripted | Via::Activity(_) | Via::Supervisor(_) => Ok(value),
    }
}
