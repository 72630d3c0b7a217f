//! Requests that read many ranges: readv.
//!
//! 1. Ranges that are adjacent, or nearly so, are read with one call.
//! 2. The headers and data of all ranges that fit into one buffer are sent with one call.
//! 3. In files that are read on another machine, exactly the requested ranges are read, and those of the next parts are
//!    announced.
//! 4. If a range does not exist in full, the whole request is refused before anything is sent.
//!
//! Source: "The XRootD Protocol" 5.1.1, section 3, kXR_readv.

use std::io::{self, IoSlice};
use std::ops::Range;
use std::sync::Arc;

use nix::errno::Errno;
use xrd::request::ReadV;
use xrd::segment::{SEGMENT_BYTES, segment_head};
use xrd::{StatusCode, StreamId};

use super::answer_queue::{HEADER_BYTES, header};
use super::connection::RootConnection;
use super::handler::{blocking, readable_file_of};
use super::responses::response_of;
use super::transfer::{ReadRange, ReadTransfer};
use crate::logical::handles::OpenFile;
use crate::logical::latency::RequestKind;
use crate::logical::sessions::Counters;
use crate::physical::{StorageError, StorageResult, StoredFile};
use crate::protocol::buffers::{PIECE_BYTES, PooledBuffer};

/// A gap between ranges up to which both are read with one call.
const GAP_BYTES: u64 = 4096;

/// Bytes of one part of an answer, without its last range.
const PART_BYTES: u64 = 2 * 1024 * 1024;

/// Bytes of ranges that are announced before their part is read.
const AHEAD_BYTES: u64 = 4 * PART_BYTES;

/// Pieces per call: each is a header and data, and the kernel takes 1,024 slices.
const PIECES_PER_SEND: usize = 500;

impl RootConnection {
    pub(super) async fn readv_request(&mut self, stream: StreamId, read: ReadV) -> io::Result<()> {
        let Some(session) = self.session() else { return Ok(()) };
        let ranges = read.segments.iter().map(|segment| {
            readable_file_of(session, segment.handle).map(|file| ReadRange::new(file, segment))
        });
        match ranges.collect::<Result<Vec<_>, _>>() {
            Ok(ranges) => self.read_on(read.path, stream, ReadTransfer::Vector(ranges)).await,
            Err(response) => self.answer(stream, &response).await,
        }
    }

    pub(super) async fn readv(
        &mut self,
        stream: StreamId,
        ranges: Vec<ReadRange>,
    ) -> io::Result<()> {
        let _timed =
            ranges.first().map(|range| range.file.latencies.start_timer(RequestKind::Read));
        let ranges = Arc::new(ranges);
        let checked = if ranges.iter().all(|range| range.file.is_quick) {
            check_ranges(&ranges)
        } else {
            let ranges = Arc::clone(&ranges);
            blocking(move || check_ranges(&ranges)).await
        };
        if let Err(error) = checked {
            return self.answer(stream, &response_of(error)).await;
        }
        let (mut first, mut announced) = (0, 0);
        while first < ranges.len() {
            let (end, bytes) = end_of_part(&ranges, first);
            announced = announce(&ranges, first, announced);
            let is_last = end == ranges.len();
            let status = if is_last { StatusCode::OK } else { StatusCode::OK_SO_FAR };
            let head = header(stream, status, bytes as usize);
            if let Err(error) = self.send_pieces(&ranges, first..end, &head).await? {
                return self.answer(stream, &response_of(error)).await;
            }
            first = end;
        }
        Ok(())
    }

    /// Sends the ranges of one part, in each call as many as fit into one buffer. Returns the error if the first range
    /// cannot be read, before anything of the part was sent.
    async fn send_pieces(
        &mut self,
        ranges: &Arc<Vec<ReadRange>>,
        part: Range<usize>,
        head: &[u8; HEADER_BYTES],
    ) -> io::Result<StorageResult<()>> {
        let mut head = &head[..];
        let mut position = AnswerPosition { index: part.start, within: 0 };
        while position.index < part.end {
            let (plan, next) = BufferPlan::from(ranges, position, part.end);
            let plan = Arc::new(plan);
            self.flush().await?;
            self.socket.has_room().await?;
            let buffer = match self.read_plan(ranges, &plan).await {
                Ok(buffer) => buffer,
                Err(error) if !head.is_empty() => return Ok(Err(error)),
                // The part's header was sent already, so the request cannot be refused any more.
                Err(error) => return Err(io::Error::other(format!("{error:?}"))),
            };
            let mut slices = Vec::with_capacity(1 + 2 * plan.pieces.len());
            slices.push(IoSlice::new(head));
            for piece in &plan.pieces {
                slices.push(IoSlice::new(piece.head.as_ref().map_or(&[][..], |head| head)));
                slices.push(IoSlice::new(&buffer[piece.place..piece.place + piece.length]));
            }
            self.send(&mut slices).await?;
            (head, position) = (&[], next);
        }
        Ok(Ok(()))
    }

    async fn read_plan(
        &self,
        ranges: &Arc<Vec<ReadRange>>,
        plan: &Arc<BufferPlan>,
    ) -> StorageResult<PooledBuffer> {
        let mut buffer = self.service.buffers.take();
        if plan.try_read(ranges, &mut buffer)? {
            return Ok(buffer);
        }
        drop(buffer);
        let (ranges, plan) = (Arc::clone(ranges), Arc::clone(plan));
        let pool = Arc::clone(&self.service.buffers);
        // The blocking thread takes the buffer, so that a wait for a thread holds none.
        blocking(move || {
            let mut buffer = pool.take();
            plan.read(&ranges, &mut buffer)?;
            Ok(buffer)
        })
        .await
    }
}

/// Refuses ranges that end past the end of their file.
fn check_ranges(ranges: &[ReadRange]) -> StorageResult<()> {
    let mut known: Option<(&Arc<OpenFile>, u64)> = None;
    for range in ranges {
        let size = match known {
            Some((file, size)) if Arc::ptr_eq(file, &range.file) => size,
            _ => range.file.file.metadata()?.size,
        };
        known = Some((&range.file, size));
        if range.offset.saturating_add(range.length) > size {
            let what = format!(
                "the range of {} bytes at {} is past the end of {}, which has {size} bytes",
                range.length, range.offset, range.file.path
            );
            return Err(StorageError::refused(Errno::EINVAL, what));
        }
        Counters::add(&range.file.bytes_read, range.length);
    }
    Ok(())
}

/// Announces the ranges from `first` on in files on other machines, except those before `announced`. Returns the index
/// of the first range that was not announced.
fn announce(ranges: &[ReadRange], first: usize, announced: usize) -> usize {
    let mut bytes = 0;
    for (index, range) in ranges.iter().enumerate().skip(first) {
        if bytes >= AHEAD_BYTES {
            return index.max(announced);
        }
        bytes += range.length;
        if index >= announced
            && range.file.is_remote
            && let Some(interface) = range.file.file.ready()
        {
            interface.will_need(range.offset, range.length);
        }
    }
    ranges.len()
}

/// The end and the bytes of the part that begins with this range.
fn end_of_part(ranges: &[ReadRange], first: usize) -> (usize, u64) {
    let mut bytes = 0;
    for (index, range) in ranges.iter().enumerate().skip(first) {
        if bytes >= PART_BYTES {
            return (index, bytes);
        }
        bytes += SEGMENT_BYTES as u64 + range.length;
    }
    (ranges.len(), bytes)
}

/// A position in an answer: a range, and the number of its bytes before the position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct AnswerPosition {
    index: usize,
    within: u64,
}

/// The pieces that one buffer holds, and the reads that fill it.
#[derive(Debug, Default)]
struct BufferPlan {
    pieces: Vec<AnswerPiece>,
    runs: Vec<ReadRun>,
}

/// A range, or the part of it that fits into the buffer.
#[derive(Debug)]
struct AnswerPiece {
    /// The range's header, if this is its first piece.
    head: Option<[u8; SEGMENT_BYTES]>,
    /// The offset in the buffer.
    place: usize,
    length: usize,
}

/// Bytes that are read with one call.
#[derive(Debug)]
struct ReadRun {
    /// A range of the file that is being read.
    index: usize,
    offset: u64,
    place: usize,
    length: usize,
}

impl BufferPlan {
    /// Plans the buffer from a position on; also returns the position of the next buffer.
    fn from(
        ranges: &[ReadRange],
        mut position: AnswerPosition,
        end: usize,
    ) -> (BufferPlan, AnswerPosition) {
        let (mut plan, mut used) = (BufferPlan::default(), 0);
        while position.index < end && plan.pieces.len() < PIECES_PER_SEND {
            let range = &ranges[position.index];
            let offset = range.offset + position.within;
            let wanted = range.length - position.within;
            let gap = plan.gap_before(ranges, position.index, offset);
            let room = PIECE_BYTES - used;
            let (place, room) = match gap {
                Some(gap) if gap < room => (used + gap, room - gap),
                _ => (used, room),
            };
            if room == 0 && wanted > 0 {
                break;
            }
            let length = room.min(usize::try_from(wanted).unwrap_or(usize::MAX));
            plan.add_run(position.index, gap, offset, place, length);
            let head = (position.within == 0).then(|| {
                segment_head(&range.segment).expect("the segment was decoded from a request")
            });
            plan.pieces.push(AnswerPiece { head, place, length });
            used = place + length;
            position = if length as u64 == wanted {
                AnswerPosition { index: position.index + 1, within: 0 }
            } else {
                AnswerPosition { within: position.within + length as u64, ..position }
            };
        }
        (plan, position)
    }

    /// The bytes between the end of the last run and an offset, if both are in one file and the gap is small for its
    /// disk.
    fn gap_before(&self, ranges: &[ReadRange], index: usize, offset: u64) -> Option<usize> {
        let run = self.runs.last()?;
        let gap = offset.checked_sub(run.offset + run.length as u64)?;
        let file = &ranges[index].file;
        let is_same = Arc::ptr_eq(&ranges[run.index].file, file);
        let most = if file.is_remote { 0 } else { GAP_BYTES };
        (is_same && gap <= most).then_some(gap as usize)
    }

    fn add_run(
        &mut self,
        index: usize,
        gap: Option<usize>,
        offset: u64,
        place: usize,
        length: usize,
    ) {
        match (gap, self.runs.last_mut()) {
            (Some(gap), Some(run)) if run.place + run.length + gap == place => {
                run.length += gap + length;
            }
            _ => self.runs.push(ReadRun { index, offset, place, length }),
        }
    }

    /// Reads all runs; false if one of them is not in memory.
    fn try_read(&self, ranges: &[ReadRange], buffer: &mut PooledBuffer) -> StorageResult<bool> {
        for run in &self.runs {
            let Some(interface) = ranges[run.index].file.file.ready() else { return Ok(false) };
            let room = &mut buffer[run.place..run.place + run.length];
            match interface.try_read_at(run.offset, room)? {
                Some(count) => refuse_short(count, run)?,
                None => return Ok(false),
            }
        }
        Ok(true)
    }

    fn read(&self, ranges: &[ReadRange], buffer: &mut PooledBuffer) -> StorageResult<()> {
        let interfaces: Vec<Arc<dyn StoredFile>> = self
            .runs
            .iter()
            .map(|run| ranges[run.index].file.file.interface())
            .collect::<StorageResult<_>>()?;
        // All runs are announced first, so that the disk can read them concurrently.
        for (run, interface) in self.runs.iter().zip(&interfaces) {
            interface.will_need(run.offset, run.length as u64);
        }
        for (run, interface) in self.runs.iter().zip(&interfaces) {
            let room = &mut buffer[run.place..run.place + run.length];
            refuse_short(interface.read_at(run.offset, room)?, run)?;
        }
        Ok(())
    }
}

fn refuse_short(count: usize, run: &ReadRun) -> StorageResult<()> {
    if count == run.length {
        Ok(())
    } else {
        Err(StorageError::refused(Errno::EIO, "the file was cut while it was read"))
    }
}
