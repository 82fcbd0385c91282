//! The ledger: what clients asked for and what was acknowledged, kept outside the worker, and compared afterwards.
//!
//! Invariant: an operation is entered as attempted before it is sent and as acknowledged after its answer was read to
//! the end. So whatever the worker holds must have been attempted, and whatever was acknowledged it must hold, once,
//! in the order of each sender. The entries are also written to a file, which must lie on another disk than the worker's.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::sync::Mutex;

use bosun_engine::{Event, EventKind};
use serde::{Deserialize, Serialize};

/// Something a client asks for that leaves one event in a history.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Operation {
    Start,
    /// The `number`-th signal of a sender; its request id is `<sender>:<number>`.
    Signal {
        sender: String,
        number: u32,
    },
}

impl Operation {
    /// The request id that makes a repetition harmless, and by which the operation is recognised in a history.
    pub fn request_id(&self) -> String {
        match self {
            Operation::Start => "start".into(),
            Operation::Signal { sender, number } => format!("{sender}:{number}"),
        }
    }
    /// The operation an event came from.
    fn of(event: &EventKind) -> Option<Operation> {
        match event {
            EventKind::WorkflowExecutionStarted(_) => Some(Operation::Start),
            EventKind::WorkflowExecutionSignaled(signal) => {
                let (sender, number) = signal.request_id.as_ref()?.as_str().rsplit_once(':')?;
                Some(Operation::Signal { sender: sender.to_owned(), number: number.parse().ok()? })
            }
            _ => None,
        }
    }
}

/// The operations a history holds, in its order.
pub fn operations(history: &[Event]) -> Vec<Operation> {
    history.iter().filter_map(|event| Operation::of(&event.kind)).collect()
}

#[derive(Debug)]
pub struct Ledger {
    entries: Mutex<Entries>,
}

#[derive(Debug)]
struct Entries {
    file: File,
    attempted: BTreeMap<String, BTreeSet<Operation>>,
    acknowledged: BTreeMap<String, BTreeSet<Operation>>,
    /// Answers that arrive now came too late to count.
    frozen: bool,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Line {
    acknowledged: bool,
    workflow_id: String,
    operation: Operation,
}

impl Ledger {
    pub fn create(path: &Path) -> io::Result<Ledger> {
        let entries = Entries {
            file: File::create(path)?,
            attempted: BTreeMap::new(),
            acknowledged: BTreeMap::new(),
            frozen: false,
        };
        Ok(Ledger { entries: Mutex::new(entries) })
    }

    /// Before the request is sent.
    pub fn attempt(&self, workflow_id: &str, operation: &Operation) -> io::Result<()> {
        self.enter(false, workflow_id, operation)
    }
    /// After the answer has been read.
    pub fn acknowledge(&self, workflow_id: &str, operation: &Operation) -> io::Result<()> {
        self.enter(true, workflow_id, operation)
    }

    /// From now on acknowledgements do not count. Called before a simulated power cut: with real power nothing runs
    /// after it, but here the machine lives on, and ext4 may answer an fsync that races with its shutdown with success.
    pub fn freeze(&self) {
        self.lock().frozen = true;
    }
    /// Power is back and nobody is left who heard an answer after the cut.
    pub fn thaw(&self) {
        self.lock().frozen = false;
    }

    fn enter(&self, acknowledged: bool, workflow_id: &str, operation: &Operation) -> io::Result<()> {
        let line = Line { acknowledged, workflow_id: workflow_id.to_owned(), operation: operation.clone() };
        let mut text = serde_json::to_string(&line)?;
        text.push('\n');
        let mut entries = self.lock();
        if acknowledged && entries.frozen {
            return Ok(());
        }
        entries.file.write_all(text.as_bytes())?;
        let side = if acknowledged { &mut entries.acknowledged } else { &mut entries.attempted };
        side.entry(line.workflow_id).or_default().insert(line.operation);
        Ok(())
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Entries> {
        self.entries.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// The workflows with an acknowledged operation: each must be there.
    pub fn workflows(&self) -> Vec<String> {
        self.lock().acknowledged.keys().cloned().collect()
    }
    pub fn acknowledged_count(&self) -> usize {
        self.lock().acknowledged.values().map(BTreeSet::len).sum()
    }
    /// How many operations of one workflow are acknowledged.
    pub fn count(&self, workflow_id: &str) -> usize {
        self.lock().acknowledged.get(workflow_id).map_or(0, BTreeSet::len)
    }

    /// Compares one workflow with what its history holds.
    pub fn compare(&self, workflow_id: &str, held: &[Operation]) -> Differences {
        let entries = self.lock();
        let none = BTreeSet::new();
        let attempted = entries.attempted.get(workflow_id).unwrap_or(&none);
        let acknowledged = entries.acknowledged.get(workflow_id).unwrap_or(&none);
        let mut differences = Differences::default();
        let mut seen = BTreeSet::new();
        let mut newest: BTreeMap<&str, u32> = BTreeMap::new();
        let name = |operation: &Operation| format!("{workflow_id} {}", operation.request_id());
        for operation in held {
            if !attempted.contains(operation) {
                differences.invented.push(name(operation));
            }
            if !seen.insert(operation) {
                differences.twice.push(name(operation));
            } else if let Operation::Signal { sender, number } = operation {
                let before = newest.insert(sender, *number);
                if before.is_some_and(|before| before > *number) {
                    differences.disordered.push(name(operation));
                }
            }
        }
        differences.lost.extend(acknowledged.iter().filter(|operation| !seen.contains(operation)).map(name));
        differences
    }
}

/// What the worker holds that it should not, and the reverse.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Differences {
    pub lost: Vec<String>,
    pub invented: Vec<String>,
    pub twice: Vec<String>,
    pub disordered: Vec<String>,
}

impl Differences {
    pub fn is_empty(&self) -> bool {
        let Differences { lost, invented, twice, disordered } = self;
        [lost, invented, twice, disordered].iter().all(|list| list.is_empty())
    }
    pub fn extend(&mut self, other: Differences) {
        self.lost.extend(other.lost);
        self.invented.extend(other.invented);
        self.twice.extend(other.twice);
        self.disordered.extend(other.disordered);
    }
}

impl fmt::Display for Differences {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Differences { lost, invented, twice, disordered } = self;
        for (what, list) in [
            ("acknowledged and lost", lost),
            ("never asked for", invented),
            ("applied twice", twice),
            ("out of the sender's order", disordered),
        ] {
            let shown: Vec<&str> = list.iter().take(10).map(String::as_str).collect();
            writeln!(f, "{what}: {} {}", list.len(), shown.join(", "))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn signal(number: u32) -> Operation {
        Operation::Signal { sender: "ann".into(), number }
    }

    #[test]
    fn every_kind_of_difference_is_named() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let ledger = Ledger::create(file.path()).unwrap();
        for operation in [Operation::Start, signal(1), signal(2), signal(3)] {
            ledger.attempt("w", &operation).unwrap();
        }
        for operation in [Operation::Start, signal(1), signal(2)] {
            ledger.acknowledge("w", &operation).unwrap();
        }
        // The third was not acknowledged: it may be there or not.
        assert!(ledger.compare("w", &[Operation::Start, signal(1), signal(2)]).is_empty());
        assert!(ledger.compare("w", &[Operation::Start, signal(1), signal(2), signal(3)]).is_empty());
        let found = ledger.compare("w", &[Operation::Start, signal(3), signal(1), signal(1), signal(9)]);
        let wanted = Differences {
            lost: vec!["w ann:2".into()],
            invented: vec!["w ann:9".into()],
            twice: vec!["w ann:1".into()],
            disordered: vec!["w ann:1".into()],
        };
        assert_eq!(found, wanted);
        assert!(found.to_string().contains("acknowledged and lost: 1 w ann:2\n"), "{found}");
        assert_eq!((ledger.acknowledged_count(), ledger.workflows()), (3, vec!["w".to_owned()]));
    }

    #[test]
    fn an_acknowledgement_after_the_cut_does_not_count() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let ledger = Ledger::create(file.path()).unwrap();
        ledger.attempt("w", &signal(1)).unwrap();
        ledger.freeze();
        ledger.acknowledge("w", &signal(1)).unwrap();
        assert!(ledger.compare("w", &[]).is_empty() && ledger.compare("w", &[signal(1)]).is_empty());
        ledger.thaw();
        ledger.acknowledge("w", &signal(1)).unwrap();
        assert_eq!(ledger.compare("w", &[]).lost, ["w ann:1"]);
    }

    #[test]
    fn the_file_holds_every_entry() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let ledger = Ledger::create(file.path()).unwrap();
        ledger.attempt("w", &signal(1)).unwrap();
        ledger.acknowledge("w", &signal(1)).unwrap();
        let text = std::fs::read_to_string(file.path()).unwrap();
        let lines: Vec<Line> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let line = |acknowledged| Line { acknowledged, workflow_id: "w".into(), operation: signal(1) };
        assert_eq!(lines, [line(false), line(true)]);
    }
}
