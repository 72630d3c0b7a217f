//! Names in this federation for classes of other federations and of foreign files.
//!
//! Two federations may each have a class `Events`, with different fields. A federation that has one and
//! attaches a file with the other names that one `Events@dimuon`: its plain name and its *origin*, the database
//! that brought it. The file stays as it is; the catalogue maps its containers to classes. Specified in
//! docs/format.md, "Names of classes".
//!
//! 1. A class of the federation never changes. An attached class has the same fields as one of them, or is a later
//!    version that keeps all fields of one, or gets an unused name.
//! 2. A file that moves on to another federation gets new names there: an origin has no meaning elsewhere.

use std::collections::HashMap;

use femtobarn_catalog::{ClassRow, NAME_BYTES_MAX};

use crate::error::Result;
use crate::schema::class::Class;

/// Separates the plain name of a class from its origin.
const ORIGIN: char = '@';

/// The name of a class without its origin.
pub(crate) fn plain(name: &str) -> &str {
    name.split_once(ORIGIN).map_or(name, |(plain, _)| plain)
}

/// The registered classes that share a plain name with one of the classes `of`.
///
/// # Errors
/// [`Error::Invalid`](crate::Error::Invalid) if a registered definition is not valid.
pub(crate) fn namesakes<'a>(
    known: Vec<ClassRow>,
    of: impl Iterator<Item = &'a Class> + Clone,
) -> Result<Vec<Class>> {
    let is_one = |row: &ClassRow| of.clone().any(|class| plain(&class.name) == plain(&row.name));
    let rows = known.into_iter().filter(is_one);
    rows.map(|row| Class::from_json(&row.definition)).collect()
}

/// Maps the classes of one file to classes of the federation, in the same order. All versions of a class get
/// one name: that of a class of the federation that has them or that they continue, or an unused one.
pub(crate) fn in_federation(
    there: &[Class],
    known: Vec<Class>,
    database: &str,
    is_foreign: bool,
) -> Vec<Class> {
    let mut known = known;
    let mut names: HashMap<&str, String> = HashMap::new();
    let mut here = vec![];
    for class in there {
        let name = names.entry(&class.name).or_insert_with(|| {
            let mut versions: Vec<&Class> =
                there.iter().filter(|it| it.name == class.name).collect();
            versions.sort_by_key(|it| it.version);
            name_in_federation(&versions, &known, database, is_foreign)
        });
        let of_name: Vec<Class> = known.iter().filter(|it| it.name == *name).cloned().collect();
        let is_taken = |it: &Class| it.version == class.version;
        let found = match with_same_fields(class, &of_name) {
            Some(same) => same.clone(),
            // Two classes of a foreign file may have the same name.
            None if of_name.iter().any(is_taken) => {
                Class { name: free_name(&class.name, database, &known), ..class.clone() }
            }
            None => Class { name: name.clone(), ..class.clone() },
        };
        if !known.contains(&found) {
            known.push(found.clone());
        }
        here.push(found);
    }
    here
}

/// The name in the federation of a class of a file, given all its versions there.
fn name_in_federation(
    versions: &[&Class],
    known: &[Class],
    database: &str,
    is_foreign: bool,
) -> String {
    let first = versions[0];
    let mut names: Vec<&str> = known.iter().map(|it| &*it.name).collect();
    names.retain(|name| plain(name) == plain(&first.name));
    let is_candidate = |name: &&str| is_continued_by(versions, known, name, is_foreign);
    let best = names.into_iter().filter(is_candidate).max_by_key(|name| {
        let is_same =
            |it: &&&Class| known.contains(&Class { name: (*name).to_owned(), ..(**it).clone() });
        (versions.iter().filter(is_same).count(), *name == first.name, !name.contains(ORIGIN))
    });
    best.map_or_else(|| free_name(&first.name, database, known), str::to_owned)
}

/// Whether the federation's class `name` has each of the versions, or is continued by it: the version's number
/// is greater, and it has all fields of the version before. If a version lacked a field, older objects would
/// lose its values in the version after. A foreign file has no versions.
fn is_continued_by(versions: &[&Class], known: &[Class], name: &str, is_foreign: bool) -> bool {
    let of_name: Vec<Class> = known.iter().filter(|it| it.name == name).cloned().collect();
    let Some(mut newest) = of_name.iter().max_by_key(|it| it.version).cloned() else {
        return false;
    };
    versions.iter().all(|version| {
        if with_same_fields(version, &of_name).is_some() {
            return true;
        }
        let next = Class { name: name.to_owned(), ..(**version).clone() };
        let is_next = !is_foreign && next.version > newest.version && next.keeps_fields(&newest);
        newest = next;
        is_next
    })
}

/// The first unused one of: the plain name, the plain name with its origin, the same with a number appended.
fn free_name(class: &str, database: &str, known: &[Class]) -> String {
    let plain = plain(class);
    let with_origin = |number: String| {
        let room = NAME_BYTES_MAX.saturating_sub(plain.len() + 1 + number.len());
        let ends = database.char_indices().map(|(at, char)| at + char.len_utf8());
        let cut = ends.take_while(|end| *end <= room).last().unwrap_or(0);
        format!("{plain}{ORIGIN}{}{number}", database[..cut].trim_end())
    };
    let numbers = (2_u64..).map(|number| format!("-{number}"));
    let with_origins = [String::new()].into_iter().chain(numbers).map(with_origin);
    let mut names = [plain.to_owned()].into_iter().chain(with_origins);
    let is_free = |name: &String| known.iter().all(|it| it.name != *name);
    names.find(is_free).expect("there are more numbers than classes")
}

/// The class with the same fields and the same plain name. Of several, one with the same version is preferred,
/// then one with the same name.
pub(crate) fn with_same_fields<'a>(class: &Class, known: &'a [Class]) -> Option<&'a Class> {
    let is_same = |it: &&Class| plain(&it.name) == plain(&class.name) && it.fields == class.fields;
    known.iter().filter(is_same).max_by_key(|it| {
        let has_origin = it.name.contains(ORIGIN);
        (it.version == class.version, it.name == class.name, !has_origin, it.version)
    })
}

impl Class {
    /// Whether `name` refers to this class: it is its name, with or without the origin.
    pub fn is_called(&self, name: &str) -> bool {
        name == self.name || name == plain(&self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn class(name: &str, version: u32, field: &str) -> Class {
        let json = format!(
            r#"{{"name": "{name}", "version": {version}, "fields": [{{"name": "{field}", "type": "int8"}}]}}"#
        );
        Class::from_json(&json).unwrap()
    }

    fn versions(name: &str, version: u32, fields: &[&str]) -> Class {
        let field = |name: &&str| format!(r#"{{"name": "{name}", "type": "int8"}}"#);
        let fields = fields.iter().map(field).collect::<Vec<_>>().join(", ");
        let json = format!(r#"{{"name": "{name}", "version": {version}, "fields": [{fields}]}}"#);
        Class::from_json(&json).unwrap()
    }

    fn all_named(classes: &[Class], known: &[Class], is_foreign: bool) -> Vec<(String, u32)> {
        let found = in_federation(classes, known.to_vec(), "dimuon", is_foreign);
        assert!(found.iter().zip(classes).all(|(here, there)| here.fields == there.fields));
        found.into_iter().map(|class| (class.name, class.version)).collect()
    }

    fn named(class: &Class, known: &[Class], is_foreign: bool) -> (String, u32) {
        all_named(std::slice::from_ref(class), known, is_foreign).remove(0)
    }

    #[test]
    fn a_class_keeps_its_name_and_version_where_the_name_is_free() {
        let known = [class("Events", 1, "x")];
        assert_eq!(named(&class("Raw", 3, "x"), &known, false), ("Raw".into(), 3));
        assert_eq!(named(&class("Raw", 1, "x"), &known, true), ("Raw".into(), 1));
    }

    #[test]
    fn a_class_with_the_same_fields_and_plain_name_is_the_same() {
        let known = [class("Events", 1, "x"), class("Events@dy", 1, "y"), class("Events", 4, "y")];
        assert_eq!(named(&class("Events", 1, "x"), &known, false), ("Events".into(), 1));
        assert_eq!(named(&class("Events@b", 1, "x"), &known, false), ("Events".into(), 1));
        assert_eq!(named(&class("Events", 1, "y"), &known, true), ("Events@dy".into(), 1));
        assert_eq!(named(&class("Events", 7, "y"), &known, false), ("Events".into(), 4));
    }

    #[test]
    fn a_class_with_other_fields_gets_its_origin() {
        let mut known = vec![class("Events", 1, "x")];
        assert_eq!(named(&class("Events", 1, "y"), &known, false), ("Events@dimuon".into(), 1));
        assert_eq!(named(&class("Events@dy", 1, "y"), &known, false), ("Events@dimuon".into(), 1));
        known.push(class("Events@dimuon", 1, "y"));
        assert_eq!(named(&class("Events", 1, "z"), &known, false), ("Events@dimuon-2".into(), 1));
    }

    /// An attached class that lacked a field was once taken as the next version of the federation's own class,
    /// and the field was zero in all objects of the version after.
    #[test]
    fn a_later_version_continues_a_class_only_if_it_keeps_its_fields() {
        let known = [
            versions("Events", 1, &["run", "event"]),
            versions("Events", 4, &["run", "event", "x"]),
        ];
        let of =
            |version, fields: &[&str]| named(&versions("Events", version, fields), &known, false);
        assert_eq!(of(5, &["run", "mass"]), ("Events@dimuon".into(), 5));
        assert_eq!(of(5, &["event", "run", "y", "x"]), ("Events".into(), 5));
        // It must not come between two versions of a class: objects of the first become those of the second.
        assert_eq!(of(2, &["run", "event", "y"]), ("Events@dimuon".into(), 2));
    }

    #[test]
    fn all_versions_of_a_class_of_one_file_have_one_name() {
        let known = [class("Events", 1, "x")];
        let file = [class("Events", 2, "z"), class("Events", 1, "y"), class("Events", 1, "x")];
        let all = |versions: [u32; 2]| versions.map(|it| ("Events@dimuon".to_owned(), it)).to_vec();
        assert_eq!(all_named(&file[..2], &known, false), all([2, 1]));
        assert_eq!(all_named(&[file[2].clone(), file[0].clone()], &known, false), all([1, 2]));
    }

    /// The class of a foreign file once became a version of one of the federation's classes, so that the next
    /// version of that class followed another class.
    #[test]
    fn a_class_of_a_foreign_file_never_continues_another_one() {
        let known = [class("Events", 2, "x")];
        assert_eq!(named(&class("Events", 1, "y"), &known, true), ("Events@dimuon".into(), 1));
        let two = [class("a_b", 1, "x"), class("a_b", 1, "y")];
        let names = [("a_b".to_owned(), 1), ("a_b@dimuon".to_owned(), 1)];
        assert_eq!(all_named(&two, &[], true), names);
    }

    #[test]
    fn a_long_origin_is_cut_to_the_length_of_names() {
        let known = [class("Events", 1, "x")];
        let database = "µ".repeat(100);
        let mut taken = known.to_vec();
        for field in ["y", "z"] {
            let found = in_federation(&[class("Events", 1, field)], taken.clone(), &database, true);
            assert!((198..=200).contains(&found[0].name.len()), "{}", found[0].name);
            taken.extend(found);
        }
        assert!(taken[2].name.ends_with("µ-2"));
    }

    #[test]
    fn a_class_is_found_with_or_without_its_origin() {
        let of = |name: &str| class("Events@dimuon", 1, "x").is_called(name);
        assert_eq!(
            ["Events", "Events@dimuon", "Events@dy", "Event"].map(of),
            [true, true, false, false]
        );
        assert!(!class("Events", 1, "x").is_called("Events@dimuon"));
    }
}
