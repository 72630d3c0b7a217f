//! The physical limit of reading: a plain file of the same bytes, with or without the page cache.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use femtobarn_bench::{Outcome, Stopwatch};

use crate::scan::{Error, Seen};

/// Bytes read at a time.
const PIECE_BYTES: usize = 1 << 20;
/// Reads that bypass the page cache need memory at multiples of this.
const ALIGNMENT: usize = 4096;

/// Reads a file in order, and adds up its words; `entries` is the number of entries that it holds.
pub(crate) fn read(file: &Path, way: &str, entries: u64) -> Outcome {
    let flags = match way {
        "cached" => 0,
        "direct" => nix::libc::O_DIRECT,
        other => return Err(format!("no way of reading {other}").into()),
    };
    let file = OpenOptions::new().read(true).custom_flags(flags).open(file)?;
    let mut memory = vec![0; PIECE_BYTES + ALIGNMENT];
    let start = memory.as_ptr().align_offset(ALIGNMENT);
    let piece = &mut memory[start..start + PIECE_BYTES];
    all_of(&file, piece)?;
    let watch = Stopwatch::start();
    let seen = all_of(&file, piece)?;
    watch.report(entries, seen.bytes, seen.check.into());
    Ok(())
}

fn all_of(file: &File, piece: &mut [u8]) -> Result<Seen, Error> {
    let mut seen = Seen::default();
    loop {
        match file.read_at(piece, seen.bytes)? {
            0 => return Ok(seen),
            read => seen.add(&piece[..read]),
        }
    }
}
