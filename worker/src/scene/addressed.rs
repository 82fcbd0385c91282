//! To whom an act of people goes, and which request it answers.
//!
//! Invariant: an act goes to one run: the one that it names, or the one that asks. A request that is over can be named
//! too, so that a scene can answer late, twice and in the wrong place. It sends nothing.

use bosun_engine::*;
use serde_json::{Value, json};

use super::acts::names;
use super::life::{Life, Stuck};
use super::names::or_near;
use super::people::TimedAct;

/// What acts call the first run.
const ROOT: &str = "root";
/// In the name of a plan that somebody sees to.
pub(super) const PLAN: &str = "/plan/";

impl Life<'_> {
    /// What the act is about: what its condition was true of, or the request that it names.
    pub(super) fn meant(&mut self, cue: &TimedAct, of: &Value) -> Result<Value, Stuck> {
        let Some(which) = &cue.which else {
            let plan = cue.is_of_plan() && of.is_null();
            let seen = self.outside.taken.iter().rev().find(|(takes, _)| plan && takes.contains(PLAN));
            return Ok(seen.map_or_else(|| of.clone(), |(_, of)| of.clone()));
        };
        let mut taken = self.outside.taken.iter().rev();
        let known = taken.find(|(_, of)| names(&of["request"], which)).map(|(_, of)| of.clone());
        match known.or_else(|| self.noted_request(which)) {
            Some(of) => Ok(of),
            None => Err(Stuck::Refused(format!("{}: nobody was ever asked about `{which}`", cue.shown()))),
        }
    }

    /// A request that a run has noted, the last of that name.
    fn noted_request(&self, which: &str) -> Option<Value> {
        let asks = |kind: &str| matches!(kind, "ApprovalRequested" | "InterruptRaised");
        let mut noted = self.outside.notes.iter().rev().filter(|note| asks(&note.kind));
        let request = &noted.find(|note| names(&note.data, which))?.data;
        let run: RunId = request["id"].as_str()?.split_once('/')?.0.parse().ok()?;
        let target = Target::run(self.outside.runs.get(&run)?.workflow_id.clone(), run);
        Some(json!({ "target": target, "request": request }))
    }

    /// The run whose plan is meant, where the act is sent to another one.
    pub(super) fn plan_of(&self, cue: &TimedAct, of: &Value) -> Value {
        let asks = &of["target"]["workflow_id"];
        let to = cue.to.as_ref().and_then(|_| self.addressee(cue, of).ok());
        if to.is_some_and(|to| *asks != to.workflow_id.as_str()) { asks.clone() } else { Value::Null }
    }

    /// The run that an act is sent to.
    pub(super) fn addressee(&self, cue: &TimedAct, of: &Value) -> Result<Target, String> {
        let root = || Target::workflow(WorkflowId::of("scene"));
        match cue.to.as_deref() {
            None => {
                let mut target: Target = serde_json::from_value(of["target"].clone()).unwrap_or_else(|_| root());
                target.run_id = target.run_id.map(|run| self.outside.last_of(run));
                Ok(target)
            }
            Some(ROOT) => Ok(root()),
            Some(name) => self.named_run(name),
        }
    }

    /// A run by the name of its spec; the open one, if there is one.
    fn named_run(&self, name: &str) -> Result<Target, String> {
        let specs = || self.outside.runs.iter().filter_map(|(id, run)| Some((id, run, run.spec.as_ref()?)));
        let mut found: Vec<_> = specs().filter(|(_, _, spec)| spec.name == name).collect();
        found.sort_by_key(|(_, run, _)| run.closed.is_some());
        let target = found.first().map(|(id, run, _)| Target::run(run.workflow_id.clone(), **id));
        target.ok_or_else(|| {
            let known: Vec<&str> = specs().map(|(_, _, spec)| spec.name.as_str()).chain([ROOT]).collect();
            format!("there is no run of the name `{name}`{}; there are: {}", or_near(name, &known), known.join(", "))
        })
    }
}
