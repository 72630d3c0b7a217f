//! The snapshots that are kept: tags, retention, the horizon and pins.
//!
//! All snapshots from the *horizon* on exist. Of the earlier ones only the tagged exist, and those that the last vacuum
//! found pinned.
//!
//! Invariants:
//! 1. The horizon only goes up.
//! 2. A tagged snapshot exists: only existing ones can be tagged, and vacuum keeps them.
//! 3. A reader pins first and then asks whether the snapshot exists; vacuum first raises the horizon and then looks
//!    for pins. So either vacuum sees the pin, or the reader sees that the snapshot is gone.
//! 4. Commits touch none of these rows.
//! 5. A pinned snapshot is durable, unless the disk has failed: a loss of power does not take back a snapshot that a
//!    reader has seen.

use std::collections::BTreeSet;
use std::time::Duration;

use super::LocalCatalogue;
use super::known_rows::KnownRows;
use super::settings::{set, setting};
use crate::clock;
use crate::error::{Error, Result};
use crate::host;
use crate::ids::Csn;
use crate::locks::PinGuard;
use crate::names;
use crate::numbers::{signed, unsigned};
use crate::rows::{Retention, TagRow};
use crate::sql::{Row, RowResult, SqlConnection, SqlResult, params};

const DAY: Duration = Duration::from_secs(24 * 60 * 60);
pub(super) const TAG: &str = "SELECT name, csn, created_us, message, user_name FROM tags";
/// Whether `?1` is a snapshot that exists.
const EXISTS: &str = "SELECT ?1 >= (SELECT CAST(value AS INTEGER) FROM federation \
    WHERE key = 'horizon') OR EXISTS (SELECT 1 FROM tags WHERE csn = ?1) \
    OR EXISTS (SELECT 1 FROM kept_snapshots WHERE csn = ?1)";

impl LocalCatalogue {
    /// Names the snapshot of a commit, which vacuum keeps until the tag is dropped.
    ///
    /// # Errors
    /// [`Error::Exists`] if the name is taken; [`Error::NotFound`] if there is no such commit, or its snapshot no
    /// longer exists.
    pub fn create_tag(&self, name: &str, csn: Csn, message: &str) -> Result<TagRow> {
        self.create_tag_for(host::user_name(), name, csn, message)
    }

    /// As [`LocalCatalogue::create_tag`], for a user other than this process's.
    ///
    /// # Errors
    /// As [`LocalCatalogue::create_tag`].
    pub fn create_tag_for(
        &self,
        user: &str,
        name: &str,
        csn: Csn,
        message: &str,
    ) -> Result<TagRow> {
        names::check("tag", name)?;
        let tag = TagRow {
            name: name.to_owned(),
            csn,
            created_us: clock::utc_us(),
            message: message.to_owned(),
            user: user.to_owned(),
        };
        self.connections.write(|sql| {
            insert_tag(sql, &tag)?;
            self.retain(sql)
        })?;
        Ok(tag)
    }

    /// Drops a tag. The next vacuum may remove its snapshot.
    ///
    /// # Errors
    /// [`Error::NotFound`] with similar names if there is no such tag.
    pub fn drop_tag(&self, name: &str) -> Result<()> {
        let dropped = self.connections.write(|sql| {
            let delete = "DELETE FROM tags WHERE name = ?1";
            let dropped = sql.prepare_cached(delete)?.execute([name])?;
            self.retain(sql)?;
            Ok(dropped)
        })?;
        match dropped {
            0 => Err(self.no_tag(name)?),
            _ => Ok(()),
        }
    }

    /// The tag `name`.
    ///
    /// # Errors
    /// [`Error::NotFound`] with similar names if there is no such tag.
    pub fn tag(&self, name: &str) -> Result<TagRow> {
        match self.one(&format!("{TAG} WHERE name = ?1"), [name], tag_row)? {
            Some(tag) => Ok(tag),
            None => Err(self.no_tag(name)?),
        }
    }

    /// All tags, ordered by commit.
    pub fn tags(&self) -> Result<Vec<TagRow>> {
        self.all(&format!("{TAG} ORDER BY csn, name"), [], tag_row)
    }

    fn no_tag(&self, name: &str) -> Result<Error> {
        let existing = self.tags()?.into_iter().map(|tag| tag.name).collect();
        Ok(names::not_found("tag", name, existing))
    }

    /// The snapshots that vacuum keeps besides the tagged and pinned ones; all, unless retention was set.
    pub fn retention(&self) -> Result<Retention> {
        self.read(retention)
    }

    /// Sets the snapshots that vacuum keeps besides the tagged and pinned ones.
    ///
    /// # Errors
    /// [`Error::Invalid`] if it keeps 0 commits.
    pub fn set_retention(&self, retention: Retention) -> Result<()> {
        if retention.keep_commits == Some(0) {
            return Err(Error::invalid("invalid retention of 0 commits: must be 1 or more"));
        }
        self.connections.write(|sql| {
            set(sql, "keep_commits", retention.keep_commits)?;
            set(sql, "keep_days", retention.keep_days)?;
            self.retain(sql)
        })
    }

    /// The first commit that retention keeps now; all later ones are kept, too. 0 if it keeps everything.
    pub fn retained_from(&self) -> Result<Csn> {
        let retention = self.retention()?;
        let days = match retention.keep_days {
            None => None,
            Some(days) => {
                let kept_us = i64::try_from(DAY.as_micros()).unwrap_or(i64::MAX);
                let kept_us = kept_us.saturating_mul(signed(days));
                Some(self.snapshot_at_time(clock::utc_us().saturating_sub(kept_us))?)
            }
        };
        let commits = match retention.keep_commits {
            None => None,
            Some(commits) => {
                let sql = "SELECT csn FROM commits ORDER BY csn DESC LIMIT 1 OFFSET ?1";
                let first = self.one(sql, [signed(commits.saturating_sub(1))], csn)?;
                Some(first.unwrap_or(Csn::ZERO))
            }
        };
        Ok(days.into_iter().chain(commits).min().unwrap_or(Csn::ZERO))
    }

    /// The commit from which on all snapshots exist.
    pub fn horizon(&self) -> Result<Csn> {
        self.read(|sql| Ok(Csn(setting(sql, "horizon")?.unwrap_or(0))))
    }

    /// Whether the snapshot of a commit can still be read: it is at or after the horizon, tagged, or was pinned when
    /// the last vacuum looked for pins.
    ///
    /// If the caller has pinned the snapshot before, the answer stays true until it unpins it.
    pub fn snapshot_exists(&self, at: Csn) -> Result<bool> {
        // The newest snapshot always exists: the horizon is not beyond it.
        let connections = self.connections.current()?;
        let is_newest = |known: &KnownRows| known.newest(at).map(|_| true);
        connections.recall_only(is_newest, || connections.read(|sql| exists(sql, at)))
    }

    /// Pins the snapshot of a commit: vacuum keeps it while the guard lives.
    ///
    /// # Errors
    /// [`Error::NotFound`] if the snapshot no longer exists.
    pub fn pin(&self, at: Csn) -> Result<PinGuard> {
        let guard = self.pins.pin(at)?;
        if !self.snapshot_exists(at)? {
            return Err(self.gone(at)?);
        }
        self.connections.current()?.wait_durable()?;
        Ok(guard)
    }

    /// Pins the newest snapshot.
    pub fn pin_head(&self) -> Result<(Csn, PinGuard)> {
        let mut head = self.head()?;
        loop {
            let guard = self.pins.pin(head)?;
            if self.snapshot_exists(head)? {
                self.connections.current()?.wait_durable()?;
                return Ok((head, guard));
            }
            // The horizon passes a former head only if there is a newer commit by now.
            let newer = self.head()?;
            if newer == head && self.is_beginning()? {
                let what = "this copy of the federation is not complete yet; follow the leader until it is";
                return Err(Error::Unavailable { what: what.to_owned() });
            }
            if newer == head {
                return Err(self.gone(head)?);
            }
            head = newer;
        }
    }

    fn gone(&self, at: Csn) -> Result<Error> {
        let kept = self.tags()?.into_iter().map(|tag| format!("{} (tag {})", tag.csn, tag.name));
        Ok(Error::NotFound {
            what: "snapshot",
            name: format!("{at}, before the horizon {}", self.horizon()?),
            near_misses: kept.take(3).collect(),
        })
    }

    /// Raises the horizon to `to`, but not beyond the newest commit, and returns the snapshots that vacuum must keep.
    ///
    /// After that, no reader can pin a snapshot before the new horizon unless it is tagged or kept.
    pub fn raise_horizon(&self, to: Csn) -> Result<KeptSnapshots> {
        let horizon = self.connections.write(|sql| {
            let head: i64 =
                sql.query_row("SELECT coalesce(max(csn), 0) FROM commits", [], |row| row.get(0))?;
            let now = setting(sql, "horizon")?.unwrap_or(0);
            let horizon = now.max(to.0.min(unsigned(head)));
            set(sql, "horizon", Some(horizon))?;
            // Snapshots that are still pinned are added again from their pins.
            sql.execute("DELETE FROM kept_snapshots", [])?;
            self.retain(sql)?;
            Ok(Csn(horizon))
        })?;
        self.kept_at(horizon)
    }

    /// The snapshots that vacuum would have to keep if [`raise_horizon`](Self::raise_horizon) were called now.
    pub fn kept_from(&self, to: Csn) -> Result<KeptSnapshots> {
        self.kept_at(self.horizon()?.max(to.min(self.head()?)))
    }

    fn kept_at(&self, horizon: Csn) -> Result<KeptSnapshots> {
        // Tags are read before pins: if a tag is dropped in between, its reader is found by the pin.
        let tagged = self.tags()?.into_iter().map(|tag| tag.csn).filter(|csn| *csn < horizon);
        let mut csns: BTreeSet<Csn> = tagged.collect();
        csns.extend(self.pins.pinned_below(horizon)?);
        Ok(KeptSnapshots { horizon, csns: csns.into_iter().collect() })
    }
}

/// The snapshots that vacuum must keep.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptSnapshots {
    /// The first commit from which on all snapshots are kept.
    pub horizon: Csn,
    /// These earlier ones, in ascending order.
    pub csns: Vec<Csn>,
}

impl KeptSnapshots {
    /// Whether a kept snapshot lies in the range from `since` until before `until`; the range has no end if `until` is
    /// `None`.
    ///
    /// A version is needed if one lies between its own commit and that of the next version.
    pub fn needs(&self, since: Csn, until: Option<Csn>) -> bool {
        let Some(until) = until else { return true };
        let next = self.csns.partition_point(|kept| *kept < since);
        (until > self.horizon && until > since)
            || self.csns.get(next).is_some_and(|kept| *kept < until)
    }
}

/// The snapshots that vacuum keeps besides the tagged and pinned ones.
pub(super) fn retention(sql: &SqlConnection) -> SqlResult<Retention> {
    Ok(Retention {
        keep_commits: setting(sql, "keep_commits")?,
        keep_days: setting(sql, "keep_days")?,
    })
}

fn insert_tag(sql: &SqlConnection, tag: &TagRow) -> SqlResult<()> {
    let taken = sql.prepare_cached("SELECT 1 FROM tags WHERE name = ?1")?.exists([&tag.name])?;
    if taken {
        let advice = "drop it first, or choose another name".to_owned();
        return Err(Error::Exists { what: "tag", name: tag.name.clone(), advice }.into());
    }
    let csn = signed(tag.csn.0);
    let committed = sql.prepare_cached("SELECT 1 FROM commits WHERE csn = ?1")?.exists([csn])?;
    if !committed {
        return Err(names::not_found("commit", &tag.csn.to_string(), vec![]).into());
    }
    if !exists(sql, tag.csn)? {
        return Err(names::not_found("snapshot", &tag.csn.to_string(), vec![]).into());
    }
    sql.prepare_cached(
        "INSERT INTO tags (name, csn, created_us, message, user_name) VALUES (?1, ?2, ?3, ?4, ?5)",
    )?
    .execute(params![tag.name, csn, tag.created_us, tag.message, tag.user])?;
    Ok(())
}

fn exists(sql: &SqlConnection, at: Csn) -> SqlResult<bool> {
    sql.prepare_cached(EXISTS)?.query_row([signed(at.0)], |row| row.get(0))
}

pub(super) fn tag_row(row: &Row<'_>) -> RowResult<TagRow> {
    Ok(TagRow {
        name: row.get(0)?,
        csn: Csn(unsigned(row.get(1)?)),
        created_us: row.get(2)?,
        message: row.get(3)?,
        user: row.get(4)?,
    })
}

fn csn(row: &Row<'_>) -> RowResult<Csn> {
    row.get(0).map(|csn| Csn(unsigned(csn)))
}
