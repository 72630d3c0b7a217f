//! Objects that Python appends one by one, gathered into columns.
//!
//! | module | contents |
//! |---|---|
//! | `column` | the builder for a field of any type |
//! | `record`, `variant`, `number`, `link` | builders for fields of these types |
//! | `alternatives` | the alternative of a variant that stores a value |
//! | `rejected_value` | why a value cannot be stored, and in which field |
//!
//! An object's values go from its attributes into one growing vector per column; whole columns then go to the
//! engine.
//!
//! 1. After [`RowBuilder::push`] all columns hold the same number of rows; a failed push is undone.
//! 2. A value is stored unchanged or rejected, except that real numbers are rounded to the precision of their
//!    field, as C++ would.

mod alternatives;
mod column;
mod link;
mod number;
mod record;
mod rejected_value;
mod variant;

use femtobarn::{Class, Field, FieldType};
use pyo3::prelude::*;
use rntuple::Array;

use record::RecordBuilder;

use crate::text::Text;

/// Rows of one class.
pub(crate) struct RowBuilder {
    class: String,
    root: RecordBuilder,
    rows: usize,
}

impl RowBuilder {
    /// Starts without rows.
    pub(crate) fn new(py: Python<'_>, class: &Class) -> Self {
        let root = RecordBuilder::new(py, &class.name, &class.fields);
        Self { class: class.name.clone(), root, rows: 0 }
    }

    /// Starts for rows that are dictionaries of some fields, by their dotted paths; `None` if a field does not exist or
    /// is within a list.
    pub(crate) fn of_fields(py: Python<'_>, class: &Class, paths: &[Text]) -> Option<Self> {
        let field = |path: &Text| {
            let field = field_at(&class.fields, path)?;
            Some(Field { name: path.to_string(), ..field.clone() })
        };
        let fields: Option<Vec<Field>> = paths.iter().map(field).collect();
        let root = RecordBuilder::new(py, &class.name, &fields?);
        Some(Self { class: class.name.clone(), root, rows: 0 })
    }

    /// Number of gathered rows.
    pub(crate) fn len(&self) -> usize {
        self.rows
    }

    /// Gathered bytes.
    pub(crate) fn size(&self) -> usize {
        self.root.size()
    }

    /// Adds an object: a dictionary, or any object with the fields as attributes.
    ///
    /// # Errors
    /// `InvalidError` that names the field; then nothing is added.
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

    /// Takes the last row back.
    pub(crate) fn undo(&mut self) {
        self.rows = self.rows.saturating_sub(1);
        self.root.truncate(self.rows);
    }

    /// Returns the rows as an array of records, and starts again.
    pub(crate) fn take(&mut self) -> Array {
        let rows = std::mem::take(&mut self.rows);
        self.root.take(rows)
    }
}

/// The field at a dotted path through records.
fn field_at<'a>(fields: &'a [Field], path: &str) -> Option<&'a Field> {
    let (name, rest) = path.split_once('.').map_or((path, None), |(name, rest)| (name, Some(rest)));
    let field = fields.iter().find(|field| field.name == name)?;
    match (rest, &field.of) {
        (None, _) => Some(field),
        (Some(rest), FieldType::Record { fields, .. }) => field_at(fields, rest),
        _ => None,
    }
}
