//! The server that gets a new database.

use femtobarn_catalog::{ServerRow, ServerStanding};

/// The server for a new database: the active and alive one with the most free bytes in relation to its load; or this
/// one if it is nearly as good, because the client is connected here.
pub(super) fn place<'a>(servers: &'a [ServerRow], own: &str) -> Option<&'a ServerRow> {
    let takes = |row: &&ServerRow| row.is_alive && row.state == ServerStanding::Active;
    let worth = |row: &ServerRow| row.free_bytes / (row.load + 1);
    let best = servers.iter().filter(takes).max_by_key(|row| worth(row))?;
    let here = servers.iter().filter(takes).find(|row| row.name == own);
    here.filter(|row| worth(row) >= worth(best) / 2).or(Some(best))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(name: &str, free_bytes: u64, load: u64) -> ServerRow {
        ServerRow {
            name: name.to_owned(),
            url: format!("root://{name}:1094"),
            storage: name.to_owned(),
            state: ServerStanding::Active,
            epoch: 1,
            is_alive: true,
            free_bytes,
            load,
            databases: 0,
        }
    }

    #[test]
    fn new_databases_are_placed_by_free_space_and_load() {
        let chosen = |servers: &[ServerRow]| place(servers, "one").map(|row| row.name.clone());
        let mut servers = [row("one", 600, 0), row("two", 1000, 0), row("three", 5000, 9)];
        assert_eq!(chosen(&servers).as_deref(), Some("one"), "it is near, and nearly as good");
        servers[0].free_bytes = 400;
        assert_eq!(chosen(&servers).as_deref(), Some("two"));
        servers[1].state = ServerStanding::Draining;
        assert_eq!(chosen(&servers).as_deref(), Some("one"));
        servers[0].is_alive = false;
        assert_eq!(chosen(&servers).as_deref(), Some("three"));
        servers[2].state = ServerStanding::Left;
        assert_eq!(chosen(&servers), None);
    }
}
