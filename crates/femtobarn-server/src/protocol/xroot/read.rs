//! Requests that read one range of a file: read, pgread.
//!
//! 1. A small range in memory is read directly behind the header of its answer.
//! 2. A small range that is not in memory is read concurrently with other requests.
//! 3. A long range is sent by the kernel if possible, and otherwise through one buffer, piece by piece. So a connection
//!    never holds more than one buffer.
//! 4. The parts of an answer to pgread end at page boundaries of the file. A small range has one part.
//!
//! Source: "The XRootD Protocol" 5.1.1, section 3: kXR_read, kXR_pgread.

use std::io::{self, IoSlice};
use std::sync::Arc;

use xrd::page::{self, PAGE_BYTES};
use xrd::request::{PgRead, Read};
use xrd::response::{Response, Status, StatusKind};
use xrd::{PathId, RequestCode, StatusCode, StreamId};

use super::answer_queue::{HEADER_BYTES, encoded, header};
use super::connection::{DelayedAnswer, RootConnection};
use super::handler::{blocking, readable_file_of};
use super::responses::response_of;
use super::transfer::{DelegatedWork, ReadRange, ReadTransfer};
use crate::logical::latency::RequestKind;
use crate::logical::sessions::Counters;
use crate::physical::{StorageResult, StoredFile};
use crate::protocol::buffers::{PIECE_BYTES, PooledBuffer};

/// Bytes of a range that is copied rather than sent by the kernel. The two copies are a fifth of the processor time of
/// a read of 16 KiB, but only a read shows whether all bytes are in memory: `cachestat` also counts pages that are
/// still being read, and `sendfile` would wait for these.
const SMALL_BYTES: usize = 64 * 1024;

/// Bytes of one part of the answer to a long read.
const PART_BYTES: u64 = 2 * 1024 * 1024;

/// Bytes of a long read that are announced to the storage in advance.
pub(super) const AHEAD_BYTES: u64 = 4 * PART_BYTES;

impl RootConnection {
    pub(super) async fn read_request(&mut self, stream: StreamId, read: Read) -> io::Result<()> {
        let Some(session) = self.session() else { return Ok(()) };
        let segment = read.segment;
        let file = match readable_file_of(session, segment.handle) {
            Ok(file) => file,
            Err(response) => return self.answer(stream, &response).await,
        };
        let mut path = PathId::default();
        if let Some(arguments) = &read.arguments {
            path = arguments.path;
            if let (false, Some(interface)) = (arguments.ahead.is_empty(), file.file.ready()) {
                for ahead in arguments.ahead.iter().filter(|ahead| ahead.handle == segment.handle) {
                    interface.will_need(ahead.offset, u64::from(ahead.length));
                }
            }
        }
        let range = ReadRange::new(file, &segment);
        if path == PathId::default() {
            return self.read(stream, range).await;
        }
        Box::pin(self.read_on(path, stream, ReadTransfer::Plain(range))).await
    }

    pub(super) async fn pgread_request(
        &mut self,
        stream: StreamId,
        read: PgRead,
    ) -> io::Result<()> {
        let Some(session) = self.session() else { return Ok(()) };
        let file = match readable_file_of(session, read.segment.handle) {
            Ok(file) => file,
            Err(response) => return self.answer(stream, &response).await,
        };
        let range = ReadRange::new(file, &read.segment);
        match read.path {
            None | Some(PathId(0) | PathId::ANY) => self.pgread(stream, range).await,
            Some(path) => Box::pin(self.read_on(path, stream, ReadTransfer::Pages(range))).await,
        }
    }

    /// Performs a read on the connection of the session that the client named.
    pub(super) async fn read_on(
        &mut self,
        path: PathId,
        stream: StreamId,
        read: ReadTransfer,
    ) -> io::Result<()> {
        if path == PathId::default() {
            self.perform(stream, read).await
        } else {
            self.delegate(path, stream, DelegatedWork::Read(read)).await
        }
    }

    /// Performs a read on this connection.
    pub(super) async fn perform(&mut self, stream: StreamId, read: ReadTransfer) -> io::Result<()> {
        match read {
            ReadTransfer::Plain(range) => self.read(stream, range).await,
            ReadTransfer::Pages(range) => self.pgread(stream, range).await,
            ReadTransfer::Vector(ranges) => self.readv(stream, ranges).await,
        }
    }

    async fn read(&mut self, stream: StreamId, range: ReadRange) -> io::Result<()> {
        Counters::add(&range.file.bytes_read, range.length);
        if range.length > SMALL_BYTES as u64 {
            return Box::pin(self.read_long(stream, range)).await;
        }
        let length = range.length as usize;
        if let Some(interface) = range.file.file.ready() {
            let buffer = self.room(HEADER_BYTES + length).await?;
            match interface.try_read_at(range.offset, &mut buffer.room()[HEADER_BYTES..][..length])
            {
                Ok(Some(count)) => {
                    let header = header(stream, StatusCode::OK, count);
                    buffer.room()[..HEADER_BYTES].copy_from_slice(&header);
                    buffer.grow(HEADER_BYTES + count);
                    range.file.latencies.record_immediate(RequestKind::Read);
                    return Ok(());
                }
                Ok(None) => {}
                Err(error) => return self.answer(stream, &response_of(error)).await,
            }
        }
        Box::pin(self.read_cold(stream, range, read_answer)).await
    }

    /// Reads a small range that is not in memory: concurrently, as long as such answers do not hold too many bytes.
    async fn read_cold(
        &mut self,
        stream: StreamId,
        range: ReadRange,
        reading: fn(StreamId, &ReadRange) -> StorageResult<Vec<u8>>,
    ) -> io::Result<()> {
        let timed = range.file.latencies.start_timer(RequestKind::Read);
        let kibibytes = (range.length / 1024 + 1) as u32;
        let late = Arc::clone(&self.service.concurrent_reads).try_acquire_many_owned(kibibytes);
        let answer = async move {
            let _timed = timed;
            match blocking(move || reading(stream, &range)).await {
                Ok(bytes) => DelayedAnswer { bytes, ..DelayedAnswer::default() },
                Err(error) => DelayedAnswer::of(stream, &response_of(error)),
            }
        };
        match late {
            Ok(permit) => {
                self.delay(async { DelayedAnswer { _permit: Some(permit), ..answer.await } }).await
            }
            Err(_) => {
                self.flush().await?;
                self.socket.has_room().await?;
                self.answer_delayed(answer.await).await
            }
        }
    }

    /// Reads a long range part by part. Its end is known from the file's size, so the kernel is never asked to send
    /// bytes past the end.
    async fn read_long(&mut self, stream: StreamId, range: ReadRange) -> io::Result<()> {
        let _timed = range.file.latencies.start_timer(RequestKind::Read);
        let file = Arc::clone(&range.file);
        let is_open = file.file.ready().is_some_and(|interface| interface.descriptor().is_some());
        let metadata = if file.is_quick || is_open {
            file.file.metadata()
        } else {
            blocking(move || file.file.metadata()).await
        };
        let (interface, size) = match metadata.and_then(|metadata| {
            range.file.file.interface().map(|interface| (interface, metadata.size))
        }) {
            Ok(found) => found,
            Err(error) => return self.answer(stream, &response_of(error)).await,
        };
        let mut left = size.saturating_sub(range.offset).min(range.length);
        let mut offset = range.offset;
        loop {
            let (part, ahead) = (left.min(PART_BYTES), left.min(AHEAD_BYTES));
            left -= part;
            let status = if left == 0 { StatusCode::OK } else { StatusCode::OK_SO_FAR };
            let header = header(stream, status, part as usize);
            let sent = self.send_part(&header, &interface, offset, part as usize, ahead).await?;
            if let Err(response) = sent {
                return self.answer(stream, &response).await;
            }
            if left == 0 {
                return Ok(());
            }
            offset += part;
        }
    }

    /// Sends one part of a long range and announces the next `ahead` bytes. Gives an error response if the read failed
    /// before anything was sent.
    async fn send_part(
        &mut self,
        header: &[u8],
        interface: &Arc<dyn StoredFile>,
        offset: u64,
        length: usize,
        ahead: u64,
    ) -> io::Result<Result<(), Response>> {
        if let (true, Some(descriptor)) = (self.socket.takes_files(), interface.descriptor())
            && is_in_memory(&**interface, offset, length)
        {
            self.flush().await?;
            self.count_out(header.len() + length);
            self.socket.send_file(header, descriptor, offset, length).await?;
            return Ok(Ok(()));
        }
        interface.will_need(offset, ahead);
        let mut sent = 0;
        let mut head = header;
        while sent < length || !head.is_empty() {
            let count = (length - sent).min(PIECE_BYTES);
            self.flush().await?;
            self.socket.has_room().await?;
            let (buffer, filled) = match self.fill(interface, offset + sent as u64, count).await {
                Ok(filled) => filled,
                Err(error) if sent == 0 => return Ok(Err(response_of(error))),
                Err(_) => return Err(io::ErrorKind::BrokenPipe.into()),
            };
            if filled < count {
                // The file was truncated meanwhile, but the header announced more bytes.
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            self.send(&mut [IoSlice::new(head), IoSlice::new(&buffer[..count])]).await?;
            head = &[];
            sent += count;
        }
        Ok(Ok(()))
    }

    /// Reads a piece of a file into a new buffer, and returns the number of bytes.
    async fn fill(
        &self,
        interface: &Arc<dyn StoredFile>,
        offset: u64,
        length: usize,
    ) -> StorageResult<(PooledBuffer, usize)> {
        let mut buffer = self.service.buffers.take();
        if let Some(count) = interface.try_read_at(offset, &mut buffer[..length])? {
            return Ok((buffer, count));
        }
        drop(buffer);
        let (interface, pool) = (Arc::clone(interface), Arc::clone(&self.service.buffers));
        // The blocking thread takes the buffer, so that a wait for a thread holds none.
        blocking(move || {
            let mut buffer = pool.take();
            let count = interface.read_at(offset, &mut buffer[..length])?;
            Ok((buffer, count))
        })
        .await
    }

    async fn pgread(&mut self, stream: StreamId, range: ReadRange) -> io::Result<()> {
        Counters::add(&range.file.bytes_read, range.length);
        if range.length <= SMALL_BYTES as u64 {
            return self.pgread_small(stream, range).await;
        }
        let _timed = range.file.latencies.start_timer(RequestKind::Read);
        let interface = match range.file.file.ready() {
            Some(interface) => Ok(interface),
            None => {
                let file = Arc::clone(&range.file);
                blocking(move || file.file.interface()).await
            }
        };
        let interface = match interface {
            Ok(interface) => interface,
            Err(error) => return self.answer(stream, &response_of(error)).await,
        };
        if range.length > PIECE_BYTES as u64 {
            interface.will_need(range.offset, range.length);
        }
        let (mut offset, mut left) = (range.offset, range.length);
        loop {
            let to_boundary = PIECE_BYTES - (offset % PAGE_BYTES as u64) as usize;
            let length = to_boundary.min(usize::try_from(left).unwrap_or(usize::MAX));
            if length > SMALL_BYTES {
                self.flush().await?;
                self.socket.has_room().await?;
            }
            let (buffer, count) = match self.fill(&interface, offset, length).await {
                Ok(filled) => filled,
                Err(error) => return self.answer(stream, &response_of(error)).await,
            };
            left -= count as u64;
            let is_last = count < length || left == 0;
            self.send_pages(stream, offset, &buffer[..count], is_last).await?;
            if is_last {
                return Ok(());
            }
            offset += count as u64;
        }
    }

    async fn pgread_small(&mut self, stream: StreamId, range: ReadRange) -> io::Result<()> {
        if let Some(interface) = range.file.file.ready() {
            let mut buffer = self.service.buffers.take();
            let data = &mut buffer[..range.length as usize];
            match interface.try_read_at(range.offset, data) {
                Ok(Some(count)) => {
                    range.file.latencies.record_immediate(RequestKind::Read);
                    return self.send_pages(stream, range.offset, &data[..count], true).await;
                }
                Ok(None) => {}
                Err(error) => return self.answer(stream, &response_of(error)).await,
            }
        }
        Box::pin(self.read_cold(stream, range, pgread_answer)).await
    }

    /// Sends one part of the answer to a pgread: pages, each after its checksum.
    async fn send_pages(
        &mut self,
        stream: StreamId,
        offset: u64,
        data: &[u8],
        is_last: bool,
    ) -> io::Result<()> {
        let (head, pages) = pages(stream, offset, data, is_last);
        let mut slices = Vec::with_capacity(1 + 2 * pages.len());
        slices.push(IoSlice::new(&head));
        for (checksum, data) in &pages {
            slices.extend([IoSlice::new(checksum), IoSlice::new(data)]);
        }
        self.send(&mut slices).await
    }
}

/// Reads a small range into its answer. May block.
fn read_answer(stream: StreamId, range: &ReadRange) -> StorageResult<Vec<u8>> {
    let interface = range.file.file.interface()?;
    let mut bytes = vec![0; HEADER_BYTES + range.length as usize];
    let count = interface.read_at(range.offset, &mut bytes[HEADER_BYTES..])?;
    bytes[..HEADER_BYTES].copy_from_slice(&header(stream, StatusCode::OK, count));
    bytes.truncate(HEADER_BYTES + count);
    Ok(bytes)
}

/// As [`read_answer`], for pgread.
fn pgread_answer(stream: StreamId, range: &ReadRange) -> StorageResult<Vec<u8>> {
    let interface = range.file.file.interface()?;
    let mut data = vec![0; range.length as usize];
    let count = interface.read_at(range.offset, &mut data)?;
    let (mut answer, pages) = pages(stream, range.offset, &data[..count], true);
    for (checksum, data) in pages {
        answer.extend_from_slice(&checksum);
        answer.extend_from_slice(data);
    }
    Ok(answer)
}

/// A page after its checksum.
type CheckedPage<'a> = ([u8; 4], &'a [u8]);

/// The head of one part of the answer to a pgread, and its pages with their checksums.
fn pages(
    stream: StreamId,
    offset: u64,
    data: &[u8],
    is_last: bool,
) -> (Vec<u8>, Vec<CheckedPage<'_>>) {
    let status = Status {
        request: RequestCode::PG_READ,
        kind: if is_last { StatusKind::FINAL } else { StatusKind::PARTIAL },
        offset,
        data_bytes: page::wire_bytes(offset, data.len() as u64) as u32,
    };
    let head = encoded(stream, &Response::Status(status));
    let mut pages = Vec::with_capacity(data.len() / PAGE_BYTES + 2);
    let mut left = data;
    for range in page::pages(offset, data.len() as u64) {
        let (now, later) = left.split_at(range.length);
        pages.push((page::checksum(now).to_be_bytes(), now));
        left = later;
    }
    (head, pages)
}

/// Whether the first and last byte of a range are in memory. If they are not, `sendfile` would block this thread on the
/// disk, and with it all of the thread's connections.
fn is_in_memory(interface: &dyn StoredFile, offset: u64, length: usize) -> bool {
    let mut byte = [0];
    let mut has = |offset| matches!(interface.try_read_at(offset, &mut byte), Ok(Some(1)));
    length > 0 && has(offset) && has(offset + length as u64 - 1)
}
