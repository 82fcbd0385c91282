//! Poison: runs that end, stop or fill the process they run in, on the real worker (G23).
//!
//! Each is started among good runs. The worker may die of it twice; then it is held with a card, the good ones have ended,
//! and the owner's verbs work on it without running its code.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Command, Output};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use bosun_engine::{Payload, StartWorkflow};
use bosun_tests::harness::http::{Endpoint, Http, Reply};
use bosun_tests::harness::process::{Program, WorkerProcess, example};
use rustix::process::Signal;
use serde_json::Value;

const PATIENCE: Duration = Duration::from_secs(30);
const GOOD: usize = 5;

/// The program as a command on a data directory.
fn bosun(data: &Path, words: &[&str]) -> Output {
    let mut command = Command::new(example("poisoned-worker").unwrap());
    command.arg("--data").arg(data).args(words).output().unwrap()
}

#[track_caller]
fn done(data: &Path, words: &[&str]) -> String {
    let output = bosun(data, words);
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(
        output.status.success(),
        "{words:?}: {}\n{}\n{}",
        output.status,
        text(&output.stdout),
        text(&output.stderr)
    );
    text(&output.stdout)
}

/// The description of a run as data, if there is an answer.
fn described(data: &Path, id: &str) -> Option<Value> {
    let output = bosun(data, &["-o", "json", "describe", id]);
    serde_json::from_slice(&output.stdout).ok()
}

fn held(data: &Path, id: &str) -> Option<String> {
    fn find(value: &Value) -> Option<String> {
        match value {
            Value::Object(map) => match map.get("held") {
                Some(Value::String(why)) => Some(why.clone()),
                _ => map.values().find_map(find),
            },
            Value::Array(all) => all.iter().find_map(find),
            _ => None,
        }
    }
    find(&described(data, id)?)
}

fn run_of(told: &Value) -> Option<String> {
    match told {
        Value::Object(map) => match map.get("run_id") {
            Some(Value::String(id)) => Some(id.clone()),
            _ => map.values().find_map(run_of),
        },
        Value::Array(all) => all.iter().find_map(run_of),
        _ => None,
    }
}

fn worker() -> Program {
    // 10 GiB are not to be had, so that the machine of the test is safe.
    let limited = ["sh", "-c", "ulimit -v 6291456; exec \"$@\"", "sh"];
    let program = Program::new(example("poisoned-worker").unwrap(), &["worker", "run"]);
    program.wrapped(limited.iter().map(Into::into).collect())
}

/// One who has small things done by the same worker meanwhile, one after the other, and asks again where there is no answer.
struct Neighbour {
    worker: Arc<Mutex<Endpoint>>,
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Vec<Duration>>,
}

impl Neighbour {
    fn beside(process: &WorkerProcess) -> Neighbour {
        let worker = Arc::new(Mutex::new(process.endpoint().unwrap()));
        let stop = Arc::new(AtomicBool::new(false));
        let (at, over) = (worker.clone(), stop.clone());
        let thread = std::thread::spawn(move || {
            let mut took = Vec::new();
            while !over.load(Ordering::Relaxed) {
                let (began, id) = (Instant::now(), format!("neighbour-{}", took.len()));
                while !over.load(Ordering::Relaxed) && !done_by(&at, &id) {
                    std::thread::sleep(Duration::from_millis(10));
                }
                took.push(began.elapsed());
                std::thread::sleep(Duration::from_millis(20));
            }
            // The last one was given up.
            took.pop();
            took
        });
        Neighbour { worker, stop, thread }
    }
    /// The worker has died, and here is the next one.
    fn moves_to(&self, process: &WorkerProcess) {
        if let Ok(endpoint) = process.endpoint() {
            *self.worker.lock().unwrap_or_else(PoisonError::into_inner) = endpoint;
        }
    }
    /// How long it took, from the wish to the result, over deaths and starts of the worker.
    fn told(self) -> String {
        self.stop.store(true, Ordering::Relaxed);
        let mut took = self.thread.join().unwrap();
        took.sort_unstable();
        let at = |part: usize| took.get((took.len() * part / 100).min(took.len().saturating_sub(1))).copied();
        let [half, most, all] = [50, 99, 100].map(|part| at(part).unwrap_or_default().as_millis());
        format!("neighbours: {} runs, p50 {half} ms, p99 {most} ms, longest {all} ms", took.len())
    }
}

fn done_by(worker: &Mutex<Endpoint>, id: &str) -> bool {
    let endpoint = worker.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let http = Http::new(endpoint, Duration::from_secs(5));
    let program = r#"{"steps":[{"activity":{"type":"echo","input":1}},{"return":1}]}"#;
    let start = StartWorkflow::new("kitchen-sink".into(), id.into()).input(Payload::raw_json(program));
    // Refused: it was started by the question before, whose answer was lost.
    !matches!(http.start(&start), Reply::Unknown(_)) && matches!(http.result(id, Duration::from_secs(5)), Ok(Some(_)))
}

/// How many threads the worker says that it has lost, to whoever watches it and to its owner.
fn lost_threads(process: &WorkerProcess) -> [Option<u64>; 2] {
    let http = Http::new(process.endpoint().unwrap(), PATIENCE);
    ["/healthz", "/api/v1/worker"].map(|path| {
        let answer = http.request("GET", path, None).unwrap().json::<Value>().unwrap();
        answer["lost_threads"].as_u64()
    })
}

/// Lives through one poison; gives how often the worker died, and the card.
fn survive(workflow: &str, kind: &str, data: &Path) -> (usize, String) {
    let program = worker();
    let (mut process, _) = WorkerProcess::start(&program, data, PATIENCE).unwrap();
    assert_eq!(lost_threads(&process), [Some(0); 2]);
    let neighbour = Neighbour::beside(&process);
    for i in 0..GOOD {
        let input =
            r#"{"steps":[{"timer":"1s"},{"activity":{"type":"echo","input":1}},{"timer":"1s"},{"return":"good"}]}"#;
        done(data, &["start", "kitchen-sink", "-w", &format!("good-{i}"), "-i", input]);
    }
    let kind = format!("{kind:?}");
    let began = Instant::now();
    let mut deaths = 0;
    // Whoever starts something that ends the worker hears nothing, and asks again.
    let start = || bosun(data, &["start", workflow, "-w", "bad", "-i", &kind]).status.success();
    let mut started = start();
    let why = loop {
        assert!(began.elapsed() < Duration::from_secs(50), "{kind}: neither held nor dead\n{}", process.said());
        if process.wait(Duration::from_millis(200)).unwrap().is_some() {
            deaths += 1;
            assert!(deaths <= 2, "{kind}: the worker died again\n{}", process.said());
            process = WorkerProcess::spawn(&program, data).unwrap();
            // It may die of it before it is ready.
            started = process.wait_ready(PATIENCE).is_ok() && (started || start());
            neighbour.moves_to(&process);
            continue;
        }
        // A command that looked while no worker ran says that it leaves the run to one.
        if let Some(why) = held(data, "bad").filter(|why| !why.contains("left to a worker")) {
            break why;
        }
        started = started || start();
    };
    // A command that looks may know of the last death before this test does; recursion that is taken off its thread goes on there.
    let dies_later = kind.contains("deep") && why.contains("did not come back");
    if process.wait(if dies_later { PATIENCE } else { Duration::from_millis(200) }).unwrap().is_some() {
        deaths += 1;
        process = WorkerProcess::start(&program, data, PATIENCE).unwrap().0;
        neighbour.moves_to(&process);
    }
    if kind.contains("busy") {
        // On a machine with more to do the code may have come back meanwhile: then its thread is lost no more, and that is told.
        let lost = lost_threads(&process);
        let is_back = process.said().contains("the thread that this run kept has ended");
        assert!(lost == [Some(1); 2] || (is_back && lost == [Some(0); 2]), "{kind}: {lost:?} {}", process.said());
        assert!(
            why.contains("its thread is lost")
                && process.said().contains("a thread is lost")
                && process.said().contains(r#""lost_threads":1"#),
            "{}",
            process.said()
        );
    }
    for i in 0..GOOD {
        assert!(done(data, &["result", &format!("good-{i}")]).contains("good"), "{kind}");
    }
    assert!(done(data, &["list", "--query", "WorkflowId = 'bad'"]).contains("bad"));
    done(data, &["show", "bad"]);
    println!("{workflow} {kind}: {deaths} deaths; {}", neighbour.told());
    // What is held stays held over a restart; the code is not run for that.
    process.kill().unwrap();
    process = WorkerProcess::start(&program, data, PATIENCE).unwrap().0;
    assert!(process.wait(Duration::from_millis(500)).unwrap().is_none(), "{kind}: a boot died of what is held");
    // Code that is only slow is run again by the new worker, and a question waits until it is taken off its thread.
    let began = Instant::now();
    let held_run = loop {
        match described(data, "bad").and_then(|told| run_of(&told)) {
            Some(run) => break run,
            None => assert!(began.elapsed() < PATIENCE, "{kind}: describe does not name the run"),
        }
    };
    let cookie = if deaths > 0 { Some(signed_in(&process, data)) } else { None };
    let looks = |when: &str| {
        for tab in cookie.iter().flat_map(|cookie| ["moment", "replay"].map(|tab| (tab, cookie))) {
            let page = page(&process, &format!("/runs/bad?tab={}", tab.0), tab.1);
            assert!(page.starts_with("HTTP/1.1 200") && page.contains("<h1>bad</h1>"), "{kind} {when}: {page}");
        }
    };
    looks("held");
    done(data, &["terminate", "bad", "--yes"]);
    looks("terminated");
    let told = done(data, &["describe", "bad"]);
    let status = told.lines().find(|line| line.starts_with("status")).unwrap_or_default();
    assert!(status.contains("Terminated"), "{kind}: {told}");
    assert!(process.wait(Duration::from_millis(500)).unwrap().is_none(), "{kind}: the worker died of a page");
    done(data, &["delete", "bad", "--yes"]);
    // A run of that id may have ended before this one was held; it stays.
    assert_eq!(held(data, "bad"), None);
    assert!(
        !done(data, &["list", "-o", "json", "--query", "WorkflowId = 'bad'"]).contains(&held_run),
        "{kind}: the held run was deleted"
    );
    (deaths, why)
}

/// The cookie of a browser that follows the link of `bosun ui`.
fn signed_in(process: &WorkerProcess, data: &Path) -> String {
    let link = done(data, &["ui", "--no-browser"]);
    let (_, place) = link.lines().next().unwrap().split_once("/login").unwrap();
    let heard = page(process, &format!("/login{place}"), "none=1");
    let (_, rest) = heard.split_once("set-cookie: ").unwrap_or_else(|| panic!("{link}: {heard}"));
    rest.split(';').next().unwrap().to_owned()
}

/// A page as a browser gets it, with its head.
fn page(process: &WorkerProcess, place: &str, cookie: &str) -> String {
    let address = process.endpoint().unwrap().address;
    let mut stream = TcpStream::connect(&address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    write!(stream, "GET {place} HTTP/1.1\r\nHost: {address}\r\nCookie: {cookie}\r\nConnection: close\r\n\r\n").unwrap();
    let mut heard = String::new();
    stream.read_to_string(&mut heard).unwrap_or_else(|why| panic!("{place}: {why}"));
    heard
}

#[track_caller]
fn table(kinds: &[(&str, &str, usize, &str)]) {
    std::thread::scope(|scope| {
        for (workflow, kind, deaths, word) in kinds {
            scope.spawn(move || {
                let dir = tempfile::tempdir().unwrap();
                let (died, why) = survive(workflow, kind, &dir.path().join("data"));
                println!("{workflow} {kind}: {died} deaths, held: {why}");
                assert!(died <= *deaths, "{workflow} {kind}: {died} deaths: {why}");
                assert!(why.contains(word), "{workflow} {kind}: {why}");
            });
        }
    });
}

/// G23: the process dies twice at most.
#[test]
fn code_that_ends_the_process_is_held_after_the_second_death() {
    table(&[
        ("poison", "overflow", 2, "quarantined"),
        ("poison", "allocate", 2, "quarantined"),
        ("poison", "abort", 2, "quarantined"),
        // In a slow build it does not come back in time instead.
        ("poison", "deep", 2, ""),
        ("poison", "activity", 2, "its activity"),
        ("poison-at-once", "overflow", 2, "quarantined"),
    ]);
}

/// G23: the process does not die at all.
#[test]
fn code_that_asks_for_too_much_or_never_comes_back_is_held() {
    table(&[
        ("poison", "endless", 0, "more than 50000 commands"),
        ("poison", "futures", 0, "more than 50000 commands"),
        ("poison-at-once", "endless", 0, "more than 50000 commands"),
        ("poison", "busy", 0, "did not come back"),
        ("poison", "busy-calling", 0, "did not come back"),
    ]);
}

/// G23: code that is slow because the whole process stood still (a debugger, a frozen group, a machine that swaps) is not code
/// that does not come back.
#[test]
fn a_worker_that_stood_still_holds_nobody() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let (mut process, _) = WorkerProcess::start(&worker(), &data, PATIENCE).unwrap();
    done(&data, &["start", "poison", "-w", "slow", "-i", "\"slow\""]);
    std::thread::sleep(Duration::from_millis(700));
    process.signal(Signal::STOP).unwrap();
    // Longer than a turn may take, and than the watchdog waits between two looks.
    std::thread::sleep(Duration::from_secs(8));
    process.signal(Signal::CONT).unwrap();
    assert!(done(&data, &["result", "slow"]).contains("harmless"), "{}", process.said());
    assert_eq!((lost_threads(&process), held(&data, "slow")), ([Some(0); 2], None));
    process.kill().unwrap();
}

/// G23: the owner may let it try again, and one more death holds it again. While no worker runs, a command that looks at
/// the directory does not run the code either.
#[test]
fn the_owner_lets_a_held_run_try_once_more() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let (mut process, _) = WorkerProcess::start(&worker(), &data, PATIENCE).unwrap();
    // The caller may hear of it or lose the worker first.
    bosun(&data, &["start", "poison", "-w", "bad", "-i", "\"abort\""]);
    assert!(process.wait(PATIENCE).unwrap().is_some());
    assert!(held(&data, "bad").is_some_and(|why| why.contains("left to a worker")), "a visit leaves it alone");
    process = WorkerProcess::spawn(&worker(), &data).unwrap();
    assert!(process.wait(PATIENCE).unwrap().is_some());
    for _ in 0..2 {
        process = WorkerProcess::start(&worker(), &data, PATIENCE).unwrap().0;
        assert!(held(&data, "bad").is_some_and(|why| why.contains("quarantined")));
        bosun(&data, &["unpause", "bad"]);
        assert!(process.wait(PATIENCE).unwrap().is_some(), "released, it ends the worker again");
    }
    process = WorkerProcess::start(&worker(), &data, PATIENCE).unwrap().0;
    assert!(held(&data, "bad").is_some());
    done(&data, &["terminate", "bad", "--yes"]);
    process.kill().unwrap();
}

/// G23, E24: what a schedule starts ends the worker, and the next start would end it twice more. With the first start that is
/// held the schedule is paused and says why, whatever its overlap; the worker lives, and everything else goes on.
#[test]
fn a_schedule_whose_start_ends_workers_is_paused() {
    std::thread::scope(|scope| {
        for workflow in ["poison", "poison-at-once"] {
            scope.spawn(move || {
                let dir = tempfile::tempdir().unwrap();
                lives_with_a_poisoned_schedule(workflow, &dir.path().join("data"));
            });
        }
    });
}

/// What a schedule says of itself.
fn schedule(data: &Path, id: &str) -> Option<Value> {
    let output = bosun(data, &["-o", "json", "schedule", "describe", id]);
    serde_json::from_slice(&output.stdout).ok()
}

/// Until the worker has lived for so long; one that dies is followed by the next. Gives how many died.
fn lives_for(process: &mut WorkerProcess, data: &Path, time: Duration) -> usize {
    let (mut since, mut deaths) = (Instant::now(), 0);
    while since.elapsed() < time {
        if process.wait(Duration::from_millis(200)).unwrap().is_some() {
            deaths += 1;
            assert!(deaths <= 6, "the schedule ends the worker again and again\n{}", process.said());
            *process = WorkerProcess::spawn(&worker(), data).unwrap();
            since = Instant::now();
        }
    }
    deaths
}

fn lives_with_a_poisoned_schedule(workflow: &str, data: &Path) {
    let every = ["--every", "3s", "--overlap", "allow-all", "--catch-up", "10s"];
    let create = |id: &str, workflow: &str, input: &str| {
        let words = ["schedule", "create", id, workflow, "--workflow-id", id, "--input", input];
        done(data, &[&words[..], &every].concat());
    };
    create("good", "kitchen-sink", r#"{"steps":[{"return":1}]}"#);
    create("bad", workflow, "\"abort\"");
    let mut process = WorkerProcess::spawn(&worker(), data).unwrap();
    // Starts that had begun before the first was held may cost their own two.
    let deaths = lives_for(&mut process, data, Duration::from_secs(8));
    let told = schedule(data, "bad").unwrap();
    let note = told["schedule"]["state"]["note"].as_str().unwrap_or_default();
    println!("{workflow}, started by a schedule: {deaths} deaths; {note}");
    assert!((2..=6).contains(&deaths), "{workflow}: {deaths} deaths");
    assert_eq!(told["schedule"]["state"]["paused"], true, "{workflow}: {told:#}");
    assert!(note.contains("ends workers") && note.contains("quarantined"), "{workflow}: {note}");
    let starts = |id: &str| schedule(data, id).and_then(|told| told["counts"]["actions"].as_u64());
    let before = [starts("bad"), starts("good")];
    assert_eq!(lives_for(&mut process, data, Duration::from_secs(7)), 0, "{workflow}: {}", process.said());
    assert_eq!(starts("bad"), before[0], "{workflow}: nothing more is started");
    assert!(starts("good") > before[1], "{workflow}: the other schedule goes on");
    // Once: who lets it go on again is not overruled by the next boot.
    done(data, &["schedule", "update", "bad", "--every", "1h"]);
    done(data, &["schedule", "unpause", "bad"]);
    process.kill().unwrap();
    process = WorkerProcess::start(&worker(), data, PATIENCE).unwrap().0;
    assert_eq!(schedule(data, "bad").unwrap()["schedule"]["state"]["paused"], false, "{workflow}");
    process.kill().unwrap();
}
