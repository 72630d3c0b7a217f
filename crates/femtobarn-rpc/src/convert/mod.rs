//! The catalogue's types as messages, and back.
//!
//! A field that is left out of a message is 0 or empty, as its definition says; a malformed message is
//! [`Error::Invalid`].

use femtobarn_catalog::{Error, Result};
use uuid::Uuid;

mod commit;
mod error;
mod locks;
mod replication;
mod rows;
mod servers;
mod survey;
#[cfg(test)]
mod tests;

pub use commit::published;
pub use error::{call_status, failure_of, refusal, status_of};
pub use replication::{answers_of, rows_of};
pub use survey::{ClientOwner, SessionSurvey, SessionWait};

/// Decodes a UUID.
///
/// # Errors
/// [`Error::Invalid`] unless it has 16 bytes.
pub fn uuid(bytes: &[u8]) -> Result<Uuid> {
    Uuid::from_slice(bytes)
        .map_err(|_| invalid(format!("malformed message: a UUID of {} bytes", bytes.len())))
}

/// A required part of a message.
///
/// # Errors
/// [`Error::Invalid`] if it is missing.
pub fn needed<T>(part: Option<T>, what: &str) -> Result<T> {
    part.ok_or_else(|| invalid(format!("malformed message: no {what}")))
}

fn invalid(what: String) -> Error {
    Error::Invalid { what }
}
