//! Conversion of elements, for columns of other types than their field. A value that does not fit the type
//! of the field is an error, as it is for ROOT.
//!
//! Source: RNTuple Binary Format Specification 1.0, "Fundamental Types".

use bytemuck::Pod;

use crate::array::values_of;
use crate::column::Element;
use crate::error::{Error, Result};

/// Converts `values` of type `from` to `out` of type `to`; both are aligned.
pub(crate) fn convert(from: Element, values: &[u8], to: Element, out: &mut [u8]) -> Result<()> {
    match (from, to) {
        (Element::F32, Element::F64) => each(values, out, |value: f32| Some(f64::from(value))),
        (Element::F64, Element::F32) => each(values, out, |value: f64| Some(value as f32)),
        (Element::U8, _) => from_integer::<u8>(values, to, out),
        (Element::I8, _) => from_integer::<i8>(values, to, out),
        (Element::U16, _) => from_integer::<u16>(values, to, out),
        (Element::I16, _) => from_integer::<i16>(values, to, out),
        (Element::U32, _) => from_integer::<u32>(values, to, out),
        (Element::I32, _) => from_integer::<i32>(values, to, out),
        (Element::U64, _) => from_integer::<u64>(values, to, out),
        (Element::I64, _) => from_integer::<i64>(values, to, out),
        _ => Err(Error::unsupported(format!("reading {from:?} as {to:?}"))),
    }
}

fn from_integer<T>(values: &[u8], to: Element, out: &mut [u8]) -> Result<()>
where
    T: Pod + Into<i128>,
{
    match to {
        Element::U8 => each(values, out, |value: T| u8::try_from(value.into()).ok()),
        Element::I8 => each(values, out, |value: T| i8::try_from(value.into()).ok()),
        Element::U16 => each(values, out, |value: T| u16::try_from(value.into()).ok()),
        Element::I16 => each(values, out, |value: T| i16::try_from(value.into()).ok()),
        Element::U32 => each(values, out, |value: T| u32::try_from(value.into()).ok()),
        Element::I32 => each(values, out, |value: T| i32::try_from(value.into()).ok()),
        Element::U64 => each(values, out, |value: T| u64::try_from(value.into()).ok()),
        Element::I64 => each(values, out, |value: T| i64::try_from(value.into()).ok()),
        _ => Err(Error::unsupported(format!("reading integers as {to:?}"))),
    }
}

fn each<A: Pod, B: Pod>(values: &[u8], out: &mut [u8], map: impl Fn(A) -> Option<B>) -> Result<()> {
    let misaligned = |reason| Error::invalid(format!("misaligned buffer: {reason}"));
    let out: &mut [B] = bytemuck::try_cast_slice_mut(out).map_err(misaligned)?;
    for (value, out) in values_of::<A>(values)?.iter().zip(out) {
        *out = map(*value).ok_or_else(|| {
            Error::corrupt("column", 0, "it holds a value that its field cannot hold")
        })?;
    }
    Ok(())
}
