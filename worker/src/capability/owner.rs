//! What the worker's owner allows its capabilities, as the configuration says it (G36, G37).
//!
//! Invariant: it only narrows or names; what a guard means is decided by the capability that it is handed to. What is
//! absent leaves the default of that capability.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use bosun_engine::{Namespace, PerSecond, QueueLimits, Retention, TaskQueue};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::CapabilityConfig;
use super::process::ProcessLimits;
use crate::notify::rules::channel::Notify;

/// The guards of a worker.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Guards {
    pub process: ProcessGuards,
    pub http: HttpGuards,
    pub file: FileGuards,
    /// Bytes that loaded runs and waiting requests may take [default: a quarter of what there is].
    pub memory: Option<usize>,
    #[serde(skip)]
    pub store: StorePolicy,
    /// Whom the worker tells what.
    #[serde(skip)]
    pub notify: Notify,
    #[serde(skip)]
    pub queues: QueuePolicy,
}

/// What the owner allows of task queues.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct QueuePolicy {
    pub limits: BTreeMap<TaskQueue, QueueLimits>,
    /// How many attempts may start in a second, over all queues.
    pub per_second: Option<PerSecond>,
}

impl QueuePolicy {
    /// Reads `QUEUE=5`, attempts of a queue that run at once, and `QUEUE=10/s`, attempts of it that start in a second.
    ///
    /// # Errors
    /// The first that cannot be read.
    pub fn of(limits: &[String], per_second: Option<&str>) -> Result<QueuePolicy, String> {
        let per_second = per_second.map(str::parse).transpose()?;
        let mut policy = QueuePolicy { limits: BTreeMap::new(), per_second };
        for text in limits {
            let wrong = || format!("{text:?} is no limit like mail=5 (at once) or mail=10/s (in a second)");
            let (name, limit) = text.rsplit_once('=').ok_or_else(wrong)?;
            let queue = TaskQueue::new(name).map_err(|why| why.to_string())?;
            let limits = policy.limits.entry(queue).or_default();
            match limit.strip_suffix("/s") {
                Some(rate) => limits.max_activities_per_second = Some(rate.parse()?),
                None => limits.max_concurrent_activities = Some(limit.parse().map_err(|_| wrong())?),
            }
        }
        Ok(policy)
    }
}

/// What the owner says of the store.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StorePolicy {
    /// Damage is isolated at the start, instead of refusing it.
    pub isolate: bool,
    pub retention: Retention,
}

impl StorePolicy {
    /// Reads how long closed runs are kept: `30d` or `forever` for every namespace, `NAMESPACE=30d` for one.
    ///
    /// # Errors
    /// The first that cannot be read.
    pub fn retention_of(texts: &[String], trust_clock: bool) -> Result<Retention, String> {
        let mut retention = Retention { trust_clock, ..Retention::default() };
        for text in texts {
            match text.split_once('=') {
                Some((name, keep)) => {
                    let namespace = Namespace::new(name).map_err(|why| why.to_string())?;
                    retention.namespaces.insert(namespace, keep_of(keep)?);
                }
                None => retention.default = keep_of(text)?,
            }
        }
        Ok(retention)
    }
}

fn keep_of(text: &str) -> Result<Option<Duration>, String> {
    let text = text.trim();
    if text == "forever" {
        return Ok(None);
    }
    let wrong = || format!("{text:?} is not how long runs are kept, like 30d, 12h, dev=1d or forever");
    let unit = text.find(|c: char| !c.is_ascii_digit()).ok_or_else(wrong)?;
    let number: u64 = text[..unit].parse().map_err(|_| wrong())?;
    if number == 0 {
        return Err(format!("{text:?} would remove every run as it ends; the least is 1s"));
    }
    let seconds = match text[unit..].trim() {
        "s" => 1,
        "m" => 60,
        "h" => 3_600,
        "d" => 86_400,
        "w" => 7 * 86_400,
        _ => return Err(wrong()),
    };
    number.checked_mul(seconds).map(|seconds| Some(Duration::from_secs(seconds))).ok_or_else(wrong)
}

/// Which commands may run, and with how much.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ProcessGuards {
    /// The only commands allowed: a name matches the first word as written, so a path must be listed as a path.
    pub allow: Option<Vec<String>>,
    /// Between SIGTERM and SIGKILL.
    pub kill_grace_ms: Option<u64>,
    /// Bytes of address space of one process.
    pub address_space: Option<u64>,
    /// Seconds of processor time of one process.
    pub cpu_seconds: Option<u64>,
    /// Bytes of one file that is written.
    pub file_size: Option<u64>,
    pub open_files: Option<u64>,
}

/// Which addresses may be reached, and where headers may take secrets from.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct HttpGuards {
    /// Hosts (names or addresses, without port) that may be reached wherever they are, private addresses included.
    pub allow_hosts: Vec<String>,
    /// Every address may be reached.
    pub allow_private: bool,
    /// The only variables that headers may take secrets from.
    pub secret_env: Option<Vec<String>>,
    /// The only directories that headers may take secrets from.
    pub secret_dirs: Option<Vec<PathBuf>>,
}

/// Which directories files may lie in.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct FileGuards {
    /// The only directories that a root may be, or be in.
    pub roots: Option<Vec<PathBuf>>,
}

impl Guards {
    /// Hands each guard to its capability.
    pub fn apply(&self, config: &mut CapabilityConfig) {
        let ProcessGuards { allow, kill_grace_ms, address_space, cpu_seconds, file_size, open_files } = &self.process;
        config.process.allow.clone_from(allow);
        if let Some(grace) = kill_grace_ms {
            config.process.kill_grace = Duration::from_millis(*grace);
        }
        config.process.limits = ProcessLimits {
            address_space: *address_space,
            cpu_seconds: *cpu_seconds,
            file_size: *file_size,
            open_files: *open_files,
        };
        let HttpGuards { allow_hosts, allow_private, secret_env, secret_dirs } = &self.http;
        config.http.allow_hosts.clone_from(allow_hosts);
        config.http.allow_private = *allow_private;
        config.http.secret_env.clone_from(secret_env);
        config.http.secret_dirs.clone_from(secret_dirs);
        config.file.roots.clone_from(&self.file.roots);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_of_queues_are_read_and_put_together() {
        let read = |texts: &[&str]| {
            let texts: Vec<String> = texts.iter().map(|text| (*text).to_owned()).collect();
            QueuePolicy::of(&texts, Some("0.5"))
        };
        let policy = read(&["mail=5", "mail=10/s", "a=b=2/s"]).unwrap();
        assert_eq!(policy.per_second.unwrap().to_string(), "0.5");
        let of = |name: &str| policy.limits[&TaskQueue::of(name)];
        assert_eq!(of("mail").max_concurrent_activities, Some(5));
        assert_eq!(of("mail").max_activities_per_second.unwrap().to_string(), "10");
        assert_eq!(of("a=b").max_concurrent_activities, None);
        for wrong in ["mail", "mail=", "mail=-1", "mail=5/m", "=5", "mail=0/s"] {
            assert!(read(&[wrong]).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_retention_is_read_as_it_is_written() {
        let read = |texts: &[&str]| {
            let texts: Vec<String> = texts.iter().map(|text| (*text).to_owned()).collect();
            StorePolicy::retention_of(&texts, false)
        };
        assert!(!read(&[]).unwrap().is_set());
        let retention = read(&["30d", "dev=12h", "audit=forever"]).unwrap();
        let keep = |name: &str| retention.keep(&Namespace::new(name).unwrap()).map(|keep| keep.as_secs() / 3_600);
        assert_eq!([keep("default"), keep("dev"), keep("audit")], [Some(720), Some(12), None]);
        for wrong in ["30", "x", "1y", "=1d", "99999999999999999999d", "-1d"] {
            assert!(read(&[wrong]).is_err(), "{wrong}");
        }
    }
}
