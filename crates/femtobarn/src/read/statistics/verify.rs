//! Verification of statistics: whether all values lie within the bounds of their clusters.

use std::ops::Range;
use std::sync::Arc;

use rntuple::{Array, Bound, Bounds, ByteSource, Primitive, Reader, values_of};

use super::{ClusterBounds, VersionStatistics, run};
use crate::error::{Error, Result};
use femtobarn_catalog::BlobRange;

/// The statistics of all columns of a version.
pub(crate) struct Verification {
    /// The path of each column, whether it has sizes, and its bounds.
    columns: Vec<(String, bool, Arc<[ClusterBounds]>)>,
}

impl Verification {
    /// # Errors
    /// [`Error::Corrupt`] if the statistics are damaged.
    pub(crate) fn new(
        source: Arc<dyn ByteSource>,
        annex: BlobRange,
        reader: &Reader,
    ) -> Result<Self> {
        let statistics = VersionStatistics::new(source, annex);
        let paths = reader.column_paths();
        let summarised = paths.iter().filter(|path| path.is_summarised);
        let columns = summarised.map(|path| {
            Ok((path.path.clone(), path.is_size, statistics.column(&run::name(path))?))
        });
        Ok(Verification { columns: columns.collect::<Result<_>>()? })
    }

    /// The first field and entry with a value out of its bounds, as text; `None` if all values are within. `objects`
    /// are the entries from `first` on, of which those in `live` are checked.
    pub(crate) fn find_wrong(
        &self,
        objects: &Array,
        first: u64,
        live: &[Range<u64>],
    ) -> Result<Option<String>> {
        for (path, is_size, clusters) in &self.columns {
            let Some(array) = path.split('.').try_fold(objects, Array::member) else { continue };
            let Some(values) = Values::of(array, *is_size)? else { continue };
            for entry in live.iter().cloned().flatten() {
                let at = clusters.partition_point(|it| it.first_entry + it.entries <= entry);
                let known = clusters.get(at).filter(|it| it.first_entry <= entry);
                let Some(bounds) = known.and_then(|it| it.bounds) else { continue };
                if !values.is_within((entry - first) as usize, &bounds) {
                    return Ok(Some(format!("field {path} of entry {entry}")));
                }
            }
        }
        Ok(None)
    }
}

/// Values of one column.
enum Values<'a> {
    Sizes(&'a [i64]),
    Numbers(Primitive, &'a [u8]),
}

impl<'a> Values<'a> {
    fn of(array: &'a Array, is_size: bool) -> Result<Option<Self>> {
        Ok(match array {
            Array::List { offsets, .. } | Array::String { offsets, .. } if is_size => {
                let offsets = values_of::<i64>(offsets).map_err(Error::storage("sizes"))?;
                Some(Values::Sizes(offsets))
            }
            Array::Primitive { primitive, values } if !is_size => {
                Some(Values::Numbers(*primitive, values))
            }
            _ => None,
        })
    }

    fn is_within(&self, at: usize, bounds: &Bounds) -> bool {
        let value = match self {
            Values::Sizes(offsets) => {
                offsets.get(at..at + 2).map(|ends| (ends[1] - ends[0]) as f64)
            }
            Values::Numbers(primitive, bytes) => number(*primitive, bytes, at),
        };
        let Some(value) = value else { return true };
        if value.is_nan() {
            return bounds.has_nan;
        }
        // Conversion to double precision keeps the order, so a value within its bounds stays within.
        bounds.range.is_some_and(|(least, greatest)| of(least) <= value && value <= of(greatest))
    }
}

fn of(bound: Bound) -> f64 {
    match bound {
        Bound::Int(value) => value as f64,
        Bound::UInt(value) => value as f64,
        Bound::Float(value) => value,
    }
}

fn number(primitive: Primitive, bytes: &[u8], at: usize) -> Option<f64> {
    fn word<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
        bytes.get(at * N..)?.first_chunk().copied()
    }
    Some(match primitive {
        Primitive::Bool | Primitive::Byte | Primitive::Char | Primitive::UInt8 => {
            f64::from(*bytes.get(at)?)
        }
        Primitive::Int8 => f64::from(i8::from_le_bytes(word(bytes, at)?)),
        Primitive::Int16 => f64::from(i16::from_le_bytes(word(bytes, at)?)),
        Primitive::UInt16 => f64::from(u16::from_le_bytes(word(bytes, at)?)),
        Primitive::Int32 => f64::from(i32::from_le_bytes(word(bytes, at)?)),
        Primitive::UInt32 => f64::from(u32::from_le_bytes(word(bytes, at)?)),
        Primitive::Int64 => i64::from_le_bytes(word(bytes, at)?) as f64,
        Primitive::UInt64 => u64::from_le_bytes(word(bytes, at)?) as f64,
        Primitive::Float32 => f64::from(f32::from_le_bytes(word(bytes, at)?)),
        Primitive::Float64 => f64::from_le_bytes(word(bytes, at)?),
    })
}
