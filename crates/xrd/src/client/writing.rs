//! How writes become requests.
//!
//! Writes are parted, and a few parts are sent ahead of their answers. If one fails, it is not known
//! what became of the others. Answers are short, so a server never waits for room for them.

use std::collections::VecDeque;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use super::connection::Sent;
use super::failure::AttemptError;
use super::file::Opened;
use super::sink::{Gathered, Written};
use crate::codes::ErrorCode;
use crate::flags::{PageFlags, ServerFlags};
use crate::ids::PathId;
use crate::limits::BAD_PAGES_PER_WRITE_MAX;
use crate::page::{CHECKSUM_BYTES, PAGE_BYTES, PageRange, encode_pages, pages};
use crate::request::{PgWrite, Write};
use crate::response::{Corrections, Failure};

/// Bytes of one request; some servers take no more than 16 MiB.
const REQUEST_BYTES: usize = 8 << 20;
/// Requests ahead of the answers.
const AHEAD: usize = 4;
/// Bytes of the corrections of one pgwrite.
const CORRECTIONS_BYTES: u64 = 16 * 1024;

/// Writes all bytes from `offset` on.
pub(super) async fn write(opened: &Opened, offset: u64, bytes: &[u8]) -> Result<(), AttemptError> {
    opened.unanswered.settle().await?;
    let mut sent = VecDeque::new();
    let mut next = offset;
    for part in bytes.chunks(REQUEST_BYTES) {
        let sending = send(opened, next, part).await;
        sent.push_back(sending.map_err(|trouble| after_others(trouble, next == offset))?);
        next += part.len() as u64;
        if sent.len() == AHEAD
            && let Some(oldest) = sent.pop_front()
        {
            oldest.answer(&mut Gathered::default()).await?;
        }
    }
    for request in sent {
        request.answer(&mut Gathered::default()).await?;
    }
    Ok(())
}

/// Sends all bytes to be written from `offset` on.
pub(super) async fn write_later(
    opened: &Opened,
    offset: u64,
    bytes: &[u8],
) -> Result<(), AttemptError> {
    let mut next = offset;
    for part in bytes.chunks(REQUEST_BYTES) {
        opened.unanswered.settle_to(AHEAD - 1).await?;
        let sending = send(opened, next, part).await;
        let sent = sending.map_err(|trouble| after_others(trouble, next == offset))?;
        opened.unanswered.add(sent).await;
        next += part.len() as u64;
    }
    Ok(())
}

async fn send(opened: &Opened, offset: u64, part: &[u8]) -> Result<Sent, AttemptError> {
    let (handle, path, length) = (opened.handle, PathId::default(), part.len() as u32);
    let request = Write { handle, offset, path, length }.into();
    opened.connection.send(&request, part, 0).await
}

/// Writes whose answers nobody has waited for yet.
#[derive(Debug, Default)]
pub(super) struct Unanswered {
    /// Whether there may be any, or one has failed.
    is_used: AtomicBool,
    sent: tokio::sync::Mutex<VecDeque<Sent>>,
    /// What became of the first one that failed.
    failed: OnceLock<AttemptError>,
}

impl Unanswered {
    /// Whether a write is known to have failed.
    pub fn has_failed(&self) -> bool {
        self.failed.get().is_some()
    }

    /// Waits for all answers.
    pub async fn settle(&self) -> Result<(), AttemptError> {
        match self.is_used.load(Ordering::SeqCst) {
            true => self.settle_to(0).await,
            false => Ok(()),
        }
    }

    /// Waits until no more than so many answers are due.
    async fn settle_to(&self, count: usize) -> Result<(), AttemptError> {
        let mut sent = self.sent.lock().await;
        while sent.len() > count
            && let Some(oldest) = sent.pop_front()
        {
            if let Err(trouble) = oldest.answer(&mut Gathered::default()).await {
                // The data are gone, so it cannot be done later, or elsewhere.
                let failure = match trouble {
                    AttemptError::Wait(_)
                    | AttemptError::Redirect(_)
                    | AttemptError::Unreachable(_) => {
                        AttemptError::Lost("it did not write what it was sent".to_owned())
                    }
                    other => other,
                };
                // Of several, the first one is told.
                drop(self.failed.set(failure));
            }
        }
        match self.failed.get() {
            Some(failure) => Err(failure.clone()),
            None => Ok(()),
        }
    }

    async fn add(&self, sent: Sent) {
        self.is_used.store(true, Ordering::SeqCst);
        self.sent.lock().await.push_back(sent);
    }
}

/// What was not sent, but for parts before it, is half done.
fn after_others(trouble: AttemptError, is_first: bool) -> AttemptError {
    match trouble {
        AttemptError::Unreachable(reason) if !is_first => AttemptError::Lost(reason),
        other => other,
    }
}

/// Writes with checksums of pages, and what came damaged once more.
pub(super) async fn write_checked(
    opened: &Opened,
    offset: u64,
    bytes: &[u8],
) -> Result<(), AttemptError> {
    opened.unanswered.settle().await?;
    if !opened.connection.flags().contains(ServerFlags::PAGES) {
        return write(opened, offset, bytes).await;
    }
    let first = REQUEST_BYTES - (offset % PAGE_BYTES as u64) as usize;
    let (first, rest) = bytes.split_at(first.min(bytes.len()));
    let mut next = offset;
    let mut wire = Vec::new();
    for part in std::iter::once(first).chain(rest.chunks(REQUEST_BYTES)) {
        wire.clear();
        encode_pages(next, part, &mut wire);
        let written = write_pages(opened, next, &wire, PageFlags::default()).await;
        let bad = written.map_err(|trouble| after_others(trouble, next == offset))?;
        correct(opened, next, part, &bad).await?;
        next += part.len() as u64;
    }
    Ok(())
}

/// Sends pages that came damaged once more.
async fn correct(
    opened: &Opened,
    offset: u64,
    part: &[u8],
    bad: &[u64],
) -> Result<(), AttemptError> {
    for page in pages_at(offset, part.len(), bad) {
        let from = (page.offset - offset) as usize;
        let mut wire = Vec::with_capacity(CHECKSUM_BYTES + page.length);
        encode_pages(page.offset, &part[from..from + page.length], &mut wire);
        let again = write_pages(opened, page.offset, &wire, PageFlags::RETRY).await;
        if !again.map_err(|trouble| after_others(trouble, false))?.is_empty() {
            let message = format!("the page at byte {} comes damaged twice", page.offset);
            return Err(AttemptError::Failure(Failure::new(ErrorCode::CHECKSUM_ERROR, message)));
        }
    }
    Ok(())
}

/// The pages of a write that start at these offsets.
fn pages_at(offset: u64, length: usize, starts: &[u64]) -> impl Iterator<Item = PageRange> {
    pages(offset, length as u64).filter(|page| starts.contains(&page.offset))
}

/// Sends pages; tells where those start that came damaged.
async fn write_pages(
    opened: &Opened,
    offset: u64,
    wire: &[u8],
    flags: PageFlags,
) -> Result<Vec<u64>, AttemptError> {
    let (handle, path, length) = (opened.handle, PathId::default(), wire.len() as u32);
    let request = PgWrite { handle, offset, path, flags, length }.into();
    let mut sink = Written::default();
    opened.connection.call_into(&request, wire, CORRECTIONS_BYTES, &mut sink).await?;
    if sink.corrections.is_empty() {
        return Ok(Vec::new());
    }
    let offsets = Corrections::decode(&sink.corrections)?.offsets;
    match offsets.len() > BAD_PAGES_PER_WRITE_MAX {
        true => {
            let message = format!("{} pages came damaged", offsets.len());
            Err(AttemptError::Failure(Failure::new(ErrorCode::TOO_MANY_ERRORS, message)))
        }
        false => Ok(offsets),
    }
}
