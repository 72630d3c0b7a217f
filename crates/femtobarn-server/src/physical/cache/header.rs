//! The header of a table of pages: the file that they belong to, and its version.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// The extension of the table's file.
pub(super) const TABLE: &str = "pages";
/// Bytes of a header.
pub(super) const HEADER_BYTES: usize = 4096;
/// Bytes of a header before the name.
pub(super) const LEAD_BYTES: usize = 40;
const MAGIC: &[u8; 8] = b"FBPAGES1";

/// A version of a file at the origin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Version {
    pub id: i64,
    pub size: u64,
    pub modified: i64,
}

/// Magic, size, time, id, length of the name, name; at the end the CRC32C of all that.
pub(super) fn encode_header(name: &[u8], version: Version) -> io::Result<[u8; HEADER_BYTES]> {
    let mut header = [0; HEADER_BYTES];
    let numbers = [
        version.size.to_le_bytes(),
        version.modified.to_le_bytes(),
        version.id.to_le_bytes(),
        (name.len() as u64).to_le_bytes(),
    ];
    let lead = [MAGIC.as_slice(), numbers.as_flattened()].concat();
    let (text, checksum) = header.split_at_mut(HEADER_BYTES - 4);
    if lead.len() + name.len() > text.len() {
        return Err(io::ErrorKind::InvalidFilename.into());
    }
    text[..lead.len()].copy_from_slice(&lead);
    text[lead.len()..][..name.len()].copy_from_slice(name);
    checksum.copy_from_slice(&crc32c::crc32c(text).to_le_bytes());
    Ok(header)
}

/// The header of a file; `None` if there is none.
pub(super) fn read_header(stem: &Path) -> io::Result<Option<[u8; HEADER_BYTES]>> {
    let mut header = [0; HEADER_BYTES];
    let read = File::open(stem.with_extension(TABLE))
        .and_then(|table| table.read_exact_at(&mut header, 0));
    match read.map_err(|error| (error.kind(), error)) {
        Ok(()) => Ok(Some(header)),
        Err((io::ErrorKind::NotFound | io::ErrorKind::UnexpectedEof, _)) => Ok(None),
        Err((_, error)) => Err(error),
    }
}

/// The name in a header; `None` if the header is damaged.
pub(super) fn name_in(header: &[u8; HEADER_BYTES]) -> Option<&[u8]> {
    let length = header[LEAD_BYTES - 8..].first_chunk().map(|word| u64::from_le_bytes(*word))?;
    let name = header[LEAD_BYTES..].get(..usize::try_from(length).ok()?)?;
    decode_header(header, name).map(|_| name)
}

pub(super) fn decode_header(header: &[u8; HEADER_BYTES], name: &[u8]) -> Option<Version> {
    let number = |at: usize| header[at..].first_chunk().map(|word| u64::from_le_bytes(*word));
    let version = Version {
        size: number(8)?,
        modified: number(16)?.cast_signed(),
        id: number(24)?.cast_signed(),
    };
    (encode_header(name, version).ok()? == *header).then_some(version)
}
