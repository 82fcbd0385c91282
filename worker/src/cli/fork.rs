//! `fork ID|FILE`: a new run that begins with the history of another one and goes another way.
//!
//! Invariant: `--dry-run` writes nothing and says the same as the fork itself would; code that does not fit the copied
//! part is refused before anything is written. What a fork means is the engine's affair; this file reads and prints.

#[cfg(test)]
mod tests;

use bosun_engine::*;
use bosun_replay::{History, Redaction};
use clap::Args;
use serde_json::{Value, json};

use super::args::ExactRun;
use super::context::Context;
use super::error::{CliError, printable};
use super::exit::Exit;
use super::explain::Code;
use super::input::{parse, payload};
use super::list::shell_word;
use super::output::Screen;
use super::resolve::resolve;
use super::source::{Source, is_file};
use super::start::fresh_id;
use super::time_format::short;

#[derive(Debug, Args)]
pub struct ForkArgs {
    /// A run (as for `show`), or a history file (a path, or a name that ends in .json).
    #[arg(value_name = "ID|FILE")]
    pub source: String,
    /// The last event to keep; moved to the end of the turn before if it lies inside one [default: as much as the
    /// changes allow].
    #[arg(long, value_name = "N")]
    pub at: Option<u64>,
    /// The workflow id of the new run [default: SOURCE-fork-xxxxxxxx].
    #[arg(long = "id", value_name = "NEW")]
    pub new_id: Option<String>,
    /// Another result of an activity or child workflow, or another value of a side effect. WHICH is a type or id
    /// (NAME#2 for the second), an event (15 or event:15), a command (seq:3), or side-effect#1.
    #[arg(long, value_name = "WHICH=JSON")]
    pub set_result: Vec<String>,
    /// A failure instead of the result.
    #[arg(long, value_name = "WHICH=MESSAGE")]
    pub set_failure: Vec<String>,
    /// The type of the failures given with --set-failure.
    #[arg(long, value_name = "TYPE", default_value = "SetByFork")]
    pub failure_type: String,
    /// Another input of a signal; NAME#2 for the second of the name.
    #[arg(long, value_name = "NAME=JSON")]
    pub set_signal: Vec<String>,
    /// Another input of the run, which then begins anew: JSON, `@file`, or `-`.
    #[arg(long, value_name = "JSON", allow_hyphen_values = true)]
    pub set_input: Option<String>,
    /// Only say what would happen.
    #[arg(long)]
    pub dry_run: bool,
    /// Makes the fork idempotent.
    #[arg(long, value_name = "ID")]
    pub request_id: Option<String>,
    /// Recorded in the history of the new run.
    #[arg(long, value_name = "TEXT")]
    pub reason: Option<String>,
}

impl ForkArgs {
    /// A file can be forked into a directory that does not exist yet.
    pub(super) fn makes_a_store(&self) -> bool {
        is_file(&self.source) && !self.dry_run
    }

    /// What goes another way, in the order in which it is said.
    pub(super) fn changes(&self) -> Result<Vec<ForkChange>, CliError> {
        let mut changes = Vec::new();
        for text in &self.set_result {
            let (which, value) = pair("--set-result", text)?;
            changes.push(ForkChange::Outcome { of: subject(which)?, outcome: Ok(value_of(value)?) });
        }
        for text in &self.set_failure {
            let (which, message) = pair("--set-failure", text)?;
            let failure = Failure::application(&self.failure_type, message);
            changes.push(ForkChange::Outcome { of: subject(which)?, outcome: Err(failure) });
        }
        for text in &self.set_signal {
            let (which, value) = pair("--set-signal", text)?;
            let (name, nth) = numbered(which)?;
            changes.push(ForkChange::Signal { name: SignalName::new(name)?, nth, input: value_of(value)? });
        }
        if let Some(input) = &self.set_input {
            changes.push(ForkChange::Input(payload(Some(input), &[])?));
        }
        Ok(changes)
    }

    async fn request(&self, cx: &Context) -> Result<ForkRequest, CliError> {
        let changes = self.changes()?;
        let (source, name) = if is_file(&self.source) {
            let history = history_of(&self.source)?;
            (ForkSource::History(history.turns().to_vec()), history.started().workflow_id.clone())
        } else {
            let target = resolve(cx, Some(&self.source), &ExactRun::default()).await?;
            let name = target.workflow_id.clone();
            (ForkSource::Run(target), name)
        };
        let id = match &self.new_id {
            Some(id) => id.clone(),
            None => fresh_id(&format!("{name}-fork"))?,
        };
        Ok(ForkRequest {
            namespace: cx.namespace.clone(),
            at: self.at.map(EventId),
            changes,
            request_id: self.request_id.as_ref().map(RequestId::new).transpose()?,
            identity: Some(cx.identity.clone()),
            reason: self.reason.clone().unwrap_or_default(),
            dry_run: self.dry_run,
            ..ForkRequest::new(source, WorkflowId::new(id)?)
        })
    }
}

/// A history that can go on: of ours, with its results in it.
pub(super) fn history_of(name: &str) -> Result<History, CliError> {
    let why = match Source::read(name)? {
        Source::File { history, .. } if history.redaction() == Redaction::None => return Ok(history),
        Source::File { .. } => "it is redacted: what activities gave is not in it",
        Source::Temporal { .. } => "it is an export of Temporal's: its events are not those of this engine",
        Source::Run { .. } => "it is no file",
    };
    Err(CliError::new(Code::UnreadableHistory, format!("{name} cannot be carried on")).cause(why))
}

fn pair<'a>(option: &str, text: &'a str) -> Result<(&'a str, &'a str), CliError> {
    text.split_once('=').ok_or_else(|| CliError::new(Code::BadInput, format!("{option} {text:?} has no `=`")))
}

/// JSON where it is valid JSON and text otherwise, as in `key=value` pairs; `@file` for longer ones.
fn value_of(text: &str) -> Result<Payload, CliError> {
    let value = match text.strip_prefix('@') {
        Some(_) => parse(text)?,
        None => serde_json::from_str(text).unwrap_or_else(|_| Value::String(text.to_owned())),
    };
    Payload::encode(&value).map_err(|why| CliError::new(Code::BadInput, "the value cannot be written").cause(why))
}

fn numbered(text: &str) -> Result<(&str, Option<usize>), CliError> {
    match text.rsplit_once('#') {
        Some((name, nth)) => match nth.parse() {
            Ok(nth) if nth > 0 => Ok((name, Some(nth))),
            _ => Err(CliError::new(Code::BadInput, format!("{text:?}: after # comes a number from 1"))),
        },
        None => Ok((text, None)),
    }
}

fn subject(text: &str) -> Result<ForkSubject, CliError> {
    let number = |digits: &str| {
        digits.parse::<u64>().map_err(|_| CliError::new(Code::BadInput, format!("{text:?}: {digits:?} is no number")))
    };
    if let Some(digits) = text.strip_prefix("event:") {
        return number(digits).map(|id| ForkSubject::Event(EventId(id)));
    }
    if let Some(digits) = text.strip_prefix("seq:") {
        return number(digits).map(|seq| ForkSubject::Seq(Seq(seq)));
    }
    if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
        return number(text).map(|id| ForkSubject::Event(EventId(id)));
    }
    let (name, nth) = numbered(text)?;
    Ok(ForkSubject::Name { name: name.to_owned(), nth })
}

pub(super) async fn fork(cx: &mut Context, args: ForkArgs) -> Result<Exit, CliError> {
    let request = args.request(cx).await?;
    let from_run = matches!(request.source, ForkSource::Run(_));
    let forked = cx.backend.fork(request).await?;
    let mut object = json!(forked);
    object["dry_run"] = json!(args.dry_run);
    cx.screen.object("workflow.fork", object);
    let id = &forked.workflow_id;
    match forked.run_id {
        Some(run) if forked.newly_started => cx.screen.line(format!("forked {id} (run {run})")),
        Some(run) => cx.screen.line(format!("already forked: {id} (run {run})")),
        None => cx.screen.line("dry run: nothing is written".into()),
    }
    print(&mut cx.screen, &forked);
    if !cx.carried_on && !args.dry_run {
        cx.screen.note("no worker runs: it goes on when one does (`bosun worker run`)");
    }
    if forked.run_id.is_some() {
        let (source, id) = (shell_word(forked.from.workflow_id.as_str()), shell_word(id.as_str()));
        let compare = if from_run { format!(" · bosun diff {source} {id}") } else { String::new() };
        cx.screen.next(&format!("bosun result {id}{compare}"));
    }
    Ok(Exit::Ok)
}

fn print(screen: &mut Screen, forked: &Forked) {
    screen.field("from", format!("{} (run {})", forked.from.workflow_id, forked.from.run_id));
    for (name, told) in plan_lines(&forked.plan) {
        screen.field(name, told);
    }
}

/// What a fork would keep, tell and do again, line by line.
pub(super) fn plan_lines(plan: &ForkPlan) -> Vec<(&'static str, String)> {
    let ForkPlan { event, moved, dropped, told, runs_again, may_run_again, timers, signals_dropped, inbox } = plan;
    let moved = moved.as_ref().map(|why| format!(" - {why}")).unwrap_or_default();
    let mut lines = vec![("keeps", format!("events 1 to {event}, drops {dropped}{moved}"))];
    lines.extend(told.iter().map(|one| {
        let place = one.event.map(|event| format!(" (event {event})")).unwrap_or_default();
        ("tells", format!("{}{place}: {}", one.what, why(one.why)))
    }));
    let effect = |one: &ForkEffect| {
        let times =
            if one.attempts > 0 { format!(", tried {} times in the source", one.attempts) } else { String::new() };
        printable(&format!("{} {} (command {}{times})", one.kind, one.name, one.seq))
    };
    lines.extend(runs_again.iter().map(|one| ("runs again", effect(one))));
    lines.extend(may_run_again.iter().map(|one| ("may run again", effect(one))));
    lines.extend(timers.iter().map(|timer| {
        let summary = timer.summary.as_deref().unwrap_or_default();
        ("timer", format!("{} waits {} {summary}", timer.seq, short(timer.left)))
    }));
    lines.extend(signals_dropped.iter().map(|name| ("drops signal", name.to_string())));
    if *inbox > 0 {
        lines.push(("decides", format!("{inbox} inputs that waited")));
    }
    lines
}

fn why(telling: ForkTelling) -> &'static str {
    match telling {
        ForkTelling::Changed => "changed",
        ForkTelling::AsRecorded => "as the source recorded it",
        ForkTelling::NotShared => "a child of the source is not shared",
        ForkTelling::SentBySource => "the source sends it",
    }
}
