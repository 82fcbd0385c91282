//! What holds for every run, whatever its family: rules that no strategy may have a copy of, or reach around.
//!
//! Here belongs what must be the same for plans, chats and agents that call tools, decided in one place and from recorded
//! facts alone: the account of a run, the names of what it asks for and what has become of each ask, what is waited for and for
//! how long, whether there is another try, who holds the run, and what is granted. A family is a `strategy::Strategy`; what it
//! chooses next (a task, a speaker, a tool) does not belong here.
//!
//! Invariant: pure, integers only, and it knows no family, no spec, no people and no workflow: `worker/tests/core` compiles it
//! with nothing but the rooms below it, and `clippy.toml` refuses clocks and disks. Families hear of it through the outbox, and
//! the workflow carries out what it says.

pub mod account;
pub mod answer;
pub mod asker;
pub mod authority;
pub mod awaited;
pub mod call_context;
pub mod calls;
pub mod control;
pub mod gate;
pub mod key;
pub mod loans;
pub mod phase;
pub mod plan_control;
pub mod question;
pub mod retry;
pub mod strategy;
pub mod verdict;
