//! A machine whose clock is set: schedules and timers follow it in the worker that runs, nothing starts twice, and the time of
//! events does not go back. The clock of the worker's process is moved by a library that is loaded before libc (`LD_PRELOAD`),
//! so that it is the shipped binary which reads it.
//!
//! Invariant: each schedule has started each of its nominal times once, without a gap, whatever was done to the clock and to
//! the worker between.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use bosun_engine::WorkflowStatus;
use bosun_tests::harness::http::Http;
use bosun_tests::harness::process::{Program, WorkerProcess};
use bosun_tests::harness::{Chance, count_from_env, say, workload};
use bosun_worker::schedule::text::{moment, parse_moment};
use serde_json::{Value, json};

const HOUR: i64 = 3_600;
const PATIENCE: Duration = Duration::from_secs(180);

/// The wall clock of who loads it is ahead by the seconds in a file; every other clock is the machine's.
const SHIM: &str = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static char path[4096];

/* At once: the worker empties its environment. */
__attribute__((constructor)) static void begin(void) {
    const char *given = getenv("SET_CLOCK_BY");
    if (given) strncpy(path, given, sizeof path - 1);
}

int clock_gettime(clockid_t clock, struct timespec *time) {
    static int (*real)(clockid_t, struct timespec *);
    if (!real) real = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    int answer = real(clock, time);
    if (clock != CLOCK_REALTIME || answer != 0 || !path[0]) return answer;
    char text[32] = {0};
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0) return answer;
    if (read(file, text, sizeof text - 1) > 0) time->tv_sec += atoll(text);
    close(file);
    return answer;
}
"#;

/// A machine whose clock can be set.
struct Machine {
    home: tempfile::TempDir,
    program: Program,
    ahead: i64,
}

impl Machine {
    fn new(ahead: i64) -> Machine {
        let home = tempfile::tempdir().unwrap();
        let (source, library) = (home.path().join("shim.c"), home.path().join("shim.so"));
        std::fs::write(&source, SHIM).unwrap();
        let mut compiler = Command::new("cc");
        compiler.args(["-shared", "-fPIC", "-O1", "-o"]).arg(&library).arg(&source).arg("-ldl");
        let made = compiler.output().expect("whoever builds Bosun has a C compiler: it links with it");
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        let offset = home.path().join("ahead");
        let program = Program::bosun_worker().unwrap();
        let program = program.env("LD_PRELOAD", library.to_str().unwrap());
        let program = program.env("SET_CLOCK_BY", offset.to_str().unwrap());
        let mut machine = Machine { home, program, ahead: 0 };
        machine.set_by(ahead);
        machine
    }
    fn data(&self) -> PathBuf {
        self.home.path().join("data")
    }
    /// The clock is set by so many seconds, in one step.
    fn set_by(&mut self, seconds: i64) {
        self.ahead += seconds;
        let (path, new) = (self.home.path().join("ahead"), self.home.path().join("ahead.new"));
        std::fs::write(&new, self.ahead.to_string()).unwrap();
        std::fs::rename(new, path).unwrap();
    }
    fn start(&self) -> (WorkerProcess, Http) {
        WorkerProcess::start(&self.program, &self.data(), PATIENCE).unwrap()
    }
}

#[track_caller]
fn asked(http: &Http, method: &str, path: &str, body: Option<&Value>) -> Value {
    let body = body.map(Value::to_string);
    let answer = http.request(method, path, body.as_deref().map(str::as_bytes)).unwrap();
    let text = String::from_utf8_lossy(&answer.body).into_owned();
    assert!((200..300).contains(&answer.status), "{method} {path}: {} {text}", answer.status);
    serde_json::from_str(&text).unwrap_or(Value::Null)
}

fn make(http: &Http, id: &str, every: &str, offset: &str) {
    make_of(http, id, &json!({ "intervals": [{ "every": every, "offset": offset }] }));
}

fn make_of(http: &Http, id: &str, spec: &Value) {
    let action = json!({ "workflow_type": "kitchen-sink", "workflow_id": id, "input": { "steps": [] } });
    let schedule = json!({ "spec": spec, "action": action, "policies": { "overlap": "allow_all" } });
    asked(http, "POST", "/api/v1/schedules", Some(&json!({ "schedule_id": id, "schedule": schedule })));
}

/// All schedules, page by page, each with what it says of itself.
fn schedules(http: &Http, page: usize) -> BTreeMap<String, Value> {
    let (mut found, mut cursor) = (BTreeMap::new(), String::new());
    loop {
        let page = asked(http, "GET", &format!("/api/v1/schedules?limit={page}{cursor}"), None);
        for one in page["schedules"].as_array().unwrap() {
            let id = one["schedule_id"].as_str().unwrap().to_owned();
            assert_eq!(found.insert(id, one["description"].clone()), None, "a schedule stands on two pages");
        }
        match page["next_cursor"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => return found,
        }
    }
}

/// The nominal times that a schedule has started, in order, each with how often.
fn started(http: &Http) -> BTreeMap<String, BTreeMap<i64, usize>> {
    let (mut found, mut cursor): (BTreeMap<String, BTreeMap<i64, usize>>, _) = (BTreeMap::new(), String::new());
    let query =
        bosun_tests::harness::http::escape("WorkflowType = 'kitchen-sink' AND TemporalScheduledById IS NOT NULL");
    loop {
        let page = asked(http, "GET", &format!("/api/v1/workflows?query={query}&limit=500{cursor}"), None);
        for run in page["workflows"].as_array().unwrap() {
            let id = run["search_attributes"]["TemporalScheduledById"].as_str().unwrap();
            let at = run["workflow_id"].as_str().unwrap().strip_prefix(&format!("{id}-")).unwrap();
            let at = parse_moment(at).unwrap().0 / 1_000_000;
            *found.entry(id.to_owned()).or_default().entry(at).or_default() += 1;
        }
        match page["next_cursor"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => return found,
        }
    }
}

#[track_caller]
fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let began = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(began.elapsed() < PATIENCE, "{what}: not within {PATIENCE:?}");
        std::thread::sleep(Duration::from_millis(200));
    }
}

fn actions(http: &Http, id: &str) -> u64 {
    asked(http, "GET", &format!("/api/v1/schedules/{id}"), None)["description"]["counts"]["actions"].as_u64().unwrap()
}

/// Whether each nominal time up to the last is there once. Gives how many there are.
#[track_caller]
fn without_gaps(id: &str, times: &BTreeMap<i64, usize>, every: i64) -> usize {
    let twice: Vec<_> = times.iter().filter(|(_, runs)| **runs != 1).collect();
    assert!(twice.is_empty(), "{id}: started more than once: {twice:?}");
    let all: Vec<i64> = times.keys().copied().collect();
    for two in all.windows(2) {
        assert_eq!(two[1] - two[0], every, "{id}: from {} to {} nothing was started", two[0], two[1]);
    }
    all.len()
}

/// E24, G14, G15: the clock is set forward by an hour while the worker runs: what was due starts, without a restart. It is set
/// back by a day: nothing starts again, and no time of an event goes back.
#[test]
fn a_worker_follows_a_clock_that_is_set_forward_and_none_that_is_set_back() {
    let mut machine = Machine::new(0);
    let (mut worker, http) = machine.start();
    make(&http, "m", "10m", "0s");
    http.start(&workload::timers("waits", &[30 * 60 * 1_000])).acknowledged().unwrap();
    assert_eq!(http.result("waits", Duration::from_secs(1)).unwrap(), None, "it is not due");
    // Set wrong, and right again at once: nobody believes it.
    machine.set_by(24 * HOUR);
    std::thread::sleep(Duration::from_secs(3));
    machine.set_by(-24 * HOUR);
    std::thread::sleep(Duration::from_secs(3));
    assert!(actions(&http, "m") <= 1, "{}", worker.said());
    machine.set_by(HOUR);
    until("the times of an hour are started", || (actions(&http, "m") >= 6).then_some(()));
    let ended = http.result("waits", PATIENCE).unwrap().expect("its time has come");
    assert_eq!(ended.outcome.status(), WorkflowStatus::Completed);
    until("the worker says so", || worker.said().contains("was set forward").then_some(()));
    machine.set_by(-24 * HOUR);
    std::thread::sleep(Duration::from_secs(3));
    http.start(&workload::timers("later", &[100])).acknowledged().unwrap();
    assert!(http.result("later", PATIENCE).unwrap().is_some(), "a timer goes on by what the machine lives through");
    worker.kill().unwrap();
    let (_worker, http) = machine.start();
    http.start(&workload::timers("last", &[100])).acknowledged().unwrap();
    assert!(http.result("last", PATIENCE).unwrap().is_some());
    let mut before = 0;
    for id in ["waits", "later", "last"] {
        for event in http.history(id).unwrap() {
            assert!(event.at.0 >= before, "{id}: event {} is before those of {before}", event.id);
            before = event.at.0;
        }
    }
    let counted = actions(&http, "m");
    let started = started(&http);
    assert_eq!(without_gaps("m", &started["m"], HOUR / 6) as u64, counted);
}

/// E24: a start that was delayed begins when its time has come by the clock, over kill -9; it is shown until then, canceled at
/// once, and exported as Temporal has it.
#[test]
fn a_delayed_start_survives_a_kill_and_is_told() {
    let mut machine = Machine::new(0);
    let (mut worker, http) = machine.start();
    let start = |id: &str| {
        let body = json!({ "workflow_type": "kitchen-sink", "workflow_id": id, "input": { "steps": [{ "timer": "10ms" }] },
            "start_delay": "2h", "run_timeout": "1h" });
        asked(&http, "POST", "/api/v1/workflows", Some(&body));
    };
    start("later");
    start("never");
    worker.kill().unwrap();
    let (_worker, http) = machine.start();
    let seen = asked(&http, "GET", "/api/v1/workflows/later", None);
    let (begins, began) = (seen["starts_time"].as_str().unwrap(), seen["start_time"].as_str().unwrap());
    let delay = parse_moment(begins).unwrap().0 - parse_moment(began).unwrap().0;
    assert_eq!(delay, 2 * HOUR * 1_000_000, "{seen:#}");
    let data = machine.data();
    let words = |words: &[&str]| bosun_tests::harness::binary::said(&bosun_tests::harness::binary::run(&data, words));
    let described = words(&["describe", "later"]);
    assert!(described.contains("begins") && described.contains("its start was delayed"), "{described}");
    let listed = words(&["list"]);
    assert!(listed.contains("its start was delayed"), "{listed}");
    let exported = words(&["export", "later", "--as", "temporal"]);
    assert!(exported.contains("firstWorkflowTaskBackoff") && exported.contains("7200s"), "{exported}");
    let checked = words(&["replay", "check", "--query", "WorkflowType = 'kitchen-sink'"]);
    assert!(checked.contains("2 fit, 0 do not"), "{checked}");
    let canceled = words(&["cancel", "never"]);
    let ended = http.result("never", PATIENCE).unwrap().unwrap_or_else(|| panic!("{canceled}"));
    assert_eq!(ended.outcome.status(), WorkflowStatus::Canceled, "it does not wait for its time");
    machine.set_by(2 * HOUR + 60);
    let ended = http.result("later", PATIENCE).unwrap().expect("its time has come");
    assert_eq!(ended.outcome.status(), WorkflowStatus::Completed, "its time limit began with it: {ended:?}");
    let checked = words(&["replay", "check", "--query", "WorkflowType = 'kitchen-sink'"]);
    assert!(checked.contains("2 fit, 0 do not"), "{checked}");
    let cli = words(&["start", "kitchen-sink", "-w", "typed", "-i", r#"{"steps":[]}"#, "--start-delay", "1h"]);
    assert!(words(&["describe", "typed"]).contains("begins"), "{cli}");
}

/// Every eighth schedule is one of New York's Sundays, and every eighth one of leap days.
fn is_of_sundays(id: &str) -> bool {
    id.starts_with("sunday-")
}

fn is_of_leap_days(id: &str) -> bool {
    id.starts_with("leap-")
}

/// 01:30, 02:30 and 03:30 on Sundays in New York, counted by hand. On the 12th of March of 2028 there is no 02:30, and from
/// then on each is an hour earlier by UTC.
fn sundays((from, to): (i64, i64)) -> BTreeSet<i64> {
    let mut times = BTreeSet::new();
    for (midnight, hours) in [
        ("2028-03-05T00:00:00Z", [6, 7, 8].as_slice()),
        ("2028-03-12T00:00:00Z", &[6, 7]),
        ("2028-03-19T00:00:00Z", &[5, 6, 7]),
        ("2028-03-26T00:00:00Z", &[5, 6, 7]),
        ("2028-04-02T00:00:00Z", &[5, 6, 7]),
        ("2028-04-09T00:00:00Z", &[5, 6, 7]),
        ("2028-04-16T00:00:00Z", &[5, 6, 7]),
    ] {
        let midnight = parse_moment(midnight).unwrap().0 / 1_000_000;
        times.extend(hours.iter().map(|hour| midnight + hour * HOUR + HOUR / 2));
    }
    assert!(times.last().is_some_and(|last| *last > to), "the table ends before the life");
    times.retain(|at| *at > from && *at <= to);
    times
}

/// Whether such a schedule has started its times, each once. Gives how many there are.
#[track_caller]
fn all_of(id: &str, times: &BTreeMap<i64, usize>, life: (i64, i64)) -> usize {
    let expected = if is_of_sundays(id) {
        sundays(life)
    } else {
        let noon = parse_moment("2028-02-29T12:00:00Z").unwrap().0 / 1_000_000;
        [noon].into_iter().filter(|at| *at > life.0 && *at <= life.1).collect()
    };
    let wanted: BTreeMap<i64, usize> = expected.into_iter().map(|at| (at, 1)).collect();
    assert_eq!(*times, wanted, "{id} in {life:?}");
    times.len()
}

/// What a life of schedules is made of.
struct Planned {
    many: u32,
    page: usize,
    restarts: u32,
    /// The seconds from one time to the next.
    every: i64,
    begins: &'static str,
}

/// So many schedules over so many restarts, with a clock that jumps, from some hours before a leap day or before clocks change.
// long: one machine's life, from its first schedule to the last look.
fn schedules_over(Planned { many, page, restarts, every, begins }: Planned, name: &str) {
    let mut chance = Chance::from_env(name);
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs().cast_signed();
    let begins = parse_moment(begins).unwrap().0 / 1_000_000;
    let mut machine = Machine::new(begins - now);
    let (mut worker, http) = machine.start();
    let hours = format!("{}h", every / HOUR);
    for n in 0..many {
        match n % 8 {
            3 => {
                let spec = json!({ "cron": ["30 1,2,3 * * sun"], "time_zone": "America/New_York" });
                make_of(&http, &format!("sunday-{n}"), &spec);
            }
            5 => make_of(&http, &format!("leap-{n}"), &json!({ "cron": ["0 12 29 2 *"] })),
            _ => make(&http, &format!("s-{n}"), &hours, &format!("{}s", i64::from(n) % every)),
        }
    }
    assert_eq!(schedules(&http, page).len(), many as usize, "all pages together show them all");
    for _ in 0..restarts {
        let step = chance.below(every.unsigned_abs() / 2).cast_signed() + every / 8;
        match chance.below(4) {
            // While it runs; now and then it is killed before it follows.
            0 => machine.set_by(step),
            // While it is down.
            1 => {
                worker.kill().unwrap();
                machine.set_by(step);
            }
            // Back, and forth by more.
            2 => {
                machine.set_by(-step / 2);
                std::thread::sleep(Duration::from_millis(chance.below(500)));
                worker.kill().unwrap();
                machine.set_by(2 * step);
            }
            _ => {}
        }
        std::thread::sleep(Duration::from_millis(200 + chance.below(2_000)));
        // Killed without a warning, if it was not before.
        drop(worker);
        (worker, _) = machine.start();
    }
    // Once more while it runs, and until all of that is done.
    machine.set_by(2 * every);
    let http = worker.wait_ready(PATIENCE).unwrap();
    let patience = Duration::from_secs(180 + u64::from(many) / 5);
    let began = Instant::now();
    let (told, started) = loop {
        let told = schedules(&http, page);
        let wall = now + machine.ahead + i64::try_from(began.elapsed().as_secs()).unwrap();
        let waits = told.values().filter(|one| {
            let next = one["next"]["due"].as_str().map_or(i64::MAX, |at| parse_moment(at).unwrap().0 / 1_000_000);
            next <= wall || one["running"] != json!([]) || one["waiting"] != json!([])
        });
        let waiting = waits.count();
        let started = started(&http);
        let counts =
            |told: &BTreeMap<String, Value>| told.values().map(|one| one["counts"].clone()).collect::<Vec<_>>();
        // Nothing was started between the two looks.
        if waiting == 0 && counts(&told) == counts(&schedules(&http, page)) {
            break (told, started);
        }
        assert!(began.elapsed() < patience, "{waiting} schedules have not caught up; {}", worker.said());
        std::thread::sleep(Duration::from_millis(500));
    };
    assert_eq!(told.len(), many as usize, "none is lost");
    let (mut runs, none) = (0, BTreeMap::new());
    let life = (begins, now + machine.ahead + i64::try_from(began.elapsed().as_secs()).unwrap());
    for id in told.keys() {
        let times = started.get(id).unwrap_or(&none);
        let here = if is_of_sundays(id) || is_of_leap_days(id) {
            all_of(id, times, life)
        } else {
            assert!(!times.is_empty(), "{id} has started nothing");
            without_gaps(id, times, every)
        };
        assert_eq!(told[id]["counts"]["actions"], here, "{id}");
        assert_eq!(told[id]["counts"]["missed_catchup_window"], 0, "{id}");
        runs += here;
    }
    let newest = started.values().flat_map(BTreeMap::keys).max().copied().unwrap_or(0);
    let newest = moment(bosun_engine::Timestamp(newest * 1_000_000));
    say(&format!("{many} schedules over {restarts} restarts: {runs} starts up to {newest}, each once"));
}

/// E24, issue 19 §2.1, in small: through the night in which New York has no 02:30.
#[test]
fn schedules_start_each_time_once_over_restarts_and_a_clock_that_jumps() {
    schedules_over(
        Planned { many: 24, page: 10, restarts: 6, every: 6 * HOUR, begins: "2028-03-11T20:00:00Z" },
        "schedules_start_each_time_once_over_restarts_and_a_clock_that_jumps",
    );
}

/// The same at its figure: 10 000 schedules over 30 restarts; `BOSUN_SCHEDULES` and `BOSUN_RESTARTS` make it another one.
#[test]
#[ignore = "10 000 schedules over 30 restarts, some twenty minutes: cargo full"]
fn ten_thousand_schedules_over_thirty_restarts_and_a_clock_that_jumps() {
    let (many, restarts) = (count_from_env("BOSUN_SCHEDULES", 10_000), count_from_env("BOSUN_RESTARTS", 30));
    schedules_over(
        // Some hours before the 29th of February; what is made up for reaches into the middle of March.
        Planned { many, page: 200, restarts, every: 72 * HOUR, begins: "2028-02-28T20:00:00Z" },
        "ten_thousand_schedules_over_thirty_restarts_and_a_clock_that_jumps",
    );
}
