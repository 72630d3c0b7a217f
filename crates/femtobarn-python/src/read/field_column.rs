//! One field of neighbouring objects, from which single values become Python objects.

use std::ops::Range;

use bytes::Bytes;
use femtobarn::FieldContent;
use pyo3::IntoPyObjectExt;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyString};
use rntuple::{Array, FieldValue, Primitive};

use crate::columns::tree_of;
use crate::error::exception;
use crate::numpy_arrays::array_of_numbers;
use crate::oid::PyOid;
use crate::read::object_fields::ObjectField;

/// The values of one field.
pub(crate) enum FieldColumn {
    Number(Primitive, Bytes),
    Text(ItemRanges, Bytes),
    Bytes(ItemRanges, Bytes),
    /// Lists of numbers.
    Numbers(ItemRanges, Primitive, Bytes),
    /// Database, container and entry.
    Link([Bytes; 3]),
    /// Any other type: a tree of buffers, which the Python package takes apart.
    Tree(Py<PyAny>),
}

/// The items of each value.
pub(crate) enum ItemRanges {
    Offsets(Bytes),
    Fixed(usize),
}

impl ItemRanges {
    /// The items of one value, checked to be within the first `count`.
    fn within(&self, index: usize, count: usize) -> PyResult<Range<usize>> {
        let range = match self {
            ItemRanges::Fixed(size) => index * size..(index + 1) * size,
            ItemRanges::Offsets(offsets) => {
                let end = |index| item(offsets, index).map(|end| i64::from_le_bytes(end) as usize);
                end(index).ok_or_else(short)?..end(index + 1).ok_or_else(short)?
            }
        };
        if range.start <= range.end && range.end <= count { Ok(range) } else { Err(short()) }
    }
}

impl FieldColumn {
    /// The values of a field.
    ///
    /// # Errors
    /// If Python is out of memory.
    pub(crate) fn new(py: Python<'_>, array: Array, field: &ObjectField) -> PyResult<Self> {
        if field.has_meaning {
            return Ok(FieldColumn::Tree(tree_of(py, array)?.into_any().unbind()));
        }
        Ok(match array {
            Array::Primitive { primitive, values } => FieldColumn::Number(primitive, values),
            Array::String { offsets, bytes } => {
                FieldColumn::Text(ItemRanges::Offsets(offsets), bytes)
            }
            Array::List { offsets, content, optional: false } if is_primitive(&content) => {
                Self::of_numbers(ItemRanges::Offsets(offsets), *content)
            }
            Array::Fixed { size, content, .. } if is_primitive(&content) => {
                Self::of_numbers(ItemRanges::Fixed(size as usize), *content)
            }
            other => match field.is_link.then(|| link_of(&other)).flatten() {
                Some(members) => FieldColumn::Link(members),
                None => FieldColumn::Tree(tree_of(py, other)?.into_any().unbind()),
            },
        })
    }

    fn of_numbers(ranges: ItemRanges, content: Array) -> Self {
        match (ranges, content) {
            (
                ItemRanges::Offsets(offsets),
                Array::Primitive { primitive: Primitive::Byte, values },
            ) => FieldColumn::Bytes(ItemRanges::Offsets(offsets), values),
            (ranges, Array::Primitive { primitive, values }) => {
                FieldColumn::Numbers(ranges, primitive, values)
            }
            (ranges, _) => FieldColumn::Numbers(ranges, Primitive::Byte, Bytes::new()),
        }
    }

    /// One value of the object `owner` as a Python object.
    ///
    /// # Errors
    /// `CorruptError` if the column has too few values.
    pub(crate) fn value<'py>(
        &self,
        py: Python<'py>,
        index: usize,
        view: &Bound<'py, PyAny>,
        name: &Bound<'py, PyString>,
        owner: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        match self {
            FieldColumn::Number(primitive, values) => number(py, *primitive, values, index),
            FieldColumn::Text(ranges, bytes) => {
                let range = ranges.within(index, bytes.len())?;
                Ok(text(py, &bytes[range]))
            }
            FieldColumn::Bytes(ranges, bytes) => {
                let range = ranges.within(index, bytes.len())?;
                Ok(PyBytes::new(py, &bytes[range]).into_any())
            }
            FieldColumn::Numbers(ranges, primitive, values) => {
                let size = primitive.size();
                let items = ranges.within(index, values.len() / size)?;
                array_of_numbers(py, *primitive, values.slice(items.start * size..items.end * size))
            }
            FieldColumn::Link(members) => link(py, members, index, view),
            FieldColumn::Tree(tree) => {
                view.call_method1(intern!(py, "_value_of"), (name, tree, index, owner))
            }
        }
    }
}

/// The content of a field as a Python object.
///
/// # Errors
/// If Python is out of memory.
#[inline]
pub(crate) fn python_of<'py>(
    py: Python<'py>,
    content: FieldContent,
    view: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyAny>> {
    match content {
        FieldContent::Plain(FieldValue::Number(primitive, bytes)) => {
            number(py, primitive, &bytes, 0)
        }
        FieldContent::Plain(FieldValue::Text(bytes)) => Ok(text(py, &bytes)),
        FieldContent::Plain(FieldValue::List(Primitive::Byte, bytes)) => {
            Ok(PyBytes::new(py, &bytes).into_any())
        }
        FieldContent::Plain(FieldValue::List(of, items) | FieldValue::Fixed(of, items)) => {
            array_of_numbers(py, of, items)
        }
        FieldContent::Link(None) => Ok(py.None().into_bound(py)),
        FieldContent::Link(Some(oid)) => {
            let (database, container) = (oid.database.0, oid.container.0);
            link_to(view, PyOid { database, container, entry: oid.entry })
        }
    }
}

fn is_primitive(array: &Array) -> bool {
    matches!(array, Array::Primitive { .. })
}

/// The members of links to objects.
fn link_of(links: &Array) -> Option<[Bytes; 3]> {
    let values = |name| match links.member(name)? {
        Array::Primitive { values, .. } => Some(values.clone()),
        _ => None,
    };
    Some([values("database")?, values("container")?, values("entry")?])
}

fn link<'py>(
    py: Python<'py>,
    [database, container, entry]: &[Bytes; 3],
    index: usize,
    view: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyAny>> {
    let oid = PyOid {
        database: u32::from_le_bytes(item(database, index).ok_or_else(short)?),
        container: u32::from_le_bytes(item(container, index).ok_or_else(short)?),
        entry: u64::from_le_bytes(item(entry, index).ok_or_else(short)?),
    };
    match oid.container {
        0 => Ok(py.None().into_bound(py)),
        _ => link_to(view, oid),
    }
}

fn link_to<'py>(view: &Bound<'py, PyAny>, oid: PyOid) -> PyResult<Bound<'py, PyAny>> {
    view.call_method1(intern!(view.py(), "_link_to"), (oid,))
}

/// Bytes that are not UTF-8 are replaced.
fn text<'py>(py: Python<'py>, bytes: &[u8]) -> Bound<'py, PyAny> {
    PyString::new(py, &String::from_utf8_lossy(bytes)).into_any()
}

fn item<const SIZE: usize>(values: &[u8], index: usize) -> Option<[u8; SIZE]> {
    values.get(index * SIZE..(index + 1) * SIZE)?.first_chunk().copied()
}

fn short() -> PyErr {
    exception("corrupt", "a column has fewer values than there are objects".to_owned())
}

/// A number as a Python `bool`, `int` or `float`.
fn number<'py>(
    py: Python<'py>,
    primitive: Primitive,
    values: &[u8],
    index: usize,
) -> PyResult<Bound<'py, PyAny>> {
    macro_rules! of {
        ($type:ty) => {
            <$type>::from_le_bytes(item(values, index).ok_or_else(short)?)
        };
    }
    match primitive {
        Primitive::Bool => (of!(u8) != 0).into_bound_py_any(py),
        Primitive::Byte | Primitive::Char | Primitive::UInt8 => of!(u8).into_bound_py_any(py),
        Primitive::Int8 => of!(i8).into_bound_py_any(py),
        Primitive::Int16 => of!(i16).into_bound_py_any(py),
        Primitive::UInt16 => of!(u16).into_bound_py_any(py),
        Primitive::Int32 => of!(i32).into_bound_py_any(py),
        Primitive::UInt32 => of!(u32).into_bound_py_any(py),
        Primitive::Int64 => of!(i64).into_bound_py_any(py),
        Primitive::UInt64 => of!(u64).into_bound_py_any(py),
        Primitive::Float32 => f64::from(of!(f32)).into_bound_py_any(py),
        Primitive::Float64 => of!(f64).into_bound_py_any(py),
    }
}
