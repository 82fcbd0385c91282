//! Delegation: work given to another agent, in a session of its own, whose result is the answer of the call.
//!
//! Invariant: who may be asked, whether they exist and how deep they would be is looked at, in that order, before
//! anything is started; a child knows what it is told and nothing else. A refusal is the answer of the call: the caller
//! goes on and decides.
//!
//! Long: each form of delegation is asked for, refused and answered in one place.

use serde_json::{Map, Value, json};

use super::agent_loop::AgentLoop;
use super::message::{Message, MessageRole, Variables, text_of};
use super::refusal::{ArgumentRefusal, SessionFailure};
use super::session::{Home, Running, SessionPurpose, ToolOutcome};
use super::toolbox::ToolTarget;
use crate::supervisor::outbox::Outbox;
use crate::supervisor::reading::json_text;
use crate::supervisor::spec::tool_names::{ASK_QUESTION, sanitized};
use crate::supervisor::spec::{ContextSummary, DelegationProtocol, OnDelegationTimeout, Span};

/// What a delegation is to do.
#[derive(Debug, Default)]
struct DelegationRequest {
    task: String,
    context: Option<String>,
    background: bool,
    timeout: Option<Span>,
    /// Which variables go along; all if none are named.
    variables: Option<Vec<String>>,
}

impl DelegationRequest {
    fn read(args: &Map<String, Value>) -> Result<DelegationRequest, ArgumentRefusal> {
        let wrong = |field: &'static str, wanted: &'static str| Err(ArgumentRefusal::Needed { field, wanted });
        const KNOWN: [&str; 7] = ["task", "context", "mode", "background", "timeout", "variables", "agent_type"];
        if let Some(name) = args.keys().find(|name| !KNOWN.contains(&name.as_str())) {
            return Err(ArgumentRefusal::Unknown { name: name.clone(), known: KNOWN.join(", ") });
        }
        let mut order = DelegationRequest::default();
        // Nobody is put to work on nothing.
        match args.get("task") {
            Some(Value::String(task)) if !task.trim().is_empty() => order.task.clone_from(task),
            Some(_) | None => return wrong("task", "a text"),
        }
        // Either is a session of the run (SUP-05).
        match args.get("mode").map(|mode| mode.as_str()) {
            None | Some(Some("subprocess" | "in_process")) => {}
            Some(_) if args["mode"].is_null() => {}
            Some(_) => return wrong("mode", "`subprocess` or `in_process`"),
        }
        match args.get("context") {
            None | Some(Value::Null) => {}
            Some(Value::String(context)) => {
                order.context = Some(context.clone()).filter(|context| !context.trim().is_empty());
            }
            Some(_) => return wrong("context", "a text"),
        }
        match args.get("background") {
            None | Some(Value::Null) => {}
            Some(Value::Bool(background)) => order.background = *background,
            Some(_) => return wrong("background", "true or false"),
        }
        match args.get("timeout") {
            None | Some(Value::Null) => {}
            Some(value) => match value.as_f64().filter(|seconds| *seconds > 0.0) {
                Some(seconds) => order.timeout = Some(Span::from_ms((seconds * 1e3).ceil() as u64)),
                None => return wrong("timeout", "a positive number of seconds"),
            },
        }
        match args.get("variables") {
            None | Some(Value::Null) => {}
            Some(value) => match serde_json::from_value(value.clone()) {
                Ok(names) => order.variables = Some(names),
                Err(_) => return wrong("variables", "a list of names"),
            },
        }
        Ok(order)
    }
}

impl AgentLoop {
    /// `delegate_to_<name>`.
    pub(super) fn delegate(
        &mut self,
        seq: u32,
        index: usize,
        suffix: &str,
        args: &Map<String, Value>,
        out: &mut Outbox,
    ) -> Option<ToolOutcome> {
        match self.delegate_named(seq, suffix) {
            Ok(name) => self.delegate_to(seq, index, &name, args, out),
            Err(why) => Some(self.failure(why)),
        }
    }

    fn delegates_of(&self, seq: u32) -> &[String] {
        let agent = self.sessions.get(&seq).and_then(|session| self.def(&session.agent));
        agent.map(|def| def.delegates.as_slice()).unwrap_or_default()
    }

    fn delegate_named(&self, seq: u32, suffix: &str) -> Result<String, ArgumentRefusal> {
        let named = self.delegates_of(seq).iter().find(|name| sanitized(name) == suffix);
        named.cloned().ok_or_else(|| ArgumentRefusal::NoDelegate(suffix.to_owned()))
    }

    fn spawned(&self, seq: u32, args: &Map<String, Value>) -> Result<String, ArgumentRefusal> {
        let (delegates, name) = (self.delegates_of(seq), args.get("agent_type").map(text_of).unwrap_or_default());
        match delegates.contains(&name) {
            true => Ok(name),
            false => Err(ArgumentRefusal::NotSpawned { name, available: delegates.to_vec() }),
        }
    }

    /// Why a delegation is refused as things stand: nobody is asked to approve what cannot be.
    pub(super) fn refused_delegation(
        &self,
        seq: u32,
        kind: &ToolTarget,
        args: &Map<String, Value>,
    ) -> Option<ToolOutcome> {
        let named = match kind {
            ToolTarget::Delegate(suffix) => self.delegate_named(seq, suffix),
            ToolTarget::Spawn => self.spawned(seq, args),
            _ => return None,
        };
        match named {
            Ok(name) => self.refusal_of(seq, &name, args),
            Err(why) => Some(self.failure(why)),
        }
    }

    fn refusal_of(&self, seq: u32, name: &str, args: &Map<String, Value>) -> Option<ToolOutcome> {
        if self.def(name).is_none() {
            return Some(self.failure(format!("Delegation to '{name}' failed: Agent '{name}' not found")));
        }
        let malformed = || DelegationRequest::read(args).err().map(|why| self.failure(why));
        self.too_deep(seq).or_else(malformed).or_else(|| self.out_of_order(seq, name))
    }

    /// `spawn_agent`.
    pub(super) fn spawn(
        &mut self,
        seq: u32,
        index: usize,
        args: &Map<String, Value>,
        out: &mut Outbox,
    ) -> Option<ToolOutcome> {
        match self.spawned(seq, args) {
            Ok(name) => self.delegate_to(seq, index, &name, args, out),
            Err(why) => Some(self.failure(why)),
        }
    }

    fn delegate_to(
        &mut self,
        seq: u32,
        index: usize,
        name: &str,
        args: &Map<String, Value>,
        out: &mut Outbox,
    ) -> Option<ToolOutcome> {
        if let Some(refusal) = self.refusal_of(seq, name, args) {
            return Some(refusal);
        }
        let order = DelegationRequest::read(args).ok()?;
        let session = self.sessions.get_mut(&seq)?;
        if session.order.first().is_some_and(|first| first == name) {
            session.order.remove(0);
        }
        let session = self.sessions.get(&seq)?;
        let variables = passed_on(&session.variables, order.variables.as_deref());
        let text = match self.rules.delegation.kind {
            DelegationProtocol::Processes => {
                let context = self.context_text(seq, &order)?;
                format!("{context}\n\n---\n\nYour task:\n{}", order.task)
            }
            DelegationProtocol::Variables | DelegationProtocol::Coworkers => with_variables(&order.task, &variables),
        };
        if order.background && self.rules.delegation.kind == DelegationProtocol::Processes {
            return Some(self.start_in_background(seq, index, name, &order.task, text, variables, out));
        }
        let timeout = order.timeout.unwrap_or(self.rules.delegation.timeout);
        self.start_child(seq, index, name, &order.task, text, variables, timeout, out);
        None
    }

    /// Why the session may have no child: it would be too deep.
    pub(super) fn too_deep(&self, seq: u32) -> Option<ToolOutcome> {
        let depth = self.sessions.get(&seq).map_or(0, |session| session.depth);
        let max = self.rules.delegation.max_depth;
        (depth >= max)
            .then(|| self.failure(format!("Maximum delegation depth ({max}) reached. Cannot delegate further.")))
    }

    /// A playbook that names an order of agents is kept to.
    fn out_of_order(&self, seq: u32, name: &str) -> Option<ToolOutcome> {
        let order = &self.sessions.get(&seq)?.order;
        let first = order.first().filter(|first| *first != name && order.iter().any(|other| other == name))?;
        Some(self.failure(format!("The playbook wants '{first}' before '{name}'. Delegate to '{first}' first.")))
    }

    #[expect(clippy::too_many_arguments, reason = "they are what a child is made of")]
    fn start_child(
        &mut self,
        seq: u32,
        index: usize,
        name: &str,
        task: &str,
        text: String,
        variables: Variables,
        timeout: Span,
        out: &mut Outbox,
    ) {
        self.select(seq, name);
        let place = self.below(seq, index, Home::Call { session: seq, index });
        let child = self.open(name, place, vec![Message::user(text)], variables, out);
        self.set_running(seq, index, Running::Child { session: child, kind: SessionPurpose::Delegation });
        let rules = &self.rules.delegation;
        let patience = match rules.on_timeout {
            OnDelegationTimeout::Wait => timeout.max(rules.hard_timeout),
            OnDelegationTimeout::Background | OnDelegationTimeout::Kill | OnDelegationTimeout::Fail => timeout,
        };
        self.expect_within(child, timeout, patience, out);
        if let Some(session) = self.sessions.get_mut(&child) {
            task.clone_into(&mut session.task);
        }
        self.begin_with_memory(child, name, out);
    }

    /// The caller of a session waits no longer.
    pub(super) fn timed_out(&mut self, child: u32, out: &mut Outbox) {
        let Some(session) = self.sessions.get_mut(&child) else { return };
        let (Home::Call { session: caller, index }, Some(waited)) = (session.home, session.deadline.take()) else {
            return;
        };
        let hard = self.rules.delegation.hard_timeout;
        let seconds = seconds(waited);
        let answer = match self.rules.delegation.on_timeout {
            OnDelegationTimeout::Background => {
                let started = self.promote(child, &seconds, out);
                self.complete(caller, index, started, out);
                return;
            }
            OnDelegationTimeout::Kill => self.failure(format!("Process killed after {seconds}s timeout")),
            OnDelegationTimeout::Wait if waited < hard => {
                self.failure(format!("Process killed after {}s hard timeout", self::seconds(hard)))
            }
            OnDelegationTimeout::Wait => self.failure("Process killed after reaching max execution time"),
            OnDelegationTimeout::Fail => self.failure("Delegation timeout - child took too long"),
        };
        self.kill(child, out);
        self.complete(caller, index, answer, out);
    }

    /// `Delegate work to coworker` and `Ask question to coworker`.
    pub(super) fn ask_coworker(
        &mut self,
        seq: u32,
        index: usize,
        args: &Map<String, Value>,
        out: &mut Outbox,
    ) -> Option<ToolOutcome> {
        let text = |keys: &[&str]| keys.iter().find_map(|key| args.get(*key)).map(text_of).unwrap_or_default();
        // Nobody is put to work on nothing.
        let work = ["task", "question"].iter().find_map(|key| args.get(*key));
        if work.and_then(Value::as_str).is_none_or(|text| text.trim().is_empty()) {
            let tool = self.sessions.get(&seq).and_then(|session| session.tool_called(index));
            let field = if tool.is_some_and(|tool| tool == ASK_QUESTION) { "question" } else { "task" };
            let why = ArgumentRefusal::Needed { field, wanted: "a text" };
            return Some(ToolOutcome::failed(format!("Error: {why}")));
        }
        let asked = text(&["coworker", "co_worker"]);
        let session = self.sessions.get(&seq)?;
        let wanted = plain_name(first_named(&asked));
        // CrewAI calls an agent by its role.
        let by_role = |name: &&String| self.role_of(name).is_some_and(|role| plain_name(role) == wanted);
        // Names may differ in nothing but their case or their quotes: one that is written out is meant as it is.
        let exact = session.coworkers.iter().find(|name| *name == first_named(&asked).trim());
        let by_name = exact.or_else(|| session.coworkers.iter().find(|name| plain_name(name) == wanted));
        let Some(name) = by_name.or_else(|| session.coworkers.iter().find(by_role)).cloned() else {
            let options = session.coworkers.join(", ");
            return Some(ToolOutcome::failed(format!(
                "Error executing tool. coworker mentioned not found, it must be one of the following options: {options}"
            )));
        };
        if let Some(refusal) = self.too_deep(seq) {
            return Some(refusal);
        }
        let (task, context) = (text(&["task", "question"]), text(&["context"]));
        let told = if context.trim().is_empty() { task.clone() } else { format!("{task}\n\nContext:\n{context}") };
        self.start_child(seq, index, &name, &task, told, Variables::new(), self.rules.delegation.timeout, out);
        None
    }

    /// What somebody is called beside its name.
    pub(super) fn role_of(&self, name: &str) -> Option<&str> {
        self.def(name)?.role.as_deref().filter(|role| !role.trim().is_empty())
    }

    /// What the caller is told of a child that ended.
    pub(super) fn child_answer(
        &self,
        caller: u32,
        index: usize,
        child: u32,
        result: Result<String, SessionFailure>,
    ) -> ToolOutcome {
        let (Some(parent), Some(session)) = (self.sessions.get(&caller), self.sessions.get(&child)) else {
            return ToolOutcome::default();
        };
        if parent.hands_over(index) {
            return self.handed_back(parent, session, result);
        }
        match (result, self.rules.delegation.kind) {
            (Ok(text), kind) => ToolOutcome {
                worked: session.has_something(&text),
                variables: match kind {
                    DelegationProtocol::Variables => session.variables.clone(),
                    DelegationProtocol::Processes | DelegationProtocol::Coworkers => Variables::default(),
                },
                ..self.success(&Value::String(text))
            },
            (Err(SessionFailure::Refused(why)), DelegationProtocol::Processes | DelegationProtocol::Variables) => {
                self.failure(format!("The delegation to '{}' was denied: {why}", session.agent))
            }
            (Err(SessionFailure::Cancelled(why)), DelegationProtocol::Processes | DelegationProtocol::Variables) => {
                self.failure(format!("The delegation to '{}' was cancelled: {why}", session.agent))
            }
            (Err(why), DelegationProtocol::Coworkers) => {
                ToolOutcome::failed(format!("Error executing task with agent '{}'. Error: {why}", session.agent))
            }
            (Err(why), DelegationProtocol::Processes | DelegationProtocol::Variables) => self.failure(format!(
                "Delegation to '{}' failed: {why}. The agent may not exist or may have encountered an error.",
                session.agent
            )),
        }
    }

    /// What a child is told of its caller; what is absent has no heading.
    fn context_text(&self, seq: u32, order: &DelegationRequest) -> Option<String> {
        let session = self.sessions.get(&seq)?;
        let mut parts = vec![
            format!("You are being called by the '{}' agent.", session.agent),
            format!("Parent's current task: {}", session.task),
        ];
        if let Some(summary) = summary(&session.messages, &self.rules.delegation.summary) {
            parts.push(format!("\nConversation context:\n{summary}"));
        }
        if let Some(fact) = &order.context {
            parts.push(format!("\nRelevant information:\n- {fact}"));
        }
        if !session.variables.is_empty() {
            parts.push("\nShared data:".to_owned());
            parts.extend(session.variables.iter().map(|(name, value)| format!("- {name}: {}", text_of(value))));
        }
        Some(parts.join("\n"))
    }
}

/// The last messages of users and agents, shortened, if there are enough to need it.
fn summary(messages: &[Message], rules: &ContextSummary) -> Option<String> {
    let spoken: Vec<&Message> = messages.iter().filter(|message| message.role != MessageRole::System).collect();
    if spoken.len() <= rules.above as usize {
        return None;
    }
    let mut lines = Vec::new();
    for message in &spoken[spoken.len().saturating_sub(rules.last as usize)..] {
        let who = match message.role {
            MessageRole::User => "User",
            MessageRole::Assistant => "Assistant",
            MessageRole::System | MessageRole::Tool => continue,
        };
        let text = message.text();
        if text.is_empty() {
            continue;
        }
        match text.char_indices().nth(rules.chars as usize) {
            Some((end, _)) => lines.push(format!("{who}: {}...", &text[..end])),
            None => lines.push(format!("{who}: {text}")),
        }
    }
    (!lines.is_empty()).then(|| lines.join("\n"))
}

fn passed_on(variables: &Variables, names: Option<&[String]>) -> Variables {
    match names {
        None => variables.clone(),
        Some(names) => variables
            .iter()
            .filter(|(name, _)| names.contains(name))
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect(),
    }
}

fn with_variables(task: &str, variables: &Variables) -> String {
    if variables.is_empty() {
        return task.to_owned();
    }
    let lines: Vec<String> = variables.iter().map(|(name, value)| format!("- {name}: {}", json_text(value))).collect();
    format!("{task}\n\nVariables:\n{}", lines.join("\n"))
}

/// `[a, b]` names its first.
fn first_named(asked: &str) -> &str {
    let asked = asked.trim();
    match asked.strip_prefix('[').and_then(|inner| inner.strip_suffix(']')) {
        Some(inner) => inner.split(',').next().unwrap_or_default(),
        None => asked,
    }
}

/// A name without quotes, in lower case, with single blanks.
fn plain_name(name: &str) -> String {
    let unquoted: String = name.chars().filter(|c| !matches!(c, '"' | '\'' | '`')).collect();
    unquoted.split_whitespace().collect::<Vec<_>>().join(" ").to_lowercase()
}

/// `300`, or `1.5`.
pub(super) fn seconds(span: Span) -> String {
    let (whole, ms) = (span.as_ms() / 1000, span.as_ms() % 1000);
    if ms == 0 { whole.to_string() } else { format!("{whole}.{ms:03}").trim_end_matches('0').to_owned() }
}

/// The start of a long text.
pub(super) fn beginning(text: &str, chars: usize) -> String {
    text.chars().take(chars).collect()
}

/// The answer for work that goes on in the background.
pub(super) fn backgrounded(id: &str, message: &str) -> Value {
    // There is no operating-system process and no file: the log of the run holds everything.
    json!({"status": "backgrounded", "process_id": id, "pid": null, "message": message, "log_file": null})
}
