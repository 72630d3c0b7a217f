//! The pages of fields where their file has them: read by nothing but `pread`, or listed for a program in C that
//! unpacks them (`benches/sides/bare_unpack.c`).

use std::fmt::Write;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use femtobarn::{Federation, View};
use femtobarn_bench::{Outcome, Stopwatch};
use rntuple::{EnvelopeKind, Locator, PageList, Schema, decompress, encoded_size, read_envelope};

use crate::scan::{self, Error, Seen};

/// A page as it is stored.
struct StoredPage {
    locator: Locator,
    /// Bytes that it has when it is unpacked.
    unpacked: usize,
}

impl StoredPage {
    fn read(&self, file: &File, memory: &mut Vec<u8>) -> std::io::Result<()> {
        memory.resize(self.locator.size as usize, 0);
        file.read_exact_at(memory, self.locator.offset)
    }
}

/// Reads the pages of fields, piece by piece as the database file has them.
pub(crate) fn read(folder: &Path, container: &str, names: &str) -> Outcome {
    let view = Federation::open(folder)?.snapshot(None)?.view(container)?;
    let file = File::open(file_of(folder, container))?;
    let pages = pages_of(&view, &file, names)?;
    let mut memory = vec![];
    let mut all_of = || -> Result<Seen, Error> {
        let mut seen = Seen::default();
        for page in &pages {
            page.read(&file, &mut memory)?;
            seen.add(&memory);
        }
        Ok(seen)
    };
    all_of()?;
    let watch = Stopwatch::start();
    let seen = all_of()?;
    watch.report(view.entries(), seen.bytes, seen.check.into());
    Ok(())
}

/// Lists the pages of fields: first the number of entries, the size and the check of all values, the sum of the words
/// of all unpacked pages and their number, then a line for each page.
pub(crate) fn list(target: &Path, source: &Path, container: &str, names: &str) -> Outcome {
    let scratch = tempfile::tempdir()?;
    let (folder, file) = if source.is_dir() {
        (source, file_of(source, container))
    } else {
        Federation::create(scratch.path(), "bench")?.attach(source, Some("file"))?;
        (scratch.path(), source.to_path_buf())
    };
    let (view, file) = (scan::opened(folder, container)?, File::open(file)?);
    let pages = pages_of(&view, &file, names)?;
    let values = scan::all_of(&view, names, 1)?;
    let (mut lines, mut sum, mut stored) = (String::new(), Seen::default(), vec![]);
    for page in &pages {
        page.read(&file, &mut stored)?;
        let mut unpacked = vec![0; page.unpacked];
        decompress(&stored, &mut unpacked)?;
        sum.add(&unpacked);
        let Locator { offset, size } = page.locator;
        writeln!(lines, "{offset} {size} {}", page.unpacked)?;
    }
    let (entries, Seen { bytes, check }) = (view.entries(), values);
    let head = format!("{entries} {bytes} {check} {} {}\n", sum.check, pages.len());
    Ok(std::fs::write(target, head + &lines)?)
}

fn file_of(folder: &Path, container: &str) -> PathBuf {
    let database = container.split('/').next().unwrap_or_default();
    folder.join("databases").join(format!("{database}.root"))
}

/// The pages of fields and of their subfields, cluster by cluster.
fn pages_of(view: &View, file: &File, names: &str) -> Result<Vec<StoredPage>, Error> {
    let reader = view.reader();
    let schema = reader.schema();
    let columns = columns_of(schema, names);
    let mut found = vec![];
    for group in &reader.footer().cluster_groups {
        let envelope = read_envelope(file, &group.page_list, EnvelopeKind::PageList, u64::MAX)?;
        for cluster in PageList::decode(&envelope)?.clusters {
            for &number in &columns {
                let column = &schema.columns[number];
                for page in &cluster.columns[number].pages {
                    let elements = page.elements as usize;
                    let unpacked = encoded_size(column.column_type, column.bits, elements)?;
                    found.push(StoredPage { locator: page.locator, unpacked });
                }
            }
        }
    }
    if found.is_empty() { Err("the fields have no pages".into()) } else { Ok(found) }
}

fn columns_of(schema: &Schema, names: &str) -> Vec<usize> {
    let names: Vec<&str> = names.split(',').collect();
    let is_wanted = |mut field: u32| {
        while schema.fields[field as usize].parent != field {
            field = schema.fields[field as usize].parent;
        }
        names.contains(&schema.fields[field as usize].name.as_str())
    };
    let columns = schema.columns.iter().enumerate();
    columns.filter(|(_, column)| is_wanted(column.field)).map(|(number, _)| number).collect()
}
