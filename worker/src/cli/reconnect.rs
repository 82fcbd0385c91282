//! Waiting survives whoever carries runs on: a verb that waits finds the next worker, or goes on by itself.
//!
//! Invariant: only a worker that left is waited for; what a run says about itself ends the waiting as ever. One that is there
//! and cannot be waited on is asked ever more rarely, and not for ever. A command that works for itself takes the directory over only from another such command, never from a worker, which comes back.

pub(super) mod visit;

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bosun_engine::{Namespace, ResultRequest, Target};

use super::Program;
use super::args::Global;
use super::context::Context;
use super::error::CliError;
use super::exit::Exit;
use super::explain::Code;
use super::holder::caller_of;
use super::locate::{LocatedEngine, attach, attach_to, locate};
use super::worker::{Serving, serve_beside};
use crate::api::{Caller, HttpClient, WorkerFile};
use crate::backend::{Access, Engine, OpenEngine, OpenError};

/// Between two looks for a worker.
const PAUSE: Duration = Duration::from_millis(250);
/// The longest pause before a worker that is there is waited on again.
const PAUSE_MAX: Duration = Duration::from_secs(4);
/// So often in a row a worker that is there may end a wait for one reason.
const REFUSALS_MAX: u32 = 8;
/// The same of one that drains, which ends by itself sooner: ten minutes.
const DRAINING_MAX: u32 = 150;
/// A wait that lasted as long was one.
const WAITED: Duration = Duration::from_secs(30);
/// An engine that a verb opened on its way gets this long to close.
const CLOSE: Duration = Duration::from_secs(5);

/// How the command found its engine, to find one again.
#[derive(Clone)]
struct LiveRoute {
    global: Global,
    opener: Arc<dyn OpenEngine>,
    purpose: Access,
    namespace: Option<Namespace>,
}

/// What a verb has in hand to go on with when its worker leaves.
pub struct Reconnect {
    route: Arc<LiveRoute>,
    /// Whoever holds the directory is a command like ours, which leaves it at the end of its own run.
    beside_a_run: bool,
    taken: Option<(Arc<dyn Engine>, Option<Serving>)>,
    refusals: Refusals,
    /// When a worker was found again.
    found: Option<Instant>,
    /// Whether it was said that a worker is waited for.
    told_to_start: bool,
    /// How long the last visit took to open the directory.
    opening: Duration,
}

/// Waits on one worker that ended at once, for one reason.
#[derive(Debug, Default)]
struct Refusals {
    why: String,
    times: u32,
}

impl Refusals {
    /// A wait that lasted as long ended for this reason: the pause before the next one, or none when it is to be the last.
    fn pause(&mut self, why: &CliError, waited: Duration) -> Option<Duration> {
        let told = why.render(false);
        if waited >= WAITED || self.why != told {
            *self = Refusals { why: told, times: 0 };
        }
        self.times += 1;
        let ends = self.times > if why.code == Code::ShuttingDown { DRAINING_MAX } else { REFUSALS_MAX };
        let pause = PAUSE.saturating_mul(2_u32.saturating_pow(self.times - 1)).min(PAUSE_MAX);
        (!ends).then_some(pause)
    }
}

impl LiveRoute {
    /// The client of a worker that lives and answers.
    async fn attach(&self) -> Result<Option<HttpClient>, CliError> {
        match &self.global.address {
            Some(address) => match attach(address, &self.global).await {
                Ok(client) => Ok(Some(client)),
                Err(why) if why.code == Code::Unreachable => Ok(None),
                Err(why) => Err(why),
            },
            None => match WorkerFile::read(&self.global.data).filter(WorkerFile::process_lives) {
                Some(file) => attach_to(&file, &self.global).await,
                None => Ok(None),
            },
        }
    }

    fn beside_a_run(&self) -> bool {
        self.global.address.is_none() && WorkerFile::read(&self.global.data).is_some_and(|file| file.of_a_run)
    }

    /// The directory as it was left, where the run has closed; nothing where it is open.
    /// For a token that only a worker knows the next one is waited for.
    async fn closed(
        &self,
        target: &Target,
        follow_runs: bool,
    ) -> Result<Option<(Arc<dyn Engine>, Option<Caller>)>, OpenError> {
        let Ok(caller) = caller_of(&self.global, &Access::Look) else { return Ok(None) };
        let engine = self.opener.open(&self.global.data, &Access::Look).await?;
        let backend = LocatedEngine::Embedded(engine.clone(), caller.clone()).backend(self.namespace.as_ref());
        let at_once = ResultRequest { follow_runs, timeout: Some(Duration::ZERO) };
        if matches!(backend.result(target.clone(), at_once).await, Ok(Some(_))) {
            return Ok(Some((engine, caller)));
        }
        engine.drain(Duration::ZERO).await;
        Ok(None)
    }
}

impl Reconnect {
    pub(super) fn by(global: &Global, program: &Program, purpose: &Access, namespace: Option<Namespace>) -> Self {
        let (opener, purpose) = (program.opener.clone(), purpose.clone());
        let route = LiveRoute { global: global.clone(), opener, purpose, namespace };
        let beside_a_run = route.beside_a_run();
        Reconnect {
            beside_a_run,
            route: Arc::new(route),
            taken: None,
            refusals: Refusals::default(),
            found: None,
            told_to_start: false,
            opening: Duration::ZERO,
        }
    }

    /// The pause before the worker is looked for, which has ended a wait for this reason.
    fn pause(&mut self, why: &CliError) -> Result<Duration, CliError> {
        let waited = self.found.take().map_or(WAITED, |found| found.elapsed());
        self.refusals.pause(why, waited).ok_or_else(|| {
            let times = self.refusals.times;
            let message =
                format!("the worker is there, and {times} times in a row it could not be waited on: {}", why.message);
            let error = CliError::new(why.code, message).help("look at the worker's log, and at any proxy in between");
            why.cause.iter().fold(error, |error, cause| error.cause(cause.clone()))
        })
    }

    /// Gives back a directory that was taken over on the way.
    pub(super) async fn leave(self, data: &Path) {
        let Some((engine, serving)) = self.taken else { return };
        if let Some(serving) = serving {
            serving.stop(data, Exit::Error).await;
        }
        engine.drain(CLOSE).await;
    }
}

impl Context {
    /// Whether this says that the worker left, and nothing of the run.
    pub(super) fn lost_the_worker(&self, why: &CliError) -> bool {
        self.attached && matches!(why.code, Code::Unreachable | Code::ShuttingDown)
    }

    /// Waits until the run can be waited for again: by the next worker, by ourselves, or, as it has closed meanwhile, from the
    /// directory that was left. `why`: how the last wait ended.
    pub(super) async fn find_again(
        &mut self,
        target: &Target,
        follow_runs: bool,
        why: &CliError,
    ) -> Result<(), CliError> {
        let mut pause = self.reconnect.pause(why)?;
        let route = self.reconnect.route.clone();
        let named = route.global.address.is_some();
        let takes_over = !named && self.reconnect.beside_a_run && matches!(route.purpose, Access::Work { .. });
        let (mut to_look, mut told) = (!named, false);
        loop {
            tokio::time::sleep(std::mem::replace(&mut pause, PAUSE)).await;
            if let Some(client) = route.attach().await? {
                self.reconnect.beside_a_run = route.beside_a_run();
                self.go_on_with(&LocatedEngine::Attached(client));
                if told {
                    self.screen.note("a worker is back");
                }
                self.reconnect.found = Some(Instant::now());
                return Ok(());
            }
            // One that left was not there to refuse.
            self.reconnect.refusals = Refusals::default();
            if takes_over {
                match locate(&route.global, &*route.opener, &route.purpose).await {
                    Ok(found) => {
                        self.take_over(found).await;
                        return Ok(());
                    }
                    Err(why) if why.code == Code::StoreLocked => {}
                    Err(why) => return Err(why),
                }
            } else if to_look {
                match route.closed(target, follow_runs).await {
                    Ok(Some((engine, caller))) => {
                        self.take(engine, caller, None);
                        return Ok(());
                    }
                    Ok(None) => to_look = false,
                    Err(OpenError::Locked(_)) => {}
                    Err(why) => return Err(why.into()),
                }
            }
            if !std::mem::replace(&mut told, true) {
                self.says_that_it_waits();
            }
        }
    }

    fn says_that_it_waits(&mut self) {
        let hint = self.screen.reach.complete("`bosun worker run`");
        self.screen.note(&format!("the worker has left: waiting for the next one ({hint} starts one)"));
    }

    async fn take_over(&mut self, found: LocatedEngine) {
        match found {
            LocatedEngine::Attached(_) => self.go_on_with(&found),
            LocatedEngine::Embedded(engine, caller) => {
                let route = &self.reconnect.route;
                let serving = serve_beside(&route.global, &*engine, route.opener.workflows()).await;
                self.screen.note("the command that carried this run on has ended: going on in this one");
                self.take(engine, caller, serving);
                self.carried_on = true;
            }
        }
    }

    /// Nobody carries on what is only looked at.
    fn take(&mut self, engine: Arc<dyn Engine>, caller: Option<Caller>, serving: Option<Serving>) {
        self.go_on_with(&LocatedEngine::Embedded(engine.clone(), caller));
        (self.attached, self.carried_on) = (false, false);
        self.reconnect.taken = Some((engine, serving));
    }

    fn go_on_with(&mut self, found: &LocatedEngine) {
        self.backend = found.backend(self.reconnect.route.namespace.as_ref());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_worker_that_refuses_is_asked_ever_more_rarely_and_not_for_ever() {
        let why = |text: &str| CliError::new(Code::Unreachable, "the worker cannot be reached").cause(text);
        let mut refusals = Refusals::default();
        let pauses: Vec<Option<u128>> = (0..=REFUSALS_MAX)
            .map(|_| refusals.pause(&why("reset"), Duration::ZERO).map(|pause| pause.as_millis()))
            .collect();
        let expected = [250, 500, 1_000, 2_000, 4_000, 4_000, 4_000, 4_000].map(Some);
        assert_eq!((&pauses[..8], pauses[8]), (&expected[..], None));
        assert_eq!(refusals.pause(&why("refused"), Duration::ZERO), Some(PAUSE), "another reason");
        assert_eq!(refusals.pause(&why("refused"), WAITED), Some(PAUSE), "it was waited on");
        let drains = CliError::new(Code::ShuttingDown, "the worker is shutting down");
        let pauses: Vec<_> = (0..=DRAINING_MAX).map_while(|_| refusals.pause(&drains, Duration::ZERO)).collect();
        assert_eq!((pauses.len(), pauses.last()), (150, Some(&PAUSE_MAX)), "a drain may take its time");
    }
}
