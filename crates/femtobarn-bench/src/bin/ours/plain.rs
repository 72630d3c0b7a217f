//! The physical limit of reading: a plain file of the same bytes, with or without the page cache, or the same bytes
//! at their offsets in the database.

use std::fs::{File, OpenOptions};
use std::ops::Range;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use femtobarn::Federation;
use femtobarn_bench::{Outcome, Stopwatch};
use rntuple::{EnvelopeKind, Locator, PageList, PageLocation, read_envelope};

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

/// Reads the pages of fields that have one column, piece by piece as the database file has them.
pub(crate) fn read_pages(folder: &Path, container: &str, names: &str) -> Outcome {
    let view = Federation::open(folder)?.snapshot(None)?.view(container)?;
    let database = container.split('/').next().unwrap_or_default();
    let file = File::open(folder.join("databases").join(format!("{database}.root")))?;
    let reader = view.reader();
    let column_of = |name: &str| {
        let field = reader.schema().fields.iter().position(|field| field.name == name);
        reader.schema().columns.iter().position(|column| Some(column.field as usize) == field)
    };
    let columns: Option<Vec<usize>> = names.split(',').map(column_of).collect();
    let columns = columns.ok_or("a field has no column")?;
    let mut ranges: Vec<Range<u64>> = vec![];
    for group in &reader.footer().cluster_groups {
        let envelope = read_envelope(&file, &group.page_list, EnvelopeKind::PageList, u64::MAX)?;
        for cluster in PageList::decode(&envelope)?.clusters {
            let pages = columns.iter().flat_map(|&column| &cluster.columns[column].pages);
            ranges.extend(pages.map(
                |PageLocation { locator: Locator { offset, size }, .. }| *offset..offset + size,
            ));
        }
    }
    let mut memory = vec![0; PIECE_BYTES];
    let mut all_of = || -> Result<Seen, Error> {
        let mut seen = Seen::default();
        for range in &ranges {
            let piece = &mut memory[..(range.end - range.start) as usize];
            file.read_exact_at(piece, range.start)?;
            seen.add(piece);
        }
        Ok(seen)
    };
    all_of()?;
    let watch = Stopwatch::start();
    let seen = all_of()?;
    watch.report(view.entries(), seen.bytes, seen.check.into());
    Ok(())
}
