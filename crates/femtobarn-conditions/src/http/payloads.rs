//! Payloads: the bytes of conditions whose class has fields `data` and, if known, `media_type`, `name` and `sha256`.

use std::ops::Range;

use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use femtobarn::{Error, Result};
use http::header::{
    ACCEPT_RANGES, CONTENT_DISPOSITION, CONTENT_RANGE, CONTENT_SECURITY_POLICY, CONTENT_TYPE, RANGE,
};
use http::{HeaderMap, HeaderValue, StatusCode};
use rntuple::Value;
use sha2::{Digest, Sha256};

use super::answers::with_validators;
use super::json::hexadecimal;
use crate::series::Series;

const BINARY: &str = "application/octet-stream";

/// The bytes of a condition.
pub(super) struct Payload {
    data: Bytes,
    media_type: String,
    name: String,
    sha256: [u8; 32],
}

/// The payload of an entry, checked against the hash that is stored with it.
pub(super) fn payload(series: &Series, entry: u64) -> Result<Payload> {
    let (place, entry) = series.place_of(entry);
    let view = series.views().nth(place).expect("an entry is in one of the containers");
    let Value::Record(members) = view.value(entry)? else {
        return Err(Error::Corrupt { what: format!("{} has no records", view.path()) });
    };
    let mut payload = Payload {
        data: Bytes::new(),
        media_type: BINARY.to_owned(),
        name: String::new(),
        sha256: [0; 32],
    };
    let (mut has_data, mut stored) = (false, String::new());
    for (name, value) in members {
        match (name.as_str(), value) {
            ("data", Value::Bytes(data)) => (payload.data, has_data) = (data, true),
            ("media_type", Value::String(text)) if !text.is_empty() => payload.media_type = text,
            ("name", Value::String(text)) => payload.name = text,
            ("sha256", Value::String(text)) => stored = text,
            _ => {}
        }
    }
    if !has_data {
        return Err(Error::NotFound {
            what: format!(
                "{} has no field data with bytes; ask for /conditions instead of /payloads",
                view.path()
            ),
        });
    }
    payload.sha256 = Sha256::digest(&payload.data).into();
    let digest = hexadecimal(&payload.sha256);
    if !stored.is_empty() && !stored.eq_ignore_ascii_case(&digest) {
        return Err(Error::Corrupt {
            what: format!(
                "the payload of entry {entry} of {} is damaged: its SHA-256 is {digest}, and {stored} is stored with it",
                view.path()
            ),
        });
    }
    Ok(payload)
}

impl Payload {
    /// The response with the bytes, or the range of them that the client requests.
    pub(super) fn answer(self, request: &HeaderMap) -> Response {
        let sha256 = self.sha256;
        with_validators(request, &sha256, "max-age=31536000, immutable", || self.body(request))
    }

    fn body(self, request: &HeaderMap) -> Response {
        let size = self.data.len();
        let range = request.get(RANGE).and_then(|it| it.to_str().ok());
        let range = range.and_then(|text| range_of(text, size));
        let kind = HeaderValue::from_str(&self.media_type);
        let kind = kind.unwrap_or(HeaderValue::from_static(BINARY));
        let (mut answer, shown) = match range {
            None => (self.data.into_response(), None),
            Some(range) if range.is_empty() => {
                let answer = StatusCode::RANGE_NOT_SATISFIABLE.into_response();
                (answer, Some(format!("bytes */{size}")))
            }
            Some(range) => {
                let shown = format!("bytes {}-{}/{size}", range.start, range.end - 1);
                let part = self.data.slice(range);
                ((StatusCode::PARTIAL_CONTENT, part).into_response(), Some(shown))
            }
        };
        let headers = answer.headers_mut();
        headers.insert(CONTENT_TYPE, kind);
        headers.insert(ACCEPT_RANGES, HeaderValue::from_static("bytes"));
        // Stored content is shown, but must not run scripts.
        headers.insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static("sandbox"));
        if let Some(Ok(shown)) = shown.map(HeaderValue::try_from) {
            headers.insert(CONTENT_RANGE, shown);
        }
        if let Some(Ok(name)) = file_name(&self.name).map(HeaderValue::try_from) {
            headers.insert(CONTENT_DISPOSITION, name);
        }
        answer
    }
}

fn file_name(name: &str) -> Option<String> {
    let name = name.rsplit('/').next().unwrap_or(name);
    let is_plain =
        |character: char| character.is_ascii_alphanumeric() || "._-+".contains(character);
    let is_usable = !name.is_empty() && name.chars().all(is_plain);
    is_usable.then(|| format!("inline; filename=\"{name}\""))
}

/// The bytes of a request for one range (RFC 9110, section 14); an empty range if none of them exist; `None` if the
/// whole payload is to be sent.
fn range_of(text: &str, size: usize) -> Option<Range<usize>> {
    let (first, last) = text.strip_prefix("bytes=")?.split_once('-')?;
    if first.is_empty() {
        return Some(size.saturating_sub(last.parse().ok()?)..size);
    }
    let first: usize = first.parse().ok()?;
    let last = if last.is_empty() { usize::MAX } else { last.parse().ok()? };
    (first <= last).then(|| first.min(size)..last.saturating_add(1).min(size))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_those_of_the_specification() {
        let cases = [
            ("bytes=0-0", Some(0..1)),
            ("bytes=2-", Some(2..10)),
            ("bytes=2-99", Some(2..10)),
            ("bytes=-3", Some(7..10)),
            ("bytes=-30", Some(0..10)),
            ("bytes=-0", Some(10..10)),
            ("bytes=10-", Some(10..10)),
            ("bytes=5-4", None),
            ("bytes=0-1,4-5", None),
            ("lines=0-1", None),
            ("bytes=a-b", None),
        ];
        for (text, expected) in cases {
            assert_eq!(range_of(text, 10), expected, "{text}");
        }
        assert_eq!(range_of("bytes=0-", 0), Some(0..0));
    }
}
