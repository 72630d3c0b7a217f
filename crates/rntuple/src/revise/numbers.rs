//! Exact conversion of numbers between types.

use bytemuck::Pod;
use bytes::Bytes;

use crate::array::{bytes_of, values_of};
use crate::error::Result;
use crate::types::Primitive;

/// The converted numbers, or the position of the first number that type `to` cannot represent exactly. If
/// `rounds`, real numbers may be rounded to single precision, but not to infinity.
pub(super) fn converted(
    from: Primitive,
    values: &[u8],
    to: Primitive,
    rounds: bool,
) -> Result<std::result::Result<Bytes, usize>> {
    use Primitive::{Bool, Byte, Char, Float32, Float64};
    use Primitive::{Int8, Int16, Int32, Int64, UInt8, UInt16, UInt32, UInt64};
    match from {
        Float32 => real(values_of::<f32>(values)?, f64::from, to, true),
        Float64 => real(values_of::<f64>(values)?, |value| value, to, rounds),
        Bool | Byte | Char | UInt8 => integer(values_of::<u8>(values)?, to),
        Int8 => integer(values_of::<i8>(values)?, to),
        Int16 => integer(values_of::<i16>(values)?, to),
        UInt16 => integer(values_of::<u16>(values)?, to),
        Int32 => integer(values_of::<i32>(values)?, to),
        UInt32 => integer(values_of::<u32>(values)?, to),
        Int64 => integer(values_of::<i64>(values)?, to),
        UInt64 => integer(values_of::<u64>(values)?, to),
    }
}

fn integer<T: Pod + Into<i128>>(
    values: &[T],
    to: Primitive,
) -> Result<std::result::Result<Bytes, usize>> {
    use Primitive::{Bool, Byte, Char, Float32, Float64};
    use Primitive::{Int8, Int16, Int32, Int64, UInt8, UInt16, UInt32, UInt64};
    let exactly = |value: i128, real: f64| (real as i128 == value).then_some(real);
    Ok(match to {
        Bool => each(values, |v| u8::try_from(v.into()).ok().filter(|&bit| bit <= 1)),
        Byte | Char | UInt8 => each(values, |v| u8::try_from(v.into()).ok()),
        Int8 => each(values, |v| i8::try_from(v.into()).ok()),
        Int16 => each(values, |v| i16::try_from(v.into()).ok()),
        UInt16 => each(values, |v| u16::try_from(v.into()).ok()),
        Int32 => each(values, |v| i32::try_from(v.into()).ok()),
        UInt32 => each(values, |v| u32::try_from(v.into()).ok()),
        Int64 => each(values, |v| i64::try_from(v.into()).ok()),
        UInt64 => each(values, |v| u64::try_from(v.into()).ok()),
        Float32 => each(values, |v| {
            let value = v.into();
            exactly(value, f64::from(value as f32)).map(|real| real as f32)
        }),
        Float64 => each(values, |v| {
            let value = v.into();
            exactly(value, value as f64)
        }),
    })
}

fn real<T: Pod>(
    values: &[T],
    double: impl Fn(T) -> f64,
    to: Primitive,
    rounds: bool,
) -> Result<std::result::Result<Bytes, usize>> {
    match to {
        Primitive::Float64 => Ok(each(values, |v| Some(double(v)))),
        Primitive::Float32 => Ok(each(values, |v| {
            let value = double(v);
            let single = value as f32;
            let is_rounded = rounds && single.is_finite();
            let fits = is_rounded || value.is_nan() || f64::from(single) == value;
            fits.then_some(single)
        })),
        _ => {
            // No integer type has more than 64 bits.
            let is_whole = |value: f64| value.fract() == 0.0 && value.abs() < 2.0_f64.powi(65);
            match values.iter().position(|&value| !is_whole(double(value))) {
                Some(position) => Ok(Err(position)),
                None => {
                    let integers = values.iter().map(|&value| double(value) as i128);
                    integer(&integers.collect::<Vec<_>>(), to)
                }
            }
        }
    }
}

/// The converted values, or the position of the first value that cannot be converted.
fn each<T: Copy, B: Pod + Send>(
    values: &[T],
    map: impl Fn(T) -> Option<B>,
) -> std::result::Result<Bytes, usize> {
    let mut out = Vec::with_capacity(values.len());
    for (position, &value) in values.iter().enumerate() {
        out.push(map(value).ok_or(position)?);
    }
    Ok(bytes_of(out))
}
