//! The bytes of an answer: texts and ranges of a file, read in pieces while they are sent.

use std::collections::VecDeque;
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use axum::body::Body;
use bytes::Bytes;
use nix::errno::Errno;
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_stream::wrappers::ReceiverStream;

use super::failure::HttpFailure;
use super::{FileSite, STALL_MAX};
use crate::logical::files::SharedFile;
use crate::physical::{StorageError, StorageResult};
use crate::protocol::buffers::PIECE_BYTES;

/// Ranges that are announced to the storage in one step.
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
    site: Arc<FileSite>,
    file: Arc<SharedFile>,
    parts: VecDeque<AnswerPart>,
}

/// The body with these parts. Its first piece is read now, so that an unreadable file fails the request; each further
/// piece when the client has received the ones before.
///
/// # Errors
/// The errors of reading the file; `EIO` if it is shorter than the ranges.
pub(super) async fn body(
    site: &Arc<FileSite>,
    file: Arc<SharedFile>,
    parts: Vec<AnswerPart>,
) -> Result<Body, HttpFailure> {
    let unread = Unread { site: Arc::clone(site), file, parts: parts.into() };
    unread.announce();
    let (unread, piece) = unread.piece().await?;
    if unread.parts.is_empty() {
        return Ok(Body::from(piece));
    }
    let (sender, receiver) = mpsc::channel(1);
    tokio::spawn(async move {
        if sender.send(Ok(piece)).await.is_ok()
            && let Err(failure) = send_rest(unread, &sender).await
        {
            // Ends the connection: the client sees that bytes are missing.
            let _ = sender.send(Err(io::Error::other(format!("{failure:?}")))).await;
        }
    });
    Ok(Body::from_stream(ReceiverStream::new(receiver)))
}

/// Sends all parts. Stops without an error if the client has disconnected.
async fn send_rest(
    mut unread: Unread,
    sender: &mpsc::Sender<io::Result<Bytes>>,
) -> Result<(), HttpFailure> {
    while !unread.parts.is_empty() {
        let Ok(place) = timeout(STALL_MAX, sender.reserve()).await else {
            return Err(HttpFailure::Broken("the client takes no bytes".to_owned()));
        };
        let Ok(place) = place else { return Ok(()) };
        let piece;
        (unread, piece) = unread.piece().await?;
        place.send(Ok(piece));
    }
    Ok(())
}

impl Unread {
    fn announce(&self) {
        let Some(file) = self.file.ready() else { return };
        let ranges = self.parts.iter().filter_map(|part| match part {
            AnswerPart::Range(range) => Some(range),
            AnswerPart::Text(_) => None,
        });
        for range in ranges.take(ANNOUNCED_MAX) {
            file.will_need(range.start, range.end - range.start);
        }
    }

    /// The next piece, and the remaining parts. Bytes in memory are read on this thread, which then sends them while
    /// they are in the core's cache.
    async fn piece(mut self) -> Result<(Self, Bytes), HttpFailure> {
        if let Some(file) = self.file.ready() {
            if file.is_remote() {
                // The storage fetches announced ranges together with the next read.
                self.announce();
            }
            let piece = self.read(|offset, room| file.try_read_at(offset, room))?;
            if !piece.is_empty() {
                return Ok((self, piece));
            }
        }
        let blocking = self.site.blocking.clone();
        let read = blocking.spawn_blocking(move || {
            let file = self.file.interface()?;
            let piece = self.read(|offset, room| file.read_at(offset, room).map(Some))?;
            Ok((self, piece))
        });
        let read: StorageResult<_> =
            read.await.map_err(|error| HttpFailure::Broken(error.to_string()))?;
        Ok(read?)
    }

    /// A piece of the parts, up to the first bytes for which `read_at` returns `None`.
    fn read(
        &mut self,
        read_at: impl Fn(u64, &mut [u8]) -> StorageResult<Option<usize>>,
    ) -> StorageResult<Bytes> {
        let mut piece = self.site.buffers.take();
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
        self.site.transferred.fetch_add(piece.filled().len() as u64, Ordering::Relaxed);
        Ok(Bytes::from_owner(piece))
    }
}
