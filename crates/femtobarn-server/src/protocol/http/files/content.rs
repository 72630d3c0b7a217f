//! The bytes of an answer: texts and ranges of a file, read in pieces while they are sent.

use std::collections::VecDeque;
use std::io;
use std::ops::Range;
use std::sync::Arc;

use axum::body::Body;
use bytes::Bytes;
use nix::errno::Errno;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;

use super::failure::HttpFailure;
use crate::logical::files::SharedFile;
use crate::physical::{StorageError, StorageResult};
use crate::protocol::buffers::{BufferPool, PIECE_BYTES};

/// Pieces that are read before the client has taken the ones before them.
const PIECES_AHEAD: usize = 2;
/// Ranges that are announced to the storage at once.
const ANNOUNCED_MAX: usize = 256;

/// A part of an answer.
#[derive(Clone, Debug)]
pub(super) enum AnswerPart {
    /// A text.
    Text(Bytes),
    /// Bytes of the file.
    Range(Range<u64>),
}

/// The parts of an answer that were not read yet.
struct Unread {
    file: Arc<SharedFile>,
    parts: VecDeque<AnswerPart>,
    buffers: Arc<BufferPool>,
}

/// The body with these parts. Its first piece is read now, so that a file that cannot be read fails the request.
///
/// # Errors
/// Those of reading the file; `EIO` if it is shorter than the ranges.
pub(super) async fn body(
    file: Arc<SharedFile>,
    parts: Vec<AnswerPart>,
    buffers: Arc<BufferPool>,
) -> Result<Body, HttpFailure> {
    let unread = Unread { file, parts: parts.into(), buffers };
    unread.announce();
    let (mut unread, piece) = unread.piece().await?;
    if unread.parts.is_empty() {
        return Ok(Body::from(piece));
    }
    let (sender, receiver) = mpsc::channel(PIECES_AHEAD);
    tokio::spawn(async move {
        let mut piece = piece;
        // It fails if the client has gone.
        while sender.send(Ok(piece)).await.is_ok() && !unread.parts.is_empty() {
            match unread.piece().await {
                Ok(read) => (unread, piece) = read,
                Err(failure) => {
                    // Ends the connection: the client sees that bytes are missing.
                    let _ = sender.send(Err(io::Error::other(format!("{failure:?}")))).await;
                    return;
                }
            }
        }
    });
    Ok(Body::from_stream(ReceiverStream::new(receiver)))
}

impl Unread {
    fn announce(&self) {
        let Some(file) = self.file.ready() else { return };
        for part in self.parts.iter().take(ANNOUNCED_MAX) {
            if let AnswerPart::Range(range) = part {
                file.will_need(range.start, range.end - range.start);
            }
        }
    }

    /// The next piece, and the parts behind it. What is in memory is read on this thread, which sends it while it is in
    /// the core's cache.
    async fn piece(mut self) -> Result<(Self, Bytes), HttpFailure> {
        if let Some(file) = self.file.ready() {
            let piece = self.read(|offset, room| file.try_read_at(offset, room))?;
            if !piece.is_empty() {
                return Ok((self, piece));
            }
        }
        let read = tokio::task::spawn_blocking(move || {
            let file = self.file.interface()?;
            let piece = self.read(|offset, room| file.read_at(offset, room).map(Some))?;
            Ok((self, piece))
        });
        let read: StorageResult<_> =
            read.await.map_err(|error| HttpFailure::Broken(error.to_string()))?;
        Ok(read?)
    }

    /// A piece of the parts, up to the first bytes for which `read_at` gives none.
    fn read(
        &mut self,
        read_at: impl Fn(u64, &mut [u8]) -> StorageResult<Option<usize>>,
    ) -> StorageResult<Bytes> {
        let mut piece = self.buffers.take();
        while piece.filled().len() < PIECE_BYTES
            && let Some(part) = self.parts.front_mut()
        {
            let room_bytes = PIECE_BYTES - piece.filled().len();
            let room = &mut piece.room()[..room_bytes];
            let (count, is_done) = match part {
                AnswerPart::Text(text) => {
                    let count = text.len().min(room.len());
                    room[..count].copy_from_slice(&text.split_to(count));
                    (count, text.is_empty())
                }
                AnswerPart::Range(range) => {
                    let left = usize::try_from(range.end - range.start).unwrap_or(usize::MAX);
                    let count = left.min(room.len());
                    let Some(read) = read_at(range.start, &mut room[..count])? else { break };
                    if read < count {
                        let what = format!("{} became shorter while it was read", self.file.path());
                        return Err(StorageError::refused(Errno::EIO, what));
                    }
                    range.start += count as u64;
                    (count, range.is_empty())
                }
            };
            piece.grow(count);
            if is_done {
                self.parts.pop_front();
            }
        }
        Ok(Bytes::from_owner(piece))
    }
}
