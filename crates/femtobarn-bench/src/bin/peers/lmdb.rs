//! LMDB: numbered keys appended in order, one table for each writer.

use std::path::Path;

use heed::byteorder::NativeEndian;
use heed::types::{Bytes, U64};
use heed::{Database, Env, EnvFlags, EnvOpenOptions, IntegerComparator, PutFlags, WithTls};

use femtobarn_bench::{Appends, Outcome, Reads, SMALL_BYTES, SMALL_OBJECTS, Stopwatch, sum};

/// The address space that a file may grow into.
const MAP_BYTES: usize = 64 << 30;

type Table = Database<U64<NativeEndian>, Bytes, IntegerComparator>;

/// Appends objects to the writer's table.
pub(crate) fn append(folder: &Path, work: &Appends) -> Outcome {
    let (env, table) = open(folder, work.writer, EnvFlags::empty())?;
    let watch = Stopwatch::start();
    for ids in work.transactions() {
        let mut transaction = env.write_txn()?;
        for id in ids {
            let object = work.pool.object(id);
            table.put_with_flags(&mut transaction, PutFlags::APPEND, &id, object)?;
        }
        transaction.commit()?;
    }
    watch.report_on_disk(work.count, work.bytes(), folder)
}

/// Reads objects at random, by key.
pub(crate) fn random(folder: &Path, reads: &Reads) -> Outcome {
    // Read-ahead from the disk is of no use to random reads.
    let flags = if reads.is_hot { EnvFlags::empty() } else { EnvFlags::NO_READ_AHEAD };
    let (env, table) = open(folder, 0, flags)?;
    let transaction = env.read_txn()?;
    reads.one_by_one(|id| {
        let object = table.get(&transaction, &id)?;
        Ok(sum(object.ok_or("an object is absent")?))
    })
}

/// Reads all objects with a cursor.
pub(crate) fn scan(folder: &Path, reads: &Reads) -> Outcome {
    let (env, table) = open(folder, 0, EnvFlags::empty())?;
    let transaction = env.read_txn()?;
    reads.in_order(|| {
        let mut check = 0_u64;
        for pair in table.iter(&transaction)? {
            check = check.wrapping_add(sum(pair?.1));
        }
        Ok(check)
    })
}

/// Commits small transactions.
pub(crate) fn commits(folder: &Path, writer: u64, seconds: f64) -> Outcome {
    let (env, table) = open(folder, writer, EnvFlags::empty())?;
    let object = [1; SMALL_BYTES];
    femtobarn_bench::commits(seconds, |number| {
        let mut transaction = env.write_txn()?;
        for id in number * SMALL_OBJECTS..(number + 1) * SMALL_OBJECTS {
            table.put_with_flags(&mut transaction, PutFlags::APPEND, &id, &object)?;
        }
        Ok(transaction.commit()?)
    })
}

fn open(folder: &Path, writer: u64, flags: EnvFlags) -> Outcome<(Env<WithTls>, Table)> {
    let mut options = EnvOpenOptions::new();
    options.map_size(MAP_BYTES).max_dbs(64).max_readers(256);
    // SAFETY: nothing but LMDB changes the file, and a process opens it once.
    let env = unsafe { options.flags(flags).open(folder)? };
    let mut transaction = env.write_txn()?;
    let named = format!("w{writer}");
    let of = env.database_options().types::<U64<NativeEndian>, Bytes>();
    let table = of.key_comparator::<IntegerComparator>().name(&named).create(&mut transaction)?;
    transaction.commit()?;
    Ok((env, table))
}
