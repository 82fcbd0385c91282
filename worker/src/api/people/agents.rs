//! Agents: who works in the runs, how it goes, how far they are trusted, what they cost, and what keeps them now.
//!
//! Invariant: figures are what runs say of their own agents, of at most [`RUNS`] supervisors and as many agents with a run of
//! their own, the newest of each. Nothing is counted that no run tells.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bosun_engine::*;
use futures_util::{StreamExt, stream};
use serde_json::{Value, json};

use super::super::guard::now;
use super::super::handlers::AuthorizedCaller;
use super::handlers::{Answer, ok};
use super::queries::ask;
use super::view;
use crate::agent::AGENT;
use crate::backend::{Backend, CallError};
use crate::cli::stuck::{Lookout, Obstacle};
use crate::cli::waiting::{ABOVE, Hold, WaitingRow, waiting};
use crate::inbox::target_of;
use crate::supervisor::run::SUPERVISOR;

/// Runs whose agents are shown.
pub(crate) const RUNS: usize = 100;
const ASKED_AT_ONCE: usize = 8;

/// What the runs together say of an agent.
#[derive(Debug, Default)]
pub(crate) struct AgentTally {
    pub attempts: u64,
    pub done: u64,
    pub failed: u64,
    pub sent_back: u64,
    pub tokens: u64,
    pub cost_micros: u64,
    /// Attempts of which nobody knows what they cost, or not all of it.
    pub unpriced: u64,
    /// Of runs that are open: what it does now.
    pub busy: u64,
    pub runs: u64,
    /// How long each attempt took that is over.
    took: Vec<Duration>,
    /// Why the last of its tasks failed that did.
    pub last_error: Option<String>,
}

impl AgentTally {
    /// What it spent, for people: what nobody knows the price of is no zero.
    pub(crate) fn spent(&self, dollars: fn(u64) -> String) -> String {
        match (self.cost_micros, self.unpriced) {
            (micros, 0) => dollars(micros),
            (0, unknown) => format!("{unknown} of unknown price"),
            (micros, unknown) => format!("{} and {unknown} of unknown price", dollars(micros)),
        }
    }

    /// The agent of this name, as it is told.
    pub(crate) fn told(&self, name: &str) -> Value {
        json!({ "name": name, "runs": self.runs, "attempts": self.attempts, "done": self.done, "failed": self.failed,
            "sent_back": self.sent_back, "busy": self.busy, "tokens": self.tokens, "cost_micros": self.cost_micros,
            "unpriced_calls": self.unpriced, "median_ms": self.median().map(|took| took.as_millis() as u64), "last_error": self.last_error })
    }

    /// How many of a hundred attempts that ended well or badly were done; nothing of one who has ended none, as a person who only
    /// asked.
    pub(crate) fn done_of_ended(&self) -> Option<u64> {
        (self.done * 100).checked_div(self.done + self.failed)
    }

    /// Half of its attempts took no longer.
    pub(crate) fn median(&self) -> Option<Duration> {
        let mut took = self.took.clone();
        took.sort_unstable();
        took.get(took.len().saturating_sub(1) / 2).copied()
    }
}

/// How far a supervisor is trusted to go alone.
#[derive(Debug)]
pub(crate) struct RunTrust {
    pub info: RunInfo,
    /// The answer to its query `trust_level`.
    pub view: Value,
}

/// An agent with a run of its own.
#[derive(Debug)]
pub(crate) struct AgentRun {
    pub info: RunInfo,
    pub state: Value,
    pub cost: Value,
}

/// All of it.
#[derive(Debug, Default)]
pub(crate) struct AgentsSeen {
    pub tallies: BTreeMap<String, AgentTally>,
    pub trust: Vec<RunTrust>,
    pub recruits: Vec<Value>,
    pub agents: Vec<AgentRun>,
    pub obstacles: Vec<(Namespace, Obstacle)>,
}

pub(crate) async fn seen(backend: &dyn Backend) -> Result<AgentsSeen, CallError> {
    let runs_of = |workflow_type: &str| ListRequest { query: format!("WorkflowType = '{workflow_type}'"), limit: RUNS };
    let supervisors = backend.list(runs_of(SUPERVISOR)).await?;
    let agents = backend.list(runs_of(AGENT)).await?;
    let mut seen = AgentsSeen::default();
    let of_supervisor = |info: RunInfo| async move {
        let target = target_of(&info);
        let of = |query| ask(backend, &target, query);
        let (plan, roster, trust) = tokio::join!(of("get_plan"), of("team_roster"), of("trust_level"));
        // A chat and a delegation have no plan, and say who works beside their rows.
        let beside = if plan["tasks"].is_object() { Value::Null } else { of("progress").await["beside_rows"].take() };
        (info, (plan, beside), roster, trust)
    };
    let told: Vec<_> = stream::iter(supervisors.clone()).map(of_supervisor).buffered(ASKED_AT_ONCE).collect().await;
    for (info, (plan, beside), roster, trust) in told {
        count(&plan, info.status.is_open(), &mut seen.tallies);
        count_beside(&beside, info.status.is_open(), &mut seen.tallies);
        let recruits = roster.as_array().into_iter().flatten().filter(|one| one["origin"] == "recruit");
        seen.recruits.extend(recruits.cloned());
        if info.status.is_open() && trust["level"].is_string() {
            seen.trust.push(RunTrust { info, view: trust });
        }
    }
    let of_agent = |info: RunInfo| async move {
        let target = target_of(&info);
        let (state, cost) = tokio::join!(ask(backend, &target, "state"), ask(backend, &target, "cost"));
        AgentRun { info, state, cost }
    };
    seen.agents = stream::iter(agents.clone()).map(of_agent).buffered(ASKED_AT_ONCE).collect().await;
    let mut lookout = Lookout::new(backend, now());
    for info in supervisors.iter().chain(&agents).filter(|info| info.status.is_open()) {
        let found = lookout.below(target_of(info)).await;
        let paused = waiting(backend, info).await.into_iter().filter_map(|row| stands_still(info, row));
        seen.obstacles.extend(found.into_iter().chain(paused).map(|one| (info.namespace.clone(), one)));
    }
    Ok(seen)
}

/// Who made an attempt, as the page of the run names them: the agent, or the role that the task is for where no agent is named.
fn worker<'v>(task: &'v Value, attempt: &'v Value) -> Option<&'v str> {
    let named = [&attempt["agent"], &task["agent"], &task["role"]];
    named.into_iter().filter_map(Value::as_str).find(|name| !name.is_empty())
}

/// A run that has paused itself, or an agent that has halted, does nothing until somebody sees to it: what it asks of people
/// otherwise stands in the inbox.
fn stands_still(info: &RunInfo, row: WaitingRow) -> Option<Obstacle> {
    let (is_agent, is_own) = (info.workflow_type.as_str() == AGENT, row.id == info.workflow_id.as_str());
    // Of a run below, or above, that run tells itself.
    let keeps = row.whom == ABOVE || (is_own && (is_agent || row.hold == Some(Hold::Paused)));
    let run = info.workflow_id.clone();
    let (what, why) = ("pause".to_owned(), format!("waits for {}: {}", row.whom, row.what));
    keeps.then_some(Obstacle { run, what, why, attempt: None, next_attempt_at: None, help: row.answer })
}

/// What a plan says of those who worked on it. A task that nobody was named for is the supervisor's own.
fn count(plan: &Value, is_open: bool, tallies: &mut BTreeMap<String, AgentTally>) {
    let mut seen = BTreeSet::new();
    for task in plan["tasks"].as_object().into_iter().flatten().map(|(_, task)| task) {
        let attempts: Vec<(&Value, &str)> = task["attempts"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|attempt| Some((attempt, worker(task, attempt)?)))
            .collect();
        for (attempt, name) in &attempts {
            of_attempt(attempt, is_open, tallies.entry((*name).to_owned()).or_default());
            seen.insert((*name).to_owned());
        }
        let Some((_, last)) = attempts.last() else { continue };
        for feedback in task["feedback"].as_array().into_iter().flatten().filter(|one| is_sent_back(one)) {
            let of = attempts.iter().find(|(attempt, _)| attempt["n"] == feedback["attempt"]);
            let name = of.map_or(*last, |(_, name)| *name);
            tallies.entry(name.to_owned()).or_default().sent_back += 1;
        }
        if let Some(why) = task["error"].as_str() {
            tallies.entry((*last).to_owned()).or_default().last_error = Some(why.to_owned());
        }
    }
    for name in seen {
        tallies.entry(name).or_default().runs += 1;
    }
}

/// Whether this feedback of a task sent its attempt back: a review that passes is feedback, too.
pub(crate) fn is_sent_back(feedback: &Value) -> bool {
    feedback["passed"] != true
}

/// What a chat says of its speakers, each message one attempt, and a delegation of its agents, each session one.
fn count_beside(beside: &Value, is_open: bool, tallies: &mut BTreeMap<String, AgentTally>) {
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let chat = &beside["chat"];
    let speaks = chat["waiting"]["speaker"]["agent"].as_str().filter(|_| is_open);
    for name in list(&chat["agents"]).iter().filter_map(Value::as_str) {
        let said = list(&beside["messages"]).iter().filter(|message| message["from"] == name).count() as u64;
        let busy = u64::from(speaks == Some(name));
        let tally = tallies.entry(name.to_owned()).or_default();
        (tally.runs, tally.attempts, tally.done) = (tally.runs + 1, tally.attempts + said + busy, tally.done + said);
        tally.busy += busy;
    }
    let mut seen = BTreeSet::new();
    for session in list(&beside["agents"]["sessions"]) {
        let Some(name) = session["agent"].as_str().filter(|name| !name.is_empty()) else { continue };
        let tally = tallies.entry(name.to_owned()).or_default();
        tally.attempts += 1;
        match session["status"].as_str() {
            Some("completed") => tally.done += 1,
            Some("failed") => tally.failed += 1,
            // Of a run that has ended, one that never came to an end.
            _ => tally.busy += u64::from(is_open),
        }
        tally.runs += u64::from(seen.insert(name.to_owned()));
    }
}

fn of_attempt(attempt: &Value, is_open: bool, tally: &mut AgentTally) {
    tally.attempts += 1;
    // Whoever works may claim absurdly much.
    let plus = |sum: &mut u64, key: &str| *sum = sum.saturating_add(attempt[key].as_u64().unwrap_or_default());
    plus(&mut tally.tokens, "tokens");
    plus(&mut tally.cost_micros, "cost_micros");
    plus(&mut tally.unpriced, "unpriced_calls");
    match attempt["outcome"].as_str() {
        Some("completed") => tally.done += 1,
        Some("failed" | "errored" | "timed_out") => tally.failed += 1,
        // Of a run that has ended, one that never came to an end.
        Some("running") | None => tally.busy += u64::from(is_open),
        // Cancelled, or somebody was asked.
        Some(_) => {}
    }
    let at = |key: &str| attempt[key].as_i64().map(Timestamp);
    if let (Some(from), Some(to)) = (at("started_at"), at("ended_at")) {
        tally.took.push(to.since(from));
    }
}

pub async fn agents(me: AuthorizedCaller) -> Answer {
    let AgentsSeen { tallies, trust, recruits, agents, obstacles } = seen(&me.backend).await?;
    let tally = |(name, of): (&String, &AgentTally)| of.told(name);
    let in_way = |(namespace, one): &(Namespace, Obstacle)| {
        let mut told = view::obstacle(one, me.reach.complete_in(namespace, &one.help));
        told["namespace"] = json!(namespace);
        told
    };
    let trusted =
        |of: &RunTrust| json!({ "workflow_id": of.info.workflow_id, "run_id": of.info.run_id, "trust": of.view });
    let run = |of: &AgentRun| json!({ "workflow": view::run(&of.info), "state": of.state, "cost": of.cost });
    ok(json!({
        "agents": tallies.iter().map(tally).collect::<Vec<Value>>(),
        "runs": agents.iter().map(run).collect::<Vec<Value>>(),
        "trust": trust.iter().map(trusted).collect::<Vec<Value>>(),
        "recruits": recruits,
        "obstacles": obstacles.iter().map(in_way).collect::<Vec<Value>>(),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A supervisor that has paused because its model cannot be reached is in trouble; what it asks of people is no trouble.
    #[test]
    fn what_has_paused_itself_is_in_trouble() {
        let mut info = crate::fake::run_info("order-7", WorkflowStatus::Running);
        info.workflow_type = WorkflowType::of(SUPERVISOR);
        let row = |kind: &str, id: &str| {
            WaitingRow::of(&json!({ "kind": kind, "id": id, "whom": "a person", "what": "to be resumed: no route",
                "answer": format!("bosun resume {id}") }))
        };
        let told = stands_still(&info, row("pause", "order-7")).unwrap();
        assert!(told.why.contains("no route") && told.help == "bosun resume order-7", "{told:?}");
        for (kind, id) in [("pause", "order-7-below"), ("takeover", "order-7"), ("approval", "order-7")] {
            assert_eq!(stands_still(&info, row(kind, id)), None, "{kind} {id}");
        }
    }

    #[test]
    fn speakers_and_sessions_are_counted_by_what_they_have_done() {
        let chat = json!({ "chat": { "agents": ["ann", "bob"], "waiting": { "speaker": { "agent": "bob" } } },
            "messages": [{ "from": "user" }, { "from": "ann" }, { "from": "bob" }, { "from": "ann" }] });
        let session = |agent: &str, status: &str| json!({ "agent": agent, "status": status });
        let tree = json!({ "agents": { "sessions": [session("ann", "active"), session("cyd", "failed"), session("cyd", "completed")] } });
        let mut tallies = BTreeMap::new();
        count_beside(&chat, true, &mut tallies);
        count_beside(&tree, false, &mut tallies);
        count_beside(&Value::Null, true, &mut tallies);
        let of = |name: &str| {
            let AgentTally { runs, attempts, done, failed, busy, .. } = &tallies[name];
            [*runs, *attempts, *done, *failed, *busy]
        };
        assert_eq!((of("ann"), of("bob"), of("cyd")), ([2, 3, 2, 0, 0], [1, 2, 1, 0, 1], [1, 2, 1, 1, 0]));
        assert!(!tallies.contains_key("user"), "nobody of the team");
        assert_eq!(
            (tallies["cyd"].done_of_ended(), AgentTally { attempts: 1, ..AgentTally::default() }.done_of_ended()),
            (Some(50), None)
        );
    }

    #[test]
    fn an_agent_is_counted_by_what_the_plan_says_of_it() {
        let attempt = |n: u32, agent: &str, outcome: Option<&str>, took: i64| {
            json!({ "n": n, "agent": agent, "outcome": outcome, "started_at": 1_000_000, "ended_at": 1_000_000 + took * 1_000,
                "tokens": 10, "cost_micros": 5 })
        };
        let said = |attempt: u32, passed: bool| json!({ "attempt": attempt, "text": "", "passed": passed });
        let plan = json!({ "tasks": {
            "a": { "attempts": [attempt(1, "ann", Some("failed"), 3), attempt(2, "bob", Some("completed"), 1)],
                "feedback": [said(1, false), said(2, true)] },
            "b": { "attempts": [attempt(1, "ann", Some("errored"), 9), attempt(2, "ann", Some("completed"), 1)], "error": "no route",
                "feedback": [said(2, true)] },
            "c": { "attempts": [attempt(1, "", Some("completed"), 1)] },
            "d": { "role": "analyst", "attempts": [attempt(1, "", Some("completed"), 1)] } } });
        let mut tallies = BTreeMap::new();
        count(&plan, true, &mut tallies);
        let attempts = [attempt(1, "ann", Some("failed"), 1), attempt(2, "ann", Some("running"), 0)];
        let at_work = json!({ "tasks": { "a": { "attempts": attempts } } });
        for (is_open, busy) in [(true, 1), (false, 0)] {
            let mut tallies = BTreeMap::new();
            count(&at_work, is_open, &mut tallies);
            assert_eq!((tallies["ann"].busy, tallies["ann"].failed), (busy, 1), "open: {is_open}");
        }
        // Where a task names no agent it is known by its role.
        assert_eq!(tallies.keys().collect::<Vec<_>>(), ["analyst", "ann", "bob"], "nobody has no row");
        assert_eq!(tallies["analyst"].done, 1);
        // The one whose attempt it was, once, and never for what was accepted.
        assert_eq!((tallies["ann"].sent_back, tallies["bob"].sent_back), (1, 0));
        let ann = &tallies["ann"];
        assert_eq!((ann.runs, ann.attempts, ann.done, ann.failed, ann.sent_back), (1, 3, 1, 2, 1));
        assert_eq!((ann.tokens, ann.cost_micros, ann.median()), (30, 15, Some(Duration::from_millis(3))));
        assert_eq!(ann.last_error.as_deref(), Some("no route"));
        let dollars = |micros: u64| format!("{micros} micros");
        assert_eq!(ann.spent(dollars), "15 micros");
        of_attempt(
            &json!({ "tokens": 3, "cost_micros": 0, "unpriced_calls": 1 }),
            false,
            tallies.get_mut("ann").unwrap(),
        );
        assert_eq!(tallies["ann"].spent(dollars), "15 micros and 1 of unknown price");
        assert_eq!(AgentTally { unpriced: 2, ..AgentTally::default() }.spent(dollars), "2 of unknown price");
    }
}
