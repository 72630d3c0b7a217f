//! Paths with their opaque information: `/store/run7.root?authz=..&fb.csn=41`.
//!
//! 1. A location has at least one byte, no zero byte, and at most
//!    [`LOCATION_BYTES_MAX`] bytes.
//! 2. The text behind the first `?` is opaque: it is kept byte for byte, split only on request, and never
//!    unescaped.
//! 3. Paths are not checked: whether they are absolute, contain `..` or repeat slashes is the server's concern.
//!
//! Source: "The XRootD Protocol" 5.1.1, section 2, "Path names" and "CGI information".

use std::fmt;

use bytes::Bytes;

use crate::error::{Error, Result};
use crate::limits::{LOCATION_BYTES_MAX, LOCATIONS_MAX};
use crate::wire::{shared, without_end};

/// A path, with opaque information or without.
///
/// ```
/// let location = xrd::Location::new("/lhc.fed/run7.root?fb.csn=41&authz=Bearer%20x")?;
/// assert_eq!(location.path(), b"/lhc.fed/run7.root");
/// assert_eq!(location.opaque(), Some(&b"fb.csn=41&authz=Bearer%20x"[..]));
/// assert_eq!(location.value_of("authz"), Some(&b"Bearer%20x"[..]));
/// # Ok::<(), xrd::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Location {
    bytes: Bytes,
    path_bytes: usize,
}

impl Location {
    /// A location from its text on the wire.
    ///
    /// # Errors
    /// [`Error::Invalid`] if it is empty or has a zero byte; [`Error::TooLong`] if it is longer than
    /// [`LOCATION_BYTES_MAX`].
    pub fn new(text: impl Into<Bytes>) -> Result<Self> {
        let bytes = text.into();
        if bytes.is_empty() || bytes.contains(&0) {
            return Err(Error::invalid("a path must not be empty or have a zero byte"));
        }
        if bytes.len() > LOCATION_BYTES_MAX {
            return Err(Error::too_many_bytes("path", bytes.len(), LOCATION_BYTES_MAX));
        }
        let path_bytes = bytes.iter().position(|&byte| byte == b'?').unwrap_or(bytes.len());
        Ok(Location { bytes, path_bytes })
    }

    /// The path alone.
    pub fn path(&self) -> &[u8] {
        &self.bytes[..self.path_bytes]
    }

    /// The text behind the first `?`.
    pub fn opaque(&self) -> Option<&[u8]> {
        self.bytes.get(self.path_bytes + 1..)
    }

    /// Path and opaque information, as on the wire.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The keys and values of the opaque information, in their order.
    pub fn pairs(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        opaque_pairs(self.opaque().unwrap_or_default())
    }

    /// The first value of this key of the opaque information.
    pub fn value_of(&self, key: &str) -> Option<&[u8]> {
        self.pairs().find(|(name, _)| *name == key.as_bytes()).map(|(_, value)| value)
    }

    /// A whole body as a location; one zero byte may end it.
    pub(crate) fn of_body(what: &'static str, body: &Bytes) -> Result<Self> {
        Self::part(what, body, without_end(body))
    }

    /// A part of a body as a location.
    pub(crate) fn part(what: &'static str, body: &Bytes, part: &[u8]) -> Result<Self> {
        let offset = part.as_ptr() as usize - body.as_ptr() as usize;
        Self::new(shared(body, part)).map_err(|error| match error {
            Error::Invalid { what: reason } => Error::malformed(what, 24 + offset, reason),
            other => other,
        })
    }
}

impl fmt::Debug for Location {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Opaque information may hold tokens, which must not reach logs.
        let opaque = if self.opaque().is_some() { "?.." } else { "" };
        write!(formatter, "Location({}{opaque})", self.path().escape_ascii())
    }
}

/// Splits opaque information into its `key=value` pairs, which `&` separates. A key without `=` has an empty value;
/// empty pieces are skipped.
///
/// ```
/// let pairs: Vec<_> = xrd::opaque_pairs(b"&oss.asize=12&flag").collect();
/// assert_eq!(pairs, [(&b"oss.asize"[..], &b"12"[..]), (&b"flag"[..], &b""[..])]);
/// ```
pub fn opaque_pairs(opaque: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> {
    opaque.split(|&byte| byte == b'&').filter(|piece| !piece.is_empty()).map(|piece| {
        match piece.iter().position(|&byte| byte == b'=') {
            Some(end) => (&piece[..end], &piece[end + 1..]),
            None => (piece, &[][..]),
        }
    })
}

/// The lines of a body as locations; empty lines are left out.
pub(crate) fn locations_of(what: &'static str, body: &Bytes) -> Result<Vec<Location>> {
    let lines = without_end(body).split(|&byte| byte == b'\n').filter(|line| !line.is_empty());
    let count = lines.clone().count();
    if count > LOCATIONS_MAX {
        return Err(Error::too_many_items(what, count, LOCATIONS_MAX));
    }
    lines.map(|line| Location::part(what, body, line)).collect()
}
