//! Rows of the catalogue as messages, and back.

use femtobarn_catalog::{
    BlobRange, ClassRow, CommitRow, ContainerId, ContainerRow, Csn, DatabaseId, DatabaseRow,
    DatabaseState, EnvelopeRange, Error, Retention, TagRow, VersionRow,
};

use super::{invalid, uuid};
use crate::v1;

impl From<EnvelopeRange> for v1::EnvelopeRange {
    fn from(EnvelopeRange { offset, size, length }: EnvelopeRange) -> Self {
        v1::EnvelopeRange { offset, size, length }
    }
}

impl From<v1::EnvelopeRange> for EnvelopeRange {
    fn from(v1::EnvelopeRange { offset, size, length }: v1::EnvelopeRange) -> Self {
        EnvelopeRange { offset, size, length }
    }
}

impl From<BlobRange> for v1::BlobRange {
    fn from(BlobRange { offset, size }: BlobRange) -> Self {
        v1::BlobRange { offset, size }
    }
}

impl From<v1::BlobRange> for BlobRange {
    fn from(v1::BlobRange { offset, size }: v1::BlobRange) -> Self {
        BlobRange { offset, size }
    }
}

impl From<DatabaseState> for v1::DatabaseState {
    fn from(state: DatabaseState) -> Self {
        match state {
            DatabaseState::Open => v1::DatabaseState::Open,
            DatabaseState::Sealed => v1::DatabaseState::Sealed,
            DatabaseState::Attached => v1::DatabaseState::Attached,
        }
    }
}

impl TryFrom<v1::DatabaseState> for DatabaseState {
    type Error = Error;

    fn try_from(state: v1::DatabaseState) -> Result<Self, Error> {
        match state {
            v1::DatabaseState::Open => Ok(DatabaseState::Open),
            v1::DatabaseState::Sealed => Ok(DatabaseState::Sealed),
            v1::DatabaseState::Attached => Ok(DatabaseState::Attached),
            v1::DatabaseState::Unspecified => {
                Err(invalid("malformed message: no state of a database".to_owned()))
            }
        }
    }
}

impl From<DatabaseRow> for v1::DatabaseRow {
    fn from(row: DatabaseRow) -> Self {
        v1::DatabaseRow {
            id: row.id.0,
            uuid: row.uuid.into_bytes().to_vec(),
            name: row.name,
            path: row.path,
            state: v1::DatabaseState::from(row.state).into(),
            created: row.created.0,
            epoch: row.epoch,
        }
    }
}

impl TryFrom<v1::DatabaseRow> for DatabaseRow {
    type Error = Error;

    fn try_from(row: v1::DatabaseRow) -> Result<Self, Error> {
        Ok(DatabaseRow {
            id: DatabaseId(row.id),
            uuid: uuid(&row.uuid)?,
            state: row.state().try_into()?,
            name: row.name,
            path: row.path,
            created: Csn(row.created),
            epoch: row.epoch,
        })
    }
}

impl From<ContainerRow> for v1::ContainerRow {
    fn from(row: ContainerRow) -> Self {
        v1::ContainerRow {
            database: row.database.0,
            id: row.id.0,
            name: row.name,
            class: row.class,
            class_version: row.class_version,
            options: row.options,
            created: row.created.0,
        }
    }
}

impl From<v1::ContainerRow> for ContainerRow {
    fn from(row: v1::ContainerRow) -> Self {
        ContainerRow {
            database: DatabaseId(row.database),
            id: ContainerId(row.id),
            name: row.name,
            class: row.class,
            class_version: row.class_version,
            options: row.options,
            created: Csn(row.created),
        }
    }
}

impl From<VersionRow> for v1::VersionRow {
    fn from(row: VersionRow) -> Self {
        v1::VersionRow {
            database: row.database.0,
            container: row.container.0,
            csn: row.csn.0,
            header: Some(row.header.into()),
            footer: Some(row.footer.into()),
            annex: Some(row.annex.into()),
            record: Some(row.record.into()),
            class_version: row.class_version,
            entries: row.entries,
            deleted: row.deleted,
            bytes: row.bytes,
        }
    }
}

impl From<v1::VersionRow> for VersionRow {
    fn from(row: v1::VersionRow) -> Self {
        VersionRow {
            database: DatabaseId(row.database),
            container: ContainerId(row.container),
            csn: Csn(row.csn),
            header: row.header.unwrap_or_default().into(),
            footer: row.footer.unwrap_or_default().into(),
            annex: row.annex.unwrap_or_default().into(),
            record: row.record.unwrap_or_default().into(),
            class_version: row.class_version,
            entries: row.entries,
            deleted: row.deleted,
            bytes: row.bytes,
        }
    }
}

impl From<ClassRow> for v1::ClassRow {
    fn from(ClassRow { name, version, definition }: ClassRow) -> Self {
        v1::ClassRow { name, version, definition }
    }
}

impl From<v1::ClassRow> for ClassRow {
    fn from(v1::ClassRow { name, version, definition }: v1::ClassRow) -> Self {
        ClassRow { name, version, definition }
    }
}

impl From<CommitRow> for v1::CommitRow {
    fn from(row: CommitRow) -> Self {
        v1::CommitRow {
            csn: row.csn.0,
            transaction: row.transaction.into_bytes().to_vec(),
            time_us: row.time_us,
            message: row.message,
            user: row.user,
            host: row.host,
            pid: row.pid,
        }
    }
}

impl TryFrom<v1::CommitRow> for CommitRow {
    type Error = Error;

    fn try_from(row: v1::CommitRow) -> Result<Self, Error> {
        Ok(CommitRow {
            csn: Csn(row.csn),
            transaction: uuid(&row.transaction)?,
            time_us: row.time_us,
            message: row.message,
            user: row.user,
            host: row.host,
            pid: row.pid,
        })
    }
}

impl From<TagRow> for v1::TagRow {
    fn from(TagRow { name, csn, created_us, message, user }: TagRow) -> Self {
        v1::TagRow { name, csn: csn.0, created_us, message, user }
    }
}

impl From<v1::TagRow> for TagRow {
    fn from(v1::TagRow { name, csn, created_us, message, user }: v1::TagRow) -> Self {
        TagRow { name, csn: Csn(csn), created_us, message, user }
    }
}

impl From<Retention> for v1::Retention {
    fn from(Retention { keep_commits, keep_days }: Retention) -> Self {
        v1::Retention { keep_commits, keep_days }
    }
}

impl From<v1::Retention> for Retention {
    fn from(v1::Retention { keep_commits, keep_days }: v1::Retention) -> Self {
        Retention { keep_commits, keep_days }
    }
}
