//! What a history adds up to: events by type, how long it took, its activities and their retries.
//!
//! Invariant: computed from the history alone, in integers; what the history does not say is absent, never guessed.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use bosun_engine::Timestamp;
use serde::Serialize;

use super::{TemporalEvent, TemporalHistory};

/// What a history says in numbers.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Statistics {
    /// The workflow type.
    pub workflow_type: Option<String>,
    /// `Completed`, `Failed`, …; nothing while the run is open.
    pub status: Option<String>,
    /// How many events there are.
    pub events: usize,
    /// How many of each type.
    pub by_type: BTreeMap<String, u64>,
    /// When the run began.
    pub started_at: Option<Timestamp>,
    /// When it ended.
    pub ended_at: Option<Timestamp>,
    /// How long it took.
    pub duration_ms: Option<u64>,
    /// Workflow tasks that were completed.
    pub workflow_tasks_completed: u64,
    /// Workflow tasks that failed.
    pub workflow_tasks_failed: u64,
    /// The activities, by type.
    pub activities: BTreeMap<String, ActivityStatistics>,
}

/// All activities of one type.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct ActivityStatistics {
    /// How often it was scheduled.
    pub scheduled: u64,
    /// How often it completed.
    pub completed: u64,
    /// How often it failed.
    pub failed: u64,
    /// How often it timed out.
    pub timed_out: u64,
    /// How often it was canceled.
    pub canceled: u64,
    /// Attempts after the first.
    pub retries: u64,
    /// From scheduling to the end, over all that ended.
    pub total_ms: u64,
    /// The longest time from schedule to end.
    pub longest_ms: u64,
}

impl TemporalHistory {
    /// Counts what the history holds.
    pub fn statistics(&self) -> Statistics {
        let mut statistics = Statistics {
            workflow_type: None,
            status: None,
            events: self.events().len(),
            by_type: BTreeMap::new(),
            started_at: self.events().iter().find_map(|event| event.at),
            ended_at: self.events().iter().rev().find_map(|event| event.at),
            duration_ms: None,
            workflow_tasks_completed: 0,
            workflow_tasks_failed: 0,
            activities: BTreeMap::new(),
        };
        for event in self.events() {
            *statistics.by_type.entry(event.event_type.clone()).or_default() += 1;
            match event.event_type.as_str() {
                "WorkflowExecutionStarted" => {
                    statistics.workflow_type = event.name_of("workflowType").map(str::to_owned);
                }
                "WorkflowTaskCompleted" => statistics.workflow_tasks_completed += 1,
                "WorkflowTaskFailed" | "WorkflowTaskTimedOut" => statistics.workflow_tasks_failed += 1,
                other => statistics.status = closing(other).map(str::to_owned).or(statistics.status.take()),
            }
            self.count_activity(event, &mut statistics.activities);
        }
        statistics.duration_ms = between(statistics.started_at, statistics.ended_at);
        statistics
    }

    fn count_activity(&self, event: &TemporalEvent, activities: &mut BTreeMap<String, ActivityStatistics>) {
        let Some(what) = event.event_type.strip_prefix("ActivityTask") else { return };
        let scheduled = match what {
            "Scheduled" => Some(event),
            _ => self.event(event.number("scheduledEventId")),
        };
        let Some(scheduled) = scheduled.filter(|scheduled| scheduled.event_type == "ActivityTaskScheduled") else {
            return;
        };
        let name = scheduled.name_of("activityType").unwrap_or("?").to_owned();
        let of_type = activities.entry(name).or_default();
        match what {
            "Scheduled" => of_type.scheduled += 1,
            "Started" => {
                of_type.retries = of_type.retries.saturating_add(event.number("attempt").saturating_sub(1));
                return;
            }
            "Completed" => of_type.completed += 1,
            "Failed" => of_type.failed += 1,
            "TimedOut" => of_type.timed_out += 1,
            "Canceled" => of_type.canceled += 1,
            _ => return,
        }
        let took = between(scheduled.at, event.at).unwrap_or(0);
        of_type.total_ms = of_type.total_ms.saturating_add(took);
        of_type.longest_ms = of_type.longest_ms.max(took);
    }
}

fn closing(event_type: &str) -> Option<&str> {
    let how = event_type.strip_prefix("WorkflowExecution")?;
    matches!(how, "Completed" | "Failed" | "TimedOut" | "Canceled" | "Terminated" | "ContinuedAsNew").then_some(how)
}

fn between(from: Option<Timestamp>, to: Option<Timestamp>) -> Option<u64> {
    u64::try_from(to?.since(from?).as_millis()).ok()
}

impl fmt::Display for Statistics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let workflow_type = self.workflow_type.as_deref().unwrap_or("unknown workflow");
        write!(f, "{workflow_type}: {} with {} events", self.status.as_deref().unwrap_or("Open"), self.events)?;
        if let Some(ms) = self.duration_ms {
            write!(f, " in {:?}", Duration::from_millis(ms))?;
        }
        writeln!(f, "; {} workflow tasks, {} failed", self.workflow_tasks_completed, self.workflow_tasks_failed)?;
        for (event_type, count) in &self.by_type {
            writeln!(f, "  {count:>6}  {event_type}")?;
        }
        for (name, of_type) in &self.activities {
            writeln!(
                f,
                "  activity {name}: {} scheduled, {} completed, {} failed, {} timed out, {} canceled, {} retries, longest {:?}",
                of_type.scheduled,
                of_type.completed,
                of_type.failed,
                of_type.timed_out,
                of_type.canceled,
                of_type.retries,
                Duration::from_millis(of_type.longest_ms),
            )?;
        }
        Ok(())
    }
}
