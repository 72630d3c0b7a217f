//! The columns of one field, of any type.

use femtobarn::FieldType;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyList, PyString};
use rntuple::{Array, Primitive, bytes_of};

use super::link::LinkBuilder;
use super::number::NumberBuilder;
use super::record::RecordBuilder;
use super::rejected_value::{PushResult, RejectedValue};
use super::variant::VariantBuilder;

/// The columns of one field.
pub(super) enum ColumnBuilder {
    Number(NumberBuilder),
    String { offsets: Vec<i64>, bytes: Vec<u8> },
    List(ListBuilder),
    Optional(ListBuilder),
    Fixed { size: usize, content: Box<ColumnBuilder> },
    Record(RecordBuilder),
    Link(LinkBuilder),
    Variant(VariantBuilder),
    Meaning(MeaningBuilder),
}

pub(super) struct ListBuilder {
    offsets: Vec<i64>,
    content: Box<ColumnBuilder>,
}

/// Values that stand for something else, which Python turns into their stored form.
pub(super) struct MeaningBuilder {
    /// The type, as JSON.
    meaning: String,
    to_stored: PyOnceLock<Py<PyAny>>,
    content: Box<ColumnBuilder>,
}

impl ColumnBuilder {
    pub(super) fn new(py: Python<'_>, of: &FieldType) -> Self {
        match of {
            FieldType::String => ColumnBuilder::String { offsets: vec![0], bytes: Vec::new() },
            FieldType::List(item) => ColumnBuilder::List(ListBuilder::new(py, item)),
            FieldType::Optional(item) => ColumnBuilder::Optional(ListBuilder::new(py, item)),
            FieldType::Array { of, size } => ColumnBuilder::Fixed {
                size: *size as usize,
                content: Box::new(ColumnBuilder::new(py, of)),
            },
            FieldType::Bitset(size) => {
                let content = Box::new(ColumnBuilder::Number(NumberBuilder::new(Primitive::Bool)));
                ColumnBuilder::Fixed { size: *size as usize, content }
            }
            FieldType::Record { class, fields } => {
                ColumnBuilder::Record(RecordBuilder::new(py, class, fields))
            }
            FieldType::Link(_) => ColumnBuilder::Link(LinkBuilder::new(false)),
            FieldType::ElementLink(_) => ColumnBuilder::Link(LinkBuilder::new(true)),
            FieldType::Variant(items) => ColumnBuilder::Variant(VariantBuilder::new(py, items)),
            FieldType::Meaning { of: stored, .. } => ColumnBuilder::Meaning(MeaningBuilder {
                meaning: serde_json::to_string(of).expect("a type has only names and numbers"),
                to_stored: PyOnceLock::new(),
                content: Box::new(ColumnBuilder::new(py, stored)),
            }),
            FieldType::Float16 => ColumnBuilder::Number(NumberBuilder::Half(vec![])),
            FieldType::Double32 => ColumnBuilder::Number(NumberBuilder::Single(vec![])),
            number => ColumnBuilder::Number(NumberBuilder::new(primitive_of(number))),
        }
    }

    pub(super) fn push(&mut self, value: &Bound<'_, PyAny>) -> PushResult {
        match self {
            ColumnBuilder::Number(column) => column.push(value),
            ColumnBuilder::String { offsets, bytes } => {
                let text =
                    value.cast::<PyString>().map_err(|_| RejectedValue::of(value, "text"))?;
                // Python strings can contain lone surrogates, which UTF-8 cannot.
                let text = text
                    .to_str()
                    .map_err(|_| RejectedValue::of(value, "text that UTF-8 can hold"))?;
                bytes.extend_from_slice(text.as_bytes());
                offsets.push(bytes.len() as i64);
                Ok(())
            }
            ColumnBuilder::List(list) => list.push_items(value),
            ColumnBuilder::Optional(list) => list.push_optional(value),
            ColumnBuilder::Fixed { size, content } => {
                let items = content.push_all(value)?;
                if items == *size {
                    Ok(())
                } else {
                    Err(RejectedValue::because(format!("it has {items} items, not {size}")))
                }
            }
            ColumnBuilder::Record(record) => record.push(value),
            ColumnBuilder::Link(column) => column.push(value),
            ColumnBuilder::Variant(variant) => variant.push(value),
            ColumnBuilder::Meaning(column) => column.push(value),
        }
    }

    /// Adds all items of a sequence; returns their number.
    fn push_all(&mut self, values: &Bound<'_, PyAny>) -> Result<usize, RejectedValue> {
        // Asking a list for its buffer costs more than reading its items.
        if let Ok(list) = values.cast_exact::<PyList>() {
            return self.push_items(list.iter().map(Ok));
        }
        if let ColumnBuilder::Number(column) = self
            && let Some(added) = column.push_buffer(values)?
        {
            return Ok(added);
        }
        if let (ColumnBuilder::Record(record), Ok(map)) = (&*self, values.cast::<PyDict>())
            && record.is_of_pairs()
        {
            return self.push_items(map.items().iter().map(Ok));
        }
        if values.is_instance_of::<PyString>() || values.is_instance_of::<PyDict>() {
            return Err(RejectedValue::of(values, "a list"));
        }
        let is_of_times = values.getattr_opt("dtype")?.is_some_and(|dtype| is_time(&dtype));
        if is_of_times && matches!(self, ColumnBuilder::Number(_)) {
            return Err(RejectedValue::of(values, "a list of numbers"));
        }
        // Iterating over a NumPy or awkward array is slow, but Python's integers of times are times no more.
        let plain = if values.hasattr("tolist")? && !self.has_meaning() {
            values.call_method0("tolist")?
        } else {
            values.clone()
        };
        self.push_items(plain.try_iter().map_err(|_| RejectedValue::of(values, "a list"))?)
    }

    /// Whether values have a meaning that Python applies: in this column, or in columns within it.
    fn has_meaning(&self) -> bool {
        match self {
            ColumnBuilder::Meaning(_) => true,
            ColumnBuilder::List(list) | ColumnBuilder::Optional(list) => list.content.has_meaning(),
            ColumnBuilder::Fixed { content, .. } => content.has_meaning(),
            ColumnBuilder::Record(record) => record.columns().any(ColumnBuilder::has_meaning),
            _ => false,
        }
    }

    fn push_items<'py>(
        &mut self,
        items: impl Iterator<Item = PyResult<Bound<'py, PyAny>>>,
    ) -> Result<usize, RejectedValue> {
        let mut added = 0;
        for item in items {
            self.push(&item?)?;
            added += 1;
        }
        Ok(added)
    }

    /// Removes all values from `length` on.
    pub(super) fn truncate(&mut self, length: usize) {
        match self {
            ColumnBuilder::Number(column) => column.truncate(length),
            ColumnBuilder::String { offsets, bytes } => {
                offsets.truncate(length + 1);
                bytes.truncate(last(offsets));
            }
            ColumnBuilder::List(list) | ColumnBuilder::Optional(list) => {
                list.offsets.truncate(length + 1);
                list.content.truncate(last(&list.offsets));
            }
            ColumnBuilder::Fixed { size, content } => content.truncate(length * *size),
            ColumnBuilder::Record(record) => record.truncate(length),
            ColumnBuilder::Link(column) => column.truncate(length),
            ColumnBuilder::Variant(variant) => variant.truncate(length),
            ColumnBuilder::Meaning(column) => column.content.truncate(length),
        }
    }

    pub(super) fn size(&self) -> usize {
        match self {
            ColumnBuilder::Number(column) => column.size(),
            ColumnBuilder::String { offsets, bytes } => size_of_val(&offsets[..]) + bytes.len(),
            ColumnBuilder::List(list) | ColumnBuilder::Optional(list) => {
                size_of_val(&list.offsets[..]) + list.content.size()
            }
            ColumnBuilder::Fixed { content, .. } => content.size(),
            ColumnBuilder::Record(record) => record.size(),
            ColumnBuilder::Link(column) => column.size(),
            ColumnBuilder::Variant(variant) => variant.size(),
            ColumnBuilder::Meaning(column) => column.content.size(),
        }
    }

    pub(super) fn take(&mut self, length: usize) -> Array {
        match self {
            ColumnBuilder::Number(column) => column.take(),
            ColumnBuilder::String { offsets, bytes } => Array::String {
                offsets: bytes_of(std::mem::replace(offsets, vec![0])),
                bytes: bytes_of(std::mem::take(bytes)),
            },
            ColumnBuilder::List(list) => list.take(false),
            ColumnBuilder::Optional(list) => list.take(true),
            ColumnBuilder::Fixed { size, content } => Array::Fixed {
                size: *size as u64,
                length,
                content: Box::new(content.take(length * *size)),
            },
            ColumnBuilder::Record(record) => record.take(length),
            ColumnBuilder::Link(column) => column.take(),
            ColumnBuilder::Variant(variant) => variant.take(),
            ColumnBuilder::Meaning(column) => column.content.take(length),
        }
    }
}

impl ListBuilder {
    pub(super) fn new(py: Python<'_>, item: &FieldType) -> Self {
        Self { offsets: vec![0], content: Box::new(ColumnBuilder::new(py, item)) }
    }

    fn push_items(&mut self, value: &Bound<'_, PyAny>) -> PushResult {
        let added = self.content.push_all(value)?;
        self.offsets.push((last(&self.offsets) + added) as i64);
        Ok(())
    }

    fn push_optional(&mut self, value: &Bound<'_, PyAny>) -> PushResult {
        let present = !value.is_none();
        if present {
            self.content.push(value)?;
        }
        self.offsets.push((last(&self.offsets) + usize::from(present)) as i64);
        Ok(())
    }

    pub(super) fn take(&mut self, optional: bool) -> Array {
        let content = Box::new(self.content.take(last(&self.offsets)));
        let offsets = bytes_of(std::mem::replace(&mut self.offsets, vec![0]));
        Array::List { offsets, content, optional }
    }
}

impl MeaningBuilder {
    fn push(&mut self, value: &Bound<'_, PyAny>) -> PushResult {
        static STORING: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
        let py = value.py();
        let to_stored = self.to_stored.get_or_try_init(py, || {
            let storing = STORING.import(py, "femtobarn._schema.meanings", "storing")?;
            storing.call1((&self.meaning,)).map(Bound::unbind)
        })?;
        let stored = to_stored.bind(py).call1((value,)).map_err(|error| {
            let refused =
                error.is_instance_of::<PyValueError>(py) || error.is_instance_of::<PyTypeError>(py);
            if refused { RejectedValue::because(error.value(py).to_string()) } else { error.into() }
        })?;
        self.content.push(&stored)
    }
}

fn is_time(dtype: &Bound<'_, PyAny>) -> bool {
    let kind = dtype.getattr("kind").and_then(|kind| kind.extract::<String>());
    kind.is_ok_and(|kind| kind == "M" || kind == "m")
}

fn last(offsets: &[i64]) -> usize {
    offsets.last().map_or(0, |end| *end as usize)
}

fn primitive_of(of: &FieldType) -> Primitive {
    match of {
        FieldType::Bool => Primitive::Bool,
        FieldType::Byte => Primitive::Byte,
        FieldType::Char => Primitive::Char,
        FieldType::Int8 => Primitive::Int8,
        FieldType::UInt8 => Primitive::UInt8,
        FieldType::Int16 => Primitive::Int16,
        FieldType::UInt16 => Primitive::UInt16,
        FieldType::Int32 => Primitive::Int32,
        FieldType::UInt32 => Primitive::UInt32,
        FieldType::Int64 => Primitive::Int64,
        FieldType::UInt64 => Primitive::UInt64,
        FieldType::Float64 => Primitive::Float64,
        _ => Primitive::Float32,
    }
}
