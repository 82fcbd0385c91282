//! What is looked at, and how a key changes that.
//!
//! Invariant: [`update`] is pure: the same view and key give the same view. The place is always an event that exists.

use bosun_engine::{EventId, Origin};
use bosun_replay::{Breakpoint, Direction, JsonPath, Timeline};

use crate::cli::event_text::details;

/// A key, without a terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum KeyPress {
    Char(char),
    Enter,
    Esc,
    Backspace,
    /// To the other panel that may be longer than it is high.
    Tab,
    Quit,
}

/// The panels whose text may be longer than they are high.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Panel {
    Code,
    State,
}

/// What is looked at.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct View {
    pub(super) at: EventId,
    pub(super) breakpoints: Vec<Breakpoint>,
    pub(super) watches: Vec<JsonPath>,
    pub(super) mode: Mode,
    /// The panel that is scrolled, and by how many rows; or what lies over it.
    pub(super) panel: Panel,
    pub(super) scroll: usize,
    /// Half of its height, and the most it can be scrolled, as it was drawn last.
    pub(super) half: usize,
    pub(super) scroll_max: usize,
    /// What the last key had to say.
    pub(super) message: String,
    pub(super) search: String,
    /// The command that was chosen to go on with, outside.
    pub(super) fork: bool,
    /// The history is to be written to a file.
    pub(super) export: bool,
    pub(super) done: bool,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Mode {
    Walk,
    Ask(PromptKind, String),
    Payload,
    Diff(EventId),
    Fork,
    Help,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PromptKind {
    GoTo,
    Search,
    Breakpoint,
    Watch,
    Diff,
}

impl PromptKind {
    pub(super) fn text(self) -> &'static str {
        match self {
            PromptKind::GoTo => "go to event",
            PromptKind::Search => "search",
            PromptKind::Breakpoint => "stop at (TimerFired, failure, name:NAME, state.PATH; again removes)",
            PromptKind::Watch => "watch state path",
            PromptKind::Diff => "difference of the state with event",
        }
    }
}

impl View {
    pub(super) fn new(timeline: &Timeline<'_>, at: EventId) -> Self {
        View {
            at: at.clamp(EventId(1), timeline.last()),
            breakpoints: Vec::new(),
            watches: Vec::new(),
            mode: Mode::Walk,
            panel: Panel::State,
            scroll: 0,
            half: 1,
            scroll_max: 0,
            message: String::new(),
            search: String::new(),
            fork: false,
            export: false,
            done: false,
        }
    }

    fn go(&mut self, to: Option<EventId>, otherwise: &str) {
        match to {
            Some(to) => self.at = to,
            None => self.message = otherwise.to_owned(),
        }
    }
}

/// The view after a key.
pub(super) fn update(timeline: &Timeline<'_>, mut view: View, key: KeyPress) -> View {
    view.message.clear();
    if key == KeyPress::Quit {
        view.done = true;
        return view;
    }
    match key {
        KeyPress::Char('}') if !matches!(view.mode, Mode::Ask(..)) => {
            view.scroll = (view.scroll + view.half).min(view.scroll_max);
            return view;
        }
        KeyPress::Char('{') if !matches!(view.mode, Mode::Ask(..)) => {
            view.scroll = view.scroll.saturating_sub(view.half);
            return view;
        }
        KeyPress::Tab if view.mode == Mode::Walk => {
            view.panel = if view.panel == Panel::State { Panel::Code } else { Panel::State };
            view.scroll = 0;
            return view;
        }
        _ => {}
    }
    let before = view.mode.clone();
    match std::mem::replace(&mut view.mode, Mode::Walk) {
        Mode::Walk => walk(timeline, &mut view, key),
        Mode::Ask(question, text) => ask(timeline, &mut view, question, text, key),
        Mode::Fork if key == KeyPress::Enter => (view.fork, view.done) = (true, true),
        // Any key closes what lies over the rest; a step is also taken.
        Mode::Payload | Mode::Diff(_) | Mode::Fork | Mode::Help => {
            if matches!(key, KeyPress::Char(c) if "jkJKcC".contains(c)) {
                walk(timeline, &mut view, key);
            }
        }
    }
    // What lies over the rest begins at its top, and so does what it lay over.
    if std::mem::discriminant(&before) != std::mem::discriminant(&view.mode) {
        view.scroll = 0;
    }
    view
}

fn walk(timeline: &Timeline<'_>, view: &mut View, key: KeyPress) {
    let exists = |at: EventId| timeline.event(at).map(|event| event.id);
    match key {
        KeyPress::Char('j') => view.go(exists(view.at.next()), "this is the last event"),
        KeyPress::Char('k') => view.go(exists(EventId(view.at.0.saturating_sub(1))), "this is the first event"),
        KeyPress::Char('J') => view.go(task(timeline, view.at, Direction::Forwards), "no later workflow task"),
        KeyPress::Char('K') => view.go(task(timeline, view.at, Direction::Backwards), "no earlier workflow task"),
        KeyPress::Char('c') => to_breakpoint(timeline, view, Direction::Forwards),
        KeyPress::Char('C') => to_breakpoint(timeline, view, Direction::Backwards),
        KeyPress::Char('n') => search(timeline, view),
        KeyPress::Char('r') => view.at = EventId(1),
        KeyPress::Char('x') => view.export = true,
        KeyPress::Char('f') => view.mode = Mode::Fork,
        KeyPress::Char('q') => view.done = true,
        KeyPress::Char('?') => view.mode = Mode::Help,
        KeyPress::Char('b') => view.mode = Mode::Ask(PromptKind::Breakpoint, String::new()),
        KeyPress::Char('g') => view.mode = Mode::Ask(PromptKind::GoTo, String::new()),
        KeyPress::Char('/') => view.mode = Mode::Ask(PromptKind::Search, String::new()),
        KeyPress::Char('d') => view.mode = Mode::Ask(PromptKind::Diff, String::new()),
        KeyPress::Char('w') => view.mode = Mode::Ask(PromptKind::Watch, String::new()),
        KeyPress::Enter => view.mode = Mode::Payload,
        KeyPress::Char(_) | KeyPress::Esc | KeyPress::Backspace | KeyPress::Tab | KeyPress::Quit => {}
    }
}

/// The next event that activates the code.
fn task(timeline: &Timeline<'_>, from: EventId, direction: Direction) -> Option<EventId> {
    let activates = |id: &EventId| timeline.event(*id).is_some_and(|event| event.kind.origin() == Origin::Activating);
    match direction {
        Direction::Forwards => (from.0 + 1..=timeline.last().0).map(EventId).find(activates),
        Direction::Backwards => (1..from.0).rev().map(EventId).find(activates),
    }
}

fn to_breakpoint(timeline: &Timeline<'_>, view: &mut View, direction: Direction) {
    if view.breakpoints.is_empty() {
        let end = if direction == Direction::Forwards { timeline.last() } else { EventId(1) };
        view.at = end;
        view.message = "no breakpoints: b sets one".into();
        return;
    }
    let found = timeline.find(view.at, direction, &view.breakpoints);
    view.go(found, "no breakpoint in this direction");
}

/// The next event that shows the text, from the start again behind the last.
fn search(timeline: &Timeline<'_>, view: &mut View) {
    let wanted = view.search.to_lowercase();
    if wanted.is_empty() {
        return;
    }
    let shows = |id: &EventId| {
        timeline.event(*id).is_some_and(|event| {
            format!("{} {}", event.kind.name(), details(&event.kind)).to_lowercase().contains(&wanted)
                || timeline.name_of(event).is_some_and(|name| name.to_lowercase().contains(&wanted))
        })
    };
    let found = (view.at.0 + 1..=timeline.last().0).chain(1..=view.at.0).map(EventId).find(shows);
    view.go(found, "nothing shows this text");
}

fn ask(timeline: &Timeline<'_>, view: &mut View, question: PromptKind, mut text: String, key: KeyPress) {
    match key {
        KeyPress::Esc | KeyPress::Tab | KeyPress::Quit => {}
        KeyPress::Enter => answer(timeline, view, question, text.trim()),
        KeyPress::Backspace => {
            text.pop();
            view.mode = Mode::Ask(question, text);
        }
        KeyPress::Char(c) => {
            text.push(c);
            view.mode = Mode::Ask(question, text);
        }
    }
}

fn answer(timeline: &Timeline<'_>, view: &mut View, question: PromptKind, text: &str) {
    let event = || text.parse().ok().map(EventId).filter(|id| timeline.event(*id).is_some());
    match question {
        PromptKind::GoTo => view.go(event(), &format!("there is no event {text}; there are {}", timeline.last())),
        PromptKind::Search => {
            view.search = text.to_owned();
            search(timeline, view);
        }
        PromptKind::Breakpoint => match Breakpoint::parse(text) {
            Ok(breakpoint) => toggle(&mut view.breakpoints, breakpoint),
            Err(why) => view.message = why.to_string(),
        },
        PromptKind::Watch => match JsonPath::parse(text) {
            Some(path) => toggle(&mut view.watches, path),
            None => view.message = format!("{text:?} is no path; write for example order.items[0]"),
        },
        PromptKind::Diff => match event() {
            Some(other) => view.mode = Mode::Diff(other),
            None => view.message = format!("there is no event {text}"),
        },
    }
}

fn toggle<T: PartialEq>(list: &mut Vec<T>, item: T) {
    match list.iter().position(|held| *held == item) {
        Some(at) => drop(list.remove(at)),
        None => list.push(item),
    }
}
