//! Attaching: an existing ROOT file becomes a database of the federation, in its place and unchanged.
//!
//! A file that a federation sealed keeps its identity, container numbers and links, as does an unsealed
//! database, whose newest commit records list its containers. In any other file each RNTuple becomes a
//! container, whose class is derived from its fields.

mod container;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use femtobarn_catalog::{
    Author, BlobRange, Catalogue, ClassRow, Commit, DATABASES_FOLDER, DatabaseId, DatabaseState,
    LocalCatalogue, NewDatabase, clock,
};
use rntuple::tfile::FileHeader;
use uuid::Uuid;

use crate::error::{Error, Result};
use crate::federation::Federation;
use crate::schema::class::Class;
use crate::schema::class_names;
use crate::storage::commit_record::CommitRecord;
use crate::storage::extent::ExtentWriter;
use crate::storage::file::{self, DatabaseFile};
use crate::storage::identify;
use crate::storage::key_chain;
use crate::storage::places;
use container::IncomingContainer;

/// The result of attaching a file.
#[derive(Clone, Debug)]
pub struct Attached {
    /// The number of the new database.
    pub database: DatabaseId,
    /// Its name.
    pub name: String,
    /// Its containers.
    pub containers: Vec<String>,
    /// Classes whose name in the file differs from that in the federation: both names.
    pub renamed: Vec<(String, String)>,
    /// Fields that cannot be read, with the reason.
    pub ignored: Vec<String>,
}

impl Federation {
    /// Attaches a file in its place. The database is named after the file, without the extension, unless
    /// `name` is given. The file is never written, unless it is an unsealed database in this federation's
    /// folder of databases: that one takes commits.
    ///
    /// # Errors
    /// `NotFound` if the file does not exist; `Corrupt` if it is truncated or damaged; `Invalid` if it is not
    /// a ROOT file, has no RNTuple, or is an open database of another federation; `Exists` if the database or
    /// its name is in the federation.
    pub fn attach(&self, path: &Path, name: Option<&str>) -> Result<Attached> {
        self.inner.local()?;
        let path = std::fs::canonicalize(path).map_err(|error| Error::io("find", path, error))?;
        let stem = path.file_stem().unwrap_or_default().to_string_lossy();
        let name = name.map_or_else(|| stem.into_owned(), str::to_owned);
        femtobarn_catalog::check_database_name(&name)?;
        let file = IncomingFile::open(path)?;
        file.check_new(self)?;
        file.commit(self, name)
    }

    /// Moves a file into this federation's folder of databases and attaches it there, so that an unsealed
    /// database takes commits again.
    ///
    /// # Errors
    /// The errors of [`attach`](Self::attach), after which the file is in its old place.
    pub fn adopt(&self, path: &Path, name: Option<&str>) -> Result<Attached> {
        self.inner.local()?;
        let path = std::fs::canonicalize(path).map_err(|error| Error::io("find", path, error))?;
        let stem = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let name = name.map_or(stem.clone(), str::to_owned);
        femtobarn_catalog::check_database_name(&name)?;
        let file = IncomingFile::open(path.clone())?;
        file.check_new(self)?;
        let folder = self.folder().join(DATABASES_FOLDER);
        let short = &file.uuid.simple().to_string()[..8];
        let plain = folder.join(format!("{stem}.root"));
        let place =
            if plain.exists() { folder.join(format!("{stem}-{short}.root")) } else { plain };
        drop(file);
        file::move_to(&path, &place)?;
        let attached = self.attach(&place, Some(&name));
        if attached.is_err() {
            // If moving back fails, the file is complete here as well.
            drop(file::move_to(&place, &path));
        }
        attached
    }
}

/// Class names in a file that differ in the federation, with the names there.
type Renamed = Vec<(String, String)>;

/// A file that is being attached.
struct IncomingFile {
    source: Arc<DatabaseFile>,
    uuid: Uuid,
    entries: Vec<IncomingContainer>,
    /// Whether it is an unsealed database, which can take commits.
    is_open: bool,
}

impl IncomingFile {
    fn open(path: PathBuf) -> Result<Self> {
        let source = Arc::new(DatabaseFile::open(path)?);
        let what = source.path.display().to_string();
        let header = check_whole(&source, &what)?;
        let uuid = match Uuid::from_bytes(header.uuid) {
            uuid if uuid.is_nil() => Uuid::new_v4(),
            uuid => uuid,
        };
        let is_open = header.streamer_info.0 == 0;
        let entries = if is_open {
            container::recorded(&source, uuid, &what)?
        } else {
            container::anchored(&source, &what)?
        };
        Ok(IncomingFile { source, uuid, entries, is_open })
    }

    fn what(&self) -> String {
        self.source.path.display().to_string()
    }

    /// Refuses a database of this federation, and an open database of another one.
    fn check_new(&self, federation: &Federation) -> Result<()> {
        if let Some(row) = federation.catalog().database_by_uuid(self.uuid)? {
            return Err(Error::Exists {
                what: format!("{} is already in the federation, as {:?}", self.what(), row.name),
            });
        }
        // The file may lie in a place, one folder further down.
        let folders = self.source.path.ancestors().skip(2).take(2);
        let others = folders.filter(|folder| self.is_open && *folder != federation.folder());
        for folder in others {
            let owner = LocalCatalogue::open(folder).ok();
            if let Some(row) = owner.and_then(|owner| owner.database_by_uuid(self.uuid).ok()?) {
                return Err(Error::invalid(format!(
                    "{} is database {:?} of the federation at {}; seal it or detach it there first",
                    self.what(),
                    row.name,
                    folder.display()
                )));
            }
        }
        Ok(())
    }

    fn commit(mut self, federation: &Federation, name: String) -> Result<Attached> {
        let catalog = federation.catalog();
        let (new_classes, renamed) = self.name_classes(catalog.classes()?, &name)?;
        self.number_containers(catalog)?;
        let database = catalog.reserve_database()?;
        let folder = std::fs::canonicalize(federation.folder()).ok();
        let inside = folder.and_then(|folder| places::relative(&folder, &self.source.path));
        let state = if inside.is_some() && self.is_open {
            DatabaseState::Open
        } else {
            DatabaseState::Attached
        };
        let path = inside.unwrap_or_else(|| self.what());
        let new = NewDatabase { id: database, uuid: self.uuid, name: name.clone(), path, state };
        let transaction = Uuid::new_v4();
        let message = format!("attach {}", self.what());
        let record = match state {
            DatabaseState::Open => self.write_record(federation, &new, transaction, &message)?,
            _ => BlobRange::default(),
        };
        let entries = &self.entries;
        let commit = Commit {
            transaction,
            message,
            new_containers: entries.iter().map(|entry| entry.container(database)).collect(),
            new_classes,
            versions: entries.iter().map(|entry| entry.version(database, record)).collect(),
            link_targets: entries.iter().filter_map(|entry| entry.targets(database)).collect(),
            new_databases: vec![new],
            ..Commit::default()
        };
        catalog.commit(commit)?;
        Ok(Attached {
            database,
            name,
            renamed,
            ignored: self.entries.iter().flat_map(IncomingContainer::ignored).collect(),
            containers: self.entries.into_iter().map(|entry| entry.name).collect(),
        })
    }

    /// Maps the file's classes to the federation's. Returns the classes to declare, and those whose name
    /// differs here.
    fn name_classes(
        &mut self,
        known: Vec<ClassRow>,
        database: &str,
    ) -> Result<(Vec<ClassRow>, Renamed)> {
        let known = class_names::namesakes(known, self.entries.iter().map(|it| &it.class))?;
        let is_foreign = self.entries.iter().any(|entry| entry.id.is_none());
        let there: Vec<Class> = self.entries.iter().map(|entry| entry.class.clone()).collect();
        let here = class_names::in_federation(&there, known.clone(), database, is_foreign);
        let (mut new, mut renamed) = (vec![], vec![]);
        for ((entry, there), here) in self.entries.iter_mut().zip(there).zip(here) {
            if !known.contains(&here) && !new.contains(&here.row()) {
                new.push(here.row());
            }
            renamed.push((there.name, here.name.clone()));
            entry.class = here;
        }
        renamed.retain(|(there, here)| there != here);
        renamed.sort();
        renamed.dedup();
        Ok((new, renamed))
    }

    /// Numbers containers without a number, and raises the counter so that no later container gets a number
    /// that this database uses.
    fn number_containers(&mut self, catalog: &dyn Catalogue) -> Result<()> {
        let unnumbered = self.entries.iter().filter(|entry| entry.id.is_none()).count() as u32;
        let mut numbers = catalog.reserve_containers(unnumbered)?.into_iter();
        for entry in &mut self.entries {
            entry.id = entry.id.or_else(|| numbers.next());
        }
        let greatest = self.entries.iter().map(|entry| entry.id().0).max().unwrap_or(0);
        let next = catalog.reserve_container()?.0;
        if self.is_open && next <= greatest {
            catalog.reserve_containers(greatest - next)?;
        }
        Ok(())
    }

    /// Writes a commit record of this federation into a database that takes commits.
    fn write_record(
        &self,
        federation: &Federation,
        new: &NewDatabase,
        transaction: Uuid,
        message: &str,
    ) -> Result<BlobRange> {
        let file = Arc::new(DatabaseFile::open_to_write(self.source.path.clone())?);
        let locks = federation.inner.locks();
        {
            let _lock = locks.lock_allocation(new.id)?;
            key_chain::mend(&file)?;
        }
        let containers = self.entries.iter().map(|entry| entry.record()).collect::<Result<_>>()?;
        let record = CommitRecord {
            transaction,
            message: message.to_owned(),
            author: Some(Author::this_process()),
            federation: federation.uuid(),
            database: new.uuid,
            number: new.id,
            name: new.name.clone(),
            after: federation.head()?,
            time_us: clock::utc_us(),
            databases: vec![new.uuid],
            containers,
            renamed: vec![],
            dropped: vec![],
            end: None,
            is_whole: true,
        };
        record.write_alone(ExtentWriter::new(file, new.id, 0, federation.inner.catalog.clone())?)
    }
}

/// Checks that the file is a ROOT file of the length that its header states.
fn check_whole(source: &DatabaseFile, what: &str) -> Result<FileHeader> {
    let header = identify::header(source)
        .map_err(|_| Error::invalid(format!("{what} is not a ROOT file")))?;
    let size = source.size()?;
    if header.end > size {
        return Err(Error::Corrupt {
            what: format!("{what} is truncated: {size} of {} bytes", header.end),
        });
    }
    Ok(header)
}
