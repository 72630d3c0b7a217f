//! [`Numbers`]: the numbers of a field at any depth of lists and records, object by object.

use rntuple::{Array, Error, Primitive, Result, Type, values_of};

/// In a path, the number of items of a list.
const COUNT: &str = "#";

/// Numbers of a field of some objects. Integers beyond 2^53 are rounded.
#[derive(Debug, Default, PartialEq)]
pub struct Numbers {
    /// Those of all objects, one after the other.
    pub values: Vec<f64>,
    /// For each object the position of its first number, and behind them the number of values.
    pub offsets: Vec<u32>,
}

/// The paths of all fields that have numbers; `tracks.#` is the number of items of a list.
pub(crate) fn numeric_paths(members: &[(String, Type)]) -> Vec<String> {
    let mut paths = vec![];
    members.iter().for_each(|(name, of)| add_paths(name, of, &mut paths));
    paths
}

fn add_paths(path: &str, of: &Type, paths: &mut Vec<String>) {
    match of {
        Type::Primitive(_) | Type::Reduced(..) | Type::Bitset { .. } | Type::Cardinality(_) => {
            paths.push(path.to_owned());
        }
        Type::List(item) => {
            let count = format!("{path}.{COUNT}");
            // Of lists of lists, the outer ones are counted.
            if paths.last() != Some(&count) {
                paths.push(count);
            }
            add_paths(path, item, paths);
        }
        Type::Array { item, .. } | Type::Optional(item) => add_paths(path, item, paths),
        Type::Record { members, .. } => {
            members.iter().for_each(|(name, of)| add_paths(&format!("{path}.{name}"), of, paths));
        }
        Type::String | Type::Variant(_) => {}
    }
}

impl Numbers {
    /// The numbers of the only leaf of an array, one object after the other but for those that `is_kept` refuses.
    pub(crate) fn of(array: &Array, is_kept: impl Fn(usize) -> bool) -> Result<Self> {
        let (values, ends) = leaf(array, (0..=array.len() as i64).collect())?;
        let mut numbers = Numbers { values: vec![], offsets: vec![0] };
        for (object, end) in ends.windows(2).enumerate().filter(|(object, _)| is_kept(*object)) {
            let own = values
                .get(end[0] as usize..end[1] as usize)
                .ok_or_else(|| invalid(format!("the items of object {object} are missing")))?;
            numbers.values.extend_from_slice(own);
            numbers.offsets.push(numbers.values.len() as u32);
        }
        Ok(numbers)
    }
}

/// The numbers of the leaf of an array, and where those of each object begin and end in it. `ends` are these positions in
/// `array` itself.
fn leaf(array: &Array, mut ends: Vec<i64>) -> Result<(Vec<f64>, Vec<i64>)> {
    match array {
        Array::Primitive { primitive, values } => Ok((floats(*primitive, values)?, ends)),
        Array::List { offsets, content, .. } => {
            let offsets = values_of::<i64>(offsets)?;
            if matches!(&**content, Array::Record { members, .. } if members.is_empty()) {
                let counts = offsets.windows(2).map(|pair| (pair[1] - pair[0]) as f64);
                return Ok((counts.collect(), ends));
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
            _ => Err(invalid("a record is no number: name one of its members")),
        },
        Array::String { .. } | Array::Variant { .. } => Err(invalid("the field has no numbers")),
    }
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
