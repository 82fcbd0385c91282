//! Recording the notes of a turn, and keeping the last of them for whoever asks.
//!
//! Invariant: what a turn noted is recorded in that turn, once, and a replay that notes something else is refused. It says
//! nothing of what is noted: that is `journal`.

use bosun_engine::workflow::Cx;
use serde_json::json;

use super::SupervisorRun;
use crate::supervisor::journal::{Note, NoteKind};
use crate::supervisor::spec::ProgressMessages;

/// Notes kept for the query `notes`; all of them are in the history.
const NOTES_KEPT: usize = 500;

impl SupervisorRun {
    /// Whether nobody is told how the work goes. What a team tells its audience is no chat (SHN-28).
    fn is_quiet(&self) -> bool {
        let spec = &self.resolved.spec;
        spec.progress.messages == ProgressMessages::None && !spec.tells_of_team()
    }

    /// Records the notes of the turn. The recorded ones are compared: a replay must note the same (§5.8 no. 6).
    pub(super) fn note(&mut self, mut notes: Vec<Note>, cx: &mut Cx<'_>) {
        if self.is_quiet() {
            notes.retain(|note| note.kind != NoteKind::ProgressEmitted);
        }
        if notes.is_empty() {
            return;
        }
        let recorded = cx.note(notes.clone());
        assert!(
            recorded == notes,
            "the run notes other facts than its history holds; first difference: {}",
            first_difference(&recorded, &notes)
        );
        self.noted += notes.len() as u64;
        self.notes.extend(notes);
        let excess = self.notes.len().saturating_sub(NOTES_KEPT);
        self.notes.drain(..excess);
    }
}

fn first_difference(recorded: &[Note], noted: &[Note]) -> String {
    let text = |note: Option<&Note>| note.map_or_else(|| "nothing".to_owned(), |note| json!(note).to_string());
    let place = recorded.iter().zip(noted).take_while(|(a, b)| a == b).count();
    format!("recorded {}, now {}", text(recorded.get(place)), text(noted.get(place)))
}
