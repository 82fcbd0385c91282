//! A list of runs, page by page.
//!
//! Invariant: whoever reads from the first page to the last sees every run once that was there all the time, whatever the
//! size of the pages and however many runs began at one moment. A page reads what it shows and nothing else.

use bosun_engine::filter::{Filter, FilterError};
use bosun_engine::*;

use super::super::problem::Problem;
use crate::backend::{Backend, CallError};
use crate::notify::rules::run::{OF_CHANNEL, OF_KIND, OF_RUN};
use crate::notify::{ID_PREFIX, NOTIFICATION};
use crate::standing;

/// A page has at most this many runs.
pub(crate) const RUNS_MAX: usize = 500;

/// The last run of a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Cursor {
    at: Timestamp,
    run: RunId,
}

/// The runs of a page, the newest first, and where the next one begins, if there is one. `all`: also those that a worker
/// started to tell people of others.
pub(crate) async fn page(
    backend: &dyn Backend,
    query: &str,
    all: bool,
    limit: usize,
    after: Option<Cursor>,
) -> Result<(Vec<RunInfo>, Option<Cursor>), Problem> {
    let filter = of_pages(query)?;
    let filter = if all { filter } else { without_notifications(filter)? };
    Ok(page_of(backend, filter, limit, after).await?)
}

/// The filter without the runs that a worker started to tell people of others, unless it asks for them: by a type of Bosun's
/// own, an id, or what only notifications have.
pub(crate) fn without_notifications(filter: Filter) -> Result<Filter, Rejection> {
    let of_them = |name: &FieldName| [OF_RUN, OF_CHANNEL, OF_KIND].contains(&name.as_str());
    let by_name = filter.asks_for_types("bosun.") || filter.attributes().into_iter().any(of_them);
    if by_name || filter.asks_for_ids(ID_PREFIX) || filter.asks_for_runs() {
        return Ok(filter);
    }
    Ok(filter.and(parse(&format!("WorkflowType != '{NOTIFICATION}'"))?))
}

/// The same of a filter that has the order of all lists.
pub(crate) async fn page_of(
    backend: &dyn Backend,
    filter: Filter,
    limit: usize,
    after: Option<Cursor>,
) -> Result<(Vec<RunInfo>, Option<Cursor>), CallError> {
    let filter = match &after {
        Some(after) => filter.and(after.rest()?),
        None => filter,
    };
    let mut found = standing::list(backend, &filter, limit + 1).await?;
    let more = found.len() > limit;
    found.truncate(limit);
    let next = found.last().filter(|_| more).map(Cursor::of);
    Ok((found, next))
}

/// The filter of a list that can be read on where a page ended: only the order of all lists says where that is.
fn of_pages(query: &str) -> Result<Filter, Problem> {
    let filter = parse(query)?;
    if filter.is_default_order() {
        return Ok(filter);
    }
    let why =
        "query: pages are of the newest runs first, and in no other order: leave out ORDER BY, or ask for `bosun list`";
    Err(Problem::bad_request(why))
}

/// A list filter as it is written.
pub(crate) fn parse(query: &str) -> Result<Filter, Rejection> {
    let invalid =
        |why: FilterError| Rejection::Invalid { what: format!("list filter {query:?}"), why: why.to_string() };
    Filter::parse(query).map_err(invalid)
}

impl Cursor {
    pub(crate) fn read(text: &str) -> Result<Cursor, Problem> {
        let read = || {
            let (at, run) = text.split_once('.')?;
            Some(Cursor { at: Timestamp(at.parse().ok()?), run: run.parse().ok()? })
        };
        read().ok_or_else(|| Problem::bad_request("cursor: take the `next_cursor` of the page before as it stands"))
    }

    /// The place of a run.
    pub(crate) fn of(run: &RunInfo) -> Cursor {
        Cursor { at: run.started_at, run: run.run_id }
    }

    /// What stands behind it: runs of one moment are told apart by their ids, the greatest first.
    pub(crate) fn rest(&self) -> Result<Filter, Rejection> {
        let Cursor { at, run } = self;
        parse(&format!("StartTime < '{at}' OR (StartTime = '{at}' AND RunId < '{run}')"))
    }
}

impl std::fmt::Display for Cursor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}", self.at.0, self.run)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::fake::{Fake, run_info};

    /// Runs that began at these moments, in the order of a list.
    fn store(moments: impl IntoIterator<Item = i64>) -> Fake {
        let run = |(n, at): (usize, i64)| {
            let mut id = [0; 16];
            id[..8].copy_from_slice(&(n as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes());
            let mut info = run_info(&format!("run-{n}"), WorkflowStatus::Running);
            (info.run_id, info.started_at) = (RunId(id), Timestamp(900_000_000 + at));
            info
        };
        let mut runs: Vec<RunInfo> = moments.into_iter().enumerate().map(run).collect();
        let newest_first = Filter::default();
        runs.sort_by(|a, b| newest_first.compare(a, b));
        let mut fake = Fake::new();
        fake.runs = runs;
        fake
    }

    /// All pages, and whether only the last one was the end.
    async fn all(store: &Fake, query: &str, limit: usize) -> Vec<RunId> {
        let (mut seen, mut after) = (Vec::new(), None);
        loop {
            let (runs, next) = page(store, query, true, limit, after).await.unwrap();
            assert!(runs.len() == limit || next.is_none(), "a page that is not full is the last one");
            seen.extend(runs.iter().map(|run| run.run_id));
            assert!(seen.len() <= store.runs.len(), "a run is shown twice");
            let Some(next) = next else { return seen };
            assert!(seen.len() < store.runs.len(), "there is no next page without a run");
            // As it comes back from whoever asked.
            after = Some(Cursor::read(&next.to_string()).unwrap());
        }
    }

    fn ids(store: &Fake) -> Vec<RunId> {
        store.runs.iter().map(|run| run.run_id).collect()
    }

    #[tokio::test]
    async fn more_runs_of_one_moment_than_a_list_holds_are_all_reached() {
        let many = store(std::iter::repeat_n(7, 1_300));
        for limit in [1, 100, 499, 500] {
            assert_eq!(all(&many, "", limit).await, ids(&many), "{limit}");
        }
        let older = store((0..1_300).map(|n| n / 400));
        assert_eq!(all(&older, "WorkflowType = 'order' OR WorkflowType = 'none'", 500).await, ids(&older));
    }

    #[tokio::test]
    async fn a_list_in_another_order_is_refused_with_why() {
        let some = store(0..3);
        let why = page(&some, "WorkflowType = 'order' ORDER BY CloseTime", true, 2, None).await.unwrap_err();
        assert!(why.status == 400 && why.message.contains("ORDER BY"), "{why:?}");
        assert_eq!(all(&some, "ORDER BY StartTime DESC", 2).await, ids(&some), "the order that it has");
        assert!(
            some.calls().iter().all(|call| call.ends_with(" 3")),
            "no more than a page and one: {:?}",
            some.calls()
        );
    }

    /// What a worker tells people is no run of theirs, and is found by who asks for it.
    #[tokio::test]
    async fn notifications_are_left_out_unless_they_are_asked_for() {
        let mut some = store(0..4);
        some.runs[1].workflow_type = WorkflowType::of(NOTIFICATION);
        let told = some.runs[1].run_id;
        let listed = async |query: &str, all| {
            let (runs, next) = page(&some, query, all, 10, None).await.unwrap();
            assert!(next.is_none());
            runs.iter().map(|run| run.run_id).collect::<Vec<_>>()
        };
        assert_eq!(listed("", true).await, ids(&some));
        let others: Vec<RunId> = ids(&some).into_iter().filter(|id| *id != told).collect();
        assert_eq!(listed("", false).await, others);
        let kind = some.runs[0].workflow_type.clone();
        assert_eq!(listed(&format!("WorkflowType = '{kind}' OR ExecutionStatus = 'Running'"), false).await, others);
        assert_eq!(listed(&format!("WorkflowType = '{NOTIFICATION}'"), false).await, [told]);
        assert_eq!(listed("WorkflowType STARTS_WITH 'bosun.'", false).await, [told]);
        assert_eq!(listed(&format!("RunId = '{told}'"), false).await, [told]);
        let asked = |query: &str| {
            let filter = parse(query).unwrap();
            without_notifications(filter.clone()).unwrap().to_string() == filter.to_string()
        };
        for query in [
            "NotificationOfRun = 'r'",
            "NotificationChannel IN ('ops') AND ExecutionStatus = 'Running'",
            "NotificationKind = 'failed'",
            "WorkflowId STARTS_WITH 'notify:'",
            "WorkflowId = 'notify:a'",
        ] {
            assert!(asked(query), "{query}");
        }
        for query in ["", "WorkflowId = 'order-7'", "Amount > 3", "RunId != '07070707-0707-0707-0707-070707070707'"] {
            assert!(!asked(query), "{query}");
        }
    }

    proptest! {
        #[test]
        fn every_run_is_on_one_page(moments in prop::collection::vec(0..6_i64, 0..60), limit in 1..70_usize) {
            let store = store(moments);
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            prop_assert_eq!(runtime.block_on(all(&store, "", limit)), ids(&store));
        }
    }
}
