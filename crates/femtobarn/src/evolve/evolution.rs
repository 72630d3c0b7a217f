//! Evolution: the plan by which objects of one version of a class become those of another.
//!
//! Fields are matched by name, or by the name that they had in the version before (`was`), from one version to
//! the next, so a field that was renamed twice is still the same field. `rntuple::revise` decides how values
//! are converted; this module refuses conversions that only the class shows to be wrong.

use rntuple::{
    ChangeKind, Conversion, EvolutionPlan, FieldChange, Nesting, NewMember, Type, Value,
    ValueOrigin, plan,
};

use crate::error::{Error, Result};
use crate::links::translate;
use crate::schema::class::{Class, Field};
use crate::schema::field_type::FieldType;

/// A plan by which objects of one version of a class become those of another.
pub struct Evolution {
    pub(crate) members: Vec<NewMember>,
    pub(crate) plan: EvolutionPlan,
}

impl Evolution {
    /// The changes of fields, a sentence each; none if all values stay as they are.
    pub fn changes(&self) -> Vec<String> {
        self.plan.changes().iter().map(sentence).collect()
    }

    /// The new path of a field, and whether its values change their type; `None` if the field is dropped.
    pub(crate) fn new_path(&self, old: &str) -> Option<(String, bool)> {
        let path = new_path(&self.members, old)?;
        let is_part = |change: &str| {
            path == change || path.strip_prefix(change).is_some_and(|rest| rest.starts_with('.'))
        };
        let is_changed = |change: &&FieldChange| {
            let kind = &change.kind;
            !matches!(kind, ChangeKind::Renamed(_) | ChangeKind::Removed) && is_part(&change.path)
        };
        let is_changed = self.plan.changes().iter().find(is_changed).is_some();
        Some((path, is_changed))
    }
}

fn new_path(members: &[NewMember], old: &str) -> Option<String> {
    let (first, rest) = old.split_once('.').map_or((old, None), |(a, b)| (a, Some(b)));
    let is_same =
        |member: &&NewMember| matches!(&member.from, ValueOrigin::Same(name) if name == first);
    let member = members.iter().find(is_same)?;
    match rest {
        None => Some(member.name.clone()),
        // The parts of a link are not members of a class.
        Some(rest) if member.members.is_empty() => Some(format!("{}.{rest}", member.name)),
        Some(rest) => Some(format!("{}.{}", member.name, new_path(&member.members, rest)?)),
    }
}

fn sentence(FieldChange { path, kind }: &FieldChange) -> String {
    match kind {
        ChangeKind::Added => format!("{path} is new"),
        ChangeKind::Removed => format!("{path} is left out"),
        ChangeKind::Renamed(old) => format!("{old} is now called {path}"),
        ChangeKind::Widened | ChangeKind::Converted => format!("{path} has a wider type"),
        ChangeKind::Wrapped => format!("{path} is now a collection"),
        ChangeKind::Narrowed => format!("{path} has a narrower type"),
    }
}

impl Class {
    /// The evolution of objects of an older version to this one. Versions between the two are not considered.
    ///
    /// # Errors
    /// [`Error::Invalid`] if a field cannot be converted.
    pub fn evolution(&self, older: &Class) -> Result<Evolution> {
        self.evolution_over(std::slice::from_ref(older))
    }

    /// Like [`evolution`](Self::evolution), through all versions in `older`, the newest first.
    pub(crate) fn evolution_over(&self, older: &[Class]) -> Result<Evolution> {
        let (pairs, oldest) = self.pairs(older)?;
        check_all(&pairs, false, &mut vec![]).map_err(|reason| self.refusal(oldest, &reason))?;
        let members = forward(&pairs)?;
        self.planned(oldest, members)
    }

    /// The evolution of objects of this version to the oldest version in `older`.
    pub(crate) fn regression_over(&self, older: &[Class]) -> Result<Evolution> {
        let (pairs, oldest) = self.pairs(older)?;
        check_all(&pairs, true, &mut vec![]).map_err(|reason| oldest.refusal(self, &reason))?;
        let members = backward(&pairs, &oldest.fields)?;
        oldest.planned(self, members)
    }

    /// Like [`regression_over`](Self::regression_over), but allows conversions that some values do not survive: reading
    /// such a value fails.
    pub(crate) fn narrowing_over(&self, older: &[Class]) -> Result<Vec<NewMember>> {
        let (pairs, oldest) = self.pairs(older)?;
        check_all(&pairs, true, &mut vec![]).map_err(|reason| oldest.refusal(self, &reason))?;
        let members = backward(&pairs, &oldest.fields)?;
        let stored = Type::Record { class: String::new(), members: self.members() };
        match Conversion::new(&stored, &members) {
            Ok(_) => Ok(members),
            Err(rntuple::Error::Invalid { what }) => Err(oldest.refusal(self, &what)),
            Err(error) => Err(Error::storage(format!("class {}", self.name))(error)),
        }
    }

    /// Whether objects of an older version keep all their fields as objects of this one.
    pub(crate) fn keeps_fields(&self, older: &Class) -> bool {
        let pairs = pairs(&[&self.fields, &older.fields]);
        keeps_all(&pairs, &older.fields) && self.evolution(older).is_ok()
    }

    fn pairs<'a>(&'a self, older: &'a [Class]) -> Result<(Vec<FieldPair<'a>>, &'a Class)> {
        let oldest = older.last().unwrap_or(self);
        if older.iter().any(|class| class.name != self.name) {
            return Err(Error::invalid(format!(
                "objects of class {} cannot become objects of class {}",
                oldest.name, self.name
            )));
        }
        let chain: Vec<&[Field]> =
            [self].into_iter().chain(older).map(|it| &it.fields[..]).collect();
        Ok((pairs(&chain), oldest))
    }

    /// Plans the conversion of objects of class `from` to this one.
    fn planned(&self, from: &Class, members: Vec<NewMember>) -> Result<Evolution> {
        let stored = Type::Record { class: String::new(), members: from.members() };
        match plan(&stored, &members) {
            Ok(plan) => Ok(Evolution { members, plan }),
            Err(rntuple::Error::Invalid { what }) => Err(self.refusal(from, &what)),
            Err(error) => Err(Error::storage(format!("class {}", self.name))(error)),
        }
    }

    fn refusal(&self, from: &Class, reason: &str) -> Error {
        Error::invalid(format!(
            "objects of class {} version {} cannot become those of version {}: {reason}",
            self.name, from.version, self.version
        ))
    }
}

/// A field of the newest version, with the same field of the oldest.
struct FieldPair<'a> {
    new: &'a Field,
    old: Option<&'a Field>,
    /// The value in older objects if the oldest version lacks the field.
    default: Option<&'a serde_json::Value>,
    /// The pairs of a record's members, or of those of the records in a collection.
    inner: Vec<FieldPair<'a>>,
}

/// Matches the fields of several versions, the newest first.
fn pairs<'a>(chain: &[&'a [Field]]) -> Vec<FieldPair<'a>> {
    let Some((newest, older)) = chain.split_first() else { return vec![] };
    newest.iter().map(|field| pair(field, older)).collect()
}

fn pair<'a>(new: &'a Field, older: &[&'a [Field]]) -> FieldPair<'a> {
    let mut trail = vec![new];
    for fields in older {
        let field = trail[trail.len() - 1];
        let named = |name: &str| fields.iter().find(|other| other.name == name);
        match named(&field.was).or_else(|| named(&field.name)) {
            Some(found) => trail.push(found),
            None => break,
        }
    }
    let first = trail[trail.len() - 1];
    let is_old = trail.len() == older.len() + 1;
    let inner: Vec<&[Field]> = trail.iter().filter_map(|field| inner_fields(&field.of)).collect();
    FieldPair {
        new,
        old: is_old.then_some(first),
        default: new.default.as_ref().or(first.default.as_ref()),
        inner: if is_old && inner.len() == trail.len() { pairs(&inner) } else { vec![] },
    }
}

fn inner_fields(of: &FieldType) -> Option<&[Field]> {
    match of.item() {
        FieldType::Record { fields, .. } => Some(fields),
        _ => None,
    }
}

fn forward(pairs: &[FieldPair<'_>]) -> Result<Vec<NewMember>> {
    let member = |pair: &FieldPair<'_>| {
        let of = pair.new.of.storage_type();
        Ok(match pair.old {
            Some(old) => NewMember::was(&pair.new.name, of, &old.name)
                .with(forward(&pair.inner)?)
                .nested(nesting(&old.of, &pair.new.of)),
            None => NewMember::added(&pair.new.name, of, default(pair.new, pair.default)?),
        })
    };
    pairs.iter().map(member).collect()
}

/// Like [`forward`], from the newest version to the oldest, whose fields are `oldest`.
fn backward(pairs: &[FieldPair<'_>], oldest: &[Field]) -> Result<Vec<NewMember>> {
    let member = |field: &Field| {
        let of = field.of.storage_type();
        let is_old = |pair: &&FieldPair<'_>| pair.old.is_some_and(|old| std::ptr::eq(old, field));
        Ok(match pairs.iter().find(is_old) {
            Some(pair) => {
                let inner = if pair.inner.is_empty() {
                    vec![]
                } else {
                    backward(&pair.inner, inner_fields(&field.of).unwrap_or_default())?
                };
                NewMember::was(&field.name, of, &pair.new.name)
                    .with(inner)
                    .nested(nesting(&pair.new.of, &field.of))
            }
            None => NewMember::added(&field.name, of, default(field, field.default.as_ref())?),
        })
    };
    oldest.iter().map(member).collect()
}

/// Whether each of the older fields has a pair.
fn keeps_all(pairs: &[FieldPair<'_>], older: &[Field]) -> bool {
    older.iter().all(|field| {
        let is_old = |pair: &&FieldPair<'_>| pair.old.is_some_and(|old| std::ptr::eq(old, field));
        let inner = inner_fields(&field.of).unwrap_or_default();
        pairs.iter().find(is_old).is_some_and(|pair| keeps_all(&pair.inner, inner))
    })
}

/// Refuses conversions that the stored types alone would allow.
fn check_all<'a>(
    pairs: &[FieldPair<'a>],
    is_backward: bool,
    path: &mut Vec<&'a str>,
) -> std::result::Result<(), String> {
    for pair in pairs {
        path.push(&pair.new.name);
        if let Some(old) = pair.old {
            let checked = if is_backward {
                check_field(&pair.new.of, &old.of)
            } else {
                check_field(&old.of, &pair.new.of)
            };
            checked.map_err(|reason| format!("field {:?}: {reason}", path.join(".")))?;
        }
        check_all(&pair.inner, is_backward, path)?;
        path.pop();
    }
    Ok(())
}

fn check_field(from: &FieldType, to: &FieldType) -> std::result::Result<(), &'static str> {
    match (nesting(from, to), from.stored(), to.stored()) {
        (Nesting::Wrapped, _, FieldType::Optional(to)) => check(from, to),
        (Nesting::Unwrapped, FieldType::Optional(from), _) => check(from, to),
        _ => check(from, to),
    }
}

/// Whether a list is wrapped into an optional list or unwrapped. The stored types cannot show it, since an optional
/// list of records is stored as a list of lists.
fn nesting(from: &FieldType, to: &FieldType) -> Nesting {
    let is_list = |of: &FieldType| matches!(of.stored(), FieldType::List(_));
    match (from.stored(), to.stored()) {
        (FieldType::List(_), FieldType::Optional(to)) if is_list(to) => Nesting::Wrapped,
        (FieldType::Optional(from), FieldType::List(_)) if is_list(from) => Nesting::Unwrapped,
        _ => Nesting::ByType,
    }
}

fn check(from: &FieldType, to: &FieldType) -> std::result::Result<(), &'static str> {
    if !from.may_mean(to) {
        return Err("its values would mean something else; add a new field instead");
    }
    match (from.stored(), to.stored()) {
        (FieldType::List(_), FieldType::Optional(_)) => Err("a list may have several items"),
        (FieldType::Record { .. }, FieldType::Link(_) | FieldType::ElementLink(_))
        | (FieldType::Link(_) | FieldType::ElementLink(_), FieldType::Record { .. }) => {
            Err("a link cannot become a record, nor a record a link")
        }
        (
            FieldType::List(from) | FieldType::Optional(from) | FieldType::Array { of: from, .. },
            FieldType::List(to) | FieldType::Optional(to) | FieldType::Array { of: to, .. },
        ) => check(from, to),
        (_, FieldType::List(to) | FieldType::Optional(to)) => check(from, to),
        (FieldType::Variant(from), FieldType::Variant(to)) => {
            from.iter().zip(to).try_for_each(|(from, to)| check(from, to))
        }
        _ => Ok(()),
    }
}

/// A field's default value in its stored form.
fn default(field: &Field, json: Option<&serde_json::Value>) -> Result<Option<Value>> {
    let Some(json) = json else { return Ok(None) };
    let value = value_of(json, &field.of).ok_or_else(|| {
        Error::invalid(format!("field {:?}: the default {json} does not fit its type", field.name))
    })?;
    translate::default_to_store(field, value).map(Some)
}

/// The value of a JSON text; `None` if its structure does not fit the type. Ranges are checked later.
fn value_of(json: &serde_json::Value, of: &FieldType) -> Option<Value> {
    Some(match (json, of.stored()) {
        (serde_json::Value::Null, _) => Value::Null,
        (_, FieldType::Optional(of)) => value_of(json, of)?,
        (serde_json::Value::Bool(truth), _) => Value::Bool(*truth),
        (serde_json::Value::Number(number), _) => match (number.as_u64(), number.as_i64()) {
            (Some(number), _) => Value::UInt(number),
            (_, Some(number)) => Value::Int(number),
            _ => Value::Float(number.as_f64()?),
        },
        (serde_json::Value::String(text), _) => Value::String(text.clone()),
        (serde_json::Value::Array(items), of) => {
            let of = match of {
                FieldType::List(of) | FieldType::Array { of, .. } => of,
                FieldType::Bitset(_) => &FieldType::Bool,
                _ => return None,
            };
            Value::List(items.iter().map(|item| value_of(item, of)).collect::<Option<_>>()?)
        }
        (serde_json::Value::Object(members), FieldType::Record { fields, .. }) => {
            let member = |field: &Field| {
                Some((field.name.clone(), value_of(members.get(&field.name)?, &field.of)?))
            };
            if members.len() != fields.len() {
                return None;
            }
            Value::Record(fields.iter().map(member).collect::<Option<_>>()?)
        }
        _ => return None,
    })
}
