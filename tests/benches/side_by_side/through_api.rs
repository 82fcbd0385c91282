//! The same work through the HTTP API: a worker in a process of its own, as `worker run` starts it, and the client that the
//! command line uses.
//!
//! The worker is this program again, so that it has the workflows of the bench; everything else of it is what ships, its
//! defaults included. It is killed when the bench drops it.

use std::ffi::OsString;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use bosun_engine::*;
use bosun_worker::App;
use bosun_worker::api::{HttpClient, Token, WorkerFile};
use bosun_worker::backend::Backend;
use futures_util::StreamExt;
use serde::Serialize;

const CHILD: &str = "BOSUN_BENCH_WORKER";
/// A worker is ready within this time, or something is wrong.
const READY_MAX: Duration = Duration::from_secs(30);

/// If this process is the worker: serves until it is killed.
pub(crate) fn child() -> bool {
    let Ok(arguments) = std::env::var(CHILD) else { return false };
    let arguments = std::iter::once("bench").chain(arguments.split('\n')).map(OsString::from);
    let app = App::new().workflows(|_| super::flows::workflows()).activities(super::flows::activities);
    let ended = app.version("bench").run(arguments);
    panic!("the worker ended: {ended:?}");
}

/// A worker and its client.
pub(crate) struct Remote<'a> {
    runtime: &'a tokio::runtime::Runtime,
    worker: Child,
    file: WorkerFile,
    client: HttpClient,
    runs: std::cell::Cell<u64>,
    _directory: tempfile::TempDir,
}

impl Drop for Remote<'_> {
    fn drop(&mut self) {
        // It may have ended already; then there is nothing to end.
        let _ = self.worker.kill();
        let _ = self.worker.wait();
    }
}

impl<'a> Remote<'a> {
    /// With further options of `worker run`.
    pub(crate) fn start(runtime: &'a tokio::runtime::Runtime, options: &[&str]) -> Self {
        Self::start_in(runtime, options, &[])
    }

    /// In another environment, too.
    pub(crate) fn start_in(
        runtime: &'a tokio::runtime::Runtime,
        options: &[&str],
        environment: &[(&str, String)],
    ) -> Self {
        let directory = tempfile::tempdir_in(super::flows::bench_dir()).expect("a directory");
        let data = directory.path().to_str().expect("a path in UTF-8");
        let arguments: Vec<&str> = ["worker", "run", "--data", data].iter().chain(options).copied().collect();
        let worker = Command::new(std::env::current_exe().expect("this program"))
            .env(CHILD, arguments.join("\n"))
            .envs(environment.iter().map(|(name, value)| (name, value)))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("a worker");
        let begun = Instant::now();
        let file = loop {
            match WorkerFile::read(directory.path()) {
                Some(file) => break file,
                None if begun.elapsed() > READY_MAX => panic!("the worker is not ready after {READY_MAX:?}"),
                None => std::thread::sleep(Duration::from_millis(5)),
            }
        };
        let token = Token::read(&file.token_file).expect("a token");
        let client = {
            let _inside = runtime.enter();
            HttpClient::new(&file.address, token, &file.token_file.display().to_string()).expect("a client")
        };
        let remote = Remote { runtime, worker, file, client, runs: std::cell::Cell::new(0), _directory: directory };
        remote.run_many("steps", 1, 20u64); // warm
        remote
    }

    pub(crate) fn pid(&self) -> u32 {
        self.worker.id()
    }

    /// Where it is asked, and with which token.
    pub(crate) fn door(&self) -> (String, String) {
        let token = std::fs::read_to_string(&self.file.token_file).expect("a token");
        (self.file.address.clone(), token.trim().to_owned())
    }

    fn next_id(&self) -> WorkflowId {
        self.runs.set(self.runs.get() + 1);
        WorkflowId::of(format!("bench-{}", self.runs.get()))
    }

    async fn one(client: &HttpClient, workflow_type: &str, id: WorkflowId, input: impl Serialize) {
        let start = StartWorkflow::new(workflow_type.into(), id.clone()).input(Payload::encode(&input).expect("json"));
        client.start(start).await.expect("a start");
        let wait = ResultRequest { follow_runs: true, timeout: None };
        let result = client.result(Target::workflow(id), wait).await.expect("a result").expect("no timeout");
        assert_eq!(result.outcome.status(), WorkflowStatus::Completed, "{:?}", result.outcome);
    }

    pub(crate) fn run_many<I>(&self, workflow_type: &'static str, runs: usize, input: I)
    where
        I: Serialize + Clone + Send + Sync + 'static,
    {
        let ids: Vec<WorkflowId> = (0..runs).map(|_| self.next_id()).collect();
        self.runtime.block_on(async {
            let one = |id| {
                let (client, input) = (self.client.clone(), input.clone());
                tokio::spawn(async move { Self::one(&client, workflow_type, id, input).await })
            };
            for task in ids.into_iter().map(one).collect::<Vec<_>>() {
                task.await.expect("a run");
            }
        });
    }

    /// From sending a signal to the end of the run that waits for it, after a rest.
    pub(crate) fn signal_to_completion(&self, times: usize, rest: Duration) -> Vec<Duration> {
        let client = &self.client;
        let one = |_| {
            let (id, target) = (self.next_id(), Target::workflow(format!("bench-{}", self.runs.get()).as_str().into()));
            self.runtime.block_on(async {
                let start = StartWorkflow::new("wait".into(), id).input(Payload::raw_json("0"));
                client.start(start).await.expect("a start");
                std::thread::sleep(rest);
                let begun = Instant::now();
                let input = Payload::raw_json("1");
                let signal = SignalRequest { name: "go".into(), input, identity: None, request_id: None };
                client.signal(target.clone(), signal).await.expect("a signal");
                let wait = ResultRequest { follow_runs: true, timeout: None };
                client.result(target, wait).await.expect("a result");
                begun.elapsed()
            })
        };
        (0..times).map(one).collect()
    }

    /// Runs that wait for ever are started, `at_once` at a time; starts a second.
    pub(crate) fn starts(&self, count: usize, at_once: usize) -> f64 {
        let ids: Vec<WorkflowId> = (0..count).map(|_| self.next_id()).collect();
        let client = &self.client;
        let time = super::timed(|| {
            self.runtime.block_on(async {
                let starts = ids.into_iter().map(|id| async move {
                    let start = StartWorkflow::new("wait".into(), id).input(Payload::raw_json("0"));
                    client.start(start).await.expect("a start");
                });
                futures_util::stream::iter(starts).buffer_unordered(at_once).for_each(|()| async {}).await;
            });
        });
        count as f64 / time.as_secs_f64()
    }
}
