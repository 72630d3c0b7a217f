//! Reading many pieces at once: readv.
//!
//! 1. Pieces that lie one behind the other, or nearly so, are read by one call.
//! 2. What one buffer holds is sent by one call: the heads and data of many pieces.
//! 3. If a piece is not there in full, the whole request is refused before anything is sent.
//!
//! Source: "The XRootD Protocol" 5.1.1, section 3, kXR_readv.

use std::io::{self, IoSlice};
use std::sync::Arc;

use nix::errno::Errno;
use xrd::request::ReadV;
use xrd::segment::{SEGMENT_BYTES, Segment, segment_head};
use xrd::{StatusCode, StreamId};

use super::connection::Connection;
use super::failures::response_of;
use super::handler::{blocking, file_of};
use super::outgoing::{HEADER_BYTES, header};
use super::reading::Reading;
use crate::logical::handles::OpenFile;
use crate::logical::latency::Kind;
use crate::logical::sessions::Counters;
use crate::physical::{StorageError, StorageResult, StoredFile};
use crate::protocol::buffers::{Buffer, PIECE_BYTES};

/// Bytes between pieces that are read rather than skipped.
const GAP_BYTES: u64 = 4096;

/// Bytes of one part of an answer, but for its last piece.
const PART_BYTES: u64 = 2 * 1024 * 1024;

/// Pieces that one call sends: each has a head and data, and the kernel takes 1,024 slices.
const PIECES_PER_SEND: usize = 500;

/// A piece of an open file that a client wants.
pub(super) struct ReadRange {
    pub file: Arc<OpenFile>,
    pub segment: Segment,
    /// Where it starts in the file, in bytes.
    pub offset: u64,
    /// Bytes.
    pub length: u64,
}

impl Connection {
    pub(super) async fn readv_request(&mut self, stream: StreamId, read: ReadV) -> io::Result<()> {
        let Some(session) = self.session() else { return Ok(()) };
        let wants = read.segments.iter().map(|segment| {
            file_of(session, segment.handle).map(|file| ReadRange::new(file, segment))
        });
        match wants.collect::<Result<Vec<_>, _>>() {
            Ok(wants) => self.read_on(read.path, stream, Reading::Vector(wants)).await,
            Err(response) => self.answer(stream, &response).await,
        }
    }

    pub(super) async fn readv(
        &mut self,
        stream: StreamId,
        wants: Vec<ReadRange>,
    ) -> io::Result<()> {
        let _timed = wants.first().map(|want| want.file.latencies.timed(Kind::Read));
        let wants = Arc::new(wants);
        let checked = match wants.iter().all(|want| want.file.is_quick) {
            true => check(&wants),
            false => {
                let wants = Arc::clone(&wants);
                blocking(move || check(&wants)).await
            }
        };
        if let Err(trouble) = checked {
            return self.answer(stream, &response_of(trouble)).await;
        }
        let mut first = 0;
        while first < wants.len() {
            let (end, bytes) = part(&wants, first);
            let is_last = end == wants.len();
            let status = if is_last { StatusCode::OK } else { StatusCode::OK_SO_FAR };
            let head = header(stream, status, bytes as usize);
            self.send_pieces(&wants, first..end, &head).await?;
            first = end;
        }
        Ok(())
    }

    /// Sends the pieces of one part, as many at once as one buffer holds.
    async fn send_pieces(
        &mut self,
        wants: &Arc<Vec<ReadRange>>,
        range: std::ops::Range<usize>,
        head: &[u8; HEADER_BYTES],
    ) -> io::Result<()> {
        let mut head = &head[..];
        let mut position = Position { index: range.start, within: 0 };
        while position.index < range.end {
            let (plan, next) = Plan::from(wants, position, range.end);
            let plan = Arc::new(plan);
            self.flush().await?;
            self.socket.has_room().await?;
            let buffer = match self.read_plan(wants, &plan).await {
                Ok(buffer) => buffer,
                // The client was told of it already, so there is no way to refuse it any more.
                Err(trouble) => return Err(io::Error::other(format!("{trouble:?}"))),
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
        Ok(())
    }

    async fn read_plan(
        &self,
        wants: &Arc<Vec<ReadRange>>,
        plan: &Arc<Plan>,
    ) -> StorageResult<Buffer> {
        let mut buffer = self.shared.buffers.take();
        if plan.try_read(wants, &mut buffer)? {
            return Ok(buffer);
        }
        drop(buffer);
        let (wants, plan) = (Arc::clone(wants), Arc::clone(plan));
        let pool = Arc::clone(&self.shared.buffers);
        // Who waits for a thread holds no buffer.
        blocking(move || {
            let mut buffer = pool.take();
            plan.read(&wants, &mut buffer)?;
            Ok(buffer)
        })
        .await
    }
}

/// Refuses pieces that are not there in full.
fn check(wants: &[ReadRange]) -> StorageResult<()> {
    let mut known: Option<(&Arc<OpenFile>, u64)> = None;
    for want in wants {
        let size = match known {
            Some((file, size)) if Arc::ptr_eq(file, &want.file) => size,
            _ => want.file.file.metadata()?.size,
        };
        known = Some((&want.file, size));
        if want.offset.saturating_add(want.length) > size {
            let what = format!(
                "{} bytes from {} on are not all there: {} has {size} bytes",
                want.length, want.offset, want.file.path
            );
            return Err(StorageError::refused(Errno::EINVAL, what));
        }
        Counters::add(&want.file.bytes_read, want.length);
    }
    Ok(())
}

/// Where the part ends that begins with a piece, and the bytes that it has.
fn part(wants: &[ReadRange], first: usize) -> (usize, u64) {
    let mut bytes = 0;
    for (index, want) in wants.iter().enumerate().skip(first) {
        if bytes >= PART_BYTES {
            return (index, bytes);
        }
        bytes += SEGMENT_BYTES as u64 + want.length;
    }
    (wants.len(), bytes)
}

/// A byte of an answer: of which piece, and how far in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Position {
    index: usize,
    within: u64,
}

/// What one buffer is to hold.
#[derive(Debug, Default)]
struct Plan {
    pieces: Vec<Piece>,
    runs: Vec<Run>,
}

/// A piece, or what of it fits.
#[derive(Debug)]
struct Piece {
    /// Where it starts if this is its front.
    head: Option<[u8; SEGMENT_BYTES]>,
    /// Where it is in the buffer.
    place: usize,
    length: usize,
}

/// What is read by one call.
#[derive(Debug)]
struct Run {
    /// A piece whose file it is.
    index: usize,
    offset: u64,
    place: usize,
    length: usize,
}

impl Plan {
    /// What fits into one buffer from a position on, and where the next one goes on.
    fn from(wants: &[ReadRange], mut position: Position, end: usize) -> (Plan, Position) {
        let (mut plan, mut used) = (Plan::default(), 0);
        while position.index < end && plan.pieces.len() < PIECES_PER_SEND {
            let want = &wants[position.index];
            let offset = want.offset + position.within;
            let wanted = want.length - position.within;
            let gap = plan.gap_before(wants, position.index, offset);
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
            let head = (position.within == 0)
                .then(|| segment_head(&want.segment).expect("it came from a request"));
            plan.pieces.push(Piece { head, place, length });
            used = place + length;
            position = match length as u64 == wanted {
                true => Position { index: position.index + 1, within: 0 },
                false => Position { within: position.within + length as u64, ..position },
            };
        }
        (plan, position)
    }

    /// Bytes between the end of the last run and an offset of the same file, if they are few.
    fn gap_before(&self, wants: &[ReadRange], index: usize, offset: u64) -> Option<usize> {
        let run = self.runs.last()?;
        let gap = offset.checked_sub(run.offset + run.length as u64)?;
        let is_same = Arc::ptr_eq(&wants[run.index].file, &wants[index].file);
        (is_same && gap <= GAP_BYTES).then_some(gap as usize)
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
            _ => self.runs.push(Run { index, offset, place, length }),
        }
    }

    /// Reads all runs if they are in memory.
    fn try_read(&self, wants: &[ReadRange], buffer: &mut Buffer) -> StorageResult<bool> {
        for run in &self.runs {
            let Some(interface) = wants[run.index].file.file.ready() else { return Ok(false) };
            let room = &mut buffer[run.place..run.place + run.length];
            match interface.try_read_at(run.offset, room)? {
                Some(count) => refuse_short(count, run)?,
                None => return Ok(false),
            }
        }
        Ok(true)
    }

    fn read(&self, wants: &[ReadRange], buffer: &mut Buffer) -> StorageResult<()> {
        let interfaces: Vec<Arc<dyn StoredFile>> = self
            .runs
            .iter()
            .map(|run| wants[run.index].file.file.interface())
            .collect::<StorageResult<_>>()?;
        // The disk may work on all of them at once.
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

fn refuse_short(count: usize, run: &Run) -> StorageResult<()> {
    match count == run.length {
        true => Ok(()),
        false => Err(StorageError::refused(Errno::EIO, "the file was cut while it was read")),
    }
}
