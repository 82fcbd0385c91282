//! The directory: who is in the team, in which role, and how they are doing.
//!
//! Invariant: an agent id names one member for good; a member that has retired stays retired and is in no list but the
//! roster. Lists are in the order in which members joined. It authorizes nobody and starts nothing.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::supervisor::model::TaskId;

/// How a member is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MemberStatus {
    Running,
    Completed,
    Failed,
    Retired,
}

/// Where a member comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MemberOrigin {
    Plan,
    Recruited,
    Delegated,
}

/// What `listTeamAgents` shows of a member. The names are Shannon's.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TeamAgent {
    #[serde(rename = "AgentID")]
    pub agent_id: String,
    #[serde(rename = "Role")]
    pub role: String,
    #[serde(rename = "Status")]
    pub status: MemberStatus,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    pub agent_id: String,
    pub role: String,
    pub status: MemberStatus,
    pub origin: MemberOrigin,
    /// What a member of the plan works on at this moment; an agent may have several tasks.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub tasks: BTreeSet<TaskId>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Directory {
    /// In the order of joining.
    members: Vec<Member>,
    /// The place of an id.
    places: BTreeMap<String, usize>,
}

impl Directory {
    /// A member of the plan starts a task, or starts again (its next attempt). One that has retired does not: `false`.
    pub fn started(&mut self, agent_id: &str, role: &str, task: &TaskId) -> bool {
        if self.get(agent_id).is_none() {
            self.join(agent_id.to_owned(), role, MemberOrigin::Plan);
        }
        let Some(member) = self.member(agent_id).filter(|member| member.status != MemberStatus::Retired) else {
            return false;
        };
        (member.role, member.status) = (role.to_owned(), MemberStatus::Running);
        member.tasks.insert(task.clone());
        true
    }

    /// A member has ended its work, or one of its tasks; with none left it is as its last one. Only a running one can
    /// end: `false` says that nothing changed.
    pub fn ended(&mut self, agent_id: &str, task: Option<&TaskId>, succeeded: bool) -> bool {
        let Some(member) = self.member(agent_id).filter(|member| member.is_running()) else { return false };
        if let Some(task) = task {
            member.tasks.remove(task);
        }
        if member.tasks.is_empty() {
            member.status = if succeeded { MemberStatus::Completed } else { MemberStatus::Failed };
        }
        true
    }

    /// How many work at this moment: what the size of a team is.
    pub fn running(&self) -> usize {
        self.members.iter().filter(|member| member.is_running()).count()
    }

    pub fn get(&self, agent_id: &str) -> Option<&Member> {
        self.members.get(*self.places.get(agent_id)?)
    }

    /// Everybody who ever joined, the retired too.
    pub fn roster(&self) -> &[Member] {
        &self.members
    }

    /// The query `listTeamAgents`: a copy of those who have not left.
    pub fn list(&self) -> Vec<TeamAgent> {
        self.shown(|_| true)
    }

    /// The query `findTeamAgentsByRole`: the same, of exactly this role.
    pub fn find_by_role(&self, role: &str) -> Vec<TeamAgent> {
        self.shown(|member| member.role == role)
    }

    pub(super) fn join(&mut self, agent_id: String, role: &str, origin: MemberOrigin) {
        let (role, status, tasks) = (role.to_owned(), MemberStatus::Running, BTreeSet::new());
        self.places.insert(agent_id.clone(), self.members.len());
        self.members.push(Member { agent_id, role, status, origin, tasks });
    }

    /// Gives the tasks the member worked on, which are without an agent now.
    pub(super) fn retire(&mut self, agent_id: &str) -> Vec<TaskId> {
        let Some(member) = self.member(agent_id) else { return vec![] };
        member.status = MemberStatus::Retired;
        std::mem::take(&mut member.tasks).into_iter().collect()
    }

    /// An id nobody has had yet, and that is none of those that are taken: the name itself, then with a number.
    pub(super) fn free_id(&self, name: &str, taken: &BTreeSet<String>) -> String {
        let numbered = |n: usize| if n == 1 { name.to_owned() } else { format!("{name}_{n}") };
        (1..).map(numbered).find(|id| self.get(id).is_none() && !taken.contains(id)).unwrap_or_default()
    }

    fn member(&mut self, agent_id: &str) -> Option<&mut Member> {
        self.members.get_mut(*self.places.get(agent_id)?)
    }

    fn shown(&self, wanted: impl Fn(&Member) -> bool) -> Vec<TeamAgent> {
        let present = self.members.iter().filter(|member| member.status != MemberStatus::Retired && wanted(member));
        present
            .map(|Member { agent_id, role, status, .. }| TeamAgent {
                agent_id: agent_id.clone(),
                role: role.clone(),
                status: *status,
            })
            .collect()
    }
}

impl Member {
    fn is_running(&self) -> bool {
        self.status == MemberStatus::Running
    }
}
