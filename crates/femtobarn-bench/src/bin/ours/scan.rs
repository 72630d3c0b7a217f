//! Whole containers read in order: objects, rows and columns, in one thread or several.
//!
//! The program adds up every 32-bit word that it reads: the sum must be the same for all sides.

use std::fs::File;
use std::io::Write;
use std::ops::Range;
use std::path::Path;

use femtobarn::{ContainerOptions, Federation, OpenOptions, TransactionOptions, View};
use femtobarn_bench::{Outcome, Stopwatch};
use rntuple::{Array, values_of};

/// Bytes of values of a field that are read at a time, on average: some pages.
const FIELD_BYTES: u64 = 512 << 10;
/// Entries that are read first to estimate the size of an entry.
const PROBE_ENTRIES: u64 = 64;

/// An error of any type.
pub(crate) type Error = Box<dyn std::error::Error + Send + Sync>;

/// Reads fields of a container, named "database/container".
pub(crate) fn own(folder: &Path, container: &str, names: &str, threads: u64) -> Outcome {
    read(|| opened(folder, container), names, threads)
}

/// Reads fields of an RNTuple in a file that ROOT wrote.
pub(crate) fn attached(file: &Path, ntuple: &str, names: &str, threads: u64) -> Outcome {
    let folder = tempfile::tempdir()?;
    Federation::create(folder.path(), "bench")?.attach(file, Some("file"))?;
    // Opened for each run, so that pages cached by the first run do not count.
    let view = format!("file/{ntuple}");
    read(|| opened(folder.path(), &view), names, threads)
}

/// A container of a federation that starts no threads of its own; the threads here share the entries.
pub(crate) fn opened(folder: &Path, container: &str) -> Result<View, Error> {
    let options = OpenOptions { threads: 1, ..OpenOptions::default() };
    Ok(crate::open(folder, options)?.snapshot(None)?.view(container)?)
}

/// Copies an RNTuple of a file that ROOT wrote into a container "own/NTUPLE" of a new federation.
pub(crate) fn import(
    folder: &Path,
    file: &Path,
    ntuple: &str,
    options: ContainerOptions,
) -> Outcome {
    let federation = Federation::create(folder, "bench")?;
    federation.attach(file, Some("file"))?;
    let source = federation.snapshot(None)?.view(&format!("file/{ntuple}"))?;
    let mut transaction = federation.transaction(TransactionOptions::default())?;
    let database = transaction.create_database("own")?;
    let key = transaction.create_container(database, ntuple, source.class(), options)?;
    let watch = Stopwatch::start();
    each(&source, "all", 0..source.entries(), &mut |array| {
        transaction.extend(key, array)?;
        Ok(Seen::default())
    })?;
    transaction.commit()?;
    watch.report(source.entries(), 0, 0);
    Ok(())
}

/// Writes the values of fields of an RNTuple that ROOT wrote to a plain file.
pub(crate) fn export(target: &Path, file: &Path, ntuple: &str, names: &str) -> Outcome {
    let folder = tempfile::tempdir()?;
    let federation = Federation::create(folder.path(), "bench")?;
    federation.attach(file, Some("file"))?;
    let source = federation.snapshot(None)?.view(&format!("file/{ntuple}"))?;
    let mut target = File::create(target)?;
    let watch = Stopwatch::start();
    let seen = each(&source, names, 0..source.entries(), &mut |array| {
        let mut seen = Seen::default();
        values(&array, &mut |bytes| {
            seen.add(bytes);
            Ok(target.write_all(bytes)?)
        })?;
        Ok(seen)
    })?;
    watch.report(source.entries(), seen.bytes, seen.check.into());
    Ok(())
}

fn read(open: impl Fn() -> Result<View, Error>, names: &str, threads: u64) -> Outcome {
    // Once unmeasured: then all files are in memory, and the process has the memory that it needs.
    all_of(&open()?, names, threads)?;
    let view = open()?;
    let watch = Stopwatch::start();
    let seen = all_of(&view, names, threads)?;
    watch.report(view.entries(), seen.bytes, seen.check.into());
    Ok(())
}

/// Each thread reads its share of the entries.
pub(crate) fn all_of(view: &View, names: &str, threads: u64) -> Result<Seen, Error> {
    let share = view.entries().div_ceil(threads);
    let entries = |n: u64| n * share..view.entries().min((n + 1) * share);
    let read = |entries| each(view, names, entries, &mut |array| sum(&array));
    if threads == 1 {
        return read(entries(0));
    }
    std::thread::scope(|scope| {
        // Errors are passed between threads as text, since some types cannot be.
        let part = |n| read(entries(n)).map_err(|error| error.to_string());
        let running: Vec<_> = (0..threads).map(|n| scope.spawn(move || part(n))).collect();
        let mut seen = Seen::default();
        for each in running {
            seen.join(&each.join().map_err(|_| "a thread panicked")??);
        }
        Ok(seen)
    })
}

/// Reads a range of entries in pieces of some size.
fn each(
    view: &View,
    names: &str,
    entries: Range<u64>,
    take: &mut dyn FnMut(Array) -> Result<Seen, Error>,
) -> Result<Seen, Error> {
    let selection = match names {
        "all" => view.select_all(),
        names => view.select(&names.split(',').collect::<Vec<_>>())?,
    };
    let probe =
        view.read(&selection, entries.start..entries.end.min(entries.start + PROBE_ENTRIES))?;
    let Array::Record { members, .. } = &probe else { return Err("no entries".into()) };
    let step_bytes = FIELD_BYTES * members.len() as u64;
    let step = (step_bytes * probe.len() as u64 / sum(&probe)?.bytes.max(1)).max(1);
    let mut seen = Seen::default();
    for first in entries.clone().step_by(step as usize) {
        seen.join(&take(view.read(&selection, first..entries.end.min(first + step))?)?);
    }
    Ok(seen)
}

/// The size and the checksum of the values read.
#[derive(Default)]
pub(crate) struct Seen {
    pub bytes: u64,
    pub check: u32,
}

impl Seen {
    /// Adds values.
    pub(crate) fn add(&mut self, values: &[u8]) {
        let words = values.chunks_exact(size_of::<u32>());
        let word = |word: &[u8]| u32::from_le_bytes(word.try_into().expect("four bytes"));
        self.check = words.fold(self.check, |sum, each| sum.wrapping_add(word(each)));
        self.bytes += values.len() as u64;
    }

    fn join(&mut self, other: &Seen) {
        self.check = self.check.wrapping_add(other.check);
        self.bytes += other.bytes;
    }
}

fn sum(array: &Array) -> Result<Seen, Error> {
    let mut seen = Seen::default();
    values(array, &mut |bytes| {
        seen.add(bytes);
        Ok(())
    })?;
    Ok(seen)
}

/// Calls `take` with all numbers in an array.
fn values(array: &Array, take: &mut dyn FnMut(&[u8]) -> Result<(), Error>) -> Result<(), Error> {
    match array {
        Array::Primitive { values, .. } => take(values),
        Array::Fixed { content, .. } => values(content, take),
        Array::List { offsets, content, .. } => {
            let Array::Primitive { primitive, values } = &**content else {
                return Err("a list of other than numbers".into());
            };
            let offsets = values_of::<i64>(offsets)?;
            let at = |offset: Option<&i64>| *offset.unwrap_or(&0) as usize * primitive.size();
            take(&values[at(offsets.first())..at(offsets.last())])
        }
        Array::Record { members, .. } => {
            members.iter().try_for_each(|(_, member)| values(member, take))
        }
        _ => Err("a field of another type".into()),
    }
}
