//! What a preset means where no key of the spec says it: defaults of keys that are null, and what there is no key for.
//!
//! Invariant: this is the only place that goes from a preset to a way of behaving; all else asks the spec for the value
//! (`values`). What is null is not written, so that a run keeps its meaning that was recorded before the key was there.
//! What is no key is nothing that a spec without the preset could want: names and words of one system, or its router.

use super::Preset;
use crate::supervisor::spec::sections::{DelegationProtocol, HandoffControl, OnEmpty};
use crate::supervisor::team::native::System;

/// The values of a preset beside those of its keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::supervisor::spec) struct PresetDefaults {
    /// `handoff.control`.
    pub(in crate::supervisor::spec) control: Option<HandoffControl>,
    /// `delegation.protocol`; none is found out from whether there is a manager.
    pub(in crate::supervisor::spec) protocol: Option<DelegationProtocol>,
    /// `planning.evaluator`.
    pub(in crate::supervisor::spec) evaluator: bool,
    /// `planning.on_empty`.
    pub(in crate::supervisor::spec) on_empty: OnEmpty,
    /// `synthesis.of_nothing`.
    pub(in crate::supervisor::spec) of_nothing: bool,
    /// Whose words people of the system use for how a task stands.
    pub(in crate::supervisor::spec) words: System,
    /// The two presets that a request is carried out by, if it decides which (CUG-08).
    pub(in crate::supervisor::spec) by_request: Option<ByRequest>,
    /// Whether `routing` hands on what needs no team (SHN-02).
    pub(in crate::supervisor::spec) hands_on: bool,
    /// Whether there is a team with a mailbox (SHD-07).
    pub(in crate::supervisor::spec) team: bool,
    /// Whether an agent without a role is told that it is a generalist (SHN-40).
    pub(in crate::supervisor::spec) assigns_roles: bool,
    /// Whether an audience hears of the team whatever `progress.messages` says (SHN-28).
    pub(in crate::supervisor::spec) tells_of_team: bool,
    /// Whether the run stops before and after its one execution, and not between phases (SHN-73).
    pub(in crate::supervisor::spec) one_execution: bool,
    /// Whether people say how a task stands in the words of flow-state's task board (FSS-34).
    pub(in crate::supervisor::spec) board_words: bool,
    /// Whether a spec without agents is refused, in flow-state's words (FSS-32).
    pub(in crate::supervisor::spec) needs_workers: bool,
    /// Whether a success is a result that a grader has accepted, so that a spec without reviews is refused.
    pub(in crate::supervisor::spec) needs_grader: bool,
    /// Whether the tasks of the seed plan are those of a plan file, which run in a directory (PDT-13).
    pub(in crate::supervisor::spec) of_plan_file: bool,
}

/// What a request chooses between.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::supervisor::spec) struct ByRequest {
    pub(in crate::supervisor::spec) conversation: Preset,
    pub(in crate::supervisor::spec) plan: Preset,
}

impl PresetDefaults {
    /// Of a spec without a preset.
    const NONE: PresetDefaults = PresetDefaults {
        control: None,
        protocol: None,
        evaluator: false,
        on_empty: OnEmpty::Fail,
        of_nothing: false,
        words: System::FlowSupervisor,
        by_request: None,
        hands_on: false,
        team: true,
        assigns_roles: false,
        tells_of_team: false,
        one_execution: false,
        board_words: false,
        needs_workers: false,
        needs_grader: false,
        of_plan_file: false,
    };

    pub(in crate::supervisor::spec) fn of(preset: Option<Preset>) -> PresetDefaults {
        let none = PresetDefaults::NONE;
        let Some(preset) = preset else { return none };
        let pydantask = PresetDefaults { words: System::Pydantask, ..none };
        let flow = PresetDefaults { needs_workers: true, of_nothing: true, ..none };
        let cuga = PresetDefaults {
            by_request: Some(ByRequest { conversation: Preset::CugaConversational, plan: Preset::CugaStructured }),
            protocol: Some(DelegationProtocol::Variables),
            // CUG-43: the controller concludes with what there is.
            of_nothing: true,
            words: System::Cuga,
            ..none
        };
        let shannon = PresetDefaults { tells_of_team: true, words: System::ShannonSwarm, ..none };
        let talk = PresetDefaults { words: System::AutoGen, ..none };
        match preset {
            Preset::PydantaskFixed | Preset::PydantaskLlm | Preset::PydantaskHybrid => pydantask,
            Preset::AutogenGroupChat | Preset::AutogenSelector | Preset::AutogenMagentic | Preset::AutogenSwarm => talk,
            Preset::FlowSupervisor => flow,
            // FSC-03: nothing may be merged too.
            Preset::FlowCoordinator => PresetDefaults { on_empty: OnEmpty::Complete, ..flow },
            Preset::FlowSupervisorPerTask => PresetDefaults { board_words: true, words: System::FlowBoard, ..flow },
            // FSP-07: a plan without steps is done.
            Preset::FlowPlanAndExecute => {
                PresetDefaults { evaluator: true, on_empty: OnEmpty::Complete, words: System::PlanAndExecute, ..flow }
            }
            Preset::CugaConversational => PresetDefaults { words: System::CugaTodos, ..cuga },
            Preset::CugaStructured => cuga,
            Preset::ShannonSupervisor => PresetDefaults { hands_on: true, assigns_roles: true, ..shannon },
            Preset::ShannonDag => PresetDefaults { team: false, ..shannon },
            Preset::ShannonSimple => PresetDefaults { team: false, one_execution: true, ..shannon },
            Preset::SupyagentDelegation => PresetDefaults {
                protocol: Some(DelegationProtocol::Processes),
                words: System::SupyagentRegistry,
                ..none
            },
            Preset::CrewaiHierarchical => {
                PresetDefaults { protocol: Some(DelegationProtocol::Coworkers), words: System::CrewAi, ..none }
            }
            Preset::LanggraphSupervisor => {
                PresetDefaults { control: Some(HandoffControl::Return), words: System::LangGraph, ..none }
            }
            Preset::EvaluatorOptimizer => PresetDefaults { team: false, needs_grader: true, ..none },
            Preset::MapReduce => PresetDefaults { team: false, ..none },
            Preset::PlanRun => PresetDefaults { team: false, of_plan_file: true, words: System::Pydantask, ..none },
            Preset::SwarmHandoff => PresetDefaults { control: Some(HandoffControl::Switch), ..talk },
        }
    }
}
