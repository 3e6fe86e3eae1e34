//! Logs: to standard error, as text for people and as JSON for machines.

use std::io::IsTerminal;

use tracing::Level;
use tracing_subscriber::filter::{FilterExt, filter_fn};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer, Registry, fmt};

use crate::config::{ConfigError, DEFAULT_LOG, LogConfig, LogFormat};

/// What is logged between the lines of a live display, unless more is asked
/// for.
const QUIET: &str = "error";

/// Starts logging; once per process. A `quiet` command draws on the terminal
/// itself, so the default is less.
pub fn start(config: &LogConfig, quiet: bool) -> Result<(), ConfigError> {
    let refuse = |problem: String| ConfigError::flag("log", problem);
    let wanted = match config.log.as_str() {
        DEFAULT_LOG if quiet => QUIET,
        wanted => wanted,
    };
    let filter = EnvFilter::try_new(wanted).map_err(|error| refuse(error.to_string()))?;
    let terminal = std::io::stderr().is_terminal();
    let json = match config.log_format {
        LogFormat::Auto => !terminal,
        LogFormat::Text => false,
        LogFormat::Json => true,
    };
    let filter = filter.and(filter_fn(|line| is_fit(line.target(), *line.level())));
    let lines = fmt::layer()
        .with_writer(std::io::stderr)
        .with_ansi(terminal);
    let lines: Box<dyn Layer<Registry> + Send + Sync> = match json {
        true => Box::new(lines.json().flatten_event(true).with_filter(filter)),
        false => Box::new(lines.with_filter(filter)),
    };
    let started = tracing_subscriber::registry().with(lines).try_init();
    started.map_err(|error| refuse(error.to_string()))
}

/// Our own crates: they log ids, and know what is secret.
const OWN: [&str; 5] = ["adapters", "domain", "engine", "operator", "server"];

/// Drivers log frames and requests below `info`, and with them passwords and
/// payloads: of those no filter gets more.
fn is_fit(target: &str, level: Level) -> bool {
    let (krate, _) = target.split_once("::").unwrap_or((target, ""));
    level <= Level::INFO || OWN.contains(&krate)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_peoples_code_says_no_more_than_info() {
        assert!(is_fit("engine::worker", Level::TRACE));
        assert!(is_fit("server", Level::DEBUG));
        assert!(is_fit("lapin::channel", Level::INFO));
        for target in ["lapin::channel", "engineer", "log", "sqlx::query", ""] {
            assert!(!is_fit(target, Level::DEBUG), "{target}");
        }
    }
}
