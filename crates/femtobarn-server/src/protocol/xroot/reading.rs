//! Reading pieces of files: read and pgread.
//!
//! 1. A small piece that is in memory is read straight behind the header of its answer.
//! 2. A small piece that is not is read beside other requests.
//! 3. The bytes of long pieces are sent by the kernel where it can, and else go through one buffer,
//!    piece by piece, so that a session never holds more than that.
//! 4. Parts of answers to pgread end at page borders of the file. They are never delayed answers.
//!
//! Source: "The XRootD Protocol" 5.1.1, section 3: kXR_read, kXR_pgread.

use std::io::{self, IoSlice};
use std::sync::Arc;

use xrd::page::{self, PAGE_BYTES};
use xrd::request::{PgRead, Read};
use xrd::response::{Response, Status, StatusKind};
use xrd::{PathId, RequestCode, StatusCode, StreamId};

use super::connection::{Connection, Late};
use super::failures::response_of;
use super::handler::{blocking, file_of};
use super::outgoing::{HEADER_BYTES, encoded, header};
use super::streams::Work;
use super::vector::ReadRange;
use crate::logical::handles::OpenFile;
use crate::logical::latency::Kind;
use crate::logical::sessions::Counters;
use crate::physical::{StorageResult, StoredFile};
use crate::protocol::buffers::{Buffer, PIECE_BYTES};

/// Bytes of a piece that are copied rather than sent by the kernel.
const SMALL_BYTES: usize = 64 * 1024;

/// Bytes of one part of the answer to a long read.
const PART_BYTES: u64 = 2 * 1024 * 1024;

/// Bytes of a long read that the disk is told of before.
const AHEAD_BYTES: u64 = 4 * PART_BYTES;

/// Something to read, for this connection or another of the same session.
pub(super) enum Reading {
    Plain(ReadRange),
    Pages(ReadRange),
    Vector(Vec<ReadRange>),
}

impl Connection {
    pub(super) async fn read_request(&mut self, stream: StreamId, read: Read) -> io::Result<()> {
        let Some(session) = self.session() else { return Ok(()) };
        let segment = read.segment;
        let file = match file_of(session, segment.handle) {
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
        let want = ReadRange::new(file, &segment);
        if path == PathId::default() {
            return self.read(stream, want).await;
        }
        Box::pin(self.read_on(path, stream, Reading::Plain(want))).await
    }

    pub(super) async fn pgread_request(
        &mut self,
        stream: StreamId,
        read: PgRead,
    ) -> io::Result<()> {
        let Some(session) = self.session() else { return Ok(()) };
        let file = match file_of(session, read.segment.handle) {
            Ok(file) => file,
            Err(response) => return self.answer(stream, &response).await,
        };
        let want = ReadRange::new(file, &read.segment);
        match read.path {
            None | Some(PathId(0) | PathId::ANY) => self.pgread(stream, want).await,
            Some(path) => Box::pin(self.read_on(path, stream, Reading::Pages(want))).await,
        }
    }

    /// Has another connection of the session answer, or this one if it is meant.
    pub(super) async fn read_on(
        &mut self,
        path: PathId,
        stream: StreamId,
        reading: Reading,
    ) -> io::Result<()> {
        match path == PathId::default() {
            true => self.perform(stream, reading).await,
            false => self.delegate(path, stream, Work::Read(reading)).await,
        }
    }

    /// Reads and answers on this connection.
    pub(super) async fn perform(&mut self, stream: StreamId, reading: Reading) -> io::Result<()> {
        match reading {
            Reading::Plain(want) => self.read(stream, want).await,
            Reading::Pages(want) => self.pgread(stream, want).await,
            Reading::Vector(wants) => self.readv(stream, wants).await,
        }
    }

    async fn read(&mut self, stream: StreamId, want: ReadRange) -> io::Result<()> {
        Counters::add(&want.file.bytes_read, want.length);
        if want.length > SMALL_BYTES as u64 {
            return Box::pin(self.read_long(stream, want)).await;
        }
        let length = want.length as usize;
        if let Some(interface) = want.file.file.ready() {
            let buffer = self.room(HEADER_BYTES + length).await?;
            match interface.try_read_at(want.offset, &mut buffer.room()[HEADER_BYTES..][..length]) {
                Ok(Some(count)) => {
                    let header = header(stream, StatusCode::OK, count);
                    buffer.room()[..HEADER_BYTES].copy_from_slice(&header);
                    buffer.grow(HEADER_BYTES + count);
                    want.file.latencies.at_once(Kind::Read);
                    return Ok(());
                }
                Ok(None) => {}
                Err(trouble) => return self.answer(stream, &response_of(trouble)).await,
            }
        }
        Box::pin(self.read_cold(stream, want)).await
    }

    /// A small piece that may have to be waited for: beside others, as long as there are not too many
    /// bytes of such answers already.
    async fn read_cold(&mut self, stream: StreamId, want: ReadRange) -> io::Result<()> {
        let timed = want.file.latencies.timed(Kind::Read);
        let kibibytes = (want.length / 1024 + 1) as u32;
        let late = Arc::clone(&self.shared.late).try_acquire_many_owned(kibibytes);
        let answer = async move {
            let _timed = timed;
            match blocking(move || read_answer(stream, &want)).await {
                Ok(bytes) => bytes,
                Err(trouble) => encoded(stream, &response_of(trouble)),
            }
        };
        match late {
            Ok(permit) => {
                let late = async move { Late { bytes: answer.await, _permit: Some(permit) } };
                self.later(late).await
            }
            Err(_) => {
                self.flush().await?;
                self.socket.has_room().await?;
                let bytes = answer.await;
                self.push(&bytes).await
            }
        }
    }

    /// A long piece, part by part. The file's size tells how long it is, so that the kernel is never
    /// asked for what is not there.
    async fn read_long(&mut self, stream: StreamId, want: ReadRange) -> io::Result<()> {
        let _timed = want.file.latencies.timed(Kind::Read);
        let file = Arc::clone(&want.file);
        let is_open = file.file.ready().is_some_and(|interface| interface.descriptor().is_some());
        let metadata = match file.is_quick || is_open {
            true => file.file.metadata(),
            false => blocking(move || file.file.metadata()).await,
        };
        let (interface, size) = match metadata.and_then(|metadata| {
            want.file.file.interface().map(|interface| (interface, metadata.size))
        }) {
            Ok(found) => found,
            Err(trouble) => return self.answer(stream, &response_of(trouble)).await,
        };
        let mut left = size.saturating_sub(want.offset).min(want.length);
        let mut offset = want.offset;
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

    /// One part of a long piece, of which so many bytes will be read. A response where nothing of it was
    /// sent yet.
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
                Err(trouble) if sent == 0 => return Ok(Err(response_of(trouble))),
                Err(_) => return Err(io::ErrorKind::BrokenPipe.into()),
            };
            if filled < count {
                // The file was cut meanwhile, but the client was told of more.
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            self.send(&mut [IoSlice::new(head), IoSlice::new(&buffer[..count])]).await?;
            head = &[];
            sent += count;
        }
        Ok(Ok(()))
    }

    /// A buffer with a piece of a file; how much of it there is.
    async fn fill(
        &self,
        interface: &Arc<dyn StoredFile>,
        offset: u64,
        length: usize,
    ) -> StorageResult<(Buffer, usize)> {
        let mut buffer = self.shared.buffers.take();
        if let Some(count) = interface.try_read_at(offset, &mut buffer[..length])? {
            return Ok((buffer, count));
        }
        drop(buffer);
        let (interface, pool) = (Arc::clone(interface), Arc::clone(&self.shared.buffers));
        // Who waits for a thread holds no buffer.
        blocking(move || {
            let mut buffer = pool.take();
            let count = interface.read_at(offset, &mut buffer[..length])?;
            Ok((buffer, count))
        })
        .await
    }

    async fn pgread(&mut self, stream: StreamId, want: ReadRange) -> io::Result<()> {
        let _timed = want.file.latencies.timed(Kind::Read);
        Counters::add(&want.file.bytes_read, want.length);
        let interface = match want.file.file.ready() {
            Some(interface) => Ok(interface),
            None => {
                let file = Arc::clone(&want.file);
                blocking(move || file.file.interface()).await
            }
        };
        let interface = match interface {
            Ok(interface) => interface,
            Err(trouble) => return self.answer(stream, &response_of(trouble)).await,
        };
        if want.length > PIECE_BYTES as u64 {
            interface.will_need(want.offset, want.length);
        }
        let (mut offset, mut left) = (want.offset, want.length);
        loop {
            let border = PIECE_BYTES - (offset % PAGE_BYTES as u64) as usize;
            let length = border.min(usize::try_from(left).unwrap_or(usize::MAX));
            if length > SMALL_BYTES {
                self.flush().await?;
                self.socket.has_room().await?;
            }
            let (buffer, count) = match self.fill(&interface, offset, length).await {
                Ok(filled) => filled,
                Err(trouble) => return self.answer(stream, &response_of(trouble)).await,
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

    /// One part of the answer to a pgread: each page behind its checksum.
    async fn send_pages(
        &mut self,
        stream: StreamId,
        offset: u64,
        data: &[u8],
        is_last: bool,
    ) -> io::Result<()> {
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
        let mut slices = Vec::with_capacity(1 + 2 * pages.len());
        slices.push(IoSlice::new(&head));
        for (checksum, data) in &pages {
            slices.extend([IoSlice::new(checksum), IoSlice::new(data)]);
        }
        self.send(&mut slices).await
    }
}

/// The answer to a small read, read from where it may have to be waited for.
fn read_answer(stream: StreamId, want: &ReadRange) -> StorageResult<Vec<u8>> {
    let interface = want.file.file.interface()?;
    let mut bytes = vec![0; HEADER_BYTES + want.length as usize];
    let count = interface.read_at(want.offset, &mut bytes[HEADER_BYTES..])?;
    bytes[..HEADER_BYTES].copy_from_slice(&header(stream, StatusCode::OK, count));
    bytes.truncate(HEADER_BYTES + count);
    Ok(bytes)
}

/// Whether a range is in memory, as far as its ends tell: the kernel would wait for the disk in place
/// of this thread otherwise, and with it all connections that the thread serves.
fn is_in_memory(interface: &dyn StoredFile, offset: u64, length: usize) -> bool {
    let mut byte = [0];
    let mut has = |offset| matches!(interface.try_read_at(offset, &mut byte), Ok(Some(1)));
    length > 0 && has(offset) && has(offset + length as u64 - 1)
}

impl ReadRange {
    /// What a segment of a file wants.
    pub(super) fn new(file: Arc<OpenFile>, segment: &xrd::segment::Segment) -> Self {
        ReadRange {
            file,
            segment: *segment,
            offset: segment.offset,
            length: u64::from(segment.length),
        }
    }
}
