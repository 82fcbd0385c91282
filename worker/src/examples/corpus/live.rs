//! Lets a story happen on the real engine, in skipped time on one shard, and takes the histories it leaves.
//!
//! Invariant: the same story gives the same histories, bit for bit: run ids come from the virtual clock, activities
//! depend on their input and attempt alone, and only one thing happens at a time.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bosun_engine::testing::TestEnvironment;
use bosun_engine::workflow::WorkflowRegistry;
use bosun_engine::*;
use bosun_replay::{History, HistoryLimits};
use futures_util::StreamExt;
use serde::Deserialize;
use serde_json::{Value, json};

use super::machine::StepMachine;
use super::stories::{Story, StoryAction};
use crate::examples::kitchen_sink::KITCHEN_SINK;

/// The code of the corpus.
pub(super) fn code() -> WorkflowRegistry {
    crate::examples::register(WorkflowRegistry::new()).state_machine::<StepMachine>().version("corpus-1")
}

#[derive(Deserialize)]
struct FailingInput {
    times: u32,
    #[serde(default)]
    value: Value,
    #[serde(rename = "type")]
    failure_type: Option<String>,
    #[serde(default)]
    non_retryable: bool,
}

fn activities() -> ActivityRegistry {
    let mut activities = ActivityRegistry::new();
    activities.register("echo", |_: ActivityContext, input: Value| async move { Ok(input) });
    activities.register("fail_n_times", |ctx: ActivityContext, fails: FailingInput| async move {
        if ctx.attempt().0 > fails.times {
            return Ok(fails.value);
        }
        let failure_type = fails.failure_type.unwrap_or_else(|| "Scripted".into());
        let failure = Failure::application(failure_type, format!("attempt {}", ctx.attempt()));
        Err(if fails.non_retryable { failure.non_retryable() } else { failure }.into())
    });
    activities.register("later", |_: ActivityContext, _: Value| async move {
        Err::<Value, _>(ActivityError::WillCompleteLater)
    });
    crate::examples::register_activities(&mut activities);
    activities
}

/// Counts turns from outside: histories do not depend on who watches.
#[derive(Default)]
struct Turns(AtomicUsize);

impl Turns {
    fn seen(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }
}

impl Interceptor for Turns {
    fn turn_begins(&self, _: &RunInfo) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

pub(super) struct StoryEnvironment {
    environment: Option<TestEnvironment>,
}

impl StoryEnvironment {
    fn environment(&self) -> &TestEnvironment {
        self.environment.as_ref().expect("it runs")
    }

    /// All histories of a story, with the id and the place of each run in its chain.
    pub(super) async fn tell(story: &Story) -> Vec<(String, History)> {
        let turns = Arc::new(Turns::default());
        let change = |options: &mut WorkerOptions| {
            options.housekeeping_every = Duration::from_secs(1 << 30);
            options.limits.payload_max = 4_096;
            options.interceptors = vec![turns.clone()];
        };
        let environment = TestEnvironment::start_with(code(), activities(), change).unwrap();
        let mut live = StoryEnvironment { environment: Some(environment) };
        let mut start = StartWorkflow::new(story.workflow_type.into(), story.name.as_str().into());
        start.input = Payload::encode(&story.input).unwrap();
        (story.options)(&mut start);
        live.environment().client().start(start).await.unwrap();
        live.environment().settle().await;
        for act in &story.acts {
            live.act(&story.name, act).await;
            live.environment().settle().await;
        }
        let histories = live.histories().await;
        assert!(turns.seen() >= histories.len(), "every run has had a turn that the interceptor saw");
        assert!(live.environment().client().verify().await.unwrap().is_sound());
        histories
    }

    async fn histories(&self) -> Vec<(String, History)> {
        let client = self.environment().client();
        let request = ListRequest { query: String::new(), limit: 1_000 };
        let mut runs = client.list(request).await.unwrap();
        runs.sort_by(|a, b| (&a.workflow_id, a.started_at, a.run_id).cmp(&(&b.workflow_id, b.started_at, b.run_id)));
        let mut found: Vec<(String, History)> = Vec::new();
        for run in runs {
            let turns = client.turns(&Target::run(run.workflow_id.clone(), run.run_id)).await.unwrap();
            let clean = run.workflow_id.as_str().replace('/', "-");
            let nth =
                found.iter().filter(|(name, _)| *name == clean || name.starts_with(&format!("{clean}.run"))).count();
            let name = if nth == 0 { clean } else { format!("{clean}.run{}", nth + 1) };
            found.push((name, History::new(turns).unwrap_or_else(|why| panic!("{}: {why}", run.workflow_id))));
        }
        found
    }

    async fn act(&mut self, id: &str, act: &StoryAction) {
        let client = self.environment().client();
        let target = Target::workflow(id.into());
        let json = |value: &Value| Payload::encode(value).unwrap();
        match act {
            StoryAction::Signal(name, input) => {
                let request_id = Some(RequestId::of(format!("signal-{name}-{input}")));
                let signal = SignalRequest { name: (*name).into(), input: json(input), identity: None, request_id };
                client.signal(&target, signal).await.unwrap();
            }
            StoryAction::Update(name, input) => {
                let update_id = UpdateId::of(format!("update-{input}"));
                let wait = UpdateWait::Completed;
                let request =
                    UpdateRequest { update_id, name: (*name).into(), input: json(input), identity: None, wait };
                // What a validator refuses leaves no trace.
                let _ = client.update(&target, request).await;
            }
            StoryAction::Cancel => client.cancel(&target, "enough".into(), None, None).await.unwrap(),
            StoryAction::Terminate => client.terminate(&target, "out of hand".into(), None).await.unwrap(),
            StoryAction::Pause => client.pause(&target, "let me look".into(), None).await.unwrap(),
            StoryAction::Unpause => client.unpause(&target, "go on".into(), None).await.unwrap(),
            StoryAction::PauseActivity(name) => {
                client.pause_activity(&target, &(*name).into(), "wait".into(), None).await.unwrap();
            }
            StoryAction::UnpauseActivity(name) => {
                client.unpause_activity(&target, &(*name).into(), None).await.unwrap()
            }
            StoryAction::Sleep(seconds) => client.sleep(Duration::from_secs(*seconds)).await,
            StoryAction::Finish => {
                let wait = ResultRequest { follow_runs: true, timeout: Some(Duration::from_secs(120)) };
                client.result(&target, wait).await.unwrap().unwrap_or_else(|| panic!("{id} does not end"));
            }
            StoryAction::Complete(completion) => {
                let pending = client.describe(&target).await.unwrap().pending_activities;
                let token = pending.iter().find_map(|activity| activity.task_token.clone()).expect("it runs");
                client.complete_activity(token.parse().unwrap(), completion.clone()).await.unwrap();
            }
            StoryAction::TerminateOther(other) => {
                let other = Target::workflow((*other).into());
                client.terminate(&other, "out of hand".into(), None).await.unwrap();
            }
            StoryAction::Query(name) => {
                client.query(&target, &(*name).into(), Payload::null()).await.unwrap();
            }
            StoryAction::SignalWithStart(suffix) => {
                let steps = json!({ "steps": [{ "wait_signal": { "name": "go", "as": "go" } }] });
                let id = WorkflowId::of(format!("{id}-{suffix}"));
                let start = StartWorkflow::new(KITCHEN_SINK.into(), id).input(Payload::encode(&steps).unwrap());
                let signal =
                    SignalRequest { name: "go".into(), input: Payload::null(), identity: None, request_id: None };
                client.signal_with_start(start, signal).await.unwrap();
            }
            StoryAction::Follow => {
                let followed = client.events(target.clone(), EventId(1), false).map(|event| event.unwrap());
                let followed: Vec<Event> = followed.collect().await;
                let turns = client.turns(&target).await.unwrap();
                assert_eq!(followed, turns.iter().flat_map(Turn::numbered).collect::<Vec<Event>>());
            }
            StoryAction::Delete(other) => {
                client.delete(&Target::workflow((*other).into())).await.unwrap();
                client.housekeep().await.unwrap();
            }
            StoryAction::ForkFile(new) => {
                let text = History::new(client.turns(&target).await.unwrap()).unwrap().to_json();
                let history = History::from_json(text.as_bytes(), &HistoryLimits::default()).unwrap();
                let source = ForkSource::History(history.turns().to_vec());
                client.fork(ForkRequest::new(source, WorkflowId::of(format!("{id}-{new}")))).await.unwrap();
            }
            StoryAction::Restart => {
                let environment = self.environment.take().expect("it runs");
                self.environment = Some(environment.restart(|_| {}).unwrap());
            }
            StoryAction::Reset(to, reapply) => {
                let request = ResetRequest { reapply: *reapply, ..ResetRequest::new(target, *to) };
                client.reset(request).await.unwrap();
            }
            StoryAction::Fork(new, at, changes) => {
                let mut request = ForkRequest::new(ForkSource::Run(target), WorkflowId::of(format!("{id}-{new}")));
                request.at = at.map(EventId);
                request.changes = changes.clone();
                client.fork(request).await.unwrap();
            }
        }
    }
}
