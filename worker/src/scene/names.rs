//! The name that was probably meant.
//!
//! Invariant: a hint is a known name, and only one that is close; nothing is ever read as another name than it is.

/// The known name nearest to a text: by a common part, or by few typing errors.
pub(crate) fn near<'k>(text: &str, known: &[&'k str]) -> Option<&'k str> {
    if let Some(found) = crate::supervisor::fields::similar(text, known) {
        return Some(found);
    }
    let close = |known: &&'k str| {
        let steps = distance(text, known);
        (steps <= 1 + text.chars().count() / 4).then_some((steps, *known))
    };
    known.iter().filter_map(close).min().map(|(_, known)| known)
}

/// ` (did you mean `x`?)`, or nothing.
pub(crate) fn or_near(text: &str, known: &[&str]) -> String {
    near(text, known).map_or_else(String::new, |near| format!(" (did you mean `{near}`?)"))
}

/// How many letters must be changed, added or left out.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, from) in a.chars().enumerate() {
        let mut before = row[0];
        row[0] = i + 1;
        for (j, to) in b.iter().enumerate() {
            let changed = before + usize::from(from != *to);
            before = row[j + 1];
            row[j + 1] = changed.min(before + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_near_name_is_found_and_a_far_one_is_not() {
        assert_eq!(near("dmp", &["load", "dump"]), Some("dump"));
        assert_eq!(near("excute_worker", &["plan", "execute_worker"]), Some("execute_worker"));
        assert_eq!(near("greet", &["plan", "review"]), None);
    }
}
