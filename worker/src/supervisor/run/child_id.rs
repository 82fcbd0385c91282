//! The workflow ids of runs below: the run, and the key of what the child is for.
//!
//! Invariant: every id is valid, however long the ids of tasks are, and keys that differ give ids that differ; the same key
//! gives the same id at every replay. An id that fits is the whole key; of a longer one a hash stands for the end.

use bosun_engine::{ID_LENGTH_MAX, WorkflowId};

use crate::supervisor::core::key::Key;

/// Hexadecimal digits of the hash.
const HASH: usize = 16;
/// So much of a task's name in an id says which task it is.
const TELLING: usize = 60;

/// A key, or a part of one, as part of a workflow id: other keys give other words, also where ids of tasks hold `/` or `-`.
fn word_of(key: &str) -> String {
    key.replace('~', "~0").replace('-', "~1").replace('/', "-")
}

/// The id of the run below that a key asks for.
pub(super) fn of(run: &str, key: &Key) -> WorkflowId {
    WorkflowId::of(fitting(run, &key.to_string()))
}

fn fitting(run: &str, key: &str) -> String {
    let whole = format!("{run}-{}", word_of(key));
    if whole.len() <= ID_LENGTH_MAX {
        return whole;
    }
    let mut end = ID_LENGTH_MAX - HASH - 1;
    while !whole.is_char_boundary(end) {
        end -= 1;
    }
    format!("{}~{}", &whole[..end], &blake3::hash(whole.as_bytes()).to_hex()[..HASH])
}

/// Whether a run of this id was begun for this task, by its name.
pub(crate) fn is_for_task(id: &str, task: &str) -> bool {
    let word = format!("-{}-", word_of(task));
    let cut = |kept: &str| {
        let ends = word.char_indices().map(|(at, _)| at).filter(|at| *at >= TELLING);
        ends.rev().any(|at| kept.ends_with(&word[..at]))
    };
    let kept = id.rsplit_once('~').filter(|(_, hash)| hash.len() == HASH).map(|(kept, _)| kept);
    id.contains(&word) || kept.is_some_and(cut)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    const RUN: &str = "01020304-0506-0708-090a-0b0c0d0e0fff";

    /// Children of the tasks `a/b` and `a-b` are two runs.
    #[test]
    fn keys_that_differ_give_ids_that_differ() {
        let keys = ["execute/a/b/1", "execute/a-b/1", "execute/a~1b/1", "execute/a~b/1", "execute/a-b~1/1"];
        let words: BTreeSet<String> = keys.into_iter().map(word_of).collect();
        assert_eq!(words.len(), keys.len(), "{words:?}");
        assert_eq!(fitting("r", "execute/t1/2"), "r-execute-t1-2");
    }

    /// Ids of tasks have up to 200 characters, of which each may be four bytes, or two after it is written as a word.
    #[test]
    fn ids_of_long_tasks_are_valid_and_differ() {
        let tasks = ["市".repeat(70), "市".repeat(200), "a-b".repeat(66), "🦀".repeat(200), "x".repeat(200)];
        let mut ids = BTreeSet::new();
        for task in &tasks {
            for key in [format!("execute/{task}/1"), format!("execute/{task}/2"), format!("act/{task}/1")] {
                let id = fitting(RUN, &key);
                assert!(WorkflowId::new(&id).is_ok(), "{id}");
                assert_eq!(id, fitting(RUN, &key));
                assert!(id.starts_with(RUN) && is_for_task(&id, task), "{id}");
                assert!(!is_for_task(&id, "t1"), "{id}");
                ids.insert(id);
            }
        }
        assert_eq!(ids.len(), 3 * tasks.len());
    }
}
