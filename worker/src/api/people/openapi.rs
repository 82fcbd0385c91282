//! The document of the API in OpenAPI 3.1, made from the table of its routes.
//!
//! Invariant: it holds every route that is served, and none that is not (the tests compare both tables); what a body may
//! hold stands here in the words of the code that reads it. It decides nothing.

use axum::Json;
use axum::response::{IntoResponse, Response};
use serde_json::{Map, Value, json};

use super::start::MEMBERS;

/// What a request brings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Body {
    Nothing,
    Start,
    /// Any JSON: the input of a signal, a query or an update.
    Input,
    Reason,
    Answer,
}

/// A route as the document tells it: method, path, operation, what it brings, the statuses of its answers.
type Told = (&'static str, &'static str, &'static str, Body, &'static [u16]);

/// Every route of the API for people.
#[rustfmt::skip]
const PEOPLE: &[Told] = &[
    ("GET", "/api/v1/openapi.json", "openapi", Body::Nothing, &[200]),
    ("POST", "/api/v1/workflows", "startWorkflow", Body::Start, &[201, 200]),
    ("GET", "/api/v1/workflows", "listWorkflows", Body::Nothing, &[200]),
    ("GET", "/api/v1/workflows/{id}", "describeWorkflow", Body::Nothing, &[200]),
    ("DELETE", "/api/v1/workflows/{id}", "deleteWorkflow", Body::Nothing, &[200]),
    ("GET", "/api/v1/workflows/{id}/history", "getHistory", Body::Nothing, &[200]),
    ("GET", "/api/v1/workflows/{id}/result", "getResult", Body::Nothing, &[200, 202]),
    ("POST", "/api/v1/workflows/{id}/signals/{name}", "signalWorkflow", Body::Input, &[202]),
    ("POST", "/api/v1/workflows/{id}/queries/{name}", "queryWorkflow", Body::Input, &[200]),
    ("POST", "/api/v1/workflows/{id}/updates/{name}", "updateWorkflow", Body::Input, &[200, 202]),
    ("POST", "/api/v1/workflows/{id}/cancel", "cancelWorkflow", Body::Reason, &[202]),
    ("POST", "/api/v1/workflows/{id}/terminate", "terminateWorkflow", Body::Reason, &[200]),
    ("POST", "/api/v1/workflows/{id}/pause", "pauseWorkflow", Body::Reason, &[200]),
    ("POST", "/api/v1/workflows/{id}/resume", "resumeWorkflow", Body::Reason, &[200]),
    ("GET", "/api/v1/approvals", "listApprovals", Body::Nothing, &[200]),
    ("POST", "/api/v1/workflows/{id}/answers", "answer", Body::Answer, &[202]),
];

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
                `Authorization: Bearer TOKEN`; the owner's token is in the data directory.",
        },
        "security": [{ "token": [] }],
        "paths": paths,
        "components": { "securitySchemes": { "token": { "type": "http", "scheme": "bearer" } }, "schemas": schemas() },
    })
}

fn described(method: &str, path: &str, operation: &str, body: Body, statuses: &[u16]) -> Value {
    let about = super::super::routes::ROUTES.iter().find(|route| route.path == path && route.method == method);
    let named = path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'));
    let mut parameters: Vec<Value> =
        named.map(|name| json!({ "name": name, "in": "path", "required": true, "schema": id_schema() })).collect();
    parameters.extend(about.iter().flat_map(|route| route.query).map(|name| query(name)));
    let keyed = matches!(body, Body::Start | Body::Input | Body::Reason) && operation != "queryWorkflow";
    if keyed {
        let about = "The same request with the same key is carried out once";
        parameters.push(json!({ "name": "Idempotency-Key", "in": "header", "description": about,
            "schema": id_schema() }));
    }
    let schema = |name: &str| json!({ "$ref": format!("#/components/schemas/{name}") });
    let answer = |name: &str| json!({ "application/json": { "schema": schema(name) } });
    let mut responses: Map<String, Value> = statuses
        .iter()
        .map(|status| {
            (
                status.to_string(),
                json!({ "description": "done", "content": { "application/json": { "schema": { "type": "object" } } } }),
            )
        })
        .collect();
    for (range, about) in [("4XX", "refused: nothing has changed"), ("5XX", "the worker cannot do it now")] {
        responses.insert(range.to_owned(), json!({ "description": about, "content": answer("Problem") }));
    }
    let mut told = json!({
        "operationId": operation, "summary": about.map(|route| route.about), "parameters": parameters,
        "responses": responses,
    });
    let name = match body {
        Body::Nothing => return told,
        Body::Start => "Start",
        Body::Input => "Input",
        Body::Reason => "Reason",
        Body::Answer => "Answer",
    };
    let required = matches!(body, Body::Start | Body::Answer);
    told["requestBody"] = json!({ "required": required, "content": answer(name) });
    told
}

/// A span of time, for example `90s`.
const SPAN: &str = "^[0-9]{1,9}(ms|s|m|h)$";

/// An id: the server takes others too, of at most 255 bytes and without control characters.
fn id_schema() -> Value {
    json!({ "type": "string", "pattern": "^[!-~]([ -~]{0,198}[!-~])?$" })
}

/// Comparisons of what every run has, joined.
fn filter_shape() -> String {
    let text = "(WorkflowId|WorkflowType|TaskQueue) !?= '[A-Za-z0-9_.-]{0,60}'";
    let status = "ExecutionStatus !?= '(Running|Paused|Completed|Failed|Canceled|Terminated|ContinuedAsNew|TimedOut)'";
    let moment = "(StartTime|CloseTime) (<|<=|>|>=) '20[0-9]{2}-(0[1-9]|1[0-2])-(0[1-9]|1[0-9]|2[0-8])T00:00:00Z'";
    let one = format!("({text}|{status}|{moment})");
    format!("^({one}( (AND|OR) {one}){{0,4}})?$")
}

fn query(name: &str) -> Value {
    let (about, schema) = match name {
        "run_id" => {
            ("One run of the workflow id; the newest without it", json!({ "type": "string", "format": "uuid" }))
        }
        "namespace" => ("Where the workflow id is looked for", id_schema()),
        "query" => {
            let about = "A list filter, for example `ExecutionStatus = 'Running'`; here of what every run has. \
                         The server also takes search attributes, brackets, IN, BETWEEN and STARTS_WITH";
            (about, json!({ "type": "string", "pattern": filter_shape() }))
        }
        "limit" => ("How many at most", json!({ "type": "integer", "minimum": 1, "maximum": 1000, "default": 100 })),
        "cursor" => {
            let shape = "^[0-9]{1,15}\\.[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$";
            ("`next_cursor` of the page before", json!({ "type": "string", "pattern": shape }))
        }
        "from" => ("The first event", json!({ "type": "integer", "minimum": 1, "default": 1 })),
        "wait" => {
            let about = "How long to wait for the end, for example `20s`; it waits for no more than 20 s";
            (about, json!({ "type": "string", "pattern": SPAN }))
        }
        _ => ("", json!({ "type": "string" })),
    };
    json!({ "name": name, "in": "query", "required": false, "description": about, "schema": schema })
}

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
    start["id_reuse_policy"] =
        json!({ "enum": ["AllowDuplicate", "AllowDuplicateFailedOnly", "RejectDuplicate", null] });
    start["id_conflict_policy"] = json!({ "enum": ["Fail", "UseExisting", "TerminateExisting", null] });
    let name = json!({ "pattern": "^[A-Za-z][A-Za-z0-9_]{0,63}$" });
    start["memo"] = json!({ "type": "object", "description": "Any JSON by name", "propertyNames": name });
    let values = json!({ "anyOf": [{ "type": ["boolean", "integer", "number", "string"] },
        { "type": "array", "items": { "type": "string" } }] });
    start["search_attributes"] = json!({ "type": "object", "propertyNames": name, "additionalProperties": values });
    start["retry_policy"] = json!({ "type": "object", "additionalProperties": false, "properties": {
        "initial_interval": { "type": "string", "description": "Before the second attempt", "pattern": "^[1-9][0-9]{0,8}(ms|s|m)$" },
        "maximum_interval": { "type": "string", "description": "No delay is longer", "pattern": "^[1-9][0-9]{0,5}h$" },
        "backoff_coefficient": { "type": "number", "minimum": 1, "maximum": 1000 },
        "maximum_attempts": { "type": "integer", "minimum": 0, "maximum": 4_294_967_295_u32 },
        "non_retryable_error_types": { "type": "array", "items": { "type": "string" } },
    } });
    json!({
        "Start": { "type": "object", "required": ["workflow_type"], "additionalProperties": false, "properties": start },
        "Input": { "description": "Any JSON; nothing is null" },
        "Reason": { "type": "object", "additionalProperties": false, "properties": { "reason": text() } },
        "Answer": {
            "type": "object", "required": ["id"], "additionalProperties": false,
            "description": "`approved` to an approval, `answer` to a question",
            "properties": {
                "id": { "type": "string" }, "approved": { "type": "boolean" }, "answer": {},
                "comment": text(), "feedback": text(), "modified_action": text(),
            },
            "oneOf": [{ "required": ["approved"] }, { "required": ["answer"] }],
        },
        "Problem": {
            "type": "object", "required": ["code", "message"],
            "properties": {
                "code": { "type": "string" }, "message": { "type": "string" },
                "errors": { "type": "array", "items": { "type": "object", "required": ["at", "why"], "properties": {
                    "at": { "type": "string" }, "why": { "type": "string" } } } },
            },
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::routes::ROUTES;

    /// The document tells of what is served, and of nothing else.
    #[test]
    fn the_document_holds_every_route() {
        let served: Vec<(String, &str)> = ROUTES
            .iter()
            .filter(|route| route.path.starts_with("/api/v1/"))
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
