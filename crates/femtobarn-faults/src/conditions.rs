//! A workload on conditions and global tags, and the expected answers after each step.
//!
//! 1. After a crash, a federation answers as after the acknowledged steps, or as after one more, in every global tag.
//! 2. Then conditions can be put and tags made, and a frozen tag answers as before.

use std::path::Path;

use femtobarn::{
    CheckLevel, Class, ContainerKey, ContainerOptions, Csn, Error, ErrorKind, Federation, Result,
    Severity, Transaction,
};
use femtobarn_conditions::{
    GlobalTag, GlobalTagState, Job, JobOptions, Series, TagChange, series_class,
};
use rntuple::{Array, Primitive, Value};

use crate::crash::in_memory;
use crate::script::{Runner, ScriptStep};
use crate::verify::{Acknowledged, say};
use crate::workload::Workload;

/// The workload's name.
pub const NAME: &str = "conditions";

const DATABASE: &str = "tpc";
const SERIES: &str = "tpc/gain";
/// The moments of the look-ups.
const MOMENTS: std::ops::Range<i64> = 0..12;
const CHANNELS: [i64; 2] = [0, 3];
const FOREVER: i64 = i64::MAX;

/// The steps, each of which is acknowledged as a whole.
const STEPS: [fn(&Federation) -> Result<()>; 14] = [
    |it| put(it, 0, 0, FOREVER, 1.0),
    |it| put(it, 0, 2, 6, 2.0),
    |it| put(it, 3, 1, 9, 3.0),
    |it| replace(it, 0, "until", Array::primitive(Primitive::Int64, vec![8_i64])),
    |it| replace(it, 1, "value", Array::primitive(Primitive::Float64, vec![2.5_f64])),
    |it| tag(it, "prod", TagChange { create: Some(None), ..TagChange::default() }),
    |it| put(it, 0, 4, 5, 4.0),
    |it| state(it, "prod", GlobalTagState::Frozen),
    |it| tag(it, "dev", TagChange { create: Some(None), branch: true, ..TagChange::default() }),
    |it| put_in_branch(it, "dev", 1, 3, 5.0),
    |it| put(it, 3, 0, 12, 6.0),
    |it| put_in_branch(it, "dev", 6, 9, 7.0),
    |it| tag(it, "next", TagChange { create: Some(Some("dev".into())), ..TagChange::default() }),
    |it| state(it, "next", GlobalTagState::Deleted),
];
/// Before these steps the federation is closed and opened again.
const REOPENED_BEFORE: [usize; 2] = [7, 11];

/// The answers of every global tag, and of a look-up without a tag; an entry for each.
pub type Answers = Vec<String>;

/// The workload, with the answers of a federation without faults: after no step, after the first one, and so on.
pub struct ConditionsWorkload {
    expected: Vec<Answers>,
}

impl ConditionsWorkload {
    /// Runs the workload once.
    ///
    /// # Errors
    /// A text for errors of the engine.
    pub fn new() -> std::result::Result<Self, String> {
        let folder = in_memory()?;
        let mut workload = ConditionsWorkload { expected: vec![vec!["none".to_owned()]] };
        let runner = Runner::create(&folder.path().join("fed"));
        let mut runner = runner.map_err(say("the workload fails"))?;
        for step in 0..STEPS.len() {
            workload.run(&mut runner, step).map_err(say("the workload fails"))?;
            let found = answers(runner.federation()).map_err(say("no answers"))?;
            workload.expected.push(found);
        }
        Ok(workload)
    }
}

impl Workload for ConditionsWorkload {
    fn steps(&self) -> usize {
        STEPS.len()
    }

    fn run(&self, runner: &mut Runner, step: usize) -> Result<Option<Csn>> {
        if REOPENED_BEFORE.contains(&step) {
            runner.run(&ScriptStep::Reopen)?;
        }
        STEPS[step](runner.federation()).map(|()| None)
    }

    fn is_after(&self, federation: &Federation, steps: usize) -> std::result::Result<bool, String> {
        let found = answers(federation).map_err(say("no answers"))?;
        Ok(self.expected.get(steps) == Some(&found))
    }

    fn verify(
        &self,
        folder: &Path,
        acknowledged: &Acknowledged,
        thorough: bool,
    ) -> std::result::Result<(), String> {
        let federation = match Federation::open(folder) {
            Err(error) if !acknowledged.is_created && error.kind() == ErrorKind::NotFound => {
                let created = Federation::create(folder, "test");
                return created.map(drop).map_err(say("cannot create it again"));
            }
            opened => opened.map_err(say("cannot open it"))?,
        };
        let steps = acknowledged.steps.len();
        let found = answers(&federation).map_err(say("no answers"))?;
        let possible = &self.expected[steps..self.expected.len().min(steps + 2)];
        if !possible.contains(&found) {
            return Err(format!("after {steps} steps: expected {possible:?}, found {found:?}"));
        }
        let level = if thorough { CheckLevel::Full } else { CheckLevel::Quick };
        let report = federation.check(level, &mut |_| true).map_err(say("cannot check it"))?;
        if let Some(problem) =
            report.problems.iter().find(|problem| problem.severity == Severity::Damage)
        {
            return Err(format!("check finds: {problem}"));
        }
        go_on(&federation, &found)
    }
}

/// Puts a condition and makes a tag; answers of frozen tags must not change.
fn go_on(federation: &Federation, before: &Answers) -> std::result::Result<(), String> {
    put(federation, 0, 0, FOREVER, 9.0).map_err(say("cannot put a condition"))?;
    let new = TagChange { create: Some(None), ..TagChange::default() };
    tag(federation, "after", new).map_err(say("cannot make a tag"))?;
    let after = answers(federation).map_err(say("no answers afterwards"))?;
    let is_frozen = |answer: &&String| answer.starts_with("prod frozen");
    if before.iter().find(is_frozen) != after.iter().find(is_frozen) {
        return Err(format!("a frozen tag changes from {before:?} to {after:?}"));
    }
    let newest = after
        .iter()
        .any(|answer| answer.starts_with("after open") && answer.contains("Float(9.0)"));
    if !newest {
        return Err(format!("the new condition is not found: {after:?}"));
    }
    let opened = state(federation, "prod", GlobalTagState::Open);
    let kind = opened.as_ref().err().map(Error::kind);
    let is_right = match before.iter().find(is_frozen) {
        Some(_) => kind == Some(ErrorKind::Denied),
        None => matches!(kind, None | Some(ErrorKind::NotFound)),
    };
    if is_right { Ok(()) } else { Err(format!("of {before:?}, opening prod gives {opened:?}")) }
}

fn answers(federation: &Federation) -> Result<Answers> {
    let snapshot = federation.snapshot(None)?;
    let tags = GlobalTag::all(&snapshot)?;
    let named = tags.iter().map(|tag| (Some(tag.name.clone()), tag.state.name()));
    [(None, "")]
        .into_iter()
        .chain(named)
        .map(|(tag, state)| {
            let job = Job::open(federation, &JobOptions { global_tag: tag.clone(), csn: None })?;
            let series = match job.series(SERIES) {
                Err(error) if error.kind() == ErrorKind::NotFound => return Ok("none".to_owned()),
                series => series?,
            };
            let moments =
                CHANNELS.into_iter().flat_map(|channel| MOMENTS.map(move |at| (channel, at)));
            let values = moments.map(|(channel, at)| value(&series, channel, at));
            let values = values.collect::<Result<Vec<_>>>()?;
            let text = format!("{} {state}: {}", tag.unwrap_or_default(), values.join(" "));
            Ok(text)
        })
        .collect()
}

/// The value that is valid at a moment; `-` if there is none.
fn value(series: &Series, channel: i64, at: i64) -> Result<String> {
    let Some(entry) = series.at(channel, at)?.entry else { return Ok("-".to_owned()) };
    let fetched = series.fetch(&["value"], &[entry])?.value(0);
    match fetched.map_err(|source| Error::Storage { what: SERIES.to_owned(), source })? {
        Value::Record(fields) => Ok(fields.iter().map(|(_, value)| format!("{value:?}")).collect()),
        other => Ok(format!("{other:?}")),
    }
}

fn put(federation: &Federation, channel: i64, since: i64, until: i64, value: f64) -> Result<()> {
    let mut transaction = federation.transaction(Default::default())?;
    let database = transaction.database_or_new(DATABASE, None)?;
    let key = match transaction.find_container(database, "gain")? {
        Some(_) => transaction.container(database, "gain")?,
        None => {
            let payload = r#"{"name": "Gain", "version": 1, "fields": [{"name": "value", "type": "float64"}]}"#;
            let class = series_class(&Class::from_json(payload)?)?;
            let options =
                ContainerOptions { series: Some(Default::default()), ..Default::default() };
            transaction.create_container(database, "gain", &class, options)?
        }
    };
    append(&mut transaction, key, [since, until, channel], None, value)?;
    transaction.commit().map(drop)
}

fn put_in_branch(
    federation: &Federation,
    tag: &str,
    since: i64,
    until: i64,
    value: f64,
) -> Result<()> {
    let mut transaction = federation.transaction(Default::default())?;
    let branch = GlobalTag::open_branch(&mut transaction, tag, SERIES)?;
    let (_, name) = crate::script::split(&branch.container);
    let database = transaction.database(DATABASE)?;
    let key = transaction.container(database, name)?;
    append(&mut transaction, key, [since, until, 0], Some(-1), value)?;
    transaction.commit().map(drop)
}

fn append(
    transaction: &mut Transaction,
    key: ContainerKey,
    [since, until, channel]: [i64; 3],
    replaced: Option<i64>,
    value: f64,
) -> Result<()> {
    let integer =
        |name: &str, value: i64| (name.to_owned(), Array::primitive(Primitive::Int64, vec![value]));
    let mut members =
        vec![integer("since", since), integer("until", until), integer("channel", channel)];
    members.extend(replaced.map(|entry| integer("replaced_entry", entry)));
    members.push(("value".to_owned(), Array::primitive(Primitive::Float64, vec![value])));
    transaction.extend(key, Array::Record { length: 1, members }).map(drop)
}

/// Gives a condition another value of a field: another end, or a corrected payload.
fn replace(federation: &Federation, entry: u64, field: &str, value: Array) -> Result<()> {
    let mut transaction = federation.transaction(Default::default())?;
    let database = transaction.database(DATABASE)?;
    let key = transaction.container(database, "gain")?;
    let fields = Array::Record { length: 1, members: vec![(field.to_owned(), value)] };
    transaction.update(key, &[entry], fields)?;
    transaction.commit().map(drop)
}

fn tag(federation: &Federation, name: &str, change: TagChange) -> Result<()> {
    GlobalTag::change(federation, name, &change).map(drop)
}

fn state(federation: &Federation, name: &str, state: GlobalTagState) -> Result<()> {
    tag(federation, name, TagChange { state: Some(state), ..TagChange::default() })
}
