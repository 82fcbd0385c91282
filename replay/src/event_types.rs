//! The names of all event types, asked of the disk contract itself.
//!
//! Invariant: the list is what `EventKind`'s derived reader accepts, so it cannot fall behind when an event is added.

use std::cell::Cell;
use std::sync::OnceLock;

use bosun_engine::EventKind;
use serde::de::value::Error;
use serde::de::{Deserialize, Deserializer, Error as _, Visitor};

/// The names of the event types, in the order of the contract.
pub fn event_types() -> &'static [&'static str] {
    static NAMES: OnceLock<&'static [&'static str]> = OnceLock::new();
    NAMES.get_or_init(|| {
        let asked = Cell::new(&[][..]);
        // Reading fails on purpose: the names have been told by then.
        let _ = EventKind::deserialize(AskNames { asked: &asked });
        asked.get()
    })
}

/// A source of data that listens to what a reader of enums expects, and then has nothing to give.
struct AskNames<'a> {
    asked: &'a Cell<&'static [&'static str]>,
}

impl<'de> Deserializer<'de> for AskNames<'_> {
    type Error = Error;
    fn deserialize_any<V: Visitor<'de>>(self, _visitor: V) -> Result<V::Value, Error> {
        Err(Error::custom("nothing to read"))
    }
    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        self.asked.set(variants);
        self.deserialize_any(visitor)
    }
    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit unit_struct
        newtype_struct seq tuple tuple_struct map struct identifier ignored_any
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_contract_tells_its_names() {
        assert_eq!(event_types().first(), Some(&"WorkflowExecutionStarted"));
        assert!(event_types().len() >= 46, "{:?}", event_types());
        assert!(event_types().contains(&EventKind::FirstWorkflowTaskScheduled.name()));
    }
}
