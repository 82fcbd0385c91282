//! Runs a check in a process of its own, without and with a seeded bug, and says what became of it.
//!
//! Invariant: only two ends are taken for an answer: the one test that was named passed, or an assertion in its own
//! sources failed on its own thread. Everything else is a failure of this harness, and shown whole. The process and what it
//! started end with it.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use bosun_engine::seeded::{Bug, VARIABLE};
use bosun_tests::harness::faults::Injection;
use bosun_tests::harness::power::{self, FileSystem, Unavailable};
use bosun_tests::harness::process;
use bosun_tests::harness::say;
use rustix::process::{Pid, Signal, kill_process_group};

/// How long a check may take here; a check that hangs has found nothing.
const PATIENCE: Duration = Duration::from_secs(300);

/// What the machine must have for a check to do anything. It says itself what it lacks.
pub(super) type Needs = fn() -> bool;
pub(super) const STRACE: Needs = Injection::available_or_explain;
pub(super) const POWER_CUTS: Needs = || match power::available(FileSystem::Ext4) {
    Err(Unavailable { why, excused: true }) => {
        say(&format!("SKIPPED: whether power cuts find a seeded bug is not tested: {why}"));
        false
    }
    // What should be there and is not, the check itself complains of.
    Ok(()) | Err(Unavailable { excused: false, .. }) => true,
};
/// A sweep whose length is chosen from outside is short here: every cut hits a worker under load.
const SHORT: [(&str, &str); 1] = [("BOSUN_CUTS", "6")];

/// A check that must find a bug: the name of a test in this program.
pub(super) struct Catcher {
    test: &'static str,
    needs: Option<Needs>,
}

impl Catcher {
    pub(super) const fn of(test: &'static str) -> Catcher {
        Catcher { test, needs: None }
    }
    pub(super) const fn with(needs: Needs, test: &'static str) -> Catcher {
        Catcher { test, needs: Some(needs) }
    }
}

#[derive(Debug)]
enum Verdict {
    Green,
    /// What the assertion said, in one line.
    Red(String),
    /// Neither: the check did not run, or broke elsewhere.
    Broken(String),
}

/// Demands that every one of these checks passes without the bug and fails with it.
#[track_caller]
pub(super) fn caught(bug: Bug, catchers: &[Catcher]) {
    for catcher in catchers.iter().filter(|catcher| catcher.needs.is_none_or(|has| has())) {
        let test = catcher.test;
        let (without, (with, took)) = std::thread::scope(|scope| {
            let without = scope.spawn(|| without_bug(test));
            let with = run(test, bug.name());
            (without.join().expect("running a check does not panic"), with)
        });
        match without {
            Verdict::Green => {}
            Verdict::Red(why) | Verdict::Broken(why) => panic!("{test} fails without a bug: {why}"),
        }
        match with {
            Verdict::Red(why) => {
                let number = bug as u8;
                say(&format!("seeded bug {number:2} {}: red in {took:.1?} by {test}\n    {why}", bug.name()));
            }
            Verdict::Green => panic!("{} is not caught by {test}", bug.name()),
            Verdict::Broken(why) => panic!("{}: {test} gives no answer: {why}", bug.name()),
        }
    }
}

/// As [`run`], without a bug: once for all the bugs that the check must find.
fn without_bug(test: &'static str) -> Verdict {
    static GREEN: Mutex<BTreeSet<&str>> = Mutex::new(BTreeSet::new());
    let green = || GREEN.lock().unwrap_or_else(PoisonError::into_inner);
    if green().contains(test) {
        return Verdict::Green;
    }
    let (verdict, _) = run(test, "none");
    if matches!(verdict, Verdict::Green) {
        green().insert(test);
    }
    verdict
}

/// Runs the test with the variable set to this; also how long it took.
fn run(test: &str, bug: &str) -> (Verdict, Duration) {
    let began = Instant::now();
    let dir = tempfile::tempdir().expect("a temporary directory");
    let verdict = match end_of(test, bug, dir.path()) {
        Ok((status, said)) => judge(test, status, &said),
        Err(why) => Verdict::Broken(why.to_string()),
    };
    (verdict, began.elapsed())
}

/// How the process ended, if in time, and what it said.
fn end_of(test: &str, bug: &str, dir: &Path) -> io::Result<(Option<ExitStatus>, String)> {
    // A file, not a pipe: whoever the process leaves behind could hold a pipe open.
    let path = dir.join("said");
    let said = File::create(&path)?;
    let mut command = Command::new(std::env::current_exe()?);
    // Two threads, so that the test has one of its own, with its name.
    command.args([test, "--exact", "--nocapture", "--test-threads", "2"]);
    command.env(VARIABLE, bug).env("RUST_BACKTRACE", "0").envs(SHORT).process_group(0);
    // Many checks that each ask cargo would wait for each other.
    process::example("bosun")?;
    command.env(process::BUILT, "1");
    let mut group = Group(command.stdout(said.try_clone()?).stderr(said).spawn()?);
    let until = Instant::now() + PATIENCE;
    let mut status = group.0.try_wait()?;
    while status.is_none() && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(10));
        status = group.0.try_wait()?;
    }
    drop(group);
    Ok((status, String::from_utf8_lossy(&fs::read(&path)?).into_owned()))
}

/// A process that leads a group, killed with the whole of it.
struct Group(Child);

impl Drop for Group {
    fn drop(&mut self) {
        if let Some(leader) = i32::try_from(self.0.id()).ok().and_then(Pid::from_raw) {
            // Not there any more is what is wanted.
            let _ = kill_process_group(leader, Signal::KILL);
        }
        let _ = self.0.wait();
    }
}

fn judge(test: &str, status: Option<ExitStatus>, said: &str) -> Verdict {
    let Some(status) = status else {
        return Verdict::Broken(format!("it hangs\n{said}"));
    };
    match status.code() {
        Some(0) if said.contains("test result: ok. 1 passed; 0 failed") => Verdict::Green,
        Some(101) if said.contains("test result: FAILED. 0 passed; 1 failed") => match assertion(test, said) {
            Some(why) => Verdict::Red(why),
            None => Verdict::Broken(format!("no assertion of the check itself failed\n{said}")),
        },
        _ => Verdict::Broken(format!("{status}\n{said}")),
    }
}

/// The panic of the test's own thread, if it happened in the sources of tests: `thread 'name' (id) panicked at place:`,
/// and what was said in the lines after it.
fn assertion(test: &str, said: &str) -> Option<String> {
    let mut lines = said.lines().skip_while(|line| !line.contains(&format!("thread '{test}'")));
    let place = lines.next()?.split_once(" panicked at ")?.1.trim_end_matches(':');
    let own = place.contains("/tests/");
    let words: Vec<&str> = lines.take(3).map(str::trim).take_while(|line| !line.starts_with("note:")).collect();
    let words: String = words.join(" | ").chars().take(240).collect();
    own.then(|| format!("{place}: {words}"))
}

/// The judge itself: what is taken for an answer, and what is not.
#[test]
fn only_a_failed_assertion_of_the_check_counts_as_red() {
    use std::os::unix::process::ExitStatusExt;
    let exit = |code: i32| Some(ExitStatus::from_raw(code << 8));
    let red =
        "thread 'a::b' (7) panicked at engine/tests/worker/a.rs:1:2:\nassertion failed: x\n  left: 1\n right: 2\n";
    let failed = "test result: FAILED. 0 passed; 1 failed; 0 ignored";
    let is_red = |said: &str, status| matches!(judge("a::b", status, said), Verdict::Red(_));
    assert!(is_red(&format!("{red}{failed}"), exit(101)));
    assert!(matches!(judge("a::b", exit(0), "test result: ok. 1 passed; 0 failed;"), Verdict::Green));
    let elsewhere = red.replace("engine/tests/worker", "engine/src/service");
    let harness = red.replace("engine/tests/worker", "tests/src/harness");
    let other_thread = red.replace("a::b", "bosun-turns-0");
    for (said, status) in [
        (format!("{elsewhere}{failed}"), exit(101)),
        (format!("{harness}{failed}"), exit(101)),
        (format!("{other_thread}{failed}"), exit(101)),
        (red.to_owned(), exit(101)),
        (format!("{red}{failed}"), None),
        (format!("{red}{failed}"), Some(ExitStatus::from_raw(6))),
        ("test result: ok. 0 passed; 0 failed;".to_owned(), exit(0)),
    ] {
        assert!(matches!(judge("a::b", status, &said), Verdict::Broken(_)), "{status:?} {said}");
    }
}
