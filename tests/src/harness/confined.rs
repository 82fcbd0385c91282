//! Processes confined to an amount of memory, by a control group of their own.
//!
//! Invariant: the group is made for one process tree and removed on drop; only what joins it is confined. Both versions
//! of control groups are known; where none may be made, [`MemoryGroup::new`] says why.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// A control group with a limit of memory.
#[derive(Debug)]
pub struct MemoryGroup {
    dir: PathBuf,
    is_v1: bool,
}

impl MemoryGroup {
    /// A group whose processes may hold so many bytes together.
    pub fn new(bytes: u64) -> io::Result<MemoryGroup> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("bosun-test-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let (root, limit, is_v1) = if Path::new("/sys/fs/cgroup/memory/memory.limit_in_bytes").exists() {
            ("/sys/fs/cgroup/memory", "memory.limit_in_bytes", true)
        } else {
            ("/sys/fs/cgroup", "memory.max", false)
        };
        let dir = Path::new(root).join(name);
        fs::create_dir(&dir)?;
        let group = MemoryGroup { dir, is_v1 };
        fs::write(group.dir.join(limit), bytes.to_string())?;
        Ok(group)
    }

    /// A wrapper for a program that joins the group before it becomes the program.
    pub fn wrapper(&self) -> Vec<OsString> {
        let joins = "echo $$ > \"$0\" && exec \"$@\"";
        vec!["sh".into(), "-c".into(), joins.into(), self.dir.join("cgroup.procs").into()]
    }

    /// Whether this process is in the group, and how many bytes the kernel lets those in it hold.
    pub fn confines(&self, pid: u32) -> io::Result<Option<u64>> {
        let members = fs::read_to_string(self.dir.join("cgroup.procs"))?;
        let limit = if self.is_v1 { "memory.limit_in_bytes" } else { "memory.max" };
        let limit = fs::read_to_string(self.dir.join(limit))?.trim().parse().ok();
        Ok(limit.filter(|_| members.lines().any(|member| member.parse() == Ok(pid))))
    }

    /// How often the kernel has killed one of its processes for want of memory.
    pub fn kills(&self) -> io::Result<u64> {
        let file = if self.is_v1 { "memory.oom_control" } else { "memory.events" };
        let text = fs::read_to_string(self.dir.join(file))?;
        let kills = text.lines().find_map(|line| line.strip_prefix("oom_kill "));
        kills.and_then(|count| count.trim().parse().ok()).ok_or_else(|| io::Error::other(format!("{file}: {text}")))
    }
}

impl Drop for MemoryGroup {
    fn drop(&mut self) {
        // Empty once its processes have ended; a group that stays is no harm.
        let _ = fs::remove_dir(&self.dir);
    }
}

/// What a process holds that cannot be read again from a file, in KiB.
pub fn held_kib(pid: u32) -> io::Result<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"));
    let number = line.and_then(|line| line.trim().strip_suffix("kB")).and_then(|text| text.trim().parse().ok());
    number.ok_or_else(|| io::Error::other(format!("/proc/{pid}/status has no RssAnon: {status}")))
}
