//! Conditions: the tree a filter text stands for, its answer for a run, and its text.
//!
//! Invariant: printing and parsing are inverse. A list of keywords is asked about its members: `=`, `IN`, `STARTS_WITH`
//! and the comparisons hold if they hold for any member, `!=` and the negated forms if they hold for none.

use std::cmp::Ordering;
use std::fmt;

use super::datetime;
use super::field::{BuiltinField, Field, Value};
use super::standing::StandingWord;
use crate::vocabulary::{RunInfo, Timestamp};

/// One test or a combination of them.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum FilterCondition {
    Compare { field: Field, comparison: Comparison, literal: Literal },
    Between { field: Field, negated: bool, low: Literal, high: Literal },
    In { field: Field, negated: bool, literals: Vec<Literal> },
    StartsWith { field: Field, negated: bool, prefix: String },
    IsNull { field: Field, negated: bool },
    Not(Box<FilterCondition>),
    All(Vec<FilterCondition>),
    Any(Vec<FilterCondition>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Comparison {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

impl Comparison {
    pub(crate) fn sign(self) -> &'static str {
        match self {
            Comparison::Equal => "=",
            Comparison::NotEqual => "!=",
            Comparison::Less => "<",
            Comparison::LessOrEqual => "<=",
            Comparison::Greater => ">",
            Comparison::GreaterOrEqual => ">=",
        }
    }
    fn accepts(self, ordering: Ordering) -> bool {
        match self {
            Comparison::Equal => ordering.is_eq(),
            Comparison::NotEqual => ordering.is_ne(),
            Comparison::Less => ordering.is_lt(),
            Comparison::LessOrEqual => ordering.is_le(),
            Comparison::Greater => ordering.is_gt(),
            Comparison::GreaterOrEqual => ordering.is_ge(),
        }
    }
}

/// A value written in a filter.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Literal {
    /// `time`: what it means where a time is compared.
    Text {
        text: String,
        time: Option<Timestamp>,
    },
    Int(i64),
    Float(f64),
    Bool(bool),
    /// Only beside `ExecutionStatus`.
    Status(StandingWord),
}

impl Literal {
    pub(crate) fn text(text: impl Into<String>) -> Literal {
        let text = text.into();
        Literal::Text { time: datetime::parse(&text), text }
    }
}

impl FilterCondition {
    /// The condition without what it says about namespaces at its top; those are added to `names`.
    pub(super) fn without_namespaces(self, names: &mut Vec<String>) -> Option<FilterCondition> {
        let of_namespaces = |field: &Field| *field == Field::Builtin(BuiltinField::Namespace);
        match self {
            FilterCondition::All(conditions) => {
                let left: Vec<_> =
                    conditions.into_iter().filter_map(|condition| condition.without_namespaces(names)).collect();
                (!left.is_empty()).then_some(FilterCondition::All(left))
            }
            FilterCondition::Compare { field, comparison: Comparison::Equal, literal: Literal::Text { text, .. } }
                if of_namespaces(&field) =>
            {
                names.push(text);
                None
            }
            FilterCondition::In { field, negated: false, literals } if of_namespaces(&field) => {
                names.extend(literals.into_iter().filter_map(|literal| match literal {
                    Literal::Text { text, .. } => Some(text),
                    _ => None,
                }));
                None
            }
            other => Some(other),
        }
    }

    /// Whether the run meets the condition.
    pub(super) fn holds(&self, run: &RunInfo) -> bool {
        match self {
            FilterCondition::Compare { field, comparison: Comparison::NotEqual, literal } => {
                ask(field, run, true, |value| value.compare(literal).map(Ordering::is_eq))
            }
            FilterCondition::Compare { field, comparison, literal } => {
                ask(field, run, false, |value| value.compare(literal).map(|ordering| comparison.accepts(ordering)))
            }
            FilterCondition::Between { field, negated, low, high } => {
                ask(field, run, *negated, |value| Some(value.compare(low)?.is_ge() && value.compare(high)?.is_le()))
            }
            FilterCondition::In { field, negated, literals } => ask(field, run, *negated, |value| {
                // Comparable with one of them is enough: `IN (1, 'one')` is about both types.
                let answers = literals.iter().filter_map(|literal| value.compare(literal));
                answers.map(Ordering::is_eq).reduce(|a, b| a || b)
            }),
            FilterCondition::StartsWith { field, negated, prefix } => ask(field, run, *negated, |value| match value {
                Value::Text(text) => Some(text.starts_with(prefix.as_str())),
                _ => None,
            }),
            FilterCondition::IsNull { field, negated } => field.value(run).is_none() != *negated,
            FilterCondition::Not(condition) => !condition.holds(run),
            FilterCondition::All(conditions) => conditions.iter().all(|condition| condition.holds(run)),
            FilterCondition::Any(conditions) => conditions.iter().any(|condition| condition.holds(run)),
        }
    }
}

/// Asks a field's value, or each member of a list. `None` from `test` means that the types do not fit, and like a
/// missing value that is false whether or not the test is negated.
fn ask(field: &Field, run: &RunInfo, negated: bool, test: impl Fn(&Value<'_>) -> Option<bool>) -> bool {
    let answer = match field.value(run) {
        None => None,
        Some(Value::Texts(texts)) => {
            let answers = texts.iter().map(|text| test(&Value::Text(text.as_str().into())));
            // A list without members holds nothing, which is an answer.
            answers.reduce(|a, b| a.zip(b).map(|(a, b)| a || b)).unwrap_or(Some(false))
        }
        Some(value) => test(&value),
    };
    answer.is_some_and(|answer| answer != negated)
}

impl fmt::Display for Literal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Literal::Text { text, .. } => quote(f, text),
            Literal::Int(number) => write!(f, "{number}"),
            // The debug form always has a point or an exponent and reads back exactly.
            Literal::Float(number) => write!(f, "{number:?}"),
            Literal::Bool(value) => write!(f, "{value}"),
            Literal::Status(status) => write!(f, "'{status}'"),
        }
    }
}

fn quote(f: &mut fmt::Formatter<'_>, text: &str) -> fmt::Result {
    use fmt::Write;
    f.write_char('\'')?;
    for c in text.chars() {
        match c {
            '\'' => f.write_str("\\'")?,
            '\\' => f.write_str("\\\\")?,
            '\n' => f.write_str("\\n")?,
            '\r' => f.write_str("\\r")?,
            '\t' => f.write_str("\\t")?,
            c => f.write_char(c)?,
        }
    }
    f.write_char('\'')
}

impl FilterCondition {
    /// Whether it asks for what has one of these texts in a field, rather than for what has not.
    pub(super) fn asks_for(&self, asked: &Field, fits: &dyn Fn(&str) -> bool) -> bool {
        let is = |literal: &Literal| matches!(literal, Literal::Text { text, .. } if fits(text));
        match self {
            FilterCondition::Compare { field, comparison: Comparison::Equal, literal } => field == asked && is(literal),
            FilterCondition::In { field, negated: false, literals } => field == asked && literals.iter().any(is),
            FilterCondition::StartsWith { field, negated: false, prefix } => field == asked && fits(prefix),
            FilterCondition::All(all) | FilterCondition::Any(all) => all.iter().any(|one| one.asks_for(asked, fits)),
            FilterCondition::Compare { .. }
            | FilterCondition::Between { .. }
            | FilterCondition::In { .. }
            | FilterCondition::StartsWith { .. }
            | FilterCondition::IsNull { .. }
            | FilterCondition::Not(_) => false,
        }
    }

    /// Whether one of its tests of a status names words of which this is true.
    pub(super) fn names_standing(&self, test: &dyn Fn(&[StandingWord]) -> bool) -> bool {
        let words = |literals: &[Literal]| {
            let word = |literal: &Literal| match literal {
                Literal::Status(word) => Some(*word),
                _ => None,
            };
            test(&literals.iter().filter_map(word).collect::<Vec<_>>())
        };
        match self {
            FilterCondition::Compare { literal, .. } => words(std::slice::from_ref(literal)),
            FilterCondition::In { literals, .. } => words(literals),
            FilterCondition::Not(inner) => inner.names_standing(test),
            FilterCondition::All(all) | FilterCondition::Any(all) => all.iter().any(|one| one.names_standing(test)),
            FilterCondition::Between { .. } | FilterCondition::StartsWith { .. } | FilterCondition::IsNull { .. } => {
                false
            }
        }
    }

    /// The fields it asks about, in the order of its text.
    pub(super) fn fields<'f>(&'f self, found: &mut Vec<&'f Field>) {
        match self {
            FilterCondition::Compare { field, .. }
            | FilterCondition::Between { field, .. }
            | FilterCondition::In { field, .. }
            | FilterCondition::StartsWith { field, .. }
            | FilterCondition::IsNull { field, .. } => found.push(field),
            FilterCondition::Not(inner) => inner.fields(found),
            FilterCondition::All(all) | FilterCondition::Any(all) => all.iter().for_each(|one| one.fields(found)),
        }
    }
}

impl fmt::Display for FilterCondition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let not = |negated: &bool| if *negated { "NOT " } else { "" };
        match self {
            FilterCondition::Compare { field, comparison, literal } => {
                write!(f, "{field} {} {literal}", comparison.sign())
            }
            FilterCondition::Between { field, negated, low, high } => {
                write!(f, "{field} {}BETWEEN {low} AND {high}", not(negated))
            }
            FilterCondition::In { field, negated, literals } => {
                write!(f, "{field} {}IN (", not(negated))?;
                for (i, literal) in literals.iter().enumerate() {
                    write!(f, "{}{literal}", if i == 0 { "" } else { ", " })?;
                }
                f.write_str(")")
            }
            FilterCondition::StartsWith { field, negated, prefix } => {
                write!(f, "{field} {}STARTS_WITH ", not(negated))?;
                quote(f, prefix)
            }
            FilterCondition::IsNull { field, negated } => write!(f, "{field} IS {}NULL", not(negated)),
            FilterCondition::Not(inner) => {
                f.write_str("NOT ")?;
                grouped(f, inner, matches!(**inner, FilterCondition::All(_) | FilterCondition::Any(_)))
            }
            FilterCondition::All(conditions) => {
                joined(f, conditions, " AND ", |c| matches!(c, FilterCondition::All(_) | FilterCondition::Any(_)))
            }
            FilterCondition::Any(conditions) => joined(f, conditions, " OR ", |c| matches!(c, FilterCondition::Any(_))),
        }
    }
}

fn grouped(f: &mut fmt::Formatter<'_>, condition: &FilterCondition, parentheses: bool) -> fmt::Result {
    if parentheses { write!(f, "({condition})") } else { write!(f, "{condition}") }
}

fn joined(
    f: &mut fmt::Formatter<'_>,
    conditions: &[FilterCondition],
    with: &str,
    parentheses: impl Fn(&FilterCondition) -> bool,
) -> fmt::Result {
    for (i, condition) in conditions.iter().enumerate() {
        f.write_str(if i == 0 { "" } else { with })?;
        grouped(f, condition, parentheses(condition))?;
    }
    Ok(())
}
