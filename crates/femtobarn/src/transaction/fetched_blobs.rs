//! The blobs that receipts name in one file, read together: a merge costs a server as many round trips for a thousand
//! receipts as for one.
//!
//! The ranges are untrusted: a range that does not lie in the file is not read here, and reading it later fails.

use std::collections::BTreeMap;

use rntuple::{ByteSource, ReadRequest, Result};

use crate::annex::Blob;

/// Some blobs of a file, in memory. Everything else is read from the file.
pub(super) struct FetchedBlobs<'a> {
    file: &'a dyn ByteSource,
    /// Bytes of the file, for which it is not asked again.
    size: u64,
    by_offset: BTreeMap<u64, Vec<u8>>,
}

impl<'a> FetchedBlobs<'a> {
    /// Reads blobs of a file of `size` bytes.
    ///
    /// # Errors
    /// [`rntuple::Error`] if the file cannot be read.
    pub(super) fn fetch<'b>(
        file: &'a dyn ByteSource,
        size: u64,
        blobs: impl Iterator<Item = &'b Blob>,
    ) -> Result<Self> {
        let is_inside = |blob: &&Blob| {
            blob.size > 0 && blob.offset.checked_add(blob.size).is_some_and(|end| end <= size)
        };
        let buffer = |blob: &Blob| (blob.offset, vec![0; blob.size as usize]);
        let mut by_offset: BTreeMap<u64, Vec<u8>> = blobs.filter(is_inside).map(buffer).collect();
        let requests = by_offset.iter_mut();
        let requests = requests.map(|(&offset, buffer)| ReadRequest { offset, buffer });
        file.read_many(&mut requests.collect::<Vec<_>>())?;
        Ok(FetchedBlobs { file, size, by_offset })
    }
}

impl ByteSource for FetchedBlobs<'_> {
    fn size(&self) -> Result<u64> {
        Ok(self.size)
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        match self.by_offset.get(&offset).and_then(|bytes| bytes.get(..buffer.len())) {
            Some(bytes) => {
                buffer.copy_from_slice(bytes);
                Ok(())
            }
            None => self.file.read_at(offset, buffer),
        }
    }

    fn read_past_caches(&self, requests: &mut [ReadRequest<'_>]) -> Result<()> {
        self.file.read_past_caches(requests)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blobs_are_in_memory_and_ranges_beyond_the_file_are_left_alone() {
        let disk: Vec<u8> = (0..100).collect();
        let blob = |offset, size| Blob { offset, size, checksum: 0 };
        let blobs = [blob(10, 5), blob(90, 10), blob(96, 5), blob(u64::MAX, 2), blob(7, 1 << 60)];
        let mut file = disk.clone();
        let fetched = FetchedBlobs::fetch(&file, 100, blobs.iter()).unwrap();
        assert_eq!(fetched.by_offset.keys().copied().collect::<Vec<_>>(), [10, 90]);
        let read = |from: &FetchedBlobs<'_>, offset, size| {
            let mut buffer = vec![0; size];
            from.read_at(offset, &mut buffer).map(|()| buffer)
        };
        assert_eq!(read(&fetched, 90, 10).unwrap(), disk[90..]);
        assert_eq!(read(&fetched, 30, 3).unwrap(), [30, 31, 32]);
        assert!(read(&fetched, 96, 5).is_err());
        let by_offset = fetched.by_offset;
        file.fill(0);
        let fetched = FetchedBlobs { file: &file, size: 100, by_offset };
        assert_eq!(read(&fetched, 10, 5).unwrap(), disk[10..15], "no second read");
    }
}
