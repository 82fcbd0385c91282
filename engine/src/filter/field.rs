//! Fields: what a filter can ask about, and how a field's value is read from a run.
//!
//! Invariant: the built-in names are Temporal's and cannot be shadowed by a search attribute. A literal beside a
//! built-in field has that field's type; the type of a search attribute is known only when a run has it.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::fmt;

use super::condition::{Comparison, Literal};
use super::lexer::in_word;
use super::standing::{RunStanding, StandingWord};
use crate::vocabulary::{FieldName, RunId, RunInfo, SearchValue, Timestamp};

/// A built-in field or a search attribute by name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Field {
    Builtin(BuiltinField),
    Attribute(FieldName),
}

/// The fields every run has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BuiltinField {
    WorkflowId,
    RunId,
    WorkflowType,
    TaskQueue,
    ExecutionStatus,
    StartTime,
    CloseTime,
    /// The same as `StartTime`.
    ExecutionTime,
    HistoryLength,
    HistorySizeBytes,
    ParentWorkflowId,
    ParentRunId,
    Namespace,
    BuildId,
    /// Whether the worker that is asked holds the run: `Held = true`.
    Held,
}

/// The types a built-in field can have.
#[derive(Clone, Copy, PartialEq, Eq)]
enum FieldKind {
    Keyword,
    RunId,
    Status,
    Time,
    Int,
    Bool,
}

impl BuiltinField {
    pub(crate) const ALL: [BuiltinField; 15] = [
        BuiltinField::WorkflowId,
        BuiltinField::RunId,
        BuiltinField::WorkflowType,
        BuiltinField::TaskQueue,
        BuiltinField::ExecutionStatus,
        BuiltinField::StartTime,
        BuiltinField::CloseTime,
        BuiltinField::ExecutionTime,
        BuiltinField::HistoryLength,
        BuiltinField::HistorySizeBytes,
        BuiltinField::ParentWorkflowId,
        BuiltinField::ParentRunId,
        BuiltinField::Namespace,
        BuiltinField::BuildId,
        BuiltinField::Held,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            BuiltinField::WorkflowId => "WorkflowId",
            BuiltinField::RunId => "RunId",
            BuiltinField::WorkflowType => "WorkflowType",
            BuiltinField::TaskQueue => "TaskQueue",
            BuiltinField::ExecutionStatus => "ExecutionStatus",
            BuiltinField::StartTime => "StartTime",
            BuiltinField::CloseTime => "CloseTime",
            BuiltinField::ExecutionTime => "ExecutionTime",
            BuiltinField::HistoryLength => "HistoryLength",
            BuiltinField::HistorySizeBytes => "HistorySizeBytes",
            BuiltinField::ParentWorkflowId => "ParentWorkflowId",
            BuiltinField::ParentRunId => "ParentRunId",
            BuiltinField::Namespace => "Namespace",
            BuiltinField::BuildId => "BuildId",
            BuiltinField::Held => "Held",
        }
    }

    fn kind(self) -> FieldKind {
        match self {
            BuiltinField::WorkflowId
            | BuiltinField::WorkflowType
            | BuiltinField::TaskQueue
            | BuiltinField::ParentWorkflowId
            | BuiltinField::Namespace
            | BuiltinField::BuildId => FieldKind::Keyword,
            BuiltinField::RunId | BuiltinField::ParentRunId => FieldKind::RunId,
            BuiltinField::ExecutionStatus => FieldKind::Status,
            BuiltinField::StartTime | BuiltinField::CloseTime | BuiltinField::ExecutionTime => FieldKind::Time,
            BuiltinField::HistoryLength | BuiltinField::HistorySizeBytes => FieldKind::Int,
            BuiltinField::Held => FieldKind::Bool,
        }
    }

    fn value(self, run: &RunInfo) -> Option<Value<'_>> {
        let keyword = |text| Some(Value::Text(Cow::Borrowed(text)));
        let printed = |text: String| Some(Value::Text(Cow::Owned(text)));
        let count = |n: u64| Some(Value::Int(i64::try_from(n).unwrap_or(i64::MAX)));
        match self {
            BuiltinField::WorkflowId => keyword(run.workflow_id.as_str()),
            BuiltinField::RunId => printed(run.run_id.to_string()),
            BuiltinField::WorkflowType => keyword(run.workflow_type.as_str()),
            BuiltinField::TaskQueue => keyword(run.task_queue.as_str()),
            BuiltinField::ExecutionStatus => Some(Value::Status(RunStanding::of(run))),
            BuiltinField::StartTime | BuiltinField::ExecutionTime => Some(Value::Time(run.started_at)),
            BuiltinField::CloseTime => run.closed_at.map(Value::Time),
            BuiltinField::HistoryLength => count(run.history.events),
            BuiltinField::HistorySizeBytes => count(run.history.bytes),
            BuiltinField::ParentWorkflowId => keyword(run.parent.as_ref()?.workflow_id.as_str()),
            BuiltinField::ParentRunId => printed(run.parent.as_ref()?.run_id.to_string()),
            BuiltinField::Namespace => keyword(run.namespace.as_str()),
            BuiltinField::BuildId => printed(run.build.to_string()),
            BuiltinField::Held => Some(Value::Bool(run.held)),
        }
    }
}

impl Field {
    /// The field of a name. A name in the wrong case is an error rather than an attribute no run has, unless it stands
    /// in backquotes.
    pub(super) fn named(name: &str, quoted: bool) -> Result<Field, String> {
        if let Some(field) = BuiltinField::ALL.into_iter().find(|field| field.name() == name) {
            return Ok(Field::Builtin(field));
        }
        let meant = BuiltinField::ALL.into_iter().find(|field| field.name().eq_ignore_ascii_case(name));
        match meant {
            Some(meant) if !quoted => Err(format!(
                "the field is spelled {}; for a search attribute of this name use backquotes: `{name}`",
                meant.name()
            )),
            _ => FieldName::new(name).map(Field::Attribute).map_err(|why| why.to_string()),
        }
    }

    /// The field's value in a run, if the run has one.
    pub(super) fn value<'a>(&self, run: &'a RunInfo) -> Option<Value<'a>> {
        match self {
            Field::Builtin(field) => field.value(run),
            Field::Attribute(name) => match run.search_attributes.get(name)? {
                SearchValue::Bool(value) => Some(Value::Bool(*value)),
                SearchValue::Int(value) => Some(Value::Int(*value)),
                SearchValue::Float(value) => Some(Value::Float(*value)),
                SearchValue::Keyword(text) | SearchValue::Text(text) => Some(Value::Text(Cow::Borrowed(text))),
                SearchValue::KeywordList(texts) => Some(Value::Texts(texts)),
                SearchValue::Datetime(time) => Some(Value::Time(*time)),
                SearchValue::Unset => None,
            },
        }
    }

    /// Turns a literal into one of the field's type, or says what is expected.
    pub(super) fn literal(&self, literal: Literal) -> Result<Literal, String> {
        let Field::Builtin(field) = self else { return Ok(literal) };
        let name = field.name();
        match (field.kind(), literal) {
            (FieldKind::Keyword, text @ Literal::Text { .. }) => Ok(text),
            (FieldKind::Keyword, other) => {
                Err(format!("{name} is a text: expected '{other}' in quotes, found {other}"))
            }
            (FieldKind::Time, time @ Literal::Text { time: Some(_), .. }) => Ok(time),
            (FieldKind::Time, other) => Err(format!(
                "{name} is a time: expected RFC 3339 in quotes, for example '2026-11-20T18:12:00Z', found {other}"
            )),
            (FieldKind::Int, number @ (Literal::Int(_) | Literal::Float(_))) => Ok(number),
            (FieldKind::Int, other) => {
                Err(format!("{name} is a number: expected digits without quotes, found {other}"))
            }
            (FieldKind::Bool, value @ Literal::Bool(_)) => Ok(value),
            (FieldKind::Bool, other) => Err(format!("{name} is true or false, without quotes; found {other}")),
            (FieldKind::RunId, Literal::Text { text, .. }) => match text.parse::<RunId>() {
                Ok(id) => Ok(Literal::text(id.to_string())),
                Err(why) => Err(why.to_string()),
            },
            (FieldKind::RunId, other) => Err(format!("{name} is a run id: expected it in quotes, found {other}")),
            (FieldKind::Status, literal) => status(&literal).map(Literal::Status).ok_or_else(|| {
                let known: Vec<String> = StandingWord::all().map(|word| format!("'{word}'")).collect();
                format!("{name} is a status: expected one of {}, found {literal}", known.join(", "))
            }),
        }
    }

    /// Whether the field has an order a filter may compare by; a status has none.
    pub(super) fn allows(&self, comparison: Comparison) -> bool {
        let ordered = !matches!(self, Field::Builtin(field) if field.kind() == FieldKind::Status);
        ordered || matches!(comparison, Comparison::Equal | Comparison::NotEqual)
    }

    /// Whether the field may hold text that can be asked for its beginning.
    pub(super) fn has_prefix(&self) -> bool {
        match self {
            Field::Builtin(field) => matches!(field.kind(), FieldKind::Keyword | FieldKind::RunId),
            Field::Attribute(_) => true,
        }
    }
}

fn status(literal: &Literal) -> Option<StandingWord> {
    match literal {
        Literal::Status(word) => Some(*word),
        Literal::Text { text, .. } => StandingWord::named(text),
        Literal::Int(_) | Literal::Float(_) | Literal::Bool(_) => None,
    }
}

impl fmt::Display for Field {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Field::Builtin(field) => f.write_str(field.name()),
            Field::Attribute(name) => {
                let name = name.as_str();
                let plain = name.chars().all(in_word)
                    && name.starts_with(|c: char| c.is_alphabetic() || c == '_')
                    && !super::parser::is_key_word(name)
                    && Field::named(name, false).is_ok();
                if plain { f.write_str(name) } else { write!(f, "`{}`", name.replace('`', "``")) }
            }
        }
    }
}

/// A field's value in one run.
#[derive(Debug)]
pub(super) enum Value<'a> {
    Bool(bool),
    Int(i64),
    Float(f64),
    Time(Timestamp),
    Status(RunStanding),
    Text(Cow<'a, str>),
    Texts(&'a [String]),
}

impl Value<'_> {
    /// A total order for lists, values of different types apart. Numbers are ordered by what they stand for.
    pub(super) fn rank(&self, other: &Value<'_>) -> Ordering {
        match (self, other) {
            (Value::Bool(a), Value::Bool(b)) => a.cmp(b),
            (Value::Int(a), Value::Int(b)) => a.cmp(b),
            (Value::Float(a), Value::Float(b)) => total(*a, *b),
            (Value::Int(a), Value::Float(b)) => int_with_float(*a, *b),
            (Value::Float(a), Value::Int(b)) => int_with_float(*b, *a).reverse(),
            (Value::Time(a), Value::Time(b)) => a.cmp(b),
            (Value::Status(a), Value::Status(b)) => a.cmp(b),
            (Value::Text(a), Value::Text(b)) => a.cmp(b),
            (Value::Texts(a), Value::Texts(b)) => a.cmp(b),
            _ => self.kind().cmp(&other.kind()),
        }
    }

    /// The order of a single value and a literal, if they have comparable types. NaN compares with nothing.
    pub(super) fn compare(&self, literal: &Literal) -> Option<Ordering> {
        match (self, literal) {
            (Value::Float(value), _) if value.is_nan() => None,
            (Value::Bool(a), Literal::Bool(b)) => Some(a.cmp(b)),
            (Value::Int(a), Literal::Int(b)) => Some(a.cmp(b)),
            (Value::Int(a), Literal::Float(b)) => Some(int_with_float(*a, *b)),
            (Value::Float(a), Literal::Float(b)) => Some(total(*a, *b)),
            (Value::Float(a), Literal::Int(b)) => Some(int_with_float(*b, *a).reverse()),
            (Value::Time(a), Literal::Text { time: Some(b), .. }) => Some(a.cmp(b)),
            // No order, but whether it is this one.
            (Value::Status(a), Literal::Status(b)) => Some(if a.is(*b) { Ordering::Equal } else { Ordering::Less }),
            (Value::Text(a), Literal::Text { text, .. }) => Some(a.as_ref().cmp(text.as_str())),
            _ => None,
        }
    }

    fn kind(&self) -> u8 {
        match self {
            Value::Bool(_) => 0,
            Value::Int(_) | Value::Float(_) => 1,
            Value::Time(_) => 2,
            Value::Status(_) => 3,
            Value::Text(_) => 4,
            Value::Texts(_) => 5,
        }
    }
}

/// The IEEE total order, but -0 equals 0.
fn total(a: f64, b: f64) -> Ordering {
    (a + 0.0).total_cmp(&(b + 0.0))
}

/// Exact also where an i64 has more digits than a float.
fn int_with_float(int: i64, float: f64) -> Ordering {
    // Where the integer rounds to exactly this float, the float is whole and fits: compare what was rounded away.
    total(int as f64, float).then_with(|| i128::from(int).cmp(&(float as i128)))
}
