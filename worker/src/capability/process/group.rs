//! Starting a command as the leader of a process group, noted before it is executed, and ending the whole group.
//!
//! Invariant: the child waits between fork and exec until its note is durable, and dies with the worker (parent death
//! signal); a [`ProcessGroup`] that is dropped kills its group. It reads no output and judges no exit code.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::process::CommandExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, mpsc};
use std::time::Duration;

use rustix::process::{Pid, Resource, Rlimit, Signal, kill_process_group, setrlimit, test_kill_process_group};
use tokio::process::{Child, Command};
use tokio::sync::oneshot;

use super::cgroup;
use super::guard::{self, ExecVerdict, Lifeline, guarded};
use super::note::{ProcessNote, boot_id, stat_of};
use super::{ENV_MARKER, ProcessConfig, ProcessLimits};

/// Who a group belongs to.
#[derive(Debug, Clone)]
pub(in crate::capability) struct Owner {
    pub(in crate::capability) idempotency_key: String,
    pub(in crate::capability) attempt: u32,
}

/// A running group and its note. Dropping it before [`ProcessGroup::end`] terminates the group in the background.
pub(in crate::capability) struct ProcessGroup {
    note: ProcessNote,
    dir: Option<PathBuf>,
    grace: Duration,
    /// To its guard, if it has one.
    lifeline: Mutex<Option<Lifeline>>,
    ended: bool,
}

/// Starts the command in a group of its own. Returns once it has been executed, or could not be.
pub(in crate::capability) async fn spawn(
    command: Command,
    owner: Owner,
    config: &ProcessConfig,
    feeds: bool,
) -> io::Result<(Child, ProcessGroup)> {
    let (answer, answered) = oneshot::channel();
    let runtime = tokio::runtime::Handle::current();
    let config = config.clone();
    let job: SpawnJob = Box::new(move || {
        let _entered = runtime.enter();
        let spawned = spawn_noted(command, owner, config, feeds);
        // The caller may be gone; then the group in the answer is dropped here, which kills it.
        let _ = answer.send(spawned);
    });
    // Neither says that the command cannot be started: it is tried again.
    let again = |why: &str| io::Error::new(io::ErrorKind::WouldBlock, why);
    spawner()?.send(job).map_err(|_| again("the thread that starts processes is gone"))?;
    answered.await.map_err(|_| again("starting the process panicked"))?
}

type SpawnJob = Box<dyn FnOnce() + Send>;

/// One thread starts all children and lives as long as the worker: the parent death signal of Linux is sent when the
/// *thread* that forked ends, and threads of the runtime come and go.
fn spawner() -> io::Result<&'static mpsc::Sender<SpawnJob>> {
    static SPAWNER: OnceLock<mpsc::Sender<SpawnJob>> = OnceLock::new();
    if let Some(spawner) = SPAWNER.get() {
        return Ok(spawner);
    }
    let (sender, jobs) = mpsc::channel::<SpawnJob>();
    let thread = std::thread::Builder::new().name("process-spawner".into());
    // A job that panics is that command's affair: whoever waits for it is told, and the next one is started all the same.
    thread.spawn(move || jobs.into_iter().for_each(|job| _ = catch_unwind(AssertUnwindSafe(job))))?;
    // Of two that begin at once, the one that nobody sends to ends at once.
    Ok(SPAWNER.get_or_init(|| sender))
}

/// Forks, notes the child durably, then lets it execute. The child writes its id into one pipe and waits at the other.
// long: the child, its note and its guard come to be together; each line is one step of that.
fn spawn_noted(
    mut command: Command,
    owner: Owner,
    config: ProcessConfig,
    feeds: bool,
) -> io::Result<(Child, ProcessGroup)> {
    let ProcessConfig { notes: dir, kill_grace: grace, limits, allow: _, files: _ } = config;
    let marker = marker(&owner);
    command.env(ENV_MARKER, &marker);
    let name = command.as_std().get_program().to_string_lossy().into_owned();
    let cgroup = guard::is_available().then(cgroup::make).flatten();
    let swept = CgroupCleanup(cgroup.clone());
    let (mut command, guard) = guarded(command, limits, cgroup.as_deref())?;
    command.process_group(0).stdin(if feeds { Stdio::piped() } else { Stdio::null() });
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    // The command is limited by its guard, which must not be.
    let limits = if guard.is_some() { ProcessLimits::default() } else { limits };
    let (ends, lifeline, executed) = guard.map_or_else(Default::default, |(a, b, c)| (Some(a), Some(b), Some(c)));
    let (child_id, mut tell_id) = io::pipe()?;
    let (mut wait, mut release) = io::pipe()?;
    let worker = std::process::id();
    let before_exec = move || {
        // A child has both ends of the pipe it waits at: without the signal it would wait for a worker that is gone, and hold
        // the lock of its directory. A guard asks for no more of it once it is there.
        die_with(worker)?;
        if let Some(ends) = &ends {
            ends.inherit()?;
        }
        tell_id.write_all(&std::process::id().to_ne_bytes())?;
        let mut verdict = [0];
        wait.read_exact(&mut verdict)?;
        if verdict[0] == GO { Ok(()) } else { Err(io::Error::from(io::ErrorKind::Interrupted)) }
    };
    install(command.as_std_mut(), before_exec);
    let noting = {
        let dir = dir.clone();
        // Where there is no thread for it, there is no process either: that passes.
        std::thread::Builder::new().spawn(move || -> io::Result<Option<ProcessNote>> {
            let Some(pid) = forked(child_id) else { return Ok(None) };
            let note = ProcessNote { cgroup, ..note_of(pid, &owner, marker, name) };
            let limited = limit(note.pid, limits);
            let written = limited.and_then(|()| dir.map_or(Ok(()), |dir| note.write(&dir)));
            release.write_all(&[if written.is_ok() { GO } else { STOP }])?;
            written.map(|()| Some(note))
        })?
    };
    let child = command.spawn();
    drop(command); // closes our end of the pipe the noting thread reads
    let noted = noting.join().map_err(|_| io::Error::other("noting the process panicked"))?;
    match (child, noted) {
        (Ok(child), Ok(Some(note))) => {
            let group = ProcessGroup { note, dir, grace, lifeline: Mutex::new(lifeline), ended: false };
            // A guard that could not execute the command ends by itself.
            let begun = executed.map_or(Ok(()), ExecVerdict::read).map(|()| (child, group));
            if begun.is_ok() {
                swept.not_now();
            }
            begun
        }
        (Err(_), Err(why)) => Err(io::Error::new(why.kind(), NotNoted(why))),
        (Err(why), Ok(note)) => {
            if let (Some(note), Some(dir)) = (note, dir) {
                note.remove(&dir);
            }
            Err(why)
        }
        (Ok(_), _) => Err(io::Error::other("the process started without its note")),
    }
}

/// What the system says stays known: whether it passes decides whether the command is tried again.
#[derive(Debug, thiserror::Error)]
#[error("cannot note the process: {0}")]
pub(super) struct NotNoted(pub(super) io::Error);

/// The control group of a command that has not begun: without one it is removed.
struct CgroupCleanup(Option<PathBuf>);

impl CgroupCleanup {
    fn not_now(mut self) {
        self.0 = None;
    }
}

impl Drop for CgroupCleanup {
    fn drop(&mut self) {
        self.0.iter().for_each(|group| _ = cgroup::sweep(group));
    }
}

/// The id of the child, or nothing if there was no fork.
fn forked(mut child_id: io::PipeReader) -> Option<u32> {
    let mut id = [0; 4];
    child_id.read_exact(&mut id).ok()?;
    Some(u32::from_ne_bytes(id))
}

/// A guard kills all that is below it within this time.
const GUARD_PATIENCE: Duration = Duration::from_secs(5);

const GO: u8 = b'g';
const STOP: u8 = b's';

#[expect(unsafe_code, reason = "the only way to run code between fork and exec")]
fn install(command: &mut std::process::Command, before_exec: impl FnMut() -> io::Result<()> + Send + Sync + 'static) {
    // SAFETY: between fork and exec only async-signal-safe calls are allowed. The closure makes bare system calls
    // (prctl, getppid, getpid, read, write on pipes) and allocates nothing: its errors are plain codes.
    unsafe {
        command.pre_exec(before_exec);
    }
}

/// Lets a command die with the guard that starts it, under these limits, and in the control group of this door.
pub(super) fn confine(command: &mut std::process::Command, limits: &[Option<u64>], door: Option<File>) {
    let guard = std::process::id();
    let all = [Resource::As, Resource::Cpu, Resource::Fsize, Resource::Nofile];
    let limits: Vec<(Resource, Option<u64>)> = all.into_iter().zip(limits.iter().copied()).collect();
    install(command, move || {
        die_with(guard)?;
        if let Some(door) = &door {
            // Where it does not open, the guard has the command all the same.
            let _ = (&mut &*door).write(b"0");
        }
        for (resource, limit) in limits.iter().filter(|(_, limit)| limit.is_some()) {
            setrlimit(*resource, Rlimit { current: *limit, maximum: *limit })?;
        }
        Ok(())
    });
}

/// Asks the kernel to kill this process when the spawner thread ends, that is, when the worker does. The worker may have
/// ended before the request: then the parent is another by now, no signal will come, and nothing is executed.
#[cfg(target_os = "linux")]
fn die_with(worker: u32) -> io::Result<()> {
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
    let parent = rustix::process::getppid().map_or(0, |parent| parent.as_raw_nonzero().get());
    if parent == worker.cast_signed() { Ok(()) } else { Err(io::Error::from(io::ErrorKind::BrokenPipe)) }
}

#[cfg(not(target_os = "linux"))]
fn die_with(_worker: u32) -> io::Result<()> {
    Ok(())
}

/// Sets the limits of a child that has not executed yet; its descendants inherit them.
#[cfg(target_os = "linux")]
fn limit(pid: i32, limits: ProcessLimits) -> io::Result<()> {
    use rustix::process::prlimit;
    let ProcessLimits { address_space, cpu_seconds, file_size, open_files } = limits;
    let all = [
        (Resource::Core, Some(0)),
        (Resource::As, address_space),
        (Resource::Cpu, cpu_seconds),
        (Resource::Fsize, file_size),
        (Resource::Nofile, open_files),
    ];
    for (resource, limit) in all.into_iter().filter_map(|(resource, limit)| Some((resource, limit?))) {
        prlimit(Pid::from_raw(pid), resource, Rlimit { current: Some(limit), maximum: Some(limit) })?;
    }
    Ok(())
}

#[cfg(not(target_os = "linux"))]
fn limit(_pid: i32, _limits: ProcessLimits) -> io::Result<()> {
    Ok(())
}

fn note_of(pid: u32, owner: &Owner, marker: String, command: String) -> ProcessNote {
    let pid = pid.cast_signed();
    ProcessNote {
        pid,
        pgid: pid,
        start_time: stat_of(pid).map_or(0, |stat| stat.start_time),
        boot_id: boot_id(),
        idempotency_key: owner.idempotency_key.clone(),
        attempt: owner.attempt,
        marker,
        command,
        cgroup: None,
    }
}

/// Unique among everything this machine runs: the activity, the attempt, the worker process and a counter.
fn marker(owner: &Owner) -> String {
    static COUNTER: AtomicU64 = AtomicU64::new(0);
    let count = COUNTER.fetch_add(1, Ordering::Relaxed);
    format!("{}-{}-{}-{count}", owner.idempotency_key, owner.attempt, std::process::id())
}

impl ProcessGroup {
    fn id(&self) -> Option<Pid> {
        Pid::from_raw(self.note.pgid)
    }

    pub(super) fn is_alive(&self) -> bool {
        self.id().is_some_and(|group| test_kill_process_group(group).is_ok())
    }

    fn signal(&self, signal: Signal) {
        if let Some(lifeline) = &mut *self.lifeline.lock().unwrap_or_else(PoisonError::into_inner) {
            return lifeline.say(if signal == Signal::TERM { guard::TERM } else { guard::KILL });
        }
        // The group may be gone already, which is what is wanted.
        let _ = self.id().map(|group| kill_process_group(group, signal));
    }

    /// SIGTERM to the group, and SIGKILL to what is left of it after the grace. `child` is reaped.
    pub(in crate::capability) async fn terminate(&mut self, child: &mut Child) {
        self.signal(Signal::TERM);
        let ended = async {
            let _ = child.wait().await;
            while self.is_alive() {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        if tokio::time::timeout(self.grace, ended).await.is_err() {
            self.signal(Signal::KILL);
            if tokio::time::timeout(GUARD_PATIENCE, child.wait()).await.is_err() {
                let _ = self.id().map(|group| kill_process_group(group, Signal::KILL));
                let _ = child.wait().await;
            }
        }
    }

    /// Kills what the leader left behind, now.
    pub(super) fn kill_rest(&self) {
        if self.is_alive() {
            self.signal(Signal::KILL);
        }
    }

    /// The guard has done so, unless the command has killed it.
    fn sweep(&self) {
        if let Some(group) = &self.note.cgroup
            && cgroup::sweep(group)
        {
            tracing::warn!(
                command = self.note.command,
                "a command had ended its guard; what it left behind was killed"
            );
        }
    }

    /// A guard that was killed leaves what still has its marker.
    pub(super) fn guard_was_killed(&self) {
        self.note.kill();
    }

    /// The leader has been reaped: kills the rest and forgets the note.
    pub(in crate::capability) fn end(mut self) {
        self.kill_rest();
        self.ended = true;
        self.sweep();
        if self.lifeline.get_mut().unwrap_or_else(PoisonError::into_inner).is_none() {
            // Those that left the group are found by its marker.
            self.note.kill();
        }
        if let Some(dir) = &self.dir {
            self.note.remove(dir);
        }
    }
}

/// What is left of a group that nobody waits for.
#[derive(Clone)]
struct Rest {
    note: ProcessNote,
    dir: Option<PathBuf>,
    lifeline: Arc<Mutex<Option<Lifeline>>>,
}

impl Rest {
    fn kill(&self, guard_has: Duration) {
        if let Some(mut lifeline) = self.lifeline.lock().unwrap_or_else(PoisonError::into_inner).take() {
            lifeline.say(guard::KILL);
            std::thread::sleep(guard_has);
        }
        self.note.kill();
        self.note.cgroup.iter().for_each(|group| _ = cgroup::sweep(group));
        if let Some(dir) = &self.dir {
            self.note.remove(dir);
        }
    }
}

impl Drop for ProcessGroup {
    fn drop(&mut self) {
        if self.ended {
            return;
        }
        self.signal(Signal::TERM);
        let (note, dir, grace) = (self.note.clone(), self.dir.clone(), self.grace);
        let lifeline = self.lifeline.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        let lifeline = Arc::new(Mutex::new(lifeline));
        // Dropped means the activity's future is gone, perhaps the runtime too: a plain thread waits out the grace.
        // Should the worker end before, the note stays and the next worker reaps.
        let rest = Rest { note, dir, lifeline };
        let patient = rest.clone();
        let waiting = std::thread::Builder::new().spawn(move || {
            std::thread::sleep(grace);
            patient.kill(Duration::from_millis(500));
        });
        if waiting.is_err() {
            // No thread is to be had: without a grace then.
            rest.kill(Duration::ZERO);
        }
    }
}
