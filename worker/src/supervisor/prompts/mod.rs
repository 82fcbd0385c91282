//! The prompts of the supervisors: what models are told, and what people are told of progress.
//!
//! A call carries data (its context) and a text (its prompt). [`of`] makes the text from the data alone, by the purpose
//! of the call; the structures of the submodules are the data, as far as prompts have a use for it.
//!
//! Invariant: a prompt is a pure function of what the run has recorded, its time included: the same data make the same
//! bytes, so that the recorded hash can prove a replay. Lists keep the order they are given in. No state is kept here.

mod board;
mod control;
mod planner;
mod progress;
mod review;
mod synthesis;
mod text;
mod worker;

use serde::Deserialize;
use serde_json::Value;

pub use board::{BoardCapability, BoardTask, PromptBoard, ToolResult};
pub use control::{ControllerTurn, EvaluatorTurn, SubTask};
pub use planner::{PlannedView, PlannerTurn};
pub use progress::{
    ProgressTask, plan_completed, plan_proposed, subtask_completed, subtask_failed, subtask_not_done, subtask_skipped,
    subtask_started,
};
pub use review::{IterationReview, ReviewedResult, TaskReviewTurn};
pub use synthesis::{AcceptedResult, SynthesisTurn};
pub use worker::{Consultation, ReplyForm, WorkerTurn};

use crate::supervisor::outbox::Purpose;

/// The hash that is recorded with a decision: BLAKE3 of the text, in hex.
pub fn prompt_hash(prompt: &str) -> String {
    blake3::hash(prompt.as_bytes()).to_hex().to_string()
}

/// What a model is told for a call, from the data of the call. Calls that are no model's get no text, and so does data
/// that is none of a supervisor's.
pub fn of(purpose: Purpose, context: &Value) -> String {
    let has = |key: &str| context.get(key).is_some();
    match purpose {
        Purpose::Plan => read(context, PlannerTurn::text),
        Purpose::Decide if has("board") => read(context, PromptBoard::text),
        Purpose::Decide if has("subtasks") => read(context, ControllerTurn::text),
        Purpose::Decide if has("tasks") => read(context, EvaluatorTurn::text),
        Purpose::ExecuteWorker if has("question") => read(context, Consultation::text),
        Purpose::ExecuteWorker => read(context, WorkerTurn::text),
        Purpose::Review if has("results") => read(context, IterationReview::text),
        Purpose::Review => read(context, TaskReviewTurn::text),
        Purpose::Synthesize => read(context, SynthesisTurn::text),
        Purpose::Decide
        | Purpose::Advise
        | Purpose::FetchMemory
        | Purpose::RecordDecomposition
        | Purpose::AuthorizeTeamAction
        | Purpose::NotifyForApproval
        | Purpose::LogApprovalResult
        | Purpose::EmitProgress
        | Purpose::Compensate => String::new(),
    }
}

/// What a model may say in its answer beside what everybody who is asked is told.
pub fn more_for_models(purpose: Purpose, context: &Value) -> &'static str {
    match purpose {
        Purpose::Plan if context.get("upfront").is_none() => planner::MORE,
        _ => "",
    }
}

/// How the prompt of a reviewer begins in every turn: a model has it as its system prompt (FSS-19). Others have none.
pub fn steady(purpose: Purpose, context: &Value) -> String {
    match purpose {
        Purpose::Review if context.get("results").is_some() => read(context, IterationReview::steady),
        Purpose::Review => read(context, TaskReviewTurn::steady),
        _ => String::new(),
    }
}

fn read<'a, T: Deserialize<'a>>(context: &'a Value, prompt: impl FnOnce(&T) -> String) -> String {
    T::deserialize(context).map(|turn| prompt(&turn)).unwrap_or_default()
}

#[cfg(test)]
mod tests;
