//! Referrers: the objects that link to an object.

use std::collections::{BTreeSet, HashMap};

use femtobarn_catalog::Oid;
use rntuple::{Array, Primitive, Value, values_of};

use super::ENTRIES_AT_ONCE;
use crate::error::{Error, ErrorKind, Result};
use crate::read::snapshot::Snapshot;
use crate::read::view::View;
use crate::schema::class::{Class, Field};
use crate::schema::class_names::plain;
use crate::schema::field_type::FieldType;

/// An object that links to another.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Referrer {
    /// The object.
    pub object: Oid,
    /// Path of the field that holds the link.
    pub field: String,
}

/// The referrers of an object, as far as fields were searched.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Referrers {
    /// Objects that link to it, by OID.
    pub found: Vec<Referrer>,
    /// Paths of containers and of their link fields that were not searched because they have no index.
    pub unsearched: Vec<(String, String)>,
}

impl Snapshot {
    /// The objects that link to an object or to an element of it. Searches all fields of all containers that
    /// have links to its class: by an index over the field if there is one, otherwise by reading all links if
    /// `scan`.
    ///
    /// # Errors
    /// [`ErrorKind`]: `NotFound` if the object's container does not exist; `Corrupt` if stored bytes are damaged.
    pub fn referrers(&self, oid: Oid, scan: bool) -> Result<Referrers> {
        let class = self.view_by_id(oid.database, oid.container)?.container().class.clone();
        let catalog = self.federation().catalog();
        let mut linking: HashMap<String, bool> = HashMap::new();
        for row in catalog.classes()? {
            let links = !link_fields(&Class::from_json(&row.definition)?, &class).is_empty();
            *linking.entry(row.name).or_default() |= links;
        }
        let (mut found, mut unsearched) = (BTreeSet::new(), vec![]);
        for database in self.databases()? {
            let containers = self.containers(database.id)?;
            for container in containers.iter().filter(|it| linking.get(&it.class) == Some(&true)) {
                let view = match self.view_by_id(database.id, container.id) {
                    Ok(view) => view,
                    // No version of the container is committed yet.
                    Err(error) if error.kind() == ErrorKind::NotFound => continue,
                    Err(error) => return Err(error),
                };
                let fields = link_fields(view.class(), &class);
                let left = view.indexed_referrers(oid, fields, &mut found)?;
                if scan {
                    view.scanned_referrers(oid, &left, &mut found)?
                } else {
                    unsearched.extend(left.into_iter().map(|it| (view.path(), it)))
                }
            }
        }
        Ok(Referrers { found: found.into_iter().collect(), unsearched })
    }
}

impl View {
    /// Searches by indexes; returns the fields without one.
    fn indexed_referrers(
        &self,
        oid: Oid,
        fields: Vec<String>,
        found: &mut BTreeSet<Referrer>,
    ) -> Result<Vec<String>> {
        if !self.opened_version().link_databases.contains(&oid.database.0) {
            return Ok(vec![]);
        }
        let member = |name: &str, number: u64| (name.to_owned(), Value::UInt(number));
        let link = Value::Record(vec![
            member("database", oid.database.0.into()),
            member("container", oid.container.0.into()),
            member("entry", oid.entry),
        ]);
        let mut left = vec![];
        for field in fields {
            if self.index_for(&[&field])?.is_none() {
                left.push(field);
                continue;
            }
            for entry in self.find_all(&[(&field, link.clone())])? {
                found.insert(Referrer { object: self.oid(entry), field: field.clone() });
            }
        }
        Ok(left)
    }

    /// Searches by reading all links of the fields.
    fn scanned_referrers(
        &self,
        oid: Oid,
        fields: &[String],
        found: &mut BTreeSet<Referrer>,
    ) -> Result<()> {
        for field in fields {
            let selection = self.select(&[field])?;
            for first in (0..self.entries()).step_by(ENTRIES_AT_ONCE as usize) {
                let range = first..self.entries().min(first + ENTRIES_AT_ONCE);
                let entries = self.live_entries(range.clone())?;
                let objects = self.read(&selection, range)?;
                let owners: Vec<usize> = (0..objects.len()).collect();
                let mut hits = vec![];
                in_members(&self.class().fields, &objects, &owners, oid, &mut hits)?;
                let hits = hits.into_iter().filter_map(|at| entries.get(at));
                found.extend(
                    hits.map(|entry| Referrer { object: self.oid(*entry), field: field.clone() }),
                );
            }
        }
        Ok(())
    }
}

/// Paths of the fields that have links to objects of a class, in collections of any depth. Plain names are
/// compared, since a link may have been declared in a federation where its class had no origin.
fn link_fields(class: &Class, to: &str) -> Vec<String> {
    let mut found = vec![];
    collect(&class.fields, "", plain(to), &mut found);
    found
}

fn collect(fields: &[Field], prefix: &str, to: &str, found: &mut Vec<String>) {
    for field in fields {
        let path = format!("{prefix}{}", field.name);
        match field.of.item() {
            FieldType::Link(class) | FieldType::ElementLink(class) if plain(class) == to => {
                found.push(path);
            }
            FieldType::Record { fields, .. } => collect(fields, &format!("{path}."), to, found),
            // A variant is selected as a whole.
            FieldType::Variant(of) if of.iter().any(|of| holds_links(of, to)) => found.push(path),
            _ => {}
        }
    }
}

fn holds_links(of: &FieldType, to: &str) -> bool {
    match of.item() {
        FieldType::Link(class) | FieldType::ElementLink(class) => plain(class) == to,
        FieldType::Record { fields, .. } => fields.iter().any(|field| holds_links(&field.of, to)),
        FieldType::Variant(of) => of.iter().any(|of| holds_links(of, to)),
        _ => false,
    }
}

/// Appends to `hits` the owners of the links to `oid` in some records. `owners` has for each record the object
/// that it is in.
fn in_members(
    fields: &[Field],
    records: &Array,
    owners: &[usize],
    oid: Oid,
    hits: &mut Vec<usize>,
) -> Result<()> {
    for field in fields {
        if let Some(array) = records.member(&field.name) {
            in_array(&field.of, array, owners, oid, hits)?;
        }
    }
    Ok(())
}

fn in_array(
    of: &FieldType,
    array: &Array,
    owners: &[usize],
    oid: Oid,
    hits: &mut Vec<usize>,
) -> Result<()> {
    match (of, array) {
        (FieldType::Link(_) | FieldType::ElementLink(_), links) => {
            in_links(links, owners, oid, hits).ok_or_else(unlike)
        }
        (
            FieldType::List(item) | FieldType::Optional(item),
            Array::List { offsets, content, .. },
        ) => {
            let offsets = values_of::<i64>(offsets).map_err(Error::storage("links"))?;
            let first = usize::try_from(offsets.first().copied().unwrap_or(0));
            let mut of_items = vec![usize::MAX; first.map_err(|_| unlike())?];
            for (pair, owner) in offsets.windows(2).zip(owners) {
                let count = usize::try_from(pair[1] - pair[0]).map_err(|_| unlike())?;
                of_items.extend(std::iter::repeat_n(*owner, count));
            }
            in_array(item, content, &of_items, oid, hits)
        }
        (FieldType::Array { of: item, .. }, Array::Fixed { size, content, .. }) => {
            let size = *size as usize;
            let of_items = owners.iter().flat_map(|owner| std::iter::repeat_n(*owner, size));
            in_array(item, content, &of_items.collect::<Vec<_>>(), oid, hits)
        }
        (FieldType::Record { fields, .. }, records) => {
            in_members(fields, records, owners, oid, hits)
        }
        (FieldType::Variant(alternatives), Array::Variant { tags, positions, contents }) => {
            let tags = values_of::<i8>(tags).map_err(Error::storage("links"))?;
            let positions = values_of::<i64>(positions).map_err(Error::storage("links"))?;
            for (chosen, (of, content)) in alternatives.iter().zip(contents).enumerate() {
                let mut of_items = vec![usize::MAX; content.len()];
                for ((tag, position), owner) in tags.iter().zip(positions).zip(owners) {
                    let place = usize::try_from(*position).map_err(|_| unlike())?;
                    if usize::try_from(*tag) == Ok(chosen)
                        && let Some(item) = of_items.get_mut(place)
                    {
                        *item = *owner;
                    }
                }
                in_array(of, content, &of_items, oid, hits)?;
            }
            Ok(())
        }
        _ => Ok(()),
    }
}

fn in_links(links: &Array, owners: &[usize], oid: Oid, hits: &mut Vec<usize>) -> Option<()> {
    let numbers = |name: &str| match links.member(name)? {
        Array::Primitive { primitive: Primitive::UInt32, values } => values_of::<u32>(values).ok(),
        _ => None,
    };
    let (databases, containers) = (numbers("database")?, numbers("container")?);
    let entries = match links.member("entry")? {
        Array::Primitive { primitive: Primitive::UInt64, values } => {
            values_of::<u64>(values).ok()?
        }
        _ => return None,
    };
    for (((database, container), entry), owner) in
        databases.iter().zip(containers).zip(entries).zip(owners)
    {
        if (*database, *container, *entry) == (oid.database.0, oid.container.0, oid.entry) {
            hits.push(*owner);
        }
    }
    Some(())
}

fn unlike() -> Error {
    Error::Corrupt { what: "stored links do not fit their class; check the database".to_owned() }
}
