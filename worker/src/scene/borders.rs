//! Every scene of a supervisor or a plan ends as it says if the run goes on in a new one as often as it can.
//!
//! Invariant: nothing of a scene is changed but the limit of the history. What it ended with, what it reports and who was called
//! is judged as it stands. When that was is not: what is under way ends before a border, and a new run begins a microsecond later. A
//! sample of the files is played; `BOSUN_BORDERS=all` plays every one, and `BOSUN_BORDERS=TEXT` those whose name has the text.

use std::path::{Path, PathBuf};

use bosun_engine::Payload;

use super::ways::{Choice, play};
use super::{SceneFile, file};
use crate::supervisor::run::{SUPERVISOR, SupervisorInput};
use crate::supervisor::{PLAN_RUN, PlanRunInput};

/// Of so many files one is played, by its name: a new scene moves no other into the sample.
const SAMPLE: u8 = 8;
/// Before a border what is under way ends first. So nobody loses in a race, what people do at a moment meets a later or an
/// earlier step, and what begins beside a long call begins after it: these scenes tell of such moments.
const TIMED: [&str; 8] = [
    "a-recruit-during-synthesis-is-waited-for.yaml",
    "a-tool-that-failed-three-times-is-not-called-again.yaml",
    "after-failures-in-a-row-nothing-starts-before-a-person-says-so.yaml",
    "soft-branches-cancel-the-losers.yaml",
    "the-eleventh-member-is-refused.yaml",
    "the-limit-of-a-turn-is-one-of-the-turn-and-that-of-all-calls-holds.yaml",
    "the-same-call-four-times-is-a-repetition.yaml",
    "what-was-cut-before-is-no-part-of-what-is-asked-now.yaml",
];
/// Hundreds of turns, with a border after each: minutes, and all of them alike. `BOSUN_BORDERS` plays them.
const LONG: [&str; 5] = [
    "a-loop-of-steps-turns-a-thousand-times-and-no-more.yaml",
    "fifty-diamonds-one-after-the-other.yaml",
    "the-thousandth-turn-still-counts.yaml",
    "two-hundred-and-fifty-six-tool-calls-are-the-most.yaml",
    "two-hundred-and-fifty-six-tool-calls-under-the-structured-preset.yaml",
];
/// What does not depend on when things happen.
const JUDGED: [&str; 12] = [
    "expect.outcome",
    "expect.success",
    "expect.error",
    "expect.code",
    "expect.result",
    "expect.text",
    "expect.report",
    "expect.calls",
    "expect.never",
    "world",
    "the run",
    "all scenes",
];

fn files_in(folder: &Path, files: &mut Vec<PathBuf>) {
    let mut entries: Vec<PathBuf> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    entries.sort();
    for path in entries {
        if path.is_dir() {
            files_in(&path, files);
        } else if path.extension().is_some_and(|end| end == "yaml") {
            files.push(path);
        }
    }
}

/// Lets a history have no more events than these, whether it could have more before or not. Whether it is one of ours.
fn limit(scene: &mut file::Scene, most: u64) -> bool {
    match scene.workflow_type.as_str() {
        SUPERVISOR => {
            let Ok(mut input) = scene.input.decode::<SupervisorInput>() else { return false };
            let Ok(mut spec) = input.clone().into_spec() else { return false };
            spec.limits.history_events = Some(most);
            (input.resolved, input.spec) = (Some(spec.resolve_below().unwrap()), None);
            scene.input = Payload::encode(&input).unwrap();
        }
        PLAN_RUN => {
            let Ok(mut input) = scene.input.decode::<PlanRunInput>() else { return false };
            input.history_events = Some(most);
            scene.input = Payload::encode(&input).unwrap();
        }
        _ => return false,
    }
    true
}

fn is_sampled(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default();
    blake3::hash(name.as_encoded_bytes()).as_bytes()[0].is_multiple_of(SAMPLE)
}

/// The file's scenes as they are, with a border at every quiet moment.
#[test]
fn scenes_end_as_they_say_whenever_the_run_goes_on_in_a_new_one() {
    let chosen = std::env::var("BOSUN_BORDERS").unwrap_or_default();
    let mut files = Vec::new();
    files_in(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/scenes"), &mut files);
    let workflows = crate::supervisor::register(crate::agent::workflow::register(Default::default()));
    let choice = Choice { ways: vec!["straight".to_owned(), "replay".to_owned()], ..Choice::default() };
    let (mut played, mut failed) = (0, Vec::new());
    for path in &files {
        let is_chosen = match chosen.as_str() {
            "all" => true,
            "" => is_sampled(path) && !LONG.iter().chain(&TIMED).any(|left_out| path.ends_with(left_out)),
            text => path.to_string_lossy().contains(text),
        };
        let scene = is_chosen.then(|| SceneFile::load(path).ok()).flatten();
        let Some(mut scene) = scene.map(|file| file.scene) else { continue };
        if scene.refused.is_some() || !limit(&mut scene, 1) {
            continue;
        }
        played += 1;
        let judged = |at: &str| JUDGED.iter().any(|path| at.starts_with(path));
        for failure in play(&scene, &workflows, &choice).failures.into_iter().filter(|failure| judged(&failure.at)) {
            let last = failure.last.join("\n      ");
            failed.push(format!(
                "{} ({}): {}\n    expected {}\n    seen     {}\n      {last}",
                path.display(),
                failure.way,
                failure.at,
                failure.expected,
                failure.seen
            ));
        }
    }
    assert!(played >= 20 || !chosen.is_empty(), "{played} scenes");
    assert!(failed.is_empty(), "{} of {played} scenes:\n{}", failed.len(), failed.join("\n"));
}
