//! [`Value`]: one value of any type, for entries that are read or written one at a time.

use bytes::Bytes;

use crate::array::{Array, values_of};
use crate::error::{Error, Result};
use crate::types::{Precision, Primitive, Type};

/// Most records without members in one value. No bytes are stored for such records, so the size of the
/// file does not bound the number that it claims.
const UNSTORED_MAX: usize = 1 << 20;

/// A value of one field of one entry.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs)]
pub enum Value {
    /// An absent optional value, or a variant without one.
    Null,
    Bool(bool),
    /// Signed integers.
    Int(i64),
    /// Unsigned integers.
    UInt(u64),
    /// Single and double precision numbers.
    Float(f64),
    String(String),
    /// A list of `Byte` or `UInt8`.
    Bytes(Bytes),
    List(Vec<Value>),
    Record(Vec<(String, Value)>),
    /// The number of the alternative, from 0 on, and its value.
    Variant(usize, Box<Value>),
}

impl Value {
    /// The default value of a type: zero, empty or absent.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a type whose arrays have more than a million items in all.
    pub fn zero(of: &Type) -> Result<Self> {
        const ITEMS_MAX: u64 = 1 << 20;
        match array_items(of) {
            Some(0..=ITEMS_MAX) => Ok(Self::zero_of(of)),
            _ => Err(Error::invalid(format!(
                "arrays of more than {ITEMS_MAX} items have no default"
            ))),
        }
    }

    fn zero_of(of: &Type) -> Self {
        match of {
            Type::Primitive(Primitive::Bool) => Value::Bool(false),
            Type::Primitive(primitive) => match primitive.integer_range() {
                Some(range) if *range.start() < 0 => Value::Int(0),
                Some(_) => Value::UInt(0),
                None => Value::Float(0.0),
            },
            Type::Reduced(_, Precision::Quantised { min, max, .. }) => {
                Value::Float(0.0_f64.max(*min).min(*max))
            }
            Type::Reduced(..) => Value::Float(0.0),
            Type::String => Value::String(String::new()),
            Type::List(_) => Value::List(vec![]),
            Type::Array { item, size } => Value::List(vec![Self::zero_of(item); *size as usize]),
            Type::Bitset { size } => Value::List(vec![Value::Bool(false); *size as usize]),
            Type::Record { members, .. } => Value::Record(
                members.iter().map(|(name, of)| (name.clone(), Self::zero_of(of))).collect(),
            ),
            Type::Optional(_) | Type::Variant(_) => Value::Null,
            Type::Cardinality(_) => Value::UInt(0),
        }
    }

    /// The number if the value is an integer; 0 or 1 if it is a truth value.
    pub fn as_integer(&self) -> Option<i128> {
        match self {
            Value::Bool(value) => Some((*value).into()),
            Value::Int(value) => Some((*value).into()),
            Value::UInt(value) => Some((*value).into()),
            _ => None,
        }
    }

    /// The number as a real number, if the value is a number or truth value.
    pub fn as_float(&self) -> Option<f64> {
        match self {
            Value::Float(value) => Some(*value),
            _ => self.as_integer().map(|value| value as f64),
        }
    }

    /// The member of a record by name.
    pub fn member(&self, name: &str) -> Option<&Value> {
        match self {
            Value::Record(members) => {
                members.iter().find(|(member, _)| member == name).map(|(_, value)| value)
            }
            _ => None,
        }
    }

    /// Checks that the value can be stored in a field of this type. Records must have the members of the
    /// type, in its order.
    ///
    /// # Errors
    /// [`Error::Invalid`] with the path of the member that does not fit, and the reason.
    pub fn check(&self, of: &Type) -> Result<()> {
        self.fits(of).map_err(|(path, reason)| {
            let path: Vec<String> = path.into_iter().rev().collect();
            Error::invalid(if path.is_empty() {
                reason
            } else {
                format!("member {:?}: {reason}", path.join("."))
            })
        })
    }

    fn fits(&self, of: &Type) -> std::result::Result<(), (Vec<String>, String)> {
        let unlike = |expected: &str| Err((vec![], format!("{self:?} is not {expected}")));
        match (of, self) {
            (Type::Primitive(primitive), _) => self.fits_primitive(*primitive),
            (Type::Reduced(primitive, precision), _) if self.as_float().is_some() => {
                let value = self.as_float().unwrap_or_default();
                let rounded = primitive.rounded(value);
                if precision.holds(rounded) && rounded.is_finite() == value.is_finite() {
                    Ok(())
                } else {
                    Err((vec![], precision.refusal(value)))
                }
            }
            (Type::String, Value::String(_)) => Ok(()),
            (Type::List(item), Value::Bytes(_)) if is_byte(item) => Ok(()),
            (Type::List(item), Value::List(items)) => items.iter().try_for_each(|v| v.fits(item)),
            (Type::Optional(_), Value::Null) | (Type::Variant(_), Value::Null) => Ok(()),
            (Type::Optional(item), some) => some.fits(item),
            (Type::Array { item, size }, Value::Bytes(bytes)) if is_byte(item) => {
                fits_size(bytes.len(), *size)
            }
            (Type::Array { item, size }, Value::List(items)) => {
                fits_size(items.len(), *size)?;
                items.iter().try_for_each(|value| value.fits(item))
            }
            (Type::Bitset { size }, Value::List(bits)) => {
                fits_size(bits.len(), *size)?;
                bits.iter().try_for_each(|bit| bit.fits_primitive(Primitive::Bool))
            }
            (Type::Record { members, .. }, Value::Record(values)) => fits_members(members, values),
            (Type::Variant(alternatives), Value::Variant(chosen, value)) => {
                match alternatives.get(*chosen) {
                    Some(alternative) => value.fits(alternative),
                    None => Err((vec![], format!("there is no alternative {chosen}"))),
                }
            }
            _ => unlike(of.kind_name()),
        }
    }

    fn fits_primitive(&self, of: Primitive) -> std::result::Result<(), (Vec<String>, String)> {
        let fits = match (of, self.as_integer()) {
            (Primitive::Float32 | Primitive::Float64, _) => self.as_float().is_some(),
            (Primitive::Bool, Some(value)) => (0..=1).contains(&value),
            (_, Some(value)) => of.integer_range().is_some_and(|range| range.contains(&value)),
            (_, None) => false,
        };
        if fits { Ok(()) } else { Err((vec![], format!("{self:?} is not a {}", of.cpp_name()))) }
    }
}

/// Items of the arrays in one value of a type, at least one; `None` if they exceed 64 bits.
fn array_items(of: &Type) -> Option<u64> {
    match of {
        Type::Array { item, size } => array_items(item)?.checked_mul(*size),
        Type::Bitset { size } => Some(*size),
        Type::Record { members, .. } => {
            members.iter().try_fold(1_u64, |sum, (_, of)| sum.checked_add(array_items(of)?))
        }
        _ => Some(1),
    }
}

fn is_byte(of: &Type) -> bool {
    matches!(of, Type::Primitive(Primitive::Byte | Primitive::UInt8 | Primitive::Char))
}

fn fits_size(length: usize, size: u64) -> std::result::Result<(), (Vec<String>, String)> {
    if length as u64 == size {
        Ok(())
    } else {
        Err((vec![], format!("it has {length} items, not {size}")))
    }
}

fn fits_members(
    members: &[(String, Type)],
    values: &[(String, Value)],
) -> std::result::Result<(), (Vec<String>, String)> {
    if !members.iter().map(|(name, _)| name).eq(values.iter().map(|(name, _)| name)) {
        let names: Vec<&str> = members.iter().map(|(name, _)| name.as_str()).collect();
        return Err((vec![], format!("the members are not {}", names.join(", "))));
    }
    members.iter().zip(values).try_for_each(|((name, of), (_, value))| {
        value.fits(of).map_err(|(mut path, reason)| {
            path.push(name.clone());
            (path, reason)
        })
    })
}

impl Array {
    /// The value at a position.
    ///
    /// # Errors
    /// [`Error::NotFound`] for a position beyond the end. Bytes of strings that are not UTF-8 become
    /// replacement characters.
    pub fn value(&self, position: usize) -> Result<Value> {
        self.part(position, &mut { UNSTORED_MAX })
    }

    /// The value at a position as a part of another value; `unstored` is the number of records without
    /// members that this value may still have.
    fn part(&self, position: usize, unstored: &mut usize) -> Result<Value> {
        if position >= self.len() {
            return Err(Error::NotFound {
                what: "position",
                name: position.to_string(),
                candidates: vec![format!("0..{}", self.len())],
            });
        }
        match self {
            Array::Primitive { primitive, values } => number(*primitive, values, position),
            Array::String { offsets, bytes } => {
                let range = range_of(offsets, position)?;
                let text = bytes.get(range).ok_or_else(short)?;
                Ok(Value::String(text_of(text)))
            }
            Array::List { offsets, content, optional } => {
                let range = range_of(offsets, position)?;
                match (optional, range.is_empty()) {
                    (true, true) => Ok(Value::Null),
                    (true, false) => content.part(range.start, unstored),
                    (false, _) => content.list(range, unstored),
                }
            }
            Array::Fixed { size, content, .. } => {
                let size = *size as usize;
                content.list(position * size..(position + 1) * size, unstored)
            }
            Array::Record { members, .. } => {
                let members = members.iter();
                let values = members
                    .map(|(name, array)| Ok((name.clone(), array.part(position, unstored)?)));
                Ok(Value::Record(values.collect::<Result<_>>()?))
            }
            Array::Variant { tags, positions, contents } => {
                let Ok(chosen) = usize::try_from(values_of::<i8>(tags)?[position]) else {
                    return Ok(Value::Null);
                };
                let position = values_of::<i64>(positions)?[position] as usize;
                let content = contents.get(chosen).ok_or_else(short)?;
                Ok(Value::Variant(chosen, content.part(position, unstored)?.into()))
            }
        }
    }

    fn list(&self, range: std::ops::Range<usize>, unstored: &mut usize) -> Result<Value> {
        let count = range.len();
        // Items for which no bytes are stored are counted here, all at once.
        let (parts, mut counted) = (self.unstored_parts(), usize::MAX);
        let unstored = match parts {
            None => unstored,
            Some(parts) => {
                let left = unstored.checked_sub(parts.saturating_mul(count));
                *unstored = left.ok_or_else(|| {
                    Error::invalid(format!("{count} records without members exceed {UNSTORED_MAX}"))
                })?;
                &mut counted
            }
        };
        match self {
            Array::Primitive { primitive: Primitive::Byte | Primitive::UInt8, values } => {
                if range.end > values.len() {
                    return Err(short());
                }
                Ok(Value::Bytes(values.slice(range)))
            }
            _ => Ok(Value::List(range.map(|at| self.part(at, unstored)).collect::<Result<_>>()?)),
        }
    }
}

impl Array {
    /// The number of records and arrays in each value, if it consists only of these and no bytes are
    /// stored for it; `None` if bytes are stored.
    fn unstored_parts(&self) -> Option<usize> {
        match self {
            Array::Record { members, .. } => members.iter().try_fold(1_usize, |sum, (_, array)| {
                Some(sum.saturating_add(array.unstored_parts()?))
            }),
            Array::Fixed { size, content, .. } => {
                let size = usize::try_from(*size).unwrap_or(usize::MAX);
                Some(content.unstored_parts()?.saturating_mul(size).saturating_add(1))
            }
            _ => None,
        }
    }
}

/// Text of a file; bytes that are not UTF-8 become replacement characters. Valid text is looked at in words, which
/// [`String::from_utf8_lossy`] does byte by byte.
pub(crate) fn text_of(bytes: &[u8]) -> String {
    match std::str::from_utf8(bytes) {
        Ok(text) => text.to_owned(),
        Err(_) => String::from_utf8_lossy(bytes).into_owned(),
    }
}

fn range_of(offsets: &[u8], position: usize) -> Result<std::ops::Range<usize>> {
    let offsets = values_of::<i64>(offsets)?;
    let (start, end) = (offsets[position], offsets[position + 1]);
    if start < 0 || end < start {
        return Err(short());
    }
    Ok(start as usize..end as usize)
}

fn number(of: Primitive, values: &[u8], at: usize) -> Result<Value> {
    Ok(match of {
        Primitive::Bool => Value::Bool(values[at] != 0),
        Primitive::Byte | Primitive::Char | Primitive::UInt8 => Value::UInt(values[at].into()),
        Primitive::Int8 => Value::Int((values[at] as i8).into()),
        Primitive::Int16 => Value::Int(values_of::<i16>(values)?[at].into()),
        Primitive::UInt16 => Value::UInt(values_of::<u16>(values)?[at].into()),
        Primitive::Int32 => Value::Int(values_of::<i32>(values)?[at].into()),
        Primitive::UInt32 => Value::UInt(values_of::<u32>(values)?[at].into()),
        Primitive::Int64 => Value::Int(values_of::<i64>(values)?[at]),
        Primitive::UInt64 => Value::UInt(values_of::<u64>(values)?[at]),
        Primitive::Float32 => Value::Float(values_of::<f32>(values)?[at].into()),
        Primitive::Float64 => Value::Float(values_of::<f64>(values)?[at]),
    })
}

fn short() -> Error {
    Error::invalid("the offsets of an array exceed its content")
}

#[cfg(test)]
mod tests {
    use super::text_of;

    #[test]
    fn bytes_that_are_not_text_are_replaced() {
        assert_eq!(text_of("η = 2.5".as_bytes()), "η = 2.5");
        assert_eq!(text_of(b"a \xff b \xce"), "a \u{fffd} b \u{fffd}");
    }
}
