//! Faults of a simulated life: how workers end, what is left of the log, and what must be found in it.
//!
//! Invariant: a worker that starts again finds everything that was durable when the one before ended: the groups, every
//! answer that was given, every attempt that had started (G1-G6). This is looked at before it takes a step.

use std::sync::Arc;
use std::time::Duration;

use bosun_engine::clock::VirtualClock;
use bosun_engine::log::{InjectedFault, MemoryLog};
use bosun_engine::testing::WorkerStep;
use bosun_engine::*;

use super::plan::FaultProfile;
use super::world::{Checked, EngineWorld, start};

/// The kinds of faults.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FaultAct {
    PowerCut,
    Kill,
    StorageError,
    Stop,
    Stall,
}

impl FaultAct {
    pub(super) const ALL: [(u32, FaultAct); 5] = [
        (2, FaultAct::PowerCut),
        (2, FaultAct::Kill),
        (2, FaultAct::StorageError),
        (1, FaultAct::Stop),
        (2, FaultAct::Stall),
    ];
}

impl FaultProfile {
    /// Whether lives of this profile meet such a fault.
    pub(super) fn include(self, act: FaultAct) -> bool {
        match self {
            FaultProfile::None => false,
            FaultProfile::Crashes => matches!(act, FaultAct::PowerCut | FaultAct::Kill | FaultAct::Stop),
            FaultProfile::Storage => act == FaultAct::StorageError,
            FaultProfile::Stalls => act == FaultAct::Stall,
            FaultProfile::All => true,
        }
    }
}

impl EngineWorld<'_> {
    pub(super) fn fault(&mut self, act: FaultAct) -> Checked {
        match act {
            FaultAct::PowerCut => {
                let steps = self.worker.steps();
                self.rare.hit(match () {
                    () if steps.contains(&WorkerStep::Write) => "power cut between taking and writing a group",
                    () if steps.contains(&WorkerStep::Release) && self.failed => {
                        "power cut with a group written and not synced"
                    }
                    () if steps.contains(&WorkerStep::Release) => "power cut between writing and releasing a group",
                    () => "power cut",
                });
                let seed = u64::from(self.choices.next());
                self.restart(self.log.crash(seed))
            }
            FaultAct::Kill => {
                self.rare.hit("killed");
                self.restart(self.log.kill())
            }
            FaultAct::StorageError => {
                let at = 1 + self.choices.below(6) as u64;
                let fault = [InjectedFault::Eio, InjectedFault::EioAfter, InjectedFault::Enospc][self.choices.below(3)];
                self.rare.hit(match fault {
                    InjectedFault::Eio => "storage error before the write",
                    InjectedFault::EioAfter => "storage error after the write",
                    InjectedFault::Enospc => "disk full",
                });
                self.log.fail_at(at, fault);
                self.armed = true;
                Ok(())
            }
            FaultAct::Stop => {
                self.rare.hit("stopped in order and started again");
                self.stop_and_start()
            }
            FaultAct::Stall => {
                let (shard, steps) = (self.choices.below(self.shape.shards), self.choices.below(40));
                self.stalled.insert(shard, 1 + steps as u32);
                self.rare.hit("shard stalled");
                Ok(())
            }
        }
    }

    pub(super) fn housekeep(&mut self) -> Checked {
        let before = self.worker.journal().first_group();
        if !self.worker.housekeep() {
            if !self.failed {
                self.rare.hit("storage error in housekeeping");
                self.durable_in_flight = self.worker.steps().contains(&WorkerStep::Release);
            }
            return Ok(());
        }
        self.durable = self.durable.max(self.worker.journal().last_group());
        self.rare.hit("housekeeping");
        if self.worker.journal().first_group() > before {
            self.rare.hit("groups archived");
        }
        Ok(())
    }

    /// Stops the worker in order and starts another one.
    pub(super) fn stop_and_start(&mut self) -> Checked {
        let stopped = self.worker.stop();
        self.take_in_before_the_end()?;
        match stopped {
            Ok(()) if !self.failed => self.durable = self.durable.max(self.worker.journal().last_group()),
            Ok(()) | Err(_) => {}
        }
        self.restart(self.log.kill())
    }

    /// Answers and attempts of the last steps of a worker that stops.
    fn take_in_before_the_end(&mut self) -> Checked {
        // The worker may have failed on its way out; what it acknowledged before counts.
        self.look()
    }

    /// Another worker takes over what the crash has left of the log.
    pub(super) fn restart(&mut self, left: MemoryLog) -> Checked {
        if self.recovering {
            self.rare.hit("crash before the recovery from a crash was over");
        }
        self.version = (self.version + usize::from(self.choices.below(4) == 1)).min(self.plan.code.len() - 1);
        if self.version > 0 {
            self.rare.hit("new version deployed");
        }
        let now = self.clock.now();
        // A new process reads the wall clock, which may have been set.
        let at = match self.choices.below(6) {
            1 => {
                self.rare.hit("clock set back over a restart");
                Timestamp(now.0 - 3_600_000_000)
            }
            2 => {
                self.rare.hit("long downtime");
                now.plus(Duration::from_secs(7_200))
            }
            _ => now,
        };
        self.log = Arc::new(left);
        self.clock = VirtualClock::at(at);
        self.staged.clear();
        self.lost.clear();
        self.stalled.clear();
        let waited = self.requests.iter().any(|request| {
            request.answer.is_none()
                && request.incarnation == self.incarnation
                && matches!(request.ask, super::answers::ClientRequest::Result { .. })
        });
        if waited {
            self.rare.hit("result awaited over a crash");
        }
        (self.incarnation, self.armed, self.failed, self.recovering) = (self.incarnation + 1, false, false, true);
        self.durable_in_flight = false;
        self.worker = match start(self.plan, &self.shape, &self.log, &self.clock, self.version) {
            Ok(worker) => worker,
            Err(why) => return self.broken("G2", why),
        };
        let last = self.worker.journal().last_group();
        let incarnation = self.incarnation;
        self.note(format_args!("worker {incarnation} starts after group {last}"));
        if last < self.durable {
            return self.broken("G2", format!("group {} was durable, and the log ends with {last}", self.durable));
        }
        self.durable = last;
        self.check_kept()
    }
}
