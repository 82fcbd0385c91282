//! A schedule in a worker of a test, and what became of its starts.

use std::time::Duration;

use bosun_engine::testing::TestEnvironment;
use bosun_engine::workflow::{WfContext, WorkflowRegistry};
use bosun_engine::*;
use bosun_worker::schedule::spec::{Interval, ScheduleAction, SchedulePolicies, ScheduleSpec, ScheduleState};
use bosun_worker::schedule::{self, Overlap, SCHEDULE, Schedule};
use serde_json::{Value, json};

pub(super) const ID: &str = "s";

/// Works for so many seconds; when it is canceled it takes five seconds to clean up.
async fn job(cx: WfContext, input: Value) -> Result<String, Failure> {
    let seconds = input["seconds"].as_u64().unwrap_or_default();
    if let Err(canceled) = cx.timer(Duration::from_secs(seconds)).await {
        cx.shielded(|cx| async move { cx.timer(Duration::from_secs(5)).await }).await?;
        return Err(canceled);
    }
    match input["fail"].as_str() {
        Some(why) => Err(Failure::application("Broken", why).non_retryable()),
        None => Ok("done".into()),
    }
}

pub(super) fn registry() -> WorkflowRegistry {
    schedule::register(WorkflowRegistry::new().workflow("job", job))
}

pub(super) fn environment() -> TestEnvironment {
    let quiet = |options: &mut WorkerOptions| options.housekeeping_every = Duration::from_secs(3_600);
    TestEnvironment::start_with(registry(), ActivityRegistry::new(), quiet).unwrap()
}

pub(super) fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}

/// Every minute, a job of so many seconds.
pub(super) fn every_minute(overlap: Overlap, job_seconds: u64) -> Schedule {
    Schedule {
        spec: ScheduleSpec {
            intervals: vec![Interval { every: seconds(60), offset: Duration::ZERO }],
            ..ScheduleSpec::default()
        },
        action: ScheduleAction {
            workflow_type: "job".into(),
            workflow_id: "job".into(),
            input: json!({ "seconds": job_seconds }),
            task_queue: None,
            execution_timeout: None,
            run_timeout: None,
            maximum_attempts: None,
            summary: None,
            priority: None,
        },
        policies: SchedulePolicies { overlap, ..SchedulePolicies::default() },
        state: ScheduleState::default(),
    }
}

pub(super) fn target() -> Target {
    Target::workflow(WorkflowId::of(format!("{}{ID}", schedule::ID_PREFIX)))
}

pub(super) async fn create(environment: &TestEnvironment, schedule: &Schedule) {
    create_as(environment, ID, schedule).await;
    environment.settle().await;
}

/// One of several.
pub(super) async fn create_as(environment: &TestEnvironment, id: &str, schedule: &Schedule) {
    let input = json!({ "schedule_id": id, "schedule": schedule });
    let workflow_id = WorkflowId::of(format!("{}{id}", schedule::ID_PREFIX));
    let request = StartWorkflow::new(SCHEDULE.into(), workflow_id).input(Payload::encode(&input).unwrap());
    environment.client().start(request).await.unwrap();
}

pub(super) async fn describe(environment: &TestEnvironment) -> Value {
    let answer = environment.client().query(&target(), &"describe".into(), Payload::null()).await;
    answer.unwrap().to_json()
}

pub(super) async fn try_update(environment: &TestEnvironment, name: &str, input: Value) -> Result<Value, String> {
    static COUNT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
    let n = COUNT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    let request = UpdateRequest {
        update_id: UpdateId::of(format!("{name}-{n}")),
        name: name.into(),
        input: Payload::encode(&input).unwrap(),
        identity: None,
        wait: UpdateWait::Completed,
    };
    match environment.client().update(&target(), request).await {
        Ok(UpdateOutcome::Completed(Ok(answer))) => Ok(answer.to_json()),
        Ok(UpdateOutcome::Completed(Err(why))) => Err(why.message),
        Ok(UpdateOutcome::Accepted) => Err("only accepted".into()),
        Err(why) => Err(why.to_string()),
    }
}

pub(super) async fn update(environment: &TestEnvironment, name: &str, input: Value) -> Value {
    let answer = try_update(environment, name, input).await.unwrap_or_else(|why| panic!("{name}: {why}"));
    environment.settle().await;
    answer
}

/// Seconds of virtual time since the test began.
pub(super) fn since(at: Timestamp) -> u64 {
    at.since(TestEnvironment::EPOCH).as_secs()
}

/// Every run that the schedule has started: nominal, start and end in seconds (0: it is open), and its status.
pub(super) async fn jobs(environment: &TestEnvironment) -> Vec<(u64, u64, u64, WorkflowStatus)> {
    let query = format!("WorkflowType = 'job' AND TemporalScheduledById = '{ID}'");
    let runs = environment.client().list(ListRequest { query, limit: 1_000 }).await.unwrap();
    let mut jobs: Vec<_> = runs
        .iter()
        .map(|run| {
            let nominal = match run.search_attributes.get(&FieldName::of("TemporalScheduledStartTime")) {
                Some(SearchValue::Datetime(at)) => *at,
                other => panic!("{other:?}"),
            };
            let id = format!("job-{}", schedule::text::moment(nominal));
            assert_eq!(run.workflow_id.as_str(), id, "the id of a run is made of its nominal time");
            (since(nominal), since(run.started_at), run.closed_at.map_or(0, since), run.status)
        })
        .collect();
    jobs.sort();
    jobs
}

/// The nominal times alone.
pub(super) async fn nominals(environment: &TestEnvironment) -> Vec<u64> {
    jobs(environment).await.into_iter().map(|(nominal, ..)| nominal).collect()
}
