//! `replay debug`: time travel in the terminal.
//!
//! Invariant: what is on the screen is a function of the timeline and the [`state::View`]; keys change the view through
//! one pure function. Only this file knows a terminal, and it always gives it back as it was. Looking changes nothing.

mod draw;
mod fork_here;
mod state;
#[cfg(test)]
mod tests;

use std::io::IsTerminal;
use std::path::PathBuf;

use bosun_engine::EventId;
use bosun_replay::{Breakpoint, History, Timeline};
use clap::Args;
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{Event as TerminalEvent, KeyCode, KeyEventKind, KeyModifiers, read};

use self::draw::{DrawContext, ScrollRoom, draw};
use self::state::{KeyPress, View, update};
use super::Bench;
use super::paid::PaidAnswers;
use super::record::write;
use super::source::{HistoryOf, is_file};
use super::verdict::source_text;
use crate::cli::args::Global;
use crate::cli::error::CliError;
use crate::cli::exit::Exit;
use crate::cli::explain::Code;
use crate::cli::list::shell_word;

/// Keys: j/k an event, J/K a workflow task, c/C to the next or last breakpoint, b breakpoint, g go to, / search, Enter
/// payload, d difference, { } scroll, Tab the other panel, f fork here, w watch, x export, r restart, ? help, q quit.
#[derive(Debug, Args)]
pub struct DebugArgs {
    #[command(flatten)]
    of: HistoryOf,
    /// Begin at this event.
    #[arg(long, value_name = "N", default_value_t = 1)]
    at: u64,
    /// Stop here: an event type, `failure`, `name:NAME`, or `state.PATH`. May be given several times.
    #[arg(short, long = "break", value_name = "BREAK")]
    breakpoints: Vec<String>,
}

pub(super) async fn debug(bench: &mut Bench<'_>, args: DebugArgs) -> Result<Exit, CliError> {
    if !std::io::stdin().is_terminal() || !std::io::stdout().is_terminal() {
        return Err(CliError::usage("the debugger needs a terminal")
            .help("`bosun replay show ID|FILE --at N` shows one moment, with -o json for programs"));
    }
    let breakpoints: Result<Vec<Breakpoint>, _> = args.breakpoints.iter().map(|text| Breakpoint::parse(text)).collect();
    let breakpoints = breakpoints.map_err(|why| CliError::usage(why.to_string()))?;
    let (name, history) = bench.recorded(&args.of).await?.replayable(&bench.workflows)?;
    let source = source(&name, &history, bench.global);
    let workflows = bench.workflows.clone();
    let timeline = Timeline::new(&workflows, history);
    let mut view = View::new(&timeline, EventId(args.at));
    view.breakpoints = breakpoints;
    let scene = DrawContext {
        timeline: &timeline,
        code: &workflows,
        source: &source,
        ascii: bench.screen.ascii,
        sources: &source_text,
        paid: PaidAnswers::of(timeline.events()),
    };
    // The keyboard is waited for on this thread.
    let fork = tokio::task::block_in_place(|| {
        let mut terminal = ratatui::try_init().map_err(broken)?;
        let ended = walk(&mut terminal, &scene, view);
        ratatui::restore();
        ended
    })?;
    if let Some(command) = fork {
        bench.screen.line(command);
    }
    Ok(Exit::Ok)
}

/// A run by its id, which names it whatever becomes of its workflow id, and where it is recorded; a file by its path.
fn source(name: &str, history: &History, global: &Global) -> String {
    if is_file(name) {
        return shell_word(name);
    }
    // What the command line takes by itself need not be said.
    let place = global.data.to_str().filter(|data| global.address.is_none() && *data != ".bosun");
    let data = place.map(|data| format!(" --data {}", shell_word(data))).unwrap_or_default();
    format!("{}{data}", history.run_id())
}

fn broken(why: std::io::Error) -> CliError {
    CliError::new(Code::Failed, "the terminal cannot be used").cause(why)
}

/// Gives the command to fork with, if one was chosen.
fn walk(terminal: &mut DefaultTerminal, scene: &DrawContext<'_>, mut view: View) -> Result<Option<String>, CliError> {
    while !view.done {
        let mut room = ScrollRoom::default();
        terminal.draw(|frame| room = draw(frame, scene, &view)).map_err(broken)?;
        (view.half, view.scroll_max) = (room.half, room.most);
        view.scroll = view.scroll.min(room.most);
        if let Some(key) = key(&read().map_err(broken)?) {
            view = update(scene.timeline, view, key);
        }
        if std::mem::take(&mut view.export) {
            view.message = export(scene.timeline);
        }
    }
    Ok(view.fork.then(|| fork_here::command(scene.timeline, scene.source, view.at)))
}

fn export(timeline: &Timeline<'_>) -> String {
    let path = PathBuf::from(format!("{}.json", timeline.history().run_id()));
    match write(&path, &timeline.history().to_json(), false) {
        Ok(()) => format!("written to {}", path.display()),
        Err(why) => why.to_string(),
    }
}

fn key(event: &TerminalEvent) -> Option<KeyPress> {
    let TerminalEvent::Key(key) = event else { return None };
    if key.kind == KeyEventKind::Release {
        return None;
    }
    Some(match key.code {
        KeyCode::Char('d') if key.modifiers.contains(KeyModifiers::CONTROL) => KeyPress::Char('}'),
        KeyCode::Char('u') if key.modifiers.contains(KeyModifiers::CONTROL) => KeyPress::Char('{'),
        KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => KeyPress::Quit,
        KeyCode::Char(c) => KeyPress::Char(c),
        KeyCode::Enter => KeyPress::Enter,
        KeyCode::Esc => KeyPress::Esc,
        KeyCode::Tab => KeyPress::Tab,
        KeyCode::Backspace => KeyPress::Backspace,
        KeyCode::Down => KeyPress::Char('j'),
        KeyCode::Up => KeyPress::Char('k'),
        KeyCode::PageDown => KeyPress::Char('J'),
        KeyCode::PageUp => KeyPress::Char('K'),
        _ => return None,
    })
}
