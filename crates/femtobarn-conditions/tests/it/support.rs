//! Helpers of the tests: a federation, and series of numbers.

use femtobarn::{
    Class, ContainerKey, ContainerOptions, Csn, Federation, Overlap, SeriesOptions, Transaction,
    TransactionOptions,
};
use femtobarn_conditions::{GlobalTag, TagChange, ValidityRow, series_class};
use rntuple::{Array, Primitive};
use tempfile::TempDir;

/// A federation in a folder of its own.
pub(crate) fn federation() -> (TempDir, Federation) {
    let folder = tempfile::tempdir().unwrap();
    let federation = Federation::create(&folder.path().join("test.fed"), "test").unwrap();
    (folder, federation)
}

pub(crate) fn begin(federation: &Federation) -> Transaction {
    federation.transaction(TransactionOptions::default()).unwrap()
}

/// Opens `det/NAME`, or creates it with clusters of about 100 objects.
pub(crate) fn series(transaction: &mut Transaction, name: &str, overlap: Overlap) -> ContainerKey {
    let database = transaction.database_or_new("det", None).unwrap();
    if transaction.find_container(database, name).unwrap().is_some() {
        return transaction.container(database, name).unwrap();
    }
    let payload =
        r#"{"name": "Gain", "version": 1, "fields": [{"name": "value", "type": "float64"}]}"#;
    let class = series_class(&Class::from_json(payload).unwrap()).unwrap();
    let options = ContainerOptions {
        page_size: 4096,
        cluster_size: 4096,
        series: Some(SeriesOptions { overlap, ..Default::default() }),
        ..Default::default()
    };
    transaction.create_container(database, name, &class, options).unwrap()
}

/// Inserts validities; the value of each is its entry.
pub(crate) fn insert(transaction: &mut Transaction, key: ContainerKey, rows: &[ValidityRow]) {
    let values = rows.iter().map(|row| row.entry as f64).collect();
    extend(transaction, key, rows, values, None);
}

/// Inserts conditions; into the container of a branch, with the entries of the conditions that they replace.
pub(crate) fn extend(
    transaction: &mut Transaction,
    key: ContainerKey,
    rows: &[ValidityRow],
    values: Vec<f64>,
    replaced: Option<i64>,
) {
    let integers = |of: &dyn Fn(&ValidityRow) -> i64| {
        Array::primitive(Primitive::Int64, rows.iter().map(of).collect::<Vec<i64>>())
    };
    let mut members = vec![
        ("since".to_owned(), integers(&|row| row.since)),
        ("until".to_owned(), integers(&|row| row.until)),
        ("channel".to_owned(), integers(&|row| row.channel)),
    ];
    members.extend(replaced.map(|entry| ("replaced_entry".to_owned(), integers(&|_| entry))));
    members.push(("value".to_owned(), Array::primitive(Primitive::Float64, values)));
    transaction.extend(key, Array::Record { length: rows.len(), members }).unwrap();
}

/// Opens the container of a branch of `det/NAME`.
pub(crate) fn branch(transaction: &mut Transaction, tag: &str, name: &str) -> ContainerKey {
    let opened = GlobalTag::open_branch(transaction, tag, &format!("det/{name}")).unwrap();
    let database = transaction.database("det").unwrap();
    transaction.container(database, opened.container.strip_prefix("det/").unwrap()).unwrap()
}

/// Makes a branch of a global tag, or of all series.
pub(crate) fn new_branch(federation: &Federation, tag: &str, of: Option<&str>) {
    let create = Some(of.map(str::to_owned));
    let change = TagChange { create, branch: true, ..Default::default() };
    GlobalTag::change(federation, tag, &change).unwrap();
}

/// Inserts validities into `det/NAME` in a commit of their own.
pub(crate) fn commit(
    federation: &Federation,
    name: &str,
    overlap: Overlap,
    rows: &[ValidityRow],
) -> Csn {
    let mut transaction = begin(federation);
    let key = series(&mut transaction, name, overlap);
    insert(&mut transaction, key, rows);
    transaction.commit().unwrap()
}

pub(crate) fn row(channel: i64, since: i64, until: i64, entry: u64) -> ValidityRow {
    ValidityRow { channel, since, until, entry }
}
