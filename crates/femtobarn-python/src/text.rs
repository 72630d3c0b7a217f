//! Texts and paths that Python passes.
//!
//! Python's texts can have halves of surrogate pairs, which UTF-8 cannot hold. Every argument of a function of this
//! module that is a text or a path has one of these types, so that a text with such a half raises one of Femtobarn's
//! errors.

use std::fmt;
use std::ops::Deref;
use std::path::{Path, PathBuf};

use pyo3::exceptions::PyUnicodeError;
use pyo3::prelude::*;
use pyo3::types::PyString;

use crate::error::{exception, wrong_type};

/// A text.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
pub struct Text(String);

impl<'py> FromPyObject<'_, 'py> for Text {
    type Error = PyErr;

    /// # Errors
    /// `InvalidError` if UTF-8 cannot hold the text; `WrongTypeError` if it is none.
    fn extract(value: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        let Ok(text) = value.cast::<PyString>() else {
            return Err(wrong_type(format!("{} is not a string", shown(value))));
        };
        text.to_str().map(|text| Text(text.to_owned())).map_err(|error| unstorable(value, error))
    }
}

impl Deref for Text {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl AsRef<str> for Text {
    fn as_ref(&self) -> &str {
        self
    }
}

impl fmt::Debug for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

impl From<Text> for String {
    fn from(text: Text) -> Self {
        text.0
    }
}

/// Texts as the engine takes them.
pub(crate) fn strings(texts: Vec<Text>) -> Vec<String> {
    texts.into_iter().map(String::from).collect()
}

/// A path of a file or folder, or a URL.
pub struct FilePath(PathBuf);

impl<'py> FromPyObject<'_, 'py> for FilePath {
    type Error = PyErr;

    /// # Errors
    /// `InvalidError` if no file can have the path; Python's `TypeError` if it is none.
    fn extract(value: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        value.extract().map(FilePath).map_err(|error| unstorable(value, error))
    }
}

impl Deref for FilePath {
    type Target = Path;

    fn deref(&self) -> &Path {
        &self.0
    }
}

impl AsRef<Path> for FilePath {
    fn as_ref(&self) -> &Path {
        self
    }
}

impl From<FilePath> for PathBuf {
    fn from(path: FilePath) -> Self {
        path.0
    }
}

/// The error for a text with half of a surrogate pair; other errors stay what they are.
fn unstorable(value: Borrowed<'_, '_, PyAny>, error: PyErr) -> PyErr {
    if !error.is_instance_of::<PyUnicodeError>(value.py()) {
        return error;
    }
    let what = "has half of a surrogate pair, which UTF-8 cannot hold";
    exception("invalid", format!("{} {what}", shown(value)))
}

fn shown(value: Borrowed<'_, '_, PyAny>) -> String {
    value.repr().map_or_else(|_| "the value".to_owned(), |text| text.to_string())
}
