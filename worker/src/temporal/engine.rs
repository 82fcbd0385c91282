//! A cluster as the engine of a program: reached by a client, or served by this process.
//!
//! Invariant: a directory beside a worker of a cluster holds what activities keep there (notes of processes, tokens), and belongs
//! to one worker at a time; a store of the embedded engine is left alone. The functions and guards are those of an embedded
//! worker; what needs the embedded log (batches, notifications) is not there, and says so when it is asked for.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bosun_engine::*;

use super::backend::ClusterBackend;
use super::connect::{ConnectError, connect};
use super::external::External;
use super::worker::{ClusterWorker, ClusterWorkerOptions};
use crate::backend::{Access, Backend, BoxFuture, ClusterPlace, Engine, OpenError, SlotCounts, Stopped};
use crate::capability::at_rest::AtRest;
use crate::capability::leaks::Leaks;
use crate::capability::owner::Guards;
use crate::closed_directory::is_store;
use crate::embedded::{OpenedDirectory, Registries};
use crate::store_reports::key_error;

/// Held as long as a worker uses the directory.
const LOCK_FILE: &str = "cluster.lock";

/// An engine whose runs are a cluster's.
struct ClusterEngine {
    backend: Arc<dyn Backend>,
    worker: Option<Arc<ClusterWorker>>,
    _lock: Option<File>,
}

impl From<ConnectError> for OpenError {
    fn from(why: ConnectError) -> Self {
        match why {
            ConnectError::Config(_) | ConnectError::Key(_) => OpenError::Refused(why.to_string()),
            ConnectError::Unreachable(_) => OpenError::Unreachable(why.to_string()),
        }
    }
}

pub(crate) async fn open(
    registries: Registries,
    place: &ClusterPlace,
    data: &Path,
    purpose: &Access,
) -> Result<Arc<dyn Engine>, OpenError> {
    let external = external_of(&registries, place).await?;
    let connection = connect(place).await?;
    let (workflows, identity) = (registries.workflows.clone(), place.identity.clone());
    // There all activities share one count, so it is the one for those that leave the process.
    let Access::Work { slots: SlotCounts { external: slots, .. }, queues, guards } = purpose else {
        let backend = ClusterBackend::new(connection, place.namespace.clone(), identity, None, workflows);
        let backend = backend.with_payloads_in(external);
        return Ok(Arc::new(ClusterEngine { backend: Arc::new(backend), worker: None, _lock: None }));
    };
    let lock = hold(data)?;
    let options = options_of(registries, place, data, (*slots, queues), guards)?;
    let worker = ClusterWorker::start_with(&connection, options, external.clone()).await.map_err(OpenError::Refused)?;
    let worker = Arc::new(worker);
    let backend =
        ClusterBackend::new(connection, place.namespace.clone(), identity, Some((worker.clone(), *slots)), workflows);
    let backend = backend.with_payloads_in(external);
    Ok(Arc::new(ClusterEngine { backend: Arc::new(backend), worker: Some(worker), _lock: Some(lock) }))
}

/// Where large payloads are kept, as stores of the embedded engine are: with the codecs of the program and the key of the owner.
async fn external_of(registries: &Registries, place: &ClusterPlace) -> Result<External, OpenError> {
    let at_rest = match &place.payload_store {
        Some(_) => registries.codecs_at_rest().await?,
        None => AtRest::default(),
    };
    External::new(place.payload_store.as_ref(), at_rest).map_err(|why| key_error(&why))
}

fn options_of(
    mut registries: Registries,
    place: &ClusterPlace,
    data: &Path,
    (slots, queues): (usize, &[TaskQueue]),
    guards: &Guards,
) -> Result<ClusterWorkerOptions, OpenError> {
    let data = std::path::absolute(data).map_err(|why| OpenError::Failed(why.to_string()))?;
    // What a program says in its code: interceptors; the rest is of the embedded engine.
    let mut embedded = WorkerOptions::new(DataDirectory::Path(data.clone()));
    registries.configure.iter().for_each(|configure| configure(&mut embedded));
    for at_open in &registries.at_open {
        let opening = OpenedDirectory { data: &data, guards };
        at_open(&opening, &mut registries.activities).map_err(OpenError::Failed)?;
    }
    embedded.interceptors.push(Arc::new(Leaks));
    let per_second = guards.queues.per_second.as_ref().map(|rate| rate.thousandths() as f64 / 1_000.0);
    let queues = if queues.is_empty() { vec![TaskQueue::of(DEFAULT_TASK_QUEUE)] } else { queues.to_vec() };
    Ok(ClusterWorkerOptions {
        namespace: place.namespace.clone(),
        queues,
        slots,
        cached_runs: place.cached_runs,
        deployment: place.deployment.clone(),
        turn_deadline: embedded.limits.turn_deadline,
        activities_per_second: per_second,
        workflows: registries.workflows,
        activities: registries.activities,
        interceptors: embedded.interceptors,
        identity: place.identity.clone(),
    })
}

/// Takes the directory for this worker.
fn hold(data: &Path) -> Result<File, OpenError> {
    if is_store(data) {
        let shown = data.display();
        return Err(OpenError::Refused(format!(
            "{shown} is a store of the embedded engine: give the worker of a cluster a directory of its own with --data"
        )));
    }
    let path = data.join(LOCK_FILE);
    let file = File::options().create(true).truncate(false).write(true).open(&path);
    let file = file.map_err(|why| OpenError::Failed(format!("{}: {why}", path.display())))?;
    file.try_lock().map_err(|_| OpenError::Locked(data.to_owned()))?;
    Ok(file)
}

impl Engine for ClusterEngine {
    fn backend(&self) -> Arc<dyn Backend> {
        self.backend.clone()
    }
    fn drain(&self, timeout: Duration) -> BoxFuture<'_, bool> {
        Box::pin(async move {
            match &self.worker {
                Some(worker) => worker.drain(timeout).await,
                None => true,
            }
        })
    }
    fn stopped(&self) -> BoxFuture<'_, Stopped> {
        Box::pin(async move {
            match &self.worker {
                Some(worker) => Stopped::StorageFailed { why: worker.stopped().await },
                None => std::future::pending().await,
            }
        })
    }
}
