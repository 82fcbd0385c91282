//! A tool turn: what becomes of the calls of one answer of a model, from the first look at them until all are answered. The one
//! place for it: a lone agent (`agent::machine`) and the sessions of a supervisor (`supervisor::agents`) are its hosts, which only
//! say what a tool is and how a call is made.
//!
//! ```text
//!   Queued ──► (known · arguments · plan) ──► Asking ──► Approved ──► (a place · budget) ──► Running ──► Done
//!      └── Refused (limits · rounds · repetition · breaker) ──────── a person says no ───────────────────►┘
//! ```
//!
//! Invariant: a call goes through these gates in this order and in the order of the answer, is made at most once, and has exactly
//! one answer; a refusal is an answer that the model reads. What a plan is made of has been judged by the tool's schema: only
//! [`fitting`] makes [`FittingArguments`]. The watch judges all calls of an answer before the first of them is looked at, so that
//! it makes no difference which was answered first. Pure; it tells nobody anything.
//!
//! What the hosts set differently, and why:
//!
//! | | a lone agent | a session |
//! |---|---|---|
//! | `FanOut::in_order` | no: people see all that an answer needs at once, and free calls go on | yes: what follows on a call must not overtake it, and a denial ends the turn before it begins |
//! | `WatchRules::rounds` | in a row, so that a tool may be asked again when something has changed | none: a repeated call counts in the whole turn (`repetitions`), as the systems that are played do |
//! | `WatchRules::most` calls of one answer | 64 | no bound but its limits |
//! | a limit that is reached | people are asked for more (`ledger`) | the turn ends with what was said (`WatchRules::per_turn`, `total`) |
//! | `TurnHost::pay` | when a call is made: people can add to the budget | before people are asked: nobody looks at what nobody pays for |
//! | how an answer is told | by its place in the history | in the words of the system that is played |

mod calls;
#[cfg(test)]
mod tests;
mod watch;

use serde_json::{Map, Value};

pub use self::calls::call_hash;
pub(crate) use self::calls::{CALLS_MAX, CallEvent, CallState, ToolCalls, TurnCall};
pub use self::watch::CallRefusal;
pub(crate) use self::watch::{CallWatch, WatchRules};
use super::schema;

/// How many calls of an answer are under way at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FanOut {
    pub(crate) most: usize,
    /// A call takes its place before it is looked at, and keeps it while a person is asked.
    pub(crate) in_order: bool,
}

/// Arguments that conform to the schema of their tool.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct FittingArguments<'a>(&'a Map<String, Value>);

impl<'a> FittingArguments<'a> {
    pub fn members(self) -> &'a Map<String, Value> {
        self.0
    }
}

/// Judges the arguments of a call. Without a schema somebody else judges what is in them.
pub fn fitting<'a>(schema: Option<&Value>, arguments: &'a Value) -> Result<FittingArguments<'a>, CallRefusal> {
    let Value::Object(members) = arguments else { return Err(CallRefusal::NoObject) };
    let problems = schema.map_or_else(Vec::new, |schema| schema::problems(schema, arguments));
    if problems.is_empty() { Ok(FittingArguments(members)) } else { Err(CallRefusal::Misfit { problems }) }
}

/// What is to be done for a call.
pub(crate) enum TurnPlan<P, A> {
    Make(P),
    /// It cannot be made, or is answered already.
    Answer(A),
    /// Nothing yet: the host waits for something else first.
    Later,
}

/// Whose calls they are.
pub(crate) trait TurnHost {
    /// Whose turn, where a host has several.
    type Seat: Copy;
    /// Where it says what it wants.
    type Out;
    type Call: TurnCall + Clone;
    /// What people are asked under.
    type Question: PartialEq;
    /// What is under way for a call.
    type Work: PartialEq;
    /// What the model is told.
    type Answer;
    type Tool;
    type Plan;
    /// What there is too little of.
    type Short;

    fn calls(&mut self, seat: Self::Seat) -> Option<&mut CallsOf<Self>>;
    fn fan_out(&self, seat: Self::Seat) -> FanOut;
    /// The tool of that name; a model can call nothing else.
    fn tool(&self, seat: Self::Seat, name: &str) -> Option<Self::Tool>;
    /// By what its arguments are judged here.
    fn schema(&self, tool: &Self::Tool) -> Option<Value>;
    /// A call is looked at for the first time.
    fn looks_at(&mut self, seat: Self::Seat, call: &Self::Call, out: &mut Self::Out);
    /// Whether it is paid for; an answer if not.
    fn pay(&mut self, seat: Self::Seat, call: &Self::Call, approved: bool, out: &mut Self::Out)
    -> Option<Self::Answer>;
    fn plan(
        &mut self,
        seat: Self::Seat,
        call: &Self::Call,
        tool: Self::Tool,
        arguments: FittingArguments<'_>,
        out: &mut Self::Out,
    ) -> TurnPlan<Self::Plan, Self::Answer>;
    /// Asks people, if the tool wants them to be asked.
    fn question(&mut self, seat: Self::Seat, at: usize, call: &Self::Call, plan: &Self::Plan)
    -> Option<Self::Question>;
    /// Makes the call of that number, and sets it running; or answers it at once.
    fn begin(
        &mut self,
        seat: Self::Seat,
        at: usize,
        call: &Self::Call,
        plan: Self::Plan,
        out: &mut Self::Out,
    ) -> Result<Option<Self::Answer>, Self::Short>;
    /// A refusal in the words of the host.
    fn refused(&mut self, seat: Self::Seat, call: &Self::Call, why: CallRefusal) -> Self::Answer;
    /// Gives a call its answer.
    fn answer(&mut self, seat: Self::Seat, at: usize, answer: Self::Answer, out: &mut Self::Out);
}

/// The calls of a host.
pub(crate) type CallsOf<H> =
    ToolCalls<<H as TurnHost>::Call, <H as TurnHost>::Question, <H as TurnHost>::Work, <H as TurnHost>::Answer>;

/// Brings every call on as far as it can go. Whether all have their answers; only whoever hears so uses them.
pub(crate) fn carry_on<H: TurnHost>(host: &mut H, seat: H::Seat, out: &mut H::Out) -> Result<bool, H::Short> {
    // What is answered at once comes back here: whoever is at it already goes on.
    if host.calls(seat).is_none_or(|calls| std::mem::replace(&mut calls.looked_at, true)) {
        return Ok(false);
    }
    let mut at = 0;
    let mut went = Ok(true);
    while matches!(went, Ok(true)) && host.calls(seat).is_some_and(|calls| at < calls.len()) {
        went = advance(host, seat, at, out);
        at += 1;
    }
    let Some(calls) = host.calls(seat) else { return Ok(false) };
    calls.looked_at = false;
    went.map(|_| calls.is_done())
}

/// One call goes on by one state or more, as far as it can. Whether the next may be looked at.
fn advance<H: TurnHost>(host: &mut H, seat: H::Seat, at: usize, out: &mut H::Out) -> Result<bool, H::Short> {
    let fan_out = host.fan_out(seat);
    let Some(calls) = host.calls(seat) else { return Ok(false) };
    let Some((call, state)) = calls.get(at) else { return Ok(false) };
    let (approved, refusal) = match state {
        CallState::Queued => (false, None),
        CallState::Refused(why) => (false, Some(why.clone())),
        CallState::Approved => (true, None),
        CallState::Asking(_) | CallState::Running(_) | CallState::Done(_) => return Ok(true),
    };
    let call = call.clone();
    let is_full = calls.taken(fan_out) >= fan_out.most;
    if is_full && fan_out.in_order {
        return Ok(false);
    }
    let planned = match gates(host, seat, &call, approved, refusal, out) {
        Ok(plan) => plan,
        Err(answer) => TurnPlan::Answer(answer),
    };
    let plan = match planned {
        TurnPlan::Make(plan) => plan,
        TurnPlan::Later => return Ok(true),
        TurnPlan::Answer(answer) => {
            host.answer(seat, at, answer, out);
            return Ok(true);
        }
    };
    if !approved && let Some(question) = host.question(seat, at, &call, &plan) {
        if let Some(calls) = host.calls(seat) {
            calls.hear(at, CallEvent::Asked(question));
        }
        return Ok(true);
    }
    if !is_full && let Some(answer) = host.begin(seat, at, &call, plan, out)? {
        host.answer(seat, at, answer, out);
    }
    Ok(true)
}

/// What a call has to pass before people are asked.
fn gates<H: TurnHost>(
    host: &mut H,
    seat: H::Seat,
    call: &H::Call,
    approved: bool,
    refusal: Option<CallRefusal>,
    out: &mut H::Out,
) -> Result<TurnPlan<H::Plan, H::Answer>, H::Answer> {
    if !approved {
        host.looks_at(seat, call, out);
    }
    if let Some(why) = refusal {
        return Err(host.refused(seat, call, why));
    }
    if let Some(unpaid) = host.pay(seat, call, approved, out) {
        return Err(unpaid);
    }
    let Some(tool) = host.tool(seat, call.name()) else {
        return Err(host.refused(seat, call, CallRefusal::Unknown { tool: call.name().to_owned() }));
    };
    match fitting(host.schema(&tool).as_ref(), call.arguments()) {
        Ok(arguments) => Ok(host.plan(seat, call, tool, arguments, out)),
        Err(why) => Err(host.refused(seat, call, why)),
    }
}
