//! The whole engine, simulated: arbitrary programs, clients, faults and orders of steps, each life from one seed.
//!
//! `BOSUN_LIVES` sets how many lives are lived; the figures are printed. A life that fails prints its seed and the line
//! that lives it again (`BOSUN_KEEP=file` keeps it as a case). Lives that have failed once are kept in `fixtures/cases/engine-*.json` and lived for ever.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use bosun_replay::simulate::engine::{
    ENGINE_RARE, EngineFailure, EngineLife, EnginePlan, FaultProfile, StepChoices, live_engine,
};
use bosun_tests::harness::count_from_env;
use bosun_tests::harness::simulated::plan;
use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestError, TestRng, TestRunner};
use serde::{Deserialize, Serialize};
use serde_json::Value;

#[path = "../../worker/tests/programs/generate.rs"]
mod generate;

fn programs() -> impl Strategy<Value = Vec<Value>> {
    proptest::collection::vec(generate::arb_program(), 1..4)
}

fn runner(seed: u64, cases: u32) -> TestRunner {
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    let config = Config { cases, failure_persistence: None, max_shrink_iters: 20_000, ..Config::default() };
    TestRunner::new_with_rng(config, TestRng::from_seed(RngAlgorithm::ChaCha, &bytes))
}

/// The life of a seed: one to three programs, and choices.
fn case_of(seed: u64) -> Case {
    let programs = programs().new_tree(&mut runner(seed, 1)).expect("a strategy without filters").current();
    let choices = plan(&programs).seeded(seed, 20 + (seed % 7) as usize * 35).choices;
    Case { why: format!("seed {seed}"), programs, choices }
}

pub(crate) fn plan_of(seed: u64) -> EnginePlan {
    case_of(seed).plan()
}

/// Everything a reader needs of a life that failed.
fn told(seed: u64, why: &EngineFailure) -> String {
    let again = format!("BOSUN_LIFE={seed} cargo test -p bosun-tests --test main simulation -- --nocapture");
    format!("live it again with\n    {again}\n{}\n{why}", plan_of(seed).describe())
}

/// G1-G6, G11-G22, G36: clients, programs, crashes, storage errors and every order of steps, by seed; and the rare states
/// are met.
#[test]
fn the_engine_keeps_its_word_in_every_simulated_life() {
    live_by_seed(600);
}

/// The same, five times as many.
#[test]
#[ignore = "minutes: cargo full"]
fn the_engine_keeps_its_word_in_three_thousand_lives() {
    live_by_seed(3_000);
}

fn live_by_seed(lives: u32) {
    if let Ok(seed) = std::env::var("BOSUN_LIFE") {
        let seed = seed.parse().expect("a seed");
        if let Ok(path) = std::env::var("BOSUN_KEEP") {
            std::fs::write(&path, serde_json::to_string(&case_of(seed)).expect("plain data")).expect("it can be kept");
        }
        let life = live_engine(&plan_of(seed)).unwrap_or_else(|why| panic!("{}", told(seed, &why)));
        println!("{} steps, {} groups, {} restarts", life.steps, life.groups, life.restarts);
        return;
    }
    let lives = u64::from(count_from_env("BOSUN_LIVES", lives));
    let (next, begun) = (AtomicU64::new(0), Instant::now());
    let totals: Mutex<Totals> = Mutex::default();
    let live_some = || {
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= lives {
                return;
            }
            let lived = live_engine(&plan_of(seed));
            totals.lock().expect("nobody panics here").note(seed, lived);
        }
    };
    std::thread::scope(|scope| drop([scope.spawn(live_some), scope.spawn(live_some)]));
    let Totals { rare, figures: [histories, steps, groups, restarts], failures } =
        totals.into_inner().expect("as above");
    let rate = lives as f64 / begun.elapsed().as_secs_f64();
    println!(
        "{lives} lives of the engine: {histories} histories, {steps} steps, {groups} groups, {restarts} restarts; {rate:.0} lives a second"
    );
    for (seed, why) in failures.iter().take(20) {
        println!("BOSUN_LIFE={seed}: {}: {:.300}", why.id, why.why);
    }
    if let Some((seed, why)) = failures.first_key_value() {
        panic!("{} of {lives} lives have failed; the first: {}", failures.len(), told(*seed, why));
    }
    for name in ENGINE_RARE {
        println!("{:>9} {name}", rare.get(name).copied().unwrap_or_default());
    }
    let never: Vec<&&str> = ENGINE_RARE.iter().filter(|name| !rare.contains_key(*name)).collect();
    assert!(never.is_empty(), "never met: {never:?}");
}

/// What many lives add up to.
#[derive(Default)]
struct Totals {
    rare: BTreeMap<&'static str, u64>,
    figures: [u64; 4],
    failures: BTreeMap<u64, EngineFailure>,
}

impl Totals {
    fn note(&mut self, seed: u64, lived: Result<EngineLife, EngineFailure>) {
        match lived {
            Ok(life) => {
                life.rare.iter().for_each(|(name, times)| *self.rare.entry(name).or_default() += times);
                let figures = [life.histories.len() as u64, life.steps, life.groups, u64::from(life.restarts)];
                self.figures.iter_mut().zip(figures).for_each(|(total, figure)| *total += figure);
            }
            Err(why) => drop(self.failures.insert(seed, why)),
        }
    }
}

/// A life as a file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    why: String,
    programs: Vec<Value>,
    choices: Vec<StepChoices>,
}

impl Case {
    fn plan(&self) -> EnginePlan {
        EnginePlan { choices: self.choices.clone(), ..plan(&self.programs) }
    }
}

/// The smallest life that does not have the property, if one of `cases` lives has it not.
fn smallest(cases: u32, holds: impl Fn(&EnginePlan) -> Result<(), String>) -> Option<Case> {
    let strategy = (programs(), proptest::collection::vec(proptest::array::uniform6(proptest::num::u16::ANY), 0..200));
    let found = runner(7, cases).run(&strategy, |(programs, choices)| {
        let case = Case { why: String::new(), programs, choices };
        holds(&case.plan()).map_err(TestCaseError::fail)
    });
    match found {
        Ok(()) => None,
        Err(TestError::Fail(why, (programs, choices))) => Some(Case { why: why.to_string(), programs, choices }),
        Err(TestError::Abort(why)) => panic!("{why}"),
    }
}

/// G16: each profile of faults alone; without any, no worker ever ends, and every run comes to rest all the same.
#[test]
fn every_profile_of_faults_is_survived() {
    let profiles = [FaultProfile::None, FaultProfile::Crashes, FaultProfile::Storage, FaultProfile::Stalls];
    for (faults, seed) in profiles.into_iter().flat_map(|faults| (0..60).map(move |seed| (faults, seed))) {
        let lived = live_engine(&EnginePlan { faults, ..plan_of(seed) });
        let life = lived.unwrap_or_else(|why| panic!("{faults:?}: {}", told(seed, &why)));
        // One restart at rest belongs to every life: it must change nothing.
        assert!(
            faults != FaultProfile::None || life.restarts == 1,
            "{faults:?}, seed {seed}: {} restarts",
            life.restarts
        );
    }
}

/// As above, drawn and made small by proptest; what fails is left in `fixtures/cases`.
#[test]
fn lives_drawn_by_proptest_keep_the_word_too() {
    live_drawn(100);
}

/// The same, three times as many.
#[test]
#[ignore = "minutes: cargo full"]
fn three_hundred_lives_drawn_by_proptest_keep_the_word_too() {
    live_drawn(300);
}

fn live_drawn(lives: u32) {
    let lived = |plan: &EnginePlan| live_engine(plan).map(drop).map_err(|why| format!("{}: {}", why.id, why.why));
    let Some(case) = smallest(count_from_env("BOSUN_DRAWN_LIVES", lives), lived) else { return };
    let text = serde_json::to_string_pretty(&case).expect("plain data");
    let path = cases_dir().join(format!("engine-found-{:08x}.json", text.len() * 31 + case.choices.len()));
    std::fs::write(&path, &text).unwrap_or_else(|why| panic!("{}: {why}", path.display()));
    let told = live_engine(&case.plan()).err().map_or_else(|| "it holds now?".to_owned(), |why| why.to_string());
    panic!("kept as {}\n{text}\n{told}", path.display());
}

/// A life that lacks a property shrinks to one with hardly anything in it.
#[test]
fn a_failing_life_is_made_small() {
    let completed = |plan: &EnginePlan| {
        let life = live_engine(plan).map_err(|why| why.to_string())?;
        let ends = |turns: &Vec<bosun_engine::Turn>| {
            turns.iter().flat_map(|turn| &turn.events).any(|event| event.name() == "TimerFired")
        };
        if life.histories.values().any(ends) { Err("a timer has fired".to_owned()) } else { Ok(()) }
    };
    let case = smallest(300, completed).expect("in some life a timer fires");
    assert!(case.programs.len() == 1 && case.choices.len() <= 25, "{case:?}");
}

fn cases_dir() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../fixtures/cases"))
}

/// Lives that have failed once, each by a bug that its `why` tells.
#[test]
fn lives_that_failed_once_do_not_fail_again() {
    let mut lived = 0;
    let files = std::fs::read_dir(cases_dir()).expect("fixtures/cases can be read");
    let mut files: Vec<_> = files.map(|file| file.expect("an entry").path()).collect();
    files.retain(|path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("engine-")));
    files.sort();
    for path in files {
        let text = std::fs::read_to_string(&path).unwrap_or_else(|why| panic!("{}: {why}", path.display()));
        let case: Case = serde_json::from_str(&text).unwrap_or_else(|why| panic!("{}: {why}", path.display()));
        live_engine(&case.plan()).unwrap_or_else(|why| panic!("{}: {}\n{why}", path.display(), case.why));
        lived += 1;
    }
    assert!(lived >= 2, "{lived} cases");
}

/// The traces of the first seeds, in order.
fn traces(seeds: u64) -> Vec<String> {
    let lived = |seed| live_engine(&plan_of(seed)).unwrap_or_else(|why| panic!("{}", told(seed, &why)));
    (0..seeds).map(|seed| lived(seed).trace).collect()
}

const TRACES: &str = "BOSUN_TRACES";

/// The same seed gives the same life, byte for byte: again, beside others on other threads, and in another process; and
/// other seeds give other lives.
#[test]
fn one_seed_is_one_life_on_any_thread_and_in_any_process() {
    const SEEDS: u64 = 100;
    let here = traces(SEEDS);
    if std::env::var_os(TRACES).is_some() {
        here.iter().for_each(|trace| println!("trace {trace}"));
        return;
    }
    let beside = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..3).map(|_| scope.spawn(|| traces(SEEDS))).collect();
        threads.into_iter().map(|thread| thread.join().expect("it lives the same lives")).collect::<Vec<_>>()
    });
    assert!(beside.iter().all(|traces| *traces == here));
    let this = std::env::current_exe().expect("this program");
    let name = "simulation::one_seed_is_one_life_on_any_thread_and_in_any_process";
    let output = Command::new(this).args([name, "--exact", "--nocapture"]).env(TRACES, "1").output().expect("it runs");
    let text = String::from_utf8_lossy(&output.stdout);
    let there: Vec<&str> = text.lines().filter_map(|line| line.split("trace ").nth(1)).collect();
    assert_eq!(there, here, "{text}");
    let different: BTreeSet<&String> = here.iter().collect();
    assert!(different.len() as u64 >= SEEDS * 99 / 100, "{} of {SEEDS} lives differ", different.len());
}
