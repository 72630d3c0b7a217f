//! Reading of single fields of objects, for callers without a Rust row.
//!
//! As a cursor, a field reader holds the pages that it read from. It belongs to one thread at a time.

use femtobarn_catalog::{ContainerId, DatabaseId, Oid};
use rntuple::{FieldCursor, FieldValue};

use crate::error::{Error, Result};
use crate::links::translate::{ToFederation, Translate};
use crate::read::cursor::VersionHandle;
use crate::read::view::View;
use crate::schema::field_type::FieldType;

/// Reads one field of the objects of a container, one at a time.
pub struct FieldReader {
    view: View,
    values: Values,
}

enum Values {
    Plain(Box<FieldCursor<VersionHandle>>),
    /// The members `database`, `container` and `entry` of links.
    Links(Box<[FieldCursor<VersionHandle>; 3]>),
}

/// The value of a field of an object.
#[derive(Clone, Debug, PartialEq)]
pub enum FieldContent {
    /// Numbers or a text.
    Plain(FieldValue),
    /// A link; `None` if it is null.
    Link(Option<Oid>),
}

impl View {
    /// A reader of a field. `None` for fields that must be read as arrays: those that are not numbers, texts or
    /// links, and all fields if the version is not committed or is converted to an older version of the class.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`](crate::ErrorKind::NotFound) if the field does not exist.
    pub fn field_reader(&self, name: &str) -> Result<Option<FieldReader>> {
        let version = self.shared_version();
        let field = self.class().fields.iter().find(|field| field.name == name);
        let is_link = field.is_some_and(|field| matches!(field.of, FieldType::Link(_)));
        let is_stored_so = field.is_some_and(|field| is_link || !field.of.needs_translation());
        if version.is_narrowed() || version.writer.is_some() || !is_stored_so {
            return Ok(None);
        }
        let cursor = |path: &[&str]| FieldCursor::new(VersionHandle(version.clone()), path);
        let values = if is_link {
            links(|member| cursor(&[name, member]))
        } else {
            cursor(&[name]).map(|plain| plain.map(|plain| Values::Plain(plain.into())))
        };
        let values = values.map_err(Error::storage(self.path()))?;
        Ok(values.map(|values| FieldReader { view: self.clone(), values }))
    }
}

fn links(
    mut member: impl FnMut(&str) -> rntuple::Result<Option<FieldCursor<VersionHandle>>>,
) -> rntuple::Result<Option<Values>> {
    let members = (member("database")?, member("container")?, member("entry")?);
    let (Some(database), Some(container), Some(entry)) = members else { return Ok(None) };
    Ok(Some(Values::Links(Box::new([database, container, entry]))))
}

impl FieldReader {
    /// The value at an entry, if its page is held.
    #[inline]
    pub fn held(&mut self, entry: u64) -> Option<FieldContent> {
        match &mut self.values {
            Values::Plain(plain) => plain.held(entry).map(FieldContent::Plain),
            Values::Links(members) => {
                let [database, container, at] = members.each_mut().map(|member| member.held(entry));
                self.link([database?, container?, at?]).ok()
            }
        }
    }

    /// The value at an entry.
    ///
    /// # Errors
    /// [`ErrorKind`](crate::ErrorKind): `NotFound` if the entry does not exist; `Corrupt` if the stored bytes
    /// are damaged.
    pub fn get(&mut self, entry: u64) -> Result<FieldContent> {
        let view = &self.view;
        let failed = |error| view.snapshot().unless_given_up(Error::storage(view.path())(error));
        match &mut self.values {
            Values::Plain(plain) => Ok(FieldContent::Plain(plain.get(entry).map_err(failed)?)),
            Values::Links(members) => {
                let [database, container, at] = members.each_mut().map(|member| member.get(entry));
                let numbers = [database, container, at].map(|number| number.map_err(failed));
                let [database, container, at] = numbers;
                self.link([database?, container?, at?])
            }
        }
    }

    /// Bytes of the pages that it holds.
    pub fn held_bytes(&self) -> u64 {
        self.cursors().iter().map(FieldCursor::held_bytes).sum()
    }

    /// The most bytes that all readers of a federation may hold.
    pub fn held_bytes_max(&self) -> u64 {
        self.cursors().first().map_or(0, FieldCursor::held_bytes_max)
    }

    /// Releases all pages.
    pub fn release(&mut self) {
        match &mut self.values {
            Values::Plain(plain) => plain.release(),
            Values::Links(members) => members.iter_mut().for_each(FieldCursor::release),
        }
    }

    fn cursors(&self) -> &[FieldCursor<VersionHandle>] {
        match &self.values {
            Values::Plain(plain) => std::slice::from_ref(plain),
            Values::Links(members) => &members[..],
        }
    }

    fn link(&self, members: [FieldValue; 3]) -> Result<FieldContent> {
        let [database, container, entry] = members.map(|member| match member {
            FieldValue::Number(_, bytes) => u64::from_le_bytes(bytes),
            _ => 0,
        });
        let (database, container) = (database as u32, container as u32);
        if container == 0 {
            return Ok(FieldContent::Link(None));
        }
        let numbers = &self.view.opened_version().link_databases;
        let database = ToFederation(numbers).translate(database, container)?;
        let oid = Oid::new(DatabaseId(database), ContainerId(container), entry);
        Ok(FieldContent::Link(Some(oid)))
    }
}
