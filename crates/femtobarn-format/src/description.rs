//! The description of the containers in a complete file, which lets any federation attach the file.
//!
//! The description is an RNTuple named [`DESCRIPTION`] with one entry for each container; ROOT and uproot show it like
//! any other. The file's own UUID is that of the database.

use std::sync::Arc;

use femtobarn_catalog::BlobRange;
use rntuple::{Appender, BlobSink, ByteSource, EnvelopeLink, Reader, Value, row};
use uuid::Uuid;

use crate::annex::Annex;
use crate::deletion::Deletions;
use crate::error::{Error, Result};

/// The name of the RNTuple. No container can have it.
pub const DESCRIPTION: &str = "_femtobarn";

row! {
    /// One container of a complete database.
    #[derive(Clone, Debug, PartialEq)]
    pub struct Description {
        /// The id of the container.
        pub container: u32,
        /// Its name.
        pub name: String,
        /// The name of its class.
        pub class: String,
        /// The version of that class that its objects have.
        pub class_version: u32,
        /// The class's definition, in JSON.
        pub definition: String,
        /// The container's options, in JSON.
        pub options: String,
        /// UUIDs of the databases that its links refer to, from position 1 on.
        pub link_targets: Vec<String>,
        /// First byte of its annex in the file.
        pub annex_offset: u64,
        /// Bytes of its annex; 0 if it has none.
        pub annex_size: u64,
        /// The number of its deleted entries.
        pub deleted: u64,
    }
}

/// Writes the descriptions; returns the locations of the RNTuple's header and footer.
///
/// # Errors
/// [`rntuple::Error`] if `sink` or `source` fails.
pub fn write(
    sink: &mut dyn BlobSink,
    source: &dyn ByteSource,
    descriptions: &[Description],
) -> rntuple::Result<(EnvelopeLink, EnvelopeLink)> {
    let rntuple::Type::Record { members, .. } = <Description as rntuple::CellType>::cell_type()
    else {
        unreachable!("a row is a record")
    };
    let (mut appender, header) = Appender::create(sink, DESCRIPTION, &members, Default::default())?;
    for description in descriptions {
        appender.append_row(sink, description)?;
    }
    Ok((header, appender.finish_version(sink, source)?.footer))
}

/// The descriptions in a file; empty if no federation wrote the file.
///
/// # Errors
/// [`Error::Corrupt`] or [`Error::Storage`] if they are damaged; [`Error::Storage`] if the file cannot be read.
pub fn read(source: Arc<dyn ByteSource>) -> Result<Vec<Description>> {
    let reader = match Reader::open(source, DESCRIPTION) {
        Ok(reader) => reader,
        Err(rntuple::Error::NotFound { .. }) => return Ok(vec![]),
        Err(error) => return Err(Error::storage(DESCRIPTION)(error)),
    };
    let entries = reader.read(&reader.select_all(), 0..reader.entries());
    let entries = entries.map_err(Error::storage(DESCRIPTION))?;
    (0..entries.len())
        .map(|at| {
            let value = entries.value(at).map_err(Error::storage(DESCRIPTION))?;
            of_value(&value).ok_or_else(|| Error::Corrupt {
                what: format!("{DESCRIPTION}: entry {at} does not describe a container: a field is missing or has another type"),
            })
        })
        .collect()
}

fn of_value(value: &Value) -> Option<Description> {
    let text = |name: &str| match value.member(name)? {
        Value::String(text) => Some(text.clone()),
        _ => None,
    };
    let number = |name: &str| u32::try_from(value.member(name)?.as_integer()?).ok();
    let place = |name: &str| u64::try_from(value.member(name)?.as_integer()?).ok();
    let Value::List(targets) = value.member("link_targets")? else { return None };
    let target = |value: &Value| match value {
        Value::String(text) => Some(text.clone()),
        _ => None,
    };
    Some(Description {
        container: number("container")?,
        name: text("name")?,
        class: text("class")?,
        class_version: number("class_version")?,
        definition: text("definition")?,
        options: text("options")?,
        link_targets: targets.iter().map(target).collect::<Option<_>>()?,
        annex_offset: place("annex_offset")?,
        annex_size: place("annex_size")?,
        deleted: place("deleted")?,
    })
}

impl Description {
    /// The location of the container's annex, and the number of deleted entries, checked against the annex.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if the annex is damaged; [`Error::Storage`] if it cannot be read.
    pub fn annex(&self, source: &dyn ByteSource, entries: u64) -> Result<(BlobRange, u64)> {
        let range = BlobRange { offset: self.annex_offset, size: self.annex_size };
        let annex = Annex::read(source, range)?;
        Deletions::new(&annex.deletions, self.deleted, entries)?;
        Ok((range, self.deleted))
    }

    /// The databases that the container's links refer to.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if one is not a UUID.
    pub fn targets(&self) -> Result<Vec<Uuid>> {
        let parse = |text: &String| {
            Uuid::parse_str(text).map_err(|_| Error::Corrupt {
                what: format!("{DESCRIPTION}: invalid UUID {text:?} of a database"),
            })
        };
        self.link_targets.iter().map(parse).collect()
    }
}
