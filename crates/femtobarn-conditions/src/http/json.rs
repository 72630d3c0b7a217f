//! Values as JSON, in the form that exports of conditions have: numbers that JSON lacks are the texts `NaN`, `Infinity`
//! and `-Infinity`; bytes are hexadecimal.

use std::fmt::Write;

use rntuple::Value;
use serde::ser::{SerializeMap, SerializeSeq};
use serde::{Serialize, Serializer};

/// A value to be written as JSON.
pub(super) struct JsonValue(pub Value);

impl Serialize for JsonValue {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        Borrowed(&self.0).serialize(to)
    }
}

struct Borrowed<'a>(&'a Value);

impl Serialize for Borrowed<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            Value::Null => to.serialize_none(),
            Value::Bool(value) => to.serialize_bool(*value),
            Value::Int(value) => to.serialize_i64(*value),
            Value::UInt(value) => to.serialize_u64(*value),
            Value::Float(value) if value.is_nan() => to.serialize_str("NaN"),
            Value::Float(f64::INFINITY) => to.serialize_str("Infinity"),
            Value::Float(f64::NEG_INFINITY) => to.serialize_str("-Infinity"),
            Value::Float(value) => to.serialize_f64(*value),
            Value::String(text) => to.serialize_str(text),
            Value::Bytes(bytes) => to.serialize_str(&hexadecimal(bytes)),
            Value::List(values) => {
                let mut list = to.serialize_seq(Some(values.len()))?;
                for value in values {
                    list.serialize_element(&Borrowed(value))?;
                }
                list.end()
            }
            Value::Record(members) => {
                let mut map = to.serialize_map(Some(members.len()))?;
                for (name, value) in members {
                    map.serialize_entry(name, &Borrowed(value))?;
                }
                map.end()
            }
            Value::Variant(number, value) => {
                let mut map = to.serialize_map(Some(2))?;
                map.serialize_entry("alternative", number)?;
                map.serialize_entry("value", &Borrowed(value))?;
                map.end()
            }
        }
    }
}

/// Bytes as hexadecimal digits.
pub(super) fn hexadecimal(bytes: &[u8]) -> String {
    let mut digits = String::with_capacity(2 * bytes.len());
    for byte in bytes {
        write!(digits, "{byte:02x}").expect("a text takes all that is written");
    }
    digits
}
