//! Before an agent begins: its servers are asked once what the tools are that its grants name.
//!
//! ```text
//!   grant { server, tools: [a, b] } ──► mcp_tools (an activity, in the history) ──► one grant for each tool, described
//! ```
//!
//! Invariant: what a model is told of a tool is in the history, so that a replay asks nobody, and a server that changes
//! its mind later changes nothing. A grant never gets more tools than it names. Signals that come meanwhile are kept; a
//! spec whose grants describe their tools themselves is not touched.

use std::time::Duration;

use bosun_engine::workflow::{Cx, WorkflowEvent};
use bosun_engine::{
    ActivityOptions, CancellationType, Failure, FailureKind, RetryPolicy, Seq, WorkflowExecutionSignaled,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::mcp::McpGrant;
use super::spec::{AgentSpec, Grant, ToolGrant};
use super::workflow::{AGENT_FAILED, INVALID_AGENT};
use crate::capability::mcp::{MCP_TOOLS, McpChoice, McpTool, McpToolsInput, McpToolsOutput};

/// For starting a server and asking it.
const TIMEOUT: Duration = Duration::from_secs(60);
/// A server that is not there yet may be soon.
const ATTEMPTS: u32 = 5;
/// Providers take names as long as this.
const NAME_MAX: usize = 64;

/// The questions that are under way.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Opening {
    asked: Vec<(Seq, Option<Value>)>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    signals: Vec<WorkflowExecutionSignaled>,
}

/// Where the opening stands.
pub enum OpeningState {
    Still(Opening),
    /// All is known.
    Opened {
        spec: Box<AgentSpec>,
        signals: Vec<WorkflowExecutionSignaled>,
    },
    /// The run has ended.
    Over,
}

/// What has to be asked for this spec, in the order of its grants.
pub fn questions(spec: &AgentSpec) -> Vec<McpToolsInput> {
    let timeout_ms = u64::try_from(TIMEOUT.as_millis()).unwrap_or(u64::MAX);
    let question = |mcp: &McpGrant| McpToolsInput { server: mcp.server.clone(), tools: mcp.tools.clone(), timeout_ms };
    spec.tools.iter().filter_map(|tool| Some(question(unknown(tool)?))).collect()
}

/// The grant, if its tools are still to be asked for.
fn unknown(tool: &ToolGrant) -> Option<&McpGrant> {
    match &tool.does {
        Grant::Mcp(mcp) if tool.parameters.is_none() => Some(mcp),
        _ => None,
    }
}

/// The spec with one grant for each tool, as the servers describe them; or why it cannot be run.
pub fn opened(spec: &AgentSpec, answers: &[Value]) -> Result<AgentSpec, String> {
    let (mut answers, mut tools, mut known) = (answers.iter(), Vec::new(), Vec::new());
    for tool in &spec.tools {
        let Some(mcp) = unknown(tool) else {
            tools.push(tool.clone());
            continue;
        };
        let answer = answers.next().ok_or("a server has not answered")?;
        let answer: McpToolsOutput =
            serde_json::from_value(answer.clone()).map_err(|why| format!("the tools of `{}`: {why}", mcp.server))?;
        let each: Vec<ToolGrant> = answer
            .tools
            .into_iter()
            .filter(|published| mcp.names(&published.name))
            .map(|published| described(tool, mcp, published))
            .collect();
        if each.is_empty() {
            return Err(format!("the server `{}` has none of the tools that are granted", mcp.server));
        }
        known.push((tool.name.clone(), each.iter().map(|tool| tool.name.clone()).collect::<Vec<_>>()));
        tools.extend(each);
    }
    // Who may hand on a grant may hand on its tools.
    for tool in &mut tools {
        if let Grant::Agent(agent) = &mut tool.does
            && let Some(names) = &mut agent.tools
        {
            let part = |name: &String| known.iter().find(|(grant, _)| grant == name).map(|(_, tools)| tools.clone());
            *names = names.iter().flat_map(|name| part(name).unwrap_or_else(|| vec![name.clone()])).collect();
        }
    }
    Ok(AgentSpec { tools, ..spec.clone() })
}

/// The grant of one tool. What the grant says itself stays.
fn described(tool: &ToolGrant, mcp: &McpGrant, published: McpTool) -> ToolGrant {
    let name = if mcp.one().is_some() { tool.name.clone() } else { joined(&tool.name, &published.name) };
    let own = mcp.one().is_some() && !tool.description.is_empty();
    ToolGrant {
        name,
        description: if own { tool.description.clone() } else { published.description },
        parameters: Some(published.parameters),
        does: Grant::Mcp(McpGrant {
            server: mcp.server.clone(),
            tools: McpChoice::Only(vec![published.name]),
            published: true,
        }),
        ..tool.clone()
    }
}

/// `grant__tool`, in the letters that all providers take.
fn joined(grant: &str, tool: &str) -> String {
    let letter = |c: char| if c.is_ascii_alphanumeric() || matches!(c, '_' | '-') { c } else { '_' };
    format!("{grant}__{tool}").chars().map(letter).take(NAME_MAX).collect()
}

impl Opening {
    /// Asks, if there is anything to ask.
    pub fn begin(spec: &AgentSpec, cx: &mut Cx<'_>) -> Option<Opening> {
        let ask = |question: McpToolsInput| {
            let options = ActivityOptions {
                start_to_close: Some(TIMEOUT + Duration::from_secs(15)),
                retry_policy: Some(RetryPolicy { maximum_attempts: ATTEMPTS, ..RetryPolicy::default() }),
                cancellation: CancellationType::TryCancel,
                summary: Some(format!("the tools of {}", question.server)),
                ..ActivityOptions::default()
            };
            (cx.schedule_activity(MCP_TOOLS, &question, options), None)
        };
        let asked: Vec<_> = questions(spec).into_iter().map(ask).collect();
        (!asked.is_empty()).then(|| Opening { asked, signals: Vec::new() })
    }

    /// Something happened before all was known.
    pub fn hear(mut self, event: WorkflowEvent, spec: &AgentSpec, cx: &mut Cx<'_>) -> Result<OpeningState, Failure> {
        match event {
            WorkflowEvent::ActivityResolved { seq, result } => {
                let answer = result.map_err(|why| refused(&why))?.to_json();
                if let Some((_, place)) = self.asked.iter_mut().find(|(asked, _)| *asked == seq) {
                    *place = Some(answer);
                }
            }
            WorkflowEvent::Signal(signal) => self.signals.push(signal),
            WorkflowEvent::CancelRequested { .. } => {
                for (seq, _) in self.asked.iter().filter(|(_, answer)| answer.is_none()) {
                    cx.cancel_activity(*seq);
                }
                cx.cancel(None);
                return Ok(OpeningState::Over);
            }
            WorkflowEvent::Update { update_id, .. } => {
                let why = Failure::application("UnknownUpdate", "an agent has no updates").non_retryable();
                cx.complete_update::<()>(update_id, Err(why));
            }
            WorkflowEvent::TimerFired { .. }
            | WorkflowEvent::ChildStarted { .. }
            | WorkflowEvent::ChildResolved { .. }
            | WorkflowEvent::SignalDelivered { .. }
            | WorkflowEvent::CancelDelivered { .. } => {}
        }
        let answers: Option<Vec<Value>> = self.asked.iter().map(|(_, answer)| answer.clone()).collect();
        let Some(answers) = answers else { return Ok(OpeningState::Still(self)) };
        let spec = opened(spec, &answers).map_err(|why| Failure::application(INVALID_AGENT, why).non_retryable())?;
        Ok(OpeningState::Opened { spec: Box::new(spec), signals: self.signals })
    }
}

/// An agent whose tools are not known does not begin: one that will never be known is the spec's fault.
fn refused(why: &Failure) -> Failure {
    let root = why.root();
    let is_final = matches!(root.kind, FailureKind::Application { non_retryable: true, .. });
    let failure_type = if is_final { INVALID_AGENT } else { AGENT_FAILED };
    Failure::application(failure_type, format!("{}: {}", root.type_name(), root.message)).non_retryable()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn spec(tools: Value) -> AgentSpec {
        let spec = json!({ "name": "a", "provider": "p", "model": "m", "task": "t", "tools": tools });
        serde_json::from_value(spec).unwrap()
    }
    fn answer(names: &[&str]) -> Value {
        let tool = |name: &&str| {
            json!({ "name": name, "description": format!("does {name}"),
            "parameters": { "type": "object", "properties": { "x": { "$ref": "#/$defs/x" } } } })
        };
        json!({ "tools": names.iter().map(tool).collect::<Vec<_>>() })
    }
    fn names(spec: &AgentSpec) -> Vec<&str> {
        spec.tools.iter().map(|tool| tool.name.as_str()).collect()
    }

    #[test]
    fn a_grant_becomes_one_grant_for_each_tool_that_it_names() {
        let grants = json!([
            { "name": "fs", "approval": true, "attempts": 3, "does": { "mcp": { "server": "f", "tools": ["read", "li st"] } } },
            { "name": "find", "does": { "mcp": { "server": "g", "tools": ["search"] } } },
            { "name": "own", "parameters": { "type": "object" }, "does": { "mcp": { "server": "g", "tools": ["x"] } } },
            { "name": "help", "does": { "agent": { "tools": ["fs", "own"] } } },
        ]);
        let spec = spec(grants);
        assert_eq!(spec.check(), Ok(()));
        assert_eq!(questions(&spec).len(), 2, "what describes itself is not asked for");
        // The server says more than it was asked for, and in another order.
        let opened = opened(&spec, &[answer(&["rm", "li st", "read"]), answer(&["search", "rm"])]).unwrap();
        assert_eq!(opened.check(), Ok(()), "also with words that the agent does not know");
        assert_eq!(names(&opened), ["fs__li_st", "fs__read", "find", "own", "help"]);
        assert!(opened.tools[0].approval && opened.tools[0].attempts == 3 && opened.tools[1].approval);
        assert_eq!((opened.tools[1].description.as_str(), opened.tools[2].approval), ("does read", false));
        let Grant::Agent(agent) = &opened.tools[4].does else { panic!("an agent") };
        assert_eq!(agent.tools.as_deref().unwrap(), ["fs__li_st", "fs__read", "own"]);
        assert_eq!(questions(&opened), [], "an agent that is called asks nobody");
    }

    #[test]
    fn a_wildcard_is_no_name_and_all_is_a_word() {
        let grant = |tools: Value| json!([{ "name": "fs", "does": { "mcp": { "server": "f", "tools": tools } } }]);
        for wrong in [json!([]), json!(["*"]), json!(["read*"]), json!([""])] {
            assert!(spec(grant(wrong.clone())).check().is_err(), "{wrong}");
        }
        for unreadable in [json!("read"), json!("*"), json!(true), json!(null)] {
            let value = json!({ "server": "f", "tools": unreadable });
            assert!(serde_json::from_value::<McpGrant>(value).is_err(), "{unreadable}");
        }
        let all = spec(grant(json!("all")));
        assert_eq!(all.check(), Ok(()));
        assert_eq!(names(&opened(&all, &[answer(&["a", "b"])]).unwrap()), ["fs__a", "fs__b"]);
        assert!(opened(&all, &[answer(&[])]).is_err(), "nothing is not all");
    }

    #[test]
    fn parameters_describe_one_tool_and_are_obeyed() {
        let grant = |tools: Value, parameters: Value| {
            let does = json!({ "mcp": { "server": "f", "tools": tools } });
            spec(json!([{ "name": "t", "parameters": parameters, "does": does }])).check()
        };
        assert_eq!(grant(json!(["a"]), json!({ "type": "object" })), Ok(()));
        assert!(grant(json!(["a", "b"]), json!({ "type": "object" })).is_err());
        assert!(grant(json!("all"), json!({ "type": "object" })).is_err());
        assert_eq!(grant(json!(["a"]), json!({ "pattern": "x" })), Ok(()));
        assert!(grant(json!(["a"]), json!({ "patern": "x" })).is_err(), "an owner's bound must be obeyed");
    }
}
