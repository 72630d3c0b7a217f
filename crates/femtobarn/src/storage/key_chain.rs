//! The chain of keys of a database file, and its repair.
//!
//! ROOT walks a file from key to key. A writer that is killed between lengthening the file and writing its key
//! leaves a gap. After a loss of power, a key may claim more than its writer ever got, and hide what other
//! writers appended later; so may a key of which a killed sealer wrote only the beginning. In an open database,
//! only the front and the keys of extents are in use.
//!
//! 1. A key is accepted only at the offset that it names. The end that it claims is accepted only if a key, a
//!    marked gap or the end of the file is there.
//! 2. Committed bytes lie in the payload of the key that their writer wrote before them, and before the next
//!    key, which was appended when the file ended there. So shortening a claim to the next key, and marking the
//!    bytes between a claim's end and the next key as a gap, touch none of them.

use std::ops::Range;

use rntuple::ByteSource;
use rntuple::tfile::{
    FIRST_KEY, KeyHeader, RBLOB_KEY_LENGTH, decode_key_header, gap_header, rblob_key_header,
};

use crate::error::{Error, Result};
use crate::inventory::Ranges;
use crate::storage::file::{self, DatabaseFile};

/// The class of the keys of extents.
const EXTENT_CLASS: &str = "RBlob";
/// Bytes searched at a time for the next key behind a gap.
const SEARCH_BYTES: u64 = 1 << 20;
/// The longest header of a key in a database file, whose names have at most 255 bytes.
const HEADER_BYTES_MAX: u64 = 1 << 10;

/// The item at the end of a key or a gap.
enum Next {
    Key(KeyHeader),
    Gap(Range<u64>),
    End,
    Nothing,
}

/// Makes the keys and gaps of a file follow each other from its front to its end, and returns the gaps. No
/// process may extend the file meanwhile.
///
/// # Errors
/// [`Error::Corrupt`] if the file does not start with a key, or a key cannot be shortened; [`Error::Io`] if the
/// file cannot be written.
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

/// Makes the keys of a file follow each other from its front to its end without giving up a byte: the bytes between
/// them become the payload of a key again. Unlike [`mend`], it repairs any damage to keys, not only the remains of a
/// killed writer. No process may extend the file meanwhile.
///
/// Returns how many keys were written; no byte of `live` is overwritten.
///
/// # Errors
/// [`Error::Corrupt`] if there is no room for a key; [`Error::Io`] if the file cannot be written.
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
                let end =
                    next_extent(file, search_start(&last, position).min(size))?.unwrap_or(size);
                let key = covering(&last, position, end, live).ok_or_else(|| Error::Corrupt {
                    what: format!("{}: no room for a key at byte {position}", file.path.display()),
                })?;
                write(key.start, key.end)?;
                written += 1;
                position = key.start;
            }
        }
    }
}

/// The start of a key that covers the bytes from `claimed`, where the key `last` claims to end, to `end`, where the
/// next key is; and `end` less the length of the header. If a header at `claimed` does not fit or would overwrite live
/// bytes, `last` itself is lengthened. `None` if neither is possible.
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

/// Where the front of a file ends: behind its first key.
///
/// # Errors
/// [`Error::Corrupt`] if the file does not start with a short key.
pub(crate) fn front_end(file: &DatabaseFile) -> Result<u64> {
    let end = key_at(file, FIRST_KEY)?.map(|key| end_of(&key));
    end.filter(|end| *end <= HEADER_BYTES_MAX).ok_or_else(|| Error::Corrupt {
        what: format!("{} does not start with the key of a ROOT file", file.path.display()),
    })
}

/// The state of a file's chain of keys.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Survey {
    /// Ranges that must not be overwritten: all bytes before the first extent, headers of keys, and marked gaps.
    pub headers: Vec<Range<u64>>,
    /// Ranges between the end of a key and the next key.
    pub faults: Vec<Range<u64>>,
    /// Number of extents' keys whose header has the wrong length.
    pub odd_headers: u64,
}

/// Examines the chain of keys without changing it. No process may extend the file meanwhile.
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
                let found = next_extent(file, search_start(&last, position).min(size))?;
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

/// Where the search for the next key starts, if nothing is at `claimed`, where `last` claims to end.
fn search_start(last: &KeyHeader, claimed: u64) -> u64 {
    if may_be_shortened(last, claimed) {
        last.position + u64::from(last.header_size)
    } else {
        claimed
    }
}

/// Whether the chain breaks at `claimed` because `last` claims to end there, and `last` is not the front of the
/// file.
fn may_be_shortened(last: &KeyHeader, claimed: u64) -> bool {
    last.position > FIRST_KEY && claimed == end_of(last)
}

fn has_odd_header(key: &KeyHeader) -> bool {
    key.class == EXTENT_CLASS && u64::from(key.header_size) != RBLOB_KEY_LENGTH as u64
}

fn end_of(key: &KeyHeader) -> u64 {
    key.position + key.size
}

/// Reads the item at `position`, where a key or a gap ends.
fn next(file: &DatabaseFile, position: u64) -> Result<Next> {
    if position == file.size()? {
        return Ok(Next::End);
    }
    if let Some(key) = key_at(file, position)? {
        return Ok(Next::Key(key));
    }
    let gap = decode_at(file, position)?.filter(|key| key.gap);
    let gap = gap.map(|key| position..position + key.size);
    match gap {
        Some(gap) if key_at(file, gap.end)?.is_some() => Ok(Next::Gap(gap)),
        _ => Ok(Next::Nothing),
    }
}

/// The key at a position, if one is there and names this position.
fn key_at(file: &DatabaseFile, position: u64) -> Result<Option<KeyHeader>> {
    let key = decode_at(file, position)?;
    Ok(key.filter(|key| !key.gap && key.position == position))
}

fn decode_at(file: &DatabaseFile, position: u64) -> Result<Option<KeyHeader>> {
    let left = file.size()?.saturating_sub(position);
    Ok(decode_key_header(&read(file, position, left.min(HEADER_BYTES_MAX))?).ok())
}

fn read(file: &DatabaseFile, position: u64, size: u64) -> Result<Vec<u8>> {
    let mut bytes = vec![0; size as usize];
    let read = ByteSource::read_at(file, position, &mut bytes);
    read.map_err(Error::storage(file.path.display().to_string()))?;
    Ok(bytes)
}

/// Repairs the chain behind the key `last`, which breaks at `claimed`. Returns where the next key is; `None` if `last`
/// is the last key of the file now.
fn mend_behind(
    file: &DatabaseFile,
    last: &KeyHeader,
    claimed: u64,
    gaps: &mut Vec<Range<u64>>,
) -> Result<Option<u64>> {
    let size = file.size()?;
    let found = next_extent(file, search_start(last, claimed).min(size))?;
    match found.unwrap_or(size) {
        end if end < claimed && last.class == EXTENT_CLASS => shorten(file, last, end)?,
        end if end < claimed && !may_be_shortened(last, claimed) => {
            return Err(too_long(file, last, end));
        }
        end => {
            // A key that a killed sealer began to write is removed with its bytes.
            let start = if end < claimed { last.position } else { claimed };
            if found.is_none() {
                file.cut(start)?;
            } else {
                let mark = gap_header(end - start).map_err(Error::storage("gap in the file"))?;
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

/// Shortens the key of an extent that claims to end beyond `end`.
fn shorten(file: &DatabaseFile, key: &KeyHeader, end: u64) -> Result<()> {
    let payload = end.checked_sub(key.position + RBLOB_KEY_LENGTH as u64);
    let payload = payload.ok_or_else(|| too_long(file, key, end))?;
    let header = rblob_key_header(key.position, payload, file::now());
    file.write(&header.map_err(Error::storage("key of an extent"))?, key.position)
}

/// The offset of the first key of an extent at or after `from`.
fn next_extent(file: &DatabaseFile, from: u64) -> Result<Option<u64>> {
    const NAME: &[u8] = b"\x05RBlob";
    /// Bytes of a key's header before the name of its class.
    const BEFORE_NAME: usize = 34;
    let end = file.size()?;
    let mut start = from;
    while start + RBLOB_KEY_LENGTH as u64 <= end {
        let bytes = read(file, start, SEARCH_BYTES.min(end - start))?;
        for at in memchr::memmem::find_iter(&bytes[BEFORE_NAME..], NAME) {
            let candidate = start + at as u64;
            if key_at(file, candidate)?.is_some() {
                return Ok(Some(candidate));
            }
        }
        // Searches overlap by a header, so that no key is missed at a border.
        start += (bytes.len() + 1 - RBLOB_KEY_LENGTH) as u64;
    }
    Ok(None)
}
