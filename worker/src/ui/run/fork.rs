//! A fork from the page of a run: what would be kept, told and done again, and then the fork itself.
//!
//! Invariant: nothing is forked before its dry run was shown, and the dry run is the engine's own; the value of a change is
//! what stands in the form, and never a file of the worker's machine. What a fork means is the engine's affair.

use axum::http::StatusCode;
use axum::response::Response;
use bosun_engine::*;
use maud::{Markup, html};

use crate::api::TokenRole;
use crate::api::handlers::RequestTarget;
use crate::api::people::fork::{ChangeBody, set_by_fork};
use crate::api::problem::Problem;
use crate::api::token::random_hex;
use crate::backend::Backend;
use crate::cli::fork::{numbered, plan_lines};
use crate::inbox::target_of;
use crate::ui::elements::run_link;
use crate::ui::forms::{Fields, Form, Visitor};
use crate::ui::layout::{Page, PageError, Place, go_to};
use crate::ui::run::fork_here::{filled, form_of};

const KINDS: [(&str, &str); 5] = [
    ("none", "nothing: run again from there"),
    ("result", "another result of an activity or child"),
    ("failure", "a failure of an activity or child"),
    ("signal", "another input of a signal"),
    ("input", "another input of the run (it begins anew)"),
];

/// The form with what is filled in.
pub(crate) fn form(visitor: &Visitor, info: &RunInfo, fields: &Fields, wrong: Option<&str>) -> Markup {
    let text = |name: &str| fields.text(name).unwrap_or_default();
    let action = form_of(info);
    if !visitor.may(TokenRole::Operator) {
        return visitor.may_not(TokenRole::Operator);
    }
    html! {
        @if let Some(wrong) = wrong { p.problem role="alert" { (wrong) } }
        form.stack method="post" action=(action) {
            (visitor.seal())
            label for="fork-at" { "Last event to keep " span.muted { "(empty: as much as the change allows)" } }
            input id="fork-at" name="at" inputmode="numeric" value=(text("at"));
            label for="fork-kind" { "What is to be different" }
            select id="fork-kind" name="kind" {
                @for (kind, words) in KINDS { option value=(kind) selected[kind == text("kind")] { (words) } }
            }
            label for="fork-which" { "Of which " span.muted { "(a type, an id, NAME#2, or an event: 15)" } }
            input id="fork-which" name="which" value=(text("which")) spellcheck="false";
            label for="fork-value" { "Value " span.muted { "(JSON, or a text that does not begin like JSON; of a failure its message)" } }
            textarea id="fork-value" name="value" rows="6" spellcheck="false" { (text("value")) }
            label for="fork-id" { "Workflow id of the fork " span.muted { "(empty: a new one)" } }
            input id="fork-id" name="id" value=(text("id")) spellcheck="false";
            div.line {
                button type="submit" name="do" value="look" { "What would happen?" }
            }
        }
    }
}

pub(in crate::ui) async fn page(
    visitor: Visitor,
    at: Result<RequestTarget, Problem>,
    uri: axum::http::Uri,
) -> Result<Response, PageError> {
    let info = visitor.backend.describe(at?.target).await?.info;
    let asked = Fields::read(uri.query().unwrap_or_default().as_bytes());
    let Some(event) = asked.text("event") else {
        return Ok(shown(&visitor, &info, form(&visitor, &info, &asked, None)));
    };
    let turns = visitor.backend.turns(target_of(&info)).await?;
    let body = match filled(&turns, event) {
        Ok(fields) => form(&visitor, &info, &fields, None),
        Err(why) => form(&visitor, &info, &Fields::default(), Some(&why)),
    };
    Ok(shown(&visitor, &info, body))
}

fn shown(visitor: &Visitor, info: &RunInfo, body: Markup) -> Response {
    let body = html! {
        nav.crumbs aria-label="Where you are" { a href=(run_link(info.namespace.as_str(), info.workflow_id.as_str(), Some(info.run_id))) { (info.workflow_id) } " › fork" }
        h1 { "Fork " (info.workflow_id) }
        p { "A new run begins with the history of this one and goes another way. This one stays as it is." }
        (body)
    };
    Page { title: "Fork", place: Place::Runs, live: None, body }.response(visitor)
}

pub(in crate::ui) async fn fork(at: Result<RequestTarget, Problem>, form: Form) -> Result<Response, PageError> {
    let Form { visitor, fields } = form;
    let info = visitor.backend.describe(at?.target).await?.info;
    let really = fields.text("do") == Some("fork");
    let asked = match request(&info, &fields, !really) {
        Ok(request) => visitor.backend.fork(request).await.map_err(Problem::from),
        Err(why) => Err(why),
    };
    match asked {
        Err(why) if why.status == StatusCode::FORBIDDEN => Err(why.into()),
        Err(why) => Ok(shown(&visitor, &info, self::form(&visitor, &info, &fields, Some(&why.message)))),
        Ok(forked) if really => {
            Ok(go_to(&run_link(info.namespace.as_str(), forked.workflow_id.as_str(), forked.run_id)))
        }
        Ok(forked) => {
            let body = html! {
                h2 { "What would happen" }
                dl.facts { @for (name, line) in plan_lines(&forked.plan) { dt { (name) } dd.wrap { (line) } } }
                (confirm(&visitor, &info, &fields, forked.workflow_id.as_str()))
                h2 { "Something else" }
                (self::form(&visitor, &info, &fields, None))
            };
            Ok(shown(&visitor, &info, body))
        }
    }
}

fn confirm(visitor: &Visitor, info: &RunInfo, fields: &Fields, id: &str) -> Markup {
    html! {
        form method="post" action=(form_of(info)) {
            (visitor.seal())
            input type="hidden" name="do" value="fork";
            input type="hidden" name="id" value=(id);
            @for name in ["at", "kind", "which", "value"] {
                @if let Some(value) = fields.text(name) { input type="hidden" name=(name) value=(value); }
            }
            button.primary type="submit" { "Fork it as " (id) }
        }
    }
}

fn request(info: &RunInfo, fields: &Fields, dry_run: bool) -> Result<ForkRequest, Problem> {
    let wrong = |at: &str, why: String| Problem::bad_request(format!("{at}: {why}"));
    let at = fields.text("at").map(|text| {
        text.trim().parse().map(EventId).map_err(|_| wrong("last event to keep", format!("{text:?} is no number")))
    });
    let id = match fields.text("id") {
        Some(id) => id.trim().to_owned(),
        None => {
            format!("{}-fork-{}", info.workflow_id, random_hex(4).map_err(|why| wrong("workflow id", why.to_string()))?)
        }
    };
    let id = WorkflowId::new(id).map_err(|why| wrong("workflow id of the fork", why.to_string()))?;
    let target = Target { namespace: info.namespace.clone(), ..Target::run(info.workflow_id.clone(), info.run_id) };
    Ok(ForkRequest {
        namespace: info.namespace.clone(),
        at: at.transpose()?,
        changes: changes(fields)?,
        reason: "from the page of the run".to_owned(),
        dry_run,
        ..ForkRequest::new(ForkSource::Run(target), id)
    })
}

fn changes(fields: &Fields) -> Result<Vec<ForkChange>, Problem> {
    let kind = fields.text("kind").unwrap_or("none");
    let text = fields.text("value").unwrap_or_default().to_owned();
    // As on the command line; of a failure it is the message, whatever it looks like.
    let value = || {
        let wrong = |why| Problem::bad_request(format!("value: it is not JSON: {why}"));
        crate::cli::json_or_text(&text).map_err(wrong)
    };
    let which = || match fields.text("which") {
        Some(which) => Ok(which.trim().to_owned()),
        None => Err(Problem::bad_request("of which: say the type or id of what is to be different, or its event")),
    };
    let change = match kind {
        "none" => return Ok(Vec::new()),
        "result" => ChangeBody::Result { of: which()?, value: value()? },
        "failure" => ChangeBody::Failure { of: which()?, message: text, failure_type: set_by_fork() },
        "signal" => {
            let which = which()?;
            let (name, nth) = numbered(&which).map_err(|why| Problem::bad_request(format!("of which: {why}")))?;
            ChangeBody::Signal { name: name.to_owned(), nth, value: value()? }
        }
        "input" => ChangeBody::Input { value: value()? },
        other => return Err(Problem::bad_request(format!("nothing is called {other:?} here"))),
    };
    Ok(vec![change.change().map_err(Problem::bad_request)?])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(which: &str) -> Result<Vec<ForkChange>, Problem> {
        let body: String = form_urlencoded::Serializer::new(String::new())
            .extend_pairs([("kind", "signal"), ("which", which), ("value", "7")])
            .finish();
        changes(&Fields::read(body.as_bytes()))
    }

    /// As on the command line: a number that is none is not passed over.
    #[test]
    fn the_number_of_a_signal_is_read_or_refused() {
        let of = |which: &str| match &change(which).unwrap()[..] {
            [ForkChange::Signal { name, nth, .. }] => (name.to_string(), *nth),
            other => panic!("{other:?}"),
        };
        assert_eq!(of("approve"), ("approve".to_owned(), None));
        assert_eq!(of("approve#2"), ("approve".to_owned(), Some(2)));
        for wrong in ["approve#x", "approve#0", "approve#"] {
            assert!(change(wrong).unwrap_err().message.contains("a number from 1"), "{wrong}");
        }
    }
}
