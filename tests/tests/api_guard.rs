//! The door of a real worker, tried from outside with requests written by hand: who gets in, and who does not.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use bosun_tests::harness::crash::READY_MAX;
use bosun_tests::harness::http::Endpoint;
use bosun_tests::harness::process::{Program, REQUEST_MAX, WorkerProcess};

/// The status of an answer to a request with exactly these header lines.
fn status(worker: &Endpoint, path: &str, headers: &[String]) -> u16 {
    let mut stream = TcpStream::connect(&worker.address).unwrap();
    let patience: Option<Duration> = Some(REQUEST_MAX);
    stream.set_read_timeout(patience).unwrap();
    let lines: String = headers.iter().map(|line| format!("{line}\r\n")).collect();
    write!(stream, "GET {path} HTTP/1.1\r\n{lines}Connection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let status = answer.strip_prefix("HTTP/1.1 ").and_then(|rest| rest.get(..3)?.parse().ok());
    status.unwrap_or_else(|| panic!("not an answer: {answer:?}"))
}

fn running(dir: &tempfile::TempDir) -> (WorkerProcess, Endpoint) {
    let program = Program::bosun_worker().unwrap();
    let (worker, http) = WorkerProcess::start(&program, &dir.path().join("data"), READY_MAX).unwrap();
    (worker, http.endpoint)
}

/// G32: nothing but the whole token opens: no part of it from the front, the back or the middle, nothing longer.
#[test]
fn nothing_but_the_whole_token_opens() {
    let dir = tempfile::tempdir().unwrap();
    let (_worker, worker) = running(&dir);
    let asked = |token: &str| {
        let headers = [format!("Host: {}", worker.address), format!("Authorization: Bearer {token}")];
        status(&worker, "/api/v1/workflows", &headers)
    };
    let token = worker.token.clone();
    assert_eq!(asked(&token), 200);
    let end = token.len();
    let mut wrong: Vec<String> = (1..end).map(|length| token[..length].to_owned()).collect();
    wrong.extend([1, 8, end / 2].map(|from| token[from..].to_owned()));
    wrong.extend([token[1..end - 1].to_owned(), format!("{token}0"), token.repeat(2), token.to_ascii_uppercase()]);
    for wrong in wrong {
        assert_eq!(asked(&wrong), 401, "{wrong:?} is not the token");
    }
}

/// The start of an answer to a request that is written whole before anything is read, as most clients do it.
fn posted(worker: &Endpoint, body: &[u8]) -> String {
    let mut stream = TcpStream::connect(&worker.address).unwrap();
    stream.set_read_timeout(Some(REQUEST_MAX)).unwrap();
    stream.set_write_timeout(Some(REQUEST_MAX)).unwrap();
    let head = format!(
        "POST /api/v1/workflows HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {}\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\nConnection: close\r\n\r\n",
        worker.address,
        worker.token,
        body.len()
    );
    stream.write_all(head.as_bytes()).unwrap();
    stream.write_all(body).unwrap_or_else(|why| panic!("{} bytes: {why}", body.len()));
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap_or_else(|why| panic!("{} bytes: {why}", body.len()));
    answer
}

/// G34: a body may have 4 MiB, and one that has more is refused in the words of the API, also to who writes all of it first.
#[test]
fn a_body_may_be_as_large_as_is_said() {
    const MIB: usize = 1 << 20;
    let dir = tempfile::tempdir().unwrap();
    let (_worker, worker) = running(&dir);
    for (n, length) in [2 * MIB, 2 * MIB + 1, 4 * MIB].into_iter().enumerate() {
        let mut body = format!(r#"{{"workflow_type":"kitchen-sink","workflow_id":"b{n}","input":{{"steps":[]}}}}"#);
        body.push_str(&" ".repeat(length - body.len()));
        let answer = posted(&worker, body.as_bytes());
        assert!(answer.starts_with("HTTP/1.1 201"), "{length} bytes: {answer}");
    }
    for length in [4 * MIB + 1, 12 * MIB] {
        let answer = posted(&worker, &vec![b' '; length]);
        assert!(answer.starts_with("HTTP/1.1 413"), "{length} bytes: {answer}");
        let (_, said) = answer.split_once("\r\n\r\n").unwrap();
        let said: serde_json::Value = serde_json::from_str(said).unwrap_or_else(|why| panic!("{why}: {answer}"));
        assert_eq!(said["code"], "body_too_large", "{said}");
    }
}

/// A history that was exported is forked by the worker again, however large a file it is.
#[test]
fn a_large_history_is_forked_from_its_file() {
    use crate::supervisor_cli::{run, said};
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let (_worker, http) = WorkerProcess::start(&Program::bosun_worker().unwrap(), &data, READY_MAX).unwrap();
    let steps = serde_json::json!([{ "wait_signal": { "name": "end" } }]);
    for (id, megabytes) in [("three", 3), ("ten", 10)] {
        http.start(&bosun_tests::harness::workload::program(id, steps.clone())).acknowledged().unwrap();
        for n in 0..2 * megabytes {
            let large = serde_json::json!("x".repeat(500_000));
            http.signal(id, "other", &large, &format!("s{n}")).acknowledged().unwrap();
        }
        let file = dir.path().join(format!("{id}.json"));
        let exported = run(&data, &["export", id, "--out", file.to_str().unwrap()]);
        assert!(exported.status.success(), "{}", said(&exported));
        assert!(std::fs::metadata(&file).unwrap().len() >= megabytes * 1_000_000);
        let forked = run(&data, &["fork", file.to_str().unwrap(), "--id", &format!("{id}-again")]);
        assert!(forked.status.success(), "{}", said(&forked));
    }
}

/// G33: a page that has pointed a name of its own at this machine is refused, with the token too.
#[test]
fn a_worker_answers_to_its_own_names_only() {
    let dir = tempfile::tempdir().unwrap();
    let (_worker, worker) = running(&dir);
    let asked = |path: &str, host: &str| {
        let headers = [format!("Host: {host}"), format!("Authorization: Bearer {}", worker.token)];
        status(&worker, path, &headers)
    };
    let (_, port) = worker.address.rsplit_once(':').unwrap();
    let (v6, elsewhere) = (format!("[::1]:{port}"), "localhost:1");
    for path in ["/healthz", "/api/v1/workflows"] {
        for own in [worker.address.as_str(), "localhost", "127.0.0.1", v6.as_str()] {
            assert_eq!(asked(path, own), 200, "{path} of {own}");
        }
        for other in
            [elsewhere, "evil.example", "localhost.evil.example", "127.0.0.1.nip.io", "0.0.0.0", "evil.example:80"]
        {
            assert_eq!(asked(path, other), 403, "{path} of {other}");
        }
    }
}
