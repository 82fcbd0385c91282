//! The server, the binary and workers of a scene.
//!
//! Invariant: whatever was started is ended by its process id when its handle is dropped. Each wait is bounded, generously.

use std::fs::File;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

/// No wait is longer: the machine may be busy.
pub(super) const PATIENCE: Duration = Duration::from_secs(120);

/// Polls of the server's own queues: without these each sequential step takes 100 ms.
const TUNED: [&str; 5] = [
    "history.transferProcessorMaxPollRPS=100000",
    "history.timerProcessorMaxPollRPS=100000",
    "history.visibilityProcessorMaxPollRPS=100000",
    "matching.numTaskqueueReadPartitions=1",
    "matching.numTaskqueueWritePartitions=1",
];

pub(super) struct Cluster {
    server: Mutex<Option<Child>>,
    port: u16,
    pub(super) address: String,
    pub(super) folder: TempDir,
    temporal: PathBuf,
    counted: AtomicUsize,
}

/// A worker process of ours.
pub(super) struct Worker {
    child: Child,
    log: PathBuf,
}

fn temporal() -> Option<PathBuf> {
    let go = std::env::var_os("GOPATH").map(|path| PathBuf::from(path).join("bin"));
    let home = std::env::var_os("HOME").map(|home| PathBuf::from(home).join("go/bin"));
    let target = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/temporal/bin");
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = [Some(target), go, home].into_iter().flatten().chain(std::env::split_paths(&path));
    let named = std::env::var_os("BOSUN_TEMPORAL_CLI").map(PathBuf::from);
    named.into_iter().chain(folders.map(|folder| folder.join("temporal"))).find(|file| file.is_file())
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

impl Cluster {
    /// Nothing, where there is no server to start.
    pub(super) fn start() -> Option<Cluster> {
        let temporal = temporal()?;
        let folder = tempfile::tempdir().unwrap();
        let port = free_port();
        let address = format!("127.0.0.1:{port}");
        let (server, counted) = (Mutex::default(), AtomicUsize::new(0));
        let cluster = Cluster { server, port, address, folder, temporal, counted };
        cluster.start_server();
        Some(cluster)
    }

    /// Starts the server, over what another has left, and waits for it.
    pub(super) fn start_server(&self) {
        let Cluster { folder, port, temporal, .. } = self;
        let mut command = Command::new(temporal);
        command.args(["server", "start-dev", "--headless", "--ip", "127.0.0.1", "--log-level", "error", "--port"]);
        command.arg(port.to_string()).arg("--db-filename").arg(folder.path().join("cluster.db"));
        command.args(["--search-attribute", "CustomKeywordField=Keyword", "--search-attribute", "n=Int"]);
        TUNED.iter().for_each(|value| _ = command.args(["--dynamic-config-value", value]));
        let log = File::options().create(true).append(true).open(folder.path().join("server.log")).unwrap();
        let server = command.stdout(log.try_clone().unwrap()).stderr(log).stdin(Stdio::null()).spawn().unwrap();
        *self.server.lock().unwrap() = Some(server);
        self.until("the server answers", || {
            let mut health = Command::new(&self.temporal);
            health.args(["operator", "cluster", "health", "--address", &self.address]);
            health.output().unwrap().status.success().then_some(())
        });
    }

    /// As SIGKILL does.
    pub(super) fn kill_server(&self) {
        if let Some(mut server) = self.server.lock().unwrap_or_else(PoisonError::into_inner).take() {
            let _ = server.kill();
            let _ = server.wait();
        }
    }

    /// A name that no other scene has.
    pub(super) fn name(&self, of: &str) -> String {
        format!("{of}-{}", self.counted.fetch_add(1, Ordering::Relaxed))
    }

    /// Asks until there is an answer.
    pub(super) fn until<T>(&self, what: &str, ask: impl FnMut() -> Option<T>) -> T {
        self.until_within(PATIENCE, what, ask)
    }

    /// The same, of work that takes longer.
    pub(super) fn until_within<T>(&self, patience: Duration, what: &str, mut ask: impl FnMut() -> Option<T>) -> T {
        let began = Instant::now();
        loop {
            if let Some(answer) = ask() {
                return answer;
            }
            assert!(began.elapsed() < patience, "waited {} s in vain until {what}", patience.as_secs());
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    fn bosun(&self, data: &Path) -> Command {
        self.program(Path::new(env!("CARGO_BIN_EXE_bosun")), data)
    }

    fn program(&self, file: &Path, data: &Path) -> Command {
        let mut command = Command::new(file);
        command
            .current_dir(self.folder.path())
            .arg("--data")
            .arg(data)
            .env_remove("BOSUN_TEMPORAL")
            .env_remove("TEMPORAL_NAMESPACE")
            .stdin(Stdio::null());
        command
    }

    /// A command on the cluster.
    pub(super) fn run(&self, args: &[&str]) -> Output {
        let data = self.folder.path().join("client");
        self.bosun(&data).args(["--temporal", &self.address]).args(args).output().unwrap()
    }

    /// The same, left to itself.
    pub(super) fn spawn(&self, args: &[&str]) -> Worker {
        let log = self.folder.path().join(format!("{}.log", self.name("spawned")));
        let file = File::create(&log).unwrap();
        let mut command = self.bosun(&self.folder.path().join("client"));
        command.args(["--temporal", &self.address]).args(args).stdout(file.try_clone().unwrap()).stderr(file);
        Worker { child: command.spawn().unwrap(), log }
    }

    /// A command on the cluster, where the environment of Temporal's tools names this namespace.
    pub(super) fn run_where(&self, namespace: &str, args: &[&str]) -> Output {
        let data = self.folder.path().join("client");
        let mut command = self.bosun(&data);
        command.env("TEMPORAL_NAMESPACE", namespace).args(["--temporal", &self.address]).args(args);
        command.output().unwrap()
    }

    /// A command that finds the cluster by what this environment says.
    pub(super) fn run_by(&self, environment: &[(&str, &str)], args: &[&str]) -> Output {
        let data = self.folder.path().join("client");
        self.bosun(&data).envs(environment.iter().copied()).args(args).output().unwrap()
    }

    /// A worker that finds the cluster by what this environment says.
    pub(super) fn worker_found_by(&self, environment: &[(&str, &str)], queue: &str, address: &str) -> Worker {
        let program = |data: &Path| {
            let mut program = self.bosun(data);
            program.envs(environment.iter().copied());
            program
        };
        self.worker_at(address, program, queue, &[])
    }

    /// A command on the cluster that succeeds, and its JSON.
    pub(super) fn json(&self, args: &[&str]) -> Value {
        json_of(&[args, &["-o", "json"]].concat(), &self.run(&[args, &["-o", "json"]].concat()))
    }

    /// The same command on the embedded engine.
    pub(super) fn embedded(&self, data: &str, args: &[&str]) -> Output {
        self.bosun(&self.folder.path().join(data)).args(args).output().unwrap()
    }

    /// A command of Temporal's own tool.
    pub(super) fn temporal(&self, args: &[&str]) -> Output {
        Command::new(&self.temporal).args(args).args(["--address", &self.address]).output().unwrap()
    }

    /// A worker of a queue, once it is ready.
    pub(super) fn worker(&self, queue: &str, more: &[&str]) -> Worker {
        self.worker_by(|data| self.bosun(data), queue, more)
    }

    /// A worker that is a user's own program, in one of its builds.
    pub(super) fn worker_of(&self, build: &str, queue: &str) -> Worker {
        self.worker_of_with(build, queue, &[])
    }

    /// As [`Self::worker_of`], with more options.
    pub(super) fn worker_of_with(&self, build: &str, queue: &str, more: &[&str]) -> Worker {
        let own = std::env::current_exe().unwrap();
        let program = |data: &Path| {
            let mut program = self.program(&own, data);
            program.env(super::code::CODE, build);
            program
        };
        self.worker_by(program, queue, more)
    }

    fn worker_by(&self, program: impl Fn(&Path) -> Command, queue: &str, more: &[&str]) -> Worker {
        self.worker_at(&self.address, program, queue, more)
    }

    fn worker_at(&self, address: &str, program: impl Fn(&Path) -> Command, queue: &str, more: &[&str]) -> Worker {
        let name = self.name("worker");
        let data = self.folder.path().join(&name);
        let log = self.folder.path().join(format!("{name}.log"));
        let file = File::create(&log).unwrap();
        let mut command = program(&data);
        command.args(["worker", "run", "--temporal", address, "--task-queue", queue]).args(more);
        let child = command.stdout(file.try_clone().unwrap()).stderr(file).spawn().unwrap();
        let mut worker = Worker { child, log };
        self.until("the worker is ready", || {
            let log = worker.log();
            if let Some(status) = worker.child.try_wait().unwrap() {
                panic!("the worker ended with {status}: {log}");
            }
            log.contains("works for the Temporal cluster").then_some(())
        });
        worker
    }

    /// Starts a kitchen-sink program.
    pub(super) fn start_program(&self, queue: &str, id: &str, program: &Value) {
        let input = program.to_string();
        self.json(&["start", "kitchen-sink", "-w", id, "--task-queue", queue, "--input", &input]);
    }
    /// Waits for the result of a run; the exit code and what was printed.
    pub(super) fn result(&self, id: &str) -> (i32, Value) {
        let output = self.run(&["result", "-w", id, "-o", "json", "--timeout", "110s"]);
        (
            output.status.code().unwrap_or(-1),
            serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", shown(&output))),
        )
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.kill_server();
    }
}

impl Worker {
    pub(super) fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }
    /// As SIGKILL does.
    pub(super) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
    /// As an operator does: drains. The exit code.
    pub(super) fn term(mut self) -> i32 {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
        let began = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status.code().unwrap_or(-1);
            }
            assert!(began.elapsed() < PATIENCE, "the worker does not drain: {}", self.log());
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            eprintln!("--- the worker said:\n{}", self.log());
        }
    }
}

pub(super) fn shown(output: &Output) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    format!("{}\n{}{}", output.status, text(&output.stdout), text(&output.stderr))
}

fn json_of(args: &[&str], output: &Output) -> Value {
    assert!(output.status.success(), "{args:?}: {}", shown(output));
    serde_json::from_slice(&output.stdout).unwrap_or_else(|why| panic!("{args:?}: {why}: {}", shown(output)))
}
