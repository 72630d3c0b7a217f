//! Views: a container in a snapshot, whose objects are read by entry and whose fields are read by name.

use std::ops::Range;
use std::sync::Arc;

use femtobarn_catalog::{ContainerRow, Oid, VersionRow};
use rntuple::{Array, Reader, Value};
use uuid::Uuid;

use crate::error::{Error, Result};
use crate::evolve::narrowing::Narrowing;
use crate::links::translate::{self, ToFederation};
use crate::read::index::Indexes;
use crate::read::selection::Selection;
use crate::read::snapshot::Snapshot;
use crate::read::statistics::VersionStatistics;
use crate::read::version::{ContainerVersion, OpenVersion};
use crate::schema::class::Class;
use crate::schema::field_type::FieldType;

/// A container in a snapshot.
#[derive(Clone)]
pub struct View {
    snapshot: Snapshot,
    opened: Arc<ContainerVersion>,
}

impl View {
    pub(crate) fn new(snapshot: Snapshot, opened: Arc<ContainerVersion>) -> Self {
        View { snapshot, opened }
    }

    pub(crate) fn opened_version(&self) -> &OpenVersion {
        &self.opened.version
    }

    pub(crate) fn shared_version(&self) -> Arc<OpenVersion> {
        self.opened.version.clone()
    }

    /// Whether entries must be checked before they are read: some are deleted, or the version is not committed.
    #[inline]
    pub(crate) fn is_checked(&self) -> bool {
        self.opened.version.row.deleted > 0 || self.opened.version.writer.is_some()
    }

    /// A view of the same objects as another version of their class, read by `reader`.
    pub(crate) fn recast(
        &self,
        class: Class,
        reader: Reader,
        narrowing: Option<Narrowing>,
    ) -> Result<View> {
        let old = &*self.opened.version;
        // The annex is left out: its indexes and statistics name the fields of the stored class.
        let row = VersionRow { annex: Default::default(), class_version: class.version, ..old.row };
        let all = match &narrowing {
            None => Selection::new(reader.select_all(), &class),
            Some(narrowing) => {
                let names: Vec<String> =
                    class.fields.iter().map(|field| field.name.clone()).collect();
                Selection::narrowed(&reader, &class, narrowing, &names)
                    .map_err(Error::storage(self.path()))?
            }
        };
        let version = OpenVersion {
            row,
            epoch: old.epoch,
            source: old.source.clone(),
            indexes: Indexes::new(old.source.clone(), row.annex),
            statistics: VersionStatistics::new(old.source.clone(), row.annex),
            all,
            class: Arc::new(class),
            deletions: old.deletions.clone(),
            link_databases: old.link_databases.clone(),
            unknown_databases: old.unknown_databases.clone(),
            is_settled: false,
            writer: old.writer.clone(),
            narrowing,
            original: Some(self.opened.clone()),
            reader,
        };
        let mut container = self.opened.container.clone();
        container.class_version = row.class_version;
        let database = self.opened.database.clone();
        let opened = ContainerVersion { database, container, version: Arc::new(version) };
        Ok(View { snapshot: self.snapshot.clone(), opened: Arc::new(opened) })
    }

    /// The snapshot.
    pub fn snapshot(&self) -> &Snapshot {
        &self.snapshot
    }

    /// The same version through another snapshot, which must have it under the same path. The view no longer needs the
    /// old snapshot, and the catalogue is not asked.
    pub fn through(&self, snapshot: &Snapshot) -> View {
        View { snapshot: snapshot.clone(), opened: self.opened.clone() }
    }

    /// Whether it is a view of the same open version, through the same snapshot.
    pub fn is_same(&self, other: &View) -> bool {
        Arc::ptr_eq(&self.opened, &other.opened) && self.snapshot.csn() == other.snapshot.csn()
    }

    /// The container's path, such as `run7/events`.
    pub fn path(&self) -> String {
        format!("{}/{}", self.opened.database, self.opened.container.name)
    }

    /// The container's row of the catalogue.
    pub fn container(&self) -> &ContainerRow {
        &self.opened.container
    }

    /// The version's row of the catalogue.
    pub fn version(&self) -> &VersionRow {
        &self.opened.version.row
    }

    /// The class of the objects.
    pub fn class(&self) -> &Class {
        &self.opened.version.class
    }

    /// The reader of the RNTuple that has the objects.
    pub fn reader(&self) -> &Reader {
        &self.opened.version.reader
    }

    /// Number of entries, including deleted ones: the entry after the last.
    pub fn entries(&self) -> u64 {
        self.opened.version.row.entries
    }

    /// Number of objects: entries that are not deleted.
    pub fn live(&self) -> u64 {
        self.entries() - self.opened.version.row.deleted
    }

    /// The entries of a range that are not deleted, as ranges.
    ///
    /// # Errors
    /// [`Error::NotFound`] if the range ends after the last entry; [`Error::Corrupt`] if the deletions are damaged.
    pub fn live_runs(&self, entries: Range<u64>) -> Result<Vec<Range<u64>>> {
        self.check_readable()?;
        self.check_range(&entries)?;
        let OpenVersion { deletions, source, .. } = &*self.opened.version;
        match self.opened.version.row.deleted {
            0 if entries.is_empty() => Ok(vec![]),
            0 => Ok(vec![entries]),
            _ => self.snapshot.kept(deletions.live(&**source, entries).map_err(Error::from)),
        }
    }

    /// The entries of a range that are not deleted: the objects that [`read`](Self::read) returns.
    ///
    /// # Errors
    /// The errors of [`live_runs`](Self::live_runs).
    pub fn live_entries(&self, entries: Range<u64>) -> Result<Vec<u64>> {
        Ok(self.live_runs(entries)?.into_iter().flatten().collect())
    }

    /// Whether the object at an entry was deleted.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if the deletions are damaged.
    pub fn is_deleted(&self, entry: u64) -> Result<bool> {
        let OpenVersion { deletions, source, row, .. } = &*self.opened.version;
        match row.deleted {
            0 => Ok(false),
            _ => deletions
                .contains(&**source, entry)
                .map_err(|error| self.snapshot.unless_given_up(error.into())),
        }
    }

    fn check_range(&self, entries: &Range<u64>) -> Result<()> {
        if entries.start <= entries.end && entries.end <= self.entries() {
            Ok(())
        } else {
            Err(Error::NotFound {
                what: format!(
                    "{} has no entries {entries:?}; it has entries 0..{}",
                    self.path(),
                    self.entries()
                ),
            })
        }
    }

    /// Checks that no writer may overwrite the version: the extents of a transaction that ended without
    /// committing are given to other writers.
    pub(crate) fn check_readable(&self) -> Result<()> {
        match &self.opened.version.writer {
            Some(writer) if writer.strong_count() == 0 => Err(Error::Closed {
                what: format!(
                    "the transaction that changed {} has ended; take a snapshot to read committed objects",
                    self.path()
                ),
            }),
            _ => Ok(()),
        }
    }

    pub(crate) fn check_live(&self, entry: u64) -> Result<()> {
        if self.is_deleted(entry)? { Err(deleted(self.oid(entry), &self.path())) } else { Ok(()) }
    }

    /// The OID of the object at an entry.
    pub fn oid(&self, entry: u64) -> Oid {
        Oid::new(self.opened.container.database, self.opened.container.id, entry)
    }

    /// Databases that objects of this container link to, and that are not in this federation.
    pub fn unknown_databases(&self) -> &[Uuid] {
        &self.opened.version.unknown_databases
    }

    /// Selects fields by path, such as `run` or `tracks.pt`. The `database` of a link is read with its
    /// `container`, which shows whether the link is null.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`](crate::ErrorKind::NotFound) if a field does not exist.
    pub fn select(&self, paths: &[impl AsRef<str>]) -> Result<Selection> {
        let mut paths: Vec<String> = paths.iter().map(|path| path.as_ref().to_owned()).collect();
        let containers: Vec<String> = paths
            .iter()
            .filter_map(|path| path.strip_suffix(".database"))
            .filter(|link| self.link_class(link).is_some())
            .map(|link| format!("{link}.container"))
            .collect();
        paths.extend(containers);
        let OpenVersion { reader, class, narrowing, .. } = &*self.opened.version;
        let selection = match narrowing {
            Some(narrowing) => Selection::narrowed(reader, class, narrowing, &paths),
            None => reader.select(&paths).map(|projection| Selection::new(projection, class)),
        };
        selection.map_err(Error::storage(self.path()))
    }

    /// Selects all fields.
    pub fn select_all(&self) -> Selection {
        self.opened.version.all.clone()
    }

    /// The entries of each cluster, in order, and the stored bytes of fields in it. Reads page lists alone.
    ///
    /// # Errors
    /// [`ErrorKind::Corrupt`](crate::ErrorKind::Corrupt) if a page list is damaged.
    pub fn cluster_sizes(&self, selection: &Selection) -> Result<Vec<(Range<u64>, u64)>> {
        self.check_readable()?;
        let sizes = self.opened.version.reader.cluster_sizes(&selection.projection);
        self.snapshot.kept(sizes.map_err(Error::storage(self.path())))
    }

    /// Reads fields of the objects of a range of entries as an array of records, without deleted objects; see
    /// [`live_entries`](Self::live_entries).
    ///
    /// # Errors
    /// [`ErrorKind`](crate::ErrorKind): `NotFound` if the range ends after the last entry; `Corrupt` if the stored
    /// bytes are damaged; `Conflict` if the server has given up the snapshot while it could not be reached.
    pub fn read(&self, selection: &Selection, entries: Range<u64>) -> Result<Array> {
        if self.opened.version.row.deleted == 0 {
            return self.read_stored(selection, entries);
        }
        let runs = self.live_runs(entries.clone())?;
        match &runs[..] {
            [] => self.read_stored(selection, entries.start..entries.start),
            [run] => self.read_stored(selection, run.clone()),
            [first, .., last] => {
                let first = first.start;
                let stored = self.read_stored(selection, first..last.end)?;
                let place =
                    |run: &Range<u64>| (run.start - first) as usize..(run.end - first) as usize;
                let places: Vec<Range<usize>> = runs.iter().map(place).collect();
                stored.take_runs(&places).map_err(Error::storage(self.path()))
            }
        }
    }

    /// Reads a range of entries, including deleted ones.
    pub(crate) fn read_stored(&self, selection: &Selection, entries: Range<u64>) -> Result<Array> {
        self.read_runs(selection, &[entries])
    }

    /// The number of threads that some fields of a range of entries are worth.
    fn threads(&self, selection: &Selection, entries: &Range<u64>) -> usize {
        /// Stored bytes for which a thread is started. Fields count as equally large.
        const BYTES: u64 = 2 << 20;
        let VersionRow { bytes, entries: all, .. } = self.opened.version.row;
        let fields = self.opened.version.all.fields.max(selection.fields).max(1);
        let read = u128::from(bytes) * selection.fields as u128 / fields as u128;
        let count = entries.end.saturating_sub(entries.start);
        let size = read * u128::from(count) / u128::from(all.max(1));
        let worthwhile = usize::try_from(size / u128::from(BYTES)).unwrap_or(usize::MAX);
        worthwhile.min(self.snapshot.federation().inner.threads)
    }

    /// Like [`read_stored`](Self::read_stored), for several ranges of entries.
    pub(crate) fn read_runs(&self, selection: &Selection, runs: &[Range<u64>]) -> Result<Array> {
        self.check_readable()?;
        let version = &*self.opened.version;
        let projection = &selection.projection;
        let array = match runs {
            [run] => version.reader.read_in_parallel(
                projection,
                run.clone(),
                self.threads(selection, run),
            ),
            runs => version.reader.read_runs(projection, runs),
        };
        let array = self.snapshot.kept(array.map_err(Error::storage(self.path())))?;
        let array = match &selection.narrowed {
            Some(narrowed) => narrowed.convert(&array, &self.path())?,
            None => array,
        };
        let array = if selection.translated {
            let mut by = ToFederation(&version.link_databases);
            translate::array(&version.class, array, &mut by)?
        } else {
            array
        };
        match &selection.narrowed {
            Some(narrowed) => Ok(narrowed.prune(array)),
            None => Ok(array),
        }
    }

    /// One object as a value.
    ///
    /// # Errors
    /// The errors of [`read`](Self::read); [`Error::NotFound`] if the object was deleted.
    pub fn value(&self, entry: u64) -> Result<Value> {
        self.values(&self.opened.version.all, entry)
    }

    /// Fields of one object as a value.
    ///
    /// # Errors
    /// The errors of [`value`](Self::value).
    pub fn values(&self, selection: &Selection, entry: u64) -> Result<Value> {
        self.check_live(entry)?;
        let array = self.read_stored(selection, entry..entry.saturating_add(1))?;
        array.value(0).map_err(Error::storage(self.path()))
    }

    /// The class that links in a field, such as `best.to`, refer to; `None` if the field has no links.
    pub fn link_class(&self, path: &str) -> Option<&str> {
        match self.opened.version.class.field_type(path)?.item() {
            FieldType::Link(class) | FieldType::ElementLink(class) => Some(class),
            _ => None,
        }
    }
}

pub(crate) fn deleted(oid: Oid, path: &str) -> Error {
    Error::NotFound { what: format!("object {oid} of {path} was deleted") }
}
