//! The screen: events on the left, code in the middle, state on the right, a scrubber and hints below.
//!
//! Invariant: drawing reads the timeline and the view and changes neither; text of a workflow cannot steer the terminal.

use bosun_engine::workflow::WorkflowRegistry;
use bosun_engine::{Event, Origin};
use bosun_replay::{Moment, Sources, Timeline};
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::symbols::border;
use ratatui::text::Line;
use ratatui::widgets::{Block, Clear, Paragraph};

use super::fork_here;
use super::state::{Mode, Panel, View};
use crate::cli::error::printable;
use crate::cli::event_text::attributes;
use crate::cli::replay::paid::PaidAnswers;
use crate::cli::replay::show::{pending, unfit};
use crate::cli::table::{cut_to, width_of, wrapped};
use crate::cli::time_format::short;

/// What there is to draw, apart from the view.
pub(super) struct DrawContext<'a> {
    pub(super) timeline: &'a Timeline<'a>,
    pub(super) code: &'a WorkflowRegistry,
    /// What a command line calls the history.
    pub(super) source: &'a str,
    pub(super) ascii: bool,
    pub(super) sources: Sources<'a>,
    /// What models were paid, answer by answer.
    pub(super) paid: PaidAnswers,
}

const ASCII: border::Set<'static> = border::Set {
    top_left: "+",
    top_right: "+",
    bottom_left: "+",
    bottom_right: "+",
    vertical_left: "|",
    vertical_right: "|",
    horizontal_top: "-",
    horizontal_bottom: "-",
};
/// How far what can be scrolled can be scrolled, and by how much at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct ScrollRoom {
    pub(super) half: usize,
    pub(super) most: usize,
}

/// Columns of the events, where half of the terminal is no less.
const EVENTS_MIN: u16 = 36;
/// Lines of code around the place.
const AROUND: usize = 3;
const HINTS: &str =
    "? help  q quit  j/k event  J/K task  c/C continue  b break  g go  / search  Enter payload  d diff  f fork";
const HELP: &str = "\
j k        one event forwards, backwards (also the arrows)
J K        one workflow task (also PageDown, PageUp)
c C        to the next, the last breakpoint
b          set or remove a breakpoint: TimerFired, failure, name:NAME, state.PATH
g N        go to event N
/ n        search a text in events; search again
Enter      the payload of the event
d N        difference of the state with event N
f          fork here: what it would do, and the command for it
{ }        half a panel up, down (also Ctrl-U, Ctrl-D): of the state, or of what lies over it
Tab        scroll the other panel: the code, the state
w PATH     watch a path of the state, or stop watching
x          write the history to a file in the working directory
r          back to the first event
q          quit";

pub(super) fn draw(frame: &mut Frame<'_>, scene: &DrawContext<'_>, view: &View) -> ScrollRoom {
    let Some(moment) = scene.timeline.at(view.at) else { return ScrollRoom::default() };
    let [head, middle, scrubber, foot] =
        Layout::vertical([Constraint::Length(1), Constraint::Min(3), Constraint::Length(1), Constraint::Length(1)])
            .areas(frame.area());
    let thirds = [Constraint::Percentage(34), Constraint::Percentage(33), Constraint::Percentage(33)];
    // Events have room for what happened to whom on a terminal of 80 columns, too.
    let narrow = [Constraint::Length(EVENTS_MIN.min(middle.width / 2)), Constraint::Fill(1), Constraint::Fill(1)];
    let is_narrow = middle.width / 3 < EVENTS_MIN;
    let [events, code, state] = Layout::horizontal(if is_narrow { narrow } else { thirds }).areas(middle);
    frame.render_widget(text(title(scene, &moment)).style(Style::new().add_modifier(Modifier::BOLD)), head);
    let inner = (usize::from(events.width.saturating_sub(2)), usize::from(events.height.saturating_sub(2)));
    let events_shown = event_lines(scene, view, inner);
    frame.render_widget(Paragraph::new(events_shown).block(block(scene, "events")), events);
    let is_over = !matches!(view.mode, Mode::Walk | Mode::Ask(..));
    let scroll = |panel: Panel| if view.panel == panel && !is_over { view.scroll } else { 0 };
    let of_code = panel(frame, scene, code, "code", code_lines(scene, &moment), scroll(Panel::Code));
    let of_state = panel(frame, scene, state, "state", state_lines(scene, view, &moment), scroll(Panel::State));
    let below = if view.panel == Panel::Code { of_code } else { of_state };
    frame.render_widget(text(scrub(scene, view, usize::from(scrubber.width))), scrubber);
    frame.render_widget(text(foot_text(view)), foot);
    let (title, told) = match &view.mode {
        Mode::Help => ("keys".to_owned(), HELP.to_owned()),
        Mode::Payload => {
            let payload = format!("{}\n{:#}", moment.event.kind.name(), attributes(&moment.event.kind));
            (format!("event {}", view.at), payload)
        }
        Mode::Diff(other) => {
            let told = match scene.timeline.diff(*other, view.at) {
                None => "the state is not known at both events".to_owned(),
                Some(changes) if changes.is_empty() => "the state is the same".to_owned(),
                Some(changes) => changes.iter().map(|change| format!("{change}\n")).collect(),
            };
            (format!("state {other} -> {}", view.at), told)
        }
        Mode::Fork => {
            let told = fork_here::told(scene.timeline, scene.code, scene.source, view.at);
            (format!("fork at event {}", view.at), told)
        }
        Mode::Walk | Mode::Ask(..) => return below,
    };
    let area = middle.inner(ratatui::layout::Margin::new(4, 1));
    frame.render_widget(Clear, area);
    let lines = told.lines().map(|told| line(told, Style::new())).collect();
    panel(frame, scene, area, &title, lines, view.scroll)
}

fn text(text: String) -> Paragraph<'static> {
    Paragraph::new(printable(&text))
}

fn title(scene: &DrawContext<'_>, moment: &Moment) -> String {
    let history = scene.timeline.history();
    let fit = unfit(scene.timeline).map(|why| format!(" - {why}")).unwrap_or_default();
    let (id, workflow_type) = (&history.started().workflow_id, &history.started().workflow_type);
    format!("{id} ({workflow_type}) {}{fit}", moment.status)
}

fn block(scene: &DrawContext<'_>, title: &str) -> Block<'static> {
    let block = Block::bordered().title(title.to_owned());
    if scene.ascii { block.border_set(ASCII) } else { block }
}

/// Text in a frame, from a row on; its title says which rows of how many are shown where that is not all.
fn panel(
    frame: &mut Frame<'_>,
    scene: &DrawContext<'_>,
    area: Rect,
    title: &str,
    lines: Vec<Line<'static>>,
    scroll: usize,
) -> ScrollRoom {
    let (width, height) = (usize::from(area.width.saturating_sub(2)), usize::from(area.height.saturating_sub(2)));
    let broken = |line: Line<'static>| -> Vec<Line<'static>> {
        let text: String = line.spans.iter().map(|span| span.content.as_ref()).collect();
        wrapped(&text, width.max(1)).into_iter().map(|part| Line::styled(part.to_owned(), line.style)).collect()
    };
    let rows: Vec<Line<'static>> = lines.into_iter().flat_map(broken).collect();
    let room = ScrollRoom { half: (height / 2).max(1), most: rows.len().saturating_sub(height) };
    let from = scroll.min(room.most);
    let title = match room.most {
        0 => title.to_owned(),
        _ => format!("{title} {}-{}/{}", from + 1, from + height, rows.len()),
    };
    let rows: Vec<Line<'static>> = rows.into_iter().skip(from).take(height).collect();
    frame.render_widget(Paragraph::new(rows).block(block(scene, &title)), area);
    room
}

fn line(text: &str, style: Style) -> Line<'static> {
    Line::styled(printable(text).replace('\t', " "), style)
}

fn event_lines(scene: &DrawContext<'_>, view: &View, (width, rows): (usize, usize)) -> Vec<Line<'static>> {
    let events = scene.timeline.events();
    let at = usize::try_from(view.at.0.saturating_sub(1)).unwrap_or(0);
    let from = at.saturating_sub(rows / 2).min(events.len().saturating_sub(rows));
    events
        .iter()
        .enumerate()
        .skip(from)
        .take(rows)
        .map(|(index, event)| event_line(scene, view, index == at, event, width))
        .collect()
}

/// What begins the names of many events, and says less than how they end.
const BEGINNINGS: [&str; 5] = [
    "ActivityTask",
    "ActivityProperties",
    "StartChildWorkflowExecution",
    "ChildWorkflowExecution",
    "WorkflowExecution",
];

/// To whom something happened, and what: that is shown whole, and in short where there is no room.
fn happened(name: &str, kind: &str, room: usize) -> String {
    let short = BEGINNINGS.iter().find_map(|begins| kind.strip_prefix(begins)).unwrap_or(kind);
    match (name.is_empty(), width_of(name) + 1) {
        (true, _) if kind.len() <= room => kind.to_owned(),
        (true, _) => short.to_owned(),
        (false, taken) if taken + kind.len() <= room => format!("{name} {kind}"),
        (false, _) => format!("{} {short}", cut_to(name, room.saturating_sub(short.len() + 1), '~')),
    }
}

fn event_line(scene: &DrawContext<'_>, view: &View, here: bool, event: &Event, width: usize) -> Line<'static> {
    let timeline = scene.timeline;
    let before = timeline.event(bosun_engine::EventId(event.id.0 - 1)).map_or(event.at, |before| before.at);
    let stops = view.breakpoints.iter().any(|breakpoint| breakpoint.stops(timeline, event));
    let (cursor, stop, task) = if scene.ascii { (">", "*", "=") } else { ("▶", "●", "◆") };
    let activates = event.kind.origin() == Origin::Activating;
    let digits = timeline.last().0.to_string().len().max(4);
    let begins = format!(
        "{}{}{}{:>digits$} {:>6} ",
        if here { cursor } else { " " },
        if stops { stop } else { " " },
        if activates { task } else { " " },
        event.id.0,
        if event.at == before { String::new() } else { format!("+{}", short(event.at.since(before))) },
    );
    let room = width.saturating_sub(begins.chars().count());
    let name = printable(timeline.name_of(event).unwrap_or_default());
    let told = format!("{begins}{}", happened(&name, event.kind.name(), room));
    let style = match (here, stops) {
        (true, _) => Style::new().add_modifier(Modifier::REVERSED),
        (false, true) => Style::new().fg(Color::Red),
        (false, false) => Style::new(),
    };
    line(told.trim_end(), style)
}

fn code_lines(scene: &DrawContext<'_>, moment: &Moment) -> Vec<Line<'static>> {
    let dim = Style::new().add_modifier(Modifier::DIM);
    let mut lines = Vec::new();
    if let Some(place) = &moment.location {
        lines.push(line(&format!("asked for at {place}"), Style::new()));
    }
    let waiting = moment.awaiting.iter().flatten().find_map(|awaited| awaited.location.as_ref());
    if let Some(place) = moment.location.as_ref().or(waiting) {
        lines.extend(snippet(scene, place).into_iter().map(|told| line(&told, dim)));
    }
    for (name, told) in pending(moment) {
        lines.push(line(&format!("{name} {told}"), Style::new()));
    }
    if moment.awaiting.as_ref().is_some_and(Vec::is_empty) {
        lines.push(line("the code waits for nothing", dim));
    }
    if let Some((event, failure)) = &moment.last_failure {
        lines.push(line(&format!("last failure (event {event}): {failure}"), Style::new().fg(Color::Red)));
    }
    lines
}

/// The lines of code around a place.
fn snippet(scene: &DrawContext<'_>, place: &str) -> Vec<String> {
    let mut parts = place.rsplitn(3, ':');
    let (_, row, file) = (parts.next(), parts.next(), parts.next());
    let (Some(row), Some(file)) = (row.and_then(|row| row.parse::<usize>().ok()), file) else { return Vec::new() };
    let Some(source) = (scene.sources)(file) else { return Vec::new() };
    let from = row.saturating_sub(AROUND);
    let rows = source.lines().enumerate().skip(from.saturating_sub(1)).take(2 * AROUND);
    rows.map(|(index, text)| format!("{}{:>4} {text}", if index + 1 == row { ">" } else { " " }, index + 1)).collect()
}

fn state_lines(scene: &DrawContext<'_>, view: &View, moment: &Moment) -> Vec<Line<'static>> {
    let mut lines = Vec::new();
    if let Some(paid) = scene.paid.at(scene.timeline, moment) {
        lines.push(line(&format!("spent so far: {paid}"), Style::new().fg(Color::Cyan)));
    }
    for path in &view.watches {
        let value = moment.state.as_ref().and_then(|state| path.of(state));
        let told = value.map_or_else(|| "-".to_owned(), ToString::to_string);
        lines.push(line(&format!("watch {path} = {told}"), Style::new().fg(Color::Cyan)));
    }
    for change in &moment.changes {
        lines.push(line(&change.to_string(), Style::new().fg(Color::Yellow)));
    }
    match &moment.state {
        Some(state) => lines.extend(format!("{state:#}").lines().map(|told| line(told, Style::new()))),
        None => {
            let why = if unfit(scene.timeline).is_some() { "not known" } else { "this workflow shows no state" };
            lines.push(line(why, Style::new().add_modifier(Modifier::DIM)));
        }
    }
    lines
}

fn scrub(scene: &DrawContext<'_>, view: &View, width: usize) -> String {
    let count = format!(" {}/{}", view.at, scene.timeline.last());
    let room = width.saturating_sub(count.len() + 2).max(1);
    let last = usize::try_from(scene.timeline.last().0).unwrap_or(1).max(1);
    let at = usize::try_from(view.at.0).unwrap_or(1);
    let place = if last > 1 { (at - 1) * (room - 1) / (last - 1) } else { 0 };
    let (done, here, rest) = if scene.ascii { ("=", "O", "-") } else { ("━", "●", "─") };
    format!("[{}{here}{}]{count}", done.repeat(place), rest.repeat(room - 1 - place))
}

fn foot_text(view: &View) -> String {
    match &view.mode {
        Mode::Ask(question, typed) => format!("{}: {typed}_", question.text()),
        _ if !view.message.is_empty() => view.message.clone(),
        _ => HINTS.to_owned(),
    }
}
