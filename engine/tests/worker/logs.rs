//! What workflow code logs: once, with the run it is of, and nothing while it is replayed.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{LazyLock, Mutex};

use bosun_engine::workflow::{Cx, StateMachine, WfContext, WorkflowEvent, WorkflowRegistry};
use bosun_engine::*;
use serde::{Deserialize, Serialize};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event as LogEvent, Metadata, Subscriber};

use crate::kit::*;

type Fields = BTreeMap<&'static str, String>;

/// All that was logged here, each line with the fields of the spans it was in.
struct Captured {
    lines: Mutex<Vec<Fields>>,
    spans: Mutex<BTreeMap<u64, Fields>>,
    next: AtomicU64,
}

static CAPTURED: LazyLock<&'static Captured> = LazyLock::new(|| {
    let captured = Captured { lines: Mutex::default(), spans: Mutex::default(), next: AtomicU64::new(1) };
    let captured: &'static Captured = Box::leak(Box::new(captured));
    tracing::subscriber::set_global_default(captured).expect("no other test installs a subscriber");
    captured
});

thread_local! {
    static INSIDE: RefCell<Vec<u64>> = const { RefCell::new(Vec::new()) };
}

struct Into<'a>(&'a mut Fields);

impl Visit for Into<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.0.insert(field.name(), format!("{value:?}").trim_matches('"').to_owned());
    }
}

impl Subscriber for &'static Captured {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == module_path!() || metadata.name() == "workflow_turn"
    }
    fn new_span(&self, span: &Attributes<'_>) -> Id {
        let mut fields = Fields::new();
        span.record(&mut Into(&mut fields));
        fields.insert("spans", span.metadata().name().to_owned());
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        self.spans.lock().unwrap().insert(id, fields);
        Id::from_u64(id)
    }
    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn event(&self, event: &LogEvent<'_>) {
        let mut line = Fields::new();
        let spans = self.spans.lock().unwrap();
        for id in INSIDE.with_borrow(Clone::clone) {
            let outer = line.get("spans").map_or_else(String::new, |outer| format!("{outer} "));
            line.extend(spans[&id].clone());
            line.entry("spans").and_modify(|spans| *spans = format!("{outer}{spans}"));
        }
        event.record(&mut Into(&mut line));
        self.lines.lock().unwrap().push(line);
    }
    fn enter(&self, id: &Id) {
        INSIDE.with_borrow_mut(|inside| inside.push(id.into_u64()));
    }
    fn exit(&self, _: &Id) {
        INSIDE.with_borrow_mut(Vec::pop);
    }
}

/// The lines of a workflow, as `event job spans: message`.
fn lines_of(workflow_id: &str) -> Vec<String> {
    let lines = CAPTURED.lines.lock().unwrap();
    let of = |line: &&Fields| line.get("workflow_id").is_some_and(|id| id == workflow_id);
    let shown = |line: &Fields| format!("{} {} {}: {}", line["event_id"], line["job"], line["spans"], line["message"]);
    lines.iter().filter(of).map(shown).collect()
}

/// How many activations said that they are replayed: outside of history, which is what `is_replaying` is for.
static REPLAYED: AtomicUsize = AtomicUsize::new(0);

fn note(replaying: bool) {
    REPLAYED.fetch_add(usize::from(replaying), Ordering::Relaxed);
}

async fn function(ctx: WfContext, (): ()) -> Result<(), Failure> {
    ctx.on_query("ask", |()| {
        tracing::info!("asked");
        Ok(())
    });
    note(ctx.is_replaying());
    tracing::info!("began");
    ctx.timer(HOUR).await?;
    note(ctx.is_replaying());
    tracing::info_span!("step").in_scope(|| tracing::warn!("woke"));
    ctx.timer(HOUR).await?;
    tracing::info!("ended");
    Ok(())
}

#[derive(Serialize, Deserialize)]
struct Machine(u32);

impl StateMachine for Machine {
    const TYPE: &'static str = "machine";
    type Input = ();
    type Output = ();
    fn start((): (), cx: &mut Cx<'_>) -> Result<Self, Failure> {
        note(cx.is_replaying());
        tracing::info!("began");
        cx.start_timer(HOUR);
        Ok(Machine(0))
    }
    fn on_event(&mut self, _: WorkflowEvent, cx: &mut Cx<'_>) -> Result<(), Failure> {
        note(cx.is_replaying());
        self.0 += 1;
        match self.0 {
            1 => {
                tracing::info_span!("step").in_scope(|| tracing::warn!("woke"));
                cx.start_timer(HOUR);
            }
            _ => {
                tracing::info!("ended");
                cx.complete(&());
            }
        }
        Ok(())
    }
    fn queries() -> &'static [&'static str] {
        &["ask"]
    }
    fn query(&self, _: &QueryName, _: &Payload) -> Result<Payload, Failure> {
        tracing::info!("asked");
        Ok(Payload::null())
    }
}

/// E39: each line comes once, from the turn that lived it: a restart, which replays every turn, says nothing again.
#[tokio::test]
async fn code_that_is_replayed_logs_nothing_and_live_code_says_which_run_it_is() {
    let _installed = *CAPTURED;
    for form in ["function", "machine"] {
        let workflows = WorkflowRegistry::new().workflow("function", function).state_machine::<Machine>();
        let id = format!("logs-{form}");
        let mut environment = environment(workflows);
        let client = environment.client();
        let run_id = client.start(start(form, &id, &())).await.unwrap().run_id.to_string();
        environment.sleep(HOUR + HOUR / 2).await;
        let _: () = query(&client, &id, "ask").await;
        let mut expected = vec!["1 InitializeWorkflow workflow_turn: began", "3 FireTimer workflow_turn step: woke"];
        expected.push("3 Query workflow_turn: asked");
        assert_eq!(lines_of(&id), expected, "{form}");
        let before = REPLAYED.load(Ordering::Relaxed);
        assert_eq!(before, 0, "{form}: nothing has been replayed yet");

        environment = environment.crash(1, |_| {}).unwrap();
        let client = environment.client();
        let _: () = query(&client, &id, "ask").await;
        let replayed = REPLAYED.swap(0, Ordering::Relaxed);
        assert_eq!(replayed, 2, "{form}: both turns were replayed");
        expected.push("3 Query workflow_turn: asked");
        assert_eq!(lines_of(&id), expected, "{form}");

        assert_eq!(outcome(&client, &id).await, CloseOutcome::Completed(payload(&())), "{form}");
        expected.push("5 FireTimer workflow_turn: ended");
        assert_eq!(lines_of(&id), expected, "{form}");
        let events = history(&client, &id).await;
        assert_eq!((events[2].kind.name(), events[4].kind.name()), ("TimerFired", "TimerFired"), "{form}");
        let lines = CAPTURED.lines.lock().unwrap();
        let mut mine = lines.iter().filter(|line| line.get("workflow_id") == Some(&id));
        assert!(mine.all(|line| line["run_id"] == run_id && line["workflow_type"] == form), "{form}");
    }
}
