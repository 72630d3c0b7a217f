//! What a transaction publishes, and the protocol that publishes it.
//!
//! A commit is applied inside one SQL transaction that its caller has begun and will end:
//!
//! 1. the commit row, which gives the CSN;
//! 2. new classes, databases and containers; a name that is taken refuses the commit;
//! 3. the version check: every container written or read must still be at the version that the
//!    transaction started from, or the commit is refused with a conflict;
//! 4. new versions and link targets; path changes; seals.
//!
//! Invariants:
//! 1. A refused commit leaves nothing behind: whoever called rolls back.
//! 2. The pages and the envelopes that the versions name are durable before the commit is applied;
//!    that is the caller's part.
//! 3. Every statement touches rows of this commit only, so the cost does not grow with history.

use rusqlite::{Connection, OptionalExtension, params};
use uuid::Uuid;

use crate::catalog::numbers::{signed, unsigned};
use crate::error::{Error, Failure, Result};
use crate::host;
use crate::ids::{ContainerId, Csn, DatabaseId};
use crate::names;
use crate::rows::{ClassRow, DatabaseState, EnvelopeRange};

/// Everything that one transaction publishes.
#[derive(Clone, Debug, Default)]
pub struct Commit {
    /// The identity of the transaction, for [`crate::Catalog::find_commit`].
    pub transaction: Uuid,
    /// What its author says about it.
    pub message: String,
    /// Databases that it creates or attaches.
    pub new_databases: Vec<NewDatabase>,
    /// Containers that it creates.
    pub new_containers: Vec<NewContainer>,
    /// Classes that it declares; one that exists with the same definition is fine.
    pub new_classes: Vec<ClassRow>,
    /// New versions of containers.
    pub versions: Vec<NewVersion>,
    /// Databases that containers of this commit now link to, after the targets they had.
    pub link_targets: Vec<(DatabaseId, ContainerId, Vec<Uuid>)>,
    /// Databases that become read-only for ever.
    pub sealed: Vec<DatabaseId>,
    /// Databases whose file is now elsewhere.
    pub moved: Vec<(DatabaseId, String)>,
    /// Containers that were only read, and must be unchanged (serialisable transactions).
    pub reads: Vec<(DatabaseId, ContainerId, Option<Csn>)>,
}

/// A database that a commit creates or attaches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewDatabase {
    /// Its identity, from [`crate::Catalog::reserve_database`].
    pub id: DatabaseId,
    /// Its identity in every federation.
    pub uuid: Uuid,
    /// Its name.
    pub name: String,
    /// Its file: relative to the federation's folder, or absolute for an attached file.
    pub path: String,
    /// Open or attached; sealing is a commit of its own.
    pub state: DatabaseState,
}

/// A container that a commit creates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewContainer {
    /// The database that holds it.
    pub database: DatabaseId,
    /// Its identity, from [`crate::Catalog::reserve_container`].
    pub id: ContainerId,
    /// Its name within its database.
    pub name: String,
    /// The class of its objects.
    pub class: String,
    /// The version of that class.
    pub class_version: u32,
    /// The engine's options, opaque to the catalogue.
    pub options: String,
}

/// A new version of a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NewVersion {
    /// The database that holds the container.
    pub database: DatabaseId,
    /// The container.
    pub container: ContainerId,
    /// The version that the transaction started from; none for a container without one.
    pub base: Option<Csn>,
    /// The header envelope.
    pub header: EnvelopeRange,
    /// The footer envelope.
    pub footer: EnvelopeRange,
    /// Entries, including deleted ones.
    pub entries: u64,
    /// Bytes of the file that this version uses.
    pub bytes: u64,
}

impl Commit {
    /// What can be refused without looking at the catalogue.
    pub(crate) fn validate(&self) -> Result<()> {
        for database in &self.new_databases {
            names::check("database", &database.name)?;
            if database.state == DatabaseState::Sealed {
                return Err(Error::invalid(format!(
                    "database {:?} cannot be created sealed; create it open and seal it",
                    database.name
                )));
            }
        }
        for container in &self.new_containers {
            names::check_container_name(&container.name)?;
        }
        for class in &self.new_classes {
            names::check("class", &class.name)?;
        }
        self.link_targets
            .iter()
            .try_for_each(|(database, container, _)| self.check_guarded(*database, *container))
    }

    /// Link targets are numbered after those that the transaction saw, which only the version
    /// check of the same container makes safe.
    fn check_guarded(&self, database: DatabaseId, container: ContainerId) -> Result<()> {
        let new = self.new_containers.iter().any(|n| (n.database, n.id) == (database, container));
        let written =
            self.versions.iter().any(|v| (v.database, v.container) == (database, container));
        if new || written {
            return Ok(());
        }
        Err(Error::invalid(format!(
            "container {container} of database {database} gets link targets without a new version"
        )))
    }
}

/// Applies `commit` in the transaction that is open on `connection`.
pub(crate) fn apply(connection: &Connection, commit: &Commit) -> std::result::Result<Csn, Failure> {
    let csn = insert_commit(connection, commit)?;
    commit.new_classes.iter().try_for_each(|class| insert_class(connection, csn, class))?;
    commit.new_databases.iter().try_for_each(|new| insert_database(connection, csn, new))?;
    commit.new_containers.iter().try_for_each(|new| insert_container(connection, csn, new))?;
    for (database, container, base) in &commit.reads {
        Target::find(connection, *database, *container)?.check_base(*base)?;
    }
    commit.versions.iter().try_for_each(|version| insert_version(connection, csn, version))?;
    for (database, container, targets) in &commit.link_targets {
        append_link_targets(connection, csn, *database, *container, targets)?;
    }
    for (database, path) in &commit.moved {
        move_database(connection, *database, path)?;
    }
    commit.sealed.iter().try_for_each(|database| seal_database(connection, csn, *database))?;
    Ok(csn)
}

/// The clock may step back, the time of commits may not: snapshots are found by it.
fn insert_commit(connection: &Connection, commit: &Commit) -> std::result::Result<Csn, Failure> {
    let last_us: Option<i64> = connection
        .prepare_cached("SELECT time_us FROM commits ORDER BY csn DESC LIMIT 1")?
        .query_row([], |row| row.get(0))
        .optional()?;
    let time_us = host::now_us().max(last_us.unwrap_or(i64::MIN));
    connection
        .prepare_cached(
            "INSERT INTO commits (transaction_uuid, time_us, message, user_name, host, pid) \
             VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
        )?
        .execute(params![
            commit.transaction.as_bytes(),
            time_us,
            commit.message,
            host::user_name(),
            host::host_name(),
            host::process_id(),
        ])?;
    Ok(Csn(unsigned(connection.last_insert_rowid())))
}

fn insert_class(
    connection: &Connection,
    csn: Csn,
    class: &ClassRow,
) -> std::result::Result<(), Failure> {
    let existing: Option<String> = connection
        .prepare_cached("SELECT definition FROM classes WHERE name = ?1 AND version = ?2")?
        .query_row(params![class.name, class.version], |row| row.get(0))
        .optional()?;
    match existing {
        Some(definition) if definition == class.definition => Ok(()),
        Some(_) => Err(Failure::Said(Error::Exists {
            what: "class",
            name: format!("{} version {}", class.name, class.version),
            advice: "with another definition; raise the version to change the class".into(),
        })),
        None => {
            connection
                .prepare_cached(
                    "INSERT INTO classes (name, version, definition, created) \
                     VALUES (?1, ?2, ?3, ?4)",
                )?
                .execute(params![class.name, class.version, class.definition, signed(csn.0)])?;
            Ok(())
        }
    }
}

fn insert_database(
    connection: &Connection,
    csn: Csn,
    new: &NewDatabase,
) -> std::result::Result<(), Failure> {
    let taken: Option<String> = connection
        .prepare_cached("SELECT name FROM databases WHERE name = ?1 OR uuid = ?2 OR id = ?3")?
        .query_row(params![new.name, new.uuid.as_bytes(), new.id.0], |row| row.get(0))
        .optional()?;
    if let Some(name) = taken {
        let advice = match name == new.name {
            true => "choose another name".to_owned(),
            false => format!("it has the UUID or the id given for {:?}", new.name),
        };
        return Err(Failure::Said(Error::Exists { what: "database", name, advice }));
    }
    connection
        .prepare_cached(
            "INSERT INTO databases (id, uuid, name, path, state, created) \
             VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
        )?
        .execute(params![
            new.id.0,
            new.uuid.as_bytes(),
            new.name,
            new.path,
            new.state.to_string(),
            signed(csn.0),
        ])?;
    Ok(())
}

fn insert_container(
    connection: &Connection,
    csn: Csn,
    new: &NewContainer,
) -> std::result::Result<(), Failure> {
    check_takes_commits(connection, csn, new.database)?;
    let taken: Option<String> = connection
        .prepare_cached(
            "SELECT name FROM containers WHERE database = ?1 AND (name = ?2 OR id = ?3)",
        )?
        .query_row(params![new.database.0, new.name, new.id.0], |row| row.get(0))
        .optional()?;
    if let Some(name) = taken {
        let advice = "open it, or choose another name".to_owned();
        return Err(Failure::Said(Error::Exists { what: "container", name, advice }));
    }
    connection
        .prepare_cached(
            "INSERT INTO containers (database, id, name, class, class_version, options, created) \
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
        )?
        .execute(params![
            new.database.0,
            new.id.0,
            new.name,
            new.class,
            new.class_version,
            new.options,
            signed(csn.0),
        ])?;
    Ok(())
}

fn check_takes_commits(
    connection: &Connection,
    csn: Csn,
    database: DatabaseId,
) -> std::result::Result<(), Failure> {
    let found = connection
        .prepare_cached("SELECT name, state, sealed, created FROM databases WHERE id = ?1")?
        .query_row([database.0], |row| {
            Ok(DatabaseStatus {
                name: row.get(0)?,
                attached: row.get::<_, String>(1)? == "attached",
                sealed: row.get(2)?,
                created: row.get(3)?,
            })
        })
        .optional()?;
    match found {
        Some(status) => Ok(status.check_open(csn)?),
        None => Err(Failure::Said(names::not_found("database", &database.to_string(), vec![]))),
    }
}

fn insert_version(
    connection: &Connection,
    csn: Csn,
    version: &NewVersion,
) -> std::result::Result<(), Failure> {
    let target = Target::find(connection, version.database, version.container)?;
    target.database.check_open(csn)?;
    if target.head == Some(csn) {
        return Err(Failure::Said(Error::invalid(format!(
            "container {:?} is in this commit twice",
            target.path()
        ))));
    }
    target.check_base(version.base)?;
    connection
        .prepare_cached(
            "INSERT INTO versions (database, container, csn, \
             header_offset, header_size, header_length, \
             footer_offset, footer_size, footer_length, entries, bytes) \
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)",
        )?
        .execute(params![
            version.database.0,
            version.container.0,
            signed(csn.0),
            signed(version.header.offset),
            signed(version.header.size),
            signed(version.header.length),
            signed(version.footer.offset),
            signed(version.footer.size),
            signed(version.footer.length),
            signed(version.entries),
            signed(version.bytes),
        ])?;
    Ok(())
}

fn append_link_targets(
    connection: &Connection,
    csn: Csn,
    database: DatabaseId,
    container: ContainerId,
    targets: &[Uuid],
) -> std::result::Result<(), Failure> {
    let first: i64 = connection
        .prepare_cached(
            "SELECT coalesce(max(position) + 1, 0) FROM link_targets \
             WHERE database = ?1 AND container = ?2",
        )?
        .query_row([database.0, container.0], |row| row.get(0))?;
    let mut insert = connection.prepare_cached(
        "INSERT INTO link_targets (database, container, position, target, csn) \
         VALUES (?1, ?2, ?3, ?4, ?5)",
    )?;
    for (position, target) in (first..).zip(targets) {
        insert.execute(params![
            database.0,
            container.0,
            position,
            target.as_bytes(),
            signed(csn.0)
        ])?;
    }
    Ok(())
}

fn move_database(
    connection: &Connection,
    database: DatabaseId,
    path: &str,
) -> std::result::Result<(), Failure> {
    let changed = connection
        .prepare_cached("UPDATE databases SET path = ?2 WHERE id = ?1")?
        .execute(params![database.0, path])?;
    match changed {
        1 => Ok(()),
        _ => Err(Failure::Said(names::not_found("database", &database.to_string(), vec![]))),
    }
}

/// Refused when it is sealed or attached already.
fn seal_database(
    connection: &Connection,
    csn: Csn,
    database: DatabaseId,
) -> std::result::Result<(), Failure> {
    check_takes_commits(connection, csn, database)?;
    connection
        .prepare_cached("UPDATE databases SET sealed = ?2 WHERE id = ?1")?
        .execute(params![database.0, signed(csn.0)])?;
    Ok(())
}

/// Whether a database takes commits.
struct DatabaseStatus {
    name: String,
    attached: bool,
    sealed: Option<i64>,
    created: i64,
}

impl DatabaseStatus {
    /// The commit that attaches a database may fill it; no later one may.
    fn check_open(&self, csn: Csn) -> Result<()> {
        if let Some(sealed) = self.sealed {
            return Err(Error::closed(format!(
                "database {:?} was sealed by commit {sealed} and takes no more changes; \
                 write to another database",
                self.name
            )));
        }
        if self.attached && self.created != signed(csn.0) {
            return Err(Error::closed(format!(
                "database {:?} is an attached file and takes no changes; write to another database",
                self.name
            )));
        }
        Ok(())
    }
}

/// A container that a commit writes or has read, as it is committed now.
struct Target {
    database: DatabaseStatus,
    container: String,
    head: Option<Csn>,
}

impl Target {
    fn find(
        connection: &Connection,
        database: DatabaseId,
        container: ContainerId,
    ) -> std::result::Result<Self, Failure> {
        connection
            .prepare_cached(
                "SELECT d.name, d.state, d.sealed, d.created, c.name, \
                 (SELECT v.csn FROM versions v WHERE v.database = ?1 AND v.container = ?2 \
                  ORDER BY v.csn DESC LIMIT 1) \
                 FROM containers c JOIN databases d ON d.id = c.database \
                 WHERE c.database = ?1 AND c.id = ?2",
            )?
            .query_row([database.0, container.0], |row| {
                Ok(Target {
                    database: DatabaseStatus {
                        name: row.get(0)?,
                        attached: row.get::<_, String>(1)? == "attached",
                        sealed: row.get(2)?,
                        created: row.get(3)?,
                    },
                    container: row.get(4)?,
                    head: row.get::<_, Option<i64>>(5)?.map(|csn| Csn(unsigned(csn))),
                })
            })
            .optional()?
            .ok_or_else(|| {
                let name = format!("{container} of database {database}");
                Failure::Said(names::not_found("container", &name, vec![]))
            })
    }

    fn path(&self) -> String {
        format!("{}/{}", self.database.name, self.container)
    }

    fn check_base(&self, base: Option<Csn>) -> Result<()> {
        if self.head == base {
            return Ok(());
        }
        Err(Error::Conflict { container: self.path(), base, head: self.head })
    }
}
