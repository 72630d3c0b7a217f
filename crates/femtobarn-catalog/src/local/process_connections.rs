//! The connections of the current process to a catalogue, which a forked child opens anew.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;

use super::catalogue_place::CataloguePlace;
use super::connections::Connections;
use crate::error::Result;
use crate::host;
use crate::schema::FederationIdentity;

/// The connections of the current process, opened anew after a fork.
pub(super) struct ProcessConnections {
    folder: PathBuf,
    is_postgres: bool,
    read_only: bool,
    current: Mutex<Arc<Connections>>,
}

impl ProcessConnections {
    pub(super) fn open(folder: &Path) -> Result<(Self, FederationIdentity)> {
        let place = CataloguePlace::find(folder)?;
        let is_postgres = place.postgres.is_some();
        let connections = Connections::new(place)?;
        let (reader, identity) = connections.open_reader()?;
        let read_only = reader.is_read_only();
        connections.keep(reader);
        let current = Mutex::new(Arc::new(connections));
        let folder = folder.to_owned();
        Ok((ProcessConnections { folder, is_postgres, read_only, current }, identity))
    }

    pub(super) fn is_read_only(&self) -> bool {
        self.read_only
    }

    /// Whether the catalogue is in PostgreSQL.
    pub(super) fn is_postgres(&self) -> bool {
        self.is_postgres
    }

    pub(super) fn current(&self) -> Result<Arc<Connections>> {
        let mut current = self.current.lock();
        if current.pid() != host::process_id() {
            let own = Connections::new(CataloguePlace::find(&self.folder)?)?;
            let inherited = std::mem::replace(&mut *current, Arc::new(own));
            inherited.leave_to_parent();
        }
        Ok(Arc::clone(&current))
    }

    pub(super) fn disconnect(&self) {
        let current = self.current.lock();
        if current.pid() == host::process_id() {
            current.disconnect();
        }
    }
}
