//! [`Numbers`]: the numbers of a field at any depth of lists and records, object by object.

use rntuple::{Array, Error, Primitive, Result, Type, values_of};

/// The part of a path that stands for the number of items of a list.
const COUNT: &str = "#";

/// Numbers of a field of some objects. Integers beyond 2^53 are rounded.
#[derive(Debug, Default, PartialEq)]
pub struct Numbers {
    /// The numbers of all objects, back to back; NaN for a missing optional number.
    pub values: Vec<f64>,
    /// The position of each object's first number, and at the end the number of values.
    pub offsets: Vec<u32>,
    /// For each number 1 if it is missing, otherwise 0; empty if none is missing.
    pub missing: Vec<u8>,
}

/// A field that has numbers.
pub(crate) struct NumericPath {
    /// Names, joined by dots; `tracks.#` is the number of items of a list.
    pub(crate) path: String,
    /// The fields that are lists around each number, from the outermost to the innermost; empty if an object has one
    /// number.
    pub(crate) lists: Vec<String>,
    /// Whether the numbers are truth values.
    pub(crate) is_truth: bool,
}

/// All fields that have numbers.
pub(crate) fn numeric_paths(members: &[(String, Type)]) -> Vec<NumericPath> {
    let mut paths = vec![];
    members.iter().for_each(|(name, of)| add_paths(name, of, &[], &mut paths));
    paths
}

fn add_paths(path: &str, of: &Type, lists: &[String], paths: &mut Vec<NumericPath>) {
    let within = || [lists, &[path.to_owned()]].concat();
    let mut add = |path: String, lists: Vec<String>, is_truth: bool| {
        paths.push(NumericPath { path, lists, is_truth });
    };
    match of {
        Type::Primitive(primitive) => {
            add(path.to_owned(), lists.to_vec(), *primitive == Primitive::Bool);
        }
        Type::Reduced(..) | Type::Cardinality(_) => add(path.to_owned(), lists.to_vec(), false),
        Type::Bitset { .. } => add(path.to_owned(), within(), true),
        Type::List(item) => {
            // Of lists of lists, only the outermost gets a count.
            if lists.last().is_none_or(|last| last != path) {
                add(format!("{path}.{COUNT}"), lists.to_vec(), false);
            }
            add_paths(path, item, &within(), paths);
        }
        Type::Array { item, .. } => add_paths(path, item, &within(), paths),
        Type::Optional(item) => add_paths(path, item, lists, paths),
        Type::Record { members, .. } => members
            .iter()
            .for_each(|(name, of)| add_paths(&format!("{path}.{name}"), of, lists, paths)),
        Type::String | Type::Variant(_) => {}
    }
}

impl Numbers {
    /// The numbers of the only leaf of an array, object by object, without the objects that `is_kept` refuses.
    pub(crate) fn of(array: &Array, is_kept: impl Fn(usize) -> bool) -> Result<Self> {
        let Leaf { values, missing, ends } = leaf(array, identity(array.len()))?;
        let mut numbers = Numbers { offsets: vec![0], ..Numbers::default() };
        for (object, end) in ends.windows(2).enumerate().filter(|(object, _)| is_kept(*object)) {
            let range = end[0] as usize..end[1] as usize;
            let own = values
                .get(range.clone())
                .ok_or_else(|| invalid(format!("the items of object {object} are missing")))?;
            numbers.values.extend_from_slice(own);
            numbers.missing.extend_from_slice(missing.get(range).unwrap_or_default());
            numbers.offsets.push(numbers.values.len() as u32);
        }
        Ok(numbers)
    }
}

/// The numbers of the leaf of an array.
struct Leaf {
    values: Vec<f64>,
    /// As in [`Numbers`].
    missing: Vec<u8>,
    /// The range of each object's numbers, as offsets.
    ends: Vec<i64>,
}

/// The leaf of an array; `ends` has the range of each object in `array` itself.
fn leaf(array: &Array, mut ends: Vec<i64>) -> Result<Leaf> {
    match array {
        Array::Primitive { primitive, values } => {
            Ok(Leaf { values: floats(*primitive, values)?, missing: vec![], ends })
        }
        Array::List { offsets, content, optional } => {
            let offsets = values_of::<i64>(offsets)?;
            if is_empty_record(content) {
                let counts = offsets.windows(2).map(|pair| (pair[1] - pair[0]) as f64);
                return Ok(Leaf { values: counts.collect(), missing: vec![], ends });
            }
            if *optional && has_one_number(content) {
                let present = leaf(content, identity(content.len()))?;
                let (values, missing) = spread(offsets, &present)?;
                return Ok(Leaf { values, missing, ends });
            }
            for end in &mut ends {
                *end = offsets.get(*end as usize).copied().unwrap_or(-1);
            }
            leaf(content, ends)
        }
        Array::Fixed { size, content, .. } => {
            ends.iter_mut().for_each(|end| *end *= *size as i64);
            leaf(content, ends)
        }
        Array::Record { members, .. } => match &members[..] {
            [(_, member)] => leaf(member, ends),
            _ => Err(invalid("a record is not a number: name one of its members")),
        },
        Array::String { .. } | Array::Variant { .. } => Err(invalid("the field has no numbers")),
    }
}

/// Optional numbers, with a place for each missing one.
fn spread(offsets: &[i64], present: &Leaf) -> Result<(Vec<f64>, Vec<u8>)> {
    let place = |pair: &[i64]| -> Result<(f64, u8)> {
        if pair[0] >= pair[1] {
            return Ok((f64::NAN, 1));
        }
        let at = pair[0] as usize;
        let value =
            present.values.get(at).ok_or_else(|| invalid("an optional value is missing"))?;
        Ok((*value, present.missing.get(at).copied().unwrap_or(0)))
    };
    let (values, missing): (Vec<f64>, Vec<u8>) =
        offsets.windows(2).map(place).collect::<Result<Vec<_>>>()?.into_iter().unzip();
    let has_missing = missing.contains(&1);
    Ok((values, if has_missing { missing } else { vec![] }))
}

/// Whether each value of an array has one number, which may be missing.
fn has_one_number(array: &Array) -> bool {
    match array {
        Array::Primitive { .. } => true,
        Array::List { content, optional, .. } => {
            is_empty_record(content) || (*optional && has_one_number(content))
        }
        Array::Record { members, .. } => {
            matches!(&members[..], [(_, member)] if has_one_number(member))
        }
        Array::Fixed { .. } | Array::String { .. } | Array::Variant { .. } => false,
    }
}

/// Whether a list has this content because only its items are counted.
fn is_empty_record(content: &Array) -> bool {
    matches!(content, Array::Record { members, .. } if members.is_empty())
}

/// The offsets of `length` values, one per object.
fn identity(length: usize) -> Vec<i64> {
    (0..=length as i64).collect()
}

fn floats(primitive: Primitive, values: &[u8]) -> Result<Vec<f64>> {
    use Primitive::*;
    Ok(match primitive {
        Bool | Byte | Char | UInt8 => values.iter().map(|&it| it.into()).collect(),
        Int8 => values_of::<i8>(values)?.iter().map(|&it| it.into()).collect(),
        Int16 => values_of::<i16>(values)?.iter().map(|&it| it.into()).collect(),
        UInt16 => values_of::<u16>(values)?.iter().map(|&it| it.into()).collect(),
        Int32 => values_of::<i32>(values)?.iter().map(|&it| it.into()).collect(),
        UInt32 => values_of::<u32>(values)?.iter().map(|&it| it.into()).collect(),
        Int64 => values_of::<i64>(values)?.iter().map(|&it| it as f64).collect(),
        UInt64 => values_of::<u64>(values)?.iter().map(|&it| it as f64).collect(),
        Float32 => values_of::<f32>(values)?.iter().map(|&it| it.into()).collect(),
        Float64 => values_of::<f64>(values)?.to_vec(),
    })
}

pub(crate) fn invalid(what: impl Into<String>) -> Error {
    Error::Invalid { what: what.into() }
}
