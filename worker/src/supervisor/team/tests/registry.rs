//! The registry of instances: depth, lists, ends, cleanups, and the same again from the notes.

use std::time::Duration;

use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::supervisor::outbox::CallFailure;
use crate::supervisor::team::registry::*;

fn registry() -> Registry {
    Registry::new("run-1", 0, MAX_DEPTH)
}

/// A line of `count` agents, each below the one before.
fn chain(registry: &mut Registry, count: usize) -> Vec<String> {
    let (mut ids, mut out): (Vec<String>, _) = (Vec::new(), outbox(0));
    for n in 0..count {
        let parent = ids.last().map(String::as_str);
        let id = registry.register(&format!("a{n}"), parent, &mut out).unwrap();
        ids.push(id);
    }
    ids
}

fn names(instances: &[AgentInstance]) -> Vec<&str> {
    instances.iter().map(|instance| instance.name.as_str()).collect()
}

/// SUP-05: the root has depth 0, a child one more than its parent, siblings the same; nobody's depth is 0.
#[test]
fn depth_counts_from_the_root() {
    let (mut registry, mut out) = (registry(), outbox(0));
    let root = registry.register("assistant", None, &mut out).unwrap();
    let planner = registry.register("planner", Some(&root), &mut out).unwrap();
    let coder = registry.register("coder", Some(&root), &mut out).unwrap();
    let below = registry.register("coder", Some(&planner), &mut out).unwrap();
    let depths = [&root, &planner, &coder, &below].map(|id| registry.get_depth(id));
    assert_eq!((depths, registry.get_depth("00000000")), ([0, 1, 1, 2], 0));
}

/// SUP-07: registering below an agent at depth 5 is refused in these words and changes nothing.
#[test]
fn registering_beyond_the_limit_is_refused() {
    let mut registry = registry();
    let ids = chain(&mut registry, 6);
    let (before, mut out) = (registry.clone(), outbox(0));
    let why = registry.register("a6", Some(&ids[5]), &mut out).unwrap_err();
    assert_eq!(why.to_string(), "Maximum delegation depth (5) exceeded. Cannot create more sub-agents.");
    assert_eq!((registry, noted(&out)), (before, vec![]));
}

/// SUP-08, SUP-09: depth counts over processes, and one rule is asked before a child is started: the depth the process
/// has, plus the depth in it, plus one.
#[test]
fn depth_counts_over_processes() {
    assert_eq!(DEPTH_VARIABLE, "SUPYAGENT_DELEGATION_DEPTH");
    for (base, within, child) in [(0, 0, Some(1)), (3, 0, Some(4)), (3, 1, Some(5)), (3, 2, None), (5, 0, None)] {
        let mut registry = Registry::new("run-1", base, MAX_DEPTH);
        let ids = chain(&mut registry, within + 1);
        let said = registry.may_register(Some(&ids[within]));
        assert_eq!(said.ok().map(|depth| base + depth), child, "{base} + {within}");
        if child.is_none() {
            let refused = registry.register("x", Some(&ids[within]), &mut outbox(0));
            assert_eq!(refused, Err(DepthExceeded::Registration { max: 5 }));
        }
    }
    assert_eq!(check_process_depth(5, MAX_DEPTH), Ok(5));
    assert_eq!(
        check_process_depth(6, MAX_DEPTH).unwrap_err().tool_result().to_string(),
        r#"{"ok":false,"error":"Maximum delegation depth (5) exceeded (depth=6). Cannot delegate further."}"#
    );
}

/// SUP-10: agents that delegate to each other end at the limit.
#[test]
fn a_loop_of_two_ends_at_the_limit() {
    let (mut registry, mut out) = (registry(), outbox(0));
    let mut current = registry.register("A", None, &mut out).unwrap();
    let mut delegations = 0;
    while registry.may_register(Some(&current)).is_ok() {
        let name = if delegations % 2 == 0 { "B" } else { "A" };
        current = registry.register(name, Some(&current), &mut out).unwrap();
        delegations += 1;
    }
    assert_eq!(delegations, 5);
}

/// SUP-11: eight hexadecimal digits, the same for the same run and number, different for others.
#[test]
fn an_instance_has_a_derived_id_of_eight_digits() {
    let (mut a, mut b, mut other) = (registry(), registry(), Registry::new("run-2", 0, MAX_DEPTH));
    let (of_a, of_b, of_other) = (chain(&mut a, 3), chain(&mut b, 3), chain(&mut other, 3));
    assert_eq!((&of_a, &a), (&of_b, &b));
    assert!(of_a.iter().all(|id| !of_other.contains(id)));
    for id in &of_a {
        assert_eq!(id.len(), 8);
        assert!(id.chars().all(|c| c.is_ascii_hexdigit()));
    }
    assert_eq!(
        serde_json::to_value(a.get_instance(&of_a[1])).unwrap(),
        json!({ "name": "a1", "instance_id": of_a[1], "created_at": at(0), "parent_id": of_a[0], "status": "active",
                "depth": 1 })
    );
}

/// SUP-12: the operations, one after the other; lists are in the order of registration, the first end counts.
#[test]
fn the_registry_registers_lists_and_closes() {
    let (mut registry, mut out) = (registry(), outbox(0));
    let root = registry.register("root", None, &mut out).unwrap();
    let b = registry.register("b", Some(&root), &mut out).unwrap();
    let a = registry.register("a", Some(&root), &mut out).unwrap();
    assert_eq!(names(&registry.list_all()), ["root", "b", "a"]);
    assert_eq!(names(&registry.list_children(&root)), ["b", "a"]);
    assert!(registry.list_children(&a).is_empty() && registry.list_children("?").is_empty());
    assert!(registry.mark_completed(&b, &mut out));
    assert!(!registry.mark_failed(&b, &mut out), "it has ended already");
    assert!(!registry.mark_failed("?", &mut out));
    assert!(registry.mark_failed(&a, &mut out));
    assert_eq!(names(&registry.list_active()), ["root"]);
    assert_eq!(registry.get_instance(&b).unwrap().status, InstanceStatus::Completed);
    assert_eq!(registry.get_instance(&a).unwrap().status, InstanceStatus::Failed);
    assert!(registry.cleanup(&root, &mut out) && !registry.cleanup(&root, &mut out));
    assert_eq!(names(&registry.list_all()), ["b", "a"]);
}

/// SUP-13, SUP-15: cleaning removes what has ended and counts it; the stats count by status.
#[test]
fn cleaning_removes_what_has_ended() {
    let (mut registry, mut out) = (registry(), outbox(0));
    let ids: Vec<String> = (0..5).map(|n| registry.register(&format!("a{n}"), None, &mut out).unwrap()).collect();
    registry.mark_completed(&ids[0], &mut out);
    registry.mark_completed(&ids[3], &mut out);
    registry.mark_failed(&ids[1], &mut out);
    assert_eq!(
        serde_json::to_value(registry.stats()).unwrap(),
        json!({ "total": 5, "active": 2, "completed": 2, "failed": 1 })
    );
    assert_eq!(registry.cleanup_completed(&mut out), 3);
    assert_eq!(names(&registry.list_all()), ["a2", "a4"]);
    assert_eq!(registry.cleanup_completed(&mut out), 0);
    assert_eq!(registry.stats(), RegistryStats { total: 2, active: 2, completed: 0, failed: 0 });
}

/// SUP-14: exactly as old as the limit stays; older goes, if it is active.
#[test]
fn pruning_removes_what_is_active_and_older() {
    let day = 24 * 3_600;
    let mut registry = registry();
    let mut add = |second: i64| registry.register(&format!("at{second}"), None, &mut outbox(second)).unwrap();
    let (done, _, _) = (add(0), add(1), add(2));
    registry.mark_completed(&done, &mut outbox(3));
    assert_eq!(registry.prune_stale(Duration::from_secs(24 * 3_600), &mut outbox(day + 1)), 0);
    assert_eq!(registry.prune_stale(Duration::from_secs(24 * 3_600), &mut outbox(day + 2)), 1);
    assert_eq!(names(&registry.list_all()), ["at0", "at2"], "what has ended is not stale");
}

/// SUP-18: a delegation that failed marks its child failed; one that came back, completed.
#[test]
fn a_failed_delegation_leaves_nobody_active() {
    let mut registry = registry();
    let ids = chain(&mut registry, 3);
    registry.finished(&ids[2], &Err(CallFailure::error("broke")), &mut outbox(0));
    registry.finished(&ids[1], &Ok(json!("fine")), &mut outbox(0));
    let status = |id: &str| registry.get_instance(id).unwrap().status;
    assert_eq!((status(&ids[2]), status(&ids[1])), (InstanceStatus::Failed, InstanceStatus::Completed));
    assert_eq!(names(&registry.list_active()), ["a0"]);
}

#[derive(Debug, Clone)]
enum Step {
    Register(u8),
    Complete(u8),
    Fail(u8),
    Clean(u8),
    CleanEnded,
    Prune(u64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => any::<u8>().prop_map(Step::Register),
        2 => any::<u8>().prop_map(Step::Complete),
        2 => any::<u8>().prop_map(Step::Fail),
        1 => any::<u8>().prop_map(Step::Clean),
        1 => Just(Step::CleanEnded),
        1 => (0..40_u64).prop_map(Step::Prune),
    ]
}

proptest! {
    /// SUP-05, SUP-15, SUP-17: whatever happens, the stats are a recount, nobody stands deeper than the limit, every
    /// child one below its parent, ids are unique, and counts of removals are right.
    #[test]
    fn the_registry_is_a_recount_of_what_happened(
        steps in proptest::collection::vec(step(), 0..80), base in 0..4_u32,
    ) {
        let mut registry = Registry::new("run-1", base, MAX_DEPTH);
        let mut ids = vec!["none".to_owned()];
        for (i, step) in steps.into_iter().enumerate() {
            let mut out = outbox(i64::try_from(i).unwrap());
            let pick = |n: u8| ids[n as usize % ids.len()].clone();
            let before = registry.list_all().len();
            match step {
                Step::Register(n) => {
                    let parent = Some(pick(n)).filter(|id| id != "none");
                    let may = parent.as_ref().is_none_or(|id| registry.may_register(Some(id)).is_ok());
                    let done = registry.register("a", parent.as_deref(), &mut out);
                    prop_assert_eq!(done.is_ok(), may, "one rule for both");
                    if let Ok(id) = done {
                        if let Some(parent) = parent.filter(|parent| registry.get_instance(parent).is_some()) {
                            prop_assert_eq!(registry.get_depth(&id), registry.get_depth(&parent) + 1);
                        }
                        ids.push(id);
                    }
                }
                Step::Complete(n) => drop(registry.mark_completed(&pick(n), &mut out)),
                Step::Fail(n) => drop(registry.mark_failed(&pick(n), &mut out)),
                Step::Clean(n) => drop(registry.cleanup(&pick(n), &mut out)),
                Step::CleanEnded => {
                    let count = registry.cleanup_completed(&mut out);
                    prop_assert_eq!(before - registry.list_all().len(), count);
                }
                Step::Prune(seconds) => {
                    let count = registry.prune_stale(Duration::from_secs(seconds), &mut out);
                    prop_assert_eq!(before - registry.list_all().len(), count);
                }
            }
            let all = registry.list_all();
            let recount = |status| all.iter().filter(|instance| instance.status == status).count();
            prop_assert_eq!(registry.stats(), RegistryStats {
                total: all.len(),
                active: recount(InstanceStatus::Active),
                completed: recount(InstanceStatus::Completed),
                failed: recount(InstanceStatus::Failed),
            });
            prop_assert!(all.iter().all(|instance| base + instance.depth <= MAX_DEPTH));
            let mut unique: Vec<&str> = all.iter().map(|instance| instance.instance_id.as_str()).collect();
            unique.sort_unstable();
            unique.dedup();
            prop_assert_eq!(unique.len(), all.len());
        }
    }
}
