//! Numbers of a spec that are compared later: ratios and money, kept as integers.
//!
//! Invariant: a number is rounded once, here (basis points, micros); two specs that mean the same are written the same.
//! It compares nothing.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A ratio between 0 and 1, in basis points.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Ratio {
    bp: u32,
}

/// An amount of money that is not negative, in micros of the currency.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Money {
    micros: u64,
}

impl Ratio {
    /// 0 %.
    pub const ZERO: Ratio = Ratio { bp: 0 };
    /// 100 %.
    pub const ONE: Ratio = Ratio { bp: 10_000 };

    /// More than all is all.
    pub const fn from_bp(bp: u32) -> Self {
        Ratio { bp: if bp > 10_000 { 10_000 } else { bp } }
    }
    /// In hundredths of a percent.
    pub const fn as_bp(self) -> u32 {
        self.bp
    }
    fn of(number: f64) -> Option<Self> {
        (0.0..=1.0).contains(&number).then(|| Ratio::from_bp((number * 10_000.0).round() as u32))
    }
}

impl Money {
    /// The largest amount that is read: far beyond any cost, and exact as a number.
    const MAX: f64 = 1_000_000_000.0;

    /// From millionths of a US dollar.
    pub const fn from_micros(micros: u64) -> Self {
        Money { micros }
    }
    /// In millionths of a US dollar.
    pub const fn as_micros(self) -> u64 {
        self.micros
    }
    fn of(number: f64) -> Option<Self> {
        (0.0..=Money::MAX).contains(&number).then(|| Money::from_micros((number * 1_000_000.0).round() as u64))
    }
}

/// Reads any JSON number as a float; texts are no numbers.
struct Number<T> {
    wanted: &'static str,
    of: fn(f64) -> Option<T>,
}

impl<T> serde::de::Visitor<'_> for Number<T> {
    type Value = T;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.wanted)
    }
    fn visit_f64<E: serde::de::Error>(self, number: f64) -> Result<T, E> {
        (self.of)(number).ok_or_else(|| E::custom(format!("expected {}, found {number}", self.wanted)))
    }
    fn visit_u64<E: serde::de::Error>(self, number: u64) -> Result<T, E> {
        self.visit_f64(number as f64)
    }
    fn visit_i64<E: serde::de::Error>(self, number: i64) -> Result<T, E> {
        self.visit_f64(number as f64)
    }
}

impl<'de> Deserialize<'de> for Ratio {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Number { wanted: "a number from 0 to 1", of: Ratio::of })
    }
}

impl<'de> Deserialize<'de> for Money {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Number { wanted: "an amount of money that is not negative", of: Money::of })
    }
}

impl Serialize for Ratio {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_f64(f64::from(self.bp) / 10_000.0)
    }
}

impl Serialize for Money {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_f64(self.micros as f64 / 1_000_000.0)
    }
}

impl JsonSchema for Ratio {
    fn schema_name() -> Cow<'static, str> {
        "Ratio".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        schemars::json_schema!({ "type": "number", "minimum": 0, "maximum": 1 })
    }
}

impl JsonSchema for Money {
    fn schema_name() -> Cow<'static, str> {
        "Money".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        schemars::json_schema!({ "type": "number", "minimum": 0, "maximum": 1_000_000_000 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_rounded_once_and_written_as_they_were_meant() {
        for (text, bp, written) in
            [("0.6", 6_000, "0.6"), ("0.60", 6_000, "0.6"), ("1", 10_000, "1.0"), ("0", 0, "0.0")]
        {
            let ratio: Ratio = serde_json::from_str(text).unwrap();
            assert_eq!((ratio.as_bp(), serde_json::to_string(&ratio).unwrap().as_str()), (bp, written), "{text}");
        }
        let money: Money = serde_json::from_str("1.00").unwrap();
        assert_eq!((money.as_micros(), serde_json::to_string(&money).unwrap().as_str()), (1_000_000, "1.0"));
        for bad in ["1.0001", "-0.1", "\"0.6\"", "null"] {
            assert!(serde_json::from_str::<Ratio>(bad).is_err(), "{bad}");
        }
        assert!(serde_json::from_str::<Money>("-1").is_err());
        assert!(serde_json::from_str::<Money>("1e18").is_err());
    }

    #[test]
    fn every_basis_point_and_cent_comes_back() {
        for bp in 0..=10_000 {
            let text = serde_json::to_string(&Ratio::from_bp(bp)).unwrap();
            assert_eq!(serde_json::from_str::<Ratio>(&text).unwrap().as_bp(), bp);
        }
        for micros in (0..5_000_000).step_by(997) {
            let text = serde_json::to_string(&Money::from_micros(micros)).unwrap();
            assert_eq!(serde_json::from_str::<Money>(&text).unwrap().as_micros(), micros);
        }
    }
}
