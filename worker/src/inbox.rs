//! What open supervisors and agents ask people, and what an answer says: for the command line, the API and the pages alike.
//!
//! Invariant: an answer names the very content that was shown, so that nobody approves what has changed since; an id names
//! one request of all runs. What comes out is a signal, which is kept also where the run is busy or nobody works. It sends
//! nothing, prints nothing, and whether an answer counts is decided by the run; `became` asks it.
//!
//! Long: what is asked and how it is answered, of supervisors and agents, in one place.

#[allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "shell")]
pub(crate) mod became;
mod before;

use bosun_engine::*;
use futures_util::{StreamExt, stream};
use serde_json::{Value, json};

pub(crate) use self::before::given_before;
use crate::agent::{AGENT, workflow::SIGNAL_APPROVAL};
use crate::api::people::{Cursor, filter_of, page_of};
use crate::backend::{Backend, CallError};
use crate::cli::request_text::with_moments;
use crate::cli::{run_word, spent};
use crate::supervisor::run::SUPERVISOR;

/// The signal that answers a question.
pub(crate) const SIGNAL_ANSWER: &str = "interrupt_resume_v1";
/// Runs that are looked at together.
pub(crate) const RUNS_MAX: usize = 1_000;
/// Of these, so many at a time.
const ASKED_AT_ONCE: usize = 8;
/// The types of runs that ask people.
pub(crate) const ASKING: [&str; 2] = [SUPERVISOR, AGENT];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HumanRequestKind {
    /// A supervisor's.
    Approval,
    Question,
    /// A tool call of an agent.
    ToolCall,
    /// A version of a plan, or a run that somebody holds: answered by other means than a decision.
    Elsewhere,
}

/// One thing that waits for a person.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct HumanRequest {
    pub kind: HumanRequestKind,
    /// The very run that asks.
    pub target: Target,
    /// As the run tells it; its `id` is one of all runs.
    pub request: Value,
}

/// What a person says to an approval.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct HumanDecision<'d> {
    pub approved: bool,
    /// Whom the answer names; the caller, where it names nobody.
    pub by: Option<&'d str>,
    pub comment: Option<&'d str>,
    pub modified_action: Option<&'d str>,
    pub feedback: Option<&'d str>,
}

/// A signal that answers, to the run that asked.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct HumanMessage {
    pub signal: &'static str,
    pub input: Value,
}

/// Why an answer is none to this request.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum AnswerMisfit {
    #[error("this is a question: answer it, instead of approving or rejecting it")]
    IsQuestion,
    #[error("this is an approval: approve or reject it, instead of answering it")]
    IsApproval,
    #[error("the call of a tool cannot be changed: approve it as it was shown, or reject it")]
    ToolCallIsAsShown,
    #[error("this has no action that could be changed: approve it, or reject it with feedback")]
    HasNoAction,
    #[error("this is neither a question nor an approval: its field `answer` names the command that answers it")]
    IsElsewhere,
    #[error("the answer is not what was asked for: {0}")]
    NotAsAsked(String),
}

/// The schema that a question says its answer has.
pub(crate) fn schema_of(payload: &Value) -> Option<&Value> {
    // A task for a person has what belongs to it in its parameters.
    let places = [payload, &payload["context"]].into_iter();
    let mut schemas = places.flat_map(|place| ["schema", "answer_schema", "response_schema"].map(|key| &place[key]));
    schemas.find(|schema| schema.is_object())
}

/// What of an answer its schema does not allow, each with its place. A schema that is none binds nobody.
pub(crate) fn misfits(schema: &Value, answer: &Value) -> Vec<(String, String)> {
    let Ok(validator) = jsonschema::validator_for(schema) else { return Vec::new() };
    validator.iter_errors(answer).map(|error| (error.instance_path().to_string(), error.to_string())).collect()
}

/// The words of a question, where it has any.
pub(crate) fn question_text(payload: &Value) -> &Value {
    let mut words = ["question", "message", "prompt", "text"].iter().map(|key| &payload[*key]);
    words.find(|text| text.is_string()).unwrap_or(payload)
}

/// A value that fits a schema, as an example; nothing where none is found at the first try.
pub(crate) fn example(schema: &Value) -> Option<Value> {
    let made = made_for(schema, 0)?;
    misfits(schema, &made).is_empty().then_some(made)
}

/// Schemas that are deeper have no example.
const EXAMPLE_DEPTH: usize = 6;

fn made_for(schema: &Value, depth: usize) -> Option<Value> {
    if depth > EXAMPLE_DEPTH {
        return None;
    }
    let given = schema.get("const").or(schema.get("default")).or(schema["examples"].get(0)).or(schema["enum"].get(0));
    if let Some(given) = given {
        return Some(given.clone());
    }
    if let Some(form) = schema["oneOf"].get(0).or(schema["anyOf"].get(0)) {
        return made_for(form, depth + 1);
    }
    let of_type = schema["type"].as_str().or(schema["type"][0].as_str());
    Some(match of_type {
        Some("boolean") => json!(true),
        Some("integer" | "number") => schema.get("minimum").or(schema.get("maximum")).cloned().unwrap_or(json!(1)),
        Some("array") => json!([]),
        Some("null") => Value::Null,
        None if schema.get("properties").is_none() => json!("..."),
        Some("object") | None => {
            let wanted = schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str);
            let member = |name: &str| Some((name.to_owned(), made_for(&schema["properties"][name], depth + 1)?));
            Value::Object(wanted.map(member).collect::<Option<_>>()?)
        }
        Some(_) => json!("..."),
    })
}

impl HumanRequest {
    /// An answer of the form that a question asks for.
    pub(crate) fn looks_like(&self) -> Option<Value> {
        schema_of(&self.request["payload"]).and_then(example)
    }

    pub(crate) fn id(&self) -> &str {
        self.request["id"].as_str().unwrap_or_default()
    }

    /// As lists tell it, those of the command line and of the API alike. `at` shows a moment.
    pub(crate) fn told(&self, at: impl Fn(Timestamp) -> Value) -> Value {
        let Target { workflow_id, run_id, namespace } = &self.target;
        json!({ "id": self.id(), "kind": self.word(), "workflow_id": workflow_id, "run_id": run_id,
            "namespace": namespace, "request": with_moments(&self.request, at) })
    }

    /// The hash of what is asked; empty where its id says which version is meant.
    pub(crate) fn shown(&self) -> &str {
        self.request["shown"].as_str().or(self.request["hash"].as_str()).unwrap_or_default()
    }

    /// What it is: `approval`, `question`, `tool_call`, or what else waits: `plan`, `takeover`, `pause`.
    pub(crate) fn word(&self) -> &str {
        match self.kind {
            HumanRequestKind::Approval => "approval",
            HumanRequestKind::Question => "question",
            HumanRequestKind::ToolCall => "tool_call",
            HumanRequestKind::Elsewhere => self.request["kind"].as_str().unwrap_or("plan"),
        }
    }

    /// Whether what is asked may be approved as well as answered: the output of a task (CRW-10), the call of a tool (CUG-39).
    pub(crate) fn is_yes_or_no(&self) -> bool {
        let kinds = ["/payload/kind/task_feedback", "/payload/kind/tool_approval"];
        kinds.iter().any(|kind| self.request.pointer(kind).is_some())
    }

    /// The decision on an approval.
    pub(crate) fn decided(&self, decision: &HumanDecision<'_>) -> Result<HumanMessage, AnswerMisfit> {
        let HumanDecision { approved, by, comment, modified_action, feedback } = *decision;
        let mut input = match self.kind {
            HumanRequestKind::Question if self.is_yes_or_no() && modified_action.is_some() => {
                return Err(AnswerMisfit::HasNoAction);
            }
            HumanRequestKind::Question if self.is_yes_or_no() => {
                let resume = json!({ "approved": approved, "feedback": feedback.or(comment).unwrap_or_default() });
                return Ok(HumanMessage {
                    signal: SIGNAL_ANSWER,
                    input: json!({ "interrupt_id": self.id(), "resume": resume }),
                });
            }
            HumanRequestKind::Question => return Err(AnswerMisfit::IsQuestion),
            HumanRequestKind::Elsewhere => return Err(AnswerMisfit::IsElsewhere),
            HumanRequestKind::ToolCall if modified_action.is_some() => return Err(AnswerMisfit::ToolCallIsAsShown),
            // The agent is told why, and knows its call by its own id.
            HumanRequestKind::ToolCall => {
                let own = self.id().split_once('/').map_or_else(|| self.id(), |(_, own)| own);
                json!({ "id": own, "hash": self.request["hash"], "approved": approved, "by": by,
                    "reason": feedback.or(comment).unwrap_or_default(), "arguments": self.request["arguments"] })
            }
            HumanRequestKind::Approval => json!({ "approval_id": self.id(), "approved": approved, "approver": by,
                "comment": comment, "modified_action": modified_action, "feedback": feedback,
                "shown": self.request["shown"] }),
        };
        if let Value::Object(members) = &mut input {
            members.retain(|_, value| !value.is_null());
        }
        Ok(HumanMessage { signal: SIGNAL_APPROVAL, input })
    }

    /// The answer to a question.
    pub(crate) fn answered(&self, answer: &Value) -> Result<HumanMessage, AnswerMisfit> {
        match self.kind {
            HumanRequestKind::Question => {
                let wrong =
                    schema_of(&self.request["payload"]).map(|schema| misfits(schema, answer)).unwrap_or_default();
                if !wrong.is_empty() {
                    let told: Vec<String> = wrong
                        .into_iter()
                        .map(|(at, why)| if at.is_empty() { why } else { format!("{at}: {why}") })
                        .collect();
                    let like =
                        self.looks_like().map(|like| format!("; an answer looks like {like}")).unwrap_or_default();
                    return Err(AnswerMisfit::NotAsAsked(format!("{}{like}", told.join("; "))));
                }
                let input = json!({ "interrupt_id": self.id(), "resume": answer });
                Ok(HumanMessage { signal: SIGNAL_ANSWER, input })
            }
            HumanRequestKind::Elsewhere => Err(AnswerMisfit::IsElsewhere),
            HumanRequestKind::Approval | HumanRequestKind::ToolCall => Err(AnswerMisfit::IsApproval),
        }
    }
}

/// Agents count their own approvals: with its run they are ids of all.
pub(crate) fn tool_call_id(run: RunId, request: &Value) -> String {
    format!("{run}/{}", request["id"].as_str().unwrap_or_default())
}

/// The run that gave an id.
pub(crate) fn run_in(id: &str) -> Option<RunId> {
    id.split_once('/').and_then(|(run, _)| run.parse().ok())
}

/// The run in which this one has gone on, if it has; else itself. Whoever saw something asked before answers it after.
pub(crate) async fn going_on(backend: &dyn Backend, of: Target) -> Result<RunInfo, CallError> {
    let info = backend.describe(of).await?.info;
    if info.status != WorkflowStatus::ContinuedAsNew {
        return Ok(info);
    }
    let last = backend.describe(Target { run_id: None, ..target_of(&info) }).await?.info;
    // Another run may have taken the id since.
    Ok(if last.first_run == info.first_run { last } else { info })
}

/// The run that a reset has put in the place of this one, if it is open; else itself. What the one asked, the other asks.
pub(crate) async fn after_reset(backend: &dyn Backend, info: RunInfo) -> Result<RunInfo, CallError> {
    if info.status != WorkflowStatus::Terminated {
        return Ok(info);
    }
    let now = backend.describe(Target { run_id: None, ..target_of(&info) }).await?.info;
    // Another run may have taken the id since.
    Ok(if now.first_run == info.first_run && now.status.is_open() { now } else { info })
}

/// Sends to a run, or to the one in which it has gone on meanwhile. To which.
pub(crate) async fn send_on(backend: &dyn Backend, to: &Target, signal: SignalRequest) -> Result<Target, CallError> {
    match backend.signal(to.clone(), signal.clone()).await {
        Err(CallError::Rejected(why @ Rejection::Closed { .. })) => {
            let next = target_of(&going_on(backend, to.clone()).await?);
            if next.run_id == to.run_id {
                return Err(why.into());
            }
            backend.signal(next.clone(), signal).await?;
            Ok(next)
        }
        sent => sent.map(|()| to.clone()),
    }
}

/// The very run of a row of a list.
pub(crate) fn target_of(info: &RunInfo) -> Target {
    Target { namespace: info.namespace.clone(), ..Target::run(info.workflow_id.clone(), info.run_id) }
}

/// Open runs that ask people: a page of them.
#[derive(Debug, Default)]
pub(crate) struct AskingRuns {
    pub runs: Vec<(Target, WorkflowType)>,
    /// Where the next page begins, if there is one.
    pub next: Option<Cursor>,
}

/// The list filter of supervisors and agents, open or not, that fit a filter; of all where it is empty.
pub(crate) fn of_asking(query: &str) -> String {
    let types: Vec<String> = ASKING.iter().map(|name| format!("'{name}'")).collect();
    let all = format!("WorkflowType IN ({})", types.join(", "));
    if query.trim().is_empty() { all } else { format!("({query}) AND {all}") }
}

/// Open supervisors and agents that fit a list filter, all of them where it is empty: the newest [`RUNS_MAX`], or those behind
/// a page.
pub(crate) async fn asking_runs(
    backend: &dyn Backend,
    query: &str,
    after: Option<Cursor>,
) -> Result<AskingRuns, CallError> {
    // Alone first: what is wrong with it is told in its own words, and it stays one condition beside the others.
    filter_of(query)?;
    let query = format!("{} AND ExecutionStatus IN ('Running', 'Paused')", of_asking(query));
    let (runs, next) = page_of(backend, filter_of(&query)?, RUNS_MAX, after).await?;
    let runs = runs.iter().map(|info| (target_of(info), info.workflow_type.clone())).collect();
    Ok(AskingRuns { runs, next })
}

/// What a page of runs asks, and the runs that cannot say it now, with the reason: one of many hides nothing of the others.
pub(crate) async fn asked_by(
    backend: &dyn Backend,
    runs: &[(Target, WorkflowType)],
) -> (Vec<HumanRequest>, Vec<(WorkflowId, String)>) {
    let of = |(target, workflow_type): (Target, WorkflowType)| async move {
        (target.workflow_id.clone(), requests(backend, &target, &workflow_type).await)
    };
    let told: Vec<_> = stream::iter(runs.to_vec()).map(of).buffered(ASKED_AT_ONCE).collect().await;
    let (mut all, mut silent) = (Vec::new(), Vec::new());
    for (id, of_run) in told {
        match of_run {
            Ok(of_run) => all.extend(of_run),
            Err(why) => silent.push((id, why.to_string())),
        }
    }
    (all, silent)
}

/// The approvals and questions of one run itself; what runs below it ask, they say themselves.
async fn asked(
    backend: &dyn Backend,
    target: &Target,
    workflow_type: &WorkflowType,
) -> Result<Vec<HumanRequest>, CallError> {
    let queries: &[(HumanRequestKind, &str)] = match workflow_type.as_str() {
        AGENT => &[(HumanRequestKind::ToolCall, "approvals")],
        _ => &[(HumanRequestKind::Approval, "pending_approvals"), (HumanRequestKind::Question, "pending_interrupts")],
    };
    let mut all = Vec::new();
    for (kind, query) in queries {
        for mut request in entries(backend, target, query).await? {
            if let (HumanRequestKind::ToolCall, Some(run)) = (kind, target.run_id) {
                request["id"] = tool_call_id(run, &request).into();
            }
            all.push(HumanRequest { kind: *kind, target: target.clone(), request });
        }
    }
    Ok(all)
}

/// What else of one run itself waits for people: plans under review, and whoever holds it.
async fn elsewhere(
    backend: &dyn Backend,
    target: &Target,
    workflow_type: &WorkflowType,
) -> Result<Vec<HumanRequest>, CallError> {
    let mut all = match workflow_type.as_str() {
        AGENT => halted(backend, target).await?,
        _ => entries(backend, target, "waiting").await?,
    };
    spent::as_it_stands(backend, &target.namespace, &mut all).await;
    // Approvals and questions have queries of their own, which say more; and so has the run below that a run above tells of.
    all.retain(|one| !matches!(one["kind"].as_str(), Some("approval" | "question")) && !one["run"].is_string());
    for plan in all.iter_mut().filter(|one| one["kind"] == "plan") {
        show_plan(backend, target, plan).await;
    }
    let request = |request| HumanRequest { kind: HumanRequestKind::Elsewhere, target: target.clone(), request };
    Ok(all.into_iter().map(request).collect())
}

/// What an agent has halted for that a person gives: more of its own budget, or the word to go on.
async fn halted(backend: &dyn Backend, target: &Target) -> Result<Vec<Value>, CallError> {
    let ask = |query: &str| backend.query(target.clone(), QueryName::of(query), Payload::null());
    let id = target.workflow_id.as_str();
    let halted = ask("state").await?.to_json()["halted"].take();
    let (what, answer) = if let Some(why) = halted["needs_human"]["why"].as_str() {
        (format!("it has halted: {why}"), format!("bosun resume {}", run_word(id)))
    } else if halted["budget"].is_object() {
        match spent::of_agent(id, &ask("budget").await?.to_json()) {
            Some(told) => told,
            None => return Ok(Vec::new()),
        }
    } else {
        return Ok(Vec::new());
    };
    Ok(vec![json!({ "id": id, "kind": "pause", "whom": "a person", "what": what, "answer": answer })])
}

/// What of a task bears on whether its plan is approved.
const OF_TASKS: [&str; 13] = [
    "id",
    "goal",
    "agent",
    "role",
    "capability",
    "action",
    "parameters",
    "tools",
    "dependencies",
    "when",
    "compensation",
    "risk",
    "requires_approval",
];

/// Puts the tasks of the version that is asked about into the request: nobody approves what was not shown.
async fn show_plan(backend: &dyn Backend, target: &Target, request: &mut Value) {
    let asked = request["id"].as_str().and_then(|id| id.rsplit_once('#')?.1.parse::<u64>().ok());
    let review = backend.query(target.clone(), QueryName::of("plan_review"), Payload::null()).await;
    let review = review.map(|review| review.to_json()).unwrap_or_default();
    // Another version meanwhile: the request is about to be another one too.
    if asked.is_none() || review["version"].as_u64() != asked {
        return;
    }
    let of_task = |task: &Value| {
        let said = OF_TASKS.iter().filter_map(|key| Some(((*key).to_owned(), task.get(key)?.clone())));
        Value::Object(said.filter(|(_, value)| !value.is_null()).collect())
    };
    if let Some(tasks) = review["current_plan"]["tasks"].as_array() {
        request["plan"] = tasks.iter().map(of_task).collect();
    }
}

/// Everything that one run itself waits for people with.
pub(crate) async fn requests(
    backend: &dyn Backend,
    target: &Target,
    workflow_type: &WorkflowType,
) -> Result<Vec<HumanRequest>, CallError> {
    let mut all = asked(backend, target, workflow_type).await?;
    all.extend(elsewhere(backend, target, workflow_type).await?);
    Ok(all)
}

async fn entries(backend: &dyn Backend, target: &Target, query: &str) -> Result<Vec<Value>, CallError> {
    match backend.query(target.clone(), QueryName::of(query), Payload::null()).await?.to_json() {
        Value::Array(entries) => Ok(entries),
        _ => Ok(Vec::new()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(kind: HumanRequestKind, request: Value) -> HumanRequest {
        HumanRequest { kind, target: Target::workflow(WorkflowId::of("w")), request }
    }

    #[test]
    fn a_decision_names_what_was_shown_and_nothing_that_was_not_said() {
        let approval = request(HumanRequestKind::Approval, json!({ "id": "run/ap-1", "shown": "abc", "risk": "high" }));
        let yes = HumanDecision { approved: true, comment: Some("go"), ..HumanDecision::default() };
        let message = approval.decided(&yes).unwrap();
        assert_eq!(message.signal, SIGNAL_APPROVAL);
        let input = json!({ "approval_id": "run/ap-1", "approved": true, "comment": "go", "shown": "abc" });
        assert_eq!(message.input, input);
    }

    #[test]
    fn a_tool_call_is_known_to_its_agent_by_its_own_id_and_is_not_changed() {
        let shown = json!({ "id": "run/a-1", "hash": "h", "tool": "pay", "arguments": { "to": "ann" } });
        let call = request(HumanRequestKind::ToolCall, shown);
        let no = HumanDecision { comment: Some("dear"), feedback: Some("cheaper"), ..HumanDecision::default() };
        let input =
            json!({ "id": "a-1", "hash": "h", "approved": false, "reason": "cheaper", "arguments": { "to": "ann" } });
        assert_eq!(call.decided(&no).unwrap().input, input);
        let other = HumanDecision { approved: true, modified_action: Some("pay bob"), ..HumanDecision::default() };
        assert_eq!(call.decided(&other), Err(AnswerMisfit::ToolCallIsAsShown));
    }

    /// An example is an answer that would be taken, or there is none.
    #[test]
    fn an_example_fits_what_is_asked() {
        let of =
            |name: &str, schema: Value| json!({ "type": "object", "required": [name], "properties": { name: schema } });
        let made = |schema: Value| example(&schema);
        assert_eq!(made(of("by", json!({ "enum": ["train", "ferry"] }))), Some(json!({ "by": "train" })));
        let number = json!({ "type": ["integer", "null"], "minimum": 3 });
        assert_eq!(made(of("n", number)), Some(json!({ "n": 3 })));
        assert_eq!(made(json!({ "type": "string", "pattern": "^[0-9]{9}$" })), None);
        let question = json!({ "id": "run/1", "payload": { "schema": of("by", json!({ "enum": ["train"] })) } });
        let refused = request(HumanRequestKind::Question, question).answered(&json!({ "by": "car" })).unwrap_err();
        assert!(refused.to_string().ends_with("; an answer looks like {\"by\":\"train\"}"), "{refused}");
    }

    #[test]
    fn each_kind_takes_its_own_answer_only() {
        let of = |kind| request(kind, json!({ "id": "run/1" }));
        let yes = HumanDecision { approved: true, ..HumanDecision::default() };
        let answer = of(HumanRequestKind::Question).answered(&json!(["a"])).unwrap();
        assert_eq!((answer.signal, answer.input), (SIGNAL_ANSWER, json!({ "interrupt_id": "run/1", "resume": ["a"] })));
        assert_eq!(of(HumanRequestKind::Question).decided(&yes), Err(AnswerMisfit::IsQuestion));
        for kind in [HumanRequestKind::Approval, HumanRequestKind::ToolCall] {
            assert_eq!(of(kind).answered(&Value::Null), Err(AnswerMisfit::IsApproval));
        }
        let plan = of(HumanRequestKind::Elsewhere);
        assert_eq!(plan.decided(&yes), Err(AnswerMisfit::IsElsewhere));
        assert_eq!(plan.answered(&Value::Null), Err(AnswerMisfit::IsElsewhere));
    }

    /// CRW-10, CUG-39: what is asked with yes or no is approved as well as answered.
    #[test]
    fn a_question_of_yes_or_no_may_be_approved() {
        for kind in [json!({ "task_feedback": { "task": "1" } }), json!({ "tool_approval": { "policy": "p" } })] {
            let asked = request(HumanRequestKind::Question, json!({ "id": "run/1", "payload": { "kind": kind } }));
            let no = HumanDecision { comment: Some("shorter"), ..HumanDecision::default() };
            let message = asked.decided(&no).unwrap();
            let resume = json!({ "approved": false, "feedback": "shorter" });
            assert_eq!(
                (message.signal, message.input),
                (SIGNAL_ANSWER, json!({ "interrupt_id": "run/1", "resume": resume }))
            );
        }
    }

    /// However many runs are open: page after page reaches them all.
    #[tokio::test]
    async fn every_open_run_is_asked_page_by_page() {
        let mut fake = crate::fake::Fake::new();
        let run = |n: u64| {
            let mut info = crate::fake::run_info(&format!("run-{n}"), WorkflowStatus::Running);
            let mut id = [0; 16];
            id[8..].copy_from_slice(&n.to_be_bytes());
            (info.run_id, info.workflow_type, info.started_at) = (
                RunId(id),
                WorkflowType::of(ASKING[usize::from(n.is_multiple_of(2))]),
                Timestamp(10_000_000 - n as i64),
            );
            info
        };
        fake.runs = (0..2_300).map(run).collect();
        let (mut seen, mut after, mut pages) = (Vec::new(), None, 0);
        loop {
            let page = asking_runs(&fake, "", after).await.unwrap();
            seen.extend(page.runs.into_iter().map(|(target, _)| target.workflow_id));
            pages += 1;
            after = page.next;
            if after.is_none() {
                break;
            }
        }
        assert_eq!((pages, seen.len()), (3, 2_300));
        assert_eq!(seen, fake.runs.iter().map(|run| run.workflow_id.clone()).collect::<Vec<_>>(), "each once");
    }
}
