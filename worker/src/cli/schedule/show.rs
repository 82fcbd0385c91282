//! What is seen of schedules: `list`, `describe`, `next`, and what `create --dry-run` shows.
//!
//! Invariant: it changes nothing. Times are those of the schedule's zone for people, and UTC for programs.

use std::collections::BTreeMap;

use bosun_engine::{FieldName, ListRequest, RunInfo, SearchValue, Target, Timestamp, WorkflowId, WorkflowStatus};
use clap::Args;
use futures_util::future::join_all;
use serde_json::{Value, json};

use super::act::existing;
use super::when::{WhenArgs, all_refused, moment, refused};
use crate::api::people::{Cursor, filter_of, page_of};
use crate::cli::context::Context;
use crate::cli::error::CliError;
use crate::cli::exit::Exit;
use crate::cli::list::{run_word, shell_word};
use crate::cli::output::{Cell, Screen, TextStyle};
use crate::cli::result::value_text;
use crate::cli::supervise::ask;
use crate::schedule::action::ATTRIBUTE_ID;
use crate::schedule::shown::{ScheduleMood, when};
use crate::schedule::spec::ScheduleSpec;
use crate::schedule::text::{self, parse_moment};
use crate::schedule::times::Times;
use crate::schedule::{SCHEDULE, Schedule};

/// Times that are shown where nobody says how many.
const TIMES_SHOWN: u16 = 10;

#[derive(Debug, Args)]
pub struct ScheduleListArgs {
    /// The most schedules to show, up to 1000.
    #[arg(short, long, default_value_t = LIMIT, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub limit: u32,
    /// Continue a list after the page that printed this `next_cursor`.
    #[arg(long)]
    pub cursor: Option<String>,
}

/// Rows of who asks for no number.
const LIMIT: u32 = 50;
/// Schedules that are asked at once, and held runs that are looked for among those that they have started.
const ASKED_AT_ONCE: usize = 8;
const HELD_MAX: usize = 1_000;

#[derive(Debug, Args)]
pub struct NextArgs {
    /// How many times to print.
    #[arg(short = 'n', long, value_name = "N", default_value_t = TIMES_SHOWN, value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub count: u16,
    /// Print times after this one [default: now].
    #[arg(long, value_name = "TIME")]
    pub after: Option<String>,
    #[command(flatten)]
    pub when: WhenArgs,
}

/// A time as people read it: in its zone, with the offset.
fn in_zone(at: Timestamp, zone: Option<&str>) -> String {
    let zone = zone.and_then(|name| jiff::tz::TimeZoneDatabase::bundled().get(name).ok());
    match (zone, jiff::Timestamp::from_microsecond(at.0)) {
        (Some(zone), Ok(at)) => at.to_zoned(zone).strftime("%a %Y-%m-%d %H:%M:%S %:z").to_string(),
        (None, Ok(at)) => at.strftime("%a %Y-%m-%d %H:%M:%S UTC").to_string(),
        (_, Err(_)) => text::moment(at),
    }
}

/// Lines of times that a schedule has answered.
pub(super) fn times(cx: &mut Context, times: &Value, zone: Option<&str>) {
    for (n, at) in times.as_array().into_iter().flatten().filter_map(Value::as_str).enumerate() {
        let shown = parse_moment(at).map_or_else(|_| at.to_owned(), |at| in_zone(at, zone));
        cx.screen.field(if n == 0 { "next" } else { "" }, shown);
    }
}

pub(super) fn next(screen: &mut Screen, args: &NextArgs) -> Result<Exit, CliError> {
    let mut spec = ScheduleSpec::default();
    args.when.apply(&mut spec)?;
    let after = args.after.as_deref().map(|text| moment("--after", text)).transpose()?.unwrap_or(screen.now);
    all_refused(&spec.problems("preview"))?;
    following(screen, "preview", &spec, after, args.count.into())?;
    Ok(Exit::Ok)
}

pub(super) fn preview(screen: &mut Screen, id: &str, schedule: &Schedule) -> Result<Exit, CliError> {
    screen.note("dry run: nothing is written");
    if screen.format == crate::cli::output::Format::Text {
        screen.field("starts", format!("{} as {}-TIME", schedule.action.workflow_type, schedule.action.workflow_id));
        screen.field("overlap", schedule.policies.overlap.name());
    }
    let after = screen.now;
    following(screen, id, &schedule.spec, after, TIMES_SHOWN.into())?;
    Ok(Exit::Ok)
}

fn following(
    screen: &mut Screen,
    id: &str,
    spec: &ScheduleSpec,
    after: Timestamp,
    count: usize,
) -> Result<(), CliError> {
    let found = Times::of(spec, id).map_err(|why| refused(&why))?.following(after, count);
    let utc: Vec<String> = found.iter().copied().map(text::moment).collect();
    screen.object("schedule.next", json!({ "spec": spec, "after": text::moment(after), "next_times": utc }));
    for at in &found {
        screen.line(in_zone(*at, spec.time_zone.as_deref()));
    }
    if found.is_empty() {
        screen.note("no more times");
    }
    Ok(())
}

/// Of the list.
const COLUMNS: &[&str] = &["schedule_id", "state", "next", "last", "starts", "when"];

pub(super) async fn list(cx: &mut Context, args: ScheduleListArgs) -> Result<Exit, CliError> {
    let limit = usize::try_from(args.limit).unwrap_or(1_000);
    let after = args.cursor.as_deref().map(|text| Cursor::read(text).map_err(|why| CliError::usage(why.message)));
    let query = format!("WorkflowType = '{SCHEDULE}' AND ExecutionStatus IN ('Running', 'Paused')");
    let (runs, next) = page_of(&*cx.backend, filter_of(&query)?, limit, after.transpose()?).await?;
    let held = held_runs(cx).await;
    let mut rows: Vec<Value> = Vec::new();
    for some in runs.chunks(ASKED_AT_ONCE) {
        rows.extend(join_all(some.iter().map(|run| listed(cx, run, &held))).await);
    }
    let table: Vec<Vec<Cell>> = rows.iter().map(|shown| row(cx, shown)).collect();
    let more = next.as_ref().map(|next| ("next_cursor".to_owned(), json!(next.to_string())));
    cx.screen.objects_and("schedule.list", "schedules", rows, more.into_iter().collect());
    if runs.is_empty() {
        cx.screen.table_columns(COLUMNS)?;
        cx.screen.note("no schedules");
        return Ok(Exit::Ok);
    }
    let first = table[0][0].text.clone();
    cx.screen.table(COLUMNS, table)?;
    cx.say_if_nobody_works();
    if let Some(next) = next {
        let limit = if args.limit == LIMIT { String::new() } else { format!(" --limit {}", args.limit) };
        let command = cx.screen.reach.complete(&format!("bosun schedule list{limit} --cursor {next}"));
        cx.screen.note(&format!("there are more: `{command}`"));
    }
    cx.screen.next(&format!("bosun schedule describe {}", shell_word(&first)));
    Ok(Exit::Ok)
}

/// A schedule of the list. One that is held itself is told all the same.
async fn listed(cx: &Context, run: &RunInfo, held: &BTreeMap<String, WorkflowId>) -> Value {
    let name = run.workflow_id.as_str().trim_start_matches(crate::schedule::ID_PREFIX);
    let target = Target { namespace: run.namespace.clone(), ..Target::run(run.workflow_id.clone(), run.run_id) };
    match ask(cx, &target, "describe", &Value::Null).await {
        Ok(shown) => with_problem(shown, &target, run.status, held.get(name)),
        Err(why) => json!({ "schedule_id": name, "problem": why.to_string() }),
    }
}

/// The runs of schedules that cannot go on, by the id of their schedule: looked for once for all of them.
async fn held_runs(cx: &Context) -> BTreeMap<String, WorkflowId> {
    let query = format!("Held = true AND {ATTRIBUTE_ID} IS NOT NULL");
    let found = cx.backend.list(ListRequest { query, limit: HELD_MAX }).await.unwrap_or_default();
    let of = FieldName::of(ATTRIBUTE_ID);
    let named = found.into_iter().filter_map(|run| match run.search_attributes.get(&of) {
        Some(SearchValue::Keyword(id)) => Some((id.clone(), run.workflow_id)),
        _ => None,
    });
    named.collect()
}

/// What a schedule says of itself, and that it is kept from going on where the engine does that.
async fn look(cx: &Context, target: &Target, status: WorkflowStatus) -> Result<Value, CliError> {
    let shown = ask(cx, target, "describe", &Value::Null).await?;
    let held = held_run(cx, &shown).await;
    Ok(with_problem(shown, target, status, held.as_ref()))
}

fn with_problem(mut shown: Value, target: &Target, status: WorkflowStatus, held: Option<&WorkflowId>) -> Value {
    if status == WorkflowStatus::Paused {
        shown["problem"] =
            json!(format!("its run is paused: `bosun resume {}`", run_word(target.workflow_id.as_str())));
    } else if let Some(held) = held {
        shown["problem"] =
            json!(format!("the run {held} is held: `bosun describe {}` says why", run_word(held.as_str())));
    }
    shown
}

/// A run of the schedule that cannot go on.
async fn held_run(cx: &Context, shown: &Value) -> Option<WorkflowId> {
    let id = shown["schedule_id"].as_str()?.replace('\'', "''");
    let query = format!("{ATTRIBUTE_ID} = '{id}' AND Held = true");
    let found = cx.backend.list(ListRequest { query, limit: 1 }).await.ok()?;
    Some(found.into_iter().next()?.workflow_id)
}

/// Whether it starts anything by itself.
fn state(shown: &Value) -> (&'static str, TextStyle) {
    let mood = ScheduleMood::of(shown);
    let paint = match mood {
        ScheduleMood::Problem => TextStyle::Red,
        ScheduleMood::Paused => TextStyle::Yellow,
        ScheduleMood::Over => TextStyle::Dim,
        ScheduleMood::Active => TextStyle::Green,
    };
    (mood.word(), paint)
}

fn row(cx: &Context, shown: &Value) -> Vec<Cell> {
    let at = |value: &Value| {
        value.as_str().and_then(|text| parse_moment(text).ok()).map_or_else(|| "-".to_owned(), |at| cx.screen.at(at))
    };
    let (state, paint) = state(shown);
    let last = &shown["recent"][0];
    let last = match last["outcome"].as_str() {
        Some(outcome) => format!("{outcome} {}", at(&last["ended_at"])),
        None => "-".to_owned(),
    };
    let what = value_text(&shown["schedule"]["action"]["workflow_type"]);
    vec![
        Cell::of(value_text(&shown["schedule_id"]), TextStyle::Bold),
        Cell::of(state, paint),
        at(&shown["next"]["due"]).into(),
        last.into(),
        what.into(),
        match shown["problem"].as_str() {
            Some(problem) => cx.screen.reach.complete(problem).into(),
            None => when(&shown["schedule"]["spec"]).into(),
        },
    ]
}

pub(super) async fn describe(cx: &mut Context, id: &str) -> Result<Exit, CliError> {
    let (target, status) = existing(cx, id).await?;
    let shown = look(cx, &target, status).await?;
    cx.screen.object("schedule.describe", shown.clone());
    let schedule = &shown["schedule"];
    let (state, paint) = state(&shown);
    let note = schedule["state"]["note"].as_str().filter(|note| !note.is_empty());
    let state = cx.screen.paint(paint, state);
    cx.screen.field("schedule", value_text(&shown["schedule_id"]));
    cx.screen.field("state", note.map_or_else(|| state.clone(), |note| format!("{state}: {note}")));
    if let Some(problem) = shown["problem"].as_str() {
        let problem = cx.screen.reach.complete(problem);
        cx.screen.field("problem", problem);
    }
    spec_lines(cx, schedule);
    run_lines(cx, &shown);
    cx.say_if_nobody_works();
    let id = value_text(&shown["schedule_id"]);
    // Before the first start no run has the attribute.
    let plain = shown["counts"]["actions"] != 0 && !id.contains(['\'', '"', '$', '`', '\\', '!']);
    cx.screen.next(&match plain {
        true => format!("bosun list --query \"TemporalScheduledById = '{id}'\""),
        false => format!("bosun describe {}", run_word(target.workflow_id.as_str())),
    });
    Ok(Exit::Ok)
}

/// What it starts, when and how.
fn spec_lines(cx: &mut Context, schedule: &Value) {
    let action = &schedule["action"];
    let (what, base) = (value_text(&action["workflow_type"]), value_text(&action["workflow_id"]));
    cx.screen.field("starts", format!("{what} as {base}-TIME"));
    cx.screen.field("when", when(&schedule["spec"]));
    for (name, key) in [("from", "start_time"), ("until", "end_time"), ("jitter", "jitter")] {
        if let Some(value) = schedule["spec"][key].as_str() {
            cx.screen.field(name, value);
        }
    }
    let policies = &schedule["policies"];
    cx.screen.field("overlap", value_text(&policies["overlap"]));
    cx.screen.field("catch-up", value_text(&policies["catch_up_window"]));
    if let Some(left) = schedule["state"]["remaining_actions"].as_u64() {
        cx.screen.field("remaining", left.to_string());
    }
}

/// What runs, what waits, what has been.
fn run_lines(cx: &mut Context, shown: &Value) {
    let count = |key: &str| value_text(&shown["counts"][key]);
    cx.screen.field(
        "so far",
        format!(
            "{} started, {} failed, {} left out for overlap, {} missed, {} dropped",
            count("actions"),
            count("failed"),
            count("overlap_skipped"),
            count("missed_catchup_window"),
            count("buffer_dropped")
        ),
    );
    times(cx, &shown["next_times"], shown["schedule"]["spec"]["time_zone"].as_str());
    for run in shown["running"].as_array().into_iter().flatten() {
        cx.screen.field("running", value_text(&run["workflow_id"]));
    }
    for start in shown["waiting"].as_array().into_iter().flatten() {
        cx.screen.field("waiting", value_text(&start["nominal"]));
    }
    for run in shown["recent"].as_array().into_iter().flatten() {
        let why = run["message"].as_str().map_or_else(String::new, |why| format!(": {why}"));
        let (id, outcome) = (value_text(&run["workflow_id"]), value_text(&run["outcome"]));
        cx.screen.field("recent", format!("{id}  {outcome}{why}"));
    }
}
