//! Plans: everything that happens to a workflow in one simulated life, as data.
//!
//! Invariant: a plan decides everything (the same plan gives the same life, whatever the machine), and every plan is
//! possible: steps pick among what there is by number, modulo, and a step that finds nothing to do does nothing. So any
//! step can be dropped when a failure is made small. A plan runs nothing by itself.

use std::collections::BTreeMap;

use bosun_engine::*;

/// What a workflow is given, and what happens to it, in order.
#[derive(Debug, Clone, PartialEq)]
pub struct LifePlan {
    /// The workflow that lives.
    pub workflow_type: WorkflowType,
    /// What it is started with.
    pub input: Payload,
    /// How attempts of an activity can end; steps pick one. Types that are not listed end as
    /// [`LifePlan::other_results`] say.
    pub results: BTreeMap<ActivityType, Vec<ActivityOutcome>>,
    /// Empty: an activity that is not in `results` is a mistake in the test.
    pub other_results: Vec<ActivityOutcome>,
    /// How child workflows end whose code is not in the registry.
    pub children: BTreeMap<WorkflowType, Vec<CloseOutcome>>,
    /// Signals from which steps pick.
    pub signals: Vec<(SignalName, Payload)>,
    /// Updates from which steps pick.
    pub updates: Vec<(UpdateName, Payload)>,
    /// Queries from which steps pick.
    pub queries: Vec<(QueryName, Payload)>,
    /// How many attempts can run at once; 0 is no limit.
    pub slots: u8,
    /// What happens, in order.
    pub steps: Vec<LifeStep>,
}

/// One thing that happens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum LifeStep {
    /// Something under way arrives: the end of an attempt (with one of its results) or a message between runs.
    Deliver {
        /// Which of what is under way.
        pick: u16,
        /// Which of its results.
        result: u16,
    },
    /// It arrives twice.
    Duplicate {
        /// Which of what is under way.
        pick: u16,
        /// Which of its results.
        result: u16,
    },
    /// An attempt is never heard of again; its timeout ends it.
    Lose {
        /// Which of the running attempts.
        pick: u16,
    },
    /// An attempt that is over tells its end after all.
    Zombie {
        /// Which of the attempts that are over.
        pick: u16,
        /// Which of its results.
        result: u16,
    },
    /// A running attempt says that it is alive.
    Heartbeat {
        /// Which attempt.
        pick: u16,
    },
    /// A client sends a signal.
    Signal {
        /// Which of [`LifePlan::signals`].
        pick: u16,
    },
    /// The client sends its last request again, under the same request id.
    Repeat,
    /// A client asks the run to cancel.
    Cancel,
    /// A client asks a query.
    Query {
        /// Which of [`LifePlan::queries`].
        pick: u16,
    },
    /// A client sends an update.
    Update {
        /// Which of [`LifePlan::updates`].
        pick: u16,
    },
    /// A client pauses the run.
    Pause,
    /// A client unpauses the run.
    Unpause,
    /// Time passes and what is due happens; 0: up to the next deadline.
    Tick {
        /// How long, in milliseconds.
        ms: u32,
    },
    /// Time passes, and nobody has looked at the deadlines yet.
    Delay {
        /// How long, in milliseconds.
        ms: u32,
    },
    /// The wall clock is set to another time.
    WallJump {
        /// How far, in seconds; back if negative.
        seconds: i32,
    },
    /// The worker dies around the next commit, and starts again.
    Crash {
        /// Where in that commit.
        at: Boundary,
    },
    /// The run leaves memory, and comes back by replay or from its snapshot.
    Evict {
        /// Whether a snapshot is there to come back from.
        snapshot: bool,
    },
    /// The worker is stopped, and the next version of the code goes on.
    Deploy,
}

/// What happens beside the plan, wherever it can: for those who go through all of it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PlanFaults {
    /// Crashes at commits by number.
    pub crashes: Vec<(u32, Boundary)>,
    /// Every run leaves memory after every commit.
    pub evict: bool,
    /// Everything that arrives when the world comes to rest arrives twice.
    pub duplicate: bool,
}

/// Where a crash strikes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Boundary {
    /// Decided, and nothing is written.
    BeforeAppend,
    /// Written and not synced: the disk has kept it, or not.
    Unsynced {
        /// Whether the disk has kept it.
        kept: bool,
    },
    /// Durable, and no effect is released.
    AfterSync,
    /// Durable, and all effects are released.
    AfterRelease,
    /// After the release, and again in the recovery from that, after so many of its commits.
    InRecovery {
        /// After how many commits of the recovery.
        commits: u8,
    },
    /// After the release, while snapshots are written: they are on disk, or lost. Code that has none is as after release.
    InSnapshot {
        /// Whether the snapshots are on the disk.
        kept: bool,
    },
}

impl Boundary {
    /// Each kind, for those who go through all.
    pub const ALL: [Boundary; 9] = [
        Boundary::BeforeAppend,
        Boundary::Unsynced { kept: false },
        Boundary::Unsynced { kept: true },
        Boundary::AfterSync,
        Boundary::AfterRelease,
        Boundary::InRecovery { commits: 0 },
        Boundary::InRecovery { commits: 1 },
        Boundary::InSnapshot { kept: false },
        Boundary::InSnapshot { kept: true },
    ];

    /// Whether the effects of the commit are released before the crash.
    pub(super) fn releases(self) -> bool {
        matches!(self, Boundary::AfterRelease | Boundary::InRecovery { .. } | Boundary::InSnapshot { .. })
    }
}

impl LifePlan {
    /// A life in which nothing happens but what must.
    pub fn new(workflow_type: impl Into<WorkflowType>, input: Payload) -> Self {
        LifePlan {
            workflow_type: workflow_type.into(),
            input,
            results: BTreeMap::new(),
            other_results: Vec::new(),
            children: BTreeMap::new(),
            signals: Vec::new(),
            updates: Vec::new(),
            queries: Vec::new(),
            slots: 0,
            steps: Vec::new(),
        }
    }
    /// The outcomes from which steps pick for attempts of this type.
    pub(crate) fn results_of(&self, activity: &ActivityType) -> &[ActivityOutcome] {
        self.results.get(activity).unwrap_or(&self.other_results)
    }
}
