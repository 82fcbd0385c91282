//! The batch that has an id already.
//!
//! Invariant: what it was told stands in the first event of its history. It is read, and nothing is changed.

use bosun_engine::*;

use super::order::BatchOrder;
use crate::backend::{Backend, CallError};

/// What the batch that has begun under this id does, where that is something else than this order.
///
/// # Errors
/// Its history cannot be read.
pub(crate) async fn another(
    backend: &dyn Backend,
    batch: Target,
    order: &BatchOrder,
) -> Result<Option<String>, CallError> {
    let Some(first) = backend.history(batch, EventId(1), 1).await?.pop() else { return Ok(None) };
    let EventKind::WorkflowExecutionStarted(started) = first.kind else { return Ok(None) };
    let Ok(begun) = started.input.decode::<BatchOrder>() else { return Ok(None) };
    let parts = |order: &BatchOrder| (order.query.clone(), order.action.clone(), order.reason.clone(), order.rps);
    Ok((parts(&begun) != parts(order)).then(|| format!("{} {}", begun.action.in_words(), begun.query)))
}
