//! Topics: a task may consume what others produce without depending on them.
//!
//! Invariant: a wait looks again after 1 s, then twice as long each time up to 30 s, and ends after 360 s at the latest:
//! then the task goes on without the topic, with a warning. What nobody (else) is going to produce is not waited for.
//! It starts no task: it says when one need not wait any more.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bosun_engine::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::events::TeamEvent;
use crate::supervisor::core::key::TeamKey;
use crate::supervisor::journal::NoteKind;
use crate::supervisor::model::TaskId;
use crate::supervisor::outbox::Outbox;
use crate::supervisor::spec::Topics;

/// What a task is to do about the topics it consumes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TopicState {
    Wait,
    /// It may start; `missing` are topics that did not come in time, which its context says as a warning.
    Go {
        missing: Vec<String>,
    },
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Wait {
    topics: BTreeSet<String>,
    agent: String,
    delay: Duration,
    looks: u32,
    until: Timestamp,
}

#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct TopicRegistry {
    rules: Topics,
    produced: BTreeSet<String>,
    /// Which tasks are going to produce a topic.
    producers: BTreeMap<String, BTreeSet<TaskId>>,
    waits: BTreeMap<TaskId, Wait>,
    /// Tasks that need not wait any more, with what they go without.
    settled: BTreeMap<TaskId, Vec<String>>,
}

impl TopicRegistry {
    pub fn new(rules: Topics) -> Self {
        TopicRegistry { rules, ..TopicRegistry::default() }
    }

    /// A task of the plan is going to produce these topics.
    pub fn plan(&mut self, task: &TaskId, produces: &[String]) {
        for topic in produces {
            self.producers.entry(topic.clone()).or_default().insert(task.clone());
        }
    }

    /// The task has ended: with success its topics are there, else they will not come from it.
    pub fn ended(&mut self, task: &TaskId, produces: &[String], succeeded: bool) {
        for topic in produces {
            let Some(producers) = self.producers.get_mut(topic) else { continue };
            if producers.remove(task) && succeeded {
                self.produced.insert(topic.clone());
            }
            if producers.is_empty() {
                self.producers.remove(topic);
            }
        }
        self.waits.remove(task);
        self.settled.remove(task);
    }

    /// A task that is ready otherwise wants to start. Asked again, the answer is the same until a look changes it, and no
    /// further timer is asked for.
    pub fn begin(&mut self, task: &TaskId, agent: &str, consumes: &[String], out: &mut Outbox) -> TopicState {
        if let Some(missing) = self.settled.get(task) {
            return TopicState::Go { missing: missing.clone() };
        }
        if self.waits.contains_key(task) {
            return TopicState::Wait;
        }
        let topics: BTreeSet<String> = consumes.iter().filter(|topic| self.is_to_come(topic, task)).cloned().collect();
        if topics.is_empty() {
            return self.settle(task, Vec::new());
        }
        let agent = agent.to_owned();
        TeamEvent::Waiting { agent: agent.clone(), topics: topics.iter().cloned().collect() }.emit(out);
        let until = out.now().plus(self.rules.timeout.duration());
        let mut wait = Wait { topics, agent, delay: self.rules.backoff.duration(), looks: 0, until };
        wait.look_later(task, &self.rules, out);
        self.waits.insert(task.clone(), wait);
        TopicState::Wait
    }

    /// The timer of a look fired; `None` if its task waits no more.
    pub fn fired(&mut self, task: &TaskId, look: u32, out: &mut Outbox) -> Option<TopicState> {
        self.waits.get(task).filter(|wait| wait.looks == look)?;
        let mut wait = self.waits.remove(task)?;
        let (waiting, settled): (BTreeSet<String>, BTreeSet<String>) =
            wait.topics.iter().cloned().partition(|topic| self.is_to_come(topic, task));
        for topic in settled.into_iter().filter(|topic| self.produced.contains(topic)) {
            TeamEvent::DependencySatisfied { agent: wait.agent.clone(), topic: Some(topic) }.emit(out);
        }
        wait.topics = waiting;
        if wait.topics.is_empty() {
            return Some(self.settle(task, Vec::new()));
        }
        if out.now() >= wait.until {
            let missing: Vec<String> = wait.topics.into_iter().collect();
            let warning = format!("topic {} did not come in time; going on without it", missing.join(", "));
            out.note(NoteKind::TimerFired, json!({ "task": task, "warning": warning, "missing": missing }));
            return Some(self.settle(task, missing));
        }
        wait.look_later(task, &self.rules, out);
        self.waits.insert(task.clone(), wait);
        Some(TopicState::Wait)
    }

    /// What a task waits for, for `why_not_running`.
    pub fn waiting_for(&self, task: &TaskId) -> Vec<String> {
        self.waits.get(task).map_or_else(Vec::new, |wait| wait.topics.iter().cloned().collect())
    }

    fn settle(&mut self, task: &TaskId, missing: Vec<String>) -> TopicState {
        self.settled.insert(task.clone(), missing.clone());
        TopicState::Go { missing }
    }

    /// Not there yet, and somebody else is going to produce it.
    fn is_to_come(&self, topic: &str, consumer: &TaskId) -> bool {
        let others = self.producers.get(topic).is_some_and(|tasks| tasks.iter().any(|task| task != consumer));
        others && !self.produced.contains(topic)
    }
}

impl Wait {
    fn look_later(&mut self, task: &TaskId, rules: &Topics, out: &mut Outbox) {
        self.looks += 1;
        let at = out.now().plus(self.delay).min(self.until);
        let topics: Vec<&str> = self.topics.iter().map(String::as_str).collect();
        let key = TeamKey::Topic { task: task.clone(), look: self.looks };
        out.timer(key, at, format!("wait for topic {}", topics.join(", ")));
        self.delay = (self.delay * 2).min(rules.backoff_max.duration());
    }
}
