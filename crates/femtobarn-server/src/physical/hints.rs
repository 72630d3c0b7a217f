//! [`Hints`]: opaque information of a request that helps to serve it, but changes no byte of an answer.
//!
//! | key | hint | used by |
//! |---|---|---|
//! | `fb.access=sequential`, `fb.access=random` | how the file will be read | caches, folders, simulated disks |
//! | `fb.size=BYTES`, or `oss.asize=BYTES` of XRootD's clients | the size of a new file | folders |
//! | `fb.priority=3` | from 0 to 3: the priority among the files that opens wait for | federations with stores |
//! | `fb.deadline=SECONDS` | when a file is needed; numbers from 10^9 on are times since 1970 | federations with stores |
//!
//! 1. Only a storage that uses a hint parses it; the others pass the opaque information on unchanged.
//! 2. No client is refused for a hint: an invalid value is ignored, and a number that is too large counts as the
//!    largest one.

use std::time::{Duration, UNIX_EPOCH};

use femtobarn_archive::Deadline;

use super::Opaque;

/// Numbers of seconds from this one on are times since 1970, since no client waits that long.
const SECONDS_OF_A_TIME: u64 = 1_000_000_000;

/// Hints of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hints {
    /// The announced order of reads.
    pub order: ReadOrder,
    /// Bytes that a new file will have.
    pub size: Option<u64>,
    /// The priority of bringing the file back from a store.
    pub priority: u8,
    /// When a file is to be back from a store.
    pub deadline: Option<Deadline>,
}

/// The order of reads that a client announces.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReadOrder {
    /// The client has announced none.
    #[default]
    Unknown,
    /// From the beginning to the end, or long parts in order.
    Sequential,
    /// Here and there.
    Random,
}

impl Hints {
    /// Parses the hints in opaque information.
    pub fn of(opaque: Opaque<'_>) -> Self {
        let number = |key| opaque.value_of(key).and_then(number);
        Hints {
            order: match opaque.value_of("fb.access") {
                Some(b"sequential") => ReadOrder::Sequential,
                Some(b"random") => ReadOrder::Random,
                _ => ReadOrder::Unknown,
            },
            size: number("fb.size").or_else(|| number("oss.asize")),
            priority: number("fb.priority").map_or(0, |priority| priority.min(3) as u8),
            deadline: number("fb.deadline").and_then(deadline),
        }
    }
}

/// A decimal number.
fn number(text: &[u8]) -> Option<u64> {
    let is_number = !text.is_empty() && text.iter().all(u8::is_ascii_digit);
    let digits = str::from_utf8(text).ok().filter(|_| is_number)?;
    Some(digits.parse().unwrap_or(u64::MAX))
}

/// `None` if the sum overflows.
fn deadline(seconds: u64) -> Option<Deadline> {
    let time = Duration::from_secs(seconds);
    if seconds < SECONDS_OF_A_TIME {
        return Some(Deadline::Within(time));
    }
    UNIX_EPOCH.checked_add(time).map(Deadline::At)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hints(text: &str) -> Hints {
        Hints::of(Opaque(text.as_bytes()))
    }

    #[test]
    fn hints_are_found_among_other_keys() {
        let found = hints("&fb.csn=4&x&fb.access=random&oss.asize=12&fb.priority=2&fb.deadline=90");
        let deadline = Some(Deadline::Within(Duration::from_secs(90)));
        assert_eq!(
            found,
            Hints { order: ReadOrder::Random, size: Some(12), priority: 2, deadline }
        );
        assert_eq!(hints("fb.access=sequential").order, ReadOrder::Sequential);
        assert_eq!(hints("oss.asize=1&fb.size=2").size, Some(2), "it was meant for this server");
        let at = UNIX_EPOCH + Duration::from_secs(1_800_000_000);
        assert_eq!(hints("fb.deadline=1800000000").deadline, Some(Deadline::At(at)));
    }

    #[test]
    fn whatever_a_client_sends_is_valid() {
        for text in ["", "fb.access&fb.size&fb.priority&fb.deadline", "fb.access=Random&fb.size=-1"]
        {
            assert_eq!(hints(text), Hints::default(), "{text}");
        }
        for value in ["=", "+1", "1e9", "0x10", " 1", "\u{663}"] {
            let text = format!("fb.size={value}&fb.priority={value}&fb.deadline={value}");
            assert_eq!(hints(&text), Hints::default(), "{text}");
        }
        let largest = "9".repeat(40);
        let found =
            hints(&format!("fb.size={largest}&fb.priority={largest}&fb.deadline={largest}"));
        assert_eq!(found, Hints { size: Some(u64::MAX), priority: 3, ..Hints::default() });
        assert_eq!(Hints::of(Opaque(b"fb.size=\xff&fb.access=\xff")), Hints::default());
    }
}
