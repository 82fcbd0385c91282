//! The twin in another process: the test binary executes the same test again, elsewhere, and replays histories of here.
//!
//! ```text
//!   check ──► histories, and what was seen of them ──► request file ──► this binary, `--exact TEST`, BOSUN_TWIN=file
//!   finding ◄── answer file ◄── the same check, reached again: replays and compares, and leaves the process
//! ```
//!
//! Invariant: the other process differs in everything that no history holds: pid, arguments, environment, directory, time
//! zone, locale, hash keys, addresses, thread names, and what statics remember. It lives nothing and writes nothing but its
//! answer. A test that cannot be reached there (its setup needs this environment) is tried in this environment, and after
//! that left alone: the report says whether the twin was run.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::DeterminismTest;
use super::answer::Answer;
use super::beside::input_of;
use super::report::{Failed, Report};
use crate::simulate::{LifeStep, PlanFaults, SeenRun, Violation, live_here, on_a_fresh_thread, see};

/// Names the request of whoever started this process.
const REQUEST: &str = "BOSUN_TWIN";
/// So many lives give histories for the other process, and so many events all of them may have.
const LIVES: usize = 40;
const EVENTS: usize = 4_000;
/// A twin that takes longer is left.
const PATIENCE: Duration = Duration::from_secs(60);

/// What the other process is asked.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Request {
    pub(super) test: String,
    pub(super) check: String,
    pub(super) runs: Vec<SeenRun>,
}

/// One call of `check`: which test it is in, and which of its calls it is.
pub(super) struct Check {
    test: Option<String>,
    key: String,
}

thread_local! {
    /// How often each check was begun on this thread.
    static BEGUN: RefCell<BTreeMap<String, u32>> = const { RefCell::new(BTreeMap::new()) };
}

impl Check {
    /// Says which check begins. In the other process, the one that was asked for does not return.
    pub(super) fn begin(of: &DeterminismTest) -> Check {
        let asked = asked();
        let test = asked.map(|(request, _)| request.test.clone()).or_else(test_name);
        let key = format!("{} {} {}", test.as_deref().unwrap_or_default(), of.place, of.drawn.workflow_type);
        let number = BEGUN.with(|begun| {
            let mut begun = begun.borrow_mut();
            let number = begun.entry(key.clone()).or_default();
            *number += 1;
            *number
        });
        let check = Check { test, key: format!("{key} {number}") };
        if let Some((request, path)) = asked.filter(|(request, _)| request.check == check.key) {
            of.answer(request, path);
        }
        check
    }
}

/// What this process was started for, if it is such a twin.
fn asked() -> Option<&'static (Request, PathBuf)> {
    static ASKED: OnceLock<Option<(Request, PathBuf)>> = OnceLock::new();
    let read = || {
        let path = PathBuf::from(std::env::var_os(REQUEST)?);
        let request = serde_json::from_slice(&std::fs::read(&path).ok()?).ok()?;
        Some((request, path))
    };
    ASKED.get_or_init(read).as_ref()
}

/// The name of the test that runs on this thread: tests run on threads that bear their names, or on the main thread.
fn test_name() -> Option<String> {
    let thread = std::thread::current();
    match thread.name() {
        Some("main") => name_on_stack(&std::backtrace::Backtrace::force_capture().to_string()),
        name => name.map(str::to_owned),
    }
}

/// The outermost function that the harness called.
fn name_on_stack(stack: &str) -> Option<String> {
    let names: Vec<&str> = stack.lines().filter_map(|line| Some(line.trim().split_once(": ")?.1)).collect();
    let harness = names.iter().position(|name| name.contains("test::__rust_begin_short_backtrace"))?;
    let own = |name: &&&str| !name.starts_with("core::") && !name.starts_with('<') && !name.contains("{closure");
    let name = names[..harness].iter().rev().find(|name| !name.contains("{{closure") && own(name))?;
    Some(name.split_once("::")?.1.to_owned())
}

/// How much the other process differs in what it is given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Surroundings {
    /// Another environment and directory.
    Other,
    /// This environment and directory.
    Same,
}

impl DeterminismTest {
    /// Has histories of these seeds replayed beside each other, and elsewhere.
    pub(super) fn twin_elsewhere(
        &self,
        check: &Check,
        seeds: impl Iterator<Item = u64>,
        report: &mut Report,
    ) -> Result<(), Box<Failed>> {
        if self.fuzz.is_some() || self.doubts.twins == 0 {
            return Ok(());
        }
        if asked().is_some() {
            // This process is the other one, and on its way to a later check of the test.
            report.other_process = self.other_process;
            return Ok(());
        }
        let runs = self.histories_for(seeds, report)?;
        self.beside_each_other(&runs).map_err(|(seed, finding)| {
            let plan = self.plan(seed).unwrap_or_else(|| self.empty_plan());
            // It takes two lives to see it: no seed repeats it.
            self.failed(finding, plan, None, report)
        })?;
        let (true, Some(test)) = (self.other_process && !runs.is_empty(), check.test.clone()) else { return Ok(()) };
        let request = Request { test, check: check.key.clone(), runs };
        let answer = match ask(&request) {
            Ok(answer) => answer,
            Err(why) => {
                eprintln!("bosun: no twin in another process for {}: {why}", request.test);
                return Ok(());
            }
        };
        report.other_process = true;
        let Answer::Differs { seed, what, here, there, notes } = answer else { return Ok(()) };
        let plan = self.plan(seed).unwrap_or_else(|| self.empty_plan());
        Err(self.failed(Violation::Elsewhere { what, here, there, notes }, plan, Some(seed), report))
    }

    fn histories_for(&self, seeds: impl Iterator<Item = u64>, report: &Report) -> Result<Vec<SeenRun>, Box<Failed>> {
        let doubts = self.doubts.of_one_in_many(false);
        let versions = &self.versions;
        let Some(registry) = versions.first() else { return Ok(Vec::new()) };
        let (mut runs, mut events) = (Vec::new(), 0);
        for seed in seeds.take(LIVES) {
            let Some(mut plan) = self.plan(seed) else { continue };
            // What the next version made is not this one's to replay.
            plan.steps.retain(|step| *step != LifeStep::Deploy);
            let seen = on_a_fresh_thread(|| {
                let life = live_here(&plan, versions, &doubts, &PlanFaults::default())?;
                let histories =
                    life.histories.into_iter().map(|turns| see(&doubts, registry, seed, turns, &plan.queries));
                histories.collect::<Result<Vec<SeenRun>, Violation>>()
            });
            for run in seen.map_err(|finding| self.failed(finding, plan.clone(), Some(seed), report))? {
                events += run.turns.iter().map(|turn| turn.events.len()).sum::<usize>();
                runs.push(run);
            }
            if events > EVENTS {
                break;
            }
        }
        // What the file would not hold exactly is not asked for. The shortest comes first: it tells most.
        runs.retain(|run| {
            serde_json::to_vec(run).is_ok_and(|text| serde_json::from_slice(&text).ok().as_ref() == Some(run))
        });
        let first = runs.first().and_then(input_of).cloned();
        runs.sort_by_key(|run| run.turns.len());
        // What statics keep of the first run is another thing if another run is the first.
        if let Some(other) = runs.iter().position(|run| input_of(run) != first.as_ref()) {
            let other = runs.remove(other);
            runs.insert(0, other);
        }
        Ok(runs)
    }
}

/// Starts the other process and waits for what it says.
fn ask(request: &Request) -> Result<Answer, String> {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let folder = std::env::temp_dir().join(format!("bosun-twin-{}-{number}", std::process::id()));
    let told = |why: std::io::Error| format!("{}: {why}", folder.display());
    std::fs::create_dir_all(&folder).map_err(told)?;
    let answered = [Surroundings::Other, Surroundings::Same].iter().find_map(|how| {
        let answer = ask_in(request, &folder, *how);
        (answer.is_ok() || *how == Surroundings::Same).then_some(answer)
    });
    // What is left behind is in the folder for things that are left behind.
    let _ = std::fs::remove_dir_all(&folder);
    answered.unwrap_or_else(|| Err("it was not started".into()))
}

fn ask_in(request: &Request, folder: &Path, how: Surroundings) -> Result<Answer, String> {
    let told = |why: std::io::Error| format!("{}: {why}", folder.display());
    let (path, said) = (folder.join("request.json"), folder.join("said.txt"));
    let text = serde_json::to_vec(request).map_err(|why| why.to_string())?;
    std::fs::write(&path, text).map_err(told)?;
    let output = std::fs::File::create(&said).map_err(told)?;
    let mut command = Command::new(std::env::current_exe().map_err(told)?);
    command
        .args(["--exact", &request.test, "--include-ignored", "--test-threads=1", "--nocapture"])
        .args(["--skip", "no-test-has-this-name"])
        .stdin(Stdio::null())
        .stdout(output.try_clone().map_err(told)?)
        .stderr(output);
    if how == Surroundings::Other {
        surround(&mut command, folder);
    }
    let mut child = command.env(REQUEST, &path).spawn().map_err(told)?;
    let begun = Instant::now();
    loop {
        if let Some(status) = child.try_wait().map_err(told)? {
            return match std::fs::read(answer_path(&path)) {
                Ok(answer) => serde_json::from_slice(&answer).map_err(|why| why.to_string()),
                Err(_) => Err(format!("it ended ({status}) before the check was reached\n{}", last_lines(&said))),
            };
        }
        if begun.elapsed() > PATIENCE {
            let _ = child.kill();
            let _ = child.wait();
            return Err(format!("it took more than {PATIENCE:?}"));
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Variables that a test binary needs to run at all, and those that tell its harness and this kit what to do. By their whole
/// names: code that reads `RUST_ENV` or `PATHFINDER_URL` reads the environment like any other.
const KEPT: [&str; 20] = [
    "PATH",
    "TMPDIR",
    "TMP",
    "TEMP",
    "LD_LIBRARY_PATH",
    "LD_PRELOAD",
    "DYLD_LIBRARY_PATH",
    "DYLD_FALLBACK_LIBRARY_PATH",
    "LLVM_PROFILE_FILE",
    "CARGO_MANIFEST_DIR",
    "CARGO_PKG_NAME",
    "RUST_BACKTRACE",
    "RUST_LIB_BACKTRACE",
    "RUST_LOG",
    "RUST_MIN_STACK",
    "RUST_TEST_TIME_UNIT",
    "BOSUN_CASES",
    "BOSUN_MASTER_SEED",
    "BOSUN_SEED",
    "BOSUN_TWIN",
];

/// Another environment, directory, time zone and locale. Where libraries lie is told relative to this directory.
fn surround(command: &mut Command, folder: &Path) {
    command.env_clear().current_dir(folder);
    command.envs(KEPT.iter().filter_map(|name| Some((name, std::env::var_os(name)?))));
    let texts = [("USER", "twin"), ("LOGNAME", "twin"), ("LANG", "tr_TR.UTF-8"), ("LC_ALL", "tr_TR.UTF-8")];
    // No file is needed for a time zone that is told like this.
    command.envs(texts).env("TZ", "TWN-12:45").env("HOME", folder).env("PWD", folder);
    command.env("BOSUN_TWIN_PADDING", "-".repeat(4_099));
}

pub(super) fn answer_path(request: &Path) -> PathBuf {
    request.with_extension("answer")
}

fn last_lines(said: &Path) -> String {
    let text = std::fs::read_to_string(said).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(8)..].join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_a_test_is_on_its_stack() {
        let stack = "  3: bosun_replay::determinism::elsewhere::test_name\n  4: kit::clean::checked\n  \
                     5: kit::clean::order_is_clean\n  6: kit::clean::order_is_clean::{{closure}}\n  \
                     7: core::ops::function::FnOnce::call_once\n             at /rustc/x.rs:1:1\n  \
                     8: test::__rust_begin_short_backtrace\n";
        assert_eq!(name_on_stack(stack).as_deref(), Some("clean::order_is_clean"));
        assert_eq!(name_on_stack("  3: app::main\n"), None);
    }
}
