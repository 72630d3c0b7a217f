//! The identities of databases, containers, objects and commits.
//!
//! Invariants:
//! 1. Ids start at 1. Container 0 marks a null link.
//! 2. An id is never re-used, not even if its transaction was rolled back.
//! 3. Commit sequence numbers grow. [`Csn::ZERO`] is the empty federation, before its first commit.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// The identity of a database, unique within its federation.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct DatabaseId(pub u32);

/// The identity of a container, unique within its federation.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct ContainerId(pub u32);

/// A commit sequence number: identifies a commit, and the snapshot that it made.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Csn(pub u64);

/// The identity of an object, which never changes: database, container and entry. Its text form is `3-7-12`.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct Oid {
    /// The database that holds the object.
    pub database: DatabaseId,
    /// The container within that database.
    pub container: ContainerId,
    /// The entry within that container, from 0.
    pub entry: u64,
}

impl Csn {
    /// The empty federation, before its first commit.
    pub const ZERO: Csn = Csn(0);
    /// Later than every commit: a look-up at this CSN sees the newest snapshot.
    pub const MAX: Csn = Csn(i64::MAX as u64);
}

impl Oid {
    /// The object at `entry` of a container.
    pub fn new(database: DatabaseId, container: ContainerId, entry: u64) -> Self {
        Oid { database, container, entry }
    }
}

impl fmt::Display for DatabaseId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for ContainerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for Csn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for Oid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}-{}", self.database, self.container, self.entry)
    }
}

impl FromStr for Oid {
    type Err = ParseOidError;

    fn from_str(text: &str) -> Result<Self, ParseOidError> {
        parse_oid(text).ok_or_else(|| ParseOidError { text: text.to_owned() })
    }
}

/// A text that should have been an OID.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid OID {text:?}: must be database-container-entry, such as 3-7-12")]
pub struct ParseOidError {
    text: String,
}

fn parse_oid(text: &str) -> Option<Oid> {
    let mut parts = text.split('-');
    let oid = Oid {
        database: DatabaseId(parse_number(parts.next()?)?),
        container: ContainerId(parse_number(parts.next()?)?),
        entry: parse_number(parts.next()?)?,
    };
    parts.next().is_none().then_some(oid)
}

/// Accepts digits only: the standard library also accepts a leading `+`, which would give one OID two spellings.
fn parse_number<T: FromStr>(digits: &str) -> Option<T> {
    digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn oid_is_written_and_read_back() {
        let oid = Oid::new(DatabaseId(3), ContainerId(7), u64::MAX);
        assert_eq!(oid.to_string(), "3-7-18446744073709551615");
        assert_eq!(oid.to_string().parse::<Oid>().unwrap(), oid);
    }

    #[test]
    fn text_that_is_not_an_oid_is_refused() {
        for text in
            ["", "3", "3-7", "3-7-", "3-7-1-2", "a-7-1", "+3-7-1", "3-7--1", "4294967296-1-1"]
        {
            let error = crate::Error::from(text.parse::<Oid>().unwrap_err());
            assert_eq!(error.kind(), crate::ErrorKind::Invalid, "{text:?}");
        }
    }
}
