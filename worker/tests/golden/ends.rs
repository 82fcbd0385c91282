//! How every scenario ends: its status, after how many seconds, and with what error or result.
//!
//! Invariant: this is looked at when a scenario is written, and no renewal touches it: what is renewed by mistake is found here.

/// Preset, scenario, status, seconds, error or result.
pub(crate) type End = (&'static str, &'static str, &'static str, u64, &'static str);

#[rustfmt::skip]
pub(crate) const ENDS: [End; 60] = [
    ("pydantask-fixed", "happy", "completed", 5, "The first is smaller, the second is faster."),
    ("pydantask-fixed", "failure", "partial", 4, "research has read for task 2."),
    ("pydantask-fixed", "human", "completed", 7, "The first is smaller, the second is faster."),
    ("pydantask-llm", "happy", "completed", 5, "A report on two methods."),
    ("pydantask-llm", "failure", "failed", 4, "No progress after 3 consecutive cycles (no tasks executed). Stopping to avoid infinite loop. Status counts: pending=1, ready=1. Requested by the supervisor: nothing. Runnable: [1]. Blocked: task 2: waiting on deps [1]."),
    ("pydantask-llm", "human", "completed", 1, "A report on one method."),
    ("pydantask-hybrid", "happy", "completed", 2, "count 2: 42"),
    ("pydantask-hybrid", "failure", "failed", 0, "No progress after 3 consecutive cycles (no tasks executed). Stopping to avoid infinite loop. Status counts: ready=1. Requested by the supervisor: nothing. Runnable: [1]. Blocked: none."),
    ("pydantask-hybrid", "human", "completed", 165, "count 2: 42"),
    ("flow-supervisor", "happy", "completed", 7, r#"{"summary":"Three kinds of tide."}"#),
    ("flow-supervisor", "failure", "partial", 7, r#"{"summary":"Two of three kinds of tide."}"#),
    ("flow-supervisor", "human", "completed", 63, r#"{"summary":"Neap tides."}"#),
    ("flow-supervisor-per-task", "happy", "completed", 3, "A talk."),
    ("flow-supervisor-per-task", "failure", "partial", 5, "An outline without slides."),
    ("flow-supervisor-per-task", "human", "completed", 3, "A talk."),
    ("flow-plan-and-execute", "happy", "completed", 6, "The database has moved."),
    ("flow-plan-and-execute", "failure", "partial", 4, "The database has not moved."),
    ("flow-plan-and-execute", "human", "completed", 6, "The database has moved."),
    ("flow-coordinator", "happy", "completed", 1, r#"{"a":"answer of a","b":"answer of b","c":"answer of c"}"#),
    ("flow-coordinator", "failure", "partial", 1, r#"{"a":"answer of a","c":"answer of c"}"#),
    ("flow-coordinator", "human", "completed", 1, r#"{"a":"answer of a","b":"perhaps","c":"answer of c"}"#),
    ("cuga-conversational", "happy", "completed", 2, "Acme is the largest customer and owes 300."),
    ("cuga-conversational", "failure", "completed", 2, "Acme is the largest customer; what it owes cannot be seen now."),
    ("cuga-conversational", "human", "completed", 2, "Acme is the largest customer and owes 300."),
    ("cuga-structured", "happy", "completed", 2, "Acme owes 300."),
    ("cuga-structured", "failure", "partial", 1, "It cannot be seen now."),
    ("cuga-structured", "human", "completed", 2, "Acme owes 300."),
    ("shannon-supervisor", "happy", "completed", 45, "Enter the market."),
    ("shannon-supervisor", "failure", "failed", 15, "Too many failures"),
    ("shannon-supervisor", "human", "completed", 32, "Enter the market."),
    ("shannon-dag", "happy", "completed", 2, "Oslo is larger."),
    ("shannon-dag", "failure", "partial", 4, "Only Oslo is known."),
    ("shannon-dag", "human", "completed", 2, "Oslo is larger."),
    ("shannon-simple", "happy", "completed", 1, "Oslo."),
    ("shannon-simple", "failure", "failed", 3, "Task 1 is failed: no network"),
    ("shannon-simple", "human", "completed", 3601, "Oslo."),
    ("supyagent-delegation", "happy", "completed", 5, "The service is built."),
    ("supyagent-delegation", "failure", "completed", 5, "The service could not be built."),
    ("supyagent-delegation", "human", "completed", 60, "The work has begun."),
    ("autogen-groupchat", "happy", "completed", 3, "Felix it is. TERMINATE"),
    ("autogen-groupchat", "failure", "failed", 2, "division by zero"),
    ("autogen-groupchat", "human", "completed", 7, "Felix it is. TERMINATE"),
    ("autogen-groupchat-selector", "happy", "completed", 1, "By train, two days. TERMINATE"),
    ("autogen-groupchat-selector", "failure", "failed", 0, "invalid x-api-key"),
    ("autogen-groupchat-selector", "human", "completed", 3601, "By train, two days. TERMINATE"),
    ("autogen-groupchat-magentic", "happy", "completed", 2, "The oak at the gate is the oldest."),
    ("autogen-groupchat-magentic", "failure", "failed", 2, "no network"),
    ("autogen-groupchat-magentic", "human", "completed", 605, "The oak at the gate is the oldest."),
    ("autogen-groupchat-swarm", "happy", "completed", 2, "It is on its way. TERMINATE"),
    ("autogen-groupchat-swarm", "failure", "failed", 2, "no connection"),
    ("autogen-groupchat-swarm", "human", "completed", 3602, "It is on its way. TERMINATE"),
    ("crewai-hierarchical", "happy", "completed", 2, "A short text about bees."),
    ("crewai-hierarchical", "failure", "completed", 2, "A short text without facts."),
    ("crewai-hierarchical", "human", "completed", 7, "A text about bees and lavender."),
    ("langgraph-supervisor", "happy", "completed", 2, "The combined headcount is 300."),
    ("langgraph-supervisor", "failure", "completed", 2, "They have 100 and 200; nobody could add them up."),
    ("langgraph-supervisor", "human", "completed", 2, "The combined headcount is 300."),
    ("swarm-handoff", "happy", "completed", 1, "Your flight is cancelled."),
    ("swarm-handoff", "failure", "failed", 1, "no connection"),
    ("swarm-handoff", "human", "completed", 1, "Your flight is cancelled."),
];

/// The line of a scenario.
pub(crate) fn of(preset: &str, name: &str) -> End {
    *ENDS.iter().find(|end| (end.0, end.1) == (preset, name)).unwrap_or_else(|| panic!("{preset} {name} has no line"))
}
