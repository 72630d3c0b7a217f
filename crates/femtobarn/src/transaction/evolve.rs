//! Evolving a container to a newer version of its class.

use std::sync::Arc;

use rntuple::Reader;

use super::container::{needs_translation, resume};
use super::{ContainerKey, Transaction, unopened};
use crate::annex::IndexState;
use crate::error::{Error, Result};
use crate::evolve::evolution::Evolution;
use crate::read::statistics;
use crate::schema::class::Class;

impl Transaction {
    /// Evolves a container's objects to a newer version of their class: fields can be added, removed,
    /// renamed, widened and made collections. Pages are reused where the stored values stay the same; earlier
    /// snapshots see the older version. Indexes over changed fields are rebuilt. `class` may be named without
    /// the origin that the container's class has in this federation.
    ///
    /// # Errors
    /// `Invalid`, with field and reason, if the objects cannot be converted, if `class` is not a newer
    /// version of the container's, or if an index covers a removed field; `Exists` if the version has another
    /// definition; `Conflict` if the container changed since the transaction's first read; `Io` or `Full` if
    /// the file cannot be written. Then the container is unchanged.
    pub fn evolve(&mut self, key: ContainerKey, class: &Class) -> Result<()> {
        self.check_entries(key, &[])?;
        class.check()?;
        let old = self.class(key)?.clone();
        if !old.is_called(&class.name) || class.version <= old.version {
            return Err(Error::invalid(format!(
                "class {} version {} is not a newer version of class {} version {}",
                class.name, class.version, old.name, old.version
            )));
        }
        let class = &Class { name: old.name.clone(), ..class.clone() };
        let evolution = class.evolution_over(&self.versions_before(class, &old)?)?;
        let open = self.containers.get(&key).ok_or_else(unopened)?;
        let indexes = renamed_indexes(&open.annex.indexes, &evolution)?;
        self.add_class(class)?;
        let open = self.containers.get_mut(&key).ok_or_else(unopened)?;
        let database = self.databases.get_mut(&key.database).ok_or_else(unopened)?;
        let what = format!("container {}/{}", database.row.name, open.row.name);
        let written = open.write(&mut database.extents, &what)?;
        database.extents.flush()?;
        let source = database.extents.file().clone();
        let reader = Reader::from_links(Arc::new(source), &open.header, &written.footer);
        let reader = reader.map_err(Error::storage(&what))?;
        let options = open.options.write_options();
        let evolved = rntuple::evolve(&reader, &mut database.extents, &evolution.members, options);
        let evolved = evolved.map_err(Error::storage(&what))?;
        let source = database.extents.file().clone();
        let new_path = |old: &str| {
            let (path, is_changed) = evolution.new_path(old)?;
            (!is_changed).then_some(path)
        };
        let mut known = open.annex.statistics.clone();
        statistics::evolve(&mut known, &new_path, &source, &mut database.extents)?;
        database.extents.flush()?;
        open.appender = resume(source, &evolved.header, &evolved.footer, open.options, &what)?;
        open.header = evolved.header;
        open.bytes += evolved.bytes;
        open.class = Arc::new(class.clone());
        open.row.class_version = class.version;
        open.needs_translation = needs_translation(class);
        open.annex.statistics = known;
        for (index, (fields, is_changed)) in open.annex.indexes.iter_mut().zip(indexes) {
            index.fields = fields;
            if is_changed {
                open.indexing.rebuild(index);
            }
        }
        open.touch();
        Ok(())
    }

    /// The versions of a class between `old` and `class`, newest first, and `old` itself.
    fn versions_before(&self, class: &Class, old: &Class) -> Result<Vec<Class>> {
        let is_between = |version: u32| old.version < version && version < class.version;
        let mut between: Vec<Class> = self
            .new_classes
            .iter()
            .filter(|it| it.name == class.name && is_between(it.version))
            .cloned()
            .collect();
        for row in self.federation.catalog().classes()? {
            if row.name == class.name && is_between(row.version) {
                between.push(Class::from_json(&row.definition)?);
            }
        }
        between.sort_by_key(|it| std::cmp::Reverse(it.version));
        between.dedup_by_key(|it| it.version);
        between.push(old.clone());
        Ok(between)
    }
}

/// The indexed fields by their new names, and whether the keys have to be rebuilt.
fn renamed_indexes(
    indexes: &[IndexState],
    evolution: &Evolution,
) -> Result<Vec<(Vec<String>, bool)>> {
    let renamed = |index: &IndexState| {
        let mut fields = vec![];
        let mut is_changed = false;
        for field in &index.fields {
            let (path, has_changed) = evolution.new_path(field).ok_or_else(|| {
                Error::invalid(format!(
                    "index {:?} covers {field:?}, which is removed; drop the index first",
                    index.name
                ))
            })?;
            is_changed |= has_changed;
            fields.push(path);
        }
        Ok((fields, is_changed))
    };
    indexes.iter().map(renamed).collect()
}
