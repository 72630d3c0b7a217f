//! Object ids as Python values: immutable, ordered, hashable, picklable.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use crate::buffer::Buffer;
use crate::error::exception;
use crate::text::Text;

/// The permanent name of one object: database, container and entry.
#[pyclass(frozen, eq, ord, hash, name = "Oid", module = "femtobarn._femtobarn")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PyOid {
    /// Number of the database in its federation.
    #[pyo3(get)]
    pub database: u32,
    /// Number of the container in its database; 0 in a null link.
    #[pyo3(get)]
    pub container: u32,
    /// Number of the object in its container.
    #[pyo3(get)]
    pub entry: u64,
}

#[pymethods]
impl PyOid {
    #[new]
    fn new(database: u32, container: u32, entry: u64) -> Self {
        Self { database, container, entry }
    }

    /// Parse the text form, such as `3-7-12`.
    #[staticmethod]
    fn parse(text: Text) -> PyResult<Self> {
        parse(&text).ok_or_else(|| {
            PyValueError::new_err(format!(
                "invalid OID {text:?}: must be database-container-entry, such as 3-7-12"
            ))
        })
    }

    /// The container as one number: the number of the database in the upper 32 bits, that of the container in the
    /// lower.
    #[getter]
    fn _place(&self) -> u64 {
        u64::from(self.database) << 32 | u64::from(self.container)
    }

    /// The text form, such as `3-7-12`.
    pub fn __str__(&self) -> String {
        format!("{}-{}-{}", self.database, self.container, self.entry)
    }

    /// As Python writes it, such as `Oid(3, 7, 12)`.
    pub fn __repr__(&self) -> String {
        format!("Oid({}, {}, {})", self.database, self.container, self.entry)
    }

    fn __iter__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        Ok((self.database, self.container, self.entry).into_pyobject(py)?.try_iter()?.into_any())
    }

    fn __getnewargs__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        (self.database, self.container, self.entry).into_pyobject(py)
    }
}

/// Return OIDs, or those of objects that have one, as records of database, container and entry; `None` is a
/// null link.
///
/// # Errors
/// `InvalidError` for any other value.
#[pyfunction]
pub(crate) fn oid_records(links: &Bound<'_, PyAny>) -> PyResult<Buffer> {
    let mut records: Vec<u8> = vec![];
    for link in links.try_iter()? {
        let link = link?;
        let is_null = || link.is_none() || link.getattr("oid").is_ok_and(|oid| oid.is_none());
        let oid = match oid_of(&link) {
            Some(oid) => oid,
            None if is_null() => PyOid { database: 0, container: 0, entry: 0 },
            None => return Err(invalid_link(&link)),
        };
        records.extend_from_slice(&oid.database.to_le_bytes());
        records.extend_from_slice(&oid.container.to_le_bytes());
        records.extend_from_slice(&oid.entry.to_le_bytes());
    }
    Ok(Buffer(records.into()))
}

/// The OID that a value is or has in its attribute `oid`.
pub(crate) fn oid_of(value: &Bound<'_, PyAny>) -> Option<PyOid> {
    if let Ok(oid) = value.cast::<PyOid>() {
        return Some(*oid.get());
    }
    let oid = value.getattr("oid").ok()?;
    oid.cast::<PyOid>().ok().map(|oid| *oid.get())
}

fn invalid_link(value: &Bound<'_, PyAny>) -> PyErr {
    let shown = value.repr().map_or_else(|_| "the value".to_owned(), |text| text.to_string());
    exception("invalid", format!("invalid link {shown}: must be an OID, an object or None"))
}

fn parse(text: &str) -> Option<PyOid> {
    let mut parts = text.split('-');
    let oid = PyOid {
        database: parts.next()?.parse().ok()?,
        container: parts.next()?.parse().ok()?,
        entry: parts.next()?.parse().ok()?,
    };
    parts.next().is_none().then_some(oid)
}
