//! Objects that Python reads one by one: a place in a view, whose fields load when asked for.
//!
//! Invariants:
//! 1. What was read stays as it is: a view never changes, so that a column is read once per block.
//! 2. An attribute that objects have by their Python class is not hidden by a field of that name.
//! 3. Nothing here refers to Python objects that refer back: views do not know their blocks.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use femtobarn::{Field, FieldType, Selection, View};
use pyo3::exceptions::PyAttributeError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyString;
use rntuple::Array;

use crate::error::{OrRaise, exception};
use crate::object_column::Column;
use crate::oid::Oid;
use crate::snapshot::ViewHandle;

/// The fields of the objects of a view, as attributes.
pub struct Shape {
    members: Vec<Member>,
    by_name: HashMap<String, usize>,
    /// The members by the address of their names, which Python's compiler interns.
    by_address: HashMap<usize, usize>,
}

struct Member {
    name: Py<PyString>,
    /// Whether it is an attribute: not if objects have another of that name.
    is_attribute: bool,
    is_link: bool,
    selection: OnceLock<Selection>,
}

impl Shape {
    /// The shape of the objects of a view.
    ///
    /// # Errors
    /// As importing a module.
    pub fn new(py: Python<'_>, view: &View) -> PyResult<Self> {
        let object = py.import("femtobarn._objects")?.getattr("Object")?;
        let own: HashSet<String> = object.dir()?.extract::<Vec<String>>()?.into_iter().collect();
        let fields = &view.class().fields;
        let member = |field: &Field| Member {
            name: PyString::intern(py, &field.name).unbind(),
            is_attribute: !own.contains(&field.name),
            is_link: matches!(field.of, FieldType::Link(_)),
            selection: OnceLock::new(),
        };
        let members: Vec<Member> = fields.iter().map(member).collect();
        let addresses = members.iter().map(|member| member.name.as_ptr() as usize).zip(0..);
        Ok(Shape {
            by_address: addresses.filter(|(_, at)| members[*at].is_attribute).collect(),
            by_name: fields.iter().map(|field| field.name.clone()).zip(0..).collect(),
            members,
        })
    }

    fn item(&self, name: &Bound<'_, PyString>) -> Option<usize> {
        self.by_name.get(name.to_str().ok()?).copied()
    }

    fn attribute(&self, name: &Bound<'_, PyString>) -> Option<usize> {
        if let Some(at) = self.by_address.get(&(name.as_ptr() as usize)) {
            return Some(*at);
        }
        self.item(name).filter(|at| self.members[*at].is_attribute)
    }
}

/// Neighbouring entries of a view, of which each column is read once.
#[pyclass(frozen, module = "femtobarn._femtobarn")]
pub struct Block {
    /// The view as Python has it.
    view: Py<PyAny>,
    handle: Py<ViewHandle>,
    shape: Arc<Shape>,
    start: u64,
    stop: u64,
    /// Columns that were read, with the numbers of their members: few, as a rule.
    columns: Mutex<Vec<(usize, Arc<Column>)>>,
}

impl Block {
    /// A block of a view.
    ///
    /// # Errors
    /// As [`Shape::new`].
    pub fn new(
        handle: &Bound<'_, ViewHandle>,
        view: &Bound<'_, PyAny>,
        start: u64,
        stop: u64,
    ) -> PyResult<Self> {
        let shape = handle.get().shape(handle.py())?;
        let (view, handle) = (view.clone().unbind(), handle.clone().unbind());
        Ok(Block { view, handle, shape, start, stop, columns: Mutex::default() })
    }

    fn value<'py>(
        &self,
        py: Python<'py>,
        member: usize,
        index: usize,
    ) -> PyResult<Bound<'py, PyAny>> {
        let column = self.column(py, member)?;
        let name = self.shape.members[member].name.bind(py);
        column.value(py, index, self.view.bind(py), name)
    }

    fn column(&self, py: Python<'_>, member: usize) -> PyResult<Arc<Column>> {
        // The interpreter is never let go of with the columns locked.
        let lock = || self.columns.lock().unwrap_or_else(PoisonError::into_inner);
        let known = lock().iter().find(|(at, _)| *at == member).map(|(_, column)| column.clone());
        if let Some(column) = known {
            return Ok(column);
        }
        let read = self.read(py, member)?;
        let column = Arc::new(Column::new(py, read, self.shape.members[member].is_link)?);
        lock().push((member, column.clone()));
        Ok(column)
    }

    fn read(&self, py: Python<'_>, member: usize) -> PyResult<Array> {
        let Member { name, selection, .. } = &self.shape.members[member];
        let view = self.handle.get().view()?;
        let selection = match selection.get() {
            Some(selection) => selection,
            None => {
                let chosen = view.select(&[name.to_str(py)?]).or_raise()?;
                selection.get_or_init(|| chosen)
            }
        };
        let array = py.detach(|| view.read(selection, self.start..self.stop)).or_raise()?;
        let Array::Record { mut members, .. } = array else { return Err(unlike()) };
        members.pop().map(|(_, column)| column).ok_or_else(unlike)
    }
}

fn unlike() -> PyErr {
    exception("internal", "a field was read as something else".to_owned())
}

/// An entry of a view: what an object is, under its Python class.
#[pyclass(frozen, subclass, module = "femtobarn._femtobarn")]
pub struct Place {
    block: Py<Block>,
    index: usize,
}

#[pymethods]
impl Place {
    #[new]
    fn new(block: Py<Block>, index: usize) -> Self {
        Place { block, index }
    }

    /// The object's name for ever.
    #[getter]
    fn oid(&self, py: Python<'_>) -> PyResult<Oid> {
        let container = self.block.get().handle.bind(py).get().view()?.container();
        Ok(Oid { database: container.database.0, container: container.id.0, entry: self.entry() })
    }

    /// The object's number in its container.
    #[getter]
    fn entry(&self) -> u64 {
        self.block.get().start + self.index as u64
    }

    /// The view that the object is of.
    #[getter]
    fn _view<'py>(&self, py: Python<'py>) -> Bound<'py, PyAny> {
        self.block.get().view.bind(py).clone()
    }

    fn __getattribute__<'py>(
        slf: &Bound<'py, Self>,
        name: &Bound<'py, PyString>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let (py, Place { block, index }) = (slf.py(), slf.get());
        if let Some(member) = block.get().shape.attribute(name) {
            return block.get().value(py, member, *index);
        }
        // SAFETY: both are references to live objects; what comes back is owned, or null with an
        // exception set, which is what `from_owned_ptr_or_err` expects.
        unsafe {
            let found = ffi::PyObject_GenericGetAttr(slf.as_ptr(), name.as_ptr());
            Bound::from_owned_ptr_or_err(py, found)
        }
    }

    /// Refuses a name that is neither a field's nor that of another attribute.
    fn __getattr__(slf: &Bound<'_, Self>, name: &Bound<'_, PyString>) -> PyResult<Py<PyAny>> {
        // Python asks for such names all the time, and is content to hear nothing.
        let reason = match name.to_str()?.starts_with("__") {
            true => name.to_string(),
            false => Self::absence(slf, name)?,
        };
        Err(PyAttributeError::new_err(reason))
    }

    fn __getitem__<'py>(
        slf: &Bound<'py, Self>,
        name: &Bound<'py, PyString>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let Place { block, index } = slf.get();
        match block.get().shape.item(name) {
            Some(member) => block.get().value(slf.py(), member, *index),
            None => Err(exception("not-found", Self::absence(slf, name)?)),
        }
    }
}

impl Place {
    /// What there is instead of a field.
    fn absence(slf: &Bound<'_, Self>, name: &Bound<'_, PyString>) -> PyResult<String> {
        slf.get().block.get().view.bind(slf.py()).call_method1("_no_field", (name,))?.extract()
    }
}
