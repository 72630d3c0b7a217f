//! Random changes of types, with their effect on single values: the model for evolved versions.

use rntuple::{NewMember, Precision, Primitive, Type, Value};

use crate::values::PRIMITIVES;

/// A random number generator with a seed (SplitMix64).
pub(crate) struct Random(pub u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (mixed ^ (mixed >> 31)) % end
    }

    fn one_in(&mut self, many: u64) -> bool {
        self.below(many) == 0
    }

    fn pick<T: Clone>(&mut self, of: &[T]) -> T {
        of[self.below(of.len() as u64) as usize].clone()
    }
}

/// The effect of a change on one value.
type FieldChange = Box<dyn Fn(&Value) -> Value>;

/// A type after a change.
pub(crate) struct Changed {
    pub of: Type,
    /// The origins of the members of the record in it.
    pub rules: Vec<NewMember>,
    pub value: FieldChange,
}

impl Changed {
    fn same(of: &Type) -> Self {
        Changed { of: of.clone(), rules: vec![], value: Box::new(Value::clone) }
    }
}

/// Changes a type at random; `typed` types have no records without a class in them.
pub(crate) fn change(of: &Type, typed: bool, random: &mut Random) -> Changed {
    let is_plain = !matches!(of, Type::List(_) | Type::Optional(_) | Type::Array { .. });
    if is_plain && random.one_in(8) {
        return wrap(change_within(of, typed, random), typed || is_typed(of), random);
    }
    change_within(of, typed, random)
}

fn change_within(of: &Type, typed: bool, random: &mut Random) -> Changed {
    match of {
        Type::Primitive(_) | Type::Reduced(..) if random.one_in(2) => widen(of, random),
        Type::Record { class, members } => {
            let (of, rules, value) = change_members(members, typed || !class.is_empty(), random);
            Changed { of: Type::Record { class: class.clone(), members: of }, rules, value }
        }
        Type::List(item) => {
            let Changed { of, rules, value } = change(item, typed, random);
            Changed { of: Type::List(of.into()), rules, value: each(value) }
        }
        Type::Optional(item) => {
            let Changed { of, rules, value } = change(item, true, random);
            if random.one_in(3) {
                let list = move |old: &Value| match old {
                    Value::Null => Value::List(vec![]),
                    some => list_of(vec![value(some)]),
                };
                return Changed { of: Type::List(of.into()), rules, value: Box::new(list) };
            }
            if matches!(of, Type::Optional(_) | Type::Variant(_)) {
                // A value does not show whether the outer or the inner optional is absent.
                return Changed::same(&Type::Optional(item.clone()));
            }
            let some = move |old: &Value| match old {
                Value::Null => Value::Null,
                some => value(some),
            };
            Changed { of: Type::Optional(of.into()), rules, value: Box::new(some) }
        }
        Type::Array { item, size } => {
            let Changed { of, rules, value } = change(item, true, random);
            let of = if random.one_in(3) {
                Type::List(of.into())
            } else {
                Type::Array { item: of.into(), size: *size }
            };
            Changed { of, rules, value: each(value) }
        }
        Type::Variant(alternatives) => {
            let (mut types, mut changes) = (vec![], vec![]);
            for alternative in alternatives {
                // Members of alternatives are matched by name, so only rules without renames fit.
                let changed = change(alternative, true, random);
                let changed =
                    if changed.rules.is_empty() { changed } else { Changed::same(alternative) };
                types.push(changed.of);
                changes.push(changed.value);
            }
            if random.one_in(3) {
                types.push(Type::String);
            }
            let value = move |old: &Value| match old {
                Value::Variant(chosen, value) => {
                    Value::Variant(*chosen, changes[*chosen](value).into())
                }
                none => none.clone(),
            };
            Changed { of: Type::Variant(types), rules: vec![], value: Box::new(value) }
        }
        _ => Changed::same(of),
    }
}

fn wrap(changed: Changed, typed: bool, random: &mut Random) -> Changed {
    let Changed { of, rules, value } = changed;
    // An absent optional variant looks like a present variant without a value.
    if typed
        && random.one_in(2)
        && !matches!(of, Type::Variant(_) | Type::Optional(_) | Type::List(_))
    {
        return Changed { of: Type::Optional(of.into()), rules, value };
    }
    Changed {
        of: Type::List(of.into()),
        rules,
        value: Box::new(move |old| list_of(vec![value(old)])),
    }
}

/// Changes the members of a record: some are removed, added, renamed or moved.
pub(crate) fn change_members(
    members: &[(String, Type)],
    typed: bool,
    random: &mut Random,
) -> (Vec<(String, Type)>, Vec<NewMember>, FieldChange) {
    let mut made: Vec<(String, Type, NewMember, FieldChange)> = vec![];
    for (name, of) in members {
        if members.len() > 1 && random.one_in(6) {
            continue;
        }
        let Changed { of, rules, value } = change(of, typed, random);
        let new = if random.one_in(4) { fresh(random) } else { name.clone() };
        let member = NewMember::was(&new, of.clone(), name).with(rules);
        let old = name.clone();
        let value: FieldChange = Box::new(move |record| value(record.member(&old).unwrap()));
        made.push((new, of, member, value));
    }
    if made.is_empty() || random.one_in(3) {
        let (of, default) = addition(random);
        let name = fresh(random);
        let member = NewMember::added(&name, of.clone(), default.clone());
        let value = default.unwrap_or_else(|| Value::zero(&of).unwrap());
        made.push((name, of, member, Box::new(move |_| value.clone())));
    }
    if random.one_in(3) {
        made.reverse();
    }
    let (mut types, mut rules, mut changes) = (vec![], vec![], vec![]);
    for (name, of, member, value) in made {
        types.push((name.clone(), of));
        rules.push(member);
        changes.push((name, value));
    }
    let value = move |old: &Value| {
        Value::Record(changes.iter().map(|(name, of)| (name.clone(), of(old))).collect())
    };
    (types, rules, Box::new(value))
}

fn fresh(random: &mut Random) -> String {
    format!("n{:x}", random.below(u64::MAX))
}

/// A new member and its default; `None` is zero.
fn addition(random: &mut Random) -> (Type, Option<Value>) {
    let text = || Value::String("dé".to_owned());
    let int = |value| Value::Int(value);
    let record = Type::Record {
        class: "Added".to_owned(),
        members: vec![
            ("a".to_owned(), Type::Primitive(Primitive::Int32)),
            ("b".to_owned(), Type::List(Type::String.into())),
        ],
    };
    let value = Value::Record(vec![
        ("a".to_owned(), int(-7)),
        ("b".to_owned(), Value::List(vec![text(), Value::String(String::new()), text()])),
    ]);
    let variant =
        Type::Variant(vec![Type::String, Type::List(Type::Primitive(Primitive::Int16).into())]);
    let (of, value) = random.pick(&[
        (Type::Primitive(Primitive::Float64), Value::Float(2.5)),
        (Type::Primitive(Primitive::Bool), Value::Bool(true)),
        (Type::String, text()),
        (
            Type::Bitset { size: 11 },
            Value::List((0..11).map(|bit| Value::Bool(bit % 3 == 0)).collect()),
        ),
        (Type::Array { item: record.clone().into(), size: 2 }, Value::List(vec![value.clone(); 2])),
        (Type::List(record.clone().into()), Value::List(vec![value.clone(); 3])),
        (Type::Optional(record.clone().into()), value.clone()),
        (record, value),
        (variant.clone(), Value::Variant(0, text().into())),
        (variant, Value::Variant(1, Value::List(vec![int(1), int(-2)]).into())),
    ]);
    let given = !random.one_in(3);
    (of, given.then_some(value))
}

/// A wider type, if there is one, from the model's own table of lossless conversions.
fn widen(of: &Type, random: &mut Random) -> Changed {
    let wider: Vec<Type> = match of {
        Type::Primitive(old) => {
            PRIMITIVES.into_iter().filter(|&new| is_wider(*old, new)).map(Type::Primitive).collect()
        }
        Type::Reduced(old, Precision::Quantised { .. }) => vec![Type::Primitive(*old)],
        Type::Reduced(Primitive::Float32, _) => {
            vec![Type::Primitive(Primitive::Float32), Type::Primitive(Primitive::Float64)]
        }
        _ => vec![Type::Primitive(Primitive::Float64)],
    };
    if wider.is_empty() {
        return Changed::same(of);
    }
    let new = random.pick(&wider);
    let value: FieldChange = match new {
        Type::Primitive(Primitive::Float32 | Primitive::Float64) => {
            Box::new(|old| Value::Float(old.as_float().unwrap()))
        }
        _ => Box::new(Value::clone),
    };
    Changed { of: new, rules: vec![], value }
}

fn is_wider(old: Primitive, new: Primitive) -> bool {
    use Primitive::*;
    let wider: &[Primitive] = match old {
        Bool => &[Int8, UInt8, Int16, UInt16, Int32, UInt32, Int64, UInt64, Float32, Float64],
        Int8 => &[Int16, Int32, Int64, Float32, Float64],
        UInt8 => &[Int16, UInt16, Int32, UInt32, Int64, UInt64, Float32, Float64],
        Int16 => &[Int32, Int64, Float32, Float64],
        UInt16 => &[Int32, UInt32, Int64, UInt64, Float32, Float64],
        Int32 => &[Int64, Float64],
        UInt32 => &[Int64, UInt64, Float64],
        Float32 => &[Float64],
        _ => &[],
    };
    wider.contains(&new)
}

fn is_typed(of: &Type) -> bool {
    match of {
        Type::Record { class, .. } => !class.is_empty(),
        Type::List(item) | Type::Optional(item) | Type::Array { item, .. } => is_typed(item),
        _ => true,
    }
}

/// A list; lists of bytes are [`Value::Bytes`].
fn list_of(items: Vec<Value>) -> Value {
    Value::List(items)
}

fn each(value: FieldChange) -> FieldChange {
    Box::new(move |list| match list {
        Value::List(items) => list_of(items.iter().map(&value).collect()),
        Value::Bytes(bytes) => {
            list_of(bytes.iter().map(|&byte| value(&Value::UInt(byte.into()))).collect())
        }
        other => panic!("{other:?} is not a list"),
    })
}
