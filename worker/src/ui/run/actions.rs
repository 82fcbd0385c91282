//! What can be done to a run from its page: pause and resume, cancel, terminate, send a signal.
//!
//! Invariant: what is done is what the command of the same name does, with the same words in the history; whoever may not
//! do it is refused by the backend that they have.

use std::time::Duration;

use axum::http::StatusCode;
use axum::response::Response;
use bosun_engine::*;
use maud::{Markup, html};
use serde_json::Value;

use crate::api::TokenRole;
use crate::api::handlers::RequestTarget;
use crate::api::problem::Problem;
use crate::api::token::random_hex;
use crate::backend::{ActivityAsked, Attribution, Backend, CallError};
use crate::cli::waiting::Hold;
use crate::schedule::IsSchedule;
use crate::supervisor::spec::Span;
use crate::ui::elements::{command_of, failure, open_value, path_segment, query_value, run_link};
use crate::ui::forms::{Fields, Form, Visitor};
use crate::ui::layout::{Page, PageError, Place, go_to, problem_page};
use crate::ui::run::whole::act_on;
use crate::ui::schedules::back_from;

/// The forms of a run, for who may use them; for everybody the commands that do the same.
pub(crate) fn actions(visitor: &Visitor, info: &RunInfo, hold: Option<Hold>) -> Markup {
    let open = info.status.is_open();
    let may = visitor.may(TokenRole::Operator);
    let holds: &[&str] = match (info.status, hold) {
        (WorkflowStatus::Paused, _) | (_, Some(Hold::Paused)) => &["resume"],
        (_, Some(Hold::TakenOver)) => &["release"],
        // One that is held cannot say whether it has paused itself.
        (_, None) if info.held => &["pause", "resume"],
        (_, None) => &["pause"],
    };
    // A schedule has a page that deletes it.
    let ends: &[&str] = if IsSchedule::of(info).is_ok() { &["cancel", "terminate"] } else { &[] };
    html! {
        div.actions {
            @if open && may {
                @for verb in holds { (button(visitor, info, verb, false)) }
                @for verb in ends { (button(visitor, info, verb, true)) }
                @for message in ["signal", "update"] { (message_form(visitor, info, message)) }
            }
            @if may { (message_form(visitor, info, "query")) }
            @if may { a.button href=(start_link(info)) { "Start another" } }
            details.menu {
                summary { "Export" }
                div.menu-body {
                    @for form in ["html", "mermaid", "perfetto", "json"] { a href=(export_link(info, form)) download { (form) } }
                }
            }
            details.menu {
                summary { "Commands" }
                div.menu-body {
                    @for verb in ["describe", "show --follow", "replay debug", "replay explain", "export"] { (visitor.command(&command_of(verb, info, ""))) }
                    @if open { @for verb in holds.iter().chain(ends) { (visitor.command(&command_of(verb, info, ""))) } }
                }
            }
        }
    }
}

/// The form that starts a run like this one.
fn start_link(info: &RunInfo) -> String {
    let id = query_value(info.workflow_id.as_str());
    format!("/start?like={id}&run_id={}&namespace={}", info.run_id, query_value(info.namespace.as_str()))
}

fn export_link(info: &RunInfo, form: &str) -> String {
    let (run, namespace) = (info.run_id, query_value(info.namespace.as_str()));
    format!("/runs/{}/export?as={form}&run_id={run}&namespace={namespace}", path_segment(info.workflow_id.as_str()))
}

fn form_of(visitor: &Visitor, info: &RunInfo, verb: &str, body: Markup) -> Markup {
    let action = format!("/runs/{}/act", path_segment(info.workflow_id.as_str()));
    html! {
        form method="post" action={ (action) "?run_id=" (info.run_id) "&namespace=" (query_value(info.namespace.as_str())) } {
            (visitor.seal())
            input type="hidden" name="verb" value=(verb);
            (body)
        }
    }
}

/// The word on a button.
pub(in crate::ui) fn label_of(verb: &str) -> &'static str {
    match verb {
        "pause" => "Pause",
        "resume" => "Resume",
        "release" => "Give it back",
        "cancel" => "Cancel",
        "terminate" => "Terminate",
        "signal" => "Signal",
        "update" => "Update",
        "end_activity" => "End an activity",
        "update_activity" => "Change an activity",
        _ => "Query",
    }
}

/// What cannot be taken back is asked for in a second step.
fn button(visitor: &Visitor, info: &RunInfo, verb: &str, twice: bool) -> Markup {
    let label = label_of(verb);
    if !twice {
        return form_of(visitor, info, verb, html! { button type="submit" { (label) } });
    }
    let reason = format!("reason-{verb}");
    html! {
        details.menu {
            summary { (label) "…" }
            div.menu-body {
                (form_of(visitor, info, verb, html! {
                    label for=(reason) { "Reason" }
                    input id=(reason) name="reason" autocomplete="off";
                    button.danger type="submit" { (label) " " (info.workflow_id) }
                }))
            }
        }
    }
}

fn message_form(visitor: &Visitor, info: &RunInfo, verb: &str) -> Markup {
    html! {
        details.menu {
            summary { (label_of(verb)) "…" }
            div.menu-body {
                (form_of(visitor, info, verb, message_fields(verb, &Fields::default())))
            }
        }
    }
}

fn message_fields(verb: &str, typed: &Fields) -> Markup {
    let (name, input) = (format!("{verb}-name"), format!("{verb}-input"));
    let text = |name: &str| typed.text(name).unwrap_or_default();
    html! {
        label for=(name) { "Name" }
        input id=(name) name="name" required autocomplete="off" spellcheck="false" value=(text("name"));
        label for=(input) { "Input " span.muted { "(JSON)" } }
        textarea id=(input) name="input" rows="4" spellcheck="false" { (text("input")) }
        button type="submit" { @if verb == "query" { "Ask" } @else { "Send" } }
    }
}

/// A form as it was sent, with what is wrong with it; nothing was done.
async fn again(
    visitor: &Visitor,
    target: Target,
    verb: &str,
    fields: &Fields,
    why: Problem,
) -> Result<Response, PageError> {
    // Whoever may not act is told so, and a run that is gone has no form.
    if why.status == StatusCode::FORBIDDEN || !visitor.may(TokenRole::Operator) {
        return Err(why.into());
    }
    let info = match visitor.backend.describe(target).await {
        Ok(seen) => seen.info,
        Err(_) => return Err(why.into()),
    };
    let activity = ActivityId::new(fields.text("activity").unwrap_or_default());
    let body = match (verb, activity) {
        ("signal" | "update" | "query", _) => message_fields(verb, fields),
        ("end_activity", _) => end_fields("", fields.text("token").unwrap_or_default(), fields),
        ("update_activity", Ok(id)) => options_fields(&id, fields),
        _ => return Err(why.into()),
    };
    let here = run_link(info.namespace.as_str(), info.workflow_id.as_str(), Some(info.run_id));
    let title = label_of(verb);
    let body = html! {
        nav.crumbs aria-label="Where you are" { a href="/" { "Runs" } " › " a href=(here) { (info.workflow_id) } }
        h1 { (title) }
        p.problem role="alert" { span.wrap { (why.message) } " Nothing was sent." }
        (form_of(visitor, &info, verb, html! {
            div.stack {
                @if let Some(back) = fields.text("back") { input type="hidden" name="back" value=(back); }
                (body)
            }
        }))
    };
    Ok(Page { title, place: Place::Runs, live: None, body }.response(visitor))
}

/// What can be done to one activity that is pending: held back, let go on, and ended by hand where it waits for that.
pub(in crate::ui) fn of_activity(
    visitor: &Visitor,
    info: &RunInfo,
    id: &ActivityId,
    paused: bool,
    token: Option<&str>,
) -> Markup {
    let (verb, words) =
        if paused { ("resume_activity", "Let it go on") } else { ("pause_activity", "No further attempt") };
    html! { @if visitor.may(TokenRole::Operator) {
        div.line.activity {
            (form_of(visitor, info, verb, html! {
                input type="hidden" name="activity" value=(id);
                button type="submit" { (words) }
            }))
            @if let Some(token) = token {
                details {
                    summary { "End it by hand" }
                    (form_of(visitor, info, "end_activity", end_fields(id.as_str(), token, &Fields::default())))
                }
            }
            details {
                summary { "Change it" }
                (form_of(visitor, info, "update_activity", options_fields(id, &Fields::default())))
            }
        }
    } }
}

/// What of an activity can be changed while it is pending, with the words of its fields.
const OPTIONS: [(&str, &str); 6] = [
    ("start_to_close", "Time limit of an attempt (such as 5m)"),
    ("schedule_to_close", "Time limit of all attempts"),
    ("heartbeat", "Time between signs of life"),
    ("initial_interval", "Pause before the second attempt"),
    ("maximum_interval", "Longest pause"),
    ("maximum_attempts", "Attempts in all"),
];

fn end_fields(id: &str, token: &str, typed: &Fields) -> Markup {
    let field = format!("result-{id}");
    html! {
        input type="hidden" name="token" value=(token);
        label for=(field) { "Result " span.muted { "(JSON)" } ", or why it failed" }
        textarea id=(field) name="value" rows="3" spellcheck="false" { (typed.text("value").unwrap_or_default()) }
        div.line {
            button type="submit" name="as" value="result" { "Complete it" }
            button.danger type="submit" name="as" value="failure" { "Fail it" }
        }
    }
}

fn options_fields(id: &ActivityId, typed: &Fields) -> Markup {
    let text = |name: &str| typed.text(name).unwrap_or_default();
    html! {
        input type="hidden" name="activity" value=(id);
        @for (name, words) in OPTIONS {
            @let field = format!("{name}-{id}");
            label for=(field) { (words) }
            input id=(field) name=(name) autocomplete="off" spellcheck="false" value=(text(name));
        }
        label { input type="checkbox" name="reset" value="yes" checked[!text("reset").is_empty()]; " Count attempts and time anew" }
        label { input type="checkbox" name="retry_now" value="yes" checked[!text("retry_now").is_empty()]; " Try again now" }
        @let reason = format!("reason-{id}");
        label for=(reason) { "Reason" }
        input id=(reason) name="reason" autocomplete="off" value=(text("reason"));
        button type="submit" { "Change" }
    }
}

/// What a form says of an activity; an empty field changes nothing.
fn activity_update(fields: &Fields) -> Result<ActivityUpdate, Problem> {
    let wrong = |name: &str, why: String| Problem::bad_request(format!("{name}: {why}"));
    let span = |name: &str| {
        let text =
            fields.text(name).map(|text| text.trim().parse::<Span>().map_err(|why| wrong(name, why.to_string())));
        text.transpose().map(|span| span.map(Duration::from))
    };
    let attempts = fields.text("maximum_attempts").map(|text| text.trim().parse::<u32>());
    Ok(ActivityUpdate {
        schedule_to_close: span("schedule_to_close")?,
        schedule_to_start: None,
        start_to_close: span("start_to_close")?,
        heartbeat: span("heartbeat")?,
        initial_interval: span("initial_interval")?,
        maximum_interval: span("maximum_interval")?,
        maximum_attempts: attempts.transpose().map_err(|why| wrong("maximum_attempts", why.to_string()))?,
        reset: fields.text("reset").is_some(),
        retry_now: fields.text("retry_now").is_some(),
    })
}

pub(in crate::ui) async fn act(at: Result<RequestTarget, Problem>, form: Form) -> Result<Response, PageError> {
    let target = at?.target;
    let Form { visitor, fields } = form;
    let verb = fields.text("verb").unwrap_or_default();
    let here = run_link(target.namespace.as_str(), target.workflow_id.as_str(), target.run_id);
    let done = match verb {
        "query" | "update" => answered(&visitor, target.clone(), verb, &fields).await.map(Some),
        verb => carry_out(&visitor.backend, &target, verb, &fields).await.map(|()| None),
    };
    match done {
        Err(why) => again(&visitor, target, verb, &fields, why)
            .await
            .or_else(|PageError(why)| Ok(problem_page(why, Some((&here, "Back to the run"))))),
        Ok(Some(page)) => Ok(page),
        // A schedule is changed on the page of all of them.
        Ok(None) if fields.text("back") == Some("schedules") => Ok(go_to("/schedules")),
        Ok(None) => Ok(go_to(&here)),
    }
}

/// Does what leads back to the run.
async fn carry_out(backend: &dyn Backend, target: &Target, verb: &str, fields: &Fields) -> Result<(), Problem> {
    let because =
        Attribution { reason: fields.text("reason").unwrap_or_default().to_owned(), ..Attribution::default() };
    match verb {
        "signal" => {
            let name = SignalName::new(fields.text("name").unwrap_or_default());
            let name = name.map_err(|why| Problem::bad_request(format!("name of the signal: {why}")))?;
            let input = json_field("input", fields.text("input"))?;
            let signal = SignalRequest { name, input, identity: None, request_id: None };
            Ok(backend.signal(target.clone(), signal).await?)
        }
        verb @ ("pause_activity" | "resume_activity" | "update_activity") => {
            let id = ActivityId::new(fields.text("activity").unwrap_or_default());
            let id = id.map_err(|why| Problem::bad_request(format!("activity: {why}")))?;
            match verb {
                "pause_activity" => Ok(backend.pause_activity(target.clone(), id, because).await?),
                "update_activity" => {
                    let asked = ActivityAsked { update: activity_update(fields)?, because };
                    Ok(backend.update_activity(target.clone(), id, asked).await?)
                }
                _ => Ok(backend.unpause_activity(target.clone(), id, because).await?),
            }
        }
        "end_activity" => end_activity(backend, fields).await,
        verb => act_on(backend, target.clone(), verb, because).await,
    }
}

async fn end_activity(backend: &dyn Backend, fields: &Fields) -> Result<(), Problem> {
    let token: TaskToken = fields.text("token").unwrap_or_default().parse()?;
    let completion = match fields.text("as") {
        Some("failure") => {
            let why = fields.text("value").ok_or_else(|| Problem::bad_request("value: say why it failed"))?;
            ActivityCompletion::Fail(Failure::application("External", why))
        }
        _ => ActivityCompletion::Complete(json_field("value", fields.text("value"))?),
    };
    Ok(backend.complete_activity(token, completion).await?)
}

/// The answer to a query, or to an update, on a page of its own; an update of a schedule leads back to all of them.
async fn answered(visitor: &Visitor, target: Target, verb: &str, fields: &Fields) -> Result<Response, Problem> {
    let (name, input) = (fields.text("name").unwrap_or_default(), json_field("input", fields.text("input"))?);
    let wrong = |why: InvalidId| Problem::bad_request(format!("name of the {verb}: {why}"));
    let answer = if verb == "query" {
        let name = QueryName::new(name).map_err(wrong)?;
        Ok(visitor.backend.query(target.clone(), name, input).await?)
    } else {
        let name = UpdateName::new(name).map_err(wrong)?;
        let update_id = UpdateId::of(random_hex(8).map_err(|why| Problem::bad_request(why.to_string()))?);
        let request = UpdateRequest { update_id, name, input, identity: None, wait: UpdateWait::Completed };
        match visitor.backend.update(target.clone(), request).await {
            Ok(UpdateOutcome::Completed(answer)) => answer,
            Ok(UpdateOutcome::Accepted) => Ok(Payload::null()),
            Err(CallError::Rejected(Rejection::UpdateRefused { failure, .. })) => Err(failure),
            Err(why) => return Err(why.into()),
        }
    };
    if let (Ok(answer), Some("schedules")) = (&answer, fields.text("back")) {
        return Ok(go_to(&back_from(fields.text("name"), &target.workflow_id, &answer.to_json())));
    }
    let here = run_link(target.namespace.as_str(), target.workflow_id.as_str(), target.run_id);
    let body = html! {
        nav.crumbs aria-label="Where you are" { a href="/" { "Runs" } " › " a href=(here) { (target.workflow_id) } }
        h1 { (label_of(verb)) " " code { (name) } }
        @match &answer {
            Ok(answer) => (open_value(&answer.to_json())),
            Err(why) => { p.problem { "It was refused." } (failure(why)) },
        }
        p { a href=(here) { "Back to the run" } }
    };
    Ok(Page { title: name, place: Place::Runs, live: None, body }.response(visitor))
}

/// A field that holds JSON; null where it is empty.
pub(in crate::ui) fn json_field(name: &str, text: Option<&str>) -> Result<Payload, Problem> {
    let wrong = |why: String| Problem::bad_request(format!("{name}: {why}"));
    let value: Value = match text {
        Some(text) => serde_json::from_str(text).map_err(|why| wrong(format!("it is not JSON: {why}")))?,
        None => Value::Null,
    };
    Payload::encode(&value).map_err(|why| wrong(why.to_string()))
}
