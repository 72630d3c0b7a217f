//! The log of a process that serves: on standard error, for people or for machines. How much is told can be
//! changed while it runs.

use std::io::IsTerminal;
use std::sync::OnceLock;

use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::Subscriber;

use crate::config::{LogConfig, LogFormat};

/// Starts the log of this process; a second time does nothing.
///
/// # Errors
/// A text, if the level is none.
pub fn start(log: &LogConfig) -> Result<(), String> {
    let builder = Subscriber::builder().with_env_filter(filter(log)?).with_writer(std::io::stderr);
    // A program that embeds the server may have set a log; it is kept.
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
    // Only the first log of a process was begun.
    drop(SET.set(set));
    Ok(())
}

/// Changes how much the log of this process tells; whether it could: a log of others stays as it is.
///
/// # Errors
/// A text, if the level is none.
pub fn set_level(log: &LogConfig) -> Result<bool, String> {
    let filter = filter(log)?;
    Ok(SET.get().is_some_and(|set| set(filter)))
}

/// What changes the level of the log that was begun.
type SetFilter = Box<dyn Fn(EnvFilter) -> bool + Send + Sync>;

static SET: OnceLock<SetFilter> = OnceLock::new();

fn filter(log: &LogConfig) -> Result<EnvFilter, String> {
    EnvFilter::try_new(&log.level)
        .map_err(|error| format!("log.level: {:?} is not a level: {error}", log.level))
}
