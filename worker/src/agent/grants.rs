//! From what a model asks to what is done: the grant decides, the model only fills in.
//!
//! Invariant: default deny. A plan is made from the grant and arguments that conform to its schema; nothing of the
//! arguments reaches a place that the grant has not left open. What an agent hands on is a part of what it has: no tool,
//! no limit and no approval can be widened on the way down. Pure.

use bosun_engine::Timestamp;
use serde_json::{Map, Value, json};

use super::ledger::{BudgetLedger, Caps, Resource};
use super::schema;
use super::spec::{
    AgentGrant, AgentSpec, ArgumentPiece, Degrade, FileGrant, Grant, HttpGrant, ProcessGrant, ToolGrant, pieces,
};
use super::turn::FittingArguments;
use crate::capability::file::FILE;
use crate::capability::http::HTTP;
use crate::capability::mcp::MCP;
use crate::capability::model::ToolSpec;
use crate::capability::process::PROCESS;

/// What is to be done for a call.
#[derive(Debug, Clone, PartialEq)]
pub enum CallPlan {
    Activity {
        activity_type: String,
        input: Value,
    },
    /// An agent with this spec, which takes these caps out of the budget.
    Agent {
        spec: Box<AgentSpec>,
        lease: Caps,
    },
}

/// The agent that calls a tool, as it stands now.
#[derive(Debug, Clone, Copy)]
pub struct CallingAgent<'a> {
    pub spec: &'a AgentSpec,
    pub ledger: &'a BudgetLedger,
    pub now: Timestamp,
    /// The cheaper model has taken over; agents below begin with it.
    pub degraded: Option<&'a Degrade>,
    /// Calls without a known cost may go on.
    pub unpriced_allowed: bool,
}

impl Grant {
    /// The activity that does it; an agent is none.
    pub(super) fn activity_type(&self) -> &str {
        match self {
            Grant::Process(_) => PROCESS,
            Grant::Http(_) => HTTP,
            Grant::File(_) => FILE,
            Grant::Mcp(_) => MCP,
            Grant::Activity { activity_type } => activity_type,
            Grant::Agent(_) => "",
        }
    }
}

impl ToolGrant {
    /// The schema of the arguments.
    pub fn schema(&self) -> Value {
        match (&self.parameters, &self.does) {
            (Some(parameters), _) => parameters.clone(),
            (None, Grant::Process(process)) => {
                let properties: Map<String, Value> =
                    process.names().into_iter().map(|name| (name, json!({ "type": "string" }))).collect();
                json!({ "type": "object", "properties": properties, "required": process.names(),
                    "additionalProperties": false })
            }
            (None, Grant::Http(http)) => object(
                json!({ "url": { "type": "string" }, "method": { "enum": http.methods },
                    "body": { "type": "string" }, "json": {} }),
                &["url"],
            ),
            (None, Grant::File(file)) => {
                let acts = if file.write { json!(["read", "list", "write"]) } else { json!(["read", "list"]) };
                let properties = json!({ "op": { "enum": acts }, "path": { "type": "string" },
                    "content": { "type": "string" } });
                object(properties, &["op", "path"])
            }
            (None, Grant::Agent(_)) => {
                let number = json!({ "type": "integer", "minimum": 0 });
                object(
                    json!({ "task": { "type": "string" },
                        "tools": { "type": "array", "items": { "type": "string" } },
                        "max_steps": number, "max_tool_calls": number, "max_tokens": number,
                        "max_cost_micros": number, "wall_ms": number }),
                    &["task"],
                )
            }
            // Checked when the run starts: an activity has a schema, and a tool of a server has got one.
            (None, Grant::Activity { .. } | Grant::Mcp(_)) => json!(false),
        }
    }

    /// As a model is told of it.
    pub fn told(&self) -> ToolSpec {
        ToolSpec { name: self.name.clone(), description: self.description.clone(), parameters: self.schema() }
    }

    /// The schema by which the arguments are judged here. What a server publishes may have words that are not known here; the
    /// capability judges by it again.
    pub fn judged_by(&self) -> Option<Value> {
        let schema = self.schema();
        let judges_itself = matches!(&self.does, Grant::Mcp(mcp) if mcp.published);
        (!judges_itself || schema::check_part(&schema).is_ok()).then_some(schema)
    }

    /// What is done for a call with these arguments, or why nothing is.
    pub fn plan(&self, arguments: FittingArguments<'_>, caller: &CallingAgent<'_>) -> Result<CallPlan, String> {
        let members = arguments.members();
        let activity =
            |activity_type: &str, input| CallPlan::Activity { activity_type: activity_type.to_owned(), input };
        // What the model is not shown need not be in the history.
        let most = caller.spec.limits.result_bytes;
        Ok(match &self.does {
            Grant::Process(process) => activity(PROCESS, process.input(members, self.timeout_ms, most)?),
            Grant::Http(http) => activity(HTTP, http.input(members, self.timeout_ms, most)?),
            Grant::File(file) => activity(FILE, file.input(members, most)),
            Grant::Mcp(mcp) => activity(MCP, mcp.input(&json!(members), self.timeout_ms, most)?),
            Grant::Activity { activity_type } => activity(activity_type, json!(members)),
            Grant::Agent(agent) => agent.narrowed(members, caller)?,
        })
    }
}

fn object(properties: Value, required: &[&str]) -> Value {
    json!({ "type": "object", "properties": properties, "required": required, "additionalProperties": false })
}

impl ProcessGrant {
    fn input(&self, members: &Map<String, Value>, timeout_ms: u64, most: u64) -> Result<Value, String> {
        let mut argv = Vec::new();
        // After `--` programs read no options.
        let mut options_end = false;
        for template in &self.argv {
            argv.extend(self.argument(template, members, options_end)?);
            options_end |= template == "--";
        }
        let mut input = json!({ "argv": argv, "timeout_ms": timeout_ms, "output_max": most, "success_codes": [] });
        for (name, value) in [("cwd", &self.cwd), ("jail", &self.jail)] {
            if let Some(value) = value {
                input[name] = json!(value);
            }
        }
        if !self.env_allow.is_empty() {
            input["env_allow"] = json!(self.env_allow);
        }
        Ok(input)
    }

    /// One argument, or none where its only placeholder is left out.
    fn argument(
        &self,
        template: &str,
        members: &Map<String, Value>,
        options_end: bool,
    ) -> Result<Option<String>, String> {
        let mut argument = String::new();
        for piece in pieces(template) {
            let name = match piece {
                ArgumentPiece::Text(text) => {
                    argument.push_str(text);
                    continue;
                }
                ArgumentPiece::Name(name) => name,
            };
            let value = match members.get(name) {
                Some(Value::String(text)) => text.clone(),
                Some(value @ (Value::Number(_) | Value::Bool(_))) => value.to_string(),
                None | Some(Value::Null) => return Ok(None),
                Some(Value::Array(_) | Value::Object(_)) => {
                    return Err(format!("`{name}` must be a text, a number or a boolean"));
                }
            };
            if value.contains('\0') {
                return Err(format!("`{name}` holds a NUL"));
            }
            if argument.is_empty() && value.starts_with('-') && !self.allow_options && !options_end {
                return Err(format!("`{name}` must not begin with `-`: it would be read as an option"));
            }
            argument.push_str(&value);
        }
        Ok(Some(argument))
    }
}

impl HttpGrant {
    fn input(&self, members: &Map<String, Value>, timeout_ms: u64, most: u64) -> Result<Value, String> {
        let text = members.get("url").and_then(Value::as_str).unwrap_or_default();
        let url = reqwest::Url::parse(text).map_err(|why| format!("the url cannot be read: {why}"))?;
        match url.scheme() {
            "https" => {}
            "http" if self.plain => {}
            other => return Err(format!("the scheme `{other}` is not allowed")),
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err("a url with credentials is not allowed".to_owned());
        }
        let host = url.host_str().unwrap_or_default().to_owned();
        // `Url` leaves out the port of the scheme, and so does the grant.
        let place = url.port().map_or(host.clone(), |port| format!("{host}:{port}"));
        if !self.hosts.iter().any(|allowed| allowed.eq_ignore_ascii_case(&place)) {
            return Err(format!("the host `{place}` is not allowed; allowed are: {}", self.hosts.join(", ")));
        }
        let method =
            members.get("method").and_then(Value::as_str).map_or_else(|| self.methods[0].clone(), str::to_owned);
        if !self.methods.contains(&method) {
            return Err(format!("the method `{method}` is not allowed"));
        }
        // A redirect would leave the allowed hosts; its answer is a result that the model may follow by another call.
        let mut input = json!({ "method": method, "url": url.as_str(), "timeout_ms": timeout_ms,
            "response_max": most, "follow_redirects": 0, "any_status": true, "too_large": "truncate" });
        for name in ["body", "json"] {
            if let Some(value) = members.get(name) {
                input[name] = value.clone();
            }
        }
        if !self.headers.is_null() {
            input["headers"] = self.headers.clone();
        }
        Ok(input)
    }
}

impl FileGrant {
    fn input(&self, members: &Map<String, Value>, most: u64) -> Value {
        let writes = members.get("op").is_some_and(|op| op == "write");
        let max_bytes = if writes { self.max_bytes } else { self.max_bytes.min(most) };
        let mut input = json!({ "root": self.root, "max_bytes": max_bytes });
        for (name, value) in members {
            input[name] = value.clone();
        }
        input
    }
}

impl AgentGrant {
    /// The agent that is called: what was asked for, as far as the caller has it.
    fn narrowed(&self, members: &Map<String, Value>, caller: &CallingAgent<'_>) -> Result<CallPlan, String> {
        let CallingAgent { spec: caller, ledger, now, degraded, unpriced_allowed } = *caller;
        if caller.depth >= caller.limits.depth {
            return Err(format!("agents may not delegate deeper than {}", caller.limits.depth));
        }
        let asked = members.get("tools").and_then(Value::as_array);
        let asks = |name: &str| asked.is_none_or(|asked| asked.iter().any(|one| one.as_str() == Some(name)));
        let may = |name: &str| self.tools.as_ref().is_none_or(|tools| tools.iter().any(|one| one == name));
        let tools = caller.tools.iter().filter(|tool| asks(&tool.name) && may(&tool.name)).cloned().collect();
        let lease = lease(members, ledger)?;
        let mut limits = caller.limits.clone();
        (limits.max_steps, limits.max_tool_calls) = (lease.steps, lease.tool_calls);
        (limits.max_tokens, limits.max_cost_micros) = (lease.tokens, lease.cost_micros);
        // The lease is a part of what the caller was lent, which nobody below can add to.
        if let Some(share) = limits.share.take() {
            limits.stops_at.extend(share.resources());
        }
        if limits.needs_prices {
            limits.stops_at.push(Resource::Unpriced);
        }
        let wall = members.get("wall_ms").and_then(Value::as_u64);
        let left = ledger.wall.left(now).map(|left| u64::try_from(left.as_millis()).unwrap_or(u64::MAX));
        // What it was given less of is no time of the run.
        limits.wall_of_run &= wall.is_none_or(|wall| left.is_some_and(|left| left <= wall));
        limits.wall_ms = match (wall, left) {
            (Some(wall), Some(left)) => Some(wall.min(left)),
            (wall, left) => wall.or(left),
        };
        limits.allow_unpriced = unpriced_allowed;
        let (model, price) = match (degraded, &self.model) {
            // When money is short, no agent is dear, whatever the grant names.
            (Some(cheaper), _) => (cheaper.model.clone(), cheaper.price),
            // Another model has a price that is not known here.
            (None, Some(model)) if *model != caller.model => (model.clone(), None),
            (None, _) => (caller.model.clone(), caller.price),
        };
        let spec = AgentSpec {
            name: format!("{}.{}", caller.name, caller.depth + 1),
            price,
            model,
            system: self.system.clone(),
            task: members.get("task").and_then(Value::as_str).unwrap_or_default().to_owned(),
            schema: None,
            tools,
            limits,
            depth: caller.depth + 1,
            ..caller.clone()
        };
        Ok(CallPlan::Agent { spec: Box::new(spec), lease })
    }
}

/// What an agent that is called gets of the budget: what is asked for, or half of what is left.
fn lease(members: &Map<String, Value>, ledger: &BudgetLedger) -> Result<Caps, String> {
    let asked = |name: &str| members.get(name).and_then(Value::as_u64);
    let mut left = ledger.remaining();
    // The call itself is one.
    left.tool_calls = left.tool_calls.map(|left| left.saturating_sub(1));
    let half = |left: Option<u64>| left.map(|left| left.div_ceil(2));
    let lease = Caps {
        steps: asked("max_steps").or(half(left.steps)),
        tool_calls: asked("max_tool_calls").or(half(left.tool_calls)),
        tokens: asked("max_tokens").or(half(left.tokens)),
        cost_micros: asked("max_cost_micros").or(half(left.cost_micros)),
    };
    let lease = lease.within(left);
    if [lease.steps, lease.tokens, lease.cost_micros].contains(&Some(0)) {
        return Err("there is too little budget left for another agent".to_owned());
    }
    Ok(lease)
}

#[cfg(test)]
mod tests {
    use super::super::ledger::Wall;
    use super::super::turn::fitting;
    use super::*;

    fn planned(does: Value, more: Value, arguments: Value) -> Result<Value, String> {
        let mut tool = json!({ "name": "t", "does": does });
        tool.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let spec = json!({ "name": "a", "provider": "p", "model": "m", "task": "t", "tools": [tool] });
        let spec: AgentSpec = serde_json::from_value(spec).unwrap();
        assert_eq!(spec.check(), Ok(()));
        let ledger = BudgetLedger::new(Caps::default(), Wall::default());
        let caller =
            CallingAgent { spec: &spec, ledger: &ledger, now: Timestamp(0), degraded: None, unpriced_allowed: false };
        let tool = &spec.tools[0];
        let fitting = fitting(tool.judged_by().as_ref(), &arguments).map_err(|why| why.to_string())?;
        match tool.plan(fitting, &caller)? {
            CallPlan::Activity { input, .. } => Ok(input),
            CallPlan::Agent { spec, .. } => Ok(json!(spec)),
        }
    }

    /// G37: arguments are filled in and never become another program, an option or another argument.
    #[test]
    fn a_command_is_its_template_with_the_values_filled_in() {
        let argv = |template: Value, arguments: Value| {
            planned(json!({ "process": { "argv": template } }), json!({}), arguments).map(|input| input["argv"].clone())
        };
        let template = json!(["git", "log", "--author={who}", "--", "{path}"]);
        assert_eq!(
            argv(template.clone(), json!({ "who": "-x; rm $(a)", "path": "--all" })),
            Ok(json!(["git", "log", "--author=-x; rm $(a)", "--", "--all"])),
            "after `--` nothing is an option"
        );
        assert!(argv(template.clone(), json!({ "who": "a" })).unwrap_err().contains("/path: it is missing"));
        assert!(argv(template, json!({ "who": "a", "path": "b", "argv": ["rm"] })).is_err());
        assert!(argv(json!(["cat", "{file}"]), json!({ "file": "-n" })).unwrap_err().contains("option"));
        assert!(argv(json!(["cat", "{file}"]), json!({ "file": "a\0b" })).unwrap_err().contains("NUL"));
        assert_eq!(
            argv(json!(["echo", "{a}{b}", "{ }"]), json!({ "a": "{b}", "b": "x" })),
            Ok(json!(["echo", "{b}x", "{ }"]))
        );
        let optional = json!({ "parameters": { "type": "object", "properties": { "n": { "type": "integer" } } } });
        let head = json!({ "process": { "argv": ["head", "-n{n}", "f"] } });
        assert_eq!(
            planned(head.clone(), optional.clone(), json!({ "n": 3 })).unwrap()["argv"],
            json!(["head", "-n3", "f"])
        );
        assert_eq!(planned(head, optional, json!({})).unwrap()["argv"], json!(["head", "f"]), "left out");
    }

    /// G36: what is not an allowed host, spelled in whatever way, is refused before anything is dispatched.
    #[test]
    fn only_allowed_hosts_and_methods_are_asked() {
        let grant =
            json!({ "http": { "hosts": ["api.example", "[::1]:8080", "b.example:8443"], "methods": ["GET", "PUT"] } });
        let ask = |arguments: Value| planned(grant.clone(), json!({}), arguments);
        for url in
            ["https://api.example/x?y=z", "https://API.example:443/", "https://[::1]:8080/", "https://b.example:8443/"]
        {
            let input = ask(json!({ "url": url })).unwrap();
            assert_eq!((&input["method"], &input["follow_redirects"]), (&json!("GET"), &json!(0)), "{url}");
        }
        for url in [
            "http://api.example/",
            "https://api.example.evil/",
            "https://evil/api.example",
            "https://api.example@evil/",
            "https://a:b@api.example/",
            "https://api.example:8443/",
            "https://b.example/",
            "ftp://api.example/",
            "//api.example/",
            "api.example",
            "",
            "https://api.example%2eevil/",
            "https://0x7f000001/",
            "https://[::1]/",
            "file:///etc/passwd",
            "data:,x",
            "https://xn--api-.example/",
        ] {
            assert!(ask(json!({ "url": url })).is_err(), "{url}");
        }
        assert!(ask(json!({ "url": "https://api.example/", "method": "DELETE" })).is_err());
        assert!(ask(json!({ "url": "https://api.example/", "headers": {} })).is_err());
        assert_eq!(
            ask(json!({ "url": "https://api.example/", "method": "PUT", "json": { "a": 1 } })).unwrap()["json"],
            json!({ "a": 1 })
        );
    }

    #[test]
    fn a_file_tool_names_its_own_root_and_writes_only_if_it_may() {
        let ask = |write: bool, arguments: Value| {
            planned(json!({ "file": { "root": "/w", "write": write } }), json!({}), arguments)
        };
        let input = ask(false, json!({ "op": "read", "path": "a" })).unwrap();
        assert_eq!(input, json!({ "root": "/w", "max_bytes": 32_768, "op": "read", "path": "a" }));
        assert!(ask(false, json!({ "op": "write", "path": "a", "content": "x" })).is_err());
        assert!(ask(true, json!({ "op": "write", "path": "a", "content": "x" })).is_ok());
        assert!(ask(true, json!({ "op": "read", "path": "a", "root": "/" })).is_err());
    }

    /// What a model says is arguments, and never another tool or server.
    #[test]
    fn a_tool_of_a_server_is_the_one_of_its_grant() {
        let ask = |tools: Value, more: Value, arguments: Value| {
            planned(json!({ "mcp": { "server": "s", "tools": tools } }), more, arguments)
        };
        let open = json!({ "parameters": { "type": "object" } });
        let input = ask(json!(["read"]), open.clone(), json!({ "server": "evil", "tool": "rm" })).unwrap();
        let arguments = json!({ "server": "evil", "tool": "rm" });
        let wanted = json!({ "server": "s", "tool": "read", "arguments": arguments, "timeout_ms": 60_000,
            "output_max": 32_768 });
        assert_eq!(input, wanted);
        let strict = json!({ "parameters": { "type": "object", "additionalProperties": false } });
        assert!(ask(json!(["read"]), strict, json!({ "tool": "rm" })).is_err());
        assert!(
            ask(json!(["read", "rm"]), json!({}), json!({})).is_err(),
            "before the tools are known nothing is called"
        );
    }

    #[test]
    fn a_delegation_cannot_name_what_the_schema_does_not() {
        let ask = |arguments: Value| planned(json!({ "agent": {} }), json!({}), arguments);
        assert_eq!(ask(json!({ "task": "x" })).unwrap()["depth"], 1);
        for wider in [
            json!({ "task": "x", "depth": 0 }),
            json!({ "task": "x", "limits": {} }),
            json!({ "task": "x", "system": "obey" }),
            json!({ "task": "x", "tools": [{ "name": "rm" }] }),
            json!({ "task": "x", "max_steps": -1 }),
        ] {
            assert!(ask(wider.clone()).is_err(), "{wider}");
        }
    }
}
