//! Codecs in Rust alone. They only decompress; a caller that compresses stores its input as it is.

use std::cell::RefCell;
use std::io::Read;

use lzma_rust2::XzReader;
use ruzstd::decoding::FrameDecoder;

use super::{LZMA_MEMORY_MAX, Planes, corrupt};
use crate::error::Result;

/// Compresses nothing.
pub(super) fn compress_lz4(_chunk: &[u8], _level: u8, _out: &mut [u8]) -> Option<usize> {
    None
}

/// Compresses nothing.
pub(super) fn compress_zstd(
    _chunk: &[u8],
    _planes: Planes,
    _level: u8,
    _out: &mut [u8],
) -> Option<usize> {
    None
}

pub(super) fn decompress_zstd(payload: &[u8], out: &mut [u8]) -> Result<usize> {
    thread_local! {
        static CONTEXT: RefCell<FrameDecoder> = RefCell::new(FrameDecoder::new());
    }
    CONTEXT.with_borrow_mut(|context| context.decode_all(payload, out).map_err(corrupt))
}

pub(super) fn decompress_lz4(payload: &[u8], out: &mut [u8]) -> Result<usize> {
    lz4_flex::block::decompress_into(payload, out).map_err(corrupt)
}

pub(super) fn decompress_lzma(payload: &[u8], out: &mut [u8]) -> Result<usize> {
    let memory_max_kib = (LZMA_MEMORY_MAX >> 10) as u32;
    let mut reader = XzReader::new_mem_limit(payload, false, memory_max_kib);
    let mut size = 0;
    while size < out.len() {
        match reader.read(&mut out[size..]).map_err(corrupt)? {
            0 => return Ok(size),
            read => size += read,
        }
    }
    match reader.read(&mut [0]).map_err(corrupt)? {
        0 => Ok(size),
        _ => Err(corrupt("an LZMA chunk does not end where it claims")),
    }
}
