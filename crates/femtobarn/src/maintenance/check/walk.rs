//! Walking the stored values of objects, along the types of their fields.

use rntuple::{Array, values_of};

use crate::error::{Error, Result};
use crate::schema::class::Class;
use crate::schema::field_type::FieldType;

/// All values of one type at one place in the objects.
pub(super) struct StoredValues<'a> {
    pub of: &'a FieldType,
    pub array: &'a Array,
    /// For each value the entry of its object.
    pub owners: &'a [u64],
    /// The path of the field.
    pub path: &'a str,
}

/// Called with values; returns whether those inside them are visited, too.
pub(super) type VisitValues<'v> = dyn FnMut(&StoredValues<'_>) -> Result<bool> + 'v;

/// Visits the values of stored objects, from the outside in; `first` is the entry of the first object.
pub(super) fn walk(
    class: &Class,
    objects: &Array,
    first: u64,
    visit: &mut VisitValues<'_>,
) -> Result<()> {
    let owners: Vec<u64> = (first..first + objects.len() as u64).collect();
    for field in &class.fields {
        if let Some(array) = objects.member(&field.name) {
            ValueWalk { visit, path: field.name.clone() }.walk(&field.of, array, &owners)?;
        }
    }
    Ok(())
}

struct ValueWalk<'a, 'v> {
    visit: &'a mut VisitValues<'v>,
    path: String,
}

impl ValueWalk<'_, '_> {
    fn walk(&mut self, of: &FieldType, array: &Array, owners: &[u64]) -> Result<()> {
        if !(self.visit)(&StoredValues { of, array, owners, path: &self.path })? {
            return Ok(());
        }
        match (of, array) {
            (FieldType::Meaning { of, .. }, values) => self.walk(of, values, owners),
            (
                FieldType::List(item) | FieldType::Optional(item),
                Array::List { offsets, content, .. },
            ) => self.walk(item, content, &spread(offsets, content.len(), owners)?),
            (FieldType::Array { of, .. }, Array::Fixed { size, content, .. }) => {
                let size = *size as usize;
                let repeat = owners.iter().flat_map(|owner| std::iter::repeat_n(*owner, size));
                self.walk(of, content, &repeat.collect::<Vec<_>>())
            }
            (FieldType::Record { fields, .. }, records) => {
                for field in fields {
                    let Some(member) = records.member(&field.name) else { continue };
                    let length = self.path.len();
                    self.path.push('.');
                    self.path.push_str(&field.name);
                    self.walk(&field.of, member, owners)?;
                    self.path.truncate(length);
                }
                Ok(())
            }
            (FieldType::Variant(of), Array::Variant { tags, positions, contents }) => {
                self.variant(of, tags, positions, contents, owners)
            }
            _ => Ok(()),
        }
    }

    fn variant(
        &mut self,
        of: &[FieldType],
        tags: &[u8],
        positions: &[u8],
        contents: &[Array],
        owners: &[u64],
    ) -> Result<()> {
        let positions = values_of::<i64>(positions).map_err(Error::storage("variant"))?;
        for (number, (of, content)) in of.iter().zip(contents).enumerate() {
            let mut chosen = vec![0; content.len()];
            for ((tag, position), owner) in tags.iter().zip(positions).zip(owners) {
                let place = usize::try_from(*position).ok().and_then(|at| chosen.get_mut(at));
                if let Some(place) = place.filter(|_| usize::from(*tag) == number) {
                    *place = *owner;
                }
            }
            self.walk(of, content, &chosen)?;
        }
        Ok(())
    }
}

/// The owner of each item of lists.
fn spread(offsets: &[u8], items: usize, owners: &[u64]) -> Result<Vec<u64>> {
    let offsets = values_of::<i64>(offsets).map_err(Error::storage("list"))?;
    let mut spread = vec![0; items];
    for (pair, owner) in offsets.windows(2).zip(owners) {
        let range = usize::try_from(pair[0]).ok().zip(usize::try_from(pair[1]).ok());
        if let Some(places) = range.and_then(|(start, end)| spread.get_mut(start..end)) {
            places.fill(*owner);
        }
    }
    Ok(spread)
}
