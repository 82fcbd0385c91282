//! How often something happened: calls, prompts and notes, counted and compared with what a scene expects.
//!
//! Invariant: a name or a key that nothing has is no "did not happen" where a near one exists: the complaint names that
//! one. What is counted here was seen in the whole life; it changes nothing.

use std::collections::BTreeSet;

use serde_json::json;

use super::expect::{CallExpect, NoteExpect};
use super::file::{Scene, words_in};
use super::judge::{Ended, TIMES, cut};
use super::matcher::{Matcher, Mismatch, shown, text};
use super::names::near;
use super::outside::{Made, Noted, Outside};
use crate::agent::AGENT_MODEL;
use crate::capability::http::HTTP;
use crate::capability::model::MODEL;
use crate::capability::process::PROCESS;
use crate::capability::scripted::SCRIPTED;
use crate::supervisor::outbox::Purpose;

/// The names that calls can be about.
pub(super) struct Names<'l> {
    scene: &'l Scene,
    outside: &'l Outside,
    /// Of tasks, agents and purposes.
    near: BTreeSet<String>,
}

impl<'l> Names<'l> {
    pub(super) fn of(scene: &'l Scene, ended: &Ended, outside: &'l Outside) -> Self {
        let planned = ended.plan["tasks"].as_object().into_iter().flatten().map(|(id, _)| id.clone());
        let calls =
            outside.calls.iter().flat_map(|made| made.asked.task().into_iter().chain(made.asked.call.agent.clone()));
        let specs = outside.runs.values().filter_map(|run| run.spec.as_ref());
        let agents = specs.flat_map(|spec| spec.agents.iter().map(|agent| agent.name.clone()));
        let purposes = Purpose::ALL.iter().map(|purpose| purpose.as_str().to_owned());
        Names { scene, outside, near: planned.chain(calls).chain(agents).chain(purposes).collect() }
    }

    /// What is wrong with a name that is nobody's: what was probably meant, or that nothing has it. A call of nobody is
    /// never made, so that an expectation of it would say nothing.
    fn slip(&self, name: &str) -> Option<String> {
        if self.near.contains(name) || self.is_spoken_of(name) {
            return None;
        }
        let known: Vec<&str> = self.near.iter().map(String::as_str).collect();
        match near(name, &known) {
            Some(meant) => Some(format!("there is no `{name}`; did you mean `{meant}`?")),
            // A workflow of a program may have activities that nothing here names.
            None if self.scene.spec.is_none() => None,
            None => Some(format!("there is no `{name}`: the scene, its spec and its calls do not speak of it")),
        }
    }

    /// Whether the scene, a spec, or a call that was made has the word, or it is an activity that is built in.
    fn is_spoken_of(&self, name: &str) -> bool {
        let built_in = [AGENT_MODEL, MODEL, HTTP, PROCESS, SCRIPTED];
        let called = |made: &Made| {
            let asked = &made.asked;
            [asked.on(), &asked.activity_type].contains(&name) || asked.tool() == Some(name)
        };
        if built_in.contains(&name) || self.scene.words.contains(name) || self.outside.calls.iter().any(called) {
            return true;
        }
        let below = self.outside.runs.values().filter_map(|run| run.spec.as_deref());
        let mut words = BTreeSet::new();
        below.chain(self.scene.spec.as_deref()).for_each(|spec| words_in(&json!(spec), &mut words));
        words.contains(name)
    }
}

impl CallExpect {
    pub(crate) fn fits(&self, made: &Made) -> bool {
        self.is_about(made)
            && self.prompt.as_ref().is_none_or(|is| is.check(Some(&made.asked.call.prompt.as_str().into()), "").is_ok())
    }

    fn is_about(&self, made: &Made) -> bool {
        let (asked, call) = (&made.asked, &made.asked.call);
        let is =
            |wanted: &Option<String>, seen: Option<&str>| wanted.as_deref().is_none_or(|wanted| seen == Some(wanted));
        let task = asked.task();
        let about = self.about.as_ref().is_none_or(|about| task.as_ref() == Some(about) || asked.is_of(about));
        let on = self.on.as_ref().is_none_or(|on| asked.is(on) || call.agent.as_ref() == Some(on));
        let said = made.said.result.as_ref().ok();
        on && about
            && self.agent.as_ref().is_none_or(|agent| asked.is_of(agent))
            && (self.tool.is_none() || is(&self.tool, asked.tool()))
            && is(&self.task, task.as_deref())
            && self.attempt.is_none_or(|attempt| attempt == u64::from(call.attempt))
            && self.round.is_none_or(|round| round == u64::from(call.round))
            && self.with.as_ref().is_none_or(|with| with.check(Some(&asked.data), "").is_ok())
            && self.input.as_ref().is_none_or(|input| input.check(Some(&asked.input), "").is_ok())
            && self.answer.as_ref().is_none_or(|is| is.check(said, "").is_ok())
    }

    pub(super) fn check(&self, outside: &Outside, names: &Names<'_>, times: Option<&Matcher>) -> Result<(), Mismatch> {
        let named = [&self.on, &self.about, &self.task, &self.agent, &self.tool].into_iter().flatten();
        if let Some(seen) = named.filter_map(|name| names.slip(name)).next() {
            return Err(Mismatch::new(self.shown(), seen));
        }
        let count = outside.calls.iter().filter(|made| self.fits(made)).count();
        let at_least_one = Matcher::AtLeast(1.0);
        let times = times.or(self.times.as_ref()).unwrap_or(&at_least_one);
        times.check(Some(&count.into()), "").map_err(|why| {
            let near: Vec<&Made> = outside.calls.iter().filter(|made| self.is_about(made)).collect();
            let seen = match (&self.prompt, near.as_slice()) {
                (Some(_), [.., last]) => format!("{count} times; the last prompt: {}", cut(&last.asked.call.prompt)),
                (_, near) => {
                    let all: Vec<String> = match near.is_empty() {
                        true => outside.calls.iter().map(|made| made.asked.shown()).collect(),
                        false => near.iter().map(|made| made.asked.shown()).collect(),
                    };
                    let head = if near.is_empty() { "calls were: " } else { "" };
                    format!("{count} times; {head}{}", cut(&all.join(", ")))
                }
            };
            Mismatch { at: TIMES.to_owned(), expected: format!("{} times {times}", self.shown()), seen, ..why }
        })
    }

    fn shown(&self) -> String {
        let part = |name: &str, value: &Option<String>| value.as_ref().map(|value| format!("{name} {value}"));
        let prompt = self.prompt.as_ref().map(|is| format!("whose prompt is {is}"));
        let attempt = self.attempt.map(|attempt| format!("attempt {attempt}"));
        let parts = [
            self.on.clone(),
            self.about.clone(),
            part("task", &self.task),
            part("agent", &self.agent),
            part("tool", &self.tool),
            attempt,
            prompt,
        ];
        format!("a call {}", parts.into_iter().flatten().collect::<Vec<_>>().join(" "))
    }
}

impl NoteExpect {
    fn fits(&self, note: &Noted) -> bool {
        let one = |(key, is): &(String, Matcher)| {
            let seen = note.data.get(key.as_str());
            // Tasks are named by a text or a number.
            is.check(seen, "").is_ok()
                || (key == "task" && is.to_string().trim_matches('"') == seen.map(text).unwrap_or_default())
        };
        note.kind == self.kind && self.data.iter().all(one)
    }

    pub(super) fn check(&self, outside: &Outside, times: Option<&Matcher>) -> Result<(), Mismatch> {
        let count = outside.notes.iter().filter(|note| self.fits(note)).count();
        let of_kind: Vec<&Noted> =
            outside.notes.iter().map(|note| &**note).filter(|note| note.kind == self.kind).collect();
        if let Some(seen) = self.slip(&of_kind) {
            return Err(Mismatch::new(self.shown(), seen));
        }
        let at_least_one = Matcher::AtLeast(1.0);
        let times = times.or(self.times.as_ref()).unwrap_or(&at_least_one);
        times.check(Some(&count.into()), "").map_err(|why| {
            let seen = match of_kind.is_empty() {
                true => format!("no note {}", self.kind),
                false => of_kind
                    .iter()
                    .rev()
                    .take(4)
                    .rev()
                    .map(|note| shown(Some(&note.data)))
                    .collect::<Vec<_>>()
                    .join("\n"),
            };
            Mismatch {
                at: TIMES.to_owned(),
                expected: format!("{} times {times}", self.shown()),
                seen: format!("{count} times; {}", cut(&seen)),
                ..why
            }
        })
    }

    /// A key that no note of this kind has, where another one was probably meant. Notes of one kind may differ in their
    /// keys, so that one which is merely missing is no slip.
    fn slip(&self, of_kind: &[&Noted]) -> Option<String> {
        let keys = of_kind.iter().filter_map(|note| note.data.as_object()).flatten().map(|(key, _)| key.as_str());
        let known: Vec<&str> = keys.collect::<BTreeSet<_>>().into_iter().collect();
        let (key, meant) = self.data.iter().find_map(|(key, _)| {
            let meant = near(key, &known).filter(|_| !known.contains(&key.as_str()))?;
            Some((key, meant))
        })?;
        let kind = &self.kind;
        Some(format!("no note {kind} has `{key}` (did you mean `{meant}`?); they have: {}", known.join(", ")))
    }

    fn shown(&self) -> String {
        let data: Vec<String> = self.data.iter().map(|(key, is)| format!("{key}: {is}")).collect();
        format!("a note {} {{ {} }}", self.kind, data.join(", "))
    }
}
