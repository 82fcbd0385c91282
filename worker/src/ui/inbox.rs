//! The inbox: all that runs ask people, with the forms that answer.
//!
//! Invariant: an answer names the very content that was shown, by the hash in its form, so that nobody approves what has
//! changed since; it is checked against what waits now. What bears on a decision is shown, all of it. Whether an answer
//! counts is decided by the run, and what it decided is what is said.

mod more_budget;
mod plan_change;
mod schema_form;

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use axum::http::StatusCode;
use axum::response::Response;
use bosun_engine::*;
use maud::{Markup, html};
use serde::Deserialize;
use serde_json::{Value, json};

use self::schema_form::{answer_of, fields_of};
use super::elements::{ago, path_segment, query_value, run_link, value};
use super::forms::{Fields, Form, Query, Visitor};
use super::layout::{Page, PageError, Place, go_to, problem_page};
use crate::api::TokenRole;
use crate::api::handlers::RequestTarget;
use crate::api::people::{Cursor, ask};
use crate::api::problem::Problem;
use crate::api::token::random_hex;
use crate::backend::Backend;
use crate::cli::below::below;
use crate::cli::request_text::parts;
use crate::deadlines::as_timers_have_them;
use crate::inbox::became::{Became, SentAnswer, fresh_key};
use crate::inbox::{
    ASKING, AskingRuns, HumanDecision, HumanMessage, HumanRequest, HumanRequestKind, RUNS_MAX, asked_by, asking_runs,
    given_before, going_on, question_text, requests, schema_of, send_on, target_of,
};
use crate::notify::notified;

#[derive(Deserialize)]
pub(super) struct InboxPageQuery {
    /// Only what this run asks, or one below it.
    run_id: Option<String>,
    namespace: Option<String>,
    /// The id of what was just answered.
    done: Option<String>,
    /// The same, where the run has not taken the answer yet.
    sent: Option<String>,
    /// Behind which run a page begins.
    cursor: Option<String>,
}

/// The runs whose requests a page shows.
struct InboxRuns {
    runs: Vec<(Target, WorkflowType)>,
    /// Where the next page begins.
    next: Option<Cursor>,
    /// What is left out because there is too much of it.
    cut: Option<&'static str>,
}

pub(super) async fn page(visitor: Visitor, Query(query): Query<InboxPageQuery>) -> Result<Response, PageError> {
    let InboxRuns { runs, next, cut } = asking(&visitor, &query).await?;
    let (all, silent) = asked_by(&visitor.backend, &runs).await;
    let all = as_timers_have_them(&visitor.backend, all).await;
    let mut cards = Vec::new();
    // Of each run once, however many requests it has.
    let mut told: BTreeMap<RunId, Vec<Value>> = BTreeMap::new();
    for request in &all {
        if let Some(run_id) = request.target.run_id
            && let Entry::Vacant(place) = told.entry(run_id)
        {
            place.insert(notified::told_of(&visitor.backend, run_id).await);
        }
        let of_run = request.target.run_id.and_then(|run_id| told.get(&run_id));
        cards.push(card(&visitor, request, of_run.map_or(&[], Vec::as_slice)).await);
    }
    let body = html! {
        h1 { "Inbox " span.muted { (all.len()) } }
        @if let Some(done) = &query.done { p.done role="status" { "Answered " (done) "." } }
        @if let Some(sent) = &query.sent { p.done role="status" { "Sent an answer to " (sent) "; the run has not taken it yet." } }
        @if query.run_id.is_some() { p { a href="/inbox" { "Everything that waits" } } }
        @if all.is_empty() { p.empty { "Nobody is asked anything." @if next.is_some() { " Not by these " (RUNS_MAX) " runs; there are more." } } }
        @for card in cards { (card) }
        @if !silent.is_empty() {
            h2 { "Runs that cannot be asked now" }
            ul { @for (id, why) in silent { li { (id) ": " (why) } } }
        }
        @if let Some(left_out) = cut { p.problem { (left_out) } }
        nav.pages aria-label="More runs" {
            @if query.cursor.is_some() { a href="/inbox" { "Newest runs" } }
            @if let Some(next) = next { a rel="next" href={ "/inbox?cursor=" (query_value(&next.to_string())) } { "Runs before these " (RUNS_MAX) } }
        }
    };
    // A form that somebody fills in is not taken away from under them; the script keeps it.
    let live = Some("WorkflowType IN ('supervisor', 'agent')".to_owned());
    Ok(Page { title: "Inbox", place: Place::Inbox, live, body }.response(&visitor))
}

/// The open runs that ask people: a page of all, or one and those below it.
async fn asking(visitor: &Visitor, query: &InboxPageQuery) -> Result<InboxRuns, Problem> {
    let backend = &visitor.backend;
    let Some(run) = &query.run_id else {
        let after = query.cursor.as_deref().map(Cursor::read).transpose()?;
        let AskingRuns { runs, next } = asking_runs(backend, "", after).await?;
        return Ok(InboxRuns { runs, next, cut: None });
    };
    let run: RunId = run.parse().map_err(|why: InvalidId| Problem::bad_request(format!("run_id: {why}")))?;
    let namespace = crate::filter_text::literal(query.namespace.as_deref().unwrap_or(DEFAULT_NAMESPACE));
    let only = format!("RunId = '{run}' AND Namespace = {namespace}");
    let top = backend.list(ListRequest { query: only, limit: 1 }).await?.pop();
    let top = top.ok_or_else(|| Problem::new(StatusCode::NOT_FOUND, "not_found", format!("there is no run {run}")))?;
    let top = going_on(backend, target_of(&top)).await?;
    let below = below(backend, target_of(&top), |_| true).await?;
    let cut = below.cut.then_some("There are more runs below than were looked at.");
    let open = below.runs.into_iter().filter(|run| run.open && ASKING.contains(&run.workflow_type.as_str()));
    Ok(InboxRuns { runs: open.map(|run| (run.target, run.workflow_type)).collect(), next: None, cut })
}

async fn card(visitor: &Visitor, one: &HumanRequest, of_run: &[Value]) -> Markup {
    let Target { workflow_id, run_id, namespace } = &one.target;
    // To resume a run or to take it back is more than to answer it.
    let held = one.kind == HumanRequestKind::Elsewhere && one.request["kind"] != "plan";
    let needed = if held { TokenRole::Operator } else { TokenRole::Approver };
    let kind = match one.kind {
        HumanRequestKind::Approval => "Approval",
        HumanRequestKind::Question => "Question",
        HumanRequestKind::ToolCall => "Tool call",
        HumanRequestKind::Elsewhere => match one.request["kind"].as_str() {
            Some("plan") => "Plan review",
            Some("takeover") => "Taken over",
            _ if more_budget::lack(&one.request).is_some() => "Budget",
            _ => "Paused",
        },
    };
    let told = of_run.iter().filter(|told| notified::is_of(told, one.id()));
    let before = given_before(&visitor.backend, one).await;
    html! {
        article.card id={ "ask-" (place_of(one)) } {
            h2 { (kind) " " span.muted { "of " a href=(run_link(namespace.as_str(), workflow_id.as_str(), *run_id)) { (workflow_id) } @if namespace.as_str() != DEFAULT_NAMESPACE { " in " (namespace) } } }
            @if let Some(until) = deadline(&one.request) { p { "Answer " strong { (ago(until)) } " at the latest." } }
            @if one.kind == HumanRequestKind::Elsewhere { p.wrap { (one.request["what"].as_str().unwrap_or_default()) span.muted { " by " (one.request["whom"].as_str().unwrap_or("a person")) } } }
            @else { dl.facts { @for (name, text) in parts(&one.request) { @if name != "until" && name != "question" {
                dt { (name) } dd.wrap { @if text.contains('\n') { pre.payload { (text) } } @else { (text) } }
            } } } }
            @if !before.is_empty() {
                h3 { "What came before" }
                dl.facts { @for (task, result) in &before { dt { (task) } dd { (value(result)) } } }
            }
            @if one.kind == HumanRequestKind::Question { (value(question_text(&one.request["payload"]))) }
            @if one.request["kind"] == "plan" && one.kind == HumanRequestKind::Elsewhere { (plan_change::plan(visitor, &one.target).await) }
            @for told in told { p.muted { "Notified: " (notified::in_words(told, |at| at.to_string())) } }
            @if visitor.may(needed) { (forms(visitor, one)) } @else { (visitor.may_not(needed)) }
            details.folded { summary { span.muted { (one.id()) } } (visitor.command_in(namespace, &one.answer())) }
        }
    }
}

/// Its name in the page: runs of two namespaces, and a run and its fork, ask under the same ids. As long as the workflow goes
/// on, in whichever run, it is the same.
fn place_of(one: &HumanRequest) -> String {
    let Target { workflow_id, namespace, .. } = &one.target;
    format!("{}/{}/{}", path_segment(namespace.as_str()), path_segment(workflow_id.as_str()), one.id())
}

fn deadline(request: &Value) -> Option<Timestamp> {
    request["deadline"].as_i64().or(request["until"].as_i64()).map(Timestamp)
}

fn form_of(visitor: &Visitor, one: &HumanRequest, body: Markup) -> Markup {
    let Target { workflow_id, run_id, namespace } = &one.target;
    let run = run_id.map(|run| format!("run_id={run}&")).unwrap_or_default();
    html! {
        form.stack method="post" action={ "/runs/" (path_segment(workflow_id.as_str())) "/answer?" (run) "namespace=" (query_value(namespace.as_str())) } {
            // Enter in a field sends a form by its first button: by this one, which sends nothing. Nobody approves by accident.
            button type="submit" disabled hidden {}
            (visitor.seal())
            input type="hidden" name="id" value=(one.id());
            input type="hidden" name="shown" value=(shown(&one.request));
            (body)
        }
    }
}

/// The hash of what is shown.
fn shown(request: &Value) -> &str {
    request["shown"].as_str().or(request["hash"].as_str()).unwrap_or_default()
}

fn words_field(one: &HumanRequest, name: &str, label: &str) -> Markup {
    let id = format!("{name}-{}", place_of(one));
    html! { label for=(id) { (label) } textarea id=(id) name=(name) rows="2" {} }
}

fn approval_form(visitor: &Visitor, one: &HumanRequest) -> Markup {
    let words = |name: &str, label: &str| words_field(one, name, label);
    let edit = format!("edit-{}", place_of(one));
    form_of(
        visitor,
        one,
        html! {
            label for=(edit) { "Do this instead " span.muted { "(only with Approve)" } }
            input id=(edit) name="modified_action" autocomplete="off";
            (words("comment", "Comment, or what shall be better"))
            div.line {
                button.primary type="submit" name="do" value="approve" { "Approve" }
                button.danger type="submit" name="do" value="reject" { "Reject" }
                button type="submit" name="do" value="feedback" { "Send back with this feedback" }
            }
        },
    )
}

fn forms(visitor: &Visitor, one: &HumanRequest) -> Markup {
    let words = |name: &str, label: &str| words_field(one, name, label);
    match one.kind {
        HumanRequestKind::Approval => approval_form(visitor, one),
        HumanRequestKind::ToolCall => form_of(
            visitor,
            one,
            html! {
                (words("comment", "Reason"))
                div.line {
                    button.primary type="submit" name="do" value="approve" { "Approve the call" }
                    button.danger type="submit" name="do" value="reject" { "Reject it" }
                }
            },
        ),
        HumanRequestKind::Question => {
            let fields = fields_of(&one.request["payload"], &place_of(one));
            form_of(
                visitor,
                one,
                html! { (fields) div.line { button.primary type="submit" name="do" value="answer" { "Answer" } } },
            )
        }
        HumanRequestKind::Elsewhere if one.request["kind"] == "plan" => form_of(
            visitor,
            one,
            html! {
                (words("comment", "Comment, or what shall be different"))
                div.line {
                    button.primary type="submit" name="do" value="approve_plan" { "Approve this plan" }
                    button type="submit" name="do" value="plan_feedback" { "Ask for another one" }
                    button.danger type="submit" name="do" value="deny_plan" { "Deny it" }
                }
            },
        ),
        HumanRequestKind::Elsewhere => going_on_form(visitor, one),
    }
}

/// Of a run that stands still: what lets it go on.
fn going_on_form(visitor: &Visitor, one: &HumanRequest) -> Markup {
    if let Some(lack) = more_budget::lack(&one.request) {
        return more_budget::form(visitor, one, lack);
    }
    let (verb, words) =
        if one.request["kind"] == "takeover" { ("release", "Give it back") } else { ("resume", "Resume") };
    form_of(visitor, one, html! { div.line { button.primary type="submit" name="do" value=(verb) { (words) } } })
}

// ---- answers

pub(super) async fn answer(at: Result<RequestTarget, Problem>, form: Form) -> Response {
    // What cannot be answered any more is looked at again where it was shown.
    answered(at, form).await.unwrap_or_else(|why| problem_page(why, Some(("/inbox", "Back to the inbox"))))
}

async fn answered(at: Result<RequestTarget, Problem>, form: Form) -> Result<Response, Problem> {
    let Form { visitor, fields } = form;
    let backend = &visitor.backend;
    let info = going_on(backend, at?.target).await?;
    let target = target_of(&info);
    let id = fields.text("id").unwrap_or_default();
    let waiting = requests(backend, &target, &info.workflow_type).await?;
    let found = waiting.into_iter().find(|one| one.id() == id).ok_or_else(|| {
        let message = format!("{id} does not wait any more: somebody has answered it, or its time is over");
        Problem::new(StatusCode::CONFLICT, "nothing_waits", message)
    })?;
    if fields.text("shown").unwrap_or_default() != shown(&found.request) {
        let message = "this has changed since the page was shown: look at it again before you answer";
        return Err(Problem::new(StatusCode::CONFLICT, "changed", message));
    }
    match send(backend, &found, &fields).await?.became(backend).await {
        Became::Taken => Ok(go_to(&format!("/inbox?done={}", query_value(id)))),
        Became::Waits => Ok(go_to(&format!("/inbox?sent={}", query_value(id)))),
        Became::Before(why) => Err(decided_before(id, &why)),
        Became::Refused(why) => Err(not_taken(id, &why)),
    }
}

/// An answer that the run does not take: it waits for another one.
pub(super) fn not_taken(id: &str, why: &str) -> Problem {
    let message = format!("{id} does not take this answer: {why}");
    Problem::new(StatusCode::UNPROCESSABLE_ENTITY, "answer_refused", message)
}

/// An answer that came too late: what came before it.
pub(super) fn decided_before(id: &str, why: &str) -> Problem {
    Problem::new(StatusCode::CONFLICT, "decided_before", format!("{id} is not decided by this answer: {why}"))
}

/// What was sent. What a run takes at once, or asks nobody about, leaves nothing to look for.
pub(super) struct Sent(Option<(Target, HumanMessage, RequestId)>);

impl Sent {
    /// Waits a moment for the run to take it.
    pub(super) async fn became(&self, backend: &dyn Backend) -> Became {
        let Some((to, message, key)) = &self.0 else { return Became::Taken };
        SentAnswer { to, signal: message.signal, input: &message.input, key }.became(backend).await
    }
}

pub(super) async fn send(backend: &dyn Backend, found: &HumanRequest, fields: &Fields) -> Result<Sent, Problem> {
    let misfit = |why: crate::inbox::AnswerMisfit| Problem::bad_request(why.to_string());
    let (does, comment) = (fields.text("do").unwrap_or_default(), fields.text("comment"));
    let decision = HumanDecision { approved: does == "approve", comment, ..HumanDecision::default() };
    let message = match does {
        "approve" => found.decided(&HumanDecision { modified_action: fields.text("modified_action"), ..decision }),
        "reject" => found.decided(&decision),
        "feedback" => {
            let feedback = comment.ok_or_else(|| Problem::bad_request("feedback: say what shall be better"))?;
            found.decided(&HumanDecision { comment: None, feedback: Some(feedback), ..decision })
        }
        "answer" => found.answered(&answer_of(schema_of(&found.request["payload"]), fields)?),
        "resume" | "release" => {
            let signal = if does == "resume" { "resume_v1" } else { "human_release_v1" };
            let input = json!({ "reason": comment.unwrap_or_default() });
            signal_run(backend, &found.target, signal, &input, None).await?;
            return Ok(Sent(None));
        }
        "top_up" => {
            more_budget::give(backend, found, fields).await?;
            return Ok(Sent(None));
        }
        "approve_plan" | "deny_plan" | "plan_feedback" => {
            review(backend, found, does, comment).await?;
            return Ok(Sent(None));
        }
        other => return Err(Problem::bad_request(format!("nothing is called {other:?} here"))),
    };
    let message = message.map_err(misfit)?;
    let no_key =
        |why: std::io::Error| Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "no_random_numbers", why.to_string());
    let key = fresh_key().map_err(no_key)?;
    let to = signal_run(backend, &found.target, message.signal, &message.input, Some(key.clone())).await?;
    Ok(Sent(Some((to, message, key))))
}

/// To which run it went.
async fn signal_run(
    backend: &dyn Backend,
    target: &Target,
    name: &str,
    input: &Value,
    request_id: Option<RequestId>,
) -> Result<Target, Problem> {
    let input = Payload::encode(input).map_err(|why| Problem::bad_request(why.to_string()))?;
    let signal = SignalRequest { name: SignalName::of(name), input, identity: None, request_id };
    Ok(send_on(backend, target, signal).await?)
}

/// The review of the version of the plan that was shown.
async fn review(backend: &dyn Backend, found: &HumanRequest, does: &str, comment: Option<&str>) -> Result<(), Problem> {
    let seen = ask(backend, &found.target, "plan_review").await;
    let version = found.id().rsplit_once('#').and_then(|(_, version)| version.parse::<u64>().ok());
    let version = version.ok_or_else(|| Problem::bad_request("the request names no version of the plan"))?;
    let (name, mut input) = match does {
        "plan_feedback" => {
            let message = comment.ok_or_else(|| Problem::bad_request("comment: say what shall be different"))?;
            ("plan_feedback", json!({ "version": version, "message": message }))
        }
        _ => (
            "approve_plan",
            json!({ "version": version, "approved": does == "approve_plan", "comment": comment.unwrap_or_default() }),
        ),
    };
    if name == "approve_plan" && seen["version"] == version {
        input["shown"] = seen["hash"].clone();
    }
    let request = UpdateRequest {
        update_id: UpdateId::of(random_hex(8).map_err(|why| Problem::bad_request(why.to_string()))?),
        name: UpdateName::of(name),
        input: Payload::encode(&input).map_err(|why| Problem::bad_request(why.to_string()))?,
        identity: None,
        wait: UpdateWait::Completed,
    };
    match backend.update(found.target.clone(), request).await? {
        UpdateOutcome::Completed(Err(why)) => Err(Problem::new(StatusCode::CONFLICT, "refused", why.to_string())),
        UpdateOutcome::Completed(Ok(_)) | UpdateOutcome::Accepted => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::{Fake, RUN, event, run_info};

    /// A fork asks under the ids of its source: a label, and the script, reach the one that is meant.
    #[test]
    fn no_two_requests_have_one_name_in_the_page() {
        let of = |namespace: &str, id: &str, request: &str| {
            let target = Target { namespace: Namespace::of(namespace), ..Target::workflow(id.into()) };
            place_of(&HumanRequest { kind: HumanRequestKind::Approval, target, request: json!({ "id": request }) })
        };
        let names = [of("a", "story", "r/1"), of("b", "story", "r/1"), of("a", "fork", "r/1"), of("a", "story/r", "1")];
        let different: std::collections::BTreeSet<_> = names.iter().collect();
        assert_eq!(different.len(), names.len(), "{names:?}");
    }

    /// What the page says of an answer is what the run says: that it has taken it, that it has not yet, or who came before.
    #[tokio::test]
    async fn what_became_of_an_answer_is_asked_before_it_is_told() {
        let request = json!({ "id": "r/ap-1", "shown": "h", "subject": "publish it" });
        let target = Target::run("story".into(), RUN);
        let found = HumanRequest { kind: HumanRequestKind::Approval, target, request };
        let became = async |status: WorkflowStatus, waits: Value, events: Vec<Event>| {
            let mut fake = Fake::new();
            fake.runs = vec![run_info("story", status)];
            (fake.query, fake.events) = (Payload::encode(&waits).unwrap(), events);
            let sent = send(&fake, &found, &Fields::of(&[("do", "approve"), ("comment", "")])).await.unwrap();
            assert!(fake.calls().iter().any(|call| call.contains("approval_response_v1")), "{:?}", fake.calls());
            sent.became(&fake).await
        };
        let open = WorkflowStatus::Running;
        assert_eq!(became(WorkflowStatus::Paused, json!([{ "id": "r/ap-1" }]), Vec::new()).await, Became::Waits);
        assert_eq!(became(open, json!([]), Vec::new()).await, Became::Taken);
        let before = WorkflowExecutionSignaled {
            name: SignalName::of("approval_response_v1"),
            input: Payload::encode(&json!({ "approval_id": "r/ap-1", "approved": false, "approver": "bob" })).unwrap(),
            identity: None,
            request_id: Some(RequestId::of("other")),
        };
        let told = became(open, json!([]), vec![event(1, EventKind::WorkflowExecutionSignaled(before))]).await;
        assert_eq!(told, Became::Before("bob has rejected it".into()));
    }
}
