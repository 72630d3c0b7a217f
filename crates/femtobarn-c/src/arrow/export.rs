//! Arrays as Arrow's C structures. Numbers, texts and offsets are shared, not copied; truth values become bits, and
//! optional values get their places back.

use std::ffi::c_void;
use std::ptr;

use bytes::Bytes;
use femtobarn::Result;
use rntuple::{Array, Primitive, bytes_of, values_of};

use super::abi::ArrowArray;
use crate::status::invalid;

/// The memory that an exported array owns.
struct ExportedArray {
    buffers: Vec<*const c_void>,
    _owners: Vec<Bytes>,
    children: Vec<*mut ArrowArray>,
}

/// An array as the interface has it.
///
/// # Errors
/// `Invalid` if a buffer is misaligned, or a variant has more than 2^31 values.
pub(crate) fn exported(array: Array) -> Result<ArrowArray> {
    let length = array.len();
    Ok(match array {
        Array::Primitive { primitive: Primitive::Bool, values } => {
            new(length, vec![None, Some(bits_of(values.iter().map(|value| *value != 0)))], vec![])
        }
        Array::Primitive { values, .. } => new(length, vec![None, Some(values)], vec![]),
        Array::String { offsets, bytes } => {
            new(length, vec![None, Some(offsets), Some(bytes)], vec![])
        }
        Array::List { offsets, content, optional: true } => optional(&offsets, *content)?,
        Array::List { offsets, content, .. } => {
            new(length, vec![None, Some(offsets)], vec![exported(*content)?])
        }
        Array::Fixed { content, .. } => new(length, vec![None], vec![exported(*content)?]),
        Array::Record { members, .. } => {
            let members = members.into_iter().map(|(_, member)| exported(member));
            new(length, vec![None], members.collect::<Result<_>>()?)
        }
        Array::Variant { tags, positions, contents } => variant(&tags, &positions, contents)?,
    })
}

/// Optional values: those that are missing get the place of a zero, and are marked.
fn optional(offsets: &[u8], content: Array) -> Result<ArrowArray> {
    let offsets = values_of::<i64>(offsets).map_err(misaligned)?;
    let (first, last) = (offsets[0] as usize, offsets[offsets.len() - 1] as usize);
    let length = offsets.len() - 1;
    let is_present = |at: usize| offsets[at + 1] > offsets[at];
    if last - first == length {
        return exported(content.take_runs(&[first..last]).map_err(misaligned)?);
    }
    let zero = content.len();
    let content = Array::concatenate(&[content.clone(), zero_like(&content)]);
    let places = (0..length).map(|at| if is_present(at) { offsets[at] as usize } else { zero });
    let spread = content.and_then(|content| content.take(&places.collect::<Vec<_>>()));
    let spread = spread.map_err(misaligned)?;
    // These mark the zero as missing themselves.
    let is_marked = matches!(spread, Array::List { optional: true, .. } | Array::Variant { .. });
    let mut array = exported(spread)?;
    if !is_marked {
        let validity = bits_of((0..length).map(is_present));
        array.null_count = (length - (last - first)) as i64;
        // SAFETY: `new` made the private data, and every array here begins with the place of a validity buffer.
        let owned = unsafe { &mut *array.private_data.cast::<ExportedArray>() };
        owned.buffers[0] = validity.as_ptr().cast();
        owned._owners.push(validity);
    }
    Ok(array)
}

/// One value of an array's type: zero, empty, or missing.
fn zero_like(array: &Array) -> Array {
    let offsets = || bytes_of(vec![0_i64; 2]);
    match array {
        Array::Primitive { primitive, .. } => {
            let values = bytes_of(vec![0_u64]).slice(..primitive.size());
            Array::Primitive { primitive: *primitive, values }
        }
        Array::String { .. } => Array::String { offsets: offsets(), bytes: Bytes::new() },
        Array::List { content, optional, .. } => {
            let content = content.take_runs(&[]).unwrap_or_else(|_| (**content).clone()).into();
            Array::List { offsets: offsets(), content, optional: *optional }
        }
        Array::Fixed { size, content, .. } => {
            let items = vec![zero_like(content); *size as usize];
            let content = Array::concatenate(&items).unwrap_or_else(|_| (**content).clone());
            Array::Fixed { size: *size, length: 1, content: content.into() }
        }
        Array::Record { members, .. } => {
            let zero = |(name, of): &(String, Array)| (name.clone(), zero_like(of));
            Array::Record { length: 1, members: members.iter().map(zero).collect() }
        }
        Array::Variant { contents, .. } => Array::Variant {
            tags: bytes_of(vec![-1_i8]),
            positions: bytes_of(vec![0_i64]),
            contents: contents.clone(),
        },
    }
}

/// A dense union. Variants without a value have the type code behind those of the alternatives.
fn variant(tags: &[u8], positions: &[u8], contents: Vec<Array>) -> Result<ArrowArray> {
    let none = contents.len() as i8;
    let tags: Vec<i8> =
        tags.iter().map(|&tag| if (tag as i8) < 0 { none } else { tag as i8 }).collect();
    let positions = values_of::<i64>(positions).map_err(misaligned)?;
    let narrow = |position: &i64| i32::try_from(*position);
    let positions: Vec<i32> =
        positions
            .iter()
            .map(narrow)
            .collect::<std::result::Result<_, _>>()
            .map_err(|_| invalid("a variant has too many values: read fewer entries at a time"))?;
    let mut children = contents.into_iter().map(exported).collect::<Result<Vec<_>>>()?;
    children.push(ArrowArray { null_count: 1, ..new(1, vec![], vec![]) });
    let length = tags.len();
    Ok(new(length, vec![Some(bytes_of(tags)), Some(bytes_of(positions))], children))
}

fn misaligned(error: rntuple::Error) -> femtobarn::Error {
    invalid(error.to_string())
}

/// Truth values as bits, the lowest first.
fn bits_of(values: impl ExactSizeIterator<Item = bool>) -> Bytes {
    let mut bits = vec![0_u8; values.len().div_ceil(8)];
    for (at, value) in values.enumerate() {
        bits[at / 8] |= u8::from(value) << (at % 8);
    }
    bits.into()
}

fn new(length: usize, owners: Vec<Option<Bytes>>, children: Vec<ArrowArray>) -> ArrowArray {
    let address =
        |owner: &Option<Bytes>| owner.as_ref().map_or(ptr::null(), |it| it.as_ptr().cast());
    let children = children.into_iter().map(|child| Box::into_raw(Box::new(child)));
    let mut owned = Box::new(ExportedArray {
        buffers: owners.iter().map(address).collect(),
        _owners: owners.into_iter().flatten().collect(),
        children: children.collect(),
    });
    ArrowArray {
        length: length as i64,
        n_buffers: owned.buffers.len() as i64,
        buffers: owned.buffers.as_mut_ptr(),
        n_children: owned.children.len() as i64,
        children: owned.children.as_mut_ptr(),
        release: Some(release),
        private_data: Box::into_raw(owned).cast(),
        ..ArrowArray::released()
    }
}

unsafe extern "C" fn release(array: *mut ArrowArray) {
    // SAFETY: the interface calls it once, with the array that refers to it; `new` made the array's private data.
    unsafe {
        let owned = Box::from_raw((*array).private_data.cast::<ExportedArray>());
        for &child in &owned.children {
            let mut child = Box::from_raw(child);
            if let Some(release) = child.release {
                release(&raw mut *child);
            }
        }
        (*array).release = None;
    }
}
