//! The log of a server process, on standard error, as text or JSON. Its level can change while the process runs.

use std::io::IsTerminal;
use std::sync::OnceLock;

use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::Subscriber;

use crate::config::{LogConfig, LogFormat};

/// Starts the log of this process. Further calls do nothing.
///
/// # Errors
/// A text, if the level is invalid.
pub fn start(log: &LogConfig) -> Result<(), String> {
    let builder = Subscriber::builder().with_env_filter(filter(log)?).with_writer(std::io::stderr);
    // A program that embeds the server may have set up its own log, which is kept.
    let set: SetFilter = match log.format {
        LogFormat::Text => {
            let is_terminal = std::io::stderr().is_terminal();
            let builder = builder.with_ansi(is_terminal).with_filter_reloading();
            let handle = builder.reload_handle();
            match builder.try_init() {
                Ok(()) => Box::new(move |filter| handle.reload(filter).is_ok()),
                Err(_) => return Ok(()),
            }
        }
        LogFormat::Json => {
            let builder = builder.json().with_filter_reloading();
            let handle = builder.reload_handle();
            match builder.try_init() {
                Ok(()) => Box::new(move |filter| handle.reload(filter).is_ok()),
                Err(_) => return Ok(()),
            }
        }
    };
    // Fails only in a second call, which does not start a log.
    drop(SET.set(set));
    Ok(())
}

/// Changes the level of this process's log; false if the log was set up by an embedding program.
///
/// # Errors
/// A text, if the level is invalid.
pub fn set_level(log: &LogConfig) -> Result<bool, String> {
    let filter = filter(log)?;
    Ok(SET.get().is_some_and(|set| set(filter)))
}

/// Changes the filter of the started log.
type SetFilter = Box<dyn Fn(EnvFilter) -> bool + Send + Sync>;

static SET: OnceLock<SetFilter> = OnceLock::new();

fn filter(log: &LogConfig) -> Result<EnvFilter, String> {
    EnvFilter::try_new(&log.level)
        .map_err(|error| format!("log.level: invalid level {:?}: {error}", log.level))
}
