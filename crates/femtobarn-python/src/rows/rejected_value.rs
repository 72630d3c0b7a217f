//! A Python value that cannot be stored, with the reason and the field.

use pyo3::prelude::*;

use crate::error::exception;

/// Why a value cannot be stored, and in which field.
pub(super) struct RejectedValue {
    /// Names of fields, innermost first.
    path: Vec<String>,
    reason: String,
    /// The Python exception, if it is not about the value; raised as it is.
    error: Option<PyErr>,
}

impl RejectedValue {
    /// A value that is not `wanted`.
    pub(super) fn of(value: &Bound<'_, PyAny>, wanted: &str) -> Self {
        const SHOWN_MAX: usize = 40;
        let shown = value.repr().map_or_else(|_| "the value".to_owned(), |text| text.to_string());
        let shown = match shown.char_indices().nth(SHOWN_MAX) {
            Some((end, _)) => format!("{}...", &shown[..end]),
            None => shown,
        };
        Self::because(format!("{shown} is not {wanted}"))
    }

    /// Any other reason.
    pub(super) fn because(reason: String) -> Self {
        Self { path: Vec::new(), reason, error: None }
    }

    /// The same, within a field.
    pub(super) fn within(mut self, field: &str) -> Self {
        self.path.push(field.to_owned());
        self
    }

    pub(super) fn raise(self, class: &str) -> PyErr {
        if let Some(error) = self.error {
            return error;
        }
        let RejectedValue { mut path, reason, .. } = self;
        path.reverse();
        let text = if path.is_empty() {
            format!("class {class}: {reason}")
        } else {
            format!("field '{}' of class {class}: {reason}", path.join("."))
        };
        exception("invalid", text)
    }
}

impl From<PyErr> for RejectedValue {
    fn from(error: PyErr) -> Self {
        Self { path: Vec::new(), reason: String::new(), error: Some(error) }
    }
}

/// The result of adding a value to a column.
pub(super) type PushResult = Result<(), RejectedValue>;
