//! The connections that are open, and which of them makes room for one more (G34).
//!
//! Invariant: a connection with a request in flight is never closed for another one, and none for one that says nothing. Those
//! that have never asked anything go first, then the one that has been quiet longest, and none that has only just come. So
//! neither a crowd of idle clients nor sockets that send nothing keep the operator out. Streams, which last, take at most half
//! of the places; and where all others are at work, a reserve serves one short request a connection: to list, to describe, to end.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

/// A connection that has been quiet for less may be about to send its request: its first one, or the next.
const QUIET_ENOUGH: Duration = Duration::from_secs(1);
const QUIET_AFTER_REQUESTS: Duration = Duration::from_secs(10);
/// Whoever connects to ask something sends it at once.
const SPEAKS_WITHIN: Duration = Duration::from_millis(500);
/// One place in so many is of the reserve; below that many there is none.
const RESERVE_SHARE: usize = 16;
/// A connection that was told to make room is gone well within this time.
const ROOM_MAX: Duration = Duration::from_secs(1);

/// What a connection does now.
pub(super) struct ConnectionActivity {
    /// It is of the reserve: one request, and none that waits.
    pub(super) is_reserve: bool,
    requests: AtomicUsize,
    /// Milliseconds after `opened` at which the last request ended.
    quiet_since_ms: AtomicU64,
    opened: Instant,
    /// It has asked something before.
    asked: AtomicBool,
    /// It was told to make room: the next one asks another.
    leaves: AtomicBool,
    makes_room: Notify,
}

impl ConnectionActivity {
    fn new(is_reserve: bool) -> Self {
        ConnectionActivity {
            is_reserve,
            requests: 0.into(),
            quiet_since_ms: 0.into(),
            opened: Instant::now(),
            asked: AtomicBool::new(false),
            leaves: AtomicBool::new(false),
            makes_room: Notify::new(),
        }
    }

    fn quiet_for(&self) -> Option<Duration> {
        if self.requests.load(Ordering::Acquire) > 0 {
            return None;
        }
        let since = Duration::from_millis(self.quiet_since_ms.load(Ordering::Acquire));
        Some(self.opened.elapsed().saturating_sub(since))
    }

    pub(super) async fn wait_until_idle(&self, limit: Duration) {
        loop {
            match self.quiet_for() {
                Some(quiet) if quiet >= limit => return,
                Some(quiet) => tokio::time::sleep(limit - quiet).await,
                None => tokio::time::sleep(limit).await,
            }
        }
    }

    /// Resolves when another connection needs the place, and this one has nothing to do.
    pub(super) async fn wait_for_others(&self) {
        loop {
            self.makes_room.notified().await;
            if self.quiet_for().is_some() {
                return;
            }
            // It has something to do after all.
            self.leaves.store(false, Ordering::Release);
        }
    }
}

/// Counts a request while its head is handled. Bodies that stream on after that have traffic of their own.
pub(super) struct InFlight(Arc<ConnectionActivity>);

impl InFlight {
    pub(super) fn begin(busy: Arc<ConnectionActivity>) -> Self {
        busy.requests.fetch_add(1, Ordering::AcqRel);
        busy.asked.store(true, Ordering::Release);
        InFlight(busy)
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        let now = u64::try_from(self.0.opened.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.0.quiet_since_ms.store(now, Ordering::Release);
        self.0.requests.fetch_sub(1, Ordering::AcqRel);
    }
}

/// See the module.
#[derive(Clone)]
pub(super) struct Crowd {
    places: Arc<Semaphore>,
    reserve: Arc<Semaphore>,
    pub(super) streams: Arc<Semaphore>,
    open: Arc<Mutex<Vec<Arc<ConnectionActivity>>>>,
}

/// Why a connection has none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NoPlace {
    /// It says nothing.
    Silent,
    /// All are at work.
    Full,
}

/// One place, for as long as it lives.
pub(super) struct Place {
    pub(super) busy: Arc<ConnectionActivity>,
    crowd: Crowd,
    _permit: OwnedSemaphorePermit,
}

impl Drop for Place {
    fn drop(&mut self) {
        self.crowd.open().retain(|other| !Arc::ptr_eq(other, &self.busy));
    }
}

impl Crowd {
    pub(super) fn new(connections: usize) -> Self {
        let reserve = connections / RESERVE_SHARE;
        let of = |count| Arc::new(Semaphore::new(count));
        let (places, streams) = (of(connections - reserve), of(connections.div_ceil(2)));
        Crowd { places, reserve: of(reserve), streams, open: Arc::default() }
    }

    fn open(&self) -> std::sync::MutexGuard<'_, Vec<Arc<ConnectionActivity>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A free place, if there is one.
    pub(super) fn place(&self) -> Option<Place> {
        self.places.clone().try_acquire_owned().ok().map(|permit| self.taken(permit, false))
    }

    /// The place of a connection that has nothing to do, once it is gone, for one that says something; if all are at work, one
    /// of the reserve.
    pub(super) async fn place_of_another(&self, comes: &TcpStream) -> Result<Place, NoPlace> {
        let Ok(Ok(())) = tokio::time::timeout(SPEAKS_WITHIN, comes.readable()).await else {
            return Err(NoPlace::Silent);
        };
        let idle = |one: &Arc<ConnectionActivity>| {
            let (asked, quiet) = (one.asked.load(Ordering::Acquire), one.quiet_for()?);
            let enough = if asked { QUIET_AFTER_REQUESTS } else { QUIET_ENOUGH };
            (quiet >= enough).then(|| (!asked, quiet, one.clone()))
        };
        let goes = {
            let open = self.open();
            let may_go = open.iter().filter(|one| !one.is_reserve && !one.leaves.load(Ordering::Acquire));
            let goes = may_go.filter_map(idle).max_by_key(|(new, quiet, _)| (*new, *quiet));
            goes.inspect(|(.., goes)| goes.leaves.store(true, Ordering::Release))
        };
        if let Some((.., goes)) = goes {
            goes.makes_room.notify_one();
            if let Ok(Ok(permit)) = tokio::time::timeout(ROOM_MAX, self.places.clone().acquire_owned()).await {
                return Ok(self.taken(permit, false));
            }
        }
        let permit = self.reserve.clone().try_acquire_owned().map_err(|_| NoPlace::Full)?;
        Ok(self.taken(permit, true))
    }

    fn taken(&self, permit: OwnedSemaphorePermit, is_reserve: bool) -> Place {
        let busy = Arc::new(ConnectionActivity::new(is_reserve));
        self.open().push(busy.clone());
        Place { busy, crowd: self.clone(), _permit: permit }
    }
}
