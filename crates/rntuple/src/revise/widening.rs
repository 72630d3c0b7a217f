//! Widening of numbers without loss, and whether their old pages can be shared.
//!
//! A field may have several representations, and each cluster stores one of them. The old column becomes
//! one more representation of the new field, provided that ROOT reads a field of the new type from it. ROOT
//! reads integers from integers of any size, and real numbers from real numbers, but not from integers.

use crate::column::ColumnType;
use crate::schema::Column;
use crate::types::{Precision, Primitive, Type};

/// The way in which old numbers become wider ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Widening {
    /// The old column becomes one more representation of the field.
    Representation,
    /// The old numbers are read, converted and rewritten.
    Copy,
}

/// The widening of numbers of type `old` to type `new`; `None` if `new` does not fit all of them, or one of
/// the types is not a type of numbers.
pub(super) fn widening_of(old: &Type, new: &Type) -> Option<Widening> {
    match (old, new) {
        (Type::Primitive(old), Type::Primitive(new)) => of_primitives(*old, *new),
        (Type::Reduced(old, precision), Type::Primitive(new)) => of_reduced(*old, *precision, *new),
        (
            Type::Primitive(Primitive::Float32),
            Type::Reduced(Primitive::Float64, Precision::Single),
        ) => Some(Widening::Representation),
        (Type::Reduced(old, of), Type::Reduced(new, to)) if old == new => {
            let keeps = match (of, to) {
                (Precision::Truncated { bits }, Precision::Truncated { bits: more }) => bits < more,
                (Precision::Truncated { .. } | Precision::Half, Precision::Single) => true,
                // 1 sign, 8 exponent and 10 fraction bits represent all numbers of half precision.
                (Precision::Half, Precision::Truncated { bits }) => *bits >= 19,
                _ => false,
            };
            keeps.then_some(Widening::Copy)
        }
        _ => None,
    }
}

fn of_primitives(old: Primitive, new: Primitive) -> Option<Widening> {
    match (old, new) {
        (Primitive::Byte | Primitive::Char, _) | (_, Primitive::Byte | Primitive::Char) => None,
        (Primitive::Float32, Primitive::Float64) => Some(Widening::Representation),
        _ => {
            let range = old.integer_range()?;
            match (new, new.integer_range()) {
                (_, Some(wide))
                    if !(wide.contains(range.start()) && wide.contains(range.end())) =>
                {
                    None
                }
                (_, Some(_)) if old == Primitive::Bool => Some(Widening::Copy),
                (_, Some(_)) => Some(Widening::Representation),
                (Primitive::Float32, None) if old.size() <= 2 => Some(Widening::Copy),
                (Primitive::Float64, None) if old.size() <= 4 => Some(Widening::Copy),
                _ => None,
            }
        }
    }
}

fn of_reduced(old: Primitive, precision: Precision, new: Primitive) -> Option<Widening> {
    if old != new && (old, new) != (Primitive::Float32, Primitive::Float64) {
        return None;
    }
    Some(match precision {
        Precision::Half | Precision::Single => Widening::Representation,
        Precision::Truncated { .. } | Precision::Quantised { .. } => Widening::Copy,
    })
}

/// Whether a column cannot be one of several representations. ROOT aborts on a representation whose width
/// differs from that of its type, and quantised numbers differ if they are not rounded to single precision.
pub(super) fn stands_alone(column: &Column) -> bool {
    matches!(column.column_type, ColumnType::Real32Trunc | ColumnType::Real32Quant)
}

/// The reason why there is no widening.
pub(super) fn reason(old: &Type, new: &Type) -> &'static str {
    use Type::{Array, Bitset, List, Optional, Primitive, Record, Reduced, String, Variant};
    let is_number = |of: &Type| matches!(of, Primitive(_) | Reduced(..));
    match (old, new) {
        (old, new) if is_number(old) && is_number(new) => {
            "some numbers of the old type do not fit the new one"
        }
        (List(_), Optional(_)) => "a list may have several items",
        (Optional(_), _) => "a value may be absent",
        (List(_), _) => "a list may have no item, or several",
        (Array { .. } | Bitset { .. }, Array { .. } | Bitset { .. }) => {
            "the number of items is fixed"
        }
        (Variant(_), Variant(_)) => "alternatives can be added, not removed",
        (Record { .. }, _) => "a record has several members",
        (String, _) | (_, String) => "strings and other values are not converted",
        _ => "these types cannot be converted; add a new field instead",
    }
}
