//! The number of a commit, as an argument that Python passes.

use femtobarn::Csn;
use pyo3::exceptions::PyOverflowError;
use pyo3::prelude::*;

use crate::error::{exception, wrong_type};

/// The number of a commit that may not exist; 0 is before the first one.
#[derive(Clone, Copy)]
pub(crate) struct CsnArgument(pub Csn);

impl<'py> FromPyObject<'_, 'py> for CsnArgument {
    type Error = PyErr;

    /// # Errors
    /// `InvalidError` if the integer is negative or has more than 64 bits; `WrongTypeError` if it is none.
    fn extract(value: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        value.extract::<u64>().map(|csn| CsnArgument(Csn(csn))).map_err(|error| {
            let shown = value.repr().map_or_else(|_| "the value".to_owned(), |text| text.to_string());
            if error.is_instance_of::<PyOverflowError>(value.py()) {
                exception(
                    "invalid",
                    format!("{shown} is not the number of a commit: give an integer of 64 bits, 0 or more"),
                )
            } else {
                wrong_type(format!("the number of a commit must be an integer, not {shown}"))
            }
        })
    }
}
