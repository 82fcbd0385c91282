//! Starting a workflow execution: who gets a run, and which one.

use std::collections::BTreeSet;

use bosun_engine::testing::TestEnvironment;
use bosun_engine::workflow::{WfContext, WorkflowRegistry};
use bosun_engine::*;

use crate::kit::{HOUR, update};
use crate::scene::*;

fn environment() -> TestEnvironment {
    staged().1
}

fn with_request(id: &str, request: &str) -> StartWorkflow {
    StartWorkflow { request_id: Some(request.into()), ..start("wait", id, &()) }
}

/// E01: with the default policy a start of an open id is refused, and the refusal names the run that is open.
#[tokio::test]
async fn a_start_of_an_id_that_is_open_is_refused() {
    let environment = environment();
    let client = environment.client();
    let first = client.start(start("wait", "a", &())).await.unwrap();
    assert!(first.newly_started);
    let refused = client.start(start("wait", "a", &())).await;
    assert_eq!(refused, Err(Rejection::AlreadyOpen { workflow_id: "a".into(), run_id: first.run_id }));
    let environment = environment.crash(1, |_| {}).unwrap();
    let refused = environment.client().start(start("wait", "a", &())).await;
    assert_eq!(refused, Err(Rejection::AlreadyOpen { workflow_id: "a".into(), run_id: first.run_id }));
}

/// E01: conflict policy `use existing`.
#[tokio::test]
async fn a_start_may_use_the_run_that_is_open() {
    let environment = environment();
    let client = environment.client();
    let first = client.start(start("wait", "a", &())).await.unwrap();
    let request = StartWorkflow { id_conflict_policy: IdConflictPolicy::UseExisting, ..start("wait", "a", &()) };
    let second = client.start(request.clone()).await.unwrap();
    assert_eq!(second, Started { newly_started: false, ..first.clone() });
    client.terminate(&target("a"), "over".into(), None).await.unwrap();
    let third = client.start(request).await.unwrap();
    assert!(third.newly_started && third.run_id != first.run_id, "nothing is open to be used");
}

/// E01: conflict policy `terminate existing`.
#[tokio::test]
async fn a_start_may_end_the_run_that_is_open() {
    let environment = environment();
    let client = environment.client();
    let first = client.start(start("wait", "a", &())).await.unwrap();
    let request = StartWorkflow { id_conflict_policy: IdConflictPolicy::TerminateExisting, ..start("wait", "a", &()) };
    let second = client.start(request).await.unwrap();
    assert!(second.newly_started && second.run_id != first.run_id);
    let ended = client.result(&Target::run("a".into(), first.run_id), THIS_RUN).await.unwrap().unwrap();
    assert!(matches!(ended.outcome, CloseOutcome::Terminated { .. }), "{ended:?}");
    let environment = environment.crash(2, |_| {}).unwrap();
    let newest = environment.client().describe(&target("a")).await.unwrap().info;
    assert_eq!((newest.run_id, newest.status), (second.run_id, WorkflowStatus::Running));
}

/// E01: a start that cannot be carried out changes nothing; above all it does not end the run that was in its way.
#[tokio::test]
async fn a_start_that_is_refused_ends_nothing() {
    let environment = environment();
    let client = environment.client();
    client.start(start("wait", "a", &())).await.unwrap();
    let request =
        StartWorkflow { id_conflict_policy: IdConflictPolicy::TerminateExisting, ..start("nonsense", "a", &()) };
    let refused = client.start(request.clone()).await;
    assert!(matches!(refused, Err(Rejection::UnknownWorkflowType { .. })), "{refused:?}");
    let update = UpdateRequest {
        update_id: "u".into(),
        name: "nothing".into(),
        input: payload(&()),
        identity: None,
        wait: UpdateWait::Completed,
    };
    let request = StartWorkflow { workflow_type: "wait".into(), ..request };
    let refused = client.update_with_start(request, update).await;
    assert!(matches!(refused, Err(Rejection::UpdateRefused { .. })), "{refused:?}");
    assert_eq!(client.describe(&target("a")).await.unwrap().info.status, WorkflowStatus::Running);
}

/// E01: all id reuse policies after all ways a run can end, also after a restart.
#[tokio::test]
async fn the_reuse_policy_decides_by_how_the_last_run_ended() {
    let environment = environment();
    let client = environment.client();
    client.start(start("wait", "completed", &())).await.unwrap();
    client.signal(&target("completed"), signal("go", "on")).await.unwrap();
    client.start(start("fail", "failed", "Broken")).await.unwrap();
    client.start(start("wait", "canceled", &())).await.unwrap();
    client.cancel(&target("canceled"), "enough".into(), None, None).await.unwrap();
    client.start(start("wait", "terminated", &())).await.unwrap();
    client.terminate(&target("terminated"), "now".into(), None).await.unwrap();
    let timed_out = StartWorkflow { run_timeout: Some(SECOND), ..start("wait", "timed-out", &()) };
    client.start(timed_out).await.unwrap();
    let expected = [
        ("completed", WorkflowStatus::Completed, [true, false, false]),
        ("failed", WorkflowStatus::Failed, [true, true, false]),
        ("canceled", WorkflowStatus::Canceled, [true, true, false]),
        ("terminated", WorkflowStatus::Terminated, [true, true, false]),
        ("timed-out", WorkflowStatus::TimedOut, [true, true, false]),
    ];
    for (id, status, _) in &expected {
        assert_eq!(outcome(&client, id).await.status(), *status, "{id}");
    }
    let environment = environment.restart(|_| {}).unwrap();
    let client = environment.client();
    let policies =
        [IdReusePolicy::RejectDuplicate, IdReusePolicy::AllowDuplicateFailedOnly, IdReusePolicy::AllowDuplicate];
    for (id, status, allowed) in expected {
        for (policy, allowed) in policies.into_iter().zip(allowed.into_iter().rev()) {
            let again = client.start(StartWorkflow { id_reuse_policy: policy, ..start("wait", id, &()) }).await;
            match again {
                Ok(started) => {
                    assert!(allowed && started.newly_started, "{id} {policy:?}");
                    break;
                }
                Err(Rejection::IdReused { status: found, policy: by, .. }) => {
                    assert_eq!((allowed, found, by), (false, status, policy), "{id}");
                }
                Err(other) => panic!("{id} {policy:?}: {other}"),
            }
        }
    }
}

/// E01: a start with the same request id finds its run: while it is open, after it has ended, and over restarts.
#[tokio::test]
async fn a_start_repeated_with_its_request_id_finds_its_run() {
    let environment = environment();
    let client = environment.client();
    let first = client.start(with_request("a", "r1")).await.unwrap();
    let found = Started { newly_started: false, ..first.clone() };
    assert_eq!(client.start(with_request("a", "r1")).await.unwrap(), found);
    let environment = environment.crash(3, |_| {}).unwrap();
    let client = environment.client();
    assert_eq!(client.start(with_request("a", "r1")).await.unwrap(), found);
    client.signal(&target("a"), signal("go", "on")).await.unwrap();
    outcome(&client, "a").await;
    assert_eq!(client.start(with_request("a", "r1")).await.unwrap(), found);
    let environment = environment.restart(|_| {}).unwrap();
    let client = environment.client();
    assert_eq!(client.start(with_request("a", "r1")).await.unwrap(), found);
    let other = client.start(with_request("a", "r2")).await.unwrap();
    assert!(other.newly_started && other.run_id != first.run_id);
}

/// E01, E03: the request id of an execution that was retried belongs to its whole chain.
#[tokio::test]
async fn a_repeated_start_finds_the_newest_run_of_its_chain() {
    let environment = environment();
    let client = environment.client();
    let request =
        StartWorkflow { request_id: Some("r1".into()), retry_policy: attempts(2), ..start("fail", "a", "Broken") };
    let first = client.start(request.clone()).await.unwrap();
    outcome(&client, "a").await;
    let again = client.start(request).await.unwrap();
    assert!(!again.newly_started && again.run_id != first.run_id, "the retry is the newest run");
    assert_eq!(count(&client, "a", "WorkflowExecutionFailed").await, 1);
}

/// G17: 64 starts at once give one run; by policy to one of them, by request id to all of them.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn of_64_starts_at_once_one_run_begins() {
    for (round, same_request) in [false, true].into_iter().enumerate() {
        let (_stage, environment) = staged_with(|options| options.shards = 4);
        let client = environment.client();
        let starts = (0..64).map(|n| {
            let client = client.clone();
            let request = if same_request { "same".to_owned() } else { format!("r{n}") };
            tokio::spawn(async move { client.start(with_request("a", &request)).await })
        });
        let mut runs = BTreeSet::new();
        let (mut new, mut answered) = (0, 0);
        for started in futures_util::future::join_all(starts).await {
            match started.unwrap() {
                Ok(started) => {
                    new += usize::from(started.newly_started);
                    answered += 1;
                    runs.insert(started.run_id);
                }
                Err(Rejection::AlreadyOpen { run_id, .. }) => drop(runs.insert(run_id)),
                Err(other) => panic!("round {round}: {other}"),
            }
        }
        assert_eq!((runs.len(), new), (1, 1));
        assert_eq!(answered, if same_request { 64 } else { 1 });
        assert_eq!(client.count("").await.unwrap(), 1);
    }
}

/// E15: a run that was started from outside is nobody's child, whatever the request says: its end would be told to that
/// parent as the end of a child of its own.
#[tokio::test]
async fn a_start_from_outside_is_nobodys_child() {
    let environment = environment();
    let client = environment.client();
    let above = client.start(start("wait", "above", &())).await.unwrap().run_id;
    let parent =
        Parent { workflow_id: "above".into(), run_id: above, seq: Seq(1), close_policy: ParentClosePolicy::Terminate };
    let claimed = || StartWorkflow { parent: Some(parent.clone()), ..start("wait", "below", &()) };
    let word = || signal("word", &"x");
    let refused = [
        client.start(claimed()).await.err(),
        client.signal_with_start(claimed(), word()).await.err(),
        client.update_with_start(claimed(), update("u", "set", &(), UpdateWait::Accepted)).await.err(),
    ];
    for why in refused {
        let Some(Rejection::Invalid { why, .. }) = why else { panic!("{why:?}") };
        assert!(why.contains("only a run starts children"), "{why}");
    }
    assert!(matches!(client.describe(&target("below")).await, Err(Rejection::NotFound { .. })));
}

/// E24: the code of a delayed start begins when its time has come, over crashes; until then its messages wait, and its time
/// limits do not run.
#[tokio::test]
async fn a_delayed_start_begins_when_its_time_has_come() {
    let mut environment = environment();
    let delay = Some(HOUR);
    let limits = (Some(HOUR / 2), Some(HOUR / 2));
    let request = StartWorkflow {
        start_delay: delay,
        execution_timeout: limits.0,
        run_timeout: limits.1,
        ..with_request("later", "r1")
    };
    let first = environment.client().start(request.clone()).await.unwrap();
    let asked_at = environment.client().describe(&target("later")).await.unwrap().info.started_at;
    environment.client().signal(&target("later"), signal("go", "now")).await.unwrap();
    for seed in 0..3 {
        environment = environment.crash(seed, |_| {}).unwrap();
        let seen = environment.client().describe(&target("later")).await.unwrap();
        assert_eq!(
            (seen.starts_at, seen.inbox),
            (Some(asked_at.plus(HOUR)), 2),
            "the signal, and that the worker is another one"
        );
        let again = environment.client().start(request.clone()).await.unwrap();
        assert_eq!((again.run_id, again.newly_started), (first.run_id, false), "the same request is one start");
    }
    let client = environment.client();
    assert_eq!(completed::<String>(&client, "later").await, "now");
    let history = history(&client, &target("later")).await;
    let begun: Vec<_> = history.iter().filter(|event| event.kind == EventKind::FirstWorkflowTaskScheduled).collect();
    assert!(begun.len() == 1 && begun[0].at >= asked_at.plus(HOUR), "{begun:?}");
    assert_eq!(client.describe(&target("later")).await.unwrap().starts_at, None);
}

/// E08, E24: a fork before the code begins waits as long as the source was to wait, and says until when.
#[tokio::test]
async fn a_fork_of_a_delayed_start_says_when_it_begins() {
    let environment = environment();
    let client = environment.client();
    client.start(StartWorkflow { start_delay: Some(HOUR), ..start("wait", "a", &()) }).await.unwrap();
    environment.sleep(HOUR / 2).await;
    client.fork(ForkRequest::new(ForkSource::Run(target("a")), "b".into())).await.unwrap();
    let fork = client.describe(&target("b")).await.unwrap();
    let begins = fork.starts_at.unwrap();
    assert_eq!(begins, fork.info.started_at.plus(HOUR), "not when the source begins");
    client.signal(&target("b"), signal("go", "now")).await.unwrap();
    assert_eq!(completed::<String>(&client, "b").await, "now");
    let history = history(&client, &target("b")).await;
    let begun = history.iter().find(|event| event.kind == EventKind::FirstWorkflowTaskScheduled).unwrap();
    assert_eq!(begun.at, begins);
}

/// E24, E26: a reset of a run whose code has not begun keeps its delay, and one whose code has begun begins at once.
#[tokio::test]
async fn a_reset_of_a_delayed_start_waits_as_long_as_it_was_to_wait() {
    let environment = environment();
    let client = environment.client();
    client.start(StartWorkflow { start_delay: Some(HOUR), ..start("wait", "a", &()) }).await.unwrap();
    environment.sleep(HOUR / 2).await;
    client.reset(ResetRequest::new(target("a"), ResetTo::FirstTurn)).await.unwrap();
    let again = client.describe(&target("a")).await.unwrap();
    assert_eq!(again.starts_at, Some(again.info.started_at.plus(HOUR)));
    environment.sleep(2 * HOUR).await;
    client.reset(ResetRequest::new(target("a"), ResetTo::FirstTurn)).await.unwrap();
    assert_eq!(client.describe(&target("a")).await.unwrap().starts_at, None);
    client.signal(&target("a"), signal("go", "now")).await.unwrap();
    assert_eq!(completed::<String>(&client, "a").await, "now");
}

/// E17, E24: a request to cancel ends a run whose code has not begun; none of its work is begun only to be undone. Its
/// history replays, and says who asked.
#[tokio::test]
async fn a_canceled_delayed_start_begins_nothing() {
    let code =
        || WorkflowRegistry::new().workflow("quick", |_: WfContext, (): ()| async move { Ok("done".to_owned()) });
    let mut environment = TestEnvironment::start(code(), ActivityRegistry::new()).unwrap();
    let client = environment.client();
    client.start(StartWorkflow { start_delay: Some(HOUR), ..start("quick", "a", &()) }).await.unwrap();
    client.signal(&target("a"), signal("go", "now")).await.unwrap();
    client.cancel(&target("a"), "enough".into(), Some("ada".into()), None).await.unwrap();
    assert_eq!(outcome(&client, "a").await, CloseOutcome::Canceled(None));
    let turns = client.turns(&target("a")).await.unwrap();
    let events: Vec<EventKind> = turns.iter().flat_map(|turn| turn.events.clone()).collect();
    let asked = |event: &EventKind| matches!(event, EventKind::WorkflowExecutionCancelRequested { identity, .. } if identity == &Some("ada".into()));
    assert!(asked(&events[1]), "{events:?}");
    let EventKind::WorkflowExecutionCanceled { unhandled_signals, .. } = &events[2] else { panic!("{events:?}") };
    assert_eq!((events.len(), unhandled_signals.as_slice()), (3, &["go".into()][..]));
    bosun_engine::workflow::replay(&code(), &turns).unwrap();
    environment = environment.crash(1, |_| {}).unwrap();
    let client = environment.client();
    assert_eq!(client.describe(&target("a")).await.unwrap().info.status, WorkflowStatus::Canceled);

    let last = ResetRequest::new(target("a"), ResetTo::LastTurn);
    client.reset(last).await.unwrap();
    assert_eq!(outcome(&client, "a").await, CloseOutcome::Canceled(None), "it is asked again");
}

/// E03, E17: nor does the next attempt of a run that has failed.
#[tokio::test]
async fn a_run_that_is_canceled_between_two_attempts_does_not_begin_again() {
    let registry = WorkflowRegistry::new().workflow("stubborn", |_: WfContext, (): ()| async move {
        Err::<(), _>(Failure::application("Busy", "not now"))
    });
    let environment = TestEnvironment::start(registry, ActivityRegistry::new()).unwrap();
    let client = environment.client();
    let retry_policy = Some(RetryPolicy { initial_interval: 24 * 365 * HOUR, ..RetryPolicy::default() });
    client.start(StartWorkflow { retry_policy, ..start("stubborn", "a", &()) }).await.unwrap();
    crate::scene::until(&client, "a", |seen| seen.info.attempt == Attempt(2)).await;
    client.cancel(&target("a"), "enough".into(), None, None).await.unwrap();
    assert_eq!(outcome(&client, "a").await, CloseOutcome::Canceled(None));
    let history = history(&client, &target("a")).await;
    assert!(history.iter().all(|event| event.kind != EventKind::FirstWorkflowTaskScheduled), "{history:?}");
}

/// E24: nor does one that came while people had paused the run.
#[tokio::test]
async fn a_delayed_start_that_was_paused_is_canceled_when_it_may_go_on() {
    let environment = environment();
    let client = environment.client();
    let year = 24 * 365 * HOUR;
    client.start(StartWorkflow { start_delay: Some(year), ..start("wait", "a", &()) }).await.unwrap();
    let began = client.describe(&target("a")).await.unwrap().info.started_at;
    client.pause(&target("a"), String::new(), None).await.unwrap();
    client.cancel(&target("a"), "enough".into(), None, None).await.unwrap();
    client.unpause(&target("a"), String::new(), None).await.unwrap();
    let result =
        client.result(&target("a"), ResultRequest { follow_runs: true, timeout: None }).await.unwrap().unwrap();
    assert_eq!(result.outcome.status(), WorkflowStatus::Canceled, "{result:?}");
    let closed = client.describe(&target("a")).await.unwrap().info.closed_at.unwrap();
    assert!(closed.since(began) < year, "it did not wait for its time");
}

/// E24: who cancels or terminates a delayed start does not wait for its time.
#[tokio::test]
async fn a_delayed_start_is_ended_at_once() {
    let environment = environment();
    let client = environment.client();
    let delayed = |id: &str| StartWorkflow { start_delay: Some(24 * 365 * HOUR), ..start("wait", id, &()) };
    let mut asked_at = Vec::new();
    for id in ["canceled", "terminated"] {
        client.start(delayed(id)).await.unwrap();
        asked_at.push(client.describe(&target(id)).await.unwrap().info.started_at);
    }
    client.cancel(&target("canceled"), "enough".into(), None, None).await.unwrap();
    client.terminate(&target("terminated"), "enough".into(), None).await.unwrap();
    assert_eq!(outcome(&client, "canceled").await.status(), WorkflowStatus::Canceled);
    assert_eq!(outcome(&client, "terminated").await.status(), WorkflowStatus::Terminated);
    for (id, asked_at) in ["canceled", "terminated"].into_iter().zip(asked_at) {
        let closed_at = client.describe(&target(id)).await.unwrap().info.closed_at.unwrap();
        assert!(closed_at.since(asked_at) < HOUR, "{id} has waited {:?}", closed_at.since(asked_at));
    }
}
