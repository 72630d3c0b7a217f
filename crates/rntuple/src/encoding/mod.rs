//! Page encodings: elements in memory to the bytes of an uncompressed page, and back.
//!
//! `bits` packs booleans and integers of odd widths, `split` makes byte planes with zigzag and deltas,
//! `real` stores real numbers of reduced precision; `real` uses both others.
//!
//! Invariants:
//! 1. A page is decoded on its own: differences and byte planes never cross its boundary.
//! 2. Sizes are checked before any loop, so bytes of any content decode without a panic.
//! 3. Memory is little-endian, as the format is; the crate does not compile for other machines.
//!
//! Source: RNTuple Binary Format Specification 1.0, "Column Description".

mod bits;
mod real;
mod split;

pub(crate) use real::single_rounding;

use crate::column::ColumnType;
use crate::error::{Error, Result};
use crate::schema::Column;

const _: () = assert!(cfg!(target_endian = "little"), "pages are copied as little-endian memory");

/// Bytes of an uncompressed page with this many elements.
pub fn encoded_size(column_type: ColumnType, bits: u16, elements: usize) -> Result<usize> {
    if let ColumnType::Unknown(code) = column_type {
        return Err(Error::unsupported(format!("column type {code:#04x}")));
    }
    if !column_type.allows_bits(bits) {
        let reason = format!("{column_type:?} cannot have {bits} bits");
        return Err(Error::corrupt("column description", 0, reason));
    }
    elements
        .checked_mul(usize::from(bits))
        .map(|all| all.div_ceil(8))
        .ok_or_else(|| Error::invalid(format!("a page cannot have {elements} elements")))
}

/// Decodes the uncompressed bytes of a page into `out`, which has room for exactly `elements` elements
/// of type [`ColumnType::element`]. Indexes of 32 bits become indexes of 64 bits.
pub fn decode(column: &Column, encoded: &[u8], elements: usize, out: &mut [u8]) -> Result<()> {
    let expected = encoded_size(column.column_type, column.bits, elements)?;
    if encoded.len() != expected {
        let reason = format!("{elements} elements take {expected} bytes, not {}", encoded.len());
        return Err(Error::corrupt("page", 0, reason));
    }
    check_room(column, elements, out)?;
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("avx2") {
        // SAFETY: the processor has the instructions.
        return unsafe { decode_with_avx2(column, encoded, out) };
    }
    decode_checked(column, encoded, out)
}

/// Like [`decode_checked`], with instructions that twice as many bytes fit in.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn decode_with_avx2(column: &Column, encoded: &[u8], out: &mut [u8]) -> Result<()> {
    decode_checked(column, encoded, out)
}

/// Decodes a page whose sizes were checked. Inlined with all that it calls, so that the compiler chooses their
/// instructions for the caller.
#[inline(always)]
fn decode_checked(column: &Column, encoded: &[u8], out: &mut [u8]) -> Result<()> {
    use ColumnType::*;
    match column.column_type {
        Bit => bits::unpack_truths(encoded, out),
        Index32 => split::widen(encoded, chunks_mut(out)),
        SplitUInt16 => split::unsplit16(encoded, chunks_mut(out), |word| word),
        SplitUInt32 | SplitReal32 => split::unsplit32(encoded, chunks_mut(out), |word| word),
        SplitUInt64 | SplitReal64 => split::unsplit64(encoded, chunks_mut(out), |word| word),
        SplitInt16 => split::unsplit16(encoded, chunks_mut(out), split::unzigzag16),
        SplitInt32 => split::unsplit32(encoded, chunks_mut(out), split::unzigzag32),
        SplitInt64 => split::unsplit64(encoded, chunks_mut(out), split::unzigzag64),
        SplitIndex32 => split::unsplit_differences32(encoded, chunks_mut(out)),
        SplitIndex64 => split::unsplit_differences64(encoded, chunks_mut(out)),
        Real16 => real::widen_halves(encoded, chunks_mut(out)),
        SplitReal16 => real::unsplit_halves(encoded, chunks_mut(out)),
        Real32Trunc => real::untruncate(encoded, column.bits, chunks_mut(out)),
        Real32Quant => real::Quantiser::of(column)?.decode(encoded, chunks_mut(out)),
        _ => out.copy_from_slice(encoded),
    }
    Ok(())
}

/// Appends the uncompressed page bytes of `values` to `out`; `values` are elements of type
/// [`ColumnType::element`].
pub fn encode(column: &Column, values: &[u8], out: &mut Vec<u8>) -> Result<()> {
    if column.column_type.is_plain() {
        encoded_size_of(column, values)?;
        out.extend_from_slice(values);
        return Ok(());
    }
    let start = out.len();
    out.resize(start + encoded_size_of(column, values)?, 0);
    let encoded = encode_into(column, values, &mut out[start..]);
    if encoded.is_err() {
        out.truncate(start);
    }
    encoded
}

/// Bytes of the uncompressed page of `values`.
pub(crate) fn encoded_size_of(column: &Column, values: &[u8]) -> Result<usize> {
    let size = column.element()?.size();
    if !values.len().is_multiple_of(size) {
        let what = format!("{} bytes are not a whole number of {size}-byte elements", values.len());
        return Err(Error::invalid(what));
    }
    encoded_size(column.column_type, column.bits, values.len() / size)
}

/// Encodes into `out`, which has exactly [`encoded_size_of`] bytes.
pub(crate) fn encode_into(column: &Column, values: &[u8], out: &mut [u8]) -> Result<()> {
    use ColumnType::*;
    assert_eq!(out.len(), encoded_size_of(column, values)?, "room for the page is exact");
    match column.column_type {
        Bit => bits::pack_truths(values, out),
        Index32 => split::narrow(chunks(values), out)?,
        SplitUInt16 => split::split16(chunks(values), out, |word| word),
        SplitUInt32 | SplitReal32 => split::split32(chunks(values), out, |word| word),
        SplitUInt64 | SplitReal64 => split::split64(chunks(values), out, |word| word),
        SplitInt16 => split::split16(chunks(values), out, split::zigzag16),
        SplitInt32 => split::split32(chunks(values), out, split::zigzag32),
        SplitInt64 => split::split64(chunks(values), out, split::zigzag64),
        SplitIndex32 => split::split_differences32(chunks(values), out)?,
        SplitIndex64 => split::split_differences64(chunks(values), out),
        Real16 => real::narrow_to_halves(chunks(values), out),
        SplitReal16 => real::split_halves(chunks(values), out),
        Real32Trunc => real::truncate(chunks(values), column.bits, out),
        Real32Quant => real::Quantiser::of(column)?.encode(chunks(values), out)?,
        _ => out.copy_from_slice(values),
    }
    Ok(())
}

fn check_room(column: &Column, elements: usize, out: &[u8]) -> Result<()> {
    let room = column.element()?.size().checked_mul(elements);
    if room == Some(out.len()) {
        return Ok(());
    }
    Err(Error::invalid(format!("{elements} elements do not fill {} bytes exactly", out.len())))
}

fn chunks<const N: usize>(bytes: &[u8]) -> &[[u8; N]] {
    bytes.as_chunks().0
}

#[inline(always)]
fn chunks_mut<const N: usize>(bytes: &mut [u8]) -> &mut [[u8; N]] {
    bytes.as_chunks_mut().0
}

#[cfg(test)]
pub(crate) mod tests;
