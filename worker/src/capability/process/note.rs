//! Notes of running process groups, so that a worker that was killed leaves no process behind.
//!
//! Invariant: a note is durable before its command is executed and gone after its group is; a group is killed only if
//! it is really ours: the leader's start time fits the note, or a process carries the note's marker in its environment.
//! A process id alone proves nothing, since ids are used again. Notes are no part of the log: losing one is harmless.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use serde::{Deserialize, Serialize};

use super::{ENV_MARKER, cgroup};
use crate::capability::durable::{private_dir, private_file};

/// What is known of a running group.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessNote {
    pub pid: i32,
    pub pgid: i32,
    /// Field 22 of `/proc/<pid>/stat`: with the boot id it makes the process id unique.
    pub start_time: u64,
    pub boot_id: String,
    pub idempotency_key: String,
    pub attempt: u32,
    pub marker: String,
    pub command: String,
    /// The control group that holds nothing else.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cgroup: Option<PathBuf>,
}

/// What became of a note found at start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reaped {
    pub note: ProcessNote,
    /// How many processes were killed; none if all had ended.
    pub killed: usize,
}

impl ProcessNote {
    pub(super) fn path(&self, dir: &Path) -> PathBuf {
        dir.join(format!("{}.json", self.pid))
    }

    /// Writes the note durably: file and directory are synced.
    pub(super) fn write(&self, dir: &Path) -> io::Result<()> {
        private_dir(dir)?;
        let mut file = private_file().write(true).truncate(true).open(self.path(dir))?;
        let written = file.write_all(&serde_json::to_vec(self)?).and_then(|()| file.sync_all());
        // Half a note is none, and takes room.
        written.and_then(|()| File::open(dir)?.sync_all()).inspect_err(|_| self.remove(dir))
    }

    pub(super) fn remove(&self, dir: &Path) {
        // A note that stays is looked at again at the next start and found to be dead.
        let _ = fs::remove_file(self.path(dir));
    }

    /// Kills every process of the group, and those that left it but carry the marker, if the group is ours.
    pub(super) fn kill(&self) -> usize {
        if boot_id() != self.boot_id {
            return 0;
        }
        let members: Vec<Stat> = running()
            .filter(|stat| stat.pgrp == self.pgid || marker_of(stat.pid).as_deref() == Some(&self.marker))
            .collect();
        let leader_is_ours = members.iter().any(|stat| stat.pid == self.pid && stat.start_time == self.start_time);
        let ours = |stat: &Stat| marker_of(stat.pid).as_deref() == Some(&self.marker);
        let group_is_ours = leader_is_ours || members.iter().any(|stat| stat.pgrp == self.pgid && ours(stat));
        let doomed: Vec<&Stat> =
            members.iter().filter(|stat| (group_is_ours && stat.pgrp == self.pgid) || ours(stat)).collect();
        if group_is_ours && let Some(group) = Pid::from_raw(self.pgid) {
            let _ = kill_process_group(group, Signal::KILL);
        }
        for pid in doomed.iter().filter_map(|stat| Pid::from_raw(stat.pid)) {
            let _ = kill_process(pid, Signal::KILL);
        }
        doomed.len()
    }
}

/// Kills what an earlier worker on this data directory left behind, and removes its notes. For the worker's start,
/// before any activity runs.
///
/// Fails only when the directory cannot be read; a note that cannot be read is removed, since it was cut by a crash
/// before its command began.
pub fn reap_orphans(dir: &Path) -> io::Result<Vec<Reaped>> {
    let entries = match fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(why) if why.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(why) => return Err(why),
    };
    let mut reaped = Vec::new();
    for entry in entries {
        let path = entry?.path();
        if path.extension().is_none_or(|extension| extension != "json") {
            continue;
        }
        if let Ok(note) = serde_json::from_slice::<ProcessNote>(&fs::read(&path)?) {
            let killed = note.kill();
            if let Some(group) = note.cgroup.as_ref().filter(|_| boot_id() == note.boot_id) {
                cgroup::sweep(group);
            }
            reaped.push(Reaped { note, killed });
        }
        fs::remove_file(&path)?;
    }
    reaped.sort_by_key(|reaped| reaped.note.pid);
    Ok(reaped)
}

/// The line of `/proc/<pid>/stat` that matters here.
#[derive(Debug, Clone, Copy)]
pub(super) struct Stat {
    pub(super) pid: i32,
    pub(super) parent: i32,
    pub(super) pgrp: i32,
    pub(super) start_time: u64,
}

/// Nothing if the process is gone or a zombie, or where there is no `/proc`.
pub(super) fn stat_of(pid: i32) -> Option<Stat> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The command name is in brackets and may hold anything, brackets included: what counts comes after the last one.
    let mut fields = text.rsplit_once(')')?.1.split_ascii_whitespace();
    let state = fields.next()?;
    let parent = fields.next()?.parse().ok()?;
    let pgrp = fields.next()?.parse().ok()?;
    let start_time = fields.nth(16)?.parse().ok()?;
    (!matches!(state, "Z" | "X")).then_some(Stat { pid, parent, pgrp, start_time })
}

pub(super) fn running() -> impl Iterator<Item = Stat> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| stat_of(entry.file_name().to_str()?.parse().ok()?))
}

fn marker_of(pid: i32) -> Option<String> {
    let environment = fs::read(format!("/proc/{pid}/environ")).ok()?;
    let marker = environment.split(|byte| *byte == 0).find_map(|entry| {
        entry.strip_prefix(ENV_MARKER.as_bytes()).and_then(|rest| rest.strip_prefix(b"=")).map(<[u8]>::to_vec)
    })?;
    String::from_utf8(marker).ok()
}

/// Changes at every boot, after which process ids mean nothing.
pub(super) fn boot_id() -> String {
    fs::read_to_string("/proc/sys/kernel/random/boot_id").map_or_else(|_| String::new(), |id| id.trim().to_owned())
}
