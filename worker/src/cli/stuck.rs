//! What keeps a run and those below it from going on, where no person is asked: an attempt that fails and is made again,
//! a hold, a pause, work that nobody takes; with the command that helps.
//!
//! Invariant: it is what the engine says of each run, a run before those below it; at most [`RUNS_MAX`] runs are asked, and
//! a run that cannot be asked says nothing, unless it is because it is held. Texts of failures are one line. It changes nothing.

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use bosun_engine::*;
use serde_json::Value;

use super::error::one_line;
use super::list::{run_word, shell_word};
use super::output::Screen;
use super::reach::Reach;
use super::time_format::short;
use crate::backend::{Backend, CallError, WorkerState};
use crate::inbox::target_of;

/// What of a held run keeps it.
pub(super) const HOLD: &str = "hold";
/// Runs that are asked.
const RUNS_MAX: usize = 50;
/// Characters of an error that are shown.
const WHY_MAX: usize = 300;
/// Events at the end of a history among which a pause is looked for: while it lasts hardly any are added.
const PAUSE_LOOKED_AT: usize = 200;
/// What nobody has taken for so long waits for a slot, or for a worker of its task queue.
const UNTAKEN: Duration = Duration::from_secs(10);
/// Where all slots are known to be taken, this long is no moment between two attempts any more.
const BUSY: Duration = Duration::from_secs(1);

/// One thing that keeps a run from going on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Obstacle {
    pub run: WorkflowId,
    /// What of the run: stays the same while it lasts.
    pub what: String,
    pub why: String,
    /// The next attempt, or the one under way.
    pub attempt: Option<Attempt>,
    pub next_attempt_at: Option<Timestamp>,
    /// The command that helps.
    pub help: String,
}

impl Obstacle {
    pub(crate) fn title(&self) -> String {
        format!("{} of {}", self.what, self.run)
    }

    /// Why, and what comes next.
    pub(crate) fn text(&self, now: Timestamp) -> String {
        let next = match (self.attempt, self.next_attempt_at) {
            (Some(attempt), Some(at)) if at > now => format!("attempt {attempt} in {}: ", short(at.since(now))),
            (Some(attempt), _) => format!("attempt {attempt} now: "),
            (None, _) => String::new(),
        };
        format!("{next}{}", self.why)
    }

    /// The same with hints that reach the same place. Only why a run is held is ours alone, and names commands.
    pub(super) fn said(&self, now: Timestamp, reach: &Reach) -> String {
        let text = self.text(now);
        if self.what == HOLD { reach.complete(&text) } else { text }
    }

    pub(super) fn json(&self, screen: &Screen) -> Value {
        serde_json::json!({
            "workflow_id": self.run, "what": self.what, "why": self.why, "attempt": self.attempt,
            "next_attempt_at": self.next_attempt_at.map(|at| screen.time.json(at)),
            "help": screen.reach.complete(&self.help),
        })
    }
}

/// Looks for what keeps runs from going on; no run is asked twice.
pub(crate) struct Lookout<'b> {
    backend: &'b dyn Backend,
    now: Timestamp,
    seen: BTreeSet<RunId>,
    /// What the slots of the worker do, once somebody waits for one.
    slots: Option<WorkerState>,
    /// Whether a worker runs at all.
    carried_on: bool,
}

impl<'b> Lookout<'b> {
    pub(crate) fn new(backend: &'b dyn Backend, now: Timestamp) -> Self {
        Lookout { backend, now, seen: BTreeSet::new(), slots: None, carried_on: true }
    }

    /// Where no worker runs, that is what work waits for, and no slot.
    pub(crate) fn carried_on(self, carried_on: bool) -> Self {
        Lookout { carried_on, ..self }
    }

    /// The run and all below it.
    pub(crate) async fn below(&mut self, target: Target) -> Vec<Obstacle> {
        if self.seen.len() >= RUNS_MAX || target.run_id.is_some_and(|run| self.seen.contains(&run)) {
            return Vec::new();
        }
        match self.backend.describe(target.clone()).await {
            Ok(description) => self.below_described(&description).await,
            Err(why) => Obstacle::of_silent(&target, &why).into_iter().collect(),
        }
    }

    /// A run that has been described, and none below it.
    pub(crate) async fn own(&mut self, description: &Description) -> Vec<Obstacle> {
        let mut found = Vec::new();
        self.look(description, &mut found, &mut VecDeque::new()).await;
        found
    }

    /// A run that has been described, and all below it.
    pub(crate) async fn below_described(&mut self, description: &Description) -> Vec<Obstacle> {
        let mut found = Vec::new();
        let mut next = VecDeque::new();
        self.look(description, &mut found, &mut next).await;
        while let Some(target) = next.pop_front() {
            if self.seen.len() >= RUNS_MAX {
                break;
            }
            match self.backend.describe(target.clone()).await {
                Ok(description) => self.look(&description, &mut found, &mut next).await,
                Err(why) => found.extend(Obstacle::of_silent(&target, &why)),
            }
        }
        found
    }

    async fn look(&mut self, description: &Description, found: &mut Vec<Obstacle>, next: &mut VecDeque<Target>) {
        let info = &description.info;
        if !info.status.is_open() || self.seen.len() >= RUNS_MAX || !self.seen.insert(info.run_id) {
            return;
        }
        if self.carried_on && self.slots.is_none() && description.pending_activities.iter().any(waits_for_a_slot) {
            self.slots = Some(self.backend.worker_state().await.unwrap_or_default());
        }
        let pause = paused(self.backend, description).await;
        found.extend(of_run(description, pause.as_deref(), self.now, self.slots.as_ref(), self.carried_on));
        let below = description.pending_children.iter().filter(|child| child.run_id.is_some());
        next.extend(below.map(|child| Target {
            namespace: info.namespace.clone(),
            run_id: child.run_id,
            ..Target::workflow(child.workflow_id.clone())
        }));
    }
}

impl Obstacle {
    /// A run that cannot say what it does, because it is held or what is kept of it cannot be read: whoever waits for it waits
    /// until somebody ends it.
    fn of_silent(target: &Target, why: &CallError) -> Option<Obstacle> {
        let (CallError::Rejected(Rejection::Held { why }) | CallError::Rejected(Rejection::Damaged { why })) = why
        else {
            return None;
        };
        let help = format!("bosun terminate {}", run_word(target.workflow_id.as_str()));
        Some(Obstacle::at(&target.workflow_id, HOLD, why, help))
    }

    fn of(info: &RunInfo, what: &str, why: &str, help: String) -> Obstacle {
        Obstacle::at(&info.workflow_id, what, why, help)
    }

    fn at(run: &WorkflowId, what: &str, why: &str, help: String) -> Obstacle {
        let (run, why) = (run.clone(), one_line(why).chars().take(WHY_MAX).collect());
        Obstacle { run, what: one_line(what), why, attempt: None, next_attempt_at: None, help }
    }
}

/// Who paused a run that the engine keeps from going on, and why; what they said stands at the end of its history.
pub(crate) async fn paused(backend: &dyn Backend, description: &Description) -> Option<String> {
    let info = &description.info;
    if info.status != WorkflowStatus::Paused {
        return None;
    }
    let from = EventId(info.history.events.saturating_sub(PAUSE_LOOKED_AT as u64).saturating_add(1));
    let last = backend.history(target_of(info), from, PAUSE_LOOKED_AT).await.unwrap_or_default();
    let said = last.into_iter().rev().find_map(|event| match event.kind {
        EventKind::WorkflowExecutionPaused { reason, identity } => Some((reason, identity)),
        _ => None,
    });
    let (reason, identity) = said.unwrap_or_default();
    let by = identity.map_or_else(String::new, |who| format!(" by {who}"));
    let why = if reason.is_empty() { String::new() } else { format!(": {}", one_line(&reason)) };
    let inputs = match description.inbox {
        0 => String::new(),
        waiting => format!("; {}", inputs_wait(waiting)),
    };
    Some(format!("it is paused{by}{why}{inputs}"))
}

/// How many inputs a run has that it does not look at.
pub(super) fn inputs_wait(count: usize) -> String {
    if count == 1 { "1 input waits".to_owned() } else { format!("{count} inputs wait") }
}

/// Why a run has not begun that somebody wants to begin later: nothing is wrong with it.
pub(super) const DELAYED: &str = "its start was delayed";

/// What the engine knows of one run. `pause`: who paused it, and why.
fn of_run(
    description: &Description,
    pause: Option<&str>,
    now: Timestamp,
    slots: Option<&WorkerState>,
    carried_on: bool,
) -> Vec<Obstacle> {
    let info = &description.info;
    let id = run_word(info.workflow_id.as_str());
    let mut found = Vec::new();
    if let Some(why) = &description.held {
        // A difference between code and history has a card of its own; all else stands in the description.
        let verb =
            if why.contains(bosun_engine::workflow::NonDeterminism::CODE) { "replay explain" } else { "describe" };
        // The first line of a card says what it is; the rest of it stands where that verb shows it.
        let why = why.lines().find(|line| !line.trim().is_empty()).unwrap_or_default();
        found.push(Obstacle::of(info, HOLD, why, format!("bosun {verb} {id}")));
    }
    if let Some(why) = pause {
        found.push(Obstacle::of(info, "pause", why, format!("bosun resume {id}")));
    }
    if let Some(at) = description.starts_at.filter(|at| *at > now) {
        let why = if info.attempt == Attempt(1) { DELAYED } else { "the attempt before it has failed" };
        let found_at = Obstacle::of(info, "start", why, format!("bosun describe {id}"));
        found.push(Obstacle { attempt: Some(info.attempt), next_attempt_at: Some(at), ..found_at });
    }
    let untaken = |activity: &&PendingActivity| waits_for_a_slot(activity) && activity.last_failure.is_none();
    if let (false, Some(first)) = (carried_on, description.pending_activities.iter().find(untaken)) {
        let others = description.pending_activities.iter().filter(untaken).count() - 1;
        let more = if others == 0 { String::new() } else { format!(" and {others} more") };
        let what = format!("{}{more}", activity_name(first));
        let why = "it waits for a worker, and none runs";
        found.push(Obstacle::of(info, &what, why, "bosun worker run".to_owned()));
    }
    let others = description.pending_activities.iter().filter(|activity| carried_on || !untaken(activity));
    found.extend(others.filter_map(|activity| of_activity(info, activity, now, slots)));
    found
}

fn waits_for_a_slot(activity: &PendingActivity) -> bool {
    activity.state == PendingActivityState::Scheduled
}

/// How an obstacle of an activity names it.
pub(crate) fn activity_name(activity: &PendingActivity) -> String {
    let about = activity.summary.as_ref().map(|summary| format!(" ({summary})")).unwrap_or_default();
    format!("activity {} {}{about}", activity.activity_id, activity.activity_type)
}

/// Which slots are all taken, where some are, or that nobody serves the queue; who waits so long waits for one of these.
fn taken(slots: &WorkerState, queue: &TaskQueue) -> Option<String> {
    let WorkerState { slots: all, busy, external_slots, external_busy, queues, .. } = slots;
    let limit = queues.get(queue).and_then(|queue| Some((queue.running, queue.max_concurrent?)));
    match limit {
        // A visit has none, and says nothing of a worker.
        _ if *all == 0 => None,
        _ if !is_served(slots, queue) => {
            Some(format!("no worker serves its task queue {queue} (`--queue` of a worker)"))
        }
        _ if busy >= all => Some(format!("it waits for a slot: all {all} are busy (`--slots` of the worker)")),
        Some((running, most)) if running >= most => Some(format!(
            "it waits for a slot of its task queue {queue}, of which {most} may run at once (`--queue-limit` of the worker)"
        )),
        _ if external_busy >= external_slots => Some(format!(
            "it waits for a slot: all {external_slots} for programs, models, MCP and HTTP are busy (`--external-slots` of the worker)"
        )),
        _ => rated(slots, queue),
    }
}

fn is_served(slots: &WorkerState, queue: &TaskQueue) -> bool {
    slots.task_queues.as_ref().is_none_or(|served| served.contains(queue))
}

/// Slots are free, and no more attempts may start in a second than the owner allows.
fn rated(slots: &WorkerState, queue: &TaskQueue) -> Option<String> {
    let of_queue = slots.queues.get(queue).and_then(|queue| queue.max_per_second.as_ref());
    match (of_queue, &slots.max_per_second) {
        (Some(rate), _) => Some(format!(
            "it waits for its turn: {rate} a second may start in its task queue {queue} (`--queue-limit` of the worker)"
        )),
        (None, Some(rate)) => Some(format!(
            "it waits for its turn: {rate} a second may start in all (`--activities-per-second` of the worker)"
        )),
        (None, None) => None,
    }
}

fn of_activity(
    info: &RunInfo,
    activity: &PendingActivity,
    now: Timestamp,
    slots: Option<&WorkerState>,
) -> Option<Obstacle> {
    let (id, name) = (run_word(info.workflow_id.as_str()), shell_word(activity.activity_id.as_str()));
    let what = activity_name(activity);
    if activity.state == PendingActivityState::Paused {
        let why = activity.last_failure.as_ref().map_or_else(String::new, |failure| format!(" after {failure}"));
        let help = format!("bosun activity unpause {id} {name}");
        return Some(Obstacle::of(info, &what, &format!("it is paused{why}"), help));
    }
    // The second attempt is under way: as after every crash, and nothing to see to.
    let goes_on = activity.state == PendingActivityState::Started && activity.attempt <= Attempt(2);
    if let Some(failure) = activity.last_failure.as_ref().filter(|_| !goes_on) {
        // Whoever has mended it need not wait for the next attempt; one that is under way cannot be hurried.
        let is_next = activity.state == PendingActivityState::BackingOff;
        let verb = if is_next { "retry-now" } else { "describe" };
        let found = Obstacle::of(info, &what, &failure.to_string(), format!("bosun activity {verb} {id} {name}"));
        let (attempt, next_attempt_at) = (Some(activity.attempt), activity.next_attempt_at);
        return Some(Obstacle { attempt, next_attempt_at, ..found });
    }
    let untaken = now.since(activity.scheduled_at);
    let waits = waits_for_a_slot(activity) && activity.attempt == Attempt(1);
    let queue = activity.task_queue.as_ref().unwrap_or(&info.task_queue);
    let help = format!("bosun queue describe {}", shell_word(queue.as_str()));
    if waits
        && untaken >= BUSY
        && let Some(why) = slots.and_then(|slots| taken(slots, queue))
    {
        return Some(Obstacle::of(info, &what, &why, help));
    }
    let why =
        "nobody has taken it: no slot is free, or no worker serves its task queue (`--slots`, `--queue` of a worker)";
    (waits && untaken >= UNTAKEN).then(|| Obstacle::of(info, &what, why, help))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::QueueState;
    use crate::cli::output::Screen;
    use crate::cli::progress::{ProgressBoard, Watch};
    use crate::cli::tests::{program, run_with};
    use crate::fake::{Fake, FakeOpener, RUN, run_info};

    /// A run whose child cannot reach its model.
    fn stuck() -> Fake {
        let mut child = run_info("order-7-plan-1", WorkflowStatus::Running);
        child.run_id = RunId([8; 16]);
        let mut fake = Fake::new();
        (fake.runs, fake.described) = (vec![run_info("order-7", WorkflowStatus::Running), child], described);
        fake
    }

    fn described(description: &mut Description) {
        if description.info.run_id == RUN {
            let child = PendingChild {
                seq: Seq(4),
                workflow_id: WorkflowId::of("order-7-plan-1"),
                workflow_type: WorkflowType::of("agent"),
                run_id: Some(RunId([8; 16])),
            };
            description.pending_children = vec![child];
            return;
        }
        described_as_child(description);
    }

    fn described_as_child(description: &mut Description) {
        description.held = Some("error[BOSUN0101]: the code has changed".into());
        description.pending_activities = vec![PendingActivity {
            seq: Seq(1),
            activity_id: ActivityId::of("1"),
            activity_type: ActivityType::of("agent_model"),
            state: PendingActivityState::BackingOff,
            attempt: Attempt(5),
            scheduled_at: Timestamp(900_000_000),
            next_attempt_at: Some(Timestamp(1_007_000_000)),
            last_failure: Some(Failure::application("ModelRetry", "no route to http://127.0.0.1:1\n\u{202e}again")),
            heartbeat_details: None,
            task_token: None,
            summary: None,
            task_queue: None,
            options: None,
        }];
    }

    const MODEL: &str = "activity 1 agent_model of order-7-plan-1: attempt 5 in 7s: \
                         ModelRetry: no route to http://127.0.0.1:1 \u{fffd}again";

    /// What a child cannot do shows at the run above it, with the error, the attempts and the command that helps.
    #[tokio::test]
    async fn what_a_run_below_cannot_do_is_shown_above() {
        for verb in ["describe order-7", "list -q WorkflowId~=~'order-7'"] {
            let (program, opener) = program(FakeOpener::new(stuck()));
            let data = tempfile::tempdir().unwrap();
            let shown = run_with(&program, &opener, data.path(), verb).await.stdout;
            assert!(shown.contains(MODEL), "{verb}: {shown}");
            assert!(shown.contains("activity retry-now order-7-plan-1 1"), "{verb}: {shown}");
            assert!(
                shown.contains("hold of order-7-plan-1: error[BOSUN0101]: the code has changed"),
                "{verb}: {shown}"
            );
            assert!(shown.contains("replay explain order-7-plan-1"), "{verb}: {shown}");
        }
    }

    /// Which slots are taken decides what is said; where some are free, something else keeps it.
    #[test]
    fn what_waits_for_a_slot_says_for_which() {
        let queue = TaskQueue::of("default");
        let of = |busy, external_busy, running| {
            let limited = QueueState { running, max_concurrent: Some(2), max_per_second: None };
            let queues = [(queue.clone(), limited)].into();
            let state =
                WorkerState { slots: 4, busy, external_slots: 1, external_busy, queues, ..WorkerState::default() };
            taken(&state, &queue).unwrap_or_default()
        };
        assert!(of(4, 1, 0).contains("all 4 are busy"), "{}", of(4, 1, 0));
        assert!(of(2, 1, 2).contains("--queue-limit"), "{}", of(2, 1, 2));
        assert!(of(1, 1, 1).contains("all 1 for programs"), "{}", of(1, 1, 1));
        assert_eq!(of(1, 0, 1), "");
        assert_eq!(taken(&WorkerState::default(), &queue), None, "a visit");
    }

    /// Whoever waits is told once, and not at every look.
    #[tokio::test]
    async fn whoever_waits_is_told_once() {
        let fake = stuck();
        let (mut screen, output) = Screen::captured();
        screen.ascii = true;
        let mut board = ProgressBoard::new(Watch::Events, Target::workflow("order-7".into()));
        for _ in 0..3 {
            board.look(&mut screen, &fake).await;
        }
        let said = output.stderr();
        assert_eq!(said.matches("agent_model of order-7-plan-1: attempt 5").count(), 1, "{said}");
        assert_eq!(said.lines().count(), 2, "{said}");
        assert!(said.contains("(`bosun activity retry-now order-7-plan-1 1`)"), "{said}");
    }

    /// However much is in the way of one run, what is told of it fits a screen; programs are told all.
    #[tokio::test]
    async fn many_things_in_the_way_do_not_drown_the_rest() {
        fn many(description: &mut Description) {
            described_as_child(description);
            let one = description.pending_activities[0].clone();
            let activity = |n: u64| PendingActivity { activity_id: ActivityId::of(n.to_string()), ..one.clone() };
            description.pending_activities = (1..=200).map(activity).collect();
        }
        let mut fake = stuck();
        (fake.runs, fake.described) = (vec![run_info("order-7", WorkflowStatus::Running)], many);
        let (mut screen, output) = Screen::captured();
        let mut board = ProgressBoard::new(Watch::Events, Target::workflow("order-7".into()));
        for _ in 0..3 {
            board.look(&mut screen, &fake).await;
        }
        let told = output.stderr();
        assert!(told.lines().count() < 10 && told.contains("and 196 more"), "{told}");
        for verb in ["describe order-7", "list"] {
            let mut fake = stuck();
            (fake.runs, fake.described) = (vec![run_info("order-7", WorkflowStatus::Running)], many);
            let (program, opener) = program(FakeOpener::new(fake));
            let data = tempfile::tempdir().unwrap();
            let shown = run_with(&program, &opener, data.path(), verb).await.stdout;
            assert!(shown.lines().count() < 80 && shown.contains("more"), "{verb}: {shown}");
            let all = run_with(&program, &opener, data.path(), &format!("{verb} -o json")).await.stdout;
            assert_eq!(all.matches("activity retry-now order-7 ").count(), 200, "{verb}");
        }
    }

    /// Slots are free and the queue is served: the rate is what keeps it.
    #[test]
    fn what_a_rate_keeps_is_told_of_the_rate() {
        let queue = TaskQueue::of("default");
        let limited =
            |rate: Option<&str>| QueueState { max_per_second: rate.map(str::to_owned), ..QueueState::default() };
        let of = |of_queue: Option<&str>, of_all: Option<&str>, served: &str| {
            let state = WorkerState {
                slots: 4,
                external_slots: 1,
                queues: [(queue.clone(), limited(of_queue))].into(),
                max_per_second: of_all.map(str::to_owned),
                task_queues: Some([TaskQueue::of(served)].into()),
                ..WorkerState::default()
            };
            taken(&state, &queue).unwrap_or_default()
        };
        assert!(of(Some("1"), Some("9"), "default").contains("1 a second may start in its task queue default"));
        assert!(of(None, Some("0.5"), "default").contains("0.5 a second may start in all"));
        assert_eq!(of(None, None, "default"), "");
        assert_eq!(of(Some("1"), None, "other"), "no worker serves its task queue default (`--queue` of a worker)");
    }

    /// Who paused a run and why is told, with the command that lets it go on.
    #[tokio::test]
    async fn a_pause_says_who_and_why() {
        let mut fake = Fake::new();
        fake.runs = vec![run_info("order-7", WorkflowStatus::Paused)];
        fake.described = |description| description.inbox = 1;
        let identity = Identity::new("ann@host").ok();
        let kind = EventKind::WorkflowExecutionPaused { reason: "look\nfirst".into(), identity };
        fake.events.push(crate::fake::event(3, kind));
        let found = Lookout::new(&fake, Timestamp(1)).below(Target::workflow("order-7".into())).await;
        let [one] = found.as_slice() else { panic!("{found:?}") };
        assert_eq!(one.why, "it is paused by ann@host: look first; 1 input waits");
        assert_eq!(one.help, "bosun resume order-7");
    }
}
