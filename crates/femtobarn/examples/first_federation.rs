//! Makes a federation, writes linked objects, seals them into a ROOT file and follows a link.
//!
//! ```text
//! cargo run --example first_federation -- FOLDER
//! ```

use std::error::Error;
use std::path::PathBuf;
use std::time::Duration;

use femtobarn::{Class, Federation, Oid, TransactionOptions};
use rntuple::{Value, row};

row! {
    /// A charged particle.
    struct Track { pt: f32, charge: i32 }
}

row! {
    /// A collision with its tracks.
    struct Event { run: u32, event: u64, tracks: Vec<Track> }
}

const EVENT: &str = r#"{"name": "Event", "version": 1, "fields": [
    {"name": "run", "type": "uint32"},
    {"name": "event", "type": "uint64"},
    {"name": "tracks", "type": {"list": {"record": {"class": "Track", "fields": [
        {"name": "pt", "type": "float32", "description": "GeV"},
        {"name": "charge", "type": "int32"}]}}}}]}"#;

const TAG: &str = r#"{"name": "Tag", "version": 1, "fields": [
    {"name": "tracks", "type": "uint32"},
    {"name": "event", "type": {"link": "Event"}}]}"#;

fn main() -> Result<(), Box<dyn Error>> {
    let folder = std::env::args().nth(1).ok_or("usage: first_federation FOLDER")?;
    let federation = Federation::create(&PathBuf::from(&folder), "example")?;

    let message = "run 7".to_owned();
    let options = TransactionOptions { message, ..Default::default() };
    let mut transaction = federation.transaction(options)?;
    let database = transaction.create_database("run7")?;
    let class = Class::from_json(EVENT)?;
    let events = transaction.create_container(database, "events", &class, Default::default())?;
    let class = Class::from_json(TAG)?;
    let tags = transaction.create_container(database, "tags", &class, Default::default())?;
    for event in 0..100 {
        let track = |n: u64| Track { pt: (event + n) as f32, charge: if n == 0 { 1 } else { -1 } };
        let tracks: Vec<Track> = (0..event % 4).map(track).collect();
        let count = tracks.len() as u64;
        let oid = transaction.rows::<Event>(events)?.append(&Event { run: 7, event, tracks })?;
        transaction.append_value(tags, tag(count, oid))?;
    }
    let csn = transaction.commit()?;
    federation.seal("run7", Duration::from_secs(1))?;

    let snapshot = federation.snapshot(Some(csn))?;
    let tag = snapshot.view("run7/tags")?.value(42)?;
    println!("tag 42: {tag:?}");
    println!("{}", federation.folder().join("databases/run7.root").display());
    Ok(())
}

fn tag(tracks: u64, event: Oid) -> Value {
    let number = |name: &str, value: u64| (name.to_owned(), Value::UInt(value));
    let link = Value::Record(vec![
        number("database", event.database.0.into()),
        number("container", event.container.0.into()),
        number("entry", event.entry),
    ]);
    Value::Record(vec![number("tracks", tracks), ("event".to_owned(), link)])
}
