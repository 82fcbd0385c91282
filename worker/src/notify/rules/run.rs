//! A notification as a run: the workflow `bosun.notification`.
//!
//! ```text
//!   Waiting (a timer: quiet hours, or the time between two attempts) ──► Sending (one activity, one attempt)
//!        ▲                                                                  │
//!        └────────────────────── it failed: another one follows ◄───────────┤
//!                                                    delivered · moot · given up (a failure)
//! ```
//!
//! What asks a person and is to be reminded of is not over when it is delivered: it waits again, and is told again as long as it
//! is asked. Each reminder is a message of its own, with an id of its own.
//!
//! Invariant: at most one attempt is under way; an attempt that a crash has cut off is made again, and is the same message to
//! whoever receives it. A notification that is given up has failed, and says why.

use std::collections::BTreeMap;
use std::time::Duration;

use bosun_engine::workflow::{Cx, StateMachine, WorkflowEvent, WorkflowRegistry};
use bosun_engine::*;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::occasion::{Occasion, id_of};
use super::pace::{NextAttempt, first_attempt, next_attempt};
use super::quiet::QuietHours;

/// The workflow type.
pub const NOTIFICATION: &str = "bosun.notification";
/// The activity of one attempt.
pub const DELIVER: &str = "bosun.notification.deliver";
/// The queue of it, which every worker serves.
pub const QUEUE: &str = "bosun.notification";
/// The query for what it is at.
pub const DESCRIBE: &str = "describe";
/// The failure type of one that was given up.
pub const NOT_DELIVERED: &str = "NotDelivered";
/// Search attributes.
pub const OF_RUN: &str = "NotificationOfRun";
pub const OF_CHANNEL: &str = "NotificationChannel";
pub const OF_KIND: &str = "NotificationKind";

/// An attempt is over within this, or lost.
const ATTEMPT_MAX: Duration = Duration::from_secs(60);

/// The input.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Notification {
    pub channel: String,
    pub occasion: Occasion,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quiet: Option<QuietHours>,
    /// The first word is told in quiet hours too: somebody has people told again. Reminders keep them.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub loud: bool,
    /// After how long it is told again, while it waits for a person.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remind: Option<Duration>,
    /// Which reminder it is; 0: the first word.
    #[serde(default, skip_serializing_if = "is_first")]
    pub reminder: u32,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde")]
fn is_first(reminder: &u32) -> bool {
    *reminder == 0
}

/// Nobody is reminded more often of one thing.
const REMINDERS_MAX: u32 = 1_000;

impl Notification {
    /// The id by which whoever receives it twice knows it.
    pub fn id(&self) -> String {
        match self.reminder {
            0 => id_of(self.occasion.kind, &self.occasion.id, &self.channel),
            n => id_of(self.occasion.kind, &self.occasion.id, &format!("{} reminder {n}", self.channel)),
        }
    }

    /// The quiet hours that it keeps now.
    fn quiet_now(&self) -> Option<&QuietHours> {
        self.quiet.as_ref().filter(|_| !self.loud || self.reminder > 0)
    }

    /// What starts it, once.
    ///
    /// # Errors
    /// It cannot be written as a payload.
    pub fn start(&self) -> Result<StartWorkflow, Rejection> {
        let invalid = |why: String| Rejection::Invalid { what: "notification".into(), why };
        let id = self.id();
        let workflow_id = WorkflowId::new(format!("{}{id}", crate::notify::ID_PREFIX));
        let workflow_id = workflow_id.map_err(|why| invalid(why.to_string()))?;
        let input = Payload::encode(self).map_err(|why| invalid(why.to_string()))?;
        let mut start = StartWorkflow::new(WorkflowType::of(NOTIFICATION), workflow_id).input(input);
        start.namespace = self.occasion.namespace.clone();
        start.summary = Some(format!("tells {}: {}", self.channel, self.occasion.title));
        start.id_reuse_policy = IdReusePolicy::RejectDuplicate;
        start.request_id = Some(RequestId::of(format!("notify:{id}")));
        let keyword = |text: &str| SearchValue::Keyword(text.to_owned());
        let mut attributes = BTreeMap::from([
            (FieldName::of(OF_CHANNEL), keyword(&self.channel)),
            (FieldName::of(OF_KIND), keyword(self.occasion.kind.word())),
        ]);
        if let Some(about) = &self.occasion.about {
            attributes.insert(FieldName::of(OF_RUN), keyword(&about.run_id.to_string()));
        }
        start.search_attributes = attributes.into_iter().collect();
        Ok(start)
    }
}

impl Delivery {
    /// In one word.
    pub fn word(&self) -> &'static str {
        match self {
            Delivery::Delivered { .. } => "delivered",
            Delivery::Moot { .. } => "moot",
            Delivery::Failed { .. } => "failed",
            Delivery::Refused { .. } => "refused",
        }
    }
}

/// How an attempt ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "delivery", rename_all = "snake_case")]
pub enum Delivery {
    Delivered {
        answer: String,
    },
    /// There is nothing to tell any more.
    Moot {
        why: String,
    },
    Failed {
        why: String,
        retry_after_ms: Option<u64>,
    },
    /// No further attempt would help.
    Refused {
        why: String,
    },
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
enum TellStep {
    Waiting { timer: Seq, until: Timestamp },
    Sending(Seq),
    Over { state: String, at: Timestamp },
}

/// The workflow.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NotificationRun {
    notification: Notification,
    step: TellStep,
    attempts: u32,
    /// When the first attempt was made.
    began: Option<Timestamp>,
    last: Option<String>,
}

impl StateMachine for NotificationRun {
    const TYPE: &'static str = NOTIFICATION;
    type Input = Notification;
    type Output = Value;

    fn start(notification: Notification, cx: &mut Cx<'_>) -> Result<Self, Failure> {
        let now = cx.now();
        // Recorded, as every wait: what a zone says is another version's affair.
        let first: Timestamp = cx.side_effect(|| first_attempt(now, notification.quiet_now()));
        let over = TellStep::Over { state: String::new(), at: now };
        let mut run = NotificationRun { notification, step: over, attempts: 0, began: None, last: None };
        run.wait_until(first, "quiet hours", cx);
        Ok(run)
    }

    fn on_event(&mut self, event: WorkflowEvent, cx: &mut Cx<'_>) -> Result<(), Failure> {
        match (event, &self.step) {
            (WorkflowEvent::TimerFired { seq }, TellStep::Waiting { timer, .. }) if seq == *timer => self.send(cx),
            (WorkflowEvent::ActivityResolved { seq, result }, TellStep::Sending(activity)) if seq == *activity => {
                let ended = match result {
                    Ok(delivery) => delivery.decode()?,
                    Err(why) => Delivery::Failed { why: why.to_string(), retry_after_ms: None },
                };
                return self.ended(ended, cx);
            }
            (WorkflowEvent::CancelRequested { .. }, step) => {
                if let TellStep::Sending(activity) = step {
                    cx.cancel_activity(*activity);
                }
                self.over("canceled", cx.now());
                cx.cancel(None);
            }
            (WorkflowEvent::Update { update_id, .. }, _) => {
                let why = Failure::application("UnknownUpdate", "a notification has no updates").non_retryable();
                cx.complete_update::<()>(update_id, Err(why));
            }
            // It asks for nothing else, and has no use for signals.
            _ => {}
        }
        Ok(())
    }

    fn queries() -> &'static [&'static str] {
        &[DESCRIBE]
    }

    fn query(&self, name: &QueryName, _: &Payload) -> Result<Payload, Failure> {
        match name.as_str() {
            DESCRIBE => Ok(Payload::encode(&self.shown())?),
            other => Err(Failure::application("UnknownQuery", format!("a notification has no query {other}"))),
        }
    }

    fn validate_update(&self, name: &UpdateName, _: &Payload) -> Result<(), Failure> {
        Err(Failure::application("UnknownUpdate", format!("a notification has no update {name}")))
    }
}

impl NotificationRun {
    fn wait_until(&mut self, until: Timestamp, why: &str, cx: &mut Cx<'_>) {
        if until <= cx.now() {
            return self.send(cx);
        }
        self.step = TellStep::Waiting { timer: cx.start_labelled_timer(until, why), until };
    }

    fn send(&mut self, cx: &mut Cx<'_>) {
        self.attempts = self.attempts.saturating_add(1);
        self.began.get_or_insert(cx.now());
        let options = ActivityOptions {
            task_queue: Some(TaskQueue::of(QUEUE)),
            // One that was lost is made again; one that failed says so in its result.
            retry_policy: Some(RetryPolicy {
                maximum_interval: Some(Duration::from_secs(10)),
                ..RetryPolicy::default()
            }),
            summary: Some(format!("tell {}", self.notification.channel)),
            ..ActivityOptions::start_to_close(ATTEMPT_MAX)
        };
        self.step = TellStep::Sending(cx.schedule_activity(DELIVER, &self.notification, options));
    }

    fn ended(&mut self, delivery: Delivery, cx: &mut Cx<'_>) -> Result<(), Failure> {
        let now = cx.now();
        match delivery {
            Delivery::Delivered { answer } => {
                self.last = Some(answer);
                let due = self.notification.remind.filter(|_| self.notification.reminder < REMINDERS_MAX);
                if let Some(remind) = due.filter(|_| self.notification.occasion.asked.is_some()) {
                    self.notification.reminder += 1;
                    (self.attempts, self.began) = (0, None);
                    let quiet = self.notification.quiet_now();
                    let next: Timestamp = cx.side_effect(|| first_attempt(now.plus(remind), quiet));
                    self.wait_until(next, "a reminder", cx);
                    return Ok(());
                }
                self.over("delivered", now);
                cx.complete(&self.shown());
            }
            Delivery::Moot { why } => {
                self.last = Some(why);
                self.over("moot", now);
                cx.complete(&self.shown());
            }
            Delivery::Refused { why } => return self.give_up(&why, now),
            Delivery::Failed { why, retry_after_ms } => {
                let (failed, began) = (self.attempts, self.began.unwrap_or(now));
                let asked = retry_after_ms.map(Duration::from_millis);
                let quiet = self.notification.quiet_now();
                let next: Option<Timestamp> =
                    cx.side_effect(|| match next_attempt(failed, asked, (began, now), quiet) {
                        NextAttempt::At(at) => Some(at),
                        NextAttempt::GivenUp => None,
                    });
                let Some(next) = next else { return self.give_up(&why, now) };
                self.last = Some(why);
                self.wait_until(next, "the next attempt", cx);
            }
        }
        Ok(())
    }

    fn give_up(&mut self, why: &str, now: Timestamp) -> Result<(), Failure> {
        self.last = Some(why.to_owned());
        self.over("given_up", now);
        let (attempts, channel) = (self.attempts, &self.notification.channel);
        let message = format!("{channel} was not told after {attempts} attempts: {why}");
        Err(Failure::application(NOT_DELIVERED, message).non_retryable())
    }

    fn over(&mut self, state: &str, at: Timestamp) {
        self.step = TellStep::Over { state: state.to_owned(), at };
    }

    fn shown(&self) -> Value {
        let Notification { channel, occasion, .. } = &self.notification;
        let (state, at, next) = match &self.step {
            TellStep::Waiting { until, .. } => ("waiting", None, Some(*until)),
            TellStep::Sending(_) => ("sending", None, None),
            TellStep::Over { state, at } => (state.as_str(), Some(*at), None),
        };
        json!({
            "id": self.notification.id(), "reminder": self.notification.reminder, "channel": channel, "kind": occasion.kind, "title": occasion.title,
            "asked": occasion.asked.as_ref().map(|asked| &asked.id), "made_at": occasion.at, "state": state,
            "attempts": self.attempts, "at": at, "next_attempt_at": next, "last": self.last,
        })
    }
}

/// Adds the workflow of notifications.
pub fn register(registry: WorkflowRegistry) -> WorkflowRegistry {
    registry.state_machine::<NotificationRun>()
}
