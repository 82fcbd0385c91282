//! What a run has asked for and does not have yet: calls, timers and children, from the ask to the answer.
//!
//! ```text
//!   ask ──► under way ──► answered ──► heard                       its worker was lost: delivered again, same key
//!    │          │            └──► held: the run stands still ──► heard when it goes on
//!    │          └──► cancelled ──► a child that was lent something: its bill is to come
//!    └──► put off: the run stands still, or somebody has to give a key or money first ──► asked again when it goes on
//! ```
//!
//! A pause is held here, for every family: what comes in meanwhile (the answer of a call, a timer, a word of a person to a
//! strategy) is kept in the order in which it came, and what is asked for meanwhile is put off.
//!
//! Invariant: a key is under way at most once, under one number of the engine; what is not under way any more is not heard
//! of; a worker that was lost is no fault of who asked, so that its call is delivered again, but not for ever. Pure: the
//! workflow turns what is asked for into commands, and tells here the number of each.

use std::collections::BTreeMap;

use bosun_engine::Seq;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::key::{BegunFor, Key};
use super::question::{Expired, QuestionKey};
use crate::agent::ledger::Resource;
use crate::supervisor::model::TaskId;
use crate::supervisor::outbox::{Answer, Call, ChildKind, ChildTask, Purpose};

/// What a number of the engine stands for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum UnderWay {
    Call {
        call: Call,
        /// How often it was delivered before.
        deliveries: u32,
    },
    /// A scripted call that takes its time.
    Later {
        call: Call,
        input: Value,
        deliveries: u32,
    },
    Timer {
        key: Key,
        /// What it is for, in words.
        label: String,
    },
    Child {
        key: Key,
        child: RunBelow,
    },
}

/// A run below.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunBelow {
    pub workflow_id: String,
    /// What an agent was asked for; absent for a supervisor.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<Purpose>,
    /// Of what it may spend no more than what was left of the run's budget.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lent: Vec<Resource>,
    /// What is said of it if it takes all its time, where whoever does its work has one of their own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub too_slow: Option<String>,
}

impl UnderWay {
    fn key(&self) -> &Key {
        match self {
            UnderWay::Call { call, .. } | UnderWay::Later { call, .. } => &call.key,
            UnderWay::Timer { key, .. } | UnderWay::Child { key, .. } => key,
        }
    }
}

/// What comes in for whoever asked: at once, or when the run goes on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Arrival {
    Answer {
        key: Key,
        answer: Answer,
    },
    Fired {
        key: Key,
    },
    /// What a person answered a strategy that asked under this key, or that nobody did in time.
    Person {
        task: QuestionKey,
        outcome: Result<Value, Expired>,
        /// What they said with it (LGI-09).
        #[serde(default, skip_serializing_if = "Map::is_empty")]
        update: Map<String, Value>,
    },
}

/// What the engine is told to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cancelled {
    Activity(Seq),
    Timer(Seq),
    Child(Seq),
}

/// A run below that is to begin.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NewRun {
    pub key: Key,
    pub kind: ChildKind,
    pub task: ChildTask,
}

/// See the module.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Calls {
    under_way: BTreeMap<Seq, UnderWay>,
    numbers: BTreeMap<Key, Seq>,
    /// Calls that somebody has to do something for first: a key, money, a `resume`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    put_off: Vec<Call>,
    /// Runs below that begin when this one has gone on in a new one, or has more to spend.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    new_runs: Vec<NewRun>,
    /// What came while the run stood still: stored, not consumed (§4.4 no. 57).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    held: Vec<Arrival>,
    /// Children that were cancelled, and whose bill is still to come.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    bills: BTreeMap<Seq, Key>,
}

impl Calls {
    /// What was asked for is under way, under this number.
    pub fn sent(&mut self, seq: Seq, what: UnderWay) {
        self.numbers.insert(what.key().clone(), seq);
        self.under_way.insert(seq, what);
    }

    /// It has ended: what it was, if anybody waits for it still.
    pub fn ended(&mut self, seq: Seq) -> Option<UnderWay> {
        let what = self.under_way.remove(&seq)?;
        self.numbers.remove(what.key());
        Some(what)
    }

    /// What a child was begun for that was cancelled and has ended now: only the account still waits for it.
    pub fn bill_came(&mut self, seq: Seq) -> Option<Key> {
        self.bills.remove(&seq)
    }

    /// Nobody waits for it any more: what is to be ended.
    pub fn cancel(&mut self, key: &Key) -> Option<Cancelled> {
        self.put_off.retain(|call| call.key != *key);
        self.new_runs.retain(|run| run.key != *key);
        let seq = self.numbers.get(key).copied()?;
        Some(match self.ended(seq)? {
            UnderWay::Call { .. } => Cancelled::Activity(seq),
            UnderWay::Later { .. } | UnderWay::Timer { .. } => Cancelled::Timer(seq),
            UnderWay::Child { key, .. } => {
                // What it spent is told at its end.
                self.bills.insert(seq, key);
                Cancelled::Child(seq)
            }
        })
    }

    /// The call waits for a person, and for the run to go on.
    pub fn put_off(&mut self, call: Call) {
        self.put_off.push(call);
    }

    /// The run below begins behind the border, or when there is more to spend.
    pub fn put_off_run(&mut self, run: NewRun) {
        self.new_runs.push(run);
    }

    /// The runs below that may begin now, in order.
    pub fn runs_put_off(&mut self) -> Vec<NewRun> {
        std::mem::take(&mut self.new_runs)
    }

    /// It waits for the run to go on.
    pub fn hold(&mut self, incoming: Arrival) {
        self.held.push(incoming);
    }

    /// Whether what a person said to a strategy under this key waits for the run to go on: they are not asked again.
    pub fn holds_word_for(&self, key: &Key) -> bool {
        let is_of = |task: &QuestionKey| matches!(task, QuestionKey::Strategy(asked) if asked == key);
        self.held.iter().any(|incoming| matches!(incoming, Arrival::Person { task, .. } if is_of(task)))
    }

    /// The run goes on: what is asked for again, and what is heard now, each in order.
    pub fn go_on(&mut self) -> (Vec<Call>, Vec<Arrival>) {
        (std::mem::take(&mut self.put_off), std::mem::take(&mut self.held))
    }

    /// The run is cancelled: what came while it stood still changes nothing any more, but it did come.
    pub fn take_held(&mut self) -> Vec<Arrival> {
        std::mem::take(&mut self.held)
    }

    /// The answers that came while the run stands still.
    pub fn held_answers(&self) -> impl Iterator<Item = (&Key, &Answer)> {
        self.held.iter().filter_map(|arrival| match arrival {
            Arrival::Answer { key, answer } => Some((key, answer)),
            Arrival::Fired { .. } | Arrival::Person { .. } => None,
        })
    }

    /// Whether anything waits for the run to go on.
    pub fn waits_for_run(&self) -> bool {
        self.has_put_off() || !self.held.is_empty()
    }

    /// What is under way, by its number.
    pub fn under_way(&self) -> impl Iterator<Item = (Seq, &UnderWay)> {
        self.under_way.iter().map(|(seq, what)| (*seq, what))
    }

    /// All that is under way is asked for again, in the order in which it was, and has the number that is given for it.
    pub fn number_anew(&mut self, mut number: impl FnMut(Seq, &UnderWay) -> Seq) {
        for (old, what) in std::mem::take(&mut self.under_way) {
            self.numbers.remove(what.key());
            self.sent(number(old, &what), what);
        }
    }

    /// Whether the work of a task was asked for and is not begun.
    pub fn is_put_off(&self, task: &TaskId) -> bool {
        self.put_off.iter().any(|call| call.key.begun_for() == BegunFor::Task(task))
    }

    /// Whether anything that was asked for is not begun.
    pub fn has_put_off(&self) -> bool {
        !self.put_off.is_empty() || !self.new_runs.is_empty()
    }

    /// Whether a plan goes on by itself after a time: it tries again, or gives up waiting.
    pub fn waits_for_time(&self) -> bool {
        self.under_way.values().any(|what| matches!(what, UnderWay::Timer { key: Key::Graph(_), .. }))
    }

    /// Whether nobody that was cancelled has still to say what it spent.
    pub fn has_all_bills(&self) -> bool {
        self.bills.is_empty()
    }

    /// Whether nothing but time is waited for.
    pub fn is_idle(&self) -> bool {
        self.under_way.values().all(|what| matches!(what, UnderWay::Timer { .. }))
    }

    /// Whether nothing of the run itself is under way.
    pub fn only_children(&self) -> bool {
        self.under_way.values().all(|what| matches!(what, UnderWay::Timer { .. } | UnderWay::Child { .. }))
    }

    /// Whether nothing is at work: there are timers, and runs below that only people can bring on.
    pub fn only_waits(&self, stands_still: impl Fn(&str) -> bool) -> bool {
        self.under_way.values().all(|what| match what {
            UnderWay::Timer { .. } => true,
            UnderWay::Child { child, .. } => stands_still(&child.workflow_id),
            UnderWay::Call { .. } | UnderWay::Later { .. } => false,
        })
    }

    /// Whether a run of this workflow id is open below.
    pub fn has_child(&self, id: &str) -> bool {
        self.key_of_child(id).is_some()
    }

    /// The key under which a run of this workflow id is open below.
    pub fn key_of_child(&self, id: &str) -> Option<&Key> {
        self.under_way.values().find_map(|what| match what {
            UnderWay::Child { key, child } if child.workflow_id == id => Some(key),
            _ => None,
        })
    }

    /// Whether that is an agent, and no supervisor.
    pub fn is_agent(&self, id: &str) -> bool {
        let is_it = |what: &UnderWay| matches!(what, UnderWay::Child { child, .. } if child.workflow_id == id && child.agent.is_some());
        self.under_way.values().any(is_it)
    }

    /// The child that was started under this key.
    pub fn child(&self, key: &Key) -> Option<&RunBelow> {
        match self.numbers.get(key).and_then(|seq| self.under_way.get(seq)) {
            Some(UnderWay::Child { child, .. }) => Some(child),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::supervisor::core::key::key;

    fn call(text: &str) -> Call {
        Call::new(key::<Key>(text), Purpose::ExecuteWorker, Value::Null)
    }

    fn timer(key: Key) -> UnderWay {
        UnderWay::Timer { key, label: String::new() }
    }

    fn child() -> RunBelow {
        RunBelow { workflow_id: "w".to_owned(), agent: None, lent: Vec::new(), too_slow: None }
    }

    /// Of every kind: what is ended when nobody waits any more, and whether a bill is to come. Once, and never twice.
    #[test]
    fn what_is_under_way_is_cancelled_once_in_its_own_way() {
        let (a, input) = (key::<Key>("execute/t/1"), Value::Null);
        let of_call = call("execute/t/1");
        for (what, ended, bill) in [
            (UnderWay::Call { call: of_call.clone(), deliveries: 0 }, Cancelled::Activity(Seq(7)), false),
            (UnderWay::Later { call: of_call, input, deliveries: 0 }, Cancelled::Timer(Seq(7)), false),
            (timer(a.clone()), Cancelled::Timer(Seq(7)), false),
            (UnderWay::Child { key: a.clone(), child: child() }, Cancelled::Child(Seq(7)), true),
        ] {
            let mut calls = Calls::default();
            calls.sent(Seq(7), what);
            assert_eq!((calls.cancel(&a), calls.cancel(&a), calls.ended(Seq(7))), (Some(ended), None, None));
            let of = bill.then(|| a.clone());
            assert_eq!((calls.has_all_bills(), calls.bill_came(Seq(7)), calls.bill_came(Seq(7))), (!bill, of, None));
            assert_eq!(calls, Calls::default(), "nothing is left");
        }
    }

    /// A run that was put off begins once, and never when nobody wants it any more.
    #[test]
    fn a_run_below_is_put_off_once() {
        let run = |text: &str| NewRun { key: key(text), kind: ChildKind::SimpleTask, task: ChildTask::default() };
        let mut calls = Calls::default();
        calls.put_off_run(run("recruit/1/child"));
        calls.put_off_run(run("recruit/2/child"));
        assert!(calls.waits_for_run() && calls.is_idle());
        assert_eq!(calls.cancel(&key("recruit/1/child")), None, "it was never begun");
        assert_eq!((calls.runs_put_off(), calls), (vec![run("recruit/2/child")], Calls::default()));
    }

    /// A call that was put off, and all that came while the run stood still, wait for it to go on; each once, in order.
    #[test]
    fn what_waits_for_the_run_is_used_once() {
        let mut calls = Calls::default();
        calls.put_off(call("execute/a/1"));
        calls.put_off(call("execute/b/1"));
        let asker: Key = key("agents/1.1/ask/1");
        let came = [
            Arrival::Person { task: QuestionKey::Strategy(asker.clone()), outcome: Err(Expired), update: Map::new() },
            Arrival::Fired { key: key("retry/c/1") },
            Arrival::Answer { key: key("execute/c/1"), answer: Ok(Value::Null) },
        ];
        came.iter().for_each(|incoming| calls.hold(incoming.clone()));
        assert_eq!(calls.cancel(&key("execute/a/1")), None, "it was never sent");
        assert!(calls.has_put_off() && calls.is_idle());
        assert!(calls.holds_word_for(&asker) && !calls.holds_word_for(&key("agents/1.1/ask/2")));
        assert_eq!(calls.go_on(), (vec![call("execute/b/1")], came.to_vec()));
        assert_eq!(calls.go_on(), (Vec::new(), Vec::new()));
        calls.hold(came[1].clone());
        calls.take_held();
        assert_eq!(calls, Calls::default());
    }

    #[test]
    fn what_keeps_a_run_busy() {
        let mut calls = Calls::default();
        calls.sent(Seq(1), timer(key("budget/wall")));
        assert!(calls.is_idle() && calls.only_children() && !calls.waits_for_time());
        calls.sent(Seq(9), timer(key("retry/t/1")));
        assert!(calls.is_idle() && calls.waits_for_time());
        calls.ended(Seq(9));
        calls.sent(Seq(2), UnderWay::Child { key: key("execute/t/1"), child: child() });
        assert!(!calls.is_idle() && calls.only_children());
        assert_eq!((calls.child(&key("execute/t/1")), calls.child(&key("budget/wall"))), (Some(&child()), None));
        assert_eq!((calls.has_child("w"), calls.has_child("v")), (true, false));
        assert!(calls.only_waits(|id| id == "w"), "people alone can bring on what is below");
        assert!(!calls.only_waits(|_| false), "somebody works below");
        calls.sent(Seq(3), UnderWay::Call { call: call("review/t/1"), deliveries: 0 });
        assert!(!calls.only_children() && !calls.only_waits(|_| true));
    }
}
