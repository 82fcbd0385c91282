//! The end of a run: its report, and the close that the engine sees.
//!
//! Invariant: a run that failed is failed and one that was cancelled is cancelled, each with the same report as one that
//! completed; a run does not close while a child or a recruit is at work.

use bosun_engine::workflow::Cx;
use bosun_engine::{Failure, Payload};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{SupervisorRun, fitting};
use crate::supervisor::core::account::{BUDGET_EXHAUSTED, SPENT, UsedUp, is_zero};
use crate::supervisor::core::key::Key;
use crate::supervisor::core::phase::Phase;
use crate::supervisor::core::strategy::{Findings, NotDone, TASK_REJECTED, TaskReport};
use crate::supervisor::journal::{Note, NoteKind};
use crate::supervisor::model::TaskId;
use crate::supervisor::outbox::{Ask, Outbox};
use crate::supervisor::people::takeover::{HANDED_MESSAGE, HANDED_TO_HUMAN, TakeoverContext};
use crate::supervisor::success;
use crate::supervisor::task::TaskStatus;
use crate::supervisor::team::ForTeam;

/// The failure type of a run that failed; its details are the [`SupervisorOutput`].
pub const SUPERVISOR_FAILED: &str = "SupervisorFailed";

/// The code of a run in which nobody said or did anything.
pub(super) const NOTHING_DONE: &str = "nothing_done";

/// What a run gives.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SupervisorOutput {
    pub objective: String,
    /// `completed`, `partial`, `failed`, `cancelled`; of an open run its phase.
    pub status: String,
    /// Whether all that was planned was done, or is excused by a rule of the spec.
    pub success: bool,
    /// How many tasks are done, and which are not (FSP-08); empty where there are no tasks.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub summary: String,
    pub error: Option<String>,
    /// Of a run that is in a person's hands: that it is, and where it stands (SHN-66).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context: Option<TakeoverContext>,
    /// For programs: `too_many_failures` ...
    pub code: Option<String>,
    /// The time of the run was over before it was.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub out_of_time: bool,
    /// Why it is not done in full, whether or not that is an error: always there with `partial`, and without a `success`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<EndReason>,
    pub details: Value,
    pub final_result: Option<Value>,
    pub tasks: Vec<TaskReport>,
    pub errors: Vec<String>,
    /// What reviewers of runs below handed upward (FSS-25), whatever became of the tasks here that those runs were begun for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub handed_up: Vec<HandedUp>,
    /// A person has said no to a part of the work, here or below, or ended it: they are not asked about it again.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub said_no: bool,
    /// Of a run that failed and has no result: what there is of its work beside its tasks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub so_far: Option<String>,
    pub recruits: Value,
    /// Of a recruit: whom and what it wants of the team that it is in.
    #[serde(default, skip_serializing_if = "ForTeam::is_nothing")]
    pub for_team: ForTeam,
    pub spec_hash: String,
    /// What it has cost, with all below it.
    pub tokens: u64,
    pub calls: u64,
    #[serde(default)]
    pub cost_micros: u64,
    /// Those of the calls of which nobody knows what they cost.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub unpriced_calls: u64,
}

/// A task that a reviewer handed upward, with the reviewer's words.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct HandedUp {
    pub task: TaskId,
    pub words: String,
}

/// Why the end of a run is no full success.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EndReason {
    /// The `code` of the run; without one `tasks_not_done`, `failed`, `stopped` or `nothing_done`.
    pub code: String,
    /// The `error` of the run, or what is not done, in a sentence.
    pub message: String,
    /// Each task that gave nothing, with how it stands and why.
    pub tasks: Vec<NotDone>,
}

impl EndReason {
    /// As many tasks as a sentence names.
    pub(super) const NAMED: usize = 5;

    /// `unpriced`: what is said of a budget that calls of unknown price have used up.
    fn of(output: &SupervisorOutput, tasks: Vec<NotDone>, unpriced: Option<String>) -> EndReason {
        let usual = match () {
            () if output.status == Phase::Cancelled.as_str() => "cancelled",
            () if output.error.is_some() => "failed",
            () if !tasks.is_empty() => "tasks_not_done",
            () if !output.errors.is_empty() => "stopped",
            () => NOTHING_DONE,
        };
        let said = output.error.clone().or_else(|| {
            let named: Vec<String> = tasks.iter().take(Self::NAMED).map(NotDone::text).collect();
            let more = tasks.len().saturating_sub(Self::NAMED);
            let more = if more > 0 { format!("; and {more} more") } else { String::new() };
            (!named.is_empty()).then(|| named.join("; ") + &more)
        });
        let spent = || (output.code.as_deref() == Some(BUDGET_EXHAUSTED)).then(|| SPENT.to_owned());
        let message = said.or_else(|| output.errors.first().cloned()).or_else(spent);
        let message = match (unpriced, message) {
            (Some(text), Some(more)) if more != SPENT && more != text => Some(format!("{text}; {more}")),
            (text, more) => text.or(more),
        };
        EndReason {
            code: output.code.clone().unwrap_or_else(|| usual.to_owned()),
            message: message.unwrap_or_else(|| "nobody said or did anything that could be told".to_owned()),
            tasks,
        }
    }
}

impl SupervisorRun {
    /// The run as it would be reported now.
    pub(super) fn output(&self) -> SupervisorOutput {
        let (phase, spent) = (self.strategy.phase(), self.account.balance().spent);
        let mut output = SupervisorOutput {
            objective: self.resolved.spec.objective.clone(),
            status: phase.as_str().to_owned(),
            success: self.strategy.success(),
            summary: String::new(),
            error: None,
            message: None,
            context: None,
            code: None,
            out_of_time: self.account.balance().is_out_of_time() && !self.strategy.success(),
            reason: None,
            details: Value::Null,
            final_result: None,
            tasks: Vec::new(),
            errors: Vec::new(),
            handed_up: self.handed_up.clone(),
            said_no: false,
            so_far: None,
            recruits: json!(self.parts.team.members.results()),
            for_team: self.parts.team.for_above(),
            spec_hash: self.resolved.hash.clone(),
            tokens: spent.tokens,
            calls: spent.calls,
            cost_micros: spent.cost_micros,
            unpriced_calls: spent.unpriced_calls,
        };
        let not_done = self.fill(&mut output);
        if self.strategy.is_cut() {
            output.code.get_or_insert_with(|| BUDGET_EXHAUSTED.to_owned());
        }
        if self.parts.control.is_cancelled() {
            (output.status, output.success) = (Phase::Cancelled.as_str().to_owned(), false);
            output.error = self.parts.control.cancelled_text();
        }
        let in_full = output.success && output.status == Phase::Completed.as_str();
        // Where agents talk, a no counts that nothing was done after.
        output.said_no |= self.denied_by_person && output.code.as_deref() == Some(TASK_REJECTED);
        if phase.is_terminal() && !in_full {
            let balance = self.account.balance();
            let unpriced = self.strategy.is_cut() && balance.used_up() == Some(UsedUp::Unpriced);
            output.reason = Some(EndReason::of(&output, not_done, unpriced.then(|| balance.text())));
        }
        output
    }

    /// The same for whoever looks while the run is open: one that is in a person's hands is theirs (SHN-66).
    pub(super) fn output_now(&self) -> SupervisorOutput {
        let mut output = self.output();
        if self.parts.control.is_human() && !self.strategy.phase().is_terminal() {
            (output.status, output.message) = (HANDED_TO_HUMAN.to_owned(), Some(HANDED_MESSAGE.to_owned()));
            output.context = Some(self.takeover_context());
        }
        output
    }

    /// What the strategy knows of its outcome. Gives what is not done.
    fn fill(&self, output: &mut SupervisorOutput) -> Vec<NotDone> {
        let Findings { tasks, not_done, errors, final_result, error, code, said_no, so_far, details } =
            self.strategy.findings(&self.account.balance());
        (output.tasks, output.errors, output.details) = (tasks, errors, details);
        output.errors.extend(self.left_below.iter().cloned());
        (output.final_result, output.error, output.code) = (final_result, error, code);
        (output.said_no, output.so_far) = (said_no, so_far);
        if !output.tasks.is_empty() {
            let tasks: Vec<(&TaskId, TaskStatus)> =
                output.tasks.iter().map(|task| (&task.task_id, task.status)).collect();
            output.summary = success::summary(&tasks);
            let undone = output.tasks.iter().filter(|task| task.undone == Some(true));
            let undone: Vec<&str> = undone.map(|task| task.task_id.as_str()).collect();
            if !undone.is_empty() {
                output.summary += &format!("; undone: {}", undone.join(", "));
            }
        }
        not_done
    }

    /// What is to be done in the turn in which the strategy ends.
    pub(super) fn ending(&mut self, out: &mut Outbox) {
        let phase = self.strategy.phase();
        if matches!(phase, Phase::Compensating | Phase::Failed | Phase::Cancelled | Phase::TimedOut) {
            self.parts.team.takes_nobody(out);
        }
        if !phase.is_terminal() {
            return;
        }
        if let Some((strategy, subtasks)) = self.strategy.decomposition().filter(|_| self.strategy.success()) {
            self.parts.memory.succeeded(&strategy, &subtasks, out);
        }
        self.nobody_is_asked(out);
        if phase == Phase::Failed {
            // Nothing waits for what they do any more (SHN-31, SHN-50).
            let children: Vec<Key> = self.parts.control.children().cloned().collect();
            for key in children {
                out.ask(Ask::CancelChild { key, reason: "the run failed".to_owned() });
            }
            self.parts.team.given_up(out);
        }
        self.parts.team.closed(matches!(phase, Phase::Completed | Phase::Partial), out);
        let checkpoint = self.checkpoint();
        self.parts.control.checkpoint(&checkpoint, out);
    }

    /// Whether the work is done and nothing of it is under way.
    pub(crate) fn is_over(&self) -> bool {
        // What a person holds stays open for them; what was asked for at the end is waited for.
        let held = self.parts.control.is_held();
        let children = self.parts.control.children().next().is_some() && !self.parts.control.is_cancelled();
        // A run tells all that it spent, and those below it that it has ended.
        let unpaid = !self.calls.has_all_bills();
        let open = !self.strategy.phase().is_terminal();
        !(open || held || children || unpaid || !self.calls.is_idle())
    }

    /// Whether how it ended is known, and only what runs below it have spent is not: nothing of it can be cancelled any more.
    pub(super) fn only_waits_for_bills(&self) -> bool {
        let children = self.parts.control.children().next().is_some();
        self.strategy.phase().is_terminal() && !children && self.calls.is_idle() && !self.calls.has_all_bills()
    }

    /// Closes the run when it is over.
    pub(super) fn close_if_over(&self, cx: &mut Cx<'_>) {
        if cx.is_closed() || !self.is_over() {
            return;
        }
        let phase = self.strategy.phase();
        let output = fitting::fitted(self.output());
        let details = Payload::encode(&output).unwrap_or_default();
        let cancelled = self.parts.control.is_cancelled() || phase == Phase::Cancelled;
        match phase {
            _ if cancelled => cx.cancel(Some(details)),
            Phase::Completed | Phase::Partial => cx.complete(&output),
            _ => {
                let reason = || output.reason.as_ref().map(|reason| reason.message.clone());
                let message = output.error.clone().or_else(reason).unwrap_or_else(|| format!("the run is {phase}"));
                cx.fail(Failure::application(SUPERVISOR_FAILED, message).non_retryable().with_details(details));
            }
        }
    }

    /// The data of a live tree.
    pub(super) fn progress_view(&self) -> Value {
        let output = self.output();
        let done = output.tasks.iter().filter(|task| task.status == TaskStatus::Completed).count();
        let control = self.parts.control.status();
        json!({
            "objective": output.objective, "status": output.status, "control": control,
            "completed": done, "total": output.tasks.len(), "started_at": self.started_at, "tasks": self.strategy.rows(),
            "pending_approvals": self.parts.approvals.view(), "pending_interrupts": self.parts.interrupts.view(),
            "waiting": self.waiting(), "undone": self.undone(),
            "team": self.parts.team.members.directory.list(), "handed": self.parts.control.is_human().then(|| self.takeover_context().handed()),
            "beside_rows": self.strategy.beside_rows(self.parts.control.is_held(), &|key| self.calls.holds_word_for(key)),
        })
    }

    /// What was undone, last first: a cancelled run tells it as it happens.
    fn undone(&self) -> Vec<Value> {
        let of_it = |note: &&Note| note.kind == NoteKind::CompensationRun;
        self.notes.iter().filter(of_it).map(|note| note.data.clone()).collect()
    }
}
