//! The objects that global tags are stored as.
//!
//! Version 1 of their class had no branches. Changes of that version are read as changes without any, and the
//! container is evolved when the next change is made.

use femtobarn::{
    Class, ContainerKey, ContainerOptions, Cursor, Error, Field, FieldType, Result, Snapshot,
    Transaction, View,
};
use rntuple::row;

/// The database and the container that hold the global tags.
const DATABASE: &str = "conditions";
const CONTAINER: &str = "global_tags";
const CLASS: &str = "femtobarn::GlobalTag";
const INDEX: &str = "by_name";
const CLASS_VERSION: u32 = 2;
/// The `csn` of a series or tag that follows the newest commit.
pub(super) const NEWEST: u64 = 0;

row! {
    /// A tag's version of one series.
    #[derive(Clone, Debug, Default, PartialEq, Eq)]
    pub(super) struct VersionRecord {
        pub series: String,
        pub csn: u64,
        pub source: String,
        pub is_removed: bool,
    }
}

row! {
    /// A container of a branch, in front of a series.
    #[derive(Clone, Debug, Default, PartialEq, Eq)]
    pub(super) struct BranchRecord {
        pub series: String,
        pub container: String,
        pub csn: u64,
    }
}

row! {
    /// One change of a tag.
    #[derive(Clone, Debug, Default, PartialEq, Eq)]
    pub(super) struct ChangeRecord {
        pub name: String,
        pub state: String,
        pub base: i64,
        pub csn: u64,
        pub only_listed: bool,
        pub versions: Vec<VersionRecord>,
        pub time: i64,
        pub user: String,
        pub message: String,
        pub is_branch: bool,
        pub branches: Vec<BranchRecord>,
    }
}

row! {
    /// A change as of version 1 of the class.
    pub(super) struct FirstChangeRecord {
        pub name: String,
        pub state: String,
        pub base: i64,
        pub csn: u64,
        pub only_listed: bool,
        pub versions: Vec<VersionRecord>,
        pub time: i64,
        pub user: String,
        pub message: String,
    }
}

row! {
    /// The fields that changes of every version have.
    pub(super) struct NameRecord {
        pub name: String,
    }
}

impl From<FirstChangeRecord> for ChangeRecord {
    fn from(first: FirstChangeRecord) -> Self {
        ChangeRecord {
            name: first.name,
            state: first.state,
            base: first.base,
            csn: first.csn,
            only_listed: first.only_listed,
            versions: first.versions,
            time: first.time,
            user: first.user,
            message: first.message,
            ..Default::default()
        }
    }
}

/// Reads changes of any version.
pub(super) enum Changes {
    First(Cursor<FirstChangeRecord>),
    Current(Cursor<ChangeRecord>),
}

impl Changes {
    pub(super) fn of(view: &View) -> Result<Self> {
        if view.class().version == 1 {
            view.cursor().map(Changes::First)
        } else {
            view.cursor().map(Changes::Current)
        }
    }

    pub(super) fn get(&mut self, entry: u64) -> Result<ChangeRecord> {
        match self {
            Changes::First(cursor) => cursor.get(entry).map(ChangeRecord::from),
            Changes::Current(cursor) => cursor.get(entry),
        }
    }
}

pub(super) fn open_container(transaction: &mut Transaction) -> Result<ContainerKey> {
    let database = transaction.database_or_new(DATABASE, None)?;
    if transaction.find_container(database, CONTAINER)?.is_some() {
        let key = transaction.container(database, CONTAINER)?;
        if transaction.class(key)?.version < CLASS_VERSION {
            transaction.evolve(key, &class())?;
        }
        return Ok(key);
    }
    // Tags are read one by one.
    let options = ContainerOptions { page_size: 4 << 10, ..Default::default() };
    let key = transaction.create_container(database, CONTAINER, &class(), options)?;
    transaction.create_index(key, INDEX, &["name"], false)?;
    Ok(key)
}

fn class() -> Class {
    let field = |name: &str, of: FieldType, description: &str| Field {
        name: name.to_owned(),
        of,
        description: description.to_owned(),
        was: String::new(),
        default: None,
    };
    let version = FieldType::Record {
        class: String::new(),
        fields: vec![
            field("series", FieldType::String, "path of the series"),
            field("csn", FieldType::UInt64, "commit as of which it is read; 0: that of the tag"),
            field("source", FieldType::String, "container that is read instead; empty: none"),
            field("is_removed", FieldType::Bool, "whether the series is removed from the list"),
        ],
    };
    let branch = FieldType::Record {
        class: String::new(),
        fields: vec![
            field("series", FieldType::String, "path of the series, which versions has, too"),
            field("container", FieldType::String, "path of the container that is in front of it"),
            field("csn", FieldType::UInt64, "commit as of which it is read; 0: the newest"),
        ],
    };
    Class {
        name: CLASS.to_owned(),
        version: CLASS_VERSION,
        fields: vec![
            field("name", FieldType::String, "name of the tag"),
            field("state", FieldType::String, "open, locked or frozen"),
            field(
                "base",
                FieldType::Int64,
                "entry of the change that this one is based on; -1: none",
            ),
            field("csn", FieldType::UInt64, "commit as of which series are read; 0: the newest"),
            field("only_listed", FieldType::Bool, "whether the tag names only the listed series"),
            field(
                "versions",
                FieldType::List(Box::new(version)),
                "series that differ from the base",
            ),
            field("time", FieldType::Int64, "time of the change [ns since 1970]"),
            field("user", FieldType::String, "user who made the change"),
            field("message", FieldType::String, "reason of the change"),
            field("is_branch", FieldType::Bool, "whether conditions can be put into the tag"),
            field(
                "branches",
                FieldType::List(Box::new(branch)),
                "containers of branches, of one series the newest first",
            ),
        ],
    }
}

pub(super) fn container(snapshot: &Snapshot) -> Result<Option<View>> {
    let path = path();
    if snapshot.has(&path)? { snapshot.view(&path).map(Some) } else { Ok(None) }
}

/// The path of the container.
pub(super) fn path() -> String {
    format!("{DATABASE}/{CONTAINER}")
}

/// The changes that a change builds on, itself first.
pub(super) fn chain(view: &View, entry: u64) -> Result<Vec<ChangeRecord>> {
    let mut changes = Changes::of(view)?;
    let mut chain = vec![];
    let mut next = entry;
    loop {
        let change = changes.get(next)?;
        let base = change.base;
        chain.push(change);
        match u64::try_from(base) {
            Err(_) => return Ok(chain),
            // A base comes before the changes based on it, so that even a damaged chain ends.
            Ok(base) if base < next => next = base,
            Ok(base) => {
                return Err(Error::Corrupt {
                    what: format!(
                        "{}: change {next} is based on change {base}, which is not earlier",
                        view.path()
                    ),
                });
            }
        }
    }
}
