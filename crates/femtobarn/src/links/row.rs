//! [`Link`] and [`ElementLink`]: links as members of Rust rows.
//!
//! In memory a link has the number of its target's database in the federation; stored it has the database's position in
//! the container's list of linked databases (see `translate`). Before a row is written, the writer visits its links
//! (`visit_renumbered`) and lists new databases, so `put` only looks positions up.

use femtobarn_catalog::{ContainerId, DatabaseId, Oid};
use rntuple::{Cell, CellType, FromCell, Renumbering, RowReader, RowWriter, Type};

use crate::schema::field_type::FieldType;

/// A link to an object, or the null link, as a member of rows.
///
/// ```
/// use femtobarn::Link;
///
/// rntuple::row! {
///     struct Track { momentum: [f32; 3], vertex: Link, hits: Vec<Link> }
/// }
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Link(Oid);

/// A link to one element of a collection in an object, or the null link, as a member of rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ElementLink {
    link: Link,
    element: u32,
}

impl Link {
    /// The null link.
    pub const NULL: Link =
        Link(Oid { database: DatabaseId(0), container: ContainerId(0), entry: 0 });

    /// The object; `None` for the null link.
    #[inline]
    pub fn object(&self) -> Option<Oid> {
        (!self.is_null()).then_some(self.0)
    }

    #[inline]
    fn is_null(&self) -> bool {
        self.0.container.0 == 0
    }

    #[inline]
    fn stored_database(&self, by: &Renumbering) -> u32 {
        if self.is_null() { 0 } else { by.stored(self.0.database.0) }
    }
}

impl From<Oid> for Link {
    #[inline]
    fn from(object: Oid) -> Self {
        Link(object)
    }
}

impl ElementLink {
    /// The null link.
    pub const NULL: ElementLink = ElementLink { link: Link::NULL, element: 0 };

    /// The link to an element of an object.
    #[inline]
    pub fn new(object: Oid, element: u32) -> Self {
        ElementLink { link: object.into(), element }
    }

    /// The object and the element's index; `None` for the null link.
    #[inline]
    pub fn element(&self) -> Option<(Oid, u32)> {
        self.link.object().map(|object| (object, self.element))
    }
}

impl CellType for Link {
    const COLUMNS: usize = 3;

    fn cell_type() -> Type {
        FieldType::Link(String::new()).row_type()
    }
}

impl Cell for Link {
    const IS_RENUMBERED: bool = true;

    #[inline]
    fn visit_renumbered(&self, visit: &mut impl FnMut(u32)) {
        if !self.is_null() {
            visit(self.0.database.0);
        }
    }

    #[inline]
    fn put(&self, row: &mut RowWriter<'_>) -> rntuple::Result<()> {
        put_links(std::iter::once(*self), row)
    }

    #[inline]
    fn put_all(links: &[Self], row: &mut RowWriter<'_>) -> rntuple::Result<()> {
        put_links(links.iter().copied(), row)
    }
}

impl CellType for ElementLink {
    const COLUMNS: usize = 4;

    fn cell_type() -> Type {
        FieldType::ElementLink(String::new()).row_type()
    }
}

impl Cell for ElementLink {
    const IS_RENUMBERED: bool = true;

    #[inline]
    fn visit_renumbered(&self, visit: &mut impl FnMut(u32)) {
        self.link.visit_renumbered(visit);
    }

    #[inline]
    fn put(&self, row: &mut RowWriter<'_>) -> rntuple::Result<()> {
        Self::put_all(std::slice::from_ref(self), row)
    }

    #[inline]
    fn put_all(links: &[Self], row: &mut RowWriter<'_>) -> rntuple::Result<()> {
        put_links(links.iter().map(|link| link.link), row)?;
        row.put_each(links.iter().map(|link| link.element))
    }
}

impl FromCell for Link {
    #[inline]
    fn get(row: &mut RowReader<'_>, index: u64) -> rntuple::Result<Self> {
        let (database, container) = (row.number(index)?, row.number(index)?);
        let entry = row.number(index)?;
        Ok(match container {
            0 => Link::NULL,
            _ => Link(Oid {
                database: DatabaseId(row.original_number(database)?),
                container: ContainerId(container),
                entry,
            }),
        })
    }
}

impl FromCell for ElementLink {
    #[inline]
    fn get(row: &mut RowReader<'_>, index: u64) -> rntuple::Result<Self> {
        Ok(ElementLink { link: Link::get(row, index)?, element: row.number(index)? })
    }
}

#[inline]
fn put_links(
    links: impl Iterator<Item = Link> + Clone,
    row: &mut RowWriter<'_>,
) -> rntuple::Result<()> {
    let by = row.renumbering();
    row.put_each(links.clone().map(|link| link.stored_database(by)))?;
    row.put_each(links.clone().map(|Link(object)| object.container.0))?;
    row.put_each(links.map(|Link(object)| object.entry))
}
