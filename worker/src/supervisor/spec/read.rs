//! Reading a spec: YAML, the preset below it, overrides above it, then the types and the checks.
//!
//! Invariant: a file is refused with its path and the place of the fault; no key is passed over, nothing is coerced. Other
//! files are asked for by name, and what was in them becomes part of the spec. It opens no file itself.

use serde_json::{Map, Value};

use super::check;
use super::error::InvalidSpec;
use super::every_fault::typed_whole;
use super::foreign;
use super::preset::Preset;
use super::resolve::ResolvedSpec;
use super::sections::SynthesisMode;
use super::shorthand;
use super::typed::typed;
use super::whole::SupervisorSpec;
use crate::supervisor::fields::{FieldError, kind};
use crate::supervisor::plan_yaml::{self, PlanProblem};
use crate::supervisor::yaml::{self, YAML_BYTES_MAX};

/// How deep supervisors may be nested in one spec.
const NESTED_MAX: usize = 8;
/// How many agents are read from files beside the first.
const AGENTS_MAX: usize = 256;

/// Gives the text of another file, by the name the spec has for it.
pub type Files<'a> = &'a dyn Fn(&str) -> Result<String, UnreadFile>;

/// A file has no text for a spec, in the words of whoever reads.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct UnreadFile(pub String);

/// The files of a spec that names none.
const NO_FILES: Files<'static> = &|name| Err(UnreadFile(format!("the file `{name}` cannot be read from here")));

/// A spec that was read.
#[derive(Debug, Clone, PartialEq)]
pub struct SpecFile {
    /// The file, as it was named; empty for a value.
    pub path: String,
    /// What the file says, over its preset.
    pub spec: SupervisorSpec,
    /// What was understood but is probably not what was meant.
    pub warnings: Vec<String>,
}

impl SpecFile {
    /// The spec of a run. The objective may have been set since the file was read.
    pub fn resolve(&self) -> Result<ResolvedSpec, InvalidSpec> {
        self.spec.resolve().map_err(|why| InvalidSpec { path: self.path.clone(), ..why })
    }
}

/// A spec that names no other files. A seed plan of a plan file says itself where its tasks run.
pub fn read_spec(path: &str, text: &str) -> Result<SpecFile, InvalidSpec> {
    read_spec_with(path, text, &Value::Null, NO_FILES)
}

/// A spec as data, from a program: the preset is below what it says, as in a file (PDT-28).
pub fn read_spec_value(value: Value) -> Result<SpecFile, InvalidSpec> {
    let (said, whole) = said(value);
    let read =
        Reader { files: NO_FILES, directory: None, depth: 0, under: String::new(), whole }.spec(said, &Value::Null);
    let (spec, warnings) = read.map_err(|why| InvalidSpec::of("", why))?;
    Ok(SpecFile { path: String::new(), spec, warnings })
}

/// Everything that is wrong with a spec that a program gives to a run: what is missing too, beside what does not fit.
pub(crate) fn faults_of(value: &Value) -> Vec<FieldError> {
    let mut faults = match read_spec_value(value.clone()) {
        Ok(file) => return file.resolve().err().map(|why| why.faults).unwrap_or_default(),
        Err(why) => why.faults,
    };
    for fault in &mut faults {
        if fault.path == WHOLE {
            fault.path.clear();
        }
    }
    let says = |key: &str| value.get(key).is_some_and(|value| !value.is_null());
    let told = faults.iter().any(|fault| fault.path == "objective" || fault.path.is_empty());
    if !told && !["objective", "goal", "seed_plan"].into_iter().any(says) {
        faults.push(FieldError::at("objective", "required key `objective` is missing"));
    }
    faults
}

/// Of a spec that a program has written out whole, what differs from its preset: that is what it says. Whether it was whole
/// goes along.
fn said(value: Value) -> (Value, bool) {
    let preset = value.get("preset").and_then(|preset| typed::<Preset>(preset).ok());
    let usual = serde_json::to_value(preset.map(Preset::values).unwrap_or_default());
    let (Value::Object(mut said), Ok(Value::Object(usual))) = (value.clone(), usual) else {
        return (value, false);
    };
    if !usual.keys().all(|key| said.contains_key(key)) {
        return (value, false);
    }
    for (key, usual) in usual.iter().filter(|(key, _)| *key != "preset") {
        if said.get(key) == Some(usual) {
            said.remove(key);
        } else if let (Some(Value::Object(section)), Value::Object(usual)) = (said.get_mut(key), usual) {
            section.retain(|key, value| usual.get(key) != Some(&*value));
        }
    }
    (Value::Object(said), true)
}

/// A spec with its files. `overrides` (a mapping like the spec itself) wins over the file, as arguments do (CUG-16).
pub fn read_spec_with(path: &str, text: &str, overrides: &Value, files: Files<'_>) -> Result<SpecFile, InvalidSpec> {
    read_spec_in(None, path, text, overrides, files)
}

/// The same. `directory` is where the tasks of a plan file run if the spec does not say it; absolute.
pub fn read_spec_in(
    directory: Option<&str>,
    path: &str,
    text: &str,
    overrides: &Value,
    files: Files<'_>,
) -> Result<SpecFile, InvalidSpec> {
    let refuse = |why| InvalidSpec::of(path, why);
    if text.len() > YAML_BYTES_MAX {
        let why = format!("the file has {} bytes; at most {YAML_BYTES_MAX} are read", text.len());
        return Err(refuse(FieldError::at("", why)));
    }
    let value = yaml::parse(text).map_err(|why| refuse(FieldError::at("", why.to_string())))?;
    let read = Reader { files, directory, depth: 0, under: String::new(), whole: false }.spec(value, overrides);
    // What was set from outside does not stand in the file.
    let place = |at: &str| if is_set(overrides, at) { None } else { yaml::place_of(text, at) };
    let (spec, warnings) = read.map_err(|why| InvalidSpec { place: place(&why.path), ..refuse(why) })?;
    Ok(SpecFile { path: path.to_owned(), spec, warnings })
}

/// Whether a path, or something above it, is one of these.
fn is_set(overrides: &Value, path: &str) -> bool {
    let mut place = Some(overrides);
    for part in path.split('.') {
        match place.and_then(|place| place.get(part)) {
            Some(below) if below.is_object() => place = Some(below),
            found => return found.is_some(),
        }
    }
    true
}

/// What the whole of a spec is called.
const WHOLE: &str = "the document";

struct Reader<'a> {
    files: Files<'a>,
    directory: Option<&'a str>,
    depth: usize,
    /// Where it stands in the file that is read, as what its places begin with.
    under: String,
    /// Every value of it was written by a program, so that what is equal to the preset's was meant too.
    whole: bool,
}

impl Reader<'_> {
    fn spec(&self, value: Value, overrides: &Value) -> Result<(SupervisorSpec, Vec<String>), FieldError> {
        let mut file = mapping(value, WHOLE)?;
        let mut warnings = Vec::new();
        if foreign::cuga::is_one(&file) {
            (file, warnings) = foreign::cuga::spec(&file)?;
        } else if foreign::supyagent::is_one(&file) {
            (file, warnings) = self.supyagent(file)?;
        }
        if let Value::Object(overrides) = overrides {
            let overrides = of_goal(overrides)?;
            overrides.iter().for_each(|(key, value)| merge_key(&mut file, key, value));
        }
        self.agent_files(&mut file)?;
        warnings.extend(shorthand::write_out(&mut file)?);
        let base = match file.get("preset").filter(|preset| !preset.is_null()) {
            Some(preset) => typed::<Preset>(preset).map_err(|why| FieldError::at("preset", why.problem))?.values(),
            None => SupervisorSpec::default(),
        };
        own_merger(&mut file, &base)?;
        self.seed_plan(&mut file, &base)?;
        self.nested(&mut file)?;
        check::effect::switch_on(&mut file);
        let mut whole = serde_json::to_value(base).map_err(|why| FieldError::at("", why.to_string()))?;
        merge(&mut whole, &Value::Object(file.clone()));
        let mut spec: SupervisorSpec = typed_whole(&whole, &self.under)?;
        if !self.whole && file.get("authority").is_none_or(Value::is_null) {
            spec.let_whoever_decides_choose();
        }
        warnings.extend(check::check(&spec, true)?);
        check::effect::sections(&spec, &file)?;
        Ok((spec, warnings))
    }

    /// An agent's own file with those of everybody it delegates to, which stand beside it (SUP-01, SUP-04).
    fn supyagent(&self, root: Map<String, Value>) -> Result<(Map<String, Value>, Vec<String>), FieldError> {
        let (mut agents, mut warnings) = (vec![foreign::supyagent::agent(root)?], Vec::new());
        let mut looked = 0;
        while let Some(agent) = agents.get(looked) {
            looked += 1;
            for name in foreign::supyagent::delegates(agent) {
                let known = |agent: &Map<String, Value>| agent.get("name").and_then(Value::as_str) == Some(&name);
                if agents.iter().any(known) || agents.len() >= AGENTS_MAX {
                    continue;
                }
                let (file, at) = (format!("{name}.yaml"), format!("delegates.{name}"));
                match self.other_file(&file, &at) {
                    Ok(value) => agents.push(foreign::supyagent::agent(mapping(value, &at)?)?),
                    Err(why) => warnings.push(format!("{why}; `{name}` becomes no tool")),
                }
            }
        }
        Ok((foreign::supyagent::spec(agents), warnings))
    }

    /// `agents: [{ file: planner.yaml }]`: an agent as supyagent writes it, or as we do (SUP-01).
    fn agent_files(&self, spec: &mut Map<String, Value>) -> Result<(), FieldError> {
        let Some(Value::Array(agents)) = spec.get_mut("agents") else { return Ok(()) };
        for (i, agent) in agents.iter_mut().enumerate() {
            let Some(name) = agent.get("file").and_then(Value::as_str).map(str::to_owned) else { continue };
            let at = format!("agents[{i}].file");
            let value = self.other_file(&name, &at)?;
            let in_file = |why: FieldError| FieldError::at(&at, format!("'{name}': {why}"));
            let mut entry =
                foreign::supyagent::agent(mapping(value, "the document").map_err(in_file)?).map_err(in_file)?;
            if let Value::Object(own) = agent {
                own.remove("file");
                own.iter().for_each(|(key, value)| merge_key(&mut entry, key, value));
            }
            *agent = Value::Object(entry);
        }
        Ok(())
    }

    /// The seed plan by its own strict contract (PDT-39 to PDT-44), in its normal form.
    fn seed_plan(&self, spec: &mut Map<String, Value>, base: &SupervisorSpec) -> Result<(), FieldError> {
        let said = spec.get("review").and_then(|review| review.get("max_attempts")).and_then(Value::as_u64);
        let attempts = said.and_then(|said| u32::try_from(said).ok()).unwrap_or(base.review.max_attempts);
        let Some(Value::Object(source)) = spec.get_mut("seed_plan") else { return Ok(()) };
        let (mut value, at) = match (source.get("file").and_then(Value::as_str), source.get("plan")) {
            (Some(_), Some(plan)) if !plan.is_null() => {
                return Err(FieldError::at("seed_plan", "give either `file` or `plan`, not both"));
            }
            (Some(name), _) => (self.other_file(name, "seed_plan.file")?, "seed_plan.file"),
            (None, Some(plan)) if plan.is_object() => (plan.clone(), "seed_plan.plan"),
            _ => return Ok(()),
        };
        seed_attempts(&mut value, attempts);
        let named = source.get("file").and_then(Value::as_str).map(str::to_owned);
        let refused = |why: PlanProblem| match (&named, why) {
            (Some(file), why) => FieldError::at(at, format!("Invalid workflow YAML at '{file}'. {why}")),
            (None, PlanProblem::Field(why)) => FieldError::at(format!("{at}.{}", why.path), why.problem),
            (None, why) => FieldError::at(at, why.to_string()),
        };
        let mut plan = plan_yaml::plan_of(&value).map_err(refused)?;
        if source.get("auto_mark_final").and_then(Value::as_bool).unwrap_or(true) {
            plan = plan.auto_mark_final();
        }
        let plan = serde_json::to_value(&plan).map_err(|why| FieldError::at(at, why.to_string()))?;
        if let Some(directory) = self.directory.filter(|_| base.runs_plan_file()) {
            let said = source.get("directory").is_some_and(|said| !said.is_null());
            if !said {
                source.insert("directory".to_owned(), directory.into());
            }
        }
        source.insert("plan".to_owned(), plan);
        source.insert("file".to_owned(), Value::Null);
        Ok(())
    }

    /// Agents that are supervisors themselves get their whole spec here.
    fn nested(&self, spec: &mut Map<String, Value>) -> Result<(), FieldError> {
        let Some(Value::Array(agents)) = spec.get_mut("agents") else { return Ok(()) };
        for (i, agent) in agents.iter_mut().enumerate() {
            let Some(Value::Object(inner)) = agent.pointer_mut("/via/supervisor") else { continue };
            let at = format!("agents[{i}].via.supervisor");
            if self.depth + 1 > NESTED_MAX {
                return Err(FieldError::at(at, format!("supervisors are nested more than {NESTED_MAX} deep")));
            }
            let value = match (inner.get("file").and_then(Value::as_str), inner.get("spec")) {
                (Some(_), Some(Value::Object(_))) => {
                    return Err(FieldError::at(at, "give either `file` or `spec`, not both"));
                }
                (Some(name), _) => self.other_file(name, &format!("{at}.file"))?,
                (None, Some(spec @ Value::Object(_))) => spec.clone(),
                _ => return Err(FieldError::at(at, "needs the `file` or the `spec` of the supervisor")),
            };
            let under = format!("{}{at}.spec.", self.under);
            let (files, directory, depth) = (self.files, self.directory, self.depth + 1);
            let reader = Reader { files, directory, depth, under, whole: false };
            let (whole, _) = reader
                .spec(value, &Value::Null)
                .map_err(|why| FieldError { path: within(&format!("{at}.spec"), &why.path), ..why })?;
            let whole = serde_json::to_value(whole).map_err(|why| FieldError::at(&at, why.to_string()))?;
            inner.insert("spec".to_owned(), whole);
            inner.insert("file".to_owned(), Value::Null);
        }
        Ok(())
    }

    fn other_file(&self, name: &str, at: &str) -> Result<Value, FieldError> {
        let text = (self.files)(name).map_err(|why| FieldError::at(at, why.to_string()))?;
        if text.len() > YAML_BYTES_MAX {
            let why = format!("'{name}' has {} bytes; at most {YAML_BYTES_MAX} are read", text.len());
            return Err(FieldError::at(at, why));
        }
        yaml::parse(&text).map_err(|why| FieldError::at(at, format!("'{name}': {why}")))
    }
}

/// A place below another one.
fn within(above: &str, place: &str) -> String {
    format!("{above}.{place}").trim_end_matches('.').to_owned()
}

/// Whoever is named to put the results together does so in place of the merge that a preset has (FSC-03).
fn own_merger(file: &mut Map<String, Value>, base: &SupervisorSpec) -> Result<(), FieldError> {
    let named = file.get("synthesizer").is_some_and(|role| !role.is_null());
    if !named || base.synthesis.mode != SynthesisMode::Merge {
        return Ok(());
    }
    let synthesis = file.entry("synthesis").or_insert_with(|| Value::Object(Map::new()));
    let Value::Object(synthesis) = synthesis else { return Ok(()) };
    match synthesis.get("mode").and_then(Value::as_str) {
        Some("merge") => {
            let why = "has no effect where `synthesis.mode` is `merge`: leave one of the two out";
            Err(FieldError::at("synthesizer", why))
        }
        Some(_) => Ok(()),
        None => {
            synthesis.insert("mode".to_owned(), "synthesizer".into());
            Ok(())
        }
    }
}

/// What a supervisor is given may be called a goal (FSS-02): its objective by another name.
fn of_goal(input: &Map<String, Value>) -> Result<Map<String, Value>, FieldError> {
    let mut input = input.clone();
    let Some(goal) = input.remove("goal") else { return Ok(input) };
    if !goal.is_string() {
        return Err(FieldError::at("goal", format!("expected a text, found {}", kind(&goal))));
    }
    match input.insert("objective".to_owned(), goal) {
        Some(_) => Err(FieldError::at("goal", "give either `goal` or `objective`, not both")),
        None => Ok(input),
    }
}

/// A task of a seed plan that does not say how often it may be tried is tried as often as any other of the spec.
pub(super) fn seed_attempts(plan: &mut Value, attempts: u32) {
    let tasks = plan.get_mut("tasks").and_then(Value::as_array_mut);
    for task in tasks.into_iter().flatten().filter_map(Value::as_object_mut) {
        task.entry("max_attempts").or_insert_with(|| attempts.max(1).into());
    }
}

fn mapping(value: Value, what: &str) -> Result<Map<String, Value>, FieldError> {
    match value {
        Value::Object(map) => Ok(map),
        Value::Null => Ok(Map::new()),
        other => Err(FieldError::at(what, format!("expected a mapping, found {}", kind(&other)))),
    }
}

/// Mappings are merged, everything else is replaced; a section that is empty (`hitl:`) changes nothing.
pub(crate) fn merge(base: &mut Value, over: &Value) {
    match (base, over) {
        (Value::Object(base), Value::Object(over)) => {
            over.iter().for_each(|(key, value)| merge_key(base, key, value));
        }
        (Value::Object(_), Value::Null) => {}
        (base, over) => *base = over.clone(),
    }
}

fn merge_key(base: &mut Map<String, Value>, key: &str, value: &Value) {
    match base.get_mut(key) {
        Some(old) => merge(old, value),
        None => {
            base.insert(key.to_owned(), value.clone());
        }
    }
}
