//! Codecs by the C libraries of their authors.

use std::cell::RefCell;

use super::{LZMA_MEMORY_MAX, corrupt};
use crate::error::Result;

/// Compresses a block; `None` if the result does not fit.
pub(super) fn compress_lz4(chunk: &[u8], level: u8, out: &mut [u8]) -> Option<usize> {
    use lz4::block::{CompressionMode, compress_to_buffer};
    let mode = match level {
        0..=3 => CompressionMode::DEFAULT,
        level => CompressionMode::HIGHCOMPRESSION(i32::from(level)),
    };
    // It fails only if the result does not fit.
    compress_to_buffer(chunk, Some(mode), false, out).ok()
}

/// Compresses a frame; `None` if the result does not fit.
pub(super) fn compress_zstd(chunk: &[u8], level: u8, out: &mut [u8]) -> Option<usize> {
    thread_local! {
        static CONTEXT: RefCell<Option<(u8, zstd::bulk::Compressor<'static>)>> =
            const { RefCell::new(None) };
    }
    CONTEXT.with_borrow_mut(|context| {
        if !matches!(context, Some((current, _)) if *current == level) {
            *context = Some((level, zstd::bulk::Compressor::new(i32::from(level)).ok()?));
        }
        // It fails only if the result does not fit.
        context.as_mut()?.1.compress_to_buffer(chunk, out).ok()
    })
}

pub(super) fn decompress_zstd(payload: &[u8], out: &mut [u8]) -> Result<usize> {
    thread_local! {
        static CONTEXT: RefCell<Option<zstd::bulk::Decompressor<'static>>> =
            const { RefCell::new(None) };
    }
    CONTEXT.with_borrow_mut(|context| {
        if context.is_none() {
            *context = Some(zstd::bulk::Decompressor::new().map_err(corrupt)?);
        }
        match context {
            Some(context) => context.decompress_to_buffer(payload, out).map_err(corrupt),
            None => Ok(0),
        }
    })
}

pub(super) fn decompress_lz4(payload: &[u8], out: &mut [u8]) -> Result<usize> {
    let size = i32::try_from(out.len()).map_err(corrupt)?;
    lz4::block::decompress_to_buffer(payload, Some(size), out).map_err(corrupt)
}

pub(super) fn decompress_lzma(payload: &[u8], out: &mut [u8]) -> Result<usize> {
    use liblzma::stream::{Action, Status, Stream};
    let mut stream = Stream::new_stream_decoder(LZMA_MEMORY_MAX, 0).map_err(corrupt)?;
    match stream.process(payload, out, Action::Finish).map_err(corrupt)? {
        Status::StreamEnd => Ok(stream.total_out() as usize),
        _ => Err(corrupt("an LZMA chunk does not end where it claims")),
    }
}
