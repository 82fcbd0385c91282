//! One replayed history as `check` and `explain` tell it: which class of answer, in which words, with which exit code.
//!
//! Invariant: what does not fit is never mixed up with what cannot be read, and neither counts as passed.

use std::time::Duration;

use bosun_engine::workflow::WorkflowRegistry;
use bosun_replay::{Card, History, Prefixes, ReplayReport, Verdict, explain, replay_history};
use serde_json::{Value, json};

use crate::cli::exit::Exit;
use crate::cli::output::TextStyle;

/// One line of a check.
#[derive(Debug, Clone)]
pub(in crate::cli) struct CheckedHistory {
    /// The file, or the workflow id of a recorded run.
    pub(in crate::cli) name: String,
    pub(in crate::cli) answer: ReplayAnswer,
    pub(in crate::cli) took: Duration,
}

#[derive(Debug, Clone)]
pub(in crate::cli) enum ReplayAnswer {
    /// With the card of a mismatch.
    Replayed(Box<ReplayReport>, Option<Box<Card>>),
    /// The code did not come back.
    Stuck,
    /// Temporal's own export.
    Foreign,
    /// There was no history to replay.
    Unreadable(String),
}

impl ReplayAnswer {
    pub(in crate::cli) fn of(workflows: &WorkflowRegistry, history: &History, prefixes: Prefixes) -> ReplayAnswer {
        let report = replay_history(workflows, history, prefixes);
        let card = match &report.verdict {
            Verdict::NonDeterministic(_) | Verdict::OtherResult(_) => explain(workflows, history, &source_text),
            Verdict::Ok
            | Verdict::Unstable { .. }
            | Verdict::UnknownType { .. }
            | Verdict::Redacted
            | Verdict::Lost { .. }
            | Verdict::Foreign
            | Verdict::Invalid { .. } => None,
        };
        ReplayAnswer::Replayed(Box::new(report), card.map(Box::new))
    }
}

/// How far up from the working directory a source file is looked for: the compiler knows it from the workspace's root.
const ANCESTORS: usize = 4;

/// The text of a source file that the compiler named, if it is on this machine.
pub(super) fn source_text(file: &str) -> Option<String> {
    let here = std::env::current_dir().ok()?;
    here.ancestors().take(ANCESTORS).find_map(|directory| std::fs::read_to_string(directory.join(file)).ok())
}

/// The three things a gate tells apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::cli) enum Class {
    Fits,
    Unreadable,
    DoesNotFit,
}

/// Histories that do not fit for the same reason, together; the order is that of the first of each.
pub(in crate::cli) fn by_mistake(checked: &[CheckedHistory]) -> Vec<Vec<&CheckedHistory>> {
    let mut groups: Vec<(Option<String>, Vec<&CheckedHistory>)> = Vec::new();
    for one in checked {
        let mistake = match &one.answer {
            ReplayAnswer::Replayed(_, Some(card)) => Some(card.mistake()),
            _ => None,
        };
        match groups.iter_mut().find(|(known, _)| mistake.is_some() && *known == mistake) {
            Some((_, group)) => group.push(one),
            None => groups.push((mistake, vec![one])),
        }
    }
    groups.into_iter().map(|(_, group)| group).collect()
}

impl CheckedHistory {
    pub(in crate::cli) fn class(&self) -> Class {
        match &self.answer {
            ReplayAnswer::Stuck => Class::DoesNotFit,
            ReplayAnswer::Unreadable(_) | ReplayAnswer::Foreign => Class::Unreadable,
            ReplayAnswer::Replayed(report, _) => match &report.verdict {
                Verdict::Ok => Class::Fits,
                Verdict::NonDeterministic(_)
                | Verdict::OtherResult(_)
                | Verdict::Unstable { .. }
                | Verdict::UnknownType { .. } => Class::DoesNotFit,
                Verdict::Redacted | Verdict::Lost { .. } | Verdict::Foreign | Verdict::Invalid { .. } => {
                    Class::Unreadable
                }
            },
        }
    }

    /// The name of the answer in tables and JSON: a contract with scripts.
    pub(in crate::cli) fn verdict(&self) -> &'static str {
        match &self.answer {
            ReplayAnswer::Stuck => "stuck",
            ReplayAnswer::Foreign => "foreign",
            ReplayAnswer::Unreadable(_) => "unreadable",
            ReplayAnswer::Replayed(report, _) => match &report.verdict {
                Verdict::Ok => "ok",
                Verdict::NonDeterministic(_) => "non_deterministic",
                Verdict::OtherResult(_) => "other_result",
                Verdict::Unstable { .. } => "unstable",
                Verdict::UnknownType { .. } => "unknown_type",
                Verdict::Redacted => "redacted",
                Verdict::Foreign => "foreign",
                Verdict::Lost { .. } | Verdict::Invalid { .. } => "unreadable",
            },
        }
    }

    pub(in crate::cli) fn paint(&self) -> TextStyle {
        match self.class() {
            Class::Fits => TextStyle::Green,
            Class::Unreadable => TextStyle::Yellow,
            Class::DoesNotFit => TextStyle::Red,
        }
    }

    /// What is wrong, in whole lines; nothing when it fits.
    pub(in crate::cli) fn explanation(&self) -> Option<String> {
        match &self.answer {
            ReplayAnswer::Stuck => Some(
                "the workflow code did not come back in time: a busy loop, or a blocking call (--timeout says how long \
                 to wait)"
                    .to_owned(),
            ),
            ReplayAnswer::Foreign => Some(Verdict::Foreign.to_string()),
            ReplayAnswer::Unreadable(why) => Some(why.clone()),
            ReplayAnswer::Replayed(_, Some(card)) => Some(card.to_string()),
            ReplayAnswer::Replayed(report, None) => match &report.verdict {
                Verdict::Ok => None,
                other => Some(other.to_string()),
            },
        }
    }

    /// What fits and may be a mistake all the same: a signal that seems renamed, timers that seem to have changed places.
    pub(in crate::cli) fn warnings(&self) -> &[String] {
        match &self.answer {
            ReplayAnswer::Replayed(report, _) => &report.warnings,
            ReplayAnswer::Stuck | ReplayAnswer::Foreign | ReplayAnswer::Unreadable(_) => &[],
        }
    }

    /// The row of `-o json` and `-o jsonl`.
    pub(in crate::cli) fn json(&self) -> Value {
        let mut row = json!({
            "source": self.name,
            "verdict": self.verdict(),
            "ok": self.class() == Class::Fits,
            "message": self.explanation(),
            "warnings": self.warnings(),
            "took_ms": u64::try_from(self.took.as_millis()).unwrap_or(u64::MAX),
        });
        if let ReplayAnswer::Replayed(report, card) = &self.answer {
            if let Some(run) = &report.run {
                row["run"] = json!({
                    "workflow_id": run.workflow_id,
                    "run_id": run.run_id,
                    "workflow_type": run.workflow_type,
                    "status": run.status.to_string(),
                    "events": run.events,
                    "activations": run.activations,
                    "commands": run.commands,
                    "prefixes": run.prefixes,
                    "digest": run.digest,
                });
            }
            if let Some(card) = card {
                row["card"] = json!(card);
            }
        }
        row
    }
}

/// The exit code of many: what does not fit outweighs what cannot be read.
pub(in crate::cli) fn exit_of(checked: &[CheckedHistory]) -> Exit {
    match checked.iter().map(CheckedHistory::class).max() {
        None | Some(Class::Fits) => Exit::Ok,
        Some(Class::Unreadable) => Exit::HistoryUnreadable,
        Some(Class::DoesNotFit) => Exit::NonDeterminism,
    }
}
