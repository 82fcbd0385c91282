//! The memory budget of a worker (engine.md G24): how much loaded runs and waiting requests may take together.
//!
//! Invariant: a share of what the machine, or the control group of the process, has, unless the owner says otherwise. What
//! a loaded run takes is estimated by its history, which holds every payload that its state can; a request by its payload.

use std::path::PathBuf;

/// What a run costs beside its history.
const RUN_BYTES: usize = 4 * 1024;
/// Where nothing can be found out.
const FALLBACK: usize = 1024 * 1024 * 1024;
/// The log, the runtime and the buffers of activities have the rest.
const SHARE: usize = 4;

/// How a budget is divided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Budget {
    /// Bytes of the loaded runs of one shard.
    pub(super) runs: usize,
    /// Bytes of the requests that wait for one shard.
    pub(super) requests: usize,
}

impl Budget {
    /// Half of it is for runs and an eighth for requests, the same for each shard.
    pub(super) fn of(memory: usize, shards: usize) -> Budget {
        Budget { runs: memory / 2 / shards.max(1), requests: (memory / 8 / shards.max(1)).max(4 * 1024 * 1024) }
    }
}

/// An estimate of what a loaded run takes.
pub(super) fn bytes_of_run(history_bytes: u64) -> usize {
    RUN_BYTES.saturating_add(usize::try_from(history_bytes).unwrap_or(usize::MAX))
}

/// A quarter of what there is.
pub(super) fn default_memory() -> usize {
    let there = [machine(), group()].into_iter().flatten().min();
    there.map_or(FALLBACK, |bytes| usize::try_from(bytes).unwrap_or(usize::MAX)) / SHARE
}

fn machine() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    Some(line.trim().trim_end_matches("kB").trim().parse::<u64>().ok()?.saturating_mul(1024))
}

/// The limit of the control group of this process, of either version.
fn group() -> Option<u64> {
    let groups = std::fs::read_to_string("/proc/self/cgroup").ok()?;
    let limit = |line: &str| {
        let mut parts = line.splitn(3, ':').skip(1);
        let (controllers, path) = (parts.next()?, parts.next()?.trim_start_matches('/'));
        let root = PathBuf::from("/sys/fs/cgroup");
        let file = match controllers {
            "" => root.join(path).join("memory.max"),
            one if one.split(',').any(|one| one == "memory") => {
                root.join("memory").join(path).join("memory.limit_in_bytes")
            }
            _ => return None,
        };
        std::fs::read_to_string(file).ok()?.trim().parse::<u64>().ok()
    };
    groups.lines().filter_map(limit).min()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_is_a_share_of_what_there_is() {
        let machine = machine().map_or(usize::MAX, |bytes| usize::try_from(bytes).unwrap());
        assert!((1024 * 1024..=machine / SHARE).contains(&default_memory()));
        assert_eq!(Budget::of(320 << 20, 2).runs, 80 << 20);
        assert!(bytes_of_run(1_900_000) > 1_900_000);
    }
}
