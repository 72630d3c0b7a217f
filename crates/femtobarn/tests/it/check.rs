//! Check finds no problems in an intact federation, and every damage with its location.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use femtobarn::{
    CheckLevel, CheckReport, Class, ContainerOptions, Federation, MAP_ITEM, ProblemKind, Severity,
};
use rntuple::Value;
use serde_json::json;
use tempfile::TempDir;

use crate::links::{link, linker};
use crate::support::{begin, event_class, events, federation, reopened, with_ten_events};

fn check(federation: &Federation, level: CheckLevel) -> CheckReport {
    federation.check(level, &mut |_| true).unwrap()
}

fn kinds(report: &CheckReport) -> Vec<ProblemKind> {
    let mut kinds: Vec<_> = report.problems.iter().map(|problem| problem.kind).collect();
    kinds.dedup();
    kinds
}

fn file(folder: &TempDir) -> PathBuf {
    folder.path().join("test.fed/databases/run7.root")
}

/// Makes `commits` commits that append ten events each.
fn with_history(federation: &Federation, commits: u64) {
    with_ten_events(federation);
    for commit in 1..commits {
        let mut transaction = begin(federation);
        let database = transaction.database("run7").unwrap();
        let key = transaction.container(database, "events").unwrap();
        transaction.extend(key, events(7, 10 * commit, 10)).unwrap();
        transaction.commit().unwrap();
    }
}

#[test]
fn an_intact_federation_has_no_problems_and_shared_pages_are_read_once() {
    let (_folder, federation) = federation();
    with_history(&federation, 20);
    let report = check(&federation, CheckLevel::Quick);
    assert_eq!(report.problems, []);
    assert_eq!((report.databases, report.containers, report.versions), (1, 1, 1));
    let report = check(&federation, CheckLevel::Full);
    assert_eq!(report.problems, []);
    assert!(report.is_complete && report.is_sound());
    // Two columns, of which every commit wrote a page.
    assert_eq!((report.versions, report.pages, report.objects), (20, 40, 200));
    federation.seal("run7", std::time::Duration::ZERO).unwrap();
    let report = check(&federation, CheckLevel::Full);
    assert_eq!(report.problems, []);
}

#[test]
fn a_flipped_bit_of_a_page_is_reported_with_its_field() {
    let (folder, federation) = federation();
    with_history(&federation, 3);
    let bytes = fs::read(file(&folder)).unwrap();
    // The first event numbers, 0 to 9, as they are on disk.
    let page: Vec<u8> = (0..10_u64).flat_map(u64::to_le_bytes).collect();
    let at = bytes.windows(page.len()).position(|window| window == page).unwrap();
    let disk = OpenOptions::new().write(true).open(file(&folder)).unwrap();
    disk.write_all_at(&[1], at as u64).unwrap();
    assert_eq!(check(&federation, CheckLevel::Quick).problems, []);
    let report = check(&federation, CheckLevel::Full);
    assert!(!report.is_sound());
    let problem = &report.problems[0];
    assert_eq!((problem.kind, problem.severity), (ProblemKind::Page, Severity::Damage));
    assert!(problem.to_string().contains("run7/events"), "{problem}");
    assert!(problem.what.contains("field event"), "{problem}");
    assert_eq!(kinds(&report), [ProblemKind::Page, ProblemKind::Object]);
}

#[test]
fn missing_foreign_and_short_files_are_reported() {
    let (folder, federation) = federation();
    with_ten_events(&federation);
    let path = file(&folder);
    let whole = fs::read(&path).unwrap();
    fs::remove_file(&path).unwrap();
    let report = check(&federation, CheckLevel::Quick);
    assert_eq!(kinds(&report), [ProblemKind::MissingFile]);

    let mut other = whole.clone();
    other[0x30..0x40].fill(7);
    fs::write(&path, &other).unwrap();
    assert_eq!(kinds(&check(&federation, CheckLevel::Quick)), [ProblemKind::WrongFile]);

    fs::write(&path, &whole[..700]).unwrap();
    let report = check(&federation, CheckLevel::Quick);
    assert!(!report.is_sound(), "{:?}", report.problems);
    fs::write(&path, &whole).unwrap();
    assert_eq!(check(&federation, CheckLevel::Full).problems, []);
}

#[test]
fn disagreement_with_the_catalogue_is_reported() {
    for (set, kind) in [
        ("entries = 9", ProblemKind::Disagreement),
        ("deleted = 1", ProblemKind::Deletions),
        ("footer_offset = footer_offset + 8", ProblemKind::Metadata),
    ] {
        let (folder, federation) = federation();
        with_ten_events(&federation);
        drop(federation);
        let catalogue = folder.path().join("test.fed/catalogue.sqlite");
        let sql = rusqlite::Connection::open(catalogue).unwrap();
        assert_eq!(sql.execute(&format!("UPDATE versions SET {set}"), []).unwrap(), 1);
        drop(sql);
        let report = check(&reopened(&folder), CheckLevel::Quick);
        assert!(kinds(&report).contains(&kind), "{set}: {:?}", report.problems);
        assert!(!report.is_sound());
    }
}

#[test]
fn gaps_and_orphans_of_killed_writers_are_reported() {
    let (folder, federation) = federation();
    with_ten_events(&federation);
    drop(federation);
    let size = fs::metadata(file(&folder)).unwrap().len();
    let disk = OpenOptions::new().write(true).open(file(&folder)).unwrap();
    disk.write_all_at(&[0; 5000], size).unwrap();
    fs::write(folder.path().join("test.fed/databases/left.root"), [0; 300]).unwrap();
    let report = check(&reopened(&folder), CheckLevel::Full);
    assert_eq!(kinds(&report), [ProblemKind::OrphanFile, ProblemKind::Chain]);
    assert!(report.is_sound());
    assert_eq!((report.orphan_bytes, report.unreferenced_bytes >= 5000), (300, true));
}

#[test]
fn dangling_links_are_reported_with_their_objects() {
    let (_folder, federation) = federation();
    with_ten_events(&federation);
    let mut transaction = begin(&federation);
    let run7 = transaction.database("run7").unwrap();
    let events = transaction.container(run7, "events").unwrap();
    let database = transaction.create_database("links").unwrap();
    let options = ContainerOptions::default();
    let key = transaction.create_container(database, "linkers", &linker(), options).unwrap();
    let oid = |entry| Some(femtobarn::Oid::new(events.database, events.container, entry));
    for (one, many) in [(oid(3), vec![oid(9), None]), (oid(1), vec![oid(0), oid(10)])] {
        let value = Value::Record(vec![
            ("one".to_owned(), link(one)),
            ("many".to_owned(), Value::List(many.into_iter().map(link).collect())),
            ("element".to_owned(), Value::Null),
            ("maybe".to_owned(), Value::Null),
            ("best".to_owned(), Value::Null),
        ]);
        transaction.append_value(key, value).unwrap();
    }
    transaction.commit().unwrap();
    assert_eq!(check(&federation, CheckLevel::Quick).problems, []);
    let report = check(&federation, CheckLevel::Full);
    assert_eq!(report.links, 5);
    let [problem] = &report.problems[..] else { panic!("{:?}", report.problems) };
    assert_eq!((problem.kind, problem.severity), (ProblemKind::DanglingLink, Severity::Warning));
    assert_eq!(problem.place.entries, Some((1, 2)));
    assert!(problem.what.contains("field many") && problem.what.contains("-10"), "{problem}");

    // Links to deleted objects are reported only if the objects that have them still exist.
    let mut transaction = begin(&federation);
    let events = transaction.container(run7, "events").unwrap();
    transaction.delete(events, &[1, 3]).unwrap();
    let linkers = transaction.container(database, "linkers").unwrap();
    transaction.delete(linkers, &[1]).unwrap();
    transaction.commit().unwrap();
    let report = check(&federation, CheckLevel::Full);
    let [problem] = &report.problems[..] else { panic!("{:?}", report.problems) };
    assert_eq!(problem.place.entries, Some((0, 1)));
    assert!(problem.what.contains("field one") && problem.what.contains("deleted"), "{problem}");
}

/// A class with a set of a type, and with dictionaries that have its values as keys, inside a list of records.
fn collections(item: &str) -> Class {
    let form = json!({"name": "Collections", "version": 1, "fields": [
        {"name": "set", "type": {"meaning": {"of": {"list": item}, "is": "set"}}},
        {"name": "list", "type": {"list": {"record": {"fields": [
            {"name": "map", "type": {"list": {"record": {"class": MAP_ITEM, "fields": [
                {"name": "_0", "type": item}, {"name": "_1", "type": "uint8"}]}}}}]}}}}]});
    Class::from_json(&form.to_string()).unwrap()
}

/// An object of the class, with two dictionaries.
fn collection(set: &[Value], keys: [&[Value]; 2]) -> Value {
    let record = |members: Vec<(&str, Value)>| {
        Value::Record(members.into_iter().map(|(name, it)| (name.to_owned(), it)).collect())
    };
    let item = |key: &Value| record(vec![("_0", key.clone()), ("_1", Value::UInt(7))]);
    let map = |keys: &[Value]| record(vec![("map", Value::List(keys.iter().map(item).collect()))]);
    let list = Value::List(keys.map(map).into());
    record(vec![("set", Value::List(set.to_vec())), ("list", list)])
}

#[test]
fn sets_and_dictionaries_with_equal_items_are_reported_with_their_objects() {
    let texts: Vec<Value> = ["", "a", "ab", "b"].map(|text| Value::String(text.to_owned())).into();
    let reals: Vec<Value> = [-1.5, 0.0, 2.0, 1e9].map(Value::Float).into();
    let wholes: Vec<Value> = [-7, 0, 1, 300].map(Value::Int).into();
    for (item, [a, b, c, d]) in [("string", texts), ("float64", reals), ("int16", wholes)]
        .map(|(item, values)| (item, <[Value; 4]>::try_from(values).unwrap()))
    {
        let (_folder, federation) = federation();
        let mut transaction = begin(&federation);
        let database = transaction.create_database("db").unwrap();
        let options = ContainerOptions::default();
        let key = transaction.create_container(database, "c", &collections(item), options).unwrap();
        let sound = [a.clone(), b.clone(), c.clone(), d.clone()];
        let twice = [a.clone(), b.clone(), b.clone(), c.clone()];
        let mixed = [d.clone(), b.clone(), a.clone(), c.clone()];
        let back = [d, b, a.clone(), a];
        transaction.append_value(key, collection(&sound, [&sound, &mixed])).unwrap();
        transaction.append_value(key, collection(&twice, [&[], &sound])).unwrap();
        transaction.append_value(key, collection(&mixed, [&[], &[]])).unwrap();
        transaction.append_value(key, collection(&[], [&sound, &back])).unwrap();
        transaction.append_value(key, collection(&twice, [&twice, &twice])).unwrap();
        transaction.commit().unwrap();
        let mut transaction = begin(&federation);
        let key = transaction.container(database, "c").unwrap();
        transaction.delete(key, &[4]).unwrap();
        transaction.commit().unwrap();
        let report = check(&federation, CheckLevel::Full);
        assert!(report.is_sound());
        assert_eq!(kinds(&report), [ProblemKind::Uniqueness], "{item}");
        let found = report.problems.iter().map(|it| (it.place.entries.unwrap().0, &*it.what));
        let expected = [
            (1, "field set: a set has an item twice"),
            (2, "field set: the items of a set are not in ascending order"),
            (3, "field list.map: a dictionary has a key twice"),
        ];
        assert_eq!(found.collect::<Vec<_>>(), expected, "{item}");
    }
}

#[test]
fn a_check_reports_progress_and_stops_on_request() {
    let (_folder, federation) = federation();
    with_history(&federation, 5);
    let mut last = 0;
    let report = federation.check(CheckLevel::Full, &mut |progress| {
        assert!(progress.done >= last && progress.doing == "checking" && progress.of == "run7");
        last = progress.done;
        true
    });
    assert!(report.unwrap().is_complete && last > 0);
    let report = federation.check(CheckLevel::Full, &mut |_| false).unwrap();
    assert!(!report.is_complete && report.pages <= 1);
}

#[test]
fn every_flipped_committed_byte_is_reported() {
    let (folder, federation) = federation();
    with_history(&federation, 2);
    let mut transaction = begin(&federation);
    let database = transaction.database("run7").unwrap();
    let options = ContainerOptions::default();
    let key = transaction.create_container(database, "other", &event_class(), options).unwrap();
    transaction.extend(key, events(8, 0, 3)).unwrap();
    transaction.commit().unwrap();
    drop(federation);
    let path = file(&folder);
    let whole = fs::read(&path).unwrap();
    let disk = OpenOptions::new().write(true).open(&path).unwrap();
    let federation = reopened(&folder);
    let unreferenced = check(&federation, CheckLevel::Full).unreferenced_bytes;
    let mut unnoticed = 0;
    for (at, &byte) in whole.iter().enumerate() {
        disk.write_all_at(&[byte ^ 0x10], at as u64).unwrap();
        if check(&federation, CheckLevel::Full).problems.is_empty() {
            unnoticed += 1;
        }
        disk.write_all_at(&[byte], at as u64).unwrap();
    }
    // The front and the keys have fields that no reader needs: names, times.
    assert!(unnoticed <= unreferenced + 1200, "{unnoticed} of {}", whole.len());
}

#[test]
fn an_index_without_an_object_is_reported() {
    let (folder, federation) = federation();
    with_history(&federation, 3);
    let mut transaction = begin(&federation);
    let database = transaction.database("run7").unwrap();
    let key = transaction.container(database, "events").unwrap();
    transaction.create_index(key, "event", &["run", "event"], true).unwrap();
    transaction.delete(key, &[4]).unwrap();
    transaction.commit().unwrap();
    let mut transaction = begin(&federation);
    let key = transaction.container(database, "events").unwrap();
    transaction.extend(key, events(7, 30, 10)).unwrap();
    transaction.commit().unwrap();
    assert_eq!(check(&federation, CheckLevel::Full).problems, []);
    let csn = federation.head().unwrap();
    drop(federation);
    // The newest version has the annex of the one before, whose index lacks the last objects.
    let sql = rusqlite::Connection::open(folder.path().join("test.fed/catalogue.sqlite")).unwrap();
    for column in ["annex_offset", "annex_size"] {
        let lie = format!(
            "UPDATE versions SET {column} = (SELECT {column} FROM versions WHERE csn = ?2) \
             WHERE csn = ?1"
        );
        assert_eq!(sql.execute(&lie, [csn.0 as i64, csn.0 as i64 - 1]).unwrap(), 1);
    }
    drop(sql);
    let report = check(&reopened(&folder), CheckLevel::Full);
    let problem = report.problems.iter().find(|it| it.kind == ProblemKind::Index);
    let problem = problem.unwrap_or_else(|| panic!("{:?}", report.problems));
    assert!(problem.what.contains("event 30"), "{problem}");
}

#[test]
fn values_outside_the_bounds_of_their_clusters_are_reported() {
    let (folder, federation) = federation();
    with_history(&federation, 1);
    let mut transaction = begin(&federation);
    let database = transaction.database("run7").unwrap();
    let class = event_class();
    let options = ContainerOptions::default();
    let key = transaction.create_container(database, "others", &class, options).unwrap();
    transaction.extend(key, events(7, 1000, 10)).unwrap();
    transaction.commit().unwrap();
    assert_eq!(check(&federation, CheckLevel::Full).problems, []);
    drop(federation);
    // A container with as many entries, but other numbers, lends its statistics.
    let sql = rusqlite::Connection::open(folder.path().join("test.fed/catalogue.sqlite")).unwrap();
    for column in ["annex_offset", "annex_size"] {
        let lie = format!(
            "UPDATE versions SET {column} = (SELECT {column} FROM versions WHERE csn = 1) \
             WHERE csn = 2"
        );
        assert_eq!(sql.execute(&lie, []).unwrap(), 1);
    }
    drop(sql);
    let report = check(&reopened(&folder), CheckLevel::Full);
    let problem = report.problems.iter().find(|it| it.kind == ProblemKind::Statistics);
    let problem = problem.unwrap_or_else(|| panic!("{:?}", report.problems));
    assert!(problem.what.contains("field event of entry 0"), "{problem}");
}

/// Bytes that this thread reads from files during the work.
fn bytes_read<T>(work: impl FnOnce() -> T) -> u64 {
    let all = || {
        let counters = fs::read_to_string("/proc/thread-self/io").unwrap();
        let read = counters.lines().find_map(|line| line.strip_prefix("rchar: ")).unwrap();
        read.parse::<u64>().unwrap()
    };
    let before = all();
    work();
    all() - before
}

/// A commit has one record in a database, with all containers that it wrote there.
#[test]
fn the_cost_of_a_check_is_linear_in_the_containers_of_one_commit() {
    let bytes_of = |containers: u64| {
        let (_folder, federation) = federation();
        let mut transaction = begin(&federation);
        let database = transaction.create_database("run7").unwrap();
        for number in 0..containers {
            let options = ContainerOptions::default();
            let name = format!("c{number}");
            let key = transaction.create_container(database, &name, &event_class(), options);
            transaction.extend(key.unwrap(), events(7, number, 1)).unwrap();
        }
        transaction.commit().unwrap();
        let read = bytes_read(|| assert!(check(&federation, CheckLevel::Quick).is_sound()));
        read / containers
    };
    let (few, many) = (bytes_of(10), bytes_of(200));
    assert!(many < 2 * few, "{few} bytes for each of 10 containers, {many} for each of 200");
}
