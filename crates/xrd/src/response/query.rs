//! Answers to queries that have a form.
//!
//! ```text
//! checksum  adler32 084b021f                                        one line
//! config    value \n value \n                                       a line for each word asked for
//! space     oss.cgroup=default&oss.space=..&oss.free=..             keys and values
//! ```
//!
//! 1. A word of the configuration that a server does not know is answered by the word itself.
//! 2. Space is parted as opaque information is: see [`crate::opaque_pairs`].
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
            let reason = format!("{text:.80?} is not an algorithm and a digest");
            return Err(Error::malformed("checksum answer", RESPONSE_HEADER_BYTES, reason));
        };
        Ok(ChecksumAnswer { kind, digest })
    }

    fn encode(&self) -> Result<Vec<u8>> {
        Ok(format!("{} {}\0", self.kind, self.digest).into_bytes())
    }
}

/// Values of a server's configuration, in the order of the words asked for. Values may have several
/// lines only where one word was asked for.
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
        // Without a zero byte behind them: some clients take it for a part of the last value.
        let lines: String = self.values.iter().map(|value| format!("{value}\n")).collect();
        Ok(lines.into_bytes())
    }
}
