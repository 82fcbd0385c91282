//! How much a person is asked right now: the spec's mode, moved by trust, unless somebody has set another one.
//!
//! Invariant: a mode that a person has set holds until an incident takes a level away; then the level's own mode holds
//! again. Where trust is off it is counted and moves nothing. It asks nobody.

use bosun_engine::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::trust::{Incident, TrustRecord};
use crate::supervisor::core::answer::{InvalidAnswer, decode};
use crate::supervisor::journal::NoteKind;
use crate::supervisor::outbox::Outbox;
use crate::supervisor::spec::{self, HitlMode};

/// The update `set_hitl_mode`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModeRequest {
    pub mode: HitlMode,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requested_by: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// The mode of a run, and the trust that moves it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Autonomy {
    rules: spec::Trust,
    /// The spec's, for as long as trust is off.
    base: HitlMode,
    /// What a person has set.
    set: Option<HitlMode>,
    trust: TrustRecord,
}

impl Autonomy {
    pub fn new(hitl: &spec::Hitl, rules: &spec::Trust, now: Timestamp) -> Self {
        let level = rules.level.unwrap_or(hitl.mode.level());
        Autonomy { rules: rules.clone(), base: hitl.mode, set: None, trust: TrustRecord::new(level, now) }
    }

    pub fn mode(&self) -> HitlMode {
        let own = if self.rules.enabled { self.trust.mode() } else { self.base };
        self.set.unwrap_or(own)
    }
    /// What holds below too: the mode that a person has set, and after an incident the mode that there is.
    pub fn told(&self) -> (Option<HitlMode>, Option<HitlMode>) {
        (self.set, self.trust.last_incident.filter(|_| self.rules.enabled).map(|_| self.mode()))
    }

    pub fn set_mode(&mut self, request: &Value, out: &mut Outbox) -> Result<(), InvalidAnswer> {
        let request: ModeRequest = decode("hitl mode", request)?;
        if self.mode() != request.mode {
            out.note(NoteKind::TrustChanged, json!(request));
        }
        self.set = Some(request.mode);
        Ok(())
    }

    pub fn task_ended(&mut self, success: bool, out: &mut Outbox) {
        self.trust.task_ended(success, &self.rules.rules, out);
    }

    /// The update `report_incident`.
    pub fn report(&mut self, incident: &Value, out: &mut Outbox) -> Result<(), InvalidAnswer> {
        let incident = Incident::read(incident)?;
        let before = self.trust.level;
        self.trust.incident(&incident, out);
        if self.trust.level != before {
            self.set = None;
        }
        Ok(())
    }

    /// The query `trust_level`.
    pub fn view(&self, now: Timestamp) -> Value {
        let mut view = self.trust.view(&self.rules.rules, now);
        view["mode"] = json!(self.mode());
        view
    }
}
