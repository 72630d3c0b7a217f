//! Values that objects are searched by, and bounds of the values in clusters.

use femtobarn::{ClusterBounds, Error};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyFloat, PyInt, PyString, PyTuple};
use rntuple::{Value, bytes_of};

use crate::buffer::Buffer;
use crate::error::exception;
use crate::oid::PyOid;
use crate::text::Text;

/// The fields and values of a dictionary.
///
/// # Errors
/// `InvalidError` for a value that no key can have.
pub(crate) fn values_of(wanted: &Bound<'_, PyDict>) -> PyResult<Vec<(String, Value)>> {
    let pair = |(name, value): (Bound<'_, PyAny>, Bound<'_, PyAny>)| {
        let name: Text = name.extract()?;
        let value = value_of(&name, &value)?;
        Ok((name.into(), value))
    };
    wanted.iter().map(pair).collect()
}

fn value_of(field: &str, value: &Bound<'_, PyAny>) -> PyResult<Value> {
    if let Ok(truth) = value.cast::<PyBool>() {
        return Ok(Value::Bool(truth.is_true()));
    }
    if value.is_instance_of::<PyInt>() {
        let signed = value.extract::<i64>().map(Value::Int);
        return signed
            .or_else(|_| value.extract::<u64>().map(Value::UInt))
            .map_err(|_| invalid_value(field, value));
    }
    if let Ok(number) = value.cast::<PyFloat>() {
        return Ok(Value::Float(number.value()));
    }
    if let Ok(text) = value.cast::<PyString>() {
        let text = text.to_str().map_err(|_| invalid_value(field, value))?;
        return Ok(Value::String(text.to_owned()));
    }
    if let Ok(pair) = value.cast::<PyTuple>()
        && let Ok((oid, element)) = pair.extract::<(Bound<'_, PyAny>, u64)>()
    {
        let mut members = link_to(field, &oid)?;
        members.push(("element".to_owned(), Value::UInt(element)));
        return Ok(Value::Record(members));
    }
    Ok(Value::Record(link_to(field, value)?))
}

/// The members of a link to an object, or of a null link.
fn link_to(field: &str, target: &Bound<'_, PyAny>) -> PyResult<Vec<(String, Value)>> {
    let oid = if target.is_none() {
        PyOid { database: 0, container: 0, entry: 0 }
    } else {
        let named = target.getattr("oid").unwrap_or_else(|_| target.clone());
        *named.cast::<PyOid>().map_err(|_| invalid_value(field, target))?.get()
    };
    let member = |name: &str, value| (name.to_owned(), Value::UInt(value));
    Ok(vec![
        member("database", oid.database.into()),
        member("container", oid.container.into()),
        member("entry", oid.entry),
    ])
}

fn invalid_value(field: &str, value: &Bound<'_, PyAny>) -> PyErr {
    let shown = value.repr().map_or_else(|_| "the value".to_owned(), |text| text.to_string());
    let what =
        format!("invalid value {shown} for field {field:?}: must be a number, a string or an OID");
    exception("invalid", Error::Invalid { what }.to_string())
}

/// First entries and ends, least and greatest values of clusters, and whether they contain NaN.
pub(crate) type BoundsColumns = (Buffer, Buffer, Buffer, Buffer, Buffer);

/// The bounds of clusters as columns. Unknown bounds are infinite; a cluster without a number has a least
/// value above its greatest.
pub(crate) fn columns_of_bounds(clusters: &[ClusterBounds]) -> BoundsColumns {
    let bounds = |cluster: &ClusterBounds| match cluster.bounds {
        None => (f64::NEG_INFINITY, f64::INFINITY, true),
        Some(bounds) => match bounds.range {
            Some((least, most)) => (number_of(least), number_of(most), bounds.has_nan),
            None => (f64::INFINITY, f64::NEG_INFINITY, bounds.has_nan),
        },
    };
    let stop = |cluster: &ClusterBounds| (cluster.first_entry + cluster.entries) as i64;
    (
        Buffer(bytes_of(clusters.iter().map(|it| it.first_entry as i64).collect::<Vec<_>>())),
        Buffer(bytes_of(clusters.iter().map(stop).collect::<Vec<_>>())),
        Buffer(bytes_of(clusters.iter().map(|it| bounds(it).0).collect::<Vec<_>>())),
        Buffer(bytes_of(clusters.iter().map(|it| bounds(it).1).collect::<Vec<_>>())),
        Buffer(bytes_of(clusters.iter().map(|it| u8::from(bounds(it).2)).collect::<Vec<_>>())),
    )
}

/// The nearest double; the caller allows for large integers being rounded.
fn number_of(bound: rntuple::Bound) -> f64 {
    match bound {
        rntuple::Bound::Int(value) => value as f64,
        rntuple::Bound::UInt(value) => value as f64,
        rntuple::Bound::Float(value) => value,
    }
}
