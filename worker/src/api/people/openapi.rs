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
    let mut parameters: Vec<Value> = named
        .map(|name| json!({ "name": name, "in": "path", "required": true, "schema": { "type": "string", "minLength": 1 } }))
        .collect();
    parameters.extend(about.iter().flat_map(|route| route.query).map(|name| query(name)));
    let keyed = matches!(body, Body::Start | Body::Input | Body::Reason) && operation != "queryWorkflow";
    if keyed {
        let about = "The same request with the same key is carried out once";
        parameters.push(json!({ "name": "Idempotency-Key", "in": "header", "description": about,
            "schema": { "type": "string", "minLength": 1, "maxLength": 200 } }));
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

fn query(name: &str) -> Value {
    let (about, schema) = match name {
        "run_id" => {
            ("One run of the workflow id; the newest without it", json!({ "type": "string", "format": "uuid" }))
        }
        "namespace" => ("Where the workflow id is looked for", json!({ "type": "string", "default": "default" })),
        "query" => ("A list filter, for example `ExecutionStatus = 'Running'`", json!({ "type": "string" })),
        "limit" => ("How many at most", json!({ "type": "integer", "minimum": 1, "maximum": 1000, "default": 100 })),
        "cursor" => ("`next_cursor` of the page before", json!({ "type": "string" })),
        "from" => ("The first event", json!({ "type": "integer", "minimum": 1, "default": 1 })),
        "wait" => ("How long to wait for the end, for example `20s`", json!({ "type": "string" })),
        _ => ("", json!({ "type": "string" })),
    };
    json!({ "name": name, "in": "query", "required": false, "description": about, "schema": schema })
}

fn schemas() -> Value {
    let text = || json!({ "type": ["string", "null"] });
    let span = |about: &str| json!({ "type": ["string", "null"], "description": about, "examples": ["30s", "1h"] });
    let mut start: Map<String, Value> = MEMBERS.iter().map(|name| ((*name).to_owned(), text())).collect();
    start["workflow_type"] = json!({ "type": "string", "minLength": 1 });
    start["input"] = json!({ "description": "Any JSON: the workflow's input" });
    start["execution_timeout"] = span("For the whole chain of runs");
    start["run_timeout"] = span("For one run");
    start["id_reuse_policy"] =
        json!({ "enum": ["AllowDuplicate", "AllowDuplicateFailedOnly", "RejectDuplicate", null] });
    start["id_conflict_policy"] = json!({ "enum": ["Fail", "UseExisting", "TerminateExisting", null] });
    for name in ["memo", "search_attributes", "retry_policy"] {
        start[name] = json!({ "type": ["object", "null"] });
    }
    json!({
        "Start": { "type": "object", "required": ["workflow_type"], "additionalProperties": false, "properties": start },
        "Input": { "description": "Any JSON; nothing is null" },
        "Reason": { "type": "object", "additionalProperties": false, "properties": { "reason": text() } },
        "Answer": {
            "type": "object", "required": ["id"], "additionalProperties": false,
            "description": "`approved` to an approval, `answer` to a question",
            "properties": {
                "id": { "type": "string" }, "approved": { "type": ["boolean", "null"] }, "answer": {},
                "comment": text(), "feedback": text(), "modified_action": text(),
            },
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
