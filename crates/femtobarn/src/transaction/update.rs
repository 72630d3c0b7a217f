//! Updating fields of objects. Earlier snapshots keep the old values.

use rntuple::Array;

use super::append::ContainerWriter;
use super::{ContainerKey, Transaction};
use crate::error::{Error, Result};
use crate::links::translate;

impl Transaction {
    /// Replaces fields of the objects at `entries`. `values` is an array of records, one for each entry and
    /// in the same order. Their members are fields of the class or, by a path such as `vertex.x`, members of
    /// records in it. Other fields keep their values.
    ///
    /// # Errors
    /// `NotFound` for an entry that does not exist or is deleted, or for an unknown field; `Invalid` if the
    /// values do not fit the fields' types, or an entry or field is given twice; `Conflict` if the container
    /// changed since the transaction's first read. Then nothing is updated. `Io` or `Full` if the file cannot
    /// be written; then the transaction can only be rolled back.
    pub fn update(&mut self, key: ContainerKey, entries: &[u64], values: Array) -> Result<()> {
        self.check_entries(key, entries)?;
        let mut writer = self.writer(key)?;
        let Array::Record { length, members } = values else {
            return Err(Error::invalid("invalid values: must be records of the fields to update"));
        };
        if length != entries.len() {
            return Err(Error::invalid(format!(
                "{length} values given for {} entries",
                entries.len()
            )));
        }
        check_paths(&members)?;
        let mut order: Vec<usize> = (0..entries.len()).collect();
        order.sort_unstable_by_key(|at| entries[*at]);
        let sorted: Vec<u64> = order.iter().map(|at| entries[*at]).collect();
        let is_sorted = sorted == entries;
        let members = members.into_iter().map(|(path, values)| {
            let values = writer.stored(&path, values)?;
            let values = if is_sorted { Ok(values) } else { values.take(&order) };
            Ok((path, values.map_err(Error::storage(writer.what()))?))
        });
        let members = members.collect::<Result<Vec<_>>>()?;
        if entries.is_empty() { Ok(()) } else { writer.replace(&sorted, &members) }
    }
}

/// Checks that no field is given twice, by itself or within a record.
fn check_paths(members: &[(String, Array)]) -> Result<()> {
    for (at, (path, _)) in members.iter().enumerate() {
        let is_within = |one: &str, other: &str| {
            one.strip_prefix(other).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        };
        let mut before = members[..at].iter();
        let twice = before.find(|(one, _)| is_within(one, path) || is_within(path, one));
        if let Some((other, _)) = twice {
            return Err(Error::invalid(format!("field {path:?} given twice: also as {other:?}")));
        }
    }
    Ok(())
}

impl ContainerWriter<'_> {
    /// The stored form of a field's values, checked against its type.
    fn stored(&mut self, path: &str, values: Array) -> Result<Array> {
        let what = self.what();
        let of = self.container.class.field_type(path).cloned().ok_or_else(|| {
            let fields = &self.container.class.fields;
            let names: Vec<&str> = fields.iter().map(|field| field.name.as_str()).collect();
            let names = names.join(", ");
            Error::NotFound { what: format!("{what} has no field {path:?}; it has {names}") }
        })?;
        let values = if of.needs_translation() {
            self.translated(|_, by| translate::values(&of, values, by))?
        } else {
            values
        };
        let checked = values.validate(&of.storage_type());
        checked.map_err(|error| match error {
            rntuple::Error::Invalid { what: why } => {
                Error::invalid(format!("{what}, field {path:?}: {why}"))
            }
            other => Error::storage(what)(other),
        })?;
        Ok(values)
    }

    /// Replaces stored values; `entries` ascend.
    fn replace(&mut self, entries: &[u64], members: &[(String, Array)]) -> Result<()> {
        let what = self.what();
        let extents = &mut self.database.extents;
        let source = extents.file().clone();
        let appender = &mut self.container.appender;
        if entries.last().is_some_and(|last| *last >= appender.finished_entries()) {
            let finished = appender.end_cluster(extents);
            finished.map_err(Error::storage(&what))?;
        }
        for (at, (path, values)) in members.iter().enumerate() {
            self.container.indexing.update(&self.container.annex.indexes, path, entries);
            // The appender reads earlier replacements back from the file.
            let flushed = extents.flush();
            let replaced = flushed.and_then(|()| {
                let replaced = appender.replace(extents, &source, path, entries, values);
                replaced.map_err(Error::storage(&what))
            });
            self.container.is_half_changed |= replaced.is_err() && at > 0;
            if replaced.is_ok() {
                self.container.written = None;
                self.container.is_changed = true;
            }
            replaced?;
        }
        Ok(())
    }
}
