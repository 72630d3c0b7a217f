//! [`plan`]: how each field of an RNTuple changes when its type changes, decided by types alone, before
//! anything is read or written.
//!
//! Invariants:
//! 1. A plan can be carried out on all data of the old type.
//! 2. Values that a plan keeps are kept exactly: none is rounded or truncated.

use super::widening::{self, Widening};
use crate::error::{Error, Result};
use crate::schema::Schema;
use crate::type_map::{Encoding, type_name};
use crate::types::Type;
use crate::value::Value;

/// A member of the new type of an RNTuple, or of a record in it.
#[derive(Clone, Debug, PartialEq)]
pub struct NewMember {
    /// Its name.
    pub name: String,
    /// Its type, with all nested types.
    pub of: Type,
    /// The origin of its values.
    pub from: ValueOrigin,
    /// For a record, or the records in a list, an array or an optional value: the origins of their members.
    /// A member without an entry here keeps the values of the old member of its name, or is zero if there
    /// is none.
    pub members: Vec<NewMember>,
    /// Whether the old value is wrapped in a list or taken out of one.
    pub nesting: Nesting,
}

/// Whether an old value becomes the item of a new list or optional value, or the reverse.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Nesting {
    /// Determined by the types: a list becomes a list, item by item.
    #[default]
    ByType,
    /// The old value, even a list, becomes the only item of the new list or optional value.
    Wrapped,
    /// The only item of the old list or optional value becomes the new value; for conversions only.
    Unwrapped,
}

/// The origin of the values of a [`NewMember`].
#[derive(Clone, Debug, PartialEq)]
pub enum ValueOrigin {
    /// The member at this path in the old record; dots separate members of records, as in `vertex.x`.
    Same(String),
    /// This value for all old entries; `None` is zero, empty or absent, according to the type.
    Default(Option<Value>),
}

impl NewMember {
    /// A member that keeps its name and its values.
    pub fn same(name: &str, of: Type) -> Self {
        Self::was(name, of, name)
    }

    /// A renamed member, which was called `old`.
    pub fn was(name: &str, of: Type, old: &str) -> Self {
        let from = ValueOrigin::Same(old.to_owned());
        NewMember { name: name.to_owned(), of, from, members: vec![], nesting: Nesting::ByType }
    }

    /// An added member; the default `None` is zero, empty or absent.
    pub fn added(name: &str, of: Type, default: Option<Value>) -> Self {
        NewMember { from: ValueOrigin::Default(default), ..Self::same(name, of) }
    }

    /// Sets the origins of the nested members.
    #[must_use]
    pub fn with(mut self, members: Vec<NewMember>) -> Self {
        self.members = members;
        self
    }

    /// Sets whether the old value is wrapped or unwrapped.
    #[must_use]
    pub fn nested(mut self, nesting: Nesting) -> Self {
        self.nesting = nesting;
        self
    }
}

/// The changes that make an RNTuple of one type one of another.
#[derive(Clone, Debug, PartialEq)]
pub struct EvolutionPlan {
    pub(super) members: Vec<(String, Type)>,
    pub(super) maps: Vec<MemberMap>,
    changes: Vec<FieldChange>,
}

/// The change of one field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldChange {
    /// Path of the field in the new type, or in the old one if it is removed.
    pub path: String,
    /// The kind of the change.
    pub kind: ChangeKind,
}

/// The kinds of a [`FieldChange`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChangeKind {
    /// The field is new.
    Added,
    /// The field is left out.
    Removed,
    /// The field had this path before.
    Renamed(String),
    /// Its numbers have a wider type; old pages are shared.
    Widened,
    /// Its numbers have a wider type; old pages are rewritten.
    Converted,
    /// Single values become collections.
    Wrapped,
    /// Its values have a type that does not fit all old values; only a [`Conversion`] does that.
    ///
    /// [`Conversion`]: crate::Conversion
    Narrowed,
}

/// The mapping of a member of a record.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct MemberMap {
    pub name: String,
    /// Positions of the old member and of the records around it, from the outermost on.
    pub source: Vec<usize>,
    pub map: Map,
}

/// The mapping of values of one type to values of another.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Map {
    /// Values are the same.
    Keep,
    /// All values are this one; there is no old value.
    Default(Value),
    /// Numbers have a wider type.
    Widen(Widening),
    /// Items of lists or arrays are mapped.
    Items(Box<Map>),
    /// Members of records are mapped.
    Members(Vec<MemberMap>),
    /// Alternatives of variants are mapped; the last ones may be new.
    Alternatives(Vec<Map>),
    /// Each value becomes a list of one item.
    Wrap(Box<Map>),
    /// Arrays become lists.
    Loosen(Box<Map>),
    /// Numbers have a type that may not fit them. This mapping and those below are for conversions only.
    Number,
    /// Lists of exactly one item become that item.
    Unwrap(Box<Map>),
    /// Lists of at most one item become optional values.
    AtMostOne(Box<Map>),
    /// Lists of as many items as the array has become arrays.
    Fix(Box<Map>),
}

/// Plans the change of an RNTuple of type `old`, a record, to exactly these members.
///
/// # Errors
/// [`Error::Invalid`] with the field, both types and the reason, if values cannot be kept, an origin does
/// not exist, or the new type cannot be stored.
pub fn plan(old: &Type, members: &[NewMember]) -> Result<EvolutionPlan> {
    plan_with(old, members, false)
}

/// Like [`plan`]; if `narrows`, the plan may have mappings that fit only some values.
pub(super) fn plan_with(old: &Type, members: &[NewMember], narrows: bool) -> Result<EvolutionPlan> {
    let types: Vec<_> = members.iter().map(|m| (m.name.clone(), m.of.clone())).collect();
    Schema::new(&types, Encoding::Plain)?;
    let Type::Record { members: old, .. } = old else {
        return Err(Error::invalid("the entries of an RNTuple are records"));
    };
    let mut planner = Planner { path: vec![], old_path: vec![], changes: vec![], narrows };
    let maps = planner.members(old, &types, members)?;
    Ok(EvolutionPlan { members: types, maps, changes: planner.changes })
}

impl EvolutionPlan {
    /// The changes of fields; unchanged fields are not listed.
    pub fn changes(&self) -> &[FieldChange] {
        &self.changes
    }

    /// The new members and their types.
    pub fn members(&self) -> &[(String, Type)] {
        &self.members
    }
}

struct Planner {
    /// Names of the new and of the old members on the way to the current member.
    path: Vec<String>,
    old_path: Vec<String>,
    changes: Vec<FieldChange>,
    narrows: bool,
}

impl Planner {
    fn members(
        &mut self,
        old: &[(String, Type)],
        new: &[(String, Type)],
        rules: &[NewMember],
    ) -> Result<Vec<MemberMap>> {
        let mut used = vec![];
        let mut maps = Vec::with_capacity(new.len());
        for (name, of) in new {
            self.path.push(name.clone());
            let rule = rules.iter().find(|rule| rule.name == *name);
            if rule.is_some_and(|rule| rule.of != *of) {
                return Err(self.invalid("its type differs from the one in the record around it"));
            }
            let map = self.member(old, name, of, rule)?;
            used.extend(map.source.first().copied());
            maps.push(map);
            self.path.pop();
        }
        if let Some(unknown) = rules.iter().find(|rule| new.iter().all(|(n, _)| *n != rule.name)) {
            self.path.push(unknown.name.clone());
            return Err(self.invalid("the record has no such member"));
        }
        for (position, (name, _)) in old.iter().enumerate() {
            if !used.contains(&position) {
                let path = joined(&self.old_path, name);
                self.changes.push(FieldChange { path, kind: ChangeKind::Removed });
            }
        }
        Ok(maps)
    }

    fn member(
        &mut self,
        old: &[(String, Type)],
        name: &str,
        of: &Type,
        rule: Option<&NewMember>,
    ) -> Result<MemberMap> {
        let from = match rule.map(|rule| &rule.from) {
            Some(ValueOrigin::Same(path)) => path.as_str(),
            Some(ValueOrigin::Default(value)) => return self.added(name, of, value.as_ref()),
            None if old.iter().any(|(other, _)| other == name) => name,
            None => return self.added(name, of, None),
        };
        let Some((source, found)) = find(old, from) else {
            let known: Vec<_> = old.iter().map(|(name, _)| name.as_str()).collect();
            let reason =
                format!("old field {from:?} does not exist; there is {}", known.join(", "));
            return Err(self.invalid(&reason));
        };
        if from != name {
            let kind = ChangeKind::Renamed(joined(&self.old_path, from));
            self.note(kind);
        }
        self.old_path.push(from.to_owned());
        let rules: &[NewMember] = rule.map_or(&[], |rule| &rule.members);
        let map = match (rule.map_or(Nesting::ByType, |rule| rule.nesting), found, of) {
            (Nesting::Wrapped, _, Type::List(item) | Type::Optional(item)) => {
                self.note(ChangeKind::Wrapped);
                Map::Wrap(self.map(found, item, rules)?.into())
            }
            (Nesting::Unwrapped, Type::List(item) | Type::Optional(item), _) if self.narrows => {
                self.note(ChangeKind::Narrowed);
                Map::Unwrap(self.map(item, of, rules)?.into())
            }
            _ => self.map(found, of, rules)?,
        };
        self.old_path.pop();
        Ok(MemberMap { name: name.to_owned(), source, map })
    }

    fn added(&mut self, name: &str, of: &Type, value: Option<&Value>) -> Result<MemberMap> {
        let value = match value {
            Some(value) => value.clone(),
            None => Value::zero(of).map_err(|error| self.invalid(&error.to_string()))?,
        };
        if let Err(error) = value.check(of) {
            return Err(self.invalid(&format!("its default does not fit: {error}")));
        }
        self.note(ChangeKind::Added);
        Ok(MemberMap { name: name.to_owned(), source: vec![], map: Map::Default(value) })
    }

    fn map(&mut self, old: &Type, new: &Type, rules: &[NewMember]) -> Result<Map> {
        if old == new && rules.is_empty() {
            return Ok(Map::Keep);
        }
        let map = match (old, new) {
            (Type::Record { members: old, .. }, Type::Record { members: new, .. }) => {
                Map::Members(self.members(old, new, rules)?)
            }
            (Type::List(old) | Type::Optional(old), Type::List(new))
            | (Type::Optional(old), Type::Optional(new)) => {
                Map::Items(self.map(old, new, rules)?.into())
            }
            (Type::Array { item: old, size: before }, Type::Array { item: new, size })
                if before == size =>
            {
                Map::Items(self.map(old, new, rules)?.into())
            }
            (Type::Array { item: old, .. }, Type::List(new)) => {
                self.note(ChangeKind::Wrapped);
                Map::Loosen(self.map(old, new, rules)?.into())
            }
            (Type::Variant(old), Type::Variant(new)) if old.len() <= new.len() => {
                Map::Alternatives(self.alternatives(old, new)?)
            }
            (Type::List(_), Type::Optional(_)) | (Type::List(_) | Type::Optional(_), _)
                if self.narrows && !matches!(new, Type::List(_)) =>
            {
                self.narrowed(old, new, rules)?
            }
            (Type::List(_), Type::Optional(_)) => return Err(self.refused(old, new)),
            (_, Type::List(item) | Type::Optional(item)) => {
                self.note(ChangeKind::Wrapped);
                Map::Wrap(self.map(old, item, rules)?.into())
            }
            _ if old == new => Map::Keep,
            _ => self.number(old, new)?,
        };
        Ok(map)
    }

    fn number(&mut self, old: &Type, new: &Type) -> Result<Map> {
        let is_number = |of: &Type| matches!(of, Type::Primitive(_) | Type::Reduced(..));
        let kind = match widening::widening_of(old, new) {
            Some(Widening::Representation) => ChangeKind::Widened,
            Some(Widening::Copy) => ChangeKind::Converted,
            None if self.narrows && is_number(old) && is_number(new) => ChangeKind::Narrowed,
            None => return Err(self.refused(old, new)),
        };
        self.note(kind);
        Ok(widening::widening_of(old, new).map_or(Map::Number, Map::Widen))
    }

    /// Maps lists or optional values to a type with fewer items.
    fn narrowed(&mut self, old: &Type, new: &Type, rules: &[NewMember]) -> Result<Map> {
        let (Type::List(item) | Type::Optional(item)) = old else {
            return Err(self.refused(old, new));
        };
        self.note(ChangeKind::Narrowed);
        Ok(match new {
            Type::Optional(new) => Map::AtMostOne(self.map(item, new, rules)?.into()),
            Type::Array { item: new, .. } => Map::Fix(self.map(item, new, rules)?.into()),
            _ => Map::Unwrap(self.map(item, new, rules)?.into()),
        })
    }

    fn alternatives(&mut self, old: &[Type], new: &[Type]) -> Result<Vec<Map>> {
        new.iter()
            .enumerate()
            .map(|(position, new)| match old.get(position) {
                Some(old) => self.map(old, new, &[]),
                None => Ok(Map::Default(Value::zero(new)?)),
            })
            .collect()
    }

    fn note(&mut self, kind: ChangeKind) {
        self.changes.push(FieldChange { path: self.path.join("."), kind });
    }

    fn invalid(&self, reason: &str) -> Error {
        Error::invalid(format!("field {:?}: {reason}", self.path.join(".")))
    }

    fn refused(&self, old: &Type, new: &Type) -> Error {
        let reason = widening::reason(old, new);
        let (old, new) = (described(old), described(new));
        self.invalid(&format!("it cannot change from {old} to {new}: {reason}"))
    }
}

/// The type of the member at a path through records, and the positions of the members on the way.
fn find<'t>(members: &'t [(String, Type)], path: &str) -> Option<(Vec<usize>, &'t Type)> {
    let direct = members.iter().position(|(name, _)| name == path);
    if let Some(position) = direct {
        return Some((vec![position], &members[position].1));
    }
    let (first, rest) = path.split_once('.')?;
    let position = members.iter().position(|(name, _)| name == first)?;
    let Type::Record { members: inner, .. } = &members[position].1 else { return None };
    let (mut positions, found) = find(inner, rest)?;
    positions.insert(0, position);
    Some((positions, found))
}

fn joined(path: &[String], name: &str) -> String {
    let names = path.iter().map(String::as_str).chain([name]);
    names.collect::<Vec<_>>().join(".")
}

/// The name of a type in messages.
pub(super) fn described(of: &Type) -> String {
    type_name(of).unwrap_or_else(|| of.kind_name().to_owned())
}
