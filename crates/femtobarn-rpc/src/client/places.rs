//! The address of a session's server: the only one, or, if several servers may have the session, the next one in the
//! list after a failure.

use std::sync::Arc;

use femtobarn_catalog::Result;
use parking_lot::{Mutex, RwLock};
use tonic::transport::Channel;

use super::address::Address;
use super::endpoint::endpoint;
use super::options::ConnectOptions;
use crate::MESSAGE_BYTES_MAX;
use crate::v1::catalogue_client::CatalogueClient;

/// The servers that may have a session.
pub(super) struct SessionPlaces {
    current: RwLock<Arc<ServerPlace>>,
    /// All servers, in the order in which they are tried; empty if there is only one.
    known: Mutex<Vec<Address>>,
}

/// A server, and the channel for calls by gRPC.
pub(super) struct ServerPlace {
    pub address: Address,
    pub client: CatalogueClient<Channel>,
}

impl ServerPlace {
    /// Connects when it is first used. Must be called inside a runtime.
    fn new(address: Address, options: &ConnectOptions) -> Result<Self> {
        let channel = endpoint(&address, options)?.connect_lazy();
        let client = CatalogueClient::new(channel)
            .max_decoding_message_size(MESSAGE_BYTES_MAX)
            .max_encoding_message_size(MESSAGE_BYTES_MAX);
        Ok(ServerPlace { address, client })
    }
}

impl SessionPlaces {
    /// One server alone. Must be called inside a runtime.
    pub(super) fn new(address: &Address, options: &ConnectOptions) -> Result<Self> {
        let first = ServerPlace::new(address.clone(), options)?;
        Ok(SessionPlaces { current: RwLock::new(Arc::new(first)), known: Mutex::default() })
    }

    /// The server that has the session, or that is tried next.
    pub(super) fn current(&self) -> Arc<ServerPlace> {
        self.current.read().clone()
    }

    /// Replaces the list of the servers that may have the session.
    pub(super) fn learn(&self, servers: Vec<Address>) {
        *self.known.lock() = servers;
    }

    /// Moves on to the next server in the list, if there is another. Must be called inside a runtime.
    pub(super) fn advance(&self, options: &ConnectOptions) {
        let known = self.known.lock();
        let current = self.current();
        let place = known.iter().position(|address| *address == current.address);
        let behind = place.map_or(0, |place| (place + 1) % known.len());
        let Some(next) = known.get(behind).filter(|next| **next != current.address) else { return };
        // The addresses in the list come from servers, and other clients have reached them; a malformed one is skipped.
        if let Ok(next) = ServerPlace::new(next.clone(), options) {
            *self.current.write() = Arc::new(next);
        }
    }
}
