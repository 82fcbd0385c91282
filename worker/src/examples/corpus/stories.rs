//! The stories of the corpus: what is started, and what happens to it from outside.
//!
//! Invariant: names and what they show are unique and never change; a story that is there is not told differently. One
//! line or two a story, in a file a feature; this file says what a story is, and in which order they are told.

mod activities;
mod lifes;
mod machines;
mod messages;
mod resets;
mod sagas;
mod structure;

use std::time::Duration;

use bosun_engine::*;
use serde_json::{Value, json};

use super::machine::STEP_MACHINE;
use super::programs::{machine_program, program};
use crate::examples::kitchen_sink::KITCHEN_SINK;
use crate::examples::order_saga::ORDER_SAGA;

pub(super) enum StoryAction {
    Signal(&'static str, Value),
    Update(&'static str, Value),
    Cancel,
    Terminate,
    Pause,
    Unpause,
    PauseActivity(&'static str),
    UnpauseActivity(&'static str),
    Sleep(u64),
    /// Until the execution has ended.
    Finish,
    /// The pending activity, by its token.
    Complete(ActivityCompletion),
    /// Another run of the story.
    TerminateOther(&'static str),
    Query(&'static str),
    /// Another run with this suffix, started together with a signal.
    SignalWithStart(&'static str),
    /// Reads the history as a subscriber does, and finds every event once.
    Follow,
    /// Deletes another, closed run, and keeps house.
    Delete(&'static str),
    /// Exports the run as JSON, imports it and forks that.
    ForkFile(&'static str),
    Restart,
    /// Back to an earlier point, under the same id.
    Reset(ResetTo, ResetReapply),
    /// Under another id: at an event, with changes.
    Fork(&'static str, Option<u64>, Vec<ForkChange>),
}

pub(super) struct Story {
    pub(super) name: String,
    pub(super) shows: String,
    pub(super) rows: Vec<&'static str>,
    pub(super) workflow_type: &'static str,
    pub(super) input: Value,
    pub(super) options: fn(&mut StartWorkflow),
    pub(super) acts: Vec<StoryAction>,
}

#[derive(Default)]
struct StoryList(Vec<Story>);

impl StoryList {
    fn tell(
        &mut self,
        workflow_type: &'static str,
        input: Value,
        of: (&str, &str, &[&'static str]),
        acts: Vec<StoryAction>,
    ) {
        let (name, shows, rows) = of;
        let story = Story {
            name: name.to_owned(),
            shows: shows.to_owned(),
            rows: rows.to_vec(),
            workflow_type,
            input,
            options: |_| {},
            acts,
        };
        self.0.push(story);
    }
    fn sink(&mut self, steps: Value, of: (&str, &str, &[&'static str]), acts: Vec<StoryAction>) {
        self.tell(KITCHEN_SINK, json!({ "steps": steps }), of, acts);
    }
    fn machine(&mut self, steps: Value, of: (&str, &str, &[&'static str]), acts: Vec<StoryAction>) {
        self.tell(STEP_MACHINE, steps, of, acts);
    }
    fn with(&mut self, options: fn(&mut StartWorkflow)) {
        if let Some(story) = self.0.last_mut() {
            story.options = options;
        }
    }
}

pub(super) fn stories() -> Vec<Story> {
    let mut told = StoryList::default();
    activities::activities(&mut told);
    messages::messages(&mut told);
    structure::structure(&mut told);
    lifes::lifes(&mut told);
    machines::machines(&mut told);
    sagas::sagas(&mut told);
    for seed in 1..=24_u64 {
        let name = format!("machine-program-{seed:02}");
        let of = (&*name, &*format!("the other form: the program of seed {seed}"), &["E37", "E40"][..]);
        told.machine(unit_steps(machine_program(seed)), of, vec![StoryAction::Restart, StoryAction::Finish]);
    }
    for seed in 1..=60_u64 {
        let of = (&*format!("program-{seed:02}"), &*format!("the program of seed {seed}"), &["E29", "E40"][..]);
        told.tell(KITCHEN_SINK, program(seed), of, vec![StoryAction::Finish]);
    }
    resets::resets(&mut told);
    told.0
}

fn done() -> Vec<StoryAction> {
    vec![StoryAction::Finish]
}

fn result(name: &str, value: &'static str) -> ForkChange {
    let of = ForkSubject::Name { name: name.into(), nth: Some(1) };
    ForkChange::Outcome { of, outcome: Ok(Payload::raw_json(value)) }
}

/// Steps without fields are their names alone.
fn unit_steps(steps: Value) -> Value {
    let unit = |step: &Value| match step.as_object().and_then(|step| step.iter().next()) {
        Some((name, Value::Null)) => Value::String(name.clone()),
        _ => step.clone(),
    };
    steps.as_array().map_or(Value::Null, |steps| steps.iter().map(unit).collect())
}
