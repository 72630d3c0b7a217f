//! What a workload does, step by step, and what should be there after each step.
//!
//! A script is the same list of steps for the same name, so that a program that runs it and one that
//! verifies what it left agree without a word.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use femtobarn::{
    Class, CompactOptions, ContainerKey, ContainerOptions, Csn, Federation, Profile, Result,
    Transaction, VacuumOptions,
};

use rntuple::{Array, Primitive, Value, bytes_of};

use crate::random::Random;

/// One thing that is acknowledged as a whole.
#[derive(Clone, Debug)]
pub enum Step {
    /// A transaction.
    Commit(Vec<Change>),
    /// A database is sealed.
    Seal(String),
    /// All snapshots but the newest may go, and their space comes back.
    Vacuum,
    /// A container is compacted.
    Compact(String),
    /// The federation is closed and opened again; SQLite then empties its log.
    Reopen,
}

/// One change within a transaction. Containers are named `database/container`.
#[derive(Clone, Debug)]
pub enum Change {
    /// A new database.
    Database(String),
    /// A new database in a place.
    #[allow(missing_docs)]
    DatabaseIn { name: String, place: String },
    /// A new container.
    Container(String, Profile),
    /// Objects with the numbers from `first` on.
    #[allow(missing_docs)]
    Append { path: String, first: u64, count: u64 },
    /// One object of some megabytes, with a number.
    #[allow(missing_docs)]
    AppendLarge { path: String, number: u64 },
    /// Objects at entries are deleted.
    #[allow(missing_docs)]
    Delete { path: String, entries: Vec<u64> },
    /// Objects at entries are updated once more.
    #[allow(missing_docs)]
    Update { path: String, entries: Vec<u64> },
    /// A container gets another name within its database.
    #[allow(missing_docs)]
    Rename { path: String, name: String },
    /// A container is dropped.
    Drop(String),
    /// A database is dropped.
    DropDatabase(String),
    /// A database gets another name.
    #[allow(missing_docs)]
    RenameDatabase { name: String, new: String },
    /// The objects of a container get the second version of their class.
    Evolve(String),
    /// A container gets an index of the objects' numbers.
    Index(String),
}

/// The logical contents of a federation.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Contents {
    /// Containers by database.
    pub databases: BTreeMap<String, Database>,
}

/// The logical contents of a database.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Database {
    /// Whether it takes no more changes.
    pub is_sealed: bool,
    /// Objects by container.
    pub containers: BTreeMap<String, Container>,
}

/// The logical contents of a container.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Container {
    /// Each entry's object; none where it was deleted.
    pub objects: Vec<Option<Value>>,
    /// Whether objects are of the second version of their class.
    pub is_evolved: bool,
}

/// A list of steps with a name.
pub struct Script {
    /// The name.
    pub name: &'static str,
    /// The steps.
    pub steps: Vec<Step>,
}

/// The names of all scripts.
pub const NAMES: [&str; 9] =
    ["single", "large", "two databases", "delete", "update", "names", "evolve", "vacuum", "seal"];

/// Bytes of a large object: enough for a whole window of 2 MiB, which goes past the page cache.
const LARGE_BYTES: usize = (4 << 20) + (64 << 10);

impl Script {
    /// The script with a name; none if there is no such script.
    pub fn named(name: &str) -> Option<Self> {
        let name = *NAMES.iter().find(|known| **known == name)?;
        let steps = match name {
            "single" => single(),
            "large" => large(),
            "two databases" => two_databases(),
            "delete" => delete(),
            "update" => updates(),
            "names" => names(),
            "evolve" => evolution(),
            "vacuum" => vacuum(),
            _ => seal(),
        };
        Some(Script { name, steps })
    }

    /// What should be there after so many steps.
    pub fn contents_after(&self, steps: usize) -> Contents {
        let mut contents = Contents::default();
        self.steps[..steps].iter().for_each(|step| contents.apply(step));
        contents
    }
}

/// Appends, small and large, to one container.
fn single() -> Vec<Step> {
    let path = "run7/events";
    let container = Change::Container(path.into(), Profile::Plain);
    let append = |first, count| Change::Append { path: path.into(), first, count };
    let mut steps =
        vec![Step::Commit(vec![Change::Database("run7".into()), container, append(0, 10)])];
    let mut next = 10;
    for (round, count) in [1, 3, 40, 2, 250, 1, 5, 1].into_iter().enumerate() {
        steps.push(Step::Commit(vec![append(next, count)]));
        next += count;
        if round == 4 {
            steps.push(Step::Reopen);
        }
    }
    steps.push(Step::Reopen);
    steps
}

/// So much at once that it goes past the page cache, beside little that does not.
fn large() -> Vec<Step> {
    let path = "run7/events";
    let append = |first, count| Change::Append { path: path.into(), first, count };
    let large = |number| Change::AppendLarge { path: path.into(), number };
    vec![
        Step::Commit(changes(path)),
        Step::Commit(vec![append(30, 2), large(32), append(33, 2)]),
        Step::Reopen,
        Step::Commit(vec![append(35, 1)]),
    ]
}

/// Transactions over two databases, and over one of them.
fn two_databases() -> Vec<Step> {
    let (left, right) = ("left/events", "right/packed");
    let append = |path: &str, first, count| Change::Append { path: path.into(), first, count };
    let mut steps = vec![
        Step::Commit(vec![
            Change::Database("left".into()),
            Change::Container(left.into(), Profile::Plain),
            append(left, 0, 5),
        ]),
        Step::Commit(vec![
            Change::Database("right".into()),
            Change::Container(right.into(), Profile::Archive),
            append(left, 5, 2),
            append(right, 0, 7),
        ]),
    ];
    let mut random = Random(2);
    for round in 0..8 {
        let some = 1 + random.below(30);
        let mut changes = vec![append(left, round * 100, some), append(right, round * 100, some)];
        if round % 3 == 2 {
            changes.remove(random.below(2) as usize);
        }
        steps.push(Step::Commit(changes));
    }
    steps.push(Step::Reopen);
    steps
}

/// Objects are deleted, alone and with appends, also such as were appended in the same transaction.
fn delete() -> Vec<Step> {
    let (path, other) = ("run7/events", "run7/packed");
    let append = |path: &str, first, count| Change::Append { path: path.into(), first, count };
    let delete = |path: &str, entries: &[u64]| Change::Delete {
        path: path.into(),
        entries: entries.to_vec(),
    };
    vec![
        Step::Commit(vec![
            Change::Database("run7".into()),
            Change::Container(path.into(), Profile::Plain),
            Change::Container(other.into(), Profile::Archive),
            append(path, 0, 20),
            append(other, 0, 5),
        ]),
        Step::Commit(vec![delete(path, &[3, 4, 19])]),
        Step::Commit(vec![append(path, 20, 2), delete(path, &[0, 21]), delete(other, &[4])]),
        Step::Commit(vec![append(other, 5, 1)]),
        Step::Reopen,
        Step::Commit(vec![delete(path, &(5..15).collect::<Vec<_>>())]),
        Step::Seal("run7".into()),
    ]
}

fn changes(path: &str) -> Vec<Change> {
    vec![
        Change::Database("run7".into()),
        Change::Container(path.into(), Profile::Plain),
        Change::Append { path: path.into(), first: 0, count: 30 },
    ]
}

/// Objects are updated, alone and with appends and deletions, also such as are new.
fn updates() -> Vec<Step> {
    let path = "run7/events";
    let update = |entries: &[u64]| Change::Update { path: path.into(), entries: entries.to_vec() };
    let append = |first, count| Change::Append { path: path.into(), first, count };
    let delete = |entries: &[u64]| Change::Delete { path: path.into(), entries: entries.to_vec() };
    let all: Vec<u64> = (0..30).collect();
    vec![
        Step::Commit(changes(path)),
        Step::Commit(vec![update(&[7])]),
        Step::Commit(vec![append(30, 300)]),
        Step::Commit(vec![update(&[0, 100, 329]), append(330, 2), update(&[331])]),
        Step::Reopen,
        Step::Commit(vec![delete(&[8]), update(&[9, 10])]),
        Step::Commit(vec![update(&all[20..])]),
        Step::Seal("run7".into()),
    ]
}

/// Containers and databases, one of them in a place, get other names and are dropped; names are used again.
fn names() -> Vec<Step> {
    let path = "run7/events";
    let rename = |path: &str, name: &str| Change::Rename { path: path.into(), name: name.into() };
    let container = |path: &str| Change::Container(path.into(), Profile::Plain);
    let append = |path: &str| Change::Append { path: path.into(), first: 0, count: 4 };
    let new = |name: &str, new: &str| Change::RenameDatabase { name: name.into(), new: new.into() };
    let in_place = Change::DatabaseIn { name: "run8".into(), place: "disk1".into() };
    vec![
        Step::Commit([changes(path), vec![container("run7/b"), append("run7/b")]].concat()),
        Step::Commit(vec![rename(path, "old")]),
        Step::Commit(vec![container(path), append(path), append("run7/old")]),
        Step::Commit(vec![Change::Drop("run7/b".into())]),
        Step::Commit(vec![in_place, container("run8/b"), append("run8/b")]),
        Step::Commit(vec![new("run8", "run9")]),
        Step::Reopen,
        Step::Commit(vec![append("run9/b"), append(path)]),
        Step::Commit(vec![Change::DropDatabase("run9".into())]),
        Step::Commit(vec![append(path)]),
        Step::Reopen,
    ]
}

/// An index, and a newer class, over objects that are there and more that come.
fn evolution() -> Vec<Step> {
    let path = "run7/events";
    let append = |first, count| Change::Append { path: path.into(), first, count };
    let update = |entries: &[u64]| Change::Update { path: path.into(), entries: entries.to_vec() };
    vec![
        Step::Commit(changes(path)),
        Step::Commit(vec![Change::Index(path.into())]),
        Step::Commit(vec![append(30, 3)]),
        Step::Commit(vec![Change::Evolve(path.into())]),
        Step::Commit(vec![append(33, 20), update(&[1, 31])]),
        Step::Commit(vec![Change::Delete { path: path.into(), entries: vec![2, 40] }]),
        Step::Seal("run7".into()),
        Step::Reopen,
    ]
}

/// Space of old versions, of a dropped container and of a compaction comes back and is used again.
fn vacuum() -> Vec<Step> {
    let path = "run7/events";
    let append = |first, count| Change::Append { path: path.into(), first, count };
    let update = |count| Change::Update { path: path.into(), entries: (0..count).collect() };
    let other = "run7/other";
    vec![
        Step::Commit(changes(path)),
        Step::Commit(vec![
            append(30, 300),
            Change::Container(other.into(), Profile::Plain),
            Change::Append { path: other.into(), first: 0, count: 200 },
        ]),
        Step::Commit(vec![update(330)]),
        Step::Commit(vec![Change::Drop(other.into())]),
        Step::Vacuum,
        Step::Commit(vec![update(200)]),
        Step::Commit(vec![append(330, 100)]),
        Step::Vacuum,
        Step::Reopen,
        Step::Compact(path.into()),
        Step::Vacuum,
        Step::Commit(vec![update(100), append(430, 5)]),
    ]
}

/// A database is sealed while another goes on.
fn seal() -> Vec<Step> {
    let (one, two) = ("one/events", "two/events");
    let append = |path: &str, first, count| Change::Append { path: path.into(), first, count };
    vec![
        Step::Commit(vec![
            Change::Database("one".into()),
            Change::Container(one.into(), Profile::Plain),
            Change::Container("one/more".into(), Profile::Fast),
            append(one, 0, 20),
            append("one/more", 0, 3),
        ]),
        Step::Commit(vec![
            Change::Database("two".into()),
            Change::Container(two.into(), Profile::Plain),
        ]),
        Step::Commit(vec![append(one, 20, 1), append(two, 0, 4)]),
        Step::Seal("one".into()),
        Step::Commit(vec![append(two, 4, 4)]),
        Step::Seal("two".into()),
        Step::Reopen,
    ]
}

// ---- the model

impl Contents {
    /// Does to the model what a step does to a federation.
    pub fn apply(&mut self, step: &Step) {
        match step {
            Step::Commit(changes) => changes.iter().for_each(|change| self.change(change)),
            Step::Seal(name) => {
                self.databases.entry(name.to_string()).or_default().is_sealed = true
            }
            Step::Reopen | Step::Vacuum | Step::Compact(_) => {}
        }
    }

    fn change(&mut self, change: &Change) {
        match change {
            Change::Database(name) | Change::DatabaseIn { name, .. } => {
                self.databases.insert(name.to_string(), Database::default());
            }
            Change::Container(path, _) => drop(self.container(path)),
            Change::Append { path, first, count } => {
                let container = self.container(path);
                let is_evolved = container.is_evolved;
                let new = (*first..first + count).map(|number| Some(of_class(number, is_evolved)));
                container.objects.extend(new);
            }
            Change::AppendLarge { path, number } => {
                self.container(path).objects.push(Some(large_object(*number)));
            }
            Change::Delete { path, entries } => {
                let objects = &mut self.container(path).objects;
                entries.iter().for_each(|entry| objects[*entry as usize] = None);
            }
            Change::Update { path, entries } => {
                let objects = &mut self.container(path).objects;
                for entry in entries {
                    let object = objects[*entry as usize].as_mut();
                    update(object.expect("scripts update what is there"));
                }
            }
            Change::Rename { path, name } => {
                let (database, old) = split(path);
                let database = self.databases.entry(database.to_owned()).or_default();
                if let Some(container) = database.containers.remove(old) {
                    database.containers.insert(name.clone(), container);
                }
            }
            Change::Drop(path) => {
                let (database, name) = split(path);
                let database = self.databases.entry(database.to_owned()).or_default();
                database.containers.remove(name);
            }
            Change::DropDatabase(name) => drop(self.databases.remove(name)),
            Change::RenameDatabase { name, new } => {
                if let Some(database) = self.databases.remove(name) {
                    self.databases.insert(new.clone(), database);
                }
            }
            Change::Evolve(path) => {
                let container = self.container(path);
                container.is_evolved = true;
                container.objects.iter_mut().flatten().for_each(|object| evolve(object, 0));
            }
            Change::Index(_) => {}
        }
    }

    fn container(&mut self, path: &str) -> &mut Container {
        let (database, name) = split(path);
        let database = self.databases.entry(database.to_owned()).or_default();
        database.containers.entry(name.to_owned()).or_default()
    }
}

/// Database and container of a path.
pub fn split(path: &str) -> (&str, &str) {
    path.split_once('/').expect("paths of scripts have a database and a container")
}

/// The class of all objects of scripts.
pub fn class() -> Class {
    let json = r#"{"name": "Item", "version": 1, "fields": [
        {"name": "number", "type": "uint64"},
        {"name": "text", "type": "string"},
        {"name": "words", "type": {"list": "uint32"}},
        {"name": "maybe", "type": {"optional": "float64"}}]}"#;
    Class::from_json(json).expect("the class of the scripts is a class")
}

/// The object with a number, as it is after so many updates.
pub fn object(number: u64, updates: u64) -> Value {
    let words = (0..number % 4).map(|at| Value::UInt(number % 1_000_000 * 10 + at)).collect();
    let maybe = match (number + updates) % 3 {
        0 => Value::Null,
        _ => Value::Float(number as f64 / 8.0 + updates as f64),
    };
    Value::Record(vec![
        ("number".to_owned(), Value::UInt(number)),
        ("text".to_owned(), Value::String(format!("{number}.{updates}"))),
        ("words".to_owned(), Value::List(words)),
        ("maybe".to_owned(), maybe),
    ])
}

/// The same with a text of many bytes, no two pages of which are the same.
fn large_object(number: u64) -> Value {
    let mut object = object(number, 0);
    if let Value::Record(members) = &mut object {
        let lines = |at: usize| format!("{number}.{at:010}\n").repeat(64);
        let text = (0..=LARGE_BYTES / lines(0).len()).map(lines).collect();
        members[1].1 = Value::String(text);
    }
    object
}

/// The same class with one more field.
pub fn evolved_class() -> Class {
    let mut json = class().to_json().replace("\"version\":1", "\"version\":2");
    let end = json.rfind(']').expect("a class has a list of fields");
    json.insert_str(end, r#",{"name": "extra", "type": "uint32"}"#);
    Class::from_json(&json).expect("the class of the scripts is a class")
}

fn of_class(number: u64, is_evolved: bool) -> Value {
    let mut object = object(number, 0);
    if is_evolved {
        evolve(&mut object, number);
    }
    object
}

fn evolve(object: &mut Value, extra: u64) {
    if let Value::Record(members) = object {
        members.push(("extra".to_owned(), Value::UInt(extra)));
    }
}

/// What an update makes of an object: a longer text, and another number of words.
pub fn update(object: &mut Value) {
    let text = format!("{}+", text(object));
    let mut words = words(object).to_vec();
    match words.len() {
        3.. => words.truncate(1),
        count => words.push(Value::UInt(count as u64 + 1_000_000)),
    }
    if let Value::Record(members) = object {
        for (name, value) in members {
            match name.as_str() {
                "text" => *value = Value::String(text.clone()),
                "words" => *value = Value::List(words.clone()),
                _ => {}
            }
        }
    }
}

fn text(object: &Value) -> &str {
    match object.member("text") {
        Some(Value::String(text)) => text,
        _ => "",
    }
}

fn words(object: &Value) -> &[Value] {
    match object.member("words") {
        Some(Value::List(words)) => words,
        _ => &[],
    }
}

// ---- the federation

/// A federation that a script is run on.
pub struct Runner {
    folder: PathBuf,
    federation: Option<Federation>,
}

impl Runner {
    /// Creates a federation.
    ///
    /// # Errors
    /// As the engine.
    pub fn create(folder: &Path) -> Result<Self> {
        let federation = Federation::create(folder, "test")?;
        Ok(Runner { folder: folder.to_owned(), federation: Some(federation) })
    }

    /// Opens a federation.
    ///
    /// # Errors
    /// As the engine.
    pub fn open(folder: &Path) -> Result<Self> {
        let federation = Federation::open(folder)?;
        Ok(Runner { folder: folder.to_owned(), federation: Some(federation) })
    }

    /// The federation, unless it could not be opened again.
    pub fn opened(&self) -> Option<&Federation> {
        self.federation.as_ref()
    }

    /// The federation.
    pub fn federation(&self) -> &Federation {
        self.opened().expect("only a failed reopening leaves none")
    }

    /// Does a step. Returns the commit that it made, if it made one.
    ///
    /// # Errors
    /// As the engine.
    pub fn run(&mut self, step: &Step) -> Result<Option<Csn>> {
        match step {
            Step::Commit(changes) => {
                let mut transaction = self.federation().transaction(Default::default())?;
                changes.iter().try_for_each(|change| make(&mut transaction, change))?;
                transaction.commit().map(Some)
            }
            Step::Seal(name) => self.federation().seal(name, Duration::ZERO).map(Some),
            Step::Vacuum => {
                let federation = self.federation();
                let keep_from = Some(federation.head()?);
                let options = VacuumOptions { keep_from, ..VacuumOptions::default() };
                federation.vacuum(&options, &mut |_| true).map(|_| None)
            }
            Step::Compact(path) => {
                let options = CompactOptions { all: true, ..CompactOptions::default() };
                let done = self.federation().compact(path, &options, &mut |_| true)?;
                Ok(done.first().and_then(|compacted| compacted.csn))
            }
            Step::Reopen => {
                // The old one is closed first, as when a program ends and another starts.
                self.federation = None;
                self.federation = Some(Federation::open(&self.folder)?);
                Ok(None)
            }
        }
    }
}

/// Options with which small containers have several clusters of several pages.
pub fn small_pages(compression: Profile) -> ContainerOptions {
    ContainerOptions { page_size: 4096, cluster_size: 8192, compression }
}

fn make(transaction: &mut Transaction, change: &Change) -> Result<()> {
    match change {
        Change::Database(name) => transaction.create_database(name).map(drop),
        Change::DatabaseIn { name, place } => {
            transaction.create_database_in(name, Some(place)).map(drop)
        }
        Change::Container(path, compression) => {
            let (database, name) = split(path);
            let database = transaction.database(database)?;
            let options = small_pages(*compression);
            transaction.create_container(database, name, &class(), options).map(drop)
        }
        Change::Append { path, first, count } => {
            let (database, name) = split(path);
            let database = transaction.database(database)?;
            let key = transaction.container(database, name)?;
            let is_evolved = transaction.class(key)?.version > 1;
            for number in *first..first + count {
                transaction.append_value(key, of_class(number, is_evolved))?;
            }
            Ok(())
        }
        Change::AppendLarge { path, number } => {
            let key = open(transaction, path)?;
            transaction.append_value(key, large_object(*number)).map(drop)
        }
        Change::Delete { path, entries } => {
            let key = open(transaction, path)?;
            transaction.delete(key, entries).map(drop)
        }
        Change::Update { path, entries } => {
            let key = open(transaction, path)?;
            let view = transaction.view(path)?;
            let update = |entry: &u64| {
                let mut object = view.value(*entry)?;
                update(&mut object);
                Ok(object)
            };
            let objects = entries.iter().map(update).collect::<Result<Vec<_>>>()?;
            transaction.update(key, entries, updated_fields(&objects))
        }
        Change::Rename { path, name } => {
            let (database, old) = split(path);
            let database = transaction.database(database)?;
            transaction.rename_container(database, old, name).map(drop)
        }
        Change::Drop(path) => {
            let (database, name) = split(path);
            let database = transaction.database(database)?;
            transaction.drop_container(database, name)
        }
        Change::DropDatabase(name) => transaction.drop_database(name),
        Change::RenameDatabase { name, new } => transaction.rename_database(name, new),
        Change::Evolve(path) => {
            let key = open(transaction, path)?;
            transaction.evolve(key, &evolved_class())
        }
        Change::Index(path) => {
            let key = open(transaction, path)?;
            transaction.create_index(key, "numbers", &["number"], false)
        }
    }
}

fn open(transaction: &mut Transaction, path: &str) -> Result<ContainerKey> {
    let (database, name) = split(path);
    let database = transaction.database(database)?;
    transaction.container(database, name)
}

/// The fields of objects that an update changes, as columns.
pub fn updated_fields(objects: &[Value]) -> Array {
    let texts: Vec<&str> = objects.iter().map(text).collect();
    let lists: Vec<&[Value]> = objects.iter().map(words).collect();
    let numbers = lists.concat();
    let numbers = numbers.iter().map(|word| word.as_integer().unwrap_or_default() as u32).collect();
    let text = Array::String {
        offsets: offsets(texts.iter().map(|text| text.len())),
        bytes: texts.concat().into_bytes().into(),
    };
    let words = Array::List {
        offsets: offsets(lists.iter().map(|list| list.len())),
        content: Array::primitive(Primitive::UInt32, numbers).into(),
        optional: false,
    };
    let members = vec![("text".to_owned(), text), ("words".to_owned(), words)];
    Array::Record { length: objects.len(), members }
}

fn offsets(lengths: impl Iterator<Item = usize>) -> bytes::Bytes {
    let mut offsets = vec![0_i64];
    let mut end = 0;
    offsets.extend(lengths.map(|length| {
        end += length as i64;
        end
    }));
    bytes_of(offsets)
}
