//! What people change of how they are asked, while a run is under way: here, and in every run below it (SHT-05, SHN-05).
//!
//! Invariant: a change that counts is passed on in the turn in which it was made, to every run below that has begun, each of
//! which passes it on itself; what begins later is given the rules as they are then. So nothing below asks less than what
//! was said here. A run below that cannot take it notes why, and nothing else changes.

use std::borrow::Cow;

use bosun_engine::{Failure, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::SupervisorRun;
use super::parts::RunGates;
use super::refusal::{Refused, WishRefusal};
use crate::supervisor::core::call_context::{of_its_kind, parts_of};
use crate::supervisor::core::key::Key;
use crate::supervisor::outbox::{Ask, Outbox};
use crate::supervisor::people::autonomy::Autonomy;
use crate::supervisor::people::signature::PEOPLE_RULES;
use crate::supervisor::spec::{Hitl, HitlMode, SupervisorSpec, Via, merge};

/// The updates that change how people are asked.
pub(super) const OF_PEOPLE: [&str; 3] = ["report_incident", "set_hitl_mode", "set_policy"];

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Change {
    update: String,
    input: Value,
}

/// What is read of a policy before it is taken.
#[derive(Default, Deserialize)]
#[serde(default)]
struct PolicyWish {
    #[serde(deserialize_with = "of_its_kind")]
    enabled: Option<bool>,
}

/// The same of a mode.
#[derive(Deserialize)]
struct ModeWish {
    mode: HitlMode,
}

impl SupervisorRun {
    /// One of those updates.
    pub(super) fn people_rules(&mut self, name: &str, value: &Value, out: &mut Outbox) -> Result<Value, Failure> {
        self.asks_people(name, value)?;
        let answer = self.parts.people_rules(name, value, out)?;
        self.tell_below(&Change { update: name.to_owned(), input: value.clone() }, out);
        Ok(answer)
    }

    /// The same, from the run above.
    pub(super) fn people_rules_from_above(&mut self, value: &Value, out: &mut Outbox) -> Result<(), Refused> {
        let refused = |why: String| Refused { kind: "Refused", why };
        let change = Change::deserialize(value).map_err(|why| refused(why.to_string()))?;
        if !OF_PEOPLE.contains(&change.update.as_str()) {
            return Err(refused(format!("`{}` changes nothing of how people are asked", change.update)));
        }
        // Whoever is below hears of it, also where this run has no use for it.
        self.tell_below(&change, out);
        if let Err(why) = self.asks_people(&change.update, &change.input) {
            // So does whoever begins below later.
            self.context.told.add(&change);
            return Err(why);
        }
        let changed = self.parts.people_rules(&change.update, &change.input, out);
        changed.map(|_| ()).map_err(|why| refused(why.message))
    }

    /// Agents are asked for by the run that called them.
    fn tell_below(&self, change: &Change, out: &mut Outbox) {
        let is_supervisor = |key: &&Key| self.calls.child(key).is_some_and(|child| child.agent.is_none());
        for key in self.parts.control.children().filter(is_supervisor) {
            out.ask(Ask::SignalChild { key: key.clone(), signal: PEOPLE_RULES, input: json!(change) });
        }
    }

    /// Without tasks of a plan, whether people are asked is decided when the run begins. A mode changes nothing while `hitl`
    /// is off, unless there is somebody below who may have it on.
    fn asks_people(&self, name: &str, value: &Value) -> Result<(), Refused> {
        let sets_mode = name == "set_hitl_mode";
        let switches_on = || parts_of::<PolicyWish>(value).enabled == Some(true);
        let wants = sets_mode || (name == "set_policy" && switches_on());
        let by_plan = self.strategy.asks_before_tasks();
        if wants && self.parts.gate.is_off() && !by_plan {
            return Err(WishRefusal::AsksNobody.into());
        }
        let passed_on = by_plan && self.may_have_supervisors();
        match sets_mode && !self.parts.escalations.rules().enabled && !passed_on {
            true => Err(WishRefusal::AsksInNoMode.into()),
            false => Ok(()),
        }
    }

    /// Whether an agent of this run may be a supervisor of its own.
    fn may_have_supervisors(&self) -> bool {
        let spec = &self.resolved.spec;
        let mut vias = spec.agents.iter().filter_map(|agent| agent.via.as_ref()).chain([&spec.via]);
        vias.any(|via| matches!(via, Via::Supervisor(_)))
    }

    /// The spec as a run of a task of this one is given it: with the rules of people as they are now.
    pub(super) fn spec_for_below(&self, now: Timestamp) -> Cow<'_, SupervisorSpec> {
        let spec = &self.resolved.spec;
        let mode = self.parts.autonomy.mode();
        let moved = mode != Autonomy::new(&spec.hitl, &spec.trust, now).mode();
        if !moved && self.parts.said.is_empty() {
            return Cow::Borrowed(spec);
        }
        let mut spec = spec.clone();
        spec.hitl = self.parts.escalations.rules().clone();
        begin_in(&mut spec, mode);
        Cow::Owned(spec)
    }

    /// What people have said here and above, as far as it holds for a supervisor that is an agent and has rules of its own.
    pub(super) fn told_to_agents(&self) -> ToldBelow {
        let (set, most) = self.parts.autonomy.told();
        let above = &self.context.told;
        ToldBelow {
            policy: merged(&above.policy, &Value::Object(self.parts.said.clone())),
            // An incident here came after what was set before this run began.
            set: set.or(above.set.filter(|_| most.is_none())),
            most: [most, above.most].into_iter().flatten().min_by_key(|mode| mode.level()),
        }
    }
}

/// What people have changed before a run below began that has rules of its own: here, and above.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ToldBelow {
    #[serde(skip_serializing_if = "Map::is_empty")]
    policy: Map<String, Value>,
    /// A person has set this mode.
    #[serde(skip_serializing_if = "Option::is_none")]
    set: Option<HitlMode>,
    /// After an incident nobody below is asked less than this.
    #[serde(skip_serializing_if = "Option::is_none")]
    most: Option<HitlMode>,
}

impl ToldBelow {
    pub(super) fn is_nothing(&self) -> bool {
        self.policy.is_empty() && self.set.is_none() && self.most.is_none()
    }

    /// A change that the run itself has no use for.
    fn add(&mut self, change: &Change) {
        if change.update == "set_hitl_mode" {
            self.set = parts_of::<Option<ModeWish>>(&change.input).map(|wish| wish.mode).or(self.set);
        } else if change.update == "set_policy" {
            self.policy = merged(&self.policy, &change.input);
        }
    }

    pub(super) fn change(&self, spec: &mut SupervisorSpec, now: Timestamp) -> Result<(), serde_json::Error> {
        let mut hitl = json!(spec.hitl);
        merge(&mut hitl, &Value::Object(self.policy.clone()));
        spec.hitl = serde_json::from_value::<Hitl>(hitl)?;
        let own = Autonomy::new(&spec.hitl, &spec.trust, now).mode();
        let careful = self.most.filter(|most| most.level() < own.level());
        if let Some(mode) = self.set.or(careful) {
            begin_in(spec, mode);
        }
        Ok(())
    }
}

/// A policy with what was said later in place of what was said before.
fn merged(before: &Map<String, Value>, later: &Value) -> Map<String, Value> {
    let mut policy = Value::Object(before.clone());
    merge(&mut policy, later);
    match policy {
        Value::Object(policy) => policy,
        _ => before.clone(),
    }
}

/// A spec that asks nobody has no mode.
fn begin_in(spec: &mut SupervisorSpec, mode: HitlMode) {
    if spec.hitl.enabled {
        (spec.hitl.mode, spec.trust.level) = (mode, None);
    }
}

impl RunGates {
    fn people_rules(&mut self, name: &str, value: &Value, out: &mut Outbox) -> Result<Value, Failure> {
        let refused = |why: String| Failure::from(Refused { kind: "Refused", why });
        match name {
            "set_hitl_mode" => {
                self.autonomy.set_mode(value, out).map_err(|why| refused(why.to_string()))?;
                Ok(json!({ "mode": self.autonomy.mode() }))
            }
            "report_incident" => {
                self.autonomy.report(value, out).map_err(|why| refused(why.to_string()))?;
                Ok(self.autonomy.view(out.now()))
            }
            _ => {
                self.escalations.set_policy(value).map_err(|why| refused(why.to_string()))?;
                self.said = merged(&self.said, value);
                let rules = self.escalations.rules();
                self.approvals.set_rules(rules.approval.clone());
                Ok(json!(rules))
            }
        }
    }
}
