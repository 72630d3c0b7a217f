//! Conditions, as Python reads and names them: jobs, series, global tags.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use bytes::Bytes;
use femtobarn::Csn;
use femtobarn_conditions::{
    GlobalTag, GlobalTagState, Job, JobOptions, ListedContainer, Series, SeriesVersion, TagChange,
};
use parking_lot::Mutex;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyTuple};

use crate::buffer::{Buffer, bytes_of};
use crate::containers::series_names;
use crate::csn::CsnArgument;
use crate::error::{OrRaise, exception};
use crate::federation::FederationHandle;
use crate::handles::ForkGuard;
use crate::read::object::Object;
use crate::read::snapshot::SnapshotHandle;
use crate::read::view::{ViewHandle, fetched};
use crate::text::{Text, strings};
use crate::transaction::TransactionHandle;

fn invalid(text: String) -> PyErr {
    exception("invalid", text)
}

/// The class of the objects of a series, from the class of its payload; both as JSON.
#[pyfunction]
pub(crate) fn series_definition(payload: Text) -> PyResult<String> {
    let payload = femtobarn::Class::from_json(&payload).or_raise()?;
    Ok(femtobarn_conditions::series_class(&payload).or_raise()?.to_json())
}

/// The class of a series' payload, from the class of its objects; both as JSON.
#[pyfunction]
pub(crate) fn payload_definition(class_: Text) -> PyResult<String> {
    let class = femtobarn::Class::from_json(&class_).or_raise()?;
    Ok(femtobarn_conditions::payload_class(&class).or_raise()?.to_json())
}

/// Resolve a global tag, or all series if there is none, as of a commit or the newest.
#[pyfunction]
pub(crate) fn open_job(
    py: Python<'_>,
    federation: &FederationHandle,
    global_tag: Option<Text>,
    csn: Option<CsnArgument>,
) -> PyResult<JobHandle> {
    let guard = federation.guard();
    let federation = guard.get()?;
    let options = JobOptions { global_tag: global_tag.map(String::from), csn: csn.map(|it| it.0) };
    let job = py.detach(|| Job::open(federation, &options)).or_raise()?;
    Ok(JobHandle { job: ForkGuard::new(job, guard.group()) })
}

/// The conditions that a job reads.
#[pyclass(frozen, module = "femtobarn._femtobarn")]
pub struct JobHandle {
    job: ForkGuard<Job>,
}

#[pymethods]
impl JobHandle {
    #[getter]
    fn csn(&self) -> PyResult<u64> {
        Ok(self.job.get()?.snapshot().csn().0)
    }

    /// The commit as of which the global tag was read.
    #[getter]
    fn resolved_at(&self) -> PyResult<u64> {
        Ok(self.job.get()?.resolved_at().0)
    }

    /// The global tag; `None` if the job reads all series.
    fn global_tag<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyDict>>> {
        self.job.get()?.global_tag().map(|tag| row_of(py, tag)).transpose()
    }

    /// A handle on the snapshot of all series without a commit of their own.
    fn snapshot(&self) -> PyResult<SnapshotHandle> {
        Ok(SnapshotHandle::new(self.job.get()?.snapshot().clone(), self.job.group()))
    }

    fn names(&self, py: Python<'_>) -> PyResult<Vec<String>> {
        let job = self.job.get()?;
        py.detach(|| job.names()).or_raise()
    }

    /// The series from the rows of the catalogue, without opening any: for each its path and `None`, or the class of
    /// the conditions, the clock, the meaning of overlaps, the number of conditions and the commit as of which they are
    /// read, the container with the last of them, and the versions of all containers. `None` stands for a series that
    /// cannot be opened; the number is `None` of a branch: only its containers know what it replaced.
    fn listed(&self, py: Python<'_>) -> PyResult<Vec<(String, Option<ListedFacts>)>> {
        let job = self.job.get()?;
        let listed = py.detach(|| job.list()).or_raise()?;
        Ok(listed.into_iter().map(|it| (it.series, it.containers.and_then(facts_of))).collect())
    }

    fn series(&self, py: Python<'_>, path: Text) -> PyResult<SeriesHandle> {
        let job = self.job.get()?;
        let series = py.detach(|| job.series(&path)).or_raise()?;
        let views =
            series.views().map(|view| Py::new(py, ViewHandle::new(view.clone(), self.job.group())));
        let views = views.collect::<PyResult<_>>()?;
        let series = ForkGuard::new(series, self.job.group());
        Ok(SeriesHandle { series, views, last: Mutex::new(None) })
    }
}

/// The facts about one series; [`JobHandle::listed`] explains the elements.
type ListedFacts = (String, &'static str, &'static str, Option<u64>, u64, String, Vec<u64>);

fn facts_of(mut containers: Vec<ListedContainer>) -> Option<ListedFacts> {
    let version = containers.iter().flat_map(|container| {
        let (database, container, csn) = container.version();
        [u64::from(database.0), u64::from(container.0), csn.0]
    });
    let version = version.collect();
    let is_alone = containers.len() == 1;
    let base = containers.first()?;
    let (payload, (clock, overlap)) = (base.payload(), series_names(base.options()));
    let conditions = is_alone.then(|| base.conditions());
    let last = containers.pop()?;
    Some((payload, clock, overlap, conditions, last.as_of.0, last.path, version))
}

/// A series as of a commit.
#[pyclass(frozen, module = "femtobarn._femtobarn")]
pub struct SeriesHandle {
    series: ForkGuard<Arc<Series>>,
    /// The view of the series first, then those of branches in front of it.
    views: Vec<Py<ViewHandle>>,
    /// The object that was last found, which most often is the next one, too.
    last: Mutex<Option<(u64, Py<PyAny>)>>,
}

#[pymethods]
impl SeriesHandle {
    /// Opens the series in one container, or in the series' container followed by those of branches in front of it.
    #[staticmethod]
    fn open(py: Python<'_>, views: Vec<Py<ViewHandle>>) -> PyResult<Self> {
        let opened = views.iter().map(|view| Ok(view.get().view()?.clone()));
        let opened = opened.collect::<PyResult<Vec<_>>>()?;
        let series = py.detach(|| Series::open(opened)).or_raise()?;
        let first = views.first().ok_or_else(|| invalid("a series has a container".to_owned()))?;
        let series = ForkGuard::new(Arc::new(series), first.get().guard().group());
        Ok(SeriesHandle { series, views, last: Mutex::new(None) })
    }

    /// The handles on the containers.
    #[getter]
    fn views(&self, py: Python<'_>) -> Vec<Py<ViewHandle>> {
        self.views.iter().map(|view| view.clone_ref(py)).collect()
    }

    /// The place of the container with a condition among all, and the condition's entry in it.
    fn place_of(&self, entry: u64) -> PyResult<(usize, u64)> {
        Ok(self.series.get()?.place_of(entry))
    }

    /// Columns of conditions by their entries (`uint64`, as bytes), in the order given.
    fn fetch<'py>(
        &self,
        py: Python<'py>,
        entries: &Bound<'py, PyAny>,
        paths: Vec<Text>,
    ) -> PyResult<Bound<'py, PyTuple>> {
        if let [only] = &*self.views {
            return only.get().fetch(py, entries, paths);
        }
        let series = self.series.get()?.clone();
        fetched(py, entries, move |entries| series.fetch(&paths, entries))
    }

    /// The clock, and the meaning of overlaps.
    #[getter]
    fn settings(&self) -> PyResult<(&'static str, &'static str)> {
        Ok(series_names(self.series.get()?.options()))
    }

    /// Number of conditions, those that newer ones hide included. One that a branch replaced counts once.
    #[getter]
    fn conditions(&self) -> PyResult<u64> {
        Ok(self.series.get()?.conditions())
    }

    /// The entries of conditions that a branch replaced, in order.
    fn replaced_entries(&self) -> PyResult<Vec<u64>> {
        Ok(self.series.get()?.replaced_entries())
    }

    /// The versions of the containers: for each the numbers of the database, of the container, and of the commit
    /// that made it. Series of the same versions have the same conditions.
    #[getter]
    fn version(&self) -> PyResult<Vec<u64>> {
        let versions = self.series.get()?.views().map(|view| *view.version());
        let numbers = versions.map(|version| {
            [u64::from(version.database.0), u64::from(version.container.0), version.csn.0]
        });
        Ok(numbers.flatten().collect())
    }

    /// The name of the version, which no other conditions ever have.
    fn version_name(&self, py: Python<'_>) -> PyResult<String> {
        let series = self.series.get()?;
        py.detach(|| series.version_name()).or_raise()
    }

    /// The object that is valid at a moment; `views` are the Python objects of the containers.
    fn at(
        &self,
        py: Python<'_>,
        views: &Bound<'_, PyTuple>,
        at: i64,
        channel: i64,
    ) -> PyResult<Option<Py<PyAny>>> {
        let series = self.series.get()?;
        let found = series.loaded_at(channel, at);
        let found = match found {
            Some(found) => found,
            None => py.detach(|| series.at(channel, at)).or_raise()?,
        };
        let Some(entry) = found.entry else { return Ok(None) };
        let mut last = self.last.lock();
        if let Some((last, object)) = &*last
            && *last == entry
        {
            return Ok(Some(object.clone_ref(py)));
        }
        let (place, local) = series.place_of(entry);
        let (handle, view) = (self.views[place].bind(py), views.get_item(place)?);
        let object = Object::alone(handle, &view, local).made(handle)?.unbind();
        *last = Some((entry, object.clone_ref(py)));
        Ok(Some(object))
    }

    /// The interval around a moment: its ends, and the entry of the valid object.
    fn interval(&self, py: Python<'_>, channel: i64, at: i64) -> PyResult<(i64, i64, Option<u64>)> {
        let series = self.series.get()?;
        let found = py.detach(|| series.interval(channel, at)).or_raise()?;
        Ok((found.since, found.until, found.entry))
    }

    /// The entries of the objects that are valid at many moments, each once in the order in which they are first
    /// met (`uint64`), and for each moment the position of its entry there or -1 (`int64`). Moments and channels
    /// are `int64`; without channels, `channel` is that of all.
    fn entries_at(
        &self,
        py: Python<'_>,
        times: &Bound<'_, PyAny>,
        channels: Option<&Bound<'_, PyAny>>,
        channel: i64,
    ) -> PyResult<(Buffer, Buffer)> {
        let series = self.series.get()?;
        let times = bytes_of(times)?;
        let channels = channels.map(bytes_of).transpose()?;
        let found = py.detach(|| entries_at(series, &times, channels.as_ref(), channel));
        let (entries, positions) = found.or_raise()?;
        Ok((Buffer(rntuple::bytes_of(entries)), Buffer(rntuple::bytes_of(positions))))
    }

    /// The intervals of a channel with a valid object that meet a range: beginnings, ends (`int64`) and entries
    /// (`uint64`).
    fn intervals(
        &self,
        py: Python<'_>,
        channel: i64,
        since: i64,
        until: i64,
    ) -> PyResult<(Buffer, Buffer, Buffer)> {
        let series = self.series.get()?;
        let found = py.detach(|| series.intervals(channel, since..until)).or_raise()?;
        let since: Vec<i64> = found.iter().map(|it| it.since).collect();
        let until: Vec<i64> = found.iter().map(|it| it.until).collect();
        let entries: Vec<u64> = found.iter().filter_map(|it| it.entry).collect();
        let buffer = |values: Bytes| Buffer(values);
        Ok((
            buffer(rntuple::bytes_of(since)),
            buffer(rntuple::bytes_of(until)),
            buffer(rntuple::bytes_of(entries)),
        ))
    }

    /// The channels that have a valid object at some time in a range.
    fn channels(&self, py: Python<'_>, since: i64, until: i64) -> PyResult<Vec<i64>> {
        let series = self.series.get()?;
        py.detach(|| series.channels(since..until)).or_raise()
    }
}

fn entries_at(
    series: &Series,
    times: &[u8],
    channels: Option<&Bytes>,
    channel: i64,
) -> femtobarn::Result<(Vec<u64>, Vec<i64>)> {
    let integers = |bytes| {
        let values = rntuple::values_of::<i64>(bytes);
        values.map_err(|error| femtobarn::Error::Invalid { what: error.to_string() })
    };
    let times = integers(times)?;
    let channels = channels.map(|bytes| integers(bytes)).transpose()?;
    if let Some(channels) = channels.filter(|channels| channels.len() != times.len()) {
        return Err(femtobarn::Error::Invalid {
            what: format!(
                "{} moments but {} channels; give as many channels as moments, or one",
                times.len(),
                channels.len()
            ),
        });
    }
    let mut cursor = series.cursor();
    let mut distinct: Vec<u64> = vec![];
    let mut places: HashMap<u64, i64> = HashMap::new();
    let mut last = (None, -1);
    let mut positions = Vec::with_capacity(times.len());
    for (index, &at) in times.iter().enumerate() {
        let channel = channels.map_or(channel, |channels| channels[index]);
        let entry = cursor.at(channel, at)?.entry;
        if entry != last.0 {
            let place = entry.map_or(-1, |entry| {
                *places.entry(entry).or_insert_with(|| {
                    distinct.push(entry);
                    distinct.len() as i64 - 1
                })
            });
            last = (entry, place);
        }
        positions.push(last.1);
    }
    Ok((distinct, positions))
}

/// All global tags as of a snapshot.
#[pyfunction]
pub(crate) fn global_tags<'py>(
    py: Python<'py>,
    snapshot: &SnapshotHandle,
) -> PyResult<Bound<'py, PyList>> {
    let snapshot = snapshot.guard().get()?;
    rows_of(py, &py.detach(|| GlobalTag::all(snapshot)).or_raise()?)
}

/// The states that a global tag had, the oldest first.
#[pyfunction]
pub(crate) fn global_tag_history<'py>(
    py: Python<'py>,
    snapshot: &SnapshotHandle,
    name: Text,
) -> PyResult<Bound<'py, PyList>> {
    let snapshot = snapshot.guard().get()?;
    rows_of(py, &py.detach(|| GlobalTag::history(snapshot, &name)).or_raise()?)
}

/// Open a series of a branch within a transaction, and make its container at the first time. The path of the
/// container, and those behind it with that of the series first.
#[pyfunction]
pub(crate) fn open_branch(
    py: Python<'_>,
    transaction: &TransactionHandle,
    branch: Text,
    series: Text,
) -> PyResult<(String, Vec<ViewHandle>)> {
    transaction.with(py, |transaction, group| {
        let opened =
            py.detach(|| GlobalTag::open_branch(transaction, &branch, &series)).or_raise()?;
        let behind = opened.behind.into_iter().map(|view| ViewHandle::new(view, group));
        Ok((opened.container, behind.collect()))
    })
}

/// The version of a series as Python passes it: a commit, and the container that is read instead.
type VersionArguments = (Option<CsnArgument>, Option<Text>);

/// Change a global tag, or make one.
#[pyfunction]
#[expect(clippy::too_many_arguments, reason = "the facade passes them by position")]
pub(crate) fn change_global_tag<'py>(
    py: Python<'py>,
    federation: &FederationHandle,
    name: Text,
    message: Text,
    create: bool,
    copy_of: Option<Text>,
    branch: bool,
    state: Option<Text>,
    csn: Option<CsnArgument>,
    only_listed: Option<bool>,
    set: BTreeMap<Text, VersionArguments>,
    remove: Vec<Text>,
) -> PyResult<Bound<'py, PyDict>> {
    let federation = federation.guard().get()?;
    let state = state.map(|name| {
        GlobalTagState::from_name(&name)
            .ok_or_else(|| invalid(format!("unknown state {name:?}: use open, locked or frozen")))
    });
    let set = set.into_iter().map(|(series, (csn, source))| {
        let (csn, source) = (csn.map(|it| it.0), source.map(String::from));
        (series.into(), SeriesVersion { csn, source, ..Default::default() })
    });
    let change = TagChange {
        create: create.then_some(copy_of.map(String::from)),
        branch,
        state: state.transpose()?,
        // The facade passes 0 for a tag that is to follow the newest commit.
        csn: csn.map(|CsnArgument(csn)| (csn > Csn::ZERO).then_some(csn)),
        only_listed,
        set: set.collect(),
        remove: strings(remove),
        message: message.into(),
    };
    let changed = py.detach(|| GlobalTag::change(federation, &name, &change)).or_raise()?;
    row_of(py, &changed)
}

fn rows_of<'py>(py: Python<'py>, tags: &[GlobalTag]) -> PyResult<Bound<'py, PyList>> {
    let rows = PyList::empty(py);
    tags.iter().try_for_each(|tag| rows.append(row_of(py, tag)?))?;
    Ok(rows)
}

fn row_of<'py>(py: Python<'py>, tag: &GlobalTag) -> PyResult<Bound<'py, PyDict>> {
    let (series, branches) = (PyDict::new(py), PyDict::new(py));
    for (path, version) in &tag.series {
        series.set_item(path, (version.csn.map(|csn| csn.0), version.source.as_deref()))?;
        if !version.branches.is_empty() {
            let in_front =
                version.branches.iter().map(|it| (&it.container, it.csn.map(|csn| csn.0)));
            branches.set_item(path, in_front.collect::<Vec<_>>())?;
        }
    }
    let row = PyDict::new(py);
    row.set_item("name", &tag.name)?;
    row.set_item("state", tag.state.name())?;
    row.set_item("csn", tag.csn.map(|csn| csn.0))?;
    row.set_item("only_listed", tag.only_listed)?;
    row.set_item("is_branch", tag.is_branch)?;
    row.set_item("series", series)?;
    row.set_item("branches", branches)?;
    row.set_item("changed", tag.changed_series().collect::<Vec<_>>())?;
    row.set_item("time_ns", tag.time)?;
    row.set_item("user", &tag.user)?;
    row.set_item("message", &tag.message)?;
    Ok(row)
}
