//! The service manager that started a worker: systemd's notification protocol, and the unit that makes systemd start one.
//!
//! Invariant: without `NOTIFY_SOCKET` nothing is sent. "Ready" is said only when requests are answered, and the watchdog is
//! fed only while the process gets on and its log has not failed, so that one that stands still is restarted: also one whose
//! write to the log has not come back for as long as the manager waits. A disk that is full, or slower than usual, is waited
//! for: a restart would mend neither. What is said changes nothing in the worker: a socket that takes no
//! message is a warning.

use std::convert::Infallible;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::time::Duration;

use bosun_engine::TaskQueue;
use clap::{Args, CommandFactory};
use serde_json::json;

use super::args::{Cli, Global};
use super::config::Loaded;
use super::error::CliError;
use super::exit::Exit;
use super::output::Screen;
use crate::backend::{Engine, EngineHealth};

/// How the process was started, as far as its manager says.
pub(super) struct ServiceManager {
    socket: Option<UnixDatagram>,
    /// Not fed for this long, the manager ends the process.
    watchdog: Option<Duration>,
}

impl ServiceManager {
    /// Reads `NOTIFY_SOCKET`, `WATCHDOG_USEC` and `WATCHDOG_PID`, as sd_notify(3) and sd_watchdog_enabled(3) say.
    pub(super) fn of(environment: &dyn Fn(&str) -> Option<String>) -> ServiceManager {
        let address = environment("NOTIFY_SOCKET").filter(|address| !address.is_empty());
        let socket = address.and_then(|address| match connect(&address) {
            Ok(socket) => Some(socket),
            Err(why) => {
                tracing::warn!(address, %why, "the service manager cannot be reached through NOTIFY_SOCKET");
                None
            }
        });
        let number = |name| environment(name).and_then(|text| text.trim().parse::<u64>().ok());
        let ours = number("WATCHDOG_PID").is_none_or(|pid| pid == u64::from(std::process::id()));
        let watchdog = number("WATCHDOG_USEC").filter(|micros| ours && *micros > 0 && socket.is_some());
        ServiceManager { socket, watchdog: watchdog.map(Duration::from_micros) }
    }

    pub(super) fn ready(&self, address: &str) {
        self.tell(&format!("READY=1\nSTATUS=serving {address}"));
    }

    pub(super) fn stopping(&self) {
        self.tell("STOPPING=1\nSTATUS=draining: attempts that run may end");
    }

    fn tell(&self, state: &str) {
        let Some(socket) = &self.socket else { return };
        if let Err(why) = socket.send(state.as_bytes()) {
            tracing::warn!(%why, state, "the service manager was not told");
        }
    }

    /// Feeds the watchdog as long as the engine is well by its own word, twice in its time. Never ends.
    pub(super) async fn feed(&self, engine: &dyn Engine) -> Infallible {
        let Some(watchdog) = self.watchdog else { return std::future::pending().await };
        let backend = engine.backend();
        let mut ticks = tokio::time::interval(watchdog / 2);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            if let Some(hangs) = engine.writing_for().filter(|since| *since > watchdog) {
                tracing::warn!(?hangs, "the watchdog is not fed: a write to the log does not come back");
                continue;
            }
            match tokio::time::timeout(watchdog / 2, backend.health()).await {
                // A worker whose log has failed leaves by itself; a full disk is waited for.
                Ok(Ok(EngineHealth::Ready | EngineHealth::Draining | EngineHealth::StorageFull { .. })) => {
                    self.tell("WATCHDOG=1");
                }
                Ok(answer) => tracing::warn!(?answer, "the watchdog is not fed: the engine is not well"),
                Err(_) => tracing::warn!("the watchdog is not fed: the engine does not answer"),
            }
        }
    }
}

/// A path, or a name of Linux's abstract namespace behind an `@`.
fn connect(address: &str) -> std::io::Result<UnixDatagram> {
    let socket = UnixDatagram::unbound()?;
    match address.strip_prefix('@') {
        #[cfg(target_os = "linux")]
        Some(name) => {
            use std::os::linux::net::SocketAddrExt;
            socket.connect_addr(&std::os::unix::net::SocketAddr::from_abstract_name(name)?)?;
        }
        _ => socket.connect(address)?,
    }
    // A manager that reads nothing must not stop the worker.
    socket.set_nonblocking(true)?;
    Ok(socket)
}

#[derive(Debug, Args)]
pub struct UnitArgs {
    /// Print a unit for the service manager of this user, not of the machine.
    #[arg(long)]
    user: bool,
    /// The options of `worker run` to start the worker with, after `--`.
    #[arg(last = true, value_name = "OPTION")]
    options: Vec<String>,
}

/// Prints the unit. It writes no file and starts nothing.
pub(super) fn unit(screen: &mut Screen, global: &Global, loaded: &Loaded, args: &UnitArgs) -> Result<Exit, CliError> {
    let line = ["bosun", "worker", "run"].into_iter().chain(args.options.iter().map(String::as_str));
    let parsed = Cli::command().try_get_matches_from(line).map_err(|why| {
        let why = why.to_string();
        let first = why.lines().next().unwrap_or_default().trim_start_matches("error: ").to_owned();
        CliError::usage(format!("worker run: {first}")).help("`bosun worker run --help` lists its options")
    })?;
    let run = parsed.subcommand_matches("worker").and_then(|worker| worker.subcommand_matches("run"));
    let drain = run.and_then(|run| run.get_one::<Duration>("drain_timeout").copied()).unwrap_or_default();
    if let Some(queues) = run.and_then(|run| run.get_many::<String>("queue")) {
        queues.map(TaskQueue::new).collect::<Result<Vec<_>, _>>()?;
    }
    let program =
        std::env::current_exe().map_err(|why| CliError::usage("the path of this program is not known").cause(why))?;
    let absolute = |path: &Path| std::path::absolute(path).unwrap_or_else(|_| path.to_owned()).display().to_string();
    let data = absolute(&global.data);
    let mut words = vec![program.display().to_string(), "--data".to_owned(), data.clone()];
    // The file that is in force here, however it was found: a service begins in another directory, and what the owner forbids
    // must hold there, too.
    if let Some(config) = loaded.file() {
        words.extend(["--config".to_owned(), absolute(config)]);
    }
    if let Some(profile) = loaded.profile() {
        words.extend(["--profile".to_owned(), profile.to_owned()]);
    }
    for (option, file) in [("--epoch-file", &global.epoch_file), ("--token-file", &global.token_file)] {
        words.extend(file.iter().flat_map(|file| [option.to_owned(), absolute(file)]));
    }
    for set in &global.set {
        words.extend(["--set".to_owned(), set.clone()]);
    }
    words.extend(["worker".to_owned(), "run".to_owned()]);
    words.extend(args.options.iter().cloned());
    let text = unit_text(&words, &data, drain, args.user);
    screen.object("worker.unit", json!({ "unit": text }));
    screen.block(text.trim_end());
    let place = if args.user { "~/.config/systemd/user/bosun.service" } else { "/etc/systemd/system/bosun.service" };
    let manager = if args.user { "systemctl --user" } else { "systemctl" };
    let mut variables = loaded.variables();
    // These are in the unit, whoever named them.
    variables.retain(|variable| !["BOSUN_STORE", "BOSUN_EPOCH_FILE", "BOSUN_TOKEN_FILE"].contains(variable));
    if !variables.is_empty() {
        let variables = variables.join(", ");
        screen.note(&format!(
            "set here and not in the unit: {variables}; a service has them if the configuration file says it"
        ));
    }
    screen.note(&format!("write it to {place}, then `{manager} daemon-reload` and `{manager} enable --now bosun`"));
    Ok(Exit::Ok)
}

/// What is longer than a drain may be hung.
const STOP_GRACE: Duration = Duration::from_secs(15);

fn unit_text(words: &[String], data: &str, drain: Duration, user: bool) -> String {
    let command: Vec<String> = words.iter().map(|word| quoted(word)).collect();
    let (command, stop) = (command.join(" "), (drain + STOP_GRACE).as_secs());
    let (wanted_by, data) = (if user { "default.target" } else { "multi-user.target" }, data.replace('%', "%%"));
    format!(
        "[Unit]\n\
         Description=Bosun worker of {data}\n\
         After=network-online.target\n\
         Wants=network-online.target\n\
         \n\
         [Service]\n\
         Type=notify\n\
         NotifyAccess=main\n\
         ExecStart={command}\n\
         # The first SIGTERM drains; the processes that activities started are ended by the worker.\n\
         KillMode=mixed\n\
         TimeoutStopSec={stop}\n\
         WatchdogSec=60\n\
         Restart=on-failure\n\
         RestartSec=1\n\
         # A command line, a store or a permission that is wrong is wrong again: 2, 21 and 32 are not restarted.\n\
         RestartPreventExitStatus=2 21 32\n\
         # The worker puts what activities start into control groups of its own.\n\
         Delegate=yes\n\
         UMask=0077\n\
         LimitNOFILE=65536\n\
         NoNewPrivileges=yes\n\
         \n\
         [Install]\n\
         WantedBy={wanted_by}\n"
    )
}

/// A word of `ExecStart`: `%` and `$` have a meaning there, and blanks separate.
fn quoted(word: &str) -> String {
    let word = word.replace('\\', "\\\\").replace('"', "\\\"").replace('%', "%%").replace('$', "$$");
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=,+@%$".contains(c);
    if !word.is_empty() && word.chars().all(plain) { word } else { format!("\"{word}\"") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(variables: &[(&str, &str)]) -> ServiceManager {
        ServiceManager::of(&|name| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).into()))
    }

    fn received(socket: &UnixDatagram) -> String {
        let mut buffer = [0; 256];
        let length = socket.recv(&mut buffer).unwrap();
        String::from_utf8(buffer[..length].to_vec()).unwrap()
    }

    #[test]
    fn the_manager_is_told_through_a_path_or_an_abstract_name() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("notify");
        let by_path = UnixDatagram::bind(&path).unwrap();
        of(&[("NOTIFY_SOCKET", path.to_str().unwrap())]).ready("http://127.0.0.1:1");
        assert_eq!(received(&by_path), "READY=1\nSTATUS=serving http://127.0.0.1:1");

        use std::os::linux::net::SocketAddrExt;
        let name = format!("bosun-test-{}", std::process::id());
        let address = std::os::unix::net::SocketAddr::from_abstract_name(&name).unwrap();
        let by_name = UnixDatagram::bind_addr(&address).unwrap();
        of(&[("NOTIFY_SOCKET", &format!("@{name}"))]).stopping();
        assert!(received(&by_name).starts_with("STOPPING=1\n"));
    }

    #[test]
    fn the_watchdog_is_ours_only_with_our_pid_and_a_socket() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("notify");
        let _manager = UnixDatagram::bind(&path).unwrap();
        let (socket, own) = (("NOTIFY_SOCKET", path.to_str().unwrap()), std::process::id().to_string());
        let watchdog = |variables: &[(&str, &str)]| of(variables).watchdog;
        assert_eq!(watchdog(&[socket, ("WATCHDOG_USEC", "2000000")]), Some(Duration::from_secs(2)));
        assert_eq!(watchdog(&[socket, ("WATCHDOG_USEC", "5"), ("WATCHDOG_PID", &own)]), Some(Duration::from_micros(5)));
        assert_eq!(watchdog(&[socket, ("WATCHDOG_USEC", "5"), ("WATCHDOG_PID", "1")]), None);
        assert_eq!(watchdog(&[socket, ("WATCHDOG_USEC", "0")]), None);
        assert_eq!(watchdog(&[("WATCHDOG_USEC", "5")]), None, "nobody to feed");
        let gone = dir.path().join("gone");
        assert!(of(&[("NOTIFY_SOCKET", gone.to_str().unwrap())]).socket.is_none(), "and nothing breaks");
    }

    #[test]
    fn words_of_a_unit_keep_what_they_are() {
        let words: Vec<String> =
            ["/opt/bosun", "--data", "/srv/a b", "100%", "$HOME", "say \"x\""].map(String::from).into();
        let text = unit_text(&words, "/srv/a b", Duration::from_secs(30), true);
        assert!(text.contains("ExecStart=/opt/bosun --data \"/srv/a b\" 100%% $$HOME \"say \\\"x\\\"\"\n"), "{text}");
        assert!(text.contains("TimeoutStopSec=45\n") && text.contains("WantedBy=default.target\n"), "{text}");
    }
}
