//! The process activity against real processes, each bounded in time.

use std::path::Path;
use std::time::Instant;

use bosun_engine::ActivityError;

use super::note::stat_of;
use super::*;
use crate::capability::testing::{failure, is_non_retryable, probe, probe_with};

/// Far less than what the commands here would take if nobody ended them, and far more than a busy machine needs.
const PATIENCE: Duration = Duration::from_secs(60);

fn sh(script: &str) -> ProcessInput {
    ProcessInput::of(["sh", "-c", script])
}

async fn run_with(config: ProcessConfig, input: ProcessInput) -> Result<ProcessOutput, ActivityError> {
    let probe = probe(3);
    let running = run(config, probe.context, input);
    tokio::time::timeout(PATIENCE, running).await.expect("the activity ends in time")
}

async fn run_one(input: ProcessInput) -> Result<ProcessOutput, ActivityError> {
    run_with(ProcessConfig::default(), input).await
}

fn is_running(pid: i32) -> bool {
    stat_of(pid).is_some()
}

/// Waits for a process to be gone: it dies in five seconds (G37), on a machine that has time.
async fn is_gone(pid: i32) -> bool {
    for _ in 0..3_000 {
        if !is_running(pid) {
            return true;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    false
}

async fn number_in(path: &Path) -> i32 {
    for _ in 0..3_000 {
        if let Ok(Ok(number)) = std::fs::read_to_string(path).map(|text| text.trim().parse()) {
            return number;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("no number in {} after a minute", path.display());
}

#[tokio::test]
async fn a_command_gives_both_streams_and_its_exit_code() {
    let mut input = sh("cat; echo err >&2; exit 3");
    input.stdin = Some("in".into());
    input.success_codes = vec![0, 3];
    let output = run_one(input).await.unwrap();
    assert_eq!((output.stdout.as_str(), output.stderr.as_str()), ("in", "err\n"));
    assert_eq!((output.exit_code, output.signal, output.truncated), (Some(3), None, false));
}

#[tokio::test]
async fn another_exit_code_is_a_failure_that_carries_the_tails() {
    let failure = failure(run_one(sh("echo out; echo it broke >&2; exit 9")).await);
    assert_eq!(failure.type_name(), PROCESS_EXIT);
    assert_eq!(failure.message, "sh exited with code 9: it broke");
    let bosun_engine::FailureKind::Application { details: Some(details), non_retryable: false, .. } = failure.kind
    else {
        panic!("expected retryable details, got {failure:?}");
    };
    let details = details.to_json();
    assert_eq!(details["exit_code"], 9);
    assert_eq!(details["stdout_tail"], "out\n");
    assert_eq!(details["stderr_tail"], "it broke\n");
}

/// Injection strings stay one argument (G37): there is no shell.
#[tokio::test]
async fn arguments_are_never_read_by_a_shell() {
    let nasty = ["$(touch pwned)", "; touch pwned", "`id`", "a b\nc", "*", "&& false", "'\"", "-n", "%s", "\u{1f980}"];
    for argument in nasty {
        let output = run_one(ProcessInput::of(["printf", "%s", argument])).await.unwrap();
        assert_eq!(output.stdout, argument);
    }
}

/// G37: the environment is cleared but for the defaults, what is asked for, and our three variables.
#[tokio::test]
async fn the_environment_is_cleared() {
    let mut input = ProcessInput::of(["env"]);
    input.env.insert("MINE".into(), "1".into());
    let plain = |(name, value): &(String, String)| !ENV_DEFAULT.contains(&name.as_str()) && !value.contains('\n');
    let (taken_over, _) = std::env::vars().find(plain).expect("the test has some variable");
    input.env_allow = vec![taken_over.clone(), "NOT_SET_ANYWHERE".into()];
    let output = run_one(input).await.unwrap();
    let mut names: Vec<&str> = output.stdout.lines().filter_map(|line| Some(line.split_once('=')?.0)).collect();
    names.retain(|name| !ENV_DEFAULT.contains(name));
    names.sort_unstable();
    let mut expected = ["BOSUN_ATTEMPT", "BOSUN_IDEMPOTENCY_KEY", "BOSUN_PROCESS_MARKER", "MINE", &taken_over];
    expected.sort_unstable();
    assert_eq!(names, expected);
    let key = probe(3).context.idempotency_key();
    assert!(output.stdout.contains(&format!("BOSUN_IDEMPOTENCY_KEY={key}\n")), "{}", output.stdout);
    assert!(output.stdout.contains("BOSUN_ATTEMPT=1\n"));
}

/// G37: a timeout kills the whole group, with grandchildren that ignore SIGTERM.
#[tokio::test]
async fn a_timeout_kills_grandchildren_that_ignore_sigterm() {
    let dir = tempfile::tempdir().unwrap();
    let mut input = sh("(trap '' TERM; sh -c 'echo $$ > grandchild; exec sleep 600') & echo before; wait");
    input.cwd = Some(dir.path().into());
    input.timeout_ms = Some(700);
    let started = Instant::now();
    let config = ProcessConfig { kill_grace: Duration::from_millis(300), ..Default::default() };
    let failure = failure(run_with(config, input).await);
    assert_eq!(failure.type_name(), PROCESS_TIMEOUT);
    assert!(failure.message.contains("timeout of 700 ms"), "{failure}");
    assert!(started.elapsed() < PATIENCE);
    let grandchild = number_in(&dir.path().join("grandchild")).await;
    assert!(is_gone(grandchild).await, "grandchild {grandchild} is alive");
}

#[tokio::test]
async fn a_cancellation_ends_the_group_and_reports_canceled() {
    let dir = tempfile::tempdir().unwrap();
    let mut input = sh("echo $$ > leader; sleep 600 & wait");
    input.cwd = Some(dir.path().into());
    let probe = probe(4);
    let running = tokio::spawn(run(ProcessConfig::default(), probe.context, input));
    let leader = number_in(&dir.path().join("leader")).await;
    probe.cancel.send(true).unwrap();
    let ended = tokio::time::timeout(PATIENCE, running).await.unwrap().unwrap();
    assert_eq!(ended, Err(ActivityError::Canceled(None)));
    assert!(is_gone(leader).await);
}

#[tokio::test]
async fn dropping_the_activity_kills_its_group() {
    let dir = tempfile::tempdir().unwrap();
    let notes = dir.path().join("processes");
    let mut input = sh("echo $$ > leader; (trap '' TERM; sh -c 'echo $$ > grandchild; exec sleep 600') & wait");
    input.cwd = Some(dir.path().into());
    let config =
        ProcessConfig { notes: Some(notes.clone()), kill_grace: Duration::from_millis(200), ..Default::default() };
    let running = tokio::spawn(run(config, probe(5).context, input));
    let grandchild = number_in(&dir.path().join("grandchild")).await;
    running.abort();
    assert!(is_gone(grandchild).await, "grandchild {grandchild} is alive");
    for _ in 0..3_000 {
        if std::fs::read_dir(&notes).unwrap().count() == 0 {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("the note was not removed");
}

#[tokio::test]
async fn a_grandchild_that_keeps_the_pipes_open_does_not_hang_the_activity() {
    let started = Instant::now();
    let output = run_one(sh("sleep 600 & echo $!")).await.unwrap();
    assert!(started.elapsed() < PATIENCE, "took {:?}", started.elapsed());
    assert!(is_gone(output.stdout.trim().parse().unwrap()).await);
}

#[tokio::test]
async fn output_over_the_cap_is_counted_and_dropped() {
    let mut input = sh("head -c 3000000 /dev/zero | tr '\\0' x; echo tail >&2");
    input.output_max = 1_000;
    let output = run_one(input).await.unwrap();
    assert_eq!((output.stdout.len(), output.stdout_bytes, output.truncated), (1_000, 3_000_000, true));
    assert_eq!(output.stderr, "tail\n");
}

#[tokio::test]
async fn the_cap_cuts_between_characters_and_broken_text_is_replaced() {
    let mut input = ProcessInput::of(["printf", "\u{e4}\u{e4}\u{e4}"]);
    input.output_max = 5;
    assert_eq!(run_one(input).await.unwrap().stdout, "\u{e4}\u{e4}");
    assert_eq!(run_one(ProcessInput::of(["printf", "a\\377b"])).await.unwrap().stdout, "a\u{fffd}b");
}

/// G28: what passes by itself is tried again; a program that is being written is done some time.
#[tokio::test]
async fn what_passes_by_itself_is_tried_again() {
    use std::os::unix::fs::PermissionsExt;
    for (errno, passes) in [
        (23, true),
        (24, true),
        (26, true),
        (28, true),
        (122, true),
        (11, true),
        (12, true),
        (2, false),
        (8, false),
        (13, false),
    ] {
        let why = std::io::Error::from_raw_os_error(errno);
        assert_eq!(super::run::passes(&why), passes, "{errno}");
        let not_noted = std::io::Error::new(why.kind(), super::group::NotNoted(why));
        assert_eq!(super::run::passes(&not_noted), passes, "the note: {errno}");
    }
    let dir = tempfile::tempdir().unwrap();
    let program = dir.path().join("program");
    std::fs::copy("/bin/true", &program).unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o700)).unwrap();
    let written = std::fs::File::options().append(true).open(&program).unwrap();
    let input = || ProcessInput::of([program.to_str().unwrap()]);
    // A worker that stops meanwhile takes no try of the task.
    let stopped = probe(6);
    let waiting = tokio::spawn(run(ProcessConfig::default(), stopped.context, input()));
    stopped.cancel.send(true).unwrap();
    assert_eq!(waiting.await.unwrap(), Err(ActivityError::Canceled(None)));
    std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(300));
        drop(written);
    });
    assert_eq!(run_one(input()).await.unwrap().exit_code, Some(0));
}

#[tokio::test]
async fn a_missing_command_is_named_and_not_retried() {
    let failure = failure(run_one(ProcessInput::of(["no-such-command-here"])).await);
    assert_eq!(failure.type_name(), PROCESS_SPAWN);
    assert!(failure.message.contains("\"no-such-command-here\""), "{failure}");
    assert!(is_non_retryable(&failure));
}

#[tokio::test]
async fn a_missing_directory_is_named_instead_of_the_command() {
    let mut input = ProcessInput::of(["true"]);
    input.cwd = Some("/no/such/directory".into());
    let failure = failure(run_one(input).await);
    assert!(failure.message.contains("/no/such/directory"), "{failure}");
}

#[tokio::test]
async fn only_allowed_commands_run() {
    let config = ProcessConfig { allow: Some(vec!["git".into(), "true".into()]), ..Default::default() };
    assert!(run_with(config.clone(), ProcessInput::of(["true"])).await.is_ok());
    for command in ["sh", "/bin/true", "./git", ""] {
        let failure = failure(run_with(config.clone(), ProcessInput::of([command])).await);
        assert_eq!(failure.type_name(), PROCESS_REFUSED, "{command}");
        assert!(is_non_retryable(&failure));
    }
}

/// G37: the working directory cannot leave its jail, by dots or by links.
#[tokio::test]
async fn the_working_directory_stays_in_its_jail() {
    let dir = tempfile::tempdir().unwrap();
    let jail = dir.path().join("jail");
    std::fs::create_dir_all(jail.join("inner")).unwrap();
    std::os::unix::fs::symlink("/", jail.join("link")).unwrap();
    let place = |cwd: &str| {
        let mut input = ProcessInput::of(["pwd"]);
        (input.jail, input.cwd) = (Some(jail.clone()), Some(cwd.into()));
        input
    };
    assert!(run_one(place("inner")).await.unwrap().stdout.trim().ends_with("jail/inner"));
    for cwd in ["..", "link", "/", "inner/../.."] {
        let failure = failure(run_one(place(cwd)).await);
        assert_eq!(failure.type_name(), PROCESS_REFUSED, "{cwd}");
    }
}

#[tokio::test]
async fn files_are_reported_for_critics_but_only_inside_the_jail() {
    let dir = tempfile::tempdir().unwrap();
    let mut input = sh("printf 12345 > made");
    input.jail = Some(dir.path().into());
    input.report_files = vec!["made".into(), "missing".into(), "/etc/passwd".into()];
    let output = run_one(input).await.unwrap();
    assert_eq!(output.files["made"], FileReport { size: Some(5) });
    assert_eq!(output.files["missing"], FileReport { size: None });
    assert_eq!(output.files["/etc/passwd"], FileReport { size: None });
}

#[tokio::test]
async fn a_killed_child_reports_its_signal() {
    let mut input = sh("kill -9 $$");
    input.success_codes = Vec::new();
    let output = run_one(input).await.unwrap();
    assert_eq!((output.exit_code, output.signal), (None, Some(9)));
}

#[tokio::test]
async fn a_long_process_heartbeats_when_a_heartbeat_timeout_is_set() {
    let probe = probe_with(6, Some(Duration::from_millis(150)));
    run(ProcessConfig::default(), probe.context, sh("echo 12345; sleep 0.4")).await.unwrap();
    let heartbeats = probe.heartbeats.0.lock().unwrap();
    assert!(heartbeats.len() >= 3, "{heartbeats:?}");
    assert_eq!(heartbeats.last().unwrap().as_ref().unwrap().to_json()["output_bytes"], 6);
}

#[tokio::test]
async fn the_note_is_there_while_the_process_runs_and_gone_after() {
    let dir = tempfile::tempdir().unwrap();
    let notes = dir.path().join("processes");
    let config = ProcessConfig { notes: Some(notes.clone()), ..Default::default() };
    let mut input = sh("cat processes/$$.json");
    input.cwd = Some(dir.path().into());
    let output = run_with(config, input).await.unwrap();
    let note: ProcessNote = serde_json::from_str(&output.stdout).expect("the note was written before exec");
    assert_eq!((note.pid, note.attempt, note.command.as_str()), (note.pgid, 1, "sh"));
    assert!(note.start_time > 0);
    assert_eq!(note.idempotency_key, probe(3).context.idempotency_key());
    assert_eq!(std::fs::read_dir(&notes).unwrap().count(), 0);
}

/// G37: without a note there is no process.
#[tokio::test]
async fn a_process_that_cannot_be_noted_never_executes() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("file"), "").unwrap();
    let config = ProcessConfig { notes: Some(dir.path().join("file/notes")), ..Default::default() };
    let mut input = sh("touch executed");
    input.cwd = Some(dir.path().into());
    let failure = failure(run_with(config, input).await);
    assert!(failure.message.contains("cannot note the process"), "{failure}");
    assert!(!dir.path().join("executed").exists());
}

/// G37: limits hold before the command executes, and for what it starts.
#[tokio::test]
async fn limits_of_the_kernel_hold() {
    let limits = ProcessLimits { open_files: Some(33), file_size: Some(512), ..Default::default() };
    let config = ProcessConfig { limits, ..Default::default() };
    let output = run_with(config, sh("ulimit -n; sh -c 'ulimit -c; ulimit -f'")).await.unwrap();
    assert_eq!(output.stdout, "33\n0\n1\n");
}

/// G37 after K9, with a worker that is really killed: the child dies with it, the rest when the next worker reaps.
#[tokio::test]
async fn a_worker_killed_with_9_leaves_no_process_after_reaping() {
    const DIRECTORY: &str = "BOSUN_TEST_WORKER_DIRECTORY";
    const THIS_TEST: &str = "capability::process::tests::a_worker_killed_with_9_leaves_no_process_after_reaping";
    if let Some(directory) = std::env::var_os(DIRECTORY) {
        // This is the worker that will be killed.
        let mut input = sh("(trap '' TERM; sh -c 'echo $$ > grandchild; exec sleep 600') & echo $$ > leader; wait");
        input.cwd = Some(directory.into());
        let notes = input.cwd.as_ref().map(|directory| directory.join("processes"));
        let outcome = run(ProcessConfig { notes, ..Default::default() }, probe(8).context, input).await;
        panic!("the worker was to be killed, but {outcome:?}");
    }
    let dir = tempfile::tempdir().unwrap();
    let mut worker = std::process::Command::new(std::env::current_exe().unwrap());
    let mut worker = worker.args(["--exact", THIS_TEST]).env(DIRECTORY, dir.path()).spawn().unwrap();
    let leader = number_in(&dir.path().join("leader")).await;
    let grandchild = number_in(&dir.path().join("grandchild")).await;
    worker.kill().unwrap();
    worker.wait().unwrap();
    assert!(is_gone(leader).await, "the child dies with its worker");
    assert!(is_running(grandchild), "the test needs something to reap");
    let reaped = reap_orphans(&dir.path().join("processes")).unwrap();
    assert_eq!((reaped.len(), reaped[0].note.pid, reaped[0].killed), (1, leader, 1));
    assert!(is_gone(grandchild).await);
}

/// Starts what a killed worker leaves: a group whose leader is gone, with a member that carries the marker.
fn abandoned_group(dir: &Path, marker: &str) -> (ProcessNote, i32) {
    use std::os::unix::process::CommandExt;
    let script = "sh -c 'echo $$ > survivor; exec sleep 600' & while [ ! -s survivor ]; do sleep 0.02; done; read _";
    let mut command = std::process::Command::new("sh");
    command.args(["-c", script]).current_dir(dir).env(ENV_MARKER, marker).process_group(0);
    let mut leader = command.stdin(std::process::Stdio::piped()).spawn().unwrap();
    let pid = leader.id().cast_signed();
    let start_time = stat_of(pid).unwrap().start_time;
    // It ends when it may be looked at no more.
    drop(leader.stdin.take());
    leader.wait().unwrap();
    let survivor = std::fs::read_to_string(dir.join("survivor")).unwrap().trim().parse().unwrap();
    let note = ProcessNote {
        cgroup: None,
        pid,
        pgid: pid,
        start_time,
        boot_id: note::boot_id(),
        idempotency_key: "k".into(),
        attempt: 1,
        marker: marker.into(),
        command: "sh".into(),
    };
    (note, survivor)
}

/// G37 after K9: a worker that was killed leaves no process behind once it starts again.
#[tokio::test]
async fn orphans_of_a_killed_worker_are_reaped_even_without_their_leader() {
    let dir = tempfile::tempdir().unwrap();
    let (note, survivor) = abandoned_group(dir.path(), "orphan-test-1");
    let notes = dir.path().join("processes");
    note.write(&notes).unwrap();
    std::fs::write(notes.join("9.json"), "{\"pid\": 1").unwrap();
    assert!(is_running(survivor));
    let reaped = reap_orphans(&notes).unwrap();
    assert_eq!(reaped, [Reaped { note, killed: 1 }]);
    assert!(is_gone(survivor).await);
    assert_eq!(std::fs::read_dir(&notes).unwrap().count(), 0);
    assert_eq!(reap_orphans(&notes).unwrap(), []);
}

/// A process id proves nothing: a note whose start time, marker or boot does not fit kills nobody.
#[tokio::test]
async fn a_reused_process_id_is_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let (note, survivor) = abandoned_group(dir.path(), "orphan-test-2");
    let stranger = ProcessNote { marker: "another".into(), start_time: note.start_time + 1, ..note.clone() };
    assert_eq!(stranger.kill(), 0);
    let before_boot = ProcessNote { boot_id: "another boot".into(), ..note.clone() };
    assert_eq!(before_boot.kill(), 0);
    assert!(is_running(survivor));
    assert_eq!(note.kill(), 1);
    assert!(is_gone(survivor).await);
}

#[test]
fn no_notes_directory_means_no_orphans() {
    assert_eq!(reap_orphans(Path::new("/no/such/directory")).unwrap(), []);
}
