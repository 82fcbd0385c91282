//! The document of the API in OpenAPI 3.1, made from the table of its routes.
//!
//! Invariant: it holds every route that is served, and none that is not (the tests compare both tables); what a body may
//! hold stands here in the words of the code that reads it. It decides nothing.
//!
//! Long: one schema after the other, and nothing but schemas.

use axum::Json;
use axum::response::{IntoResponse, Response};
use serde_json::{Map, Value, json};

use super::super::handlers::PAGE_MAX;
use super::pages::RUNS_MAX;
use super::schedule_schema;
use super::standalone::MEMBERS as ACTIVITY_MEMBERS;
use super::start::MEMBERS;
use crate::ui::export::FORMS;

/// What a request brings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Body {
    Nothing,
    Start,
    StartActivity,
    /// Any JSON: the input of a signal, a query or an update.
    Input,
    Reason,
    Answer,
    Fork,
    Reset,
    Batch,
    ActivityUpdate,
    Completion,
    Backup,
    TopUp,
    NewSchedule,
    ScheduleUpdate,
    ScheduleNote,
    ScheduleTrigger,
    ScheduleBackfill,
}

impl Body {
    /// The name of its schema, and whether there must be one.
    fn schema(self) -> Option<(&'static str, bool)> {
        Some(match self {
            Body::Nothing => return None,
            Body::Start => ("Start", true),
            Body::StartActivity => ("StartActivity", true),
            Body::Input => ("Input", false),
            Body::Reason => ("Reason", false),
            Body::Answer => ("Answer", true),
            Body::Fork => ("Fork", false),
            Body::Reset => ("Reset", true),
            Body::Batch => ("Batch", true),
            Body::ActivityUpdate => ("ActivityUpdate", false),
            Body::Completion => ("Completion", true),
            Body::Backup => ("Backup", true),
            Body::TopUp => ("TopUp", true),
            Body::NewSchedule => ("NewSchedule", true),
            Body::ScheduleUpdate => ("ScheduleUpdate", true),
            Body::ScheduleNote => ("ScheduleNote", false),
            Body::ScheduleTrigger => ("ScheduleTrigger", false),
            Body::ScheduleBackfill => ("ScheduleBackfill", true),
        })
    }
}

/// A route as the document tells it: method, path, operation, what it brings, the statuses of its answers.
type Told = (&'static str, &'static str, &'static str, Body, &'static [u16]);

/// Every route of the API for people.
#[rustfmt::skip]
const PEOPLE: &[Told] = &[
    ("GET", "/api/v1", "about", Body::Nothing, &[200]),
    ("GET", "/api/v1/openapi.json", "openapi", Body::Nothing, &[200]),
    ("POST", "/api/v1/workflows", "startWorkflow", Body::Start, &[201, 200]),
    ("GET", "/api/v1/workflows", "listWorkflows", Body::Nothing, &[200]),
    ("GET", "/api/v1/workflow-count", "countWorkflows", Body::Nothing, &[200]),
    ("GET", "/api/v1/workflows/{id}", "describeWorkflow", Body::Nothing, &[200]),
    ("DELETE", "/api/v1/workflows/{id}", "deleteWorkflow", Body::Nothing, &[200]),
    ("GET", "/api/v1/workflows/{id}/history", "getHistory", Body::Nothing, &[200]),
    ("GET", "/api/v1/workflows/{id}/events", "streamHistory", Body::Nothing, &[200]),
    ("GET", "/api/v1/workflows/{id}/state", "getState", Body::Nothing, &[200]),
    ("GET", "/api/v1/workflows/{id}/export", "exportHistory", Body::Nothing, &[200]),
    ("GET", "/api/v1/workflows/{id}/result", "getResult", Body::Nothing, &[200, 202]),
    ("POST", "/api/v1/workflows/{id}/signals/{name}", "signalWorkflow", Body::Input, &[202]),
    ("POST", "/api/v1/workflows/{id}/queries/{name}", "queryWorkflow", Body::Input, &[200]),
    ("POST", "/api/v1/workflows/{id}/updates/{name}", "updateWorkflow", Body::Input, &[200, 202]),
    ("GET", "/api/v1/workflows/{id}/updates/{update_id}/result", "getUpdateResult", Body::Nothing, &[200, 202]),
    ("POST", "/api/v1/workflows/{id}/forks", "forkWorkflow", Body::Fork, &[201, 200]),
    ("POST", "/api/v1/workflows/{id}/reset", "resetWorkflow", Body::Reset, &[201, 200]),
    ("POST", "/api/v1/workflows/{id}/cancel", "cancelWorkflow", Body::Reason, &[202]),
    ("POST", "/api/v1/workflows/{id}/terminate", "terminateWorkflow", Body::Reason, &[200]),
    ("POST", "/api/v1/workflows/{id}/pause", "pauseWorkflow", Body::Reason, &[200]),
    ("POST", "/api/v1/workflows/{id}/resume", "resumeWorkflow", Body::Reason, &[200]),
    ("POST", "/api/v1/workflows/{id}/execution/pause", "pauseExecution", Body::Reason, &[200]),
    ("POST", "/api/v1/workflows/{id}/execution/resume", "resumeExecution", Body::Reason, &[200]),
    ("POST", "/api/v1/workflows/{id}/budget/top-up", "topUpBudget", Body::TopUp, &[200]),
    ("POST", "/api/v1/workflows/{id}/activities/{activity_id}/pause", "pauseActivity", Body::Reason, &[200]),
    ("POST", "/api/v1/workflows/{id}/activities/{activity_id}/resume", "resumeActivity", Body::Reason, &[200]),
    ("POST", "/api/v1/workflows/{id}/activities/{activity_id}/update", "updateActivity", Body::ActivityUpdate, &[200]),
    ("POST", "/api/v1/activities/{token}", "completeActivity", Body::Completion, &[200]),
    ("POST", "/api/v1/standalone-activities", "startActivity", Body::StartActivity, &[201, 200]),
    ("GET", "/api/v1/standalone-activities/{id}", "describeActivity", Body::Nothing, &[200]),
    ("GET", "/api/v1/standalone-activities/{id}/result", "getActivityResult", Body::Nothing, &[200, 202]),
    ("POST", "/api/v1/standalone-activities/{id}/cancel", "cancelActivity", Body::Reason, &[202]),
    ("GET", "/api/v1/events", "streamEvents", Body::Nothing, &[200]),
    ("GET", "/api/v1/approvals", "listApprovals", Body::Nothing, &[200]),
    ("POST", "/api/v1/workflows/{id}/answers", "answer", Body::Answer, &[202]),
    ("GET", "/api/v1/agents", "listAgents", Body::Nothing, &[200]),
    ("GET", "/api/v1/schedules", "listSchedules", Body::Nothing, &[200]),
    ("POST", "/api/v1/schedules", "createSchedule", Body::NewSchedule, &[201, 200]),
    ("GET", "/api/v1/schedules/{id}", "describeSchedule", Body::Nothing, &[200]),
    ("DELETE", "/api/v1/schedules/{id}", "deleteSchedule", Body::Nothing, &[200, 202]),
    ("POST", "/api/v1/schedules/{id}/update", "updateSchedule", Body::ScheduleUpdate, &[200, 202]),
    ("POST", "/api/v1/schedules/{id}/pause", "pauseSchedule", Body::ScheduleNote, &[200, 202]),
    ("POST", "/api/v1/schedules/{id}/unpause", "unpauseSchedule", Body::ScheduleNote, &[200, 202]),
    ("POST", "/api/v1/schedules/{id}/trigger", "triggerSchedule", Body::ScheduleTrigger, &[200, 202]),
    ("POST", "/api/v1/schedules/{id}/backfill", "backfillSchedule", Body::ScheduleBackfill, &[200, 202]),
    ("POST", "/api/v1/batches", "startBatch", Body::Batch, &[201, 200]),
    ("GET", "/api/v1/batches", "listBatches", Body::Nothing, &[200]),
    ("GET", "/api/v1/batches/{id}", "describeBatch", Body::Nothing, &[200]),
    ("POST", "/api/v1/batches/{id}/stop", "stopBatch", Body::Reason, &[200]),
    ("GET", "/api/v1/queues", "listQueues", Body::Nothing, &[200]),
    ("GET", "/api/v1/queues/{name}", "describeQueue", Body::Nothing, &[200]),
    ("GET", "/api/v1/worker", "getWorker", Body::Nothing, &[200]),
    ("GET", "/api/v1/store", "getStore", Body::Nothing, &[200]),
    ("POST", "/api/v1/store/verify", "verifyStore", Body::Nothing, &[200]),
    ("POST", "/api/v1/store/backup", "backupStore", Body::Backup, &[200]),
    ("POST", "/api/v1/sign-in-code", "createSignInCode", Body::Nothing, &[200]),
];

/// Where the rest is told, for somebody who begins here.
pub async fn about() -> Response {
    Json(json!({ "version": crate::cli::VERSION, "openapi": "/api/v1/openapi.json", "workflows": "/api/v1/workflows",
        "approvals": "/api/v1/approvals" }))
    .into_response()
}

pub async fn openapi() -> Response {
    Json(document()).into_response()
}

fn document() -> Value {
    let mut paths: Map<String, Value> = Map::new();
    for (method, path, operation, body, statuses) in PEOPLE {
        let at = paths.entry(*path).or_insert_with(|| json!({}));
        at[method.to_lowercase()] = described(method, path, operation, *body, statuses);
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Bosun", "version": "1",
            "description": "Workflow executions of one worker: start, look, signal, answer. Every request carries \
                `Authorization: Bearer TOKEN`; the owner's token is in the data directory. The command line uses the same \
                routes, most of them with `Accept: application/vnd.bosun+json`: values as they are stored, in a form that \
                changes with the version.",
        },
        "security": [{ "token": [] }],
        "paths": paths,
        "components": { "securitySchemes": { "token": { "type": "http", "scheme": "bearer" } }, "schemas": schemas() },
    })
}

fn described(method: &str, path: &str, operation: &str, body: Body, statuses: &[u16]) -> Value {
    let about = super::super::routes::ROUTES.iter().find(|route| route.path == path && route.method == method);
    let named = path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'));
    let mut parameters: Vec<Value> = named
        .map(|name| json!({ "name": name, "in": "path", "required": true, "schema": path_schema(name) }))
        .collect();
    parameters.extend(about.iter().flat_map(|route| route.query).map(|name| query(operation, name)));
    if let Some(about) = about_key(operation) {
        parameters.push(json!({ "name": "Idempotency-Key", "in": "header", "description": about,
            "schema": id_schema() }));
    }
    let schema = |name: &str| json!({ "$ref": format!("#/components/schemas/{name}") });
    let answer = |name: &str| json!({ "application/json": { "schema": schema(name) } });
    let content = match operation {
        "streamHistory" | "streamEvents" => json!({ "text/event-stream": { "schema": { "type": "string" } } }),
        "exportHistory" => json!({ "application/json": { "schema": { "type": "object" } },
            "text/html": { "schema": { "type": "string" } }, "text/plain": { "schema": { "type": "string" } } }),
        _ => json!({ "application/json": { "schema": { "type": "object" } } }),
    };
    let done = |status: &u16| (status.to_string(), json!({ "description": "done", "content": content }));
    let mut responses: Map<String, Value> = statuses.iter().map(done).collect();
    for (range, about) in [("4XX", "refused: nothing has changed"), ("5XX", "the worker cannot do it now")] {
        responses.insert(range.to_owned(), json!({ "description": about, "content": answer("Problem") }));
    }
    let mut told = json!({
        "operationId": operation, "summary": about.map(|route| route.about), "parameters": parameters,
        "responses": responses,
    });
    let Some((name, required)) = body.schema() else { return told };
    told["requestBody"] = json!({ "required": required, "content": answer(name) });
    told
}

/// What an `Idempotency-Key` does for an operation; nothing where it is not looked at.
fn about_key(operation: &str) -> Option<&'static str> {
    Some(match operation {
        "startWorkflow" | "startActivity" | "cancelActivity" | "signalWorkflow" | "updateWorkflow"
        | "cancelWorkflow" | "answer" | "topUpBudget" | "createSchedule" | "deleteSchedule" | "updateSchedule"
        | "pauseSchedule" | "unpauseSchedule" | "triggerSchedule" | "backfillSchedule" => {
            "The same request with the same key is carried out once; another one with it is refused (422)"
        }
        "forkWorkflow" | "resetWorkflow" => "The same request with the same key is carried out once",
        "pauseWorkflow" | "resumeWorkflow" => {
            "A supervisor or an agent carries the same request with the same key out once; other workflows do not look at it"
        }
        _ => return None,
    })
}

/// A span of time, for example `90s`.
const SPAN: &str = "^[0-9]{1,9}(ms|s|m|h)$";

/// Whole numbers that every client can write.
const COUNT_MAX: u64 = 1 << 53;

/// What may be left out may be null, too.
fn or_null(schema: Value) -> Value {
    json!({ "anyOf": [schema, { "type": "null" }] })
}

/// An id: the server takes others too, of at most 255 bytes, without control characters, and not `.` or `..`.
fn id_schema() -> Value {
    json!({ "type": "string", "pattern": "^[!-\\-/-~]([ -~]{0,198}[!-~])?$" })
}

/// What a name in a path stands for.
fn path_schema(name: &str) -> Value {
    match name {
        "token" => json!({ "type": "string", "description": "run id, activity and attempt, as describe shows it",
            "pattern": "^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}:[1-9][0-9]{0,8}:[1-9][0-9]{0,8}$" }),
        _ => id_schema(),
    }
}

/// Comparisons of what every run has, joined.
fn filter_shape() -> String {
    let text = "(WorkflowId|WorkflowType|TaskQueue) !?= '[A-Za-z0-9_.-]{0,60}'";
    let status = "ExecutionStatus !?= '(Running|Paused|Held|TakenOver|Completed|Failed|Canceled|Terminated|ContinuedAsNew|TimedOut)'";
    let moment = "(StartTime|CloseTime) (<|<=|>|>=) '20[0-9]{2}-(0[1-9]|1[0-2])-(0[1-9]|1[0-9]|2[0-8])T00:00:00Z'";
    let one = format!("({text}|{status}|{moment})");
    format!("({one}( (AND|OR) {one}){{0,4}})")
}

fn query(operation: &str, name: &str) -> Value {
    let (about, schema) = match name {
        "run_id" => {
            ("One run of the workflow id; the newest without it", json!({ "type": "string", "format": "uuid" }))
        }
        "namespace" => ("Where the workflow id is looked for", id_schema()),
        "query" => {
            let about = "A list filter, for example `ExecutionStatus = 'Running'`; here of what every run has. Lists and \
                         counts find a run that has paused itself (`control`) as Paused and one that a person has taken over as \
                         TakenOver; these, and those that are Held, are Running too. \
                         The server also takes search attributes, brackets, IN, BETWEEN and STARTS_WITH; no ORDER BY";
            (about, json!({ "type": "string", "pattern": format!("^( *|{})$", filter_shape()) }))
        }
        "limit" => {
            let most = match operation {
                "listWorkflows" => RUNS_MAX,
                "listSchedules" => super::schedules::SHOWN,
                _ => PAGE_MAX,
            };
            ("How many at most", json!({ "type": "integer", "minimum": 1, "maximum": most, "default": 100 }))
        }
        "cursor" => {
            let shape = "^[0-9]{1,15}\\.[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$";
            ("`next_cursor` of the page before", json!({ "type": "string", "pattern": shape }))
        }
        "all" => {
            let about = "Whether the runs count that the worker started to notify people (`bosun.notification`)";
            (about, json!({ "type": "boolean", "default": false }))
        }
        "at" => {
            let about = "The event after which; the last one without it";
            (about, json!({ "type": "integer", "minimum": 1, "maximum": COUNT_MAX }))
        }
        "as" => ("The form of the file", json!({ "enum": FORMS, "default": "json" })),
        "from" => ("The first event", json!({ "type": "integer", "minimum": 1, "maximum": COUNT_MAX, "default": 1 })),
        "wait" if operation == "listApprovals" => {
            let about = "How long to wait until something is asked (with `seen`: something else than then), for example \
                         `20s`; it waits for no more than 20 s";
            (about, json!({ "type": "string", "pattern": SPAN }))
        }
        "seen" => ("`seen` of an answer before", json!({ "type": "string", "pattern": "^[0-9a-f]{16}$" })),
        "wait" => {
            let about = "How long to wait for the end, for example `20s`; it waits for no more than 20 s";
            (about, json!({ "type": "string", "pattern": SPAN }))
        }
        _ => ("", json!({ "type": "string" })),
    };
    json!({ "name": name, "in": "query", "required": false, "description": about, "schema": schema })
}

/// What may be different in a fork.
fn fork_changes() -> Value {
    let change = |set: &str, more: &[(&str, Value)], required: &[&str]| {
        let mut properties: Map<String, Value> =
            more.iter().map(|(name, schema)| ((*name).to_owned(), schema.clone())).collect();
        properties.insert("set".to_owned(), json!({ "const": set }));
        let required: Vec<&str> = required.iter().copied().chain(["set"]).collect();
        json!({ "type": "object", "additionalProperties": false, "required": required, "properties": properties })
    };
    let of = || {
        (
            "of",
            json!({ "type": "string", "description": "A type or an id, NAME#2, or an event: 15",
        "pattern": "^[A-Za-z][A-Za-z0-9_-]{0,60}(#[1-9])?$" }),
        )
    };
    let value = || ("value", json!({}));
    let words = json!({ "type": "string" });
    json!({ "oneOf": [
        change("result", &[of(), value()], &["of", "value"]),
        change("failure", &[of(), ("message", words.clone()), ("failure_type", words.clone())], &["of", "message"]),
        change("signal", &[("name", id_schema()), ("nth", json!({ "type": ["integer", "null"], "minimum": 1, "maximum": 1_000_000 })), value()], &["name", "value"]),
        change("input", &[value()], &["value"]),
    ] })
}

/// What is wanted of a pending activity.
fn activity_update_schema() -> Value {
    let names = [
        "schedule_to_close",
        "schedule_to_start",
        "start_to_close",
        "heartbeat",
        "initial_interval",
        "maximum_interval",
    ];
    let span =
        |name: &str| (name.to_owned(), json!({ "type": ["string", "null"], "pattern": "^[1-9][0-9]{0,3}(s|m|h)$" }));
    let mut properties: Map<String, Value> = names.into_iter().map(span).collect();
    let flag = json!({ "type": ["boolean", "null"] });
    properties
        .insert("maximum_attempts".into(), json!({ "type": ["integer", "null"], "minimum": 0, "maximum": 1_000_000 }));
    properties.insert("reset".into(), flag.clone());
    properties.insert("retry_now".into(), flag);
    properties.insert("reason".into(), json!({ "type": ["string", "null"] }));
    json!({ "type": ["object", "null"], "additionalProperties": false, "properties": properties })
}

/// What is done to every run that fits a filter.
fn batch_schema() -> Value {
    let action = |verb: &str, more: &[(&str, Value)], required: &[&str]| {
        let mut properties: Map<String, Value> =
            more.iter().map(|(name, schema)| ((*name).to_owned(), schema.clone())).collect();
        properties.insert("do".to_owned(), json!({ "const": verb }));
        let required: Vec<&str> = required.iter().copied().chain(["do"]).collect();
        json!({ "type": "object", "additionalProperties": false, "required": required, "properties": properties })
    };
    let to = json!({ "type": "string", "pattern": "^(first-turn|last-turn|build:[0-9a-f]{16}|event:[0-9]{1,15})$" });
    let reapply = json!({ "enum": ["none", "signal", "update", "all"] });
    let actions = [
        action("cancel", &[], &[]),
        action("terminate", &[], &[]),
        action("pause", &[], &[]),
        action("resume", &[], &[]),
        action("delete", &[], &[]),
        action("signal", &[("name", id_schema()), ("input", json!({}))], &["name"]),
        action("reset", &[("to", to), ("reapply", reapply)], &["to"]),
    ];
    json!({
        "type": "object", "required": ["query", "action"], "additionalProperties": false,
        "properties": {
            "query": { "type": "string", "description": "A list filter, as of listWorkflows; an empty one is refused", "pattern": format!("^{}$", filter_shape()) },
            "action": { "oneOf": actions },
            "reason": { "type": ["string", "null"], "description": "Recorded in the history of every run" },
            "rps": { "type": ["integer", "null"], "description": "Runs a second at most; 0: as many as can be", "minimum": 0, "maximum": 100_000 },
            "namespace": { "anyOf": [id_schema(), { "type": "null" }] },
            "batch_id": { "anyOf": [{ "type": "string", "pattern": "^[!-~]{1,120}$" }, { "type": "null" }] },
            "dry_run": { "type": ["boolean", "null"] },
        },
    })
}

fn retry_schema() -> Value {
    let members = [
        (
            "initial_interval",
            json!({ "type": "string", "description": "Before the second attempt", "pattern": "^[1-9][0-9]{0,2}(ms|s)$" }),
        ),
        (
            "maximum_interval",
            json!({ "type": "string", "description": "No delay is longer", "pattern": "^[1-9][0-9]{0,5}h$" }),
        ),
        ("backoff_coefficient", json!({ "type": "number", "minimum": 1, "maximum": 1000 })),
        ("maximum_attempts", json!({ "type": "integer", "minimum": 0, "maximum": 4_294_967_295_u32 })),
        ("non_retryable_error_types", json!({ "type": "array", "items": { "type": "string" } })),
    ];
    let members: Map<String, Value> =
        members.into_iter().map(|(name, schema)| (name.to_owned(), or_null(schema))).collect();
    json!({ "type": "object", "additionalProperties": false, "properties": members })
}

/// The place of activities among those that wait for a slot.
fn priority_schema() -> Value {
    json!({ "type": "object", "additionalProperties": false, "properties": {
        "priority_key": { "type": "integer", "description": "1, the most urgent, to 5", "minimum": 1, "maximum": 5, "default": 3 },
        "fairness_key": { "type": "string", "description": "Who shares the queue, for example a tenant", "pattern": "^[!-~]{1,64}$" },
        "fairness_weight": { "type": "number", "description": "The share of the fairness key, to thousandths", "minimum": 0.001, "maximum": 1000, "multipleOf": 0.001 },
    }, "dependentRequired": { "fairness_weight": ["fairness_key"] } })
}

/// An activity without a workflow.
fn start_activity_schema() -> Value {
    let mut members: Map<String, Value> =
        ACTIVITY_MEMBERS.iter().map(|name| ((*name).to_owned(), json!({ "type": ["string", "null"] }))).collect();
    for name in ["activity_type", "namespace", "task_queue"] {
        members[name] = id_schema();
    }
    members["activity_id"] =
        json!({ "anyOf": [{ "type": "string", "pattern": "^[!-~]{1,120}$" }, { "type": "null" }] });
    members["input"] = json!({ "description": "Any JSON: the activity's input" });
    let span =
        |about: &str| json!({ "type": "string", "description": about, "pattern": "^[1-9][0-9]{0,8}(ms|s|m|h)$" });
    members["schedule_to_close"] = span("With all of its attempts");
    members["schedule_to_start"] = span("How long an attempt may wait for a slot");
    members["start_to_close"] =
        span("How long one attempt may run; 10m where neither this nor schedule_to_close is given");
    members["heartbeat"] = span("How long an attempt may go without a heartbeat");
    members["retry_policy"] = retry_schema();
    members["priority"] = priority_schema();
    for name in ACTIVITY_MEMBERS.iter().filter(|name| !matches!(**name, "activity_type" | "activity_id" | "input")) {
        members[*name] = or_null(members[*name].take());
    }
    json!({ "type": "object", "required": ["activity_type"], "additionalProperties": false, "properties": members })
}

// long: one schema after the other.
fn schemas() -> Value {
    let text = || json!({ "type": ["string", "null"] });
    let span = |about: &str| json!({ "type": "string", "description": about, "pattern": SPAN });
    let mut start: Map<String, Value> = MEMBERS.iter().map(|name| ((*name).to_owned(), text())).collect();
    for name in ["workflow_type", "workflow_id", "namespace", "task_queue"] {
        start[name] = id_schema();
    }
    start["input"] = json!({ "description": "Any JSON: the workflow's input" });
    start["execution_timeout"] = span("For the whole chain of runs");
    start["run_timeout"] = span("For one run");
    start["start_delay"] = span("Until its code begins; its time limits begin then, too");
    start["id_reuse_policy"] =
        json!({ "enum": ["AllowDuplicate", "AllowDuplicateFailedOnly", "RejectDuplicate", null] });
    start["id_conflict_policy"] = json!({ "enum": ["Fail", "UseExisting", "TerminateExisting", null] });
    let name = json!({ "pattern": "^[A-Za-z][A-Za-z0-9_]{0,63}$" });
    start["memo"] = json!({ "type": "object", "description": "Any JSON by name", "propertyNames": name });
    let values = json!({ "anyOf": [{ "type": ["boolean", "integer", "number", "string"] },
        { "type": "array", "items": { "type": "string" } }] });
    start["search_attributes"] = json!({ "type": "object", "propertyNames": name, "additionalProperties": values });
    let message = |about: &str| {
        json!({ "type": "object", "description": about, "required": ["name"], "additionalProperties": false,
            "properties": { "name": id_schema(), "input": {} } })
    };
    start["signal"] = message("Signal the open run of this id, or the one that is started for it");
    start["update"] = message("Update the open run of this id, or the one that is started for it; not beside a signal");
    start["retry_policy"] = retry_schema();
    start["priority"] = priority_schema();
    for name in MEMBERS.iter().filter(|name| !matches!(**name, "workflow_type" | "input")) {
        start[*name] = or_null(start[*name].take());
    }
    let more = || json!({ "type": "integer", "minimum": 0, "maximum": COUNT_MAX });
    let any_of = ["tokens", "cost_micros", "calls", "wall", "allow_unpriced"].map(|name| json!({ "required": [name] }));
    let mut schemas = json!({
        "TopUp": { "type": "object", "additionalProperties": false, "description": "What there is more of, at least one of these",
            "properties": { "tokens": more(), "cost_micros": more(), "calls": more(), "wall": span("Time, for an agent"),
                "allow_unpriced": { "const": true, "description": "Calls of unknown price go on while money is limited" } },
            "anyOf": any_of },
        "Start": { "type": "object", "required": ["workflow_type"], "additionalProperties": false, "properties": start,
            "not": { "required": ["signal", "update"] } },
        "StartActivity": start_activity_schema(),
        "Input": { "description": "Any JSON; nothing is null" },
        "Reason": { "type": ["object", "null"], "additionalProperties": false, "properties": { "reason": text() } },
        "Answer": {
            "type": "object", "required": ["id"], "additionalProperties": false,
            "description": "`approved` to an approval, `answer` to a question",
            "properties": {
                "id": { "type": "string" }, "approved": { "type": "boolean" }, "answer": {},
                "comment": text(), "feedback": text(), "modified_action": text(),
            },
            "oneOf": [{ "required": ["approved"] }, { "required": ["answer"] }],
        },
        "Fork": {
            "type": ["object", "null"], "additionalProperties": false,
            "properties": {
                "workflow_id": { "anyOf": [id_schema(), { "type": "null" }] }, "at": { "type": ["integer", "null"], "minimum": 1, "maximum": COUNT_MAX },
                "reapply": { "enum": ["signals", "none", null] }, "dry_run": { "type": ["boolean", "null"] }, "reason": text(),
                "changes": { "type": "array", "items": fork_changes() },
            },
        },
        "Reset": {
            "type": "object", "required": ["to"], "additionalProperties": false,
            "properties": {
                "to": { "description": "The last event to keep, or a point by name", "anyOf": [
                    { "type": "integer", "minimum": 0, "maximum": COUNT_MAX },
                    { "type": "string", "pattern": "^(first-turn|last-turn|build:[0-9a-f]{16}|event:[0-9]{1,15})$" }] },
                "reapply": { "enum": ["none", "signal", "update", "all", null] },
                "dry_run": { "type": ["boolean", "null"] }, "reason": text(),
            },
        },
        "Batch": batch_schema(),
        "ActivityUpdate": activity_update_schema(),
        "Completion": {
            "type": "object", "additionalProperties": false, "description": "One thing that is said of an attempt",
            "properties": {
                "result": {}, "canceled": { "description": "Details, or null" }, "heartbeat": { "description": "Details for the next attempt, or null" },
                "failure": { "type": "object", "required": ["message"], "additionalProperties": false, "properties": {
                    "message": { "type": "string" }, "type": text(), "non_retryable": { "type": ["boolean", "null"] } } },
            },
            "oneOf": [{ "required": ["result"] }, { "required": ["failure"] }, { "required": ["canceled"] }, { "required": ["heartbeat"] }],
        },
        "Backup": { "type": "object", "required": ["to"], "additionalProperties": false, "properties": {
            "to": { "type": "string", "pattern": "^/", "description": "An absolute path on the worker's machine: empty, or not there yet" } } },
        "Problem": {
            "type": "object", "required": ["code", "message"],
            "properties": {
                "code": { "type": "string" }, "message": { "type": "string" },
                "errors": { "type": "array", "items": { "type": "object", "required": ["at", "why"], "properties": {
                    "at": { "type": "string" }, "why": { "type": "string" } } } },
            },
        },
    });
    for (name, schema) in schedule_schema::schemas(&id_schema()) {
        schemas[name] = schema;
    }
    schemas
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::routes::{FORK_PATH, ROUTES};

    /// The document tells of what is served, and of nothing else.
    #[test]
    fn the_document_holds_every_route() {
        let served: Vec<(String, &str)> = ROUTES
            .iter()
            // That one takes a history, which is not plain JSON.
            .filter(|route| route.path.starts_with("/api/v1") && route.path != FORK_PATH)
            .map(|route| (route.method.to_string(), route.path))
            .collect();
        let told: Vec<(String, &str)> = PEOPLE.iter().map(|(method, path, ..)| ((*method).to_owned(), *path)).collect();
        assert_eq!(told, served);
        let document = document();
        for (method, path) in &told {
            let operation = &document["paths"][path][method.to_lowercase()];
            assert!(operation["summary"].as_str().is_some_and(|text| !text.is_empty()), "{method} {path}");
        }
        let names: std::collections::BTreeSet<&str> = PEOPLE.iter().map(|(_, _, operation, ..)| *operation).collect();
        assert_eq!(names.len(), PEOPLE.len(), "an operation is called by one name");
    }
}
