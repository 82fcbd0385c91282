//! The advisor: what earlier decompositions suggest for a query, and what went wrong before.
//!
//! A pattern counts if it is similar (more than 0.8) and went well (more than 0.7); the advice's confidence is the
//! product of both, or 0.5 where no pattern counts. Similarity is Jaccard's: of the different words of both queries (lower case,
//! letters and digits), the share that both have.
//!
//! Invariant: integers only (basis points), lists in their order, ties to the earlier pattern: the same memory gives the
//! same advice, always. It calls nobody.

use std::collections::BTreeSet;

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

use crate::supervisor::model::PlanStrategy;
use crate::supervisor::spec::Memory;

/// The whole, in basis points.
pub const WHOLE_BP: u32 = 10_000;
/// The pattern of failures that parallel work causes.
pub const RATE_LIMIT: &str = "rate_limit";
/// A decomposition of an earlier run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Pattern {
    #[serde(alias = "query")]
    pub query_pattern: String,
    pub strategy: String,
    /// How often it went well, 0 to 1 in JSON.
    #[serde(rename = "success_rate", deserialize_with = "ratio_bp", serialize_with = "bp_ratio")]
    pub success_bp: u32,
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub subtasks: Value,
}

/// Something that went wrong before.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailurePattern {
    pub pattern: String,
    /// Words that call it to mind; for `rate_limit` without any, the words of haste in the spec.
    #[serde(default)]
    pub indicators: Vec<String>,
    #[serde(default)]
    pub mitigation: String,
}

/// What a session remembers. Stores may keep more than this; it is passed over.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct SessionMemory {
    pub decomposition_history: Vec<Pattern>,
    pub failure_patterns: Vec<FailurePattern>,
}

/// What the advisor says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Advice {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub strategy: Option<PlanStrategy>,
    #[serde(rename = "confidence", deserialize_with = "ratio_bp", serialize_with = "bp_ratio")]
    pub confidence_bp: u32,
    #[serde(default)]
    pub warnings: Vec<String>,
    /// Whatever else is advised: not in parallel.
    #[serde(default)]
    pub force_sequential: bool,
}

impl Advice {
    /// No pattern backs it.
    pub fn none(rules: &Memory) -> Self {
        let confidence_bp = rules.default_confidence.as_bp();
        Advice { strategy: None, confidence_bp, warnings: Vec::new(), force_sequential: false }
    }

    /// The strategy to take instead of the planned one.
    pub fn strategy_over(&self, planned: &str, override_above_bp: u32) -> String {
        if self.force_sequential {
            return "sequential".to_owned();
        }
        let sure = self.confidence_bp > override_above_bp;
        self.strategy.filter(|_| sure).map_or_else(|| planned.to_owned(), |own| own.as_str().to_owned())
    }
}

/// What the memory suggests for a query.
pub fn suggest(query: &str, memory: &SessionMemory, rules: &Memory) -> Advice {
    let mut advice = Advice::none(rules);
    let (similar, succeeded) = (rules.similar_above.as_bp(), rules.success_above.as_bp());
    let mut best = None;
    // A word that is no strategy suggests none; a plan that said nothing of it is remembered without one.
    let told = |pattern: &&Pattern| pattern.strategy.is_empty() || PlanStrategy::from_name(&pattern.strategy).is_some();
    for pattern in memory.decomposition_history.iter().filter(told) {
        let similarity = similarity_bp(query, &pattern.query_pattern);
        if similarity <= similar || pattern.success_bp <= succeeded {
            continue;
        }
        let confidence = product_bp(pattern.success_bp, similarity);
        if best.is_none_or(|best| confidence > best) {
            best = Some(confidence);
            (advice.strategy, advice.confidence_bp) = (PlanStrategy::from_name(&pattern.strategy), confidence);
        }
    }
    warn(query, memory, rules, &mut advice);
    advice
}

/// Adds what went wrong before with queries like this one.
pub(super) fn warn(query: &str, memory: &SessionMemory, rules: &Memory, advice: &mut Advice) {
    let words = sequence(query);
    for failure in memory.failure_patterns.iter().filter(|failure| failure.matches(&words, rules)) {
        let warning = if failure.mitigation.is_empty() { &failure.pattern } else { &failure.mitigation };
        if !advice.warnings.contains(warning) {
            advice.warnings.push(warning.clone());
        }
        advice.force_sequential |= failure.pattern == RATE_LIMIT;
    }
}

impl FailurePattern {
    fn matches(&self, words: &[String], rules: &Memory) -> bool {
        let named = |indicator: &str| {
            let wanted = sequence(indicator);
            !wanted.is_empty() && words.windows(wanted.len()).any(|window| window == wanted)
        };
        let hasty = self.indicators.is_empty() && self.pattern == RATE_LIMIT;
        self.indicators.iter().any(|indicator| named(indicator))
            || (hasty && rules.rate_limit_words.iter().any(|word| named(word)))
    }
}

/// How alike two queries are: 10000 for the same words, 0 for none in common (or no words at all).
pub fn similarity_bp(a: &str, b: &str) -> u32 {
    let words = |text| sequence(text).into_iter().collect::<BTreeSet<String>>();
    let (a, b) = (words(a), words(b));
    let (common, all) = (a.intersection(&b).count() as u64, a.union(&b).count() as u64);
    let share = (common * u64::from(WHOLE_BP)).checked_div(all).unwrap_or(0);
    u32::try_from(share).unwrap_or(WHOLE_BP)
}

/// The product of two shares, rounded.
pub fn product_bp(a: u32, b: u32) -> u32 {
    let product = (u64::from(a) * u64::from(b) + u64::from(WHOLE_BP / 2)) / u64::from(WHOLE_BP);
    u32::try_from(product).unwrap_or(WHOLE_BP)
}

/// The words of a text in their order.
fn sequence(text: &str) -> Vec<String> {
    let words = text.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty());
    words.map(str::to_lowercase).collect()
}

/// A share, 0 to 1 in JSON; read once, then an integer.
pub(crate) fn ratio_bp<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u32, D::Error> {
    let ratio = f64::deserialize(deserializer)?;
    if !(0.0..=1.0).contains(&ratio) {
        return Err(serde::de::Error::custom(format!("{ratio} is not between 0 and 1")));
    }
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is between 0 and 10000")]
    Ok((ratio * f64::from(WHOLE_BP)).round() as u32)
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for it")]
fn bp_ratio<S: serde::Serializer>(bp: &u32, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(f64::from(*bp) / f64::from(WHOLE_BP))
}
