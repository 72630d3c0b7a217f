//! Opaque objects, read at random and in order.

use std::path::Path;

use femtobarn::{
    Class, ContainerId, ContainerKey, DatabaseId, Federation, Oid, OpenOptions, Snapshot,
    TransactionOptions, View,
};
use rntuple::{Array, FromCell, Value};

use femtobarn_bench::{Outcome, Pool, Random, Reads, sum};

use crate::append::{FIXED_BYTES, Fixed, Object, class_of};

/// Large enough for all objects, since peers keep them in memory, too.
const CACHE_BYTES: u64 = 1 << 30;

const HEAD: &str = r#"{"name": "Head", "version": 1, "fields": [
    {"name": "to", "type": {"link": "Object"}}]}"#;

/// Creates a federation of objects and of as many heads, each with a link to a random object. Objects that have
/// numbers are indexed by them.
pub(crate) fn fill(folder: &Path, pool: &Pool, count: u64) -> Outcome {
    let federation = Federation::create(folder, "bench")?;
    let mut transaction = federation.transaction(TransactionOptions::default())?;
    let database = transaction.create_database("objects")?;
    let options = Default::default();
    let class = class_of(pool.size(), 0)?;
    let key = transaction.create_container(database, "objects", &class, options)?;
    if pool.size() == FIXED_BYTES {
        let mut rows = transaction.rows::<Fixed>(key)?;
        (0..count).try_for_each(|id| rows.append(&Fixed::new(pool, id)).map(drop))?;
        transaction.commit()?;
        return Ok(());
    }
    transaction.create_index(key, "id", &["id"], true)?;
    let mut rows = transaction.rows::<Object>(key)?;
    (0..count).try_for_each(|id| rows.append(&Object::new(pool, id)).map(drop))?;
    let heads =
        transaction.create_container(database, "heads", &Class::from_json(HEAD)?, options)?;
    let mut random = Random::default();
    for _ in 0..count {
        let to = link(key, random.below(count));
        transaction.append_value(heads, Value::Record(vec![("to".to_owned(), to)]))?;
    }
    transaction.commit()?;
    Ok(())
}

/// Reads objects one by one: by their OIDs, by their numbers, or by the links of heads.
pub(crate) fn one_by_one(folder: &Path, way: &str, reads: &Reads) -> Outcome {
    match reads.size as usize {
        FIXED_BYTES => read_each(folder, way, reads, |object: Fixed| sum(&object.bytes)),
        _ => read_each(folder, way, reads, |object: Object| sum(&object.blob)),
    }
}

fn read_each<R: FromCell>(
    folder: &Path,
    way: &str,
    reads: &Reads,
    sum_of: impl Fn(R) -> u64,
) -> Outcome {
    let snapshot = open(folder)?;
    let view = snapshot.view("objects/objects")?;
    let mut objects = snapshot.objects::<R>();
    let mut by_oid = |oid: Oid| Ok(sum_of(objects.get(oid)?));
    match way {
        "oid" => reads.one_by_one(|id| by_oid(view.oid(id))),
        "key" => reads.one_by_one(|id| by_oid(view.oid(found(&view, id)?))),
        "find" => reads.one_by_one(|id| found(&view, id)),
        "links" => {
            let heads = snapshot.view("objects/heads")?;
            reads.one_by_one(|id| by_oid(target(snapshot.object(heads.oid(id))?)?))
        }
        other => Err(format!("no way of reading: {other}").into()),
    }
}

/// Reads objects in batches, by their OIDs.
pub(crate) fn in_batches(folder: &Path, reads: &Reads) -> Outcome {
    let snapshot = open(folder)?;
    let view = snapshot.view("objects/objects")?;
    reads.in_batches(|ids| {
        let oids: Vec<Oid> = ids.iter().map(|id| view.oid(*id)).collect();
        followed(&snapshot, &oids, reads.size)
    })
}

/// Reads all objects in order: from the cache, or forward, as a program would that reads more than the cache
/// holds.
pub(crate) fn scan(folder: &Path, way: &str, reads: &Reads) -> Outcome {
    let objects = open(folder)?.view("objects/objects")?.cursor::<Object>()?;
    let mut objects = match way {
        "cached" => objects,
        "forward" => objects.forward(),
        other => return Err(format!("no way of scanning: {other}").into()),
    };
    reads.in_order(|| {
        let mut check = 0_u64;
        objects.for_each(0..reads.objects, |_, object| {
            check = check.wrapping_add(sum(&object.blob));
            Ok(())
        })?;
        Ok(check)
    })
}

fn open(folder: &Path) -> Outcome<Snapshot> {
    let options = OpenOptions { cache_bytes: CACHE_BYTES, ..OpenOptions::default() };
    Ok(Federation::open_with(folder, options)?.snapshot(None)?)
}

fn found(view: &View, id: u64) -> Outcome<u64> {
    let found = view.find(&[("id", Value::UInt(id))])?;
    found.ok_or_else(|| "an object is absent".into())
}

fn followed(snapshot: &Snapshot, oids: &[Oid], size: u64) -> Outcome<u64> {
    sum_of(&snapshot.follow(oids, &[content_name(size)])?, size)
}

fn content_name(size: u64) -> &'static str {
    if size == FIXED_BYTES as u64 { "bytes" } else { "blob" }
}

/// The sum of the words of all objects of an array.
fn sum_of(array: &Array, size: u64) -> Outcome<u64> {
    let bytes = match array {
        Array::Record { members, .. } => return sum_of(&members[0].1, size),
        Array::List { content, .. } | Array::Fixed { content, .. } => return sum_of(content, size),
        Array::Primitive { values, .. } => values,
        _ => return Err("the objects have no bytes".into()),
    };
    let objects = bytes.chunks_exact(size as usize);
    Ok(objects.fold(0, |total: u64, object| total.wrapping_add(sum(object))))
}

fn link(key: ContainerKey, entry: u64) -> Value {
    let members = [
        ("database", key.database.0.into()),
        ("container", key.container.0.into()),
        ("entry", entry),
    ];
    Value::Record(members.map(|(name, number)| (name.to_owned(), Value::UInt(number))).into())
}

fn target(head: Value) -> Outcome<Oid> {
    let number = |name| match head.member("to").and_then(|to| to.member(name)) {
        Some(Value::UInt(number)) => Ok(*number),
        _ => Err(format!("a link without {name}")),
    };
    let database = DatabaseId(number("database")? as u32);
    Ok(Oid::new(database, ContainerId(number("container")? as u32), number("entry")?))
}
