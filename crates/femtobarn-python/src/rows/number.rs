//! Numbers that Python appends one by one or as arrays.

use pyo3::buffer::{Element, PyBuffer};
use pyo3::exceptions::{PyOverflowError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyFloat};
use rntuple::{Array, Primitive, bytes_of};

use super::rejected_value::{PushResult, RejectedValue};
use crate::columns::name_of;

/// The values of one column, in the type that the engine takes.
pub(super) enum NumberBuilder {
    Bool(Vec<u8>),
    Byte(Vec<u8>),
    Char(Vec<u8>),
    Int8(Vec<i8>),
    UInt8(Vec<u8>),
    Int16(Vec<i16>),
    UInt16(Vec<u16>),
    Int32(Vec<i32>),
    UInt32(Vec<u32>),
    Int64(Vec<i64>),
    UInt64(Vec<u64>),
    Float32(Vec<f32>),
    Float64(Vec<f64>),
    /// Half precision on disk.
    Half(Vec<f32>),
    /// Single precision on disk.
    Single(Vec<f64>),
}

/// Runs an expression with the vector of any variant.
macro_rules! with_values {
    ($column:expr, $values:ident => $body:expr) => {
        match $column {
            NumberBuilder::Bool($values)
            | NumberBuilder::Byte($values)
            | NumberBuilder::Char($values)
            | NumberBuilder::UInt8($values) => $body,
            NumberBuilder::Int8($values) => $body,
            NumberBuilder::Int16($values) => $body,
            NumberBuilder::UInt16($values) => $body,
            NumberBuilder::Int32($values) => $body,
            NumberBuilder::UInt32($values) => $body,
            NumberBuilder::Int64($values) => $body,
            NumberBuilder::UInt64($values) => $body,
            NumberBuilder::Float32($values) | NumberBuilder::Half($values) => $body,
            NumberBuilder::Float64($values) | NumberBuilder::Single($values) => $body,
        }
    };
}

impl NumberBuilder {
    /// No values of a type.
    pub(super) fn new(of: Primitive) -> Self {
        match of {
            Primitive::Bool => NumberBuilder::Bool(vec![]),
            Primitive::Byte => NumberBuilder::Byte(vec![]),
            Primitive::Char => NumberBuilder::Char(vec![]),
            Primitive::Int8 => NumberBuilder::Int8(vec![]),
            Primitive::UInt8 => NumberBuilder::UInt8(vec![]),
            Primitive::Int16 => NumberBuilder::Int16(vec![]),
            Primitive::UInt16 => NumberBuilder::UInt16(vec![]),
            Primitive::Int32 => NumberBuilder::Int32(vec![]),
            Primitive::UInt32 => NumberBuilder::UInt32(vec![]),
            Primitive::Int64 => NumberBuilder::Int64(vec![]),
            Primitive::UInt64 => NumberBuilder::UInt64(vec![]),
            Primitive::Float32 => NumberBuilder::Float32(vec![]),
            Primitive::Float64 => NumberBuilder::Float64(vec![]),
        }
    }

    /// Adds a number.
    pub(super) fn push(&mut self, value: &Bound<'_, PyAny>) -> PushResult {
        let wanted = self.primitive();
        match self {
            NumberBuilder::Bool(values) => values.push(truth_of(value)?.into()),
            NumberBuilder::Byte(values)
            | NumberBuilder::Char(values)
            | NumberBuilder::UInt8(values) => values.push(integer_of(value, wanted)?),
            NumberBuilder::Int8(values) => values.push(integer_of(value, wanted)?),
            NumberBuilder::Int16(values) => values.push(integer_of(value, wanted)?),
            NumberBuilder::UInt16(values) => values.push(integer_of(value, wanted)?),
            NumberBuilder::Int32(values) => values.push(integer_of(value, wanted)?),
            NumberBuilder::UInt32(values) => values.push(integer_of(value, wanted)?),
            NumberBuilder::Int64(values) => values.push(integer_of(value, wanted)?),
            NumberBuilder::UInt64(values) => values.push(integer_of(value, wanted)?),
            NumberBuilder::Float32(values) => {
                values.push(single_of(value, real_of(value, wanted)?)?)
            }
            NumberBuilder::Float64(values) => values.push(real_of(value, wanted)?),
            NumberBuilder::Half(values) => {
                values.push(single_of(value, real_of(value, wanted)?)?);
                check_halves(&values[values.len() - 1..])?;
            }
            NumberBuilder::Single(values) => {
                values.push(real_of(value, wanted)?);
                check_singles(&values[values.len() - 1..])?;
            }
        }
        Ok(())
    }

    /// Adds all values of an array of exactly this type; returns their number, or `None` if the object is not an array
    /// of this type.
    pub(super) fn push_buffer(
        &mut self,
        array: &Bound<'_, PyAny>,
    ) -> Result<Option<usize>, RejectedValue> {
        match self {
            NumberBuilder::Bool(_) => Ok(None),
            NumberBuilder::Byte(values)
            | NumberBuilder::Char(values)
            | NumberBuilder::UInt8(values) => {
                if let Ok(bytes) = array.cast::<PyBytes>() {
                    values.extend_from_slice(bytes.as_bytes());
                    return Ok(Some(bytes.as_bytes().len()));
                }
                copy_buffer(array, values)
            }
            NumberBuilder::Int8(values) => copy_buffer(array, values),
            NumberBuilder::Int16(values) => copy_buffer(array, values),
            NumberBuilder::UInt16(values) => copy_buffer(array, values),
            NumberBuilder::Int32(values) => copy_buffer(array, values),
            NumberBuilder::UInt32(values) => copy_buffer(array, values),
            NumberBuilder::Int64(values) => copy_buffer(array, values),
            NumberBuilder::UInt64(values) => copy_buffer(array, values),
            NumberBuilder::Float32(values) => copy_buffer(array, values),
            NumberBuilder::Float64(values) => copy_buffer(array, values),
            NumberBuilder::Half(values) => {
                let added = copy_buffer(array, values)?;
                check_halves(&values[values.len() - added.unwrap_or(0)..])?;
                Ok(added)
            }
            NumberBuilder::Single(values) => {
                let added = copy_buffer(array, values)?;
                check_singles(&values[values.len() - added.unwrap_or(0)..])?;
                Ok(added)
            }
        }
    }

    /// Removes all values from `length` on.
    pub(super) fn truncate(&mut self, length: usize) {
        with_values!(self, values => values.truncate(length));
    }

    /// Bytes of the values.
    pub(super) fn size(&self) -> usize {
        with_values!(self, values => size_of_val(&values[..]))
    }

    /// Returns the values, and starts again with the same capacity.
    pub(super) fn take(&mut self) -> Array {
        let primitive = self.primitive();
        let values = with_values!(self, values => {
            let next = Vec::with_capacity(values.len());
            bytes_of(std::mem::replace(values, next))
        });
        Array::Primitive { primitive, values }
    }

    fn primitive(&self) -> Primitive {
        match self {
            NumberBuilder::Bool(_) => Primitive::Bool,
            NumberBuilder::Byte(_) => Primitive::Byte,
            NumberBuilder::Char(_) => Primitive::Char,
            NumberBuilder::Int8(_) => Primitive::Int8,
            NumberBuilder::UInt8(_) => Primitive::UInt8,
            NumberBuilder::Int16(_) => Primitive::Int16,
            NumberBuilder::UInt16(_) => Primitive::UInt16,
            NumberBuilder::Int32(_) => Primitive::Int32,
            NumberBuilder::UInt32(_) => Primitive::UInt32,
            NumberBuilder::Int64(_) => Primitive::Int64,
            NumberBuilder::UInt64(_) => Primitive::UInt64,
            NumberBuilder::Float32(_) | NumberBuilder::Half(_) => Primitive::Float32,
            NumberBuilder::Float64(_) | NumberBuilder::Single(_) => Primitive::Float64,
        }
    }
}

fn truth_of(value: &Bound<'_, PyAny>) -> Result<bool, RejectedValue> {
    value.extract::<bool>().map_err(|_| RejectedValue::of(value, "a bool"))
}

fn integer_of<'py, T>(value: &Bound<'py, PyAny>, wanted: Primitive) -> Result<T, RejectedValue>
where
    T: for<'a> FromPyObject<'a, 'py, Error = PyErr>,
{
    value.extract::<T>().map_err(|error| number_refusal(error, value, wanted))
}

fn real_of(value: &Bound<'_, PyAny>, wanted: Primitive) -> Result<f64, RejectedValue> {
    if let Ok(real) = value.cast_exact::<PyFloat>() {
        return Ok(real.value());
    }
    if value.is_instance_of::<PyBool>() {
        return Err(RejectedValue::of(value, name_of(wanted)));
    }
    let real = value.extract::<f64>().map_err(|error| number_refusal(error, value, wanted))?;
    let stored = if wanted == Primitive::Float32 { f64::from(real as f32) } else { real };
    // Real numbers are rounded, integers are not. For a NumPy array of no dimension, `__index__` fails if it
    // holds a real number.
    let whole = value.call_method0("__index__").ok();
    match whole.map(|whole| whole.eq(stored)).transpose()? {
        Some(false) => Err(RejectedValue::of(value, &format!("exactly a {}", name_of(wanted)))),
        _ => Ok(real),
    }
}

/// Rounds to single precision; rejects values out of its range.
fn single_of(value: &Bound<'_, PyAny>, real: f64) -> Result<f32, RejectedValue> {
    let single = real as f32;
    if single.is_infinite() && real.is_finite() {
        Err(RejectedValue::of(value, "within the range of float32"))
    } else {
        Ok(single)
    }
}

/// Rejects finite numbers that are infinite in half precision.
fn check_halves(values: &[f32]) -> PushResult {
    const LIMIT: f32 = 65_520.0;
    match values.iter().find(|value| value.is_finite() && value.abs() >= LIMIT) {
        Some(value) => {
            Err(RejectedValue::because(format!("{value} is not within the range of float16")))
        }
        None => Ok(()),
    }
}

/// Rejects finite numbers that are infinite in single precision.
fn check_singles(values: &[f64]) -> PushResult {
    match values.iter().find(|value| value.is_finite() && (**value as f32).is_infinite()) {
        Some(value) => {
            Err(RejectedValue::because(format!("{value} is not within the range of float32")))
        }
        None => Ok(()),
    }
}

fn number_refusal(error: PyErr, value: &Bound<'_, PyAny>, wanted: Primitive) -> RejectedValue {
    let (py, wanted) = (value.py(), name_of(wanted));
    if error.is_instance_of::<PyOverflowError>(py) {
        return RejectedValue::of(value, &format!("within the range of {wanted}"));
    }
    if error.is_instance_of::<PyTypeError>(py) {
        RejectedValue::of(value, &format!("of type {wanted}"))
    } else {
        error.into()
    }
}

/// Adds the values of a one-dimensional buffer of `T`, if the object has one.
fn copy_buffer<T: Element + Default>(
    object: &Bound<'_, PyAny>,
    values: &mut Vec<T>,
) -> Result<Option<usize>, RejectedValue> {
    let Ok(buffer) = PyBuffer::<T>::get(object) else { return Ok(None) };
    if buffer.dimensions() != 1 {
        return Ok(None);
    }
    let (before, added) = (values.len(), buffer.item_count());
    values.resize(before + added, T::default());
    buffer.copy_to_slice(object.py(), &mut values[before..])?;
    Ok(Some(added))
}
