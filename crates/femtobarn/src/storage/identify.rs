//! Identification of a file: a database, with its federation and state, or another ROOT file.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rntuple::tfile::{self, FileHeader};
use rntuple::{ByteSource, Reader};
use uuid::Uuid;

use crate::description::{self, DESCRIPTION};
use crate::error::{Error, Result};
use crate::storage::commit_record::CommitRecord;
use crate::storage::file::DatabaseFile;
use crate::storage::scan::{self, NewestState};
use femtobarn_format::link;

/// The version of the format of database files that this library writes.
pub(crate) const FORMAT_VERSION: u32 = 2;

/// The kind of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RootFileKind {
    /// A database of a federation, not sealed.
    OpenDatabase,
    /// A sealed database.
    SealedDatabase,
    /// A ROOT file that no federation wrote.
    RootFile,
    /// A ROOT file that its writer did not finish, without a commit record.
    UnfinishedFile,
    /// Not a ROOT file.
    Other,
}

/// A file's kind and content.
#[derive(Clone, Debug)]
pub struct FileMetadata {
    /// The file.
    pub path: PathBuf,
    /// Its size.
    pub bytes: u64,
    /// Its kind.
    pub kind: RootFileKind,
    /// The version of the format, if it is a database.
    pub format: Option<u32>,
    /// Its UUID, which is also that of the database; `None` if it is nil.
    pub uuid: Option<Uuid>,
    /// The version of ROOT that wrote it, or whose layout it has: 63400 is 6.34/00.
    pub root_version: Option<u32>,
    /// The federation that last committed to it.
    pub federation: Option<Uuid>,
    /// The database's name and number in that federation.
    pub database: Option<(String, u32)>,
    /// Its RNTuples, as of the newest commit.
    pub containers: Vec<ContainerMetadata>,
    /// The number of its commit records.
    pub commits: u64,
    /// The newest commit record.
    pub last_commit: Option<CommitMetadata>,
    /// Why the description is incomplete, if it is.
    pub problem: Option<String>,
}

/// An RNTuple of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContainerMetadata {
    /// Its name.
    pub name: String,
    /// Its number in the database.
    pub container: Option<u32>,
    /// Class and version of its objects.
    pub class: Option<(String, u32)>,
    /// Entries, including deleted ones.
    pub entries: u64,
    /// Deleted entries, if their number is known.
    pub deleted: Option<u64>,
    /// Clusters, if the RNTuple can be opened.
    pub clusters: Option<u64>,
}

/// A commit, according to its record in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommitMetadata {
    /// The transaction.
    pub transaction: Uuid,
    /// Its message.
    pub message: String,
    /// When it was prepared, in microseconds since 1970.
    pub time_us: i64,
    /// The newest commit of the federation at that time. Its own CSN is greater.
    pub after: u64,
}

/// Describes a file without changing it. An open database is read as a whole.
///
/// # Errors
/// [`Error::Io`] if the file does not exist or cannot be opened. Damage is reported in [`FileMetadata::problem`].
pub fn identify(path: &Path) -> Result<FileMetadata> {
    let path = std::path::absolute(path).map_err(|error| Error::io("find", path, error))?;
    let file = DatabaseFile::open(path.clone())?;
    let bytes = file.size()?;
    let source = Arc::new(file);
    let mut metadata = FileMetadata {
        path,
        bytes,
        kind: RootFileKind::Other,
        format: None,
        uuid: None,
        root_version: None,
        federation: None,
        database: None,
        containers: vec![],
        commits: 0,
        last_commit: None,
        problem: None,
    };
    let header = match header(&*source) {
        Ok(header) => header,
        Err(error) => {
            metadata.problem = Some(error.to_string());
            return Ok(metadata);
        }
    };
    let uuid = Uuid::from_bytes(header.uuid);
    metadata.uuid = (!uuid.is_nil()).then_some(uuid);
    metadata.root_version = Some(header.version);
    let is_complete = header.streamer_info.0 != 0;
    let outcome = if is_complete {
        metadata.describe_complete(&source, uuid)
    } else {
        metadata.describe_open(&source, uuid)
    };
    metadata.problem = outcome.err().map(|error| error.to_string());
    Ok(metadata)
}

/// The header of a ROOT file.
pub(crate) fn header(source: &dyn ByteSource) -> Result<FileHeader> {
    let size = source.size().map_err(Error::storage("file"))?;
    let mut front = vec![0; tfile::FIRST_KEY.min(size) as usize];
    source.read_at(0, &mut front).map_err(Error::storage("file"))?;
    FileHeader::decode(&front).map_err(Error::storage("file"))
}

impl FileMetadata {
    /// Describes a file without streamer information: an open database, or an unfinished file.
    fn describe_open(&mut self, source: &Arc<DatabaseFile>, uuid: Uuid) -> Result<()> {
        self.kind = RootFileKind::UnfinishedFile;
        let found = scan::records(&**source, uuid, &mut |_| true)?;
        let Some(newest) = NewestState::of(found) else { return Ok(()) };
        self.kind = RootFileKind::OpenDatabase;
        self.describe_commits(&newest);
        for container in newest.containers.values() {
            let reader = Reader::from_links(
                source.clone(),
                &link(&container.header),
                &link(&container.footer),
            );
            self.containers.push(ContainerMetadata {
                name: container.name.clone(),
                container: Some(container.id.0),
                class: Some((container.class.name.clone(), container.class.version)),
                entries: container.entries,
                deleted: Some(container.deleted),
                clusters: reader.as_ref().ok().map(Reader::clusters),
            });
            if let Err(error) = reader {
                self.problem = Some(format!("container {}: {error}", container.name));
            }
        }
        Ok(())
    }

    fn describe_commits(&mut self, newest: &NewestState) {
        let CommitRecord { federation, number, name, transaction, message, .. } = &newest.last;
        self.format = Some(FORMAT_VERSION);
        self.federation = Some(*federation);
        self.database = Some((name.clone(), number.0));
        self.commits = newest.records;
        self.last_commit = Some(CommitMetadata {
            transaction: *transaction,
            message: message.clone(),
            time_us: newest.last.time_us,
            after: newest.last.after.0,
        });
    }

    /// Describes a complete ROOT file.
    fn describe_complete(&mut self, source: &Arc<DatabaseFile>, uuid: Uuid) -> Result<()> {
        self.kind = RootFileKind::RootFile;
        let what = self.path.display().to_string();
        let anchors = tfile::anchors(&**source).map_err(Error::storage(&what))?;
        let mut descriptions = vec![];
        if anchors.iter().any(|(name, _)| name == DESCRIPTION) {
            self.kind = RootFileKind::SealedDatabase;
            self.format = Some(FORMAT_VERSION);
            descriptions = description::read(source.clone())?;
        }
        for (name, anchor) in anchors.iter().filter(|(name, _)| name != DESCRIPTION) {
            let described = descriptions.iter().find(|it| it.name == *name);
            let reader = Reader::from_anchor(source.clone(), anchor);
            self.containers.push(ContainerMetadata {
                name: name.clone(),
                container: described.map(|it| it.container),
                class: described.map(|it| (it.class.clone(), it.class_version)),
                entries: reader.as_ref().map_or(0, Reader::entries),
                deleted: None,
                clusters: reader.as_ref().ok().map(Reader::clusters),
            });
            reader.map_err(Error::storage(format!("RNTuple {name}")))?;
        }
        if self.kind == RootFileKind::SealedDatabase
            && let Some(newest) = NewestState::of(scan::records(&**source, uuid, &mut |_| true)?)
        {
            self.describe_commits(&newest);
        }
        Ok(())
    }
}
