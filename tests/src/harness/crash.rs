//! Crash rounds: a worker under load is killed, or loses power, again and again, and then everything that was
//! acknowledged is compared with what it holds.
//!
//! Invariant: the moments are chosen by [`Chance`], so that a seed repeats them as well as real processes allow; every
//! fifth death happens during recovery, some twice in a row. An [`Outcome`] counts, it does not judge; the tests do.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bosun_engine::WorkflowStatus;
use serde_json::json;

use super::histories::violations;
use super::http::Http;
use super::ledger::{Differences, Ledger, Operation, operations};
use super::load::{Load, Shape};
use super::power::PowerRig;
use super::process::{Program, REQUEST_MAX, WorkerProcess};
use super::{Chance, workload};

/// How long a worker may take to become ready after a crash before it counts as not opening. It takes milliseconds; beside
/// builds, on a slow disk or under strace seconds.
pub const READY_MAX: Duration = Duration::from_secs(60);
/// How long all workflows together may take to end after the last crash.
const SETTLE_MAX: Duration = Duration::from_secs(180);

/// What many crashes led to.
#[derive(Debug, Default)]
pub struct Outcome {
    pub crashes: u32,
    pub during_recovery: u32,
    pub acknowledged: usize,
    pub differences: Differences,
    pub violations: Vec<String>,
    /// Workflows that have all they wait for and did not end.
    pub unfinished: Vec<String>,
    /// Workers that did not become ready after a crash, each with what they said.
    pub unopenable: Vec<String>,
    pub slowest_recovery: Duration,
}

impl Outcome {
    /// Panics unless nothing at all went wrong.
    #[track_caller]
    pub fn assert_clean(&self, what: &str) {
        assert!(
            self.unopenable.is_empty(),
            "{what}: {} did not open, first:\n{}",
            self.unopenable.len(),
            self.unopenable[0]
        );
        assert!(self.differences.is_empty(), "{what}: {}", self.differences);
        assert!(
            self.violations.is_empty(),
            "{what}: {} broken rules, first: {}",
            self.violations.len(),
            self.violations[0]
        );
        let unfinished = &self.unfinished;
        assert!(unfinished.is_empty(), "{what}: {} do not end, first: {}", unfinished.len(), unfinished[0]);
        assert!(self.acknowledged > 0, "{what}: nothing was acknowledged, so nothing was tested");
    }

    pub fn summary(&self) -> String {
        format!(
            "{} crashes ({} during recovery), {} acknowledged operations, slowest recovery {:?}",
            self.crashes, self.during_recovery, self.acknowledged, self.slowest_recovery
        )
    }

    /// Compares every acknowledged workflow with its history.
    pub fn compare(&mut self, http: &Http, ledger: &Ledger) -> io::Result<()> {
        for workflow_id in ledger.workflows() {
            let history = http.history(&workflow_id)?;
            self.differences.extend(ledger.compare(&workflow_id, &operations(&history)));
            self.violations.extend(violations(&history).into_iter().map(|v| format!("{workflow_id}: {v}")));
        }
        self.acknowledged += ledger.acknowledged_count();
        Ok(())
    }

    /// Waits until every workflow that has all its signals has completed.
    pub fn settle(&mut self, http: &Http, ledger: &Ledger, shape: &Shape) -> io::Result<()> {
        let until = Instant::now() + SETTLE_MAX;
        for workflow_id in ledger.workflows().iter().filter(|_| shape.completes) {
            if ledger.count(workflow_id) <= shape.signals as usize {
                continue;
            }
            let result = http.result(workflow_id, until.saturating_duration_since(Instant::now()))?;
            if result.as_ref().is_none_or(|result| result.outcome.status() != WorkflowStatus::Completed) {
                self.unfinished.push(format!("{workflow_id}: {result:?}"));
            }
        }
        Ok(())
    }

    /// Starts the worker and takes the time; a worker that does not become ready is noted.
    pub fn recover(&mut self, program: &Program, data: &Path) -> io::Result<Option<(WorkerProcess, Http)>> {
        let mut worker = WorkerProcess::spawn(program, data)?;
        let began = Instant::now();
        match worker.wait_ready(READY_MAX) {
            Ok(http) => {
                self.slowest_recovery = self.slowest_recovery.max(began.elapsed());
                Ok(Some((worker, http)))
            }
            Err(why) => {
                self.unopenable.push(why.to_string());
                Ok(None)
            }
        }
    }

    fn crash(&mut self, during_recovery: bool) {
        self.crashes += 1;
        self.during_recovery += u32::from(during_recovery);
    }
}

/// Kills a worker `kills` times with SIGKILL, first behind one word, then under load. The ledger's file goes to `safe`.
pub fn kill_rounds(
    program: &Program,
    data: &Path,
    safe: &Path,
    kills: u32,
    chance: &mut Chance,
    shape: Shape,
) -> io::Result<Outcome> {
    let ledger = Arc::new(Ledger::create(&safe.join("ledger.jsonl"))?);
    let mut outcome = Outcome::default();
    let Some((mut worker, http)) = outcome.recover(program, data)? else { return Ok(outcome) };
    one_word(&http, "word", &ledger, || worker.kill().map(drop))?;
    outcome.crash(false);
    let load = Load::start(ledger.clone(), shape.clone());
    while outcome.crashes < kills {
        if chance.percent(20) {
            let mut worker = WorkerProcess::spawn(program, data)?;
            std::thread::sleep(Duration::from_micros(chance.below(40_000)));
            worker.kill()?;
            outcome.crash(true);
            continue;
        }
        let Some((mut worker, http)) = outcome.recover(program, data)? else { break };
        load.worker_is(&http.endpoint);
        something_is_acknowledged(&ledger);
        std::thread::sleep(Duration::from_micros(chance.below(300_000)));
        worker.kill()?;
        outcome.crash(false);
    }
    load.stop()?;
    if outcome.unopenable.is_empty()
        && let Some((_worker, http)) = outcome.recover(program, data)?
    {
        outcome.settle(&http, &ledger, &shape)?;
        outcome.compare(&http, &ledger)?;
    }
    Ok(outcome)
}

/// How many cuts hit one data directory before a fresh one is used, so that comparing stays short.
const CUTS_PER_DIRECTORY: u32 = 5;

/// Cuts the power of a worker under load `cuts` times. After each cut all that was ever acknowledged is compared.
pub fn power_cut_rounds(
    program: &Program,
    rig: &mut PowerRig,
    cuts: u32,
    chance: &mut Chance,
    shape: Shape,
) -> io::Result<Outcome> {
    let mut outcome = Outcome::default();
    let mut directory = 0;
    while outcome.crashes < cuts {
        let left = (cuts - outcome.crashes).min(CUTS_PER_DIRECTORY);
        cut_one_directory(program, rig, &format!("data-{directory}"), left, chance, &shape, &mut outcome)?;
        std::fs::remove_dir_all(rig.dir().join(format!("data-{directory}")))?;
        directory += 1;
    }
    Ok(outcome)
}

fn cut_one_directory(
    program: &Program,
    rig: &mut PowerRig,
    name: &str,
    cuts: u32,
    chance: &mut Chance,
    shape: &Shape,
    outcome: &mut Outcome,
) -> io::Result<()> {
    let ledger = Arc::new(Ledger::create(&rig.safe_dir()?.join(format!("{name}.jsonl")))?);
    for cut in 0..cuts {
        let data = rig.dir().join(name);
        if chance.percent(20) {
            let mut worker = WorkerProcess::spawn(program, &data)?;
            std::thread::sleep(Duration::from_micros(chance.below(40_000)));
            rig.power_cut(|| drop(worker.kill()))?;
            outcome.crash(true);
        }
        let Some((worker, http)) = outcome.recover(program, &data)? else { return Ok(()) };
        match cut {
            0 => one_word(&http, &format!("{name}-word"), &ledger, || {
                let mut worker = worker;
                rig.power_cut(|| drop(worker.kill())).map(drop)
            })?,
            _ => {
                let shape = Shape { prefix: format!("{name}-{cut}"), ..shape.clone() };
                cut_under_load(rig, worker, &http, chance, shape, &ledger)?;
            }
        }
        outcome.crash(false);
        let mut after = Outcome::default();
        let Some((_worker, http)) = outcome.recover(program, &rig.dir().join(name))? else { return Ok(()) };
        after.compare(&http, &ledger)?;
        outcome.differences.extend(after.differences);
        outcome.violations.extend(after.violations);
    }
    outcome.acknowledged += ledger.acknowledged_count();
    Ok(())
}

/// The crash that no worker survives which acknowledges too early: one client asks for one thing, and the worker goes with
/// the answer. A worker under load writes and syncs all the time and takes along what it owes; here nothing is asked that
/// could, so that finding it is no luck.
fn one_word(http: &Http, workflow_id: &str, ledger: &Ledger, crash: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
    let waits = workload::program(workflow_id, json!([{ "wait_signal": { "name": workload::SIGNAL } }]));
    ledger.attempt(workflow_id, &Operation::Start)?;
    http.start(&waits).acknowledged()?;
    crash()?;
    ledger.acknowledge(workflow_id, &Operation::Start)
}

/// A cut at any moment of many clients' work, once the first of it is acknowledged.
fn cut_under_load(
    rig: &mut PowerRig,
    mut worker: WorkerProcess,
    http: &Http,
    chance: &mut Chance,
    shape: Shape,
    ledger: &Arc<Ledger>,
) -> io::Result<()> {
    let load = Load::start(ledger.clone(), shape);
    load.worker_is(&http.endpoint);
    something_is_acknowledged(ledger);
    std::thread::sleep(Duration::from_micros(15_000 + chance.below(230_000)));
    ledger.freeze();
    rig.power_cut(|| drop(worker.kill()))?;
    load.stop()?;
    ledger.thaw();
    Ok(())
}

/// Waits until one more operation is acknowledged, so that a slow machine does not crash idle workers. A worker that
/// acknowledges nothing is not waited for: the comparison or the count of what was acknowledged says so.
fn something_is_acknowledged(ledger: &Ledger) {
    let (before, until) = (ledger.acknowledged_count(), Instant::now() + REQUEST_MAX);
    while ledger.acknowledged_count() == before && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(1));
    }
}
