//! Summaries of clusters: the least and greatest value of a column, so that a reader can skip clusters
//! without matching values.
//!
//! Invariants:
//! 1. Columns with a summary are those of numbers and truth values outside collections, arrays and
//!    variants (optional numbers are included), and those of the sizes of collections, strings and
//!    optional values that are not inside others.
//! 2. Bounds hold for the values as they are read, not as they were given to the writer: a type of
//!    reduced precision rounds its bounds as its values. Rounding preserves the order of numbers.

use crate::column::{ColumnType, Element};
use crate::encoding::{decode, encode};
use crate::error::Result;
use crate::schema::{Column, ColumnId};
use crate::tree::{FieldKind, FieldNode, FieldTree};
use crate::types::Primitive;

/// A bound of a column's values.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Bound {
    /// A bound of signed integers.
    Int(i64),
    /// A bound of unsigned integers, truth values and sizes.
    UInt(u64),
    /// A bound of real numbers.
    Float(f64),
}

/// The bounds of the values of a column.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Bounds {
    /// Least and greatest value, NaN not considered; `None` without any other value.
    pub range: Option<(Bound, Bound)>,
    /// Whether any value is NaN.
    pub has_nan: bool,
}

/// The bounds of the columns of one cluster of a new version.
#[derive(Clone, Debug, PartialEq)]
pub struct ClusterSummary {
    /// First entry of the cluster.
    pub first_entry: u64,
    /// Number of its entries.
    pub entries: u64,
    /// Whether values of an existing cluster were replaced: the bounds are those of the new values, and
    /// the cluster's bounds are the union of these and its earlier ones.
    pub is_widening: bool,
    /// The bounds of all columns with a summary; with `is_widening`, of those that changed. For a field
    /// with several representations, the column is the one that stores the values now: match bounds of
    /// several clusters by [`ColumnPath::path`](crate::ColumnPath::path), not by column.
    pub columns: Vec<(ColumnId, Bounds)>,
}

/// The kind of a column's summary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SummaryKind {
    /// The values of numbers of this type.
    Numbers(Primitive),
    /// The sizes of collections.
    Sizes,
}

/// For each column the kind of its summary, if it has one.
pub(crate) fn summary_kinds(tree: &FieldTree, columns: usize) -> Vec<Option<SummaryKind>> {
    let mut found = vec![None; columns];
    tree.nodes.iter().for_each(|node| mark(node, true, &mut found));
    found
}

/// `sizes`: whether the sizes of collections have a summary, as they do outside other collections.
fn mark(node: &FieldNode, sizes: bool, found: &mut [Option<SummaryKind>]) {
    let mut set = |columns: &[ColumnId], kind| {
        columns.iter().for_each(|&column| found[column as usize] = Some(kind));
    };
    match &node.kind {
        FieldKind::Primitive { primitive, values, .. } => {
            set(values, SummaryKind::Numbers(*primitive))
        }
        FieldKind::String { offsets, .. } if sizes => set(offsets, SummaryKind::Sizes),
        FieldKind::List { offsets, item, optional } => {
            if sizes {
                set(offsets, SummaryKind::Sizes);
            }
            if *optional {
                mark(item, false, found);
            }
        }
        FieldKind::Record { members, .. } => {
            members.iter().for_each(|node| mark(node, sizes, found))
        }
        _ => {}
    }
}

/// Accumulates the bounds of a column's elements while they are written.
#[derive(Clone, Debug)]
pub(crate) struct Tracker {
    kind: SummaryKind,
    bounds: Bounds,
    /// End offset of the last collection.
    last_end: u64,
}

impl Tracker {
    pub(crate) fn new(kind: SummaryKind) -> Self {
        Tracker { kind, bounds: Bounds::default(), last_end: 0 }
    }

    /// Adds elements: numbers, or the end offsets of the next collections.
    pub(crate) fn add(&mut self, element: Element, values: &[u8]) {
        let of_page = match self.kind {
            SummaryKind::Numbers(_) => bounds_of(element, values),
            SummaryKind::Sizes => self.sizes_of(values),
        };
        self.bounds = self.bounds.union(of_page);
    }

    fn sizes_of(&mut self, ends: &[u8]) -> Bounds {
        let ends: &[[u8; 8]] = ends.as_chunks().0;
        let (mut least, mut most) = (u64::MAX, 0);
        for end in ends.iter().map(|end| u64::from_le_bytes(*end)) {
            let size = end.wrapping_sub(self.last_end);
            (least, most) = (least.min(size), most.max(size));
            self.last_end = end;
        }
        let range = (!ends.is_empty()).then_some((Bound::UInt(least), Bound::UInt(most)));
        Bounds { range, has_nan: false }
    }

    /// Adds the size of one collection.
    pub(crate) fn add_size(&mut self, size: u64) {
        let size = Bound::UInt(size);
        self.bounds = self.bounds.union(Bounds { range: Some((size, size)), has_nan: false });
    }

    /// Forgets all elements.
    pub(crate) fn reset(&mut self) {
        (self.bounds, self.last_end) = (Bounds::default(), 0);
    }

    /// Returns the bounds of all elements so far, as they will be read, and forgets the elements.
    pub(crate) fn finish(&mut self, column: &Column) -> Result<Bounds> {
        self.last_end = 0;
        let bounds = std::mem::take(&mut self.bounds);
        match self.kind {
            SummaryKind::Sizes => Ok(bounds),
            SummaryKind::Numbers(primitive) => rounded(bounds, column, primitive),
        }
    }
}

impl Bounds {
    /// The bounds of the values of both.
    #[must_use]
    pub fn union(self, other: Bounds) -> Bounds {
        let range = match (self.range, other.range) {
            (Some((a, b)), Some((c, d))) => Some((least(a, c), most(b, d))),
            (range, None) | (None, range) => range,
        };
        Bounds { range, has_nan: self.has_nan || other.has_nan }
    }
}

impl Bound {
    fn is_below(self, other: Bound) -> bool {
        match (self, other) {
            (Bound::Int(a), Bound::Int(b)) => a < b,
            (Bound::UInt(a), Bound::UInt(b)) => a < b,
            (Bound::Int(a), Bound::UInt(b)) => i128::from(a) < i128::from(b),
            (Bound::UInt(a), Bound::Int(b)) => i128::from(a) < i128::from(b),
            (a, b) => a.as_float() < b.as_float(),
        }
    }

    /// The nearest real number.
    pub fn as_float(self) -> f64 {
        match self {
            Bound::Int(value) => value as f64,
            Bound::UInt(value) => value as f64,
            Bound::Float(value) => value,
        }
    }
}

fn least(a: Bound, b: Bound) -> Bound {
    if b.is_below(a) { b } else { a }
}

fn most(a: Bound, b: Bound) -> Bound {
    if a.is_below(b) { b } else { a }
}

/// Bytes of numbers that are compared side by side, so that the compiler uses vector instructions.
const BLOCK: usize = 64;

/// Least and greatest number of `$values`; the search starts from `$most` and `$least`, the extremes of
/// the type. NaN is skipped, since no comparison with it holds.
macro_rules! extremes {
    ($values:expr, $of:ty, $least:expr, $most:expr) => {{
        const LANES: usize = BLOCK / size_of::<$of>();
        let (blocks, rest) = $values.as_chunks::<BLOCK>();
        let (mut least, mut most) = ([$most; LANES], [$least; LANES]);
        for block in blocks {
            let numbers: &[[u8; size_of::<$of>()]] = block.as_chunks().0;
            for lane in 0..LANES {
                let number = <$of>::from_le_bytes(numbers[lane]);
                least[lane] = if number < least[lane] { number } else { least[lane] };
                most[lane] = if number > most[lane] { number } else { most[lane] };
            }
        }
        let rest = rest.as_chunks().0.iter().map(|bytes| <$of>::from_le_bytes(*bytes));
        let below = |a: $of, b: $of| if b < a { b } else { a };
        let above = |a: $of, b: $of| if b > a { b } else { a };
        let least = least.into_iter().chain(rest.clone()).fold($most, below);
        let most = most.into_iter().chain(rest).fold($least, above);
        (least, most)
    }};
}

macro_rules! integer_bounds {
    ($values:expr, $of:ty, $bound:path) => {{
        let (least, most) = extremes!($values, $of, <$of>::MIN, <$of>::MAX);
        let range = (least <= most).then(|| ($bound(least.into()), $bound(most.into())));
        Bounds { range, has_nan: false }
    }};
}

macro_rules! real_bounds {
    ($values:expr, $of:ty) => {{
        let (least, most) = extremes!($values, $of, <$of>::NEG_INFINITY, <$of>::INFINITY);
        let numbers: &[[u8; size_of::<$of>()]] = $values.as_chunks().0;
        let is_nan = |bytes: &[u8; size_of::<$of>()]| <$of>::from_le_bytes(*bytes).is_nan();
        let has_nan = numbers.iter().fold(false, |any, bytes| any | is_nan(bytes));
        let range =
            (least <= most).then(|| (Bound::Float(least.into()), Bound::Float(most.into())));
        Bounds { range, has_nan }
    }};
}

fn bounds_of(element: Element, values: &[u8]) -> Bounds {
    match element {
        Element::U8 => integer_bounds!(values, u8, Bound::UInt),
        Element::U16 => integer_bounds!(values, u16, Bound::UInt),
        Element::U32 => integer_bounds!(values, u32, Bound::UInt),
        Element::U64 => integer_bounds!(values, u64, Bound::UInt),
        Element::I8 => integer_bounds!(values, i8, Bound::Int),
        Element::I16 => integer_bounds!(values, i16, Bound::Int),
        Element::I32 => integer_bounds!(values, i32, Bound::Int),
        Element::I64 => integer_bounds!(values, i64, Bound::Int),
        Element::F32 => real_bounds!(values, f32),
        Element::F64 => real_bounds!(values, f64),
        Element::Switch => Bounds::default(),
    }
}

/// Bounds of numbers after they were stored and read as `primitive`.
fn rounded(bounds: Bounds, column: &Column, primitive: Primitive) -> Result<Bounds> {
    use ColumnType::{Real16, Real32, Real32Quant, Real32Trunc, SplitReal16, SplitReal32};
    let rounds = matches!(
        column.column_type,
        Real16 | SplitReal16 | Real32 | SplitReal32 | Real32Trunc | Real32Quant
    );
    let Some((Bound::Float(least), Bound::Float(most))) = bounds.range.filter(|_| rounds) else {
        return Ok(bounds);
    };
    if bounds.has_nan && column.column_type == Real32Trunc {
        // Truncation turns some NaNs into infinities.
        let range = Some((Bound::Float(f64::NEG_INFINITY), Bound::Float(f64::INFINITY)));
        return Ok(Bounds { range, ..bounds });
    }
    let both = [least, most];
    let element = column.element()?;
    let values: Vec<u8> = match element {
        Element::F32 => both.iter().flat_map(|&value| (value as f32).to_le_bytes()).collect(),
        _ => both.iter().flat_map(|value| value.to_le_bytes()).collect(),
    };
    let mut stored = vec![];
    encode(column, &values, &mut stored)?;
    let mut read = vec![0; values.len()];
    decode(column, &stored, both.len(), &mut read)?;
    let number = |bytes: &[u8]| match element {
        Element::F32 => f32::from_le_bytes(bytes.try_into().unwrap_or_default()).into(),
        _ => f64::from_le_bytes(bytes.try_into().unwrap_or_default()),
    };
    let mut read = read.chunks(element.size()).map(number).map(|value| primitive.rounded(value));
    let mut next = || Bound::Float(read.next().unwrap_or(f64::NAN));
    Ok(Bounds { range: Some((next(), next())), ..bounds })
}
