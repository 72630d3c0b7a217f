//! Values of parameters.

use std::borrow::Cow;

use bytes::{BufMut, BytesMut};
use postgres_protocol::Oid;
use rusqlite::types::{ToSqlOutput, ValueRef};

/// Types of columns and parameters.
pub(super) mod oid {
    use postgres_protocol::Oid;

    pub(crate) const UNKNOWN: Oid = 0;
    pub(crate) const BOOL: Oid = 16;
    pub(crate) const BYTEA: Oid = 17;
    pub(crate) const INT8: Oid = 20;
    pub(crate) const INT2: Oid = 21;
    pub(crate) const INT4: Oid = 23;
    pub(crate) const TEXT: Oid = 25;
    pub(crate) const BYTEA_ARRAY: Oid = 1001;
    pub(crate) const TEXT_ARRAY: Oid = 1009;
    pub(crate) const INT8_ARRAY: Oid = 1016;
}

/// Values of parameters in PostgreSQL's binary form.
pub(crate) struct Parameters {
    types: Vec<Oid>,
    /// Each with its length in front.
    values: BytesMut,
}

impl Parameters {
    /// No values.
    pub(crate) fn none() -> Self {
        Parameters { types: vec![], values: BytesMut::new() }
    }

    /// Their types.
    pub(super) fn types(&self) -> &[Oid] {
        &self.types
    }

    /// Their values, each with its length in front.
    pub(super) fn values(&self) -> &[u8] {
        &self.values
    }

    /// Adds a value.
    pub(crate) fn add(&mut self, value: &ToSqlOutput<'_>) {
        let value = match value {
            ToSqlOutput::Borrowed(value) => *value,
            ToSqlOutput::Owned(value) => ValueRef::from(value),
            _ => ValueRef::Null,
        };
        let (kind, bytes) = match &value {
            ValueRef::Integer(number) => (oid::INT8, &number.to_be_bytes()[..]),
            ValueRef::Text(text) => (oid::TEXT, *text),
            ValueRef::Blob(bytes) => (oid::BYTEA, *bytes),
            // No statement has numbers of other kinds.
            ValueRef::Null | ValueRef::Real(_) => {
                self.types.push(oid::UNKNOWN);
                self.values.put_i32(-1);
                return;
            }
        };
        self.types.push(kind);
        self.values.put_i32(bytes.len() as i32);
        self.values.put_slice(bytes);
    }

    /// Adds an array of integers.
    pub(crate) fn add_integers(&mut self, values: impl Iterator<Item = i64>) {
        self.add_array((oid::INT8_ARRAY, oid::INT8), values.map(|it| Some(it.to_be_bytes())));
    }

    /// Adds an array of texts.
    pub(crate) fn add_texts<'a>(&mut self, values: impl Iterator<Item = &'a str>) {
        self.add_array((oid::TEXT_ARRAY, oid::TEXT), values.map(Some));
    }

    /// Adds an array of bytes.
    pub(crate) fn add_blobs<'a>(&mut self, values: impl Iterator<Item = &'a [u8]>) {
        self.add_array((oid::BYTEA_ARRAY, oid::BYTEA), values.map(Some));
    }

    /// Adds an array of the values of a column, which are of one type or null; not if all of them are null, because nothing
    /// says then of which type they are. Returns whether it was added.
    pub(crate) fn add_values<'a>(
        &mut self,
        values: impl Iterator<Item = ValueRef<'a>> + Clone,
    ) -> bool {
        let is_null = |value: &ValueRef<'_>| *value == ValueRef::Null;
        let types = match values.clone().find(|value| !is_null(value)) {
            Some(ValueRef::Text(_)) => (oid::TEXT_ARRAY, oid::TEXT),
            Some(ValueRef::Blob(_)) => (oid::BYTEA_ARRAY, oid::BYTEA),
            Some(_) => (oid::INT8_ARRAY, oid::INT8),
            None => return false,
        };
        let bytes = |value| match value {
            ValueRef::Integer(number) => Some(Cow::Owned(i64::to_be_bytes(number).to_vec())),
            ValueRef::Text(bytes) | ValueRef::Blob(bytes) => Some(Cow::Borrowed(bytes)),
            ValueRef::Null | ValueRef::Real(_) => None,
        };
        self.add_array(types, values.map(bytes));
        true
    }

    /// Adds an array: its length in bytes, one dimension, whether there may be nulls, the type of elements, their number, the
    /// number of the first, and each with its length, which is -1 for a null.
    fn add_array(
        &mut self,
        (kind, of): (Oid, Oid),
        values: impl Iterator<Item = Option<impl AsRef<[u8]>>>,
    ) {
        self.types.push(kind);
        let begin = self.values.len();
        [0, 1, 1, of as i32, 0, 1].iter().for_each(|number| self.values.put_i32(*number));
        let mut count = 0_i32;
        for value in values {
            count += 1;
            match value {
                Some(value) => {
                    self.values.put_i32(value.as_ref().len() as i32);
                    self.values.put_slice(value.as_ref());
                }
                None => self.values.put_i32(-1),
            }
        }
        let length = (self.values.len() - begin - 4) as i32;
        self.values[begin..begin + 4].copy_from_slice(&length.to_be_bytes());
        self.values[begin + 16..begin + 20].copy_from_slice(&count.to_be_bytes());
    }
}
