//! All global tags, payload types and payload lists as of a commit.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;

use femtobarn::{ContainerId, Csn, DatabaseId, Result};

use super::answers::not_found;
use super::names;
use crate::global_tag::{GlobalTag, SeriesVersion, TagChange};
use crate::series_tables::{RowsByCommit, SeriesRow, SeriesTable, SeriesTables};

/// A federation's conditions as nopayloaddb shows them.
pub(super) struct TagOverview {
    pub csn: Csn,
    pub tags: BTreeMap<String, TagLists>,
    /// Types by path.
    pub types: Arc<PayloadRows>,
    /// Lists that belong to no tag, by path.
    pub detached: Arc<PayloadRows>,
    /// The commit that changed a global tag last.
    last_change: Option<Csn>,
    table: Arc<SeriesTable>,
}

/// The catalogue's row of the series of a type or a list.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct PayloadRow {
    /// The number of its container; `None` if a type has no container.
    pub id: Option<u32>,
    pub created: Csn,
    /// Conditions, including those that newer ones hide.
    pub conditions: u64,
    /// Its database, its container, and the commit that made its version.
    pub version: Option<(DatabaseId, ContainerId, Csn)>,
}

impl From<&SeriesRow> for PayloadRow {
    fn from(row: &SeriesRow) -> Self {
        PayloadRow {
            id: Some(row.container.0),
            created: row.created,
            conditions: row.live,
            version: Some((row.database, row.container, row.version)),
        }
    }
}

type PayloadRows = BTreeMap<Arc<str>, PayloadRow>;

/// A global tag and its lists, by the path of their types.
pub(super) struct TagLists {
    pub tag: Arc<GlobalTag>,
    pub lists: Arc<BTreeMap<Arc<str>, ListOfTag>>,
}

/// The version of a series that a tag names.
#[derive(Clone, Debug)]
pub(super) struct ListOfTag {
    pub name: Arc<str>,
    /// The container.
    pub path: Arc<str>,
    /// The commit as of which it is read; `None` if it follows the newest.
    pub csn: Option<Csn>,
    pub row: PayloadRow,
}

/// A list that a client names.
pub(super) struct NamedList<'a> {
    /// The tag that it belongs to.
    pub tag: Option<&'a TagLists>,
    pub type_path: String,
    pub list: ListOfTag,
}

impl TagOverview {
    /// The overview as of the newest commit. Unchanged parts are taken from `old`.
    pub(super) fn read(tables: &SeriesTables, old: Option<&Self>) -> Result<Self> {
        let snapshot = tables.federation().snapshot(None)?;
        let last_change = GlobalTag::last_change(&snapshot)?;
        let table = tables.at(&snapshot)?;
        let old = old.filter(|old| old.last_change == last_change);
        if let Some(old) = old
            && table.rows.keys().eq(old.table.rows.keys())
        {
            return Ok(old.with_versions(table));
        }
        let mut rows = RowsByCommit::new(tables, &[&snapshot]);
        let tags = match old {
            Some(old) => old.tags.values().map(|lists| lists.tag.clone()).collect(),
            None => {
                // Clients of nopayloaddb know no branches, so branches with conditions of their own are not shown.
                let mut tags = GlobalTag::all(&snapshot)?;
                tags.retain(|tag| tag.series.values().all(|it| it.branches.is_empty()));
                tags.into_iter().map(Arc::new).collect::<Vec<_>>()
            }
        };
        let listed = ListedPaths::of(&tags);
        let mut types: PayloadRows =
            listed.types.iter().map(|path| (path.clone(), PayloadRow::default())).collect();
        let mut detached = PayloadRows::new();
        for (path, row) in series_of(&table) {
            if listed.is_type(path, &table) {
                types.insert(path.clone(), row.into());
            } else if !listed.sources.contains(path) {
                detached.insert(path.clone(), row.into());
            }
        }
        let with_lists = tags.into_iter().map(|tag| {
            let lists = lists_of(&tag, table.csn, &listed, &mut rows)?;
            Ok((tag.name.clone(), TagLists { tag, lists: Arc::new(lists) }))
        });
        let tags = with_lists.collect::<Result<_>>()?;
        let (types, detached) = (Arc::new(types), Arc::new(detached));
        Ok(TagOverview { csn: table.csn, tags, types, detached, last_change, table })
    }

    /// The same tags, types and lists, with the versions of a newer table of the same series.
    fn with_versions(&self, table: Arc<SeriesTable>) -> Self {
        let pairs = self.table.rows.iter().zip(&table.rows);
        let changed = pairs.filter(|((_, old), (_, new))| old != new);
        let changed: Vec<(&Arc<str>, PayloadRow)> =
            changed.map(|(_, (path, new))| (path, PayloadRow::from(new))).collect();
        let updated = |rows: &Arc<PayloadRows>| {
            let mut rows = rows.clone();
            for (path, new) in &changed {
                if rows.contains_key(*path) {
                    Arc::make_mut(&mut rows).insert((*path).clone(), *new);
                }
            }
            rows
        };
        let by_path: BTreeMap<&str, PayloadRow> =
            changed.iter().map(|(path, row)| (&***path, *row)).collect();
        let tags = self.tags.iter().map(|(name, of)| (name.clone(), of.with_rows(&by_path)));
        TagOverview {
            csn: table.csn,
            tags: tags.collect(),
            types: updated(&self.types),
            detached: updated(&self.detached),
            last_change: self.last_change,
            table,
        }
    }

    /// A global tag.
    ///
    /// # Errors
    /// `NotFound` if there is none of that name.
    pub(super) fn tag(&self, name: &str) -> Result<&TagLists> {
        self.tags.get(name).ok_or_else(|| {
            let known: Vec<&str> = self.tags.keys().map(String::as_str).collect();
            let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
            not_found(format!("global tag {name:?} does not exist; existing global tags: {known}"))
        })
    }

    /// A payload list by its name.
    ///
    /// # Errors
    /// `NotFound` if there is none of that name.
    pub(super) fn list(&self, name: &str) -> Result<NamedList<'_>> {
        let path = names::path_of(name);
        let of_tags =
            || self.tags.values().flat_map(|tag| tag.lists.iter().map(move |list| (tag, list)));
        if let Some((tag, (of, list))) = of_tags().find(|(_, (_, list))| &*list.name == name) {
            let (type_path, list) = (of.to_string(), list.clone());
            return Ok(NamedList { tag: Some(tag), type_path, list });
        }
        if let Some(row) = self.detached.get(&*path) {
            let type_path = names::type_of_list(&path).unwrap_or(&path).to_owned();
            let list = ListOfTag { name: name.into(), path: path.into(), csn: None, row: *row };
            return Ok(NamedList { tag: None, type_path, list });
        }
        // The name of the list before its tag got a list of its own.
        let shared = names::shared_list_parts(name);
        let found = shared.and_then(|(of, tag)| {
            let (tag, of) = (self.tags.get(tag)?, names::path_of(of));
            let list = tag.lists.get(&*of)?.clone();
            Some(NamedList { tag: Some(tag), type_path: of, list })
        });
        found.ok_or_else(|| not_found(format!("payload list {name:?} does not exist")))
    }

    /// A payload type by its name.
    ///
    /// # Errors
    /// `NotFound` if there is none of that name.
    pub(super) fn type_row(&self, name: &str) -> Result<(String, PayloadRow)> {
        let path = names::path_of(name);
        let row = self.types.get(&*path).copied();
        row.map(|row| (path, row))
            .ok_or_else(|| not_found(format!("payload type {name:?} does not exist")))
    }
}

impl TagLists {
    /// The same lists, with these rows for lists that follow the newest commit.
    fn with_rows(&self, rows: &BTreeMap<&str, PayloadRow>) -> Self {
        let mut lists = self.lists.clone();
        if !rows.is_empty() {
            let follows = |list: &ListOfTag| list.csn.is_none() && rows.contains_key(&*list.path);
            let changed: Vec<Arc<str>> = self
                .lists
                .iter()
                .filter(|(_, list)| follows(list))
                .map(|(of, _)| of.clone())
                .collect();
            for of in changed {
                if let Some(list) = Arc::make_mut(&mut lists).get_mut(&of) {
                    list.row = rows[&*list.path];
                }
            }
        }
        TagLists { tag: self.tag.clone(), lists }
    }

    /// The change after which the tag reads the newest version of `source` for a type, and all other types as before.
    pub(super) fn following(&self, type_path: &str, source: &str) -> TagChange {
        let mut change = TagChange::default();
        if self.tag.csn.is_some() {
            let fixed = |list: &ListOfTag, of: &str| SeriesVersion {
                csn: list.csn,
                source: (&*list.path != of).then(|| list.path.to_string()),
                ..Default::default()
            };
            change.csn = Some(None);
            change.only_listed = Some(true);
            change.set =
                self.lists.iter().map(|(of, list)| (of.to_string(), fixed(list, of))).collect();
        }
        let source = Some(source.to_owned());
        change.set.insert(type_path.to_owned(), SeriesVersion { source, ..Default::default() });
        change
    }

    /// The conditions of all its lists, including those that newer ones hide.
    pub(super) fn conditions(&self) -> u64 {
        self.lists.values().map(|list| list.row.conditions).sum()
    }
}

/// The series of a table, without the containers of branches.
fn series_of(table: &SeriesTable) -> impl Iterator<Item = (&Arc<str>, &SeriesRow)> {
    table.rows.iter().filter(|(_, row)| !row.options.is_branch)
}

/// The paths that global tags list.
struct ListedPaths {
    types: BTreeSet<Arc<str>>,
    /// Containers that are read instead of a type's own.
    sources: HashSet<Arc<str>>,
}

impl ListedPaths {
    fn of(tags: &[Arc<GlobalTag>]) -> Self {
        let listed = || tags.iter().flat_map(|tag| &tag.series);
        let types: BTreeSet<Arc<str>> = listed().map(|(path, _)| path.as_str().into()).collect();
        let sources = listed().filter_map(|(_, version)| version.source.as_deref());
        let sources = sources.filter(|path| !types.contains(*path)).map(Arc::from).collect();
        ListedPaths { types, sources }
    }

    /// Whether clients see a series as a type, rather than as a list of another type.
    fn is_type(&self, path: &str, all: &SeriesTable) -> bool {
        let is_series = |path: &str| all.rows.get(path).is_some_and(|it| !it.options.is_branch);
        let is_list =
            || self.sources.contains(path) || names::type_of_list(path).is_some_and(is_series);
        self.types.contains(path) || !is_list()
    }
}

fn lists_of(
    tag: &GlobalTag,
    head: Csn,
    listed: &ListedPaths,
    rows: &mut RowsByCommit<'_>,
) -> Result<BTreeMap<Arc<str>, ListOfTag>> {
    let mut versions: BTreeMap<Arc<str>, SeriesVersion> = BTreeMap::new();
    // A tag whose snapshot was given up has no table. A client that asks for it gets an error; other tags are not
    // affected.
    if !tag.only_listed
        && let Some(all) = rows.table(tag.csn.unwrap_or(head))?
    {
        let types = series_of(&all).filter(|(path, _)| listed.is_type(path, &all));
        versions.extend(types.map(|(path, _)| (path.clone(), SeriesVersion::default())));
    }
    versions.extend(tag.series.iter().map(|(path, it)| (path.as_str().into(), it.clone())));
    let list = |(of, version): (Arc<str>, SeriesVersion)| {
        let csn = version.csn.or(tag.csn);
        let type_name = names::name_of(&of);
        let name = match &version.source {
            Some(source) if csn.is_none() => names::name_of(source),
            _ => names::shared_list(&type_name, &tag.name),
        };
        let path = version.source.map_or_else(|| of.clone(), Arc::from);
        let row = rows.find(csn.unwrap_or(head), &path)?;
        let row = row.filter(|row| !row.options.is_branch);
        let row = row.as_ref().map(PayloadRow::from).unwrap_or_default();
        Ok((of, ListOfTag { name: name.into(), path, csn, row }))
    };
    versions.into_iter().map(list).collect()
}
