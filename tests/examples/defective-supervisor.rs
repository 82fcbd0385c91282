//! A build of supervisors with a defect: it panics when an activity gives the word `poison`. For the test that a supervisor
//! that is held by a defect goes on with mended code. All else it does as the program that ships.

use std::process::ExitCode;

use bosun_engine::workflow::{Cx, RunNames, StateMachine, WorkflowEvent};
use bosun_engine::*;
use bosun_worker::App;
use bosun_worker::capability::{self, CapabilityConfig};
use bosun_worker::supervisor::run::{SupervisorInput, SupervisorOutput, SupervisorRun};
use serde::{Deserialize, Serialize};

/// A supervisor's run, with the state that the shipped program keeps.
#[derive(Clone, Serialize, Deserialize)]
#[serde(transparent)]
struct DefectiveRun(SupervisorRun);

impl StateMachine for DefectiveRun {
    const TYPE: &'static str = SupervisorRun::TYPE;
    type Input = SupervisorInput;
    type Output = SupervisorOutput;

    fn start(input: SupervisorInput, cx: &mut Cx<'_>) -> Result<Self, Failure> {
        SupervisorRun::start(input, cx).map(DefectiveRun)
    }

    fn on_event(&mut self, event: WorkflowEvent, cx: &mut Cx<'_>) -> Result<(), Failure> {
        if let WorkflowEvent::ActivityResolved { result: Ok(payload), .. } = &event {
            assert!(!payload.to_json().to_string().contains("poison"), "a defect of this build");
        }
        self.0.on_event(event, cx)
    }

    fn queries() -> &'static [&'static str] {
        SupervisorRun::queries()
    }

    fn query_as(&self, names: &RunNames, name: &QueryName, input: &Payload) -> Result<Payload, Failure> {
        self.0.query_as(names, name, input)
    }
}

fn main() -> ExitCode {
    App::new()
        .state_machine::<DefectiveRun>()
        .activities(|activities| {
            capability::register(activities, &CapabilityConfig::default()).expect("capabilities need no network");
        })
        .main()
}
