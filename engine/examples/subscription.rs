//! A subscription of a year: a trial, a charge each month, canceled at any time. As an async function and as a state
//! machine.
//!
//! `cargo run -p bosun-engine --example subscription`. The year passes in milliseconds: the test environment has a clock
//! that skips. A cancellation that comes during a charge counts after it.

use std::time::Duration;

use bosun_engine::testing::TestEnvironment;
use bosun_engine::workflow::{Cx, StateMachine, WfContext, WorkflowEvent, WorkflowRegistry};
use bosun_engine::*;
use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Plan {
    pub email: String,
    pub cents: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Bill {
    pub months: u32,
    pub cents: u64,
    pub canceled: Option<String>,
}

const DAY: Duration = Duration::from_secs(24 * 3_600);
const TRIAL: Duration = DAY.saturating_mul(14);
const MONTH: Duration = DAY.saturating_mul(30);

pub const SUBSCRIPTION: Workflow<Plan, Bill> = Workflow::named("subscription");
pub const WELCOME: Activity<String, ()> = Activity::named("welcome").start_to_close(Duration::from_secs(10));
pub const CHARGE: Activity<Plan, u64> = Activity::named("charge").start_to_close(Duration::from_secs(60));
pub const GOODBYE: Activity<Bill, ()> = Activity::named("goodbye").start_to_close(Duration::from_secs(10));
pub const CANCEL: Signal<String> = Signal::named("cancel");
pub const BILL: Query<(), Bill> = Query::named("bill");

// workflow: async
pub async fn subscription(ctx: WfContext, plan: Plan) -> Result<Bill, Failure> {
    let bill = ctx.state("bill", Bill::default());
    let shown = bill.clone();
    ctx.on_query(BILL, move |()| Ok(shown.get()));
    let cancels = ctx.signal_channel(CANCEL);
    ctx.call(WELCOME, &plan.email).await?;
    while bill.read(|bill| bill.months < 12) {
        let wait = if bill.read(|bill| bill.months == 0) { TRIAL } else { MONTH };
        if let Some(why) = cancels.recv_within(wait).await? {
            bill.write(|bill| bill.canceled = Some(why));
            break;
        }
        let cents = ctx.call(CHARGE, &plan).await?;
        bill.write(|bill| bill.charged(cents));
    }
    ctx.call(GOODBYE, &bill.get()).await?;
    Ok(bill.get())
}
// end

// workflow: machine
#[derive(Serialize, Deserialize)]
pub struct Subscription {
    plan: Plan,
    bill: Bill,
    waits: Waits,
}

#[derive(Serialize, Deserialize)]
enum Waits {
    Welcome,
    Month(Seq),
    Charge,
    Goodbye,
}

impl StateMachine for Subscription {
    const TYPE: &'static str = "subscription-machine";
    type Input = Plan;
    type Output = Bill;

    fn start(plan: Plan, cx: &mut Cx<'_>) -> Result<Self, Failure> {
        cx.call(WELCOME, &plan.email);
        Ok(Subscription { plan, bill: Bill::default(), waits: Waits::Welcome })
    }

    fn on_event(&mut self, event: WorkflowEvent, cx: &mut Cx<'_>) -> Result<(), Failure> {
        match event {
            WorkflowEvent::Signal(signal) if CANCEL.is(&signal) => {
                self.bill.canceled = Some(CANCEL.input(&signal)?);
                let Waits::Month(timer) = self.waits else { return Ok(()) };
                cx.cancel_timer(timer);
            }
            WorkflowEvent::TimerFired { .. } => {
                self.waits = Waits::Charge;
                cx.call(CHARGE, &self.plan);
                return Ok(());
            }
            WorkflowEvent::ActivityResolved { result, .. } => match self.waits {
                Waits::Goodbye => return result.map(|_| cx.complete(&self.bill)),
                Waits::Charge => self.bill.charged(CHARGE.result(result)?),
                Waits::Welcome | Waits::Month(_) => drop(result?),
            },
            WorkflowEvent::CancelRequested { reason } => return Err(Failure::canceled(reason)),
            _ => return Ok(()),
        }
        self.waits = match &self.bill {
            Bill { months: 12, .. } | Bill { canceled: Some(_), .. } => {
                cx.call(GOODBYE, &self.bill);
                Waits::Goodbye
            }
            Bill { months: 0, .. } => Waits::Month(cx.start_timer(TRIAL)),
            Bill { .. } => Waits::Month(cx.start_timer(MONTH)),
        };
        Ok(())
    }

    fn queries() -> &'static [&'static str] {
        const { &[BILL.name()] }
    }
    fn query(&self, _: &QueryName, input: &Payload) -> Result<Payload, Failure> {
        BILL.answer(input, |()| Ok(self.bill.clone()))
    }
}
// end

impl Bill {
    fn charged(&mut self, cents: u64) {
        self.months += 1;
        self.cents += cents;
    }
}

pub fn workflows() -> WorkflowRegistry {
    WorkflowRegistry::new().workflow(SUBSCRIPTION, subscription).state_machine::<Subscription>()
}

pub fn activities() -> ActivityRegistry {
    let mut activities = ActivityRegistry::new();
    activities.register(WELCOME, |_, _email| async { Ok(()) });
    activities.register(CHARGE, |_, plan: Plan| async move { Ok(plan.cents) });
    activities.register(GOODBYE, |_, _bill| async { Ok(()) });
    activities
}

pub async fn run() -> Result<(), Box<dyn std::error::Error>> {
    let environment = TestEnvironment::start(workflows(), activities())?;
    let client = environment.client();
    for workflow in [SUBSCRIPTION, Subscription::WORKFLOW] {
        let name = workflow.name();
        let plan = Plan { email: "ada@example.org".into(), cents: 900 };
        let year = client.start_workflow(workflow, format!("{name}-year").as_str(), &plan).await?;
        let spring = client.start_workflow(workflow, format!("{name}-spring").as_str(), &plan).await?;
        environment.sleep(TRIAL + 2 * MONTH + DAY).await;
        assert_eq!(spring.query(BILL, &()).await?.months, 3);
        spring.signal(CANCEL, &"too dear".to_owned()).await?;
        let bill = spring.result().await?;
        println!("{name}: {bill:?}");
        assert_eq!(bill, Bill { months: 3, cents: 2_700, canceled: Some("too dear".into()) });
        let bill = year.result().await?;
        println!("{name}: {bill:?}");
        assert_eq!(bill, Bill { months: 12, cents: 10_800, canceled: None });
    }
    Ok(())
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    tokio::runtime::Runtime::new()?.block_on(run())
}
