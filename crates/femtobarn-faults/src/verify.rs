//! Verifies that a recovered federation has the acknowledged contents and no other.
//! 1. Every acknowledged step exists completely. The step that was running exists completely, in all its databases, or
//!    not at all.
//! 2. Snapshots of acknowledged commits have the same contents as before.
//! 3. A vacuum frees all bytes that unfinished transactions and tasks left.
//! 4. The federation is usable: new commits succeed and survive reopening, and databases can be sealed.

use std::path::Path;

use femtobarn::{
    CheckLevel, Csn, DatabaseState, ErrorKind, Federation, Problem, ProblemKind, Profile, Severity,
    Snapshot, VacuumOptions,
};
use rntuple::Value;
use rntuple::tfile::KeyChain;

use crate::script::{
    ExpectedContainer, ExpectedContents, ExpectedDatabase, Runner, Script, ScriptChange,
    ScriptStep, split,
};

/// The acknowledgements that a program received.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Acknowledged {
    /// Whether the federation was created.
    pub is_created: bool,
    /// For each acknowledged step, its commit if it made one.
    pub steps: Vec<Option<Csn>>,
}

impl Acknowledged {
    /// Records an acknowledgement: `created`, `step`, or `step` and a commit.
    pub fn record(&mut self, text: &str) {
        match text.split_once(' ') {
            None if text == "created" => self.is_created = true,
            None => self.steps.push(None),
            Some((_, csn)) => self.steps.push(csn.parse().ok().map(Csn)),
        }
    }
}

/// The text of a step's acknowledgement.
pub fn acknowledgement(csn: Option<Csn>) -> String {
    csn.map_or("step".to_owned(), |csn| format!("step {}", csn.0))
}

/// Verifies the federation in a folder, and changes it thereby. If `thorough`, it is reopened and its databases are
/// sealed at the end.
///
/// # Errors
/// The first violation.
pub fn verify(
    folder: &Path,
    script: &Script,
    acknowledged: &Acknowledged,
    thorough: bool,
) -> Result<(), String> {
    let mut runner = match Runner::open(folder) {
        Ok(runner) => runner,
        Err(error) if !acknowledged.is_created && error.kind() == ErrorKind::NotFound => {
            let created = Federation::create(folder, "test");
            return created.map(drop).map_err(say("cannot create it again"));
        }
        Err(error) => return Err(say("cannot open it")(error)),
    };
    let mut expected = recovered(runner.federation(), script, acknowledged)?;
    check_history(runner.federation(), script, acknowledged)?;
    check(runner.federation(), if thorough { CheckLevel::Full } else { CheckLevel::Quick })?;
    if thorough {
        free_garbage(runner.federation())?;
    }
    commit_more(&mut runner, &mut expected)?;
    if thorough {
        runner.run(&ScriptStep::Reopen).map_err(say("cannot reopen it"))?;
        compare(runner.federation(), &expected, "after reopening")?;
        seal_all(&mut runner, &mut expected)?;
    }
    Ok(())
}

/// The federation's contents, which must be those of the acknowledged steps, or of one more.
fn recovered(
    federation: &Federation,
    script: &Script,
    acknowledged: &Acknowledged,
) -> Result<ExpectedContents, String> {
    let head = federation.snapshot(None).map_err(say("no snapshot"))?;
    let found = contents(&head)?;
    let expected = script.contents_after(acknowledged.steps.len());
    if found == expected {
        return Ok(found);
    }
    match script.steps.get(acknowledged.steps.len()) {
        Some(_) if found == script.contents_after(acknowledged.steps.len() + 1) => Ok(found),
        _ => Err(format!(
            "after {} steps: expected {}, found {}",
            acknowledged.steps.len(),
            summary(&expected),
            summary(&found)
        )),
    }
}

fn check_history(
    federation: &Federation,
    script: &Script,
    acknowledged: &Acknowledged,
) -> Result<(), String> {
    let count = acknowledged.steps.len();
    for at in [count.checked_sub(1), Some(count / 2)] {
        let Some((at, Some(csn))) = at.and_then(|at| Some((at, *acknowledged.steps.get(at)?)))
        else {
            continue;
        };
        let may_be_gone = script.steps[at + 1..].iter().take(count - at).any(|step| {
            // A vacuum that was running counts, too.
            matches!(step, ScriptStep::Vacuum)
        });
        let snapshot = match federation.snapshot(Some(csn)) {
            Err(error) if may_be_gone && error.kind() == ErrorKind::NotFound => continue,
            snapshot => snapshot,
        };
        let snapshot = snapshot.map_err(say("an acknowledged snapshot is missing"))?;
        if !is_alike(&contents(&snapshot)?, &script.contents_after(at + 1)) {
            return Err(format!("the snapshot of commit {csn} has changed"));
        }
    }
    Ok(())
}

/// Whether two contents are equal, apart from databases that were sealed later.
fn is_alike(found: &ExpectedContents, expected: &ExpectedContents) -> bool {
    let alike = |(left, right): ((&String, &ExpectedDatabase), (&String, &ExpectedDatabase))| {
        left.0 == right.0 && left.1.containers == right.1.containers
    };
    found.databases.len() == expected.databases.len()
        && found.databases.iter().zip(&expected.databases).all(alike)
}

fn check(federation: &Federation, level: CheckLevel) -> Result<(), String> {
    let report = federation.check(level, &mut |_| true).map_err(say("cannot check it"))?;
    // Leftovers of an uncommitted transaction are only warnings. So is damage to statistics and indices, which can
    // be rebuilt; but a crash must not cause it.
    let is_wrong = |problem: &&Problem| {
        let can_be_remade = matches!(problem.kind, ProblemKind::Statistics | ProblemKind::Index);
        problem.severity == Severity::Damage || can_be_remade
    };
    match report.problems.iter().find(is_wrong) {
        Some(problem) => Err(format!("check finds: {problem}")),
        None => Ok(()),
    }
}

/// Frees bytes that nothing refers to.
///
/// # Errors
/// A text if a vacuum fails or leaves some of them.
pub fn free_garbage(federation: &Federation) -> Result<(), String> {
    let options = VacuumOptions::default();
    let vacuum = || federation.vacuum(&options, &mut |_| true).map_err(say("cannot vacuum it"));
    vacuum()?;
    match vacuum()?.garbage_bytes {
        0 => Ok(()),
        left => Err(format!("a vacuum has left {left} bytes that nothing refers to")),
    }
}

/// Commits to every container that is not sealed and to a new one, and compares the contents.
fn commit_more(runner: &mut Runner, expected: &mut ExpectedContents) -> Result<(), String> {
    let mut changes = vec![
        ScriptChange::Database("after".into()),
        ScriptChange::Container("after/more".into(), Profile::Plain),
        ScriptChange::Append { path: "after/more".into(), first: 0, count: 3 },
    ];
    for (name, database) in expected.databases.iter().filter(|(_, database)| !database.is_sealed) {
        for container in database.containers.keys() {
            let path = format!("{name}/{container}");
            changes.push(ScriptChange::Append { path, first: 5000, count: 2 });
        }
    }
    let step = ScriptStep::Commit(changes);
    runner.run(&step).map_err(say("a new commit fails"))?;
    expected.apply(&step);
    compare(runner.federation(), expected, "after a new commit")
}

fn seal_all(runner: &mut Runner, expected: &mut ExpectedContents) -> Result<(), String> {
    let open: Vec<String> = expected
        .databases
        .iter()
        .filter(|(_, database)| !database.is_sealed)
        .map(|(name, _)| name.clone())
        .collect();
    for name in open {
        let step = ScriptStep::Seal(name);
        runner.run(&step).map_err(say("cannot seal it"))?;
        expected.apply(&step);
    }
    compare(runner.federation(), expected, "after sealing")?;
    let snapshot = runner.federation().snapshot(None).map_err(say("no snapshot"))?;
    for database in snapshot.databases().map_err(say("no databases"))? {
        check_chain(&runner.federation().folder().join(database.path))?;
    }
    Ok(())
}

/// Checks that the keys of a sealed file are contiguous from its first byte to its end.
fn check_chain(path: &Path) -> Result<(), String> {
    let cannot = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
    let file = std::fs::File::open(path).map_err(|error| cannot(&error))?;
    let size = file.metadata().map_err(|error| cannot(&error))?.len();
    let mut end = 0;
    for key in KeyChain::of_file(&file).map_err(|error| cannot(&error))? {
        let (position, key) = key.map_err(|error| cannot(&error))?;
        if !key.gap && position != key.position {
            return Err(cannot(&format!("the key at {position} says {}", key.position)));
        }
        end = position + key.size;
    }
    if end > size { Err(cannot(&"the last key is cut off")) } else { Ok(()) }
}

fn compare(federation: &Federation, expected: &ExpectedContents, when: &str) -> Result<(), String> {
    let snapshot = federation.snapshot(None).map_err(say("no snapshot"))?;
    let found = contents(&snapshot)?;
    if found == *expected {
        Ok(())
    } else {
        Err(format!("{when}: expected {}, found {}", summary(expected), summary(&found)))
    }
}

/// The contents of a snapshot.
///
/// # Errors
/// The error of the first object that cannot be read.
pub fn contents(snapshot: &Snapshot) -> Result<ExpectedContents, String> {
    let mut contents = ExpectedContents::default();
    for row in snapshot.databases().map_err(say("cannot list databases"))? {
        let database = contents.databases.entry(row.name.clone()).or_default();
        database.is_sealed = row.state == DatabaseState::Sealed;
        for container in snapshot.containers(row.id).map_err(say("containers"))? {
            let path = format!("{}/{}", row.name, container.name);
            let objects = objects(snapshot, &path).map_err(say(&path))?;
            let (_, name) = split(&path);
            let is_evolved = container.class_version > 1;
            database.containers.insert(name.to_owned(), ExpectedContainer { objects, is_evolved });
        }
    }
    Ok(contents)
}

/// The object of each entry of a container, read at once; one is read on its own as well.
///
/// # Errors
/// The errors of the engine.
pub fn objects(snapshot: &Snapshot, path: &str) -> femtobarn::Result<Vec<Option<Value>>> {
    let view = snapshot.view(path)?;
    let array = view.read(&view.select_all(), 0..view.entries())?;
    let live = view.live_entries(0..view.entries())?;
    let mut objects = vec![None; view.entries() as usize];
    for (at, entry) in live.iter().enumerate() {
        let value = array
            .value(at)
            .map_err(|source| femtobarn::Error::Storage { what: view.path(), source })?;
        objects[*entry as usize] = Some(value);
    }
    if let Some(last) = live.last()
        && objects[*last as usize] != Some(view.value(*last)?)
    {
        let what = format!("object {last} differs when it is read on its own");
        return Err(femtobarn::Error::Corrupt { what });
    }
    Ok(objects)
}

/// The number of objects in each container.
fn summary(contents: &ExpectedContents) -> String {
    let mut words = vec![];
    for (name, database) in &contents.databases {
        let state = if database.is_sealed { " (sealed)" } else { "" };
        words.push(format!("{name}{state}:"));
        for (name, container) in &database.containers {
            let live = container.objects.iter().flatten().count();
            words.push(format!("{name} {live} of {}", container.objects.len()));
        }
    }
    format!("[{}]", words.join(" "))
}

/// Prefixes an error with the action that failed.
pub(crate) fn say<E: std::fmt::Display>(what: &str) -> impl FnOnce(E) -> String + '_ {
    move |error| format!("{what}: {error}")
}
