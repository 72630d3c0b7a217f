//! Objects that links refer to, read one by one and together; referrers; broken links.

use proptest::{collection::vec, prelude::*};

use femtobarn::{
    Class, ContainerId, ContainerKey, ContainerOptions, DatabaseId, ErrorKind, Federation, Oid,
    Referrer, Snapshot,
};
use rntuple::Value;

use crate::links::link;
use crate::support::{begin, event_class, events, federation, reopened};
use crate::values::cases;

const TRACK: &str = r#"{"name": "Track", "version": 1, "fields": [
    {"name": "n", "type": "uint64"},
    {"name": "event", "type": {"link": "Event"}},
    {"name": "others", "type": {"list": {"link": "Event"}}},
    {"name": "groups", "type": {"list": {"record": {"fields": [
        {"name": "of", "type": {"list": {"link": "Event"}}}]}}}},
    {"name": "mother", "type": {"link": "Track"}}]}"#;

fn record(members: &[(&str, Value)]) -> Value {
    Value::Record(members.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect())
}

/// A track with links to events.
fn track(n: u64, event: Option<Oid>, others: &[Oid], groups: &[&[Oid]]) -> Value {
    let list = |oids: &[Oid]| Value::List(oids.iter().map(|oid| link(Some(*oid))).collect());
    record(&[
        ("n", Value::UInt(n)),
        ("event", link(event)),
        ("others", list(others)),
        ("groups", Value::List(groups.iter().map(|of| record(&[("of", list(of))])).collect())),
        ("mother", link(None)),
    ])
}

/// Two containers of events, `a/events` and `b/events`, each with `count`.
fn two_databases(federation: &Federation, count: u64) -> [ContainerKey; 2] {
    ["a", "b"].map(|name| {
        let mut transaction = begin(federation);
        let database = transaction.create_database(name).unwrap();
        let options = ContainerOptions { page_size: 4096, ..Default::default() };
        let key =
            transaction.create_container(database, "events", &event_class(), options).unwrap();
        transaction.extend(key, events(u32::from(name == "b"), 0, count)).unwrap();
        transaction.commit().unwrap();
        key
    })
}

fn oid(key: ContainerKey, entry: u64) -> Oid {
    Oid::new(key.database, key.container, entry)
}

fn tracks(federation: &Federation, indexed: &[&str], tracks: &[Value]) -> ContainerKey {
    let mut transaction = begin(federation);
    let database = transaction.create_database("tracks").unwrap();
    let class = Class::from_json(TRACK).unwrap();
    let options = ContainerOptions::default();
    let key = transaction.create_container(database, "t", &class, options).unwrap();
    for field in indexed {
        transaction.create_index(key, field, &[field], false).unwrap();
    }
    for track in tracks {
        transaction.append_value(key, track.clone()).unwrap();
    }
    transaction.commit().unwrap();
    key
}

proptest! {
    #![proptest_config(cases(10))]

    #[test]
    fn links_read_together_give_the_objects_of_each(
        chosen in vec((any::<bool>(), prop_oneof![0..50_u64, 0..3000_u64]), 0..200),
        nulls in vec(any::<bool>(), 200),
        has_nulls in any::<bool>(),
    ) {
        let (_folder, federation) = federation();
        let keys = two_databases(&federation, 3000);
        let null = Oid::new(DatabaseId(0), ContainerId(0), 0);
        let links: Vec<Oid> = chosen
            .iter()
            .zip(nulls)
            .map(|((second, entry), is_null)| {
                if has_nulls && is_null { null } else { oid(keys[usize::from(*second)], *entry) }
            })
            .collect();
        let snapshot = federation.snapshot(None).unwrap();
        for fields in [&[][..], &["event"]] {
            let array = snapshot.follow(&links, fields).unwrap();
            prop_assert_eq!(array.len(), links.len());
            for (at, link) in links.iter().enumerate() {
                let found = array.value(at).unwrap();
                if *link == null {
                    prop_assert_eq!(found, Value::Null);
                    continue;
                }
                let object = snapshot.object(*link).unwrap();
                let name = if fields.is_empty() { "run" } else { "event" };
                prop_assert_eq!(found.member(name), object.member(name));
            }
        }
    }
}

fn reason(snapshot: &Snapshot, link: Oid) -> String {
    let error = snapshot.object(link).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    let text = error.to_string();
    assert!(text.contains(&link.to_string()), "{text}");
    let none: [&str; 0] = [];
    let followed = snapshot.follow(&[link], &none);
    match link.container.0 {
        0 => assert!(followed.unwrap().value(0).unwrap() == Value::Null),
        _ => assert_eq!(followed.unwrap_err().to_string(), text),
    }
    text
}

#[test]
fn a_broken_link_is_refused_with_the_reason() {
    let (_folder, federation) = federation();
    let [a, b] = two_databases(&federation, 100);
    let before = federation.snapshot(None).unwrap();
    let mut transaction = begin(&federation);
    transaction.container(a.database, "events").unwrap();
    transaction.delete(a, &[7]).unwrap();
    transaction.extend(a, events(0, 100, 1)).unwrap();
    transaction.commit().unwrap();
    let mut transaction = begin(&federation);
    transaction.drop_container(b.database, "events").unwrap();
    transaction.commit().unwrap();
    let now = federation.snapshot(None).unwrap();

    assert!(reason(&now, oid(a, 7)).contains("the object in a/events was deleted"));
    assert!(reason(&now, oid(a, 101)).contains("a/events has 101 entries"));
    assert!(reason(&before, oid(a, 100)).contains("as of commit 2, a/events has 100 entries"));
    assert!(reason(&now, oid(b, 5)).contains("container"));
    assert!(reason(&now, Oid::new(DatabaseId(9), ContainerId(1), 0)).contains("database"));
    assert!(reason(&now, Oid::new(DatabaseId(0), ContainerId(1), 0)).contains("attach it"));
    assert!(reason(&now, Oid::new(DatabaseId(0), ContainerId(0), 0)).contains("is null"));
    assert!(before.object(oid(a, 7)).is_ok() && before.object(oid(b, 5)).is_ok());
    // Of many links, the error names the broken one.
    let links: Vec<Oid> = (0..20).map(|entry| oid(a, entry)).collect();
    let error = now.follow(&links, &["run"]).unwrap_err().to_string();
    assert!(error.contains(&oid(a, 7).to_string()) && error.contains("deleted"), "{error}");
}

#[test]
fn referrers_are_found_by_indexes_and_by_reading() {
    let (folder, federation) = federation();
    let [a, b] = two_databases(&federation, 20);
    let of = |n: u64| oid(if n.is_multiple_of(2) { a } else { b }, n % 10);
    let all: Vec<Value> = (0..200)
        .map(|n| {
            let event = (n % 3 > 0).then(|| of(n));
            track(n, event, &[of(n + 1), of(n + 1), of(n + 4)], &[&[], &[of(n + 2)], &[of(n)]])
        })
        .collect();
    let key = tracks(&federation, &["event", "others"], &all);
    let snapshot = federation.snapshot(None).unwrap();
    let expected = |target: Oid, fields: &[&str], is_there: &dyn Fn(u64) -> bool| {
        let mut found = vec![];
        for n in (0..200).filter(|n| is_there(*n)) {
            let field = |name: &str, is_hit: bool| {
                let referrer = Referrer { object: oid(key, n), field: name.to_owned() };
                (is_hit && fields.contains(&name)).then_some(referrer)
            };
            found.extend(field("event", n % 3 > 0 && of(n) == target));
            found.extend(field("groups.of", of(n + 2) == target || of(n) == target));
            found.extend(field("others", of(n + 1) == target || of(n + 4) == target));
        }
        found
    };
    let fields = ["event", "others", "groups.of"];
    for target in [oid(a, 4), oid(b, 4), oid(b, 5), oid(a, 15)] {
        let quick = snapshot.referrers(target, false).unwrap();
        assert_eq!(quick.unsearched, [("tracks/t".to_owned(), "groups.of".to_owned())]);
        assert_eq!(quick.found, expected(target, &fields[..2], &|_| true));
        let whole = snapshot.referrers(target, true).unwrap();
        assert!(whole.unsearched.is_empty());
        assert_eq!(whole.found, expected(target, &fields, &|_| true));
    }

    let mut transaction = begin(&federation);
    transaction.container(key.database, "t").unwrap();
    let gone: Vec<u64> = (0..200).filter(|n| n % 4 == 0).collect();
    transaction.delete(key, &gone).unwrap();
    transaction.commit().unwrap();
    let federation = reopened(&folder);
    let now = federation.snapshot(None).unwrap();
    for target in [oid(a, 4), oid(b, 5)] {
        let found = now.referrers(target, true).unwrap().found;
        assert_eq!(found, expected(target, &fields, &|n| n % 4 > 0));
        let found = snapshot.referrers(target, true).unwrap().found;
        assert_eq!(found, expected(target, &fields, &|_| true));
    }
    // Nothing links to tracks.
    let none = now.referrers(oid(key, 1), true).unwrap();
    assert!(none.found.is_empty() && none.unsearched.is_empty());
}
