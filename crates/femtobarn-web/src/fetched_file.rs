//! [`FetchedFile`]: bytes of a file on a server, of which each request fetches many ranges.
//!
//! Ranges that a reader announces are kept as a plan. A read of bytes that are not held fetches the range of the plan
//! with these bytes together with the ranges after it, up to a limit; so a column whose pages are scattered takes one
//! round trip per 8 MiB. A read outside the plan fetches some more bytes, since metadata lie side by side.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::ops::Range;
use std::sync::{Mutex, MutexGuard, PoisonError};

use rntuple::{ByteSource, Error, Result};

/// Bytes of one request, at most, unless it is for a single range.
const REQUEST_BYTES_MAX: u64 = 8 << 20;
/// Ranges of one request, at most: servers and proxies accept headers of 8 KiB.
const REQUEST_RANGES_MAX: usize = 200;
/// Ranges with at most this many bytes between them are fetched as one.
const GAP_MAX: u64 = 4 << 10;
/// Bytes of a request outside the plan, at least.
const UNPLANNED_BYTES_MIN: u64 = 64 << 10;
/// Bytes that are held, at most, besides those of the last request.
const HELD_BYTES_MAX: u64 = 64 << 20;

/// A file of which a function fetches ranges: it returns their bytes, one after the other.
pub struct FetchedFile<F> {
    size: u64,
    fetch: F,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Announced ranges, ascending, neither overlapping nor adjacent.
    plan: Vec<Range<u64>>,
    /// Held pieces by offset. Where they overlap, the piece that begins last counts.
    held: BTreeMap<u64, Vec<u8>>,
    /// The offsets of the held pieces, the oldest first.
    order: VecDeque<u64>,
    size_held: u64,
}

impl<F: Fn(&[Range<u64>]) -> io::Result<Vec<u8>>> FetchedFile<F> {
    /// A file of `size` bytes that `fetch` reads.
    pub fn new(size: u64, fetch: F) -> Self {
        FetchedFile { size, fetch, state: Mutex::default() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<F: Fn(&[Range<u64>]) -> io::Result<Vec<u8>> + Send + Sync> ByteSource for FetchedFile<F> {
    fn size(&self) -> Result<u64> {
        Ok(self.size)
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        let end = offset.checked_add(buffer.len() as u64).filter(|end| *end <= self.size);
        let Some(end) = end else {
            return Err(failed(io::ErrorKind::UnexpectedEof.into()));
        };
        let mut state = self.state();
        if !state.copy_held(offset, buffer) {
            let ranges = state.next_request(&(offset..end), self.size);
            state.hold(&ranges, (self.fetch)(&ranges).map_err(failed)?)?;
            if !state.copy_held(offset, buffer) {
                return Err(failed(io::Error::other("bytes are missing in the answer")));
            }
        }
        Ok(())
    }

    fn will_need(&self, ranges: &[Range<u64>]) {
        // Readers announce offsets before items, and read them after the items are announced.
        let mut state = self.state();
        let is_new = |range: &&Range<u64>| {
            range.start < range.end && range.end <= self.size && !state.is_held(range)
        };
        let new = ranges.iter().filter(is_new);
        state.plan = merged(new.chain(&state.plan).cloned().collect());
    }

    fn is_remote(&self) -> bool {
        true
    }
}

impl State {
    /// Fills the buffer from held pieces; false if a byte is missing.
    fn copy_held(&self, offset: u64, buffer: &mut [u8]) -> bool {
        let held = self.held_bytes(offset, buffer.len() as u64);
        held.map(|held| buffer.copy_from_slice(held)).is_some()
    }

    fn is_held(&self, range: &Range<u64>) -> bool {
        self.held_bytes(range.start, range.end - range.start).is_some()
    }

    fn held_bytes(&self, offset: u64, length: u64) -> Option<&[u8]> {
        let (start, bytes) = self.held.range(..=offset).next_back()?;
        let from = usize::try_from(offset - start).ok()?;
        bytes.get(from..from.checked_add(usize::try_from(length).ok()?)?)
    }

    /// The ranges to fetch for missing bytes.
    fn next_request(&mut self, missing: &Range<u64>, size: u64) -> Vec<Range<u64>> {
        let covers = |it: &Range<u64>| it.start <= missing.start && missing.end <= it.end;
        let Some(first) = self.plan.iter().position(covers) else {
            let end = missing.end.max(missing.start.saturating_add(UNPLANNED_BYTES_MIN));
            return vec![missing.start..end.min(size)];
        };
        let mut bytes = 0;
        let fits = |range: &&Range<u64>| {
            bytes += range.end - range.start;
            bytes <= REQUEST_BYTES_MAX
        };
        let more = self.plan[first..].iter().take(REQUEST_RANGES_MAX).take_while(fits).count();
        self.plan.drain(first..first + more.max(1)).collect()
    }

    /// Keeps fetched bytes, and drops the oldest.
    fn hold(&mut self, ranges: &[Range<u64>], bytes: Vec<u8>) -> Result<()> {
        while self.size_held > HELD_BYTES_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.drop_held(oldest);
        }
        let mut rest = &bytes[..];
        for range in ranges {
            let length = (range.end - range.start) as usize;
            let Some((these, others)) = rest.split_at_checked(length) else {
                return Err(failed(io::Error::other("an answer is too short")));
            };
            rest = others;
            let within = self.held.range(range.clone());
            for start in within.map(|(start, _)| *start).collect::<Vec<_>>() {
                self.drop_held(start);
            }
            self.held.insert(range.start, these.to_vec());
            self.order.push_back(range.start);
            self.size_held += length as u64;
        }
        Ok(())
    }

    fn drop_held(&mut self, start: u64) {
        self.size_held -= self.held.remove(&start).map_or(0, |bytes| bytes.len() as u64);
    }
}

/// The ranges, which ascend, joined across small gaps.
fn merged(mut ranges: Vec<Range<u64>>) -> Vec<Range<u64>> {
    ranges.sort_by_key(|range| range.start);
    let mut merged: Vec<Range<u64>> = vec![];
    for range in ranges {
        match merged.last_mut() {
            Some(last) if range.start <= last.end.saturating_add(GAP_MAX) => {
                last.end = last.end.max(range.end);
            }
            _ => merged.push(range),
        }
    }
    merged
}

fn failed(source: io::Error) -> Error {
    Error::Io { what: "fetch a range of the file".to_owned(), source }
}
