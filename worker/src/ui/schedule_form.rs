//! A schedule that is made, or changed, on a page.
//!
//! Invariant: what is sent is checked as the command line checks it, and a change goes by the version that the form showed, so
//! that nobody's change is lost. A form that is wrong comes back as it was filled in, with what is wrong; nothing was written.

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use bosun_engine::*;
use maud::{Markup, html};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::elements::query_value;
use super::forms::{Fields, Form, Query, Visitor};
use super::layout::{Page, PageError, Place, go_to};
use crate::api::TokenRole;
use crate::api::handlers::Api;
use crate::api::people::queries::ask;
use crate::api::problem::Problem;
use crate::api::token::random_hex;
use crate::backend::{Backend, CallError};
use crate::schedule::messages::Change;
use crate::schedule::run::ScheduleInput;
use crate::schedule::{ID_PREFIX, Overlap, Schedule};

const OVERLAPS: [(Overlap, &str); 6] = [
    (Overlap::Skip, "the new one is left out"),
    (Overlap::BufferOne, "one waits for its end"),
    (Overlap::BufferAll, "all wait for its end"),
    (Overlap::CancelOther, "it is asked to cancel"),
    (Overlap::TerminateOther, "it is ended at once"),
    (Overlap::AllowAll, "both run"),
];

/// The schedule to change; a new one where none is named.
#[derive(Deserialize)]
pub(super) struct ScheduleQuery {
    of: Option<String>,
    namespace: Option<String>,
}

/// The link to the form of a schedule.
pub(super) fn edit_link(namespace: &str, id: &str) -> String {
    format!("/schedule?of={}&namespace={}", query_value(id), query_value(namespace))
}

pub(super) async fn page(
    visitor: Visitor,
    State(api): State<Api>,
    Query(asked): Query<ScheduleQuery>,
) -> Result<Response, PageError> {
    let Some(id) = asked.of.as_deref() else { return Ok(new_page(&visitor, &api, &Fields::default(), None)) };
    let namespace = asked.namespace.as_deref().unwrap_or(DEFAULT_NAMESPACE);
    let shown = ask(&visitor.backend, &target(namespace, id)?, "describe").await;
    if !shown["schedule"].is_object() {
        return Err({
            let message = format!("there is no schedule {id:?} in the namespace {namespace}");
            Problem::new(StatusCode::NOT_FOUND, "not_found", message)
        }
        .into());
    }
    let (text, version) = (format!("{:#}", shown["schedule"]), shown["version"].to_string());
    let fields = Fields::of(&[("id", id), ("namespace", namespace), ("schedule", &text), ("version", &version)]);
    Ok(edit_page(&visitor, &fields, None))
}

pub(super) async fn save(api: State<Api>, form: Form) -> Result<Response, PageError> {
    let Form { visitor, fields } = form;
    let changes = fields.text("schedule").is_some();
    let saved = if changes { change(&visitor, &fields).await } else { create(&visitor, &fields).await };
    match saved {
        Ok(()) => Ok(go_to("/schedules")),
        Err(FormProblem::Field(why)) if changes => Ok(edit_page(&visitor, &fields, Some(&why))),
        Err(FormProblem::Field(why)) => Ok(new_page(&visitor, &api, &fields, Some(&why))),
        Err(FormProblem::Refused(why)) => Err(why.into()),
    }
}

/// Why nothing was saved.
enum FormProblem {
    /// What stands in the form.
    Field(String),
    /// Whoever sent it, or the state of the worker.
    Refused(Problem),
}

impl From<CallError> for FormProblem {
    fn from(why: CallError) -> FormProblem {
        match why {
            // What stands in the form can be mended there.
            CallError::Rejected(
                why @ (Rejection::AlreadyOpen { .. }
                | Rejection::UpdateRefused { .. }
                | Rejection::UnknownWorkflowType { .. }
                | Rejection::Invalid { .. }),
            ) => FormProblem::Field(Problem::from(why).message),
            why => FormProblem::Refused(why.into()),
        }
    }
}

fn field(name: &str, why: impl std::fmt::Display) -> FormProblem {
    FormProblem::Field(format!("{name}: {why}"))
}

fn target(namespace: &str, id: &str) -> Result<Target, Problem> {
    let invalid = |why: InvalidId| Problem::bad_request(why.to_string());
    let workflow_id = WorkflowId::new(format!("{ID_PREFIX}{id}")).map_err(invalid)?;
    Ok(Target { namespace: Namespace::new(namespace).map_err(invalid)?, ..Target::workflow(workflow_id) })
}

fn checked(id: &str, schedule: Value) -> Result<Schedule, FormProblem> {
    let schedule: Schedule = serde_path_to_error::deserialize(schedule)
        .map_err(|why| FormProblem::Field(format!("`{}`: {}", why.path(), why.inner())))?;
    let wrong: Vec<String> = schedule.problems(id).iter().map(ToString::to_string).collect();
    if !wrong.is_empty() {
        return Err(FormProblem::Field(wrong.join("; ")));
    }
    Ok(schedule)
}

/// The fields of a new schedule as a spec.
fn spec_of(id: &str, fields: &Fields) -> Result<Value, FormProblem> {
    let lines = |name: &str| -> Vec<String> {
        let text = fields.text(name).unwrap_or_default();
        text.lines().map(|line| line.trim().to_owned()).filter(|line| !line.is_empty()).collect()
    };
    let mut spec = Map::new();
    spec.insert("cron".into(), json!(lines("cron")));
    if let Some(every) = fields.text("every") {
        spec.insert("intervals".into(), json!([{ "every": every.trim() }]));
    }
    for (name, key) in [("zone", "time_zone"), ("start", "start_time"), ("end", "end_time"), ("jitter", "jitter")] {
        if let Some(text) = fields.text(name) {
            spec.insert(key.into(), json!(text.trim()));
        }
    }
    let input: Value = match fields.text("input") {
        Some(text) => serde_json::from_str(text).map_err(|why| field("input", format!("it is not JSON: {why}")))?,
        None => Value::Null,
    };
    let mut action =
        json!({ "workflow_type": fields.text("type").unwrap_or_default().trim(), "workflow_id": id, "input": input });
    if let Some(queue) = fields.text("task_queue") {
        action["task_queue"] = queue.trim().into();
    }
    let overlap = fields.text("overlap").unwrap_or(Overlap::Skip.name());
    let state = json!({ "paused": fields.text("paused").is_some(), "note": fields.text("note").unwrap_or_default() });
    Ok(json!({ "spec": spec, "action": action, "policies": { "overlap": overlap }, "state": state }))
}

async fn create(visitor: &Visitor, fields: &Fields) -> Result<(), FormProblem> {
    let id = fields.text("id").unwrap_or_default().trim();
    let schedule = checked(id, spec_of(id, fields)?)?;
    let named = fields.text("namespace").map(|name| Namespace::new(name.trim())).transpose();
    let namespace = visitor.backend.namespace_of_new(named.map_err(|why| field("namespace", why))?);
    let target = target(namespace.as_str(), id).map_err(|why| field("id", why.message))?;
    let start = ScheduleInput::start(schedule, target).map_err(|why| field("input", why))?;
    visitor.backend.start(start).await?;
    Ok(())
}

async fn change(visitor: &Visitor, fields: &Fields) -> Result<(), FormProblem> {
    let id = fields.text("id").unwrap_or_default();
    let namespace = fields.text("namespace").unwrap_or(DEFAULT_NAMESPACE);
    let schedule = serde_json::from_str(fields.text("schedule").unwrap_or_default());
    let schedule = checked(id, schedule.map_err(|why| field("schedule", format!("it is not JSON: {why}")))?)?;
    let change = Change { schedule, version: fields.text("version").and_then(|text| text.parse().ok()) };
    let request = UpdateRequest {
        update_id: UpdateId::of(random_hex(8).map_err(|why| field("update", why))?),
        name: UpdateName::of("update"),
        input: Payload::encode(&change).map_err(|why| field("schedule", why))?,
        identity: None,
        wait: UpdateWait::Completed,
    };
    match visitor.backend.update(target(namespace, id).map_err(FormProblem::Refused)?, request).await? {
        UpdateOutcome::Completed(Err(why)) => Err(FormProblem::Field(why.message)),
        UpdateOutcome::Completed(Ok(_)) | UpdateOutcome::Accepted => Ok(()),
    }
}

fn crumbs() -> Markup {
    html! { nav.crumbs aria-label="Where you are" { a href="/schedules" { "Schedules" } " › " } }
}

fn wrong(why: Option<&str>) -> Markup {
    html! { @if let Some(why) = why { p.problem role="alert" { (why) " Nothing was saved." } } }
}

// long: the form, field by field.
fn new_page(visitor: &Visitor, api: &Api, fields: &Fields, why: Option<&str>) -> Response {
    let types: Vec<String> = api.workflows.types().map(ToString::to_string).collect();
    let given = |name: &str| fields.text(name).unwrap_or_default();
    let chosen = fields.text("overlap").unwrap_or(Overlap::Skip.name());
    let body = html! {
        (crumbs())
        h1 { "New schedule" }
        (wrong(why))
        @if !visitor.may(TokenRole::Operator) { (visitor.may_not(TokenRole::Operator)) } @else { form.stack method="post" action="/schedule" {
            (visitor.seal())
            label for="id" { "Id" }
            input #id name="id" required spellcheck="false" autocomplete="off" value=(given("id")) autofocus[why.is_none()];
            label for="type" { "Workflow type" }
            input #type name="type" list="types" required spellcheck="false" value=(given("type"));
            datalist #types { @for name in &types { option value=(name) {} } }
            label for="input" { "Input " span.muted { "(JSON)" } }
            textarea #input name="input" rows="5" spellcheck="false" { (given("input")) }
            label for="cron" { "Cron " span.muted { "(a line each, such as 0 2 * * MON-FRI)" } }
            textarea #cron name="cron" rows="2" spellcheck="false" { (given("cron")) }
            label for="every" { "Or every " span.muted { "(such as 10m)" } }
            input #every name="every" spellcheck="false" autocomplete="off" value=(given("every"));
            label for="zone" { "Time zone " span.muted { "(left empty: UTC)" } }
            input #zone name="zone" spellcheck="false" autocomplete="off" placeholder="Europe/Berlin" value=(given("zone"));
            label for="overlap" { "When an earlier run is open" }
            select #overlap name="overlap" { @for (overlap, words) in OVERLAPS {
                option value=(overlap.name()) selected[overlap.name() == chosen] { (words) }
            } }
            label for="note" { "Note" }
            input #note name="note" autocomplete="off" value=(given("note"));
            details {
                summary { "More" }
                @for (name, words) in [("start", "Not before (such as 2026-12-01T00:00:00Z)"), ("end", "Not after"), ("jitter", "Later by up to (such as 5m)"), ("namespace", "Namespace"), ("task_queue", "Task queue")] {
                    label for=(name) { (words) }
                    input id=(name) name=(name) spellcheck="false" autocomplete="off" value=(given(name));
                }
                label { input type="checkbox" name="paused" value="yes" checked[fields.text("paused").is_some()]; " Begin paused" }
            }
            button.primary type="submit" { "Create" }
        } }
        p.muted { "A plan or a supervisor's spec is a file: " (visitor.command("bosun schedule create nightly SPEC.yaml --cron '0 2 * * *'")) }
    };
    Page { title: "New schedule", place: Place::Schedules, live: None, body }.response(visitor)
}

fn edit_page(visitor: &Visitor, fields: &Fields, why: Option<&str>) -> Response {
    let given = |name: &str| fields.text(name).unwrap_or_default();
    let body = html! {
        (crumbs())
        h1 { "Change " (given("id")) }
        (wrong(why))
        @if !visitor.may(TokenRole::Operator) { (visitor.may_not(TokenRole::Operator)) } @else { form.stack method="post" action="/schedule" {
            (visitor.seal())
            @for name in ["id", "namespace", "version"] { input type="hidden" name=(name) value=(given(name)); }
            label for="schedule" { "The whole schedule " span.muted { "(JSON, as " code { "bosun schedule describe" } " shows it and " code { "bosun schema schedule" } " describes it)" } }
            textarea #schedule name="schedule" rows="30" required spellcheck="false" { (given("schedule")) }
            button.primary type="submit" { "Save" }
        } }
        p { (visitor.command_in(&Namespace::new(given("namespace")).unwrap_or_else(|_| Namespace::of(DEFAULT_NAMESPACE)), &format!("bosun schedule update {}", crate::cli::shell_word(given("id"))))) }
    };
    Page { title: "Change a schedule", place: Place::Schedules, live: None, body }.response(visitor)
}
