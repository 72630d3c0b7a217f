//! The header `Range` (RFC 9110, section 14).

use std::ops::Range;

use super::failure::HttpFailure;

/// Ranges of a request, at most.
const RANGES_MAX: usize = 4096;

/// The bytes of a file that a request is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum RequestedBytes {
    /// The whole file.
    Whole,
    /// Ranges that are not empty, in the requested order.
    Ranges(Vec<Range<u64>>),
}

/// The ranges of a header for a file of `size` bytes. Ranges beyond its end are left out; a malformed header, or one in
/// another unit, is ignored.
///
/// # Errors
/// [`HttpFailure::OutOfRange`] if no range is left; [`HttpFailure::Malformed`] if there are too many, or several have
/// together more than twice the bytes of the file.
pub(super) fn requested(header: Option<&str>, size: u64) -> Result<RequestedBytes, HttpFailure> {
    let Some(list) = header.and_then(list_of) else { return Ok(RequestedBytes::Whole) };
    if list.split(',').count() > RANGES_MAX {
        let what = format!("there are more than {RANGES_MAX} ranges; send several requests");
        return Err(HttpFailure::Malformed(what));
    }
    let specifications = list.split(',').map(str::trim).filter(|text| !text.is_empty());
    let Some(ranges) = specifications.map(|text| range_of(text, size)).collect::<Option<Vec<_>>>()
    else {
        return Ok(RequestedBytes::Whole);
    };
    let ranges: Vec<_> = ranges.into_iter().filter(|range| !range.is_empty()).collect();
    if ranges.is_empty() {
        return Err(HttpFailure::OutOfRange(size));
    }
    let bytes: u128 = ranges.iter().map(|range| u128::from(range.end - range.start)).sum();
    if ranges.len() > 1 && bytes > 2 * u128::from(size) {
        let what = "the ranges have more than twice the bytes of the file; ask for each byte once";
        return Err(HttpFailure::Malformed(what.to_owned()));
    }
    Ok(RequestedBytes::Ranges(ranges))
}

fn list_of(header: &str) -> Option<&str> {
    let (unit, list) = header.split_once('=')?;
    unit.trim().eq_ignore_ascii_case("bytes").then_some(list)
}

/// The bytes of one specification, empty if they lie beyond the end; `None` if it is malformed.
fn range_of(text: &str, size: u64) -> Option<Range<u64>> {
    let (first, last) = text.split_once('-')?;
    match (first.trim(), last.trim()) {
        ("", last) => Some(size.saturating_sub(number(last)?)..size),
        (first, "") => Some(number(first)?.min(size)..size),
        (first, last) => {
            let (first, last) = (number(first)?, number(last)?);
            let end = last.saturating_add(1).min(size);
            (first <= last).then(|| first.min(end)..end)
        }
    }
}

/// A number, which may be larger than any file.
fn number(text: &str) -> Option<u64> {
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| text.parse().unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ranges(header: &str) -> Result<RequestedBytes, HttpFailure> {
        requested(Some(header), 1000)
    }

    #[test]
    fn ranges_are_those_of_the_specification() {
        let cases: [(&str, &[Range<u64>]); 9] = [
            ("bytes=0-499", &[0..500]),
            ("bytes=500-999", &[500..1000]),
            ("bytes=-500", &[500..1000]),
            ("bytes=9500-, 990-", &[990..1000]),
            ("bytes=0-0,-1", &[0..1, 999..1000]),
            ("Bytes=-5000", &[0..1000]),
            ("bytes=0-99999999999999999999999", &[0..1000]),
            ("bytes= 5-6 , 1-2,,", &[5..7, 1..3]),
            ("bytes=1-1,1-1", &[1..2, 1..2]),
        ];
        for (header, expected) in cases {
            let found = ranges(header).expect(header);
            assert_eq!(found, RequestedBytes::Ranges(expected.to_vec()), "{header}");
        }
    }

    #[test]
    fn malformed_ranges_are_ignored() {
        for header in ["bytes=7-5", "bytes=a-b", "lines=1-2", "bytes", "bytes=1", "bytes=1-2,x"] {
            assert_eq!(ranges(header), Ok(RequestedBytes::Whole), "{header}");
        }
        assert_eq!(requested(None, 7), Ok(RequestedBytes::Whole));
    }

    #[test]
    fn ranges_outside_of_the_file_are_an_error() {
        for header in ["bytes=1000-", "bytes=1000-2000,5000-", "bytes=-0", "bytes="] {
            assert_eq!(ranges(header), Err(HttpFailure::OutOfRange(1000)), "{header}");
        }
        assert_eq!(requested(Some("bytes=0-"), 0), Err(HttpFailure::OutOfRange(0)));
    }

    #[test]
    fn floods_are_refused() {
        let many = format!("bytes={}", vec!["1-1"; RANGES_MAX + 1].join(","));
        assert!(matches!(ranges(&many), Err(HttpFailure::Malformed(_))));
        assert!(matches!(ranges("bytes=0-,0-,0-"), Err(HttpFailure::Malformed(_))));
        let allowed = format!("bytes={}", vec!["1-1"; 1024].join(","));
        assert!(
            matches!(ranges(&allowed), Ok(RequestedBytes::Ranges(found)) if found.len() == 1024)
        );
    }
}
