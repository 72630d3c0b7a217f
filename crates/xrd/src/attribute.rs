//! Names and values of extended attributes, as requests and answers encode them.

use bytes::Bytes;

use crate::error::{Error, Result};
use crate::limits::{ATTRIBUTE_NAME_BYTES_MAX, ATTRIBUTE_VALUE_BYTES_MAX, ATTRIBUTES_MAX};
use crate::wire::{Reader, Writer, shared};

pub(crate) fn decode_names(
    reader: &mut Reader<'_>,
    body: &Bytes,
    count: usize,
) -> Result<Vec<Bytes>> {
    (0..count).map(|_| decode_name(reader, body).map(|(_, name)| name)).collect()
}

/// A name and the number before it: zero in requests, an error in answers.
pub(crate) fn decode_name(reader: &mut Reader<'_>, body: &Bytes) -> Result<(u16, Bytes)> {
    let number = reader.u16()?;
    let name = reader.zero_ended()?;
    if name.len() > ATTRIBUTE_NAME_BYTES_MAX {
        return Err(Error::too_many_bytes("attribute name", name.len(), ATTRIBUTE_NAME_BYTES_MAX));
    }
    Ok((number, shared(body, name)))
}

pub(crate) fn decode_value(reader: &mut Reader<'_>, body: &Bytes) -> Result<Bytes> {
    let length = reader.length()? as usize;
    if length > ATTRIBUTE_VALUE_BYTES_MAX {
        return Err(Error::too_many_bytes("attribute value", length, ATTRIBUTE_VALUE_BYTES_MAX));
    }
    reader.take(length).map(|value| shared(body, value))
}

pub(crate) fn decode_named_values(
    reader: &mut Reader<'_>,
    body: &Bytes,
    count: usize,
) -> Result<Vec<(Bytes, Bytes)>> {
    let names = decode_names(reader, body, count)?;
    names.into_iter().map(|name| Ok((name, decode_value(reader, body)?))).collect()
}

pub(crate) fn encode_names<'a>(
    names: impl ExactSizeIterator<Item = &'a Bytes>,
    body: &mut Writer,
) -> u8 {
    let count = names.len();
    if count > ATTRIBUTES_MAX {
        body.fail(Error::too_many_items("fattr", count, ATTRIBUTES_MAX));
    }
    names.for_each(|name| encode_name(0, name, body));
    count as u8
}

pub(crate) fn encode_name(number: u16, name: &[u8], body: &mut Writer) {
    if name.len() > ATTRIBUTE_NAME_BYTES_MAX {
        let limit = ATTRIBUTE_NAME_BYTES_MAX;
        body.fail(Error::too_many_bytes("attribute name", name.len(), limit));
    }
    body.u16(number).zero_ended(name);
}

pub(crate) fn encode_value(value: &[u8], body: &mut Writer) {
    if value.len() > ATTRIBUTE_VALUE_BYTES_MAX {
        let limit = ATTRIBUTE_VALUE_BYTES_MAX;
        body.fail(Error::too_many_bytes("attribute value", value.len(), limit));
    }
    body.length(value.len() as u32).raw(value);
}
