//! The memory budget of a worker (G24): how much loaded runs and waiting requests may take together.
//!
//! Invariant: a share of what the machine, or the control group of the process, has, unless the owner says otherwise. What
//! a loaded run takes is estimated by its history, which holds every payload that its state can, and counted twice: once for
//! the payloads, once for what the code has made of them. A request is estimated by its payload.

use std::path::{Component, Path, PathBuf};

/// What a run costs beside its history.
const RUN_BYTES: usize = 4 * 1024;
/// Code that decodes its input holds it a second time; the half of the budget that is nobody's has room for a third.
const COPIES: usize = 2;
/// Where nothing can be found out.
const FALLBACK: usize = 1024 * 1024 * 1024;
/// The log, the runtime and the buffers of activities have the rest.
const SHARE: usize = 4;

/// How a budget is divided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct MemoryBudget {
    /// Bytes of the loaded runs of one shard.
    pub(super) runs: usize,
    /// Bytes of the requests that wait for one shard.
    pub(super) requests: usize,
}

impl MemoryBudget {
    /// Half of it is for runs and an eighth for requests, the same for each shard.
    pub(super) fn of(memory: usize, shards: usize) -> MemoryBudget {
        MemoryBudget { runs: memory / 2 / shards.max(1), requests: (memory / 8 / shards.max(1)).max(4 * 1024 * 1024) }
    }
}

/// An estimate of what a loaded run takes.
pub(super) fn bytes_of_run(history_bytes: u64) -> usize {
    RUN_BYTES.saturating_add(usize::try_from(history_bytes).unwrap_or(usize::MAX).saturating_mul(COPIES))
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

/// The limit of the control group of this process, or of one above it, of either version.
fn group() -> Option<u64> {
    let groups = std::fs::read_to_string("/proc/self/cgroup").ok()?;
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").ok()?;
    limit_of(&groups, &mounts, &|path| std::fs::read_to_string(path).ok())
}

/// The least of all limits on the way from the group of this process up to the top of what is mounted here: a limit of a
/// group bounds all that is below it. `groups` is `/proc/self/cgroup`, `mounts` is `/proc/self/mountinfo`.
fn limit_of(groups: &str, mounts: &str, read: &dyn Fn(&Path) -> Option<String>) -> Option<u64> {
    let limit = |line: &str| {
        let OwnGroup { top, below, is_new } = own_group(line, mounts)?;
        let file = if is_new { "memory.max" } else { "memory.limit_in_bytes" };
        let own = |place: &Path| read(&top.join(place).join(file))?.trim().parse::<u64>().ok();
        below.ancestors().filter_map(own).min()
    };
    groups.lines().filter_map(limit).min()
}

/// Where the kernel tells of processes of the control group of this one, and of no group below, that it has killed for want of
/// memory. A group that is made again has another directory.
pub(super) fn kills_of_group() -> Option<PathBuf> {
    let groups = std::fs::read_to_string("/proc/self/cgroup").ok()?;
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").ok()?;
    let file = |line: &str| {
        let OwnGroup { top, below, is_new } = own_group(line, &mounts)?;
        let file = top.join(below).join(if is_new { "memory.events.local" } else { "memory.oom_control" });
        file.is_file().then_some(file)
    };
    groups.lines().find_map(file)
}

/// A control group that has to do with memory.
struct OwnGroup {
    /// Where the groups are mounted.
    top: PathBuf,
    /// The group below that.
    below: PathBuf,
    is_new: bool,
}

/// What a line of `/proc/self/cgroup` tells, if it is of a group with memory.
fn own_group(line: &str, mounts: &str) -> Option<OwnGroup> {
    let mut parts = line.splitn(3, ':').skip(1);
    let (controllers, group) = (parts.next()?, Path::new(parts.next()?));
    let kind = match controllers {
        "" => "cgroup2",
        all if all.split(',').any(|one| one == "memory") => "cgroup",
        _ => return None,
    };
    let (root, top) = mounts.lines().find_map(|line| mount_of(line, kind))?;
    // In a container the group may be told as the machine sees it, or as seen from a place above what is mounted.
    let below = group.strip_prefix(&root).unwrap_or(Path::new("")).components().filter(is_name).collect();
    Some(OwnGroup { top, below, is_new: kind == "cgroup2" })
}

fn is_name(part: &Component<'_>) -> bool {
    matches!(part, Component::Normal(_))
}

/// The root and the place of a mount of control groups with memory, from a line of `mountinfo`.
fn mount_of(line: &str, kind: &str) -> Option<(PathBuf, PathBuf)> {
    let (mount, system) = line.split_once(" - ")?;
    let mut mount = mount.split(' ').skip(3);
    let (root, place) = (mount.next()?, mount.next()?);
    let mut system = system.split(' ');
    let (own, _, options) = (system.next()?, system.next()?, system.next()?);
    let has_memory = kind == "cgroup2" || options.split(',').any(|option| option == "memory");
    let path = |text: &str| PathBuf::from(text.replace("\\040", " "));
    (own == kind && has_memory).then(|| (path(root), path(place)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_is_a_share_of_what_there_is() {
        let machine = machine().map_or(usize::MAX, |bytes| usize::try_from(bytes).unwrap());
        assert!((1024 * 1024..=machine / SHARE).contains(&default_memory()));
        assert_eq!(MemoryBudget::of(320 << 20, 2).runs, 80 << 20);
        assert!(bytes_of_run(1_900_000) > 3_800_000);
    }
    const MOUNTS: &str = "\
31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755
32 31 0:29 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu
35 31 0:32 / /sys/fs/cgroup/memory rw,relatime shared:9 - cgroup cgroup rw,memory
41 31 0:38 / /sys/fs/cgroup/uni\\040fied rw,relatime - cgroup2 cgroup2 rw
";

    /// G24: a limit anywhere above counts, wherever the groups are mounted, in either version.
    #[test]
    fn the_least_limit_on_the_way_up_counts() {
        let limit = |groups: &str, mounts: &str, files: &[(&str, &str)]| {
            let read = |path: &Path| {
                let found = files.iter().find(|(name, _)| Path::new(name) == path);
                found.map(|(_, text)| (*text).to_owned())
            };
            limit_of(groups, mounts, &read)
        };
        let v2 = "30 23 0:27 / /sys/fs/cgroup rw - cgroup2 cgroup rw,nsdelegate\n";
        let nested = "0::/user.slice/user-1000.slice/worker.service\n";
        let own = ("/sys/fs/cgroup/user.slice/user-1000.slice/worker.service/memory.max", "800\n");
        let above = ("/sys/fs/cgroup/user.slice/user-1000.slice/memory.max", "300\n");
        let free = ("/sys/fs/cgroup/user.slice/memory.max", "max\n");
        assert_eq!(limit(nested, v2, &[own, above, free]), Some(300));
        assert_eq!(limit(nested, v2, &[own, free]), Some(800));
        assert_eq!(limit(nested, v2, &[free]), None);
        assert_eq!(
            limit("0::/\n", v2, &[("/sys/fs/cgroup/memory.max", "77\n")]),
            Some(77),
            "in a namespace of its own"
        );
        // A container that sees the machine's path, of which only its own part is mounted.
        let bound = "30 23 0:27 /docker/abc /sys/fs/cgroup ro - cgroup2 cgroup rw\n";
        let part = [("/sys/fs/cgroup/memory.max", "500"), ("/sys/fs/cgroup/in/memory.max", "400")];
        assert_eq!(limit("0::/docker/abc\n", bound, &part), Some(500));
        assert_eq!(limit("0::/docker/abc/in\n", bound, &part), Some(400));
        assert_eq!(limit("0::/../outside\n", v2, &[("/sys/fs/cgroup/memory.max", "9")]), Some(9));
        let both = "4:memory:/a/b\n1:cpu:/x\n0::/c\n";
        let old = ("/sys/fs/cgroup/memory/a/memory.limit_in_bytes", "640");
        let new = ("/sys/fs/cgroup/uni fied/c/memory.max", "650");
        assert_eq!(limit(both, MOUNTS, &[old, new]), Some(640));
        assert_eq!(limit(both, MOUNTS, &[new]), Some(650));
    }
}
