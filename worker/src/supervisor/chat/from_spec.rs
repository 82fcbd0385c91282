//! The rules of a chat from a spec's sections `speaker`, `handoff` and `loop`, and its participants from `agents`.
//!
//! Invariant: a chat is bounded even where the spec sets no bound; empty transitions are none. It checks nothing: the
//! start of the chat does.

use super::rules::{AllowRepeat, ChatAgent, ChatRules};
use crate::supervisor::spec;

impl ChatRules {
    pub fn from_spec(speaker: &spec::Speaker, handoff: &spec::Handoff, run_loop: &spec::Loop) -> Self {
        let base = match speaker.team {
            spec::ChatTeam::GroupChat => ChatRules::default(),
            spec::ChatTeam::Selector => ChatRules::selector(),
            spec::ChatTeam::Swarm => ChatRules::swarm(),
            spec::ChatTeam::Magentic => ChatRules::magentic(),
        };
        let graph = !speaker.transitions.is_empty();
        ChatRules {
            speaker_selection_method: speaker.method,
            max_round: run_loop.max_rounds.unwrap_or(base.max_round),
            count: run_loop.count,
            admin_name: speaker.admin.clone(),
            func_call_filter: speaker.func_call_filter,
            send_introductions: speaker.send_introductions,
            max_retries_for_selecting_speaker: speaker.retries,
            manual_tries: speaker.manual_tries,
            fallback: speaker.fallback,
            allow_repeat_speaker: speaker.allow_repeat.map(AllowRepeat::Everybody),
            allowed_or_disallowed_speaker_transitions: graph.then(|| speaker.transitions.clone()),
            speaker_transitions_type: speaker.transitions_type,
            termination: speaker.termination.clone(),
            selector_function: speaker.selector_function,
            candidate_function: speaker.candidate_function,
            max_stalls: speaker.ledger.max_stalls,
            max_json_retries: speaker.ledger.json_retries,
            on_speaker_error: speaker.on_error,
            team: speaker.team,
            termination_handoff: handoff.termination.clone().or(base.termination_handoff),
            manager: base.manager,
            manager_tools: base.manager_tools,
        }
    }
}

impl From<&spec::Agent> for ChatAgent {
    /// The tools of an agent are the functions it can run.
    fn from(agent: &spec::Agent) -> Self {
        let functions = agent.tools.iter().map(|tool| tool.name.clone()).collect();
        ChatAgent { name: agent.name.clone(), description: agent.description.clone(), functions }
    }
}
