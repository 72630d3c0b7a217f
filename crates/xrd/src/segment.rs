//! Lists of pieces of open files, for readv, writev and clone.
//!
//! ```text
//! segment      handle[4]  length i32  offset i64                              16 bytes
//! clone range  handle[4]  zero[4]  offset u64  length u64  target offset u64  32 bytes
//! ```
//!
//! Source: "The XRootD Protocol" 5.1.1, section 3, kXR_readv and kXR_writev; the binary definitions
//! of 5.2.0 for kXR_clone.

use bytes::Bytes;

use crate::error::{Error, Result};
use crate::ids::FileHandle;
use crate::limits::{CLONE_RANGES_MAX, SEGMENTS_MAX};
use crate::wire::{Reader, Writer, shared};

/// Bytes of a segment in a list, and of the head before a segment's data.
pub const SEGMENT_BYTES: usize = 16;

const CLONE_RANGE_BYTES: usize = 32;

/// A piece of an open file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Segment {
    /// The file.
    pub handle: FileHandle,
    /// Bytes; at most 2^31 - 1.
    pub length: u32,
    /// The first byte in the file; at most 2^63 - 1.
    pub offset: u64,
}

impl Segment {
    pub(crate) fn decode(reader: &mut Reader<'_>) -> Result<Self> {
        let handle = FileHandle(reader.array()?);
        Ok(Segment { handle, length: reader.length()?, offset: reader.offset()? })
    }

    pub(crate) fn encode(&self, writer: &mut Writer) {
        writer.raw(&self.handle.0).length(self.length).offset(self.offset);
    }
}

/// A range of one open file that is cloned into another (5.2.0).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CloneRange {
    /// The source file.
    pub source: FileHandle,
    /// The first byte in the source.
    pub source_offset: u64,
    /// Bytes.
    pub length: u64,
    /// The first byte in the target.
    pub target_offset: u64,
}

pub(crate) fn decode_segments(reader: &mut Reader<'_>) -> Result<Vec<Segment>> {
    let count = count_of(reader, SEGMENT_BYTES, SEGMENTS_MAX)?;
    (0..count).map(|_| Segment::decode(reader)).collect()
}

pub(crate) fn encode_segments(segments: &[Segment], writer: &mut Writer) {
    if segments.len() > SEGMENTS_MAX {
        writer.fail(Error::too_many_items("segment list", segments.len(), SEGMENTS_MAX));
    }
    segments.iter().for_each(|segment| segment.encode(writer));
}

pub(crate) fn decode_clone_ranges(reader: &mut Reader<'_>) -> Result<Vec<CloneRange>> {
    let count = count_of(reader, CLONE_RANGE_BYTES, CLONE_RANGES_MAX)?;
    (0..count).map(|_| decode_clone_range(reader)).collect()
}

fn decode_clone_range(reader: &mut Reader<'_>) -> Result<CloneRange> {
    let source = FileHandle(reader.array()?);
    reader.take(4)?;
    let (source_offset, length) = (reader.offset()?, reader.offset()?);
    Ok(CloneRange { source, source_offset, length, target_offset: reader.offset()? })
}

pub(crate) fn encode_clone_ranges(ranges: &[CloneRange], writer: &mut Writer) {
    if ranges.len() > CLONE_RANGES_MAX {
        writer.fail(Error::too_many_items("clone list", ranges.len(), CLONE_RANGES_MAX));
    }
    for range in ranges {
        writer.raw(&range.source.0).zeros(4);
        writer.offset(range.source_offset).offset(range.length).offset(range.target_offset);
    }
}

/// The number of items of `size` bytes that are left.
fn count_of(reader: &Reader<'_>, size: usize, limit: usize) -> Result<usize> {
    let bytes = reader.remaining();
    if !bytes.is_multiple_of(size) {
        return Err(
            reader.malformed(format!("a list of {size}-byte items cannot have {bytes} bytes"))
        );
    }
    match bytes / size {
        count if count > limit => Err(Error::too_many_items("segment list", count, limit)),
        count => Ok(count),
    }
}

/// A segment in the answer to a readv: a head of 16 bytes, then the data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SegmentData {
    /// The segment of the data, and their length.
    pub segment: Segment,
    /// The data.
    pub data: Bytes,
}

/// The head of a segment in the answer to a readv, for servers that send the data without a copy.
///
/// # Errors
/// [`Error::Invalid`] if the length or the offset has more bits than the protocol allows.
pub fn segment_head(segment: &Segment) -> Result<[u8; SEGMENT_BYTES]> {
    let mut writer = Writer::default();
    segment.encode(&mut writer);
    let mut head = [0; SEGMENT_BYTES];
    head.copy_from_slice(&writer.finish()?);
    Ok(head)
}

/// Decodes the answer to a readv, or one part of it, without a copy. Parts end at the end of a segment.
///
/// # Errors
/// [`Error::Malformed`] if a segment is truncated; [`Error::TooLong`] for more than [`SEGMENTS_MAX`] segments.
pub fn decode_segment_data(body: &Bytes) -> Result<Vec<SegmentData>> {
    let mut reader = Reader::new("readv answer", body, 8);
    let mut found = Vec::new();
    while reader.remaining() > 0 {
        if found.len() == SEGMENTS_MAX {
            return Err(Error::too_many_items("readv answer", SEGMENTS_MAX + 1, SEGMENTS_MAX));
        }
        let segment = Segment::decode(&mut reader)?;
        let data = shared(body, reader.take(segment.length as usize)?);
        found.push(SegmentData { segment, data });
    }
    Ok(found)
}
