//! Runs a script again and again, and each time another operation on its files fails.
//!
//! For every such run:
//! 1. The step that is struck ends in an error of the right kind that names the file, or does not
//!    notice; nothing panics.
//! 2. While the disk is still full, what was acknowledged can be read.
//! 3. When the fault is over, the same handle goes on, or says that the federation must be opened
//!    again; and what it then acknowledges is kept.
//! 4. Opened anew, the federation is what was acknowledged, and takes commits.
//! 5. The same holds if the power goes then: what a failed sync has left is never counted on.

use std::path::{Path, PathBuf};

use femtobarn::{Error, ErrorKind};
use femtobarn_faults::crash::write;
use femtobarn_faults::disk::{Crash, Disk, Fate};
use femtobarn_faults::fault::{Fault, FaultKind};
use femtobarn_faults::random::Random;
use femtobarn_faults::script::{Runner, Script};
use femtobarn_faults::trace::Operation;
use femtobarn_faults::verify::{Claim, acknowledgement, contents, verify};

use crate::interposer;

/// One run of the script.
struct Run<'a> {
    script: &'a Script,
    fault: Fault,
    files: PathBuf,
    trace: PathBuf,
    claim: Claim,
}

/// Strikes about `limit` operations of a script.
pub fn fail(name: &str, kind: &str, folder: &Path, limit: &str, seed: &str) -> Result<(), String> {
    let script = &Script::named(name).ok_or_else(|| format!("there is no script {name:?}"))?;
    let kind: FaultKind = kind.parse()?;
    let number = |text: &str| text.parse::<u64>().map_err(|error| format!("{text}: {error}"));
    let (limit, mut random) = (number(limit)?, Random(number(seed)?));
    let mut operations = suffering(script, kind, folder)?;
    let all = operations.len() as u64;
    operations.retain(|_| random.below(all) < limit);
    let mut wrong = vec![];
    let mut noticed = 0;
    for &operation in &operations {
        let place = tempfile::tempdir_in(folder).map_err(|error| error.to_string())?;
        let fault = Fault { kind, operation };
        match Run::new(script, fault, place.path()).and_then(Run::run) {
            Ok(is_noticed) => noticed += u64::from(is_noticed),
            Err(error) => wrong.push(format!("operation {operation}: {error}")),
        }
        interposer::stop();
    }
    println!("{name}: tried {} of {all} {kind:?} faults, {noticed} noticed", operations.len());
    match wrong.is_empty() {
        true => Ok(()),
        false => Err(format!("{} faults go wrong:\n{}", wrong.len(), wrong.join("\n"))),
    }
}

/// The numbers of operations that a fault of this kind would make fail.
fn suffering(script: &Script, kind: FaultKind, folder: &Path) -> Result<Vec<u64>, String> {
    let place = tempfile::tempdir_in(folder).map_err(|error| error.to_string())?;
    interposer::start(place.path(), None, None);
    let mut runner = Runner::create(&place.path().join("fed")).map_err(|e| e.to_string())?;
    for step in &script.steps {
        runner.run(step).map_err(|error| error.to_string())?;
    }
    drop(runner);
    let operations = interposer::stop();
    let numbered = (0..).zip(operations);
    Ok(numbered.filter(|(_, sort)| sort.can_suffer(kind)).map(|(number, _)| number).collect())
}

impl<'a> Run<'a> {
    fn new(script: &'a Script, fault: Fault, place: &Path) -> Result<Self, String> {
        let (files, trace) = (place.join("files"), place.join("trace"));
        std::fs::create_dir(&files).map_err(|error| error.to_string())?;
        interposer::start(&files, Some(&trace), Some(fault));
        Ok(Run { script, fault, files, trace, claim: Claim::default() })
    }

    fn acknowledge(&mut self, text: &str) {
        interposer::acknowledge(text);
        self.claim.hear(text);
    }

    /// Whether the fault was noticed.
    fn run(mut self) -> Result<bool, String> {
        let folder = self.files.join("fed");
        let error;
        match Runner::create(&folder) {
            Ok(mut runner) => {
                self.acknowledge("created");
                error = self.steps(&mut runner);
                if let Some(error) = &error {
                    self.read_on(&runner, error)?;
                }
                let struck = interposer::lift();
                if let Some(error) = &error {
                    self.check_error(error, &struck)?;
                    self.go_on(&mut runner)?;
                }
            }
            Err(failed) => {
                let struck = interposer::lift();
                self.check_error(&failed, &struck)?;
                error = Some(failed);
            }
        }
        interposer::stop();
        verify(&folder, self.script, &self.claim, false)?;
        self.lose_power()?;
        Ok(error.is_some())
    }

    /// Does the steps from where it is; returns the first error.
    fn steps(&mut self, runner: &mut Runner) -> Option<Error> {
        while let Some(step) = self.script.steps.get(self.claim.steps.len()) {
            match runner.run(step) {
                Ok(csn) => self.acknowledge(&acknowledgement(csn)),
                Err(error) => return Some(error),
            }
        }
        None
    }

    fn check_error(&self, error: &Error, struck: &[PathBuf]) -> Result<(), String> {
        let full = matches!(self.fault.kind, FaultKind::Full | FaultKind::ShortThenFull);
        let is_right = match error.kind() {
            ErrorKind::Full => full,
            // SQLite does not always tell a full disk from a failing one.
            ErrorKind::Io => true,
            // Where SQLite cannot create its log it takes the disk for one that can only be read.
            ErrorKind::Denied => self.fault.kind == FaultKind::Error,
            _ => false,
        };
        let text = error.to_string();
        match is_right && struck.iter().any(|path| text.contains(&spoken(path))) {
            true => Ok(()),
            false => Err(format!(
                "the error of kind {:?} after {struck:?} failed says: {text}",
                error.kind(),
            )),
        }
    }

    /// While the disk is still full, what was acknowledged is there, or nothing can be read for the
    /// same reason.
    fn read_on(&self, runner: &Runner, error: &Error) -> Result<(), String> {
        let Some(federation) = runner.opened() else { return Ok(()) };
        let found = federation.snapshot(None).map_err(|e| e.to_string()).and_then(|s| contents(&s));
        let after = |steps| Some(self.script.contents_after(steps));
        let count = self.claim.steps.len();
        match found {
            Ok(found) if Some(&found) == after(count).as_ref() => Ok(()),
            Ok(found) if Some(&found) == after(count + 1).as_ref() => Ok(()),
            Ok(_) => Err(format!("after \"{error}\" something else is read")),
            Err(other) => Err(format!("after \"{error}\" nothing can be read: {other}")),
        }
    }

    /// The same handle, after the fault: it does the step that failed and the rest, unless the step
    /// has happened after all or it wants to be opened again.
    fn go_on(&mut self, runner: &mut Runner) -> Result<(), String> {
        let count = self.claim.steps.len();
        let Some(federation) = runner.opened() else { return Ok(()) };
        let found = federation.snapshot(None).map_err(|e| e.to_string()).and_then(|s| contents(&s));
        let found = found.map_err(|error| format!("after the fault nothing is read: {error}"))?;
        if found != self.script.contents_after(count) {
            self.acknowledge("step");
        }
        match self.steps(runner) {
            None => Ok(()),
            Some(error) if matches!(error.kind(), ErrorKind::Closed | ErrorKind::Denied) => Ok(()),
            Some(error) => Err(format!("after the fault the same handle says: {error}")),
        }
    }

    /// The power goes at the end, and takes all with it that was not made durable.
    fn lose_power(&self) -> Result<(), String> {
        let trace = std::fs::read(&self.trace).map_err(|error| error.to_string())?;
        let mut disk = Disk::default();
        for operation in Operation::decode_all(&trace)? {
            disk.apply(&operation)?;
        }
        let fates = vec![Fate::Lost; disk.pending().len()];
        let found = disk.after(&Crash { fates, names: Some(0) });
        let place = tempfile::tempdir_in(&self.files).map_err(|error| error.to_string())?;
        write(&found, place.path()).map_err(|error| error.to_string())?;
        verify(&place.path().join("fed"), self.script, &self.claim, false)
            .map_err(|error| format!("after a loss of power at the end: {error}"))
    }
}

/// How errors speak of a file. SQLite has several, and locks have one for each database.
fn spoken(path: &Path) -> String {
    let text = path.to_string_lossy();
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    match () {
        () if text.contains("catalogue.sqlite") => "catalogue.sqlite".to_owned(),
        () if text.contains("locks") => "locks".to_owned(),
        () => name.into_owned(),
    }
}
