//! The two activities, and the servers of a worker with their connections.
//!
//! ```text
//!   call ──► a place among the calls of its server ──► connection (kept, or opened) ──► tool, arguments ──► sent
//!              └──────────────── not delivered: may be tried again ─────────────────────────────┘   └─ nobody knows
//! ```
//!
//! Invariant: a connection after a cancellation, a timeout or a break is never used again; it ends with the last call
//! that is on it. What was not delivered over a connection that was kept is sent once more over a new one, and nothing
//! else is.

mod answer;
mod connection;
mod http;
mod secrets;
mod stdio;
mod trouble;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bosun_engine::{ActivityContext, ActivityError, ActivityRegistry};
use tokio::sync::Semaphore;

use self::connection::Connection;
use self::trouble::{RetrySafety, Trouble};
use super::*;
use crate::capability::model::problems;
use crate::capability::process::ProcessConfig;

/// The most bytes of a list of tools that goes into a history, and of one description.
const LIST_BYTES: usize = 256 * 1024;
const DESCRIPTION_BYTES: usize = 8 * 1024;

pub(super) fn register(registry: &mut ActivityRegistry, config: &McpConfig, process: &ProcessConfig) {
    let worker = Arc::new(ServerContext { config: config.clone(), process: process.clone() });
    let servers = Arc::new(Servers {
        slots: config.servers.iter().map(|(name, server)| (name.clone(), ServerSlot::new(server))).collect(),
        worker,
    });
    let asked = servers.clone();
    registry.register(MCP, move |context, input| servers.clone().call(context, input));
    registry.register(MCP_TOOLS, move |context, input| asked.clone().list(context, input));
}

/// What every server is started with.
struct ServerContext {
    config: McpConfig,
    process: ProcessConfig,
}

struct Servers {
    worker: Arc<ServerContext>,
    slots: BTreeMap<String, ServerSlot>,
}

/// A server: its connection, if there is one, and who may use it.
struct ServerSlot {
    server: McpServer,
    calls: Semaphore,
    /// One opens, the others wait for it.
    opening: tokio::sync::Mutex<()>,
    current: Mutex<Option<Arc<Connection>>>,
}

/// How far a call has come, for saying what its end means.
#[derive(Default)]
struct CallAttempt {
    connection: Option<Arc<Connection>>,
    sent: bool,
    repeatable: bool,
}

enum CallEnding<T> {
    Done(Result<T, Trouble>),
    TimedOut,
    Canceled,
}

impl Servers {
    /// The activity `mcp`.
    async fn call(self: Arc<Self>, context: ActivityContext, input: McpInput) -> Result<McpOutput, ActivityError> {
        let slot = self.slot(&input.server).map_err(|trouble| trouble.failure(false))?;
        let mut attempt = CallAttempt::default();
        let limit = Duration::from_millis(input.timeout_ms);
        let ending = within(&context, limit, slot.make(&mut attempt, &self.worker, &input)).await;
        let what = format!("tool `{}` of `{}`", input.tool, input.server);
        slot.ended(attempt, ending, &what, limit).await
    }

    /// The activity `mcp_tools`.
    async fn list(
        self: Arc<Self>,
        context: ActivityContext,
        input: McpToolsInput,
    ) -> Result<McpToolsOutput, ActivityError> {
        let slot = self.slot(&input.server).map_err(|trouble| trouble.failure(false))?;
        let mut attempt = CallAttempt::default();
        let limit = Duration::from_millis(input.timeout_ms);
        let ending = within(&context, limit, slot.ask(&mut attempt, &self.worker, &input)).await;
        slot.ended(attempt, ending, &format!("the tools of `{}`", input.server), limit).await
    }

    fn slot(&self, name: &str) -> Result<&ServerSlot, Trouble> {
        if let Some(problem) = &self.worker.config.problem {
            return Err(Trouble::never(MCP_CONFIGURATION, problem));
        }
        self.slots.get(name).ok_or_else(|| {
            let there: Vec<&str> = self.slots.keys().map(String::as_str).collect();
            let there = if there.is_empty() { "none (see BOSUN_MCP)".to_owned() } else { there.join(", ") };
            Trouble::never(MCP_UNKNOWN_SERVER, format!("this worker has no MCP server `{name}`; it has: {there}"))
        })
    }
}

async fn within<T>(
    context: &ActivityContext,
    limit: Duration,
    work: impl Future<Output = Result<T, Trouble>>,
) -> CallEnding<T> {
    tokio::select! {
        result = work => CallEnding::Done(result),
        () = context.canceled() => CallEnding::Canceled,
        () = tokio::time::sleep(limit) => CallEnding::TimedOut,
    }
}

impl ServerSlot {
    fn new(server: &McpServer) -> ServerSlot {
        ServerSlot {
            server: server.clone(),
            calls: Semaphore::new(server.concurrency),
            opening: tokio::sync::Mutex::default(),
            current: Mutex::default(),
        }
    }

    fn current(&self) -> Option<Arc<Connection>> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// A connection that is alive, and whether it was kept from an earlier call.
    async fn connection(&self, name: &str, worker: &ServerContext) -> Result<(Arc<Connection>, bool), Trouble> {
        let alive = || self.current().filter(|connection| connection.is_alive());
        if let Some(kept) = alive() {
            return Ok((kept, true));
        }
        let _only = self.opening.lock().await;
        if let Some(kept) = alive() {
            return Ok((kept, true));
        }
        if let Some(dead) = self.current() {
            self.discard(dead).await;
        }
        let limit = Duration::from_millis(self.server.start_ms);
        let opened = tokio::time::timeout(limit, Connection::open(name, &self.server, worker)).await;
        let opened = opened.unwrap_or_else(|_| {
            Err(Trouble::safe(MCP_UNREACHABLE, format!("the server did not say hello within {limit:?}")))
        })?;
        let opened = Arc::new(opened);
        *self.current.lock().unwrap_or_else(PoisonError::into_inner) = Some(opened.clone());
        Ok((opened, false))
    }

    /// Takes the connection out of use. It ends here, unless another call is still on it.
    async fn discard(&self, connection: Arc<Connection>) {
        {
            let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
            current.take_if(|current| Arc::ptr_eq(current, &connection));
        }
        release(connection).await;
    }

    /// A call from its place in the queue to its answer.
    async fn make(
        &self,
        attempt: &mut CallAttempt,
        worker: &ServerContext,
        input: &McpInput,
    ) -> Result<McpOutput, Trouble> {
        let _place = self.calls.acquire().await;
        let mut once_more = true;
        loop {
            let (connection, kept) = self.connection(&input.server, worker).await?;
            attempt.connection = Some(connection.clone());
            let made = self.make_over(&connection, kept, attempt, input).await;
            match made {
                Err(Trouble { again: RetrySafety::Safe(None), .. }) if once_more && kept && !connection.is_alive() => {
                    once_more = false;
                    (attempt.connection, attempt.sent) = (None, false);
                    self.discard(connection).await;
                }
                made => return made,
            }
        }
    }

    async fn make_over(
        &self,
        connection: &Connection,
        kept: bool,
        attempt: &mut CallAttempt,
        input: &McpInput,
    ) -> Result<McpOutput, Trouble> {
        let fits = |tools: &connection::Tools| match tools.get(&input.tool) {
            None => Err(unknown_tool(&input.tool, tools)),
            Some(tool) => match problems(&tool.parameters, &Value::Object(input.arguments.clone())) {
                none if none.is_empty() => Ok(tool.repeatable),
                problems => {
                    Err(Trouble::never(MCP_ARGUMENTS, format!("the arguments do not fit: {}", problems.join("; "))))
                }
            },
        };
        let fitted = match fits(&connection.tools(false).await?) {
            // What is known may be old.
            Err(_) if kept => fits(&connection.tools(true).await?),
            fitted => fitted,
        };
        attempt.repeatable = fitted?;
        attempt.sent = true;
        let result = connection.call(&input.tool, input.arguments.clone()).await?;
        Ok(answer::output(result, input.output_max, connection.secrets()))
    }

    /// Asks for the tools, always anew: what is answered is what the history keeps.
    async fn ask(
        &self,
        attempt: &mut CallAttempt,
        worker: &ServerContext,
        input: &McpToolsInput,
    ) -> Result<McpToolsOutput, Trouble> {
        let _place = self.calls.acquire().await;
        let (connection, _) = self.connection(&input.server, worker).await?;
        attempt.connection = Some(connection.clone());
        let tools = connection.tools(true).await?;
        let named = |name: &String| tools.get(name).cloned().ok_or_else(|| unknown_tool(name, &tools));
        let mut chosen: Vec<McpTool> = match &input.tools {
            McpChoice::Only(names) => names.iter().map(named).collect::<Result<_, _>>()?,
            McpChoice::Every(Every::All) => tools.values().cloned().collect(),
        };
        for tool in &mut chosen {
            let end = (0..=DESCRIPTION_BYTES).rev().find(|at| tool.description.is_char_boundary(*at)).unwrap_or(0);
            tool.description.truncate(end);
        }
        let output = McpToolsOutput { tools: chosen };
        let bytes = serde_json::to_vec(&output).map_or(0, |bytes| bytes.len());
        if bytes > LIST_BYTES {
            let message =
                format!("the tools that were asked for have {bytes} bytes, at most {LIST_BYTES} are kept; name fewer");
            return Err(Trouble::never(MCP_TOO_LARGE, message));
        }
        Ok(output)
    }

    /// What the end of a call means, and what becomes of its connection.
    async fn ended<T>(
        &self,
        attempt: CallAttempt,
        ending: CallEnding<T>,
        what: &str,
        limit: Duration,
    ) -> Result<T, ActivityError> {
        let CallAttempt { connection, sent, repeatable } = attempt;
        let said = connection.as_ref().map(|connection| connection.excerpt()).unwrap_or_default();
        let is_whole = matches!(ending, CallEnding::Done(_)) && connection.as_ref().is_some_and(|one| one.is_alive());
        if let Some(connection) = connection {
            if is_whole { release(connection).await } else { self.discard(connection).await }
        }
        let trouble = match ending {
            CallEnding::Done(Ok(output)) => return Ok(output),
            CallEnding::Canceled => return Err(ActivityError::Canceled(None)),
            CallEnding::Done(Err(trouble)) => trouble,
            CallEnding::TimedOut if sent => {
                Trouble::unknown(MCP_TIMEOUT, format!("there was no answer within {limit:?}{said}"))
            }
            CallEnding::TimedOut => {
                Trouble::safe(MCP_UNREACHABLE, format!("the server was not ready within {limit:?}{said}"))
            }
        };
        Err(Trouble { message: format!("{what}: {}", trouble.message), ..trouble }.failure(repeatable).into())
    }
}

/// Lets go of a connection. The last to do so ends one that is out of use.
async fn release(connection: Arc<Connection>) {
    if let Some(connection) = Arc::into_inner(connection) {
        connection.end().await;
    }
}

fn unknown_tool(name: &str, tools: &connection::Tools) -> Trouble {
    let mut there: Vec<&str> = tools.keys().map(String::as_str).take(20).collect();
    if tools.len() > there.len() {
        there.push("…");
    }
    Trouble::never(MCP_UNKNOWN_TOOL, format!("the server has no tool `{name}`; it has: {}", there.join(", ")))
}
