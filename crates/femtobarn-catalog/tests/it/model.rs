//! Random histories compared with plain maps: every snapshot that exists shows the map of its commit,
//! whatever was renamed, dropped, tagged, vacuumed or restored since.

use std::collections::BTreeMap;

use femtobarn_catalog::{
    Commit, ContainerId, Csn, DatabaseId, DatabaseState, DroppedDatabase, LocalCatalogue, PinGuard,
    Vacuumed,
};

use crate::federation::{CATALOGUE_URL, container, create, database, version};

/// Containers of a database by name: number, newest version, entries.
type Containers = BTreeMap<String, (ContainerId, Option<Csn>, u64)>;
/// Databases by name.
type State = BTreeMap<String, (DatabaseId, Containers)>;

const NAMES: [&str; 4] = ["a", "b", "c", "d"];

#[test]
fn every_snapshot_shows_the_state_of_its_commit() {
    // PostgreSQL takes some seconds for each seed.
    let seeds = if std::env::var_os(CATALOGUE_URL).is_some() { 1..=2 } else { 1..=5 };
    for seed in seeds {
        let mut history = History::new(seed);
        (0..60).for_each(|_| history.step());
        history.check(&history.catalog);
        let folder = tempfile::tempdir().unwrap();
        let uuid = history.catalog.uuid();
        let restored = LocalCatalogue::create_with(folder.path(), "lhc", uuid).unwrap();
        restored.restore(&history.catalog.contents().unwrap()).unwrap();
        history.check(&restored);
    }
}

struct History {
    seed: u64,
    random: u64,
    catalog: LocalCatalogue,
    /// The state after each commit; the first is that before any commit.
    states: Vec<State>,
    pins: Vec<PinGuard>,
    horizon: Csn,
    /// Tagged or pinned snapshots before the horizon.
    kept: Vec<Csn>,
    _folder: tempfile::TempDir,
}

impl History {
    fn new(seed: u64) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let catalog = create(&folder.path().join("lhc.fed"));
        let states = vec![State::new()];
        let random = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let (pins, horizon, kept) = (vec![], Csn::ZERO, vec![]);
        History { seed, random, catalog, states, pins, horizon, kept, _folder: folder }
    }

    fn below(&mut self, limit: usize) -> usize {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (self.random % limit as u64) as usize
    }

    fn name(&mut self) -> String {
        NAMES[self.below(NAMES.len())].to_owned()
    }

    fn head(&self) -> Csn {
        Csn(self.states.len() as u64 - 1)
    }

    /// A random snapshot that exists, to be tagged or pinned.
    fn some_snapshot(&mut self) -> Option<Csn> {
        let csn = Csn(self.below(self.states.len()) as u64);
        (csn > Csn::ZERO && (csn >= self.horizon || self.kept.contains(&csn))).then_some(csn)
    }

    fn step(&mut self) {
        match self.below(12) {
            0 => self.tag(),
            1 => self.pin(),
            2 => self.vacuum(),
            3 => drop(self.pins.pop()),
            _ => self.commit(),
        }
    }

    fn tag(&mut self) {
        let name = self.name();
        if self.catalog.drop_tag(&name).is_err()
            && let Some(csn) = self.some_snapshot()
        {
            self.catalog.create_tag(&name, csn, "").unwrap();
        }
    }

    fn pin(&mut self) {
        if let Some(csn) = self.some_snapshot() {
            self.pins.push(self.catalog.pin(csn).unwrap());
        }
    }

    fn vacuum(&mut self) {
        let to = Csn(self.below(self.states.len()) as u64);
        let kept = self.catalog.raise_horizon(to).unwrap();
        let tagged = self.catalog.tags().unwrap().into_iter().map(|tag| tag.csn);
        let mut expected: Vec<_> = tagged.chain(self.pins.iter().map(PinGuard::csn)).collect();
        self.horizon = self.horizon.max(to);
        expected.retain(|csn| *csn < self.horizon);
        expected.sort();
        expected.dedup();
        assert_eq!((kept.horizon, &kept.csns), (self.horizon, &expected), "seed {}", self.seed);
        self.kept = expected;
        let purgeable = self.catalog.purgeable(&kept).unwrap();
        let mut versions = Vec::new();
        for record in self.catalog.every_database().unwrap() {
            let (_, unneeded) = self.catalog.versions_by_need(record.row.id, &kept).unwrap();
            versions.extend(unneeded.iter().map(|row| (row.database, row.container, row.csn)));
        }
        let purged_databases = purgeable.databases.iter().map(|record| record.row.id).collect();
        let purged_containers = purgeable.containers;
        let all = Vacuumed { kept, versions, freed: vec![], purged_databases, purged_containers };
        self.catalog.vacuum(&all).unwrap();
    }

    /// Commits one to three changes, each of another database or container.
    fn commit(&mut self) {
        let (mut commit, mut state) = (Commit::default(), self.states.last().unwrap().clone());
        let csn = Csn(self.head().0 + 1);
        let mut touched = Vec::new();
        for _ in 0..=self.below(3) {
            let name = self.name();
            if touched.contains(&name) {
                continue;
            }
            touched.push(name.clone());
            match state.get(&name).cloned() {
                None => {
                    let new = database(&self.catalog, &name, DatabaseState::Open);
                    state.insert(name, (new.id, Containers::new()));
                    commit.new_databases.push(new);
                }
                Some((id, containers)) => match self.below(10) {
                    0 => {
                        let seen = self.head();
                        commit.dropped_databases.push(DroppedDatabase {
                            id,
                            seen,
                            keeps_file: false,
                        });
                        state.remove(&name);
                    }
                    1 => {
                        let new = self.name();
                        if !state.contains_key(&new) && !touched.contains(&new) {
                            touched.push(new.clone());
                            state.remove(&name);
                            state.insert(new.clone(), (id, containers));
                            commit.renamed_databases.push((id, self.head(), new));
                        }
                    }
                    _ => self.change(id, csn, &mut state.get_mut(&name).unwrap().1, &mut commit),
                },
            }
        }
        assert_eq!(self.catalog.commit(commit).unwrap(), csn, "seed {}", self.seed);
        self.states.push(state);
    }

    /// One change within a database.
    fn change(&mut self, id: DatabaseId, csn: Csn, inside: &mut Containers, commit: &mut Commit) {
        let (name, seen) = (self.name(), self.head());
        let Some((number, base, entries)) = inside.get(&name).cloned() else {
            let new = container(&self.catalog, id, &name);
            commit.versions.push(version(id, new.id, None, 1));
            inside.insert(name, (new.id, Some(csn), 1));
            commit.new_containers.push(new);
            return;
        };
        match self.below(6) {
            0 => {
                commit.dropped_containers.push((id, number, seen));
                inside.remove(&name);
            }
            1 => {
                let new = self.name();
                if !inside.contains_key(&new) {
                    let moved = inside.remove(&name).unwrap();
                    inside.insert(new.clone(), moved);
                    commit.renamed_containers.push((id, number, seen, new));
                }
            }
            _ => {
                commit.versions.push(version(id, number, base, entries + 1));
                inside.insert(name, (number, Some(csn), entries + 1));
            }
        }
    }

    fn check(&self, catalog: &LocalCatalogue) {
        let tagged: Vec<_> = catalog.tags().unwrap().into_iter().map(|tag| tag.csn).collect();
        for (csn, state) in (0..).map(Csn).zip(&self.states) {
            let exists = csn >= self.horizon || tagged.contains(&csn) || self.kept.contains(&csn);
            let context = format!("seed {} commit {csn}", self.seed);
            assert_eq!(catalog.snapshot_exists(csn).unwrap(), exists, "{context}");
            if exists {
                assert_eq!(&seen(catalog, csn), state, "{context}");
            }
        }
    }
}

/// The state that a catalogue shows as of a commit.
fn seen(catalog: &LocalCatalogue, at: Csn) -> State {
    let containers = |id| {
        let rows = catalog.containers(id, at).unwrap().into_iter();
        rows.map(|row| {
            assert_eq!(catalog.container(id, &row.name, at).unwrap(), row);
            assert_eq!(catalog.container_by_id(id, row.id, at).unwrap(), row);
            let version = catalog.version(id, row.id, at).unwrap();
            let (csn, entries) = (version.map(|v| v.csn), version.map_or(0, |v| v.entries));
            (row.name, (row.id, csn, entries))
        })
        .collect()
    };
    let rows = catalog.databases(at).unwrap().into_iter();
    rows.map(|row| {
        assert_eq!(catalog.database(&row.name, at).unwrap(), row);
        assert_eq!(catalog.database_by_id(row.id, at).unwrap(), row);
        assert_eq!(catalog.database_by_uuid_at(row.uuid, at).unwrap().as_ref(), Some(&row));
        let id = row.id;
        (row.name, (id, containers(id)))
    })
    .collect()
}
