//! A copy that is read in its store.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use femtobarn_archive::ObjectRange;
use femtobarn_catalog::{ReplicaRow, clock};
use nix::errno::Errno;
use parking_lot::Mutex;

use super::ranges::{CopyRanges, RangeBatch};
use super::stores::{InPlaceStores, ReadStore};
use crate::physical::federation::error::archive_error;
use crate::physical::fetch::Fetch;
use crate::physical::{StorageError, StorageResult};

/// A copy of a database in a store.
#[derive(Debug)]
pub(super) struct CopyReader {
    stores: Arc<InPlaceStores>,
    store: Arc<ReadStore>,
    pub replica: ReplicaRow,
    ranges: Mutex<CopyRanges>,
}

impl CopyReader {
    pub(super) fn new(
        stores: Arc<InPlaceStores>,
        (store, replica): (Arc<ReadStore>, ReplicaRow),
    ) -> Self {
        CopyReader { stores, store, replica, ranges: Mutex::default() }
    }

    /// Fills the buffer from `offset` on, unless the copy ends before.
    ///
    /// # Errors
    /// The errors of the store. Then the caller must use another copy.
    pub(super) fn read_at(
        self: &Arc<Self>,
        offset: u64,
        buffer: &mut [u8],
    ) -> StorageResult<usize> {
        let range = self.within(offset, buffer.len() as u64);
        for fetch in &self.begin(&range) {
            fetch.copy_to(&fetch.wait()?, offset, buffer);
        }
        Ok(self.done(&range))
    }

    /// Fills the buffer without blocking; `None` if bytes have not arrived.
    pub(super) fn try_read_at(self: &Arc<Self>, offset: u64, buffer: &mut [u8]) -> Option<usize> {
        let range = self.within(offset, buffer.len() as u64);
        if self.ranges.lock().has_announced() {
            self.begin(&(range.start..range.start));
        }
        let fetches = self.ranges.lock().touching(&range);
        let mut end = range.start;
        for fetch in &fetches {
            if fetch.range.start > end {
                return None;
            }
            fetch.copy_to(&fetch.bytes()?, offset, buffer);
            end = fetch.range.end;
        }
        (end >= range.end).then(|| self.done(&range))
    }

    /// Announces that a range will be read soon.
    pub(super) fn will_need(&self, offset: u64, size: u64) {
        self.ranges.lock().announce(self.within(offset, size));
    }

    /// The part of a range that the copy has.
    fn within(&self, offset: u64, length: u64) -> Range<u64> {
        let start = offset.min(self.replica.size);
        start..offset.saturating_add(length).clamp(start, self.replica.size)
    }

    fn done(&self, range: &Range<u64>) -> usize {
        self.ranges.lock().note_read(range);
        let read = range.end - range.start;
        self.stores.counts.read.fetch_add(read, Ordering::Relaxed);
        read as usize
    }

    /// Begins to fetch the missing parts of a range, and the announced ranges. Returns the fetches that cover the
    /// range; they stay valid even if another reader of it gives them up.
    fn begin(self: &Arc<Self>, wanted: &Range<u64>) -> RangeBatch {
        let mut ranges = self.ranges.lock();
        let batches = ranges.plan(wanted.clone(), &self.stores.budget, clock::now());
        let fetches = ranges.touching(wanted);
        drop(ranges);
        for batch in batches {
            // A call whose file was closed meanwhile is not made.
            let (copy, call) = (Arc::downgrade(self), StoreCall(batch));
            self.store.in_turn(move || {
                if let Some(copy) = copy.upgrade() {
                    copy.fetch(&call.0);
                }
            });
        }
        fetches
    }

    fn fetch(&self, batch: &[Arc<Fetch>]) {
        let length = |fetch: &Arc<Fetch>| (fetch.range.end - fetch.range.start) as usize;
        let mut bytes: Vec<Vec<u8>> = batch.iter().map(|fetch| vec![0; length(fetch)]).collect();
        let mut ranges: Vec<ObjectRange<'_>> = batch
            .iter()
            .zip(&mut bytes)
            .map(|(fetch, buffer)| ObjectRange { offset: fetch.range.start, buffer })
            .collect();
        match self.store.read(&self.replica.key, &mut ranges) {
            Ok(()) => {
                let fetched = batch.iter().map(length).sum::<usize>() as u64;
                self.stores.counts.fetched.fetch_add(fetched, Ordering::Relaxed);
                for (fetch, bytes) in batch.iter().zip(bytes) {
                    fetch.end(Ok(Arc::new(bytes)));
                }
            }
            Err(error) => {
                let failed = archive_error("read", &self.replica.key, error);
                batch.iter().for_each(|fetch| fetch.end(Err(failed.clone())));
            }
        }
    }
}

/// Ranges that are fetched with one call; however it ends, their readers are woken.
struct StoreCall(RangeBatch);

impl Drop for StoreCall {
    fn drop(&mut self) {
        let ended = StorageError::refused(Errno::EIO, "a read in a store was ended");
        self.0.iter().for_each(|fetch| fetch.end(Err(ended.clone())));
    }
}
