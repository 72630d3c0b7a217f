//! Prints the entries of an RNTuple, one JSON object a line.
//!
//! ```text
//! cargo run --example ntuple_dump -- FILE            # the names of its RNTuples
//! cargo run --example ntuple_dump -- FILE NAME       # the entries of one
//! ```
//!
//! Lists, arrays, sets of bits and bytes are arrays; records are objects; a variant is an object
//! with the one member `_N`, N being the number of its alternative; absent values are null. Numbers
//! that JSON lacks are the strings "nan", "inf" and "-inf".

use std::error::Error;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::sync::Arc;

use rntuple::{Reader, Value, tfile};
use serde_json::{Map, Value as Json, json};

/// Entries read at a time.
const ENTRIES: u64 = 1000;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let mut out = BufWriter::new(std::io::stdout().lock());
    match &arguments[..] {
        [path] => {
            for (name, _) in tfile::anchors(&File::open(path)?)? {
                writeln!(out, "{name}")?;
            }
        }
        [path, name] => dump(&Reader::open(Arc::new(File::open(path)?), name)?, &mut out)?,
        _ => return Err("usage: ntuple_dump FILE [NAME]".into()),
    }
    Ok(out.flush()?)
}

fn dump(reader: &Reader, out: &mut impl Write) -> Result<(), Box<dyn Error>> {
    for (field, reason) in reader.ignored() {
        eprintln!("field {field} is left out: {reason}");
    }
    let all = reader.select_all();
    for first in (0..reader.entries()).step_by(ENTRIES as usize) {
        let end = reader.entries().min(first + ENTRIES);
        let entries = reader.read(&all, first..end)?;
        for position in 0..entries.len() {
            writeln!(out, "{}", to_json(entries.value(position)?))?;
        }
    }
    Ok(())
}

fn to_json(value: Value) -> Json {
    match value {
        Value::Null => Json::Null,
        Value::Bool(value) => json!(value),
        Value::Int(value) => json!(value),
        Value::UInt(value) => json!(value),
        Value::Float(value) if value.is_nan() => json!("nan"),
        Value::Float(value) if value.is_infinite() => json!(format!("{value}")),
        Value::Float(value) => json!(value),
        Value::String(value) => json!(value),
        Value::Bytes(bytes) => json!(&bytes[..]),
        Value::List(items) => items.into_iter().map(to_json).collect(),
        Value::Record(members) => {
            Json::Object(members.into_iter().map(|(name, value)| (name, to_json(value))).collect())
        }
        Value::Variant(alternative, value) => {
            Json::Object(Map::from_iter([(format!("_{alternative}"), to_json(*value))]))
        }
    }
}
