//! What is pressed while `top` runs.
//!
//! Invariant: a key means one thing, whatever is shown. It changes nothing.

use ratatui::crossterm::event::{Event as TerminalEvent, KeyCode, KeyEventKind, KeyModifiers, read};
use tokio::sync::mpsc;

use super::view::TopKey;
use super::{CliError, broken};

/// What is pressed; a change of the window's size is nothing that is pressed, and is drawn all the same. The thread waits for
/// the keyboard until the process ends.
pub(super) fn keyboard() -> Result<mpsc::UnboundedReceiver<std::io::Result<Option<TopKey>>>, CliError> {
    let (pressed, keys) = mpsc::unbounded_channel();
    let wait = move || while pressed.send(read().map(|event| key(&event))).is_ok() {};
    std::thread::Builder::new().name("bosun-keys".into()).spawn(wait).map_err(broken)?;
    Ok(keys)
}

fn key(event: &TerminalEvent) -> Option<TopKey> {
    let TerminalEvent::Key(key) = event else { return None };
    if key.kind == KeyEventKind::Release {
        return None;
    }
    match key.code {
        KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => Some(TopKey::Quit),
        KeyCode::Char('q') | KeyCode::Esc => Some(TopKey::Quit),
        KeyCode::Char('j') | KeyCode::Down => Some(TopKey::Down(1)),
        KeyCode::Char('k') | KeyCode::Up => Some(TopKey::Up(1)),
        KeyCode::PageDown => Some(TopKey::Down(10)),
        KeyCode::PageUp => Some(TopKey::Up(10)),
        KeyCode::Home => Some(TopKey::Up(usize::MAX)),
        KeyCode::Enter => Some(TopKey::Choose),
        KeyCode::Char('a') => Some(TopKey::Agents),
        _ => None,
    }
}
