//! Entries are appended, replaced and rolled back in random order, and compared with a list of values.

use std::collections::BTreeMap;

use proptest::{collection::vec, prelude::*, sample::Index};

use rntuple::{
    Appender, AppenderSavepoint, Array, Bound, Bounds, ClusterSummary, ColumnId, EnvelopeLink,
    Primitive, Reader, Type, Value, WriteOptions, values_of,
};

use crate::round_trips::{assert_holds, members_of, options, tables};
use crate::store::Store;
use crate::values::{array_of, cases};

/// An operation on an RNTuple.
#[derive(Clone, Debug)]
enum Step {
    Append(Vec<Index>),
    /// A field, entries, and rows with the new values.
    Replace(Index, Vec<Index>, Vec<Index>),
    AppenderSavepoint,
    Rollback(Index),
    Version,
    Resume(WriteOptions),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let rows = |most| vec(any::<Index>(), 1..most);
    let step = prop_oneof![
        4 => rows(30).prop_map(Step::Append),
        8 => (any::<Index>(), rows(12), rows(12)).prop_map(|(f, e, v)| Step::Replace(f, e, v)),
        2 => Just(Step::AppenderSavepoint),
        2 => any::<Index>().prop_map(Step::Rollback),
        3 => Just(Step::Version),
        1 => options().prop_map(Step::Resume),
    ];
    vec(step, 1..25)
}

/// The known bounds of each cluster, by its first entry.
type Known = BTreeMap<u64, (u64, BTreeMap<ColumnId, Bounds>)>;

fn learn(known: &mut Known, summaries: Vec<ClusterSummary>) {
    for summary in summaries {
        let columns = summary.columns.into_iter();
        if !summary.is_widening {
            known.insert(summary.first_entry, (summary.entries, columns.collect()));
        } else if let Some((_, bounds)) = known.get_mut(&summary.first_entry) {
            for (column, new) in columns {
                bounds.entry(column).and_modify(|old| *old = old.union(new));
            }
        }
    }
}

struct Session<'a> {
    of: &'a Type,
    pool: &'a [Value],
    store: Store,
    header: EnvelopeLink,
    appender: Appender,
    rows: Vec<Value>,
    known: Known,
    savepoints: Vec<(AppenderSavepoint, Vec<Value>, Known)>,
    versions: Vec<(EnvelopeLink, Vec<Value>)>,
}

impl<'a> Session<'a> {
    fn new(of: &'a Type, pool: &'a [Value], options: WriteOptions) -> Self {
        let mut store = Store::default();
        let (appender, header) =
            Appender::create(&mut store, "t", members_of(of), options).unwrap();
        let (rows, known, savepoints, versions) = (vec![], Known::new(), vec![], vec![]);
        Session { of, pool, store, header, appender, rows, known, savepoints, versions }
    }

    fn take(&mut self, step: &Step) {
        match step {
            Step::Append(rows) => self.append(rows),
            Step::Replace(field, entries, rows) => self.replace(field, entries, rows),
            Step::AppenderSavepoint => {
                let savepoint = self.appender.savepoint(&mut self.store).unwrap();
                self.savepoints.push((savepoint, self.rows.clone(), self.known.clone()));
            }
            Step::Rollback(which) if !self.savepoints.is_empty() => {
                let which = which.index(self.savepoints.len());
                self.savepoints.truncate(which + 1);
                let (savepoint, rows, known) = &self.savepoints[which];
                self.appender.rollback_to(savepoint);
                (self.rows, self.known) = (rows.clone(), known.clone());
            }
            Step::Rollback(_) => {}
            Step::Version => drop(self.version()),
            Step::Resume(options) => {
                let reader = self.version();
                self.appender = Appender::resume(&reader, *options).unwrap();
                self.savepoints.clear();
            }
        }
        assert_eq!(self.appender.entries(), self.rows.len() as u64);
    }

    fn append(&mut self, rows: &[Index]) {
        let rows: Vec<Value> = rows.iter().map(|row| row.get(self.pool).clone()).collect();
        let (one_by_one, at_once) = rows.split_at(rows.len() / 2);
        for row in one_by_one {
            self.appender.append_value(&mut self.store, row).unwrap();
        }
        self.appender.append(&mut self.store, &array_of(self.of, at_once)).unwrap();
        self.rows.extend(rows);
    }

    fn replace(&mut self, field: &Index, entries: &[Index], rows: &[Index]) {
        if self.rows.is_empty() {
            return;
        }
        let (mut path, mut of) = field.get(members_of(self.of)).clone();
        // Sometimes a member of a record, not all of it.
        while let Type::Record { members, .. } = &of
            && !members.is_empty()
            && rows.len().is_multiple_of(2)
        {
            let (name, member) = field.get(members).clone();
            (path, of) = (format!("{path}.{name}"), member);
        }
        let mut entries: Vec<u64> =
            entries.iter().map(|entry| entry.index(self.rows.len()) as u64).collect();
        entries.sort_unstable();
        entries.dedup();
        let values: Vec<Value> = rows
            .iter()
            .cycle()
            .take(entries.len())
            .map(|row| member(row.get(self.pool), &path).clone())
            .collect();
        let source = self.store.clone();
        let array = array_of(&of, &values);
        self.appender.replace(&mut self.store, &source, &path, &entries, &array).unwrap();
        for (entry, value) in entries.iter().zip(values) {
            *member_mut(&mut self.rows[*entry as usize], &path) = value;
        }
    }

    fn version(&mut self) -> Reader {
        let source = self.store.clone();
        let version = self.appender.finish_version(&mut self.store, &source).unwrap();
        assert_eq!(version.entries, self.rows.len() as u64);
        learn(&mut self.known, version.summaries);
        self.versions.push((version.footer, self.rows.clone()));
        let reader = self.store.reader(&self.header, &version.footer);
        assert_holds(&reader, self.of, &self.rows);
        assert_bounds_hold(&reader, &self.known);
        reader
    }

    fn finish(mut self) {
        self.version();
        for (footer, rows) in &self.versions {
            assert_holds(&self.store.reader(&self.header, footer), self.of, rows);
        }
    }
}

fn member<'a>(row: &'a Value, path: &str) -> &'a Value {
    path.split('.').fold(row, |value, name| value.member(name).unwrap())
}

fn member_mut<'a>(row: &'a mut Value, path: &str) -> &'a mut Value {
    path.split('.').fold(row, |value, name| match value {
        Value::Record(members) => {
            &mut members.iter_mut().find(|(member, _)| member == name).unwrap().1
        }
        _ => panic!("{name} is not a member"),
    })
}

/// Fails unless all values read are within the known bounds, and all columns with a summary have bounds.
fn assert_bounds_hold(reader: &Reader, known: &Known) {
    assert_eq!(known.values().map(|(entries, _)| entries).sum::<u64>(), reader.entries());
    for (&first, (entries, columns)) in known {
        let array = reader.read(&reader.select_all(), first..first + entries).unwrap();
        for path in reader.column_paths().iter().filter(|path| path.is_summarised) {
            let bounds = columns[&path.column];
            let found = actual(&array, &path.path, path.is_size);
            let union = bounds.union(found);
            // The numbers, as a zero has two signs.
            let same = |a: Option<(Bound, Bound)>, b: Option<(Bound, Bound)>| match (a, b) {
                (Some(a), Some(b)) => {
                    (a.0.as_float(), a.1.as_float()) == (b.0.as_float(), b.1.as_float())
                }
                (a, b) => a == b,
            };
            assert!(
                same(union.range, bounds.range) && union.has_nan == bounds.has_nan,
                "{path:?}: {bounds:?} of {found:?}"
            );
        }
    }
}

/// The bounds of numbers or sizes of an array.
fn actual(array: &Array, path: &str, is_size: bool) -> Bounds {
    let mut array = path.split('.').fold(array, |mut array, name| {
        while let Array::List { content, .. } = array {
            array = content;
        }
        array.member(name).unwrap()
    });
    if is_size {
        let (Array::List { offsets, .. } | Array::String { offsets, .. }) = array else { panic!() };
        let offsets = values_of::<i64>(offsets).unwrap();
        let sizes = offsets.windows(2).map(|pair| Bound::UInt((pair[1] - pair[0]) as u64));
        return sizes.fold(Bounds::default(), one_more);
    }
    while let Array::List { content, .. } = array {
        array = content;
    }
    let Array::Primitive { primitive, .. } = array else { panic!("{path} is not a number") };
    let numbers = (0..array.len()).map(|at| match (array.value(at).unwrap(), primitive) {
        (Value::Bool(value), _) => Bound::UInt(value.into()),
        (Value::Int(value), _) => Bound::Int(value),
        (Value::UInt(value), _) => Bound::UInt(value),
        (Value::Float(value), _) => Bound::Float(value),
        (other, _) => panic!("{other:?} is not a number"),
    });
    numbers.fold(Bounds::default(), one_more)
}

fn one_more(bounds: Bounds, number: Bound) -> Bounds {
    let has_nan = number.as_float().is_nan();
    bounds.union(Bounds { range: (!has_nan).then_some((number, number)), has_nan })
}

proptest! {
    #![proptest_config(cases(80))]

    #[test]
    fn random_edits_match_a_list_of_values(
        (of, pool) in tables(1..30),
        options in options(),
        steps in steps(),
    ) {
        let mut session = Session::new(&of, &pool, options);
        steps.iter().for_each(|step| session.take(step));
        session.finish();
    }
}

fn text_table() -> Type {
    let members = [
        ("number", Type::Primitive(Primitive::UInt64)),
        ("text", Type::String),
        ("lists", Type::List(Type::List(Type::Primitive(Primitive::Int16).into()).into())),
    ];
    let members = members.map(|(name, of)| (name.to_owned(), of)).to_vec();
    Type::Record { class: String::new(), members }
}

fn text_row(at: u64) -> Value {
    let list = |of: u64| Value::List((0..of % 3).map(|x| Value::Int(x as i64)).collect());
    Value::Record(vec![
        ("number".to_owned(), Value::UInt(at)),
        ("text".to_owned(), Value::String(format!("text number {at}"))),
        ("lists".to_owned(), Value::List((0..at % 4).map(list).collect())),
    ])
}

/// A table of many pages in one cluster, with its rows.
fn large() -> (Store, EnvelopeLink, Appender, Vec<Value>) {
    let of = text_table();
    let rows: Vec<Value> = (0..20_000).map(text_row).collect();
    let mut store = Store::default();
    let options = WriteOptions { page_size: 1024, ..Default::default() };
    let (mut appender, header) =
        Appender::create(&mut store, "t", members_of(&of), options).unwrap();
    appender.append(&mut store, &array_of(&of, &rows)).unwrap();
    let source = store.clone();
    appender.finish_version(&mut store, &source).unwrap();
    (store, header, appender, rows)
}

/// Bytes that a change of some entries writes, without page lists and the footer.
fn cost(field: &str, entries: &[u64], value: impl Fn(u64) -> Value) -> u64 {
    let (mut store, header, mut appender, mut rows) = large();
    let of = text_table();
    let (_, field_type) = members_of(&of).iter().find(|(name, _)| name == field).unwrap();
    let values: Vec<Value> = entries.iter().map(|&entry| value(entry)).collect();
    let (source, before) = (store.clone(), store.len());
    let array = array_of(field_type, &values);
    appender.replace(&mut store, &source, field, entries, &array).unwrap();
    let bytes = store.len() - before;
    for (&entry, value) in entries.iter().zip(values) {
        *member_mut(&mut rows[entry as usize], field) = value;
    }
    let version = appender.finish_version(&mut store, &source).unwrap();
    assert!(version.bytes > bytes);
    assert_holds(&store.reader(&header, &version.footer), &of, &rows);
    bytes
}

#[test]
fn only_the_pages_of_changed_values_are_written() {
    const PAGE: u64 = 1024 + 8;
    assert_eq!(cost("number", &[7], |_| Value::UInt(1)), PAGE);
    assert_eq!(cost("number", &[7, 100, 19_000], |_| Value::UInt(1)), 2 * PAGE);
    // The same size: offsets stay.
    let same = |at: u64| Value::String(format!("TEXT NUMBER {at}"));
    assert_eq!(cost("text", &[10_000], same), PAGE);
    // Another size: half of the offsets, of eight bytes each, and one page of characters or two.
    let offsets = 10_000 * 8 * PAGE / 1024;
    let longer = |at: u64| Value::String(format!("This is text number {at}"));
    let bytes = cost("text", &[10_000], longer);
    assert!((offsets..2 * offsets + 4 * PAGE).contains(&bytes), "{bytes} bytes");
    let lists = |_| Value::List(vec![Value::List(vec![Value::Int(5); 7]); 2]);
    let bytes = cost("lists", &[19_990], lists);
    assert!(bytes < 12 * PAGE, "{bytes} bytes");
}

#[test]
fn many_scattered_changes_write_each_page_once() {
    let entries: Vec<u64> = (0..20_000).step_by(3).collect();
    let bytes = cost("number", &entries, |at| Value::UInt(at * at));
    assert_eq!(bytes, 20_000 * 8 + 157 * 8);
    let bytes = cost("text", &entries, |at| Value::String(format!("{at}")));
    assert!(bytes < 600_000, "{bytes} bytes");
}

#[test]
fn pages_stay_well_sized_when_a_string_grows_often() {
    let (mut store, header, mut appender, mut rows) = large();
    let source = store.clone();
    for round in 0..300_u64 {
        let entry = 5000 + round % 7;
        let value = Value::String("x".repeat((round * 37 % 90) as usize));
        *member_mut(&mut rows[entry as usize], "text") = value.clone();
        let array = array_of(&Type::String, &[value]);
        appender.replace(&mut store, &source, "text", &[entry], &array).unwrap();
    }
    let version = appender.finish_version(&mut store, &source).unwrap();
    let reader = store.reader(&header, &version.footer);
    assert_holds(&reader, &text_table(), &rows);
    let again = Appender::resume(&reader, WriteOptions::default());
    assert_eq!(again.unwrap().entries(), 20_000);
    let characters = rows.iter().map(|row| match member(row, "text") {
        Value::String(text) => text.len(),
        _ => 0,
    });
    let least = characters.sum::<usize>() / 1024;
    let pages = pages_of(&store, &reader, "text");
    assert!((least..least + 8).contains(&pages), "{pages} pages instead of {least}");
}

/// The pages of characters of a string field.
fn pages_of(store: &Store, reader: &Reader, field: &str) -> usize {
    let paths = reader.column_paths();
    let column = paths.iter().find(|path| path.path == field && !path.is_size).unwrap().column;
    let groups = &reader.footer().cluster_groups;
    let lists = groups.iter().map(|group| {
        let kind = rntuple::EnvelopeKind::PageList;
        let bytes = rntuple::read_envelope(store, &group.page_list, kind, u64::MAX).unwrap();
        rntuple::PageList::decode(&bytes).unwrap()
    });
    let clusters = lists.flat_map(|list| list.clusters);
    clusters.map(|cluster| cluster.columns[column as usize].pages.len()).sum()
}

#[test]
fn invalid_replacements_are_refused_and_change_nothing() {
    let (mut store, header, mut appender, rows) = large();
    let source = store.clone();
    let of = text_table();
    let number = Array::primitive(Primitive::UInt64, vec![1_u64]);
    let numbers = Array::primitive(Primitive::UInt64, vec![1_u64, 2]);
    let mut refused = |field: &str, entries: &[u64], values: &Array| {
        let error = appender.replace(&mut store, &source, field, entries, values);
        error.unwrap_err().to_string()
    };
    assert!(refused("nothing", &[1], &number).contains("number, text, lists"));
    assert!(refused("text", &[1], &number).contains("\"text\""));
    assert!(refused("lists._0", &[1], &number).contains("not a record"));
    assert!(refused("number", &[1], &numbers).contains("2 values for 1 entries"));
    assert!(refused("number", &[2, 2], &numbers).contains("must ascend"));
    assert!(refused("number", &[3, 2], &numbers).contains("must ascend"));
    assert!(refused("number", &[2, 20_000], &numbers).contains("0..20000"));
    let mut full = Full;
    appender.replace(&mut full, &source, "number", &[2], &number).unwrap_err();
    let version = appender.finish_version(&mut store, &source).unwrap();
    assert_holds(&store.reader(&header, &version.footer), &of, &rows);
}

/// A sink that is full.
struct Full;

impl rntuple::BlobSink for Full {
    fn write_blob(&mut self, _: &[&[u8]]) -> rntuple::Result<u64> {
        let source = std::io::ErrorKind::StorageFull.into();
        Err(rntuple::Error::Io { what: "write".to_owned(), source })
    }
}
