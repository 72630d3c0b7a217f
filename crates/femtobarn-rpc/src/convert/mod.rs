//! The catalogue's types as messages, and back.
//!
//! What is left out of a message is 0 or empty, as its definition says; what makes no sense is
//! [`Error::Invalid`].

use femtobarn_catalog::{Error, Result};
use uuid::Uuid;

mod commit;
mod error;
mod locks;
mod rows;
#[cfg(test)]
mod tests;

pub use error::{failure_of, refusal, status_of};

/// A UUID of 16 bytes.
///
/// # Errors
/// [`Error::Invalid`] if there are more or fewer.
pub fn uuid(bytes: &[u8]) -> Result<Uuid> {
    Uuid::from_slice(bytes)
        .map_err(|_| invalid(format!("a message has a UUID of {} bytes", bytes.len())))
}

/// What a message cannot do without.
///
/// # Errors
/// [`Error::Invalid`] if it does.
pub fn needed<T>(part: Option<T>, what: &str) -> Result<T> {
    part.ok_or_else(|| invalid(format!("a message has no {what}")))
}

fn invalid(what: String) -> Error {
    Error::Invalid { what }
}
