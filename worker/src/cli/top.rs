//! `top`: what goes on now, in a terminal that keeps itself up to date: runs, what they wait for, agents, queues.
//!
//! Invariant: it only looks. What is drawn is a function of one [`Snapshot`] and the [`view::TopView`]; keys change the view
//! through one pure function. A worker that leaves is looked for again, and the last snapshot stays until then, with its age.

mod draw;
mod keyboard;
mod spent;
#[cfg(test)]
mod tests;
mod view;

use std::collections::BTreeMap;
use std::io::IsTerminal;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bosun_engine::{ListRequest, Namespace, Parent, RunInfo, Timestamp};
use clap::Args;
use serde::Serialize;
use serde_json::{Value, json};

use self::draw::draw;
use self::keyboard::keyboard;
use self::spent::{KnownSpend, SpentMemory};
use self::view::{TopView, update};
use super::Program;
use super::args::Global;
use super::error::{CliError, one_line};
use super::exit::Exit;
use super::explain::Code;
use super::list::run_word;
use super::locate::{LocatedEngine, locate};
use super::output::{Cell, Screen, TextStyle};
use super::reach::Reach;
use super::stuck::Lookout;
use super::time_format::{now, parse_duration, short};
use super::waiting::{Hold, hold_of, status_shown, waiting};
use crate::api::HttpClient;
use crate::api::people::agents::{AgentTally, seen};
use crate::backend::{Access, Backend, CallError};
use crate::inbox::target_of;
use crate::notify::NOTIFICATION;

/// The newest open runs that are shown.
const RUNS_SHOWN: usize = 200;
/// Each of the first so many is asked what it waits for.
const ASKED_MAX: usize = 50;
/// Agents are asked of no more often.
const AGENTS_EVERY: Duration = Duration::from_secs(5);
/// Sooner than this a worker is not asked again.
const EVERY_MIN: Duration = Duration::from_millis(200);

#[derive(Debug, Args)]
pub struct TopArgs {
    /// How often to look.
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = parse_duration)]
    every: Duration,
    /// Print one snapshot and exit, as `top` does when its output is not a terminal.
    #[arg(long)]
    once: bool,
}

/// Everything that is shown, at one moment.
#[derive(Debug, Clone, Default, PartialEq)]
struct ScreenData {
    at: Timestamp,
    /// Nothing: no worker holds the directory, and nothing goes on.
    worker: Option<WorkerNow>,
    open: u64,
    held: u64,
    rows: Vec<TopRow>,
    agents: Vec<AgentRow>,
}

/// What the worker has, and what waits for it.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
struct WorkerNow {
    slots: u64,
    busy: u64,
    external_slots: u64,
    external_busy: u64,
    waiting: BTreeMap<String, u64>,
    lost_threads: u64,
}

impl WorkerNow {
    /// As `GET /api/v1/worker` tells it.
    fn of(facts: &Value) -> WorkerNow {
        let number = |value: &Value| value.as_u64().unwrap_or_default();
        let waiting = facts["waiting_by_queue"].as_object().into_iter().flatten();
        WorkerNow {
            slots: number(&facts["slots"]["all"]),
            busy: number(&facts["slots"]["busy"]),
            external_slots: number(&facts["slots"]["external"]["all"]),
            external_busy: number(&facts["slots"]["external"]["busy"]),
            waiting: waiting.map(|(queue, count)| (queue.clone(), number(count))).collect(),
            lost_threads: number(&facts["lost_threads"]),
        }
    }
}

#[derive(Debug, Clone, PartialEq)]
struct TopRow {
    workflow_id: String,
    workflow_type: String,
    status: String,
    age: String,
    events: u64,
    /// Micro-dollars, of a supervisor or an agent.
    spent: Option<KnownSpend>,
    /// Whom and what it waits for, or what keeps it from going on.
    why: String,
    /// The command that helps.
    help: String,
    urgency: Urgency,
}

/// What is shown first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Urgency {
    Stuck,
    Asks,
    GoesOn,
}

#[derive(Debug, Clone, PartialEq)]
struct AgentRow {
    name: String,
    busy: u64,
    done: u64,
    failed: u64,
    tokens: u64,
    cost_micros: u64,
}

pub(super) async fn top(
    screen: &mut Screen,
    global: &Global,
    program: &Program,
    args: &TopArgs,
) -> Result<Exit, CliError> {
    let namespace = Namespace::new(&global.namespace)?;
    let mut source = RunSource {
        global,
        program,
        namespace,
        reach: screen.reach.clone(),
        attached: None,
        agents: None,
        spent: SpentMemory::default(),
    };
    let first = source.snapshot().await?;
    if args.once || !std::io::stdout().is_terminal() || screen.format != super::output::Format::Text {
        print(screen, &first)?;
        return Ok(Exit::Ok);
    }
    let mut terminal = ratatui::try_init().map_err(broken)?;
    let ended = watch(&mut terminal, &mut source, screen.ascii, first, args.every.max(EVERY_MIN)).await;
    ratatui::restore();
    if let Some(command) = ended? {
        screen.line(screen.reach.complete(&command));
    }
    Ok(Exit::Ok)
}

fn broken(why: std::io::Error) -> CliError {
    CliError::new(Code::Failed, "the terminal cannot be used").cause(why)
}

/// Until somebody leaves; gives the command that was chosen.
async fn watch(
    terminal: &mut ratatui::DefaultTerminal,
    source: &mut RunSource<'_>,
    ascii: bool,
    mut shown: ScreenData,
    every: Duration,
) -> Result<Option<String>, CliError> {
    let mut view = TopView::default();
    let (mut keys, mut problem, mut looked) = (keyboard()?, None, Instant::now());
    let mut next = Instant::now() + every;
    loop {
        view = view.within(shown.rows.len());
        let age = looked.elapsed();
        terminal.draw(|frame| draw(frame, &shown, &view, ascii, problem.as_deref(), age)).map_err(broken)?;
        tokio::select! {
            () = tokio::time::sleep_until(next.into()) => {
                let began = Instant::now();
                match source.snapshot().await {
                    Ok(snapshot) => (shown, problem, looked) = (snapshot, None, Instant::now()),
                    Err(why) => problem = Some(one_line(&why.message)),
                }
                // A look asks up to a hundred questions: a worker that is slow to answer is asked more rarely.
                next = Instant::now() + every.max(began.elapsed().saturating_mul(4));
            }
            pressed = keys.recv() => match pressed {
                Some(Ok(pressed)) => view = pressed.map_or(view, |key| update(view, key)),
                Some(Err(why)) => return Err(broken(why)),
                None => return Ok(None),
            },
        }
        if view.done {
            let chosen = shown.rows.get(view.at).filter(|_| view.chosen);
            return Ok(chosen.map(|row| format!("bosun describe {}", run_word(&row.workflow_id))));
        }
    }
}

/// Where snapshots come from: the worker, or the directory while nobody holds it.
struct RunSource<'a> {
    global: &'a Global,
    program: &'a Program,
    /// The one whose runs are shown.
    namespace: Namespace,
    /// How the commands that help reach them.
    reach: Reach,
    attached: Option<(HttpClient, Arc<dyn Backend>)>,
    /// What was told of agents, and when: each supervisor has to be asked for it.
    agents: Option<(Instant, Vec<AgentRow>)>,
    spent: SpentMemory,
}

impl RunSource<'_> {
    async fn snapshot(&mut self) -> Result<ScreenData, CliError> {
        if let Some((client, backend)) = self.attached.clone() {
            match self.taken(&*backend, Some(&client)).await {
                Ok(snapshot) => return Ok(snapshot),
                // It has left: the next one is at another address.
                Err(CallError::Unreachable { .. } | CallError::Unproven { .. }) => self.attached = None,
                Err(why) => return Err(why.into()),
            }
        }
        let located = locate(self.global, &*self.program.opener, &Access::Look).await?;
        let backend = located.backend(Some(&self.namespace));
        let is_store = self.global.temporal.is_none();
        let known = if is_store { super::used(&*backend, &self.namespace).await } else { Ok(()) };
        match located {
            LocatedEngine::Attached(client) => {
                known?;
                self.attached = Some((client.clone(), backend.clone()));
                Ok(self.taken(&*backend, Some(&client)).await?)
            }
            LocatedEngine::Embedded(engine, _) => {
                let snapshot = self.taken(&*backend, None).await;
                engine.drain(Duration::from_secs(1)).await;
                known?;
                Ok(snapshot?)
            }
        }
    }

    async fn taken(&mut self, backend: &dyn Backend, worker: Option<&HttpClient>) -> Result<ScreenData, CallError> {
        let known = self.agents.take().filter(|(at, _)| at.elapsed() < AGENTS_EVERY);
        let agents = match known {
            Some(known) => known,
            None => (Instant::now(), agents(backend).await?),
        };
        let worker = match worker {
            Some(worker) => Some(WorkerNow::of(&worker.worker_facts().await?)),
            None => None,
        };
        let snapshot = taken(backend, worker, now(), &self.reach, &mut self.spent).await?;
        let told = agents.1.clone();
        self.agents = Some(agents);
        Ok(ScreenData { agents: told, ..snapshot })
    }
}

async fn agents(backend: &dyn Backend) -> Result<Vec<AgentRow>, CallError> {
    let row = |(name, of): (String, AgentTally)| {
        let AgentTally { busy, done, failed, tokens, cost_micros, .. } = of;
        AgentRow { name, busy, done, failed, tokens, cost_micros }
    };
    Ok(seen(backend).await?.tallies.into_iter().map(row).collect())
}

async fn taken(
    backend: &dyn Backend,
    worker: Option<WorkerNow>,
    now: Timestamp,
    reach: &Reach,
    memory: &mut SpentMemory,
) -> Result<ScreenData, CallError> {
    // What the worker tells people is no run of theirs.
    let query = format!("ExecutionStatus IN ('Running', 'Paused') AND WorkflowType != '{NOTIFICATION}'");
    let open = backend.count(query.clone()).await?;
    let runs = backend.list(ListRequest { query, limit: RUNS_SHOWN }).await?;
    let mut lookout = Lookout::new(backend, now).carried_on(worker.is_some());
    let mut rows = Vec::new();
    for (nth, run) in runs.iter().enumerate() {
        let asked = if nth < ASKED_MAX { waiting(backend, run).await } else { Vec::new() };
        let stuck = if nth < ASKED_MAX { lookout.below(target_of(run)).await } else { Vec::new() };
        let (urgency, why, help) = match (asked.first(), stuck.first()) {
            (_, Some(one)) => {
                let of = if one.run == run.workflow_id { String::new() } else { format!(" of {}", one.run) };
                (Urgency::Stuck, format!("{}{of}: {}", one.what, one.said(now, reach)), reach.complete(&one.help))
            }
            (Some(one), _) => {
                let why = format!("waits for {}: {}", one.whom, one.what);
                (Urgency::Asks, why, reach.complete(&one.answer))
            }
            (None, None) => (Urgency::GoesOn, String::new(), String::new()),
        };
        let spent = if nth < ASKED_MAX { memory.of(backend, run).await } else { None };
        rows.push(TopRow { spent, ..row(run, now, hold_of(run, &asked), (urgency, why, help)) });
    }
    memory.keep(&runs);
    told_above(&runs, &mut rows);
    // The order of the list within one urgency: the newest first.
    rows.sort_by_key(|row| row.urgency);
    let held = backend.count("Held = true".to_owned()).await?;
    Ok(ScreenData { at: now, worker, open, held, rows, agents: Vec::new() })
}

/// No run is asked twice, and one below is asked before the one above it, which waits for the same.
fn told_above(runs: &[RunInfo], rows: &mut [TopRow]) {
    let place = |parent: &Parent| runs.iter().position(|run| run.run_id == parent.run_id);
    // The newest first: what is below comes before what is above.
    for (nth, run) in runs.iter().enumerate() {
        let Some(above) = run.parent.as_ref().and_then(place) else { continue };
        if rows[nth].why.is_empty() || !rows[above].why.is_empty() {
            continue;
        }
        let TopRow { workflow_id, why, help, urgency, .. } = rows[nth].clone();
        let why = if why.starts_with("child ") { why } else { format!("child {workflow_id}: {why}") };
        rows[above] = TopRow { why, help, urgency, ..rows[above].clone() };
    }
}

fn row(run: &RunInfo, now: Timestamp, hold: Option<Hold>, (urgency, why, help): (Urgency, String, String)) -> TopRow {
    let urgency = if run.held { Urgency::Stuck } else { urgency };
    TopRow {
        workflow_id: run.workflow_id.to_string(),
        workflow_type: run.workflow_type.to_string(),
        status: status_shown(run.status, run.held, hold),
        age: short(now.since(run.started_at)),
        events: run.history.events,
        spent: None,
        why: one_line(&why),
        help,
        urgency,
    }
}

fn print(screen: &mut Screen, snapshot: &ScreenData) -> Result<(), CliError> {
    let row = |row: &TopRow| {
        json!({ "workflow_id": row.workflow_id, "workflow_type": row.workflow_type, "status": row.status,
            "events": row.events, "cost_micros": row.spent.map(|spent| spent.micros),
            "unpriced_calls": row.spent.map(|spent| spent.unpriced_calls), "why": row.why, "help": row.help })
    };
    let agent = |agent: &AgentRow| {
        json!({ "name": agent.name, "busy": agent.busy, "done": agent.done, "failed": agent.failed,
            "tokens": agent.tokens, "cost_micros": agent.cost_micros })
    };
    screen.object(
        "top",
        json!({
            "worker": snapshot.worker, "open": snapshot.open, "held": snapshot.held,
            "runs": snapshot.rows.iter().map(row).collect::<Vec<Value>>(),
            "agents": snapshot.agents.iter().map(agent).collect::<Vec<Value>>(),
        }),
    );
    screen.line(draw::head(snapshot));
    if snapshot.rows.is_empty() {
        return Ok(());
    }
    let cells = |row: &TopRow| {
        let paint = match row.urgency {
            Urgency::Stuck => TextStyle::Red,
            Urgency::Asks => TextStyle::Yellow,
            Urgency::GoesOn => TextStyle::Plain,
        };
        let status = Cell::of(row.status.as_str(), paint);
        vec![
            row.workflow_id.as_str().into(),
            row.workflow_type.as_str().into(),
            status,
            row.age.as_str().into(),
            row.spent.map_or_else(String::new, KnownSpend::text).into(),
            row.why.as_str().into(),
        ]
    };
    screen.table(
        &["workflow_id", "workflow_type", "status", "age", "spent", "why"],
        snapshot.rows.iter().map(cells).collect(),
    )
}
