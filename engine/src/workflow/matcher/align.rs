//! Lines up history and code, and says in words what changed.
//!
//! Invariant: an explanation is only made after a mismatch was found; it never decides whether there is one. The lines
//! hold every recorded event and every command of the activation, once.

use super::key::{RequestEntry, entry_of_command, entry_of_event, matches};
use super::{Locate, RunIdentity, first_difference, is_deprecated_patch};
use crate::vocabulary::*;
use crate::workflow::asked::{Hint, RequestKind};
use crate::workflow::nondeterminism::{ActivatingEvent, AlignedLine, NearestMatch, NonDeterminism};

/// Above this many cells the longest common subsequence is not worth its time, and lines are paired by their place.
const CELLS_MAX: usize = 4_000_000;

/// The two sides of one activation.
struct Sides<'a> {
    run: &'a RunIdentity,
    recorded: &'a [&'a Event],
    produced: &'a [Command],
    held: Vec<RequestEntry>,
    asked: Vec<RequestEntry>,
    locate: &'a Locate<'a>,
}

/// Makes the explanation of a mismatch.
pub(super) fn explain(
    run: &RunIdentity,
    activating: &Event,
    produced: &[Command],
    locate: &Locate<'_>,
    recorded: &[&Event],
) -> NonDeterminism {
    let sides = Sides::of(run, recorded, produced, locate);
    let (asked, held) = first_difference(run, produced, recorded).unwrap_or((produced.len(), recorded.len()));
    let event_id = match recorded.get(held) {
        Some(event) => event.id,
        None => recorded.last().map_or(activating.id, |event| event.id).next(),
    };
    let alignment = sides.align();
    let hint = hint_for(&alignment, sides.held.get(held), sides.asked.get(asked));
    NonDeterminism {
        run_id: run.run_id,
        workflow_id: run.workflow_id.clone(),
        workflow_type: run.workflow_type.clone(),
        event_id,
        activating: ActivatingEvent { event_id: activating.id, name: activating.kind.name().to_owned() },
        expected: sides.held.get(held).map(|entry| entry.request.clone()),
        produced: sides.asked.get(asked).map(|entry| entry.request.clone()),
        location: (asked < produced.len()).then(|| locate(asked)).flatten(),
        nearest: sides.nearest(asked, held),
        alignment,
        hint,
        recorded_build: activating.build,
        current_build: run.current_build,
    }
}

/// The lines and the hint alone.
pub(super) fn align_all(
    run: &RunIdentity,
    produced: &[Command],
    locate: &Locate<'_>,
    recorded: &[&Event],
) -> (Vec<AlignedLine>, Hint) {
    let sides = Sides::of(run, recorded, produced, locate);
    let (asked, held) = first_difference(run, produced, recorded).unwrap_or((produced.len(), recorded.len()));
    let lines = sides.align();
    let hint = hint_for(&lines, sides.held.get(held), sides.asked.get(asked));
    (lines, hint)
}

impl<'a> Sides<'a> {
    fn of(run: &'a RunIdentity, recorded: &'a [&'a Event], produced: &'a [Command], locate: &'a Locate<'a>) -> Self {
        Sides {
            run,
            recorded,
            produced,
            // Every event that a command causes is a request.
            held: recorded.iter().filter_map(|event| entry_of_event(&event.kind)).collect(),
            asked: produced.iter().map(entry_of_command).collect(),
            locate,
        }
    }
}

impl Sides<'_> {
    /// The recorded event that is most like the command, other than the one it was compared with.
    fn nearest(&self, asked: usize, held: usize) -> Option<NearestMatch> {
        let (command, entry) = (self.produced.get(asked)?, self.asked.get(asked)?);
        let others = || self.recorded.iter().zip(&self.held).enumerate().filter(|(at, _)| *at != held);
        let exact = others().find(|(_, (event, _))| matches(self.run, command, &event.kind));
        let alike = || others().find(|(_, (_, other))| other.request.is_alike(&entry.request));
        let (_, (event, what)) = exact.or_else(alike)?;
        Some(NearestMatch { event_id: event.id, what: what.request.clone() })
    }

    fn align(&self) -> Vec<AlignedLine> {
        let pairs = common_subsequence(&self.held, &self.asked);
        let (mut lines, mut missing, mut extra) = (Vec::new(), Vec::new(), Vec::new());
        let (mut held, mut asked) = (0, 0);
        for (next_held, next_asked) in pairs.into_iter().chain([(self.held.len(), self.asked.len())]) {
            for at in held..next_held {
                missing.push((lines.len(), at));
                lines.push(self.missing(at));
            }
            for at in asked..next_asked {
                extra.push((lines.len(), at));
                lines.push(self.extra(at));
            }
            if next_held < self.held.len() && next_asked < self.asked.len() {
                lines.push(self.pair(next_held, next_asked));
            }
            (held, asked) = (next_held + 1, next_asked + 1);
        }
        self.join_moved(lines, &missing, extra)
    }

    fn missing(&self, at: usize) -> AlignedLine {
        let (event_id, what) = (self.recorded[at].id, self.held[at].request.clone());
        if is_deprecated_patch(&self.recorded[at].kind) {
            return AlignedLine::Same { event_id, what };
        }
        AlignedLine::Missing { event_id, what }
    }
    fn extra(&self, at: usize) -> AlignedLine {
        AlignedLine::Extra { what: self.asked[at].request.clone(), location: (self.locate)(at) }
    }
    /// Two requests of the same kind and name: the same, or with other content. Numbers shift with every insertion and
    /// are no difference of their own.
    fn pair(&self, held: usize, asked: usize) -> AlignedLine {
        let (event, command) = (self.recorded[held], &self.produced[asked]);
        let (was, is) = (&self.held[held], &self.asked[asked]);
        let same_time = matches!(
            (command, &event.kind),
            (Command::StartTimer { fire_at, .. }, EventKind::TimerStarted { fire_at: held, .. }) if fire_at == held
        );
        let renumbered = (was.content.is_some() && was.content == is.content) || same_time;
        if matches(self.run, command, &event.kind) || renumbered {
            return AlignedLine::Same { event_id: event.id, what: was.request.clone() };
        }
        AlignedLine::Changed {
            event_id: event.id,
            recorded: was.request.clone(),
            produced: is.request.clone(),
            location: (self.locate)(asked),
            recorded_input: was.content.clone(),
            produced_input: is.content.clone(),
        }
    }

    /// A request that is missing in one place and extra in another has moved.
    fn join_moved(
        &self,
        lines: Vec<AlignedLine>,
        missing: &[(usize, usize)],
        mut extra: Vec<(usize, usize)>,
    ) -> Vec<AlignedLine> {
        let mut lines: Vec<Option<AlignedLine>> = lines.into_iter().map(Some).collect();
        for (line, held) in missing {
            let same = |entry: &RequestEntry| {
                entry.request.is_alike(&self.held[*held].request) && entry.content == self.held[*held].content
            };
            let Some(found) = extra.iter().position(|(_, asked)| same(&self.asked[*asked])) else { continue };
            let (extra_line, asked) = extra.remove(found);
            lines[extra_line] = None;
            lines[*line] = Some(AlignedLine::Reordered {
                event_id: self.recorded[*held].id,
                what: self.held[*held].request.clone(),
                location: (self.locate)(asked),
            });
        }
        lines.into_iter().flatten().collect()
    }
}

/// Pairs of indexes with equal keys, increasing on both sides, as many as possible.
fn common_subsequence(held: &[RequestEntry], asked: &[RequestEntry]) -> Vec<(usize, usize)> {
    let same = |h: usize, a: usize| held[h].request.is_alike(&asked[a].request);
    let (rows, columns) = (held.len(), asked.len());
    if rows.saturating_mul(columns) > CELLS_MAX {
        return (0..rows.min(columns)).filter(|at| same(*at, *at)).map(|at| (at, at)).collect();
    }
    // lengths[h][a]: the longest common subsequence of what begins at h and at a.
    let mut lengths = vec![vec![0u32; columns + 1]; rows + 1];
    for h in (0..rows).rev() {
        for a in (0..columns).rev() {
            lengths[h][a] = match same(h, a) {
                true => lengths[h + 1][a + 1] + 1,
                false => lengths[h + 1][a].max(lengths[h][a + 1]),
            };
        }
    }
    let (mut pairs, mut h, mut a) = (Vec::new(), 0, 0);
    while h < rows && a < columns {
        if same(h, a) {
            pairs.push((h, a));
            (h, a) = (h + 1, a + 1);
        } else if lengths[h + 1][a] >= lengths[h][a + 1] {
            h += 1;
        } else {
            a += 1;
        }
    }
    pairs
}

/// What to do about it, from the lines and the first difference.
fn hint_for(lines: &[AlignedLine], held: Option<&RequestEntry>, asked: Option<&RequestEntry>) -> Hint {
    let find = |wanted: fn(&AlignedLine) -> bool| lines.iter().any(wanted);
    let missing = find(|line| matches!(line, AlignedLine::Missing { .. }));
    let extra = find(|line| matches!(line, AlignedLine::Extra { .. }));
    let (held, asked) = (held.map(|entry| &entry.request), asked.map(|entry| &entry.request));
    if find(|line| matches!(line, AlignedLine::Reordered { .. })) {
        return Hint::Reordered;
    }
    let is = |kind: RequestKind| held.is_some_and(|held| held.kind == kind);
    // More is asked for where history ends.
    match (missing && !(extra && is(RequestKind::CompleteWorkflow)), extra) {
        (false, true) => Hint::Inserted(asked.cloned()),
        (true, false) => Hint::Removed(held.cloned()),
        (true, true) => match (held, asked) {
            (Some(held), Some(asked)) if held.kind == asked.kind && !held.is_alike(asked) => {
                Hint::Renamed { from: held.clone(), to: asked.clone() }
            }
            _ => Hint::OtherPath,
        },
        (false, false) if is(RequestKind::StartTimer) => Hint::TimerChanged,
        (false, false) => Hint::ContentChanged,
    }
}
