//! Signals: buffered, in order, each exactly once, and none lost silently.

use std::collections::BTreeMap;
use std::time::Duration;

use bosun_engine::log::InjectedFault;
use bosun_engine::testing::TestEnvironment;
use bosun_engine::workflow::{Cx, Either, StateMachine, WfContext, WorkflowEvent, WorkflowRegistry, select};
use bosun_engine::*;
use serde::{Deserialize, Serialize};

use crate::kit::*;

/// What each sender has said so far.
type Heard = BTreeMap<String, Vec<u32>>;

/// Hears `say` signals of many senders and goes on in a new run every 60 signals. `finish` ends it.
#[derive(Serialize, Deserialize)]
struct Mill {
    heard: Heard,
    in_this_run: u32,
}

impl StateMachine for Mill {
    const TYPE: &'static str = "mill";
    type Input = Heard;
    type Output = Heard;

    fn start(heard: Heard, _cx: &mut Cx<'_>) -> Result<Self, Failure> {
        Ok(Mill { heard, in_this_run: 0 })
    }
    fn on_event(&mut self, event: WorkflowEvent, cx: &mut Cx<'_>) -> Result<(), Failure> {
        let WorkflowEvent::Signal(signal) = event else { return Ok(()) };
        if signal.name.as_str() == "finish" {
            cx.complete(&self.heard);
            return Ok(());
        }
        let (sender, number): (String, u32) = signal.input.decode()?;
        self.heard.entry(sender).or_default().push(number);
        self.in_this_run += 1;
        if self.in_this_run == 60 {
            cx.continue_as_new(&self.heard, ContinueAsNewOptions::default());
        }
        Ok(())
    }
}

/// The same as an async function.
async fn mill(ctx: WfContext, mut heard: Heard) -> Result<Heard, Failure> {
    let (say, finish) = (ctx.signal_channel::<(String, u32)>("say"), ctx.signal_channel::<()>("finish"));
    for _ in 0..60 {
        let next = select(say.recv(), finish.recv()).await;
        match next {
            Either::First(said) => {
                let (sender, number) = said?;
                heard.entry(sender).or_default().push(number);
            }
            Either::Second(_) => return Ok(heard),
        }
    }
    ctx.continue_as_new(&heard, ContinueAsNewOptions::default())
}

/// Waits an hour, then takes what has come.
async fn late(ctx: WfContext, (): ()) -> Result<(Option<String>, Vec<String>), Failure> {
    ctx.timer(HOUR).await?;
    let words = ctx.signal_channel::<String>("word");
    let first = words.try_recv().transpose()?;
    let rest = words.drain().into_iter().collect::<Result<_, _>>()?;
    Ok((first, rest))
}

/// The first run goes on at `go`; the second one takes three words.
async fn handover(ctx: WfContext, second: bool) -> Result<Vec<String>, Failure> {
    if !second {
        ctx.signal_channel::<()>("go").recv().await?;
        return ctx.continue_as_new(&true, ContinueAsNewOptions::default());
    }
    let words = ctx.signal_channel::<String>("word");
    let mut taken = Vec::new();
    for _ in 0..3 {
        taken.push(words.recv().await?);
    }
    Ok(taken)
}

/// Puts words aside until `go`, then hands them to the next run, which completes with their number.
#[derive(Serialize, Deserialize)]
struct Aside {
    second: bool,
    words: u32,
}

impl StateMachine for Aside {
    const TYPE: &'static str = "aside";
    type Input = bool;
    type Output = u32;

    fn start(second: bool, _cx: &mut Cx<'_>) -> Result<Self, Failure> {
        Ok(Aside { second, words: 0 })
    }
    fn on_event(&mut self, event: WorkflowEvent, cx: &mut Cx<'_>) -> Result<(), Failure> {
        let WorkflowEvent::Signal(signal) = event else { return Ok(()) };
        match (signal.name.as_str(), self.second) {
            ("go", false) => cx.continue_as_new(&true, ContinueAsNewOptions::default()),
            ("go", true) => cx.complete(&self.words),
            (_, false) => cx.defer_signal(signal),
            (_, true) => self.words += 1,
        }
        Ok(())
    }
}

fn workflows() -> WorkflowRegistry {
    WorkflowRegistry::new()
        .state_machine::<Mill>()
        .state_machine::<Aside>()
        .workflow("mill-async", mill)
        .workflow("late", late)
        .workflow("handover", handover)
}

/// E11: a signal that comes before the code waits is kept, over a crash too; `try_recv` and `drain` take what is there.
#[tokio::test]
async fn signals_wait_until_the_code_takes_them() {
    let environment = environment(workflows());
    let client = environment.client();
    client.start(start("late", "a", &())).await.unwrap();
    client.start(start("late", "none", &())).await.unwrap();
    for word in ["one", "two", "three"] {
        client.signal(&target("a"), signal("word", word)).await.unwrap();
    }
    let environment = environment.crash(11, |_| {}).unwrap();
    let client = environment.client();
    let taken: (Option<String>, Vec<String>) = output(&client, "a").await;
    assert_eq!(taken, (Some("one".into()), vec!["two".into(), "three".into()]));
    assert_eq!(output::<(Option<String>, Vec<String>)>(&client, "none").await, (None, vec![]));
}

/// E11: signals that nobody took are named when the run ends, in both forms and for those a pause kept waiting.
#[tokio::test]
async fn unhandled_signals_are_reported_at_the_end() {
    let environment = environment(workflows());
    let client = environment.client();
    client.start(start("late", "a", &())).await.unwrap();
    client.signal(&target("a"), signal("ignored", &1)).await.unwrap();
    client.start(start("aside", "m", &false)).await.unwrap();
    client.start(start("mill", "paused", &Heard::new())).await.unwrap();
    client.signal(&target("m"), signal("word", &1)).await.unwrap();
    client.pause(&target("paused"), "lunch".into(), None).await.unwrap();
    for name in ["finish", "late-one", "late-two"] {
        client.signal(&target("paused"), signal(name, &())).await.unwrap();
    }
    client.unpause(&target("paused"), "back".into(), None).await.unwrap();
    outcome(&client, "a").await;
    outcome(&client, "paused").await;
    let reported = |events: &[Event]| match &events.last().unwrap().kind {
        EventKind::WorkflowExecutionCompleted { unhandled_signals, .. } => unhandled_signals.clone(),
        other => panic!("unexpected {}", other.name()),
    };
    assert_eq!(reported(&history(&client, "a").await), ["ignored".into()]);
    assert_eq!(reported(&history(&client, "paused").await), ["late-one".into(), "late-two".into()]);
    client.signal(&target("m"), signal("go", &())).await.unwrap();
    client.signal(&target("m"), signal("go", &())).await.unwrap();
    assert_eq!(output::<u32>(&client, "m").await, 1, "the word set aside was the next run's");
}

/// E11, E19: what was accepted and not consumed goes to the next run, once, whether the code or a pause kept it
/// waiting; a repetition of a request is recognised there.
#[tokio::test]
async fn unconsumed_signals_go_to_the_next_run_once() {
    let environment = environment(workflows());
    let client = environment.client();
    let first = client.start(start("handover", "a", &false)).await.unwrap().run_id;
    let word = |word: &str| signal_once("word", word, &format!("request-{word}"));
    client.signal(&target("a"), word("one")).await.unwrap();
    client.pause(&target("a"), "so that the rest waits in the inbox".into(), None).await.unwrap();
    client.signal(&target("a"), signal("go", &())).await.unwrap();
    client.signal(&target("a"), word("two")).await.unwrap();
    let environment = environment.crash(7, |_| {}).unwrap();
    let client = environment.client();
    client.signal(&target("a"), word("two")).await.unwrap();
    client.unpause(&target("a"), "on".into(), None).await.unwrap();
    assert_eq!(
        client.describe(&Target::run("a".into(), first)).await.unwrap().info.status,
        WorkflowStatus::ContinuedAsNew
    );
    for again in ["one", "two", "three", "one"] {
        // The last one finds the run closed; it is a repetition all the same.
        client.signal(&target("a"), word(again)).await.unwrap();
    }
    assert_eq!(output::<Vec<String>>(&client, "a").await, ["one", "two", "three"]);
}

/// E11, E17: a cancel request that waited in the inbox of a run that goes on in a new one is the new one's to hear.
#[tokio::test]
async fn a_cancel_request_in_the_inbox_reaches_the_next_run() {
    let environment = environment(workflows());
    let client = environment.client();
    client.start(start("handover", "a", &false)).await.unwrap();
    client.pause(&target("a"), "lunch".into(), None).await.unwrap();
    client.signal(&target("a"), signal("go", &())).await.unwrap();
    client.cancel(&target("a"), "enough".into(), None, Some("cancel-1".into())).await.unwrap();
    client.unpause(&target("a"), "on".into(), None).await.unwrap();
    assert_eq!(outcome(&client, "a").await, CloseOutcome::Canceled(None));
}

/// One sender: sends the next numbers to both runs until something fails, repeating each acknowledged request once.
/// Gives back how far it got.
async fn send(client: Client, sender: usize, mut next: u32, upto: u32) -> u32 {
    while next < upto {
        for id in ["machine", "async"] {
            let request = || signal_once("say", &(format!("sender-{sender}"), next), &format!("{sender}-{next}"));
            if client.signal(&target(id), request()).await.is_err() {
                return next;
            }
            if next.is_multiple_of(3) && client.signal(&target(id), request()).await.is_err() {
                return next;
            }
        }
        next += 1;
    }
    next
}

/// G13: eight senders, requests repeated, storage failing in the middle of requests, crashes, restarts and
/// continue-as-new: every acknowledged signal is delivered exactly once and in the order of its sender.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_signal_is_delivered_once_and_in_order_of_its_sender() {
    const EACH: u32 = 60;
    let mut environment = environment(workflows());
    environment.client().start(start("mill", "machine", &Heard::new())).await.unwrap();
    environment.client().start(start("mill-async", "async", &Heard::new())).await.unwrap();
    let mut next = [0; 8];
    for round in 1_u32.. {
        let done = next.iter().all(|sent| *sent == EACH);
        if !done && !round.is_multiple_of(4) {
            let fault = if round.is_multiple_of(2) { InjectedFault::Eio } else { InjectedFault::EioAfter };
            environment.log().fail_at(u64::from(10 + round * 7 % 40), fault);
        }
        let upto = (round * 10).min(EACH);
        let senders: Vec<_> = (0..8).map(|n| tokio::spawn(send(environment.client(), n, next[n], upto))).collect();
        for (n, sender) in senders.into_iter().enumerate() {
            next[n] = sender.await.unwrap();
        }
        if done {
            break;
        }
        environment = environment.crash(u64::from(round), |_| {}).unwrap();
    }
    let expected: Heard = (0..8).map(|n| (format!("sender-{n}"), (0..EACH).collect())).collect();
    let client = environment.client();
    for id in ["machine", "async"] {
        client.signal(&target(id), signal("finish", &())).await.unwrap();
        assert_eq!(output::<Heard>(&client, id).await, expected, "{id}");
        let info = client.describe(&target(id)).await.unwrap().info;
        assert_ne!(info.run_id, info.first_run, "{id} went on in new runs");
    }
}

fn checked(id: &str) -> StartWorkflow {
    StartWorkflow { request_id: Some("start-1".into()), ..start("checked", id, &()) }
}

/// Completes with the first word and the first positive number an update gave.
async fn checked_flow(ctx: WfContext, (): ()) -> Result<(String, i64), Failure> {
    let number = ctx.state("number", 0_i64);
    let set = number.clone();
    ctx.on_update(
        "set",
        |wanted: &i64| {
            if *wanted > 0 { Ok(()) } else { Err(Failure::application("NotPositive", "give a positive number")) }
        },
        move |_, wanted: i64| {
            set.set(wanted);
            async move { Ok(wanted * 2) }
        },
    );
    let word = ctx.signal_channel::<String>("word").recv().await?;
    let seen = number.clone();
    ctx.wait_until(move || seen.get() > 0).await?;
    Ok((word, number.get()))
}

fn checked_environment() -> TestEnvironment {
    environment(WorkflowRegistry::new().workflow("checked", checked_flow))
}

/// E12: the start and its signal are one: at whichever write the storage fails, there are both or neither afterwards,
/// and the repeated request leaves one run with one signal.
#[tokio::test]
async fn signal_with_start_is_atomic_over_a_crash_at_any_write() {
    let mut fresh = 0;
    for (fault, n) in
        [InjectedFault::Eio, InjectedFault::EioAfter].into_iter().flat_map(|fault| (1..=3).map(move |n| (fault, n)))
    {
        let environment = checked_environment();
        environment.log().fail_at(n, fault);
        let word = || signal_once("word", "hello", "word-1");
        let first = environment.client().signal_with_start(checked("a"), word()).await;
        let environment = environment.crash(n, |_| {}).unwrap();
        let client = environment.client();
        let found = client.turns(&target("a")).await;
        match (&first, &found) {
            (Ok(_), Err(why)) => panic!("acknowledged and lost: {why}"),
            (_, Ok(turns)) => {
                let events: Vec<Event> = turns.iter().flat_map(Turn::numbered).collect();
                assert_eq!(count(&events, "WorkflowExecutionSignaled"), 1, "{fault:?} at write {n}");
            }
            (Err(_), Err(_)) => fresh += 1,
        }
        let again = client.signal_with_start(checked("a"), word()).await.unwrap();
        assert_eq!(again.newly_started, found.is_err());
        client.update(&target("a"), update("u", "set", &4, UpdateWait::Completed)).await.unwrap();
        assert_eq!(output::<(String, i64)>(&client, "a").await, ("hello".into(), 4));
        assert_eq!(count(&history(&client, "a").await, "WorkflowExecutionSignaled"), 1);
        assert_eq!(client.count("").await.unwrap(), 1, "one run in all");
    }
    assert!(fresh > 0, "some fault must have left nothing");
}

/// E12: on an open run signal-with-start signals it; an update that the validator refuses starts nothing.
#[tokio::test]
async fn what_comes_with_a_start_goes_to_the_open_run_and_a_refused_update_starts_none() {
    let environment = checked_environment();
    let client = environment.client();
    let refused = client.update_with_start(checked("a"), update("u0", "set", &-1, UpdateWait::Completed)).await;
    assert!(matches!(&refused, Err(Rejection::UpdateRefused { failure, .. }) if failure.type_name() == "NotPositive"));
    assert_eq!(client.count("").await.unwrap(), 0);
    assert!(matches!(client.describe(&target("a")).await, Err(Rejection::NotFound { .. })));

    let begun = client.start(start("checked", "a", &())).await.unwrap();
    let joined = client.signal_with_start(start("checked", "a", &()), signal("word", "x")).await.unwrap();
    assert_eq!((joined.run_id, joined.newly_started), (begun.run_id, false));
    let mut joining = start("checked", "a", &());
    joining.id_conflict_policy = IdConflictPolicy::UseExisting;
    let (joined, answer) =
        client.update_with_start(joining, update("u1", "set", &3, UpdateWait::Completed)).await.unwrap();
    assert_eq!((joined.run_id, joined.newly_started), (begun.run_id, false));
    assert_eq!(answer, UpdateOutcome::Completed(Ok(payload(&6))));
    assert_eq!(output::<(String, i64)>(&client, "a").await, ("x".into(), 3));
}

/// E12: update-with-start is atomic over a crash at any write, and its repetition gets the first answer.
#[tokio::test]
async fn update_with_start_is_atomic_over_a_crash_at_any_write() {
    for (fault, n) in
        [InjectedFault::Eio, InjectedFault::EioAfter].into_iter().flat_map(|fault| (1..=3).map(move |n| (fault, n)))
    {
        let environment = checked_environment();
        environment.log().fail_at(n, fault);
        let set = || update("set-1", "set", &5, UpdateWait::Completed);
        let first = environment.client().update_with_start(checked("a"), set()).await;
        let environment = environment.crash(n, |_| {}).unwrap();
        let client = environment.client();
        match client.turns(&target("a")).await {
            Ok(turns) => {
                let events: Vec<Event> = turns.iter().flat_map(Turn::numbered).collect();
                assert_eq!(count(&events, "WorkflowExecutionUpdateAccepted"), 1, "{fault:?} at write {n}");
            }
            Err(why) => assert!(first.is_err(), "acknowledged and lost: {why}"),
        }
        let (_, answer) = client.update_with_start(checked("a"), set()).await.unwrap();
        assert_eq!(answer, UpdateOutcome::Completed(Ok(payload(&10))));
        client.signal(&target("a"), signal("word", "w")).await.unwrap();
        assert_eq!(output::<(String, i64)>(&client, "a").await, ("w".into(), 5));
        assert_eq!(count(&history(&client, "a").await, "WorkflowExecutionUpdateAccepted"), 1);
        assert_eq!(environment.now(), TestEnvironment::EPOCH.plus(Duration::ZERO), "nothing had to wait");
    }
}

/// Takes what has come before it does anything, and what has come an hour later.
async fn prompt(ctx: WfContext, waits: bool) -> Result<(Vec<String>, Vec<String>), Failure> {
    let words = ctx.signal_channel::<String>("word");
    let first = words.drain().into_iter().collect::<Result<_, _>>()?;
    if waits {
        ctx.timer(HOUR).await?;
    }
    Ok((first, words.drain().into_iter().collect::<Result<_, _>>()?))
}

/// E11, E12: the code finds the signal that came with its start waiting when it begins; so it does after a crash, in a reset
/// to the beginning and in a fork of it; and code that ends at once has been started and signaled.
#[tokio::test]
async fn a_signal_that_comes_with_the_start_is_there_before_the_first_wait() {
    let environment = environment(WorkflowRegistry::new().workflow("prompt", prompt));
    let client = environment.client();
    let word = || signal_once("word", "hello", "word-1");
    client.signal_with_start(start("prompt", "short", &false), word()).await.unwrap();
    let heard = (vec!["hello".to_owned()], Vec::<String>::new());
    assert_eq!(output::<(Vec<String>, Vec<String>)>(&client, "short").await, heard);
    client.signal_with_start(start("prompt", "long", &true), word()).await.unwrap();
    client.signal(&target("long"), signal("word", "later")).await.unwrap();
    let events = history(&client, "long").await;
    assert_eq!(events[1].kind.name(), "WorkflowExecutionSignaled");
    assert_eq!(events[2].kind.name(), "TimerStarted", "the code begins when it has heard it");

    let environment = environment.restart(|_| {}).unwrap();
    let client = environment.client();
    environment.sleep(2 * HOUR).await;
    let both = (vec!["hello".to_owned()], vec!["later".to_owned()]);
    assert_eq!(output::<(Vec<String>, Vec<String>)>(&client, "long").await, both);
}

/// E12, E26: a reset to the beginning and a fork of it hear again first what came with the start; a fork that keeps nothing and
/// hears nothing again begins without.
#[tokio::test]
async fn a_signal_that_comes_with_the_start_comes_with_it_again() {
    let environment = environment(WorkflowRegistry::new().workflow("prompt", prompt));
    let client = environment.client();
    client.signal_with_start(start("prompt", "a", &true), signal_once("word", "hello", "w")).await.unwrap();
    let heard = |word: Option<&str>| (word.map(str::to_owned).into_iter().collect::<Vec<_>>(), Vec::<String>::new());
    for (id, reapply, word) in [("b", ForkReapply::Signals, Some("hello")), ("c", ForkReapply::None, None)] {
        let fork =
            ForkRequest { at: Some(EventId(1)), reapply, ..ForkRequest::new(ForkSource::Run(target("a")), id.into()) };
        client.fork(fork).await.unwrap();
        environment.sleep(2 * HOUR).await;
        assert_eq!(output::<(Vec<String>, Vec<String>)>(&client, id).await, heard(word), "{id}");
    }
    client.signal_with_start(start("prompt", "d", &true), signal_once("word", "hello", "w")).await.unwrap();
    for to in [ResetTo::FirstTurn, ResetTo::Event(EventId(1)), ResetTo::Event(EventId(2)), ResetTo::LastTurn] {
        client.reset(ResetRequest::new(target("d"), to)).await.unwrap();
        let events = history(&client, "d").await;
        assert_eq!(count(&events, "WorkflowExecutionSignaled"), 1, "{to:?}");
    }
    let environment = environment.restart(|_| {}).unwrap();
    environment.sleep(2 * HOUR).await;
    assert_eq!(output::<(Vec<String>, Vec<String>)>(&environment.client(), "d").await, heard(Some("hello")));
}
