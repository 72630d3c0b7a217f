//! Handles on open federations.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use femtobarn::{
    CATALOGUE_ADDRESS_FILE, Csn, Federation, Isolation, OpenOptions, Result, TierStatistics,
    TransactionOptions,
};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};

use crate::csn::CsnArgument;
use crate::durations::{lock_wait_of, server_timeout};
use crate::error::OrRaise;
use crate::handles::{ForkGuard, HandleGroup};
use crate::progress::{stoppable, watched};
use crate::read::snapshot::SnapshotHandle;
use crate::read::view::interruptible;
use crate::storage::stage_for_readers;
use crate::tasks::{TaskHandle, fork_of};
use crate::text::{FilePath, Text, strings};
use crate::transaction::TransactionHandle;
use crate::upkeep::UpkeepHandle;

/// An open federation.
#[pyclass(frozen, module = "femtobarn._femtobarn")]
pub struct FederationHandle {
    federation: ForkGuard<Federation>,
    /// The options with which it was opened.
    options: OpenOptions,
}

#[pymethods]
impl FederationHandle {
    #[staticmethod]
    fn create(
        py: Python<'_>,
        path: FilePath,
        name: Text,
        catalogue: Option<Text>,
    ) -> PyResult<Self> {
        let create = || match &catalogue {
            None => Federation::create(&path, &name),
            Some(url) => Federation::create_in_postgres(&path, &name, url),
        };
        let created = py.detach(create).or_raise()?;
        Ok(Self::over(created, OpenOptions::default(), true))
    }

    #[staticmethod]
    #[expect(clippy::too_many_arguments, reason = "the facade passes them by position")]
    #[pyo3(signature = (path, cache_bytes, metadata_bytes, threads, streams, read_ahead_bytes, disk_cache, disk_cache_bytes, memcached, timeout, stage))]
    fn open(
        py: Python<'_>,
        path: FilePath,
        cache_bytes: Option<u64>,
        metadata_bytes: Option<u64>,
        threads: Option<usize>,
        streams: Option<usize>,
        read_ahead_bytes: Option<u64>,
        disk_cache: Option<FilePath>,
        disk_cache_bytes: Option<u64>,
        memcached: Vec<Text>,
        timeout: Option<f64>,
        stage: bool,
    ) -> PyResult<Self> {
        let usual = OpenOptions::default();
        let options = OpenOptions {
            cache_bytes: cache_bytes.unwrap_or(usual.cache_bytes),
            metadata_bytes: metadata_bytes.unwrap_or(usual.metadata_bytes),
            threads: threads.unwrap_or(usual.threads),
            streams: streams.unwrap_or(usual.streams),
            read_ahead_bytes: read_ahead_bytes.unwrap_or(usual.read_ahead_bytes),
            disk_cache: disk_cache.map(PathBuf::from),
            disk_cache_bytes: disk_cache_bytes.unwrap_or(usual.disk_cache_bytes),
            memcached: strings(memcached),
            timeout: timeout.map_or(Ok(usual.timeout), server_timeout)?,
        };
        let open = {
            let (path, options) = (path.to_path_buf(), options.clone());
            move || opened(&path, options)
        };
        // Its server may not answer.
        let is_far = is_url(&path) || path.join(CATALOGUE_ADDRESS_FILE).exists();
        let opened = if is_far { interruptible(py, open)? } else { py.detach(open) }.or_raise()?;
        Ok(Self::over(opened, options, stage))
    }

    /// The address of a container's `fb_view` as of a commit, which its taker releases. The federation is opened again
    /// for it, as it was opened here but for one thread: its reader has threads of its own. These may not wait for the
    /// interpreter, which the thread that started them may hold, so nothing is staged.
    fn view_for_c(&self, py: Python<'_>, container: Text, csn: u64) -> PyResult<usize> {
        let folder = self.federation.get()?.folder();
        let options = OpenOptions { threads: 1, ..self.options.clone() };
        let open = || opened(folder, options)?.snapshot(Some(Csn(csn)))?.view(&container);
        let view = py.detach(open).or_raise()?;
        Ok(femtobarn_c::view_for_c(view) as usize)
    }

    #[getter]
    fn name(&self) -> PyResult<String> {
        Ok(self.federation.get()?.name().to_owned())
    }

    #[getter]
    fn path(&self) -> PyResult<OsString> {
        // As text: `Path` would remove a slash from a URL.
        Ok(self.federation.get()?.folder().as_os_str().to_owned())
    }

    #[getter]
    fn uuid(&self) -> PyResult<String> {
        Ok(self.federation.get()?.uuid().to_string())
    }

    fn head(&self, py: Python<'_>) -> PyResult<u64> {
        let federation = self.federation.get()?;
        Ok(py.detach(|| federation.head()).or_raise()?.0)
    }

    fn snapshot(&self, py: Python<'_>, csn: Option<CsnArgument>) -> PyResult<SnapshotHandle> {
        let federation = self.federation.get()?;
        let csn = csn.map(|it| it.0);
        let snapshot = stoppable(py, || federation.snapshot(csn).or_raise())?;
        Ok(SnapshotHandle::new(snapshot, self.federation.group()))
    }

    fn csn_at(&self, py: Python<'_>, time_us: i64) -> PyResult<u64> {
        let federation = self.federation.get()?;
        Ok(py.detach(|| federation.catalog().snapshot_at_time(time_us)).or_raise()?.0)
    }

    fn begin(
        &self,
        py: Python<'_>,
        message: Text,
        lock_wait: f64,
        serializable: bool,
    ) -> PyResult<TransactionHandle> {
        let federation = self.federation.get()?;
        let isolation = if serializable { Isolation::Serializable } else { Isolation::Snapshot };
        let options = TransactionOptions {
            message: message.into(),
            lock_wait: lock_wait_of(lock_wait)?,
            isolation,
        };
        let transaction = py.detach(|| federation.transaction(options)).or_raise()?;
        Ok(TransactionHandle::new(transaction, self.federation.group()))
    }

    fn begin_task(
        &self,
        py: Python<'_>,
        fork: &Bound<'_, PyAny>,
        task: Text,
    ) -> PyResult<TaskHandle> {
        let (federation, fork) = (self.federation.get()?, fork_of(fork)?);
        let writer = py.detach(|| federation.begin_task(&fork, &task)).or_raise()?;
        Ok(TaskHandle::new(py, writer, self.federation.group()))
    }

    fn attach<'py>(
        &self,
        py: Python<'py>,
        path: FilePath,
        name: Option<Text>,
    ) -> PyResult<Bound<'py, PyDict>> {
        let federation = self.federation.get()?;
        let attached = stoppable(py, || federation.attach(&path, name.as_deref()).or_raise())?;
        let facts = PyDict::new(py);
        facts.set_item("id", attached.database.0)?;
        facts.set_item("name", attached.name)?;
        facts.set_item("containers", attached.containers)?;
        facts.set_item("ignored", attached.ignored)?;
        let renamed = PyDict::new(py);
        attached.renamed.into_iter().try_for_each(|(there, here)| renamed.set_item(there, here))?;
        facts.set_item("renamed", renamed)?;
        Ok(facts)
    }

    fn seal(&self, py: Python<'_>, database: Text, lock_wait: f64) -> PyResult<u64> {
        let federation = self.federation.get()?;
        let lock_wait = lock_wait_of(lock_wait)?;
        Ok(stoppable(py, || federation.seal(&database, lock_wait).or_raise())?.0)
    }

    /// The declared classes, each as JSON.
    fn classes(&self, py: Python<'_>) -> PyResult<Vec<String>> {
        let federation = self.federation.get()?;
        let classes = py.detach(|| federation.catalog().classes()).or_raise()?;
        Ok(classes.into_iter().map(|class| class.definition).collect())
    }

    fn history<'py>(&self, py: Python<'py>, limit: Option<u64>) -> PyResult<Bound<'py, PyList>> {
        // SQLite's integers are signed.
        let limit = limit.unwrap_or(i64::MAX as u64);
        let federation = self.federation.get()?;
        let commits = py.detach(|| federation.history(limit)).or_raise()?;
        let rows = PyList::empty(py);
        for commit in commits {
            let row = PyDict::new(py);
            row.set_item("csn", commit.csn.0)?;
            row.set_item("transaction", commit.transaction.to_string())?;
            row.set_item("time_us", commit.time_us)?;
            row.set_item("message", commit.message)?;
            row.set_item("user", commit.user)?;
            row.set_item("host", commit.host)?;
            row.set_item("pid", commit.pid)?;
            rows.append(row)?;
        }
        Ok(rows)
    }

    /// Reads from each cache and from the server: name, hits, misses, bytes, damaged, failures.
    #[expect(clippy::type_complexity, reason = "the fields of the facade's class, in its order")]
    fn read_statistics(&self) -> PyResult<Vec<(String, u64, u64, u64, u64, u64)>> {
        let tiers = self.federation.get()?.read_statistics();
        let row = |tier: TierStatistics| {
            (tier.name, tier.hits, tier.misses, tier.bytes, tier.damaged, tier.failures)
        };
        Ok(tiers.into_iter().map(row).collect())
    }

    fn upkeep(&self) -> PyResult<UpkeepHandle> {
        let federation = self.federation.get()?.clone();
        Ok(UpkeepHandle::new(federation, self.federation.group()))
    }

    /// Close all handles of the federation, release page memory and unused extents, and complete its files
    /// now: snapshots may live on in cycles of references.
    fn close(&self, py: Python<'_>) {
        let group = self.federation.group();
        if let Ok(federation) = self.federation.get() {
            group.page_budget().release();
            federation.release_pages();
            py.detach(|| {
                federation.release_extents();
                federation.end_writes();
                federation.publish_disk_cache();
            });
        }
        group.close();
    }
}

impl FederationHandle {
    /// The engine's federation, with its guard.
    pub(crate) fn guard(&self) -> &ForkGuard<Federation> {
        &self.federation
    }

    /// A handle on a federation that was just opened; `stages`: whether readers stage nearline databases.
    fn over(federation: Federation, options: OpenOptions, stages: bool) -> Self {
        if stages {
            stage_for_readers(&federation);
        }
        Self { federation: ForkGuard::new(federation, &HandleGroup::new()), options }
    }
}

/// Opens a federation in a folder or, if the path is a URL or several, at servers.
fn opened(path: &Path, options: OpenOptions) -> Result<Federation> {
    match path.to_str().filter(|_| is_url(path)) {
        Some(text) => Federation::open_urls(&urls(text), options),
        None => Federation::open_with(path, options),
    }
}

fn is_url(path: &Path) -> bool {
    path.to_str().is_some_and(|text| text.contains("://"))
}

/// The URLs of one server, or of several with commas between them.
fn urls(text: &str) -> Vec<String> {
    let are_several = text.split(',').all(|part| part.contains("://"));
    let parts = if are_several { text.split(',').collect() } else { vec![text] };
    parts.into_iter().map(str::to_owned).collect()
}

/// Where the token is that is sent to servers over TLS, and the token itself.
#[pyfunction]
pub(crate) fn bearer_token() -> Option<(OsString, String)> {
    femtobarn::bearer_token().map(|found| (found.place.into_os_string(), found.token.0))
}

/// Restore a federation from a full backup and the incremental ones that follow it.
#[pyfunction]
pub(crate) fn restore(
    py: Python<'_>,
    backups: Vec<FilePath>,
    folder: FilePath,
    progress: Option<Py<PyAny>>,
) -> PyResult<FederationHandle> {
    let backups: Vec<&Path> = backups.iter().map(|path| &**path).collect();
    let restored =
        watched(py, progress, |watch| femtobarn::restore(&backups, &folder, watch).or_raise())?;
    Ok(FederationHandle::over(restored, OpenOptions::default(), true))
}
