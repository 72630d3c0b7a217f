//! What a file is: a database, of which federation and in which state, or any other ROOT file.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rntuple::tfile::{self, FileHeader};
use rntuple::{ByteSource, Reader};
use uuid::Uuid;

use crate::description::{self, DESCRIPTION};
use crate::error::{Error, Result};
use crate::storage::commit_record::CommitRecord;
use crate::storage::file::DatabaseFile;
use crate::storage::scan::{self, Newest};
use femtobarn_format::link;

/// The version of the format of database files that this library writes.
pub const FORMAT_VERSION: u32 = 2;

/// What kind of file it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileKind {
    /// A database of a federation, not sealed.
    OpenDatabase,
    /// A database that a federation sealed.
    SealedDatabase,
    /// A ROOT file of somebody else.
    RootFile,
    /// A ROOT file whose writer did not finish it, and that has no commit in it.
    UnfinishedFile,
    /// No ROOT file.
    Other,
}

/// What a file is and what it holds.
#[derive(Clone, Debug)]
pub struct Metadata {
    /// The file.
    pub path: PathBuf,
    /// Its size.
    pub bytes: u64,
    /// What kind of file it is.
    pub kind: FileKind,
    /// The version of the format, of a database.
    pub format: Option<u32>,
    /// Its identity: that of the database, if it is one.
    pub uuid: Option<Uuid>,
    /// The version of ROOT that wrote it, or whose layout it has, such as 63400.
    pub root_version: Option<u32>,
    /// The federation that last committed to it.
    pub federation: Option<Uuid>,
    /// The database's name and number there.
    pub database: Option<(String, u32)>,
    /// What RNTuples it holds, as of the newest commit.
    pub containers: Vec<ContainerMetadata>,
    /// Commit records in it.
    pub commits: u64,
    /// The newest of them.
    pub last_commit: Option<CommitMetadata>,
    /// What kept us from finding out more.
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
    /// Entries, with deleted ones.
    pub entries: u64,
    /// Entries that are deleted, if that is known.
    pub deleted: Option<u64>,
    /// Clusters, if it can be opened.
    pub clusters: Option<u64>,
}

/// A commit, as a file tells it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommitMetadata {
    /// The transaction.
    pub transaction: Uuid,
    /// What its author said.
    pub message: String,
    /// When it was prepared, in microseconds since 1970.
    pub time_us: i64,
    /// The newest commit of the federation at that time; its own came later.
    pub after: u64,
}

/// Says what a file is. It is only read, as a whole if it is an open database.
///
/// # Errors
/// `NotFound` if there is no such file; as the disk. What is damaged is in the answer.
pub fn identify(path: &Path) -> Result<Metadata> {
    let path = std::path::absolute(path).map_err(|error| Error::io("find", path, error))?;
    let file = DatabaseFile::open(path.clone())?;
    let bytes = file.size()?;
    let source = Arc::new(file);
    let mut facts = Metadata {
        path,
        bytes,
        kind: FileKind::Other,
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
            facts.problem = Some(error.to_string());
            return Ok(facts);
        }
    };
    let uuid = Uuid::from_bytes(header.uuid);
    facts.uuid = (!uuid.is_nil()).then_some(uuid);
    facts.root_version = Some(header.version);
    let outcome = match header.streamer_info.0 {
        0 => facts.open(&source, uuid),
        _ => facts.complete(&source, uuid),
    };
    facts.problem = outcome.err().map(|error| error.to_string());
    Ok(facts)
}

/// The header of a ROOT file.
pub(crate) fn header(source: &dyn ByteSource) -> Result<FileHeader> {
    let size = source.size().map_err(Error::storage("file"))?;
    let mut front = vec![0; tfile::FIRST_KEY.min(size) as usize];
    source.read_at(0, &mut front).map_err(Error::storage("file"))?;
    FileHeader::decode(&front).map_err(Error::storage("file"))
}

impl Metadata {
    /// A file that nobody completed.
    fn open(&mut self, source: &Arc<DatabaseFile>, uuid: Uuid) -> Result<()> {
        self.kind = FileKind::UnfinishedFile;
        let found = scan::records(&**source, uuid, &mut |_| true)?;
        let Some(newest) = Newest::of(found) else { return Ok(()) };
        self.kind = FileKind::OpenDatabase;
        self.commits(&newest);
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

    fn commits(&mut self, newest: &Newest) {
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

    /// A whole ROOT file.
    fn complete(&mut self, source: &Arc<DatabaseFile>, uuid: Uuid) -> Result<()> {
        self.kind = FileKind::RootFile;
        let what = self.path.display().to_string();
        let anchors = tfile::anchors(&**source).map_err(Error::storage(&what))?;
        let descriptions = match anchors.iter().any(|(name, _)| name == DESCRIPTION) {
            true => {
                self.kind = FileKind::SealedDatabase;
                self.format = Some(FORMAT_VERSION);
                description::read(source.clone())?
            }
            false => vec![],
        };
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
        if self.kind == FileKind::SealedDatabase
            && let Some(newest) = Newest::of(scan::records(&**source, uuid, &mut |_| true)?)
        {
            self.commits(&newest);
        }
        Ok(())
    }
}
