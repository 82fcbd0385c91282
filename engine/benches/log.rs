//! What a durable turn costs beside a plain file append + fdatasync of the same bytes (F03), and what parked
//! runs cost to recover (F06), and what an open costs that reads all of a large log. `cargo bench -p bosun-engine --bench
//! log [-- payloads | parked 100000 | open 512]`
//!
//! Medians of rounds in which both are measured in turn, so that a slow moment of the disk hits both.
#![expect(clippy::disallowed_methods, clippy::disallowed_types, reason = "a bench measures real time")]

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bosun_engine::log::{DiskLog, Journal, JournalOptions, SledOptions};
use bosun_engine::*;

const ROUNDS: usize = 7;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["recover", dir] => recover(Path::new(dir)),
        ["open", mib] => opening(mib.parse().expect("open takes a number of MiB")),
        ["payloads"] => payloads(),
        ["parked", count] => parked(count.parse().expect("parked takes a number of runs")),
        _ => {
            for turns in [1, 8, 64, 256] {
                append(turns);
            }
            parked(10_000);
        }
    }
}

fn open(dir: &Path) -> Journal {
    let medium = DiskLog::open(dir, SledOptions::default()).expect("the log opens");
    Journal::open(Arc::new(medium), JournalOptions::default()).expect("the journal opens")
}

fn run_id(n: u64) -> RunId {
    let mut id = [0x22; 16];
    id[8..].copy_from_slice(&n.to_be_bytes());
    RunId(id)
}

fn turn(run: u64, first_event: u64, events: Vec<EventKind>) -> Turn {
    let at = Timestamp::from_millis(1_700_000_000_000 + first_event as i64);
    let outlook = Outlook { next_deadline: Some(Timestamp(1_700_000_000_000_000)), attention: true };
    Turn { outlook, ..Turn::of(run_id(run), EventId(first_event), at, BuildId(0x1234_5678_9abc_def0), events) }
}

fn start(run: u64) -> Turn {
    let mut request = StartWorkflow::new(WorkflowType::of("order"), WorkflowId::of(format!("customer-order-{run}")));
    request.input = Payload::raw_json(format!("{{\"customer\":{run},\"amount\":1250}}"));
    let started = request.first_event(run_id(run), Timestamp(0));
    let timer = EventKind::TimerStarted { seq: Seq(1), fire_at: Timestamp(1_800_000_000_000_000), summary: None };
    turn(run, 1, vec![EventKind::WorkflowExecutionStarted(Box::new(started)), timer])
}

/// About 220 bytes as stored.
fn step(run: u64, first_event: u64) -> Turn {
    let result = Payload::raw_json(format!("\"{}\"", "r".repeat(58)));
    let timer = EventKind::TimerStarted { seq: Seq(2), fire_at: Timestamp(1_800_000_000_000_000), summary: None };
    turn(run, first_event, vec![EventKind::ActivityTaskCompleted { seq: Seq(1), result, identity: None }, timer])
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}

fn append(turns: u64) {
    let home = tempfile::tempdir_in(".").expect("a directory on the disk to be measured");
    let journal = open(&home.path().join("data"));
    let mut raw = File::create(home.path().join("raw")).expect("a file");
    let starts: Vec<Turn> = (0..turns).map(start).collect();
    journal.commit(&starts).expect("starts");
    let commits = (2_000 / turns).clamp(60, 300);
    let (mut next, mut bytes) = (3, 0);
    let (mut ours, mut plain) = (Vec::new(), Vec::new());
    for round in 0..=ROUNDS {
        let mut spent = Duration::ZERO;
        for _ in 0..commits {
            let group: Vec<Turn> = (0..turns).map(|run| step(run, next)).collect();
            let begun = Instant::now();
            bytes = journal.commit(&group).expect("a commit").bytes;
            spent += begun.elapsed();
            next += 2;
        }
        let content = vec![0x5a; bytes as usize];
        let begun = Instant::now();
        for _ in 0..commits {
            raw.write_all(&content).and_then(|()| raw.sync_data()).expect("an append");
        }
        // The first round warms up.
        if round > 0 {
            ours.push(spent);
            plain.push(begun.elapsed());
        }
    }
    let rate = |time: Duration| (turns * commits) as f64 / time.as_secs_f64();
    let (ours, plain) = (rate(median(ours)), rate(median(plain)));
    println!(
        "append {turns:>4} turns/group  {:>4} B/turn  journal {ours:>9.0} turns/s  raw {plain:>9.0} turns/s  {:>3.0} %",
        bytes / turns,
        100.0 * ours / plain
    );
}

/// Text as models write it: words, none of them drawn twice the same way, so that it shrinks by a half at most.
fn words(state: &mut u64, bytes: usize) -> String {
    const WORDS: [&str; 8] = ["plan", "agent", "because", "review", "budget", "person", "answer", "signal"];
    let mut text = String::with_capacity(bytes + 24);
    while text.len() < bytes {
        // xorshift64
        *state ^= *state << 13;
        *state ^= *state >> 7;
        *state ^= *state << 17;
        text.push_str(WORDS[(*state % 8) as usize]);
        text.push_str(&format!(" {:x} ", *state >> 40));
    }
    text.truncate(bytes);
    text
}

/// Turns a second by the length of a result, beside appends of groups of as many bytes. Where payloads become blobs is
/// varied, so that the default can be chosen.
fn payloads() {
    const TURNS: u64 = 64;
    println!("{TURNS} turns a group; turns/s, and the share of raw");
    for bytes in [100usize, 1_024, 4_096, 16_000, 20_000, 65_536, 262_144, 1_048_576] {
        let turns = if bytes > 100_000 { 8 } else { TURNS };
        let commits = (64 * 1_024 * 1_024 / (bytes * turns as usize)).clamp(8, 100);
        let settings = [4_096, 16 * 1_024, 128 * 1_024, 2 * 1_024 * 1_024];
        let homes = settings.map(|_| tempfile::tempdir_in(".").expect("a directory on the disk to be measured"));
        let journals: Vec<Journal> = settings
            .iter()
            .zip(&homes)
            .map(|(blob_above, home)| {
                let medium = DiskLog::open(&home.path().join("data"), SledOptions::default()).expect("the log opens");
                let options = JournalOptions { blob_above: *blob_above, ..JournalOptions::default() };
                let journal = Journal::open(Arc::new(medium), options).expect("the journal opens");
                journal.commit(&(0..turns).map(start).collect::<Vec<Turn>>()).expect("starts");
                journal
            })
            .collect();
        let mut raw = File::create(homes[0].path().join("raw")).expect("a file");
        let (mut state, mut next) = (0x9e37_79b9_7f4a_7c15u64, 3);
        let mut spent: Vec<Vec<Duration>> = vec![Vec::new(); settings.len() + 1];
        for _ in 0..5 {
            let groups: Vec<Vec<Turn>> = (0..commits as u64)
                .map(|n| {
                    let one = |run| {
                        let result = Payload::raw_json(format!("\"{}\"", words(&mut state, bytes)));
                        let done = EventKind::ActivityTaskCompleted { seq: Seq(1), result, identity: None };
                        turn(run, next + n, vec![done])
                    };
                    (0..turns).map(one).collect()
                })
                .collect();
            next += commits as u64;
            for (journal, spent) in journals.iter().zip(&mut spent) {
                let begun = Instant::now();
                groups.iter().for_each(|group| _ = journal.commit(group).expect("a commit"));
                spent.push(begun.elapsed());
            }
            let content = vec![0x5a; (bytes + 60) * turns as usize];
            let begun = Instant::now();
            for _ in 0..commits {
                raw.write_all(&content).and_then(|()| raw.sync_data()).expect("an append");
            }
            spent[settings.len()].push(begun.elapsed());
        }
        let rates: Vec<f64> =
            spent.into_iter().map(|times| (turns as usize * commits) as f64 / median(times).as_secs_f64()).collect();
        let raw = rates[settings.len()];
        let ours = settings.iter().zip(&rates);
        let ours: Vec<String> =
            ours.map(|(above, rate)| format!("blobs above {above}: {rate:.0} ({:.2})", rate / raw)).collect();
        println!("{bytes:>8} B  raw {raw:>8.0}  {}", ours.join("  "));
    }
}

fn resident() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    statm.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok()).unwrap_or(0) * 4_096
}

fn parked(count: u64) {
    let home = tempfile::tempdir_in(".").expect("a directory on the disk to be measured");
    let dir = home.path().join("data");
    let journal = open(&dir);
    let begun = Instant::now();
    for first in (0..count).step_by(256) {
        let group: Vec<Turn> = (first..(first + 256).min(count)).map(start).collect();
        journal.commit(&group).expect("starts");
    }
    let started = begun.elapsed();
    let begun = Instant::now();
    journal.checkpoint().expect("a checkpoint");
    let checkpoint = begun.elapsed();
    // A tail behind the checkpoint, as a killed process leaves it.
    for run in 0..200.min(count) {
        journal.commit(&[step(run, 3)]).expect("a step");
    }
    let disk = journal.info().bytes_on_disk;
    drop(journal);
    println!("parked {count} runs: start {started:.2?}, checkpoint {checkpoint:.2?}, {} B of disk a run", disk / count);
    // In a process of its own, as after a kill, and so that its memory is its own.
    let child = std::env::current_exe().expect("this program");
    let status = std::process::Command::new(child).arg("recover").arg(&dir).status();
    assert!(status.expect("a child process").success());
}

/// A log of so many MiB, half of it in groups beside the database, opened after a clean end and after a kill.
fn opening(mib: u64) {
    let home = tempfile::tempdir_in(".").expect("a directory on the disk to be measured");
    let dir = home.path().join("data");
    let options = JournalOptions { log_keep_bytes: u64::MAX, ..JournalOptions::default() };
    let open = || {
        let begun = Instant::now();
        let medium = DiskLog::open(&dir, SledOptions::default()).expect("the log opens");
        let medium_open = begun.elapsed();
        let journal = Journal::open(Arc::new(medium), options.clone()).expect("the journal opens");
        (journal, medium_open, begun.elapsed())
    };
    let (journal, ..) = open();
    let (mut bytes, mut run) = (0, 0);
    while bytes < mib << 20 {
        // Short groups stay in the database, long ones go to files of their own.
        let short: Vec<Turn> = (run..run + 20).map(start).collect();
        let long: Vec<Turn> = (run + 20..run + 60).map(start).collect();
        bytes += journal.commit(&short).expect("a group").bytes + journal.commit(&long).expect("a group").bytes;
        run += 60;
    }
    let tell = |what: &str, journal: &Journal, medium: Duration, all: Duration| {
        let info = journal.info();
        let per_gib = all.as_secs_f64() * (1 << 30) as f64 / info.bytes_on_disk as f64;
        let disk = info.bytes_on_disk >> 20;
        println!(
            "{what}: {} groups, {disk} MiB on disk: log {medium:.2?}, all {all:.2?}, {per_gib:.2} s/GiB",
            info.groups
        );
    };
    // Without a checkpoint or a snapshot, as a kill leaves it: the files of a copy.
    journal.checkpoint().expect("a checkpoint");
    let copied = std::process::Command::new("cp").arg("-a").arg(&dir).arg(home.path().join("killed")).status();
    assert!(copied.expect("a copy").success());
    journal.close().expect("an end");
    drop(journal);
    let (journal, medium, all) = open();
    tell("after a clean end", &journal, medium, all);
    drop(journal);
    std::fs::remove_dir_all(&dir).expect("the first");
    std::fs::rename(home.path().join("killed"), &dir).expect("the copy");
    let (journal, medium, all) = open();
    tell("after a kill", &journal, medium, all);
}

fn recover(dir: &Path) {
    let before = resident();
    let begun = Instant::now();
    let journal = open(dir);
    let opened = begun.elapsed();
    let memory = resident().saturating_sub(before);
    let count = journal.open_runs().len() as u64;
    println!(
        "recovered {count} runs in {opened:.2?} with {} B of memory a run (page cache of sled included)",
        memory / count
    );
}
