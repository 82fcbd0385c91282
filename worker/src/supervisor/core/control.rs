//! Run control: pause, resume, take over, release, cancel; for the run and every child it has registered.
//!
//! ```text
//! running --pause--> paused --resume--> running
//!    |------------------|---takeover--> human_control --release--> as it was: running, or paused
//!    '--(any)-----------|---cancel----> cancelled
//! ```
//!
//! A pause and a takeover are two things: a run may be both, whichever came first, and goes on when both have ended.
//!
//! Invariant: nothing starts unless the run is running; what is in flight finishes. A signal takes effect at the next
//! checkpoint, whose name is noted. Cancelled is final. Every registered child is told what the run is told, in one turn,
//! and one that is registered later is told at once; a child that has closed is told nothing. It ends no run itself: whoever
//! carries it asks how it stands (`is_held`, `cancelled_text`), and a checkpoint only notes where it has stopped.
//!
//! Long: one machine, with its diagram, its transitions and what it shows.

use std::collections::BTreeSet;

use bosun_engine::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::answer::{InvalidAnswer, decode};
use super::key::{Key, PeopleKey};
use crate::supervisor::journal::NoteKind;
use crate::supervisor::model::Span;
use crate::supervisor::outbox::{Ask, Outbox};

pub const PAUSE: &str = "pause_v1";
pub const RESUME: &str = "resume_v1";
pub const CANCEL: &str = "cancel_v1";
pub const TAKEOVER: &str = "human_takeover_v1";
pub const RELEASE: &str = "human_release_v1";

/// How a run that a person has taken over stands.
pub const HANDED_TO_HUMAN: &str = "handed_to_human";

/// What the signals of control carry.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ControlRequest {
    pub reason: String,
    pub requested_by: String,
    /// It comes from the parent, which has noted it already.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub from_parent: bool,
    /// How long a person may keep the run (takeover only).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Span>,
}

impl ControlRequest {
    pub fn new(reason: &str, requested_by: &str) -> Self {
        ControlRequest { reason: reason.into(), requested_by: requested_by.into(), ..ControlRequest::default() }
    }
    /// A signal without a payload says nothing more.
    pub fn read(value: &Value) -> Result<Self, InvalidAnswer> {
        if value.is_null() { Ok(ControlRequest::default()) } else { decode("control signal", value) }
    }
}

/// Who did it, when and why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ControlCause {
    pub at: Timestamp,
    pub reason: String,
    pub by: String,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "snake_case")]
enum ControlState {
    #[default]
    Running,
    Paused(Pause),
    HumanControl {
        cause: ControlCause,
        deadline: Option<Timestamp>,
        /// It is paused as well: a release does not end that.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        paused: Option<Pause>,
    },
    Cancelled {
        cause: ControlCause,
        while_paused: bool,
        /// A checkpoint has noted it.
        ended: bool,
    },
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Pause {
    cause: ControlCause,
    /// It has reached a checkpoint since.
    stopped: bool,
}

/// The control of a run.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Control {
    state: ControlState,
    children: BTreeSet<Key>,
    /// How often a person has taken over: names the deadlines.
    takeovers: u64,
}

impl Control {
    /// Whether it changed anything: a run that is paused or canceled is not paused again.
    pub fn pause(&mut self, request: ControlRequest, out: &mut Outbox) -> bool {
        let runs = match self.state {
            ControlState::Running => true,
            // The children are paused since the takeover.
            ControlState::HumanControl { paused: None, .. } => false,
            ControlState::Paused(_) | ControlState::HumanControl { .. } | ControlState::Cancelled { .. } => {
                return false;
            }
        };
        let pause = Pause { cause: cause(&request, out), stopped: false };
        self.note(NoteKind::Paused, "WORKFLOW_PAUSING", &request, out);
        if runs {
            self.tell_children(PAUSE, &pause.cause, out);
        }
        match &mut self.state {
            ControlState::HumanControl { paused, .. } => *paused = Some(pause),
            state => *state = ControlState::Paused(pause),
        }
        true
    }

    /// Whether it changed anything. What a person has taken over goes on when they release it.
    pub fn resume(&mut self, request: ControlRequest, out: &mut Outbox) -> bool {
        let runs = match &mut self.state {
            ControlState::Paused(_) => true,
            ControlState::HumanControl { paused, .. } => match paused.take() {
                Some(_) => false,
                None => return false,
            },
            ControlState::Running | ControlState::Cancelled { .. } => return false,
        };
        self.note(NoteKind::Resumed, "WORKFLOW_RESUMED", &request, out);
        if runs {
            self.tell_children(RESUME, &cause(&request, out), out);
            self.state = ControlState::Running;
        }
        true
    }

    /// Works in every state but the cancelled one.
    pub fn cancel(&mut self, request: ControlRequest, out: &mut Outbox) -> bool {
        let while_paused = match self.state {
            ControlState::Cancelled { .. } => return false,
            ControlState::Paused(_) => true,
            ControlState::Running => false,
            ControlState::HumanControl { ref paused, .. } => {
                let paused = paused.is_some();
                self.cancel_deadline(out);
                paused
            }
        };
        let cause = cause(&request, out);
        self.note(NoteKind::CancelRequested, "WORKFLOW_CANCELLING", &request, out);
        self.tell_children(CANCEL, &cause, out);
        self.state = ControlState::Cancelled { cause, while_paused, ended: false };
        true
    }

    /// A person takes over, also a paused run. The children are paused.
    pub fn takeover(&mut self, request: ControlRequest, out: &mut Outbox) -> bool {
        let paused = match &self.state {
            ControlState::Running => None,
            ControlState::Paused(pause) => Some(pause.clone()),
            ControlState::HumanControl { .. } | ControlState::Cancelled { .. } => return false,
        };
        self.takeovers += 1;
        let cause = cause(&request, out);
        out.note(NoteKind::HumanTookOver, json!({ "reason": request.reason, "by": request.requested_by }));
        if paused.is_none() {
            self.tell_children(PAUSE, &cause, out);
        }
        let deadline = request.timeout.map(|timeout| out.now().plus(timeout.duration()));
        if let Some(deadline) = deadline {
            out.timer(PeopleKey::TakeoverDeadline(self.takeovers), deadline, "human control");
        }
        self.state = ControlState::HumanControl { cause, deadline, paused };
        true
    }

    /// The person hands back: the run goes on, wherever it was before, unless it is paused.
    pub fn release(&mut self, request: ControlRequest, out: &mut Outbox) -> bool {
        let ControlState::HumanControl { paused, .. } = &self.state else { return false };
        let paused = paused.clone();
        self.cancel_deadline(out);
        out.note(NoteKind::HumanReleased, json!({ "reason": request.reason, "by": request.requested_by }));
        if paused.is_none() {
            self.tell_children(RESUME, &cause(&request, out), out);
        }
        self.state = paused.map_or(ControlState::Running, ControlState::Paused);
        true
    }

    /// A person has kept the run for too long. What they stopped does not go on by itself: the run is cancelled.
    pub fn fired(&mut self, takeover: u64, out: &mut Outbox) -> bool {
        let ours =
            matches!(self.state, ControlState::HumanControl { deadline: Some(_), .. }) && takeover == self.takeovers;
        ours && self.cancel(ControlRequest::new("human control timed out", "deadline"), out)
    }

    /// One of the signals, by its name. A payload that does not conform is an error and changes nothing.
    pub fn signal(&mut self, name: &str, input: &Value, out: &mut Outbox) -> Result<bool, InvalidAnswer> {
        let request = ControlRequest::read(input)?;
        Ok(match name {
            PAUSE => self.pause(request, out),
            RESUME => self.resume(request, out),
            CANCEL => self.cancel(request, out),
            TAKEOVER => self.takeover(request, out),
            RELEASE => self.release(request, out),
            _ => false,
        })
    }

    /// The run has come to a point where it can stop: `pre_decomposition`, `pre_subtask_<i>` ... What has stopped or ended it
    /// is noted with the name of the first one.
    pub fn checkpoint(&mut self, name: &str, out: &mut Outbox) {
        match &mut self.state {
            ControlState::Running | ControlState::HumanControl { .. } => {}
            ControlState::Paused(Pause { cause, stopped }) => {
                if !std::mem::replace(stopped, true) {
                    let data = json!({ "event": "WORKFLOW_PAUSED", "checkpoint": name, "reason": cause.reason });
                    out.note(NoteKind::Paused, data);
                }
            }
            ControlState::Cancelled { cause, ended, .. } => {
                if !std::mem::replace(ended, true) {
                    let data = json!({ "event": "WORKFLOW_CANCELLED", "checkpoint": name, "reason": cause.reason });
                    out.note(NoteKind::CancelRequested, data);
                }
            }
        }
    }

    /// What a cancelled run ends with (SHN-62).
    pub fn cancelled_text(&self) -> Option<String> {
        let ControlState::Cancelled { cause, while_paused, .. } = &self.state else { return None };
        let how = if *while_paused { "workflow cancelled while paused" } else { "workflow cancelled" };
        let reason = Some(&cause.reason).filter(|reason| !reason.is_empty());
        Some(reason.map_or_else(|| how.to_owned(), |reason| format!("{how}: {reason}")))
    }

    /// A child that is told what the run is told, from before its result is waited for (SHN-05).
    pub fn register(&mut self, child: impl Into<Key>, out: &mut Outbox) {
        let child = child.into();
        if !self.children.insert(child.clone()) {
            return;
        }
        match &self.state {
            ControlState::Running => {}
            ControlState::Paused(Pause { cause, .. }) | ControlState::HumanControl { cause, .. } => {
                tell(&child, PAUSE, cause, out)
            }
            ControlState::Cancelled { cause, .. } => tell(&child, CANCEL, cause, out),
        }
    }

    /// The child has closed, whether well or not.
    pub fn unregister(&mut self, child: &Key) {
        self.children.remove(child);
    }

    pub fn children(&self) -> impl Iterator<Item = &Key> {
        self.children.iter()
    }

    pub fn is_running(&self) -> bool {
        self.state == ControlState::Running
    }
    /// Whether a resume has an effect, also while a person has the run.
    pub fn is_paused(&self) -> bool {
        self.paused().is_some()
    }
    fn paused(&self) -> Option<&ControlCause> {
        match &self.state {
            ControlState::Paused(pause) | ControlState::HumanControl { paused: Some(pause), .. } => Some(&pause.cause),
            ControlState::Running
            | ControlState::HumanControl { paused: None, .. }
            | ControlState::Cancelled { .. } => None,
        }
    }
    pub fn is_cancelled(&self) -> bool {
        matches!(self.state, ControlState::Cancelled { .. })
    }
    /// Whether a person has the run, and so may complete tasks by hand and change the plan (SHN-68).
    pub fn is_human(&self) -> bool {
        matches!(self.state, ControlState::HumanControl { .. })
    }
    /// Whether it stands still and may go on: a cancelled run does not.
    pub fn is_held(&self) -> bool {
        matches!(self.state, ControlState::Paused(_) | ControlState::HumanControl { .. })
    }
    /// Why nothing may start, if nothing may.
    pub fn why_held(&self) -> Option<&'static str> {
        match self.state {
            ControlState::Running => None,
            ControlState::Paused(_) => Some("the run is paused"),
            ControlState::HumanControl { paused: None, .. } => Some("a person has the run"),
            ControlState::HumanControl { paused: Some(_), .. } => Some("a person has the run, and it is paused"),
            ControlState::Cancelled { .. } => Some("the run is cancelled"),
        }
    }
    /// The same with the reason of whoever did it.
    pub fn held_because(&self) -> Option<String> {
        let why = self.why_held()?;
        let cause = match &self.state {
            ControlState::Paused(Pause { cause, .. })
            | ControlState::HumanControl { cause, .. }
            | ControlState::Cancelled { cause, .. } => cause,
            ControlState::Running => return None,
        };
        Some(if cause.reason.is_empty() { why.to_owned() } else { format!("{why}: {}", cause.reason) })
    }
    /// Who did it.
    pub fn held_by(&self) -> Option<&str> {
        match &self.state {
            ControlState::Paused(Pause { cause, .. })
            | ControlState::HumanControl { cause, .. }
            | ControlState::Cancelled { cause, .. } => Some(&cause.by),
            ControlState::Running => None,
        }
    }
    /// The status as systems outside see it, as long as the run is open (SHN-74).
    pub fn status(&self) -> &'static str {
        match self.state {
            ControlState::Running => "RUNNING",
            ControlState::Paused(_) => "PAUSED",
            ControlState::HumanControl { .. } => HANDED_TO_HUMAN,
            ControlState::Cancelled { .. } => "CANCELLED",
        }
    }

    /// The query `control_state_v1` (SHN-63).
    pub fn view(&self) -> Value {
        let paused = self.paused();
        let cancelled = match &self.state {
            ControlState::Cancelled { cause, .. } => Some(cause),
            ControlState::Running | ControlState::HumanControl { .. } | ControlState::Paused(_) => None,
        };
        json!({
            "is_paused": paused.is_some(),
            "is_cancelled": cancelled.is_some(),
            "paused_at": paused.map(|cause| cause.at.to_string()),
            "pause_reason": paused.map(|cause| &cause.reason),
            "paused_by": paused.map(|cause| &cause.by),
            "cancel_reason": cancelled.map(|cause| &cause.reason),
            "cancelled_by": cancelled.map(|cause| &cause.by),
        })
    }

    /// What the parent has noted already is not noted again by its child.
    fn note(&self, kind: NoteKind, event: &str, request: &ControlRequest, out: &mut Outbox) {
        if !request.from_parent {
            let children: Vec<&Key> = self.children.iter().collect();
            let data = json!({
                "event": event,
                "reason": request.reason,
                "by": request.requested_by,
                "children": children,
            });
            out.note(kind, data);
        }
    }

    fn tell_children(&self, signal: &'static str, cause: &ControlCause, out: &mut Outbox) {
        for child in &self.children {
            tell(child, signal, cause, out);
        }
    }

    fn cancel_deadline(&self, out: &mut Outbox) {
        if matches!(self.state, ControlState::HumanControl { deadline: Some(_), .. }) {
            out.cancel_timer(PeopleKey::TakeoverDeadline(self.takeovers));
        }
    }
}

fn cause(request: &ControlRequest, out: &Outbox) -> ControlCause {
    ControlCause { at: out.now(), reason: request.reason.clone(), by: request.requested_by.clone() }
}

/// A signal to a child that has closed meanwhile comes to nothing, which is as good.
fn tell(child: &Key, signal: &'static str, cause: &ControlCause, out: &mut Outbox) {
    let input = json!({ "reason": cause.reason, "requested_by": cause.by, "from_parent": true });
    out.ask(Ask::SignalChild { key: child.clone(), signal, input });
}
