//! Translates statements that are written for SQLite to PostgreSQL's dialect.
//!
//! Words are replaced outside of quotes, so a statement must have neither a column with the name of a table nor a
//! parameter without a number.

use std::fmt::Write;

/// Tables of a catalogue, which PostgreSQL finds only with the name of their schema: no session sets a search path.
const TABLES: [&str; 19] = [
    "classes",
    "commits",
    "container_names",
    "containers",
    "database_names",
    "databases",
    "discarded_objects",
    "disk_states",
    "federation",
    "file_pins",
    "free_extents",
    "homes",
    "kept_snapshots",
    "link_targets",
    "replicas",
    "sequences",
    "servers",
    "tags",
    "versions",
];

/// A statement for PostgreSQL, with the tables of a schema.
pub(super) fn translate(statement: &str, schema: &str) -> String {
    let mut translated = String::with_capacity(statement.len() + 64);
    let mut rest = statement;
    let mut before = ' ';
    while let Some(character) = rest.chars().next() {
        let length = match character {
            '\'' | '"' => rest[1..].find(character).map_or(rest.len(), |end| end + 2),
            _ if is_of_word(character) => rest.find(|it| !is_of_word(it)).unwrap_or(rest.len()),
            _ => character.len_utf8(),
        };
        let (piece, others) = rest.split_at(length);
        let after = others.chars().next().unwrap_or(' ');
        match piece {
            "?" => translated.push('$'),
            "INTEGER" => translated.push_str("BIGINT"),
            table if before != '.' && after != '.' && TABLES.contains(&table) => {
                // Writing to a string cannot fail.
                let _ = write!(translated, "\"{schema}\".{table}");
            }
            other => translated.push_str(other),
        }
        before = character;
        rest = others;
    }
    translated
}

fn is_of_word(character: char) -> bool {
    character.is_ascii_alphanumeric() || character == '_'
}

/// Definitions of tables, for PostgreSQL, without references: a row would lock the row that it refers to, at every
/// commit, so references are left to the checks of a commit. Texts are ordered by their bytes, as in SQLite.
pub(crate) fn table_definitions(tables: &str) -> String {
    let mut definitions = String::with_capacity(tables.len());
    for line in tables.lines().filter(|line| !line.trim_start().starts_with("FOREIGN KEY")) {
        let line = match line.split_once(" REFERENCES ") {
            Some((column, rest)) => {
                let end = rest.split_once(')').map_or("", |(_, end)| end);
                format!("{column}{end}")
            }
            None => line.to_owned(),
        };
        let line = line
            .replace(" TEXT", " TEXT COLLATE \"C\"")
            .replace(" BLOB", " BYTEA")
            .replace(") STRICT, WITHOUT ROWID;", ");")
            .replace(") STRICT;", ");");
        if line.trim() == ");" {
            // A removed reference may have followed the line before, which then ends with a comma.
            let end = definitions.trim_end().trim_end_matches(',').len();
            definitions.truncate(end);
            definitions.push('\n');
        }
        definitions.push_str(&line);
        definitions.push('\n');
    }
    definitions
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statements_have_numbered_parameters_and_tables_of_their_schema() {
        let statement = "SELECT v.csn, 'versions', databases.id, CAST(?1 AS INTEGER) FROM versions v \
            JOIN databases ON databases.id = v.database WHERE v.csn > ?2";
        assert_eq!(
            translate(statement, "fb"),
            "SELECT v.csn, 'versions', databases.id, CAST($1 AS BIGINT) FROM \"fb\".versions v \
             JOIN \"fb\".databases ON databases.id = v.database WHERE v.csn > $2"
        );
        assert_eq!(translate("SELECT 'open", "fb"), "SELECT 'open");
    }

    #[test]
    fn definitions_lose_features_of_sqlite() {
        let tables = "CREATE TABLE tags (\n    name TEXT NOT NULL,\n    csn INTEGER REFERENCES commits (csn),\n\
            \x20   FOREIGN KEY (a) REFERENCES b (c)\n) STRICT, WITHOUT ROWID;";
        let wanted =
            "CREATE TABLE tags (\n    name TEXT COLLATE \"C\" NOT NULL,\n    csn INTEGER\n);\n";
        assert_eq!(table_definitions(tables), wanted);
    }
}
