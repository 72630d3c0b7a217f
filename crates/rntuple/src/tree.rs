//! The tree of fields: the logical type and the columns of each field.
//!
//! Invariants:
//! 1. Every list of columns has one entry for each alternative representation, at least one.
//! 2. The tree is at most [`DEPTH_MAX`] levels deep; a deeper schema is refused.
//! 3. A top-level field with an unknown part is left out as a whole and listed in `ignored` with the
//!    reason (specification, "Notes on Backward and Forward Compatibility").

use std::cell::Cell;

use crate::column::ColumnType;
use crate::error::{Error, Result};
use crate::inheritance::{InheritedMember, PREFIX_BYTES_MAX, is_base_class, with_unique_names};
use crate::schema::{ColumnId, Field, FieldId, Schema, Structure};
use crate::type_map::item_class;
use crate::types::{Precision, Primitive, Type};

/// Deepest nesting of fields.
const DEPTH_MAX: usize = 64;
/// Most alternatives of a variant. Specification, "std::variant".
const ALTERNATIVES_MAX: usize = 125;

/// A field with its subfields.
#[derive(Clone, Debug)]
pub(crate) struct FieldNode {
    pub name: String,
    pub kind: FieldKind,
}

/// The kind of a field, with its columns by representation.
#[derive(Clone, Debug)]
pub(crate) enum FieldKind {
    Primitive { primitive: Primitive, values: Vec<ColumnId>, precision: Option<Precision> },
    Bitset { size: u64, bits: Vec<ColumnId> },
    String { offsets: Vec<ColumnId>, bytes: Vec<ColumnId> },
    List { offsets: Vec<ColumnId>, item: Box<FieldNode>, optional: bool },
    Fixed { size: u64, item: Box<FieldNode> },
    Record { class: String, members: Vec<FieldNode> },
    Variant { switch: Vec<ColumnId>, alternatives: Vec<FieldNode> },
    Cardinality { offsets: Vec<ColumnId>, primitive: Primitive },
}

/// The top-level fields of an RNTuple.
#[derive(Clone, Debug, Default)]
pub(crate) struct FieldTree {
    pub nodes: Vec<FieldNode>,
    /// Fields that this version cannot read, with the reason.
    pub ignored: Vec<(String, String)>,
}

impl FieldTree {
    /// Interprets a schema.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if its fields and columns do not make a tree.
    pub(crate) fn of(schema: &Schema) -> Result<Self> {
        let index = SchemaIndex::of(schema)?;
        let mut tree = FieldTree::default();
        for &id in &index.top {
            match index.node(id, 0) {
                Ok(node) => tree.nodes.push(node),
                Err(Error::Unsupported { what }) => {
                    tree.ignored.push((schema.fields[id as usize].name.clone(), what));
                }
                Err(error) => return Err(error),
            }
        }
        Ok(tree)
    }
}

impl FieldTree {
    /// The columns of the first representation of each field, depth first.
    pub(crate) fn first_columns(&self) -> Vec<ColumnId> {
        let mut columns = vec![];
        self.nodes.iter().for_each(|node| node.add_first_columns(&mut columns));
        columns
    }

    /// Sets the numbers of all representations of a field to the greatest of them.
    pub(crate) fn share_among_representations(&self, of_columns: &mut [u64]) {
        self.nodes.iter().for_each(|node| node.share(of_columns));
    }
}

impl FieldNode {
    fn share(&self, of_columns: &mut [u64]) {
        for columns in self.own_columns() {
            let greatest = columns.iter().map(|&column| of_columns[column as usize]).max();
            columns.iter().for_each(|&c| of_columns[c as usize] = greatest.unwrap_or(0));
        }
        self.children().iter().for_each(|child| child.share(of_columns));
    }

    /// The columns of the field itself, one or two, in each representation.
    pub(crate) fn own_columns(&self) -> [&[ColumnId]; 2] {
        match &self.kind {
            FieldKind::Primitive { values, .. } => [values, &[]],
            FieldKind::Bitset { bits, .. } => [bits, &[]],
            FieldKind::String { offsets, bytes } => [offsets, bytes],
            FieldKind::List { offsets, .. } | FieldKind::Cardinality { offsets, .. } => {
                [offsets, &[]]
            }
            FieldKind::Variant { switch, .. } => [switch, &[]],
            FieldKind::Fixed { .. } | FieldKind::Record { .. } => [&[], &[]],
        }
    }

    /// All columns of the field itself, in all its representations.
    pub(crate) fn columns(&self) -> impl Iterator<Item = ColumnId> {
        self.own_columns().into_iter().flatten().copied()
    }

    /// The subfields.
    pub(crate) fn children(&self) -> &[FieldNode] {
        match &self.kind {
            FieldKind::List { item, .. } | FieldKind::Fixed { item, .. } => {
                std::slice::from_ref(item)
            }
            FieldKind::Record { members, .. } => members,
            FieldKind::Variant { alternatives, .. } => alternatives,
            _ => &[],
        }
    }

    fn add_first_columns(&self, columns: &mut Vec<ColumnId>) {
        columns.extend(self.own_columns().into_iter().filter_map(<[_]>::first));
        self.children().iter().for_each(|child| child.add_first_columns(columns));
    }

    /// The logical type of the field.
    pub(crate) fn logical_type(&self) -> Type {
        match &self.kind {
            FieldKind::Primitive { primitive, precision: None, .. } => Type::Primitive(*primitive),
            FieldKind::Primitive { primitive, precision: Some(precision), .. } => {
                Type::Reduced(*primitive, *precision)
            }
            FieldKind::Bitset { size, .. } => Type::Bitset { size: *size },
            FieldKind::String { .. } => Type::String,
            FieldKind::List { item, optional: true, .. } => {
                Type::Optional(item.logical_type().into())
            }
            FieldKind::List { item, .. } => Type::List(item.logical_type().into()),
            FieldKind::Fixed { size, item } => {
                Type::Array { item: item.logical_type().into(), size: *size }
            }
            FieldKind::Record { class, members } => Type::Record {
                class: class.clone(),
                members: members.iter().map(|m| (m.name.clone(), m.logical_type())).collect(),
            },
            FieldKind::Variant { alternatives, .. } => {
                Type::Variant(alternatives.iter().map(FieldNode::logical_type).collect())
            }
            FieldKind::Cardinality { primitive, .. } => Type::Cardinality(*primitive),
        }
    }
}

/// A schema's fields and columns by parent.
struct SchemaIndex<'a> {
    schema: &'a Schema,
    top: Vec<FieldId>,
    children: Vec<Vec<FieldId>>,
    columns: Vec<Vec<ColumnId>>,
    prefix_bytes_left: Cell<usize>,
}

impl<'a> SchemaIndex<'a> {
    fn of(schema: &'a Schema) -> Result<Self> {
        let count = schema.fields.len();
        let mut index = SchemaIndex {
            schema,
            top: vec![],
            children: vec![vec![]; count],
            columns: vec![vec![]; count],
            prefix_bytes_left: Cell::new(PREFIX_BYTES_MAX),
        };
        for (id, field) in schema.fields.iter().enumerate() {
            let id = id as FieldId;
            match field.parent {
                parent if parent == id => index.top.push(id),
                parent if parent < id => index.children[parent as usize].push(id),
                parent => return Err(corrupt(format!("field {id} comes before parent {parent}"))),
            }
        }
        for (id, column) in schema.columns.iter().enumerate() {
            index.attach(column.field, id as ColumnId)?;
        }
        for alias in &schema.aliases {
            if alias.physical as usize >= schema.columns.len() {
                return Err(corrupt(format!("alias of missing column {}", alias.physical)));
            }
            index.attach(alias.field, alias.physical)?;
        }
        Ok(index)
    }

    fn attach(&mut self, field: FieldId, column: ColumnId) -> Result<()> {
        self.columns
            .get_mut(field as usize)
            .ok_or_else(|| corrupt(format!("column {column} of missing field {field}")))?
            .push(column);
        Ok(())
    }

    fn node(&self, id: FieldId, depth: usize) -> Result<FieldNode> {
        check_depth(depth)?;
        let field = &self.schema.fields[id as usize];
        let kind = match field.structure {
            Structure::Leaf => self.leaf(id, field, depth)?,
            Structure::Collection => self.collection(id, field, depth)?,
            Structure::Record => FieldKind::Record {
                class: field.type_name.clone(),
                members: self.members(id, depth)?,
            },
            Structure::Variant => self.variant(id, depth)?,
            Structure::Streamer => self.streamed(id)?,
        };
        Ok(FieldNode { name: field.name.clone(), kind })
    }

    fn leaf(&self, id: FieldId, field: &Field, depth: usize) -> Result<FieldKind> {
        let has_columns = !self.columns[id as usize].is_empty();
        match (field.repetition, has_columns) {
            (Some(size), true) => {
                let bits = self.one_column(id, |of| of == ColumnType::Bit)?;
                Ok(FieldKind::Bitset { size, bits })
            }
            (Some(size), false) => {
                Ok(FieldKind::Fixed { size, item: self.only_child(id, depth)?.into() })
            }
            // Enumerations and atomics wrap one number.
            (None, false) => Ok(self.only_child(id, depth)?.kind),
            (None, true) => self.simple(id, field),
        }
    }

    fn simple(&self, id: FieldId, field: &Field) -> Result<FieldKind> {
        if field.type_name == "std::string" {
            let (offsets, bytes) = self.two_columns(id, |of| of == ColumnType::Char)?;
            return Ok(FieldKind::String { offsets, bytes });
        }
        let cardinality = field.type_name.strip_prefix("ROOT::RNTupleCardinality<");
        if let Some(size) = cardinality.and_then(|rest| rest.strip_suffix('>')) {
            let offsets = self.one_column(id, ColumnType::is_index)?;
            return Ok(FieldKind::Cardinality { offsets, primitive: primitive_named(size)? });
        }
        let primitive = primitive_named(&field.type_name)?;
        let values = self.one_column(id, |of| {
            !of.is_index() && of != ColumnType::Switch && of.element().is_some()
        })?;
        let precision = self.precision(values[0], primitive);
        Ok(FieldKind::Primitive { primitive, values, precision })
    }

    fn precision(&self, column: ColumnId, primitive: Primitive) -> Option<Precision> {
        let column = &self.schema.columns[column as usize];
        let bits = column.bits;
        match column.column_type {
            ColumnType::Real16 | ColumnType::SplitReal16 => Some(Precision::Half),
            ColumnType::Real32 | ColumnType::SplitReal32 => {
                (primitive == Primitive::Float64).then_some(Precision::Single)
            }
            ColumnType::Real32Trunc => Some(Precision::Truncated { bits }),
            ColumnType::Real32Quant => {
                column.range.map(|(min, max)| Precision::Quantised { bits, min, max })
            }
            _ => None,
        }
    }

    fn collection(&self, id: FieldId, field: &Field, depth: usize) -> Result<FieldKind> {
        let wrappers = ["std::optional<", "std::unique_ptr<"];
        let mut item = self.only_child(id, depth)?;
        if let FieldKind::Record { class, .. } = &mut item.kind {
            *class = item_class(&field.type_name, class);
        }
        Ok(FieldKind::List {
            offsets: self.one_column(id, ColumnType::is_index)?,
            item: item.into(),
            optional: wrappers.iter().any(|wrapper| field.type_name.starts_with(wrapper)),
        })
    }

    /// An object serialised by ROOT's streamer reads as a list of its bytes.
    fn streamed(&self, id: FieldId) -> Result<FieldKind> {
        let (offsets, values) = self.two_columns(id, |of| of == ColumnType::Byte)?;
        let kind = FieldKind::Primitive { primitive: Primitive::Byte, values, precision: None };
        Ok(FieldKind::List {
            offsets,
            item: FieldNode { name: "_0".to_owned(), kind }.into(),
            optional: false,
        })
    }

    fn child_nodes(&self, id: FieldId, depth: usize) -> Result<Vec<FieldNode>> {
        self.children[id as usize].iter().map(|&child| self.node(child, depth + 1)).collect()
    }

    /// The members of a record, those of its base classes among them.
    fn members(&self, id: FieldId, depth: usize) -> Result<Vec<FieldNode>> {
        check_depth(depth)?;
        let mut found = vec![];
        for &child in &self.children[id as usize] {
            let field = &self.schema.fields[child as usize];
            if field.structure == Structure::Record && is_base_class(&field.name) {
                let class = [&field.type_name, &field.name].into_iter().find(|it| !it.is_empty());
                let members = self.members(child, depth + 1)?.into_iter();
                found.extend(members.map(|mut member| {
                    let name = std::mem::take(&mut member.name);
                    InheritedMember { base: class.map(String::as_str), name, member }
                }));
                continue;
            }
            let (name, member) = (field.name.clone(), self.node(child, depth + 1)?);
            found.push(InheritedMember { base: None, name, member });
        }
        let mut left = self.prefix_bytes_left.get();
        let named = with_unique_names(found, &mut left);
        self.prefix_bytes_left.set(left);
        let named = named.ok_or_else(|| {
            Error::unsupported("a schema with more than 16 MiB of base class names")
        })?;
        Ok(named.into_iter().map(|(name, node)| FieldNode { name, ..node }).collect())
    }

    fn variant(&self, id: FieldId, depth: usize) -> Result<FieldKind> {
        let alternatives = self.child_nodes(id, depth)?;
        if alternatives.len() > ALTERNATIVES_MAX {
            return Err(Error::unsupported(format!("a variant of {} types", alternatives.len())));
        }
        let switch = self.one_column(id, |of| of == ColumnType::Switch)?;
        Ok(FieldKind::Variant { switch, alternatives })
    }

    fn only_child(&self, id: FieldId, depth: usize) -> Result<FieldNode> {
        match self.children[id as usize][..] {
            [child] => self.node(child, depth + 1),
            ref children => {
                let name = &self.schema.fields[id as usize].name;
                Err(corrupt(format!("field {name:?} has {} subfields, not 1", children.len())))
            }
        }
    }

    /// The columns of a field that has one in each representation.
    fn one_column(&self, id: FieldId, fits: impl Fn(ColumnType) -> bool) -> Result<Vec<ColumnId>> {
        let columns = self.columns[id as usize].clone();
        self.check_columns(id, &columns, fits)?;
        Ok(columns)
    }

    /// The columns of a field that has an offset column and a data column in each representation.
    fn two_columns(
        &self,
        id: FieldId,
        fits: impl Fn(ColumnType) -> bool,
    ) -> Result<(Vec<ColumnId>, Vec<ColumnId>)> {
        let columns = &self.columns[id as usize];
        let offsets: Vec<_> = columns.iter().copied().step_by(2).collect();
        let data: Vec<_> = columns.iter().copied().skip(1).step_by(2).collect();
        if offsets.len() != data.len() {
            return Err(self.odd_columns(id));
        }
        self.check_columns(id, &offsets, ColumnType::is_index)?;
        self.check_columns(id, &data, fits)?;
        Ok((offsets, data))
    }

    fn check_columns(
        &self,
        id: FieldId,
        columns: &[ColumnId],
        fits: impl Fn(ColumnType) -> bool,
    ) -> Result<()> {
        if columns.is_empty() {
            return Err(self.odd_columns(id));
        }
        for &column in columns {
            match self.schema.columns[column as usize].column_type {
                ColumnType::Unknown(code) => {
                    return Err(Error::unsupported(format!("column type {code:#x}")));
                }
                known if fits(known) => {}
                _ => return Err(self.odd_columns(id)),
            }
        }
        Ok(())
    }

    fn odd_columns(&self, id: FieldId) -> Error {
        let field = &self.schema.fields[id as usize];
        Error::unsupported(format!(
            "field {:?} of type {:?} with unexpected columns",
            field.name, field.type_name
        ))
    }
}

fn check_depth(depth: usize) -> Result<()> {
    if depth > DEPTH_MAX {
        Err(corrupt(format!("fields nest deeper than {DEPTH_MAX}")))
    } else {
        Ok(())
    }
}

fn primitive_named(name: &str) -> Result<Primitive> {
    use Primitive::*;
    [Bool, Byte, Char, Int8, UInt8, Int16, UInt16, Int32, UInt32, Int64, UInt64, Float32, Float64]
        .into_iter()
        .find(|primitive| primitive.cpp_name() == name)
        .ok_or_else(|| Error::unsupported(format!("type {name:?}")))
}

fn corrupt(reason: String) -> Error {
    Error::corrupt("schema description", 0, reason)
}
