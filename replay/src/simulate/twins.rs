//! Twins: the code runs over its finished histories again, disturbed, and must be seen to do the same.
//!
//! Invariant: what a twin sees is everything that can be seen: commands, state, answers to queries. The last twin stands on
//! a thread of its own that has a name and a runtime around it, as code has that is replayed in somebody's async test. Twins
//! in other processes compare what is seen in the same words; nothing here starts one.

use bosun_engine::workflow::WorkflowRegistry;
use bosun_engine::*;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::doubts::{Doubts, compare, on_a_named_thread, state_text, unstable};
use super::finding::Violation;
use super::watch::{self, WatchedActivation};
use super::world::World;
use crate::determinism::{Perturbation, perturbed};

/// What one twin has seen of a history.
#[derive(Debug)]
struct Twin {
    digest: [u8; 32],
    asked: Vec<WatchedActivation>,
    state: Option<Value>,
    answers: Vec<String>,
}

impl Doubts {
    fn twin(
        &self,
        registry: &WorkflowRegistry,
        turns: &[Turn],
        lived: Option<&[WatchedActivation]>,
        queries: &[(QueryName, Payload)],
    ) -> Result<Twin, Violation> {
        let mut asked = Vec::new();
        let mut replayed = self.relive(registry, turns, lived, &mut |step| asked.push(WatchedActivation::of(step)))?;
        let answers = queries.iter().map(|(name, input)| format!("{:?}", replayed.driver.query(name, input))).collect();
        Ok(Twin { digest: replayed.digest, state: replayed.driver.state_json(), asked, answers })
    }
}

impl World<'_> {
    /// Replays every history whole, if that was not done as it grew.
    pub(super) fn whole(&mut self) -> Result<(), Violation> {
        if self.version > 0 || self.doubts.prefixes {
            return Ok(());
        }
        self.runs.values().try_for_each(|run| self.doubts.replay(self.registry(), run))
    }

    /// Runs the code over its histories again, with other memory, clocks and hash keys, and from snapshots.
    pub(super) fn twins(&mut self) -> Result<(), Violation> {
        if self.version > 0 || self.doubts.twins == 0 {
            return Ok(());
        }
        let queries = self.plan.queries.clone();
        let (registry, runs, doubts) = (self.registry(), &self.runs, self.doubts);
        let histories: Vec<(&[Turn], &[WatchedActivation])> =
            runs.values().map(|run| (&run.turns[..], &run.lived[..])).collect();
        let mut first: Option<Vec<Twin>> = None;
        for number in 0..doubts.twins {
            let run = || {
                let _disturbed = perturbed(Perturbation::of(number));
                let seen: Result<Vec<Twin>, Violation> = histories
                    .iter()
                    .map(|(turns, lived)| doubts.twin(registry, turns, Some(lived), &queries))
                    .collect();
                doubts.stray().and(seen)
            };
            // The last one stands alone; a thread costs more than the replay.
            let last = number + 1 == doubts.twins;
            let seen = if last { on_a_named_thread("twin", || within_a_runtime(run))? } else { run()? };
            match &first {
                None => first = Some(seen),
                Some(first) => differs(first, &seen)?,
            }
        }
        watch::take();
        self.resume_every_snapshot()
    }
}

/// With a runtime of tokio at hand, which workflow code must neither need nor notice.
pub(crate) fn within_a_runtime<T>(work: impl FnOnce() -> T) -> T {
    // Without one, if it cannot be made, the twin still is one.
    let runtime = tokio::runtime::Builder::new_current_thread().build();
    let _within = runtime.as_ref().ok().map(tokio::runtime::Runtime::enter);
    work()
}

fn differs(first: &[Twin], second: &[Twin]) -> Result<(), Violation> {
    for (one, two) in first.iter().zip(second) {
        compare(&one.asked, &two.asked)?;
        if one.digest != two.digest {
            return Err(unstable("commands", hex(&one.digest), hex(&two.digest)));
        }
        if one.state != two.state {
            return Err(unstable("state", state_text(&one.state), state_text(&two.state)));
        }
        if let Some((a, b)) = one.answers.iter().zip(&two.answers).find(|(a, b)| a != b) {
            return Err(unstable("query", a.clone(), b.clone()));
        }
    }
    Ok(())
}

/// A history and what was seen of it, for a twin in another process.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct SeenRun {
    /// The seed of the life.
    pub(crate) seed: u64,
    pub(crate) turns: Vec<Turn>,
    asked: Vec<WatchedActivation>,
    state: Option<Value>,
    answers: Vec<String>,
}

/// Replays a history and says everything that is seen.
pub(crate) fn see(
    doubts: &Doubts,
    registry: &WorkflowRegistry,
    seed: u64,
    turns: Vec<Turn>,
    queries: &[(QueryName, Payload)],
) -> Result<SeenRun, Violation> {
    let Twin { asked, state, answers, .. } = doubts.twin(registry, &turns, None, queries)?;
    Ok(SeenRun { seed, turns, asked, state, answers })
}

/// Replays it again: the same must be seen.
pub(crate) fn see_again(
    doubts: &Doubts,
    registry: &WorkflowRegistry,
    seen: &SeenRun,
    queries: &[(QueryName, Payload)],
) -> Result<(), Violation> {
    doubts.forget();
    let again = doubts.twin(registry, &seen.turns, Some(&seen.asked), queries)?;
    doubts.stray()?;
    compare(&seen.asked, &again.asked)?;
    if seen.state != again.state {
        return Err(unstable("state", state_text(&seen.state), state_text(&again.state)));
    }
    match seen.answers.iter().zip(&again.answers).find(|(here, there)| here != there) {
        Some((here, there)) => Err(unstable("answers to queries", here.clone(), there.clone())),
        None => Ok(()),
    }
}

/// Replays it again while another run is in memory, which has not ended there: the same must be seen.
pub(crate) fn see_beside(
    doubts: &Doubts,
    registry: &WorkflowRegistry,
    other: &SeenRun,
    seen: &SeenRun,
    queries: &[(QueryName, Payload)],
) -> Result<(), Violation> {
    doubts.forget();
    let ended = other.turns.last().and_then(|turn| turn.events.last()).is_some_and(|end| end.closes().is_some());
    let open = other.turns.len() - usize::from(ended);
    let loaded = doubts.relive(registry, &other.turns[..open], None, &mut |_| ())?;
    let beside = see_again(doubts, registry, seen, queries);
    drop(loaded);
    beside.and(doubts.stray())
}
