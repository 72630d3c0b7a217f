//! Exchange of complete ROOT files with other programs and federations.
//!
//! | module | contents |
//! |---|---|
//! | `seal` | makes a database a complete ROOT file, which never changes again |
//! | `attach` | takes a ROOT file into the federation as a database |
//! | `detach` | takes a database out of the federation, with its file |
//! | `export` | copies objects into a plain ROOT file |
//! | `stores` | copies databases to stores, brings them back, and removes them from the disk |
//!
//! May import `transaction` and everything below it.

pub(crate) mod attach;
pub(crate) mod detach;
pub(crate) mod export;
pub(crate) mod seal;
pub(crate) mod stores;
