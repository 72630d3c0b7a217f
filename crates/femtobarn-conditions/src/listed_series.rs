//! The series of a job with their versions, from rows of the catalogue: no container is opened.

use std::sync::Arc;

use femtobarn::{ContainerId, Csn, DatabaseId, Result, SeriesOptions};

use crate::class::payload_name;
use crate::job::Job;
use crate::series_tables::{RowsByCommit, SeriesRow, SeriesTables};

/// A series of a job.
pub struct ListedSeries {
    /// Its path.
    pub series: String,
    /// The containers that it is read from, that of the series first. `None` if one of them is missing or does not
    /// belong to a series; then [`Job::series`] returns the reason.
    pub containers: Option<Vec<ListedContainer>>,
}

/// A container that a series is read from.
pub struct ListedContainer {
    /// Its path.
    pub path: String,
    /// The commit as of which it is read.
    pub as_of: Csn,
    pub(crate) row: SeriesRow,
}

impl ListedContainer {
    /// The class of the conditions, without their validity.
    pub fn payload(&self) -> String {
        payload_name(&self.row.class)
    }

    /// The options of the series.
    pub fn options(&self) -> SeriesOptions {
        self.row.options
    }

    /// Conditions that are not deleted, including those that newer ones hide.
    pub fn conditions(&self) -> u64 {
        self.row.live
    }

    /// Its database, its number there, and the commit that made its version. Equal versions have the same conditions.
    pub fn version(&self) -> (DatabaseId, ContainerId, Csn) {
        (self.row.database, self.row.container, self.row.version)
    }
}

impl Job {
    /// All series of the job, by path, without opening any.
    ///
    /// # Errors
    /// [`ErrorKind`](femtobarn::ErrorKind): `Io` or `Unavailable` if the catalogue cannot be read.
    pub fn list(&self) -> Result<Vec<ListedSeries>> {
        self.listed(&SeriesTables::new(self.snapshot().federation().clone()), |_| true)
    }

    /// Series of the job, by path, that `is_chosen` accepts.
    ///
    /// # Errors
    /// [`ErrorKind`](femtobarn::ErrorKind): `Io` or `Unavailable` if the catalogue cannot be read.
    pub(crate) fn listed(
        &self,
        tables: &SeriesTables,
        is_chosen: impl Fn(&str) -> bool,
    ) -> Result<Vec<ListedSeries>> {
        let (base, resolved) = (self.snapshot(), self.resolved_snapshot());
        let mut rows = RowsByCommit::new(tables, &[base, resolved]);
        let mut names: Vec<Arc<str>> = vec![];
        let tag = self.global_tag();
        if !tag.is_some_and(|tag| tag.only_listed) {
            let table = tables.at(base)?;
            let all = table.rows.iter().filter(|(_, row)| !row.options.is_branch);
            names.extend(all.map(|(path, _)| path.clone()));
        }
        names.extend(tag.iter().flat_map(|tag| tag.series.keys()).map(|path| path.as_str().into()));
        names.sort_unstable();
        names.dedup();
        names.retain(|name| is_chosen(name));
        names.iter().map(|name| self.listed_one(name, &mut rows)).collect()
    }

    fn listed_one(&self, series: &str, rows: &mut RowsByCommit<'_>) -> Result<ListedSeries> {
        let version = self.version(series)?;
        let mut containers = Some(vec![]);
        for (place, (path, csn)) in version.containers(series).enumerate() {
            let newest = if place == 0 { self.snapshot() } else { self.resolved_snapshot() };
            let as_of = csn.unwrap_or(newest.csn());
            let row = rows.find(as_of, path)?;
            let row = row.filter(|row| row.options.is_branch == (place > 0));
            containers = containers.zip(row).map(|(mut known, row)| {
                known.push(ListedContainer { path: path.to_owned(), as_of, row });
                known
            });
        }
        Ok(ListedSeries { series: series.to_owned(), containers })
    }
}
