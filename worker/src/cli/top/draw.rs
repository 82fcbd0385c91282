//! Draws a snapshot.
//!
//! Invariant: drawing changes nothing, and text of a workflow cannot steer the terminal.

use std::time::Duration;

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::Line;
use ratatui::widgets::{Paragraph, Row, Table, TableState};

use super::view::TopView;
use super::{KnownSpend, ScreenData, TopRow, Urgency};
use crate::cli::error::one_line;
use crate::cli::time_format::short;

const HINTS: &str = "j/k move  Enter describe  a agents  q quit";
/// Older than this, what is shown may be wrong by now.
const STALE: Duration = Duration::from_secs(5);
const AGENTS_SHOWN: u16 = 8;
/// Lines of why the marked run waits, and of what helps: each at most so many.
const TEXT_LINES_MAX: usize = 4;

/// The columns in their order, and the narrowest terminal that has each: whom and why are always shown.
const COLUMNS: [(&str, Constraint, u16); 8] = [
    ("", Constraint::Length(1), 0),
    ("WORKFLOW ID", Constraint::Fill(2), 0),
    ("TYPE", Constraint::Max(16), 110),
    ("STATUS", Constraint::Length(10), 0),
    ("AGE", Constraint::Length(8), 50),
    ("EVENTS", Constraint::Length(7), 90),
    ("SPENT", Constraint::Length(9), 70),
    ("WHY", Constraint::Fill(3), 0),
];

pub(super) fn draw(
    frame: &mut Frame<'_>,
    snapshot: &ScreenData,
    view: &TopView,
    ascii: bool,
    problem: Option<&str>,
    age: Duration,
) {
    let agents =
        if view.agents { AGENTS_SHOWN.min(u16::try_from(snapshot.agents.len()).unwrap_or(u16::MAX)) + 1 } else { 0 };
    let chosen = snapshot.rows.get(view.at).map(|row| told(row, frame.area().width)).unwrap_or_default();
    let [top, runs, below, help, foot] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Min(3),
        Constraint::Length(agents),
        Constraint::Length(u16::try_from(chosen.len()).unwrap_or(1)),
        Constraint::Length(1),
    ])
    .areas(frame.area());
    let bold = Style::new().add_modifier(Modifier::BOLD);
    frame.render_widget(Paragraph::new(Line::from(head(snapshot))).style(bold), top);
    draw_runs(frame, runs, snapshot, view, ascii);
    if view.agents {
        draw_agents(frame, below, snapshot);
    }
    frame.render_widget(Paragraph::new(chosen.into_iter().map(Line::from).collect::<Vec<_>>()), help);
    let (text, style) = match problem {
        Some(why) => (format!("{why} - as of {} ago", short(age)), Style::new().fg(Color::Red)),
        None if age > STALE => (format!("as of {} ago  {HINTS}", short(age)), Style::new().add_modifier(Modifier::DIM)),
        None => (HINTS.to_owned(), Style::new().add_modifier(Modifier::DIM)),
    };
    frame.render_widget(Paragraph::new(Line::from(text)).style(style), foot);
}

/// Why the marked run waits and what helps, whole words in as many lines as they take.
fn told(row: &TopRow, width: u16) -> Vec<String> {
    let lines = |name: &str, text: &str| match text.is_empty() {
        true => Vec::new(),
        false => wrapped(&format!("{name}: {}", one_line(text)), usize::from(width).max(1)),
    };
    [lines("why", &row.why), lines("helps", &row.help)].concat()
}

/// A text in lines of at most so many characters; what is too much is left out with a mark.
pub(super) fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let mut rest: Vec<char> = word.chars().collect();
        let used = lines.last().map_or(0, |line| line.chars().count());
        if used > 0 && used + 1 + rest.len() > width {
            lines.push(String::new());
        }
        while !rest.is_empty() {
            let Some(line) = lines.last_mut() else { break };
            if !line.is_empty() && line.chars().count() < width {
                line.push(' ');
            }
            let free = width.saturating_sub(line.chars().count()).max(1);
            let next = rest.split_off(free.min(rest.len()));
            line.extend(rest);
            rest = next;
            if !rest.is_empty() {
                lines.push(String::new());
            }
        }
    }
    if lines.len() > TEXT_LINES_MAX {
        lines.truncate(TEXT_LINES_MAX);
        if let Some(last) = lines.last_mut() {
            *last = last.chars().take(width.saturating_sub(3)).collect::<String>() + "...";
        }
    }
    lines
}

/// Counts, slots and queues in a line.
pub(super) fn head(snapshot: &ScreenData) -> String {
    let asks = snapshot.rows.iter().filter(|row| row.urgency == Urgency::Asks).count();
    let mut text = format!("{} open, {asks} ask a person, {} held", snapshot.open, snapshot.held);
    match &snapshot.worker {
        None => text.push_str("  no worker: nothing goes on"),
        Some(worker) => {
            text.push_str(&format!("  slots {}/{}", worker.busy, worker.slots));
            if worker.external_slots < worker.slots {
                text.push_str(&format!(" ({}/{} external)", worker.external_busy, worker.external_slots));
            }
            for (queue, waiting) in &worker.waiting {
                text.push_str(&format!("  {queue}: {waiting} wait"));
            }
            if worker.lost_threads > 0 {
                text.push_str(&format!("  {} threads lost", worker.lost_threads));
            }
        }
    }
    let (tokens, micros) = snapshot.agents.iter().fold((0_u64, 0_u64), |(tokens, micros), agent| {
        (tokens.saturating_add(agent.tokens), micros.saturating_add(agent.cost_micros))
    });
    if tokens > 0 {
        text.push_str(&format!("  {tokens} tokens, {}", money(micros)));
    }
    one_line(&text)
}

/// Micro-dollars as dollars.
pub(super) fn money(micros: u64) -> String {
    format!("${}.{:04}", micros / 1_000_000, micros % 1_000_000 / 100)
}

fn draw_runs(frame: &mut Frame<'_>, area: Rect, snapshot: &ScreenData, view: &TopView, ascii: bool) {
    let dim = Style::new().add_modifier(Modifier::DIM);
    let has = |at: usize| area.width >= COLUMNS[at].2;
    let head = Row::new(COLUMNS.iter().enumerate().filter(|(at, _)| has(*at)).map(|(_, (name, ..))| *name)).style(dim);
    let rows = snapshot.rows.iter().map(|row| {
        let (mark, color) = match row.urgency {
            Urgency::Stuck => ("!", Some(Color::Red)),
            Urgency::Asks => ("?", Some(Color::Yellow)),
            Urgency::GoesOn => (if ascii { "." } else { "·" }, None),
        };
        let cells = [
            mark.to_owned(),
            one_line(&row.workflow_id),
            one_line(&row.workflow_type),
            row.status.clone(),
            row.age.clone(),
            row.events.to_string(),
            row.spent.map_or_else(String::new, KnownSpend::text),
            row.why.clone(),
        ];
        let cells = cells.into_iter().enumerate().filter(|(at, _)| has(*at)).map(|(_, cell)| cell);
        Row::new(cells).style(color.map_or_else(Style::new, |color| Style::new().fg(color)))
    });
    let widths = COLUMNS.iter().enumerate().filter(|(at, _)| has(*at)).map(|(_, (_, width, _))| *width);
    let table =
        Table::new(rows, widths).header(head).row_highlight_style(Style::new().add_modifier(Modifier::REVERSED));
    let mut state = TableState::new().with_selected((!snapshot.rows.is_empty()).then_some(view.at));
    frame.render_stateful_widget(table, area, &mut state);
}

fn draw_agents(frame: &mut Frame<'_>, area: Rect, snapshot: &ScreenData) {
    let dim = Style::new().add_modifier(Modifier::DIM);
    let head = Row::new(["AGENT", "BUSY", "DONE", "FAILED", "TOKENS", "COST"]).style(dim);
    let rows = snapshot.agents.iter().map(|agent| {
        let numbers = [agent.busy, agent.done, agent.failed, agent.tokens].map(|number| number.to_string());
        Row::new(std::iter::once(one_line(&agent.name)).chain(numbers).chain([money(agent.cost_micros)]))
    });
    let widths = [
        Constraint::Fill(2),
        Constraint::Length(6),
        Constraint::Length(8),
        Constraint::Length(8),
        Constraint::Length(12),
        Constraint::Length(12),
    ];
    frame.render_widget(Table::new(rows, widths).header(head), area);
}
