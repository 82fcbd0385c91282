//! Interceptors: code of the worker's owner around activities, turns and client calls.

use std::sync::{Arc, Mutex};

use bosun_engine::testing::TestEnvironment;
use bosun_engine::workflow::WfContext;
use bosun_engine::*;

use crate::scene::*;

#[derive(Default)]
struct Recorder {
    name: &'static str,
    seen: Arc<Mutex<Vec<String>>>,
}

impl Recorder {
    fn note(&self, what: String) {
        self.seen.lock().unwrap().push(format!("{} {what}", self.name));
    }
}

impl Interceptor for Recorder {
    fn activity(&self, task: &ActivityTask, next: ActivityFuture) -> ActivityFuture {
        let (name, seen, label) = (self.name, self.seen.clone(), task.activity_type.clone());
        Box::pin(async move {
            seen.lock().unwrap().push(format!("{name} begins {label}"));
            let ended = next.await;
            seen.lock().unwrap().push(format!("{name} ends {label} {}", ended.is_ok()));
            ended
        })
    }
    fn turn_begins(&self, run: &RunInfo) {
        self.note(format!("turn of {}", run.workflow_id));
    }
    fn turn_ends(&self, run: &RunInfo, events: usize) {
        self.note(format!("turn over {} {events}", run.workflow_id));
    }
    fn client_call(&self, call: &'static str, workflow_id: Option<&WorkflowId>) -> Result<(), Rejection> {
        self.note(format!("call {call}"));
        match workflow_id {
            Some(id) if id.as_str().starts_with("secret") => {
                Err(Rejection::Invalid { what: call.into(), why: "not for you".into() })
            }
            _ => Ok(()),
        }
    }
}

fn recorded(names: &[&'static str]) -> (Arc<Mutex<Vec<String>>>, TestEnvironment) {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let recorders: Vec<Arc<dyn Interceptor>> =
        names.iter().map(|name| Arc::new(Recorder { name, seen: seen.clone() }) as Arc<dyn Interceptor>).collect();
    let mut activities = ActivityRegistry::new();
    activities.register("echo", |_ctx, word: String| async move { Ok(word) });
    let flows = flows().workflow("echo", |ctx: WfContext, word: String| async move {
        ctx.activity::<String>("echo", &word, within(MINUTE)).await
    });
    let environment =
        TestEnvironment::start_with(flows, activities, |options| options.interceptors = recorders).unwrap();
    (seen, environment)
}

/// E35: around an activity, the first interceptor outermost.
#[tokio::test]
async fn interceptors_are_around_activities_in_order() {
    let (seen, environment) = recorded(&["outer", "inner"]);
    let client = environment.client();
    client.start(start("echo", "a", "hello")).await.unwrap();
    assert_eq!(completed::<String>(&client, "a").await, "hello");
    let seen = seen.lock().unwrap().clone();
    let around: Vec<&str> =
        seen.iter().map(String::as_str).filter(|line| line.ends_with("echo") || line.contains("ends")).collect();
    assert_eq!(around, ["outer begins echo", "inner begins echo", "inner ends echo true", "outer ends echo true"]);
}

/// E35: around every turn, the first one of a run included; a turn that begins ends, with the number of its events.
#[tokio::test]
async fn interceptors_are_around_turns() {
    let (seen, environment) = recorded(&["i"]);
    let client = environment.client();
    client.start(start("echo", "a", "hello")).await.unwrap();
    completed::<String>(&client, "a").await;
    let turns: Vec<String> = seen.lock().unwrap().iter().filter(|line| line.starts_with("i turn")).cloned().collect();
    // Started, scheduled and attempt started; then completed and the end of the run.
    assert_eq!(turns, ["i turn of a", "i turn over a 3", "i turn of a", "i turn over a 2"]);
    let refused = client.unpause(&target("a"), String::new(), None).await;
    assert!(refused.is_err());
    let turns: Vec<String> = seen.lock().unwrap().iter().filter(|line| line.starts_with("i turn")).cloned().collect();
    assert_eq!(turns[4..], ["i turn of a", "i turn over a 0"]);
}

/// E35: before every client call, reading ones too; a refusal is the caller's answer, and nothing has happened.
#[tokio::test]
async fn interceptors_may_refuse_client_calls() {
    let (seen, environment) = recorded(&["i"]);
    let client = environment.client();
    let secret = target("secret-1");
    let refusals = [
        client.start(start("echo", "secret-1", "x")).await.err(),
        client.signal(&secret, signal("go", "x")).await.err(),
        client.query(&secret, &"q".into(), payload(&())).await.err(),
        client.describe(&secret).await.err(),
        client.history(&secret, EventId(1), 10).await.err(),
        client.turns(&secret).await.err(),
        client.result(&secret, WHOLE).await.err(),
        client.delete(&secret).await.err(),
    ];
    for refusal in refusals {
        let Some(Rejection::Invalid { why, .. }) = refusal else { panic!("{refusal:?}") };
        assert_eq!(why, "not for you");
    }
    assert_eq!(client.count("").await.unwrap(), 0);
    client.list(ListRequest { query: String::new(), limit: 10 }).await.unwrap();
    let calls: Vec<String> = seen.lock().unwrap().clone();
    let expected = ["start", "signal", "query", "describe", "history", "turns", "result", "delete", "count", "list"];
    assert_eq!(calls, expected.map(|call| format!("i call {call}")));
}

/// E35, E30: an interceptor that panics around an activity fails the attempt, and the worker goes on.
#[tokio::test]
async fn an_interceptor_that_panics_fails_the_attempt() {
    struct Bomb;
    impl Interceptor for Bomb {
        fn activity(&self, task: &ActivityTask, next: ActivityFuture) -> ActivityFuture {
            assert!(task.attempt.0 > 1, "boom");
            next
        }
    }
    let mut activities = ActivityRegistry::new();
    activities.register("work", |_ctx, word: String| async move { Ok(word) });
    let environment =
        TestEnvironment::start_with(flows(), activities, |options| options.interceptors = vec![Arc::new(Bomb)])
            .unwrap();
    environment.client().start(one("one", "a", &within(MINUTE))).await.unwrap();
    assert_eq!(completed::<String>(&environment.client(), "a").await, "a");
}
