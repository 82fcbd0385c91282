//! `fork ID|FILE`: a new run that begins with the history of another one and goes another way.
//!
//! Invariant: `--dry-run` writes nothing, starts no engine and says the same as the fork itself would; code that does not
//! fit the copied part is refused before anything is written. What a fork means is the engine's affair; this file reads
//! and prints.
//!
//! Long: the options of a fork, its request and all that is told of it, in one place.

#[cfg(test)]
mod tests;

use std::path::Path;

use bosun_engine::workflow::WorkflowRegistry;
use bosun_engine::*;
use bosun_replay::{History, Redaction, plan_fork};
use clap::{Args, ValueEnum};
use serde_json::json;

use super::args::ExactRun;
use super::context::{Context, identity};
use super::describe::point;
use super::error::{CliError, printable};
use super::exit::Exit;
use super::explain::Code;
use super::input::{json_or_text, parse, payload};
use super::list::{run_word, shell_word};
use super::locate::Readable;
use super::output::Screen;
use super::replay::Bench;
use super::replay::source::{is_file, load_file, spell_the_file};
use super::resolve::{find, resolve};
use super::start::fresh_id;
use super::time_format::short;
use crate::backend::{Backend, CallError, Histories};

#[derive(Debug, Args)]
pub struct ForkArgs {
    /// A run (as for `show`), or a history file (ends in .json, or begins with / or ./ or ../).
    #[arg(value_name = "ID|FILE")]
    pub source: String,
    /// The last event to keep. If it lies inside a turn, the fork keeps the turns before it [default: as much as the
    /// changes allow].
    #[arg(long, value_name = "N")]
    pub at: Option<u64>,
    /// The workflow id of the new run [default: SOURCE-fork-xxxxxxxx].
    #[arg(long = "id", value_name = "NEW")]
    pub new_id: Option<String>,
    /// Change the result of an activity or child workflow, or the value of a side effect. WHICH is a type or id
    /// (NAME#2 for the second), an event (15 or event:15), a command (seq:3), or side-effect#1.
    #[arg(long, value_name = "WHICH=JSON")]
    pub set_result: Vec<String>,
    /// Put a failure in place of a result.
    #[arg(long, value_name = "WHICH=MESSAGE")]
    pub set_failure: Vec<String>,
    /// The type of the failures given with --set-failure.
    #[arg(long, value_name = "TYPE", default_value = "SetByFork")]
    pub failure_type: String,
    /// Change the input of a signal; NAME#2 is the second signal of that name.
    #[arg(long, value_name = "NAME=JSON")]
    pub set_signal: Vec<String>,
    /// Start the run anew with another input: JSON, `@file`, or `-`.
    #[arg(long, value_name = "JSON", allow_hyphen_values = true)]
    pub set_input: Option<String>,
    /// Which of the inputs that reached the source after this event are sent to the fork as well.
    #[arg(long, value_name = "WHAT", default_value = "signals")]
    pub reapply: ReapplyToFork,
    /// Say what would happen, and write nothing.
    #[arg(long)]
    pub dry_run: bool,
    /// Make the fork idempotent: a second fork of this source with this id, and the same --id if one is named, starts nothing.
    #[arg(long, value_name = "ID")]
    pub request_id: Option<String>,
    /// Recorded in the history of the new run.
    #[arg(long, value_name = "TEXT")]
    pub reason: Option<String>,
}

/// Temporal's reset has the same option with the same default.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ReapplyToFork {
    /// Signals, each once and in their order.
    Signals,
    /// Nothing; the answer names the signals that are dropped.
    None,
}

impl ForkArgs {
    /// A file can be forked into a directory that does not exist yet.
    pub(super) fn makes_a_store(&self) -> bool {
        is_file(&self.source)
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

    /// The request, from a source with the workflow id `name`.
    fn request(&self, source: ForkSource, name: &WorkflowId, namespace: &Namespace) -> Result<ForkRequest, CliError> {
        let id = match (&self.new_id, &self.request_id) {
            (Some(id), _) => id.clone(),
            (None, Some(request)) => id_of_request(name, request),
            (None, None) => fresh_id(&format!("{name}-fork"))?,
        };
        Ok(ForkRequest {
            namespace: namespace.clone(),
            at: self.at.map(EventId),
            changes: self.changes()?,
            reapply: match self.reapply {
                ReapplyToFork::Signals => ForkReapply::Signals,
                ReapplyToFork::None => ForkReapply::None,
            },
            request_id: self.request_id.as_ref().map(RequestId::new).transpose()?,
            identity: Some(identity()),
            reason: self.reason.clone().unwrap_or_default(),
            dry_run: self.dry_run,
            ..ForkRequest::new(source, WorkflowId::new(id)?)
        })
    }

    fn of_file(&self, namespace: &Namespace, code: &WorkflowRegistry) -> Result<(ForkRequest, History), CliError> {
        let history = to_be_carried_on(&self.source, code)?;
        let request =
            self.request(ForkSource::History(Vec::new()), &history.started().workflow_id.clone(), namespace)?;
        Ok((request, history))
    }

    fn of_run(&self, target: Target, namespace: &Namespace) -> Result<ForkRequest, CliError> {
        let name = target.workflow_id.clone();
        self.request(ForkSource::Run(target), &name, namespace)
    }
}

/// The id of a fork that names none, where its request has an id: asked for again it is the same fork.
pub(crate) fn id_of_request(source: &WorkflowId, request: &str) -> String {
    format!("{source}-fork-{}", &blake3::hash(request.as_bytes()).to_hex()[..8])
}

/// The history of a file that can go on: of ours, with its results in it.
fn to_be_carried_on(name: &str, code: &WorkflowRegistry) -> Result<History, CliError> {
    let (name, history) = load_file(Path::new(name))?.replayable(code)?;
    if history.redaction() == Redaction::None {
        return Ok(history);
    }
    Err(CliError::new(Code::UnreadableHistory, format!("{name} cannot be forked"))
        .cause("it is redacted: what activities gave is not in it"))
}

fn pair<'a>(option: &str, text: &'a str) -> Result<(&'a str, &'a str), CliError> {
    text.split_once('=').ok_or_else(|| CliError::new(Code::BadInput, format!("{option} {text:?} has no `=`")))
}

/// JSON where it begins like JSON and text otherwise; `@file` for longer ones.
fn value_of(text: &str) -> Result<Payload, CliError> {
    let value = match text.strip_prefix('@') {
        Some(_) => parse(text)?,
        None => json_or_text(text).map_err(|why| {
            CliError::new(Code::BadInput, format!("the value {text:?} is not JSON"))
                .cause(why)
                .help("text that begins like JSON is quoted as JSON does: '\"[a] text\"'")
        })?,
    };
    Payload::encode(&value).map_err(|why| CliError::new(Code::BadInput, "the value cannot be written").cause(why))
}

pub(crate) fn numbered(text: &str) -> Result<(&str, Option<usize>), CliError> {
    match text.rsplit_once('#') {
        Some((name, nth)) => match nth.parse() {
            Ok(nth) if nth > 0 => Ok((name, Some(nth))),
            _ => Err(CliError::new(Code::BadInput, format!("{text:?}: after # comes a number from 1"))),
        },
        None => Ok((text, None)),
    }
}

pub(crate) fn subject(text: &str) -> Result<ForkSubject, CliError> {
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
    let request = if is_file(&args.source) {
        let (request, history) = args.of_file(&cx.namespace, &cx.workflows)?;
        ForkRequest { source: ForkSource::History(history.into_turns()), ..request }
    } else {
        let target = resolve(cx, Some(&args.source), &ExactRun::default()).await;
        args.of_run(target.map_err(|why| spell_the_file(why, Some(&args.source)))?, &cx.namespace)?
    };
    let from_run = matches!(request.source, ForkSource::Run(_));
    let forked = cx.backend.fork(request).await?;
    say(&mut cx.screen, &forked, false);
    if !cx.carried_on {
        let hint = cx.screen.reach.complete("`bosun worker run`");
        cx.screen.note(&format!("no worker runs: it goes on when one does ({hint})"));
    }
    let id = run_word(forked.workflow_id.as_str());
    let newest = Target { namespace: cx.namespace.clone(), ..Target::workflow(forked.from.workflow_id.clone()) };
    let is_newest = match cx.backend.describe(newest).await {
        Ok(newest) => newest.info.run_id == forked.from.run_id,
        Err(_) => false,
    };
    // By its workflow id it would be the run in which it went on.
    let source = match is_newest {
        true => place_word(&forked.from.workflow_id, Some(forked.from.run_id)),
        false => forked.from.run_id.to_string(),
    };
    let other = place_word(&forked.workflow_id, forked.run_id);
    cx.screen.next(&format!("bosun result {id}"));
    if from_run {
        cx.screen.next(&format!("bosun diff {source} {other}"));
    }
    Ok(Exit::Ok)
}

/// A run where a verb takes no `-w`: by its run id where its own would be read as a shorthand or an option.
fn place_word(id: &WorkflowId, run: Option<RunId>) -> String {
    let (word, exact) = (shell_word(id.as_str()), run_word(id.as_str()));
    run.filter(|_| word != exact).map_or(word, |run| run.to_string())
}

/// What the fork would do. A worker that holds the directory is asked, since its code would carry the fork on; without
/// one it is planned here, with the code of this program.
pub(super) async fn dry_run(bench: &mut Bench<'_>, args: ForkArgs) -> Result<Exit, CliError> {
    let namespace = bench.namespace.clone();
    let file = if is_file(&args.source) { Some(args.of_file(&namespace, &bench.workflows)?) } else { None };
    let worker = match bench.readable().await {
        Ok(Readable::Attached(client)) => Some(client.clone()),
        Ok(Readable::Closed(_)) => None,
        // A file can be forked into a directory that does not exist yet.
        Err(why) if why.code == Code::NoStore && file.is_some() => None,
        Err(why) => return Err(why),
    };
    let forked = match (worker, file) {
        (Some(worker), Some((request, history))) => {
            worker.fork(ForkRequest { source: ForkSource::History(history.into_turns()), ..request }).await?
        }
        (Some(worker), None) => {
            let histories = bench.histories().await?;
            let target = find(&*histories, &namespace, Some(&args.source), &ExactRun::default()).await?;
            worker.fork(args.of_run(target, &namespace)?).await?
        }
        (None, Some((request, history))) => planned(bench, &request, &history).await?,
        (None, None) => {
            let (_, history) = bench.named(&args.source).await?.replayable(&bench.workflows)?;
            let name = history.started().workflow_id.clone();
            let request = args.request(ForkSource::History(Vec::new()), &name, &namespace)?;
            planned(bench, &request, &history).await?
        }
    };
    say(bench.screen, &forked, true);
    Ok(Exit::Ok)
}

/// The answer to a dry run, without an engine.
async fn planned(bench: &mut Bench<'_>, request: &ForkRequest, history: &History) -> Result<Forked, CliError> {
    let made_before = match bench.readable().await {
        Ok(readable) => found_or_free(&*readable.histories(), request).await?,
        Err(why) if why.code == Code::NoStore => None,
        Err(why) => return Err(why),
    };
    let plan = plan_fork(history, request, Some(&bench.workflows))?;
    let started = history.started();
    Ok(Forked {
        workflow_id: request.workflow_id.clone(),
        run_id: made_before,
        newly_started: false,
        from: ForkPoint {
            workflow_id: started.workflow_id.clone(),
            run_id: history.run_id(),
            event: plan.event,
            reset: false,
        },
        workflow_type: started.workflow_type.clone(),
        plan,
    })
}

/// The run that the same request made before; or nothing, if the workflow id was never used, as the engine asks it.
async fn found_or_free(histories: &dyn Histories, request: &ForkRequest) -> Result<Option<RunId>, CliError> {
    let id = &request.workflow_id;
    let target = Target { namespace: request.namespace.clone(), ..Target::workflow(id.clone()) };
    let info = match histories.run(target).await {
        Ok(info) => info,
        Err(CallError::Rejected(Rejection::NotFound { .. })) => return Ok(None),
        Err(why) => return Err(why.into()),
    };
    if request.request_id.is_some() && info.start_request_id == request.request_id {
        return Ok(Some(info.run_id));
    }
    let RunInfo { workflow_id, run_id, status, .. } = info;
    Err(if status.is_open() {
        Rejection::AlreadyOpen { workflow_id, run_id }.into()
    } else {
        let policy = IdReusePolicy::RejectDuplicate;
        Rejection::IdReused { workflow_id, run_id, status, policy }.into()
    })
}

fn say(screen: &mut Screen, forked: &Forked, dry_run: bool) {
    let mut object = json!(forked);
    object["dry_run"] = json!(dry_run);
    screen.object("workflow.fork", object);
    let id = &forked.workflow_id;
    match forked.run_id {
        Some(run) if forked.newly_started => screen.line(format!("forked {id} (run {run})")),
        Some(run) => {
            screen.line(format!("already forked: {id} (run {run})"));
            // What this request would do is not what that one did.
            return screen.field("from", format!("{} of run {}", point(forked.from.event), forked.from.run_id));
        }
        None => screen.line("dry run: nothing is written".into()),
    }
    print(screen, forked);
}

fn print(screen: &mut Screen, forked: &Forked) {
    screen.field("from", format!("{} (run {})", forked.from.workflow_id, forked.from.run_id));
    for (name, told) in plan_lines(&forked.plan) {
        screen.field(name, told);
    }
}

/// What a fork would keep, tell and do again, line by line.
pub(crate) fn plan_lines(plan: &ForkPlan) -> Vec<(&'static str, String)> {
    let ForkPlan {
        event,
        moved,
        dropped,
        told,
        runs_again,
        may_run_again,
        timers,
        signals_dropped,
        updates_dropped,
        children,
        still_open,
        inbox,
    } = plan;
    let moved = moved.as_ref().map(|why| format!(" - {why}")).unwrap_or_default();
    let keeps = match event.0 {
        0 => format!("nothing: it begins anew, and drops {dropped}{moved}"),
        1 => format!("event 1, drops {dropped}{moved}"),
        last => format!("events 1 to {last}, drops {dropped}{moved}"),
    };
    let mut lines = vec![("keeps", keeps)];
    lines.extend(told.iter().map(|one| {
        let place = one.event.map(|event| format!(" (event {event})")).unwrap_or_default();
        let label = if one.why == ForkTelling::Reapplied { "sends again" } else { "tells" };
        (label, format!("{}{place}: {}", one.what, why(one.why)))
    }));
    let effect = |one: &ForkEffect| {
        let times =
            if one.attempts > 0 { format!(", attempts in the source: {}", one.attempts) } else { String::new() };
        let summary = one.summary.as_ref().map(|summary| format!(", {summary}")).unwrap_or_default();
        printable(&format!("{} {}{summary} (command {}{times})", one.kind, one.name, one.seq))
    };
    lines.extend(runs_again.iter().map(|one| ("runs again", effect(one))));
    lines.extend(may_run_again.iter().map(|one| ("may run again", effect(one))));
    lines.extend(timers.iter().map(|timer| {
        let summary = timer.summary.as_deref().unwrap_or_default();
        ("timer", format!("{} waits {} {summary}", timer.seq, short(timer.left)))
    }));
    lines.extend(children.iter().map(|id| ("keeps child", id.to_string())));
    let why_open =
        "it outlives the run that is ended; a child that is asked for under this id does not start before it ends";
    lines.extend(still_open.iter().map(|id| ("still open", format!("{id}: {why_open}"))));
    lines.extend(signals_dropped.iter().map(|name| ("drops signal", name.to_string())));
    lines.extend(updates_dropped.iter().map(|name| ("drops update", name.to_string())));
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
        ForkTelling::Reapplied => "it reached the source later",
        ForkTelling::Again => "it is decided anew",
    }
}
