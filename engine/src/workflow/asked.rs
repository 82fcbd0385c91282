//! What workflow code asks for, as a non-determinism card tells it: the request, and what to do about a difference.
//!
//! Invariant: values, not texts: whoever needs a part of a request reads a field. Contents are told by their length and
//! hash, so that a card may be logged; of a failure its message is told as well, shortened, as logs tell it. How requests are compared is not known here.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::vocabulary::*;

/// The id for `patched` in a hint for which nobody has found a better one.
const PATCH_ID: &str = "a-name-for-the-change";

/// What kind of request, by the name of its command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum RequestKind {
    /// Of [`Command::ScheduleActivity`].
    ScheduleActivity,
    /// Of [`Command::RequestCancelActivity`].
    RequestCancelActivity,
    /// Of [`Command::StartTimer`].
    StartTimer,
    /// Of [`Command::CancelTimer`].
    CancelTimer,
    /// Of [`Command::StartChildWorkflow`].
    StartChildWorkflow,
    /// Of [`Command::CancelChildWorkflow`].
    CancelChildWorkflow,
    /// Of [`Command::SignalExternalWorkflow`].
    SignalExternalWorkflow,
    /// Of [`Command::RequestCancelExternalWorkflow`].
    RequestCancelExternalWorkflow,
    /// Of [`Marker::SideEffect`].
    SideEffect,
    /// Of [`Marker::Patch`].
    Patch,
    /// Of [`Command::UpsertSearchAttributes`].
    UpsertSearchAttributes,
    /// Of [`Command::ModifyMemo`].
    ModifyMemo,
    /// Of [`Command::CompleteUpdate`].
    CompleteUpdate,
    /// Of [`Command::CompleteWorkflow`].
    CompleteWorkflow,
    /// Of [`Command::FailWorkflow`].
    FailWorkflow,
    /// Of [`Command::CancelWorkflow`].
    CancelWorkflow,
    /// Of [`Command::ContinueAsNew`].
    ContinueAsNew,
}

/// A request of workflow code: a command, or the event that it became.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request {
    /// The command.
    pub kind: RequestKind,
    /// A type, a name or an id; empty where the kind has none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// The workflow it is about, if that is another one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<WorkflowId>,
    /// Its number in the run; patches, attributes and closing commands have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seq: Option<Seq>,
    /// What only its kind has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<Detail>,
    /// Of its input, result or attributes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content: Option<ContentHash>,
}

/// What only some kinds of requests have.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Detail {
    /// When a timer fires.
    Until(Timestamp),
    /// A failure: what says why code ends otherwise than it did.
    Failure {
        /// The name of the failure.
        failure_type: String,
        /// All of its message, by its hash.
        message: ContentHash,
        /// The beginning of its message, on one line.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        text: String,
    },
    /// A patch of which the code says that no run needs it any more.
    Deprecated,
}

/// So many characters of a failure's message are told.
const TEXT_MAX: usize = 200;

impl Detail {
    pub(super) fn of_failure(failure: &Failure) -> Detail {
        let message = ContentHash::of_text(&failure.message);
        let mut text: String = failure.message.chars().take(TEXT_MAX).collect();
        if text.len() < failure.message.len() {
            text.push('…');
        }
        let text = text.replace(char::is_control, " ");
        Detail::Failure { failure_type: failure.type_name().to_owned(), message, text }
    }
}

/// A content without the content.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContentHash {
    /// How long it is.
    pub bytes: usize,
    /// The first four bytes of its BLAKE3 hash, in hexadecimal.
    pub blake3: String,
}

impl ContentHash {
    pub(super) fn of_payload(payload: &Payload) -> Self {
        ContentHash { bytes: payload.len(), blake3: hex(&payload.digest()[..4]) }
    }
    pub(super) fn of_text(text: &str) -> Self {
        ContentHash { bytes: text.len(), blake3: hex(&blake3::hash(text.as_bytes()).as_bytes()[..4]) }
    }
}

impl Request {
    pub(super) fn new(kind: RequestKind) -> Self {
        Request { kind, name: String::new(), target: None, seq: None, detail: None, content: None }
    }
    /// Whether both are the same by kind and name, whatever their number and content.
    pub fn is_alike(&self, other: &Request) -> bool {
        (self.kind, &self.name, &self.target) == (other.kind, &other.name, &other.target)
    }
    /// What it is called, with the workflow that it is about.
    fn full_name(&self) -> String {
        match &self.target {
            Some(target) if !self.name.is_empty() => format!("{} {target}", self.name),
            _ => self.title(),
        }
    }
    /// What people call it: its name, or its kind where it has none.
    pub fn title(&self) -> String {
        match (&*self.name, &self.target) {
            ("", Some(target)) => target.to_string(),
            ("", None) => self.kind.to_string(),
            (name, _) => name.to_owned(),
        }
    }
}

/// What to do about a difference between code and history.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Hint {
    /// Code and history hold the same requests in another order.
    Reordered,
    /// The code asks for one that the history does not hold.
    Inserted(Option<Request>),
    /// The code no longer asks for one that the history holds.
    Removed(Option<Request>),
    /// One request has another name; nothing else differs.
    Renamed {
        /// As the history holds it.
        from: Request,
        /// As the code asks for it.
        to: Request,
    },
    /// Nothing of it is alike.
    OtherPath,
    /// A timer fires at another time.
    TimerChanged,
    /// The same requests carry other data.
    ContentChanged,
}

impl Hint {
    /// The advice, with an id for `patched`.
    pub fn with_patch(&self, id: &str) -> String {
        let name = |request: &Option<Request>| request.as_ref().map_or_else(|| "it".to_owned(), Request::to_string);
        match self {
            Hint::Reordered => "the order of the requests changed: keep the recorded order for old runs, guarded by \
                                `patched`, or look for an order that is not fixed (an unordered map, a random choice)"
                .to_owned(),
            Hint::Inserted(what) => format!(
                "{} was inserted: guard it with `if ctx.patched(\"{id}\") {{ .. }}`, so that old runs do without",
                name(what)
            ),
            // Nothing of what was done is gone: only who asked whether it may be.
            Hint::Removed(Some(what)) if what.kind == RequestKind::Patch => format!(
                "the code asks for the patch `{0}` no more: keep `ctx.deprecate_patch(\"{0}\")` until no open run holds its \
                 marker",
                what.name
            ),
            Hint::Removed(what) => {
                format!("{} was removed: keep it for old runs with `if !ctx.patched(\"{id}\") {{ .. }}`", name(what))
            }
            Hint::Renamed { from, to } => format!(
                "`{from}` became `{to}`: was it renamed? Keep the old name for old runs, guarded by `patched`. Or was \
                 `{to}` inserted before `{from}`? Guard it, and keep `{from}` after it",
                from = from.full_name(),
                to = to.full_name()
            ),
            Hint::OtherPath => {
                "the code takes another path than history: guard the change with `patched`, or look for a \
                                branch on something that is not in history (clock, environment, a global)"
                    .to_owned()
            }
            Hint::TimerChanged => {
                "the duration of the timer changed: keep the old one for old runs, guarded by `patched`".to_owned()
            }
            Hint::ContentChanged => "the content of the request changed and its name did not: guard the change with \
                                     `patched`, or look for input made from something that is not in history (clock, \
                                     random, error texts)"
                .to_owned(),
        }
    }
}

impl fmt::Display for Hint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.with_patch(PATCH_ID))
    }
}

impl fmt::Display for RequestKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

impl fmt::Display for ContentHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes, blake3 {}", self.bytes, self.blake3)
    }
}

impl fmt::Display for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.kind)?;
        if !self.name.is_empty() {
            write!(f, " {}", self.name)?;
        }
        match (&self.target, self.kind) {
            (Some(target), RequestKind::SignalExternalWorkflow) => write!(f, " to {target}")?,
            (Some(target), _) => write!(f, " {target}")?,
            (None, _) => {}
        }
        if let Some(seq) = self.seq {
            write!(f, " #{seq}")?;
        }
        match &self.detail {
            Some(Detail::Until(at)) => write!(f, " until {at}")?,
            Some(Detail::Failure { failure_type, message, text }) => {
                write!(f, " {failure_type} {text:?} (message of {message})")?;
            }
            Some(Detail::Deprecated) => f.write_str(" (deprecated)")?,
            None => {}
        }
        self.content.iter().try_for_each(|content| write!(f, " ({content})"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_renamed_is_told_apart() {
        let child = |id: &str| {
            let target = Some(WorkflowId::of(id));
            Request { name: "ship".to_owned(), target, ..Request::new(RequestKind::StartChildWorkflow) }
        };
        let hint = Hint::Renamed { from: child("order-1"), to: child("order-2") }.to_string();
        assert!(hint.starts_with("`ship order-1` became `ship order-2`: was it renamed?"), "{hint}");
        let cancel = |id: &str| {
            let target = Some(WorkflowId::of(id));
            Request { target, ..Request::new(RequestKind::RequestCancelExternalWorkflow) }
        };
        let hint = Hint::Renamed { from: cancel("a"), to: cancel("b") }.to_string();
        assert!(hint.starts_with("`a` became `b`"), "{hint}");
    }

    /// A patch whose call is gone is deprecated first; the change that it guarded is not undone.
    #[test]
    fn a_patch_is_not_kept_by_another_patch() {
        let removed = Request { name: "faster".to_owned(), ..Request::new(RequestKind::Patch) };
        let hint = Hint::Removed(Some(removed)).to_string();
        assert!(hint.contains("keep `ctx.deprecate_patch(\"faster\")` until"), "{hint}");
        assert!(!hint.contains("!ctx.patched"), "{hint}");
    }

    /// Why code fails is what its author looks for: the card has it, on one line and bounded.
    #[test]
    fn a_failure_is_told_with_its_message() {
        let told = |message: &str| {
            let detail = Some(Detail::of_failure(&Failure::application("InvalidPlan", message)));
            Request { detail, ..Request::new(RequestKind::FailWorkflow) }.to_string()
        };
        let text = told("no capability\n`prozess`");
        assert!(
            text.starts_with("FailWorkflow InvalidPlan \"no capability `prozess`\" (message of 23 bytes, blake3 "),
            "{text}"
        );
        let text = told(&"é".repeat(100_000));
        assert!(
            text.contains(&format!("\"{}…\" (message of 200000 bytes", "é".repeat(TEXT_MAX))) && text.len() < 600,
            "{text}"
        );
    }

    #[test]
    fn a_content_is_told_by_its_hash() {
        let request =
            Request { content: Some(ContentHash::of_text("secret")), ..Request::new(RequestKind::ModifyMemo) };
        let json = serde_json::to_value(&request).unwrap();
        let hash = blake3::hash(b"secret").to_hex()[..8].to_owned();
        assert_eq!(json, serde_json::json!({ "kind": "ModifyMemo", "content": { "bytes": 6, "blake3": hash } }));
        assert_eq!(request.to_string(), format!("ModifyMemo (6 bytes, blake3 {hash})"));
    }
}
