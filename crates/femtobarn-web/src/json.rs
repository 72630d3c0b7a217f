//! JSON for the page: for people, who look at the beginning of a list, and for JavaScript, whose numbers are doubles.

use std::fmt::Write;

use rntuple::Value;

/// Items of a list that are shown, at most.
const ITEMS_MAX: usize = 20;
/// The greatest integer up to which all integers are doubles.
const EXACT_MAX: u64 = 1 << 53;

/// Appends a value. Integers that a double cannot hold, infinities and NaN are written as texts, and so is the last
/// item of a truncated list.
pub(crate) fn push_value(out: &mut String, value: &Value) {
    match value {
        Value::Null => out.push_str("null"),
        Value::Int(value) if value.unsigned_abs() > EXACT_MAX => push_text(out, &value.to_string()),
        Value::UInt(value) if *value > EXACT_MAX => push_text(out, &value.to_string()),
        Value::Bool(value) => push(out, value),
        Value::Int(value) => push(out, value),
        Value::UInt(value) => push(out, value),
        // Debug format writes an exponent where necessary, in the form of JSON.
        Value::Float(value) if value.is_finite() => push(out, &format!("{value:?}")),
        Value::Float(value) => push_text(out, &value.to_string()),
        Value::String(text) => push_text(out, text),
        Value::Bytes(bytes) => push_cut(out, bytes.len(), bytes.iter(), push),
        Value::List(items) => push_cut(out, items.len(), items.iter(), push_value),
        Value::Record(members) => push_record(out, members),
        Value::Variant(_, value) => push_value(out, value),
    }
}

/// Appends a text in quotes.
pub(crate) fn push_text(out: &mut String, text: &str) {
    out.push('"');
    for character in text.chars() {
        match character {
            '"' | '\\' => out.extend(['\\', character]),
            '\0'..' ' => push(out, &format!("\\u{:04x}", u32::from(character))),
            _ => out.push(character),
        }
    }
    out.push('"');
}

/// Appends a list.
pub(crate) fn push_list<T>(
    out: &mut String,
    items: impl Iterator<Item = T>,
    push_item: impl Fn(&mut String, T),
) {
    out.push('[');
    for (at, item) in items.enumerate() {
        if at > 0 {
            out.push(',');
        }
        push_item(out, item);
    }
    out.push(']');
}

fn push_record(out: &mut String, members: &[(String, Value)]) {
    out.push('{');
    for (at, (name, value)) in members.iter().enumerate() {
        if at > 0 {
            out.push(',');
        }
        push_text(out, name);
        out.push(':');
        push_value(out, value);
    }
    out.push('}');
}

fn push_cut<T>(
    out: &mut String,
    length: usize,
    items: impl Iterator<Item = T>,
    push_item: impl Fn(&mut String, T),
) {
    push_list(out, items.take(ITEMS_MAX), push_item);
    if length > ITEMS_MAX {
        out.pop();
        out.push(',');
        push_text(out, &format!("… {} more", length - ITEMS_MAX));
        out.push(']');
    }
}

/// Appends a value whose printed form is JSON.
pub(crate) fn push(out: &mut String, it: &impl std::fmt::Display) {
    // Writing to a string cannot fail.
    let _ = write!(out, "{it}");
}
