//! Warnings: what fits and may be a mistake of a deploy all the same, as the gate and the kit say it.

use bosun_engine::workflow::{Cx, StateMachine, WfContext, WorkflowEvent, WorkflowRegistry};
use bosun_engine::*;
use bosun_replay::determinism::DeterminismTest;
use bosun_replay::{History, Prefixes, replay_history};
use serde::{Deserialize, Serialize};

/// Ends when the signal of this name comes.
fn waits_for(name: &'static str) -> WorkflowRegistry {
    WorkflowRegistry::new()
        .version(name)
        .workflow("flow", move |ctx: WfContext, (): ()| async move { ctx.signal_channel::<u32>(name).recv().await })
}

/// The kit's report names the signal that the next version does not wait for, and the one in its place; in its text too. A
/// test that sends the signal needs no warning: then the next version does not fit what came of it.
#[test]
fn the_kit_warns_of_a_renamed_signal_in_its_report() {
    let kit = |next: WorkflowRegistry| {
        let kit = DeterminismTest::new(waits_for("approve"), "flow").input(proptest::strategy::Just(()));
        kit.deploys(next).lives(60).without_case_files().in_this_process_only()
    };
    let sent = kit(waits_for("agreed")).signal("approve", 0..9_u32).check();
    assert!(sent.is_err_and(|failed| failed.kind() == "deploy-mismatch"));
    let report = kit(waits_for("agreed")).run();
    let said = "a run that waited for the signal `approve` waits for `agreed` in the next version: if it was renamed, senders \
                of the old name are not heard";
    assert_eq!(report.warnings.iter().collect::<Vec<_>>(), [said]);
    assert!(report.to_string().ends_with(&format!("\nwarning: {said}")), "{report}");
    let same = kit(waits_for("approve")).run();
    assert!(same.warnings.is_empty() && !same.to_string().contains("warning"), "{same}");
}

/// Counts approvals up to three; `RENAMED` code counts signals of another name.
#[derive(Serialize, Deserialize)]
struct Approvals<const RENAMED: bool> {
    given: u32,
}

impl<const RENAMED: bool> StateMachine for Approvals<RENAMED> {
    const TYPE: &'static str = "approvals";
    type Input = ();
    type Output = u32;
    fn start((): (), _: &mut Cx<'_>) -> Result<Self, Failure> {
        Ok(Approvals { given: 0 })
    }
    fn on_event(&mut self, event: WorkflowEvent, cx: &mut Cx<'_>) -> Result<(), Failure> {
        let WorkflowEvent::Signal(signal) = event else { return Ok(()) };
        if signal.name.as_str() == if RENAMED { "agreed" } else { "approve" } {
            self.given += signal.input.decode::<u32>()?;
        }
        if self.given == 3 {
            cx.complete(&self.given);
        }
        Ok(())
    }
}

fn said<const RENAMED: bool>(history: HistoryBuilder) -> Vec<String> {
    let code = WorkflowRegistry::new().state_machine::<Approvals<RENAMED>>();
    let report = replay_history(&code, &History::new(history.turns()).unwrap(), Prefixes::None);
    assert!(report.is_ok(), "{report}");
    report.warnings
}

/// A machine does not say what it waits for. A signal that neither asks for anything nor changes the state is warned of; one
/// that counted once is not, however often it was ignored.
#[test]
fn the_gate_warns_of_a_signal_that_moves_no_machine() {
    let number = |n: u32| Payload::encode(&n).unwrap();
    let mut open = HistoryBuilder::started("approvals", "a", Payload::null());
    open.signaled("approve", number(0)).signaled("approve", number(1)).signaled("approve", number(0));
    assert_eq!(said::<false>(open.clone()), Vec::<String>::new());
    assert_eq!(
        said::<true>(open),
        [
            "event 2: the signal `approve` led to nothing and left the state as it was: if this code calls it otherwise, the \
          run never hears it"
        ]
    );
    let mut untold = HistoryBuilder::started("approvals", "a", Payload::null());
    assert_eq!(said::<true>(untold.clone()), Vec::<String>::new());
    untold.signaled("approve", number(0));
    assert_eq!(said::<false>(untold).len(), 1, "nothing shows yet that the code hears it");
}
