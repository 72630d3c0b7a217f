//! The locks and pins of a session, as `femtobarn-catalog` uses them.

use std::time::Duration;

use femtobarn_catalog::{
    ContainerId, Csn, DatabaseId, HeldLock, LeasedLocks, LeasedPins, LockKind, LockTarget,
    NewestRows, Result, Waiter, interrupts,
};

use super::ledger::GrantedOperation;
use super::session::RemoteSession;
use crate::v1::operation::Kind;
use crate::v1::question::Of;
use crate::v1::{Answer, DatabaseRow, Empty, Numbered, Operation, Question};

/// The most containers whose rows are requested with one pin.
const CONTAINERS_WITH_PIN_MAX: usize = 5;

impl RemoteSession {
    /// Requests a lock or a pin, and waits for the answer.
    pub(super) fn obtain(&self, operation: Operation) -> Result<GrantedOperation> {
        let granted = self.obtain_together(vec![operation]);
        granted.into_iter().next().unwrap_or_else(|| Err(self.closed()))
    }

    /// Requests locks and pins in one turn, and waits for the answer to each.
    fn obtain_together(&self, operations: Vec<Operation>) -> Vec<Result<GrantedOperation>> {
        if let Err(error) = self.check_open() {
            return vec![Err(error); operations.len()];
        }
        let answers: Vec<_> = {
            let mut ledger = self.ledger();
            operations.into_iter().map(|operation| ledger.request(operation)).collect()
        };
        self.wake();
        let granted = answers.into_iter().map(|answer| self.await_answer(answer, None));
        let no_answer = || {
            interrupts::check()?;
            Err(self.closed())
        };
        granted.map(|granted| granted.unwrap_or_else(no_answer)).collect()
    }
}

impl RemoteSession {
    /// Pins the snapshot of `csn`, or the newest one without it, and asks questions as of it.
    pub(super) fn pin(
        &self,
        csn: Option<Csn>,
        questions: Vec<Question>,
    ) -> Result<GrantedOperation> {
        let csn = csn.map(|csn| csn.0);
        let operation =
            Operation { kind: Kind::Pin.into(), csn, questions, ..Operation::default() };
        let granted = self.obtain(operation)?;
        self.observe_head(granted.csn);
        Ok(granted)
    }

    /// Pins the newest snapshot, and caches the rows of some containers as of it for look-ups. Returns the rows of
    /// databases, which may change and are not cached.
    pub(super) fn pin_to_read(
        &self,
        containers: &[(DatabaseId, ContainerId)],
    ) -> Result<(Csn, Vec<DatabaseRow>)> {
        let asked = containers.iter().take(CONTAINERS_WITH_PIN_MAX);
        let questions = |at| asked.clone().flat_map(move |it| questions_to_read(*it, at));
        let GrantedOperation { csn, answers } = self.pin(None, questions(Csn::MAX).collect())?;
        let mut databases = vec![];
        for (question, answer) in questions(csn).zip(answers) {
            if answer.databases.is_empty() {
                self.keep_answer(question, answer);
            } else {
                databases.extend(answer.databases);
            }
        }
        Ok((csn, databases))
    }
}

fn lock_operation(
    owner: u64,
    target: LockTarget,
    kind: LockKind,
    wait: Option<Duration>,
) -> Operation {
    let kind = match kind {
        LockKind::Shared => Kind::LockShared,
        LockKind::Exclusive => Kind::LockExclusive,
    };
    let wait_ms = wait.map(|wait| u64::try_from(wait.as_millis()).unwrap_or(u64::MAX));
    Operation {
        kind: kind.into(),
        owner,
        target: Some(target.into()),
        wait_ms,
        ..Operation::default()
    }
}

/// The questions of a reader of a container as of a commit.
fn questions_to_read((database, container): (DatabaseId, ContainerId), at: Csn) -> [Question; 3] {
    let it = Numbered { database: database.0, container: container.0, at: at.0 };
    [Of::DatabaseById(Numbered { container: 0, ..it }), Of::ContainerById(it), Of::Version(it)]
        .map(question)
}

fn question(of: Of) -> Question {
    Question { of: Some(of), ..Question::default() }
}

/// The questions about the newest rows of a target, and about a commit not older than these.
fn questions_about(target: LockTarget) -> Vec<Question> {
    let Some(database) = target.database() else { return vec![] };
    let container = target.container().unwrap_or(ContainerId(0));
    let it = Numbered { database: database.0, container: container.0, at: Csn::MAX.0 };
    let rows = match target {
        LockTarget::Container(..) => Of::ContainerToWrite(it),
        _ => Of::DatabaseById(it),
    };
    vec![question(rows), question(Of::Head(Empty {}))]
}

/// The rows in the answers to [`questions_about`] a target; `None` if the server left them to a look-up.
fn newest_rows(answers: Vec<Answer>) -> Option<NewestRows> {
    let [mut rows, head] = <[Answer; 2]>::try_from(answers).ok()?;
    Some(NewestRows {
        database: rows.databases.pop()?.try_into().ok()?,
        container: rows.containers.pop().map(Into::into),
        version: rows.versions.pop().map(Into::into),
        head: Csn(head.csn?),
    })
}

impl LeasedLocks for RemoteSession {
    fn new_owner(&self) -> u64 {
        self.ledger().new_owner()
    }

    fn lock(
        &self,
        owner: u64,
        target: LockTarget,
        kind: LockKind,
        wait: Option<Duration>,
    ) -> Result<()> {
        self.obtain(lock_operation(owner, target, kind, wait)).map(drop)
    }

    fn lock_together(
        &self,
        owner: u64,
        locks: &[(LockTarget, LockKind)],
        wait: Duration,
    ) -> (Vec<Result<()>>, Option<NewestRows>) {
        let operation = |(target, kind): &(_, _)| lock_operation(owner, *target, *kind, Some(wait));
        let mut operations: Vec<_> = locks.iter().map(operation).collect();
        if let (Some(last), Some((target, _))) = (operations.last_mut(), locks.last()) {
            last.questions = questions_about(*target);
        }
        let mut granted = self.obtain_together(operations);
        let answers = match granted.last_mut() {
            Some(Ok(last)) => std::mem::take(&mut last.answers),
            _ => vec![],
        };
        let rows = newest_rows(answers);
        if let Some(rows) = &rows {
            self.observe_head(rows.head);
        }
        (granted.into_iter().map(|granted| granted.map(drop)).collect(), rows)
    }

    fn unlock(&self, owner: u64, targets: &[LockTarget]) {
        let told = {
            let mut ledger = self.ledger();
            targets.iter().filter(|target| ledger.unlock(owner, **target)).count()
        };
        if told > 0 {
            self.wake();
        }
    }

    fn held(&self) -> Result<Vec<HeldLock>> {
        self.check_open()?;
        let listed = self.runtime.block_on(self.list_locks(None))?;
        listed.held.into_iter().map(TryInto::try_into).collect()
    }

    fn waiting(&self) -> Result<Vec<Waiter>> {
        self.check_open()?;
        let listed = self.runtime.block_on(self.list_locks(None))?;
        listed.waiting.into_iter().map(TryInto::try_into).collect()
    }
}

impl LeasedPins for RemoteSession {
    fn pin_again(&self, csn: Csn) {
        self.ledger().pin_again(csn);
    }

    fn unpin(&self, csn: Csn) {
        if self.ledger().unpin(csn) {
            self.wake();
        }
    }

    fn is_pinned(&self, csn: Csn) -> bool {
        self.ledger().is_pinned(csn)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_does_not_answer_questions_leaves_the_rows_to_look_ups() {
        assert_eq!(newest_rows(vec![]), None);
        assert_eq!(newest_rows(vec![Answer::default(), Answer::default()]), None);
    }
}
