//! Copies of federations that follow their leader, and their promotion.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use femtobarn::{FollowOptions, Follower, Promotion, Step};
use pyo3::prelude::*;

use crate::durations::lock_wait_of;
use crate::error::{OrRaise, exception};
use crate::text::{FilePath, Text};

/// A copy of a federation that follows its leader.
#[pyclass(frozen, module = "femtobarn._femtobarn")]
pub struct FollowerHandle {
    /// None once it is closed.
    follower: Mutex<Option<Follower>>,
}

#[pymethods]
impl FollowerHandle {
    #[staticmethod]
    fn open(
        py: Python<'_>,
        url: Text,
        folder: FilePath,
        name: Text,
        timeout: f64,
        reader_patience: f64,
    ) -> PyResult<Self> {
        let options = FollowOptions {
            name: name.into(),
            timeout: lock_wait_of(timeout)?,
            reader_patience: lock_wait_of(reader_patience)?,
        };
        let follower = py.detach(|| Follower::open(&url, &folder, options)).or_raise()?;
        Ok(FollowerHandle { follower: Mutex::new(Some(follower)) })
    }

    /// Commit here, commit of the leader, bytes copied, damaged pages.
    fn step(&self, py: Python<'_>, wait: f64) -> PyResult<(u64, u64, u64, u64)> {
        let wait: Duration = lock_wait_of(wait)?;
        let stepped = py.detach(|| {
            let mut follower = self.follower.lock().unwrap_or_else(PoisonError::into_inner);
            follower.as_mut().map(|follower| follower.step(wait))
        });
        let stepped =
            stepped.ok_or_else(|| exception("closed", "the follower is closed".to_owned()))?;
        let Step { at, head, bytes, damaged_pages, .. } = stepped.or_raise()?;
        Ok((at.0, head.0, bytes, damaged_pages))
    }

    fn close(&self, py: Python<'_>) {
        py.detach(|| {
            let follower = &mut *self.follower.lock().unwrap_or_else(PoisonError::into_inner);
            drop(follower.take());
        });
    }
}

/// The newest commit of a new leader, its generation, the URL of an old leader that was not notified, the stores that
/// could not be marked, and the databases to repair.
type PromotionFacts = (u64, u64, Option<String>, Vec<String>, Vec<String>);

/// Make the follower in a folder the leader.
#[pyfunction]
pub(crate) fn promote(
    py: Python<'_>,
    folder: FilePath,
    url: Text,
    forced: bool,
) -> PyResult<PromotionFacts> {
    let promoted = py.detach(|| femtobarn::promote(&folder, &url, forced)).or_raise()?;
    let Promotion { head, generation, untold, unmarked, unsound } = promoted;
    Ok((head.0, generation, untold, unmarked, unsound))
}

/// Tell a leader that was left behind by a promotion, if there is one, that it has a successor; or forget it if it is gone.
#[pyfunction]
pub(crate) fn inform_former_leader(
    py: Python<'_>,
    folder: FilePath,
    is_gone: bool,
) -> PyResult<()> {
    let tell_or_forget =
        if is_gone { femtobarn::forget_former_leader } else { femtobarn::inform_former_leader };
    py.detach(|| tell_or_forget(&folder)).or_raise()
}
