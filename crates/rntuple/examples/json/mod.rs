//! Values as JSON, in the form of the dumps of all readers that are compared.
//!
//! Lists, arrays, sets of bits and bytes are arrays; records are objects; a variant is an object
//! with the one member `_N`, N being the number of its alternative; absent values are null. Numbers
//! that JSON lacks are the strings "nan", "inf" and "-inf".

use rntuple::Value;
use serde_json::{Map, Value as Json, json};

/// The JSON form of a value.
pub(crate) fn to_json(value: &Value) -> Json {
    match value {
        Value::Null => Json::Null,
        Value::Bool(value) => json!(value),
        Value::Int(value) => json!(value),
        Value::UInt(value) => json!(value),
        Value::Float(value) => real_to_json(*value),
        Value::String(value) => json!(value),
        Value::Bytes(bytes) => json!(&bytes[..]),
        Value::List(items) => items.iter().map(to_json).collect(),
        Value::Record(members) => {
            let members = members.iter().map(|(name, value)| (name.clone(), to_json(value)));
            Json::Object(members.collect())
        }
        Value::Variant(alternative, value) => {
            Json::Object(Map::from_iter([(format!("_{alternative}"), to_json(value))]))
        }
    }
}

fn real_to_json(value: f64) -> Json {
    match value {
        value if value.is_nan() => json!("nan"),
        value if value.is_infinite() => json!(format!("{value}")),
        value => json!(value),
    }
}
