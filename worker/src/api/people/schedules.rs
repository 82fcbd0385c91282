//! Schedules: all of them with what each says of itself, and what people do with one, by the words of the command line.
//!
//! Invariant: what is told is what schedules answer to their query `describe`; one that cannot answer is told with what the
//! engine knows. A new schedule is checked before anything is started; a change is an update of the schedule's own run
//! (`crate::schedule::messages`), which checks it there, and goes by the version that was looked at, where one is named.
//! Nothing here decides when something starts.

use axum::Json;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::IntoResponse;
use bosun_engine::*;
use futures_util::{StreamExt, stream};
use serde::Deserialize;
use serde_json::{Value, json};

use super::super::handlers::{Api, AuthorizedCaller, RequestTarget, query_of};
use super::super::problem::Problem;
use super::body::{Members, whole};
use super::handlers::{Answer, key, ok, request_id, update_id};
use super::pages::{Cursor, page_of, parse as filter_of};
use super::queries::ask;
use super::{once, view};
use crate::backend::{Backend, CallError};
use crate::inbox::target_of;
use crate::schedule::run::ScheduleInput;
use crate::schedule::shown::{ScheduleMood, StartBecame};
use crate::schedule::spec::{InvalidSchedule, NOTHING_LEFT, ScheduleAction, SchedulePolicies, ScheduleSpec, check_id};
use crate::schedule::text;
use crate::schedule::{ID_PREFIX, Overlap, SCHEDULE, Schedule};
use crate::startable::faults_of_action;

#[derive(Deserialize)]
struct WholeNumber(#[serde(deserialize_with = "whole")] Option<u64>);

/// Schedules of a page, and asked at once.
pub(crate) const SHOWN: usize = 200;
const ASKED_AT_ONCE: usize = 8;

/// A page of open schedules with what each says of itself, and where the next page begins.
pub(crate) type SchedulePage = (Vec<(RunInfo, Value)>, Option<Cursor>);

/// The open schedules, the newest first.
pub(crate) async fn listed(
    backend: &dyn Backend,
    limit: usize,
    after: Option<Cursor>,
) -> Result<SchedulePage, CallError> {
    let query = format!("WorkflowType = '{SCHEDULE}' AND ExecutionStatus IN ('Running', 'Paused')");
    let (runs, next) = page_of(backend, filter_of(&query)?, limit, after).await?;
    let told = |info: RunInfo| async move {
        let described = ask(backend, &target_of(&info), "describe").await;
        (info, described)
    };
    Ok((stream::iter(runs).map(told).buffered(ASKED_AT_ONCE).collect().await, next))
}

/// The name of a schedule: its workflow id without what all of them begin with.
pub(crate) fn name_of(info: &RunInfo) -> &str {
    let id = info.workflow_id.as_str();
    id.strip_prefix(ID_PREFIX).unwrap_or(id)
}

fn shown(info: &RunInfo, described: &Value) -> Value {
    json!({ "schedule_id": name_of(info), "state": ScheduleMood::of(described).word(), "workflow": view::run(info),
        "description": described })
}

#[derive(Deserialize)]
struct ScheduleQuery {
    limit: Option<usize>,
    cursor: Option<String>,
}

/// A page of schedules, the newest first, and where the next one begins.
pub async fn schedules(me: AuthorizedCaller, uri: Uri) -> Answer {
    let ScheduleQuery { limit, cursor } = query_of(&uri)?;
    let limit = limit.unwrap_or(100);
    if !(1..=SHOWN).contains(&limit) {
        return Err(Problem::bad_request(format!("limit: a page has 1 to {SHOWN} schedules")));
    }
    let after = cursor.as_deref().map(Cursor::read).transpose()?;
    let (found, next) = listed(&me.backend, limit, after).await?;
    let found: Vec<Value> = found.iter().map(|(info, told)| shown(info, told)).collect();
    ok(json!({ "schedules": found, "next_cursor": next.map(|next| next.to_string()) }))
}

/// The open run of the schedule that a path names by its id alone.
async fn named(me: &AuthorizedCaller, at: RequestTarget) -> Result<RunInfo, Problem> {
    let id = at.target.workflow_id.as_str();
    let id = id.strip_prefix(ID_PREFIX).unwrap_or(id).to_owned();
    let none = || Problem::new(StatusCode::NOT_FOUND, "not_found", format!("there is no schedule {id}"));
    // Too long for a workflow id is no schedule either.
    let workflow_id = WorkflowId::new(format!("{ID_PREFIX}{id}")).map_err(|_| none())?;
    let target = Target { namespace: at.target.namespace, ..Target::workflow(workflow_id) };
    match me.backend.describe(target).await {
        Ok(found) if found.info.workflow_type.as_str() == SCHEDULE && found.info.status.is_open() => Ok(found.info),
        Ok(_) | Err(CallError::Rejected(Rejection::NotFound { .. })) => Err(none()),
        Err(why) => Err(why.into()),
    }
}

pub async fn schedule(me: AuthorizedCaller, at: RequestTarget) -> Answer {
    let info = named(&me, at).await?;
    ok(shown(&info, &ask(&me.backend, &target_of(&info), "describe").await))
}

/// The schedule of a body, checked as far as a program can check it: each part by itself, so that none hides another.
fn schedule_in(members: &mut Members, id: Option<&str>, api: &Api) -> Option<Schedule> {
    let given = members.value("schedule");
    members.needs("schedule", given.is_some());
    if let Some(Err(InvalidSchedule { path, problem })) = id.map(check_id) {
        members.wrong(&path, problem);
    }
    let mut workflow_type = None;
    let schedule = given.and_then(|given| {
        members.within("schedule", given, |schedule| {
            let spec = spec_in(schedule, id.unwrap_or_default());
            let (action, policies) = (action_in(schedule), policies_in(schedule));
            workflow_type = action.as_ref().map(|action| action.workflow_type.clone());
            let state = schedule.any("state").and_then(|state| schedule.read_as("state", state));
            Some(Schedule { spec: spec?, action: action?, policies: policies?, state: state.unwrap_or_default() })
        })
    });
    // Alone it is refused by whoever would start it.
    let unknown = workflow_type.filter(|name| api.workflows.types().all(|known| known.as_str() != name));
    if let Some(name) = unknown.filter(|name| members.is_wrong() && name != PLACEHOLDER) {
        members.wrong("schedule.action.workflow_type", format!("this worker has no workflow of the type {name}"));
    }
    schedule.flatten()
}

fn checked<T>(members: &mut Members, of: T, problems: impl FnOnce(&T) -> Vec<InvalidSchedule>) -> Option<T> {
    let wrong = problems(&of);
    let is_good = wrong.is_empty();
    wrong.into_iter().for_each(|InvalidSchedule { path, problem }| members.wrong(&path, problem));
    is_good.then_some(of)
}

fn spec_in(schedule: &mut Members, id: &str) -> Option<ScheduleSpec> {
    let given = schedule.value("spec");
    schedule.needs("spec", given.is_some());
    let spec: ScheduleSpec = schedule.read_as("spec", given?)?;
    checked(schedule, spec, |spec| spec.problems(id))
}

fn policies_in(schedule: &mut Members) -> Option<SchedulePolicies> {
    let Some(given) = schedule.any("policies") else { return Some(SchedulePolicies::default()) };
    let policies: SchedulePolicies = schedule.read_as("policies", given)?;
    checked(schedule, policies, |policies| policies.check().err().into_iter().collect())
}

/// In place of what an action lacks, so that the rest of it can be read: nothing of it is ever started.
const PLACEHOLDER: &str = "missing";

fn action_in(schedule: &mut Members) -> Option<ScheduleAction> {
    let given = schedule.value("action");
    schedule.needs("action", given.is_some());
    let mut given = given?;
    if let Value::Object(action) = &mut given {
        for name in ["workflow_type", "workflow_id"] {
            if !action.contains_key(name) {
                schedule.wrong(&format!("action.{name}"), "it is needed");
                action.insert(name.to_owned(), PLACEHOLDER.into());
            }
        }
    }
    let action: ScheduleAction = schedule.read_as("action", given)?;
    let faults = faults_of_action(&action);
    let is_good = faults.is_empty();
    faults.into_iter().for_each(|one| schedule.wrong(&format!("action.input.{}", one.path), one.problem));
    checked(schedule, action, ScheduleAction::problems).filter(|_| is_good)
}

/// `{"schedule_id": …, "schedule": {…}}`: a new schedule; the same again with the same `Idempotency-Key` is one.
pub async fn create_schedule(me: AuthorizedCaller, State(api): State<Api>, headers: HeaderMap, body: Bytes) -> Answer {
    let request_id = request_id(&headers)?;
    let mut members = Members::read(&body)?;
    let id = members.text("schedule_id");
    members.needs("schedule_id", id.is_some());
    let id = id.map(|id| id.strip_prefix(ID_PREFIX).unwrap_or(&id).to_owned());
    let namespace = me.backend.namespace_of_new(members.parsed("namespace"));
    let schedule = schedule_in(&mut members, id.as_deref(), &api);
    if schedule.as_ref().is_some_and(|made| made.state.remaining_actions == Some(0)) {
        members.wrong("schedule.state.remaining_actions", NOTHING_LEFT);
    }
    members.done()?;
    let id = id.unwrap_or_default();
    let schedule = schedule.ok_or_else(|| Problem::bad_request("schedule: it is needed"))?;
    let workflow_id = WorkflowId::new(format!("{ID_PREFIX}{id}"));
    let mut target = Target::workflow(workflow_id.map_err(|why| Problem::bad_request(format!("schedule_id: {why}")))?);
    target.namespace = namespace;
    let start = ScheduleInput::start(schedule, target);
    let start = start.map_err(|why| Problem::bad_request(format!("schedule.action.input: {why}")))?;
    let started = once::start(&me.backend, StartWorkflow { request_id, ..start }).await?;
    let status = if started.newly_started { StatusCode::CREATED } else { StatusCode::OK };
    let answer = json!({ "schedule_id": id, "workflow_id": started.workflow_id, "run_id": started.run_id,
        "newly_started": started.newly_started });
    Ok((status, Json(answer)).into_response())
}

/// What an update of a schedule's run has answered, beside the id.
enum ScheduleTold {
    Done(Value),
    Later(Value),
}

/// An update of the schedule's run: what it answers, beside the id.
async fn change(me: AuthorizedCaller, at: RequestTarget, headers: &HeaderMap, asked: (&str, Value)) -> Answer {
    let info = named(&me, at).await?;
    match changed(&me, &info, headers, asked).await? {
        ScheduleTold::Done(told) => ok(told),
        ScheduleTold::Later(told) => Ok((StatusCode::ACCEPTED, Json(told)).into_response()),
    }
}

async fn changed(
    me: &AuthorizedCaller,
    info: &RunInfo,
    headers: &HeaderMap,
    (verb, input): (&str, Value),
) -> Result<ScheduleTold, Problem> {
    let update_id = update_id(key(headers)?)?;
    let input = Payload::encode(&input).map_err(|why| Problem::bad_request(format!("the body: {why}")))?;
    let name = UpdateName::of(verb);
    let request = UpdateRequest { update_id, name, input, identity: None, wait: UpdateWait::Completed };
    let mut told = json!({ "schedule_id": name_of(info) });
    match once::update(&me.backend, target_of(info), request, key(headers)?.is_some()).await? {
        UpdateOutcome::Completed(Ok(answer)) => {
            for (name, value) in answer.to_json().as_object().into_iter().flatten() {
                told[name] = value.clone();
            }
            Ok(ScheduleTold::Done(told))
        }
        UpdateOutcome::Completed(Err(why)) => {
            Err(Problem::new(StatusCode::UNPROCESSABLE_ENTITY, "update_failed", why.to_string()))
        }
        UpdateOutcome::Accepted => Ok(ScheduleTold::Later(told)),
    }
}

/// `{"schedule": {…}, "version": 3}`: another schedule in its place, unless somebody has changed it since that version.
pub async fn update_schedule(
    me: AuthorizedCaller,
    State(api): State<Api>,
    at: RequestTarget,
    headers: HeaderMap,
    body: Bytes,
) -> Answer {
    let mut members = Members::read(&body)?;
    let id = at.target.workflow_id.as_str();
    let version: Option<u64> = members.typed("version").and_then(|WholeNumber(version)| version);
    // Which schedule it is says the path. Last of all: what is not read before is taken for unknown.
    let schedule = schedule_in(&mut members, Some(id.strip_prefix(ID_PREFIX).unwrap_or(id)), &api);
    members.done()?;
    change(me, at, &headers, ("update", json!({ "schedule": schedule, "version": version }))).await
}

/// `{"note": …}`, or nothing.
async fn noted(me: AuthorizedCaller, at: RequestTarget, headers: HeaderMap, body: Bytes, verb: &str) -> Answer {
    let mut members = Members::read(&body)?;
    let note = members.text("note").unwrap_or_default();
    members.done()?;
    change(me, at, &headers, (verb, json!({ "note": note }))).await
}

pub async fn pause_schedule(me: AuthorizedCaller, at: RequestTarget, headers: HeaderMap, body: Bytes) -> Answer {
    noted(me, at, headers, body, "pause").await
}

pub async fn unpause_schedule(me: AuthorizedCaller, at: RequestTarget, headers: HeaderMap, body: Bytes) -> Answer {
    noted(me, at, headers, body, "unpause").await
}

/// One start now; `{"overlap": …}` where it is to be another than the schedule's. `became` says what has become of it.
pub async fn trigger_schedule(me: AuthorizedCaller, at: RequestTarget, headers: HeaderMap, body: Bytes) -> Answer {
    let mut members = Members::read(&body)?;
    let overlap: Option<Overlap> = members.typed("overlap");
    members.done()?;
    let info = named(&me, at).await?;
    let mut told = match changed(&me, &info, &headers, ("trigger", json!({ "overlap": overlap }))).await? {
        ScheduleTold::Done(told) => told,
        ScheduleTold::Later(told) => return Ok((StatusCode::ACCEPTED, Json(told)).into_response()),
    };
    let described = ask(&me.backend, &target_of(&info), "describe").await;
    let became = StartBecame::of(&described, told["nominal"].as_str().unwrap_or_default());
    if let Some(became) = became.filter(|_| !described.is_null()) {
        told["became"] = became.name().into();
    }
    ok(told)
}

/// The times from `start_time` to `end_time`, both included.
pub async fn backfill_schedule(me: AuthorizedCaller, at: RequestTarget, headers: HeaderMap, body: Bytes) -> Answer {
    let mut members = Members::read(&body)?;
    let (start, end) = (moment(&mut members, "start_time"), moment(&mut members, "end_time"));
    let overlap: Option<Overlap> = members.typed("overlap");
    if start.zip(end).is_some_and(|(start, end)| end < start) {
        members.wrong("end_time", "it is before start_time");
    }
    members.done()?;
    let told = |at: Option<Timestamp>| at.map(text::moment);
    let range = json!({ "start_time": told(start), "end_time": told(end), "overlap": overlap });
    change(me, at, &headers, ("backfill", range)).await
}

fn moment(members: &mut Members, name: &'static str) -> Option<Timestamp> {
    let said = members.text(name);
    members.needs(name, said.is_some());
    text::parse_moment(&said?).map_err(|why| members.wrong(name, why)).ok()
}

/// The schedule goes; what it has started goes on.
pub async fn delete_schedule(me: AuthorizedCaller, at: RequestTarget, headers: HeaderMap) -> Answer {
    change(me, at, &headers, ("delete", Value::Null)).await
}
