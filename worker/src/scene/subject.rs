//! What a scene runs: a spec, a plan, or a workflow of the program; or why it cannot be run.
//!
//! Invariant: a spec or a plan is read as `bosun run` reads it, with the same words where it is refused; files that it names
//! lie beside it. A plan runs in a directory that is nowhere: no program is started. It plays nothing.

use std::path::Path;

use bosun_engine::{Payload, WorkflowType};
use serde_json::{Value, json};

use super::file::Files;
use super::matcher::Matcher;
use super::outside::Complaint;
use super::rule::Rule;
use super::world::to_world;
use crate::supervisor::fields::Fields;
use crate::supervisor::run::{RunContext, SUPERVISOR, SupervisorInput};
use crate::supervisor::spec::{InvalidSpec, SupervisorSpec, UnreadFile, is_spec_text, read_spec_in};
use crate::supervisor::{FieldError, InvalidPlanFile, PLAN_RUN, PlanProblem, PlanRunInput};

/// Where a plan runs in a scene: the same on every machine.
const DIRECTORY: &str = "/scene";

/// What runs.
pub(super) struct Subject {
    pub(super) workflow_type: WorkflowType,
    pub(super) input: Payload,
    /// The spec with its preset, as the run gets it.
    pub(super) spec: Option<Box<SupervisorSpec>>,
    /// What `bosun run` says of the spec beside running it.
    pub(super) warnings: Vec<String>,
}

/// Why a spec or a plan is not read.
pub(super) struct Refusal {
    path: String,
    problem: String,
    /// As `bosun run` says it.
    text: String,
}

/// A spec or a plan that must not be read, and what became of it.
#[derive(Debug, Clone)]
pub(crate) struct Refused {
    is: Matcher,
    seen: Option<Value>,
}

impl Subject {
    /// Nothing runs.
    pub(super) fn none() -> Subject {
        let workflow_type = WorkflowType::of(PLAN_RUN);
        Subject { workflow_type, input: Payload::null(), spec: None, warnings: Vec::new() }
    }

    pub(super) fn read(fields: &Fields<'_>, world: &[Rule], files: Files<'_>) -> Result<Subject, FieldError> {
        let inline = fields.value("spec").is_some_and(|spec| !spec.is_string());
        Self::found(fields, world, files)?.map_err(|why| match inline {
            true => FieldError::at(format!("spec.{}", why.path).trim_end_matches('.'), why.problem),
            false => FieldError::at("spec", why.text),
        })
    }

    /// What runs, or why it does not; an error where the scene itself is wrong.
    fn found(fields: &Fields<'_>, world: &[Rule], files: Files<'_>) -> Result<Result<Subject, Refusal>, FieldError> {
        let spec = match (fields.value("spec"), fields.text("workflow")?) {
            (Some(_), Some(_)) => {
                return Err(fields.error("workflow", "give either `spec` or `workflow`, not both"));
            }
            (None, None) => {
                let why = "required key `spec` is missing (or `workflow`, for a workflow of your own)";
                return Err(fields.error("spec", why));
            }
            (None, Some(name)) => {
                let workflow_type = WorkflowType::new(name).map_err(|why| fields.error("workflow", why.to_string()))?;
                let input = encoded(fields.value("input").unwrap_or(&Value::Null))?;
                return Ok(Ok(Subject { workflow_type, input, spec: None, warnings: Vec::new() }));
            }
            (Some(spec), None) => spec,
        };
        let (name, text) = match spec {
            Value::String(name) => (name.clone(), files(name).map_err(|why| fields.error("spec", why))?),
            // JSON is YAML, so what stands inside is read as a file would be.
            inline => (INLINE.to_owned(), inline.to_string()),
        };
        if is_spec_text(&text) { supervisor(fields, world, files, &name, &text) } else { plan(fields, &name, &text) }
    }
}

/// The name of what stands inside of a scene; its places are not those of the scene's file.
const INLINE: &str = "spec";

fn encoded(value: &Value) -> Result<Payload, FieldError> {
    Payload::encode(value).map_err(|why| FieldError::at("input", why.to_string()))
}

fn plan(fields: &Fields<'_>, name: &str, text: &str) -> Result<Result<Subject, Refusal>, FieldError> {
    for key in ["input", "context"] {
        if fields.has(key) {
            return Err(fields.error(key, "is for a spec: nothing of a plan can be set from outside"));
        }
    }
    Ok(match PlanRunInput::read(name, text, DIRECTORY) {
        Err(why) => Err(InvalidPlanFile { place: why.place.filter(|_| name != INLINE), ..why }.into()),
        Ok(input) => {
            let input = encoded(&serde_json::to_value(&input).unwrap_or_default())?;
            Ok(Subject { workflow_type: WorkflowType::of(PLAN_RUN), input, spec: None, warnings: Vec::new() })
        }
    })
}

fn supervisor(
    fields: &Fields<'_>,
    world: &[Rule],
    files: Files<'_>,
    name: &str,
    text: &str,
) -> Result<Result<Subject, Refusal>, FieldError> {
    let over = fields.value("input").unwrap_or(&Value::Null);
    let folder = Path::new(name).parent().unwrap_or(Path::new("")).to_owned();
    let beside = |file: &str| files(&folder.join(file).to_string_lossy()).map_err(UnreadFile);
    let resolved = read_spec_in(Some(DIRECTORY), name, text, over, &beside).and_then(|mut read| {
        // It was checked as it is written, when it was read.
        to_world(&mut read.spec, world);
        Ok((read.spec.resolve_below().map_err(|why| InvalidSpec { path: name.to_owned(), ..why })?, read.warnings))
    });
    let (resolved, warnings) = match resolved {
        Ok(read) => read,
        Err(why) => return Ok(Err(InvalidSpec { place: why.place.filter(|_| name != INLINE), ..why }.into())),
    };
    let whole = Box::new(resolved.spec.clone());
    let mut run = SupervisorInput::new(resolved);
    if let Some(context) = fields.value("context") {
        run.context = read_context(&fields.path_of("context"), context)?;
    }
    // A scene may also show that such a run fails at its start.
    if let Some(why) = run.refused().filter(|_| fields.has("refused")) {
        return Ok(Err(
            InvalidSpec { path: name.to_owned(), at: String::new(), why, place: None, faults: Vec::new() }.into()
        ));
    }
    let input = encoded(&serde_json::to_value(&run).unwrap_or_default())?;
    Ok(Ok(Subject { workflow_type: WorkflowType::of(SUPERVISOR), input, spec: Some(whole), warnings }))
}

/// Where a run stands; what is wrong is told of the key that it is wrong with.
fn read_context(path: &str, context: &Value) -> Result<RunContext, FieldError> {
    let told = |path: &str, why: serde_json::Error| {
        let why = why.to_string();
        let wrong = why.strip_prefix("invalid type: ").or(why.strip_prefix("invalid value: "));
        let Some((found, wanted)) = wrong.and_then(|rest| rest.split_once(", expected ")) else {
            return FieldError::at(path, why);
        };
        let is_number = |wanted: &&str| wanted.starts_with(['u', 'i']) && wanted[1..].parse::<u8>().is_ok();
        let wanted = Some(wanted).filter(|wanted| !is_number(wanted)).unwrap_or("a whole number");
        FieldError::at(path, format!("expected {wanted}, found {found}"))
    };
    for (key, value) in context.as_object().into_iter().flatten() {
        let one = serde_json::json!({ key: value });
        serde_json::from_value::<RunContext>(one).map_err(|why| told(&format!("{path}.{key}"), why))?;
    }
    serde_json::from_value(context.clone()).map_err(|why| told(path, why))
}

impl From<InvalidSpec> for Refusal {
    fn from(why: InvalidSpec) -> Refusal {
        Refusal { text: why.to_string(), path: why.at, problem: why.why }
    }
}

impl From<InvalidPlanFile> for Refusal {
    fn from(why: InvalidPlanFile) -> Refusal {
        let text = why.to_string();
        match why.problem {
            PlanProblem::Field(why) => Refusal { text, path: why.path, problem: why.problem },
            other => Refusal { text, path: String::new(), problem: other.to_string() },
        }
    }
}

impl Refused {
    /// `refused:` of a scene, if it has one: a part of the text, words about it, or `path`, `problem` and `text`.
    pub(super) fn read(fields: &Fields<'_>, world: &[Rule], files: Files<'_>) -> Result<Option<Refused>, FieldError> {
        let Some(given) = fields.value("refused") else { return Ok(None) };
        for key in ["expect", "people", "faults", "until", "order", "ways"] {
            if fields.has(key) {
                return Err(fields.error(key, "nothing runs in a scene that is `refused`"));
            }
        }
        let at = "refused";
        let text = |is| Matcher::Keys(vec![("text".to_owned(), is)]);
        let is = match given {
            Value::String(_) => text(Matcher::word(at, "contains", given)?),
            Value::Object(map) if map.keys().any(|key| ["path", "problem", "text"].contains(&key.as_str())) => {
                Fields::read(given, at, &["path", "problem", "text"])?;
                Matcher::read(at, given)?
            }
            Value::Object(_) => text(Matcher::read(at, given)?),
            other => {
                let why = format!("expected the text of the refusal, or `path`, `problem` and `text`, found {other}");
                return Err(FieldError::at(at, why));
            }
        };
        if fields.has("workflow") {
            return Err(fields.error("workflow", "only a spec or a plan is refused"));
        }
        let seen = Subject::found(fields, world, files)?.err();
        let seen = seen.map(|why| json!({ "path": why.path, "problem": why.problem, "text": why.text }));
        Ok(Some(Refused { is, seen }))
    }

    /// What is wrong, if it is not refused as it must be.
    pub(super) fn complaint(&self) -> Option<Complaint> {
        let Some(seen) = &self.seen else {
            return Some(Complaint::new("refused", format!("refused: {}", self.is), "it is read, and could run"));
        };
        let why = self.is.check(Some(seen), "").err()?;
        let update = why.value.map(|value| (format!("refused.{}", why.at), value));
        Some(Complaint { at: format!("refused.{}", why.at), expected: why.expected, seen: why.seen, update })
    }
}
