//! Tiers: caches between this process and a server. They are asked in order, before the server.
//!
//! 1. A tier holds only bytes that a commit refers to, so they never change within an epoch of the database.
//! 2. Bytes found in one tier are added to those before it, and bytes from the server to all of them.
//! 3. Bytes of a tier are not trusted. If a checksum does not match, the reader asks for the server's bytes: they
//!    replace those of the tiers, and each difference is counted.
//! 4. No error of a tier fails a read: the server has the bytes.

use std::fmt::Debug;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use femtobarn_catalog::Csn;
use rntuple::ReadRequest;

use super::history::CommitMark;

/// Cached bytes of one file in one epoch.
pub(crate) trait FileTier: Debug + Send + Sync {
    /// The reads from the tier, in all files.
    fn counts(&self) -> &TierCounts;

    /// Fills the parts of the requests that it has, and returns for each the ranges that it lacks, ascending and
    /// disjoint. Bytes of these ranges are unspecified.
    fn fill(&self, requests: &mut [ReadRequest<'_>]) -> Vec<Vec<Range<u64>>>;

    /// Adds bytes that the commit refers to, in place of those that the tier has.
    fn insert(&self, requests: &[ReadRequest<'_>], commit: CommitMark);
}

/// The reads from a tier, or from the server.
#[derive(Debug, Default)]
pub(crate) struct TierCounts {
    hits: AtomicU64,
    misses: AtomicU64,
    bytes: AtomicU64,
    damaged: AtomicU64,
    failures: AtomicU64,
}

/// A process's reads from a cache, or from the server, since it opened the federation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TierStatistics {
    /// `disk cache`, `memcached`, `server`, or the URL of one of several servers.
    pub name: String,
    /// Ranges of a file that it returned.
    pub hits: u64,
    /// Ranges that it was asked for and did not have; 0 for the server.
    pub misses: u64,
    /// Bytes of the hits.
    pub bytes: u64,
    /// A warning: ranges or blocks that were damaged or forged, and were read from the next tier or the server.
    pub damaged: u64,
    /// A warning: how often it failed or did not answer in time, and was left out for a while.
    pub failures: u64,
}

impl TierCounts {
    pub(crate) fn add_hits(&self, ranges: u64, bytes: u64) {
        self.hits.fetch_add(ranges, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(crate) fn add_damaged(&self, count: u64) {
        self.damaged.fetch_add(count, Ordering::Relaxed);
    }

    pub(crate) fn add_failure(&self) {
        self.failures.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn statistics(&self, name: &str) -> TierStatistics {
        let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
        TierStatistics {
            name: name.to_owned(),
            hits: of(&self.hits),
            misses: of(&self.misses),
            bytes: of(&self.bytes),
            damaged: of(&self.damaged),
            failures: of(&self.failures),
        }
    }
}

/// The tiers of one file, and the commit that refers to all bytes that are read through them.
#[derive(Clone, Debug)]
pub(crate) struct FileTiers {
    pub tiers: Arc<[Arc<dyn FileTier>]>,
    pub commit: CommitMark,
}

impl FileTiers {
    /// No tiers, for reading as of a commit.
    pub(crate) fn none(at: Csn) -> Self {
        FileTiers { tiers: Arc::new([]), commit: CommitMark { csn: at, time_us: 0 } }
    }

    /// Fills requests, and returns the parts of them that no tier has.
    pub(crate) fn fill<'a>(&self, requests: Vec<ReadRequest<'a>>) -> Vec<ReadRequest<'a>> {
        // An offset that is damaged is left to the server, which refuses it.
        let has_end = |request: &ReadRequest<'_>| {
            request.offset.checked_add(request.buffer.len() as u64).is_some()
        };
        let (mut missing, endless): (Vec<_>, Vec<_>) = requests.into_iter().partition(has_end);
        for (index, tier) in self.tiers.iter().enumerate() {
            if missing.is_empty() {
                break;
            }
            let gaps = tier.fill(&mut missing);
            let (found, lacking) = split(missing, gaps);
            tier.counts().add_hits(found.len() as u64, total(&found));
            tier.counts().misses.fetch_add(lacking.len() as u64, Ordering::Relaxed);
            if !found.is_empty() {
                self.tiers[..index].iter().for_each(|before| before.insert(&found, self.commit));
            }
            missing = lacking;
        }
        missing.extend(endless);
        missing
    }

    /// Adds bytes from the server to all tiers.
    pub(crate) fn insert(&self, requests: &[ReadRequest<'_>]) {
        self.tiers.iter().for_each(|tier| tier.insert(requests, self.commit));
    }

    /// Replaces the bytes of all tiers by those from the server, and counts where they differ.
    pub(crate) fn replace(&self, requests: &[ReadRequest<'_>]) {
        for tier in self.tiers.iter() {
            let mut held: Vec<_> =
                requests.iter().map(|request| vec![0; request.buffer.len()]).collect();
            let copies = requests.iter().zip(&mut held);
            let mut copies: Vec<_> = copies
                .map(|(request, buffer)| ReadRequest { offset: request.offset, buffer })
                .collect();
            let gaps = tier.fill(&mut copies);
            let (held, _) = split(copies, gaps);
            let is_damaged =
                |held: &&ReadRequest<'_>| !requests.iter().any(|right| agree(right, held));
            tier.counts().add_damaged(held.iter().filter(is_damaged).count() as u64);
            tier.insert(requests, self.commit);
        }
    }
}

/// Whether a request has all bytes of a part of it.
fn agree(whole: &ReadRequest<'_>, part: &ReadRequest<'_>) -> bool {
    let start = part.offset.checked_sub(whole.offset);
    let from = start.and_then(|start| whole.buffer.get(start as usize..));
    from.is_some_and(|from| from.starts_with(part.buffer))
}

/// Splits requests into the parts outside of their gaps and those in them.
fn split<'a>(
    requests: Vec<ReadRequest<'a>>,
    gaps: Vec<Vec<Range<u64>>>,
) -> (Vec<ReadRequest<'a>>, Vec<ReadRequest<'a>>) {
    let (mut found, mut lacking) = (vec![], vec![]);
    for (ReadRequest { mut offset, mut buffer }, gaps) in requests.into_iter().zip(gaps) {
        for Range { start, end } in gaps {
            let (before, rest) =
                std::mem::take(&mut buffer).split_at_mut((start - offset) as usize);
            let (gap, rest) = rest.split_at_mut((end - start) as usize);
            found.push(ReadRequest { offset, buffer: before });
            lacking.push(ReadRequest { offset: start, buffer: gap });
            (offset, buffer) = (end, rest);
        }
        found.push(ReadRequest { offset, buffer });
    }
    found.retain(|part| !part.buffer.is_empty());
    (found, lacking)
}

/// Bytes of all requests.
pub(crate) fn total(requests: &[ReadRequest<'_>]) -> u64 {
    requests.iter().map(|request| request.buffer.len() as u64).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_split_at_their_gaps() {
        let mut bytes: Vec<u8> = (0..30).collect();
        let (first, second) = bytes.split_at_mut(20);
        let requests = vec![
            ReadRequest { offset: 100, buffer: first },
            ReadRequest { offset: 200, buffer: second },
        ];
        let gaps = vec![vec![100..103, 110..112, 119..120], vec![]];
        let (found, lacking) = split(requests, gaps);
        let parts = |parts: &[ReadRequest<'_>]| -> Vec<(u64, u8, usize)> {
            parts.iter().map(|part| (part.offset, part.buffer[0], part.buffer.len())).collect()
        };
        assert_eq!(parts(&found), [(103, 3, 7), (112, 12, 7), (200, 20, 10)]);
        assert_eq!(parts(&lacking), [(100, 0, 3), (110, 10, 2), (119, 19, 1)]);
    }

    #[test]
    fn a_part_agrees_with_the_same_bytes_at_the_same_offset_only() {
        let mut whole = [1, 2, 3, 4];
        let whole = ReadRequest { offset: 10, buffer: &mut whole };
        let agrees =
            |offset, mut bytes: [u8; 2]| agree(&whole, &ReadRequest { offset, buffer: &mut bytes });
        assert!(agrees(11, [2, 3]));
        for (offset, bytes) in [(12, [2, 3]), (9, [2, 3]), (11, [2, 4]), (14, [2, 3])] {
            assert!(!agrees(offset, bytes), "{bytes:?} at {offset}");
        }
        assert!(!agrees(u64::MAX, [2, 3]));
    }
}
