//! Answers to the queries whose format the protocol specifies.
//!
//! ```text
//! checksum  adler32 084b021f                                        one line
//! config    value \n value \n                                       a line for each requested word
//! space     oss.cgroup=default&oss.space=..&oss.free=..             keys and values
//! ```
//!
//! 1. For an unknown word of the configuration, the value is the word itself.
//! 2. Space has the format of opaque information: see [`crate::opaque_pairs`].
//!
//! Source: "The XRootD Protocol" 5.1.1, section 3, kXR_query.

use bytes::Bytes;

use super::{Answer, RESPONSE_HEADER_BYTES};
use crate::error::{Error, Result};
use crate::wire::text_of;

/// A file's checksum.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChecksumAnswer {
    /// The algorithm, such as `adler32`.
    pub kind: String,
    /// The digest as hexadecimal digits.
    pub digest: String,
}

impl Answer for ChecksumAnswer {
    fn decode(body: &Bytes) -> Result<Self> {
        let text = text_of(body);
        let mut words = text.split_ascii_whitespace().map(str::to_owned);
        let (Some(kind), Some(digest)) = (words.next(), words.next()) else {
            let reason = format!("expected an algorithm and a digest, found {text:.80?}");
            return Err(Error::malformed("checksum answer", RESPONSE_HEADER_BYTES, reason));
        };
        Ok(ChecksumAnswer { kind, digest })
    }

    fn encode(&self) -> Result<Vec<u8>> {
        Ok(format!("{} {}\0", self.kind, self.digest).into_bytes())
    }
}

/// Values of a server's configuration, in the order of the requested words. A value may have several lines
/// only if one word was requested.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConfigAnswer {
    /// One line each.
    pub values: Vec<String>,
}

impl Answer for ConfigAnswer {
    fn decode(body: &Bytes) -> Result<Self> {
        let text = text_of(body);
        let values = match text.strip_suffix('\n').unwrap_or(&text) {
            "" => Vec::new(),
            lines => lines.split('\n').map(str::to_owned).collect(),
        };
        Ok(ConfigAnswer { values })
    }

    fn encode(&self) -> Result<Vec<u8>> {
        // No zero byte at the end: some clients take it for a part of the last value.
        let lines: String = self.values.iter().map(|value| format!("{value}\n")).collect();
        Ok(lines.into_bytes())
    }
}
