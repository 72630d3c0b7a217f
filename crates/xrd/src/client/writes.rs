//! Splitting of writes into requests.
//!
//! A large write is split, and a few parts are in flight at a time. If one fails, the others may or may not have
//! been executed. Answers to writes are short, so a server can always send them.

use std::collections::VecDeque;

use super::attempt_error::AttemptError;
use super::connection::PendingAnswer;
use super::remote_handle::RemoteHandle;
use super::sink::{CollectSink, CorrectionsSink};
use crate::codes::ErrorCode;
use crate::flags::{PageFlags, ServerFlags};
use crate::ids::PathId;
use crate::limits::BAD_PAGES_PER_WRITE_MAX;
use crate::page::{CHECKSUM_BYTES, PAGE_BYTES, PageRange, encode_pages, pages};
use crate::request::{PgWrite, Write};
use crate::response::{Corrections, Failure};

/// Bytes of one request; some servers reject more than 16 MiB.
const REQUEST_BYTES: usize = 8 << 20;
/// Requests in flight.
const AHEAD: usize = 4;
/// Maximum bytes of the corrections of one pgwrite.
const CORRECTIONS_BYTES: u64 = 16 * 1024;

/// Writes all bytes from `offset` on.
pub(super) async fn write(
    opened: &RemoteHandle,
    offset: u64,
    bytes: &[u8],
) -> Result<(), AttemptError> {
    opened.unconfirmed.settle().await?;
    let mut sent = VecDeque::new();
    let mut next = offset;
    for part in bytes.chunks(REQUEST_BYTES) {
        let sending = send(opened, next, part).await;
        sent.push_back(sending.map_err(|error| after_others(error, next == offset))?);
        next += part.len() as u64;
        if sent.len() == AHEAD
            && let Some(oldest) = sent.pop_front()
        {
            oldest.receive(&mut CollectSink::default()).await?;
        }
    }
    for request in sent {
        request.receive(&mut CollectSink::default()).await?;
    }
    Ok(())
}

/// Sends a write of all bytes from `offset` on, without waiting for the last answers.
pub(super) async fn write_later(
    opened: &RemoteHandle,
    offset: u64,
    bytes: &[u8],
) -> Result<(), AttemptError> {
    let mut next = offset;
    for part in bytes.chunks(REQUEST_BYTES) {
        opened.unconfirmed.settle_to(AHEAD - 1).await?;
        let sending = send(opened, next, part).await;
        let sent = sending.map_err(|error| after_others(error, next == offset))?;
        opened.unconfirmed.add(sent).await;
        next += part.len() as u64;
    }
    Ok(())
}

async fn send(
    opened: &RemoteHandle,
    offset: u64,
    part: &[u8],
) -> Result<PendingAnswer, AttemptError> {
    let (handle, path, length) = (opened.handle, PathId::default(), part.len() as u32);
    let request = Write { handle, offset, path, length }.into();
    opened.connection.send(&request, part, 0).await
}

/// A part that was not sent leaves the write half executed, unless it is the first part.
fn after_others(error: AttemptError, is_first: bool) -> AttemptError {
    match error {
        AttemptError::Unreachable(reason) if !is_first => AttemptError::Lost(reason),
        other => other,
    }
}

/// Writes with page checksums. Pages that arrive damaged are sent once more.
pub(super) async fn write_checked(
    opened: &RemoteHandle,
    offset: u64,
    bytes: &[u8],
) -> Result<(), AttemptError> {
    opened.unconfirmed.settle().await?;
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
        let bad = written.map_err(|error| after_others(error, next == offset))?;
        correct(opened, next, part, &bad).await?;
        next += part.len() as u64;
    }
    Ok(())
}

/// Sends pages that arrived damaged once more.
async fn correct(
    opened: &RemoteHandle,
    offset: u64,
    part: &[u8],
    bad: &[u64],
) -> Result<(), AttemptError> {
    for page in pages_at(offset, part.len(), bad) {
        let from = (page.offset - offset) as usize;
        let mut wire = Vec::with_capacity(CHECKSUM_BYTES + page.length);
        encode_pages(page.offset, &part[from..from + page.length], &mut wire);
        let again = write_pages(opened, page.offset, &wire, PageFlags::RETRY).await;
        if !again.map_err(|error| after_others(error, false))?.is_empty() {
            let message = format!("page at offset {} arrived damaged twice", page.offset);
            return Err(AttemptError::Failure(Failure::new(ErrorCode::CHECKSUM_ERROR, message)));
        }
    }
    Ok(())
}

/// The pages of a write that start at one of these offsets.
fn pages_at(offset: u64, length: usize, starts: &[u64]) -> impl Iterator<Item = PageRange> {
    pages(offset, length as u64).filter(|page| starts.contains(&page.offset))
}

/// Sends pages. Returns the offsets of those that arrived damaged.
async fn write_pages(
    opened: &RemoteHandle,
    offset: u64,
    wire: &[u8],
    flags: PageFlags,
) -> Result<Vec<u64>, AttemptError> {
    let (handle, path, length) = (opened.handle, PathId::default(), wire.len() as u32);
    let request = PgWrite { handle, offset, path, flags, length }.into();
    let mut sink = CorrectionsSink::default();
    opened.connection.call_into(&request, wire, CORRECTIONS_BYTES, &mut sink).await?;
    if sink.corrections.is_empty() {
        return Ok(Vec::new());
    }
    let offsets = Corrections::decode(&sink.corrections)?.offsets;
    if offsets.len() > BAD_PAGES_PER_WRITE_MAX {
        let message = format!("{} pages arrived damaged", offsets.len());
        Err(AttemptError::Failure(Failure::new(ErrorCode::TOO_MANY_ERRORS, message)))
    } else {
        Ok(offsets)
    }
}
