//! Plans as text, so that a failure that was found once is kept as a file that people can read and change.
//!
//! ```text
//! # found: forbidden-call
//! workflow order
//! input {"cents":7}
//! result charge ok "paid"
//! result charge failed {"message":"…", …}
//! signal approve true
//! step deliver 0 1
//! step crash after-sync
//! ```
//!
//! Invariant: what is written is read back as the same plan. A line that is not understood is named by its number and
//! refused; nothing is guessed. Blank lines and lines that begin with `#` are comments.

use std::fmt::{self, Write};

use bosun_engine::*;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::plan::{Boundary, LifePlan, LifeStep};

/// A case file that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {why}")]
pub struct CaseError {
    /// The line that is not understood.
    pub line: usize,
    /// What is wrong with it.
    pub why: String,
}

impl fmt::Display for LifePlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "workflow {}", self.workflow_type)?;
        writeln!(f, "input {}", payload_text(&self.input))?;
        if self.slots > 0 {
            writeln!(f, "slots {}", self.slots)?;
        }
        for (activity, outcomes) in &self.results {
            outcomes.iter().try_for_each(|outcome| writeln!(f, "result {activity} {}", outcome_text(outcome)))?;
        }
        self.other_results.iter().try_for_each(|outcome| writeln!(f, "result * {}", outcome_text(outcome)))?;
        for (child, ends) in &self.children {
            ends.iter().try_for_each(|end| writeln!(f, "child {child} {}", json(end)))?;
        }
        self.signals.iter().try_for_each(|(name, value)| writeln!(f, "signal {name} {}", payload_text(value)))?;
        self.updates.iter().try_for_each(|(name, value)| writeln!(f, "update {name} {}", payload_text(value)))?;
        self.queries.iter().try_for_each(|(name, value)| writeln!(f, "query {name} {}", payload_text(value)))?;
        self.steps.iter().try_for_each(|step| writeln!(f, "step {step}"))
    }
}

impl std::str::FromStr for LifePlan {
    type Err = CaseError;
    fn from_str(text: &str) -> Result<Self, CaseError> {
        let mut plan: Option<LifePlan> = None;
        for (number, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let wrong = |why: String| CaseError { line: number + 1, why };
            let (word, rest) = split(line);
            match &mut plan {
                None if word == "workflow" => {
                    let name = WorkflowType::new(rest).map_err(|why| wrong(why.to_string()))?;
                    plan = Some(LifePlan::new(name.as_str(), Payload::null()));
                }
                None => return Err(wrong("the first line must be `workflow TYPE`".into())),
                Some(plan) => read_line(plan, word, rest).map_err(wrong)?,
            }
        }
        plan.ok_or_else(|| CaseError {
            line: 1,
            why: "the file holds no plan; its first line is `workflow TYPE`".into(),
        })
    }
}

fn read_line(plan: &mut LifePlan, word: &str, rest: &str) -> Result<(), String> {
    let (name, value) = split(rest);
    let text = |why: InvalidId| why.to_string();
    match word {
        "input" => plan.input = read_payload(rest)?,
        "slots" => plan.slots = rest.parse().map_err(|why| format!("slots {rest:?}: {why}"))?,
        "result" if name == "*" => plan.other_results.push(read_outcome(value)?),
        "result" => {
            let outcome = read_outcome(value)?;
            plan.results.entry(ActivityType::new(name).map_err(text)?).or_default().push(outcome);
        }
        "child" => {
            let end = read_json(value)?;
            plan.children.entry(WorkflowType::new(name).map_err(text)?).or_default().push(end);
        }
        "signal" => plan.signals.push((SignalName::new(name).map_err(text)?, read_payload(value)?)),
        "update" => plan.updates.push((UpdateName::new(name).map_err(text)?, read_payload(value)?)),
        "query" => plan.queries.push((QueryName::new(name).map_err(text)?, read_payload(value)?)),
        "step" => plan.steps.push(rest.parse()?),
        other => {
            return Err(format!(
                "unknown word {other:?}; known: input, slots, result, child, signal, update, query, step"
            ));
        }
    }
    Ok(())
}

fn split(line: &str) -> (&str, &str) {
    line.split_once(' ').map_or((line, ""), |(word, rest)| (word, rest.trim_start()))
}

fn json(value: &impl Serialize) -> String {
    // What is written here is plain data with text keys.
    serde_json::to_string(value).unwrap_or_default()
}

fn read_json<T: DeserializeOwned>(text: &str) -> Result<T, String> {
    serde_json::from_str(text).map_err(|why| format!("{text:?}: {why}"))
}

/// JSON as it is where that is exact, else `!` and the payload with its encoding.
fn payload_text(payload: &Payload) -> String {
    let plain = std::str::from_utf8(&payload.data).ok().filter(|text| {
        let exact = |value: serde_json::Value| json(&value) == *text;
        payload.encoding == ENCODING_JSON && !text.contains('\n') && serde_json::from_str(text).is_ok_and(exact)
    });
    plain.map_or_else(|| format!("!{}", json(payload)), str::to_owned)
}

fn read_payload(text: &str) -> Result<Payload, String> {
    match text.strip_prefix('!') {
        Some(whole) => read_json(whole),
        None => {
            let value: serde_json::Value = read_json(text)?;
            Ok(Payload::raw_json(json(&value)))
        }
    }
}

fn outcome_text(outcome: &ActivityOutcome) -> String {
    match outcome {
        ActivityOutcome::Completed(result) => format!("ok {}", payload_text(result)),
        ActivityOutcome::Failed(failure) => format!("failed {}", json(failure)),
        ActivityOutcome::Canceled(None) => "canceled".into(),
        ActivityOutcome::Canceled(Some(details)) => format!("canceled {}", payload_text(details)),
        ActivityOutcome::WillCompleteLater => "later".into(),
    }
}

fn read_outcome(text: &str) -> Result<ActivityOutcome, String> {
    let (word, rest) = split(text);
    Ok(match word {
        "ok" => ActivityOutcome::Completed(read_payload(rest)?),
        "failed" => ActivityOutcome::Failed(read_json(rest)?),
        "canceled" if rest.is_empty() => ActivityOutcome::Canceled(None),
        "canceled" => ActivityOutcome::Canceled(Some(read_payload(rest)?)),
        "later" => ActivityOutcome::WillCompleteLater,
        other => return Err(format!("unknown outcome {other:?}; known: ok, failed, canceled, later")),
    })
}

impl fmt::Display for LifeStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LifeStep::Deliver { pick, result } => write!(f, "deliver {pick} {result}"),
            LifeStep::Duplicate { pick, result } => write!(f, "duplicate {pick} {result}"),
            LifeStep::Lose { pick } => write!(f, "lose {pick}"),
            LifeStep::Zombie { pick, result } => write!(f, "zombie {pick} {result}"),
            LifeStep::Heartbeat { pick } => write!(f, "heartbeat {pick}"),
            LifeStep::Signal { pick } => write!(f, "signal {pick}"),
            LifeStep::Repeat => f.write_str("repeat"),
            LifeStep::Cancel => f.write_str("cancel"),
            LifeStep::Query { pick } => write!(f, "query {pick}"),
            LifeStep::Update { pick } => write!(f, "update {pick}"),
            LifeStep::Pause => f.write_str("pause"),
            LifeStep::Unpause => f.write_str("unpause"),
            LifeStep::Tick { ms } => write!(f, "tick {ms}"),
            LifeStep::Delay { ms } => write!(f, "delay {ms}"),
            LifeStep::WallJump { seconds } => write!(f, "wall-jump {seconds}"),
            LifeStep::Crash { at } => write!(f, "crash {at}"),
            LifeStep::Evict { snapshot: false } => f.write_str("evict"),
            LifeStep::Evict { snapshot: true } => f.write_str("evict-to-snapshot"),
            LifeStep::Deploy => f.write_str("deploy"),
        }
    }
}

impl fmt::Display for Boundary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Boundary::BeforeAppend => f.write_str("before-append"),
            Boundary::Unsynced { kept: false } => f.write_str("unsynced-lost"),
            Boundary::Unsynced { kept: true } => f.write_str("unsynced-kept"),
            Boundary::AfterSync => f.write_str("after-sync"),
            Boundary::AfterRelease => f.write_str("after-release"),
            Boundary::InRecovery { commits } => write!(f, "in-recovery {commits}"),
            Boundary::InSnapshot { kept: false } => f.write_str("in-snapshot-lost"),
            Boundary::InSnapshot { kept: true } => f.write_str("in-snapshot-kept"),
        }
    }
}

impl std::str::FromStr for LifeStep {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let words: Vec<&str> = text.split_whitespace().collect();
        let number = |at: usize| -> Result<i64, String> {
            let word = words.get(at).ok_or_else(|| format!("step {text:?} needs {at} numbers"))?;
            word.parse().map_err(|why| format!("step {text:?}: {word:?}: {why}"))
        };
        let small = |at: usize| u16::try_from(number(at)?).map_err(|why| format!("step {text:?}: {why}"));
        let ms = |at: usize| u32::try_from(number(at)?).map_err(|why| format!("step {text:?}: {why}"));
        Ok(match words.first().copied().unwrap_or_default() {
            "deliver" => LifeStep::Deliver { pick: small(1)?, result: small(2)? },
            "duplicate" => LifeStep::Duplicate { pick: small(1)?, result: small(2)? },
            "lose" => LifeStep::Lose { pick: small(1)? },
            "zombie" => LifeStep::Zombie { pick: small(1)?, result: small(2)? },
            "heartbeat" => LifeStep::Heartbeat { pick: small(1)? },
            "signal" => LifeStep::Signal { pick: small(1)? },
            "repeat" => LifeStep::Repeat,
            "cancel" => LifeStep::Cancel,
            "query" => LifeStep::Query { pick: small(1)? },
            "update" => LifeStep::Update { pick: small(1)? },
            "pause" => LifeStep::Pause,
            "unpause" => LifeStep::Unpause,
            "tick" => LifeStep::Tick { ms: ms(1)? },
            "delay" => LifeStep::Delay { ms: ms(1)? },
            "wall-jump" => LifeStep::WallJump {
                seconds: i32::try_from(number(1)?).map_err(|why| format!("step {text:?}: {why}"))?,
            },
            "crash" => LifeStep::Crash { at: boundary(words.get(1).copied().unwrap_or_default(), &small)? },
            "evict" => LifeStep::Evict { snapshot: false },
            "evict-to-snapshot" => LifeStep::Evict { snapshot: true },
            "deploy" => LifeStep::Deploy,
            other => return Err(format!("unknown step {other:?}")),
        })
    }
}

fn boundary(word: &str, number: &dyn Fn(usize) -> Result<u16, String>) -> Result<Boundary, String> {
    Ok(match word {
        "before-append" => Boundary::BeforeAppend,
        "unsynced-lost" => Boundary::Unsynced { kept: false },
        "unsynced-kept" => Boundary::Unsynced { kept: true },
        "after-sync" => Boundary::AfterSync,
        "after-release" => Boundary::AfterRelease,
        "in-snapshot-lost" => Boundary::InSnapshot { kept: false },
        "in-snapshot-kept" => Boundary::InSnapshot { kept: true },
        "in-recovery" => Boundary::InRecovery { commits: u8::try_from(number(2)?).unwrap_or(u8::MAX) },
        other => return Err(format!("unknown boundary {other:?}")),
    })
}

/// A plan with the reason it is kept, as the text of a file.
pub fn case_text(plan: &LifePlan, reason: &str) -> String {
    let mut text = String::new();
    for line in reason.lines() {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "# {line}");
    }
    let _ = write!(text, "{plan}");
    text
}
