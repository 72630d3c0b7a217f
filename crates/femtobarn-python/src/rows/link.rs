//! Links that Python appends: OIDs, objects that have one, or `None`.

use pyo3::prelude::*;
use pyo3::types::PyTuple;
use rntuple::{Array, Primitive};

use super::rejected_value::{PushResult, RejectedValue};
use crate::oid::{PyOid, oid_of};

/// The columns of links; a null link is all zeros.
pub(super) struct LinkBuilder {
    database: Vec<u32>,
    container: Vec<u32>,
    entry: Vec<u64>,
    /// The elements, for links to elements of collections.
    element: Option<Vec<u32>>,
}

impl LinkBuilder {
    /// Starts without links; `to_elements` if they lead to elements of collections.
    pub(super) fn new(to_elements: bool) -> Self {
        let element = to_elements.then(Vec::new);
        Self { database: vec![], container: vec![], entry: vec![], element }
    }

    /// Adds a link.
    pub(super) fn push(&mut self, value: &Bound<'_, PyAny>) -> PushResult {
        if value.is_none() {
            self.push_members(PyOid { database: 0, container: 0, entry: 0 }, 0);
        } else if self.element.is_some() {
            let (oid, element) = element_of(value)?;
            self.push_members(oid, element);
        } else {
            let oid = oid_of(value)
                .ok_or_else(|| RejectedValue::of(value, "an OID or an object that has one"))?;
            self.push_members(oid, 0);
        }
        Ok(())
    }

    fn push_members(&mut self, oid: PyOid, element: u32) {
        self.database.push(oid.database);
        self.container.push(oid.container);
        self.entry.push(oid.entry);
        if let Some(elements) = &mut self.element {
            elements.push(element);
        }
    }

    /// Removes all links from `length` on.
    pub(super) fn truncate(&mut self, length: usize) {
        self.database.truncate(length);
        self.container.truncate(length);
        self.entry.truncate(length);
        if let Some(elements) = &mut self.element {
            elements.truncate(length);
        }
    }

    /// Bytes of the links.
    pub(super) fn size(&self) -> usize {
        const LINK_BYTES: usize = 20;
        self.database.len() * LINK_BYTES
    }

    /// Returns the links, and starts again.
    pub(super) fn take(&mut self) -> Array {
        let length = self.database.len();
        let number =
            |values: &mut Vec<u32>| Array::primitive(Primitive::UInt32, std::mem::take(values));
        let mut members = vec![
            ("database".to_owned(), number(&mut self.database)),
            ("container".to_owned(), number(&mut self.container)),
            (
                "entry".to_owned(),
                Array::primitive(Primitive::UInt64, std::mem::take(&mut self.entry)),
            ),
        ];
        if let Some(elements) = &mut self.element {
            members.push(("element".to_owned(), number(elements)));
        }
        Array::Record { length, members }
    }
}

/// A pair of OID and number of the element, or an object with `oid` and `element`.
fn element_of(value: &Bound<'_, PyAny>) -> Result<(PyOid, u32), RejectedValue> {
    let rejection = || RejectedValue::of(value, "a pair of an OID and the number of an element");
    if let Ok(pair) = value.cast::<PyTuple>() {
        let (oid, element) = pair.extract::<(Bound<'_, PyAny>, u32)>().map_err(|_| rejection())?;
        return Ok((oid_of(&oid).ok_or_else(rejection)?, element));
    }
    let element = value.getattr("element").and_then(|element| element.extract::<u32>());
    match (oid_of(value), element) {
        (Some(oid), Ok(element)) => Ok((oid, element)),
        _ => Err(rejection()),
    }
}
