//! A payment in three steps, each undone when a later one fails: as an async function and as a state machine.
//!
//! `cargo run -p bosun-engine --example payment_saga`. What undoes a step is registered before the step: a step that failed
//! may still have taken effect. Both forms ask for the same activities; neither knows what they do.

use std::time::Duration;

use bosun_engine::testing::TestEnvironment;
use bosun_engine::workflow::{
    Cx, FAILURE_COMPENSATION, Saga, StateMachine, WfContext, WorkflowEvent, WorkflowRegistry,
};
use bosun_engine::*;
use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Order {
    pub id: String,
    pub cents: u64,
}

pub const PAY: Workflow<Order, Vec<String>> = Workflow::named("pay");
pub const RESERVE: Activity<Order, String> = step("reserve");
pub const CHARGE: Activity<Order, String> = step("charge");
pub const SHIP: Activity<Order, String> = step("ship");
pub const RELEASE: Activity<Order, String> = step("release");
pub const REFUND: Activity<Order, String> = step("refund");
pub const RECALL: Activity<Order, String> = step("recall");

const fn step(name: &'static str) -> Activity<Order, String> {
    Activity::named(name).start_to_close(Duration::from_secs(30)).with_attempts(3)
}

// workflow: async
pub async fn pay(ctx: WfContext, order: Order) -> Result<Vec<String>, Failure> {
    Saga::run(&ctx.clone(), |saga| async move {
        let mut receipts = Vec::new();
        for (step, undo) in [(RESERVE, RELEASE), (CHARGE, REFUND), (SHIP, RECALL)] {
            saga.undo_with(undo, &order);
            receipts.push(ctx.call(step, &order).await?);
        }
        Ok(receipts)
    })
    .await
}
// end

// workflow: machine
#[derive(Serialize, Deserialize)]
pub struct Payment {
    order: Order,
    receipts: Vec<String>,
    running: Seq,
    /// Why it is being undone, and how many steps are still to be.
    undoing: Option<(Failure, usize)>,
}

impl StateMachine for Payment {
    const TYPE: &'static str = "payment";
    type Input = Order;
    type Output = Vec<String>;

    fn start(order: Order, cx: &mut Cx<'_>) -> Result<Self, Failure> {
        let running = cx.call(RESERVE, &order);
        Ok(Payment { order, receipts: Vec::new(), running, undoing: None })
    }

    fn on_event(&mut self, event: WorkflowEvent, cx: &mut Cx<'_>) -> Result<(), Failure> {
        match (event, &mut self.undoing) {
            (WorkflowEvent::ActivityResolved { result, .. }, None) => match CHARGE.result(result) {
                Ok(receipt) => self.receipts.push(receipt),
                Err(why) => self.undoing = Some((why, self.receipts.len() + 1)),
            },
            (WorkflowEvent::ActivityResolved { result, .. }, Some((why, left))) => {
                *left -= 1;
                if let Err(undo) = result {
                    *why = Failure::application(FAILURE_COMPENSATION, undo.to_string()).because(why.clone());
                }
            }
            (WorkflowEvent::CancelRequested { .. }, None) => {
                cx.cancel_activity(self.running);
                return Ok(());
            }
            _ => return Ok(()),
        }
        self.running = match (&self.undoing, self.receipts.len()) {
            (Some((why, 0)), _) => return Err(why.clone()),
            (Some((_, left)), _) => cx.call([RELEASE, REFUND, RECALL][left - 1].clone(), &self.order),
            (None, 3) => {
                cx.complete(&self.receipts);
                return Ok(());
            }
            (None, done) => cx.call([RESERVE, CHARGE, SHIP][done].clone(), &self.order),
        };
        Ok(())
    }
}
// end

pub fn workflows() -> WorkflowRegistry {
    WorkflowRegistry::new().workflow(PAY, pay).state_machine::<Payment>()
}

/// Nothing that weighs more than 100.00 can be shipped.
async fn ship(_: ActivityContext, order: Order) -> Result<String, ActivityError> {
    match order.cents {
        0..=10_000 => Ok(format!("{} is on its way", order.id)),
        _ => Err(ActivityError::non_retryable("TooHeavy", format!("{} cannot be shipped", order.id))),
    }
}

pub fn activities() -> ActivityRegistry {
    let mut activities = ActivityRegistry::new();
    activities.register(SHIP, ship);
    for step in [RESERVE, CHARGE, RELEASE, REFUND, RECALL] {
        let name = step.name();
        activities.register(step, move |_, order: Order| async move { Ok(format!("{name} {}", order.id)) });
    }
    activities
}

pub async fn run() -> Result<(), Box<dyn std::error::Error>> {
    let environment = TestEnvironment::start(workflows(), activities())?;
    let client = environment.client();
    for workflow in [PAY, Payment::WORKFLOW] {
        let name = workflow.name();
        let light = Order { id: format!("{name}-book"), cents: 1_900 };
        let paid = client.start_workflow(workflow, light.id.as_str(), &light).await?.result().await?;
        println!("{name}: {}", paid.join(", "));
        assert_eq!(paid.len(), 3);

        let heavy = Order { id: format!("{name}-piano"), cents: 900_000 };
        let piano = client.start_workflow(workflow, heavy.id.as_str(), &heavy).await?;
        match piano.result().await {
            Err(WorkflowError::Failed { failure, .. }) => {
                println!("{name}: {failure}");
                assert_eq!(failure.type_name(), "TooHeavy");
            }
            other => panic!("a piano was paid: {other:?}"),
        }
        let history = client.history(piano.target(), EventId(1), 100).await?;
        let asked = |event: &Event| match &event.kind {
            EventKind::ActivityTaskScheduled(scheduled) => Some(scheduled.activity_type.to_string()),
            _ => None,
        };
        let asked: Vec<String> = history.iter().filter_map(asked).collect();
        assert_eq!(asked, ["reserve", "charge", "ship", "recall", "refund", "release"]);
    }
    Ok(())
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    tokio::runtime::Runtime::new()?.block_on(run())
}
