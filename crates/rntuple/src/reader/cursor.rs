//! Entries as Rust structures, one at a time.
//!
//! A cursor holds the pages that it has read from, so that a number costs a division, a comparison
//! and a copy: no lock, no counting of references, no memory.
//!
//! Invariants:
//! 1. `plan` has the columns of the structure, depth first, as `FromCell::get` goes through them.
//! 2. As of [`held`](super::held).

use std::marker::PhantomData;
use std::ops::Deref;

use super::Reader;
use super::held::{AccessPattern, HeldPages, PlannedColumn};
use super::row::FromCell;
use crate::column::Element;
use crate::error::{Error, Result};
use crate::schema::ColumnId;
use crate::tree::{FieldKind, FieldNode};
use crate::types::{Primitive, Type};

/// Reads entries as values of `R`; `D` leads to the reader.
///
/// ```no_run
/// rntuple::row! {
///     struct Muon { pt: f32, charge: i8 }
/// }
/// # fn main() -> rntuple::Result<()> {
/// # let file = std::fs::File::open("muons.root").expect("the file exists");
/// let reader = rntuple::Reader::open(std::sync::Arc::new(file), "muons")?;
/// let mut muons = reader.cursor::<Muon>()?;
/// println!("{}", muons.get(17)?.pt);
/// # Ok(())
/// # }
/// ```
pub struct Cursor<R, D> {
    pages: HeldPages<D>,
    of: PhantomData<fn() -> R>,
}

impl Reader {
    /// A cursor that reads entries as Rust structures. The structure's members are found among the
    /// fields by their names; there may be fewer of them, in any order.
    ///
    /// # Errors
    /// [`Error::NotFound`] if a member is no field, [`Error::Invalid`] if one is of another type.
    pub fn cursor<R: FromCell>(&self) -> Result<Cursor<R, &Self>> {
        Cursor::new(self)
    }
}

impl<R: FromCell, D: Deref<Target = Reader>> Cursor<R, D> {
    /// As [`Reader::cursor`], with what leads to the reader.
    ///
    /// # Errors
    /// As [`Reader::cursor`].
    pub fn new(reader: D) -> Result<Self> {
        let Type::Record { members, .. } = R::cell_type() else {
            return Err(Error::invalid("entries are read as structures, which row! declares"));
        };
        let mut plan = vec![];
        plan_members(&members, &reader.tree().nodes, false, &mut plan)?;
        Ok(Cursor { pages: HeldPages::new(reader, plan), of: PhantomData })
    }

    /// Says what is meant by the numbers that stand in the file for others, from 0 on: the mirror
    /// image of [`Renumbering`](crate::Renumbering).
    #[must_use]
    pub fn with_numbers(mut self, numbers: Vec<u32>) -> Self {
        self.pages.numbers = numbers;
        self
    }

    /// Reads entries that mostly follow each other: what it has read it lets go of, and leaves the
    /// cache to others.
    #[must_use]
    pub fn forward(mut self) -> Self {
        self.pages.pattern = AccessPattern::Sequential;
        self
    }

    /// Bytes of the pages that it holds.
    pub fn held_bytes(&self) -> u64 {
        self.pages.held
    }

    /// The reader.
    pub fn reader(&self) -> &Reader {
        &self.pages.reader
    }

    /// One entry.
    ///
    /// # Errors
    /// [`Error::NotFound`] if there is no such entry, [`Error::Corrupt`] if what is stored is damaged.
    #[inline]
    pub fn get(&mut self, entry: u64) -> Result<R> {
        let (mut row, index) = self.pages.row(entry)?;
        R::get(&mut row, index)
    }
}

/// `is_referenced`: whether they are members of items.
fn plan_members(
    members: &[(String, Type)],
    nodes: &[FieldNode],
    is_referenced: bool,
    plan: &mut Vec<PlannedColumn>,
) -> Result<()> {
    members.iter().try_for_each(|(name, of)| {
        let node = nodes.iter().find(|node| node.name == *name).ok_or_else(|| Error::NotFound {
            what: "field",
            name: name.clone(),
            candidates: nodes.iter().map(|node| node.name.clone()).collect(),
        })?;
        plan_field(of, node, is_referenced, plan)
    })
}

fn plan_field(
    of: &Type,
    node: &FieldNode,
    is_referenced: bool,
    plan: &mut Vec<PlannedColumn>,
) -> Result<()> {
    let mut add = |columns: &[ColumnId], element, is_referenced| {
        plan.push(PlannedColumn { columns: columns.to_vec(), element, is_referenced });
    };
    match (of, &node.kind) {
        (Type::Primitive(of), FieldKind::Primitive { primitive, values, .. })
            if of == primitive || is_byte(*of) && is_byte(*primitive) =>
        {
            add(values, of.element(), is_referenced);
        }
        (Type::String, FieldKind::String { offsets, bytes }) => {
            add(offsets, Element::U64, is_referenced);
            add(bytes, Element::U8, true);
        }
        // What is at most one may be stored as a list; it is looked at when it is read.
        (Type::List(of), FieldKind::List { offsets, item, optional: false })
        | (Type::Optional(of), FieldKind::List { offsets, item, .. }) => {
            add(offsets, Element::U64, is_referenced);
            plan_field(of, item, true, plan)?;
        }
        (Type::Array { item: of, size }, FieldKind::Fixed { size: stored, item })
            if size == stored =>
        {
            plan_field(of, item, is_referenced, plan)?;
        }
        (Type::Array { item: of, size }, FieldKind::Bitset { size: stored, bits })
            if size == stored && **of == Type::Primitive(Primitive::Bool) =>
        {
            add(bits, Element::U8, is_referenced);
        }
        (Type::Record { members, .. }, FieldKind::Record { members: nodes, .. }) => {
            plan_members(members, nodes, is_referenced, plan)?;
        }
        _ => {
            let stored = node.logical_type();
            let what = format!("field {:?} is of type {stored:?}, not {of:?}", node.name);
            return Err(Error::invalid(what));
        }
    }
    Ok(())
}

fn is_byte(primitive: Primitive) -> bool {
    matches!(primitive, Primitive::Byte | Primitive::Char | Primitive::UInt8)
}
