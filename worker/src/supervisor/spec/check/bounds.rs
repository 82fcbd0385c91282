//! The numbers of a spec: none is zero that bounds something, none is larger than what it is a part of.
//!
//! Invariant: with these bounds every loop of a run ends and every wait has a deadline. It knows no texts of other
//! systems.

use super::CheckResult;
use crate::supervisor::fields::FieldError;
use crate::supervisor::spec::Span;
use crate::supervisor::spec::preset::Family;
use crate::supervisor::spec::sections::PlanApproval;
use crate::supervisor::spec::whole::SupervisorSpec;

pub(super) fn check(spec: &SupervisorSpec) -> CheckResult {
    numbers(spec)?;
    spans(spec)?;
    ratios(spec)?;
    if spec.family() == Family::Chat && spec.run_loop.max_rounds.is_none() {
        return Err(FieldError::at("loop.max_rounds", "a conversation needs a bound (1 or more)"));
    }
    Ok(())
}

fn numbers(spec: &SupervisorSpec) -> CheckResult {
    let numbers = [
        ("loop.max_steps", Some(spec.run_loop.max_steps)),
        ("loop.max_iterations", Some(spec.run_loop.max_iterations)),
        ("loop.max_rounds", spec.run_loop.max_rounds),
        ("loop.no_progress", Some(spec.run_loop.no_progress)),
        ("dispatch.max_concurrency", spec.dispatch.max_concurrency),
        ("review.max_attempts", Some(spec.review.max_attempts)),
        ("failure.tries", Some(spec.failure.tries)),
        ("team.max_size", Some(spec.team.max_size)),
        ("mailbox.limit", Some(spec.mailbox.limit)),
        ("mailbox.queue", Some(spec.mailbox.queue)),
        ("mailbox.payload_max", Some(spec.mailbox.payload_max)),
        ("mailbox.fetch_window", Some(spec.mailbox.fetch_window)),
        ("delegation.parallel", Some(spec.delegation.parallel)),
        ("delegation.background_max", Some(spec.delegation.background_max)),
        ("speaker.manual_tries", Some(spec.speaker.manual_tries)),
        ("speaker.ledger.max_stalls", Some(spec.speaker.ledger.max_stalls)),
        ("speaker.ledger.json_retries", Some(spec.speaker.ledger.json_retries)),
        ("planning.approval.max_rounds", Some(spec.planning.approval.max_rounds)),
        ("planning.triggers.min_agents", Some(spec.planning.triggers.min_agents)),
        ("hitl.triggers.consecutive_failures", spec.hitl.triggers.consecutive_failures),
        ("synthesis.tries", Some(spec.synthesis.tries)),
        ("limits.history_events", spec.limits.history_events.map(|events| events.try_into().unwrap_or(u32::MAX))),
    ];
    let zero = |at: &str| FieldError::at(at, "expected a whole number of 1 or more, found 0");
    if let Some((at, _)) = numbers.iter().find(|(_, number)| *number == Some(0)) {
        return Err(zero(at));
    }
    let agent = spec.all_agents().into_iter().find(|(_, agent)| agent.tries == Some(0));
    agent.map_or(Ok(()), |(at, _)| Err(zero(&format!("{at}.tries"))))
}

fn spans(spec: &SupervisorSpec) -> CheckResult {
    let spans = [
        ("planning.approval.timeout", Some(spec.planning.approval.timeout)),
        ("hitl.approval.timeout", Some(spec.hitl.approval.timeout)),
        ("hitl.questions.timeout", spec.hitl.questions.map(|questions| questions.timeout)),
        ("hitl.triggers.decision_timeout", spec.hitl.triggers.decision_timeout),
        ("delegation.timeout", Some(spec.delegation.timeout)),
        ("delegation.wait_max", Some(spec.delegation.wait_max)),
        ("delegation.sleep_max", Some(spec.delegation.sleep_max)),
        ("dependencies.wait_timeout", spec.dependencies.wait_timeout),
        ("dependencies.topics.timeout", Some(spec.dependencies.topics.timeout)),
        ("dependencies.topics.backoff", Some(spec.dependencies.topics.backoff)),
        ("mailbox.ttl", Some(spec.mailbox.ttl)),
        ("budget.wall", spec.budget.wall),
    ];
    let zero = |at: &str| FieldError::at(at, "expected a duration longer than zero, found 0s");
    if let Some((at, _)) = spans.iter().find(|(_, span)| span.is_some_and(Span::is_zero)) {
        return Err(zero(at));
    }
    // SHH-25: a review of a plan is bounded.
    let (most, found) = (PlanApproval::TIMEOUT_MAX, spec.planning.approval.timeout);
    if found > most {
        let why = format!("a review of a plan waits for {most} at most, found {found}");
        return Err(FieldError::at("planning.approval.timeout", why));
    }
    let topics = &spec.dependencies.topics;
    if topics.backoff > topics.backoff_max {
        let why = format!("the first wait ({}) is longer than the longest ({})", topics.backoff, topics.backoff_max);
        return Err(FieldError::at("dependencies.topics.backoff", why));
    }
    let agents = spec.all_agents().into_iter().map(|(at, agent)| (at, agent.timeout));
    let roles = spec.roles().into_iter().map(|(at, role)| (at, role.timeout));
    let none = agents.chain(roles).find(|(_, timeout)| timeout.is_some_and(Span::is_zero));
    none.map_or(Ok(()), |(at, _)| Err(zero(&format!("{at}.timeout"))))
}

fn ratios(spec: &SupervisorSpec) -> CheckResult {
    if let Some(bp) = spec.failure.threshold_bp.filter(|bp| *bp > 10_000) {
        let why = format!("expected basis points from 0 to 10000, found {bp}");
        return Err(FieldError::at("failure.threshold_bp", why));
    }
    if spec.delegation.base_depth > spec.delegation.max_depth {
        let (base, max) = (spec.delegation.base_depth, spec.delegation.max_depth);
        // SUP-08: the text of a process that was started too deep.
        let why = format!("Maximum delegation depth ({max}) exceeded (depth={base}). Cannot delegate further.");
        return Err(FieldError::at("delegation.base_depth", why));
    }
    Ok(())
}
