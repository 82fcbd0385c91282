//! Who answers: the world of a scene, and what the spec's own script says.
//!
//! Invariant: an answer is one that somebody wrote down, in the scene's `world` or in the spec's `script`; where there is
//! none, there is none. It keeps no state and knows no time.

use std::time::Duration;

use serde_json::Value;

use super::asked::{Asked, SCENE};
use super::models::ModelCharge;
use super::rule::{Answer, Failing, Rule};
use crate::supervisor::outbox::Purpose;
use crate::supervisor::spec::{Family, Role, ScriptRule, SupervisorSpec, Via, fill, told_nobody};

/// What is answered, and when.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct WorldAnswer {
    pub(crate) after: Duration,
    pub(crate) result: Result<Value, Answer>,
    pub(crate) charge: ModelCharge,
}

impl WorldAnswer {
    fn free(after: Duration, result: Result<Value, Answer>) -> WorldAnswer {
        WorldAnswer { after, result, charge: ModelCharge::default() }
    }

    /// A program or a service that takes longer than its carrier waits is not heard.
    pub(crate) fn in_time(self, patience: Option<(Duration, String)>) -> WorldAnswer {
        match patience {
            Some((most, message)) if self.after > most => {
                WorldAnswer::free(most, Err(Answer::Fail { message, how: Failing::Late }))
            }
            _ => self,
        }
    }
}

/// The same spec, played by the world: scripted agents, and models unless the world has rules for models.
///
/// As with scripts, work that is no agent's is answered where the world has a rule for work without `agent`; nobody does it
/// otherwise, and the run says so.
pub(crate) fn to_world(spec: &mut SupervisorSpec, world: &[Rule]) {
    let keep_models = world.iter().any(Rule::is_of_models);
    let of_anybody = |rule: &ScriptRule| rule.on == Purpose::ExecuteWorker && rule.agent.is_none();
    let anybody = world.iter().any(Rule::is_of_anybody) || spec.script.0.iter().any(of_anybody);
    // Only in a plan there is work that is no agent's.
    let plans = spec.for_request().map_or_else(|| spec.family(), |(chosen, _)| chosen.family()) == Family::Graph;
    if !spec.via.is_scripted() || anybody || !plans {
        to_world_via(&mut spec.via, world, keep_models);
    } else {
        jobs(spec, world);
    }
    // Who says nothing is run as the spec says.
    let whole = if spec.via.is_scripted() { by_world() } else { spec.via.clone() };
    let change = |via: &mut Option<Via>| match via {
        Some(via) => to_world_via(via, world, keep_models),
        None if whole == by_world() => *via = Some(whole.clone()),
        None => {}
    };
    spec.agents.iter_mut().chain(&mut spec.manager_agent).for_each(|agent| change(&mut agent.via));
    let roles = [&mut spec.planner, &mut spec.supervisor, &mut spec.reviewer, &mut spec.synthesizer, &mut spec.advisor];
    let roles = roles.into_iter().flatten().chain(spec.services.values_mut());
    // Whom a role names is played by its own entry.
    roles.filter(|role| role.via.is_some() || role.agent.is_none()).for_each(|role| change(&mut role.via));
}

fn by_world() -> Via {
    Via::Activity(SCENE.to_owned())
}

/// What a run thinks itself is asked of the world, though nobody does its work. Somebody decides only where somebody says so.
fn jobs(spec: &mut SupervisorSpec, world: &[Rule]) {
    let decides = world.iter().any(|rule| rule.on == Purpose::Decide.as_str())
        || spec.script.0.iter().any(|rule| rule.on == Purpose::Decide);
    let thinks = [Purpose::Plan, Purpose::Review, Purpose::Synthesize];
    for purpose in thinks.into_iter().chain(decides.then_some(Purpose::Decide)) {
        if spec.role(purpose).is_none() {
            spec.services.insert(purpose, Role::default());
        }
    }
}

fn to_world_via(via: &mut Via, world: &[Rule], keep_models: bool) {
    if let Via::Supervisor(nested) = via {
        let inner = nested.spec.take().map(Value::Object);
        let inner = inner.map(|spec| match serde_json::from_value::<SupervisorSpec>(spec.clone()) {
            Ok(mut inner) => {
                to_world(&mut inner, world);
                serde_json::to_value(inner).unwrap_or(spec)
            }
            // The run itself says what is wrong with it.
            Err(_) => spec,
        });
        nested.spec = inner.and_then(|spec| spec.as_object().cloned());
    }
    if via.is_scripted() || (matches!(via, Via::Model(_)) && !keep_models) {
        *via = by_world();
    }
}

/// The answer to a call: the first rule of the world that fits, then the spec's own script.
pub(crate) fn answer_of(world: &[Rule], spec: Option<&SupervisorSpec>, asked: &Asked) -> Option<WorldAnswer> {
    if let Some(rule) = world.iter().find(|rule| rule.fits(asked)) {
        let result = match &rule.answer {
            Answer::Say(said) => Ok(fill(said, &asked.call)),
            Answer::Fail { message, how } => {
                let message = super::matcher::text(&fill(&Value::String(message.clone()), &asked.call));
                Err(Answer::Fail { message, how: *how })
            }
        };
        return Some(WorldAnswer { after: rule.after, result, charge: rule.charge });
    }
    let fail = |message: String| Answer::Fail { message, how: Failing::Final };
    // What a script has decided, the run has waited for itself.
    if asked.scripted.is_none()
        && let Some(scripted) = spec.and_then(|spec| scripted(spec, asked))
    {
        return Some(scripted);
    }
    match &asked.scripted {
        // What a script says without a rule is made up by nobody's file.
        Some(Err(why)) if why.starts_with("no scripted answer") => told(asked),
        Some(said) => Some(WorldAnswer::free(Duration::ZERO, said.clone().map_err(fail))),
        None => told(asked),
    }
}

/// Telling somebody needs no answer: without one, nobody was told.
fn told(asked: &Asked) -> Option<WorldAnswer> {
    let tells = matches!(
        asked.purpose?,
        Purpose::RecordDecomposition | Purpose::NotifyForApproval | Purpose::LogApprovalResult | Purpose::EmitProgress
    );
    tells.then(|| WorldAnswer::free(Duration::ZERO, Ok(told_nobody())))
}

fn scripted(spec: &SupervisorSpec, asked: &Asked) -> Option<WorldAnswer> {
    let call = asked.purpose.map(|_| &asked.call)?;
    let said = spec.has_rule(call).then(|| spec.scripted(call))?;
    let how = |retryable| if retryable { Failing::Retryable } else { Failing::Final };
    let result = said.result.map_err(|why| Answer::Fail { message: why.message, how: how(why.retryable) });
    Some(WorldAnswer::free(said.after.duration(), result))
}
