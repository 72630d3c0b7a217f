//! Keys of an index: values of fields encoded as bytes that sort as the values do.
//!
//! A key is the concatenation of its parts, so keys that start with the same values are neighbours:
//!
//! | part | bytes |
//! |---|---|
//! | integer, truth value | one byte, 128 plus the number n of bytes that follow, or 128 minus n for a negative number; then the magnitude, big-endian without leading zeros, with all bits inverted for a negative number |
//! | number | 8 bytes of a double, big-endian, with the sign bit inverted, or all bits if the sign bit was set; -0 is encoded as 0, and NaN as eight times 255 |
//! | text | its bytes, with each 0 as 0 255; then 0 0 |
//! | link | position of the database, container, entry, and element if it has one, as integers |
//!
//! The encoding of an integer or number does not depend on the width of its field, so keys stay valid when the
//! field is widened. A key is cut off after [`KEY_BYTES_MAX`] bytes, so a found entry is checked for the whole
//! key.

use rntuple::Value;

use crate::error::{Error, Result};

/// Length at which a key is cut off.
pub(crate) const KEY_BYTES_MAX: usize = 512;

/// The kind of a part of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeyKind {
    Integer,
    /// A number; `is_single` if it has single precision in memory.
    Number {
        is_single: bool,
    },
    Text,
    Link {
        to_element: bool,
    },
}

/// The members of a link, in the order of its key.
pub(crate) const LINK_MEMBERS: [&str; 4] = ["database", "container", "entry", "element"];

impl KeyKind {
    /// The members of a link that are encoded.
    pub(crate) fn link_members(self) -> &'static [&'static str] {
        match self {
            KeyKind::Link { to_element: true } => &LINK_MEMBERS,
            _ => &LINK_MEMBERS[..3],
        }
    }
}

/// Appends an integer of -2^63 to 2^64 - 1.
pub(crate) fn put_integer(out: &mut Vec<u8>, value: i128) {
    const ZERO: u8 = 128;
    let bytes = (value.unsigned_abs() as u64).to_be_bytes();
    let leading = bytes.iter().take_while(|byte| **byte == 0).count();
    let count = (bytes.len() - leading) as u8;
    if value < 0 {
        out.push(ZERO - count);
        out.extend(bytes[leading..].iter().map(|byte| !byte));
    } else {
        out.push(ZERO + count);
        out.extend_from_slice(&bytes[leading..]);
    }
}

pub(crate) fn put_number(out: &mut Vec<u8>, value: f64) {
    const SIGN: u64 = 1 << 63;
    let bits = match value {
        value if value.is_nan() => u64::MAX,
        0.0 => SIGN,
        value if value.to_bits() & SIGN != 0 => !value.to_bits(),
        value => value.to_bits() | SIGN,
    };
    out.extend_from_slice(&bits.to_be_bytes());
}

pub(crate) fn put_text(out: &mut Vec<u8>, text: &[u8]) {
    for &byte in text {
        out.push(byte);
        if byte == 0 {
            out.push(u8::MAX);
        }
    }
    out.extend_from_slice(&[0, 0]);
}

/// A key, cut off at [`KEY_BYTES_MAX`].
pub(crate) fn truncate(key: &[u8]) -> &[u8] {
    &key[..key.len().min(KEY_BYTES_MAX)]
}

/// Appends the encoding of a value to search for. `position` finds the position of a database among those that
/// the container links to; no object links to a database without one. False if no object can have the value.
///
/// # Errors
/// [`Error::Invalid`] if the value is not of the field's type.
pub(crate) fn put_value(
    out: &mut Vec<u8>,
    kind: KeyKind,
    name: &str,
    value: &Value,
    position: &dyn Fn(u32) -> Option<u32>,
) -> Result<bool> {
    let unlike =
        |what: &str| Error::invalid(format!("invalid value {value:?} for {name}: must be {what}"));
    match kind {
        KeyKind::Integer => {
            let of_float = |value: f64| (value.trunc() == value).then_some(value as i128);
            let integer = value.as_integer().or_else(|| value.as_float().and_then(of_float));
            let in_range = |value: &i128| (i64::MIN.into()..=u64::MAX.into()).contains(value);
            match integer {
                Some(integer) if in_range(&integer) => put_integer(out, integer),
                Some(_) => return Ok(false),
                None if value.as_float().is_some() => return Ok(false),
                None => return Err(unlike("an integer")),
            }
        }
        KeyKind::Number { is_single } => {
            let number = value.as_float().ok_or_else(|| unlike("a number"))?;
            put_number(out, if is_single { f64::from(number as f32) } else { number });
        }
        KeyKind::Text => match value {
            Value::String(text) => put_text(out, text.as_bytes()),
            _ => return Err(unlike("a text")),
        },
        KeyKind::Link { .. } => return put_link(out, kind, value, position, &unlike),
    }
    Ok(true)
}

/// Appends the encoding of a link to search for, which may leave out the element.
fn put_link(
    out: &mut Vec<u8>,
    kind: KeyKind,
    value: &Value,
    position: &dyn Fn(u32) -> Option<u32>,
    unlike: &dyn Fn(&str) -> Error,
) -> Result<bool> {
    for &name in kind.link_members() {
        let member = value.member(name).and_then(Value::as_integer);
        let Some(member) = member.and_then(|member| u64::try_from(member).ok()) else {
            match name {
                "element" => return Ok(true),
                _ => return Err(unlike("a link, a record of database, container and entry")),
            }
        };
        let number = match name {
            "database" => match u32::try_from(member).ok().and_then(position) {
                Some(position) => position.into(),
                None => return Ok(false),
            },
            _ => member,
        };
        put_integer(out, number.into());
    }
    Ok(true)
}

/// Decodes a part at the front of a key and removes it, for error texts; `None` if the key is cut off there.
pub(crate) fn show(kind: KeyKind, key: &mut &[u8]) -> Option<String> {
    Some(match kind {
        KeyKind::Integer => take_integer(key)?.to_string(),
        KeyKind::Number { .. } => {
            const SIGN: u64 = 1 << 63;
            let (bytes, rest) = key.split_first_chunk()?;
            *key = rest;
            let bits = u64::from_be_bytes(*bytes);
            f64::from_bits(if bits & SIGN == 0 { !bits } else { bits & !SIGN }).to_string()
        }
        KeyKind::Text => {
            let mut text = vec![];
            loop {
                let (&byte, rest) = key.split_first()?;
                *key = rest;
                if byte == 0 {
                    let (&escape, rest) = key.split_first()?;
                    *key = rest;
                    if escape == 0 {
                        break;
                    }
                }
                text.push(byte);
            }
            format!("{:?}", String::from_utf8_lossy(&text))
        }
        KeyKind::Link { .. } => {
            let members = kind.link_members().iter();
            let members = members.map(|_| Some(take_integer(key)?.to_string()));
            members.collect::<Option<Vec<_>>>()?.join("-")
        }
    })
}

fn take_integer(key: &mut &[u8]) -> Option<i128> {
    let (&front, rest) = key.split_first()?;
    let count = i16::from(front) - 128;
    let (bytes, rest) = rest.split_at_checked(usize::from(count.unsigned_abs()))?;
    *key = rest;
    let magnitude = |bytes: &mut dyn Iterator<Item = u8>| {
        bytes.fold(0_i128, |sum, byte| sum << 8 | i128::from(byte))
    };
    Some(if count < 0 {
        -magnitude(&mut bytes.iter().map(|byte| !byte))
    } else {
        magnitude(&mut bytes.iter().copied())
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn key(put: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
        let mut out = vec![];
        put(&mut out);
        out
    }

    #[test]
    fn keys_of_extreme_values_ascend() {
        let integers = [
            i64::MIN as i128,
            i64::MIN as i128 + 1,
            -65_537,
            -65_536,
            -257,
            -256,
            -255,
            -2,
            -1,
            0,
            1,
            2,
            255,
            256,
            65_535,
            65_536,
            i64::MAX as i128,
            u64::MAX as i128,
        ];
        let keys = integers.map(|value| key(|out| put_integer(out, value)));
        assert!(keys.is_sorted() && keys.windows(2).all(|pair| pair[0] != pair[1]), "{keys:?}");
        let numbers =
            [f64::NEG_INFINITY, -1.5, -1e-300, 0.0, 5e-324, 1.0, f64::MAX, f64::INFINITY, f64::NAN];
        let keys = numbers.map(|value| key(|out| put_number(out, value)));
        assert!(keys.is_sorted() && keys.windows(2).all(|pair| pair[0] != pair[1]), "{keys:?}");
        assert_eq!(key(|out| put_number(out, -0.0)), key(|out| put_number(out, 0.0)));
    }

    #[test]
    fn a_key_is_shown_as_its_values() {
        let mut bytes = key(|out| put_integer(out, -300));
        put_text(&mut bytes, b"a\0b");
        put_number(&mut bytes, -1.5);
        [0, 3, 1000].into_iter().for_each(|number| put_integer(&mut bytes, number));
        let mut rest = &bytes[..];
        let kinds = [
            KeyKind::Integer,
            KeyKind::Text,
            KeyKind::Number { is_single: false },
            KeyKind::Link { to_element: false },
        ];
        let shown = kinds.map(|kind| show(kind, &mut rest).unwrap());
        assert_eq!(shown, ["-300", "\"a\\0b\"", "-1.5", "0-3-1000"]);
        let mut cut = &bytes[..2];
        assert_eq!(show(KeyKind::Integer, &mut cut), None);
    }

    #[test]
    fn a_value_of_another_type_is_refused_and_one_out_of_range_not_found() {
        let put = |kind, value: Value| {
            let mut out = vec![];
            put_value(&mut out, kind, "run", &value, &|_| None).map(|can_be| can_be.then_some(out))
        };
        assert_eq!(
            put(KeyKind::Integer, Value::Float(2.0)).unwrap(),
            put(KeyKind::Integer, Value::Int(2)).unwrap()
        );
        assert_eq!(put(KeyKind::Integer, Value::Float(2.5)).unwrap(), None);
        assert_eq!(put(KeyKind::Integer, Value::Float(1e30)).unwrap(), None);
        assert!(put(KeyKind::Integer, Value::String("2".into())).is_err());
        assert!(put(KeyKind::Text, Value::UInt(2)).is_err());
        assert!(put(KeyKind::Number { is_single: true }, Value::Null).is_err());
        let single = put(KeyKind::Number { is_single: true }, Value::Float(0.1)).unwrap().unwrap();
        assert_eq!(single, key(|out| put_number(out, f64::from(0.1_f32))));
    }

    proptest! {
        #[test]
        fn keys_sort_as_their_values(
            a in (any::<i64>(), ".{0,3}", any::<u64>(), -1e3..1e3),
            b in (any::<i64>(), "[a\u{0}]{0,3}", any::<u64>(), -1e3..1e3),
            small in any::<bool>(),
        ) {
            let of = |value: &(i64, String, u64, f64)| key(|out| {
                put_integer(out, i128::from(if small { value.0 % 3 } else { value.0 }));
                put_text(out, value.1.as_bytes());
                put_integer(out, i128::from(if small { value.2 % 3 } else { value.2 }));
                put_number(out, value.3);
            });
            let plain = |value: &(i64, String, u64, f64)| (
                if small { value.0 % 3 } else { value.0 },
                value.1.clone().into_bytes(),
                if small { value.2 % 3 } else { value.2 },
                value.3,
            );
            prop_assert_eq!(of(&a).cmp(&of(&b)), plain(&a).partial_cmp(&plain(&b)).unwrap());
        }
    }
}
