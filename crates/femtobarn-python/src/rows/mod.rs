//! Objects that Python appends one by one, gathered into columns.
//!
//! An object's values go straight from its attributes into one growing vector per column; whole
//! columns then go to the engine at once. Invariants:
//! 1. After [`RowBuilder::push`] every column holds the same number of rows, also if it failed: what a
//!    failed row had pushed is taken back.
//! 2. A value is stored unchanged or refused, but for real numbers, which are rounded to the
//!    precision of their field as C++ would.

mod alternatives;
mod column;
mod link;
mod number;
mod record;
mod rejected_value;
mod variant;

use femtobarn::Class;
use pyo3::prelude::*;
use rntuple::Array;

use record::RecordBuilder;

/// RowBuilder of one class.
pub(crate) struct RowBuilder {
    class: String,
    root: RecordBuilder,
    rows: usize,
}

impl RowBuilder {
    /// No rows of a class.
    pub(crate) fn new(py: Python<'_>, class: &Class) -> Self {
        let root = RecordBuilder::new(py, &class.name, &class.fields);
        Self { class: class.name.clone(), root, rows: 0 }
    }

    /// Number of rows gathered.
    pub(crate) fn len(&self) -> usize {
        self.rows
    }

    /// Bytes gathered.
    pub(crate) fn size(&self) -> usize {
        self.root.size()
    }

    /// Adds an object: a dictionary, or anything with the fields as attributes.
    ///
    /// # Errors
    /// `InvalidError` that names the field; nothing is added.
    pub(crate) fn push(&mut self, object: &Bound<'_, PyAny>) -> PyResult<()> {
        match self.root.push(object) {
            Ok(()) => {
                self.rows += 1;
                Ok(())
            }
            Err(rejection) => {
                self.root.truncate(self.rows);
                Err(rejection.raise(&self.class))
            }
        }
    }

    /// Hands the rows over as an array of records, and begins anew.
    pub(crate) fn take(&mut self) -> Array {
        let rows = std::mem::take(&mut self.rows);
        self.root.take(rows)
    }
}
