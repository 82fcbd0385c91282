//! What a run does and has done, a row a thing.
//!
//! Invariant: the board is folded from events, or is what the workflow's own `progress` query says; it decides nothing, and
//! draws nothing.

use bosun_engine::*;
use serde_json::Value;

use super::event_text::{brief, cut};
use super::handoffs;
use super::output::TextStyle;
use super::result::value_text;
use super::time_format::short;
use super::waiting::WaitingRow;
use crate::unhandled;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RowState {
    Waiting,
    /// Somebody is asked.
    Asking,
    /// Something keeps it from going on, and a command helps.
    Stuck,
    Running,
    Retrying,
    /// It has come; whether anybody took it is not known.
    Noted,
    /// It has come, and the run ended without taking it.
    Unhandled,
    Done,
    Failed,
    Canceled,
}

impl RowState {
    pub(super) fn icon(self, ascii: bool) -> (&'static str, TextStyle) {
        let (unicode, plain, paint) = match self {
            RowState::Waiting | RowState::Noted => ("·", "[ ]", TextStyle::Dim),
            RowState::Unhandled => ("!", "[!]", TextStyle::Yellow),
            RowState::Asking => ("?", "[?]", TextStyle::Yellow),
            RowState::Running => ("▶", "[>]", TextStyle::Blue),
            RowState::Stuck | RowState::Retrying => ("↻", "[~]", TextStyle::Yellow),
            RowState::Done => ("✓", "[ok]", TextStyle::Green),
            RowState::Failed => ("✗", "[!]", TextStyle::Red),
            RowState::Canceled => ("∅", "[-]", TextStyle::Yellow),
        };
        (if ascii { plain } else { unicode }, paint)
    }

    /// Whether its detail is the command that helps, which has a line of its own.
    pub(super) fn has_command(self) -> bool {
        matches!(self, RowState::Asking | RowState::Stuck)
    }

    /// The words that plans use for the states of tasks.
    fn of_word(word: &str) -> RowState {
        match word.to_ascii_lowercase().as_str() {
            "running" | "awaiting_review" | "awaiting_input" => RowState::Running,
            "needs_revision" | "errored" => RowState::Retrying,
            "completed" => RowState::Done,
            "failed" | "escalated" => RowState::Failed,
            "canceled" | "cancelled" | "skipped" | "blocked" => RowState::Canceled,
            _ => RowState::Waiting,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Row {
    pub key: String,
    pub title: String,
    pub state: RowState,
    pub detail: String,
    pub since: Option<Timestamp>,
}

/// Characters of what is asked that are shown: the reason matters more than room.
const ASKED_MAX: usize = 300;

/// Characters of who has handed over to whom: a line of a narrow terminal.
const HANDED_MAX: usize = 60;

/// Everything under way or done, in the order it began.
#[derive(Debug, Default)]
pub(super) struct Board {
    pub rows: Vec<Row>,
}

impl Board {
    fn row(&mut self, key: String, title: impl FnOnce() -> String) -> &mut Row {
        let place = self.rows.iter().position(|row| row.key == key).unwrap_or_else(|| {
            self.rows.push(Row { key, title: title(), state: RowState::Waiting, detail: String::new(), since: None });
            self.rows.len() - 1
        });
        &mut self.rows[place]
    }

    fn set(&mut self, seq: Seq, state: RowState, detail: impl Into<String>, at: Timestamp) {
        let row = self.row(seq.to_string(), || format!("command {seq}"));
        row.since = (state == RowState::Running).then_some(at);
        (row.state, row.detail) = (state, detail.into());
    }

    /// The run has ended, and another one goes on: what was done stays, under a name that no command of that one has.
    pub(super) fn end(&mut self) {
        let is_over =
            |row: &Row| matches!(row.state, RowState::Done | RowState::Failed | RowState::Canceled | RowState::Noted);
        self.rows.retain(is_over);
        self.rows.iter_mut().for_each(|row| row.key.insert(0, '<'));
    }

    /// Folds one event. Events that are about no row change nothing.
    // long: one exhaustive match; a variant more is a line more.
    pub(super) fn apply(&mut self, event: &Event) {
        let at = event.at;
        match &event.kind {
            EventKind::ActivityTaskScheduled(task) => {
                let title = || match &task.options.summary {
                    Some(summary) => format!("{} ({summary})", task.activity_type),
                    None => format!("{} {}", task.activity_type, task.activity_id),
                };
                self.row(task.seq.to_string(), title);
            }
            EventKind::ActivityTaskStarted { seq, attempt } => {
                let detail = if attempt.0 > 1 { format!("attempt {attempt}") } else { String::new() };
                self.set(*seq, RowState::Running, detail, at);
            }
            EventKind::ActivityTaskAttemptFailed { seq, attempt, failure, .. } => {
                self.set(*seq, RowState::Retrying, format!("attempt {attempt} failed: {failure}"), at);
            }
            EventKind::ActivityTaskCompleted { seq, result, .. } => self.set(*seq, RowState::Done, brief(result), at),
            EventKind::ChildWorkflowExecutionCompleted { seq, result } => {
                self.set(*seq, RowState::Done, brief(result), at);
            }
            EventKind::ActivityTaskFailed { seq, failure, .. }
            | EventKind::ActivityTaskTimedOut { seq, failure, .. }
            | EventKind::ChildWorkflowExecutionFailed { seq, failure }
            | EventKind::StartChildWorkflowExecutionFailed { seq, failure } => {
                self.set(*seq, RowState::Failed, failure.to_string(), at);
            }
            EventKind::ActivityTaskCanceled { seq, .. }
            | EventKind::TimerCanceled { seq }
            | EventKind::ChildWorkflowExecutionCanceled { seq, .. } => self.set(*seq, RowState::Canceled, "", at),
            EventKind::ChildWorkflowExecutionTimedOut { seq } => self.set(*seq, RowState::Failed, "timed out", at),
            EventKind::ChildWorkflowExecutionTerminated { seq, reason } => {
                let why = if reason.is_empty() { String::new() } else { format!(": {reason}") };
                self.set(*seq, RowState::Failed, format!("terminated{why}"), at);
            }
            EventKind::TimerStarted { seq, fire_at, summary } => {
                let name = summary.as_deref().unwrap_or("timer");
                self.row(seq.to_string(), || format!("{name} for {}", short(fire_at.since(at))));
                self.set(*seq, RowState::Running, "", at);
            }
            EventKind::TimerFired { seq } => self.set(*seq, RowState::Done, "", at),
            EventKind::StartChildWorkflowExecutionInitiated(child) => {
                self.row(child.seq.to_string(), || format!("child {} {}", child.workflow_type, child.workflow_id));
            }
            EventKind::ChildWorkflowExecutionStarted { seq, .. } => self.set(*seq, RowState::Running, "", at),
            EventKind::WorkflowExecutionSignaled(signal) => {
                let row = self.row(format!("event {}", event.id), || format!("signal {}", signal.name));
                (row.state, row.detail) = (RowState::Noted, brief(&signal.input));
            }
            // The rest is about the run itself, which the caller announces.
            end => unhandled::of_event(end).iter().for_each(|name| self.never_taken(name)),
        }
    }

    /// The newest signal of this name that is not told of yet: what came first is taken first.
    fn never_taken(&mut self, name: &SignalName) {
        let title = format!("signal {name}");
        let row = self.rows.iter_mut().rev().find(|row| row.state == RowState::Noted && row.title == title);
        if let Some(row) = row {
            (row.state, row.title) = (RowState::Unhandled, format!("{title} (unhandled)"));
        }
    }

    /// Takes over what the `progress` query of a plan says of its `tasks`.
    pub(super) fn replace(&mut self, progress: &Value) {
        let Some(tasks) = progress.get("tasks").and_then(Value::as_array) else { return };
        let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        self.rows = tasks
            .iter()
            .map(|task| {
                let get = |names: &[&str]| names.iter().find_map(|name| task.get(*name).filter(|v| !v.is_null()));
                let key = get(&["task_id"]).map(text).unwrap_or_default();
                let state = RowState::of_word(get(&["status"]).and_then(Value::as_str).unwrap_or_default());
                let attempt = get(&["attempt"]).and_then(Value::as_u64).unwrap_or(0);
                let mut detail = if attempt > 1 { format!("attempt {attempt}") } else { String::new() };
                if let Some(brief) = get(&["error_msg", "reason", "brief"]) {
                    detail = format!("{detail} {}", cut(&text(brief))).trim().to_owned();
                }
                let since = get(&["started_at"]).and_then(Value::as_i64).map(Timestamp);
                Row {
                    title: format!("{key} {}", get(&["title"]).map(text).unwrap_or_default()),
                    key,
                    detail,
                    since: since.filter(|_| state == RowState::Running),
                    state,
                }
            })
            .collect();
        self.rows.extend(handed_over(&handoffs::of_progress(progress)));
        let list = |key: &str| progress.get(key).and_then(Value::as_array).into_iter().flatten();
        self.rows.extend(list("undone").map(undone));
        self.rows.extend(list("waiting").map(|one| asked_row(&WaitingRow::of(one))));
    }
}

/// Who has had the conversation in hand, where agents hand it over.
fn handed_over(chain: &[String]) -> Option<Row> {
    let detail = handoffs::in_line(chain, HANDED_MAX);
    let title = "handed over".to_owned();
    (!chain.is_empty()).then(|| Row { key: "handed over".into(), title, detail, state: RowState::Done, since: None })
}

/// What was undone of a run that was cancelled.
fn undone(value: &Value) -> Row {
    let task = value_text(&value["task"]);
    let error = value["error"].as_str();
    let (state, detail) = error.map_or((RowState::Done, ""), |why| (RowState::Failed, why));
    Row { key: format!("undone {task}"), title: format!("undo {task}"), detail: cut(detail), state, since: None }
}

/// What a person is asked, with the command that answers.
pub(super) fn asked_row(one: &WaitingRow) -> Row {
    let WaitingRow { id, whom, what, answer, .. } = one;
    let what: String = what.chars().take(ASKED_MAX).collect();
    let title = format!("waits for {whom}: {what}");
    Row { key: format!("waiting {id}"), title, detail: format!("`{answer}`"), state: RowState::Asking, since: None }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Nobody knows of a signal that it was taken; that it never was stands in the end of the run.
    #[test]
    fn a_signal_is_ticked_off_by_nobody_and_told_where_it_was_never_taken() {
        let mut board = Board::default();
        let mut id = 0;
        let mut apply = |kind: EventKind| {
            id += 1;
            board.apply(&Event { id: EventId(id), at: Timestamp(0), build: BuildId(0), kind });
            board.rows.iter().map(|row| format!("{} {}", row.state.icon(true).0, row.title)).collect::<Vec<_>>()
        };
        let signal = |name: &str| {
            let signal = WorkflowExecutionSignaled {
                name: SignalName::of(name),
                input: Payload::null(),
                identity: None,
                request_id: None,
            };
            EventKind::WorkflowExecutionSignaled(signal)
        };
        apply(signal("a"));
        apply(signal("b"));
        assert_eq!(apply(signal("b")), ["[ ] signal a", "[ ] signal b", "[ ] signal b"]);
        let unhandled_signals = vec![SignalName::of("b")];
        let end = EventKind::WorkflowExecutionCompleted { result: Payload::null(), unhandled_signals };
        assert_eq!(apply(end), ["[ ] signal a", "[ ] signal b", "[!] signal b (unhandled)"]);
    }
}
