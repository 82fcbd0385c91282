//! Placeholders: how the result of one task reaches the command of another, as in `{{task.2.stdout}}`.
//!
//! Invariant: a template is checked when the plan is loaded (every name known, every task a dependency), and rendered
//! from recorded results only, so a replay renders the same. `\{{` is a plain `{{`. It runs no shell and quotes nothing:
//! a rendered text is one argument.

use std::collections::BTreeMap;

use serde_json::Value;

use super::fields::FieldError;
use super::task::TaskNumber;
use super::work::Capability;

/// A text with slots.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Template(Vec<TemplatePart>);

#[derive(Debug, Clone, PartialEq, Eq)]
enum TemplatePart {
    Text(String),
    Slot(Slot),
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Slot {
    /// The number of the attempt; the first is 1.
    Attempt,
    /// What was wrong with the attempt before; empty for the first.
    Feedback,
    Objective,
    /// The task's own objective, with the feedback of all attempts.
    Task,
    Result {
        task: TaskNumber,
        part: ResultPart,
    },
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum ResultPart {
    /// The result as people read it: stdout, body, report.
    Text,
    /// The text without white space at its ends.
    Line,
    /// The whole result.
    Json,
    /// A place in the result.
    Path(Vec<String>),
}

/// What a template of a task may name.
pub(crate) struct TemplateScope<'a> {
    pub(crate) task: TaskNumber,
    pub(crate) dependencies: &'a [TaskNumber],
    pub(crate) capabilities: &'a BTreeMap<TaskNumber, Capability>,
}

/// What slots are filled with.
pub(crate) struct Values<'a> {
    pub(crate) attempt: u32,
    pub(crate) feedback: &'a str,
    pub(crate) objective: &'a str,
    pub(crate) task_objective: &'a str,
    /// Text and JSON of the result of each dependency.
    pub(crate) results: BTreeMap<TaskNumber, (&'a str, &'a Value)>,
}

/// A slot that has no value although its task is completed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the result of task {task} has no `{field}`")]
pub(crate) struct NoValue {
    pub(crate) task: TaskNumber,
    pub(crate) field: String,
}

impl Template {
    pub(crate) fn parse(path: &str, text: &str, scope: &TemplateScope<'_>) -> Result<Template, FieldError> {
        let mut parts = Vec::new();
        let mut plain = String::new();
        let mut rest = text;
        while let Some(at) = rest.find("{{") {
            if let Some(before) = rest[..at].strip_suffix('\\') {
                plain += before;
                plain += "{{";
                rest = &rest[at + 2..];
                continue;
            }
            plain += &rest[..at];
            let Some(length) = rest[at + 2..].find("}}") else {
                return Err(FieldError::at(path, "a `{{` without `}}`; write \\{{ for a plain one"));
            };
            let name = rest[at + 2..at + 2 + length].trim();
            parts.extend((!plain.is_empty()).then(|| TemplatePart::Text(std::mem::take(&mut plain))));
            parts.push(TemplatePart::Slot(slot(path, name, scope)?));
            rest = &rest[at + 2 + length + 2..];
        }
        plain += rest;
        parts.extend((!plain.is_empty()).then_some(TemplatePart::Text(plain)));
        Ok(Template(parts))
    }

    pub(crate) fn render(&self, values: &Values<'_>) -> Result<String, NoValue> {
        let mut text = String::new();
        for part in &self.0 {
            match part {
                TemplatePart::Text(plain) => text += plain,
                TemplatePart::Slot(slot) => text += &as_text(&slot.fill(values)?),
            }
        }
        Ok(text)
    }

    fn render_value(&self, values: &Values<'_>) -> Result<Value, NoValue> {
        match self.0.as_slice() {
            [TemplatePart::Slot(slot)] => slot.fill(values),
            _ => self.render(values).map(Value::String),
        }
    }
}

/// A JSON value all of whose texts are templates; keys are not.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum JsonTemplate {
    /// Always a text.
    Text(Template),
    /// A template that is nothing but one slot keeps the kind of its value; every other becomes a text.
    Value(Template),
    List(Vec<JsonTemplate>),
    Mapping(Vec<(String, JsonTemplate)>),
    Other(Value),
}

impl JsonTemplate {
    /// For data: `"{{task.1.result}}"` becomes the result itself.
    pub(crate) fn parse(path: &str, value: &Value, scope: &TemplateScope<'_>) -> Result<JsonTemplate, FieldError> {
        Self::walk(path, value, scope, JsonTemplate::Value)
    }

    /// For arguments, variables and the like: every text stays one.
    pub(crate) fn of_texts(path: &str, value: &Value, scope: &TemplateScope<'_>) -> Result<JsonTemplate, FieldError> {
        Self::walk(path, value, scope, JsonTemplate::Text)
    }

    fn walk(
        path: &str,
        value: &Value,
        scope: &TemplateScope<'_>,
        text: fn(Template) -> JsonTemplate,
    ) -> Result<JsonTemplate, FieldError> {
        Ok(match value {
            Value::String(found) => text(Template::parse(path, found, scope)?),
            Value::Array(list) => {
                let entry = |(i, value)| Self::walk(&format!("{path}[{i}]"), value, scope, text);
                JsonTemplate::List(list.iter().enumerate().map(entry).collect::<Result<_, _>>()?)
            }
            Value::Object(map) => {
                let entry = |(key, value): (&String, &Value)| {
                    Self::walk(&format!("{path}.{key}"), value, scope, text).map(|template| (key.clone(), template))
                };
                JsonTemplate::Mapping(map.iter().map(entry).collect::<Result<_, _>>()?)
            }
            other => JsonTemplate::Other(other.clone()),
        })
    }

    pub(crate) fn render(&self, values: &Values<'_>) -> Result<Value, NoValue> {
        Ok(match self {
            JsonTemplate::Text(template) => Value::String(template.render(values)?),
            JsonTemplate::Value(template) => template.render_value(values)?,
            JsonTemplate::List(list) => {
                Value::Array(list.iter().map(|entry| entry.render(values)).collect::<Result<_, _>>()?)
            }
            JsonTemplate::Mapping(map) => {
                let entry = |(key, entry): &(String, JsonTemplate)| entry.render(values).map(|v| (key.clone(), v));
                Value::Object(map.iter().map(entry).collect::<Result<_, _>>()?)
            }
            JsonTemplate::Other(value) => value.clone(),
        })
    }
}

impl Slot {
    fn fill(&self, values: &Values<'_>) -> Result<Value, NoValue> {
        Ok(match self {
            Slot::Attempt => values.attempt.into(),
            Slot::Feedback => values.feedback.into(),
            Slot::Objective => values.objective.into(),
            Slot::Task => values.task_objective.into(),
            Slot::Result { task, part } => {
                let missing = |field: &str| NoValue { task: *task, field: field.to_owned() };
                let (text, result) = values.results.get(task).copied().ok_or_else(|| missing("result"))?;
                match part {
                    ResultPart::Text => text.into(),
                    ResultPart::Line => text.trim().into(),
                    ResultPart::Json => result.clone(),
                    ResultPart::Path(path) => {
                        let found = path.iter().try_fold(result, |value, key| step(value, key));
                        found.cloned().ok_or_else(|| missing(&path.join(".")))?
                    }
                }
            }
        })
    }
}

fn step<'a>(value: &'a Value, key: &str) -> Option<&'a Value> {
    match value {
        Value::Array(list) => list.get(key.parse::<usize>().ok()?),
        other => other.get(key),
    }
}

fn as_text(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

fn slot(path: &str, name: &str, scope: &TemplateScope<'_>) -> Result<Slot, FieldError> {
    let unknown = || {
        let known = "attempt, feedback, objective, task.objective, task.<id>.<field>";
        FieldError::at(path, format!("unknown placeholder {{{{{name}}}}}; known: {known}"))
    };
    match name {
        "attempt" => return Ok(Slot::Attempt),
        "feedback" => return Ok(Slot::Feedback),
        "objective" => return Ok(Slot::Objective),
        "task.objective" => return Ok(Slot::Task),
        _ => {}
    }
    let mut segments = name.split('.');
    if segments.next() != Some("task") {
        return Err(unknown());
    }
    let task = segments.next().and_then(|id| id.parse().ok()).map(TaskNumber).ok_or_else(unknown)?;
    let fields: Vec<String> = segments.map(str::to_owned).collect();
    if fields.is_empty() || fields.iter().any(String::is_empty) {
        return Err(unknown());
    }
    if !scope.dependencies.contains(&task) {
        let why = format!(
            "{{{{{name}}}}} names task {task}, which is not in the sub_task_dependencies of task {}",
            scope.task
        );
        return Err(FieldError::at(path, why));
    }
    let part = match fields[0].as_str() {
        "text" if fields.len() == 1 => ResultPart::Text,
        "line" if fields.len() == 1 => ResultPart::Line,
        "result" if fields.len() == 1 => ResultPart::Json,
        first => {
            let known = scope.capabilities.get(&task).and_then(|capability| capability.result_fields());
            if let Some(known) = known
                && !known.contains(&first)
            {
                let why = format!(
                    "unknown placeholder {{{{{name}}}}}: task {task} gives text, line, result, {}",
                    known.join(", ")
                );
                return Err(FieldError::at(path, why));
            }
            ResultPart::Path(fields)
        }
    };
    Ok(Slot::Result { task, part })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scope(dependencies: &[TaskNumber]) -> (Vec<TaskNumber>, BTreeMap<TaskNumber, Capability>) {
        let capabilities = dependencies.iter().map(|id| (*id, Capability::Process)).collect();
        (dependencies.to_vec(), capabilities)
    }

    fn parse(text: &str) -> Result<Template, FieldError> {
        let (dependencies, capabilities) = scope(&[TaskNumber(2)]);
        Template::parse(
            "argv[0]",
            text,
            &TemplateScope { task: TaskNumber(5), dependencies: &dependencies, capabilities: &capabilities },
        )
    }

    fn render(text: &str) -> Result<String, NoValue> {
        let result = serde_json::json!({ "stdout": " out\n", "exit_code": 0, "files": { "a": { "size": 7 } } });
        let values = Values {
            attempt: 2,
            feedback: "too short",
            objective: "o",
            task_objective: "t",
            results: BTreeMap::from([(TaskNumber(2), (" out\n", &result))]),
        };
        parse(text).unwrap().render(&values)
    }

    #[test]
    fn slots_are_filled_from_recorded_results() {
        let cases = [
            ("plain {} }} text", "plain {} }} text"),
            ("{{attempt}}/{{ feedback }}/{{objective}}/{{task.objective}}", "2/too short/o/t"),
            ("[{{task.2.stdout}}]", "[ out\n]"),
            ("[{{task.2.text}}|{{task.2.line}}]", "[ out\n|out]"),
            ("{{task.2.exit_code}} {{task.2.files.a.size}}", "0 7"),
            (r"\{{task.2.stdout}} {{attempt}}", "{{task.2.stdout}} 2"),
        ];
        for (text, expected) in cases {
            assert_eq!(render(text).as_deref(), Ok(expected), "{text}");
        }
    }

    #[test]
    fn a_filled_slot_is_not_read_again() {
        let values =
            Values { attempt: 1, feedback: "{{attempt}}", objective: "", task_objective: "", results: BTreeMap::new() };
        assert_eq!(parse("{{feedback}}").unwrap().render(&values).as_deref(), Ok("{{attempt}}"));
    }

    #[test]
    fn a_value_that_is_not_in_the_result_is_named() {
        let why = render("{{task.2.files.b.size}}").unwrap_err();
        assert_eq!(why.to_string(), "the result of task 2 has no `files.b.size`");
    }

    #[test]
    fn unknown_placeholders_are_refused_by_name() {
        let cases = [
            (
                "{{atempt}}",
                "argv[0]: unknown placeholder {{atempt}}; known: attempt, feedback, objective, task.objective, task.<id>.<field>",
            ),
            (
                "{{task.x.stdout}}",
                "argv[0]: unknown placeholder {{task.x.stdout}}; known: attempt, feedback, objective, task.objective, task.<id>.<field>",
            ),
            (
                "{{task.2}}",
                "argv[0]: unknown placeholder {{task.2}}; known: attempt, feedback, objective, task.objective, task.<id>.<field>",
            ),
            (
                "{{task.3.stdout}}",
                "argv[0]: {{task.3.stdout}} names task 3, which is not in the sub_task_dependencies of task 5",
            ),
            ("a {{attempt", "argv[0]: a `{{` without `}}`; write \\{{ for a plain one"),
        ];
        for (text, expected) in cases {
            assert_eq!(parse(text).unwrap_err().to_string(), expected);
        }
        let why = parse("{{task.2.body}}").unwrap_err().to_string();
        assert!(
            why.starts_with("argv[0]: unknown placeholder {{task.2.body}}: task 2 gives text, line, result, exit_code"),
            "{why}"
        );
    }
}
