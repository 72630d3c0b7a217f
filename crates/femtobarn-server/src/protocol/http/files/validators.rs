//! Entity tags, dates, and the conditions of requests (RFC 9110, sections 8.8 and 13).

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use http::HeaderMap;
use http::header::{IF_MATCH, IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_RANGE, IF_UNMODIFIED_SINCE};

use super::failure::HttpFailure;
use crate::physical::Metadata;

/// The last second of the year 9999.
const LAST_DATE: Duration = Duration::from_secs(253_402_300_799);

/// The outcome of a request's conditions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ConditionOutcome {
    /// The request is to be done.
    Proceed,
    /// The client has these bytes already.
    NotModified,
}

/// The strong entity tag of a file: equal tags have equal bytes. Id and date of a database follow from its versions.
pub(super) fn entity_tag(metadata: &Metadata) -> String {
    let since = metadata.modified.duration_since(UNIX_EPOCH).unwrap_or_default();
    format!("\"{:x}-{:x}-{:x}\"", metadata.id, metadata.size, since.as_nanos())
}

/// A time as a date of HTTP, whose years have four digits.
pub(super) fn http_date(time: SystemTime) -> String {
    httpdate::fmt_http_date(time.min(UNIX_EPOCH + LAST_DATE).max(UNIX_EPOCH))
}

/// Checks the conditions of a request against a file; `tag` is `None` if it does not exist. Only reading requests have
/// the condition `If-Modified-Since`.
///
/// # Errors
/// [`HttpFailure::Precondition`] if the file is not the one that the client wants to change.
pub(super) fn check(
    headers: &HeaderMap,
    tag: Option<&str>,
    modified: Option<SystemTime>,
    is_reading: bool,
) -> Result<ConditionOutcome, HttpFailure> {
    let text = |name| headers.get(name).and_then(|value| value.to_str().ok());
    if let Some(wanted) = text(IF_MATCH) {
        if !tag.is_some_and(|tag| names(wanted, tag, false)) {
            return Err(changed("If-Match"));
        }
    } else if let (Some(limit), Some(modified)) =
        (text(IF_UNMODIFIED_SINCE).and_then(time_of), modified)
        && seconds(modified) > seconds(limit)
    {
        return Err(changed("If-Unmodified-Since"));
    }
    if let Some(known) = text(IF_NONE_MATCH) {
        let is_known = tag.is_some_and(|tag| names(known, tag, true));
        return Ok(if is_known {
            ConditionOutcome::NotModified
        } else {
            ConditionOutcome::Proceed
        });
    }
    let is_old = text(IF_MODIFIED_SINCE)
        .filter(|_| is_reading)
        .and_then(time_of)
        .zip(modified)
        .is_some_and(|(since, modified)| seconds(modified) <= seconds(since));
    Ok(if is_old { ConditionOutcome::NotModified } else { ConditionOutcome::Proceed })
}

/// Whether the answer may have ranges instead of the whole file: the client's other ranges are of these bytes, or it
/// has none.
pub(super) fn allows_ranges(headers: &HeaderMap, tag: &str, modified: SystemTime) -> bool {
    let Some(condition) = headers.get(IF_RANGE).and_then(|value| value.to_str().ok()) else {
        return !headers.contains_key(IF_RANGE);
    };
    match time_of(condition) {
        // Two changes within a second have one date.
        Some(date) => seconds(date) == seconds(modified) && is_old(modified),
        None => condition.trim() == tag,
    }
}

fn is_old(modified: SystemTime) -> bool {
    femtobarn_catalog::clock::utc().duration_since(modified).is_ok_and(|age| age.as_secs() > 1)
}

/// Whether a list of entity tags, or `*`, names one. A weak comparison ignores `W/`.
fn names(list: &str, tag: &str, is_weak: bool) -> bool {
    list.split(',').map(str::trim).any(|one| {
        one == "*"
            || one == tag
            || (is_weak && one.strip_prefix("W/").is_some_and(|one| one == tag))
    })
}

fn time_of(text: &str) -> Option<SystemTime> {
    httpdate::parse_http_date(text).ok()
}

fn seconds(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

fn changed(condition: &str) -> HttpFailure {
    HttpFailure::Precondition(format!("the file is not as {condition} demands; read it again"))
}

#[cfg(test)]
mod tests {
    use http::HeaderName;

    use super::*;

    fn outcome(name: HeaderName, value: &str, tag: Option<&str>) -> Option<ConditionOutcome> {
        let headers = HeaderMap::from_iter([(name, value.parse().expect("a value"))]);
        check(&headers, tag, Some(UNIX_EPOCH + Duration::from_secs(784_111_777)), true).ok()
    }

    #[test]
    fn conditions_are_those_of_the_specification() {
        let (proceed, kept) =
            (Some(ConditionOutcome::Proceed), Some(ConditionOutcome::NotModified));
        let cases = [
            (IF_MATCH, "\"a\"", Some("\"a\""), proceed),
            (IF_MATCH, "\"b\", \"a\"", Some("\"a\""), proceed),
            (IF_MATCH, "W/\"a\"", Some("\"a\""), None),
            (IF_MATCH, "*", None, None),
            (IF_NONE_MATCH, "W/\"a\"", Some("\"a\""), kept),
            (IF_NONE_MATCH, "*", Some("\"a\""), kept),
            (IF_NONE_MATCH, "*", None, proceed),
            (IF_NONE_MATCH, "\"b\"", Some("\"a\""), proceed),
            (IF_MODIFIED_SINCE, "Sun, 06 Nov 1994 08:49:37 GMT", Some("\"a\""), kept),
            (IF_MODIFIED_SINCE, "Sun, 06 Nov 1994 08:49:36 GMT", Some("\"a\""), proceed),
            (IF_MODIFIED_SINCE, "yesterday", Some("\"a\""), proceed),
            (IF_UNMODIFIED_SINCE, "Sun, 06 Nov 1994 08:49:36 GMT", Some("\"a\""), None),
        ];
        for (name, value, tag, expected) in cases {
            assert_eq!(outcome(name.clone(), value, tag), expected, "{name}: {value}");
        }
    }

    #[test]
    fn dates_beyond_the_calendar_are_its_ends() {
        assert_eq!(http_date(UNIX_EPOCH + 2 * LAST_DATE), "Fri, 31 Dec 9999 23:59:59 GMT");
        assert_eq!(http_date(UNIX_EPOCH - LAST_DATE), "Thu, 01 Jan 1970 00:00:00 GMT");
    }
}
