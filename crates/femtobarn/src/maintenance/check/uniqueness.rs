//! Sets and dictionaries: whether a set has each item once and in ascending order, a dictionary each key once.
//!
//! Besides the objects themselves, memory is needed for references to the items of one set or dictionary.

use std::cmp::Ordering;
use std::ops::Range;

use rntuple::{Array, Primitive, values_of};

use super::walk::{StoredValues, walk};
use crate::error::{Error, Result};
use crate::schema::class::Class;
use crate::schema::field_type::{FieldType, MAP_ITEM};

/// The condition on the items of a list.
#[derive(Clone, Copy)]
enum UniqueItems {
    /// Strictly ascending: the items of a set.
    Ascending,
    /// Distinct, in any order: the keys of a dictionary.
    Unordered,
}

/// Called with the entry of an object, the path of a field, and the fault of a set or dictionary in it.
pub(super) type VisitFault<'v> = dyn FnMut(u64, &str, &'static str) + 'v;

/// Visits the faulty sets and dictionaries of stored objects; `first` is the entry of the first object.
pub(super) fn visit_faults(
    class: &Class,
    objects: &Array,
    first: u64,
    visit: &mut VisitFault<'_>,
) -> Result<()> {
    walk(class, objects, first, &mut |values| {
        if let Array::List { offsets, content, .. } = values.array {
            if is_set(values.of) {
                lists(values, offsets, content, UniqueItems::Ascending, visit)?;
            } else if is_dictionary(values.of)
                && let Some(keys) = content.member("_0")
            {
                lists(values, offsets, keys, UniqueItems::Unordered, visit)?;
            }
        }
        Ok(has_any(values.of))
    })
}

fn is_set(of: &FieldType) -> bool {
    matches!(of, FieldType::Meaning { is, .. } if is == "set")
}

fn is_dictionary(of: &FieldType) -> bool {
    let FieldType::List(item) = of else { return false };
    matches!(&**item, FieldType::Record { class, .. } if class == MAP_ITEM)
}

/// Whether values of a type are, or have in them, sets or dictionaries.
fn has_any(of: &FieldType) -> bool {
    is_set(of)
        || is_dictionary(of)
        || match of {
            FieldType::List(of) | FieldType::Optional(of) => has_any(of),
            FieldType::Array { of, .. } | FieldType::Meaning { of, .. } => has_any(of),
            FieldType::Record { fields, .. } => fields.iter().any(|field| has_any(&field.of)),
            FieldType::Variant(alternatives) => alternatives.iter().any(has_any),
            _ => false,
        }
}

fn lists(
    values: &StoredValues<'_>,
    offsets: &[u8],
    items: &Array,
    must_be: UniqueItems,
    visit: &mut VisitFault<'_>,
) -> Result<()> {
    let offsets = values_of::<i64>(offsets).map_err(Error::storage("list"))?;
    for (pair, owner) in offsets.windows(2).zip(values.owners) {
        let range = usize::try_from(pair[0]).ok().zip(usize::try_from(pair[1]).ok());
        let Some((start, end)) = range else { continue };
        if let Some(fault) = fault_in(items, start..end, must_be)? {
            visit(*owner, values.path, fault);
        }
    }
    Ok(())
}

/// The fault of the items of one list; `None` if they satisfy `must_be`.
fn fault_in(
    items: &Array,
    range: Range<usize>,
    must_be: UniqueItems,
) -> Result<Option<&'static str>> {
    macro_rules! numbers {
        ($of:ty, $values:expr) => {{
            let numbers = values_of::<$of>($values).map_err(Error::storage("items"))?;
            fault(numbers.get(range).unwrap_or_default(), must_be)
        }};
    }
    let (primitive, values) = match items {
        Array::Primitive { primitive, values } => (*primitive, values),
        Array::String { offsets, bytes } => {
            let offsets = values_of::<i64>(offsets).map_err(Error::storage("texts"))?;
            let ends = offsets.get(range.start..range.end + 1).unwrap_or_default().windows(2);
            let text = |ends: &[i64]| bytes.get(ends[0] as usize..ends[1] as usize);
            return Ok(fault(&ends.map(text).collect::<Vec<_>>(), must_be));
        }
        _ => return Ok(None),
    };
    Ok(match primitive {
        Primitive::Bool | Primitive::Byte | Primitive::Char | Primitive::UInt8 => {
            numbers!(u8, values)
        }
        Primitive::Int8 => numbers!(i8, values),
        Primitive::Int16 => numbers!(i16, values),
        Primitive::UInt16 => numbers!(u16, values),
        Primitive::Int32 => numbers!(i32, values),
        Primitive::UInt32 => numbers!(u32, values),
        Primitive::Int64 => numbers!(i64, values),
        Primitive::UInt64 => numbers!(u64, values),
        Primitive::Float32 => numbers!(f32, values),
        Primitive::Float64 => numbers!(f64, values),
    })
}

/// The fault of items of one type. NaN is equal to nothing and has no place in an order, so it is skipped.
fn fault<T: PartialOrd>(items: &[T], must_be: UniqueItems) -> Option<&'static str> {
    match must_be {
        UniqueItems::Ascending => {
            let orders = items.windows(2).map(|pair| pair[0].partial_cmp(&pair[1]));
            orders.flatten().find_map(|order| match order {
                Ordering::Less => None,
                Ordering::Equal => Some("a set has an item twice"),
                Ordering::Greater => Some("the items of a set are not in ascending order"),
            })
        }
        UniqueItems::Unordered => {
            let is_comparable = |item: &&T| item.partial_cmp(item).is_some();
            let mut sorted: Vec<&T> = items.iter().filter(is_comparable).collect();
            sorted.sort_unstable_by(|a, b| a.partial_cmp(b).unwrap_or(Ordering::Equal));
            let has_pair = sorted.windows(2).any(|pair| pair[0] == pair[1]);
            has_pair.then_some("a dictionary has a key twice")
        }
    }
}
