//! The columns of records: dictionaries, or objects with the fields as attributes.

use femtobarn::{Field, MAP_ITEM, TUPLE};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyList, PyString, PyTuple};
use rntuple::Array;

use super::column::ColumnBuilder;
use super::rejected_value::{PushResult, RejectedValue};
use crate::read::object::Object;

pub(super) struct RecordBuilder {
    class: String,
    members: Vec<(Py<PyString>, String, ColumnBuilder)>,
    /// Whether values are tuples.
    is_tuple: bool,
    /// The declaration of the last value's fields, if it was checked; see [`declaration_of`].
    known: Option<Py<PyAny>>,
}

impl RecordBuilder {
    pub(super) fn new(py: Python<'_>, class: &str, fields: &[Field]) -> Self {
        let member = |field: &Field| {
            let name = PyString::intern(py, &field.name).unbind();
            (name, field.name.clone(), ColumnBuilder::new(py, &field.of))
        };
        let members = fields.iter().map(member).collect();
        let is_tuple = [TUPLE, MAP_ITEM].contains(&class);
        Self { class: class.to_owned(), members, is_tuple, known: None }
    }

    /// The columns of the members.
    pub(super) fn columns(&self) -> impl Iterator<Item = &ColumnBuilder> {
        self.members.iter().map(|(_, _, columns)| columns)
    }

    /// Whether the records are the items of a dictionary.
    pub(super) fn is_of_pairs(&self) -> bool {
        self.class == MAP_ITEM
    }

    fn push_tuple(&mut self, values: &Bound<'_, PyTuple>) -> PushResult {
        let (given, wanted) = (values.len(), self.members.len());
        if given != wanted {
            return Err(RejectedValue::because(format!("it has {given} items, not {wanted}")));
        }
        for ((_, text, columns), value) in self.members.iter_mut().zip(values.iter()) {
            columns.push(&value).map_err(|rejection| rejection.within(text))?;
        }
        Ok(())
    }

    pub(super) fn push(&mut self, value: &Bound<'_, PyAny>) -> PushResult {
        if self.is_tuple {
            if let Ok(values) = value.cast::<PyTuple>() {
                return self.push_tuple(values);
            }
            if let Ok(values) = value.cast::<PyList>() {
                return self.push_tuple(&values.to_tuple());
            }
        }
        if let Ok(dictionary) = value.cast::<PyDict>() {
            return self.push_dictionary(dictionary);
        }
        self.check_declared(value)?;
        for (name, text, columns) in &mut self.members {
            let member = value.getattr(&*name).map_err(|_| {
                let kind =
                    value.get_type().name().map_or_else(|_| String::new(), |n| n.to_string());
                RejectedValue::because(format!("the {kind} has no attribute '{text}'"))
            })?;
            columns.push(&member).map_err(|rejection| rejection.within(text))?;
        }
        Ok(())
    }

    /// Rejects an object with more fields than are stored. A declaration is checked once for successive
    /// objects.
    fn check_declared(&mut self, value: &Bound<'_, PyAny>) -> PushResult {
        static SURPLUS_OF: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
        let py = value.py();
        // Most values are of one class, which is their declaration.
        if self.known.as_ref().is_some_and(|known| known.is(value.get_type())) {
            return Ok(());
        }
        let declaration = declaration_of(value)?;
        if self.known.as_ref().is_some_and(|known| known.is(&declaration)) {
            return Ok(());
        }
        let names = PyList::new(py, self.members.iter().map(|(name, _, _)| name))?;
        let look = SURPLUS_OF.import(py, "femtobarn._schema.declared_fields", "surplus_of")?;
        let (surplus, is_of_class): (Option<String>, bool) =
            look.call1((value, names, &self.class))?.extract()?;
        if let Some(reason) = surplus {
            return Err(RejectedValue::because(reason));
        }
        let holds_for_all = is_of_class || !declaration.is(value.get_type());
        self.known = holds_for_all.then(|| declaration.unbind());
        Ok(())
    }

    fn push_dictionary(&mut self, values: &Bound<'_, PyDict>) -> PushResult {
        for (name, text, columns) in &mut self.members {
            let member = values.get_item(&*name)?;
            let member = member.ok_or_else(|| {
                RejectedValue::because(format!("the dictionary has no key '{text}'"))
            })?;
            columns.push(&member).map_err(|rejection| rejection.within(text))?;
        }
        if values.len() > self.members.len() {
            return Err(self.superfluous(values));
        }
        Ok(())
    }

    fn superfluous(&self, values: &Bound<'_, PyDict>) -> RejectedValue {
        let is_known = |key: &Bound<'_, PyAny>| {
            key.extract::<String>().is_ok_and(|key| self.members.iter().any(|m| m.1 == key))
        };
        let extra = values.keys().iter().find(|key| !is_known(key));
        let known: Vec<&str> = self.members.iter().map(|member| member.1.as_str()).collect();
        let name = extra.map_or_else(String::new, |key| key.to_string());
        RejectedValue::because(format!(
            "unknown field '{name}': the fields are {}",
            known.join(", ")
        ))
    }

    pub(super) fn truncate(&mut self, length: usize) {
        self.members.iter_mut().for_each(|(_, _, columns)| columns.truncate(length));
    }

    pub(super) fn size(&self) -> usize {
        self.members.iter().map(|(_, _, columns)| columns.size()).sum()
    }

    pub(super) fn take(&mut self, length: usize) -> Array {
        let members = self.members.iter_mut();
        let members =
            members.map(|(_, name, columns)| (name.clone(), columns.take(length))).collect();
        Array::Record { length, members }
    }
}

/// The declaration of a value's fields: the definition of an object that was read, the type of a record in
/// one, else the Python class. Values of one declaration have the same fields, unless only their Python class
/// is known.
fn declaration_of<'py>(value: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    static RECORD: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let py = value.py();
    if let Ok(object) = value.cast::<Object>() {
        return object.get().definition(py);
    }
    let class = value.get_type();
    let record = RECORD.get_or_try_init(py, || {
        PyResult::Ok(py.import("femtobarn._objects")?.getattr("RecordValue")?.unbind())
    })?;
    if value.is_instance(record.bind(py))? {
        value.getattr(intern!(py, "_node"))
    } else {
        Ok(class.into_any())
    }
}
