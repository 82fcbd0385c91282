//! What a spec comes to: each way of behaving as a value, whether a key says it or the preset means it.
//!
//! Invariant: how a run behaves is asked for here, by what it is and not by which preset it has. It decides nothing else.

use super::preset::{Family, Preset, PresetDefaults};
use super::sections::{
    ByRequest, Checkpoints, DelegationProtocol, HandoffControl, OnEmpty, OnSubtaskError, PlanningMode, Selection,
};
use super::whole::{Authority, SupervisorSpec};
use crate::supervisor::native::System;

impl SupervisorSpec {
    fn defaults(&self) -> PresetDefaults {
        PresetDefaults::of(self.preset)
    }
    /// Which machine carries the run. A supervisor that hands over and gets control back chooses speakers, as agents do.
    pub fn family(&self) -> Family {
        match self.dispatch.selection {
            Selection::Speaker if self.handoff_control().is_none() => Family::Chat,
            Selection::Speaker | Selection::Agent => Family::Agents,
            Selection::All | Selection::Supervisor | Selection::One | Selection::Controller => Family::Graph,
        }
    }
    /// `handoff.control`: where control goes, if agents hand over at all (LGS-01, SWM-01).
    pub fn handoff_control(&self) -> Option<HandoffControl> {
        self.handoff.control.or(self.defaults().control)
    }
    /// `delegation.protocol`: how agents give each other work. Where nobody says, a manager has coworkers (CRW-01).
    pub fn delegation_protocol(&self) -> DelegationProtocol {
        let managed = self.manager_llm.is_some() || self.manager_agent.is_some();
        match self.delegation.protocol.or(self.defaults().protocol) {
            Some(protocol) => protocol,
            None if managed => DelegationProtocol::Coworkers,
            None => DelegationProtocol::Processes,
        }
    }
    /// Whether the run is a manager with its crew.
    pub(in crate::supervisor) fn is_crew(&self) -> bool {
        self.family() == Family::Agents
            && self.handoff_control().is_none()
            && self.delegation_protocol() == DelegationProtocol::Coworkers
    }
    /// `planning.evaluator`: whether somebody is asked after each step if the plan still holds (FSP-05).
    pub fn has_evaluator(&self) -> bool {
        self.planning.evaluator.unwrap_or(self.defaults().evaluator) && !self.is_decided()
    }
    /// Whether a decider chooses what runs: it is asked after each step anyway.
    pub(super) fn is_decided(&self) -> bool {
        matches!(self.dispatch.selection, Selection::Supervisor | Selection::Controller)
    }
    /// Whether somebody is asked for a plan before anything is done.
    pub(super) fn has_planner(&self) -> bool {
        match self.planning.mode {
            PlanningMode::None | PlanningMode::Fixed | PlanningMode::Hybrid => false,
            PlanningMode::Llm => self.dispatch.selection != Selection::Supervisor && self.seed_plan.is_none(),
            PlanningMode::Todos | PlanningMode::Agents | PlanningMode::Upfront => self.seed_plan.is_none(),
        }
    }
    /// `planning.on_empty`: what a run comes to whose planner planned no task.
    pub fn on_empty_plan(&self) -> OnEmpty {
        self.planning.on_empty.unwrap_or(self.defaults().on_empty)
    }
    /// `synthesis.of_nothing`: whether the synthesizer is asked although nothing was done.
    pub fn synthesizes_nothing(&self) -> bool {
        self.synthesis.of_nothing.unwrap_or(self.defaults().of_nothing)
    }
    /// `progress.words`: in whose words people are told how a task stands.
    pub fn words(&self) -> System {
        self.progress.words.unwrap_or(self.defaults().words)
    }
    /// Whose words whoever decides reads and says: those that the spec names, or those of flow-state's board (FSS-34).
    pub fn board_words(&self) -> Option<System> {
        self.progress.words.or(Some(self.words()).filter(|words| *words == System::FlowBoard))
    }
    /// The words of the system that a preset of this name is one of.
    pub fn words_of(preset: &str) -> Option<System> {
        let preset: Preset = serde_json::from_value(preset.into()).ok()?;
        Some(PresetDefaults::of(Some(preset)).words)
    }
    /// `review.required`: whether nothing is a success that nobody has graded.
    pub(super) fn needs_grader(&self) -> bool {
        self.review.required.unwrap_or(self.defaults().review_required)
    }
    /// Whether the tasks of the seed plan are those of a plan file: they run in a directory.
    pub fn runs_plan_file(&self) -> bool {
        self.plan_directory().is_some() || self.defaults().in_directory
    }
    /// `failure.errors_are_attempts`: whether an error uses up an attempt (PDT-26).
    pub fn errors_are_attempts(&self) -> bool {
        let selects = matches!(self.dispatch.selection, Selection::Supervisor | Selection::Speaker | Selection::Agent);
        self.failure.errors_are_attempts.unwrap_or(selects || self.runs_plan_file())
    }
    /// Whether the attempts of a task bound its tries, and nothing else does. Of a plan that a directory was given for it was
    /// so whatever `on_subtask_error` says, and stays so: runs that began are replayed by it. The preset hears it.
    pub fn only_attempts_bound(&self) -> bool {
        let repairs = self.failure.on_subtask_error == OnSubtaskError::Repair;
        self.runs_plan_file() && self.errors_are_attempts() && (repairs || !self.defaults().in_directory)
    }
    /// `planning.by_request`: the presets between which the request decides (CUG-08).
    pub(super) fn by_request(&self) -> Option<ByRequest> {
        self.planning.by_request.or(self.defaults().by_request)
    }
    /// Whether the request decides how it is planned.
    pub(super) fn chooses_planning(&self) -> bool {
        self.by_request().is_some()
    }
    /// Where nothing is said of what whoever decides may do, and the preset has nobody who decides, they choose and finish.
    pub(super) fn let_whoever_decides_choose(&mut self) {
        let decides = !matches!(self.dispatch.selection, Selection::All | Selection::One);
        if self.preset.is_none() || self.family() != Family::Graph || self.chooses_planning() || !decides {
            return;
        }
        for action in Authority::CHOOSING {
            if !self.authority.contains(&action) {
                self.authority.push(action);
            }
        }
    }
    /// Whether what needs no team is carried out by a child (SHN-02).
    pub fn hands_on(&self) -> bool {
        self.routing.enabled && self.may_hand_on()
    }
    /// Whether there is a plan of tasks to look at before anything is done, so that it could be handed on.
    pub(super) fn may_hand_on(&self) -> bool {
        self.family() == Family::Graph && self.has_planner() && !self.chooses_planning()
    }
    /// `team.enabled`: whether there is a team and a mailbox (SHD-07).
    pub fn has_team(&self) -> bool {
        self.team.enabled.unwrap_or(self.defaults().team)
    }
    /// `team.assign_roles`: whether an agent without a role is told that it is a generalist (SHN-40).
    pub fn assigns_roles(&self) -> bool {
        self.team.assign_roles.unwrap_or(self.defaults().assign_roles)
    }
    /// `progress.team`: whether an audience hears of the team whatever `progress.messages` says (SHN-28).
    pub fn tells_of_team(&self) -> bool {
        self.progress.team.unwrap_or(self.defaults().tells_of_team)
    }
    /// `loop.checkpoints`: where a run that is asked to pause stops (SHN-64, SHN-73).
    pub fn checkpoints(&self) -> Checkpoints {
        self.run_loop.checkpoints.unwrap_or(self.defaults().checkpoints)
    }
    /// Whether nothing can be done without agents.
    pub(super) fn needs_agents(&self) -> bool {
        (self.family() == Family::Agents && !self.is_crew()) || self.chooses_planning()
    }
    /// `dispatch.require_agents`: whether a spec without workers is refused (FSS-32).
    pub(super) fn needs_workers(&self) -> bool {
        self.dispatch.require_agents.unwrap_or(self.defaults().require_agents)
    }
}
