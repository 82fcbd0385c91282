//! A suggested patch: how the code could do the new for new runs and the recorded for old ones.
//!
//! Invariant: a suggestion is text for a person, made from the first difference; it always asks `patched` and never
//! claims to be complete. Where the statement in the source is simple it is a diff of that source, otherwise a sketch.

use std::fmt;

use bosun_engine::CodeLocation;
use bosun_engine::workflow::{AlignedLine, NonDeterminism, Request, RequestKind};
use serde::Serialize;

use super::Sources;

/// The longest statement that is quoted, in lines.
const STATEMENT_MAX: usize = 12;

/// What could be changed, where.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SuggestedPatch {
    /// The id for `patched`; any other that is new to the workflow does too.
    pub id: String,
    /// `file:line`, when the place is known.
    pub place: Option<String>,
    /// Lines that begin with `-` go, those with `+` come, others stay.
    pub lines: Vec<String>,
}

impl fmt::Display for SuggestedPatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = self.place.as_ref().map_or_else(String::new, |place| format!(" at {place}"));
        write!(f, "suggested patch{place}:")?;
        self.lines.iter().try_for_each(|line| write!(f, "\n    {line}"))
    }
}

/// A patch for the first difference of a comparison. `context` is what workflow code of this form calls its context.
// long: one arm for each way to differ.
pub(super) fn suggest(
    mismatch: &NonDeterminism,
    lines: &[AlignedLine],
    sources: Sources<'_>,
    context: &str,
) -> Option<SuggestedPatch> {
    let first = lines.iter().find(|line| !matches!(line, AlignedLine::Same { .. }))?;
    let reordered = lines.iter().find(|line| matches!(line, AlignedLine::Reordered { .. }));
    let missing = lines.iter().find_map(|line| match line {
        AlignedLine::Missing { what, .. } => Some(what),
        _ => None,
    });
    let extra = lines.iter().find_map(|line| match line {
        AlignedLine::Extra { what, location } => Some((what, location.as_ref())),
        _ => None,
    });
    let sketch = |id: String, location: Option<&CodeLocation>, lines: Vec<String>| SuggestedPatch {
        id,
        place: location.map(line_of),
        lines,
    };
    Some(match (reordered.unwrap_or(first), missing, extra) {
        (AlignedLine::Reordered { what, location, .. }, ..) => {
            let id = format!("order-of-{}", slug(what));
            let lines = if_else(context, &id, "the new order", "the order as recorded");
            sketch(id, location.as_ref(), lines)
        }
        (AlignedLine::Changed { recorded, location, .. }, ..) => {
            let id = format!("{}-changed", slug(recorded));
            let lines = if_else(context, &id, "as it is now", &format!("as recorded: {recorded}"));
            sketch(id, location.as_ref().or(mismatch.location.as_ref()), lines)
        }
        (_, Some(missing), Some((extra, location))) if missing.kind == extra.kind => {
            let id = format!("{}-became-{}", slug(missing), slug(extra));
            // Which of the two it is history does not tell. Either way nothing that was done is lost.
            let new =
                format!("`{0}`; and `{1}` after it, if `{0}` was inserted before it", extra.title(), missing.title());
            let lines = if_else(context, &id, &new, &format!("`{}`", missing.title()));
            sketch(id, location, lines)
        }
        (_, _, Some((extra, location))) => {
            let id = format!("add-{}", slug(extra));
            match location.and_then(|at| guarded(at, sources, context, &id)) {
                Some(patch) => patch,
                None => {
                    let lines = vec![
                        format!("+ if {context}.patched(\"{id}\") {{"),
                        format!("      /* {} */", name_of(extra)),
                        "+ }".to_owned(),
                    ];
                    sketch(id, location, lines)
                }
            }
        }
        (_, Some(missing), None) if missing.kind == RequestKind::Patch => {
            let lines = vec![format!(
                "+ {context}.deprecate_patch(\"{}\"); // until no open run holds its marker",
                missing.name
            )];
            sketch(missing.name.clone(), mismatch.location.as_ref(), lines)
        }
        (_, Some(missing), None) => {
            let id = format!("without-{}", slug(missing));
            let lines = vec![
                format!("+ if !{context}.patched(\"{id}\") {{"),
                format!("+     /* {}, as it was: runs from before still need it */", name_of(missing)),
                "+ }".to_owned(),
            ];
            sketch(id, mismatch.location.as_ref(), lines)
        }
        (AlignedLine::Same { .. } | AlignedLine::Missing { .. } | AlignedLine::Extra { .. }, None, None) => {
            return None;
        }
    })
}

fn if_else(context: &str, id: &str, new: &str, old: &str) -> Vec<String> {
    vec![
        format!("+ if {context}.patched(\"{id}\") {{"),
        format!("      /* {new} */"),
        "+ } else {".to_owned(),
        format!("+     /* {old} */"),
        "+ }".to_owned(),
    ]
}

/// The statement at a place, wrapped; nothing when it cannot be told where it ends, or when it binds a name that what
/// follows may need.
fn guarded(location: &CodeLocation, sources: Sources<'_>, context: &str, id: &str) -> Option<SuggestedPatch> {
    let source = sources(&location.file)?;
    let all: Vec<&str> = source.lines().collect();
    let from = usize::try_from(location.line).ok()?.checked_sub(1)?;
    let before = all[..from].iter().rev().find(|line| !line.trim().is_empty());
    let begins = before.is_none_or(|line| line.trim_end().ends_with([';', '{', '}', ',']));
    let rest = all.get(from..)?;
    let length = rest.iter().take(STATEMENT_MAX).scan(0i32, |depth, line| {
        *depth += line.matches(['(', '{', '[']).count() as i32 - line.matches([')', '}', ']']).count() as i32;
        Some((*depth, line.trim_end().ends_with(';')))
    });
    let length = length.collect::<Vec<_>>().iter().position(|(depth, ends)| *depth <= 0 && *ends)? + 1;
    let statement = &rest[..length];
    let first = statement[0].trim_start();
    if !begins || first.starts_with("let ") || first.starts_with("return") {
        return None;
    }
    let indent = &statement[0][..statement[0].len() - first.len()];
    // The code may call its context otherwise.
    let context = context_of(first).unwrap_or(context);
    let mut lines: Vec<String> = statement.iter().map(|line| format!("- {line}")).collect();
    lines.push(format!("+ {indent}if {context}.patched(\"{id}\") {{"));
    lines.extend(statement.iter().map(|line| format!("+     {line}")));
    lines.push(format!("+ {indent}}}"));
    Some(SuggestedPatch { id: id.to_owned(), place: Some(line_of(location)), lines })
}

/// The name before the call that asked: `cx` of `cx.timer(..)`.
fn context_of(statement: &str) -> Option<&str> {
    const CALLS: [&str; 8] = [
        ".activity",
        ".timer(",
        ".labelled_timer(",
        ".sleep_until(",
        ".child_workflow",
        ".schedule_activity",
        ".start_timer",
        ".start_child",
    ];
    let end = CALLS.iter().filter_map(|call| statement.find(call)).min()?;
    let word = |c: char| c.is_alphanumeric() || c == '_';
    let name = statement[..end].rsplit(|c| !word(c)).next()?;
    (!name.is_empty() && !name.starts_with(|c: char| c.is_numeric())).then_some(name)
}

fn line_of(location: &CodeLocation) -> String {
    format!("{}:{}", location.file, location.line)
}

fn name_of(what: &Request) -> String {
    if what.name.is_empty() { what.title() } else { format!("{} {}", what.kind, what.name) }
}

/// A request as a word for an id.
fn slug(what: &Request) -> String {
    let word = match what.kind {
        RequestKind::StartTimer => "timer".to_owned(),
        RequestKind::CompleteWorkflow => "result".to_owned(),
        _ => what.title(),
    };
    let slug: String =
        word.chars().map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' }).take(40).collect();
    slug.trim_matches('-').to_owned()
}
