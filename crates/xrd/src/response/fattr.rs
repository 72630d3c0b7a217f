//! Answers about extended attributes.
//!
//! ```text
//! list             {name 0 [length i32, value]} ..
//! get, set, delete errors u8, count u8  {error u16, name 0} ..  {length i32, value} ..
//! ```
//!
//! 1. Values are present in answers to get, and in answers to list if they were requested.
//! 2. An attribute that could not be read has a value of length 0.
//!
//! Source: "The XRootD Protocol" 5.1.1, section 3, kXR_fattr.

use bytes::Bytes;

use super::{Answer, RESPONSE_HEADER_BYTES};
use crate::attribute::{decode_name, decode_value, encode_name, encode_value};
use crate::codes::ErrorCode;
use crate::error::{Error, Result};
use crate::limits::ATTRIBUTES_LISTED_MAX;
use crate::wire::{Reader, Writer, shared};

/// The answer to get, set and delete: the outcome for each named attribute.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AttributeOutcomes {
    /// The attributes in the request's order; at most 255.
    pub outcomes: Vec<AttributeOutcome>,
    /// The values in the same order, empty after an error; only for get.
    pub values: Option<Vec<Bytes>>,
}

/// The outcome for one attribute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttributeOutcome {
    /// Its name.
    pub name: Bytes,
    /// The error, if it failed.
    pub error: Option<ErrorCode>,
}

impl Answer for AttributeOutcomes {
    fn decode(body: &Bytes) -> Result<Self> {
        let reader = &mut Reader::new("fattr answer", body, RESPONSE_HEADER_BYTES);
        let (_errors, count) = (reader.u8()?, reader.u8()?);
        let outcomes = (0..count).map(|_| decode_outcome(reader, body)).collect::<Result<_>>()?;
        let values = match reader.remaining() {
            0 => None,
            _ => Some((0..count).map(|_| decode_value(reader, body)).collect::<Result<_>>()?),
        };
        reader.end()?;
        Ok(AttributeOutcomes { outcomes, values })
    }

    fn encode(&self) -> Result<Vec<u8>> {
        let mut body = Writer::default();
        let errors = self.outcomes.iter().filter(|outcome| outcome.error.is_some()).count();
        if self.outcomes.len() > usize::from(u8::MAX) {
            body.fail(Error::too_many_items("fattr answer", self.outcomes.len(), 255));
        }
        body.u8(errors as u8).u8(self.outcomes.len() as u8);
        for outcome in &self.outcomes {
            let number = outcome.error.map_or(0, |error| error.0 as u16);
            encode_name(number, &outcome.name, &mut body);
        }
        for value in self.values.iter().flatten() {
            encode_value(value, &mut body);
        }
        body.finish()
    }
}

fn decode_outcome(reader: &mut Reader<'_>, body: &Bytes) -> Result<AttributeOutcome> {
    let (number, name) = decode_name(reader, body)?;
    let error = (number != 0).then_some(ErrorCode(u32::from(number)));
    Ok(AttributeOutcome { name, error })
}

/// The answer to list. Only the request determines whether it has values.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AttributeList {
    /// Names, and values if they were requested.
    pub attributes: Vec<(Bytes, Option<Bytes>)>,
}

impl AttributeList {
    /// Decodes the answer's body, with values if `values` is set.
    ///
    /// # Errors
    /// [`Error::Malformed`] if a name or value is truncated; [`Error::TooLong`] for more than
    /// [`ATTRIBUTES_LISTED_MAX`] attributes or a value that is too long.
    pub fn decode(body: &Bytes, values: bool) -> Result<Self> {
        let reader = &mut Reader::new("fattr answer", body, RESPONSE_HEADER_BYTES);
        let mut attributes = Vec::new();
        while reader.remaining() > 0 {
            if attributes.len() == ATTRIBUTES_LISTED_MAX {
                let (count, limit) = (ATTRIBUTES_LISTED_MAX + 1, ATTRIBUTES_LISTED_MAX);
                return Err(Error::too_many_items("fattr answer", count, limit));
            }
            let name = shared(body, reader.zero_ended()?);
            let value = if values { Some(decode_value(reader, body)?) } else { None };
            attributes.push((name, value));
        }
        Ok(AttributeList { attributes })
    }

    /// The answer's body.
    ///
    /// # Errors
    /// [`Error::TooLong`] for names and values, [`Error::Invalid`] for a zero byte in a name.
    pub fn encode(&self) -> Result<Vec<u8>> {
        let mut body = Writer::default();
        for (name, value) in &self.attributes {
            body.zero_ended(name);
            if let Some(value) = value {
                encode_value(value, &mut body);
            }
        }
        body.finish()
    }
}
