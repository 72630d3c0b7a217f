//! Splitting of reads into requests.
//!
//! 1. A large read is split, and its parts are requested ahead of their answers, round-robin over all streams.
//!    Only a few are in flight per stream, since their answers may have to be buffered.
//! 2. A vector read becomes as few readv requests as the protocol allows. Adjacent pieces share a segment, and a
//!    large segment has a read of its own. Some megabytes are in flight at a time.

use std::collections::VecDeque;

use super::attempt_error::AttemptError;
use super::connection::PendingAnswer;
use super::remote_handle::RemoteHandle;
use super::sink::{BufferSink, PageSink, ReadPiece, ScatterSink};
use crate::codes::ErrorCode;
use crate::flags::{PageFlags, ServerFlags};
use crate::ids::PathId;
use crate::limits::{SEGMENT_DATA_BYTES, SEGMENTS_MAX};
use crate::page::{PageRange, wire_bytes};
use crate::request::{PgRead, Read, ReadArguments, ReadV, Request};
use crate::response::Failure;
use crate::segment::{SEGMENT_BYTES, Segment};

/// Bytes of one request on a session with one stream.
const REQUEST_BYTES: usize = 16 << 20;
/// Bytes of one request on a session with several streams.
const STRIPE_BYTES: usize = 1 << 20;
/// Requests in flight per stream.
const AHEAD: usize = 2;
/// Data bytes of one readv.
const READV_BYTES: usize = 4 << 20;
/// From this size on a segment has a read of its own, which costs the server less than a readv.
const SEPARATE_BYTES: usize = 256 << 10;
/// Bytes of pieces in flight.
const IN_FLIGHT_BYTES: usize = 8 << 20;

/// Reads from `offset` on. Returns fewer bytes than fit only at the end of the file.
pub(super) async fn read(
    opened: &RemoteHandle,
    offset: u64,
    buffer: &mut [u8],
) -> Result<usize, AttemptError> {
    opened.unconfirmed.settle().await?;
    let paths = paths(opened);
    if buffer.len() <= STRIPE_BYTES || (paths.len() == 1 && buffer.len() <= REQUEST_BYTES) {
        let request = read_request(opened, offset, buffer.len(), PathId::default());
        let (bytes_max, mut sink) = (buffer.len() as u64, BufferSink::new(buffer));
        opened.connection.call_into(&request, &[], bytes_max, &mut sink).await?;
        return Ok(sink.count);
    }
    let part_bytes = if paths.len() == 1 { REQUEST_BYTES } else { STRIPE_BYTES };
    let mut parts = buffer.chunks_mut(part_bytes).zip(paths.iter().cycle());
    let mut sent: VecDeque<(PendingAnswer, &mut [u8])> = VecDeque::new();
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
        let mut sink = BufferSink::new(part);
        request.receive(&mut sink).await?;
        count += sink.count;
        if sink.count < expected {
            return Ok(count);
        }
    }
}

/// The streams that reads are striped over.
fn paths(opened: &RemoteHandle) -> Vec<PathId> {
    match opened.connection.paths() {
        bound if bound.len() == 0 => vec![PathId::default()],
        bound => bound.collect(),
    }
}

fn read_request(opened: &RemoteHandle, offset: u64, length: usize, path: PathId) -> Request {
    let segment = Segment { handle: opened.handle, offset, length: length as u32 };
    let is_main = path == PathId::default();
    let arguments = (!is_main).then(|| ReadArguments { path, ahead: Vec::new() });
    Read { segment, arguments }.into()
}

/// Reads and verifies checksums. Returns the number of bytes, and the first page that arrived damaged twice.
pub(super) async fn read_checked(
    opened: &RemoteHandle,
    offset: u64,
    buffer: &mut [u8],
) -> Result<(usize, Option<PageRange>), AttemptError> {
    opened.unconfirmed.settle().await?;
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
    opened: &RemoteHandle,
    offset: u64,
    buffer: &mut [u8],
    flags: PageFlags,
) -> Result<(usize, Vec<PageRange>), AttemptError> {
    let segment = Segment { handle: opened.handle, offset, length: buffer.len() as u32 };
    let request = PgRead { segment, path: Some(PathId::default()), flags: Some(flags) };
    // A server that ends parts within pages sends more checksums. The sink detects excess data.
    let bytes_max = 2 * wire_bytes(offset, buffer.len() as u64);
    let mut sink = PageSink::new(offset, buffer);
    opened.connection.call_into(&request.into(), &[], bytes_max, &mut sink).await?;
    Ok((sink.count, sink.bad))
}

/// Fills all pieces, with several requests in flight.
pub(super) async fn read_many(
    opened: &RemoteHandle,
    mut pieces: &mut [ReadPiece<'_>],
) -> Result<(), AttemptError> {
    opened.unconfirmed.settle().await?;
    let has_streams = opened.connection.paths().len() > 0;
    let request_bytes = if has_streams { STRIPE_BYTES } else { REQUEST_BYTES };
    let mut sent: VecDeque<(PendingAnswer, Batch, &mut [ReadPiece<'_>])> = VecDeque::new();
    let mut bytes_in_flight = 0;
    loop {
        while !pieces.is_empty() && (sent.is_empty() || bytes_in_flight < IN_FLIGHT_BYTES) {
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
            bytes_in_flight += batch.bytes;
            sent.push_back((opened.connection.send(&request, &[], bytes_max).await?, batch, now));
        }
        let Some((request, batch, pieces)) = sent.pop_front() else { return Ok(()) };
        bytes_in_flight -= batch.bytes;
        let mut sink = match batch.segments[..] {
            [_] => ScatterSink::straight(batch.bytes, pieces),
            _ => ScatterSink::new(&batch.segments, pieces),
        };
        request.receive(&mut sink).await?;
        if !sink.is_complete() {
            return Err(ends_early(batch.segments[0].offset));
        }
    }
}

/// Fills a piece that needs more than one request.
async fn read_long(opened: &RemoteHandle, piece: &mut ReadPiece<'_>) -> Result<(), AttemptError> {
    match read(opened, piece.offset, piece.buffer).await? {
        count if count < piece.buffer.len() => Err(ends_early(piece.offset + count as u64)),
        _ => Ok(()),
    }
}

fn ends_early(offset: u64) -> AttemptError {
    let message = format!("unexpected end of file after byte {offset}");
    AttemptError::Failure(Failure::new(ErrorCode::FS_ERROR, message))
}

/// The leading pieces of a vector read that one request covers.
struct Batch {
    pieces: usize,
    segments: Vec<Segment>,
    bytes: usize,
}

impl Batch {
    fn of(opened: &RemoteHandle, pieces: &[ReadPiece<'_>]) -> Self {
        let mut batch = Batch { pieces: 0, segments: Vec::new(), bytes: 0 };
        let mut pieces = pieces.iter();
        while pieces.next().is_some_and(|piece| batch.add(opened, piece)) {}
        batch
    }

    /// Adds a piece if the request has room for it. The first piece always fits.
    fn add(&mut self, opened: &RemoteHandle, piece: &ReadPiece<'_>) -> bool {
        let length = piece.buffer.len();
        if self.pieces > 0 && self.bytes + length > READV_BYTES {
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
                // `read_long` ignores the segment of a longer piece.
                length: length.min(REQUEST_BYTES) as u32,
            }),
        }
        self.pieces += 1;
        self.bytes += length;
        true
    }

    /// The request, and the size of its answer in bytes.
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

/// Whether a segment of a readv may have this length.
fn fits(length: usize) -> bool {
    length <= SEGMENT_DATA_BYTES as usize
}
