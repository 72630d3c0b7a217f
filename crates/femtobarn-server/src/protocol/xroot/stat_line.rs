//! Metadata of a file as XRootD's stat lines and flags.

use std::time::{SystemTime, UNIX_EPOCH};

use xrd::flags::{Mode, StatFlags};
use xrd::response::{StatExtension, StatLine};

use crate::physical::{FileKind, Metadata};

/// The stat line of a file.
pub(super) fn stat_line(metadata: &Metadata) -> StatLine {
    StatLine {
        id: metadata.id.cast_signed(),
        size: metadata.size,
        flags: stat_flags(metadata),
        modified: seconds(metadata.modified),
        extension: Some(StatExtension {
            changed: seconds(metadata.changed),
            accessed: seconds(metadata.accessed),
            mode: Mode((metadata.mode & 0o7777) as u16),
            owner: word(&metadata.owner),
            group: word(&metadata.group),
        }),
    }
}

/// A name without separators of the stat line; `*` if it is empty.
fn word(name: &str) -> String {
    match name {
        "" => "*".to_owned(),
        name => name.replace([' ', '\n', '\0'], "_"),
    }
}

/// The flags of a statx answer: the kind of the file, and whether it is offline.
pub(super) fn kind_flag(metadata: &Metadata) -> StatFlags {
    match metadata.kind {
        _ if !metadata.is_online => StatFlags::OFFLINE,
        FileKind::Folder => StatFlags::DIRECTORY,
        FileKind::File | FileKind::Other => StatFlags::default(),
    }
}

fn stat_flags(metadata: &Metadata) -> StatFlags {
    let flags = [
        (metadata.mode & 0o111 != 0, StatFlags::EXECUTABLE),
        (metadata.kind == FileKind::Folder, StatFlags::DIRECTORY),
        (metadata.kind == FileKind::Other, StatFlags::OTHER),
        (!metadata.is_online, StatFlags::OFFLINE),
        (metadata.is_backed_up, StatFlags::BACKED_UP),
        (metadata.is_readable, StatFlags::READABLE),
        (metadata.is_writable, StatFlags::WRITABLE),
    ];
    let set = flags.into_iter().filter(|(is_set, _)| *is_set);
    set.fold(StatFlags::default(), |all, (_, flag)| all | flag)
}

/// Seconds since 1970, negative before.
pub(super) fn seconds(time: SystemTime) -> i64 {
    match time.duration_since(UNIX_EPOCH) {
        Ok(since) => i64::try_from(since.as_secs()).unwrap_or(i64::MAX),
        Err(before) => i64::try_from(before.duration().as_secs()).map_or(i64::MIN, |time| -time),
    }
}
