//! Objects read as Rust structures, by entry and by OID.

use std::path::Path;

use femtobarn::{Class, ContainerOptions, ErrorKind, Federation, Oid, OpenOptions};
use rntuple::{Value, row};

use crate::links::link;
use crate::support::{begin, event_class, events, federation, with_ten_events};

row! {
    #[derive(Debug, PartialEq)]
    struct Event { event: u64, run: u32 }
}

row! {
    struct Raw { database: u32, container: u32, entry: u64 }
}
row! {
    struct Linked { to: Raw }
}

#[test]
fn objects_of_many_containers_are_read_by_oid() {
    let (_folder, federation) = federation();
    let mut keys = vec![];
    for run in 0..3 {
        let mut transaction = begin(&federation);
        let database = transaction.create_database(&format!("run{run}")).unwrap();
        let options = ContainerOptions { page_size: 4096, ..Default::default() };
        let key =
            transaction.create_container(database, "events", &event_class(), options).unwrap();
        transaction.extend(key, events(run, 0, 5000)).unwrap();
        transaction.commit().unwrap();
        keys.push(key);
    }
    let snapshot = federation.snapshot(None).unwrap();
    let mut objects = snapshot.objects::<Event>();
    for number in 0..9000_u64 {
        let (run, entry) = (number % 3, number * 1237 % 5000);
        let key = keys[run as usize];
        let oid = Oid::new(key.database, key.container, entry);
        assert_eq!(objects.get(oid).unwrap(), Event { event: entry, run: run as u32 });
    }
    let key = keys[0];
    let beyond = objects.get(Oid::new(key.database, key.container, 5000)).unwrap_err();
    assert_eq!(beyond.kind(), ErrorKind::NotFound);
}

#[test]
fn deleted_objects_are_left_out_and_refused() {
    let (_folder, federation) = federation();
    with_ten_events(&federation);
    let mut transaction = begin(&federation);
    let database = transaction.database("run7").unwrap();
    let key = transaction.container(database, "events").unwrap();
    transaction.delete(key, &[2, 3, 9]).unwrap();
    transaction.commit().unwrap();
    let view = federation.snapshot(None).unwrap().view("run7/events").unwrap();
    let mut cursor = view.cursor::<Event>().unwrap().forward();
    let mut seen = vec![];
    let each = |entry, object: Event| {
        assert_eq!(object, Event { event: entry, run: 7 });
        seen.push(entry);
        Ok(())
    };
    cursor.for_each(0..10, each).unwrap();
    assert_eq!(seen, [0, 1, 4, 5, 6, 7, 8]);
    assert_eq!(cursor.get(3).unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(cursor.get(8).unwrap(), Event { event: 8, run: 7 });
}

#[test]
fn a_row_with_numbers_instead_of_links_is_refused() {
    let (_folder, federation) = federation();
    let mut transaction = begin(&federation);
    let database = transaction.create_database("a").unwrap();
    let json = r#"{"name": "A", "version": 1, "fields": [{"name": "to", "type": {"link": "A"}}]}"#;
    let class = Class::from_json(json).unwrap();
    let key = transaction.create_container(database, "a", &class, Default::default()).unwrap();
    let value = Value::Record(vec![("to".to_owned(), link(None))]);
    transaction.append_value(key, value).unwrap();
    transaction.commit().unwrap();
    let view = federation.snapshot(None).unwrap().view("a/a").unwrap();
    let Err(error) = view.cursor::<Linked>() else { panic!("links are refused") };
    assert_eq!(error.kind(), ErrorKind::Invalid);
}

#[test]
fn a_federation_without_a_page_cache_reads_the_same() {
    let (folder, federation) = federation();
    with_ten_events(&federation);
    drop(federation);
    let path = Path::new(folder.path()).join("test.fed");
    let federation = Federation::open_with(
        &path,
        OpenOptions { cache_bytes: 0, threads: 1, ..OpenOptions::default() },
    )
    .unwrap();
    let view = federation.snapshot(None).unwrap().view("run7/events").unwrap();
    let mut cursor = view.cursor::<Event>().unwrap();
    for entry in (0..10).rev() {
        assert_eq!(cursor.get(entry).unwrap(), Event { event: entry, run: 7 });
        assert_eq!(view.value(entry).unwrap().member("event"), Some(&Value::UInt(entry)));
    }
}
