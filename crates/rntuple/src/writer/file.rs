//! [`Writer`]: a file with one RNTuple.

use std::fs::File;
use std::io::BufWriter;
use std::path::Path;

use super::{Appender, Cell, WriteOptions};
use crate::anchor::Anchor;
use crate::array::Array;
use crate::clock;
use crate::error::Result;
use crate::locator::EnvelopeLink;
use crate::source::io_error;
use crate::tfile::{FileIdentity, FileWriter, Timestamp};
use crate::types::Type;
use crate::value::Value;

/// Bytes of the buffer before the file.
const BUFFER_SIZE: usize = 1 << 20;

/// Writes a ROOT file with one RNTuple in it.
///
/// ```
/// # fn main() -> rntuple::Result<()> {
/// # let folder = tempfile::tempdir().expect("a folder for the example");
/// # let path = folder.path().join("muons.root");
/// rntuple::row! {
///     struct Muon { pt: f32, charge: i32 }
/// }
/// let mut writer = rntuple::Writer::create::<Muon>(&path, "muons", Default::default())?;
/// writer.append_row(&Muon { pt: 45.2, charge: -1 })?;
/// writer.finish()?;
///
/// let file = std::fs::File::open(&path).expect("the file was written");
/// let reader = rntuple::Reader::open(std::sync::Arc::new(file), "muons")?;
/// let muons = reader.read(&reader.select_all(), 0..1)?;
/// assert_eq!(muons.value(0)?.member("charge"), Some(&rntuple::Value::Int(-1)));
/// # Ok(())
/// # }
/// ```
pub struct Writer {
    file: FileWriter<BufWriter<File>>,
    name: String,
    header: EnvelopeLink,
    appender: Appender,
}

impl Writer {
    /// Creates a file with an RNTuple of rows of type `R`.
    ///
    /// # Errors
    /// [`Error::Io`](crate::Error::Io) if the file exists or cannot be created;
    /// [`Error::Invalid`](crate::Error::Invalid) for an invalid name.
    pub fn create<R: Cell>(path: &Path, name: &str, options: WriteOptions) -> Result<Self> {
        match R::cell_type() {
            Type::Record { members, .. } => Self::with_members(path, name, &members, options),
            other => Self::with_members(path, name, &[("value".to_owned(), other)], options),
        }
    }

    /// Creates a file with an RNTuple of these top-level fields.
    ///
    /// # Errors
    /// [`Error::Io`](crate::Error::Io) if the file exists or cannot be created;
    /// [`Error::Invalid`](crate::Error::Invalid) for an invalid name, or fields that cannot be stored.
    pub fn with_members(
        path: &Path,
        name: &str,
        members: &[(String, Type)],
        options: WriteOptions,
    ) -> Result<Self> {
        let file = File::options().read(true).write(true).create_new(true).open(path);
        let file =
            file.map_err(|source| io_error(&format!("create {}", path.display()), source))?;
        let file_name = path.file_name().unwrap_or_default().to_string_lossy();
        let identity = FileIdentity::new(&file_name, *uuid::Uuid::new_v4().as_bytes(), now())?;
        let mut file = FileWriter::create(BufWriter::with_capacity(BUFFER_SIZE, file), identity)?;
        let (appender, header) = Appender::create(&mut file, name, members, options)?;
        Ok(Writer { file, name: name.to_owned(), header, appender })
    }

    /// Appends a Rust structure as an entry.
    ///
    /// # Errors
    /// [`Error::Invalid`](crate::Error::Invalid) if the structure does not have the columns of the RNTuple,
    /// [`Error::Io`](crate::Error::Io) if the file cannot be written.
    #[inline]
    pub fn append_row<R: Cell>(&mut self, row: &R) -> Result<()> {
        self.appender.append_row(&mut self.file, row)
    }

    /// Appends an array of records.
    ///
    /// # Errors
    /// [`Error::Invalid`](crate::Error::Invalid) if the array does not have the types of the RNTuple,
    /// [`Error::Io`](crate::Error::Io) if the file cannot be written.
    pub fn append(&mut self, entries: &Array) -> Result<()> {
        self.appender.append(&mut self.file, entries)
    }

    /// Appends a record as an entry.
    ///
    /// # Errors
    /// [`Error::Invalid`](crate::Error::Invalid) if the value does not have the types of the RNTuple,
    /// [`Error::Io`](crate::Error::Io) if the file cannot be written.
    pub fn append_value(&mut self, value: &Value) -> Result<()> {
        self.appender.append_value(&mut self.file, value)
    }

    /// Writes the metadata that makes the file a complete ROOT file.
    ///
    /// # Errors
    /// [`Error::Io`](crate::Error::Io) if the file cannot be written.
    pub fn finish(mut self) -> Result<()> {
        let version = self.appender.finish_whole(&mut self.file, &Vec::new())?;
        let anchor = Anchor::new(self.header, version.footer);
        self.file.finish(&[(self.name, anchor)], now())?;
        Ok(())
    }
}

fn now() -> Timestamp {
    Timestamp::from_unix(clock::unix_seconds())
}
