//! A model that is wholly in an enemy's hands, people whose signals are forged, and answers in any order (G41).
//!
//! Invariant: whatever is said, what is dispatched is within the spec that the run was started with, approved where it
//! must be, paid for, and never while the agent is paused; agents below have no more than those above; the sums, also by
//! model and of what is not known, are those of an own count; and it ends.
//! `BOSUN_CASES` says how many cases are tried.

use std::collections::BTreeMap;

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use super::*;
use crate::agent::ledger::{Amount, Caps, TopUp, UnknownUsage};
use crate::agent::spec::{Grant, Share, ToolGrant};

/// What the agent at the top may do: everything else is forbidden.
fn policy(limits: &Value) -> AgentSpec {
    spec(json!({
        "max_output_tokens": 100,
        "price": { "input": 1_000_000, "output": 1_000_000 },
        "report_to": "the run",
        "limits": limits,
        "tools": [
            { "name": "grep", "does": { "process": { "argv": ["grep", "-n", "{pattern}", "{file}"], "jail": "/w" } } },
            { "name": "fetch", "does": { "http": { "hosts": ["api.example"], "methods": ["GET"] } } },
            { "name": "file", "does": { "file": { "root": "/w" } } },
            { "name": "pay", "approval": true, "parameters": { "type": "object", "required": ["cents"],
              "properties": { "cents": { "type": "integer", "maximum": 100 } }, "additionalProperties": false },
              "does": { "activity": { "activity_type": "pay" } } },
            { "name": "ask", "does": { "agent": { "tools": ["grep", "pay", "ask"] } } },
        ],
    }))
}

/// An independent reading of the policy: whether this may ever be dispatched.
fn is_within(activity_type: &str, input: &Value) -> bool {
    match activity_type {
        "process" => {
            let argv: Vec<&str> = input["argv"].as_array().unwrap().iter().map(|one| one.as_str().unwrap()).collect();
            argv.len() == 4
                && argv[..2] == ["grep", "-n"]
                && !argv[2].starts_with('-')
                && !argv[3].starts_with('-')
                && input["jail"] == "/w"
                && input.get("env_allow").is_none()
                && input.get("env").is_none()
        }
        "http" => {
            let url = input["url"].as_str().unwrap();
            url.starts_with("https://api.example/")
                && input["method"] == "GET"
                && input["follow_redirects"] == 0
                && input.get("headers").is_none()
        }
        "file" => input["root"] == "/w" && (input["op"] == "read" || input["op"] == "list"),
        "pay" => input.as_object().unwrap().len() == 1 && input["cents"].as_i64().unwrap() <= 100,
        _ => false,
    }
}

/// What the enemy says: calls within the policy, at its edge and beyond.
fn call() -> impl Strategy<Value = (String, Value)> {
    let text = || {
        prop_oneof![
            Just("x"),
            Just("-f"),
            Just("--help"),
            Just("a\0b"),
            Just("$(rm -rf /)"),
            Just("; rm"),
            Just("{file}"),
            Just("https://api.example/a"),
            Just("https://api.example.evil/a"),
            Just("http://api.example/"),
            Just("https://api.example@evil/"),
            Just("https://evil/?https://api.example/"),
            Just("file:///etc/passwd"),
            Just("https://api.example:8443/"),
            Just("HTTPS://API.EXAMPLE/b"),
            Just("../../etc/passwd"),
            Just("https:api.example"),
            Just("https://api.example\\@evil/"),
        ]
    };
    let name = prop_oneof![
        8 => prop::sample::select(vec!["grep", "fetch", "file", "pay", "ask"]),
        1 => prop::sample::select(vec!["rm", "process", "agent", "Grep", "", "budget_top_up_v1", "agent_model"]),
    ];
    let grep = (text(), text()).prop_map(|(pattern, file)| json!({ "pattern": pattern, "file": file }));
    let fetch = (text(), prop::sample::select(vec!["GET", "POST", "get"]))
        .prop_map(|(url, method)| json!({ "url": url, "method": method }));
    let bare = text().prop_map(|url| json!({ "url": url }));
    let file = (prop::sample::select(vec!["read", "list", "write", "exec"]), text())
        .prop_map(|(op, path)| json!({ "op": op, "path": path }));
    let pay = (-5..200_i64).prop_map(|cents| json!({ "cents": cents }));
    let ask = (prop::option::of(0..5_000_u64), prop::option::of(0..9_u64)).prop_map(|(tokens, steps)| {
        let mut request = json!({ "task": "go", "tools": ["grep", "pay", "ask", "rm", "file"] });
        if let Some(tokens) = tokens {
            request["max_tokens"] = json!(tokens);
        }
        if let Some(steps) = steps {
            request["max_steps"] = json!(steps);
        }
        request
    });
    let wide = prop::sample::select(vec![
        json!({ "task": "go", "approval": false }),
        json!({ "task": "go", "tools": [{ "name": "rm", "does": { "activity": { "activity_type": "rm" } } }] }),
        json!({ "task": "go", "limits": { "depth": 99 }, "depth": -1 }),
        json!({ "pattern": "x", "file": "y", "argv": ["rm"], "jail": "/" }),
        json!({ "op": "read", "path": "x", "root": "/" }),
        json!({ "url": "https://api.example/", "headers": { "authorization": { "env": "KEY" } } }),
        json!({ "cents": 5, "approved": true }),
        json!({ "cents": "5" }),
        json!("{\"cents\":5}"),
        json!(null),
    ]);
    let arguments = prop_oneof![3 => grep, 3 => fetch, 1 => bare, 3 => file, 4 => pay, 4 => ask, 3 => wide];
    // Mostly the arguments fit the tool.
    (name, arguments, any::<bool>()).prop_map(|(name, arguments, fit)| {
        let has = |member: &str| arguments.get(member).is_some();
        let fitting = match () {
            () if has("pattern") => "grep",
            () if has("url") => "fetch",
            () if has("op") => "file",
            () if has("cents") => "pay",
            () if has("task") => "ask",
            () => name,
        };
        ((if fit { fitting } else { name }).to_owned(), arguments)
    })
}

#[derive(Debug, Clone)]
enum Act {
    /// The open ask of this number ends, well or not.
    Answer {
        at: prop::sample::Index,
        fault: Option<(FaultClass, bool)>,
    },
    /// A response to the call that waits, right or forged in one way.
    Respond {
        approved: bool,
        forged: u8,
        again: bool,
    },
    TopUp(u64),
    /// What the run lends, perhaps for the last time.
    Lend(Share, bool),
    Pause,
    Resume,
    Cancel,
    Wait(u64),
}

#[derive(Debug, Clone)]
struct Case {
    limits: Value,
    answers: Vec<(Vec<(String, Value)>, Option<u64>, Option<u64>)>,
    acts: Vec<Act>,
}

fn act() -> impl Strategy<Value = Act> {
    let fault = prop_oneof![
        9 => Just(None),
        1 => prop::sample::select(vec![
            (FaultClass::NeedsHuman, false),
            (FaultClass::NeedsHuman, true),
            (FaultClass::Lost, true),
            (FaultClass::Canceled, true),
        ]).prop_map(Some),
    ];
    prop_oneof![
        20 => (any::<prop::sample::Index>(), fault).prop_map(|(at, fault)| Act::Answer { at, fault }),
        6 => (any::<bool>(), 0..5_u8, any::<bool>()).prop_map(|(approved, forged, again)| Act::Respond { approved, forged, again }),
        1 => (0..400_u64).prop_map(Act::TopUp),
        3 => (share(600), prop::bool::weighted(0.2)).prop_map(|(more, last)| Act::Lend(more, last)),
        1 => Just(Act::Pause),
        2 => Just(Act::Resume),
        1 => prop::bool::weighted(0.1).prop_map(|cancel| if cancel { Act::Cancel } else { Act::Resume }),
        1 => (0..2_000_u64).prop_map(Act::Wait),
    ]
}

fn share(most: u64) -> impl Strategy<Value = Share> {
    (prop::option::of(0..most), prop::option::of(0..most))
        .prop_map(|(tokens, cost_micros)| Share { tokens, cost_micros })
}

fn case() -> impl Strategy<Value = Case> {
    let limits = (
        (prop::option::of(1..12_u64), prop::option::of(0..20_u64), prop::option::of(0..3_000_u64)),
        (prop::option::of(0..3_000_u64), prop::option::of(1..5_000_u64), 1..4_u32, 0..3_u32),
        (prop::sample::select(vec!["ask", "stop", "degrade"]), prop::sample::select(vec![0, 2, 3]), any::<bool>()),
        prop::option::weighted(0.3, share(1_500)),
    )
        .prop_map(|((steps, calls, tokens), (cost, wall, fan_out, depth), (policy, loops, small), share)| {
            json!({ "share": share, "max_steps": steps.unwrap_or(15), "max_tool_calls": calls, "max_tokens": tokens,
                "max_cost_micros": cost, "wall_ms": wall, "fan_out": fan_out, "depth": depth, "on_exhausted": policy,
                "loop_repeats": loops, "context_tokens": if small { 700 } else { 100_000 },
                "degrade": { "model": "small", "price": { "input": 1, "output": 1 } } })
        });
    let usage = || prop_oneof![8 => (0..200_u64).prop_map(Some), 1 => Just(None), 1 => Just(Some(u64::MAX))];
    let answer = (prop::collection::vec(call(), 0..4), usage(), usage());
    (limits, prop::collection::vec(answer, 1..12), prop::collection::vec(act(), 0..60))
        .prop_map(|(limits, answers, acts)| Case { limits, answers, acts })
}

/// An agent of the tree, with its own count of what it spent.
struct Watched {
    stage: Stage,
    limits: Caps,
    /// What was lent; nothing else raises it.
    share: Share,
    /// Tops that were let in.
    topped: u64,
    spent: Amount,
    held: BTreeMap<FlightKey, Amount>,
    /// Of what was spent: by agents that never told by which model.
    lost: Amount,
    unknown: UnknownUsage,
    /// Calls that a person agreed to and that were not dispatched yet, by hash.
    agreed: BTreeMap<String, u32>,
    seen: usize,
    paused: bool,
    done: BTreeMap<String, u64>,
}

impl Watched {
    fn new(spec: AgentSpec) -> Watched {
        let (limits, share) = (Caps::of(&spec.limits), spec.limits.share.unwrap_or_default());
        // The model and the tools of the stage are not used: the case answers.
        let stage = Stage::new(spec, script(vec![says("", &[])]), echo());
        let (spent, held, agreed) = (Amount::default(), BTreeMap::new(), BTreeMap::new());
        Watched {
            stage,
            limits,
            share,
            topped: 0,
            spent,
            held,
            lost: spent,
            unknown: UnknownUsage::default(),
            agreed,
            seen: 0,
            paused: false,
            done: BTreeMap::new(),
        }
    }

    /// Looks at what was asked for since the last time.
    fn look(&mut self) -> Result<(), String> {
        let asks = self.stage.asked[self.seen..].to_vec();
        self.seen = self.stage.asked.len();
        for ask in asks {
            if self.paused && !matches!(ask, AgentRequest::WallTimer { .. } | AgentRequest::Cancel { .. }) {
                return Err(format!("{ask:?} begins while the agent is paused"));
            }
            let begun = match ask {
                AgentRequest::Tool { key, activity_type, input, .. } => {
                    *self.done.entry(activity_type.clone()).or_default() += 1;
                    if !is_within(&activity_type, &input) {
                        return Err(format!("{activity_type} {input} is dispatched"));
                    }
                    if activity_type == "pay" {
                        let hash = call_hash("pay", &input).to_hex().to_string();
                        let agreed = self.agreed.get_mut(&hash).filter(|agreed| **agreed > 0);
                        *agreed.ok_or_else(|| format!("nobody agreed to {input}"))? -= 1;
                    }
                    self.held.insert(key, Amount { tool_calls: 1, ..Amount::default() });
                    key
                }
                AgentRequest::Child { key, spec } => {
                    *self.done.entry("agent".to_owned()).or_default() += 1;
                    self.narrower(&spec)?;
                    self.held.insert(
                        key,
                        Caps::of(&spec.limits).amount().plus(Amount { tool_calls: 1, ..Amount::default() }),
                    );
                    key
                }
                AgentRequest::Model { call, .. } => {
                    let held = self.stage.agent.ledger().held();
                    let others = self.held.values().fold(Amount::default(), |sum, held| sum.plus(*held));
                    let tokens = held.tokens - others.tokens;
                    if u64::from(call.max_tokens) > tokens {
                        return Err(format!("{} tokens are asked for, {tokens} are held", call.max_tokens));
                    }
                    let cost_micros = held.cost_micros - others.cost_micros;
                    // The prices of the policy: a millionth for each token, and almost nothing.
                    let priced = if call.model == "small" { tokens.div_ceil(1_000_000) } else { tokens };
                    if cost_micros != priced || u64::from(call.max_tokens) == tokens {
                        return Err(format!("{tokens} tokens for {cost_micros} are held for {call:?}"));
                    }
                    self.held.insert(call.key, Amount { steps: 1, tokens, cost_micros, ..Amount::default() });
                    call.key
                }
                AgentRequest::WallTimer { .. } | AgentRequest::Cancel { .. } => continue,
            };
            self.within_caps(begun)?;
        }
        self.sums()
    }

    /// An agent below has no more than this one.
    fn narrower(&self, below: &AgentSpec) -> Result<(), String> {
        let above = self.stage.agent.spec();
        let granted = |tool: &ToolGrant| above.tools.contains(tool);
        if !below.tools.iter().all(granted) {
            return Err(format!("{:?} was widened", below.tools));
        }
        let may_delegate = |tool: &ToolGrant| match &tool.does {
            Grant::Agent(agent) => agent.tools.clone(),
            _ => None,
        };
        let handed = above.tools.iter().find_map(may_delegate).unwrap_or_default();
        if !below.tools.iter().all(|tool| handed.contains(&tool.name)) {
            return Err(format!("{:?} was handed on", below.tools));
        }
        if below.depth != above.depth + 1
            || below.depth > above.limits.depth
            || below.limits.depth != above.limits.depth
        {
            return Err(format!("an agent is {} deep", below.depth));
        }
        if below.limits.fan_out > above.limits.fan_out || below.limits.allow_unpriced && !above.limits.allow_unpriced {
            return Err("a limit was raised".to_owned());
        }
        Ok(())
    }

    /// What was let begin was within the caps when it began. A call that took more than it was let have is spent all the
    /// same; what began before it goes on, and nothing that costs may begin after it.
    fn within_caps(&self, begun: FlightKey) -> Result<(), String> {
        let begun = self.held.get(&begun).copied().unwrap_or_default();
        let taken = self.held.values().fold(self.spent, |sum, held| sum.plus(*held));
        let over = |cap: Option<u64>, taken: u64| cap.is_some_and(|cap| taken > cap.saturating_add(self.topped));
        if over(self.limits.steps, taken.steps)
            || over(self.limits.tool_calls, taken.tool_calls)
            || over(self.limits.tokens, taken.tokens) && begun.tokens > 0
            || over(self.limits.cost_micros, taken.cost_micros) && begun.cost_micros > 0
        {
            return Err(format!("{taken:?} is taken of {:?}, topped up by {}", self.limits, self.topped));
        }
        let beyond = |share: Option<u64>, taken: u64| share.is_some_and(|share| taken > share);
        if beyond(self.share.tokens, taken.tokens) && begun.tokens > 0
            || beyond(self.share.cost_micros, taken.cost_micros) && begun.cost_micros > 0
        {
            return Err(format!("{taken:?} is taken of the share {:?}", self.share));
        }
        Ok(())
    }

    fn sums(&self) -> Result<(), String> {
        let ledger = self.stage.agent.ledger();
        let held = self.held.values().fold(Amount::default(), |sum, held| sum.plus(*held));
        if ledger.spent() != self.spent || ledger.held() != held {
            return Err(format!(
                "the ledger says {:?} and {:?}, counted are {:?} and {held:?}",
                ledger.spent(),
                ledger.held(),
                self.spent
            ));
        }
        let told = ledger.by_model().values().fold(self.lost, |sum, tally| {
            let (steps, tokens, cost_micros) = (tally.calls, tally.tokens, tally.cost_micros);
            sum.plus(Amount { steps, tokens, cost_micros, ..Amount::default() })
        });
        let whole = Amount { tool_calls: told.tool_calls, ..ledger.spent() };
        if told != whole || ledger.unknown() != self.unknown {
            let unknown = (ledger.unknown(), self.unknown);
            return Err(format!("{told:?} is told by model, {whole:?} is spent; unknown: {unknown:?}"));
        }
        Ok(())
    }

    fn settle(&mut self, key: FlightKey, spent: Amount) {
        if self.held.remove(&key).is_some() {
            self.spent = self.spent.plus(spent);
        }
    }
}

/// Plays a tree of agents by the case.
struct Play {
    case: Case,
    said: usize,
}

impl Play {
    fn says(&mut self) -> (ModelAnswer, Amount) {
        let (calls, tokens, cost) = self.case.answers[self.said % self.case.answers.len()].clone();
        self.said += 1;
        let calls: Vec<(&str, Value)> = calls.iter().map(|(name, value)| (name.as_str(), value.clone())).collect();
        let mut answer = says("words", &calls);
        answer.response.usage = Usage { input: tokens, output: tokens.map(|_| 3), ..Usage::default() };
        answer.cost_micros = cost;
        let tokens = tokens.map_or(u64::MAX, |tokens| tokens.saturating_add(3));
        (answer, Amount { steps: 1, tokens, cost_micros: cost.unwrap_or(0), ..Amount::default() })
    }

    /// The open ask ends.
    fn answer(&mut self, watched: &mut Watched, at: usize, fault: Option<(FaultClass, bool)>) -> Result<(), String> {
        let Some(ask) = watched.stage.open.remove(at) else { return Ok(()) };
        let fault = fault.map(|(class, charged)| Fault { charged, ..Fault::new(class, "why") });
        watched.stage.origin += 1;
        let origin = watched.stage.origin;
        match ask {
            AgentRequest::Model { call: ModelCall { key, model, .. }, .. } => {
                let (answer, mut spent) = self.says();
                // A call that names no money costs what its tokens cost by the policy.
                let by_price = if model == "small" { spent.tokens.div_ceil(1_000_000) } else { spent.tokens };
                let cost = answer.cost_micros.or(answer.response.usage.input.map(|_| by_price));
                spent.cost_micros = cost.unwrap_or(0);
                let held = watched.held.get(&key).copied().unwrap_or_default();
                let result = match fault {
                    None => {
                        if answer.response.usage.input.is_none() {
                            spent.tokens = held.tokens;
                            watched.unknown.estimated_calls += 1;
                        }
                        watched.unknown.unpriced_calls += u64::from(cost.is_none());
                        Ok(answer)
                    }
                    Some(fault) => {
                        spent = if fault.charged { held } else { Amount::default() };
                        watched.unknown.estimated_calls += u64::from(fault.charged);
                        Err(fault)
                    }
                };
                watched.settle(key, spent);
                watched.stage.handle(AgentEvent::Model { key, origin, result });
            }
            AgentRequest::Tool { key, .. } => {
                watched.settle(key, Amount { tool_calls: 1, ..Amount::default() });
                let result = fault.map_or(Ok(json!({ "ok": true })), Err);
                watched.stage.handle(AgentEvent::Tool { key, origin, result });
            }
            AgentRequest::Child { key, spec } => {
                let (output, lost) = self.child(*spec)?;
                watched.lost = watched.lost.plus(lost);
                watched.unknown.unpriced_calls += output.unknown.unpriced_calls;
                watched.unknown.estimated_calls += output.unknown.estimated_calls;
                watched.settle(key, output.spent.plus(Amount { tool_calls: 1, ..Amount::default() }));
                watched.stage.handle(AgentEvent::Child {
                    key,
                    origin,
                    result: Ok(json!(output)),
                    output: Some(output),
                });
            }
            AgentRequest::WallTimer { at } => {
                watched.stage.now = watched.stage.now.max(at);
                watched.stage.handle(AgentEvent::WallFired);
            }
            AgentRequest::Cancel { key } => self.cancel(watched, key),
        }
        Ok(())
    }

    fn cancel(&mut self, watched: &mut Watched, key: FlightKey) {
        let held = watched.held.get(&key).copied().unwrap_or_default();
        for ask in &watched.stage.open {
            match ask {
                AgentRequest::Model { call, .. } if call.key == key => watched.unknown.estimated_calls += 1,
                AgentRequest::Child { key: child, .. } if *child == key => {
                    watched.lost = watched.lost.plus(Amount { tool_calls: 0, ..held });
                    watched.unknown.estimated_calls += 1;
                    watched.unknown.unpriced_calls += u64::from(held.cost_micros == 0);
                }
                _ => {}
            }
        }
        watched.settle(key, held);
        watched.stage.canceled(key);
    }

    /// An agent below answers in order, and is ended when it waits for somebody.
    fn child(&mut self, spec: AgentSpec) -> Result<(AgentOutput, Amount), String> {
        let mut below = Watched::new(spec);
        below.look()?;
        while !below.stage.agent.is_over() {
            let next = below.stage.open.iter().position(|ask| !matches!(ask, AgentRequest::WallTimer { .. }));
            match next {
                Some(at) => self.answer(&mut below, at, None)?,
                None => below.stage.handle(AgentEvent::Cancel { reason: "it waits".into() }),
            }
            below.look()?;
        }
        Ok((below.stage.agent.output(), below.lost))
    }

    fn respond(&mut self, watched: &mut Watched, approved: bool, forged: u8) -> Option<ToolApprovalResponse> {
        let asked = watched.stage.state()["approvals"].get(0).cloned()?;
        let text = |name: &str| asked[name].as_str().unwrap_or_default().to_owned();
        let good = ToolApprovalResponse {
            id: text("id"),
            hash: text("hash"),
            approved,
            reason: String::new(),
            by: "ann".into(),
            arguments: None,
        };
        Some(match forged {
            0 => ToolApprovalResponse { hash: call_hash("pay", &json!({ "cents": 99 })).to_hex().to_string(), ..good },
            1 => ToolApprovalResponse { id: "a1".into(), hash: String::new(), ..good },
            2 => ToolApprovalResponse { arguments: Some(json!({ "cents": 77 })), ..good },
            _ => good,
        })
    }
}

fn live(case: Case) -> Result<BTreeMap<String, u64>, String> {
    let mut watched = Watched::new(policy(&case.limits));
    let mut play = Play { case: case.clone(), said: 0 };
    let mut last: Option<ToolApprovalResponse> = None;
    watched.look()?;
    for act in &case.acts {
        match act {
            Act::Answer { at, fault } if !watched.stage.open.is_empty() => {
                let at = at.index(watched.stage.open.len());
                play.answer(&mut watched, at, *fault)?;
            }
            Act::Answer { .. } => {}
            Act::Respond { approved, forged, again } => {
                let response = if *again { last.clone() } else { play.respond(&mut watched, *approved, *forged) };
                let Some(response) = response else { continue };
                let asked = watched.stage.state()["approvals"].clone();
                let counts = asked.as_array().unwrap().iter().any(|asked| {
                    asked["id"] == json!(response.id)
                        && asked["hash"] == json!(response.hash)
                        && response.arguments.as_ref().is_none_or(|arguments| *arguments == asked["arguments"])
                });
                if counts && response.approved {
                    *watched.agreed.entry(response.hash.clone()).or_default() += 1;
                }
                last = Some(response.clone());
                watched.stage.handle(AgentEvent::Approval(response));
            }
            Act::TopUp(more) => {
                watched.topped += more;
                let more = Some(*more);
                let top_up =
                    TopUp { tokens: more, cost_micros: more, calls: more, wall_ms: more, allow_unpriced: false };
                watched.stage.handle(AgentEvent::TopUp(top_up));
            }
            Act::Lend(more, last) => {
                watched.share = watched.share.plus(*more);
                let asks = matches!(watched.stage.agent.halt(), Some(Halt::Share { .. }));
                *watched.done.entry("asked for more".to_owned()).or_default() += u64::from(asks);
                watched.stage.handle(AgentEvent::Lent(Lent { more: *more, calls: None, last: *last }));
            }
            Act::Pause => {
                watched.stage.handle(AgentEvent::Pause { reason: "lunch".into() });
                watched.paused = !watched.stage.agent.is_over();
            }
            Act::Resume => {
                watched.paused = false;
                watched.stage.handle(AgentEvent::Resume);
            }
            Act::Cancel => watched.stage.handle(AgentEvent::Cancel { reason: "enough".into() }),
            Act::Wait(ms) => watched.stage.now = watched.stage.now.plus(Duration::from_millis(*ms)),
        }
        watched.look()?;
    }
    end(&mut watched, &mut play)?;
    let mut done = watched.done;
    done.insert("refusals".to_owned(), watched.stage.agent.output().refusals);
    Ok(done)
}

/// However it goes on, it comes to rest; and a cancellation ends it.
fn end(watched: &mut Watched, play: &mut Play) -> Result<(), String> {
    for _ in 0..5_000 {
        if watched.stage.agent.is_over() {
            break;
        }
        let next = watched.stage.open.iter().position(|ask| !matches!(ask, AgentRequest::WallTimer { .. }));
        match next {
            Some(at) => play.answer(watched, at, None)?,
            None => watched.stage.handle(AgentEvent::Cancel { reason: "the case ends".into() }),
        }
        watched.look()?;
    }
    if !watched.stage.agent.is_over() {
        return Err("it does not end".to_owned());
    }
    match watched.held.is_empty() {
        true => Ok(()),
        false => Err(format!("{:?} is held after the end", watched.held)),
    }
}

/// G41.
#[test]
fn whatever_a_model_says_nothing_outside_the_policy_is_dispatched_and_the_budget_is_exact() {
    let cases = std::env::var("BOSUN_CASES").ok().and_then(|text| text.parse().ok()).unwrap_or(2_000);
    let mut runner = TestRunner::new(Config { cases, failure_persistence: None, ..Config::default() });
    let all = std::cell::RefCell::new(BTreeMap::<String, u64>::new());
    let run = runner.run(&case(), |case| {
        for (what, times) in live(case).map_err(TestCaseError::fail)? {
            *all.borrow_mut().entry(what).or_default() += times;
        }
        Ok(())
    });
    if let Err(why) = run {
        panic!("{why}");
    }
    // Cases in which nothing is done would doubt nothing.
    for what in ["process", "http", "file", "pay", "agent", "refusals", "asked for more"] {
        assert!(all.borrow().get(what).is_some_and(|times| *times > 10), "{what}: {all:?}");
    }
    println!("{cases} cases: {:?}", all.borrow());
}
