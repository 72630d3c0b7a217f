//! How reads become requests.
//!
//! 1. Large reads are parted, and the parts are asked for ahead of their answers, over all streams in
//!    turn; no more than a few for each stream, since their answers may have to be held.
//! 2. Pieces are read by readv, as many as the protocol allows in one; those that touch are one
//!    segment, and large segments are read by themselves. Some megabytes are asked for at once.

use std::collections::VecDeque;

use super::connection::Sent;
use super::failure::AttemptError;
use super::file::Opened;
use super::sink::{Paged, Piece, Scattered, Straight};
use crate::codes::ErrorCode;
use crate::flags::{PageFlags, ServerFlags};
use crate::ids::PathId;
use crate::limits::{SEGMENT_DATA_BYTES, SEGMENTS_MAX};
use crate::page::{PageRange, wire_bytes};
use crate::request::{PgRead, Read, ReadArguments, ReadV, Request};
use crate::response::Failure;
use crate::segment::{SEGMENT_BYTES, Segment};

/// Bytes of one request where there is one stream.
const REQUEST_BYTES: usize = 16 << 20;
/// Bytes of one request where there are more.
const STRIPE_BYTES: usize = 1 << 20;
/// Requests ahead of the answers, for each stream.
const AHEAD: usize = 2;
/// Bytes of the answer to one readv.
const SCATTERED_BYTES: usize = 4 << 20;
/// Bytes that are worth a request of their own, which servers answer with less work.
const SEPARATE_BYTES: usize = 256 << 10;
/// Bytes of pieces that are asked for ahead of the answers.
const DUE_BYTES: usize = 8 << 20;

/// Reads from `offset` on; fewer bytes than fit only at the end.
pub(super) async fn read(
    opened: &Opened,
    offset: u64,
    buffer: &mut [u8],
) -> Result<usize, AttemptError> {
    opened.unanswered.settle().await?;
    let paths = paths(opened);
    if buffer.len() <= STRIPE_BYTES || (paths.len() == 1 && buffer.len() <= REQUEST_BYTES) {
        let request = read_request(opened, offset, buffer.len(), PathId::default());
        let (bytes_max, mut sink) = (buffer.len() as u64, Straight::new(buffer));
        opened.connection.call_into(&request, &[], bytes_max, &mut sink).await?;
        return Ok(sink.count);
    }
    let part_bytes = if paths.len() == 1 { REQUEST_BYTES } else { STRIPE_BYTES };
    let mut parts = buffer.chunks_mut(part_bytes).zip(paths.iter().cycle());
    let mut sent: VecDeque<(Sent, &mut [u8])> = VecDeque::new();
    let (mut next, mut count) = (offset, 0);
    loop {
        while sent.len() < AHEAD * paths.len()
            && let Some((part, path)) = parts.next()
        {
            let request = read_request(opened, next, part.len(), *path);
            next += part.len() as u64;
            sent.push_back((opened.connection.send(&request, &[], part.len() as u64).await?, part));
        }
        let Some((request, part)) = sent.pop_front() else { return Ok(count) };
        let expected = part.len();
        let mut sink = Straight::new(part);
        request.answer(&mut sink).await?;
        count += sink.count;
        if sink.count < expected {
            return Ok(count);
        }
    }
}

/// The streams that reads are spread over.
fn paths(opened: &Opened) -> Vec<PathId> {
    match opened.connection.paths() {
        bound if bound.len() == 0 => vec![PathId::default()],
        bound => bound.collect(),
    }
}

fn read_request(opened: &Opened, offset: u64, length: usize, path: PathId) -> Request {
    let segment = Segment { handle: opened.handle, offset, length: length as u32 };
    let is_main = path == PathId::default();
    let arguments = (!is_main).then(|| ReadArguments { path, ahead: Vec::new() });
    Read { segment, arguments }.into()
}

/// Reads with checksums; tells a page that came damaged twice.
pub(super) async fn read_checked(
    opened: &Opened,
    offset: u64,
    buffer: &mut [u8],
) -> Result<(usize, Option<PageRange>), AttemptError> {
    opened.unanswered.settle().await?;
    if !opened.connection.flags().contains(ServerFlags::PAGES) {
        return Ok((read(opened, offset, buffer).await?, None));
    }
    let mut count = 0;
    for part in buffer.chunks_mut(REQUEST_BYTES) {
        let start = offset + count as u64;
        let expected = part.len();
        let (found, bad) = read_pages(opened, start, part, PageFlags::default()).await?;
        for page in bad {
            let from = (page.offset - start) as usize;
            let room = &mut part[from..from + page.length];
            let (again, bad) = read_pages(opened, page.offset, room, PageFlags::RETRY).await?;
            if again != page.length || !bad.is_empty() {
                return Ok((count, Some(page)));
            }
        }
        count += found;
        if found < expected {
            break;
        }
    }
    Ok((count, None))
}

async fn read_pages(
    opened: &Opened,
    offset: u64,
    buffer: &mut [u8],
    flags: PageFlags,
) -> Result<(usize, Vec<PageRange>), AttemptError> {
    let segment = Segment { handle: opened.handle, offset, length: buffer.len() as u32 };
    let request = PgRead { segment, path: Some(PathId::default()), flags: Some(flags) };
    // Where parts end inside pages there are more checksums; that is told by the sink.
    let bytes_max = 2 * wire_bytes(offset, buffer.len() as u64);
    let mut sink = Paged::new(offset, buffer);
    opened.connection.call_into(&request.into(), &[], bytes_max, &mut sink).await?;
    Ok((sink.count, sink.bad))
}

/// Fills all pieces. Requests are sent ahead of the answers.
pub(super) async fn read_many(
    opened: &Opened,
    mut pieces: &mut [Piece<'_>],
) -> Result<(), AttemptError> {
    opened.unanswered.settle().await?;
    let has_streams = opened.connection.paths().len() > 0;
    let request_bytes = if has_streams { STRIPE_BYTES } else { REQUEST_BYTES };
    let mut sent: VecDeque<(Sent, Batch, &mut [Piece<'_>])> = VecDeque::new();
    let mut due_bytes = 0;
    loop {
        while !pieces.is_empty() && (sent.is_empty() || due_bytes < DUE_BYTES) {
            let batch = Batch::of(opened, pieces);
            let is_long = batch.pieces == 1 && batch.bytes > request_bytes;
            if is_long && !sent.is_empty() {
                break;
            }
            let (now, later) = std::mem::take(&mut pieces).split_at_mut(batch.pieces);
            pieces = later;
            if is_long {
                read_long(opened, &mut now[0]).await?;
                continue;
            }
            let (request, bytes_max) = batch.request();
            due_bytes += batch.bytes;
            sent.push_back((opened.connection.send(&request, &[], bytes_max).await?, batch, now));
        }
        let Some((request, batch, pieces)) = sent.pop_front() else { return Ok(()) };
        due_bytes -= batch.bytes;
        let mut sink = match batch.segments[..] {
            [_] => Scattered::straight(batch.bytes, pieces),
            _ => Scattered::new(&batch.segments, pieces),
        };
        request.answer(&mut sink).await?;
        if !sink.is_complete() {
            return Err(ends_early(batch.segments[0].offset));
        }
    }
}

/// Fills a piece that takes more than one request.
async fn read_long(opened: &Opened, piece: &mut Piece<'_>) -> Result<(), AttemptError> {
    match read(opened, piece.offset, piece.buffer).await? {
        count if count < piece.buffer.len() => Err(ends_early(piece.offset + count as u64)),
        _ => Ok(()),
    }
}

fn ends_early(offset: u64) -> AttemptError {
    let message = format!("the file ends early, after byte {offset}");
    AttemptError::Failure(Failure::new(ErrorCode::FS_ERROR, message))
}

/// Pieces, from the first one on, that one request reads.
struct Batch {
    pieces: usize,
    segments: Vec<Segment>,
    bytes: usize,
}

impl Batch {
    fn of(opened: &Opened, pieces: &[Piece<'_>]) -> Self {
        let mut batch = Batch { pieces: 0, segments: Vec::new(), bytes: 0 };
        let mut pieces = pieces.iter();
        while pieces.next().is_some_and(|piece| batch.add(opened, piece)) {}
        batch
    }

    /// Adds a piece, if there is room for it. The first one always has room.
    fn add(&mut self, opened: &Opened, piece: &Piece<'_>) -> bool {
        let length = piece.buffer.len();
        if self.pieces > 0 && self.bytes + length > SCATTERED_BYTES {
            return false;
        }
        let count = self.segments.len();
        match self.segments.last_mut() {
            Some(last)
                if last.offset + u64::from(last.length) == piece.offset
                    && (count == 1 || fits(last.length as usize + length)) =>
            {
                last.length += length as u32;
            }
            Some(last) if length.max(last.length as usize) >= SEPARATE_BYTES => return false,
            _ if count == SEGMENTS_MAX => return false,
            _ => self.segments.push(Segment {
                handle: opened.handle,
                offset: piece.offset,
                // A piece that is longer is read by itself, whatever its segment says.
                length: length.min(REQUEST_BYTES) as u32,
            }),
        }
        self.pieces += 1;
        self.bytes += length;
        true
    }

    /// The request, and the bytes of its answer.
    fn request(&self) -> (Request, u64) {
        match self.segments[..] {
            [segment] => (Read { segment, arguments: None }.into(), self.bytes as u64),
            _ => {
                let bytes = self.bytes + self.segments.len() * SEGMENT_BYTES;
                let segments = self.segments.clone();
                (ReadV { path: PathId::default(), segments }.into(), bytes as u64)
            }
        }
    }
}

/// Whether a segment of a list may have so many bytes.
fn fits(length: usize) -> bool {
    length <= SEGMENT_DATA_BYTES as usize
}
