//! Order and bounds: whatever order answers come in, the end is the same; whatever models answer, the bounds hold.

use proptest::prelude::*;

use super::*;
use crate::scene::kit::cases;
use crate::supervisor::core::key::key;

/// A small generator of numbers with a seed, for orders.
struct Seeded(u64);

impl Seeded {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % n
    }
}

/// A root that delegates to three at once, two of which go on: seven agents' worth of answers by what they were asked.
fn script(call: &Call) -> Answer {
    let told = tool_texts(&sent(call));
    let task = sent(call)[0].text().lines().last().unwrap().to_owned();
    let two = |a: &str, b: &str| {
        calls([("delegate_to_coder", json!({"task": a})), ("delegate_to_coder", json!({"task": b}))])
    };
    Ok(match (who(call).as_str(), told.len()) {
        ("assistant", 0) => calls([
            ("delegate_to_planner", json!({"task": "p1"})),
            ("delegate_to_coder", json!({"task": "c1"})),
            ("delegate_to_planner", json!({"task": "p2"})),
            ("delegate_to_coder", json!({"task": "c2", "background": true})),
        ]),
        ("planner", 0) => two(&format!("{task}-a"), &format!("{task}-b")),
        ("planner", 2) => calls([("delegate_to_coder", json!({"task": format!("{task}-c"), "background": true}))]),
        ("coder", 0) if task == "p1-a" => return Err(CallFailure::error("p1-a is broken")),
        ("coder", _) => says(&format!("did {task}")),
        (_, _) => says(&format!("I heard: {}", told.join("; "))),
    })
}

/// Everything that people and models see in the end.
fn digest(rig: &Rig) -> String {
    let mut prompts: Vec<(String, String)> = rig.asked.iter().map(|call| (who(call), call.prompt.clone())).collect();
    prompts.sort();
    let mut keys: Vec<_> = rig.asked.iter().map(|call| &call.key).collect();
    keys.sort_unstable();
    let text = json!([rig.it.outcome(), rig.it.messages(), rig.it.view(rig.held), prompts, keys]).to_string();
    blake3::hash(text.as_bytes()).to_hex().to_string()
}

#[test]
fn the_order_in_which_answers_come_makes_no_difference() {
    let played = |seed: u64| {
        let mut order = Seeded(seed);
        let mut rig = Rig::start(of_supyagent(), planner_and_coder(), "go");
        while !rig.calls.is_empty() {
            let at = order.below(rig.calls.len());
            let call = rig.calls[at].clone();
            rig.reply_to(&call.key, script(&call));
        }
        assert!(rig.outcome().ok);
        digest(&rig)
    };
    let first = played(0);
    for seed in 1..200 {
        assert_eq!(played(seed), first, "seed {seed}");
    }
}

#[test]
fn parallel_hand_offs_end_the_same_in_every_order() {
    let played = |seed: u64| {
        let mut order = Seeded(seed);
        let rules = AgentRules { parallel_tool_calls: true, ..of_langgraph() };
        let names = ["a", "b", "c", "d"];
        let agents = std::iter::once(agent("boss").handoffs(&names)).chain(names.map(agent)).collect();
        let mut rig = Rig::start(rules, agents, "go");
        rig.answer("boss", calls(names.map(|name| (&*format!("transfer_to_{name}").leak(), json!({})))));
        while rig.awaited() != ["boss"] {
            let at = order.below(rig.calls.len());
            let (key, name) = (rig.calls[at].key.clone(), who(&rig.calls[at]));
            let answer = json!({"content": format!("from {name}"), "context_variables": {"who": name}});
            rig.reply_to(&key, Ok(answer));
        }
        rig.answer("boss", says("all"));
        digest(&rig)
    };
    let first = played(0);
    for seed in 1..50 {
        assert_eq!(played(seed), first, "seed {seed}");
    }
}

/// One call that a model might make: good, bad, or nonsense.
fn any_call() -> impl Strategy<Value = Value> {
    let name = prop_oneof![
        8 => prop::sample::select(vec![
            "delegate_to_a", "delegate_to_b", "delegate_to_c_c", "delegate_to_ghost", "spawn_agent", "transfer_to_b",
            "transfer_to_c_c", "list_processes", "check_process", "get_process_output", "kill_process", "sleep",
            "create_update_todos", "think_tool", "get_current_datetime", "forward_message", "fn",
            "Delegate work to coworker", "Ask question to coworker",
        ])
        .prop_map(str::to_owned),
        1 => ".{0,12}",
    ];
    let text = prop_oneof![
        Just(json!("x")),
        Just(json!("agent_1")),
        Just(json!("b")),
        Just(json!(3)),
        Just(json!(true)),
        Just(Value::Null),
    ];
    let key = prop::sample::select(vec![
        "task",
        "context",
        "background",
        "timeout",
        "agent_type",
        "process_id",
        "seconds",
        "todos",
        "from_agent",
        "coworker",
        "variables",
        "tail",
    ]);
    let object = prop::collection::btree_map(key, text, 0..5).prop_map(|map| json!(map));
    let background = Just(json!({"task": "t", "background": true}));
    let args = prop_oneof![6 => object, 2 => background, 1 => Just(json!("{")), 1 => Just(json!([1]))];
    (name, args).prop_map(|(name, args)| json!({"name": name, "args": args}))
}

#[derive(Debug, Clone)]
enum Event {
    /// One of the calls under way is answered.
    Answer(usize, Value),
    Fail(usize),
    /// Somebody answers a key that is not, or no longer, awaited.
    Stranger(u32),
    Time(u64),
    Pause,
    Resume,
    Human(bool),
    Say,
}

fn any_event() -> impl Strategy<Value = Event> {
    let answer = prop_oneof![
        3 => "[a-c ]{0,8}".prop_map(|text| json!({"content": text})),
        6 => prop::collection::vec(any_call(), 1..9).prop_map(|calls| json!({"content": "hm", "tool_calls": calls})),
        1 => Just(json!({"mood": 1})),
        1 => Just(json!({"agent": "b"})),
        1 => Just(Value::Null),
    ];
    prop_oneof![
        12 => (any::<usize>(), answer).prop_map(|(at, answer)| Event::Answer(at, answer)),
        1 => any::<usize>().prop_map(Event::Fail),
        1 => (0..9u32).prop_map(Event::Stranger),
        1 => (0..90_000u64).prop_map(Event::Time),
        1 => Just(Event::Pause),
        2 => Just(Event::Resume),
        1 => any::<bool>().prop_map(Event::Human),
        1 => Just(Event::Say),
    ]
}

fn any_rules() -> impl Strategy<Value = AgentRules> {
    let system = prop::sample::select(vec![of_supyagent(), of_langgraph(), of_swarm(), of_crewai(), of_cuga()]);
    let timeout = prop::sample::select(vec![
        OnDelegationTimeout::Background,
        OnDelegationTimeout::Kill,
        OnDelegationTimeout::Wait,
        OnDelegationTimeout::Fail,
    ]);
    (system, timeout, 1..4u32, 0..4u32, any::<bool>()).prop_map(|(rules, on_timeout, parallel, background, many)| {
        let mut rules = rules;
        rules.delegation.on_timeout = on_timeout;
        rules.delegation.parallel = parallel;
        rules.delegation.background_max = background;
        rules.delegation.max_depth = 2;
        rules.parallel_tool_calls |= many;
        rules.handoff.forward = many;
        rules.builtins =
            [Builtin::CreateUpdateTodos, Builtin::Sleep, Builtin::ThinkTool, Builtin::GetCurrentDatetime].into();
        rules
    })
}

fn step(rig: &mut Rig, event: Event) {
    // What comes in while the run stands still is kept by the run.
    let comes_in = matches!(event, Event::Answer(..) | Event::Fail(_) | Event::Time(_) | Event::Human(_));
    if comes_in && rig.held {
        return;
    }
    match event {
        Event::Answer(at, answer) if !rig.calls.is_empty() => {
            let key = rig.calls[at % rig.calls.len()].key.clone();
            rig.reply_to(&key, Ok(answer));
        }
        Event::Fail(at) if !rig.calls.is_empty() => {
            let key = rig.calls[at % rig.calls.len()].key.clone();
            rig.reply_to(&key, Err(CallFailure::error("no")));
        }
        Event::Stranger(n) => {
            let before = rig.it.clone();
            rig.with(|it, out| it.answered(&key(&format!("agents/{n}/step/999")), Ok(says("?")), out));
            assert_eq!(rig.it, before);
        }
        Event::Time(seconds) => rig.after(Duration::from_secs(seconds)),
        Event::Pause => rig.hold(true),
        Event::Resume => rig.hold(false),
        Event::Human(approved) => {
            if let Some(needed) = rig.it.human_needed().first().cloned() {
                let answer = HumanAnswer { approved, feedback: "hm".to_owned() };
                rig.with(|it, out| {
                    let _ = it.human(&needed.key, answer, out);
                });
            }
        }
        Event::Say => rig.with(|it, out| {
            it.say("again", out);
        }),
        Event::Answer(..) | Event::Fail(_) => {}
    }
}

/// Bounds, and answers in call order, whatever was answered.
fn check(rig: &Rig, rules: &AgentRules) {
    let view = rig.it.sessions_view();
    assert!(view.iter().all(|session| session.depth <= rules.delegation.max_depth), "depth");
    assert!(rig.it.processes_running() <= rules.delegation.background_max as usize, "background");
    for session in &rig.it.sessions.values().collect::<Vec<_>>() {
        if let super::super::session::Doing::Acting(batch) = &session.doing {
            assert_eq!(batch.check(rules.fan_out()), Ok(()));
            assert!(!batch.is_done());
        }
    }
    // Every answer belongs to a call of the last response before it, and they are in call order.
    let mut open: Vec<&str> = Vec::new();
    for message in rig.it.messages().iter().filter(|message| message.tag.is_none()) {
        match (message.role, message.tool_call_id.as_deref()) {
            (MessageRole::Tool, Some(id)) => {
                let at = open.iter().position(|open| *open == id).expect("an answer to a call of this response");
                open.drain(..=at);
            }
            (MessageRole::Assistant, _) if !message.tool_calls.is_empty() => {
                open = message.tool_calls.iter().map(|call| call.id.as_str()).collect();
            }
            _ => {}
        }
    }
}

proptest! {
    #![proptest_config(cases(300))]

    #[test]
    fn whatever_is_answered_bounds_and_order_hold(
        rules in any_rules(),
        events in prop::collection::vec(any_event(), 1..40),
    ) {
        let gate = StandingPolicy::new(
            "gate",
            serde_json::from_value(json!({"type": "tool_approval", "tools": ["fn"], "message": "?"})).unwrap(),
        );
        let rules = AgentRules { policies: vec![gate], ..rules };
        let names = ["a", "b", "c c"];
        let agents: Vec<AgentDef> = names
            .iter()
            .map(|name| {
                let others: Vec<&str> = names.iter().copied().filter(|other| other != name).collect();
                let delegates: Vec<&str> = others.iter().copied().chain(["ghost"]).collect();
                agent(name).delegates(&delegates).handoffs(&others).tool(ToolDef::new("fn"))
            })
            .collect();
        let mut rig = Rig::start(rules.clone(), agents, "go");
        let mut paused = false;
        for event in events {
            let asked = rig.asked.len();
            let resumes = matches!(event, Event::Resume);
            paused = (paused || matches!(event, Event::Pause)) && !resumes;
            step(&mut rig, event);
            check(&rig, &rules);
            if paused {
                prop_assert_eq!(rig.asked.len(), asked, "nothing starts while paused");
            }
        }
        rig.with(|it, out| it.cancel("enough", out));
        prop_assert!(rig.calls.is_empty() && rig.timers.is_empty() && rig.it.human_needed().is_empty());
        prop_assert!(rig.it.outcome().is_some());
        prop_assert_eq!(rig.it.processes_running(), 0);
    }
}
