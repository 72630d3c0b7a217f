//! Measures finding an object by its key, following links, and the cost of an index.
//!
//! `cargo run --release --example finding -- [objects]` prints microseconds; by default there are a million objects.
//! The objects are in random order of their keys and are committed in transactions of two sizes.

use std::error::Error;
use std::time::Instant;

use femtobarn::{Class, ContainerOptions, Federation, Oid, TransactionOptions};
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeVal;
use rntuple::{Array, Primitive, Value};

const LOOK_UPS: u64 = 200_000;
const COMMITS: u64 = 100;

fn class() -> femtobarn::Result<Class> {
    Class::from_json(
        r#"{"name": "Event", "version": 1, "fields": [
            {"name": "run", "type": "uint32"}, {"name": "event", "type": "uint64"},
            {"name": "weight", "type": "float32"}, {"name": "hits", "type": {"array": {"of": "float32", "size": 20}}}]}"#,
    )
}

/// The key of the object at an entry: runs of 1000 events, mixed up.
fn key(entry: u64, objects: u64) -> (u32, u64) {
    let mixed = entry.wrapping_mul(0x9E37_79B9_7F4A_7C15) % objects;
    ((mixed / 1000) as u32, entry)
}

fn events(first: u64, count: u64, objects: u64) -> Array {
    let keys: Vec<(u32, u64)> = (first..first + count).map(|entry| key(entry, objects)).collect();
    let hits = Array::primitive(Primitive::Float32, vec![0.5_f32; 20 * count as usize]);
    let length = count as usize;
    let members = vec![
        ("run", Array::primitive(Primitive::UInt32, keys.iter().map(|key| key.0).collect())),
        ("event", Array::primitive(Primitive::UInt64, keys.iter().map(|key| key.1).collect())),
        ("weight", Array::primitive(Primitive::Float32, vec![1.0_f32; length])),
        ("hits", Array::Fixed { size: 20, length, content: hits.into() }),
    ];
    let members = members.into_iter().map(|(name, array)| (name.to_owned(), array)).collect();
    Array::Record { length, members }
}

/// Seconds of processor time that this process has used.
fn processor_seconds() -> f64 {
    let usage = getrusage(UsageWho::RUSAGE_SELF).expect("a process knows its own usage");
    let seconds = |time: TimeVal| time.tv_sec() as f64 + time.tv_usec() as f64 / 1e6;
    seconds(usage.user_time()) + seconds(usage.system_time())
}

fn timed<T>(
    what: &str,
    count: u64,
    work: impl FnOnce() -> femtobarn::Result<T>,
) -> femtobarn::Result<T> {
    let (start, used) = (Instant::now(), processor_seconds());
    let result = work()?;
    let each = |seconds: f64| seconds * 1e6 / count as f64;
    let (elapsed, used) = (each(start.elapsed().as_secs_f64()), each(processor_seconds() - used));
    println!("{what:40} {elapsed:9.3} us, {used:9.3} us of processor time, each of {count}");
    Ok(result)
}

fn main() -> Result<(), Box<dyn Error>> {
    let objects = std::env::args().nth(1).map_or(Ok(1_000_000), |count| count.parse())?;
    let folder = tempfile::tempdir()?;
    let federation = Federation::create(&folder.path().join("find.fed"), "find")?;
    let begin = || federation.transaction(TransactionOptions::default());
    let mut transaction = begin()?;
    let database = transaction.create_database("run7")?;
    let options = ContainerOptions { page_size: 16 << 10, ..Default::default() };
    let container = transaction.create_container(database, "events", &class()?, options)?;
    let most = objects * 9 / 10;
    timed("append and commit without an index", most, || {
        transaction.extend(container, events(0, most, objects))?;
        transaction.commit()
    })?;
    timed("build the index and commit", most, || {
        let mut transaction = begin()?;
        transaction.container(database, "events")?;
        transaction.create_index(container, "event", &["run", "event"], true)?;
        transaction.commit()
    })?;
    let rest = objects - most;
    timed("append and commit with the index", rest, || {
        for part in 0..COMMITS {
            let (first, end) = (most + rest * part / COMMITS, most + rest * (part + 1) / COMMITS);
            let mut transaction = begin()?;
            transaction.container(database, "events")?;
            transaction.extend(container, events(first, end - first, objects))?;
            transaction.commit()?;
        }
        Ok(())
    })?;
    let snapshot = federation.snapshot(None)?;
    let view = snapshot.view("run7/events")?;
    println!("{:?}", view.indexes()?);
    let entry = |n: u64| n.wrapping_mul(0xD134_2543_DE82_EF95) % objects;
    let find = |n: u64| {
        let (run, event) = key(entry(n), objects);
        view.find(&[("run", Value::UInt(run.into())), ("event", Value::UInt(event))])
    };
    timed("first look-up", 1, || find(0))?;
    timed("look-ups, getting warm", LOOK_UPS, || {
        (0..LOOK_UPS).try_for_each(|n| find(n).map(drop))
    })?;
    timed("look-ups, warm", LOOK_UPS, || {
        (0..LOOK_UPS).try_for_each(|n| find(n).map(|found| assert_eq!(found, Some(entry(n)))))
    })?;
    timed("look-ups of a key that is not there", LOOK_UPS, || {
        let absent = |n| [("run", Value::UInt(n)), ("event", Value::UInt(objects + n))];
        (0..LOOK_UPS).try_for_each(|n| view.find(&absent(n % 1000)).map(drop))
    })?;
    timed("objects by OID, one by one", LOOK_UPS, || {
        let selection = view.select(&["weight"])?;
        (0..LOOK_UPS).try_for_each(|n| view.values(&selection, entry(n)).map(drop))
    })?;
    for (what, count) in [("far apart", LOOK_UPS / 20), ("near each other", LOOK_UPS)] {
        let links: Vec<Oid> = (0..count).map(|n| view.oid(entry(n))).collect();
        timed(&format!("following links, {what}"), count, || {
            snapshot.follow(&links, &["weight", "run"])
        })?;
    }
    Ok(())
}
