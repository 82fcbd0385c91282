//! The rule critic: judges a recorded result by rules that the plan states, without any model.
//!
//! Invariant: a verdict depends on the rules and the result alone, so a replay judges the same; a verdict that is not
//! passed says every rule that was broken, which is the feedback for the next attempt. Files are judged by what the
//! activity reported: the critic looks at nothing itself.

use regex::Regex;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::fields::{FieldError, Fields};
use super::shape::Shape;
use super::work::Capability;

/// What the critic says about one result.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CriticVerdict {
    pub passed: bool,
    /// Every rule that was broken; how many held if none was.
    pub reasoning: String,
}

/// The rules of one task, all of which must hold.
#[derive(Debug, Clone, Default)]
pub(crate) struct CriticRules {
    rules: Vec<CriticRule>,
}

#[derive(Debug, Clone)]
enum CriticRule {
    ExitCode(Vec<i64>),
    HttpStatus(Vec<i64>),
    Matches { stream: Stream, regex: Regex },
    MatchesNot { regex: Regex },
    Contains(String),
    ContainsNot(String),
    LengthMin(u64),
    LengthMax(u64),
    LinesMin(u64),
    FileExists(String),
    Json(Shape),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stream {
    Text,
    Stderr,
}

const KEYS: [&str; 13] = [
    "exit_code",
    "status",
    "regex",
    "stdout_regex",
    "stderr_regex",
    "not_regex",
    "contains_all",
    "contains_none",
    "min_length",
    "max_length",
    "min_lines",
    "file_exists",
    "json",
];
const PROCESS_ONLY: [&str; 4] = ["exit_code", "stdout_regex", "stderr_regex", "file_exists"];

impl CriticRules {
    /// Reads `parameters.review`.
    pub(crate) fn read(path: &str, value: &Value, capability: Capability) -> Result<CriticRules, FieldError> {
        let fields = Fields::read(value, path, &KEYS)?;
        let fits = |key: &&str| match capability {
            Capability::Process => *key != "status",
            Capability::Http => !PROCESS_ONLY.contains(key),
            Capability::Compose | Capability::Activity => !PROCESS_ONLY.contains(key) && *key != "status",
        };
        if let Some(key) = KEYS.iter().find(|key| fields.has(key) && !fits(key)) {
            return Err(fields.error(key, format!("the rule `{key}` does not fit the capability `{capability}`")));
        }
        let mut rules = Vec::new();
        if fields.has("exit_code") {
            rules.push(CriticRule::ExitCode(fields.one_or_more_integers("exit_code")?));
        }
        if fields.has("status") {
            rules.push(CriticRule::HttpStatus(fields.one_or_more_integers("status")?));
        }
        for (key, stream) in [("regex", Stream::Text), ("stdout_regex", Stream::Text), ("stderr_regex", Stream::Stderr)]
        {
            rules.extend(regexes(&fields, key)?.into_iter().map(|regex| CriticRule::Matches { stream, regex }));
        }
        rules.extend(regexes(&fields, "not_regex")?.into_iter().map(|regex| CriticRule::MatchesNot { regex }));
        rules.extend(fields.one_or_more_texts("contains_all")?.into_iter().map(CriticRule::Contains));
        rules.extend(fields.one_or_more_texts("contains_none")?.into_iter().map(CriticRule::ContainsNot));
        rules.extend(fields.natural("min_length")?.map(CriticRule::LengthMin));
        rules.extend(fields.natural("max_length")?.map(CriticRule::LengthMax));
        rules.extend(fields.natural("min_lines")?.map(CriticRule::LinesMin));
        rules.extend(fields.one_or_more_texts("file_exists")?.into_iter().map(CriticRule::FileExists));
        if let Some(shape) = fields.value("json") {
            rules.push(CriticRule::Json(Shape::read(&fields.path_of("json"), shape)?));
        }
        if rules.is_empty() {
            return Err(FieldError::at(path, format!("a review needs a rule: {}", KEYS.join(", "))));
        }
        Ok(CriticRules { rules })
    }

    /// Whether the critic judges the exit code, so that the activity must not.
    pub(crate) fn judges_exit_code(&self) -> bool {
        self.rules.iter().any(|rule| matches!(rule, CriticRule::ExitCode(_)))
    }
    /// As [`Self::judges_exit_code`], for HTTP.
    pub(crate) fn judges_http_status(&self) -> bool {
        self.rules.iter().any(|rule| matches!(rule, CriticRule::HttpStatus(_)))
    }
    /// The files that the activity must report.
    pub(crate) fn files(&self) -> Vec<String> {
        let file = |rule: &CriticRule| match rule {
            CriticRule::FileExists(path) => Some(path.clone()),
            _ => None,
        };
        self.rules.iter().filter_map(file).collect()
    }

    /// Judges a result: its text as people read it, and all of it.
    pub(crate) fn judge(&self, text: &str, result: &Value) -> CriticVerdict {
        let broken: Vec<String> = self.rules.iter().filter_map(|rule| rule.broken(text, result)).collect();
        let passed = broken.is_empty();
        let reasoning = if passed { format!("all rules hold ({})", self.rules.len()) } else { broken.join("; ") };
        CriticVerdict { passed, reasoning }
    }
}

impl CriticRule {
    /// What is wrong, if the rule does not hold.
    fn broken(&self, text: &str, result: &Value) -> Option<String> {
        let unless = |holds: bool, wrong: &dyn Fn() -> String| (!holds).then(wrong);
        match self {
            CriticRule::ExitCode(expected) => number_in(result, "exit_code", "exit code", expected),
            CriticRule::HttpStatus(expected) => number_in(result, "status", "status", expected),
            CriticRule::Matches { stream: Stream::Text, regex } => {
                unless(regex.is_match(text), &|| format!("the output does not match /{regex}/"))
            }
            CriticRule::Matches { stream: Stream::Stderr, regex } => {
                let stderr = result.get("stderr").and_then(Value::as_str).unwrap_or_default();
                unless(regex.is_match(stderr), &|| format!("stderr does not match /{regex}/"))
            }
            CriticRule::MatchesNot { regex } => regex
                .find(text)
                .map(|found| format!("the output must not match /{regex}/, but has {:?}", found.as_str())),
            CriticRule::Contains(wanted) => unless(text.contains(wanted), &|| format!("the output lacks {wanted:?}")),
            CriticRule::ContainsNot(unwanted) => {
                unless(!text.contains(unwanted), &|| format!("the output must not have {unwanted:?}"))
            }
            CriticRule::LengthMin(min) => {
                let length = text.chars().count() as u64;
                unless(length >= *min, &|| format!("the output has {length} characters, at least {min} are needed"))
            }
            CriticRule::LengthMax(max) => {
                let length = text.chars().count() as u64;
                unless(length <= *max, &|| format!("the output has {length} characters, at most {max} are allowed"))
            }
            CriticRule::LinesMin(min) => {
                let lines = text.lines().filter(|line| !line.trim().is_empty()).count() as u64;
                unless(lines >= *min, &|| format!("the output has {lines} lines, at least {min} are needed"))
            }
            CriticRule::FileExists(path) => {
                let size = result.get("files").and_then(|files| files.get(path)).and_then(|file| file.get("size"));
                unless(size.is_some_and(|size| !size.is_null()), &|| format!("the file {path:?} does not exist"))
            }
            CriticRule::Json(shape) => match result.get("json").cloned().map_or_else(|| serde_json::from_str(text), Ok)
            {
                Ok(value) => shape.broken("the output", &value),
                Err(why) => Some(format!("the output is not JSON: {why}")),
            },
        }
    }
}

fn number_in(result: &Value, field: &str, name: &str, expected: &[i64]) -> Option<String> {
    let found = result.get(field).and_then(Value::as_i64);
    if found.is_some_and(|found| expected.contains(&found)) {
        return None;
    }
    let expected: Vec<String> = expected.iter().map(i64::to_string).collect();
    let found = found.map_or_else(|| format!("no {name}"), |found| format!("{name} {found}"));
    Some(format!("{found}, expected {}", expected.join(" or ")))
}

fn regexes(fields: &Fields<'_>, key: &str) -> Result<Vec<Regex>, FieldError> {
    let compile = |text: String| {
        // Text of many lines is the rule here: `^` and `$` mean lines.
        let regex = regex::RegexBuilder::new(&text).multi_line(true).size_limit(1 << 20).build();
        regex.map_err(|why| fields.error(key, format!("/{text}/ is no regular expression: {why}")))
    };
    fields.one_or_more_texts(key)?.into_iter().map(compile).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn review(rules: Value) -> Result<CriticRules, FieldError> {
        CriticRules::read("review", &rules, Capability::Process)
    }

    #[track_caller]
    fn judge(rules: Value, result: Value) -> String {
        let text = result["stdout"].as_str().unwrap_or_default().to_owned();
        let verdict = review(rules).unwrap().judge(&text, &result);
        if verdict.passed { "passed".into() } else { verdict.reasoning }
    }

    #[test]
    fn each_rule_says_what_it_misses() {
        let result = json!({ "stdout": "one\ntwo\n", "stderr": "warn", "exit_code": 2, "files": { "a": { "size": 1 }, "b": { "size": null } } });
        let cases = [
            (json!({ "exit_code": 2 }), "passed"),
            (json!({ "exit_code": [0, 1] }), "exit code 2, expected 0 or 1"),
            (json!({ "stdout_regex": "^two$" }), "passed"),
            (json!({ "regex": ["one", "three"] }), "the output does not match /three/"),
            (json!({ "stderr_regex": "error" }), "stderr does not match /error/"),
            (json!({ "not_regex": "t.o" }), "the output must not match /t.o/, but has \"two\""),
            (json!({ "contains_all": ["one", "total"] }), "the output lacks \"total\""),
            (json!({ "contains_none": "two" }), "the output must not have \"two\""),
            (json!({ "min_length": 9 }), "the output has 8 characters, at least 9 are needed"),
            (json!({ "max_length": 7 }), "the output has 8 characters, at most 7 are allowed"),
            (json!({ "min_lines": 3 }), "the output has 2 lines, at least 3 are needed"),
            (json!({ "file_exists": "a" }), "passed"),
            (json!({ "file_exists": ["b", "c"] }), "the file \"b\" does not exist; the file \"c\" does not exist"),
            (
                json!({ "exit_code": 0, "min_lines": 3 }),
                "exit code 2, expected 0; the output has 2 lines, at least 3 are needed",
            ),
            (json!({ "json": { "type": "object" } }), "the output is not JSON: expected value at line 1 column 1"),
        ];
        for (rules, expected) in cases {
            assert_eq!(judge(rules.clone(), result.clone()), expected, "{rules}");
        }
    }

    #[test]
    fn json_output_is_judged_by_its_shape() {
        let rules = json!({ "json": { "type": "object", "required": ["n"], "properties": { "n": { "type": "integer", "minimum": 3 } } } });
        assert_eq!(judge(rules.clone(), json!({ "stdout": "{\"n\": 3}" })), "passed");
        assert_eq!(judge(rules.clone(), json!({ "stdout": "{\"n\": 2}" })), "the output.n is 2, at least 3 is needed");
        assert_eq!(judge(rules, json!({ "stdout": "{}" })), "the output has no `n`");
    }

    #[test]
    fn rules_that_cannot_be_are_refused_with_their_place() {
        let why = |rules| review(rules).unwrap_err().to_string();
        assert!(
            why(json!({ "regexp": "x" })).starts_with("review.regexp: unknown key `regexp` (did you mean `regex`?)")
        );
        assert!(why(json!({ "regex": "(" })).starts_with("review.regex: /(/ is no regular expression"));
        assert!(why(json!({})).starts_with("review: a review needs a rule"));
        assert_eq!(
            why(json!({ "status": 200 })),
            "review.status: the rule `status` does not fit the capability `process`"
        );
        let compose = CriticRules::read("review", &json!({ "exit_code": 0 }), Capability::Compose).unwrap_err();
        assert_eq!(compose.to_string(), "review.exit_code: the rule `exit_code` does not fit the capability `compose`");
    }
}
