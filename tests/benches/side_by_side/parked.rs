//! F06 and F11: many parked runs. A child process parks them and is killed with -9; this process opens the directory
//! again and asks the first question. Memory and CPU are read from /proc of the child while it idles.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use bosun_engine::*;

const CHILD: &str = "BOSUN_BENCH_PARK";

/// If this process is the child: parks the runs, says so, and idles until it is killed.
pub(crate) fn child() -> bool {
    let Ok(order) = std::env::var(CHILD) else { return false };
    let (runs, directory) = order.split_once(':').expect("RUNS:DIRECTORY");
    let runs: usize = runs.parse().expect("a number");
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("runtime");
    // The process without a worker, for comparison.
    let bare = resident_kib(std::process::id());
    let worker = super::flows::worker_at(&runtime, Path::new(directory));
    let before = if runs == 0 { bare } else { resident_kib(std::process::id()) };
    if runs == 0 {
        // Only opened: what a restart costs in memory.
        std::thread::sleep(Duration::from_secs(2));
        println!("ready {before}");
        loop {
            std::thread::park();
        }
    }
    runtime.block_on(async {
        // In waves, so that what waits for an answer stays small.
        for wave in 0..runs.div_ceil(2_000) {
            let ids = (wave * 2_000..((wave + 1) * 2_000).min(runs)).map(|n| format!("parked-{n}"));
            let starts: Vec<_> = ids
                .map(|id| {
                    let client = worker.client();
                    let start = StartWorkflow::new("wait".into(), id.as_str().into()).input(Payload::raw_json("0"));
                    tokio::spawn(async move { client.start(start).await.expect("a start") })
                })
                .collect();
            for start in starts {
                start.await.expect("a start");
            }
        }
        // Longer than the housekeeping interval: indexes are checkpointed.
        tokio::time::sleep(Duration::from_secs(7)).await;
    });
    println!("ready {before}");
    loop {
        std::thread::park();
    }
}

fn proc_field(pid: u32, file: &str) -> String {
    std::fs::read_to_string(format!("/proc/{pid}/{file}")).unwrap_or_default()
}

fn resident_kib(pid: u32) -> f64 {
    let status = proc_field(pid, "status");
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap_or_default();
    line.split_whitespace().nth(1).and_then(|kib| kib.parse().ok()).unwrap_or(0.0)
}

/// Clock ticks of CPU a process has used.
pub(super) fn cpu_ticks(pid: u32) -> u64 {
    let stat = proc_field(pid, "stat");
    let after = stat.rsplit(')').next().unwrap_or_default();
    // proc_pid_stat(5): utime and stime are fields 14 and 15; behind the name in parentheses the third comes first. Fields
    // before them may be negative (tpgid is -1 without a terminal), so they are counted, not parsed.
    let fields: Vec<&str> = after.split_whitespace().collect();
    let ticks =
        |field: usize| fields.get(field - 3).and_then(|text| text.parse::<u64>().ok()).expect("a count of ticks");
    ticks(14) + ticks(15)
}

fn bytes_on_disk(directory: &Path) -> u64 {
    let Ok(entries) = std::fs::read_dir(directory) else { return 0 };
    entries
        .flatten()
        .map(|entry| match entry.metadata() {
            Ok(meta) if meta.is_dir() => bytes_on_disk(&entry.path()),
            Ok(meta) => meta.len(),
            Err(_) => 0,
        })
        .sum()
}

fn park(runs: usize, directory: &Path) -> (Child, f64) {
    let me = std::env::current_exe().expect("this program");
    let mut child = Command::new(me)
        .env(CHILD, format!("{runs}:{}", directory.display()))
        .stdout(Stdio::piped())
        .spawn()
        .expect("a child");
    let mut line = String::new();
    BufReader::new(child.stdout.take().expect("its output")).read_line(&mut line).expect("a line");
    let before = line.trim().strip_prefix("ready ").and_then(|kib| kib.parse().ok()).unwrap_or(0.0);
    (child, before)
}

pub(crate) fn measure(runtime: &tokio::runtime::Runtime, runs: usize) {
    let directory = tempfile::tempdir_in(super::flows::bench_dir()).expect("a directory");
    let (mut child, before) = park(runs, directory.path());
    let memory = (resident_kib(child.id()) - before) * 1024.0 / runs as f64;
    let ticks = cpu_ticks(child.id());
    std::thread::sleep(Duration::from_secs(10));
    let cpu = (cpu_ticks(child.id()) - ticks) as f64 / 10.0; // ticks of 10 ms: 1 tick a second is 1 %
    child.kill().expect("kill -9");
    child.wait().expect("its end");
    let disk = bytes_on_disk(directory.path()) as f64 / runs as f64;
    let mut opened = Vec::new();
    for round in 0..3 {
        let begun = Instant::now();
        let worker = super::flows::worker_at(runtime, directory.path());
        let client = worker.client();
        runtime.block_on(async {
            let target = Target::workflow(WorkflowId::of(format!("parked-{}", runs - 1 - round)));
            let signal =
                SignalRequest { name: "go".into(), input: Payload::raw_json("1"), identity: None, request_id: None };
            client.signal(&target, signal).await.expect("a signal");
            let wait = ResultRequest { follow_runs: true, timeout: None };
            client.result(&target, wait).await.expect("a result");
        });
        opened.push(begun.elapsed().as_secs_f64() * 1e3);
        worker.stop().expect("a stop");
    }
    // After the first opening has been timed: this one opens the directory too.
    let (mut again, bare) = park(0, directory.path());
    let parked = (resident_kib(again.id()) - bare) * 1024.0 / runs as f64;
    again.kill().expect("kill -9");
    again.wait().expect("its end");
    println!(
        "F06/F11 {runs} parked runs: after kill -9 to the first answer {:.0} ms (then {:.0} ms); {memory:.0} B of memory a run \
         where they were started, {parked:.0} B after a restart; {disk:.0} B of disk a run; idle CPU {cpu:.2} % of a core",
        opened[0], opened[2],
    );
}
