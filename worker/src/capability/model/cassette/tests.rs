//! Recording, playing and missing.

use std::sync::atomic::{AtomicU32, Ordering};

use super::*;
use crate::capability::model::{ErrorClass, FunctionModel, Message, NullSink, mock};

struct Setup {
    dir: tempfile::TempDir,
    asked: Arc<AtomicU32>,
    inner: Arc<dyn Model>,
}

/// A model that counts.
fn setup() -> Setup {
    let asked = Arc::new(AtomicU32::new(0));
    let count = asked.clone();
    let inner = FunctionModel::new(move |request: &ChatRequest| {
        let n = count.fetch_add(1, Ordering::Relaxed) + 1;
        match request.model.as_str() {
            "broken" => Err(ModelError::retry("x", "no")),
            _ => Ok(mock::says(&format!("answer {n} with sk-0123456789abcdef0123"))),
        }
    });
    Setup { dir: tempfile::tempdir().unwrap(), asked, inner: Arc::new(inner) }
}

impl Setup {
    fn cassette(&self, mode: CassetteMode) -> Cassette {
        Cassette::new(mode, self.dir.path().join("tapes"), "p", self.inner.clone())
    }
    fn asked(&self) -> u32 {
        self.asked.load(Ordering::Relaxed)
    }
}

fn user(content: &str) -> ChatRequest {
    let messages = vec![Message::User { content: content.into() }];
    ChatRequest { model: "m".into(), messages, ..ChatRequest::default() }
}

async fn ask(cassette: &Cassette, request: &ChatRequest, call: &str) -> Result<String, ModelError> {
    let call = ModelCallContext::alone(call);
    cassette.complete(request, &call, &mut NullSink).await.map(|response| response.said.content)
}

#[tokio::test]
async fn what_was_recorded_is_played_in_the_order_in_which_it_was_asked() {
    let setup = setup();
    let recorder = setup.cassette(CassetteMode::Record);
    for call in ["a", "b"] {
        ask(&recorder, &user("q"), call).await.unwrap();
    }
    let player = setup.cassette(CassetteMode::Replay);
    assert_eq!(ask(&player, &user("q"), "x").await.unwrap(), "answer 1 with [redacted]");
    // Another attempt of the same call.
    assert_eq!(ask(&player, &user("q"), "x").await.unwrap(), "answer 1 with [redacted]");
    assert_eq!(ask(&player, &user("q"), "y").await.unwrap(), "answer 2 with [redacted]");
    assert_eq!(setup.asked(), 2, "playing asks nobody");
    let missing = ask(&player, &user("q"), "z").await.unwrap_err();
    assert!(missing.message.contains("but not that it was asked 3 times"), "{missing}");
}

#[tokio::test]
async fn a_miss_shows_the_nearest_recording() {
    let setup = setup();
    let player = setup.cassette(CassetteMode::Replay);
    let nothing = ask(&player, &user("q"), "a").await.unwrap_err();
    assert!(nothing.message.contains("There is none of p there"), "{nothing}");
    let recorder = setup.cassette(CassetteMode::Record);
    for text in ["something else entirely", "what is the time?"] {
        let mut request = user(text);
        request.temperature = text.starts_with("what").then_some(0.5);
        ask(&recorder, &request, text).await.unwrap();
    }
    let mut request = user("what is the date?");
    request.temperature = Some(0.5);
    let error = ask(&player, &request, "b").await.unwrap_err();
    assert_eq!((error.class, error.code.as_deref()), (ErrorClass::Fatal, Some(code::CASSETTE_MISS)));
    let (_, difference) = error.message.split_once("(- recorded, + asked):\n").unwrap();
    let wanted = "      {\n-       \"content\": \"what is the time?\",\n+       \"content\": \"what is the date?\",";
    assert_eq!(difference, wanted);
    assert_eq!(setup.asked(), 2);
}

#[tokio::test]
async fn auto_asks_for_what_is_not_there() {
    let setup = setup();
    for _ in 0..2 {
        let auto = setup.cassette(CassetteMode::Auto);
        ask(&auto, &user("q"), "a").await.unwrap();
    }
    assert_eq!(setup.asked(), 1);
    ask(&setup.cassette(CassetteMode::Off), &user("q"), "a").await.unwrap();
    assert_eq!(setup.asked(), 2);
}

#[tokio::test]
async fn errors_are_not_recorded() {
    let setup = setup();
    let recorder = setup.cassette(CassetteMode::Record);
    let request = ChatRequest { model: "broken".into(), ..user("q") };
    assert!(ask(&recorder, &request, "a").await.is_err());
    assert!(!setup.dir.path().join("tapes").exists());
}

/// A refused key, and the same asked again by another call once it was there: who plays it hears the answer at once.
#[tokio::test]
async fn a_call_that_was_not_answered_does_not_count() {
    let setup = setup();
    let refused = AtomicU32::new(0);
    let inner = FunctionModel::new(move |_: &ChatRequest| match refused.fetch_add(1, Ordering::Relaxed) {
        0 => Err(ModelError::needs_human("x", "no such key")),
        n => Ok(mock::says(&n.to_string())),
    });
    let recorder = Cassette::new(CassetteMode::Record, setup.dir.path().join("tapes"), "p", Arc::new(inner));
    assert!(ask(&recorder, &user("q"), "a").await.is_err());
    for (call, wanted) in [("b", "1"), ("c", "2")] {
        assert_eq!(ask(&recorder, &user("q"), call).await.unwrap(), wanted);
    }
    let player = setup.cassette(CassetteMode::Replay);
    for (call, wanted) in [("x", "1"), ("y", "2")] {
        assert_eq!(ask(&player, &user("q"), call).await.unwrap(), wanted);
    }
}

#[tokio::test]
async fn a_file_holds_no_key_and_a_broken_one_is_no_miss() {
    let setup = setup();
    let request = user("my key is sk-0123456789abcdef0123");
    ask(&setup.cassette(CassetteMode::Record), &request, "a").await.unwrap();
    let entry = std::fs::read_dir(setup.dir.path().join("tapes")).unwrap().next().unwrap().unwrap();
    let text = std::fs::read_to_string(entry.path()).unwrap();
    assert!(!text.contains("0123456789") && text.contains("my key is [redacted]"), "{text}");
    assert!(ask(&setup.cassette(CassetteMode::Replay), &request, "b").await.is_ok());
    std::fs::write(entry.path(), text.replace("\"version\": 1", "\"version\": 9")).unwrap();
    let error = ask(&setup.cassette(CassetteMode::Auto), &request, "c").await.unwrap_err();
    assert_eq!(error.code.as_deref(), Some(code::CASSETTE));
}

#[tokio::test]
async fn a_tape_is_played_and_never_written() {
    let setup = setup();
    let path = setup.dir.path().join("tape.json");
    let mut tape = Tape::default();
    for text in ["one", "two", "my key is sk-0123456789abcdef0123"] {
        tape.record("p", &user("q"), mock::says(text));
    }
    tape.record("p", &user("what is the time?"), mock::says("noon"));
    let text = tape.to_text();
    assert!(!text.contains("0123456789") && tape.len() == 4, "{text}");
    assert_eq!(Tape::parse(&text).unwrap().to_text(), text);
    std::fs::write(&path, &text).unwrap();
    let cassette = |mode| Cassette::new(mode, path.clone(), "p", setup.inner.clone());
    for mode in [CassetteMode::Replay, CassetteMode::Auto] {
        let player = cassette(mode);
        assert_eq!(ask(&player, &user("q"), "x").await.unwrap(), "one");
        assert_eq!(ask(&player, &user("q"), "y").await.unwrap(), "two");
        assert_eq!(ask(&player, &user("q"), "x").await.unwrap(), "one");
        assert_eq!(ask(&player, &user("q"), "z").await.unwrap(), "my key is [redacted]");
        let miss = ask(&player, &user("what is the date?"), "a").await.unwrap_err();
        assert_eq!(miss.code.as_deref(), Some(code::CASSETTE_MISS));
        let wanted = "-       \"content\": \"what is the time?\",\n+       \"content\": \"what is the date?\",";
        assert!(miss.message.contains(wanted), "{miss}");
    }
    let refused = ask(&cassette(CassetteMode::Record), &user("new"), "a").await.unwrap_err();
    assert!(refused.message.contains("can only be played"), "{refused}");
    std::fs::write(&path, text.replace("\"version\": 1", "\"version\": 9")).unwrap();
    let broken = ask(&cassette(CassetteMode::Replay), &user("q"), "x").await.unwrap_err();
    assert_eq!((broken.code.as_deref(), setup.asked()), (Some(code::CASSETTE), 0));
}

/// A recording costs money: it is there after a power cut.
#[test]
fn a_recording_is_synced_before_it_counts_as_recorded() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("tapes/a-1.json");
    crate::capability::durable::tests::SYNCED.take();
    write_file(&path, "{}").unwrap();
    assert_eq!(crate::capability::durable::tests::SYNCED.take(), ["file", "directory"]);
    assert_eq!(std::fs::read_dir(path.parent().unwrap()).unwrap().count(), 1, "nothing is left beside");
}

#[test]
fn modes_have_names() {
    for (text, mode) in [
        ("off", CassetteMode::Off),
        ("record", CassetteMode::Record),
        ("replay", CassetteMode::Replay),
        ("auto", CassetteMode::Auto),
    ] {
        assert_eq!(text.parse(), Ok(mode));
    }
    assert!("Rec".parse::<CassetteMode>().is_err());
}

/// The runs that are under way.
struct Runs(Vec<&'static str>);

impl Lives for Runs {
    fn is_under_way(&self, run: CallingRun) -> std::pin::Pin<Box<dyn Future<Output = bool> + Send + '_>> {
        let is = self.0.contains(&run.run_id.as_str());
        Box::pin(async move { is })
    }
}

/// A worker's cassettes in one life; the runs named are under way when it begins.
fn life(setup: &Setup, mode: CassetteMode, under_way: &[&'static str]) -> Cassette {
    let session = CassetteSession::new(setup.dir.path(), Arc::new(Runs(under_way.to_vec())));
    setup.cassette(mode).in_session(Some(session))
}

async fn ask_in(cassette: &Cassette, text: &str, call: &str, run: &str) -> Result<String, ModelError> {
    let mut asking = ModelCallContext::alone(call);
    asking.tag.run_id = run.to_owned();
    cassette.complete(&user(text), &asking, &mut NullSink).await.map(|response| response.said.content)
}

/// A worker that was killed in the middle of a call: the one made again has the place of the one that was cut, what was
/// answered before keeps its own, and what is recorded plays.
#[tokio::test]
async fn what_is_recorded_over_a_crash_plays() {
    let setup = setup();
    let first = life(&setup, CassetteMode::Record, &[]);
    assert_eq!(ask_in(&first, "q", "a", "one").await.unwrap(), "answer 1 with sk-0123456789abcdef0123");
    let never = FunctionModel::new(|_: &ChatRequest| Err(ModelError::retry("x", "cut")));
    let cut = Cassette { inner: Arc::new(never), ..first };
    assert!(ask_in(&cut, "q", "b", "two").await.is_err());
    assert!(ask_in(&cut, "q", "never again", "three").await.is_err());
    drop(cut);
    let second = life(&setup, CassetteMode::Record, &["two"]);
    assert!(ask_in(&second, "q", "c", "four").await.unwrap().starts_with("answer 2"), "it has a place that is free");
    assert!(ask_in(&second, "q", "b", "two").await.unwrap().starts_with("answer 3"));
    assert!(ask_in(&second, "q", "a", "one").await.unwrap().starts_with("answer 4"), "its commit was lost");
    let player = setup.cassette(CassetteMode::Replay);
    let mut played = Vec::new();
    for call in ["x", "y", "z"] {
        played.push(ask(&player, &user("q"), call).await.unwrap());
    }
    for wanted in ["answer 4 with", "answer 2 with", "answer 3 with"] {
        assert!(played.iter().any(|text| text.starts_with(wanted)), "{wanted}: {played:?}");
    }
    // Who plays may be killed as well.
    let playing = life(&setup, CassetteMode::Replay, &["p"]);
    let before = ask_in(&playing, "other", "p1", "p").await;
    assert_eq!(before.unwrap_err().code.as_deref(), Some(code::CASSETTE_MISS));
    let one = ask_in(&life(&setup, CassetteMode::Replay, &["p"]), "q", "p2", "p").await.unwrap();
    let two = ask_in(&life(&setup, CassetteMode::Replay, &["p"]), "q", "p3", "p").await.unwrap();
    let again = ask_in(&life(&setup, CassetteMode::Replay, &["p"]), "q", "p2", "p").await.unwrap();
    assert!(one != two && one == again, "{one} {two} {again}");
}

/// When all runs have ended, recording begins anew; so it does in another place.
#[tokio::test]
async fn a_session_ends_with_its_runs() {
    let setup = setup();
    ask_in(&life(&setup, CassetteMode::Record, &[]), "q", "a", "one").await.unwrap();
    let anew = life(&setup, CassetteMode::Record, &["another"]);
    assert!(ask_in(&anew, "q", "b", "two").await.unwrap().starts_with("answer 2"));
    assert_eq!(std::fs::read_dir(setup.dir.path().join("tapes")).unwrap().count(), 1, "it was written over");
    let mut elsewhere = life(&setup, CassetteMode::Record, &["two"]);
    elsewhere.directory = setup.dir.path().join("others");
    ask_in(&elsewhere, "q", "c", "two").await.unwrap();
    let names = std::fs::read_dir(setup.dir.path().join("others")).unwrap();
    let names: Vec<_> = names.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    assert!(names.len() == 1 && names[0].ends_with("-1.json"), "{names:?}");
    let private = std::os::unix::fs::PermissionsExt::mode(
        &setup.dir.path().join(places::SESSION_FILE).metadata().unwrap().permissions(),
    );
    assert_eq!(private & 0o777, 0o600);
}
