//! Status responses, which have a checksum of their own: the answers to pgread and pgwrite.
//!
//! ```text
//! 8      12       14        15     16       20       24
//! | crc32c | stream | request | kind | zero[4] | data i32 | information ..   and then the data
//!          |<-------------- what the crc32c covers ------------------>|
//! ```
//!
//! 1. The header's length counts the body: 16 bytes and the information, which is the offset of
//!    the data in their file, 8 bytes. It does not count the data.
//! 2. The data of pgread are [pages](crate::page); those of pgwrite are [`Corrections`] or nothing.
//! 3. Parts of the answer to a pgread end at page boundaries of the file: clients take a split page for a damaged one
//!    and read it again.
//! 4. After a wrong checksum the length of the data is unreliable, so the connection is lost.
//!
//! Source: "The XRootD Protocol" 5.1.1, section 2, kXR_status, and section 3, kXR_pgread and
//! kXR_pgwrite.

use bytes::Bytes;

use super::RESPONSE_HEADER_BYTES;
use crate::codes::RequestCode;
use crate::error::{Error, Result};
use crate::ids::StreamId;
use crate::limits::BAD_PAGES_PER_FILE_MAX;
use crate::page::checksum;
use crate::wire::{Reader, Writer};

/// Bytes of a status response's body without information.
pub(crate) const STATUS_BODY_BYTES: usize = 16;

const FIRST_REQUEST: u16 = 3000;

/// The body of a status response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status {
    /// The code of the request: pgread or pgwrite.
    pub request: RequestCode,
    /// Whether more responses follow.
    pub kind: StatusKind,
    /// The offset of the data in their file.
    pub offset: u64,
    /// Bytes of data that follow the body; at most 2^31 - 1.
    pub data_bytes: u32,
}

/// Whether more responses follow a status response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StatusKind(pub u8);

impl StatusKind {
    /// No parts follow.
    pub const FINAL: StatusKind = StatusKind(0);
    /// More data follow.
    pub const PARTIAL: StatusKind = StatusKind(1);
    /// A report of progress; the answer follows.
    pub const PROGRESS: StatusKind = StatusKind(2);
}

impl Status {
    pub(super) fn decode(stream: StreamId, body: &Bytes) -> Result<Self> {
        check(body)?;
        let reader = &mut Reader::new("status", &body[4..], RESPONSE_HEADER_BYTES + 4);
        if reader.array()? != stream.0 {
            return Err(reader.malformed("the stream differs from that of the header"));
        }
        let request = RequestCode(FIRST_REQUEST + u16::from(reader.u8()?));
        let kind = StatusKind(reader.u8()?);
        reader.take(4)?;
        let data_bytes = reader.length()?;
        Ok(Status { request, kind, offset: reader.offset()?, data_bytes })
    }

    pub(super) fn encode(&self, stream: StreamId) -> Result<Vec<u8>> {
        let request = self.request.0.checked_sub(FIRST_REQUEST).map(u8::try_from);
        let Some(Ok(request)) = request else {
            return Err(Error::invalid(format!("unknown request {}", self.request.0)));
        };
        let mut covered = Writer::default();
        covered.raw(&stream.0).u8(request).u8(self.kind.0).zeros(4);
        covered.length(self.data_bytes).offset(self.offset);
        let covered = covered.finish()?;
        Ok([&checksum(&covered).to_be_bytes()[..], &covered].concat())
    }
}

fn check(body: &[u8]) -> Result<()> {
    let reader = &mut Reader::new("status", body, RESPONSE_HEADER_BYTES);
    let stated = reader.u32()?;
    if reader.remaining() < STATUS_BODY_BYTES - 4 {
        return Err(reader.malformed(format!("a status of {} bytes is too short", body.len())));
    }
    let found = checksum(reader.rest());
    if stated != found {
        let reason = format!("checksum {stated:08x}, computed {found:08x}");
        return Err(Error::malformed("status", RESPONSE_HEADER_BYTES, reason));
    }
    Ok(())
}

/// Bytes of data that follow the body of a status response, whose checksum is verified first.
pub(crate) fn status_data_bytes(body: &[u8]) -> Result<u32> {
    check(body)?;
    Reader::new("status", &body[12..], RESPONSE_HEADER_BYTES + 12).length()
}

/// Pages of a pgwrite that arrived with wrong checksums. The client sends each once more, in a pgwrite of its own with
/// [`crate::flags::PageFlags::RETRY`].
///
/// ```text
/// crc32c of what follows u32   bytes of the first page i16   bytes of the last i16   offset i64 ..
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Corrections {
    /// Bytes of data of the first page.
    pub first_bytes: u16,
    /// Bytes of data of the last page.
    pub last_bytes: u16,
    /// The offsets of the pages in the file.
    pub offsets: Vec<u64>,
}

impl Corrections {
    /// Decodes the data of the response.
    ///
    /// # Errors
    /// [`Error::Malformed`] if the checksum is wrong or an offset is truncated; [`Error::TooLong`] for more than
    /// [`BAD_PAGES_PER_FILE_MAX`] pages.
    pub fn decode(data: &[u8]) -> Result<Self> {
        let reader = &mut Reader::new("pgwrite answer", data, 0);
        let stated = reader.u32()?;
        if stated != checksum(&data[4..]) {
            return Err(reader.malformed("the checksum of the corrections is wrong"));
        }
        let (first_bytes, last_bytes) = (reader.u16()?, reader.u16()?);
        let count = reader.remaining() / 8;
        if count > BAD_PAGES_PER_FILE_MAX {
            let limit = BAD_PAGES_PER_FILE_MAX;
            return Err(Error::too_many_items("pgwrite answer", count, limit));
        }
        let offsets = (0..count).map(|_| reader.offset()).collect::<Result<_>>()?;
        reader.end().map(|()| Corrections { first_bytes, last_bytes, offsets })
    }

    /// Encodes the data of the response.
    ///
    /// # Errors
    /// [`Error::Invalid`] if an offset does not fit in 63 bits; [`Error::TooLong`] for more than
    /// [`BAD_PAGES_PER_FILE_MAX`] pages.
    pub fn encode(&self) -> Result<Vec<u8>> {
        let mut covered = Writer::default();
        if self.offsets.len() > BAD_PAGES_PER_FILE_MAX {
            let (count, limit) = (self.offsets.len(), BAD_PAGES_PER_FILE_MAX);
            covered.fail(Error::too_many_items("pgwrite answer", count, limit));
        }
        covered.u16(self.first_bytes).u16(self.last_bytes);
        self.offsets.iter().for_each(|offset| _ = covered.offset(*offset));
        let covered = covered.finish()?;
        Ok([&checksum(&covered).to_be_bytes()[..], &covered].concat())
    }
}
