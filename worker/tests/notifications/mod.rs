//! Notifications on the production worker, with a clock that skips: quiet hours, the time between attempts, an end to them.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use bosun_engine::testing::TestEnvironment;
use bosun_engine::workflow::WorkflowRegistry;
use bosun_engine::*;
use bosun_worker::notify;
use bosun_worker::notify::rules::occasion::{AskedOf, Occasion};
use bosun_worker::notify::rules::pace::LASTS;
use bosun_worker::notify::rules::quiet::QuietHours;
use bosun_worker::notify::rules::run::{DELIVER, Delivery, NOT_DELIVERED, Notification};
use serde_json::Value;

/// What each attempt is answered with, in order; the last one for all that follow.
type Answers = Arc<Mutex<Vec<Delivery>>>;

struct Told {
    environment: TestEnvironment,
    /// Seconds of virtual time at which attempts were made.
    at: Arc<Mutex<Vec<u64>>>,
}

fn later(retry_after_ms: Option<u64>) -> Delivery {
    Delivery::Failed { why: "no".into(), retry_after_ms }
}

fn delivered() -> Delivery {
    Delivery::Delivered { answer: "yes".into() }
}

/// A worker whose channel answers so. Time begins at midnight of a winter's day, UTC.
fn told(answers: Vec<Delivery>) -> Told {
    let at = Arc::new(Mutex::new(Vec::new()));
    let (noted, answers): (_, Answers) = (at.clone(), Arc::new(Mutex::new(answers)));
    let mut activities = ActivityRegistry::new();
    activities.register(DELIVER, move |ctx: ActivityContext, _: Notification| {
        noted.lock().unwrap().push(ctx.task().scheduled_at.since(TestEnvironment::EPOCH).as_secs());
        let mut answers = answers.lock().unwrap();
        let answer = if answers.len() > 1 { answers.remove(0) } else { answers[0].clone() };
        async move { Ok(answer) }
    });
    let registry = notify::register(WorkflowRegistry::new());
    let quiet = |options: &mut WorkerOptions| options.housekeeping_every = Duration::from_secs(3_600);
    let environment = TestEnvironment::start_with(registry, activities, quiet).unwrap();
    Told { environment, at }
}

impl Told {
    async fn tell(&self, quiet: Option<QuietHours>) -> RunResult {
        let occasion = Occasion::worker_gone(7, "then", self.environment.now());
        let notification =
            Notification { channel: "ops".into(), occasion, quiet, loud: false, remind: None, reminder: 0 };
        let start = notification.start().unwrap();
        let target = Target::workflow(start.workflow_id.clone());
        self.environment.client().start(start.clone()).await.unwrap();
        // Whoever meets the occasion again starts nothing.
        let again = self.environment.client().start(start).await;
        assert!(again.is_err() || !again.unwrap().newly_started);
        let request = ResultRequest { follow_runs: true, timeout: None };
        self.environment.client().result(&target, request).await.unwrap().unwrap()
    }
    fn attempts(&self) -> Vec<u64> {
        self.at.lock().unwrap().clone()
    }
}

fn shown(result: &RunResult) -> Value {
    match &result.outcome {
        CloseOutcome::Completed(payload) => payload.to_json(),
        other => panic!("{other:?}"),
    }
}

const HOUR: u64 = 3_600;

#[tokio::test(flavor = "multi_thread")]
async fn what_happens_in_quiet_hours_is_told_at_their_end() {
    let night = || QuietHours::read("22:00-07:00", Some("Europe/Berlin")).unwrap();
    // Midnight UTC is one o'clock there.
    let it = told(vec![delivered()]);
    let result = it.tell(Some(night())).await;
    assert_eq!((shown(&result)["state"].as_str(), it.attempts()), (Some("delivered"), vec![6 * HOUR]));
    // By day it is told at once.
    let it = told(vec![delivered()]);
    it.environment.sleep(Duration::from_secs(10 * HOUR)).await;
    it.tell(Some(night())).await;
    assert_eq!(it.attempts(), [10 * HOUR]);
    // And an attempt that would be made in the night waits for the morning.
    let it = told(vec![later(Some(3_000_000)), delivered()]);
    it.environment.sleep(Duration::from_secs(20 * HOUR + HOUR / 2)).await;
    it.tell(Some(night())).await;
    assert_eq!(it.attempts(), [20 * HOUR + HOUR / 2, 30 * HOUR]);
}

#[tokio::test(flavor = "multi_thread")]
async fn attempts_are_further_and_further_apart_and_heed_whoever_is_asked() {
    let it = told(vec![later(None), later(None), later(None), later(Some(60_000)), later(None), delivered()]);
    let result = it.tell(None).await;
    assert_eq!(it.attempts(), [0, 1, 3, 7, 67, 83]);
    assert_eq!((shown(&result)["attempts"].as_u64(), shown(&result)["last"].as_str()), (Some(6), Some("yes")));
}

#[tokio::test(flavor = "multi_thread")]
async fn after_some_days_it_has_failed_and_says_so() {
    let it = told(vec![later(None)]);
    let result = it.tell(None).await;
    match &result.outcome {
        CloseOutcome::Failed(why) => {
            assert!(why.to_string().contains("ops was not told after") && why.type_name() == NOT_DELIVERED, "{why:?}");
        }
        other => panic!("{other:?}"),
    }
    let (attempts, lasts) = (it.attempts(), LASTS.as_secs());
    let last = *attempts.last().unwrap();
    assert!((lasts..lasts + HOUR / 2).contains(&last), "{last}");
    assert!(attempts.windows(2).all(|two| two[1] - two[0] <= 900), "{attempts:?}");
    // What cannot be told by any further attempt is not tried again.
    let it = told(vec![Delivery::Refused { why: "gone".into() }]);
    assert!(matches!(it.tell(None).await.outcome, CloseOutcome::Failed(_)));
    assert_eq!(it.attempts().len(), 1);
    let it = told(vec![Delivery::Moot { why: "answered".into() }]);
    assert_eq!(shown(&it.tell(None).await)["state"], "moot");
}

/// Delivers what waits for a person, and reminds of it, in the night from three to seven, until it does not wait any more.
async fn reminded(answers: Vec<Delivery>, begins: Duration, loud: bool) -> (Value, Vec<u64>) {
    let it = told(answers);
    it.environment.sleep(begins).await;
    let mut occasion = Occasion::worker_gone(7, "then", it.environment.now());
    occasion.asked =
        Some(AskedOf { id: "ap-1".into(), word: "approval".into(), shown: "hash".into(), request: Value::Null });
    let quiet = Some(QuietHours::read("03:00-07:00", None).unwrap());
    let remind = Some(Duration::from_secs(2 * HOUR));
    let notification = Notification { channel: "ops".into(), occasion, quiet, loud, remind, reminder: 0 };
    let second = Notification { reminder: 1, ..notification.clone() };
    assert_ne!(notification.id(), second.id(), "a reminder is a message of its own");
    let start = notification.start().unwrap();
    let target = Target::workflow(start.workflow_id.clone());
    it.environment.client().start(start).await.unwrap();
    let request = ResultRequest { follow_runs: true, timeout: None };
    let result = it.environment.client().result(&target, request).await.unwrap().unwrap();
    (shown(&result), it.attempts())
}

/// What waits for a person is told again, at the end of quiet hours too, until it does not wait any more.
#[tokio::test(flavor = "multi_thread")]
async fn people_are_reminded_until_it_is_answered() {
    let moot = || Delivery::Moot { why: "answered".into() };
    let answers = vec![delivered(), later(None), delivered(), delivered(), moot()];
    let (state, attempts) = reminded(answers, Duration::ZERO, false).await;
    assert_eq!((state["state"].as_str(), state["reminder"].as_u64()), (Some("moot"), Some(3)), "{state}");
    // The first one failed once and was made again a second later; the next would have been in the night.
    assert_eq!(attempts, [0, 2 * HOUR, 2 * HOUR + 1, 7 * HOUR, 9 * HOUR]);
    // Whoever escalates it has the first word told in the night, and another attempt at it made; reminders wait for the morning.
    let answers = vec![later(None), delivered(), delivered(), moot()];
    let (_, attempts) = reminded(answers, Duration::from_secs(4 * HOUR), true).await;
    assert_eq!(attempts, [4 * HOUR, 4 * HOUR + 1, 7 * HOUR, 9 * HOUR]);
}
