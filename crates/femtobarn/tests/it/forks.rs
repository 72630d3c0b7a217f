//! Forks: tasks write for one transaction, each exactly once, and tasks that died leave nothing that counts.

use std::fs::File;
use std::path::Path;

use femtobarn::{
    CheckLevel, Class, ContainerKey, ErrorKind, Federation, FieldType, Fork, Receipt, Transaction,
    VacuumOptions,
};
use nix::libc::{c_void, mincore};
use rntuple::{Array, Primitive, values_of};

use crate::processes::{Process, Random, amount, job, say};
use crate::support::{begin, event_class, events, federation, numbers, reopened, with_ten_events};

/// Runs a task that writes `count` events from `first` on.
fn run(federation: &Federation, fork: &Fork, task: &str, first: u64, count: u64) -> Receipt {
    let mut writer = federation.begin_task(fork, task).unwrap();
    writer.extend(0, events(7, first, count)).unwrap();
    writer.finish().unwrap()
}

/// Opens `run7/events`, and forks.
fn forked(federation: &Federation) -> (Transaction, ContainerKey, Fork) {
    let mut transaction = begin(federation);
    let run7 = transaction.database("run7").unwrap();
    let key = transaction.container(run7, "events").unwrap();
    let fork = transaction.fork(&[key], &[]).unwrap();
    (transaction, key, fork)
}

fn assert_intact(federation: &Federation) {
    let report = federation.check(CheckLevel::Full, &mut |_| true).unwrap();
    assert_eq!(report.problems, []);
}

#[test]
fn tasks_of_other_federations_in_the_process_write_for_one_commit() {
    let (folder, federation) = federation();
    with_ten_events(&federation);
    let (mut transaction, key, fork) = forked(&federation);
    transaction.extend(key, events(7, 10, 3)).unwrap();
    let bytes = fork.encode();
    assert!(bytes.len() < 2000, "a fork has {} bytes", bytes.len());
    let other = reopened(&folder);
    let fork = Fork::decode(&bytes).unwrap();
    let receipts = [1_u64, 0].map(|task| {
        let receipt = run(&other, &fork, &format!("task {task}"), 100 * task, 2000);
        let bytes = receipt.encode();
        assert!(bytes.len() < 2000, "a receipt has {} bytes", bytes.len());
        Receipt::decode(&bytes).unwrap()
    });
    assert_eq!(numbers(&reopened(&folder), "run7/events"), (0..10).collect::<Vec<_>>());
    assert_eq!(transaction.merge(&receipts).unwrap(), 2);
    transaction.extend(key, events(7, 5000, 1)).unwrap();
    transaction.commit().unwrap();
    let expected: Vec<u64> = (0..13).chain(100..2100).chain(0..2000).chain([5000]).collect();
    for federation in [&federation, &reopened(&folder)] {
        assert_eq!(numbers(federation, "run7/events"), expected);
        assert_intact(federation);
    }
    let view = federation.snapshot(None).unwrap().view("run7/events").unwrap();
    let bounds = view.statistics("event").unwrap();
    assert_eq!(bounds.iter().map(|it| it.entries).sum::<u64>(), 4014, "clusters can be excluded");
}

#[test]
fn tasks_write_to_several_new_containers_and_databases() {
    let (folder, federation) = federation();
    let mut transaction = begin(&federation);
    let mut keys = vec![];
    for name in ["one", "two"] {
        let database = transaction.create_database(name).unwrap();
        let class = event_class();
        keys.push(transaction.create_container(database, "e", &class, Default::default()).unwrap());
    }
    let fork = transaction.fork(&keys, &[]).unwrap();
    let other = reopened(&folder);
    let mut writer = other.begin_task(&fork, "both").unwrap();
    let names: Vec<String> = writer.containers().map(|(path, _)| path.to_owned()).collect();
    assert_eq!(names, ["one/e", "two/e"]);
    writer.extend(0, events(1, 0, 3)).unwrap();
    writer.extend(1, events(2, 3, 4)).unwrap();
    let receipt = writer.finish().unwrap();
    let empty = other.begin_task(&fork, "none").unwrap().finish().unwrap();
    assert_eq!((receipt.entries(), empty.entries()), (7, 0));
    assert_eq!(transaction.merge(&[empty, receipt]).unwrap(), 2);
    transaction.commit().unwrap();
    for federation in [&federation, &reopened(&folder)] {
        assert_eq!(numbers(federation, "one/e"), [0, 1, 2]);
        assert_eq!(numbers(federation, "two/e"), [3, 4, 5, 6]);
        assert_intact(federation);
    }
}

/// The bytes of a file that are in the page cache.
fn cached_bytes(path: &Path) -> usize {
    // SAFETY: the file is not cut while it is mapped.
    let map = unsafe { memmap2::Mmap::map(&File::open(path).unwrap()) }.unwrap();
    let mut pages = vec![0_u8; map.len().div_ceil(4096)];
    // SAFETY: all of the map is asked for, and a byte is written for each of its pages.
    let answer = unsafe { mincore(map.as_ptr() as *mut c_void, map.len(), pages.as_mut_ptr()) };
    assert_eq!(answer, 0);
    4096 * pages.iter().filter(|page| **page & 1 == 1).count()
}

/// Two processes take turns in the file, of which a reader has parts in the page cache.
#[test]
fn large_tasks_write_past_the_page_cache_and_their_objects_are_read_back() {
    const COUNT: u64 = 120_000;
    let (folder, federation) = federation();
    with_ten_events(&federation);
    let (mut transaction, _, fork) = forked(&federation);
    let file = folder.path().join("test.fed/databases/run7.root");
    let run = |federation: &Federation, task: u64| {
        run(federation, &fork, &format!("task {task}"), task * COUNT, COUNT)
    };
    let others = [reopened(&folder), reopened(&folder)];
    let mut receipts: Vec<_> = (0..8).map(|task| run(&others[0], task)).collect();
    let (cached, written) = (cached_bytes(&file), 8 * COUNT as usize * 12);
    assert!(cached < written / 2, "{cached} of {written} bytes are in the page cache");
    for task in 8..14 {
        assert!(std::fs::read(&file).unwrap().len() > written);
        receipts.push(run(&others[task as usize % 2], task));
    }
    assert_eq!(transaction.merge(&receipts).unwrap(), 14);
    transaction.commit().unwrap();
    let view = federation.snapshot(None).unwrap().view("run7/events").unwrap();
    let read = view.read(&view.select(&["event"]).unwrap(), 10..view.entries()).unwrap();
    let Array::Record { members, .. } = read else { panic!("objects are records") };
    let Array::Primitive { values, .. } = &members[0].1 else { panic!("fields are numbers") };
    assert!(values_of::<u64>(values).unwrap().iter().copied().eq(0..14 * COUNT));
    assert_intact(&federation);
}

#[test]
fn a_task_that_ran_twice_counts_once_whatever_the_order_of_its_receipts() {
    let (_folder, federation) = federation();
    with_ten_events(&federation);
    let (mut transaction, key, fork) = forked(&federation);
    let start = transaction.savepoint().unwrap();
    let receipts = ["a", "b", "a", "b", "a"].map(|task| run(&federation, &fork, task, 20, 1));
    let mut merged = vec![];
    for order in [[0, 1, 2, 3, 4], [4, 3, 2, 1, 0], [2, 3, 4, 0, 1]] {
        let given = order.map(|number| receipts[number].clone());
        assert_eq!(transaction.merge(&given).unwrap(), 2);
        assert_eq!(transaction.entries(key).unwrap(), 12);
        assert_eq!(transaction.merge(&given).unwrap(), 0, "they count already");
        assert_eq!(transaction.entries(key).unwrap(), 12);
        merged.push(transaction.entries(key).unwrap());
        transaction.rollback_to(&start).unwrap();
        assert_eq!(transaction.entries(key).unwrap(), 10, "a rollback undoes a merge");
    }
    transaction.merge(&receipts).unwrap();
    transaction.checkpoint().unwrap();
    assert_eq!(transaction.merge(&receipts).unwrap(), 0, "they count after a checkpoint, too");
    let late = run(&federation, &fork, "c", 30, 1);
    assert_eq!(transaction.merge(&[late]).unwrap(), 1);
    transaction.commit().unwrap();
    assert_eq!(numbers(&federation, "run7/events")[10..], [20, 20, 30]);
    assert_intact(&federation);
}

#[test]
fn receipts_that_do_not_fit_are_refused_and_change_nothing() {
    let (folder, federation) = federation();
    with_ten_events(&federation);
    let (mut transaction, key, fork) = forked(&federation);
    let good = run(&federation, &fork, "good", 20, 5);
    let bytes = good.encode();
    for place in 0..bytes.len() {
        let mut damaged = bytes.clone();
        damaged[place] ^= 1;
        assert_eq!(Receipt::decode(&damaged).unwrap_err().kind(), ErrorKind::Corrupt);
        assert_eq!(Receipt::decode(&bytes[..place]).unwrap_err().kind(), ErrorKind::Corrupt);
        assert_eq!(Fork::decode(&bytes[place..]).unwrap_err().kind(), ErrorKind::Corrupt);
    }
    let (elsewhere, other) = crate::support::federation();
    with_ten_events(&other);
    let (foreign, _, foreign_fork) = forked(&other);
    assert_eq!(federation.begin_task(&foreign_fork, "x").err().unwrap().kind(), ErrorKind::Invalid);
    let of_other = run(&other, &foreign_fork, "x", 0, 1);
    drop((foreign, elsewhere));
    let mut refused = |receipt: &Receipt, kind: ErrorKind, text: &str| {
        let error = transaction.merge(&[good.clone(), receipt.clone()]).unwrap_err();
        assert_eq!(error.kind(), kind, "{error}");
        assert!(error.to_string().contains(text), "{error}");
        assert_eq!(transaction.entries(key).unwrap(), 10);
    };
    refused(&of_other, ErrorKind::Invalid, "another federation");
    let damaged = run(&federation, &fork, "damaged", 20, 5);
    let path = folder.path().join("test.fed/databases/run7.root");
    let mut file = std::fs::read(&path).unwrap();
    let text = serde_json::from_slice::<serde_json::Value>(&damaged.encode()[24..]).unwrap();
    let place = text["parts"][0]["page_list"]["offset"].as_u64().unwrap() as usize;
    file[place + 20] ^= 1;
    std::fs::write(&path, &file).unwrap();
    refused(&damaged, ErrorKind::Corrupt, "checksum");
    transaction.rollback();
    let (mut transaction, ..) = forked(&federation);
    let error = transaction.merge(&[good]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(error.to_string().contains("another transaction"), "{error}");
}

#[test]
fn receipts_of_an_older_class_or_a_dropped_container_are_conflicts() {
    let (_folder, federation) = federation();
    with_ten_events(&federation);
    let (mut transaction, key, fork) = forked(&federation);
    let before = transaction.savepoint().unwrap();
    let receipt = run(&federation, &fork, "a", 20, 5);
    let mut newer = event_class();
    newer.version = 2;
    newer.fields[0].of = FieldType::UInt64;
    transaction.evolve(key, &newer).unwrap();
    let error = transaction.merge(std::slice::from_ref(&receipt)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
    transaction.rollback_to(&before).unwrap();
    assert_eq!(transaction.merge(std::slice::from_ref(&receipt)).unwrap(), 1);
    transaction.rollback_to(&before).unwrap();
    transaction.drop_container(key.database, "events").unwrap();
    assert_eq!(transaction.merge(&[receipt]).unwrap_err().kind(), ErrorKind::Conflict);
}

#[test]
fn tasks_of_an_evolved_container_with_updates_and_an_index_are_read_back() {
    let (folder, federation) = federation();
    with_ten_events(&federation);
    let mut transaction = begin(&federation);
    let run7 = transaction.database("run7").unwrap();
    let key = transaction.container(run7, "events").unwrap();
    let newer = Class::from_json(
        r#"{"name": "Event", "version": 2, "fields": [
        {"name": "run", "type": "uint32"}, {"name": "event", "type": "uint64"},
        {"name": "tracks", "type": {"list": "float32"}}]}"#,
    );
    transaction.evolve(key, &newer.unwrap()).unwrap();
    transaction.create_index(key, "by_event", &["event"], true).unwrap();
    transaction.commit().unwrap();
    let (mut transaction, key, fork) = forked(&federation);
    let tracks = Array::List {
        offsets: rntuple::bytes_of(vec![0_i64, 2, 2, 3]),
        content: Box::new(Array::primitive(Primitive::Float32, vec![1_f32, 2., 3.])),
        optional: false,
    };
    let Array::Record { length, mut members } = events(7, 10, 3) else { unreachable!() };
    members.push(("tracks".to_owned(), tracks));
    let mut writer = federation.begin_task(&fork, "a").unwrap();
    assert_eq!(writer.extend(0, events(7, 0, 1)).unwrap_err().kind(), ErrorKind::Invalid);
    writer.extend(0, Array::Record { length, members }).unwrap();
    transaction.delete(key, &[0]).unwrap();
    transaction.merge(&[writer.finish().unwrap()]).unwrap();
    transaction.commit().unwrap();
    for federation in [&federation, &reopened(&folder)] {
        assert_eq!(numbers(federation, "run7/events"), (1..13).collect::<Vec<_>>());
        assert_intact(federation);
    }
    let (mut transaction, _, fork) = forked(&federation);
    let Array::Record { members: mut again, .. } = events(7, 12, 1) else { unreachable!() };
    again.push((
        "tracks".to_owned(),
        Array::List {
            offsets: rntuple::bytes_of(vec![0_i64, 0]),
            content: Box::new(Array::primitive(Primitive::Float32, Vec::<f32>::new())),
            optional: false,
        },
    ));
    let mut writer = federation.begin_task(&fork, "a").unwrap();
    writer.extend(0, Array::Record { length: 1, members: again }).unwrap();
    transaction.merge(&[writer.finish().unwrap()]).unwrap();
    assert_eq!(transaction.commit().unwrap_err().kind(), ErrorKind::Exists, "keys are unique");
}

/// A job: begins a task, reports that, and writes until it is killed or reports its receipt.
#[test]
fn task_process() {
    let Some((folder, arguments)) = job() else { return };
    let (number, count) = (arguments[0], arguments[1]);
    let federation = Federation::open(&folder).unwrap();
    let fork = Fork::decode(&std::fs::read(folder.with_extension("fork")).unwrap()).unwrap();
    let mut writer = federation.begin_task(&fork, &format!("task {number}")).unwrap();
    for part in 0..count {
        writer.extend(0, events(7, 1000 * number + 100 * part, 100)).unwrap();
        say(&[part]);
    }
    let bytes = writer.finish().unwrap().encode();
    say(&bytes.iter().map(|byte| u64::from(*byte)).collect::<Vec<_>>());
}

#[test]
fn tasks_that_were_killed_leave_nothing_and_their_second_runs_count_once() {
    let (folder, federation) = federation();
    with_ten_events(&federation);
    let mut random = Random(5);
    for round in 0..amount(3, 30) {
        let (mut transaction, key, fork) = forked(&federation);
        let before = transaction.entries(key).unwrap();
        let place = folder.path().join("test.fed");
        std::fs::write(place.with_extension("fork"), fork.encode()).unwrap();
        let mut receipts = vec![];
        for number in 0..3 {
            let name = "forks::task_process";
            let mut doomed = Process::start(name, &place, &format!("{number} 10"));
            // Killed anywhere between its first objects and its end; a receipt that arrived before counts. The first
            // task has written everything: how much the others have written depends on how soon they are killed.
            let said_before = if number == 0 { 11 } else { 1 + random.below(11) };
            (0..said_before).for_each(|_| drop(doomed.next()));
            let said = doomed.kill();
            let mut again = Process::start(name, &place, &format!("{number} 10"));
            let second = std::iter::from_fn(|| again.next()).collect::<Vec<_>>();
            again.finish();
            for line in said.iter().chain(&second).filter(|line| line.len() > 100) {
                let bytes: Vec<u8> = line.iter().map(|byte| *byte as u8).collect();
                receipts.push(Receipt::decode(&bytes).unwrap());
            }
        }
        assert_eq!(transaction.merge(&receipts).unwrap(), 3);
        transaction.commit().unwrap();
        let expected: Vec<u64> = (0..3000).collect();
        assert_eq!(
            numbers(&federation, "run7/events")[before as usize..],
            expected,
            "round {round}"
        );
        assert_intact(&federation);
    }
    let before = numbers(&federation, "run7/events");
    federation.release_extents();
    let report = federation.vacuum(&VacuumOptions::default(), &mut |_| true).unwrap();
    assert!(report.garbage_bytes > 0, "of the tasks that were killed");
    assert_eq!(numbers(&reopened(&folder), "run7/events"), before);
    assert_intact(&federation);
}

#[test]
fn vacuum_spares_bytes_of_tasks_until_the_transaction_ends() {
    let (folder, federation) = federation();
    with_ten_events(&federation);
    let (mut transaction, _, fork) = forked(&federation);
    let receipt = run(&reopened(&folder), &fork, "a", 10, 1000);
    let report = federation.vacuum(&VacuumOptions::default(), &mut |_| true).unwrap();
    assert_eq!(report.busy, ["run7"]);
    transaction.merge(&[receipt]).unwrap();
    transaction.commit().unwrap();
    assert_eq!(numbers(&federation, "run7/events"), (0..1010).collect::<Vec<_>>());
    let (transaction, _, fork) = forked(&federation);
    drop(run(&reopened(&folder), &fork, "a", 0, 1000));
    transaction.rollback();
    federation.release_extents();
    let report = federation.vacuum(&VacuumOptions::default(), &mut |_| true).unwrap();
    assert!(report.garbage_bytes >= 8000, "{report:?}");
    assert_eq!(numbers(&federation, "run7/events"), (0..1010).collect::<Vec<_>>());
    assert_intact(&federation);
}

#[test]
fn a_fork_whose_transaction_made_the_database_ends_with_it() {
    let (folder, federation) = federation();
    let mut transaction = begin(&federation);
    let run7 = transaction.create_database("run7").unwrap();
    let key = transaction.create_container(run7, "e", &event_class(), Default::default()).unwrap();
    let fork = transaction.fork(&[key], &[]).unwrap();
    transaction.rollback();
    let error = reopened(&folder).begin_task(&fork, "a").err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Closed);
    assert!(error.to_string().contains("has ended; fork again"), "{error}");
}
