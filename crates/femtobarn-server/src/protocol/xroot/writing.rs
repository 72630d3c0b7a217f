//! Writing: write, pgwrite, writev, and changes in checkpoints.
//!
//! 1. Data go to the file in pieces, as they come. Of a large write they are pieces of 2 MiB at multiples of
//!    2 MiB in the file, which the kernel gathers; storages write these past the page cache.
//! 2. Once something fails, the rest of the request's data are passed over, and its answer, which comes
//!    when all data have come, is the first failure.
//! 3. Pages with wrong checksums are written, too; they are told, and the file remembers them until they
//!    are corrected.
//! 4. Data that come on a bound connection are taken and answered there (`streams`).
//!
//! Source: "The XRootD Protocol" 5.1.1, section 3: kXR_write, kXR_pgwrite, kXR_writev, kXR_chkpoint.

use std::io;
use std::sync::Arc;

use bytes::Bytes;
use xrd::flags::{PageFlags, WriteVOptions};
use xrd::limits::{BAD_PAGES_PER_FILE_MAX, BAD_PAGES_PER_WRITE_MAX};
use xrd::page::{PageDecoder, PageRange, wire_bytes};
use xrd::request::{CheckpointWrite, Chkpoint, PgWrite, Request, WriteV};
use xrd::response::{Corrections, Response, Status, StatusKind};
use xrd::segment::Segment;
use xrd::{ErrorCode, RequestCode, StreamId};

use super::connection::Connection;
use super::failures::{failed, response_of};
use super::handler::{blocking, file_of};
use super::opening::{locked, not_writable};
use super::outgoing::encoded;
use super::streams::Work;
use crate::logical::handles::OpenFile;
use crate::logical::latency::{Kind, Timed};
use crate::logical::sessions::{Counters, Session};
use crate::physical::{StorageError, StorageResult};
use crate::protocol::buffers::{LARGE_PIECE_BYTES, PIECE_BYTES};

/// Bytes that are written in place where the storage is quick.
const SMALL_BYTES: usize = 32 * 1024;

/// A write whose data come.
pub(super) struct Incoming {
    stream: StreamId,
    target: Target,
    /// Whether a checkpoint keeps what is written over.
    in_checkpoint: bool,
    /// Whether its data are more than a piece.
    is_large: bool,
    /// Why the data are passed over.
    failure: Option<Response>,
    /// Until it is answered.
    _timed: Option<Timed>,
}

enum Target {
    Plain { file: Arc<OpenFile>, offset: u64 },
    Pages(Box<PagesTarget>),
    Vector(VectorTarget),
    Nothing,
}

struct PagesTarget {
    file: Arc<OpenFile>,
    request: PgWrite,
    decoder: PageDecoder,
    offset: u64,
    bad: Vec<PageRange>,
}

struct VectorTarget {
    options: WriteVOptions,
    pieces: Vec<(Arc<OpenFile>, Segment)>,
    index: usize,
    within: u32,
}

impl Incoming {
    /// Bytes to receive next, of those that are due: up to where a large piece of the file ends, since
    /// whole ones are written fastest.
    pub(super) fn piece_bytes(&self, due: u64) -> usize {
        let piece = match &self.target {
            _ if due <= PIECE_BYTES as u64 => due,
            _ if self.failure.is_some() => PIECE_BYTES as u64,
            Target::Plain { offset, .. } => to_border(*offset),
            Target::Pages(pages) => pages.wire_to(pages.offset + to_border(pages.offset)),
            Target::Vector(_) | Target::Nothing => PIECE_BYTES as u64,
        };
        due.min(piece) as usize
    }
}

/// Bytes from here to the next multiple of a large piece.
fn to_border(offset: u64) -> u64 {
    LARGE_PIECE_BYTES as u64 - offset % LARGE_PIECE_BYTES as u64
}

impl Target {
    fn timed(&self) -> Option<Timed> {
        let file = match self {
            Target::Plain { file, .. } => file,
            Target::Pages(pages) => &pages.file,
            Target::Vector(vector) => &vector.pieces.first()?.0,
            Target::Nothing => return None,
        };
        Some(file.latencies.timed(Kind::Write))
    }
}

impl PagesTarget {
    /// Bytes with checksums that are missing of the data before this place of the file.
    fn wire_to(&self, end: u64) -> u64 {
        let taken = u64::from(self.request.length) - self.decoder.remaining();
        wire_bytes(self.request.offset, end - self.request.offset) - taken
    }
}

impl Connection {
    /// A request that data follow, or that tells where they come.
    pub(super) async fn begin_write(
        &mut self,
        stream: StreamId,
        session: &Session,
        request: Request,
    ) -> io::Result<()> {
        let elsewhere = request.data_elsewhere();
        let data_bytes = elsewhere.map_or(request.data_bytes(), |(_, length)| u64::from(length));
        let (in_checkpoint, target) = match request {
            Request::Write(write) => (false, plain(session, write.handle, write.offset)),
            Request::PgWrite(write) => (false, pages(session, write)),
            Request::WriteV(write) => (false, vector(session, write)),
            Request::Chkpoint(Chkpoint::Execute(change)) => {
                (true, checkpointed(session, change).await)
            }
            _ => (false, Ok(Target::Nothing)),
        };
        let (target, failure) = match target {
            Ok(target) => (target, None),
            Err(response) => (Target::Nothing, Some(response)),
        };
        let is_large = data_bytes > PIECE_BYTES as u64;
        let timed = target.timed();
        let incoming = Incoming { stream, target, in_checkpoint, is_large, failure, _timed: timed };
        match elsewhere {
            _ if data_bytes == 0 => self.end_write(incoming).await,
            Some((path, _)) => {
                self.delegate(path, stream, Work::Write(Box::new(incoming), data_bytes)).await
            }
            None => {
                self.incoming = Some(incoming);
                Ok(())
            }
        }
    }

    /// Data of the write that was begun.
    pub(super) async fn data(&mut self, bytes: Bytes, remaining: u64) -> io::Result<()> {
        let Some(mut incoming) = self.incoming.take() else { return Ok(()) };
        if incoming.failure.is_none()
            && let Err(response) = self.write_data(&mut incoming, bytes).await
        {
            incoming.failure = Some(response);
        }
        if remaining == 0 {
            self.expects_data = incoming.is_large;
            return self.end_write(incoming).await;
        }
        self.incoming = Some(incoming);
        Ok(())
    }

    async fn write_data(&self, incoming: &mut Incoming, bytes: Bytes) -> Result<(), Response> {
        let in_checkpoint = incoming.in_checkpoint;
        match &mut incoming.target {
            Target::Nothing => Ok(()),
            Target::Plain { file, offset } => {
                let (file, at) = (Arc::clone(file), *offset);
                *offset += bytes.len() as u64;
                write(file, at, bytes, in_checkpoint).await
            }
            Target::Pages(pages) => {
                let mut data = self.shared.buffers.take_for(bytes.len());
                let put = |part: &[u8]| assert!(data.append(part), "data are less than the wire");
                pages.decoder.push_to(&bytes, put, &mut pages.bad);
                if pages.bad.len() > BAD_PAGES_PER_WRITE_MAX {
                    let what = format!("more than {BAD_PAGES_PER_WRITE_MAX} pages are damaged");
                    return Err(failed(ErrorCode::TOO_MANY_ERRORS, what));
                }
                let (file, at) = (Arc::clone(&pages.file), pages.offset);
                pages.offset += data.filled().len() as u64;
                drop(bytes);
                write(file, at, Bytes::from_owner(data), in_checkpoint).await
            }
            Target::Vector(vector) => write_vector(vector, bytes, in_checkpoint).await,
        }
    }

    async fn end_write(&mut self, incoming: Incoming) -> io::Result<()> {
        let Incoming { stream, target, failure, _timed, .. } = incoming;
        if let Some(response) = failure {
            return self.answer(stream, &response).await;
        }
        match target {
            Target::Pages(pages) => match end_pages(stream, &pages) {
                Ok(bytes) => self.push(&bytes).await,
                Err(response) => self.answer(stream, &response).await,
            },
            Target::Vector(vector) if vector.options.contains(WriteVOptions::SYNC) => {
                let response = match sync_all(vector.pieces).await {
                    Ok(()) => Response::Ok(Bytes::new()),
                    Err(trouble) => response_of(trouble),
                };
                self.answer(stream, &response).await
            }
            _ => self.answer(stream, &Response::Ok(Bytes::new())).await,
        }
    }
}

fn writable(session: &Session, handle: xrd::FileHandle) -> Result<Arc<OpenFile>, Response> {
    let file = file_of(session, handle)?;
    match file.is_writable {
        true => Ok(file),
        false => Err(not_writable(&file)),
    }
}

fn plain(session: &Session, handle: xrd::FileHandle, offset: u64) -> Result<Target, Response> {
    writable(session, handle).map(|file| Target::Plain { file, offset })
}

fn pages(session: &Session, write: PgWrite) -> Result<Target, Response> {
    let file = writable(session, write.handle)?;
    let decoder = PageDecoder::new(write.offset, u64::from(write.length));
    let decoder = decoder.map_err(|error| Response::Error((&error).into()))?;
    let offset = write.offset;
    let pages = PagesTarget { file, request: write, decoder, offset, bad: Vec::new() };
    Ok(Target::Pages(Box::new(pages)))
}

fn vector(session: &Session, write: WriteV) -> Result<Target, Response> {
    let pieces = write.segments.iter().map(|segment| {
        let file = writable(session, segment.handle)?;
        Ok((file, *segment))
    });
    let pieces = pieces.collect::<Result<_, Response>>()?;
    Ok(Target::Vector(VectorTarget { options: write.options, pieces, index: 0, within: 0 }))
}

/// A change that a checkpoint can undo; a truncation is done at once.
async fn checkpointed(session: &Session, change: CheckpointWrite) -> Result<Target, Response> {
    match change {
        CheckpointWrite::Write(write) => plain(session, write.handle, write.offset),
        CheckpointWrite::PgWrite(write) => pages(session, write),
        CheckpointWrite::WriteV(write) => vector(session, write),
        CheckpointWrite::Truncate { handle, size } => {
            let file = writable(session, handle)?;
            let cut = blocking(move || {
                match &mut *locked(&file.checkpoint) {
                    Some(checkpoint) => checkpoint.before_truncate(&file.file, size)?,
                    None => return Err(no_checkpoint(&file)),
                }
                file.file.truncate(size)
            });
            cut.await.map_err(response_of)?;
            Ok(Target::Nothing)
        }
    }
}

async fn write(
    file: Arc<OpenFile>,
    offset: u64,
    bytes: Bytes,
    in_checkpoint: bool,
) -> Result<(), Response> {
    if bytes.is_empty() {
        return Ok(());
    }
    Counters::add(&file.bytes_written, bytes.len() as u64);
    if file.is_quick && bytes.len() <= SMALL_BYTES && !in_checkpoint {
        return file.file.write_at(offset, &bytes).map_err(response_of);
    }
    let written = blocking(move || {
        if in_checkpoint {
            match &mut *locked(&file.checkpoint) {
                Some(checkpoint) => {
                    checkpoint.before_write(&file.file, offset, bytes.len() as u64)?;
                }
                None => return Err(no_checkpoint(&file)),
            }
        }
        file.file.write_at(offset, &bytes)
    });
    written.await.map_err(response_of)
}

fn no_checkpoint(file: &OpenFile) -> StorageError {
    let what = format!("{} has no checkpoint", file.path);
    StorageError::refused(nix::errno::Errno::EINVAL, what)
}

async fn write_vector(
    vector: &mut VectorTarget,
    mut bytes: Bytes,
    in_checkpoint: bool,
) -> Result<(), Response> {
    while !bytes.is_empty() {
        let Some((file, segment)) = vector.pieces.get(vector.index) else { return Ok(()) };
        let missing = (segment.length - vector.within) as usize;
        let piece = bytes.split_to(missing.min(bytes.len()));
        let offset = segment.offset + u64::from(vector.within);
        vector.within += piece.len() as u32;
        let file = Arc::clone(file);
        if vector.within == segment.length {
            (vector.index, vector.within) = (vector.index + 1, 0);
        }
        write(file, offset, piece, in_checkpoint).await?;
    }
    Ok(())
}

async fn sync_all(pieces: Vec<(Arc<OpenFile>, Segment)>) -> StorageResult<()> {
    blocking(move || {
        // Where several pieces are of one file, only the first sync has anything to do.
        pieces.iter().try_for_each(|(file, _)| file.file.sync().map(|_| ()))
    })
    .await
}

/// The answer to a pgwrite: which pages are to be sent again.
fn end_pages(stream: StreamId, pages: &PagesTarget) -> Result<Vec<u8>, Response> {
    let PagesTarget { file, request, bad, .. } = pages;
    let mut unsound = locked(&file.unsound_pages);
    if request.flags.contains(PageFlags::RETRY) {
        let end = request.offset + u64::from(request.length);
        unsound.retain(|offset| !(request.offset..end).contains(offset));
    }
    for page in bad {
        if !unsound.contains(&page.offset) {
            unsound.push(page.offset);
        }
    }
    if unsound.len() > BAD_PAGES_PER_FILE_MAX {
        let what = format!("{} has more than {BAD_PAGES_PER_FILE_MAX} damaged pages", file.path);
        return Err(failed(ErrorCode::TOO_MANY_ERRORS, what));
    }
    let corrections = match (bad.first(), bad.last()) {
        (Some(first), Some(last)) => Corrections {
            first_bytes: first.length as u16,
            last_bytes: last.length as u16,
            offsets: bad.iter().map(|page| page.offset).collect(),
        }
        .encode()
        .map_err(|error| failed(ErrorCode::SERVER_ERROR, error.to_string()))?,
        _ => Vec::new(),
    };
    let status = Status {
        request: RequestCode::PG_WRITE,
        kind: StatusKind::FINAL,
        offset: request.offset,
        data_bytes: corrections.len() as u32,
    };
    let mut bytes = encoded(stream, &Response::Status(status));
    bytes.extend_from_slice(&corrections);
    Ok(bytes)
}
