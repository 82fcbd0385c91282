//! Children: recruits and nested supervisors, as runs of this same workflow (SHN-16, SHN-26, FSS-23, LGS-08).
//!
//! Invariant: a child gets a whole spec of its own, made from its parent's by a pure function, and is one deeper; its end
//! is an answer like any other. Of its parent's budget it gets a part that is held for it, and what it spent is charged.
//!
//! Long: what a child is given, and what becomes of its end, stand in one place; the words are in `child_words`.

use std::time::Duration;

use bosun_engine::workflow::Cx;
use bosun_engine::{Failure, Payload, Seq, Timestamp};
use serde::Deserialize;
use serde_json::{Map, Value, json, to_value};

use super::child_end::{self, ChildEnd};
use super::child_words::{escalated, left_by, message_of, missing, rejected, why_failed, why_not, why_refused};
use super::inherited::keep_what_was_said;
use super::input::MoreContext;
use super::lease::lower;
use super::output::{HandedUp, NOTHING_DONE};
use super::refusal::CarryRefusal;
use super::rules_below::ToldBelow;
use super::{RunContext, SupervisorInput, SupervisorOutput, SupervisorRun, TaskReport};
use super::{lease, model};
use crate::agent::AgentOutput;
use crate::agent::ledger::Resource;
use crate::agent::spec::Share;
use crate::supervisor::core::account::{BUDGET_EXHAUSTED, Spent};
use crate::supervisor::core::call_context::{AskedWork, parts_of};
use crate::supervisor::core::calls::{Arrival, UnderWay};
use crate::supervisor::core::key::{BegunFor, Key};
use crate::supervisor::core::phase::Phase;
use crate::supervisor::core::strategy::TASK_REJECTED;
use crate::supervisor::graph::{Handed, PLAN_REVIEW_TIMED_OUT, left_undone};
use crate::supervisor::outbox::{Answer, Call, CallFailure, CallFailureKind, ChildKind, ChildTask, Outbox, Purpose};
use crate::supervisor::prompts::WorkerTurn;
use crate::supervisor::reading::text_of;
use crate::supervisor::spec::{Money, PlanningMode, Preset, Span, SupervisorSpec, SynthesisMode, fill};
use crate::supervisor::task::TaskStatus;
use crate::supervisor::team::ForTeam;
use crate::supervisor::team::roles::GENERALIST;

/// What a run below gets of the budget of this one: shares of what is used up by spending, and what is left of the rest.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct ChildBudget {
    pub(super) share: Option<Share>,
    pub(super) wall_ms: Option<u64>,
    pub(super) calls: Option<u64>,
    /// Its time is that of whoever does the work: nobody waits for what is under way when it is over.
    pub(super) timed: bool,
    /// Calls that do not say what they cost are not allowed.
    pub(super) needs_prices: bool,
}

impl ChildBudget {
    /// Whoever it is for has no more time than this.
    pub(super) fn within(mut self, time: Option<Duration>) -> Self {
        lower(&mut self.wall_ms, time.map(|time| u64::try_from(time.as_millis()).unwrap_or(u64::MAX)));
        self
    }
}

/// What a run below is told of the one above.
#[derive(Debug, Clone, Default)]
pub(super) struct FromAbove {
    /// Its workflow id: it is told what the run below waits for.
    pub(super) id: Option<String>,
    /// The policies that stand in place of those of its spec.
    pub(super) policies: Option<Value>,
    /// What people have changed.
    pub(super) told: ToldBelow,
    /// The messages to whoever it is for.
    pub(super) mail: Vec<Value>,
}

/// The input of a child of this kind: the parent's agents and script, and a task of its own.
pub(super) fn spec_of(
    parent: &SupervisorSpec,
    kind: ChildKind,
    task: ChildTask,
    depth: u32,
    part: ChildBudget,
    above: FromAbove,
) -> Result<Value, CarryRefusal> {
    let preset = match kind {
        ChildKind::SimpleTask => Preset::ShannonSimple,
        ChildKind::Dag => Preset::ShannonDag,
    };
    let ChildTask { query, role, agent, agent_id, plan, is_planned } = task;
    let mut spec = SupervisorSpec { preset: Some(preset), objective: query, ..preset.values() };
    spec.name = format!("{}-{}", parent.name, preset.name());
    (spec.agents, spec.script) = (parent.agents.clone(), parent.script.clone());
    (spec.services, spec.hitl, spec.trust) = (parent.services.clone(), parent.hitl.clone(), parent.trust.clone());
    // What plays the parent's agents plays its children's.
    spec.via = parent.via.clone();
    (spec.planner, spec.synthesizer) = (parent.planner.clone(), parent.synthesizer.clone());
    keep_what_was_said(parent, &mut spec)?;
    if is_planned {
        (spec.planning.mode, spec.synthesis.mode) = (PlanningMode::None, SynthesisMode::LastOutput);
    }
    let (own_limits, own_leave) = limits_of(&spec, part);
    let own_calls = spec.budget.llm_calls;
    let mail = Some(above.mail).filter(|mail| !mail.is_empty());
    let context = RunContext {
        depth: depth + 1,
        role,
        agent_id,
        more: MoreContext { agent, plan, policies: above.policies, mail, ..MoreContext::default() },
        shared: part.share.is_some() || part.calls.is_some(),
        own_limits,
        own_calls,
        own_leave,
        above: above.id,
        told: above.told,
        ..RunContext::default()
    };
    bound(&mut spec, part);
    let resolved = spec.without_idle()?.resolve_below()?;
    Ok(to_value(SupervisorInput { context, ..SupervisorInput::new(resolved) })?)
}

/// The input of a supervisor that is an agent of another one: the task is its objective. `above` is told what it waits for.
pub(super) fn nested(
    spec: &Value,
    call: &Call,
    depth: u32,
    part: ChildBudget,
    above: Option<String>,
    variables: Map<String, Value>,
    (told, now): (&ToldBelow, Timestamp),
) -> Result<Value, CarryRefusal> {
    let mut spec: SupervisorSpec = serde_json::from_value(spec.clone())?;
    spec.objective = objective(&spec.objective, call);
    if !variables.is_empty() && spec.takes_variables() {
        // CUG-37: they win over those of its own spec, as they stand now.
        spec.resume.get_or_insert_default().context_variables.extend(variables);
    }
    let (own_limits, own_leave) = limits_of(&spec, part);
    let own_calls = spec.budget.llm_calls;
    bound(&mut spec, part);
    if !told.is_nothing() {
        told.change(&mut spec, now)?;
        spec = spec.without_idle()?;
    }
    // SHN-40: whom the run above calls in a role, is in it below too.
    let role = AskedWork::of(call).role.filter(|role| role != GENERALIST);
    let role = role.filter(|_| spec.planning.mode != PlanningMode::None);
    let resolved = spec.resolve_below()?;
    let context = RunContext {
        depth: depth + 1,
        role,
        more: MoreContext {
            other: [("call".to_owned(), json!(call.context))].into_iter().collect(),
            ..Default::default()
        },
        shared: part.share.is_some() || part.calls.is_some(),
        own_limits,
        own_calls,
        own_leave,
        timed: part.timed,
        above,
        told: told.clone(),
        ..RunContext::default()
    };
    Ok(to_value(SupervisorInput { context, ..SupervisorInput::new(resolved) })?)
}

/// What a supervisor is asked that is an agent: what its own objective makes of the call, if that has a place for it; the
/// task; or the conversation, where that is more than the task.
fn objective(own: &str, call: &Call) -> String {
    let own = Value::String(own.to_owned());
    let filled = fill(&own, call);
    if filled != own && !text_of(&filled).trim().is_empty() {
        // Messages to it are for whoever works there, whatever place its objective has for the task (SHN-14).
        let text = text_of(&filled);
        return WorkerTurn::deserialize(&call.context).map_or_else(|_| text.clone(), |turn| turn.with_mail(&text));
    }
    let asked = AskedWork::of(call);
    let heard = match asked.goal() {
        Some(_) => asked.said_before() > 1,
        None => asked.said_before() > 0,
    };
    match asked.goal() {
        _ if heard && !call.prompt.is_empty() => call.prompt.clone(),
        // What an agent is given with its task by whoever calls it, and what its entry says of it (SUP-26, CUG-37, CRW-04).
        Some(goal) if asked.said_before() == 1 => told_to_agent(call).unwrap_or_else(|| goal.to_owned()),
        // What every other worker is told with its task (FSS-05, FSP-02).
        Some(goal) if call.purpose == Purpose::ExecuteWorker => {
            let turn = WorkerTurn::deserialize(&call.context).ok().filter(|turn| turn.goal == goal);
            turn.map_or_else(|| goal.to_owned(), |turn| turn.as_objective())
        }
        Some(goal) => goal.to_owned(),
        None => text_of(&own),
    }
}

/// The one message of a conversation that begins, behind the instructions of its agent.
fn told_to_agent(call: &Call) -> Option<String> {
    let text = |at: &str| call.context.pointer(at).and_then(Value::as_str).filter(|text| !text.trim().is_empty());
    let said = text("/messages/0/content")?;
    Some(match text("/instructions") {
        Some(instructions) => format!("{instructions}\n\n{said}"),
        None => said.to_owned(),
    })
}

/// The time that a nested supervisor has by its own spec.
pub(super) fn own_wall_ms(spec: &Value) -> Option<u64> {
    #[derive(Deserialize)]
    struct OfSpec {
        budget: OfBudget,
    }
    #[derive(Deserialize)]
    struct OfBudget {
        wall: Span,
    }
    parts_of::<Option<OfSpec>>(spec).map(|spec| spec.budget.wall.as_ms())
}

/// What its own spec allows: how much, and, where the run above does not, calls of unknown price.
fn limits_of(spec: &SupervisorSpec, part: ChildBudget) -> (Share, bool) {
    let own = Share { tokens: spec.budget.tokens, cost_micros: spec.budget.cost.map(Money::as_micros) };
    (own, part.needs_prices && (own.cost_micros.is_none() || spec.budget.allow_unpriced))
}

/// Its own budget may be less.
fn bound(spec: &mut SupervisorSpec, part: ChildBudget) {
    let Share { tokens, cost_micros } = part.share.unwrap_or_default();
    lower(&mut spec.budget.tokens, tokens);
    lower(&mut spec.budget.llm_calls, part.calls);
    let mut own = spec.budget.cost.map(Money::as_micros);
    if cost_micros.is_some() {
        spec.budget.allow_unpriced = !part.needs_prices && (own.is_none() || spec.budget.allow_unpriced);
    }
    if lower(&mut own, cost_micros) {
        spec.budget.cost = own.map(Money::from_micros);
    }
    let mut own = spec.budget.wall.map(Span::as_ms);
    if lower(&mut own, part.wall_ms) {
        spec.budget.wall = own.map(Span::from_ms);
    }
}

impl SupervisorRun {
    /// What a run below gets of the budget, if it begins now.
    pub(super) fn child_budget(&self, cx: &Cx<'_>) -> ChildBudget {
        let wall_ms = self.account.left_for_child(cx.now(), &self.awaited);
        let free = self.available();
        let calls = free.calls_for_child();
        ChildBudget { share: free.share(), wall_ms, calls, timed: false, needs_prices: free.needs_prices }
    }

    /// A child has ended: what it gave, or why it gave nothing.
    pub(super) fn child_resolved(&mut self, seq: Seq, result: Result<Payload, Failure>, out: &mut Outbox) {
        let (calls, last) = (self.account.loans.calls_of(seq), self.account.loans.had_the_last(seq));
        let share = self.account.loans.returned(seq);
        let end = ChildEnd::of(&result);
        let cost = bill_of(&end, child_end::is_lost(&result), share, calls);
        if cost.calls == 0 {
            self.account.called_nobody();
        }
        let Some(UnderWay::Child { key, child }) = self.calls.ended(seq) else {
            return self.bill_came(seq, cost, end, out);
        };
        self.settle(&key, cost, out);
        out.awaited_mut().waits_below(&key, false);
        self.parts.control.unregister(&key);
        self.parts.below.ended(&child.workflow_id);
        let failure = result.err();
        if let ChildEnd::Supervisor(report) = &end {
            self.told_below(&key, report, share.filter(|_| last), out);
        }
        // Only the answer of an agent has a place for variables: a function shows all that it gives to the model.
        let shares = key.begun_for() == BegunFor::Step;
        let answer = match (child.agent, end, failure) {
            (None, ChildEnd::Supervisor(report), _) if child.too_slow.is_some() && is_too_slow(&report) => {
                Err(gave_up(&report, child.too_slow.unwrap_or_default()))
            }
            (Some(purpose), ChildEnd::Agent(output), failure) => {
                self.agent_ended(purpose, &child.lent, *output, failure.as_ref(), out)
            }
            (Some(_), _, Some(failure)) => Err(agent_failed(&failure)),
            (Some(_), _, None) => Err(CallFailure::error("what the agent gave at its end cannot be read")),
            (None, ChildEnd::Supervisor(report), failure) if key.begun_for() == BegunFor::Request => {
                self.request_ended(*report, failure.as_ref(), out)
            }
            (None, ChildEnd::Supervisor(report), failure)
                if !failure.as_ref().is_some_and(Failure::is_canceled)
                    && is_spent(&report)
                    && (last || self.used_its_part(&report, share, calls)) =>
            {
                Err(CallFailure { kind: CallFailureKind::Spent, message: why_not(&report) })
            }
            (None, ChildEnd::Supervisor(report), None) => given(*report, shares),
            (None, ChildEnd::Supervisor(report), Some(failure)) => Err(failed(&failure, Some(*report))),
            (None, _, Some(failure)) => Err(failed(&failure, None)),
            (None, _, None) => Err(CallFailure::error("the report of the run below cannot be read")),
        };
        self.hear(Arrival::Answer { key, answer }, out);
    }

    /// What a report of a run below is for beside its answer. `last`: what it was lent, where that was the last.
    fn told_below(&mut self, key: &Key, report: &SupervisorOutput, last: Option<Share>, out: &mut Outbox) {
        self.escalated_below(key, report, out);
        self.left_undone_below(key, report);
        self.left_work_below(key, report);
        self.had_the_last(report, last, out);
        if self.strategy.phase().is_terminal() && key.begun_for() == BegunFor::Request {
            self.strategy.ended_cut(report.tasks.clone());
        }
    }

    /// Whether what a run below was lent is used up, or nothing is left here. What its own spec limits is its own.
    fn used_its_part(&self, report: &SupervisorOutput, lent: Option<Share>, calls: Option<u64>) -> bool {
        let used = |lent: Option<u64>, spent: u64| lent.is_some_and(|lent| spent >= lent);
        let Share { tokens, cost_micros } = lent.unwrap_or_default();
        let all = used(tokens, report.tokens) || used(cost_micros, report.cost_micros) || used(calls, report.calls);
        all || self.account.balance().used_up().is_some()
    }

    /// A run below was given the last of what there was: where nobody may give anything back, what is left pays for no other.
    fn had_the_last(&mut self, report: &SupervisorOutput, lent: Option<Share>, out: &mut Outbox) {
        let shared = lent.is_some_and(|lent| lent != Share::default());
        let nobody_else = self.account.loans.lent() == Share { tokens: Some(0), cost_micros: Some(0) };
        if shared && nobody_else && is_spent(report) {
            self.account.too_little_is_left();
            out.set_budget(self.account.balance());
        }
    }

    /// A child that was cancelled has ended: what it cost, and what it leaves.
    fn bill_came(&mut self, seq: Seq, cost: Spent, end: ChildEnd, out: &mut Outbox) {
        let Some(key) = self.calls.bill_came(seq) else { return };
        self.account.charge_late(cost);
        out.set_budget(self.account.balance());
        if let ChildEnd::Supervisor(report) = end {
            self.left_undone_below(&key, &report);
            if key.begun_for() == BegunFor::Request {
                self.strategy.ended_cut(report.tasks);
            }
        }
    }

    /// SHN-62: what a run below could not undo is told here too, whatever becomes of the work it was begun for.
    fn left_undone_below(&mut self, key: &Key, report: &SupervisorOutput) {
        let whose = match key.begun_for() {
            BegunFor::Task(task) => format!(" (the run below for task {task})"),
            BegunFor::Request | BegunFor::Undoing | BegunFor::Step | BegunFor::Other => String::new(),
        };
        let left = left_undone(&report.tasks, &report.errors).into_iter();
        self.left_below.extend(left.map(|left| left + &whose));
    }

    /// What a run below has done before it failed is undone with the rest; one that was cancelled has undone it itself (SHN-62).
    fn left_work_below(&mut self, key: &Key, report: &SupervisorOutput) {
        let BegunFor::Task(task) = key.begun_for() else { return };
        let left = left_by(report);
        // A synthesis of nothing is no work.
        let gave = |task: &TaskReport| task.status == TaskStatus::Completed || task.brief.is_some();
        let stands = |task: &TaskReport| task.undone != Some(true) && gave(task);
        let worked = if report.tasks.is_empty() { !left.is_empty() } else { report.tasks.iter().any(stands) };
        if !report.success && report.status != Phase::Cancelled.as_str() && worked {
            self.strategy.left_below(task, Some(json!(left)).filter(|_| !left.is_empty()));
        }
    }

    /// FSS-25: what a reviewer below handed upward is shown to people here too, with the reviewer's words.
    fn escalated_below(&mut self, key: &Key, report: &SupervisorOutput, out: &mut Outbox) {
        let own = escalated(report)
            .map(|task| HandedUp { task: task.task_id.clone(), words: task.error.clone().unwrap_or_default() });
        for HandedUp { task, words } in own.chain(report.handed_up.iter().cloned()) {
            let up = match key.begun_for() {
                BegunFor::Task(own) => {
                    HandedUp { task: own.clone(), words: format!("{words} (task {task} of the run below)") }
                }
                BegunFor::Request => HandedUp { task, words },
                BegunFor::Undoing | BegunFor::Step | BegunFor::Other => continue,
            };
            self.parts.escalations.handed_up(up.task.clone(), &up.words, out);
            self.handed_up.push(up);
        }
    }

    /// What came of the request that was handed on. What was done there counts for the trust in this run (SHT-06).
    fn request_ended(&mut self, report: SupervisorOutput, failure: Option<&Failure>, out: &mut Outbox) -> Answer {
        let cancelled = failure.filter(|failure| failure.is_canceled());
        if cancelled.is_some() && !self.strategy.phase().is_terminal() {
            self.strategy.ended_cut(report.tasks.clone());
        }
        for task in report.tasks.iter().filter(|task| task.attempts > 0) {
            if matches!(task.status, TaskStatus::Completed | TaskStatus::Failed) {
                self.parts.autonomy.task_ended(task.status == TaskStatus::Completed, out);
            }
        }
        if let Some(failure) = cancelled {
            return Err(failed(failure, Some(report)));
        }
        let said = report.error.clone().or_else(|| failure.map(message_of));
        let reason = report.reason.as_ref().filter(|reason| reason.code != NOTHING_DONE);
        let why = said.or_else(|| reason.map(|reason| reason.message.clone()));
        let why = why.map(|why| if was_refused(&report) { rejected(&why, &report) } else { why });
        let phase = if report.status == Phase::Partial.as_str() { Phase::Partial } else { Phase::Completed };
        Ok(json!(Handed {
            phase,
            success: report.success,
            result: report.final_result.filter(|result| failure.is_none() && !result.is_null()),
            why,
            code: reason.map(|reason| reason.code.clone()),
            said_no: report.said_no,
            not_done: report.reason.map(|reason| reason.tasks).unwrap_or_default(),
            tasks: report.tasks,
        }))
    }

    /// What an agent gave, or why it gave nothing.
    fn agent_ended(
        &mut self,
        purpose: Purpose,
        lent: &[Resource],
        output: AgentOutput,
        failure: Option<&Failure>,
        out: &mut Outbox,
    ) -> Answer {
        self.lent_in_vain(&output.stop, lent, out);
        match failure {
            Some(failure) if failure.is_canceled() => Err(agent_failed(failure)),
            _ if lease::is_used_up(&output.stop, lent) => {
                Err(CallFailure { kind: CallFailureKind::Spent, message: model::spent_words(&output.stop) })
            }
            _ => model::given(self.strategy.reads(purpose), output),
        }
    }
}

/// An agent that somebody cancelled is called again while its task has tries: they ended this call, not the task.
fn agent_failed(failure: &Failure) -> CallFailure {
    let kind = if failure.is_canceled() { CallFailureKind::Canceled } else { CallFailureKind::Error };
    CallFailure { kind, message: failure.root().message.clone() }
}

/// What this run has cancelled itself it does not wait for: somebody else wanted that.
fn failed(failure: &Failure, report: Option<SupervisorOutput>) -> CallFailure {
    let cancelled = CallFailureKind::CancelledBelow;
    let Some(report) = report else {
        let kind = if failure.is_canceled() { cancelled } else { CallFailureKind::Error };
        return CallFailure { kind, message: message_of(failure) };
    };
    let kind = match failure.is_canceled() && !was_refused(&report) {
        true => cancelled,
        false => kind_of(&report),
    };
    let is_refused = kind != cancelled && kind != CallFailureKind::Error;
    CallFailure { kind, message: why_failed(failure, &report, is_refused) }
}

/// Whether whoever gave a run below its work may begin it again. Whom a person has said no to is not, whatever else went
/// wrong: they would be asked once more; and neither is what a reviewer there has handed upward (FSS-25).
fn kind_of(report: &SupervisorOutput) -> CallFailureKind {
    match (was_refused(report), report.said_no) {
        (true, true) => CallFailureKind::SaidNo,
        (true, false) => CallFailureKind::Rejected,
        (false, true) => CallFailureKind::SaidNoBeside,
        (false, false) if escalated(report).next().is_some() || !report.handed_up.is_empty() => {
            CallFailureKind::HandedUp
        }
        (false, false) => CallFailureKind::Error,
    }
}

/// Its time was over. What people and reviewers said there counts all the same.
fn gave_up(report: &SupervisorOutput, message: String) -> CallFailure {
    let kind = match kind_of(report) {
        CallFailureKind::Error => CallFailureKind::Timeout,
        kind => kind,
    };
    CallFailure { kind, message }
}

/// What a run below spent. One that was lost without a word may have made all the calls that it was lent.
fn bill_of(end: &ChildEnd, lost: bool, share: Option<Share>, calls: Option<u64>) -> Spent {
    let cost = end.spent(lost.then(|| share.unwrap_or_default()));
    match end {
        ChildEnd::Nothing if lost => Spent { calls: calls.unwrap_or_default().max(cost.calls), ..cost },
        _ => cost,
    }
}

/// Whether a run below has left something undone for want of budget.
fn is_spent(report: &SupervisorOutput) -> bool {
    !report.success && report.code.as_deref() == Some(BUDGET_EXHAUSTED)
}

/// Whether a run below was given up at the end of its time.
fn is_too_slow(report: &SupervisorOutput) -> bool {
    report.out_of_time && !was_refused(report)
}

/// Whether a run below has ended for what a person said, or did not say: asked again they would be asked the same.
fn was_refused(report: &SupervisorOutput) -> bool {
    report.code.as_deref().is_some_and(|code| [TASK_REJECTED, PLAN_REVIEW_TIMED_OUT].contains(&code))
}

/// Of a child's report its result is what counts, where the child says that it did what it had to: a report of success
/// that is none does not become one a level higher, and what a person said no to is said to have been that. What its agent
/// wants of the team counts whatever became of its work (SHN-14, SHN-26).
///
/// `shares`: whoever asked keeps variables, and gets those that came of it (CUG-37).
fn given(mut report: SupervisorOutput, shares: bool) -> Answer {
    let ForTeam { recruit, send } = std::mem::take(&mut report.for_team);
    let variables = report.details.get_mut("context_variables").map(Value::take).filter(|_| shares);
    let mut answer = result_of(report)?;
    if let (Some(fields), Some(variables)) = (answer.as_object_mut(), variables.filter(is_filled)) {
        fields.insert("context_variables".to_owned(), variables);
    }
    let Some(fields) = answer.as_object_mut().filter(|_| !recruit.is_empty() || !send.is_empty()) else {
        return Ok(answer);
    };
    fields.extend([("recruit".to_owned(), recruit.into()), ("send".to_owned(), send.into())]);
    Ok(answer)
}

fn is_filled(variables: &Value) -> bool {
    variables.as_object().is_some_and(|variables| !variables.is_empty())
}

fn result_of(mut report: SupervisorOutput) -> Answer {
    if !report.success {
        let message = match kind_of(&report) {
            CallFailureKind::Error => return Ok(json!({ "success": false, "reason": why_not(&report) })),
            CallFailureKind::HandedUp => why_not(&report),
            _ => why_refused(&report),
        };
        return Err(CallFailure { kind: kind_of(&report), message });
    }
    // Who has done its task and has nothing to show for it has done it.
    let mut result = report.final_result.take().unwrap_or_default();
    // What a limit has stopped, or was lost, is told with the words that are there, as to whoever gives work to an agent of the
    // same run.
    let missing = missing(&report);
    if let Value::String(text) = &mut result
        && !missing.is_empty()
    {
        *text = format!("{text}\n[{}]", missing.join("; ")).trim_start().to_owned();
    }
    Ok(json!({ "result": result }))
}
