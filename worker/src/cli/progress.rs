//! Progress while one waits: a tree that is redrawn on a terminal, one line per change elsewhere. Always on stderr.
//!
//! Invariant: what is shown is the [`Board`] and what keeps the run from going on; what it is waited for is not decided here.
//! A query that fails is not an error: the board stays as it was.

use std::collections::BTreeMap;

use bosun_engine::*;

use super::board::{Board, Row, RowState, asked_row};
use super::error::printable;
use super::list::run_word;
use super::output::{Screen, one_line};
use super::spent;
use super::stuck::{Lookout, Obstacle};
use super::table;
use super::time_format::short;
use super::waiting::waiting;
use crate::backend::Backend;

/// Where the board comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Watch {
    /// Folded from events: every workflow.
    Events,
    /// The `progress` query: plans.
    ProgressQuery,
}

/// A line, and how many of the terminal it takes.
struct ShownLine {
    text: String,
    height: usize,
}

impl ShownLine {
    /// A command: the terminal breaks it, so that it can be copied whole.
    fn command(text: &str, width: usize) -> ShownLine {
        let text = format!("    {text}");
        ShownLine { height: table::lines_of(&text, width), text }
    }

    /// One line of the terminal, however wide that takes its characters to be.
    fn cut(text: &str) -> ShownLine {
        ShownLine { text: format!("\x1b[?7l{text}\x1b[?7h"), height: 1 }
    }
}

/// The board on the screen.
pub(super) struct ProgressBoard {
    watch: Watch,
    target: Target,
    /// Whether a worker runs.
    pub(super) carried_on: bool,
    board: Board,
    /// What has been said already, off a terminal.
    said: Vec<Row>,
    /// How many lines the last drawing has, on a terminal.
    drawn: usize,
    now: Timestamp,
    /// What is waited for with people, where the board is folded from events.
    asked: Vec<Row>,
    /// What keeps the run and those below it from going on.
    stuck: Vec<Obstacle>,
    /// How often each of them has been tried when it was last said, off a terminal.
    told: BTreeMap<(String, String), u32>,
    /// How many more there were than are told, when that was last said.
    told_more: usize,
}

/// A terminal shows at most this many rows; the newest ones.
const ROWS_MAX: usize = 30;
/// And of what keeps runs from going on, the nearest to the run.
const STUCK_MAX: usize = 5;

impl ProgressBoard {
    pub(super) fn new(watch: Watch, target: Target) -> Self {
        let now = super::time_format::now();
        ProgressBoard {
            watch,
            target,
            carried_on: true,
            board: Board::default(),
            said: Vec::new(),
            drawn: 0,
            now,
            asked: Vec::new(),
            stuck: Vec::new(),
            told: BTreeMap::new(),
            told_more: 0,
        }
    }

    pub(super) async fn event(&mut self, screen: &mut Screen, backend: &dyn Backend, event: &Event) {
        match self.watch {
            Watch::Events => self.board.apply(event),
            Watch::ProgressQuery => self.ask(backend).await,
        }
        self.show(screen);
    }

    /// What is shown goes on in another run: what the one before has done stays, and what it left is the next one's.
    pub(super) fn turn_to(&mut self, target: Target) {
        self.target = target;
        if self.watch == Watch::Events {
            self.board.end();
            // Rows are known by the commands of their run.
            self.said.clone_from(&self.board.rows);
        }
    }

    async fn ask(&mut self, backend: &dyn Backend) {
        let name = QueryName::of("progress");
        if let Ok(progress) = backend.query(self.target.clone(), name, Payload::null()).await {
            let mut progress = progress.to_json();
            if let Some(waiting) = progress.get_mut("waiting").and_then(serde_json::Value::as_array_mut) {
                spent::as_it_stands(backend, &self.target.namespace, waiting).await;
            }
            self.board.replace(&progress);
        }
    }

    /// Looks again for what keeps the run from going on, and shows it and the time.
    pub(super) async fn look(&mut self, screen: &mut Screen, backend: &dyn Backend) {
        self.now = super::time_format::now();
        self.look_again(backend).await;
        if screen.live {
            self.draw(screen);
        } else {
            self.say(screen);
            self.say_stuck(screen);
        }
    }

    /// The same as lines only, whatever the terminal: something else is shown on it.
    pub(super) async fn tell(&mut self, screen: &mut Screen, backend: &dyn Backend) {
        self.now = super::time_format::now();
        self.look_again(backend).await;
        self.say(screen);
        self.say_stuck(screen);
    }

    async fn look_again(&mut self, backend: &dyn Backend) {
        // The newest run of a chain is the one that waits.
        let newest = Target { run_id: None, ..self.target.clone() };
        let Ok(found) = backend.describe(newest).await else { return };
        self.stuck = Lookout::new(backend, self.now).carried_on(self.carried_on).below_described(&found).await;
        if self.watch == Watch::Events {
            self.asked = waiting(backend, &found.info).await.iter().map(asked_row).collect();
        }
    }

    /// A line where something new is in the way, and when it has been tried twice as often: a wait of hours is no flood.
    fn say_stuck(&mut self, screen: &mut Screen) {
        for one in self.stuck.iter().take(STUCK_MAX) {
            let tried = one.attempt.map_or(1, |attempt| attempt.0);
            let told = self.told.entry((one.title(), one.why.clone())).or_default();
            if tried >= told.saturating_mul(2).max(1) {
                *told = tried;
                let icon = RowState::Retrying.icon(screen.ascii).0;
                let help = screen.reach.complete(&one.help);
                screen.note(&format!("{icon} {}: {} (`{help}`)", one.title(), one.said(self.now, &screen.reach)));
            }
        }
        self.told.retain(|(title, _), _| self.stuck.iter().any(|one| one.title() == *title));
        // As an attempt: told again when there are twice as many.
        let more = self.stuck.len().saturating_sub(STUCK_MAX);
        if more >= self.told_more.saturating_mul(2).max(1) {
            self.told_more = more;
            let icon = RowState::Retrying.icon(screen.ascii).0;
            let help = screen.reach.complete(&format!("bosun describe {}", run_word(self.target.workflow_id.as_str())));
            screen.note(&format!("{icon} and {more} more are in the way (`{help}`)"));
        }
    }

    /// The last state, which stays on the screen.
    pub(super) async fn finish(&mut self, screen: &mut Screen, backend: &dyn Backend) {
        self.stuck.clear();
        self.asked.clear();
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

    /// Never more than the terminal has, as what has left it cannot be drawn over: the newest rows, and what is in the way.
    fn draw(&mut self, screen: &mut Screen) {
        let (width, height) = screen.size();
        let skip = self.board.rows.len().saturating_sub(ROWS_MAX);
        let mut lines: Vec<ShownLine> = Vec::new();
        let rows = self.board.rows[skip..].iter().chain(&self.asked);
        rows.for_each(|row| lines.extend(self.lines(screen, row, width)));
        self.stuck.iter().take(STUCK_MAX).for_each(|one| lines.extend(self.stuck_lines(screen, one, width)));
        if let Some(more) = self.stuck.len().checked_sub(STUCK_MAX).filter(|more| *more > 0) {
            lines.push(ShownLine::cut(&format!("    and {more} more")));
        }
        let mut drawn: usize = lines.iter().map(|line| line.height).sum();
        let mut first = 0;
        while drawn + 1 > height && first < lines.len() {
            drawn -= lines[first].height;
            first += 1;
        }
        if lines.is_empty() && self.drawn == 0 {
            return;
        }
        let mut text = erased(self.drawn);
        for line in &lines[first..] {
            text.push_str(&line.text);
            text.push('\n');
        }
        self.drawn = drawn;
        screen.draw(&text);
    }

    /// What is in the way, why, and the command that helps.
    fn stuck_lines(&self, screen: &Screen, one: &Obstacle, width: usize) -> Vec<ShownLine> {
        let row = Row {
            key: String::new(),
            title: one.title(),
            state: RowState::Stuck,
            detail: format!("`{}`", one.help),
            since: None,
        };
        let mut lines = self.lines(screen, &row, width);
        let said = one_line(&one.said(self.now, &screen.reach));
        let parts = table::wrapped(&said, width.saturating_sub(4).max(1)).into_iter();
        lines.splice(1..1, parts.map(|part| ShownLine::cut(&format!("    {part}"))));
        lines
    }

    /// A row is one line, cut to the width; a command that answers has a place of its own, so that it can be copied whole.
    fn lines(&self, screen: &Screen, row: &Row, width: usize) -> Vec<ShownLine> {
        let (icon, paint) = row.state.icon(screen.ascii);
        let running = row.since.map(|since| format!(" {}", short(self.now.since(since)))).unwrap_or_default();
        let beside = if row.state.has_command() { "" } else { &row.detail };
        let room = width.saturating_sub(icon.chars().count() + 1);
        let text: String = one_line(&format!("{}{running}  {beside}", row.title)).chars().take(room).collect();
        let icon = if screen.error_color { format!("{}{icon}\x1b[0m", paint.escape()) } else { icon.to_owned() };
        if row.state == RowState::Asking {
            // The reason is why somebody looks: it is broken, and never cut.
            let title = one_line(&row.title);
            let mut parts = table::wrapped(&title, room.max(1)).into_iter();
            let first = format!("{icon} {}", parts.next().unwrap_or_default());
            let mut lines = vec![ShownLine::cut(&first)];
            lines.extend(parts.map(|part| ShownLine::cut(&format!("{:gap$}{part}", "", gap = width - room))));
            lines.push(ShownLine::command(&one_line(&screen.reach.complete(&row.detail)), width));
            return lines;
        }
        let mut lines = vec![ShownLine::cut(&format!("{icon} {}", text.trim_end()))];
        if row.state.has_command() {
            lines.push(ShownLine::command(&one_line(&screen.reach.complete(&row.detail)), width));
        }
        lines
    }

    fn say(&mut self, screen: &mut Screen) {
        for row in self.board.rows.iter().chain(&self.asked) {
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

/// Takes away the last drawing, line by line, and stands where it began. A terminal that is cleared from its first line to its
/// end keeps what was there in its history (tmux, `scroll-on-clear`), and that would be all of it at every redraw.
fn erased(lines: usize) -> String {
    if lines == 0 {
        return String::new();
    }
    format!("\x1b[{lines}A{}\x1b[{lines}A", "\x1b[2K\x1b[1B".repeat(lines))
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

    /// Each hand-off is told as it happens, with those before it.
    #[test]
    fn who_hands_over_to_whom_is_in_the_tree() {
        let mut progress = ProgressBoard::new(Watch::ProgressQuery, Target::workflow("w".into()));
        let (mut screen, output) = Screen::captured();
        screen.ascii = true;
        let said = |from: &str, to: &str| json!({ "from": from, "content": "over to you", "handoff": to });
        let messages = [said("triage", "sales"), said("sales", "bank")];
        for so_far in [&messages[..0], &messages[..1], &messages[..]] {
            progress.board.replace(&json!({ "tasks": [], "beside_rows": { "messages": so_far } }));
            progress.show(&mut screen);
        }
        assert_eq!(output.stderr(), "[ok] handed over  triage -> sales\n[ok] handed over  triage -> sales -> bank\n");
    }

    /// However much there is, what is drawn fits the terminal, and a command is whole.
    #[tokio::test]
    async fn the_drawing_fits_the_terminal() {
        let mut progress = ProgressBoard::new(Watch::ProgressQuery, Target::workflow("w".into()));
        let (mut screen, output) = Screen::captured();
        (screen.live, screen.fixed_size) = (true, Some((40, 10)));
        let title = "a title that is far wider than such a terminal can be";
        let task = |id: u32| json!({ "task_id": id, "title": title, "status": "running" });
        let command = "bosun approval approve 01a20b31-ebfb-73d4-815d-65bc666c055f/approval-1";
        let asks = json!({ "id": "a", "whom": "ann", "what": "it", "answer": command });
        progress.board.replace(&json!({ "tasks": (0..25).map(task).collect::<Vec<_>>(), "waiting": [asks] }));
        progress.show(&mut screen);
        let drawn = output.stderr().replace("\x1b[?7l", "").replace("\x1b[?7h", "");
        let height: usize = drawn.lines().map(|line| line.chars().count().div_ceil(40)).sum();
        assert!(height < 10 && height > 5, "{drawn}");
        assert!(drawn.contains(command) && drawn.lines().filter(|line| line.contains("title")).count() > 3, "{drawn}");
        progress.show(&mut screen);
        assert!(output.stderr().contains(&format!("\x1b[{height}A")), "{drawn}");
    }

    /// Nothing is cleared but line by line, and a line of wide characters is counted as the terminal breaks it.
    #[test]
    fn a_drawing_is_taken_away_line_by_line() {
        let mut progress = ProgressBoard::new(Watch::ProgressQuery, Target::workflow("w".into()));
        let (mut screen, output) = Screen::captured();
        (screen.live, screen.fixed_size) = (true, Some((40, 10)));
        let command = format!("bosun approval approve {}", "請把這份很長的報告翻譯成中文".repeat(2));
        let asks = json!({ "id": "a", "whom": "ann", "what": "it", "answer": command });
        progress.board.replace(&json!({ "tasks": [], "waiting": [asks] }));
        progress.show(&mut screen);
        progress.show(&mut screen);
        let drawn = output.stderr();
        // One line asks; 28 characters of two columns behind 28 of one take three.
        let taken_away = format!("\x1b[4A{}\x1b[4A", "\x1b[2K\x1b[1B".repeat(4));
        assert_eq!(drawn.matches(&taken_away).count(), 1, "{drawn:?}");
        assert!(!drawn.contains("\x1b[J") && !drawn.contains("\x1b[2J"), "{drawn:?}");
    }

    /// What is asked is the reason to look: it is broken into lines, never cut.
    #[test]
    fn a_reason_is_shown_whole_on_a_narrow_terminal() {
        let mut progress = ProgressBoard::new(Watch::ProgressQuery, Target::workflow("w".into()));
        let (mut screen, output) = Screen::captured();
        (screen.live, screen.fixed_size) = (true, Some((40, 24)));
        let why = "its budget is spent: 1 of 1 calls, and what comes next in this very long plan needs one more call";
        let asks = json!({ "id": "a", "whom": "a person", "what": why, "answer": "bosun budget top-up w --calls 1" });
        progress.board.replace(&json!({ "tasks": [], "waiting": [asks] }));
        progress.show(&mut screen);
        let drawn = output.stderr().replace("\x1b[?7l", "").replace("\x1b[?7h", "");
        let words: Vec<&str> = drawn.split_whitespace().collect();
        assert!(words.join(" ").contains(why), "{drawn}");
        assert!(drawn.lines().all(|line| line.chars().count() <= 40), "{drawn}");
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

    /// A task that a person has not let begin is not told as begun.
    #[test]
    fn what_waits_for_an_approval_has_not_begun() {
        let mut progress = ProgressBoard::new(Watch::ProgressQuery, Target::workflow("w".into()));
        let mut told = |status: &str| {
            let task = json!({ "task_id": "a", "title": "look", "status": status });
            progress.board.replace(&json!({ "tasks": [task] }));
            let (mut screen, output) = Screen::captured();
            screen.ascii = true;
            progress.show(&mut screen);
            output.stderr()
        };
        assert_eq!((told("awaiting_approval").as_str(), told("running").as_str()), ("", "[>] a look\n"));
    }
}
