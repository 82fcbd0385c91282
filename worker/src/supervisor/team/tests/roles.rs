//! Roles and what people are told.

use super::*;
use crate::supervisor::spec::Mailbox;
use crate::supervisor::team::events::TeamEvent;
use crate::supervisor::team::mailbox::Mailboxes;
use crate::supervisor::team::roles::*;

/// SHN-40: the planner's role of that task, else the one the run was given, else the generalist.
#[test]
fn the_role_of_a_task_is_the_planners() {
    let types = ["researcher", "", "  "].map(String::from);
    for (index, incoming, role) in [
        (0, None, "researcher"),
        (0, Some("writer"), "researcher"),
        (1, None, "generalist"),
        (2, None, "generalist"),
        (3, None, "generalist"),
        (1, Some("writer"), "writer"),
        (3, Some("writer"), "writer"),
        (3, Some(""), "generalist"),
    ] {
        assert_eq!(role_of(index, &types, incoming), role, "{index} {incoming:?}");
    }
    assert_eq!(role_of(0, &[], None), "generalist");
}

/// SHN-41: the catalogue, and the sentence each role puts into the system prompt.
#[test]
fn a_role_has_its_sentence_in_the_prompt() {
    let table: Vec<String> =
        CATALOGUE.iter().map(|e| format!("{} | {} | {}", e.role, e.specialty, e.tendency)).collect();
    assert_eq!(
        table,
        [
            "researcher | Information gathering | Comprehensive, detailed",
            "analyst | Data analysis | Numbers, trends",
            "strategist | Strategic planning | High-level view, long-term",
            "writer | Content creation | Readability, structure",
        ]
    );
    let sentences = ["researcher", "analyst", "strategist", "writer", "tech expert", "editor"].map(role_prompt);
    assert_eq!(
        sentences,
        [
            "You are a researcher, your specialty is information gathering. Your tendency: comprehensive, detailed.",
            "You are an analyst, your specialty is data analysis. Your tendency: numbers, trends.",
            "You are a strategist, your specialty is strategic planning. Your tendency: high-level view, long-term.",
            "You are a writer, your specialty is content creation. Your tendency: readability, structure.",
            "You are a tech expert.",
            "You are an editor.",
        ]
    );
}

/// SHN-15: the assignment is a message of the supervisor to the agent, and never waits: not even on a full queue.
#[test]
fn an_assignment_is_a_message() {
    let mut mailbox = Mailboxes::new(Mailbox { queue: 1, ..Mailbox::default() });
    let mut out = outbox(0);
    for role in ["analyst", "writer"] {
        assign(&mut mailbox, "agent-1", role, &mut out).unwrap();
    }
    let message = &mailbox.view()[0].draft;
    assert_eq!((message.from.as_str(), message.to.as_str()), ("supervisor", "agent-1"));
    assert_eq!((message.role.as_str(), message.content.as_str()), ("analyst", "role_assigned"));
    assert_eq!((mailbox.view().len(), mailbox.counts().dropped), (2, 1));
    assert_eq!(noted(&out)[..2], [NoteKind::RoleAssigned, NoteKind::MailboxAppended]);
}

/// SHN-28: each event by its type and text.
#[test]
fn team_events_have_these_texts() {
    let agent = || "agent-1".to_owned();
    let mut out = outbox(0);
    for event in [
        TeamEvent::Status { agents: 6 },
        TeamEvent::Recruited { agent: agent(), description: "pricing".into() },
        TeamEvent::Retired { agent: agent() },
        TeamEvent::RoleAssigned { agent: agent(), role: "analyst".into() },
        TeamEvent::Progress { agent: agent(), step: 2, of: 6 },
        TeamEvent::Waiting { agent: agent(), topics: vec!["prices".into(), "patents".into()] },
        TeamEvent::DependencySatisfied { agent: agent(), topic: Some("prices".into()) },
        TeamEvent::DependencySatisfied { agent: agent(), topic: None },
    ] {
        event.emit(&mut out);
    }
    assert_eq!(
        told(&out),
        [
            "TEAM_STATUS -: Coordinating 6 agents...",
            "TEAM_RECRUITED agent-1: pricing",
            "TEAM_RETIRED agent-1: agent-1 has left the team",
            "ROLE_ASSIGNED agent-1: analyst",
            "PROGRESS agent-1: Working on step 2 of 6",
            "WAITING agent-1: Waiting for prices, patents",
            "DEPENDENCY_SATISFIED agent-1: prices",
            "DEPENDENCY_SATISFIED agent-1: Previous step completed",
        ]
    );
}
