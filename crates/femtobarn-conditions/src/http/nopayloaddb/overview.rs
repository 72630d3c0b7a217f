//! All global tags, payload types and payload lists as of a commit.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::rc::Rc;

use femtobarn::{ContainerOptions, ContainerRow, Csn, ErrorKind, Federation, Result, Snapshot};

use super::answers::not_found;
use super::names;
use crate::global_tag::{GlobalTag, SeriesVersion, TagChange};

/// A federation's conditions as nopayloaddb shows them.
pub(super) struct TagOverview {
    pub csn: Csn,
    pub tags: BTreeMap<String, TagLists>,
    /// Types by path.
    pub types: SeriesRows,
    /// Lists that belong to no tag, by path.
    pub detached: SeriesRows,
}

/// What the catalogue says of a series.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct SeriesRow {
    /// The number of its container; none if a type has none.
    pub id: Option<u32>,
    pub created: Csn,
    /// Conditions, with those that newer ones hide.
    pub conditions: u64,
}

type SeriesRows = BTreeMap<String, SeriesRow>;

/// A global tag and its lists, by the path of their types.
pub(super) struct TagLists {
    pub tag: GlobalTag,
    pub lists: BTreeMap<String, ListOfTag>,
}

/// The version of a series that a tag names.
#[derive(Clone, Debug)]
pub(super) struct ListOfTag {
    pub name: String,
    /// The container.
    pub path: String,
    /// The commit as of which it is read; none if it follows the newest one.
    pub csn: Option<Csn>,
    pub row: SeriesRow,
}

/// A list that a client names.
pub(super) struct NamedList<'a> {
    /// The tag that it belongs to.
    pub tag: Option<&'a TagLists>,
    pub type_path: String,
    pub list: ListOfTag,
}

impl TagOverview {
    /// That of the newest commit.
    pub(super) fn read(federation: &Federation) -> Result<Self> {
        let snapshot = federation.snapshot(None)?;
        let csn = snapshot.csn();
        // Its clients have no branches; those that were given conditions are not shown as what they are based on.
        let mut tags = GlobalTag::all(&snapshot)?;
        tags.retain(|tag| tag.series.values().all(|version| version.branches.is_empty()));
        let mut rows = RowsByCommit { federation, known: HashMap::new() };
        let now = rows.at(csn)?;
        let listed = ListedPaths::of(&tags);
        let mut types: SeriesRows =
            listed.types.iter().map(|path| (path.clone(), SeriesRow::default())).collect();
        let mut detached = SeriesRows::new();
        for (path, row) in &*now {
            if listed.is_type(path, &now) {
                types.insert(path.clone(), *row);
            } else if !listed.sources.contains(path) {
                detached.insert(path.clone(), *row);
            }
        }
        let with_lists = tags.into_iter().map(|tag| {
            let lists = lists_of(&tag, csn, &listed, &mut rows)?;
            Ok((tag.name.clone(), TagLists { tag, lists }))
        });
        Ok(TagOverview { csn, tags: with_lists.collect::<Result<_>>()?, types, detached })
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
        if let Some((tag, (of, list))) = of_tags().find(|(_, (_, list))| list.name == name) {
            return Ok(NamedList { tag: Some(tag), type_path: of.clone(), list: list.clone() });
        }
        if let Some(row) = self.detached.get(&path) {
            let type_path = names::type_of_list(&path).unwrap_or(&path).to_owned();
            let list = ListOfTag { name: name.to_owned(), path, csn: None, row: *row };
            return Ok(NamedList { tag: None, type_path, list });
        }
        // What a list was called before its tag got one of its own.
        let shared = names::shared_list_parts(name);
        let found = shared.and_then(|(of, tag)| {
            let (tag, of) = (self.tags.get(tag)?, names::path_of(of));
            let list = tag.lists.get(&of)?.clone();
            Some(NamedList { tag: Some(tag), type_path: of, list })
        });
        found.ok_or_else(|| not_found(format!("payload list {name:?} does not exist")))
    }

    /// A payload type by its name.
    ///
    /// # Errors
    /// `NotFound` if there is none of that name.
    pub(super) fn type_row(&self, name: &str) -> Result<(String, SeriesRow)> {
        let path = names::path_of(name);
        let row = self.types.get(&path).copied();
        row.map(|row| (path, row))
            .ok_or_else(|| not_found(format!("payload type {name:?} does not exist")))
    }
}

impl TagLists {
    /// The change after which the tag reads the newest version of `source` as a type, and everything else as before.
    pub(super) fn following(&self, type_path: &str, source: &str) -> TagChange {
        let mut change = TagChange::default();
        if self.tag.csn.is_some() {
            let fixed = |list: &ListOfTag, of: &str| SeriesVersion {
                csn: list.csn,
                source: (list.path != of).then(|| list.path.clone()),
                ..Default::default()
            };
            change.csn = Some(None);
            change.only_listed = Some(true);
            change.set =
                self.lists.iter().map(|(of, list)| (of.clone(), fixed(list, of))).collect();
        }
        let source = Some(source.to_owned());
        change.set.insert(type_path.to_owned(), SeriesVersion { source, ..Default::default() });
        change
    }

    /// All conditions of its lists, with those that newer ones hide.
    pub(super) fn conditions(&self) -> u64 {
        self.lists.values().map(|list| list.row.conditions).sum()
    }
}

/// The paths that global tags list.
struct ListedPaths {
    types: BTreeSet<String>,
    /// Containers that are read instead of a type's own.
    sources: BTreeSet<String>,
}

impl ListedPaths {
    fn of(tags: &[GlobalTag]) -> Self {
        let listed = || tags.iter().flat_map(|tag| &tag.series);
        let types: BTreeSet<String> = listed().map(|(path, _)| path.clone()).collect();
        let sources = listed().filter_map(|(_, version)| version.source.clone());
        ListedPaths { sources: sources.filter(|path| !types.contains(path)).collect(), types }
    }

    /// Whether a series is one that clients see as a type, and not a list of another.
    fn is_type(&self, path: &str, all: &SeriesRows) -> bool {
        let is_list = || {
            self.sources.contains(path)
                || names::type_of_list(path).is_some_and(|of| all.contains_key(of))
        };
        self.types.contains(path) || !is_list()
    }
}

fn lists_of(
    tag: &GlobalTag,
    head: Csn,
    listed: &ListedPaths,
    rows: &mut RowsByCommit<'_>,
) -> Result<BTreeMap<String, ListOfTag>> {
    let mut versions: BTreeMap<String, SeriesVersion> = BTreeMap::new();
    if !tag.only_listed {
        let all = rows.at(tag.csn.unwrap_or(head))?;
        let types = all.keys().filter(|path| listed.is_type(path, &all));
        versions.extend(types.map(|path| (path.clone(), SeriesVersion::default())));
    }
    versions.extend(tag.series.clone());
    let list = |(of, version): (String, SeriesVersion)| {
        let csn = version.csn.or(tag.csn);
        let type_name = names::name_of(&of);
        let name = match &version.source {
            Some(source) if csn.is_none() => names::name_of(source),
            _ => names::shared_list(&type_name, &tag.name),
        };
        let path = version.source.unwrap_or_else(|| of.clone());
        let row = rows.at(csn.unwrap_or(head))?.get(&path).copied().unwrap_or_default();
        Ok((of, ListOfTag { name, path, csn, row }))
    };
    versions.into_iter().map(list).collect()
}

/// The series of a federation as of several commits.
struct RowsByCommit<'a> {
    federation: &'a Federation,
    known: HashMap<Csn, Rc<SeriesRows>>,
}

impl RowsByCommit<'_> {
    fn at(&mut self, csn: Csn) -> Result<Rc<SeriesRows>> {
        if let Some(rows) = self.known.get(&csn) {
            return Ok(rows.clone());
        }
        let rows = match self.federation.snapshot(Some(csn)) {
            Ok(snapshot) => self.read(&snapshot)?,
            // The snapshot was given up. Who asks for a tag that names it is told; other tags are as they are.
            Err(error) if error.kind() == ErrorKind::NotFound => SeriesRows::new(),
            Err(error) => return Err(error),
        };
        let rows = Rc::new(rows);
        self.known.insert(csn, rows.clone());
        Ok(rows)
    }

    fn read(&self, snapshot: &Snapshot) -> Result<SeriesRows> {
        let mut rows = SeriesRows::new();
        for database in snapshot.databases()? {
            let is_series = |container: &ContainerRow| {
                ContainerOptions::from_json(&container.options)
                    .is_ok_and(|it| it.series.is_some_and(|series| !series.is_branch))
            };
            let mut series = snapshot.containers(database.id)?;
            series.retain(is_series);
            if series.is_empty() {
                continue;
            }
            let versions =
                self.federation.catalog().newest_versions(database.id, snapshot.csn())?;
            let live: HashMap<_, _> =
                versions.iter().map(|it| (it.container, it.entries - it.deleted)).collect();
            for container in series {
                let row = SeriesRow {
                    id: Some(container.id.0),
                    created: container.created,
                    conditions: live.get(&container.id).copied().unwrap_or(0),
                };
                rows.insert(format!("{}/{}", database.name, container.name), row);
            }
        }
        Ok(rows)
    }
}
