//! Runs a workload repeatedly, each time with a fault at another operation on its files.
//!
//! For every run:
//! 1. The step that the fault strikes fails with an error of the right kind that names the file, or succeeds.
//!    Nothing panics. If it strikes a thread that writes logged bytes back, the next step demands that the federation be
//!    reopened.
//! 2. While the disk is still full, acknowledged contents can be read. While all syncs fail, they can be read or are refused
//!    as not durable.
//! 3. After the fault is lifted, the same handle continues, or demands that the federation be reopened. The steps
//!    that it then acknowledges are kept. A failed sync is reported once to each open file, so further steps may fail.
//! 4. After reopening, the federation has the acknowledged contents and accepts commits.
//! 5. All this also holds if the power fails at the end: changes whose sync failed are never relied on, and contents that were
//!    read are kept.

use std::path::{Path, PathBuf};

use femtobarn::{Error, ErrorKind, Federation, ResidenceState};
use femtobarn_faults::crash::write;
use femtobarn_faults::disk::{ChangeOutcome, Crash, CrashDisk};
use femtobarn_faults::fault::{DiskFault, FaultKind, OperationKind};
use femtobarn_faults::random::SplitMix;
use femtobarn_faults::script::Runner;
use femtobarn_faults::verify::{Acknowledged, acknowledgement};
use femtobarn_faults::workload::Workload;
use femtobarn_faults::workloads::named;

use crate::interposer::{self, OperationRecord, Watch};

/// Open files of one file at most.
const OPEN_FILES_MAX: usize = 4;

/// One run of the workload.
struct FaultRun<'a> {
    workload: &'a dyn Workload,
    fault: DiskFault,
    files: &'a Path,
    acknowledged: Acknowledged,
}

/// Runs a workload with a fault at each of about `limit` of its operations.
pub(crate) fn run_all(
    name: &str,
    kind: &str,
    folder: &Path,
    limit: &str,
    seed: &str,
) -> Result<(), String> {
    let workload = &*named(name)?;
    let kind: FaultKind = kind.parse()?;
    let number = |text: &str| text.parse::<u64>().map_err(|error| format!("{text}: {error}"));
    let (limit, mut random) = (number(limit)?, SplitMix(number(seed)?));
    let mut operations = affected_operations(workload, kind, folder)?;
    let all = operations.len() as u64;
    operations.retain(|_| random.below(all) < limit);
    let mut wrong = vec![];
    let mut noticed = 0;
    for &operation in &operations {
        let place = tempfile::tempdir_in(folder).map_err(|error| error.to_string())?;
        let fault = DiskFault { kind, operation };
        match FaultRun::new(workload, fault, place.path()).run() {
            Ok(is_noticed) => noticed += u64::from(is_noticed),
            Err(error) => wrong.push(format!("operation {operation}: {error}")),
        }
        interposer::stop();
    }
    println!("{name}: tried {} of {all} {kind:?} faults, {noticed} noticed", operations.len());
    if wrong.is_empty() {
        Ok(())
    } else {
        Err(format!("{} faults go wrong:\n{}", wrong.len(), wrong.join("\n")))
    }
}

/// The numbers of the operations that a fault of this kind would make fail.
fn affected_operations(
    workload: &dyn Workload,
    kind: FaultKind,
    folder: &Path,
) -> Result<Vec<u64>, String> {
    let place = tempfile::tempdir_in(folder).map_err(|error| error.to_string())?;
    interposer::start(place.path(), OperationRecord::Nothing, None);
    let mut runner = Runner::create(&place.path().join("fed")).map_err(|e| e.to_string())?;
    for step in 0..workload.steps() {
        workload.run(&mut runner, step).map_err(|error| error.to_string())?;
    }
    drop(runner);
    let watch = interposer::stop();
    let numbered = (0..).zip(watch.iter().flat_map(Watch::operations));
    Ok(numbered.filter(|(_, sort)| sort.is_affected_by(kind)).map(|(number, _)| number).collect())
}

impl<'a> FaultRun<'a> {
    fn new(workload: &'a dyn Workload, fault: DiskFault, files: &'a Path) -> Self {
        interposer::start(files, OperationRecord::Disk(Ok(CrashDisk::default())), Some(fault));
        FaultRun { workload, fault, files, acknowledged: Acknowledged::default() }
    }

    fn acknowledge(&mut self, text: &str) {
        interposer::acknowledge(text);
        self.acknowledged.record(text);
    }

    /// Runs the workload and checks it. Returns whether a step noticed the fault.
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
                    self.finish(&mut runner, &struck)?;
                }
            }
            Err(failed) => {
                let struck = interposer::lift();
                self.check_error(&failed, &struck)?;
                error = Some(failed);
            }
        }
        let disk = interposer::stop().ok_or("nothing was watched")?.into_disk()?;
        self.workload.verify(&folder, &self.acknowledged, false)?;
        self.lose_power(&disk)?;
        Ok(error.is_some())
    }

    /// Runs the steps that are not acknowledged yet. Returns the first error.
    fn steps(&mut self, runner: &mut Runner) -> Option<Error> {
        for step in self.acknowledged.steps.len()..self.workload.steps() {
            match self.workload.run(runner, step) {
                Ok(csn) => self.acknowledge(&acknowledgement(csn)),
                Err(error) => return Some(error),
            }
        }
        None
    }

    fn check_error(&self, error: &Error, struck: &[PathBuf]) -> Result<(), String> {
        let full = matches!(self.fault.kind, FaultKind::Full | FaultKind::ShortThenFull);
        let text = error.to_string();
        let is_right = match error.kind() {
            ErrorKind::Full => full,
            // The fault struck the commit of a background thread, whose failure only later calls report.
            ErrorKind::Closed => text.contains("an earlier commit"),
            // SQLite does not always distinguish a full disk from a failing one.
            ErrorKind::Io => true,
            ErrorKind::Unavailable => self.is_refused(error),
            // If SQLite cannot create its log, it assumes a read-only disk.
            ErrorKind::Denied => self.fault.kind == FaultKind::Error,
            _ => false,
        };
        if is_right && names_any(&text, struck) {
            Ok(())
        } else {
            Err(format!(
                "unexpected error of kind {:?} after a fault of {struck:?}: {text}",
                error.kind(),
            ))
        }
    }

    /// Whether an error is the refusal to read what a loss of power could undo.
    fn is_refused(&self, error: &impl std::fmt::Display) -> bool {
        self.fault.kind == FaultKind::FailingSyncs && error.to_string().contains("could undo them")
    }

    /// Checks that the acknowledged contents can be read during the fault, with or without the step that it struck.
    fn read_on(&mut self, runner: &Runner, error: &Error) -> Result<(), String> {
        let Some(federation) = runner.opened() else { return Ok(()) };
        if is_away(federation)? {
            // The database can be staged only to a writable disk: after the fault.
            return Ok(());
        }
        let count = self.acknowledged.steps.len();
        for steps in [count, count + 1] {
            match self.workload.is_after(federation, steps) {
                Ok(true) => {
                    if steps > count {
                        self.acknowledge("step");
                    }
                    return Ok(());
                }
                Ok(false) => {}
                Err(other) if self.is_refused(&other) => return Ok(()),
                Err(other) => {
                    return Err(format!("after \"{error}\" nothing can be read: {other}"));
                }
            }
        }
        Err(format!("after \"{error}\" other contents are read"))
    }

    /// After the fault, runs the step that failed, unless it was executed, and the rest on the same handle. The
    /// handle may refuse, and demand to be reopened.
    fn finish(&mut self, runner: &mut Runner, struck: &[PathBuf]) -> Result<(), String> {
        let mut failed = None;
        for _ in 0..OPEN_FILES_MAX {
            failed = self.go_on(runner)?;
            let Some(error) = &failed else { return Ok(()) };
            let is_of_sync = OperationKind::Syncing.is_affected_by(self.fault.kind);
            if !(is_of_sync
                && error.kind() == ErrorKind::Io
                && names_any(&error.to_string(), struck))
            {
                break;
            }
        }
        failed
            .map_or(Ok(()), |error| Err(format!("after the fault the same handle fails: {error}")))
    }

    /// Runs the step that failed, unless it was executed, and the rest. Returns the first error that is no demand to
    /// reopen the federation.
    fn go_on(&mut self, runner: &mut Runner) -> Result<Option<Error>, String> {
        let count = self.acknowledged.steps.len();
        let Some(federation) = runner.opened() else { return Ok(None) };
        let is_undone = self.workload.is_after(federation, count);
        if is_undone.is_err() && is_away(federation)? {
            // The database is staged once the federation is opened again.
            return Ok(None);
        }
        if is_undone.as_ref().is_err_and(|error| self.is_refused(error)) {
            return Ok(None);
        }
        let is_undone =
            is_undone.map_err(|error| format!("after the fault nothing can be read: {error}"))?;
        if !is_undone {
            self.acknowledge("step");
        }
        let failed = self.steps(runner);
        Ok(failed.filter(|error| {
            !(matches!(error.kind(), ErrorKind::Closed | ErrorKind::Denied)
                || self.is_refused(error))
        }))
    }

    /// Verifies the federation after a loss of power at the end, which loses all pending changes.
    fn lose_power(&self, disk: &CrashDisk) -> Result<(), String> {
        let outcomes = vec![ChangeOutcome::Lost; disk.pending().len()];
        let found = disk.after(&Crash { outcomes, names: Some(0) });
        let place = tempfile::tempdir_in(self.files).map_err(|error| error.to_string())?;
        write(&found, place.path()).map_err(|error| error.to_string())?;
        let federation = place.path().join("fed");
        self.workload
            .verify(&federation, &self.acknowledged, false)
            .map_err(|error| format!("after a loss of power at the end: {error}"))
    }
}

/// Whether an error's text names one of these files.
fn names_any(text: &str, paths: &[PathBuf]) -> bool {
    paths.iter().any(|path| text.contains(&display_name(path)))
}

/// The part of a path that errors show. SQLite has several files, and there is one lock file for each database.
fn display_name(path: &Path) -> String {
    let text = path.to_string_lossy();
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    if text.contains("catalogue.sqlite") {
        "catalogue.sqlite".to_owned()
    } else if text.contains("locks") {
        "locks".to_owned()
    } else {
        name.into_owned()
    }
}

/// Whether a database is nearline.
fn is_away(federation: &Federation) -> Result<bool, String> {
    let residences = federation.residences().map_err(|error| error.to_string())?;
    let is_away = |state| matches!(state, ResidenceState::Nearline | ResidenceState::Staging);
    Ok(residences.iter().any(|(_, residence)| is_away(residence.state())))
}
