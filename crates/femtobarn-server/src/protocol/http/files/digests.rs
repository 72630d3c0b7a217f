//! The header `Want-Digest`, and the checksums that answer it (RFC 3230; values as the IANA registry of HTTP digest
//! algorithms has them: adler32 and crc32c in hexadecimal digits, md5 in base64).

use std::sync::Arc;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use http::{HeaderName, HeaderValue};

use super::FileRequest;
use super::failure::HttpFailure;
use crate::logical::checksums::{CancelGuard, ChecksumKind};
use crate::logical::files::SharedFile;
use crate::physical::Metadata;

pub(super) const WANT_DIGEST: HeaderName = HeaderName::from_static("want-digest");
pub(super) const DIGEST: HeaderName = HeaderName::from_static("digest");

impl FileRequest {
    /// Whether the client requests a digest that is supported here.
    pub(super) fn wants_digest(&self) -> bool {
        self.header(&WANT_DIGEST).and_then(preferred).is_some()
    }

    /// The digest of a file that the client prefers; `None` if it requests none that is supported here. May read the
    /// whole file.
    pub(super) async fn digest(
        &self,
        file: &Arc<SharedFile>,
        metadata: &Metadata,
    ) -> Result<Option<HeaderValue>, HttpFailure> {
        let Some(kind) = self.header(&WANT_DIGEST).and_then(preferred) else { return Ok(None) };
        let checksums = &self.site.logical.checksums;
        if let Some(digest) = checksums.known(file.path(), metadata, kind) {
            return Ok(header(kind, &digest));
        }
        // Dropped with this request, when the client disconnects.
        let guard = CancelGuard::default();
        let (signal, file, before) = (guard.signal(), Arc::clone(file), metadata.clone());
        let turn = checksums.turn().await;
        let digest = self.call(move |logical| {
            let _turn = turn;
            logical.checksums.of_file(file.path(), (&file, &before), kind, &signal)
        });
        Ok(header(kind, &digest.await?))
    }
}

/// The supported kind with the highest weight, the first of several.
fn preferred(wanted: &str) -> Option<ChecksumKind> {
    let mut best: Option<(ChecksumKind, f32)> = None;
    for one in wanted.split(',') {
        let mut pieces = one.split(';').map(str::trim);
        let kind = match pieces.next().unwrap_or_default().to_ascii_lowercase().as_str() {
            "adler32" => ChecksumKind::Adler32,
            "crc32c" => ChecksumKind::Crc32c,
            "md5" => ChecksumKind::Md5,
            _ => continue,
        };
        let weight = pieces.find_map(|piece| piece.strip_prefix("q="));
        let weight = weight.map_or(1.0, |weight| weight.parse().unwrap_or(0.0));
        if weight > best.map_or(0.0, |(_, weight)| weight) {
            best = Some((kind, weight));
        }
    }
    best.map(|(kind, _)| kind)
}

fn header(kind: ChecksumKind, digest: &str) -> Option<HeaderValue> {
    let value = match kind {
        ChecksumKind::Md5 => {
            let digits =
                digest.as_bytes().chunks(2).filter_map(|two| std::str::from_utf8(two).ok());
            let bytes: Vec<u8> =
                digits.filter_map(|two| u8::from_str_radix(two, 16).ok()).collect();
            BASE64_STANDARD.encode(bytes)
        }
        _ => digest.to_owned(),
    };
    HeaderValue::from_str(&format!("{}={value}", kind.name())).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_preferred_known_kind_is_chosen() {
        assert_eq!(preferred("sha-512, ADLER32"), Some(ChecksumKind::Adler32));
        assert_eq!(preferred("adler32;q=0.5, md5;q=1"), Some(ChecksumKind::Md5));
        assert_eq!(preferred("md5;q=0, crc32c;q=0.1"), Some(ChecksumKind::Crc32c));
        assert_eq!(preferred("sha-256, md5;q=no"), None);
    }

    #[test]
    fn md5_is_in_base64() {
        let value = header(ChecksumKind::Md5, "1ca308df6cdb0a8bf40d59be2a17eac1").expect("a value");
        assert_eq!(value, "md5=HKMI32zbCov0DVm+KhfqwQ==");
        assert_eq!(header(ChecksumKind::Adler32, "00000001").expect("a value"), "adler32=00000001");
    }
}
