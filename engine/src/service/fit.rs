//! What a worker that starts says of open runs that its code may not fit.
//!
//! Invariant: it is said once, from what loading the runs has shown; nothing is decided, and a worker that leaves
//! meanwhile says nothing.

use super::health::Health;
use crate::client::Client;

/// What [`Client::check_fit`] has found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FitReport {
    /// Open runs whose last turn was decided by another build.
    pub other_build: usize,
    /// How many of these were looked at.
    pub checked: usize,
    /// Runs that are held when the look is over, whatever for.
    pub held: usize,
}

pub(super) async fn look_at_start(client: Client) {
    let FitReport { other_build, checked, held } = client.check_fit().await;
    if client.health_now() != Health::Ready {
        return;
    }
    let unchecked = other_build - checked;
    if held > 0 {
        tracing::warn!(
            held,
            checked,
            unchecked,
            "{held} open runs are held: they do not fit the code of this worker, or were held before. Their inputs are kept. \
             `list --query 'Held = true'` shows them, `describe ID` says why"
        );
    } else if other_build > 0 {
        tracing::info!(checked, unchecked, "open runs that another build has decided last fit the code of this worker");
    }
}
