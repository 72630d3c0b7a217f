//! Values that objects are looked for by.

use femtobarn::Error;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyFloat, PyInt, PyString, PyTuple};
use rntuple::Value;

use crate::error::exception;
use crate::oid::Oid;

/// The fields and values of a dictionary.
///
/// # Errors
/// `InvalidError` for a value that no key can have.
pub fn values_of(wanted: &Bound<'_, PyDict>) -> PyResult<Vec<(String, Value)>> {
    let pair = |(name, value): (Bound<'_, PyAny>, Bound<'_, PyAny>)| {
        let name: String = name.extract()?;
        let value = value_of(&name, &value)?;
        Ok((name, value))
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
            .map_err(|_| refused(field, value));
    }
    if let Ok(number) = value.cast::<PyFloat>() {
        return Ok(Value::Float(number.value()));
    }
    if let Ok(text) = value.cast::<PyString>() {
        return Ok(Value::String(text.to_str()?.to_owned()));
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
    let oid = match target.is_none() {
        true => Oid { database: 0, container: 0, entry: 0 },
        false => {
            let named = target.getattr("oid").unwrap_or_else(|_| target.clone());
            *named.cast::<Oid>().map_err(|_| refused(field, target))?.get()
        }
    };
    let member = |name: &str, value| (name.to_owned(), Value::UInt(value));
    Ok(vec![
        member("database", oid.database.into()),
        member("container", oid.container.into()),
        member("entry", oid.entry),
    ])
}

fn refused(field: &str, value: &Bound<'_, PyAny>) -> PyErr {
    let shown = value.repr().map_or_else(|_| "the value".to_owned(), |text| text.to_string());
    let what =
        format!("field {field:?} is looked for by {shown}; give a number, a text, or an OID");
    exception("invalid", Error::Invalid { what }.to_string())
}
