//! An order as a saga: reserve, charge, ship; when a step fails, what was done is undone in reverse order.
//!
//! ```json
//! { "order_id": "o-1", "items": [{ "sku": "tea", "quantity": 2 }], "cents": 900,
//!   "fail": { "ship_order": { "times": 99, "type": "NoTruck", "non_retryable": true } } }
//! ```
//!
//! `fail` scripts failures by activity: `reserve_stock`, `charge_card`, `ship_order`, and the compensations
//! `release_stock`, `refund_card`, `cancel_shipment`. The query `status` says which step it is at.
//!
//! Invariant: a compensation is registered before its step begins, since a step that failed may have happened; every
//! compensation therefore gives an answer also when there is nothing to undo. Receipts are made of idempotency keys, so
//! a repeated attempt gives the same receipt.

use std::collections::BTreeMap;
use std::time::Duration;

use bosun_engine::workflow::{Saga, WfContext};
use bosun_engine::{ActivityContext, ActivityError, ActivityOptions, ActivityRegistry, Failure, RetryPolicy};
use serde::{Deserialize, Serialize};

use crate::capability::demo::ScriptedFailure;

pub const ORDER_SAGA: &str = "order-saga";

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Order {
    pub order_id: String,
    pub items: Vec<Item>,
    pub cents: u64,
    #[serde(default)]
    pub fail: BTreeMap<String, ScriptedFailure>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Item {
    pub sku: String,
    pub quantity: u32,
}

/// What the customer holds at the end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Confirmation {
    pub order_id: String,
    pub reservation: String,
    pub payment: String,
    pub shipment: String,
}

/// What each activity is given.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct StepInput {
    order_id: String,
    items: Vec<Item>,
    cents: u64,
    fail: Option<ScriptedFailure>,
}

/// The steps with what undoes each.
const STEPS: [(&str, &str); 3] =
    [("reserve_stock", "release_stock"), ("charge_card", "refund_card"), ("ship_order", "cancel_shipment")];

/// The workflow.
pub async fn order_saga(context: WfContext, order: Order) -> Result<Confirmation, Failure> {
    if order.items.is_empty() {
        return Err(Failure::application("EmptyOrder", "an order needs at least one item").non_retryable());
    }
    let status = context.state("status", "new".to_owned());
    let shown = status.clone();
    context.on_query("status", move |(): ()| Ok(shown.get()));
    let (inner, steps) = (context.clone(), order.clone());
    let outcome = Saga::run(&context, |saga| async move {
        let mut receipts = Vec::new();
        for (step, undo) in STEPS {
            status.set(step.to_owned());
            let (order, status) = (steps.clone(), status.clone());
            saga.compensate_with(undo, move |context| async move {
                status.set(undo.to_owned());
                perform(&context, undo, &order).await.map(drop)
            });
            receipts.push(perform(&inner, step, &steps).await?);
        }
        status.set("shipped".to_owned());
        Ok(receipts)
    });
    let [reservation, payment, shipment]: [String; 3] = outcome.await?.try_into().expect("three steps, three receipts");
    Ok(Confirmation { order_id: order.order_id, reservation, payment, shipment })
}

async fn perform(context: &WfContext, activity: &'static str, order: &Order) -> Result<String, Failure> {
    let step = StepInput {
        order_id: order.order_id.clone(),
        items: order.items.clone(),
        cents: order.cents,
        fail: order.fail.get(activity).cloned(),
    };
    let retry =
        RetryPolicy { initial_interval: Duration::from_millis(200), maximum_attempts: 5, ..RetryPolicy::default() };
    let options = ActivityOptions::start_to_close(Duration::from_secs(30)).with_retry(retry);
    context.activity(activity, &step, options.with_summary(format!("{activity} {}", order.order_id))).await
}

pub(super) fn register_activities(registry: &mut ActivityRegistry) {
    for activity in STEPS.into_iter().flat_map(|(step, undo)| [step, undo]) {
        registry.register(activity, move |context, step| async move { receipt(activity, &context, &step) });
    }
}

fn receipt(activity: &str, context: &ActivityContext, step: &StepInput) -> Result<String, ActivityError> {
    if let Some(script) = &step.fail {
        script.play(context)?;
    }
    let key = context.idempotency_key();
    Ok(format!("{activity}:{}:{}", step.order_id, &key[..8]))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bosun_engine::workflow::{FAILURE_COMPENSATION, WorkflowRegistry};
    use bosun_engine::{CloseOutcome, Command};
    use serde_json::{Value, json};

    use super::*;
    use crate::stage::{Cue, Played, Stage};

    async fn play(fail: Value, cues: Vec<Cue>) -> (Played, Vec<String>) {
        let mut activities = ActivityRegistry::new();
        register_activities(&mut activities);
        let workflows = crate::examples::register(WorkflowRegistry::new());
        let order =
            json!({ "order_id": "o-1", "items": [{ "sku": "tea", "quantity": 2 }], "cents": 900, "fail": fail });
        let played = Arc::new(Stage { workflows, activities }).play(ORDER_SAGA, order, cues).await;
        let activity = |command: &Command| match command {
            Command::ScheduleActivity { activity_type, .. } => Some(activity_type.to_string()),
            _ => None,
        };
        let order = played.commands.iter().filter_map(activity).collect();
        (played, order)
    }

    #[tokio::test]
    async fn an_order_goes_through() {
        let (played, activities) = play(json!({ "charge_card": { "times": 2 } }), vec![]).await;
        let CloseOutcome::Completed(result) = &played.outcome else { panic!("{:?}", played.outcome) };
        let confirmation: Confirmation = result.decode().unwrap();
        assert!(confirmation.shipment.starts_with("ship_order:o-1:"), "{confirmation:?}");
        assert_eq!(activities, ["reserve_stock", "charge_card", "ship_order"]);
    }

    /// E28: compensations run in reverse order; the failure of the step is the outcome.
    #[tokio::test]
    async fn a_failed_step_is_undone_with_all_before_it_in_reverse_order() {
        let fail = json!({ "ship_order": { "times": 99, "type": "NoTruck", "non_retryable": true } });
        let (played, activities) = play(fail, vec![]).await;
        let CloseOutcome::Failed(failure) = &played.outcome else { panic!("{:?}", played.outcome) };
        assert_eq!(failure.type_name(), "NoTruck");
        let expected =
            ["reserve_stock", "charge_card", "ship_order", "cancel_shipment", "refund_card", "release_stock"];
        assert_eq!(activities, expected);
    }

    #[tokio::test]
    async fn a_failed_compensation_does_not_stop_the_others() {
        let fail = json!({ "charge_card": { "times": 9, "non_retryable": true }, "refund_card": { "times": 9, "non_retryable": true } });
        let (played, activities) = play(fail, vec![]).await;
        let CloseOutcome::Failed(failure) = &played.outcome else { panic!("{:?}", played.outcome) };
        let bosun_engine::FailureKind::Application { failure_type, .. } = &failure.kind else { panic!("{failure:?}") };
        assert_eq!(failure_type, FAILURE_COMPENSATION);
        assert_eq!(activities, ["reserve_stock", "charge_card", "refund_card", "release_stock"]);
    }

    #[tokio::test]
    async fn a_canceled_order_is_undone() {
        let (played, activities) = play(json!({}), vec![Cue::Step, Cue::Cancel]).await;
        assert!(matches!(played.outcome, CloseOutcome::Canceled(_)), "{:?}", played.outcome);
        assert_eq!(activities, ["reserve_stock", "charge_card", "refund_card", "release_stock"]);
    }
}
