//! patched and deprecate_patch: old histories with new code and the other way round (E21).

use super::*;

#[derive(Clone, Copy, PartialEq)]
enum Code {
    Old,
    Patched,
    Deprecated,
    New,
}

/// Two steps; the change turns `old` into `new`, and asks before each of them.
fn registry(code: Code) -> WorkflowRegistry {
    WorkflowRegistry::new().workflow("flow", move |ctx: WfContext, ()| async move {
        for _ in 0..2 {
            let new = match code {
                Code::Old => false,
                Code::Patched => ctx.patched("change"),
                Code::Deprecated => {
                    ctx.deprecate_patch("change");
                    true
                }
                Code::New => true,
            };
            ctx.activity::<()>(if new { "new" } else { "old" }, &(), options()).await?;
        }
        Ok(())
    })
}

fn history(code: Code) -> World {
    let mut world = World::start(&registry(code), "flow", ());
    world.complete(1, ());
    world.complete(2, ());
    world.assert_completed(());
    world.check_replay();
    world
}

/// E21: an old history takes the old branch for the whole run, a new one the new branch, noted once.
#[test]
fn an_old_history_takes_the_old_branch() {
    history(Code::Old).replay_with(&registry(Code::Patched)).map(drop).unwrap();
    let new = history(Code::Patched);
    let notes = new.events().iter().filter(|event| matches!(event, EventKind::MarkerRecorded(_))).count();
    assert_eq!(notes, 1);
}

/// E21: a run that was on the old branch when the code changed stays there, also in turns that are not in history yet.
#[test]
fn the_first_answer_holds_for_the_whole_run() {
    let mut world = World::start(&registry(Code::Old), "flow", ());
    world.registry = registry(Code::Patched);
    world.driver = replay(&world.registry, &world.turns).unwrap().driver;
    assert_eq!(kinds(&world.complete(1, ())), ["old#2"]);
    world.complete(2, ());
    world.check_replay();
}

/// E21: the way out: patched histories fit deprecating code, and deprecated ones fit code without any patch.
#[test]
fn a_patch_can_be_deprecated_and_then_dropped() {
    history(Code::Patched).replay_with(&registry(Code::Deprecated)).map(drop).unwrap();
    history(Code::Deprecated).replay_with(&registry(Code::New)).map(drop).unwrap();
    history(Code::Deprecated).replay_with(&registry(Code::Patched)).map(drop).unwrap();
}

/// E21: dropping a patch that was never deprecated is a mismatch.
#[test]
fn a_patch_dropped_without_deprecation_is_a_mismatch() {
    let found = history(Code::Patched).mismatch_with(&registry(Code::New));
    assert_eq!(found.expected.unwrap().to_string(), "Patch change");
    assert_eq!(found.event_id, EventId(2));
}

/// E21: the new branch without a patch is a mismatch for old histories.
#[test]
fn new_code_without_a_patch_does_not_fit_an_old_history() {
    let found = history(Code::Old).mismatch_with(&registry(Code::New));
    assert!(found.hint.to_string().contains("was it renamed"), "{}", found.hint);
}
