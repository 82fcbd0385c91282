//! Progress while one waits: a tree that is redrawn on a terminal, one line per change elsewhere. Always on stderr.
//!
//! Invariant: the board is folded from events, or is what the workflow's own `progress` query says; it decides nothing.
//! A query that fails is not an error: the board stays as it was.

use bosun_engine::*;
use serde_json::Value;

use super::error::printable;
use super::event_text::{brief, cut};
use super::output::{Screen, TextStyle, one_line};
use super::result::value_text;
use super::time_format::short;
use super::waiting::WaitingRow;
use crate::backend::Backend;

/// Where the board comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Watch {
    /// Folded from events: every workflow.
    Events,
    /// The `progress` query: plans.
    ProgressQuery,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RowState {
    Waiting,
    /// Somebody is asked.
    Asking,
    Running,
    Retrying,
    Done,
    Failed,
    Canceled,
}

impl RowState {
    fn icon(self, ascii: bool) -> (&'static str, TextStyle) {
        let (unicode, plain, paint) = match self {
            RowState::Waiting => ("·", "[ ]", TextStyle::Dim),
            RowState::Asking => ("?", "[?]", TextStyle::Yellow),
            RowState::Running => ("▶", "[>]", TextStyle::Blue),
            RowState::Retrying => ("↻", "[~]", TextStyle::Yellow),
            RowState::Done => ("✓", "[ok]", TextStyle::Green),
            RowState::Failed => ("✗", "[!]", TextStyle::Red),
            RowState::Canceled => ("∅", "[-]", TextStyle::Yellow),
        };
        (if ascii { plain } else { unicode }, paint)
    }

    /// The words that plans use for the states of tasks.
    fn of_word(word: &str) -> RowState {
        match word.to_ascii_lowercase().as_str() {
            "running" | "awaiting_review" | "awaiting_input" | "awaiting_approval" => RowState::Running,
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
                self.set(*seq, RowState::Failed, format!("terminated: {reason}"), at);
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
                (row.state, row.detail) = (RowState::Done, brief(&signal.input));
            }
            // The rest is about the run itself, which the caller announces.
            _ => {}
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
        let list = |key: &str| progress.get(key).and_then(Value::as_array).into_iter().flatten();
        self.rows.extend(list("undone").map(undone));
        self.rows.extend(list("waiting").map(asked));
    }
}

/// What was undone of a run that was cancelled.
fn undone(value: &Value) -> Row {
    let task = value_text(&value["task"]);
    let error = value["error"].as_str();
    let (state, detail) = error.map_or((RowState::Done, ""), |why| (RowState::Failed, why));
    Row { key: format!("undone {task}"), title: format!("undo {task}"), detail: cut(detail), state, since: None }
}

/// What a person is asked, with the command that answers.
fn asked(value: &Value) -> Row {
    let WaitingRow { id, whom, what, answer } = WaitingRow::of(value);
    let title = format!("waits for {whom}: {}", cut(&what));
    Row { key: format!("waiting {id}"), title, detail: format!("`{answer}`"), state: RowState::Asking, since: None }
}

/// The board on the screen.
pub(super) struct ProgressBoard {
    watch: Watch,
    target: Target,
    board: Board,
    /// What has been said already, off a terminal.
    said: Vec<Row>,
    /// How many lines the last drawing has, on a terminal.
    drawn: usize,
    now: Timestamp,
}

/// A terminal shows at most this many rows; the newest ones.
const ROWS_MAX: usize = 30;

impl ProgressBoard {
    pub(super) fn new(watch: Watch, target: Target) -> Self {
        let now = super::time_format::now();
        ProgressBoard { watch, target, board: Board::default(), said: Vec::new(), drawn: 0, now }
    }

    pub(super) async fn event(&mut self, screen: &mut Screen, backend: &dyn Backend, event: &Event) {
        match self.watch {
            Watch::Events => self.board.apply(event),
            Watch::ProgressQuery => self.ask(backend).await,
        }
        self.show(screen);
    }

    async fn ask(&mut self, backend: &dyn Backend) {
        let name = QueryName::of("progress");
        if let Ok(progress) = backend.query(self.target.clone(), name, Payload::null()).await {
            self.board.replace(&progress.to_json());
        }
    }

    pub(super) fn redraw(&mut self, screen: &mut Screen) {
        self.now = super::time_format::now();
        self.show(screen);
    }

    /// The last state, which stays on the screen.
    pub(super) async fn finish(&mut self, screen: &mut Screen, backend: &dyn Backend) {
        if self.watch == Watch::ProgressQuery {
            self.ask(backend).await;
        }
        self.show(screen);
    }

    fn show(&mut self, screen: &mut Screen) {
        if screen.live {
            self.draw(screen);
        } else {
            self.say(screen);
        }
    }

    fn draw(&mut self, screen: &mut Screen) {
        let skip = self.board.rows.len().saturating_sub(ROWS_MAX);
        let lines: Vec<String> = self.board.rows[skip..].iter().flat_map(|row| self.lines(screen, row)).collect();
        if lines.is_empty() {
            return;
        }
        let mut text = if self.drawn > 0 { format!("\x1b[{}A\x1b[J", self.drawn) } else { String::new() };
        for line in &lines {
            text.push_str(line);
            text.push('\n');
        }
        self.drawn = lines.len();
        screen.draw(&text);
    }

    /// Lines without wrapping: a wrapped line would break the redrawing. A command that answers has a line of its own, so that
    /// it can be copied whole.
    fn lines(&self, screen: &Screen, row: &Row) -> Vec<String> {
        let (icon, paint) = row.state.icon(screen.ascii);
        let running = row.since.map(|since| format!(" {}", short(self.now.since(since)))).unwrap_or_default();
        let beside = if row.state == RowState::Asking { "" } else { &row.detail };
        let text: String = one_line(&format!("{}{running}  {beside}", row.title)).chars().take(100).collect();
        let icon = if screen.error_color { format!("{}{icon}\x1b[0m", paint.escape()) } else { icon.to_owned() };
        let mut lines = vec![format!("\x1b[?7l{icon} {}\x1b[?7h", text.trim_end())];
        if row.state == RowState::Asking {
            lines.push(format!("\x1b[?7l    {}\x1b[?7h", one_line(&screen.reach.complete(&row.detail))));
        }
        lines
    }

    fn say(&mut self, screen: &mut Screen) {
        for row in &self.board.rows {
            let known = self.said.iter_mut().find(|said| said.key == row.key);
            let changed = known.as_ref().is_none_or(|said| said.state != row.state || said.detail != row.detail);
            if !changed {
                continue;
            }
            // Tasks that only wait are no news, whatever they wait for.
            let waits_on = row.state == RowState::Waiting && known.as_ref().is_none_or(|said| said.state == row.state);
            if !waits_on {
                let icon = row.state.icon(screen.ascii).0;
                let detail = one_line(&row.detail);
                let detail = if row.state == RowState::Asking { screen.reach.complete(&detail) } else { detail };
                screen.note(printable(&format!("{icon} {}  {detail}", row.title)).trim_end());
            }
            match known {
                Some(said) => *said = row.clone(),
                None => self.said.push(row.clone()),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn event(kind: EventKind) -> Event {
        Event { id: EventId(1), at: Timestamp(0), build: BuildId(0), kind }
    }

    fn said(progress: &mut ProgressBoard, events: Vec<EventKind>) -> String {
        let (mut screen, output) = Screen::captured();
        screen.ascii = true;
        for kind in events {
            progress.board.apply(&event(kind));
            progress.show(&mut screen);
        }
        output.stderr()
    }

    #[test]
    fn every_change_of_state_is_one_line() {
        let mut progress = ProgressBoard::new(Watch::Events, Target::workflow("w".into()));
        let scheduled = ActivityTaskScheduled {
            seq: Seq(1),
            activity_id: "a1".into(),
            activity_type: "charge".into(),
            input: Payload::null(),
            options: ActivityOptions::default(),
        };
        let text = said(
            &mut progress,
            vec![
                EventKind::ActivityTaskScheduled(Box::new(scheduled)),
                EventKind::ActivityTaskStarted { seq: Seq(1), attempt: Attempt(1) },
                EventKind::ActivityTaskAttemptFailed {
                    seq: Seq(1),
                    attempt: Attempt(1),
                    failure: Failure::application("Busy", "later"),
                    next_attempt_at: Timestamp(5),
                },
                EventKind::ActivityTaskStarted { seq: Seq(1), attempt: Attempt(2) },
                EventKind::ActivityTaskCompleted { seq: Seq(1), result: Payload::raw_json("7"), identity: None },
            ],
        );
        assert_eq!(
            text,
            "[>] charge a1\n[~] charge a1  attempt 1 failed: Busy: later\n[>] charge a1  attempt 2\n[ok] charge a1  7\n"
        );
    }

    #[test]
    fn a_plan_is_shown_as_its_progress_query_says() {
        let mut progress = ProgressBoard::new(Watch::ProgressQuery, Target::workflow("w".into()));
        let (mut screen, output) = Screen::captured();
        for status in [["running", "pending"], ["needs_revision", "pending"], ["completed", "running"]] {
            progress.board.replace(&json!({ "tasks": [
                { "task_id": 1, "title": "look", "status": status[0], "attempt": 1 },
                { "task_id": 2, "title": "write", "status": status[1], "attempt": 2, "brief": "half" },
            ]}));
            progress.show(&mut screen);
        }
        assert_eq!(output.stderr(), "▶ 1 look\n↻ 1 look\n✓ 1 look\n▶ 2 write  attempt 2 half\n");
    }
}
