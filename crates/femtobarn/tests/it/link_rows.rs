//! Links as members of Rust rows.

use femtobarn::{
    Class, ContainerKey, ContainerOptions, DatabaseId, ElementLink, ErrorKind, Link, Oid,
    Transaction,
};
use rntuple::Value;

use crate::links::{best, database_of_events, element, link, linker, object, oid, target};
use crate::support::{begin, federation, with_ten_events};

rntuple::row! {
    struct RawLink { database: u32, container: u32, entry: u64 }
}

rntuple::row! {
    struct RawTag { to: RawLink }
}

rntuple::row! {
    struct Tag { to: Link }
}

fn tags(transaction: &mut Transaction) -> ContainerKey {
    let database = transaction.create_database("tags").unwrap();
    let json = r#"{"name": "Tag", "version": 1, "fields": [
        {"name": "to", "type": {"link": "Tag"}}]}"#;
    let class = Class::from_json(json).unwrap();
    transaction.create_container(database, "tags", &class, Default::default()).unwrap()
}

/// Rows with three numbers instead of a link would be stored untranslated.
#[test]
fn rows_with_numbers_instead_of_links_are_refused() {
    let (_folder, federation) = federation();
    let mut transaction = begin(&federation);
    let key = tags(&mut transaction);
    let to = RawLink { database: key.database.0, container: key.container.0, entry: 0 };
    let appended = transaction.rows::<RawTag>(key).and_then(|mut rows| rows.append(&RawTag { to }));
    assert_eq!(appended.unwrap_err().kind(), ErrorKind::Invalid);
}

/// A link instead of three numbers would be translated.
#[test]
fn rows_with_links_instead_of_numbers_are_refused() {
    let (_folder, federation) = federation();
    let mut transaction = begin(&federation);
    let database = transaction.create_database("tags").unwrap();
    let json = r#"{"name": "Raw", "version": 1, "fields": [{"name": "to", "type": {"record": {
        "fields": [{"name": "database", "type": "uint32"}, {"name": "container", "type": "uint32"},
        {"name": "entry", "type": "uint64"}]}}}]}"#;
    let class = Class::from_json(json).unwrap();
    let key = transaction.create_container(database, "raw", &class, Default::default()).unwrap();
    assert_eq!(transaction.rows::<Tag>(key).err().unwrap().kind(), ErrorKind::Invalid);
    assert!(transaction.rows::<RawTag>(key).is_ok());
    transaction.commit().unwrap();
    let view = federation.snapshot(None).unwrap().view("tags/raw").unwrap();
    assert_eq!(view.cursor::<Tag>().err().unwrap().kind(), ErrorKind::Invalid);
    assert!(view.cursor::<RawTag>().is_ok());
}

rntuple::row! {
    #[derive(Debug, PartialEq)]
    struct Best { score: f32, to: Vec<ElementLink> }
}

rntuple::row! {
    #[derive(Debug, PartialEq)]
    struct Linker {
        one: Link,
        many: Vec<Link>,
        element: ElementLink,
        maybe: Option<Link>,
        best: Option<Best>,
    }
}

/// The links of row number `n`: to its own database, to others, several to one, and null links.
fn linker_row(databases: &[ContainerKey], n: u64) -> Linker {
    let to = |at: u64| match at % 5 {
        0 => Link::NULL,
        _ => Link::from(oid(databases[at as usize % databases.len()], at % 20).unwrap()),
    };
    let of = |at: u64| match at % 3 {
        0 => ElementLink::NULL,
        _ => {
            ElementLink::new(oid(databases[at as usize % databases.len()], at).unwrap(), at as u32)
        }
    };
    Linker {
        one: to(n),
        many: (0..n % 7).map(|at| to(n + at)).collect(),
        element: of(n),
        maybe: n.is_multiple_of(2).then(|| to(n + 1)),
        best: n
            .is_multiple_of(3)
            .then(|| Best { score: n as f32, to: (0..n % 4).map(|at| of(n + at)).collect() }),
    }
}

/// The same as a value.
fn linker_value(databases: &[ContainerKey], n: u64) -> Value {
    let key = |at: u64| databases[at as usize % databases.len()];
    let to = |at: u64| link(oid(key(at), at % 20).filter(|_| !at.is_multiple_of(5)));
    let of = |at: u64| match at % 3 {
        0 => element(None, 0),
        _ => element(oid(key(at), at), at),
    };
    object(
        to(n),
        (0..n % 7).map(|at| to(n + at)).collect(),
        of(n),
        if n.is_multiple_of(2) { to(n + 1) } else { Value::Null },
        if n.is_multiple_of(3) {
            best(n as f64, (0..n % 4).map(|at| of(n + at)).collect())
        } else {
            Value::Null
        },
    )
}

#[test]
fn links_in_rows_equal_those_in_values() {
    let (_folder, federation) = federation();
    with_ten_events(&federation);
    let mut transaction = begin(&federation);
    let old = transaction.database("run7").unwrap();
    let old = transaction.container(old, "events").unwrap();
    let new = database_of_events(&mut transaction, "new");
    let third = database_of_events(&mut transaction, "third");
    let options = ContainerOptions { page_size: 4096, cluster_size: 4096, ..Default::default() };
    let mut create = |name| {
        let own = transaction.database("new").unwrap();
        transaction.create_container(own, name, &linker(), options).unwrap()
    };
    let (by_rows, by_values) = (create("rows"), create("values"));
    let databases = [new, old, third];
    // Across a commit, with a value between the rows.
    for first in [0, 150] {
        let mut rows = transaction.rows::<Linker>(by_rows).unwrap();
        for n in first..first + 149 {
            rows.append(&linker_row(&databases, n)).unwrap();
        }
        transaction.append_value(by_rows, linker_value(&databases, first + 149)).unwrap();
        for n in first..first + 150 {
            transaction.append_value(by_values, linker_value(&databases, n)).unwrap();
        }
        transaction.checkpoint().unwrap();
    }
    transaction.commit().unwrap();
    let snapshot = federation.snapshot(None).unwrap();
    let view = |name: &str| snapshot.view(&format!("new/{name}")).unwrap();
    let (rows, values) = (view("rows"), view("values"));
    assert_eq!((rows.entries(), values.entries()), (300, 300));
    for n in 0..300 {
        assert_eq!(rows.value(n).unwrap(), linker_value(&databases, n), "row {n}");
        assert_eq!(rows.value(n).unwrap(), values.value(n).unwrap(), "object {n}");
    }
    for view in [rows, values] {
        let mut cursor = view.cursor::<Linker>().unwrap();
        for n in (0..300).rev() {
            assert_eq!(cursor.get(n).unwrap(), linker_row(&databases, n), "row {n}");
        }
    }
}

#[test]
fn a_row_with_a_link_to_an_unknown_database_is_refused_as_a_whole() {
    let (_folder, federation) = federation();
    let mut transaction = begin(&federation);
    let key = tags(&mut transaction);
    let mut rows = transaction.rows::<Tag>(key).unwrap();
    let good = Tag { to: Oid::new(key.database, key.container, 0).into() };
    rows.append(&good).unwrap();
    let unknown = Tag { to: Oid::new(DatabaseId(999), key.container, 0).into() };
    assert_eq!(rows.append(&unknown).unwrap_err().kind(), ErrorKind::NotFound);
    rows.append(&good).unwrap();
    transaction.commit().unwrap();
    let view = federation.snapshot(None).unwrap().view("tags/tags").unwrap();
    let links = (0..view.entries()).map(|n| target(view.value(n).unwrap().member("to").unwrap()));
    assert_eq!(links.collect::<Vec<_>>(), [oid(key, 0), oid(key, 0)]);
}
