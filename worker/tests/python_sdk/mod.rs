//! The official Python SDK, in a virtual environment that is kept in `target/temporal/python`.
//!
//! Invariant: the SDK is pinned. Where there is no Python or no SDK to be had, that is said loudly; with
//! `BOSUN_REQUIRE_TEMPORAL=1` it fails.

use std::path::{Path, PathBuf};
use std::process::Command;

const SDK: &str = "temporalio==1.35.0";

/// The interpreter with the SDK.
pub(crate) fn python() -> Option<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/temporal/python");
    let python = folder.join("bin/python");
    let has_sdk = |python: &Path| {
        let check = "import temporalio.service as s; assert s.__version__ == '1.35.0'";
        Command::new(python).args(["-c", check]).output().is_ok_and(|output| output.status.success())
    };
    if has_sdk(&python) {
        return Some(python);
    }
    let _ = Command::new("python3").args(["-m", "venv"]).arg(&folder).output();
    let install = ["-m", "pip", "install", "--quiet", "--retries", "2", "--timeout", "20", SDK];
    let _ = Command::new(&python).args(install).output();
    if has_sdk(&python) {
        return Some(python);
    }
    say(&format!("\n!!! NOT RUN: the official Python SDK ({SDK}) is not there and cannot be installed.\n"));
    assert!(std::env::var_os("BOSUN_REQUIRE_TEMPORAL").is_none_or(|value| value != "1"), "the Python SDK is required");
    None
}

/// Prints past the capture of the test runner.
fn say(what: &str) {
    use std::io::Write;
    // What cannot be printed changes nothing.
    let _ = writeln!(std::io::stderr(), "{what}");
}
