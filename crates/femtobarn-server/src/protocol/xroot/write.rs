//! Requests that write: write, pgwrite, writev, and changes within checkpoints.
//!
//! 1. Data are written in pieces, as they arrive. Those of a large write are pieces of 2 MiB at multiples of 2 MiB in
//!    the file, which the kernel gathers; storages write these around the page cache.
//! 2. After a failure the remaining data of the request are skipped. The answer, which is sent when all data have
//!    arrived, is the first failure.
//! 3. Pages with wrong checksums are written, too. The answer lists them, and the handle remembers them until the
//!    client has corrected them.
//! 4. Data that arrive on a bound connection are written and answered there; see `bound_streams`.
//!
//! Source: "The XRootD Protocol" 5.1.1, section 3: kXR_write, kXR_pgwrite, kXR_writev, kXR_chkpoint.

use std::io;
use std::sync::Arc;

use bytes::Bytes;
use xrd::flags::{PageFlags, WriteVOptions};
use xrd::limits::{BAD_PAGES_PER_FILE_MAX, BAD_PAGES_PER_WRITE_MAX};
use xrd::page::PageDecoder;
use xrd::request::{CheckpointWrite, Chkpoint, PgWrite, Request, WriteV};
use xrd::response::{Corrections, Response, Status, StatusKind};
use xrd::segment::Segment;
use xrd::{ErrorCode, RequestCode, StreamId};

use super::answer_queue::encoded;
use super::connection::RootConnection;
use super::handler::{blocking, writable_file_of};
use super::responses::{failed, response_of};
use super::transfer::{DelegatedWork, IncomingWrite, PagesTarget, VectorTarget, WriteTarget};
use crate::logical::handles::OpenFile;
use crate::logical::sessions::{ClientSession, Counters};
use crate::physical::{StorageError, StorageResult};
use crate::protocol::buffers::PIECE_BYTES;

/// The largest write in bytes that is done on the connection's thread if the storage is quick.
const SMALL_BYTES: usize = 32 * 1024;

impl RootConnection {
    /// Begins a write, whose data follow on this connection or on the one that the request names.
    pub(super) async fn begin_write(
        &mut self,
        stream: StreamId,
        session: &ClientSession,
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
            _ => (false, Ok(WriteTarget::Nothing)),
        };
        let (target, failure) = match target {
            Ok(target) => (target, None),
            Err(response) => (WriteTarget::Nothing, Some(response)),
        };
        let is_large = data_bytes > PIECE_BYTES as u64;
        let timer = target.start_timer();
        let incoming = IncomingWrite { stream, target, in_checkpoint, is_large, failure, timer };
        match elsewhere {
            _ if data_bytes == 0 => self.end_write(incoming).await,
            Some((path, _)) => {
                self.delegate(path, stream, DelegatedWork::Write(Box::new(incoming), data_bytes))
                    .await
            }
            None => {
                self.incoming = Some(incoming);
                Ok(())
            }
        }
    }

    /// Writes data of the current write.
    pub(super) async fn on_data(&mut self, bytes: Bytes, remaining: u64) -> io::Result<()> {
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

    async fn write_data(&self, incoming: &mut IncomingWrite, bytes: Bytes) -> Result<(), Response> {
        let in_checkpoint = incoming.in_checkpoint;
        match &mut incoming.target {
            WriteTarget::Nothing => Ok(()),
            WriteTarget::Plain { file, offset } => {
                let (file, at) = (Arc::clone(file), *offset);
                *offset += bytes.len() as u64;
                write(file, at, bytes, in_checkpoint).await
            }
            WriteTarget::Pages(pages) => {
                let mut data = self.service.buffers.take_for(bytes.len());
                let put =
                    |part: &[u8]| assert!(data.append(part), "pages are smaller without checksums");
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
            WriteTarget::Vector(vector) => write_vector(vector, bytes, in_checkpoint).await,
        }
    }

    async fn end_write(&mut self, incoming: IncomingWrite) -> io::Result<()> {
        let IncomingWrite { stream, target, failure, timer: _timer, .. } = incoming;
        if let Some(response) = failure {
            return self.answer(stream, &response).await;
        }
        match target {
            WriteTarget::Pages(pages) => match end_pages(stream, &pages) {
                Ok(bytes) => self.push(&bytes).await,
                Err(response) => self.answer(stream, &response).await,
            },
            WriteTarget::Vector(vector) if vector.options.contains(WriteVOptions::SYNC) => {
                let response = match sync_all(vector.segments).await {
                    Ok(()) => Response::Ok(Bytes::new()),
                    Err(error) => response_of(error),
                };
                self.answer(stream, &response).await
            }
            _ => self.answer(stream, &Response::Ok(Bytes::new())).await,
        }
    }
}

fn plain(
    session: &ClientSession,
    handle: xrd::FileHandle,
    offset: u64,
) -> Result<WriteTarget, Response> {
    writable_file_of(session, handle).map(|file| WriteTarget::Plain { file, offset })
}

fn pages(session: &ClientSession, write: PgWrite) -> Result<WriteTarget, Response> {
    let file = writable_file_of(session, write.handle)?;
    let decoder = PageDecoder::new(write.offset, u64::from(write.length));
    let decoder = decoder.map_err(|error| Response::Error((&error).into()))?;
    let offset = write.offset;
    let pages = PagesTarget { file, request: write, decoder, offset, bad: Vec::new() };
    Ok(WriteTarget::Pages(Box::new(pages)))
}

fn vector(session: &ClientSession, write: WriteV) -> Result<WriteTarget, Response> {
    let segments = write.segments.iter().map(|segment| {
        let file = writable_file_of(session, segment.handle)?;
        Ok((file, *segment))
    });
    let segments = segments.collect::<Result<_, Response>>()?;
    Ok(WriteTarget::Vector(VectorTarget { options: write.options, segments, index: 0, within: 0 }))
}

/// Begins a change that the file's checkpoint can undo. A truncation has no data, and is done at once.
async fn checkpointed(
    session: &ClientSession,
    change: CheckpointWrite,
) -> Result<WriteTarget, Response> {
    match change {
        CheckpointWrite::Write(write) => plain(session, write.handle, write.offset),
        CheckpointWrite::PgWrite(write) => pages(session, write),
        CheckpointWrite::WriteV(write) => vector(session, write),
        CheckpointWrite::Truncate { handle, size } => {
            let file = writable_file_of(session, handle)?;
            let cut = blocking(move || {
                match &mut *file.checkpoint.lock() {
                    Some(checkpoint) => checkpoint.before_truncate(&file.file, size)?,
                    None => return Err(no_checkpoint(&file)),
                }
                file.file.truncate(size)
            });
            cut.await.map_err(response_of)?;
            Ok(WriteTarget::Nothing)
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
            match &mut *file.checkpoint.lock() {
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
        let Some((file, segment)) = vector.segments.get(vector.index) else { return Ok(()) };
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

async fn sync_all(segments: Vec<(Arc<OpenFile>, Segment)>) -> StorageResult<()> {
    blocking(move || {
        // If several segments are in one file, only the first sync has anything to do.
        segments.iter().try_for_each(|(file, _)| file.file.sync().map(|_| ()))
    })
    .await
}

/// The answer to a pgwrite, which lists the pages that the client has to send again.
fn end_pages(stream: StreamId, pages: &PagesTarget) -> Result<Vec<u8>, Response> {
    let PagesTarget { file, request, bad, .. } = pages;
    let mut unsound = file.unsound_pages.lock();
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
