//! The fsync contract, seen from outside: strace shows what the worker writes, syncs and answers, in order.

use std::fs;
use std::path::Path;

use bosun_tests::harness::crash::READY_MAX;
use bosun_tests::harness::faults::Injection;
use bosun_tests::harness::process::{Program, WorkerProcess};
use bosun_tests::harness::{Chance, say, workload};
use serde_json::json;

/// How many starts are acknowledged, one after the other.
const STARTS: usize = 40;
/// And how many take more than both write-ahead files hold.
const LAPS: usize = 1_200;

/// What a line of the trace says, as far as the contract is concerned.
#[derive(Debug, PartialEq)]
enum Call<'a> {
    /// Bytes went to this file.
    Wrote(&'a str),
    Synced(&'a str),
    Created(&'a str),
    /// A request that changes something has arrived.
    Asked,
    /// A client was told that its request succeeded.
    Acknowledged,
}

/// The path that strace writes behind a descriptor: `7</data/log/db>`.
fn described(text: &str) -> Option<&str> {
    let rest = text.split_once('<')?.1;
    Some(rest.split_once('>')?.0)
}

/// Reads a line. A call that strace tells in two lines counts where it ends, for a sync, and where it begins, for a write
/// or an answer: so an overlap can only be judged too strictly.
fn parse(line: &str) -> Option<Call<'_>> {
    let (_, call) = line.split_once(' ')?;
    let call = call.trim_start();
    let failed = call.contains("= -1 ");
    let resumed = call.strip_prefix("<... ").and_then(|rest| rest.split_once(" resumed>"));
    let name = resumed.map_or_else(|| call.split('(').next().unwrap_or_default(), |(name, _)| name);
    match name {
        "pwrite64" | "pwritev" | "ftruncate" if resumed.is_none() => described(call).map(Call::Wrote),
        "write" | "sendto" | "writev" | "sendmsg" if resumed.is_none() => {
            let answers = call.contains("HTTP/1.1 2") && call.contains("socket:[");
            answers.then_some(Call::Acknowledged)
        }
        "read" | "recvfrom" | "readv" | "recvmsg" => call.contains("\"POST /").then_some(Call::Asked),
        "fsync" | "fdatasync" if resumed.is_none() && !failed && !call.contains("unfinished") => {
            described(call).map(Call::Synced)
        }
        "openat" if resumed.is_none() && !failed && call.contains("O_CREAT") => {
            let made = call.rsplit_once("= ")?.1;
            described(made).map(Call::Created)
        }
        _ => None,
    }
}

/// Joins the two halves of interrupted calls at their end, so that a sync counts when it has happened.
fn whole_lines(trace: &str) -> Vec<String> {
    let mut begun: Vec<(String, String)> = Vec::new();
    let mut lines = Vec::new();
    for line in trace.lines() {
        let Some((thread, call)) = line.split_once(' ') else { continue };
        let is_sync = call.trim_start().starts_with("fsync(") || call.trim_start().starts_with("fdatasync(");
        if is_sync && call.ends_with("<unfinished ...>") {
            begun.push((thread.to_owned(), call.trim_end_matches("<unfinished ...>").to_owned()));
        } else if let Some((name, rest)) =
            call.trim_start().strip_prefix("<... ").and_then(|c| c.split_once(" resumed>"))
            && (name == "fsync" || name == "fdatasync")
        {
            if let Some(at) = begun.iter().rposition(|(of, _)| of == thread) {
                let (_, first) = begun.remove(at);
                lines.push(format!("{thread} {first}{rest}"));
            }
        } else {
            lines.push(line.to_owned());
        }
    }
    lines
}

/// Whether a write begins its file; on a busy machine others call before it has ended.
fn is_at_start(line: &str) -> bool {
    line.contains(", 0) = ") || line.ends_with(", 0 <unfinished ...>")
}

/// How far the request under way has come.
#[derive(PartialEq)]
enum Request {
    None,
    Asked,
    Written,
    Durable,
}

/// Walks through the trace of a client that asks one thing after the other: each answer comes after a sync of the
/// write-ahead file that was written after the request. When the database is synced no group beside it is unsynced, and
/// a write-ahead file is begun again only after the database was synced.
fn check(trace: &str, data: &Path) -> Result<(usize, usize), String> {
    let database = data.join("log/db").display().to_string();
    let (beside, ahead) = (data.join("groups").display().to_string(), data.join("wal/").display().to_string());
    let (mut request, mut acknowledged, mut created) = (Request::None, 0, Vec::new());
    let (mut unsynced, mut unfed): (Vec<String>, Vec<String>) = (Vec::new(), Vec::new());
    let mut written = String::new();
    let lines = whole_lines(trace);
    for (number, line) in lines.iter().enumerate() {
        match parse(line) {
            Some(Call::Asked) => request = Request::Asked,
            Some(Call::Wrote(path)) if path.starts_with(&ahead) => {
                if is_at_start(line) && unfed.iter().any(|file| file == path) {
                    return Err(format!("line {number}: begun again before the database was synced: {line}"));
                }
                unfed.retain(|file| file != path);
                unfed.push(path.to_owned());
                if request == Request::Asked {
                    path.clone_into(&mut written);
                    request = Request::Written;
                }
            }
            Some(Call::Synced(path)) if path == written && request == Request::Written => request = Request::Durable,
            Some(Call::Synced(path)) if path == database => {
                if let Some(path) = unsynced.first() {
                    return Err(format!("line {number}: the database is synced before {path}: {line}"));
                }
                unfed.clear();
            }
            Some(Call::Wrote(path)) if path.starts_with(&beside) => {
                if !unsynced.iter().any(|known| known == path) {
                    unsynced.push(path.to_owned());
                }
            }
            Some(Call::Synced(path)) => {
                unsynced.retain(|written| written != path);
                created.retain(|made: &String| Path::new(made).parent() != Some(Path::new(path)))
            }
            Some(Call::Created(path)) if Path::new(path).starts_with(data) => created.push(path.to_owned()),
            Some(Call::Acknowledged) => match std::mem::replace(&mut request, Request::None) {
                Request::None => {}
                Request::Durable => acknowledged += 1,
                Request::Asked | Request::Written => {
                    return Err(format!("line {number}: an answer before the log was synced: {line}"));
                }
            },
            Some(Call::Wrote(_)) | None => {}
            Some(Call::Created(_)) => {}
        }
    }
    // Files of our own that hold nothing that was promised; `reserve` holds nothing but room.
    let ours = ["bosun.lock", "worker.json", "token", "reserve"];
    let bare = created.iter().filter(|path| !ours.iter().any(|name| path.contains(name)) && !path.contains("/log/"));
    match bare.collect::<Vec<_>>().as_slice() {
        [] => Ok((acknowledged, lines.len())),
        paths => Err(format!("created, and the directory not synced afterwards: {paths:?}")),
    }
}

/// G3: between the write of a group and the answer that acknowledges it lies a finished fdatasync of that very file; after
/// a file is created, its directory is synced.
#[test]
fn every_answer_comes_after_the_sync_of_what_it_acknowledges() {
    contract(STARTS, 900);
}

/// G1, G3: over some laps of the write-ahead files: each is written from its start again only after the database, which
/// has taken what was in it, was synced.
#[test]
fn what_was_written_ahead_stays_until_the_database_is_synced() {
    if let Some(trace) = contract(LAPS, 15_000) {
        let begun = trace.lines().filter(|line| line.contains("/wal/0>") && is_at_start(line)).count();
        assert!(begun >= 2, "no file was begun again");
    }
}

/// Text that does not get smaller.
fn noise(seed: usize, length: usize) -> String {
    let mut chance = Chance::new(seed as u64);
    (0..length).map(|_| char::from(b'0' + chance.below(75) as u8)).collect()
}

/// As many starts, every other one so long. Answers the trace.
fn contract(starts: usize, length: usize) -> Option<String> {
    if !Injection::available_or_explain() {
        return None;
    }
    let dir = tempfile::tempdir().unwrap();
    let (data, trace) = (dir.path().join("data"), dir.path().join("trace"));
    let calls = "trace=pwrite64,pwritev,ftruncate,fsync,fdatasync,openat,read,readv,recvfrom,recvmsg,write,writev,sendto,sendmsg";
    let mut words: Vec<std::ffi::OsString> =
        ["strace", "-D", "-f", "-qq", "-y", "-s", "64", "-e", calls, "-o"].map(Into::into).into();
    words.push(trace.clone().into());
    words.push("--".into());
    let program = Program::bosun_worker().unwrap().wrapped(words);
    let (mut worker, http) = WorkerProcess::start(&program, &data, READY_MAX).unwrap();
    for n in 0..starts {
        // Every other one is too long for the database.
        let input = noise(n, if n % 2 == 0 { 10 } else { length });
        let then = json!({ "activity": { "type": "echo", "input": input } });
        let steps = json!([{ "wait_signal": { "name": "never" } }, then]);
        http.start(&workload::program(&format!("synced-{n}"), steps)).acknowledged().unwrap();
    }
    worker.terminate().unwrap();
    worker.wait(READY_MAX).unwrap().expect("its end");
    let trace = fs::read_to_string(&trace).unwrap();
    let data = data.canonicalize().unwrap();
    let (acknowledged, lines) = check(&trace, &data).unwrap_or_else(|why| panic!("{why}"));
    say(&format!("fsync contract: {acknowledged} acknowledgements after a sync, in {lines} calls"));
    assert!(trace.contains("/groups/0"), "no start was written beside the database");
    assert!(acknowledged >= starts, "only {acknowledged} of {starts} starts were seen in the trace");
    Some(trace)
}

/// G3: the check itself finds an answer that came too early, and a file whose name is not durable.
#[test]
fn the_check_finds_what_breaks_the_contract() {
    let data = Path::new("/d");
    let asked = "3 recvfrom(9<socket:[77]>, \"POST /api/v1/workflows\"..., 8192, 0, NULL, NULL) = 300\n";
    let write = "1 pwrite64(5</d/wal/0>, \"x\"..., 4096, 8192) = 4096\n";
    let begins = "2 fdatasync(5</d/wal/0> <unfinished ...>\n";
    let ends = "2 <... fdatasync resumed>) = 0\n";
    let answer = "3 sendto(9<socket:[77]>, \"HTTP/1.1 200 OK\\r\\n\"..., 99, MSG_NOSIGNAL, NULL, 0) = 99\n";
    assert_eq!(check(&[asked, write, begins, ends, answer].concat(), data).map(|seen| seen.0), Ok(1));
    assert!(
        check(&[asked, write, begins, answer, ends].concat(), data).unwrap_err().contains("before the log was synced")
    );
    assert!(check(&[asked, write, answer].concat(), data).is_err());
    assert!(check(&[write, begins, ends, asked, answer].concat(), data).is_err(), "a sync of something older");
    let long = "1 pwrite64(6</d/groups/01>, \"x\"..., 9, 0) = 9\n";
    let synced = "1 fdatasync(6</d/groups/01>) = 0\n";
    let database = "1 fdatasync(7</d/log/db>) = 0\n";
    assert!(check(&[long, synced, database].concat(), data).is_ok());
    assert!(check(&[long, database].concat(), data).unwrap_err().contains("groups/01"));
    let again = write.replace("8192)", "0)");
    assert!(check(&[write, database, &again].concat(), data).is_ok());
    assert!(check(&[write, &again].concat(), data).unwrap_err().contains("begun again"));
    let other = begins.replace("wal/0", "wal/1");
    assert!(check(&[asked, write, &other, ends, answer].concat(), data).is_err(), "a sync of another file");
    let failed = "2 fdatasync(5</d/wal/0>) = -1 EIO (Input/output error)\n";
    assert!(check(&[asked, write, failed, answer].concat(), data).is_err());
    let made = "1 openat(AT_FDCWD</>, \"/d/payloads/ab\", O_WRONLY|O_CREAT, 0666) = 8</d/payloads/ab>\n";
    assert!(check(made, data).unwrap_err().contains("payloads/ab"));
    assert!(check(&[made, "1 fsync(9</d/payloads>) = 0\n"].concat(), data).is_ok());
}
