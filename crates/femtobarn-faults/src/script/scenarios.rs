//! The scripts.

use femtobarn::Profile;

use super::model::ExpectedContents;
use super::step::{ScriptChange, ScriptStep};
use crate::random::SplitMix;

/// A named list of steps.
pub struct Script {
    /// The name.
    pub name: &'static str,
    /// The steps.
    pub steps: Vec<ScriptStep>,
}

/// The names of all scripts.
pub const NAMES: [&str; 13] = [
    "single",
    "slots",
    "large",
    "tasks",
    "two databases",
    "delete",
    "update",
    "names",
    "short lives",
    "evolve",
    "vacuum",
    "seal",
    "stores",
];

impl Script {
    /// The script of this name; none if it is unknown.
    pub fn named(name: &str) -> Option<Self> {
        let name = *NAMES.iter().find(|known| **known == name)?;
        let steps = match name {
            "single" => single(),
            "slots" => slots(),
            "large" => large(),
            "tasks" => tasks(),
            "two databases" => two_databases(),
            "delete" => delete(),
            "update" => updates(),
            "names" => names(),
            "short lives" => short_lives(),
            "evolve" => evolution(),
            "vacuum" => vacuum(),
            "seal" => seal(),
            _ => stores(),
        };
        Some(Script { name, steps })
    }

    /// The expected contents after the first `steps` steps.
    pub fn contents_after(&self, steps: usize) -> ExpectedContents {
        let mut contents = ExpectedContents::default();
        self.steps[..steps].iter().for_each(|step| contents.apply(step));
        contents
    }
}

/// Appends, small and large, to one container.
fn single() -> Vec<ScriptStep> {
    let path = "run7/events";
    let container = ScriptChange::Container(path.into(), Profile::Plain);
    let append = |first, count| ScriptChange::Append { path: path.into(), first, count };
    let mut steps = vec![ScriptStep::Commit(vec![
        ScriptChange::Database("run7".into()),
        container,
        append(0, 10),
    ])];
    let mut next = 10;
    for (round, count) in [1, 3, 40, 2, 250, 1, 5, 1].into_iter().enumerate() {
        steps.push(ScriptStep::Commit(vec![append(next, count)]));
        next += count;
        if round == 4 {
            steps.push(ScriptStep::Reopen);
        }
    }
    steps.push(ScriptStep::Reopen);
    steps
}

/// More small commits than the catalogue has slots for their bytes, so that slots are used again.
fn slots() -> Vec<ScriptStep> {
    const COMMITS: u64 = 540;
    let path = "run7/events";
    let append = |number| ScriptChange::Append { path: path.into(), first: number, count: 1 };
    let first = vec![
        ScriptChange::Database("run7".into()),
        ScriptChange::Container(path.into(), Profile::Plain),
        append(0),
    ];
    let later = (1..COMMITS).map(|number| ScriptStep::Commit(vec![append(number)]));
    [ScriptStep::Commit(first)].into_iter().chain(later).chain([ScriptStep::Reopen]).collect()
}

/// Large writes, which bypass the page cache, beside small ones, which do not.
fn large() -> Vec<ScriptStep> {
    let path = "run7/events";
    let append = |first, count| ScriptChange::Append { path: path.into(), first, count };
    let large = |number| ScriptChange::AppendLarge { path: path.into(), number };
    vec![
        ScriptStep::Commit(changes(path)),
        ScriptStep::Commit(vec![append(30, 2), large(32), append(33, 2)]),
        ScriptStep::Reopen,
        ScriptStep::Commit(vec![append(35, 1)]),
    ]
}

/// Tasks write for transactions that also write themselves, into new databases and old ones, and into freed space.
fn tasks() -> Vec<ScriptStep> {
    let (one, two) = ("one/events", "two/packed");
    let append = |first| ScriptChange::Append { path: one.into(), first, count: 2 };
    let by_tasks = |path: &str, first, tasks, count| ScriptChange::AppendByTasks {
        path: path.into(),
        first,
        tasks,
        count,
    };
    vec![
        ScriptStep::Commit(vec![
            ScriptChange::Database("one".into()),
            ScriptChange::Container(one.into(), Profile::Plain),
            by_tasks(one, 0, 3, 4),
        ]),
        ScriptStep::Commit(vec![append(12), by_tasks(one, 14, 2, 300), append(614)]),
        ScriptStep::Commit(vec![
            ScriptChange::Database("two".into()),
            ScriptChange::Container(two.into(), Profile::Archive),
            by_tasks(two, 0, 2, 5),
            by_tasks(one, 616, 1, 1),
        ]),
        ScriptStep::Vacuum,
        ScriptStep::Commit(vec![by_tasks(one, 617, 3, 40)]),
        ScriptStep::Reopen,
        ScriptStep::Commit(vec![by_tasks(two, 10, 1, 2), append(737)]),
    ]
}

/// Transactions over two databases, and over one of them.
fn two_databases() -> Vec<ScriptStep> {
    let (left, right) = ("left/events", "right/packed");
    let append =
        |path: &str, first, count| ScriptChange::Append { path: path.into(), first, count };
    let mut steps = vec![
        ScriptStep::Commit(vec![
            ScriptChange::Database("left".into()),
            ScriptChange::Container(left.into(), Profile::Plain),
            append(left, 0, 5),
        ]),
        ScriptStep::Commit(vec![
            ScriptChange::Database("right".into()),
            ScriptChange::Container(right.into(), Profile::Archive),
            append(left, 5, 2),
            append(right, 0, 7),
        ]),
    ];
    let mut random = SplitMix(2);
    for round in 0..8 {
        let some = 1 + random.below(30);
        let mut changes = vec![append(left, round * 100, some), append(right, round * 100, some)];
        if round % 3 == 2 {
            changes.remove(random.below(2) as usize);
        }
        steps.push(ScriptStep::Commit(changes));
    }
    steps.push(ScriptStep::Reopen);
    steps
}

/// Deletions, alone and with appends, also of objects that were appended in the same transaction.
fn delete() -> Vec<ScriptStep> {
    let (path, other) = ("run7/events", "run7/packed");
    let append =
        |path: &str, first, count| ScriptChange::Append { path: path.into(), first, count };
    let delete = |path: &str, entries: &[u64]| ScriptChange::Delete {
        path: path.into(),
        entries: entries.to_vec(),
    };
    vec![
        ScriptStep::Commit(vec![
            ScriptChange::Database("run7".into()),
            ScriptChange::Container(path.into(), Profile::Plain),
            ScriptChange::Container(other.into(), Profile::Archive),
            append(path, 0, 20),
            append(other, 0, 5),
        ]),
        ScriptStep::Commit(vec![delete(path, &[3, 4, 19])]),
        ScriptStep::Commit(vec![append(path, 20, 2), delete(path, &[0, 21]), delete(other, &[4])]),
        ScriptStep::Commit(vec![append(other, 5, 1)]),
        ScriptStep::Reopen,
        ScriptStep::Commit(vec![delete(path, &(5..15).collect::<Vec<_>>())]),
        ScriptStep::Seal("run7".into()),
    ]
}

fn changes(path: &str) -> Vec<ScriptChange> {
    vec![
        ScriptChange::Database("run7".into()),
        ScriptChange::Container(path.into(), Profile::Plain),
        ScriptChange::Append { path: path.into(), first: 0, count: 30 },
    ]
}

/// Updates, alone and with appends and deletions, also of objects that were appended in the same transaction.
fn updates() -> Vec<ScriptStep> {
    let path = "run7/events";
    let update =
        |entries: &[u64]| ScriptChange::Update { path: path.into(), entries: entries.to_vec() };
    let append = |first, count| ScriptChange::Append { path: path.into(), first, count };
    let delete =
        |entries: &[u64]| ScriptChange::Delete { path: path.into(), entries: entries.to_vec() };
    let all: Vec<u64> = (0..30).collect();
    vec![
        ScriptStep::Commit(changes(path)),
        ScriptStep::Commit(vec![update(&[7])]),
        ScriptStep::Commit(vec![append(30, 300)]),
        ScriptStep::Commit(vec![update(&[0, 100, 329]), append(330, 2), update(&[331])]),
        ScriptStep::Reopen,
        ScriptStep::Commit(vec![delete(&[8]), update(&[9, 10])]),
        ScriptStep::Commit(vec![update(&all[20..])]),
        ScriptStep::Seal("run7".into()),
    ]
}

/// Containers and databases, one of them in a place, are renamed and dropped; names are reused.
fn names() -> Vec<ScriptStep> {
    let path = "run7/events";
    let rename =
        |path: &str, name: &str| ScriptChange::Rename { path: path.into(), name: name.into() };
    let container = |path: &str| ScriptChange::Container(path.into(), Profile::Plain);
    let append = |path: &str| ScriptChange::Append { path: path.into(), first: 0, count: 4 };
    let new =
        |name: &str, new: &str| ScriptChange::RenameDatabase { name: name.into(), new: new.into() };
    let in_place = ScriptChange::DatabaseIn { name: "run8".into(), place: "disk1".into() };
    vec![
        ScriptStep::Commit([changes(path), vec![container("run7/b"), append("run7/b")]].concat()),
        ScriptStep::Commit(vec![rename(path, "old")]),
        ScriptStep::Commit(vec![container(path), append(path), append("run7/old")]),
        ScriptStep::Commit(vec![ScriptChange::Drop("run7/b".into())]),
        ScriptStep::Commit(vec![in_place, container("run8/b"), append("run8/b")]),
        ScriptStep::Commit(vec![new("run8", "run9")]),
        ScriptStep::Reopen,
        ScriptStep::Commit(vec![append("run9/b"), append(path)]),
        ScriptStep::Commit(vec![ScriptChange::DropDatabase("run9".into())]),
        ScriptStep::Commit(vec![append(path)]),
        ScriptStep::Reopen,
    ]
}

/// Small databases are made and dropped, some with the same name, among commits to others. Some have further commits:
/// one whose bytes the catalogue takes, too, and one whose file is synced.
fn short_lives() -> Vec<ScriptStep> {
    let container = |path: &str| ScriptChange::Container(path.into(), Profile::Plain);
    let append =
        |path: &str, first, count| ScriptChange::Append { path: path.into(), first, count };
    let other = |first| ScriptStep::Commit(vec![append("run7/events", first, 2)]);
    let new = |count| {
        let database = ScriptChange::Database("brief".into());
        vec![database, container("brief/a"), append("brief/a", 0, count)]
    };
    let drop = || vec![ScriptChange::DropDatabase("brief".into())];
    let in_place = ScriptChange::DatabaseIn { name: "placed".into(), place: "disk1".into() };
    vec![
        ScriptStep::Commit(changes("run7/events")),
        ScriptStep::Commit(new(2)),
        ScriptStep::Commit(drop()),
        ScriptStep::Commit(new(3)),
        other(30),
        ScriptStep::Commit([drop(), new(1)].concat()),
        ScriptStep::Commit(vec![append("brief/a", 1, 1)]),
        ScriptStep::Commit(vec![append("brief/a", 2, 300)]),
        other(32),
        ScriptStep::Commit(vec![in_place, container("placed/a"), append("placed/a", 0, 2)]),
        ScriptStep::Commit(drop()),
        ScriptStep::Vacuum,
        ScriptStep::Commit([new(2), vec![append("placed/a", 2, 1)]].concat()),
        ScriptStep::Reopen,
        ScriptStep::Commit(vec![append("brief/a", 2, 1)]),
        ScriptStep::Commit(drop()),
        other(34),
    ]
}

/// An index and a new version of the class, over existing objects and later ones.
fn evolution() -> Vec<ScriptStep> {
    let path = "run7/events";
    let append = |first, count| ScriptChange::Append { path: path.into(), first, count };
    let update =
        |entries: &[u64]| ScriptChange::Update { path: path.into(), entries: entries.to_vec() };
    vec![
        ScriptStep::Commit(changes(path)),
        ScriptStep::Commit(vec![ScriptChange::Index(path.into())]),
        ScriptStep::Commit(vec![append(30, 3)]),
        ScriptStep::Commit(vec![ScriptChange::Evolve(path.into())]),
        ScriptStep::Commit(vec![append(33, 20), update(&[1, 31])]),
        ScriptStep::Commit(vec![ScriptChange::Delete { path: path.into(), entries: vec![2, 40] }]),
        ScriptStep::Seal("run7".into()),
        ScriptStep::Reopen,
    ]
}

/// Space of old versions, of a dropped container and of a compaction is reclaimed and reused.
fn vacuum() -> Vec<ScriptStep> {
    let path = "run7/events";
    let append = |first, count| ScriptChange::Append { path: path.into(), first, count };
    let update = |count| ScriptChange::Update { path: path.into(), entries: (0..count).collect() };
    let other = "run7/other";
    vec![
        ScriptStep::Commit(changes(path)),
        ScriptStep::Commit(vec![
            append(30, 300),
            ScriptChange::Container(other.into(), Profile::Plain),
            ScriptChange::Append { path: other.into(), first: 0, count: 200 },
        ]),
        ScriptStep::Commit(vec![update(330)]),
        ScriptStep::Commit(vec![ScriptChange::Drop(other.into())]),
        ScriptStep::Vacuum,
        ScriptStep::Commit(vec![update(200)]),
        ScriptStep::Commit(vec![append(330, 100)]),
        ScriptStep::Vacuum,
        ScriptStep::Reopen,
        ScriptStep::Compact(path.into()),
        ScriptStep::Vacuum,
        ScriptStep::Commit(vec![update(100), append(430, 5)]),
    ]
}

/// A database is sealed while another accepts commits.
fn seal() -> Vec<ScriptStep> {
    let (one, two) = ("one/events", "two/events");
    let append =
        |path: &str, first, count| ScriptChange::Append { path: path.into(), first, count };
    vec![
        ScriptStep::Commit(vec![
            ScriptChange::Database("one".into()),
            ScriptChange::Container(one.into(), Profile::Plain),
            ScriptChange::Container("one/more".into(), Profile::Fast),
            append(one, 0, 20),
            append("one/more", 0, 3),
        ]),
        ScriptStep::Commit(vec![
            ScriptChange::Database("two".into()),
            ScriptChange::Container(two.into(), Profile::Plain),
        ]),
        ScriptStep::Commit(vec![append(one, 20, 1), append(two, 0, 4)]),
        ScriptStep::Seal("one".into()),
        ScriptStep::Commit(vec![append(two, 4, 4)]),
        ScriptStep::Seal("two".into()),
        ScriptStep::Reopen,
    ]
}

/// Databases go to a store, leave the disk and come back, while another accepts commits.
fn stores() -> Vec<ScriptStep> {
    let (one, two) = ("one/events", "two/events");
    let append =
        |path: &str, first, count| ScriptChange::Append { path: path.into(), first, count };
    let database = |name: &str, path: &str| {
        let container = ScriptChange::Container(path.into(), Profile::Plain);
        ScriptStep::Commit(vec![ScriptChange::Database(name.into()), container, append(path, 0, 9)])
    };
    vec![
        database("one", one),
        database("two", two),
        ScriptStep::Seal("one".into()),
        ScriptStep::Migrate("one".into()),
        ScriptStep::Commit(vec![append(two, 9, 4)]),
        ScriptStep::Evict("one".into()),
        ScriptStep::Commit(vec![append(two, 13, 1)]),
        ScriptStep::Stage("one".into()),
        ScriptStep::Evict("one".into()),
        ScriptStep::Reopen,
        ScriptStep::Stage("one".into()),
        ScriptStep::Commit(vec![ScriptChange::DropDatabase("one".into())]),
        ScriptStep::Vacuum,
    ]
}
