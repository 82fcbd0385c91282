//! The run in which a run goes on: how large its input may be, and whether it is to go on elsewhere. For agents, and for
//! supervisors, which go on the same way.
//!
//! Invariant: what an engine takes is noted where it was asked, so that a worker that takes another measure replays it the
//! same; what every engine takes is not asked about. A run that is to leave ends in one that does nothing but wait for whoever
//! moves it (`migration`), so that no work is ever done in two places. It sends nothing.

use bosun_engine::ContinueAsNewOptions;
use bosun_engine::workflow::Cx;
use serde::{Deserialize, Serialize};
use serde_json::{Value, to_value};

/// The workflow type of a run that is about to leave.
pub(crate) const MIGRATION: &str = "bosun.migration";
/// The signal by which `bosun migrate` asks a run to leave, with a [`Leave`]; without a place: to stay after all.
pub(crate) const LEAVE: &str = "migrate_v1";

/// The note of a run that was moved: the run that it comes from. Who starts one with it may claim any state, so only owners may.
pub(crate) const CAME_FROM: &str = "bosun_migration";

/// Where a run is to go on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Leave {
    /// The place, in the words of `bosun migrate`.
    pub(crate) to: String,
}

impl Leave {
    /// What a signal says; what names no place takes the wish back.
    pub(crate) fn of(said: &Value) -> Option<Leave> {
        Leave::deserialize(said).ok().filter(|leave| !leave.to.is_empty())
    }
}

/// What a run leaves to the one that waits to be moved.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Leaving {
    /// Of the run that goes on elsewhere.
    pub(crate) workflow_type: String,
    /// Its input.
    pub(crate) input: Value,
    pub(crate) to: String,
}

/// Ends this run in the one in which it goes on: here, or, where it is to leave, in one that waits to be moved.
pub(crate) fn go_on_in<I: Serialize>(workflow_type: &str, input: &I, leave: Option<&Leave>, cx: &mut Cx<'_>) {
    let leaving = leave.and_then(|Leave { to }| {
        let (workflow_type, to) = (workflow_type.to_owned(), to.clone());
        Some(Leaving { workflow_type, input: to_value(input).ok()?, to })
    });
    match leaving {
        Some(leaving) => cx.continue_as_new_type(MIGRATION, &leaving, ContinueAsNewOptions::default()),
        None => cx.continue_as_new(input, ContinueAsNewOptions::default()),
    }
}

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
