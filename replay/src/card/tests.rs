//! The card over the seeded bugs of the requirements of the engine §5 that the replay gate must catch: each named for what it is (G22).

use std::time::Duration;

use bosun_engine::workflow::{Cx, StateMachine, WfContext, WorkflowEvent};

use super::*;

/// What a version of the workflow does, one step after the other.
#[derive(Clone, Copy)]
enum Do {
    Activity(&'static str, u32),
    Timer(u64),
}

use Do::{Activity, Timer};

fn options() -> ActivityOptions {
    ActivityOptions::start_to_close(Duration::from_secs(10))
}

fn steps(steps: &'static [Do], result: &'static str) -> WorkflowRegistry {
    WorkflowRegistry::new().version("new").workflow("flow", move |ctx: WfContext, ()| async move {
        for step in steps {
            match step {
                Activity(name, input) => ctx.activity::<()>(*name, input, options()).await?,
                Timer(seconds) => ctx.timer(Duration::from_secs(*seconds)).await?,
            }
        }
        Ok(result.to_owned())
    })
}

const RECORDED: &[Do] = &[Activity("draft", 1), Activity("review", 2), Timer(30), Activity("publish", 3)];

fn told(steps: &[Do], result: &str) -> HistoryBuilder {
    let mut told = HistoryBuilder::started("flow", "flow-1", Payload::null());
    for step in steps {
        match step {
            Activity(name, input) => {
                let seq = told.activity_scheduled(name, Payload::encode(input).unwrap());
                told.activity_started(seq, 1);
                told.activity_completed(seq, Payload::null());
            }
            Timer(seconds) => {
                let seq = told.timer_started(Duration::from_secs(*seconds));
                told.timer_fired(seq);
            }
        }
    }
    told.completed(Payload::encode(result).unwrap());
    told
}

fn recorded() -> History {
    History::new(told(RECORDED, "done").turns()).unwrap()
}

fn no_sources(_: &str) -> Option<String> {
    None
}

#[track_caller]
fn card(with: &'static [Do]) -> Card {
    explain(&steps(with, "done"), &recorded(), &no_sources).expect("the code does not fit")
}

/// The names of what is extra, missing, changed and reordered.
fn named(card: &Card) -> String {
    let short = |what: &String| what.split(" (").next().unwrap_or_default().replace(" until", "").to_owned();
    let names = card.differences().map(|(kind, lines)| {
        let lines: Vec<String> = lines.iter().map(short).collect();
        if lines.is_empty() { String::new() } else { format!("{kind}: {}  ", lines.join(", ")) }
    });
    names.concat().trim_end().to_owned()
}

#[test]
fn code_that_fits_has_no_card() {
    assert_eq!(explain(&steps(RECORDED, "done"), &recorded(), &no_sources), None);
}

/// Bugs 10 to 14, and each named apart although the code stops at the first difference.
#[test]
fn what_was_inserted_removed_renamed_changed_or_moved_is_told_apart() {
    let table: [(&'static [Do], u64, &str, &str); 7] = [
        (
            &[Activity("draft", 1), Timer(5), Activity("review", 2), Timer(30), Activity("publish", 3)],
            5,
            "extra: StartTimer #2 2026-01-01T00:00:05.002000Z",
            "+ if ctx.patched(\"add-timer\") {",
        ),
        (
            &[Activity("draft", 1), Timer(30), Activity("publish", 3)],
            5,
            "missing: ScheduleActivity review #2",
            "+ if !ctx.patched(\"without-review\") {",
        ),
        (
            &[Activity("draft", 1), Activity("check", 2), Timer(30), Activity("publish", 3)],
            5,
            "extra: ScheduleActivity check #2  missing: ScheduleActivity review #2",
            "+ if ctx.patched(\"review-became-check\") {",
        ),
        (
            &[Activity("draft", 1), Activity("review", 7), Timer(30), Activity("publish", 3)],
            5,
            "changed: ScheduleActivity review #2",
            "+ if ctx.patched(\"review-changed\") {",
        ),
        (
            &[Activity("draft", 1), Activity("review", 2), Timer(31), Activity("publish", 3)],
            8,
            "changed: StartTimer #3 2026-01-01T00:00:30.004000Z -> StartTimer #3 2026-01-01T00:00:31.004000Z",
            "+ if ctx.patched(\"timer-changed\") {",
        ),
        (
            &[Activity("review", 2), Activity("draft", 1), Timer(30), Activity("publish", 3)],
            2,
            "reordered: ScheduleActivity draft #1",
            "+ if ctx.patched(\"order-of-draft\") {",
        ),
        (
            &[Activity("draft", 1), Activity("review", 2), Timer(30), Activity("publish", 3), Activity("tell", 4)],
            13,
            "extra: ScheduleActivity tell #5  missing: CompleteWorkflow",
            "+ if ctx.patched(\"add-tell\") {",
        ),
    ];
    for (with, event_id, names, patch) in table {
        let card = card(with);
        assert_eq!(card.mismatch.event_id, EventId(event_id), "{card}");
        assert_eq!(named(&card), names, "{card}");
        assert_eq!(card.patch.as_ref().unwrap().lines[0], patch, "{card}");
    }
}

/// Of an input that changed the card says where, and shows no more of it than a line.
#[test]
fn a_changed_input_is_shown_where_it_differs_first() {
    let order =
        |cents: u32, note: &str| serde_json::json!({ "items": [{ "sku": "tea", "cents": cents }], "note": note });
    let code = |input: serde_json::Value| {
        WorkflowRegistry::new().version("new").workflow("flow", move |ctx: WfContext, ()| {
            let input = input.clone();
            async move { ctx.activity::<()>("charge", &input, options()).await }
        })
    };
    let mut told = HistoryBuilder::started("flow", "flow-1", Payload::null());
    told.activity_scheduled("charge", Payload::encode(&order(5, "a")).unwrap());
    let told = History::new(told.turns()).unwrap();
    let at = |input| {
        let card = explain(&code(input), &told, &no_sources).unwrap().to_string();
        card.lines().find(|line| line.starts_with("  differs at")).map(str::to_owned)
    };
    assert_eq!(at(order(7, "a")).unwrap(), "  differs at items[0].cents: 5 -> 7");
    assert_eq!(at(order(7, "b")).unwrap(), "  differs at items[0].cents: 5 -> 7, and in 1 more places");
    let long = at(order(5, &"x".repeat(999))).unwrap();
    assert!(long.starts_with("  differs at note: \"a\" -> \"xxx") && long.ends_with('…'), "{long}");
    assert!(long.chars().count() < 100, "{long}");
    assert_eq!(at("all of it".into()).unwrap().split(": ").next(), Some("  differs at the whole"));
}

/// Where the code cannot be followed any further, the rest of history is not called missing.
#[test]
fn what_was_not_compared_is_counted() {
    let card = card(&[Activity("draft", 1), Activity("check", 2), Timer(30), Activity("publish", 3)]);
    assert_eq!((card.events, card.not_compared), (13, 8));
    assert!(card.to_string().ends_with("\nnote: 8 later events are not compared"), "{card}");
}

/// Code that asks for far more than history holds does not fill the screen.
#[test]
fn only_the_first_differences_are_named_one_by_one() {
    const MANY: &[Do] = &[Timer(5); 9];
    let text = card(MANY).to_string();
    let extra = text.lines().find(|line| line.starts_with("  extra")).unwrap();
    assert_eq!(extra.matches("StartTimer").count(), 5, "{extra}");
    assert!(extra.ends_with("; and 3 more"), "{extra}");
}

/// G22: the result is compared too.
#[test]
fn another_result_is_a_change_of_the_result() {
    let card = explain(&steps(RECORDED, "finished"), &recorded(), &no_sources).unwrap();
    assert_eq!(named(&card), "changed: CompleteWorkflow");
    assert_eq!(card.patch.unwrap().id, "result-changed");
}

/// The card of the requirements of operating §2.4, whole.
#[test]
fn the_card_shows_events_code_and_a_patch() {
    let sources = |path: &str| {
        assert!(path.ends_with("card/tests.rs"), "{path}");
        std::fs::read_to_string(std::path::Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().join(path)).ok()
    };
    let card = explain(&inserted_timer(), &recorded(), &sources).unwrap();
    let source = card.source.clone().unwrap();
    assert_eq!(source.text.trim(), "ctx.timer(Duration::from_secs(5)).await?;");
    let text = card.to_string().replace(&format!("{}:{}", source.file, source.line), "flows.rs:88");
    let text = text.replace(&format!("  {} | ", source.line), "  88 | ");
    let text = text.replace(&card.mismatch.current_build.to_string(), "NEW");
    let text = text.replace(&format!("  {} | ", " ".repeat(source.line.to_string().len())), "     | ");
    let expected = "\
error[BOSUN0101]: workflow code no longer matches history
  run   flow-1 (RUN, type flow, code 0000000000000001 -> NEW)  at event 5 of 13, in answer to ActivityTaskCompleted (event 4)
  history expects   ScheduleActivity review #2 (1 bytes, blake3 DIGEST)    recorded 2026-01-01T00:00:00.002000Z
  code produced     StartTimer #2 until 2026-01-01T00:00:05.002000Z    flows.rs:88:13
       2    ActivityTaskScheduled
       3    ActivityTaskStarted
       4    ActivityTaskCompleted
 >        + StartTimer #2 until 2026-01-01T00:00:05.002000Z    flows.rs:88:13
       5    ScheduleActivity review #2 (1 bytes, blake3 DIGEST)
       8    StartTimer #3 until 2026-01-01T00:00:30.004000Z
      10    ScheduleActivity publish #4 (1 bytes, blake3 DIGEST)
      13    CompleteWorkflow (6 bytes, blake3 DIGEST)
  extra      StartTimer #2 until 2026-01-01T00:00:05.002000Z
  88 |         ctx.timer(Duration::from_secs(5)).await?;
     |             ^ asked for here
help: StartTimer #2 until 2026-01-01T00:00:05.002000Z was inserted: guard it with `if ctx.patched(\"add-timer\") { .. }`, so that old runs do without
suggested patch at flows.rs:88:
    -         ctx.timer(Duration::from_secs(5)).await?;
    +         if ctx.patched(\"add-timer\") {
    +             ctx.timer(Duration::from_secs(5)).await?;
    +         }";
    let text = text.replace(&card.mismatch.run_id.to_string(), "RUN");
    assert_eq!(without_digests(&text), expected);
}

fn inserted_timer() -> WorkflowRegistry {
    WorkflowRegistry::new().version("new").workflow("flow", |ctx: WfContext, ()| async move {
        ctx.activity::<()>("draft", &1, options()).await?;
        ctx.timer(Duration::from_secs(5)).await?;
        ctx.activity::<()>("review", &2, options()).await?;
        ctx.timer(Duration::from_secs(30)).await?;
        ctx.activity::<()>("publish", &3, options()).await?;
        Ok("done".to_owned())
    })
}

fn without_digests(text: &str) -> String {
    let mut parts = text.split("blake3 ");
    let mut out = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        out.push_str("blake3 DIGEST");
        out.push_str(&part[8..]);
    }
    out
}

/// A run that is still open: what the code would do after the end of history is not called extra.
#[test]
fn an_open_run_is_compared_as_far_as_it_got() {
    let mut told = HistoryBuilder::started("flow", "flow-1", Payload::null());
    let draft = told.activity_scheduled("draft", Payload::encode(&1).unwrap());
    told.activity_started(draft, 1);
    told.activity_completed(draft, Payload::null());
    told.activity_scheduled("review", Payload::encode(&2).unwrap());
    let open = History::new(told.turns()).unwrap();
    let card = explain(&inserted_timer(), &open, &no_sources).unwrap();
    assert_eq!(named(&card), "extra: StartTimer #2 2026-01-01T00:00:05.002000Z", "{card}");
    assert_eq!(card.not_compared, 0);
}

/// The state machine form calls its context `cx`, and its requests have places too.
#[test]
fn state_machines_are_explained_too() {
    #[derive(serde::Serialize, serde::Deserialize)]
    struct Flow;
    impl StateMachine for Flow {
        const TYPE: &'static str = "flow";
        type Input = ();
        type Output = String;
        fn start((): (), cx: &mut Cx<'_>) -> Result<Self, Failure> {
            cx.schedule_activity("draft", &2, options());
            Ok(Flow)
        }
        fn on_event(&mut self, _: WorkflowEvent, _: &mut Cx<'_>) -> Result<(), Failure> {
            Ok(())
        }
    }
    let card = explain(&WorkflowRegistry::new().state_machine::<Flow>(), &recorded(), &no_sources).unwrap();
    assert_eq!(named(&card), "changed: ScheduleActivity draft #1");
    assert_eq!(card.patch.unwrap().lines[0], "+ if cx.patched(\"draft-changed\") {");
    assert!(card.mismatch.location.unwrap().file.ends_with("card/tests.rs"));
}
