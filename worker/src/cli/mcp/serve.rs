//! The server: lists the tools, and runs the verb of each call as a process of its own.
//!
//! Invariant: a call ends: after [`CALL_MAX`] its process is, and so is a call that the client gives up. Nothing but the protocol
//! goes to standard output. Only so many calls run at once.

use std::os::fd::AsFd;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use rmcp::ErrorData;
use rmcp::handler::server::ServerHandler;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, Implementation, ListToolsResult,
    PaginatedRequestParams, ServerCapabilities, ServerConfig, ToolAnnotations,
};
use rmcp::service::{RequestContext, RoleServer, ServiceExt};
use rmcp::transport::async_rw::AsyncRwTransport;
use serde_json::{Value, json};
use tokio::process::Command;
use tokio::sync::Semaphore;

use super::super::args::Global;
use super::super::error::CliError;
use super::super::exit::Exit;
use super::super::explain::Code;
use super::ServeArgs;
use super::lines::{Checked, checked};
use super::tools::{Tool, offered};

/// A call that takes longer is ended; a run that it started goes on.
const CALL_MAX: Duration = Duration::from_secs(120);
/// Calls at once.
const CALLS: usize = 4;
/// Answers that are on their way get this long.
const LAST_WORDS: Duration = Duration::from_secs(5);
/// What of an answer is handed on.
const ANSWER_MAX: usize = 1 << 20;

struct Verbs {
    tools: Vec<Tool>,
    /// What every verb is run with.
    global: Vec<String>,
    free: Arc<Semaphore>,
}

/// The options that say whose runs these are.
fn options_of(global: &Global) -> Vec<String> {
    let data = std::path::absolute(&global.data).unwrap_or_else(|_| global.data.clone());
    let mut words = vec![
        format!("--data={}", data.display()),
        format!("--namespace={}", global.namespace),
        "--output=json".to_owned(),
        "--color=never".to_owned(),
        "--no-input".to_owned(),
        // Whoever offered the tool has said yes.
        "--yes".to_owned(),
    ];
    words.extend(global.address.as_ref().map(|address| format!("--address={address}")));
    words.extend(global.temporal.as_ref().map(|address| format!("--temporal={address}")));
    words.extend(global.temporal_api_key.as_ref().map(|reference| format!("--temporal-api-key={reference}")));
    words.extend(global.payload_store.as_ref().map(|path| format!("--payload-store={}", path.display())));
    words.push(format!("--payload-store-above={}", global.payload_store_above));
    words.extend(global.epoch_file.as_ref().map(|path| format!("--epoch-file={}", path.display())));
    words.extend(global.token_file.as_ref().map(|path| format!("--token-file={}", path.display())));
    words.extend(global.config.as_ref().map(|path| format!("--config={}", path.display())));
    words.extend(global.profile.as_ref().map(|name| format!("--profile={name}")));
    words.extend(global.set.iter().map(|set| format!("--set={set}")));
    words
}

pub(super) async fn serve(global: &Global, args: &ServeArgs) -> Result<Exit, CliError> {
    let verbs = Verbs { tools: offered(args), global: options_of(global), free: Arc::new(Semaphore::new(CALLS)) };
    let failed = |why: String| CliError::new(Code::Failed, "the client of the protocol is gone").cause(why);
    let opened = |file: std::io::Result<std::os::fd::OwnedFd>| file.map(|file| tokio::fs::File::from_std(file.into()));
    let input = opened(std::io::stdin().as_fd().try_clone_to_owned()).map_err(|why| failed(why.to_string()))?;
    let output = opened(std::io::stdout().as_fd().try_clone_to_owned()).map_err(|why| failed(why.to_string()))?;
    let Checked { input, output, writer } = checked(input, output);
    let transport = AsyncRwTransport::new_server(input, output);
    let served = async {
        let running = verbs.serve(transport).await.map_err(|why| failed(why.to_string()))?;
        running.waiting().await.map_err(|why| failed(why.to_string()))
    };
    let ended = served.await;
    // What was said last is written before the process ends.
    let written = tokio::time::timeout(LAST_WORDS, writer).await;
    ended?;
    match written {
        Ok(Ok(Err(why))) => Err(failed(why.to_string())),
        _ => Ok(Exit::Ok),
    }
}

impl Verbs {
    async fn call(&self, request: CallToolRequestParams) -> Result<CallToolResult, ErrorData> {
        let tool = self.tools.iter().find(|tool| tool.name == request.name);
        let tool = tool.ok_or_else(|| ErrorData::invalid_params(format!("there is no tool {}", request.name), None))?;
        let words = tool.words(request.arguments.unwrap_or_default());
        let words = words.map_err(|why| ErrorData::invalid_params(format!("{}: {why}", tool.name), None))?;
        let _free = self.free.acquire().await;
        let internal = |why: std::io::Error| ErrorData::internal_error(format!("{}: {why}", tool.name), None);
        let program = std::env::current_exe().map_err(internal)?;
        let mut command = Command::new(program);
        // The options of the whole go first: what follows may end with values by their place.
        command.args(&self.global).args(words).stdin(Stdio::null()).kill_on_drop(true);
        let Ok(output) = tokio::time::timeout(CALL_MAX, command.output()).await else {
            let text = format!("{} was ended after {} s; what it began goes on", tool.name, CALL_MAX.as_secs());
            return Ok(CallToolResult::error(vec![ContentBlock::text(text)]));
        };
        let output = output.map_err(internal)?;
        let said = told(&output.stdout);
        if output.status.success() {
            return Ok(CallToolResult::structured(said));
        }
        // What a verb found may have a code of its own, for example of a run that has failed.
        let why: String = String::from_utf8_lossy(&output.stderr).chars().take(ANSWER_MAX).collect();
        let error: Value = serde_json::from_str(why.trim()).unwrap_or_else(|_| why.trim().into());
        let told = json!({ "exit_code": output.status.code(), "answer": said, "error": error });
        Ok(CallToolResult::structured_error(told))
    }
}

/// What a verb printed: JSON, or its lines where it says more than one thing.
fn told(stdout: &[u8]) -> Value {
    if stdout.len() > ANSWER_MAX {
        return json!({ "too_long": stdout.len(), "help": "ask for less, for example with a limit or a query" });
    }
    match serde_json::from_slice(stdout) {
        Ok(Value::Object(object)) => Value::Object(object),
        Ok(other) => json!({ "answer": other }),
        Err(_) => json!({ "text": String::from_utf8_lossy(stdout).trim() }),
    }
}

impl ServerHandler for Verbs {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
            .with_server_info(Implementation::new("bosun", super::super::VERSION))
            .with_instructions(
                "Workflow executions of one Bosun worker: each tool is a verb of its command line, and answers as `-o json`.",
            )
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let tools = self.tools.iter().map(|tool| {
            let mut told = rmcp::model::Tool::new(tool.name, tool.about.clone(), Arc::new(tool.schema.clone()));
            told.annotations = Some(ToolAnnotations::new().read_only(!tool.changes));
            told
        });
        Ok(ListToolsResult::with_all_items(tools.collect()))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        tokio::select! {
            answer = self.call(request) => answer.map(CallToolResponse::from),
            () = context.ct.cancelled() => Err(ErrorData::internal_error("the client gave the call up", None)),
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::super::super::args::Cli;
    use super::*;

    /// A verb reaches what its server was told to serve.
    #[test]
    fn a_verb_is_run_with_all_that_says_where_its_runs_are() {
        let kept = |global: &Global| {
            let Global { data, temporal, token_file, epoch_file, namespace, config, profile, set, .. } = global.clone();
            let payloads = (global.payload_store.clone(), global.payload_store_above);
            let cluster = (temporal, global.temporal_api_key.clone(), payloads);
            (data, global.address.clone(), cluster, token_file, epoch_file, namespace, config, profile, set)
        };
        let more = [
            "--token-file=/t",
            "--epoch-file=/away/epoch",
            "--namespace=shop",
            "--config=/c",
            "--profile=dev",
            "--set=a=b",
            "--temporal-api-key=file:/k",
            "--payload-store=/p",
            "--payload-store-above=1MiB",
        ];
        for place in ["--temporal=127.0.0.1:7233", "--address=http://127.0.0.1:1"] {
            let words = ["bosun", "list", "--data=/data", place];
            let given = Cli::try_parse_from(words.iter().chain(&more)).unwrap().global;
            let options = options_of(&given);
            let words = ["bosun".to_owned()].into_iter().chain(options).chain(["list".to_owned()]);
            assert_eq!(kept(&Cli::try_parse_from(words).unwrap().global), kept(&given));
        }
    }
}
