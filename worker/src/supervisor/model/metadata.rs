//! What is known of a task beside its fields: what its plan says of it, and what its run has found out.
//!
//! Invariant: the two never mix. A plan, of whatever origin, says only what no rule reads ([`PlanMetadata`] refuses the
//! names of the others); what a run decides by is typed and written by the run alone, so no model can put words into the
//! mouth of a person or of a policy (SHH-12, CUG-39). People see one map.

use serde::de::{Deserializer, Error};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// The names that a run writes itself.
const OF_THE_RUN: [&str; 16] = [
    "action_error",
    "gave_nothing",
    "action_result",
    "approved_action",
    "consultations",
    "left_work",
    "missing_required_parameters",
    "overflows",
    "proposed_action",
    "reviewed_try",
    "passed_try",
    "qa.report_viewed",
    "reflections",
    "scratch_notes",
    "tool_approval",
    "variables",
];

/// What a plan says of a task for whoever reads it (PDT-11, PDT-31): shown, and followed by no rule.
#[derive(Debug, Clone, Default, PartialEq, Serialize, schemars::JsonSchema)]
#[serde(transparent)]
pub struct PlanMetadata(Map<String, Value>);

/// A plan says something in the name of its run.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{name}` is written by the run itself and cannot be part of a task's metadata; choose another name")]
pub struct ReservedName {
    pub name: String,
}

impl PlanMetadata {
    /// What a plan says.
    ///
    /// # Errors
    ///
    /// A name that the run itself writes.
    pub fn said(map: Map<String, Value>) -> Result<Self, ReservedName> {
        match map.keys().find(|name| OF_THE_RUN.contains(&name.as_str())) {
            Some(name) => Err(ReservedName { name: name.clone() }),
            None => Ok(PlanMetadata(map)),
        }
    }

    pub fn as_map(&self) -> &Map<String, Value> {
        &self.0
    }
}

impl<'de> Deserialize<'de> for PlanMetadata {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        PlanMetadata::said(Map::deserialize(deserializer)?).map_err(D::Error::custom)
    }
}

/// All that is known of a task beside its fields.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct TaskMetadata {
    #[serde(flatten)]
    said: PlanMetadata,
    /// What a person has approved in place of the task's own action (SHH-12).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approved_action: Option<String>,
    /// What the result proposes to do, until it is judged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proposed_action: Option<String>,
    /// The try whose result its reviewer has accepted, and a person is shown (SHH-19).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reviewed_try: Option<u32>,
    /// The try whose result a person has let pass: they are not shown it again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub passed_try: Option<u32>,
    /// What came of the action that a result proposed (SHH-19).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub action_result: Option<Value>,
    /// Why it was not, when it was tried.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub action_error: Option<String>,
    /// Whoever did it gave no result, and may have had effects.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub gave_nothing: bool,
    /// What was done for it and is no result of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub left_work: Option<LeftWork>,
    /// The policy that asks for an approval of the task; on the copy that gates see (CUG-39).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_approval: Option<ToolApprovalWanted>,
    /// How often its worker ran out of context (PDT-48).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub overflows: Vec<Overflow>,
    /// What its worker wrote down when that happened last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scratch_notes: Option<String>,
    /// Results that their worker was not sure of (SHD-05).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reflections: Vec<DoubtedResult>,
    /// What its worker has asked others (PDT-49).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub consultations: Vec<AskedOfAnother>,
    /// What its worker has named for later tasks (CUG-37).
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub variables: Map<String, Value>,
    /// What has to be given before its function can be called (PDT-19).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub missing_required_parameters: Vec<String>,
    /// Whether its supervisor has looked at the last verdict (PDT-35).
    #[serde(default, rename = "qa.report_viewed", skip_serializing_if = "std::ops::Not::not")]
    pub report_viewed: bool,
}

impl TaskMetadata {
    /// A plan says it again: what it says of the same name is replaced.
    pub fn say(&mut self, said: PlanMetadata) {
        self.said.0.extend(said.0);
    }
}

impl From<PlanMetadata> for TaskMetadata {
    fn from(said: PlanMetadata) -> Self {
        TaskMetadata { said, ..TaskMetadata::default() }
    }
}

/// Work that is done and does not count: of a run below that was no success, or of a task whose name a new plan gave to another
/// one. It is undone with the rest (SHN-62).
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct LeftWork {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<Value>,
    /// What undoes it, where that is not what the task says now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compensation: Option<Value>,
}

/// A policy that a person must be asked by, and about what.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolApprovalWanted {
    pub policy_name: String,
    pub message: String,
    /// The call as a person sees it.
    pub code: String,
}

/// A worker ran out of context in an attempt; its notes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Overflow {
    pub attempt: u32,
    pub notes: String,
}

/// A result that its worker was not sure enough of.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DoubtedResult {
    pub attempt: u32,
    pub confidence_bp: u32,
    pub result: Value,
    /// What it proposed to do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub action: Option<String>,
    /// What else it said; its worker is not told that again.
    #[serde(default, skip_serializing_if = "SaidBeside::is_nothing")]
    pub beside: SaidBeside,
}

impl DoubtedResult {
    /// As its worker is told of it when it looks again.
    pub fn to_look_at(&self) -> DoubtedResult {
        DoubtedResult { beside: SaidBeside::default(), ..self.clone() }
    }
}

/// What a worker said beside its result, which counts with the result or not at all.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SaidBeside {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub recruit: Vec<Value>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub send: Vec<Value>,
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub variables: Map<String, Value>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub out_of_scope: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cost_micros: Option<u64>,
}

impl SaidBeside {
    fn is_nothing(&self) -> bool {
        *self == SaidBeside::default()
    }
}

/// A question to another capability, and its answer once it is there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AskedOfAnother {
    pub capability: String,
    pub question: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer: Option<String>,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn map(value: Value) -> Map<String, Value> {
        value.as_object().unwrap().clone()
    }

    /// No plan writes what the run writes: each name that the run has is refused, and no other.
    #[test]
    fn a_plan_cannot_speak_for_its_run() {
        let all = TaskMetadata {
            said: PlanMetadata::said(map(json!({ "from": "ann" }))).unwrap(),
            approved_action: Some("read".into()),
            proposed_action: Some("read".into()),
            reviewed_try: Some(1),
            passed_try: Some(1),
            action_result: Some(json!(1)),
            action_error: Some("why".into()),
            gave_nothing: true,
            left_work: Some(LeftWork { result: Some(json!(1)), compensation: Some(json!("undo")) }),
            tool_approval: Some(ToolApprovalWanted { policy_name: "p".into(), message: "m".into(), code: "c".into() }),
            overflows: vec![Overflow { attempt: 1, notes: "n".into() }],
            scratch_notes: Some("n".into()),
            reflections: vec![DoubtedResult {
                attempt: 1,
                confidence_bp: 1,
                result: json!(1),
                action: None,
                beside: SaidBeside::default(),
            }],
            consultations: vec![AskedOfAnother { capability: "c".into(), question: "q".into(), answer: None }],
            variables: map(json!({ "v": 1 })),
            missing_required_parameters: vec!["url".into()],
            report_viewed: true,
        };
        let shown = map(json!(all));
        let own: Vec<&String> = shown.keys().filter(|name| *name != "from").collect();
        assert_eq!(own.len(), OF_THE_RUN.len());
        for name in own {
            let said = map(json!({ name: 1, "from": "ann" }));
            assert_eq!(PlanMetadata::said(said.clone()), Err(ReservedName { name: name.clone() }));
            let why = serde_json::from_value::<PlanMetadata>(Value::Object(said)).unwrap_err().to_string();
            assert!(why.starts_with(&format!("`{name}` is written by the run itself")), "{why}");
        }
        assert_eq!(serde_json::from_value::<TaskMetadata>(json!(all)).unwrap(), all);
        assert_eq!(json!(TaskMetadata::default()), json!({}));
    }
}
