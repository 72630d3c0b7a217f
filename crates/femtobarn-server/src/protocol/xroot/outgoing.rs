//! The queue of answers that are sent together.

use xrd::response::{Response, ResponseHeader};
use xrd::{StatusCode, StreamId};

use crate::protocol::buffers::{Buffer, BufferPool, PIECE_BYTES};
use std::sync::Arc;

/// Bytes of a response's header.
pub(super) const HEADER_BYTES: usize = 8;

/// Answers in one buffer, which is only held while there are some.
#[derive(Default)]
pub(super) struct Outgoing {
    buffer: Option<Buffer>,
}

impl Outgoing {
    /// Whether so many bytes fit besides what waits. Alone, [`PIECE_BYTES`] and a head always fit.
    pub(super) fn has_room(&self, count: usize) -> bool {
        let used = self.buffer.as_ref().map_or(0, |buffer| buffer.filled().len());
        used == 0 || used + count <= PIECE_BYTES
    }

    /// The buffer, to append to.
    pub(super) fn buffer(&mut self, pool: &Arc<BufferPool>) -> &mut Buffer {
        self.buffer.get_or_insert_with(|| pool.take())
    }

    /// What waits.
    pub(super) fn take(&mut self) -> Option<Buffer> {
        self.buffer.take()
    }
}

/// The header of an answer.
pub(super) fn header(stream: StreamId, status: StatusCode, length: usize) -> [u8; HEADER_BYTES] {
    let length = u32::try_from(length).expect("answers are parted before they are too long");
    ResponseHeader { stream, status, length }.encode()
}

/// A response's bytes.
pub(super) fn encoded(stream: StreamId, response: &Response) -> Vec<u8> {
    let mut bytes = Vec::new();
    if let Err(error) = response.encode(stream, &mut bytes) {
        // Such as an owner's name with a space in it: the client learns why there is no answer.
        let failure = xrd::Failure::new(xrd::ErrorCode::SERVER_ERROR, error.to_string());
        let told = Response::Error(failure).encode(stream, &mut bytes);
        told.expect("the text of an error has no zero bytes and is short");
    }
    bytes
}
