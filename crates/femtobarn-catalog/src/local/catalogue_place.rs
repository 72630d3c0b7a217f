//! The place of a federation's catalogue: the file `catalogue.sqlite` in its folder, or PostgreSQL, named by the file
//! `catalogue.toml`.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::Deserialize;
use uuid::Uuid;

use crate::error::{Error, Result};
use crate::paths::{CATALOGUE_ADDRESS_FILE, CATALOGUE_FILE};
use crate::sql::PostgresAddress;

/// Bytes of a file that names a server, at most.
const FILE_BYTES_MAX: u64 = 64 << 10;

/// The place of a catalogue.
#[derive(Clone, Debug)]
pub(super) struct CataloguePlace {
    /// The file in the federation's folder.
    pub(super) path: PathBuf,
    /// The server; `None` if the file itself is the catalogue.
    pub(super) postgres: Option<Arc<PostgresAddress>>,
}

/// The contents of `catalogue.toml`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct AddressFile {
    url: String,
    schema: String,
}

impl CataloguePlace {
    /// Finds the catalogue of a folder. A file that names a server takes precedence: then a file of SQLite beside it is
    /// the catalogue before its move to that server, or the draft of a move back.
    ///
    /// # Errors
    /// [`Error::NoFederation`] with the missing file; [`Error::Invalid`] if the file that names a server is malformed.
    pub(super) fn find(folder: &Path) -> Result<Self> {
        let (own, named) = (folder.join(CATALOGUE_FILE), folder.join(CATALOGUE_ADDRESS_FILE));
        match (is_file(&own, folder)?, is_file(&named, folder)?) {
            (_, true) => {
                let postgres = Some(Arc::new(read_address(&named)?));
                Ok(CataloguePlace { path: named, postgres })
            }
            (true, false) => Ok(CataloguePlace { path: own, postgres: None }),
            (false, false) => Err(Error::NoFederation {
                folder: folder.to_owned(),
                reason: if folder.is_dir() {
                    format!(
                        "the folder holds no {CATALOGUE_FILE}; check the path, or create a federation"
                    )
                } else {
                    "the folder does not exist; check the path, or create a federation".to_owned()
                },
            }),
        }
    }

    /// The federation's folder.
    pub(super) fn folder(&self) -> &Path {
        self.path.parent().unwrap_or(&self.path)
    }

    /// Makes the directory entries of the file's folder durable.
    pub(super) fn sync_folder(&self) -> Result<()> {
        let folder = self.folder();
        let synced = fs::File::open(folder).and_then(|folder| folder.sync_all());
        synced.map_err(|error| Error::io("cannot sync the folder", folder, error))
    }

    /// The device and the number of the file.
    pub(super) fn inode(&self) -> io::Result<(u64, u64)> {
        let metadata = fs::metadata(&self.path)?;
        Ok((metadata.dev(), metadata.ino()))
    }
}

/// The schema for a federation: several may be in one database.
pub(super) fn schema_of(federation: Uuid) -> String {
    format!("femtobarn_{}", federation.simple())
}

/// The contents of the file that names a server.
pub(super) fn address_file(url: &str, schema: &str) -> String {
    let quoted = |text: &str| text.replace('\\', "\\\\").replace('"', "\\\"");
    format!(
        "# The catalogue of this federation is in PostgreSQL.\nurl = \"{}\"\nschema = \"{}\"\n",
        quoted(url),
        quoted(schema)
    )
}

fn is_file(path: &Path, folder: &Path) -> Result<bool> {
    let reason = match fs::metadata(path) {
        Ok(metadata) if metadata.is_file() => return Ok(true),
        Ok(_) => {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            format!("{name} is not a file")
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(error) if error.kind() == io::ErrorKind::NotADirectory => {
            "this is a file, and a federation is a folder; check the path".to_owned()
        }
        Err(error) => return Err(Error::io("cannot look at", path, error)),
    };
    Err(Error::NoFederation { folder: folder.to_owned(), reason })
}

fn read_address(path: &Path) -> Result<PostgresAddress> {
    let read = || -> io::Result<String> {
        if fs::metadata(path)?.len() > FILE_BYTES_MAX {
            return Err(io::Error::other("it is too long"));
        }
        fs::read_to_string(path)
    };
    let text = read().map_err(|error| Error::io("cannot read", path, error))?;
    // The parser's own text would show the line, and that may have a password.
    let file: AddressFile = toml::from_str(&text).map_err(|_| {
        let path = path.display();
        Error::invalid(format!("{path} must have the strings `url` and `schema`, and nothing else"))
    })?;
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    if file.schema.is_empty() || !file.schema.bytes().all(is_plain) {
        let path = path.display();
        return Err(Error::invalid(format!("{path}: a schema has only letters, digits and `_`")));
    }
    PostgresAddress::parse(&file.url, &file.schema)
}
