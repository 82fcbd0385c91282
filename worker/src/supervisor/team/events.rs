//! What people who watch a team are told: Shannon's event types and their texts.
//!
//! Invariant: an event is emitted once, with the turn that brought it about. No state is read from it.

use serde::Serialize;
use serde_json::json;

use crate::supervisor::journal::NoteKind;
use crate::supervisor::outbox::Outbox;

/// One thing to tell.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub enum TeamEvent {
    /// The team of `agents` begins.
    Status {
        agents: usize,
    },
    Recruited {
        agent: String,
        description: String,
    },
    Retired {
        agent: String,
    },
    RoleAssigned {
        agent: String,
        role: String,
    },
    /// Step `step` (from 1) of `of` begins.
    Progress {
        agent: String,
        step: usize,
        of: usize,
    },
    Waiting {
        agent: String,
        topics: Vec<String>,
    },
    /// A topic came, or (`None`) the step before is completed.
    DependencySatisfied {
        agent: String,
        topic: Option<String>,
    },
}

impl TeamEvent {
    pub fn event_type(&self) -> &'static str {
        match self {
            TeamEvent::Status { .. } => "TEAM_STATUS",
            TeamEvent::Recruited { .. } => "TEAM_RECRUITED",
            TeamEvent::Retired { .. } => "TEAM_RETIRED",
            TeamEvent::RoleAssigned { .. } => "ROLE_ASSIGNED",
            TeamEvent::Progress { .. } => "PROGRESS",
            TeamEvent::Waiting { .. } => "WAITING",
            TeamEvent::DependencySatisfied { .. } => "DEPENDENCY_SATISFIED",
        }
    }

    pub fn agent(&self) -> Option<&str> {
        match self {
            TeamEvent::Status { .. } => None,
            TeamEvent::Recruited { agent, .. }
            | TeamEvent::Retired { agent }
            | TeamEvent::RoleAssigned { agent, .. }
            | TeamEvent::Progress { agent, .. }
            | TeamEvent::Waiting { agent, .. }
            | TeamEvent::DependencySatisfied { agent, .. } => Some(agent),
        }
    }

    pub fn message(&self) -> String {
        match self {
            TeamEvent::Status { agents } => format!("Coordinating {agents} agents..."),
            TeamEvent::Recruited { description, .. } => description.clone(),
            TeamEvent::Retired { agent } => format!("{agent} has left the team"),
            TeamEvent::RoleAssigned { role, .. } => role.clone(),
            TeamEvent::Progress { step, of, .. } => format!("Working on step {step} of {of}"),
            TeamEvent::Waiting { topics, .. } => format!("Waiting for {}", topics.join(", ")),
            TeamEvent::DependencySatisfied { topic: Some(topic), .. } => topic.clone(),
            TeamEvent::DependencySatisfied { topic: None, .. } => "Previous step completed".to_owned(),
        }
    }

    pub fn emit(&self, out: &mut Outbox) {
        let data = json!({ "event": self.event_type(), "agent": self.agent(), "message": self.message() });
        out.note(NoteKind::ProgressEmitted, data);
    }
}
