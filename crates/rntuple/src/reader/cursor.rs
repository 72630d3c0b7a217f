//! [`Cursor`]: entries as Rust structures, one at a time. It holds the pages that it reads from.
//!
//! **Invariant:** `plan` has the columns of the structure, depth first, in the order in which
//! `FromCell::get` reads them.

use std::marker::PhantomData;
use std::ops::Deref;

use super::Reader;
use super::held_pages::{AccessPattern, HeldPages, PlannedColumn};
use super::row::FromCell;
use crate::column::Element;
use crate::error::{Error, Result};
use crate::schema::ColumnId;
use crate::tree::{FieldKind, FieldNode};
use crate::types::{Primitive, Type};

/// Reads entries as values of `R`; `D` dereferences to the reader.
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
    /// A cursor that reads entries as Rust structures. Members are matched to fields by name; the
    /// structure may have fewer members than there are fields, in any order.
    ///
    /// # Errors
    /// [`Error::NotFound`] if a member has no field, [`Error::Invalid`] if a field is of another type.
    pub fn cursor<R: FromCell>(&self) -> Result<Cursor<R, &Self>> {
        Cursor::new(self)
    }
}

impl<R: FromCell, D: Deref<Target = Reader>> Cursor<R, D> {
    /// A cursor over `reader`, which may be owned or shared; see [`Reader::cursor`].
    ///
    /// # Errors
    /// [`Error::NotFound`] if a member has no field, [`Error::Invalid`] if a field is of another type.
    pub fn new(reader: D) -> Result<Self> {
        let Type::Record { members, .. } = R::cell_type() else {
            return Err(Error::invalid("entries are read as structures, which row! declares"));
        };
        let mut plan = vec![];
        plan_members(&members, &reader.tree().nodes, false, &mut plan)?;
        Ok(Cursor { pages: HeldPages::new(reader, plan), of: PhantomData })
    }

    /// Sets the original numbers of the numbers that the file stores instead, which count from 0: the
    /// inverse of [`Renumbering`](crate::Renumbering).
    #[must_use]
    pub fn with_numbers(mut self, numbers: Vec<u32>) -> Self {
        self.pages.numbers = numbers;
        self
    }

    /// Optimises for ascending entries: the cursor reads ahead, drops pages behind the current entry and
    /// does not fill the reader's cache.
    #[must_use]
    pub fn forward(mut self) -> Self {
        self.pages.pattern = AccessPattern::Sequential;
        self
    }

    /// Bytes of the pages that the cursor holds.
    pub fn held_bytes(&self) -> u64 {
        self.pages.held
    }

    /// The reader.
    pub fn reader(&self) -> &Reader {
        &self.pages.reader
    }

    /// Reads one entry.
    ///
    /// # Errors
    /// [`Error::NotFound`] if the entry does not exist, [`Error::Corrupt`] if its pages are damaged,
    /// [`Error::Io`] if the source cannot be read.
    #[inline]
    pub fn get(&mut self, entry: u64) -> Result<R> {
        let (mut row, index) = self.pages.row(entry)?;
        R::get(&mut row, index)
    }
}

/// Adds the columns of members to the plan; `is_referenced` if they are members of items.
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
        // An optional value may be stored as a list; its length is checked when it is read.
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
