//! Operating a federation: tags, retention, locks, checks, repair, backups.

use std::collections::BTreeMap;

use femtobarn::{
    At, CheckLevel, CheckReport, Csn, Federation, FileMetadata, Problem, RepairOptions, Retention,
    RootFileKind, Severity,
};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};

use crate::csn::CsnArgument;
use crate::durations::lock_wait_of;
use crate::error::OrRaise;
use crate::handles::{ForkGuard, HandleGroup};
use crate::progress::{stoppable, watched};
use crate::read::snapshot::SnapshotHandle;
use crate::text::{FilePath, Text};

/// A handle on an open federation for its operators.
#[pyclass(frozen, module = "femtobarn._femtobarn")]
pub struct UpkeepHandle {
    federation: ForkGuard<Federation>,
}

impl UpkeepHandle {
    pub fn new(federation: Federation, group: &HandleGroup) -> Self {
        Self { federation: ForkGuard::new(federation, group) }
    }

    /// The federation.
    ///
    /// # Errors
    /// `ClosedError` if it is closed.
    pub fn federation(&self) -> PyResult<&Federation> {
        self.federation.get()
    }
}

#[pymethods]
impl UpkeepHandle {
    #[pyo3(signature = (name, csn, message))]
    fn tag(
        &self,
        py: Python<'_>,
        name: Text,
        csn: Option<CsnArgument>,
        message: Text,
    ) -> PyResult<u64> {
        let federation = self.federation.get()?;
        let tag = py.detach(|| federation.tag(&name, csn.map(|it| it.0), &message)).or_raise()?;
        Ok(tag.csn.0)
    }

    fn untag(&self, py: Python<'_>, name: Text) -> PyResult<()> {
        let federation = self.federation.get()?;
        py.detach(|| federation.untag(&name)).or_raise()
    }

    fn tags<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let federation = self.federation.get()?;
        let tags = py.detach(|| federation.tags()).or_raise()?;
        let rows = PyList::empty(py);
        for tag in tags {
            let row = PyDict::new(py);
            row.set_item("name", tag.name)?;
            row.set_item("csn", tag.csn.0)?;
            row.set_item("time_us", tag.created_us)?;
            row.set_item("message", tag.message)?;
            row.set_item("user", tag.user)?;
            rows.append(row)?;
        }
        Ok(rows)
    }

    /// The snapshot of a tag.
    fn tagged(&self, py: Python<'_>, name: Text) -> PyResult<SnapshotHandle> {
        let federation = self.federation.get()?;
        let snapshot = py.detach(|| federation.snapshot_at(&At::Tag(name.into()))).or_raise()?;
        Ok(SnapshotHandle::new(snapshot, self.federation.group()))
    }

    /// The newest snapshot at a time.
    fn at_time(&self, py: Python<'_>, time_us: i64) -> PyResult<SnapshotHandle> {
        let federation = self.federation.get()?;
        let snapshot = py.detach(|| federation.snapshot_at(&At::Time(time_us))).or_raise()?;
        Ok(SnapshotHandle::new(snapshot, self.federation.group()))
    }

    /// How many commits and how many days are kept.
    fn retention(&self, py: Python<'_>) -> PyResult<(Option<u64>, Option<u64>)> {
        let federation = self.federation.get()?;
        let kept = py.detach(|| federation.retention()).or_raise()?;
        Ok((kept.keep_commits, kept.keep_days))
    }

    #[pyo3(signature = (keep_commits, keep_days))]
    fn set_retention(
        &self,
        py: Python<'_>,
        keep_commits: Option<u64>,
        keep_days: Option<u64>,
    ) -> PyResult<()> {
        let federation = self.federation.get()?;
        py.detach(|| federation.set_retention(Retention { keep_commits, keep_days })).or_raise()
    }

    /// The settings of the catalogue, in the federation's folder alone.
    fn settings(&self, py: Python<'_>) -> PyResult<BTreeMap<String, String>> {
        let federation = self.federation.get()?;
        py.detach(|| federation.catalog().local()?.settings()).or_raise()
    }

    /// The locks that are held.
    fn locks<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let federation = self.federation.get()?;
        let held = py.detach(|| federation.catalog().locks().held()).or_raise()?;
        let rows = PyList::empty(py);
        for lock in held {
            let row = self.target(py, &lock.target.to_string(), lock.target)?;
            row.set_item("shared", lock.is_shared)?;
            row.set_item("holder", lock.holder.map(|by| by.to_string()))?;
            rows.append(row)?;
        }
        Ok(rows)
    }

    /// The transactions that wait for locks.
    fn waits<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let federation = self.federation.get()?;
        let waiting = py.detach(|| federation.catalog().locks().waiting()).or_raise()?;
        let rows = PyList::empty(py);
        for waiter in waiting {
            let row = self.target(py, &waiter.target.to_string(), waiter.target)?;
            row.set_item("waiter", waiter.by.to_string())?;
            row.set_item("holder", waiter.holder.map(|by| by.to_string()))?;
            rows.append(row)?;
        }
        Ok(rows)
    }

    fn check<'py>(
        &self,
        py: Python<'py>,
        full: bool,
        progress: Option<Py<PyAny>>,
    ) -> PyResult<Bound<'py, PyDict>> {
        let federation = self.federation.get()?;
        let level = if full { CheckLevel::Full } else { CheckLevel::Quick };
        let report = watched(py, progress, |watch| federation.check(level, watch).or_raise())?;
        check_report(py, &report)
    }

    fn repair<'py>(
        &self,
        py: Python<'py>,
        salvage: bool,
        dry_run: bool,
        lock_wait: f64,
        progress: Option<Py<PyAny>>,
    ) -> PyResult<Bound<'py, PyDict>> {
        let federation = self.federation.get()?;
        let options = RepairOptions { salvage, dry_run, lock_wait: lock_wait_of(lock_wait)? };
        let report = watched(py, progress, |watch| federation.repair(&options, watch).or_raise())?;
        let facts = PyDict::new(py);
        facts.set_item("done", &report.done)?;
        facts.set_item("left", problems(py, &report.left)?)?;
        Ok(facts)
    }

    fn backup<'py>(
        &self,
        py: Python<'py>,
        folder: FilePath,
        since: Option<FilePath>,
        progress: Option<Py<PyAny>>,
    ) -> PyResult<Bound<'py, PyDict>> {
        let federation = self.federation.get()?;
        let made = watched(py, progress, |watch| {
            federation.backup(&folder, since.as_deref(), watch).or_raise()
        })?;
        let facts = PyDict::new(py);
        facts.set_item("csn", made.csn.0)?;
        facts.set_item("files", made.files)?;
        facts.set_item("bytes", made.bytes)?;
        facts.set_item("stored", made.stored)?;
        let left_out: Vec<String> =
            made.left_out.iter().map(|path| path.display().to_string()).collect();
        facts.set_item("nearline", made.nearline)?;
        facts.set_item("left_out", left_out)?;
        Ok(facts)
    }

    fn move_catalogue<'py>(
        &self,
        py: Python<'py>,
        url: Option<Text>,
        progress: Option<Py<PyAny>>,
    ) -> PyResult<Bound<'py, PyDict>> {
        let federation = self.federation.get()?;
        let moved = watched(py, progress, |watch| {
            federation.move_catalogue(url.as_deref(), watch).or_raise()
        })?;
        let facts = PyDict::new(py);
        facts.set_item("rows", moved.rows)?;
        facts.set_item("csn", moved.csn.0)?;
        facts.set_item("origin", moved.from)?;
        facts.set_item("place", moved.to)?;
        Ok(facts)
    }

    fn detach(
        &self,
        py: Python<'_>,
        database: Text,
        to: Option<FilePath>,
        lock_wait: f64,
    ) -> PyResult<String> {
        let federation = self.federation.get()?;
        let wait = lock_wait_of(lock_wait)?;
        let to = to.as_deref();
        let path = stoppable(py, || federation.detach(&database, to, wait).or_raise())?;
        Ok(path.display().to_string())
    }
}

impl UpkeepHandle {
    /// The target of a lock, with its current names.
    fn target<'py>(
        &self,
        py: Python<'py>,
        text: &str,
        target: femtobarn::LockTarget,
    ) -> PyResult<Bound<'py, PyDict>> {
        let catalog = self.federation.get()?.catalog();
        let database = target.database().and_then(|id| catalog.database_by_id(id, Csn::MAX).ok());
        let container = database.as_ref().zip(target.container()).and_then(|(database, id)| {
            let row = catalog.container_by_id(database.id, id, Csn::MAX).ok()?;
            Some(format!("{}/{}", database.name, row.name))
        });
        let row = PyDict::new(py);
        row.set_item("target", text)?;
        row.set_item("database", database.map(|row| row.name))?;
        row.set_item("container", container)?;
        Ok(row)
    }
}

/// Identify a file.
#[pyfunction]
pub(crate) fn identify(py: Python<'_>, path: FilePath) -> PyResult<Bound<'_, PyDict>> {
    let metadata = py.detach(|| femtobarn::identify(&path)).or_raise()?;
    file_metadata(py, &metadata)
}

fn file_metadata<'py>(py: Python<'py>, metadata: &FileMetadata) -> PyResult<Bound<'py, PyDict>> {
    let row = PyDict::new(py);
    row.set_item("path", metadata.path.display().to_string())?;
    row.set_item("bytes", metadata.bytes)?;
    row.set_item("kind", kind_of(metadata.kind))?;
    row.set_item("format", metadata.format)?;
    row.set_item("uuid", metadata.uuid.map(|uuid| uuid.to_string()))?;
    row.set_item("root_version", metadata.root_version)?;
    row.set_item("federation", metadata.federation.map(|uuid| uuid.to_string()))?;
    row.set_item("database", metadata.database.as_ref().map(|(name, _)| name))?;
    let containers = PyList::empty(py);
    for container in &metadata.containers {
        let entry = PyDict::new(py);
        entry.set_item("name", &container.name)?;
        entry.set_item("id", container.container)?;
        entry.set_item("class", container.class.as_ref().map(|(name, _)| name))?;
        entry.set_item("class_version", container.class.as_ref().map(|(_, version)| version))?;
        entry.set_item("entries", container.entries)?;
        entry.set_item("deleted", container.deleted)?;
        entry.set_item("clusters", container.clusters)?;
        containers.append(entry)?;
    }
    row.set_item("containers", containers)?;
    row.set_item("commits", metadata.commits)?;
    let last = metadata.last_commit.as_ref();
    row.set_item("last_message", last.map(|commit| &commit.message))?;
    row.set_item("last_time_us", last.map(|commit| commit.time_us))?;
    row.set_item("problem", metadata.problem.as_ref())?;
    Ok(row)
}

fn kind_of(kind: RootFileKind) -> &'static str {
    match kind {
        RootFileKind::OpenDatabase => "open database",
        RootFileKind::SealedDatabase => "sealed database",
        RootFileKind::RootFile => "ROOT file",
        RootFileKind::UnfinishedFile => "unfinished ROOT file",
        RootFileKind::Other => "no ROOT file",
    }
}

fn check_report<'py>(py: Python<'py>, report: &CheckReport) -> PyResult<Bound<'py, PyDict>> {
    let problems = problems(py, &report.problems)?;
    let facts = PyDict::new(py);
    facts.set_item("sound", report.is_sound())?;
    facts.set_item("complete", report.is_complete)?;
    facts.set_item("problems", problems)?;
    let counts = [
        ("more_problems", report.more_problems),
        ("databases", report.databases),
        ("nearline", report.nearline),
        ("elsewhere", report.elsewhere),
        ("containers", report.containers),
        ("versions", report.versions),
        ("pages", report.pages),
        ("objects", report.objects),
        ("links", report.links),
        ("bytes", report.bytes),
        ("unreferenced_bytes", report.unreferenced_bytes),
        ("orphan_bytes", report.orphan_bytes),
    ];
    counts.iter().try_for_each(|(name, count)| facts.set_item(name, count))?;
    Ok(facts)
}

fn problems<'py>(py: Python<'py>, problems: &[Problem]) -> PyResult<Bound<'py, PyList>> {
    let rows = PyList::empty(py);
    for problem in problems {
        let row = PyDict::new(py);
        row.set_item("severity", severity_of(problem.severity))?;
        row.set_item("kind", format!("{:?}", problem.kind))?;
        row.set_item("where", problem.place.to_string())?;
        row.set_item("what", &problem.what)?;
        row.set_item("advice", &problem.advice)?;
        rows.append(row)?;
    }
    Ok(rows)
}

fn severity_of(severity: Severity) -> &'static str {
    match severity {
        Severity::Notice => "notice",
        Severity::Warning => "warning",
        Severity::Damage => "damage",
    }
}
