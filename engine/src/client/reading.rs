//! The client reads: histories, lists, streams. Durable facts only, past the turn threads.
//!
//! Invariant: reading goes on while the worker drains; a stream gives each event once and in order, or ends with an error:
//! no gap goes unnoticed. Nothing here asks a run anything, loads code or changes anything.

use std::sync::Arc;

use futures_core::Stream;
use tokio::sync::broadcast;

use super::{Client, PAGE_MAX};
use crate::filter::Filter;
use crate::log::StorageError;
use crate::request::*;
use crate::seeded::{self, Bug};
use crate::service::{Health, WorkerShared, refusal_of_reading};
use crate::vocabulary::*;

impl Client {
    pub(super) fn info_of(&self, run: RunId) -> Option<RunInfo> {
        self.shared.journal.run(run).map(|entry| entry.info)
    }

    /// The run that a target means, of those that are durable.
    pub(super) fn resolve(&self, target: &Target) -> Result<RunInfo, Rejection> {
        let not_found = || Rejection::NotFound { workflow_id: target.workflow_id.clone(), run_id: target.run_id };
        // An entry that cannot be read (damage, a missing key) is not the same as none.
        let found = self.shared.journal.find(target);
        found.map_err(|why| refusal_of_reading(&why))?.ok_or_else(not_found)
    }

    /// Whether the run, or the chain of runs that it begins, has ended durably.
    pub(super) fn has_ended(&self, target: &Target, follow_runs: bool) -> Result<bool, Rejection> {
        let mut info = self.resolve(target)?;
        while follow_runs && let Some(next) = info.next_run {
            info = self.resolve(&Target { run_id: Some(next), ..target.clone() })?;
        }
        Ok(!info.status.is_open())
    }

    /// Reads in a thread that may block.
    pub(super) async fn read<T: Send + 'static>(
        &self,
        read: impl FnOnce(&WorkerShared) -> Result<T, StorageError> + Send + 'static,
    ) -> Result<T, Rejection> {
        let shared = self.shared.clone();
        match tokio::task::spawn_blocking(move || read(&shared)).await {
            Ok(result) => result.map_err(|error| refusal_of_reading(&error)),
            Err(error) => Err(Rejection::StorageError { why: format!("the reading task ended: {error}") }),
        }
    }

    /// Up to `limit` events of a run, from an event id on.
    pub async fn history(&self, target: &Target, from: EventId, limit: usize) -> Result<Vec<Event>, Rejection> {
        self.admit_reading("history", Some(&target.workflow_id))?;
        let run = self.resolve(target)?.run_id;
        self.events_of(run, from, limit.clamp(1, PAGE_MAX)).await
    }

    async fn events_of(&self, run: RunId, from: EventId, limit: usize) -> Result<Vec<Event>, Rejection> {
        self.read(move |shared| {
            let until = EventId(from.0.saturating_add(limit as u64).saturating_add(1));
            // Shown with its gaps: what is lost of a run hides nothing of the rest.
            let turns = shared.journal.turns_with_gaps(run, from, until)?;
            let from = if seeded::on(Bug::PageOffByOne) && from > EventId(1) { from.next() } else { from };
            Ok(turns.iter().flat_map(Turn::numbered).filter(|event| event.id >= from).take(limit).collect())
        })
        .await
    }

    /// All turns of a run, for replay and export.
    pub async fn turns(&self, target: &Target) -> Result<Vec<Turn>, Rejection> {
        self.admit_reading("turns", Some(&target.workflow_id))?;
        let run = self.resolve(target)?.run_id;
        self.read(move |shared| shared.journal.turns(run, EventId(1))).await
    }

    /// The events of a run from an event id on, each once and in order. With `follow`, until the run has ended;
    /// otherwise up to what is there now (E33).
    pub fn events(
        &self,
        target: Target,
        from: EventId,
        follow: bool,
    ) -> impl Stream<Item = Result<Event, Rejection>> + Send + 'static {
        let client = self.clone();
        async_stream::try_stream! {
            client.admit_reading("events", Some(&target.workflow_id))?;
            let run = client.resolve(&target)?.run_id;
            let mut next = EventId(from.0.max(1));
            loop {
                // Subscribed, and looked for the end, before reading, so that nothing falls between.
                let mut committed = client.shared.committed.subscribe();
                let closed = client.info_of(run).is_none_or(|info| !info.status.is_open());
                let events = client.events_of(run, next, PAGE_MAX).await?;
                let page_was_full = events.len() == PAGE_MAX;
                let mut ended = false;
                for event in events {
                    ended = event.kind.closes().is_some();
                    next = event.id.next();
                    yield event;
                }
                if ended || (!page_was_full && (!follow || closed)) {
                    break;
                }
                if !page_was_full {
                    client.next_commit_of(&mut committed, run).await?;
                }
            }
        }
    }

    /// Waits until a group with a turn of the run is durable.
    async fn next_commit_of(
        &self,
        committed: &mut broadcast::Receiver<Arc<crate::service::CommittedGroup>>,
        run: RunId,
    ) -> Result<(), Rejection> {
        let mut health = self.shared.health.watch();
        loop {
            let group = tokio::select! {
                group = committed.recv() => group,
                left = health.wait_for(|health| gone(health).is_some()) => {
                    return Err(left.ok().and_then(|health| gone(&health)).unwrap_or(Rejection::ShuttingDown));
                }
            };
            match group {
                Ok(group) if group.turns.iter().any(|turn| turn.run == run) => return Ok(()),
                Ok(_) => {}
                // Too much has happened to tell one by one: look again.
                Err(broadcast::error::RecvError::Lagged(_)) => return Ok(()),
                Err(broadcast::error::RecvError::Closed) => return Err(Rejection::ShuttingDown),
            }
        }
    }

    /// Committed events of all runs that fit the filter, as they happen (E33). `after` is the last group the
    /// subscriber has seen; `None` begins now. Ends with an error when the worker leaves, and when groups that were not
    /// seen yet have left the log: no gap goes unnoticed.
    pub fn watch(
        &self,
        query: String,
        after: Option<GroupSeq>,
    ) -> impl Stream<Item = Result<RunEvent, Rejection>> + Send + 'static {
        let client = self.clone();
        async_stream::try_stream! {
            client.admit_reading("watch", None)?;
            let filter = parse(&query)?;
            let mut committed = client.shared.committed.subscribe();
            let mut health = client.shared.health.watch();
            let mut seen = after.unwrap_or_else(|| client.shared.journal.last_group());
            loop {
                // Looked at before reading: what was decided before the worker left is still shown.
                let gone = gone(&health.borrow_and_update());
                let upto = client.shared.journal.last_group();
                while seen < upto {
                    seen = seen.next();
                    let group = seen;
                    let turns = client.group_turns(group).await?;
                    for turn in turns {
                        let Some(info) = client.info_of(turn.run) else { continue };
                        if filter.matches(&info) {
                            for event in turn.numbered() {
                                let (workflow_id, run_id) = (info.workflow_id.clone(), turn.run);
                                yield RunEvent { group, workflow_id, run_id, event };
                            }
                        }
                    }
                }
                if let Some(why) = gone {
                    Err(why)?;
                }
                tokio::select! {
                    // Lagging behind costs nothing: the log is read from where the subscriber stands.
                    _ = committed.recv() => {}
                    _ = health.changed() => {}
                }
            }
        }
    }

    /// The last group that is durable.
    pub fn last_group(&self) -> GroupSeq {
        self.shared.journal.last_group()
    }

    /// The oldest group that is still in the log; what happened before is in the histories of runs.
    pub fn first_group(&self) -> GroupSeq {
        self.shared.journal.first_group()
    }

    /// What is known of a run whose id is known, without asking it.
    pub fn run_info(&self, run: RunId) -> Option<RunInfo> {
        self.info_of(run)
    }

    /// The runs that this worker is known to hold, and why.
    pub fn held_runs(&self) -> Vec<(RunId, String)> {
        self.shared.held_runs().into_iter().filter_map(|run| Some((run, self.shared.held_why(run)?))).collect()
    }

    async fn group_turns(&self, group: GroupSeq) -> Result<Vec<Turn>, Rejection> {
        let turns = self.read(move |shared| shared.journal.group_turns(group)).await?;
        let first = self.shared.journal.first_group();
        if turns.is_empty() && group < first {
            let why = format!("the log begins at group {first}; older events are in the histories of their runs");
            return Err(Rejection::Invalid { what: format!("watch from group {group}"), why });
        }
        Ok(turns)
    }

    /// Runs that fit a filter, in its order, by default newest start first (E23).
    pub async fn list(&self, request: ListRequest) -> Result<Vec<RunInfo>, Rejection> {
        self.admit_reading("list", None)?;
        let filter = self.parsed(&request.query).await?;
        let limit = request.limit.clamp(1, PAGE_MAX);
        self.read(move |shared| Ok(shared.journal.list_with(&shared.held_runs(), &filter, limit))).await
    }

    /// How many runs fit a filter, open and closed, in all namespaces unless the filter names one.
    pub async fn count(&self, query: &str) -> Result<u64, Rejection> {
        self.admit_reading("count", None)?;
        let filter = self.parsed(query).await?;
        self.read(move |shared| {
            let mut count = 0;
            shared.journal.scan_runs_with(&shared.held_runs(), &mut |info| {
                count += u64::from(filter.matches(info));
                true
            });
            Ok(count)
        })
        .await
    }

    /// The filter; if it asks which runs are held, after those have been looked at that nobody has loaded yet.
    async fn parsed(&self, query: &str) -> Result<Filter, Rejection> {
        let filter = parse(query)?;
        if filter.asks_for_held() {
            self.check_fit().await;
        }
        Ok(filter)
    }

    /// Reading goes on while the worker drains.
    pub(super) fn admit_reading(&self, call: &'static str, workflow_id: Option<&WorkflowId>) -> Result<(), Rejection> {
        self.shared.options.interceptors.iter().try_for_each(|interceptor| interceptor.client_call(call, workflow_id))
    }
}

/// Why nothing more will be committed, if so. A worker that drains still commits.
fn gone(health: &Health) -> Option<Rejection> {
    match health {
        Health::Ready | Health::Draining => None,
        Health::StorageFull { .. } | Health::StorageFailed { .. } | Health::Stopped => health.refusal(),
    }
}

fn parse(query: &str) -> Result<Filter, Rejection> {
    Filter::parse(query)
        .map_err(|error| Rejection::Invalid { what: format!("list filter {query:?}"), why: error.to_string() })
}
