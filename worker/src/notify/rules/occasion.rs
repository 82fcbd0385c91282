//! Occasions: what of the log is worth telling people.
//!
//! Invariant: one event is one occasion or none, and its id is made of the run and of what happened: whoever meets the event
//! again, after a crash or in another order, makes the same id. What people are asked stands in the state of a run and not in
//! its events, so that such an event only says that the run has to be asked ([`Told::Ask`]).

use std::fmt;

use bosun_engine::*;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::run::NOTIFICATION;
use crate::agent::AGENT;
use crate::cli::run_word;
use crate::supervisor::journal::{Note, NoteKind};
use crate::supervisor::run::SUPERVISOR;

/// What is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OccasionKind {
    /// A run waits for a person: an approval, a question, a review of a plan.
    Approval,
    /// A run has failed, or its time was over, and none follows.
    Failed,
    /// A budget is used up.
    Budget,
    /// A run is held, or cannot go on without a person.
    Stuck,
    /// A worker ended without a word.
    WorkerGone,
    /// Somebody asks whether a channel can be reached.
    #[serde(skip_deserializing)]
    Test,
}

impl OccasionKind {
    /// All that happens by itself.
    pub const ALL: [OccasionKind; 5] = [
        OccasionKind::Approval,
        OccasionKind::Failed,
        OccasionKind::Budget,
        OccasionKind::Stuck,
        OccasionKind::WorkerGone,
    ];

    pub fn word(self) -> &'static str {
        match self {
            OccasionKind::Approval => "approval",
            OccasionKind::Failed => "failed",
            OccasionKind::Budget => "budget",
            OccasionKind::Stuck => "stuck",
            OccasionKind::WorkerGone => "worker_gone",
            OccasionKind::Test => "test",
        }
    }
}

impl fmt::Display for OccasionKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

/// The run that it is about.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AboutRun {
    pub workflow_id: WorkflowId,
    pub run_id: RunId,
    pub workflow_type: WorkflowType,
}

impl AboutRun {
    pub fn of(info: &RunInfo) -> AboutRun {
        let RunInfo { workflow_id, run_id, workflow_type, .. } = info;
        AboutRun { workflow_id: workflow_id.clone(), run_id: *run_id, workflow_type: workflow_type.clone() }
    }
}

/// What a person is asked.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AskedOf {
    /// One id of all runs.
    pub id: String,
    /// `approval`, `question`, `tool_call`, `plan`.
    pub word: String,
    /// The hash of what is asked; an answer is to this and to nothing else.
    pub shown: String,
    pub request: Value,
}

impl AskedOf {
    /// How often somebody had people told again.
    pub fn escalated(&self) -> u64 {
        self.request["escalated"].as_u64().unwrap_or_default()
    }
}

/// One thing to be told.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Occasion {
    /// The same whoever meets it, and how often.
    pub id: String,
    pub kind: OccasionKind,
    pub at: Timestamp,
    pub namespace: Namespace,
    /// `None`: it is about a worker.
    pub about: Option<AboutRun>,
    /// One line.
    pub title: String,
    pub text: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asked: Option<AskedOf>,
}

/// What an event says to whoever tells people.
#[derive(Debug, Clone, PartialEq)]
pub enum Told {
    Occasion(Box<Occasion>),
    /// The run may ask people something, or stand still: it has to be asked.
    Ask,
}

/// An attempt of so high a number failed: nobody mends that by waiting.
const ATTEMPTS: u32 = 5;
/// Characters of a failure.
const TEXT_MAX: usize = 1_500;

/// The id of what happened in a run.
pub fn id_of(kind: OccasionKind, run: &str, what: &str) -> String {
    let parts = json!([kind.word(), run, what]).to_string();
    let hash = blake3::derive_key("bosun 2026 id of an occasion", parts.as_bytes());
    hex(&hash[..16])
}

impl Occasion {
    /// Of a run.
    pub fn of(info: &RunInfo, kind: OccasionKind, at: Timestamp, what: &str) -> Occasion {
        Occasion {
            id: id_of(kind, &info.run_id.to_string(), what),
            kind,
            at,
            namespace: info.namespace.clone(),
            about: Some(AboutRun::of(info)),
            title: String::new(),
            text: String::new(),
            asked: None,
        }
    }

    pub fn says(mut self, title: String, text: &str) -> Occasion {
        self.title = title;
        self.text = text.chars().take(TEXT_MAX).collect();
        self
    }

    /// A run that the worker holds: once for each point of its history at which it is.
    pub fn held(info: &RunInfo, now: Timestamp, why: &str) -> Option<Occasion> {
        let title = format!("{} is held", info.workflow_id);
        let what = format!("held at {}", info.history.events);
        (!is_notification(info)).then(|| Occasion::of(info, OccasionKind::Stuck, now, &what).says(title, why))
    }

    /// What a run asks people. `asks_as`: the run that its chain began with, or began anew with when it was reset.
    pub fn asked(info: &RunInfo, asks_as: RunId, now: Timestamp, asked: AskedOf, text: &str) -> Occasion {
        let title = match asked.word.as_str() {
            "question" => format!("{} asks a question", info.workflow_id),
            "plan" => format!("{} waits for a review of its plan", info.workflow_id),
            "tool_call" => format!("{} waits for the approval of a tool call", info.workflow_id),
            _ => format!("{} waits for an approval", info.workflow_id),
        };
        // Whoever has people told again makes another occasion of it.
        let what = match asked.escalated() {
            0 => format!("{} {}", asked.id, asked.shown),
            n => format!("{} {} escalated {n}", asked.id, asked.shown),
        };
        let occasion = Occasion::of(info, OccasionKind::Approval, now, &what).says(title, text);
        // A run that goes on in a new one asks nothing anew; one that was reset does, and links of before open nothing any more.
        let id = id_of(OccasionKind::Approval, &asks_as.to_string(), &what);
        Occasion { id, asked: Some(asked), ..occasion }
    }

    /// An agent with nobody above it that stands still until a person brings it on. `halt` tells one halt from the next.
    pub fn halted(info: &RunInfo, now: Timestamp, halted: &Value, halt: &str) -> Option<Occasion> {
        let (kind, title, text) = match (&halted["budget"]["resource"], &halted["needs_human"]["why"]) {
            (Value::String(resource), _) => {
                (OccasionKind::Budget, format!("{} has used up its budget", info.workflow_id), resource.clone())
            }
            (_, Value::String(why)) => {
                (OccasionKind::Stuck, format!("{} cannot go on by itself", info.workflow_id), why.clone())
            }
            _ => return None,
        };
        is_of_nobody(info).then(|| Occasion::of(info, kind, now, halt).says(title, &text))
    }

    /// A worker that ended without a word, told by the one after it.
    pub fn worker_gone(pid: u32, started_at: &str, now: Timestamp) -> Occasion {
        let text = format!(
            "Worker {pid}, which had started at {started_at}, ended without a word: it was killed, crashed, its log \
             failed, or the machine went down. The worker after it tells this, and has taken over what was under way."
        );
        Occasion {
            id: id_of(OccasionKind::WorkerGone, started_at, &pid.to_string()),
            kind: OccasionKind::WorkerGone,
            at: now,
            namespace: Namespace::of(DEFAULT_NAMESPACE),
            about: None,
            title: format!("Worker {pid} was gone"),
            text,
            asked: None,
        }
    }
}

/// Whoever tells of notifications tells for ever.
fn is_notification(info: &RunInfo) -> bool {
    info.workflow_type.as_str() == NOTIFICATION
}

/// Nobody above waits for it: a schedule starts a run and answers for nothing of it.
fn is_of_nobody(info: &RunInfo) -> bool {
    let by_schedule = |parent: &Parent| parent.workflow_id.as_str().starts_with(crate::schedule::ID_PREFIX);
    info.parent.as_ref().is_none_or(by_schedule)
}

/// Whether the event is an end of a run that somebody above may wait for: only then it matters whether anybody does.
pub fn is_bad_end(info: &RunInfo, event: &Event) -> bool {
    let failed = matches!(
        event.kind,
        EventKind::WorkflowExecutionFailed { new_run: None, .. }
            | EventKind::WorkflowExecutionTimedOut { new_run: None, .. }
    );
    failed && !is_of_nobody(info)
}

/// What an event of a run says; `alone`: the run above had ended before.
pub fn told_by(info: &RunInfo, event: &Event, alone: bool) -> Vec<Told> {
    if is_notification(info) {
        return Vec::new();
    }
    let id = &info.workflow_id;
    let one = |kind, what: &str, title: String, text: &str| {
        vec![Told::Occasion(Box::new(Occasion::of(info, kind, event.at, what).says(title, text)))]
    };
    match &event.kind {
        EventKind::WorkflowExecutionFailed { failure, new_run: None, .. } if alone || is_of_nobody(info) => {
            one(OccasionKind::Failed, "failed", format!("{id} has failed"), &failure.to_string())
        }
        EventKind::WorkflowExecutionTimedOut { timeout, new_run: None, .. } if alone || is_of_nobody(info) => {
            let which = match timeout {
                WorkflowTimeout::Execution => "The execution timeout ran out.",
                WorkflowTimeout::Run => "The run timeout ran out.",
            };
            one(OccasionKind::Failed, "failed", format!("The time of {id} is over"), which)
        }
        EventKind::ActivityTaskAttemptFailed { seq, attempt, failure, next_attempt_at }
            if is_stuck(*attempt, failure) =>
        {
            let title = format!("An activity of {id} fails: {attempt} attempts were made");
            let text = format!("Activity {seq}: {failure}\nThe next attempt begins at {next_attempt_at}.");
            // Of the activity, and not of the attempt: it is told once.
            one(OccasionKind::Stuck, &format!("attempts of activity {seq}"), title, &text)
        }
        EventKind::MarkerRecorded(Marker::SideEffect { value, .. }) if info.workflow_type.as_str() == SUPERVISOR => {
            value.decode::<Vec<Note>>().map_or_else(|_| Vec::new(), |notes| told_by_notes(info, event, &notes))
        }
        // A reset to a point behind the question asks it with the history that it took over.
        EventKind::WorkflowExecutionStarted(started)
            if is_asking(info) && started.forked_from.as_ref().is_some_and(|from| from.point.reset) =>
        {
            vec![Told::Ask]
        }
        kind if info.workflow_type.as_str() == AGENT && may_ask(kind) => vec![Told::Ask],
        _ => Vec::new(),
    }
}

fn is_asking(info: &RunInfo) -> bool {
    [SUPERVISOR, AGENT].contains(&info.workflow_type.as_str())
}

/// Many attempts, the last of which has failed by itself: one that ended with its worker says nothing of the activity. Which
/// attempt that is depends on the workers, so a few are looked at.
fn is_stuck(attempt: Attempt, failure: &Failure) -> bool {
    (ATTEMPTS..ATTEMPTS * 4).contains(&attempt.0) && failure.kind != FailureKind::WorkerLost
}

/// After these an agent may have come to what it asks people, or to a halt.
fn may_ask(kind: &EventKind) -> bool {
    matches!(
        kind,
        EventKind::ActivityTaskCompleted { .. }
            | EventKind::ActivityTaskFailed { .. }
            | EventKind::ActivityTaskTimedOut { .. }
            | EventKind::ChildWorkflowExecutionCompleted { .. }
            | EventKind::ChildWorkflowExecutionFailed { .. }
            | EventKind::WorkflowExecutionSignaled(_)
            | EventKind::TimerFired { .. }
    )
}

/// What a supervisor has noted of itself in one turn.
fn told_by_notes(info: &RunInfo, event: &Event, notes: &[Note]) -> Vec<Told> {
    let id = &info.workflow_id;
    let mut all = Vec::new();
    for (nth, note) in notes.iter().enumerate() {
        let what = format!("note {nth} of event {}", event.id);
        let occasion = |kind, title: String, text: &str| {
            Told::Occasion(Box::new(Occasion::of(info, kind, event.at, &what).says(title, text)))
        };
        match note.kind {
            NoteKind::ApprovalRequested
            | NoteKind::ApprovalEscalated
            | NoteKind::InterruptRaised
            | NoteKind::PlanProposed
            | NoteKind::PlanRevised => all.push(Told::Ask),
            NoteKind::BudgetExhausted => {
                let title = format!("A budget of {id} is used up");
                all.push(occasion(OccasionKind::Budget, title, &words_of(&note.data)));
            }
            // A person who pauses it knows; an agent below that cannot go on, or a budget, is told.
            NoteKind::Paused => match note.data["by"].as_str().unwrap_or_default() {
                "budget" => {
                    let why = note.data["reason"].as_str().unwrap_or_default();
                    // A command that lacks its run cannot be pasted.
                    let top_up = format!("`bosun budget top-up {}", run_word(id.as_str()));
                    let with =
                        format!("{top_up}` with what there is more of (`--tokens`, `--cost` or `--calls`) gives");
                    let why = why
                        .replace("`bosun budget top-up` gives", &with)
                        .replace("`bosun budget top-up --", &format!("{top_up} --"));
                    all.push(occasion(OccasionKind::Budget, format!("The budget of {id} is used up"), &why));
                }
                by if by.starts_with("agent ") => {
                    let why = note.data["reason"].as_str().unwrap_or_default();
                    all.push(occasion(OccasionKind::Stuck, format!("{id} cannot go on: {by} has halted"), why));
                }
                _ => {}
            },
            _ => {}
        }
    }
    all.dedup();
    all
}

/// The data of a note as `name: value`, a line each.
fn words_of(data: &Value) -> String {
    let said = |(name, value): (&String, &Value)| match value {
        Value::Null => None,
        Value::String(text) => Some(format!("{name}: {text}")),
        other => Some(format!("{name}: {other}")),
    };
    data.as_object().into_iter().flatten().filter_map(said).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::{event, run_info};

    fn failed(new_run: Option<RunId>) -> Event {
        let failure = Failure::application("Broken", "it broke");
        let retry_state = RetryState::MaximumAttemptsReached;
        event(9, EventKind::WorkflowExecutionFailed { failure, new_run, retry_state, unhandled_signals: Vec::new() })
    }

    fn kinds(told: &[Told]) -> Vec<Option<OccasionKind>> {
        let kind = |told: &Told| match told {
            Told::Occasion(occasion) => Some(occasion.kind),
            Told::Ask => None,
        };
        told.iter().map(kind).collect()
    }

    #[test]
    fn a_failure_is_told_where_nobody_above_hears_of_it() {
        let mut info = run_info("order-7", WorkflowStatus::Failed);
        assert_eq!(kinds(&told_by(&info, &failed(None), false)), [Some(OccasionKind::Failed)]);
        assert_eq!(told_by(&info, &failed(Some(RunId([9; 16]))), false), [], "another attempt follows");
        let parent = |id: &str| {
            let (workflow_id, run_id, seq) = (WorkflowId::of(id), RunId([1; 16]), Seq(1));
            Some(Parent { workflow_id, run_id, seq, close_policy: ParentClosePolicy::Abandon })
        };
        info.parent = parent("order-6");
        assert_eq!(told_by(&info, &failed(None), false), [], "its parent hears of it");
        assert!(is_bad_end(&info, &failed(None)) && !is_bad_end(&info, &failed(Some(RunId([9; 16])))));
        let told = told_by(&info, &failed(None), true);
        assert_eq!(kinds(&told), [Some(OccasionKind::Failed)], "it was abandoned, and its parent has ended");
        info.parent = parent("schedule:nightly");
        assert_eq!(kinds(&told_by(&info, &failed(None), false)), [Some(OccasionKind::Failed)]);
        info.workflow_type = WorkflowType::of(NOTIFICATION);
        assert_eq!(told_by(&info, &failed(None), false), [], "or one would be told of for ever");
        assert_eq!(Occasion::held(&info, Timestamp(1), "a busy loop"), None, "held, too");
    }

    #[test]
    fn the_id_is_of_the_run_and_of_what_happened() {
        let info = run_info("order-7", WorkflowStatus::Failed);
        let id = |info: &RunInfo| match &told_by(info, &failed(None), false)[..] {
            [Told::Occasion(occasion)] => occasion.id.clone(),
            other => panic!("{other:?}"),
        };
        assert_eq!((id(&info), id(&info).len()), (id(&info), 32));
        let other = RunInfo { run_id: RunId([8; 16]), ..info.clone() };
        assert_ne!(id(&info), id(&other));
        assert_ne!(id_of(OccasionKind::Failed, "a", "b c"), id_of(OccasionKind::Failed, "a b", "c"));
        let held = |events: u64| {
            let history = HistorySize { events, ..info.history };
            Occasion::held(&RunInfo { history, ..info.clone() }, Timestamp(1), "why").unwrap().id
        };
        assert_eq!(held(3), held(3));
        assert_ne!(held(3), held(4), "it went on, and is held again");
    }

    #[test]
    fn the_fifth_failed_attempt_is_told_once() {
        let info = run_info("order-7", WorkflowStatus::Running);
        let told = |number: u64, attempt: u32, failure: Failure| {
            let (attempt, next_attempt_at) = (Attempt(attempt), Timestamp(5));
            let kind = EventKind::ActivityTaskAttemptFailed { seq: Seq(1), attempt, failure, next_attempt_at };
            let told = told_by(&info, &event(number, kind), false).pop();
            told.map(|told| match told {
                Told::Occasion(occasion) => occasion.id,
                other => panic!("{other:?}"),
            })
        };
        let failed = |number, attempt| told(number, attempt, Failure::application("E", "no"));
        assert_eq!([1, 4, 50].map(|attempt| failed(4, attempt)), [None, None, None]);
        assert!(failed(4, 5).is_some());
        assert_eq!(failed(4, 5), failed(6, 6), "a later attempt is the same occasion");
        let lost = || Failure { message: "gone".into(), kind: FailureKind::WorkerLost, cause: None };
        assert_eq!(told(4, 5, lost()), None, "a worker that was killed is no failure of the activity");
        assert!(failed(8, 7).is_some(), "and one that fails afterwards is");
    }

    #[test]
    fn the_notes_of_a_supervisor_say_what_to_ask_and_what_to_tell() {
        let mut info = run_info("team", WorkflowStatus::Running);
        let note = |kind, data| Note { kind, data };
        let notes = vec![
            note(NoteKind::TaskAdded, json!({})),
            note(NoteKind::ApprovalRequested, json!({ "id": "a" })),
            note(NoteKind::ApprovalRequested, json!({ "id": "b" })),
            note(NoteKind::BudgetExhausted, json!({ "resource": "tokens" })),
            note(NoteKind::Paused, json!({ "by": "ann", "reason": "lunch" })),
            note(NoteKind::Paused, json!({ "by": "agent bob x-1", "reason": "no key" })),
        ];
        let value = Payload::encode(&notes).unwrap();
        let marker = event(5, EventKind::MarkerRecorded(Marker::SideEffect { seq: Seq(3), value }));
        assert_eq!(told_by(&info, &marker, false), [], "of another type it is something else");
        info.workflow_type = WorkflowType::of(SUPERVISOR);
        let told = told_by(&info, &marker, false);
        assert_eq!(kinds(&told), [None, Some(OccasionKind::Budget), Some(OccasionKind::Stuck)]);
        match &told[2] {
            Told::Occasion(occasion) => assert_eq!(occasion.text, "no key"),
            Told::Ask => panic!(),
        }
    }
}
