//! Real numbers stored with less than single precision. In memory they have single precision; quantised
//! numbers have double precision.

use half::f16;
use half::slice::{HalfBitsSliceExt, HalfFloatSliceExt};

use super::{bits, split};
use crate::error::{Error, Result};
use crate::schema::Column;

/// Numbers of half precision converted at a time, with the processor's instructions if it has them.
const BLOCK: usize = 64;

/// Half precision to single precision.
pub(super) fn widen_halves(encoded: &[u8], out: &mut [[u8; 4]]) {
    let halves = encoded.as_chunks().0;
    for (out, halves) in out.chunks_mut(BLOCK).zip(halves.chunks(BLOCK)) {
        let mut block = [0; BLOCK];
        for (half, bytes) in block.iter_mut().zip(halves) {
            *half = u16::from_le_bytes(*bytes);
        }
        let singles = to_singles(&block);
        out.copy_from_slice(&singles[..out.len()]);
    }
}

/// Byte planes of half precision to single precision.
pub(super) fn unsplit_halves(encoded: &[u8], out: &mut [[u8; 4]]) {
    split::unsplit(encoded, out, |halves, out| *out = to_singles(halves));
}

/// Single precision to half precision: rounded to nearest even, infinite beyond 65,504.
pub(super) fn narrow_to_halves(values: &[[u8; 4]], out: &mut [u8]) {
    let halves = out.as_chunks_mut().0;
    for (halves, singles) in halves.chunks_mut(BLOCK).zip(values.chunks(BLOCK)) {
        let mut block = [[0; 4]; BLOCK];
        block[..singles.len()].copy_from_slice(singles);
        for (bytes, half) in halves.iter_mut().zip(to_halves(&block)) {
            *bytes = half.to_le_bytes();
        }
    }
}

/// Like [`narrow_to_halves`], into byte planes.
pub(super) fn split_halves(values: &[[u8; 4]], out: &mut [u8]) {
    split::split(values, out, to_halves);
}

fn to_singles(halves: &[u16; BLOCK]) -> [[u8; 4]; BLOCK] {
    let mut singles = [0.0; BLOCK];
    halves.reinterpret_cast::<f16>().convert_to_f32_slice(&mut singles);
    singles.map(f32::to_le_bytes)
}

fn to_halves(singles: &[[u8; 4]; BLOCK]) -> [u16; BLOCK] {
    let mut halves = [f16::ZERO; BLOCK];
    halves.convert_from_f32_slice(&singles.map(f32::from_le_bytes));
    halves.map(f16::to_bits)
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
                let reason = format!("range {range:?} must be finite and not empty");
                Err(Error::corrupt("column description", 0, reason))
            }
        }
    }

    pub(super) fn decode(&self, encoded: &[u8], out: &mut [[u8; 8]]) {
        let Quantiser { min, max, steps, width } = *self;
        let step = (max - min) / steps;
        bits::unpack(encoded, width, out, |integer| {
            (f64::from(integer) * step + min).to_le_bytes()
        });
    }

    pub(super) fn encode(&self, values: &[[u8; 8]], out: &mut [u8]) -> Result<()> {
        let Quantiser { min, max, steps, width } = *self;
        // A number read from a page may exceed the range by a rounding error. It is accepted and clamped,
        // so that it maps to the same integer when the page is rewritten.
        let rounding = ((max - min) / steps / 4.0).max(single_rounding(min, max));
        let (least, most) = (min - rounding, max + rounding);
        let inside = |value: &[u8; 8]| {
            let value = f64::from_le_bytes(*value);
            (least <= value) & (value <= most)
        };
        // Without an early exit the check uses vector instructions; the number is found in a second pass.
        if !values.iter().fold(true, |all, value| all & inside(value))
            && let Some(value) = values.iter().find(|value| !inside(value))
        {
            let value = f64::from_le_bytes(*value);
            let what = format!("{value} is outside the quantised range {min} to {max}");
            return Err(Error::invalid(what));
        }
        let scale = steps / (max - min);
        bits::pack(values, width, out, |value| {
            floor_to_u32((f64::from_le_bytes(value).clamp(min, max) - min) * scale + 0.5)
        });
        Ok(())
    }
}

/// Greatest rounding error of numbers in a range when they are stored with single precision.
pub(crate) fn single_rounding(min: f64, max: f64) -> f64 {
    min.abs().max(max.abs()) * f64::from(f32::EPSILON) / 2.0
}

/// The integer part of a number from 0 to 2^32, exclusive. Adding 2^52 leaves the integer, rounded
/// to nearest, in the low bits; unlike a cast this uses vector instructions.
#[inline(always)]
fn floor_to_u32(value: f64) -> u32 {
    const SHIFT: f64 = (1u64 << 52) as f64;
    let shifted = value + SHIFT;
    let above = shifted - SHIFT > value;
    (shifted.to_bits() as u32).wrapping_sub(u32::from(above))
}
