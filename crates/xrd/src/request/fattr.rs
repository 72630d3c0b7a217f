//! The request about extended attributes.
//!
//! ```text
//! [path] 0  {zero u16, name 0} ..  {length i32, value} ..
//! ```
//!
//! 1. Only set requests have values.
//! 2. The body of a list request by handle may be empty.
//!
//! Source: "The XRootD Protocol" 5.1.1, section 3, kXR_fattr.

use bytes::Bytes;

use super::body::{Body, FileRef};
use super::header::REQUEST_HEADER_BYTES;
use crate::attribute::{decode_named_values, decode_names, encode_names, encode_value};
use crate::codes::RequestCode;
use crate::error::{Error, Result};
use crate::flags::FattrOptions;
use crate::ids::FileHandle;
use crate::limits::ATTRIBUTES_MAX;
use crate::location::Location;
use crate::wire::{Reader, Writer};

const DELETE: u8 = 0;
const GET: u8 = 1;
const LIST: u8 = 2;
const SET: u8 = 3;

/// Reads or changes attributes of a file. Section 3, kXR_fattr.
///
/// Answer: [`AttributeList`] to `List`, [`AttributeOutcomes`] to the other actions.
///
/// [`AttributeList`]: crate::response::AttributeList
/// [`AttributeOutcomes`]: crate::response::AttributeOutcomes
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fattr {
    /// The file.
    pub target: FileRef,
    /// Options.
    pub options: FattrOptions,
    /// The action.
    pub action: AttributeAction,
}

/// An action on 1 to [`ATTRIBUTES_MAX`] attributes, or on all of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AttributeAction {
    /// Removes the named attributes.
    Delete(Vec<Bytes>),
    /// Reads the named attributes.
    Get(Vec<Bytes>),
    /// Lists the names of all attributes, and with [`FattrOptions::VALUES`] their values.
    List,
    /// Sets the named attributes.
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
            other => return Err(reader.malformed(format!("unknown action {other}"))),
        };
        Ok(Fattr { target, options, action })
    }

    fn encode(&self, parameters: &mut Writer, body: &mut Writer) {
        if let FileRef::Location(location) = &self.target {
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

/// The path up to its zero byte; an empty path or an empty body stands for the handle.
fn decode_target(handle: FileHandle, reader: &mut Reader<'_>, body: &Bytes) -> Result<FileRef> {
    if body.is_empty() {
        return Ok(FileRef::Handle(handle));
    }
    // The path of a list request may lack its zero byte.
    let path = if body.contains(&0) { reader.zero_ended()? } else { reader.rest() };
    match path {
        [] => Ok(FileRef::Handle(handle)),
        path => Location::part("fattr", body, path).map(FileRef::Location),
    }
}

fn check_count(reader: &Reader<'_>, action: u8, count: usize) -> Result<()> {
    match (action, count) {
        (LIST, 0) => Ok(()),
        (LIST, _) => {
            Err(reader.malformed(format!("a list request must not name attributes, found {count}")))
        }
        (_, 0) => Err(reader.malformed("no attribute is named")),
        (_, count) if count > ATTRIBUTES_MAX => {
            Err(Error::too_many_items("fattr", count, ATTRIBUTES_MAX))
        }
        _ => Ok(()),
    }
}
