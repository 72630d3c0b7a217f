//! The frame around the JSON that Femtobarn writes into database files: 8 bytes of magic, the length
//! of the text (`u64`), its XXH3-64 (`u64`), both little-endian, and the text.

use serde::Serialize;
use serde::de::DeserializeOwned;
use twox_hash::XxHash3_64;

use crate::error::{Error, Result};

/// Bytes before the text.
pub const PREAMBLE: usize = 24;
/// A size that suffices for most framed values.
const BYTES_MOSTLY: usize = 2048;

/// Serialises a value as JSON, framed.
pub fn seal(magic: &[u8; 8], value: &impl Serialize) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(BYTES_MOSTLY);
    bytes.extend_from_slice(magic);
    bytes.resize(PREAMBLE, 0);
    serde_json::to_writer(&mut bytes, value).expect("framed values have only names and numbers");
    let (preamble, text) = bytes.split_at_mut(PREAMBLE);
    preamble[8..16].copy_from_slice(&(text.len() as u64).to_le_bytes());
    preamble[16..].copy_from_slice(&XxHash3_64::oneshot(text).to_le_bytes());
    bytes
}

/// Reads the framed value at the front of `bytes`. Bytes after it are ignored.
///
/// # Errors
/// [`Error::Corrupt`] if the magic, the length or the checksum is wrong, or the text is not the JSON of a `T`.
pub fn open<T: DeserializeOwned>(magic: &[u8; 8], bytes: &[u8], what: &str) -> Result<T> {
    let damaged = |reason: &str| Error::Corrupt { what: format!("{what}: {reason}") };
    let text =
        text(magic, bytes).ok_or_else(|| damaged("its magic, length or checksum is wrong"))?;
    serde_json::from_slice(text).map_err(|error| damaged(&error.to_string()))
}

fn text<'a>(magic: &[u8; 8], bytes: &'a [u8]) -> Option<&'a [u8]> {
    let preamble = bytes.get(..PREAMBLE).filter(|preamble| preamble.starts_with(magic))?;
    let length = u64::from_le_bytes(preamble[8..16].try_into().ok()?);
    let end = PREAMBLE.checked_add(usize::try_from(length).ok()?)?;
    let text = bytes.get(PREAMBLE..end)?;
    (XxHash3_64::oneshot(text).to_le_bytes() == preamble[16..]).then_some(text)
}
