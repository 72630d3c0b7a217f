//! Where the bytes of answers go: gathered, or taken apart straight into the caller's buffers.
//!
//! A sink takes one answer, in its parts, in pieces of any size, and refuses what was not asked for.

use bytes::{Bytes, BytesMut};

use crate::error::{Error, Result};
use crate::page::{PageDecoder, PageRange};
use crate::response::Status;
use crate::segment::{SEGMENT_BYTES, Segment};
use crate::wire::Reader;

/// Takes an answer.
pub(super) trait Sink: Send {
    /// A part of the answer begins; those of pages have a status.
    fn begin(&mut self, status: Option<&Status>) -> Result<()>;

    /// Takes the next bytes of the part.
    fn push(&mut self, bytes: &Bytes) -> Result<()>;

    /// Where the next bytes go as they are; empty if they are to be pushed.
    fn room(&mut self) -> &mut [u8] {
        &mut []
    }

    /// Counts bytes that were put at the front of the room.
    fn filled(&mut self, _count: usize) {}
}

fn plain(status: Option<&Status>) -> Result<()> {
    match status {
        None => Ok(()),
        Some(_) => Err(Error::malformed("answer", 2, "pages came, which nobody asked for")),
    }
}

fn too_much() -> Error {
    Error::malformed("answer", 8, "there are more data than were asked for")
}

/// The whole answer in one piece.
#[derive(Default)]
pub(super) struct Gathered {
    first: Bytes,
    more: BytesMut,
}

impl Gathered {
    /// The answer.
    pub fn into_bytes(self) -> Bytes {
        if self.more.is_empty() { self.first } else { self.more.freeze() }
    }
}

impl Sink for Gathered {
    fn begin(&mut self, status: Option<&Status>) -> Result<()> {
        plain(status)
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

/// What a pgwrite is answered: nothing, or corrections.
#[derive(Default)]
pub(super) struct Written {
    /// The corrections' bytes.
    pub corrections: BytesMut,
}

impl Sink for Written {
    fn begin(&mut self, status: Option<&Status>) -> Result<()> {
        match status {
            Some(_) => Ok(()),
            None => Err(Error::malformed("pgwrite answer", 2, "it is not a status")),
        }
    }

    fn push(&mut self, bytes: &Bytes) -> Result<()> {
        self.corrections.extend_from_slice(bytes);
        Ok(())
    }
}

/// Data as they are, into one buffer.
pub(super) struct Straight<'a> {
    buffer: &'a mut [u8],
    /// Bytes that are there.
    pub count: usize,
}

impl<'a> Straight<'a> {
    pub fn new(buffer: &'a mut [u8]) -> Self {
        Straight { buffer, count: 0 }
    }
}

impl Sink for Straight<'_> {
    fn begin(&mut self, status: Option<&Status>) -> Result<()> {
        plain(status)
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

/// Data with checksums of their pages, into one buffer.
pub(super) struct Paged<'a> {
    buffer: &'a mut [u8],
    offset: u64,
    /// Bytes that are there.
    pub count: usize,
    /// Pages whose checksums are wrong.
    pub bad: Vec<PageRange>,
    decoder: Option<PageDecoder>,
}

impl<'a> Paged<'a> {
    /// For data that start at `offset` of their file.
    pub fn new(offset: u64, buffer: &'a mut [u8]) -> Self {
        Paged { buffer, offset, count: 0, bad: Vec::new(), decoder: None }
    }
}

impl Sink for Paged<'_> {
    fn begin(&mut self, status: Option<&Status>) -> Result<()> {
        let Some(status) = status else {
            // The end of the file is answered by no data at all.
            return Ok(());
        };
        let due = self.offset + self.count as u64;
        if status.offset != due && status.data_bytes > 0 {
            let reason = format!("data of byte {} came where byte {due} was due", status.offset);
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

/// A piece of a file and where its bytes go.
#[derive(Debug)]
pub struct Piece<'a> {
    /// Where it starts in the file, in bytes.
    pub offset: u64,
    /// Filled in full.
    pub buffer: &'a mut [u8],
}

/// The answer to a readv, or to a read of all that the pieces are: the bytes go to one buffer after
/// the other.
pub(super) struct Scattered<'a, 'b> {
    segments: &'a [Segment],
    pieces: &'a mut [Piece<'b>],
    /// Bytes of the head of the next segment that have come.
    head: Vec<u8>,
    /// Bytes of the segment that are still to come.
    due: usize,
    /// Bytes of the first piece that are there.
    count: usize,
}

impl<'a, 'b> Scattered<'a, 'b> {
    /// The pieces lie in the segments one after the other.
    pub fn new(segments: &'a [Segment], pieces: &'a mut [Piece<'b>]) -> Self {
        Scattered { segments, pieces, head: Vec::with_capacity(SEGMENT_BYTES), due: 0, count: 0 }
    }

    /// The pieces lie one after the other, and the answer is their bytes, so many of them.
    pub fn straight(bytes: usize, pieces: &'a mut [Piece<'b>]) -> Self {
        Scattered { due: bytes, ..Scattered::new(&[], pieces) }
    }

    /// Whether all has come.
    pub fn is_complete(&self) -> bool {
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
                let reason = format!("{found:?} came where {expected:?} was due");
                return Err(Error::malformed("readv answer", 8, reason));
            }
            self.due = found.length as usize;
            self.segments = &self.segments[1..];
            self.head.clear();
        }
        Ok(count)
    }
}

impl Sink for Scattered<'_, '_> {
    fn begin(&mut self, status: Option<&Status>) -> Result<()> {
        plain(status)
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
