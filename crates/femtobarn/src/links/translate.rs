//! Translation of links and optional records between their stored form and the one that users see.
//!
//! In a stored link, `database` is a position in the container's list of the databases that it links to, so
//! that a file means the same in every federation. Users see the number that the database has in their
//! federation. An optional record is stored as a list of at most one item.

use femtobarn_catalog::DatabaseId;
use rntuple::{Array, Primitive, Value, bytes_of, values_of};
use uuid::Uuid;

use crate::error::{Error, Result};
use crate::schema::class::{Class, Field};
use crate::schema::field_type::FieldType;

/// Translates the `database` of links one way or the other.
pub(crate) trait Translate {
    /// The other form of a link's database. `container` is 0 for a null link.
    fn translate(&mut self, database: u32, container: u32) -> Result<u32>;

    /// Translates the databases of many links: each direction has its own loop, without a call for each link.
    fn translate_all(&mut self, databases: &[u32], containers: &[u32]) -> Result<Vec<u32>> {
        let mut translated = Vec::with_capacity(databases.len());
        for (&database, &container) in databases.iter().zip(containers) {
            translated.push(self.translate(database, container)?);
        }
        Ok(translated)
    }

    /// The error for an array that does not fit its class.
    fn refuse(&self, what: &str) -> Error;
}

/// From stored positions to the numbers of this federation. A database that is not in the federation becomes 0.
pub(crate) struct ToFederation<'a>(pub &'a [u32]);

impl Translate for ToFederation<'_> {
    fn translate(&mut self, position: u32, container: u32) -> Result<u32> {
        match (container, self.0.get(position as usize)) {
            (0, _) => Ok(0),
            (_, Some(&database)) => Ok(database),
            (_, None) => Err(Error::Corrupt {
                what: format!(
                    "a link has database position {position}, but its container links to {} databases",
                    self.0.len()
                ),
            }),
        }
    }

    fn refuse(&self, what: &str) -> Error {
        Error::Corrupt { what: what.to_owned() }
    }
}

/// From the numbers of this federation to positions in a list, to which new databases are added.
pub(crate) struct ToStored<'a, F: FnMut(DatabaseId) -> Result<Uuid>> {
    /// The container's own database.
    pub own: Uuid,
    /// The databases from position 1 on.
    pub targets: &'a mut Vec<Uuid>,
    /// Looks up a database's UUID.
    pub identity: F,
    /// The last database and its position, since consecutive links often go to one database.
    pub last: Option<(u32, u32)>,
}

impl<F: FnMut(DatabaseId) -> Result<Uuid>> Translate for ToStored<'_, F> {
    fn translate(&mut self, database: u32, container: u32) -> Result<u32> {
        if container == 0 {
            return Ok(0);
        }
        if let Some((known, position)) = self.last
            && known == database
        {
            return Ok(position);
        }
        let uuid = (self.identity)(DatabaseId(database))?;
        let position = match self.targets.iter().position(|target| *target == uuid) {
            _ if uuid == self.own => 0,
            Some(position) => position as u32 + 1,
            None => {
                self.targets.push(uuid);
                self.targets.len() as u32
            }
        };
        self.last = Some((database, position));
        Ok(position)
    }

    fn refuse(&self, what: &str) -> Error {
        Error::invalid(what)
    }
}

/// Translates an array of objects of a class. Fields that the array lacks are left out.
pub(crate) fn array(class: &Class, objects: Array, by: &mut dyn Translate) -> Result<Array> {
    members(&class.fields, objects, by)
}

/// Translates values of one type.
pub(crate) fn values(of: &FieldType, values: Array, by: &mut dyn Translate) -> Result<Array> {
    one(of, values, by)
}

fn members(fields: &[Field], records: Array, by: &mut dyn Translate) -> Result<Array> {
    let Array::Record { length, mut members } = records else { return Ok(records) };
    for (name, array) in &mut members {
        let field = fields.iter().find(|field| field.name == *name);
        if let Some(field) = field.filter(|field| field.of.needs_translation()) {
            let untranslated =
                std::mem::replace(array, Array::Record { length: 0, members: vec![] });
            *array = one(&field.of, untranslated, by)?;
        }
    }
    Ok(Array::Record { length, members })
}

fn one(of: &FieldType, array: Array, by: &mut dyn Translate) -> Result<Array> {
    Ok(match (of, array) {
        (FieldType::Link(_) | FieldType::ElementLink(_), links) => link(links, by)?,
        (FieldType::Optional(item), Array::List { offsets, content, .. }) => {
            let ends = values_of::<i64>(&offsets).map_err(Error::storage("optional values"))?;
            if ends.windows(2).any(|pair| pair[0].checked_add(1).is_some_and(|one| pair[1] > one)) {
                return Err(by.refuse("an optional value has several items"));
            }
            Array::List { offsets, content: one(item, *content, by)?.into(), optional: true }
        }
        (FieldType::List(item), Array::List { offsets, content, optional }) => {
            Array::List { offsets, content: one(item, *content, by)?.into(), optional }
        }
        (FieldType::Array { of, .. }, Array::Fixed { size, length, content }) => {
            Array::Fixed { size, length, content: one(of, *content, by)?.into() }
        }
        (FieldType::Record { fields, .. }, records) => members(fields, records, by)?,
        (FieldType::Variant(alternatives), Array::Variant { tags, positions, contents }) => {
            let contents = alternatives.iter().zip(contents);
            let contents = contents.map(|(of, content)| one(of, content, by));
            Array::Variant { tags, positions, contents: contents.collect::<Result<_>>()? }
        }
        (_, other) => other,
    })
}

fn link(links: Array, by: &mut dyn Translate) -> Result<Array> {
    let translated = match (links.member("database"), links.member("container")) {
        (
            Some(Array::Primitive { primitive: Primitive::UInt32, values: databases }),
            Some(Array::Primitive { primitive: Primitive::UInt32, values: containers }),
        ) => {
            let databases = values_of::<u32>(databases).map_err(Error::storage("links"))?;
            let containers = values_of::<u32>(containers).map_err(Error::storage("links"))?;
            let values = bytes_of(by.translate_all(databases, containers)?);
            Array::Primitive { primitive: Primitive::UInt32, values }
        }
        // Only a part of a link, such as its entry, or an array that validation will refuse.
        _ => return Ok(links),
    };
    let Array::Record { length, mut members } = links else { return Ok(links) };
    for (name, array) in &mut members {
        if name == "database" {
            *array = translated.clone();
        }
    }
    Ok(Array::Record { length, members })
}

/// Translates one object to its stored form.
pub(crate) fn value_to_store(
    class: &Class,
    object: Value,
    by: &mut dyn Translate,
) -> Result<Value> {
    value_members(&class.fields, object, by)
}

/// Translates the default value of a field, which cannot be a link to an object.
pub(crate) fn default_to_store(field: &Field, value: Value) -> Result<Value> {
    struct OnlyNull<'a>(&'a str);
    impl Translate for OnlyNull<'_> {
        fn translate(&mut self, _: u32, container: u32) -> Result<u32> {
            match container {
                0 => Ok(0),
                _ => Err(self.refuse("a default cannot be a link to an object")),
            }
        }

        fn refuse(&self, what: &str) -> Error {
            Error::invalid(format!("field {:?}: {what}", self.0))
        }
    }
    value_one(&field.of, value, &mut OnlyNull(&field.name))
}

fn value_members(fields: &[Field], record: Value, by: &mut dyn Translate) -> Result<Value> {
    let Value::Record(members) = record else { return Ok(record) };
    let translate = |(name, value): (String, Value)| {
        let field = fields.iter().find(|field| field.name == name);
        let value = match field.filter(|field| field.of.needs_translation()) {
            Some(field) => value_one(&field.of, value, by)?,
            None => value,
        };
        Ok((name, value))
    };
    Ok(Value::Record(members.into_iter().map(translate).collect::<Result<_>>()?))
}

fn value_one(of: &FieldType, value: Value, by: &mut dyn Translate) -> Result<Value> {
    let stored_as_list = matches!(of.storage_type(), rntuple::Type::List(_));
    match (of, value) {
        (FieldType::Link(_) | FieldType::ElementLink(_), link) => value_link(of, link, by),
        (FieldType::Optional(_), Value::Null) if stored_as_list => Ok(Value::List(vec![])),
        (FieldType::Optional(_), Value::Null) => Ok(Value::Null),
        (FieldType::Optional(item), some) if stored_as_list => {
            Ok(Value::List(vec![value_one(item, some, by)?]))
        }
        (FieldType::Optional(item), some) => value_one(item, some, by),
        (FieldType::List(item) | FieldType::Array { of: item, .. }, Value::List(items)) => {
            let items = items.into_iter().map(|value| value_one(item, value, by));
            Ok(Value::List(items.collect::<Result<_>>()?))
        }
        (FieldType::Record { fields, .. }, record) => value_members(fields, record, by),
        (FieldType::Variant(alternatives), Value::Variant(chosen, value)) => {
            match alternatives.get(chosen) {
                Some(of) => Ok(Value::Variant(chosen, value_one(of, *value, by)?.into())),
                None => Ok(Value::Variant(chosen, value)),
            }
        }
        (_, other) => Ok(other),
    }
}

/// A link in its stored form. A missing value is the null link.
fn value_link(of: &FieldType, link: Value, by: &mut dyn Translate) -> Result<Value> {
    let is_element = matches!(of, FieldType::ElementLink(_));
    let names = &["database", "container", "entry", "element"][..if is_element { 4 } else { 3 }];
    let mut numbers = [0_u64; 4];
    if link != Value::Null {
        let count = match &link {
            Value::Record(members) => members.len(),
            _ => 0,
        };
        for (number, name) in numbers.iter_mut().zip(names) {
            let member = link.member(name).filter(|_| count == names.len());
            let member = member.and_then(Value::as_integer).map(u64::try_from);
            let Some(Ok(member)) = member else {
                let names = names.join(", ");
                return Err(Error::invalid(format!(
                    "invalid link {link:?}: must be a record of {names}"
                )));
            };
            *number = member;
        }
    }
    let [database, container, entry, element] = numbers;
    let fits = |number: u64| {
        u32::try_from(number).map_err(|_| {
            Error::invalid(format!(
                "invalid database or container {number} of a link: must be less than 2^32"
            ))
        })
    };
    let container = fits(container)?;
    let database = by.translate(fits(database)?, container)?;
    let stored = [u64::from(database), u64::from(container), entry, element];
    let member = |(name, number): (&&str, u64)| ((*name).to_owned(), Value::UInt(number));
    Ok(Value::Record(names.iter().zip(stored).map(member).collect()))
}
