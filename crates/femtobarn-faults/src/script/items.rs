//! The class of the scripts' objects, the objects, and their updates and evolution.

use std::ops::Range;

use femtobarn::Class;
use rntuple::{Array, Primitive, Value, bytes_of};

/// Bytes of a large object: enough for a whole window of 2 MiB, which bypasses the page cache.
const LARGE_BYTES: usize = (4 << 20) + (64 << 10);

/// The class of all objects of scripts.
pub fn class() -> Class {
    let json = r#"{"name": "Item", "version": 1, "fields": [
        {"name": "number", "type": "uint64"},
        {"name": "text", "type": "string"},
        {"name": "words", "type": {"list": "uint32"}},
        {"name": "maybe", "type": {"optional": "float64"}}]}"#;
    Class::from_json(json).expect("the class of the scripts is valid")
}

/// The object with a number, after `updates` updates.
pub fn object(number: u64, updates: u64) -> Value {
    let words = (0..number % 4).map(|at| Value::UInt(number % 1_000_000 * 10 + at)).collect();
    let maybe = match (number + updates) % 3 {
        0 => Value::Null,
        _ => Value::Float(number as f64 / 8.0 + updates as f64),
    };
    Value::Record(vec![
        ("number".to_owned(), Value::UInt(number)),
        ("text".to_owned(), Value::String(format!("{number}.{updates}"))),
        ("words".to_owned(), Value::List(words)),
        ("maybe".to_owned(), maybe),
    ])
}

/// The objects with some numbers, as columns.
pub fn objects(numbers: Range<u64>) -> Array {
    let objects: Vec<Value> = numbers.clone().map(|number| object(number, 0)).collect();
    let mut columns = updated_fields(&objects);
    let maybe: Vec<Option<f64>> = objects.iter().map(maybe).collect();
    let maybe = Array::List {
        offsets: offsets(maybe.iter().map(|value| usize::from(value.is_some()))),
        content: Array::primitive(Primitive::Float64, maybe.into_iter().flatten().collect()).into(),
        optional: true,
    };
    if let Array::Record { members, .. } = &mut columns {
        let numbers = Array::primitive(Primitive::UInt64, numbers.collect());
        members.insert(0, ("number".to_owned(), numbers));
        members.push(("maybe".to_owned(), maybe));
    }
    columns
}

/// An object with a long text, no two pages of which are equal.
pub(super) fn large_object(number: u64) -> Value {
    let mut object = object(number, 0);
    if let Value::Record(members) = &mut object {
        let lines = |at: usize| format!("{number}.{at:010}\n").repeat(64);
        let text = (0..=LARGE_BYTES / lines(0).len()).map(lines).collect();
        members[1].1 = Value::String(text);
    }
    object
}

/// The second version of the class, with one more field.
pub fn evolved_class() -> Class {
    let mut json = class().to_json().replace("\"version\":1", "\"version\":2");
    let end = json.rfind(']').expect("a class has a list of fields");
    json.insert_str(end, r#",{"name": "extra", "type": "uint32"}"#);
    Class::from_json(&json).expect("the class of the scripts is valid")
}

pub(super) fn object_of_version(number: u64, is_evolved: bool) -> Value {
    let mut object = object(number, 0);
    if is_evolved {
        evolve(&mut object, number);
    }
    object
}

pub(super) fn evolve(object: &mut Value, extra: u64) {
    if let Value::Record(members) = object {
        members.push(("extra".to_owned(), Value::UInt(extra)));
    }
}

/// Updates an object: a longer text, and another number of words.
pub fn update(object: &mut Value) {
    let text = format!("{}+", text(object));
    let mut words = words(object).to_vec();
    match words.len() {
        3.. => words.truncate(1),
        count => words.push(Value::UInt(count as u64 + 1_000_000)),
    }
    if let Value::Record(members) = object {
        for (name, value) in members {
            match name.as_str() {
                "text" => *value = Value::String(text.clone()),
                "words" => *value = Value::List(words.clone()),
                _ => {}
            }
        }
    }
}

fn text(object: &Value) -> &str {
    match object.member("text") {
        Some(Value::String(text)) => text,
        _ => "",
    }
}

fn words(object: &Value) -> &[Value] {
    match object.member("words") {
        Some(Value::List(words)) => words,
        _ => &[],
    }
}

fn maybe(object: &Value) -> Option<f64> {
    match object.member("maybe") {
        Some(Value::Float(value)) => Some(*value),
        _ => None,
    }
}

/// The columns of the fields that an update changes.
pub fn updated_fields(objects: &[Value]) -> Array {
    let texts: Vec<&str> = objects.iter().map(text).collect();
    let lists: Vec<&[Value]> = objects.iter().map(words).collect();
    let numbers = lists.concat();
    let numbers = numbers.iter().map(|word| word.as_integer().unwrap_or_default() as u32).collect();
    let text = Array::String {
        offsets: offsets(texts.iter().map(|text| text.len())),
        bytes: texts.concat().into_bytes().into(),
    };
    let words = Array::List {
        offsets: offsets(lists.iter().map(|list| list.len())),
        content: Array::primitive(Primitive::UInt32, numbers).into(),
        optional: false,
    };
    let members = vec![("text".to_owned(), text), ("words".to_owned(), words)];
    Array::Record { length: objects.len(), members }
}

fn offsets(lengths: impl Iterator<Item = usize>) -> bytes::Bytes {
    let mut offsets = vec![0_i64];
    let mut end = 0;
    offsets.extend(lengths.map(|length| {
        end += length as i64;
        end
    }));
    bytes_of(offsets)
}
