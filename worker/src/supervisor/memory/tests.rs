//! Memory: fetched or not, advised, applied, recorded.

use bosun_engine::Timestamp;
use serde_json::{Value, json};

use super::advisor::{Advice, Pattern, SessionMemory, similarity_bp};
use super::*;
use crate::supervisor::core::key::MemoryKey;
use crate::supervisor::model::PlanStrategy;
use crate::supervisor::outbox::{Answer, Ask, CallFailure, Outbox};
use crate::supervisor::spec::{Memory, Ratio};

fn suggest(query: &str, memory: &SessionMemory) -> Advice {
    super::advisor::suggest(query, memory, &Memory::default())
}

const QUERY: &str = "Analyze the AI agent market quickly";

fn outbox() -> Outbox {
    Outbox::new("run-1", Timestamp::ZERO)
}

fn calls(out: &mut Outbox) -> Vec<String> {
    let line = |ask: Ask| match ask {
        Ask::Call(call) => format!("{} {}", call.purpose.as_str(), call.key),
        other => panic!("{other:?}"),
    };
    out.take().0.into_iter().map(line).collect()
}

fn pattern(query: &str, strategy: &str, success_rate: f64) -> Value {
    json!({ "query_pattern": query, "strategy": strategy, "success_rate": success_rate })
}

fn memory(patterns: Vec<Value>, failures: Value) -> SessionMemory {
    serde_json::from_value(json!({ "decomposition_history": patterns, "failure_patterns": failures })).unwrap()
}

/// A part that has fetched this memory and got this advice.
fn advised(fetched: Value, advice: Answer) -> SessionMemoryPart {
    let (mut part, mut out) = (SessionMemoryPart::default(), outbox());
    part.start(Some("s-1"), QUERY, &mut out);
    part.answered(MemoryKey::Fetch, &Ok(fetched), &mut out);
    part.answered(MemoryKey::Advise, &advice, &mut out);
    assert!(part.is_ready());
    part
}

/// SHN-42: no session (none, or an empty one), no memory: not one call.
#[test]
fn memory_is_fetched_for_a_session_only() {
    for session in [None, Some("")] {
        let (mut part, mut out) = (SessionMemoryPart::default(), outbox());
        part.start(session, QUERY, &mut out);
        assert!(part.is_ready() && out.asks().is_empty());
        part.succeeded("parallel", &json!([]), &mut out);
        assert!(out.asks().is_empty());
        assert_eq!(part.strategy_over("parallel"), "parallel");
    }
    let (mut part, mut out) = (SessionMemoryPart::default(), outbox());
    part.start(Some("s-1"), QUERY, &mut out);
    assert!(!part.is_ready());
    assert_eq!(calls(&mut out), ["fetch_memory memory/fetch"]);
    part.start(Some("s-1"), QUERY, &mut out);
    assert!(out.asks().is_empty(), "it has started already");
}

/// SHN-42: a fetch that fails, or brings what is no memory, falls back to basic memory, and that to none.
#[test]
fn a_failed_fetch_falls_back_and_never_fails() {
    for broken in [Err(CallFailure::error("store is down")), Ok(json!({ "decomposition_history": 3 })), Ok(json!("x"))]
    {
        let (mut part, mut out) = (SessionMemoryPart::default(), outbox());
        part.start(Some("s-1"), QUERY, &mut out);
        out.take();
        part.answered(MemoryKey::Fetch, &broken, &mut out);
        assert_eq!(calls(&mut out), ["fetch_memory memory/fetch-basic"]);
        assert!(!part.is_ready());
        let mut lost = part.clone();
        lost.answered(MemoryKey::FetchBasic, &broken, &mut out);
        assert!(lost.is_ready() && lost.advice().is_none() && out.asks().is_empty());
        assert_eq!(lost.with_memory(Some(json!({ "a": 1 }))), json!({ "a": 1 }));
        part.answered(MemoryKey::FetchBasic, &Ok(json!({ "messages": ["hi"] })), &mut out);
        assert_eq!(calls(&mut out), ["advise memory/advise"]);
    }
    // Nothing remembered: nothing to advise on.
    let (mut part, mut out) = (SessionMemoryPart::default(), outbox());
    part.start(Some("s-1"), QUERY, &mut out);
    part.answered(MemoryKey::Fetch, &Ok(Value::Null), &mut out);
    assert!(part.is_ready());
}

/// SHN-43: 0.8 does not override, more does.
#[test]
fn only_a_confidence_above_the_limit_overrides() {
    for (confidence, strategy) in
        [(0.0, "parallel"), (0.5, "parallel"), (0.8, "parallel"), (0.8001, "hybrid"), (0.81, "hybrid"), (1.0, "hybrid")]
    {
        let part = advised(json!({}), Ok(json!({ "strategy": "hybrid", "confidence": confidence })));
        assert_eq!(part.strategy_over("parallel"), strategy, "{confidence}");
    }
    let unnamed = advised(json!({}), Ok(json!({ "confidence": 1.0 })));
    assert_eq!(unnamed.strategy_over("parallel"), "parallel");
    // The limits are settings.
    let rules = Memory { override_above: Ratio::from_bp(4_999), similar_above: Ratio::ZERO, ..Memory::default() };
    let (mut part, mut out) = (SessionMemoryPart::new(rules), outbox());
    part.start(Some("s-1"), QUERY, &mut out);
    let fetched = json!({ "decomposition_history": [pattern("Analyze the AI agent market", "hybrid", 0.71)] });
    part.answered(MemoryKey::Fetch, &Ok(fetched), &mut out);
    part.answered(MemoryKey::Advise, &Err(CallFailure::error("down")), &mut out);
    assert_eq!(part.strategy_over("parallel"), "hybrid");
}

/// SHN-43: confidence is success times similarity of a pattern above 0.8 and 0.7, else 0.5.
#[test]
fn confidence_is_success_times_similarity() {
    // Ten words; each change of one word takes a share of 2/11.
    let ten = "a b c d e f g h i j";
    let nine = "a b c d e f g h i";
    let eight = "a b c d e f g h";
    for (query, success, confidence, strategy) in [
        (ten, 1.0, 10_000, Some("hybrid")),
        (ten, 0.9, 9_000, Some("hybrid")),
        (nine, 0.9, 8_100, Some("hybrid")),
        (ten, 0.71, 7_100, Some("hybrid")),
        (ten, 0.7, 5_000, None),
        (eight, 1.0, 5_000, None),
        ("something else", 1.0, 5_000, None),
    ] {
        let advice = suggest(query, &memory(vec![pattern(ten, "hybrid", success)], json!([])));
        assert_eq!(
            (advice.confidence_bp, advice.strategy.map(PlanStrategy::as_str)),
            (confidence, strategy),
            "{query} {success}"
        );
    }
    // The best one counts, the earlier of two equals.
    let many = [("hybrid", 0.8), ("react", 0.95), ("debate", 0.95)];
    let many = memory(many.into_iter().map(|(strategy, success)| pattern(ten, strategy, success)).collect(), json!([]));
    assert_eq!(suggest(ten, &many).strategy, Some(PlanStrategy::React));
    // A word that is no strategy suggests nothing, however well it went.
    let unknown = memory(vec![pattern(ten, "guess", 1.0), pattern(ten, "react", 0.9)], json!([]));
    assert_eq!(
        (suggest(ten, &unknown).strategy, suggest(ten, &unknown).confidence_bp),
        (Some(PlanStrategy::React), 9_000)
    );
    assert_eq!(suggest(ten, &SessionMemory::default()), Advice::none(&Memory::default()));
}

/// Similarity is that of the sets of words: case, order, repetition and punctuation do not matter.
#[test]
fn similarity_is_the_share_of_common_words() {
    for (a, b, similarity) in [
        ("Analyze the market!", "the MARKET, analyze analyze", 10_000),
        ("Analyze AI Agent market", "Analyze RPA market", 4_000),
        ("a b c d e f g h", "a b c d e f g h i j", 8_000),
        ("a", "b", 0),
        ("", "", 0),
        ("?", "a", 0),
        ("Größe prüfen", "größe PRÜFEN", 10_000),
    ] {
        assert_eq!(similarity_bp(a, b), similarity, "{a} / {b}");
        assert_eq!(similarity_bp(b, a), similarity);
    }
}

/// SHN-44: the words of haste force sequential work if the session knows of rate limits, whatever the advisor says.
#[test]
fn haste_under_a_rate_limit_forces_sequential() {
    let limited = || json!([{ "pattern": "rate_limit", "mitigation": "Use sequential execution" }]);
    for (query, forced) in [
        ("do it quickly", true),
        ("FAST!", true),
        ("urgent: report", true),
        ("asap", true),
        ("immediately please", true),
        ("breakfast report", false),
        ("take your time", false),
    ] {
        let advice = suggest(query, &memory(vec![pattern(query, "parallel", 1.0)], limited()));
        assert_eq!(advice.force_sequential, forced, "{query}");
        assert_eq!(advice.strategy_over("hybrid", 8_000), if forced { "sequential" } else { "parallel" });
        let warnings: Vec<&str> = advice.warnings.iter().map(String::as_str).collect();
        assert_eq!(warnings, if forced { vec!["Use sequential execution"] } else { vec![] });
        assert!(!suggest(query, &SessionMemory::default()).force_sequential, "no failure is remembered");
    }
    // Other failures warn only; their indicators may be several words.
    let other = json!([{ "pattern": "context_overflow", "indicators": ["whole internet"], "mitigation": "Narrow it" },
                       { "pattern": "timeout", "indicators": ["internet"] }]);
    let advice = suggest("read the Whole Internet", &memory(vec![], other.clone()));
    assert_eq!((advice.warnings, advice.force_sequential), (vec!["Narrow it".into(), "timeout".into()], false));
    assert!(suggest("whole new internets", &memory(vec![], other)).warnings.is_empty());
    // The advisor cannot talk it away.
    let part = advised(
        json!({ "failure_patterns": limited() }),
        Ok(json!({ "strategy": "parallel", "confidence": 0.99, "warnings": ["be careful"] })),
    );
    assert_eq!(part.strategy_over("parallel"), "sequential");
    assert_eq!(part.advice().unwrap().warnings, ["be careful", "Use sequential execution"]);
}

/// SHN-45: the advisor is a recorded call; one that fails is replaced by the same rule on the recorded memory; a
/// context that is not there is made for the warnings.
#[test]
fn the_advisor_is_a_call_and_needs_no_context() {
    let (mut part, mut out) = (SessionMemoryPart::default(), outbox());
    let fetched = json!({ "decomposition_history": [pattern(QUERY, "hybrid", 0.95)],
                          "failure_patterns": [{ "pattern": "x", "indicators": ["market"], "mitigation": "look twice" }] });
    part.start(Some("s-1"), QUERY, &mut out);
    part.answered(MemoryKey::Fetch, &Ok(fetched.clone()), &mut out);
    let Some(Ask::Call(call)) = out.asks().last() else { panic!("{:?}", out.asks()) };
    assert_eq!(call.context, json!({ "query": QUERY, "memory": fetched }));
    for broken in [Err(CallFailure::error("down")), Ok(json!({ "confidence": 7 })), Ok(json!("hybrid"))] {
        let mut part = part.clone();
        part.answered(MemoryKey::Advise, &broken, &mut out);
        assert_eq!(part.strategy_over("parallel"), "hybrid");
        for nil in [None, Some(Value::Null), Some(json!("text"))] {
            let advice = json!({ "strategy": "hybrid", "confidence": 0.95 });
            let told = json!({ "memory": fetched, "memory_advice": advice, "memory_warnings": ["look twice"] });
            assert_eq!(part.with_memory(nil), told);
        }
        assert_eq!(part.with_memory(Some(json!({ "role": "x" })))["role"], "x");
    }
}

/// SHN-46: success is recorded once, and what becomes of the record matters to nobody.
#[test]
fn success_is_recorded_and_forgotten() {
    for answer in [Ok(json!("stored")), Err(CallFailure::error("store is down"))] {
        let (mut part, mut out) = (advised(json!({}), Ok(json!({ "confidence": 0.5 }))), outbox());
        part.succeeded("parallel", &json!(["a", "b"]), &mut out);
        part.succeeded("parallel", &json!(["a", "b"]), &mut out);
        let [Ask::Call(call)] = out.asks() else { panic!("{:?}", out.asks()) };
        assert_eq!(call.key, "memory/record");
        assert_eq!(
            call.context,
            json!({ "session_id": "s-1", "query_pattern": QUERY, "strategy": "parallel", "subtasks": ["a", "b"],
                    "success_rate": 1.0 })
        );
        // What is recorded is what the next run remembers.
        let learned: Pattern = serde_json::from_value(call.context.clone()).unwrap();
        assert_eq!((learned.success_bp, learned.strategy.as_str()), (10_000, "parallel"));
        let before = part.clone();
        part.answered(MemoryKey::Record, &answer, &mut out);
        assert_eq!(part, before);
    }
}

/// Answers that nobody waits for change nothing.
#[test]
fn strange_and_late_answers_change_nothing() {
    let (mut part, mut out) = (advised(json!({}), Ok(json!({ "confidence": 0.5 }))), outbox());
    let before = part.clone();
    for late in [MemoryKey::Fetch, MemoryKey::FetchBasic, MemoryKey::Advise] {
        part.answered(late, &Ok(json!({ "strategy": "x", "confidence": 1.0 })), &mut out);
    }
    assert_eq!((part.clone(), out.asks().len()), (before, 0));
    let text = serde_json::to_string(&part).unwrap();
    assert_eq!(serde_json::from_str::<SessionMemoryPart>(&text).unwrap(), part);
}
