//! Conversion of columns between trees of tuples with buffers on the Python side
//! (`python/femtobarn/_data/arrays.py` describes them) and [`rntuple::Array`].

use bytes::Bytes;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyTuple};
use rntuple::{Array, Primitive, values_of};

use crate::buffer::{Buffer, bytes_of};

/// The columns of a tree of tuples; buffers are borrowed, not copied.
///
/// # Errors
/// `ValueError` or `TypeError` if the tree has another form.
pub(crate) fn array_of(tree: &Bound<'_, PyAny>) -> PyResult<Array> {
    let tree = tree.cast::<PyTuple>()?;
    let kind: String = tree.get_item(0)?.extract()?;
    let buffer = |index| bytes_of(&tree.get_item(index)?);
    Ok(match kind.as_str() {
        "primitive" => {
            let primitive = primitive_of(&tree.get_item(1)?.extract::<String>()?)?;
            Array::Primitive { primitive, values: buffer(2)? }
        }
        "string" => Array::String { offsets: buffer(1)?, bytes: buffer(2)? },
        "list" => Array::List {
            offsets: buffer(1)?,
            content: Box::new(array_of(&tree.get_item(2)?)?),
            optional: tree.get_item(3)?.extract()?,
        },
        "fixed" => Array::Fixed {
            size: tree.get_item(1)?.extract()?,
            length: tree.get_item(2)?.extract()?,
            content: Box::new(array_of(&tree.get_item(3)?)?),
        },
        "record" => Array::Record {
            length: tree.get_item(1)?.extract()?,
            members: members_of(&tree.get_item(2)?, &tree.get_item(3)?)?,
        },
        "variant" => Array::Variant {
            tags: buffer(1)?,
            positions: buffer(2)?,
            contents: tree
                .get_item(3)?
                .try_iter()?
                .map(|item| array_of(&item?))
                .collect::<PyResult<_>>()?,
        },
        _ => return Err(PyValueError::new_err(format!("unknown kind of column {kind:?}"))),
    })
}

fn members_of(
    names: &Bound<'_, PyAny>,
    contents: &Bound<'_, PyAny>,
) -> PyResult<Vec<(String, Array)>> {
    let pairs = names.try_iter()?.zip(contents.try_iter()?);
    pairs.map(|(name, content)| Ok((name?.extract()?, array_of(&content?)?))).collect()
}

/// A tree of tuples over columns; buffers are shared, not copied.
///
/// # Errors
/// If Python is out of memory.
pub(crate) fn tree_of<'py>(py: Python<'py>, array: Array) -> PyResult<Bound<'py, PyTuple>> {
    match array {
        Array::Primitive { primitive, values } => {
            ("primitive", name_of(primitive), Buffer(values)).into_pyobject(py)
        }
        Array::String { offsets, bytes } => {
            ("string", Buffer(offsets), Buffer(bytes)).into_pyobject(py)
        }
        Array::List { offsets, content, optional } => {
            let optional = PyBool::new(py, optional);
            ("list", Buffer(offsets), tree_of(py, *content)?, optional).into_pyobject(py)
        }
        Array::Fixed { size, length, content } => {
            ("fixed", size, length, tree_of(py, *content)?).into_pyobject(py)
        }
        Array::Record { length, members } => {
            let (names, contents): (Vec<_>, Vec<_>) = members.into_iter().unzip();
            ("record", length, PyTuple::new(py, names)?, trees_of(py, contents)?).into_pyobject(py)
        }
        Array::Variant { tags, positions, contents } => {
            let contents = trees_of(py, contents)?;
            ("variant", Buffer(tags), Buffer(positions), contents).into_pyobject(py)
        }
    }
}

fn trees_of<'py>(py: Python<'py>, arrays: Vec<Array>) -> PyResult<Bound<'py, PyTuple>> {
    let trees = arrays.into_iter().map(|array| tree_of(py, array)).collect::<PyResult<Vec<_>>>()?;
    PyTuple::new(py, trees)
}

/// The names of primitive types in class definitions, in the order of the types.
pub(crate) const NAMES: [(Primitive, &str); 13] = [
    (Primitive::Bool, "bool"),
    (Primitive::Byte, "byte"),
    (Primitive::Char, "char"),
    (Primitive::Int8, "int8"),
    (Primitive::UInt8, "uint8"),
    (Primitive::Int16, "int16"),
    (Primitive::UInt16, "uint16"),
    (Primitive::Int32, "int32"),
    (Primitive::UInt32, "uint32"),
    (Primitive::Int64, "int64"),
    (Primitive::UInt64, "uint64"),
    (Primitive::Float32, "float32"),
    (Primitive::Float64, "float64"),
];

fn primitive_of(name: &str) -> PyResult<Primitive> {
    let found = NAMES.iter().find(|(_, known)| *known == name).map(|(primitive, _)| *primitive);
    found.ok_or_else(|| PyValueError::new_err(format!("unknown primitive type {name:?}")))
}

/// The name of a primitive type in class definitions.
pub(crate) fn name_of(primitive: Primitive) -> &'static str {
    NAMES.iter().find(|(known, _)| *known == primitive).map_or("", |(_, name)| name)
}

/// Numbers of items (`i64`) of the lists at a dotted path; `None` if the path has no lists.
pub(crate) fn counts_of(array: &Array, path: &str) -> Option<Bytes> {
    let lists = path.split('.').try_fold(array, |array, name| array.member(name))?;
    let Array::List { offsets, optional: false, .. } = lists else { return None };
    let offsets = values_of::<i64>(offsets).ok()?;
    let counts: Vec<i64> = offsets.windows(2).map(|pair| pair[1] - pair[0]).collect();
    Some(rntuple::bytes_of(counts))
}
