//! Real numbers stored with less than single precision; in memory they are single precision.

use half::f16;

use super::bits;
use crate::error::{Error, Result};
use crate::schema::Column;

/// Half precision to single precision.
pub(super) fn widen_halves(encoded: &[u8], out: &mut [[u8; 4]]) {
    for (out, half) in out.iter_mut().zip(encoded.as_chunks().0) {
        *out = f16::from_le_bytes(*half).to_f32().to_le_bytes();
    }
}

/// Byte planes of half precision to single precision.
pub(super) fn unsplit_halves(encoded: &[u8], out: &mut [[u8; 4]]) {
    let (low, high) = encoded.split_at(out.len());
    for ((out, low), high) in out.iter_mut().zip(low).zip(high) {
        *out = f16::from_le_bytes([*low, *high]).to_f32().to_le_bytes();
    }
}

/// Single precision to half precision: rounded to nearest even, infinite beyond 65,504.
pub(super) fn narrow_to_halves(values: &[[u8; 4]], out: &mut [u8]) {
    for (out, value) in out.as_chunks_mut::<2>().0.iter_mut().zip(values) {
        *out = f16::from_f32(f32::from_le_bytes(*value)).to_le_bytes();
    }
}

/// As [`narrow_to_halves`], into byte planes.
pub(super) fn split_halves(values: &[[u8; 4]], out: &mut [u8]) {
    let (low, high) = out.split_at_mut(values.len());
    for ((value, low), high) in values.iter().zip(low).zip(high) {
        [*low, *high] = f16::from_f32(f32::from_le_bytes(*value)).to_le_bytes();
    }
}

/// The `width` uppermost bits of a number, the others zero.
pub(super) fn untruncate(encoded: &[u8], width: u16, out: &mut [[u8; 4]]) {
    let dropped = 32 - u32::from(width);
    bits::unpack(encoded, width, out, |kept| (kept << dropped).to_le_bytes());
}

/// Keeps the `width` uppermost bits of each number; like ROOT, it cuts and does not round.
pub(super) fn truncate(values: &[[u8; 4]], width: u16, out: &mut [u8]) {
    let dropped = 32 - u32::from(width);
    bits::pack(values, width, out, |value| u32::from_le_bytes(value) >> dropped);
}

/// Maps the range `min..=max` evenly to the integers from 0 to `steps`.
pub(super) struct Quantiser {
    min: f64,
    max: f64,
    steps: f64,
    width: u16,
}

impl Quantiser {
    /// The quantiser of a column whose width is already checked.
    pub(super) fn of(column: &Column) -> Result<Self> {
        let steps = ((1u64 << column.bits) - 1) as f64;
        match column.range {
            Some((min, max)) if min < max && (max - min).is_finite() => {
                Ok(Quantiser { min, max, steps, width: column.bits })
            }
            range => {
                let reason = format!("range {range:?} is not one of finite, growing numbers");
                Err(Error::corrupt("column description", 0, reason))
            }
        }
    }

    pub(super) fn decode(&self, encoded: &[u8], out: &mut [[u8; 4]]) {
        let Quantiser { min, max, steps, width } = *self;
        let step = (max - min) / steps;
        bits::unpack(encoded, width, out, |integer| {
            ((f64::from(integer) * step + min) as f32).to_le_bytes()
        });
    }

    pub(super) fn encode(&self, values: &[[u8; 4]], out: &mut [u8]) -> Result<()> {
        let Quantiser { min, max, steps, width } = *self;
        let outside = |value: &f64| !(min..=max).contains(value);
        if let Some(value) = values.iter().map(|v| f64::from(f32::from_le_bytes(*v))).find(outside)
        {
            let what = format!("{value} is outside the quantised range {min} to {max}");
            return Err(Error::invalid(what));
        }
        let scale = steps / (max - min);
        bits::pack(values, width, out, |value| {
            ((f64::from(f32::from_le_bytes(value)) - min) * scale + 0.5) as u32
        });
        Ok(())
    }
}
