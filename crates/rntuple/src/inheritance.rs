//! Inherited members: those of base classes read as members of the class that inherits them, as in C++.
//! ROOT stores a base class as a subfield `:_0`, `:_1` and so on.
//!
//! Invariants:
//! 1. Members keep the order of their columns; those of a base class stand in its place.
//! 2. Names in memory take at most [`PREFIX_BYTES_MAX`] bytes more than names in the file.
//!
//! Source: RNTuple Binary Format Specification 1.0, "User-defined classes".

use std::collections::HashMap;

/// Most bytes of base class names that are put before names of members, in a whole schema.
pub const PREFIX_BYTES_MAX: usize = 16 << 20;

/// A member of a record, or of one of its base classes.
#[derive(Clone, Debug)]
pub struct InheritedMember<'a, T> {
    /// The name of the base class; `None` if the member is the record's own.
    pub base: Option<&'a str>,
    /// The member's name, unique in its class.
    pub name: String,
    /// The member.
    pub member: T,
}

/// Whether a subfield of this name represents a base class.
pub fn is_base_class(name: &str) -> bool {
    let number = name.strip_prefix(":_").unwrap_or_default();
    !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())
}

/// The members of a record with unique names: an inherited member whose name another member has too is
/// qualified by its base class, such as `Base::x`. `None` if that takes more than `prefix_bytes_left`
/// bytes, the rest of [`PREFIX_BYTES_MAX`].
pub fn with_unique_names<T>(
    members: Vec<InheritedMember<'_, T>>,
    prefix_bytes_left: &mut usize,
) -> Option<Vec<(String, T)>> {
    /// A second round resolves qualified names that equal those of other members.
    const ROUNDS: usize = 2;
    let mut members = members;
    for _ in 0..ROUNDS {
        let mut counts: HashMap<&str, usize> = HashMap::new();
        members.iter().for_each(|it| *counts.entry(&it.name).or_default() += 1);
        let shared: Vec<bool> = members.iter().map(|it| counts[it.name.as_str()] > 1).collect();
        for (it, _) in members.iter_mut().zip(shared).filter(|(_, is_shared)| *is_shared) {
            let Some(base) = it.base.take() else { continue };
            *prefix_bytes_left = prefix_bytes_left.checked_sub(base.len())?;
            it.name = format!("{base}::{}", it.name);
        }
    }
    Some(members.into_iter().map(|it| (it.name, it.member)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(members: &[(&str, &str)], mut left: usize) -> Option<Vec<String>> {
        let members = members.iter().map(|(base, name)| InheritedMember {
            base: Some(*base).filter(|base| !base.is_empty()),
            name: (*name).to_owned(),
            member: (),
        });
        Some(with_unique_names(members.collect(), &mut left)?.into_iter().map(|it| it.0).collect())
    }

    fn named(members: &[(&str, &str)]) -> Vec<String> {
        names(members, PREFIX_BYTES_MAX).unwrap()
    }

    #[test]
    fn members_of_base_classes_keep_their_names() {
        assert_eq!(named(&[("A", "x"), ("A", "y"), ("", "z")]), ["x", "y", "z"]);
    }

    #[test]
    fn a_hidden_member_is_qualified_by_its_class() {
        assert_eq!(named(&[("A", "x"), ("", "x")]), ["A::x", "x"]);
        assert_eq!(named(&[("A", "Z::x"), ("A", "x"), ("", "x")]), ["Z::x", "A::x", "x"]);
    }

    #[test]
    fn members_inherited_twice_are_qualified_by_both_classes() {
        assert_eq!(named(&[("B", "x"), ("C", "x")]), ["B::x", "C::x"]);
        let twice = named(&[("A", "x"), ("B", "A::x"), ("B", "x"), ("", "x")]);
        assert_eq!(twice, ["A::x", "B::A::x", "B::x", "x"]);
    }

    #[test]
    fn qualified_names_beyond_the_limit_are_refused() {
        let members = [("Base", "x"), ("Base", "y"), ("", "x"), ("", "y")];
        assert!(names(&members, 8).is_some());
        assert_eq!(names(&members, 7), None);
    }

    #[test]
    fn only_numbered_fields_are_base_classes() {
        let are = [":_0", ":_12", ":_", "_0", ":_x", "x", ""].map(is_base_class);
        assert_eq!(are, [true, true, false, false, false, false, false]);
    }
}
