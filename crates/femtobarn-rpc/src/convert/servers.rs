//! Servers and the homes of databases as messages, and back.

use femtobarn_catalog::{DatabaseId, Fence, Home, ServerRow, ServerStanding};

use crate::v1;

impl From<ServerRow> for v1::Server {
    fn from(row: ServerRow) -> Self {
        let ServerRow { name, url, storage, state, epoch, is_alive, .. } = row;
        let state = match state {
            ServerStanding::Active => v1::ServerState::Active,
            ServerStanding::Draining => v1::ServerState::Draining,
            ServerStanding::Left => v1::ServerState::Left,
        };
        v1::Server {
            name,
            url,
            storage,
            state: state.into(),
            epoch,
            alive: is_alive,
            free_bytes: row.free_bytes,
            load: row.load,
            databases: row.databases,
        }
    }
}

/// A state that this release does not know counts as one in which the server gets no databases.
impl From<v1::Server> for ServerRow {
    fn from(server: v1::Server) -> Self {
        let state = match server.state() {
            v1::ServerState::Active => ServerStanding::Active,
            v1::ServerState::Left => ServerStanding::Left,
            v1::ServerState::Draining | v1::ServerState::Unspecified => ServerStanding::Draining,
        };
        let v1::Server { name, url, storage, epoch, alive, free_bytes, load, databases, .. } =
            server;
        let is_alive = alive;
        ServerRow { name, url, storage, state, epoch, is_alive, free_bytes, load, databases }
    }
}

impl From<Home> for v1::Home {
    fn from(home: Home) -> Self {
        let Home { server, url, is_alive: alive, epoch, server_epoch, away_ms, has_stand_in } =
            home;
        v1::Home { server, url, alive, epoch, server_epoch, away_ms, has_stand_in }
    }
}

impl From<v1::Home> for Home {
    fn from(home: v1::Home) -> Self {
        let v1::Home { server, url, alive: is_alive, epoch, server_epoch, away_ms, has_stand_in } =
            home;
        Home { server, url, is_alive, epoch, server_epoch, away_ms, has_stand_in }
    }
}

impl From<Fence> for v1::Fence {
    fn from(Fence { database, server, server_epoch, home_epoch }: Fence) -> Self {
        v1::Fence { database: database.0, server, server_epoch, home_epoch }
    }
}

impl From<v1::Fence> for Fence {
    fn from(v1::Fence { database, server, server_epoch, home_epoch }: v1::Fence) -> Self {
        Fence { database: DatabaseId(database), server, server_epoch, home_epoch }
    }
}
