//! Alignment by the longest common subsequence, where an equal event counts more than one with other contents.
//!
//! Invariant: every event of both sides is told once, in order, or counted as not compared. Time and memory are bounded.

use serde_json::{Map, Value};

use super::{ComparedEvent, DiffLine, FieldChange};

/// More cells would take more memory than a diff is worth.
const CELLS_MAX: usize = 4_000_000;

pub(super) struct Aligned {
    pub(super) lines: Vec<DiffLine>,
    pub(super) not_compared: (usize, usize),
}

pub(super) fn align(left: &[ComparedEvent], right: &[ComparedEvent]) -> Aligned {
    let bound = if left.len().saturating_mul(right.len()) > CELLS_MAX { 2_000 } else { usize::MAX };
    let not_compared = (left.len().saturating_sub(bound), right.len().saturating_sub(bound));
    let (left, right) = (&left[..left.len() - not_compared.0], &right[..right.len() - not_compared.1]);
    let width = right.len() + 1;
    let mut best = vec![0_u32; (left.len() + 1) * width];
    for l in (0..left.len()).rev() {
        for r in (0..right.len()).rev() {
            let skip = best[(l + 1) * width + r].max(best[l * width + r + 1]);
            best[l * width + r] = skip.max(score(&left[l], &right[r]) + best[(l + 1) * width + r + 1]);
        }
    }
    let (mut l, mut r) = (0, 0);
    let mut lines = Vec::new();
    while l < left.len() || r < right.len() {
        let here = best[l * width + r];
        if l < left.len() && r < right.len() {
            let together = score(&left[l], &right[r]);
            if together > 0 && here == together + best[(l + 1) * width + r + 1] {
                lines.push(pair(&left[l], &right[r]));
                (l, r) = (l + 1, r + 1);
                continue;
            }
        }
        if l < left.len() && (r == right.len() || here == best[(l + 1) * width + r]) {
            lines.push(DiffLine::OnlyLeft { left: left[l].id, what: left[l].what.clone() });
            l += 1;
        } else {
            lines.push(DiffLine::OnlyRight { right: right[r].id, what: right[r].what.clone() });
            r += 1;
        }
    }
    Aligned { lines, not_compared }
}

fn score(left: &ComparedEvent, right: &ComparedEvent) -> u32 {
    match (left.what == right.what, left.content == right.content) {
        (true, true) => 3,
        (true, false) => 2,
        (false, _) => 0,
    }
}

fn pair(left: &ComparedEvent, right: &ComparedEvent) -> DiffLine {
    let what = left.what.clone();
    if left.content == right.content {
        return DiffLine::Same { left: left.id, right: right.id, what };
    }
    let mut fields = Vec::new();
    changes("", &left.content, &right.content, &mut fields);
    DiffLine::Changed { left: left.id, right: right.id, what, fields }
}

/// The parts that differ, as deep as objects go.
fn changes(path: &str, left: &Value, right: &Value, found: &mut Vec<FieldChange>) {
    match (left, right) {
        (Value::Object(left), Value::Object(right)) => {
            let right_only = right.keys().filter(|key| !left.contains_key(*key));
            for key in left.keys().chain(right_only) {
                let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
                let side = |side: &Map<String, Value>| side.get(key).cloned().unwrap_or_default();
                changes(&path, &side(left), &side(right), found);
            }
        }
        (left, right) if left != right => {
            let short = |value: &Value| match value.to_string() {
                text if text.chars().count() <= 120 => text,
                text => text.chars().take(119).chain(['…']).collect(),
            };
            found.push(FieldChange { field: path.to_owned(), left: short(left), right: short(right) });
        }
        _ => {}
    }
}
