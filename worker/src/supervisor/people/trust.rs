//! Trust: how far a system that has proved itself may go alone.
//!
//! Invariant: the level is a projection of what happened (tasks, successes, incidents and their times in workflow time):
//! it goes up one level at a time when every condition holds, in the order of the seed, and down at once on an incident.
//! Rates are compared as fractions of integers, over the whole life. It asks nobody and gates nothing.

use bosun_engine::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::amount::percent_text;
use crate::supervisor::core::answer::{InvalidAnswer, decode};
use crate::supervisor::journal::NoteKind;
use crate::supervisor::outbox::Outbox;
use crate::supervisor::spec::{HitlMode, TrustLevel, TrustRules};

impl TrustLevel {
    pub const ALL: [TrustLevel; 3] = [TrustLevel::Novice, TrustLevel::Proficient, TrustLevel::Expert];
    pub fn as_str(self) -> &'static str {
        match self {
            TrustLevel::Novice => "novice",
            TrustLevel::Proficient => "proficient",
            TrustLevel::Expert => "expert",
        }
    }
    /// How much a person is asked at this level (SHT-01).
    pub fn mode(self) -> HitlMode {
        match self {
            TrustLevel::Novice => HitlMode::HumanInCommand,
            TrustLevel::Proficient => HitlMode::HumanInTheLoop,
            TrustLevel::Expert => HitlMode::HumanOnTheLoop,
        }
    }
    fn above(self) -> Option<TrustLevel> {
        match self {
            TrustLevel::Novice => Some(TrustLevel::Proficient),
            TrustLevel::Proficient => Some(TrustLevel::Expert),
            TrustLevel::Expert => None,
        }
    }
    fn below(self) -> TrustLevel {
        match self {
            TrustLevel::Novice | TrustLevel::Proficient => TrustLevel::Novice,
            TrustLevel::Expert => TrustLevel::Proficient,
        }
    }
}

/// Why the level cannot go up. The texts are the seed's.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum NoUpgrade {
    #[error("Already at highest level")]
    Highest,
    #[error("Insufficient tasks: {found}/{needed}")]
    Tasks { found: u64, needed: u64 },
    #[error("Insufficient success rate: {found}%/{needed}%")]
    SuccessRate { found: String, needed: String },
    #[error("Insufficient running days: {found}/{needed}")]
    Days { found: u64, needed: u64 },
    #[error("Insufficient days since last incident: {found}/{needed}")]
    Incident { found: u64, needed: u64 },
}

/// How bad an incident was.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// One level down.
    Minor,
    /// Down to novice.
    Serious,
}

/// The update `report_incident`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Incident {
    pub severity: Severity,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reported_by: Option<String>,
}

impl Incident {
    pub fn read(value: &Value) -> Result<Self, InvalidAnswer> {
        decode("incident", value)
    }
}

/// What is known of a system's past.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TrustRecord {
    pub level: TrustLevel,
    pub tasks_completed: u64,
    pub successes: u64,
    pub started_at: Timestamp,
    pub last_incident: Option<Timestamp>,
}

const DAY_MICROS: u128 = 86_400_000_000;

fn whole_days(from: Timestamp, to: Timestamp) -> u64 {
    u64::try_from(to.since(from).as_micros() / DAY_MICROS).unwrap_or(u64::MAX)
}

impl TrustRecord {
    /// Nothing has happened yet.
    pub fn new(level: TrustLevel, started_at: Timestamp) -> Self {
        TrustRecord { level, tasks_completed: 0, successes: 0, started_at, last_incident: None }
    }

    /// The next level, or the first condition that does not hold (SHT-02, SHT-03).
    pub fn can_upgrade(&self, rules: &TrustRules, now: Timestamp) -> Result<TrustLevel, NoUpgrade> {
        let target = self.level.above().ok_or(NoUpgrade::Highest)?;
        let rule = match self.level {
            TrustLevel::Novice => &rules.to_proficient,
            TrustLevel::Proficient | TrustLevel::Expert => &rules.to_expert,
        };
        if self.tasks_completed < rule.tasks {
            return Err(NoUpgrade::Tasks { found: self.tasks_completed, needed: rule.tasks });
        }
        if !self.success_reaches(rule.success.as_bp()) {
            let found = percent_text(self.successes, self.tasks_completed);
            return Err(NoUpgrade::SuccessRate { found, needed: percent_text(rule.success.as_bp().into(), 10_000) });
        }
        let days = whole_days(self.started_at, now);
        if days < rule.days {
            return Err(NoUpgrade::Days { found: days, needed: rule.days });
        }
        if let Some(incident) = self.last_incident {
            let days = whole_days(incident, now);
            if days < rule.incident_days {
                return Err(NoUpgrade::Incident { found: days, needed: rule.incident_days });
            }
        }
        Ok(target)
    }

    fn success_reaches(&self, min_bp: u32) -> bool {
        u128::from(self.successes) * 10_000 >= u128::from(min_bp) * u128::from(self.tasks_completed)
            && (self.tasks_completed > 0 || min_bp == 0)
    }

    /// A task has ended: it counts, and the level may go up by one.
    pub fn task_ended(&mut self, success: bool, rules: &TrustRules, out: &mut Outbox) {
        self.tasks_completed += 1;
        self.successes += u64::from(success);
        if let Ok(level) = self.can_upgrade(rules, out.now()) {
            self.set(level, "upgrade", out);
        }
    }

    /// Something went wrong that should not have (SHT-05).
    pub fn incident(&mut self, incident: &Incident, out: &mut Outbox) {
        self.last_incident = Some(out.now());
        out.note(NoteKind::IncidentReported, json!(incident));
        let level = match incident.severity {
            Severity::Serious => TrustLevel::Novice,
            Severity::Minor => self.level.below(),
        };
        self.set(level, "incident", out);
    }

    fn set(&mut self, level: TrustLevel, why: &str, out: &mut Outbox) {
        if level != self.level {
            out.note(NoteKind::TrustChanged, json!({ "from": self.level, "to": level, "why": why }));
            self.level = level;
        }
    }

    pub fn mode(&self) -> HitlMode {
        self.level.mode()
    }

    /// The query `trust_level`, with the names of the seed.
    pub fn view(&self, rules: &TrustRules, now: Timestamp) -> Value {
        let next = self.can_upgrade(rules, now);
        json!({
            "level": self.level,
            "mode": self.mode(),
            "tasks_completed": self.tasks_completed,
            "successes": self.successes,
            "success_rate": format!("{}%", percent_text(self.successes, self.tasks_completed)),
            "days_since_start": whole_days(self.started_at, now),
            "last_incident": self.last_incident.map(|at| at.to_string()),
            "can_upgrade": next.is_ok(),
            "why": next.map_or_else(|why| why.to_string(), |level| level.as_str().to_owned()),
        })
    }
}
