//! Agents that are services: what they answer over HTTP counts as it was said, by the shipped binary and a server of the test.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};

use bosun_tests::harness::binary::said;
use serde_json::json;

use crate::doors::{file, run};

/// Answers every request with this, and closes.
fn serve(mut stream: TcpStream, content_type: &str, body: &str) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    let (mut line, mut length) = (String::new(), 0);
    while reader.read_line(&mut line)? > 0 && line.trim() != "" {
        if let Some(said) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            length = said.trim().parse().unwrap_or(0);
        }
        line.clear();
    }
    reader.read_exact(&mut vec![0; length])?;
    let head = format!("HTTP/1.1 200 OK\r\n{content_type}Content-Length: {}\r\nConnection: close\r\n\r\n", body.len());
    stream.write_all(format!("{head}{body}").as_bytes())
}

/// A service that says it did not succeed has not, whatever it calls its answer (SHN-36); and what is no answer in form is text.
#[test]
fn a_service_that_failed_has_failed_whatever_its_content_type() {
    let dir = tempfile::tempdir().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (told, answers) = std::sync::mpsc::channel::<(&str, &str)>();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let Ok((content_type, body)) = answers.recv() else { return };
            let _ = serve(stream, content_type, body);
        }
    });
    let failed = r#"{"success": false, "reason": "no paper", "tokens": 900}"#;
    for (nth, (content_type, body, outcome)) in [
        ("Content-Type: application/json\r\n", failed, Some("no paper")),
        ("Content-Type: text/plain\r\n", failed, Some("no paper")),
        ("", failed, Some("no paper")),
        ("Content-Type: text/plain\r\n", "42 pages", None),
    ]
    .into_iter()
    .enumerate()
    {
        told.send((content_type, body)).unwrap();
        let spec = json!({
            "kind": "supervisor", "preset": "map-reduce", "objective": "Print", "failure": { "tries": 1 },
            "agents": [{ "name": "printer", "via": { "http": { "url": format!("http://{address}/print") } } }],
            "planner": { "script": [{ "on": "plan", "say": { "tasks": [{ "id": "print", "goal": "Print it" }] } }] },
            "script": [{ "on": "synthesize", "say": "printed" }],
        });
        let spec = file(dir.path(), &format!("{nth}.yaml"), &spec.to_string());
        let words = ["run", spec.to_str().unwrap(), "--set", "http.allow_hosts=127.0.0.1"];
        let output = run(&dir.path().join("data"), &words);
        let heard = said(&output);
        assert_eq!(output.status.success(), outcome.is_none(), "{content_type:?} {body}: {heard}");
        assert!(outcome.is_none_or(|why| heard.contains(why)), "{content_type:?}: {heard}");
    }
}
