//! The order in which a Python value is offered to the alternatives of a variant.
//!
//! 1. First the alternative of the value's own type. Python's `bool`, `int` and `float` are `bool`, `int64`
//!    and `float64`; a NumPy value has its `dtype`; a list counts by its first item.
//! 2. Then alternatives that keep the precision of the value's type, then the others, both in the declared
//!    order.
//!
//! Arrays follow the same rule (`python/femtobarn/_data/arrays.py`).

use femtobarn::FieldType;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyFloat, PyInt, PyList, PyString, PyTuple};

/// Depth up to which nested lists are searched for the type of their items.
const DEPTH_MAX: usize = 8;

/// The innermost types of the alternatives of a variant.
pub(super) struct Alternatives(Vec<FieldType>);

impl Alternatives {
    /// The alternatives in the order declared.
    pub(super) fn new(items: &[FieldType]) -> Self {
        Self(items.iter().map(|item| innermost(item).clone()).collect())
    }

    /// Positions of the alternatives in the order in which a value is offered to them.
    pub(super) fn in_order(&self, value: &Bound<'_, PyAny>) -> impl Iterator<Item = usize> {
        let own = own_type(value, DEPTH_MAX);
        let loss_at = move |at: usize| own.as_ref().map_or(0, |own| loss(own, &self.0[at]));
        (0..3).flat_map(move |wanted| {
            let loss_at = loss_at.clone();
            (0..self.0.len()).filter(move |&at| loss_at(at) == wanted)
        })
    }
}

fn innermost(of: &FieldType) -> &FieldType {
    match of {
        FieldType::List(of) | FieldType::Optional(of) | FieldType::Array { of, .. } => {
            innermost(of)
        }
        other => other,
    }
}

/// The loss of a value in an alternative: 0 in its own type, 1 in one that keeps its precision, 2 in one that
/// rounds.
fn loss(own: &FieldType, of: &FieldType) -> u8 {
    use FieldType::{Double32, Float16, Float32, Float64, Quantised, Truncated};
    match (own, of) {
        _ if own == of => 0,
        (Float64, Float32 | Double32)
        | (Float32 | Float64, Float16 | Truncated { .. } | Quantised { .. }) => 2,
        _ => 1,
    }
}

fn own_type(value: &Bound<'_, PyAny>, depth: usize) -> Option<FieldType> {
    if depth == 0 || value.is_instance_of::<PyString>() {
        return None;
    }
    if value.is_instance_of::<PyBool>() {
        return Some(FieldType::Bool);
    }
    if value.is_instance_of::<PyInt>() {
        return Some(FieldType::Int64);
    }
    if value.is_instance_of::<PyFloat>() {
        return Some(FieldType::Float64);
    }
    if value.is_instance_of::<PyList>() || value.is_instance_of::<PyTuple>() {
        return own_type(&value.get_item(0).ok()?, depth - 1);
    }
    if !value.get_type().hasattr("dtype").ok()? {
        return None; // Links would look for a field of this name.
    }
    let name: String = value.getattr("dtype").ok()?.getattr("name").ok()?.extract().ok()?;
    Some(match name.as_str() {
        "bool" => FieldType::Bool,
        "int8" => FieldType::Int8,
        "uint8" => FieldType::UInt8,
        "int16" => FieldType::Int16,
        "uint16" => FieldType::UInt16,
        "int32" => FieldType::Int32,
        "uint32" => FieldType::UInt32,
        "int64" => FieldType::Int64,
        "uint64" => FieldType::UInt64,
        "float32" => FieldType::Float32,
        "float64" => FieldType::Float64,
        _ => return None,
    })
}
