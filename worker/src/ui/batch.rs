//! One act on many runs: those that were chosen on a list, or all open ones that fit its filter.
//!
//! Invariant: nothing is done before it was shown how many runs it is about, and which; what has begun since is left alone.
//! Each run is asked for by itself, with the rights of whoever is signed in, and a refusal stops no other.

use axum::http::StatusCode;
use axum::response::Response;
use bosun_engine::*;
use maud::{Markup, html};

use super::elements::{run_link, standing};
use super::forms::{Fields, Form, Visitor};
use super::layout::{Page, PageError, Place};
use super::run::actions::label_of;
use super::run::whole::act_on;
use crate::api::TokenRole;
use crate::api::guard::now;
use crate::api::people::{Cursor, filter_of, page_of_runs, unknown_field};
use crate::api::problem::Problem;
use crate::backend::{Attribution, Backend};
use crate::inbox::target_of;

/// What can be done to many at once, the mildest first.
pub(super) const VERBS: [&str; 4] = ["pause", "resume", "cancel", "terminate"];
/// Runs that one act is about; more are told, and left for another one.
const RUNS_MAX: usize = 1_000;
/// A page of a list.
const PAGE: usize = 500;
/// Runs that are named before it is done.
const NAMED: usize = 100;

/// A run as a form names it.
pub(super) fn name_of(info: &RunInfo) -> String {
    serde_json::json!([info.namespace, info.workflow_id, info.run_id]).to_string()
}

fn target_named(text: &str) -> Result<Target, Problem> {
    let wrong = || Problem::bad_request("run: it names no run");
    let (namespace, id, run): (Namespace, WorkflowId, RunId) = serde_json::from_str(text).map_err(|_| wrong())?;
    Ok(Target { namespace, ..Target::run(id, run) })
}

/// The form below a list.
pub(super) fn form(visitor: &Visitor, query: &str) -> Markup {
    html! {
        form.batch #batch method="post" action="/batch" {
            (visitor.seal())
            input type="hidden" name="query" value=(query);
            label for="batch-verb" { "Many at once" }
            select #batch-verb name="verb" { @for verb in VERBS { option value=(verb) { (label_of(verb)) } } }
            button type="submit" name="of" value="chosen" { "The chosen runs…" }
            button type="submit" name="of" value="all" { "All open ones that fit the filter…" }
        }
    }
}

/// What a form is about: the runs, and whether there are more.
struct ManyRuns {
    targets: Vec<Target>,
    infos: Vec<RunInfo>,
    more: bool,
}

/// The open runs that fit, which began before a moment.
async fn fitting(backend: &dyn Backend, query: &str, until: Timestamp) -> Result<ManyRuns, Problem> {
    let open = format!("ExecutionStatus IN ('Running', 'Paused') AND StartTime <= '{until}'");
    // As of a batch: schedules and what else Bosun runs for itself are meant by whoever names them.
    let own = Filter::parse(query).is_ok_and(|filter| filter.asks_for_types("bosun."));
    let open = if own { open } else { format!("{open} AND WorkflowType NOT STARTS_WITH 'bosun.'") };
    // Alone first: it stays one condition beside the others.
    filter_of(query)?;
    if let Some(unknown) = unknown_field(backend, query).await? {
        return Err(unknown.into());
    }
    let query = if query.trim().is_empty() { open } else { format!("({query}) AND {open}") };
    let (mut infos, mut after): (Vec<RunInfo>, Option<Cursor>) = (Vec::new(), None);
    loop {
        let (runs, next) = page_of_runs(backend, &query, false, PAGE, after).await?;
        infos.extend(runs);
        after = next;
        if after.is_none() || infos.len() >= RUNS_MAX {
            break;
        }
    }
    let more = after.is_some() || infos.len() > RUNS_MAX;
    infos.truncate(RUNS_MAX);
    Ok(ManyRuns { targets: infos.iter().map(target_of).collect(), infos, more })
}

/// Those that a form names one by one.
async fn chosen(backend: &dyn Backend, fields: &Fields) -> Result<ManyRuns, Problem> {
    let mut many = ManyRuns { targets: Vec::new(), infos: Vec::new(), more: false };
    for (rest, name) in fields.beginning("run") {
        if !rest.is_empty() {
            continue;
        }
        let target = target_named(name)?;
        if many.targets.len() == RUNS_MAX {
            many.more = true;
            break;
        }
        many.infos.push(backend.describe(target.clone()).await?.info);
        many.targets.push(target);
    }
    Ok(many)
}

pub(super) async fn batch(form: Form) -> Result<Response, PageError> {
    let Form { visitor, fields } = form;
    if !visitor.may(TokenRole::Operator) {
        let message = format!("this needs the role {}; yours is {}", TokenRole::Operator, visitor.session.caller.role);
        return Err(Problem::new(StatusCode::FORBIDDEN, "forbidden", message).into());
    }
    let verb = fields.text("verb").unwrap_or_default();
    let verb = VERBS.into_iter().find(|known| *known == verb);
    let verb = verb.ok_or_else(|| Problem::bad_request("verb: it is pause, resume, cancel or terminate"))?;
    let all = fields.text("of") == Some("all");
    let query = fields.text("query").unwrap_or_default();
    let until = match fields.text("until") {
        Some(text) => Timestamp(text.parse().map_err(|_| Problem::bad_request("until: it is no moment"))?),
        None => now(),
    };
    let many =
        if all { fitting(&visitor.backend, query, until).await? } else { chosen(&visitor.backend, &fields).await? };
    let body = if many.targets.is_empty() {
        nothing(all)
    } else if fields.text("sure") == Some("yes") {
        done(&visitor, verb, &many, fields.text("reason").unwrap_or_default()).await
    } else {
        ask(&visitor, verb, &many, all.then_some((query, until)))
    };
    Ok(Page { title: "Many runs", place: Place::Runs, live: None, body }.response(&visitor))
}

fn nothing(all: bool) -> Markup {
    html! {
        h1 { "No run" }
        @if all { p { "No open run fits the filter." } } @else { p { "None was chosen: tick those that are meant, on the list." } }
        p { a href="/" { "To all runs" } }
    }
}

/// What would be done, and the button that does it.
fn ask(visitor: &Visitor, verb: &str, many: &ManyRuns, of: Option<(&str, Timestamp)>) -> Markup {
    let count = many.targets.len();
    let runs = if count == 1 { "run" } else { "runs" };
    html! {
        h1 { (label_of(verb)) " " (count) " " (runs) "?" }
        @if many.more { p.problem { "These are the newest " (RUNS_MAX) "; there are more, which are left for another time." } }
        form.stack method="post" action="/batch" {
            (visitor.seal())
            input type="hidden" name="verb" value=(verb);
            input type="hidden" name="sure" value="yes";
            @match of {
                Some((query, until)) => {
                    input type="hidden" name="of" value="all";
                    input type="hidden" name="query" value=(query);
                    input type="hidden" name="until" value=(until.0);
                },
                None => @for info in &many.infos { input type="hidden" name="run" value=(name_of(info)); },
            }
            label for="reason" { "Reason " span.muted { "(stands in each history)" } }
            input #reason name="reason" autocomplete="off";
            div.line {
                button.danger type="submit" { (label_of(verb)) " " (count) " " (runs) }
                a.button href="/" { "Leave them" }
            }
        }
        h2 { "These" }
        ul { @for info in many.infos.iter().take(NAMED) { li { (standing(info, None)) " " (link(info)) " " span.muted { (info.workflow_type) } } } }
        @if count > NAMED { p.muted { "And " (count - NAMED) " more." } }
    }
}

fn link(info: &RunInfo) -> Markup {
    html! { a href=(run_link(info.namespace.as_str(), info.workflow_id.as_str(), Some(info.run_id))) { (info.workflow_id) } }
}

/// Does it, and says what came of it.
async fn done(visitor: &Visitor, verb: &str, many: &ManyRuns, reason: &str) -> Markup {
    let mut refused: Vec<(&RunInfo, String)> = Vec::new();
    for (target, info) in many.targets.iter().zip(&many.infos) {
        let because = Attribution { reason: reason.to_owned(), ..Attribution::default() };
        if let Err(why) = act_on(&visitor.backend, target.clone(), verb, because).await {
            refused.push((info, why.message));
        }
    }
    let count = many.targets.len() - refused.len();
    html! {
        h1 { (label_of(verb)) }
        p.done role="status" { "Done to " (count) " of " (many.targets.len()) " runs." }
        @if !refused.is_empty() {
            h2 { "Refused" }
            ul { @for (info, why) in &refused { li { (link(info)) ": " (why) } } }
        }
        p { a href="/" { "To all runs" } }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    #[test]
    fn a_form_names_a_run_whole() {
        let info = crate::fake::run_info("a \"b\" <c>", WorkflowStatus::Running);
        assert_eq!(target_named(&name_of(&info)).unwrap(), target_of(&info));
        for wrong in ["", "a", "[]", r#"["default","w","no id"]"#, &Value::Null.to_string()] {
            assert!(target_named(wrong).is_err(), "{wrong}");
        }
    }
}
