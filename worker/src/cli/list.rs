//! `list` and `count`: runs by a list filter.

use std::collections::BTreeSet;
use std::time::Duration;

use bosun_engine::*;
use clap::Args;
use serde_json::{Value, json};

use super::context::Context;
use super::error::{CliError, misleads};
use super::exit::Exit;
use super::explain::Code;
use super::output::{Cell, Format, Screen, TextStyle, one_line};
use super::reconnect::visit::BETWEEN;
use super::resolve::place;
use super::stuck::{Lookout, Obstacle};
use super::time_format::{now, parse_duration};
use super::waiting::{Hold, WaitingRow, hold_of, status_shown, waiting};
use crate::api::people::{Cursor, UnknownField, filter_of, page_of, unknown_field, without_notifications};
use crate::backend::Backend;
use crate::inbox::target_of;
use crate::run_json;
use crate::standing;

#[derive(Debug, Args)]
pub struct ListArgs {
    /// A list filter, for example "ExecutionStatus = 'Paused' AND WorkflowType = 'supervisor'". A status is the one that the
    /// list shows; runs that are Held or TakenOver are Running ones too.
    #[arg(short, long, default_value = "")]
    pub query: String,
    /// The most rows to show, up to 1000.
    #[arg(short, long, default_value_t = LIMIT, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub limit: u32,
    /// Continue a list after the page that printed this `next_cursor`.
    #[arg(long)]
    pub cursor: Option<String>,
    /// Also list the runs that a worker started to notify people (`bosun.notification`).
    #[arg(short, long)]
    pub all: bool,
    /// Print the list again whenever it has changed, until you interrupt it; look every second, or at this interval.
    #[arg(long, value_name = "TIME", num_args = 0..=1, require_equals = true, default_missing_value = "1s",
        value_parser = parse_duration)]
    pub watch: Option<Duration>,
}

#[derive(Debug, Args)]
pub struct CountArgs {
    /// A list filter.
    #[arg(short, long, default_value = "")]
    pub query: String,
    /// Also count the runs that a worker started to notify people (`bosun.notification`).
    #[arg(short, long)]
    pub all: bool,
}

/// Rows of who asks for no number.
const LIMIT: u32 = 50;
/// Open runs that `list` asks what they wait for.
const ASKED_MAX: usize = 50;
/// Of what is in the way, so much of one run is told, and so much in all.
const STUCK_OF_A_RUN: usize = 3;
const STUCK_SHOWN: usize = 15;
/// A list is not looked at more often.
const WATCH_MIN: Duration = Duration::from_millis(100);
const COLUMNS: &[&str] = &["workflow_id", "workflow_type", "status", "started_at", "closed_at", "run_id", "summary"];

/// What a list shows.
#[derive(PartialEq)]
struct Listed {
    runs: Vec<RunInfo>,
    next: Option<Cursor>,
    waits: Vec<Vec<WaitingRow>>,
    stuck: Vec<Vec<Obstacle>>,
}

pub(super) async fn list(cx: &mut Context, args: ListArgs) -> Result<Exit, CliError> {
    known_attributes(&*cx.backend, &args.query).await?;
    let Some(every) = args.watch else {
        let listed = look(cx, &args).await?;
        return show(cx, &args, &listed);
    };
    if cx.screen.format == Format::Json {
        return Err(CliError::usage("--watch lists again and again, and -o json is one object").help("use -o jsonl"));
    }
    let mut before = None;
    while !cx.screen.closed() {
        cx.screen.now = now();
        let listed = match look(cx, &args).await {
            Ok(listed) => listed,
            Err(why) if cx.lost_the_worker(&why) => {
                cx.outlive_the_worker().await?;
                continue;
            }
            Err(why) => return Err(why),
        };
        if before.as_ref() != Some(&listed) {
            cx.screen.begin_anew(before.is_none());
            show(cx, &args, &listed)?;
            before = Some(listed);
        }
        if cx.visits() {
            cx.away(every.max(BETWEEN)).await?;
        } else {
            tokio::time::sleep(every.max(WATCH_MIN)).await;
        }
    }
    Ok(Exit::Ok)
}

async fn look(cx: &Context, args: &ListArgs) -> Result<Listed, CliError> {
    let limit = usize::try_from(args.limit).unwrap_or(1_000);
    let (mut runs, next) = page(cx, args, limit).await?;
    let (waits, stuck) = (waits(cx, &mut runs).await, stuck(cx, &runs).await);
    Ok(Listed { runs, next, waits, stuck })
}

fn show(cx: &mut Context, args: &ListArgs, listed: &Listed) -> Result<Exit, CliError> {
    let Listed { runs, next, waits, stuck } = listed;
    let limit = usize::try_from(args.limit).unwrap_or(1_000);
    let object = |((run, waits), stuck): ((&RunInfo, &Vec<WaitingRow>), &Vec<Obstacle>)| {
        let mut object = run_json(&cx.screen, run);
        if !waits.is_empty() {
            object["waiting"] = waits.iter().map(|one| one.json(&cx.screen.reach)).collect();
        }
        if let Some(hold) = run.hold {
            object["control"] = hold.name().into();
        }
        if !stuck.is_empty() {
            object["stuck"] = stuck.iter().map(|one| one.json(&cx.screen)).collect();
        }
        object
    };
    let rows = runs.iter().zip(waits).zip(stuck).map(object).collect();
    let more = next.as_ref().map(|next| ("next_cursor".to_owned(), json!(next.to_string())));
    cx.screen.objects_and("workflow.list", "workflows", rows, more.into_iter().collect());
    if runs.is_empty() {
        // A column that nobody knows is one also where there is no row.
        cx.screen.table_columns(COLUMNS)?;
        cx.screen.note("no workflow executions");
        return Ok(Exit::Ok);
    }
    let rows = runs.iter().map(|run| row(&cx.screen, run)).collect();
    cx.screen.table(COLUMNS, rows)?;
    for (run, one) in told_once(runs, waits) {
        cx.screen.line(format!("{} {}", run.workflow_id, one_line(&one.text(&cx.screen.reach))));
    }
    say_stuck(&mut cx.screen, runs, stuck);
    if runs.iter().any(|run| run.status.is_open()) {
        cx.say_if_nobody_works();
    }
    if let Some(next) = next {
        cx.screen.note(&format!(
            "there are more: `{}`",
            cx.screen.reach.complete(&format!("bosun list{} --cursor {next}", repeated(args)))
        ));
    } else if runs.len() == limit {
        cx.screen.note(&format!("the first {limit}; say --limit for more"));
    }
    cx.screen.next(&format!("bosun describe {}", run_word(runs[0].workflow_id.as_str())));
    Ok(Exit::Ok)
}

/// What is in the way, a few of each run: the rows above are to stay on the screen.
fn say_stuck(screen: &mut Screen, runs: &[RunInfo], stuck: &[Vec<Obstacle>]) {
    let mut left = STUCK_SHOWN;
    for (run, stuck) in runs.iter().zip(stuck) {
        let shown = &stuck[..stuck.len().min(STUCK_OF_A_RUN).min(left)];
        left -= shown.len();
        for one in shown {
            let (text, help) = (one.said(screen.now, &screen.reach), screen.reach.complete(&one.help));
            screen.line(format!("{}: {text} (`{help}`)", one.title()));
        }
        let more = stuck.len() - shown.len();
        if more > 0 && left > 0 {
            let help = screen.reach.complete(&format!("bosun describe {}", run_word(run.workflow_id.as_str())));
            screen.line(format!("and {more} more are in the way of {} (`{help}`)", run.workflow_id));
        }
    }
    if left == 0 {
        screen.note("there may be more in the way: `describe` tells of one run, and `-o json` has all");
    }
}

/// The options that the next page is asked for with, too.
fn repeated(args: &ListArgs) -> String {
    let query = if args.query.is_empty() { String::new() } else { format!(" --query {}", shell_word(&args.query)) };
    let limit = if args.limit == LIMIT { String::new() } else { format!(" --limit {}", args.limit) };
    format!("{query}{limit}{}", if args.all { " --all" } else { "" })
}

/// The runs, and where the next ones begin: in any other order than that of all lists nothing says where that is.
async fn page(cx: &Context, args: &ListArgs, limit: usize) -> Result<(Vec<RunInfo>, Option<Cursor>), CliError> {
    let filter = shown(&args.query, args.all)?;
    let after = args.cursor.as_deref().map(|text| Cursor::read(text).map_err(|why| CliError::usage(why.message)));
    match (filter, after.transpose()?) {
        (filter, after) if filter.is_default_order() => Ok(page_of(&*cx.backend, filter, limit, after).await?),
        (_, Some(_)) => Err(CliError::usage("a cursor continues only the default order, newest runs first")
            .help("leave out ORDER BY, or --cursor")),
        (filter, None) => Ok((standing::list(&*cx.backend, &filter, limit).await?, None)),
    }
}

/// The filter of who asks, without the runs that nobody of them started.
fn shown(query: &str, all: bool) -> Result<Filter, CliError> {
    let filter = filter_of(query)?;
    Ok(if all { filter } else { without_notifications(filter)? })
}

/// What the newest of the open runs wait for: each has to be asked. Of the others as much as their status shows.
async fn waits(cx: &Context, runs: &mut [RunInfo]) -> Vec<Vec<WaitingRow>> {
    let (mut all, mut asked, mut others) = (Vec::new(), 0, Vec::new());
    for (nth, run) in runs.iter_mut().enumerate() {
        let ask = run.status.is_open() && asked < ASKED_MAX;
        asked += usize::from(ask);
        let waits = if ask { waiting(&*cx.backend, run).await } else { Vec::new() };
        match ask {
            true => run.hold = hold_of(run, &waits),
            false => others.push(nth),
        }
        all.push(waits);
    }
    let rest = others.iter().map(|nth| runs[*nth].clone()).collect();
    for (nth, told) in others.into_iter().zip(standing::with_holds(&*cx.backend, rest).await) {
        runs[nth] = told;
    }
    all
}

/// What keeps the listed runs and those below them from going on; each is told of the run that it is about, or of one above.
async fn stuck(cx: &Context, runs: &[RunInfo]) -> Vec<Vec<Obstacle>> {
    let mut lookout = Lookout::new(&*cx.backend, cx.screen.now).carried_on(cx.carried_on);
    let mut all = Vec::new();
    for run in runs {
        all.push(if run.status.is_open() { lookout.below(target_of(run)).await } else { Vec::new() });
    }
    all
}

/// What a run below waits for shows at every run above it: it is told of the first of them, and once.
fn told_once<'w>(runs: &'w [RunInfo], waits: &'w [Vec<WaitingRow>]) -> Vec<(&'w RunInfo, &'w WaitingRow)> {
    // A run is older than the runs below it.
    let mut oldest: Vec<_> = runs.iter().zip(waits).collect();
    oldest.sort_by_key(|(run, _)| run.started_at);
    let mut told = BTreeSet::new();
    let all = oldest.into_iter().flat_map(|(run, waits)| waits.iter().map(move |one| (run, one)));
    all.filter(|(_, one)| told.insert((&one.id, &one.answer))).collect()
}

pub(super) async fn count(cx: &mut Context, args: CountArgs) -> Result<Exit, CliError> {
    known_attributes(&*cx.backend, &args.query).await?;
    let count = standing::count(&*cx.backend, &shown(&args.query, args.all)?).await?;
    cx.screen.object("workflow.count", json!({ "count": count }));
    cx.screen.line(count.to_string());
    Ok(Exit::Ok)
}

/// The same for the command line.
pub(in crate::cli) async fn known_attributes(backend: &dyn Backend, query: &str) -> Result<(), CliError> {
    unknown_field(backend, query).await?.map_or(Ok(()), |unknown| Err(unknown.into()))
}

impl From<UnknownField> for CliError {
    fn from(unknown: UnknownField) -> Self {
        CliError::new(Code::Invalid, unknown.why()).help(unknown.known())
    }
}

fn row(screen: &Screen, run: &RunInfo) -> Vec<Cell> {
    vec![
        Cell::of(run.workflow_id.as_str(), TextStyle::Bold),
        run.workflow_type.as_str().into(),
        Cell::of(status_shown(run.status, run.held, run.hold), status_paint(run.status, run.held, run.hold)),
        screen.at(run.started_at).into(),
        run.closed_at.map_or_else(|| "-".to_owned(), |at| screen.at(at)).into(),
        Cell::of(run.run_id.to_string(), TextStyle::Dim),
        run.summary.clone().unwrap_or_default().into(),
    ]
}

/// The paint of what [`status_shown`] says.
pub(super) fn status_paint(status: WorkflowStatus, held: bool, hold: Option<Hold>) -> TextStyle {
    match status {
        _ if held && status.is_open() => TextStyle::Red,
        _ if hold.is_some() && status.is_open() => TextStyle::Yellow,
        WorkflowStatus::Running => TextStyle::Blue,
        WorkflowStatus::Paused | WorkflowStatus::Canceled | WorkflowStatus::ContinuedAsNew => TextStyle::Yellow,
        WorkflowStatus::Completed => TextStyle::Green,
        WorkflowStatus::Failed | WorkflowStatus::Terminated | WorkflowStatus::TimedOut => TextStyle::Red,
    }
}

/// A run as `list` and `describe` print it. The keys are documented; new ones may come.
pub(super) fn run_json(screen: &Screen, run: &RunInfo) -> Value {
    let mut object = json!({
        "workflow_id": run.workflow_id,
        "run_id": run.run_id,
        "workflow_type": run.workflow_type,
        "status": run.status.to_string(),
        "started_at": screen.time.json(run.started_at),
        "closed_at": run.closed_at.map(|at| screen.time.json(at)),
        "task_queue": run.task_queue,
        "namespace": run.namespace,
        "attempt": run.attempt,
        "history_events": run.history.events,
        "history_bytes": run.history.bytes,
        "first_run_id": run.first_run,
        "continued_from": run.continued_from,
        "next_run_id": run.next_run,
        "parent_workflow_id": run.parent.as_ref().map(|parent| &parent.workflow_id),
        "memo": run_json::memo(run),
        "search_attributes": run_json::attributes(run, |at| screen.time.json(at)),
        "summary": run.summary,
        "details": run.details,
        "build": run.build.to_string(),
    });
    if run.held {
        object["held"] = json!(true);
    }
    object
}

/// The id of a run where a verb takes a run: one that reads as a shorthand or as an option is said to be an id, so that a
/// command that is pasted is about this run and no other.
pub(crate) fn run_word(id: &str) -> String {
    let word = shell_word(id);
    if id.starts_with('-') {
        format!("-w={word}")
    } else if place(id).is_some() {
        format!("-w {word}")
    } else {
        word
    }
}

/// How many of something: `1 run`, `2 runs`.
pub(crate) fn counted(number: u64, of: &str) -> String {
    format!("{number} {of}{}", if number == 1 { "" } else { "s" })
}

/// A file as one would type it in a shell: never an option.
pub(in crate::cli) fn file_word(path: &str) -> String {
    if path.starts_with('-') { shell_word(&format!("./{path}")) } else { shell_word(path) }
}

/// An id as one would type it in a shell. What would be shown as something else is written by its number, so that a command
/// can be copied from the screen.
pub(crate) fn shell_word(text: &str) -> String {
    if text.chars().any(misleads) {
        let by_number = |c: char| match c {
            '\'' | '\\' => format!("\\{c}"),
            c if !misleads(c) => c.to_string(),
            c if c <= '\u{ffff}' => format!("\\u{:04x}", u32::from(c)),
            c => format!("\\U{:08x}", u32::from(c)),
        };
        format!("$'{}'", text.chars().map(by_number).collect::<String>())
    } else if !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_./:@%+=,".contains(&b)) {
        text.to_owned()
    } else {
        format!("'{}'", text.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A command that is printed is about the run that it was printed for.
    #[test]
    fn an_id_that_reads_as_something_else_is_said_to_be_an_id() {
        for (id, word) in [
            ("order-7", "order-7"),
            ("my run", "'my run'"),
            ("latest", "-w latest"),
            ("@2", "-w @2"),
            ("@two", "@two"),
            ("-x", "-w=-x"),
            ("--help", "-w=--help"),
            ("-a b", "-w='-a b'"),
            ("pay \u{202e}it's", r"$'pay \u202eit\'s'"),
        ] {
            assert_eq!(run_word(id), word);
        }
    }
}
