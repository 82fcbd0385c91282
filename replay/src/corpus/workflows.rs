//! The workflow code behind the corpus: small, one feature each. Stories in `stories` are what a worker would have
//! recorded of it.

use std::time::Duration;

use bosun_engine::workflow::{Cx, StateMachine, WfContext, WorkflowEvent, WorkflowRegistry, join_all, select};
use bosun_engine::*;
use serde::{Deserialize, Serialize};

pub(crate) fn registry() -> WorkflowRegistry {
    WorkflowRegistry::new()
        .version("corpus-1")
        .state_machine::<Counter>()
        .workflow("greet", |_: WfContext, name: String| async move { Ok(format!("hello {name}")) })
        .workflow("charge", charge)
        .workflow("fan-out", fan_out)
        .workflow("approval", approval)
        .workflow("cleanup", cleanup)
        .workflow("parent", parent)
        .workflow("messenger", messenger)
        .workflow("notes", notes)
        .workflow("settings", settings)
}

fn ten_seconds() -> ActivityOptions {
    ActivityOptions::start_to_close(Duration::from_secs(10))
}

async fn charge(ctx: WfContext, cents: u64) -> Result<String, Failure> {
    ctx.activity("charge_card", &cents, ten_seconds()).await
}

async fn fan_out(ctx: WfContext, parts: Vec<u64>) -> Result<u64, Failure> {
    let results = join_all(parts.iter().map(|part| ctx.activity::<u64>("work", part, ten_seconds()))).await;
    results.into_iter().sum()
}

async fn approval(ctx: WfContext, _: ()) -> Result<bool, Failure> {
    let limit = ctx.timer(Duration::from_secs(3_600));
    let handle = limit.handle();
    let channel = ctx.signal_channel::<bool>("approve");
    match select(channel.recv(), limit).await {
        bosun_engine::workflow::Either::First(answer) => {
            handle.cancel();
            answer
        }
        bosun_engine::workflow::Either::Second(_) => Ok(false),
    }
}

async fn cleanup(ctx: WfContext, _: ()) -> Result<(), Failure> {
    let slept = ctx.timer(Duration::from_secs(86_400)).await;
    if slept.is_err() {
        ctx.shielded(|ctx| async move { ctx.activity::<()>("undo", &(), ten_seconds()).await }).await?;
    }
    slept
}

async fn parent(ctx: WfContext, cents: u64) -> Result<String, Failure> {
    let child = ctx.child_workflow::<String>("charge", "charge-of-parent", &cents, ChildWorkflowOptions::default());
    child.started().await?;
    child.await
}

async fn messenger(ctx: WfContext, _: ()) -> Result<bool, Failure> {
    let target = || ExternalTarget { workflow_id: WorkflowId::of("other"), run_id: None };
    let delivered = ctx.signal_external(target(), "news", "hello").await.is_ok();
    ctx.cancel_external(target(), "enough").await?;
    Ok(delivered)
}

async fn notes(ctx: WfContext, _: ()) -> Result<u64, Failure> {
    let noted: u64 = ctx.side_effect(|| 42);
    ctx.upsert_search_attributes([(FieldName::of("customer"), SearchValue::Keyword("ada".into()))].into());
    ctx.upsert_memo([(FieldName::of("note"), Payload::encode("fragile")?)].into());
    if ctx.patched("double") { Ok(noted * 2) } else { Ok(noted) }
}

async fn settings(ctx: WfContext, _: ()) -> Result<u64, Failure> {
    let level = ctx.state("level", 0_u64);
    let handled = level.clone();
    ctx.on_update(
        "set",
        |_: &u64| Ok(()),
        move |_: WfContext, wanted: u64| {
            let level = handled.clone();
            async move {
                let before = level.get();
                level.set(wanted);
                Ok(before)
            }
        },
    );
    let seen = level.clone();
    ctx.wait_until(move || seen.get() >= 3).await?;
    Ok(level.get())
}

/// Adds what signals bring; ends with a signal, goes on in a new run after three additions.
#[derive(Serialize, Deserialize)]
pub(super) struct Counter {
    total: u64,
    additions: u32,
}

impl StateMachine for Counter {
    const TYPE: &'static str = "counter";
    type Input = u64;
    type Output = u64;

    fn start(total: u64, _: &mut Cx<'_>) -> Result<Self, Failure> {
        Ok(Counter { total, additions: 0 })
    }
    fn on_event(&mut self, event: WorkflowEvent, cx: &mut Cx<'_>) -> Result<(), Failure> {
        match event {
            WorkflowEvent::Signal(signal) if signal.name.as_str() == "add" => {
                self.total += signal.input.decode::<u64>()?;
                self.additions += 1;
                if self.additions == 3 {
                    cx.continue_as_new(&self.total, ContinueAsNewOptions::default());
                }
            }
            WorkflowEvent::Signal(_) => cx.complete(&self.total),
            WorkflowEvent::CancelRequested { .. } => cx.cancel(Some(Payload::encode(&self.total)?)),
            _ => {}
        }
        Ok(())
    }
}
