//! The picture of a snapshot, and the keys.

use ratatui::Terminal;
use ratatui::backend::TestBackend;

use super::view::{TopKey, TopView, update};
use super::*;

fn row(id: &str, urgency: Urgency, why: &str) -> TopRow {
    TopRow {
        workflow_id: id.into(),
        workflow_type: "supervisor".into(),
        status: "Running".into(),
        age: "3s".into(),
        events: 7,
        spent: Some(super::spent::KnownSpend { micros: 1_250_000, unpriced_calls: 0 }),
        why: why.into(),
        help: if why.is_empty() { String::new() } else { format!("bosun approval approve {id}") },
        urgency,
    }
}

fn snapshot() -> ScreenData {
    let rows = vec![
        row("stuck", Urgency::Stuck, "activity a: no worker"),
        row("asks", Urgency::Asks, "waits for a person: publish?"),
        row("goes\u{1b}[2J-on", Urgency::GoesOn, ""),
    ];
    let agent = AgentRow { name: "writer".into(), busy: 1, done: 2, failed: 0, tokens: 1_200, cost_micros: 3_450_000 };
    let worker = WorkerNow { slots: 1_000, busy: 3, external_slots: 16, external_busy: 2, ..WorkerNow::default() };
    ScreenData { at: Timestamp(1), worker: Some(worker), open: 3, held: 0, rows, agents: vec![agent] }
}

fn picture(snapshot: &ScreenData, view: &TopView, problem: Option<&str>, age: u64) -> String {
    picture_of((100, 12), snapshot, view, problem, age)
}

fn picture_of(
    (width, height): (u16, u16),
    snapshot: &ScreenData,
    view: &TopView,
    problem: Option<&str>,
    age: u64,
) -> String {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| draw(frame, snapshot, view, true, problem, Duration::from_secs(age))).unwrap();
    let buffer = terminal.backend().buffer().clone();
    let width = usize::from(buffer.area.width);
    let symbols: Vec<&str> = buffer.content().iter().map(|cell| cell.symbol()).collect();
    symbols.chunks(width).map(|row| row.concat().trim_end().to_owned() + "\n").collect()
}

#[test]
fn the_picture_has_the_runs_in_their_order_and_what_helps_the_marked_one() {
    let shown = picture(&snapshot(), &TopView::default(), None, 0);
    let lines: Vec<&str> = shown.lines().collect();
    assert_eq!(
        lines[0], "3 open, 1 ask a person, 0 held  slots 3/1000 (2/16 external)  1200 tokens, $3.4500",
        "{shown}"
    );
    assert!(
        lines[2].starts_with("! stuck") && lines[3].starts_with("? asks") && lines[4].starts_with(". goes"),
        "{shown}"
    );
    assert!(lines[10].contains("bosun approval approve stuck") && lines[11].contains("q quit"), "{shown}");
    assert!(lines[1].contains("SPENT") && lines[2].contains("$1.2500"), "{shown}");
    assert!(!shown.contains('\u{1b}'), "an id cannot steer the terminal");
    assert!(!shown.contains("AGENT"), "{shown}");
    let agents = picture(&snapshot(), &update(TopView::default(), TopKey::Agents), None, 0);
    assert!(agents.contains("writer") && agents.contains("$3.4500"), "{agents}");
}

/// Whom and why are read at any width: what is less wanted makes room, and why and what helps take more lines.
#[test]
fn a_narrow_terminal_keeps_whom_and_why() {
    let mut snapshot = snapshot();
    snapshot.rows[0].why =
        "model gpt-4o at http://127.0.0.1:9: connection refused, attempt 7 in 12s, since nobody listens there".into();
    snapshot.rows[0].help = "bosun --data /home/somebody/somewhere/data budget top-up stuck --tokens 30000".into();
    for (size, there, gone) in [
        ((120, 24), &["TYPE", "EVENTS", "SPENT", "AGE"][..], &[][..]),
        ((100, 24), &["EVENTS", "SPENT", "AGE"], &["TYPE"]),
        ((80, 24), &["SPENT", "AGE"], &["TYPE", "EVENTS"]),
        ((60, 24), &["AGE"], &["TYPE", "EVENTS", "SPENT"]),
        ((40, 24), &[], &["TYPE", "EVENTS", "SPENT", "AGE"]),
    ] {
        let shown = picture_of(size, &snapshot, &TopView::default(), None, 0);
        let lines: Vec<&str> = shown.lines().collect();
        let head: Vec<&str> = lines[1].split_whitespace().collect();
        assert!(lines[1].contains("WORKFLOW") && head.contains(&"WHY"), "{shown}");
        assert!(there.iter().all(|name| head.contains(name)), "{size:?}: {shown}");
        assert!(!gone.iter().any(|name| head.contains(name)), "{size:?}: {shown}");
        assert!(lines[2].starts_with("! stuck") && lines[2].contains("model gpt-4o"), "{size:?}: {shown}");
        let words = lines[5..].join(" ");
        let words = words.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(words.contains("why: model gpt-4o at http://127.0.0.1:9: connection refused"), "{size:?}: {shown}");
        assert!(words.contains("since nobody listens there helps: bosun --data"), "{size:?}: {shown}");
        assert!(words.contains("top-up stuck --tokens 30000"), "{size:?}: {shown}");
    }
}

#[test]
fn a_text_is_wrapped_at_words_and_cut_where_it_is_too_long() {
    use super::draw::wrapped;
    assert_eq!(wrapped("one two three", 8), ["one two", "three"]);
    assert_eq!(wrapped("abcdefghij k", 4), ["abcd", "efgh", "ij k"]);
    let long = wrapped(&"word ".repeat(40), 10);
    assert_eq!((long.len(), long[3].as_str()), (4, "word wo..."));
}

#[test]
fn a_worker_that_left_is_told_with_the_age_of_what_is_shown() {
    let shown = picture(&snapshot(), &TopView::default(), Some("no worker answers"), 12);
    assert!(shown.contains("no worker answers - as of 12s ago"), "{shown}");
    let alone = ScreenData { worker: None, ..snapshot() };
    assert!(picture(&alone, &TopView::default(), None, 0).contains("no worker: nothing goes on"));
}

#[test]
fn keys_move_the_mark_within_the_rows() {
    let down = update(update(TopView::default(), TopKey::Down(10)), TopKey::Down(1)).within(3);
    assert_eq!(down.at, 2);
    assert_eq!(update(down, TopKey::Up(usize::MAX)).within(3).at, 0);
    assert_eq!(TopView { at: 9, ..down }.within(0).at, 0);
    let chosen = update(down, TopKey::Choose);
    assert!(chosen.done && chosen.chosen && !update(down, TopKey::Quit).chosen);
}

/// A run above one that is stuck waits for the same, and a command that is shown can be pasted.
#[tokio::test]
async fn a_run_above_says_why_and_commands_name_the_place() {
    use bosun_engine::*;
    let mut child = crate::fake::run_info("kid", WorkflowStatus::Paused);
    child.run_id = RunId([8; 16]);
    let above = crate::fake::run_info("order-7", WorkflowStatus::Running);
    let (workflow_id, run_id) = (above.workflow_id.clone(), above.run_id);
    child.parent = Some(Parent { workflow_id, run_id, seq: Seq(1), close_policy: ParentClosePolicy::Terminate });
    let mut fake = crate::fake::Fake::new();
    fake.runs = vec![child, above];
    let words = ["bosun", "--data", "there", "--namespace", "team", "version"];
    let cli = <crate::cli::args::Cli as clap::Parser>::try_parse_from(words).unwrap();
    let reach = Reach::of(&cli.global, |_| None);
    let shown = taken(&fake, Some(WorkerNow::default()), Timestamp(1_000_000_000), &reach, &mut SpentMemory::default())
        .await
        .unwrap();
    let [kid, above] = shown.rows.as_slice() else { panic!("{shown:?}") };
    assert_eq!(kid.help, "bosun --data there --namespace team resume kid");
    assert_eq!((above.why.as_str(), above.help.as_str()), ("child kid: pause: it is paused", kid.help.as_str()));
}
