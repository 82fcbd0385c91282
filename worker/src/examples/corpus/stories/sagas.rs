//! Stories of sagas: orders that go through, and orders that are undone.
//!
//! Invariant: as of all stories: names and what they show are unique, and a story that is there is not told differently.

use super::*;

pub(super) fn sagas(told: &mut StoryList) {
    let order = |fail: Value| json!({ "order_id": "o-1", "items": [{ "sku": "tea", "quantity": 2 }], "cents": 900, "fail": fail });
    for (name, fail) in [
        ("order", json!({})),
        ("order-retried", json!({ "charge_card": { "times": 2 } })),
        ("order-not-charged", json!({ "charge_card": { "times": 99, "type": "Declined", "non_retryable": true } })),
        ("order-not-shipped", json!({ "ship_order": { "times": 99, "type": "NoTruck", "non_retryable": true } })),
        ("order-not-reserved", json!({ "reserve_stock": { "times": 99, "type": "SoldOut", "non_retryable": true } })),
        (
            "order-undo-retried",
            json!({ "ship_order": { "times": 99, "type": "NoTruck", "non_retryable": true }, "refund_card": { "times": 2 } }),
        ),
    ] {
        told.tell(ORDER_SAGA, order(fail), (name, &format!("a saga: {name}"), &["E28"]), done());
    }
    let late = json!({ "ship_order": { "times": 99, "type": "NoTruck", "non_retryable": true } });
    told.tell(
        ORDER_SAGA,
        order(late),
        ("order-forked", "a saga that compensated, forked with a shipment", &["E28", "E20"]),
        vec![
            StoryAction::Finish,
            StoryAction::Fork("shipped", None, vec![result("ship_order", "\"truck 7\"")]),
            StoryAction::Sleep(60),
        ],
    );
    told.tell(
        ORDER_SAGA,
        json!({ "order_id": "o-2", "items": [], "cents": 0 }),
        ("order-empty", "a saga that refuses its input", &["E28", "E30"]),
        done(),
    );
}
