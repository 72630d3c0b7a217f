//! Jagged columns of single-precision numbers, read whole.

use std::path::Path;

use femtobarn::{ContainerOptions, Federation, FieldType, TransactionOptions, View};
use rntuple::{Array, values_of};

use femtobarn_bench::{Outcome, Stopwatch};

/// Entries read at a time: some 20 MB of the columns that benches/data.py makes.
const ENTRIES: u64 = 500;

/// Reads all columns of a file that ROOT wrote.
pub fn attached(file: &Path) -> Outcome {
    let folder = tempfile::tempdir()?;
    let federation = Federation::create(folder.path(), "bench")?;
    federation.attach(file, Some("columns"))?;
    read(&federation.snapshot(None)?.view("columns/events")?)
}

/// Reads all columns of a container.
pub fn own(folder: &Path) -> Outcome {
    read(&Federation::open(folder)?.snapshot(None)?.view("own/events")?)
}

/// Copies the columns of a file that ROOT wrote into a container of a new federation.
pub fn write(folder: &Path, file: &Path, options: ContainerOptions) -> Outcome {
    let federation = Federation::create(folder, "bench")?;
    federation.attach(file, Some("columns"))?;
    let source = federation.snapshot(None)?.view("columns/events")?;
    let mut transaction = federation.transaction(TransactionOptions::default())?;
    let database = transaction.create_database("own")?;
    let key = transaction.create_container(database, "events", source.class(), options)?;
    let all = source.select_all();
    let watch = Stopwatch::start();
    for first in (0..source.entries()).step_by(ENTRIES as usize) {
        let array = source.read(&all, first..source.entries().min(first + ENTRIES))?;
        transaction.extend(key, array)?;
    }
    transaction.commit()?;
    watch.report(source.entries(), 0, 0);
    Ok(())
}

fn read(view: &View) -> Outcome {
    let fields = view.class().fields.iter();
    let lists = fields.filter(|field| matches!(field.of, FieldType::List(_)));
    let names: Vec<&str> = lists.map(|field| field.name.as_str()).collect();
    let selection = view.select(&names)?;
    view.read(&selection, 0..1)?;
    let (mut bytes, mut check) = (0, 0);
    let watch = Stopwatch::start();
    for first in (0..view.entries()).step_by(ENTRIES as usize) {
        let array = view.read(&selection, first..view.entries().min(first + ENTRIES))?;
        let Array::Record { members, .. } = array else { return Err("no records".into()) };
        for (_, column) in &members {
            let (size, sum) = sum(column)?;
            bytes += size;
            check += sum;
        }
    }
    watch.report(view.entries(), bytes, check);
    Ok(())
}

/// The bytes of a column of lists, and the sum of the first number of each list, by its bits.
fn sum(column: &Array) -> Result<(u64, u64), Box<dyn std::error::Error>> {
    let Array::List { offsets, content, .. } = column else { return Err("no list".into()) };
    let Array::Primitive { values, .. } = &**content else { return Err("no numbers".into()) };
    let (offsets, values) = (values_of::<i64>(offsets)?, values_of::<u32>(values)?);
    let mut check = 0;
    for list in offsets.windows(2) {
        if list[0] < list[1] {
            check += u64::from(values[list[0] as usize]);
        }
    }
    let items = offsets.last().unwrap_or(&0) - offsets.first().unwrap_or(&0);
    Ok((items as u64 * size_of::<f32>() as u64, check))
}
