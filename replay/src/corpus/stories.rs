//! The stories of the corpus: each the history that its workflow would have recorded, told by hand.

use std::time::Duration;

use bosun_engine::*;
use serde::Serialize;

pub(crate) struct CorpusStory {
    /// The name of the file.
    pub(crate) name: &'static str,
    pub(crate) shows: &'static str,
    pub(crate) tell: fn(&str) -> Vec<Turn>,
}

fn json(value: impl Serialize) -> Payload {
    Payload::encode(&value).expect("JSON")
}

fn declined() -> Failure {
    Failure::application("Declined", "the bank says no").non_retryable()
}

/// What code sees of an activity that failed.
fn of_activity(activity_type: &str, seq: Seq, retry_state: RetryState, cause: Failure) -> Failure {
    let (activity_type, activity_id) = (ActivityType::of(activity_type), ActivityId::of(seq.to_string()));
    Failure {
        message: format!("activity {activity_type} failed"),
        kind: FailureKind::Activity { activity_type, activity_id, retry_state },
        cause: Some(Box::new(cause)),
    }
}

/// A run that was started with more than the defaults.
fn started(workflow_type: &str, workflow_id: &str, input: Payload) -> (RunId, WorkflowExecutionStarted) {
    let run = HistoryBuilder::run_id(workflow_id);
    let start = StartWorkflow::new(WorkflowType::of(workflow_type), WorkflowId::of(workflow_id)).input(input);
    (run, WorkflowExecutionStarted { numbering: None, ..started_event(run, start) })
}

/// A run of before ids were counted by kind, as all of the corpus are: they replay as they always did.
fn told(workflow_type: &str, workflow_id: &str, input: Payload) -> HistoryBuilder {
    let (run, started) = started(workflow_type, workflow_id, input);
    HistoryBuilder::started_with(run, started)
}

pub(crate) const STORIES: &[CorpusStory] = &[
    CorpusStory {
        name: "completed-at-once",
        shows: "a run of two events",
        tell: |id| {
            let mut h = told("greet", id, json("ada"));
            h.completed(json("hello ada"));
            h.turns()
        },
    },
    CorpusStory {
        name: "activity-completed",
        shows: "an activity that succeeds at its first attempt, with the identity of its worker",
        tell: |id| {
            let mut h = told("charge", id, json(700));
            let seq = h.activity_scheduled("charge_card", json(700));
            h.activity_started(seq, 1);
            let identity = Some(Identity::of("worker@host"));
            h.turn(EventKind::ActivityTaskCompleted { seq, result: json("receipt"), identity });
            h.completed(json("receipt"));
            h.turns()
        },
    },
    CorpusStory {
        name: "activity-retried",
        shows: "two failed attempts with a heartbeat and a lost worker, then success",
        tell: |id| {
            let mut h = told("charge", id, json(700));
            let seq = h.activity_scheduled("charge_card", json(700));
            let busy = Failure::application("Busy", "later").with_details(json("queue full"));
            let lost = Failure { message: "the worker is gone".into(), kind: FailureKind::WorkerLost, cause: None };
            h.activity_started(seq, 1).activity_attempt_failed(seq, 1, busy, Duration::from_secs(1));
            h.after(Duration::from_secs(1)).activity_started(seq, 2);
            h.activity_attempt_failed(seq, 2, lost, Duration::ZERO).activity_started(seq, 3);
            h.activity_completed(seq, json("receipt")).completed(json("receipt"));
            let mut turns = h.turns();
            turns[1].heartbeats.push(Heartbeat { seq, attempt: Attempt(1), details: Some(json(50)) });
            turns
        },
    },
    CorpusStory {
        name: "activity-failed",
        shows: "an activity that fails for good and a run that fails because of it",
        tell: |id| {
            let mut h = told("charge", id, json(700));
            let seq = h.activity_scheduled("charge_card", json(700));
            let state = RetryState::NonRetryableFailure;
            h.activity_started(seq, 1).activity_failed(seq, declined(), state);
            h.failed(of_activity("charge_card", seq, state, declined()));
            h.turns()
        },
    },
    CorpusStory {
        name: "activity-timed-out",
        shows: "an activity that no worker took in time",
        tell: |id| {
            let mut h = told("charge", id, json(700));
            let seq = h.activity_scheduled("charge_card", json(700));
            let state = RetryState::NonRetryableFailure;
            h.after(Duration::from_secs(10)).activity_timed_out(seq, TimeoutType::ScheduleToStart, state);
            let cause = Failure::timeout(TimeoutType::ScheduleToStart, None);
            h.failed(of_activity("charge_card", seq, state, cause));
            h.turns()
        },
    },
    CorpusStory {
        name: "activity-completed-later",
        shows: "an activity whose function returned before its result was there (E09)",
        tell: |id| {
            let mut h = told("charge", id, json(700));
            let seq = h.activity_scheduled("charge_card", json(700));
            h.activity_started(seq, 1).turn(EventKind::ActivityTaskAwaitingCompletion { seq, attempt: Attempt(1) });
            h.after(Duration::from_secs(3_600)).activity_completed(seq, json("by post")).completed(json("by post"));
            h.turns()
        },
    },
    CorpusStory {
        name: "fan-out",
        shows: "three activities at once that end in another order, two in one turn",
        tell: |id| {
            let mut h = told("fan-out", id, json([1, 2, 3]));
            let seqs = [1, 2, 3].map(|part: u64| h.activity_scheduled("work", json(part)));
            for seq in seqs {
                h.activity_started(seq, 1);
            }
            h.activity_completed(seqs[2], json(30)).activity_completed(seqs[0], json(10));
            h.together().activity_completed(seqs[1], json(20)).completed(json(60));
            h.turns()
        },
    },
    CorpusStory {
        name: "timer-fired",
        shows: "a timer that fires, and a run that ends because of it",
        tell: |id| {
            let mut h = told("approval", id, Payload::null());
            let limit = h.timer_started(Duration::from_secs(3_600));
            h.timer_fired(limit).completed(json(false));
            h.turns()
        },
    },
    CorpusStory {
        name: "timer-canceled",
        shows: "a signal that comes before the timer, which is canceled",
        tell: |id| {
            let mut h = told("approval", id, Payload::null());
            let limit = h.timer_started(Duration::from_secs(3_600));
            h.after(Duration::from_secs(60))
                .signaled("approve", json(true))
                .timer_canceled(limit)
                .completed(json(true));
            h.turns()
        },
    },
    CorpusStory {
        name: "signal-not-taken",
        shows: "a signal that nobody takes: reported at the end (E11)",
        tell: |id| {
            let mut h = told("approval", id, Payload::null());
            let limit = h.timer_started(Duration::from_secs(3_600));
            h.signaled("hurry", Payload::null()).timer_fired(limit);
            h.command(EventKind::WorkflowExecutionCompleted {
                result: json(false),
                unhandled_signals: vec![SignalName::of("hurry")],
            });
            h.turns()
        },
    },
    CorpusStory {
        name: "canceled-with-cleanup",
        shows: "a cancellation, cleanup out of its reach, and a run that ends as canceled (E17)",
        tell: |id| {
            let mut h = told("cleanup", id, Payload::null());
            let sleep = h.timer_started(Duration::from_secs(86_400));
            h.cancel_requested("not needed").timer_canceled(sleep);
            let undo = h.activity_scheduled("undo", Payload::null());
            h.activity_started(undo, 1).activity_completed(undo, Payload::null()).canceled(None);
            h.turns()
        },
    },
    CorpusStory {
        name: "child-completed",
        shows: "a child workflow from its start to its result",
        tell: |id| {
            let mut h = told("parent", id, json(700));
            let child = h.child_initiated("charge", "charge-of-parent", json(700));
            h.child_started(child).child_completed(child, json("receipt")).completed(json("receipt"));
            h.turns()
        },
    },
    CorpusStory {
        name: "child-open",
        shows: "a run that is open: its child has started",
        tell: |id| {
            let mut h = told("parent", id, json(700));
            let child = h.child_initiated("charge", "charge-of-parent", json(700));
            h.child_started(child);
            h.turns()
        },
    },
    CorpusStory {
        name: "messages",
        shows: "a signal to another run that is delivered, and a cancel request to it (E16)",
        tell: |id| {
            let mut h = told("messenger", id, Payload::null());
            let signal = h.external_signal_initiated("other", "news", json("hello"));
            h.external_signaled(signal);
            let cancel = h.external_cancel_initiated("other", "enough");
            h.external_cancel_requested(cancel).completed(json(true));
            h.turns()
        },
    },
    CorpusStory {
        name: "message-not-delivered",
        shows: "a signal to a run that does not exist",
        tell: |id| {
            let mut h = told("messenger", id, Payload::null());
            let signal = h.external_signal_initiated("other", "news", json("hello"));
            h.external_signal_failed(signal, Failure::application("NotFound", "no workflow execution other"));
            let cancel = h.external_cancel_initiated("other", "enough");
            h.external_cancel_requested(cancel).completed(json(false));
            h.turns()
        },
    },
    CorpusStory {
        name: "notes",
        shows: "a side effect, search attributes, memo, and the new branch of a patch",
        tell: |id| {
            let mut h = told("notes", id, Payload::null());
            h.side_effect_recorded(json(42));
            note(&mut h);
            h.patch_recorded("double", false).completed(json(84));
            h.turns()
        },
    },
    CorpusStory {
        name: "notes-before-the-patch",
        shows: "the same code over a history from before its patch: the old branch (E21)",
        tell: |id| {
            let mut h = told("notes", id, Payload::null());
            h.side_effect_recorded(json(42));
            note(&mut h);
            h.completed(json(42));
            h.turns()
        },
    },
    CorpusStory {
        name: "updates",
        shows: "updates that are accepted and answered, the second by the run that ends (E14)",
        tell: |id| {
            let mut h = told("settings", id, Payload::null());
            h.update_accepted("u1", "set", json(2)).update_completed("u1", Ok(json(0)));
            h.update_accepted("u2", "set", json(3)).update_completed("u2", Ok(json(2))).completed(json(3));
            h.turns()
        },
    },
    CorpusStory {
        name: "continued-as-new",
        shows: "a state machine that goes on in a new run",
        tell: |id| {
            let mut h = told("counter", id, json(1));
            h.signaled("add", json(2)).signaled("add", json(3)).signaled("add", json(4));
            h.continued_as_new("counter", json(10));
            h.turns()
        },
    },
    CorpusStory {
        name: "counter-canceled",
        shows: "a state machine that is canceled with details, over two builds of the code",
        tell: |id| {
            let mut h = told("counter", id, json(1));
            h.signaled("add", json(2)).deployed(BuildId(2)).cancel_requested("stop").canceled(Some(json(3)));
            h.turns()
        },
    },
    CorpusStory {
        name: "paused",
        shows: "a pause, a signal that waits in the inbox meanwhile, and its delivery (E27)",
        tell: |id| {
            let mut h = told("counter", id, json(1));
            h.paused("let me look").unpaused("go on");
            h.signaled("add", json(5)).signaled("stop", Payload::null()).completed(json(6));
            let mut turns = h.turns();
            let waiting = Input::Signal(WorkflowExecutionSignaled {
                name: SignalName::of("add"),
                input: json(5),
                identity: None,
                request_id: None,
            });
            turns[1].inbox_added.push(waiting);
            turns[3].inbox_taken = 1;
            turns
        },
    },
    CorpusStory {
        name: "terminated",
        shows: "a run that was ended from outside: no result of its code",
        tell: |id| {
            let mut h = told("approval", id, Payload::null());
            h.timer_started(Duration::from_secs(3_600));
            h.terminated("out of hand");
            h.turns()
        },
    },
    CorpusStory {
        name: "timed-out",
        shows: "a run that reached its run timeout",
        tell: |id| {
            let (run, mut start) = started("approval", id, Payload::null());
            start.run_timeout = Some(Duration::from_secs(60));
            let mut h = HistoryBuilder::started_with(run, start);
            h.timer_started(Duration::from_secs(3_600));
            h.after(Duration::from_secs(60)).timed_out(WorkflowTimeout::Run);
            h.turns()
        },
    },
    CorpusStory {
        name: "retried-run",
        shows: "the second attempt of a run: a delayed start with everything a start can carry",
        tell: |id| {
            let (run, mut start) = started("greet", id, json("ada"));
            start.attempt = Attempt(2);
            start.first_run = run.derive("first", 0);
            start.continued_from = Some(start.first_run);
            start.last_failure = Some(declined());
            start.start_at = Some(HistoryBuilder::EPOCH.plus(Duration::from_secs(1)));
            start.execution_deadline = Some(HistoryBuilder::EPOCH.plus(Duration::from_secs(600)));
            start.retry_policy = Some(RetryPolicy { maximum_attempts: 3, ..RetryPolicy::default() });
            start.memo = [(FieldName::of("note"), json("fragile"))].into();
            start.search_attributes = attributes();
            start.identity = Some(Identity::of("ada@host"));
            start.request_id = Some(RequestId::of("r-1"));
            start.summary = Some("greets".into());
            start.carried_request_ids = vec![RequestId::of("r-0")];
            let mut h = HistoryBuilder::started_with(run, start);
            h.after(Duration::from_secs(1)).first_workflow_task_scheduled().completed(json("hello ada"));
            h.turns()
        },
    },
    CorpusStory {
        name: "readable-and-raw",
        shows: "payloads of all spellings: JSON, JSON with unusual text, bytes, deep nesting",
        tell: |id| {
            let mut h = told("counter", id, json(1));
            h.signaled("add", Payload::raw_json(" 2 ")).signaled("add", Payload::bytes(vec![b'3']));
            let deep = format!("{}{}", "[".repeat(60), "]".repeat(60));
            h.signaled("stop", Payload::raw_json(deep)).completed(json(6));
            h.turns()
        },
    },
];

fn attributes() -> SearchAttributes {
    let day = HistoryBuilder::EPOCH;
    [
        (FieldName::of("customer"), SearchValue::Keyword("ada".into())),
        (FieldName::of("tags"), SearchValue::KeywordList(vec!["a".into(), "b".into()])),
        (FieldName::of("day"), SearchValue::Datetime(day)),
        (FieldName::of("score"), SearchValue::Float(0.1)),
    ]
    .into()
}

fn note(h: &mut HistoryBuilder) {
    h.search_attributes_upserted([(FieldName::of("customer"), SearchValue::Keyword("ada".into()))].into());
    h.memo_modified([(FieldName::of("note"), json("fragile"))].into());
}
