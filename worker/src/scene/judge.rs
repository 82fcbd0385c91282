//! Whether a life was as the scene expects.
//!
//! Invariant: every complaint names the expectation by its path and shows what was seen beside it; a name that nothing has
//! is never passed over as "did not happen" where a near one exists. It looks at a life that is over, and changes nothing.

use std::time::Duration;

use bosun_engine::{EventKind, FailureKind};
use serde_json::{Value, json};

use super::counted::Names;
use super::expect::{Expect, ReportPart};
use super::file::Scene;
use super::life::Life;
use super::matcher::{Matcher, Mismatch, check_at, shown, text};
use super::names::or_near;
use super::never::Never;
use super::outside::{Complaint, CueState, Made, Noted, Outside};
use crate::supervisor::reading::text_of;
use crate::supervisor::run::SUPERVISOR;

/// How a life ended.
#[derive(Debug, Clone)]
pub(crate) struct Ended {
    pub(crate) outcome: String,
    pub(crate) report: Value,
    pub(crate) plan: Value,
    /// What must be the same whichever way the run went.
    pub(crate) digest: Value,
    pub(crate) took: Duration,
    /// Whether the run has ended.
    over: bool,
    pub(crate) asked: Vec<Result<Value, String>>,
}

/// Short names of queries.
pub(crate) fn query_name(name: &str) -> String {
    let known = match name {
        "plan" => "get_plan",
        "board" => "status_board",
        "approvals" => "pending_approvals",
        "questions" | "interrupts" => "pending_interrupts",
        "review" => "plan_review",
        "control" => "control_state_v1",
        other => other,
    };
    known.to_owned()
}

impl Ended {
    pub(crate) fn of(life: &mut Life<'_>) -> Ended {
        let closed = life.outside.root().and_then(|root| root.closed.clone()).map(|(_, kind)| kind);
        let supervisor = life.scene.workflow_type.as_str() == SUPERVISOR;
        let (status, error, mut report) = closed.as_deref().map_or(("open", None, Value::Null), end_of);
        let mut plan = Value::Null;
        let mut view = report.clone();
        if supervisor {
            plan = life.query("get_plan", Value::Null).unwrap_or_default();
            view = life.query("digest", Value::Null).unwrap_or_default();
            if report.is_null() {
                report = life.query("report", Value::Null).unwrap_or_default();
            }
        }
        let outcome = match status {
            "completed" if report["status"] == "partial" => "partial",
            "open" if report["status"] == "paused" => "paused",
            "open" => "waiting",
            other => other,
        };
        if let (Value::Object(map), Some(error)) = (&mut report, &error) {
            map.entry("error").or_insert_with(|| error.as_str().into());
        }
        let digest = json!({ "outcome": outcome, "error": error, "view": view });
        let asked = life.asked.take().unwrap_or_default();
        let over = life.outside.is_over();
        Ended { outcome: outcome.to_owned(), report, plan, digest, took: life.took(), over, asked }
    }

    /// Why it ended so: its error, what is not done and what the first cause of that was, or, where there is neither, what
    /// people read.
    fn reason(&self) -> String {
        let found = ["error", "summary"].iter().map(|key| text_of(&self.report[*key])).find(|text| !text.is_empty());
        let Some(found) = found else { return self.text() };
        let rows = self.report["tasks"].as_array().into_iter().flatten().map(|row| &row["error"]);
        let causes = self.report["errors"].as_array().into_iter().flatten().chain(rows);
        match causes.map(text_of).find(|cause| !cause.is_empty()) {
            Some(cause) if !found.contains(&cause) => format!("{found} ({cause})"),
            _ => found,
        }
    }

    /// What people read as the result; where there is none, why.
    fn text(&self) -> String {
        let result =
            ["final_result", "result"].iter().map(|key| text_of(&self.report[*key])).find(|text| !text.is_empty());
        let whole = || if self.report.is_object() { String::new() } else { text_of(&self.report) };
        result.unwrap_or_else(|| match text_of(&self.report["error"]) {
            error if error.is_empty() => whole(),
            error => error,
        })
    }

    fn key(&self, key: &str) -> Option<Value> {
        match key {
            "text" => Some(self.text().into()),
            "result" if self.report.get("final_result").is_some() => Some(self.report["final_result"].clone()),
            "result" if !self.report.is_object() || self.report.get("result").is_none() => Some(self.report.clone()),
            other => self.report.get(other).cloned(),
        }
    }

    /// All that is known of a task: its place in the plan and its line of the report.
    fn task(&self, id: &str) -> Result<Value, Mismatch> {
        let rows = self.report["tasks"].as_array();
        let name = |row: &Value| text(row.get("task_id").or_else(|| row.get("id")).unwrap_or(&Value::Null));
        let row = rows.into_iter().flatten().find(|row| name(row) == id);
        let planned = self.plan["tasks"].get(id);
        if row.is_none() && planned.is_none() {
            let known: Vec<String> = rows.into_iter().flatten().map(name).collect();
            let known: Vec<&str> = known.iter().map(String::as_str).collect();
            let seen = format!("no task `{id}`{}; there are: {}", or_near(id, &known), known.join(", "));
            return Err(Mismatch::new(format!("a task `{id}`"), seen));
        }
        let mut whole = planned.cloned().unwrap_or_else(|| json!({}));
        if let Some(log) = whole.get("attempts").filter(|log| log.is_array()).cloned() {
            whole["attempt_log"] = log;
        }
        for (key, value) in row.and_then(Value::as_object).into_iter().flatten() {
            whole[key] = value.clone();
        }
        Ok(whole)
    }
}

/// Status, error and report of a run that is closed.
fn end_of(kind: &EventKind) -> (&'static str, Option<String>, Value) {
    match kind {
        EventKind::WorkflowExecutionCompleted { result, .. } => ("completed", None, result.to_json()),
        EventKind::WorkflowExecutionFailed { failure, .. } => {
            let details = match &failure.kind {
                FailureKind::Application { details: Some(details), .. } => details.to_json(),
                _ => json!({}),
            };
            let (why, root) = (&failure.message, &failure.root().message);
            let why = if why.contains(root.as_str()) { why.clone() } else { format!("{why}: {root}") };
            ("failed", Some(why), details)
        }
        EventKind::WorkflowExecutionCanceled { details, .. } => {
            ("canceled", None, details.as_ref().map_or_else(|| json!({}), |details| details.to_json()))
        }
        EventKind::WorkflowExecutionTerminated { reason, .. } => ("terminated", Some(reason.clone()), json!({})),
        EventKind::WorkflowExecutionTimedOut { .. } => ("timed_out", None, json!({})),
        _ => ("completed", None, json!({})),
    }
}

/// A status, with the error of the task.
fn with_reason(seen: &str, task: &Value) -> String {
    let error = text_of(&task["error"]);
    if error.is_empty() { seen.to_owned() } else { format!("{seen} ({})", cut(&error)) }
}

/// All that is not as expected; times are judged in the straight life only.
pub(crate) fn judge(scene: &Scene, ended: &Ended, outside: &Outside, straight: bool) -> Vec<Complaint> {
    let expect = &scene.expect;
    let mut judged = Judged(outside.complaints.clone());
    judged.end(expect, ended);
    let names = Names::of(scene, ended, outside);
    for call in expect.calls.iter().chain(&expect.prompts) {
        judged.check(&call.path, call.check(outside, &names, None));
    }
    expect.notes.iter().for_each(|note| judged.check(&note.path, note.check(outside, None)));
    for never in &expect.never {
        let none = Matcher::Value(0.into());
        match never {
            Never::Call(call) => judged.check(&call.path, call.check(outside, &names, Some(&none))),
            Never::Note(note) => judged.check(&note.path, note.check(outside, Some(&none))),
            Never::Event(path, name) => judged.check(path, no_event(outside, name)),
        }
    }
    if straight {
        judged.times(expect, ended);
    }
    judged.0
}

/// What was found so far.
struct Judged(Vec<Complaint>);

impl Judged {
    fn check(&mut self, path: &str, result: Result<(), Mismatch>) {
        if let Err(why) = result {
            let place = if why.at.is_empty() { path.to_owned() } else { format!("{path}.{}", why.at) };
            let update = why.value.map(|value| (place, value));
            let (at, seen) = (path.to_owned(), with_place(&why.at, &why.seen));
            self.0.push(Complaint { at, expected: why.expected, seen, update });
        }
    }

    /// Outcome and report.
    fn end(&mut self, expect: &Expect, ended: &Ended) {
        if let Some(outcome) = &expect.outcome {
            let checked = outcome.check(Some(&ended.outcome.as_str().into()), "").map_err(|mut why| {
                let reason = ended.reason();
                why.seen += &(if reason.is_empty() { String::new() } else { format!(": {}", cut(&reason)) });
                why
            });
            self.check("expect.outcome", checked);
        }
        for (path, part, is) in &expect.report {
            let checked = match (part, is) {
                (ReportPart::Key(key), is) => is.check(ended.key(key).as_ref(), ""),
                (ReportPart::Task(task), Matcher::Keys(_)) => {
                    ended.task(task).and_then(|whole| is.check(Some(&whole), ""))
                }
                (ReportPart::Task(task), is) if is.wants_nothing() => match ended.task(task) {
                    Ok(whole) => Err(Mismatch::new(format!("no task `{task}`"), shown(Some(&whole["status"])))),
                    Err(_) => Ok(()),
                },
                (ReportPart::Task(task), status) => ended.task(task).and_then(|whole| {
                    let checked = status.check(Some(&whole["status"]), "");
                    checked.map_err(|why| Mismatch { seen: with_reason(&why.seen, &whole), ..why })
                }),
            };
            self.check(path, checked);
        }
    }

    fn times(&mut self, expect: &Expect, ended: &Ended) {
        if let Some(takes) = &expect.takes {
            let seen = ended.took.as_secs_f64();
            let checked = takes.check(Some(&seen.into()), "");
            let text = seconds(ended.took);
            let wanted = match takes {
                Matcher::All(all) => match all.as_slice() {
                    [Matcher::AtLeast(least), Matcher::AtMost(most)] if least == most => format!("{least}s"),
                    all => all.iter().map(|one| format!("{one}s")).collect::<Vec<_>>().join(" and "),
                },
                one => format!("{one}s"),
            };
            let told = |why| Mismatch {
                expected: wanted.clone(),
                seen: text.clone(),
                value: Some(text.as_str().into()),
                ..why
            };
            self.check("expect.takes", checked.map_err(told));
        }
        for ((when, query), seen) in expect.queries.iter().zip(&ended.asked) {
            let late = when.is_some_and(|when| ended.over && when > ended.took);
            let told = |why: Mismatch| match late {
                true => Mismatch { seen: format!("{} (the run was over at {})", why.seen, seconds(ended.took)), ..why },
                false => why,
            };
            let checked = match seen {
                Ok(seen) => check_at(&query.is, seen, &query.at).map_err(told),
                Err(why) => {
                    let seen = format!("the query {} is refused: {why}", query.query);
                    Err(Mismatch::new(query.is.to_string(), seen))
                }
            };
            self.check(&query.path, checked);
            // What is expected of an answer stands under its word, not under the place in the answer.
            if let Some(Complaint { update: Some((place, _)), .. }) = self.0.last_mut()
                && query.at != "tasks"
                && place.starts_with(&query.path)
            {
                *place = format!("{}.equals", query.path);
            }
        }
    }
}

/// Acts and faults that did not happen.
pub(crate) fn unmet(life: &Life<'_>) -> Vec<Complaint> {
    let waits = life.scene.people.iter().zip(&life.outside.cues).filter(|(_, state)| **state != CueState::Done);
    let complaint = |cue: &super::people::TimedAct| {
        let why = life.outside.not_yet.get(&cue.path).map(|why| format!("; when it was looked at last: {why}"));
        let (took, why) = (seconds(life.took()), why.unwrap_or_default());
        let seen = format!("it never came to that; the run was over, or stood still, at {took}{why}");
        Complaint::new(cue.path.clone(), format!("{} happens", cue.shown()), seen)
    };
    let late = life.scene.kills.iter().enumerate().skip(life.outside.kills).map(|(place, at)| {
        let seen = format!("the run was over at {}", seconds(life.took()));
        Complaint::new(format!("faults[{place}]"), format!("the worker is killed at {}", seconds(*at)), seen)
    });
    waits.map(|(cue, _)| complaint(cue)).chain(late).chain(unheard(life)).collect()
}

/// Signals whose input the run could not read, where nobody expects such a note: a misspelt field is a fault of the scene.
/// What is refused for another reason, because it comes too late or to the wrong kind of run, may be what the scene is about;
/// so may a team's message that is dropped, which the run counts.
fn unheard(life: &Life<'_>) -> Vec<Complaint> {
    const SAYS: [&str; 4] = ["missing field", "unknown field", "invalid type", "expected a "];
    let expected = |kind: &str| life.scene.expect.notes.iter().any(|note| note.kind == kind);
    let complaint = |note: &std::sync::Arc<Noted>| {
        let signal = match note.kind.as_str() {
            "ActionRefused" => note.data["signal"].as_str()?,
            "ApprovalIgnored" => "approval_response_v1",
            _ => return None,
        };
        let sent = |cue: &&super::people::TimedAct| cue.act == "signal" && cue.with["name"] == signal;
        let cue = life.scene.people.iter().find(sent).filter(|_| !expected(&note.kind))?;
        let why = text_of(&note.data["why"]);
        let is_unread = SAYS.iter().any(|says| why.contains(says));
        is_unread
            .then(|| Complaint::new(cue.path.clone(), format!("{} is heard", cue.shown()), format!("refused: {why}")))
    };
    life.outside.notes.iter().filter_map(complaint).collect()
}

/// What is said of the spec beside running it, where something is expected of that.
pub(crate) fn warned(scene: &Scene) -> Option<Complaint> {
    let why = scene.expect.warnings.as_ref()?.check(Some(&json!(scene.warnings)), "").err()?;
    Some(Complaint::new("expect.warnings", why.expected, with_place(&why.at, &why.seen)))
}

/// Rules of the world that answered nothing.
pub(crate) fn unused(scene: &Scene, outside: &Outside) -> Vec<String> {
    let first = |made: &Made| scene.world.iter().position(|rule| rule.fits(&made.asked));
    let used: Vec<usize> = outside.calls.iter().filter_map(first).collect();
    (0..scene.world.len()).filter(|place| !used.contains(place)).map(|place| format!("world[{place}]")).collect()
}

pub(crate) fn seconds(time: Duration) -> String {
    format!("{}s", time.as_secs_f64())
}

/// The key of an expectation about how often something happens.
pub(super) const TIMES: &str = "times";

fn with_place(at: &str, seen: &str) -> String {
    if at.is_empty() || at == TIMES { seen.to_owned() } else { format!("{at}: {seen}") }
}

pub(crate) fn cut(text: &str) -> String {
    let line: String = text.chars().take(400).collect();
    if line.len() < text.len() { format!("{line}…") } else { line }
}

fn no_event(outside: &Outside, name: &str) -> Result<(), Mismatch> {
    let all = outside.runs.values().flat_map(|run| &run.turns).flat_map(|turn| &turn.events);
    let count = all.filter(|kind| kind.name() == name).count();
    let seen = format!("{count} times");
    if count == 0 { Ok(()) } else { Err(Mismatch::new(format!("never {name}"), seen)) }
}
