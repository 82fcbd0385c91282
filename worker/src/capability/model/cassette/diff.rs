//! The difference of two requests, line by line, for people.
//!
//! Invariant: equal texts have no difference; what is shown is bounded. Pure.

use serde_json::Value;

/// Longer texts are compared as far as that.
const LINES_MAX: usize = 600;
/// How much is shown.
const SHOWN_MAX: usize = 40;
const WIDTH_MAX: usize = 160;

/// Data as lines to compare.
pub(super) fn lines(value: &Value) -> Vec<String> {
    let text = serde_json::to_string_pretty(value).unwrap_or_default();
    text.lines().take(LINES_MAX).map(str::to_owned).collect()
}

/// How many lines differ.
pub(super) fn distance(old: &[String], new: &[String]) -> usize {
    changes(old, new).iter().filter(|(mark, _)| *mark != ' ').count()
}

/// The lines that differ, marked, each group with the line before it.
pub(super) fn diff(old: &[String], new: &[String]) -> String {
    let changes = changes(old, new);
    let mut shown = Vec::new();
    for (i, (mark, line)) in changes.iter().enumerate() {
        let next_differs = changes.get(i + 1).is_some_and(|(mark, _)| *mark != ' ');
        if *mark != ' ' || next_differs {
            let line: String = line.chars().take(WIDTH_MAX).collect();
            shown.push(format!("{mark} {line}"));
        }
    }
    if changes.iter().all(|(mark, _)| *mark == ' ') {
        return String::new();
    }
    if shown.len() > SHOWN_MAX {
        let rest = shown.len() - SHOWN_MAX;
        shown.truncate(SHOWN_MAX);
        shown.push(format!("… and {rest} more lines"));
    }
    shown.join("\n")
}

/// All lines of both. What is equal at both ends is quickly told, which is nearly all of it between like requests.
fn changes<'a>(old: &'a [String], new: &'a [String]) -> Vec<(char, &'a str)> {
    let equal = |(a, b): &(&String, &String)| a == b;
    let before = old.iter().zip(new).take_while(equal).count();
    let (old_rest, new_rest) = (&old[before..], &new[before..]);
    let after = old_rest.iter().rev().zip(new_rest.iter().rev()).take_while(equal).count();
    let between = changes_between(&old_rest[..old_rest.len() - after], &new_rest[..new_rest.len() - after]);
    let same = |lines: &'a [String]| lines.iter().map(|line| (' ', line.as_str()));
    same(&old[..before]).chain(between).chain(same(&old[old.len() - after..])).collect()
}

/// By the longest common subsequence.
fn changes_between<'a>(old: &'a [String], new: &'a [String]) -> Vec<(char, &'a str)> {
    let width = new.len() + 1;
    let mut common = vec![0_u16; (old.len() + 1) * width];
    for i in (0..old.len()).rev() {
        for j in (0..new.len()).rev() {
            common[i * width + j] = if old[i] == new[j] {
                common[(i + 1) * width + j + 1] + 1
            } else {
                common[(i + 1) * width + j].max(common[i * width + j + 1])
            };
        }
    }
    let (mut i, mut j) = (0, 0);
    let mut changes = Vec::new();
    while i < old.len() || j < new.len() {
        if i < old.len() && j < new.len() && old[i] == new[j] {
            changes.push((' ', old[i].as_str()));
            (i, j) = (i + 1, j + 1);
        } else if j == new.len() || i < old.len() && common[(i + 1) * width + j] >= common[i * width + j + 1] {
            changes.push(('-', old[i].as_str()));
            i += 1;
        } else {
            changes.push(('+', new[j].as_str()));
            j += 1;
        }
    }
    changes
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_what_differs_is_shown_with_the_line_before() {
        let old = lines(&json!({"model": "a", "messages": ["x", "y"], "n": 1}));
        let new = lines(&json!({"model": "b", "messages": ["x", "y"], "n": 1}));
        assert_eq!(diff(&old, &new), "  {\n-   \"model\": \"a\",\n+   \"model\": \"b\",");
        assert_eq!((distance(&old, &new), distance(&old, &old)), (2, 0));
        assert_eq!(diff(&old, &old), "");
        assert_eq!(distance(&old, &[]), old.len());
    }

    #[test]
    fn a_long_difference_is_shown_in_part() {
        let of = |n: usize| lines(&json!((0..n).map(|n| n.to_string()).collect::<Vec<_>>()));
        let shown = diff(&of(0), &of(2_000));
        assert_eq!(shown.lines().count(), SHOWN_MAX + 1);
        assert!(shown.ends_with("more lines"), "{shown}");
    }
}
