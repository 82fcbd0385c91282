//! The forms that start a run: of any workflow type with its input, and of a supervisor from the text of its spec.
//!
//! Invariant: a spec is read and checked as `bosun run SPEC.yaml` checks it, before anything is started; a form that is wrong
//! comes back as it was typed, with what is wrong and where. It names no file of the worker's machine.

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use bosun_engine::*;
use maud::{Markup, html};
use serde::Deserialize;
use serde_json::Value;

use super::elements::run_link;
use super::forms::{Fields, Form, Query, Visitor};
use super::layout::{Page, PageError, Place, go_to};
use crate::api::handlers::Api;
use crate::api::problem::Problem;
use crate::api::token::random_hex;
use crate::api::{CallerBackend, TokenRole};
use crate::backend::Backend;
use crate::supervisor::run::{SUPERVISOR, SupervisorInput};
use crate::supervisor::spec::read_spec;

/// A run that another one is to be like.
#[derive(Deserialize)]
pub(super) struct StartQuery {
    like: Option<String>,
    run_id: Option<String>,
    namespace: Option<String>,
}

/// What the form begins with.
#[derive(Default)]
struct Draft {
    workflow_type: String,
    namespace: String,
    task_queue: String,
    input: String,
    spec: String,
    /// It is of the form of a spec, whether that says anything or not.
    of_spec: bool,
    id: String,
}

impl Draft {
    /// What was typed into one of the forms.
    fn of(fields: &Fields) -> Draft {
        let text = |name: &str| fields.text(name).unwrap_or_default().to_owned();
        Draft {
            workflow_type: text("type"),
            namespace: text("namespace"),
            task_queue: text("task_queue"),
            input: text("input"),
            spec: text("spec"),
            of_spec: fields.sent("spec").is_some(),
            id: text("id"),
        }
    }
}

/// The start of a run, as it stands in its first event.
async fn draft(visitor: &Visitor, like: &StartQuery) -> Result<Draft, Problem> {
    let Some(id) = &like.like else { return Ok(Draft::default()) };
    let invalid = |why: InvalidId| Problem::bad_request(why.to_string());
    let mut target = Target::workflow(WorkflowId::new(id).map_err(invalid)?);
    target.run_id = like.run_id.as_deref().map(str::parse).transpose().map_err(invalid)?;
    if let Some(namespace) = &like.namespace {
        target.namespace = Namespace::new(namespace).map_err(invalid)?;
    }
    let first = visitor.backend.history(target, EventId(1), 1).await?.pop();
    let Some(EventKind::WorkflowExecutionStarted(started)) = first.map(|event| event.kind) else {
        return Ok(Draft::default());
    };
    Ok(Draft {
        workflow_type: started.workflow_type.to_string(),
        namespace: started.namespace.to_string(),
        task_queue: started.task_queue.to_string(),
        input: format!("{:#}", started.input.to_json()),
        ..Draft::default()
    })
}

pub(super) async fn page(
    visitor: Visitor,
    api: State<Api>,
    Query(like): Query<StartQuery>,
) -> Result<Response, PageError> {
    let draft = draft(&visitor, &like).await?;
    Ok(shown(&visitor, &api, &draft, (like.like.as_deref(), None)))
}

/// Both forms; only the one that was sent, where `wrong` says what is wrong with it.
fn shown(visitor: &Visitor, api: &Api, draft: &Draft, (like, wrong): (Option<&str>, Option<&str>)) -> Response {
    let body = html! {
        h1 { "Start a run" }
        @if let Some(id) = like { p { "As " a href=(run_link(&draft.namespace, id, None)) { (id) } " was started; change what is to be different." } }
        @if !visitor.may(TokenRole::Operator) { (visitor.may_not(TokenRole::Operator)) } @else {
            @if let Some(why) = wrong { p.problem role="alert" { span.wrap { (why) } " Nothing was started." } }
            @if wrong.is_none() || !draft.of_spec { (of_type(visitor, api, draft, like.is_none() && wrong.is_none())) }
            @if wrong.is_none() { h2 { "A supervisor, from its spec" } }
            @if wrong.is_none() || draft.of_spec { (of_spec(visitor, draft)) }
        }
        p.muted { "The file of a plan, or of a spec that names other files: " (visitor.command("bosun run SPEC.yaml")) }
    };
    Page { title: "Start a run", place: Place::Runs, live: None, body }.response(visitor)
}

/// Where a run is started by who names no namespace.
fn own_namespace(visitor: &Visitor) -> Namespace {
    visitor.backend.namespace_of_new(None)
}

fn of_type(visitor: &Visitor, api: &Api, draft: &Draft, is_first: bool) -> Markup {
    let types: Vec<String> = api.workflows.types().map(ToString::to_string).collect();
    html! { form.stack method="post" action="/start" {
        (visitor.seal())
        label for="type" { "Workflow type" }
        input #type name="type" list="types" required spellcheck="false" value=(draft.workflow_type) autofocus[is_first];
        datalist #types { @for name in &types { option value=(name) {} } }
        label for="id" { "Workflow id " span.muted { "(left empty: a new one)" } }
        input #id name="id" spellcheck="false" value=(draft.id);
        label for="input" { "Input " span.muted { "(JSON)" } }
        textarea #input name="input" rows="10" spellcheck="false" { (draft.input) }
        details {
            summary { "Where it runs" }
            label for="namespace" { "Namespace " span.muted { "(left empty: " (own_namespace(visitor)) ")" } }
            input #namespace name="namespace" spellcheck="false" value=(draft.namespace);
            label for="task-queue" { "Task queue " span.muted { "(left empty: default)" } }
            input #task-queue name="task_queue" spellcheck="false" value=(draft.task_queue);
        }
        button.primary type="submit" { "Start" }
    } }
}

fn of_spec(visitor: &Visitor, draft: &Draft) -> Markup {
    html! {
        form.stack method="post" action="/start" {
            (visitor.seal())
            label for="spec" { "Spec " span.muted { "(YAML, as in a file of " code { "kind: supervisor" } "; " code { "bosun schema spec" } " describes it)" } }
            textarea #spec name="spec" rows="14" required spellcheck="false" { (draft.spec) }
            // Read by the script: without one a file is opened elsewhere, and its text put here.
            label.from-file for="spec-file" hidden { "Or from a file " }
            input.from-file #spec-file type="file" accept=".yaml,.yml,.json" data-into="spec" hidden;
            label for="spec-id" { "Workflow id " span.muted { "(left empty: a new one)" } }
            input #spec-id name="id" spellcheck="false" value=(draft.id);
            label for="spec-namespace" { "Namespace " span.muted { "(left empty: " (own_namespace(visitor)) ")" } }
            input #spec-namespace name="namespace" spellcheck="false" value=(draft.namespace);
            button.primary type="submit" { "Start it" }
        }
    }
}

/// What a supervisor of this spec is started with; or what is wrong with it.
fn input_of(spec: &str) -> Result<Payload, String> {
    let resolved = read_spec("the spec", spec).and_then(|read| read.resolve()).map_err(|why| why.to_string())?;
    let input = SupervisorInput::new(resolved);
    match input.refused() {
        Some(why) => Err(format!("Invalid supervisor spec. {why}")),
        None => Payload::encode(&input).map_err(|why| why.to_string()),
    }
}

pub(super) async fn start(api: State<Api>, form: Form) -> Result<Response, PageError> {
    let Form { visitor, fields } = form;
    let asked = match request(&visitor.backend, &fields) {
        // Whoever may not start is told so, and not what is wrong.
        Err(_) if !visitor.may(TokenRole::Operator) => {
            Ok(StartWorkflow::new(SUPERVISOR.into(), WorkflowId::of("none")))
        }
        asked => asked,
    };
    let started = match asked {
        Ok(start) => {
            let namespace = start.namespace.clone();
            visitor.backend.start(start).await.map(|started| (namespace, started)).map_err(Problem::from)
        }
        Err(why) => Err(Problem::bad_request(why)),
    };
    match started {
        Ok((namespace, started)) => {
            Ok(go_to(&run_link(namespace.as_str(), started.workflow_id.as_str(), Some(started.run_id))))
        }
        Err(why) if why.status == StatusCode::FORBIDDEN => Err(why.into()),
        Err(why) => Ok(shown(&visitor, &api, &Draft::of(&fields), (None, Some(&why.message)))),
    }
}

/// What a form asks to be started; or what is wrong with it, with the name of the field.
fn request(caller: &CallerBackend, fields: &Fields) -> Result<StartWorkflow, String> {
    let bad = |at: &str, why: InvalidId| format!("{at}: {why}");
    // Whichever form was sent: an empty spec is what is wrong with its own.
    let (workflow_type, input) = match fields.sent("spec") {
        Some(spec) => (SUPERVISOR, input_of(spec)?),
        None => (fields.text("type").unwrap_or_default().trim(), input_in(fields)?),
    };
    let workflow_type = WorkflowType::new(workflow_type).map_err(|why| bad("workflow type", why))?;
    let id = match fields.text("id") {
        Some(id) => id.trim().to_owned(),
        None => format!("{workflow_type}-{}", random_hex(8).map_err(|why| format!("workflow id: {why}"))?),
    };
    let id = WorkflowId::new(id).map_err(|why| bad("workflow id", why))?;
    let mut start = StartWorkflow::new(workflow_type, id).input(input);
    let named = fields.text("namespace").map(|name| Namespace::new(name.trim())).transpose();
    start.namespace = caller.namespace_of_new(named.map_err(|why| bad("namespace", why))?);
    if let Some(queue) = fields.text("task_queue") {
        start.task_queue = TaskQueue::new(queue.trim()).map_err(|why| bad("task queue", why))?;
    }
    Ok(start)
}

/// The input of a workflow of any type.
fn input_in(fields: &Fields) -> Result<Payload, String> {
    let input: Value = match fields.text("input") {
        Some(text) => serde_json::from_str(text).map_err(|why| format!("input: it is not JSON: {why}"))?,
        None => Value::Null,
    };
    Payload::encode(&input).map_err(|why| format!("input: {why}"))
}
