//! Answers that are sent together, and their encoding.

use std::sync::Arc;

use xrd::response::{Response, ResponseHeader};
use xrd::{StatusCode, StreamId};

use crate::protocol::buffers::{BufferPool, PIECE_BYTES, PooledBuffer};

/// Bytes of a response's header.
pub(super) const HEADER_BYTES: usize = 8;

/// The offset of the answers in their buffer. The data of a file's page follow a header, and the kernel would copy them
/// slowly to an address just after the start of a page of memory.
const ANSWERS_START: usize = 64;

/// Queued answers in one buffer, which is held only while there are any.
#[derive(Default)]
pub(super) struct AnswerQueue {
    buffer: Option<PooledBuffer>,
}

impl AnswerQueue {
    /// Whether this many bytes fit after the queued ones. [`PIECE_BYTES`] and a header always fit into an empty queue.
    pub(super) fn has_room(&self, count: usize) -> bool {
        let used = self.buffer.as_ref().map_or(0, |buffer| buffer.filled().len());
        used == 0 || used + count <= PIECE_BYTES
    }

    /// The buffer, to append to.
    pub(super) fn buffer(&mut self, pool: &Arc<BufferPool>) -> &mut PooledBuffer {
        self.buffer.get_or_insert_with(|| pool.take().starting_at(ANSWERS_START))
    }

    /// The queued answers.
    pub(super) fn take(&mut self) -> Option<PooledBuffer> {
        self.buffer.take()
    }
}

/// The header of an answer.
pub(super) fn header(stream: StreamId, status: StatusCode, length: usize) -> [u8; HEADER_BYTES] {
    let length = u32::try_from(length).expect("answers are split before they exceed 4 GiB");
    ResponseHeader { stream, status, length }.encode()
}

/// A response's bytes.
pub(super) fn encoded(stream: StreamId, response: &Response) -> Vec<u8> {
    let mut bytes = Vec::new();
    if let Err(error) = response.encode(stream, &mut bytes) {
        // For example an owner's name with a space: the client gets an error in place of the answer.
        let failure = xrd::Failure::new(xrd::ErrorCode::SERVER_ERROR, error.to_string());
        let told = Response::Error(failure).encode(stream, &mut bytes);
        told.expect("the text of an error is short and without zero bytes");
    }
    bytes
}
