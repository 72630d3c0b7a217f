//! Compiling a plan: the new schema, and for each new column the old columns whose pages it gets.
//!
//! The columns of the new types come first, in the order of the fields, as for a new RNTuple. Further
//! representations, which only old clusters have, follow.

use super::fill::Fill;
use super::plan::{EvolutionPlan, Map, MemberMap};
use super::widening::{self, Widening};
use crate::error::{Error, Result};
use crate::schema::{Column, ColumnId, Schema};
use crate::tree::{FieldKind, FieldNode, FieldTree};
use crate::types::Primitive;
use crate::writer::WriteOptions;

/// The new column for each representation of an old column, whose pages it gets.
#[derive(Clone, Debug)]
pub(super) struct ColumnMapping {
    /// The first representation of the new field, for elements that no old cluster stores.
    pub first: ColumnId,
    pub new: Vec<ColumnId>,
    pub old: Vec<ColumnId>,
    /// The fill for elements of clusters that are older than the field.
    pub zero: usize,
}

/// Old columns with `size` elements for each value of a field, by which a claimed number of values is
/// checked.
#[derive(Clone, Debug)]
pub(super) struct CountCheck {
    pub columns: Vec<ColumnId>,
    pub size: u64,
}

impl CountCheck {
    pub(super) fn of(node: &FieldNode) -> Self {
        let one = |columns: &Vec<ColumnId>| CountCheck { columns: columns.clone(), size: 1 };
        let none = || CountCheck { columns: vec![], size: 0 };
        match &node.kind {
            FieldKind::Primitive { values, .. } => one(values),
            FieldKind::Bitset { size, bits } => CountCheck { columns: bits.clone(), size: *size },
            FieldKind::String { offsets, .. }
            | FieldKind::List { offsets, .. }
            | FieldKind::Cardinality { offsets, .. } => one(offsets),
            FieldKind::Variant { switch, .. } => one(switch),
            FieldKind::Fixed { size, item } => {
                let CountCheck { columns, size: of_item } = CountCheck::of(item);
                CountCheck { columns, size: of_item.saturating_mul(*size) }
            }
            FieldKind::Record { members, .. } => {
                let checks = members.iter().map(CountCheck::of);
                checks.into_iter().find(|of| !of.columns.is_empty()).unwrap_or_else(none)
            }
        }
    }
}

/// The source of the pages of one field's columns, for each cluster.
#[derive(Clone, Debug)]
pub(super) enum ColumnStep {
    /// One element for each value.
    Keep(ColumnMapping),
    /// `size` elements for each value.
    Bits {
        size: u64,
        bits: ColumnMapping,
    },
    Text {
        offsets: ColumnMapping,
        bytes: ColumnMapping,
    },
    List {
        offsets: ColumnMapping,
        count_check: CountCheck,
        item: Box<ColumnStep>,
    },
    Fixed {
        size: u64,
        item: Box<ColumnStep>,
    },
    Record(Vec<ColumnStep>),
    Variant {
        switch: ColumnMapping,
        items: Vec<ColumnStep>,
    },
    Wrap {
        column: ColumnId,
        fill: usize,
        size: u64,
        item: Box<ColumnStep>,
    },
    Copy {
        column: ColumnId,
        old: Vec<ColumnId>,
        from: Primitive,
    },
    Default(Vec<(ColumnId, usize)>),
}

impl ColumnStep {
    /// Whether the step needs the number of values.
    pub(super) fn counts(&self) -> bool {
        match self {
            ColumnStep::Keep(_) | ColumnStep::Bits { .. } | ColumnStep::Text { .. } => false,
            ColumnStep::List { item, .. } | ColumnStep::Fixed { item, .. } => item.counts(),
            ColumnStep::Record(items) | ColumnStep::Variant { items, .. } => {
                items.iter().any(ColumnStep::counts)
            }
            ColumnStep::Wrap { .. } | ColumnStep::Copy { .. } | ColumnStep::Default(_) => true,
        }
    }
}

/// The new schema, and the steps and fills that make its pages.
pub(super) struct Compiled {
    pub schema: Schema,
    pub steps: Vec<ColumnStep>,
    pub fills: Vec<Fill>,
}

/// Compiles a plan. If the RNTuple `is_empty`, no representations are needed for old clusters.
pub(super) fn compile(
    plan: &EvolutionPlan,
    old: &Schema,
    tree: &FieldTree,
    options: WriteOptions,
    is_empty: bool,
) -> Result<Compiled> {
    let schema = Schema::new(&plan.members, options.encoding())?;
    let nodes = FieldTree::of(&schema)?.nodes;
    let mut compiler = Compiler { old, schema, fills: vec![], options, is_empty };
    let steps = compiler.members(&plan.maps, &tree.nodes, &nodes)?;
    let Compiler { mut schema, fills, .. } = compiler;
    schema.extra = old.extra.clone();
    schema.check()?;
    Ok(Compiled { schema, steps, fills })
}

struct Compiler<'a> {
    old: &'a Schema,
    schema: Schema,
    fills: Vec<Fill>,
    options: WriteOptions,
    is_empty: bool,
}

impl Compiler<'_> {
    fn members(
        &mut self,
        maps: &[MemberMap],
        old: &[FieldNode],
        new: &[FieldNode],
    ) -> Result<Vec<ColumnStep>> {
        let steps = maps.iter().zip(new).map(|(member, new)| match member.source.split_first() {
            None => self.default(&member.map, new),
            Some((&first, rest)) => {
                let source = rest.iter().try_fold(old.get(first), |node, &at| match &node?.kind {
                    FieldKind::Record { members, .. } => Some(members.get(at)),
                    _ => None,
                });
                let source = source.flatten().ok_or_else(|| unlike(new))?;
                self.step(&member.map, source, new)
            }
        });
        steps.collect()
    }

    fn step(&mut self, map: &Map, old: &FieldNode, new: &FieldNode) -> Result<ColumnStep> {
        match (map, &old.kind, &new.kind) {
            (Map::Default(_), ..) => self.default(map, new),
            (Map::Keep, ..) => self.keep(old, new),
            (
                Map::Widen(Widening::Representation),
                FieldKind::Primitive { values: old, primitive, .. },
                FieldKind::Primitive { values, .. },
            ) => {
                if old.iter().any(|&id| widening::stands_alone(self.old_column(id))) {
                    return Ok(ColumnStep::Copy {
                        column: values[0],
                        old: old.clone(),
                        from: *primitive,
                    });
                }
                Ok(ColumnStep::Keep(self.mapping(values[0], old, false)?))
            }
            (
                Map::Widen(Widening::Copy),
                FieldKind::Primitive { values: old, primitive, .. },
                FieldKind::Primitive { values, .. },
            ) => Ok(ColumnStep::Copy { column: values[0], old: old.clone(), from: *primitive }),
            (
                Map::Items(map),
                FieldKind::List { offsets, item, .. },
                FieldKind::List { offsets: to, item: new, .. },
            ) => {
                let (offsets, count_check) =
                    (self.mapping(to[0], offsets, true)?, CountCheck::of(item));
                Ok(ColumnStep::List {
                    offsets,
                    count_check,
                    item: self.step(map, item, new)?.into(),
                })
            }
            (
                Map::Items(map),
                FieldKind::Fixed { size, item },
                FieldKind::Fixed { item: new, .. },
            ) => Ok(ColumnStep::Fixed { size: *size, item: self.step(map, item, new)?.into() }),
            (Map::Wrap(map), _, FieldKind::List { offsets, item: new, .. }) => {
                self.wrap(offsets[0], 1, map, old, new)
            }
            (
                Map::Loosen(map),
                FieldKind::Fixed { size, item: old },
                FieldKind::List { offsets, item: new, .. },
            ) => self.wrap(offsets[0], *size, map, old, new),
            (
                Map::Members(maps),
                FieldKind::Record { members: old, .. },
                FieldKind::Record { members, .. },
            ) => Ok(ColumnStep::Record(self.members(maps, old, members)?)),
            (
                Map::Alternatives(maps),
                FieldKind::Variant { switch, alternatives: old },
                FieldKind::Variant { switch: to, alternatives: new },
            ) => {
                let switch = self.mapping(to[0], switch, true)?;
                let items = maps.iter().zip(new).enumerate();
                let items = items.map(|(at, (map, new))| match old.get(at) {
                    Some(old) => self.step(map, old, new),
                    None => self.default(map, new),
                });
                Ok(ColumnStep::Variant { switch, items: items.collect::<Result<_>>()? })
            }
            _ => Err(unlike(new)),
        }
    }

    /// Keeps a field with all its subfields.
    fn keep(&mut self, old: &FieldNode, new: &FieldNode) -> Result<ColumnStep> {
        match (&old.kind, &new.kind) {
            (FieldKind::Primitive { values: old, .. }, FieldKind::Primitive { values: to, .. }) => {
                Ok(ColumnStep::Keep(self.mapping(to[0], old, true)?))
            }
            (FieldKind::Bitset { size, bits: old }, FieldKind::Bitset { bits: to, .. }) => {
                Ok(ColumnStep::Bits { size: *size, bits: self.mapping(to[0], old, true)? })
            }
            (
                FieldKind::String { offsets: old, bytes: old_bytes },
                FieldKind::String { offsets: to, bytes },
            ) => {
                let [offsets, bytes] =
                    self.mappings([to[0], bytes[0]], [old.as_slice(), old_bytes], true)?;
                Ok(ColumnStep::Text { offsets, bytes })
            }
            (FieldKind::List { .. }, FieldKind::List { .. })
            | (FieldKind::Fixed { .. }, FieldKind::Fixed { .. }) => {
                self.step(&Map::Items(Map::Keep.into()), old, new)
            }
            (FieldKind::Record { members: old, .. }, FieldKind::Record { members: new, .. })
                if old.len() == new.len() =>
            {
                let steps = old.iter().zip(new).map(|(old, new)| self.keep(old, new));
                Ok(ColumnStep::Record(steps.collect::<Result<_>>()?))
            }
            (FieldKind::Variant { alternatives, .. }, FieldKind::Variant { .. }) => {
                self.step(&Map::Alternatives(vec![Map::Keep; alternatives.len()]), old, new)
            }
            _ => Err(unlike(new)),
        }
    }

    fn wrap(
        &mut self,
        column: ColumnId,
        size: u64,
        map: &Map,
        old: &FieldNode,
        new: &FieldNode,
    ) -> Result<ColumnStep> {
        let fill = self.fill(Fill::of_size(&self.schema.columns[column as usize], size)?);
        Ok(ColumnStep::Wrap { column, fill, size, item: self.step(map, old, new)?.into() })
    }

    fn default(&mut self, map: &Map, new: &FieldNode) -> Result<ColumnStep> {
        let Map::Default(value) = map else { return Err(unlike(new)) };
        let fills = Fill::of_value(&new.logical_type(), value, self.options)?;
        let mut columns = vec![];
        columns_below(new, &mut columns);
        if columns.len() != fills.len() {
            return Err(unlike(new));
        }
        let fills = columns.into_iter().zip(fills).map(|(column, fill)| (column, self.fill(fill)));
        Ok(ColumnStep::Default(fills.collect()))
    }

    fn fill(&mut self, fill: Fill) -> usize {
        self.fills.push(fill);
        self.fills.len() - 1
    }

    fn mapping(&mut self, new: ColumnId, old: &[ColumnId], is_same: bool) -> Result<ColumnMapping> {
        let [mapping] = self.mappings([new], [old], is_same)?;
        Ok(mapping)
    }

    /// Maps the columns of one field, one or two, to the old columns in all representations. If the type is
    /// the same, the old representations become the new ones; otherwise they follow the representation of
    /// the new type.
    fn mappings<const N: usize>(
        &mut self,
        new: [ColumnId; N],
        old: [&[ColumnId]; N],
        is_same: bool,
    ) -> Result<[ColumnMapping; N]> {
        let same_encoding = |(&new, old): (&ColumnId, &&[ColumnId])| {
            let (new, old) = (&self.schema.columns[new as usize], self.old_column(old[0]));
            (new.column_type, new.bits, new.range) == (old.column_type, old.bits, old.range)
        };
        let replaces = is_same || new.iter().zip(&old).all(same_encoding);
        let mut mappings =
            new.map(|first| ColumnMapping { first, new: vec![], old: vec![], zero: 0 });
        let representations = if self.is_empty { usize::from(replaces) } else { old[0].len() };
        for representation in 0..representations {
            for (mapping, old) in mappings.iter_mut().zip(&old) {
                let id = *old.get(representation).ok_or_else(|| Error::invalid("odd columns"))?;
                let column = Column {
                    field: self.schema.columns[mapping.first as usize].field,
                    representation: (representation + usize::from(!replaces)) as u16,
                    first_element: None,
                    ..self.old_column(id).clone()
                };
                mapping.old.push(id);
                if column.representation == 0 {
                    mapping.new.push(mapping.first);
                    self.schema.columns[mapping.first as usize] = column;
                } else {
                    mapping.new.push(self.schema.columns.len() as ColumnId);
                    self.schema.columns.push(column);
                }
            }
        }
        for mapping in &mut mappings {
            mapping.zero = self.fill(Fill::of_zero(&self.schema.columns[mapping.first as usize])?);
        }
        Ok(mappings)
    }

    fn old_column(&self, id: ColumnId) -> &Column {
        &self.old.columns[id as usize]
    }
}

/// The columns of a field and its subfields in a schema that has one representation of each.
fn columns_below(node: &FieldNode, columns: &mut Vec<ColumnId>) {
    match &node.kind {
        FieldKind::Primitive { values, .. } => columns.push(values[0]),
        FieldKind::Bitset { bits, .. } => columns.push(bits[0]),
        FieldKind::String { offsets, bytes } => columns.extend([offsets[0], bytes[0]]),
        FieldKind::List { offsets, item, .. } => {
            columns.push(offsets[0]);
            columns_below(item, columns);
        }
        FieldKind::Fixed { item, .. } => columns_below(item, columns),
        FieldKind::Record { members, .. } => {
            members.iter().for_each(|of| columns_below(of, columns))
        }
        FieldKind::Variant { switch, alternatives } => {
            columns.push(switch[0]);
            alternatives.iter().for_each(|of| columns_below(of, columns));
        }
        FieldKind::Cardinality { offsets, .. } => columns.push(offsets[0]),
    }
}

fn unlike(node: &FieldNode) -> Error {
    Error::invalid(format!("the plan does not match field {:?} of the RNTuple", node.name))
}
