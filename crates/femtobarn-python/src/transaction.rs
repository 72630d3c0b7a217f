//! Transactions as Python writes them.
//!
//! Objects that are appended one by one are gathered in [`Rows`] of their container and go to the
//! engine when enough have come, before an array, and before the commit. Their OIDs are known at
//! once, since nobody else appends to a container whose lock this transaction holds.
//!
//! Lock order: the interpreter before a transaction's mutex, which is waited for detached.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

use femtobarn::{Class, ContainerKey, ContainerOptions, Profile, Transaction};
use pyo3::prelude::*;
use pyo3::sync::MutexExt;

use crate::columns::array_of;
use crate::error::{OrRaise, exception};
use crate::oid::Oid;
use crate::rows::Rows;
use crate::session::{Kept, Session};

/// After how many objects it is looked whether enough have come.
const CHECK_ROWS: usize = 16;
/// Objects gathered before they go to the engine.
const ROWS_MAX: usize = 4096;
/// Bytes gathered before they go to the engine.
const BYTES_MAX: usize = 4 << 20;

/// A transaction with the objects on their way to it.
struct Open {
    transaction: Kept<Transaction>,
    gathered: BTreeMap<ContainerKey, Gathered>,
}

struct Gathered {
    rows: Rows,
    /// Number of the first of them in the container.
    first_entry: u64,
}

impl Gathered {
    fn is_full(&self) -> bool {
        self.rows.len() >= ROWS_MAX || self.rows.size() >= BYTES_MAX
    }
}

impl Open {
    /// Hands what was gathered for a container to the engine.
    fn flush(&mut self, py: Python<'_>, key: ContainerKey) -> PyResult<()> {
        let Some(gathered) = self.gathered.get_mut(&key) else { return Ok(()) };
        if gathered.rows.len() == 0 {
            return Ok(());
        }
        let array = gathered.rows.take();
        gathered.first_entry += array.len() as u64;
        let transaction = self.transaction.get_mut()?;
        py.detach(|| transaction.extend(key, array)).or_raise()?;
        Ok(())
    }

    fn entries(&self, key: ContainerKey) -> PyResult<u64> {
        match self.gathered.get(&key) {
            Some(gathered) => Ok(gathered.first_entry + gathered.rows.len() as u64),
            None => self.transaction.get()?.entries(key).or_raise(),
        }
    }
}

/// A transaction under way.
#[pyclass(frozen, module = "femtobarn._femtobarn")]
pub struct TransactionHandle {
    open: Arc<Mutex<Open>>,
}

impl TransactionHandle {
    /// A handle on a transaction.
    pub fn new(transaction: Transaction, session: &Session) -> Self {
        let transaction = Kept::new(transaction, session);
        Self { open: Arc::new(Mutex::new(Open { transaction, gathered: BTreeMap::new() })) }
    }
}

#[pymethods]
impl TransactionHandle {
    /// Whether it has neither been committed nor rolled back.
    #[getter]
    fn active(&self, py: Python<'_>) -> PyResult<bool> {
        Ok(lock(py, &self.open)?.transaction.is_open())
    }

    /// Finds a database, or makes it if asked to; returns its number.
    fn database(&self, py: Python<'_>, name: &str, create: bool) -> PyResult<u32> {
        let mut open = lock(py, &self.open)?;
        let transaction = open.transaction.get_mut()?;
        let found = py.detach(|| match transaction.database(name) {
            Err(error) if create && error.kind() == femtobarn::ErrorKind::NotFound => {
                transaction.create_database(name)
            }
            found => found,
        });
        Ok(found.or_raise()?.0)
    }

    /// Declares a class, given as JSON.
    fn declare_class(&self, py: Python<'_>, definition: &str) -> PyResult<()> {
        let class = Class::from_json(definition).or_raise()?;
        let mut open = lock(py, &self.open)?;
        let transaction = open.transaction.get_mut()?;
        py.detach(|| transaction.declare_class(&class)).or_raise()
    }

    /// Finds a container, or makes it if asked to, and locks it.
    #[expect(clippy::too_many_arguments, reason = "the facade passes them by position")]
    fn container(
        &self,
        py: Python<'_>,
        database: &str,
        name: &str,
        class_: Option<&str>,
        create: bool,
        page_size: Option<usize>,
        cluster_size: Option<u64>,
        compression: Option<&str>,
    ) -> PyResult<WriterHandle> {
        let class = class_.map(Class::from_json).transpose().or_raise()?;
        let options = container_options(page_size, cluster_size, compression)?;
        let mut open = lock(py, &self.open)?;
        let transaction = open.transaction.get_mut()?;
        let (key, class) =
            py.detach(|| find_container(transaction, database, name, class, create, options))?;
        let entries = transaction.entries(key).or_raise()?;
        let rows = Rows::new(py, &class);
        open.gathered.entry(key).or_insert(Gathered { rows, first_entry: entries });
        Ok(WriterHandle { open: self.open.clone(), key, definition: class.to_json() })
    }

    /// Makes everything durable and visible; returns the number of the commit.
    fn commit(&self, py: Python<'_>) -> PyResult<u64> {
        let mut open = lock(py, &self.open)?;
        let keys: Vec<ContainerKey> = open.gathered.keys().copied().collect();
        for key in keys {
            open.flush(py, key)?;
        }
        let transaction = open.transaction.take()?;
        open.gathered.clear();
        Ok(py.detach(|| transaction.commit()).or_raise()?.0)
    }

    /// Forgets everything.
    fn rollback(&self, py: Python<'_>) -> PyResult<()> {
        let mut open = lock(py, &self.open)?;
        open.gathered.clear();
        if open.transaction.is_open() {
            let transaction = open.transaction.take()?;
            py.detach(|| transaction.rollback());
        }
        Ok(())
    }
}

fn find_container(
    transaction: &mut Transaction,
    database: &str,
    name: &str,
    class: Option<Class>,
    create: bool,
    options: ContainerOptions,
) -> PyResult<(ContainerKey, Class)> {
    let database = transaction.database(database).or_raise()?;
    let key = match (transaction.container(database, name), &class) {
        (Err(error), Some(class)) if create && error.kind() == femtobarn::ErrorKind::NotFound => {
            transaction.create_container(database, name, class, options).or_raise()?
        }
        (Err(error), None) if create && error.kind() == femtobarn::ErrorKind::NotFound => {
            let text = format!("container {name:?} is new; say which class its objects are of");
            return Err(exception("invalid", text));
        }
        (found, _) => found.or_raise()?,
    };
    let stored = transaction.class(key).or_raise()?.clone();
    match class {
        Some(class) if class.name != stored.name || class.fields != stored.fields => {
            Err(exception("invalid", mismatch(name, &class, &stored)))
        }
        _ => Ok((key, stored)),
    }
}

fn mismatch(container: &str, given: &Class, stored: &Class) -> String {
    if given.name != stored.name {
        let (stored, given) = (&stored.name, &given.name);
        return format!("container {container:?} holds objects of class {stored}, not {given}");
    }
    let unlike = given.fields.iter().find(|field| !stored.fields.contains(field));
    let unlike =
        unlike.or_else(|| stored.fields.iter().find(|field| !given.fields.contains(field)));
    let field =
        unlike.map_or_else(|| "the order of fields".to_owned(), |f| format!("field {:?}", f.name));
    format!(
        "container {container:?} holds class {} as of version {}, from which this one differs in \
         {field}; give it a container of its own",
        stored.name, stored.version
    )
}

fn container_options(
    page_size: Option<usize>,
    cluster_size: Option<u64>,
    compression: Option<&str>,
) -> PyResult<ContainerOptions> {
    let default = ContainerOptions::default();
    Ok(ContainerOptions {
        page_size: page_size.unwrap_or(default.page_size),
        cluster_size: cluster_size.unwrap_or(default.cluster_size),
        compression: match compression {
            None => default.compression,
            Some("none") => Profile::Plain,
            Some("lz4" | "fast") => Profile::Fast,
            Some("zstd" | "archive") => Profile::Archive,
            Some(other) => {
                let text =
                    format!("compression {other:?} does not exist; there are none, lz4, zstd");
                return Err(exception("invalid", text));
            }
        },
    })
}

/// A container that is written to.
#[pyclass(frozen, module = "femtobarn._femtobarn")]
pub struct WriterHandle {
    open: Arc<Mutex<Open>>,
    key: ContainerKey,
    definition: String,
}

#[pymethods]
impl WriterHandle {
    /// The class of the objects, as JSON.
    #[getter]
    fn definition(&self) -> &str {
        &self.definition
    }

    #[getter]
    fn database(&self) -> u32 {
        self.key.database.0
    }

    #[getter]
    fn container(&self) -> u32 {
        self.key.container.0
    }

    /// Number of objects, those not yet committed included.
    #[getter]
    fn entries(&self, py: Python<'_>) -> PyResult<u64> {
        lock(py, &self.open)?.entries(self.key)
    }

    /// Append one object, of a persistent class or a dictionary, and return its OID.
    fn append(&self, py: Python<'_>, object: &Bound<'_, PyAny>) -> PyResult<Oid> {
        let mut open = lock(py, &self.open)?;
        open.transaction.get()?;
        let gathered = open.gathered.get_mut(&self.key).ok_or_else(over)?;
        gathered.rows.push(object)?;
        let entry = gathered.first_entry + gathered.rows.len() as u64 - 1;
        if gathered.rows.len().is_multiple_of(CHECK_ROWS) && gathered.is_full() {
            open.flush(py, self.key)?;
        }
        Ok(Oid { database: self.key.database.0, container: self.key.container.0, entry })
    }

    /// Appends the objects of a tree of columns.
    fn extend(&self, py: Python<'_>, tree: &Bound<'_, PyAny>) -> PyResult<()> {
        let array = array_of(tree)?;
        let added = array.len() as u64;
        let mut open = lock(py, &self.open)?;
        open.flush(py, self.key)?;
        let transaction = open.transaction.get_mut()?;
        py.detach(|| transaction.extend(self.key, array)).or_raise()?;
        if let Some(gathered) = open.gathered.get_mut(&self.key) {
            gathered.first_entry += added;
        }
        Ok(())
    }
}

/// Locks a transaction, letting other Python threads run while it waits.
fn lock<'a>(py: Python<'_>, open: &'a Mutex<Open>) -> PyResult<MutexGuard<'a, Open>> {
    open.lock_py_attached(py).map_err(|_| over())
}

fn over() -> PyErr {
    exception("closed", "the transaction is over; begin another".to_owned())
}
