//! Names of classes that come from other federations and from files of others.
//!
//! Two federations may each have a class `Events`, with other fields. A federation that has the one and
//! takes the other in calls that `Events@dimuon`: by its plain name and its *origin*, the database that
//! brought it. The file keeps what it has; the catalogue says of which class its containers are here.
//! docs/format.md has the rule under "Names of classes".
//!
//! Invariants:
//! 1. A class that the federation has never changes: what is taken in is of a class with the same fields,
//!    or gets a name and a version that were free.
//! 2. A file that goes on to another federation is named anew there: an origin says nothing elsewhere.

use femtobarn_catalog::ClassRow;

use crate::class::Class;
use crate::error::Result;

/// Stands between the plain name of a class and its origin.
const ORIGIN: char = '@';

/// The name of a class without its origin.
pub(crate) fn plain(name: &str) -> &str {
    name.split_once(ORIGIN).map_or(name, |(plain, _)| plain)
}

/// Those of the registered classes that have the plain name of one of the others.
///
/// # Errors
/// [`Error::Invalid`](crate::Error::Invalid) for a definition that cannot be read.
pub(crate) fn namesakes<'a>(
    known: Vec<ClassRow>,
    of: impl Iterator<Item = &'a Class> + Clone,
) -> Result<Vec<Class>> {
    let is_one = |row: &ClassRow| of.clone().any(|class| plain(&class.name) == plain(&row.name));
    let rows = known.into_iter().filter(is_one);
    rows.map(|row| Class::from_json(&row.definition)).collect()
}

/// The class of the federation that a class from elsewhere is: one with the same fields, or a new one.
/// A version that the federation does not have is taken to be one of its own class of that name, unless the
/// class was made from a foreign file, which knows of no versions.
pub(crate) fn in_federation(
    class: &Class,
    namesakes: &[Class],
    database: &str,
    is_foreign: bool,
) -> Class {
    if let Some(same) = with_same_fields(class, namesakes) {
        return same.clone();
    }
    let plain = plain(&class.name);
    let is_free = |name: &String| {
        let mut known = namesakes.iter().filter(|known| known.name == *name);
        !known.any(|known| is_foreign || known.version == class.version)
    };
    let with_origin = format!("{plain}{ORIGIN}{database}");
    let numbered = (2_u64..).map(|number| format!("{with_origin}-{number}"));
    let mut names = [plain.to_owned(), with_origin.clone()].into_iter().chain(numbered);
    let name = names.find(is_free).expect("numbers do not run out");
    Class { name, ..class.clone() }
}

/// The class that has the same fields and, but for its origin, the same name; best that of the same version
/// and name.
pub(crate) fn with_same_fields<'a>(class: &Class, known: &'a [Class]) -> Option<&'a Class> {
    let is_same = |it: &&Class| plain(&it.name) == plain(&class.name) && it.fields == class.fields;
    known.iter().filter(is_same).max_by_key(|it| {
        let has_origin = it.name.contains(ORIGIN);
        (it.version == class.version, it.name == class.name, !has_origin, it.version)
    })
}

impl Class {
    /// Whether a program that calls a class `name` may mean this one: by its name, or by its name without
    /// the origin that it has in this federation.
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

    fn named(class: &Class, known: &[Class], is_foreign: bool) -> (String, u32) {
        let found = in_federation(class, known, "dimuon", is_foreign);
        assert_eq!(found.fields, class.fields);
        (found.name, found.version)
    }

    #[test]
    fn a_class_keeps_its_name_and_version_where_they_are_free() {
        let known = [class("Events", 1, "x")];
        assert_eq!(named(&class("Raw", 3, "x"), &known, false), ("Raw".into(), 3));
        assert_eq!(named(&class("Events", 2, "y"), &known, false), ("Events".into(), 2));
        assert_eq!(named(&class("Raw", 1, "x"), &known, true), ("Raw".into(), 1));
    }

    #[test]
    fn a_class_with_the_same_fields_is_the_same_whatever_it_is_called_elsewhere() {
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

    /// Made from a file of others it was once another version of the class that the federation had, whose
    /// next version was then that of another class.
    #[test]
    fn a_class_of_a_foreign_file_is_no_version_of_one_that_is_there() {
        let known = [class("Events", 2, "x")];
        assert_eq!(named(&class("Events", 1, "y"), &known, true), ("Events@dimuon".into(), 1));
    }

    #[test]
    fn a_program_may_leave_the_origin_out() {
        let of = |name: &str| class("Events@dimuon", 1, "x").is_called(name);
        assert_eq!(
            ["Events", "Events@dimuon", "Events@dy", "Event"].map(of),
            [true, true, false, false]
        );
        assert!(!class("Events", 1, "x").is_called("Events@dimuon"));
    }
}
