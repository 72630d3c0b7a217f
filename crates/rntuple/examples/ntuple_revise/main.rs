//! Writes RNTuples that were evolved, compacted or completed, with their values, so that other readers can
//! be compared.
//!
//! ```text
//! cargo run --example ntuple_revise -- FOLDER
//! ```
//!
//! Files and `manifest.json` have the form of those of `ntuple_make`.

#[path = "../json/mod.rs"]
mod json;
#[path = "../ntuple_make/values.rs"]
mod values;

use std::error::Error;
use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;

use json::to_json;
use rntuple::tfile::{FileIdentity, FileWriter, Timestamp};
use rntuple::{
    Anchor, Appender, Compaction, Compression, EnvelopeLink, NewMember, Precision, Primitive,
    Reader, Type, Value, WriteOptions, compact, complete, evolve, plan,
};
use serde_json::{Value as Json, json};
use values::Random;

type Outcome<T = ()> = Result<T, Box<dyn Error>>;

const NTUPLE: &str = "ntuple";
const OPTIONS: [(&str, Compression); 2] =
    [("plain", Compression::None), ("split", Compression::Zstd { level: 1 })];

fn main() -> Outcome {
    let folder = PathBuf::from(std::env::args().nth(1).ok_or("usage: ntuple_revise FOLDER")?);
    std::fs::create_dir_all(&folder)?;
    let mut listed = vec![];
    for (name, compression) in OPTIONS {
        let options = WriteOptions { page_size: 64, cluster_size: 2 << 10, compression };
        let mut made = |name: &str, work: fn(&mut Work) -> Outcome| {
            listed.push(make(&folder, name, options, work)?);
            Outcome::Ok(())
        };
        made(&format!("widened_{name}"), widened)?;
        made(&format!("evolved_{name}"), evolved)?;
        made(&format!("completed_{name}"), completed)?;
        made(&format!("completed_widened_{name}"), completed_widened)?;
        made(&format!("completed_by_compaction_{name}"), compacted)?;
    }
    Ok(std::fs::write(folder.join("manifest.json"), json!(listed).to_string())?)
}

/// Writes a file in which only the last version has an anchor.
fn make(
    folder: &std::path::Path,
    name: &str,
    options: WriteOptions,
    work: fn(&mut Work) -> Outcome,
) -> Outcome<Json> {
    let path = folder.join(format!("{name}.root"));
    let identity = FileIdentity::new(name, [8; 16], Timestamp::default())?;
    let file = FileWriter::create(File::create_new(&path)?, identity)?;
    let source = Arc::new(File::open(&path)?);
    let (header, footer) = (EnvelopeLink::default(), EnvelopeLink::default());
    let mut made = Work { file, source, options, header, footer, random: Random(11) };
    work(&mut made)?;
    let reader = made.reader()?;
    let array = reader.read(&reader.select_all(), 0..reader.entries())?;
    let rows = (0..array.len()).map(|entry| Ok(format!("{}\n", to_json(&array.value(entry)?))));
    let rows = rows.collect::<rntuple::Result<String>>()?;
    std::fs::write(folder.join(format!("{name}.jsonl")), rows)?;
    let Work { file, header, footer, .. } = made;
    file.finish(&[(NTUPLE.to_owned(), Anchor::new(header, footer))], Timestamp::default())?;
    Ok(json!({
        "name": name, "file": format!("{name}.root"), "ntuple": NTUPLE,
        "values": format!("{name}.jsonl"), "lossy": {}
    }))
}

/// An RNTuple in its newest version.
struct Work {
    file: FileWriter<File>,
    source: Arc<File>,
    options: WriteOptions,
    header: EnvelopeLink,
    footer: EnvelopeLink,
    random: Random,
}

impl Work {
    fn create(&mut self, members: &[(String, Type)], entries: usize) -> Outcome {
        let (appender, header) = Appender::create(&mut self.file, NTUPLE, members, self.options)?;
        self.header = header;
        self.fill(appender, members, entries)
    }

    fn append(&mut self, entries: usize) -> Outcome {
        let reader = self.reader()?;
        let appender = Appender::resume(&reader, self.options)?;
        self.fill(appender, &reader.members(), entries)
    }

    fn fill(
        &mut self,
        mut appender: Appender,
        members: &[(String, Type)],
        entries: usize,
    ) -> Outcome {
        for _ in 0..entries {
            appender.append_value(&mut self.file, &self.random.record(members))?;
        }
        self.footer = appender.finish_version(&mut self.file, &*self.source)?.footer;
        Ok(())
    }

    fn evolve(&mut self, members: &[NewMember]) -> Outcome {
        let reader = self.reader()?;
        let evolved = evolve(&reader, &mut self.file, members, self.options)?;
        (self.header, self.footer) = (evolved.header, evolved.footer);
        Ok(())
    }

    fn complete(&mut self, deleted: &[std::ops::Range<u64>]) -> Outcome {
        let reader = self.reader()?;
        let current = Anchor::new(self.header, self.footer);
        let anchor = complete(&reader, &mut self.file, &current, deleted, self.options)?.anchor;
        (self.header, self.footer) = (anchor.header, anchor.footer);
        Ok(())
    }

    fn compact(&mut self, dead: &[std::ops::Range<u64>], all: bool) -> Outcome {
        let options = WriteOptions { cluster_size: 8 << 10, ..self.options };
        let (reader, compaction) = (self.reader()?, Compaction { options, dead, all });
        let revised = compact(&reader, &mut self.file, self.footer, &compaction, &mut |_| ())?;
        self.footer = revised.footer;
        Ok(())
    }

    fn reader(&self) -> rntuple::Result<Reader> {
        Reader::from_links(self.source.clone(), &self.header, &self.footer)
    }
}

fn numbers() -> Vec<Type> {
    use Primitive::{Bool, Byte, Char, Float32, Float64};
    use Primitive::{Int8, Int16, Int32, Int64, UInt8, UInt16, UInt32, UInt64};
    let primitives = [
        Bool, Byte, Char, Int8, UInt8, Int16, UInt16, Int32, UInt32, Int64, UInt64, Float32,
        Float64,
    ];
    let mut types: Vec<Type> = primitives.into_iter().map(Type::Primitive).collect();
    for of in [Float32, Float64] {
        for precision in [
            Precision::Half,
            Precision::Truncated { bits: 20 },
            Precision::Quantised { bits: 13, min: -8.0, max: 8.0 },
        ] {
            types.push(Type::Reduced(of, precision));
        }
    }
    types.push(Type::Reduced(Float64, Precision::Single));
    types.push(Type::Reduced(Float32, Precision::Truncated { bits: 25 }));
    types
}

/// Every type of numbers widened to every wider type, at the top and in lists, with entries of both.
fn widened(work: &mut Work) -> Outcome {
    let (mut old, mut new) = (vec![], vec![]);
    for (at, narrow) in numbers().into_iter().enumerate() {
        for (to, wide) in numbers().into_iter().enumerate().filter(|(_, wide)| *wide != narrow) {
            let name = format!("n{at}_{to}");
            let member = NewMember::same(&name, wide.clone());
            let of_one = Type::Record {
                class: String::new(),
                members: vec![(name.clone(), narrow.clone())],
            };
            if plan(&of_one, std::slice::from_ref(&member)).is_err() {
                continue;
            }
            let list = format!("l{at}_{to}");
            old.push((name, narrow.clone()));
            old.push((list.clone(), Type::List(narrow.clone().into())));
            new.push(member);
            new.push(NewMember::same(&list, Type::List(wide.into())));
        }
    }
    work.create(&old, 20)?;
    work.evolve(&new)?;
    work.append(20)
}

/// All clusters rewritten, so that one representation of each number is left.
fn completed_widened(work: &mut Work) -> Outcome {
    widened(work)?;
    work.complete(&[])
}

/// Small clusters of two types are merged, with some dead entries; then all clusters are rewritten.
fn compacted(work: &mut Work) -> Outcome {
    evolved(work)?;
    for _ in 0..5 {
        work.append(3)?;
    }
    work.compact(&[2..4, 50..60], false)?;
    work.append(5)?;
    work.compact(&[], true)
}

/// Collections change their sizes in the middle, so that later element offsets are wrong; then deletions.
fn completed(work: &mut Work) -> Outcome {
    evolved(work)?;
    let reader = work.reader()?;
    let others = reader.read(&reader.select(&["particles"])?, 20..24)?;
    let others = others.member("particles").ok_or("particles are read")?;
    let mut appender = Appender::resume(&reader, work.options)?;
    appender.replace(&mut work.file, &*work.source, "particles", &[3, 4, 30, 55], others)?;
    work.footer = appender.finish_version(&mut work.file, &*work.source)?.footer;
    work.complete(&[3..5, 10..11, 40..60, 79..80])
}

fn record(members: &[(&str, Type)]) -> Type {
    let members = members.iter().map(|(name, of)| ((*name).to_owned(), of.clone())).collect();
    Type::Record { class: String::new(), members }
}

/// Fields of every kind are added, removed, moved and wrapped in lists, twice.
fn evolved(work: &mut Work) -> Outcome {
    let number = Type::Primitive;
    let (int, double) = (number(Primitive::Int32), number(Primitive::Float64));
    let hit = record(&[("x", number(Primitive::Float32)), ("layer", number(Primitive::UInt8))]);
    let track = record(&[("pt", number(Primitive::Float32)), ("hits", Type::List(hit.into()))]);
    let old = [
        ("id", number(Primitive::UInt16)),
        ("name", Type::String),
        ("flag", number(Primitive::Bool)),
        ("either", Type::Variant(vec![int.clone(), Type::String])),
        ("tracks", Type::List(track.into())),
        ("vertex", record(&[("x", double.clone()), ("y", double.clone())])),
        ("pair", Type::Array { item: int.clone().into(), size: 2 }),
    ];
    work.create(&old.map(|(name, of)| (name.to_owned(), of)), 40)?;

    let note = Value::String("none".to_owned());
    let hit = record(&[("layer", int.clone()), ("charge", double.clone()), ("x", double.clone())]);
    let track = record(&[
        ("hits", Type::List(hit.clone().into())),
        ("p", number(Primitive::Float32)),
        ("note", Type::String),
    ]);
    let tracks =
        NewMember::was("particles", Type::List(track.clone().into()), "tracks").with(vec![
            NewMember::same("hits", Type::List(hit.into())).with(vec![NewMember::added(
                "charge",
                double.clone(),
                Some(Value::Float(-1.5)),
            )]),
            NewMember::was("p", number(Primitive::Float32), "pt"),
            NewMember::added("note", Type::String, Some(note.clone())),
        ]);
    let words = Type::List(Type::String.into());
    let members = vec![
        NewMember::same(
            "vertex",
            Type::List(record(&[("x", double.clone()), ("y", double.clone())]).into()),
        ),
        NewMember::added(
            "words",
            words,
            Some(Value::List(vec![note.clone(), Value::String(String::new())])),
        ),
        tracks,
        NewMember::was("title", Type::List(Type::String.into()), "name"),
        NewMember::same("pair", Type::List(int.clone().into())),
        NewMember::same(
            "either",
            Type::Variant(vec![number(Primitive::Int64), Type::String, double]),
        ),
        NewMember::was("number", number(Primitive::UInt32), "id"),
        NewMember::same("flag", Type::List(number(Primitive::Bool).into())),
        NewMember::added("bits", Type::Bitset { size: 9 }, None),
        NewMember::added("weight", number(Primitive::Float32), Some(Value::Float(1.0))),
    ];
    work.evolve(&members)?;
    work.append(30)?;
    let again: Vec<NewMember> = members
        .into_iter()
        .rev()
        .filter(|member| !["words", "flag"].contains(&member.name.as_str()))
        .map(|member| match member.name.as_str() {
            "number" => NewMember::same("number", number(Primitive::Int64)),
            name => NewMember::same(name, member.of),
        })
        .collect();
    work.evolve(&again)?;
    work.append(10)
}
