//! Destinations of answers: collected in one piece, or decoded straight into the caller's buffers.
//!
//! A sink takes the parts of one answer in pieces of any size, and rejects data that were not requested.

use bytes::{Bytes, BytesMut};

use crate::error::{Error, Result};
use crate::page::{PageDecoder, PageRange};
use crate::response::Status;
use crate::segment::{SEGMENT_BYTES, Segment};
use crate::wire::Reader;

/// The destination of one answer.
pub(super) trait AnswerSink: Send {
    /// Starts a part of the answer. A part that holds pages has a status.
    ///
    /// # Errors
    /// [`Error::Malformed`] if a part with this status does not belong to the answer.
    fn begin(&mut self, status: Option<&Status>) -> Result<()>;

    /// Takes the next bytes of the part.
    ///
    /// # Errors
    /// [`Error::Malformed`] if the bytes exceed the request or cannot be decoded.
    fn push(&mut self, bytes: &Bytes) -> Result<()>;

    /// The buffer that the next bytes may be read into as they are; empty if they must be pushed.
    fn room(&mut self) -> &mut [u8] {
        &mut []
    }

    /// Counts bytes that were read into the front of [`AnswerSink::room`].
    fn filled(&mut self, _count: usize) {}
}

fn reject_pages(status: Option<&Status>) -> Result<()> {
    match status {
        None => Ok(()),
        Some(_) => Err(Error::malformed("answer", 2, "pages, which were not requested")),
    }
}

fn too_much() -> Error {
    Error::malformed("answer", 8, "more data than requested")
}

/// Collects the answer in one piece.
#[derive(Default)]
pub(super) struct CollectSink {
    first: Bytes,
    more: BytesMut,
}

impl CollectSink {
    /// The answer.
    pub(super) fn into_bytes(self) -> Bytes {
        if self.more.is_empty() { self.first } else { self.more.freeze() }
    }
}

impl AnswerSink for CollectSink {
    fn begin(&mut self, status: Option<&Status>) -> Result<()> {
        reject_pages(status)
    }

    fn push(&mut self, bytes: &Bytes) -> Result<()> {
        if self.first.is_empty() {
            self.first = bytes.clone();
            return Ok(());
        }
        if self.more.is_empty() {
            self.more.extend_from_slice(&self.first);
        }
        self.more.extend_from_slice(bytes);
        Ok(())
    }
}

/// Takes the answer to a pgwrite: empty, or the encoded corrections.
#[derive(Default)]
pub(super) struct CorrectionsSink {
    /// The encoded corrections.
    pub corrections: BytesMut,
}

impl AnswerSink for CorrectionsSink {
    fn begin(&mut self, status: Option<&Status>) -> Result<()> {
        match status {
            Some(_) => Ok(()),
            None => Err(Error::malformed("pgwrite answer", 2, "must be a status response")),
        }
    }

    fn push(&mut self, bytes: &Bytes) -> Result<()> {
        self.corrections.extend_from_slice(bytes);
        Ok(())
    }
}

/// Writes plain data into one buffer.
pub(super) struct BufferSink<'a> {
    buffer: &'a mut [u8],
    /// Bytes written to the buffer.
    pub count: usize,
}

impl<'a> BufferSink<'a> {
    pub(super) fn new(buffer: &'a mut [u8]) -> Self {
        BufferSink { buffer, count: 0 }
    }
}

impl AnswerSink for BufferSink<'_> {
    fn begin(&mut self, status: Option<&Status>) -> Result<()> {
        reject_pages(status)
    }

    fn push(&mut self, bytes: &Bytes) -> Result<()> {
        let room = self.room().get_mut(..bytes.len()).ok_or_else(too_much)?;
        room.copy_from_slice(bytes);
        self.filled(bytes.len());
        Ok(())
    }

    fn room(&mut self) -> &mut [u8] {
        &mut self.buffer[self.count..]
    }

    fn filled(&mut self, count: usize) {
        self.count += count;
    }
}

/// Writes pages into one buffer and verifies their checksums.
pub(super) struct PageSink<'a> {
    buffer: &'a mut [u8],
    offset: u64,
    /// Bytes written to the buffer.
    pub count: usize,
    /// Pages with wrong checksums.
    pub bad: Vec<PageRange>,
    decoder: Option<PageDecoder>,
}

impl<'a> PageSink<'a> {
    /// A sink for the file's bytes from `offset` on.
    pub(super) fn new(offset: u64, buffer: &'a mut [u8]) -> Self {
        PageSink { buffer, offset, count: 0, bad: Vec::new(), decoder: None }
    }
}

impl AnswerSink for PageSink<'_> {
    fn begin(&mut self, status: Option<&Status>) -> Result<()> {
        let Some(status) = status else {
            // At the end of the file, the answer is an ok response without data.
            return Ok(());
        };
        let due = self.offset + self.count as u64;
        if status.offset != due && status.data_bytes > 0 {
            let reason = format!("data at offset {}, expected {due}", status.offset);
            return Err(Error::malformed("pgread answer", 24, reason));
        }
        self.decoder = Some(PageDecoder::new(due, status.data_bytes.into())?);
        Ok(())
    }

    fn push(&mut self, bytes: &Bytes) -> Result<()> {
        let decoder = self.decoder.as_mut().ok_or_else(too_much)?;
        let (buffer, count, mut fits) = (&mut *self.buffer, &mut self.count, true);
        let put = |data: &[u8]| match buffer.get_mut(*count..*count + data.len()) {
            Some(room) => {
                room.copy_from_slice(data);
                *count += data.len();
            }
            None => fits = false,
        };
        decoder.push_to(bytes, put, &mut self.bad);
        if fits { Ok(()) } else { Err(too_much()) }
    }
}

/// A piece of a file and the buffer for its bytes.
#[derive(Debug)]
pub struct ReadPiece<'a> {
    /// The first byte in the file.
    pub offset: u64,
    /// The buffer, which the read fills completely.
    pub buffer: &'a mut [u8],
}

/// Writes the answer to a readv, or to one read that covers all pieces, into one buffer after the other.
pub(super) struct ScatterSink<'a, 'b> {
    segments: &'a [Segment],
    pieces: &'a mut [ReadPiece<'b>],
    /// The received bytes of the next segment's head.
    head: Vec<u8>,
    /// The missing bytes of the current segment.
    due: usize,
    /// Bytes written to the first piece's buffer.
    count: usize,
}

impl<'a, 'b> ScatterSink<'a, 'b> {
    /// For the answer to a readv of these segments, which hold the pieces in order.
    pub(super) fn new(segments: &'a [Segment], pieces: &'a mut [ReadPiece<'b>]) -> Self {
        ScatterSink { segments, pieces, head: Vec::with_capacity(SEGMENT_BYTES), due: 0, count: 0 }
    }

    /// For the answer to a read of `bytes` bytes, which are those of the pieces in order.
    pub(super) fn straight(bytes: usize, pieces: &'a mut [ReadPiece<'b>]) -> Self {
        ScatterSink { due: bytes, ..ScatterSink::new(&[], pieces) }
    }

    /// Whether all pieces are filled.
    pub(super) fn is_complete(&self) -> bool {
        self.segments.is_empty() && self.due == 0
    }

    /// Takes the head of the next segment, or a part of it.
    fn take_head(&mut self, bytes: &[u8]) -> Result<usize> {
        let expected = self.segments.first().ok_or_else(too_much)?;
        let count = bytes.len().min(SEGMENT_BYTES - self.head.len());
        self.head.extend_from_slice(&bytes[..count]);
        if self.head.len() == SEGMENT_BYTES {
            let found = Segment::decode(&mut Reader::new("readv answer", &self.head, 8))?;
            if (found.offset, found.length) != (expected.offset, expected.length) {
                let reason = format!("{found:?}, expected {expected:?}");
                return Err(Error::malformed("readv answer", 8, reason));
            }
            self.due = found.length as usize;
            self.segments = &self.segments[1..];
            self.head.clear();
        }
        Ok(count)
    }
}

impl AnswerSink for ScatterSink<'_, '_> {
    fn begin(&mut self, status: Option<&Status>) -> Result<()> {
        reject_pages(status)
    }

    fn push(&mut self, bytes: &Bytes) -> Result<()> {
        let mut bytes = &bytes[..];
        while !bytes.is_empty() {
            let count = match self.due {
                0 => self.take_head(bytes)?,
                _ => {
                    let room = self.room();
                    let count = room.len().min(bytes.len());
                    room[..count].copy_from_slice(&bytes[..count]);
                    self.filled(count);
                    count
                }
            };
            bytes = &bytes[count..];
        }
        Ok(())
    }

    fn room(&mut self) -> &mut [u8] {
        while self.due > 0 && self.pieces.first().is_some_and(|it| it.buffer.len() == self.count) {
            self.pieces = &mut std::mem::take(&mut self.pieces)[1..];
            self.count = 0;
        }
        match self.pieces.first_mut() {
            Some(piece) if self.due > 0 => {
                let room = &mut piece.buffer[self.count..];
                let count = room.len().min(self.due);
                &mut room[..count]
            }
            _ => &mut [],
        }
    }

    fn filled(&mut self, count: usize) {
        self.count += count;
        self.due -= count;
    }
}
