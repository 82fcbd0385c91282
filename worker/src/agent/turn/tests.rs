//! The table of a call, and what holds for the calls of an answer whatever happens to them.

use std::collections::BTreeMap;

use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::transitions::{Event, compare, table};

#[derive(Debug, Clone, PartialEq)]
struct Asked {
    name: &'static str,
    arguments: Value,
}

impl TurnCall for Asked {
    fn name(&self) -> &str {
        self.name
    }
    fn arguments(&self) -> &Value {
        &self.arguments
    }
}

fn asked(name: &'static str, arguments: Value) -> Asked {
    Asked { name, arguments }
}

type Calls = ToolCalls<Asked, usize, usize, String>;

fn judged(calls: Vec<Asked>, rules: &WatchRules) -> Calls {
    ToolCalls::judged(calls, &mut CallWatch::default(), rules, |_| false).0
}

#[test]
fn of_a_call() {
    let event = |name, event: CallEvent<usize, usize, String>| -> Event<'_, Calls> {
        let happens = move |calls: &mut Calls| {
            calls.hear(0, event.clone());
        };
        (name, Box::new(happens))
    };
    let events = [
        event("a person is asked", CallEvent::Asked(1)),
        event("a person approves", CallEvent::Approved),
        event("it is made", CallEvent::Began(1)),
        event("it is answered", CallEvent::Answered("seen".into())),
        event("it is answered again", CallEvent::Answered("no".into())),
    ];
    let shown = |calls: &Calls| match &calls.get(0).unwrap().1 {
        CallState::Done(answer) => format!("done: {answer}"),
        CallState::Refused(_) => "refused".to_owned(),
        CallState::Queued => "queued".to_owned(),
        CallState::Asking(_) => "a person is asked".to_owned(),
        CallState::Approved => "approved".to_owned(),
        CallState::Running(_) => "running".to_owned(),
    };
    let one = |rules| judged(vec![asked("look", json!({}))], &rules);
    let refused = WatchRules { per_turn: Some(0), ..WatchRules::default() };
    let tables = [one(WatchRules::default()), one(refused)].map(|calls| table(calls, &events, shown));
    compare("src/agent/turn/tests/call.txt", &tables.join("\n"));
}

/// A host whose tools are `free`, `gated` (people are asked) and `instant` (answered at once).
struct Played {
    calls: Option<Calls>,
    fan_out: FanOut,
    made: BTreeMap<usize, u32>,
    /// The numbers of the calls in the order in which they were made.
    order: Vec<usize>,
    answers: BTreeMap<usize, u32>,
    /// Nothing is paid for any more.
    spent: bool,
}

impl TurnHost for Played {
    type Seat = ();
    type Out = ();
    type Call = Asked;
    type Question = usize;
    type Work = usize;
    type Answer = String;
    type Tool = String;
    type Plan = String;
    type Short = std::convert::Infallible;

    fn calls(&mut self, (): ()) -> Option<&mut Calls> {
        self.calls.as_mut()
    }
    fn fan_out(&self, (): ()) -> FanOut {
        self.fan_out
    }
    fn tool(&self, (): (), name: &str) -> Option<String> {
        ["free", "gated", "instant"].contains(&name).then(|| name.to_owned())
    }
    fn schema(&self, _: &String) -> Option<Value> {
        Some(json!({ "properties": { "at": { "type": "integer" } } }))
    }
    fn looks_at(&mut self, (): (), _: &Asked, (): &mut ()) {}
    fn pay(&mut self, (): (), _: &Asked, _: bool, (): &mut ()) -> Option<String> {
        self.spent.then(|| "unpaid".to_owned())
    }
    fn plan(
        &mut self,
        (): (),
        _: &Asked,
        tool: String,
        _: FittingArguments<'_>,
        (): &mut (),
    ) -> TurnPlan<String, String> {
        TurnPlan::Make(tool)
    }
    fn question(&mut self, (): (), at: usize, _: &Asked, tool: &String) -> Option<usize> {
        (tool == "gated").then_some(at)
    }
    fn begin(
        &mut self,
        (): (),
        at: usize,
        _: &Asked,
        tool: String,
        (): &mut (),
    ) -> Result<Option<String>, Self::Short> {
        *self.made.entry(at).or_default() += 1;
        self.order.push(at);
        if tool == "instant" {
            return Ok(Some("at once".to_owned()));
        }
        self.calls.as_mut().unwrap().hear(at, CallEvent::Began(at));
        Ok(None)
    }
    fn refused(&mut self, (): (), _: &Asked, why: CallRefusal) -> String {
        why.to_string()
    }
    fn answer(&mut self, (): (), at: usize, answer: String, out: &mut ()) {
        if self.calls.as_mut().unwrap().hear(at, CallEvent::Answered(answer)) {
            *self.answers.entry(at).or_default() += 1;
        }
        // As a host that is called from below does.
        let Ok(_) = carry_on(self, (), out);
    }
}

impl Played {
    fn numbers(&self, of: impl Fn(&CallState<usize, usize, String>) -> bool) -> Vec<usize> {
        let calls = self.calls.as_ref().unwrap().iter().enumerate();
        calls.filter(|(_, (_, state))| of(state)).map(|(at, _)| at).collect()
    }

    /// One thing that may happen to the `n`th of the calls that it can happen to.
    fn happens(&mut self, what: u8, n: usize) {
        let some = |list: Vec<usize>| list.get(n % list.len().max(1)).copied();
        let asking = some(self.numbers(|state| matches!(state, CallState::Asking(_))));
        let running = some(self.numbers(|state| matches!(state, CallState::Running(_))));
        match (what, asking, running) {
            (0, Some(at), _) => {
                self.calls.as_mut().unwrap().hear(at, CallEvent::Approved);
            }
            (1, Some(at), _) => self.answer((), at, "a person said no".to_owned(), &mut ()),
            (2, _, Some(at)) => self.answer((), at, "seen".to_owned(), &mut ()),
            // What nobody waits for changes nothing.
            (3, ..) => self.answer_again(n),
            (4, ..) => self.spent = n.is_multiple_of(4),
            _ => {}
        }
        let Ok(_) = carry_on(self, (), &mut ());
    }

    fn answer_again(&mut self, n: usize) {
        let done = self.numbers(|state| matches!(state, CallState::Done(_)));
        if let Some(at) = done.get(n % done.len().max(1)) {
            assert!(!self.calls.as_mut().unwrap().hear(*at, CallEvent::Answered("again".to_owned())));
        }
    }
}

fn any_call() -> impl Strategy<Value = Asked> {
    let name = prop::sample::select(vec!["free", "free", "gated", "instant", "nobody"]);
    let arguments = prop::sample::select(vec![json!({ "at": 1 }), json!({ "at": 2 }), json!({ "at": "x" }), json!([])]);
    (name, arguments).prop_map(|(name, arguments)| asked(name, arguments))
}

proptest! {
    /// Every call is made at most once and answered exactly once, no more are under way than may be, and the answers come in the
    /// order of the calls, whatever happens in between.
    #[test]
    fn every_call_is_answered_once_and_made_at_most_once(
        calls in prop::collection::vec(any_call(), 1..70),
        most in 1..4_usize,
        in_order in any::<bool>(),
        repetitions in prop::option::of(2..4_u32),
        total in prop::option::of(0..8_u32),
        events in prop::collection::vec((0..5_u8, 0..8_usize), 0..60),
    ) {
        let (fan_out, count) = (FanOut { most, in_order }, calls.len());
        let rules = WatchRules { rounds: 3, repetitions, total, most: Some(CALLS_MAX), ..WatchRules::default() };
        let names: Vec<Asked> = calls.clone();
        let mut played = Played {
            calls: Some(judged(calls, &rules)), fan_out, made: BTreeMap::new(), order: Vec::new(), answers: BTreeMap::new(), spent: false,
        };
        let Ok(_) = carry_on(&mut played, (), &mut ());
        let ends = std::iter::repeat_n([(2, 0), (1, 0)], count).flatten();
        for (what, n) in events.into_iter().chain(ends) {
            played.happens(what, n);
            prop_assert_eq!(played.calls.as_ref().unwrap().check(fan_out), Ok(()));
        }
        prop_assert!(played.calls.as_ref().unwrap().is_done());
        prop_assert!(played.made.values().all(|times| *times == 1), "{:?}", played.made);
        prop_assert_eq!(played.answers.len(), count);
        prop_assert!(played.answers.values().all(|times| *times == 1), "{:?}", played.answers);
        prop_assert!(total.is_none_or(|total| played.made.len() <= total as usize), "{:?}", played.made);
        for at in played.made.keys() {
            prop_assert!(names[*at].name != "nobody" && names[*at].arguments["at"].is_number(), "{:?}", names[*at]);
            prop_assert!(*at < CALLS_MAX);
        }
        if in_order && most == 1 {
            prop_assert!(played.order.is_sorted(), "{:?}", played.order);
        }
        let told: Vec<Asked> = played.calls.take().unwrap().into_answers().map(|(call, _)| call).collect();
        prop_assert_eq!(told, names);
    }
}
