//! The list filter: which runs a caller wants to see, in what order, as a text in Temporal's list-filter language.
//!
//! Invariant: a filter that exists is well formed and its literals fit their fields, so matching cannot fail; the same
//! filter gives the same answer for the same run everywhere. A comparison with a missing value, or with a value of
//! another type, is false (also `!=` and `NOT IN`), and `IS NULL` is true only for a missing one; `NOT` turns the
//! answer round. Nesting and length are limited, so no text can exhaust the stack. It reads no log and holds no index.
//!
//! ```text
//! filter    = [ any ] [ "ORDER" "BY" field [ "ASC" | "DESC" ] { "," field [ "ASC" | "DESC" ] } ]
//! any       = all { "OR" all }
//! all       = one { "AND" one }
//! one       = "NOT" one | "(" any ")" | field test
//! test      = ( "=" | "!=" | "<" | "<=" | ">" | ">=" ) literal | "IS" [ "NOT" ] "NULL"
//!           | [ "NOT" ] ( "BETWEEN" literal "AND" literal | "IN" "(" literal { "," literal } ")" | "STARTS_WITH" text )
//! literal   = text | number | "true" | "false"          text = 'single' or "double" quoted; \ escapes, '' is one quote
//! field     = name | `any name`
//! ```

use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::fmt;

use crate::vocabulary::{FieldName, RunInfo, Timestamp};

mod condition;
mod datetime;
mod field;
mod lexer;
mod parser;
mod standing;
#[cfg(test)]
mod tests;

use condition::FilterCondition;
use field::{BuiltinField, Field};
use standing::{RunStanding, StandingWord};

/// The longest filter text, in bytes.
pub const FILTER_LENGTH_MAX: usize = 4 * 1024;
/// How deep parentheses and `NOT` may be nested.
pub const FILTER_DEPTH_MAX: usize = 64;

/// A parsed list filter (E23). Prints as a text that parses to the same filter.
#[derive(Debug, Clone, PartialEq)]
pub struct Filter {
    /// `None`: everything.
    condition: Option<FilterCondition>,
    /// The most important first; never empty.
    order: Vec<OrderBy>,
}

/// One field of an order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct OrderBy {
    field: Field,
    direction: SortDirection,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SortDirection {
    Ascending,
    Descending,
}

impl Filter {
    /// Reads a filter; an empty text matches everything, newest start first.
    pub fn parse(text: &str) -> Result<Filter, FilterError> {
        parser::parse(text)
    }

    /// Only what both let through, in the order of this one.
    pub fn and(mut self, other: Filter) -> Filter {
        self.condition = match (self.condition, other.condition) {
            (Some(one), Some(other)) => Some(FilterCondition::All(vec![one, other])),
            (one, other) => one.or(other),
        };
        self
    }

    /// Whether the filter lets a run through. Its order has no say in it.
    pub fn matches(&self, run: &RunInfo) -> bool {
        self.condition.as_ref().is_none_or(|condition| condition.holds(run))
    }

    /// Whether it asks which runs are held.
    pub fn asks_for_held(&self) -> bool {
        let mut fields: Vec<&Field> = self.order.iter().map(|by| &by.field).collect();
        if let Some(condition) = &self.condition {
            condition.fields(&mut fields);
        }
        let by_status = self.names_standing(&|words| words.contains(&StandingWord::Held));
        by_status || fields.contains(&&Field::Builtin(BuiltinField::Held))
    }

    /// Whether it matters to it, by a status that it names, how people hold a run ([`RunInfo::hold`]): who asks the runs for
    /// that need not where it does not.
    pub fn asks_for_holds(&self) -> bool {
        self.names_standing(&RunStanding::are_told_apart_by)
    }

    /// Whether it names a status that only this engine knows: `'Held'` or `'TakenOver'`.
    pub fn names_own_status(&self) -> bool {
        self.names_standing(&|words| {
            words.iter().any(|word| matches!(word, StandingWord::Held | StandingWord::TakenOver))
        })
    }

    fn names_standing(&self, test: &dyn Fn(&[StandingWord]) -> bool) -> bool {
        self.condition.as_ref().is_some_and(|condition| condition.names_standing(test))
    }

    /// Takes out what it says about namespaces at its top (`… AND Namespace = 'a'`), for an engine that is asked in one
    /// namespace at a time: the names, and the rest. What it says elsewhere, under `OR` or `NOT`, stays in the rest.
    pub fn split_namespaces(mut self) -> (Vec<String>, Filter) {
        let mut names = Vec::new();
        self.condition = self.condition.and_then(|condition| condition.without_namespaces(&mut names));
        (names, self)
    }

    /// Whether it asks for workflow types whose names begin so, by `=`, `IN` or `STARTS_WITH`. A filter that only leaves such
    /// types out does not.
    pub fn asks_for_types(&self, prefix: &str) -> bool {
        self.asks_for(BuiltinField::WorkflowType, &|text| text.starts_with(prefix))
    }

    /// The same of workflow ids.
    pub fn asks_for_ids(&self, prefix: &str) -> bool {
        self.asks_for(BuiltinField::WorkflowId, &|text| text.starts_with(prefix))
    }

    /// Whether it asks for single runs by their ids, by `=` or `IN`.
    pub fn asks_for_runs(&self) -> bool {
        self.asks_for(BuiltinField::RunId, &|_| true)
    }

    fn asks_for(&self, field: BuiltinField, fits: &dyn Fn(&str) -> bool) -> bool {
        self.condition.as_ref().is_some_and(|condition| condition.asks_for(&Field::Builtin(field), fits))
    }

    /// The names of the fields that every run has.
    pub fn builtin_fields() -> impl Iterator<Item = &'static str> {
        BuiltinField::ALL.into_iter().map(BuiltinField::name)
    }

    /// Whether every run has a field of this name, which goes before a search attribute.
    pub(crate) fn is_builtin(name: &FieldName) -> bool {
        Filter::builtin_fields().any(|field| field == name.as_str())
    }

    /// The search attributes that it asks about, each once.
    pub fn attributes(&self) -> BTreeSet<&FieldName> {
        let mut fields: Vec<&Field> = self.order.iter().map(|by| &by.field).collect();
        if let Some(condition) = &self.condition {
            condition.fields(&mut fields);
        }
        let mut attributes = BTreeSet::new();
        for field in fields {
            match field {
                Field::Attribute(name) => drop(attributes.insert(name)),
                Field::Builtin(_) => {}
            }
        }
        attributes
    }

    /// Whether the order is the one runs are scanned in: newest start first.
    pub fn is_default_order(&self) -> bool {
        self.order == default_order()
    }

    /// The same filter in the order in which runs are scanned.
    #[must_use]
    pub fn in_default_order(self) -> Filter {
        Filter { order: default_order(), ..self }
    }

    /// The order of two runs in a list. Total: runs that the order leaves equal are told apart by run id, the newest
    /// first. A run without the value comes last in both directions.
    pub fn compare(&self, a: &RunInfo, b: &RunInfo) -> Ordering {
        for OrderBy { field, direction } in &self.order {
            let ordering = match (field.value(a), field.value(b)) {
                (Some(x), Some(y)) => match direction {
                    SortDirection::Ascending => x.rank(&y),
                    SortDirection::Descending => y.rank(&x),
                },
                (Some(_), None) => Ordering::Less,
                (None, Some(_)) => Ordering::Greater,
                (None, None) => Ordering::Equal,
            };
            if ordering.is_ne() {
                return ordering;
            }
        }
        b.run_id.cmp(&a.run_id)
    }
}

fn default_order() -> Vec<OrderBy> {
    vec![OrderBy { field: Field::Builtin(BuiltinField::StartTime), direction: SortDirection::Descending }]
}

impl Default for Filter {
    /// Everything, newest start first.
    fn default() -> Self {
        Filter { condition: None, order: default_order() }
    }
}

impl std::str::FromStr for Filter {
    type Err = FilterError;
    fn from_str(text: &str) -> Result<Self, FilterError> {
        Filter::parse(text)
    }
}

impl fmt::Display for Filter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(condition) = &self.condition {
            write!(f, "{condition}")?;
        }
        if self.order == default_order() {
            return Ok(());
        }
        f.write_str(if self.condition.is_some() { " ORDER BY " } else { "ORDER BY " })?;
        for (i, OrderBy { field, direction }) in self.order.iter().enumerate() {
            let comma = if i == 0 { "" } else { ", " };
            let direction = match direction {
                SortDirection::Ascending => "ASC",
                SortDirection::Descending => "DESC",
            };
            write!(f, "{comma}{field} {direction}")?;
        }
        Ok(())
    }
}

/// What is wrong with a filter, and where. Displays as the message and the place in the text with a caret under it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct FilterError {
    /// The byte of the text at which the reader stopped.
    pub at: usize,
    /// What was expected there.
    pub message: String,
    /// The part of the text around `at` on one line, and the caret line below it.
    excerpt: String,
}

/// How many characters an error shows on each side of its place.
const EXCERPT: usize = 60;

impl FilterError {
    fn new(text: &str, at: usize, message: impl Into<String>) -> Self {
        let at = at.min(text.len());
        let visible = |c: char| if c.is_control() { ' ' } else { c };
        let before: Vec<char> = text[..at].chars().map(visible).collect();
        let start = before.len().saturating_sub(EXCERPT);
        let cut_front = if start > 0 { "…" } else { "" };
        let shown: String = before[start..].iter().collect();
        let after: String = text[at..].chars().take(EXCERPT).map(visible).collect();
        let cut_back = if text[at..].chars().nth(EXCERPT).is_some() { "…" } else { "" };
        let indent = " ".repeat(cut_front.chars().count() + before.len() - start);
        let excerpt = format!("  {cut_front}{shown}{after}{cut_back}\n  {indent}^");
        FilterError { at, message: message.into(), excerpt }
    }
}

impl fmt::Display for FilterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "list filter, at byte {}: {}\n{}", self.at, self.message, self.excerpt)
    }
}

/// Reads a time as filters write it; for command lines that take one.
pub fn parse_timestamp(text: &str) -> Option<Timestamp> {
    datetime::parse(text)
}
