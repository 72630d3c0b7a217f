//! Vacuum, compaction, and rebuilding the catalogue.

use femtobarn::{
    CompactOptions, Compacted, PackedField, RebuildReport, VacuumOptions, VacuumReport,
};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};

use crate::containers::profile_of;
use crate::csn::CsnArgument;
use crate::durations::lock_wait_of;
use crate::error::OrRaise;
use crate::progress::watched;
use crate::read::view::{ViewHandle, interruptible};
use crate::text::{FilePath, Text};
use crate::upkeep::UpkeepHandle;

/// Delete versions that no retained snapshot needs.
#[pyfunction]
pub(crate) fn vacuum<'py>(
    py: Python<'py>,
    of: &UpkeepHandle,
    keep_from: Option<CsnArgument>,
    dry_run: bool,
    lock_wait: f64,
    progress: Option<Py<PyAny>>,
) -> PyResult<Bound<'py, PyDict>> {
    let federation = of.federation()?;
    let options = vacuum_options(keep_from, dry_run, lock_wait)?;
    let done = watched(py, progress, |watch| federation.vacuum(&options, watch).or_raise())?;
    vacuum_report(py, &done)
}

/// Merge the small clusters of a container, or of all containers of a database.
#[pyfunction]
pub(crate) fn compact<'py>(
    py: Python<'py>,
    of: &UpkeepHandle,
    path: Text,
    all: bool,
    compression: Option<Text>,
    lock_wait: f64,
    progress: Option<Py<PyAny>>,
) -> PyResult<Bound<'py, PyList>> {
    let federation = of.federation()?;
    let options = compact_options(all, compression.as_deref(), lock_wait)?;
    let done =
        watched(py, progress, |watch| federation.compact(&path, &options, watch).or_raise())?;
    compacted(py, &done)
}

/// Compact, then vacuum.
#[pyfunction]
pub(crate) fn tidy<'py>(
    py: Python<'py>,
    of: &UpkeepHandle,
    database: Option<Text>,
    lock_wait: f64,
    progress: Option<Py<PyAny>>,
) -> PyResult<Bound<'py, PyDict>> {
    let federation = of.federation()?;
    let compact = compact_options(false, None, lock_wait)?;
    let vacuum = vacuum_options(None, false, lock_wait)?;
    let done = watched(py, progress, |watch| {
        federation.tidy(database.as_deref(), &compact, &vacuum, watch).or_raise()
    })?;
    let facts = PyDict::new(py);
    facts.set_item("containers", compacted(py, &done.containers)?)?;
    facts.set_item("vacuum", vacuum_report(py, &done.vacuum)?)?;
    Ok(facts)
}

/// A field: its path, its bytes in memory and on disk, and with each compression the bytes on disk and seconds.
type PackedRow = (String, u64, u64, Vec<(f64, f64)>);

/// The space and time of each field, as it is stored and with each compression that a new container can have.
#[pyfunction]
pub(crate) fn packed_fields(
    py: Python<'_>,
    of: &ViewHandle,
    sample: usize,
) -> PyResult<Vec<PackedRow>> {
    let view = of.view()?.clone();
    let fields = interruptible(py, move || view.packed_fields(sample))?.or_raise()?;
    let row = |field: PackedField| {
        let sizes = field.sizes.iter().map(|size| (size.stored, size.seconds)).collect();
        (field.path, field.memory, field.stored, sizes)
    };
    Ok(fields.into_iter().map(row).collect())
}

/// Rebuild the catalogue from the database files.
#[pyfunction]
pub(crate) fn rebuild_catalogue(
    py: Python<'_>,
    folder: FilePath,
    name: Option<Text>,
    progress: Option<Py<PyAny>>,
) -> PyResult<Bound<'_, PyDict>> {
    let done = watched(py, progress, |watch| {
        femtobarn::rebuild_catalogue(&folder, name.as_deref(), watch).or_raise()
    })?;
    let RebuildReport {
        databases,
        containers,
        versions,
        commits,
        head,
        tags,
        left_out,
        old_catalogue,
    } = done;
    let facts = PyDict::new(py);
    facts.set_item("databases", databases)?;
    facts.set_item("containers", containers)?;
    facts.set_item("versions", versions)?;
    facts.set_item("commits", commits)?;
    facts.set_item("head", head.0)?;
    facts.set_item("tags", tags)?;
    facts.set_item("left_out", left_out)?;
    facts.set_item("old_catalogue", old_catalogue.map(|path| path.display().to_string()))?;
    Ok(facts)
}

fn vacuum_options(
    keep_from: Option<CsnArgument>,
    dry_run: bool,
    lock_wait: f64,
) -> PyResult<VacuumOptions> {
    let lock_wait = lock_wait_of(lock_wait)?;
    Ok(VacuumOptions { dry_run, keep_from: keep_from.map(|csn| csn.0), lock_wait })
}

fn compact_options(
    all: bool,
    compression: Option<&str>,
    lock_wait: f64,
) -> PyResult<CompactOptions> {
    let compression = compression.map(profile_of).transpose()?;
    Ok(CompactOptions { all, compression, lock_wait: lock_wait_of(lock_wait)? })
}

fn vacuum_report<'py>(py: Python<'py>, report: &VacuumReport) -> PyResult<Bound<'py, PyDict>> {
    let facts = PyDict::new(py);
    facts.set_item("horizon", report.horizon.0)?;
    facts.set_item("kept", report.kept.iter().map(|csn| csn.0).collect::<Vec<_>>())?;
    let counts = [
        ("versions", report.versions),
        ("containers", report.containers),
        ("databases", report.databases),
        ("version_bytes", report.version_bytes),
        ("garbage_bytes", report.garbage_bytes),
    ];
    counts.iter().try_for_each(|(name, count)| facts.set_item(name, count))?;
    let files: Vec<String> = report.files.iter().map(|path| path.display().to_string()).collect();
    facts.set_item("files", files)?;
    facts.set_item("busy", &report.busy)?;
    facts.set_item("skipped", &report.skipped)?;
    facts.set_item("complete", report.is_complete)?;
    Ok(facts)
}

fn compacted<'py>(py: Python<'py>, containers: &[Compacted]) -> PyResult<Bound<'py, PyList>> {
    let rows = PyList::empty(py);
    for container in containers {
        let row = PyDict::new(py);
        row.set_item("path", &container.path)?;
        row.set_item("csn", container.csn.map(|csn| csn.0))?;
        let counts = [
            ("clusters_before", container.clusters_before),
            ("clusters", container.clusters),
            ("bytes_before", container.bytes_before),
            ("bytes", container.bytes),
            ("forgotten", container.forgotten),
        ];
        counts.iter().try_for_each(|(name, count)| row.set_item(name, count))?;
        rows.append(row)?;
    }
    Ok(rows)
}
