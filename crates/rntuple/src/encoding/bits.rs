//! Elements narrower than a byte or of odd widths, packed without gaps, least significant bit first.
//!
//! Eight elements of `width` bits fill `width` bytes exactly, so pages are worked on in groups of
//! eight; only the last, incomplete group needs care.

/// Elements of a group.
const GROUP: usize = 8;
/// Bytes of a group of the widest elements (32 bits).
const GROUP_BYTES_MAX: usize = 32;
/// Reading an element loads 8 bytes from where it begins.
const LOAD: usize = 8;

/// For each byte its eight bits as eight bytes of 0 or 1.
const SPREAD: [u64; 256] = {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let mut bit = 0;
        while bit < 8 {
            table[byte] |= ((byte as u64 >> bit) & 1) << (8 * bit);
            bit += 1;
        }
        byte += 1;
    }
    table
};

/// One bit each to one byte each.
pub(super) fn unpack_truths(encoded: &[u8], out: &mut [u8]) {
    let (groups, rest) = out.as_chunks_mut::<GROUP>();
    for (out, byte) in groups.iter_mut().zip(encoded) {
        *out = SPREAD[usize::from(*byte)].to_le_bytes();
    }
    if let Some(byte) = encoded.get(groups.len()) {
        let spread = SPREAD[usize::from(*byte)].to_le_bytes();
        rest.copy_from_slice(&spread[..rest.len()]);
    }
}

/// One byte each to one bit each; whatever is not 0 is true.
pub(super) fn pack_truths(values: &[u8], out: &mut [u8]) {
    let (groups, rest) = values.as_chunks::<GROUP>();
    for (out, group) in out.iter_mut().zip(groups) {
        *out = gather(u64::from_le_bytes(*group));
    }
    if let Some(out) = out.get_mut(groups.len()) {
        let mut group = [0; GROUP];
        group[..rest.len()].copy_from_slice(rest);
        *out = gather(u64::from_le_bytes(group));
    }
}

/// The bits of eight bytes: the product moves bit 0 of byte `i` to bit `56 + i`.
fn gather(bytes: u64) -> u8 {
    const LOW: u64 = 0x0101_0101_0101_0101;
    const HIGH: u64 = LOW << 7;
    let not_zero = ((bytes | ((bytes | HIGH) - LOW)) >> 7) & LOW;
    (not_zero.wrapping_mul(0x0102_0408_1020_4080) >> 56) as u8
}

/// Unpacks elements of `width` (1 to 32) bits and hands each to `map`.
#[inline(always)]
pub(super) fn unpack<T>(encoded: &[u8], width: u16, out: &mut [T], map: impl Fn(u32) -> T) {
    let width = usize::from(width);
    let (groups, rest) = out.as_chunks_mut::<GROUP>();
    let mut position = 0;
    for group in groups {
        let bytes = &encoded[position..];
        if let Some(bytes) = bytes.get(..width + LOAD) {
            unpack_group(bytes, width, group, &map);
        } else {
            unpack_group(&padded(bytes), width, group, &map);
        }
        position += width;
    }
    if !rest.is_empty() {
        unpack_group(&padded(&encoded[position..]), width, rest, &map);
    }
}

#[inline(always)]
fn unpack_group<T>(bytes: &[u8], width: usize, out: &mut [T], map: impl Fn(u32) -> T) {
    let mask = u64::MAX >> (64 - width);
    for (index, out) in out.iter_mut().enumerate() {
        let bit = index * width;
        let loaded = bytes[bit / 8..].first_chunk::<LOAD>().map_or(0, |b| u64::from_le_bytes(*b));
        *out = map(((loaded >> (bit % 8)) & mask) as u32);
    }
}

fn padded(bytes: &[u8]) -> [u8; GROUP_BYTES_MAX + LOAD] {
    let mut padded = [0; GROUP_BYTES_MAX + LOAD];
    let length = bytes.len().min(padded.len());
    padded[..length].copy_from_slice(&bytes[..length]);
    padded
}

/// Packs what `map` makes of each value, `width` (1 to 32) bits each.
#[inline(always)]
pub(super) fn pack<T: Copy>(values: &[T], width: u16, out: &mut [u8], map: impl Fn(T) -> u32) {
    let mut pending = 0u64;
    let mut pending_bits = 0;
    let mut position = 0;
    for value in values {
        pending |= u64::from(map(*value)) << pending_bits;
        pending_bits += u32::from(width);
        if pending_bits >= 32 {
            out[position..position + 4].copy_from_slice(&(pending as u32).to_le_bytes());
            position += 4;
            pending >>= 32;
            pending_bits -= 32;
        }
    }
    let last = pending_bits.div_ceil(8) as usize;
    out[position..].copy_from_slice(&pending.to_le_bytes()[..last]);
}
