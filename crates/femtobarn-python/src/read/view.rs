//! A container as of a snapshot, as Python reads it.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use femtobarn::{Selection, View};
use parking_lot::Mutex;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyList, PyTuple, PyType};
use rntuple::Array;

use crate::buffer::{Buffer, bytes_of};
use crate::columns::{counts_of, tree_of};
use crate::error::{OrRaise, exception};
use crate::handles::{ForkGuard, HandleGroup};
use crate::oid::PyOid;
use crate::read::object::Object;
use crate::read::object_fields::ObjectFields;
use crate::read::snapshot::SnapshotHandle;
use crate::read::values::{BoundsColumns, columns_of_bounds, values_of};
use crate::text::Text;

/// Stored bytes beyond which a read runs on its own thread, so that Ctrl-C interrupts it.
const LONG_READ_BYTES: f64 = 256e6;
/// Objects beyond which a fetch runs on its own thread.
const LONG_FETCH_ENTRIES: usize = 20_000;
/// How often a long read checks for signals.
const SIGNAL_INTERVAL: Duration = Duration::from_millis(100);

/// A container as of a snapshot.
#[pyclass(frozen, module = "femtobarn._femtobarn")]
pub struct ViewHandle {
    view: ForkGuard<View>,
    /// The fields of its objects, created at first use.
    fields: PyOnceLock<Arc<ObjectFields>>,
    /// The class of its objects, and the number of [`DECLARED`] when it was looked up.
    object_class: Mutex<Option<(u64, Option<Py<PyType>>)>>,
}

/// How often Python has declared a class.
static DECLARED: AtomicU64 = AtomicU64::new(0);

/// Notes that Python has declared a class: objects may be of other classes now.
#[pyfunction]
pub(crate) fn note_declaration() {
    DECLARED.fetch_add(1, Ordering::Relaxed);
}

impl ViewHandle {
    /// A handle on a view.
    pub fn new(view: View, group: &HandleGroup) -> Self {
        let (fields, object_class) = (PyOnceLock::new(), Mutex::default());
        Self { view: ForkGuard::new(view, group), fields, object_class }
    }

    /// The engine's view.
    ///
    /// # Errors
    /// `ClosedError`.
    pub fn view(&self) -> PyResult<&View> {
        self.view.get()
    }

    /// The same, with its guard.
    pub fn guard(&self) -> &ForkGuard<View> {
        &self.view
    }

    /// The class of the objects, if it is not [`Object`] itself; `view` is the Python object of this view.
    ///
    /// # Errors
    /// Those of `View._object_class`.
    #[inline]
    pub fn object_class(
        &self,
        py: Python<'_>,
        view: &Bound<'_, PyAny>,
    ) -> PyResult<Option<Py<PyType>>> {
        let declared = DECLARED.load(Ordering::Relaxed);
        if let Some((known, class)) = &*self.object_class.lock()
            && *known == declared
        {
            return Ok(class.as_ref().map(|class| class.clone_ref(py)));
        }
        let class = view.call_method0(intern!(py, "_object_class"))?.cast_into::<PyType>()?;
        let class = (!class.is(py.get_type::<Object>())).then(|| class.unbind());
        let known = class.as_ref().map(|class| class.clone_ref(py));
        let before = self.object_class.lock().replace((declared, known));
        drop(before); // Not under the lock: Python may run then.
        Ok(class)
    }

    /// The fields of the objects.
    ///
    /// # Errors
    /// `ClosedError` at the first call, if the federation is closed.
    #[inline]
    pub fn fields(&self, py: Python<'_>) -> PyResult<&ObjectFields> {
        let fields = self.fields.get_or_try_init(py, || {
            let reserved = Object::reserved_names(py)?;
            let fields = Arc::new(ObjectFields::new(py, self.view()?, reserved));
            self.view.group().page_budget().register(&fields);
            PyResult::Ok(fields)
        });
        fields.map(|fields| &**fields)
    }
}

#[pymethods]
impl ViewHandle {
    /// A handle on the view's snapshot.
    #[getter]
    fn snapshot(&self) -> PyResult<SnapshotHandle> {
        Ok(SnapshotHandle::new(self.view.get()?.snapshot().clone(), self.view.group()))
    }

    /// Database and name, such as `run7/events`.
    #[getter]
    fn name(&self) -> PyResult<String> {
        Ok(self.view.get()?.path())
    }

    #[getter]
    fn database(&self) -> PyResult<u32> {
        Ok(self.view.get()?.container().database.0)
    }

    #[getter]
    fn container(&self) -> PyResult<u32> {
        Ok(self.view.get()?.container().id.0)
    }

    #[getter]
    fn entries(&self) -> PyResult<u64> {
        Ok(self.view.get()?.entries())
    }

    /// Whether objects of the container are deleted.
    #[getter]
    fn has_deletions(&self) -> PyResult<bool> {
        let view = self.view.get()?;
        Ok(view.live() < view.entries())
    }

    /// The runs of live entries in a range: pairs of `uint64`, as bytes.
    fn live_runs(&self, py: Python<'_>, start: u64, stop: u64) -> PyResult<Buffer> {
        let view = self.view.get()?;
        let runs = py.detach(|| view.live_runs(start..stop)).or_raise()?;
        Ok(ends_of(runs))
    }

    /// The ranges of an earlier view's entries whose objects may have changed: pairs of `uint64`, as bytes.
    fn changed_entries(&self, py: Python<'_>, earlier: &ViewHandle) -> PyResult<Buffer> {
        let (view, earlier) = (self.view.get()?, earlier.view.get()?);
        let ranges = py.detach(|| view.changed_entries(earlier)).or_raise()?;
        Ok(ends_of(ranges))
    }

    /// Neighbouring objects; `view` is the Python object of this view.
    fn objects<'py>(
        slf: &Bound<'py, Self>,
        view: &Bound<'py, PyAny>,
        start: u64,
        stop: u64,
    ) -> PyResult<Bound<'py, PyList>> {
        Object::neighbours(slf, view, start..stop.max(start))
    }

    /// The object at an entry, or with an OID of this container; `None` if it does not exist here.
    fn object_at<'py>(
        slf: &Bound<'py, Self>,
        view: &Bound<'py, PyAny>,
        entry: &Bound<'py, PyAny>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let opened = slf.get().view()?;
        let entry = match entry.cast::<PyOid>() {
            Ok(oid) => {
                let (of, oid) = (opened.container(), oid.get());
                let is_here = (oid.database, oid.container) == (of.database.0, of.id.0);
                is_here.then_some(oid.entry)
            }
            Err(_) => entry.extract::<u64>().ok(),
        };
        let Some(entry) = entry else { return Ok(None) };
        let is_there = entry < opened.entries()
            && (opened.live() == opened.entries()
                || !slf.py().detach(|| opened.is_deleted(entry)).or_raise()?);
        is_there.then(|| Object::alone(slf, view, entry).made(slf)).transpose()
    }

    /// The first entry whose object has these values of fields.
    fn find(&self, py: Python<'_>, wanted: &Bound<'_, PyDict>) -> PyResult<Option<u64>> {
        let (view, values) = (self.view.get()?, values_of(wanted)?);
        let names: Vec<&str> = values.iter().map(|(name, _)| name.as_str()).collect();
        let quick = py.detach(|| {
            if view.is_indexed(&names)? { view.find(&values).map(Some) } else { Ok(None) }
        });
        if let Some(found) = quick.or_raise()? {
            return Ok(found);
        }
        let view = view.clone();
        interruptible(py, move || view.find(&values))?.or_raise()
    }

    /// All entries whose objects have these values of fields: `uint64`, as bytes.
    fn find_all(&self, py: Python<'_>, wanted: &Bound<'_, PyDict>) -> PyResult<Buffer> {
        let (view, values) = (self.view.get()?.clone(), values_of(wanted)?);
        let entries = interruptible(py, move || view.find_all(&values))?.or_raise()?;
        Ok(Buffer(rntuple::bytes_of(entries)))
    }

    /// The bounds of a field's values in each cluster, as bytes: first entries and ends (`int64`), least and
    /// greatest values (`float64`), and whether there is NaN (one byte each); `None` if nothing is known.
    fn statistics(&self, py: Python<'_>, path: Text) -> PyResult<Option<BoundsColumns>> {
        let view = self.view.get()?;
        let clusters = py.detach(|| view.statistics(&path)).or_raise()?;
        Ok((!clusters.is_empty()).then(|| columns_of_bounds(&clusters)))
    }

    /// The same objects, as objects of another version of their class.
    fn as_class(&self, py: Python<'_>, version: u32) -> PyResult<Self> {
        let view = self.view.get()?.clone();
        let recast = interruptible(py, move || view.as_class(version))?.or_raise()?;
        Ok(Self::new(recast, self.view.group()))
    }

    /// The container's indexes.
    fn indexes<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let view = self.view.get()?;
        let indexes = py.detach(|| view.indexes()).or_raise()?;
        let rows = PyList::empty(py);
        for index in indexes {
            let row = PyDict::new(py);
            row.set_item("name", index.name)?;
            row.set_item("fields", index.fields)?;
            row.set_item("unique", index.unique)?;
            row.set_item("keys", index.keys)?;
            row.set_item("runs", index.runs)?;
            row.set_item("bytes", index.bytes)?;
            rows.append(row)?;
        }
        Ok(rows)
    }

    /// The class of the objects, as JSON.
    #[getter]
    fn definition(&self) -> PyResult<String> {
        Ok(self.view.get()?.class().to_json())
    }

    /// Columns of a range of entries.
    fn read<'py>(
        &self,
        py: Python<'py>,
        paths: Vec<Text>,
        start: u64,
        stop: u64,
    ) -> PyResult<Bound<'py, PyTuple>> {
        let view = self.view.get()?;
        let part = stop.saturating_sub(start) as f64 / view.entries().max(1) as f64;
        let is_long = part * view.version().bytes as f64 > LONG_READ_BYTES;
        let array = if is_long {
            let view = view.clone();
            interruptible(py, move || view.read(&selection(&view, &paths)?, start..stop))?
        } else {
            py.detach(|| view.read(&selection(view, &paths)?, start..stop))
        };
        tree_of(py, array.or_raise()?)
    }

    /// Columns of entries (`uint64`, as bytes), in the order given.
    pub fn fetch<'py>(
        &self,
        py: Python<'py>,
        entries: &Bound<'py, PyAny>,
        paths: Vec<Text>,
    ) -> PyResult<Bound<'py, PyTuple>> {
        let view = self.view.get()?.clone();
        fetched(py, entries, move |entries| view.fetch(&selection(&view, &paths)?, entries))
    }

    /// The first entry and the end of each cluster, and the stored bytes of some fields in it.
    fn cluster_sizes(&self, py: Python<'_>, paths: Vec<Text>) -> PyResult<Vec<(u64, u64, u64)>> {
        let view = self.view.get()?;
        let sizes = py.detach(|| view.cluster_sizes(&selection(view, &paths)?)).or_raise()?;
        Ok(sizes.into_iter().map(|(range, bytes)| (range.start, range.end, bytes)).collect())
    }

    /// Numbers of items (`int64`) of the collection at a path, for a range of entries.
    fn counts(&self, py: Python<'_>, path: Text, start: u64, stop: u64) -> PyResult<Buffer> {
        let view = self.view.get()?;
        let array: Array = py
            .detach(|| view.read(&view.select(&[format!("{}.#", &*path)])?, start..stop))
            .or_raise()?;
        let counts = counts_of(&array, &path);
        counts
            .map(Buffer)
            .ok_or_else(|| exception("invalid", format!("field {path:?} holds no collection")))
    }
}

fn selection(view: &View, paths: &[Text]) -> femtobarn::Result<Selection> {
    view.select(paths)
}

/// Columns of entries (`uint64`, as bytes), as `fetch` reads them.
///
/// # Errors
/// Those of `fetch`; `InvalidError` if the bytes are not entries.
pub(crate) fn fetched<'py>(
    py: Python<'py>,
    entries: &Bound<'py, PyAny>,
    fetch: impl FnOnce(&[u64]) -> femtobarn::Result<Array> + Send + 'static,
) -> PyResult<Bound<'py, PyTuple>> {
    let entries = bytes_of(entries)?;
    let is_long = entries.len() > LONG_FETCH_ENTRIES * size_of::<u64>();
    let fetch = move || {
        let entries = rntuple::values_of::<u64>(&entries)
            .map_err(|error| femtobarn::Error::Invalid { what: error.to_string() })?;
        fetch(entries)
    };
    let fetched = if is_long { interruptible(py, fetch)? } else { py.detach(fetch) };
    tree_of(py, fetched.or_raise()?)
}

/// Runs a long operation on its own thread while this one checks for signals.
///
/// After an interrupt the operation runs to its end by itself, and its result is dropped.
///
/// # Errors
/// The exception of a signal handler; `InternalError` if the operation panicked.
pub(crate) fn interruptible<T: Send + 'static>(
    py: Python<'_>,
    operation: impl FnOnce() -> T + Send + 'static,
) -> PyResult<T> {
    let (sender, mut receiver) = mpsc::channel();
    std::thread::spawn(move || sender.send(operation()).ok());
    loop {
        let results = &mut receiver;
        let received = py.detach(move || results.recv_timeout(SIGNAL_INTERVAL));
        match received {
            Ok(result) => return Ok(result),
            Err(RecvTimeoutError::Timeout) => py.check_signals()?,
            Err(RecvTimeoutError::Disconnected) => {
                return Err(exception("internal", "the reading thread panicked".to_owned()));
            }
        }
    }
}

/// The ends of ranges: pairs of `uint64`, as bytes.
fn ends_of(ranges: Vec<Range<u64>>) -> Buffer {
    let ends: Vec<u64> = ranges.into_iter().flat_map(|range| [range.start, range.end]).collect();
    Buffer(rntuple::bytes_of(ends))
}
