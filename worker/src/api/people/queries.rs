//! What a run answers to a query, for lists of many: one that cannot answer hides nothing of the others.

use bosun_engine::{Payload, QueryName, Target};
use serde_json::Value;

use crate::backend::Backend;

/// What a query answers; nothing where the run cannot answer.
pub(crate) async fn ask(backend: &dyn Backend, target: &Target, query: &str) -> Value {
    let answer = backend.query(target.clone(), QueryName::of(query), Payload::null()).await;
    answer.map(|payload| payload.to_json()).unwrap_or_default()
}
