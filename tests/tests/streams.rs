//! What a command does with the streams that it is given, by the shipped binary: an answer that finds no place is an error, a
//! question can be left, an input without an end is refused.
//!
//! Invariant: whatever a command could not print, it says so and its exit code does, too; whatever was not answered is not done.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use bosun_tests::harness::binary::{object, run, said};
use bosun_tests::harness::crash::READY_MAX;
use bosun_tests::harness::process::{Program, WorkerProcess, bosun};
use rustix::process::{Pid, Signal, kill_process};

const PARKED: &str = r#"{"steps": [{"wait_signal": {"name": "go"}}]}"#;
const PLAN: &str = "\
objective: x
tasks: [{ task_id: 1, sub_task_objective: y, capability: process, parameters: { argv: [\"true\"] } }]
";
/// Between two looks.
const PAUSE: Duration = Duration::from_millis(100);
/// Between two presses of a key.
const PRESSES: Duration = Duration::from_secs(10);

fn parked(data: &Path) {
    let started = run(data, &["start", "kitchen-sink", "-w", "waits", "--input", PARKED]);
    assert!(started.status.success(), "{}", said(&started));
}

/// A command with this as its standard output: its exit code and its errors.
fn into(data: &Path, words: &[&str], out: impl Into<Stdio>) -> (Option<i32>, String) {
    let mut command = Command::new(bosun().unwrap());
    command.args(words).arg("--data").arg(data).stdin(Stdio::null()).stdout(out).stderr(Stdio::piped());
    let output = command.spawn().unwrap().wait_with_output().unwrap();
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

/// F18: a script that writes to a full disk is told; a reader that has seen enough is none of the command's business.
#[test]
fn an_answer_that_is_not_printed_is_an_error() {
    let home = tempfile::tempdir().unwrap();
    let data = home.path().join("data");
    parked(&data);
    let verbs: [&[&str]; 9] = [
        &["list"],
        &["list", "-o", "json"],
        &["show", "waits", "-o", "jsonl"],
        &["export", "waits"],
        &["completion", "bash"],
        &["explain", "exit-codes"],
        &["man"],
        &["version"],
        &["list", "--help"],
    ];
    for words in verbs {
        let (code, why) = into(&data, words, File::options().write(true).open("/dev/full").unwrap());
        assert_eq!(code, Some(1), "{words:?}: {why}");
        let told = ["BOSUN0001", "cannot be written to standard output", "No space left on device"];
        assert!(told.iter().all(|part| why.contains(part)), "{words:?}: {why}");
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let (code, why) = into(&data, words, writer);
        assert_eq!((code, why.contains("error")), (Some(0), false), "{words:?}: {why}");
    }
}

/// F18: a token is shown once; one that nobody saw is said to be lost, with the way to another one.
#[test]
fn a_token_that_was_not_shown_is_said_to_be_lost() {
    let home = tempfile::tempdir().unwrap();
    let data = home.path().join("data");
    parked(&data);
    let create = ["token", "create", "ann", "--role", "viewer"];
    let (reader, gone) = std::io::pipe().unwrap();
    drop(reader);
    let full = File::options().write(true).open("/dev/full").unwrap();
    for out in [Stdio::from(full), Stdio::from(gone)] {
        let (code, why) = into(&data, &create, out);
        assert_eq!(code, Some(1), "{why}");
        assert!(why.contains("the token of ann cannot be written to standard output, and is lost"), "{why}");
        assert!(!why.contains("it is shown this once"), "{why}");
        let help = "token revoke ann`, then `bosun --data ";
        assert!(why.contains(help) && why.contains("token create ann` makes another one"), "{why}");
        let revoked = run(&data, &["token", "revoke", "ann"]);
        assert!(revoked.status.success(), "{}", said(&revoked));
    }
    let made = run(&data, &create);
    assert!(made.status.success() && !made.stdout.is_empty(), "{}", said(&made));
}

/// Behind what a command has shown, before its exit code.
const ENDED: &str = "the exit code is ";

/// A command on a terminal of its own, and what it shows there.
struct Terminal {
    child: Child,
    shown: Receiver<Vec<u8>>,
    text: String,
}

impl Terminal {
    /// The shell tells the command's exit code behind all that the command has shown, and stays until somebody presses return:
    /// `script` gives up ten milliseconds after its child has ended, and what is under way by then is lost.
    fn run(data: &Path, words: &str) -> Terminal {
        let command = format!("{} --data {} {words}", bosun().unwrap().display(), data.display());
        let line = format!("trap : INT; {command}; echo \"{ENDED}$?.\"; read _");
        let mut command = Command::new("script");
        command.args(["-q", "-e", "-c", &line, "/dev/null"]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.stderr(Stdio::inherit()).spawn().unwrap();
        let mut out = child.stdout.take().unwrap();
        let (send, shown) = channel();
        std::thread::spawn(move || {
            let mut part = [0; 4096];
            while let Ok(length @ 1..) = out.read(&mut part) {
                if send.send(part[..length].to_vec()).is_err() {
                    return;
                }
            }
        });
        Terminal { child, shown, text: String::new() }
    }

    fn look(&mut self) {
        match self.shown.recv_timeout(PAUSE) {
            Ok(part) => self.text.push_str(&String::from_utf8_lossy(&part)),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => std::thread::sleep(PAUSE),
        }
    }

    #[track_caller]
    fn until(&mut self, seen: impl Fn(&str) -> bool) {
        let began = Instant::now();
        while !seen(&self.text) {
            assert!(began.elapsed() < READY_MAX, "it never comes: {}", self.text);
            self.look();
        }
    }

    /// Presses Ctrl-C until it ends: its exit code, and all that it has shown. Each press throws away what the terminal has not
    /// shown yet, so there is time between two.
    #[track_caller]
    fn interrupt(mut self) -> (Option<i32>, String) {
        let (began, mut pressed) = (Instant::now(), None::<Instant>);
        loop {
            if pressed.is_none_or(|pressed| pressed.elapsed() > PRESSES) {
                pressed = Some(Instant::now());
                // It may be gone already.
                let _ = self.child.stdin.as_mut().unwrap().write_all(b"\x03");
            }
            self.look();
            if let Some((shown, code)) = self.text.split_once(ENDED)
                && let Some((code, _)) = code.split_once('.')
            {
                return (code.parse().ok(), shown.to_owned());
            }
            // The signal came before the command had begun to listen: it has ended the command, and the shell with it.
            if let Some(status) = self.child.try_wait().unwrap() {
                return (status.code(), std::mem::take(&mut self.text));
            }
            assert!(began.elapsed() < READY_MAX, "Ctrl-C does not end it: {}", self.text);
        }
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn status(data: &Path) -> String {
    let listed = object(&run(data, &["list", "--query", "WorkflowId = 'waits'", "-o", "json"]));
    listed["workflows"][0]["status"].as_str().unwrap_or_else(|| panic!("{listed}")).to_owned()
}

/// F23: who asked for the wrong thing gets out of the question, with nothing done; embedded and attached.
#[test]
fn ctrl_c_at_a_question_ends_the_command_with_nothing_done() {
    let home = tempfile::tempdir().unwrap();
    let data = home.path().join("data");
    parked(&data);
    let mut worker = None;
    for attached in [false, true] {
        if attached {
            worker = Some(WorkerProcess::start(&Program::bosun_worker().unwrap(), &data, READY_MAX).unwrap());
        }
        for words in ["terminate waits", "delete waits", "terminate --query \"WorkflowId = 'waits'\""] {
            let mut terminal = Terminal::run(&data, words);
            terminal.until(|shown| shown.contains("? [y/N] "));
            let (ended, shown) = terminal.interrupt();
            assert_eq!(ended, Some(130), "{words}: {shown}");
            assert!(shown.contains("interrupted") && shown.contains("nothing was done"), "{words}: {shown}");
            assert_eq!(status(&data), "Running", "{words}");
        }
    }
    drop(worker);
    // An input that is typed is a question, too.
    let mut typed = Terminal::run(&data, "execute kitchen-sink -w never -i -");
    let began = Instant::now();
    while !data.join("worker.json").exists() {
        assert!(began.elapsed() < READY_MAX, "it does not begin: {}", typed.text);
        typed.look();
    }
    let (ended, shown) = typed.interrupt();
    assert_eq!(ended, Some(130), "{shown}");
    let never = run(&data, &["describe", "never"]);
    assert_eq!(never.status.code(), Some(30), "{}", said(&never));
    // An answer is still one.
    let mut answered = Terminal::run(&data, "terminate waits");
    answered.until(|shown| shown.contains("? [y/N] "));
    answered.child.stdin.as_mut().unwrap().write_all(b"y\n").unwrap();
    answered.until(|shown| shown.contains("terminated waits"));
    assert_eq!(status(&data), "Terminated");
}

/// F24: what an interrupted command says of the run can be pasted; where there is no run, none is spoken of.
#[test]
fn who_interrupts_a_command_is_told_what_goes_on() {
    let home = tempfile::tempdir().unwrap();
    let data = home.path().join("data");
    parked(&data);
    let (_worker, _) = WorkerProcess::start(&Program::bosun_worker().unwrap(), &data, READY_MAX).unwrap();
    // F29: who needs the directory alone is told how to get it; no address leads around a worker.
    for verb in ["compact", "gc"] {
        let held = run(&data, &["store", verb]);
        let told = said(&held);
        assert_eq!(held.status.code(), Some(31), "{told}");
        assert!(told.contains("worker stop` ends the worker that holds it") && !told.contains("--address"), "{told}");
    }
    let named = format!("the run goes on; `bosun --data {} result waits`", data.display());
    let told = [
        ("show waits --follow", named.as_str()),
        ("list --watch", "what the worker does goes on without this command"),
    ];
    for (words, told) in told {
        let mut command = Command::new(bosun().unwrap());
        command.args(words.split(' ')).arg("--data").arg(&data).stdin(Stdio::null());
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut first = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut first).unwrap();
        kill_process(Pid::from_child(&child), Signal::INT).unwrap();
        let output = child.wait_with_output().unwrap();
        let why = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(130), "{words}: {first}{why}");
        assert!(why.contains(told), "{words}: {why}");
        assert_eq!(why.contains("result"), words.starts_with("show"), "{words}: {why}");
    }
}

/// F21: standard input without an end is refused when it is longer than any request.
#[test]
fn an_input_without_an_end_is_refused() {
    let home = tempfile::tempdir().unwrap();
    let data = home.path().join("data");
    parked(&data);
    let mut command = Command::new(bosun().unwrap());
    command.args(["start", "kitchen-sink", "-w", "never", "-i", "-", "--data"]).arg(&data);
    let output = command.stdin(File::open("/dev/zero").unwrap()).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    assert!(said(&output).contains("standard input is longer than 4194304 bytes"), "{}", said(&output));
    assert_eq!(run(&data, &["describe", "never"]).status.code(), Some(30));
}

/// F20: a home or a source tree does not become a store by a slip of the pen; what a worker or the file system makes is no
/// hindrance, nor is what somebody puts beside a store.
#[test]
fn a_directory_of_other_things_is_no_data_directory() {
    let home = tempfile::tempdir().unwrap();
    let (tree, plan) = (home.path().join("tree"), home.path().join("plan.yaml"));
    std::fs::create_dir(&tree).unwrap();
    std::fs::write(tree.join("readme"), "hi").unwrap();
    std::fs::set_permissions(&tree, std::fs::Permissions::from_mode(0o755)).unwrap();
    std::fs::write(&plan, PLAN).unwrap();
    let plan = plan.to_str().unwrap();
    let makers: [&[&str]; 4] = [
        &["run", plan],
        &["start", "kitchen-sink", "--input", PARKED],
        &["execute", "kitchen-sink", "--input", PARKED],
        &["worker", "run"],
    ];
    for words in makers {
        let refused = run(&tree, words);
        let told = said(&refused);
        assert_eq!(refused.status.code(), Some(32), "{words:?}: {told}");
        assert!(
            told.contains("error[BOSUN0050]") && told.contains("it holds other things (readme)"),
            "{words:?}: {told}"
        );
        let names: Vec<_> = std::fs::read_dir(&tree).unwrap().flatten().map(|entry| entry.file_name()).collect();
        assert_eq!(names, ["readme"], "{words:?}");
        assert_eq!(std::fs::metadata(&tree).unwrap().permissions().mode() & 0o777, 0o755, "{words:?}");
    }
    let disk = home.path().join("disk");
    std::fs::create_dir_all(disk.join("lost+found")).unwrap();
    parked(&disk);
    std::fs::write(disk.join("notes"), "of its owner").unwrap();
    let again = run(&disk, &["start", "kitchen-sink", "--input", PARKED]);
    assert!(again.status.success(), "{}", said(&again));
}

/// F19: a history file is exported in other forms like the run that it is of.
#[test]
fn a_history_file_is_exported_like_a_run() {
    let home = tempfile::tempdir().unwrap();
    let (data, file) = (home.path().join("data"), home.path().join("h.json"));
    let ended = run(&data, &["execute", "kitchen-sink", "-w", "done", "--input", r#"{"steps": []}"#]);
    assert!(ended.status.success(), "{}", said(&ended));
    let (file, nowhere) = (file.to_str().unwrap(), home.path().join("nowhere"));
    assert!(run(&data, &["export", "done", "--out", file]).status.success());
    for form in ["json", "temporal", "html", "mermaid", "perfetto"] {
        let [of_run, of_file] =
            [(&data, "done"), (&nowhere, file)].map(|(data, of)| run(data, &["export", of, "--as", form]));
        assert!(of_run.status.success() && of_file.status.success(), "{form}: {}", said(&of_file));
        assert!(!of_run.stdout.is_empty() && of_run.stdout == of_file.stdout, "{form}");
    }
    assert!(!nowhere.exists());
    // F30: what keeps nothing says so.
    let again = run(&data, &["reset", "done", "--to", "first-turn", "--dry-run"]);
    assert!(again.status.success() && !said(&again).contains("events 1 to 0"), "{}", said(&again));
    assert!(said(&again).contains("nothing: it begins anew"), "{}", said(&again));
    assert!(said(&again).contains("the beginning of run"), "{}", said(&again));
}
