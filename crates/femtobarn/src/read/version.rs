//! A version of a container, open: its reader and what stands beside it, shared by all views.

use std::sync::{Arc, Weak};

use femtobarn_catalog::{
    Catalogue, ContainerId, ContainerRow, Csn, DatabaseId, DatabaseRow, VersionRow,
};
use femtobarn_format::link;
use quick_cache::sync::Cache;
use rntuple::{ByteSource, CacheFileId, PageCache, Reader};
use uuid::Uuid;

use crate::annex::Annex;
use crate::deletion::Deletions;
use crate::error::{Error, Result};
use crate::evolve::narrowing::Narrowing;
use crate::read::index::Indexes;
use crate::read::selection::{Selection, all};
use crate::read::statistics::Statistics;
use crate::schema::class::Class;
use crate::storage::open_files::OpenFiles;

/// Open versions that a process retains.
const OPEN_VERSIONS_MAX: usize = 4096;

/// A version of a container that is open; shared by all views of it.
pub(crate) struct Version {
    pub row: VersionRow,
    /// The epoch of its database when it was opened.
    pub epoch: u64,
    pub source: Arc<dyn ByteSource>,
    pub reader: Reader,
    pub class: Class,
    pub deletions: Deletions,
    /// The number that each linked database has in this federation; 0 if it is not in it.
    pub link_databases: Vec<u32>,
    /// The linked databases that are not in this federation.
    pub unknown_databases: Vec<Uuid>,
    /// Whether all linked databases are in this federation now; the others may be attached any time.
    pub is_settled: bool,
    /// The transaction that has written it and not committed it; none if it is committed.
    pub writer: Option<Weak<()>>,
    /// How the objects become those of the class, if they are of another one.
    pub narrowing: Option<Narrowing>,
    /// The objects as they are stored, if this is how they are as of another class.
    pub original: Option<Arc<Opened>>,
    pub indexes: Indexes,
    pub statistics: Statistics,
    pub all: Selection,
}

/// What a version is opened from.
pub(crate) struct VersionParts<'a> {
    pub row: &'a VersionRow,
    /// Its container, for messages.
    pub what: String,
    pub source: Arc<dyn ByteSource>,
    pub class: Class,
    pub deletions: Deletions,
    /// The databases that its links refer to, from position 1 on.
    pub targets: Vec<Uuid>,
    /// How often space of the file was given to writers again.
    pub epoch: u64,
    /// The transaction that has written it, if it is not committed.
    pub writer: Option<Weak<()>>,
}

/// Opens versions of containers, and retains those that cannot change.
pub(crate) struct OpenVersions {
    catalog: Arc<dyn Catalogue>,
    files: Arc<OpenFiles>,
    pages: Arc<PageCache>,
    /// By database, its epoch, container and commit: a new epoch may have moved what a version refers to.
    cache: Cache<(DatabaseId, u64, ContainerId, Csn), Arc<Version>>,
}

impl OpenVersions {
    pub fn new(catalog: Arc<dyn Catalogue>, files: Arc<OpenFiles>, pages: Arc<PageCache>) -> Self {
        OpenVersions { catalog, files, pages, cache: Cache::new(OPEN_VERSIONS_MAX) }
    }

    /// Closes all versions; views that refer to one keep it open.
    pub fn clear(&self) {
        self.cache.clear();
    }

    /// The version that the catalogue describes by `row`, from the cache or read from the file.
    pub fn open(
        &self,
        database: &DatabaseRow,
        container: &ContainerRow,
        row: &VersionRow,
    ) -> Result<Arc<Version>> {
        let key = (row.database, database.epoch, row.container, row.csn);
        if let Some(version) = self.cache.get(&key) {
            return Ok(version);
        }
        let version = Arc::new(self.read(database, container, row)?);
        if version.is_settled {
            self.cache.insert(key, version.clone());
        }
        Ok(version)
    }

    fn read(
        &self,
        database: &DatabaseRow,
        container: &ContainerRow,
        row: &VersionRow,
    ) -> Result<Version> {
        let source = Arc::new(self.files.source(database, row.csn)?);
        // Before anything is read.
        source.ends_at(row.footer.offset.saturating_add(row.footer.size));
        source.ends_at(row.annex.offset.saturating_add(row.annex.size));
        let class = self.catalog.class(&container.class, Some(row.class_version))?;
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
            class: Class::from_json(&class.definition)?,
            deletions,
            targets: self.catalog.link_targets(row.database, row.container)?,
            epoch: database.epoch,
            writer: None,
        };
        let version = self.open_parts(parts)?;
        // Page lists are written after the pages of theirs.
        let groups = &version.reader.footer().cluster_groups;
        let lists = groups.iter().map(|group| group.page_list.locator);
        lists.for_each(|list| source.ends_at(list.offset.saturating_add(list.size)));
        Ok(version)
    }

    /// A version that need not be in the catalogue.
    pub fn open_parts(&self, parts: VersionParts<'_>) -> Result<Version> {
        let VersionParts { row, what, source, class, deletions, targets, epoch, writer } = parts;
        let reader = Reader::from_links(source.clone(), &link(&row.header), &link(&row.footer))
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
        let all = all(&reader, &class).map_err(Error::storage(&what))?;
        let mut version = Version {
            row: *row,
            epoch,
            indexes: Indexes::new(source.clone(), row.annex),
            statistics: Statistics::new(source.clone(), row.annex),
            source,
            all: Selection::new(all, &class),
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
                // It may have been dropped since; older snapshots have it.
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

impl Version {
    /// Whether its objects are seen as of another class than they are stored.
    pub fn is_narrowed(&self) -> bool {
        self.narrowing.is_some()
    }
}

/// A container that a snapshot has looked at.
pub(crate) struct Opened {
    /// Name of its database.
    pub database: String,
    pub container: ContainerRow,
    pub version: Arc<Version>,
}

/// What caches know a file by: what was read in one epoch of a database is not what is there in
/// another.
pub(crate) fn file_number(database: DatabaseId, epoch: u64) -> CacheFileId {
    u64::from(database.0) | epoch << 32
}
