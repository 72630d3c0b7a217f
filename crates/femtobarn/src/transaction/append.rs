//! Appending: objects as values, arrays or Rust rows, on their way to a container.

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
    /// Appends an object from a value: a record with the members of the class in its order. Links
    /// are records of database, container and entry; no value is a null link.
    ///
    /// # Errors
    /// `Invalid` if the value is not of the class; as the disk.
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

    /// Appends an array of objects: records with the members of the class. Returns the OID of the
    /// first; those of the others follow it.
    ///
    /// # Errors
    /// `Invalid` if the array is not of the class; as the disk. Then nothing is appended.
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

    /// The container as a place to append Rust structures to, one by one.
    ///
    /// # Errors
    /// `Invalid` if the container does not hold such structures. Links are [`Link`](crate::Link)s
    /// and [`ElementLink`](crate::ElementLink)s.
    pub fn rows<R: Cell>(&mut self, key: ContainerKey) -> Result<Rows<'_, R>> {
        let writer = self.writer(key)?;
        if !writer.container.holds::<R>() {
            return Err(Error::invalid(format!(
                "{} holds objects of class {}, not these rows",
                writer.what(),
                writer.container.class.name
            )));
        }
        Ok(Rows { writer, key, of: PhantomData })
    }

    /// What it takes to change a container.
    pub(super) fn writer(&mut self, key: ContainerKey) -> Result<ContainerWriter<'_>> {
        self.check_open()?;
        let container = self.containers.get_mut(&key).ok_or_else(unopened)?;
        let database = self.databases.get_mut(&key.database).ok_or_else(unopened)?;
        let identities = &mut self.identities;
        Ok(ContainerWriter { federation: &self.federation, identities, database, container })
    }
}

/// A container with what it takes to append to it.
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

    /// Notes that the container has changed. It has not if what was to be stored was refused; after
    /// a failure of the disk it must not be committed as it was.
    pub(super) fn record_write<T>(&mut self, stored: rntuple::Result<T>) -> Result<T> {
        if !matches!(stored, Err(rntuple::Error::Invalid { .. })) {
            self.container.touch();
        }
        stored.map_err(|error| Error::storage(self.what())(error))
    }

    /// Sees to it that the container has a position for each database that links in a row lead to.
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
            // No null link tells of its database, so any container does.
            let stored = self.translated(|_, by| by.translate(database, u32::MAX))?;
            self.container.appender.renumbering().insert(database, stored);
        }
        Ok(())
    }

    /// Translates objects on their way to the disk.
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

/// A container that Rust structures are appended to.
pub struct Rows<'a, R> {
    writer: ContainerWriter<'a>,
    key: ContainerKey,
    of: PhantomData<R>,
}

impl<R: Cell> Rows<'_, R> {
    /// Appends one object.
    ///
    /// # Errors
    /// `NotFound` for a link into a database that is not there, and nothing is appended; as the disk.
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
            failed => Err(self.writer.record_write(failed).expect_err("a failure stays one")),
        }
    }
}
