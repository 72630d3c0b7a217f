//! Major and minor numbers of IOVs, moments of a series' clock, and times as text.

use femtobarn::{Result, SeriesClock};

use super::answers::invalid;

/// The number that stands for no end.
pub(super) const ENDLESS: i64 = i64::MAX;
const RUN_MAX: i64 = i32::MAX as i64;
const BLOCK_MAX: i64 = u32::MAX as i64;
const BLOCK_BITS: u32 = 32;

/// The major and the minor number of the beginning or the end of an IOV.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct IovMoment {
    pub major: i64,
    pub minor: i64,
}

impl IovMoment {
    /// The moment to look up; `None` if the clock has no such moment. On a clock of times the major number counts
    /// nanoseconds.
    pub(super) fn looked_up(self, clock: SeriesClock) -> Option<i64> {
        match clock {
            SeriesClock::Time => Some(self.major),
            SeriesClock::Run => {
                let is_on_clock = (0..=RUN_MAX).contains(&self.major) && self.minor >= 0;
                is_on_clock.then(|| self.major << BLOCK_BITS | self.minor.min(BLOCK_MAX))
            }
        }
    }

    /// The first moment of a validity.
    ///
    /// # Errors
    /// `Invalid` if the clock has no such moment.
    pub(super) fn since(self, clock: SeriesClock) -> Result<i64> {
        let IovMoment { major, minor } = self;
        match clock {
            SeriesClock::Time if minor == 0 => Ok(major),
            SeriesClock::Run
                if (0..=RUN_MAX).contains(&major) && (0..=BLOCK_MAX).contains(&minor) =>
            {
                Ok(major << BLOCK_BITS | minor)
            }
            SeriesClock::Time => Err(invalid(format!(
                "minor number {minor}: the series has a clock of times, on which the major number counts nanoseconds and \
                 the minor one is 0"
            ))),
            SeriesClock::Run => Err(invalid(format!(
                "({major}, {minor}) is not a run and luminosity block: the major number is 0 to {RUN_MAX}, the minor \
                 one 0 to {BLOCK_MAX}"
            ))),
        }
    }

    /// The first moment after a validity.
    ///
    /// # Errors
    /// The errors of [`since`](Self::since).
    pub(super) fn until(self, clock: SeriesClock) -> Result<i64> {
        match self {
            IovMoment { major: ENDLESS, .. } => Ok(ENDLESS),
            IovMoment { major, minor: ENDLESS } if clock == SeriesClock::Run => {
                if major == RUN_MAX {
                    Ok(ENDLESS)
                } else {
                    Self { major: major + 1, minor: 0 }.since(clock)
                }
            }
            IovMoment { major, minor: ENDLESS } => Ok(major),
            other => other.since(clock),
        }
    }

    /// The numbers of a moment.
    pub(super) fn of(moment: i64, clock: SeriesClock) -> Self {
        match clock {
            _ if moment == ENDLESS => IovMoment { major: ENDLESS, minor: ENDLESS },
            SeriesClock::Time => IovMoment { major: moment, minor: 0 },
            SeriesClock::Run => {
                let moment = moment.max(0);
                IovMoment { major: moment >> BLOCK_BITS, minor: moment & BLOCK_MAX }
            }
        }
    }

    /// Both numbers as one decimal text.
    pub(super) fn combined(self) -> String {
        format!("{}.{:019}", self.major, self.minor)
    }
}

/// A time in microseconds since 1970 as ISO 8601 text without a zone, which is UTC.
pub(super) fn time_text(time_us: i64) -> String {
    let (seconds, micros) = (time_us.div_euclid(1_000_000), time_us.rem_euclid(1_000_000));
    let (days, of_day) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    // Eras of 400 years, in which every year begins in March.
    let day = days + 719_468;
    let (era, of_era) = (day.div_euclid(146_097), day.rem_euclid(146_097));
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let (date, month) =
        (of_year - (153 * month + 2) / 5 + 1, month % 12 + if month < 10 { 3 } else { -9 });
    let year = year + era * 400 + i64::from(month <= 2);
    let (hour, minute, second) = (of_day / 3600, of_day / 60 % 60, of_day % 60);
    format!("{year:04}-{month:02}-{date:02}T{hour:02}:{minute:02}:{second:02}.{micros:06}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(major: i64, minor: i64) -> IovMoment {
        IovMoment { major, minor }
    }

    #[test]
    fn runs_and_blocks_are_packed_as_the_clock_packs_them() {
        let run = SeriesClock::Run;
        for (pair, moment) in [((0, 0), 0), ((7, 3), 7 << 32 | 3), ((RUN_MAX, BLOCK_MAX), i64::MAX)]
        {
            assert_eq!(numbers(pair.0, pair.1).since(run).unwrap(), moment);
        }
        assert_eq!(IovMoment::of(7 << 32 | 3, run), numbers(7, 3));
        assert_eq!(IovMoment::of(i64::MAX, run), numbers(ENDLESS, ENDLESS));
        for pair in [(-1, 0), (0, -1), (RUN_MAX + 1, 0), (0, BLOCK_MAX + 1)] {
            assert!(numbers(pair.0, pair.1).since(run).is_err(), "{pair:?}");
        }
        assert_eq!(numbers(7, ENDLESS).until(run).unwrap(), 8 << 32);
        assert_eq!(numbers(ENDLESS, 0).until(run).unwrap(), ENDLESS);
        assert_eq!(numbers(RUN_MAX, ENDLESS).until(run).unwrap(), ENDLESS);
        assert_eq!(numbers(7, ENDLESS).looked_up(run), Some(7 << 32 | BLOCK_MAX));
        assert_eq!(numbers(RUN_MAX + 1, 0).looked_up(run), None);
        assert_eq!(numbers(7, 3).combined(), "7.0000000000000000003");
    }

    #[test]
    fn times_are_iso_8601() {
        for (time_us, text) in [
            (0, "1970-01-01T00:00:00.000000"),
            (951_782_400_000_001, "2000-02-29T00:00:00.000001"),
            (1_767_225_599_999_999, "2025-12-31T23:59:59.999999"),
            (-1, "1969-12-31T23:59:59.999999"),
        ] {
            assert_eq!(time_text(time_us), text);
        }
    }
}
