//! The ROOT file, a chain of keys: `header`, `key` and `streamer_info` are its records, `read` finds
//! objects, `write` makes and seals files, `basket` reads numbers of trees for their import.
//!
//! 1. A file is a header of 100 bytes, then keys (header and payload) up to its end. A gap between keys
//!    is marked as a key of negative size. The first key holds the record of the root directory.
//! 2. Readers find objects in the root directory's list of keys. Pages and envelopes are in keys of
//!    class `RBlob`, which no list contains: locators refer to them.
//! 3. All integers are big-endian. Keys and records are read in the small and the large (64-bit) format
//!    and written in the large format alone, so their sizes do not depend on the length of the file.
//! 4. The front of a file has a fixed size ([`FileIdentity::front`]), so [`seal`] can overwrite it.
//!
//! The module writes no objects but anchors, describes no class but theirs, and never reuses free space.
//! Sources: the documentation of ROOT's file format ("ROOT I/O", `TFile`, `TKey`, `TDirectory`), files of ROOT.

mod basket;
mod header;
mod key;
mod read;
mod streamer_info;
mod write;

pub use basket::{Branch, BranchNumbers};
pub use header::{DirectoryRecord, FileHeader};
pub use key::{KEY_SIZE_MAX, KeyHeader, RBLOB_KEY_LENGTH, decode_key_header, encode_key};
pub use key::{gap_header, rblob_key_header};
pub use read::{KeyChain, KeyInfo, anchors, list_keys, read_blob, read_payload};
pub use write::{FileIdentity, FileWriter, Sealed, Sealing, seal};

/// Position of the first key.
pub const FIRST_KEY: u64 = 100;
/// Bytes of the shortest front, that of a file without a name.
pub const FRONT_SIZE_MIN: u64 = 204;

/// A time in seconds as ROOT files store it: the fields of a calendar date and time, packed in 32 bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Timestamp(pub u32);

impl Timestamp {
    /// The calendar date and time (UTC) of a Unix time. ROOT's calendar starts in 1995 and ends in
    /// 2058; times outside become its first or last second.
    pub fn from_unix(seconds: i64) -> Self {
        /// The first and last second of ROOT's calendar as Unix times.
        const RANGE: (i64, i64) = (788_918_400, 2_808_604_799);
        let seconds = seconds.clamp(RANGE.0, RANGE.1);
        let (year, month, day) = date_from_days(seconds.div_euclid(86_400));
        let second_of_day = seconds.rem_euclid(86_400);
        let (hour, minute, second) =
            (second_of_day / 3600, second_of_day / 60 % 60, second_of_day % 60);
        let fields = (year - 1995) << 26 | month << 22 | day << 17;
        Timestamp((fields | hour << 12 | minute << 6 | second) as u32)
    }
}

/// Year, month and day in the Gregorian calendar of a number of days since 1970. It counts in eras of
/// 400 years, with years that start in March, so that the leap day is the last day of a year.
fn date_from_days(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let era = days.div_euclid(146_097);
    let day_of_era = days.rem_euclid(146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = era * 400 + year_of_era + i64::from(month <= 2);
    (year, month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timestamps_are_calendar_fields() {
        let fields = |t: Timestamp| {
            let t = t.0;
            (1995 + (t >> 26), t >> 22 & 15, t >> 17 & 31, t >> 12 & 31, t >> 6 & 63, t & 63)
        };
        assert_eq!(fields(Timestamp::from_unix(951_827_696)), (2000, 2, 29, 12, 34, 56));
        assert_eq!(fields(Timestamp::from_unix(1_735_689_599)), (2024, 12, 31, 23, 59, 59));
        assert_eq!(fields(Timestamp::from_unix(0)), (1995, 1, 1, 0, 0, 0));
        assert_eq!(fields(Timestamp::from_unix(i64::MAX)), (2058, 12, 31, 23, 59, 59));
    }
}
