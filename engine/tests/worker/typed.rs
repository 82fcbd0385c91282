//! References: the typed client, handlers by reference, and errors of activities that `?` takes.

use std::fmt;

use bosun_engine::workflow::{WfContext, WorkflowRegistry};
use bosun_engine::*;

use crate::kit::*;

const TALLY: Workflow<u64, u64> = Workflow::named("tally");
const COUNT: Activity<String, u64> = Activity::named("count").start_to_close(HOUR).with_attempts(2);
const ADD: Signal<u64> = Signal::named("add");
const ADD_WORD: Update<String, u64> = Update::named("add-word");
const TOTAL: Query<(), u64> = Query::named("total");
const CLOSE: Signal<()> = Signal::named("close");

async fn letters(_: ActivityContext, word: String) -> Result<u64, ActivityError> {
    Ok(word.len() as u64)
}

async fn tally(ctx: WfContext, from: u64) -> Result<u64, Failure> {
    let total = ctx.state("total", from);
    let (shown, signaled, updated) = (total.clone(), total.clone(), total.clone());
    ctx.on_query(TOTAL, move |()| Ok(shown.get()));
    ctx.on_signal(ADD, move |_, n| {
        signaled.write(|total| *total += n);
        async { Ok(()) }
    });
    let empty = |word: &String| match word.is_empty() {
        true => Err(Failure::application("Empty", "there is no word")),
        false => Ok(()),
    };
    ctx.on_update(ADD_WORD, empty, move |ctx, word| {
        let total = updated.clone();
        async move {
            let letters = ctx.call(COUNT, &word).await?;
            total.write(|total| *total += letters);
            Ok(total.get())
        }
    });
    ctx.signal_channel(CLOSE).recv().await?;
    ctx.all_handlers_finished().await?;
    Ok(total.get())
}

fn code() -> (WorkflowRegistry, ActivityRegistry) {
    let mut activities = ActivityRegistry::new();
    activities.register(COUNT, letters);
    (WorkflowRegistry::new().workflow(TALLY, tally), activities)
}

/// E11 to E14: the handle of a run says and asks what the references say, and nothing twice that has an id.
#[tokio::test]
async fn a_handle_signals_asks_updates_and_waits_in_the_types_of_its_references() {
    let (workflows, activities) = code();
    let environment = environment_with(workflows, activities);
    let client = environment.client();
    let handle = client.start_workflow(TALLY, "t", &10).await.unwrap();
    handle.signal(ADD, &5).await.unwrap();
    assert_eq!(handle.query(TOTAL, &()).await, Ok(15));
    assert_eq!(handle.update(ADD_WORD, &"four".to_owned()).await, Ok(19));
    // The same request again is the same update.
    for _ in 0..2 {
        assert_eq!(handle.update_as("once", ADD_WORD, &"ox".to_owned()).await, Ok(21));
    }
    let refused = handle.update(ADD_WORD, &String::new()).await;
    assert!(matches!(refused, Err(MessageError::Rejected(Rejection::UpdateRefused { .. }))), "{refused:?}");
    assert_eq!(handle.result_within(std::time::Duration::ZERO).await, Ok(None));
    handle.signal(CLOSE, &()).await.unwrap();
    assert_eq!(handle.result().await, Ok(21));
    assert_eq!(client.handle(TALLY, "t").result().await, Ok(21));
    assert_eq!(client.handle(TALLY, "t").query(TOTAL, &()).await, Ok(21));

    let started = client.signal_workflow_with_start(TALLY, "u", &1, ADD, &1).await.unwrap();
    assert_eq!(started.query(TOTAL, &()).await, Ok(2));
    let word = "three".to_owned();
    let (same, answer) = client.update_workflow_with_start(TALLY, "u", &1, ADD_WORD, &word).await.unwrap();
    assert_eq!((same.run_id(), answer), (started.run_id(), 7));
    // A signal that is sent again under its request id is the same signal.
    for _ in 0..2 {
        started.signal_as("again", ADD, &1).await.unwrap();
    }
    assert_eq!(started.query(TOTAL, &()).await, Ok(8));
    started.terminate("enough").await.unwrap();
    let reason = "enough".to_owned();
    assert_eq!(started.result().await, Err(WorkflowError::Terminated { workflow_id: "u".into(), reason }));
}

/// The names on the disk are those of the strings: a program can be changed from the one to the other, part by part.
#[tokio::test]
async fn a_program_by_references_and_one_by_names_have_the_same_history() {
    async fn by_reference(ctx: WfContext, word: String) -> Result<u64, Failure> {
        ctx.call(COUNT.with_summary("letters"), &word).await?;
        ctx.child(TALLY, "child", &3).await
    }
    async fn by_name(ctx: WfContext, word: String) -> Result<u64, Failure> {
        let options = ActivityOptions::start_to_close(HOUR).with_retry(RetryPolicy::attempts(2));
        ctx.activity::<u64>("count", &word, options.with_summary("letters")).await?;
        ctx.child_workflow("tally", "child", &3, ChildWorkflowOptions::default()).await
    }
    let mut histories = Vec::new();
    for by_name_first in [false, true] {
        let (workflows, activities) = code();
        let workflows = match by_name_first {
            true => workflows.workflow("parent", by_name),
            false => workflows.workflow("parent", by_reference),
        };
        let environment = environment_with(workflows, activities);
        let client = environment.client();
        let parent: Workflow<String, u64> = Workflow::named("parent");
        let handle = client.start_workflow(parent, "p", &"word".to_owned()).await.unwrap();
        settled(&environment).await;
        client.handle(TALLY, "child").signal(CLOSE, &()).await.unwrap();
        assert_eq!(handle.result().await, Ok(3));
        histories.push(history(&client, "p").await);
    }
    assert_eq!(histories[0], histories[1]);
}

/// E11: signals that came before the handler are heard by it, all of them in order and one after the other; the run waits for
/// the last if it asks to; a failure of a handler is the run's.
#[tokio::test]
async fn a_signal_handler_hears_every_signal_in_order() {
    async fn listens(ctx: WfContext, (): ()) -> Result<Vec<String>, Failure> {
        ctx.timer(HOUR).await?;
        let heard = ctx.state("heard", Vec::new());
        let told = heard.clone();
        ctx.on_signal("say", move |ctx, word: String| {
            let told = told.clone();
            async move {
                told.write(|told| told.push(format!("{word}?")));
                ctx.timer(HOUR).await?;
                told.write(|told| told.push(format!("{word}!")));
                if word == "no" { Err(Failure::application("No", "as it was said")) } else { Ok(()) }
            }
        });
        ctx.timer(HOUR / 2).await?;
        ctx.all_handlers_finished().await?;
        Ok(heard.get())
    }
    const LISTENS: Workflow<(), Vec<String>> = Workflow::named("listens");
    const SAY: Signal<String> = Signal::named("say");
    let environment = environment(WorkflowRegistry::new().workflow(LISTENS, listens));
    let client = environment.client();
    let handle = client.start_workflow(LISTENS, "l", &()).await.unwrap();
    for word in ["a", "b"] {
        handle.signal(SAY, &word.to_owned()).await.unwrap();
    }
    let heard: Vec<String> = ["a?", "a!", "b?", "b!"].map(str::to_owned).to_vec();
    assert_eq!(handle.result().await, Ok(heard));
    let handle = client.start_workflow(LISTENS, "n", &()).await.unwrap();
    handle.signal(SAY, &"no".to_owned()).await.unwrap();
    match handle.result().await {
        Err(WorkflowError::Failed { failure, .. }) => assert_eq!(failure.type_name(), "No"),
        other => panic!("the handler failed: {other:?}"),
    }
    let handle = client.start_workflow(LISTENS, "w", &()).await.unwrap();
    handle.signal(Signal::named("say"), &7).await.unwrap();
    environment.sleep(3 * HOUR).await;
    let held = client.describe(&target("w")).await.unwrap().held;
    assert!(held.is_some_and(|card| card.contains("workflow code cannot read a payload")), "seven is no word");
}

#[derive(Debug)]
struct Unreachable(std::io::Error);

impl fmt::Display for Unreachable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the bank cannot be reached")
    }
}

impl std::error::Error for Unreachable {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.0)
    }
}

/// E30, E05: `?` takes any error: it is tried again, keeps the name of its type and what caused it; a failure stays what it was.
#[tokio::test]
async fn an_activity_ends_in_any_error_with_its_type_and_its_causes() {
    fn boxed() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
        Err("no luck".into())
    }
    async fn ends(context: ActivityContext, how: String) -> Result<(), ActivityError> {
        match how.as_str() {
            "typed" => Err(Unreachable(std::io::Error::other("no route")))?,
            "plain" => assert!("seven".parse::<u64>()? > 7),
            "module" => Err(std::io::Error::other("no route"))?,
            "boxed" => boxed().map_err(ActivityError::boxed)?,
            "failure" => Err(Failure::application("Own", "as it is").non_retryable())?,
            "payload" => assert!(context.task().input.decode::<u64>()? > 7),
            _ => return Err(ActivityError::non_retryable("Asked", "for this")),
        }
        Ok(())
    }
    const ENDS: Activity<String, ()> = Activity::named("ends").start_to_close(HOUR).with_attempts(2);
    let workflow = |ctx: WfContext, how: String| async move { ctx.call(ENDS, &how).await };
    const FAILS: Workflow<String, ()> = Workflow::named("fails");
    let mut activities = ActivityRegistry::new();
    activities.register(ENDS, ends);
    let environment = environment_with(WorkflowRegistry::new().workflow(FAILS, workflow), activities);
    let client = environment.client();
    for (how, attempts, expected) in [
        ("typed", 2, "Unreachable: the bank cannot be reached; caused by: no route"),
        ("plain", 2, "ParseIntError: invalid digit found in string"),
        ("module", 2, "io::Error: no route"),
        ("boxed", 2, "Error: no luck"),
        ("failure", 1, "Own: as it is"),
        (
            "payload",
            1,
            "PayloadError: cannot read a json payload of 9 bytes as u64: invalid type: string \"payload\", \
                        expected u64 at line 1 column 9",
        ),
        ("asked", 1, "Asked: for this"),
    ] {
        let handle = client.start_workflow(FAILS, how, &how.to_owned()).await.unwrap();
        let failure = match handle.result().await {
            Err(WorkflowError::Failed { failure, .. }) => failure,
            other => panic!("{how}: {other:?}"),
        };
        assert_eq!(failure.cause.as_ref().map(ToString::to_string).as_deref(), Some(expected), "{how}");
        // The type of the error that the function ended in, whatever brought it about.
        assert_eq!(expected.split_once(": ").map(|(name, _)| name), Some(failure.type_name()), "{how}");
        assert_eq!(count_of(&client, how).await, attempts, "{how}");
    }
}

async fn count_of(client: &Client, id: &str) -> usize {
    count(&history(client, id).await, "ActivityTaskStarted")
}

/// E12, E15: an id may be any text that a program has; one that cannot be an id is refused, and panics nowhere.
#[tokio::test]
async fn a_text_of_the_user_is_an_id_or_is_refused() {
    const PARENT: Workflow<String, u64> = Workflow::named("parent");
    async fn parent(ctx: WfContext, child: String) -> Result<u64, Failure> {
        let child = ctx.child(TALLY, child, &3);
        child.signal(CLOSE, &()).await?;
        child.await
    }
    let (workflows, activities) = code();
    let environment = environment_with(workflows.workflow(PARENT, parent), activities);
    let client = environment.client();
    let n = 7;
    let handle = client.start_workflow(PARENT, format!("order-{n}"), &format!("child-{n}")).await.unwrap();
    assert_eq!(handle.workflow_id().as_str(), "order-7");
    assert_eq!(handle.result().await, Ok(3));
    let id = String::from("order-7");
    assert_eq!(client.handle(PARENT, &id).result().await, Ok(3));
    for (text, why) in [
        ("", "the id of parent: workflow id is empty; give it at least one character"),
        (&*"x".repeat(256), "the id of parent: workflow id is 256 bytes long; at most 255 are allowed"),
        ("a\nb", "the id of parent: workflow id has the control character '\\n' at byte 1"),
    ] {
        let refused = client.start_workflow(PARENT, text, &String::new()).await.unwrap_err();
        assert_eq!(refused.to_string(), why);
        let refused = client.signal_workflow_with_start(PARENT, text, &String::new(), ADD, &1).await.unwrap_err();
        assert_eq!(refused.to_string(), why);
    }
    let handle = client.start_workflow(PARENT, "bad-child", &"..".to_owned()).await.unwrap();
    match handle.result().await {
        Err(WorkflowError::Failed { failure, .. }) => {
            assert_eq!(failure.type_name(), FAILURE_INVALID_ID);
            assert!(failure.message.contains("workflow id is \"..\""), "{failure}");
        }
        other => panic!("the child has no id: {other:?}"),
    }
}
