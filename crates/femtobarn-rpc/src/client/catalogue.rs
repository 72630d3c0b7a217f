//! The methods of a remote catalogue: queries, mutations and transactions, over gRPC.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use femtobarn_catalog::{
    BlobRange, Catalogue, ClassRow, Commit, CommitRow, ContainerId, ContainerRow, Csn, DatabaseId,
    DatabaseRow, Error, ErrorKind, Home, LocalCatalogue, LockTable, PinGuard, Result, Retention,
    ServerRow, TagRow, VersionRow,
};
use uuid::Uuid;

use super::calls::SentCommit;
use super::remote::RemoteCatalogue;
use crate::convert::{needed, uuid};
use crate::v1::change_request::Of as Change;
use crate::v1::question::Of;
use crate::v1::{self, Answer, At, Empty, Named, Numbered};

impl RemoteCatalogue {
    /// Runs a call on the communication thread, and waits for it.
    pub(super) fn wait<T>(&self, work: impl Future<Output = Result<T>>) -> Result<T> {
        self.session.check_open()?;
        match &self.runtime {
            Some(runtime) => runtime.block_on(work),
            None => Err(Error::Closed { what: "the federation was closed".to_owned() }),
        }
    }

    pub(super) fn ask(&self, of: Of) -> Result<Arc<Vec<Answer>>> {
        self.wait(self.session.look_up(of))
    }

    pub(super) fn change(&self, of: Change) -> Result<(v1::ChangeReply, bool)> {
        self.wait(self.session.change(of))
    }

    /// Makes a change that needs the lock of a database.
    fn change_of(&self, database: DatabaseId, of: Change) -> Result<v1::ChangeReply> {
        match &self.homes {
            Some(homes) => needed(homes.change(database, &of, false)?, "reply"),
            None => Ok(self.change(of)?.0),
        }
    }

    /// New consecutive numbers.
    fn reserve(&self, count: u32, of: impl FnOnce(v1::Count) -> Change) -> Result<Range<u32>> {
        if count == 0 {
            return Ok(0..0);
        }
        let first = self.change(of(v1::Count { limit: u64::from(count) }))?.0.first;
        let end = needed(first.checked_add(count).filter(|_| first > 0), "number")?;
        Ok(first..end)
    }

    /// Makes the server `to` the home of a database. The caller holds the database exclusively, and `to` has its file.
    ///
    /// # Errors
    /// [`Error::Changed`] if the server is not the home of the database; the common errors of [`Catalogue`].
    pub fn hand_over(&self, database: DatabaseId, to: &str) -> Result<()> {
        let to = v1::Move { database: database.0, server: to.to_owned() };
        self.change_of(database, Change::HandOver(to)).map(drop)
    }

    fn pinned(&self, csn: Option<Csn>) -> Result<(Csn, PinGuard)> {
        let csn = self.session.pin(csn, vec![])?.csn;
        Ok((csn, PinGuard::on_lease(self.session.clone(), csn)))
    }
}

/// All rows of one kind in answers.
macro_rules! rows {
    ($answers:expr, $field:ident) => {
        $answers.iter().flat_map(|answer| answer.$field.iter().cloned()).map(Into::into).collect()
    };
}

/// All rows of one kind in answers, if their messages can be malformed.
macro_rules! checked {
    ($answers:expr, $field:ident) => {
        $answers
            .iter()
            .flat_map(|answer| answer.$field.iter().cloned())
            .map(TryInto::try_into)
            .collect::<Result<Vec<_>>>()
    };
}

fn one<T>(rows: Vec<T>) -> Result<T> {
    needed(rows.into_iter().next(), "row")
}

fn last<T>(mut rows: Vec<T>) -> Option<T> {
    rows.pop()
}

pub(super) fn csn_of(answers: &[Answer]) -> Option<Csn> {
    answers.iter().find_map(|answer| answer.csn).map(Csn)
}

fn named(database: DatabaseId, name: &str, at: Csn) -> Named {
    Named { database: database.0, name: name.to_owned(), at: at.0 }
}

pub(super) fn numbered(database: DatabaseId, container: ContainerId, at: Csn) -> Numbered {
    Numbered { database: database.0, container: container.0, at: at.0 }
}

pub(super) const NONE: ContainerId = ContainerId(0);

impl Catalogue for RemoteCatalogue {
    fn uuid(&self) -> Uuid {
        self.uuid
    }

    fn name(&self) -> &str {
        &self.name
    }

    fn folder(&self) -> &Path {
        &self.url
    }

    fn is_reachable(&self) -> bool {
        self.session.is_connected()
    }

    fn begin_close(&self) {
        self.session.begin_close();
        self.homes.iter().for_each(|homes| homes.begin_close());
    }

    fn session(&self) -> Option<Uuid> {
        Some(self.homes.as_ref().map_or(self.session.id, |homes| homes.id))
    }

    fn entry_url(&self) -> Option<String> {
        self.homes.as_ref().map(|_| self.session.url())
    }

    fn server_of(&self, database: DatabaseId) -> Option<String> {
        self.homes.as_ref()?.server_of(database)
    }

    fn is_read_only(&self) -> bool {
        self.is_read_only
    }

    fn check_not_failed(&self) -> Result<()> {
        self.session.check_open()
    }

    fn local(&self) -> Result<&LocalCatalogue> {
        Err(Error::Unsupported {
            what: format!(
                "this needs the federation's folder: run it on the server of {}",
                self.url.display()
            ),
        })
    }

    fn locks(&self) -> LockTable {
        match &self.homes {
            Some(homes) => LockTable::on_lease(homes.clone()),
            None => LockTable::on_lease(self.session.clone()),
        }
    }

    fn head(&self) -> Result<Csn> {
        Ok(self.head_and_load()?.0)
    }

    fn databases(&self, at: Csn) -> Result<Vec<DatabaseRow>> {
        checked!(self.ask(Of::Databases(At { csn: at.0 }))?, databases)
    }

    fn find_database(&self, name: &str, at: Csn) -> Result<Option<DatabaseRow>> {
        let question = Of::FindDatabase(named(DatabaseId(0), name, at));
        Ok(checked!(self.ask(question)?, databases)?.pop())
    }

    fn find_current_database(&self, name: &str) -> Result<(Option<DatabaseRow>, Csn)> {
        let answers = self.ask(Of::FindDatabase(named(DatabaseId(0), name, Csn::MAX)))?;
        let head = needed(csn_of(&answers), "commit")?;
        self.session.observe_head(head);
        Ok((checked!(answers, databases)?.pop(), head))
    }

    fn database(&self, name: &str, at: Csn) -> Result<DatabaseRow> {
        one(checked!(self.ask(Of::Database(named(DatabaseId(0), name, at)))?, databases)?)
    }

    fn database_by_id(&self, id: DatabaseId, at: Csn) -> Result<DatabaseRow> {
        one(checked!(self.ask(Of::DatabaseById(numbered(id, NONE, at)))?, databases)?)
    }

    fn database_by_uuid(&self, uuid: Uuid) -> Result<Option<DatabaseRow>> {
        self.database_by_uuid_at(uuid, Csn::MAX)
    }

    fn database_by_uuid_at(&self, uuid: Uuid, at: Csn) -> Result<Option<DatabaseRow>> {
        let uuid = uuid.into_bytes().to_vec();
        let question = Of::DatabaseByUuid(v1::Identified { uuid, at: at.0 });
        Ok(checked!(self.ask(question)?, databases)?.pop())
    }

    fn containers(&self, database: DatabaseId, at: Csn) -> Result<Vec<ContainerRow>> {
        Ok(rows!(self.ask(Of::Containers(numbered(database, NONE, at)))?, containers))
    }

    fn find_container(
        &self,
        database: DatabaseId,
        name: &str,
        at: Csn,
    ) -> Result<Option<ContainerRow>> {
        let answers = self.ask(Of::FindContainer(named(database, name, at)))?;
        Ok(last(rows!(answers, containers)))
    }

    fn container(&self, database: DatabaseId, name: &str, at: Csn) -> Result<ContainerRow> {
        one(rows!(self.ask(Of::Container(named(database, name, at)))?, containers))
    }

    fn container_by_id(
        &self,
        database: DatabaseId,
        id: ContainerId,
        at: Csn,
    ) -> Result<ContainerRow> {
        one(rows!(self.ask(Of::ContainerById(numbered(database, id, at)))?, containers))
    }

    fn container_to_write(
        &self,
        database: DatabaseId,
        id: ContainerId,
    ) -> Result<(DatabaseRow, ContainerRow, Option<VersionRow>)> {
        let answers = self.ask(Of::ContainerToWrite(numbered(database, id, Csn::MAX)))?;
        let (of, row) = (one(checked!(answers, databases)?)?, one(rows!(answers, containers))?);
        Ok((of, row, last(rows!(answers, versions))))
    }

    fn database_to_drop(&self, id: DatabaseId) -> Result<(Csn, DatabaseRow, Vec<ContainerRow>)> {
        let answers = self.ask(Of::DatabaseToDrop(numbered(id, NONE, Csn::MAX)))?;
        let seen = needed(csn_of(&answers), "commit")?;
        Ok((seen, one(checked!(answers, databases)?)?, rows!(answers, containers)))
    }

    fn version(
        &self,
        database: DatabaseId,
        container: ContainerId,
        at: Csn,
    ) -> Result<Option<VersionRow>> {
        let question = Of::Version(numbered(database, container, at));
        Ok(last(rows!(self.ask(question)?, versions)))
    }

    fn newest_versions(&self, database: DatabaseId, at: Csn) -> Result<Vec<VersionRow>> {
        Ok(rows!(self.ask(Of::NewestVersions(numbered(database, NONE, at)))?, versions))
    }

    fn versions(&self, database: DatabaseId, container: ContainerId) -> Result<Vec<VersionRow>> {
        Ok(rows!(self.ask(Of::Versions(numbered(database, container, Csn::MAX)))?, versions))
    }

    fn classes(&self) -> Result<Vec<ClassRow>> {
        Ok(rows!(self.ask(Of::Classes(Empty {}))?, classes))
    }

    fn class(&self, name: &str, version: Option<u32>) -> Result<ClassRow> {
        let question = Of::Class(v1::Class { name: name.to_owned(), version });
        one(rows!(self.ask(question)?, classes))
    }

    fn link_targets(&self, database: DatabaseId, container: ContainerId) -> Result<Vec<Uuid>> {
        let answers = self.ask(Of::LinkTargets(numbered(database, container, Csn::MAX)))?;
        answers.iter().flat_map(|answer| &answer.uuids).map(|bytes| uuid(bytes)).collect()
    }

    fn history(&self, limit: u64) -> Result<Vec<CommitRow>> {
        checked!(self.ask(Of::History(v1::Count { limit }))?, commits)
    }

    fn commit_by_csn(&self, csn: Csn) -> Result<CommitRow> {
        one(checked!(self.ask(Of::Commit(At { csn: csn.0 }))?, commits)?)
    }

    fn find_commit(&self, transaction: Uuid, after: Csn) -> Result<Option<Csn>> {
        let uuid = transaction.into_bytes().to_vec();
        Ok(csn_of(&self.ask(Of::FindCommit(v1::Transaction { uuid, after: after.0 }))?))
    }

    fn snapshot_at_time(&self, time_us: i64) -> Result<Csn> {
        needed(csn_of(&self.ask(Of::SnapshotAtTime(v1::Time { time_us }))?), "commit")
    }

    fn pin(&self, at: Csn) -> Result<PinGuard> {
        if self.session.ledger().pin_again(at) {
            return Ok(PinGuard::on_lease(self.session.clone(), at));
        }
        Ok(self.pinned(Some(at))?.1)
    }

    fn pin_head(&self) -> Result<(Csn, PinGuard)> {
        self.pinned(None)
    }

    fn pin_head_to_read(
        &self,
        containers: &[(DatabaseId, ContainerId)],
    ) -> Result<(Csn, PinGuard, Vec<DatabaseRow>)> {
        let (csn, databases) = self.session.pin_to_read(containers)?;
        let databases = databases.into_iter().map(TryInto::try_into);
        let pin = PinGuard::on_lease(self.session.clone(), csn);
        Ok((csn, pin, databases.collect::<Result<_>>()?))
    }

    fn commit(&self, mut commit: Commit) -> Result<Csn> {
        if commit.transaction.is_nil() {
            commit.transaction = Uuid::new_v4();
        }
        match &self.homes {
            Some(homes) => homes.publish(commit),
            None => {
                let mut sent = SentCommit::new(&self.session);
                self.wait(self.session.publish(&commit, &mut sent))
            }
        }
    }

    fn log_room(&self) -> usize {
        let of_session = self.session.log_room.load(Ordering::Acquire);
        if self.homes.is_some() { 0 } else { of_session }
    }

    fn logs_new_files(&self) -> bool {
        self.session.logs_new_files.load(Ordering::Acquire)
    }

    fn reserve_databases(&self, count: u32) -> Result<Vec<DatabaseId>> {
        let numbers = self.reserve(count, Change::ReserveDatabases)?;
        Ok(numbers.map(DatabaseId).collect())
    }

    fn reserve_containers(&self, count: u32) -> Result<Vec<ContainerId>> {
        let numbers = self.reserve(count, Change::ReserveContainers)?;
        Ok(numbers.map(ContainerId).collect())
    }

    fn take_free_extent(&self, database: DatabaseId, size_min: u64) -> Result<Option<BlobRange>> {
        let range = Some(v1::BlobRange { offset: 0, size: size_min });
        let wanted = v1::FreeExtent { database: database.0, range };
        // A range whose answer was lost stays unused until the next vacuum.
        let taken = self.change_of(database, Change::TakeFreeExtent(wanted))?.range;
        Ok(taken.map(Into::into))
    }

    fn extend_file(&self, database: DatabaseId, path: &str, payload: u64) -> Result<BlobRange> {
        let new = v1::NewExtent { database: database.0, path: path.to_owned(), payload };
        // An extent whose answer was lost is a key without references.
        Ok(needed(self.change_of(database, Change::ExtendFile(new))?.range, "range")?.into())
    }

    fn give_free_extent(&self, database: DatabaseId, range: BlobRange) -> Result<()> {
        // A range that was taken before the lock was lost may belong to another writer now.
        let is_lost = match &self.homes {
            Some(homes) => homes.has_lost(database),
            None => self.session.ledger().lost_database([database].into_iter()).is_some(),
        };
        if is_lost {
            return Ok(());
        }
        let given = v1::FreeExtent { database: database.0, range: Some(range.into()) };
        // Sent only once: another writer could take the range before a second call. A lost call leaves it unused.
        let change = Change::GiveFreeExtent(given);
        match &self.homes {
            Some(homes) => homes.change(database, &change, true).map(drop),
            None => self.wait(self.session.change_once(change)).map(drop),
        }
    }

    fn create_tag(&self, name: &str, csn: Csn, message: &str) -> Result<TagRow> {
        let tag = v1::TagRow {
            name: name.to_owned(),
            csn: csn.0,
            message: message.to_owned(),
            ..v1::TagRow::default()
        };
        match self.change(Change::CreateTag(tag)) {
            Ok((reply, _)) => Ok(needed(reply.tag, "tag")?.into()),
            // The tag may be from an earlier call whose answer was lost.
            Err(error) if error.kind() == ErrorKind::Exists => match self.tag(name) {
                Ok(tag) if tag.csn == csn && tag.message == message => Ok(tag),
                _ => Err(error),
            },
            Err(error) => Err(error),
        }
    }

    fn drop_tag(&self, name: &str) -> Result<()> {
        self.change(Change::DropTag(named(DatabaseId(0), name, Csn::MAX))).map(drop)
    }

    fn tag(&self, name: &str) -> Result<TagRow> {
        one(rows!(self.ask(Of::Tag(named(DatabaseId(0), name, Csn::MAX)))?, tags))
    }

    fn tags(&self) -> Result<Vec<TagRow>> {
        Ok(rows!(self.ask(Of::Tags(Empty {}))?, tags))
    }

    fn servers(&self) -> Result<Vec<ServerRow>> {
        Ok(rows!(self.ask(Of::Servers(Empty {}))?, servers))
    }

    fn home(&self, database: DatabaseId) -> Result<Option<Home>> {
        let answers = self.ask(Of::Home(numbered(database, ContainerId(0), Csn::MAX)))?;
        Ok(answers.iter().find_map(|answer| answer.home.clone()).map(Into::into))
    }

    fn drain(&self, server: &str, is_draining: bool) -> Result<()> {
        let (server, undo) = (server.to_owned(), !is_draining);
        self.change(Change::Drain(v1::Drain { server, undo })).map(drop)
    }

    fn move_database(&self, database: DatabaseId, to: &str) -> Result<Option<u64>> {
        let change = Change::MoveDatabase(v1::Move { database: database.0, server: to.to_owned() });
        let reply = match (self.change(change.clone()), &self.homes) {
            (Err(Error::Elsewhere { server, url, .. }), Some(homes)) => {
                homes.change_at((&server, &url), change)?
            }
            (reply, _) => reply?.0,
        };
        Ok(reply.moving)
    }

    fn retention(&self) -> Result<Retention> {
        let retention = self.ask(Of::Retention(Empty {}))?.iter().find_map(|it| it.retention);
        Ok(needed(retention, "retention")?.into())
    }

    fn set_retention(&self, retention: Retention) -> Result<()> {
        self.change(Change::SetRetention(retention.into())).map(drop)
    }
}
