//! Extended attributes: the request and its answers.
//!
//! ```text
//! request         [path] 0  {zero u16, name 0} ..  {length i32, value} ..
//! answer, list    {name 0 [length i32, value]} ..
//! answer, others  errors u8, count u8  {error u16, name 0} ..  {length i32, value} ..
//! ```
//!
//! 1. Values are there in set requests, in answers to get, and in answers to list where asked for.
//! 2. An attribute that could not be got has a value of length 0.
//! 3. The body of a list request by handle may be empty.
//!
//! Source: "The XRootD Protocol" 5.1.1, section 3, kXR_fattr.

use bytes::Bytes;

use crate::codes::{ErrorCode, RequestCode};
use crate::error::{Error, Result};
use crate::flags::FattrOptions;
use crate::ids::FileHandle;
use crate::limits::{
    ATTRIBUTE_NAME_BYTES_MAX, ATTRIBUTE_VALUE_BYTES_MAX, ATTRIBUTES_LISTED_MAX, ATTRIBUTES_MAX,
};
use crate::location::Location;
use crate::request::{Body, REQUEST_HEADER_BYTES, Target};
use crate::response::{Answer, RESPONSE_HEADER_BYTES};
use crate::wire::{Reader, Writer, shared};

const DELETE: u8 = 0;
const GET: u8 = 1;
const LIST: u8 = 2;
const SET: u8 = 3;

/// Reads or changes attributes of a file. Section 3, kXR_fattr.
///
/// Answer: [`AttributeList`] to `List`, [`AttributeOutcomes`] to the others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fattr {
    /// The file.
    pub target: Target,
    /// How attributes are set and listed.
    pub options: FattrOptions,
    /// What is done.
    pub action: AttributeAction,
}

/// What is done with a file's attributes: with 1 to [`ATTRIBUTES_MAX`] of them, or with all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AttributeAction {
    /// Removes those of these names.
    Delete(Vec<Bytes>),
    /// Reads those of these names.
    Get(Vec<Bytes>),
    /// Tells the names of all, and by [`FattrOptions::VALUES`] also their values.
    List,
    /// Sets these names to these values.
    Set(Vec<(Bytes, Bytes)>),
}

impl Body for Fattr {
    const CODE: RequestCode = RequestCode::FATTR;

    fn decode(parameters: &mut Reader<'_>, body: &Bytes) -> Result<Self> {
        let handle = FileHandle(parameters.array()?);
        let (action, count) = (parameters.u8()?, usize::from(parameters.u8()?));
        let options = FattrOptions(parameters.u8()?);
        let reader = &mut Reader::new("fattr", body, REQUEST_HEADER_BYTES);
        let target = decode_target(handle, reader, body)?;
        check_count(reader, action, count)?;
        let action = match action {
            LIST => AttributeAction::List,
            DELETE => AttributeAction::Delete(decode_names(reader, body, count)?),
            GET => AttributeAction::Get(decode_names(reader, body, count)?),
            SET => AttributeAction::Set(decode_named_values(reader, body, count)?),
            other => return Err(reader.malformed(format!("there is no action {other}"))),
        };
        Ok(Fattr { target, options, action })
    }

    fn encode(&self, parameters: &mut Writer, body: &mut Writer) {
        if let Target::Location(location) = &self.target {
            body.raw(location.as_bytes());
        }
        body.u8(0);
        let (action, count) = match &self.action {
            AttributeAction::List => (LIST, 0),
            AttributeAction::Delete(names) => (DELETE, encode_names(names.iter(), body)),
            AttributeAction::Get(names) => (GET, encode_names(names.iter(), body)),
            AttributeAction::Set(pairs) => {
                let count = encode_names(pairs.iter().map(|(name, _)| name), body);
                pairs.iter().for_each(|(_, value)| encode_value(value, body));
                (SET, count)
            }
        };
        parameters.raw(&self.target.handle().0).u8(action).u8(count).u8(self.options.0);
    }
}

/// A path and its zero byte; an empty one means the handle, and a body without any, too.
fn decode_target(handle: FileHandle, reader: &mut Reader<'_>, body: &Bytes) -> Result<Target> {
    if body.is_empty() {
        return Ok(Target::Handle(handle));
    }
    // The path of a list request may lack its zero byte.
    let path = match body.contains(&0) {
        true => reader.zero_ended()?,
        false => reader.rest(),
    };
    match path {
        [] => Ok(Target::Handle(handle)),
        path => Location::part("fattr", body, path).map(Target::Location),
    }
}

fn check_count(reader: &Reader<'_>, action: u8, count: usize) -> Result<()> {
    match (action, count) {
        (LIST, 0) => Ok(()),
        (LIST, _) => Err(reader.malformed(format!("a list of all names {count} attributes"))),
        (_, 0) => Err(reader.malformed("no attribute is named")),
        (_, count) if count > ATTRIBUTES_MAX => {
            Err(Error::too_many_items("fattr", count, ATTRIBUTES_MAX))
        }
        _ => Ok(()),
    }
}

fn decode_names(reader: &mut Reader<'_>, body: &Bytes, count: usize) -> Result<Vec<Bytes>> {
    (0..count).map(|_| decode_name(reader, body).map(|(_, name)| name)).collect()
}

/// A name and the number before it: zero in requests, an error in answers.
fn decode_name(reader: &mut Reader<'_>, body: &Bytes) -> Result<(u16, Bytes)> {
    let number = reader.u16()?;
    let name = reader.zero_ended()?;
    if name.len() > ATTRIBUTE_NAME_BYTES_MAX {
        return Err(Error::too_many_bytes("attribute name", name.len(), ATTRIBUTE_NAME_BYTES_MAX));
    }
    Ok((number, shared(body, name)))
}

fn decode_value(reader: &mut Reader<'_>, body: &Bytes) -> Result<Bytes> {
    let length = reader.length()? as usize;
    if length > ATTRIBUTE_VALUE_BYTES_MAX {
        return Err(Error::too_many_bytes("attribute value", length, ATTRIBUTE_VALUE_BYTES_MAX));
    }
    reader.take(length).map(|value| shared(body, value))
}

fn decode_named_values(
    reader: &mut Reader<'_>,
    body: &Bytes,
    count: usize,
) -> Result<Vec<(Bytes, Bytes)>> {
    let names = decode_names(reader, body, count)?;
    names.into_iter().map(|name| Ok((name, decode_value(reader, body)?))).collect()
}

fn encode_names<'a>(names: impl ExactSizeIterator<Item = &'a Bytes>, body: &mut Writer) -> u8 {
    let count = names.len();
    if count > ATTRIBUTES_MAX {
        body.fail(Error::too_many_items("fattr", count, ATTRIBUTES_MAX));
    }
    names.for_each(|name| encode_name(0, name, body));
    count as u8
}

fn encode_name(number: u16, name: &[u8], body: &mut Writer) {
    if name.len() > ATTRIBUTE_NAME_BYTES_MAX {
        let limit = ATTRIBUTE_NAME_BYTES_MAX;
        body.fail(Error::too_many_bytes("attribute name", name.len(), limit));
    }
    body.u16(number).zero_ended(name);
}

fn encode_value(value: &[u8], body: &mut Writer) {
    if value.len() > ATTRIBUTE_VALUE_BYTES_MAX {
        let limit = ATTRIBUTE_VALUE_BYTES_MAX;
        body.fail(Error::too_many_bytes("attribute value", value.len(), limit));
    }
    body.length(value.len() as u32).raw(value);
}

/// The answer to get, set and delete: what became of each attribute that was named.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AttributeOutcomes {
    /// The attributes in the request's order; at most 255.
    pub outcomes: Vec<AttributeOutcome>,
    /// The values in the same order, empty where there was an error; none but for get.
    pub values: Option<Vec<Bytes>>,
}

/// What became of one attribute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttributeOutcome {
    /// Its name.
    pub name: Bytes,
    /// Why it failed, if it did.
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

/// The answer to list. Whether it has values is known from the request alone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AttributeList {
    /// Names, and values where they were asked for.
    pub attributes: Vec<(Bytes, Option<Bytes>)>,
}

impl AttributeList {
    /// The list from the answer's body; `values` tells whether they were asked for.
    ///
    /// # Errors
    /// [`Error::Malformed`] if a name or value is cut short, [`Error::TooLong`].
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
