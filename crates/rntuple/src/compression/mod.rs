//! ROOT's framing of compressed bytes.
//!
//! Input is cut into chunks of at most 2^24 - 1 bytes. Each chunk has a header of 9 bytes: two letters
//! and a version for the algorithm, then the compressed and the uncompressed size, 3 bytes each, least
//! significant first. If compression does not make the input smaller, the input itself is stored
//! without a frame; a reader recognises it by its size.
//!
//! This module decompresses all of ROOT's algorithms but the first (`CS`, abandoned in 2004) and
//! compresses with LZ4 and Zstandard. `c_codecs` are the libraries that do so; WebAssembly, for which there is no C
//! compiler, has `rust_codecs`, which only decompress. Contexts are recycled, one for each thread.

#[cfg(not(target_family = "wasm"))]
mod c_codecs;
#[cfg(any(target_family = "wasm", test))]
mod rust_codecs;

use std::cell::RefCell;

#[cfg(not(target_family = "wasm"))]
use c_codecs as codecs;
#[cfg(target_family = "wasm")]
use rust_codecs as codecs;

use crate::error::{Error, Result};

/// Bytes of the header of a chunk.
const HEADER: usize = 9;
/// Bytes of the checksum after the header of an LZ4 chunk: the XXH64 of its payload, big-endian.
const LZ4_CHECKSUM: usize = 8;
/// Most uncompressed bytes of a chunk.
const CHUNK_MAX: usize = 0xff_ffff;
/// Greatest compression ratio of any algorithm: Zstandard stores 2^17 equal bytes in 4.
pub(crate) const RATIO_MAX: u64 = 1 << 15;
/// Most bytes of memory for decompressing an LZMA chunk; ROOT's strongest setting needs 65 MiB.
const LZMA_MEMORY_MAX: u64 = 256 << 20;

/// The algorithm and level that pages are compressed with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Compression {
    /// No compression.
    #[default]
    None,
    /// LZ4: fast to read; levels 1 to 3 are also fast to write, levels 4 to 12 compress better.
    Lz4 {
        /// 1 to 12.
        level: u8,
    },
    /// Zstandard.
    Zstd {
        /// The library's own level, 1 to 22; ROOT's level `n` is `2 n`.
        level: u8,
    },
}

impl Compression {
    /// The nearest of ROOT's compression settings: 100 times the algorithm plus the level, 1 to 9.
    pub fn settings(self) -> u32 {
        match self {
            Compression::None => 0,
            Compression::Lz4 { level } => 400 + u32::from(level.clamp(1, 9)),
            Compression::Zstd { level } => 500 + u32::from(level.div_ceil(2).clamp(1, 9)),
        }
    }
}

/// Appends the framed, compressed `input` to `out` and returns true. If that would not be smaller, it
/// leaves `out` unchanged and returns false: the caller stores `input` itself.
pub fn compress(input: &[u8], compression: Compression, out: &mut Vec<u8>) -> Result<bool> {
    let whole = Planes { bytes: input.len(), have_noise: false };
    compress_planes(input, whole, compression, out)
}

/// Byte planes, one after the other.
// A codec that compresses nothing reads none of the fields.
#[cfg_attr(target_family = "wasm", allow(dead_code))]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Planes {
    /// Bytes of each.
    pub bytes: usize,
    /// Whether the numbers were measured: then short repetitions within planes are chance.
    pub have_noise: bool,
}

/// Like [`compress`], for input that is byte planes. Zstandard codes each of them by itself: the noise of low bits is
/// then copied, and does not spoil the code of high bits. Short repetitions that are due to chance are left out: a
/// reference to one takes about as many bytes, and much more time to follow.
pub(crate) fn compress_planes(
    input: &[u8],
    planes: Planes,
    compression: Compression,
    out: &mut Vec<u8>,
) -> Result<bool> {
    if compression == Compression::None || input.len() <= HEADER {
        return Ok(false);
    }
    let start = out.len();
    out.resize(start + input.len() - 1, 0);
    match compress_into(input, planes, compression, &mut out[start..]) {
        Some(size) => out.truncate(start + size),
        None => out.truncate(start),
    }
    Ok(out.len() > start)
}

/// Compresses into a buffer and returns the size; `None` if the result does not fit.
fn compress_into(
    input: &[u8],
    planes: Planes,
    compression: Compression,
    out: &mut [u8],
) -> Option<usize> {
    let mut written = 0;
    for chunk in input.chunks(CHUNK_MAX) {
        let (header, payload) = out.get_mut(written..)?.split_first_chunk_mut::<HEADER>()?;
        let room = payload.len().min(CHUNK_MAX);
        let (magic, size) = compress_chunk(chunk, planes, compression, &mut payload[..room])?;
        header[..3].copy_from_slice(&magic);
        header[3..6].copy_from_slice(&(size as u32).to_le_bytes()[..3]);
        header[6..9].copy_from_slice(&(chunk.len() as u32).to_le_bytes()[..3]);
        written += HEADER + size;
    }
    Some(written)
}

fn compress_chunk(
    chunk: &[u8],
    planes: Planes,
    compression: Compression,
    out: &mut [u8],
) -> Option<([u8; 3], usize)> {
    match compression {
        Compression::None => None,
        Compression::Lz4 { level } => Some((*b"L4\x01", compress_lz4(chunk, level, out)?)),
        Compression::Zstd { level } => {
            Some((*b"ZS\x01", codecs::compress_zstd(chunk, planes, level, out)?))
        }
    }
}

fn compress_lz4(chunk: &[u8], level: u8, out: &mut [u8]) -> Option<usize> {
    let (checksum, payload) = out.split_first_chunk_mut::<LZ4_CHECKSUM>()?;
    let size = codecs::compress_lz4(chunk, level, payload)?;
    *checksum = lz4_checksum(&payload[..size]);
    Some(LZ4_CHECKSUM + size)
}

/// Reverses [`compress`] into `out`, which has exactly the uncompressed size. Input of that size is not
/// compressed and is copied.
pub fn decompress(input: &[u8], out: &mut [u8]) -> Result<()> {
    decompress_chunks(input, out, false)
}

/// Like [`decompress`], for input whose checksum was verified: the checksums of its LZ4 chunks are not checked again.
pub(crate) fn decompress_verified(input: &[u8], out: &mut [u8]) -> Result<()> {
    decompress_chunks(input, out, true)
}

fn decompress_chunks(input: &[u8], out: &mut [u8], is_verified: bool) -> Result<()> {
    if input.len() == out.len() {
        out.copy_from_slice(input);
        return Ok(());
    }
    let (mut input, mut out) = (input, out);
    while !input.is_empty() {
        let chunk = CompressedChunk::parse(&mut input)?;
        if chunk.size > out.len() {
            return Err(corrupt(format!("{} bytes too many", chunk.size - out.len())));
        }
        let (into, rest) = out.split_at_mut(chunk.size);
        chunk.decompress(into, is_verified)?;
        out = rest;
    }
    match out.len() {
        0 => Ok(()),
        missing => Err(corrupt(format!("{missing} bytes too few"))),
    }
}

/// An upper bound on the uncompressed size of `stored` bytes, so that a caller can refuse a greater size
/// in a damaged file before it allocates memory.
pub fn uncompressed_size_max(stored: u64) -> u64 {
    let chunks = (stored / HEADER as u64).saturating_mul(CHUNK_MAX as u64);
    chunks.min(stored.saturating_mul(RATIO_MAX)).max(stored)
}

/// One framed chunk.
struct CompressedChunk<'a> {
    algorithm: [u8; 2],
    payload: &'a [u8],
    /// Uncompressed bytes.
    size: usize,
}

impl<'a> CompressedChunk<'a> {
    /// Takes the next chunk off `input`.
    fn parse(input: &mut &'a [u8]) -> Result<Self> {
        let Some((header, rest)) = input.split_first_chunk::<HEADER>() else {
            return Err(corrupt(format!("a chunk of {} bytes has no header", input.len())));
        };
        let [first, second, _version, stored @ .., size0, size1, size2] = *header;
        let length = u32::from_le_bytes([stored[0], stored[1], stored[2], 0]) as usize;
        let size = u32::from_le_bytes([size0, size1, size2, 0]) as usize;
        let Some((payload, rest)) = rest.split_at_checked(length) else {
            return Err(corrupt(format!("a chunk claims {length} of {} bytes", rest.len())));
        };
        *input = rest;
        Ok(CompressedChunk { algorithm: [first, second], payload, size })
    }

    fn decompress(&self, out: &mut [u8], is_verified: bool) -> Result<()> {
        let size = match &self.algorithm {
            b"ZS" => codecs::decompress_zstd(self.payload, out)?,
            b"L4" => decompress_lz4(self.payload, out, is_verified)?,
            b"ZL" => decompress_zlib(self.payload, out)?,
            b"XZ" => codecs::decompress_lzma(self.payload, out)?,
            b"CS" => return Err(Error::unsupported("compression algorithm \"CS\"")),
            other => return Err(corrupt(format!("unknown algorithm {:?}", other.escape_ascii()))),
        };
        if size == out.len() {
            return Ok(());
        }
        Err(corrupt(format!("a chunk holds {size} bytes and claims {}", out.len())))
    }
}

fn decompress_lz4(payload: &[u8], out: &mut [u8], is_verified: bool) -> Result<usize> {
    let Some((checksum, payload)) = payload.split_first_chunk::<LZ4_CHECKSUM>() else {
        return Err(corrupt("an LZ4 chunk has no checksum"));
    };
    if !is_verified && *checksum != lz4_checksum(payload) {
        return Err(corrupt("the checksum of an LZ4 chunk does not match"));
    }
    codecs::decompress_lz4(payload, out)
}

fn lz4_checksum(payload: &[u8]) -> [u8; LZ4_CHECKSUM] {
    twox_hash::XxHash64::oneshot(0, payload).to_be_bytes()
}

fn decompress_zlib(payload: &[u8], out: &mut [u8]) -> Result<usize> {
    use flate2::{Decompress, FlushDecompress, Status};
    thread_local! {
        static CONTEXT: RefCell<Decompress> = RefCell::new(Decompress::new(true));
    }
    CONTEXT.with_borrow_mut(|context| {
        context.reset(true);
        match context.decompress(payload, out, FlushDecompress::Finish).map_err(corrupt)? {
            Status::StreamEnd => Ok(context.total_out() as usize),
            _ => Err(corrupt("a zlib chunk does not end where it claims")),
        }
    })
}

fn corrupt(reason: impl ToString) -> Error {
    Error::corrupt("compressed bytes", 0, reason.to_string())
}

#[cfg(test)]
mod tests;
