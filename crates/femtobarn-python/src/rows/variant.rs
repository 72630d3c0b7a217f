//! The columns of a variant: each value goes to the first alternative that can hold it.

use femtobarn::FieldType;
use pyo3::prelude::*;
use rntuple::{Array, bytes_of};

use super::alternatives::Alternatives;
use super::column::ColumnBuilder;
use super::rejected_value::{PushResult, RejectedValue};

pub(super) struct VariantBuilder {
    alternatives: Alternatives,
    tags: Vec<i8>,
    positions: Vec<i64>,
    lengths: Vec<usize>,
    contents: Vec<ColumnBuilder>,
}

impl VariantBuilder {
    pub(super) fn new(py: Python<'_>, items: &[FieldType]) -> Self {
        let contents: Vec<ColumnBuilder> =
            items.iter().map(|item| ColumnBuilder::new(py, item)).collect();
        let alternatives = Alternatives::new(items);
        let lengths = vec![0; contents.len()];
        Self { alternatives, tags: vec![], positions: vec![], lengths, contents }
    }

    /// Adds a value to the first alternative that accepts it.
    pub(super) fn push(&mut self, value: &Bound<'_, PyAny>) -> PushResult {
        if value.is_none() {
            self.tags.push(-1);
            self.positions.push(0);
            return Ok(());
        }
        for tag in self.alternatives.in_order(value) {
            let (position, columns) = (self.lengths[tag], &mut self.contents[tag]);
            if columns.push(value).is_ok() {
                self.tags.push(tag as i8);
                self.positions.push(position as i64);
                self.lengths[tag] += 1;
                return Ok(());
            }
            columns.truncate(position);
        }
        Err(RejectedValue::of(value, "of any of the alternatives"))
    }

    pub(super) fn truncate(&mut self, length: usize) {
        self.tags.truncate(length);
        self.positions.truncate(length);
        for (tag, columns) in self.contents.iter_mut().enumerate() {
            let kept = self.tags.iter().filter(|&&used| used == tag as i8).count();
            self.lengths[tag] = kept;
            columns.truncate(kept);
        }
    }

    pub(super) fn size(&self) -> usize {
        self.contents.iter().map(ColumnBuilder::size).sum()
    }

    pub(super) fn take(&mut self) -> Array {
        let lengths = std::mem::replace(&mut self.lengths, vec![0; self.contents.len()]);
        let contents = self.contents.iter_mut().zip(lengths);
        Array::Variant {
            contents: contents.map(|(columns, length)| columns.take(length)).collect(),
            tags: bytes_of(std::mem::take(&mut self.tags)),
            positions: bytes_of(std::mem::take(&mut self.positions)),
        }
    }
}
