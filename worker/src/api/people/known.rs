//! Names in a list filter that are no field: nothing would be found, or everything.
//!
//! Invariant: a name is unknown where it is no built-in field and no run has it as a search attribute; where there is no run
//! yet, nobody can know, and nothing is refused. It reads and decides nothing else.

use std::collections::BTreeSet;

use bosun_engine::filter::Filter;
use bosun_engine::*;

use super::super::problem::Problem;
use crate::backend::{Backend, CallError, Reply};
use crate::supervisor::fields::{distance, similar};

/// The newest runs, whose search attributes are named to who asks for an unknown one.
const NAMED_BY: usize = 1_000;

/// A name of a filter that nobody knows, and those that there are.
#[derive(Debug)]
pub(crate) struct UnknownField {
    query: String,
    name: String,
    attributes: BTreeSet<FieldName>,
}

impl UnknownField {
    pub(crate) fn why(&self) -> String {
        let UnknownField { query, name, attributes } = self;
        let mut all: Vec<&str> = Filter::builtin_fields().collect();
        all.extend(attributes.iter().map(FieldName::as_str));
        let near = similar(name, &all);
        let near = near.map_or_else(String::new, |near| format!(" (did you mean `{near}`?)"));
        format!("list filter {query:?} is invalid: `{name}` is no field, and no run has such a search attribute{near}")
    }

    /// Whether it looks like a field that is written otherwise, as `Status` for `ExecutionStatus`. Of what will be, another
    /// name may be an attribute of a run that nobody has started yet.
    pub(crate) fn is_misspelt(&self) -> bool {
        let name = self.name.to_lowercase();
        Filter::builtin_fields()
            .map(str::to_lowercase)
            .any(|field| field.ends_with(&name) || distance(&name, &field) <= 1 + name.chars().count() / 4)
    }

    /// What there is.
    pub(crate) fn known(&self) -> String {
        let fields: Vec<&str> = Filter::builtin_fields().collect();
        let attributes: Vec<&str> = self.attributes.iter().map(FieldName::as_str).collect();
        let attributes = match attributes.is_empty() {
            true => "no run has search attributes".to_owned(),
            false => format!("search attributes here: {}", attributes.join(", ")),
        };
        format!("fields: {}; {attributes}", fields.join(", "))
    }
}

impl From<UnknownField> for Problem {
    fn from(unknown: UnknownField) -> Self {
        Problem::bad_request(format!("{}. {}", unknown.why(), unknown.known()))
    }
}

/// The first name that nobody knows. What cannot be read is refused by whoever looks for the runs.
///
/// # Errors
/// The runs cannot be listed.
pub(crate) async fn unknown_field(backend: &dyn Backend, query: &str) -> Result<Option<UnknownField>, CallError> {
    unknown_in(&|request| backend.list(request), query).await
}

/// As [`unknown_field`], where runs are listed so.
pub(crate) async fn unknown_in<'l>(
    list: &(dyn Fn(ListRequest) -> Reply<'l, Vec<RunInfo>> + Send + Sync),
    query: &str,
) -> Result<Option<UnknownField>, CallError> {
    let Ok(filter) = Filter::parse(query) else { return Ok(None) };
    for name in filter.attributes() {
        let having = format!("`{}` IS NOT NULL", name.as_str().replace('`', "``"));
        if !list(ListRequest { query: having, limit: 1 }).await?.is_empty() {
            continue;
        }
        let runs = list(ListRequest { query: String::new(), limit: NAMED_BY }).await?;
        if runs.is_empty() {
            return Ok(None);
        }
        let attributes = runs.iter().flat_map(|run| run.search_attributes.keys().cloned()).collect();
        return Ok(Some(UnknownField { query: query.to_owned(), name: name.as_str().to_owned(), attributes }));
    }
    Ok(None)
}
