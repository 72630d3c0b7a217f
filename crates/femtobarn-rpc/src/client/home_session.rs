//! The sessions of a client with several servers, by the names of the servers.
//!
//! No two sessions are with one address: they have one id, so they would end each other at its server.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;

use super::address::Address;
use super::session::RemoteSession;

/// A session with a server; empty until it is opened, by one thread.
pub(super) struct HomeSession {
    /// The address at which it is opened.
    first: Address,
    pub opening: Mutex<()>,
    pub opened: OnceLock<Arc<RemoteSession>>,
}

/// The sessions by the names of their servers.
#[derive(Default)]
pub(super) struct SessionsByServer(HashMap<String, Arc<HomeSession>>);

impl HomeSession {
    fn is_at(&self, address: &Address) -> bool {
        let opened = self.opened.get().map(|session| session.places.current());
        opened.map_or(self.first == *address, |place| place.address == *address)
    }
}

impl SessionsByServer {
    /// The session with a server, and one that the caller must close. The session with another server that had this
    /// address, and was renamed or is gone, becomes the one of this server, or must be closed if this server has one.
    pub(super) fn session_of(
        &mut self,
        server: &str,
        address: &Address,
    ) -> (Arc<HomeSession>, Option<Arc<HomeSession>>) {
        let is_there =
            |(name, it): &(&String, &Arc<HomeSession>)| *name != server && it.is_at(address);
        let former = self.0.iter().find(is_there).map(|(name, _)| name.clone());
        let mut former = former.and_then(|name| self.0.remove(&name));
        let new = || {
            let (opening, opened) = (Mutex::default(), OnceLock::new());
            former.take().unwrap_or_else(|| {
                Arc::new(HomeSession { first: address.clone(), opening, opened })
            })
        };
        let session = Arc::clone(self.0.entry(server.to_owned()).or_insert_with(new));
        (session, former)
    }

    /// The open sessions, with the names of their servers. A session that is being opened holds no lock yet, so it is
    /// left out.
    pub(super) fn opened(&self) -> Vec<(String, Arc<RemoteSession>)> {
        let opened = |(server, it): (&String, &Arc<HomeSession>)| {
            Some((server.clone(), Arc::clone(it.opened.get()?)))
        };
        self.0.iter().filter_map(opened).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two sessions with one id once ended each other for ever.
    #[test]
    fn a_server_at_the_address_of_another_gets_its_session() {
        let [one, two, three] = ["one", "two", "three"]
            .map(|host| Address::parse(&format!("root://{host}//lhc.fed")).unwrap());
        let mut sessions = SessionsByServer::default();
        let (first, _) = sessions.session_of("one", &one);
        let (second, former) = sessions.session_of("two", &two);
        assert!(former.is_none() && !Arc::ptr_eq(&first, &second));
        let (renamed, former) = sessions.session_of("new", &one);
        assert!(former.is_none() && Arc::ptr_eq(&first, &renamed));
        let (elsewhere, former) = sessions.session_of("one", &three);
        assert!(former.is_none() && !Arc::ptr_eq(&first, &elsewhere));
        let (kept, former) = sessions.session_of("two", &one);
        assert!(Arc::ptr_eq(&second, &kept) && former.is_some_and(|it| Arc::ptr_eq(&first, &it)));
    }
}
