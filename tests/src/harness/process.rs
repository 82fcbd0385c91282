//! Worker processes: start one on a data directory, wait until it answers, send it signals, kill it.
//!
//! Invariant: only the process started here is ever signalled, by its id; it never outlives its [`WorkerProcess`]. What
//! it prints is kept up to a bound. The programs are those of this source tree, built beside the tests.

use std::ffi::OsString;
use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use super::http::{Endpoint, Http};

/// How much of each output stream is kept: the last of it.
const OUTPUT_MAX: usize = 256 << 10;
/// How long one request may take before it counts as hung. G4 says 10 s of a machine that has time for it; one
/// that builds beside the tests takes longer for what does not hang.
pub const REQUEST_MAX: Duration = Duration::from_secs(60);

/// What to start: `wrapper.. executable arguments.. --data DIR`.
#[derive(Debug, Clone)]
pub struct Program {
    pub wrapper: Vec<OsString>,
    pub executable: PathBuf,
    pub arguments: Vec<OsString>,
    pub environment: Vec<(OsString, OsString)>,
}

impl Program {
    pub fn new(executable: impl Into<PathBuf>, arguments: &[&str]) -> Program {
        Program {
            wrapper: Vec::new(),
            executable: executable.into(),
            arguments: arguments.iter().map(OsString::from).collect(),
            environment: Vec::new(),
        }
    }
    /// `bosun worker run` of this source tree.
    pub fn bosun_worker() -> io::Result<Program> {
        Ok(Program::new(bosun()?, &["worker", "run"]))
    }
    /// The same program under a wrapper such as [`super::faults::Injection::wrapper`].
    pub fn wrapped(mut self, wrapper: Vec<OsString>) -> Program {
        self.wrapper = wrapper;
        self
    }
    pub fn env(mut self, name: &str, value: &str) -> Program {
        self.environment.push((name.into(), value.into()));
        self
    }
}

/// `bosun`, from the main file of the program that ships. Seeded bugs are compiled in, and none is on that is not named in
/// `BOSUN_SEEDED_BUG`; so one build serves every test.
pub fn bosun() -> io::Result<PathBuf> {
    example("bosun")
}

/// An example of the test crate, which `cargo test` builds beside the tests. A binary it would not do: `cargo run` at
/// the top must mean `bosun`.
pub fn example(name: &str) -> io::Result<PathBuf> {
    static BUILT: OnceLock<Result<(), String>> = OnceLock::new();
    BUILT.get_or_init(|| build().map_err(|why| why.to_string())).clone().map_err(io::Error::other)?;
    let test = std::env::current_exe()?;
    let example = test.ancestors().nth(2).map(|profile| profile.join("examples").join(name)).unwrap_or_default();
    if example.is_file() {
        return Ok(example);
    }
    Err(io::Error::new(io::ErrorKind::NotFound, format!("{} is missing", example.display())))
}

/// Set for a test that is run by another one, which has seen to the examples.
pub const BUILT: &str = "BOSUN_EXAMPLES_BUILT";

/// Has cargo look whether the examples are those of this source tree: `cargo test --test main` builds none. Where they
/// are, as after `cargo test --workspace`, nothing is built.
fn build() -> io::Result<()> {
    if std::env::var_os(BUILT).is_some() {
        return Ok(());
    }
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["build", "--package", "bosun-tests", "--examples"]);
    if !cfg!(debug_assertions) {
        cargo.arg("--release");
    }
    // What cargo tells the tests about their own package would make it rebuild crates whose build scripts look at it
    // (ring does), here and again in the next `cargo test`.
    for (name, _) in std::env::vars_os() {
        let name = name.to_string_lossy();
        if ["CARGO_PKG_", "CARGO_MANIFEST_", "CARGO_BIN_", "CARGO_CRATE_"].iter().any(|start| name.starts_with(start)) {
            cargo.env_remove(&*name);
        }
    }
    let output = cargo.current_dir(env!("CARGO_MANIFEST_DIR")).stdout(Stdio::null()).output()?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(io::Error::other(format!("the programs of the tests do not build:\n{said}")));
    }
    Ok(())
}

/// What clients read from `<data>/worker.json`.
#[derive(Debug, serde::Deserialize)]
struct WorkerFile {
    pid: u32,
    address: String,
    token_file: PathBuf,
}

/// A running worker, killed on drop.
#[derive(Debug)]
pub struct WorkerProcess {
    child: Child,
    data: PathBuf,
    stdout: Output,
    stderr: Output,
    started: Instant,
}

impl WorkerProcess {
    /// Starts the program on a data directory and does not wait for it.
    pub fn spawn(program: &Program, data: &Path) -> io::Result<WorkerProcess> {
        let mut words = program.wrapper.clone();
        words.push(program.executable.clone().into());
        words.extend(program.arguments.iter().cloned());
        words.extend(["--data".into(), data.as_os_str().to_owned()]);
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).envs(program.environment.iter().map(|(name, value)| (name, value)));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(|why| io::Error::new(why.kind(), format!("{command:?}: {why}")))?;
        let stdout = Output::collect(child.stdout.take());
        let stderr = Output::collect(child.stderr.take());
        Ok(WorkerProcess { child, data: data.to_owned(), stdout, stderr, started: Instant::now() })
    }

    /// Starts the program and waits until it answers.
    pub fn start(program: &Program, data: &Path, patience: Duration) -> io::Result<(WorkerProcess, Http)> {
        let mut worker = WorkerProcess::spawn(program, data)?;
        let http = worker.wait_ready(patience)?;
        Ok((worker, http))
    }

    /// Waits until `worker.json` names this process and `/healthz` answers 200.
    pub fn wait_ready(&mut self, patience: Duration) -> io::Result<Http> {
        let until = Instant::now() + patience;
        loop {
            if let Some(status) = self.wait(Duration::ZERO)? {
                return Err(io::Error::other(format!(
                    "the worker ended before it was ready: {status}\n{}",
                    self.said()
                )));
            }
            let why = match self.answers() {
                Ok(http) => return Ok(http),
                Err(why) => why,
            };
            if Instant::now() >= until {
                return Err(io::Error::other(format!(
                    "the worker is not ready after {patience:?}: {why}\n{}",
                    self.said()
                )));
            }
            std::thread::sleep(Duration::from_millis(3));
        }
    }

    fn answers(&self) -> io::Result<Http> {
        let http = Http::new(self.endpoint()?, REQUEST_MAX);
        match http.healthz()? {
            200 => Ok(http),
            status => Err(io::Error::other(format!("/healthz answers {status}"))),
        }
    }

    /// Where this very process says it answers. A file of an earlier process does not count.
    pub fn endpoint(&self) -> io::Result<Endpoint> {
        let file = self.data.join("worker.json");
        let bytes = fs::read(&file).map_err(|why| io::Error::new(why.kind(), format!("{}: {why}", file.display())))?;
        let worker: WorkerFile = serde_json::from_slice(&bytes)?;
        if worker.pid != self.child.id() {
            return Err(io::Error::other(format!("worker.json is of process {}, not {}", worker.pid, self.child.id())));
        }
        let token_file = self.data.join(&worker.token_file);
        let token = fs::read_to_string(&token_file)
            .map_err(|why| io::Error::new(why.kind(), format!("{}: {why}", token_file.display())))?;
        let address = worker.address.trim_start_matches("http://").trim_end_matches('/').to_owned();
        Ok(Endpoint { address, token: token.trim().to_owned() })
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }
    pub fn uptime(&self) -> Duration {
        self.started.elapsed()
    }

    pub fn signal(&self, signal: Signal) -> io::Result<()> {
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        Ok(kill_process(pid.ok_or_else(|| io::Error::other("not a process id"))?, signal)?)
    }

    /// Asks for a graceful drain.
    pub fn terminate(&self) -> io::Result<()> {
        self.signal(Signal::TERM)
    }

    /// `kill -9`, and the end of the process.
    pub fn kill(&mut self) -> io::Result<ExitStatus> {
        self.child.kill()?;
        let status = self.child.wait()?;
        self.read_to_end();
        Ok(status)
    }

    /// The exit status if the process ends in time.
    pub fn wait(&mut self, patience: Duration) -> io::Result<Option<ExitStatus>> {
        let until = Instant::now() + patience;
        loop {
            match self.child.try_wait()? {
                None if Instant::now() < until => std::thread::sleep(Duration::from_millis(3)),
                None => return Ok(None),
                Some(status) => {
                    self.read_to_end();
                    return Ok(Some(status));
                }
            }
        }
    }

    /// What an ended process said last may still be in the pipes. A grandchild that holds them open is not waited for.
    fn read_to_end(&self) {
        let until = Instant::now() + Duration::from_millis(500);
        while !(self.stdout.ended() && self.stderr.ended()) && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    pub fn stdout(&self) -> String {
        self.stdout.text()
    }
    pub fn stderr(&self) -> String {
        self.stderr.text()
    }
    /// Both outputs, for the messages of failed tests.
    pub fn said(&self) -> String {
        format!("--- stdout\n{}\n--- stderr\n{}", self.stdout(), self.stderr())
    }
}

impl Drop for WorkerProcess {
    fn drop(&mut self) {
        // After a wait both do nothing: the standard library never signals a process id that was given back.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The last part of an output stream, read by a thread so that the process never blocks on a full pipe.
#[derive(Debug)]
struct Output {
    kept: Arc<Mutex<Vec<u8>>>,
    /// Ends when the last process that holds the pipe has closed it.
    reader: Option<JoinHandle<()>>,
}

impl Output {
    fn collect(stream: Option<impl Read + Send + 'static>) -> Output {
        let kept = Arc::new(Mutex::new(Vec::new()));
        let reader = stream.map(|mut stream| {
            let kept = kept.clone();
            std::thread::spawn(move || {
                let mut chunk = [0; 8 << 10];
                while let Ok(length @ 1..) = stream.read(&mut chunk) {
                    let mut kept = kept.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
                    kept.extend_from_slice(&chunk[..length]);
                    let surplus = kept.len().saturating_sub(OUTPUT_MAX);
                    kept.drain(..surplus);
                }
            })
        });
        Output { kept, reader }
    }
    fn ended(&self) -> bool {
        self.reader.as_ref().is_none_or(JoinHandle::is_finished)
    }
    fn text(&self) -> String {
        let kept = self.kept.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        String::from_utf8_lossy(&kept).into_owned()
    }
}
