//! Programs of the kitchen sink: from JSON to steps, each with its place.
//!
//! Invariant: a program that was read has no unknown step and no unknown key. Values stay JSON: references to variables
//! are resolved when a step begins.

use std::rc::Rc;
use std::time::Duration;

use bosun_engine::{
    ActivityOptions, ActivityType, ChildWorkflowOptions, PatchId, SignalName, WorkflowId, WorkflowType,
};
use serde_json::{Map, Value};

use super::options::{activity, child, id};
use crate::supervisor::{FieldError, fields::Fields};

pub(super) type Steps = Rc<[ProgramStep]>;

/// A program, checked.
#[derive(Debug, Clone)]
pub(super) struct SinkProgram {
    pub(super) steps: Steps,
    pub(super) vars: Map<String, Value>,
}

/// One step and where it stands, for example `steps[2].parallel[0][1].timer`.
#[derive(Debug, Clone)]
pub(super) struct ProgramStep {
    pub(super) path: String,
    pub(super) act: Op,
}

#[derive(Debug, Clone)]
pub(super) enum Op {
    Activity {
        activity_type: ActivityType,
        input: Value,
        options: Box<ActivityOptions>,
        save: Save,
    },
    Timer {
        after: Duration,
        summary: Option<String>,
    },
    SleepUntil(Value),
    WaitSignal {
        name: SignalName,
        timeout: Option<Duration>,
        save: Save,
    },
    DrainSignals {
        name: SignalName,
        save: Save,
    },
    WaitVar {
        name: String,
        equals: Value,
    },
    Child {
        workflow_type: WorkflowType,
        id: Option<Value>,
        input: Value,
        options: Box<ChildWorkflowOptions>,
        wait: bool,
        save: Save,
    },
    Signal {
        workflow_id: Value,
        name: SignalName,
        input: Value,
    },
    CancelWorkflow {
        workflow_id: Value,
        reason: String,
    },
    Parallel(Vec<Steps>),
    Race {
        branches: Vec<Steps>,
        save: Save,
    },
    Loop {
        times: u64,
        save: Save,
        steps: Steps,
    },
    If {
        var: String,
        equals: Value,
        then: Steps,
        otherwise: Steps,
    },
    Try {
        steps: Steps,
        catch: Option<Steps>,
        always: Steps,
        save: Save,
    },
    Saga(Vec<(Steps, Steps)>),
    SideEffect {
        value: Value,
        save: Save,
    },
    Random(String),
    Uuid(String),
    Now(String),
    Patch {
        id: PatchId,
        new: Steps,
        old: Steps,
    },
    DeprecatePatch(PatchId),
    Upsert(Value),
    Memo(Value),
    Set(Value),
    WaitCancel(String),
    ContinueAsNew(Value),
    Fail {
        failure_type: String,
        message: Value,
        non_retryable: bool,
        details: Option<Value>,
    },
    Return(Value),
}

/// The variable that takes a result.
pub(super) type Save = Option<String>;

pub(super) type Read<T> = Result<T, FieldError>;

const NAMES: [&str; 27] = [
    "activity",
    "timer",
    "sleep_until",
    "wait_signal",
    "drain_signals",
    "wait_var",
    "child",
    "signal",
    "cancel_workflow",
    "parallel",
    "race",
    "loop",
    "if",
    "try",
    "saga",
    "side_effect",
    "random",
    "uuid",
    "now",
    "patch",
    "deprecate_patch",
    "upsert",
    "memo",
    "set",
    "wait_cancel",
    "continue_as_new",
    "fail",
];

/// Nested deeper, a program is refused: reading it must not exhaust the stack.
const DEPTH_MAX: usize = 32;

impl SinkProgram {
    pub(super) fn read(value: &Value) -> Read<SinkProgram> {
        let fields = Fields::read(value, "", &["steps", "vars"])?;
        fields.required("steps", fields.list("steps")?)?;
        let vars = match fields.value("vars") {
            None => Map::new(),
            Some(Value::Object(vars)) => vars.clone(),
            Some(_) => return Err(fields.error("vars", "expected a mapping")),
        };
        Ok(SinkProgram { steps: steps(&fields, "steps", DEPTH_MAX)?, vars })
    }
}

fn steps(fields: &Fields<'_>, key: &str, depth: usize) -> Read<Steps> {
    fields.entries(key)?.iter().map(|(path, value)| step(path, value, depth)).collect()
}

/// A list of lists of steps.
fn branches(fields: &Fields<'_>, key: &str, depth: usize) -> Read<Vec<Steps>> {
    let branch = |(path, value): (String, &Value)| {
        let list = value.as_array().ok_or_else(|| FieldError::at(&path, "expected a list of steps"))?;
        list.iter().enumerate().map(|(i, value)| step(&format!("{path}[{i}]"), value, depth)).collect()
    };
    fields.entries(key)?.into_iter().map(branch).collect()
}

fn step(path: &str, value: &Value, depth: usize) -> Read<ProgramStep> {
    let Some(depth) = depth.checked_sub(1) else {
        return Err(FieldError::at(path, format!("steps are nested deeper than {DEPTH_MAX}")));
    };
    let only = value.as_object().filter(|map| map.len() == 1).and_then(|map| map.iter().next());
    let Some((name, argument)) = only else {
        return Err(FieldError::at(path, "a step is a mapping with one key, its name"));
    };
    // Reading it as a mapping of known steps names the likely one if it is unknown.
    let names: Vec<&str> = NAMES.into_iter().chain(["return"]).collect();
    let fields = Fields::read(value, path, &names).map_err(|why| {
        FieldError::at(path, why.problem.replacen("key", "step", 1).replace("known keys", "known steps"))
    })?;
    let act = simple(&fields, name, argument)?;
    let act = match act {
        Some(act) => act,
        None => nested(&fields, name, argument, depth)?,
    };
    Ok(ProgramStep { path: fields.path_of(name), act })
}

/// Steps without steps inside. One arm a step: long for that reason.
// long: one exhaustive match; a variant more is a line more.
fn simple(outer: &Fields<'_>, name: &str, argument: &Value) -> Read<Option<Op>> {
    let inside = |known: &[&str]| Fields::read(argument, &outer.path_of(name), known);
    let any = |fields: &Fields<'_>, key: &str| fields.value(key).cloned().unwrap_or_default();
    Ok(Some(match name {
        "activity" => activity(&outer.path_of(name), argument)?,
        "child" => child(&outer.path_of(name), argument)?,
        "timer" if argument.is_string() => {
            Op::Timer { after: outer.required(name, outer.duration(name)?)?, summary: None }
        }
        "timer" => {
            let fields = inside(&["for", "summary"])?;
            Op::Timer { after: fields.required("for", fields.duration("for")?)?, summary: fields.text("summary")? }
        }
        "sleep_until" => Op::SleepUntil(argument.clone()),
        "wait_signal" => {
            let fields = inside(&["name", "as", "timeout"])?;
            let name = id(&fields, "name", |text| SignalName::new(text))?;
            Op::WaitSignal { name, timeout: fields.duration("timeout")?, save: fields.text("as")? }
        }
        "drain_signals" => {
            let fields = inside(&["name", "as"])?;
            Op::DrainSignals { name: id(&fields, "name", |text| SignalName::new(text))?, save: fields.text("as")? }
        }
        "wait_var" => {
            let fields = inside(&["name", "equals"])?;
            Op::WaitVar { name: fields.required_text("name")?, equals: any(&fields, "equals") }
        }
        "signal" => {
            let fields = inside(&["workflow_id", "name", "input"])?;
            let workflow_id = Value::String(fields.required_text("workflow_id")?);
            Op::Signal {
                workflow_id,
                name: id(&fields, "name", |text| SignalName::new(text))?,
                input: any(&fields, "input"),
            }
        }
        "cancel_workflow" => {
            let fields = inside(&["workflow_id", "reason"])?;
            let workflow_id = Value::String(fields.required_text("workflow_id")?);
            Op::CancelWorkflow { workflow_id, reason: fields.text("reason")?.unwrap_or_default() }
        }
        "side_effect" => {
            let fields = inside(&["value", "as"])?;
            Op::SideEffect { value: any(&fields, "value"), save: fields.text("as")? }
        }
        "random" => Op::Random(outer.required_text(name)?),
        "uuid" => Op::Uuid(outer.required_text(name)?),
        "now" => Op::Now(outer.required_text(name)?),
        "deprecate_patch" => Op::DeprecatePatch(id(outer, name, |text| PatchId::new(text))?),
        "upsert" => Op::Upsert(argument.clone()),
        "memo" => Op::Memo(argument.clone()),
        "set" => Op::Set(argument.clone()),
        "wait_cancel" => Op::WaitCancel(outer.required_text(name)?),
        "continue_as_new" => {
            inside(&["steps", "vars"])?;
            Op::ContinueAsNew(argument.clone())
        }
        "fail" => {
            let fields = inside(&["type", "message", "non_retryable", "details"])?;
            Op::Fail {
                failure_type: fields.text("type")?.unwrap_or_else(|| "Failed".into()),
                message: any(&fields, "message"),
                non_retryable: fields.boolean("non_retryable")?.unwrap_or(false),
                details: fields.value("details").cloned(),
            }
        }
        "return" => Op::Return(argument.clone()),
        _ => return Ok(None),
    }))
}

/// Steps with steps inside. One arm a step: long for that reason.
fn nested(outer: &Fields<'_>, name: &str, argument: &Value, depth: usize) -> Read<Op> {
    let inside = |known: &[&str]| Fields::read(argument, &outer.path_of(name), known);
    Ok(match name {
        "parallel" => Op::Parallel(branches(outer, name, depth)?),
        "race" => {
            let fields = inside(&["branches", "as"])?;
            let branches = branches(&fields, "branches", depth)?;
            if branches.is_empty() {
                return Err(fields.error("branches", "a race needs a branch"));
            }
            Op::Race { branches, save: fields.text("as")? }
        }
        "loop" => {
            let fields = inside(&["times", "as", "steps"])?;
            let times = fields.required("times", fields.natural("times")?)?;
            Op::Loop { times, save: fields.text("as")?, steps: steps(&fields, "steps", depth)? }
        }
        "if" => {
            let fields = inside(&["var", "equals", "then", "else"])?;
            Op::If {
                var: fields.required_text("var")?,
                equals: fields.value("equals").cloned().unwrap_or_default(),
                then: steps(&fields, "then", depth)?,
                otherwise: steps(&fields, "else", depth)?,
            }
        }
        "try" => {
            let fields = inside(&["steps", "catch", "as", "always"])?;
            let catch = if fields.has("catch") { Some(steps(&fields, "catch", depth)?) } else { None };
            let always = steps(&fields, "always", depth)?;
            Op::Try { steps: steps(&fields, "steps", depth)?, catch, always, save: fields.text("as")? }
        }
        "saga" => {
            let pair = |(path, value): (String, &Value)| {
                let fields = Fields::read(value, &path, &["do", "undo"])?;
                Ok((steps(&fields, "do", depth)?, steps(&fields, "undo", depth)?))
            };
            Op::Saga(outer.entries(name)?.into_iter().map(pair).collect::<Read<_>>()?)
        }
        "patch" => {
            let fields = inside(&["id", "new", "old"])?;
            let id = id(&fields, "id", |text| PatchId::new(text))?;
            Op::Patch { id, new: steps(&fields, "new", depth)?, old: steps(&fields, "old", depth)? }
        }
        other => return Err(outer.error(other, format!("unknown step `{other}`"))),
    })
}

/// A workflow id from a value at run time.
pub(super) fn workflow_id(path: &str, value: &Value) -> Result<WorkflowId, FieldError> {
    let text = value.as_str().ok_or_else(|| FieldError::at(path, format!("{value} is no workflow id")))?;
    WorkflowId::new(text).map_err(|why| FieldError::at(path, why.to_string()))
}
