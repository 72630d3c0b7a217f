//! Open versions of containers: the reader of a version with its deletions, indexes and statistics.
//!
//! A version never changes, so all views of it share one, and a process retains the most recently used ones.

use std::hash::Hash;
use std::sync::{Arc, Weak};

use femtobarn_catalog::{
    Catalogue, ContainerId, ContainerRow, Csn, DatabaseId, DatabaseRow, VersionRow,
};
use femtobarn_format::link;
use quick_cache::Weighter;
use quick_cache::sync::Cache;
use rntuple::{ByteSource, CacheFileId, PageCache, Reader};
use uuid::Uuid;

use crate::annex::Annex;
use crate::deletion::Deletions;
use crate::error::{Error, Result};
use crate::evolve::narrowing::Narrowing;
use crate::read::index::Indexes;
use crate::read::selection::{Selection, all};
use crate::read::statistics::VersionStatistics;
use crate::schema::class::Class;
use crate::storage::open_files::OpenDatabaseFiles;

/// Containers whose last version is remembered.
const LAST_VERSIONS_MAX: usize = 4096;
/// Versions that are retained at least, however large they are, and by which the cache is divided.
const LARGE_VERSIONS_MIN: usize = 32;
/// Bytes of an open version without its annex and page lists, about.
const VERSION_BYTES: u64 = 32 << 10;
/// Versions of classes that a process retains.
const CLASSES_MAX: usize = 1024;

/// An open version of a container.
pub(crate) struct OpenVersion {
    pub row: VersionRow,
    /// The epoch of the database when the version was opened.
    pub epoch: u64,
    pub source: Arc<dyn ByteSource>,
    pub reader: Reader,
    pub class: Arc<Class>,
    pub deletions: Deletions,
    /// The numbers in this federation of the databases that its links refer to, by position; 0 for a database
    /// that is not in the federation. Position 0 is its own database.
    pub link_databases: Vec<u32>,
    /// The linked databases that are not in this federation.
    pub unknown_databases: Vec<Uuid>,
    /// Whether all linked databases are in this federation. If not, a later `attach` may add one, so the
    /// version is not retained.
    pub is_settled: bool,
    /// Lives as long as the transaction that wrote the version and has not committed it; `None` for a committed
    /// version.
    pub writer: Option<Weak<()>>,
    /// The conversion of the stored objects to the class, if that loses values.
    pub narrowing: Option<Narrowing>,
    /// The stored version, if this one shows it as another version of its class.
    pub original: Option<Arc<ContainerVersion>>,
    pub indexes: Indexes,
    pub statistics: VersionStatistics,
    /// All fields of the class.
    pub all: Selection,
}

/// The parts that a version is opened from.
pub(crate) struct VersionParts<'a> {
    pub row: &'a VersionRow,
    /// The container, for error texts.
    pub what: String,
    pub source: Arc<dyn ByteSource>,
    pub class: Arc<Class>,
    pub deletions: Deletions,
    /// The databases that its links refer to, from position 1 on.
    pub targets: Vec<Uuid>,
    /// The epoch of the database.
    pub epoch: u64,
    /// As [`OpenVersion::writer`].
    pub writer: Option<Weak<()>>,
}

type VersionKey = (DatabaseId, u64, ContainerId, Csn);

/// Weighs a version by its annex, and by the page lists that its reader may hold: after many small commits they are
/// longer than all else, and each version has its own.
#[derive(Clone)]
struct ByMetadata {
    /// Bytes of all versions.
    bytes_max: u64,
}

impl Weighter<VersionKey, Arc<OpenVersion>> for ByMetadata {
    fn weight(&self, _: &VersionKey, version: &Arc<OpenVersion>) -> u64 {
        let groups = &version.reader.footer().cluster_groups;
        let page_lists = groups.iter().map(|group| group.page_list.length);
        retained_bytes(self.bytes_max, page_lists.chain([version.row.annex.size]))
    }
}

/// Bytes that an open version takes, about, of the lengths of its annex and page lists, which are held as they are
/// stored and decoded. One takes no more than leaves room for [`LARGE_VERSIONS_MIN`].
fn retained_bytes(bytes_max: u64, lengths: impl Iterator<Item = u64>) -> u64 {
    let bytes = lengths.fold(0, u64::saturating_add);
    // At least one: what takes nothing is never removed.
    let most = (bytes_max / LARGE_VERSIONS_MIN as u64).max(1);
    bytes.saturating_mul(2).saturating_add(VERSION_BYTES).min(most)
}

/// Opens versions of containers, and retains those that cannot change, within a budget of bytes.
pub(crate) struct OpenVersions {
    catalog: Arc<dyn Catalogue>,
    files: Arc<OpenDatabaseFiles>,
    pages: Arc<PageCache>,
    /// By database, its epoch, container and commit. In a new epoch, a version may refer to other bytes.
    cache: Cache<VersionKey, Arc<OpenVersion>, ByMetadata>,
    /// The version of each container that was opened last; further versions take over the parts that all versions
    /// share.
    last: Cache<(DatabaseId, u64, ContainerId), Weak<OpenVersion>>,
    /// Versions of classes, by database and its epoch, too: a catalogue that was restored may define another class of
    /// that name and version.
    classes: Cache<(DatabaseId, u64, String, u32), Arc<Class>>,
}

/// A cache of at most `bytes_max`, in so few parts that the heaviest version has room in each.
fn retained_versions<K: Eq + Hash, V: Clone, W: Weighter<K, V> + Clone>(
    bytes_max: u64,
    by: W,
) -> Cache<K, V, W> {
    Cache::with_weighter(LARGE_VERSIONS_MIN * 2, bytes_max, by)
}

impl OpenVersions {
    pub(crate) fn new(
        catalog: Arc<dyn Catalogue>,
        files: Arc<OpenDatabaseFiles>,
        pages: Arc<PageCache>,
        bytes_max: u64,
    ) -> Self {
        let cache = retained_versions(bytes_max, ByMetadata { bytes_max });
        let last = Cache::new(LAST_VERSIONS_MAX);
        OpenVersions { catalog, files, pages, cache, last, classes: Cache::new(CLASSES_MAX) }
    }

    /// Drops all versions from the cache. Views keep those that they use.
    pub(crate) fn clear(&self) {
        self.cache.clear();
        self.last.clear();
    }

    /// The version of a row of the catalogue, from the cache or opened from the file.
    pub(crate) fn open(
        &self,
        database: &DatabaseRow,
        container: &ContainerRow,
        row: &VersionRow,
    ) -> Result<Arc<OpenVersion>> {
        let key = (row.database, database.epoch, row.container, row.csn);
        if let Some(version) = self.cache.get(&key) {
            return Ok(version);
        }
        let version = Arc::new(self.read(database, container, row)?);
        if version.is_settled {
            self.cache.insert(key, version.clone());
            let last = (row.database, database.epoch, row.container);
            self.last.insert(last, Arc::downgrade(&version));
        }
        Ok(version)
    }

    /// A version of a class of which a database has objects.
    pub(crate) fn class(
        &self,
        database: &DatabaseRow,
        name: &str,
        version: u32,
    ) -> Result<Arc<Class>> {
        let key = (database.id, database.epoch, name.to_owned(), version);
        if let Some(class) = self.classes.get(&key) {
            return Ok(class);
        }
        let row = self.catalog.class(name, Some(version))?;
        let class = Arc::new(Class::from_json(&row.definition)?);
        self.classes.insert(key, class.clone());
        Ok(class)
    }

    fn read(
        &self,
        database: &DatabaseRow,
        container: &ContainerRow,
        row: &VersionRow,
    ) -> Result<OpenVersion> {
        let source = Arc::new(self.files.source(database, row.csn)?);
        // Known before the first read, so that not even that one prefetches past the version.
        source.extend_version_to(row.footer.offset.saturating_add(row.footer.size));
        source.extend_version_to(row.annex.offset.saturating_add(row.annex.size));
        let class = self.class(database, &container.class, row.class_version)?;
        let has_links = class.fields.iter().any(|field| field.of.needs_translation());
        let targets = if has_links {
            self.catalog.link_targets(row.database, row.container)?
        } else {
            vec![]
        };
        let deletions = match row.deleted {
            0 => Deletions::default(),
            count => {
                let annex = Annex::read(&*source, row.annex)?;
                Deletions::new(&annex.deletions, count, row.entries)?
            }
        };
        let parts = VersionParts {
            row,
            what: format!("container {}/{}", database.name, container.name),
            source: source.clone(),
            class,
            deletions,
            targets,
            epoch: database.epoch,
            writer: None,
        };
        let version = self.open_parts(parts)?;
        // Page lists are written after their pages, so no page lies beyond the last list.
        let groups = &version.reader.footer().cluster_groups;
        let lists = groups.iter().map(|group| group.page_list.locator);
        lists.for_each(|list| source.extend_version_to(list.offset.saturating_add(list.size)));
        Ok(version)
    }

    /// A reader of a version, for a writer that continues it.
    pub(crate) fn reader(
        &self,
        row: &VersionRow,
        epoch: u64,
        source: Arc<dyn ByteSource>,
    ) -> rntuple::Result<Reader> {
        reader_like(self.last(row, epoch).as_deref(), row, source)
    }

    /// The version of the container that was opened last.
    fn last(&self, row: &VersionRow, epoch: u64) -> Option<Arc<OpenVersion>> {
        self.last.get(&(row.database, epoch, row.container))?.upgrade()
    }

    /// Opens a version that need not be in the catalogue.
    pub(crate) fn open_parts(&self, parts: VersionParts<'_>) -> Result<OpenVersion> {
        let VersionParts { row, what, source, class, deletions, targets, epoch, writer } = parts;
        let last = self.last(row, epoch);
        let reader = reader_like(last.as_deref(), row, source.clone())
            .map_err(Error::storage(&what))?
            .with_cache(self.pages.clone(), file_number(row.database, epoch));
        if reader.entries() != row.entries {
            return Err(Error::Corrupt {
                what: format!(
                    "{what} has {} entries on disk and {} in the catalogue",
                    reader.entries(),
                    row.entries
                ),
            });
        }
        let is_like =
            |it: &OpenVersion| it.reader.has_header_of(&reader) && Arc::ptr_eq(&it.class, &class);
        let all = match last.filter(|last| is_like(last)) {
            Some(last) => last.all.clone(),
            None => {
                let all = all(&reader, &class).map_err(Error::storage(&what))?;
                Selection::new(all, &class)
            }
        };
        let mut version = OpenVersion {
            row: *row,
            epoch,
            indexes: Indexes::new(source.clone(), row.annex),
            statistics: VersionStatistics::new(source.clone(), row.annex),
            source,
            all,
            class,
            deletions,
            link_databases: vec![row.database.0],
            unknown_databases: vec![],
            is_settled: true,
            writer,
            narrowing: None,
            original: None,
            reader,
        };
        for uuid in targets {
            let mut target = self.catalog.database_by_uuid(uuid)?;
            if target.is_none() {
                // The container may have been dropped since; older snapshots still have it.
                version.is_settled = false;
                target = self.catalog.database_by_uuid_at(uuid, row.csn)?;
            }
            version.link_databases.push(target.as_ref().map_or(0, |row| row.id.0));
            if target.is_none() {
                version.unknown_databases.push(uuid);
            }
        }
        Ok(version)
    }
}

/// Reads a version's footer, and its header unless that of another version is the same.
fn reader_like(
    other: Option<&OpenVersion>,
    row: &VersionRow,
    source: Arc<dyn ByteSource>,
) -> rntuple::Result<Reader> {
    let (header, footer) = (link(&row.header), link(&row.footer));
    match other {
        Some(other) => Reader::from_known(source, &header, &footer, &other.reader),
        None => Reader::from_links(source, &header, &footer),
    }
}

impl OpenVersion {
    /// Whether its objects are converted to a version of the class that cannot hold all their values.
    pub(crate) fn is_narrowed(&self) -> bool {
        self.narrowing.is_some()
    }
}

/// A container and its open version in a snapshot.
pub(crate) struct ContainerVersion {
    /// The name of its database.
    pub database: String,
    pub container: ContainerRow,
    pub version: Arc<OpenVersion>,
}

/// The key of a file in caches. It contains the epoch, since a range of the file may have other bytes in
/// another epoch.
pub(crate) fn file_number(database: DatabaseId, epoch: u64) -> CacheFileId {
    u64::from(database.0) | epoch << 32
}

#[cfg(test)]
mod tests {
    use super::*;

    const BYTES_MAX: u64 = 128 << 20;

    /// Weighs by the length of a version's one page list, within a budget.
    #[derive(Clone)]
    struct ByLength(u64);

    impl Weighter<u64, u64> for ByLength {
        fn weight(&self, _: &u64, length: &u64) -> u64 {
            retained_bytes(self.0, std::iter::once(*length))
        }
    }

    fn retained(length: u64) -> u64 {
        retained_within(BYTES_MAX, length)
    }

    fn retained_within(bytes_max: u64, length: u64) -> u64 {
        let cache = retained_versions(bytes_max, ByLength(bytes_max));
        (0..10_000).for_each(|number| cache.insert(number, length));
        cache.len() as u64
    }

    /// Each commit to a container with thousands of small ones left its whole page list in memory, 4096 times.
    #[test]
    fn retained_versions_are_bounded_by_the_bytes_of_their_page_lists() {
        assert!((2000..=4096).contains(&retained(0)), "{}", retained(0));
        let length = 512 << 10;
        assert!((64..=128).contains(&retained(length)), "{}", retained(length));
        let most = LARGE_VERSIONS_MIN as u64;
        for length in [64 << 20, u64::MAX] {
            assert!((most / 2..=most).contains(&retained(length)), "{}", retained(length));
        }
        assert_eq!(retained_bytes(BYTES_MAX, [u64::MAX; 2].into_iter()), BYTES_MAX / most);
        let few = retained_within(BYTES_MAX / 16, 0);
        assert!((125..=256).contains(&few), "{few} in a sixteenth of the budget");
    }
}
