//! Reads and writes in progress. They are performed by the connection that received the request, or by a bound one of
//! its session.

use std::sync::Arc;

use xrd::StreamId;
use xrd::flags::WriteVOptions;
use xrd::page::{PageDecoder, PageRange, wire_bytes};
use xrd::request::PgWrite;
use xrd::response::Response;
use xrd::segment::Segment;

use crate::logical::handles::OpenFile;
use crate::logical::latency::{LatencyTimer, RequestKind};
use crate::protocol::buffers::{LARGE_PIECE_BYTES, PIECE_BYTES};

/// A request that one connection received and a bound connection performs and answers.
pub(super) struct Delegated {
    pub stream: StreamId,
    pub work: DelegatedWork,
}

/// The work of a bound connection.
pub(super) enum DelegatedWork {
    Read(ReadTransfer),
    /// A write whose data, of this many bytes, arrive on the bound connection.
    Write(Box<IncomingWrite>, u64),
}

/// A read, by the encoding of its answer.
pub(super) enum ReadTransfer {
    Plain(ReadRange),
    Pages(ReadRange),
    Vector(Vec<ReadRange>),
}

/// A range of an open file that a client reads.
pub(super) struct ReadRange {
    pub file: Arc<OpenFile>,
    pub segment: Segment,
    /// The offset in the file, in bytes.
    pub offset: u64,
    /// Bytes.
    pub length: u64,
}

/// A write whose data are arriving.
pub(super) struct IncomingWrite {
    pub stream: StreamId,
    pub target: WriteTarget,
    /// Whether the overwritten bytes are stored in the file's checkpoint.
    pub in_checkpoint: bool,
    /// Whether the data are larger than [`PIECE_BYTES`].
    pub is_large: bool,
    /// The failure after which the remaining data are skipped.
    pub failure: Option<Response>,
    /// Runs until the write is answered.
    pub timer: Option<LatencyTimer>,
}

/// The destination of a write's data.
pub(super) enum WriteTarget {
    Plain { file: Arc<OpenFile>, offset: u64 },
    Pages(Box<PagesTarget>),
    Vector(VectorTarget),
    Nothing,
}

/// The destination of a pgwrite: pages with checksums.
pub(super) struct PagesTarget {
    pub file: Arc<OpenFile>,
    pub request: PgWrite,
    pub decoder: PageDecoder,
    pub offset: u64,
    /// Pages with wrong checksums.
    pub bad: Vec<PageRange>,
}

/// The destination of a writev: segments of several files.
pub(super) struct VectorTarget {
    pub options: WriteVOptions,
    pub segments: Vec<(Arc<OpenFile>, Segment)>,
    /// The segment that the next data belong to.
    pub index: usize,
    /// Bytes of that segment that have arrived.
    pub within: u32,
}

impl ReadRange {
    /// The range of a segment.
    pub(super) fn new(file: Arc<OpenFile>, segment: &Segment) -> Self {
        ReadRange {
            file,
            segment: *segment,
            offset: segment.offset,
            length: u64::from(segment.length),
        }
    }
}

impl IncomingWrite {
    /// Bytes to receive next, of `due` remaining ones: up to the end of a large piece of the file, since whole large
    /// pieces are written fastest.
    pub(super) fn piece_bytes(&self, due: u64) -> usize {
        let piece = match &self.target {
            _ if due <= PIECE_BYTES as u64 => due,
            _ if self.failure.is_some() => PIECE_BYTES as u64,
            WriteTarget::Plain { offset, .. } => to_boundary(*offset),
            WriteTarget::Pages(pages) => pages.wire_to(pages.offset + to_boundary(pages.offset)),
            WriteTarget::Vector(_) | WriteTarget::Nothing => PIECE_BYTES as u64,
        };
        due.min(piece) as usize
    }
}

/// Bytes from an offset to the next multiple of [`LARGE_PIECE_BYTES`].
fn to_boundary(offset: u64) -> u64 {
    LARGE_PIECE_BYTES as u64 - offset % LARGE_PIECE_BYTES as u64
}

impl WriteTarget {
    /// Starts timing the write, for the export of its first file.
    pub(super) fn start_timer(&self) -> Option<LatencyTimer> {
        let file = match self {
            WriteTarget::Plain { file, .. } => file,
            WriteTarget::Pages(pages) => &pages.file,
            WriteTarget::Vector(vector) => &vector.segments.first()?.0,
            WriteTarget::Nothing => return None,
        };
        Some(file.latencies.start_timer(RequestKind::Write))
    }
}

impl PagesTarget {
    /// Bytes on the wire, including checksums, that are missing of the data before this offset of the file.
    fn wire_to(&self, end: u64) -> u64 {
        let taken = u64::from(self.request.length) - self.decoder.remaining();
        wire_bytes(self.request.offset, end - self.request.offset) - taken
    }
}
