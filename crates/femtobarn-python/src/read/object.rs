//! Objects that Python reads one by one: a place in a view, whose fields load when asked for.
//!
//! Numbers, texts, lists of numbers and links come straight from the pages that the view holds.
//! Fields of other types are read as columns of a block of entries: of those that a loop goes
//! through at once, or of the object alone.
//!
//! Invariants:
//! 1. What was read stays as it is: a view never changes, so that a column is read once per block.
//! 2. An attribute that objects have by their Python class is not hidden by a field of that name.
//! 3. Nothing here refers to Python objects that refer back: views do not know their objects.

use std::collections::HashSet;
use std::ops::Range;
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use pyo3::exceptions::PyAttributeError;
use pyo3::ffi;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyString, PyTuple};
use rntuple::Array;

use crate::error::{OrRaise, exception, wrong_type};
use crate::oid::Oid;
use crate::read::field_column::{FieldColumn, python_of};
use crate::read::object_fields::ObjectField;
use crate::read::view::ViewHandle;

/// Neighbouring entries of a view, of which each column is read once.
struct EntryBlock {
    entries: Range<u64>,
    /// ColumnBuilder that were read, by the names of their fields: few, as a rule.
    columns: Mutex<Vec<(usize, Arc<FieldColumn>)>>,
}

impl EntryBlock {
    fn new(entries: Range<u64>) -> Arc<Self> {
        Arc::new(EntryBlock { entries, columns: Mutex::default() })
    }

    fn column(
        &self,
        py: Python<'_>,
        view: &ViewHandle,
        member: &ObjectField,
    ) -> PyResult<Arc<FieldColumn>> {
        // The interpreter is never let go of with the columns locked.
        let key = member.name.as_ptr() as usize;
        let known = self
            .columns
            .lock()
            .iter()
            .find(|(name, _)| *name == key)
            .map(|(_, column)| column.clone());
        if let Some(column) = known {
            return Ok(column);
        }
        let read = self.read(py, view, member)?;
        let column = Arc::new(FieldColumn::new(py, read, member.is_link)?);
        self.columns.lock().push((key, column.clone()));
        Ok(column)
    }

    fn read(&self, py: Python<'_>, view: &ViewHandle, member: &ObjectField) -> PyResult<Array> {
        let view = view.view()?;
        let selection = member.selection(py, view)?;
        let array = py.detach(|| view.read(selection, self.entries.clone())).or_raise()?;
        let Array::Record { mut members, .. } = array else { return Err(unlike()) };
        members.pop().map(|(_, column)| column).ok_or_else(unlike)
    }
}

fn unlike() -> PyErr {
    exception("internal", "a field was read as something else".to_owned())
}

/// One object of a container, as of a snapshot.
///
/// Fields are attributes, and items too (``event["run"]``) for names that Python cannot spell.
/// Lists of numbers are NumPy arrays, lists of records awkward arrays. A link is followed by using
/// it: ``event.raw.hits``.
#[pyclass(frozen, module = "femtobarn._femtobarn")]
pub struct Object {
    /// The view as Python has it.
    view: Py<PyAny>,
    handle: Py<ViewHandle>,
    entry: u64,
    /// The object's neighbours in a loop, or itself alone when that is first needed.
    block: OnceLock<Arc<EntryBlock>>,
    is_alone: bool,
}

impl Object {
    /// An object by itself.
    pub fn alone(handle: &Bound<'_, ViewHandle>, view: &Bound<'_, PyAny>, entry: u64) -> Self {
        let (view, handle) = (view.clone().unbind(), handle.clone().unbind());
        Object { view, handle, entry, block: OnceLock::new(), is_alone: true }
    }

    /// Neighbouring objects.
    pub fn neighbours(
        handle: &Bound<'_, ViewHandle>,
        view: &Bound<'_, PyAny>,
        entries: Range<u64>,
    ) -> impl ExactSizeIterator<Item = Self> {
        let block = EntryBlock::new(entries.clone());
        let count = (entries.end - entries.start) as usize;
        (0..count).map(move |index| Object {
            block: block.clone().into(),
            is_alone: false,
            ..Self::alone(handle, view, entries.start + index as u64)
        })
    }

    /// Names that objects have as attributes whatever their fields are called.
    ///
    /// # Errors
    /// If Python is out of memory.
    pub fn reserved_names(py: Python<'_>) -> PyResult<HashSet<String>> {
        let mut names: HashSet<String> =
            py.get_type::<Object>().dir()?.extract::<Vec<String>>()?.into_iter().collect();
        // Fields called `keys` were stored before objects had this method.
        names.remove("keys");
        Ok(names)
    }

    /// The definition of its class, which all objects of its view share.
    pub fn definition<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.view.bind(py).getattr(intern!(py, "definition"))
    }

    #[inline]
    fn value<'py>(&self, py: Python<'py>, member: &ObjectField) -> PyResult<Bound<'py, PyAny>> {
        let (handle, view) = (self.handle.get(), self.view.bind(py));
        if self.is_alone
            && let Some(content) = member.content(py, handle.guard(), self.entry)?
        {
            return python_of(py, content, view);
        }
        let block = self.block.get_or_init(|| EntryBlock::new(self.entry..self.entry + 1));
        let column = block.column(py, handle, member)?;
        let index = (self.entry - block.entries.start) as usize;
        column.value(py, index, view, member.name.bind(py))
    }

    /// Why an attribute cannot be set.
    fn unchanging(&self, py: Python<'_>, name: &str) -> String {
        let oid = self.oid().map_or_else(|_| "oid".to_owned(), |oid| oid.__repr__());
        let class = self.class_name(py).map_or_else(|_| String::new(), |name| name.to_string());
        format!(
            "objects of class {class} that are stored do not change; give a new value in a transaction, \
             with container.update({oid}, {name}=...)"
        )
    }

    /// What there is instead of a field.
    fn absence(&self, name: &Bound<'_, PyString>) -> PyResult<String> {
        self.view.bind(name.py()).call_method1("_no_field", (name,))?.extract()
    }
}

#[pymethods]
impl Object {
    /// The object's name for ever.
    #[getter]
    fn oid(&self) -> PyResult<Oid> {
        let container = self.handle.get().view()?.container();
        Ok(Oid { database: container.database.0, container: container.id.0, entry: self.entry })
    }

    /// The object's number in its container.
    #[getter]
    fn entry(&self) -> u64 {
        self.entry
    }

    /// Name of the object's class.
    #[getter]
    fn class_name<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.definition(py)?.getattr("name")
    }

    /// Names of the fields.
    #[getter]
    fn fields<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        Ok(self.view.bind(py).getattr("fields")?.cast_into()?)
    }

    /// Names of the fields, for ``dict(object)``.
    fn keys<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        self.fields(py)
    }

    /// The view that the object is of.
    #[getter]
    fn _view<'py>(&self, py: Python<'py>) -> Bound<'py, PyAny> {
        self.view.bind(py).clone()
    }

    /// Return all fields as plain Python values; links become OIDs or None.
    fn to_dict<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let plain = py.import("femtobarn._objects")?.getattr("plain_value")?;
        let values = PyDict::new(py);
        for member in self.handle.get().fields(py)?.members() {
            values.set_item(&member.name, plain.call1((self.value(py, member)?,))?)?;
        }
        Ok(values)
    }

    fn __getattribute__<'py>(
        slf: &Bound<'py, Self>,
        name: &Bound<'py, PyString>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let (py, object) = (slf.py(), slf.get());
        if let Some(member) = object.handle.get().fields(py)?.attribute(name) {
            return object.value(py, member);
        }
        // SAFETY: both are references to live objects; what comes back is owned, or null with an
        // exception set, which is what `from_owned_ptr_or_err` expects.
        unsafe {
            let found = ffi::PyObject_GenericGetAttr(slf.as_ptr(), name.as_ptr());
            Bound::from_owned_ptr_or_err(py, found)
        }
    }

    /// Refuses a name that is neither a field's nor that of another attribute.
    fn __getattr__(&self, name: &Bound<'_, PyString>) -> PyResult<Py<PyAny>> {
        // Python asks for such names all the time, and is content to hear nothing.
        let reason =
            if name.to_str()?.starts_with("__") { name.to_string() } else { self.absence(name)? };
        Err(PyAttributeError::new_err(reason))
    }

    /// Refuses to change what is stored.
    fn __setattr__(&self, py: Python<'_>, name: &str, _value: &Bound<'_, PyAny>) -> PyResult<()> {
        Err(PyAttributeError::new_err(self.unchanging(py, name)))
    }

    fn __getitem__<'py>(&self, name: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let py = name.py();
        let Ok(name) = name.cast::<PyString>() else {
            let shown = name.repr()?;
            let text =
                format!("an object has fields by name, such as object[\"run\"], not {shown}");
            return Err(wrong_type(text));
        };
        match self.handle.get().fields(py)?.item(name) {
            Some(member) => self.value(py, member),
            None => Err(exception("not-found", self.absence(name)?)),
        }
    }

    fn __dir__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        let py = slf.py();
        let own = py.get_type::<PyAny>().call_method1("__dir__", (slf,))?;
        own.call_method1("__add__", (slf.get().fields(py)?,))
    }

    fn __eq__(&self, other: &Bound<'_, PyAny>) -> PyResult<bool> {
        match other.cast_exact::<Self>() {
            Ok(other) => Ok(self.oid()? == other.get().oid()?),
            Err(_) => Ok(false),
        }
    }

    fn __hash__(&self, py: Python<'_>) -> PyResult<isize> {
        Bound::new(py, self.oid()?)?.hash()
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let Ok(oid) = self.oid() else {
            return Ok(format!("<object {} of a closed federation>", self.entry));
        };
        let fields = self.fields(py)?.extract::<Vec<String>>()?.join(", ");
        Ok(format!("<{} {}: {fields}>", self.class_name(py)?, oid.__str__()))
    }

    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        let at = py.import("femtobarn._objects")?.getattr("_object_at")?;
        (at, (self._view(py), self.entry)).into_pyobject(py)
    }
}
