//! The debugger without a terminal: keys through the pure update, the screen as text.

use bosun_engine::workflow::{Cx, StateMachine, WorkflowEvent, WorkflowRegistry};
use bosun_engine::*;
use bosun_replay::History;
use ratatui::Terminal;
use ratatui::backend::TestBackend;

use super::state::Mode;
use super::*;
use crate::capability::model::{AssistantMessage, ChatResponse, Cost, ModelOutput, StopReason, Usage};

#[derive(serde::Serialize, serde::Deserialize)]
struct Counter {
    heard: u64,
    paid: Option<u64>,
}

impl StateMachine for Counter {
    const TYPE: &'static str = "counter";
    type Input = u64;
    type Output = u64;
    fn start(cents: u64, cx: &mut Cx<'_>) -> Result<Self, Failure> {
        cx.schedule_activity("charge", &cents, ActivityOptions::start_to_close(std::time::Duration::from_secs(9)));
        Ok(Counter { heard: 0, paid: None })
    }
    fn on_event(&mut self, event: WorkflowEvent, cx: &mut Cx<'_>) -> Result<(), Failure> {
        self.heard += 1;
        if let WorkflowEvent::ActivityResolved { result, .. } = event {
            self.paid = Some(result?.decode()?);
            cx.complete(&self.heard);
        }
        Ok(())
    }
}

fn told() -> History {
    let mut told = HistoryBuilder::started("counter", "c1", Payload::raw_json("5"));
    let charge = told.activity_scheduled("charge", Payload::raw_json("5"));
    told.activity_started(charge, 1);
    told.signaled("hurry", Payload::raw_json("\"now\""));
    told.activity_completed(charge, Payload::raw_json("5"));
    told.completed(Payload::raw_json("2"));
    History::new(told.turns()).unwrap()
}

fn scene<'t>(timeline: &'t Timeline<'t>, code: &'t WorkflowRegistry, ascii: bool) -> DrawContext<'t> {
    let paid = PaidAnswers::of(timeline.events());
    DrawContext { timeline, code, source: "c1", ascii, sources: &|_| None, paid }
}

fn on_screen(scene: &DrawContext<'_>, view: &View) -> String {
    on_screen_of(108, 14, scene, view)
}

fn on_screen_of(width: u16, height: u16, scene: &DrawContext<'_>, view: &View) -> String {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| _ = draw(frame, scene, view)).unwrap();
    let buffer = terminal.backend().buffer();
    let row = |y| (0..buffer.area.width).map(|x| buffer[(x, y)].symbol()).collect::<String>();
    (0..buffer.area.height).map(|y| format!("{}\n", row(y).trim_end())).collect()
}

/// The view after these keys; `\n` is Enter.
fn after(timeline: &Timeline<'_>, keys: &str) -> View {
    let key = |c| if c == '\n' { KeyPress::Enter } else { KeyPress::Char(c) };
    keys.chars().fold(View::new(timeline, EventId(1)), |view, c| update(timeline, view, key(c)))
}

#[test]
fn keys_walk_forwards_and_backwards_and_stay_inside() {
    let code = WorkflowRegistry::new().state_machine::<Counter>();
    let timeline = Timeline::new(&code, told());
    for (keys, at, message) in [
        ("j", 2, ""),
        ("jjk", 2, ""),
        ("k", 1, "this is the first event"),
        ("jjjjjj", 6, "this is the last event"),
        ("J", 4, ""),
        ("JJ", 5, ""),
        ("JJJ", 5, "no later workflow task"),
        ("JJKK", 1, ""),
        ("g5\n", 5, ""),
        ("g7\n", 1, "there is no event 7; there are 6"),
        ("bstate.paid\nc", 5, ""),
        ("bname:charge\ncc", 3, ""),
        ("bname:charge\ng6\nCC", 3, ""),
        ("bfailure\nc", 1, "no breakpoint in this direction"),
        ("c", 6, "no breakpoints: b sets one"),
        ("/hurry\n", 4, ""),
        ("/charge\nn", 3, ""),
        ("/absent\n", 1, "nothing shows this text"),
        ("jjr", 1, ""),
    ] {
        let view = after(&timeline, keys);
        assert_eq!((view.at.0, view.message.as_str()), (at, message), "{keys:?}");
    }
    assert!(after(&timeline, "bnonsense\n").message.contains("is no breakpoint"));
    assert!(after(&timeline, "bfailure\nbfailure\n").breakpoints.is_empty(), "the same again removes it");
    assert!(after(&timeline, "q").done && after(&timeline, "x").export);
    assert_eq!(after(&timeline, "?j").mode, Mode::Walk);
    assert_eq!(update(&timeline, after(&timeline, "gabc"), KeyPress::Esc), View::new(&timeline, EventId(1)));
}

#[test]
fn the_screen_shows_events_code_state_and_where_one_is() {
    let code = WorkflowRegistry::new().state_machine::<Counter>();
    let timeline = Timeline::new(&code, told());
    let scene = scene(&timeline, &code, true);
    let shown = on_screen(&scene, &after(&timeline, "bname:charge\nwpaid\nJ"));
    golden("screen.txt", include_str!("screen.txt"), &shown);
}

/// On a terminal of the usual size each event says what happened, and to whom.
#[test]
fn events_tell_themselves_apart_on_80_columns() {
    let code = WorkflowRegistry::new().state_machine::<Counter>();
    let timeline = Timeline::new(&code, told());
    let scene = scene(&timeline, &code, true);
    let shown = on_screen_of(80, 24, &scene, &View::new(&timeline, EventId(1)));
    for wanted in ["charge Scheduled|", "charge Started", "hurry Signaled", "charge Completed|"] {
        assert!(shown.replace(' ', "").contains(&wanted.replace(' ', "")), "{wanted}: {shown}");
    }
}

#[track_caller]
fn golden(file: &str, golden: &str, shown: &str) {
    if std::env::var_os("BOSUN_WRITE_FIXTURES").is_some() {
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src/cli/replay/debug").join(file);
        std::fs::write(path, shown).unwrap();
    } else {
        assert_eq!(shown, golden);
    }
}

/// `f` shows what a fork here would do and the command for it, and does nothing; Enter leaves with that command.
#[test]
fn fork_here_shows_the_plan_and_leaves_with_the_command() {
    let code = WorkflowRegistry::new().state_machine::<Counter>();
    let timeline = Timeline::new(&code, told());
    let scene = scene(&timeline, &code, true);
    golden("fork.txt", include_str!("fork.txt"), &on_screen(&scene, &after(&timeline, "g4\nf")));
    for (keys, command) in [
        ("g4\nf\n", Some("bosun fork c1 --at 4")),
        ("g5\nf\n", Some("bosun fork c1 --set-result event:5=5")),
        ("g4\nfj", None),
        ("g4\nfq\n", None),
    ] {
        let view = after(&timeline, keys);
        let left = (view.fork && view.done).then(|| fork_here::command(&timeline, "c1", view.at));
        assert_eq!(left.as_deref(), command, "{keys:?}");
    }
    assert_eq!(after(&timeline, "g4\nfj").at, EventId(5), "a step is also taken");
}

#[test]
fn payload_difference_help_and_questions_lie_over_the_rest() {
    let code = WorkflowRegistry::new().state_machine::<Counter>();
    let timeline = Timeline::new(&code, told());
    let scene = scene(&timeline, &code, false);
    for (keys, text) in [
        ("J\n", "\"name\": \"hurry\""),
        ("g6\nd1\n", "paid: null -> 5"),
        ("?", "one workflow task"),
        ("gabc", "go to event: abc_"),
        ("", "◆   1"),
    ] {
        let shown = on_screen(&scene, &after(&timeline, keys));
        assert!(shown.contains(text), "{keys:?}:\n{shown}");
        assert!(!shown.contains('\u{1b}'), "text of a workflow cannot steer the terminal");
    }
    let none = WorkflowRegistry::new();
    let facts = Timeline::new(&none, told());
    let scene = self::scene(&facts, &none, true);
    assert!(on_screen(&scene, &after(&facts, "")).contains("facts only: "));
}

/// A state of a hundred rows in a panel of ten: every row of it can be reached, and no key goes beyond its end.
#[test]
fn what_is_longer_than_its_panel_is_scrolled() {
    let code = WorkflowRegistry::new().state_machine::<Counter>();
    let timeline = Timeline::new(&code, told());
    let scene = scene(&timeline, &code, true);
    // As the loop of the debugger does it.
    let keys = |view: View, keys: &str| {
        keys.chars().fold(view, |view, c| {
            let mut terminal = Terminal::new(TestBackend::new(108, 14)).unwrap();
            let mut room = ScrollRoom::default();
            terminal.draw(|frame| room = draw(frame, &scene, &view)).unwrap();
            let view = View { half: room.half, scroll_max: room.most, ..view };
            let key = match c {
                '\n' => KeyPress::Enter,
                '\t' => KeyPress::Tab,
                c => KeyPress::Char(c),
            };
            update(&timeline, view, key)
        })
    };
    let help = keys(View::new(&timeline, EventId(1)), "?");
    let shown = on_screen(&scene, &help);
    assert!(
        shown.contains("keys 1-") && shown.contains("one event forwards") && !shown.contains("q          quit"),
        "{shown}"
    );
    let down = keys(help, "}}}}}}}}}}");
    let shown = on_screen(&scene, &down);
    assert!(shown.contains("q          quit") && !shown.contains("one event forwards"), "{shown}");
    let up = keys(down.clone(), "{");
    assert!(up.scroll < down.scroll && up.mode == Mode::Help, "no key was lost beyond the end");
    let closed = keys(down, "q");
    assert_eq!((closed.mode, closed.scroll, closed.done), (Mode::Walk, 0, false));
    let other = keys(View::new(&timeline, EventId(1)), "\t");
    assert_eq!((other.panel, other.scroll), (state::Panel::Code, 0));
}

/// What a run had spent is shown as of the event that one looks at.
#[test]
fn the_debugger_tells_what_the_run_had_spent_at_each_event() {
    let answer = |tokens: u64, cost: Cost| {
        let usage = Usage { input: Some(tokens), output: Some(1), ..Usage::default() };
        let (said, stop) = (AssistantMessage::default(), StopReason::default());
        let free = ModelOutput::free(ChatResponse { said, stop, usage, model: "tiny".into(), id: None }, None);
        Payload::encode(&ModelOutput { cost, ..free }).unwrap()
    };
    let mut told = HistoryBuilder::started("asks", "c1", Payload::null());
    for (tokens, cost) in [(99, Cost::Micros(250)), (49, Cost::Unpriced("no price".into()))] {
        let asked = told.activity_scheduled("model", Payload::null());
        told.activity_started(asked, 1);
        told.activity_completed(asked, answer(tokens, cost));
    }
    told.completed(Payload::null());
    let code = WorkflowRegistry::new();
    let timeline = Timeline::new(&code, History::new(told.turns()).unwrap());
    let scene = scene(&timeline, &code, true);
    for (event, spent) in [
        (3, "spent so far: 0 calls, 0 tokens, $0.000000"),
        (4, "spent so far: 1 call, 100 tokens, $0.000250"),
        (6, "spent so far: 1 call, 100 tokens, $0.000250"),
        (7, "spent so far: 2 calls, 150 tokens, $0.000250 and a call of unknown price"),
    ] {
        let shown = on_screen_of(300, 14, &scene, &View::new(&timeline, EventId(event)));
        assert!(shown.contains(&format!("|{spent} ")), "{event}: {shown}");
    }
    let none = Timeline::new(&code, self::told());
    let shown = on_screen(&self::scene(&none, &code, true), &View::new(&none, EventId(4)));
    assert!(!shown.contains("spent"), "it asks no model: {shown}");
}

/// A supervisor has an account, which knows of all that it had called.
#[test]
fn the_debugger_tells_what_the_account_of_a_supervisor_said() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../fixtures/supervisors/golden/map-reduce/happy.history.json");
    let history = History::from_json(&std::fs::read(path).unwrap(), &Default::default()).unwrap();
    let code = crate::supervisor::run::register(WorkflowRegistry::new());
    let timeline = Timeline::new(&code, history);
    let scene = scene(&timeline, &code, true);
    let calls = |event: EventId| -> u64 {
        let shown = on_screen_of(300, 14, &scene, &View::new(&timeline, event));
        let spent = shown.split("spent so far: ").nth(1).unwrap_or_else(|| panic!("{event}: {shown}"));
        spent.split(' ').next().unwrap().parse().unwrap()
    };
    // A call counts from when it is made.
    let each: Vec<u64> = (1..=timeline.last().0).map(|event| calls(EventId(event))).collect();
    assert!(each.is_sorted() && each.first() < each.last(), "{each:?}");
}
