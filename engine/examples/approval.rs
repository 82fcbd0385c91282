//! An approval with a deadline and a reminder before it: as an async function and as a state machine.
//!
//! `cargo run -p bosun-engine --example approval`. Nobody answers for two days, so somebody is reminded; after three days it
//! is too late. An answer that comes while somebody is being reminded counts.

use std::time::Duration;

use bosun_engine::testing::TestEnvironment;
use bosun_engine::workflow::{Cx, StateMachine, WfContext, WorkflowEvent, WorkflowRegistry};
use bosun_engine::*;
use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Expense {
    pub by: String,
    pub cents: u64,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Decision {
    Approved {
        by: String,
    },
    Refused {
        why: String,
    },
    /// Nobody decided in time.
    Expired,
}

const DAY: Duration = Duration::from_secs(24 * 3_600);
const REMINDER: Duration = DAY.saturating_mul(2);
const DEADLINE: Duration = DAY.saturating_mul(3);

pub const APPROVAL: Workflow<Expense, Decision> = Workflow::named("approval");
pub const ASK: Activity<Expense, ()> = Activity::named("ask").start_to_close(Duration::from_secs(10));
pub const REMIND: Activity<Expense, ()> = Activity::named("remind").start_to_close(Duration::from_secs(10));
pub const TELL: Activity<Decision, ()> = Activity::named("tell").start_to_close(Duration::from_secs(10));
pub const DECIDE: Signal<Decision> = Signal::named("decide");

// workflow: async
pub async fn approval(ctx: WfContext, expense: Expense) -> Result<Decision, Failure> {
    let (decisions, deadline) = (ctx.signal_channel(DECIDE), ctx.now().plus(DEADLINE));
    ctx.call(ASK, &expense).await?;
    let mut decision = decisions.recv_within(REMINDER).await?;
    if decision.is_none() {
        ctx.call(REMIND, &expense).await?;
        decision = decisions.recv_within(deadline.since(ctx.now())).await?;
    }
    let decision = decision.unwrap_or(Decision::Expired);
    ctx.call(TELL, &decision).await?;
    Ok(decision)
}
// end

// workflow: machine
#[derive(Serialize, Deserialize)]
pub struct Approval {
    expense: Expense,
    reminder: Seq,
    /// With the activity that tells of it.
    decision: Option<(Seq, Decision)>,
}

impl StateMachine for Approval {
    const TYPE: &'static str = "approval-machine";
    type Input = Expense;
    type Output = Decision;

    fn start(expense: Expense, cx: &mut Cx<'_>) -> Result<Self, Failure> {
        cx.call(ASK, &expense);
        cx.start_timer(DEADLINE);
        Ok(Approval { expense, reminder: cx.start_timer(REMINDER), decision: None })
    }

    fn on_event(&mut self, event: WorkflowEvent, cx: &mut Cx<'_>) -> Result<(), Failure> {
        let decision = match event {
            WorkflowEvent::ActivityResolved { seq, result } => match &self.decision {
                Some((tell, decision)) if *tell == seq => return result.map(|_| cx.complete(decision)),
                _ => return result.map(drop),
            },
            WorkflowEvent::TimerFired { seq } if seq == self.reminder => {
                cx.call(REMIND, &self.expense);
                return Ok(());
            }
            WorkflowEvent::TimerFired { .. } => Decision::Expired,
            WorkflowEvent::Signal(signal) if DECIDE.is(&signal) => DECIDE.input(&signal)?,
            WorkflowEvent::CancelRequested { reason } => return Err(Failure::canceled(reason)),
            _ => return Ok(()),
        };
        if self.decision.is_none() {
            cx.cancel_timer(self.reminder);
            self.decision = Some((cx.call(TELL, &decision), decision));
        }
        Ok(())
    }
}
// end

pub fn workflows() -> WorkflowRegistry {
    WorkflowRegistry::new().workflow(APPROVAL, approval).state_machine::<Approval>()
}

pub fn activities() -> ActivityRegistry {
    let mut activities = ActivityRegistry::new();
    for message in [ASK, REMIND] {
        activities.register(message, |_, _expense| async { Ok(()) });
    }
    activities.register(TELL, |_, _decision| async { Ok(()) });
    activities
}

pub async fn run() -> Result<(), Box<dyn std::error::Error>> {
    let environment = TestEnvironment::start(workflows(), activities())?;
    let client = environment.client();
    for workflow in [APPROVAL, Approval::WORKFLOW] {
        let name = workflow.name();
        let expense = Expense { by: "ada".into(), cents: 4_200 };
        let answered = client.start_workflow(workflow, format!("{name}-answered").as_str(), &expense).await?;
        let forgotten = client.start_workflow(workflow, format!("{name}-forgotten").as_str(), &expense).await?;
        environment.sleep(REMINDER + DAY / 2).await;
        let decision = Decision::Approved { by: "grace".into() };
        answered.signal(DECIDE, &decision).await?;
        let decisions = (answered.result().await?, forgotten.result().await?);
        println!("{name}: {decisions:?}");
        assert_eq!(decisions, (decision, Decision::Expired));
    }
    Ok(())
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    tokio::runtime::Runtime::new()?.block_on(run())
}
