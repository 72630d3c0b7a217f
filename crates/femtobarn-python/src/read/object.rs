//! Single objects: a view and an entry, whose fields are read when Python asks for them.
//!
//! Numbers, strings, lists of numbers and links are read from pages that the view's fields hold. Fields of
//! other types are read as columns of a block of entries: the entries of one step of a loop, or the object
//! alone.
//!
//! 1. Values do not change: a view never does, so a column is read once per block.
//! 2. A field does not hide an attribute of `Object` with the same name. It takes precedence over one of a declared
//!    class.
//! 3. No cycles of references: views do not refer to their objects.

use std::cell::Cell;
use std::collections::HashSet;
use std::ops::Range;
use std::ptr;
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use pyo3::exceptions::PyAttributeError;
use pyo3::ffi;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::type_object::PyTypeInfo;
use pyo3::types::{PyDict, PyList, PySet, PyString, PyTuple, PyType};
use rntuple::Array;

use crate::error::{OrRaise, exception, wrong_type};
use crate::oid::PyOid;
use crate::read::field_column::{FieldColumn, python_of};
use crate::read::object_fields::ObjectField;
use crate::read::view::ViewHandle;

/// Neighbouring entries of a view; each of their columns is read once.
struct EntryBlock {
    entries: Range<u64>,
    /// Columns by the address of their field's name; few, so that a list will do.
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
        // The interpreter stays locked while the columns are.
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
        let column = Arc::new(FieldColumn::new(py, read, member)?);
        self.columns.lock().push((key, column.clone()));
        Ok(column)
    }

    fn read(&self, py: Python<'_>, view: &ViewHandle, member: &ObjectField) -> PyResult<Array> {
        let view = view.view()?;
        let selection = member.selection(py, view)?;
        let array = py.detach(|| view.read(selection, self.entries.clone())).or_raise()?;
        let Array::Record { mut members, .. } = array else { return Err(not_a_record()) };
        members.pop().map(|(_, column)| column).ok_or_else(not_a_record)
    }
}

fn not_a_record() -> PyErr {
    exception("internal", "a projection of one field returned no record".to_owned())
}

/// One object of a container, as of a snapshot.
///
/// Fields are attributes, and items too (``event["run"]``) for names that Python cannot spell.
/// Lists of numbers are NumPy arrays, lists of records awkward arrays. A link is followed by using
/// it: ``event.raw.hits``.
///
/// If the class is declared in this program, the object is an instance of it, too, and has its methods.
#[pyclass(frozen, subclass, module = "femtobarn._femtobarn")]
pub struct Object {
    /// The Python object of the view.
    view: Py<PyAny>,
    handle: Py<ViewHandle>,
    entry: u64,
    /// The object's block: its neighbours in a loop, or itself alone.
    block: OnceLock<Arc<EntryBlock>>,
    is_alone: bool,
}

thread_local! {
    /// The object that [`Object::of_class`] is making: Python allocates objects of derived classes, and calls
    /// [`Object::new`] for their contents.
    static IN_THE_MAKING: Cell<Option<Object>> = const { Cell::new(None) };
}

impl Object {
    /// One object.
    pub fn alone(handle: &Bound<'_, ViewHandle>, view: &Bound<'_, PyAny>, entry: u64) -> Self {
        let (view, handle) = (view.clone().unbind(), handle.clone().unbind());
        Object { view, handle, entry, block: OnceLock::new(), is_alone: true }
    }

    /// Neighbouring objects, which share a block.
    ///
    /// # Errors
    /// Those of [`Object::made`].
    pub fn neighbours<'py>(
        handle: &Bound<'py, ViewHandle>,
        view: &Bound<'py, PyAny>,
        entries: Range<u64>,
    ) -> PyResult<Bound<'py, PyList>> {
        let (py, block) = (handle.py(), EntryBlock::new(entries.clone()));
        let class = handle.get().object_class(py, view)?;
        let objects = entries.map(|entry| {
            let block = block.clone().into();
            let object = Object { block, is_alone: false, ..Self::alone(handle, view, entry) };
            object.of_class(py, class.as_ref())
        });
        PyList::new(py, objects.collect::<PyResult<Vec<_>>>()?)
    }

    /// The object in Python: an instance of its declared class, if there is one.
    ///
    /// # Errors
    /// If Python is out of memory; those of Python's code that makes the class.
    pub fn made<'py>(self, handle: &Bound<'py, ViewHandle>) -> PyResult<Bound<'py, PyAny>> {
        let py = handle.py();
        let class = handle.get().object_class(py, self.view.bind(py))?;
        self.of_class(py, class.as_ref())
    }

    /// The object as an instance of a class that derives from [`Object`].
    fn of_class<'py>(
        self,
        py: Python<'py>,
        class: Option<&Py<PyType>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let Some(class) = class else { return Ok(Bound::new(py, self)?.into_any()) };
        IN_THE_MAKING.set(Some(self));
        // SAFETY: the slot of `Object` has a function of this type, `Object::new`; `class` derives from `Object`, and
        // the result is owned, or null with an exception set.
        unsafe {
            let slot = ffi::PyType_GetSlot(Object::type_object_raw(py), ffi::Py_tp_new);
            let new: ffi::newfunc = std::mem::transmute(slot);
            let made = new(class.as_ptr().cast(), PyTuple::empty(py).as_ptr(), ptr::null_mut());
            Bound::from_owned_ptr_or_err(py, made)
        }
    }

    /// Names that objects have as attributes whatever their fields are called.
    ///
    /// # Errors
    /// If Python is out of memory.
    pub fn reserved_names(py: Python<'_>) -> PyResult<&HashSet<String>> {
        static NAMES: PyOnceLock<HashSet<String>> = PyOnceLock::new();
        NAMES.get_or_try_init(py, || {
            let mut names: HashSet<String> =
                py.get_type::<Object>().dir()?.extract::<Vec<String>>()?.into_iter().collect();
            // Fields of these names were stored before objects had the methods.
            names.retain(|name| !["keys", "display"].contains(&name.as_str()));
            Ok(names)
        })
    }

    /// The definition of its class, the same for all objects of the view.
    pub fn definition<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.view.bind(py).getattr(intern!(py, "definition"))
    }

    #[inline]
    fn value<'py>(slf: &Bound<'py, Self>, member: &ObjectField) -> PyResult<Bound<'py, PyAny>> {
        let (py, object) = (slf.py(), slf.get());
        let (handle, view) = (object.handle.get(), object.view.bind(py));
        if object.is_alone
            && let Some(content) = member.content(py, handle.guard(), object.entry)?
        {
            return python_of(py, content, view);
        }
        let block = object.block.get_or_init(|| EntryBlock::new(object.entry..object.entry + 1));
        let column = block.column(py, handle, member)?;
        let index = (object.entry - block.entries.start) as usize;
        column.value(py, index, view, member.name.bind(py), slf.as_any())
    }

    /// The text of the error that an attribute cannot be set.
    fn unchanging(&self, name: &Bound<'_, PyString>) -> String {
        let (py, name) = (name.py(), name.to_string_lossy());
        let oid = self.oid().map_or_else(|_| "oid".to_owned(), |oid| oid.__repr__());
        let class = self.class_name(py).map_or_else(|_| String::new(), |name| name.to_string());
        format!(
            "stored objects of class {class} are read-only; set a new value in a transaction with \
             container.update({oid}, {name}=...)"
        )
    }

    /// The text of the error that a field does not exist.
    fn absence(&self, name: &Bound<'_, PyString>) -> PyResult<String> {
        self.view.bind(name.py()).call_method1("_no_field", (name,))?.extract()
    }
}

#[pymethods]
impl Object {
    /// The object that [`of_class`](Object::of_class) makes, or else one in the container of `like`.
    #[new]
    #[pyo3(signature = (like=None, entry=0))]
    fn new(like: Option<&Bound<'_, Object>>, entry: u64) -> PyResult<Self> {
        if let Some(made) = IN_THE_MAKING.take() {
            return Ok(made);
        }
        let absence = || wrong_type("objects are read from a view, such as view[0]".to_owned());
        let like = like.ok_or_else(absence)?;
        let (py, like) = (like.py(), like.get());
        let entries = like.handle.get().view()?.entries();
        if entry >= entries {
            let text = format!("entry {entry} of {entries} does not exist");
            return Err(exception("not-found", text));
        }
        let (view, handle) = (like.view.clone_ref(py), like.handle.clone_ref(py));
        Ok(Object { view, handle, entry, block: OnceLock::new(), is_alone: true })
    }

    /// The object's permanent name.
    #[getter]
    fn oid(&self) -> PyResult<PyOid> {
        let container = self.handle.get().view()?.container();
        Ok(PyOid { database: container.database.0, container: container.id.0, entry: self.entry })
    }

    /// The object's entry in its container.
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

    /// The view that the object belongs to.
    #[getter]
    fn _view<'py>(&self, py: Python<'py>) -> Bound<'py, PyAny> {
        self.view.bind(py).clone()
    }

    /// Return all fields as plain Python values; links become OIDs or None.
    fn to_dict<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyDict>> {
        let (py, object) = (slf.py(), slf.get());
        let (view, values) = (object.view.bind(py), PyDict::new(py));
        for member in object.handle.get().fields(py)?.members() {
            let value = (&member.name, Self::value(slf, member)?);
            values.set_item(&member.name, view.call_method1("_plain_value", value)?)?;
        }
        Ok(values)
    }

    fn __getattribute__<'py>(
        slf: &Bound<'py, Self>,
        name: &Bound<'py, PyString>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let (py, object) = (slf.py(), slf.get());
        if let Some(member) = object.handle.get().fields(py)?.attribute(name) {
            return Self::value(slf, member);
        }
        // SAFETY: both are references to live objects; the result is owned, or null with an exception set, as
        // `from_owned_ptr_or_err` expects.
        unsafe {
            let found = ffi::PyObject_GenericGetAttr(slf.as_ptr(), name.as_ptr());
            Bound::from_owned_ptr_or_err(py, found)
        }
    }

    /// The target of a link by an index; raises `AttributeError` for any other name that is neither a field nor another
    /// attribute.
    fn __getattr__<'py>(
        slf: &Bound<'py, Self>,
        name: &Bound<'py, PyString>,
    ) -> PyResult<Bound<'py, PyAny>> {
        // Python probes for these names often and expects a cheap error.
        let text = name.to_string_lossy();
        if text.starts_with("__") {
            return Err(PyAttributeError::new_err(text.into_owned()));
        }
        let (py, class) = (slf.py(), slf.get_type());
        match class.getattr(name) {
            // A property of the class has failed so: once more for its own error.
            Ok(property) => property.call_method1("__get__", (slf, class)),
            Err(_) => slf.get().view.bind(py).call_method1(intern!(py, "_linked"), (slf, name)),
        }
    }

    /// Raises `AttributeError`: stored objects do not change.
    fn __setattr__(&self, name: &Bound<'_, PyString>, _value: &Bound<'_, PyAny>) -> PyResult<()> {
        Err(PyAttributeError::new_err(self.unchanging(name)))
    }

    fn __getitem__<'py>(
        slf: &Bound<'py, Self>,
        name: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let (py, object) = (slf.py(), slf.get());
        let Ok(name) = name.cast::<PyString>() else {
            let shown = name.repr()?;
            let text =
                format!("an object has fields by name, such as object[\"run\"], not {shown}");
            return Err(wrong_type(text));
        };
        match object.handle.get().fields(py)?.item(name) {
            Some(member) => Self::value(slf, member),
            None => Err(exception("not-found", object.absence(name)?)),
        }
    }

    fn __dir__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        let py = slf.py();
        let names = PySet::empty(py)?;
        names.call_method1(
            "update",
            (py.get_type::<PyAny>().call_method1("__dir__", (slf,))?, slf.get().fields(py)?),
        )?;
        Ok(names.into_any())
    }

    fn __eq__(&self, other: &Bound<'_, PyAny>) -> PyResult<bool> {
        match other.cast::<Self>() {
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

    /// Return the object in 3D, with the targets of its links: notebooks show it, ``save(path)`` writes a page.
    ///
    /// A field of this name, or a method of a declared class, takes precedence over the method.
    ///
    /// Parameters
    /// ----------
    /// referrers
    ///     Whether objects that link to it are shown, too. Without an index over the links this reads the links
    ///     of all objects.
    ///
    /// Examples
    /// --------
    /// >>> import femtobarn as fb, tempfile
    /// >>> fed = fb.create(tempfile.mkdtemp() + "/lhc.fed")
    /// >>> with fed.transaction() as txn:
    /// ...     form = {"name": "Hit", "fields": [{"name": axis, "type": "float32"} for axis in "xyz"]}
    /// ...     hits = txn.database("d", create=True).container("hits", form, create=True)
    /// ...     oids = hits.extend({"x": [0, 1], "y": [1, 1], "z": [2, 0]})
    /// >>> fed["d/hits"][1].display()
    /// <Display of d/hits 1>
    #[pyo3(signature = (*, referrers=false))]
    fn display<'py>(slf: &Bound<'py, Self>, referrers: bool) -> PyResult<Bound<'py, PyAny>> {
        let options = PyDict::new(slf.py());
        options.set_item("referrers", referrers)?;
        slf.py().import("femtobarn.display")?.getattr("display")?.call((slf,), Some(&options))
    }

    /// A table of the fields, for notebooks.
    fn _repr_html_<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        slf.py().import("femtobarn._objects")?.getattr("_object_html")?.call1((slf,))
    }

    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        let at = py.import("femtobarn._objects")?.getattr("_object_at")?;
        (at, (self._view(py), self.entry)).into_pyobject(py)
    }
}
