//! Histories of a cluster: read page by page, made turns of, and what a run that is told again needs of them.
//!
//! Invariant: a page that is missing is an error, never a shorter history. Turns are made by `bosun-replay` from Temporal's JSON,
//! the same for a history that comes from a file.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use bosun_engine::workflow::WorkflowRegistry;
use bosun_engine::{Namespace, Seq, Target, Turn};
use bosun_replay::{History, TemporalHistory, TurnReader, explain};
use serde_json::{Value, json};
use temporalio_client::Connection;
use temporalio_client::grpc::WorkflowService;
use temporalio_client::tonic::{Request, Status};
use temporalio_common::protos::temporal::api::common::v1 as common;
use temporalio_common::protos::temporal::api::common::v1::WorkflowExecution;
use temporalio_common::protos::temporal::api::enums::v1::EventType;
use temporalio_common::protos::temporal::api::history::v1::history_event::Attributes;
use temporalio_common::protos::temporal::api::history::v1::{History as Events, HistoryEvent};
use temporalio_common::protos::temporal::api::workflowservice::v1::{
    GetWorkflowExecutionHistoryRequest, ListWorkflowExecutionsRequest,
};
use tokio::sync::mpsc;

use super::convert::payload_in;
use super::external::{External, ExternalError};
use super::run::Recorded;
use super::{BEATS, SEQ, SIDE_EFFECT, STACK};

/// Where Core keeps what a local activity gave.
const MARKER: &str = "core_local_activity";
const MARKER_DATA: &str = "data";
const MARKER_RESULT: &str = "result";

/// All events of a run.
pub(super) async fn events_of(
    connection: &Connection,
    namespace: &Namespace,
    workflow_id: &str,
    run_id: &str,
) -> Result<Vec<HistoryEvent>, Status> {
    let mut service = connection.clone();
    let (mut events, mut next_page_token) = (Vec::new(), Vec::new());
    loop {
        let request = GetWorkflowExecutionHistoryRequest {
            namespace: namespace.to_string(),
            execution: Some(WorkflowExecution { workflow_id: workflow_id.to_owned(), run_id: run_id.to_owned() }),
            next_page_token,
            ..Default::default()
        };
        let page = service.get_workflow_execution_history(Request::new(request)).await?.into_inner();
        events.extend(page.history.unwrap_or_default().events);
        next_page_token = page.next_page_token;
        if next_page_token.is_empty() {
            return Ok(events);
        }
    }
}

/// The same, with what of it is kept in files.
///
/// # Errors
/// A file cannot be had.
pub(super) async fn opened(external: &External, events: Vec<HistoryEvent>) -> Result<Vec<HistoryEvent>, ExternalError> {
    let mut history = Events { events };
    external.open(&mut history).await?;
    Ok(history.events)
}

/// The workflow id of a run.
pub(super) async fn workflow_of(connection: &Connection, namespace: &Namespace, run_id: &str) -> Option<String> {
    let request = ListWorkflowExecutionsRequest {
        namespace: namespace.to_string(),
        page_size: 1,
        query: format!("RunId = '{run_id}'"),
        ..Default::default()
    };
    let found = connection.clone().list_workflow_executions(Request::new(request)).await.ok()?.into_inner();
    Some(found.executions.into_iter().next()?.execution?.workflow_id)
}

/// As [`events_of`], for a target.
pub(super) async fn events_of_target(connection: &Connection, target: &Target) -> Result<Vec<HistoryEvent>, Status> {
    let run_id = target.run_id.map_or_else(String::new, |run| run.to_string());
    events_of(connection, &target.namespace, target.workflow_id.as_str(), &run_id).await
}

/// As [`recorded`]; of what is kept in files, only what side effects gave is had.
///
/// # Errors
/// A file cannot be had.
pub(super) async fn recorded_of(external: &External, events: &[HistoryEvent]) -> Result<Recorded, ExternalError> {
    let markers = events.iter().filter(|event| event.event_type() == EventType::MarkerRecorded).cloned().collect();
    Ok(Recorded { beats: beats(events), ..recorded(&opened(external, markers).await?) })
}

/// What the side effects of a run gave, and of which activities a worker says that it lives.
pub(super) fn recorded(events: &[HistoryEvent]) -> Recorded {
    let side_effects: BTreeMap<_, _> = events.iter().filter_map(side_effect).collect();
    Recorded { side_effects: side_effects.into(), beats: beats(events) }
}

fn beats(events: &[HistoryEvent]) -> BTreeMap<Seq, bool> {
    let of = |event: &HistoryEvent| match &event.attributes {
        Some(Attributes::ActivityTaskScheduledEventAttributes(scheduled)) => {
            let header = scheduled.header.as_ref().map(|header| &header.fields);
            let seq = activity_number(header, &scheduled.activity_id);
            Some((seq, header.is_some_and(|fields| fields.contains_key(BEATS))))
        }
        _ => None,
    };
    events.iter().filter_map(of).collect()
}

/// The number and the value of a recorded side effect, if the event is one.
pub(super) fn side_effect(event: &HistoryEvent) -> Option<(Seq, bosun_engine::Payload)> {
    let Some(Attributes::MarkerRecordedEventAttributes(marker)) = &event.attributes else { return None };
    if marker.marker_name != MARKER {
        return None;
    }
    let data = marker.details.get(MARKER_DATA)?.payloads.first()?;
    let data: serde_json::Value = serde_json::from_slice(&data.data).ok()?;
    let id = data.get("activity_id").or_else(|| data.get("activityId"))?.as_str()?;
    let seq = id.strip_prefix(SIDE_EFFECT)?.strip_prefix('-')?.parse().ok()?;
    let value = marker.details.get(MARKER_RESULT)?.payloads.first()?;
    Some((Seq(seq), payload_in(value.clone())))
}

/// The turns of a run, from its events; see [`TemporalHistory::turns`].
///
/// # Errors
/// The history cannot be read: a text for people.
pub(super) fn turns_of(
    namespace: &Namespace,
    events: &[HistoryEvent],
    code: Option<&WorkflowRegistry>,
) -> Result<Vec<Turn>, String> {
    read(events)?.turns(namespace, code).map_err(|why| why.to_string())
}

fn read(events: &[HistoryEvent]) -> Result<TemporalHistory, String> {
    let events = events.iter().map(json_of).collect::<Result<Vec<_>, _>>().map_err(|why| why.to_string())?;
    TemporalHistory::from_events(events).map_err(|why| why.to_string())
}

/// Reads the turns of a run as its events come. It runs workflow code, and that on a thread of its own; what has been read is
/// not read again.
pub(super) struct TurnsAlong {
    events: mpsc::Sender<Vec<HistoryEvent>>,
    turns: mpsc::Receiver<Result<Vec<Turn>, String>>,
    /// A cluster shows a workflow task that is under way behind its history, where other events may come instead.
    under_way: Vec<HistoryEvent>,
}

impl TurnsAlong {
    pub(super) fn start(namespace: &Namespace, code: Arc<WorkflowRegistry>) -> std::io::Result<Self> {
        let (events, mut batches) = mpsc::channel::<Vec<HistoryEvent>>(1);
        let (answers, turns) = mpsc::channel(1);
        let namespace = namespace.clone();
        let thread = std::thread::Builder::new().name("bosun-history".to_owned()).stack_size(STACK);
        thread.spawn(move || {
            let mut reader = None;
            while let Some(batch) = batches.blocking_recv() {
                let turns = more_turns(&mut reader, &batch, &namespace, &code);
                if answers.blocking_send(turns).is_err() {
                    return;
                }
            }
        })?;
        Ok(TurnsAlong { events, turns, under_way: Vec::new() })
    }

    /// The turns that these events, which follow those before, make. The start of a run that nobody has worked on is told
    /// alone, and again with its first turn.
    ///
    /// # Errors
    /// They cannot be read: a text for people.
    pub(super) async fn next(&mut self, more: Vec<HistoryEvent>) -> Result<Vec<Turn>, String> {
        let mut batch = std::mem::take(&mut self.under_way);
        batch.retain(|event| more.first().is_none_or(|next| event.event_id < next.event_id));
        batch.extend(more);
        let under_way = batch.iter().rposition(|event| !is_under_way(event)).map_or(0, |last| last + 1);
        self.under_way = batch.split_off(under_way);
        if batch.is_empty() {
            return Ok(Vec::new());
        }
        let lost = || "the workflow code has ended the thread that reads its history".to_owned();
        self.events.send(batch).await.map_err(|_| lost())?;
        self.turns.recv().await.ok_or_else(lost)?
    }
}

/// A workflow task that is not done: the cluster shows it behind the history.
pub(super) fn is_under_way(event: &HistoryEvent) -> bool {
    use Attributes::{
        WorkflowTaskScheduledEventAttributes as Scheduled, WorkflowTaskStartedEventAttributes as Started,
    };
    matches!(&event.attributes, Some(Scheduled(_) | Started(_)))
}

fn more_turns(
    reader: &mut Option<TurnReader>,
    batch: &[HistoryEvent],
    namespace: &Namespace,
    code: &WorkflowRegistry,
) -> Result<Vec<Turn>, String> {
    let history = read(batch)?;
    let (reader, rest) = match (reader, history.events()) {
        (Some(reader), events) => (reader, events),
        (none, begin @ [_, rest @ ..]) => {
            let begun = TurnReader::new(begin, namespace, Some(code)).map_err(|why| why.to_string())?;
            (none.insert(begun), rest)
        }
        (None, []) => return Ok(Vec::new()),
    };
    rest.iter().try_for_each(|event| reader.event(event)).map_err(|why| why.to_string())?;
    let alone = reader.start_alone();
    Ok(alone.into_iter().chain(reader.turns()).collect())
}

/// The numbers under which ours know the activities of a run, by their ids there: what the worker wrote along, or what an activity
/// of another SDK's workflow is known by. Of several with one id it is the last that may be pending.
pub(super) fn activities_of(events: &[HistoryEvent]) -> BTreeMap<String, Seq> {
    let scheduled = events.iter().filter_map(|event| match &event.attributes {
        Some(Attributes::ActivityTaskScheduledEventAttributes(scheduled)) => Some(scheduled),
        _ => None,
    });
    let fields = scheduled.map(|scheduled| {
        let header = scheduled.header.as_ref().map(|header| &header.fields);
        (scheduled.activity_id.clone(), activity_number(header, &scheduled.activity_id))
    });
    fields.collect()
}

/// See [`activities_of`].
pub(super) fn activity_number(header: Option<&HashMap<String, common::Payload>>, activity_id: &str) -> Seq {
    let own = header.and_then(|header| header.get(SEQ)).and_then(|seq| payload_in(seq.clone()).decode().ok());
    Seq(own.unwrap_or_else(|| {
        let mut bytes = [0; 8];
        bytes.copy_from_slice(&blake3::hash(activity_id.as_bytes()).as_bytes()[..8]);
        activity_id.parse().unwrap_or(u64::from_be_bytes(bytes))
    }))
}

/// The card of the first difference between a history and this program's code; nothing where replay finds none.
pub(super) fn card_of(namespace: &Namespace, events: &[HistoryEvent], code: &WorkflowRegistry) -> Option<String> {
    let history = History::new(turns_of(namespace, events, Some(code)).ok()?).ok()?;
    Some(explain(code, &history, &|_| None)?.to_string())
}

/// An event in Temporal's JSON: the attributes come as `{"TimerFiredEventAttributes": {…}}`, with names in snake case.
fn json_of(event: &HistoryEvent) -> Result<Value, serde_json::Error> {
    let attributes = match serde_json::to_value(&event.attributes)? {
        Value::Object(one) => one.into_iter().next().map(|(_, attributes)| attributes),
        _ => None,
    };
    let mut json = json!({
        "eventId": event.event_id,
        // The number: a server may be newer than the names that are known here.
        "eventType": event.event_type,
        "eventTime": event.event_time,
        "userMetadata": event.user_metadata,
    });
    if let Some(attributes) = attributes {
        json["any_event_attributes"] = attributes;
    }
    Ok(json)
}
