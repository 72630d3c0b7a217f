//! Verifies that a recovered federation holds what was acknowledged, and nothing else.
//!
//! What was acknowledged must be there in full; the step that was under way is there wholly or not at
//! all, with all its databases; nothing else is there. Snapshots of acknowledged commits show what they
//! showed. Then life goes on: new commits work, are there after reopening, and a database can be sealed.

use std::path::Path;

use femtobarn::{
    CheckLevel, Csn, DatabaseState, ErrorKind, Federation, Problem, ProblemKind, Profile, Severity,
    Snapshot,
};
use rntuple::Value;
use rntuple::tfile::KeyChain;

use crate::script::{Change, Container, Contents, Database, Runner, Script, Step, split};

/// What a program was told.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Claim {
    /// Whether the federation was created.
    pub is_created: bool,
    /// For each step that has happened, its commit if it made one.
    pub steps: Vec<Option<Csn>>,
}

impl Claim {
    /// Takes in the text of an acknowledgement: `created`, `step` or `step` and a commit.
    pub fn hear(&mut self, text: &str) {
        match text.split_once(' ') {
            None if text == "created" => self.is_created = true,
            None => self.steps.push(None),
            Some((_, csn)) => self.steps.push(csn.parse().ok().map(Csn)),
        }
    }
}

/// How an acknowledgement is said.
pub fn acknowledgement(csn: Option<Csn>) -> String {
    csn.map_or("step".to_owned(), |csn| format!("step {}", csn.0))
}

/// Checks the federation in a folder; it is changed by that. `thorough` says whether it is opened once
/// more, and its databases are sealed, at the end.
///
/// # Errors
/// What is wrong.
pub fn verify(folder: &Path, script: &Script, claim: &Claim, thorough: bool) -> Result<(), String> {
    let mut runner = match Runner::open(folder) {
        Ok(runner) => runner,
        Err(error) if !claim.is_created && error.kind() == ErrorKind::NotFound => {
            let created = Federation::create(folder, "test");
            return created.map(drop).map_err(say("it cannot be created again"));
        }
        Err(error) => return Err(say("it cannot be opened")(error)),
    };
    let mut expected = recovered(runner.federation(), script, claim)?;
    check_history(runner.federation(), script, claim)?;
    check(runner.federation(), if thorough { CheckLevel::Full } else { CheckLevel::Quick })?;
    go_on(&mut runner, &mut expected)?;
    if thorough {
        runner.run(&Step::Reopen).map_err(say("it cannot be opened again"))?;
        compare(runner.federation(), &expected, "after reopening")?;
        seal_all(&mut runner, &mut expected)?;
    }
    Ok(())
}

/// The contents that were found, if they are right.
fn recovered(federation: &Federation, script: &Script, claim: &Claim) -> Result<Contents, String> {
    let head = federation.snapshot(None).map_err(say("no snapshot"))?;
    let found = contents(&head)?;
    let acknowledged = script.contents_after(claim.steps.len());
    if found == acknowledged {
        return Ok(found);
    }
    match script.steps.get(claim.steps.len()) {
        Some(_) if found == script.contents_after(claim.steps.len() + 1) => Ok(found),
        _ => Err(format!(
            "after {} steps there should be {}, and there is {}",
            claim.steps.len(),
            summary(&acknowledged),
            summary(&found)
        )),
    }
}

fn check_history(federation: &Federation, script: &Script, claim: &Claim) -> Result<(), String> {
    let count = claim.steps.len();
    for at in [count.checked_sub(1), Some(count / 2)] {
        let Some((at, Some(csn))) = at.and_then(|at| Some((at, *claim.steps.get(at)?))) else {
            continue;
        };
        let may_be_gone = script.steps[at + 1..].iter().take(count - at).any(|step| {
            // Also one that was under way.
            matches!(step, Step::Vacuum)
        });
        let snapshot = match federation.snapshot(Some(csn)) {
            Err(error) if may_be_gone && error.kind() == ErrorKind::NotFound => continue,
            snapshot => snapshot,
        };
        let snapshot = snapshot.map_err(say("an old snapshot is gone"))?;
        if !is_alike(&contents(&snapshot)?, &script.contents_after(at + 1)) {
            return Err(format!("the snapshot of commit {csn} is not what it was"));
        }
    }
    Ok(())
}

/// Whether two contents are the same but for what became sealed later.
fn is_alike(found: &Contents, expected: &Contents) -> bool {
    let alike = |(left, right): ((&String, &Database), (&String, &Database))| {
        left.0 == right.0 && left.1.containers == right.1.containers
    };
    found.databases.len() == expected.databases.len()
        && found.databases.iter().zip(&expected.databases).all(alike)
}

fn check(federation: &Federation, level: CheckLevel) -> Result<(), String> {
    let report = federation.check(level, &mut |_| true).map_err(say("it cannot be checked"))?;
    // What a transaction left that has not happened is a warning; so is damage to what can be made anew,
    // which must not be there either.
    let is_wrong = |problem: &&Problem| {
        let can_be_remade = matches!(problem.kind, ProblemKind::Statistics | ProblemKind::Index);
        problem.severity == Severity::Damage || can_be_remade
    };
    match report.problems.iter().find(is_wrong) {
        Some(problem) => Err(format!("check finds: {problem}")),
        None => Ok(()),
    }
}

/// Commits to every container that takes changes and to a new one, and looks again.
fn go_on(runner: &mut Runner, expected: &mut Contents) -> Result<(), String> {
    let mut changes = vec![
        Change::Database("after".into()),
        Change::Container("after/more".into(), Profile::Plain),
        Change::Append { path: "after/more".into(), first: 0, count: 3 },
    ];
    for (name, database) in expected.databases.iter().filter(|(_, database)| !database.is_sealed) {
        for container in database.containers.keys() {
            let path = format!("{name}/{container}");
            changes.push(Change::Append { path, first: 5000, count: 2 });
        }
    }
    let step = Step::Commit(changes);
    runner.run(&step).map_err(say("no new commit works"))?;
    expected.apply(&step);
    compare(runner.federation(), expected, "after a new commit")
}

fn seal_all(runner: &mut Runner, expected: &mut Contents) -> Result<(), String> {
    let open: Vec<String> = expected
        .databases
        .iter()
        .filter(|(_, database)| !database.is_sealed)
        .map(|(name, _)| name.clone())
        .collect();
    for name in open {
        let step = Step::Seal(name);
        runner.run(&step).map_err(say("it cannot be sealed"))?;
        expected.apply(&step);
    }
    compare(runner.federation(), expected, "after sealing")?;
    let snapshot = runner.federation().snapshot(None).map_err(say("no snapshot"))?;
    for database in snapshot.databases().map_err(say("no databases"))? {
        check_chain(&runner.federation().folder().join(database.path))?;
    }
    Ok(())
}

/// Fails unless the keys of a sealed file follow each other from its front to its end.
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

fn compare(federation: &Federation, expected: &Contents, when: &str) -> Result<(), String> {
    let snapshot = federation.snapshot(None).map_err(say("no snapshot"))?;
    let found = contents(&snapshot)?;
    match found == *expected {
        true => Ok(()),
        false => Err(format!(
            "{when} there should be {}, and there is {}",
            summary(expected),
            summary(&found)
        )),
    }
}

/// Everything that a snapshot shows.
///
/// # Errors
/// What cannot be read.
pub fn contents(snapshot: &Snapshot) -> Result<Contents, String> {
    let mut contents = Contents::default();
    for row in snapshot.databases().map_err(say("the databases cannot be listed"))? {
        let database = contents.databases.entry(row.name.clone()).or_default();
        database.is_sealed = row.state == DatabaseState::Sealed;
        for container in snapshot.containers(row.id).map_err(say("containers"))? {
            let path = format!("{}/{}", row.name, container.name);
            let objects = objects(snapshot, &path).map_err(say(&path))?;
            let (_, name) = split(&path);
            let is_evolved = container.class_version > 1;
            database.containers.insert(name.to_owned(), Container { objects, is_evolved });
        }
    }
    Ok(contents)
}

/// The object of each entry of a container, read at once; one is read on its own as well.
///
/// # Errors
/// As the engine.
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

/// What is there, in short: numbers of objects by container.
fn summary(contents: &Contents) -> String {
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

/// Puts what was tried before an error.
pub(crate) fn say<E: std::fmt::Display>(what: &str) -> impl FnOnce(E) -> String + '_ {
    move |error| format!("{what}: {error}")
}
