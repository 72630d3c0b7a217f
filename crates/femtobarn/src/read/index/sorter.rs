//! Sorting of new keys in memory, and merging them into the runs of an index.
//!
//! Runs are merged as binary counters carry: a new run takes in the runs before it that have no more keys than
//! it has by then. So an index has about log2 of the number of commits runs, and a key is rewritten at most
//! that often.

use std::cmp::Ordering;

use rntuple::ByteSource;

use super::key;
use super::run::{RunSink, RunWriter};
use super::run_reader::RunStream;
use crate::annex::IndexRun;
use crate::error::{Error, Result};

/// Bytes of keys that are gathered before a run is written.
const GATHERED_BYTES_MAX: usize = 64 << 20;

/// Pairs of key and entry in memory.
#[derive(Default)]
pub(super) struct Sorter {
    bytes: Vec<u8>,
    pairs: Vec<Pair>,
}

#[derive(Clone, Copy)]
struct Pair {
    start: u32,
    length: u16,
    entry: u64,
}

impl Sorter {
    /// Adds a pair. The key is cut off at [`key::KEY_BYTES_MAX`].
    pub(crate) fn push(&mut self, key: &[u8], entry: u64) {
        let key = key::truncate(key);
        let (start, length) = (self.bytes.len() as u32, key.len() as u16);
        self.bytes.extend_from_slice(key);
        self.pairs.push(Pair { start, length, entry });
    }

    /// Whether a run should be written before more pairs are added.
    pub(crate) fn is_full(&self) -> bool {
        self.bytes.len() + self.pairs.len() * size_of::<Pair>() >= GATHERED_BYTES_MAX
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.pairs.is_empty()
    }

    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        self.pairs.clear();
    }

    /// Sorts the pairs and removes duplicates.
    pub(crate) fn sort(&mut self) {
        let bytes = &self.bytes;
        let of = |pair: &Pair| (key_of(bytes, pair), pair.entry);
        self.pairs.sort_unstable_by(|a, b| of(a).cmp(&of(b)));
        self.pairs.dedup_by(|a, b| of(a) == of(b));
    }

    /// The pairs, which are in order after [`sort`](Self::sort).
    pub(crate) fn pairs(&self) -> impl Iterator<Item = (&[u8], u64)> {
        self.pairs.iter().map(|pair| (key_of(&self.bytes, pair), pair.entry))
    }

    /// Writes the sorted pairs as the last run, merged with as many of the runs before it as the carrying rule demands.
    ///
    /// # Errors
    /// [`Error::Io`] or [`Error::Storage`] if the run cannot be written; [`Error::Corrupt`] if a run that is merged is
    /// damaged or not in order.
    pub(crate) fn write(
        &self,
        runs: &mut Vec<IndexRun>,
        source: &dyn ByteSource,
        sink: &mut dyn RunSink,
    ) -> Result<()> {
        debug_assert!(self.pairs().is_sorted(), "pairs are sorted before they are written");
        let mut keys = self.pairs.len() as u64;
        let mut key_bytes = self.pairs.iter().map(|pair| u64::from(pair.length)).sum::<u64>();
        let mut kept = runs.len();
        while let Some(run) = runs[..kept].last().filter(|run| run.keys <= keys) {
            keys = keys.saturating_add(run.keys);
            key_bytes = key_bytes.saturating_add(run.key_bytes);
            kept -= 1;
        }
        let taken = &runs[kept..];
        if !taken.is_empty() {
            sink.settle()?;
        }
        let streams = taken.iter().map(|run| RunStream::new(source, *run));
        let mut streams = streams.collect::<Result<Vec<_>>>()?;
        let mut writer = RunWriter::new(sink, keys, key_bytes)?;
        let mut pairs = self.pairs().peekable();
        let mut last: Option<(Vec<u8>, u64)> = None;
        loop {
            let heads = streams.iter().map(RunStream::pair).enumerate();
            let head = heads.filter_map(|(at, pair)| Some((pair?, at))).min();
            match (head, pairs.peek()) {
                (Some((pair, at)), ours) if ours.is_none_or(|ours| pair <= *ours) => {
                    put(&mut writer, &mut last, pair)?;
                    streams[at].advance()?;
                }
                (_, Some(ours)) => {
                    put(&mut writer, &mut last, *ours)?;
                    pairs.next();
                }
                _ => break,
            }
        }
        let run = writer.finish()?;
        runs.truncate(kept);
        runs.extend(run);
        Ok(())
    }
}

/// Writes a pair unless it equals the last one. Pairs must ascend: those of the sorter do, so a pair that does
/// not is from a damaged run.
fn put(
    writer: &mut RunWriter<'_>,
    last: &mut Option<(Vec<u8>, u64)>,
    (key, entry): (&[u8], u64),
) -> Result<()> {
    match last {
        Some((last_key, last_entry)) => {
            match (&last_key[..], *last_entry).cmp(&(key, entry)) {
                Ordering::Less => {}
                Ordering::Equal => return Ok(()),
                Ordering::Greater => {
                    return Err(Error::Corrupt {
                        what: "keys of an index are not in order; repair the database to rebuild the index"
                            .to_owned(),
                    });
                }
            }
            last_key.clear();
            last_key.extend_from_slice(key);
            *last_entry = entry;
        }
        None => *last = Some((key.to_vec(), entry)),
    }
    writer.push(key, entry)
}

fn key_of<'a>(bytes: &'a [u8], pair: &Pair) -> &'a [u8] {
    &bytes[pair.start as usize..][..usize::from(pair.length)]
}
