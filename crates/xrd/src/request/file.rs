//! Requests about open files that carry no data: open, close, sync, read, readv, pgread, clone.

use bytes::Bytes;

use super::body::{Body, no_body};
use super::header::REQUEST_HEADER_BYTES;
use crate::codes::RequestCode;
use crate::error::Result;
use crate::flags::{Mode, OpenOptions, OpenTemplateOptions, PageFlags};
use crate::ids::{FileHandle, PathId};
use crate::location::Location;
use crate::segment::{
    CloneRange, Segment, decode_clone_ranges, decode_segments, encode_clone_ranges, encode_segments,
};
use crate::wire::{Reader, Writer};

/// Opens a file. Section 3, kXR_open.
///
/// Answer: [`crate::response::OpenAnswer`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Open {
    /// The permissions of a new file.
    pub mode: Mode,
    /// Options.
    pub options: OpenOptions,
    /// More options (5.2.0; zero in older clients).
    pub template_options: OpenTemplateOptions,
    /// The open file that `template_options` refer to.
    pub template: FileHandle,
    /// The file.
    pub location: Location,
}

impl Body for Open {
    const CODE: RequestCode = RequestCode::OPEN;

    fn decode(parameters: &mut Reader<'_>, body: &Bytes) -> Result<Self> {
        let mode = Mode(parameters.u16()?);
        let options = OpenOptions(parameters.u16()?);
        let template_options = OpenTemplateOptions(parameters.u16()?);
        parameters.take(6)?;
        let template = FileHandle(parameters.array()?);
        let location = Location::of_body("open", body)?;
        Ok(Open { mode, options, template_options, template, location })
    }

    fn encode(&self, parameters: &mut Writer, body: &mut Writer) {
        parameters.u16(self.mode.0).u16(self.options.0).u16(self.template_options.0);
        parameters.zeros(6).raw(&self.template.0);
        body.raw(self.location.as_bytes());
    }
}

macro_rules! handle_requests {
    ($($(#[$doc:meta])* $name:ident = $code:ident $what:literal,)+) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub struct $name {
            /// The file.
            pub handle: FileHandle,
        }

        impl Body for $name {
            const CODE: RequestCode = RequestCode::$code;

            fn decode(parameters: &mut Reader<'_>, body: &Bytes) -> Result<Self> {
                no_body($what, body)?;
                Ok($name { handle: FileHandle(parameters.array()?) })
            }

            fn encode(&self, parameters: &mut Writer, _body: &mut Writer) {
                parameters.raw(&self.handle.0);
            }
        }
    )+};
}

handle_requests! {
    /// Closes a file. Section 3, kXR_close.
    ///
    /// Answer: empty. Fails if pages with wrong checksums were not corrected.
    Close = CLOSE "close",
    /// Syncs a file. Section 3, kXR_sync.
    ///
    /// Answer: empty.
    Sync = SYNC "sync",
}

/// Reads a piece of a file. Section 3, kXR_read.
///
/// Answer: the data, fewer or none at the file's end, in any number of parts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Read {
    /// The piece.
    pub segment: Segment,
    /// The stream of the answer, and pieces to read ahead.
    pub arguments: Option<ReadArguments>,
}

/// The stream of an answer, and read-ahead hints.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReadArguments {
    /// The stream of the answer.
    pub path: PathId,
    /// Pieces to read ahead; at most [`crate::limits::SEGMENTS_MAX`].
    pub ahead: Vec<Segment>,
}

impl Body for Read {
    const CODE: RequestCode = RequestCode::READ;

    fn decode(parameters: &mut Reader<'_>, body: &Bytes) -> Result<Self> {
        let segment = decode_piece(parameters)?;
        if body.is_empty() {
            return Ok(Read { segment, arguments: None });
        }
        let mut reader = Reader::new("read", body, REQUEST_HEADER_BYTES);
        let path = PathId(reader.u8()?);
        reader.take(7)?;
        let ahead = decode_segments(&mut reader)?;
        Ok(Read { segment, arguments: Some(ReadArguments { path, ahead }) })
    }

    fn encode(&self, parameters: &mut Writer, body: &mut Writer) {
        encode_piece(&self.segment, parameters);
        if let Some(arguments) = &self.arguments {
            body.u8(arguments.path.0).zeros(7);
            encode_segments(&arguments.ahead, body);
        }
    }
}

/// Decodes a piece from parameters, where the offset precedes the length, unlike in lists.
fn decode_piece(parameters: &mut Reader<'_>) -> Result<Segment> {
    let handle = FileHandle(parameters.array()?);
    let offset = parameters.offset()?;
    Ok(Segment { handle, offset, length: parameters.length()? })
}

fn encode_piece(segment: &Segment, parameters: &mut Writer) {
    parameters.raw(&segment.handle.0).offset(segment.offset).length(segment.length);
}

/// Reads a piece of a file with checksums of its pages. Section 3, kXR_pgread.
///
/// Answer: [`crate::response::Status`], in any number of parts, each with its offset as information
/// and [pages](crate::page) as data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PgRead {
    /// The piece.
    pub segment: Segment,
    /// The stream of the answer; absent if the body is empty.
    pub path: Option<PathId>,
    /// Options; they require a path, and a body of two bytes.
    pub flags: Option<PageFlags>,
}

impl Body for PgRead {
    const CODE: RequestCode = RequestCode::PG_READ;

    fn decode(parameters: &mut Reader<'_>, body: &Bytes) -> Result<Self> {
        let segment = decode_piece(parameters)?;
        let mut reader = Reader::new("pgread", body, REQUEST_HEADER_BYTES);
        let path = match reader.remaining() {
            0 => None,
            _ => Some(PathId(reader.u8()?)),
        };
        let flags = match reader.remaining() {
            0 => None,
            _ => Some(PageFlags(reader.u8()?)),
        };
        reader.end()?;
        Ok(PgRead { segment, path, flags })
    }

    fn encode(&self, parameters: &mut Writer, body: &mut Writer) {
        encode_piece(&self.segment, parameters);
        match (self.path, self.flags) {
            (None, None) => {}
            (Some(path), None) => _ = body.u8(path.0),
            (path, Some(flags)) => _ = body.u8(path.unwrap_or_default().0).u8(flags.0),
        }
    }
}

/// Reads many pieces of open files. Section 3, kXR_readv.
///
/// Answer: [`crate::segment::SegmentData`] one after the other, in any number of parts that end
/// where segments end. The request fails if a piece is not completely in its file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadV {
    /// The stream of the answer.
    pub path: PathId,
    /// The pieces: 1 to [`crate::limits::SEGMENTS_MAX`].
    pub segments: Vec<Segment>,
}

impl Body for ReadV {
    const CODE: RequestCode = RequestCode::READ_V;

    fn decode(parameters: &mut Reader<'_>, body: &Bytes) -> Result<Self> {
        parameters.take(15)?;
        let path = PathId(parameters.u8()?);
        let mut reader = Reader::new("readv", body, REQUEST_HEADER_BYTES);
        if body.is_empty() {
            return Err(reader.malformed("must have at least one segment"));
        }
        Ok(ReadV { path, segments: decode_segments(&mut reader)? })
    }

    fn encode(&self, parameters: &mut Writer, body: &mut Writer) {
        parameters.zeros(15).u8(self.path.0);
        encode_segments(&self.segments, body);
    }
}

/// Clones ranges of open files into another one without moving the data. kXR_clone of the
/// binary definitions of 5.2.0.
///
/// Answer: empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CloneRanges {
    /// The target file, open for writing.
    pub target: FileHandle,
    /// The ranges: at most [`crate::limits::CLONE_RANGES_MAX`].
    pub ranges: Vec<CloneRange>,
}

impl Body for CloneRanges {
    const CODE: RequestCode = RequestCode::CLONE;

    fn decode(parameters: &mut Reader<'_>, body: &Bytes) -> Result<Self> {
        let target = FileHandle(parameters.array()?);
        let mut reader = Reader::new("clone", body, REQUEST_HEADER_BYTES);
        Ok(CloneRanges { target, ranges: decode_clone_ranges(&mut reader)? })
    }

    fn encode(&self, parameters: &mut Writer, body: &mut Writer) {
        parameters.raw(&self.target.0);
        encode_clone_ranges(&self.ranges, body);
    }
}
