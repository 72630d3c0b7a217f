//! The blob of statistics of clusters.
//!
//! ```text
//!  0      8      12         16        20   24
//!  +------+------+----------+---------+----+----------+---------+----------+
//!  | xxh3 | size | clusters | columns | 0  | clusters | columns | sections |
//!  +------+------+----------+---------+----+----------+---------+----------+
//! ```
//!
//! The first `size` bytes are the directory; the checksum covers its bytes after the checksum. A cluster is its
//! first entry and its number of entries, whose top bit marks bounds of replaced values. A column is the
//! checksum of its section, the length of its path (`u16`) and the path. The sections follow in the order of
//! the columns. A section has for each cluster a byte for the kind of its bounds, plus 8 if there is a NaN,
//! then the least and the greatest value, 8 bytes each. All integers are little-endian.
//!
//! | kind | bounds |
//! |---|---|
//! | 0 | unknown |
//! | 1 | the cluster has no number |
//! | 2, 3, 4 | signed, unsigned, floating-point |

use std::collections::BTreeMap;

use rntuple::{Bound, Bounds, ByteSource, ClusterSummary, ColumnPath, read_verified};
use twox_hash::XxHash3_64;

use crate::annex::{Blob, read_bytes};
use crate::error::{Error, Result};

const FRONT_BYTES: usize = 24;
const CHECKSUM_BYTES: usize = 8;
const CLUSTER_BYTES: usize = 16;
/// Bytes of a cluster in a section.
const BOUNDS_BYTES: usize = 17;
const WIDENING: u64 = 1 << 63;
const NAN: u8 = 8;
/// Bytes of the first read, which has the whole directory unless that is larger.
const FIRST_READ_BYTES: u64 = 16 << 10;

/// A cluster, or a range of entries in one of which values were replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct SummarisedCluster {
    pub first_entry: u64,
    pub entries: u64,
    /// Whether the bounds are those of replaced values, which widen the cluster's bounds.
    pub is_widening: bool,
}

/// The decoded statistics of some clusters.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct ClusterStatistics {
    pub clusters: Vec<SummarisedCluster>,
    /// By column, the bounds of each cluster; `None` if unknown. A column of sizes has the suffix `.#`.
    pub columns: BTreeMap<String, Vec<Option<Bounds>>>,
}

/// The name of a column: its path, with the suffix `.#` for sizes.
pub(super) fn name(path: &ColumnPath) -> String {
    if path.is_size { format!("{}.#", path.path) } else { path.path.clone() }
}

impl ClusterStatistics {
    /// The statistics of a version's new clusters.
    pub(crate) fn of(summaries: &[ClusterSummary], paths: &[ColumnPath]) -> Self {
        let names: BTreeMap<u32, String> =
            paths.iter().filter(|it| it.is_summarised).map(|it| (it.column, name(it))).collect();
        let runs = summaries.iter().map(|summary| {
            let ClusterSummary { first_entry, entries, is_widening, .. } = *summary;
            let mut columns = BTreeMap::<String, Vec<Option<Bounds>>>::new();
            for (column, bounds) in &summary.columns {
                if let Some(name) = names.get(column) {
                    let known = columns.entry(name.clone()).or_insert_with(|| vec![None]);
                    // A field with several column representations has a part of the values in each.
                    known[0] = Some(known[0].unwrap_or_default().union(*bounds));
                }
            }
            ClusterStatistics {
                clusters: vec![SummarisedCluster { first_entry, entries, is_widening }],
                columns,
            }
        });
        ClusterStatistics::join(&runs.collect::<Vec<_>>())
    }

    /// The clusters with their bounds, as they were given to [`of`](Self::of).
    pub(crate) fn summaries(&self, paths: &[ColumnPath]) -> Vec<ClusterSummary> {
        let column_of: BTreeMap<String, u32> =
            paths.iter().rev().map(|it| (name(it), it.column)).collect();
        let known =
            self.columns.iter().filter_map(|(name, known)| Some((*column_of.get(name)?, known)));
        let known: Vec<_> = known.collect();
        let summary = |(at, cluster): (usize, &SummarisedCluster)| ClusterSummary {
            first_entry: cluster.first_entry,
            entries: cluster.entries,
            is_widening: cluster.is_widening,
            columns: known.iter().filter_map(|(id, bounds)| Some((*id, bounds[at]?))).collect(),
        };
        self.clusters.iter().enumerate().map(summary).collect()
    }

    /// Joins several statistics.
    pub(crate) fn join(runs: &[ClusterStatistics]) -> Self {
        let mut clusters: Vec<SummarisedCluster> =
            runs.iter().flat_map(|run| run.clusters.iter().copied()).collect();
        clusters.sort();
        clusters.dedup();
        let mut columns = BTreeMap::new();
        let mut names: Vec<&String> = runs.iter().flat_map(|run| run.columns.keys()).collect();
        names.sort();
        names.dedup();
        for name in names {
            let mut joined: Vec<Option<Bounds>> = vec![None; clusters.len()];
            let mut is_there = vec![false; clusters.len()];
            for run in runs {
                let known = run.columns.get(name);
                for (at, cluster) in run.clusters.iter().enumerate() {
                    let Ok(place) = clusters.binary_search(cluster) else { continue };
                    let bounds = known.and_then(|known| known[at]);
                    joined[place] = match (is_there[place], joined[place], bounds) {
                        (false, _, bounds) => bounds,
                        (true, Some(one), Some(other)) => Some(one.union(other)),
                        // One without bounds for the field replaced none of its values.
                        (true, one, other) if cluster.is_widening => one.or(other),
                        (true, _, _) => None,
                    };
                    is_there[place] = true;
                }
            }
            columns.insert(name.clone(), joined);
        }
        ClusterStatistics { clusters, columns }
    }

    /// The bytes of the blob.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let sections: Vec<Vec<u8>> =
            self.columns.values().map(|known| encode_section(known)).collect();
        let mut bytes = vec![0; FRONT_BYTES];
        for cluster in &self.clusters {
            let widening = if cluster.is_widening { WIDENING } else { 0 };
            bytes.extend_from_slice(&cluster.first_entry.to_le_bytes());
            bytes.extend_from_slice(&(cluster.entries | widening).to_le_bytes());
        }
        for (name, section) in self.columns.keys().zip(&sections) {
            bytes.extend_from_slice(&XxHash3_64::oneshot(section).to_le_bytes());
            bytes.extend_from_slice(&(name.len() as u16).to_le_bytes());
            bytes.extend_from_slice(name.as_bytes());
        }
        let counts = [bytes.len(), self.clusters.len(), self.columns.len()];
        for (at, count) in counts.into_iter().enumerate() {
            let place = CHECKSUM_BYTES + 4 * at;
            bytes[place..place + 4].copy_from_slice(&(count as u32).to_le_bytes());
        }
        let checksum = XxHash3_64::oneshot(&bytes[CHECKSUM_BYTES..]);
        bytes[..CHECKSUM_BYTES].copy_from_slice(&checksum.to_le_bytes());
        sections.iter().for_each(|section| bytes.extend_from_slice(section));
        bytes
    }

    /// Reads a whole blob.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if it is damaged.
    pub(crate) fn read(source: &dyn ByteSource, blob: &Blob) -> Result<Self> {
        let bytes = blob.read(source)?;
        let directory = Directory::of(blob, &bytes)?;
        let section = |(number, column): (usize, &(String, u64))| {
            let range = directory.section(number);
            let section = bytes.get(range.0 as usize..(range.0 + range.1) as usize);
            Some((column.0.clone(), decode_section(section?, column.1)?))
        };
        let columns = directory.columns.iter().enumerate().map(section).collect::<Option<_>>();
        let columns = columns.ok_or_else(|| damaged(blob))?;
        Ok(ClusterStatistics { clusters: directory.clusters, columns })
    }
}

/// The directory of a blob.
pub(super) struct Directory {
    blob: Blob,
    size: u64,
    pub clusters: Vec<SummarisedCluster>,
    /// The names of columns, and the checksums of their sections.
    columns: Vec<(String, u64)>,
}

impl Directory {
    /// Reads the directory of a blob.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if it is damaged.
    pub(crate) fn read(source: &dyn ByteSource, blob: &Blob) -> Result<Self> {
        let what = format!("statistics at byte {}", blob.offset);
        let read = |source: &dyn ByteSource| {
            let size = blob.size.min(FIRST_READ_BYTES);
            let mut bytes = read_bytes(source, blob.offset, size, &what)?;
            let size = Self::size_in(blob, &bytes)?;
            if size > bytes.len() as u64 {
                bytes = read_bytes(source, blob.offset, size, &what)?;
            }
            Self::of(blob, &bytes)
        };
        read_verified(source, Error::is_damage, read)
    }

    /// The size of the directory, according to its first bytes.
    fn size_in(blob: &Blob, bytes: &[u8]) -> Result<u64> {
        let size =
            bytes.get(8..12).and_then(|size| Some(u32::from_le_bytes(size.try_into().ok()?)));
        size.map(u64::from).filter(|size| *size <= blob.size).ok_or_else(|| damaged(blob))
    }

    /// Decodes the directory at the front of a blob.
    fn of(blob: &Blob, bytes: &[u8]) -> Result<Self> {
        let size = Self::size_in(blob, bytes)?;
        let bytes = bytes.get(..size as usize).ok_or_else(|| damaged(blob))?;
        let (clusters, columns) = decode(bytes).ok_or_else(|| damaged(blob))?;
        let directory = Directory { blob: *blob, size, clusters, columns };
        let (start, _) = directory.section(directory.columns.len());
        if start == blob.size { Ok(directory) } else { Err(damaged(blob)) }
    }

    /// The offset of a column's section in the blob, and its size.
    fn section(&self, number: usize) -> (u64, u64) {
        let size = (self.clusters.len() * BOUNDS_BYTES) as u64;
        (self.size + size * number as u64, size)
    }

    /// Reads the bounds of a column for each cluster; `None` if there is no such column.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if the section is damaged.
    pub(crate) fn column(
        &self,
        source: &dyn ByteSource,
        name: &str,
    ) -> Result<Option<Vec<Option<Bounds>>>> {
        let Some(number) = self.columns.iter().position(|(column, _)| column == name) else {
            return Ok(None);
        };
        let (start, size) = self.section(number);
        let what = format!("statistics at byte {}", self.blob.offset);
        let read = |source: &dyn ByteSource| {
            let section = read_bytes(source, self.blob.offset.saturating_add(start), size, &what)?;
            let known = decode_section(&section, self.columns[number].1);
            known.map(Some).ok_or_else(|| damaged(&self.blob))
        };
        read_verified(source, Error::is_damage, read)
    }
}

type ColumnChecksums = Vec<(String, u64)>;

fn decode(bytes: &[u8]) -> Option<(Vec<SummarisedCluster>, ColumnChecksums)> {
    let front: &[u8; FRONT_BYTES] = bytes.first_chunk()?;
    let checksum = u64::from_le_bytes(front[..CHECKSUM_BYTES].try_into().ok()?);
    if XxHash3_64::oneshot(&bytes[CHECKSUM_BYTES..]) != checksum {
        return None;
    }
    let count = |at: usize| Some(u32::from_le_bytes(front[at..at + 4].try_into().ok()?) as usize);
    let listed = count(12)?.checked_mul(CLUSTER_BYTES)?;
    let (listed, mut rest) = bytes[FRONT_BYTES..].split_at_checked(listed)?;
    let cluster = |bytes: &[u8]| {
        let first_entry = u64::from_le_bytes(bytes[..8].try_into().ok()?);
        let entries = u64::from_le_bytes(bytes[8..].try_into().ok()?);
        let is_widening = entries & WIDENING != 0;
        let entries = entries & !WIDENING;
        first_entry.checked_add(entries)?;
        Some(SummarisedCluster { first_entry, entries, is_widening })
    };
    let clusters = listed.chunks_exact(CLUSTER_BYTES).map(cluster).collect::<Option<_>>()?;
    let mut columns = vec![];
    for _ in 0..count(16)? {
        let (checksum, behind) = rest.split_first_chunk()?;
        let (length, behind) = behind.split_first_chunk()?;
        let (name, behind) = behind.split_at_checked(usize::from(u16::from_le_bytes(*length)))?;
        columns.push((String::from_utf8(name.to_vec()).ok()?, u64::from_le_bytes(*checksum)));
        rest = behind;
    }
    Some((clusters, columns))
}

fn encode_section(known: &[Option<Bounds>]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(known.len() * BOUNDS_BYTES);
    for bounds in known {
        let (kind, least, most) = match bounds.map(|bounds| bounds.range) {
            None => (0, 0, 0),
            Some(None) => (1, 0, 0),
            Some(Some((least, most))) => encode_range(least, most),
        };
        let nan = if bounds.is_some_and(|bounds| bounds.has_nan) { NAN } else { 0 };
        bytes.push(kind | nan);
        bytes.extend_from_slice(&least.to_le_bytes());
        bytes.extend_from_slice(&most.to_le_bytes());
    }
    bytes
}

/// Encodes bounds of one kind. Bounds of two kinds, of a field whose type changed, become floating-point.
fn encode_range(least: Bound, most: Bound) -> (u8, u64, u64) {
    match (least, most) {
        (Bound::Int(least), Bound::Int(most)) => (2, least as u64, most as u64),
        (Bound::UInt(least), Bound::UInt(most)) => (3, least, most),
        (Bound::Float(least), Bound::Float(most)) => (4, least.to_bits(), most.to_bits()),
        (least, most) => {
            // The floats nearest to the bounds may lie within them; the next ones do not.
            let (least, most) = (least.as_float().next_down(), most.as_float().next_up());
            (4, least.to_bits(), most.to_bits())
        }
    }
}

fn decode_section(section: &[u8], checksum: u64) -> Option<Vec<Option<Bounds>>> {
    if XxHash3_64::oneshot(section) != checksum {
        return None;
    }
    let bounds = |bytes: &[u8]| {
        let least = u64::from_le_bytes(bytes[1..9].try_into().ok()?);
        let most = u64::from_le_bytes(bytes[9..17].try_into().ok()?);
        let range = match bytes[0] & !NAN {
            0 => return Some(None),
            1 => None,
            2 => Some((Bound::Int(least as i64), Bound::Int(most as i64))),
            3 => Some((Bound::UInt(least), Bound::UInt(most))),
            4 => Some((Bound::Float(f64::from_bits(least)), Bound::Float(f64::from_bits(most)))),
            _ => return None,
        };
        Some(Some(Bounds { range, has_nan: bytes[0] & NAN != 0 }))
    };
    section.chunks_exact(BOUNDS_BYTES).map(bounds).collect()
}

fn damaged(blob: &Blob) -> Error {
    Error::Corrupt {
        what: format!(
            "the statistics at byte {} are damaged; repair the database to rebuild them",
            blob.offset
        ),
    }
}
