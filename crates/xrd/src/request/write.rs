//! Requests with data: write, pgwrite, writev.
//!
//! The data are not part of these types, since they may be too large to hold: they follow the request on the wire,
//! [`super::Request::data_bytes`] of them, or arrive on a bound stream ([`super::Request::data_elsewhere`]).

use bytes::Bytes;

use super::body::Body;
use super::header::{REQUEST_HEADER_BYTES, RequestHeader};
use crate::codes::RequestCode;
use crate::error::{Error, Result};
use crate::flags::{PageFlags, WriteVOptions};
use crate::ids::{FileHandle, PathId};
use crate::limits::WRITE_V_DATA_BYTES_MAX;
use crate::segment::{Segment, decode_segments, encode_segments};
use crate::wire::{Reader, Writer};

/// Writes a piece of a file. Section 3, kXR_write.
///
/// Answer: empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Write {
    /// The file.
    pub handle: FileHandle,
    /// The first byte in the file.
    pub offset: u64,
    /// The stream of the data. If it is a bound one, no data follow the request.
    pub path: PathId,
    /// Bytes of data; the header's length.
    pub length: u32,
}

impl Body for Write {
    const CODE: RequestCode = RequestCode::WRITE;

    fn decode(parameters: &mut Reader<'_>, _body: &Bytes) -> Result<Self> {
        let handle = FileHandle(parameters.array()?);
        let (offset, path) = (parameters.offset()?, PathId(parameters.u8()?));
        parameters.take(3)?;
        Ok(Write { handle, offset, path, length: parameters.length()? })
    }

    fn encode(&self, parameters: &mut Writer, _body: &mut Writer) {
        parameters.raw(&self.handle.0).offset(self.offset).u8(self.path.0);
        refuse_long_data(self.length, parameters);
    }

    fn length(&self, _body: usize) -> usize {
        self.length as usize
    }

    fn data_bytes(&self) -> u64 {
        data_here(self.path, self.length)
    }
}

/// Writes a piece of a file with checksums of its pages. Section 3, kXR_pgwrite.
///
/// Answer: [`crate::response::Status`] with the offset and, if checksums were wrong,
/// [`crate::response::Corrections`] as data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PgWrite {
    /// The file.
    pub handle: FileHandle,
    /// The first byte in the file.
    pub offset: u64,
    /// The stream of the data. If it is a bound one, no data follow the request.
    pub path: PathId,
    /// Whether it corrects an earlier write.
    pub flags: PageFlags,
    /// Bytes of data with their checksums; the header's length.
    pub length: u32,
}

impl Body for PgWrite {
    const CODE: RequestCode = RequestCode::PG_WRITE;

    fn decode(parameters: &mut Reader<'_>, _body: &Bytes) -> Result<Self> {
        let handle = FileHandle(parameters.array()?);
        let (offset, path) = (parameters.offset()?, PathId(parameters.u8()?));
        let flags = PageFlags(parameters.u8()?);
        parameters.take(2)?;
        Ok(PgWrite { handle, offset, path, flags, length: parameters.length()? })
    }

    fn encode(&self, parameters: &mut Writer, _body: &mut Writer) {
        parameters.raw(&self.handle.0).offset(self.offset).u8(self.path.0).u8(self.flags.0);
        refuse_long_data(self.length, parameters);
    }

    fn length(&self, _body: usize) -> usize {
        self.length as usize
    }

    fn data_bytes(&self) -> u64 {
        data_here(self.path, self.length)
    }
}

/// Bytes of data that follow the header of a write or pgwrite, whether the request is valid or not.
pub(crate) fn data_behind(header: &RequestHeader) -> u64 {
    // Both have the path after the handle and the offset.
    data_here(PathId(header.parameters[12]), header.length)
}

impl RequestHeader {
    /// Whether data of the request, valid or not, arrive on another connection of the session.
    #[must_use]
    pub fn data_elsewhere(&self) -> bool {
        let is_write = matches!(self.code, RequestCode::WRITE | RequestCode::PG_WRITE);
        is_write && self.length > 0 && data_behind(self) == 0
    }
}

fn data_here(path: PathId, length: u32) -> u64 {
    if path.is_here() { u64::from(length) } else { 0 }
}

fn refuse_long_data(length: u32, writer: &mut Writer) {
    if i32::try_from(length).is_err() {
        writer.fail(Error::invalid(format!(
            "a write of {length} bytes must be split into pieces of less than 2^31"
        )));
    }
}

/// Writes many pieces of open files. Section 3, kXR_writev.
///
/// The header's length counts the list alone; the data of all pieces follow one after the other.
///
/// Answer: empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WriteV {
    /// Options.
    pub options: WriteVOptions,
    /// The pieces: at most [`crate::limits::SEGMENTS_MAX`].
    pub segments: Vec<Segment>,
}

impl Body for WriteV {
    const CODE: RequestCode = RequestCode::WRITE_V;

    fn decode(parameters: &mut Reader<'_>, body: &Bytes) -> Result<Self> {
        let options = WriteVOptions(parameters.u8()?);
        let mut reader = Reader::new("writev", body, REQUEST_HEADER_BYTES);
        let request = WriteV { options, segments: decode_segments(&mut reader)? };
        request.check().map(|()| request)
    }

    fn encode(&self, parameters: &mut Writer, body: &mut Writer) {
        parameters.u8(self.options.0);
        encode_segments(&self.segments, body);
        if let Err(error) = self.check() {
            body.fail(error);
        }
    }

    fn data_bytes(&self) -> u64 {
        self.segments.iter().map(|segment| u64::from(segment.length)).sum()
    }
}

impl WriteV {
    fn check(&self) -> Result<()> {
        match usize::try_from(self.data_bytes()).unwrap_or(usize::MAX) {
            bytes if bytes <= WRITE_V_DATA_BYTES_MAX => Ok(()),
            bytes => Err(Error::too_many_bytes("data of a writev", bytes, WRITE_V_DATA_BYTES_MAX)),
        }
    }
}
