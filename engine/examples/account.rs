//! An account that lives for thousands of signals and goes on in a new run when its history is long: as an async function
//! and as a state machine.
//!
//! `cargo run -p bosun-engine --example account`. Its state goes along as the input of the next run, and so do the signals
//! that it has not heard yet; whoever asks or signals it by its id does not notice.

use bosun_engine::testing::TestEnvironment;
use bosun_engine::workflow::{Cx, StateMachine, WfContext, WorkflowEvent, WorkflowRegistry};
use bosun_engine::*;
use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Balance {
    pub entries: u64,
    pub cents: u64,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Entry {
    Deposit(u64),
    Close,
}

pub const ACCOUNT: Workflow<Balance, Balance> = Workflow::named("account");
pub const ENTRY: Signal<Entry> = Signal::named("entry");
pub const BALANCE: Query<(), Balance> = Query::named("balance");

// workflow: async
pub async fn account(ctx: WfContext, opened_with: Balance) -> Result<Balance, Failure> {
    let balance = ctx.state("balance", opened_with);
    let shown = balance.clone();
    ctx.on_query(BALANCE, move |()| Ok(shown.get()));
    let entries = ctx.signal_channel(ENTRY);
    loop {
        match entries.recv().await? {
            Entry::Deposit(cents) => balance.write(|balance| balance.deposit(cents)),
            Entry::Close => return Ok(balance.get()),
        }
        if ctx.continue_as_new_suggested() {
            return ctx.continue_as(ACCOUNT, &balance.get());
        }
    }
}
// end

// workflow: machine
#[derive(Serialize, Deserialize)]
pub struct Account {
    balance: Balance,
}

impl StateMachine for Account {
    const TYPE: &'static str = "account-machine";
    type Input = Balance;
    type Output = Balance;

    fn start(balance: Balance, _: &mut Cx<'_>) -> Result<Self, Failure> {
        Ok(Account { balance })
    }

    fn on_event(&mut self, event: WorkflowEvent, cx: &mut Cx<'_>) -> Result<(), Failure> {
        match event {
            WorkflowEvent::Signal(signal) if ENTRY.is(&signal) => match ENTRY.input(&signal)? {
                Entry::Deposit(cents) => self.balance.deposit(cents),
                Entry::Close => cx.complete(&self.balance),
            },
            WorkflowEvent::CancelRequested { reason } => return Err(Failure::canceled(reason)),
            _ => {}
        }
        if cx.continue_as_new_suggested() {
            cx.continue_as(Self::WORKFLOW, &self.balance);
        }
        Ok(())
    }

    fn queries() -> &'static [&'static str] {
        const { &[BALANCE.name()] }
    }
    fn query(&self, _: &QueryName, input: &Payload) -> Result<Payload, Failure> {
        BALANCE.answer(input, |()| Ok(self.balance.clone()))
    }
}
// end

impl Balance {
    fn deposit(&mut self, cents: u64) {
        self.entries += 1;
        self.cents += cents;
    }
}

pub fn workflows() -> WorkflowRegistry {
    WorkflowRegistry::new().workflow(ACCOUNT, account).state_machine::<Account>()
}

pub async fn run() -> Result<(), Box<dyn std::error::Error>> {
    let environment = TestEnvironment::start(workflows(), ActivityRegistry::new())?;
    let client = environment.client();
    for workflow in [ACCOUNT, Account::WORKFLOW] {
        let name = workflow.name();
        let account = client.start_workflow(workflow, name, &Balance::default()).await?;
        for _ in 0..5_000 {
            account.signal(ENTRY, &Entry::Deposit(7)).await?;
        }
        let balance = account.query(BALANCE, &()).await?;
        account.signal(ENTRY, &Entry::Close).await?;
        let runs = client.count(&format!("WorkflowId = '{name}'")).await?;
        println!("{name}: {balance:?} in {runs} runs");
        assert_eq!(balance, Balance { entries: 5_000, cents: 35_000 });
        assert_eq!((account.result().await?, runs), (balance, 2));
    }
    Ok(())
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    tokio::runtime::Runtime::new()?.block_on(run())
}
