//! Export: objects of containers as RNTuples in a plain ROOT file.
//!
//! Links keep their numbers of database, container and entry. A file is incomplete until [`Export::finish`].

use std::fs::File;
use std::io::BufWriter;
use std::path::{Path, PathBuf};

use rntuple::tfile::{FileIdentity, FileWriter};
use rntuple::{Anchor, Appender, Array, EnvelopeLink};
use uuid::Uuid;

use crate::error::{Error, Result};
use crate::links::translate::{self, Translate};
use crate::schema::class::Class;
use crate::storage::file;
use crate::{ContainerOptions, Profile};

/// Bytes buffered before each write to the file.
const BUFFER_SIZE: usize = 1 << 20;

/// A ROOT file that objects are exported to.
pub struct Export {
    path: PathBuf,
    file: FileWriter<BufWriter<File>>,
    ntuples: Vec<Ntuple>,
}

struct Ntuple {
    name: String,
    class: Class,
    header: EnvelopeLink,
    appender: Appender,
}

impl Export {
    /// Creates a file with an internal name, such as `muons.root`.
    ///
    /// # Errors
    /// `Io` if the file exists or cannot be created.
    pub fn create(path: &Path, name: &str) -> Result<Self> {
        let refused = |error| Error::io("create", path, error);
        let sink = File::options().read(true).write(true).create_new(true).open(path);
        let sink = BufWriter::with_capacity(BUFFER_SIZE, sink.map_err(refused)?);
        let storage = |error| Error::storage(path.display().to_string())(error);
        let identity = FileIdentity::new(name, *Uuid::new_v4().as_bytes(), file::now());
        let file = FileWriter::create(sink, identity.map_err(storage)?).map_err(storage)?;
        Ok(Export { path: path.to_owned(), file, ntuples: vec![] })
    }

    /// Adds an RNTuple for objects of a class; returns its position. If it is `typed`, the class of each record is
    /// also the name of its C++ type, so that ROOT reads records into objects of that class, and into no others;
    /// otherwise records have no type, and readers need no dictionary.
    ///
    /// # Errors
    /// `Invalid` for a class that cannot be stored; `Exists` if the name is taken; `Io` or `Full` if the file
    /// cannot be written.
    pub fn add(&mut self, name: &str, class: Class, typed: bool) -> Result<usize> {
        if self.ntuples.iter().any(|ntuple| ntuple.name == name) {
            return Err(Error::Exists {
                what: format!("RNTuple {name:?} already exists in the file"),
            });
        }
        class.check()?;
        let options =
            ContainerOptions { compression: Profile::Archive, ..ContainerOptions::default() };
        let members = if typed { class.typed_members() } else { class.members() };
        let created = Appender::create(&mut self.file, name, &members, options.write_options());
        let (appender, header) = created.map_err(Error::storage(format!("RNTuple {name}")))?;
        self.ntuples.push(Ntuple { name: name.to_owned(), class, header, appender });
        Ok(self.ntuples.len() - 1)
    }

    /// Appends objects to the RNTuple at a position: records with the members of its class.
    ///
    /// # Errors
    /// `NotFound` for an unknown position; `Invalid` if the array does not fit the class; `Io` or `Full` if
    /// the file cannot be written.
    pub fn append(&mut self, position: usize, objects: Array) -> Result<()> {
        let ntuple = self.ntuples.get_mut(position).ok_or_else(|| Error::NotFound {
            what: format!("no RNTuple at position {position}"),
        })?;
        let objects = translate::array(&ntuple.class, objects, &mut Unchanged)?;
        let appended = ntuple.appender.append(&mut self.file, &objects);
        appended.map_err(Error::storage(format!("RNTuple {}", ntuple.name)))
    }

    /// Completes the ROOT file and syncs it.
    ///
    /// # Errors
    /// `Io` or `Full` if the file cannot be written.
    pub fn finish(mut self) -> Result<()> {
        let mut anchors = vec![];
        for mut ntuple in self.ntuples {
            let version = ntuple.appender.finish_whole(&mut self.file, &Vec::new());
            let version = version.map_err(Error::storage(format!("RNTuple {}", ntuple.name)))?;
            anchors.push((ntuple.name, Anchor::new(ntuple.header, version.footer)));
        }
        let storage = Error::storage(self.path.display().to_string());
        let sink = self.file.finish(&anchors, file::now()).map_err(storage)?;
        let synced = sink.into_inner().map_err(std::io::IntoInnerError::into_error);
        let synced = synced.and_then(|file| file.sync_all());
        synced.map_err(|error| Error::io("sync", &self.path, error))
    }
}

/// Leaves links unchanged.
struct Unchanged;

impl Translate for Unchanged {
    fn translate(&mut self, database: u32, _container: u32) -> Result<u32> {
        Ok(database)
    }

    fn refuse(&self, what: &str) -> Error {
        Error::invalid(what)
    }
}
