//! Whom and what runs wait for, as `describe`, `list` and the live tree show it.
//!
//! Invariant: it is what the run itself answers to `waiting` (supervisors) or `approvals` and `state` (agents), with the command
//! that helps as the budget stands now (`spent`); a run that cannot answer now says nothing, and nothing else of it is hidden
//! for that. It answers nothing.

use bosun_engine::*;
use serde_json::Value;

use super::error::one_line;
use super::list::run_word;
use super::reach::Reach;
use super::result::value_text;
use super::spent::{self, TOP_UP};
use crate::agent::AGENT;
use crate::backend::Backend;
use crate::inbox::{target_of, tool_call_id};
use crate::supervisor::PLAN_RUN;
use crate::supervisor::run::SUPERVISOR;

/// Who gives an agent its share of a budget: no person.
pub(crate) const ABOVE: &str = "the run above it";

/// One thing that a run waits for.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub(crate) struct WaitingRow {
    pub id: String,
    pub whom: String,
    pub what: String,
    /// The command that answers.
    pub answer: String,
    /// It is the run `id` that is held, and how.
    #[serde(skip)]
    pub hold: Option<Hold>,
}

pub(crate) use bosun_engine::Hold;

fn hold_named(kind: &str) -> Option<Hold> {
    match kind {
        "pause" => Some(Hold::Paused),
        "takeover" => Some(Hold::TakenOver),
        _ => None,
    }
}

/// What stands for the status of a run that is open and cannot go on.
pub(crate) const HELD: &str = "Held";

/// The status of a run as every door shows it, the command line, the pages and `top`: that it is held, how people hold it
/// (SHN-74), or else the engine's word.
pub(crate) fn status_shown(status: WorkflowStatus, held: bool, hold: Option<Hold>) -> String {
    match hold {
        _ if !status.is_open() => status.to_string(),
        _ if held => HELD.to_owned(),
        Some(hold) => hold.title().to_owned(),
        None => status.to_string(),
    }
}

/// How people hold this run itself (SHN-74), among all that it waits for.
pub(crate) fn hold_of(info: &RunInfo, waits: &[WaitingRow]) -> Option<Hold> {
    waits.iter().filter(|one| one.id == info.workflow_id.as_str()).find_map(|one| one.hold)
}

/// The verbs of a person that name a held run by its id.
const OF_HELD: [&str; 3] = [TOP_UP, "bosun resume ", "bosun release "];

/// The command that answers an entry of the query `waiting`, as it can be pasted. A run tells its id as it is; what was made
/// with the word of a run already (`spent`) stays as it stands: a word that differs from its id never begins with it.
pub(crate) fn answer_of(entry: &Value) -> String {
    let [kind, id, told] = ["kind", "id", "answer"].map(|key| entry[key].as_str().unwrap_or_default());
    match kind {
        // A plan is called by its run and its version.
        "plan" => match id.rsplit_once('#') {
            Some((run, version)) => format!("bosun plan approve {} --version {version}", run_word(run)),
            None => told.to_owned(),
        },
        "pause" | "takeover" => {
            let verb = OF_HELD.into_iter().find(|verb| told.starts_with(verb));
            let parts = verb.and_then(|verb| Some((verb, told.strip_prefix(verb)?.strip_prefix(id)?)));
            match parts.filter(|(_, rest)| rest.is_empty() || rest.starts_with(' ')) {
                Some((verb, rest)) => format!("{verb}{}{rest}", run_word(id)),
                None => told.to_owned(),
            }
        }
        // What else waits has an id of its own, without anything that a shell or a verb would read.
        _ => told.to_owned(),
    }
}

impl WaitingRow {
    /// An entry of the query `waiting`, or of `progress`.
    pub(crate) fn of(value: &Value) -> WaitingRow {
        let text = |key: &str| value[key].as_str().map(str::to_owned).unwrap_or_default();
        let hold = value["kind"].as_str().and_then(hold_named);
        WaitingRow { id: text("id"), whom: text("whom"), what: text("what"), answer: answer_of(value), hold }
    }

    fn of_tool_call(run: &RunId, value: &Value) -> WaitingRow {
        let id = tool_call_id(*run, value);
        let what = format!("the approval of the tool {} {}", value_text(&value["tool"]), value["arguments"]);
        WaitingRow { whom: "a person".into(), what, answer: format!("bosun approval approve {id}"), id, hold: None }
    }

    /// For programs; the command as it can be run.
    pub(super) fn json(&self, reach: &Reach) -> Value {
        serde_json::json!({ "id": self.id, "whom": self.whom, "what": self.what, "answer": reach.complete(&self.answer) })
    }

    pub(super) fn text(&self, reach: &Reach) -> String {
        format!("waits for {}: {} (`{}`)", self.whom, self.what, reach.complete(&self.answer))
    }
}

/// What an open run waits for.
pub(crate) async fn waiting(backend: &dyn Backend, info: &RunInfo) -> Vec<WaitingRow> {
    match info.workflow_type.as_str() {
        SUPERVISOR | PLAN_RUN if info.status.is_open() => of_supervisor(backend, &target_of(info)).await,
        AGENT if info.status.is_open() => of_agent(backend, info).await,
        _ => Vec::new(),
    }
}

/// How people hold an open run, by one question and without all that it waits for; nothing where it cannot say.
pub(crate) async fn own_hold(backend: &dyn Backend, info: &RunInfo) -> Option<Option<Hold>> {
    let target = target_of(info);
    let rows = match info.workflow_type.as_str() {
        SUPERVISOR | PLAN_RUN => match said(backend, &target, "waiting").await? {
            Value::Array(told) => told.iter().map(WaitingRow::of).collect(),
            _ => Vec::new(),
        },
        AGENT => of_pause(info, &said(backend, &target, "state").await?).into_iter().collect(),
        _ => return Some(None),
    };
    Some(hold_of(info, &rows))
}

async fn said(backend: &dyn Backend, target: &Target, query: &str) -> Option<Value> {
    let answer = backend.query(target.clone(), QueryName::of(query), Payload::null()).await;
    answer.ok().map(|payload| payload.to_json())
}

async fn answer(backend: &dyn Backend, target: &Target, query: &str) -> Value {
    said(backend, target, query).await.unwrap_or_default()
}

async fn of_supervisor(backend: &dyn Backend, target: &Target) -> Vec<WaitingRow> {
    let mut told = match answer(backend, target, "waiting").await {
        Value::Array(told) => told,
        _ => Vec::new(),
    };
    spent::as_it_stands(backend, &target.namespace, &mut told).await;
    told.iter().map(WaitingRow::of).collect()
}

/// The calls that it asks to be allowed, and why it has halted or is paused.
async fn of_agent(backend: &dyn Backend, info: &RunInfo) -> Vec<WaitingRow> {
    let target = target_of(info);
    let state = answer(backend, &target, "state").await;
    let asked = state["approvals"].as_array().into_iter().flatten();
    let mut all: Vec<WaitingRow> = asked.map(|one| WaitingRow::of_tool_call(&info.run_id, one)).collect();
    let halted = &state["halted"];
    if let Some(what) = spent::share(halted) {
        let above = info.parent.as_ref().map_or(info.workflow_id.as_str(), |parent| parent.workflow_id.as_str());
        let answer = format!("bosun budget show {}", run_word(above));
        all.push(WaitingRow { id: above.to_owned(), whom: ABOVE.into(), what, answer, hold: None });
    } else if halted["budget"].is_object() {
        let id = info.workflow_id.as_str();
        let (what, answer) = spent::of_agent(id, &answer(backend, &target, "budget").await)
            .unwrap_or_else(|| ("more budget".to_owned(), format!("bosun budget show {}", run_word(id))));
        all.push(WaitingRow { id: id.to_owned(), whom: "a person".into(), what, answer, hold: None });
    } else {
        all.extend(of_pause(info, &state));
    }
    all
}

/// Why an agent goes on only when somebody lets it, if not for its budget.
fn of_pause(info: &RunInfo, state: &Value) -> Option<WaitingRow> {
    let halted = &state["halted"];
    if halted["share"].is_object() || halted["budget"].is_object() {
        return None;
    }
    let what = match (halted["needs_human"]["why"].as_str(), state["paused"].as_str()) {
        (Some(why), _) => format!("it has halted: {}", one_line(why)),
        (None, Some("")) => "to be resumed: it is paused".to_owned(),
        (None, Some(why)) => format!("to be resumed: it is paused: {}", one_line(why)),
        (None, None) => return None,
    };
    // A pause that a supervisor has handed down is lifted where it was made.
    let above = info.parent.as_ref().filter(|_| state["paused"].is_string());
    let id = above.map_or(&info.workflow_id, |parent| &parent.workflow_id).as_str();
    let answer = format!("bosun resume {}", run_word(id));
    Some(WaitingRow { id: id.to_owned(), whom: "a person".into(), what, answer, hold: Some(Hold::Paused) })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// A command that is told is about the run that told it, whatever its id reads as; one that names it so already stays.
    #[test]
    fn a_command_that_a_run_tells_names_it_by_its_word() {
        for (kind, id, told, answer) in [
            ("pause", "latest", "bosun budget top-up -w latest --calls 1", "bosun budget top-up -w latest --calls 1"),
            ("pause", "latest", "bosun resume latest", "bosun resume -w latest"),
            ("pause", "my run", "bosun resume my run", "bosun resume 'my run'"),
            ("pause", "my run", "bosun resume 'my run'", "bosun resume 'my run'"),
            ("pause", "my run", "bosun budget top-up my run --calls N", "bosun budget top-up 'my run' --calls N"),
            ("pause", "-a b", "bosun budget top-up -w='-a b' --calls 1", "bosun budget top-up -w='-a b' --calls 1"),
            ("pause", "order-7", "bosun resume order-77", "bosun resume order-77"),
            ("pause", "N", "bosun budget top-up N --calls N", "bosun budget top-up N --calls N"),
            ("takeover", "a#2", "bosun release a#2", "bosun release 'a#2'"),
            ("plan", "@2#1", "bosun plan approve @2 --version 1", "bosun plan approve -w @2 --version 1"),
            ("plan", "my run#3", "bosun plan approve my run --version 3", "bosun plan approve 'my run' --version 3"),
            ("plan", "a#b#3", "bosun plan approve a#b --version 3", "bosun plan approve 'a#b' --version 3"),
            ("approval", "r/ap-1", "bosun approval approve r/ap-1", "bosun approval approve r/ap-1"),
        ] {
            let entry = json!({ "kind": kind, "id": id, "answer": told });
            assert_eq!(answer_of(&entry), answer, "{entry}");
            assert_eq!(answer_of(&json!({ "kind": kind, "id": id, "answer": answer })), answer, "once is enough");
        }
    }
    use crate::fake::{Fake, run_info};

    /// No person is asked: others give back what they do not need.
    #[tokio::test]
    async fn an_agent_that_waits_for_its_share_of_a_budget_says_so() {
        let mut fake = Fake::new();
        let halted = json!({ "share": { "resource": "tokens", "wanted": 700 } });
        fake.query = Payload::encode(&json!({ "approvals": [], "halted": halted })).unwrap();
        let mut info = run_info("order-7-writer-1", WorkflowStatus::Running);
        info.workflow_type = WorkflowType::of(AGENT);
        let above = WorkflowId::of("order-7");
        info.parent = Some(Parent {
            workflow_id: above,
            run_id: info.run_id,
            seq: Seq(1),
            close_policy: ParentClosePolicy::Terminate,
        });
        let told = waiting(&fake, &info).await;
        let [row] = told.as_slice() else { panic!("{told:?}") };
        assert_eq!((row.whom.as_str(), row.answer.as_str()), (ABOVE, "bosun budget show order-7"));
        assert!(row.what.starts_with("its share of the run's budget: 700 tokens"), "{row:?}");
    }
}
