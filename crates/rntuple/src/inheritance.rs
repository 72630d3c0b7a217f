//! Members of base classes, shown as members of the class that inherits them.
//!
//! ROOT stores a base class as a subfield `:_0`, `:_1` and so on (specification, "User-defined
//! classes"). C++ and ROOT know its members as the class's own, so that is how they are read.
//!
//! **Invariant:** members keep the order of their columns; those of a base class come where it stands.

use std::collections::HashMap;

/// A member of a record, and the base classes that it comes from.
#[derive(Clone, Debug)]
pub struct Inherited<T> {
    /// Names of the base classes on the way to the member, from the record downwards; none if it is
    /// the record's own.
    pub bases: Vec<String>,
    /// The member's name.
    pub name: String,
    /// The member.
    pub member: T,
}

/// Whether a subfield of this name stands for a base class.
pub fn is_base_class(name: &str) -> bool {
    let number = name.strip_prefix(":_").unwrap_or_default();
    !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())
}

/// The members of a record with names of their own: an inherited one whose name another member has, too,
/// gets the names of its base classes in front, such as `Base::x`, as many as it takes.
pub fn told_apart<T>(members: Vec<Inherited<T>>) -> Vec<(String, T)> {
    let mut names: Vec<String> = members.iter().map(|it| it.name.clone()).collect();
    let most = members.iter().map(|it| it.bases.len()).max().unwrap_or(0);
    for prefixes in 1..=most {
        let mut counts: HashMap<&str, usize> = HashMap::new();
        names.iter().for_each(|name| *counts.entry(name).or_default() += 1);
        let shared: Vec<bool> = names.iter().map(|name| counts[name.as_str()] > 1).collect();
        for ((name, it), _) in names.iter_mut().zip(&members).zip(shared).filter(|it| it.1) {
            let bases = &it.bases[..prefixes.min(it.bases.len())];
            *name =
                bases.iter().chain([&it.name]).map(String::as_str).collect::<Vec<_>>().join("::");
        }
    }
    names.into_iter().zip(members).map(|(name, it)| (name, it.member)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(members: &[(&[&str], &str)]) -> Vec<String> {
        let inherited = |(bases, name): &(&[&str], &str)| Inherited {
            bases: bases.iter().map(|base| (*base).to_owned()).collect(),
            name: (*name).to_owned(),
            member: (),
        };
        told_apart(members.iter().map(inherited).collect()).into_iter().map(|it| it.0).collect()
    }

    #[test]
    fn members_of_base_classes_keep_their_names() {
        assert_eq!(names(&[(&["A"], "x"), (&["A", "B"], "y"), (&[], "z")]), ["x", "y", "z"]);
    }

    #[test]
    fn a_hidden_member_has_the_name_of_its_class_in_front() {
        assert_eq!(names(&[(&["A"], "x"), (&[], "x")]), ["A::x", "x"]);
        let through_two = names(&[(&["A", "Z"], "x"), (&["A"], "x"), (&[], "x")]);
        assert_eq!(through_two, ["A::Z::x", "A::x", "x"]);
    }

    #[test]
    fn members_inherited_twice_have_the_names_of_the_ways_in_front() {
        assert_eq!(names(&[(&["B", "A"], "x"), (&["C", "A"], "x")]), ["B::x", "C::x"]);
    }

    #[test]
    fn only_numbered_fields_are_base_classes() {
        let are = [":_0", ":_12", ":_", "_0", ":_x", "x", ""].map(is_base_class);
        assert_eq!(are, [true, true, false, false, false, false, false]);
    }
}
