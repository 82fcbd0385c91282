//! A Temporal cluster as the engine: beyond one machine, with the same workflows, activities and commands.
//!
//! ```text
//!   worker:  cluster ◄─► Core ─► activation ─► run (driver of `bosun-engine`) ─► commands ─► Core
//!                         └────► activity task ─► the functions of the App ─► completion
//!   client:  command line ─► `Backend` ─► requests to the cluster
//! ```
//!
//! Invariant: this is the only module that names Temporal's crates. What the embedded engine does around the driver (ids,
//! retries, timeouts, cancellation, the fate of children, updates, patches) is the cluster's affair here: options go along, no
//! behaviour is copied. The driver learns nothing of protocol buffers, and cannot tell where it runs. Nothing home-made
//! distributes anything.

mod activities;
mod backend;
mod connect;
mod convert;
pub(crate) mod engine;
mod external;
mod history;
mod run;
mod threads;
mod unfit;
mod worker;

use std::time::Duration;

use crate::agent::workflow::AGENT_MODEL;
use crate::capability::compose::COMPOSE;
use crate::capability::file::FILE;
use crate::capability::http::HTTP;
use crate::capability::model::MODEL;
use crate::capability::process::PROCESS;
use crate::capability::scripted::SCRIPTED;

pub use backend::ClusterBackend;
pub use connect::{ConnectError, connect, namespace_of};
pub(crate) use external::count as count_payloads;
pub use worker::{ClusterWorker, ClusterWorkerOptions};

/// The local activity that brings a side effect into history: it gives back what it is given.
const SIDE_EFFECT: &str = "bosun.side_effect";
/// The header of a continued run with the signals that the run before did not take.
const CARRIED_SIGNALS: &str = "bosun-carried-signals";
/// The header with our number of the command that asked for an activity, a child or a signal.
const SEQ: &str = "bosun-seq";
/// The header of an activity whose worker says by itself that it lives: where nothing is heard of it, it is gone.
const BEATS: &str = "bosun-beats";
/// The type of the failure of an attempt that the worker left behind as it drained.
const WORKER_SHUTDOWN: &str = "WorkerShutdown";
/// For so long; Core sends what is said in time.
const BEAT_TIMEOUT: Duration = Duration::from_secs(60);
/// Core sends what is said so often at most: a server that is away for a moment does not make live attempts look dead.
const BEAT_EVERY: Duration = Duration::from_secs(5);
/// The activities for which workers do that, on the queue of their run: ours, which are never completed from outside, and for which
/// nobody says another timeout. On another queue others may have activities of these names.
const BEATEN: [&str; 9] = [COMPOSE, FILE, HTTP, PROCESS, AGENT_MODEL, MODEL, SCRIPTED, "mcp", "mcp_tools"];
/// Asks any run for its state as JSON.
const QUERY_STATE: &str = "__bosun_state";
/// Asks any run for what it waits for.
const QUERY_AWAITING: &str = "__bosun_awaiting";
/// The same for people, under the name that Temporal's tools ask for.
const QUERY_STACK: &str = "__stack_trace";
/// The source of the failure of an update that its validator has refused.
const REFUSED_BY_VALIDATOR: &str = "Bosun: refused by the validator";
/// Of a thread of workflow code, which may nest deeply; only what it uses of this is taken of the machine.
const STACK: usize = 64 * 1024 * 1024;
/// The largest payload that a cluster takes.
const PAYLOAD_MAX: usize = 2 * 1024 * 1024;
/// The largest message.
const MESSAGE_MAX: usize = 4 * 1024 * 1024;
