//! A start as a person writes it, with the defaults of the command line.
//!
//! Invariant: only the workflow type is needed. A start without a workflow id gets one that nobody has; the same
//! `Idempotency-Key` gives the same id, so that a start that is sent twice is one.

use axum::body::Bytes;
use bosun_engine::*;
use serde::Deserialize;
use serde_json::Value;

use super::super::authority::CallerBackend;
use super::super::problem::{InvalidField, Problem};
use super::super::token::random_hex;
use super::body::{Members, whole};
use super::handlers::update_id;
use super::input_place::{path_at, stopped_at};
use crate::filter_text::typed_text;
use crate::priority::{PriorityBody, PrioritySaid};
use crate::startable::faults_of_input;
use crate::supervisor::run::SUPERVISOR;
use crate::supervisor::spec::Span;

/// Every member that a start may have, for the document of the API.
pub(super) const MEMBERS: &[&str] = &[
    "workflow_type",
    "workflow_id",
    "input",
    "namespace",
    "task_queue",
    "execution_timeout",
    "run_timeout",
    "start_delay",
    "retry_policy",
    "id_reuse_policy",
    "id_conflict_policy",
    "memo",
    "search_attributes",
    "summary",
    "details",
    "priority",
    "signal",
    "update",
];

/// A start, and what the run is told with it.
pub(super) struct StartBody {
    pub start: StartWorkflow,
    pub then: Option<StartMessage>,
}

/// The signal or the update of a start: the run that is open, or the one that is started for it, hears it.
pub(super) enum StartMessage {
    Signal(SignalRequest),
    Update(UpdateRequest),
}

/// A message by its name.
struct NamedInput {
    name: String,
    input: Value,
}

impl NamedInput {
    fn read(members: &mut Members, at: &'static str) -> Option<NamedInput> {
        members.object(at, |message| {
            let name = message.text("name");
            message.needs("name", name.is_some());
            NamedInput { name: name.unwrap_or_default(), input: message.any("input").unwrap_or_default() }
        })
    }
}

impl StartMessage {
    /// The message of a body; two of them are one too many.
    fn read(members: &mut Members, key: Option<&str>) -> Result<Option<StartMessage>, Problem> {
        let (signal, update) = (NamedInput::read(members, "signal"), NamedInput::read(members, "update"));
        if signal.is_some() && update.is_some() {
            members.wrong("update", "a start has a signal or an update, not both");
        }
        let mut of = |at: &str, name: Result<(), String>, input: &Value| {
            name.map_err(|why| members.wrong(&format!("{at}.name"), why)).ok()?;
            Payload::encode(input).map_err(|why| members.wrong(&format!("{at}.input"), why.to_string())).ok()
        };
        if let Some(NamedInput { name, input }) = signal {
            let name = SignalName::new(name).map_err(|why| why.to_string());
            let input = of("signal", name.as_ref().map(drop).map_err(String::clone), &input);
            let request_id = key.and_then(|key| RequestId::new(key).ok());
            return Ok(name
                .ok()
                .zip(input)
                .map(|(name, input)| StartMessage::Signal(SignalRequest { name, input, identity: None, request_id })));
        }
        let Some(NamedInput { name, input }) = update else { return Ok(None) };
        let name = UpdateName::new(name).map_err(|why| why.to_string());
        let input = of("update", name.as_ref().map(drop).map_err(String::clone), &input);
        let update_id = match update_id(key.map(str::to_owned)) {
            Ok(id) => id,
            Err(why) => {
                members.wrong("Idempotency-Key", why.message);
                return Ok(None);
            }
        };
        Ok(name.ok().zip(input).map(|(name, input)| {
            let wait = UpdateWait::Completed;
            StartMessage::Update(UpdateRequest { update_id, name, input, identity: None, wait })
        }))
    }
}

// long: one key of the body after the other.
pub(super) fn read(body: &Bytes, key: Option<&str>, me: &CallerBackend) -> Result<StartBody, Problem> {
    let mut members = Members::read(body)?;
    let workflow_type: Option<WorkflowType> = members.parsed("workflow_type");
    members.needs("workflow_type", workflow_type.is_some());
    let workflow_id: Option<WorkflowId> = members.parsed("workflow_id");
    let request_id =
        key.and_then(|key| RequestId::new(key).map_err(|why| members.wrong("Idempotency-Key", why.to_string())).ok());
    let input = members.any("input").unwrap_or(Value::Null);
    if workflow_type.as_ref().is_some_and(|workflow_type| workflow_type.as_str() == SUPERVISOR) {
        check_spec(&input, &mut members);
    }
    let input = Payload::encode(&input).map_err(|why| members.wrong("input", why.to_string())).unwrap_or_default();
    let span = |span: Span| std::time::Duration::from(span);
    let (namespace, task_queue) = (me.namespace_of_new(members.parsed("namespace")), members.parsed("task_queue"));
    let execution_timeout = members.parsed("execution_timeout").map(span);
    let run_timeout = members.parsed("run_timeout").map(span);
    let start_delay = members.parsed("start_delay").map(span);
    let retry_policy = retry_policy(&mut members);
    let (reuse, conflict) = (members.typed("id_reuse_policy"), members.typed("id_conflict_policy"));
    let memo = members.typed::<serde_json::Map<String, Value>>("memo").unwrap_or_default();
    let memo = memo_of(memo, &mut members);
    let attributes = members.typed::<serde_json::Map<String, Value>>("search_attributes").unwrap_or_default();
    let search_attributes = attributes_of(attributes, &mut members);
    let (summary, details) = (members.text("summary"), members.text("details"));
    let priority = priority(&mut members);
    let then = StartMessage::read(&mut members, key)?;
    members.done()?;
    // `done` refuses a body without one.
    let workflow_type = workflow_type.ok_or_else(|| Problem::bad_request("workflow_type: it is needed"))?;
    let workflow_id = match workflow_id {
        Some(id) => id,
        None => fresh_id(workflow_type.as_str(), key)?,
    };
    let start = StartWorkflow::new(workflow_type, workflow_id);
    let start = StartWorkflow {
        namespace,
        task_queue: task_queue.unwrap_or(start.task_queue),
        input,
        execution_timeout,
        run_timeout,
        start_delay,
        retry_policy,
        id_reuse_policy: reuse.unwrap_or(start.id_reuse_policy),
        id_conflict_policy: conflict.unwrap_or(start.id_conflict_policy),
        memo,
        search_attributes,
        request_id,
        summary,
        details,
        priority,
        ..StartWorkflow::new(start.workflow_type, start.workflow_id)
    };
    Ok(StartBody { start, then })
}

#[derive(Deserialize)]
struct WholeNumber(#[serde(deserialize_with = "whole")] Option<u32>);

/// A retry policy; what is left out has Temporal's default.
pub(super) fn retry_policy(members: &mut Members) -> Option<RetryPolicy> {
    members.object("retry_policy", |policy| {
        let default = RetryPolicy::default();
        let factor = policy.typed::<f64>("backoff_coefficient");
        let permille = factor.filter(|factor| (1.0..=1_000.0).contains(factor));
        if let (Some(factor), None) = (factor, permille) {
            policy.wrong("backoff_coefficient", format!("{factor} is not from 1 to 1000"));
        }
        // In thousandths.
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        let permille = permille.map(|factor| (factor * 1_000.0).round() as u32);
        let maximum_attempts = policy.typed("maximum_attempts").and_then(|WholeNumber(number)| number);
        RetryPolicy {
            initial_interval: policy.typed::<Span>("initial_interval").map_or(default.initial_interval, Into::into),
            backoff_coefficient_permille: permille.unwrap_or(default.backoff_coefficient_permille),
            maximum_interval: policy.typed::<Span>("maximum_interval").map(Into::into).or(default.maximum_interval),
            maximum_attempts: maximum_attempts.unwrap_or(default.maximum_attempts),
            non_retryable_error_types: policy.typed("non_retryable_error_types").unwrap_or_default(),
        }
    })
}

/// A priority, by the rules of `crate::priority`.
pub(super) fn priority(members: &mut Members) -> Option<Priority> {
    let said = members.object("priority", |priority| {
        let key = priority.not_null::<u8>("priority_key");
        if let Some(key) = key.filter(|key| !(1..=5).contains(key)) {
            priority.wrong("priority_key", format!("{key} is not one of 1, the most urgent, to 5"));
        }
        let body = PriorityBody {
            priority_key: key,
            fairness_key: priority.not_null("fairness_key"),
            fairness_weight: priority.not_null("fairness_weight"),
        };
        let is_well = key.is_none_or(|key| (1..=5).contains(&key));
        match is_well.then(|| PrioritySaid::try_from(body)) {
            Some(Ok(PrioritySaid(priority))) => Some(priority),
            Some(Err(why)) => {
                priority.wrong("", why);
                None
            }
            None => None,
        }
    });
    said.flatten()
}

/// Search attributes have the kind of what is given: a text is a keyword, or the moment that it names.
fn attributes_of(given: serde_json::Map<String, Value>, members: &mut Members) -> SearchAttributes {
    let mut attributes = SearchAttributes::new();
    for (name, value) in given {
        let at = format!("search_attributes.{name}");
        let value = match &value {
            Value::Bool(truth) => Some(SearchValue::Bool(*truth)),
            Value::Number(number) => number.as_i64().map(SearchValue::Int).or(number.as_f64().map(SearchValue::Float)),
            Value::String(text) => Some(typed_text(text)),
            Value::Array(_) => serde_json::from_value(value).ok().map(SearchValue::KeywordList),
            Value::Null | Value::Object(_) => None,
        };
        match (FieldName::new(&name), value) {
            (Ok(field), Some(value)) => match crate::schedule::only_by_schedules(&field) {
                Ok(()) => drop(attributes.insert(field, value)),
                Err(why) => members.wrong(&at, why),
            },
            (Err(why), _) => members.wrong(&at, why.to_string()),
            (Ok(_), None) => members.wrong(&at, "it must be true or false, a number, a text or a list of texts"),
        }
    }
    attributes
}

pub(super) fn fresh_id(type_name: &str, key: Option<&str>) -> Result<WorkflowId, Problem> {
    let suffix = match key {
        Some(key) => blake3::hash(key.as_bytes()).to_hex()[..16].to_owned(),
        None => random_hex(8).map_err(|why| Problem::bad_request(format!("no random numbers for an id: {why}")))?,
    };
    let id = WorkflowId::new(format!("{type_name}-{suffix}"));
    id.map_err(|why| Problem::bad_request(format!("workflow_id: {why}; name one")))
}

fn memo_of(given: serde_json::Map<String, Value>, members: &mut Members) -> Memo {
    let mut memo = Memo::new();
    for (name, value) in given {
        match (FieldName::new(&name), Payload::encode(&value)) {
            (Ok(field), Ok(payload)) => drop(memo.insert(field, payload)),
            (Err(why), _) => members.wrong(&format!("memo.{name}"), why.to_string()),
            (_, Err(why)) => members.wrong(&format!("memo.{name}"), why.to_string()),
        }
    }
    memo
}
/// A refused start. Of an input that its code cannot read, it is told where that is and why, in words for whoever has sent it,
/// and not for whoever has written the code.
pub(super) fn refused(why: Rejection, input: &Payload) -> Problem {
    let told = match &why {
        Rejection::Invalid { what, why } if what.starts_with("the input of the workflow ") => {
            let plain = plain_reason(why).to_owned();
            let text = std::str::from_utf8(&input.data).unwrap_or_default();
            let at = within_input(&stopped_at(why).map(|byte| path_at(text, byte)).unwrap_or_default());
            Some((format!("{what}: {at}: {plain}"), InvalidField { at, why: plain }))
        }
        _ => None,
    };
    let mut problem = Problem::from(why);
    if let Some((message, field)) = told {
        (problem.message, problem.errors) = (message, vec![field]);
    }
    problem
}

/// A path inside of the input, as one of the body.
fn within_input(path: &str) -> String {
    match path {
        "" => "input".to_owned(),
        index if index.starts_with('[') => format!("input{index}"),
        path => format!("input.{path}"),
    }
}

/// A spec that a supervisor is to read when it starts: what is wrong with it is told before, with its place.
fn check_spec(input: &Value, members: &mut Members) {
    for fault in faults_of_input(input) {
        members.wrong(&within_input(&fault.path), fault.problem);
    }
}

/// What is wrong with a payload, without the name of the type that was wanted and the place in bytes that nobody wrote.
fn plain_reason(why: &str) -> &str {
    let why = match why.strip_prefix("cannot read a ") {
        Some(rest) => rest.split_once(": ").map_or(why, |(_, reason)| reason),
        None => why,
    };
    why.rsplit_once(" at line ").map_or(why, |(reason, _)| reason)
}
