//! Questions that followers and other servers of the federation ask a server: its newest commit and load, the rows for
//! followers, and the locks that its sessions wait for.

use std::time::Duration;

use femtobarn_catalog::{Csn, DatabaseId, LeaderRows, Result, Successor};

use super::catalogue::{NONE, csn_of, numbered};
use super::remote::RemoteCatalogue;
use crate::convert::{SessionSurvey, needed, rows_of};
use crate::v1::change_request::Of as Change;
use crate::v1::question::Of;
use crate::v1::{self, Empty};

/// The load that a server reports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReportedLoad {
    /// Requests for files that it works on.
    pub running: u64,
    /// How long a read takes at present that is not answered from memory; zero without recent reads.
    pub read_time: Duration,
}

impl RemoteCatalogue {
    /// The newest commit, and how busy the server is.
    ///
    /// # Errors
    /// The common errors of [`Catalogue`](femtobarn_catalog::Catalogue).
    pub fn head_and_load(&self) -> Result<(Csn, ReportedLoad)> {
        let answers = self.ask(Of::Head(Empty {}))?;
        let head = needed(csn_of(&answers), "commit")?;
        self.session.observe_head(head);
        let running = answers.iter().find_map(|answer| answer.running);
        let read_us = answers.iter().find_map(|answer| answer.read_us);
        let load = ReportedLoad {
            running: running.unwrap_or(0),
            read_time: Duration::from_micros(read_us.unwrap_or(0)),
        };
        Ok((head, load))
    }

    /// The rows that a follower needs which has all commits up to `since`. The answer may arrive after `wait` without
    /// any new row. `follower` is the URL at which that follower serves its copy, or its name; `is_beginning` means
    /// that it has no snapshot yet.
    ///
    /// # Errors
    /// [`Error::Invalid`](femtobarn_catalog::Error::Invalid) if the server has not reached commit `since`; the common
    /// errors of [`Catalogue`](femtobarn_catalog::Catalogue).
    pub fn rows_since(
        &self,
        since: Csn,
        mark: Option<u64>,
        wait: Duration,
        (follower, is_beginning): (&str, bool),
    ) -> Result<LeaderRows> {
        let (since, wait_ms) = (since.0, wait.as_millis() as u64);
        let of =
            v1::Following { since, mark, wait_ms, follower: follower.to_owned(), is_beginning };
        rows_of(&self.ask(Of::RowsSince(of))?)
    }

    /// All rows of a database's contents up to commit `at`, for a follower.
    ///
    /// # Errors
    /// The common errors of [`Catalogue`](femtobarn_catalog::Catalogue).
    pub fn rows_of_database(&self, database: DatabaseId, at: Csn) -> Result<LeaderRows> {
        rows_of(&self.ask(Of::RowsOfDatabase(numbered(database, NONE, at)))?)
    }

    /// Informs the server that a follower leads the federation from now on; returns the server's newest commit, after
    /// which it takes no other.
    ///
    /// # Errors
    /// [`Error::Changed`](femtobarn_catalog::Error::Changed) if the server is of that generation or a later one, or
    /// another follower leads; the common errors of [`Catalogue`](femtobarn_catalog::Catalogue).
    pub fn yield_to(&self, successor: &Successor) -> Result<Csn> {
        let Successor { generation, promotion, url } = successor.clone();
        let successor = v1::Successor { generation, url, promotion };
        let reply = self.change(Change::YieldTo(successor))?.0;
        needed(reply.csn, "newest commit").map(Csn)
    }

    /// The locks that the server's sessions wait for, and the snapshots before commit `pins_before` that are pinned
    /// there, for another server of the federation.
    ///
    /// # Errors
    /// The common errors of [`Catalogue`](femtobarn_catalog::Catalogue).
    pub fn survey(&self, pins_before: Option<Csn>) -> Result<SessionSurvey> {
        let survey = v1::Survey { pins_before: pins_before.map(|csn| csn.0) };
        self.wait(self.session.list_locks(Some(survey)))?.try_into()
    }
}
