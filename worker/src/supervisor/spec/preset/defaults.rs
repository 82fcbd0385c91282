//! What a preset means where a key of the spec is null.
//!
//! Invariant: every value here is that of a key, which any spec may say; this is the only place that goes from a preset to a
//! value beside its own (`values`), and all else asks the spec. What is null is not written, so that a run keeps its meaning
//! that was recorded before the key was there.

use super::Preset;
use crate::supervisor::native::System;
use crate::supervisor::spec::sections::{ByRequest, Checkpoints, DelegationProtocol, HandoffControl, OnEmpty};

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
    /// `progress.words`.
    pub(in crate::supervisor::spec) words: System,
    /// `planning.by_request`.
    pub(in crate::supervisor::spec) by_request: Option<ByRequest>,
    /// `team.enabled`.
    pub(in crate::supervisor::spec) team: bool,
    /// `team.assign_roles`.
    pub(in crate::supervisor::spec) assign_roles: bool,
    /// `progress.team`.
    pub(in crate::supervisor::spec) tells_of_team: bool,
    /// `loop.checkpoints`.
    pub(in crate::supervisor::spec) checkpoints: Checkpoints,
    /// `dispatch.require_agents`.
    pub(in crate::supervisor::spec) require_agents: bool,
    /// `review.required`.
    pub(in crate::supervisor::spec) review_required: bool,
    /// `seed_plan.directory`: whether `bosun run` takes the directory it stands in, and `failure.errors_are_attempts` with it.
    pub(in crate::supervisor::spec) in_directory: bool,
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
        team: true,
        assign_roles: false,
        tells_of_team: false,
        checkpoints: Checkpoints::Phases,
        require_agents: false,
        review_required: false,
        in_directory: false,
    };

    pub(in crate::supervisor::spec) fn of(preset: Option<Preset>) -> PresetDefaults {
        let none = PresetDefaults::NONE;
        let Some(preset) = preset else { return none };
        let pydantask = PresetDefaults { words: System::Pydantask, ..none };
        let flow = PresetDefaults { require_agents: true, of_nothing: true, ..none };
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
            Preset::FlowSupervisorPerTask => PresetDefaults { words: System::FlowBoard, ..flow },
            // FSP-07: a plan without steps is done.
            Preset::FlowPlanAndExecute => {
                PresetDefaults { evaluator: true, on_empty: OnEmpty::Complete, words: System::PlanAndExecute, ..flow }
            }
            Preset::CugaConversational => PresetDefaults { words: System::CugaTodos, ..cuga },
            Preset::CugaStructured => cuga,
            Preset::ShannonSupervisor => PresetDefaults { assign_roles: true, ..shannon },
            Preset::ShannonDag => PresetDefaults { team: false, ..shannon },
            Preset::ShannonSimple => PresetDefaults { team: false, checkpoints: Checkpoints::Execution, ..shannon },
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
            Preset::EvaluatorOptimizer => PresetDefaults { team: false, review_required: true, ..none },
            Preset::MapReduce => PresetDefaults { team: false, ..none },
            Preset::PlanRun => PresetDefaults { team: false, in_directory: true, words: System::Pydantask, ..none },
            Preset::SwarmHandoff => PresetDefaults { control: Some(HandoffControl::Switch), ..talk },
        }
    }
}
