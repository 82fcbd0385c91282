//! Notifications by the shipped binary: each at least once over kill -9, known by its id and signature, and links that decide
//! once (issue 19 §2.4).

mod kills;
mod kinds;
mod links;
mod receiver;
mod verbs;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use bosun_tests::harness::process::Program;

/// The secret of the webhooks, as Standard Webhooks writes one.
const SECRET: &str = "whsec_Zm9yIHRlc3RzIGFuZCBub3RoaW5nIGVsc2Uh";

/// A worker with this configuration, and the secret in its environment.
fn worker(config: &Path, more: &[&str]) -> Program {
    let mut program = Program::bosun_worker().unwrap().env("OPS_SECRET", SECRET);
    program.arguments.extend(["--config".into(), config.into()]);
    program.arguments.extend(more.iter().map(std::ffi::OsString::from));
    program
}

fn config(folder: &Path, text: &str) -> PathBuf {
    let path = folder.join("bosun.toml");
    std::fs::write(&path, text).unwrap();
    path
}

/// Looks again and again until it is so.
#[track_caller]
fn until<T>(patience: Duration, mut look: impl FnMut() -> Result<T, String>) -> T {
    let begin = Instant::now();
    loop {
        match look() {
            Ok(found) => return found,
            Err(why) if begin.elapsed() > patience => panic!("{why}"),
            Err(_) => std::thread::sleep(Duration::from_millis(50)),
        }
    }
}
