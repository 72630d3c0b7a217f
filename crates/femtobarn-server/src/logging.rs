//! The log of a process that serves: on standard error, for people or for machines.

use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::Subscriber;

use crate::config::{Log, LogFormat};

/// Starts the log of this process; a second time does nothing.
///
/// # Errors
/// A text, if the level is none.
pub fn start(log: &Log) -> Result<(), String> {
    let filter = EnvFilter::try_new(&log.level)
        .map_err(|error| format!("log.level: {:?} is no level: {error}", log.level))?;
    let builder = Subscriber::builder().with_env_filter(filter).with_writer(std::io::stderr);
    // Whoever embeds the server may have a log already, which stays.
    let _ = match log.format {
        LogFormat::Text => builder.with_ansi(std::io::stderr().is_terminal()).try_init(),
        LogFormat::Json => builder.json().try_init(),
    };
    Ok(())
}
