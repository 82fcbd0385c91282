//! Very many lives: each drawn plan is lived with all doubts, and then again and again with other steps, on several threads.
//!
//! ```text
//!   seed ──► plan (drawn, shrinks) ──► all doubts
//!              └──► other steps (thrown from seed and number) ──► guarantees, invariants, one whole replay;
//!                                                                  each sixteenth: every prefix too
//! ```
//!
//! Invariant: what is found depends on the seeds alone, not on threads: of several failures the one of the earliest seed is
//! told. What is sampled is said here and nowhere else: the replay of every prefix. Twins belong to the drawn plan.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, sync_channel};

use super::DeterminismTest;
use super::report::{Failed, Report};
use super::search::{mix, tree};
use super::steps::Possible;
use crate::simulate::{
    Doubts, Life, LifePlan, PlanFaults, Versions, Violation, live, live_here, on_a_fresh_thread, order_independent,
};

/// Of so many lives with thrown steps one has every prefix replayed.
const PREFIXES_EVERY: u32 = 16;

/// What the threads that live need; strategies stay on the thread that draws.
struct SearchContext<'a> {
    versions: &'a Versions,
    doubts: &'a Doubts,
    order_independent: bool,
    schedules: u32,
    possible: Possible,
    steps_max: usize,
}

/// A plan, and what is wrong with it.
type LifeViolation = Box<(LifePlan, Violation)>;

/// A drawn plan on its way to whoever lives it.
struct DrawnPlan {
    number: u64,
    seed: u64,
    plan: LifePlan,
}

impl DeterminismTest {
    /// Lives all seeds; the first failure is made small on this thread.
    pub(super) fn many(&self, seeds: impl Iterator<Item = u64>, report: &mut Report) -> Result<(), Box<Failed>> {
        let lives = SearchContext {
            versions: &self.versions,
            doubts: &self.doubts,
            order_independent: self.order_independent,
            schedules: self.schedules,
            possible: self.drawn.possible(),
            steps_max: self.drawn.steps_max,
        };
        let plans = self.drawn.plans();
        let (stop, mut without_values) = (AtomicBool::new(false), None);
        let (hand_out, waiting) = sync_channel(self.threads * 4);
        let waiting = Mutex::new(waiting);
        let (reports, wrong): (Vec<Report>, Vec<_>) = std::thread::scope(|scope| {
            let living = (0..self.threads).map(|_| scope.spawn(|| lives.live(&waiting, &stop)));
            let living: Vec<_> = living.collect();
            for (number, seed) in seeds.enumerate() {
                let Some(plan) = tree(&plans, seed).map(|tree| tree.current()) else {
                    without_values = Some(seed);
                    break;
                };
                let task = DrawnPlan { number: number as u64, seed, plan };
                if stop.load(Ordering::Relaxed) || hand_out.send(task).is_err() {
                    break;
                }
            }
            drop(hand_out);
            // A panic there is the kit's own, and is one here too.
            living.into_iter().map(|thread| thread.join().unwrap_or_else(|why| std::panic::resume_unwind(why))).unzip()
        });
        reports.iter().for_each(|part| report.merge(part));
        let first = wrong.into_iter().flatten().min_by_key(|(task, _)| task.number);
        if let Some((task, wrong)) = first {
            let Some(mut tree) = tree(&plans, task.seed) else { return Err(self.no_values(task.seed, report)) };
            report.lives = task.number * (1 + u64::from(self.schedules));
            return Err(self.found(tree.as_mut(), wrong.0, wrong.1, task.seed, report));
        }
        without_values.map_or(Ok(()), |seed| Err(self.no_values(seed, report)))
    }
}

impl SearchContext<'_> {
    /// Lives what is handed out until there is no more, or something is wrong.
    fn live(
        &self,
        waiting: &Mutex<Receiver<DrawnPlan>>,
        stop: &AtomicBool,
    ) -> (Report, Option<(DrawnPlan, LifeViolation)>) {
        let mut report = Report::default();
        loop {
            let task = waiting.lock().ok().and_then(|waiting| waiting.recv().ok());
            let Some(task) = task else { return (report, None) };
            match self.all_of(&task, &mut report) {
                Ok(()) => {}
                Err(wrong) => {
                    stop.store(true, Ordering::Relaxed);
                    // Nobody waits for a thread that has gone: the rest is thrown away.
                    while waiting.lock().is_ok_and(|waiting| waiting.recv().is_ok()) {}
                    return (report, Some((task, wrong)));
                }
            }
        }
    }

    /// The plan as it was drawn, then with other steps.
    fn all_of(&self, task: &DrawnPlan, report: &mut Report) -> Result<(), LifeViolation> {
        let wrong = |plan: &LifePlan, finding| Box::new((plan.clone(), finding));
        let drawn = lived(&task.plan, self.versions, self.doubts, self.order_independent);
        report.add(&drawn.map_err(|finding| wrong(&task.plan, finding))?);
        report.drawn += 1;
        let (light, every_prefix) = (self.doubts.of_one_in_many(false), self.doubts.of_one_in_many(true));
        let mut plan = task.plan.clone();
        let thrown = on_a_fresh_thread(|| {
            for n in 0..self.schedules {
                plan.steps = self.possible.thrown(mix(task.seed ^ mix(u64::from(n))), self.steps_max);
                let doubts = if n.is_multiple_of(PREFIXES_EVERY) { &every_prefix } else { &light };
                report.add(&live_here(&plan, self.versions, doubts, &PlanFaults::default())?);
            }
            Ok(())
        });
        thrown.map_err(|finding| wrong(&plan, finding))
    }
}

/// One life with all doubts.
pub(super) fn lived(
    plan: &LifePlan,
    versions: &Versions,
    doubts: &Doubts,
    in_any_order: bool,
) -> Result<Life, Violation> {
    if in_any_order {
        order_independent(plan, versions, doubts)?;
    }
    live(plan, versions, doubts, &[])
}
