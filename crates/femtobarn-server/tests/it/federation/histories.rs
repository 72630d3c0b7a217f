//! Random histories of a database: the presented file has the objects that the engine reads.

use std::sync::Arc;

use femtobarn::{CompactOptions, ContainerKey, ContainerOptions, Csn, Transaction, VacuumOptions};
use femtobarn_server::physical::StoredFile;
use rntuple::{Reader, Value};

use super::{Stage, all_of, class, entries, event, events};

const STEPS: u64 = 60;

/// Random numbers from a seed.
struct Chance(u64);

impl Chance {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.0 >> 33) % end
    }
}

/// An open file, with the commit that it shows and its bytes.
struct Held {
    csn: Csn,
    file: Arc<dyn StoredFile>,
    bytes: Arc<Vec<u8>>,
}

fn change(transaction: &mut Transaction, key: ContainerKey, chance: &mut Chance) {
    let count = transaction.entries(key).unwrap();
    let first = chance.below(count.max(1));
    let some: Vec<u64> = (first..count.min(first + 1 + chance.below(60))).collect();
    match chance.below(4) {
        0 | 1 => {
            for n in count..count + chance.below(400) {
                transaction.append_value(key, event(n)).unwrap();
            }
        }
        2 => drop(transaction.delete(key, &some)),
        _ => {
            let values: Vec<u64> = some.iter().map(|n| n + 5 * chance.below(1000) + 3).collect();
            // This fails if one of the entries is deleted.
            drop(transaction.update(key, &some, events(&values)));
        }
    }
}

fn step(stage: &Stage, chance: &mut Chance) {
    match chance.below(8) {
        0 => {
            let keep_from = Some(stage.federation.head().unwrap());
            let options = VacuumOptions { keep_from, ..VacuumOptions::default() };
            stage.federation.vacuum(&options, &mut |_| true).unwrap();
        }
        1 => {
            let options = CompactOptions::default();
            stage.federation.compact("run7", &options, &mut |_| true).unwrap();
        }
        _ => {
            let mut transaction = stage.begin();
            let database = transaction.database("run7").unwrap();
            for name in ["events", "others"] {
                let key = transaction.container(database, name).unwrap();
                change(&mut transaction, key, chance);
            }
            match chance.below(6) {
                0 => transaction.rollback(),
                _ => drop(transaction.commit().unwrap()),
            }
        }
    }
}

/// The objects of a container in a file that are not deleted.
fn live(bytes: &Arc<Vec<u8>>, name: &str) -> Vec<Value> {
    let reader = Reader::open(bytes.clone(), name).unwrap();
    let without_mark = |entry: Value| {
        let Value::Record(mut members) = entry else { panic!("an entry is a record") };
        match members.iter().position(|(name, _)| name == "_deleted") {
            Some(at) if members[at].1 == Value::Bool(true) => return None,
            Some(at) => drop(members.remove(at)),
            None => {}
        }
        Some(Value::Record(members))
    };
    entries(&reader).into_iter().filter_map(without_mark).collect()
}

fn assert_shown(stage: &Stage, held: &Held, seed: u64) {
    let snapshot = stage.federation.snapshot(Some(held.csn)).unwrap();
    for name in ["events", "others"] {
        let view = snapshot.view(&format!("run7/{name}")).unwrap();
        let array = view.read(&view.select_all(), 0..view.entries()).unwrap();
        let expected: Vec<Value> = (0..array.len()).map(|at| array.value(at).unwrap()).collect();
        assert!(live(&held.bytes, name) == expected, "{name} at {}, seed {seed}", held.csn);
    }
}

#[test]
fn the_presented_file_has_the_objects_that_the_engine_reads() {
    for seed in 1..=4 {
        let mut chance = Chance(seed);
        let stage = Stage::new().with_ten_events();
        let mut transaction = stage.begin();
        let database = transaction.database("run7").unwrap();
        let small = ContainerOptions { page_size: 4096, cluster_size: 4096, ..Default::default() };
        transaction.create_container(database, "others", &class(), small).unwrap();
        transaction.commit().unwrap();
        let mut held: Vec<Held> = vec![];
        for _ in 0..STEPS {
            step(&stage, &mut chance);
            let csn = stage.federation.head().unwrap();
            let file = stage.open("/run7.root", &format!("fb.csn={csn}")).unwrap();
            let bytes = Arc::new(all_of(&*file));
            held.push(Held { csn, file, bytes });
            assert_shown(&stage, &held[held.len() - 1], seed);
            if held.len() > 5 {
                held.remove(chance.below(6) as usize);
            }
        }
        for old in &held {
            assert!(all_of(&*old.file) == *old.bytes, "the open file changed, seed {seed}");
            assert_shown(&stage, old, seed);
        }
    }
}
