//! Events as they happen, for programs and pages: server-sent events of one run, or of all runs that fit a list filter.
//!
//! Invariant: an event has the id of its place, and whoever comes back with it as `Last-Event-ID`, as browsers do by themselves,
//! misses nothing and sees nothing twice: of one run the id is that of the event; of many it is `COMMIT.RUN.EVENT`, since several
//! events come with one commit. A quiet stream says so every 15 s; one that breaks off says why.

use std::convert::Infallible;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use axum::http::{HeaderMap, Uri};
use axum::response::sse::{Event as Sent, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use bosun_engine::{EventId, GroupSeq, RunEvent, RunId};
use futures_core::Stream;
use futures_util::StreamExt;
use serde::Deserialize;
use serde_json::{Value, json};

use super::super::handlers::{AuthorizedCaller, RequestTarget, query_of};
use super::super::problem::Problem;
use super::handlers::Answer;
use super::known::{UnknownField, unknown_field};
use super::pages::parse;
use super::view;
use crate::backend::{Backend, CallError};

const QUIET_MAX: Duration = Duration::from_secs(15);

/// What is named under an id that is not there is not waited for longer.
const RESUME_MAX: Duration = Duration::from_secs(2);

/// Where a client was when it lost us.
fn last_id<T: FromStr>(headers: &HeaderMap) -> Result<Option<T>, Problem> {
    let Some(given) = headers.get("last-event-id").filter(|given| !given.is_empty()) else { return Ok(None) };
    let read = given.to_str().ok().and_then(|text| text.trim().parse().ok());
    let id = read.ok_or_else(|| Problem::bad_request("Last-Event-ID: take the id of the last event as it stands"))?;
    Ok(Some(id))
}

/// One event of all runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct StreamPlace {
    group: GroupSeq,
    run_id: RunId,
    event: EventId,
}

impl StreamPlace {
    fn of(event: &RunEvent) -> Self {
        StreamPlace { group: event.group, run_id: event.run_id, event: event.event.id }
    }
}

impl fmt::Display for StreamPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.group.0, self.run_id, self.event.0)
    }
}

impl FromStr for StreamPlace {
    type Err = ();
    fn from_str(text: &str) -> Result<Self, ()> {
        let mut parts = text.splitn(3, '.');
        let mut part = || parts.next().ok_or(());
        let group = GroupSeq(part()?.parse().map_err(|_| ())?);
        let run_id = part()?.parse().map_err(|_| ())?;
        Ok(StreamPlace { group, run_id, event: EventId(part()?.parse().map_err(|_| ())?) })
    }
}

#[derive(Deserialize)]
struct RunStreamQuery {
    from: Option<u64>,
}

/// The events of one run, from its first one, or from where the client was; the end of the run ends them.
pub async fn run_events(me: AuthorizedCaller, at: RequestTarget, headers: HeaderMap, uri: Uri) -> Answer {
    let RunStreamQuery { from } = query_of(&uri)?;
    let from = match last_id::<u64>(&headers)? {
        Some(last) => last.saturating_add(1),
        None => from.unwrap_or(1).max(1),
    };
    // A run that is not there is told before the stream begins.
    let info = me.backend.describe(at.target.clone()).await?.info;
    let target = bosun_engine::Target { run_id: Some(info.run_id), ..at.target };
    let events = me.backend.events(target, EventId(from), true);
    Ok(sent(events.map(|event| event.map(|event| (Some(event.id.0), view::event(&event))))))
}

#[derive(Deserialize)]
struct StreamQuery {
    #[serde(default)]
    query: String,
}

/// The events of all runs that fit, from now on, or from where the client was.
pub async fn events(me: AuthorizedCaller, headers: HeaderMap, uri: Uri) -> Answer {
    let StreamQuery { query } = query_of(&uri)?;
    // Once the stream has begun it is too late for a status.
    parse(&query)?;
    let last: Option<StreamPlace> = last_id(&headers)?;
    // Whoever comes back was told already.
    if last.is_none()
        && let Some(unknown) = unknown_field(&me.backend, &query).await?.filter(UnknownField::is_misspelt)
    {
        return Err(unknown.into());
    }
    // The rest of the commit that the client has seen a part of comes first.
    let after = last.map(|last| GroupSeq(last.group.0.saturating_sub(1)));
    let told = resumed(me.backend.watch(query, after), last);
    Ok(sent(told.map(|event| event.map(|event| (Some(StreamPlace::of(&event)), of_run(&event))))))
}

/// The events behind the one that a client saw last. Where that one is not among those of its commit any more - the filter is
/// another one - all of that commit are told: better twice than never.
fn resumed<E>(
    events: impl Stream<Item = Result<RunEvent, E>>,
    last: Option<StreamPlace>,
) -> impl Stream<Item = Result<RunEvent, E>> {
    async_stream::stream! {
        let mut events = std::pin::pin!(events);
        let mut seen = Vec::new();
        let mut next = None;
        if let Some(last) = last {
            while let Ok(found) = tokio::time::timeout(RESUME_MAX, events.next()).await {
                match found {
                    Some(Ok(event)) if event.group == last.group => {
                        let is_last = StreamPlace::of(&event) == last;
                        seen.push(event);
                        if is_last {
                            seen.clear();
                            break;
                        }
                    }
                    None => break,
                    other => {
                        next = other;
                        break;
                    }
                }
            }
        }
        for event in seen {
            yield Ok(event);
        }
        if let Some(event) = next {
            yield event;
        }
        while let Some(event) = events.next().await {
            yield event;
        }
    }
}

fn of_run(event: &RunEvent) -> Value {
    let mut told = view::event(&event.event);
    told["workflow_id"] = json!(event.workflow_id);
    told["run_id"] = json!(event.run_id);
    told
}

fn sent<I: fmt::Display>(
    events: impl Stream<Item = Result<(Option<I>, Value), CallError>> + Send + 'static,
) -> Response {
    let events = events.map(|event| {
        let told = match event {
            Ok((id, value)) => {
                let event = Sent::default().event("event").data(value.to_string());
                id.map_or(event.clone(), |id| event.id(id.to_string()))
            }
            // JSON has no line ends of its own, so that one line holds it.
            Err(why) => Sent::default().event("error").data(json!(Problem::from(why)).to_string()),
        };
        Ok::<Sent, Infallible>(told)
    });
    Sse::new(events).keep_alive(KeepAlive::new().interval(QUIET_MAX)).into_response()
}

#[cfg(test)]
mod tests {
    use bosun_engine::*;

    use super::*;

    fn event(group: u64, run: u8, id: u64) -> RunEvent {
        let kind = EventKind::WorkflowExecutionUnpaused { reason: String::new(), identity: None };
        let event = Event { id: EventId(id), at: Timestamp::ZERO, kind, build: BuildId::default() };
        RunEvent { group: GroupSeq(group), workflow_id: WorkflowId::of("w"), run_id: RunId([run; 16]), event }
    }

    async fn after(last: Option<&RunEvent>) -> Vec<(u64, u64)> {
        let all = [event(4, 1, 1), event(4, 1, 2), event(4, 2, 1), event(4, 2, 2), event(5, 1, 3)];
        let events = futures_util::stream::iter(all.map(Ok::<_, ()>));
        let told = resumed(events, last.map(StreamPlace::of)).map(|event| event.unwrap());
        told.map(|event| (u64::from(event.run_id.0[0]), event.event.id.0)).collect().await
    }

    /// A client may be cut off in the middle of a commit.
    #[tokio::test]
    async fn the_rest_of_a_commit_is_told_to_who_comes_back() {
        let all = [(1, 1), (1, 2), (2, 1), (2, 2), (1, 3)];
        for seen in 1..=4 {
            let (run, id) = all[seen - 1];
            assert_eq!(after(Some(&event(4, run as u8, id))).await, all[seen..], "{seen}");
        }
        assert_eq!(after(None).await, all);
        assert_eq!(after(Some(&event(4, 9, 1))).await, all, "what is not there any more hides nothing");
    }

    #[test]
    fn a_place_is_read_as_it_is_written() {
        let place = StreamPlace::of(&event(7, 3, 12));
        assert_eq!(place.to_string().parse(), Ok(place));
        for wrong in ["", "7", "7.x.1", "7..1", "-1.0.1"] {
            assert_eq!(wrong.parse::<StreamPlace>(), Err(()), "{wrong}");
        }
    }
}
