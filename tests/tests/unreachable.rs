//! A model that nobody can reach costs nothing: nothing was sent, and the budget is still there.
//!
//! The shipped binary, and a loopback port at which nobody listens.

use std::net::TcpListener;

use serde_json::Value;

use crate::supervisor_cli::{command, run, said};

const SPEC: &str = "
kind: supervisor
preset: flow-supervisor
objective: Explain the tides
budget: { tokens: 30000, on_exhausted: ask }
agents: [{ name: writer, role: writer, via: { model: { name: tiny, limits: { model_attempts: 2 } } } }]
script:
  - { on: plan, say: { tasks: [{ id: text, goal: Tell it, agent: writer }] } }
";

/// The attempts are used up and people are asked: no token is charged, and both verbs say the same.
#[test]
fn a_model_that_cannot_be_reached_takes_nothing_of_a_budget() {
    let dir = tempfile::tempdir().unwrap();
    let (data, spec) = (dir.path().join("data"), dir.path().join("unreach.yaml"));
    std::fs::write(&spec, SPEC).unwrap();
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let mut play = command(&data, &["run", spec.to_str().unwrap(), "-w", "tides", "--no-wait", "--timeout", "60s"]);
    let parked = play.env("OPENAI_BASE_URL", format!("http://{closed}/v1")).env_remove("BOSUN_ALLOW_MODEL_REQUESTS");
    let parked = parked.output().unwrap();
    assert_eq!(parked.status.code(), Some(15), "{}", said(&parked));
    let object = |words: &[&str]| -> Value { serde_json::from_slice(&run(&data, words).stdout).unwrap() };
    let cost = object(&["cost", "tides", "-o", "json"]);
    assert_eq!(
        (&cost["tokens"], &cost["unpriced_calls"], &cost["cost_micros"]),
        (&0.into(), &0.into(), &0.into()),
        "{cost}"
    );
    let shown = object(&["budget", "show", "tides", "-o", "json"]);
    let budget = &shown["budget"];
    assert_eq!((&budget["spent"]["tokens"], &budget["left"]["tokens"]), (&0.into(), &30_000.into()), "{shown}");
    assert_eq!(budget["spent"]["calls"], cost["calls"], "{shown} {cost}");
}
