//! Running one command from start to verdict: checks, environment, waiting, ending, outcome.
//!
//! Invariant: whatever happens (exit, timeout, cancellation), the group is ended before the outcome is returned, and
//! waiting for output is bounded even if a grandchild keeps a pipe open.

use std::collections::BTreeMap;
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::time::{Duration, Instant};

use bosun_engine::{ActivityContext, ActivityError, Failure, Payload};
use rustix::io::Errno;
use serde_json::json;
use tokio::io::AsyncWriteExt;
use tokio::process::{Child, Command};

use super::group::{NotNoted, Owner, ProcessGroup, spawn};
use super::output::{Capture, tail};
use super::*;
use crate::capability::environment;
use crate::capability::scrub::Scrubber;

/// After the leader's exit, how long the pipes may stay open before the group's rest is killed, and again after that.
const DRAIN_PATIENCE: Duration = Duration::from_millis(250);
/// How long a program is tried to be started that cannot be started just now.
const SPAWN_PATIENCE: Duration = Duration::from_secs(10);
/// The longest time between two of these tries.
const SPAWN_PAUSE_MAX: Duration = Duration::from_secs(1);
/// How much of each stream a failure carries.
const TAIL_MAX: usize = 2_000;

/// The activity function.
pub async fn run(
    config: ProcessConfig,
    context: ActivityContext,
    input: ProcessInput,
) -> Result<ProcessOutput, ActivityError> {
    let place = check(&config, &input)?;
    passed(&input).for_each(|(name, value)| environment::note_passed(name, &value));
    let owner = Owner { idempotency_key: context.idempotency_key(), attempt: context.attempt().0 };
    let started = Instant::now();
    let spawned = spawn_patiently(&config, &context, &input, place.as_deref(), owner).await;
    let Some(spawned) = spawned else { return Err(ActivityError::Canceled(None)) };
    let (mut child, group) = spawned.map_err(|why| cannot_spawn(&input, place.as_deref(), &why))?;
    let mut stdout = Capture::start(child.stdout.take().expect("stdout is piped"), input.output_max);
    let mut stderr = Capture::start(child.stderr.take().expect("stderr is piped"), input.output_max);
    let feeding = feed(&mut child, input.stdin.clone());
    let ending = wait(&context, &mut child, input.timeout_ms, || stdout.bytes_so_far() + stderr.bytes_so_far()).await;
    finish(group, &mut child, &ending, &mut stdout, &mut stderr).await;
    feeding.abort();
    let secrets = secrets(&input);
    let clean = |(text, bytes): (String, u64)| {
        let text = if bytes > input.output_max { secrets.cut_text(&text) } else { secrets.text(&text) };
        (text, bytes)
    };
    let (stdout, stdout_bytes) = clean(stdout.take());
    let (stderr, stderr_bytes) = clean(stderr.take());
    let mut output = ProcessOutput {
        exit_code: None,
        signal: None,
        truncated: stdout_bytes > input.output_max || stderr_bytes > input.output_max,
        stdout,
        stderr,
        stdout_bytes,
        stderr_bytes,
        duration_ms: u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX),
        files: report_files(&config, &input, place.as_deref()),
    };
    match ending {
        CommandEnding::Canceled => Err(ActivityError::Canceled(None)),
        CommandEnding::TimedOut(after) => Err(timed_out(&input, &output, after).into()),
        CommandEnding::Exited(status) => {
            let status = status.map_err(|why| Failure::application(PROCESS_EXIT, format!("cannot wait: {why}")))?;
            output.exit_code = status.code();
            output.signal = status.signal();
            judge(&input, output, status)
        }
    }
}

/// Ends what is left of the group, and hears what it still says.
async fn finish(
    mut group: ProcessGroup,
    child: &mut Child,
    ending: &CommandEnding,
    stdout: &mut Capture,
    stderr: &mut Capture,
) {
    match ending {
        CommandEnding::Exited(Ok(status)) if status.signal() == Some(9) => group.guard_was_killed(),
        CommandEnding::Exited(_) => {}
        CommandEnding::TimedOut(_) | CommandEnding::Canceled => group.terminate(child).await,
    }
    drain(&group, stdout, stderr).await;
    group.end();
}

/// What of the worker's the command could have printed: the worker's own secrets, and what it was given.
fn secrets(input: &ProcessInput) -> Scrubber {
    let mut secrets = environment::scrubber();
    passed(input).for_each(|(_, value)| secrets.add(&value, environment::SECRET_LEN_MIN));
    secrets
}

/// What the command is given of the worker's environment because the input asks for it.
fn passed(input: &ProcessInput) -> impl Iterator<Item = (&str, String)> {
    let names = input.env_allow.iter().map(String::as_str).filter(|name| !ENV_DEFAULT.contains(name));
    names.filter_map(|name| Some((name, environment::var(name)?)))
}

enum CommandEnding {
    Exited(io::Result<ExitStatus>),
    TimedOut(Duration),
    Canceled,
}

/// Waits for the first of exit, timeout and cancellation; meanwhile heartbeats if the activity has a heartbeat timeout.
async fn wait(
    context: &ActivityContext,
    child: &mut Child,
    timeout_ms: Option<u64>,
    output_bytes: impl Fn() -> u64,
) -> CommandEnding {
    let timeout = timeout_ms.map(Duration::from_millis);
    let expired = async {
        match timeout {
            Some(timeout) => tokio::time::sleep(timeout).await,
            None => std::future::pending().await,
        }
    };
    let beating = async {
        let Some(every) = context.task().heartbeat_timeout else { return std::future::pending::<()>().await };
        loop {
            // A heartbeat that cannot be encoded is impossible here: it is a number.
            let _ = context.heartbeat(&json!({ "output_bytes": output_bytes() }));
            tokio::time::sleep(every / 3).await;
        }
    };
    tokio::select! {
        status = child.wait() => CommandEnding::Exited(status),
        () = expired => CommandEnding::TimedOut(timeout.unwrap_or_default()),
        () = context.canceled() => CommandEnding::Canceled,
        () = beating => CommandEnding::Canceled,
    }
}

/// Gives both streams a moment to end; a leftover of the group that holds them is killed, and one outside is left.
async fn drain(group: &ProcessGroup, stdout: &mut Capture, stderr: &mut Capture) {
    if stdout.finished_within(DRAIN_PATIENCE).await && stderr.finished_within(DRAIN_PATIENCE).await {
        return;
    }
    group.kill_rest();
    stdout.finished_within(DRAIN_PATIENCE).await;
    stderr.finished_within(DRAIN_PATIENCE).await;
}

fn judge(input: &ProcessInput, output: ProcessOutput, status: ExitStatus) -> Result<ProcessOutput, ActivityError> {
    let accepted = input.success_codes.is_empty() || output.exit_code.is_some_and(|c| input.success_codes.contains(&c));
    if accepted {
        return Ok(output);
    }
    let ended = match (output.exit_code, output.signal) {
        (Some(code), _) => format!("exited with code {code}"),
        (None, Some(signal)) => format!("was killed by signal {signal}"),
        (None, None) => format!("ended strangely ({status})"),
    };
    let last = output.stderr.lines().rev().find(|line| !line.trim().is_empty()).map_or("", str::trim);
    let separator = if last.is_empty() { "" } else { ": " };
    let message = format!("{} {ended}{separator}{}", input.argv[0], tail(last, 300));
    Err(Failure::application(PROCESS_EXIT, message).with_details(details(&output)).into())
}

fn timed_out(input: &ProcessInput, output: &ProcessOutput, after: Duration) -> Failure {
    let message = format!("{} was stopped after its timeout of {} ms", input.argv[0], after.as_millis());
    Failure::application(PROCESS_TIMEOUT, message).with_details(details(output))
}

fn details(output: &ProcessOutput) -> Payload {
    let value = json!({
        "exit_code": output.exit_code,
        "signal": output.signal,
        "stdout_tail": tail(&output.stdout, TAIL_MAX),
        "stderr_tail": tail(&output.stderr, TAIL_MAX),
    });
    Payload::encode(&value).unwrap_or_default()
}

fn refused(message: String) -> Failure {
    Failure::application(PROCESS_REFUSED, message).non_retryable()
}

/// Refuses what must not run; returns the directory to run in, with links resolved if there is a jail.
fn check(config: &ProcessConfig, input: &ProcessInput) -> Result<Option<PathBuf>, Failure> {
    let Some(program) = input.argv.first().filter(|program| !program.is_empty()) else {
        return Err(refused("argv is empty; its first entry must name the command".into()));
    };
    if let Some(allow) = &config.allow
        && !allow.contains(program)
    {
        return Err(refused(format!("{program:?} is not among the commands this worker allows: {}", allow.join(", "))));
    }
    // What decides which file a name is, or what it loads, would turn an allowed name into any program.
    let steers = |name: &&String| matches!(name.as_str(), "PATH" | "BASH_ENV" | "ENV") || name.starts_with("LD_");
    if config.allow.is_some()
        && let Some(name) = input.env.keys().find(steers)
    {
        return Err(refused(format!("the variable {name} may not be set where commands are allowed by name")));
    }
    if let Some(argument) = input.argv.iter().find(|argument| argument.contains('\0')) {
        return Err(refused(format!("an argument has a NUL character: {argument:?}")));
    }
    if let Some(name) = input.env.iter().find(|(n, v)| n.is_empty() || n.contains(['=', '\0']) || v.contains('\0')) {
        return Err(refused(format!(
            "the environment variable {:?} has an empty name, `=` or a NUL character",
            name.0
        )));
    }
    let place = place_of(input)?;
    if let Some(place) = place.as_deref().filter(|place| !config.files.allows(place)) {
        let why = format!("the worker's owner does not allow commands in {} (`file.roots`)", place.display());
        return Err(refused(why));
    }
    Ok(place)
}

/// The directory that a command is to run in, if one is named.
fn place_of(input: &ProcessInput) -> Result<Option<PathBuf>, Failure> {
    let Some(jail) = &input.jail else { return Ok(input.cwd.clone()) };
    let resolve = |path: &Path| {
        path.canonicalize().map_err(|why| refused(format!("the directory {} cannot be used: {why}", path.display())))
    };
    let jail = resolve(jail)?;
    let place = resolve(&input.cwd.as_ref().map_or_else(|| jail.clone(), |cwd| jail.join(cwd)))?;
    if !place.starts_with(&jail) {
        return Err(refused(format!("the directory {} is outside of {}", place.display(), jail.display())));
    }
    Ok(Some(place))
}

fn command(input: &ProcessInput, place: Option<&Path>, context: &ActivityContext) -> Command {
    let mut command = Command::new(&input.argv[0]);
    command.args(&input.argv[1..]).env_clear();
    for name in ENV_DEFAULT.into_iter().chain(input.env_allow.iter().map(String::as_str)) {
        if let Some(value) = environment::var_os(name) {
            command.env(name, value);
        }
    }
    command.envs(&input.env);
    command.env(ENV_IDEMPOTENCY_KEY, context.idempotency_key()).env(ENV_ATTEMPT, context.attempt().to_string());
    if let Some(place) = place {
        command.current_dir(place);
    }
    command
}

/// A machine that is short of processes or open files may have them again in a moment: that is no failed try of a task (G28).
/// A full disk is waited for as long as it is full: what the try decides could not be written either (G5). None: it was
/// cancelled meanwhile.
async fn spawn_patiently(
    config: &ProcessConfig,
    context: &ActivityContext,
    input: &ProcessInput,
    place: Option<&Path>,
    owner: Owner,
) -> Option<io::Result<(Child, ProcessGroup)>> {
    let until = Instant::now() + SPAWN_PATIENCE;
    let mut pause = Duration::from_millis(100);
    loop {
        let spawned = spawn(command(input, place, context), owner.clone(), config, input.stdin.is_some()).await;
        match spawned {
            Err(why) if is_full(&why) || passes(&why) && Instant::now() + pause < until => {
                if context.task().heartbeat_timeout.is_some() {
                    // A heartbeat that cannot be encoded is impossible here: it is a text.
                    let _ = context.heartbeat(&json!({ "waits": why.to_string() }));
                }
                tokio::select! {
                    () = tokio::time::sleep(pause) => pause = (2 * pause).min(SPAWN_PAUSE_MAX),
                    () = context.canceled() => return None,
                }
            }
            spawned => return Some(spawned),
        }
    }
}

/// Writes stdin in the background and closes it. A child that does not read it all is no error.
fn feed(child: &mut Child, text: Option<String>) -> tokio::task::JoinHandle<()> {
    let pipe = child.stdin.take();
    tokio::spawn(async move {
        if let (Some(mut pipe), Some(text)) = (pipe, text) {
            let _ = pipe.write_all(text.as_bytes()).await;
        }
    })
}

fn cannot_spawn(input: &ProcessInput, place: Option<&Path>, why: &io::Error) -> Failure {
    let program = &input.argv[0];
    let message = match (why.kind(), place) {
        (io::ErrorKind::NotFound, Some(place)) if !place.is_dir() => {
            format!("cannot start {program:?}: its working directory {} does not exist", place.display())
        }
        (io::ErrorKind::NotFound, _) => format!("cannot start {program:?}: no such command on this machine"),
        _ => format!("cannot start {program:?}: {why}"),
    };
    let failure = Failure::application(PROCESS_SPAWN, message);
    if passes(why) { failure } else { failure.non_retryable() }
}

/// A machine short of processes, memory, open files or space may have them later, and a program that is being written is done
/// some time; everything else stays as it is.
pub(in crate::capability) fn passes(why: &io::Error) -> bool {
    let short = matches!(why.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::OutOfMemory);
    let passing = |errno| matches!(errno, Errno::NFILE | Errno::MFILE | Errno::TXTBSY);
    short || is_full(why) || errno_of(why).is_some_and(passing)
}

/// Of the disk, or of what this user may have of it.
fn is_full(why: &io::Error) -> bool {
    matches!(errno_of(why), Some(Errno::NOSPC | Errno::DQUOT))
}

/// What the system said, also of a note that could not be made.
fn errno_of(why: &io::Error) -> Option<Errno> {
    let of_note = || why.get_ref()?.downcast_ref::<NotNoted>()?.0.raw_os_error();
    why.raw_os_error().or_else(of_note).map(Errno::from_raw_os_error)
}

fn report_files(config: &ProcessConfig, input: &ProcessInput, place: Option<&Path>) -> BTreeMap<String, FileReport> {
    let report = |name: &String| {
        let path = place.map_or_else(|| PathBuf::from(name), |place| place.join(name));
        let inside = match (&input.jail, path.canonicalize()) {
            (Some(jail), Ok(path)) => jail.canonicalize().is_ok_and(|jail| path.starts_with(jail)),
            (None, Ok(_)) => true,
            (_, Err(_)) => false,
        };
        let inside = inside && config.files.allows(&path);
        let size = path.metadata().ok().filter(|_| inside).map(|metadata| metadata.len());
        (name.clone(), FileReport { size })
    };
    input.report_files.iter().map(report).collect()
}
