//! What reports of talk claim: chats, delegations, crews and hand-offs, with random agents, people and faults (promise: no
//! report claims what nobody said).
//!
//! Invariant: a result is the words of somebody who was asked, and a success needs such words; who says what is written
//! here once. That the judging can fail is shown with reports that lie.

use proptest::prelude::*;
use proptest::sample::select;
use serde_json::{Value, json};

use super::claims::Outside;
use crate::scene::kit::*;

/// Agents who talk or call each other: who answers, and how.
#[derive(Debug, Clone)]
pub(super) struct Talk {
    preset: &'static str,
    words: Vec<&'static str>,
    rounds: u32,
    on_error: &'static str,
    with_rule: bool,
    /// What a person says of the first turn, tool or agent that they are asked about; nobody is asked without it.
    pub(super) asked: &'static str,
    pub(super) outside: Outside,
}

pub(super) const TALKS: [&str; 9] = [
    "autogen-groupchat",
    "autogen-groupchat-selector",
    "autogen-groupchat-swarm",
    "autogen-groupchat-magentic",
    "crewai-hierarchical",
    "swarm-handoff",
    "langgraph-supervisor",
    "supyagent-delegation",
    "cuga-conversational",
];

pub(super) fn talks() -> impl Strategy<Value = Talk> {
    let words =
        proptest::collection::vec(select(&["says", "breaks", "mute", "says", "mumbles", "hushes", "stalls"][..]), 2..4);
    let asked = select(&["", "", "", "approve", "reject", "silence"][..]);
    let rules = (select(vec!["stop", "skip", "retry"]), any::<bool>(), asked);
    (select(&TALKS[..]), words, 1..5u32, rules, Outside::any()).prop_map(
        |(preset, words, rounds, (on_error, with_rule, asked), outside)| Talk {
            preset,
            words,
            rounds,
            on_error,
            with_rule,
            asked,
            outside,
        },
    )
}

impl Talk {
    pub(super) fn spec(&self) -> String {
        let chat = self.preset.starts_with("autogen");
        let crew = self.preset == "crewai-hierarchical";
        let agent = |n: usize| {
            let delegates: Vec<String> =
                (0..self.words.len()).filter(|other| *other != n).map(|n| format!("w{n}")).collect();
            // A chat has no delegates, and its spec may not speak of them; a crew's manager is its own.
            let delegates =
                if chat || crew { String::new() } else { format!(", delegates: [{}]", delegates.join(", ")) };
            format!("{{ name: w{n}, timeout: 60s{delegates} }}")
        };
        let agents: Vec<String> = (0..self.words.len()).map(agent).collect();
        let speaker = match self.preset {
            "autogen-groupchat" => format!("speaker: {{ method: round_robin, on_error: {} }}", self.on_error),
            _ if chat => format!("speaker: {{ on_error: {} }}", self.on_error),
            _ if crew => "manager_agent: { name: manager }\nseed_plan: { plan: { objective: hello, tasks: [{ task_id: 1, sub_task_objective: hello, capability: any }, { task_id: 2, sub_task_objective: again, capability: any, sub_task_dependencies: [1] }] } }".to_owned(),
            _ => String::new(),
        };
        let rounds = if chat { format!("loop: {{ max_rounds: {} }}", self.rounds + 1) } else { String::new() };
        let people = if self.asked.is_empty() { "" } else { "hitl: { mode: human_in_command }" };
        format!(
            "kind: supervisor\nname: talk\npreset: {}\nobjective: hello\nagents: [{}]\n{speaker}\n{rounds}\n{people}\n",
            self.preset,
            agents.join(", ")
        )
    }

    /// Who says what. Nobody is left out: who is mute says so.
    pub(super) fn world(&self) -> Value {
        let mut rules = Vec::new();
        if self.preset == "crewai-hierarchical" {
            let asks = json!({ "name": "Delegate work to coworker", "args": { "task": "hello", "context": "so", "coworker": "w0" } });
            rules.push(
                json!({ "on": "execute_worker", "agent": "manager", "round": 1, "say": { "tool_calls": [asks] } }),
            );
            rules.push(json!({ "on": "execute_worker", "agent": "manager", "say": "a word of manager" }));
        }
        for (n, word) in self.words.iter().enumerate() {
            let agent = format!("w{n}");
            rules.push(match *word {
                "says" => json!({ "on": "execute_worker", "agent": agent, "after": 1, "say": "a word of {{agent}}" }),
                "mumbles" => json!({ "on": "execute_worker", "agent": agent, "after": 1, "say": { "tool_calls": 7 } }),
                "hushes" => json!({ "on": "execute_worker", "agent": agent, "after": 1, "say": "" }),
                "stalls" => json!({ "on": "execute_worker", "agent": agent, "after": 120, "say": "too late" }),
                why => json!({ "on": "execute_worker", "agent": agent, "after": 1, "fail": why }),
            });
        }
        match (self.preset, self.with_rule) {
            (_, false) => rules.push(json!({ "on": "decide", "fail": "nobody decides" })),
            ("autogen-groupchat-magentic", true) => {
                let says = |answer: Value| json!({ "answer": answer, "reason": "so" });
                let ledger = |over: bool| {
                    json!({ "is_request_satisfied": says(over.into()), "is_in_loop": says(false.into()),
                        "is_progress_being_made": says(true.into()), "next_speaker": says("w1".into()),
                        "instruction_or_question": says("go on".into()) })
                };
                rules.push(json!({ "on": "decide", "round": self.rounds, "say": ledger(true) }));
                rules.push(json!({ "on": "decide", "say": ledger(false) }));
            }
            (_, true) => rules.push(json!({ "on": "decide", "say": "w1" })),
        }
        rules.push(json!({ "on": "plan", "say": "a plan" }));
        rules.push(json!({ "on": "synthesize", "say": "summed up" }));
        rules.into()
    }

    fn play(&self) -> SceneRun {
        self.play_with("")
    }

    /// With these keys of the spec besides.
    pub(super) fn play_with(&self, keys: &str) -> SceneRun {
        let spec = format!("{}{keys}\n", self.spec());
        let scene = self.outside.of(SceneText::new(&spec).world(self.world()));
        match self.asked {
            "approve" | "reject" => {
                let act = json!({ "do": self.asked, "by": "ann", "after": 1, "comment": "not with me" });
                scene.once(json!({ "approval": "any" }), Act::Do(act)).straight()
            }
            _ => scene.straight(),
        }
    }

    /// Whether what is reported was said, by these.
    fn judge(&self, report: &Value, said: &[(String, Value)]) -> Result<(), TestCaseError> {
        let result = report["final_result"].as_str().unwrap_or_default();
        let by_somebody = said.iter().any(|(_, answer)| answer.to_string().contains(result));
        prop_assert!(result.is_empty() || by_somebody, "nobody said that: {report:#}\n{said:?}");
        // What an orchestrator sums up is somebody's answer too.
        let answers = ["execute_worker", "synthesize"];
        let spoken = said.iter().any(|(on, answer)| answers.contains(&on.as_str()) && answer.is_string());
        prop_assert!(report["success"] != true || spoken, "a success in which nobody spoke: {report:#}\n{said:?}");
        prop_assert!(report["success"] != true || report["error"].is_null(), "{report:#}");
        Ok(())
    }
}

proptest! {
    #![proptest_config(cases(120))]

    #[test]
    fn no_report_of_talk_claims_what_nobody_said(talk in talks()) {
        let played = talk.play();
        talk.judge(&played.report(), &played.said)?;
    }
}

/// The judging has teeth: reports that lie about the same words are found out.
#[test]
fn reports_of_talk_that_lie_are_found_out() {
    let talk = |words: &[&'static str]| Talk {
        preset: "autogen-groupchat",
        words: words.to_vec(),
        rounds: 2,
        on_error: "skip",
        with_rule: false,
        asked: "",
        outside: Outside::Nothing,
    };
    let (good, none) = (talk(&["says", "says"]), talk(&["breaks", "mute"]));
    let played = good.play();
    let report = played.report();
    good.judge(&report, &played.said).unwrap();
    assert_eq!(report["success"], true, "{report:#}");
    let lie = json!({ "success": true, "final_result": "a word of w7" });
    assert!(good.judge(&lie, &played.said).unwrap_err().to_string().contains("nobody said that"));
    let silent = none.play();
    none.judge(&silent.report(), &silent.said).unwrap();
    let lie = json!({ "success": true, "final_result": null });
    assert!(none.judge(&lie, &silent.said).unwrap_err().to_string().contains("nobody spoke"));
}
