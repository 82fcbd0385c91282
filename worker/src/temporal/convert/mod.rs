//! Between our words and a cluster's protocol buffers: data only, nothing is decided.
//!
//! Invariant: what goes out and comes back is what it was, as far as the cluster has a place for it; what it has no place for
//! is named where it is left out. Failures that an embedded engine words itself get the same words here, so that workflow code
//! and people read the same on both.

mod failure;
mod info;
mod options;
mod payload;

pub(super) use failure::{failure_in, failure_out};
pub(super) use info::{begins_at, info_of, pending_activity};
pub(super) use options::{child_options, priority_in, priority_out, retry_in, retry_out, reuse_out};
pub(super) use payload::{
    attributes_in, attributes_out, instant_in, memo_in, memo_out, payload_in, payload_out, payloads_in, payloads_out,
    period_in, period_out, run_id_in, summary_out,
};
