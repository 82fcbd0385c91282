//! Recruiting: who may join the team while it works, what a recruit brings back, and who may be sent away.
//!
//! ```text
//! asked -> authorizing -> working -> completed | failed
//!   |          |            |-> retired (its child is cancelled, what it still says is dropped)
//!   '-> refused '-> denied
//! ```
//!
//! Invariant: every request ends in one of these, with a note; none is lost. A slot of the team is taken from the
//! request on and freed by the end, a denial or a retirement. Requests go on side by side. A recruit's result stands
//! under its own agent id and is apart from the results of the plan. It cancels no task of the plan: it says whose
//! agent has retired.

mod request;
mod season;

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

pub use request::{RecruitRequest, TeamOutcome, TeamRefusal};

use request::{NotAuthorized, RetireRequest, allowed, applies, decode};
use season::Season;

use super::directory::{Directory, MemberOrigin, MemberStatus};
use super::events::TeamEvent;
use super::registry::MAX_DEPTH;
use super::roles::GENERALIST;
use crate::supervisor::core::key::TeamKey;
use crate::supervisor::journal::NoteKind;
use crate::supervisor::model::TaskId;
use crate::supervisor::outbox::{Answer, Ask, Call, ChildKind, ChildTask, Outbox, Purpose};
use crate::supervisor::spec::{LateRecruits, RecruitJoin, RecruitRule, Team};

pub const SIGNAL_RECRUIT: &str = "recruit_v1";
pub const SIGNAL_RETIRE: &str = "retire_v1";

/// How the name of every recruit begins.
const RECRUITED: &str = "dynamic_";

/// What a request came to at once: nothing as long as the policy thinks, or why it was refused.
pub type Requested = Result<Option<TeamOutcome>, TeamRefusal>;

/// What a recruit brought back.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RecruitResult {
    pub agent_id: String,
    pub role: String,
    pub description: String,
    pub success: bool,
    /// What it said; if it failed, why.
    pub response: Value,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum RecruitStatus {
    Authorizing,
    Working { agent_id: String },
    Ended(RecruitResult),
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Recruit {
    request: RecruitRequest,
    stage: RecruitStatus,
}

/// The team: its directory and those who come and go.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Roster {
    rules: Team,
    pub directory: Directory,
    /// Under way or with a result, by number from 1 in the order they were asked for.
    recruits: BTreeMap<u64, Recruit>,
    recruits_asked: u64,
    /// Whom a retirement under way is about.
    retirements: BTreeMap<u64, String>,
    retirements_asked: u64,
    season: Season,
    /// Names of agents of the spec that a recruit might be given: it is given none of them.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    taken: BTreeSet<String>,
}

impl Roster {
    pub fn new(rules: Team) -> Self {
        Roster { rules, ..Roster::default() }
    }

    /// The same beside agents of these names.
    #[must_use]
    pub fn beside<'n>(mut self, agents: impl Iterator<Item = &'n str>) -> Self {
        self.taken = agents.filter(|name| name.starts_with(RECRUITED)).map(str::to_owned).collect();
        self
    }

    /// Takes the input of a `recruit_v1` signal. A refusal is noted and changes nothing else.
    pub fn recruit_signal(&mut self, input: &Value, out: &mut Outbox) -> Requested {
        match decode(input) {
            Ok(request) => self.recruit(request, "signal", out),
            Err(why) => self.refuse(why, input, out),
        }
    }

    /// Asks the policy for a recruit. `source` says who wants it: a signal, a result, a rule.
    pub fn recruit(&mut self, mut request: RecruitRequest, source: &str, out: &mut Outbox) -> Requested {
        for text in [&mut request.role, &mut request.description] {
            *text = text.trim().to_owned();
        }
        if request.role.is_empty() {
            GENERALIST.clone_into(&mut request.role);
        }
        if let Err(why) = self.may_recruit(&request) {
            let data = serde_json::to_value(&request).unwrap_or_default();
            return self.refuse(why, &data, out);
        }
        let context = json!({
            "action": "recruit", "source": source, "role": request.role, "description": request.description,
            "task": request.task, "team_size": self.size(), "max_size": self.rules.max_size,
        });
        self.recruits_asked += 1;
        let number = self.recruits_asked;
        self.recruits.insert(number, Recruit { request, stage: RecruitStatus::Authorizing });
        let prompt = format!("May a {} be recruited for this: {}", context["role"], context["description"]);
        if self.asks_policy(TeamKey::AuthorizeRecruit(number), context, prompt, out) {
            return Ok(None);
        }
        Ok(Some(self.recruit_authorized(number, Ok(()), out)))
    }

    /// What an answer of the plan wants: recruits its agent asks for (`{description, role}`), and, of a result, those the
    /// configured rules bring about: those who are at work at once. Refusals are noted.
    pub fn wanted(
        &mut self,
        task: &TaskId,
        result: Option<&Value>,
        asked: &[Value],
        out: &mut Outbox,
    ) -> Vec<TeamOutcome> {
        let mut requested = Vec::new();
        for input in asked {
            requested.push(match decode::<RecruitRequest>(input) {
                Ok(request) => self.recruit(RecruitRequest { task: Some(task.clone()), ..request }, "result", out),
                Err(why) => self.refuse(why, input, out),
            });
        }
        let fired: Vec<RecruitRule> = self
            .rules
            .rules
            .iter()
            .filter(|rule| result.is_some_and(|result| applies(&rule.when, task, result)))
            .cloned()
            .collect();
        for RecruitRule { role, description, .. } in fired {
            let request = RecruitRequest { description, role, task: Some(task.clone()), generation: 0 };
            requested.push(self.recruit(request, "rule", out));
        }
        // What was refused is noted; what the policy thinks about comes later.
        requested.into_iter().filter_map(|requested| requested.ok().flatten()).collect()
    }

    /// What a recruit that has ended asks for (SHN-26): it is in the team as any other.
    pub fn wanted_by(&mut self, key: &TeamKey, asked: &[Value], out: &mut Outbox) -> Vec<TeamOutcome> {
        let TeamKey::Recruit(number) = key else { return Vec::new() };
        let by = self.recruits.get(number).map(|recruit| (recruit.request.generation, recruit.request.task.clone()));
        let (generation, task) = by.map_or((1, None), |(generation, task)| (generation + 1, task));
        let mut requested = Vec::new();
        for input in asked {
            requested.push(match decode::<RecruitRequest>(input) {
                Ok(request) => {
                    self.recruit(RecruitRequest { generation, task: task.clone(), ..request }, "recruit", out)
                }
                Err(why) => self.refuse(why, input, out),
            });
        }
        requested.into_iter().filter_map(|requested| requested.ok().flatten()).collect()
    }

    /// Takes the input of a `retire_v1` signal: asks the policy whether that agent may leave.
    pub fn retire_signal(&mut self, input: &Value, out: &mut Outbox) -> Requested {
        let agent = match decode::<RetireRequest>(input) {
            Ok(request) => request.agent_id,
            Err(why) => return self.refuse(why, input, out),
        };
        let Some(member) = self.directory.get(&agent).filter(|member| member.status != MemberStatus::Retired) else {
            return self.refuse(TeamRefusal::Unknown { agent }, input, out);
        };
        if self.season == Season::Over {
            return self.refuse(TeamRefusal::Stays { agent }, input, out);
        }
        if self.retirements.values().any(|other| *other == agent) {
            return self.refuse(TeamRefusal::Retiring { agent }, input, out);
        }
        let context = json!({ "action": "retire", "agent_id": agent, "role": member.role, "team_size": self.size() });
        self.retirements_asked += 1;
        let number = self.retirements_asked;
        self.retirements.insert(number, agent);
        let prompt = format!("May the agent {} leave the team?", context["agent_id"]);
        if self.asks_policy(TeamKey::AuthorizeRetirement(number), context, prompt, out) {
            return Ok(None);
        }
        Ok(Some(self.retirement_authorized(number, Ok(()), out)))
    }

    /// The answer to a call or the end of a child that was asked for here.
    pub fn answered(&mut self, key: &TeamKey, answer: Answer, out: &mut Outbox) -> TeamOutcome {
        match key {
            TeamKey::AuthorizeRecruit(number) => self.recruit_authorized(*number, allowed(&answer), out),
            TeamKey::AuthorizeRetirement(number) => self.retirement_authorized(*number, allowed(&answer), out),
            TeamKey::Recruit(number) => self.child_ended(*number, answer, out),
            // What became of a message to another run is of no consequence here.
            TeamKey::Mail(_) | TeamKey::Topic { .. } => TeamOutcome::Dropped,
        }
    }

    /// Whom a task with these dependencies waits for before it starts (`recruit_join`).
    pub fn joins(&self, dependencies: &[TaskId]) -> Vec<String> {
        if self.rules.recruit_join == RecruitJoin::None || dependencies.is_empty() {
            return Vec::new();
        }
        let joined = |request: &RecruitRequest| request.task.as_ref().is_none_or(|task| dependencies.contains(task));
        self.alive().filter(|recruit| joined(&recruit.request)).map(Recruit::name).collect()
    }

    /// How many recruits are on their way or at work: a run that finishes waits for them.
    pub fn recruits_alive(&self) -> usize {
        self.alive().count()
    }

    /// How many have ended or are at work, and how many of them have failed.
    pub fn recruits(&self) -> (u32, u32) {
        let began = self.recruits.values().filter(|recruit| recruit.stage != RecruitStatus::Authorizing).count();
        let failed = self.results().iter().filter(|result| !result.success).count();
        (began as u32, failed as u32)
    }

    /// What recruits brought back, in the order they were asked for. Retired ones bring nothing.
    pub fn results(&self) -> Vec<RecruitResult> {
        let ended = |recruit: &Recruit| match &recruit.stage {
            RecruitStatus::Ended(result) => Some(result.clone()),
            RecruitStatus::Authorizing | RecruitStatus::Working { .. } => None,
        };
        self.recruits.values().filter_map(ended).collect()
    }

    /// Members at work, and those for whom a slot is kept while the policy thinks.
    pub fn size(&self) -> usize {
        let authorizing = self.recruits.values().filter(|recruit| recruit.stage == RecruitStatus::Authorizing).count();
        self.directory.running() + authorizing
    }

    /// Without a policy all is allowed, at once: `false`.
    fn asks_policy(&self, key: TeamKey, context: Value, prompt: String, out: &mut Outbox) -> bool {
        let Some(policy) = &self.rules.policy else { return false };
        let call = Call::new(key, Purpose::AuthorizeTeamAction, context).prompt(prompt);
        // A policy by another name than the activity's is an agent of the spec.
        let plumbing = policy == Purpose::AuthorizeTeamAction.as_str();
        out.call(if plumbing { call } else { call.agent(policy.as_str()) });
        true
    }

    fn alive(&self) -> impl Iterator<Item = &Recruit> {
        self.recruits.values().filter(|recruit| !matches!(recruit.stage, RecruitStatus::Ended(_)))
    }

    fn may_recruit(&self, request: &RecruitRequest) -> Result<(), TeamRefusal> {
        match (self.season, self.rules.late_recruits) {
            _ if !self.rules.recruit => return Err(TeamRefusal::Off),
            (Season::Over, _) => return Err(TeamRefusal::Over),
            (Season::Late, LateRecruits::Refuse) => return Err(TeamRefusal::Late),
            (Season::Late, LateRecruits::Wait) | (Season::Open, _) => {}
        }
        if request.description.is_empty() {
            return Err(TeamRefusal::NoDescription);
        }
        // Without a bound recruits that recruit would go on for as long as the budget does.
        if request.generation > MAX_DEPTH {
            return Err(TeamRefusal::TooMany(MAX_DEPTH));
        }
        let same =
            |other: &&Recruit| other.request.role == request.role && other.request.description == request.description;
        if let Some(twin) = self.alive().find(same) {
            return Err(TeamRefusal::Duplicate { agent: twin.name() });
        }
        let (running, max) = (self.size(), self.rules.max_size as usize);
        if running >= max { Err(TeamRefusal::Full { running, max }) } else { Ok(()) }
    }

    fn refuse<T>(&mut self, why: TeamRefusal, asked: &Value, out: &mut Outbox) -> Result<T, TeamRefusal> {
        out.note(NoteKind::RecruitRefused, json!({ "reason": why.to_string(), "asked": asked }));
        Err(why)
    }

    fn recruit_authorized(&mut self, number: u64, allowed: Result<(), NotAuthorized>, out: &mut Outbox) -> TeamOutcome {
        let asked = self.recruits.get_mut(&number).filter(|recruit| recruit.stage == RecruitStatus::Authorizing);
        let Some(recruit) = asked else { return TeamOutcome::Dropped };
        if let Err(why) = allowed {
            let reason = why.to_string();
            let data = json!({ "reason": reason, "denied": true, "asked": recruit.request });
            self.recruits.remove(&number);
            out.note(NoteKind::RecruitRefused, data);
            return TeamOutcome::Denied { reason };
        }
        let RecruitRequest { role, description, task, .. } = recruit.request.clone();
        let agent_id = self.directory.free_id(&format!("{RECRUITED}{role}"), &self.taken);
        recruit.stage = RecruitStatus::Working { agent_id: agent_id.clone() };
        self.directory.join(agent_id.clone(), &role, MemberOrigin::Recruited);
        let data = json!({ "agent_id": agent_id, "role": role, "description": description, "task": task });
        out.note(NoteKind::AgentRecruited, data);
        TeamEvent::Recruited { agent: agent_id.clone(), description: description.clone() }.emit(out);
        let (query, own_role, own_id) = (description, Some(role.clone()), Some(agent_id.clone()));
        let task = ChildTask { query, role: own_role, agent_id: own_id, ..ChildTask::default() };
        out.ask(Ask::StartChild { key: TeamKey::Recruit(number).into(), kind: ChildKind::SimpleTask, task });
        TeamOutcome::Recruited { agent_id, role }
    }

    fn child_ended(&mut self, number: u64, answer: Answer, out: &mut Outbox) -> TeamOutcome {
        let working = self.recruits.get_mut(&number);
        let Some(Recruit { request, stage: stage @ RecruitStatus::Working { .. } }) = working else {
            out.note(NoteKind::AttemptDropped, json!({ "recruit": number, "reason": "the agent has left" }));
            return TeamOutcome::Dropped;
        };
        let RecruitStatus::Working { agent_id } = stage.clone() else { return TeamOutcome::Dropped };
        // A child that says `success: false` has failed as one that breaks has.
        let (success, response) = match answer {
            Ok(value) => (value["success"].as_bool().unwrap_or(true), value),
            Err(why) => (false, Value::String(why.to_string())),
        };
        let RecruitRequest { role, description, .. } = request.clone();
        *stage =
            RecruitStatus::Ended(RecruitResult { agent_id: agent_id.clone(), role, description, success, response });
        self.directory.ended(&agent_id, None, success);
        out.note(NoteKind::AgentClosed, json!({ "agent_id": agent_id, "succeeded": success }));
        TeamOutcome::Ended { agent_id, succeeded: success }
    }

    fn retirement_authorized(
        &mut self,
        number: u64,
        allowed: Result<(), NotAuthorized>,
        out: &mut Outbox,
    ) -> TeamOutcome {
        // Answered once: a second answer finds nobody.
        let Some(agent_id) = self.retirements.remove(&number) else { return TeamOutcome::Dropped };
        if let Err(why) = allowed {
            let reason = why.to_string();
            let data = json!({ "reason": reason, "denied": true, "asked": { "AgentID": agent_id } });
            out.note(NoteKind::RecruitRefused, data);
            return TeamOutcome::Denied { reason };
        }
        let working = RecruitStatus::Working { agent_id: agent_id.clone() };
        if let Some(number) = self.recruits.iter().find(|(_, recruit)| recruit.stage == working).map(|(n, _)| *n) {
            self.recruits.remove(&number);
            let key = TeamKey::Recruit(number).into();
            out.ask(Ask::CancelChild { key, reason: format!("{agent_id} was retired") });
        }
        let tasks = self.directory.retire(&agent_id);
        out.note(NoteKind::AgentRetired, json!({ "agent_id": agent_id, "tasks": tasks }));
        TeamEvent::Retired { agent: agent_id.clone() }.emit(out);
        TeamOutcome::Retired { agent_id, tasks }
    }
}

impl Recruit {
    /// The agent id, or what it is going to be called.
    fn name(&self) -> String {
        match &self.stage {
            RecruitStatus::Working { agent_id } => agent_id.clone(),
            RecruitStatus::Ended(result) => result.agent_id.clone(),
            RecruitStatus::Authorizing => format!("{RECRUITED}{}", self.request.role),
        }
    }
}
