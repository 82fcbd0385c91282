//! `bosun schema`: the JSON Schema of supervisor specs, for editors.
//!
//! Invariant: it prints the schema of this very program, as JSON in every format. It opens no store.

use super::exit::Exit;
use super::output::{Format, Screen};
use crate::supervisor::spec::{schema, schema_text};

pub(super) fn print(screen: &mut Screen, format: Format) -> Exit {
    match format {
        Format::Text => screen.block(&schema_text().trim_end().to_owned()),
        _ => screen.object("supervisor-spec-schema", schema()),
    }
    Exit::Ok
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_schema_is_printed_as_it_is_committed() {
        let (mut screen, output) = Screen::captured();
        assert_eq!(print(&mut screen, Format::Text), Exit::Ok);
        assert_eq!(output.stdout(), schema_text());
        let printed: serde_json::Value = serde_json::from_str(&output.stdout()).unwrap();
        assert_eq!(printed["title"], "Supervisor spec");
    }
}
