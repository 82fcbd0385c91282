//! The guard: a small process between the worker and a command, under which everything the command starts stays, whatever
//! it does to its session, group or environment (G37).
//!
//! ```text
//!  worker ──lifeline──► guard (subreaper) ──► command ──► setsid, double forks, daemons: all end up below the guard
//! ```
//!
//! Invariant: when the command has ended, when the worker says so, and when the worker is gone however it went (its end of
//! the lifeline closes), the guard kills everything below it until nothing is left, and only then ends, as the command did.
//! Where the command has a control group of its own ([`super::cgroup`]), so does all that is in it, also what has killed the
//! guard itself. It is this program again, by a hidden word; a program that does not go through `App::main` has process groups only.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{OnceLock, mpsc};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, WaitOptions, WaitStatus, kill_process};

use super::{ProcessLimits, cgroup};

/// The first argument of a program that is to be a guard.
const WORD: &str = "__bosun-guard";
/// In the place of a control group.
const NO_GROUP: &str = "-";
/// What the worker writes into the lifeline.
pub(super) const TERM: u8 = b't';
pub(super) const KILL: u8 = b'k';
/// What a command leaves behind may end by itself for so long.
const LEFTOVERS: Duration = Duration::from_millis(250);
/// A process that cannot be killed (it waits for a disk) is left to the kernel after so long.
const PATIENCE: Duration = Duration::from_secs(4);

/// The program that can be a guard, once [`available`] was said.
static PROGRAM: OnceLock<PathBuf> = OnceLock::new();

/// This program begins with [`main_if_guard`], so commands can have guards.
pub(crate) fn available() {
    if cfg!(target_os = "linux")
        && let Ok(program) = std::env::current_exe()
    {
        let _ = PROGRAM.set(program);
    }
}

/// Whether commands have guards.
pub(super) fn is_available() -> bool {
    PROGRAM.get().is_some()
}

/// How process trees are ended, in words, for the log of the worker.
pub(crate) fn strategy() -> &'static str {
    match (PROGRAM.get(), cgroup::parent()) {
        (Some(_), Some(_)) => {
            "a control group (cgroup v2) and a guard per command (PR_SET_CHILD_SUBREAPER and a lifeline), then process group and marker"
        }
        (Some(_), None) => {
            "a guard per command (PR_SET_CHILD_SUBREAPER and a lifeline), then process group and marker; no control group (cgroup v2) may be made here"
        }
        (None, _) => "process group and marker",
    }
}

/// The worker's side of a guard.
pub(super) struct Lifeline {
    pipe: PipeWriter,
}

impl Lifeline {
    pub(super) fn say(&mut self, word: u8) {
        // A guard that is gone has nothing left below it.
        let _ = self.pipe.write_all(&[word]);
    }
}

/// What a guard is started with: the ends of the pipes that are its own.
pub(super) struct Ends {
    lifeline: PipeReader,
    verdict: PipeWriter,
}

impl Ends {
    /// Lets both pipes live on in the guard. Called between fork and exec.
    pub(super) fn inherit(&self) -> io::Result<()> {
        use rustix::io::{FdFlags, fcntl_setfd};
        fcntl_setfd(&self.lifeline, FdFlags::empty())?;
        Ok(fcntl_setfd(&self.verdict, FdFlags::empty())?)
    }
}

/// Says whether the command could be executed; nothing if the guard did not get that far.
pub(super) struct ExecVerdict(PipeReader);

impl ExecVerdict {
    pub(super) fn read(mut self) -> io::Result<()> {
        let mut code = [0; 4];
        self.0.read_exact(&mut code).map_err(|_| io::Error::other("the guard of the command ended before it began"))?;
        match i32::from_ne_bytes(code) {
            0 => Ok(()),
            code => Err(io::Error::from_raw_os_error(code)),
        }
    }
}

/// The same command under a guard, if there can be one, which puts it into this control group.
pub(super) fn guarded(
    command: tokio::process::Command,
    limits: ProcessLimits,
    group: Option<&Path>,
) -> io::Result<(tokio::process::Command, Option<(Ends, Lifeline, ExecVerdict)>)> {
    let Some(program) = PROGRAM.get() else { return Ok((command, None)) };
    let (lifeline, pipe) = io::pipe()?;
    let (verdict, tell) = io::pipe()?;
    let ends = Ends { lifeline, verdict: tell };
    let inner = command.as_std();
    let mut outer = tokio::process::Command::new(program);
    outer.arg(WORD).arg(ends.lifeline.as_raw_fd().to_string()).arg(ends.verdict.as_raw_fd().to_string());
    let ProcessLimits { address_space, cpu_seconds, file_size, open_files } = limits;
    for limit in [address_space, cpu_seconds, file_size, open_files] {
        outer.arg(limit.map_or_else(|| "-".to_owned(), |limit| limit.to_string()));
    }
    outer.arg(group.unwrap_or(Path::new(NO_GROUP)));
    outer.arg(inner.get_program()).args(inner.get_args()).env_clear();
    outer.envs(inner.get_envs().filter_map(|(name, value)| Some((name, value?))));
    if let Some(place) = inner.get_current_dir() {
        outer.current_dir(place);
    }
    Ok((outer, Some((ends, Lifeline { pipe }, ExecVerdict(verdict)))))
}

/// Is the guard, if the arguments say so. To be called before anything else.
pub(crate) fn main_if_guard() -> Option<ExitCode> {
    let mut words = std::env::args_os().skip(1);
    if words.next()? != WORD {
        return None;
    }
    let words: Vec<OsString> = words.collect();
    Some(guard(&words).unwrap_or_else(|why| {
        eprintln!("the guard of a command: {why}");
        ExitCode::from(126)
    }))
}

/// For an error that is none of the kernel's.
const EINVAL: i32 = 22;

/// What the lifeline said last; 0: nothing.
static SAID: AtomicU8 = AtomicU8::new(0);

fn guard(words: &[OsString]) -> io::Result<ExitCode> {
    let wrong = || io::Error::from(io::ErrorKind::InvalidInput);
    let [lifeline, verdict, limits @ ..] = words else { return Err(wrong()) };
    let (limits, command) = limits.split_at_checked(4).ok_or_else(wrong)?;
    let (group, command) = command.split_first().ok_or_else(wrong)?;
    let group = (group != NO_GROUP).then(|| PathBuf::from(group));
    let number = |word: &OsString| word.to_str().and_then(|word| word.parse::<u64>().ok());
    let pipe = |word: &OsString| number(word).and_then(|number| RawFd::try_from(number).ok()).ok_or_else(wrong);
    let (lifeline, mut verdict) = (inherited(pipe(lifeline)?)?, inherited(pipe(verdict)?)?);
    // From here on the lifeline tells of the worker's end: what runs below is ended before the guard ends.
    rustix::process::set_parent_process_death_signal(None)?;
    rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
    let limits: Vec<Option<u64>> = limits.iter().map(number).collect();
    // There before the command: where no thread is to be had, nothing is begun, and the worker tries again.
    let (begun, begins) = mpsc::channel();
    let all = group.clone();
    let obeying = std::thread::Builder::new().spawn(move || {
        if begins.recv().is_ok() {
            obey(lifeline, all.as_deref());
        }
    });
    let main = match obeying.and_then(|_| start(command, &limits, group.as_deref())) {
        Ok(main) => main,
        Err(why) => {
            verdict.write_all(&why.raw_os_error().unwrap_or(EINVAL).to_ne_bytes())?;
            return Ok(ExitCode::from(127));
        }
    };
    verdict.write_all(&0_i32.to_ne_bytes())?;
    drop(verdict);
    // The thread waits for it.
    let _ = begun.send(());
    let ended = wait_for(main)?;
    leave_nothing(group.as_deref());
    Ok(end_as(ended))
}

/// A pipe that the worker has left open for this process. It is closed on exec from here on.
#[expect(unsafe_code, reason = "what was inherited has only a number")]
fn inherited(number: RawFd) -> io::Result<File> {
    // SAFETY: the worker left this number open for exactly this, each is taken once, and nothing in this process has
    // opened or closed anything yet. A number that is not open is found by the call below.
    let file = File::from(unsafe { OwnedFd::from_raw_fd(number) });
    rustix::io::fcntl_setfd(&file, rustix::io::FdFlags::CLOEXEC)?;
    Ok(file)
}

fn start(command: &[OsString], limits: &[Option<u64>], group: Option<&Path>) -> io::Result<Pid> {
    let (program, arguments) = command.split_first().ok_or(io::ErrorKind::InvalidInput)?;
    let mut command = Command::new(program);
    command.args(arguments).process_group(0);
    // One that cannot be entered is done without.
    let door = group.and_then(|group| cgroup::door(group).ok());
    super::group::confine(&mut command, limits, door);
    let child = command.spawn()?;
    Pid::from_raw(child.id().cast_signed()).ok_or_else(|| io::ErrorKind::InvalidData.into())
}

/// Does what the lifeline says; its end means that the worker is gone.
fn obey(mut lifeline: File, group: Option<&Path>) {
    let mut word = [0];
    loop {
        let said = match lifeline.read(&mut word) {
            Ok(1) => word[0],
            Ok(_) | Err(_) => KILL,
        };
        SAID.store(said, Ordering::Release);
        let signal = if said == TERM { Signal::TERM } else { Signal::KILL };
        send_to(&below(), signal);
        if said == KILL {
            group.iter().for_each(|group| cgroup::kill(group));
            return;
        }
    }
}

/// Reaps whatever ends below until the command itself has.
fn wait_for(main: Pid) -> io::Result<WaitStatus> {
    loop {
        match rustix::process::wait(WaitOptions::empty()) {
            Ok(Some((pid, status))) if pid == main => return Ok(status),
            Ok(_) => {}
            Err(rustix::io::Errno::INTR) => {}
            Err(why) => return Err(why.into()),
        }
    }
}

/// Kills what is left below, again and again: it may be starting others meanwhile.
fn leave_nothing(group: Option<&Path>) {
    let began = Instant::now();
    loop {
        // No child is left, and whatever loses its parent becomes one: so there is nothing below at all.
        while let Ok(reaped) = rustix::process::wait(WaitOptions::NOHANG) {
            if reaped.is_none() {
                break;
            }
        }
        let left = below();
        let childless = matches!(rustix::process::wait(WaitOptions::NOHANG), Err(rustix::io::Errno::CHILD));
        let is_empty = left.is_empty() && childless && !group.is_some_and(cgroup::has_any);
        if is_empty || began.elapsed() > PATIENCE {
            // What is left of it is swept by the worker.
            group.iter().for_each(|group| drop(cgroup::remove(group)));
            return;
        }
        let patient = match SAID.load(Ordering::Acquire) {
            0 => began.elapsed() < LEFTOVERS,
            TERM => began.elapsed() < PATIENCE / 2,
            _ => false,
        };
        if !patient {
            send_to(&left, Signal::KILL);
            group.iter().for_each(|group| cgroup::kill(group));
        }
        std::thread::sleep(Duration::from_millis(3));
    }
}

fn send_to(all: &[Pid], signal: Signal) {
    for pid in all {
        // One that has ended meanwhile needs no signal.
        let _ = kill_process(*pid, signal);
    }
}

/// Everything below this process, parents first.
fn below() -> Vec<Pid> {
    let parents: Vec<(i32, i32)> = super::note::running().map(|stat| (stat.pid, stat.parent)).collect();
    let mut found = vec![std::process::id().cast_signed()];
    let mut next = 0;
    while let Some(parent) = found.get(next).copied() {
        next += 1;
        found.extend(parents.iter().filter(|(_, of)| *of == parent).map(|(pid, _)| *pid));
    }
    found.into_iter().skip(1).filter_map(Pid::from_raw).collect()
}

/// Ends as the command did: with its code, or by its signal.
fn end_as(status: WaitStatus) -> ExitCode {
    if let Some(signal) = status.terminating_signal().and_then(Signal::from_named_raw) {
        let _ = kill_process(rustix::process::getpid(), signal);
        // Only a signal that this process ignores comes here.
        std::thread::sleep(Duration::from_millis(50));
    }
    let code = status.exit_status().unwrap_or_else(|| 128 + status.terminating_signal().unwrap_or(0));
    ExitCode::from(u8::try_from(code).unwrap_or(255))
}
