//! What `bosun test` prints: a line for each scene, and for one that failed what was expected beside what was seen.
//!
//! Invariant: each result is told once, in the order in which it is given, and what is one document is whole at the end; a failure names its file, its way and its expectation, and the
//! command that shows that very life. It plays nothing.

use std::path::{Component, Path, PathBuf};
use std::time::Duration;

use serde_json::{Value, json};

use super::Tested;
use crate::cli::list::file_word;
use crate::cli::output::{Format, Screen, TextStyle};
use crate::cli::replay::junit::escaped;
use crate::scene::{SceneFailure, SceneResult};

/// Rules that answered nothing, often because they ask for what no call has.
fn unused(played: &SceneResult) -> String {
    match played.unused.is_empty() {
        true => String::new(),
        false => format!("  never used: {}", played.unused.join(", ")),
    }
}

/// What is told of all scenes, one after the other.
pub(super) struct ScenesTold {
    /// Where histories of failed scenes are kept.
    keep: PathBuf,
    rows: Vec<Value>,
}

impl ScenesTold {
    pub(super) fn into(keep: PathBuf) -> ScenesTold {
        ScenesTold { keep, rows: Vec::new() }
    }

    /// What became of the next scene.
    pub(super) fn one(&mut self, screen: &mut Screen, one: &Tested) {
        if one.updated > 0 {
            screen.note(&format!("{}: {} expectations are what was seen now", one.file, one.updated));
        }
        screen.line(head(screen, one));
        let mut kept = None;
        match &one.result {
            Ok((_, played)) => {
                for (place, failure) in played.failures.iter().enumerate() {
                    let before = place.checked_sub(1).and_then(|before| played.failures.get(before));
                    let more = played.failures.get(place + 1).is_some_and(|next| next.way == failure.way);
                    fail(screen, one, failure, before.is_none_or(|before| before.way != failure.way), !more);
                }
                if let Some(failure) = played.failures.iter().find(|failure| failure.history.is_some()) {
                    kept = keep_history(screen, &self.keep, one, failure);
                }
            }
            Err(why) => screen.block(&format!("      {}", why.told().replace('\n', "\n      "))),
        }
        let row = one.json(kept.as_deref());
        screen.row("test.scene", row.clone());
        self.rows.push(row);
    }

    /// All have been told.
    pub(super) fn end(self, screen: &mut Screen, tested: &[Tested], took: Duration) {
        screen.document(Format::Junit, &junit(tested, took));
        let count = |good: fn(&Tested) -> bool| tested.iter().filter(|one| good(one)).count();
        let passed = count(Tested::passed);
        let bad = count(|one| one.result.is_err());
        let failed = tested.len() - passed - bad;
        // Rows are told already.
        if screen.format == Format::Json {
            screen.object("test", json!({ "scenes": self.rows, "passed": passed, "failed": failed, "bad": bad }));
        }
        let unread = if bad > 0 { format!(", {bad} cannot be read") } else { String::new() };
        screen.line(String::new());
        let text =
            format!("{} scenes: {passed} passed, {failed} failed{unread}  ({:.1}s)", tested.len(), took.as_secs_f64());
        let paint = if passed == tested.len() { TextStyle::Green } else { TextStyle::Red };
        screen.line(screen.paint(paint, &text));
    }
}

fn head(screen: &Screen, one: &Tested) -> String {
    match &one.result {
        Ok((_, played)) if played.failures.is_empty() => {
            let ways = screen.paint(TextStyle::Dim, &format!("{}{}", ways(played), unused(played)));
            format!("{}  {}  {ways}", screen.paint(TextStyle::Green, "ok  "), one.sentence)
        }
        Ok((_, played)) => {
            let unused = screen.paint(TextStyle::Dim, &unused(played));
            format!("{}  {}{unused}", screen.paint(TextStyle::Red, "FAIL"), one.sentence)
        }
        Err(_) => format!("{}  {}", screen.paint(TextStyle::Red, "BAD "), one.file),
    }
}

/// `38 events, 38 crashes, 6 orders, 12 ms`.
fn ways(played: &SceneResult) -> String {
    let orders = match (played.orders, played.all_orders) {
        (0 | 1, _) => String::new(),
        (orders, true) => format!(", {orders} orders"),
        (orders, false) => format!(", {orders} sampled orders"),
    };
    let crashes = match (played.crashes, played.all_crashes) {
        (0, _) | (_, true) => format!("{} crashes", played.crashes),
        (crashes, false) => format!("{crashes} sampled crashes"),
    };
    format!("({} events, {crashes}{orders}, {} ms)", played.events, played.took.as_millis())
}

/// What was expected and seen; the way stands above the first of its failures, the events below the last.
fn fail(screen: &mut Screen, one: &Tested, failure: &SceneFailure, first: bool, last: bool) {
    let field = |screen: &mut Screen, name: &str, text: &str| {
        let mut lines = text.lines();
        let first = lines.next().unwrap_or_default();
        screen.line(format!("      {} {first}", screen.paint(TextStyle::Dim, &format!("{name:<9}"))));
        lines.for_each(|line| screen.line(format!("                {line}")));
    };
    if first {
        field(screen, "file", &one.file);
        field(screen, "way", &failure.way.to_string());
    }
    field(screen, "at", &failure.at);
    field(screen, "expected", &failure.expected);
    field(screen, "seen", &failure.seen);
    if last && !failure.last.is_empty() {
        field(screen, "last", &failure.last.join("\n"));
    }
}

/// Writes the history of a failed life, and says how to look at it.
fn keep_history(screen: &mut Screen, keep: &Path, one: &Tested, failure: &SceneFailure) -> Option<String> {
    // Scenes of one name lie in several folders.
    let whole = Path::new(&one.file).with_extension("");
    let parts = whole.components().filter_map(|part| match part {
        Component::Normal(part) => Some(part.to_string_lossy().into_owned()),
        _ => None,
    });
    let name = parts.collect::<Vec<_>>().join("-");
    let path = keep.join(format!("{name}.{}.history.json", failure.way.name()));
    let history = failure.history.as_ref()?;
    let written = std::fs::create_dir_all(keep).and_then(|()| std::fs::write(&path, history));
    if let Err(why) = written {
        screen.note(&format!("the history cannot be written to {}: {why}", path.display()));
        return None;
    }
    let shown = path.display().to_string();
    let line = format!("      {} bosun replay debug {}", screen.paint(TextStyle::Dim, "look     "), file_word(&shown));
    screen.line(line);
    Some(shown)
}

impl Tested {
    fn json(&self, history: Option<&str>) -> Value {
        let mut row = json!({ "file": self.file, "scene": self.sentence, "rows": self.rows });
        match &self.result {
            Err(why) => {
                row["verdict"] = "bad".into();
                let (line, column) = why.place.map(|place| (place.line, place.column)).unzip();
                row["error"] =
                    json!({ "at": why.why.path, "problem": why.why.problem, "line": line, "column": column });
            }
            Ok((_, played)) => {
                row["verdict"] = if played.failures.is_empty() { "passed" } else { "failed" }.into();
                row["events"] = played.events.into();
                row["crashes"] = played.crashes.into();
                row["orders"] = played.orders.into();
                row["all_orders"] = played.all_orders.into();
                row["unused"] = json!(played.unused);
                row["took_ms"] = u64::try_from(played.took.as_millis()).unwrap_or(u64::MAX).into();
                let failure = |failure: &SceneFailure| {
                    json!({ "way": failure.way.name(), "which": failure.way.to_string(), "at": failure.at,
                        "expected": failure.expected, "seen": failure.seen, "last": failure.last })
                };
                row["failures"] = played.failures.iter().map(failure).collect();
            }
        }
        if let Some(history) = history {
            row["history"] = history.into();
        }
        row
    }
}

fn junit(tested: &[Tested], took: Duration) -> String {
    let failed = tested.iter().filter(|one| one.failed()).count();
    let errors = tested.iter().filter(|one| one.result.is_err()).count();
    let counts =
        format!(r#"tests="{}" failures="{failed}" errors="{errors}" time="{:.3}""#, tested.len(), took.as_secs_f64());
    let mut xml = format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites {counts}>\n  <testsuite name=\"bosun test\" {counts}>\n"
    );
    for one in tested {
        let time = one.played().map_or(0.0, |played| played.took.as_secs_f64());
        let name = if one.sentence.is_empty() { &one.file } else { &one.sentence };
        xml += &format!(
            "    <testcase classname=\"{}\" name=\"{}\" time=\"{time:.3}\"",
            escaped(&one.file),
            escaped(name)
        );
        let element = |kind: &str, message: &str, text: &str| {
            format!(">\n      <{kind} message=\"{}\">{}</{kind}>\n    </testcase>\n", escaped(message), escaped(text))
        };
        xml += &match &one.result {
            Err(why) => element("error", &why.why.path, &why.to_string()),
            Ok((_, played)) => match played.failures.first() {
                None => "/>\n".to_owned(),
                Some(first) => {
                    let line = |failure: &SceneFailure| {
                        format!(
                            "{}: {}\nexpected  {}\nseen      {}",
                            failure.way, failure.at, failure.expected, failure.seen
                        )
                    };
                    let all: Vec<String> = played.failures.iter().map(line).collect();
                    element("failure", &format!("{}: {}", first.way, first.at), &all.join("\n\n"))
                }
            },
        };
    }
    xml + "  </testsuite>\n</testsuites>\n"
}
