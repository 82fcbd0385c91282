//! Identifiers: every id and name has its own type, so that no two can be swapped by accident.
//!
//! Invariant: a text id that exists is valid (1 to 255 bytes, no control characters, not `.` or `..`); it is checked once, where it
//! enters. Ids are never made from a clock or a random source here: the shell makes run ids, the run derives the rest.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// The longest text id or name, in bytes (G34).
pub const ID_LENGTH_MAX: usize = 255;

/// A text that cannot be an id: what it was for, and what is wrong with it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidId {
    /// It has no characters.
    #[error("{what} is empty; give it at least one character")]
    Empty {
        /// Which id or name was read.
        what: &'static str,
    },
    /// It is longer than [`ID_LENGTH_MAX`].
    #[error("{what} is {length} bytes long; at most {ID_LENGTH_MAX} are allowed")]
    TooLong {
        /// Which id or name was read.
        what: &'static str,
        /// Its length in bytes.
        length: usize,
    },
    /// It has a character that no terminal or log may see.
    #[error("{what} has the control character {character:?} at byte {at}")]
    ControlCharacter {
        /// Which id or name was read.
        what: &'static str,
        /// The first one.
        character: char,
        /// Its place in bytes, from 0.
        at: usize,
    },
    /// It is `.` or `..`.
    #[error("{what} is {text:?}, which leads elsewhere in addresses; choose another")]
    LeadsElsewhere {
        /// Which id or name was read.
        what: &'static str,
        /// The text.
        text: String,
    },
    /// It is not written as run ids are.
    #[error("{text:?} is not a run id: expected 32 hexadecimal digits, with or without hyphens")]
    NotARunId {
        /// What was read.
        text: String,
    },
}

fn check(what: &'static str, text: &str) -> Result<(), InvalidId> {
    if text.is_empty() {
        return Err(InvalidId::Empty { what });
    }
    if text.len() > ID_LENGTH_MAX {
        return Err(InvalidId::TooLong { what, length: text.len() });
    }
    if matches!(text, "." | "..") {
        return Err(InvalidId::LeadsElsewhere { what, text: text.to_owned() });
    }
    match text.char_indices().find(|(_, c)| c.is_control()) {
        Some((at, character)) => Err(InvalidId::ControlCharacter { what, character, at }),
        None => Ok(()),
    }
}

macro_rules! text_ids {
    ($($(#[$doc:meta])* $name:ident = $what:literal;)*) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(std::sync::Arc<str>);

        impl $name {
            /// Checks the text: 1 to 255 bytes, no control characters, not `.` or `..`.
            pub fn new(text: impl AsRef<str>) -> Result<Self, InvalidId> {
                check($what, text.as_ref())?;
                Ok(Self(text.as_ref().into()))
            }
            /// For names written in code. Panics on an invalid one: that is a mistake in the program, not in its input.
            #[track_caller]
            pub fn of(text: impl AsRef<str>) -> Self {
                match Self::new(text.as_ref()) {
                    Ok(id) => id,
                    Err(why) => panic!("{why}"),
                }
            }
            /// The text, as it was given.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
        impl TryFrom<String> for $name {
            type Error = InvalidId;
            fn try_from(text: String) -> Result<Self, InvalidId> {
                Self::new(text)
            }
        }
        impl From<$name> for String {
            fn from(id: $name) -> String {
                id.0.as_ref().to_owned()
            }
        }
        impl FromStr for $name {
            type Err = InvalidId;
            fn from_str(text: &str) -> Result<Self, InvalidId> {
                Self::new(text)
            }
        }
        impl From<&str> for $name {
            /// As [`Self::of`]: for names written in code.
            ///
            /// # Panics
            ///
            /// When the text cannot be an id; [`Self::new`] says so instead.
            #[track_caller]
            fn from(text: &str) -> Self {
                Self::of(text)
            }
        }
    )*};
}

text_ids! {
    /// The name a user gives to a workflow execution; one open run at a time.
    WorkflowId = "workflow id";
    /// Which workflow code a run executes.
    WorkflowType = "workflow type";
    /// Which activity function an activity runs.
    ActivityType = "activity type";
    /// The name of an activity inside its run; unique there.
    ActivityId = "activity id";
    /// Where tasks wait for a worker.
    TaskQueue = "task queue";
    /// The name under which code takes a signal.
    SignalName = "signal name";
    /// The name under which code answers a query.
    QueryName = "query name";
    /// The name under which code handles an update.
    UpdateName = "update name";
    /// Names one update request; a second request with the same id gets the first one's answer.
    UpdateId = "update id";
    /// Makes a client request idempotent.
    RequestId = "request id";
    /// A part of the id space with its own ids, queues and retention.
    Namespace = "namespace";
    /// The name of a `patched` change in workflow code.
    PatchId = "patch id";
    /// Who did it: `user@host` or a worker's name.
    Identity = "identity";
    /// The name of a search attribute or memo field.
    FieldName = "field name";
}

/// Names one run of a workflow execution. 16 bytes, made by the shell (UUID v7, so that they sort by start time) or
/// derived from the run that continues as new or starts a child.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RunId(pub [u8; 16]);

impl RunId {
    /// A run id derived from this one and a counter: the same on every replay. The first six bytes (the time of a
    /// UUID v7) are kept, so that derived runs sort near their origin.
    pub fn derive(&self, purpose: &str, counter: u64) -> RunId {
        let mut hasher = blake3::Hasher::new();
        hasher.update(&self.0).update(purpose.as_bytes()).update(&counter.to_be_bytes());
        let mut bytes = [0u8; 16];
        bytes.copy_from_slice(&hasher.finalize().as_bytes()[..16]);
        bytes[..6].copy_from_slice(&self.0[..6]);
        bytes[6] = (bytes[6] & 0x0f) | 0x80; // version 8: made by our own rule
        bytes[8] = (bytes[8] & 0x3f) | 0x80;
        RunId(bytes)
    }
}

impl fmt::Display for RunId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, byte) in self.0.iter().enumerate() {
            if matches!(i, 4 | 6 | 8 | 10) {
                f.write_str("-")?;
            }
            write!(f, "{byte:02x}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for RunId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RunId({self})")
    }
}

impl FromStr for RunId {
    type Err = InvalidId;
    fn from_str(text: &str) -> Result<Self, InvalidId> {
        let wrong = || InvalidId::NotARunId { text: text.to_owned() };
        let digits: Vec<u8> = text.bytes().filter(|b| *b != b'-').collect();
        if digits.len() != 32 || !digits.iter().all(u8::is_ascii_hexdigit) {
            return Err(wrong());
        }
        let mut bytes = [0u8; 16];
        for (i, pair) in digits.chunks(2).enumerate() {
            let pair = std::str::from_utf8(pair).map_err(|_| wrong())?;
            bytes[i] = u8::from_str_radix(pair, 16).map_err(|_| wrong())?;
        }
        Ok(RunId(bytes))
    }
}

impl Serialize for RunId {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if serializer.is_human_readable() { serializer.collect_str(self) } else { serializer.serialize_bytes(&self.0) }
    }
}

impl<'de> Deserialize<'de> for RunId {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        if deserializer.is_human_readable() {
            String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
        } else {
            let bytes = bytes::Bytes::deserialize(deserializer)?;
            let found = bytes.len();
            bytes
                .as_ref()
                .try_into()
                .map(RunId)
                .map_err(|_| serde::de::Error::custom(format_args!("a run id has 16 bytes, found {found}")))
        }
    }
}

macro_rules! numbers {
    ($($(#[$doc:meta])* $name:ident($inner:ty);)*) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub $inner);

        impl $name {
            /// The one after it.
            pub fn next(self) -> Self {
                Self(self.0 + 1)
            }
        }
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    )*};
}

numbers! {
    /// The place of an event in its run's history; the first is 1.
    EventId(u64);
    /// The number of a command in its run, counted by the driver in the order the code asked. One counter for
    /// activities, timers, children, external requests and side effects, so that the order of all is checked at replay.
    Seq(u64);
    /// The place of a commit group in the log; the first is 1.
    GroupSeq(u64);
    /// The number of an attempt of an activity or of a run; the first is 1.
    Attempt(u32);
}

/// Which build of the workflow code decided a turn: the first eight bytes of a hash over code version and registry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct BuildId(pub u64);

impl fmt::Display for BuildId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// The idempotency key of an activity: constant over its attempts (G12).
pub fn idempotency_key(run: &RunId, activity: Seq) -> String {
    let mut hasher = blake3::Hasher::new();
    hasher.update(b"bosun activity").update(&run.0).update(&activity.0.to_be_bytes());
    hasher.finalize().to_hex()[..32].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn run_id_prints_and_parses() {
        let id = RunId([1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 0xff]);
        assert_eq!(id.to_string(), "01020304-0506-0708-090a-0b0c0d0e0fff");
        assert_eq!(id.to_string().parse(), Ok(id));
        assert!(matches!("nonsense".parse::<RunId>(), Err(InvalidId::NotARunId { .. })));
    }

    #[test]
    fn derived_run_ids_are_stable_and_differ_by_purpose_and_counter() {
        let id = RunId([7; 16]);
        assert_eq!(id.derive("child", 1), id.derive("child", 1));
        assert_ne!(id.derive("child", 1), id.derive("child", 2));
        assert_ne!(id.derive("child", 1), id.derive("new", 1));
    }

    #[test]
    fn bad_ids_are_refused_by_name() {
        assert_eq!(WorkflowId::new(""), Err(InvalidId::Empty { what: "workflow id" }));
        assert!(matches!(WorkflowId::new("a\nb"), Err(InvalidId::ControlCharacter { at: 1, .. })));
        assert!(WorkflowId::new("x".repeat(255)).is_ok());
        assert!(
            matches!(WorkflowId::new(".."), Err(InvalidId::LeadsElsewhere { .. })) && WorkflowId::new("...").is_ok()
        );
        assert_eq!(WorkflowId::new("x".repeat(256)), Err(InvalidId::TooLong { what: "workflow id", length: 256 }));
    }
}
