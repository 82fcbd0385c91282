//! What runs below wait for, as they have told it, and what became of what they asked: the whole tree asks at its root.
//!
//! ```text
//!   run below ──(waits_below_v1: what waits, what is over)──► run above ──► its own above … ──► the first run shows all
//!   answer to the first run ──► the child that told of it ──► … ──► the one run that asks
//! ```
//!
//! Invariant: an answer is passed on to the one child that told of its id, once: until that child says that it did not
//! take it, every other answer to the id is refused. The run that asks has the last word; what stands here is a copy. It
//! sends nothing itself.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use bosun_engine::Timestamp;
use serde::{Deserialize, Serialize};

use crate::agent::transcript::cut;
use crate::agent::waits::{TOLD_MAX, WORDS_MAX};

const RUN_OVER: &str = "the run that asked is over";
/// How many ids that are over are remembered.
const OVER_MAX: usize = 1_000;

/// What a run waits for: what every view of it shows.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Waiting {
    pub kind: WaitKind,
    pub id: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<String>,
    pub whom: String,
    pub what: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
    /// The command that answers.
    pub answer: String,
    /// The hash of what is shown: an answer that names another one is about something else.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shown: Option<String>,
    /// The run below that asks, by its workflow id; the run itself if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<String>,
}

impl Waiting {
    /// What is waited for, in two words.
    pub fn named(&self) -> String {
        let what = match self.kind {
            WaitKind::Approval | WaitKind::Tool => "approval",
            WaitKind::Question => "interrupt",
            WaitKind::Plan => "the review of the plan",
            WaitKind::Pause => "the end of the pause of",
            WaitKind::Takeover => "the release of",
        };
        format!("{what} {}", self.id)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WaitKind {
    Approval,
    /// The approval of a tool call of an agent that is a run of its own.
    Tool,
    Question,
    Plan,
    Pause,
    Takeover,
}

/// What became of something that was asked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum How {
    Answered,
    /// Its time was over.
    Late,
    /// Nobody needs the answer any more.
    Void {
        reason: String,
    },
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Over {
    pub id: String,
    pub how: How,
}

/// The signal of a run to the one above it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct WaitsBelow {
    /// Its workflow id.
    pub from: String,
    /// Whether anything but people can bring it on.
    pub working: bool,
    /// All that it and the runs below it wait for.
    pub waiting: Vec<Waiting>,
    /// What it has told of before, and what became of it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub over: Vec<Over>,
    /// Answers to these were passed on and did not count: they still wait.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub not_taken: Vec<String>,
}

/// Why nobody below is to be given an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NotBelow {
    Unknown,
    Over(How),
}

/// What the runs below have told.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Below {
    /// By the workflow id of the child.
    runs: BTreeMap<String, Standing>,
    over: VecDeque<Over>,
    /// Answers that are on their way.
    passed: BTreeSet<String>,
    /// How many signals were sent down, ever.
    sent: u64,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Standing {
    working: bool,
    waiting: Vec<Waiting>,
}

impl Below {
    /// A child tells what it waits for now.
    pub fn heard(&mut self, told: WaitsBelow) {
        for id in &told.not_taken {
            self.passed.remove(id);
        }
        told.over.into_iter().for_each(|over| self.remember(over));
        self.runs.insert(told.from, Standing { working: told.working, waiting: told.waiting });
    }

    /// A child has ended: what it asked, nobody needs any more.
    pub fn ended(&mut self, child: &str) {
        let Some(standing) = self.runs.remove(child) else { return };
        for one in standing.waiting {
            let how = match self.passed.contains(&one.id) {
                true => How::Answered,
                false => How::Void { reason: RUN_OVER.to_owned() },
            };
            self.remember(Over { id: one.id, how });
        }
    }

    fn remember(&mut self, over: Over) {
        self.passed.remove(&over.id);
        self.over.retain(|old| old.id != over.id);
        self.over.push_back(over);
        if self.over.len() > OVER_MAX {
            self.over.pop_front();
        }
    }

    /// All that waits below these children and is not answered yet, each with the child that told of it.
    pub fn waiting<'b>(&'b self, is_child: impl Fn(&str) -> bool + 'b) -> impl Iterator<Item = (&'b str, &'b Waiting)> {
        let open = self.runs.iter().filter(move |(child, _)| is_child(child));
        let all = open.flat_map(|(child, standing)| standing.waiting.iter().map(move |one| (child.as_str(), one)));
        all.filter(|(_, one)| !self.passed.contains(&one.id))
    }

    /// The child to give an answer to, and what it told; or why there is none.
    pub fn asker<'b>(
        &'b self,
        id: &str,
        is_child: impl Fn(&str) -> bool + 'b,
    ) -> Result<(&'b str, &'b Waiting), NotBelow> {
        if let Some(found) = self.waiting(is_child).find(|(_, one)| one.id == id) {
            return Ok(found);
        }
        let over = self.over.iter().find(|over| over.id == id).map(|over| over.how.clone());
        match over.or_else(|| self.passed.contains(id).then_some(How::Answered)) {
            Some(how) => Err(NotBelow::Over(how)),
            None => Err(NotBelow::Unknown),
        }
    }

    /// The number of the next signal that is sent down.
    pub fn next_signal(&mut self) -> u64 {
        self.sent += 1;
        self.sent
    }

    /// An answer is on its way.
    pub fn passed(&mut self, id: &str) {
        self.passed.insert(id.to_owned());
    }

    /// What became of an id that is not waited for any more.
    pub fn what_became_of(&self, id: &str) -> How {
        if self.passed.contains(id) {
            return How::Answered;
        }
        let over = self.over.iter().find(|over| over.id == id);
        over.map_or(How::Void { reason: "nobody waits for it any more".to_owned() }, |over| over.how.clone())
    }

    /// Whether only people can bring a child on.
    pub fn stands_still(&self, child: &str) -> bool {
        self.runs.get(child).is_some_and(|standing| !standing.working)
    }
}

/// What a run has told the one above it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Above {
    working: bool,
    waiting: Vec<Waiting>,
    /// What it has told of, and what still waits behind so much else that it is not told now.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pushed_out: Vec<Waiting>,
    /// Answers that came from above and did not count.
    not_taken: Vec<String>,
}

impl Default for Above {
    fn default() -> Self {
        Above { working: true, waiting: Vec::new(), pushed_out: Vec::new(), not_taken: Vec::new() }
    }
}

impl Above {
    /// An answer did not count; whoever passed it on must know, if it is still waited for.
    pub fn not_taken(&mut self, id: &str) {
        self.not_taken.push(id.to_owned());
    }

    /// What has changed since it was told last, if anything. `became`: what became of something that was told of before.
    pub fn changes(
        &mut self,
        from: &str,
        working: bool,
        mut waiting: Vec<Waiting>,
        became: impl Fn(&Waiting) -> How,
    ) -> Option<WaitsBelow> {
        waiting.iter_mut().for_each(|one| one.what = cut(std::mem::take(&mut one.what), WORDS_MAX));
        let not_taken = std::mem::take(&mut self.not_taken);
        let is_in = |all: &[Waiting], old: &Waiting| all.iter().any(|one| one.id == old.id && one.kind == old.kind);
        let known = self.waiting.iter().chain(&self.pushed_out);
        let (still, gone): (Vec<&Waiting>, Vec<&Waiting>) = known.partition(|old| is_in(&waiting, old));
        let over: Vec<Over> = gone.into_iter().map(|old| Over { id: old.id.clone(), how: became(old) }).collect();
        let still: Vec<Waiting> = still.into_iter().cloned().collect();
        waiting.truncate(TOLD_MAX);
        if working == self.working && waiting == self.waiting && over.is_empty() && not_taken.is_empty() {
            return None;
        }
        self.pushed_out = still.into_iter().filter(|old| !is_in(&waiting, old)).collect();
        (self.working, self.waiting) = (working, waiting.clone());
        Some(WaitsBelow { from: from.to_owned(), working, waiting, over, not_taken })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(n: usize) -> Waiting {
        Waiting {
            kind: WaitKind::Approval,
            id: format!("run/ap-{n}"),
            task: None,
            whom: "a person".into(),
            what: "the approval of it".into(),
            until: None,
            answer: format!("bosun approval approve run/ap-{n}"),
            shown: None,
            run: None,
        }
    }

    /// What stands too far behind to be told now still waits; it is over when it is, and then once.
    #[test]
    fn what_is_pushed_out_of_what_is_told_is_not_over() {
        let mut above = Above::default();
        let mut tell = |waiting: Vec<Waiting>| above.changes("run", false, waiting, |_| How::Answered);
        let ids = |over: &[Over]| over.iter().map(|one| one.id.clone()).collect::<Vec<_>>();
        let all: Vec<Waiting> = (0..TOLD_MAX).map(asked).collect();
        assert_eq!(tell(all.clone()).unwrap().waiting.len(), TOLD_MAX);
        let before: Vec<Waiting> = (TOLD_MAX..TOLD_MAX + 2).map(asked).chain(all.clone()).collect();
        let told = tell(before.clone()).unwrap();
        assert_eq!((told.waiting.len(), told.over), (TOLD_MAX, Vec::new()), "the last two still wait");
        let mut without_the_last = before.clone();
        without_the_last.pop();
        let told = tell(without_the_last.clone()).unwrap();
        assert_eq!(ids(&told.over), [format!("run/ap-{}", TOLD_MAX - 1)], "one that was pushed out is over");
        assert_eq!(tell(without_the_last.clone()), None, "nothing has changed");
        let told = tell(without_the_last.split_off(2)).unwrap();
        let first_two = [format!("run/ap-{TOLD_MAX}"), format!("run/ap-{}", TOLD_MAX + 1)];
        assert_eq!((told.waiting.len(), ids(&told.over)), (TOLD_MAX - 1, first_two.to_vec()));
    }
}
