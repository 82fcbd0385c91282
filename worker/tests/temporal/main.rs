//! The shipped binary against a real Temporal server: `temporal server start-dev`, with its database in a file.
//!
//! Invariant: every scene goes through the command line, as a user does; the same command is run on the embedded engine where the
//! outcome is to be the same. The server is on loopback, on a free port, and is ended by its process id, also where a scene
//! fails. Where there is no `temporal`, that is said loudly; with `BOSUN_REQUIRE_TEMPORAL=1` it fails. No time is judged.
//!
//! `temporal` is looked for in BOSUN_TEMPORAL_CLI, `target/temporal/bin`, the Go tools' folder and PATH; `.ci/run cluster` installs it.
//! `cargo test -p bosun-worker --features temporal --test temporal -- WORD` runs the scenes whose names hold WORD, and with
//! `--ignored` those of the whole scale, which take half an hour.

#![allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "a program of its own, around what is shipped")]

mod activities;
mod code;
mod evictions;
mod interop;
mod kills;
mod payloads;
mod programs;
#[path = "../python_sdk/mod.rs"]
mod python_sdk;
mod replay;
mod requests;
mod rig;
mod scale;
mod supervisors;
mod tls;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;

use rig::Cluster;

type Scene = (&'static str, fn(&Cluster));

/// In this order: what others lean on comes first. With `--ignored` those that take long.
fn scenes() -> Vec<Scene> {
    if std::env::args().any(|word| word == "--ignored") {
        return [scale::FULL, evictions::FULL].concat();
    }
    [
        programs::SCENES,
        requests::SCENES,
        activities::SCENES,
        payloads::SCENES,
        code::SCENES,
        evictions::SCENES,
        replay::SCENES,
        supervisors::SCENES,
        tls::SCENES,
        kills::SCENES,
        scale::SCENES,
        interop::SCENES,
    ]
    .concat()
}

fn main() -> ExitCode {
    if let Some(build) = std::env::var_os(code::CODE) {
        return code::main(&build.to_string_lossy());
    }
    let words: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with('-')).collect();
    let wanted: Vec<Scene> = scenes()
        .into_iter()
        .filter(|(name, _)| words.is_empty() || words.iter().any(|word| name.contains(word)))
        .collect();
    if std::env::args().any(|word| word == "--list") {
        wanted.iter().for_each(|(name, _)| println!("{name}: test"));
        return ExitCode::SUCCESS;
    }
    if wanted.is_empty() {
        return ExitCode::SUCCESS;
    }
    let Some(cluster) = Cluster::start() else {
        eprintln!(
            "\n!!! NOT RUN: {} scenes of Temporal clusters. There is no `temporal` here: `go install",
            wanted.len()
        );
        eprintln!("!!! github.com/temporalio/cli/cmd/temporal@v1.5.1` (Go 1.25 or newer) installs it.\n");
        let required = std::env::var_os("BOSUN_REQUIRE_TEMPORAL").is_some_and(|value| value == "1");
        return if required { ExitCode::FAILURE } else { ExitCode::SUCCESS };
    };
    let mut failed = Vec::new();
    for (name, scene) in &wanted {
        let began = std::time::Instant::now();
        let ended = catch_unwind(AssertUnwindSafe(|| scene(&cluster)));
        let took = began.elapsed().as_secs_f32();
        println!("scene {name} ... {} ({took:.1} s)", if ended.is_ok() { "ok" } else { "FAILED" });
        if ended.is_err() {
            failed.push(*name);
        }
    }
    drop(cluster);
    println!("\n{} scenes, {} failed: {failed:?}", wanted.len(), failed.len());
    if failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
