//! Forks: a new run that begins with the history of another one and goes another way.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bosun_engine::testing::TestEnvironment;
use bosun_engine::workflow::{Cx, RunNames, StateMachine, WfContext, WorkflowEvent, WorkflowRegistry, replay};
use bosun_engine::*;
use serde::{Deserialize, Serialize};

use crate::kit::*;

static COIN: AtomicU64 = AtomicU64::new(1);

/// Uses everything that derives from the run: its ids, random values, a recorded value.
async fn draft(ctx: WfContext, topic: String) -> Result<Vec<String>, Failure> {
    let coin: u64 = ctx.side_effect(|| COIN.fetch_add(1, Ordering::SeqCst));
    let label = format!("{topic} {coin} by {} {} {}", ctx.workflow_id(), ctx.run_id(), ctx.uuid());
    let mut said = vec![ctx.activity::<String>("write", &label, quick()).await?];
    ctx.timer(HOUR).await?;
    let verdict: String = ctx.activity("review", &said[0], quick()).await?;
    if verdict == "bad" {
        return Err(Failure::application("Rejected", "the review was bad"));
    }
    said.push(verdict);
    let word: String = ctx.signal_channel("publish").recv().await?;
    said.push(ctx.activity("write", &format!("{word} {} {}", ctx.workflow_id(), ctx.uuid()), quick()).await?);
    Ok(said)
}

/// The same in the other form, as far as it has these ids.
#[derive(Serialize, Deserialize)]
struct DraftMachine {
    said: Vec<String>,
}

impl StateMachine for DraftMachine {
    const TYPE: &'static str = "draft-machine";
    type Input = String;
    type Output = Vec<String>;

    fn start(topic: String, cx: &mut Cx<'_>) -> Result<Self, Failure> {
        let label = format!("{topic} by {} {} {}", own_id(cx), cx.run_id(), cx.uuid());
        cx.schedule_activity("write", &label, quick());
        Ok(DraftMachine { said: Vec::new() })
    }
    fn on_event(&mut self, event: WorkflowEvent, cx: &mut Cx<'_>) -> Result<(), Failure> {
        let WorkflowEvent::ActivityResolved { result, .. } = event else { return Ok(()) };
        self.said.push(result?.decode()?);
        match self.said.len() {
            1 => drop(cx.schedule_activity("review", &self.said[0], quick())),
            2 if self.said[1] == "bad" => return Err(Failure::application("Rejected", "the review was bad")),
            2 => {
                let label = format!("final {} {}", own_id(cx), cx.uuid());
                cx.schedule_activity("write", &label, quick());
            }
            _ => cx.complete(&self.said),
        }
        Ok(())
    }
}

/// Waits, and says under which names it is asked.
async fn named(ctx: WfContext, _: String) -> Result<(), Failure> {
    let own = ctx.clone();
    ctx.on_query("names", move |()| Ok((own.workflow_id().clone(), own.run_id())));
    let own = ctx.clone();
    let only = move |id: &String| own.workflow_id().as_str().eq(id).then_some(()).ok_or_else(not_me);
    ctx.on_update("rename", only, |_, id: String| async move { Ok(id) });
    ctx.signal_channel("end").recv().await
}

/// The same in the other form.
#[derive(Serialize, Deserialize)]
struct NamedMachine;

impl StateMachine for NamedMachine {
    const TYPE: &'static str = "named-machine";
    type Input = String;
    type Output = ();

    fn start(_: String, _: &mut Cx<'_>) -> Result<Self, Failure> {
        Ok(NamedMachine)
    }
    fn on_event(&mut self, event: WorkflowEvent, cx: &mut Cx<'_>) -> Result<(), Failure> {
        if let WorkflowEvent::Update { update_id, input, .. } = event {
            cx.complete_update(update_id, Ok(&input.decode::<String>()?));
        }
        Ok(())
    }
    fn queries() -> &'static [&'static str] {
        &["names"]
    }
    fn query_as(&self, names: &RunNames, _: &QueryName, _: &Payload) -> Result<Payload, Failure> {
        Ok(Payload::encode(&(&names.workflow_id, names.run_id))?)
    }
    fn validate_update_as(&self, names: &RunNames, _: &UpdateName, input: &Payload) -> Result<(), Failure> {
        let id: String = input.decode()?;
        names.workflow_id.as_ref().is_some_and(|own| own.as_str() == id).then_some(()).ok_or_else(not_me)
    }
}

fn not_me() -> Failure {
    Failure::application("NotMe", "this is another run")
}

fn own_id(cx: &Cx<'_>) -> String {
    cx.workflow_id().map(ToString::to_string).unwrap_or_default()
}

fn world() -> (Ledger, TestEnvironment) {
    let ledger = Ledger::default();
    let mut activities = ActivityRegistry::new();
    let noted = ledger.clone();
    activities.register("write", move |ctx: ActivityContext, what: String| {
        noted.note(format!("write {} {what}", ctx.idempotency_key()));
        async move { Ok(what) }
    });
    let noted = ledger.clone();
    activities.register("review", move |ctx: ActivityContext, _: String| {
        noted.note(format!("review {}", ctx.idempotency_key()));
        async move { Ok("bad".to_owned()) }
    });
    (ledger, environment_with(code(), activities))
}

fn code() -> WorkflowRegistry {
    WorkflowRegistry::new()
        .workflow("draft", draft)
        .state_machine::<DraftMachine>()
        .workflow("named", named)
        .state_machine::<NamedMachine>()
}

fn fork(source: &str, id: &str) -> ForkRequest {
    ForkRequest::new(ForkSource::Run(target(source)), id.into())
}

fn result_of(name: &str, value: &str) -> ForkChange {
    let of = ForkSubject::Name { name: name.into(), nth: None };
    ForkChange::Outcome { of, outcome: Ok(payload(value)) }
}

/// The turns of a run, after they were replayed from the beginning.
async fn replayed(client: &Client, id: &str) -> Vec<Turn> {
    let turns = client.turns(&target(id)).await.unwrap();
    replay(&code(), &turns).unwrap_or_else(|why| panic!("{id}: {why}"));
    turns
}

fn events(turns: &[Turn]) -> Vec<Event> {
    turns.iter().flat_map(Turn::numbered).collect()
}

async fn rejected(client: &Client, form: &str) {
    client.start(start(form, "source", "tea")).await.unwrap();
    let CloseOutcome::Failed(failure) = outcome(client, "source").await else { panic!("the review is bad") };
    assert_eq!(failure.type_name(), "Rejected");
}

/// E20, G21: a replaced result leads to another end; what was copied is the source's, with its times and derived values,
/// and what comes after is the fork's own.
#[tokio::test]
async fn a_replaced_result_leads_to_another_end() {
    let (ledger, environment) = world();
    let client = environment.client();
    rejected(&client, "draft").await;
    let before = ledger.entries();
    environment.sleep(HOUR).await;
    let forked = client.fork(fork("source", "fork").change(result_of("review", "good"))).await.unwrap();
    assert!(forked.newly_started);
    assert_eq!(forked.plan.told.len(), 1);
    assert_eq!(forked.plan.told[0].what, "review = \"good\"");
    client.signal(&target("fork"), signal("publish", "print")).await.unwrap();
    let said: Vec<String> = output(&client, "fork").await;

    let (source, copy) = (replayed(&client, "source").await, replayed(&client, "fork").await);
    let (source, copy) = (events(&source), events(&copy));
    let n = usize::try_from(forked.plan.event.0).unwrap();
    for (theirs, ours) in source[1..n].iter().zip(&copy[1..n]) {
        assert_eq!(theirs, ours);
    }
    assert_eq!(copy[n].kind.name(), "WorkflowExecutionForked");
    assert!(copy[n].at > copy[n - 1].at);
    assert_eq!(names(&copy[n + 1..])[..2], ["ActivityTaskCompleted", "WorkflowExecutionSignaled"]);

    let info = client.describe(&target("fork")).await.unwrap().info;
    let source_info = client.describe(&target("source")).await.unwrap().info;
    let from =
        ForkPoint { workflow_id: "source".into(), run_id: source_info.run_id, event: forked.plan.event, reset: false };
    assert_eq!(info.forked_from, Some(from));
    assert!(info.started_at > source_info.started_at, "lists show it as new");
    assert_eq!((info.parent, info.first_run), (None, info.run_id));

    assert!(said[0].contains(&format!("by source {}", source_info.run_id)), "{said:?}");
    assert!(said[2].starts_with("print fork "), "{said:?}");
    let after = ledger.entries();
    assert_eq!(after[..before.len()], before[..]);
    assert_eq!(after.len(), before.len() + 1, "only the last step was done: {after:?}");
}

/// E20: both forms; and random values after the fork are the fork's own, not those the source would have got.
#[tokio::test]
async fn two_forks_of_one_run_do_not_share_random_values() {
    for form in ["draft", "draft-machine"] {
        let (ledger, environment) = world();
        let client = environment.client();
        rejected(&client, form).await;
        for id in ["f1", "f2"] {
            client.fork(fork("source", id).change(result_of("review", "good"))).await.unwrap();
            if form == "draft" {
                client.signal(&target(id), signal("publish", "print")).await.unwrap();
            }
            let said: Vec<String> = output(&client, id).await;
            assert_eq!(said.len(), 3);
            assert!(said[0].contains("by source "), "{form}: what was copied was said by the source: {said:?}");
            assert!(said[2].contains(&format!(" {id} ")), "{form}: what follows, the fork says itself: {said:?}");
            replayed(&client, id).await;
        }
        let writes: Vec<String> = ledger.entries().into_iter().filter(|entry| entry.starts_with("write")).collect();
        let last: Vec<&str> = writes.iter().rev().take(2).filter_map(|entry| entry.rsplit(' ').next()).collect();
        assert_ne!(last[0], last[1], "{form}: {writes:?}");
    }
}

/// A fork of a fork begins with what both had, and each part keeps the ids of the run it was recorded in.
#[tokio::test]
async fn a_fork_can_be_forked() {
    let (_, environment) = world();
    let client = environment.client();
    rejected(&client, "draft").await;
    client.fork(fork("source", "f1").change(result_of("review", "good"))).await.unwrap();
    client.signal(&target("f1"), signal("publish", "first")).await.unwrap();
    let first: Vec<String> = output(&client, "f1").await;
    let publish = ForkChange::Signal { name: "publish".into(), nth: None, input: payload("second") };
    let forked = client.fork(fork("f1", "f2").change(publish)).await.unwrap();
    let second: Vec<String> = output(&client, "f2").await;
    assert_eq!(first[..2], second[..2]);
    assert!(second[2].starts_with("second f2 "), "{second:?}");
    let copy = events(&replayed(&client, "f2").await);
    assert_eq!(count(&copy, "WorkflowExecutionForked"), 2);
    assert_eq!(forked.from.workflow_id, "f1".into());

    // Earlier than the first fork: only the source's events are left.
    let early = client.fork(fork("f1", "f3").at(EventId(4))).await.unwrap();
    assert_eq!(early.plan.event, EventId(4));
    let CloseOutcome::Failed(_) = outcome(&client, "f3").await else { panic!("it is reviewed again, and badly") };
    assert_eq!(count(&events(&replayed(&client, "f3").await), "WorkflowExecutionForked"), 1);
    assert_eq!(count(&events(&replayed(&client, "f3").await), "TimerFired"), 1);
}

/// E13: a fork is asked under its own names from its first moment on, also by what checks an update, and a replay of it
/// ends with the same names.
#[tokio::test]
async fn a_fork_bears_its_own_names_before_anything_has_happened_in_it() {
    for form in ["named", "named-machine"] {
        let (_, environment) = world();
        let client = environment.client();
        client.start(start(form, "source", "tea")).await.unwrap();
        settled(&environment).await;
        let forked = client.fork(fork("source", "fork")).await.unwrap();
        let again = client.fork(fork("fork", "again")).await.unwrap();
        let forks = [("fork", forked.run_id.unwrap()), ("again", again.run_id.unwrap())];
        for (id, run) in forks {
            assert_eq!(query::<(WorkflowId, RunId)>(&client, id, "names").await, (id.into(), run), "{form}");
        }
        let environment = environment.restart(|_| {}).unwrap();
        let client = environment.client();
        for (id, run) in forks {
            assert_eq!(query::<(WorkflowId, RunId)>(&client, id, "names").await, (id.into(), run), "{form}: loaded");
            let turns = client.turns(&target(id)).await.unwrap();
            let mut driver = replay(&code(), &turns).unwrap().driver;
            let names = driver.query(&"names".into(), &Payload::null()).unwrap().decode::<(WorkflowId, RunId)>();
            assert_eq!(names.unwrap(), (id.into(), run), "{form}: replayed");
            let theirs = client.update(&target(id), update("u1", "rename", "source", UpdateWait::Completed)).await;
            assert!(theirs.is_err(), "{form}: {theirs:?}");
            let ours = client.update(&target(id), update("u2", "rename", id, UpdateWait::Completed)).await;
            assert_eq!(ours.unwrap(), UpdateOutcome::Completed(Ok(payload(id))), "{form}");
        }
        let own: (WorkflowId, RunId) = query(&client, "source", "names").await;
        assert_eq!(own.0, "source".into(), "{form}");
    }
}

/// A changed input begins anew; a changed value of a side effect repeats its activation with it.
#[tokio::test]
async fn inputs_and_recorded_values_can_be_replaced() {
    let (_, environment) = world();
    let client = environment.client();
    rejected(&client, "draft").await;
    let forked = client.fork(fork("source", "f1").change(ForkChange::Input(payload("cake")))).await.unwrap();
    assert_eq!(forked.plan.event, EventId(0));
    outcome(&client, "f1").await;
    let copy = events(&replayed(&client, "f1").await);
    assert!(matches!(&copy[0].kind, EventKind::WorkflowExecutionStarted(started) if started.input == payload("cake")));
    assert_eq!(client.describe(&target("f1")).await.unwrap().info.forked_from.unwrap().event, EventId(0));

    let of = ForkSubject::Name { name: "side-effect".into(), nth: None };
    let value = ForkChange::Outcome { of, outcome: Ok(payload(&777_u64)) };
    client.fork(fork("source", "f2").change(value)).await.unwrap();
    outcome(&client, "f2").await;
    let copy = events(&replayed(&client, "f2").await);
    let scheduled = copy.iter().find_map(|event| match &event.kind {
        EventKind::ActivityTaskScheduled(scheduled) => Some(scheduled.input.decode::<String>().unwrap()),
        _ => None,
    });
    assert!(scheduled.unwrap().starts_with("tea 777 by f2 "));
}

/// A dry run says what would happen, checks the code, and writes nothing.
#[tokio::test]
async fn a_dry_run_writes_nothing() {
    let (ledger, environment) = world();
    let client = environment.client();
    rejected(&client, "draft").await;
    settled(&environment).await;
    let (group, effects) = (client.store_info().await.unwrap().last_group, ledger.entries());
    let mut request = fork("source", "fork").at(EventId(3));
    request.dry_run = true;
    let told = client.fork(request.clone()).await.unwrap();
    assert_eq!((told.run_id, told.newly_started), (None, false));
    assert_eq!(told.plan.event, EventId(0), "the first turn is one");
    assert_eq!(told.plan.moved.as_deref(), Some("events 1 to 4 are one turn, which is kept or dropped as a whole"));
    let again: Vec<&str> = told.plan.may_run_again.iter().map(|effect| effect.name.as_str()).collect();
    assert_eq!(again, ["write", "review"]);
    request.at = Some(EventId(4));
    let told = client.fork(request).await.unwrap();
    assert_eq!((told.plan.event, told.plan.moved), (EventId(4), None));
    assert_eq!(told.plan.runs_again.len(), 1);
    assert_eq!((told.plan.runs_again[0].name.as_str(), told.plan.runs_again[0].attempts), ("write", 1));
    settled(&environment).await;
    assert_eq!(client.store_info().await.unwrap().last_group, group);
    assert_eq!(ledger.entries(), effects);
    assert!(client.turns(&target("fork")).await.is_err());
}

/// G22: code that does not fit what would be copied refuses the fork, with the card, before anything is written.
#[tokio::test]
async fn code_that_does_not_fit_refuses_the_fork() {
    let (_, environment) = world();
    rejected(&environment.client(), "draft").await;
    let changed = WorkflowRegistry::new()
        .version("2")
        .workflow("draft", |ctx: WfContext, _: String| async move { ctx.timer(Duration::from_secs(1)).await });
    let environment = environment.restart(|options| options.workflows = changed).unwrap();
    let client = environment.client();
    let group = client.store_info().await.unwrap().last_group;
    for dry_run in [true, false] {
        let request = ForkRequest { dry_run, ..fork("source", "fork").change(result_of("review", "good")) };
        let Err(Rejection::DoesNotFit { why }) = client.fork(request).await else { panic!("it does not fit") };
        assert!(why.contains("error[BOSUN0101]"), "{why}");
    }
    assert_eq!(client.store_info().await.unwrap().last_group, group);
}

/// G17: the id of a fork is new; the same request finds the run it made.
#[tokio::test]
async fn the_workflow_id_of_a_fork_was_never_used_and_a_repeated_request_finds_its_run() {
    let (_, environment) = world();
    let client = environment.client();
    rejected(&client, "draft").await;
    let closed = client.fork(fork("source", "source").change(result_of("review", "good"))).await;
    assert!(matches!(closed, Err(Rejection::IdReused { .. })), "{closed:?}");
    let once =
        ForkRequest { request_id: Some("r1".into()), ..fork("source", "fork").change(result_of("review", "good")) };
    let first = client.fork(once.clone()).await.unwrap();
    let second = client.fork(once).await.unwrap();
    assert_eq!((second.run_id, second.newly_started), (first.run_id, false));
    let open = client.fork(fork("source", "fork")).await;
    assert!(matches!(open, Err(Rejection::AlreadyOpen { .. })), "{open:?}");
}

/// What cannot be meant is refused by name, and says what could be.
#[tokio::test]
async fn a_change_that_is_not_clear_is_refused_with_what_it_could_mean() {
    let (_, environment) = world();
    let client = environment.client();
    rejected(&client, "draft").await;
    client.fork(fork("source", "done").change(result_of("review", "good"))).await.unwrap();
    client.signal(&target("done"), signal("publish", "print")).await.unwrap();
    outcome(&client, "done").await;
    let why = async |request: ForkRequest| client.fork(request).await.unwrap_err().to_string();
    assert_eq!(
        why(fork("source", "x").change(result_of("revue", "good"))).await,
        "fork: revue: the history has no such name; it has: review, side-effect, write"
    );
    let several = why(fork("done", "x").change(result_of("write", "good"))).await;
    assert!(several.starts_with("fork: write: there are several: write#1 (ended at event 5), write#2"), "{several}");
    let of_timer = ForkChange::Outcome { of: ForkSubject::Event(EventId(6)), outcome: Ok(payload("x")) };
    let timer = why(fork("source", "x").change(of_timer)).await;
    assert!(timer.contains("it is TimerStarted"), "{timer}");
    let late = fork("source", "x").at(EventId(4)).change(result_of("review", "good"));
    let late = why(late).await;
    assert!(late.contains("after the fork (event 4)"), "{late}");
    assert!(why(fork("source", "x").at(EventId(99))).await.contains("the history has"), "no such event");
    let input = ForkChange::Input(payload("cake"));
    assert!(why(fork("source", "x").change(input.clone()).change(input)).await.contains("changed twice"));
}

/// E08: what a cluster told of its history is what the code was told, also in the log of a fork and over a crash.
#[tokio::test]
async fn a_fork_keeps_the_size_that_a_cluster_told() {
    let code = WorkflowRegistry::new().workflow("sized", |cx: WfContext, (): ()| async move {
        let told = cx.history().events;
        cx.timer(Duration::from_secs(told)).await?;
        Ok::<_, Failure>(told)
    });
    let environment = environment_with(code, ActivityRegistry::new());
    let client = environment.client();
    client.start(start("sized", "source", &())).await.unwrap();
    let mut turns = client.turns(&target("source")).await.unwrap();
    turns[0].size_told = Some(HistorySize { events: 700, bytes: 9_000 });
    for event in &mut turns[0].events {
        if let EventKind::TimerStarted { fire_at, .. } = event {
            *fire_at = fire_at.plus(Duration::from_secs(699));
        }
    }
    client.fork(ForkRequest::new(ForkSource::History(turns), "fork".into())).await.unwrap();
    let environment = environment.crash(1, |_| {}).unwrap();
    assert_eq!(crate::scene::completed::<u64>(&environment.client(), "fork").await, 700);
}
