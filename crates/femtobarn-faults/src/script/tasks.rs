//! Tasks of a fork, as other processes run them: through a federation that they open themselves.

use std::path::Path;

use femtobarn::{ContainerKey, Federation, Result, Transaction};

use super::items::objects;

/// Runs of one task, at most.
const RUNS_MAX: u64 = 3;

/// Lets tasks append to a container, `count` objects each, and merges them in their order. A task runs one to three
/// times: if several, the first run ends before it is finished, and the others give a receipt each.
pub(super) fn append(
    transaction: &mut Transaction,
    key: ContainerKey,
    folder: &Path,
    first: u64,
    tasks: u64,
    count: u64,
) -> Result<()> {
    let fork = transaction.fork(&[key], &[])?;
    let elsewhere = Federation::open(folder)?;
    let mut receipts = vec![];
    for task in 0..tasks {
        let start = first + task * count;
        let runs = 1 + task % RUNS_MAX;
        for run in 0..runs {
            let mut writer = elsewhere.begin_task(&fork, &format!("task {task}"))?;
            writer.extend(0, objects(start..start + count))?;
            if run > 0 || runs == 1 {
                receipts.push(writer.finish()?);
            }
        }
    }
    let merged = transaction.merge(&receipts)?;
    assert_eq!(merged, tasks, "each task counts once");
    Ok(())
}
