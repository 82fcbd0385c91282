//! The texts of keys, and how they are read.
//!
//! Invariant: reading is the inverse of showing; a text that is shown for no key is read as none.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::{
    AgentsKey, ChatAsk, ChatKey, CoreKey, CrewAsk, GraphKey, Key, MemoryKey, PeopleKey, SessionAsk, SessionPath,
    TeamKey,
};
use crate::supervisor::model::TaskId;

impl SessionAsk {
    /// What it is called, in which step it is asked for, and for which call of it.
    fn words(self) -> (&'static str, Option<u32>, Option<usize>) {
        match self {
            SessionAsk::Approve { step, call } => ("approve", Some(step), Some(call)),
            SessionAsk::Question { step } => ("ask", Some(step), None),
            SessionAsk::Deadline => ("deadline", None, None),
            SessionAsk::Format { step } => ("format", Some(step), None),
            SessionAsk::Sleep { step, call } => ("sleep", Some(step), Some(call)),
            SessionAsk::Step { step } => ("step", Some(step), None),
            SessionAsk::Tool { step, call } => ("tool", Some(step), Some(call)),
        }
    }
}

impl ChatAsk {
    const ALL: [ChatAsk; 9] = [
        ChatAsk::Facts,
        ChatAsk::FactsUpdate,
        ChatAsk::FinalAnswer,
        ChatAsk::Human,
        ChatAsk::Plan,
        ChatAsk::PlanUpdate,
        ChatAsk::ProgressLedger,
        ChatAsk::Select,
        ChatAsk::Speak,
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            ChatAsk::Facts => "facts",
            ChatAsk::FactsUpdate => "facts_update",
            ChatAsk::FinalAnswer => "final_answer",
            ChatAsk::Human => "human",
            ChatAsk::Plan => "plan",
            ChatAsk::PlanUpdate => "plan_update",
            ChatAsk::ProgressLedger => "progress_ledger",
            ChatAsk::Select => "select",
            ChatAsk::Speak => "speak",
        }
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Key::Graph(key) => write!(f, "{key}"),
            Key::Chat(key) => write!(f, "{key}"),
            Key::Agents(key) => write!(f, "{key}"),
            Key::People(key) => write!(f, "{key}"),
            Key::Team(key) => write!(f, "{key}"),
            Key::Memory(MemoryKey::Advise) => f.write_str("memory/advise"),
            Key::Memory(MemoryKey::Fetch) => f.write_str("memory/fetch"),
            Key::Memory(MemoryKey::FetchBasic) => f.write_str("memory/fetch-basic"),
            Key::Memory(MemoryKey::Record) => f.write_str("memory/record"),
            Key::Core(CoreKey::Wall) => f.write_str("budget/wall"),
        }
    }
}

impl fmt::Display for GraphKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            GraphKey::Act { task, attempt } => write!(f, "act/{task}/{attempt}"),
            GraphKey::Compensate { task } => write!(f, "compensate/{task}"),
            GraphKey::Consult { task, attempt, n } => write!(f, "consult/{task}/{attempt}/{n}"),
            GraphKey::Decide { cycle } => write!(f, "decide/{cycle}"),
            GraphKey::Dependencies { task } => write!(f, "deps/{task}"),
            GraphKey::Evaluate { cycle } => write!(f, "evaluate/{cycle}"),
            GraphKey::Execute { task, attempt } => write!(f, "execute/{task}/{attempt}"),
            GraphKey::Format => f.write_str("format/1"),
            GraphKey::Plan { attempt } => write!(f, "plan/{attempt}"),
            GraphKey::Retry { task, attempt } => write!(f, "retry/{task}/{attempt}"),
            GraphKey::Review { of, attempt: Some(attempt) } => write!(f, "review/{of}/{attempt}"),
            GraphKey::Review { of, attempt: None } => write!(f, "review/{of}"),
            GraphKey::ReviewAgain { task, attempt, n } => write!(f, "review-again/{task}/{attempt}/{n}"),
            GraphKey::Routed => f.write_str("route/dag"),
            GraphKey::Synthesize { attempt } => write!(f, "synthesize/{attempt}"),
        }
    }
}

impl fmt::Display for ChatKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "chat/{}/{}", self.ask.as_str(), self.n)
    }
}

impl fmt::Display for SessionPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, number) in self.0.iter().enumerate() {
            write!(f, "{}{number}", if at > 0 { "." } else { "" })?;
        }
        Ok(())
    }
}

impl fmt::Display for AgentsKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AgentsKey::Session { path, ask } => {
                let (what, step, call) = ask.words();
                write!(f, "agents/{path}/{what}")?;
                step.map_or(Ok(()), |step| write!(f, "/{step}"))?;
                call.map_or(Ok(()), |call| write!(f, "/{call}"))
            }
            AgentsKey::Crew { task, ask: CrewAsk::Guard(n) } => write!(f, "agents/task/{task}/guard/{n}"),
            AgentsKey::Crew { task, ask: CrewAsk::Feedback(n) } => write!(f, "agents/task/{task}/human/{n}"),
        }
    }
}

impl fmt::Display for PeopleKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PeopleKey::Answer(n) => write!(f, "answer/{n}"),
            PeopleKey::ApprovalDeadline(n) => write!(f, "approval/ap-{n}/deadline"),
            PeopleKey::ApprovalLog(n) => write!(f, "approval/ap-{n}/log"),
            PeopleKey::ApprovalNotify(n) => write!(f, "approval/ap-{n}/notify"),
            PeopleKey::DecisionTimeout(key) => write!(f, "decision_timeout/{key}"),
            PeopleKey::InterruptDeadline(n) => write!(f, "interrupt/in-{n}/deadline"),
            PeopleKey::PlanReviewDeadline(1) => f.write_str("plan_review/deadline"),
            PeopleKey::PlanReviewDeadline(n) => write!(f, "plan_review/deadline/{n}"),
            PeopleKey::TakeoverDeadline(n) => write!(f, "control/takeover/{n}"),
        }
    }
}

impl fmt::Display for TeamKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TeamKey::Mail(n) => write!(f, "mailbox/send/{n}"),
            TeamKey::AuthorizeRecruit(n) => write!(f, "recruit/{n}/authorize"),
            TeamKey::AuthorizeRetirement(n) => write!(f, "retire/{n}/authorize"),
            TeamKey::Recruit(n) => write!(f, "recruit/{n}/child"),
            TeamKey::Topic { task, look } => write!(f, "topic/{task}/{look}"),
        }
    }
}

/// A text that names nothing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` names nothing that a run asks for")]
pub struct UnknownKey(pub String);

impl FromStr for Key {
    type Err = UnknownKey;

    fn from_str(text: &str) -> Result<Key, UnknownKey> {
        // A key has one text: `plan/01` is none.
        let is_whole = |key: &Key| {
            let shown = key.to_string();
            shown == text
        };
        read(text).filter(is_whole).ok_or_else(|| UnknownKey(text.to_owned()))
    }
}

/// What stands before the last `/`, and the number behind it.
fn numbered<N: FromStr>(text: &str) -> Option<(&str, N)> {
    let (before, number) = text.rsplit_once('/')?;
    Some((before, number.parse().ok()?))
}

fn attempt_of(text: &str) -> Option<(TaskId, u32)> {
    let (task, attempt) = numbered(text)?;
    Some((TaskId::new(task).ok()?, attempt))
}

fn read(text: &str) -> Option<Key> {
    let (who, rest) = text.split_once('/')?;
    let key = match who {
        "chat" => {
            let (what, n) = numbered(rest)?;
            let ask = ChatAsk::ALL.into_iter().find(|ask| ask.as_str() == what)?;
            ChatKey { ask, n }.into()
        }
        "agents" => read_agents(rest)?.into(),
        "memory" => match rest {
            "advise" => MemoryKey::Advise.into(),
            "fetch" => MemoryKey::Fetch.into(),
            "fetch-basic" => MemoryKey::FetchBasic.into(),
            _ => MemoryKey::Record.into(),
        },
        "budget" => CoreKey::Wall.into(),
        _ => return read_graph(who, rest).map(Key::from).or_else(|| read_others(who, rest)),
    };
    Some(key)
}

fn read_graph(who: &str, rest: &str) -> Option<GraphKey> {
    let task = || TaskId::new(rest).ok();
    Some(match who {
        "act" => attempt_of(rest).map(|(task, attempt)| GraphKey::Act { task, attempt })?,
        "compensate" => GraphKey::Compensate { task: task()? },
        "consult" => {
            let (rest, n) = numbered(rest)?;
            attempt_of(rest).map(|(task, attempt)| GraphKey::Consult { task, attempt, n })?
        }
        "decide" => GraphKey::Decide { cycle: rest.parse().ok()? },
        "deps" => GraphKey::Dependencies { task: task()? },
        "evaluate" => GraphKey::Evaluate { cycle: rest.parse().ok()? },
        "execute" => attempt_of(rest).map(|(task, attempt)| GraphKey::Execute { task, attempt })?,
        "format" => GraphKey::Format,
        "plan" => GraphKey::Plan { attempt: rest.parse().ok()? },
        "retry" => attempt_of(rest).map(|(task, attempt)| GraphKey::Retry { task, attempt })?,
        "review" => match attempt_of(rest) {
            Some((of, attempt)) => GraphKey::Review { of, attempt: Some(attempt) },
            None => GraphKey::Review { of: task()?, attempt: None },
        },
        "review-again" => {
            let (rest, n) = numbered(rest)?;
            attempt_of(rest).map(|(task, attempt)| GraphKey::ReviewAgain { task, attempt, n })?
        }
        "route" => GraphKey::Routed,
        "synthesize" => GraphKey::Synthesize { attempt: rest.parse().ok()? },
        _ => return None,
    })
}

fn read_agents(rest: &str) -> Option<AgentsKey> {
    if let Some(rest) = rest.strip_prefix("task/") {
        let (rest, n) = numbered(rest)?;
        let (task, what) = rest.rsplit_once('/')?;
        let ask = if what == "guard" { CrewAsk::Guard(n) } else { CrewAsk::Feedback(n) };
        return Some(AgentsKey::Crew { task: task.to_owned(), ask });
    }
    let mut words = rest.split('/');
    let path = words.next()?.split('.').map(str::parse).collect::<Result<_, _>>().ok()?;
    let what = words.next()?;
    let mut number = || words.next()?.parse::<u32>().ok();
    let (step, call) = (number(), number().and_then(|call| usize::try_from(call).ok()));
    let ask = match what {
        "approve" => SessionAsk::Approve { step: step?, call: call? },
        "ask" => SessionAsk::Question { step: step? },
        "deadline" => SessionAsk::Deadline,
        "format" => SessionAsk::Format { step: step? },
        "sleep" => SessionAsk::Sleep { step: step?, call: call? },
        "step" => SessionAsk::Step { step: step? },
        _ => SessionAsk::Tool { step: step?, call: call? },
    };
    Some(AgentsKey::Session { path: SessionPath(path), ask })
}

fn read_others(who: &str, rest: &str) -> Option<Key> {
    let (first, last) = rest.split_once('/').unwrap_or((rest, ""));
    let after = |prefix: &str| first.strip_prefix(prefix)?.parse::<u64>().ok();
    Some(match (who, last) {
        ("answer", _) => PeopleKey::Answer(first.parse().ok()?).into(),
        ("approval", "deadline") => PeopleKey::ApprovalDeadline(after("ap-")?).into(),
        ("approval", "log") => PeopleKey::ApprovalLog(after("ap-")?).into(),
        ("approval", _) => PeopleKey::ApprovalNotify(after("ap-")?).into(),
        ("control", n) => PeopleKey::TakeoverDeadline(n.parse().ok()?).into(),
        ("decision_timeout", _) => PeopleKey::DecisionTimeout(Box::new(read(rest)?)).into(),
        ("interrupt", _) => PeopleKey::InterruptDeadline(after("in-")?).into(),
        ("plan_review", "") => PeopleKey::PlanReviewDeadline(1).into(),
        ("plan_review", n) => PeopleKey::PlanReviewDeadline(n.parse().ok()?).into(),
        ("mailbox", n) => TeamKey::Mail(n.parse().ok()?).into(),
        ("recruit", "authorize") => TeamKey::AuthorizeRecruit(after("")?).into(),
        ("recruit", _) => TeamKey::Recruit(after("")?).into(),
        ("retire", _) => TeamKey::AuthorizeRetirement(after("")?).into(),
        ("topic", _) => {
            let (task, look) = attempt_of(rest)?;
            TeamKey::Topic { task, look }.into()
        }
        _ => return None,
    })
}

impl Serialize for Key {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Key {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Key, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn keys() -> impl Strategy<Value = Key> {
        let task = prop_oneof![
            "[a-z/.~-]{1,6}".prop_map(|text| TaskId::of(&text)),
            "(1|7/2|execute|guard/1|a/1/2)".prop_map(|text| TaskId::of(&text)),
        ];
        let path = prop::collection::vec(0u32..30, 1..4).prop_map(SessionPath);
        (task, path, 1u32..200, 0usize..5, 0usize..36).prop_map(|(task, path, n, call, which)| {
            let (name, session) = (task.to_string(), |ask| AgentsKey::Session { path: path.clone(), ask }.into());
            match which {
                0 => GraphKey::Act { task, attempt: n }.into(),
                1 => GraphKey::Compensate { task }.into(),
                2 => GraphKey::Consult { task, attempt: n, n: 2 }.into(),
                3 => GraphKey::Decide { cycle: n }.into(),
                4 => GraphKey::Dependencies { task }.into(),
                5 => GraphKey::Evaluate { cycle: n }.into(),
                6 => GraphKey::Execute { task, attempt: n }.into(),
                7 => GraphKey::Format.into(),
                8 => GraphKey::Plan { attempt: n }.into(),
                9 => GraphKey::Retry { task, attempt: n }.into(),
                10 => GraphKey::Review { of: task, attempt: Some(n) }.into(),
                11 => GraphKey::Review { of: TaskId::from(u64::from(n)), attempt: None }.into(),
                12 => GraphKey::Routed.into(),
                13 => GraphKey::Synthesize { attempt: n }.into(),
                14 => ChatKey { ask: ChatAsk::ALL[n as usize % ChatAsk::ALL.len()], n: 3 }.into(),
                15 => session(SessionAsk::Approve { step: n, call }),
                16 => session(SessionAsk::Question { step: n }),
                17 => session(SessionAsk::Deadline),
                18 => session(SessionAsk::Format { step: n }),
                19 => session(SessionAsk::Sleep { step: n, call }),
                20 => session(SessionAsk::Step { step: n }),
                21 => session(SessionAsk::Tool { step: n, call }),
                22 => AgentsKey::Crew { task: name, ask: CrewAsk::Guard(n) }.into(),
                23 => AgentsKey::Crew { task: name, ask: CrewAsk::Feedback(n) }.into(),
                24 => PeopleKey::ApprovalDeadline(u64::from(n)).into(),
                25 => PeopleKey::ApprovalLog(u64::from(n)).into(),
                26 => PeopleKey::ApprovalNotify(u64::from(n)).into(),
                27 => PeopleKey::DecisionTimeout(Box::new(GraphKey::Decide { cycle: n }.into())).into(),
                28 => PeopleKey::InterruptDeadline(u64::from(n)).into(),
                29 => PeopleKey::TakeoverDeadline(u64::from(n)).into(),
                30 => TeamKey::Mail(u64::from(n)).into(),
                31 => TeamKey::AuthorizeRecruit(u64::from(n)).into(),
                32 => TeamKey::Recruit(u64::from(n)).into(),
                33 => PeopleKey::Answer(u64::from(n)).into(),
                34 => GraphKey::ReviewAgain { task, attempt: n, n: 2 }.into(),
                _ => TeamKey::Topic { task, look: n }.into(),
            }
        })
    }

    proptest! {
        /// State that is loaded names the same asks, and no two asks have one name.
        #[test]
        fn every_text_is_read_as_the_key_that_it_was(key in keys(), other in keys()) {
            prop_assert_eq!(key.to_string().parse(), Ok(key.clone()));
            prop_assert_eq!(key.to_string() == other.to_string(), key == other);
            prop_assert_eq!(serde_json::from_value::<Key>(serde_json::json!(key)).unwrap(), key);
        }
    }

    /// The texts that histories hold, and texts that name nothing.
    #[test]
    fn texts_are_those_that_histories_hold() {
        for text in [
            "act/t1/2",
            "agents/1.1.3.0/approve/2/0",
            "agents/1.1/ask/1",
            "agents/1.1.1.0/deadline",
            "agents/1.1/format/3",
            "agents/task/a b/guard/1",
            "agents/task/t/human/1",
            "answer/2",
            "approval/ap-3/log",
            "budget/wall",
            "chat/human/4",
            "chat/progress_ledger/2",
            "compensate/t1",
            "consult/t1/1/2",
            "control/takeover/1",
            "decide/7",
            "decision_timeout/chat/select/2",
            "deps/a/b",
            "evaluate/1",
            "execute/a/b/1",
            "format/1",
            "interrupt/in-2/deadline",
            "mailbox/send/1",
            "memory/fetch-basic",
            "memory/record",
            "plan/2",
            "plan_review/deadline",
            "plan_review/deadline/2",
            "recruit/2/child",
            "retire/1/authorize",
            "retry/t1/1",
            "review/1",
            "review/1/2",
            "route/dag",
            "synthesize/1",
            "topic/t1/3",
        ] {
            assert_eq!(text.parse::<Key>().map(|key| key.to_string()).as_deref(), Ok(text));
        }
        for text in [
            "",
            "execute",
            "execute/t1",
            "execute/t1/x",
            "plan/01",
            "memory/all",
            "chat/shout/1",
            "approval/1/log",
            "k",
        ] {
            assert_eq!(text.parse::<Key>(), Err(UnknownKey(text.to_owned())));
        }
    }
}
