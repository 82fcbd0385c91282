//! Findings: what is wrong with a workflow (or with the engine), named.
//!
//! Invariant: every finding has a kind, a stable word that tests and reports match on; the text is for people. A finding
//! judges one life of one workflow; what a search over many lives found is told elsewhere.

use std::fmt;

use bosun_engine::workflow::NonDeterminism;
use bosun_engine::*;

use super::clues::Clues;
use crate::determinism::Trip;

/// The first thing that was wrong.
#[derive(Debug, Clone, PartialEq)]
pub enum Violation {
    /// The code called something that replay cannot repeat.
    ForbiddenCall(Trip),
    /// The same code does not fit the history that it made.
    ReplayMismatch {
        /// The first difference.
        card: Box<NonDeterminism>,
        /// What else is odd about the code.
        clues: Clues,
    },
    /// The next version does not fit histories of the one before.
    DeployMismatch(Box<NonDeterminism>),
    /// The next version fits a history of the one before, and asks for something else all the same: two timers of the same
    /// moment have changed places, for example.
    DeployDiffers {
        /// What was asked for, and where, when the run lived.
        before: String,
        /// What the next version asks for there.
        after: String,
    },
    /// Two runs of the code over the same history differ in something no event shows.
    Unstable {
        /// What differs: commands, state or the answer of a query.
        what: &'static str,
        /// The event that was answered, if it is one.
        event_id: Option<EventId>,
        /// What was seen first, shortened.
        first: String,
        /// What was seen then, shortened.
        second: String,
        /// What else is odd about the code.
        clues: Clues,
    },
    /// The code in another process, on the same history, does something else.
    Elsewhere {
        /// What differs.
        what: String,
        /// What was asked for here, and where in the code.
        here: String,
        /// The same of the other process.
        there: String,
        /// Everything else that helps: the card, suspects.
        notes: Vec<String>,
    },
    /// The code does something else on its own history while another run is loaded in the same process.
    OtherRun {
        /// The first difference.
        finding: Box<Violation>,
    },
    /// A query handler asked for something to happen.
    QueryMutates {
        /// Which query.
        query: QueryName,
        /// What it changed.
        what: String,
    },
    /// A validator changed the workflow: every update that it is asked about is refused.
    ValidatorMutates {
        /// Of which update.
        update: UpdateName,
        /// What it changed.
        what: String,
    },
    /// The code asked for something while it was being dropped; on eviction that is lost.
    StrayRequest {
        /// What was asked for.
        what: String,
    },
    /// The code panicked, and the test does not allow it.
    Panic {
        /// What the panic said, with the place.
        message: String,
    },
    /// The code waits for, or was woken by, something outside its context.
    ForeignFuture {
        /// What was awaited, and by which task.
        message: String,
    },
    /// A condition of `wait_until` changed the workflow.
    ConditionMutates {
        /// What the condition changed.
        message: String,
    },
    /// The code wants a tokio runtime around it.
    AmbientRuntime {
        /// What the panic said.
        message: String,
    },
    /// An invariant of the user does not hold.
    Invariant {
        /// The name that the test gave it.
        name: String,
        /// What the invariant said.
        why: String,
    },
    /// A guarantee of the engine does not hold; that is a bug in Bosun.
    Guarantee {
        /// Its row: `G16`.
        id: &'static str,
        /// What was seen.
        why: String,
    },
    /// Faults have stopped, and the run neither ends nor waits for something with a name.
    Stuck {
        /// What is known of the standstill.
        why: String,
    },
    /// The result depends on the order in which activities end.
    OrderDependent {
        /// The outcome when what arrived first came first.
        first: String,
        /// The outcome when what arrived last came first.
        second: String,
    },
    /// The test itself lacks something.
    Setup {
        /// What to add to the test.
        why: String,
    },
}

impl Violation {
    /// The stable name of this kind of finding.
    pub fn kind(&self) -> &'static str {
        match self {
            Violation::ForbiddenCall(_) => "forbidden-call",
            Violation::ReplayMismatch { .. } => "replay-mismatch",
            Violation::DeployMismatch(_) => "deploy-mismatch",
            Violation::DeployDiffers { .. } => "deploy-differs",
            Violation::Unstable { what, .. } => match *what {
                "state" => "unstable-state",
                "query" => "unstable-query",
                _ => "unstable-commands",
            },
            Violation::Elsewhere { .. } => "other-process",
            Violation::OtherRun { .. } => "other-run",
            Violation::QueryMutates { .. } => "query-mutates",
            Violation::ValidatorMutates { .. } => "validator-mutates",
            Violation::StrayRequest { .. } => "stray-request",
            Violation::Panic { .. } => "panic",
            Violation::ForeignFuture { .. } => "foreign-future",
            Violation::ConditionMutates { .. } => "condition-mutates",
            Violation::AmbientRuntime { .. } => "ambient-runtime",
            Violation::Invariant { .. } => "invariant",
            Violation::Guarantee { .. } => "guarantee",
            Violation::Stuck { .. } => "stuck",
            Violation::OrderDependent { .. } => "order-dependent",
            Violation::Setup { .. } => "setup",
        }
    }
    /// Whether the other finding is the same trouble, so that a smaller plan that shows it will do.
    pub(crate) fn is_like(&self, other: &Violation) -> bool {
        match (self, other) {
            (Violation::Invariant { name, .. }, Violation::Invariant { name: other, .. }) => name == other,
            (Violation::Guarantee { id, .. }, Violation::Guarantee { id: other, .. }) => id == other,
            (Violation::ForbiddenCall(trip), Violation::ForbiddenCall(other)) => trip.call == other.call,
            (one, other) => one.kind() == other.kind(),
        }
    }
}

impl fmt::Display for Violation {
    // long: one sentence for each kind.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.kind())?;
        match self {
            Violation::ForbiddenCall(trip) => trip.fmt(f),
            Violation::ReplayMismatch { card, clues } => write!(
                f,
                "replaying its own history, the code issued other commands; it depends on something that history \
                 does not hold ({})\n{}{clues}",
                match clues.from_snapshot {
                    true => "a part of its state that a snapshot does not hold",
                    false =>
                        "clock, randomness, environment, a static, an address, an unordered map, state that a query or a \
                              validator changed",
                },
                of_unchanged_code(card)
            ),
            Violation::DeployMismatch(card) => write!(f, "the next version does not fit a history of this one\n{card}"),
            Violation::DeployDiffers { before, after } => write!(
                f,
                "the next version fits the history of this one, and asks for something else at the same place, which no worker \
                 and no gate sees\n  before   {before}\n  after    {after}"
            ),
            Violation::Unstable { what, event_id, first, second, clues } => {
                let at = event_id.map_or_else(String::new, |id| format!(" in answer to event {id}"));
                write!(
                    f,
                    "two runs over the same history differ in their {what}{at}\n  first    {first}\n  second   {second}{clues}"
                )
            }
            Violation::Elsewhere { what, here, there, notes } => {
                write!(
                    f,
                    "in another process the code does something else on the same history: {what}\n  here     {here}\n  \
                     there    {there}\n  that process has another pid, other arguments, environment, directory, time zone, \
                     locale, hash keys, addresses and thread names, and no memory of earlier runs"
                )?;
                notes.iter().try_for_each(|note| write!(f, "\n{note}"))
            }
            Violation::OtherRun { finding } => write!(
                f,
                "while another run of the workflow, with another input, is in memory, the code does something else on the same \
                 history: the two share something (a static, a cache, a value of the thread)\n{finding}"
            ),
            Violation::QueryMutates { query, what } => {
                write!(f, "the handler of query {query} changed the workflow: {what}; queries must only read")
            }
            Violation::ValidatorMutates { update, what } => {
                write!(f, "{what}; validators must only read: a worker refuses every update {update}")
            }
            Violation::StrayRequest { what } => write!(
                f,
                "the code asked for {what} while it was being dropped (a `Drop` that gives commands); after an \
                 eviction that happens at another moment, or never"
            ),
            Violation::Panic { message } => write!(f, "the workflow code panicked: {message}"),
            Violation::ForeignFuture { message }
            | Violation::ConditionMutates { message }
            | Violation::AmbientRuntime { message } => f.write_str(message),
            Violation::Invariant { name, why } => write!(f, "{name}: {why}"),
            Violation::Guarantee { id, why } => write!(f, "engine guarantee {id} is broken: {why}"),
            Violation::Stuck { why } => f.write_str(why),
            Violation::OrderDependent { first, second } => write!(
                f,
                "the result depends on the order in which activities end\n  first    {first}\n  second   {second}"
            ),
            Violation::Setup { why } => f.write_str(why),
        }
    }
}

/// The card without its advice: that is for code that has changed, and here none has.
pub(crate) fn of_unchanged_code(card: &NonDeterminism) -> String {
    let text = card.to_string();
    let told = text.split_once("\nhelp: ").map_or(text.as_str(), |(told, _)| told);
    format!(
        "{told}\nhelp: the code did not change, so a patch cannot fix this: find what it depends on, and take that from \
             the workflow context, an activity or the input"
    )
}

impl std::error::Error for Violation {}
