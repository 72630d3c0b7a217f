//! Several processes write at once, and processes are killed while they write.
//!
//! Every writer has a number. In each transaction it appends the same count of events to its own container of
//! a shared database and to a container of its own database, and as many links from the latter to the former
//! and to the events of other writers. The counts follow from the number of the transaction, so that
//! committed objects can be distinguished from uncommitted ones.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::Path;
use std::time::Duration;

use femtobarn::{
    Class, ContainerKey, ContainerOptions, Csn, DatabaseState, ErrorKind, Federation, Oid, Profile,
    Snapshot, Transaction, View,
};
use rntuple::{Reader, Value};

use crate::links::{link, target};
use crate::processes::{Process, Random, amount, job, say};
use crate::support::{assert_chain, begin, event_class, events, federation, number, reopened};

const WRITERS: u64 = 4;

/// Events of the k-th transaction of a writer: few, or so many that pages are written before the
/// commit.
fn count(writer: u64, transaction: u64) -> u64 {
    match (writer + transaction) % 5 {
        0 => 3000,
        other => 1 + 7 * other,
    }
}

/// Events of a writer after so many transactions.
fn total(writer: u64, transactions: u64) -> u64 {
    (0..transactions).map(|transaction| count(writer, transaction)).sum()
}

/// Transactions after which a writer has so many events; none if it never has.
fn transactions_of(writer: u64, events: u64) -> Option<u64> {
    (0..).find(|&k| total(writer, k) >= events).filter(|&k| total(writer, k) == events)
}

fn reference_class() -> Class {
    let json = r#"{"name": "Reference", "version": 1, "fields": [
        {"name": "own", "type": {"link": "Event"}},
        {"name": "others", "type": {"list": {"link": "Event"}}}]}"#;
    Class::from_json(json).unwrap()
}

fn create_shared(federation: &Federation) {
    let mut transaction = begin(federation);
    transaction.create_database("shared").unwrap();
    transaction.commit().unwrap();
}

/// The container of a name, created if it does not exist.
fn container(
    transaction: &mut Transaction,
    database: &str,
    name: &str,
    class: &Class,
    compression: Profile,
) -> ContainerKey {
    let database =
        transaction.database(database).or_else(|_| transaction.create_database(database)).unwrap();
    match transaction.container(database, name) {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            let options = ContainerOptions {
                page_size: 4096,
                cluster_size: 16 << 10,
                compression,
                ..Default::default()
            };
            transaction.create_container(database, name, class, options).unwrap()
        }
        opened => opened.unwrap(),
    }
}

/// One transaction of a writer: returns its commit and how many events the writer has then.
fn write(federation: &Federation, writer: u64, transaction_number: u64) -> (Csn, u64) {
    let seen = federation.snapshot(None).unwrap();
    let mut transaction = begin(federation);
    let (own, name) = (format!("own{writer}"), format!("events{writer}"));
    let compression = [Profile::Plain, Profile::Fast][writer as usize % 2];
    let class = event_class();
    let shared = container(&mut transaction, "shared", &name, &class, compression);
    let copies = container(&mut transaction, &own, "events", &class, compression);
    let references =
        container(&mut transaction, &own, "references", &reference_class(), compression);
    let first = transaction.entries(shared).unwrap();
    assert_eq!(transactions_of(writer, first), Some(transaction_number));
    let count = count(writer, transaction_number);
    transaction.extend(shared, events(writer as u32, first, count)).unwrap();
    for n in first..first + count {
        let others: Vec<Value> = others(&seen, writer, n).into_iter().map(link).collect();
        let own = link(Some(Oid::new(shared.database, shared.container, n)));
        let members = [("own", own), ("others", Value::List(others))];
        let members = members.map(|(name, value)| (name.to_owned(), value));
        transaction.append_value(references, Value::Record(members.to_vec())).unwrap();
    }
    transaction.extend(copies, events(writer as u32, first, count)).unwrap();
    // Databases that are created while a process may be killed, each with something in it.
    if transaction_number % 4 == 3 {
        let extra = format!("extra{writer}-{transaction_number}");
        let key = container(&mut transaction, &extra, "events", &class, Profile::Plain);
        transaction.extend(key, events(writer as u32, 0, 10)).unwrap();
    }
    (transaction.commit().unwrap(), first + count)
}

/// Events of other writers, visible in a snapshot, that the n-th reference links to.
fn others(seen: &Snapshot, writer: u64, n: u64) -> Vec<Option<Oid>> {
    let other = (writer + 1 + n % (WRITERS - 1)) % WRITERS;
    let Ok(view) = seen.view(&format!("shared/events{other}")) else { return vec![None] };
    let pick = |k: u64| Some(view.oid((n * 31 + k * 17) % view.entries()));
    (0..n % 3).map(pick).collect()
}

/// Fails unless a writer's events, their copies and its links are complete and equal to what its
/// transactions wrote. Returns the number of these transactions.
fn verify(snapshot: &Snapshot, writer: u64) -> u64 {
    let Ok(shared) = snapshot.view(&format!("shared/events{writer}")) else {
        assert!(snapshot.view(&format!("own{writer}/events")).is_err(), "half a commit");
        return 0;
    };
    let copies = snapshot.view(&format!("own{writer}/events")).unwrap();
    let references = snapshot.view(&format!("own{writer}/references")).unwrap();
    let entries = shared.entries();
    assert_eq!((copies.entries(), references.entries()), (entries, entries), "half a commit");
    for view in [&shared, &copies] {
        let all = view.read(&view.select_all(), 0..entries).unwrap();
        for n in 0..entries {
            let event = all.value(n as usize).unwrap();
            assert_eq!(number(&event), n);
            assert_eq!(event.member("run"), Some(&Value::UInt(writer)));
        }
    }
    verify_references(snapshot, &shared, &references);
    let transactions = transactions_of(writer, entries).expect("whole transactions");
    for k in 0..transactions {
        let extra = snapshot.view(&format!("extra{writer}-{k}/events"));
        assert_eq!(extra.map(|view| view.entries()).ok(), (k % 4 == 3).then_some(10));
    }
    transactions
}

fn verify_references(snapshot: &Snapshot, shared: &View, references: &View) {
    let all = references.read(&references.select_all(), 0..references.entries()).unwrap();
    for n in 0..references.entries() {
        let reference = all.value(n as usize).unwrap();
        assert_eq!(reference.member("own").and_then(target), Some(shared.oid(n)));
        let Some(Value::List(others)) = reference.member("others") else { panic!("no links") };
        for oid in others.iter().filter_map(target) {
            assert_ne!(oid.container, shared.container().id);
            // One in many is followed; all lead to an entry that is there.
            let other = snapshot.view_by_id(oid.database, oid.container).unwrap();
            assert!(oid.entry < other.entries());
            if n % 50 == 0 {
                assert_eq!(number(&snapshot.object(oid).unwrap()), oid.entry);
            }
        }
    }
}

/// Continues where the writer left off, and reports each commit.
#[test]
fn job_write() {
    let Some((folder, arguments)) = job() else { return };
    let &[writer, transactions] = &arguments[..] else { panic!("two arguments") };
    let federation = Federation::open(&folder).unwrap();
    let name = format!("shared/events{writer}");
    let entries = federation.snapshot(None).unwrap().view(&name).map_or(0, |view| view.entries());
    let first = transactions_of(writer, entries).unwrap();
    for transaction in first..first + transactions {
        let (csn, events) = write(&federation, writer, transaction);
        say(&[csn.0, events]);
    }
}

fn start(folder: &Path, writer: u64, transactions: u64) -> Process {
    Process::start("writers::job_write", folder, &format!("{writer} {transactions}"))
}

#[test]
fn four_processes_write_at_once() {
    let (folder, federation) = federation();
    create_shared(&federation);
    let path = folder.path().join("test.fed");
    let transactions = amount(12, 200);
    let writers: Vec<Process> =
        (0..WRITERS).map(|writer| start(&path, writer, transactions)).collect();
    // A reader meanwhile sees whole transactions, whenever it looks.
    for _ in 0..5 {
        let snapshot = federation.snapshot(None).unwrap();
        (0..WRITERS).for_each(|writer| assert!(verify(&snapshot, writer) <= transactions));
    }
    let mut commits = vec![];
    for mut writer in writers {
        commits.extend(std::iter::from_fn(|| writer.next()).map(|said| said[0]));
        writer.finish();
    }
    commits.sort_unstable();
    commits.dedup();
    assert_eq!(
        commits.len() as u64,
        WRITERS * transactions,
        "every commit has a number of its own"
    );
    for federation in [federation, reopened(&folder)] {
        let snapshot = federation.snapshot(None).unwrap();
        for writer in 0..WRITERS {
            assert_eq!(verify(&snapshot, writer), transactions);
        }
    }
    seal_and_check(&folder);
}

/// All databases become ROOT files whose keys follow each other from front to end.
fn seal_and_check(folder: &tempfile::TempDir) {
    let federation = reopened(folder);
    let snapshot = federation.snapshot(None).unwrap();
    for database in snapshot.databases().unwrap() {
        federation.seal(&database.name, Duration::ZERO).unwrap();
        let path = federation.folder().join(&database.path);
        let file = std::sync::Arc::new(std::fs::File::open(&path).unwrap());
        assert_chain(&path);
        for container in snapshot.containers(database.id).unwrap() {
            let reader = Reader::open(file.clone(), &container.name).unwrap();
            let view = snapshot.view(&format!("{}/{}", database.name, container.name)).unwrap();
            assert_eq!(reader.entries(), view.entries());
        }
    }
}

/// Every kill is at another moment: while a process opens the federation, fills pages, writes
/// footers, syncs, commits, or reports the commit.
#[test]
fn killed_writers_lose_no_commit_and_leave_no_partial_one() {
    let seed = std::env::var("FEMTOBARN_SEED").map_or(17, |seed| seed.parse().unwrap());
    let mut random = Random(seed);
    let (folder, federation) = federation();
    create_shared(&federation);
    drop(federation);
    let path = folder.path().join("test.fed");
    let mut acknowledged = [0_u64; 2];
    let mut head = 0;
    for round in 0..amount(20, 150) {
        // Usually one of the two commits at least once before both are killed.
        let mut processes: Vec<Process> = (0..2).map(|writer| start(&path, writer, 1000)).collect();
        if random.below(4) > 0 {
            processes[round as usize % 2].next().expect("the locks of killed processes are free");
        }
        for (writer, process) in processes.into_iter().enumerate() {
            std::thread::sleep(Duration::from_micros(random.below(30_000)));
            for said in process.kill() {
                acknowledged[writer] = said[1];
                head = head.max(said[0]);
            }
        }
        let snapshot = reopened(&folder).snapshot(None).unwrap();
        assert!(snapshot.csn().0 >= head, "seed {seed}, round {round}");
        for writer in 0..2 {
            let transactions = verify(&snapshot, writer);
            let (has, said) = (total(writer, transactions), acknowledged[writer as usize]);
            assert!(has >= said, "seed {seed}, round {round}: {has} of {said} events");
            acknowledged[writer as usize] = has;
        }
    }
    // The killed processes left nothing behind that stops later writers.
    for writer in 0..2 {
        start(&path, writer, 3).finish();
    }
    let snapshot = reopened(&folder).snapshot(None).unwrap();
    for writer in 0..2 {
        assert!(total(writer, verify(&snapshot, writer)) > acknowledged[writer as usize]);
    }
    drop(snapshot);
    seal_and_check(&folder);
}

/// Seals one database after the other.
#[test]
fn job_seal() {
    let Some((folder, arguments)) = job() else { return };
    let federation = Federation::open(&folder).unwrap();
    say(&[0]);
    for database in arguments[0].. {
        match federation.seal(&format!("d{database}"), Duration::from_secs(1)) {
            Ok(csn) => say(&[csn.0]),
            Err(error) => return assert_eq!(error.kind(), ErrorKind::NotFound, "{error}"),
        }
    }
}

#[test]
fn a_database_whose_sealer_was_killed_is_open_or_sealed() {
    let mut random = Random(29);
    let (folder, federation) = federation();
    let path = folder.path().join("test.fed");
    let databases = amount(30, 500);
    let mut transaction = begin(&federation);
    for n in 0..databases {
        let name = format!("d{n}");
        let key = container(&mut transaction, &name, "events", &event_class(), Profile::Plain);
        transaction.extend(key, events(n as u32, 0, 500)).unwrap();
    }
    transaction.commit().unwrap();
    let mut first = 0;
    while first < databases {
        let mut sealer = Process::start("writers::job_seal", &path, &first.to_string());
        sealer.next().unwrap();
        std::thread::sleep(Duration::from_micros(random.below(4000)));
        let sealed = sealer.kill().len() as u64;
        let federation = reopened(&folder);
        // The database that was being sealed may be open or sealed; every one that was reported is sealed.
        let mut next = first + sealed;
        let last = next + 1;
        for n in first..last.min(databases) {
            let state = state(&federation, n);
            assert!(state == DatabaseState::Sealed || n == next, "database {n} is {state}");
            let mut count = 500;
            if state == DatabaseState::Open {
                let mut transaction = begin(&federation);
                let name = format!("d{n}");
                let key =
                    container(&mut transaction, &name, "events", &event_class(), Profile::Plain);
                transaction.extend(key, events(n as u32, 500, 20)).unwrap();
                count += 20;
                transaction.commit().unwrap();
                federation.seal(&name, Duration::ZERO).unwrap();
            }
            check_sealed(&federation, n, count);
            next = next.max(n);
        }
        first = last;
    }
}

#[test]
fn a_key_that_a_killed_sealer_began_hides_no_data() {
    for (appends, payload) in [(false, 10_u64), (true, 10), (true, 0)] {
        let (folder, federation) = federation();
        let mut transaction = begin(&federation);
        let key = container(&mut transaction, "d0", "events", &event_class(), Profile::Plain);
        transaction.extend(key, events(0, 0, 500)).unwrap();
        transaction.commit().unwrap();
        drop(federation);
        // The key of the list of keys claims 300 bytes, of which few were written.
        let path = folder.path().join("test.fed/databases/d0.root");
        let mut file = OpenOptions::new().append(true).open(&path).unwrap();
        let end = file.metadata().unwrap().len();
        let header =
            rntuple::tfile::encode_key("TFile", "d0.root", "", 300, end, Default::default())
                .unwrap();
        file.write_all(&header).unwrap();
        file.write_all(&vec![7; payload as usize]).unwrap();

        let federation = reopened(&folder);
        let mut count = 500;
        if appends {
            let mut transaction = begin(&federation);
            let key = container(&mut transaction, "d0", "events", &event_class(), Profile::Plain);
            transaction.extend(key, events(0, 500, 20)).unwrap();
            transaction.commit().unwrap();
            count += 20;
        }
        federation.seal("d0", Duration::ZERO).unwrap();
        check_sealed(&federation, 0, count);
    }
}

fn state(federation: &Federation, n: u64) -> DatabaseState {
    let snapshot = federation.snapshot(None).unwrap();
    let databases = snapshot.databases().unwrap();
    databases.into_iter().find(|row| row.name == format!("d{n}")).unwrap().state
}

fn check_sealed(federation: &Federation, n: u64, count: u64) {
    let path = federation.folder().join(format!("databases/d{n}.root"));
    assert_chain(&path);
    let file = std::sync::Arc::new(std::fs::File::open(path).unwrap());
    assert_eq!(Reader::open(file, "events").unwrap().entries(), count);
    let view = federation.snapshot(None).unwrap().view(&format!("d{n}/events")).unwrap();
    assert_eq!(view.entries(), count);
    assert_eq!(number(&view.value(count - 1).unwrap()), count - 1);
}
