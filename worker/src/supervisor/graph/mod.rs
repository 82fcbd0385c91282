//! The graph machine: a plan of tasks that is planned, scheduled, executed, reviewed and brought to a result.
//!
//! ```text
//!   planning ──► executing ⇄ reviewing ──► replanning ──► executing ... ──► synthesizing ──► the outcome
//!                 schedule → gates → claim → answer → review → schedule
//! ```
//!
//! One machine for pydantask, flow-state, CUGA's structured planning, and Shannon: what differs is in [`GraphRules`].
//! Invariant: it changes only when told what happened (`answered`, `fired`, a person's or a signal's request), asks for
//! everything through the outbox, and after every change has started all that may start. Every task's status follows
//! the table; results belong to tasks by id, never by place. It knows no people, team or mailbox: these are [`Gates`].
//!
//! Long: the state of the machine, and the one way in for all that it is told.

mod anew;
mod answers;
mod awaits;
mod budget;
mod control;
mod decide;
mod evaluate;
mod execute;
mod finish;
mod flow;
mod gates;
mod handed;
mod iterate;
mod meanwhile;
mod people;
mod planning;
mod policies;
mod refusal;
mod rejected;
mod reply;
mod review;
mod rules;
mod schedule;
mod shapes;
mod spellings;
mod standing;
mod strategy;
mod synthesis;
mod told;
mod tools;
mod undo;
mod upfront;
mod view;
mod why_not;
mod worker_asks;
mod workers;

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

pub use answers::*;
use awaits::{calls, times, waits_for_any};
pub use budget::NOT_REVIEWED;
pub use decide::SUPERVISOR_FEEDBACK;
pub use finish::{GraphOutcome, NO_TASK_PLANNED, final_result, final_task};
pub use flow::*;
pub use gates::{Gates, Open, PlanEvent};
pub use handed::Handed;
pub use people::PLAN_REVIEW_TIMED_OUT;
pub use refusal::{AgentForbidden, BuiltInReserved, NotTaken, PlanRefusal, ToolRefusal};
pub use reply::*;
pub use rules::*;
pub use told::prompt_hash;
pub use tools::ToolAnswer;
pub use undo::left_undone;
pub use upfront::{Delegated, PlanUpfront, read_plan_answer};
pub use view::{TaskBoardLine, WhyNotRunning};
pub use workers::{Who, WorkerCard, WorkerRequirements};

use super::core::key::{GraphKey, Key};
use super::core::retry::Tries;
pub use super::core::strategy::TASK_REJECTED;
pub use super::core::verdict::{Start, Take};
use super::core::{account::SPENT, phase::Phase};
use super::journal::NoteKind;
use super::model::{AttemptOutcome, CancelReason, Priority, Task, TaskId, TaskPlan};
pub use super::model::{Dependency, HUMAN, PlannedEdge, PlannedTask, PlannerOutput};
use super::outbox::{Answer, Ask, Call, Outbox, Purpose};
use super::prompts::of as prompt_of;
use super::reading::{read, refused, text_of};
use super::spec::{Authority, ReviewScope, Selection};
use super::task::{Actor, TaskStatus};

/// The machine and all it remembers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Graph {
    rules: GraphRules,
    phase: Phase,
    plan: TaskPlan,
    /// The planning round (FSS-11) it is in; from 1.
    iteration: u32,
    /// Decisions asked for so far.
    cycle: u32,
    errors: Vec<String>,
    /// What the scheduler changed since the last decision (PDT-04), and what the decider's own requests came to.
    board_notes: Vec<String>,
    tool_answers: Vec<ToolAnswer>,
    /// The state that a custom planner keeps through iterations: the last review's overall words.
    overall_assessment: Option<String>,
    outcome: Option<GraphOutcome>,
    deadlock_report: Option<String>,
    /// The context the planner was given from outside: memory, advice.
    planning_context: Value,
    /// How the planner wants it done, its complexity, and the order it gave roles in.
    strategy: Option<String>,
    /// The answer of a planner, given from outside.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    given_plan: Option<Value>,
    complexity_bp: Option<u32>,
    /// The sub-tasks that the controller was shown.
    #[serde(default)]
    shown: usize,
    /// The result that is put into its form.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    plain: Option<Value>,
    synthesis_tries: u32,
    /// Why the last synthesis was not taken.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    synthesis_error: Option<String>,
    review_tries: u32,
    /// The review of the iteration is over, and what it accepted is being carried out: whether it wants another plan.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    judged: Option<bool>,
    /// What the last plan asked for and did not get; the planner is told.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    refused_in_plan: Vec<String>,
    planning_tries: u32,
    /// Decisions of the controller in a row that could not be read.
    #[serde(default)]
    control_tries: u32,
    compensating: Vec<TaskId>,
    /// Whether the compensation of each task that had its turn worked.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    undone: BTreeMap<TaskId, bool>,
    /// What the run ends with once compensation is done.
    closing: Option<GraphOutcome>,
    /// Tasks whose edges must be looked at again.
    dirty: BTreeSet<TaskId>,
    /// Ready and sent-back tasks in the order in which they may be claimed (FSS-41).
    runnable: BTreeSet<(Priority, u32, TaskId)>,
    in_flight: BTreeSet<TaskId>,
    /// Tasks that wait for a person or a repair, by their place in the plan.
    stopped: BTreeSet<(u32, TaskId)>,
    /// Tasks that are not over.
    open: BTreeSet<TaskId>,
    dependents: BTreeMap<TaskId, BTreeSet<TaskId>>,
    /// What a decision chose and has not been started yet.
    chosen: Vec<TaskId>,
    executed_in_cycle: bool,
    idle_cycles: u32,
    /// Why the last decision could not be read, if it could not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    undecided: Option<String>,
    /// Whether an answer to the last decision is being carried out.
    in_cycle: bool,
    /// Steps of a loop that goes one by one (FSP-09).
    #[serde(default)]
    turns: u32,
    /// The budget has left something undone.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    cut: bool,
    /// Who decides has said that all is done, and the final task says so too (PDT-08): what else is open was judged.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    judged_done: bool,
    /// Tasks that ended since the controller or evaluator was asked last.
    ended_since_asked: bool,
    /// People have approved the plan: it is carried out as it is, or shown to them again.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    approved: bool,
    /// Whoever decides has changed the plan, and people have not looked at it yet.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    unseen: bool,
    /// Tasks that people have done something to since somebody was shown the board.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    touched: BTreeSet<TaskId>,
    /// The plan is made again at the word of a person.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    at_their_word: bool,
    /// What came of a request that was handed on as a whole.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    handed: Option<Handed>,
    /// A person has said no to the plan, or to what it requires.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    denied: bool,
}

impl Graph {
    /// A run of these rules over a plan that is given, or over none yet.
    // long: one line a field.
    pub fn new(rules: GraphRules, plan: TaskPlan) -> Self {
        let mut graph = Graph {
            rules,
            phase: Phase::Created,
            plan,
            iteration: 1,
            cycle: 0,
            errors: Vec::new(),
            board_notes: Vec::new(),
            tool_answers: Vec::new(),
            overall_assessment: None,
            outcome: None,
            deadlock_report: None,
            planning_context: Value::Null,
            strategy: None,
            given_plan: None,
            complexity_bp: None,
            shown: 0,
            plain: None,
            synthesis_tries: 0,
            synthesis_error: None,
            review_tries: 0,
            judged: None,
            refused_in_plan: Vec::new(),
            planning_tries: 0,
            control_tries: 0,
            compensating: Vec::new(),
            undone: BTreeMap::new(),
            closing: None,
            dirty: BTreeSet::new(),
            runnable: BTreeSet::new(),
            in_flight: BTreeSet::new(),
            stopped: BTreeSet::new(),
            open: BTreeSet::new(),
            dependents: BTreeMap::new(),
            chosen: Vec::new(),
            executed_in_cycle: false,
            idle_cycles: 0,
            undecided: None,
            in_cycle: false,
            turns: 0,
            cut: false,
            judged_done: false,
            ended_since_asked: false,
            approved: false,
            unseen: false,
            touched: BTreeSet::new(),
            at_their_word: false,
            handed: None,
            denied: false,
        };
        let ids: Vec<TaskId> = graph.plan.tasks.keys().cloned().collect();
        ids.iter().for_each(|id| graph.index(id));
        graph
    }

    /// Takes the answer of a call. One that nobody waits for is dropped.
    pub fn answered(&mut self, key: &GraphKey, answer: Answer, gates: &mut dyn Gates, out: &mut Outbox) {
        let is_waited_for = out.heard(key.clone());
        if matches!(key, GraphKey::Routed) {
            return self.handed_back(answer, gates, out);
        }
        if !is_waited_for || self.phase.is_terminal() {
            return;
        }
        match key {
            GraphKey::Plan { .. } => self.planned(answer, gates, out),
            GraphKey::Decide { .. } if self.rules.selection == Selection::Controller => {
                self.controlled(answer, gates, out);
            }
            GraphKey::Decide { .. } => self.decided(answer, gates, out),
            GraphKey::Evaluate { .. } => self.evaluated(answer, gates, out),
            GraphKey::Execute { task, attempt } => self.executed(task, *attempt, answer, gates, out),
            GraphKey::Consult { task, attempt, .. } => self.consulted(task, *attempt, answer, gates, out),
            GraphKey::Act { task, attempt } => self.acted(task, *attempt, answer, gates, out),
            GraphKey::Review { of, attempt: Some(attempt) } if self.rules.review == ReviewScope::Task => {
                self.reviewed(of, (*attempt, 1), answer, gates, out);
            }
            GraphKey::ReviewAgain { task, attempt, n } => self.reviewed(task, (*attempt, *n), answer, gates, out),
            GraphKey::Review { .. } => self.iteration_reviewed(answer, gates, out),
            GraphKey::Synthesize { .. } => self.synthesized(answer, gates, out),
            GraphKey::Format => self.formed(answer, out),
            GraphKey::Compensate { task } => self.compensated(task, answer, out),
            // The first are timers; the last has come back.
            GraphKey::Dependencies { .. } | GraphKey::Retry { .. } | GraphKey::Routed => {}
        }
        self.advance(gates, out);
    }

    /// A timer has fired: a backoff or a wait for dependencies is over.
    pub fn fired(&mut self, key: &GraphKey, gates: &mut dyn Gates, out: &mut Outbox) {
        if !out.came(key.clone()) {
            return;
        }
        match key {
            GraphKey::Dependencies { task } => self.waited_too_long(task, gates, out),
            GraphKey::Retry { task, .. } => self.retry(task, out),
            _ => {}
        }
        self.advance(gates, out);
    }

    /// The task that a call or timer is for.
    fn task_of<'k>(&self, key: &'k GraphKey) -> Option<&'k TaskId> {
        match key {
            GraphKey::Act { task, .. }
            | GraphKey::Consult { task, .. }
            | GraphKey::Dependencies { task }
            | GraphKey::Execute { task, .. }
            | GraphKey::Retry { task, .. }
            | GraphKey::ReviewAgain { task, .. } => Some(task),
            GraphKey::Review { of, .. } => Some(of).filter(|_| self.rules.review == ReviewScope::Task),
            _ => None,
        }
    }

    /// Does all that can be done now. Called after every change, also of what gates answer.
    pub fn advance(&mut self, gates: &mut dyn Gates, out: &mut Outbox) {
        self.after_review(gates, out);
        self.show_what_changed(gates, out);
        if self.phase != Phase::Executing {
            return;
        }
        self.schedule(gates, out);
        if gates.held().is_some() {
            return;
        }
        self.check_budget(gates, out);
        if self.phase != Phase::Executing || self.wants_more(out) {
            return;
        }
        match self.rules.selection {
            Selection::All | Selection::One => {
                if !self.evaluates(out) {
                    self.claim_all(gates, out);
                    self.end_of_iteration(gates, out);
                }
            }
            Selection::Supervisor | Selection::Speaker | Selection::Agent => self.next_cycle(gates, out),
            Selection::Controller => self.control(gates, out),
        }
    }

    /// Leaves a call. The hash of what is asked is noted with it.
    fn call(&self, call: Call, out: &mut Outbox) {
        if matches!(call.purpose, Purpose::Decide | Purpose::Plan | Purpose::Review | Purpose::Synthesize) {
            let data = json!({ "key": call.key, "purpose": call.purpose, "prompt_hash": prompt_hash(&call) });
            out.note(NoteKind::DecisionRequested, data);
        }
        out.call(call);
    }

    fn enter(&mut self, phase: Phase, out: &mut Outbox) {
        match self.phase.change(phase) {
            Ok(next) if next != self.phase => {
                out.note(NoteKind::PhaseChanged, json!({ "from": self.phase, "to": next }));
                self.phase = next;
            }
            Ok(_) => {}
            Err(why) => self.errors.push(why.to_string()),
        }
    }

    /// Moves a task, keeps the indexes, notes it. The table has the last word; `false` if it refused.
    fn set(&mut self, id: &TaskId, to: TaskStatus, by: Actor, reason: &str, out: &mut Outbox) -> bool {
        let Some(task) = self.plan.tasks.get_mut(id) else { return false };
        let from = match task.change(to, by) {
            Ok(from) if from == to => return true,
            Ok(from) => from,
            Err(why) => {
                out.note(NoteKind::TransitionRefused, json!({ "task": id, "from": why.from, "to": to, "by": by }));
                return false;
            }
        };
        if by == Actor::Human {
            self.touched.insert(id.clone());
        }
        task.ended_by_person = to.is_terminal() && by == Actor::Human;
        if to.is_terminal() {
            task.ended_at = Some(out.now());
        }
        if to == TaskStatus::NeedsRevision {
            task.tries_sent_back = task.tries;
        }
        let reason = Some(reason).filter(|reason| !reason.is_empty());
        out.note(
            NoteKind::TaskStatusChanged,
            json!({ "task": id, "from": from, "to": to, "by": by, "reason": reason }),
        );
        self.index(id);
        let over = from.is_terminal() != to.is_terminal();
        // Within an iteration a result counts before it is reviewed, and no more when it is sent back (FSS-40).
        let reviewed = |status: TaskStatus| status == TaskStatus::AwaitingReview;
        if over || (self.rules.review == ReviewScope::Iteration && reviewed(from) != reviewed(to)) {
            let waiting = self.dependents.get(id).cloned().unwrap_or_default();
            self.dirty.extend(waiting);
        }
        self.ended_since_asked |= over;
        true
    }

    /// Brings the indexes in line with a task.
    fn index(&mut self, id: &TaskId) {
        let Some(task) = self.plan.tasks.get(id) else { return };
        // FSP-01: step by step, the next one is the first in plan order.
        let one_by_one = self.rules.selection == Selection::One;
        let priority = if one_by_one { Priority::None } else { task.priority };
        let place = (priority, task.position, id.clone());
        if task.status.is_runnable() {
            self.runnable.insert(place)
        } else {
            self.runnable.remove(&place)
        };
        let place = (task.position, id.clone());
        if matches!(task.status, TaskStatus::AwaitingApproval | TaskStatus::Errored) {
            self.stopped.insert(place)
        } else {
            self.stopped.remove(&place)
        };
        // What awaits the review of its iteration holds no slot.
        let parked = task.status == TaskStatus::AwaitingReview && self.rules.review == ReviewScope::Iteration;
        if task.is_in_flight() && !parked {
            self.in_flight.insert(id.clone())
        } else {
            self.in_flight.remove(id)
        };
        if task.status.is_terminal() {
            self.open.remove(id)
        } else {
            self.open.insert(id.clone())
        };
        for edge in &task.edges {
            self.dependents.entry(edge.on.clone()).or_default().insert(id.clone());
        }
        if !task.status.is_terminal() {
            self.dirty.insert(id.clone());
        }
    }

    pub fn plan(&self) -> &TaskPlan {
        &self.plan
    }

    fn task(&self, id: &TaskId) -> Option<&Task> {
        self.plan.tasks.get(id)
    }

    /// A copy for gates, which must not see a task half changed.
    fn copy(&self, id: &TaskId) -> Option<Task> {
        self.plan.tasks.get(id).cloned()
    }

    /// Tasks that are planned now; recruits are none of them (§4.2 no. 21), nor is what a later plan took the place of.
    fn planned_tasks(&self) -> u32 {
        let replaced = |task: &&Task| task.cancelled == Some(CancelReason::Superseded);
        (self.plan.tasks.len() - self.plan.tasks.values().filter(replaced).count()) as u32
    }
}

#[cfg(test)]
mod tests;
