//! Opaque objects, appended one by one by one or several writers.

use std::path::Path;

use bytes::Bytes;
use femtobarn::{
    Class, ContainerKey, ContainerOptions, Federation, Link, Oid, OpenOptions, Transaction,
    TransactionOptions,
};
use rntuple::{Cell, row};

use femtobarn_bench::{Appends, Outcome, Pool, SMALL_BYTES, SMALL_OBJECTS, Stopwatch};

/// The database that the writers share.
const DATABASE: &str = "objects";

/// Objects of this size are arrays of a fixed length. Others are lists of bytes, which store their length.
pub(crate) const FIXED_BYTES: usize = 100;

const FIXED: &str = r#"{"name": "bytes", "type": {"array": {"of": "uint8", "size": 100}}}"#;
const OBJECT: &str =
    r#"{"name": "id", "type": "uint64"}, {"name": "blob", "type": {"list": "uint8"}}"#;
/// Links that an object may have.
const LINKS: [&str; 4] = ["first", "second", "third", "fourth"];

row! {
    pub struct Fixed { pub bytes: [u8; 100] }
}
row! {
    pub struct Object { id: u64, pub blob: Bytes }
}
row! {
    struct FixedWithLink { bytes: [u8; 100], first: Link }
}
row! {
    struct FixedWithLinks { bytes: [u8; 100], first: Link, second: Link, third: Link, fourth: Link }
}
row! {
    struct ObjectWithLink { id: u64, blob: Bytes, first: Link }
}
row! {
    struct ObjectWithLinks {
        id: u64, blob: Bytes, first: Link, second: Link, third: Link, fourth: Link,
    }
}

impl Fixed {
    /// An object of the pool.
    pub(crate) fn new(pool: &Pool, id: u64) -> Self {
        Fixed {
            bytes: pool.object(id).try_into().expect("the objects of the pool have this length"),
        }
    }
}

impl Object {
    /// An object of the pool.
    pub(crate) fn new(pool: &Pool, id: u64) -> Self {
        Object { id, blob: pool.shared(id) }
    }
}

/// The class of objects with these numbers of bytes and links.
pub(crate) fn class_of(size: usize, links: usize) -> Outcome<Class> {
    let (name, mut fields) = match size {
        FIXED_BYTES => ("Fixed", FIXED.to_owned()),
        _ => ("Object", OBJECT.to_owned()),
    };
    for link in &LINKS[..links] {
        fields += &format!(r#", {{"name": "{link}", "type": {{"link": "{name}"}}}}"#);
    }
    let json = format!(r#"{{"name": "{name}", "version": 1, "fields": [{fields}]}}"#);
    Ok(Class::from_json(&json)?)
}

/// Where writers write to: containers of one database, or a database each.
fn place(writer: u64, of: &str) -> (String, String) {
    match of {
        "shared" => (DATABASE.to_owned(), container_name(writer)),
        _ => (format!("objects{writer}"), "objects".to_owned()),
    }
}

/// The container of a writer, of those that share a database.
pub(crate) fn container_name(writer: u64) -> String {
    format!("w{writer}")
}

/// Makes a federation with a container for each writer.
pub(crate) fn create(folder: &Path, of: &str, size: usize, links: usize, writers: u64) -> Outcome {
    let federation = Federation::create(folder, "bench")?;
    let class = class_of(size, links)?;
    let mut transaction = federation.transaction(TransactionOptions::default())?;
    for writer in 0..writers {
        let (database, container) = place(writer, of);
        let id = if writer > 0 && of == "shared" {
            transaction.database(&database)?
        } else {
            transaction.create_database(&database)?
        };
        transaction.create_container(id, &container, &class, ContainerOptions::default())?;
    }
    transaction.commit()?;
    Ok(())
}

/// Appends objects to the writer's container. Each link of the class points to an earlier object.
pub(crate) fn append(folder: &Path, of: &str, work: &Appends) -> Outcome {
    let pool = &work.pool;
    let federation = crate::open(folder, OpenOptions::default())?;
    let mut transaction = federation.transaction(TransactionOptions::default())?;
    let own = container(&mut transaction, &place(work.writer, of))?;
    let links = transaction.class(own)?.fields.iter().filter(|f| LINKS.contains(&f.name.as_str()));
    let links = links.count();
    drop(transaction);
    let to = |id: u64, back: u64| -> Link {
        Oid::new(own.database, own.container, id.saturating_sub(back)).into()
    };
    match (pool.size(), links) {
        (FIXED_BYTES, 0) => append_rows(federation, of, work, folder, |id| Fixed::new(pool, id)),
        (FIXED_BYTES, 1) => append_rows(federation, of, work, folder, |id| FixedWithLink {
            bytes: Fixed::new(pool, id).bytes,
            first: to(id, 1),
        }),
        (FIXED_BYTES, _) => append_rows(federation, of, work, folder, |id| FixedWithLinks {
            bytes: Fixed::new(pool, id).bytes,
            first: to(id, 1),
            second: to(id, 2),
            third: to(id, 3),
            fourth: to(id, 4),
        }),
        (_, 0) => append_rows(federation, of, work, folder, |id| Object::new(pool, id)),
        (_, 1) => append_rows(federation, of, work, folder, |id| ObjectWithLink {
            id,
            blob: pool.shared(id),
            first: to(id, 1),
        }),
        _ => append_rows(federation, of, work, folder, |id| ObjectWithLinks {
            id,
            blob: pool.shared(id),
            first: to(id, 1),
            second: to(id, 2),
            third: to(id, 3),
            fourth: to(id, 4),
        }),
    }
}

fn append_rows<R: Cell>(
    federation: Federation,
    of: &str,
    work: &Appends,
    folder: &Path,
    row: impl Fn(u64) -> R,
) -> Outcome {
    let own = place(work.writer, of);
    let watch = Stopwatch::start();
    for ids in work.transactions() {
        let mut transaction = federation.transaction(TransactionOptions::default())?;
        let key = container(&mut transaction, &own)?;
        let mut rows = transaction.rows::<R>(key)?;
        for id in ids {
            rows.append(&row(id))?;
        }
        transaction.commit()?;
    }
    drop(federation);
    if folder.is_dir() {
        watch.report_on_disk(work.count, work.bytes(), folder)
    } else {
        // The files are at a server, so their size on disk is not known.
        watch.report(work.count, work.bytes(), 0);
        Ok(())
    }
}

/// Commits small transactions.
pub(crate) fn commits(folder: &Path, of: &str, writer: u64, seconds: f64) -> Outcome {
    let federation = crate::open(folder, OpenOptions::default())?;
    let own = place(writer, of);
    femtobarn_bench::commits(seconds, |_| commit_small(&federation, &own))
}

/// One small transaction, in a container of a database.
pub(crate) fn commit_small(federation: &Federation, own: &(String, String)) -> Outcome {
    let mut transaction = federation.transaction(TransactionOptions::default())?;
    let key = container(&mut transaction, own)?;
    let mut rows = transaction.rows::<Fixed>(key)?;
    for _ in 0..SMALL_OBJECTS {
        rows.append(&Fixed { bytes: [1; SMALL_BYTES] })?;
    }
    transaction.commit()?;
    Ok(())
}

fn container(
    transaction: &mut Transaction,
    (database, container): &(String, String),
) -> Outcome<ContainerKey> {
    let database = transaction.database(database)?;
    Ok(transaction.container(database, container)?)
}
