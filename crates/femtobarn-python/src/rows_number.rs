//! Numbers that Python appends one by one or as arrays.

use pyo3::buffer::{Element, PyBuffer};
use pyo3::exceptions::{PyOverflowError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyFloat};
use rntuple::{Array, Primitive, bytes_of};

use crate::columns::name_of;
use crate::rows::{Pushed, Refusal};

/// The values of one column, in the type that they have on their way to the engine.
pub enum NumberColumn {
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
    /// On disk of half precision.
    Half(Vec<f32>),
    /// On disk of single precision.
    Single(Vec<f64>),
}

/// Runs an expression with the vector of whatever variant it is.
macro_rules! with_values {
    ($column:expr, $values:ident => $body:expr) => {
        match $column {
            NumberColumn::Bool($values)
            | NumberColumn::Byte($values)
            | NumberColumn::Char($values)
            | NumberColumn::UInt8($values) => $body,
            NumberColumn::Int8($values) => $body,
            NumberColumn::Int16($values) => $body,
            NumberColumn::UInt16($values) => $body,
            NumberColumn::Int32($values) => $body,
            NumberColumn::UInt32($values) => $body,
            NumberColumn::Int64($values) => $body,
            NumberColumn::UInt64($values) => $body,
            NumberColumn::Float32($values) | NumberColumn::Half($values) => $body,
            NumberColumn::Float64($values) | NumberColumn::Single($values) => $body,
        }
    };
}

impl NumberColumn {
    /// No values of a type.
    pub fn new(of: Primitive) -> Self {
        match of {
            Primitive::Bool => NumberColumn::Bool(vec![]),
            Primitive::Byte => NumberColumn::Byte(vec![]),
            Primitive::Char => NumberColumn::Char(vec![]),
            Primitive::Int8 => NumberColumn::Int8(vec![]),
            Primitive::UInt8 => NumberColumn::UInt8(vec![]),
            Primitive::Int16 => NumberColumn::Int16(vec![]),
            Primitive::UInt16 => NumberColumn::UInt16(vec![]),
            Primitive::Int32 => NumberColumn::Int32(vec![]),
            Primitive::UInt32 => NumberColumn::UInt32(vec![]),
            Primitive::Int64 => NumberColumn::Int64(vec![]),
            Primitive::UInt64 => NumberColumn::UInt64(vec![]),
            Primitive::Float32 => NumberColumn::Float32(vec![]),
            Primitive::Float64 => NumberColumn::Float64(vec![]),
        }
    }

    /// Adds a number.
    pub fn push(&mut self, value: &Bound<'_, PyAny>) -> Pushed {
        let wanted = self.primitive();
        match self {
            NumberColumn::Bool(values) => values.push(truth_of(value)?.into()),
            NumberColumn::Byte(values)
            | NumberColumn::Char(values)
            | NumberColumn::UInt8(values) => values.push(integer_of(value, wanted)?),
            NumberColumn::Int8(values) => values.push(integer_of(value, wanted)?),
            NumberColumn::Int16(values) => values.push(integer_of(value, wanted)?),
            NumberColumn::UInt16(values) => values.push(integer_of(value, wanted)?),
            NumberColumn::Int32(values) => values.push(integer_of(value, wanted)?),
            NumberColumn::UInt32(values) => values.push(integer_of(value, wanted)?),
            NumberColumn::Int64(values) => values.push(integer_of(value, wanted)?),
            NumberColumn::UInt64(values) => values.push(integer_of(value, wanted)?),
            NumberColumn::Float32(values) => {
                values.push(single_of(value, real_of(value, wanted)?)?)
            }
            NumberColumn::Float64(values) => values.push(real_of(value, wanted)?),
            NumberColumn::Half(values) => {
                values.push(single_of(value, real_of(value, wanted)?)?);
                check_halves(&values[values.len() - 1..])?;
            }
            NumberColumn::Single(values) => {
                values.push(real_of(value, wanted)?);
                check_singles(&values[values.len() - 1..])?;
            }
        }
        Ok(())
    }

    /// Adds all values of an array of exactly this type, and returns how many there were; `None` if
    /// it is none.
    pub fn push_buffer(&mut self, array: &Bound<'_, PyAny>) -> Result<Option<usize>, Refusal> {
        match self {
            NumberColumn::Bool(_) => Ok(None),
            NumberColumn::Byte(values)
            | NumberColumn::Char(values)
            | NumberColumn::UInt8(values) => {
                if let Ok(bytes) = array.cast::<PyBytes>() {
                    values.extend_from_slice(bytes.as_bytes());
                    return Ok(Some(bytes.as_bytes().len()));
                }
                copy_buffer(array, values)
            }
            NumberColumn::Int8(values) => copy_buffer(array, values),
            NumberColumn::Int16(values) => copy_buffer(array, values),
            NumberColumn::UInt16(values) => copy_buffer(array, values),
            NumberColumn::Int32(values) => copy_buffer(array, values),
            NumberColumn::UInt32(values) => copy_buffer(array, values),
            NumberColumn::Int64(values) => copy_buffer(array, values),
            NumberColumn::UInt64(values) => copy_buffer(array, values),
            NumberColumn::Float32(values) => copy_buffer(array, values),
            NumberColumn::Float64(values) => copy_buffer(array, values),
            NumberColumn::Half(values) => {
                let added = copy_buffer(array, values)?;
                check_halves(&values[values.len() - added.unwrap_or(0)..])?;
                Ok(added)
            }
            NumberColumn::Single(values) => {
                let added = copy_buffer(array, values)?;
                check_singles(&values[values.len() - added.unwrap_or(0)..])?;
                Ok(added)
            }
        }
    }

    /// Forgets all values from `length` on.
    pub fn truncate(&mut self, length: usize) {
        with_values!(self, values => values.truncate(length));
    }

    /// Bytes of the values.
    pub fn size(&self) -> usize {
        with_values!(self, values => size_of_val(&values[..]))
    }

    /// Hands the values over, and begins anew with room for as many.
    pub fn take(&mut self) -> Array {
        let primitive = self.primitive();
        let values = with_values!(self, values => {
            let next = Vec::with_capacity(values.len());
            bytes_of(std::mem::replace(values, next))
        });
        Array::Primitive { primitive, values }
    }

    fn primitive(&self) -> Primitive {
        match self {
            NumberColumn::Bool(_) => Primitive::Bool,
            NumberColumn::Byte(_) => Primitive::Byte,
            NumberColumn::Char(_) => Primitive::Char,
            NumberColumn::Int8(_) => Primitive::Int8,
            NumberColumn::UInt8(_) => Primitive::UInt8,
            NumberColumn::Int16(_) => Primitive::Int16,
            NumberColumn::UInt16(_) => Primitive::UInt16,
            NumberColumn::Int32(_) => Primitive::Int32,
            NumberColumn::UInt32(_) => Primitive::UInt32,
            NumberColumn::Int64(_) => Primitive::Int64,
            NumberColumn::UInt64(_) => Primitive::UInt64,
            NumberColumn::Float32(_) | NumberColumn::Half(_) => Primitive::Float32,
            NumberColumn::Float64(_) | NumberColumn::Single(_) => Primitive::Float64,
        }
    }
}

fn truth_of(value: &Bound<'_, PyAny>) -> Result<bool, Refusal> {
    value.extract::<bool>().map_err(|_| Refusal::of(value, "a bool"))
}

fn integer_of<'py, T>(value: &Bound<'py, PyAny>, wanted: Primitive) -> Result<T, Refusal>
where
    T: for<'a> FromPyObject<'a, 'py, Error = PyErr>,
{
    value.extract::<T>().map_err(|error| number_refusal(error, value, wanted))
}

fn real_of(value: &Bound<'_, PyAny>, wanted: Primitive) -> Result<f64, Refusal> {
    if let Ok(real) = value.cast_exact::<PyFloat>() {
        return Ok(real.value());
    }
    if value.is_instance_of::<PyBool>() {
        return Err(Refusal::of(value, name_of(wanted)));
    }
    let real = value.extract::<f64>().map_err(|error| number_refusal(error, value, wanted))?;
    let stored = if wanted == Primitive::Float32 { f64::from(real as f32) } else { real };
    // Real numbers are rounded, whole numbers are not.
    // Arrays of no dimension have `__index__`, which fails if the number is a real one.
    let whole = value.call_method0("__index__").ok();
    match whole.map(|whole| whole.eq(stored)).transpose()? {
        Some(false) => Err(Refusal::of(value, &format!("exactly a {}", name_of(wanted)))),
        _ => Ok(real),
    }
}

/// Rounds to single precision; what is too large for it is refused.
fn single_of(value: &Bound<'_, PyAny>, real: f64) -> Result<f32, Refusal> {
    let single = real as f32;
    if single.is_infinite() && real.is_finite() {
        Err(Refusal::of(value, "within the range of float32"))
    } else {
        Ok(single)
    }
}

/// Refuses finite numbers that are infinite in half precision.
fn check_halves(values: &[f32]) -> Pushed {
    const LIMIT: f32 = 65_520.0;
    match values.iter().find(|value| value.is_finite() && value.abs() >= LIMIT) {
        Some(value) => Err(Refusal::because(format!("{value} is not within the range of float16"))),
        None => Ok(()),
    }
}

/// Refuses finite numbers that are infinite in single precision.
fn check_singles(values: &[f64]) -> Pushed {
    match values.iter().find(|value| value.is_finite() && (**value as f32).is_infinite()) {
        Some(value) => Err(Refusal::because(format!("{value} is not within the range of float32"))),
        None => Ok(()),
    }
}

fn number_refusal(error: PyErr, value: &Bound<'_, PyAny>, wanted: Primitive) -> Refusal {
    let (py, wanted) = (value.py(), name_of(wanted));
    if error.is_instance_of::<PyOverflowError>(py) {
        return Refusal::of(value, &format!("within the range of {wanted}"));
    }
    if error.is_instance_of::<PyTypeError>(py) {
        Refusal::of(value, &format!("of type {wanted}"))
    } else {
        error.into()
    }
}

/// Adds the values of a one-dimensional buffer of `T`, if the object is one.
fn copy_buffer<T: Element + Default>(
    object: &Bound<'_, PyAny>,
    values: &mut Vec<T>,
) -> Result<Option<usize>, Refusal> {
    let Ok(buffer) = PyBuffer::<T>::get(object) else { return Ok(None) };
    if buffer.dimensions() != 1 {
        return Ok(None);
    }
    let (before, added) = (values.len(), buffer.item_count());
    values.resize(before + added, T::default());
    buffer.copy_to_slice(object.py(), &mut values[before..])?;
    Ok(Some(added))
}
