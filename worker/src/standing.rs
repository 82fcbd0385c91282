//! Runs by how they stand, as every door shows it: a supervisor or an agent that has paused itself, or whose work a person has
//! taken over, is a running one for the engine (SHN-74) and for a filter; a filter for paused ones, or for those that are taken
//! over, finds it too, as the lists show it.
//!
//! Invariant: only the runs whose own word can change the answer of a filter are asked for it, and none where no word can; a run
//! that cannot answer now stands as the engine says. An answer is remembered with the length of the history that gave it: a run
//! changes its mind by an event. It changes nothing.

use std::collections::BTreeSet;
use std::sync::PoisonError;

use bosun_engine::filter::Filter;
use bosun_engine::*;
use futures_util::{StreamExt, stream};

use crate::agent::AGENT;
use crate::api::people::pages::{Cursor, parse};
use crate::backend::{Backend, CallError, HoldMemory};
use crate::cli::waiting::own_hold;
use crate::supervisor::PLAN_RUN;
use crate::supervisor::run::SUPERVISOR;

/// Runs that are read at a time: the engine gives no more.
const PAGE: usize = 1_000;
/// Runs that are asked at a time.
const ASKED_AT_ONCE: usize = 16;
/// Answers that are remembered: some fifty bytes each.
const REMEMBERED: usize = 100_000;

/// How people hold an open run, as it says itself.
pub(crate) async fn hold(backend: &dyn Backend, info: &RunInfo) -> Option<Hold> {
    if !info.status.is_open() {
        return None;
    }
    let Some(HoldMemory(said)) = backend.holds() else { return own_hold(backend, info).await.flatten() };
    let events = info.history.events;
    let remembered = said.lock().unwrap_or_else(PoisonError::into_inner).get(&info.run_id).copied();
    if let Some((_, hold)) = remembered.filter(|(after, _)| *after == events) {
        return hold;
    }
    let hold = own_hold(backend, info).await?;
    let mut said = said.lock().unwrap_or_else(PoisonError::into_inner);
    if said.len() >= REMEMBERED {
        said.clear();
    }
    said.insert(info.run_id, (events, hold));
    hold
}

/// The runs, each with what it says of how people hold it.
pub(crate) async fn with_holds(backend: &dyn Backend, runs: Vec<RunInfo>) -> Vec<RunInfo> {
    let one = |info: RunInfo| async move { RunInfo { hold: hold(backend, &info).await, ..info } };
    stream::iter(runs).map(one).buffered(ASKED_AT_ONCE).collect().await
}

/// The first runs that fit a filter, in its order.
pub(crate) async fn list(backend: &dyn Backend, filter: &Filter, limit: usize) -> Result<Vec<RunInfo>, CallError> {
    let held = held(backend, filter).await?;
    if held.is_empty() && !filter.is_default_order() {
        return backend.list(ListRequest { query: filter.to_string(), limit }).await;
    }
    let ids: BTreeSet<RunId> = held.iter().map(|info| info.run_id).collect();
    let with_held = limit.saturating_add(held.len());
    let mut found = if filter.is_default_order() {
        others(backend, filter, limit, &ids).await?
    } else if with_held <= PAGE {
        let first = backend.list(ListRequest { query: filter.to_string(), limit: with_held }).await?;
        first.into_iter().filter(|info| !ids.contains(&info.run_id)).collect()
    } else {
        // Only the order of all lists says where the next page begins: in another one all are read before the first is known.
        others(backend, &filter.clone().in_default_order(), usize::MAX, &ids).await?
    };
    if !held.is_empty() {
        found.extend(held.into_iter().filter(|info| filter.matches(info)));
        found.sort_by(|a, b| filter.compare(a, b));
        found.truncate(limit);
    }
    Ok(found)
}

/// How many runs fit a filter.
pub(crate) async fn count(backend: &dyn Backend, filter: &Filter) -> Result<u64, CallError> {
    let held = held(backend, filter).await?;
    let all = backend.count(filter.to_string()).await?;
    let fit = |info: &&RunInfo| filter.matches(info);
    let as_engine = held.iter().filter(|info| fit(&&RunInfo { hold: None, ..(*info).clone() })).count() as u64;
    Ok(all.saturating_sub(as_engine) + held.iter().filter(fit).count() as u64)
}

/// The runs that people hold, and of which a filter thinks otherwise for that.
async fn held(backend: &dyn Backend, filter: &Filter) -> Result<Vec<RunInfo>, CallError> {
    if !filter.asks_for_holds() || backend.looks_at_holds() {
        return Ok(Vec::new());
    }
    let of_types = format!("WorkflowType IN ('{SUPERVISOR}', '{PLAN_RUN}', '{AGENT}')");
    let open = parse(&format!("{of_types} AND ExecutionStatus IN ('Running', 'Paused')"))?;
    let differs = |info: &RunInfo| {
        let fits = |hold| filter.matches(&RunInfo { hold, ..info.clone() });
        [Hold::Paused, Hold::TakenOver].into_iter().any(|hold| fits(Some(hold)) != fits(None))
    };
    let (mut all, mut after) = (Vec::new(), None);
    loop {
        let (runs, next) = page(backend, &open, PAGE, after).await?;
        let runs = runs.into_iter().filter(differs).collect();
        all.extend(with_holds(backend, runs).await.into_iter().filter(|info| info.hold.is_some()));
        match next {
            Some(next) => after = Some(next),
            None => return Ok(all),
        }
    }
}

/// The first runs that fit a filter in the engine's words, without some.
async fn others(
    backend: &dyn Backend,
    filter: &Filter,
    limit: usize,
    without: &BTreeSet<RunId>,
) -> Result<Vec<RunInfo>, CallError> {
    let at_once = limit.saturating_add(without.len()).min(PAGE);
    let (mut all, mut after) = (Vec::new(), None);
    loop {
        let (runs, next) = page(backend, filter, at_once, after).await?;
        all.extend(runs.into_iter().filter(|info| !without.contains(&info.run_id)));
        if all.len() >= limit || next.is_none() {
            all.truncate(limit);
            return Ok(all);
        }
        after = next;
    }
}

async fn page(
    backend: &dyn Backend,
    filter: &Filter,
    limit: usize,
    after: Option<Cursor>,
) -> Result<(Vec<RunInfo>, Option<Cursor>), CallError> {
    let filter = match &after {
        Some(after) => filter.clone().and(after.rest()?),
        None => filter.clone(),
    };
    let found = backend.list(ListRequest { query: filter.to_string(), limit }).await?;
    let next = found.last().filter(|_| found.len() == limit).map(Cursor::of);
    Ok((found, next))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::fake::{Fake, run_info};

    /// Runs from the newest to the oldest, of which the supervisors are paused.
    fn store(types: impl IntoIterator<Item = &'static str>) -> Fake {
        let run = |(n, of): (u64, &str)| {
            let mut info = run_info(&format!("run-{n}"), WorkflowStatus::Running);
            let mut id = [0; 16];
            id[..8].copy_from_slice(&n.to_be_bytes());
            (info.run_id, info.workflow_type) = (RunId(id), WorkflowType::of(of));
            info.started_at = Timestamp(9_000_000_000_000 - i64::try_from(n).unwrap());
            info
        };
        let mut fake = Fake::new();
        fake.runs = (0..).zip(types).map(run).collect();
        let waiting = |info: &RunInfo| json!({ "kind": "pause", "id": info.workflow_id });
        fake.query = Payload::encode(&fake.runs.iter().map(waiting).collect::<Vec<_>>()).unwrap();
        fake
    }

    async fn ids(store: &Fake, query: &str, limit: usize) -> Vec<String> {
        let found = list(store, &parse(query).unwrap(), limit).await.unwrap();
        found.iter().map(|info| info.workflow_id.to_string()).collect()
    }

    #[tokio::test]
    async fn a_filter_by_status_finds_what_lists_show() {
        let some = store(["order", SUPERVISOR, "order", SUPERVISOR, SUPERVISOR]);
        assert_eq!(ids(&some, "ExecutionStatus = 'Paused'", 2).await, ["run-1", "run-3"], "the newest first");
        assert_eq!(ids(&some, "ExecutionStatus != 'Paused'", 9).await, ["run-0", "run-2"]);
        assert_eq!(ids(&some, "ExecutionStatus != 'Paused' ORDER BY WorkflowId DESC", 1).await, ["run-2"]);
        assert_eq!(ids(&some, "ExecutionStatus = 'Paused' AND WorkflowId > 'run-3'", 9).await, ["run-4"]);
        let all = ids(&some, "ExecutionStatus IN ('Running', 'Paused')", 9).await;
        assert_eq!(all.len(), 5);
        // Nobody was asked who could not change the answer.
        let asked = some.calls().iter().filter(|call| call.starts_with("query")).count();
        assert_eq!(asked, 3 + 3 + 3 + 1, "{:?}", some.calls());
    }

    /// More paused runs than the engine lists at a time hide none that is behind them.
    #[tokio::test]
    async fn many_paused_runs_hide_no_other() {
        let many = store(std::iter::repeat_n(SUPERVISOR, 1_200).chain(["order", "order"]));
        assert_eq!(ids(&many, "ExecutionStatus != 'Paused'", 2).await, ["run-1200", "run-1201"]);
        let ordered = "ExecutionStatus != 'Paused' ORDER BY WorkflowId DESC";
        assert_eq!(ids(&many, ordered, 9).await, ["run-1201", "run-1200"], "in any order");
        assert_eq!(ids(&many, "ExecutionStatus = 'Running'", 2).await, ["run-0", "run-1"], "they run all the same");
        assert_eq!(ids(&many, "ExecutionStatus = 'Paused'", 1_100).await.len(), 1_100);
    }
}
