//! Transactions: containers are created, objects appended and deleted, and all changes become visible by one commit.

use std::collections::HashMap;
use std::ffi::{c_char, c_int};

use femtobarn::{
    Class, ContainerKey, ContainerOptions, Error, ErrorKind, Result, Transaction,
    TransactionOptions,
};
use parking_lot::Mutex;
use rntuple::Array;

use crate::argument::{given, list, text};
use crate::arrow::abi::{ArrowArray, ArrowSchema};
use crate::arrow::import::imported;
use crate::federation::CFederation;
use crate::form::form_of;
use crate::owned::Owned;
use crate::status::{invalid, run};

/// An open transaction: `fb_transaction`.
pub type CTransaction = Owned<Mutex<PendingTransaction>>;

/// A transaction until it ends, and the containers that it writes to by their paths.
pub struct PendingTransaction {
    transaction: Option<Transaction>,
    /// Each with no objects, of the form that it takes.
    containers: HashMap<String, (ContainerKey, Array)>,
}

impl PendingTransaction {
    fn open(&mut self) -> Result<&mut Transaction> {
        self.transaction.as_mut().ok_or_else(ended)
    }

    /// The container with a path, locked for writing, and the form of its objects.
    fn container(&mut self, path: &str) -> Result<(&mut Transaction, ContainerKey, &Array)> {
        let transaction = self.transaction.as_mut().ok_or_else(ended)?;
        if !self.containers.contains_key(path) {
            let (database, name) = parts_of(path)?;
            let database = transaction.database(database)?;
            let key = transaction.container(database, name)?;
            let form = form_of(transaction.class(key)?);
            self.containers.insert(path.to_owned(), (key, form));
        }
        let (key, form) = &self.containers[path];
        Ok((transaction, *key, form))
    }
}

fn parts_of(path: &str) -> Result<(&str, &str)> {
    let parts = path.split_once('/');
    parts.ok_or_else(|| invalid(format!("invalid path {path:?}: must be like run7/events")))
}

fn ended() -> Error {
    Error::Closed { what: "the transaction has ended; begin a new one".to_owned() }
}

/// Begins a transaction. The message is shown in the history.
///
/// # Safety
/// As the header says: pointers are NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fb_transaction_begin(
    federation: *const CFederation,
    message: *const c_char,
    transaction: *mut *mut CTransaction,
) -> c_int {
    let begin = || {
        // SAFETY: the caller's.
        let (federation, message) = unsafe { (Owned::get(federation)?, text("message", message)?) };
        let options =
            TransactionOptions { message: message.to_owned(), ..TransactionOptions::default() };
        let transaction = Some(federation.transaction(options)?);
        Ok(Mutex::new(PendingTransaction { transaction, containers: HashMap::new() }))
    };
    // SAFETY: the caller's.
    run(|| unsafe { Owned::give(transaction, begin) })
}

/// Creates a container, and its database if there is none of the name.
///
/// # Safety
/// As the header says: pointers are NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fb_transaction_create(
    transaction: *const CTransaction,
    path: *const c_char,
    definition: *const c_char,
) -> c_int {
    run(|| {
        // SAFETY: the caller's.
        let mut pending = unsafe { Owned::get(transaction) }?.lock();
        // SAFETY: the caller's.
        let (path, definition) = unsafe { (text("path", path)?, text("definition", definition)?) };
        let class = Class::from_json(definition)?;
        let transaction = pending.open()?;
        let (database_name, name) = parts_of(path)?;
        let (database, is_new) = match transaction.database(database_name) {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                (transaction.create_database(database_name)?, true)
            }
            found => (found?, false),
        };
        let options = ContainerOptions::default();
        let key = match transaction.create_container(database, name, &class, options) {
            Err(error) if is_new => {
                // The caller asked for a container; a commit must not publish an empty database instead.
                transaction.drop_database(database_name)?;
                return Err(error);
            }
            created => created?,
        };
        let form = form_of(transaction.class(key)?);
        pending.containers.insert(path.to_owned(), (key, form));
        Ok(())
    })
}

/// Appends objects to a container. The first gets the entry `first_entry`, which may be NULL. The structures stay the
/// caller's.
///
/// # Safety
/// As the header says: pointers are NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fb_transaction_append(
    transaction: *const CTransaction,
    path: *const c_char,
    schema: *const ArrowSchema,
    array: *const ArrowArray,
    first_entry: *mut u64,
) -> c_int {
    run(|| {
        // SAFETY: the caller's.
        let mut pending = unsafe { Owned::get(transaction) }?.lock();
        // SAFETY: the caller's.
        let (schema, array) = unsafe { (given("schema", schema)?, given("array", array)?) };
        // SAFETY: the caller's.
        let (transaction, key, form) = pending.container(unsafe { text("path", path) }?)?;
        // SAFETY: the caller's.
        let objects = unsafe { imported(schema, array, form) }?;
        let oid = transaction.extend(key, objects)?;
        // SAFETY: the caller's.
        if let Some(first_entry) = unsafe { first_entry.as_mut() } {
            *first_entry = oid.entry;
        }
        Ok(())
    })
}

/// Deletes the objects at entries of a container.
///
/// # Safety
/// As the header says: pointers are NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fb_transaction_delete(
    transaction: *const CTransaction,
    path: *const c_char,
    entries: *const u64,
    count: usize,
) -> c_int {
    run(|| {
        // SAFETY: the caller's.
        let mut pending = unsafe { Owned::get(transaction) }?.lock();
        // SAFETY: the caller's.
        let entries = unsafe { list("entries", entries, count) }?;
        // SAFETY: the caller's.
        let (transaction, key, _) = pending.container(unsafe { text("path", path) }?)?;
        transaction.delete(key, entries)?;
        Ok(())
    })
}

/// Commits. The transaction has ended then, also if that fails. The number of the commit may be NULL.
///
/// # Safety
/// As the header says: pointers are NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fb_transaction_commit(
    transaction: *const CTransaction,
    csn: *mut u64,
) -> c_int {
    run(|| {
        // SAFETY: the caller's.
        let mut pending = unsafe { Owned::get(transaction) }?.lock();
        let committed = pending.transaction.take().ok_or_else(ended)?.commit()?;
        // SAFETY: the caller's.
        if let Some(csn) = unsafe { csn.as_mut() } {
            *csn = committed.0;
        }
        Ok(())
    })
}

/// Releases a transaction. If it was not committed, it leaves nothing.
///
/// # Safety
/// As the header says: the pointer is NULL, or a handle that is not used any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fb_transaction_free(transaction: *mut CTransaction) {
    // SAFETY: the caller's.
    unsafe { Owned::free(transaction) }
}
