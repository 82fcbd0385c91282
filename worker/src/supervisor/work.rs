//! Work: what a task's `capability` and `parameters` mean, checked when the plan is loaded, rendered when it is claimed.
//!
//! Invariant: parameters are strict (no unknown key, no value of another type, no unknown placeholder), so a plan that
//! was loaded cannot fail later for the way it is written. Rendering needs recorded results only. It starts nothing.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use bosun_engine::{ActivityOptions, ActivityType, CancellationType, RetryPolicy};
use serde_json::{Map, Value, json};

use super::core::retry::DELIVERIES_MAX;
use super::critic::CriticRules;
use super::fields::{FieldError, Fields, kind};
use super::placeholder::{JsonTemplate, NoValue, Template, TemplateScope, Values};
use super::plan::{Plan, TaskItem};
use super::task::{TaskNumber, TaskStatus};
use crate::capability::compose::COMPOSE;
use crate::capability::http::HTTP;
use crate::capability::process::PROCESS;

/// How long a task may run that does not say.
const TIMEOUT_DEFAULT: Duration = Duration::from_secs(600);
/// How much longer than the capability's own timeout the engine waits: the capability is to end its process first.
const TIMEOUT_MARGIN: Duration = Duration::from_secs(15);
/// Bytes kept of each stream of a task. Less than the activity's default: results of a plan stay in its state.
const OUTPUT_MAX_DEFAULT: u64 = 256 * 1024;
/// What a plan's tasks can be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Capability {
    Process,
    Http,
    Compose,
    /// Any activity that is registered in the worker.
    Activity,
}

const CAPABILITIES: [Capability; 4] =
    [Capability::Process, Capability::Http, Capability::Compose, Capability::Activity];

impl Capability {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Capability::Process => PROCESS,
            Capability::Http => HTTP,
            Capability::Compose => COMPOSE,
            Capability::Activity => "activity",
        }
    }
    pub(crate) fn of(name: &str) -> Option<Capability> {
        CAPABILITIES.into_iter().find(|capability| capability.as_str() == name)
    }
    /// The fields its results have; `None`: whatever the activity gives.
    pub(crate) fn result_fields(self) -> Option<&'static [&'static str]> {
        match self {
            Capability::Process => Some(&[
                "exit_code",
                "signal",
                "stdout",
                "stderr",
                "truncated",
                "stdout_bytes",
                "stderr_bytes",
                "duration_ms",
                "files",
            ]),
            Capability::Http => Some(&["status", "headers", "body", "json", "url", "truncated"]),
            Capability::Compose => Some(&["report", "path", "bytes"]),
            Capability::Activity => None,
        }
    }
    /// The result as people read it.
    pub(crate) fn text_of(self, result: &Value) -> String {
        let field = match self {
            Capability::Process => "stdout",
            Capability::Http => "body",
            Capability::Compose => "report",
            Capability::Activity => "",
        };
        match result.get(field).unwrap_or(result) {
            Value::String(text) => text.clone(),
            Value::Null => String::new(),
            other => format!("{other:#}"),
        }
    }
}

impl fmt::Display for Capability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The checked work of one task.
#[derive(Debug, Clone)]
pub(crate) struct Work {
    pub(crate) capability: Capability,
    activity_type: ActivityType,
    timeout: Duration,
    /// The activity's input, with slots. It is one mapping, or for `activity` anything.
    input: JsonTemplate,
}

const PROCESS_KEYS: [&str; 10] =
    ["argv", "cwd", "env", "env_allow", "stdin", "stdin_from", "timeout", "output_max", "success_codes", "review"];
const HTTP_KEYS: [&str; 9] =
    ["method", "url", "headers", "body", "json", "timeout", "response_max", "follow_redirects", "review"];
const COMPOSE_KEYS: [&str; 5] = ["title", "intro", "sections", "out", "review"];
const ACTIVITY_KEYS: [&str; 4] = ["type", "input", "timeout", "review"];

/// Checks that every task of a plan can be run as it is written. What `others` do is none of a plan file's.
pub(crate) fn check(plan: &Plan, others: &dyn Fn(&TaskItem) -> bool) -> Result<(), FieldError> {
    for item in plan.tasks() {
        if !matches!(item.status, TaskStatus::Pending | TaskStatus::Ready) {
            let why = format!("a plan to run starts its tasks as pending or ready, not as {}", item.status);
            return Err(FieldError::at(format!("task {}.status", item.task_id), why));
        }
        if !others(item) {
            Work::of(item, plan)?;
        }
    }
    Ok(())
}

impl Work {
    pub(crate) fn of(item: &TaskItem, plan: &Plan) -> Result<Work, FieldError> {
        let of_dependency = |id: &TaskNumber| Some((*id, Capability::of(&plan.task(*id)?.capability)?));
        let capabilities: BTreeMap<_, _> = item.sub_task_dependencies.iter().filter_map(of_dependency).collect();
        let scope = TemplateScope {
            task: item.task_id,
            dependencies: &item.sub_task_dependencies,
            capabilities: &capabilities,
        };
        Work::read(&item.capability, &item.parameters, &scope)
    }

    /// The work of the task that the scope is of, which may name what stands there.
    pub(crate) fn read(
        capability: &str,
        parameters: &Map<String, Value>,
        scope: &TemplateScope<'_>,
    ) -> Result<Work, FieldError> {
        let place = format!("task {}", scope.task);
        let Some(capability) = Capability::of(capability) else {
            let known: Vec<&str> = CAPABILITIES.iter().map(|capability| capability.as_str()).collect();
            let why = format!("Unknown capability: '{capability}'; known: {}", known.join(", "));
            return Err(FieldError::at(format!("{place}.capability"), why));
        };
        let parameters = Value::Object(parameters.clone());
        let path = format!("{place}.parameters");
        match capability {
            Capability::Process => process(&Fields::read(&parameters, &path, &PROCESS_KEYS)?, scope),
            Capability::Http => http(&Fields::read(&parameters, &path, &HTTP_KEYS)?, scope),
            Capability::Compose => compose(&Fields::read(&parameters, &path, &COMPOSE_KEYS)?, scope),
            Capability::Activity => activity(&Fields::read(&parameters, &path, &ACTIVITY_KEYS)?, scope),
        }
    }

    pub(crate) fn activity_type(&self) -> ActivityType {
        self.activity_type.clone()
    }

    /// The activity's input. `directory` is where the plan runs and what its files must not leave.
    pub(crate) fn input(&self, directory: &str, values: &Values<'_>) -> Result<Value, NoValue> {
        let mut input = self.input.render(values)?;
        if let Value::Object(fields) = &mut input {
            match self.capability {
                Capability::Process => fields.insert("jail".into(), directory.into()),
                Capability::Compose => fields.insert("directory".into(), directory.into()),
                Capability::Http | Capability::Activity => None,
            };
        }
        Ok(input)
    }

    /// One attempt of the task is one activity. The engine repeats it when the worker was lost, since that is no fault
    /// of the task; faults of the task come back as failures and are the task machine's to count.
    pub(crate) fn options(&self, summary: String) -> ActivityOptions {
        let retry_policy = match self.capability {
            Capability::Process | Capability::Compose => RetryPolicy::for_lost_workers(1 + DELIVERIES_MAX),
            // These know themselves which failures may pass.
            Capability::Http => RetryPolicy { maximum_attempts: 5, ..RetryPolicy::default() },
            Capability::Activity => RetryPolicy { maximum_attempts: 3, ..RetryPolicy::default() },
        };
        ActivityOptions {
            start_to_close: Some(self.timeout + TIMEOUT_MARGIN),
            retry_policy: Some(retry_policy),
            cancellation: CancellationType::WaitCancellationCompleted,
            summary: Some(summary),
            ..ActivityOptions::default()
        }
    }
}

fn review(fields: &Fields<'_>, capability: Capability) -> Result<Option<CriticRules>, FieldError> {
    fields.value("review").map(|rules| CriticRules::read(&fields.path_of("review"), rules, capability)).transpose()
}

/// Collects the templates of an input.
struct InputBuilder<'a, 'f> {
    fields: &'a Fields<'f>,
    scope: &'a TemplateScope<'a>,
    entries: Vec<(String, JsonTemplate)>,
}

impl InputBuilder<'_, '_> {
    fn constant(&mut self, name: &str, value: impl Into<Value>) {
        self.entries.push((name.to_owned(), JsonTemplate::Other(value.into())));
    }
    fn text(&mut self, name: &str, text: Option<&str>) -> Result<(), FieldError> {
        if let Some(text) = text {
            let template = Template::parse(&self.fields.path_of(name), text, self.scope)?;
            self.entries.push((name.to_owned(), JsonTemplate::Text(template)));
        }
        Ok(())
    }
    /// A value whose texts stay texts, whatever fills their slots.
    fn texts(&mut self, name: &str) -> Result<(), FieldError> {
        if let Some(value) = self.fields.value(name) {
            let template = JsonTemplate::of_texts(&self.fields.path_of(name), value, self.scope)?;
            self.entries.push((name.to_owned(), template));
        }
        Ok(())
    }
    fn done(self) -> JsonTemplate {
        JsonTemplate::Mapping(self.entries)
    }
}

fn process(fields: &Fields<'_>, scope: &TemplateScope<'_>) -> Result<Work, FieldError> {
    let review = review(fields, Capability::Process)?;
    let timeout = fields.duration("timeout")?.unwrap_or(TIMEOUT_DEFAULT);
    let mut input = InputBuilder { fields, scope, entries: Vec::new() };
    if fields.required("argv", fields.list("argv")?)?.is_empty() || fields.texts("argv")?[0].is_empty() {
        return Err(fields.error("argv", "argv is empty; its first entry must name the command"));
    }
    input.texts("argv")?;
    if let Some(cwd) = fields.text("cwd")? {
        input.constant("cwd", inside(fields, "cwd", cwd)?);
    }
    text_mapping(fields, "env")?;
    input.texts("env")?;
    input.constant("env_allow", fields.texts("env_allow")?);
    let stdin = match (fields.text("stdin")?, fields.natural("stdin_from")?) {
        (Some(_), Some(_)) => return Err(fields.error("stdin_from", "either stdin or stdin_from, not both")),
        (stdin, None) => stdin,
        (None, Some(task)) if scope.dependencies.iter().any(|id| u64::from(id.0) == task) => {
            Some(format!("{{{{task.{task}.text}}}}"))
        }
        (None, Some(task)) => {
            let why = format!("task {task} is not in the sub_task_dependencies of task {}", scope.task);
            return Err(fields.error("stdin_from", why));
        }
    };
    input.text("stdin", stdin.as_deref())?;
    input.constant("timeout_ms", u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX));
    input.constant("output_max", fields.natural("output_max")?.unwrap_or(OUTPUT_MAX_DEFAULT));
    let any = fields.value("success_codes").is_some_and(|codes| codes == "any");
    let judged = review.as_ref().is_some_and(CriticRules::judges_exit_code);
    let codes = match (any || judged, fields.has("success_codes")) {
        (true, _) => Vec::new(),
        (false, true) => fields.one_or_more_integers("success_codes")?,
        (false, false) => vec![0],
    };
    input.constant("success_codes", codes);
    input.constant("report_files", review.as_ref().map(CriticRules::files).unwrap_or_default());
    let input = input.done();
    Ok(Work { capability: Capability::Process, activity_type: PROCESS.into(), timeout, input })
}

fn http(fields: &Fields<'_>, scope: &TemplateScope<'_>) -> Result<Work, FieldError> {
    let review = review(fields, Capability::Http)?;
    let timeout = fields.duration("timeout")?.unwrap_or(Duration::from_secs(30));
    let mut input = InputBuilder { fields, scope, entries: Vec::new() };
    fields.required_text("url")?;
    for name in ["method", "url", "body"] {
        input.text(name, fields.text(name)?.as_deref())?;
    }
    input.texts("headers")?;
    if let Some(value) = fields.value("json") {
        if fields.has("body") {
            return Err(fields.error("json", "either body or json, not both"));
        }
        let template = JsonTemplate::parse(&fields.path_of("json"), value, scope)?;
        input.entries.push(("json".into(), template));
    }
    for name in ["response_max", "follow_redirects"] {
        if let Some(number) = fields.natural(name)? {
            input.constant(name, number);
        }
    }
    input.constant("timeout_ms", u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX));
    input.constant("any_status", review.as_ref().is_some_and(CriticRules::judges_http_status));
    let input = input.done();
    Ok(Work { capability: Capability::Http, activity_type: HTTP.into(), timeout, input })
}

fn compose(fields: &Fields<'_>, scope: &TemplateScope<'_>) -> Result<Work, FieldError> {
    review(fields, Capability::Compose)?;
    let mut input = InputBuilder { fields, scope, entries: Vec::new() };
    fields.required_text("title")?;
    input.text("title", fields.text("title")?.as_deref())?;
    input.text("intro", fields.text("intro")?.as_deref())?;
    if let Some(out) = fields.text("out")? {
        input.constant("out", inside(fields, "out", out)?);
    }
    for (path, section) in fields.required("sections", Some(fields.entries("sections")?))? {
        let section = Fields::read(section, &path, &["heading", "text", "code"])?;
        section.required_text("heading")?;
        section.required("text", section.text("text")?)?;
        section.boolean("code")?;
    }
    input.texts("sections")?;
    let input = input.done();
    let timeout = Duration::from_secs(30);
    Ok(Work { capability: Capability::Compose, activity_type: COMPOSE.into(), timeout, input })
}

fn activity(fields: &Fields<'_>, scope: &TemplateScope<'_>) -> Result<Work, FieldError> {
    review(fields, Capability::Activity)?;
    let timeout = fields.duration("timeout")?.unwrap_or(TIMEOUT_DEFAULT);
    let name = fields.required_text("type")?;
    let activity_type = ActivityType::new(&name).map_err(|why| fields.error("type", why.to_string()))?;
    let null = json!(null);
    let input = JsonTemplate::parse(&fields.path_of("input"), fields.value("input").unwrap_or(&null), scope)?;
    Ok(Work { capability: Capability::Activity, activity_type, timeout, input })
}

/// A path that stays in the plan's directory as written; links are looked at when it is used.
fn inside(fields: &Fields<'_>, key: &str, path: String) -> Result<String, FieldError> {
    let leaves = path.starts_with('/') || path.split('/').any(|segment| segment == "..") || path.contains('\0');
    if leaves || path.is_empty() {
        return Err(fields.error(key, format!("{path:?} must be a path inside the plan's directory")));
    }
    Ok(path)
}

fn text_mapping(fields: &Fields<'_>, key: &str) -> Result<(), FieldError> {
    match fields.value(key) {
        None => Ok(()),
        Some(Value::Object(map)) => all_texts(fields, key, map),
        Some(other) => Err(fields.error(key, format!("expected a mapping, found {}", kind(other)))),
    }
}

fn all_texts(fields: &Fields<'_>, key: &str, map: &Map<String, Value>) -> Result<(), FieldError> {
    match map.iter().find(|(_, value)| !value.is_string()) {
        Some((name, other)) => Err(FieldError::at(
            format!("{}.{name}", fields.path_of(key)),
            format!("expected a text, found {}", kind(other)),
        )),
        None => Ok(()),
    }
}
