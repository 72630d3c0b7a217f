//! Questions to the catalogue, and their answers.
//!
//! A look-up of one row runs on the calling task, because handing it to another thread would take longer. Look-ups of
//! many rows, or that may wait for a disk, run on a thread for blocking work.

use std::sync::Arc;
use std::time::{Duration, Instant};

use femtobarn_catalog::{ContainerId, Csn, DatabaseId, Error, LocalCatalogue, Result, clock};
use femtobarn_rpc::ANSWER_ROWS_MAX;
use femtobarn_rpc::convert::{answers_of, uuid};
use femtobarn_rpc::v1::question::Of;
use femtobarn_rpc::v1::{Answer, Following, Question};

use super::Service;
use crate::logical::catalogue::FederationService;

/// Commits of the history in one call at most.
const HISTORY_MAX: u64 = 1_000_000;
/// The longest wait of one call of a follower.
const FOLLOWER_WAIT_MAX: Duration = Duration::from_secs(30);
/// How often the catalogue is asked for its newest commit while a follower waits: other processes commit, too.
const HEAD_INTERVAL: Duration = Duration::from_millis(10);
/// How often it is asked for rows that no commit dates.
const UNDATED_INTERVAL: Duration = Duration::from_secs(1);

/// The answers to a question.
///
/// # Errors
/// The error of the catalogue; [`Error::Invalid`] if the question is empty.
pub(super) async fn answers(
    service: &Service,
    federation: Arc<FederationService>,
    question: Question,
) -> Result<Vec<Answer>> {
    let nothing = || Error::Invalid { what: "malformed message: an empty question".to_owned() };
    let of = question.of.ok_or_else(nothing)?;
    if matches!(of, Of::Head(_)) {
        let exports = &service.state.exports;
        let (running, read_us) = (exports.requests_running(), exports.recent_read_us());
        let head = head_of(service, &federation).await?;
        let head = Answer { csn: Some(head.0), ..Answer::default() };
        let load = Answer { running: Some(running), read_us: Some(read_us), ..head };
        return Ok(vec![load]);
    }
    if let Of::RowsSince(following) = of {
        return rows_since(service, &federation, following).await;
    }
    if let Of::RowsOfDatabase(it) = of {
        let rows =
            move || federation.catalog().rows_of_database(DatabaseId(it.database), Csn(it.at));
        return service.blocking(rows).await.map(answers_of);
    }
    if let (Of::Home(it), Some(site)) = (&of, federation.site().cloned()) {
        let database = DatabaseId(it.database);
        let home = service.blocking(move || site.home_or_placement(database)).await?;
        return Ok(vec![Answer { home: Some(home.into()), ..Answer::default() }]);
    }
    if is_short(&of) && !federation.catalog().is_in_postgres() {
        return answer(federation.catalog(), of).map(|answer| vec![answer]);
    }
    service.blocking(move || answer(federation.catalog(), of).map(split)).await
}

/// Questions that came with an operation, and the snapshot that it pinned, or zero if it was a lock.
pub(super) type AskedQuestions = (Vec<Question>, Csn);

/// The answers to the questions of operations that succeeded. Those that fail, or that this task may not wait for, have no
/// rows; nor have any from the deadline on, or once the catalogue does not answer.
pub(super) fn answers_with_operations(
    catalog: &LocalCatalogue,
    asked: Vec<AskedQuestions>,
    deadline: Instant,
) -> Vec<Vec<Answer>> {
    answers_until(deadline, asked, |of| answer(catalog, of))
}

fn answers_until(
    deadline: Instant,
    asked: Vec<AskedQuestions>,
    mut answer: impl FnMut(Of) -> Result<Answer>,
) -> Vec<Vec<Answer>> {
    let is_immediate = |of: &Of| is_short(of) || matches!(of, Of::Head(_));
    let mut is_over = false;
    let mut reply = |question: Question, pinned: Csn| {
        is_over |= clock::now() >= deadline;
        let of = question.of.filter(|of| !is_over && is_immediate(of))?;
        let answered = answer(as_of_pin(of, pinned));
        is_over |= matches!(answered, Err(Error::Unavailable { .. }));
        answered.ok()
    };
    let mut replies = |(questions, pinned): AskedQuestions| {
        let reply = |question| reply(question, pinned).unwrap_or_default();
        questions.into_iter().map(reply).collect()
    };
    asked.into_iter().map(&mut replies).collect()
}

/// A question about the newest state, as of a snapshot that was pinned just now.
fn as_of_pin(mut of: Of, pinned: Csn) -> Of {
    let at = match &mut of {
        Of::FindDatabase(it) | Of::FindContainer(it) => &mut it.at,
        Of::DatabaseById(it) | Of::ContainerById(it) | Of::Version(it) => &mut it.at,
        Of::DatabaseByUuid(it) => &mut it.at,
        _ => return of,
    };
    if *at == Csn::MAX.0 && pinned > Csn::ZERO {
        *at = pinned.0;
    }
    of
}

/// The newest commit. PostgreSQL answers from elsewhere, and is waited for while it restarts.
async fn head_of(service: &Service, federation: &Arc<FederationService>) -> Result<Csn> {
    if !federation.catalog().is_in_postgres() {
        return federation.catalog().head();
    }
    let of = Arc::clone(federation);
    service.blocking(move || of.catalog().head()).await
}

/// Whether the look-up reads at most one row of each kind and does not block, if the catalogue is a file. [`Of::Database`] and the like are not
/// short: for a name that does not exist they search all names for similar ones.
fn is_short(of: &Of) -> bool {
    matches!(
        of,
        Of::FindDatabase(_)
            | Of::DatabaseById(_)
            | Of::DatabaseByUuid(_)
            | Of::FindContainer(_)
            | Of::ContainerById(_)
            | Of::ContainerToWrite(_)
            | Of::Version(_)
            | Of::Commit(_)
            | Of::SnapshotAtTime(_)
            | Of::Retention(_)
    )
}

fn answer(catalog: &LocalCatalogue, of: Of) -> Result<Answer> {
    let (database, container) = (DatabaseId, ContainerId);
    let none = Answer::default();
    let number = |csn: Csn| Answer { csn: Some(csn.0), ..Answer::default() };
    Ok(match of {
        Of::Head(_) => number(catalog.head()?),
        Of::Databases(at) => databases(catalog.databases(Csn(at.csn))?),
        Of::FindDatabase(it) => find_database(catalog, &it.name, Csn(it.at))?,
        Of::Database(it) => databases([catalog.database(&it.name, Csn(it.at))?]),
        Of::DatabaseById(it) => {
            databases([catalog.database_by_id(database(it.database), Csn(it.at))?])
        }
        Of::DatabaseByUuid(it) => {
            databases(catalog.database_by_uuid_at(uuid(&it.uuid)?, Csn(it.at))?)
        }
        Of::Containers(it) => containers(catalog.containers(database(it.database), Csn(it.at))?),
        Of::FindContainer(it) => {
            containers(catalog.find_container(database(it.database), &it.name, Csn(it.at))?)
        }
        Of::Container(it) => {
            containers([catalog.container(database(it.database), &it.name, Csn(it.at))?])
        }
        Of::ContainerById(it) => {
            let (of, id) = (database(it.database), container(it.container));
            containers([catalog.container_by_id(of, id, Csn(it.at))?])
        }
        Of::ContainerToWrite(it) => {
            container_to_write(catalog, database(it.database), container(it.container))?
        }
        Of::DatabaseToDrop(it) => database_to_drop(catalog, database(it.database))?,
        Of::Version(it) => {
            let (of, id) = (database(it.database), container(it.container));
            versions(catalog.version(of, id, Csn(it.at))?)
        }
        Of::NewestVersions(it) => {
            versions(catalog.newest_versions(database(it.database), Csn(it.at))?)
        }
        Of::Versions(it) => {
            versions(catalog.versions(database(it.database), container(it.container))?)
        }
        Of::Classes(_) => classes(catalog.classes()?),
        Of::Class(it) => classes([catalog.class(&it.name, it.version)?]),
        Of::LinkTargets(it) => {
            let targets = catalog.link_targets(database(it.database), container(it.container))?;
            let uuids = targets.into_iter().map(|target| target.into_bytes().to_vec()).collect();
            Answer { uuids, ..none }
        }
        Of::History(it) => commits(catalog.history(it.limit.min(HISTORY_MAX))?),
        Of::Commit(it) => commits([catalog.commit_by_csn(Csn(it.csn))?]),
        Of::FindCommit(it) => {
            let csn = catalog.find_commit(uuid(&it.uuid)?, Csn(it.after))?;
            Answer { csn: csn.map(|csn| csn.0), ..none }
        }
        Of::SnapshotAtTime(it) => number(catalog.snapshot_at_time(it.time_us)?),
        Of::Tag(it) => tags([catalog.tag(&it.name)?]),
        Of::Tags(_) => tags(catalog.tags()?),
        Of::Servers(_) => {
            let servers = catalog.servers()?.into_iter().map(Into::into).collect();
            Answer { servers, ..none }
        }
        Of::Home(it) => {
            Answer { home: catalog.home(database(it.database))?.map(Into::into), ..none }
        }
        Of::Retention(_) => Answer { retention: Some(catalog.retention()?.into()), ..none },
        Of::RowsSince(_) | Of::RowsOfDatabase(_) => none,
    })
}

/// What a follower needs, as soon as there is any of it, or the follower's time is over.
async fn rows_since(
    service: &Service,
    federation: &Arc<FederationService>,
    following: Following,
) -> Result<Vec<Answer>> {
    let Following { since, mark, wait_ms, follower, is_beginning } = following;
    let since = Csn(since);
    let deadline = clock::now() + Duration::from_millis(wait_ms).min(FOLLOWER_WAIT_MAX);
    loop {
        federation.followers().heard_from(&follower, since);
        let of = Arc::clone(federation);
        let rows = move || of.catalog().rows_since(since, mark, is_beginning);
        let rows = service.blocking(rows).await?;
        if rows.at > since || rows.has_undated || clock::now() >= deadline {
            return Ok(answers_of(rows));
        }
        let next_look = deadline.min(clock::now() + UNDATED_INTERVAL);
        while head_of(service, federation).await? <= since && clock::now() < next_look {
            tokio::time::sleep(HEAD_INTERVAL).await;
        }
    }
}

/// The database with a name. For the newest snapshot, the answer has the newest commit, too.
fn find_database(catalog: &LocalCatalogue, name: &str, at: Csn) -> Result<Answer> {
    let found = databases(catalog.find_database(name, at)?);
    let head = (at == Csn::MAX).then(|| catalog.head()).transpose()?;
    Ok(Answer { csn: head.map(|head| head.0), ..found })
}

fn container_to_write(
    catalog: &LocalCatalogue,
    database: DatabaseId,
    id: ContainerId,
) -> Result<Answer> {
    let (database, container, version) = catalog.container_to_write(database, id)?;
    Ok(Answer {
        databases: vec![database.into()],
        containers: vec![container.into()],
        versions: version.into_iter().map(Into::into).collect(),
        ..Answer::default()
    })
}

fn database_to_drop(catalog: &LocalCatalogue, id: DatabaseId) -> Result<Answer> {
    let (seen, database, containers) = catalog.database_to_drop(id)?;
    Ok(Answer {
        csn: Some(seen.0),
        databases: vec![database.into()],
        containers: containers.into_iter().map(Into::into).collect(),
        ..Answer::default()
    })
}

/// Makes an answer of rows of one kind.
macro_rules! rows {
    ($($field:ident: $row:ident),*) => {
        $(fn $field(rows: impl IntoIterator<Item = femtobarn_catalog::$row>) -> Answer {
            let $field = rows.into_iter().map(Into::into).collect();
            Answer { $field, ..Answer::default() }
        })*
    };
}

rows!(
    databases: DatabaseRow,
    containers: ContainerRow,
    versions: VersionRow,
    classes: ClassRow,
    commits: CommitRow,
    tags: TagRow
);

/// Splits an answer into several with at most [`ANSWER_ROWS_MAX`] rows of each kind.
fn split(mut answer: Answer) -> Vec<Answer> {
    let mut parts = Vec::new();
    loop {
        let part = Answer {
            databases: front(&mut answer.databases),
            containers: front(&mut answer.containers),
            versions: front(&mut answer.versions),
            classes: front(&mut answer.classes),
            commits: front(&mut answer.commits),
            tags: front(&mut answer.tags),
            servers: front(&mut answer.servers),
            home: answer.home.take(),
            uuids: front(&mut answer.uuids),
            csn: answer.csn.take(),
            retention: answer.retention.take(),
            running: answer.running.take(),
            read_us: answer.read_us.take(),
            ..Answer::default()
        };
        let is_last = part == Answer::default();
        if is_last && !parts.is_empty() {
            return parts;
        }
        parts.push(part);
        if is_last {
            return parts;
        }
    }
}

fn front<T>(rows: &mut Vec<T>) -> Vec<T> {
    let rest = rows.split_off(rows.len().min(ANSWER_ROWS_MAX));
    std::mem::replace(rows, rest)
}

#[cfg(test)]
mod tests {
    use femtobarn_rpc::v1::Empty;

    use super::*;

    #[test]
    fn answers_of_a_turn_end_at_its_deadline_and_when_the_catalogue_is_away() {
        let head = || Question { of: Some(Of::Head(Empty {})), ..Question::default() };
        let asked =
            || vec![(vec![head(), head()], Csn::ZERO), (vec![], Csn(1)), (vec![head()], Csn(1))];
        let minute = Duration::from_secs(60);
        let found = |deadline: Instant, is_away_at: u64| {
            let mut asked_so_far = 0;
            let replies = answers_until(deadline, asked(), |_| {
                asked_so_far += 1;
                if asked_so_far == is_away_at {
                    return Err(Error::Unavailable { what: String::new() });
                }
                Ok(Answer { csn: Some(asked_so_far), ..Answer::default() })
            });
            assert_eq!(replies.iter().map(Vec::len).collect::<Vec<_>>(), [2, 0, 1]);
            replies.into_iter().flatten().map(|answer| answer.csn).collect::<Vec<_>>()
        };
        assert_eq!(found(clock::now() + minute, 0), [Some(1), Some(2), Some(3)]);
        assert_eq!(found(clock::now() + minute, 2), [Some(1), None, None]);
        assert_eq!(found(clock::now(), 0), [None; 3]);
    }

    #[test]
    fn long_answer_is_split_and_complete() {
        for count in [0, 1, ANSWER_ROWS_MAX, 2 * ANSWER_ROWS_MAX + 7] {
            let uuids: Vec<_> = (0..count).map(|number| number.to_le_bytes().to_vec()).collect();
            let parts = split(Answer { uuids: uuids.clone(), csn: Some(7), ..Answer::default() });
            assert!(parts.iter().all(|part| part.uuids.len() <= ANSWER_ROWS_MAX));
            assert_eq!(parts.len(), count.div_ceil(ANSWER_ROWS_MAX).max(1));
            assert_eq!(parts.iter().filter_map(|part| part.csn).collect::<Vec<_>>(), [7]);
            let joined: Vec<_> = parts.into_iter().flat_map(|part| part.uuids).collect();
            assert_eq!(joined, uuids);
        }
    }
}
