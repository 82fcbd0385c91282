//! The `process` activity: one command as an argument vector, in a process group of its own (G37).
//!
//! Invariant: no shell unless `argv[0]` names one; the environment is cleared but for what is asked for; when the
//! activity ends, however it ends, no process of its group is left, and a group that outlives a killed worker is found
//! by its note at the next start ([`reap_orphans`]). It does not retry: the run machine does, by the retry policy.

mod cgroup;
mod group;
pub(crate) mod guard;
#[doc(hidden)]
mod note;
mod output;
mod run;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::file::FileConfig;

#[cfg(feature = "mcp")]
pub(in crate::capability) use group::{Owner, ProcessGroup, spawn};
#[doc(hidden)]
pub use note::{ProcessNote, Reaped, reap_orphans};
#[cfg(feature = "mcp")]
pub(in crate::capability) use run::passes;
#[doc(hidden)]
pub use run::run;

/// The activity type.
pub const PROCESS: &str = "process";

/// Failure types of this activity, for retry policies.
pub const PROCESS_EXIT: &str = "ProcessExit";
/// The program cannot be started.
pub const PROCESS_SPAWN: &str = "ProcessSpawn";
/// It took longer than the input allows.
pub const PROCESS_TIMEOUT: &str = "ProcessTimeout";
/// The owner does not allow it.
pub const PROCESS_REFUSED: &str = "ProcessRefused";

/// The environment names a child has of the worker without asking.
pub const ENV_DEFAULT: [&str; 4] = ["PATH", "HOME", "LANG", "TMPDIR"];
/// The variable with the key that all attempts share.
pub const ENV_IDEMPOTENCY_KEY: &str = "BOSUN_IDEMPOTENCY_KEY";
/// The variable with the number of the attempt, from 1.
pub const ENV_ATTEMPT: &str = "BOSUN_ATTEMPT";
/// Found in the environment of every process of a group, also of those that left the group.
#[doc(hidden)]
pub const ENV_MARKER: &str = "BOSUN_PROCESS_MARKER";

/// How many bytes of each stream are kept when the input says nothing.
pub const OUTPUT_MAX_DEFAULT: u64 = 1024 * 1024;

/// What to run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProcessInput {
    /// The program and its arguments; no shell reads them.
    pub argv: Vec<String>,
    /// Where it begins; the worker's directory if it is left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cwd: Option<PathBuf>,
    /// The directory that `cwd` and `report_files` must not leave, links resolved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub jail: Option<PathBuf>,
    /// Variables that the process gets.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// Names taken over from the worker's environment.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub env_allow: Vec<String>,
    /// What it reads from standard input; nothing if it is left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stdin: Option<String>,
    /// How long it may take, in milliseconds; only the activity's limits if it is left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
    /// Bytes kept of each stream; the rest is counted and dropped.
    #[serde(default = "output_max_default")]
    pub output_max: u64,
    /// Exit codes that are not a failure. Empty: every way to end is a result.
    #[serde(default = "success_codes_default")]
    pub success_codes: Vec<i32>,
    /// Paths, relative to `cwd`, whose size is reported after the end; for critics that judge files.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub report_files: Vec<String>,
}

impl ProcessInput {
    /// A command with the defaults of everything else.
    pub fn of<S: Into<String>>(argv: impl IntoIterator<Item = S>) -> Self {
        ProcessInput {
            argv: argv.into_iter().map(Into::into).collect(),
            cwd: None,
            jail: None,
            env: BTreeMap::new(),
            env_allow: Vec::new(),
            stdin: None,
            timeout_ms: None,
            output_max: output_max_default(),
            success_codes: success_codes_default(),
            report_files: Vec::new(),
        }
    }
}

fn output_max_default() -> u64 {
    OUTPUT_MAX_DEFAULT
}

fn success_codes_default() -> Vec<i32> {
    vec![0]
}

/// How it ended. Output that is not UTF-8 has replacement characters.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ProcessOutput {
    /// `None` if a signal ended it.
    pub exit_code: Option<i32>,
    /// The number of the signal that ended it.
    pub signal: Option<i32>,
    /// The beginning of standard output.
    pub stdout: String,
    /// The beginning of standard error.
    pub stderr: String,
    /// Whether either is longer than what was kept.
    pub truncated: bool,
    /// How many bytes there were, kept or not.
    pub stdout_bytes: u64,
    /// The same of standard error.
    pub stderr_bytes: u64,
    /// How long it took, in milliseconds.
    pub duration_ms: u64,
    /// The reported files, by path.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub files: BTreeMap<String, FileReport>,
}

/// A file after the process ended; no size if there is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileReport {
    /// Bytes.
    pub size: Option<u64>,
}

/// What the worker's owner allows and where notes go.
#[derive(Debug, Clone)]
pub struct ProcessConfig {
    /// Where running groups are noted, usually `<data>/processes`. `None`: orphans of a killed worker are not found.
    pub notes: Option<PathBuf>,
    /// The only commands allowed: a name matches `argv[0]` as written, so a path must be listed as a path.
    pub allow: Option<Vec<String>>,
    /// Between SIGTERM and SIGKILL.
    pub kill_grace: Duration,
    /// What the kernel allows each process.
    pub limits: ProcessLimits,
    /// Where commands may begin, and whose files are reported. It bounds what the worker does for a workflow; what a command
    /// opens by itself is bounded by the user it runs as.
    pub files: FileConfig,
}

/// Limits of the kernel for every process of a group (Linux only). Core dumps are always off.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ProcessLimits {
    /// Bytes of address space of one process.
    pub address_space: Option<u64>,
    /// Seconds of processor time of one process.
    pub cpu_seconds: Option<u64>,
    /// Bytes of one file that is written.
    pub file_size: Option<u64>,
    /// Open files of one process.
    pub open_files: Option<u64>,
}

impl Default for ProcessConfig {
    fn default() -> Self {
        ProcessConfig {
            notes: None,
            allow: None,
            kill_grace: Duration::from_secs(2),
            limits: ProcessLimits::default(),
            files: FileConfig::default(),
        }
    }
}

#[cfg(test)]
mod tests;
