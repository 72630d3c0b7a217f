//! Appending objects to a container: values, arrays or Rust rows.

use std::collections::BTreeMap;
use std::marker::PhantomData;

use femtobarn_catalog::{Csn, DatabaseId, Oid};
use rntuple::{Array, Cell, Value};
use uuid::Uuid;

use super::container::OpenContainer;
use super::{ContainerKey, OpenDatabase, Transaction, unopened};
use crate::error::{Error, Result};
use crate::federation::Federation;
use crate::links::translate::{self, ToStored};
use crate::schema::class::Class;

impl Transaction {
    /// Appends one object: a record with the members of the class in its order. Links are records of
    /// database, container and entry; a missing value is a null link.
    ///
    /// # Errors
    /// `Invalid` if the value does not fit the class; `Io` or `Full` if the file cannot be written.
    pub fn append_value(&mut self, key: ContainerKey, object: Value) -> Result<Oid> {
        let mut writer = self.writer(key)?;
        let object = if writer.container.needs_translation {
            writer.translated(|class, by| translate::value_to_store(class, object, by))?
        } else {
            object
        };
        let appender = &mut writer.container.appender;
        let entry = appender.entries();
        let appended = appender.append_value(&mut writer.database.extents, &object);
        writer.record_write(appended)?;
        Ok(Oid::new(key.database, key.container, entry))
    }

    /// Appends an array of objects: records with the members of the class. Returns the OID of the first; the
    /// others follow it.
    ///
    /// # Errors
    /// `Invalid` if the array does not fit the class; `Io` or `Full` if the file cannot be written. Then
    /// nothing is appended.
    pub fn extend(&mut self, key: ContainerKey, objects: Array) -> Result<Oid> {
        let mut writer = self.writer(key)?;
        let objects = if writer.container.needs_translation {
            writer.translated(|class, by| translate::array(class, objects, by))?
        } else {
            objects
        };
        let appender = &mut writer.container.appender;
        let entry = appender.entries();
        let appended = appender.append(&mut writer.database.extents, &objects);
        if objects.is_empty() {
            appended.map_err(Error::storage(writer.what()))?
        } else {
            writer.record_write(appended)?
        }
        Ok(Oid::new(key.database, key.container, entry))
    }

    /// A writer of Rust structures, appended one by one. Their links are [`Link`](crate::Link)s and
    /// [`ElementLink`](crate::ElementLink)s.
    ///
    /// # Errors
    /// `Invalid` if the container's class has other fields.
    pub fn rows<R: Cell>(&mut self, key: ContainerKey) -> Result<Rows<'_, R>> {
        let writer = self.writer(key)?;
        if !writer.container.holds::<R>() {
            return Err(Error::invalid(format!(
                "{} holds objects of class {}, which has other fields than these rows",
                writer.what(),
                writer.container.class.name
            )));
        }
        Ok(Rows { writer, key, of: PhantomData })
    }

    /// The parts of the transaction that change one container.
    pub(super) fn writer(&mut self, key: ContainerKey) -> Result<ContainerWriter<'_>> {
        self.check_open()?;
        let container = self.containers.get_mut(&key).ok_or_else(unopened)?;
        let database = self.databases.get_mut(&key.database).ok_or_else(unopened)?;
        let identities = &mut self.identities;
        Ok(ContainerWriter { federation: &self.federation, identities, database, container })
    }
}

/// A container and its database, borrowed from a transaction for one change.
pub(super) struct ContainerWriter<'a> {
    federation: &'a Federation,
    identities: &'a mut BTreeMap<DatabaseId, Uuid>,
    pub database: &'a mut OpenDatabase,
    pub container: &'a mut OpenContainer,
}

impl ContainerWriter<'_> {
    pub(super) fn what(&self) -> String {
        format!("container {}/{}", self.database.row.name, self.container.row.name)
    }

    /// Marks the container as changed. A refused value changed nothing; after a failed write the container differs from
    /// its version and must not be committed as that version.
    pub(super) fn record_write<T>(&mut self, stored: rntuple::Result<T>) -> Result<T> {
        if !matches!(stored, Err(rntuple::Error::Invalid { .. })) {
            self.container.touch();
        }
        stored.map_err(|error| Error::storage(self.what())(error))
    }

    /// Ensures that the container has a position for each database that the row links to.
    #[inline]
    fn ensure_link_targets(&mut self, row: &impl Cell) -> Result<()> {
        let renumbering = self.container.appender.renumbering();
        let mut all_known = true;
        row.visit_renumbered(&mut |database| all_known &= renumbering.knows(database));
        if all_known { Ok(()) } else { self.add_link_targets(row) }
    }

    #[cold]
    fn add_link_targets(&mut self, row: &impl Cell) -> Result<()> {
        let mut databases = vec![];
        row.visit_renumbered(&mut |database| databases.push(database));
        for database in databases {
            // The container number only distinguishes null links, so any number other than 0 will do.
            let stored = self.translated(|_, by| by.translate(database, u32::MAX))?;
            self.container.appender.renumbering().insert(database, stored);
        }
        Ok(())
    }

    /// Translates links of objects to their stored form.
    pub(super) fn translated<T>(
        &mut self,
        translate: impl FnOnce(&Class, &mut dyn translate::Translate) -> Result<T>,
    ) -> Result<T> {
        let catalog = self.federation.catalog();
        let identity = |id: DatabaseId| {
            if let Some(uuid) = self.identities.get(&id) {
                return Ok(*uuid);
            }
            let uuid = catalog.database_by_id(id, Csn::MAX)?.uuid;
            self.identities.insert(id, uuid);
            Ok(uuid)
        };
        let (own, targets) = (self.database.row.uuid, &mut self.container.targets);
        let mut by = ToStored { own, targets, identity, last: None };
        translate(&self.container.class, &mut by)
    }
}

/// Appends Rust structures to a container.
pub struct Rows<'a, R> {
    writer: ContainerWriter<'a>,
    key: ContainerKey,
    of: PhantomData<R>,
}

impl<R: Cell> Rows<'_, R> {
    /// Appends one object.
    ///
    /// # Errors
    /// `NotFound` for a link into a database that is not in the federation; then nothing is appended. `Io` or
    /// `Full` if the file cannot be written.
    #[inline]
    pub fn append(&mut self, row: &R) -> Result<Oid> {
        if R::IS_RENUMBERED {
            self.writer.ensure_link_targets(row)?;
        }
        let ContainerWriter { container, database, .. } = &mut self.writer;
        let entry = container.appender.entries();
        let appended = container.appender.append_row(&mut database.extents, row);
        match appended {
            Ok(()) => {
                container.touch();
                Ok(Oid::new(self.key.database, self.key.container, entry))
            }
            failed => Err(self.writer.record_write(failed).expect_err("the result is an error")),
        }
    }
}
