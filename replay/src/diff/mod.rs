//! Semantic diff of two histories: where they first differ, why, and how the rest lines up.
//!
//! Compared are the kinds of events, the names they are about, and their contents. Not compared is what differs between
//! any two runs: run and request ids, identities, builds, command numbers, moments (delays are), when attempts started,
//! and that a run was forked. Workflow tasks of Temporal's are left out.
//!
//! Invariant: the first divergence is exact, whatever the lengths; only the alignment after it is bounded, and says so.

mod align;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt;

use bosun_engine::*;
use serde::Serialize;
use serde_json::Value;

use crate::{History, Redaction, TemporalHistory};

/// Two histories side by side.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct HistoryDiff {
    /// What the left history is called.
    pub left: String,
    /// What the right history is called.
    pub right: String,
    /// How many events are the same.
    pub same: usize,
    /// The first difference; `None` if there is none.
    pub divergence: Option<Divergence>,
    /// From the first divergence on.
    pub lines: Vec<DiffLine>,
    /// Events after the aligned part, left and right, that were not compared.
    pub not_compared: (usize, usize),
}

/// The first difference and what caused it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Divergence {
    /// What brought it about.
    pub cause: DivergenceCause,
    /// The events that differ.
    pub line: DiffLine,
}

/// What made two histories differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum DivergenceCause {
    /// The runs were started differently.
    Start,
    /// Something else happened to them: another result, signal, or order.
    Outside,
    /// The same happened, and the code asked for something else: other code, or another policy.
    Decision,
    /// One history ends here.
    Ended,
}

/// A line of the comparison. Ids are of the side they are named after.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub enum DiffLine {
    /// Both hold it.
    Same {
        /// Its id on the left.
        left: u64,
        /// Its id on the right.
        right: u64,
        /// Its kind and what it is about.
        what: String,
    },
    /// Both hold it, with other content.
    Changed {
        /// Its id on the left.
        left: u64,
        /// Its id on the right.
        right: u64,
        /// Its kind and what it is about.
        what: String,
        /// What differs.
        fields: Vec<FieldChange>,
    },
    /// The right side does not hold it.
    OnlyLeft {
        /// Its id.
        left: u64,
        /// Its kind and what it is about.
        what: String,
    },
    /// The left side does not hold it.
    OnlyRight {
        /// Its id.
        right: u64,
        /// Its kind and what it is about.
        what: String,
    },
}

/// A part of an event that differs, shortened for reading.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct FieldChange {
    /// Its path in the event.
    pub field: String,
    /// What the left side holds, shortened.
    pub left: String,
    /// What the right side holds, shortened.
    pub right: String,
}

/// An event as far as it is compared.
struct ComparedEvent {
    id: u64,
    /// The kind and what it is about.
    what: String,
    content: Value,
    origin: Origin,
}

impl DiffLine {
    /// The event on the left, if there is one.
    pub fn left(&self) -> Option<u64> {
        match self {
            DiffLine::Same { left, .. } | DiffLine::Changed { left, .. } | DiffLine::OnlyLeft { left, .. } => {
                Some(*left)
            }
            DiffLine::OnlyRight { .. } => None,
        }
    }
}

impl HistoryDiff {
    /// Whether the histories do not differ in anything that is compared.
    pub fn is_same(&self) -> bool {
        self.divergence.is_none()
    }
}

/// Compares two of our histories. If one is redacted, contents are compared by their digests.
pub fn diff(left: &History, right: &History) -> HistoryDiff {
    let name = |history: &History| format!("{} ({})", history.started().workflow_id, history.run_id());
    let names = (name(left), name(right));
    match left.redaction().max(right.redaction()) {
        Redaction::None => compare(names, &items(left), &items(right)),
        redaction => compare(names, &items(&left.redacted(redaction)), &items(&right.redacted(redaction))),
    }
}

/// Compares the events of two runs, which have these names. Nothing is known to be redacted.
pub fn diff_events(names: (String, String), left: &[Event], right: &[Event]) -> HistoryDiff {
    compare(names, &items_of(left.iter().cloned()), &items_of(right.iter().cloned()))
}

/// Compares two histories of Temporal's.
pub fn diff_temporal(left: &TemporalHistory, right: &TemporalHistory) -> HistoryDiff {
    compare(("left".into(), "right".into()), &temporal_items(left), &temporal_items(right))
}

fn items(history: &History) -> Vec<ComparedEvent> {
    items_of(history.events())
}

fn items_of(events: impl Iterator<Item = Event>) -> Vec<ComparedEvent> {
    let mut names = BTreeMap::new();
    let mut items = Vec::new();
    for event in events {
        if let Some((seq, name)) = introduces(&event.kind) {
            names.insert(seq, name);
        }
        if matches!(event.kind, EventKind::ActivityTaskStarted { .. } | EventKind::WorkflowExecutionForked { .. }) {
            continue;
        }
        // Our own types are always JSON.
        let mut content = match serde_json::to_value(&event.kind).unwrap_or_default() {
            Value::Object(kind) => kind.into_iter().next().map(|(_, attributes)| attributes).unwrap_or_default(),
            _ => Value::Null,
        };
        let about = about(&event.kind, &content, &names);
        let what =
            if about.is_empty() { event.kind.name().to_owned() } else { format!("{} {about}", event.kind.name()) };
        strip(&mut content, event.at);
        items.push(ComparedEvent { id: event.id.0, what, content, origin: event.kind.origin() });
    }
    items
}

/// The name that later events of the same number are about.
fn introduces(event: &EventKind) -> Option<(Seq, String)> {
    match event {
        EventKind::ActivityTaskScheduled(scheduled) => Some((scheduled.seq, scheduled.activity_type.to_string())),
        EventKind::StartChildWorkflowExecutionInitiated(initiated) => {
            Some((initiated.seq, initiated.workflow_type.to_string()))
        }
        EventKind::SignalExternalWorkflowExecutionInitiated(initiated) => {
            Some((initiated.seq, format!("{} to {}", initiated.name, initiated.target.workflow_id)))
        }
        EventKind::RequestCancelExternalWorkflowExecutionInitiated { seq, target, .. } => {
            Some((*seq, target.workflow_id.to_string()))
        }
        EventKind::TimerStarted { seq, summary: Some(summary), .. } => Some((*seq, summary.clone())),
        _ => None,
    }
}

fn about(event: &EventKind, content: &Value, names: &BTreeMap<Seq, String>) -> String {
    match event {
        EventKind::WorkflowExecutionStarted(started) => started.workflow_type.to_string(),
        EventKind::MarkerRecorded(Marker::Patch { id, .. }) => format!("patch {id}"),
        EventKind::MarkerRecorded(Marker::SideEffect { .. }) => "side effect".to_owned(),
        EventKind::WorkflowExecutionSignaled(signal) => signal.name.to_string(),
        EventKind::WorkflowExecutionUpdateAccepted { name, .. } => name.to_string(),
        _ => {
            let seq = content.get("seq").and_then(Value::as_u64).map(Seq);
            seq.and_then(|seq| names.get(&seq)).cloned().unwrap_or_default()
        }
    }
}

/// Removes what differs between any two runs, and turns moments into delays.
fn strip(content: &mut Value, at: Timestamp) {
    const VOLATILE: [&str; 14] = [
        "seq",
        "numbering",
        "forked_from",
        "run_id",
        "new_run",
        "first_run",
        "continued_from",
        "parent",
        "identity",
        "request_id",
        "update_id",
        "carried_request_ids",
        "workflow_id",
        "attempt_at",
    ];
    let content = match content {
        // Markers are one level deeper.
        Value::Object(fields) if fields.len() == 1 && fields.contains_key("SideEffect") => &mut fields["SideEffect"],
        other => other,
    };
    let Value::Object(fields) = content else { return };
    fields.retain(|name, _| !VOLATILE.contains(&name.as_str()));
    if fields.get("activity_id").and_then(Value::as_str).is_some_and(|id| id.bytes().all(|b| b.is_ascii_digit())) {
        fields.swap_remove("activity_id");
    }
    for moment in ["fire_at", "next_attempt_at", "execution_deadline", "start_at"] {
        if let Some(then) = fields.get(moment).and_then(Value::as_i64) {
            fields.insert(moment.to_owned(), format!("after {:?}", Timestamp(then).since(at)).into());
        }
    }
}

fn temporal_items(history: &TemporalHistory) -> Vec<ComparedEvent> {
    const VOLATILE: [&str; 9] = [
        "identity",
        "requestId",
        "firstExecutionRunId",
        "originalExecutionRunId",
        "newExecutionRunId",
        "continuedExecutionRunId",
        "workflowExecution",
        "workflowId",
        "timerId",
    ];
    let mut items = Vec::new();
    for event in history.events() {
        if event.event_type.starts_with("WorkflowTask") || event.event_type == "ActivityTaskStarted" {
            continue;
        }
        let scheduled = history.event(event.number("scheduledEventId"));
        let name = ["activityType", "workflowType"].iter().find_map(|field| event.name_of(field));
        let name = name.or_else(|| event.attributes.get("signalName").and_then(Value::as_str));
        let name = name.or_else(|| scheduled.and_then(|scheduled| scheduled.name_of("activityType")));
        let what = name.map_or_else(|| event.event_type.clone(), |name| format!("{} {name}", event.event_type));
        let mut content = event.readable();
        if let Value::Object(fields) = &mut content {
            fields.retain(|name, _| !VOLATILE.contains(&name.as_str()) && !name.ends_with("EventId"));
        }
        let command = event.attributes.contains_key("workflowTaskCompletedEventId");
        let origin = if command { Origin::Command } else { Origin::Activating };
        items.push(ComparedEvent { id: event.id, what, content, origin });
    }
    items
}

fn compare((left_name, right_name): (String, String), left: &[ComparedEvent], right: &[ComparedEvent]) -> HistoryDiff {
    let equal = |(l, r): &(&ComparedEvent, &ComparedEvent)| l.what == r.what && l.content == r.content;
    let prefix = left.iter().zip(right).take_while(equal).count();
    let (left, right) = (&left[prefix..], &right[prefix..]);
    let suffix = left.iter().rev().zip(right.iter().rev()).take_while(equal).count();
    let (left_middle, right_middle) = (&left[..left.len() - suffix], &right[..right.len() - suffix]);
    let aligned = align::align(left_middle, right_middle);
    let mut lines = aligned.lines;
    let first = lines.iter().position(|line| !matches!(line, DiffLine::Same { .. }));
    let divergence = first.map(|at| {
        let line = lines[at].clone();
        Divergence { cause: cause(&line, left_middle, right_middle, suffix), line }
    });
    // Between prefix and suffix nothing is the same before the first divergence.
    let same = prefix + suffix + lines.iter().filter(|line| matches!(line, DiffLine::Same { .. })).count();
    let tail = left[left_middle.len()..].iter().zip(&right[right_middle.len()..]);
    if divergence.is_some() && aligned.not_compared == (0, 0) {
        lines.extend(tail.map(|(l, r)| DiffLine::Same { left: l.id, right: r.id, what: l.what.clone() }));
    }
    HistoryDiff { left: left_name, right: right_name, same, divergence, lines, not_compared: aligned.not_compared }
}

/// Judged by the first event on either side that the other does not have.
fn cause(line: &DiffLine, left: &[ComparedEvent], right: &[ComparedEvent], suffix: usize) -> DivergenceCause {
    if suffix == 0 && (left.is_empty() || right.is_empty()) {
        return DivergenceCause::Ended;
    }
    let (left, right) = (left.first(), right.first());
    if let DiffLine::Changed { what, .. } = line
        && what.starts_with("WorkflowExecutionStarted")
    {
        return DivergenceCause::Start;
    }
    // Commands follow what happened: if either side goes on with a command and the other with something that happened,
    // one code asked for more than the other.
    let decided = |item: Option<&ComparedEvent>| item.is_some_and(|item| item.origin == Origin::Command);
    if decided(left) || decided(right) { DivergenceCause::Decision } else { DivergenceCause::Outside }
}

impl fmt::Display for DivergenceCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            DivergenceCause::Start => "they were started differently",
            DivergenceCause::Outside => "something else happened to them",
            DivergenceCause::Decision => "the same happened and the code asked for something else",
            DivergenceCause::Ended => "one history ends here",
        })
    }
}

/// What a run says of itself looks like no line of its own (G38).
fn one_line(text: &str) -> String {
    text.replace(|c: char| c.is_control() || matches!(c, '\u{2028}' | '\u{2029}'), " ")
}

impl fmt::Display for DiffLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DiffLine::Same { left, right, what } => write!(f, "  {left:>5} {right:>5}   {}", one_line(what)),
            DiffLine::OnlyLeft { left, what } => write!(f, "- {left:>5}         {}", one_line(what)),
            DiffLine::OnlyRight { right, what } => write!(f, "+       {right:>5}   {}", one_line(what)),
            DiffLine::Changed { left, right, what, fields } => {
                write!(f, "~ {left:>5} {right:>5}   {}", one_line(what))?;
                for change in fields {
                    let (left, right) = (one_line(&change.left), one_line(&change.right));
                    write!(f, "\n                  {}: {left} -> {right}", change.field)?;
                }
                Ok(())
            }
        }
    }
}

impl fmt::Display for HistoryDiff {
    /// The first divergence and its cause first, then the rest.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} | {}: {} events are the same", self.left, self.right, self.same)?;
        let Some(divergence) = &self.divergence else { return writeln!(f, "no difference") };
        writeln!(f, "first difference: {}", divergence.cause)?;
        self.lines.iter().try_for_each(|line| writeln!(f, "{line}"))?;
        match self.not_compared {
            (0, 0) => Ok(()),
            (left, right) => writeln!(f, "{left} and {right} later events were not aligned"),
        }
    }
}
