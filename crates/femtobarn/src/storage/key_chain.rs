//! The chain of keys of a database file, and how it is mended.
//!
//! ROOT walks a file from key to key. A writer that is killed between lengthening the file and
//! writing its key leaves a hole; after a loss of power, a key may also claim more than its writer
//! ever got, and hide what others appended later. So may a key of which a killed sealer wrote only
//! the beginning: in a database that is open, no key but the front and those of extents is anybody's.
//!
//! Invariants:
//! 1. Every key says where it lies, and a key is believed only if that is where it was found. What
//!    it says about its end is believed only if a key, a marked hole or the end of the file is there.
//! 2. Committed bytes lie in the payload of the key that their writer wrote before, up to the next
//!    key at most: the next one was appended when the file ended there. So neither cutting a claim
//!    short at the next key, nor marking what is between a claim's end and the next key, touches
//!    any of them.

use std::ops::Range;

use rntuple::ByteSource;
use rntuple::tfile::{
    FIRST_KEY, KeyHeader, RBLOB_KEY_LENGTH, decode_key_header, gap_header, rblob_key_header,
};

use crate::error::{Error, Result};
use crate::inventory::Ranges;
use crate::storage::file::{self, DatabaseFile};

/// The class of the keys that extents are.
const EXTENT_CLASS: &str = "RBlob";
/// Bytes searched at a time for the next key behind a hole.
const SEARCH_BYTES: u64 = 1 << 20;
/// No header of a key in a database file is longer: names have at most 255 bytes.
const HEADER_BYTES_MAX: u64 = 1 << 10;

/// What follows a key.
enum Next {
    Key(KeyHeader),
    Gap(Range<u64>),
    End,
    Nothing,
}

/// Makes the keys of a file follow each other from its front to its end, and returns the holes
/// between them. Nobody may extend the file meanwhile.
pub(crate) fn mend(file: &DatabaseFile) -> Result<Vec<Range<u64>>> {
    let mut gaps = vec![];
    let first = key_at(file, FIRST_KEY)?.ok_or_else(|| Error::Corrupt {
        what: format!("{} does not start with the key of a ROOT file", file.path.display()),
    })?;
    let mut last = first;
    let mut position = end_of(&last);
    loop {
        match next(file, position)? {
            Next::Key(key) => {
                position = end_of(&key);
                last = key;
            }
            Next::Gap(range) => {
                position = range.end;
                gaps.push(range);
            }
            Next::End => return Ok(gaps),
            Next::Nothing => match mend_behind(file, &last, position, &mut gaps)? {
                Some(found) => position = found,
                None => return Ok(gaps),
            },
        }
    }
}

/// Makes the keys of a file follow each other from its front to its end without giving up a byte:
/// what lies between them becomes the payload of a key again. Unlike [`mend`], it holds whatever
/// happened to keys, not only what a killed writer leaves. Nobody may extend the file meanwhile.
///
/// Returns how many keys were written; no byte of `live` is written over.
///
/// # Errors
/// `Corrupt` if there is no place for a key; as the disk.
pub(crate) fn cover(file: &DatabaseFile, live: &Ranges) -> Result<u64> {
    let mut last = key_at(file, FIRST_KEY)?.ok_or_else(|| Error::Corrupt {
        what: format!("{} does not start with the key of a ROOT file", file.path.display()),
    })?;
    let mut position = end_of(&last);
    let mut written = 0;
    let write = |start: u64, end: u64| {
        let header = rblob_key_header(start, end.saturating_sub(start), file::now());
        file.write(&header.map_err(Error::storage("key of an extent"))?, start)
    };
    loop {
        match next(file, position)? {
            Next::Key(key) => {
                position = end_of(&key);
                if has_odd_header(&key) {
                    write(key.position, position.saturating_sub(RBLOB_KEY_LENGTH as u64))?;
                    written += 1;
                }
                last = key;
            }
            Next::Gap(range) => position = range.end,
            Next::End => return Ok(written),
            Next::Nothing => {
                let size = file.size()?;
                let end = next_extent(file, behind(&last, position).min(size))?.unwrap_or(size);
                let key = covering(&last, position, end, live).ok_or_else(|| Error::Corrupt {
                    what: format!("{}: no key can be at byte {position}", file.path.display()),
                })?;
                write(key.start, key.end)?;
                written += 1;
                position = key.start;
            }
        }
    }
}

/// Where a key can be and where its payload is to end, so that nothing is between `claimed`, where
/// the key `last` says that it ends, and `end`, where the next one is. Its size is without the header.
fn covering(last: &KeyHeader, claimed: u64, end: u64, live: &Ranges) -> Option<Range<u64>> {
    const HEADER: u64 = RBLOB_KEY_LENGTH as u64;
    let mut header: Ranges = std::iter::once(claimed..claimed.checked_add(HEADER)?).collect();
    header.remove_all(live);
    if claimed + HEADER <= end && header.total() == HEADER {
        return Some(claimed..end - HEADER);
    }
    let has_room = end >= last.position + HEADER;
    (may_be_shortened(last, claimed) && has_room).then(|| last.position..end - HEADER)
}

/// What the chain of keys of a file is like.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Survey {
    /// The headers of keys, which are nobody's to write over: those of extents, and with them the
    /// whole of what lies before the first extent.
    pub headers: Vec<Range<u64>>,
    /// Where a key ends and nothing follows, up to the next key.
    pub faults: Vec<Range<u64>>,
    /// Keys of extents whose headers do not have the length that they should have.
    pub odd_headers: u64,
}

/// Looks at the chain of keys and changes nothing. Nobody may extend the file meanwhile.
pub(crate) fn survey(file: &DatabaseFile) -> Result<Survey> {
    let mut survey = Survey::default();
    let size = file.size()?;
    let Some(first) = key_at(file, FIRST_KEY)? else {
        survey.faults.push(0..size);
        return Ok(survey);
    };
    let mut position = end_of(&first);
    let mut last = first;
    survey.headers.push(0..position.min(size));
    loop {
        match next(file, position)? {
            Next::Key(key) => {
                position = end_of(&key);
                survey.headers.push(key.position..key.position + u64::from(key.header_size));
                survey.odd_headers += u64::from(has_odd_header(&key));
                last = key;
            }
            Next::Gap(range) => {
                position = range.end;
                survey.headers.push(range);
            }
            Next::End => return Ok(survey),
            Next::Nothing => {
                let found = next_extent(file, behind(&last, position).min(size))?;
                let end = found.unwrap_or(size);
                survey.faults.push(position.min(end)..end.max(position));
                match found {
                    Some(found) => position = found,
                    None => return Ok(survey),
                }
            }
        }
    }
}

/// From where on the next key is looked for, if the chain ends at `claimed`, where `last` said.
fn behind(last: &KeyHeader, claimed: u64) -> u64 {
    if may_be_shortened(last, claimed) {
        last.position + u64::from(last.header_size)
    } else {
        claimed
    }
}

/// Whether the chain ends at `claimed` because `last` says so, which is not the front of the file.
fn may_be_shortened(last: &KeyHeader, claimed: u64) -> bool {
    last.position > FIRST_KEY && claimed == end_of(last)
}

fn has_odd_header(key: &KeyHeader) -> bool {
    key.class == EXTENT_CLASS && u64::from(key.header_size) != RBLOB_KEY_LENGTH as u64
}

fn end_of(key: &KeyHeader) -> u64 {
    key.position + key.size
}

/// What lies at `position`, where a key or a hole ends.
fn next(file: &DatabaseFile, position: u64) -> Result<Next> {
    if position == file.size()? {
        return Ok(Next::End);
    }
    if let Some(key) = key_at(file, position)? {
        return Ok(Next::Key(key));
    }
    let hole = decoded(file, position)?.filter(|key| key.gap);
    let hole = hole.map(|key| position..position + key.size);
    match hole {
        Some(hole) if key_at(file, hole.end)?.is_some() => Ok(Next::Gap(hole)),
        _ => Ok(Next::Nothing),
    }
}

/// The key at a position, if there is one and it says that it is there.
fn key_at(file: &DatabaseFile, position: u64) -> Result<Option<KeyHeader>> {
    let key = decoded(file, position)?;
    Ok(key.filter(|key| !key.gap && key.position == position))
}

fn decoded(file: &DatabaseFile, position: u64) -> Result<Option<KeyHeader>> {
    let left = file.size()?.saturating_sub(position);
    Ok(decode_key_header(&read(file, position, left.min(HEADER_BYTES_MAX))?).ok())
}

fn read(file: &DatabaseFile, position: u64, size: u64) -> Result<Vec<u8>> {
    let mut bytes = vec![0; size as usize];
    let read = ByteSource::read_at(file, position, &mut bytes);
    read.map_err(Error::storage(file.path.display().to_string()))?;
    Ok(bytes)
}

/// Mends what follows the key `last`, after which the chain goes on to `claimed` and not further.
/// Returns where the next key is; none if `last` is the last key of the file now.
fn mend_behind(
    file: &DatabaseFile,
    last: &KeyHeader,
    claimed: u64,
    gaps: &mut Vec<Range<u64>>,
) -> Result<Option<u64>> {
    let size = file.size()?;
    let found = next_extent(file, behind(last, claimed).min(size))?;
    match found.unwrap_or(size) {
        end if end < claimed && last.class == EXTENT_CLASS => shorten(file, last, end)?,
        end if end < claimed && !may_be_shortened(last, claimed) => {
            return Err(too_long(file, last, end));
        }
        end => {
            // What a killed sealer began to write is given up with its key.
            let start = if end < claimed { last.position } else { claimed };
            if found.is_none() {
                file.cut(start)?;
            } else {
                let mark = gap_header(end - start).map_err(Error::storage("hole in the file"))?;
                file.write(&mark, start)?;
                gaps.push(start..end);
            }
        }
    }
    Ok(found)
}

fn too_long(file: &DatabaseFile, key: &KeyHeader, end: u64) -> Error {
    let (path, position) = (file.path.display(), key.position);
    Error::Corrupt { what: format!("{path}: the key at byte {position} ends beyond byte {end}") }
}

/// Takes back what the key of an extent claims beyond `end`.
fn shorten(file: &DatabaseFile, key: &KeyHeader, end: u64) -> Result<()> {
    let payload = end.checked_sub(key.position + RBLOB_KEY_LENGTH as u64);
    let payload = payload.ok_or_else(|| too_long(file, key, end))?;
    let header = rblob_key_header(key.position, payload, file::now());
    file.write(&header.map_err(Error::storage("key of an extent"))?, key.position)
}

/// Where the next extent's key lies, at `from` or behind.
fn next_extent(file: &DatabaseFile, from: u64) -> Result<Option<u64>> {
    const NAME: &[u8] = b"\x05RBlob";
    /// Bytes of a key's header before the name of its class.
    const BEFORE_NAME: usize = 34;
    let end = file.size()?;
    let mut start = from;
    while start + RBLOB_KEY_LENGTH as u64 <= end {
        let bytes = read(file, start, SEARCH_BYTES.min(end - start))?;
        for (at, name) in bytes.windows(NAME.len()).enumerate().skip(BEFORE_NAME) {
            let candidate = start + (at - BEFORE_NAME) as u64;
            if name == NAME && key_at(file, candidate)?.is_some() {
                return Ok(Some(candidate));
            }
        }
        // Searches overlap by a header, so that none is missed between them.
        start += (bytes.len() + 1 - RBLOB_KEY_LENGTH) as u64;
    }
    Ok(None)
}
