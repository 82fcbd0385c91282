//! Budgets in every family and preset, for random budgets, costs, faults and people (promise: a run spends what its budget
//! has, and what the calls cost that were under way when it was used up, and one last word; nothing it paid is lost, and a
//! call of unknown price is told as that, ends a run whose money is limited, and is never 0).
//!
//! Invariant: what was paid is judged from the answers that were given, never from what the run says of itself. Runs are
//! scenes, on the production worker; every answer of a life costs the same, or is of unknown price, so that the bound is a
//! number.

use proptest::prelude::*;
use proptest::sample::select;
use serde_json::{Value, json};

use super::claims::Outside;
use crate::scene::kit::*;
use crate::supervisor::spec::Preset;

/// Agents at work at the same time, at most.
const AT_ONCE: u64 = 3;

/// What answers say that they took.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Paid {
    tokens: u64,
    micros: u64,
    /// How many do not say what they cost.
    unpriced: u64,
}

fn dollars(micros: u64) -> f64 {
    micros as f64 / 1e6
}

#[derive(Debug, Clone)]
struct Spending {
    preset: &'static str,
    /// What each answer costs.
    cost: u64,
    /// The same in millionths of a dollar.
    price: u64,
    /// Whose answers do not say their price.
    unpriced: &'static str,
    /// Such calls may go on.
    allowed: bool,
    money: Option<u64>,
    tokens: Option<u64>,
    calls: Option<u64>,
    wall: Option<u64>,
    then: &'static str,
    after: u64,
    outside: Outside,
}

fn spendings() -> impl Strategy<Value = Spending> {
    let presets: Vec<&'static str> = Preset::ALL.iter().map(|preset| preset.name()).collect();
    let limits = (
        proptest::option::of(0..200u64),
        proptest::option::weighted(0.3, 0..8u64),
        proptest::option::weighted(0.2, 1..8u64),
    );
    let whose = select(vec!["", "", "", "plan", "execute_worker", "decide", "review", "synthesize"]);
    let money = (0..3_000u64, whose, any::<bool>(), proptest::option::of(0..20_000u64));
    let rest = (select(vec!["", "stop", "fail", "ask"]), 0..3u64, Outside::any());
    (select(presets), 1..60u64, money, limits, rest).prop_map(
        |(preset, cost, (price, unpriced, allowed, money), (tokens, calls, wall), (then, after, outside))| Spending {
            preset,
            cost,
            price,
            unpriced,
            allowed,
            money,
            tokens,
            calls,
            wall,
            then,
            after,
            outside,
        },
    )
}

impl Spending {
    fn is_chat(&self) -> bool {
        self.preset.starts_with("autogen")
    }

    /// The spec as a user writes it.
    fn spec(&self) -> String {
        let crew = "manager_llm: m\nseed_plan: { plan: { objective: o, tasks: [{ task_id: 1, sub_task_objective: one, capability: any, parameters: { async_execution: true } }, { task_id: 2, sub_task_objective: two, capability: any }, { task_id: 3, sub_task_objective: three, capability: any, parameters: { guardrail: g } }] } }";
        let seed = "seed_plan: { plan: { objective: o, tasks: [{ task_id: 1, sub_task_objective: one, capability: w0 }, { task_id: 2, sub_task_objective: two, capability: w1 }, { task_id: 3, sub_task_objective: three, capability: w0, sub_task_dependencies: [1], is_final: true }] } }";
        let both = seed.replace("sub_task_dependencies: [1]", "sub_task_dependencies: [1, 2]");
        let (agents, own) = match self.preset {
            "autogen-groupchat-magentic" => ("{ name: w0 }, { name: w1 }", "loop: { max_rounds: 4 }"),
            _ if self.is_chat() => ("{ name: w0 }, { name: w1 }, { name: w2 }", "loop: { max_rounds: 5 }"),
            "crewai-hierarchical" => ("{ name: w0 }", crew),
            "swarm-handoff" | "langgraph-supervisor" | "supyagent-delegation" | "cuga-conversational" => {
                ("{ name: w0, delegates: [w1, w2] }, { name: w1 }, { name: w2 }", "")
            }
            "cuga-structured" => ("{ name: w0 }, { name: w1 }", "planning: { force: true }"),
            "shannon-supervisor" => ("{ name: w0 }, { name: w1 }", "routing: { enabled: false }"),
            "pydantask-fixed" | "pydantask-hybrid" | "pydantask-llm" => ("{ name: w0 }, { name: w1 }", seed),
            // What is ready starts at once: the last task waits for both, so that there is one to withhold.
            "plan-run" => ("{ name: w0 }, { name: w1 }", both.as_str()),
            _ => ("{ name: w0 }, { name: w1 }", ""),
        };
        let own = if self.preset == "pydantask-llm" { "" } else { own };
        let parts = [
            self.tokens.map(|tokens| format!("tokens: {tokens}")),
            self.calls.map(|calls| format!("llm_calls: {calls}")),
            self.wall.map(|wall| format!("wall: {wall}s")),
            self.money.map(|money| format!("cost: {}", dollars(money))),
            (self.money.is_some() && self.allowed).then(|| "allow_unpriced: true".to_owned()),
            (!self.then.is_empty()).then(|| format!("on_exhausted: {}", self.then)),
        ];
        let budget: Vec<String> = parts.into_iter().flatten().collect();
        format!(
            "kind: supervisor\nname: life\npreset: {}\nobjective: o\nagents: [{agents}]\n{own}\nbudget: {{ {} }}\n",
            self.preset,
            budget.join(", ")
        )
    }

    /// Who says what; every answer costs the same.
    fn world(&self) -> Value {
        let paid = |on: &str, mut answer: Value| {
            answer["tokens"] = self.cost.into();
            answer["cost_usd"] = if on == self.unpriced { Value::Null } else { dollars(self.price).into() };
            answer
        };
        let rule = |on: &str, more: Value, answer: Value| {
            let mut rule = json!({ "on": on, "after": self.after, "say": paid(on, answer) });
            rule.as_object_mut().unwrap().extend(more.as_object().cloned().unwrap());
            rule
        };
        let always = json!({});
        let mut rules = vec![rule(
            "synthesize",
            always.clone(),
            json!({ if self.is_chat() { "content" } else { "result" }: "summed up" }),
        )];
        match self.preset {
            "autogen-groupchat-magentic" => {
                let says = |answer: Value| json!({ "answer": answer, "reason": "so" });
                let ledger = |over: bool| {
                    json!({ "is_request_satisfied": says(over.into()), "is_in_loop": says(false.into()),
                        "is_progress_being_made": says(true.into()), "next_speaker": says("w1".into()),
                        "instruction_or_question": says("go on".into()) })
                };
                rules.push(rule("decide", json!({ "round": 3 }), ledger(true)));
                rules.push(rule("decide", always.clone(), ledger(false)));
                rules.push(rule("plan", always.clone(), json!({ "content": "a plan" })));
                rules.push(rule("execute_worker", always, json!({ "content": "a word" })));
            }
            _ if self.is_chat() => {
                rules.push(rule("decide", always.clone(), json!({ "name": "w1" })));
                rules.push(rule("execute_worker", always, json!({ "content": "a word" })));
            }
            "crewai-hierarchical" => {
                rules.push(rule("review", always.clone(), json!({ "success": true })));
                rules.push(rule("execute_worker", always, json!({ "content": "a word" })));
            }
            "swarm-handoff" | "langgraph-supervisor" => self.hands(&mut rules, "transfer_to_", json!({}), &rule),
            "supyagent-delegation" | "cuga-conversational" => {
                self.hands(&mut rules, "delegate_to_", json!({ "task": "t" }), &rule);
            }
            _ => self.plans(&mut rules, &rule),
        }
        rules.into()
    }

    fn hands(&self, rules: &mut Vec<Value>, tool: &str, args: Value, rule: &dyn Fn(&str, Value, Value) -> Value) {
        let call = |name: &str| json!({ "name": format!("{tool}{name}"), "args": args });
        let both = json!({ "tool_calls": [call("w1"), call("w2")] });
        rules.push(rule("execute_worker", json!({ "agent": "w0", "round": 1 }), both));
        rules.push(rule("execute_worker", json!({}), json!({ "content": "a word" })));
    }

    fn plans(&self, rules: &mut Vec<Value>, rule: &dyn Fn(&str, Value, Value) -> Value) {
        let always = json!({});
        let tasks = json!([{ "id": "1", "goal": "one", "agent": "w0" }, { "id": "2", "goal": "two", "agent": "w1" },
            { "id": "3", "goal": "three", "agent": "w0", "deps": ["1"] }]);
        rules.push(rule("plan", always.clone(), json!({ "tasks": tasks })));
        rules.push(rule("execute_worker", always.clone(), json!({ "result": "a word" })));
        let verdict = |id: &str| json!({ "taskId": id, "verdict": "accepted", "feedback": "so", "score": 1 });
        rules.push(match self.preset {
            "flow-supervisor" => rule(
                "review",
                always.clone(),
                json!({ "assessments": [verdict("1"), verdict("2"), verdict("3")],
                "needsReplanning": false, "overallAssessment": "so" }),
            ),
            preset if preset.starts_with("pydantask") => {
                rule("review", always.clone(), json!({ "passed": true, "reasoning": "so" }))
            }
            _ => rule("review", always.clone(), json!({ "verdict": "accepted", "feedback": "so", "score": 1 })),
        });
        if self.preset.starts_with("pydantask") {
            let add = |what: &str, args: Value| json!({ "tool": what, "args": args });
            let first = json!({ "tool_calls": [add("add_task", json!({ "sub_task_objective": "one", "capability": "w0" })),
                add("mark_final_task", json!({ "task_id": 1 }))], "tasks_to_execute": [1] });
            if self.preset == "pydantask-llm" {
                rules.push(rule("decide", json!({ "round": 1 }), first));
            }
            rules.push(rule("decide", json!({ "round": 4 }), json!({ "all_tasks_completed": true })));
            rules.push(rule("decide", always, json!({ "tasks_to_execute": [1, 2, 3] })));
        } else if self.preset == "cuga-structured" {
            let so_far = json!({ "subtasks_progress": ["not-started", "not-started", "not-started"] });
            rules.push(rule("decide", always, so_far));
        } else {
            rules.push(rule("decide", always, json!({ "decision": "continue" })));
        }
    }

    fn play(&self) -> SceneRun {
        self.outside.of(SceneText::new(&self.spec()).world(self.world())).until(100_000).straight()
    }

    /// What was paid, by the answers that were given.
    fn paid(played: &SceneRun) -> Paid {
        let answers = || played.said.iter().map(|(_, answer)| answer).filter(|answer| answer["tokens"].is_u64());
        let money = |answer: &Value| Some((answer["cost_usd"].as_f64()? * 1e6).round() as u64);
        Paid {
            tokens: answers().filter_map(|answer| answer["tokens"].as_u64()).sum(),
            micros: answers().filter_map(money).sum(),
            unpriced: answers().filter(|answer| money(answer).is_none()).count() as u64,
        }
    }

    /// The budget, what was under way when it was used up, and one last word.
    fn bounded(&self, Paid { tokens, micros, unpriced }: Paid) -> Result<(), TestCaseError> {
        let most = self.money.map(|budget| budget + (AT_ONCE + 1) * self.price);
        prop_assert!(most.is_none_or(|most| micros <= most), "{micros} of {:?}, {} a call", self.money, self.price);
        let free = self.money.is_none() || self.allowed;
        prop_assert!(
            free || unpriced <= AT_ONCE + 1,
            "{unpriced} calls of unknown price in a run whose money is limited"
        );
        let most = self.tokens.map(|budget| budget + (AT_ONCE + 1) * self.cost);
        prop_assert!(most.is_none_or(|most| tokens <= most), "{tokens} of {:?}, {} a call", self.tokens, self.cost);
        Ok(())
    }

    fn judge(&self, report: &Value, paid: Paid) -> Result<(), TestCaseError> {
        let of = |key: &str| report[key].as_u64().unwrap_or_default();
        let charged = Paid { tokens: of("tokens"), micros: of("cost_micros"), unpriced: of("unpriced_calls") };
        let calls = of("calls");
        let within =
            charged.tokens <= paid.tokens && charged.micros <= paid.micros && charged.unpriced <= paid.unpriced;
        prop_assert!(within, "charged {charged:?} of {paid:?}: {report:#}");
        // A call that is cut tells nobody what it cost: by a person, or where the run fails as soon as the budget is spent.
        let by_a_person = matches!(self.outside, Outside::Cancelled(_) | Outside::TakenOver(_));
        let cut = by_a_person || (self.then == "fail" && report["code"] == "budget_exhausted");
        prop_assert!(cut || charged == paid, "what {paid:?} were paid for is charged with {charged:?}: {report:#}");
        self.bounded(charged)?;
        if let Some(budget) = self.calls {
            prop_assert!(calls <= budget + 1, "{calls} calls of {budget}: {report:#}");
        }
        let ended = report["code"] == "budget_exhausted";
        prop_assert!(!(ended && report["success"] == true), "a success that the budget ended: {report:#}");
        let none = self.tokens.is_none() && self.calls.is_none() && self.wall.is_none() && self.money.is_none();
        prop_assert!(!(ended && none), "no budget ends a run: {report:#}");
        Ok(())
    }
}

proptest! {
    #![proptest_config(cases(240))]

    #[test]
    fn no_run_spends_more_than_its_budget_and_what_was_under_way(life in spendings()) {
        // A key that has no effect in this preset is refused, and that is shown elsewhere.
        prop_assume!(crate::supervisor::spec::read_spec("life", &life.spec()).is_ok());
        let played = life.play();
        let paid = Spending::paid(&played);
        life.bounded(paid)?;
        // One that asks for more waits for people, and tells its end later.
        if !played.open {
            life.judge(&played.report(), paid)?;
        }
    }
}

/// Money that nobody names is told as unknown by every preset, and ends a run whose money is limited, before it is allowed.
#[test]
fn no_preset_takes_an_unknown_price_for_nothing() {
    for preset in Preset::ALL {
        for unpriced in ["plan", "execute_worker", "decide", "review", "synthesize"] {
            let life = |money, allowed| Spending {
                preset: preset.name(),
                cost: 10,
                price: 1_000,
                unpriced,
                allowed,
                money,
                tokens: None,
                calls: None,
                wall: None,
                then: "",
                after: 1,
                outside: Outside::Nothing,
            };
            let played = life(None, false).play();
            let paid = Spending::paid(&played);
            life(None, false).judge(&played.report(), paid).unwrap();
            let (limited, allowed) = (life(Some(1_000_000), false), life(Some(1_000_000), true));
            let played = limited.play();
            limited.judge(&played.report(), Spending::paid(&played)).unwrap();
            // Behind its last call nothing is left undone.
            let (ended, last) = (&played.report()["code"] == "budget_exhausted", unpriced == "synthesize");
            assert!(paid.unpriced < 2 || ended || last, "{preset}, {unpriced}: {:#}", played.report());
            assert_eq!(
                played.noted("BudgetExhausted").iter().filter(|note| note["what"] == "unpriced").count(),
                usize::from(ended)
            );
            let played = allowed.play();
            assert_eq!(
                (Spending::paid(&played), &played.report()["success"]),
                (paid, &json!(true)),
                "{preset}, {unpriced}"
            );
        }
    }
}

/// The judging has teeth, and without a budget every preset does what it is asked to.
#[test]
fn every_preset_has_its_life() {
    for preset in Preset::ALL {
        let life = Spending {
            preset: preset.name(),
            cost: 10,
            price: 1_000,
            unpriced: "",
            allowed: false,
            money: None,
            tokens: None,
            calls: None,
            wall: None,
            then: "",
            after: 1,
            outside: Outside::Nothing,
        };
        let played = life.play();
        let (report, paid) = (played.report(), Spending::paid(&played));
        assert_eq!(report["success"], true, "{preset}: {report:#}");
        assert!(paid.tokens >= 10, "{preset}: {paid:?}");
        life.judge(&report, paid).unwrap();
        let bounded = Spending { tokens: Some(15), ..life };
        let found = bounded.judge(&report, paid).is_err();
        assert_eq!(found, paid.tokens > 55, "{preset}: {paid:?} of 15");
        for key in ["tokens", "cost_micros"] {
            let mut lost = report.clone();
            lost[key] = (report[key].as_u64().unwrap() - 10).into();
            assert!(bounded.judge(&lost, paid).is_err(), "{preset}: {key}");
        }
        let played = bounded.play();
        bounded.judge(&played.report(), Spending::paid(&played)).unwrap();
        let told = (&played.report()["success"], &played.report()["code"]);
        assert!(
            paid.tokens <= 20 || told == (&json!(false), &json!("budget_exhausted")),
            "{preset}: {:#}",
            played.report()
        );
    }
}
