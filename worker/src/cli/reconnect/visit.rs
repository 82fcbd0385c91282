//! Waiting where no worker runs: the directory is visited now and then, and nobody's in between, so that a worker can start.
//!
//! Invariant: a visit lasts no longer than [`VISIT_MAX`] beside its opening, and the directory is free for [`BETWEEN`] at
//! least, and for longer than its opening takes. A worker that is there is asked from then on, as by a verb that has found it
//! at once. Nothing is held while nobody is asked.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::PAUSE;
use crate::api::{HttpClient, Token};
use crate::backend::{Access, Engine};
use crate::cli::context::Context;
use crate::cli::error::CliError;
use crate::cli::explain::Code;
use crate::cli::locate::{LocatedEngine, locate};

/// The longest visit of a verb that waits.
pub(in crate::cli) const VISIT_MAX: Duration = Duration::from_secs(1);
/// The shortest time between two visits.
pub(in crate::cli) const BETWEEN: Duration = Duration::from_secs(3);
/// So many times as long as an opening takes, the directory is free.
const SHARE: u32 = 4;
/// A visit gets this long to close.
const CLOSE: Duration = Duration::from_secs(5);

impl super::Reconnect {
    /// The command visits: the directory can be let go.
    pub(in crate::cli) fn visits(&mut self, engine: Arc<dyn Engine>) {
        self.taken = Some((engine, None));
    }

    /// What was only looked at is visited when it is opened again, so that a run can be waited for.
    pub(in crate::cli) fn will_visit(&mut self) {
        let purpose = Access::Visit { create: false };
        self.route = Arc::new(super::LiveRoute { purpose, ..(*self.route).clone() });
    }
}

impl Context {
    /// Whether this command holds the directory, and carries no run on.
    pub(in crate::cli) fn visits(&self) -> bool {
        !self.carried_on && self.reconnect.taken.is_some()
    }

    /// Waits for a worker, or until it is time for another visit. False: the time was over first.
    pub(in crate::cli) async fn await_a_worker(&mut self, until: Instant) -> Result<bool, CliError> {
        if !std::mem::replace(&mut self.reconnect.told_to_start, true) {
            let hint = self.screen.reach.complete("`bosun worker run`");
            self.screen.note(&format!("no worker runs: waiting for one ({hint} starts one)"));
        }
        match tokio::time::timeout_at(until, self.away(BETWEEN)).await {
            Ok(found) => found.map(|()| true),
            Err(_) => Ok(false),
        }
    }

    /// Lets the directory go for a while, and comes back to the worker that is there then, or for another visit.
    pub(in crate::cli) async fn away(&mut self, pause: Duration) -> Result<(), CliError> {
        self.let_go().await?;
        let (began, route) = (Instant::now(), self.reconnect.route.clone());
        let pause = pause.max(self.reconnect.opening.saturating_mul(SHARE));
        loop {
            tokio::time::sleep(PAUSE).await;
            if let Some(client) = route.attach().await? {
                self.come_back(LocatedEngine::Attached(client));
                return Ok(());
            }
            if began.elapsed() < pause {
                continue;
            }
            let opening = Instant::now();
            match locate(&route.global, &*route.opener, &route.purpose).await {
                Ok(found) => {
                    self.reconnect.opening = opening.elapsed();
                    self.come_back(found);
                    return Ok(());
                }
                // Another visit, or a worker that does not answer yet.
                Err(why) if why.code == Code::StoreLocked => {}
                // Only this address was asked for.
                Err(why) if why.code == Code::Unreachable && route.global.address.is_some() => {}
                Err(why) => return Err(why),
            }
        }
    }

    /// The worker has left that a verb asked which looks at no run in particular: it visits the directory until the next one
    /// is there.
    pub(in crate::cli) async fn outlive_the_worker(&mut self) -> Result<(), CliError> {
        let hint = self.screen.reach.complete("`bosun worker run`");
        self.screen.note(&format!("the worker has left ({hint} starts the next one)"));
        self.reconnect.told_to_start = true;
        self.away(BETWEEN).await
    }

    async fn let_go(&mut self) -> Result<(), CliError> {
        let Some((engine, _)) = self.reconnect.taken.take() else { return Ok(()) };
        // The lock is free when nobody has the engine any more: meanwhile a worker is asked that is not there.
        self.backend = Arc::new(HttpClient::new(NOBODY, Token::of(""), "")?);
        engine.drain(CLOSE).await;
        Ok(())
    }

    fn come_back(&mut self, found: LocatedEngine) {
        match found {
            LocatedEngine::Attached(_) => {
                self.go_on_with(&found);
                (self.attached, self.carried_on) = (true, true);
                self.reconnect.beside_a_run = self.reconnect.route.beside_a_run();
                if self.reconnect.told_to_start {
                    self.screen.note("a worker is there");
                }
            }
            LocatedEngine::Embedded(engine, caller) => self.take(engine, caller, None),
        }
    }
}

/// Nobody can be reached at this address.
const NOBODY: &str = "http://127.0.0.1:0";
