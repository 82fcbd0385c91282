//! A data directory that nobody holds, read without an engine.
//!
//! Invariant: no workflow code is loaded, no run is carried on and nothing is appended to any history: what a deploy
//! would do to these runs can be asked before it is done. No file is opened for writing; no worker can start meanwhile.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use bosun_engine::log::{CodecChain, Journal, JournalOptions, StoreReader};
use bosun_engine::service::refusal_of_reading;
use bosun_engine::*;

use crate::backend::{CallError, Histories, OpenError, Reply};
use crate::store_reports::open_error;

/// The file that makes a directory a store.
const FORMAT_FILE: &str = "bosun.format";
/// In which a new copy of a store notes that it takes its place.
const SWAP_FILE: &str = "swapping";
/// As many rows as an engine gives.
const PAGE_MAX: usize = 1_000;

/// Whether a directory is a store, was left while it was being made one, or is one that has lost the file that says so.
pub(crate) fn is_store(data: &Path) -> bool {
    let lost = || data.join("anchor").is_file() && data.join("log").is_dir();
    data.join(FORMAT_FILE).exists() || data.join(SWAP_FILE).exists() || lost()
}

#[derive(Clone)]
pub(crate) struct ClosedDirectory(Arc<Journal>);

impl ClosedDirectory {
    pub(crate) async fn open(data: &Path, codec: CodecChain) -> Result<Self, OpenError> {
        let data = data.to_owned();
        // Opening reads, checks and syncs files.
        let opened = tokio::task::spawn_blocking(move || Self::open_now(&data, codec)).await;
        opened.unwrap_or_else(|why| Err(OpenError::Failed(format!("opening the store panicked: {why}"))))
    }

    fn open_now(data: &Path, codec: CodecChain) -> Result<Self, OpenError> {
        let data: PathBuf = std::path::absolute(data).map_err(|why| OpenError::Failed(why.to_string()))?;
        if !is_store(&data) {
            return Err(OpenError::Missing(data));
        }
        let opened = StoreReader::open(&data)
            .and_then(|log| Journal::open(Arc::new(log), JournalOptions { codec, ..JournalOptions::default() }));
        opened.map(|journal| ClosedDirectory(Arc::new(journal))).map_err(open_error)
    }

    /// Reads on a thread that may wait for the disk.
    fn read<T: Send + 'static>(
        &self,
        read: impl FnOnce(&Journal) -> Result<T, Rejection> + Send + 'static,
    ) -> Reply<'_, T> {
        let journal = self.0.clone();
        Box::pin(async move {
            let read = tokio::task::spawn_blocking(move || read(&journal)).await;
            let read = read.unwrap_or_else(|why| Err(Rejection::StorageError { why: format!("reading ended: {why}") }));
            read.map_err(CallError::from)
        })
    }
}

impl Histories for ClosedDirectory {
    fn run(&self, target: Target) -> Reply<'_, RunInfo> {
        self.read(move |journal| resolve(journal, &target))
    }

    fn list(&self, request: ListRequest) -> Reply<'_, Vec<RunInfo>> {
        self.read(move |journal| {
            let ListRequest { query, limit } = request;
            let filter = Filter::parse(&query)
                .map_err(|why| Rejection::Invalid { what: format!("list filter {query:?}"), why: why.to_string() })?;
            Ok(journal.list(&filter, limit.clamp(1, PAGE_MAX)))
        })
    }

    fn turns(&self, target: Target) -> Reply<'_, Vec<Turn>> {
        self.read(move |journal| {
            let run = resolve(journal, &target)?.run_id;
            journal.turns(run, EventId(1)).map_err(|why| refusal_of_reading(&why))
        })
    }
}

fn resolve(journal: &Journal, target: &Target) -> Result<RunInfo, Rejection> {
    let not_found = || Rejection::NotFound { workflow_id: target.workflow_id.clone(), run_id: target.run_id };
    journal.find(target).map_err(|why| refusal_of_reading(&why))?.ok_or_else(not_found)
}
