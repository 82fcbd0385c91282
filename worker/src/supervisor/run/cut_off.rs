//! Calls that are ended before their answer is there.
//!
//! Invariant: what a model has begun may have to be paid for, and nobody hears how much: it is unknown and not 0. A run below has
//! a bill that comes later.

use super::SupervisorRun;
use super::work::{self, Carried};
use crate::supervisor::core::account::Spent;
use crate::supervisor::core::calls::UnderWay;
use crate::supervisor::core::key::Key;
use crate::supervisor::outbox::Call;

impl SupervisorRun {
    /// Nobody will hear what the call has cost.
    pub(super) fn cut_off(&mut self, key: &Key) {
        let unpriced_calls = u64::from(self.asks_model(key));
        if self.awaited.settled(key) {
            self.account.charge_late(Spent { calls: 1, unpriced_calls, ..Spent::default() });
        }
    }

    /// Whether that is a call of a model, and under way.
    fn asks_model(&self, key: &Key) -> bool {
        let call = self.calls.under_way().find_map(|(_, what)| match what {
            UnderWay::Call { call, .. } if call.key == *key => Some(call),
            _ => None,
        });
        let is_model = |call: &Call| {
            let carried = work::carried(&self.resolved.spec, call, self.context.depth, &*self.strategy);
            self.dispatched(call).is_none() && matches!(carried, Carried::Model { .. })
        };
        call.is_some_and(is_model)
    }
}
