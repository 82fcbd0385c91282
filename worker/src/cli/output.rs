//! What a command prints: text for people, one documented object or line per row for programs.
//!
//! Invariant: stdout carries the answer only; progress, questions and errors go to stderr. With `json` a verb prints
//! exactly one object, with `jsonl` one line per row or event, with `none` nothing. No escape sequence reaches a stream
//! that is not a terminal (unless colour is forced), nor does one from a workflow's own text.

use std::io::{self, IsTerminal, Write};

use bosun_engine::Timestamp;
use clap::ValueEnum;
use serde_json::{Map, Value};

pub(super) use super::error::one_line;
use super::error::{CliError, printable};
use super::reach::Reach;
use super::table;
pub(super) use super::table::{Cell, TextStyle};
use super::time_format::TimeFormat;

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Format {
    Text,
    Json,
    Jsonl,
    None,
    /// XML for build servers; `test` and `replay check` only.
    Junit,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ColorChoice {
    Auto,
    Always,
    Never,
}

impl ColorChoice {
    /// `NO_COLOR` and `CLICOLOR_FORCE` are honoured when nothing is said.
    pub fn decide(self, terminal: bool) -> bool {
        let set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty() && value != "0");
        match self {
            ColorChoice::Always => true,
            ColorChoice::Never => false,
            ColorChoice::Auto if std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty()) => false,
            ColorChoice::Auto => terminal || set("CLICOLOR_FORCE"),
        }
    }
}

/// All escapes that we write ourselves.
const PAINTS: [&str; 7] = ["\x1b[0m", "\x1b[2m", "\x1b[1m", "\x1b[32m", "\x1b[33m", "\x1b[31m", "\x1b[34m"];

/// The key that says what an object is; it is always there.
pub(super) const SCHEMA: &str = "schema";

/// Where a command prints, and how.
pub struct Screen {
    pub format: Format,
    pub color: bool,
    pub error_color: bool,
    pub ascii: bool,
    pub time: TimeFormat,
    /// Columns or keys to show; empty: the usual ones.
    pub fields: Vec<String>,
    /// Why an answer was not written; the verb ends with it.
    refused: Option<CliError>,
    /// Stderr is a terminal that can be redrawn.
    pub live: bool,
    /// For tests: columns and rows of the terminal.
    #[cfg(test)]
    pub fixed_size: Option<(usize, usize)>,
    pub now: Timestamp,
    /// What commands that are printed need, to reach the same runs.
    pub reach: Reach,
    out: Box<dyn Write + Send + Sync>,
    err: Box<dyn Write + Send + Sync>,
    /// Why stdout takes nothing any more, if it does not.
    pub(super) lost: Option<io::Error>,
}

impl Screen {
    pub fn standard(format: Format, color: ColorChoice, ascii: bool, time: TimeFormat, fields: Vec<String>) -> Self {
        let (out, err) = (io::stdout(), io::stderr());
        Screen {
            format,
            color: color.decide(out.is_terminal()),
            error_color: color.decide(err.is_terminal()),
            ascii,
            time,
            fields,
            refused: None,
            #[cfg(test)]
            fixed_size: None,
            live: err.is_terminal() && std::env::var_os("TERM").is_none_or(|term| term != "dumb"),
            now: super::time_format::now(),
            reach: Reach::default(),
            out: Box::new(out),
            err: Box::new(err),
            lost: None,
        }
    }

    /// Prints nothing, anywhere.
    pub fn silent() -> Self {
        Screen {
            format: Format::None,
            color: false,
            error_color: false,
            ascii: false,
            time: TimeFormat::Iso,
            fields: Vec::new(),
            refused: None,
            live: false,
            #[cfg(test)]
            fixed_size: None,
            now: Timestamp::ZERO,
            reach: Reach::default(),
            out: Box::new(io::sink()),
            err: Box::new(io::sink()),
            lost: None,
        }
    }

    pub(super) fn write(&mut self, text: &str) {
        // Behind a gap nothing more is printed: what is there is the beginning of the answer.
        if self.lost.is_none() {
            self.lost = self.out.write_all(text.as_bytes()).and_then(|()| self.out.flush()).err();
        }
    }

    /// A line of text output; nothing in the other formats. Painted parts come from [`Screen::paint`]. Whatever is in it,
    /// it is one line: a line break of a workflow's own text is a space.
    pub fn line(&mut self, text: String) {
        if self.format == Format::Text {
            let line = self.shown(&text, one_line);
            self.write(&format!("{line}\n"));
        }
    }

    /// Text of several lines, where that is what was asked for: a result, a state, a difference.
    pub fn block(&mut self, text: &str) {
        if self.format == Format::Text {
            let block = self.shown(text, printable);
            self.write(&format!("{block}\n"));
        }
    }

    /// Text without what could steer a terminal; our own paint stays where there is any.
    fn shown(&self, text: &str, clean: fn(&str) -> String) -> String {
        if !self.color {
            return clean(text);
        }
        let mut parts = text.split('\x1b');
        let mut shown = clean(parts.next().unwrap_or_default());
        for part in parts {
            let paint = PAINTS.iter().find_map(|paint| Some((*paint, part.strip_prefix(&paint[1..])?)));
            let (escape, rest) = paint.unwrap_or(("\u{fffd}", part));
            shown.push_str(escape);
            shown.push_str(&clean(rest));
        }
        shown
    }

    /// The whole answer of a verb in a format that has only one verb.
    pub fn document(&mut self, format: Format, text: &str) {
        if self.format == format {
            self.write(text);
        }
    }

    /// `name  value`, for describe-like output.
    pub fn field(&mut self, name: &str, value: impl AsRef<str>) {
        let name = self.paint(TextStyle::Dim, &format!("{name:<14}"));
        self.line(format!("{name} {}", value.as_ref()));
    }

    /// The one object of a verb: `json` pretty when a person reads it, `jsonl` on one line.
    pub fn object(&mut self, schema: &str, value: Value) {
        if !matches!(self.format, Format::Json | Format::Jsonl) {
            return;
        }
        let object = with_schema(schema, value);
        if let Some(why) = self.unknown_key(std::slice::from_ref(&object)) {
            self.refused = Some(why);
            return;
        }
        self.write_object(&self.only_fields(object));
    }

    fn write_object(&mut self, object: &Value) {
        let text = if self.format == Format::Json { format!("{object:#}") } else { object.to_string() };
        self.write(&format!("{text}\n"));
    }

    /// Rows of objects: `json` one object with a list under `key`, `jsonl` a line per row.
    pub fn objects(&mut self, schema: &str, key: &str, rows: Vec<Value>) {
        self.objects_and(schema, key, rows, Map::new());
    }

    /// The same with more in the object of `json`.
    pub(super) fn objects_and(&mut self, schema: &str, key: &str, rows: Vec<Value>, more: Map<String, Value>) {
        if let Some(why) = self.unknown_key(&rows) {
            self.refused = Some(why);
            return;
        }
        let rows = rows.into_iter().map(|row| self.only_fields(row));
        match self.format {
            Format::Json => {
                let mut all = Map::from_iter([(key.to_owned(), rows.collect())]);
                all.extend(more);
                self.write_object(&with_schema(schema, Value::Object(all)));
            }
            Format::Jsonl => {
                for row in rows.collect::<Vec<_>>() {
                    self.row(schema, row);
                }
            }
            Format::Text | Format::None | Format::Junit => {}
        }
    }

    /// Why the answer was not written, if it was not.
    pub(super) fn refused(&mut self) -> Option<CliError> {
        self.refused.take()
    }

    /// One row of a stream; only in `jsonl`.
    pub fn row(&mut self, schema: &str, row: Value) {
        if self.format == Format::Jsonl {
            let row = with_schema(schema, self.only_fields(row));
            self.write(&format!("{row}\n"));
        }
    }

    fn only_fields(&self, row: Value) -> Value {
        match row {
            Value::Object(object) if !self.fields.is_empty() => Value::Object(
                object
                    .into_iter()
                    .filter(|(key, _)| key == SCHEMA || self.fields.iter().any(|field| field == key))
                    .collect(),
            ),
            row => row,
        }
    }

    /// Whether `--fields` names columns of a table.
    pub(super) fn table_columns(&self, columns: &[&str]) -> Result<(), CliError> {
        if self.format != Format::Text {
            return Ok(());
        }
        let Some(unknown) = self.fields.iter().find(|field| !columns.contains(&field.as_str())) else { return Ok(()) };
        let near = crate::supervisor::fields::similar(unknown, columns);
        let near = near.map_or_else(String::new, |near| format!(" (did you mean `{near}`?)"));
        let known = columns.join(", ");
        Err(CliError::usage(format!("no column is called `{unknown}`{near}; there are {known}"))
            .help("`-o json` has more: `--fields` takes its keys there"))
    }

    /// A table with a dim head. Columns not named by `--fields` are left out; what names none is an error.
    pub(super) fn table(&mut self, columns: &[&str], rows: Vec<Vec<Cell>>) -> Result<(), CliError> {
        if self.format != Format::Text {
            return Ok(());
        }
        self.table_columns(columns)?;
        let shown: Vec<usize> = if self.fields.is_empty() {
            (0..columns.len()).collect()
        } else {
            let place = |field: &String| columns.iter().position(|column| column == field);
            self.fields.iter().filter_map(place).collect()
        };
        let names: Vec<&str> = shown.iter().map(|&i| columns[i]).collect();
        let rows: Vec<Vec<Cell>> = rows
            .into_iter()
            .map(|row| shown.iter().map(|&i| Cell::of(one_line(&row[i].text), row[i].paint)).collect())
            .collect();
        let head = names.iter().map(|name| Cell::of(name.replace('_', " ").to_uppercase(), TextStyle::Dim)).collect();
        let rows: Vec<Vec<Cell>> = std::iter::once(head).chain(rows).collect();
        let width = |i: usize| rows.iter().map(|row| table::width_of(&row[i].text)).max().unwrap_or(0);
        let widths: Vec<usize> = (0..names.len()).map(width).collect();
        let layout = table::layout(&names, &widths, self.columns(), self.fields.is_empty());
        for row in &rows {
            self.table_row(&names, row, &layout.shown);
        }
        if !layout.left_out.is_empty() {
            let left_out: Vec<&str> = layout.left_out.iter().map(|&i| names[i]).collect();
            self.note(&format!("no room for {}: `--fields` names columns, `-o json` has all", left_out.join(", ")));
        }
        Ok(())
    }

    /// One row; the last cell goes on below itself.
    fn table_row(&mut self, names: &[&str], row: &[Cell], shown: &[(usize, usize)]) {
        let more = if self.ascii { '~' } else { '…' };
        let Some((&(last, room), before)) = shown.split_last() else { return };
        let mut line = String::new();
        for &(column, width) in before {
            let cell = &row[column];
            let cut = if table::is_id(names[column]) { table::cut_in_the_middle } else { table::cut_to };
            let text = cut(&cell.text, width, more);
            line.push_str(&self.paint(cell.paint, &text));
            line.push_str(&" ".repeat(width - table::width_of(&text) + table::GAP));
        }
        let margin: usize = before.iter().map(|(_, width)| width + table::GAP).sum();
        for (nth, part) in table::wrapped(&row[last].text, room.max(1)).into_iter().enumerate() {
            if nth > 0 {
                line = " ".repeat(margin);
            }
            line.push_str(&self.paint(row[last].paint, part));
            self.line(std::mem::take(&mut line));
        }
    }

    /// The width of the terminal that stdout is, if it is one.
    fn columns(&self) -> Option<usize> {
        #[cfg(test)]
        if let Some((width, _)) = self.fixed_size {
            return Some(width);
        }
        let size = rustix::termios::tcgetwinsize(io::stdout()).ok()?;
        (size.ws_col > 0).then_some(size.ws_col.into())
    }

    /// The dim last line that says what one would do next.
    pub fn next(&mut self, hint: &str) {
        let line = self.paint(TextStyle::Dim, &format!("next: {}", self.reach.complete(hint)));
        self.line(line);
    }

    pub(super) fn paint(&self, paint: TextStyle, text: &str) -> String {
        if self.color && paint != TextStyle::Plain && !text.is_empty() {
            format!("{}{text}\x1b[0m", paint.escape())
        } else {
            text.to_owned()
        }
    }

    pub fn at(&self, at: Timestamp) -> String {
        self.time.text(at, self.now)
    }

    /// A line of progress on stderr.
    pub fn note(&mut self, text: &str) {
        if self.format != Format::None {
            let _ = writeln!(self.err, "{}", one_line(text));
        }
    }

    /// Columns and rows of the terminal of stderr; usual ones where it does not say.
    pub(super) fn size(&self) -> (usize, usize) {
        #[cfg(test)]
        if let Some(size) = self.fixed_size {
            return size;
        }
        match rustix::termios::tcgetwinsize(io::stderr()) {
            Ok(size) if size.ws_col > 0 && size.ws_row > 0 => (size.ws_col.into(), size.ws_row.into()),
            _ => (80, 24),
        }
    }

    /// Raw bytes to the terminal, for redrawing.
    pub(super) fn draw(&mut self, text: &str) {
        let _ = self.err.write_all(text.as_bytes()).and_then(|()| self.err.flush());
    }

    pub fn error(&mut self, error: &super::error::CliError) {
        let help = error.help.as_deref().map(|help| self.reach.complete(help));
        let mut error = super::error::CliError { help, ..error.clone() };
        if error.code == super::explain::Code::Held {
            // The card of a held run says itself what helps.
            error.message = self.reach.complete(&error.message);
        }
        let text = match self.format {
            Format::Json | Format::Jsonl => format!("{}\n", error.json()),
            Format::Text | Format::None | Format::Junit => error.render(self.error_color),
        };
        self.draw(&text);
    }
}

fn with_schema(schema: &str, value: Value) -> Value {
    let mut object = Map::new();
    object.insert(SCHEMA.into(), format!("bosun.{schema}/1").into());
    match value {
        Value::Object(fields) => object.extend(fields),
        other => {
            object.insert("value".into(), other);
        }
    }
    Value::Object(object)
}

#[cfg(test)]
pub(crate) mod captured {
    use std::sync::{Arc, Mutex};

    use super::*;

    /// What a test reads back.
    #[derive(Clone, Default)]
    pub(crate) struct Output(Arc<Mutex<(Vec<u8>, Vec<u8>)>>);

    impl Output {
        pub(crate) fn stdout(&self) -> String {
            String::from_utf8(self.0.lock().unwrap().0.clone()).unwrap()
        }
        pub(crate) fn stderr(&self) -> String {
            String::from_utf8(self.0.lock().unwrap().1.clone()).unwrap()
        }
    }

    struct Half(Output, bool);
    impl Write for Half {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let mut both = self.0.0.lock().unwrap();
            if self.1 {
                both.1.extend_from_slice(bytes)
            } else {
                both.0.extend_from_slice(bytes)
            }
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl Screen {
        /// A screen without colour whose clock stands at 1 000 s, for tests.
        pub(crate) fn captured() -> (Screen, Output) {
            let output = Output::default();
            let screen = Screen {
                format: Format::Text,
                color: false,
                error_color: false,
                ascii: false,
                time: TimeFormat::Relative,
                fields: Vec::new(),
                refused: None,
                live: false,
                #[cfg(test)]
                fixed_size: None,
                now: Timestamp(1_000_000_000),
                reach: Reach::default(),
                out: Box::new(Half(output.clone(), false)),
                err: Box::new(Half(output.clone(), true)),
                lost: None,
            };
            (screen, output)
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn tables_are_aligned_and_cut_to_the_fields_asked_for() {
        let (mut screen, output) = Screen::captured();
        let rows = || vec![vec![Cell::from("a"), "Running".into()], vec!["long-id\x1b[1m".into(), "é\nx".into()]];
        screen.table(&["workflow_id", "status"], rows()).unwrap();
        assert_eq!(output.stdout(), "WORKFLOW ID  STATUS\na            Running\nlong-id\u{fffd}[1m  é x\n");
        let (mut screen, output) = Screen::captured();
        screen.fields = vec!["status".into()];
        screen.table(&["workflow_id", "status"], rows()).unwrap();
        assert_eq!(output.stdout(), "STATUS\nRunning\né x\n");
    }

    /// In a terminal of 40 columns the run id has no place; what is said of it goes on below itself.
    #[test]
    fn a_table_takes_the_width_of_the_terminal() {
        let (mut screen, output) = Screen::captured();
        screen.fixed_size = Some((40, 24));
        let id = "0199c5a1-7c00-7000-8000-000000000000";
        let row = vec!["order-1".into(), id.into(), "the till does not answer since ten o'clock".into()];
        screen.table(&["workflow_id", "run_id", "summary"], vec![row]).unwrap();
        let told = "WORKFLOW ID  SUMMARY\norder-1      the till does not answer\n             since ten o'clock\n";
        assert_eq!(output.stdout(), told);
        assert!(output.stderr().contains("no room for run_id"), "{}", output.stderr());
    }

    #[test]
    fn a_field_that_is_none_is_an_error_that_names_the_others() {
        let (mut screen, output) = Screen::captured();
        screen.fields = vec!["state".into()];
        let refused = screen.table(&["workflow_id", "status"], Vec::new()).unwrap_err().to_string();
        assert!(refused.contains("`state` (did you mean `status`?); there are workflow_id, status"), "{refused}");
        assert_eq!(output.stdout(), "");
    }

    #[test]
    fn an_object_has_the_keys_asked_for_and_refuses_others() {
        let printed = |field: &str| {
            let (mut screen, output) = Screen::captured();
            (screen.format, screen.fields) = (Format::Jsonl, vec![field.to_owned()]);
            screen.object("count", json!({ "count": 1, "more": 2 }));
            (output.stdout(), screen.refused().map(|why| why.to_string()).unwrap_or_default())
        };
        assert_eq!(printed("count"), ("{\"schema\":\"bosun.count/1\",\"count\":1}\n".to_owned(), String::new()));
        let (shown, refused) = printed("cuont");
        assert!(
            shown.is_empty() && refused.contains("`cuont` (did you mean `count`?); there are count, more"),
            "{refused}"
        );
    }

    /// G38: no text of a workflow makes a line of its own, whatever prints it.
    #[test]
    fn a_line_is_one_line() {
        for color in [false, true] {
            let (mut screen, output) = Screen::captured();
            screen.color = color;
            let forged = "x\nstatus  Completed\u{2028}\u{202e}\x1b[2J";
            screen.line(format!("id {forged}"));
            screen.field("summary", forged);
            screen.next(forged);
            screen.note(forged);
            assert_eq!((output.stdout().lines().count(), output.stderr().lines().count()), (3, 1), "{color}");
            assert!(!output.stdout().contains(['\u{2028}', '\u{202e}']) && !output.stdout().contains("\x1b[2J"));
            assert_eq!(output.stdout().contains("\x1b[2m"), color, "our own paint stays");
        }
        let (mut screen, output) = Screen::captured();
        screen.block("a\nb\u{202e}");
        assert_eq!(output.stdout(), "a\nb\u{fffd}\n");
    }

    #[test]
    fn each_format_prints_its_own_form_only() {
        let print = |format| {
            let (mut screen, output) = Screen::captured();
            screen.format = format;
            screen.line("for people".into());
            screen.objects("workflow.list", "workflows", vec![json!({ "a": 1 }), json!({ "a": 2 })]);
            screen.next("bosun list");
            output.stdout()
        };
        assert_eq!(print(Format::Text), "for people\nnext: bosun list\n");
        assert_eq!(
            print(Format::Jsonl),
            "{\"schema\":\"bosun.workflow.list/1\",\"a\":1}\n{\"schema\":\"bosun.workflow.list/1\",\"a\":2}\n"
        );
        let object: Value = serde_json::from_str(&print(Format::Json)).unwrap();
        assert_eq!(object, json!({ "schema": "bosun.workflow.list/1", "workflows": [{ "a": 1 }, { "a": 2 }] }));
        assert_eq!(print(Format::None), "");
    }
}
