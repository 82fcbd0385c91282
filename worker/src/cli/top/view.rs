//! What a person has chosen to look at, and how keys change it. Pure.

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TopKey {
    Down(usize),
    Up(usize),
    Choose,
    Agents,
    Quit,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct TopView {
    /// The row that is marked.
    pub(super) at: usize,
    /// Whether agents are shown below the runs.
    pub(super) agents: bool,
    /// The marked run was chosen, rather than nothing.
    pub(super) chosen: bool,
    pub(super) done: bool,
}

impl TopView {
    /// The same with the mark on a row that is there.
    pub(super) fn within(self, rows: usize) -> TopView {
        TopView { at: self.at.min(rows.saturating_sub(1)), ..self }
    }
}

pub(super) fn update(view: TopView, key: TopKey) -> TopView {
    match key {
        TopKey::Down(rows) => TopView { at: view.at.saturating_add(rows), ..view },
        TopKey::Up(rows) => TopView { at: view.at.saturating_sub(rows), ..view },
        TopKey::Agents => TopView { agents: !view.agents, ..view },
        TopKey::Choose => TopView { chosen: true, done: true, ..view },
        TopKey::Quit => TopView { done: true, ..view },
    }
}
