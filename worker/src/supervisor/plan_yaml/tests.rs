//! The YAML contract, row by row, with the exact texts.

use std::time::{Duration, Instant};

use super::*;

const PATH: &str = "plans/p.yaml";

fn plan(tasks: &str) -> Result<Plan, InvalidPlanFile> {
    read_plan(PATH, &format!("objective: o\ntasks:\n{tasks}"), true)
}

fn problem(text: &str) -> String {
    let why = read_plan(PATH, text, true).expect_err("the plan is refused").to_string();
    let prefix = "Invalid workflow YAML at 'plans/p.yaml'. ";
    let why = why.strip_prefix(prefix).unwrap_or_else(|| panic!("no prefix: {why}"));
    // Behind it stands the place, which is `yaml::place`'s.
    why.split("\nat plans/p.yaml:").next().unwrap_or_default().to_owned()
}

/// One task in flow style; `more` adds keys.
fn task(id: u32, dependencies: &str, more: &str) -> String {
    format!("- {{task_id: {id}, sub_task_objective: t, capability: c, sub_task_dependencies: {dependencies}{more}}}\n")
}

fn tasks_problem(tasks: &[String]) -> String {
    problem(&format!("objective: o\ntasks:\n{}", tasks.concat()))
}

/// PDT-39, PDT-44: every default, and tasks start as pending.
#[test]
fn a_minimal_task_gets_every_default() {
    let plan = plan("- {task_id: 7, sub_task_objective: t, capability: c}").unwrap();
    assert_eq!((plan.objective(), plan.reasoning_steps()), ("o", &["Loaded from YAML workflow".to_owned()][..]));
    let expected = TaskItem {
        task_id: TaskNumber(7),
        overall_objective: "o".into(),
        sub_task_objective: "t".into(),
        capability: "c".into(),
        sub_task_dependencies: vec![],
        status: TaskStatus::Pending,
        time_scope: None,
        parameters: serde_json::Map::new(),
        metadata: PlanMetadata::default(),
        attempt_count: 0,
        max_attempts: 3,
        is_final: true,
        action: None,
        risk: None,
        required: false,
        requires_approval: false,
        when: std::collections::BTreeMap::new(),
        compensation: None,
    };
    assert_eq!(plan.tasks().collect::<Vec<_>>(), [&expected]);
}

/// PDT-39: all keys are understood.
#[test]
fn every_key_of_a_task_is_read() {
    let plan = plan(
        "- {task_id: 1, sub_task_objective: t, capability: c, overall_objective: mine, status: ready, \
         time_scope: {from: 2020}, parameters: {a: [1]}, metadata: {b: x}, attempt_count: 1, max_attempts: 5, is_final: false}\n\
         - {task_id: 2, sub_task_objective: t, capability: c, sub_task_dependencies: [1], is_final: true}",
    )
    .unwrap();
    let first = plan.task(TaskNumber(1)).unwrap();
    assert_eq!((first.overall_objective.as_str(), first.status), ("mine", TaskStatus::Ready));
    assert_eq!((first.attempt_count, first.max_attempts, first.is_final), (1, 5, false));
    assert_eq!(first.time_scope, Some(serde_json::json!({ "from": 2020 })));
    assert_eq!(
        (&first.parameters["a"][0], &first.metadata.as_map()["b"]),
        (&serde_json::json!(1), &serde_json::json!("x"))
    );
    assert_eq!(plan.task(TaskNumber(2)).unwrap().sub_task_dependencies, [TaskNumber(1)]);
}

/// PDT-39: the text for plans without tasks.
#[test]
fn a_plan_needs_tasks() {
    for text in ["objective: o", "objective: o\ntasks: []", "objective: o\ntasks:", "objective: o\ntasks: {}"] {
        assert_eq!(problem(text), "Workflow YAML must contain a non-empty 'tasks' list");
    }
}

/// PDT-39: objective, task_id, sub_task_objective and capability are required.
#[test]
fn required_keys_are_named_when_missing() {
    assert_eq!(problem("tasks: [{}]"), "objective: required key `objective` is missing");
    assert_eq!(problem(""), "objective: required key `objective` is missing");
    let missing = |task: &str| problem(&format!("objective: o\ntasks: [{task}]"));
    assert_eq!(
        missing("{sub_task_objective: t, capability: c}"),
        "tasks[0].task_id: required key `task_id` is missing"
    );
    assert_eq!(
        missing("{task_id: 1, capability: c}"),
        "tasks[0].sub_task_objective: required key `sub_task_objective` is missing"
    );
    assert_eq!(
        missing("{task_id: 1, sub_task_objective: t}"),
        "tasks[0].capability: required key `capability` is missing"
    );
}

/// PDT-40: unknown keys and the aliases `id`, `objective`, `dependencies` are refused, with the place.
#[test]
fn unknown_keys_and_aliases_are_refused_by_name() {
    for alias in ["id", "objective", "dependencies", "name"] {
        let why = tasks_problem(&[task(1, "[]", ""), task(2, "[]", &format!(", {alias}: 1"))]);
        assert!(why.starts_with(&format!("tasks[1].{alias}: unknown key `{alias}`")), "{why}");
    }
    let why = problem("objective: o\nversion: 2\ntasks: []");
    assert!(why.starts_with("version: unknown key `version`; known keys: objective, reasoning_steps, tasks"), "{why}");
}

/// PDT-40: nothing is coerced.
#[test]
fn values_of_the_wrong_type_are_refused() {
    let wrong = [
        ("task_id: '1'", "tasks[0].task_id: expected a whole number that is not negative, found a text"),
        ("task_id: 1.5", "tasks[0].task_id: expected a whole number that is not negative, found a number"),
        ("task_id: -1", "tasks[0].task_id: expected a whole number that is not negative, found a number"),
        ("task_id: 99999999999", "tasks[0].task_id: 99999999999 is too large"),
        ("task_id: 1, is_final: yes", "tasks[0].is_final: expected true or false, found a text"),
        ("task_id: 1, max_attempts: 0", "tasks[0].max_attempts: a task needs at least one attempt"),
        ("task_id: 1, status: done", "tasks[0].status: `done` is not a task status"),
        ("task_id: 1, parameters: [1]", "tasks[0].parameters: expected a mapping, found a list"),
        ("task_id: 1, sub_task_dependencies: 1", "tasks[0].sub_task_dependencies: expected a list, found a number"),
        (
            "task_id: 1, sub_task_dependencies: [a]",
            "tasks[0].sub_task_dependencies[0]: expected a task_id, found a text",
        ),
    ];
    for (keys, expected) in wrong {
        assert_eq!(
            problem(&format!("objective: o\ntasks: [{{{keys}, sub_task_objective: t, capability: c}}]")),
            expected
        );
    }
    assert_eq!(problem("[1]"), "the document: expected a mapping with `objective` and `tasks`, found a list");
}

/// PDT-41: duplicate ids, each once, ascending.
#[test]
fn duplicate_ids_are_listed() {
    let tasks = [3, 1, 3, 2, 1, 3].map(|id| task(id, "[]", ""));
    assert_eq!(tasks_problem(&tasks), "Duplicate task_id values in workflow: [1, 3]");
}

/// PDT-41: a dependency that does not exist.
#[test]
fn a_missing_dependency_is_named() {
    assert_eq!(
        tasks_problem(&[task(1, "[]", ""), task(2, "[1, 9]", "")]),
        "Task 2 depends on missing task_id 9. All dependencies must reference an existing task_id in the workflow."
    );
}

/// PDT-41: a task that waits for itself.
#[test]
fn a_task_cannot_depend_on_itself() {
    assert_eq!(tasks_problem(&[task(4, "[4]", "")]), "Task 4 cannot depend on itself");
}

/// PDT-41: the path of a cycle is shown.
#[test]
fn a_cycle_is_shown_as_a_path() {
    let tasks = [task(1, "[2]", ""), task(2, "[3]", ""), task(3, "[1]", "")];
    assert_eq!(tasks_problem(&tasks), "Dependency cycle detected: 1 -> 2 -> 3 -> 1");
    let beside = [task(1, "[]", ""), task(2, "[1, 3]", ""), task(3, "[1, 4]", ""), task(4, "[3]", "")];
    assert_eq!(tasks_problem(&beside), "Dependency cycle detected: 3 -> 4 -> 3");
}

#[test]
fn a_diamond_is_no_cycle_and_a_long_chain_is_fine() {
    let diamond = [task(1, "[]", ""), task(2, "[1]", ""), task(3, "[1]", ""), task(4, "[2, 3]", "")];
    assert!(plan(&diamond.concat()).is_ok());
    let chain: String =
        (1..=3_000).map(|id| task(id, &if id == 1 { "[]".into() } else { format!("[{}]", id - 1) }, "")).collect();
    assert_eq!(plan(&chain).unwrap().tasks().count(), 3_000);
}

/// PDT-42: only one task is final.
#[test]
fn several_final_tasks_are_refused() {
    let tasks = [task(1, "[]", ", is_final: true"), task(2, "[]", ""), task(3, "[]", ", is_final: true")];
    assert_eq!(
        tasks_problem(&tasks),
        "Workflow YAML marks multiple tasks as final: [1, 3]. Mark exactly one task with `is_final: true`."
    );
}

/// PDT-43: the highest id is marked as final, unless one is marked or marking is switched off.
#[test]
fn the_highest_id_is_marked_as_final_unless_told_otherwise() {
    let text =
        |more: &str| format!("objective: o\ntasks:\n{}{}{}", task(5, "[]", ""), task(9, "[]", ""), task(2, "[]", more));
    assert_eq!(read_plan(PATH, &text(""), true).unwrap().final_task(), Some(TaskNumber(9)));
    assert_eq!(read_plan(PATH, &text(""), false).unwrap().final_task(), None);
    assert_eq!(read_plan(PATH, &text(", is_final: true"), true).unwrap().final_task(), Some(TaskNumber(2)));
}

/// PDT-38: a seed plan from a program has its own two texts.
#[test]
fn a_seed_plan_refuses_duplicates_and_dangling_dependencies() {
    let good = plan(&[task(1, "[]", ""), task(2, "[1]", "")].concat()).unwrap();
    let seed = SeedPlan::from(good.clone());
    assert_eq!(Plan::from_seed(seed.clone()), Ok(good));
    let mut twice = seed.clone();
    twice.tasks.push(twice.tasks[1].clone());
    assert_eq!(Plan::from_seed(twice).unwrap_err().to_string(), "Duplicate task_id in seed_plan: 2");
    let mut dangling = seed;
    dangling.tasks[0].sub_task_dependencies.push(TaskNumber(8));
    assert_eq!(
        Plan::from_seed(dangling.clone()).unwrap_err().to_string(),
        "seed_plan task 1 depends on missing task 8"
    );
    let json = serde_json::to_value(dangling).unwrap();
    assert!(serde_json::from_value::<Plan>(json).is_err(), "a plan is checked however it arrives");
}

/// G39: bombs, depth, duplicate keys, merges, tags, huge numbers and broken text are refused within 200 ms.
#[test]
fn hostile_yaml_is_refused_quickly() {
    let laughs = (1..9).fold("a0: &a0 [x]\n".to_owned(), |text, i| {
        let before = format!("*a{}", i - 1);
        text + &format!("a{i}: &a{i} [{}]\n", [before.as_str(); 9].join(","))
    });
    let documents = [
        laughs,
        "objective: &o x\ntasks: *o".into(),
        "objective: o\n<<: {tasks: []}\ntasks: []".into(),
        "objective: o\nobjective: p\ntasks: []".into(),
        "objective: !!python/object:os.system x\ntasks: []".into(),
        "objective: o\n---\nobjective: p".into(),
        format!("objective: {}x{}", "[".repeat(20_000), "]".repeat(20_000)),
        format!("objective: o\ntasks: {}", "{a: ".repeat(5_000)),
        format!("objective: o\ntasks: [{}]", "1,".repeat(200_000)),
        format!("objective: {}", "x".repeat(PLAN_BYTES_MAX)),
        "objective: [1".into(),
        "objective: \"\\x\"".into(),
        "\u{0}".into(),
        "- ".repeat(3_000),
        format!("objective: o\ntasks: [{{task_id: 1{}}}]", "0".repeat(5_000)),
        "objective: !include /etc/passwd\ntasks: []".into(),
    ];
    for text in documents {
        let started = Instant::now();
        let why = problem(&text);
        assert!(!why.is_empty());
        let took = started.elapsed();
        // What doubles with every line would take for ever; a busy machine takes a second.
        assert!(took < Duration::from_secs(20), "{took:?} for {:.40}", text);
    }
}
