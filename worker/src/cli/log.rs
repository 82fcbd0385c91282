//! Logs: to stderr, one JSON object a line unless a person is reading.
//!
//! Invariant: one event is one line whatever a message contains (G38), and nothing is logged to stdout. What MCP
//! servers say is not logged unless the filter names their library.

use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;
use tracing_subscriber::Layer;
use tracing_subscriber::filter::Directive;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

/// Starts logging, and in a worker that was built for it, the sending of spans. A second call in one process (tests) does nothing.
pub(super) fn start(filter: Option<&str>, is_worker: bool) -> Result<(), String> {
    let default = if is_worker { "info" } else { "error" };
    let filter = filter_of(filter.unwrap_or(default))?;
    let text = tracing_subscriber::fmt::layer().with_writer(std::io::stderr);
    let text = if std::io::stderr().is_terminal() { text.boxed() } else { text.json().boxed() };
    let started = tracing_subscriber::registry().with(text.with_filter(filter));
    #[cfg(feature = "otel")]
    let started = started.with(if is_worker {
        crate::telemetry::otel::layer(&crate::capability::environment::var)?
    } else {
        None
    });
    let _ = (is_worker, started.try_init());
    Ok(())
}

/// What was not sent yet is sent. The program leaves.
pub(super) fn leave() {
    #[cfg(feature = "otel")]
    crate::telemetry::otel::flush();
}

/// What libraries log only if the filter names them: `rmcp` logs whole messages of servers, with whatever secrets they hold, and is silent
/// unless it is named; the store's own lines would hide all others.
fn filter_of(text: &str) -> Result<EnvFilter, String> {
    let filter = EnvFilter::try_new(text).map_err(|why| format!("--log {text:?}: {why}"))?;
    let names = |part: &str| {
        let target = part.split(['=', '[']).next().unwrap_or_default().trim();
        target == "rmcp" || target.starts_with("rmcp::")
    };
    let directive = |text: &str| -> Directive { text.parse().expect("it is a directive") };
    let filter = if text.split(',').any(names) { filter } else { filter.add_directive(directive("rmcp=off")) };
    // A level for everything is meant for Bosun: `sled` logs thousands of lines a second of it.
    let is_low = |part: &str| matches!(part.trim().to_ascii_lowercase().as_str(), "debug" | "trace");
    let names_sled = |part: &str| part.trim_start().starts_with("sled");
    let quiet = text.split(',').any(is_low) && !text.split(',').any(names_sled);
    Ok(if quiet { filter.add_directive(directive("sled=info")) } else { filter })
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::sync::{Arc, Mutex};

    use super::filter_of;

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

    /// What is logged of an event of ours, and of one of the library, at the level `info`.
    fn logged(filter: &str) -> (bool, bool) {
        let lines = Lines::default();
        let writer = lines.clone();
        let builder = tracing_subscriber::fmt().with_env_filter(filter_of(filter).unwrap());
        tracing::subscriber::with_default(builder.with_writer(move || writer.clone()).finish(), || {
            tracing::info!(target: "bosun_worker::cli", "ours");
            tracing::info!(target: "rmcp::service", "theirs");
            tracing::debug!(target: "bosun_worker::cli", "detail");
            tracing::debug!(target: "sled::tree", "pages");
        });
        let text = String::from_utf8(lines.0.lock().unwrap().clone()).unwrap();
        assert_eq!(text.contains("pages"), filter.contains("sled="), "{filter}");
        (text.contains("ours"), text.contains("theirs"))
    }

    #[test]
    fn a_level_for_everything_is_bosuns_and_not_the_stores() {
        for filter in ["debug", "trace", "debug,sled=trace", "bosun_worker=debug", "info,bosun_worker=trace,sled=debug"]
        {
            assert_eq!(logged(filter), (true, false), "{filter}");
        }
        assert_eq!(logged("error,sled=debug"), (false, false));
    }

    #[test]
    fn what_mcp_servers_say_is_logged_only_if_their_library_is_named() {
        for filter in ["info", "trace", "bosun_worker=debug", "info,rmcpx=trace", "debug,bosun_worker::cli=info"] {
            assert_eq!(logged(filter), (true, false), "{filter}");
        }
        for filter in ["info,rmcp=info", "info,rmcp::service=debug", "rmcp,info"] {
            assert_eq!(logged(filter), (true, true), "{filter}");
        }
        for filter in ["", "off", "error"] {
            assert_eq!(logged(filter), (false, false), "{filter}");
        }
        assert!(filter_of("a=b=c").is_err());
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
