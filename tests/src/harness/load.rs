//! Load: clients that start workflows and signal them, over any number of deaths of the worker.
//!
//! Invariant: each client does one operation after the other and repeats one, under the same request id, until it is
//! acknowledged; so a sender's signals must stand in order in the history. A refusal other than "not now" ends the load
//! with an error. Clients learn of a new worker through [`Load::worker_is`] and never guess.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use serde_json::json;

use super::http::{Endpoint, Http, Reply};
use super::ledger::{Ledger, Operation};
use super::process::REQUEST_MAX;
use super::{Chance, workload};

/// What the clients do.
#[derive(Debug, Clone)]
pub struct Shape {
    /// Begins the workflow ids; differs between loads on one ledger.
    pub prefix: String,
    pub clients: u32,
    pub signals: u32,
    /// Some signals are that large: big values take another way through storage than small ones.
    pub large_bytes: usize,
    /// Each client stops by itself after that many workflows.
    pub workflows_max: u32,
    /// Whether a workflow that got all its signals must come to its end; a double runs none.
    pub completes: bool,
}

impl Default for Shape {
    fn default() -> Shape {
        Shape {
            prefix: "w".into(),
            clients: 8,
            signals: 6,
            large_bytes: 150 << 10,
            workflows_max: u32::MAX,
            completes: true,
        }
    }
}

/// Running clients, stopped on drop.
#[derive(Debug)]
pub struct Load {
    shared: Arc<Shared>,
    clients: Vec<JoinHandle<io::Result<()>>>,
}

#[derive(Debug)]
struct Shared {
    shape: Shape,
    ledger: Arc<Ledger>,
    worker: Mutex<Option<Endpoint>>,
    stop: AtomicBool,
    /// The longest time one request took, whatever came of it, in microseconds.
    slowest: AtomicU64,
}

impl Load {
    /// Starts the clients; they wait for a worker.
    pub fn start(ledger: Arc<Ledger>, shape: Shape) -> Load {
        let clients = shape.clients;
        let shared = Arc::new(Shared {
            shape,
            ledger,
            worker: Mutex::new(None),
            stop: AtomicBool::new(false),
            slowest: AtomicU64::new(0),
        });
        let client = |number| {
            let shared = shared.clone();
            std::thread::spawn(move || Client { shared, number, http: None }.run())
        };
        let clients = (0..clients).map(client).collect();
        Load { shared, clients }
    }

    pub fn worker_is(&self, endpoint: &Endpoint) {
        *self.shared.worker.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) = Some(endpoint.clone());
    }

    pub fn slowest_request(&self) -> Duration {
        Duration::from_micros(self.shared.slowest.load(Ordering::Relaxed))
    }

    /// Stops the clients where they are and gives the first error one of them met.
    pub fn stop(mut self) -> io::Result<()> {
        self.shared.stop.store(true, Ordering::Relaxed);
        self.join()
    }

    /// Waits until every client has done its workflows.
    pub fn finish(mut self) -> io::Result<()> {
        self.join()
    }

    fn join(&mut self) -> io::Result<()> {
        let ended = self.clients.drain(..).map(|client| match client.join() {
            Ok(result) => result,
            Err(_) => Err(io::Error::other("a client of the load panicked")),
        });
        ended.collect::<Vec<_>>().into_iter().collect()
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        // The error belongs to whoever calls `stop`; here only the threads must end.
        let _ = self.join();
    }
}

struct Client {
    shared: Arc<Shared>,
    number: u32,
    http: Option<Http>,
}

impl Client {
    fn run(mut self) -> io::Result<()> {
        let Shape { prefix, signals, large_bytes, workflows_max, .. } = self.shared.shape.clone();
        let sender = format!("client-{}", self.number);
        for workflow in 0..workflows_max {
            let id = format!("{prefix}-{}-{workflow}", self.number);
            let start = workload::mixed(&id, signals);
            self.until_acknowledged(&id, &Operation::Start, |http| http.start(&start).map(|_| ()))?;
            for number in 1..=signals {
                // Of three kinds: those that the database takes, those that lie beside it, and blobs.
                let length = match (workflow + number) % 17 {
                    0 => large_bytes,
                    1 | 5 | 9 | 13 => 3_000,
                    _ => 40,
                };
                // In no order, so that none gets much smaller.
                let mut chance = Chance::new(u64::from(workflow * 64 + number));
                let input = json!((0..length).map(|_| char::from(b'0' + chance.below(75) as u8)).collect::<String>());
                let operation = Operation::Signal { sender: sender.clone(), number };
                let request_id = operation.request_id();
                let send = |http: &Http| http.signal(&id, workload::SIGNAL, &input, &request_id);
                if !self.until_acknowledged(&id, &operation, send)? {
                    break;
                }
            }
            if self.stopped() {
                break;
            }
        }
        Ok(())
    }

    fn stopped(&self) -> bool {
        self.shared.stop.load(Ordering::Relaxed)
    }

    /// Repeats the operation until the answer is yes, or the load is stopped. False: the worker knows no such workflow,
    /// so its acknowledged start was lost; the comparison will say so, and the client goes on with the next one.
    fn until_acknowledged(
        &mut self,
        workflow_id: &str,
        operation: &Operation,
        send: impl Fn(&Http) -> Reply<()>,
    ) -> io::Result<bool> {
        let shared = self.shared.clone();
        while !self.stopped() {
            let Some(http) = self.worker() else {
                std::thread::sleep(Duration::from_millis(2));
                continue;
            };
            shared.ledger.attempt(workflow_id, operation)?;
            let began = Instant::now();
            let reply = send(http);
            let took = u64::try_from(began.elapsed().as_micros()).unwrap_or(u64::MAX);
            shared.slowest.fetch_max(took, Ordering::Relaxed);
            match reply {
                Reply::Acknowledged(()) => return shared.ledger.acknowledge(workflow_id, operation).map(|()| true),
                // Overloaded, draining, storage full or failed: not done, may be asked again.
                Reply::Refused(answer) if matches!(answer.status, 429 | 503 | 507) => {}
                Reply::Refused(answer) if answer.status == 404 => return Ok(false),
                Reply::Refused(answer) => {
                    let what = operation.request_id();
                    let body = String::from_utf8_lossy(&answer.body).into_owned();
                    return Err(io::Error::other(format!(
                        "{workflow_id} {what} refused with {}: {body}",
                        answer.status
                    )));
                }
                Reply::Unknown(_) => {}
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        Ok(true)
    }

    /// A connection to the worker of now.
    fn worker(&mut self) -> Option<&Http> {
        let now = self.shared.worker.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).clone()?;
        if self.http.as_ref().is_none_or(|http| http.endpoint != now) {
            self.http = Some(Http::new(now, REQUEST_MAX));
        }
        self.http.as_ref()
    }
}
