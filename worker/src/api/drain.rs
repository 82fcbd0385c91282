//! What becomes of a body that is refused for its length.
//!
//! Invariant: a bounded part of it is read, for a bounded time, and forgotten: a client that writes all of a body before it
//! reads would find the connection broken in place of the refusal. It decides nothing about the request.

use std::time::Duration;

use axum::body::Body;
use futures_util::StreamExt;

/// So much of a body is read, and for so long.
const DRAINED_MAX: usize = 16 * 1024 * 1024;
const DRAIN_TIME: Duration = Duration::from_secs(2);

/// Reads what comes of a refused body, within the limits; for `patience` at most, where that is less.
pub(super) async fn drain(body: Body, patience: Duration) {
    let (mut left, mut pieces) = (DRAINED_MAX, body.into_data_stream());
    let read = async {
        while let Some(Ok(piece)) = pieces.next().await {
            left = left.saturating_sub(piece.len());
            if left == 0 {
                return;
            }
        }
    };
    // Whoever is slower hears nothing of it.
    let _ = tokio::time::timeout(patience.min(DRAIN_TIME), read).await;
}
