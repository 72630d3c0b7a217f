//! Which numbers become which without loss, and whether their old pages can go on to be used.
//!
//! A column may have several representations, and each cluster holds one of them. The old column is
//! then one more representation of the new field, provided that ROOT reads a field of the new type
//! from it: it does for integers of any size and for real numbers, but not for integers as reals.

use crate::column::ColumnType;
use crate::schema::Column;
use crate::types::{Precision, Primitive, Type};

/// How old numbers become wider ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Widening {
    /// The old column is one more representation.
    Column,
    /// The old numbers are read, converted and written.
    Copy,
}

/// How numbers of type `old` become such of type `new`; `None` if not all can, or they are no
/// numbers.
pub(super) fn widening_of(old: &Type, new: &Type) -> Option<Widening> {
    match (old, new) {
        (Type::Primitive(old), Type::Primitive(new)) => of_primitives(*old, *new),
        (Type::Reduced(old, precision), Type::Primitive(new)) => of_reduced(*old, *precision, *new),
        (
            Type::Primitive(Primitive::Float32),
            Type::Reduced(Primitive::Float64, Precision::Single),
        ) => Some(Widening::Column),
        (Type::Reduced(old, of), Type::Reduced(new, to)) if old == new => {
            let keeps = match (of, to) {
                (Precision::Truncated { bits }, Precision::Truncated { bits: more }) => bits < more,
                (Precision::Truncated { .. } | Precision::Half, Precision::Single) => true,
                // 1 sign, 8 exponent and 10 fraction bits hold all of them.
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
        (Primitive::Float32, Primitive::Float64) => Some(Widening::Column),
        _ => {
            let range = old.integer_range()?;
            match (new, new.integer_range()) {
                (_, Some(wide))
                    if !(wide.contains(range.start()) && wide.contains(range.end())) =>
                {
                    None
                }
                (_, Some(_)) if old == Primitive::Bool => Some(Widening::Copy),
                (_, Some(_)) => Some(Widening::Column),
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
        Precision::Half | Precision::Single => Widening::Column,
        Precision::Truncated { .. } | Precision::Quantised { .. } => Widening::Copy,
    })
}

/// Whether a column cannot be one of several representations: ROOT aborts on those whose width is not
/// that of their type, and quantised numbers differ when they are not rounded to single precision.
pub(super) fn stands_alone(column: &Column) -> bool {
    matches!(column.column_type, ColumnType::Real32Trunc | ColumnType::Real32Quant)
}

/// Why there is no way.
pub(super) fn reason(old: &Type, new: &Type) -> &'static str {
    use Type::{Array, Bitset, List, Optional, Primitive, Record, Reduced, String, Variant};
    let is_number = |of: &Type| matches!(of, Primitive(_) | Reduced(..));
    match (old, new) {
        (old, new) if is_number(old) && is_number(new) => {
            "not all numbers of the one fit the other"
        }
        (List(_), Optional(_)) => "a list may have several items",
        (Optional(_), _) => "a value may be absent",
        (List(_), _) => "a list may have no item, or several",
        (Array { .. } | Bitset { .. }, Array { .. } | Bitset { .. }) => {
            "the number of items is fixed"
        }
        (Variant(_), Variant(_)) => "alternatives can be added, not taken away",
        (Record { .. }, _) => "a record has several members",
        (String, _) | (_, String) => "text and other values are not converted",
        _ => "there is no conversion between them; add a new field instead",
    }
}
