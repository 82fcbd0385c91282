//! One open connection to a server: its hello, its tools, one call, its end.
//!
//! Invariant: a connection is kept between calls and shared by those that run at a time. It is ended by [`Connection::end`],
//! with the server's input closed first; one that is dropped instead is ended in the background. Everything that is heard
//! has its secrets cut out here.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ClientCapabilities, ClientConfig, Implementation,
    PaginatedRequestParams, Tool,
};
use rmcp::service::{NotificationContext, RunningService};
use rmcp::{ClientHandler, RoleClient, ServiceExt};
use serde_json::{Map, Value};

use super::super::*;
use super::secrets::Secrets;
use super::stdio::{RunningServer, ServerOutput};
use super::trouble::{self, RetrySafety, Trouble};
use super::{ServerContext, http, stdio};

/// Pages of a list of tools, and tools of a server. More is no list.
const PAGES_MAX: usize = 50;
const TOOLS_MAX: usize = 1_000;
/// Bytes of all of them together.
const TOOLS_BYTES: usize = 8 * 1024 * 1024;
/// How long the library may take to end a connection.
const CLOSE: Duration = Duration::from_secs(2);

pub(super) type Tools = Arc<BTreeMap<String, McpTool>>;

pub(super) struct Connection {
    service: RunningService<RoleClient, Listener>,
    running: Mutex<Option<RunningServer>>,
    heard: Arc<ServerOutput>,
    secrets: Secrets,
    tools: Mutex<Option<Tools>>,
    /// Something came over it after which it is of no more use.
    is_spoiled: AtomicBool,
}

/// Hears that the list of tools has changed. It can do nothing for a server: no sampling, no questions, no roots.
#[derive(Debug, Clone, Default)]
pub(super) struct Listener {
    changed: Arc<AtomicBool>,
}

impl ClientHandler for Listener {
    fn get_info(&self) -> ClientConfig {
        ClientConfig::new(ClientCapabilities::default(), Implementation::new("bosun", env!("CARGO_PKG_VERSION")))
    }
    async fn on_tool_list_changed(&self, _: NotificationContext<RoleClient>) {
        self.changed.store(true, Ordering::Relaxed);
    }
}

impl Connection {
    /// Starts or reaches the server, and says hello.
    pub(super) async fn open(name: &str, server: &McpServer, worker: &ServerContext) -> Result<Connection, Trouble> {
        let mut secrets = Secrets::default();
        let opened = Self::open_with(name, server, worker, &mut secrets).await;
        let (service, running, heard) = opened.map_err(|trouble| secrets.trouble(trouble))?;
        Ok(Connection {
            service,
            running: Mutex::new(running),
            heard,
            secrets,
            tools: Mutex::new(None),
            is_spoiled: AtomicBool::new(false),
        })
    }

    async fn open_with(
        name: &str,
        server: &McpServer,
        worker: &ServerContext,
        secrets: &mut Secrets,
    ) -> Result<(RunningService<RoleClient, Listener>, Option<RunningServer>, Arc<ServerOutput>), Trouble> {
        match &server.reach {
            McpReach::Http(place) => {
                let wire = http::reach(place, server.message_bytes, secrets).await?;
                let service = Listener::default().serve(wire).await.map_err(|why| trouble::of_opening(&why))?;
                Ok((service, None, Arc::default()))
            }
            McpReach::Stdio(process) => {
                let started = stdio::start(name, process, server.message_bytes, worker, secrets).await?;
                let (running, wire, heard) = started;
                match Listener::default().serve(wire).await {
                    Ok(service) => Ok((service, Some(running), heard)),
                    Err(why) => {
                        running.end().await;
                        let trouble = heard.broken().map_or_else(|| trouble::of_opening(&why), Trouble::before_call);
                        let trouble = secrets.trouble(trouble);
                        Err(Trouble { message: format!("{}{}", trouble.message, heard.excerpt(secrets)), ..trouble })
                    }
                }
            }
        }
    }

    pub(super) fn is_alive(&self) -> bool {
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        let has_ended = running.as_mut().is_some_and(RunningServer::has_ended);
        !has_ended
            && !self.is_spoiled.load(Ordering::Relaxed)
            && !self.service.is_closed()
            && !self.service.is_transport_closed()
            && self.heard.broken().is_none()
    }

    pub(super) fn secrets(&self) -> &Secrets {
        &self.secrets
    }

    /// The end of what a server that is a process wrote to its error output.
    pub(super) fn excerpt(&self) -> String {
        self.heard.excerpt(&self.secrets)
    }

    /// The tools, as they were listed last. `anew`: asks again, whatever is known.
    pub(super) async fn tools(&self, anew: bool) -> Result<Tools, Trouble> {
        let changed = self.service.service().changed.swap(false, Ordering::Relaxed);
        if !anew
            && !changed
            && let Some(tools) = self.known()
        {
            return Ok(tools);
        }
        let tools = Arc::new(self.listed().await?);
        *self.tools.lock().unwrap_or_else(PoisonError::into_inner) = Some(tools.clone());
        Ok(tools)
    }

    async fn listed(&self) -> Result<BTreeMap<String, McpTool>, Trouble> {
        match self.list().await {
            Ok(tools) => Ok(tools),
            Err(trouble) => Err(self.named(trouble).await.before_call()),
        }
    }

    fn known(&self) -> Option<Tools> {
        self.tools.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    async fn list(&self) -> Result<BTreeMap<String, McpTool>, Trouble> {
        let _call = self.heard.call_begins();
        let (mut tools, mut cursor, mut bytes) = (BTreeMap::new(), None, 0);
        for _ in 0..PAGES_MAX {
            let params = PaginatedRequestParams::default().with_cursor(cursor);
            let page = self.service.list_tools(Some(params)).await.map_err(|why| self.broke(&why))?;
            bytes += serde_json::to_vec(&page.tools).map_or(0, |bytes| bytes.len());
            if bytes > TOOLS_BYTES {
                let message = format!("the server's list of tools has more than {TOOLS_BYTES} bytes");
                return Err(Trouble::never(MCP_TOO_LARGE, message));
            }
            tools.extend(page.tools.into_iter().map(|tool| self.published(&tool)));
            if tools.len() > TOOLS_MAX {
                break;
            }
            cursor = page.next_cursor;
            if cursor.is_none() {
                return Ok(tools);
            }
        }
        Err(Trouble::never(MCP_PROTOCOL, format!("the server's list of tools does not end after {}", tools.len())))
    }

    fn published(&self, tool: &Tool) -> (String, McpTool) {
        let name = self.secrets.text(&tool.name);
        let hints = tool.annotations.as_ref();
        let mut parameters = Value::Object(tool.input_schema.as_ref().clone());
        self.secrets.value(&mut parameters);
        let published = McpTool {
            name: name.clone(),
            description: self.secrets.text(tool.description.as_deref().unwrap_or_default()),
            parameters,
            repeatable: hints
                .is_some_and(|hints| hints.read_only_hint == Some(true) || hints.idempotent_hint == Some(true)),
        };
        (name, published)
    }

    /// Calls a tool. Dropped before the end, the server is told that nobody waits.
    pub(super) async fn call(&self, tool: &str, arguments: Map<String, Value>) -> Result<CallToolResult, Trouble> {
        let _call = self.heard.call_begins();
        let taken = self.heard.input.taken();
        let params = CallToolRequestParams::new(tool.to_owned()).with_arguments(arguments);
        match self.service.call_tool_once(params).await {
            Ok(CallToolResponse::Complete(result)) => Ok(result),
            Ok(_) => Err(Trouble::never(MCP_PROTOCOL, "the tool asks back, or answers later, which is not done here")),
            Err(why) => {
                let trouble = match self.broke(&why) {
                    Trouble { again: RetrySafety::Unknown, .. } if self.is_unsent(&why, taken) => {
                        Trouble::safe(MCP_UNREACHABLE, "the server had ended before the call was sent")
                    }
                    trouble => trouble,
                };
                Err(self.named(trouble).await)
            }
        }
    }

    /// The server had ended before the call was written to it.
    fn is_unsent(&self, why: &rmcp::ServiceError, taken: u64) -> bool {
        let is_process = self.running.lock().unwrap_or_else(PoisonError::into_inner).is_some();
        is_process && matches!(why, rmcp::ServiceError::TransportClosed) && self.heard.input.is_shut_since(taken)
    }

    /// The library only knows that the connection has ended; why is known here, where it was ended from this side.
    fn broke(&self, why: &rmcp::ServiceError) -> Trouble {
        self.is_spoiled.fetch_or(trouble::ends(why), Ordering::Relaxed);
        self.heard.broken().unwrap_or_else(|| trouble::of_request(why))
    }

    async fn named(&self, trouble: Trouble) -> Trouble {
        // The end of its output may be read before the reason on its error output is.
        let is_process = self.running.lock().unwrap_or_else(PoisonError::into_inner).is_some();
        if is_process && self.is_spoiled.load(Ordering::Relaxed) && self.heard.broken().is_none() {
            self.heard.last_words().await;
        }
        // Before something stands behind it: it may be cut inside a secret.
        let trouble = self.secrets.trouble(trouble);
        match trouble.failure_type {
            MCP_LOST | MCP_UNREACHABLE | MCP_PROTOCOL => {
                Trouble { message: format!("{}{}", trouble.message, self.excerpt()), ..trouble }
            }
            _ => trouble,
        }
    }

    /// Closes the connection: the server's input first, then its group is ended.
    pub(super) async fn end(self) {
        let Connection { mut service, running, .. } = self;
        // The library closes the input; if it takes too long, the process is ended all the same.
        let _ = service.close_with_timeout(CLOSE).await;
        drop(service);
        if let Some(running) = running.into_inner().unwrap_or_else(PoisonError::into_inner) {
            running.end().await;
        }
    }
}
