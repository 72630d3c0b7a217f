//! Objects that Python appends one by one, gathered into columns.
//!
//! An object's values go straight from its attributes into one growing vector per column; whole
//! columns then go to the engine at once. Invariants:
//! 1. After [`Rows::push`] every column holds the same number of rows, also if it failed: what a
//!    failed row had pushed is taken back.
//! 2. A value is stored unchanged or refused, but for real numbers, which are rounded to the
//!    precision of their field as C++ would.

use femtobarn::{Class, Field, FieldType};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyList, PyString, PyType};
use rntuple::{Array, Primitive, bytes_of};

use crate::error::exception;
use crate::object::Object;
use crate::rows_link::LinkColumns;
use crate::rows_number::NumberColumn;
use crate::rows_variant::Alternatives;

/// Rows of one class.
pub struct Rows {
    class: String,
    root: RecordColumns,
    rows: usize,
}

impl Rows {
    /// No rows of a class.
    pub fn new(py: Python<'_>, class: &Class) -> Self {
        let root = RecordColumns::new(py, &class.name, &class.fields);
        Self { class: class.name.clone(), root, rows: 0 }
    }

    /// Number of rows gathered.
    pub fn len(&self) -> usize {
        self.rows
    }

    /// Bytes gathered.
    pub fn size(&self) -> usize {
        self.root.size()
    }

    /// Adds an object: a dictionary, or anything with the fields as attributes.
    ///
    /// # Errors
    /// `InvalidError` that names the field; nothing is added.
    pub fn push(&mut self, object: &Bound<'_, PyAny>) -> PyResult<()> {
        match self.root.push(object) {
            Ok(()) => {
                self.rows += 1;
                Ok(())
            }
            Err(refusal) => {
                self.root.truncate(self.rows);
                Err(refusal.raise(object.py(), &self.class))
            }
        }
    }

    /// Hands the rows over as an array of records, and begins anew.
    pub fn take(&mut self) -> Array {
        let rows = std::mem::take(&mut self.rows);
        self.root.take(rows)
    }
}

/// Why a value cannot be stored, and in which field.
pub struct Refusal {
    /// Names of fields, innermost first.
    path: Vec<String>,
    reason: String,
    /// What Python raised, if it is not about the value: passed on as it is.
    error: Option<PyErr>,
}

impl Refusal {
    /// A value that a field cannot hold.
    pub fn of(value: &Bound<'_, PyAny>, wanted: &str) -> Self {
        const SHOWN_MAX: usize = 40;
        let shown = value.repr().map_or_else(|_| "the value".to_owned(), |text| text.to_string());
        let shown = match shown.char_indices().nth(SHOWN_MAX) {
            Some((end, _)) => format!("{}...", &shown[..end]),
            None => shown,
        };
        Self::because(format!("{shown} is not {wanted}"))
    }

    /// Any other reason.
    pub fn because(reason: String) -> Self {
        Self { path: Vec::new(), reason, error: None }
    }

    /// The same, within a field.
    fn within(mut self, field: &str) -> Self {
        self.path.push(field.to_owned());
        self
    }

    fn raise(self, py: Python<'_>, class: &str) -> PyErr {
        if let Some(error) = self.error {
            return error;
        }
        let Refusal { mut path, reason, .. } = self;
        path.reverse();
        let text = if path.is_empty() {
            format!("class {class}: {reason}")
        } else {
            format!("field '{}' of class {class}: {reason}", path.join("."))
        };
        let _ = py;
        exception("invalid", text)
    }
}

impl From<PyErr> for Refusal {
    fn from(error: PyErr) -> Self {
        Self { path: Vec::new(), reason: String::new(), error: Some(error) }
    }
}

/// The result of adding a value to a column.
pub type Pushed = Result<(), Refusal>;

/// The columns of one field.
enum Columns {
    Number(NumberColumn),
    String { offsets: Vec<i64>, bytes: Vec<u8> },
    List(ListColumns),
    Optional(ListColumns),
    Fixed { size: usize, content: Box<Columns> },
    Record(RecordColumns),
    Link(LinkColumns),
    Variant(VariantColumns),
}

struct ListColumns {
    offsets: Vec<i64>,
    content: Box<Columns>,
}

struct RecordColumns {
    class: String,
    members: Vec<(Py<PyString>, String, Columns)>,
    /// What says which fields the last value has, if that was looked at; see [`declaration_of`].
    known: Option<Py<PyAny>>,
}

struct VariantColumns {
    alternatives: Alternatives,
    tags: Vec<i8>,
    positions: Vec<i64>,
    lengths: Vec<usize>,
    contents: Vec<Columns>,
}

impl Columns {
    fn new(py: Python<'_>, of: &FieldType) -> Self {
        match of {
            FieldType::String => Columns::String { offsets: vec![0], bytes: Vec::new() },
            FieldType::List(item) => Columns::List(ListColumns::new(py, item)),
            FieldType::Optional(item) => Columns::Optional(ListColumns::new(py, item)),
            FieldType::Array { of, size } => {
                Columns::Fixed { size: *size as usize, content: Box::new(Columns::new(py, of)) }
            }
            FieldType::Bitset(size) => {
                let content = Box::new(Columns::Number(NumberColumn::new(Primitive::Bool)));
                Columns::Fixed { size: *size as usize, content }
            }
            FieldType::Record { class, fields } => {
                Columns::Record(RecordColumns::new(py, class, fields))
            }
            FieldType::Link(_) => Columns::Link(LinkColumns::new(false)),
            FieldType::ElementLink(_) => Columns::Link(LinkColumns::new(true)),
            FieldType::Variant(items) => Columns::Variant(VariantColumns::new(py, items)),
            FieldType::Float16 => Columns::Number(NumberColumn::Half(vec![])),
            FieldType::Double32 => Columns::Number(NumberColumn::Single(vec![])),
            number => Columns::Number(NumberColumn::new(primitive_of(number))),
        }
    }

    fn push(&mut self, value: &Bound<'_, PyAny>) -> Pushed {
        match self {
            Columns::Number(column) => column.push(value),
            Columns::String { offsets, bytes } => {
                let text = value.cast::<PyString>().map_err(|_| Refusal::of(value, "text"))?;
                // Python's text can have halves of surrogate pairs, which are no characters.
                let text =
                    text.to_str().map_err(|_| Refusal::of(value, "text that UTF-8 can hold"))?;
                bytes.extend_from_slice(text.as_bytes());
                offsets.push(bytes.len() as i64);
                Ok(())
            }
            Columns::List(list) => list.push_items(value),
            Columns::Optional(list) => list.push_optional(value),
            Columns::Fixed { size, content } => {
                let items = content.push_all(value)?;
                if items == *size {
                    Ok(())
                } else {
                    Err(Refusal::because(format!("it has {items} items, not {size}")))
                }
            }
            Columns::Record(record) => record.push(value),
            Columns::Link(column) => column.push(value),
            Columns::Variant(variant) => variant.push(value),
        }
    }

    /// Adds all items of a sequence and returns how many there were.
    fn push_all(&mut self, values: &Bound<'_, PyAny>) -> Result<usize, Refusal> {
        // That a list has no buffer costs more to be told than its items.
        if let Ok(list) = values.cast_exact::<PyList>() {
            return self.push_items(list.iter().map(Ok));
        }
        if let Columns::Number(column) = self
            && let Some(added) = column.push_buffer(values)?
        {
            return Ok(added);
        }
        if values.is_instance_of::<PyString>() || values.is_instance_of::<PyDict>() {
            return Err(Refusal::of(values, "a list"));
        }
        // Elements of a NumPy or awkward array are slow to come by one by one.
        let plain =
            if values.hasattr("tolist")? { values.call_method0("tolist")? } else { values.clone() };
        self.push_items(plain.try_iter().map_err(|_| Refusal::of(values, "a list"))?)
    }

    fn push_items<'py>(
        &mut self,
        items: impl Iterator<Item = PyResult<Bound<'py, PyAny>>>,
    ) -> Result<usize, Refusal> {
        let mut added = 0;
        for item in items {
            self.push(&item?)?;
            added += 1;
        }
        Ok(added)
    }

    /// Forgets all values from `length` on.
    fn truncate(&mut self, length: usize) {
        match self {
            Columns::Number(column) => column.truncate(length),
            Columns::String { offsets, bytes } => {
                offsets.truncate(length + 1);
                bytes.truncate(last(offsets));
            }
            Columns::List(list) | Columns::Optional(list) => {
                list.offsets.truncate(length + 1);
                list.content.truncate(last(&list.offsets));
            }
            Columns::Fixed { size, content } => content.truncate(length * *size),
            Columns::Record(record) => record.truncate(length),
            Columns::Link(column) => column.truncate(length),
            Columns::Variant(variant) => variant.truncate(length),
        }
    }

    fn size(&self) -> usize {
        match self {
            Columns::Number(column) => column.size(),
            Columns::String { offsets, bytes } => size_of_val(&offsets[..]) + bytes.len(),
            Columns::List(list) | Columns::Optional(list) => {
                size_of_val(&list.offsets[..]) + list.content.size()
            }
            Columns::Fixed { content, .. } => content.size(),
            Columns::Record(record) => record.size(),
            Columns::Link(column) => column.size(),
            Columns::Variant(variant) => variant.contents.iter().map(Columns::size).sum(),
        }
    }

    fn take(&mut self, length: usize) -> Array {
        match self {
            Columns::Number(column) => column.take(),
            Columns::String { offsets, bytes } => Array::String {
                offsets: bytes_of(std::mem::replace(offsets, vec![0])),
                bytes: bytes_of(std::mem::take(bytes)),
            },
            Columns::List(list) => list.take(false),
            Columns::Optional(list) => list.take(true),
            Columns::Fixed { size, content } => Array::Fixed {
                size: *size as u64,
                length,
                content: Box::new(content.take(length * *size)),
            },
            Columns::Record(record) => record.take(length),
            Columns::Link(column) => column.take(),
            Columns::Variant(variant) => variant.take(),
        }
    }
}

impl ListColumns {
    fn new(py: Python<'_>, item: &FieldType) -> Self {
        Self { offsets: vec![0], content: Box::new(Columns::new(py, item)) }
    }

    fn push_items(&mut self, value: &Bound<'_, PyAny>) -> Pushed {
        let added = self.content.push_all(value)?;
        self.offsets.push((last(&self.offsets) + added) as i64);
        Ok(())
    }

    fn push_optional(&mut self, value: &Bound<'_, PyAny>) -> Pushed {
        let present = !value.is_none();
        if present {
            self.content.push(value)?;
        }
        self.offsets.push((last(&self.offsets) + usize::from(present)) as i64);
        Ok(())
    }

    fn take(&mut self, optional: bool) -> Array {
        let content = Box::new(self.content.take(last(&self.offsets)));
        let offsets = bytes_of(std::mem::replace(&mut self.offsets, vec![0]));
        Array::List { offsets, content, optional }
    }
}

impl RecordColumns {
    fn new(py: Python<'_>, class: &str, fields: &[Field]) -> Self {
        let member = |field: &Field| {
            let name = PyString::intern(py, &field.name).unbind();
            (name, field.name.clone(), Columns::new(py, &field.of))
        };
        let members = fields.iter().map(member).collect();
        Self { class: class.to_owned(), members, known: None }
    }

    fn push(&mut self, value: &Bound<'_, PyAny>) -> Pushed {
        if let Ok(dictionary) = value.cast::<PyDict>() {
            return self.push_dictionary(dictionary);
        }
        self.check_declared(value)?;
        for (name, text, columns) in &mut self.members {
            let member = value.getattr(&*name).map_err(|_| {
                let kind =
                    value.get_type().name().map_or_else(|_| String::new(), |n| n.to_string());
                Refusal::because(format!("the {kind} has no attribute '{text}'"))
            })?;
            columns.push(&member).map_err(|refusal| refusal.within(text))?;
        }
        Ok(())
    }

    /// Refuses an object that has more fields than are stored. What declares an object's fields is looked
    /// at once, as long as objects of it come.
    fn check_declared(&mut self, value: &Bound<'_, PyAny>) -> Pushed {
        static SURPLUS_OF: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
        let py = value.py();
        let declaration = declaration_of(value)?;
        if self.known.as_ref().is_some_and(|known| known.is(&declaration)) {
            return Ok(());
        }
        let names = PyList::new(py, self.members.iter().map(|(name, _, _)| name))?;
        let look = SURPLUS_OF.import(py, "femtobarn._schema.declared_fields", "surplus_of")?;
        let (surplus, is_of_class): (Option<String>, bool) =
            look.call1((value, names, &self.class))?.extract()?;
        if let Some(reason) = surplus {
            return Err(Refusal::because(reason));
        }
        let holds_for_all = is_of_class || !declaration.is(value.get_type());
        self.known = holds_for_all.then(|| declaration.unbind());
        Ok(())
    }

    fn push_dictionary(&mut self, values: &Bound<'_, PyDict>) -> Pushed {
        for (name, text, columns) in &mut self.members {
            let member = values.get_item(&*name)?;
            let member = member
                .ok_or_else(|| Refusal::because(format!("the dictionary has no key '{text}'")))?;
            columns.push(&member).map_err(|refusal| refusal.within(text))?;
        }
        if values.len() > self.members.len() {
            return Err(self.superfluous(values));
        }
        Ok(())
    }

    fn superfluous(&self, values: &Bound<'_, PyDict>) -> Refusal {
        let is_known = |key: &Bound<'_, PyAny>| {
            key.extract::<String>().is_ok_and(|key| self.members.iter().any(|m| m.1 == key))
        };
        let extra = values.keys().iter().find(|key| !is_known(key));
        let known: Vec<&str> = self.members.iter().map(|member| member.1.as_str()).collect();
        let name = extra.map_or_else(String::new, |key| key.to_string());
        Refusal::because(format!("there is no field '{name}'; there are {}", known.join(", ")))
    }

    fn truncate(&mut self, length: usize) {
        self.members.iter_mut().for_each(|(_, _, columns)| columns.truncate(length));
    }

    fn size(&self) -> usize {
        self.members.iter().map(|(_, _, columns)| columns.size()).sum()
    }

    fn take(&mut self, length: usize) -> Array {
        let members = self.members.iter_mut();
        let members =
            members.map(|(_, name, columns)| (name.clone(), columns.take(length))).collect();
        Array::Record { length, members }
    }
}

/// What says which fields a value has: the definition of an object that was read, the type of a record in
/// one, else the Python class. Other values of the same have the same fields, unless only their class is known.
fn declaration_of<'py>(value: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    static RECORD: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    let py = value.py();
    if let Ok(object) = value.cast::<Object>() {
        return object.get().definition(py);
    }
    let class = value.get_type();
    if class.is(RECORD.import(py, "femtobarn._objects", "RecordValue")?) {
        value.getattr(intern!(py, "_node"))
    } else {
        Ok(class.into_any())
    }
}

impl VariantColumns {
    fn new(py: Python<'_>, items: &[FieldType]) -> Self {
        let contents: Vec<Columns> = items.iter().map(|item| Columns::new(py, item)).collect();
        let alternatives = Alternatives::new(items);
        let lengths = vec![0; contents.len()];
        Self { alternatives, tags: vec![], positions: vec![], lengths, contents }
    }

    /// Adds the value to the first alternative that takes it, in the order that suits the value.
    fn push(&mut self, value: &Bound<'_, PyAny>) -> Pushed {
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
        Err(Refusal::of(value, "of any of the alternatives"))
    }

    fn truncate(&mut self, length: usize) {
        self.tags.truncate(length);
        self.positions.truncate(length);
        for (tag, columns) in self.contents.iter_mut().enumerate() {
            let kept = self.tags.iter().filter(|&&used| used == tag as i8).count();
            self.lengths[tag] = kept;
            columns.truncate(kept);
        }
    }

    fn take(&mut self) -> Array {
        let lengths = std::mem::replace(&mut self.lengths, vec![0; self.contents.len()]);
        let contents = self.contents.iter_mut().zip(lengths);
        Array::Variant {
            contents: contents.map(|(columns, length)| columns.take(length)).collect(),
            tags: bytes_of(std::mem::take(&mut self.tags)),
            positions: bytes_of(std::mem::take(&mut self.positions)),
        }
    }
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
