//! Codecs by the C libraries of their authors.

use std::cell::RefCell;

use zstd::zstd_safe::zstd_sys::ZSTD_EndDirective;
use zstd::zstd_safe::{CCtx, CParameter, InBuffer, OutBuffer, ResetDirective};

use super::{LZMA_MEMORY_MAX, Planes, corrupt};
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

/// Least bytes of a plane that gets blocks of its own: the tables of a block's codes take some hundred bytes.
const PLANE_MIN: usize = 1 << 10;
/// Least bytes of a repetition that is looked for in noise, the greatest that the library takes; its levels look for
/// four to six.
const NOISE_MATCH_MIN: u32 = 7;

/// Compresses a frame, in blocks that end where planes end; `None` if the result does not fit.
pub(super) fn compress_zstd(
    chunk: &[u8],
    planes: Planes,
    level: u8,
    out: &mut [u8],
) -> Option<usize> {
    thread_local! {
        static CONTEXT: RefCell<CCtx<'static>> = RefCell::new(CCtx::create());
    }
    CONTEXT.with_borrow_mut(|context| {
        context.reset(ResetDirective::SessionOnly).ok()?;
        context.set_parameter(CParameter::CompressionLevel(level.into())).ok()?;
        let match_min = if planes.have_noise { NOISE_MATCH_MIN } else { 0 };
        context.set_parameter(CParameter::MinMatch(match_min)).ok()?;
        if planes.bytes < PLANE_MIN || planes.bytes >= chunk.len() {
            // It fails only if the result does not fit.
            return context.compress2(out, chunk).ok();
        }
        context.set_pledged_src_size(Some(chunk.len() as u64)).ok()?;
        let mut out = OutBuffer::around(out);
        let mut planes = chunk.chunks(planes.bytes).peekable();
        while let Some(plane) = planes.next() {
            let end = match planes.peek() {
                Some(_) => ZSTD_EndDirective::ZSTD_e_flush,
                None => ZSTD_EndDirective::ZSTD_e_end,
            };
            // The rest did not fit.
            let left =
                context.compress_stream2(&mut out, &mut InBuffer::around(plane), end).ok()?;
            if left > 0 {
                return None;
            }
        }
        Some(out.pos())
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
