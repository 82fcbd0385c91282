//! How large the input may be with which a run goes on in a new one: for agents, and for supervisors, which go on the same way.
//!
//! Invariant: what an engine takes is noted where it was asked, so that a worker that takes another measure replays it the
//! same; what every engine takes is not asked about. It sends nothing.

use bosun_engine::workflow::Cx;
use serde::Serialize;

/// The next run is given no more bytes than these: clusters take two MiB, with what is around it.
const INPUT_MAX: usize = 1_900_000;
/// So small an input is taken everywhere: nobody is asked.
const SMALL: usize = 16 * 1024;
/// What an engine counts beside the input itself.
const AROUND: usize = 1024;

/// As it is sent; what cannot be written is sent nowhere.
pub(crate) fn bytes_of<I: Serialize>(input: &I) -> usize {
    serde_json::to_vec(input).map_or(usize::MAX, |text| text.len())
}

/// How large an input may be that has so many bytes: whoever runs the engine may have said that it takes less than a cluster.
pub(crate) fn input_max(bytes: usize, cx: &mut Cx<'_>) -> usize {
    if bytes <= SMALL {
        return INPUT_MAX;
    }
    let takes = cx.payload_max().saturating_sub(AROUND).min(INPUT_MAX);
    cx.side_effect(|| takes)
}
