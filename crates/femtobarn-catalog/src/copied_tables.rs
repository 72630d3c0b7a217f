//! The tables that a follower copies from its leader, and the SQL by which their new rows are found.

use crate::error::{Error, Result};
use crate::schema::ARCHIVE_SETTING;

/// A table that followers copy.
pub(crate) struct CopiedTable {
    pub(crate) name: &'static str,
    /// The SQL expression of each column, as of commit `?2`: later changes are not visible.
    pub(crate) columns: &'static [&'static str],
    /// The columns of its primary key.
    pub(crate) key: &'static [&'static str],
    /// The text after `FROM` that selects the rows of the commits after `?1` up to `?2`.
    pub(crate) new: &'static str,
    /// The text for a catalogue with [`INDEXES_BY_COMMIT`], if it differs from `new`.
    pub(crate) new_by_commit: Option<&'static str>,
}

/// The tables whose rows are dated by commits, each after those that its rows refer to.
pub(crate) const TABLES: &[CopiedTable] = &[
    CopiedTable {
        name: "commits",
        columns: &["csn", "transaction_uuid", "time_us", "message", "user_name", "host", "pid"],
        key: &["csn"],
        new: "commits t WHERE csn > ?1 AND csn <= ?2",
        new_by_commit: None,
    },
    CopiedTable {
        name: "databases",
        columns: &[
            "id",
            "uuid",
            "path",
            "state",
            "created",
            "CASE WHEN sealed <= ?2 THEN sealed END",
            "CASE WHEN dropped <= ?2 THEN dropped END",
            "keeps_file",
            "epoch",
        ],
        key: &["id"],
        new: "databases t WHERE created > ?1 AND created <= ?2 OR sealed > ?1 AND sealed <= ?2 \
              OR dropped > ?1 AND dropped <= ?2",
        new_by_commit: None,
    },
    CopiedTable {
        name: "database_names",
        columns: &["database", "name", "since", "CASE WHEN until <= ?2 THEN until END"],
        key: &["database", "since"],
        new: "database_names t WHERE since > ?1 AND since <= ?2 OR until > ?1 AND until <= ?2",
        new_by_commit: None,
    },
    CopiedTable {
        name: "containers",
        columns: &[
            "database",
            "id",
            "class",
            "class_version",
            "options",
            "created",
            "CASE WHEN dropped <= ?2 THEN dropped END",
        ],
        key: &["database", "id"],
        new: "containers t WHERE created > ?1 AND created <= ?2 OR dropped > ?1 AND dropped <= ?2",
        new_by_commit: None,
    },
    CopiedTable {
        name: "container_names",
        columns: &[
            "database",
            "container",
            "name",
            "since",
            "CASE WHEN until <= ?2 THEN until END",
        ],
        key: &["database", "container", "since"],
        new: "container_names t WHERE since > ?1 AND since <= ?2 OR until > ?1 AND until <= ?2",
        new_by_commit: None,
    },
    CopiedTable {
        name: "versions",
        columns: &[
            "t.database",
            "t.container",
            "t.csn",
            "header_offset",
            "header_size",
            "header_length",
            "footer_offset",
            "footer_size",
            "footer_length",
            "annex_offset",
            "annex_size",
            "record_offset",
            "record_size",
            "t.class_version",
            "entries",
            "deleted",
            "bytes",
        ],
        // Through their containers.
        key: &["database", "container", "csn"],
        new: "containers c CROSS JOIN versions t WHERE t.database = c.database \
              AND t.container = c.id AND t.csn > ?1 AND t.csn <= ?2",
        new_by_commit: Some("versions t WHERE t.csn > ?1 AND t.csn <= ?2"),
    },
    CopiedTable {
        name: "classes",
        columns: &["name", "version", "definition", "created"],
        key: &["name", "version"],
        new: "classes t WHERE created > ?1 AND created <= ?2",
        new_by_commit: None,
    },
    CopiedTable {
        name: "link_targets",
        columns: &["database", "container", "position", "target", "csn"],
        key: &["database", "container", "position"],
        new: "link_targets t WHERE csn > ?1 AND csn <= ?2",
        new_by_commit: None,
    },
];

/// Indexes that a catalogue gets when it is followed for the first time, so that the cost of a follower's question
/// depends on the number of new rows and not on that of all containers. `versions_by_csn` is made last.
pub(crate) const INDEXES_BY_COMMIT: [&str; 6] = [
    "CREATE INDEX IF NOT EXISTS containers_by_created ON containers (created)",
    "CREATE INDEX IF NOT EXISTS containers_by_dropped ON containers (dropped) WHERE dropped IS NOT NULL",
    "CREATE INDEX IF NOT EXISTS container_names_by_since ON container_names (since)",
    "CREATE INDEX IF NOT EXISTS container_names_by_until ON container_names (until) WHERE until IS NOT NULL",
    "CREATE INDEX IF NOT EXISTS link_targets_by_csn ON link_targets (csn)",
    "CREATE INDEX IF NOT EXISTS versions_by_csn ON versions (csn)",
];

/// The tables whose rows are not dated. All rows of commits up to `?2` are sent.
pub(crate) const UNDATED: &[CopiedTable] = &[
    CopiedTable {
        name: "federation",
        columns: &["key", "value"],
        key: &["key"],
        new: "federation t WHERE key IN \
              ('horizon', 'keep_commits', 'keep_days', 'generation', 'archive') OR key = 'successor' \
              AND NOT EXISTS (SELECT 1 FROM federation WHERE key = 'move')",
        new_by_commit: None,
    },
    CopiedTable {
        name: "tags",
        columns: &["name", "csn", "created_us", "message", "user_name"],
        key: &["name"],
        new: "tags t WHERE csn <= ?2",
        new_by_commit: None,
    },
    CopiedTable {
        name: "kept_snapshots",
        columns: &["csn"],
        key: &["csn"],
        new: "kept_snapshots t WHERE csn <= ?2",
        new_by_commit: None,
    },
];

/// The tables of copies in stores, if there are any. A follower needs these rows too: which copies it has to remove
/// when it leads, and which files are not on the leader's disk.
pub(crate) const IN_STORES: &[CopiedTable] = &[
    CopiedTable {
        name: "replicas",
        columns: &[
            "database",
            "store",
            "key",
            "state",
            "size",
            "checksum",
            "as_of",
            "tape",
            "position",
            "changed_us",
        ],
        key: &["database", "store"],
        new: "replicas t WHERE \
              EXISTS (SELECT 1 FROM databases d WHERE d.id = t.database AND d.created <= ?2)",
        new_by_commit: None,
    },
    CopiedTable {
        name: "discarded_objects",
        columns: &["store", "key"],
        key: &["store", "key"],
        new: "discarded_objects t WHERE store <> ''",
        new_by_commit: None,
    },
    CopiedTable {
        name: "disk_states",
        columns: &["database"],
        key: &["database"],
        new: "disk_states t WHERE state <> ''",
        new_by_commit: None,
    },
];

/// The sequences of numbers. No number may be assigned again after a follower has become the leader.
pub(crate) const SEQUENCES: CopiedTable = CopiedTable {
    name: "sequences",
    columns: &["name", "last"],
    key: &["name"],
    new: "sequences t",
    new_by_commit: None,
};

/// The tables that have a database's contents, but not itself.
pub(crate) const OF_A_DATABASE: [&str; 4] =
    ["containers", "container_names", "versions", "link_targets"];

/// The settings in the table `federation` that a follower takes from its leader.
pub(crate) const COPIED_SETTINGS: [&str; 5] =
    ["horizon", "keep_commits", "keep_days", "generation", ARCHIVE_SETTING];

impl CopiedTable {
    /// The copied table `name`.
    ///
    /// # Errors
    /// [`Error::Invalid`] if no copied table has this name.
    pub(crate) fn of(name: &str) -> Result<&'static CopiedTable> {
        let mut all = TABLES.iter().chain(UNDATED).chain(IN_STORES).chain([&SEQUENCES]);
        let unknown = || Error::invalid(format!("followers do not copy table {name:?}"));
        all.find(|table| table.name == name).ok_or_else(unknown)
    }

    /// The names of the columns.
    pub(crate) fn names(&self) -> impl Iterator<Item = &'static str> {
        self.columns.iter().map(|column| {
            let column = column
                .strip_suffix(" END")
                .map_or(*column, |case| case.rsplit(' ').next().unwrap_or(case));
            column.strip_prefix("t.").unwrap_or(column)
        })
    }

    /// Divides `cells` into rows.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the last row is incomplete.
    pub(crate) fn rows<'a, Cell>(
        &self,
        cells: &'a [Cell],
    ) -> Result<std::slice::ChunksExact<'a, Cell>> {
        let rows = cells.chunks_exact(self.columns.len());
        if rows.remainder().is_empty() {
            return Ok(rows);
        }
        Err(Error::invalid(format!("an incomplete row of table {:?}", self.name)))
    }
}
