//! The series of a federation as of commits, from the rows of its catalogue. No container is opened.
//!
//! 1. A table is as of one commit and never changes. The table of a newer commit is made from that of an older one,
//!    reading only the rows that changed in between.
//! 2. Containers of series, and of branches of them, have a row if they have a version.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use femtobarn::{
    ContainerId, ContainerOptions, ContainerRow, Csn, DatabaseId, DatabaseRow, ErrorKind,
    Federation, Result, SeriesOptions, Snapshot, VersionRow,
};
use parking_lot::Mutex;
use quick_cache::sync::Cache;

use crate::version_names::name_of;

/// Tables of commits before the newest that are kept, at most.
const OLD_TABLES_MAX: usize = 4;
/// Names of versions that are kept, at most.
const VERSION_NAMES_MAX: usize = 128 << 10;
/// Changed containers beyond which reading them one by one is not worth it.
const CHANGED_MAX: usize = 4096;
/// Look-ups in one commit after which its table is read.
const SINGLE_LOOK_UPS_MAX: usize = 64;

/// The catalogue's row of a container of a series.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SeriesRow {
    pub database: DatabaseId,
    pub container: ContainerId,
    /// The class of its objects.
    pub class: Arc<str>,
    pub options: SeriesOptions,
    /// The commit that created it.
    pub created: Csn,
    /// The commit that made its version.
    pub version: Csn,
    /// Objects that are not deleted.
    pub live: u64,
}

/// The containers of all series and branches as of a commit, by path.
#[derive(Debug)]
pub(crate) struct SeriesTable {
    pub csn: Csn,
    pub rows: BTreeMap<Arc<str>, SeriesRow>,
}

impl SeriesTable {
    fn read(snapshot: &Snapshot) -> Result<Self> {
        let mut rows = BTreeMap::new();
        let mut reader = SeriesRowReader::default();
        for database in snapshot.databases()? {
            reader.read_database(snapshot, &database, &mut rows)?;
        }
        Ok(SeriesTable { csn: snapshot.csn(), rows })
    }

    /// The table as of a newer commit.
    fn read_newer(&self, snapshot: &Snapshot) -> Result<Self> {
        // A catalogue on a server does not report which rows have changed.
        let Ok(catalog) = snapshot.federation().catalog().local() else {
            return Self::read(snapshot);
        };
        let changed = catalog.containers_changed_since(self.csn, snapshot.csn())?;
        if changed.containers.len() > CHANGED_MAX {
            return Self::read(snapshot);
        }
        let databases: HashSet<DatabaseId> = changed.databases.into_iter().collect();
        let mut containers: HashSet<(DatabaseId, ContainerId)> =
            changed.containers.into_iter().collect();
        containers.retain(|(database, _)| !databases.contains(database));
        let is_same = |row: &SeriesRow| {
            !databases.contains(&row.database)
                && !containers.contains(&(row.database, row.container))
        };
        let same = self.rows.iter().filter(|(_, row)| is_same(row));
        let mut rows: BTreeMap<_, _> =
            same.map(|(path, row)| (path.clone(), row.clone())).collect();
        let mut reader = SeriesRowReader::default();
        let now: HashMap<DatabaseId, DatabaseRow> =
            snapshot.databases()?.into_iter().map(|row| (row.id, row)).collect();
        for database in databases.iter().filter_map(|id| now.get(id)) {
            reader.read_database(snapshot, database, &mut rows)?;
        }
        for (database, container) in containers {
            let Some(database) = now.get(&database) else { continue };
            match catalog.container_by_id(database.id, container, snapshot.csn()) {
                Ok(row) => rows.extend(reader.look_up(snapshot, database, &row)?),
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(SeriesTable { csn: snapshot.csn(), rows })
    }
}

/// Makes rows, sharing the options and classes that many containers have in common.
#[derive(Default)]
struct SeriesRowReader {
    options: HashMap<String, Option<SeriesOptions>>,
    classes: HashSet<Arc<str>>,
}

impl SeriesRowReader {
    fn read_database(
        &mut self,
        snapshot: &Snapshot,
        database: &DatabaseRow,
        rows: &mut BTreeMap<Arc<str>, SeriesRow>,
    ) -> Result<()> {
        let mut series = vec![];
        for container in snapshot.containers(database.id)? {
            series.extend(self.series_options(&container).map(|options| (container, options)));
        }
        if series.is_empty() {
            return Ok(());
        }
        let versions = snapshot
            .rows(|catalog| catalog.newest_versions(database.id, snapshot.csn()))?
            .into_iter();
        let versions: HashMap<ContainerId, VersionRow> =
            versions.map(|version| (version.container, version)).collect();
        for (container, options) in series {
            if let Some(version) = versions.get(&container.id) {
                let path = format!("{}/{}", database.name, container.name);
                rows.insert(path.into(), self.row(&container, options, version));
            }
        }
        Ok(())
    }

    /// The path and the row of one container, if it is one of a series.
    fn look_up(
        &mut self,
        snapshot: &Snapshot,
        database: &DatabaseRow,
        container: &ContainerRow,
    ) -> Result<Option<(Arc<str>, SeriesRow)>> {
        let Some(options) = self.series_options(container) else { return Ok(None) };
        let version =
            snapshot.rows(|catalog| catalog.version(database.id, container.id, snapshot.csn()))?;
        let path = format!("{}/{}", database.name, container.name);
        Ok(version.map(|version| (path.into(), self.row(container, options, &version))))
    }

    fn series_options(&mut self, container: &ContainerRow) -> Option<SeriesOptions> {
        if let Some(known) = self.options.get(&container.options) {
            return *known;
        }
        let options = ContainerOptions::from_json(&container.options);
        let series = options.ok().and_then(|options| options.series);
        self.options.insert(container.options.clone(), series);
        series
    }

    fn row(
        &mut self,
        container: &ContainerRow,
        options: SeriesOptions,
        version: &VersionRow,
    ) -> SeriesRow {
        let class = match self.classes.get(&*container.class) {
            Some(class) => class.clone(),
            None => {
                let class: Arc<str> = container.class.as_str().into();
                self.classes.insert(class.clone());
                class
            }
        };
        SeriesRow {
            database: container.database,
            container: container.id,
            class,
            options,
            created: container.created,
            version: version.csn,
            live: version.entries - version.deleted,
        }
    }
}

/// The tables of a federation, kept between requests.
pub(crate) struct SeriesTables {
    federation: Federation,
    newest: Mutex<Option<Arc<SeriesTable>>>,
    old: Cache<Csn, Arc<SeriesTable>>,
    version_names: Cache<Csn, Arc<str>>,
}

impl SeriesTables {
    pub(crate) fn new(federation: Federation) -> Self {
        SeriesTables {
            federation,
            newest: Mutex::default(),
            old: Cache::new(OLD_TABLES_MAX),
            version_names: Cache::new(VERSION_NAMES_MAX),
        }
    }

    pub(crate) fn federation(&self) -> &Federation {
        &self.federation
    }

    /// The name of the version that a commit made.
    ///
    /// # Errors
    /// [`ErrorKind`]: `Io` or `Unavailable` if the catalogue cannot be read.
    pub(crate) fn version_name(&self, csn: Csn) -> Result<Arc<str>> {
        self.version_names.get_or_insert_with(&csn, || Ok(name_of(&self.federation, csn)?.into()))
    }

    /// The table as of a snapshot. Requests for a table that is being made wait for it.
    ///
    /// # Errors
    /// [`ErrorKind`]: `Io` or `Unavailable` if the catalogue cannot be read.
    pub(crate) fn at(&self, snapshot: &Snapshot) -> Result<Arc<SeriesTable>> {
        let csn = snapshot.csn();
        let mut newest = self.newest.lock();
        let table = match &*newest {
            Some(known) if known.csn == csn => return Ok(known.clone()),
            Some(known) if known.csn > csn => {
                drop(newest);
                return self
                    .old
                    .get_or_insert_with(&csn, || SeriesTable::read(snapshot).map(Arc::new));
            }
            Some(known) => known.read_newer(snapshot)?,
            None => SeriesTable::read(snapshot)?,
        };
        let table = Arc::new(table);
        *newest = Some(table.clone());
        Ok(table)
    }
}

/// Look-ups of rows as of many commits, for one request.
pub(crate) struct RowsByCommit<'a> {
    tables: &'a SeriesTables,
    commits: HashMap<Csn, RowsOfCommit>,
    reader: SeriesRowReader,
}

struct RowsOfCommit {
    /// `None` if it was given up.
    snapshot: Option<Snapshot>,
    table: Option<Arc<SeriesTable>>,
    looked_up: usize,
}

impl<'a> RowsByCommit<'a> {
    /// Look-ups with these snapshots at hand.
    pub(crate) fn new(tables: &'a SeriesTables, snapshots: &[&Snapshot]) -> Self {
        let known = |snapshot: &&Snapshot| {
            let (csn, snapshot) = (snapshot.csn(), Some((*snapshot).clone()));
            (csn, RowsOfCommit { snapshot, table: None, looked_up: 0 })
        };
        let commits = snapshots.iter().map(known).collect();
        RowsByCommit { tables, commits, reader: SeriesRowReader::default() }
    }

    /// The row of a container as of a commit; `None` if no such container of a series exists, or the commit's snapshot
    /// was given up.
    ///
    /// # Errors
    /// [`ErrorKind`]: `Io` or `Unavailable` if the catalogue cannot be read.
    pub(crate) fn find(&mut self, csn: Csn, path: &str) -> Result<Option<SeriesRow>> {
        let of = self.commit(csn)?;
        of.looked_up += 1;
        if of.table.is_none() && of.looked_up <= SINGLE_LOOK_UPS_MAX {
            let Some(snapshot) = of.snapshot.clone() else { return Ok(None) };
            return self.look_up(&snapshot, path);
        }
        Ok(self.table(csn)?.and_then(|table| table.rows.get(path).cloned()))
    }

    /// The table of a commit; `None` if its snapshot was given up.
    ///
    /// # Errors
    /// The errors of [`find`](Self::find).
    pub(crate) fn table(&mut self, csn: Csn) -> Result<Option<Arc<SeriesTable>>> {
        let tables = self.tables;
        let of = self.commit(csn)?;
        if let (None, Some(snapshot)) = (&of.table, &of.snapshot) {
            of.table = Some(tables.at(snapshot)?);
        }
        Ok(of.table.clone())
    }

    fn commit(&mut self, csn: Csn) -> Result<&mut RowsOfCommit> {
        let tables = self.tables;
        match self.commits.entry(csn) {
            Entry::Occupied(known) => Ok(known.into_mut()),
            Entry::Vacant(new) => {
                let snapshot = match tables.federation.snapshot(Some(csn)) {
                    Ok(snapshot) => Some(snapshot),
                    Err(error) if error.kind() == ErrorKind::NotFound => None,
                    Err(error) => return Err(error),
                };
                Ok(new.insert(RowsOfCommit { snapshot, table: None, looked_up: 0 }))
            }
        }
    }

    fn look_up(&mut self, snapshot: &Snapshot, path: &str) -> Result<Option<SeriesRow>> {
        let Some((database, name)) = path.split_once('/') else { return Ok(None) };
        let found = snapshot.rows(|catalog| {
            let Some(database) = catalog.find_database(database, snapshot.csn())? else {
                return Ok(None);
            };
            let row = catalog.find_container(database.id, name, snapshot.csn())?;
            Ok(row.map(|row| (database, row)))
        })?;
        match found {
            Some((database, row)) => {
                Ok(self.reader.look_up(snapshot, &database, &row)?.map(|(_, row)| row))
            }
            None => Ok(None),
        }
    }
}
