//! Until when a team takes anybody: while its run works, while its results are put together, and no more.
//!
//! Invariant: nobody joins or leaves a run that has ended or undoes its work, whoever asked before that and whatever a policy
//! says after it; each of these requests is refused in a note (SHN-27).

use serde::{Deserialize, Serialize};
use serde_json::json;

use super::{Recruit, RecruitStatus, Roster, TeamRefusal};
use crate::supervisor::core::key::TeamKey;
use crate::supervisor::journal::NoteKind;
use crate::supervisor::outbox::{Ask, CallFailure, Outbox};
use crate::supervisor::spec::LateRecruits;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(super) enum Season {
    #[default]
    Open,
    /// Results are being put together.
    Late,
    Over,
}

impl Roster {
    /// The results are being put together from now on.
    pub fn synthesizing(&mut self) {
        self.season = Season::Late;
    }
    /// The run is over. Whoever was asked for while its results were put together is waited for where the spec says so.
    pub fn closed(&mut self, out: &mut Outbox) {
        if self.rules.late_recruits == LateRecruits::Refuse {
            self.takes_nobody(out);
        }
        self.season = Season::Over;
    }

    /// The run takes nobody any more: it has ended, or undoes its work. Whom the policy still thinks about is refused, and
    /// nobody waits for its word (SHN-27).
    pub fn takes_nobody(&mut self, out: &mut Outbox) {
        self.season = Season::Over;
        let asked =
            |(number, recruit): (&u64, &Recruit)| (recruit.stage == RecruitStatus::Authorizing).then_some(*number);
        let asked: Vec<u64> = self.recruits.iter().filter_map(asked).collect();
        for number in asked {
            let Some(Recruit { request, .. }) = self.recruits.remove(&number) else { continue };
            out.ask(Ask::CancelCall { key: TeamKey::AuthorizeRecruit(number).into() });
            out.note(NoteKind::RecruitRefused, json!({ "reason": TeamRefusal::Over.to_string(), "asked": request }));
        }
        for (number, agent) in std::mem::take(&mut self.retirements) {
            out.ask(Ask::CancelCall { key: TeamKey::AuthorizeRetirement(number).into() });
            let why = TeamRefusal::Stays { agent: agent.clone() }.to_string();
            out.note(NoteKind::RecruitRefused, json!({ "reason": why, "asked": { "AgentID": agent } }));
        }
    }

    /// The run has failed, and cancels those who are still at work: they bring nothing any more. Gives who they are.
    pub fn given_up(&mut self, out: &mut Outbox) -> Vec<String> {
        let working = |(number, recruit): (&u64, &Recruit)| match &recruit.stage {
            RecruitStatus::Working { agent_id } => Some((*number, agent_id.clone())),
            RecruitStatus::Authorizing | RecruitStatus::Ended(_) => None,
        };
        let left: Vec<(u64, String)> = self.recruits.iter().filter_map(working).collect();
        for (number, _) in &left {
            // One that has not begun yet does not begin.
            let reason = "the run failed".to_owned();
            out.ask(Ask::CancelChild { key: TeamKey::Recruit(*number).into(), reason });
            self.child_ended(*number, Err(CallFailure::error("the run ended before this work did")), out);
        }
        left.into_iter().map(|(_, agent)| agent).collect()
    }
}
