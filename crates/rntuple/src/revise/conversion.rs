//! [`Conversion`] of arrays from one type to another, such as new data to an old class.
//!
//! Unlike a version of an RNTuple, an array is in memory as a whole. So it can be converted to a type that
//! does not fit all values of the old one; an error names the first value that does not fit.

use super::fill::single;
use super::numbers::converted;
use super::plan::{EvolutionPlan, FieldChange, Map, MemberMap, NewMember, described, plan_with};
use crate::array::{Array, bytes_of, values_of};
use crate::error::{Error, Result};
use crate::types::{Primitive, Type};

/// Converts arrays of one record type to another, by all changes that [`plan`](crate::plan) allows and
/// these: numbers become narrower ones of equal value (real numbers may be rounded to single precision), a
/// list or optional value of exactly one item becomes that item, a list of at most one item an optional
/// value, and a list of the right length an array.
#[derive(Clone, Debug, PartialEq)]
pub struct Conversion {
    old: Type,
    plan: EvolutionPlan,
}

/// Converts an array of records of type `from` to records with these members; see [`Conversion`].
///
/// # Errors
/// [`Error::Invalid`] with the field and the reason if a type cannot be converted or a value does not fit.
pub fn convert_array(array: &Array, from: &Type, members: &[NewMember]) -> Result<Array> {
    Conversion::new(from, members)?.apply(array)
}

impl Conversion {
    /// Plans the conversion of records of type `old` to records with these members.
    ///
    /// # Errors
    /// [`Error::Invalid`] with the field, both types and the reason if a type cannot be converted.
    pub fn new(old: &Type, members: &[NewMember]) -> Result<Self> {
        Ok(Conversion { old: old.clone(), plan: plan_with(old, members, true)? })
    }

    /// The changes of fields; unchanged fields are not listed.
    pub fn changes(&self) -> &[FieldChange] {
        self.plan.changes()
    }

    /// The new members and their types.
    pub fn members(&self) -> &[(String, Type)] {
        self.plan.members()
    }

    /// Converts an array of the old type.
    ///
    /// # Errors
    /// [`Error::Invalid`] with the first value that does not fit, or if the array does not have the old
    /// type.
    pub fn apply(&self, array: &Array) -> Result<Array> {
        let Type::Record { members: old, .. } = &self.old else { return Err(unlike(&[])) };
        members(&self.plan.maps, array, old, &self.plan.members, &mut vec![])
    }
}

fn members<'m>(
    maps: &'m [MemberMap],
    array: &Array,
    old: &[(String, Type)],
    new: &[(String, Type)],
    path: &mut Vec<&'m str>,
) -> Result<Array> {
    let mut made = Vec::with_capacity(maps.len());
    for (map, (name, of)) in maps.iter().zip(new) {
        path.push(&map.name);
        let found = if map.source.is_empty() {
            default(&map.map, of, array.len(), path)?
        } else {
            let (found, from) = source(&map.source, array, old).ok_or_else(|| unlike(path))?;
            converted_by(&map.map, found, from, of, path)?
        };
        made.push((name.clone(), found));
        path.pop();
    }
    Ok(Array::Record { length: array.len(), members: made })
}

/// The member at a path of positions through records.
fn source<'a, 't>(
    positions: &[usize],
    array: &'a Array,
    of: &'t [(String, Type)],
) -> Option<(&'a Array, &'t Type)> {
    let (&first, rest) = positions.split_first()?;
    let (name, of) = of.get(first)?;
    let array = array.member(name)?;
    match (rest.is_empty(), of) {
        (true, _) => Some((array, of)),
        (false, Type::Record { members, .. }) => source(rest, array, members),
        _ => None,
    }
}

fn default(map: &Map, of: &Type, length: usize, path: &[&str]) -> Result<Array> {
    let Map::Default(value) = map else { return Err(unlike(path)) };
    single(of, value)?.take(&vec![0; length])
}

fn converted_by<'m>(
    map: &'m Map,
    array: &Array,
    old: &Type,
    new: &Type,
    path: &mut Vec<&'m str>,
) -> Result<Array> {
    match (map, old, new) {
        (Map::Keep, ..) => Ok(array.clone()),
        (Map::Default(_), ..) => default(map, new, array.len(), path),
        (Map::Widen(_) | Map::Number, ..) => numbers(array, new, path),
        (
            Map::Members(maps),
            Type::Record { members: old, .. },
            Type::Record { members: of, .. },
        ) => members(maps, array, old, of, path),
        (Map::Alternatives(maps), Type::Variant(old), Type::Variant(new)) => {
            alternatives(maps, array, old, new, path)
        }
        (Map::Wrap(map), _, Type::List(item) | Type::Optional(item)) => {
            let offsets: Vec<i64> = (0..=array.len() as i64).collect();
            let content = converted_by(map, array, old, item, path)?.into();
            let optional = matches!(new, Type::Optional(_));
            Ok(Array::List { offsets: bytes_of(offsets), content, optional })
        }
        (Map::Items(map), Type::Array { item: old, size }, Type::Array { item, .. }) => {
            let (length, content) = fixed(array, *size, path)?;
            let content = converted_by(map, &content, old, item, path)?.into();
            Ok(Array::Fixed { size: *size, length, content })
        }
        (Map::Loosen(map), Type::Array { item: old, size }, Type::List(item)) => {
            let (length, content) = fixed(array, *size, path)?;
            let offsets: Vec<i64> = (0..=length as i64).map(|at| at * *size as i64).collect();
            let content = converted_by(map, &content, old, item, path)?.into();
            Ok(Array::List { offsets: bytes_of(offsets), content, optional: false })
        }
        (_, Type::List(old) | Type::Optional(old), _) => of_lists(map, array, old, new, path),
        _ => Err(unlike(path)),
    }
}

/// Converts lists and optional values with items of type `old`.
fn of_lists<'m>(
    map: &'m Map,
    array: &Array,
    old: &Type,
    new: &Type,
    path: &mut Vec<&'m str>,
) -> Result<Array> {
    let (offsets, content) = lists(array, path)?;
    match (map, new) {
        (Map::Items(map), Type::List(item) | Type::Optional(item))
        | (Map::AtMostOne(map), Type::Optional(item)) => {
            let optional = matches!(new, Type::Optional(_));
            if optional {
                check_sizes(&offsets, |size| size <= 1, "at most one", path)?;
            }
            let content = converted_by(map, &content, old, item, path)?.into();
            Ok(Array::List { offsets: bytes_of(offsets), content, optional })
        }
        (Map::Fix(map), Type::Array { item, size }) => {
            let length = offsets.len() - 1;
            let fits = |items| u64::try_from(items).is_ok_and(|items| items == *size);
            check_sizes(&offsets, fits, &size.to_string(), path)?;
            let content = converted_by(map, &content, old, item, path)?.into();
            Ok(Array::Fixed { size: *size, length, content })
        }
        (Map::Unwrap(map), _) => {
            check_sizes(&offsets, |size| size == 1, "one", path)?;
            converted_by(map, &content, old, new, path)
        }
        _ => Err(unlike(path)),
    }
}

fn check_sizes(
    offsets: &[i64],
    fits: impl Fn(i64) -> bool,
    wanted: &str,
    path: &[&str],
) -> Result<()> {
    let mut sizes = offsets.windows(2).map(|pair| pair[1] - pair[0]);
    match sizes.clone().position(|size| !fits(size)) {
        None => Ok(()),
        Some(position) => {
            let size = sizes.nth(position).unwrap_or(0);
            Err(invalid(path, &format!("value {position} has {size} items, not {wanted}")))
        }
    }
}

fn numbers(array: &Array, new: &Type, path: &[&str]) -> Result<Array> {
    let (Type::Primitive(to) | Type::Reduced(to, _), Array::Primitive { primitive, values }) =
        (new, array)
    else {
        return Err(unlike(path));
    };
    let misfit = |position: usize| match array.value(position) {
        Ok(value) => {
            let (of, number) = (described(new), value.as_float().unwrap_or(f64::NAN));
            let number = value.as_integer().map_or(number.to_string(), |whole| whole.to_string());
            invalid(path, &format!("{number}, value {position}, is not a {of}"))
        }
        Err(error) => error,
    };
    let rounds = matches!(to, Primitive::Float32);
    let values = converted(*primitive, values, *to, rounds)?.map_err(misfit)?;
    let made = Array::Primitive { primitive: *to, values };
    made.validate(new).map_err(|error| invalid(path, &error.to_string()))?;
    Ok(made)
}

fn alternatives<'m>(
    maps: &'m [Map],
    array: &Array,
    old: &[Type],
    new: &[Type],
    path: &mut Vec<&'m str>,
) -> Result<Array> {
    let Array::Variant { tags, positions, contents } = array else { return Err(unlike(path)) };
    let mut made = Vec::with_capacity(maps.len());
    for (at, (map, of)) in maps.iter().zip(new).enumerate() {
        made.push(match (contents.get(at), old.get(at)) {
            (Some(content), Some(old)) => converted_by(map, content, old, of, path)?,
            _ => default(map, of, 0, path)?,
        });
    }
    Ok(Array::Variant { tags: tags.clone(), positions: positions.clone(), contents: made })
}

/// Offsets that start at 0, and only the items that they refer to.
fn lists(array: &Array, path: &[&str]) -> Result<(Vec<i64>, Array)> {
    let Array::List { offsets, content, .. } = array else { return Err(unlike(path)) };
    let offsets = values_of::<i64>(offsets)?;
    let (Some(&first), Some(&last)) = (offsets.first(), offsets.last()) else {
        return Err(unlike(path));
    };
    let rises = first >= 0 && offsets.windows(2).all(|pair| pair[0] <= pair[1]);
    if !rises || last > content.len() as i64 {
        return Err(invalid(path, "the offsets of a list do not fit its items"));
    }
    let offsets = offsets.iter().map(|offset| offset - first).collect();
    Ok((offsets, part(content, first as usize, last as usize)?))
}

/// The number of arrays of `size` items, and their items.
fn fixed(array: &Array, size: u64, path: &[&str]) -> Result<(usize, Array)> {
    let Array::Fixed { size: found, length, content } = array else { return Err(unlike(path)) };
    let items = usize::try_from(size).ok().and_then(|size| size.checked_mul(*length));
    let items = items.filter(|&items| *found == size && items <= content.len());
    Ok((*length, part(content, 0, items.ok_or_else(|| unlike(path))?)?))
}

fn part(array: &Array, start: usize, end: usize) -> Result<Array> {
    if (start, end) == (0, array.len()) {
        Ok(array.clone())
    } else {
        array.take(&(start..end).collect::<Vec<_>>())
    }
}

fn unlike(path: &[&str]) -> Error {
    invalid(path, "the array does not have the old type of the conversion")
}

fn invalid(path: &[&str], reason: &str) -> Error {
    Error::invalid(format!("field {:?}: {reason}", path.join(".")))
}
