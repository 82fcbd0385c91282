//! The border between two runs of an agent: one whose history is long goes on in a new run of the same workflow id.
//!
//! ```text
//!   Ahead ──(the history is long, and a model would be asked)──► Carrying ──► Carried ──(messages have arrived)──► the next run
//!                                                                   └──(the conversation cannot be had, or is too large)──► Never
//! ```
//!
//! The conversation stands in the history of the run, as the results of its activities. It is read once more, by an activity,
//! and is the input of the next run beside the state; that run's calls name its messages by their places there.
//!
//! Invariant: nothing is under way at the border but the time of the agent, which begins again with what is left of it. Ids
//! of the run before are of things that are over. What cannot be carried stays in one run, and says so.

use std::collections::BTreeMap;
use std::time::Duration;

use bosun_engine::workflow::Cx;
use bosun_engine::{ActivityOptions, CancellationType, Failure, Payload, RetryPolicy, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::{Value, to_value};

use super::next_run::{Leave, bytes_of, go_on_in, input_max};
use super::number;
use super::spec::AgentSpec;
use super::transcript::TranscriptItem;
use super::workflow::{AGENT, AgentRun, CommandKind};
use crate::capability::model::Message;

/// The activity that reads the conversation for the next run.
pub const AGENT_CARRY: &str = "agent_carry";
/// For reading the history.
const TIMEOUT: Duration = Duration::from_secs(60);
const ATTEMPTS: u32 = 5;

/// Where a run stands on its way to the border.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum AgentBorder {
    #[default]
    Ahead,
    Carrying,
    Carried(Vec<Message>),
    /// There is none: it cannot be carried.
    Never,
}

impl AgentBorder {
    pub(super) fn is_ahead(&self) -> bool {
        *self == AgentBorder::Ahead
    }
}

/// What a run leaves to the one in which it goes on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ContinuedAgent {
    /// The number of the rules that have decided all before.
    #[serde(default)]
    rules: u32,
    /// The run before.
    from: String,
    /// When the time of the agent is over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    wall: Option<Timestamp>,
    /// The conversation, but for what is in the spec or in the state itself.
    pub(super) messages: Vec<Message>,
    /// Its state.
    state: Value,
}

/// The input of [`AGENT_CARRY`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CarryInput {
    pub items: Vec<TranscriptItem>,
}

/// What [`AGENT_CARRY`] gives: the messages of those items that stand in the history, in their order.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CarryOutput {
    pub messages: Vec<Message>,
}

impl AgentRun {
    /// Looks where the run stands, before it hears what happened.
    pub(super) fn watch_border(&mut self, cx: &mut Cx<'_>) {
        let own = self.agent.spec().limits.history_events;
        let is_long = self.leave.is_some()
            || cx.continue_as_new_suggested()
            || own.is_some_and(|most| cx.history().events >= most);
        if !self.border.is_ahead() || self.agent.border_closes() || !is_long {
            return;
        }
        self.agent.close_border();
    }

    /// Somebody wants the run to go on elsewhere, or to stay after all.
    pub(super) fn leave_asked(&mut self, leave: Option<Leave>, cx: &mut Cx<'_>) {
        self.leave = leave;
        if self.leave.is_none() && self.border.is_ahead() && self.agent.border_closes() {
            let asks = self.agent.go_on_from_border(cx.now());
            self.carry_out(asks, cx);
        }
        self.watch_border(cx);
    }

    /// After what happened was heard: on to the next run, if it is time.
    pub(super) fn at_border(&mut self, cx: &mut Cx<'_>) {
        if cx.is_closed() || !self.agent.is_at_border() {
            return;
        }
        match std::mem::take(&mut self.border) {
            AgentBorder::Ahead => self.border = self.carry(cx),
            AgentBorder::Carried(messages) if cx.waits_for_timers_only() => self.go_on_as_new(messages, cx),
            other => self.border = other,
        }
    }

    /// Asks for the conversation.
    fn carry(&mut self, cx: &mut Cx<'_>) -> AgentBorder {
        let items: Vec<TranscriptItem> = self.agent.conversation().iter().map(|(item, _)| item.clone()).collect();
        let options = ActivityOptions {
            start_to_close: Some(TIMEOUT),
            retry_policy: Some(RetryPolicy { maximum_attempts: ATTEMPTS, ..RetryPolicy::default() }),
            cancellation: CancellationType::TryCancel,
            summary: Some("the conversation, for the next run".to_owned()),
            ..ActivityOptions::default()
        };
        let seq = cx.schedule_activity(AGENT_CARRY, &CarryInput { items }, options);
        self.pending.insert(seq, (0, CommandKind::Carry));
        AgentBorder::Carrying
    }

    /// The conversation has been read, or cannot be.
    pub(super) fn carried(&mut self, result: Result<Payload, Failure>, cx: &mut Cx<'_>) {
        let read = result.and_then(|payload| Ok(payload.decode::<CarryOutput>()?));
        match read {
            Ok(CarryOutput { messages }) => self.border = AgentBorder::Carried(messages),
            Err(why) => self.stays_in_one_run(&why.root().message, cx),
        }
    }

    fn stays_in_one_run(&mut self, why: &str, cx: &mut Cx<'_>) {
        self.border = AgentBorder::Never;
        let asks = self.agent.open_border(&format!("{why}: the run goes on with a long history"), cx.now());
        self.carry_out(asks, cx);
    }

    fn go_on_as_new(&mut self, messages: Vec<Message>, cx: &mut Cx<'_>) {
        let wall = self.pending.iter().find(|(_, (_, kind))| *kind == CommandKind::Wall);
        let wall = wall.and_then(|(seq, _)| cx.timer_fires_at(*seq));
        let next = AgentRun {
            agent: self.agent.carried(),
            pending: BTreeMap::new(),
            // A fork stays one: nobody above has begun it.
            began_as: self.began_as.filter(|_| self.is_fork(cx)),
            ..self.clone()
        };
        let state = match to_value(&next) {
            Ok(state) => state,
            Err(why) => return self.stays_in_one_run(&why.to_string(), cx),
        };
        let continued = ContinuedAgent { rules: number::RULES, from: cx.run_id().to_string(), wall, messages, state };
        let input = AgentSpec { continued: Some(Box::new(continued)), ..self.agent.spec().clone() };
        let length = bytes_of(&input);
        let most = input_max(length, cx);
        match length <= most {
            true => go_on_in(AGENT, &input, self.leave.as_ref(), cx),
            false => self.stays_in_one_run(&format!("the state is larger than {most} bytes"), cx),
        }
    }

    /// The first turn of the next run.
    pub(super) fn go_on_from(continued: ContinuedAgent, cx: &mut Cx<'_>) -> AgentRun {
        number::held_by_other_rules(cx);
        let ContinuedAgent { rules, from, wall, state, .. } = continued;
        number::judged_by(rules);
        let read: Result<AgentRun, _> = serde_json::from_value(state);
        let mut run = read.unwrap_or_else(|why| {
            panic!("the run before, {from}, left a state that this program cannot read: {why}. Go on with the program of that run")
        });
        run.began_as = run.began_as.or(Some(cx.run_id()));
        (run.is_continued, run.now, run.border, run.leave) = (true, cx.now(), AgentBorder::Ahead, None);
        if let Some(at) = wall {
            run.start_wall(at, cx);
        }
        let asks = run.agent.go_on_from_border(cx.now());
        run.carry_out(asks, cx);
        run
    }
}
