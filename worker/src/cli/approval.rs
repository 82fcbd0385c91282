//! What waits for people, and their answers: `approval list`, `show`, `approve`, `reject`, `answer`, `extend`, `escalate`.
//!
//! Invariant: a decision is checked against what is pending before it is sent, names the very content that was shown, and
//! is sent as a signal, so that it is kept also while no worker runs; it is said to be taken when the run says so. Supervisors and agents are asked alike; the id of
//! an approval begins with the run that waits for it.
//!
//! Long: one verb after the other.

use bosun_engine::*;
use clap::{Args, Subcommand};
use serde_json::{Value, json};

use super::args::RunOf;
use super::below::below;
use super::context::Context;
use super::error::{CliError, one_line};
use super::exit::Exit;
use super::explain::Code;
use super::list::{run_word, shell_word};
use super::request_text::{self, with_moments};
use super::resolve::run_of;
use super::result::value_text;
use super::supervise::update;
use super::waiting::answer_of;
use crate::agent::next_run::MIGRATION;
use crate::deadlines;
use crate::inbox::became::{self, Became, SentAnswer};
use crate::inbox::{
    self, AnswerMisfit, HumanDecision, HumanMessage, HumanRequest, HumanRequestKind, run_in, target_of,
};
use crate::supervisor::run::SUPERVISOR;

#[derive(Debug, Subcommand)]
pub enum ApprovalVerb {
    /// List the approvals and questions that wait for a person: of one run and the runs below it, or of all open
    /// supervisors and agents.
    List {
        #[command(flatten)]
        run: AnyRun,
    },
    /// Show everything about one request.
    Show {
        /// The id of the request.
        id: String,
        /// The run that waits, if the id alone is not enough: a fork takes approvals over from its source.
        #[arg(long, value_name = "RUN")]
        run: Option<String>,
    },
    /// Approve the request as it was shown.
    Approve(DecisionArgs),
    /// Reject the request; with --feedback the work is done again.
    Reject(DecisionArgs),
    /// Move the deadline of a request, so that it can be answered later.
    Extend(ExtendArgs),
    /// Notify people of a request again, at once, in quiet hours too.
    Escalate(LaterArgs),
    /// Answer a question (an interrupt).
    Answer {
        /// The id of the question.
        id: String,
        /// The answer, as JSON or as plain text.
        answer: String,
        /// The run that waits, if the id alone is not enough: a fork takes approvals over from its source.
        #[arg(long, value_name = "RUN")]
        run: Option<String>,
    },
}

/// A request that waits, and why something is done with it.
#[derive(Debug, Clone, Args)]
pub struct LaterArgs {
    /// The id of the approval.
    pub id: String,
    /// The run that waits, if the id alone is not enough: a fork takes approvals over from its source.
    #[arg(long, value_name = "RUN")]
    pub run: Option<String>,
    /// Why; recorded in the run.
    #[arg(long, value_name = "TEXT", default_value = "")]
    pub reason: String,
}

#[derive(Debug, Clone, Args)]
pub struct ExtendArgs {
    #[command(flatten)]
    pub of: LaterArgs,
    /// By how much to move the deadline, for example 4h.
    #[arg(long, value_name = "TIME", value_parser = super::time_format::parse_duration)]
    pub by: std::time::Duration,
}

/// One run, or all.
#[derive(Debug, Clone, Default, Args)]
pub struct AnyRun {
    /// A workflow id; all open supervisors and agents if none is given.
    #[arg(value_name = "ID")]
    pub id: Option<String>,
}

#[derive(Debug, Clone, Args)]
pub struct DecisionArgs {
    /// The id of the approval.
    pub id: String,
    /// The run that waits, if the id alone is not enough: a fork takes approvals over from its source.
    #[arg(long, value_name = "RUN")]
    pub run: Option<String>,
    /// A comment; recorded with the decision.
    #[arg(long, value_name = "TEXT")]
    pub comment: Option<String>,
    /// Who decides [default: user@host].
    #[arg(long, value_name = "NAME")]
    pub by: Option<String>,
    /// What to do instead.
    #[arg(long, value_name = "ACTION")]
    pub modified_action: Option<String>,
    /// What the next attempt must do better.
    #[arg(long, value_name = "TEXT")]
    pub feedback: Option<String>,
}

pub(super) async fn approval(cx: &mut Context, verb: ApprovalVerb) -> Result<Exit, CliError> {
    match verb {
        ApprovalVerb::List { run } => list(cx, run).await,
        ApprovalVerb::Show { id, run } => {
            let found = pending(cx, None, &id, run.as_deref()).await?;
            let found = deadlines::as_timers_have_them(&*cx.backend, vec![found]).await.remove(0);
            let before = inbox::given_before(&*cx.backend, &found).await;
            let mut object = with_moments(&found.request, |at| cx.screen.time.json(at));
            if !before.is_empty() {
                let one = |(task, result): &(String, Value)| json!({ "task_id": task, "result": result });
                object["before"] = before.iter().map(one).collect();
            }
            cx.screen.object("approval.show", object);
            cx.screen.field("of run", found.target.workflow_id.as_str());
            for (name, text) in request_text::parts(&found.request) {
                let mut lines = text.lines();
                cx.screen.field(&name, lines.next().unwrap_or_default());
                lines.for_each(|line| cx.screen.line(format!("{:15}{line}", "")));
            }
            for (task, result) in &before {
                cx.screen.field("came before", format!("{task}: {}", one_line(&value_text(result))));
            }
            cx.screen.next(&found.answer());
            if matches!(found.kind, HumanRequestKind::Approval | HumanRequestKind::ToolCall) {
                cx.screen.next(&found.at(format!("bosun approval reject {} --comment WHY", found.id())));
            }
            Ok(Exit::Ok)
        }
        ApprovalVerb::Approve(decision) => decide(cx, decision, true).await,
        ApprovalVerb::Reject(decision) => decide(cx, decision, false).await,
        ApprovalVerb::Extend(args) => {
            let by = format!("{}ms", args.by.as_millis());
            later(cx, "extend", &args.of, json!({ "by": by })).await
        }
        ApprovalVerb::Escalate(args) => later(cx, "escalate", &args, json!({})).await,
        ApprovalVerb::Answer { id, answer, run } => {
            let found = pending(cx, Some(HumanRequestKind::Question), &id, run.as_deref()).await?;
            let value: Value = serde_json::from_str(&answer).unwrap_or(Value::String(answer));
            let message = found.answered(&value).map_err(misfit)?;
            let taken = tell(cx, &found, &message).await?;
            told(cx, &found, "answered", taken);
            Ok(Exit::Ok)
        }
    }
}

/// What it is that other verbs answer.
fn elsewhere(request: &HumanRequest) -> &'static str {
    if request.word() == "plan" { "a plan that waits for a review" } else { "what the run stands still for" }
}

fn is_question(kind: HumanRequestKind) -> bool {
    kind == HumanRequestKind::Question
}

/// What the command line says of it.
impl HumanRequest {
    /// The command that answers.
    pub(crate) fn answer(&self) -> String {
        match self.kind {
            HumanRequestKind::Question if self.request.pointer("/payload/kind/tool_approval").is_some() => {
                self.at(format!("bosun approval answer {} true", self.id()))
            }
            HumanRequestKind::Question => self.at(format!("bosun approval answer {} ANSWER", self.id())),
            HumanRequestKind::Approval | HumanRequestKind::ToolCall => {
                self.at(format!("bosun approval approve {}", self.id()))
            }
            HumanRequestKind::Elsewhere => answer_of(&self.request),
        }
    }

    /// A fork has ids of its source: the run is named, where the id names another one.
    fn at(&self, command: String) -> String {
        match (run_in(self.id()), self.target.run_id) {
            (Some(named), Some(run)) if named != run => format!("{command} --run {run}"),
            _ => command,
        }
    }

    fn line(&self) -> String {
        let text = |key: &str| value_text(&self.request[key]);
        match self.kind {
            HumanRequestKind::Approval => {
                let reasons = self.request["reasons"].as_array().cloned().unwrap_or_default();
                let reasons: Vec<String> = reasons.iter().map(value_text).collect();
                let (id, risk, about) = (text("id"), text("risk"), text("description"));
                // What is asked about, also where no action is named.
                let action = text(if self.request["subject"].is_string() { "subject" } else { "action" });
                let until = moment(&self.request["deadline"]);
                format!("{id}  {action} (risk {risk}): {about}  until {until}  {}", reasons.join("; "))
            }
            HumanRequestKind::Question => {
                let asked = value_text(inbox::question_text(&self.request["payload"]));
                format!("{}  task {}: {}", text("id"), text("task"), one_line(&asked))
            }
            HumanRequestKind::ToolCall => {
                format!("{}  tool {}: {}", text("id"), text("tool"), self.request["arguments"])
            }
            HumanRequestKind::Elsewhere => format!("{}  {} by {}", text("id"), text("what"), text("whom")),
        }
    }
}

type Runs = Vec<(Target, WorkflowType)>;

/// Open supervisors and agents, all of them; the one run, where it is known.
async fn open_runs(cx: &Context, run: Option<RunId>) -> Result<Runs, CliError> {
    let only = run.map(|run| format!("RunId = '{run}'")).unwrap_or_default();
    let (mut all, mut after) = (Runs::new(), None);
    loop {
        let found = inbox::asking_runs(&*cx.backend, &only, after).await?;
        all.extend(found.runs);
        after = found.next;
        if after.is_none() {
            return Ok(all);
        }
    }
}

/// The run and the open ones below it.
async fn runs_below(cx: &mut Context, id: &str) -> Result<Runs, CliError> {
    let target = run_of(cx, &RunOf { id: Some(id.to_owned()), ..RunOf::default() }).await?;
    let mut below = below(&*cx.backend, target, |_| true).await?;
    if below.cut {
        cx.screen.note("incomplete: there are more runs below than were looked at");
    }
    let first = below.runs.remove(0);
    let open = below.runs.into_iter().filter(|run| run.open && is_asked(&run.workflow_type));
    Ok(std::iter::once(first).chain(open).map(|run| (run.target, run.workflow_type)).collect())
}

/// Whether runs of this type ask people.
fn is_asked(workflow_type: &WorkflowType) -> bool {
    inbox::ASKING.contains(&workflow_type.as_str())
}

async fn list(cx: &mut Context, run: AnyRun) -> Result<Exit, CliError> {
    let runs = match &run.id {
        Some(id) => runs_below(cx, id).await?,
        None => open_runs(cx, None).await?,
    };
    let mut all = Vec::new();
    for (target, workflow_type) in &runs {
        match inbox::requests(&*cx.backend, target, workflow_type).await {
            Ok(asked) => all.extend(asked),
            // One of many that cannot answer hides nothing of the others.
            Err(why) if runs.len() > 1 => cx.screen.note(&format!("{} cannot be asked: {why}", target.workflow_id)),
            Err(why) => return Err(why.into()),
        }
    }
    let all = deadlines::as_timers_have_them(&*cx.backend, all).await;
    let view = |one: &HumanRequest| {
        let mut told = one.told(|at| cx.screen.time.json(at));
        told["answer"] = cx.screen.reach.complete(&one.answer()).into();
        told
    };
    let rows = all.iter().map(view).collect();
    cx.screen.objects("approval.list", "waiting", rows);
    if all.is_empty() {
        cx.screen.line("nobody is asked anything".to_owned());
    }
    for one in &all {
        cx.screen.line(format!("{} {}", one.target.workflow_id, one.line()));
        let answer = cx.screen.reach.complete(&one.answer());
        cx.screen.line(format!("    {answer}"));
        if let Some(like) = one.looks_like() {
            cx.screen.line(format!("    an ANSWER looks like {}", shell_word(&like.to_string())));
        }
    }
    if let Some(first) = all.first() {
        cx.screen.next(&first.answer());
    }
    Ok(Exit::Ok)
}

/// What waits under an id, of any kind unless one is named. The id begins with the run's, unless another one is named.
async fn pending(
    cx: &mut Context,
    kind: Option<HumanRequestKind>,
    id: &str,
    of: Option<&str>,
) -> Result<HumanRequest, CliError> {
    let run = match of {
        Some(of) => {
            let target = run_of(cx, &RunOf { id: Some(of.to_owned()), ..RunOf::default() }).await?;
            Some(inbox::going_on(&*cx.backend, target).await?.run_id)
        }
        None => match run_in(id) {
            Some(run) => last_of(cx, run).await?,
            None => None,
        },
    };
    let runs = open_runs(cx, run).await?;
    for (target, workflow_type) in &runs {
        let asked = inbox::requests(&*cx.backend, target, workflow_type).await?;
        match asked.into_iter().find(|one| one.id() == id) {
            // What other verbs answer is shown, and not decided here.
            Some(other) if kind.is_some() && other.kind == HumanRequestKind::Elsewhere => {
                let answer = other.answer();
                let what = elsewhere(&other);
                return Err(
                    CliError::usage(format!("{id} is {what}, not an approval")).help(format!("`{answer}` answers it"))
                );
            }
            Some(found) if kind.is_none_or(|kind| is_question(kind) == is_question(found.kind)) => return Ok(found),
            // An output of a crew and a tool that a policy holds back are approved as well as answered.
            Some(found) if kind == Some(HumanRequestKind::Approval) && found.is_yes_or_no() => return Ok(found),
            Some(other) => {
                let is =
                    if is_question(other.kind) { "a question, not an approval" } else { "an approval, not a question" };
                let answer = other.answer();
                return Err(CliError::usage(format!("{id} is {is}")).help(format!("`{answer}` answers it")));
            }
            None => {}
        }
    }
    if let Some(help) = asked_by_run(cx, id).await {
        let what = format!("{id} is a run, and no approval or question");
        return Err(CliError::new(Code::NotFound, what).help(help));
    }
    let became = if let Some(run) = run { what_became_of(cx, run, id).await } else { None };
    let became = became.map(|became| format!(": {became}")).unwrap_or_default();
    Err(CliError::new(Code::NotFound, format!("nothing of the id {id} waits for a person{became}"))
        .help("`bosun approval list` shows what does"))
}

/// What answers the requests of a run and of those below it, where its id was given in the place of theirs.
async fn asked_by_run(cx: &mut Context, id: &str) -> Option<String> {
    const TOLD: usize = 3;
    let mut all = Vec::new();
    for (target, workflow_type) in runs_below(cx, id).await.ok()? {
        if is_asked(&workflow_type) {
            all.extend(inbox::requests(&*cx.backend, &target, &workflow_type).await.ok()?);
        }
    }
    let told: Vec<String> = all.iter().take(TOLD).map(|one| format!("`{}`", one.answer())).collect();
    let id = shell_word(id);
    Some(match all.len() {
        0 => format!("it asks nobody anything: `bosun describe {id}` shows what it does"),
        1 => format!("{} answers what it asks", told.join(", ")),
        _ => {
            format!("it asks {} things, all of which `bosun approval list {id}` shows: {}", all.len(), told.join(", "))
        }
    })
}

/// The run in which this one has gone on last, as far as it is known here. Nothing: it went on in another engine, from which
/// the run may have been moved here, or there is no such run.
async fn last_of(cx: &Context, run: RunId) -> Result<Option<RunId>, CliError> {
    let found = cx.backend.list(ListRequest { query: format!("RunId = '{run}'"), limit: 1 }).await?;
    let Some(info) = found.first() else { return Ok(None) };
    let last = inbox::going_on(&*cx.backend, target_of(info)).await?;
    // After a reset of a run below, those above go on naming what it asks as they were told of it.
    let last = inbox::after_reset(&*cx.backend, last).await?;
    let went_away = last.status == WorkflowStatus::ContinuedAsNew || last.workflow_type.as_str() == MIGRATION;
    Ok((!went_away).then_some(last.run_id))
}

/// What became of something that does not wait any more, as the run has noted it.
async fn what_became_of(cx: &mut Context, run: RunId, id: &str) -> Option<String> {
    let query = format!("WorkflowType = '{SUPERVISOR}' AND RunId = '{run}'");
    let runs = cx.backend.list(ListRequest { query, limit: 1 }).await.ok()?;
    let info = runs.first()?;
    let note = became::noted(&*cx.backend, &target_of(info), id).await;
    note.as_ref().and_then(became::in_words).or_else(|| info.closed_at.map(|_| "the run that asked is over".to_owned()))
}

/// Sends an answer and waits a moment for what becomes of it: whether the run has taken it. An error says what came before.
async fn tell(cx: &Context, found: &HumanRequest, message: &HumanMessage) -> Result<bool, CliError> {
    let key =
        became::fresh_key().map_err(|why| CliError::new(Code::Failed, "no random numbers for an id").cause(why))?;
    let input = Payload::encode(&message.input).map_err(|why| CliError::new(Code::Failed, why.to_string()))?;
    let signal = SignalRequest {
        name: SignalName::new(message.signal)?,
        input,
        identity: Some(cx.identity.clone()),
        request_id: Some(key.clone()),
    };
    let to = inbox::send_on(&*cx.backend, &found.target, signal).await?;
    let sent = SentAnswer { to: &to, signal: message.signal, input: &message.input, key: &key };
    match sent.became(&*cx.backend).await {
        Became::Taken => Ok(true),
        Became::Waits => Ok(false),
        Became::Refused(why) => {
            let what = format!("{} does not take this answer: {why}", found.id());
            Err(CliError::usage(what).help("it waits for another one: `bosun approval list` shows what it asks"))
        }
        Became::Before(why) => {
            let what = format!("{} is not decided by this answer: {why}", found.id());
            Err(CliError::new(Code::NotFound, what).help("`bosun approval list` shows what waits for a person now"))
        }
    }
}

/// What is said of an answer, once it is sent.
fn told(cx: &mut Context, found: &HumanRequest, word: &str, taken: bool) {
    let run = run_word(found.target.workflow_id.as_str());
    if taken {
        cx.screen.line(format!("{word} {}", found.id()));
        return cx.screen.next(&format!("bosun result {run}"));
    }
    cx.screen.line(format!(
        "sent to {}: {word} {}; the run has not taken it yet",
        found.target.workflow_id,
        found.id()
    ));
    cx.screen.next(&format!("bosun describe {run}"));
}

async fn decide(cx: &mut Context, decision: DecisionArgs, approved: bool) -> Result<Exit, CliError> {
    let found = pending(cx, Some(HumanRequestKind::Approval), &decision.id, decision.run.as_deref()).await?;
    let by = decision.by.clone().unwrap_or_else(|| cx.identity.to_string());
    let message = HumanDecision {
        approved,
        by: Some(&by),
        comment: decision.comment.as_deref(),
        modified_action: decision.modified_action.as_deref(),
        feedback: decision.feedback.as_deref(),
    };
    let message = found.decided(&message).map_err(misfit)?;
    let taken = tell(cx, &found, &message).await?;
    let state = if taken { "taken" } else { "sent" };
    cx.screen.object(
        "approval.decision",
        json!({ "workflow_id": found.target.workflow_id, "id": decision.id, "approved": approved, "state": state }),
    );
    told(cx, &found, if approved { "approved" } else { "rejected" }, taken);
    Ok(Exit::Ok)
}

/// What does not decide a request: more time for it, or another word to people.
async fn later(cx: &mut Context, verb: &str, args: &LaterArgs, mut input: Value) -> Result<Exit, CliError> {
    let found = pending(cx, None, &args.id, args.run.as_deref()).await?;
    let other = match found.kind {
        HumanRequestKind::Approval => None,
        HumanRequestKind::ToolCall => Some("the tool call of an agent".to_owned()),
        HumanRequestKind::Question => Some("a question".to_owned()),
        HumanRequestKind::Elsewhere => Some(elsewhere(&found).to_owned()),
    };
    if let Some(other) = other {
        let (answer, done) = (found.answer(), if verb == "extend" { "extended" } else { "escalated" });
        return Err(CliError::usage(format!(
            "{} is {other}, and no approval: only an approval can be {done}",
            args.id
        ))
        .help(format!("`{answer}` answers it; people are told of it again by `notify.remind` of the configuration")));
    }
    (input["approval_id"], input["requested_by"]) = (json!(args.id), json!(cx.identity));
    input["reason"] = json!(args.reason);
    let told = update(cx, found.target.clone(), &format!("{verb}_approval"), &input).await?;
    let until = moment(&told["deadline"]);
    cx.screen.object(&format!("approval.{verb}"), with_moments(&told, |at| cx.screen.time.json(at)));
    cx.screen.line(match verb {
        "extend" => format!("{} waits until {until}", args.id),
        _ => format!("escalated {}: people are notified again, where `notify` has a channel for it", args.id),
    });
    cx.say_if_nobody_works();
    cx.screen.next(&found.answer());
    Ok(Exit::Ok)
}

fn misfit(why: AnswerMisfit) -> CliError {
    match why {
        AnswerMisfit::ToolCallIsAsShown => {
            CliError::usage("the tool call of an agent is approved as it is, or rejected with --comment")
        }
        why => CliError::usage(why.to_string()),
    }
}

/// A moment as people read it.
pub(super) fn moment(value: &Value) -> String {
    let time = value.as_i64().and_then(|micros| jiff::Timestamp::from_microsecond(micros).ok());
    time.map_or_else(|| value_text(value), |time| time.strftime("%Y-%m-%d %H:%M:%SZ").to_string())
}
