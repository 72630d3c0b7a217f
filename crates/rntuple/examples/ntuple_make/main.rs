//! Writes RNTuples of every kind, with their values, so that other readers can be compared.
//!
//! ```text
//! cargo run --example ntuple_make -- FOLDER
//! ```
//!
//! Each RNTuple NAME comes with `NAME.jsonl`, an entry a line; `manifest.json` lists them all: name,
//! file, ntuple, values, and the fields that lose precision with the relative error allowed. Two
//! runs write the same values.

#[path = "../json/mod.rs"]
mod json;
mod types;
mod values;

use std::error::Error;
use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;

use json::to_json;
use rntuple::tfile::{FileIdentity, FileWriter, Timestamp};
use rntuple::{Anchor, Appender, Array, Compression, Reader, Type, Value, WriteOptions, Writer};
use serde_json::{Map, Value as Json, json};
use values::Random;

type Outcome<T = ()> = Result<T, Box<dyn Error>>;

const NTUPLE: &str = "ntuple";
const COMPRESSIONS: [(&str, Compression); 3] = [
    ("none", Compression::None),
    ("lz4", Compression::Lz4 { level: 4 }),
    ("zstd", Compression::Zstd { level: 5 }),
];

fn main() -> Outcome {
    let folder = PathBuf::from(std::env::args().nth(1).ok_or("usage: ntuple_make FOLDER")?);
    std::fs::create_dir_all(&folder)?;
    let mut made = Made { folder, listed: vec![] };
    every_type(&mut made)?;
    lossy(&mut made)?;
    many_clusters(&mut made)?;
    large(&mut made)?;
    rows(&mut made)?;
    several(&mut made)?;
    versions(&mut made)?;
    edited(&mut made)?;
    Ok(std::fs::write(made.folder.join("manifest.json"), json!(made.listed).to_string())?)
}

/// The files written so far.
struct Made {
    folder: PathBuf,
    listed: Vec<Json>,
}

impl Made {
    fn path(&self, file: &str) -> PathBuf {
        self.folder.join(format!("{file}.root"))
    }

    /// Writes the values beside the file, and lists both.
    fn keep(&mut self, name: &str, file: &str, ntuple: &str, entries: &[Json]) -> Outcome {
        let lines: String = entries.iter().map(|entry| format!("{entry}\n")).collect();
        let values = format!("{name}.jsonl");
        std::fs::write(self.folder.join(&values), lines)?;
        let file = format!("{file}.root");
        self.listed.push(json!({
            "name": name, "file": file, "ntuple": ntuple, "values": values, "lossy": {}
        }));
        Ok(())
    }

    /// Writes a file of one RNTuple, value by value.
    fn table(&mut self, name: &str, table: &Table, options: WriteOptions) -> Outcome {
        let mut writer = Writer::with_members(&self.path(name), NTUPLE, &table.members, options)?;
        table.rows.iter().try_for_each(|row| writer.append_value(row))?;
        writer.finish()?;
        self.keep(name, name, NTUPLE, &table.json())
    }

    /// Writes a file of one RNTuple as two arrays.
    fn table_by_arrays(&mut self, name: &str, table: &Table, options: WriteOptions) -> Outcome {
        let mut writer = Writer::with_members(&self.path(name), NTUPLE, &table.members, options)?;
        let (first, second) = table.rows.split_at(table.rows.len() / 3);
        for rows in [first, second] {
            writer.append(&array_of(&table.members, rows)?)?;
        }
        writer.finish()?;
        self.keep(name, name, NTUPLE, &table.json())
    }
}

/// Fields and entries.
struct Table {
    members: Vec<(String, Type)>,
    rows: Vec<Value>,
}

impl Table {
    fn random(members: Vec<(String, Type)>, entries: usize) -> Self {
        let mut random = Random(entries as u64);
        let rows = (0..entries).map(|_| random.record(&members)).collect();
        Table { members, rows }
    }

    fn json(&self) -> Vec<Json> {
        self.rows.iter().map(to_json).collect()
    }
}

/// The rows as columns, by writing them to memory and reading them.
fn array_of(members: &[(String, Type)], rows: &[Value]) -> Outcome<Array> {
    let mut memory = Vec::new();
    let (mut appender, header) = Appender::create(&mut memory, "t", members, Default::default())?;
    rows.iter().try_for_each(|row| appender.append_value(&mut memory, row))?;
    let version = appender.finish_version(&mut memory, &Vec::new())?;
    let reader = Reader::from_links(Arc::new(memory), &header, &version.footer)?;
    Ok(reader.read(&reader.select_all(), 0..reader.entries())?)
}

/// Small pages and clusters, so that values of every type cross their boundaries.
fn small(compression: Compression) -> WriteOptions {
    WriteOptions { page_size: 64, cluster_size: 8 << 10, compression }
}

fn every_type(made: &mut Made) -> Outcome {
    let table = Table::random(types::everything(), 40);
    for (name, compression) in COMPRESSIONS {
        made.table(&format!("everything_{name}"), &table, small(compression))?;
        made.table_by_arrays(&format!("everything_by_arrays_{name}"), &table, small(compression))?;
    }
    let default = WriteOptions::default();
    made.table("everything_on_default_pages", &table, default)?;
    made.table("empty", &Table::random(types::everything(), 0), default)
}

fn lossy(made: &mut Made) -> Outcome {
    let fields = types::lossy();
    let members = fields.iter().map(|(name, of, _)| (name.clone(), of.clone())).collect();
    let loss: Map<_, _> = fields.into_iter().map(|(name, _, loss)| (name, json!(loss))).collect();
    let table = Table::random(members, 50);
    for (name, compression) in COMPRESSIONS {
        made.table(&format!("lossy_{name}"), &table, small(compression))?;
        made.table_by_arrays(&format!("lossy_by_arrays_{name}"), &table, small(compression))?;
    }
    for listed in made.listed.iter_mut().rev().take(2 * COMPRESSIONS.len()) {
        listed["lossy"] = Json::Object(loss.clone());
    }
    Ok(())
}

/// Hundreds of clusters in one cluster group; names that are not those of C++ variables.
fn many_clusters(made: &mut Made) -> Outcome {
    let mut members = types::few();
    members[0].0 = "größe".to_owned();
    members[1].0 = "p_T[GeV]".to_owned();
    let table = Table::random(members, 1500);
    for (name, compression) in COMPRESSIONS {
        let options = WriteOptions { page_size: 32, cluster_size: 256, compression };
        made.table(&format!("many_clusters_{name}"), &table, options)?;
    }
    Ok(())
}

/// Lists of a hundred thousand items between empty ones, on many pages.
fn large(made: &mut Made) -> Outcome {
    let mut random = Random(8);
    let row = |at: u64| {
        let items = |random: &mut Random, size| {
            Value::List((0..size).map(|_| Value::Float((random.next() % 1009) as f64)).collect())
        };
        let values = items(&mut random, if at % 3 == 1 { 100_000 } else { 0 });
        let text = Value::String("é".repeat(at as usize * 5_000));
        let id = Value::Int(at as i64);
        let flag = Value::Bool(at % 2 == 1);
        let members = [("id", id), ("values", values), ("text", text), ("flag", flag)];
        Value::Record(members.map(|(name, value)| (name.to_owned(), value)).into())
    };
    let table = Table { members: types::few(), rows: (0..8).map(row).collect() };
    for (name, compression) in COMPRESSIONS {
        let options = WriteOptions { cluster_size: 300_000, compression, ..Default::default() };
        made.table(&format!("large_{name}"), &table, options)?;
    }
    Ok(())
}

rntuple::row! {
    struct Muon { pt: f32, charge: i8, isolated: bool }
}

rntuple::row! {
    struct Event {
        run: u32,
        event: u64,
        name: String,
        muons: Vec<Muon>,
        leading: Muon,
        vertex: [f64; 3],
        weight: Option<f32>,
        triggers: Vec<Vec<u16>>,
    }
}

/// Entries from Rust structures.
fn rows(made: &mut Made) -> Outcome {
    let mut writer = Writer::create::<Event>(&made.path("rows"), NTUPLE, Default::default())?;
    let events: Vec<Event> = (0..300).map(event).collect();
    events.iter().try_for_each(|event| writer.append_row(event))?;
    writer.finish()?;
    made.keep("rows", "rows", NTUPLE, &events.iter().map(event_json).collect::<Vec<_>>())
}

fn event(at: u32) -> Event {
    let muon = |k: u32| Muon { pt: k as f32 + 0.5, charge: -(k as i8), isolated: k > 1 };
    Event {
        run: 7,
        event: u64::MAX - u64::from(at),
        name: format!("event {at}"),
        muons: (0..at % 4).map(muon).collect(),
        leading: muon(at % 100),
        vertex: [at.into(), 0.25, -1.0],
        weight: (at % 3 == 1).then_some(at as f32 / 4.0),
        triggers: (0..at % 5).map(|k| vec![k as u16; k as usize]).collect(),
    }
}

fn event_json(event: &Event) -> Json {
    json!({
        "run": event.run,
        "event": event.event,
        "name": event.name,
        "muons": event.muons.iter().map(muon_json).collect::<Vec<_>>(),
        "leading": muon_json(&event.leading),
        "vertex": event.vertex,
        "weight": event.weight,
        "triggers": event.triggers,
    })
}

fn muon_json(muon: &Muon) -> Json {
    json!({ "pt": muon.pt, "charge": muon.charge, "isolated": muon.isolated })
}

/// Three RNTuples in one file, written in turns.
fn several(made: &mut Made) -> Outcome {
    let names = ["first", "zweites_ünd", "third"];
    let mut file = create(made, "several")?;
    let table = Table::random(types::few(), 90);
    let options = small(Compression::Lz4 { level: 1 });
    let appenders = names.map(|name| Appender::create(&mut file, name, &table.members, options));
    let mut appenders = appenders.into_iter().collect::<Result<Vec<_>, _>>()?;
    for (at, row) in table.rows.iter().enumerate() {
        appenders[at % names.len()].0.append_value(&mut file, row)?;
    }
    let mut anchors = vec![];
    for (name, (appender, header)) in names.iter().zip(&mut appenders) {
        let version = appender.finish_version(&mut file, &Vec::new())?;
        anchors.push(((*name).to_owned(), Anchor::new(*header, version.footer)));
    }
    file.finish(&anchors, Timestamp::default())?;
    for (at, name) in names.iter().enumerate() {
        let entries: Vec<Json> = table.json().into_iter().skip(at).step_by(names.len()).collect();
        made.keep(&format!("several.{at}"), "several", name, &entries)?;
    }
    Ok(())
}

/// One RNTuple in many versions, each appended to the one before after it was read from the file; an early
/// and a middle version have anchors besides the last.
fn versions(made: &mut Made) -> Outcome {
    const VERSIONS: usize = 21;
    let table = Table::random(types::everything(), 3 * VERSIONS);
    let options = WriteOptions { cluster_size: 1000, ..small(Compression::Zstd { level: 1 }) };
    let mut file = create(made, "everything_in_versions")?;
    let source = Arc::new(File::open(made.path("everything_in_versions"))?);
    let (mut appender, header) = Appender::create(&mut file, NTUPLE, &table.members, options)?;
    let mut anchors = vec![];
    for (at, rows) in table.rows.chunks(3).enumerate() {
        rows.iter().try_for_each(|row| appender.append_value(&mut file, row))?;
        let version = appender.finish_version(&mut file, &*source)?;
        let reader = Reader::from_links(source.clone(), &header, &version.footer)?;
        appender = Appender::resume(&reader, options)?;
        if [0, 10, VERSIONS - 1].contains(&at) {
            let (name, ntuple) = (format!("everything_in_versions.{at}"), format!("version_{at}"));
            made.keep(&name, "everything_in_versions", &ntuple, &table.json()[..3 * (at + 1)])?;
            anchors.push((ntuple, Anchor::new(header, version.footer)));
        }
    }
    file.finish(&anchors, Timestamp::default())?;
    Ok(())
}

/// Entries with every field replaced several times, more entries behind them, and a version before the last
/// changes.
fn edited(made: &mut Made) -> Outcome {
    const ENTRIES: usize = 40;
    for (name, compression) in COMPRESSIONS {
        let name = format!("everything_edited_{name}");
        let mut table = Table::random(types::everything(), ENTRIES + 20);
        let options = WriteOptions { cluster_size: 1 << 20, ..small(compression) };
        let mut file = create(made, &name)?;
        let source = File::open(made.path(&name))?;
        let (mut appender, header) = Appender::create(&mut file, NTUPLE, &table.members, options)?;
        let rows = table.rows[..ENTRIES].to_vec();
        rows.iter().try_for_each(|row| appender.append_value(&mut file, row))?;
        appender.savepoint(&mut file)?;
        let mut random = Random(5);
        let mut anchors = vec![];
        for round in 0..3 {
            let entries: Vec<u64> =
                (0..ENTRIES as u64).filter(|at| (at / 3 + round) % 4 == 1).collect();
            let values: Vec<Value> =
                entries.iter().map(|_| random.record(&table.members)).collect();
            let array = array_of(&table.members, &values)?;
            for (field, _) in &table.members {
                let array = array.member(field).ok_or("a table has its fields")?;
                appender.replace(&mut file, &source, field, &entries, array)?;
            }
            entries.iter().zip(values).for_each(|(&at, row)| table.rows[at as usize] = row);
            let version = appender.finish_version(&mut file, &source)?;
            let (ntuple, name_of) = (format!("edit_{round}"), format!("{name}.{round}"));
            made.keep(&name_of, &name, &ntuple, &table.json()[..ENTRIES])?;
            anchors.push((ntuple, Anchor::new(header, version.footer)));
        }
        let rows = &table.rows[ENTRIES..];
        rows.iter().try_for_each(|row| appender.append_value(&mut file, row))?;
        let version = appender.finish_version(&mut file, &source)?;
        made.keep(&format!("{name}.more"), &name, "more", &table.json())?;
        anchors.push(("more".to_owned(), Anchor::new(header, version.footer)));
        file.finish(&anchors, Timestamp::default())?;
    }
    Ok(())
}

fn create(made: &Made, name: &str) -> Outcome<FileWriter<File>> {
    let identity = FileIdentity::new(name, [7; 16], Timestamp::default())?;
    Ok(FileWriter::create(File::create_new(made.path(name))?, identity)?)
}
