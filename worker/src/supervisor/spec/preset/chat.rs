//! Presets whose agents converse, delegate or hand over: supyagent, AutoGen, CrewAI, LangGraph, Swarm.
//!
//! Invariant: each sets what its rows name; no conversation is without a bound (supervisors.md §2.6 N19).

use crate::supervisor::spec::sections::{
    ChatTeam, DelegationScope, Fallback, OnDelegationTimeout, OnExhausted, OutputMode, Parallelism, PlanningMode,
    ProgressMessages, ReviewScope, RoundCount, Selection, SynthesisMode,
};
use crate::supervisor::spec::whole::{Authority, SupervisorSpec};

fn conversation(spec: &mut SupervisorSpec) {
    spec.planning.mode = PlanningMode::None;
    spec.planning.replan = false;
    spec.review.scope = ReviewScope::None;
    spec.failure.tries = 1;
    spec.synthesis.mode = SynthesisMode::LastMessage;
    spec.progress.messages = ProgressMessages::None;
    spec.dispatch.selection = Selection::Agent;
}

/// Supyagent's guards against a tool that always fails or is called in circles are its own.
fn unguarded(spec: &mut SupervisorSpec) {
    (spec.delegation.breaker, spec.delegation.repetition) = (0, 0);
}

pub(super) fn supyagent(spec: &mut SupervisorSpec) {
    conversation(spec);
    // Turns of an agent for one task; what its agents' own limits bound is tool calls.
    spec.run_loop.max_steps = 50;
    spec.authority = vec![Authority::Delegate, Authority::RequestInput, Authority::Finish];
}

pub(super) fn group_chat(spec: &mut SupervisorSpec) {
    conversation(spec);
    spec.dispatch.selection = Selection::Speaker;
    spec.run_loop.max_rounds = Some(10);
    spec.run_loop.count = RoundCount::MessagesWithOpening;
    spec.speaker.team = ChatTeam::GroupChat;
    spec.budget.on_exhausted = OnExhausted::Stop;
    spec.authority = vec![Authority::SelectSpeaker, Authority::RequestInput, Authority::Finish];
}

pub(super) fn selector(spec: &mut SupervisorSpec) {
    group_chat(spec);
    spec.run_loop.count = RoundCount::Turns;
    spec.speaker.team = ChatTeam::Selector;
    spec.speaker.fallback = Fallback::Previous;
    spec.speaker.allow_repeat = Some(false);
    spec.speaker.func_call_filter = false;
}

pub(super) fn magentic(spec: &mut SupervisorSpec) {
    selector(spec);
    spec.speaker.team = ChatTeam::Magentic;
    // Its orchestrator tells what it has found.
    spec.budget.on_exhausted = OnExhausted::Synthesize;
    spec.speaker.termination = None;
    spec.speaker.allow_repeat = None;
    spec.run_loop.max_rounds = Some(20);
    spec.planning.replan = true;
    spec.synthesis.mode = SynthesisMode::Synthesizer;
    spec.authority = vec![Authority::SelectSpeaker, Authority::Replan, Authority::Synthesize, Authority::Finish];
}

pub(super) fn swarm_team(spec: &mut SupervisorSpec) {
    selector(spec);
    spec.speaker.team = ChatTeam::Swarm;
    spec.speaker.allow_repeat = None;
    spec.authority = vec![Authority::HandOff, Authority::RequestInput, Authority::Finish];
}

pub(super) fn crewai(spec: &mut SupervisorSpec) {
    conversation(spec);
    unguarded(spec);
    // Nobody looks at a coworker in the background.
    spec.delegation.on_timeout = OnDelegationTimeout::Fail;
    spec.dispatch.parallelism = Parallelism::Sequential;
    spec.delegation.scope = DelegationScope::Assigned;
    // An agent of CrewAI has this many turns for a task.
    spec.run_loop.max_steps = 25;
    spec.synthesis.mode = SynthesisMode::LastOutput;
    spec.budget.on_exhausted = OnExhausted::Stop;
    spec.authority = vec![Authority::Delegate, Authority::RequestInput, Authority::Finish];
}

pub(super) fn langgraph(spec: &mut SupervisorSpec) {
    conversation(spec);
    unguarded(spec);
    spec.dispatch.selection = Selection::Speaker;
    // The step limit its users know.
    spec.run_loop.max_steps = 25;
    spec.handoff.history = OutputMode::LastMessage;
    (spec.handoff.messages, spec.handoff.back_messages) = (true, true);
    spec.authority = vec![Authority::HandOff, Authority::RequestInput, Authority::Finish];
}

pub(super) fn swarm(spec: &mut SupervisorSpec) {
    conversation(spec);
    unguarded(spec);
    spec.run_loop.max_rounds = Some(25);
    spec.run_loop.count = RoundCount::Messages;
    spec.handoff.history = OutputMode::FullHistory;
    (spec.handoff.messages, spec.handoff.back_messages) = (true, false);
    spec.authority = vec![Authority::HandOff, Authority::Finish];
}
