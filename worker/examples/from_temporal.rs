//! The program of the guide for those who come from Temporal: `cargo run -p bosun-worker --example from_temporal -- worker run`.
//!
//! `worker/guide/from_temporal.md` shows it from the first `use` on, and a test takes the steps of that page with it.

#![allow(clippy::disallowed_methods, reason = "an activity writes a file")]

// guide
use std::time::Duration;

use bosun_engine::workflow::{Either, Saga, WfContext, select};
use bosun_engine::{Activity, ActivityContext, ActivityError, Failure, Query, Signal, Update, Workflow};
use bosun_worker::App;
use serde::{Deserialize, Serialize};

#[derive(Clone, Serialize, Deserialize)]
struct Order {
    id: String,
    cents: u64,
}

const PAY: Workflow<Order, String> = Workflow::named("pay");
const CHARGE: Activity<Order, String> =
    Activity::named("charge").start_to_close(Duration::from_secs(30)).with_attempts(5);
const REFUND: Activity<Order, ()> = Activity::named("refund").start_to_close(Duration::from_secs(30));
const APPROVE: Signal<bool> = Signal::named("approve");
const STATUS: Query<(), String> = Query::named("status");
const RAISE: Update<u64, u64> = Update::named("raise");

async fn pay(ctx: WfContext, order: Order) -> Result<String, Failure> {
    let cents = ctx.state("cents", order.cents);
    let (asked, raised) = (cents.clone(), cents.clone());
    // setQueryHandler, setUpdateHandler with its validator
    ctx.on_query(STATUS, move |()| Ok(format!("{} cents", asked.get())));
    ctx.on_update(
        RAISE,
        |more: &u64| if *more > 0 { Ok(()) } else { Err(Failure::application("Nothing", "raise by something")) },
        move |_, more| {
            raised.write(|cents| *cents += more);
            let now = raised.get();
            async move { Ok(now) }
        },
    );
    // a selector over a channel and a timer
    let approval = ctx.signal_channel(APPROVE);
    let approved = match select(approval.recv(), ctx.timer(Duration::from_secs(86_400))).await {
        Either::First(approved) => approved?,
        Either::Second(_) => false,
    };
    if !approved {
        return Err(Failure::application("Declined", "nobody has approved"));
    }
    // a saga: what undoes a step is registered before it; for a deadline put it in `with_timeout`, which cancels, not in a
    // `select`, which only drops
    Saga::run(&ctx.clone(), |saga| async move {
        let order = Order { cents: cents.get(), ..order };
        saga.undo_with(REFUND, &order);
        ctx.call(CHARGE, &order).await
    })
    .await
}

async fn charge(cx: ActivityContext, order: Order) -> Result<String, ActivityError> {
    if order.cents > 1_000_000 {
        return Err(ActivityError::non_retryable("TooMuch", "more than the card gives"));
    }
    // The same for every attempt: what is done twice overwrites itself. Any error will do for `?`.
    let receipt = std::env::temp_dir().join(format!("receipt-{}", cx.idempotency_key()));
    std::fs::write(receipt, order.cents.to_string())?;
    Ok(format!("{} cents for {}", order.cents, order.id))
}

fn main() -> std::process::ExitCode {
    App::new().workflow(PAY, pay).activity(CHARGE, charge).activity(REFUND, |_, _| async { Ok(()) }).main()
}
