//! Waits for people, as spans: what a supervisor has noted of them in its history, what is said to an agent, the engine's pause.
//!
//! Invariant: a wait has the key that its deadline's timer has for a name, where it has a deadline, so that both are one span.
//! Notes of other kinds and values that are no notes say nothing.

use bosun_engine::Event;
use serde_json::Value;

use super::spans::{Folding, Span, SpanKind, SpanState};
use crate::supervisor::journal::{Note, NoteKind};
use crate::ui::waits::RunWait;

/// What tells a run's own pause apart, and that of the engine.
const PAUSE_KEY: &str = "pause";
pub(super) const ENGINE_PAUSE_KEY: &str = "pause of the run";

/// A pause, with its reason.
pub(super) fn paused(reason: &Value) -> String {
    match reason.as_str().filter(|reason| !reason.is_empty()) {
        Some(reason) => format!("waits to be resumed: {reason}"),
        None => "waits to be resumed".to_owned(),
    }
}

/// What a note says of a wait.
#[derive(Debug, PartialEq, Eq)]
enum PeopleWord {
    Begins {
        key: String,
        name: String,
    },
    /// `void`: nobody has answered, and nobody will.
    Ends {
        key: String,
        void: bool,
    },
}

/// The deadline of a takeover has this name.
const TAKEOVER_KEY: &str = "human control";

impl Folding {
    /// People are waited for from now on: until a deadline, if a timer of the same name begins, or for as long as it takes.
    pub(super) fn wait(&mut self, event: &Event, key: &str, name: String) -> usize {
        let at = match self.waits.get(key) {
            Some(at) => *at,
            None => {
                self.begin(event, SpanKind::Wait, name);
                self.spans.len() - 1
            }
        };
        self.waits.insert(key.to_owned(), at);
        (self.spans[at].state, self.spans[at].to) = (SpanState::Open, None);
        at
    }

    pub(super) fn wait_over(&mut self, event: &Event, key: &str, state: SpanState) {
        let Some(span) = self.waits.remove(key).and_then(|at| self.spans.get_mut(at)) else { return };
        // How a deadline ended was told by its timer; but what is void was not met.
        if span.state == SpanState::Open || state == SpanState::Canceled {
            (span.last, span.state, span.to) = (event.id, state, Some(event.at));
        }
    }

    /// What the code of a supervisor has noted of people.
    pub(super) fn noted(&mut self, event: &Event, value: &Value) {
        for word in words_of(value) {
            match word {
                PeopleWord::Begins { key, name } => {
                    let at = self.wait(event, &key, name.clone());
                    // The second note of a pause has no reason.
                    if name != paused(&Value::Null) {
                        self.spans[at].name = name;
                    }
                }
                PeopleWord::Ends { key, void } => {
                    self.wait_over(event, &key, if void { SpanState::Canceled } else { SpanState::Done });
                }
            }
        }
    }

    /// What people say to a supervisor or an agent by signals, which ends or begins a wait.
    pub(super) fn said(&mut self, event: &Event, name: &str, input: &Value) {
        match name {
            "resume_v1" if self.supervises || self.is_agent => self.wait_over(event, PAUSE_KEY, SpanState::Done),
            "pause_v1" if self.is_agent => _ = self.wait(event, PAUSE_KEY, paused(&input["reason"])),
            "approval_response_v1" if self.is_agent => {
                let Some((first, from)) = self.done else { return };
                let id = input["id"].as_str().unwrap_or_default();
                let span = self.begin(event, SpanKind::Wait, format!("waits for the approval of a tool: {id}"));
                (span.first, span.from, span.to, span.state) = (first, from, Some(event.at), SpanState::Done);
            }
            _ => {}
        }
    }

    /// Nobody is waited for in a run that is over.
    pub(super) fn waits_over(&mut self, event: &Event) {
        let is_open = |at: &usize| self.spans[*at].state == SpanState::Open;
        let open: Vec<String> = self.waits.iter().filter(|(_, at)| is_open(at)).map(|(key, _)| key.clone()).collect();
        open.iter().for_each(|key| self.wait_over(event, key, SpanState::Canceled));
    }
}

/// What an open agent says that it waits for, since what happened last: its history does not say that it asks.
pub(super) fn with_what_is_asked(spans: &mut Vec<Span>, waits: &[RunWait], events: &[Event]) {
    let Some(last) = events.last() else { return };
    let shown = spans.iter().any(|span| span.kind == SpanKind::Wait && span.state == SpanState::Open);
    let mut folding = Folding::default();
    folding.spans = std::mem::take(spans);
    for wait in waits {
        if let RunWait::Person { what, hold, .. } = wait
            && !(shown && hold.is_some())
        {
            folding.begin(last, SpanKind::Wait, format!("waits for {what}")).state = SpanState::Open;
        }
    }
    *spans = folding.spans;
}

/// What a value that the code has recorded says of waits.
fn words_of(recorded: &Value) -> Vec<PeopleWord> {
    let notes = recorded.as_array().into_iter().flatten();
    notes
        .filter_map(|note| serde_json::from_value::<Note>(note.clone()).ok())
        .filter_map(|note| word_of(&note))
        .collect()
}

/// An id without the run that it begins with.
pub(super) fn short(id: &str) -> &str {
    id.rsplit('/').next().unwrap_or(id)
}

/// The facts that a value names that the code has recorded, if it is notes.
pub(super) fn facts_in(recorded: &Value) -> Option<String> {
    let notes: Vec<Note> =
        serde_json::from_value(recorded.clone()).ok().filter(|notes: &Vec<Note>| !notes.is_empty())?;
    let mut names: Vec<String> = notes.iter().map(|note| format!("{:?}", note.kind)).collect();
    names.dedup();
    Some(names.join(", "))
}

fn word_of(Note { kind, data }: &Note) -> Option<PeopleWord> {
    let begins = |key: &str, name| Some(PeopleWord::Begins { key: key.to_owned(), name });
    let ends = |key: String, void| Some(PeopleWord::Ends { key, void });
    let id = data["id"].as_str().unwrap_or_default();
    let text = |value: &Value| value.as_str().filter(|text| !text.is_empty()).map(str::to_owned);
    match kind {
        NoteKind::InterruptRaised => {
            let asked =
                text(&data["payload"]["question"]).or(text(&data["payload"])).unwrap_or_else(|| short(id).to_owned());
            begins(&format!("interrupt {id}"), format!("waits for an answer: {asked}"))
        }
        NoteKind::InterruptAnswered => ends(format!("interrupt {id}"), false),
        NoteKind::ApprovalRequested => {
            let asked = text(&data["action"]).unwrap_or_else(|| short(id).to_owned());
            begins(&format!("approval {id}"), format!("waits for an approval: {asked}"))
        }
        NoteKind::ApprovalDecided => ends(format!("approval {id}"), false),
        NoteKind::ApprovalVoided => ends(format!("approval {id}"), true),
        // A checkpoint notes that it has come, too.
        NoteKind::Paused => begins(PAUSE_KEY, paused(&data["reason"])),
        NoteKind::Resumed => ends(PAUSE_KEY.to_owned(), false),
        NoteKind::HumanTookOver => begins(TAKEOVER_KEY, "a person has taken over".to_owned()),
        NoteKind::PlanApproved | NoteKind::PlanRejected => ends("plan review".to_owned(), false),
        NoteKind::HumanReleased => ends(TAKEOVER_KEY.to_owned(), false),
        _ => None,
    }
}
