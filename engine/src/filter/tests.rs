//! What filters match, in what order, how they fail, and that no text can break the parser.

use std::cmp::Ordering;

use proptest::prelude::*;

use super::condition::{Comparison, Literal};
use super::*;
use crate::vocabulary::*;

/// An order run: started at `start` seconds, open.
fn run(id: &str, start: i64) -> RunInfo {
    let mut run_id = [0u8; 16];
    run_id[..8].copy_from_slice(&start.to_be_bytes());
    RunInfo {
        namespace: "default".into(),
        workflow_id: id.into(),
        run_id: RunId(run_id),
        workflow_type: "Order".into(),
        task_queue: "default".into(),
        status: WorkflowStatus::Running,
        started_at: Timestamp(start * 1_000_000),
        closed_at: None,
        history: HistorySize { events: 12, bytes: 3_400 },
        attempt: Attempt(1),
        first_run: RunId(run_id),
        continued_from: None,
        next_run: None,
        parent: None,
        memo: Memo::new(),
        search_attributes: SearchAttributes::new(),
        summary: None,
        details: None,
        build: BuildId(0xabc),
        start_request_id: None,
        forked_from: None,
        held: false,
        hold: None,
    }
}

fn with(attributes: &[(&str, SearchValue)]) -> RunInfo {
    let mut run = run("order-7", 1_000);
    run.search_attributes = attributes.iter().map(|(name, value)| (FieldName::of(name), value.clone())).collect();
    run
}

#[track_caller]
fn check(run: &RunInfo, yes: &[&str], no: &[&str]) {
    for (texts, wanted) in [(yes, true), (no, false)] {
        for text in texts {
            let filter = Filter::parse(text).unwrap_or_else(|why| panic!("{why}"));
            assert_eq!(filter.matches(run), wanted, "{text}");
            let again = filter.to_string();
            assert_eq!(Filter::parse(&again).unwrap_or_else(|why| panic!("{why}")), filter, "{text} -> {again}");
        }
    }
}

/// E23: every built-in field can be asked for.
#[test]
fn built_in_fields_are_compared_by_their_type() {
    let mut run = run("order-7", 1_000);
    run.status = WorkflowStatus::TimedOut;
    run.closed_at = Some(Timestamp(2_000_000_000));
    run.parent = Some(Parent {
        workflow_id: "basket".into(),
        run_id: RunId([0xfe; 16]),
        seq: Seq(1),
        close_policy: ParentClosePolicy::Terminate,
    });
    let yes = [
        "",
        "  ",
        "WorkflowId = 'order-7'",
        "WorkflowId = \"order-7\" and WorkflowId != 'order-8'",
        "WorkflowId STARTS_WITH 'order-'",
        "`WorkflowId` > 'order-6' AND WorkflowId BETWEEN 'order' AND 'orderx'",
        "WorkflowType = 'Order' AND TaskQueue='default' AND Namespace = 'default'",
        "RunId = '00000000-0000-03e8-0000-000000000000'",
        "RunId = '00000000000003E80000000000000000'",
        "RunId STARTS_WITH '00000000-0000-03e8'",
        "ExecutionStatus = 'TimedOut'",
        "ExecutionStatus = 'timedout' AND ExecutionStatus <> 'RUNNING'",
        "ExecutionStatus IN ('Failed', 'TimedOut') AND ExecutionStatus NOT IN ('Running')",
        "StartTime = '1970-01-01T00:16:40Z' AND ExecutionTime = '1970-01-01T00:16:40Z'",
        "StartTime BETWEEN '1970-01-01T01:16:40+01:00' AND '1970-01-01T00:16:40Z'",
        "CloseTime > '1970-01-01' AND CloseTime <= '1970-01-01T00:33:20Z'",
        "HistoryLength = 12 AND HistoryLength > 11.5 AND HistorySizeBytes >= 3400",
        "HistoryLength NOT BETWEEN 13 AND 20",
        "ParentWorkflowId = 'basket' AND ParentRunId STARTS_WITH 'fefe'",
        "BuildId = '0000000000000abc'",
        "Held = false AND NOT Held = true",
    ];
    let no = [
        "WorkflowId = 'order-8'",
        "WorkflowId < 'order-7'",
        "WorkflowId NOT STARTS_WITH 'order'",
        "RunId != '00000000-0000-03e8-0000-000000000000'",
        "ExecutionStatus IN ('Running', 'Paused')",
        "StartTime > '1970-01-01T00:16:40Z'",
        "CloseTime IS NULL",
        "HistoryLength < 12",
        "HistoryLength BETWEEN 13 AND 20",
        "ParentWorkflowId IS NULL",
    ];
    check(&run, &yes, &no);
}

/// E23: search attributes of every type, and `=` on a list means that it contains the value.
#[test]
fn search_attributes_are_compared_by_the_type_the_run_has() {
    let run = with(&[
        ("Customer", SearchValue::Keyword("Ann's".into())),
        ("Amount", SearchValue::Int((1 << 53) + 1)),
        ("Score", SearchValue::Float(-0.0)),
        ("Broken", SearchValue::Float(f64::NAN)),
        ("Urgent", SearchValue::Bool(true)),
        ("Due", SearchValue::Datetime(Timestamp(0))),
        ("Note", SearchValue::Text("a\nb".into())),
        ("Tags", SearchValue::KeywordList(vec!["red".into(), "blue".into()])),
        ("Nothing", SearchValue::KeywordList(vec![])),
        ("order by", SearchValue::Keyword("x".into())),
        ("workflowid", SearchValue::Keyword("mine".into())),
    ]);
    let yes = [
        "Customer = 'Ann\\'s' AND Customer = 'Ann''s' AND Customer = \"Ann's\"",
        "Amount > 9007199254740992.0 AND Amount = 9007199254740993",
        "Score = 0 AND Score = 0.0 AND Score < 1e-9",
        "Urgent = true AND Urgent != FALSE",
        "Due = '1970-01-01T00:00:00Z' AND Due < '2026-11-20'",
        "Note = 'a\\nb' AND Note = 'a\nb'",
        "Tags = 'red' AND Tags = 'blue' AND Tags != 'green' AND Tags STARTS_WITH 'b'",
        "Tags IN ('green', 'red') AND Tags NOT IN ('green', 'black')",
        "Nothing != 'a' AND Nothing IS NOT NULL",
        "`order by` = 'x' AND `workflowid` = 'mine'",
        "Customer IN (1, 'Ann''s')",
    ];
    let no = [
        "Amount <= 9007199254740992.0",
        "Broken = 1.0 OR Broken != 1.0 OR Broken > 1.0 OR Broken < 1.0",
        "Tags = 'green'",
        "Tags != 'red'",
        "Tags NOT IN ('green', 'red')",
        "Nothing = 'a'",
    ];
    check(&run, &yes, &no);
}

/// E23: a comparison with a missing attribute or another type is false, also a negated one; only NULL tests see it.
#[test]
fn a_missing_attribute_or_another_type_compares_false() {
    let run = with(&[("Amount", SearchValue::Int(5))]);
    let yes = ["Gone IS NULL", "CloseTime IS NULL AND ParentRunId IS NULL", "NOT Gone = 1", "Amount IS NOT NULL"];
    let no = [
        "Gone = 'a'",
        "Gone != 'a'",
        "Gone NOT IN ('a')",
        "Gone NOT STARTS_WITH 'a'",
        "Gone NOT BETWEEN 1 AND 2",
        "Gone IS NOT NULL",
        "CloseTime > '1970-01-01'",
        "Amount = '5'",
        "Amount != 'five'",
        "Amount NOT STARTS_WITH '5'",
        "Amount = true",
    ];
    check(&run, &yes, &no);
}

/// Only what is asked for by name is: not what is left out, and not another field with the same text.
#[test]
fn types_are_asked_for_by_name() {
    let asks = |text: &str| Filter::parse(text).unwrap().asks_for_types("own.");
    for yes in [
        "WorkflowType = 'own.a'",
        "WorkflowType IN ('b', 'own.a')",
        "WorkflowType STARTS_WITH 'own.'",
        "ExecutionStatus = 'Running' AND (WorkflowId = 'x' OR WorkflowType = 'own.a')",
    ] {
        assert!(asks(yes), "{yes}");
    }
    for no in [
        "",
        "WorkflowType != 'own.a'",
        "NOT (WorkflowType = 'own.a')",
        "WorkflowType NOT IN ('own.a')",
        "WorkflowType NOT STARTS_WITH 'own.'",
        "WorkflowType STARTS_WITH 'ow'",
        "WorkflowId = 'own.a'",
        "WorkflowId != 'own.a'",
    ] {
        assert!(!asks(no), "{no}");
    }
    let parsed = |text: &str| Filter::parse(text).unwrap();
    assert!(parsed("WorkflowId = 'own.a' OR WorkflowType = 'b'").asks_for_ids("own."));
    assert!(!parsed("WorkflowType = 'own.a' AND WorkflowId != 'own.a'").asks_for_ids("own."));
    let run = RunId([7; 16]);
    assert!(parsed(&format!("RunId = '{run}' AND WorkflowType = 'a'")).asks_for_runs());
    assert!(!parsed(&format!("RunId != '{run}' AND ParentRunId = '{run}'")).asks_for_runs());
}

/// E23: NOT binds tighter than AND, AND tighter than OR.
#[test]
fn operators_bind_as_in_sql() {
    let run = with(&[("A", SearchValue::Int(1))]);
    let yes = [
        "A = 1 OR A = 2 AND A = 3",
        "NOT A = 2 AND A = 1",
        "NOT (A = 2 OR A = 3)",
        "not not A = 1",
        "A BETWEEN 0 AND 1 AND A = 1",
    ];
    check(&run, &yes, &["(A = 1 OR A = 2) AND A = 3", "NOT (A = 1 AND A = 1)", "NOT A = 1 OR A = 2"]);
}

/// E23: newest start first unless told otherwise; missing values last; equal ones by run id, so that pages are stable.
#[test]
fn runs_are_ordered_by_the_fields_asked_for() {
    let mut runs = [run("b", 1), run("c", 3), run("a", 2), run("d", 4)];
    runs[0].search_attributes.insert("Amount".into(), SearchValue::Int(7));
    runs[1].search_attributes.insert("Amount".into(), SearchValue::Float(6.5));
    runs[2].search_attributes.insert("Amount".into(), SearchValue::Int(7));
    for (text, wanted) in [
        ("", "dcab"),
        ("ORDER BY StartTime DESC", "dcab"),
        ("ORDER BY StartTime", "bacd"),
        ("ORDER BY StartTime ASC", "bacd"),
        ("WorkflowType = 'Order' order by WorkflowId desc", "dcba"),
        ("ORDER BY Amount ASC", "cabd"),
        ("ORDER BY Amount DESC", "abcd"),
        ("ORDER BY Amount DESC, WorkflowId DESC", "bacd"),
        ("ORDER BY Namespace", "dcab"),
        ("ORDER BY CloseTime", "dcab"),
    ] {
        let filter = Filter::parse(text).unwrap();
        runs.sort_by(|a, b| filter.compare(a, b));
        let ids: String = runs.iter().map(|run| run.workflow_id.as_str()).collect();
        assert_eq!(ids, wanted, "{text}");
        assert_eq!(Filter::parse(&filter.to_string()).unwrap(), filter);
    }
    assert_eq!(Filter::default().compare(&runs[0], &runs[0]), Ordering::Equal);
    assert_eq!(Filter::parse("").unwrap().order.len(), 1);
}

/// E23, issue 17 §1: a status is the one that a list shows, as far as it is known how people hold the run.
#[test]
fn a_status_is_the_one_that_a_list_shows() {
    let of = |status, held, hold| RunInfo { status, held, hold, ..run("a", 1) };
    let running = |held, hold| of(WorkflowStatus::Running, held, hold);
    let found = |run: &RunInfo| {
        let is = |word: &&str| Filter::parse(&format!("ExecutionStatus = '{word}'")).unwrap().matches(run);
        ["Running", "Paused", "Held", "taken over", "Completed"].into_iter().filter(|word| is(word)).collect::<Vec<_>>()
    };
    assert_eq!(found(&running(false, None)), ["Running"]);
    assert_eq!(found(&running(false, Some(Hold::Paused))), ["Running", "Paused"]);
    assert_eq!(found(&running(false, Some(Hold::TakenOver))), ["Running", "taken over"]);
    assert_eq!(found(&running(true, None)), ["Running", "Held"]);
    assert_eq!(found(&of(WorkflowStatus::Paused, false, None)), ["Paused"]);
    assert_eq!(found(&of(WorkflowStatus::Completed, false, Some(Hold::Paused))), ["Completed"]);
}

/// What no filter can tell apart nobody needs to be asked for.
#[test]
fn a_filter_says_whether_it_matters_how_people_hold_a_run() {
    let matters = |text: &str| Filter::parse(text).unwrap().asks_for_holds();
    for text in [
        "ExecutionStatus = 'Paused'",
        "WorkflowType = 'a' AND NOT (A = 1 OR ExecutionStatus = 'Paused')",
        "ExecutionStatus NOT IN ('Paused', 'Completed')",
        "ExecutionStatus = 'TakenOver'",
    ] {
        assert!(matters(text), "{text}");
    }
    for text in [
        "",
        "ExecutionStatus = 'Running'",
        "ExecutionStatus IN ('Running', 'Paused')",
        "ExecutionStatus = 'Completed' OR Held = true",
        "ExecutionStatus = 'Held'",
        "Status = 'Paused'",
    ] {
        assert!(!matters(text), "{text}");
    }
    assert!(Filter::parse("A = 1 OR ExecutionStatus = 'Held'").unwrap().asks_for_held());
}

/// E23: every error says where and what was expected.
#[test]
fn errors_name_the_place_and_what_was_expected() {
    for (text, at, part) in [
        ("WorkflowId", 10, "expected =, !=, <, <=, >, >=, BETWEEN, IN, NOT, STARTS_WITH or IS"),
        ("WorkflowId = ", 13, "expected a value, found the end of the filter"),
        ("WorkflowId = order", 13, "texts stand in quotes: 'order'"),
        ("WorkflowId = 'a' 'b'", 17, "expected AND, OR, ORDER BY or the end of the filter, found the value 'b'"),
        ("WorkflowId = 'a' AND", 20, "expected a field, found the end of the filter"),
        ("(WorkflowId = 'a'", 17, "expected AND, OR or `)`"),
        ("WorkflowId = 'a", 13, "this ' has no closing '"),
        ("WorkflowId = 'a\\q'", 15, "expected one of"),
        ("workflowid = 'a'", 0, "spelled WorkflowId"),
        ("WorkflowId = 7", 13, "WorkflowId is a text: expected '7' in quotes"),
        ("HistoryLength > '7'", 16, "is a number"),
        ("StartTime > 'yesterday'", 12, "expected RFC 3339 in quotes"),
        ("RunId = 'x'", 8, "expected 32 hexadecimal digits"),
        ("ExecutionStatus = 'Done'", 18, "expected one of 'Running', 'Paused', 'Completed'"),
        ("ExecutionStatus > 'Running'", 16, "has no order"),
        ("Held = 'yes'", 7, "is true or false, without quotes"),
        ("StartTime STARTS_WITH '2026'", 10, "is not a text"),
        ("A STARTS_WITH 5", 14, "expected a text in quotes"),
        ("A IN ()", 6, "expected a value, found `)`"),
        ("A IN (1 2)", 8, "expected `,` or `)`"),
        ("A IS 5", 5, "expected NULL"),
        ("A NOT = 5", 6, "expected BETWEEN, IN or STARTS_WITH"),
        ("A = 5abc", 4, "this is not a number"),
        ("A = 99999999999999999999", 4, "does not fit into 64 bits"),
        ("A = 1e999", 4, "too large"),
        ("A ! 5", 2, "found '!'"),
        ("and = 5", 0, "expected a field, found and"),
        ("``= 5", 0, "is empty"),
        ("A = 1 ORDER StartTime", 12, "expected BY"),
        ("A = 1 ORDER BY StartTime DESC 5", 30, "the end of the filter"),
    ] {
        let why = Filter::parse(text).unwrap_err();
        assert_eq!(why.at, at, "{text}: {why}");
        assert!(why.message.contains(part), "{text}: {why}");
    }
}

/// E23: the message points at the place with a caret, also in long and many-line texts.
#[test]
fn errors_point_with_a_caret() {
    let why = Filter::parse("Größe = 'x' ADN b = 1").unwrap_err();
    let wanted = "list filter, at byte 14: expected AND, OR, ORDER BY or the end of the filter, found `ADN`\n  \
                  Größe = 'x' ADN b = 1\n              ^";
    assert_eq!(why.to_string(), wanted);
    let long = format!("A = 1\n{} ?{}", "AND A = 1 ".repeat(50), " OR B = 2".repeat(20));
    let shown = Filter::parse(&long).unwrap_err().to_string();
    let lines: Vec<Vec<char>> = shown.lines().map(|line| line.chars().collect()).collect();
    let caret = lines[2].iter().position(|c| *c == '^').unwrap();
    assert_eq!(lines[1][caret], '?', "{shown}");
    assert!(lines.iter().all(|line| line.len() < 140) && lines.len() == 3, "{shown}");
}

/// E23, G39: depth and length are bounded.
#[test]
fn deep_and_long_filters_are_refused() {
    let nested = |n: usize| format!("{}A = 1{}", "(".repeat(n), ")".repeat(n));
    assert!(Filter::parse(&nested(FILTER_DEPTH_MAX - 1)).is_ok());
    let why = Filter::parse(&nested(FILTER_DEPTH_MAX)).unwrap_err();
    assert_eq!((why.at, why.message.contains("64 levels")), (FILTER_DEPTH_MAX, true));
    assert!(Filter::parse(&nested(1_000)).is_err());
    assert!(Filter::parse(&format!("{} A = 1", "NOT ".repeat(1_000))).is_err());
    assert!(Filter::parse(&"A=1 OR ".repeat(600)).unwrap_err().message.contains("at most 4096"));
    assert!(Filter::parse(&format!("{}A=1", "A=1 OR ".repeat(500))).is_ok());
}

fn literal() -> impl Strategy<Value = Literal> {
    prop_oneof![
        ".{0,12}".prop_map(Literal::text),
        any::<i32>().prop_map(|n| Literal::text(Timestamp(i64::from(n)).to_string())),
        any::<i64>().prop_map(Literal::Int),
        any::<f64>().prop_filter("finite", |n| n.is_finite()).prop_map(Literal::Float),
        any::<bool>().prop_map(Literal::Bool),
    ]
}

/// A field with literals that fit it.
fn field() -> impl Strategy<Value = (Field, Vec<Literal>)> {
    let attribute = "[A-Za-z_ ö`-][A-Za-z0-9_. `'-]{0,10}|and|In|NULL|workflowid|order"
        .prop_filter("not a built-in field", |name| BuiltinField::ALL.iter().all(|field| field.name() != name))
        .prop_map(|name| Field::Attribute(FieldName::of(name)));
    let builtin = |field| Just(Field::Builtin(field));
    let status = prop::sample::select(StandingWord::all().collect::<Vec<_>>()).prop_map(Literal::Status);
    let text = "\\PC{0,8}".prop_map(Literal::text);
    let number = any::<i64>().prop_map(Literal::Int);
    let time = any::<i32>().prop_map(|n| Literal::text(Timestamp(i64::from(n)).to_string()));
    let run = any::<[u8; 16]>().prop_map(|id| Literal::text(RunId(id).to_string()));
    prop_oneof![
        4 => (attribute, prop::collection::vec(literal(), 3)),
        1 => (builtin(BuiltinField::ExecutionStatus), prop::collection::vec(status, 3)),
        1 => (builtin(BuiltinField::WorkflowType), prop::collection::vec(text, 3)),
        1 => (builtin(BuiltinField::HistoryLength), prop::collection::vec(number, 3)),
        1 => (builtin(BuiltinField::CloseTime), prop::collection::vec(time, 3)),
        1 => (builtin(BuiltinField::ParentRunId), prop::collection::vec(run, 3)),
    ]
}

fn test() -> impl Strategy<Value = FilterCondition> {
    (field(), any::<bool>(), 0..10usize).prop_map(|((field, mut literals), negated, shape)| {
        let comparisons = [
            Comparison::Equal,
            Comparison::NotEqual,
            Comparison::Less,
            Comparison::LessOrEqual,
            Comparison::Greater,
            Comparison::GreaterOrEqual,
        ];
        let (high, low) = (literals[1].clone(), literals[0].clone());
        match shape {
            6 if field.allows(Comparison::Less) => FilterCondition::Between { field, negated, low, high },
            7 => FilterCondition::In { field, negated, literals: std::mem::take(&mut literals) },
            8 if field.has_prefix() => FilterCondition::StartsWith { field, negated, prefix: format!("{low}%") },
            9 => FilterCondition::IsNull { field, negated },
            n if n < 6 && field.allows(comparisons[n]) => {
                FilterCondition::Compare { field, comparison: comparisons[n], literal: low }
            }
            _ => FilterCondition::Compare { field, comparison: Comparison::Equal, literal: low },
        }
    })
}

fn condition() -> impl Strategy<Value = FilterCondition> {
    test().prop_recursive(4, 12, 3, |inner| {
        prop_oneof![
            inner.clone().prop_map(|c| FilterCondition::Not(Box::new(c))),
            prop::collection::vec(inner.clone(), 2..4).prop_map(FilterCondition::All),
            prop::collection::vec(inner, 2..4).prop_map(FilterCondition::Any),
        ]
    })
}

fn filter() -> impl Strategy<Value = Filter> {
    let direction = prop_oneof![Just(SortDirection::Ascending), Just(SortDirection::Descending)];
    let by = (field(), direction).prop_map(|((field, _), direction)| OrderBy { field, direction });
    (prop::option::of(condition()), prop::collection::vec(by, 1..3))
        .prop_map(|(condition, order)| Filter { condition, order })
}

/// Texts made of the language's own pieces reach deeper into the parser than arbitrary ones.
fn pieces() -> impl Strategy<Value = String> {
    let piece = prop::sample::select(vec![
        "WorkflowId",
        "A",
        "StartTime",
        "ExecutionStatus",
        "'",
        "\"",
        "`",
        "\\",
        "(",
        ")",
        ",",
        "=",
        "!=",
        "<",
        ">",
        "-",
        "5",
        "1.5e",
        "'x'",
        "'Running'",
        "AND",
        "OR",
        "NOT",
        "BETWEEN",
        "IN",
        "STARTS_WITH",
        "IS",
        "NULL",
        "ORDER",
        "BY",
        "ASC",
        "DESC",
        "true",
        "é",
        "\u{0}",
    ]);
    prop::collection::vec(piece, 0..20).prop_map(|pieces| pieces.join(" "))
}

proptest! {
    /// E23: what prints parses to the same filter.
    #[test]
    fn every_filter_prints_as_a_text_that_parses_to_it(filter in filter()) {
        let text = filter.to_string();
        prop_assume!(text.len() <= FILTER_LENGTH_MAX);
        let again = Filter::parse(&text).map_err(|why| TestCaseError::fail(why.to_string()))?;
        prop_assert_eq!(again, filter, "{}", text);
    }

    /// E23, G39: no text makes the parser panic, and an error's place is inside the text.
    #[test]
    fn no_text_breaks_the_parser(text in prop_oneof![".{0,80}", pieces(), "\\PC*"]) {
        match Filter::parse(&text) {
            Ok(filter) => {
                filter.matches(&run("a", 1));
                prop_assert_eq!(Filter::parse(&filter.to_string()).unwrap(), filter);
            }
            Err(why) => prop_assert!(why.at <= text.len() && why.to_string().lines().count() == 3, "{}", why),
        }
    }

    /// E23: the order of a list is a total order, whatever the attributes hold.
    #[test]
    fn lists_have_one_order(values in prop::collection::vec(prop_oneof![
        any::<f64>().prop_map(SearchValue::Float),
        any::<i64>().prop_map(SearchValue::Int),
        "[ab]{0,2}".prop_map(SearchValue::Keyword),
        Just(SearchValue::Unset),
    ], 3), down in any::<bool>()) {
        let filter = Filter::parse(if down { "ORDER BY X DESC" } else { "ORDER BY X" }).unwrap();
        let runs: Vec<RunInfo> = values.into_iter().enumerate().map(|(i, value)| {
            let mut run = run("a", i as i64);
            run.search_attributes.insert("X".into(), value);
            run
        }).collect();
        for a in &runs {
            for b in &runs {
                prop_assert_eq!(filter.compare(a, b), filter.compare(b, a).reverse());
                for c in &runs {
                    if filter.compare(a, b).is_le() && filter.compare(b, c).is_le() {
                        prop_assert!(filter.compare(a, c).is_le());
                    }
                }
            }
        }
    }
}

/// For an engine that is asked in one namespace at a time.
#[test]
fn namespaces_at_the_top_are_taken_out() {
    let split = |text: &str| {
        let (names, rest) = Filter::parse(text).unwrap().split_namespaces();
        (names.join(","), rest.to_string())
    };
    let of = |names: &str, rest: &str| (names.to_owned(), rest.to_owned());
    assert_eq!(split(""), of("", ""));
    assert_eq!(split("Namespace = 'a'"), of("a", ""));
    let printed = Filter::parse("WorkflowType = 't'").unwrap().to_string();
    assert_eq!(split("WorkflowType = 't' AND Namespace IN ('a', 'b')"), of("a,b", &printed));
    let kept = Filter::parse("Namespace = 'a' OR WorkflowType = 't'").unwrap().to_string();
    assert_eq!(split(&kept), of("", &kept));
    assert_eq!(split("ORDER BY WorkflowId ASC").1, "ORDER BY WorkflowId ASC");
}
