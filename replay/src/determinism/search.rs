//! The search: many lives from seeds, the first failure made small.
//!
//! Invariant: a life depends on its seed and the test alone. Shrinking keeps the kind of the failure: what is reported is
//! what was found, in fewer steps. The search is bounded in lives, and shrinking in tries and in time.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use bosun_engine::SignalName;
use proptest::strategy::{BoxedStrategy, Strategy, ValueTree};
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

use super::DeterminismTest;
use super::elsewhere::Check;
use super::many::lived;
use super::report::{Failed, Report};
use super::wires::armed;
use crate::simulate::{Life, LifePlan, LifeStep, Violation, with_callers};

/// Shrinking stops here: a failure that is told late is not told.
const SHRINK_TIME: Duration = Duration::from_secs(4);
const SHRINK_TRIES: u32 = 4_000;

impl DeterminismTest {
    /// Tries the cases that are kept, then new lives.
    pub fn check(&self) -> Result<Report, Box<Failed>> {
        if self.fuzz.is_none() {
            say_if_unarmed();
        }
        let check = Check::begin(self);
        let mut report = Report { trip_wires: armed(), ..Report::default() };
        let kept = self.kept().map_err(|finding| self.failed(finding, self.empty_plan(), None, &report))?;
        for (path, plan) in kept {
            let life = self.life(&plan).map_err(|finding| {
                let mut failed = self.failed(finding, plan.clone(), None, &report);
                failed.case = Some(path);
                failed
            })?;
            report.add(&life);
        }
        let asked = |name| if self.fuzz.is_some() { None } else { number(name) };
        if let Some(seed) = asked("BOSUN_SEED").or(self.fuzz.and_then(|fuzz| fuzz.only)) {
            match self.schedules {
                0 => self.try_seed(&self.drawn.plans(), seed, &mut report)?,
                _ => self.many(std::iter::once(seed), &mut report)?,
            }
            self.twin_elsewhere(&check, std::iter::once(seed), &mut report)?;
            return Ok(report);
        }
        let lives = asked("BOSUN_CASES").unwrap_or(u64::from(self.lives));
        let master = asked("BOSUN_MASTER_SEED").or(self.fuzz.map(|fuzz| fuzz.master));
        let master = master.unwrap_or_else(|| self.own_seed());
        let seeds = (0..lives).map(|n| mix(master.wrapping_add(n)));
        let sample = seeds.clone();
        if self.schedules > 0 || self.threads > 1 {
            self.many(seeds, &mut report)?;
        } else {
            let plans = self.drawn.plans();
            seeds.into_iter().try_for_each(|seed| self.try_seed(&plans, seed, &mut report))?;
        }
        self.all_met(&report)?;
        self.says_something(&report)?;
        self.twin_elsewhere(&check, sample, &mut report)?;
        Ok(report)
    }

    /// What a seed stands for: the plan that is lived with all doubts. Nothing if the strategies give no values.
    pub fn plan(&self, seed: u64) -> Option<LifePlan> {
        tree(&self.drawn.plans(), seed).map(|tree| tree.current())
    }

    /// The signals that a few lives ended up waiting for. What is wrong with those lives is found again later.
    pub(super) fn signals_waited_for(&self) -> Vec<SignalName> {
        let lives = (0..32_u64).filter_map(|n| self.life(&self.plan(mix(n))?).ok());
        let awaited = lives.flat_map(|life| life.awaiting);
        let names: BTreeSet<SignalName> =
            awaited.filter_map(|one| SignalName::new(one.what.strip_prefix("signal ")?).ok()).collect();
        names.into_iter().collect()
    }

    /// One life from one seed; a failure is made small.
    fn try_seed(&self, plans: &BoxedStrategy<LifePlan>, seed: u64, report: &mut Report) -> Result<(), Box<Failed>> {
        let Some(mut tree) = tree(plans, seed) else { return Err(self.no_values(seed, report)) };
        let plan = tree.current();
        match self.life(&plan) {
            Ok(life) => {
                report.add(&life);
                Ok(())
            }
            Err(finding) => Err(self.found(tree.as_mut(), plan, finding, seed, report)),
        }
    }

    pub(super) fn no_values(&self, seed: u64, report: &Report) -> Box<Failed> {
        let why = "the strategies of the test give no values: too many are filtered out".into();
        self.failed(Violation::Setup { why }, self.empty_plan(), Some(seed), report)
    }

    /// Makes a failure small, keeps it, and tells it. The plan may have other steps than the tree.
    pub(super) fn found(
        &self,
        tree: &mut dyn ValueTree<Value = LifePlan>,
        plan: LifePlan,
        finding: Violation,
        seed: u64,
        report: &Report,
    ) -> Box<Failed> {
        if let Violation::Setup { .. } = finding {
            return self.failed(finding, plan, Some(seed), report);
        }
        let (plan, finding) = self.shrink(tree, plan, finding);
        let finding = self.with_callers(&plan, finding);
        let mut failed = self.failed(finding, plan, Some(seed), report);
        failed.case = self.keep(&failed.plan, &failed.finding);
        failed
    }

    fn life(&self, plan: &LifePlan) -> Result<Life, Violation> {
        lived(plan, &self.versions, &self.doubts, self.order_independent)
    }

    /// Lives the smallest plan once more, to name the functions that led to a request which differs.
    fn with_callers(&self, plan: &LifePlan, finding: Violation) -> Violation {
        if !matches!(finding, Violation::ReplayMismatch { .. } | Violation::Unstable { .. }) {
            return finding;
        }
        match with_callers(|| self.life(plan)) {
            Err(again) if again.is_like(&finding) => again,
            _ => finding,
        }
    }

    fn shrink(
        &self,
        tree: &mut dyn ValueTree<Value = LifePlan>,
        plan: LifePlan,
        finding: Violation,
    ) -> (LifePlan, Violation) {
        let (begun, mut tries) = (Instant::now(), 0);
        let goes_on = |tries: u32| tries < SHRINK_TRIES && begun.elapsed() < SHRINK_TIME;
        // Steps that were thrown are not the tree's: it makes the rest of the plan small.
        let own_steps = tree.current().steps == plan.steps;
        let mut smallest = (plan, finding);
        if !own_steps {
            self.drop_steps(&mut smallest, &mut tries, &goes_on);
        }
        let mut moved = tree.simplify();
        while moved && goes_on(tries) {
            tries += 1;
            let mut plan = tree.current();
            if !own_steps {
                plan.steps.clone_from(&smallest.0.steps);
            }
            moved = match self.life(&plan) {
                Err(finding) if finding.is_like(&smallest.1) => {
                    smallest = (plan, finding);
                    tree.simplify()
                }
                _ => tree.complicate(),
            };
        }
        self.drop_steps(&mut smallest, &mut tries, &goes_on);
        smallest
    }

    /// Drops steps one by one, also those that only make sense together, and ticks that one tick replaces.
    fn drop_steps(&self, smallest: &mut (LifePlan, Violation), tries: &mut u32, goes_on: &dyn Fn(u32) -> bool) {
        let mut at = 0;
        while at < smallest.0.steps.len() && goes_on(*tries) {
            *tries += 1;
            let mut plan = smallest.0.clone();
            let dropped = plan.steps.remove(at);
            if let (LifeStep::Tick { ms: a } | LifeStep::Delay { ms: a }, Some(LifeStep::Tick { ms: b })) =
                (dropped, plan.steps.get_mut(at))
                && *b != 0
            {
                *b = b.saturating_add(a);
            }
            match self.life(&plan) {
                Err(finding) if finding.is_like(&smallest.1) => *smallest = (plan, finding),
                _ => at += 1,
            }
        }
    }

    pub(super) fn failed(&self, finding: Violation, plan: LifePlan, seed: Option<u64>, report: &Report) -> Box<Failed> {
        Box::new(Failed {
            workflow_type: self.drawn.workflow_type.clone(),
            finding: Box::new(finding),
            plan: Box::new(plan),
            seed,
            after: report.lives,
            again: again(seed),
            case: None,
        })
    }

    pub(super) fn empty_plan(&self) -> LifePlan {
        LifePlan::new(self.drawn.workflow_type.as_str(), bosun_engine::Payload::null())
    }

    /// Drawn from the place and the workflow type, so that a test gives the same answer every time.
    fn own_seed(&self) -> u64 {
        let text = format!("{}:{}", self.place.file(), self.drawn.workflow_type);
        text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
    }

    /// A test that looks at nothing passes for ever.
    fn says_something(&self, report: &Report) -> Result<(), Box<Failed>> {
        let sent = self.drawn.signals.iter().map(|(name, _)| name.to_string()).collect();
        // What the next version waits for instead is a warning of the deploy.
        let deployed = self.drawn.deploys && report.got_somewhere > 0;
        let wanted = self.fuzz.is_none() && !self.gets_nowhere && !deployed;
        match wanted.then(|| report.says_nothing(&sent)).flatten() {
            Some(why) => Err(self.failed(Violation::Setup { why }, self.empty_plan(), None, report)),
            None => Ok(()),
        }
    }

    fn all_met(&self, report: &Report) -> Result<(), Box<Failed>> {
        let missing: Vec<&str> =
            self.must_meet.iter().copied().filter(|name| !report.rare.contains_key(name)).collect();
        if missing.is_empty() {
            return Ok(());
        }
        let why =
            format!("the lives never met: {}; try more lives, or give the test what it needs", missing.join(", "));
        Err(self.failed(Violation::Setup { why }, self.empty_plan(), None, report))
    }
}

/// The plan of a seed, as something that can be made smaller.
pub(super) fn tree(plans: &BoxedStrategy<LifePlan>, seed: u64) -> Option<Box<dyn ValueTree<Value = LifePlan>>> {
    let mut bytes = [0; 32];
    for (n, part) in bytes.chunks_mut(8).enumerate() {
        part.copy_from_slice(&mix(seed.wrapping_add(n as u64)).to_le_bytes());
    }
    let config = Config { failure_persistence: None, ..Config::default() };
    let mut runner = TestRunner::new_with_rng(config, TestRng::from_seed(RngAlgorithm::ChaCha, &bytes));
    plans.new_tree(&mut runner).ok()
}

/// The command that repeats a life: tests run on threads that bear their names.
fn again(seed: Option<u64>) -> String {
    let package = std::env::var("CARGO_PKG_NAME").map_or_else(|_| String::new(), |name| format!(" -p {name}"));
    let thread = std::thread::current();
    let test = thread.name().filter(|name| *name != "main").unwrap_or("");
    let seed = seed.map_or_else(String::new, |seed| format!("BOSUN_SEED={seed:#x} "));
    format!("{seed}cargo test{package} {test}").trim_end().to_owned()
}

/// A number from the environment, decimal or `0x…`.
fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    let parsed = match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => text.parse(),
    };
    match parsed {
        Ok(number) => Some(number),
        Err(why) => panic!("{name}={text}: {why}"),
    }
}

/// SplitMix64: spreads seeds that differ little.
pub(crate) fn mix(seed: u64) -> u64 {
    let mut z = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

fn say_if_unarmed() {
    static SAID: std::sync::Once = std::sync::Once::new();
    if armed() {
        return;
    }
    SAID.call_once(|| {
        let how = if cfg!(all(target_os = "linux", target_env = "gnu")) {
            "write `bosun_replay::trip_wires!();` at the root of the test's crate"
        } else {
            "they need Linux with glibc"
        };
        eprintln!("bosun: trip wires are OFF: forbidden calls are only noticed by their effects; {how}");
    });
}
