//! How long files stay on the disk: durations of ISO 8601, such as `P1D` or `PT3600S`.

/// The lifetime in seconds of a file whose client states none.
pub(super) const USUAL_SECONDS: u64 = DAY;
/// The longest lifetime in seconds: a client that needs more asks again.
pub(super) const SECONDS_MAX: u64 = 365 * DAY;

const DAY: u64 = 24 * 3600;

/// The seconds of a duration of whole numbers, at most [`SECONDS_MAX`]; `None` if it is malformed. Years and months,
/// whose lengths vary, count as 365 and 30 days.
pub(super) fn seconds_of(text: &str) -> Option<u64> {
    let (date, time) = match text.strip_prefix('P')?.split_once('T') {
        Some((_, "")) => return None,
        Some(both) => both,
        None => (text.strip_prefix('P')?, ""),
    };
    let of_date = [('Y', 365 * DAY), ('M', 30 * DAY), ('W', 7 * DAY), ('D', DAY)];
    let of_time = [('H', 3600), ('M', 60), ('S', 1)];
    if date.is_empty() && time.is_empty() {
        return None;
    }
    let seconds = sum(date, &of_date)?.saturating_add(sum(time, &of_time)?);
    Some(seconds.min(SECONDS_MAX))
}

/// The sum of numbers with these letters after them, each at most once and in this order.
fn sum(mut text: &str, letters: &[(char, u64)]) -> Option<u64> {
    let (mut total, mut letters) = (0_u64, letters.iter());
    while !text.is_empty() {
        let digits = text.find(|letter: char| !letter.is_ascii_digit())?;
        let count: u64 = text[..digits].parse().ok()?;
        let letter = text[digits..].chars().next()?;
        let (_, seconds) = letters.find(|(known, _)| *known == letter)?;
        total = total.saturating_add(count.saturating_mul(*seconds));
        text = &text[digits + letter.len_utf8()..];
    }
    Some(total)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_and_others_refused() {
        for (text, seconds) in [
            ("P1D", DAY),
            ("PT3600S", 3600),
            ("P1DT2H3M4S", DAY + 7384),
            ("P2W", 14 * DAY),
            ("P1Y", 365 * DAY),
            ("P1M", 30 * DAY),
            ("PT1M", 60),
            ("PT0S", 0),
            ("P10000Y", SECONDS_MAX),
            ("PT18446744073709551615H", SECONDS_MAX),
        ] {
            assert_eq!(seconds_of(text), Some(seconds), "{text}");
        }
        for text in [
            "",
            "P",
            "PT",
            "1D",
            "P1",
            "PD",
            "P1H",
            "PT1D",
            "P-1D",
            "P1.5D",
            "P1S",
            "PT1S1H",
            "Pü",
            "PT99999999999999999999S",
            "P1D1D",
        ] {
            assert_eq!(seconds_of(text), None, "{text}");
        }
    }
}
