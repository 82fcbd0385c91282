//! The other process's side of a twin: replays what it was sent, compares, writes its answer, and ends.
//!
//! Invariant: of all histories that differ the first is told, in words that need nothing of this process. The process ends
//! here, so that nothing of the test is run twice.

use std::path::Path;

use bosun_engine::workflow::{NonDeterminism, WorkflowRegistry};
use bosun_engine::{CodeLocation, Payload, QueryName};
use serde::{Deserialize, Serialize};

use super::DeterminismTest;
use super::elsewhere::{Request, answer_path};
use super::trip::Trip;
use crate::simulate::{
    Clues, Doubts, SeenRun, Violation, of_unchanged_code, on_a_named_thread, see_again, within_a_runtime,
};

/// What the other process has found.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Answer {
    Same,
    Differs { seed: u64, what: String, here: String, there: String, notes: Vec<String> },
}

impl DeterminismTest {
    /// Answers, and leaves the process.
    pub(super) fn answer(&self, request: &Request, path: &Path) -> ! {
        let answer = match self.versions.first() {
            Some(registry) => found(&self.doubts, registry, request, &self.drawn.queries),
            None => Answer::Same,
        };
        // Renamed when it is whole. Whoever asked sees that there is none.
        let (whole, partial) = (answer_path(path), path.with_extension("partial"));
        let text = serde_json::to_vec(&answer).unwrap_or_default();
        let written = std::fs::write(&partial, text).and_then(|()| std::fs::rename(&partial, whole));
        std::process::exit(i32::from(written.is_err()))
    }
}

fn found(doubts: &Doubts, registry: &WorkflowRegistry, request: &Request, queries: &[(QueryName, Payload)]) -> Answer {
    for run in &request.runs {
        let again = || within_a_runtime(|| see_again(doubts, registry, run, queries));
        if let Err(finding) = on_a_named_thread("elsewhere", again) {
            return told(run, finding);
        }
    }
    Answer::Same
}

fn told(run: &SeenRun, finding: Violation) -> Answer {
    let seed = run.seed;
    match finding {
        Violation::ReplayMismatch { card, clues } => {
            let NonDeterminism { expected, produced, location, .. } = &*card;
            let text = |what: Option<String>| what.unwrap_or_else(|| "nothing".into());
            let here = at(text(expected.as_ref().map(ToString::to_string)), clues.lived_at.as_ref());
            let there = text(produced.as_ref().map(ToString::to_string));
            let there = at(there, location.as_ref().or(clues.again_at.as_ref()));
            let mut notes = vec![of_unchanged_code(&card)];
            notes.extend(suspected(&clues));
            Answer::Differs { seed, what: "it asks for something else".into(), here, there, notes }
        }
        Violation::Unstable { what, first, second, clues, .. } => {
            let (here, there) = (at(first, clues.lived_at.as_ref()), at(second, clues.again_at.as_ref()));
            let notes = suspected(&clues);
            Answer::Differs { seed, what: format!("its {what} differ"), here, there, notes }
        }
        other => {
            let (here, there) = ("nothing of the kind".into(), other.to_string());
            Answer::Differs { seed, what: other.kind().into(), here, there, notes: Vec::new() }
        }
    }
}

fn at(what: String, place: Option<&CodeLocation>) -> String {
    place.map_or(what.clone(), |place| format!("{what}\n           at {place}"))
}

fn suspected(clues: &Clues) -> Vec<String> {
    clues.suspects.iter().map(|trip: &Trip| format!("  suspect: {trip}")).collect()
}
