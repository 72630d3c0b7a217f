//! Statistics of clusters as a blob.
//!
//! ```text
//!  0      8      12         16        20   24
//!  +------+------+----------+---------+----+----------+---------+----------+
//!  | xxh3 | size | clusters | columns | 0  | clusters | columns | sections |
//!  +------+------+----------+---------+----+----------+---------+----------+
//! ```
//!
//! The directory, its first `size` bytes, is checked by the checksum, that of all of it behind. A
//! cluster is its first entry and its number of entries, whose top bit says that values were replaced.
//! A column is the checksum of its section, the length of its path (`u16`) and the path. Sections
//! follow in the order of the columns: for each cluster a byte that says what is known, plus 8 if a value
//! is no number, and least and greatest value, 8 bytes each. All is little-endian.
//!
//! | known | |
//! |---|---|
//! | 0 | nothing |
//! | 1 | there is no number |
//! | 2, 3, 4 | bounds that are signed, unsigned, real |

use std::collections::BTreeMap;

use rntuple::{Bound, Bounds, ByteSource, ClusterSummary, ColumnPath};
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
/// Bytes that are read at first, in the hope that the directory is no larger.
const FIRST_READ_BYTES: u64 = 16 << 10;

/// A cluster, or values that were replaced in one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Summarised {
    pub first_entry: u64,
    pub entries: u64,
    /// Whether the bounds are those of some values only, which were replaced.
    pub is_widening: bool,
}

/// Statistics of clusters in memory.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Run {
    pub clusters: Vec<Summarised>,
    /// For each column what is known of each cluster. The column of sizes has `.#` behind its path.
    pub columns: BTreeMap<String, Vec<Option<Bounds>>>,
}

/// The name of a column.
pub(super) fn name(path: &ColumnPath) -> String {
    match path.is_size {
        true => format!("{}.#", path.path),
        false => path.path.clone(),
    }
}

impl Run {
    /// What a version knows of its new clusters.
    pub fn of(summaries: &[ClusterSummary], paths: &[ColumnPath]) -> Self {
        let names: BTreeMap<u32, String> =
            paths.iter().filter(|it| it.is_summarised).map(|it| (it.column, name(it))).collect();
        let runs = summaries.iter().map(|summary| {
            let ClusterSummary { first_entry, entries, is_widening, .. } = *summary;
            let mut columns = BTreeMap::<String, Vec<Option<Bounds>>>::new();
            for (column, bounds) in &summary.columns {
                if let Some(name) = names.get(column) {
                    let known = columns.entry(name.clone()).or_insert_with(|| vec![None]);
                    // Of a field that is stored in several ways, each has a part of the values.
                    known[0] = Some(known[0].unwrap_or_default().union(*bounds));
                }
            }
            Run { clusters: vec![Summarised { first_entry, entries, is_widening }], columns }
        });
        Run::joined(&runs.collect::<Vec<_>>())
    }

    /// What several runs know together.
    pub fn joined(runs: &[Run]) -> Self {
        let mut clusters: Vec<Summarised> =
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
                        // Of a field that nothing was replaced in, nothing is widened.
                        (true, one, other) if cluster.is_widening => one.or(other),
                        (true, _, _) => None,
                    };
                    is_there[place] = true;
                }
            }
            columns.insert(name.clone(), joined);
        }
        Run { clusters, columns }
    }

    /// The bytes of the blob.
    pub fn encode(&self) -> Vec<u8> {
        let sections: Vec<Vec<u8>> = self.columns.values().map(|known| section(known)).collect();
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

    /// All of a blob.
    ///
    /// # Errors
    /// `Corrupt` if it is damaged.
    pub fn read(source: &dyn ByteSource, blob: &Blob) -> Result<Self> {
        let bytes = blob.read(source)?;
        let directory = Directory::of(blob, &bytes)?;
        let section = |(number, column): (usize, &(String, u64))| {
            let range = directory.section(number);
            let section = bytes.get(range.0 as usize..(range.0 + range.1) as usize);
            Some((column.0.clone(), known_of(section?, column.1)?))
        };
        let columns = directory.columns.iter().enumerate().map(section).collect::<Option<_>>();
        let columns = columns.ok_or_else(|| damaged(blob))?;
        Ok(Run { clusters: directory.clusters, columns })
    }
}

/// What a blob has, and where.
pub(super) struct Directory {
    blob: Blob,
    size: u64,
    pub clusters: Vec<Summarised>,
    /// Names and checksums.
    columns: Vec<(String, u64)>,
}

impl Directory {
    /// # Errors
    /// `Corrupt` if it is damaged.
    pub fn read(source: &dyn ByteSource, blob: &Blob) -> Result<Self> {
        let what = format!("statistics at byte {}", blob.offset);
        let size = blob.size.min(FIRST_READ_BYTES);
        let mut bytes = read_bytes(source, blob.offset, size, &what)?;
        let size = Self::size_in(blob, &bytes)?;
        if size > bytes.len() as u64 {
            bytes = read_bytes(source, blob.offset, size, &what)?;
        }
        Self::of(blob, &bytes)
    }

    /// How long the blob says that it is.
    fn size_in(blob: &Blob, bytes: &[u8]) -> Result<u64> {
        let size =
            bytes.get(8..12).and_then(|size| Some(u32::from_le_bytes(size.try_into().ok()?)));
        size.map(u64::from).filter(|size| *size <= blob.size).ok_or_else(|| damaged(blob))
    }

    /// What a blob begins with.
    fn of(blob: &Blob, bytes: &[u8]) -> Result<Self> {
        let size = Self::size_in(blob, bytes)?;
        let bytes = bytes.get(..size as usize).ok_or_else(|| damaged(blob))?;
        let (clusters, columns) = decode(bytes).ok_or_else(|| damaged(blob))?;
        let directory = Directory { blob: *blob, size, clusters, columns };
        let (start, _) = directory.section(directory.columns.len());
        match start == blob.size {
            true => Ok(directory),
            false => Err(damaged(blob)),
        }
    }

    /// Where the section of a column starts in the blob, and its size.
    fn section(&self, number: usize) -> (u64, u64) {
        let size = (self.clusters.len() * BOUNDS_BYTES) as u64;
        (self.size + size * number as u64, size)
    }

    /// What is known of a column, for each cluster; `None` if nothing.
    ///
    /// # Errors
    /// `Corrupt` if it is damaged.
    pub fn column(
        &self,
        source: &dyn ByteSource,
        name: &str,
    ) -> Result<Option<Vec<Option<Bounds>>>> {
        let Some(number) = self.columns.iter().position(|(column, _)| column == name) else {
            return Ok(None);
        };
        let (start, size) = self.section(number);
        let what = format!("statistics at byte {}", self.blob.offset);
        let section = read_bytes(source, self.blob.offset.saturating_add(start), size, &what)?;
        let known = known_of(&section, self.columns[number].1);
        known.map(Some).ok_or_else(|| damaged(&self.blob))
    }
}

type Columns = Vec<(String, u64)>;

fn decode(bytes: &[u8]) -> Option<(Vec<Summarised>, Columns)> {
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
        Some(Summarised { first_entry, entries, is_widening })
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

fn section(known: &[Option<Bounds>]) -> Vec<u8> {
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

/// Bounds of one kind; those of two kinds, of a field that has become another, are real.
fn encode_range(least: Bound, most: Bound) -> (u8, u64, u64) {
    match (least, most) {
        (Bound::Int(least), Bound::Int(most)) => (2, least as u64, most as u64),
        (Bound::UInt(least), Bound::UInt(most)) => (3, least, most),
        (Bound::Float(least), Bound::Float(most)) => (4, least.to_bits(), most.to_bits()),
        (least, most) => {
            // The nearest real numbers may lie within the bounds; the next ones do not.
            let (least, most) = (least.as_float().next_down(), most.as_float().next_up());
            (4, least.to_bits(), most.to_bits())
        }
    }
}

fn known_of(section: &[u8], checksum: u64) -> Option<Vec<Option<Bounds>>> {
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
    Error::Corrupt { what: format!("the statistics at byte {} are damaged", blob.offset) }
}
