//! What follows the log of a worker and starts a notification for each occasion.
//!
//! ```text
//!   events after the cursor ──► told_by ──► occasion ──► one notification a channel, by its id ──► the cursor moves on
//!                                  └──► ask the run what it asks people ──┘
//!   once in a while: the runs that are held          once: the worker before, if it ended without a word
//! ```
//!
//! A cursor that is lost begins with the oldest group; what happened before the newest failure that was told is not told again,
//! also where its notification is gone by retention.
//!
//! Invariant: the cursor moves behind a group only when all that it tells has been started durably. What cannot be started now is
//! tried again for as long as the worker lives; after that the next one begins at the cursor. It sends nothing itself.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use bosun_engine::*;
use futures_util::StreamExt;
use serde_json::{Value, json};

use super::asked::{asked_of, is_told, text_of};
use super::cursor::Cursor;
use super::rules::channel::Notify;
use super::rules::occasion::{Occasion, Told, is_bad_end, told_by};
use super::rules::run::{DESCRIBE, NOTIFICATION, Notification, OF_KIND};
use crate::agent::AGENT;
use crate::api::guard::now;
use crate::api::people::{Cursor as PageCursor, filter_of, page_of};
use crate::backend::{Backend, CallError};
use crate::inbox::{self, target_of};

/// How often it looks which runs are held, and saves the cursor.
const LOOK: Duration = Duration::from_secs(1);
/// What was refused in passing is tried again after this.
const AGAIN: Duration = if cfg!(test) { Duration::from_millis(1) } else { Duration::from_millis(500) };
/// What cannot be read is tried so often: it may be damaged for good, and must not keep people from hearing of the rest.
const READS_MAX: u32 = 20;
/// So far back it is looked whether a chain was reset: who has gone on so often is told of once more at most.
const CHAIN_MAX: usize = 1_000;
/// Runs that are read at a time.
const PAGE: usize = 500;

/// Tells occasions for as long as the worker lives.
pub(crate) struct Watcher {
    client: Client,
    backend: Arc<dyn Backend>,
    notify: Notify,
    cursor: Cursor,
    /// The last group of which runs were asked, and which ones.
    asked: (GroupSeq, BTreeSet<RunId>),
    /// The held runs that were told, by their length.
    held: BTreeSet<(RunId, u64)>,
    /// How often in a row the log could not be read behind the cursor.
    unread: u32,
    /// What happened before was told, though the cursor does not say so.
    told_until: Option<Timestamp>,
}

/// Nothing more is told: the worker leaves.
#[derive(Debug)]
struct Leaving;

impl Watcher {
    pub(crate) fn new(client: Client, backend: Arc<dyn Backend>, notify: Notify, mut cursor: Cursor) -> Watcher {
        let last = client.last_group();
        match cursor.group() {
            // Whoever has just named a channel is told what happens from now on.
            None => cursor.move_to(last),
            Some(group) if group > last => {
                tracing::warn!(%group, %last, "the log ends before what was told: all of it is looked through");
                cursor.move_to(before(client.first_group()));
                cursor.lose();
            }
            Some(_) => {}
        }
        let (asked, held) = ((GroupSeq(0), BTreeSet::new()), BTreeSet::new());
        Watcher { client, backend, notify, cursor, asked, held, unread: 0, told_until: None }
    }

    /// Runs until the worker leaves.
    pub(crate) async fn run(mut self) {
        self.save();
        // The worker leaves: the next one goes on from the cursor.
        let Err(Leaving) = self.follow().await else { return };
        self.save();
    }

    async fn follow(&mut self) -> Result<(), Leaving> {
        self.tell_gone().await?;
        if self.cursor.is_lost() {
            self.told_until = self.newest_told().await?;
        }
        let mut look = tokio::time::interval(LOOK);
        look.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            let after = self.cursor.group().unwrap_or(GroupSeq(0));
            let mut events = Box::pin(self.client.clone().watch(String::new(), Some(after)));
            loop {
                tokio::select! {
                    event = events.next() => match event {
                        Some(Ok(event)) => {
                            self.unread = 0;
                            self.event(event).await?;
                        }
                        Some(Err(Rejection::Invalid { why, .. })) => {
                            tracing::warn!(why, "events left the log before they were told: runs are looked through");
                            tokio::time::sleep(AGAIN).await;
                            break;
                        }
                        Some(Err(why @ (Rejection::StorageError { .. } | Rejection::Damaged { .. }))) => {
                            tracing::warn!(%why, "the log cannot be read now");
                            self.unread += 1;
                            tokio::time::sleep(AGAIN).await;
                            break;
                        }
                        Some(Err(_)) | None => return Err(Leaving),
                    },
                    _ = look.tick() => {
                        self.tell_held().await?;
                        self.save();
                    }
                }
            }
            let trimmed = self.cursor.group().is_some_and(|group| group < before(self.client.first_group()));
            if trimmed || self.unread >= READS_MAX {
                // What happens meanwhile comes behind this.
                let to = if trimmed { before(self.client.first_group()) } else { self.client.last_group() };
                self.look_through().await?;
                self.cursor.move_to(to);
                self.unread = 0;
            }
        }
    }

    fn save(&mut self) {
        if let Err(why) = self.cursor.save() {
            // One that stands too far back loses nothing.
            tracing::warn!(%why, "how far the log has been told cannot be saved");
        }
    }

    /// One event; all of the groups before it are told.
    async fn event(&mut self, event: RunEvent) -> Result<(), Leaving> {
        let Some(info) = self.client.run_info(event.run_id) else { return Ok(()) };
        let alone = self.is_alone(&info, &event.event).await?;
        for told in told_by(&info, &event.event, alone) {
            match told {
                Told::Occasion(occasion) if self.is_old(occasion.at) => {}
                Told::Occasion(occasion) => self.tell(&occasion).await?,
                Told::Ask => self.ask_once(event.group, &info).await?,
            }
        }
        self.cursor.move_to(before(event.group));
        Ok(())
    }

    /// Whether the run above had ended before the end of this one, and none goes on in its place: nobody hears of it there.
    async fn is_alone(&self, info: &RunInfo, event: &Event) -> Result<bool, Leaving> {
        let (Some(parent), true) = (&info.parent, is_bad_end(info, event)) else { return Ok(false) };
        let of = Target { namespace: info.namespace.clone(), ..Target::run(parent.workflow_id.clone(), parent.run_id) };
        let backend = &*self.backend;
        let above = patiently(|| async {
            let above = inbox::going_on(backend, of.clone()).await?;
            inbox::after_reset(backend, above).await
        });
        Ok(above.await?.is_none_or(|above| above.closed_at.is_some_and(|closed| closed < event.at)))
    }

    /// What a run asks after a turn is the same for all events of the turn.
    async fn ask_once(&mut self, group: GroupSeq, info: &RunInfo) -> Result<(), Leaving> {
        if self.asked.0 != group {
            self.asked = (group, BTreeSet::new());
        }
        if self.asked.1.insert(info.run_id) { self.ask(info).await } else { Ok(()) }
    }

    /// Tells what a run asks people now, and whether it stands still. What was told is known by its id.
    async fn ask(&self, info: &RunInfo) -> Result<(), Leaving> {
        let target = target_of(info);
        let workflow_type = &info.workflow_type;
        let backend = &*self.backend;
        if !info.status.is_open() {
            return Ok(());
        }
        let requests = patiently(|| inbox::requests(backend, &target, workflow_type)).await?;
        let requests: Vec<_> = requests.unwrap_or_default().into_iter().filter(is_told).collect();
        if !requests.is_empty() {
            let asks_as = self.asks_as(info);
            for one in &requests {
                let occasion = Occasion::asked(info, asks_as, now(), asked_of(one), &text_of(one));
                self.tell(&occasion).await?;
            }
        }
        if workflow_type.as_str() != AGENT {
            return Ok(());
        }
        let query = |name: &'static str| {
            patiently(move || backend.query(target_of(info), QueryName::of(name), Payload::null()))
        };
        let Some(state) = query("state").await? else { return Ok(()) };
        let state = state.to_json();
        if state["halted"].is_object() {
            let budget = query("budget").await?.map_or(Value::Null, |budget| budget.to_json());
            let halt = json!([state["halted"], state["halts"], budget["caps"]]).to_string();
            if let Some(occasion) = Occasion::halted(info, now(), &state["halted"], &halt) {
                self.tell(&occasion).await?;
            }
        }
        Ok(())
    }

    /// The run by which what one asks is known: the first of its chain, or the last that a reset made, for it asks anew.
    fn asks_as(&self, info: &RunInfo) -> RunId {
        let mut at = info.clone();
        for _ in 0..CHAIN_MAX {
            if at.forked_from.as_ref().is_some_and(|from| from.reset) {
                return at.run_id;
            }
            let Some(before) = at.continued_from.and_then(|before| self.client.run_info(before)) else { break };
            at = before;
        }
        info.first_run
    }

    /// One notification for each channel that tells such a thing.
    async fn tell(&self, occasion: &Occasion) -> Result<(), Leaving> {
        for (name, channel) in self.notify.channels.iter().filter(|(_, channel)| channel.tells(occasion)) {
            // Who has people told again wants it told now.
            let loud = occasion.asked.as_ref().is_some_and(|asked| asked.escalated() > 0);
            let quiet = channel.quiet_for(occasion.kind).cloned();
            let (channel, remind) = (name.clone(), self.notify.remind);
            let notification = Notification { channel, occasion: occasion.clone(), quiet, loud, remind, reminder: 0 };
            let Ok(start) = notification.start() else { continue };
            let client = &self.client;
            let started = patiently(|| {
                let start = start.clone();
                async move { client.start(start).await.map_err(CallError::from) }
            });
            started.await?;
        }
        Ok(())
    }

    /// The worker before, if it ended without a word.
    async fn tell_gone(&mut self) -> Result<(), Leaving> {
        for gone in self.cursor.gone() {
            self.tell(&Occasion::worker_gone(gone.pid, &gone.started_at, now())).await?;
            self.cursor.gone_is_told(&gone);
        }
        self.save();
        Ok(())
    }

    /// No event tells of a hold.
    async fn tell_held(&mut self) -> Result<(), Leaving> {
        for (run, why) in self.client.held_runs() {
            let Some(info) = self.client.run_info(run) else { continue };
            let Some(occasion) = Occasion::held(&info, now(), &why) else { continue };
            if self.held.insert((run, info.history.events)) {
                self.tell(&occasion).await?;
            }
        }
        Ok(())
    }

    /// Whether it was told, by the notifications that are there. At the same moment something may have happened that was not:
    /// its id says whether it was.
    fn is_old(&self, at: Timestamp) -> bool {
        self.told_until.is_some_and(|told| at < told)
    }

    /// When the newest failure happened that was told and is known still: those before it were told too, in the order of the
    /// log, whether or not their notifications are there any more.
    async fn newest_told(&self) -> Result<Option<Timestamp>, Leaving> {
        let query = format!("WorkflowType = '{NOTIFICATION}' AND {OF_KIND} = 'failed'");
        let newest = patiently(|| {
            let query = query.clone();
            async { self.backend.list(ListRequest { query, limit: 1 }).await }
        });
        let newest = newest.await?.unwrap_or_default();
        let Some(info) = newest.first() else { return Ok(None) };
        let shown = patiently(|| self.backend.query(target_of(info), QueryName::of(DESCRIBE), Payload::null())).await?;
        Ok(shown.and_then(|shown| shown.to_json()["made_at"].as_i64()).map(Timestamp))
    }

    /// What runs themselves tell, where the log does not any more: how they ended, and what they ask.
    async fn look_through(&mut self) -> Result<(), Leaving> {
        self.told_until = self.newest_told().await?;
        // What fails meanwhile is met in the log.
        let began = now();
        let mut failed: Vec<(Timestamp, RunId)> = Vec::new();
        let mut after = None;
        loop {
            let (runs, next) = self.page("ExecutionStatus IN ('Failed', 'TimedOut')", after).await?;
            let closed = runs.iter().filter_map(|info| Some((info.closed_at?, info.run_id)));
            failed.extend(closed.filter(|(closed, _)| *closed <= began && !self.is_old(*closed)));
            after = next;
            if after.is_none() {
                break;
            }
        }
        // The oldest first: whoever begins again after a crash takes all before the newest one that was told for told.
        failed.sort_unstable();
        for (_, run) in failed {
            if let Some(info) = self.client.run_info(run) {
                self.look_at(&info).await?;
            }
        }
        let asking =
            format!("ExecutionStatus IN ('Running', 'Paused') AND WorkflowType IN ('{}')", inbox::ASKING.join("', '"));
        loop {
            let (runs, next) = self.page(&asking, after).await?;
            for info in &runs {
                self.ask(info).await?;
            }
            after = next;
            if after.is_none() {
                return Ok(());
            }
        }
    }

    /// Runs that fit a list filter, and where the next page begins; none where they cannot be read.
    async fn page(
        &self,
        query: &str,
        after: Option<PageCursor>,
    ) -> Result<(Vec<RunInfo>, Option<PageCursor>), Leaving> {
        let Ok(filter) = filter_of(query) else { return Ok((Vec::new(), None)) };
        let page = patiently(|| {
            let filter = filter.clone();
            async { page_of(&*self.backend, filter, PAGE, after).await }
        });
        Ok(page.await?.unwrap_or_default())
    }

    /// Tells how a run ended.
    async fn look_at(&self, info: &RunInfo) -> Result<(), Leaving> {
        let last = EventId(info.history.events.max(1));
        let events = patiently(|| self.backend.history(target_of(info), last, 1)).await?.unwrap_or_default();
        for event in &events {
            let alone = self.is_alone(info, event).await?;
            for told in told_by(info, event, alone) {
                if let Told::Occasion(occasion) = told {
                    self.tell(&occasion).await?;
                }
            }
        }
        Ok(())
    }
}

fn before(group: GroupSeq) -> GroupSeq {
    GroupSeq(group.0.saturating_sub(1))
}

/// Asks until there is an answer, or none will come: `None` is a refusal that stays one.
async fn patiently<T, F>(mut call: impl FnMut() -> F) -> Result<Option<T>, Leaving>
where
    F: Future<Output = Result<T, CallError>>,
{
    let mut reads = 0;
    loop {
        let why = match call().await {
            Ok(answer) => return Ok(Some(answer)),
            Err(CallError::Rejected(why)) => why,
            Err(why) => {
                tracing::warn!(%why, "people are not told of this");
                return Ok(None);
            }
        };
        match why {
            Rejection::ShuttingDown | Rejection::StorageFailed { .. } => return Err(Leaving),
            Rejection::Overloaded { .. } | Rejection::StorageFull { .. } => tokio::time::sleep(AGAIN).await,
            Rejection::StorageError { .. } if reads < READS_MAX => {
                reads += 1;
                tokio::time::sleep(AGAIN).await;
            }
            // It was started before: that is what its id is for. Or the run is held, which is told by itself, or gone.
            Rejection::IdReused { .. }
            | Rejection::AlreadyOpen { .. }
            | Rejection::Held { .. }
            | Rejection::NotFound { .. }
            | Rejection::Closed { .. } => return Ok(None),
            why => {
                tracing::warn!(%why, "people are not told of this");
                return Ok(None);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use bosun_engine::workflow::WorkflowRegistry;

    use super::super::rules::channel::NotifyConfig;
    use super::*;

    /// A worker whose runs fail after a while, in another order than they were started; of one channel.
    async fn failed(waits: &[u64]) -> (Arc<Worker>, Watcher, Vec<RunInfo>, tempfile::TempDir) {
        let log = Arc::new(bosun_engine::log::MemoryLog::new([3; 16]));
        let mut options = WorkerOptions::new(DataDirectory::Log(log));
        let fails = WorkflowRegistry::default().workflow("fails", |cx, millis: u64| async move {
            cx.timer(Duration::from_millis(millis)).await?;
            Err::<(), _>(Failure::application("AsItShould", "it fails").non_retryable())
        });
        options.workflows = super::super::register(fails);
        let worker = Arc::new(Worker::start(options).unwrap());
        let backend = crate::embedded::backend_of(worker.clone());
        let config = json!({ "channels": { "ops": { "command": ["true"] } } });
        let config: NotifyConfig = serde_json::from_value(config).unwrap();
        let notify = config.check(|_| Ok(Duration::ZERO)).unwrap();
        let data = tempfile::tempdir().unwrap();
        let watcher = Watcher::new(worker.client(), backend.clone(), notify, Cursor::open(data.path()));
        let mut infos = Vec::new();
        for (n, millis) in waits.iter().enumerate() {
            let id = WorkflowId::of(format!("w{n}"));
            let start = StartWorkflow::new("fails".into(), id).input(Payload::encode(millis).unwrap());
            backend.start(start).await.unwrap();
        }
        for n in 0..waits.len() {
            let target = Target::workflow(WorkflowId::of(format!("w{n}")));
            let wait = ResultRequest { follow_runs: true, timeout: Some(Duration::from_secs(60)) };
            assert!(backend.result(target.clone(), wait).await.unwrap().is_some());
            infos.push(backend.describe(target).await.unwrap().info);
        }
        infos.sort_by_key(|info| info.closed_at);
        (worker, watcher, infos, data)
    }

    /// Which runs were told of, in the order in which their notifications were started.
    async fn told(watcher: &Watcher) -> Vec<String> {
        let query = format!("WorkflowType = '{NOTIFICATION}'");
        let mut all = watcher.backend.list(ListRequest { query, limit: 100 }).await.unwrap();
        all.reverse();
        all.into_iter().map(|info| info.summary.unwrap_or_default()).collect()
    }

    /// Whoever is cut off in the midst of it, and begins again, takes what happened before the newest one that was told for told.
    #[tokio::test(flavor = "multi_thread")]
    async fn what_left_the_log_is_told_from_the_oldest_failure_on_so_that_a_crash_leaves_none_out() {
        let (_worker, mut watcher, infos, _data) = failed(&[300, 0, 600, 100, 0]).await;
        let words = |info: &RunInfo| format!("tells ops: {} has failed", info.workflow_id);
        let all: Vec<String> = infos.iter().map(words).collect();
        // As a worker that was killed after two of them has left it.
        for info in &infos[..2] {
            watcher.look_at(info).await.unwrap();
        }
        watcher.look_through().await.unwrap();
        assert_eq!(told(&watcher).await, all);
        watcher.look_through().await.unwrap();
        assert_eq!(told(&watcher).await, all, "nobody is told twice");
    }

    /// One run that is damaged for good keeps nobody from hearing of the others; what passes is waited for.
    #[tokio::test]
    async fn what_cannot_be_read_is_given_up_and_what_passes_is_waited_for() {
        let asked = AtomicU32::new(0);
        let refuse = |why: Rejection, until: u32| {
            let nth = asked.fetch_add(1, Ordering::Relaxed);
            async move { if nth < until { Err(CallError::Rejected(why)) } else { Ok(7) } }
        };
        let unreadable = || Rejection::StorageError { why: "a block is damaged".into() };
        assert!(matches!(patiently(|| refuse(unreadable(), u32::MAX)).await, Ok(None)));
        assert_eq!(asked.swap(0, Ordering::Relaxed), READS_MAX + 1);
        assert!(matches!(patiently(|| refuse(unreadable(), 3)).await, Ok(Some(7))));
        asked.store(0, Ordering::Relaxed);
        let full = || Rejection::StorageFull { why: "no room".into() };
        assert!(matches!(patiently(|| refuse(full(), 100)).await, Ok(Some(7))));
    }
}
