//! Jobs: a global tag that was resolved once, and the series that it names.
//!
//! A job pins its snapshot when it is opened, so later commits do not change its answers.

use std::collections::HashMap;
use std::sync::Arc;

use femtobarn::{Csn, Error, Federation, Result, Snapshot};
use parking_lot::Mutex;

use crate::global_tag::{GlobalTag, SeriesVersion};
use crate::series::Series;

/// The choice of a job's snapshot and global tag.
#[derive(Clone, Debug, Default)]
pub struct JobOptions {
    /// The global tag; without one, all series as of the snapshot.
    pub global_tag: Option<String>,
    /// The commit as of which the global tag and the series without a commit of their own are read; without it, the
    /// newest.
    pub csn: Option<Csn>,
}

/// The conditions that a global tag names, as of a commit. Threads may share it.
pub struct Job {
    snapshot: Snapshot,
    tag: Option<GlobalTag>,
    /// The snapshot as of which the global tag was read.
    resolved: Snapshot,
    opened: Mutex<OpenedSeries>,
}

#[derive(Default)]
struct OpenedSeries {
    series: HashMap<String, Arc<Series>>,
    /// The snapshots of series that are read as of another commit than the job.
    snapshots: HashMap<Csn, Snapshot>,
}

impl Job {
    /// Resolves a global tag.
    ///
    /// # Errors
    /// [`ErrorKind`](femtobarn::ErrorKind): `NotFound` if the tag or the commit does not exist; `Unavailable` if the
    /// server does not answer.
    pub fn open(federation: &Federation, options: &JobOptions) -> Result<Self> {
        let snapshot = federation.snapshot(options.csn)?;
        let tag = options.global_tag.as_deref();
        let tag = tag.map(|name| GlobalTag::find(&snapshot, name)).transpose()?;
        let resolved = snapshot.clone();
        let snapshot = match tag.as_ref().and_then(|tag| tag.csn) {
            Some(csn) if csn != snapshot.csn() => federation.snapshot(Some(csn))?,
            _ => snapshot,
        };
        Ok(Job { snapshot, tag, resolved, opened: Mutex::default() })
    }

    /// The snapshot of all series without a commit of their own.
    pub fn snapshot(&self) -> &Snapshot {
        &self.snapshot
    }

    /// The snapshot as of which the global tag was read.
    pub(crate) fn resolved_snapshot(&self) -> &Snapshot {
        &self.resolved
    }

    /// The commit as of which the global tag was read: a job with the same tag as of this commit reads the same.
    pub fn resolved_at(&self) -> Csn {
        self.resolved.csn()
    }

    /// The global tag as it was when the job was opened.
    pub fn global_tag(&self) -> Option<&GlobalTag> {
        self.tag.as_ref()
    }

    /// A series by its path, such as `tpc/gain`.
    ///
    /// # Errors
    /// [`ErrorKind`](femtobarn::ErrorKind): `NotFound` if the global tag does not have it; `Invalid` if the container is
    /// not a series; `Corrupt` if the stored bytes are damaged.
    pub fn series(&self, path: &str) -> Result<Arc<Series>> {
        let mut opened = self.opened.lock();
        if let Some(series) = opened.series.get(path) {
            return Ok(series.clone());
        }
        let version = self.version(path)?;
        let mut views = vec![];
        for (place, (container, csn)) in version.containers(path).enumerate() {
            let snapshot = match csn {
                Some(csn) => self.snapshot_at(&mut opened, csn)?,
                None if place == 0 => self.snapshot.clone(),
                None => self.resolved.clone(),
            };
            views.push(snapshot.view(container)?);
        }
        let series = Arc::new(Series::open(views)?);
        opened.series.insert(path.to_owned(), series.clone());
        Ok(series)
    }

    /// The paths of all series, ascending.
    ///
    /// # Errors
    /// [`ErrorKind`](femtobarn::ErrorKind): `Unavailable` if the server does not answer.
    pub fn names(&self) -> Result<Vec<String>> {
        if let Some(tag) = self.tag.as_ref().filter(|tag| tag.only_listed) {
            return Ok(tag.series.keys().cloned().collect());
        }
        let mut names = series_of(&self.snapshot)?;
        names.extend(self.tag.iter().flat_map(|tag| tag.series.keys().cloned()));
        names.sort_unstable();
        names.dedup();
        Ok(names)
    }

    fn snapshot_at(&self, opened: &mut OpenedSeries, csn: Csn) -> Result<Snapshot> {
        let known = [&self.snapshot, &self.resolved].into_iter().chain(opened.snapshots.get(&csn));
        if let Some(snapshot) = known.into_iter().find(|snapshot| snapshot.csn() == csn) {
            return Ok(snapshot.clone());
        }
        let snapshot = self.snapshot.federation().snapshot(Some(csn))?;
        opened.snapshots.insert(csn, snapshot.clone());
        Ok(snapshot)
    }

    /// The version of a series that the global tag names.
    pub(crate) fn version(&self, path: &str) -> Result<SeriesVersion> {
        let Some(tag) = &self.tag else { return Ok(SeriesVersion::default()) };
        match tag.series.get(path) {
            Some(version) => Ok(version.clone()),
            None if !tag.only_listed => Ok(SeriesVersion::default()),
            None => Err(Error::NotFound {
                what: format!("global tag {:?} has no series {path:?}", tag.name),
            }),
        }
    }
}

/// The paths of all series in a snapshot.
fn series_of(snapshot: &Snapshot) -> Result<Vec<String>> {
    let mut names = vec![];
    for database in snapshot.databases()? {
        for container in snapshot.containers(database.id)? {
            let options = femtobarn::ContainerOptions::from_json(&container.options)?;
            if options.series.is_some_and(|series| !series.is_branch) {
                names.push(format!("{}/{}", database.name, container.name));
            }
        }
    }
    Ok(names)
}
