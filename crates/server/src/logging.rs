//! Logs: to standard error, as text for people and as JSON for machines.

use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;
use tracing_subscriber::util::SubscriberInitExt;

use crate::config::{ConfigError, LogConfig, LogFormat};

/// Starts logging; once per process.
pub fn start(config: &LogConfig) -> Result<(), ConfigError> {
    let refuse = |problem: String| ConfigError::flag("log", problem);
    let filter = EnvFilter::try_new(&config.log).map_err(|error| refuse(error.to_string()))?;
    let terminal = std::io::stderr().is_terminal();
    let json = match config.log_format {
        LogFormat::Auto => !terminal,
        LogFormat::Text => false,
        LogFormat::Json => true,
    };
    let lines = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(terminal);
    let started = if json {
        lines.json().flatten_event(true).finish().try_init()
    } else {
        lines.finish().try_init()
    };
    started.map_err(|error| refuse(error.to_string()))
}
