//! Attaching: an existing ROOT file becomes a database of the federation, where it lies and as it is.
//!
//! A file that a federation sealed keeps its identity, its containers' numbers and its links. Of any
//! other file every RNTuple becomes a container, whose class is made from its fields.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use femtobarn_catalog::{
    BlobRange, ClassRow, Commit, ContainerId, DatabaseId, DatabaseState, NewContainer, NewDatabase,
    NewVersion,
};
use rntuple::tfile::{self, FileHeader};
use rntuple::{Anchor, ByteSource, Reader};
use uuid::Uuid;

use crate::class::Class;
use crate::description::{self, DESCRIPTION, Description};
use crate::error::{Error, Result};
use crate::federation::Federation;
use crate::file::DatabaseFile;
use crate::options::ContainerOptions;
use crate::transaction::range;
use crate::view::Source;

/// What was attached.
#[derive(Clone, Debug)]
pub struct Attached {
    /// The number of the new database.
    pub database: DatabaseId,
    /// Its name.
    pub name: String,
    /// Its containers.
    pub containers: Vec<String>,
    /// Fields that cannot be read, with the reason.
    pub ignored: Vec<String>,
}

impl Federation {
    /// Attaches a file; its name without the ending is the database's unless another is given.
    ///
    /// # Errors
    /// `NotFound` if there is no such file; `Corrupt` if it is truncated or damaged; `Invalid` if it
    /// is not a ROOT file or has no RNTuple; `Exists` if it or its name is in the federation.
    pub fn attach(&self, path: &Path, name: Option<&str>) -> Result<Attached> {
        let path = std::fs::canonicalize(path).map_err(|error| Error::io("find", path, error))?;
        let stem = path.file_stem().unwrap_or_default().to_string_lossy();
        let name = name.map_or_else(|| stem.into_owned(), str::to_owned);
        femtobarn_catalog::check_database_name(&name)?;
        let file = Attaching::open(path)?;
        if let Some(row) = self.catalog().database_by_uuid(file.uuid)? {
            return Err(Error::Exists {
                what: format!("{} is in the federation already, as {:?}", file.what(), row.name),
            });
        }
        file.commit(self, name)
    }
}

/// A file on its way into the federation.
struct Attaching {
    source: Arc<Source>,
    uuid: Uuid,
    anchors: Vec<(String, Anchor)>,
    /// What the file says about its containers, by name.
    descriptions: BTreeMap<String, Description>,
}

/// A container on its way into the federation.
struct NewEntry {
    name: String,
    reader: Reader,
    anchor: Anchor,
    class: Class,
    options: String,
    targets: Vec<Uuid>,
    id: Option<ContainerId>,
}

impl Attaching {
    fn open(path: std::path::PathBuf) -> Result<Self> {
        let source = Arc::new(Source(Arc::new(DatabaseFile::open(path)?)));
        let what = source.0.path.display().to_string();
        let uuid = check_whole(&source, &what)?;
        let mut anchors = tfile::anchors(&*source).map_err(Error::storage(&what))?;
        let descriptions = description::read(source.clone())?;
        anchors.retain(|(name, _)| name != DESCRIPTION);
        if anchors.is_empty() {
            return Err(Error::invalid(format!(
                "{what} has no RNTuple; trees can be imported, which copies them"
            )));
        }
        let descriptions: BTreeMap<String, Description> =
            descriptions.into_iter().map(|it| (it.name.clone(), it)).collect();
        check_described(&anchors, &descriptions, &what)?;
        Ok(Attaching { source, uuid, anchors, descriptions })
    }

    fn what(&self) -> String {
        self.source.0.path.display().to_string()
    }

    fn commit(&self, federation: &Federation, name: String) -> Result<Attached> {
        let catalog = federation.catalog();
        let mut entries = self.entries()?;
        let new_classes = number_classes(&mut entries, catalog.classes()?);
        let unnumbered = entries.iter().filter(|entry| entry.id.is_none()).count() as u32;
        let mut numbers = catalog.reserve_containers(unnumbered)?.into_iter();
        for entry in &mut entries {
            entry.id = entry.id.or_else(|| numbers.next());
        }
        let database = catalog.reserve_database()?;
        let path = self.source.0.path.to_string_lossy().into_owned();
        let (uuid, state) = (self.uuid, DatabaseState::Attached);
        let commit = Commit {
            transaction: Uuid::new_v4(),
            message: format!("attach {path}"),
            new_databases: vec![NewDatabase {
                id: database,
                uuid,
                name: name.clone(),
                path,
                state,
            }],
            new_containers: entries.iter().map(|entry| entry.container(database)).collect(),
            new_classes,
            versions: entries.iter().map(|entry| entry.version(database)).collect(),
            link_targets: entries.iter().filter_map(|entry| entry.targets(database)).collect(),
            ..Commit::default()
        };
        catalog.commit(commit)?;
        Ok(Attached {
            database,
            name,
            ignored: entries.iter().flat_map(NewEntry::ignored).collect(),
            containers: entries.into_iter().map(|entry| entry.name).collect(),
        })
    }

    fn entries(&self) -> Result<Vec<NewEntry>> {
        self.anchors.iter().map(|(name, anchor)| self.entry(name, anchor)).collect()
    }

    fn entry(&self, name: &str, anchor: &Anchor) -> Result<NewEntry> {
        let what = || format!("RNTuple {name} of {}", self.what());
        let reader = Reader::from_anchor(self.source.clone(), anchor)
            .and_then(|reader| reader.check_locations().map(|()| reader))
            .map_err(Error::storage(what()))?;
        let described = self.descriptions.get(name);
        // A name within a subdirectory has slashes, which separate databases from containers here.
        let name = name.replace('/', "_");
        let class = match described {
            Some(description) => Class::from_json(&description.definition)?,
            None => Class::of_members(&name, &reader.members()),
        };
        if described.is_some() && class.members() != reader.members() {
            return Err(Error::Corrupt {
                what: format!("{}: its objects are not of class {}", what(), class.name),
            });
        }
        Ok(NewEntry {
            class,
            options: match described {
                Some(description) => description.options.clone(),
                None => ContainerOptions::default().to_json(),
            },
            targets: described.map_or(Ok(vec![]), Description::targets)?,
            id: described.map(|description| ContainerId(description.container)),
            name,
            reader,
            anchor: *anchor,
        })
    }
}

impl NewEntry {
    fn id(&self) -> ContainerId {
        self.id.expect("every container was numbered")
    }

    fn container(&self, database: DatabaseId) -> NewContainer {
        NewContainer {
            database,
            id: self.id(),
            name: self.name.clone(),
            class: self.class.name.clone(),
            class_version: self.class.version,
            options: self.options.clone(),
        }
    }

    fn version(&self, database: DatabaseId) -> NewVersion {
        NewVersion {
            database,
            container: self.id(),
            base: None,
            header: range(&self.anchor.header),
            footer: range(&self.anchor.footer),
            annex: BlobRange::default(),
            record: BlobRange::default(),
            class_version: self.class.version,
            entries: self.reader.entries(),
            deleted: 0,
            bytes: self.reader.stored_bytes(),
        }
    }

    fn targets(&self, database: DatabaseId) -> Option<(DatabaseId, ContainerId, Vec<Uuid>)> {
        (!self.targets.is_empty()).then(|| (database, self.id(), self.targets.clone()))
    }

    fn ignored(&self) -> Vec<String> {
        let line = |(field, reason): &(String, String)| format!("{}.{field}: {reason}", self.name);
        self.reader.ignored().iter().map(line).collect()
    }
}

/// Checks that a file that describes its containers describes all that are there and no others.
fn check_described(
    anchors: &[(String, Anchor)],
    descriptions: &BTreeMap<String, Description>,
    what: &str,
) -> Result<()> {
    let is_there = |name: &String| anchors.iter().any(|(anchor, _)| anchor == name);
    let missing = descriptions.keys().find(|name| !is_there(name));
    let mut names = anchors.iter().map(|(name, _)| name);
    let unknown = names.find(|name| !descriptions.is_empty() && !descriptions.contains_key(*name));
    match missing.or(unknown) {
        None => Ok(()),
        Some(name) => Err(Error::Corrupt {
            what: format!("{what}: container {name:?} is not both described and there"),
        }),
    }
}

/// Checks that the file is a ROOT file of the length that it says, and returns its identity.
fn check_whole(source: &Source, what: &str) -> Result<Uuid> {
    const HEADER_BYTES: u64 = 100;
    let size = source.size().map_err(Error::storage(what))?;
    let mut bytes = vec![0; HEADER_BYTES.min(size) as usize];
    source.read_at(0, &mut bytes).map_err(Error::storage(what))?;
    let header = FileHeader::decode(&bytes)
        .map_err(|_| Error::invalid(format!("{what} is not a ROOT file")))?;
    if header.end > size {
        return Err(Error::Corrupt {
            what: format!("{what} is truncated: it has {size} bytes of {}", header.end),
        });
    }
    if header.streamer_info.0 == 0 {
        return Err(Error::invalid(format!(
            "{what} was not closed by its writer; if it is a database of another federation, seal \
             it there first"
        )));
    }
    match Uuid::from_bytes(header.uuid) {
        uuid if uuid.is_nil() => Ok(Uuid::new_v4()),
        uuid => Ok(uuid),
    }
}

/// Gives the classes of foreign files versions: the one that has the same definition already, or a
/// new one. Returns the classes to declare.
fn number_classes(entries: &mut [NewEntry], mut known: Vec<ClassRow>) -> Vec<ClassRow> {
    let mut new = vec![];
    for entry in entries {
        let class = &mut entry.class;
        let mut versions = 1_u32..;
        let described = entry.id.is_some();
        loop {
            if !described {
                class.version = versions.next().expect("versions do not run out");
            }
            let row = ClassRow {
                name: class.name.clone(),
                version: class.version,
                definition: class.to_json(),
            };
            let same =
                known.iter().find(|other| (&other.name, other.version) == (&row.name, row.version));
            match same {
                Some(other) if other.definition == row.definition => break,
                // A described class keeps its version; the catalogue refuses it if it differs.
                Some(_) if !described => continue,
                _ => {
                    known.push(row.clone());
                    new.push(row);
                    break;
                }
            }
        }
    }
    new
}
