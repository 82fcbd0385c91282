//! `bosun schema`: the JSON Schema of supervisor specs and of scenes, for editors.
//!
//! Invariant: it prints the schema of this very program, as JSON in every format. It opens no store.

use super::exit::Exit;
use super::output::{Format, Screen};
use crate::scene;
use crate::supervisor::spec::{schema, schema_text};

pub(super) fn print(screen: &mut Screen, of: &str, format: Format) -> Exit {
    let (name, value, text) = match of {
        "scene" => ("scene-schema", scene::schema(), scene::schema_text()),
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
}
