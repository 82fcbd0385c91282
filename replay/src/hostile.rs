//! Histories that were tampered with, before every reader of the crate: refused, or read without a panic.
//!
//! Invariant: what is changed is the text of a valid history, by its structure: values are dropped, doubled, swapped and
//! replaced at any place. What a reader makes of such a history is not judged; that it comes back is.

use std::panic::{AssertUnwindSafe, catch_unwind};

use bosun_engine::{EventId, ForkRequest, ForkSource, WorkflowId};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::arbitrary::{cases, histories};
use crate::corpus::{stories::STORIES, workflows::registry};
use crate::*;

/// One change of a value: at the n-th place below it, counted through the whole tree.
#[derive(Debug, Clone)]
struct Damage {
    place: usize,
    how: u8,
    number: i64,
}

fn damages() -> impl Strategy<Value = Vec<Damage>> {
    let number = prop_oneof![0_i64..20, any::<i64>(), Just(i64::MAX), Just(-1)];
    let damage = (any::<usize>(), any::<u8>(), number).prop_map(|(place, how, number)| Damage { place, how, number });
    prop::collection::vec(damage, 1..4)
}

fn count(value: &Value) -> usize {
    1 + match value {
        Value::Array(items) => items.iter().map(count).sum(),
        Value::Object(fields) => fields.values().map(count).sum::<usize>(),
        _ => 0,
    }
}

/// Goes to the place and changes what is there.
fn damage(value: &mut Value, place: &mut usize, with: &Damage) -> bool {
    if *place == 0 {
        change(value, with);
        return true;
    }
    *place -= 1;
    match value {
        Value::Array(items) => items.iter_mut().any(|item| damage(item, place, with)),
        Value::Object(fields) => fields.values_mut().any(|field| damage(field, place, with)),
        _ => false,
    }
}

fn change(value: &mut Value, with: &Damage) {
    let number = with.number.unsigned_abs() as usize;
    match value {
        Value::Array(items) if !items.is_empty() => {
            let (one, other) = (number % items.len(), (number / 7) % items.len());
            match with.how % 3 {
                0 => drop(items.remove(one)),
                1 => items.insert(other, items[one].clone()),
                _ => items.swap(one, other),
            }
        }
        Value::Object(fields) if !fields.is_empty() => {
            let key = fields.keys().nth(number % fields.len()).cloned().unwrap_or_default();
            fields.remove(&key);
        }
        Value::Number(held) => *value = json!(held.as_i64().unwrap_or(0).wrapping_add(with.number)),
        Value::String(text) if with.how.is_multiple_of(2) => text.push('7'),
        other => *other = [json!(null), json!(with.number), json!("1"), json!([]), json!({})][number % 5].clone(),
    }
}

/// Everything that reads a history.
fn read(history: &History, original: &History) {
    let code = registry();
    let _ = replay_history(&code, history, Prefixes::All);
    let timeline = Timeline::new(&code, history.clone());
    for at in 0..=history.len() as u64 + 1 {
        let _ = (timeline.at(EventId(at)), timeline.code_at(EventId(at)), timeline.diff(EventId(1), EventId(at)));
        let request = ForkRequest::new(ForkSource::History(Vec::new()), WorkflowId::of("fork")).at(EventId(at));
        let _ = plan_fork(history, &request, Some(&code)).map(drop);
    }
    let _ = explain(&code, history, &|_| None).map(|card| card.to_string());
    let _ = what_if(&code, history, &WhatIf::default()).map(|found| found.to_string());
    let _ = diff(original, history).to_string();
    let _ = to_temporal(history).to_string();
    let _ = history.redacted(Redaction::PayloadsAndTexts).to_json();
}

/// Whether the damaged text is still a history; the test fails when a reader panics.
fn reads(original: &History, damages: &[Damage]) -> Result<bool, TestCaseError> {
    let mut value: Value = serde_json::from_str(&original.to_json()).unwrap();
    for one in damages {
        let mut place = one.place % count(&value);
        damage(&mut value, &mut place, one);
    }
    let text = value.to_string();
    let read =
        catch_unwind(AssertUnwindSafe(|| match History::from_json(text.as_bytes(), &HistoryLimits::default()) {
            Ok(history) => {
                read(&history, original);
                true
            }
            Err(why) => {
                assert!(!why.to_string().is_empty());
                false
            }
        }));
    read.map_err(|_| TestCaseError::fail(format!("a reader panics over {text}")))
}

proptest! {
    #![proptest_config(cases(512))]

    /// G40: tampered histories of the corpus, whose code is there.
    #[test]
    fn tampered_histories_of_the_corpus_are_refused_or_read(story in 0..STORIES.len(), damages in damages()) {
        let story = &STORIES[story];
        reads(&History::new((story.tell)(story.name)).unwrap(), &damages)?;
    }

    /// G40: tampered arbitrary histories, whose code is not.
    #[test]
    fn tampered_arbitrary_histories_are_refused_or_read(original in histories(12), damages in damages()) {
        reads(&original, &damages)?;
    }
}

/// Some of the damage passes the checks of the reader, or nothing behind them would be tried.
#[test]
fn some_tampered_histories_are_still_histories() {
    let story = &STORIES[0];
    let original = History::new((story.tell)(story.name)).unwrap();
    let all = count(&serde_json::from_str(&original.to_json()).unwrap());
    let still = |place| reads(&original, &[Damage { place, how: 0, number: 1 }]).unwrap();
    let passed = (0..all).filter(|place| still(*place)).count();
    assert!(passed > 0 && passed < all, "{passed} of {all}");
}
