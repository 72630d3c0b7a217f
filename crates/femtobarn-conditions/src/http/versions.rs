//! Opens the series of a version by the version's name; see `version_names`.
//!
//! A series of a branch has a path for each container, too: `tpc/gain,tpc/gain@mc`.

use std::sync::Arc;

use femtobarn::{Csn, Error, ErrorKind, Federation, Result, Snapshot, View};
use parking_lot::Mutex;

use super::expiring_cache::ExpiringCache;
use crate::series::Series;
use crate::version_names::{VERSION_SEPARATOR, name_of};

/// Separates the paths of several containers.
pub(super) const PATH_SEPARATOR: &str = ",";
/// Series that are kept, at most.
const SERIES_MAX: usize = 256;

/// The series that were asked for, by path and version.
pub(super) struct Versions {
    federation: Federation,
    kept: Arc<ExpiringCache<(String, String), Series>>,
    /// Held by the request that opens a series, so that concurrent requests wait for it instead of opening the same.
    opening: Mutex<()>,
}

impl Versions {
    pub(super) fn new(federation: Federation) -> Self {
        let (kept, opening) = (ExpiringCache::new(SERIES_MAX), Mutex::default());
        Versions { federation, kept, opening }
    }

    /// The series with a path in a version. Must be called on a thread of a tokio runtime.
    ///
    /// # Errors
    /// `NotFound` if the series never had this version, or no snapshot has it any more.
    pub(super) fn find(&self, path: &str, version: &str) -> Result<Arc<Series>> {
        let key = (path.to_owned(), version.to_owned());
        if let Some(found) = self.kept.get(&key) {
            return Ok(found);
        }
        let _opening = self.opening.lock();
        if let Some(found) = self.kept.get(&key) {
            return Ok(found);
        }
        let series = Arc::new(Series::open(self.views(path, version)?)?);
        self.kept.insert(key, series.clone());
        Ok(series)
    }

    fn views(&self, paths: &str, versions: &str) -> Result<Vec<View>> {
        let paths: Vec<&str> = paths.split(PATH_SEPARATOR).collect();
        let versions: Vec<&str> = versions.split(VERSION_SEPARATOR).collect();
        if paths.len() != versions.len() {
            return Err(Error::Invalid {
                what: format!("there are {} paths and {} versions", paths.len(), versions.len()),
            });
        }
        paths.iter().zip(versions).map(|(path, version)| self.view(path, version)).collect()
    }

    fn view(&self, path: &str, version: &str) -> Result<View> {
        let missing = || Error::NotFound {
            what: format!(
                "series {path:?} has no version {version:?} here; ask for the head again"
            ),
        };
        let number = version.split_once('-').and_then(|(csn, _)| csn.parse().ok());
        let csn = Csn(number.ok_or_else(missing)?);
        if name_of(&self.federation, csn)? != version {
            return Err(missing());
        }
        let newest = self.federation.snapshot(None)?;
        if let Some(view) = at(&newest, path, csn)? {
            return Ok(view);
        }
        let tags = self.federation.tags()?;
        let tagged = tags.iter().map(|tag| tag.csn).filter(|tagged| *tagged >= csn);
        for kept in std::iter::once(csn).chain(tagged) {
            let snapshot = match self.federation.snapshot(Some(kept)) {
                Err(error) if error.kind() == ErrorKind::NotFound => continue,
                snapshot => snapshot?,
            };
            if let Some(view) = at(&snapshot, path, csn)? {
                return Ok(view);
            }
        }
        Err(missing())
    }
}

/// The container with a path, if the snapshot has the version of it that a commit made.
fn at(snapshot: &Snapshot, path: &str, csn: Csn) -> Result<Option<View>> {
    if !snapshot.has(path)? {
        return Ok(None);
    }
    let view = snapshot.view(path)?;
    Ok((view.version().csn == csn).then_some(view))
}
