//! The fields of the objects of a view, as attributes of Python objects.

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, OnceLock, PoisonError};

use femtobarn::{Field, FieldContent, FieldReader, FieldType, Selection, View};
use pyo3::prelude::*;
use pyo3::sync::MutexExt;
use pyo3::types::PyString;

use crate::error::OrRaise;
use crate::handles::{ForkGuard, HandleGroup};
use crate::page_budget::PageHolder;

/// The fields of the objects of a view.
pub struct ObjectFields {
    members: Vec<ObjectField>,
    by_name: HashMap<String, usize>,
    /// Positions of attributes by the address of their names, ascending; Python's compiler interns names.
    by_address: Vec<(usize, usize)>,
}

/// One field.
pub struct ObjectField {
    pub name: Py<PyString>,
    /// Whether it is an attribute; not if the Python class has another of that name.
    is_attribute: bool,
    pub is_link: bool,
    /// Whether values stand for something else, which only Python knows.
    pub has_meaning: bool,
    selection: OnceLock<Selection>,
    /// Reads it from single objects; none if it is read as an array.
    reader: OnceLock<Option<Mutex<ForkGuard<FieldReader>>>>,
}

impl ObjectFields {
    /// The fields of a view; names in `reserved` are no attributes.
    pub fn new(py: Python<'_>, view: &View, reserved: &HashSet<String>) -> Self {
        let fields = &view.class().fields;
        let members = fields.iter().map(|field| ObjectField::new(py, field, reserved));
        let members: Vec<ObjectField> = members.collect();
        let addresses = members.iter().map(|member| member.name.as_ptr() as usize).zip(0..);
        let mut by_address: Vec<(usize, usize)> =
            addresses.filter(|(_, at)| members[*at].is_attribute).collect();
        by_address.sort_unstable();
        let by_name = fields.iter().map(|field| field.name.clone()).zip(0..).collect();
        ObjectFields { by_address, by_name, members }
    }

    /// The fields, in order.
    pub fn members(&self) -> &[ObjectField] {
        &self.members
    }

    /// A field by name.
    pub fn item(&self, name: &Bound<'_, PyString>) -> Option<&ObjectField> {
        Some(&self.members[*self.by_name.get(name.to_str().ok()?)?])
    }

    /// The field that an attribute reads.
    #[inline]
    pub fn attribute(&self, name: &Bound<'_, PyString>) -> Option<&ObjectField> {
        let address = name.as_ptr() as usize;
        match self.by_address.binary_search_by_key(&address, |(address, _)| *address) {
            Ok(found) => Some(&self.members[self.by_address[found].1]),
            Err(_) => self.item(name).filter(|member| member.is_attribute),
        }
    }
}

impl PageHolder for ObjectFields {
    fn release_pages(&self) {
        for reader in self.members.iter().filter_map(|member| member.reader.get()?.as_ref()) {
            if let Ok(mut reader) = reader.try_lock()
                && let Ok(reader) = reader.get_mut()
            {
                reader.release();
            }
        }
    }
}

impl ObjectField {
    fn new(py: Python<'_>, field: &Field, reserved: &HashSet<String>) -> Self {
        ObjectField {
            name: PyString::intern(py, &field.name).unbind(),
            is_attribute: !reserved.contains(&field.name),
            is_link: matches!(field.of, FieldType::Link(_)),
            has_meaning: field.of.has_meaning(),
            selection: OnceLock::new(),
            reader: OnceLock::new(),
        }
    }

    /// The field as a selection.
    ///
    /// # Errors
    /// Those of [`View::select`].
    pub fn selection(&self, py: Python<'_>, view: &View) -> PyResult<&Selection> {
        match self.selection.get() {
            Some(selection) => Ok(selection),
            None => {
                let chosen = view.select(&[self.name.to_str(py)?]).or_raise()?;
                Ok(self.selection.get_or_init(|| chosen))
            }
        }
    }

    /// The content of the field in one object; `None` if it is to be read as an array.
    ///
    /// # Errors
    /// Those of [`FieldReader::get`].
    #[inline]
    pub fn content(
        &self,
        py: Python<'_>,
        view: &ForkGuard<View>,
        entry: u64,
    ) -> PyResult<Option<FieldContent>> {
        let Some(reader) = self.reader(py, view)? else { return Ok(None) };
        let mut reader = reader.lock_py_attached(py).unwrap_or_else(PoisonError::into_inner);
        let reader = reader.get_mut()?;
        match reader.held(entry) {
            Some(content) => Ok(Some(content)),
            None => read(py, reader, entry, view.group()).map(Some),
        }
    }

    fn reader(
        &self,
        py: Python<'_>,
        view: &ForkGuard<View>,
    ) -> PyResult<Option<&Mutex<ForkGuard<FieldReader>>>> {
        if let Some(reader) = self.reader.get() {
            return Ok(reader.as_ref());
        }
        let made = if self.has_meaning {
            None
        } else {
            view.get()?.field_reader(self.name.to_str(py)?).or_raise()?
        };
        let made = made.map(|made| Mutex::new(ForkGuard::new(made, view.group())));
        Ok(self.reader.get_or_init(|| made).as_ref())
    }
}

#[cold]
fn read(
    py: Python<'_>,
    reader: &mut FieldReader,
    entry: u64,
    group: &HandleGroup,
) -> PyResult<FieldContent> {
    let before = reader.held_bytes();
    let content = py.detach(|| reader.get(entry)).or_raise()?;
    let added = reader.held_bytes().saturating_sub(before);
    if group.page_budget().add(added) > reader.held_bytes_max() {
        reader.release();
        group.page_budget().release();
    }
    Ok(content)
}
