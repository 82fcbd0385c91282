//! Policies: what is decided before a model is asked, and what holds whatever a model answers.
//!
//! Invariant: whether a policy applies depends on texts and names alone, in the order of the list; an id begins with the
//! type of its policy. A policy asks nobody: what needs a person is left to the loop.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// One policy, named by an id such as `intent_guard_no_deletes`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StandingPolicy {
    pub id: String,
    #[serde(default)]
    pub name: String,
    #[serde(flatten)]
    pub rule: PolicyRule,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
pub enum PolicyRule {
    /// Blocks a request before anything is asked or delegated.
    IntentGuard { triggers: Vec<String>, response: String },
    /// Guidance for a kind of request; agents that are named are delegated to in that order.
    Playbook {
        triggers: Vec<String>,
        guidance: String,
        #[serde(default)]
        delegations: Vec<String>,
    },
    /// Advice in the description of tools.
    ToolGuide { tools: Vec<String>, guide: String },
    /// Tools that a person has to approve, each time.
    ToolApproval { tools: Vec<String>, message: String },
    /// How the final answer looks: a template with `{{answer}}`, or an instruction for one more call.
    OutputFormatter {
        #[serde(default)]
        template: Option<String>,
        #[serde(default)]
        instructions: Option<String>,
    },
}

impl PolicyRule {
    pub fn kind(&self) -> &'static str {
        match self {
            PolicyRule::IntentGuard { .. } => "intent_guard",
            PolicyRule::Playbook { .. } => "playbook",
            PolicyRule::ToolGuide { .. } => "tool_guide",
            PolicyRule::ToolApproval { .. } => "tool_approval",
            PolicyRule::OutputFormatter { .. } => "output_formatter",
        }
    }
}

impl StandingPolicy {
    /// A policy of that name; its id is the type and the name, in lower case with `_` for everything that is no letter.
    pub fn new(name: &str, rule: PolicyRule) -> Self {
        let slug: String =
            name.chars().map(|c| if c.is_alphanumeric() { c.to_ascii_lowercase() } else { '_' }).collect();
        StandingPolicy { id: format!("{}_{slug}", rule.kind()), name: name.to_owned(), rule }
    }
    /// Whether the id begins with the type and says more.
    pub fn is_well_named(&self) -> bool {
        self.id.strip_prefix(self.rule.kind()).is_some_and(|rest| rest.len() > 1)
    }
}

/// Whether one of the triggers is in the text, whatever the case; no trigger at all fits every text.
fn triggered(triggers: &[String], text: &str) -> bool {
    let text = text.to_lowercase();
    triggers.is_empty() || triggers.iter().any(|trigger| text.contains(&trigger.to_lowercase()))
}

/// The first guard that blocks the request, with what it says.
pub(crate) fn blocked<'a>(policies: &'a [StandingPolicy], request: &str) -> Option<(&'a StandingPolicy, &'a str)> {
    policies.iter().find_map(|policy| match &policy.rule {
        PolicyRule::IntentGuard { triggers, response } if triggered(triggers, request) => {
            Some((policy, response.as_str()))
        }
        _ => None,
    })
}

/// Guidance of all playbooks that fit the request, and the order of delegations of the first that has one.
pub(crate) fn playbooks(policies: &[StandingPolicy], request: &str) -> (Vec<String>, Vec<String>) {
    let (mut guidance, mut order) = (Vec::new(), Vec::new());
    for policy in policies {
        if let PolicyRule::Playbook { triggers, guidance: text, delegations } = &policy.rule
            && triggered(triggers, request)
        {
            guidance.extend(Some(text.clone()).filter(|text| !text.is_empty()));
            if order.is_empty() {
                order.clone_from(delegations);
            }
        }
    }
    (guidance, order)
}

pub(crate) fn guides(policies: &[StandingPolicy], tool: &str) -> Vec<String> {
    let guide = |policy: &StandingPolicy| match &policy.rule {
        PolicyRule::ToolGuide { tools, guide } if tools.iter().any(|name| name == tool) => Some(guide.clone()),
        _ => None,
    };
    policies.iter().filter_map(guide).collect()
}

/// The first policy that wants a person to approve the tool, with its message.
pub(crate) fn approval<'a>(policies: &'a [StandingPolicy], tool: &str) -> Option<(&'a StandingPolicy, &'a str)> {
    policies.iter().find_map(|policy| match &policy.rule {
        PolicyRule::ToolApproval { tools, message } if tools.iter().any(|name| name == tool) => {
            Some((policy, message.as_str()))
        }
        _ => None,
    })
}

/// The answer by the first formatter's template, and the instruction of the first that has one.
pub(crate) fn formatted(policies: &[StandingPolicy], answer: &str) -> (Option<String>, Option<String>) {
    let (mut text, mut instruction) = (None, None);
    for policy in policies {
        if let PolicyRule::OutputFormatter { template, instructions } = &policy.rule {
            if text.is_none() {
                text = template.as_ref().map(|template| template.replace("{{answer}}", answer));
            }
            instruction = instruction.or_else(|| instructions.clone());
        }
    }
    (text, instruction)
}

/// Whether a final answer states a result by a placeholder nobody filled, as in `The total is {total}`.
///
/// An answer that asks for something, or says what it lacks, is no such claim: it goes to the user as it is.
pub(crate) fn unfilled_placeholders(answer: &str) -> Vec<String> {
    const BLOCKERS: [&str; 18] = [
        "need",
        "needs",
        "needed",
        "require",
        "requires",
        "required",
        "missing",
        "awaiting",
        "waiting",
        "cannot",
        "unable",
        "blocked",
        "template",
        "can't",
        "please",
        "could you",
        "would you",
        "can you",
    ];
    let lower = answer.to_lowercase().replace('\u{2019}', "'");
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let says = |word: &str| {
        lower
            .match_indices(word)
            .any(|(at, _)| !lower[..at].ends_with(is_word) && !lower[at + word.len()..].starts_with(is_word))
    };
    if lower.contains('?') || BLOCKERS.iter().any(|word| says(word)) {
        return Vec::new();
    }
    let mut found = Vec::new();
    for (at, _) in answer.match_indices('{') {
        let rest = &answer[at + 1..];
        let Some(end) = rest.find('}') else { continue };
        let name = &rest[..end];
        let doubled = answer[..at].ends_with('{') || rest[end + 1..].starts_with('}');
        let named = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_') && name.chars().all(is_word);
        let before = answer[..at].trim_end_matches(['*', '`', '_', ' ', '\t', '\n']).to_lowercase();
        let claims = before.ends_with(':')
            || ["is", "are", "was", "were"]
                .iter()
                .any(|verb| before.strip_suffix(verb).is_some_and(|head| !head.ends_with(is_word)));
        if named && !doubled && claims {
            found.push(format!("{{{name}}}"));
        }
    }
    found
}
