//! Logs: to stderr, one JSON object a line unless a person is reading.
//!
//! Invariant: one event is one line whatever a message contains (engine.md G38), and nothing is logged to stdout.

use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;

/// Starts logging. A second call in one process (tests) does nothing.
pub(super) fn start(filter: Option<&str>, default: &str) -> Result<(), String> {
    let text = filter.unwrap_or(default);
    let filter = EnvFilter::try_new(text).map_err(|why| format!("--log {text:?}: {why}"))?;
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    let _ = if std::io::stderr().is_terminal() { builder.try_init() } else { builder.json().try_init() };
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::sync::{Arc, Mutex};

    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<u8>>>);
    impl Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    /// G38: whatever an input contains, it stays one JSON line.
    #[test]
    fn one_event_is_one_line_of_json() {
        let lines = Lines::default();
        let writer = lines.clone();
        let subscriber = tracing_subscriber::fmt().json().with_writer(move || writer.clone()).finish();
        let breakers = ["\r\n", "\n{\"level\":\"ERROR\"}", "\x1b[2J\x07", "\"}\n", "\u{2028}\u{85}\0", "\\\n"];
        let mut count = 0;
        tracing::subscriber::with_default(subscriber, || {
            for a in breakers {
                for b in breakers {
                    tracing::info!(id = format!("{a}{b}"), "say {a}x{b}");
                    count += 1;
                }
            }
        });
        let text = String::from_utf8(lines.0.lock().unwrap().clone()).unwrap();
        let found: Vec<&str> = text.split('\n').filter(|line| !line.is_empty()).collect();
        assert_eq!(found.len(), count);
        for line in found {
            serde_json::from_str::<serde_json::Value>(line).unwrap();
            assert!(!line.contains(['\r', '\x1b', '\x07', '\0']), "{line:?}");
        }
    }
}
