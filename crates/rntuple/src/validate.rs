//! Validation of arrays against a type, before anything is written.

use crate::array::{Array, values_of};
use crate::error::{Error, Result};
use crate::types::{Precision, Primitive, Type};

impl Array {
    /// Checks that the array is well-formed and of type `of`. Records must have exactly the members of
    /// the type, in any order.
    ///
    /// # Errors
    /// [`Error::Invalid`] with the path of the member that does not fit, and the reason.
    pub fn validate(&self, of: &Type) -> Result<()> {
        fits(self, of, &mut vec![])
    }
}

fn fits<'t>(array: &Array, of: &'t Type, path: &mut Vec<&'t str>) -> Result<()> {
    match (of, array) {
        (
            Type::Primitive(expected) | Type::Reduced(expected, _),
            Array::Primitive { primitive, values },
        ) => {
            check(expected == primitive, path, || {
                format!("{} is not {}", primitive.cpp_name(), expected.cpp_name())
            })?;
            check(is_whole(*primitive, values), path, || "a buffer is misaligned".to_owned())?;
            fits_range(of, values, path)
        }
        (Type::String, Array::String { offsets, bytes }) => {
            fits_offsets(offsets, bytes.len(), path)
        }
        (Type::List(item), Array::List { offsets, content, .. }) => {
            fits_offsets(offsets, content.len(), path)?;
            fits(content, item, path)
        }
        (Type::Optional(item), Array::List { offsets, content, .. }) => {
            fits_offsets(offsets, content.len(), path)?;
            let single = values_of::<i64>(offsets)?.windows(2).all(|pair| pair[1] - pair[0] <= 1);
            check(single, path, || "an optional value has several items".to_owned())?;
            fits(content, item, path)
        }
        (Type::Array { item, size }, Array::Fixed { size: found, length, content }) => {
            fits_fixed(*size, *found, *length, content, path)?;
            fits(content, item, path)
        }
        (Type::Bitset { size }, Array::Fixed { size: found, length, content }) => {
            fits_fixed(*size, *found, *length, content, path)?;
            fits(content, BOOL, path)
        }
        (Type::Record { members, .. }, Array::Record { length, members: arrays }) => {
            fits_members(members, *length, arrays, path)
        }
        (Type::Variant(alternatives), Array::Variant { tags, positions, contents }) => {
            fits_variant(alternatives.len(), tags, positions, contents, path)?;
            alternatives.iter().zip(contents).try_for_each(|(of, content)| fits(content, of, path))
        }
        _ => check(false, path, || format!("the array is not {}", of.kind_name())),
    }
}

static BOOL: &Type = &Type::Primitive(Primitive::Bool);

fn fits_members<'t>(
    members: &'t [(String, Type)],
    length: usize,
    arrays: &[(String, Array)],
    path: &mut Vec<&'t str>,
) -> Result<()> {
    for (position, (name, array)) in arrays.iter().enumerate() {
        let known = members.iter().any(|(member, _)| member == name);
        check(known, path, || format!("unknown member {name:?}"))?;
        let twice = arrays[..position].iter().any(|(other, _)| other == name);
        check(!twice, path, || format!("duplicate member {name:?}"))?;
        check(array.len() == length, path, || {
            format!("member {name:?} has {} values, not {length}", array.len())
        })?;
    }
    for (name, of) in members {
        let array = arrays.iter().find(|(member, _)| member == name);
        path.push(name);
        match array {
            Some((_, array)) => fits(array, of, path)?,
            None => check(false, path, || "it is missing".to_owned())?,
        }
        path.pop();
    }
    Ok(())
}

fn fits_offsets(offsets: &[u8], items: usize, path: &[&str]) -> Result<()> {
    let offsets = values_of::<i64>(offsets)?;
    check(!offsets.is_empty(), path, || "a list has no offsets".to_owned())?;
    let rising = offsets[0] >= 0 && offsets.windows(2).all(|pair| pair[0] <= pair[1]);
    check(rising, path, || "the offsets of a list decrease".to_owned())?;
    let last = offsets[offsets.len() - 1];
    check(last <= items as i64, path, || format!("lists of {last} items have only {items}"))
}

fn fits_fixed(size: u64, found: u64, length: usize, content: &Array, path: &[&str]) -> Result<()> {
    check(size == found, path, || format!("arrays have {found} items, not {size}"))?;
    let items = (length as u64).checked_mul(size);
    check(items.is_some_and(|items| items <= content.len() as u64), path, || {
        format!("{length} arrays of {size} have only {} items", content.len())
    })
}

fn fits_variant(
    alternatives: usize,
    tags: &[u8],
    positions: &[u8],
    contents: &[Array],
    path: &[&str],
) -> Result<()> {
    check(contents.len() == alternatives, path, || {
        format!("a variant has {} alternatives, not {alternatives}", contents.len())
    })?;
    let (tags, positions) = (values_of::<i8>(tags)?, values_of::<i64>(positions)?);
    check(tags.len() == positions.len(), path, || "a variant lacks positions".to_owned())?;
    let exists = |(&tag, &position): (&i8, &i64)| match usize::try_from(tag) {
        Ok(chosen) => contents
            .get(chosen)
            .is_some_and(|content| position >= 0 && position < content.len() as i64),
        Err(_) => true,
    };
    check(tags.iter().zip(positions).all(exists), path, || {
        "a variant refers to a value that does not exist".to_owned()
    })
}

/// Checks that numbers of reduced precision are in range. Otherwise a quantised number would be refused
/// only when its page is full, and other numbers would become infinite.
fn fits_range(of: &Type, values: &[u8], path: &[&str]) -> Result<()> {
    let wrong = match of {
        // Every single precision number in memory fits.
        Type::Reduced(Primitive::Float32, Precision::Single | Precision::Truncated { .. }) => None,
        Type::Reduced(Primitive::Float64, precision) => {
            values_of::<f64>(values)?.iter().copied().find(|&x| !precision.holds(x))
        }
        Type::Reduced(_, precision) => {
            values_of::<f32>(values)?.iter().map(|&x| x.into()).find(|&x| !precision.holds(x))
        }
        _ => None,
    };
    match (wrong, of) {
        (Some(value), Type::Reduced(_, precision)) => {
            check(false, path, || precision.refusal(value))
        }
        _ => Ok(()),
    }
}

fn is_whole(primitive: Primitive, values: &[u8]) -> bool {
    let size = primitive.size();
    let aligned = values.is_empty() || (values.as_ptr() as usize).is_multiple_of(size);
    aligned && values.len().is_multiple_of(size)
}

fn check(holds: bool, path: &[&str], reason: impl FnOnce() -> String) -> Result<()> {
    match (holds, path.is_empty()) {
        (true, _) => Ok(()),
        (false, true) => Err(Error::invalid(reason())),
        (false, false) => Err(Error::invalid(format!("member {:?}: {}", path.join("."), reason()))),
    }
}
