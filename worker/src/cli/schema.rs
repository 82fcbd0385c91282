//! `bosun schema`: the JSON Schema of supervisor specs, of scenes and of schedules, for editors.
//!
//! Invariant: it prints the schema of this very program, as JSON in every format. It opens no store.

use super::exit::Exit;
use super::output::{Format, Screen};
use crate::scene;
use crate::schedule::Schedule;
use crate::supervisor::spec_schema::{schema, schema_text};

pub(super) fn print(screen: &mut Screen, of: &str, format: Format) -> Exit {
    let (name, value, text) = match of {
        "scene" => ("scene-schema", scene::schema(), scene::schema_text()),
        "schedule" => {
            let value = schemars::schema_for!(Schedule).to_value();
            let text = format!("{value:#}");
            ("schedule-schema", value, text)
        }
        _ => ("supervisor-spec-schema", schema(), schema_text()),
    };
    match format {
        Format::Text => screen.block(text.trim_end()),
        _ => screen.object(name, value),
    }
    Exit::Ok
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_schema_is_printed_as_it_is_committed() {
        let (mut screen, output) = Screen::captured();
        assert_eq!(print(&mut screen, "spec", Format::Text), Exit::Ok);
        assert_eq!(output.stdout(), schema_text());
        let printed: serde_json::Value = serde_json::from_str(&output.stdout()).unwrap();
        assert_eq!(printed["title"], "Supervisor spec");
    }

    #[test]
    fn the_schema_of_schedules_names_what_they_may_say() {
        let (mut screen, output) = Screen::captured();
        assert_eq!(print(&mut screen, "schedule", Format::Text), Exit::Ok);
        let schema: serde_json::Value = serde_json::from_str(&output.stdout()).unwrap();
        let schema = jsonschema::validator_for(&schema).unwrap();
        let action = serde_json::json!({ "workflow_type": "t", "workflow_id": "t" });
        let of = |spec: serde_json::Value| serde_json::json!({ "spec": spec, "action": action });
        assert!(schema.is_valid(&of(serde_json::json!({ "cron": ["@daily"], "jitter": "5m" }))));
        assert!(!schema.is_valid(&of(serde_json::json!({ "crons": ["@daily"] }))));
    }
}
