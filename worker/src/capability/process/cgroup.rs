//! A control group (cgroup v2) for each command, where one may be made: whatever the command starts stays in it, whatever it
//! does to its session, its parents or its guard (G37).
//!
//! Invariant: a group is made below that of this process and holds nothing but one command; all of it is killed in one write.
//! Nothing depends on it: where none may be made, guard and marker do what they can. It limits nothing.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::path::{Component, Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::note::stat_of;

/// Every process of a group is gone so soon after it was killed, but one that waits for a disk.
const GONE_WITHIN: Duration = Duration::from_secs(2);

/// Where groups are made: the group of this process, if it may have others below it. Found out once, by making one.
pub(super) fn parent() -> Option<&'static Path> {
    static PARENT: OnceLock<Option<PathBuf>> = OnceLock::new();
    let find = || {
        let own = own().filter(|own| may_make(own))?;
        forget_dead(&own);
        Some(own)
    };
    PARENT.get_or_init(find).as_deref()
}

/// Removes the empty groups of workers that were killed before their command began.
fn forget_dead(own: &Path) {
    for entry in fs::read_dir(own).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let pid = name.to_str().and_then(|name| name.strip_prefix("bosun-")?.split('-').next()?.parse().ok());
        if pid.is_some_and(|pid| stat_of(pid).is_none()) {
            // One that is not empty stays: its worker may be one that is not seen from here.
            let _ = fs::remove_dir(entry.path());
        }
    }
}

fn own() -> Option<PathBuf> {
    let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
    let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
    place_in(&groups, &mounts)
}

/// The directory of the group of version 2 that `/proc/self/cgroup` tells, as `/proc/self/mountinfo` has it mounted.
fn place_in(groups: &str, mounts: &str) -> Option<PathBuf> {
    let group = Path::new(groups.lines().find_map(|line| line.strip_prefix("0::"))?);
    let mount = mounts.lines().find(|line| line.split_once(" - ").is_some_and(|(_, fs)| fs.starts_with("cgroup2 ")))?;
    let mut fields = mount.split(' ').skip(3);
    let (root, top) = (fields.next()?, fields.next()?);
    let below = group.strip_prefix(root).ok()?;
    // A group outside of what is mounted here cannot be named.
    below.components().all(|part| matches!(part, Component::Normal(_))).then(|| Path::new(top).join(below))
}

/// Whether a process may be put into a group below this one: it takes the right to make it, and to the list of this one.
fn may_make(own: &Path) -> bool {
    let probe = own.join(name(u64::MAX));
    if fs::create_dir(&probe).is_err() {
        return false;
    }
    let may = [own.join("cgroup.procs"), probe.join("cgroup.procs"), probe.join("cgroup.kill")]
        .iter()
        .all(|file| File::options().write(true).open(file).is_ok());
    fs::remove_dir(&probe).is_ok() && may
}

/// Unique among what is on this machine: the worker, when it began, and a number.
fn name(number: u64) -> String {
    let pid = std::process::id();
    let began = stat_of(pid.cast_signed()).map_or(0, |stat| stat.start_time);
    format!("bosun-{pid}-{began}-{number}")
}

/// Makes a group for a command.
pub(super) fn make() -> Option<PathBuf> {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let group = parent()?.join(name(NUMBER.fetch_add(1, Ordering::Relaxed)));
    fs::create_dir(&group).ok().map(|()| group)
}

/// The list that a process enters by writing `0` into it.
pub(super) fn door(group: &Path) -> io::Result<File> {
    File::options().write(true).open(group.join("cgroup.procs"))
}

/// Whether a process is in the group, or in one that the command has made below it.
pub(super) fn has_any(group: &Path) -> bool {
    fs::read_to_string(group.join("cgroup.events")).is_ok_and(|events| events.lines().any(|line| line == "populated 1"))
}

/// Kills all that is in it. It is gone already if there is nothing to kill.
pub(super) fn kill(group: &Path) {
    let _ = fs::write(group.join("cgroup.kill"), "1");
}

/// Removes an empty group, with those that the command has made below it.
pub(super) fn remove(group: &Path) -> io::Result<()> {
    for below in fs::read_dir(group)?.flatten().filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())) {
        remove(&below.path())?;
    }
    fs::remove_dir(group)
}

/// Kills what is left in a group of ours and removes it, unless that was done. Whether there was anything.
pub(super) fn sweep(group: &Path) -> bool {
    let is_ours = group.file_name().and_then(OsStr::to_str).is_some_and(|name| name.starts_with("bosun-"));
    if !is_ours || !group.exists() {
        return false;
    }
    let had_any = has_any(group);
    kill(group);
    if remove(group).is_err() {
        // A killed process stays in it until it has ended.
        let group = group.to_owned();
        let waiting = std::thread::Builder::new().spawn(move || {
            for _ in 0..GONE_WITHIN.as_millis() / 10 {
                std::thread::sleep(Duration::from_millis(10));
                if remove(&group).is_ok() || !group.exists() {
                    return;
                }
            }
            tracing::warn!(group = %group.display(), "a control group of a command cannot be removed");
        });
        if let Err(why) = waiting {
            tracing::warn!(%why, "nobody waits to remove a control group of a command");
        }
    }
    had_any
}

#[cfg(test)]
mod tests {
    use super::*;

    const UNIFIED: &str = "31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw\n41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";

    #[test]
    fn the_group_of_this_process_is_found_where_it_is_mounted() {
        let place = |groups: &str, mounts: &str| place_in(groups, mounts).map(|place| place.display().to_string());
        assert_eq!(place("4:memory:/x\n0::/\n", UNIFIED).as_deref(), Some("/sys/fs/cgroup/unified/"));
        let nested = "0::/user.slice/user-1000.slice/app.service\n";
        let mounted = "30 23 0:27 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n";
        assert_eq!(place(nested, mounted).as_deref(), Some("/sys/fs/cgroup/user.slice/user-1000.slice/app.service"));
        let part = "30 23 0:27 /docker/abc /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n";
        assert_eq!(place("0::/docker/abc/in\n", part).as_deref(), Some("/sys/fs/cgroup/in"));
        assert_eq!(place("0::/elsewhere\n", part), None);
        assert_eq!(place("0::/../above\n", mounted), None);
        assert_eq!(place("4:memory:/x\n", mounted), None);
    }

    /// Takes a mounted cgroup v2 and the right to it, which root has.
    #[test]
    fn a_group_is_emptied_in_one_write_whatever_is_in_it() {
        let Some(group) = make() else {
            return eprintln!("SKIPPED: no control group of version 2 may be made here");
        };
        let inner = group.join("made-by-the-command");
        fs::create_dir(&inner).unwrap();
        let script = format!("echo 0 > {}/cgroup.procs; setsid sleep 60 & sleep 60", inner.display());
        let mut child = std::process::Command::new("sh").args(["-c", &script]).spawn().unwrap();
        let until = |what: &dyn Fn() -> bool| {
            (0..500).any(|_| {
                std::thread::sleep(Duration::from_millis(10));
                what()
            })
        };
        assert!(until(&|| has_any(&group)), "nothing has entered it");
        assert!(sweep(&group));
        child.wait().unwrap();
        assert!(until(&|| !group.exists()), "it is still there");
        assert!(!sweep(&group) && !sweep(Path::new("/sys/fs/cgroup")), "nothing else is touched");
    }
}
